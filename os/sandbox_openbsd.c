#include "sandbox.h"

#include <unistd.h>

bool sandbox_enter(void) { return unveil(NULL, NULL) == 0 && pledge("stdio tty", NULL) == 0; }
