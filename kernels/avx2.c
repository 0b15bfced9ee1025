#include "isa.h"

const Kernels kernels_avx2 = {.name = "avx2"};
