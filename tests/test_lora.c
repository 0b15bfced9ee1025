// LoRA adapters: a model with adapters is compared to one with merged weights; bad files are
// refused.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "model/load.h"
#include "quantize/encode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 300, RANK_STEP = 32, MAX_ADAPTERS = 3 };

// An adapter for all matrices of a model. Matrix i has rank `rank` + i, except in Q8_0, which needs
// whole blocks.
typedef struct {
    uint64_t seed;
    Type type;
    int rank;
    float alpha;
    double scale;
    bool is_tied;
} Recipe;

// Element i of a matrix of an adapter; all float types can hold it exactly.
static float number(const Recipe *r, const char *name, char side, int i) {
    uint64_t state = r->seed * 1000003 + (uint64_t)side;
    for (; *name; name++) state = state * 131 + (uint64_t)*name;
    state += (uint64_t)i * 0x9e3779b97f4a7c15u + 1;
    test_random(&state);
    return (float)((int)(test_random(&state) >> 33) % 33 - 16) / 64;
}

static int rank_of(const Recipe *r, int matrix) {
    return r->type == TYPE_Q8_0 ? RANK_STEP : r->rank + matrix;
}

static void put_part(Maker *m, const Recipe *r, const char *name, char side, int rows, int cols) {
    char full[96];
    float *x = xalloc((size_t)rows * (size_t)cols, sizeof *x);
    size_t row_bytes = quant_row_bytes(r->type, (size_t)cols);
    char *data = xalloc((size_t)rows, row_bytes);

    for (int i = 0; i < rows * cols; i++) x[i] = number(r, name, side, i);
    for (int i = 0; i < rows; i++)
        quant_encode(r->type, x + (size_t)i * (size_t)cols, NULL, data + (size_t)i * row_bytes,
                     (size_t)cols);

    snprintf(full, sizeof full, "%s.weight.lora_%c", name, side);
    make_tensor(m, full, r->type, (uint64_t)cols, (uint64_t)rows, data, (size_t)rows * row_bytes);
    free(x);
    free(data);
}

// Matrix i of a model and its name; NULL after the last.
static Tensor *matrix(Model *m, int i, char name[64]) {
    static const char *const names[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    Layer *l = &m->layers[i / 7];
    Tensor *all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->w_gate, &l->w_up, &l->w_down};
    snprintf(name, 64, "blk.%d.%s", i / 7, names[i % 7]);
    if (i < 7 * m->config.n_layers) return all[i % 7];
    i -= 7 * m->config.n_layers;
    snprintf(name, 64, i ? "output" : "token_embd");
    bool is_tied = m->output.data == m->embed.data;
    if (i == 0) return &m->embed;
    return i == 1 && !is_tied ? &m->output : NULL;
}

static void begin_adapter(Maker *m, float alpha, const char *skip) {
    make_begin(m);
    m->skip = skip;
    make_string(m, "general.architecture", "llama");
    make_string(m, "general.type", "adapter");
    make_string(m, "adapter.type", "lora");
    make_f32(m, "adapter.lora.alpha", alpha);
}

static const char *write_adapter(Model *base, const Recipe *r, const char *path) {
    Maker m;
    char name[64];
    Tensor *w;

    begin_adapter(&m, r->alpha, NULL);
    for (int i = 0; (w = matrix(base, i, name)); i++) {
        bool is_embedding = w == &base->embed;
        if (is_embedding && r->is_tied)
            continue; // merged weights would change the output matrix, too
        int rank = rank_of(r, i);
        int rows = is_embedding ? w->cols : w->rows;
        put_part(&m, r, name, 'a', is_embedding ? w->rows : rank, is_embedding ? rank : w->cols);
        put_part(&m, r, name, 'b', rows, rank);
    }

    Buffer bytes = make_end(&m);
    path = make_path(path, bytes.data, bytes.len);
    buffer_free(&bytes);
    return path;
}

// Adds scale * alpha / rank * B A to each matrix W, in the bytes of the model file.
static void merge(Model *m, const Recipe *r) {
    char name[64];
    Tensor *w;
    for (int i = 0; (w = matrix(m, i, name)); i++) {
        int rank = rank_of(r, i);
        bool is_embedding = w == &m->embed;
        float *x = (float *)(uintptr_t)w->data;
        if (is_embedding && r->is_tied) continue; // as in write_adapter()

        // For the embedding, A is (vocab, rank) and B is (cols, rank).
        for (int row = 0; row < w->rows; row++)
            for (int c = 0; c < w->cols; c++) {
                double sum = 0;
                for (int k = 0; k < rank; k++)
                    sum += (double)number(r, name, is_embedding ? 'a' : 'b', row * rank + k) *
                           (double)number(r, name, is_embedding ? 'b' : 'a',
                                          is_embedding ? c * rank + k : k * w->cols + c);
                x[row * w->cols + c] += (float)(r->scale * (double)r->alpha / rank * sum);
            }
    }
}

