// Every hyper-parameter is checked before anything is sized by it, and every tensor against the
// shape that follows from them. Weights stay where they lie in the mapping.
#include "model_load.h"
#include "lora/lora.h"
#include "kernels/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const unsigned char builtin_model[], builtin_model_end[];

// At least eight times what Llama 3.1 405B has, and little enough that a hostile header costs
// nothing and products of two of them fit an int or are taken in 64 bits.
enum {
    MAX_DIM = 1 << 17,
    MAX_LAYERS = 1 << 12,
    MAX_HIDDEN_DIM = 1 << 20,
    MAX_HEADS = 1 << 10,
    MAX_VOCAB = 1 << 24
};

// Reads a hyper-parameter that is a count in [min, max].
static bool read_count(const Gguf *g, const char *key, uint64_t min, uint64_t max, int *out,
                       Error *err) {
    uint64_t v;
    if (!gguf_get_u64(g, key, &v, err)) return false;
    if (v < min || v > max)
        return error_set(err, EXIT_MODEL, "%s: %s: expected %llu to %llu, found %llu", g->path, key,
                         (unsigned long long)min, (unsigned long long)max, (unsigned long long)v);
    *out = (int)v;
    return true;
}

// Hyper-parameters: each within limits, and in keeping with the others.
static bool read_config(Config *c, const Gguf *g, Error *err) {
    Str architecture;
    int key_length = 0, value_length = 0;
    double eps;
    if (!gguf_get_string(g, "general.architecture", &architecture, err)) return false;
    if (str_is(gguf_get_text(g, "general.type"), "adapter"))
        return error_set(err, EXIT_MODEL,
                         "%s: expected a model, found an adapter (-m takes the model that it was "
                         "made for, --lora the adapter)",
                         g->path);
    if (!str_is(architecture, "llama"))
        return error_set(err, EXIT_MODEL,
                         "%s: general.architecture: expected \"llama\", found \"%.*s\"", g->path,
                         (int)(architecture.len < 64 ? architecture.len : 64), architecture.data);
    if (!read_count(g, "llama.embedding_length", 1, MAX_DIM, &c->dim, err) ||
        !read_count(g, "llama.block_count", 1, MAX_LAYERS, &c->n_layers, err) ||
        !read_count(g, "llama.feed_forward_length", 1, MAX_HIDDEN_DIM, &c->hidden_dim, err) ||
        !read_count(g, "llama.attention.head_count", 1, MAX_HEADS, &c->n_heads, err) ||
        !read_count(g, "llama.context_length", 1, MAX_CONTEXT, &c->max_context, err) ||
        !gguf_get_f64(g, "llama.attention.layer_norm_rms_epsilon", &eps, err))
        return false;
    c->n_kv_heads = c->n_heads;
    if (gguf_find_value(g, "llama.attention.head_count_kv") &&
        !read_count(g, "llama.attention.head_count_kv", 1, (uint64_t)c->n_heads, &c->n_kv_heads,
                    err))
        return false;
    if (c->n_heads % c->n_kv_heads)
        return error_set(err, EXIT_MODEL,
                         "%s: llama.attention.head_count_kv: expected a divisor of %d, found %d",
                         g->path, c->n_heads, c->n_kv_heads);
    if (!(eps > 0 && eps < 1))
        return error_set(err, EXIT_MODEL,
                         "%s: llama.attention.layer_norm_rms_epsilon: expected 0 to 1, found %g",
                         g->path, eps);
    c->norm_eps = (float)eps;
    if (gguf_find_value(g, "llama.attention.key_length")) {
        if (!read_count(g, "llama.attention.key_length", 2, MAX_HEAD_DIM, &key_length, err))
            return false;
    } else if (c->dim % c->n_heads) {
        return error_set(err, EXIT_MODEL,
                         "%s: llama.attention.head_count: expected a divisor of %d, found %d",
                         g->path, c->dim, c->n_heads);
    }
    c->head_dim = key_length ? key_length : c->dim / c->n_heads;
    if (c->head_dim % 2 || c->head_dim > MAX_HEAD_DIM)
        return error_set(err, EXIT_MODEL,
                         "%s: head dimension: expected an even number up to %d, found %d", g->path,
                         MAX_HEAD_DIM, c->head_dim);
    if (gguf_find_value(g, "llama.attention.value_length")) {
        if (!read_count(g, "llama.attention.value_length", 1, 1 << 10, &value_length, err))
            return false;
        if (value_length != c->head_dim)
            return error_set(err, EXIT_MODEL,
                             "%s: llama.attention.value_length: expected %d, found %d", g->path,
                             c->head_dim, value_length);
    }
    if (gguf_find_value(g, "llama.expert_count")) {
        int n_experts;
        if (!read_count(g, "llama.expert_count", 0, 0, &n_experts, err)) return false;
    }
    return true;
}

