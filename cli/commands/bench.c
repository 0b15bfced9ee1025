// bench: tokens per second, and how close they are to the limits of the machine.
//
// A decode step reads all weights once, so the memory bandwidth limits it; a long prefill is
// limited by arithmetic (the roofline model, Williams et al. 2009). Both limits are measured in the
// same run, because the load of a shared machine changes by the minute. Energy is that of the CPU
// packages, where the system has counters.
//
// Order: expected work, measurements, the list of tests, the report, command_bench().
#include "cli/commands/bench.h"
#include "cli/commands/commands.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/os/os.h"
#include "cli/open_generator.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/request.h"
#include "kernels/team.h"
#include "model/size.h"

#include <stdio.h>

enum {
    PROBE_BYTES = 256 << 20, // read to measure the bandwidth: more than most caches hold
    PREFILL_ROUNDS = 3,      // of each test; the median is reported
    DECODE_ROUNDS = 16       // default of -n; the median is reported
};

typedef struct {
    const Options *options;
    Model model;
    Tokenizer *tokenizer;
    Workspace *ws; // of the current test
    int chunk, decode_rounds;
    double read_gb, peak_gflop; // limits per second with the current number of threads
    bool is_scaling;            // compares several numbers of threads
    double *first;   // tokens per second and thread with the first number of threads, by test
    int test;        // index of the current test
    OsEnergy energy; // counters at the start of the current test
    double joules;   // energy per token of the current test; negative if unknown
    Buffer out;      // results: rows of the table, or JSON
    JsonWriter json;
    // For the first line of the report:
    double decode_per_sec, decode_bandwidth; // first decode test: tokens, share of read_gb
    double prefill_per_sec;                  // last prefill test
} Bench;

// Arithmetic operations of a forward pass over n tokens at a depth, with the logits of n_logits of
// them: two per weight, and 4 * depth * q for the products q.k and the weighted sum of values. In
// the last layer, only tokens with logits are multiplied by the matrices that follow attention.
static double pass_operations(const Model *m, int n, int n_logits, double depth) {
    const Layer *last = &m->layers[m->config.n_layers - 1];
    double q = m->config.n_heads * m->config.head_dim;
    double output = (double)m->output.rows * m->output.cols;
    double layers = model_pass_size(m, 1).weights - output;
    double qkv = (double)(last->wq.rows + last->wk.rows + last->wv.rows) * m->config.dim;
    double skipped = (n - n_logits) * (layers / m->config.n_layers - qkv);
    return n * (2 * layers + 4 * q * depth * m->config.n_layers) +
           2 * (n_logits * output - skipped);
}

// Bytes read by a forward pass over n tokens: the weights once, and the KV cache of every sequence.
static double pass_bytes(const Model *m, int n, int batch, double depth) {
    return model_pass_size(m, n).bytes + batch * depth * (double)kv_position_bytes(&m->kv);
}

// A test, with its time, bytes and operations per token.
typedef struct {
    const char *name;
    int n_tokens, depth, batch;
    double sec, bytes, operations;
    const Generator *drafting; // its counters, in a test with draft tokens; otherwise NULL
} TestResult;