static Buffer open_small(Model *m, MakeLlama recipe, ModelOptions options) {
    Gguf g;
    Error err;
    Buffer file = make_llama_file(recipe);
    if (!gguf_parse(&g, file.data, file.len, "small", &err) || !model_bind(m, &g, &options, &err))
        die_error(&err);
    return file;
}

// Logits (N_TOKENS, vocab), fed in chunks.
static float *logits_of(Model *m, int chunk) {
    Error err;
    int tokens[N_TOKENS];
    uint64_t seed = 3;
    size_t n_vocab = (size_t)m->config.vocab_size;

    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (int)(test_random(&seed) % 256);

    float *all = xalloc(N_TOKENS * n_vocab, sizeof *all);
    Workspace *ws = workspace_new(m, chunk, chunk);
    Session *s = session_new(&m->kv);

    for (int first = 0; first < N_TOKENS; first += chunk) {
        int n = workspace_feed(ws, s, tokens + first, N_TOKENS - first, 0, &err);
        if (n < 0) die_error(&err);
        memcpy(all + (size_t)first * n_vocab, model_forward(m, ws, 0),
               (size_t)n * n_vocab * sizeof *all);
    }

    session_free(s);
    workspace_free(ws);
    return all;
}

// Compares a model with adapters and the same model with merged weights, in prefill and in decode.
static void compare(MakeLlama recipe, const Recipe *adapters, int n, const char *kv_type,
                    double limit) {
    Model base, merged, m;
    LoraOption options[MAX_ADAPTERS];
    char path[32];
    Buffer files[3] = {open_small(&base, recipe, (ModelOptions){0}),
                       open_small(&merged, recipe, (ModelOptions){.kv_type = kv_type})};

    // Adapter files for m, whose weights are added to those of `merged`.
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%d.gguf", i);
        options[i] =
            (LoraOption){str_of(write_adapter(&base, &adapters[i], path)), adapters[i].scale};
        merge(&merged, &adapters[i]);
    }

    files[2] = open_small(
        &m, recipe,
        (ModelOptions){.kv_type = kv_type, .adapters = options, .n_adapters = n, .n_threads = 2});

    size_t n_logits = (size_t)N_TOKENS * (size_t)m.config.vocab_size;
    float *plain = logits_of(&base, N_TOKENS);
    float *expected = logits_of(&merged, N_TOKENS);
    double change = test_nmse(plain, expected, n_logits);
    CHECK(change > 0.01, "the adapters hardly change the logits: %g", change);

    // Decode, then prefill.
    for (int chunk = 1; chunk <= N_TOKENS; chunk += N_TOKENS - 1) {
        float *found = logits_of(&m, chunk);
        double nmse = test_nmse(found, expected, n_logits);
        CHECK(nmse <= limit, "%d adapters of %s, KV cache %s, chunks of %d: %g", n,
              type_info(adapters->type)->name, kv_type, chunk, nmse);

        // Any number of threads.
        m.n_threads = 3;
        float *same = logits_of(&m, chunk);
        CHECK(!memcmp(found, same, n_logits * sizeof *same),
              "not bit-identical with three threads");

        // Any chunk size, if the model is batch-invariant.
        m.n_threads = 2;
        m.is_batch_invariant = true;
        float *one = logits_of(&m, 1);
        float *many = logits_of(&m, 64);
        CHECK(!memcmp(one, many, n_logits * sizeof *one), "not bit-identical in another chunk");

        m.n_threads = 3;
        float *three = logits_of(&m, 64);
        CHECK(!memcmp(three, many, n_logits * sizeof *one), "not bit-identical with three threads");

        m.n_threads = 2;
        m.is_batch_invariant = false;
        free(found);
        free(same);
        free(one);
        free(many);
        free(three);
    }

    free(plain);
    free(expected);
    model_close(&base);
    model_close(&merged);
    model_close(&m);
    for (int i = 0; i < 3; i++) buffer_free(&files[i]);
}