// State of binding: which of the file's tensors found their place.
typedef struct {
    Model *model;
    Error *err;
    bool *is_used; // (n_tensors)
} Binder;

static bool bind(Binder *b, const char *name, int rows, int cols, Tensor *out) {
    const GgufTensor *t = tensor_find(&b->model->file, name, rows, cols, out, b->err);
    if (t) b->is_used[t - b->model->file.tensors] = true;
    return t;
}

// A vector as float32: in the mapping, or converted in memory of the model's own if it is of
// another type.
static bool bind_vector(Binder *b, const char *name, int n, const float **out) {
    Model *m = b->model;
    Tensor t = {0};
    if (!bind(b, name, 1, n, &t)) return false;
    if (t.type == TYPE_F32 && (uintptr_t)t.data % sizeof(float) == 0) return *out = t.data, true;
    float *copy = xalloc((size_t)n, sizeof *copy);
    quant_decode_row(t.type, t.data, copy, (size_t)n);
    m->converted = xrealloc(m->converted, (size_t)m->n_converted + 1, sizeof *m->converted);
    m->converted[m->n_converted++] = copy;
    return *out = copy, true;
}

// What adapters add to a matrix, in their order: each goes in front.
static bool attach_adapters(Binder *b, const char *name, Tensor *w, bool is_embedding) {
    for (int i = b->model->n_adapters; i--;)
        if (!lora_attach(&b->model->adapters[i], name, w, is_embedding, b->err)) return false;
    return true;
}

// "NAME.weight", a matrix, "NAME.bias", which it may have, and what adapters add to it.
static bool bind_matrix(Binder *b, const char *name, int rows, int cols, Tensor *out) {
    Model *m = b->model;
    char weight[80], bias[80];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    if (!bind(b, weight, rows, cols, out)) return false;
    if (gguf_find_tensor(&m->file, bias) && !bind_vector(b, bias, rows, &out->bias)) return false;
    return attach_adapters(b, weight, out, false);
}

static bool bind_layer(Binder *b, int layer, Layer *l) {
    const Config *c = &b->model->config;
    int q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    const struct {
        const char *name;
        int rows, cols;
        Tensor *out;
    } matrices[] = {{"attn_q", q_dim, c->dim, &l->wq},
                    {"attn_k", kv_dim, c->dim, &l->wk},
                    {"attn_v", kv_dim, c->dim, &l->wv},
                    {"attn_output", c->dim, q_dim, &l->wo},
                    {"ffn_gate", c->hidden_dim, c->dim, &l->w_gate},
                    {"ffn_up", c->hidden_dim, c->dim, &l->w_up},
                    {"ffn_down", c->dim, c->hidden_dim, &l->w_down}};
    char name[64];
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    if (!bind_vector(b, name, c->dim, &l->attn_norm)) return false;
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
    if (!bind_vector(b, name, c->dim, &l->ffn_norm)) return false;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", layer, matrices[i].name);
        if (!bind_matrix(b, name, matrices[i].rows, matrices[i].cols, matrices[i].out))
            return false;
    }
    return true;
}

