// show: describes a model file, the memory it needs and the speed to expect.
// Order: tensors, tokenizer, family, origin, the whole model as text and JSON, --check.
#include "cli/commands/bench.h"
#include "cli/commands/commands.h"
#include "cli/commands/check.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/request.h"
#include "kernels/ops.h"
#include "model/size.h"
#include "base/os/os.h"

#include <math.h>
#include <stdio.h>

// Limits of the number of bytes read to measure the memory bandwidth. Within them, it is the size
// of the weights.
enum { MIN_PROBE = 16 << 20, MAX_PROBE = 256 << 20 };

// Number, weights and bytes of all tensors, then number and bytes of the tensors of each type.
static void print_types(const Gguf *g) {
    size_t n_weights = 0, n_bytes = 0, type_bytes[TYPE_COUNT] = {0};
    int n_of_type[TYPE_COUNT] = {0};
    char bytes[24], weights[24];

    for (const GgufTensor *t = g->tensors; t < g->tensors + g->n_tensors; t++) {
        n_weights += (size_t)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
        n_bytes += t->bytes;
        type_bytes[t->type] += t->bytes;
        n_of_type[t->type]++;
    }

    printf("%-14s%d, %s, %s, %.2f bits per weight\n", "tensors", g->n_tensors,
           scaled(bytes, (double)n_bytes, "B"), scaled(weights, (double)n_weights, " weights"),
           n_weights ? 8.0 * (double)n_bytes / (double)n_weights : 0);

    for (int type = 0; type < TYPE_COUNT; type++)
        if (n_of_type[type])
            printf("  %-12s%4d tensors %9s %5.1f %%\n", type_info((uint32_t)type)->name,
                   n_of_type[type], scaled(bytes, (double)type_bytes[type], "B"),
                   100.0 * (double)type_bytes[type] / (double)n_bytes);
}

// Shapes are printed as (experts, rows, columns), or (rows, columns) without experts.
static void print_tensors(const Gguf *g) {
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        printf("  %-32s %-8s (", printable(t->name), type_info(t->type)->name);
        for (int k = t->n_dims > 2 ? t->n_dims - 1 : 1; k >= 0; k--)
            printf("%llu%s", (unsigned long long)t->dims[k], k ? ", " : ")\n");
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
    int end = has_template ? tpl.end_token : -1;
    printf("%-14s%s%s%s%s%s\n", "template", has_template ? tpl.name : err.text,
           has_template && tpl.takes_tools ? ", takes tools" : "",
           has_template && tpl.has_reasoning ? ", thinks" : "",
           end < 0 ? "" : ", ends answers with ", printable(tokenizer_piece(t, end, true)));

    if (has_template && tpl.missing.len)
        printf("%-14s%s\n", "plain text", printable(buffer_str(&tpl.missing)));

    int n_stops;
    const int *stops = tokenizer_stops(t, &n_stops);
    for (int i = 0; i < n_stops; i++)
        printf("%-14s%d %s (%s)\n", i ? "" : "end tokens", stops[i],
               printable(tokenizer_piece(t, stops[i], true)), tokenizer_stop_origin(t, i));

    if (has_template) template_close(&tpl);
    tokenizer_close(t);
}

// Prints how the model differs from Llama 3.1.
static void print_family(const Model *m) {
    const Family *f = &m->family;
    const Layer *l = m->layers;
    Buffer list = {0};

    if (f->has_half_pairs) buffer_printf(&list, ", RoPE pairs (i, i + %d)", m->rope.dim / 2);
    if (f->no_rope_interval == 1) buffer_puts(&list, ", no RoPE");
    if (f->no_rope_interval > 1)
        buffer_printf(&list, ", no RoPE in every %dth layer", f->no_rope_interval);
    if (l->q_norm) buffer_puts(&list, ", norms of q and k");
    if (l->wq.bias || l->wk.bias || l->wv.bias) buffer_puts(&list, ", biases of q, k and v");
    if (f->has_scales)
        buffer_printf(&list, ", embedding x %g, residual x %g, scores x %g, logits / %g",
                      f->embed_scale, f->residual_scale,
                      (double)family_attn_scale(f, m->config.head_dim, 0), f->logit_scale);
    if (f->temperature > 0) buffer_printf(&list, ", attention temperature %g", f->temperature);
    if (f->window > 0) buffer_printf(&list, ", sliding window of %g", f->window);
    if (f->head_tensors)
        buffer_printf(&list, ", drafts %d of the target's tokens",
                      m->output.rows ? m->output.rows : m->config.vocab_size);

    printf("%-14s%s (%s)%s\n", "family", f->name, f->architecture,
           list.len ? list.data : ", as Llama 3.1");
    buffer_free(&list);
}

