// The quantizer: converts a GGUF model file to smaller tensor types.
//
//     quantize.c       the driver: decodes, encodes and writes all tensors, with a checksum
//     mixture.c        the type of each tensor
//     calibrate.c      importance matrices computed from a text
//     imatrix.c        importance matrices read from and written to files
//     encode.c         encoders: rows of float32 to blocks of a type
//     gguf_writer.c    the head of a GGUF file
//
// Entry points: quantize_file(), and quant_encode() (encode.h) for single rows.
// `make WITHOUT=quantize` leaves the directory out; stub.c then implements both.
#pragma once

#include "quantize/imatrix.h"
#include "base/files.h"
#include "model/load.h"

typedef struct {
    const char *in, *out;       // GGUF files
    const char *mixture;        // name of the mixture of types: "Q4_K_M" ...
    const char *calibrate;      // text file to compute an importance matrix from; NULL: none
    const char *imatrix;        // importance matrix to read or, with `calibrate`, to write; or NULL
    ModelOptions model_options; // for calibration; n_threads also for the conversion
    bool is_forced;             // existing files may be replaced
    bool is_verbose;            // list the type of each tensor on stderr
    void (*show_progress)(void *arg, const char *line); // line NULL: remove it
    void *arg;
} QuantizeOptions;

// Converts o->in to o->out. False with err (exit 1 to 3); then no file is left behind. Call it
// once: memory is released by the end of the process. in_bytes: size of the tensors that were read;
// out_bytes: size of the file that was written.
bool quantize_file(const QuantizeOptions *o, uint64_t *in_bytes, uint64_t *out_bytes, Error *err);

// calibrate.c: runs the model g on the text o->calibrate, in windows of 512 tokens as llama.cpp's
// imatrix does, and sums the squares of the inputs of each matrix product. Writes the sums to `out`
// unless that is NULL. False with err (exit 1 to 3).
bool imatrix_calibrate(float **columns, const QuantizeOptions *o, const Gguf *g, OutFile *out,
                       Error *err);
