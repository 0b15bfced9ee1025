// quantize: a model file with smaller tensors. The types of a mixture follow llama.cpp's, so that a
// name means the same.
#include "commands.h"
#include "../base/clock.h"
#include "../quantize/imatrix.h"
#include "../base/checksum.h"
#include "../base/files.h"
#include "../cli/output.h"
#include "../quantize/encode.h"
#include "../kernels/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    const char *name;
    uint32_t file_type; // general.file_type
    Type type;          // of what no rule speaks of
} Mixture;

// clang-format off
static const Mixture mixtures[] = {
    {"F32", 0, TYPE_F32},         {"F16", 1, TYPE_F16},        {"BF16", 32, TYPE_BF16},
    {"Q8_0", 7, TYPE_Q8_0},       {"Q6_K", 18, TYPE_Q6_K},     {"Q5_K_M", 17, TYPE_Q5_K},
    {"Q5_K_S", 16, TYPE_Q5_K},    {"Q5_1", 9, TYPE_Q5_1},      {"Q5_0", 8, TYPE_Q5_0},
    {"Q4_K_M", 15, TYPE_Q4_K},    {"Q4_K_S", 14, TYPE_Q4_K},   {"IQ4_NL", 25, TYPE_IQ4_NL},
    {"IQ4_XS", 30, TYPE_IQ4_XS},  {"Q4_1", 3, TYPE_Q4_1},      {"Q4_0", 2, TYPE_Q4_0},
    {"Q3_K_L", 13, TYPE_Q3_K},    {"Q3_K_M", 12, TYPE_Q3_K},   {"Q3_K_S", 11, TYPE_Q3_K},
    {"IQ3_M", 27, TYPE_IQ3_S},    {"IQ3_S", 26, TYPE_IQ3_S},   {"IQ3_XXS", 23, TYPE_IQ3_XXS},
    {"Q2_K", 10, TYPE_Q2_K},
};
// clang-format on
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

// For which layers a rule is.
typedef enum {
    ALL,
    FIRST_2,
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    SPREAD,  // the first and last eighth, and every third between
    GROUPED, // all, if four or more query heads share a key
    PLAIN,   // all, without an importance matrix
    PLAIN_8TH,
    MEASURED_8TH,
} Where;

// What a mixture gives other types than its own: of the rules for a tensor the first that holds.
static const struct {
    const char *mixture, *tensor;
    Where where;
    Type type;
} rules[] = {
    {"Q5_K_M", "attn_v", SPREAD, TYPE_Q6_K},       {"Q5_K_M", "ffn_down", SPREAD, TYPE_Q6_K},
    {"Q4_K_M", "attn_v", SPREAD, TYPE_Q6_K},       {"Q4_K_M", "ffn_down", SPREAD, TYPE_Q6_K},
    {"Q4_K_S", "attn_v", FIRST_4, TYPE_Q5_K},      {"Q4_K_S", "ffn_down", FIRST_8TH, TYPE_Q5_K},
    {"IQ4_NL", "attn_v", GROUPED, TYPE_Q5_K},      {"IQ4_NL", "ffn_down", PLAIN_8TH, TYPE_Q5_K},
    {"IQ4_XS", "attn_v", GROUPED, TYPE_Q5_K},      {"IQ4_XS", "ffn_down", PLAIN_8TH, TYPE_Q5_K},
    {"Q5_0", "ffn_down", MEASURED_8TH, TYPE_Q5_1}, {"Q4_0", "ffn_down", MEASURED_8TH, TYPE_Q4_1},
    {"Q3_K_L", "attn_v", ALL, TYPE_Q5_K},          {"Q3_K_L", "attn_output", ALL, TYPE_Q5_K},
    {"Q3_K_L", "ffn_down", ALL, TYPE_Q5_K},        {"Q3_K_M", "attn_v", FIRST_2, TYPE_Q5_K},
    {"Q3_K_M", "attn_v", ALL, TYPE_Q4_K},          {"Q3_K_M", "attn_output", ALL, TYPE_Q4_K},
    {"Q3_K_M", "ffn_down", FIRST_16TH, TYPE_Q5_K}, {"Q3_K_M", "ffn_down", ALL, TYPE_Q4_K},
    {"IQ3_M", "attn_v", ALL, TYPE_Q4_K},           {"IQ3_M", "attn_output", ALL, TYPE_Q4_K},
    {"IQ3_M", "ffn_down", FIRST_8TH, TYPE_Q4_K},   {"IQ3_S", "attn_v", GROUPED, TYPE_Q4_K},
    {"IQ3_XXS", "token_embd", ALL, TYPE_IQ3_S},    {"IQ3_XXS", "attn_q", ALL, TYPE_IQ2_S},
    {"IQ3_XXS", "attn_k", ALL, TYPE_IQ2_S},        {"IQ3_XXS", "attn_v", GROUPED, TYPE_Q4_K},
    {"IQ3_XXS", "attn_v", PLAIN, TYPE_IQ3_S},      {"IQ3_XXS", "attn_output", ALL, TYPE_IQ3_S},
    {"IQ3_XXS", "ffn_down", PLAIN_8TH, TYPE_Q4_K}, {"IQ3_XXS", "ffn_down", PLAIN, TYPE_Q3_K},
    {"Q2_K", "attn_v", GROUPED, TYPE_Q4_K},        {"Q2_K", "attn_v", ALL, TYPE_Q3_K},
    {"Q2_K", "attn_output", ALL, TYPE_Q3_K},       {"Q2_K", "ffn_down", ALL, TYPE_Q3_K},
};
enum { N_RULES = sizeof rules / sizeof *rules };

