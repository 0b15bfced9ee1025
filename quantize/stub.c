// Replaces quantize/ in a program built with WITHOUT=quantize: there are no mixtures, and the
// command table refuses the command before it calls quantize_file().
#include "quantize/mixture.h"
#include "quantize/quantize.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

bool quantize_file(const QuantizeOptions *o, uint64_t *in_bytes, uint64_t *out_bytes, Error *err) {
    return error_set(err, EXIT_USAGE, "this build has no quantizer (built with WITHOUT=quantize)");
}
const char *mixture_name(int i) { return NULL; }
