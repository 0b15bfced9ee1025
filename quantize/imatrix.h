// Importance matrices: how much each column of a weight matrix counts, which is the mean square of
// the inputs that it meets on some text.
#ifndef QUANTIZE_IMATRIX_H
#define QUANTIZE_IMATRIX_H

#include "../gguf.h"
#include "../cli/options.h"

typedef struct {
    float **columns; // per tensor of the model: (dims[2], dims[0]), of mean 1; NULL: not known
} Imatrix;

// Reads a file of llama.cpp's for the model g: GGUF with X.in_sum2 and X.counts, or the older
// binary form. Dies (exit 1 or 3) if it is damaged or was made of another model.
void imatrix_read(Imatrix *m, const char *path, const Gguf *g);
// Feeds a text to the model g itself, in windows of 512 tokens as llama.cpp's imatrix does, and
// sums the squares of each product's inputs. Keeps them in the file o->imatrix, if it is named, as
// GGUF. Dies on failure.
void imatrix_calibrate(Imatrix *m, const Options *o, const char *text, const Gguf *g);

#endif