// What the choice of types depends on.
typedef struct {
    const Mixture *mixture;
    int n_layers;
    uint64_t n_heads, n_kv_heads;
    bool is_tied; // no output.weight: the embedding is the output matrix too
    bool has_imatrix;
} Plan;

// By name, in any case of letters; dies if there is none.
static const Mixture *find_mixture(const char *name) {
    Buffer names = {0};
    for (int i = 0; i < N_MIXTURES; i++)
        if (!strcasecmp(name, mixtures[i].name)) return &mixtures[i];
    for (int i = 0; i < N_MIXTURES; i++)
        buffer_printf(&names, "%s%s", i ? ", " : "", mixtures[i].name);
    die(EXIT_USAGE, "quantize: TYPE: expected one of %s, found \"%s\"%s", names.data, name,
        did_you_mean(name, &mixtures->name, sizeof *mixtures, N_MIXTURES));
}

// Number of the layer in "blk.N.", or -1.
static int layer_of(Str name) {
    char text[64]; // no name in a file is longer
    unsigned layer;
    int end = 0;
    snprintf(text, sizeof text, "%.*s", (int)name.len, name.data);
    return sscanf(text, "blk.%5u.%n", &layer, &end) == 1 && end ? (int)layer : -1;
}

// Layers are counted by the names of tensors: the file may be of any architecture.
static void plan_read(Plan *p, const Gguf *g, const Mixture *mixture) {
    *p = (Plan){.mixture = mixture, .is_tied = !gguf_find_tensor(g, "output.weight")};
    for (int i = 0; i < g->n_tensors; i++) {
        int layer = layer_of(g->tensors[i].name);
        if (layer >= p->n_layers) p->n_layers = layer + 1;
    }
    Error ignored; // what is no Llama has no heads here
    if (!gguf_get_u64(g, "llama.attention.head_count", &p->n_heads, &ignored)) p->n_heads = 0;
    if (!gguf_get_u64(g, "llama.attention.head_count_kv", &p->n_kv_heads, &ignored))
        p->n_kv_heads = p->n_heads;
}

