#include "isa.h"

const Kernels kernels_neon = {.name = "neon"};
