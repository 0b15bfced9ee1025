// The forward pass: bit-identical for any number of threads and, as far as kernels/exactness.h
// promises, for any chunk size and batch.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "model/experts.h"
#include "kernels/attention.h"
#include "kernels/team.h"
#include "model/load.h"
#include "quantize/encode.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TOKENS = 600, VOCAB_USED = 256 };

static Buffer file;

static void open_small(Model *m, MakeLlama recipe, ModelOptions options) {
    Gguf g;
    Error err;
    if (!recipe.max_context) recipe.max_context = 1024;
    buffer_free(&file);
    file = make_llama_file(recipe);
    if (!gguf_parse(&g, file.data, file.len, "small", &err) || !model_bind(m, &g, &options, &err))
        die_error(&err);
}

static void fill_tokens(int *tokens, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) tokens[i] = (int)(test_random(&seed) % VOCAB_USED);
}

// Logits (n, vocab) of all positions, fed in chunks.
static float *logits_of(Model *m, const int *tokens, int n, int chunk) {
    Error err;
    size_t n_vocab = (size_t)m->config.vocab_size;
    float *all = xalloc((size_t)n * n_vocab, sizeof *all);
    Workspace *ws = workspace_new(m, chunk, chunk);
    Session *s = session_new(&m->kv);

    for (int first = 0; first < n; first += chunk) {
        int count = workspace_feed(ws, s, tokens + first, n - first, 0, &err);
        if (count < 0) die_error(&err);
        memcpy(all + (size_t)first * n_vocab, model_forward(m, ws, 0),
               (size_t)count * n_vocab * sizeof *all);
    }

    session_free(s);
    workspace_free(ws);
    return all;
}