static bool is_there(const Plan *p, Where where, int layer) {
    int n = p->n_layers;
    switch (where) {
    case ALL: return true;
    case FIRST_2: return layer < 2;
    case FIRST_4: return layer < 4;
    case FIRST_16TH: return layer < n / 16;
    case FIRST_8TH: return layer < n / 8;
    case SPREAD: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    case GROUPED: return p->n_kv_heads && p->n_heads / p->n_kv_heads >= 4;
    case PLAIN: return !p->has_imatrix;
    case PLAIN_8TH: return !p->has_imatrix && layer < n / 8;
    case MEASURED_8TH: return p->has_imatrix && layer < n / 8;
    }
    return false;
}

// As llama.cpp chooses: the output matrix has types of its own, other tensors go by the rules.
static Type mixture_type(const Plan *p, const GgufTensor *t) {
    const Mixture *m = p->mixture;
    Type type = m->type;
    if (str_is(t->name, "output.weight") || (p->is_tied && str_is(t->name, "token_embd.weight"))) {
        if (t->dims[0] % (uint64_t)type_info(type)->block) return TYPE_Q8_0;
        return type == TYPE_Q8_0 ? TYPE_Q8_0 : type == TYPE_IQ3_XXS ? TYPE_Q5_K : TYPE_Q6_K;
    }
    for (int i = 0; i < N_RULES; i++)
        if (!strcmp(rules[i].mixture, m->name) && str_contains(t->name, rules[i].tensor) &&
            is_there(p, rules[i].where, layer_of(t->name))) {
            type = rules[i].type;
            break;
        }
    // Llama 2 and 3 of 70B: attn_v is an eighth of attn_q
    if (p->n_layers == 80 && p->n_heads != p->n_kv_heads &&
        str_ends_with(t->name, "attn_v.weight") && (type == TYPE_Q3_K || type == TYPE_Q4_K))
        return TYPE_Q5_K;
    return type;
}

// The type of a tensor in the new file. Vectors, norms and what is no weight stay as they are; rows
// that the type's blocks do not divide get one with blocks of 32, or F16.
static Type target_type(const Plan *p, const GgufTensor *t) {
    if (t->n_dims < 2 || !str_ends_with(t->name, "weight") ||
        str_ends_with(t->name, "_norm.weight") || str_ends_with(t->name, "ffn_gate_inp.weight"))
        return (Type)t->type;
    if (!quant_is_integer(p->mixture->type)) return p->mixture->type;
    Type type = mixture_type(p, t);
    if (t->dims[0] % 256 && type_info(type)->block == 256)
        type = type == TYPE_Q4_K                        ? TYPE_Q5_0
               : type == TYPE_Q5_K                      ? TYPE_Q5_1
               : type == TYPE_Q6_K                      ? TYPE_Q8_0
               : type == TYPE_Q2_K || type == TYPE_Q3_K ? TYPE_Q4_0
                                                        : TYPE_IQ4_NL;
    return t->dims[0] % (uint64_t)type_info(type)->block ? TYPE_F16 : type;
}

// What all threads share.
typedef struct {
    const Gguf *g;
    const char *out;
    Type *types;
    uint64_t *offsets; // of each tensor's data in the new file
    GgufTensor *made;  // the tensors of the new file, but for their place
    uint8_t *leaves;   // the hashes of their leaves
    Imatrix imatrix;
    int fd;
    bool is_shown;
    uint64_t done, total; // bytes of the old tensors
    double shown_at;
    Error err; // the first, code 0 as long as there is none
} Job;

static const double SHOWN_SEC = 0.2; // between two lines of progress

// A tensor under way, in the leaves of the new one's checksum.
typedef struct {
    Job *job;
    const GgufTensor *t;
    Type type; // the new one
    uint64_t offset, rows, step;
    uint8_t *leaves;
} Work;

// The first failure is the one that is told.
static void job_fail(Job *job, const Error *err) {
    team_lock();
    if (!job->err.code) job->err = *err;
    team_unlock();
}

