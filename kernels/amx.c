#include "isa.h"

const Kernels kernels_amx = {.name = "amx"};
