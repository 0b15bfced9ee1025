// Calibration: computes an importance matrix by running the model on a text.
#ifndef QUANTIZE_CALIBRATE_H
#define QUANTIZE_CALIBRATE_H

#include "imatrix.h"
#include "quantize.h"

// Runs the model g on the text o->calibrate, in windows of 512 tokens as llama.cpp's imatrix does,
// and sums the squares of the inputs of each matrix product. Writes the sums to o->imatrix if that
// is set. False with err (exit 1 to 3).
bool imatrix_calibrate(Imatrix *m, const QuantizeOptions *o, const Gguf *g, Error *err);

#endif
