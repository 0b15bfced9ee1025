#include "sandbox.h"

#include <unistd.h>

bool sandbox_enter(void) { return unveil(NULL, NULL) == 0 && pledge("stdio tty", NULL) == 0; }
int os_open_temporary(const char *folder, unsigned mode) { return (void)folder, (void)mode, -1; }
bool os_link_temporary(int fd, const char *path) { return (void)fd, (void)path, false; }
void os_set_attribute(int fd, const char *text) { (void)fd, (void)text; }
void os_get_attribute(int fd, char *text, size_t size) { (void)fd, (void)size, *text = 0; }
