// bench: tokens per second, and what share of this machine's memory bandwidth and arithmetic peak
// that is. The limits are probed in the same run, before and after, because machines are shared and
// change by the minute.
#include "commands.h"
#include "../base/clock.h"
#include "../base/json.h"
#include "../cli/report.h"
#include "../cli/request.h"
#include "../cli/output.h"
#include "../kernels/ops.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Model model;
    Tokenizer *tokenizer;
    Workspace *ws; // of the test under way
    int chunk, rounds;
    double read_gb, peak_gflop; // probes
    bool is_json, is_first;
    Buffer table;                        // of results, which the verdict stands before
    double decode_per_sec, decode_share; // of the first such test; share of the memory's bandwidth
    double prefill_per_sec;              // of the longest
    const Options *options;
} Bench;

// Probes.

enum {
    STREAMS = 8,             // read at the same time by a thread
    PROBE_BYTES = 256 << 20, // more than the caches of most machines
    PARTS = 64,              // that a probe is handed out in
    PASSES = 4,              // of each probe, the best of which counts
    ROUNDS = 3,              // of a prefill, the median of which counts
    DEFAULT_TOKENS = 16      // decoded by a test
};

typedef struct {
    uint64_t *data;
    size_t n; // values
    uint64_t sums[PARTS];
    double operations[PARTS];
    int rounds;
} Probe;

// Part i of the buffer in STREAMS concurrent streams: one alone leaves a third of the bandwidth.
static void read_part(void *arg, int part) {
    Probe *p = arg;
    size_t length = p->n / PARTS / STREAMS;
    const uint64_t *from = p->data + (size_t)part * (p->n / PARTS);
    uint64_t sums[STREAMS][8] = {{0}}, sum = 0;
    for (size_t i = 0; i + 8 <= length; i += 8)
        for (int s = 0; s < STREAMS; s++)
            for (int j = 0; j < 8; j++) sums[s][j] += from[(size_t)s * length + i + (size_t)j];
    for (int s = 0; s < STREAMS; s++)
        for (int j = 0; j < 8; j++) sum += sums[s][j];
    p->sums[part] = sum;
}

// What all threads run.
static void read_all(void *arg) { ops_for(PARTS, 1, read_part, arg); }
static void peak_part(void *arg, int part) {
    ((Probe *)arg)->operations[part] = kernel.peak(((Probe *)arg)->rounds);
}
static void peak_all(void *arg) { ops_for(PARTS, 1, peak_part, arg); }

// Best of four passes: a limit is what the machine can do.
double bench_read_gb(int n_threads, size_t bytes) {
    Probe p = {.n = bytes / sizeof(uint64_t)};
    double best = 0;
    p.data = xalloc(p.n, sizeof *p.data);
    memset(p.data, 1, bytes);
    for (int i = 0; i < PASSES; i++) {
        double start = now_sec();
        team_run(n_threads, read_all, &p);
        double gb = (double)bytes * 1e-9 / (now_sec() - start);
        if (gb > best) best = gb;
    }
    free(p.data);
    return best;
}

static void probe(Bench *b) {
    Probe p = {.rounds = 1000};
    b->read_gb = bench_read_gb(b->model.n_threads, PROBE_BYTES);
    for (int i = 0; i < 4; i++) {
        double start = now_sec(), operations = 0;
        team_run(b->model.n_threads, peak_all, &p);
        double sec = now_sec() - start;
        for (int k = 0; k < PARTS; k++) operations += p.operations[k];
        if (operations * 1e-9 / sec > b->peak_gflop) b->peak_gflop = operations * 1e-9 / sec;
        if (sec < 0.05) p.rounds *= 8;
    }
}

// Work of one forward: matrix operations of `n` steps (`n_logits` of them with a head), and
// attention at a depth.
static double operations_of(const Model *m, int n, int n_logits, double depth) {
    const Config *c = &m->config;
    double q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, dim = c->dim,
           hidden = c->hidden_dim;
    double layer = 2 * dim * (2 * q + 2 * kv + 3 * hidden) + 4 * q * depth;
    return n * c->n_layers * layer + 2.0 * n_logits * dim * c->vocab_size;
}

