// A system without a sandbox.
#include "sandbox.h"

bool sandbox_enter(void) { return false; }
