// show: what is in a model file, what it needs, and what runs it.
#include "commands.h"
#include "check.h"
#include "../base/json.h"
#include "../cli/request.h"
#include "../cli/output.h"
#include "../kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_PROBE = 16 << 20,
    MOST_PROBE = 256 << 20
}; // bytes read to measure the memory, as many as the model has

typedef struct {
    size_t bytes, weights;
    int n_tensors;
} Share;

// A count with three digits and its unit: "4.92 GB".
static const char *scaled(char out[24], double n, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int p = 0;
    for (; n >= 999.5 && p < 4; p++) n /= 1000;
    snprintf(out, 24, "%.*f %s%s", n < 9.995 ? 2 : n < 99.95 ? 1 : 0, n, prefixes[p], unit);
    return out;
}

// Quoted and cut: a name in a file may hold anything.
static void print_string(const char *label, Str s) {
    Buffer quoted = {0};
    json_put_string(&quoted, "", (Str){s.data, s.len < 200 ? s.len : 200});
    printf("%-14s%s\n", label, quoted.data);
    buffer_free(&quoted);
}

// Tensors, weights and bytes: of all, then of each type.
static void print_types(const Gguf *g) {
    Share shares[TYPE_COUNT] = {{0}}, all = {0};
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        Share *parts[] = {&all, &shares[t->type]};
        for (int k = 0; k < 2; k++) {
            parts[k]->bytes += t->bytes;
            parts[k]->weights += (size_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
            parts[k]->n_tensors++;
        }
    }
    char bytes[24], weights[24];
    printf("%-14s%d, %s, %s, %.2f bits per weight\n", "tensors", all.n_tensors,
           scaled(bytes, (double)all.bytes, "B"), scaled(weights, (double)all.weights, " weights"),
           all.weights ? 8.0 * (double)all.bytes / (double)all.weights : 0);
    for (int i = 0; i < TYPE_COUNT; i++)
        if (shares[i].n_tensors)
            printf("  %-12s%4d tensors %9s %5.1f %%\n", type_info((uint32_t)i)->name,
                   shares[i].n_tensors, scaled(bytes, (double)shares[i].bytes, "B"),
                   100.0 * (double)shares[i].bytes / (double)all.bytes);
}

static void print_tensors(const Gguf *g) {
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        printf("  %-32s %-8s (%llu, %llu)\n", printable(t->name), type_info(t->type)->name,
               (unsigned long long)t->dims[1], (unsigned long long)t->dims[0]);
    }
}

static void print_tokenizer(const Gguf *g) {
    Error err;
    Tokenizer *t = tokenizer_open(g, &err);
    if (!t) {
        printf("%-14snone that can be used: %s\n", "tokenizer", err.text);
        return;
    }
    Str kind = gguf_get_text(g, "tokenizer.ggml.model");
    Template tpl;
    bool has_template = template_open(&tpl, NULL, g, t, &err);
    printf("%-14s%.*s, %d tokens, bos %d%s\n", "tokenizer", (int)kind.len, kind.data,
           tokenizer_n_vocab(t), tokenizer_bos(t), tokenizer_adds_bos(t) ? " (added)" : "");
    printf("%-14s%s%s%s\n", "template", has_template ? tpl.name : err.text,
           has_template && tpl.takes_tools ? ", takes tools" : "",
           has_template && tpl.has_reasoning ? ", thinks" : "");
    if (has_template) template_close(&tpl);
    tokenizer_close(t);
}

static void print_model(const Model *m, const Options *o) {
    int context = o->ctx;
    const Config *c = &m->config;
    const RopeParams *r = &m->rope;
    if (context == 0) context = c->max_context < DEFAULT_CONTEXT ? c->max_context : DEFAULT_CONTEXT;
    printf("%-14s%d layers, dim %d, FFN %d, %d heads of %d, %d KV heads\n", "shape", c->n_layers,
           c->dim, c->hidden_dim, c->n_heads, c->head_dim, c->n_kv_heads);
    printf("%-14svocabulary %d, %s, norm eps %g\n", "output", c->vocab_size,
           m->output.data == m->embed.data ? "tied to the embedding" : "own matrix",
           (double)c->norm_eps);
    printf("%-14s%d positions\n", "context", c->max_context);
    printf("%-14stheta %g, rule %s", "rope", r->theta, rope_rule_name(r->rule));
    if (r->rule != ROPE_NONE && r->rule != ROPE_FILE)
        printf(", factor %g, original context %d", r->factor, r->orig_ctx);
    printf("\n");
    print_types(&m->file);
    double kv = (double)kv_position_bytes(&m->kv), weights = (double)model_weight_bytes(m);
    char w[24], k[24];
    printf("%-14sweights %s (file pages)\n", "memory", scaled(w, weights, "B"));
    printf("%-14s%s for %d positions (%s, %.1f KiB each)\n", "KV cache",
           scaled(k, kv * context, "B"), context, type_info(m->kv.type)->name, kv / 1024);
    printf("%-14s%s, %d threads\n", "kernels", kernel.name, m->n_threads);
    double gb = decode_weight_gb(m);
    size_t probe = weights < LEAST_PROBE  ? LEAST_PROBE
                   : weights < MOST_PROBE ? (size_t)weights
                                          : MOST_PROBE;
    double bandwidth = o->bandwidth > 0 ? o->bandwidth : bench_read_gb(m->n_threads, probe);
    printf("%-14s%.1f tokens/s at most: %s a token, %.1f GB/s (%s)\n", "decode", bandwidth / gb,
           scaled(w, gb * 1e9, "B"), bandwidth, o->bandwidth > 0 ? "--bandwidth" : "measured");
}