// Bytes of one forward: the weights once, the keys and values of every sequence.
static double bytes_of(const Model *m, int batch, double depth) {
    return decode_weight_gb(m) * 1e9 + batch * depth * (double)kv_position_bytes(&m->kv);
}

// One test: a row of the table, or an object of the list.
static void report(Bench *b, const char *test, int n_tokens, int depth, int batch,
                   double sec_per_token, double bytes, double operations) {
    double gb = bytes * 1e-9 / sec_per_token, gflop = operations * 1e-9 / sec_per_token;
    if (b->is_json) {
        printf("%s{\"test\":\"%s\",\"n_tokens\":%d,\"depth\":%d,\"batch\":%d,\"tokens_per_sec\":%."
               "3f,\"gb_per_sec\":%.3f,"
               "\"gflop_per_sec\":%.3f}",
               b->is_first ? "" : ",", test, n_tokens, depth, batch, 1 / sec_per_token, gb, gflop);
    } else {
        buffer_printf(&b->table, "%-8s %6d %6d %5d %10.2f %8.2f %9.1f %7.0f %% %6.0f %%\n", test,
                      n_tokens, depth, batch, 1 / sec_per_token, gb, gflop, 100 * gb / b->read_gb,
                      100 * gflop / b->peak_gflop);
        progress_print(b->options, "%s %d, depth %d, batch %d: %.1f tokens/s", test, n_tokens,
                       depth, batch, 1 / sec_per_token);
        if (*test == 'd' && !b->decode_per_sec)
            b->decode_per_sec = 1 / sec_per_token, b->decode_share = gb / b->read_gb;
        if (*test == 'p') // the longest
            b->prefill_per_sec = 1 / sec_per_token;
    }
    fflush(stdout);
    b->is_first = false;
}

static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, double_order);
    return v[n / 2];
}

static void check(bool ok, const Error *err) {
    if (!ok) die_error(err);
}

// A prompt of n tokens in chunks, each time in a new session.
static void bench_prefill(Bench *b, int n) {
    Error err;
    double sec[ROUNDS], depth = n / 2.0;
    int *tokens = xalloc((size_t)n, sizeof *tokens);
    for (int i = 0; i < n; i++) tokens[i] = i * 7919 % b->model.config.vocab_size;
    for (int round = 0; round < ROUNDS; round++) {
        Session *s = session_new(&b->model.kv);
        check(session_reserve(s, n, &err), &err);
        double start = now_sec();
        for (int first = 0; first < n; first += b->chunk) {
            check(workspace_feed(b->ws, s, tokens + first, n - first, n - 1 - first, &err) >= 0,
                  &err);
            model_forward(&b->model, b->ws, 0);
        }
        sec[round] = (now_sec() - start) / n;
        session_free(s);
    }
    free(tokens);
    int forwards = (n + b->chunk - 1) / b->chunk;
    report(b, "prefill", n, 0, 1, median(sec, ROUNDS), forwards * bytes_of(&b->model, 1, 0) / n,
           operations_of(&b->model, n, 1, depth) / n);
}

// `batch` sequences, each at `depth` positions, b->rounds steps.
static void bench_decode(Bench *b, int depth, int batch) {
    Error err;
    Session *sessions[batch];
    double *sec = xalloc((size_t)b->rounds, sizeof *sec);
    for (int i = 0; i < batch; i++) {
        sessions[i] = session_new(&b->model.kv);
        check(session_pad(sessions[i], depth, &err) &&
                  session_reserve(sessions[i], depth + b->rounds + 1, &err),
              &err);
    }
    for (int round = -1; round < b->rounds; round++) { // the first is not counted
        double start = now_sec();
        for (int i = 0; i < batch; i++) {
            int token = (round + 2 + i) * 31 % b->model.config.vocab_size;
            check(workspace_feed(b->ws, sessions[i], &token, 1, 0, &err) == 1, &err);
        }
        model_forward(&b->model, b->ws, 0);
        if (round >= 0) sec[round] = (now_sec() - start) / batch;
    }
    report(b, "decode", b->rounds * batch, depth, batch, median(sec, b->rounds),
           bytes_of(&b->model, batch, depth) / batch,
           operations_of(&b->model, batch, batch, depth) / batch);
    for (int i = 0; i < batch; i++) session_free(sessions[i]);
    free(sec);
}