// Grouped-query attention, one KV head for all query heads, one KV head per query head, a head
// dimension other than dim / n_heads, and more query heads per KV head than a kernel call takes.
// The last three have experts.
static const MakeLlama shapes[] = {
    {.seed = 1},
    {.seed = 2, .n_heads = 8, .n_kv_heads = 1, .type = TYPE_F16},
    {.seed = 3, .n_heads = 4, .n_kv_heads = 4, .is_tied = true, .type = TYPE_BF16},
    {.seed = 4, .n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .has_rope_freqs = true},
    {.seed = 5, .n_heads = 72, .n_kv_heads = 1, .head_dim = 4},
    {.seed = 6, .n_experts = 5, .hidden_dim = 96},
    {.seed = 7, .n_experts = 12, .hidden_dim = 64, .type = TYPE_BF16},
    {.seed = 8,
     .n_experts = 40,
     .dim = 256,
     .hidden_dim = 32,
     .type = TYPE_Q8_0,
     .encode = quant_encode}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void threads(void) {
    static const int counts[] = {2, 3, 5};
    int tokens[N_TOKENS];
    fill_tokens(tokens, N_TOKENS, 5);

    for (int k = 0; k < N_SHAPES; k += test_step(2)) {
        Model m;
        open_small(&m, shapes[k], (ModelOptions){.n_threads = 1});
        size_t n = (size_t)N_TOKENS * (size_t)m.config.vocab_size;
        float *one = logits_of(&m, tokens, N_TOKENS, 128);

        for (int i = 0; i < 3; i++) {
            m.n_threads = counts[i];
            m.n_batch_threads = i == 1 ? 1 : 0;
            float *many = logits_of(&m, tokens, N_TOKENS, 128);
            CHECK(!memcmp(one, many, n * sizeof *one), "shape %d, %d threads", k, counts[i]);
            free(many);
        }

        free(one);
        model_close(&m);
    }
}

static void chunks(void) {
    static const int sizes[] = {7, 64, 1};
    int tokens[N_TOKENS];
    fill_tokens(tokens, N_TOKENS, 6);

    for (int k = 0; k < N_SHAPES; k += test_step(2)) {
        for (int invariant = 0; invariant < 2; invariant++) {
            Model m;
            open_small(&m, shapes[k],
                       (ModelOptions){.n_threads = 2, .is_batch_invariant = invariant});
            size_t n = (size_t)N_TOKENS * (size_t)m.config.vocab_size;
            float *whole = logits_of(&m, tokens, N_TOKENS, N_TOKENS);

            for (int i = 0; i < 3; i += test_step(3)) {
                float *parts = logits_of(&m, tokens, N_TOKENS, sizes[i]);
                // A rounding error may change the choice of an expert in some rows. Wrong rows
                // would differ by about 1.
                double limit = !strcmp(kernel.name, "amx") ? 1e-4 : 1e-6;
                if (m.config.experts.n_experts && !invariant) limit = 0.1;
                CHECK(test_nmse(parts, whole, n) <= limit, "shape %d, chunks of %d: %g", k,
                      sizes[i], test_nmse(parts, whole, n));
                if (invariant)
                    CHECK(!memcmp(parts, whole, n * sizeof *whole),
                          "shape %d, chunks of %d: not bit-identical", k, sizes[i]);
                free(parts);
            }

            free(whole);
            model_close(&m);
        }
    }
}

// Quantized weights on AVX2: only attend_many depends on the number of rows. It computes prompts,
// but not in a batch.
static void batches_on_avx2(void) {
    const MakeLlama recipe = {.seed = 9, .dim = 256, .type = TYPE_Q8_0, .encode = quant_encode};
    int tokens[N_TOKENS];
    float *whole[2];
    size_t n = 0;
    fill_tokens(tokens, N_TOKENS, 6);

    kernels_init("avx2");
    bool is_avx2 = !strcmp(kernel.name, "avx2");
    for (int is_batch = 0; is_avx2 && is_batch < 2; is_batch++) {
        Model m;
        open_small(&m, recipe, (ModelOptions){.n_threads = 2, .is_batch = is_batch});
        n = N_TOKENS * (size_t)m.config.vocab_size * sizeof **whole;
        CHECK(m.is_batch_invariant == is_batch, "batch %d", is_batch);
        whole[is_batch] = logits_of(&m, tokens, N_TOKENS, N_TOKENS);
        float *parts = logits_of(&m, tokens, N_TOKENS, 7);
        bool is_same = memcmp(parts, whole[is_batch], n) == 0;
        CHECK(is_same == is_batch, "batch %d: chunks of 7", is_batch);
        free(parts);
        model_close(&m);
    }

    kernels_init(NULL);
    if (!is_avx2) return;
    CHECK(memcmp(whole[0], whole[1], n), "attend_many is not used");
    free(whole[0]);
    free(whole[1]);
}

// Three sequences of different lengths decode in one batch; one is a fork of another.
static void batches(void) {
    enum { N = 300, PREFIX = 270 };
    Model m;
    Error err;
    int tokens[N];

    fill_tokens(tokens, N, 7);
    open_small(&m, shapes[0], (ModelOptions){.n_threads = 2, .is_batch_invariant = true});
    size_t n_vocab = (size_t)m.config.vocab_size;
    float *alone = logits_of(&m, tokens, N, 64);

    Workspace *ws = workspace_new(&m, 3 * N, 3);

    // a is three tokens ahead of its fork c; b is empty.
    Session *a = session_new(&m.kv);
    Session *b = session_new(&m.kv);
    workspace_feed(ws, a, tokens, PREFIX, PREFIX, &err);
    model_forward(&m, ws, 0);
    Session *c = session_fork(a, PREFIX - 3);
    CHECK(c && c->n_tokens == PREFIX - 3, "fork");
    Session *all[] = {b, a, c};

    // A pass has one token of each sequence that is not finished.
    for (int i = 0; i < N; i++) {
        int pos[3], n = 0;
        for (int k = 0; k < 3; k++)
            if (all[k]->n_tokens < N) {
                pos[n++] = all[k]->n_tokens;
                if (workspace_feed(ws, all[k], tokens + all[k]->n_tokens, 1, 0, &err) != 1)
                    die_error(&err);
            }

        const float *logits = model_forward(&m, ws, 0);
        for (int k = 0; k < n; k++)
            CHECK(!memcmp(logits + (size_t)k * n_vocab, alone + (size_t)pos[k] * n_vocab,
                          n_vocab * sizeof(float)),
                  "position %d, sequence %d of %d", pos[k], k, n);
    }

    session_free(a);
    session_free(b);
    session_free(c);
    workspace_free(ws);
    free(alone);
    model_close(&m);
}

// The logits of a step do not depend on which other steps of the pass request logits: the last
// layer computes only the rows that do. Unless the model is batch-invariant, the kernel of the
// output matrix depends on the number of these rows, and with it the last bits, or with AMX the
// rounding to bf16 (largest error seen: 0.0023).
static void logits_of_few_steps(void) {
    enum { N = 90 };
    static const int firsts[] = {0, 1, 30, N - 2, N - 1, N};
    int tokens[N];
    Error err;
    fill_tokens(tokens, N, 21);

    for (int k = 0; k < 2 * N_SHAPES; k += test_step(3)) {
        Model m;
        open_small(&m, shapes[k / 2], (ModelOptions){.n_threads = 2, .is_batch_invariant = k % 2});
        size_t n_vocab = (size_t)m.config.vocab_size;
        float *all = logits_of(&m, tokens, N, N);
        Workspace *ws = workspace_new(&m, N, N);

        for (int i = 0; i < (int)(sizeof firsts / sizeof *firsts); i++) {
            Session *s = session_new(&m.kv);
            if (workspace_feed(ws, s, tokens, N, firsts[i], &err) != N) die_error(&err);

            const float *logits = model_forward(&m, ws, 0);
            const float *expected = all + (size_t)firsts[i] * n_vocab;
            float most = 0, error = 0;
            for (size_t j = 0; j < (size_t)(N - firsts[i]) * n_vocab; j++) {
                most = fmaxf(most, fabsf(expected[j]));
                error = fmaxf(error, fabsf(logits[j] - expected[j]));
            }

            CHECK(error <= (m.is_batch_invariant ? 0 : 0.01f * most),
                  "shape %d, logits from step %d: error %g of %g", k / 2, firsts[i], (double)error,
                  (double)most);
            CHECK(s->n_tokens == N, "%d tokens", s->n_tokens);
            session_free(s);
        }

        workspace_free(ws);
        free(all);
        model_close(&m);
    }
}

// With kernel_rows = 1, several tokens of a sequence in one pass have the bits of decoding them one
// by one.
static void verify_as_decode(void) {
    enum { N = 300, MAX_STEPS = 24 };
    int tokens[N];
    Error err;
    fill_tokens(tokens, N, 12);

    for (int k = 0; k < N_SHAPES; k += test_step(2)) {
        Model m;
        open_small(&m, shapes[k], (ModelOptions){.n_threads = 2});
        size_t n_vocab = (size_t)m.config.vocab_size;
        float *alone = logits_of(&m, tokens, N, 1);
        Workspace *ws = workspace_new(&m, MAX_STEPS, MAX_STEPS);
        Session *s = session_new(&m.kv);

        // Passes of 1 to MAX_STEPS tokens.
        for (int n = 1; s->n_tokens < N; n = n % MAX_STEPS + 1) {
            int first = s->n_tokens;
            int count = n < N - first ? n : N - first;
            if (workspace_feed(ws, s, tokens + first, count, 0, &err) != count) die_error(&err);
            CHECK(!memcmp(model_forward(&m, ws, 1), alone + (size_t)first * n_vocab,
                          (size_t)count * n_vocab * sizeof(float)),
                  "shape %d, %d tokens at %d", k, count, first);
        }

        session_free(s);
        workspace_free(ws);
        free(alone);
        model_close(&m);
    }
}

// After a rewind, the same tokens have the same logits.
static void rewind_session(void) {
    enum { N = 40 };
    Model m;
    Error err;
    int tokens[N];

    fill_tokens(tokens, N, 8);
    open_small(&m, shapes[1], (ModelOptions){.n_threads = 1});
    size_t n_vocab = (size_t)m.config.vocab_size;
    float *alone = logits_of(&m, tokens, N, 1);

    Workspace *ws = workspace_new(&m, N, N);
    Session *s = session_new(&m.kv);

    for (int round = 0; round < 3; round++) {
        session_rewind(s, 10 * round);
        for (int i = s->n_tokens; i < N; i++) {
            if (workspace_feed(ws, s, tokens + i, 1, 0, &err) != 1) die_error(&err);
            const float *logits = model_forward(&m, ws, 0);
            CHECK(!memcmp(logits, alone + (size_t)i * n_vocab, n_vocab * sizeof(float)),
                  "round %d, position %d", round, i);
        }
    }

    session_free(s);
    workspace_free(ws);
    free(alone);
    model_close(&m);
}

// Caches of all types are close to a float32 one.
static void kv_types(void) {
    static const struct {
        const char *name;
        double tolerance;
    } types[] = {{"f16", 1e-6},       {"f16,f32", 1e-6},   {"q8_0", 5e-4},
                 {"q8_0,q4_0", 3e-2}, {"q4_0,q8_0", 3e-2}, {"q4_0", 5e-2}};
    int tokens[N_TOKENS];

    fill_tokens(tokens, N_TOKENS, 9);

    MakeLlama recipe = {.seed = 5, .dim = 128, .n_heads = 4};
    Model m;
    open_small(&m, recipe, (ModelOptions){.kv_type = "f32", .is_batch_invariant = true});
    size_t n = (size_t)N_TOKENS * (size_t)m.config.vocab_size;
    float *exact = logits_of(&m, tokens, N_TOKENS, 64);
    model_close(&m);

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        open_small(&m, recipe,
                   (ModelOptions){.kv_type = types[i].name, .is_batch_invariant = true});
        float *rounded = logits_of(&m, tokens, N_TOKENS, 64);
        double nmse = test_nmse(rounded, exact, n);
        CHECK(nmse <= types[i].tolerance && nmse > 0, "%s: %g", types[i].name, nmse);
        free(rounded);
        model_close(&m);
    }

    free(exact);
}

