#include "isa.h"

const Kernels kernels_avx512 = {.name = "avx512"};