// Opening the file, its vocabulary, one short prompt, one token.
static double first_token_sec(const Options *o) {
    Model m;
    Error err;
    double start = now_sec();
    check(model_open(&m, o->model, &o->model_options, &err), &err);
    Tokenizer *t = tokenizer_open(&m.file, &err);
    check(t != NULL, &err);
    Workspace *ws = workspace_new(&m, 1, 1);
    Session *s = session_new(&m.kv);
    check(workspace_feed(ws, s, &(int){0}, 1, 0, &err) == 1, &err);
    logits_argmax(model_forward(&m, ws, 0), m.config.vocab_size);
    double sec = now_sec() - start;
    session_free(s);
    workspace_free(ws);
    tokenizer_close(t);
    model_close(&m);
    return sec;
}

// Whether a test is within the model's context and the memory at hand.
static bool fits(const Bench *b, int positions, int batch) {
    return positions <= b->model.config.max_context &&
           kv_memory_fits(&b->model, (size_t)positions * (size_t)batch);
}

// p: prefill of n tokens; d: decode at a depth of n; b: decode of n sequences.
static void run_test(Bench *b, char kind, int n) {
    int batch = kind == 'b' ? n : 1;
    b->ws = workspace_new(&b->model, kind == 'p' ? b->chunk : batch, batch);
    if (kind == 'p')
        bench_prefill(b, n);
    else if (kind == 'd')
        bench_decode(b, n, 1);
    else
        bench_decode(b, 0, n);
    workspace_free(b->ws);
}

// Those of a list, "p512,d4096,b16", that fit.
static void run_tests(Bench *b, const char *list) {
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        int64_t n;
        char number[16];
        snprintf(number, sizeof number, "%.*s", (int)strcspn(at + 1, ","), at + 1);
        if (!strchr("pdb", *at) || !parse_i64(number, &n) || n < (*at == 'd' ? 0 : 1) ||
            n > (*at == 'b' ? 1024 : 1 << 24))
            die(EXIT_USAGE,
                "--tests: expected p512, d4096, b16 ... separated by commas, found \"%.20s\"", at);
        int positions = *at == 'p' ? (int)n : *at == 'd' ? (int)n + b->rounds + 1 : b->rounds + 1;
        if (fits(b, positions, *at == 'b' ? (int)n : 1))
            run_test(b, *at, (int)n);
        else if (!b->is_json)
            buffer_printf(&b->table, "%c%-7lld does not fit the context or the memory\n", *at,
                          (long long)n);
    }
}

// Digits behind the point of a speed.
static int digits(double per_sec) { return per_sec < 1000; }

// What a person wants to know, then the figures.
static void print_table(const Bench *b, double first_sec) {
    double most = b->read_gb / decode_weight_gb(&b->model);
    double decode = b->decode_per_sec, prefill = b->prefill_per_sec;
    if (b->decode_share > 1.1)
        printf("decode %.*f tokens/s (the weights stay in the cache)", digits(decode), decode);
    else if (decode)
        printf("decode %.*f tokens/s (the memory allows %.*f: %.0f %%)", digits(decode), decode,
               digits(most), most, 100 * b->decode_share);
    if (prefill) printf("%sprefill %.*f tokens/s", decode ? ", " : "", digits(prefill), prefill);
    printf("\n\n%s kernels, %d threads, first token %.3f s after opening\n", kernel.name,
           b->model.n_threads, first_sec);
    printf("memory %.1f GB/s, %.3f GB of weights a token; %s peak %.0f GFLOP/s\n\n", b->read_gb,
           decode_weight_gb(&b->model), kernel.peak_unit, b->peak_gflop);
    printf("%-8s %6s %6s %5s %10s %8s %9s %9s %8s\n", "test", "tokens", "depth", "batch",
           "tokens/s", "GB/s", "GFLOP/s", "of memory", "of peak");
    fwrite(b->table.data, 1, b->table.len, stdout);
}