// The vocabulary's size is that of the embedding; false with err if it can be none.
static bool read_vocab_size(Model *m, Error *err) {
    const GgufTensor *embed = gguf_find_tensor(&m->file, "token_embd.weight");
    uint64_t n_vocab = embed ? embed->dims[1] : 0;
    const GgufValue *tokens = gguf_find_value(&m->file, "tokenizer.ggml.tokens");
    if (tokens && embed && tokens->kind == GGUF_ARRAY && tokens->count != n_vocab)
        return error_set(
            err, EXIT_MODEL,
            "%s: tensor token_embd.weight: expected %llu rows (the vocabulary), found %llu",
            m->file.path, (unsigned long long)tokens->count, (unsigned long long)n_vocab);
    if (embed && (n_vocab < 1 || n_vocab > MAX_VOCAB))
        return error_set(err, EXIT_MODEL,
                         "%s: tensor token_embd.weight: expected 1 to %d rows, found %llu",
                         m->file.path, MAX_VOCAB, (unsigned long long)n_vocab);
    m->config.vocab_size = (int)n_vocab;
    return true;
}

// A tensor beside ours that nobody asked for would change the result: an error. Others are of no
// use here: a warning.
static bool check_unused(const Binder *b) {
    const Gguf *file = &b->model->file;
    static const char *const ours[] = {"blk.", "output", "token_embd"};
    const GgufTensor *first = NULL;
    int n = 0;
    for (int i = 0; i < file->n_tensors; i++) {
        const GgufTensor *t = &file->tensors[i];
        if (b->is_used[i] || str_is(t->name, "rope_freqs.weight")) continue;
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            if (str_begins_with(t->name, ours[k]))
                return error_set(b->err, EXIT_MODEL,
                                 "%s: tensor %.*s: expected the tensors of a Llama model only",
                                 file->path, SHOWN(t->name));
        if (!n++) first = t;
    }
    if (n)
        warn("%s: %d of %d tensors are not part of a Llama model and are ignored, the first of "
             "them %.*s",
             file->path, n, file->n_tensors, SHOWN(first->name));
    return true;
}

static bool bind_all(Binder *b) {
    Model *m = b->model;
    Config *c = &m->config;
    if (!bind(b, "token_embd.weight", c->vocab_size, c->dim, &m->embed)) return false;
    if (c->n_layers > m->file.n_tensors) // before anything is sized by it
        return error_set(b->err, EXIT_MODEL,
                         "%s: llama.block_count: expected at most the %d tensors, found %d",
                         m->file.path, m->file.n_tensors, c->n_layers);
    m->layers = xalloc((size_t)c->n_layers, sizeof *m->layers);
    if (!bind_vector(b, "output_norm.weight", c->dim, &m->final_norm)) return false;
    m->output = m->embed; // tied, unless the file has a matrix of its own
    if (!attach_adapters(b, "token_embd.weight", &m->embed, true)) return false;
    if (gguf_find_tensor(&m->file, "output.weight") &&
        !bind_matrix(b, "output", c->vocab_size, c->dim, &m->output))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        if (!bind_layer(b, i, &m->layers[i])) return false;
    for (int i = 0; i < m->n_adapters; i++)
        if (!lora_check(&m->adapters[i], b->err)) return false;
    return check_unused(b);
}

static bool bind_tensors(Model *m, Error *err) {
    Binder b = {m, err, xalloc((size_t)m->file.n_tensors, sizeof *b.is_used)};
    bool is_bound = read_vocab_size(m, err) && bind_all(&b);
    free(b.is_used);
    return is_bound;
}

static bool open_adapters(Model *m, const ModelOptions *o, Error *err) {
    m->adapters = xalloc((size_t)o->n_adapters + 1, sizeof *m->adapters);
    for (; m->n_adapters < o->n_adapters; m->n_adapters++)
        if (!lora_open(&m->adapters[m->n_adapters], &o->adapters[m->n_adapters], err)) return false;
    return true;
}

