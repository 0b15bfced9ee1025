// A system without a sandbox.
#include "base/os/sandbox.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

unsigned sandbox_enter(const SandboxPath *paths, int n) { return 0; }