// The sweep: how long a matrix takes in each of a type's kernels, by the number of tokens. The
// thresholds of a backend (min_tokens) are chosen by it. Its matrices are the model's own, one
// layer's after another's, so that they come from memory; small models stay in the caches and tell
// nothing.

enum { SWEEP_MOST = 64, SWEEP_WEIGHTS = 1 << 24 };
typedef enum { SWEEP_MAT, SWEEP_GEMM, SWEEP_TILES, SWEEP_KINDS } SweepKind;

typedef struct {
    const Tensor **list;
    int n, n_tokens;
    float *out, *x;
    MatmulScratch scratch;
} Sweep;

static void sweep_job(void *arg) {
    Sweep *s = arg;
    for (int i = 0; i < s->n; i++)
        ops_matmuls(&s->scratch, &(Product){s->out, s->list[i]}, 1, s->x, s->n_tokens,
                    (Exactness){0});
}

// Milliseconds for SWEEP_WEIGHTS weights in the kernel of a kind; below 0 if there is none. No job
// runs meanwhile, so that the table of kernels may change.
static double sweep_ms(const Bench *b, Sweep *s, SweepKind kind) {
    Type type = s->list[0]->type;
    MatmulKernel *gemm = &kernel.gemm[type], *tiles = &kernel.gemm_large[type],
                 kept[] = {*gemm, *tiles};
    double least = INFINITY, weights = 0;
    if ((kind == SWEEP_GEMM && !gemm->rows) || (kind == SWEEP_TILES && !tiles->rows)) return -1;
    gemm->min_tokens = kind == SWEEP_GEMM ? 1 : INT_MAX;
    tiles->min_tokens = kind == SWEEP_TILES ? 1 : INT_MAX;
    matmul_scratch_reserve(&s->scratch, s->list, s->n, s->n_tokens);
    for (int i = 0; i < s->n; i++) weights += (double)s->list[i]->rows * s->list[i]->cols;
    double begin = now_sec();
    for (int round = 0; round < 3 || now_sec() - begin < 0.1; round++) {
        double start = now_sec();
        team_run(b->model.n_threads, sweep_job, s);
        least = fmin(least, now_sec() - start);
    }
    *gemm = kept[0], *tiles = kept[1];
    return least * 1e3 * SWEEP_WEIGHTS / weights;
}

// The matrices of a type among the first layers: half a gigabyte, or what there is.
static int sweep_list(const Model *m, Type type, const Tensor **list) {
    size_t bytes = 0;
    int n = 0;
    for (int i = 0; i < m->config.n_layers && bytes < (size_t)1 << 29; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->w_gate, &l->w_up, &l->w_down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (all[k]->type == type)
                bytes += all[k]->row_bytes * (size_t)all[k]->rows, list[n++] = all[k];
    }
    return n;
}

// A line; a kernel that there is not has no time.
static void sweep_report(Bench *b, const char *type, int n_tokens, const double ms[SWEEP_KINDS]) {
    static const char *const names[] = {"mat", "gemm", "tiles"};
    int best = SWEEP_MAT;
    if (b->is_json)
        printf("%s{\"type\":\"%s\",\"n_tokens\":%d", b->is_first ? "" : ",", type, n_tokens);
    if (!b->is_json) printf("%-8s %8d", type, n_tokens);
    for (int k = 0; k < SWEEP_KINDS; k++) {
        if (ms[k] >= 0 && ms[k] < ms[best]) best = k;
        if (b->is_json && ms[k] >= 0) printf(",\"%s_ms\":%.4f", names[k], ms[k]);
        if (!b->is_json && ms[k] >= 0) printf(" %9.3f", ms[k]);
        if (!b->is_json && ms[k] < 0) printf(" %9s", "-");
    }
    printf(b->is_json ? ",\"best\":\"%s\"}" : "  %s\n", names[best]);
    fflush(stdout);
    b->is_first = false;
}

