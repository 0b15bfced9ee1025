// A developer's tool: times every matrix-product kernel of this CPU by tensor type and number of
// tokens. The thresholds of a backend (min_tokens in its kernel tables) are chosen from these
// times.
//
//     make sweep && build/sweep -m MODEL -t 2 [--json]
//
// It accepts the options of bench. It multiplies the matrices of the model, layer after layer, so
// that they are read from memory. The model must be larger than the caches of the CPU.
#include "base/clock.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "kernels/ops.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_TOKENS = 64,
    LIST_BYTES = 1 << 29,   // layers are listed until their matrices have this size
    UNIT_WEIGHTS = 1 << 24, // times are scaled to this many weights: 4096 x 4096
    KINDS = 3
};
// The kernels of each type: Kernels.gemv, gemm and gemm_large.
static const char *const kind_names[KINDS] = {"mat", "gemm", "tiles"};

typedef struct {
    int n_threads;
    const Tensor **list; // (n) matrices of one type
    int n, n_tokens;
    float *out, *x;
    MatmulScratch scratch;
} KernelSweep;

static void multiply_all(void *arg) {
    KernelSweep *s = arg;
    for (int i = 0; i < s->n; i++)
        ops_matmuls(&s->scratch, &(Product){s->out, s->list[i], s->x, s->n_tokens}, 1,
                    (Exactness){0});
}

// Milliseconds per UNIT_WEIGHTS with one kind of kernel, the best of several rounds; -1 if the
// backend has no such kernel. The thresholds in the kernel table are changed for the measurement,
// to force the choice.
static double time_kernel(KernelSweep *s, int kind) {
    Type type = s->list[0]->type;
    MatmulKernel *gemm = &kernel.gemm[type];
    MatmulKernel *large = &kernel.gemm_large[type];
    MatmulKernel saved[] = {*gemm, *large};
    double best = INFINITY, n_weights = 0;

    if ((kind == 1 && !gemm->rows) || (kind == 2 && !large->rows)) return -1;

    gemm->min_tokens = kind == 1 ? 1 : INT_MAX;
    large->min_tokens = kind == 2 ? 1 : INT_MAX;
    matmul_scratch_reserve(&s->scratch, s->list, s->n, s->n_tokens, 1);
    for (int i = 0; i < s->n; i++) n_weights += (double)s->list[i]->rows * s->list[i]->cols;

    double begin = now_sec();
    for (int round = 0; round < 3 || now_sec() - begin < 0.1; round++) {
        double start = now_sec();
        team_run(s->n_threads, multiply_all, s);
        best = fmin(best, now_sec() - start);
    }

    *gemm = saved[0];
    *large = saved[1];
    return best * 1e3 * UNIT_WEIGHTS / n_weights;
}

// Lists the matrices of a type among the first layers.
static void list_matrices(KernelSweep *s, const Model *m, Type type) {
    size_t bytes = 0;
    s->n = 0;
    for (int i = 0; i < m->config.n_layers && bytes < LIST_BYTES; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->w_gate, &l->w_up, &l->w_down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (all[k]->type == type) {
                bytes += all[k]->row_bytes * (size_t)all[k]->rows;
                s->list[s->n++] = all[k];
            }
    }
}

// Prints a row of the table or, with `json`, appends an object.
static void report_times(const char *type, int n_tokens, const double ms[KINDS], JsonWriter *json) {
    int best = 0;
    for (int k = 1; k < KINDS; k++)
        if (ms[k] >= 0 && ms[k] < ms[best]) best = k;

    if (json) {
        json_begin_object(json, NULL);
        json_write_string(json, "type", str_of(type));
        json_write_int(json, "n_tokens", n_tokens);
        for (int k = 0; k < KINDS; k++) {
            char key[16];
            snprintf(key, sizeof key, "%s_ms", kind_names[k]);
            if (ms[k] >= 0) json_write_format(json, key, "%.4f", ms[k]);
        }
        json_write_string(json, "best", str_of(kind_names[best]));
        json_end_object(json);
        return;
    }

    printf("%-8s %8d", type, n_tokens);
    for (int k = 0; k < KINDS; k++) {
        char text[16] = "-";
        if (ms[k] >= 0) snprintf(text, sizeof text, "%.3f", ms[k]);
        printf(" %9s", text);
    }
    printf("  %s\n", kind_names[best]);
    fflush(stdout);
}

// Prints a table or, with `json`, appends the items of an array.
static void sweep_types(const Model *m, JsonWriter *json) {
    static const int counts[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, MAX_TOKENS};
    const Config *c = &m->config;
    int widths[] = {c->dim, c->hidden_dim, c->n_heads * c->head_dim};
    int widest = 0;
    for (int i = 0; i < 3; i++) widest = widths[i] > widest ? widths[i] : widest;

    size_t n = (size_t)MAX_TOKENS * (size_t)widest;
    KernelSweep s = {.n_threads = m->n_threads,
                     .list = xalloc((size_t)c->n_layers * 7, sizeof *s.list),
                     .out = xalloc(n, sizeof *s.out),
                     .x = xalloc(n, sizeof *s.x)};

    uint32_t random = 1;
    for (size_t i = 0; i < n; i++) {
        random = random * 1664525 + 1013904223;
        s.x[i] = (float)(int32_t)random * 0x1p-31f;
    }

    if (!json)
        printf("%-8s %8s %9s %9s %9s  (ms for 4096 x 4096 weights)\n", "type", "tokens",
               kind_names[0], kind_names[1], kind_names[2]);

    for (int type = 0; type < TYPE_COUNT; type++) {
        list_matrices(&s, m, (Type)type);
        if (!s.n) continue;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            double ms[KINDS];
            s.n_tokens = counts[i];
            for (int k = 0; k < KINDS; k++) ms[k] = time_kernel(&s, k);
            report_times(type_info((uint32_t)type)->name, counts[i], ms, json);
        }
    }

    free(s.list);
    free(s.out);
    free(s.x);
    free(s.scratch.encoded);
}

static int run_sweep(void *arg) {
    const Options *o = arg;
    static Model m;
    Buffer out = {0};
    JsonWriter w = {.out = &out};
    Error err;

    if (!model_open(&m, o->model.path, &o->model.load, &err)) die_error(&err);

    if (!o->output.is_json) {
        printf("%s kernels, %d threads\n", kernel.name, m.n_threads);
        sweep_types(&m, NULL);
        return EXIT_OK;
    }

    json_begin_object(&w, NULL);
    json_write_string(&w, "kernels", str_of(kernel.name));
    json_write_int(&w, "threads", m.n_threads);
    json_begin_array(&w, "sweep");
    sweep_types(&m, &w);
    json_end_array(&w);
    json_end_object(&w);

    puts(out.data);
    buffer_free(&out);
    return EXIT_OK;
}

int main(int argc, char **argv) {
    Options o = options_default("bench", CMD_BENCH);
    Error err;

    o.args = xalloc((size_t)argc + 1, sizeof *o.args);
    if (!options_parse(&o, argc - 1, argv + 1, &err)) die_error(&err);
    if (o.help.wants_usage || o.n_args) die(EXIT_USAGE, "usage: sweep [-m MODEL] [-t N] [--json]");
    bench_prepare(&o);
    if (!kernels_init(NULL)) die(EXIT_USAGE, "LLAMA31_ISA: unknown value");
    int n_threads = o.model.load.n_threads;
    return team_serve(n_threads > 0 ? n_threads : team_default_threads(), run_sweep, &o);
}
