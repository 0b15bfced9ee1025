// GGUF lists the dimensions of a tensor with the row length first: a matrix (rows, cols) has
// dims {cols, rows, 1, 1}, and n of them {cols, rows, n, 1}.
#include "kernels/tensor.h"
#include "kernels/quant.h"

#include <stdio.h>

// A shape as text, slowest dimension first.
typedef struct {
    char text[96];
} Shape;

static Shape shape_of(const uint64_t dims[4]) {
    Shape s;
    int n = 0, last = 3;
    while (last > 1 && dims[last] == 1) last--;
    for (int i = last; i >= 0; i--)
        n += snprintf(s.text + n, sizeof s.text - (size_t)n, "%s%llu%s", i == last ? "(" : ", ",
                      (unsigned long long)dims[i], i ? "" : ")");
    return s;
}

const GgufTensor *tensor_find(const Gguf *file, const char *name, int n, int rows, int cols,
                              Tensor *out, Error *err) {
    const uint64_t dims[] = {(uint64_t)cols, (uint64_t)rows, (uint64_t)n, 1};
    const GgufTensor *t = gguf_find_tensor(file, name);

    if (!t || memcmp(t->dims, dims, sizeof dims)) {
        error_set(err, EXIT_MODEL, "%s: tensor %s: expected shape %s, found %s", file->path, name,
                  shape_of(dims).text, t ? shape_of(t->dims).text : "no such tensor");
        return NULL;
    }

    if (!quant_is_supported(t->type)) {
        error_set(err, EXIT_MODEL, "%s: tensor %s: unsupported type %s", file->path, name,
                  gguf_describe_type(t->type, gguf_file_type(file)));
        return NULL;
    }

    size_t row_bytes = quant_row_bytes((Type)t->type, (size_t)cols);
    for (int i = 0; i < n; i++)
        out[i] = (Tensor){.data = (const char *)t->data + (size_t)i * (size_t)rows * row_bytes,
                          .type = (Type)t->type,
                          .rows = rows,
                          .cols = cols,
                          .row_bytes = row_bytes,
                          .scale = 1};
    return t;
}

Tensor tensor_rows(const Tensor *w, int first, int n) {
    Tensor part = *w;
    part.data = (const char *)w->data + (size_t)first * w->row_bytes;
    part.rows = n;
    return part;
}
