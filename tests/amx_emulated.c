// kernels/x86/amx.c with the emulated tile unit, compiled with the flags of avx512.c.
#include "tests/amx_emulate.h"
#define kernels_amx kernels_amx_emulated
#include "kernels/x86/amx.c"
