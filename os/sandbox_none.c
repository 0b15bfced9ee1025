#include "sandbox.h"

bool sandbox_enter(void) { return false; }
int file_unnamed(const char *folder, unsigned mode) { return (void)folder, (void)mode, -1; }
bool file_name(int fd, const char *path) { return (void)fd, (void)path, false; }
void file_mark(int fd, const char *text) { (void)fd, (void)text; }
void file_marked(int fd, char *text, size_t size) { (void)fd, (void)size, *text = 0; }