static bool read_rope(Model *m, const ModelOptions *o, Error *err) {
    RopeParams *p = &m->rope;
    if (!rope_params_read(p, &m->file, m->config.head_dim, err)) return false;
    // Some converters have lost it: such a file speaks well at first and ill after 8192 positions.
    if (p->rule == ROPE_NONE && !o->rope_rule && p->theta == 500000 &&
        m->config.max_context == 131072)
        warn("%s: expected rope_freqs.weight, as Llama 3.1 and later have it, found no scaling of "
             "RoPE (--rope-scaling "
             "llama3 --rope-scale 8, for 3.2 32)",
             m->file.path);
    return rope_params_override(p, o->rope_rule, o->rope_theta, o->rope_scale, o->rope_orig_ctx,
                                err);
}

// The Type of that name, or -1 if it is unknown or its blocks do not divide a head.
static int kv_type_of(const char *name, int head_dim) {
    if (!name || !strcmp(name, "f16")) return TYPE_F16;
    if (!strcmp(name, "f32")) return TYPE_F32;
    return !strcmp(name, "q8_0") && head_dim % 32 == 0 ? TYPE_Q8_0 : -1;
}

// Whether no token's bits depend on those beside it, even without --deterministic.
static bool is_one_arithmetic(const Model *m) {
    bool is_one = ops_is_batch_invariant(&m->output) && lora_is_batch_invariant(&m->output);
    for (int i = 0; is_one && i < m->config.n_layers; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *const all[] = {&l->wq,     &l->wk,   &l->wv,    &l->wo,
                                     &l->w_gate, &l->w_up, &l->w_down};
        for (int j = 0; j < 7; j++)
            is_one = is_one && ops_is_batch_invariant(all[j]) && lora_is_batch_invariant(all[j]);
    }
    return is_one;
}

bool model_bind(Model *m, Gguf *file, const ModelOptions *options, Error *err) {
    *m = (Model){.file = *file, .is_batch_invariant = options->is_batch_invariant};
    m->n_threads = options->n_threads > 0 ? options->n_threads : team_default_threads();
    if (file->n_tensors == 0) {
        error_set(err, EXIT_MODEL, "%s: expected tensors, found a vocabulary only", file->path);
    } else if (read_config(&m->config, &m->file, err) && open_adapters(m, options, err) &&
               bind_tensors(m, err) && read_rope(m, options, err)) {
        const Config *c = &m->config;
        int type = kv_type_of(options->kv_type, c->head_dim);
        m->kv = (KvShape){c->n_layers, c->n_kv_heads, c->head_dim, (Type)type};
        m->is_batch_invariant =
            m->is_batch_invariant || is_one_arithmetic(m); // nothing has to be given up
        if (type >= 0) return true;
        error_set(err, EXIT_USAGE,
                  "--kv %s: expected f16, f32 or (head dimension a multiple of 32) q8_0",
                  options->kv_type);
    }
    model_close(m);
    return false;
}

bool model_open_file(Gguf *g, const char *path, Error *err) {
    if (path && gguf_open(g, path, err)) return true;
    if (path && access(path, F_OK) && errno == ENOENT)
        error_set(err, err->code,
                  "%s: there is no such file (models are GGUF files: download one, or make one by "
                  "scripts/export.py; without "
                  "-m the built-in story model runs)",
                  path);
    if (path) return false;
    return gguf_parse(g, builtin_model, (size_t)(builtin_model_end - builtin_model),
                      "built-in model", err);
}

bool model_open(Model *m, const char *path, const ModelOptions *options, Error *err) {
    Gguf file;
    return model_open_file(&file, path, err) && model_bind(m, &file, options, err);
}

void model_close(Model *m) {
    free(m->layers);
    for (int i = 0; i < m->n_converted; i++) free(m->converted[i]);
    free(m->converted);
    for (int i = 0; i < m->n_adapters; i++) lora_close(&m->adapters[i]);
    free(m->adapters);
    gguf_close(&m->file);
    *m = (Model){0};
}