// Writes a test as an object of --json. efficiency: of a thread, relative to the first number of
// threads.
static void write_test(Bench *b, const TestResult *r, double efficiency) {
    const Generator *g = r->drafting;
    JsonWriter *w = &b->json;

    json_begin_object(w, NULL);
    json_write_string(w, "test", str_of(r->name));
    json_write_int(w, "n_threads", b->model.n_threads);
    json_write_int(w, "n_tokens", r->n_tokens);
    json_write_int(w, "depth", r->depth);
    json_write_int(w, "batch", r->batch);
    json_write_format(w, "tokens_per_sec", "%.3f", 1 / r->sec);
    json_write_format(w, "gb_per_sec", "%.3f", r->bytes * 1e-9 / r->sec);
    json_write_format(w, "gflop_per_sec", "%.3f", r->operations * 1e-9 / r->sec);
    json_write_format(w, "read_gb_per_sec", "%.2f", b->read_gb);
    json_write_format(w, "peak_gflop_per_sec", "%.1f", b->peak_gflop);
    json_write_format(w, "efficiency", "%.3f", efficiency);
    if (b->joules >= 0)
        json_write_format(w, "joules_per_token", "%.4g", b->joules);
    else
        json_write_null(w, "joules_per_token");
    if (g) {
        json_write_int(w, "n_drafted", (int64_t)g->n_drafted);
        json_write_int(w, "n_accepted", (int64_t)g->n_accepted);
        json_write_int(w, "n_passes", (int64_t)g->n_decode_passes);
    }
    json_end_object(w);
}

// Adds a test to the table.
static void put_row(Bench *b, const TestResult *r, double efficiency) {
    double gb = r->bytes * 1e-9 / r->sec;
    double gflop = r->operations * 1e-9 / r->sec;
    const Generator *g = r->drafting;

    buffer_printf(&b->out, "%-7s %6d %6d %5d %8.2f %6.2f ", r->name, r->n_tokens, r->depth,
                  r->batch, 1 / r->sec, gb);
    buffer_printf(&b->out, b->is_scaling ? "%8.0f %%" : "%8.1f",
                  b->is_scaling ? 100 * efficiency : gflop);
    buffer_printf(&b->out, " %7.0f %% %5.0f %% ", 100 * gb / b->read_gb,
                  100 * gflop / b->peak_gflop);
    if (b->joules >= 0)
        buffer_printf(&b->out, "%7.3g\n", b->joules);
    else
        buffer_printf(&b->out, "%7s\n", "-");
    if (g)
        buffer_printf(&b->out, "%8s accepted %llu of %llu draft tok, %.2f tok per pass\n", "",
                      (unsigned long long)g->n_accepted, (unsigned long long)g->n_drafted,
                      (double)g->n_decode / (double)g->n_decode_passes);
}

// Reports a test, and keeps what the first line of the report needs.
static void report_test(Bench *b, const TestResult *r) {
    double per_thread = 1 / (r->sec * b->model.n_threads);
    double *first = &b->first[b->test]; // per_thread with the first number of threads
    if (*first == 0) *first = per_thread;

    if (b->options->output.is_json) {
        write_test(b, r, per_thread / *first);
        return;
    }

    put_row(b, r, per_thread / *first);
    progress_print(b->options, "%s %d, depth %d, batch %d: %.1f tokens/s", r->name, r->n_tokens,
                   r->depth, r->batch, 1 / r->sec);

    if (*r->name == 'p') b->prefill_per_sec = 1 / r->sec;
    if (*r->name == 'd' && r->batch == 1 && !b->decode_per_sec) {
        b->decode_per_sec = 1 / r->sec;
        b->decode_bandwidth = r->bytes * 1e-9 / r->sec / b->read_gb;
    }
}

// Ends the measurement of the energy of a test, which b->energy began.
static void end_energy(Bench *b, int n_tokens) {
    double joules = os_energy_since(&b->energy);
    b->joules = joules < 0 ? -1 : joules / n_tokens;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, compare_doubles);
    return v[n / 2];
}

static void check(bool ok, const Error *err) {
    if (!ok) die_error(err);
}

