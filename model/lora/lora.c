// Adapter files: opens them and finds the pair of each matrix. A file is untrusted input, so its
// metadata and shapes are checked before they are used.
#include "model/lora/lora.h"
#include "base/bits.h"

#include <math.h>
#include <stdio.h>

static bool check_text(const Gguf *g, const char *key, const char *expected, Error *err) {
    Str found = gguf_get_text(g, key);
    return str_is(found, expected) ||
           gguf_refuse(g, err, "%s: expected \"%s\", found \"%.*s\"", key, expected, SHOWN(found));
}

static bool read_metadata(const Gguf *g, const char *architecture, double *alpha, Error *err) {
    if (!str_is(gguf_get_text(g, "general.type"), "adapter"))
        return gguf_refuse(g, err, "expected a LoRA adapter, found %s",
                           g->n_tensors ? "a model" : "a file without tensors");
    if (!check_text(g, "adapter.type", "lora", err) ||
        !check_text(g, "general.architecture", architecture, err) ||
        !gguf_get_f64(g, "adapter.lora.alpha", alpha, err))
        return false;
    if (gguf_find_value(g, "adapter.alora.invocation_tokens"))
        return gguf_refuse(g, err, "activated LoRA (aLoRA) is not supported");
    // An alpha of 0 is ambiguous: no effect in PEFT, alpha = rank in llama.cpp.
    return (isfinite(*alpha) && *alpha != 0) ||
           gguf_refuse(g, err, "adapter.lora.alpha: must be finite and not 0, found %g", *alpha);
}

bool lora_open(Lora *a, const LoraOption *option, const char *architecture, Error *err) {
    double alpha;
    *a = (Lora){0};
    Str path = str_copy(option->path);
    bool is_open = gguf_open(&a->file, path.data, err);
    free((char *)path.data);
    if (!is_open) return false;
    if (!read_metadata(&a->file, architecture, &alpha, err)) {
        lora_close(a);
        return false;
    }
    a->scale = option->scale * alpha;
    a->pairs = xalloc((size_t)a->file.n_tensors, sizeof *a->pairs);
    a->is_attached = xalloc((size_t)a->file.n_tensors, sizeof *a->is_attached);
    return true;
}

// B as float32, scaled, in strips (see LowRank).
static float *read_strips(const Tensor *b, float scale) {
    size_t rank = (size_t)b->cols, n;
    size_t n_strips = size_div_up((size_t)b->rows, LORA_STRIP);
    if (!size_mul(n_strips * LORA_STRIP, rank, &n)) n = SIZE_MAX; // fails in xalloc
    float *strips = xalloc(n, sizeof *strips), *row = xalloc(rank, sizeof *row);
    for (size_t r = 0; r < (size_t)b->rows; r++) {
        float *to = strips + r / LORA_STRIP * rank * LORA_STRIP + r % LORA_STRIP;
        quant_decode_row(b->type, (const char *)b->data + r * b->row_bytes, row, rank);
        for (size_t k = 0; k < rank; k++) to[k * LORA_STRIP] = scale * row[k];
    }
    free(row);
    return strips;
}

// Refuses a tensor with a value that, times `scale`, is not finite.
static bool check_finite(const Gguf *g, const char *name, const Tensor *t, float scale,
                         Error *err) {
    size_t cols = (size_t)t->cols;
    float *row = xalloc(cols, sizeof *row);
    bool finite = isfinite(scale);
    for (size_t r = 0; r < (size_t)t->rows && finite; r++) {
        quant_decode_row(t->type, (const char *)t->data + r * t->row_bytes, row, cols);
        for (size_t i = 0; i < cols; i++) finite &= isfinite(scale * row[i]) != 0;
    }
    free(row);
    return finite ||
           gguf_refuse(g, err, "tensor %s: a value times %g is not finite", name, (double)scale);
}

bool lora_attach(Lora *a, const char *name, Tensor *w, bool is_embedding, Error *err) {
    const Gguf *g = &a->file;
    LowRank *pair = &a->pairs[a->n_pairs];
    char name_a[96], name_b[96];
    Tensor b;

    snprintf(name_a, sizeof name_a, "%s.lora_a", name);
    snprintf(name_b, sizeof name_b, "%s.lora_b", name);
    const GgufTensor *tensor_a = gguf_find_tensor(g, name_a);
    const GgufTensor *tensor_b = gguf_find_tensor(g, name_b);
    if (!tensor_a && !tensor_b) return true;

    // W += scale B A, with A (rank, cols) and B (rows, rank). For the embedding, W += scale A B^T,
    // with A (rows, rank) and B (cols, rank).
    uint64_t rank = tensor_a ? tensor_a->dims[is_embedding ? 0 : 1] : 1;
    if (rank < 1 || rank > (uint64_t)w->cols) // no matrix of this width has a higher rank
        return gguf_refuse(g, err, "tensor %s: expected a rank of 1 to %d, found %llu", name_a,
                           w->cols, (unsigned long long)rank);

    int n = (int)rank;
    int rows = is_embedding ? w->rows : n;
    int cols = is_embedding ? n : w->cols;
    if (!tensor_find(g, name_a, 1, rows, cols, &pair->a, err) ||
        !tensor_find(g, name_b, 1, is_embedding ? w->cols : w->rows, n, &b, err))
        return false;

    float scale = (float)(a->scale / n) * w->scale;
    if (!check_finite(g, name_a, &pair->a, 1, err) || !check_finite(g, name_b, &b, scale, err))
        return false;

    pair->b = read_strips(&b, scale);
    pair->next = w->lora;
    w->lora = pair;
    a->n_pairs++;
    a->is_attached[tensor_a - g->tensors] = true;
    a->is_attached[tensor_b - g->tensors] = true;
    return true;
}

bool lora_check(const Lora *a, Error *err) {
    const Gguf *g = &a->file;
    for (int i = 0; i < g->n_tensors; i++)
        if (!a->is_attached[i])
            return gguf_refuse(g, err,
                               "tensor %.*s: not the lora_a or lora_b of a matrix of this model",
                               SHOWN(g->tensors[i].name));
    return a->n_pairs > 0 || gguf_refuse(g, err, "no tensors");
}

void lora_close(Lora *a) {
    for (int i = 0; i < a->n_pairs; i++) free((float *)a->pairs[i].b);
    free(a->pairs);
    free(a->is_attached);
    gguf_close(&a->file);
    *a = (Lora){0};
}
