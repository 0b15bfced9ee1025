// Replaces quantize/ in a program built with WITHOUT=quantize. The command table refuses the
// command. Types that need no search can still be encoded.
#include "quantize.h"
#include "encode.h"
#include "imatrix.h"

#include <string.h>

const bool quantize_is_built = false;

bool quantize_file(const QuantizeOptions *o, QuantizeSizes *sizes, Error *err) {
    (void)o, (void)sizes;
    return error_set(err, EXIT_USAGE, "this build has no quantizer (built with WITHOUT=quantize)");
}

bool quant_can_encode(Type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_Q8_0;
}

bool quant_encode(Type type, const float *x, const float *importance, void *row, size_t n) {
    (void)importance;
    if (type == TYPE_Q8_0) return quant_encode_q8_0(x, row, n);
    if (type == TYPE_F32) memcpy(row, x, n * sizeof *x);
    for (size_t i = 0; i < n && type == TYPE_F16; i++) ((uint16_t *)row)[i] = f32_to_f16(x[i]);
    for (size_t i = 0; i < n && type == TYPE_BF16; i++) ((uint16_t *)row)[i] = f32_to_bf16(x[i]);
    return quant_can_encode(type);
}

// For the fuzz target, which does nothing without the module.
uint64_t imatrix_n_columns(const GgufTensor *t) { return t->dims[0]; }
bool imatrix_read(Imatrix *m, const char *path, const Gguf *g, Error *err) {
    (void)m, (void)path, (void)g;
    return error_set(err, EXIT_USAGE, "this build has no quantizer (built with WITHOUT=quantize)");
}