// The rotation of a Q8_0 or Q4_0 cache preserves dot products and is its own inverse. With 96
// dimensions it rotates 32 at a time. Other types are not rotated.
static void rotation(void) {
    static const int dims[] = {32, 64, 96, 128, 256};
    static const int widths[] = {32, 64, 32, 128, 256}; // dimensions that are rotated together
    float x[2][3 * 256], rotated[2][3 * 256];
    uint64_t seed = 4;

    for (int c = 0; c < 5; c++) {
        int dim = dims[c];
        int n = 3 * dim; // floats of three heads
        double dot[2] = {0};

        // x[1] is the last unit vector of the first rotated part, in each of three heads.
        for (int i = 0; i < n; i++) {
            x[0][i] = test_normal(&seed);
            x[1][i] = i % dim == widths[c] - 1;
        }
        memcpy(rotated, x, sizeof x);
        for (int s = 0; s < 2; s++) attention_rotate(TYPE_Q4_0, rotated[s], n, dim);

        // All elements of a rotated unit vector have one magnitude. The dot product is preserved.
        for (int i = 0; i < n; i++) {
            dot[0] += (double)x[0][i] * x[1][i];
            dot[1] += (double)rotated[0][i] * rotated[1][i];
            bool is_rotated = i % dim < widths[c];
            CHECK(fabs(fabs(rotated[1][i]) - is_rotated / sqrt(widths[c])) < 1e-6,
                  "%d: a unit vector became %g at %d", dim, (double)rotated[1][i], i);
        }
        CHECK(fabs(dot[0] - dot[1]) < 1e-5, "%d: dot product %g, not %g", dim, dot[1], dot[0]);

        // The second rotation restores the vector.
        attention_rotate(TYPE_Q8_0, rotated[0], n, dim);
        CHECK(test_nmse(rotated[0], x[0], (size_t)n) < 1e-12, "%d: rotated twice, not the same",
              dim);

        memcpy(rotated, x, sizeof x);
        attention_rotate(TYPE_F16, rotated[0], n, dim);
        attention_rotate(TYPE_F32, rotated[1], n, dim);
        CHECK(!memcmp(rotated, x, sizeof x), "float types are rotated");
    }
}

