// Adapter files. Like a model, an adapter is untrusted input: everything is checked before use.
#include "lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const bool lora_is_built = true;

// The text of a key must be this one.
static bool check_text(const Gguf *g, const char *key, const char *expected, Error *err) {
    Str found = gguf_get_text(g, key);
    return str_is(found, expected) ||
           error_set(err, EXIT_MODEL, "%s: %s: expected \"%s\", found \"%.*s\"", g->path, key,
                     expected, SHOWN(found));
}

static bool check_file(const Gguf *g, double *alpha, Error *err) {
    if (!str_is(gguf_get_text(g, "general.type"), "adapter"))
        return error_set(err, EXIT_MODEL, "%s: expected a LoRA adapter, found %s", g->path,
                         g->n_tensors ? "a model" : "a file without tensors");
    if (!check_text(g, "adapter.type", "lora", err) ||
        !check_text(g, "general.architecture", "llama", err) ||
        !gguf_get_f64(g, "adapter.lora.alpha", alpha, err))
        return false;
    if (gguf_find_value(g, "adapter.alora.invocation_tokens"))
        return error_set(err, EXIT_MODEL,
                         "%s: an adapter that works after certain tokens only (aLoRA): expected "
                         "one for all",
                         g->path);
    // 0 is nothing to PEFT and alpha = rank to llama.cpp
    return (isfinite(*alpha) && *alpha != 0) ||
           error_set(err, EXIT_MODEL, "%s: adapter.lora.alpha: expected a number but 0, found %g",
                     g->path, *alpha);
}

bool lora_open(Lora *a, const LoraOption *option, Error *err) {
    double alpha;
    *a = (Lora){0};
    Str path = str_copy(option->path);
    bool is_open = gguf_open(&a->file, path.data, err);
    free((char *)path.data);
    if (!is_open) return false;
    if (!check_file(&a->file, &alpha, err)) return lora_close(a), false;
    a->scale = option->scale * alpha;
    a->pairs = xalloc((size_t)a->file.n_tensors + 1, sizeof *a->pairs);
    return true;
}

// B in strips, scaled; see LowRank.
static float *read_strips(const Tensor *b, float scale) {
    size_t rank = (size_t)b->cols, n;
    size_t n_strips = ((size_t)b->rows + LORA_STRIP - 1) / LORA_STRIP;
    if (!size_mul(n_strips * LORA_STRIP, rank, &n)) n = SIZE_MAX; // more than there is memory
    float *strips = xalloc(n, sizeof *strips), *row = xalloc(rank, sizeof *row);
    for (size_t r = 0; r < (size_t)b->rows; r++) {
        float *at = strips + r / LORA_STRIP * rank * LORA_STRIP + r % LORA_STRIP;
        quant_decode_row(b->type, (const char *)b->data + r * b->row_bytes, row, rank);
        for (size_t k = 0; k < rank; k++) at[k * LORA_STRIP] = scale * row[k];
    }
    free(row);
    return strips;
}

bool lora_attach(Lora *a, const char *name, Tensor *w, bool is_embedding, Error *err) {
    const Gguf *g = &a->file;
    LowRank *pair = &a->pairs[a->n_pairs];
    char down[96], up[96];
    Tensor b;
    snprintf(down, sizeof down, "%s.lora_a", name);
    snprintf(up, sizeof up, "%s.lora_b", name);
    const GgufTensor *t = gguf_find_tensor(g, down);
    if (!t && !gguf_find_tensor(g, up)) return true;
    uint64_t rank = t ? t->dims[is_embedding ? 0 : 1] : 1;
    // a greater one says nothing more
    if (rank < 1 || rank > (uint64_t)w->cols)
        return error_set(err, EXIT_MODEL, "%s: tensor %s: expected a rank of 1 to %d, found %llu",
                         g->path, down, w->cols, (unsigned long long)rank);
    int n = (int)rank, rows = is_embedding ? w->rows : n, cols = is_embedding ? n : w->cols;
    if (!tensor_find(g, down, rows, cols, &pair->a, err) ||
        !tensor_find(g, up, is_embedding ? w->cols : w->rows, n, &b, err))
        return false;
    pair->b = read_strips(&b, (float)(a->scale / n));
    pair->next = w->lora;
    w->lora = pair;
    a->n_pairs++;
    return true;
}

// Whether a tensor is the A of a pair, or, by its name, the B of one that has an A.
static bool is_of_pair(const Lora *a, const GgufTensor *t) {
    char down[96];
    if (!str_ends_with(t->name, ".lora_a") && !str_ends_with(t->name, ".lora_b")) return false;
    snprintf(down, sizeof down, "%.*sa", (int)t->name.len - 1, t->name.data);
    const GgufTensor *first = gguf_find_tensor(&a->file, down);
    for (int i = 0; first && i < a->n_pairs; i++)
        if (a->pairs[i].a.data == first->data) return true;
    return false;
}

bool lora_check(const Lora *a, Error *err) {
    const Gguf *g = &a->file;
    for (int i = 0; i < g->n_tensors && 2 * a->n_pairs < g->n_tensors; i++)
        if (!is_of_pair(a, &g->tensors[i]))
            return error_set(err, EXIT_MODEL,
                             "%s: tensor %.*s: expected the lora_a or lora_b of a matrix of this "
                             "model",
                             g->path, SHOWN(g->tensors[i].name));
    return a->n_pairs > 0 ||
           error_set(err, EXIT_MODEL, "%s: expected tensors, found none", g->path);
}

void lora_close(Lora *a) {
    for (int i = 0; i < a->n_pairs; i++) free((float *)a->pairs[i].b);
    free(a->pairs);
    gguf_close(&a->file);
    *a = (Lora){0};
}
