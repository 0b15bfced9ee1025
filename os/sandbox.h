// The process sandbox: sandbox_linux.c (seccomp and Landlock), sandbox_openbsd.c (pledge), or
// sandbox_none.c elsewhere. SANDBOX= of the Makefile chooses one.
#pragma once

#include <stdbool.h>

// From now on no thread of this process can open a file, use the network, start a program or map
// executable memory. Open descriptors keep working. Returns false, without effect, where the system
// has no sandbox or refuses it.
bool sandbox_enter(void);