// Prints the name, license and source given in the file. They are untrusted: quoted, and cut to 200
// bytes.
static void print_origin(const Gguf *g) {
    static const char *const texts[][2] = {{"name", "general.name"},
                                           {"license", "general.license"},
                                           {"source", "general.source.url"},
                                           {"source", "general.repo_url"},
                                           {"source", "general.url"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Buffer quoted = {0};
        Str text = gguf_get_text(g, texts[i][1]);
        if (!text.len) continue;
        json_quote(&quoted, (Str){text.data, text.len < 200 ? text.len : 200});
        printf("%-14s%s\n", texts[i][0], quoted.data);
        buffer_free(&quoted);
    }
}

// Prints the file's defaults of sampling options.
static void print_sampling(const Gguf *g) {
    double value;
    Error err;
    Buffer line = {0};
    for (const Option *o = option_table; o < option_table + n_option_rows; o++) {
        Str text = o->key ? gguf_get_text(g, o->key) : (Str){0};
        bool is_number = o->key && gguf_get_f64(g, o->key, &value, &err);
        if (!text.len && !is_number) continue;

        buffer_printf(&line, "%s%s ", line.len ? ", " : "sampling      ", o->names[0] + 2);
        if (is_number)
            buffer_printf(&line, "%g", value);
        else
            buffer_put(&line, text);
    }
    if (line.len) printf("%s\n", printable(buffer_str(&line)));
    buffer_free(&line);
}

static void print_file(const Gguf *g) {
    printf("%-14s%s (GGUF v%u%s)\n", "file", printable(str_of(g->path)), g->version,
           g->n_shards > 1 ? ", sharded" : "");
    print_origin(g);
    if (gguf_file_type(g)) printf("%-14s%s\n", "mixture", gguf_file_type(g));
}

static void print_shape(const Model *m) {
    const Config *c = &m->config;
    const ExpertConfig *x = &c->experts;
    const RopeParams *r = &m->rope;
    const char *output = m->output.data == m->embed.data ? "tied to the embedding" : "own matrix";
    char size[24];

    printf("%-14s%d layers, dim %d, FFN %d, %d heads of %d, %d KV heads\n", "shape", c->n_layers,
           c->dim, c->hidden_dim, c->n_heads, c->head_dim, c->n_kv_heads);
    if (x->n_experts) {
        printf("%-14s%d of width %d, %d per token", "experts", x->n_experts, x->dim, x->n_used);
        if (x->shared_dim) printf(", shared expert of %d", x->shared_dim);
        if (x->n_groups > 1) printf(", %d of %d groups", x->n_groups_used, x->n_groups);
        printf(": %s per token\n", scaled(size, model_pass_size(m, 1).weights, " weights"));
    }

    if (m->family.head_tensors && *output == 't') output = "the target's matrix";
    printf("%-14svocabulary %d, %s, norm eps %g\n", "output", c->vocab_size, output,
           (double)c->norm_eps);

    printf("%-14s%d positions\n", "context", c->max_context);
    printf("%-14stheta %g, rule %s", "rope", r->theta, rope_rule_name(r->rule));
    if (r->rule != ROPE_NONE && r->rule != ROPE_FILE)
        printf(", factor %g, original context %d", r->factor, r->orig_ctx);
    printf("\n");
}

// Prints the memory: weights, KV cache, and the number of positions that fit.
static void print_memory(const Model *m, const Options *o) {
    const Config *c = &m->config;
    char size[24], kv_type[KV_TYPE_TEXT];

    int context = o->model.ctx ? o->model.ctx : c->max_context;
    if (!o->model.ctx && context > DEFAULT_CONTEXT) context = DEFAULT_CONTEXT;
    double kv = (double)kv_position_bytes(&m->kv);
    double weights = (double)model_weight_bytes(m);
    printf("%-14sweights %s (file pages)\n", "memory", scaled(size, weights, "B"));
    printf("%-14s%s for %d positions (%s, %.1f KiB each)\n", "KV cache",
           scaled(size, kv * context, "B"), context, kv_type_text(&m->kv, kv_type), kv / 1024);

    size_t available = os_memory_available();
    double n_fit = ((double)available - weights) / kv;
    if (available < SIZE_MAX)
        printf(
            n_fit < 0
                ? "%-14s%s: less than the weights, so parts of them are read from disk repeatedly\n"
                : "%-14s%s: the weights and %.0f of %d positions fit\n",
            "available", scaled(size, (double)available, "B"), n_fit < context ? n_fit : context,
            context);
}

// Prints how fast this machine can decode. Each token reads the weights once, so the bandwidth of
// the memory limits it.
static void print_limit(const Model *m, const Options *o) {
    double gb = model_pass_size(m, 1).bytes * 1e-9;
    double bandwidth = o->show.bandwidth;
    char size[24];

    if (bandwidth <= 0) {
        double probe = fmin(fmax((double)model_weight_bytes(m), MIN_PROBE), MAX_PROBE);
        bandwidth = bench_read_gb(m->n_threads, (size_t)probe);
    }
    printf("%-14s%.1f tokens/s at most: %s a token, %.1f GB/s (%s)\n", "decode", bandwidth / gb,
           scaled(size, gb * 1e9, "B"), bandwidth,
           o->show.bandwidth > 0 ? "--bandwidth" : "measured");
}

static void print_model(const Model *m, const Options *o) {
    print_file(&m->file);
    print_family(m);
    print_shape(m);
    print_types(&m->file);
    print_sampling(&m->file);
    print_memory(m, o);

    printf("%-14s%s\n", "kernels", kernel.name);
    printf("%-14s%d (%s)\n", "threads", m->n_threads, threads_reason(o, m->n_threads));
    if (o->is_verbose)
        printf("%-14s%s\n", "exactness",
               m->is_batch_invariant
                   ? "same bits for any batch"
                   : "last bits depend on the batch (--deterministic: same bits)");

    print_limit(m, o);
}

static void write_tensors(const Gguf *g, JsonWriter *w) {
    json_begin_array(w, "tensors");
    for (const GgufTensor *t = g->tensors; t < g->tensors + g->n_tensors; t++) {
        json_begin_object(w, NULL);
        json_write_string(w, "name", t->name);
        json_write_string(w, "type", str_of(type_info(t->type)->name));
        json_begin_array(w, "shape");
        for (int k = t->n_dims - 1; k >= 0; k--) json_write_int(w, NULL, (int64_t)t->dims[k]);
        json_end_array(w);
        json_end_object(w);
    }
    json_end_array(w);
}

// m is NULL for a vocabulary file, which has no tensors. checksum: "" if it was not computed.
static void print_json(const Options *o, const Gguf *g, const Model *m, const char *checksum) {
    const char *mixture = gguf_file_type(g);
    Buffer out = {0};
    JsonWriter w = json_object(&out);

    json_write_string(&w, "file", str_of(g->path));
    if (!m) {
        json_write_int(&w, "n_tensors", 0);
        text_print_json(&w);
        return;
    }

    const Config *c = &m->config;
    json_write_string(&w, "architecture", str_of(m->family.architecture));
    json_write_int(&w, "n_layers", c->n_layers);
    json_write_int(&w, "dim", c->dim);
    json_write_int(&w, "hidden_dim", c->hidden_dim);
    json_write_int(&w, "n_heads", c->n_heads);
    json_write_int(&w, "n_kv_heads", c->n_kv_heads);
    json_write_int(&w, "head_dim", c->head_dim);
    json_write_int(&w, "vocab_size", c->vocab_size);
    json_write_int(&w, "context", c->max_context);

    json_write_string(&w, "rope_rule", str_of(rope_rule_name(m->rope.rule)));
    json_write_format(&w, "rope_theta", "%g", m->rope.theta);

    if (c->experts.n_experts) {
        json_write_int(&w, "n_experts", c->experts.n_experts);
        json_write_int(&w, "n_experts_used", c->experts.n_used);
        json_write_int(&w, "expert_dim", c->experts.dim);
        json_write_int(&w, "shared_expert_dim", c->experts.shared_dim);
    }

    json_write_int(&w, "weight_bytes", (int64_t)model_weight_bytes(m));
    json_write_int(&w, "weight_bytes_per_token", (int64_t)model_pass_size(m, 1).bytes);
    json_write_int(&w, "kv_bytes_per_position", (int64_t)kv_position_bytes(&m->kv));
    json_write_int(&w, "available_bytes", (int64_t)os_memory_available()); // -1: unknown

    json_write_string(&w, "mixture", str_of(mixture ? mixture : ""));
    json_write_string(&w, "kernels", str_of(kernel.name));
    json_write_int(&w, "threads", m->n_threads);
    json_write_bool(&w, "batch_invariant", m->is_batch_invariant);
    if (*checksum) json_write_string(&w, "checksum", str_of(checksum));
    if (o->show.lists_tensors) write_tensors(g, &w);
    text_print_json(&w);
}

// --check and --verify. Dies if a weight is not finite or the checksum differs.
static void check_weights(const Options *o, const Gguf *g, char checksum[CHECKSUM_HEX]) {
    Error err;
    mapping_prefetch(g->shards, g->n_shards, false);
    if (!weights_check(g, team_default_threads(), checksum, &err)) die_error(&err);

    Str stored = gguf_get_text(g, CHECKSUM_KEY);
    if (o->show.is_verify && !stored.data)
        die(EXIT_MODEL, "%s: " CHECKSUM_KEY ": no checksum stored", g->path);
    if (o->show.is_verify && !str_is(stored, checksum))
        die(EXIT_MODEL, "%s: " CHECKSUM_KEY ": expected %.*s, found %s", g->path, SHOWN(stored),
            checksum);
    if (o->output.is_json) return;

    const char *stored_as = stored.data ? "" : ", none stored";
    if (o->show.is_verify) stored_as = ", as stored";
    printf("%-14s%s, all weights finite%s\n", "checksum", checksum, stored_as);
}

int command_show(const Options *o) {
    static Gguf file;
    static Model model;
    ModelOptions options = o->model.load;
    char checksum[CHECKSUM_HEX] = "";
    Error err;

    if (!model_open_file(&file, o->n_args ? o->args[0] : o->model.path, &err)) die_error(&err);

    // The weights are checked before a model is built from them.
    bool is_model = file.n_tensors > 0;
    if (is_model && (o->show.is_check || o->show.is_verify)) check_weights(o, &file, checksum);
    options.is_draft = true;
    if (is_model && !model_bind(&model, &file, &options, &err)) die_error(&err);
    const Gguf *g = is_model ? &model.file : &file;

    if (o->output.is_json) {
        print_json(o, g, is_model ? &model : NULL, checksum);
        return EXIT_OK;
    }
    if (is_model)
        print_model(&model, o);
    else
        printf("%-14s%s: a vocabulary, no tensors\n", "file", printable(str_of(g->path)));
    print_tokenizer(g);
    if (o->show.lists_tensors) print_tensors(g);
    return EXIT_OK;
}