// Counts the bytes of a piece, and says so a few times a second.
static void progress(Job *job, uint64_t bytes) {
    team_lock();
    job->done += bytes;
    double now = now_sec();
    if (job->is_shown && (now > job->shown_at + SHOWN_SEC || job->done == job->total)) {
        fprintf(stderr, "\rquantize %3.0f%%  %.1f of %.1f GB%s",
                100.0 * (double)job->done / (double)job->total, (double)job->done * 1e-9,
                (double)job->total * 1e-9, job->done == job->total ? "\n" : "");
        job->shown_at = now;
    }
    team_unlock();
}

// Converts and writes one piece.
static void piece_run(void *arg, int i) {
    const Work *w = arg;
    const GgufTensor *t = w->t;
    Job *job = w->job;
    Error err;
    team_lock();
    bool has_failed = job->err.code;
    team_unlock();
    if (has_failed) return;

    uint64_t first = (uint64_t)i * w->step;
    size_t cols = (size_t)t->dims[0],
           rows = (size_t)(w->rows - first < w->step ? w->rows - first : w->step);
    size_t old_row = t->bytes / w->rows, new_row = old_row;
    const uint8_t *old = (const uint8_t *)t->data + first * old_row;
    const void *data = old;
    uint8_t *buffer = NULL;
    if (w->type != t->type) {
        new_row = quant_row_bytes(w->type, cols);
        float *x = xalloc(cols, sizeof *x);
        data = buffer = xalloc(rows, new_row);
        for (size_t r = 0; r < rows; r++) {
            const float *columns =
                job->imatrix.columns ? job->imatrix.columns[t - job->g->tensors] : NULL;
            if (columns) columns += (first + r) / t->dims[1] * cols;
            quant_decode_row((Type)t->type, old + r * old_row, x, cols);
            if (quant_encode(w->type, x, columns, buffer + r * new_row, cols)) continue;
            error_set(&err, EXIT_MODEL,
                      "%s: tensor %.*s: row %llu: expected values that %s can hold, found an "
                      "infinite, undefined or "
                      "huge one",
                      job->g->path, (int)t->name.len, t->name.data, (unsigned long long)(first + r),
                      type_info(w->type)->name);
            job_fail(job, &err);
            break;
        }
        free(x);
    }
    if (!write_all_at(job->fd, data, rows * new_row, (int64_t)(w->offset + first * new_row))) {
        error_file(&err, job->out);
        job_fail(job, &err);
    }
    blake2b(data, rows * new_row, w->leaves + (size_t)i * BLAKE2B_BYTES);
    free(buffer);
    // What has been read need not stay in this process; it remains in the system's cache.
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
              from = ((uintptr_t)old + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)old + rows * old_row) & ~(page - 1);
    if (to > from && job->g->shards[t->shard].is_mapped)
        madvise((void *)from, to - from, MADV_DONTNEED);
    progress(job, rows * old_row);
}

// Every thread runs this: all tensors, one after another, in pieces.
static void job_body(void *arg) {
    Job *job = arg;
    size_t leaf = 0;
    for (int i = 0; i < job->g->n_tensors; i++) {
        const GgufTensor *t = &job->g->tensors[i];
        const GgufTensor *made = &job->made[i];
        Work w = {job,
                  t,
                  job->types[i],
                  job->offsets[i],
                  gguf_tensor_rows(t),
                  checksum_leaf_rows(made),
                  job->leaves + leaf * BLAKE2B_BYTES};
        ops_for((int)checksum_n_leaves(made), 1, piece_run, &w);
        leaf += checksum_n_leaves(made);
    }
}