static void equals_merged(void) {
    static const Recipe three[] = {{.seed = 1, .rank = 1, .alpha = 2, .scale = 1},
                                   {.seed = 2, .rank = 8, .alpha = 16, .scale = -0.5},
                                   {.seed = 3, .rank = 17, .alpha = 3, .scale = 0.25}};
    double limit = strcmp(kernel.name, "amx") ? 1e-6 : 1e-4; // attention rounds to bf16
    for (int n = 1; n <= 3; n += test_step(2))
        compare((MakeLlama){.seed = 4}, three, n, "f32", limit);

    Recipe tied = three[1];
    tied.is_tied = true;
    compare((MakeLlama){.seed = 5, .is_tied = true, .n_heads = 8, .n_kv_heads = 1, .dim = 80},
            &tied, 1, "f32", limit);
}

static void types(void) {
    for (int i = 0; i < 3; i += test_step(3)) {
        Recipe r = {.seed = 9,
                    .type = (Type[]){TYPE_F16, TYPE_BF16, TYPE_Q8_0}[i],
                    .rank = 4,
                    .alpha = 8,
                    .scale = 0.5};
        double limit = strcmp(kernel.name, "amx") ? 1e-6 : 1e-4; // attention rounds to bf16
        if (r.type == TYPE_Q8_0) limit = 5e-4;                   // weights are rounded
        compare((MakeLlama){.seed = 6}, &r, 1, "f32", limit);
    }
}

// A rounding difference may change a value of the cache by a step, and that of bf16 more often.
static void quantized_caches(void) {
    static const char *const types[] = {"q8_0", "q4_0", "q8_0,q4_0"};
    Recipe r = {.seed = 8, .rank = 4, .alpha = 8, .scale = 0.5};
    double limit = strcmp(kernel.name, "amx") ? 1e-3 : 1e-2;
    for (int i = 0; i < 3; i++)
        compare((MakeLlama){.seed = 7, .n_heads = 2}, &r, 1, types[i], limit);
}

// An adapter of one matrix, with an entry left out or replaced, is refused with this message.
// says NULL: it is accepted.
static void expect_refusal(const char *skip, void (*replace)(Maker *m), const char *says) {
    Maker maker;
    Model m;
    Gguf g;
    Error err = {0};
    Recipe r = {.rank = 4};

    // The adapter has parts A (4, 64) and B (32, 4).
    begin_adapter(&maker, 8, skip);
    put_part(&maker, &r, "blk.1.attn_k", 'a', 4, 64);
    put_part(&maker, &r, "blk.1.attn_k", 'b', 32, 4);
    maker.skip = NULL;
    if (replace) replace(&maker);

    Buffer bytes = make_end(&maker);
    Buffer file = make_llama_file((MakeLlama){.n_kv_heads = 2});

    LoraOption option = {str_of(make_path("bad.gguf", bytes.data, bytes.len)), 1};
    bool is_bound = gguf_parse(&g, file.data, file.len, "small", &err) &&
                    model_bind(&m, &g, &(ModelOptions){.adapters = &option, .n_adapters = 1}, &err);

    CHECK(is_bound == !says, "%s: %s", skip ? skip : "", err.text);
    if (is_bound)
        model_close(&m);
    else
        CHECK(err.code == EXIT_MODEL && test_matches(err.text, says) &&
                  strstr(err.text, "bad.gguf: "),
              "exit %d: %s", err.code, err.text);

    buffer_free(&bytes);
    buffer_free(&file);
}

static void qwen(Maker *m) { make_string(m, "general.architecture", "qwen2"); }
static void model(Maker *m) { make_string(m, "general.type", "model"); }
static void loha(Maker *m) { make_string(m, "adapter.type", "loha"); }
static void alora(Maker *m) { make_u32(m, "adapter.alora.invocation_tokens", 7); }
static void no_alpha(Maker *m) { make_f32(m, "adapter.lora.alpha", 0); }
static void nan_alpha(Maker *m) { make_f32(m, "adapter.lora.alpha", __builtin_nanf("")); }
static void tensor(Maker *m, const char *name, uint64_t rows, uint64_t cols) {
    make_tensor(m, name, TYPE_F32, cols, rows, NULL, rows * cols * 4);
}
static void wide_a(Maker *m) { tensor(m, "blk.1.attn_k.weight.lora_a", 4, 128); }
static void short_b(Maker *m) { tensor(m, "blk.1.attn_k.weight.lora_b", 64, 4); }
static void rank_b(Maker *m) { tensor(m, "blk.1.attn_k.weight.lora_b", 32, 8); }
static void rank_65(Maker *m) { tensor(m, "blk.1.attn_k.weight.lora_a", 65, 64); }
static void embedding(Maker *m) { tensor(m, "token_embd.weight.lora_a", 4, 65); }
static void layer_two(Maker *m) { tensor(m, "blk.2.attn_k.weight.lora_a", 4, 64); }
static void norm(Maker *m) { tensor(m, "blk.1.attn_norm.weight", 1, 64); }
static void last_value(Maker *m, char side, uint64_t rows, uint64_t cols, float value) {
    static float x[4 * 64];
    char name[64];
    snprintf(name, sizeof name, "blk.1.attn_k.weight.lora_%c", side);
    x[rows * cols - 1] = value;
    make_tensor(m, name, TYPE_F32, cols, rows, x, rows * cols * sizeof *x);
}
static void nan_a(Maker *m) { last_value(m, 'a', 4, 64, __builtin_nanf("")); }
static void infinite_b(Maker *m) { last_value(m, 'b', 32, 4, __builtin_inff()); }
static void large_b(Maker *m) { last_value(m, 'b', 32, 4, 3e38f); }