// A job that routes two steps in each of several layers. The worker is late in each of them.
enum { LATE_LAYERS = 8, LATE_EXPERTS = 9, LATE_STEPS = 2 };

typedef struct {
    Routing routing;
    ExpertConfig config;
    pthread_t main_thread;
    _Atomic bool is_worker_here;
    int n_wrong; // layers in which the worker found other rows than those of the layer
} LateThread;

static void route_layers(void *arg) {
    LateThread *late = arg;
    bool is_worker = !pthread_equal(pthread_self(), late->main_thread);
    if (is_worker) late->is_worker_here = true;
    while (!late->is_worker_here) usleep(100);

    for (int layer = 0; layer < LATE_LAYERS; layer++) {
        // In layer l, both steps choose the experts l and l + 1.
        for (int i; team_next(LATE_STEPS * LATE_EXPERTS, &i);) {
            int e = i % LATE_EXPERTS;
            late->routing.scores[i] = e == layer || e == layer + 1;
        }
        team_end_op(OP_REST);
        experts_route(&late->routing, &late->config, layer, NULL, LATE_STEPS);

        if (!is_worker) continue;
        usleep(2000);
        const int *first = routing_first_row(&late->routing, &late->config, layer);
        bool is_right = first[layer] == 0 && first[layer + 1] == LATE_STEPS;
        for (int e = layer + 2; e <= LATE_EXPERTS; e++) is_right &= first[e] == 2 * LATE_STEPS;
        late->n_wrong += !is_right;
    }
}

// A thread that is late by some layers finds the rows of its own layer, and so the number of work
// items. With another number it would wait for an operation that nobody completes.
static void late_thread(void) {
    LateThread late = {
        .config = {.n_experts = LATE_EXPERTS, .n_used = 2, .n_groups = 1, .weight_scale = 1},
        .main_thread = pthread_self()};
    late.routing = routing_new(&late.config, LATE_LAYERS, LATE_STEPS);
    team_run(2, route_layers, &late);
    CHECK(late.n_wrong == 0, "wrong rows in %d layers", late.n_wrong);
    routing_free(&late.routing);
}

void test_model(void) {
    test_case("model: bit-identical for any number of threads", threads);
    test_case("model: prefill in chunks", chunks);
    test_case("model: bit-identical in any batch on AVX2", batches_on_avx2);
    test_case("model: bit-identical in any batch (deterministic)", batches);
    test_case("model: logits of a few steps of a pass", logits_of_few_steps);
    test_case("model: several tokens with the bits of decode", verify_as_decode);
    test_case("model: logits after a rewind", rewind_session);
    test_case("model: types of KV cache", kv_types);
    test_case("model: rotation of a Q4_0 cache", rotation);
    test_case("model: experts of a late thread", late_thread);
    buffer_free(&file);
}