static void sweep_type(Bench *b, Sweep *s) {
    static const int counts[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, SWEEP_MOST};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double ms[SWEEP_KINDS];
        s->n_tokens = counts[i];
        for (int k = 0; k < SWEEP_KINDS; k++) ms[k] = sweep_ms(b, s, (SweepKind)k);
        sweep_report(b, type_info(s->list[0]->type)->name, counts[i], ms);
    }
}

static void sweep(Bench *b) {
    const Config *c = &b->model.config;
    size_t widest = (size_t)(c->hidden_dim > c->dim ? c->hidden_dim : c->dim),
           n = SWEEP_MOST * widest;
    if ((size_t)c->n_heads * (size_t)c->head_dim > widest)
        n = SWEEP_MOST * (size_t)c->n_heads * (size_t)c->head_dim;
    Sweep s = {.list = xalloc((size_t)c->n_layers * 7, sizeof *s.list),
               .out = xalloc(n, 4),
               .x = xalloc(n, 4)};
    uint32_t random = 1;
    for (size_t i = 0; i < n; i++)
        s.x[i] = (float)(int32_t)(random = random * 1664525 + 1013904223) * 0x1p-31f;
    if (!b->is_json)
        printf("%-8s %8s %9s %9s %9s  (ms for 4096 x 4096 weights)\n", "type", "tokens", "mat",
               "gemm", "gemm_large");
    for (int type = 0; type < TYPE_COUNT; type++)
        if ((s.n = sweep_list(&b->model, (Type)type, s.list))) sweep_type(b, &s);
    free(s.list), free(s.out), free(s.x), free(s.scratch.encoded);
}

static void print_profile(double total) {
    fprintf(stderr, "profile:");
    for (int i = 0; i < OP_COUNT; i++)
        fprintf(stderr, " %s %.1f %%", team_kind_name((OpKind)i), 100 * team_sec[i] / total);
    fprintf(stderr, " of %.2f s\n", total);
}

int command_bench(const Options *o) {
    static Bench b;
    b = (Bench){.options = o,
                .is_json = o->is_json,
                .is_first = true,
                .rounds = o->n_predict != INT_MIN ? o->n_predict : 16};
    model_open_or_die(o, &b.model, &b.tokenizer);
    if (o->is_sweep) {
        printf(b.is_json ? "{\"kernels\":\"%s\",\"threads\":%d,\"sweep\":["
                         : "%s kernels, %d threads\n",
               kernel.name, b.model.n_threads);
        sweep(&b);
        if (b.is_json) printf("]}\n");
        return EXIT_OK;
    }
    b.chunk = o->chunk ? o->chunk : GENERATE_CHUNK;
    probe(&b);
    double first = first_token_sec(o);
    if (b.is_json) {
        printf("{\"machine\":{\"kernels\":\"%s\",\"threads\":%d},\"probe\":{\"read_gb_per_sec\":%."
               "2f,\"peak_gflop_per_"
               "sec\":%.1f,"
               "\"peak_unit\":\"%s\"},\"first_token_sec\":%.4f,\"results\":[",
               kernel.name, b.model.n_threads, b.read_gb, b.peak_gflop, kernel.peak_unit, first);
    }
    const char *env = getenv("LLAMA31_PROFILE");
    team_profile = o->is_profile || (env && *env && *env != '0');
    double start = now_sec();
    memset(team_sec, 0, sizeof team_sec);
    run_tests(&b, o->tests ? o->tests : "p32,p512,p2048,d0,d4096,d32768,b4,b16,b32");
    progress_end();
    if (b.is_json)
        printf("]}\n");
    else
        print_table(&b, first);
    if (team_profile) print_profile(now_sec() - start);
    return EXIT_OK;
}