// The new header: all metadata but the marks of a split file, with what says how it is quantised,
// and the tensor table. The first keys say whose file it is. Fills in the offsets, from the start
// of the file, and returns the file's size.
static uint64_t put_header(Buffer *b, const Job *job, const Mixture *mixture,
                           const char *checksum) {
    const Gguf *g = job->g;
    static const char *const keys[2] = {"general.quantization_version", "general.file_type"};
    const uint32_t values[2] = {2, mixture->file_type};
    uint64_t align = 32, n_values = 0, at = 0;
    Error ignored;
    if (!gguf_get_u64(g, "general.alignment", &align, &ignored) || !align) align = 32;
    Buffer body = {0};
    gguf_put_key(&body, str_of(CHECKSUM_KEY), GGUF_STRING);
    gguf_put(&body, 2 * BLAKE2B_BYTES, 8);
    buffer_append(&body, checksum, 2 * BLAKE2B_BYTES);
    n_values++;
    for (int i = 0; i < 2; i++, n_values++) {
        gguf_put_key(&body, str_of(keys[i]), GGUF_U32);
        gguf_put(&body, values[i], 4);
    }
    for (int i = 0; i < g->n_values; i++) {
        const GgufValue *v = &g->values[i];
        if (str_is(v->key, keys[0]) || str_is(v->key, keys[1]) || str_is(v->key, CHECKSUM_KEY))
            continue;
        if (v->key.len > 6 && !memcmp(v->key.data, "split.", 6)) continue;
        gguf_put_key(&body, v->key, v->kind);
        if (v->kind == GGUF_ARRAY) {
            gguf_put(&body, v->item_kind, 4);
            gguf_put(&body, v->count, 8);
        }
        buffer_append(&body, v->data, v->bytes);
        n_values++;
    }
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        gguf_put_text(&body, t->name);
        gguf_put(&body, (uint64_t)t->n_dims, 4);
        for (int d = 0; d < t->n_dims; d++) gguf_put(&body, t->dims[d], 8);
        gguf_put(&body, job->types[i], 4);
        gguf_put(&body, at, 8);
        job->offsets[i] = at;
        at += job->made[i].bytes;
        at = (at + align - 1) / align * align;
    }
    buffer_append(b, "GGUF", 4);
    gguf_put(b, 3, 4);
    gguf_put(b, (uint64_t)g->n_tensors, 8);
    gguf_put(b, n_values, 8);
    buffer_put(b, buffer_str(&body));
    buffer_free(&body);
    while (b->len % align) gguf_put(b, 0, 1);
    for (int i = 0; i < g->n_tensors; i++) job->offsets[i] += b->len;
    return at + b->len;
}

// Says which tensors are encoded without the importance that others have. It never is known of the
// embedding, and of the output matrix no forward pass of a text asks.
static void warn_missing(const Options *o, const Job *job) {
    int n = 0, first = 0;
    for (int i = job->g->n_tensors - 1; i >= 0; i--) {
        const GgufTensor *t = &job->g->tensors[i];
        if (job->imatrix.columns[i] || job->types[i] == t->type || layer_of(t->name) < 0) continue;
        n++;
        first = i;
    }
    if (n && !o->is_quiet)
        warn("no importance is known of %s (%.*s ...)", count_of(n, "tensor"),
             SHOWN(job->g->tensors[first].name));
}

// Types of some 3 bits and less lose much without importance: llama.cpp writes none so.
static void warn_unmeasured(const Options *o, const Job *job, const Mixture *mixture) {
    int n = 0;
    for (int i = 0; i < job->g->n_tensors; i++) {
        const GgufTensor *t = &job->g->tensors[i];
        Type type = job->types[i];
        n += type != t->type && (type == TYPE_IQ3_XXS || type == TYPE_IQ2_S) &&
             layer_of(t->name) >= 0;
    }
    if (n && !o->is_quiet)
        warn("%s without importance costs much accuracy: add --calibrate TEXT, or --imatrix FILE",
             mixture->name);
}

static Type *choose_types(const Options *o, const Gguf *g, const Mixture *mixture,
                          bool has_imatrix) {
    Plan plan;
    plan_read(&plan, g, mixture);
    plan.has_imatrix = has_imatrix;
    Type *types = xalloc((size_t)g->n_tensors + 1, sizeof *types);
    bool is_again = false;
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        types[i] = target_type(&plan, t);
        if (types[i] != t->type && !quant_is_supported(t->type))
            die(EXIT_MODEL, "%s: tensor %.*s: %s cannot be read", g->path, (int)t->name.len,
                t->name.data, gguf_describe_type(g, t->type));
        is_again |= types[i] != t->type && quant_is_integer(t->type);
        if (o->is_verbose)
            fprintf(stderr, "%-32s %-8s -> %s\n", printable(t->name), type_info(t->type)->name,
                    type_info(types[i])->name);
    }
    if (is_again && !o->is_quiet)
        warn("%s is quantised already; to do it twice costs accuracy", g->path);
    return types;
}

