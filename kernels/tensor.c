// GGUF lists the dimensions of a tensor with the row length first: a matrix (rows, cols) has
// dims {cols, rows, 1, 1}.
#include "tensor.h"
#include "quant.h"

const GgufTensor *tensor_find(const Gguf *file, const char *name, int rows, int cols, Tensor *out,
                              Error *err) {
    const GgufTensor *t = gguf_find_tensor(file, name);
    if (!t) {
        error_set(err, EXIT_MODEL, "%s: tensor %s: expected shape (%d, %d), found no such tensor",
                  file->path, name, rows, cols);
        return NULL;
    }

    bool is_matrix = t->dims[2] == 1 && t->dims[3] == 1;
    if (!is_matrix || t->dims[0] != (uint64_t)cols || t->dims[1] != (uint64_t)rows) {
        error_set(err, EXIT_MODEL, "%s: tensor %s: expected shape (%d, %d), found (%llu, %llu%s)",
                  file->path, name, rows, cols, (unsigned long long)t->dims[1],
                  (unsigned long long)t->dims[0], is_matrix ? "" : ", ...");
        return NULL;
    }

    if (!quant_is_supported(t->type)) {
        error_set(err, EXIT_MODEL, "%s: tensor %s: unsupported type %s", file->path, name,
                  gguf_describe_type(t->type, gguf_file_type(file)));
        return NULL;
    }

    size_t row_bytes = quant_row_bytes((Type)t->type, (size_t)cols);
    *out = (Tensor){t->data, (Type)t->type, rows, cols, row_bytes, 1, NULL, NULL, false};
    return t;
}