static void refusals(void) {
    // Without a change the adapter is accepted.
    expect_refusal(NULL, NULL, NULL);

    // Metadata.
    expect_refusal("general.architecture", qwen,
                   "general.architecture: expected \"llama\", found \"qwen2\"");
    expect_refusal("general.type", model, "expected ... found a model");
    expect_refusal("general.type", NULL, "expected ... found a model");
    expect_refusal(NULL, alora, "activated LoRA (aLoRA) is not supported");
    expect_refusal("adapter.type", loha, "adapter.type: expected \"lora\", found \"loha\"");
    expect_refusal("adapter.lora.alpha", NULL,
                   "adapter.lora.alpha: missing key (expected a number)");
    expect_refusal("adapter.lora.alpha", no_alpha, "alpha: must be finite and not 0, found 0");
    expect_refusal("adapter.lora.alpha", nan_alpha, "alpha: must be finite and not 0, found nan");

    // Missing tensors, wrong shapes and ranks.
    expect_refusal("blk.1.attn_k.weight.lora_a", NULL,
                   "attn_k.weight.lora_a: expected ... found no such tensor");
    expect_refusal("blk.1.attn_k.weight.lora_b", NULL,
                   "attn_k.weight.lora_b: expected ... found no such tensor");
    expect_refusal("blk.1.attn_k.weight.lora_a", wide_a,
                   "attn_k.weight.lora_a: expected ... found (4, 128)");
    expect_refusal("blk.1.attn_k.weight.lora_b", short_b,
                   "attn_k.weight.lora_b: expected ... found (64, 4)");
    expect_refusal("blk.1.attn_k.weight.lora_b", rank_b,
                   "attn_k.weight.lora_b: expected ... found (32, 8)");
    expect_refusal("blk.1.attn_k.weight.lora_a", rank_65, "lora_a: expected ... found 65");

    // Values that are not finite, or become so when they are scaled.
    expect_refusal("blk.1.attn_k.weight.lora_a", nan_a,
                   "tensor blk.1.attn_k.weight.lora_a: a value times 1 is not finite");
    expect_refusal("blk.1.attn_k.weight.lora_b", infinite_b,
                   "tensor blk.1.attn_k.weight.lora_b: a value times 2 is not finite");
    expect_refusal("blk.1.attn_k.weight.lora_b", large_b,
                   "tensor blk.1.attn_k.weight.lora_b: a value times 2 is not finite");

    // Further tensors: a wrong rank, a missing layer, and a matrix without an adapter.
    expect_refusal(NULL, embedding, "tensor token_embd.weight.lora_a: expected a rank of 1 to 64");
    expect_refusal(NULL, layer_two, "tensor blk.2.attn_k.weight.lora_a: not the lora_a or");
    expect_refusal(NULL, norm, "tensor blk.1.attn_norm.weight: not the lora_a or");
}

// An adapter cannot be run as a model.
static void alone(void) {
    Maker maker;
    Model m;
    Error err = {0};
    Recipe r = {.rank = 4};

    begin_adapter(&maker, 8, NULL);
    put_part(&maker, &r, "blk.1.attn_k", 'a', 4, 64);
    Buffer bytes = make_end(&maker);

    bool ok =
        model_open(&m, make_path("alone.gguf", bytes.data, bytes.len), &(ModelOptions){0}, &err);
    CHECK(!ok && err.code == EXIT_MODEL && strstr(err.text, "this is a LoRA adapter"), "%s",
          err.text);
    buffer_free(&bytes);
}

void test_lora(void) {
    test_case("lora: one to three adapters equal merged weights", equals_merged);
    test_case("lora: types", types);
    test_case("lora: quantized KV caches", quantized_caches);
    test_case("lora: refusals", refusals);
    test_case("lora: an adapter is not a model", alone);
}