// Prefills a prompt of n tokens, in a new session each round.
static void bench_prefill(Bench *b, int n) {
    Error err;
    double sec[PREFILL_ROUNDS], depth = n / 2.0;
    int *tokens = xalloc((size_t)n, sizeof *tokens);

    for (int i = 0; i < n; i++) tokens[i] = i * 7919 % b->model.config.vocab_size;

    b->energy = os_energy();
    for (int round = 0; round < PREFILL_ROUNDS; round++) {
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
    end_energy(b, PREFILL_ROUNDS * n);
    free(tokens);

    int n_passes = div_up(n, b->chunk);
    int n_chunk = n < b->chunk ? n : b->chunk;
    report_test(b, &(TestResult){.name = "prefill",
                                 .n_tokens = n,
                                 .batch = 1,
                                 .sec = median(sec, PREFILL_ROUNDS),
                                 .bytes = n_passes * pass_bytes(&b->model, n_chunk, 1, 0) / n,
                                 .operations = pass_operations(&b->model, n, 1, depth) / n});
}

// Decodes one token per round for each of `batch` sequences, which begin at `depth`.
static void bench_decode(Bench *b, int depth, int batch) {
    Error err;
    Session *sessions[batch];
    double *sec = xalloc((size_t)b->decode_rounds, sizeof *sec);

    // The cache is filled with zeros up to the depth: its content does not change the time.
    for (int i = 0; i < batch; i++) {
        sessions[i] = session_new(&b->model.kv);
        check(session_pad(sessions[i], depth, &err) &&
                  session_reserve(sessions[i], depth + b->decode_rounds + 1, &err),
              &err);
    }

    for (int round = -1; round < b->decode_rounds; round++) { // -1: warm-up
        if (round == 0) b->energy = os_energy();
        double start = now_sec();
        for (int i = 0; i < batch; i++) {
            int token = (round + 2 + i) * 31 % b->model.config.vocab_size;
            check(workspace_feed(b->ws, sessions[i], &token, 1, 0, &err) == 1, &err);
        }
        model_forward(&b->model, b->ws, 0);
        if (round >= 0) sec[round] = (now_sec() - start) / batch;
    }
    end_energy(b, b->decode_rounds * batch);

    report_test(
        b, &(TestResult){.name = "decode",
                         .n_tokens = b->decode_rounds * batch,
                         .depth = depth,
                         .batch = batch,
                         .sec = median(sec, b->decode_rounds),
                         .bytes = pass_bytes(&b->model, batch, batch, depth) / batch,
                         .operations = pass_operations(&b->model, batch, batch, depth) / batch});

    for (int i = 0; i < batch; i++) session_free(sessions[i]);
    free(sec);
}

// Generates n tokens greedily, with draft tokens.
static void bench_drafts(Bench *b, int n) {
    static Pipeline p;
    static Generator opened;
    Sequence s;
    Ids prompt = {0};
    Error err;

    if (!opened.model) {
        p = (Pipeline){.options = b->options, .model = b->model, .tokenizer = b->tokenizer};
        generator_open(&p, &opened, b->chunk, 1);
    }
    Generator g = opened; // with counters of its own
    check(prompt_encode(&p, &p.settings, str_of("Once upon a time"), true, &prompt, &err), &err);
    Request r = {.prompt = prompt.data,
                 .n_prompt = prompt.len,
                 .max_tokens = n + 1, // the last one is not fed
                 .max_context = p.model.config.max_context,
                 .ignore_eos = true,
                 .sample = {.top_p = 1, .repeat_penalty = 1}};

    Session *session = session_new(&p.model.kv);
    sequence_start(&s, &g, &r, session);
    b->energy = os_energy();
    while (generate_step(&g, (Sequence *[]){&s}, 1)) {
    }
    end_energy(b, n);
    check(s.finish != FINISH_ERROR, &s.error);

    int n_rows = n + (int)(g.n_drafted - g.n_accepted), n_passes = (int)g.n_decode_passes;
    report_test(b, &(TestResult){.name = "spec",
                                 .n_tokens = n,
                                 .batch = 1,
                                 .sec = g.decode_sec / n,
                                 .bytes = n_passes * pass_bytes(&p.model, 1, 1, 0) / n,
                                 .operations = pass_operations(&p.model, n_rows, n_rows, 0) / n,
                                 .drafting = &g});

    sequence_free(&s);
    session_free(session);
    free(prompt.data);
}

// Takes the first number of a comma-separated list; -1 if there is none. Returns the rest.
static const char *take_number(const char *list, int64_t *n) {
    char *end;
    *n = strtoll(list, &end, 10);
    if (end == list || (*end && *end != ',')) *n = -1;
    return end + (*end == ',');
}

void bench_prepare(Options *o) {
    int64_t n;
    model_take_argument(o);
    if (!o->bench.thread_counts) return;
    for (const char *at = o->bench.thread_counts, *next = at; at == o->bench.thread_counts || *at;
         at = next) {
        next = take_number(at, &n);
        if (n < 1 || n > 1024)
            die(EXIT_USAGE, "-t: expected numbers from 1 to 1024 like 1,2,4, found \"%.20s\"", at);
        if (n > o->model.load.n_threads) o->model.load.n_threads = (int)n;
    }
}

// Takes the first test of a list: pN prefills N tokens, dN decodes at a depth of N, bN decodes N
// sequences together, sN generates N tokens with draft tokens. Returns the rest.
static const char *take_test(const char *at, int64_t *n) {
    const char *rest = *at ? take_number(at + 1, n) : NULL;
    if (!rest || !strchr("pdbs", *at) || *n < (*at == 'd' ? 0 : 1) ||
        *n > (*at == 'b' ? 1024 : 1 << 24))
        die(EXIT_USAGE, "--tests: expected a list like p512,d4096,b16, found \"%.20s\"", at);
    return rest;
}

static void run_tests(Bench *b, const char *list) {
    Error err;
    int64_t n;
    b->test = 0;

    for (const char *at = list, *next; *at; at = next, b->test++) {
        next = take_test(at, &n);
        bool is_prefill = *at == 'p';
        int batch = *at == 'b' ? (int)n : 1;
        int depth = *at == 'd' ? (int)n : 0;
        int positions = is_prefill || *at == 's' ? (int)n : depth + b->decode_rounds + 1;
        if (positions > b->model.config.max_context ||
            !kv_memory_check(&b->model, (size_t)positions * (size_t)batch, &err)) {
            if (!b->options->output.is_json)
                buffer_printf(&b->out, "%c%-7lld does not fit the context or the memory\n", *at,
                              (long long)n);
            continue;
        }

        if (*at == 's') {
            bench_drafts(b, (int)n);
            continue;
        }

        b->ws = workspace_new(&b->model, is_prefill ? b->chunk : batch, batch);
        if (is_prefill)
            bench_prefill(b, (int)n);
        else
            bench_decode(b, depth, batch);
        workspace_free(b->ws);
    }
}

// Prints a summary of the speed, the limits of the machine, and the table of results.
static void print_report(const Bench *b) {
    double token_gb = model_pass_size(&b->model, 1).bytes * 1e-9, limit = b->read_gb / token_gb;
    double decode = b->decode_per_sec, prefill = b->prefill_per_sec;
    if (b->decode_bandwidth > 1.1)
        printf("decode %.*f tokens/s (the weights stay in the caches)", decode < 1000, decode);
    else if (decode)
        printf("decode %.*f tokens/s (the memory allows %.*f: %.0f %%)", decode < 1000, decode,
               limit < 1000, limit, 100 * b->decode_bandwidth);
    if (prefill) printf("%sprefill %.*f tokens/s", decode ? ", " : "", prefill < 1000, prefill);
    if (decode || prefill) printf("\n\n");
    printf("%s kernels, %s\n", kernel.name, count_of(b->model.n_threads, "thread"));
    printf("memory %.1f GB/s, %.3f GB of weights per token; %s peak %.0f GFLOP/s\n\n", b->read_gb,
           token_gb, kernel.peak_unit, b->peak_gflop);
    printf("%-7s %6s %6s %5s %8s %6s %s %9s %7s %7s\n", "test", "tokens", "depth", "batch",
           "tokens/s", "GB/s", b->is_scaling ? "efficiency" : " GFLOP/s", "of memory", "of peak",
           "J/token");
    printf("%s", b->out.data ? b->out.data : "");
}

static void print_profile(double total) {
    static const char *const names[OP_COUNT] = {"embed", "norm",   "encode", "matmul",
                                                "rope",  "attend", "route",  "rest"};
    fprintf(stderr, "profile:");
    for (int i = 0; i < OP_COUNT; i++)
        fprintf(stderr, " %s %.1f %%", names[i], 100 * team_sec[i] / total);
    fprintf(stderr, " of %.2f s\n", total);
}

// The tests of the command line, or usual ones. Checks the list; b->first has an entry for each.
static const char *choose_tests(Bench *b) {
    const Options *o = b->options;
    const char *usual = b->is_scaling ? "p512,d0" : "p32,p512,p2048,d0,d4096,d32768,b4,b16,b32";
    int64_t n;

    if (o->model.draft) usual = "d0,s256";
    if (o->model.draft && b->is_scaling) die(EXIT_USAGE, "--draft: expected one number in -t");

    const char *tests = o->bench.tests ? o->bench.tests : usual;
    b->first = xalloc(strlen(tests) + 1, sizeof *b->first);
    const char *rest = tests;
    do {
        rest = take_test(rest, &n);
    } while (*rest);
    return tests;
}

// Measures the limits of the machine with the current number of threads.
static void measure_limits(Bench *b) {
    b->read_gb = bench_read_gb(b->model.n_threads, PROBE_BYTES);
    b->peak_gflop = bench_peak_gflop(b->model.n_threads);
    if (b->is_scaling && !b->options->output.is_json)
        buffer_printf(&b->out, "%s: memory %.1f GB/s, %s peak %.0f GFLOP/s\n",
                      count_of(b->model.n_threads, "thread"), b->read_gb, kernel.peak_unit,
                      b->peak_gflop);
}

static void begin_json(Bench *b) {
    JsonWriter *w = &b->json;
    *w = json_object(&b->out);
    json_begin_object(w, "machine");
    json_write_string(w, "kernels", str_of(kernel.name));
    json_write_int(w, "threads", b->model.n_threads);
    json_end_object(w);
    json_begin_array(w, "results");
}

static void print_json_report(Bench *b) {
    JsonWriter *w = &b->json;
    json_end_array(w);
    json_begin_object(w, "probe");
    json_write_format(w, "read_gb_per_sec", "%.2f", b->read_gb);
    json_write_format(w, "peak_gflop_per_sec", "%.1f", b->peak_gflop);
    json_write_string(w, "peak_unit", str_of(kernel.peak_unit));
    json_end_object(w);
    text_print_json(w);
}

int command_bench(const Options *o) {
    static Bench bench;
    Bench *b = &bench;
    const char *counts = o->bench.thread_counts ? o->bench.thread_counts : "";
    double sec = 0; // of all tests

    *b = (Bench){.options = o,
                 .is_scaling = strchr(counts, ','),
                 .chunk = o->model.chunk ? o->model.chunk : GENERATE_CHUNK,
                 .decode_rounds = o->bench.n_rounds ? o->bench.n_rounds : DECODE_ROUNDS};
    const char *tests = choose_tests(b);
    model_open_or_die(o, &b->model, &b->tokenizer);
    if (o->output.is_json) begin_json(b);

    // Run all tests for each number of threads.
    do {
        int64_t n;
        counts = take_number(counts, &n);
        if (n > 0) b->model.n_threads = (int)n;
        b->decode_per_sec = 0;
        measure_limits(b);

        team_profile = o->bench.is_profile;
        sec -= now_sec();
        run_tests(b, tests);
        sec += now_sec();
        team_profile = false;
    } while (*counts);

    progress_end();
    if (o->output.is_json)
        print_json_report(b);
    else
        print_report(b);
    if (o->bench.is_profile) print_profile(sec);
    return EXIT_OK;
}