// The tensors of the new file, and how many leaves they have.
static size_t make_tensors(Job *job) {
    size_t n_leaves = 0;
    job->made = xalloc((size_t)job->g->n_tensors + 1, sizeof *job->made);
    for (int i = 0; i < job->g->n_tensors; i++) {
        GgufTensor *t = &job->made[i];
        *t = job->g->tensors[i];
        if (t->type != job->types[i])
            t->bytes = gguf_tensor_rows(t) * quant_row_bytes(job->types[i], (size_t)t->dims[0]);
        t->type = job->types[i];
        n_leaves += checksum_n_leaves(t);
    }
    return n_leaves;
}

// Before the work, not after it: over nothing that is read, and over what is there only if that may
// go.
static void open_output(const Options *o, Job *job, OutFile *file) {
    Error err;
    file_register_input(o->calibrate ? o->calibrate : o->imatrix);
    if (!outfile_open(file, job->out, FILE_STREAM | (o->is_forced ? FILE_FORCE : 0), &err))
        die_error(&err);
    job->fd = file->fd;
}

int command_quantize(const Options *o) {
    if (o->n_args != 3)
        die(EXIT_USAGE, "quantize: expected IN.gguf OUT.gguf TYPE, found %d arguments", o->n_args);
    const char *in = o->args[0], *out = o->args[1];
    const Mixture *mixture = find_mixture(o->args[2]);
    double start = now_sec();
    static Gguf g;
    Error err;
    if (!gguf_open(&g, in, &err)) die_error(&err);
    static Buffer header;
    static Job job;
    job.g = &g;
    job.out = out;
    OutFile file;
    open_output(o, &job, &file);
    if (o->calibrate)
        imatrix_calibrate(&job.imatrix, o, o->calibrate, &g);
    else if (o->imatrix)
        imatrix_read(&job.imatrix, o->imatrix, &g);
    job.types = choose_types(o, &g, mixture, job.imatrix.columns);
    if (job.imatrix.columns)
        warn_missing(o, &job);
    else
        warn_unmeasured(o, &job, mixture);
    job.offsets = xalloc((size_t)g.n_tensors + 1, sizeof *job.offsets);
    job.is_shown = isatty(STDERR_FILENO) && !o->is_quiet;
    size_t n_leaves = make_tensors(&job);
    char checksum[2 * BLAKE2B_BYTES + 1] = {0}; // filled in at the end
    uint64_t size = put_header(&header, &job, mixture, checksum);
    job.leaves = xalloc(n_leaves, BLAKE2B_BYTES);
    for (int i = 0; i < g.n_tensors; i++) job.total += g.tensors[i].bytes;
    gguf_prefetch(&g, false);
    int threads = o->model_options.n_threads;
    team_run(threads > 0 ? threads : team_default_threads(), job_body, &job);
    if (!job.err.code) gguf_is_intact(&g, &job.err);
    header.len = 0;
    checksum_combine(job.made, g.n_tensors, job.leaves, checksum);
    put_header(&header, &job, mixture, checksum);
    if (!job.err.code && (!write_all_at(job.fd, header.data, header.len, 0) ||
                          (file.target && ftruncate(job.fd, (off_t)size))))
        error_file(&job.err, out);
    if (job.err.code) outfile_discard(&file);
    if (job.err.code || !outfile_close(&file, &job.err)) die_error(&job.err);
    note(o, "%s: %.3f GB -> %s: %.3f GB, %.1f s", in, (double)job.total * 1e-9, out,
         (double)size * 1e-9, now_sec() - start);
    return EXIT_OK;
}