static int print_json(const Model *m, const Gguf *g) {
    const Config *c = &m->config;
    const char *mixture = gguf_file_type_name(g);
    Buffer name = {0};
    json_put_string(&name, "{\"file\":", str_of(g->path));
    printf("%s,\"n_layers\":%d,\"dim\":%d,\"hidden_dim\":%d,\"n_heads\":%d,\"n_kv_heads\":%d,"
           "\"head_dim\":%d,\"vocab_"
           "size\":%d,"
           "\"context\":%d,\"rope_rule\":\"%s\",\"rope_theta\":%g,\"weight_bytes\":%zu,\"kv_bytes_"
           "per_position\":%zu,"
           "\"mixture\":\"%s\",\"kernels\":\"%s\",\"threads\":%d}\n",
           name.data, c->n_layers, c->dim, c->hidden_dim, c->n_heads, c->n_kv_heads, c->head_dim,
           c->vocab_size, c->max_context, rope_rule_name(m->rope.rule), m->rope.theta,
           model_weight_bytes(m), kv_position_bytes(&m->kv), mixture ? mixture : "", kernel.name,
           m->n_threads);
    buffer_free(&name);
    return EXIT_OK;
}

// --check and --verify: reads all weights, and says in a line what they are, or dies.
static void check(const Options *o, const Gguf *g) {
    char checksum[2 * BLAKE2B_BYTES + 1];
    Error err;
    int threads = o->model_options.n_threads;
    gguf_prefetch(g, false);
    if (!weights_check(g, threads > 0 ? threads : team_default_threads(), checksum, &err))
        die_error(&err);
    if (o->is_verify && !checksum_verify(g, checksum, &err)) die_error(&err);
    if (o->is_json) return;
    printf("%-14s%s, all weights finite%s\n", "checksum", checksum,
           o->is_verify                       ? ", as stored"
           : gguf_find_value(g, CHECKSUM_KEY) ? ""
                                              : ", none stored");
}

int command_show(const Options *o) {
    static Gguf file;
    static Model model;
    Error err;
    const char *path = o->n_args ? o->args[0] : o->model;
    if (!model_open_file(&file, path, &err)) die_error(&err);
    if (file.n_tensors == 0 && o->is_json) {
        Buffer out = {0};
        json_put_string(&out, "{\"file\":", str_of(file.path));
        buffer_puts(&out, ",\"n_tensors\":0}\n");
        text_print(&out);
        return EXIT_OK;
    }
    if (file.n_tensors == 0) {
        printf("%-14s%s: a vocabulary, no tensors\n", "file", printable(str_of(file.path)));
        print_tokenizer(&file);
        return EXIT_OK;
    }
    if (o->is_check || o->is_verify) check(o, &file);
    if (!model_bind(&model, &file, &o->model_options, &err)) die_error(&err);
    if (o->is_json) {
        print_json(&model, &model.file);
    } else {
        printf("%-14s%s (GGUF v%u%s)\n", "file", printable(str_of(model.file.path)),
               model.file.version, model.file.n_shards > 1 ? ", sharded" : "");
        Str name = gguf_get_text(&model.file, "general.name");
        if (name.len) print_string("name", name);
        if (gguf_file_type_name(&model.file))
            printf("%-14s%s\n", "mixture", gguf_file_type_name(&model.file));
        print_model(&model, o);
        print_tokenizer(&model.file);
        if (o->show_tensors) print_tensors(&model.file);
    }
    return EXIT_OK;
}
