// A file is untrusted input. Every hyper-parameter is checked before anything is sized by it, and
// every tensor against the shape that follows from the hyper-parameters. The forward pass needs no
// further checks for a model that model_bind() has accepted.
//
// Weights are not copied: tensors point into the mapping, and the system reads them when they are
// first used. Only small vectors are converted to float32.
//
// The functions are in the order of loading: metadata, tensors, options, model.
#include "model/load.h"
#include "kernels/ops.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

// Limits of the hyper-parameters: at least eight times the values of Llama 3.1 405B, and small
// enough that the product of two of them fits an int or is computed in 64 bits.
enum {
    MAX_DIM = 1 << 17,
    MAX_LAYERS = 1 << 12,
    MAX_HIDDEN_DIM = 1 << 20,
    MAX_HEADS = 1 << 10,
    MAX_VOCAB = 1 << 24
};

// A model that is being loaded.
typedef struct {
    Model *m;
    Error *err;
    bool *is_used; // (n_tensors) the tensor became part of the model
} Loader;

#define refuse(l, ...) gguf_refuse(&(l)->m->file, (l)->err, __VA_ARGS__)

// Metadata: the hyper-parameters have the keys "ARCHITECTURE.NAME".

// Reads the shape of the attention heads.
static bool read_heads(const Loader *l) {
    const Gguf *g = &l->m->file;
    Config *c = &l->m->config;
    int value_length = 0;

    c->n_kv_heads = c->n_heads;
    if (!family_optional_count(g, "attention.head_count_kv", 1, c->n_heads, &c->n_kv_heads,
                               l->err) ||
        !family_optional_count(g, "attention.key_length", 2, MAX_HEAD_DIM, &c->head_dim, l->err) ||
        !family_optional_count(g, "attention.value_length", 1, MAX_DIM, &value_length, l->err))
        return false;

    // Grouped-query attention: n_heads / n_kv_heads query heads share a KV head.
    if (c->n_heads % c->n_kv_heads)
        return refuse(l, "%s: expected a divisor of %d, found %d",
                      family_key(g, "attention.head_count_kv").text, c->n_heads, c->n_kv_heads);

    // The default head dimension is the width of the residual stream divided by the number of
    // heads. Values must be as wide as keys.
    if (c->head_dim == 0 && c->dim % c->n_heads)
        return refuse(l, "%s: expected a divisor of %d, found %d",
                      family_key(g, "attention.head_count").text, c->dim, c->n_heads);
    if (c->head_dim == 0) c->head_dim = c->dim / c->n_heads;
    if (c->head_dim % 2 || c->head_dim > MAX_HEAD_DIM)
        return refuse(l, "head dimension: expected an even number up to %d, found %d", MAX_HEAD_DIM,
                      c->head_dim);

    return !value_length || value_length == c->head_dim ||
           refuse(l, "%s: expected %d, found %d", family_key(g, "attention.value_length").text,
                  c->head_dim, value_length);
}

static bool read_config(const Loader *l, const ModelOptions *o) {
    const Gguf *g = &l->m->file;
    Config *c = &l->m->config;
    FamilyKey eps_key = family_key(g, "attention.layer_norm_rms_epsilon");
    Family *f = &l->m->family;
    int n_extra = 0;
    double eps;

    if (str_is(gguf_get_text(g, "general.type"), "adapter"))
        return refuse(l, "this is a LoRA adapter; pass its base model with -m, and the adapter "
                         "with --lora");

    if (!family_read(f, g, o->is_draft, l->err) ||
        !family_count(g, "embedding_length", 1, MAX_DIM, &c->dim, l->err) ||
        !family_count(g, "block_count", 1, MAX_LAYERS, &c->n_layers, l->err) ||
        !family_count(g, "feed_forward_length", 1, MAX_HIDDEN_DIM, &c->hidden_dim, l->err) ||
        !family_count(g, "attention.head_count", 1, MAX_HEADS, &c->n_heads, l->err) ||
        !family_count(g, "context_length", 1, MAX_CONTEXT, &c->max_context, l->err) ||
        !gguf_get_f64(g, eps_key.text, &eps, l->err) ||
        !experts_read(&c->experts, g, f, c->hidden_dim, l->err))
        return false;

    if (!(eps > 0 && eps < 1)) return refuse(l, "%s: expected 0 to 1, found %g", eps_key.text, eps);
    c->norm_eps = (float)eps;

    // The last blocks may predict the token after the next one; they are not computed.
    if (!family_optional_count(g, "nextn_predict_layers", 0, c->n_layers - 1, &n_extra, l->err) ||
        !read_heads(l))
        return false;
    c->n_layers -= n_extra;

    c->max_context = family_context(f, g, c->max_context);
    return true;
}

// The size of the vocabulary is the number of rows of the embedding, because no metadata key holds
// it. If the file has a tokenizer, it must have the same number of tokens. It is the size for a
// draft head without an embedding.
static bool read_vocab_size(const Loader *l) {
    const Gguf *g = &l->m->file;
    const GgufTensor *embed = gguf_find_tensor(g, "token_embd.weight");
    const GgufValue *tokens = gguf_find_value(g, "tokenizer.ggml.tokens");

    if (!embed && !(l->m->family.head_tensors && tokens))
        return refuse(
            l, "tensor token_embd.weight: expected a row for each token, found no such tensor");
    unsigned long long n = embed ? embed->dims[1] : tokens->count;
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count != n)
        return refuse(l,
                      "tensor token_embd.weight: expected %llu rows (the vocabulary), found %llu",
                      (unsigned long long)tokens->count, n);

    if (n < 1 || n > MAX_VOCAB)
        return refuse(l, "tensor token_embd.weight: expected 1 to %d rows, found %llu", MAX_VOCAB,
                      n);
    l->m->config.vocab_size = (int)n;

    return true;
}

// Tensors have llama.cpp's names: "NAME.weight" or "NAME.bias", and in layer i "blk.i.NAME.weight"
// or "blk.i.NAME.bias".

enum { NO_LAYER = -1 };

typedef struct {
    char text[64];
} TensorName;

static TensorName tensor_name(int layer, const char *name, const char *suffix) {
    TensorName t;
    if (layer == NO_LAYER)
        snprintf(t.text, sizeof t.text, "%s.%s", name, suffix);
    else
        snprintf(t.text, sizeof t.text, "blk.%d.%s.%s", layer, name, suffix);
    return t;
}

// Loads the n matrices of a tensor. Float32 matrices of fewer than 512 columns are not rounded: on
// AMX, rounding to bf16 gives the logits of such small models an NMSE of up to 2.3e-4.
static bool load_matrices(Loader *l, TensorName name, int n, int rows, int cols, Tensor *out) {
    const GgufTensor *t = tensor_find(&l->m->file, name.text, n, rows, cols, out, l->err);
    if (!t) return false;
    for (int i = 0; i < n; i++) out[i].is_unrounded = out[i].type == TYPE_F32 && cols < 512;
    l->is_used[t - l->m->file.tensors] = true;
    return true;
}

static bool load_tensor(Loader *l, TensorName name, int rows, int cols, Tensor *out) {
    return load_matrices(l, name, 1, rows, cols, out);
}

// Loads a vector as float32. It stays in the mapping if it is aligned float32; otherwise it is
// converted to allocated memory.
static bool load_vector(Loader *l, TensorName name, int n, const float **out) {
    Tensor t;
    if (!load_tensor(l, name, 1, n, &t)) return false;
    *out = t.data;
    if (t.type == TYPE_F32 && (uintptr_t)t.data % sizeof(float) == 0) return true;

    float *converted = arena_alloc(&l->m->memory, (size_t)n, sizeof *converted);
    quant_decode_row(t.type, t.data, converted, (size_t)n);
    *out = converted;
    return true;
}

static bool load_norm(Loader *l, int layer, const char *name, int n, const float **out) {
    return load_vector(l, tensor_name(layer, name, "weight"), n, out);
}

// Attaches the adapters of a matrix in the order of the options. The loop runs backwards because
// lora_attach() prepends to the list.
static bool attach_adapters(Loader *l, TensorName name, Tensor *w, bool is_embedding) {
    for (int i = l->m->n_adapters; i--;)
        if (!lora_attach(&l->m->adapters[i], name.text, w, is_embedding, l->err)) return false;
    return true;
}

// Loads a matrix, its bias if the file has one, and its adapters; scale: factor of its products.
static bool load_matrix(Loader *l, int layer, const char *name, int rows, int cols, float scale,
                        Tensor *out) {
    TensorName weight = tensor_name(layer, name, "weight"), bias = tensor_name(layer, name, "bias");
    if (!load_tensor(l, weight, rows, cols, out)) return false;
    out->scale = scale;
    if (gguf_find_tensor(&l->m->file, bias.text) && !load_vector(l, bias, rows, &out->bias))
        return false;
    return attach_adapters(l, weight, out, false);
}

// A matrix has a row for each output: Wq is (n_heads * head_dim, dim), with the rows of the first
// head first.
static bool load_attention(Loader *l, int i, Layer *layer) {
    const Config *c = &l->m->config;
    const Family *f = &l->m->family;
    int q_dim = c->n_heads * c->head_dim;
    int kv_dim = c->n_kv_heads * c->head_dim;
    int in_dim = f->head_tensors ? 2 * c->dim : c->dim; // a draft head reads two rows side by side
    Tensor qkv;

    // RMSNorm weights of queries and keys: for each head (Qwen 3), or for the whole row (OLMoE).
    int q_norm = f->has_qk_row_norm ? q_dim : c->head_dim;
    int k_norm = f->has_qk_row_norm ? kv_dim : c->head_dim;
    if ((f->has_qk_norm || f->has_qk_row_norm) &&
        (!load_norm(l, i, "attn_q_norm", q_norm, &layer->q_norm) ||
         !load_norm(l, i, "attn_k_norm", k_norm, &layer->k_norm)))
        return false;

    if (!load_norm(l, i, "attn_norm", c->dim, &layer->attn_norm) ||
        !load_matrix(l, i, "attn_output", c->dim, q_dim, (float)f->residual_scale, &layer->wo))
        return false;

    if (!f->has_fused_qkv)
        return load_matrix(l, i, "attn_q", q_dim, in_dim, 1, &layer->wq) &&
               load_matrix(l, i, "attn_k", kv_dim, in_dim, 1, &layer->wk) &&
               load_matrix(l, i, "attn_v", kv_dim, in_dim, 1, &layer->wv);

    // The rows of Wq, then those of Wk and Wv.
    TensorName name = tensor_name(i, "attn_qkv", "weight");
    if (!load_tensor(l, name, q_dim + 2 * kv_dim, c->dim, &qkv)) return false;
    layer->wq = tensor_rows(&qkv, 0, q_dim);
    layer->wk = tensor_rows(&qkv, q_dim, kv_dim);
    layer->wv = tensor_rows(&qkv, q_dim + kv_dim, kv_dim);
    return true;
}

// Loads the experts of one matrix of the FFN: n_experts matrices in one tensor.
static bool load_expert_matrices(Loader *l, int i, const char *name, int rows, int cols,
                                 float scale, const Tensor **out) {
    int n = l->m->config.experts.n_experts;
    Tensor *experts = arena_alloc(&l->m->memory, (size_t)n, sizeof *experts);
    if (!load_matrices(l, tensor_name(i, name, "weight"), n, rows, cols, experts)) return false;
    for (int e = 0; e < n; e++) experts[e].scale = scale;
    *out = experts;
    return true;
}

// Loads the router, the experts, and the shared expert (experts.h).
static bool load_experts(Loader *l, int i, Layer *layer) {
    const Config *c = &l->m->config;
    const ExpertConfig *x = &c->experts;
    float residual_scale = (float)l->m->family.residual_scale;
    TensorName bias = tensor_name(i, "exp_probs_b", "bias");
    TensorName shared_gate = tensor_name(i, "ffn_gate_inp_shexp", "weight");

    if (!load_tensor(l, tensor_name(i, "ffn_gate_inp", "weight"), x->n_experts, c->dim,
                     &layer->router) ||
        !load_expert_matrices(l, i, "ffn_gate_exps", x->dim, c->dim, 1, &layer->expert_gates) ||
        !load_expert_matrices(l, i, "ffn_up_exps", x->dim, c->dim, 1, &layer->expert_ups) ||
        !load_expert_matrices(l, i, "ffn_down_exps", c->dim, x->dim, residual_scale,
                              &layer->expert_downs))
        return false;
    layer->router.is_unrounded = true; // rounding would change the choice

    if (gguf_find_tensor(&l->m->file, bias.text) &&
        !load_vector(l, bias, x->n_experts, &layer->choice_bias))
        return false;

    if (!x->shared_dim) return true;
    return load_matrix(l, i, "ffn_gate_shexp", x->shared_dim, c->dim, 1, &layer->w_gate) &&
           load_matrix(l, i, "ffn_up_shexp", x->shared_dim, c->dim, 1, &layer->w_up) &&
           load_matrix(l, i, "ffn_down_shexp", c->dim, x->shared_dim, residual_scale,
                       &layer->w_down) &&
           (!l->m->family.experts.has_shared_gate ||
            load_tensor(l, shared_gate, 1, c->dim, &layer->shared_gate));
}

static bool load_layer(Loader *l, int i, Layer *layer) {
    const Config *c = &l->m->config;
    float residual_scale = (float)l->m->family.residual_scale;
    if (!load_attention(l, i, layer) || !load_norm(l, i, "ffn_norm", c->dim, &layer->ffn_norm))
        return false;
    if (experts_in_layer(&c->experts, i)) return load_experts(l, i, layer);
    return load_matrix(l, i, "ffn_gate", c->hidden_dim, c->dim, 1, &layer->w_gate) &&
           load_matrix(l, i, "ffn_up", c->hidden_dim, c->dim, 1, &layer->w_up) &&
           load_matrix(l, i, "ffn_down", c->dim, c->hidden_dim, residual_scale, &layer->w_down);
}

// Checks the tensors that were not loaded. An unknown tensor of a layer, the embedding or the
// output would change the results, so it is an error. Other tensors, which tools may add, are
// ignored with one warning.
static bool check_unused(const Loader *l) {
    static const char *const prefixes[] = {"blk.", "output", "token_embd"};
    const Gguf *g = &l->m->file;
    const GgufTensor *first = NULL;
    int n = 0;

    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        if (l->is_used[i] || family_uses_tensor(&l->m->family, t->name)) continue;
        if (l->m->family.has_extra_blocks && gguf_tensor_layer(t->name) >= l->m->config.n_layers)
            continue;
        for (size_t k = 0; k < sizeof prefixes / sizeof *prefixes; k++)
            if (str_begins_with(t->name, prefixes[k]))
                return refuse(l, "tensor %.*s: not part of a %s model", SHOWN(t->name),
                              l->m->family.name);
        if (!n++) first = t;
    }

    // The remaining tensors do not affect the results, so a warning is enough.
    if (n)
        warn("%s: ignoring %d of %d tensors that are not part of a %s model, first %.*s", g->path,
             n, g->n_tensors, l->m->family.name, SHOWN(first->name));

    return true;
}

// Loads the embedding, the layers, the final norm and the output matrix. In small models the
// embedding is often also the output matrix (tied). A draft head has its own number of outputs;
// without one of the two, it gets that of its target later.
static bool load_tensors(Loader *l) {
    Model *m = l->m;
    const Config *c = &m->config;
    bool is_head = m->family.head_tensors != NULL;
    TensorName embed = tensor_name(NO_LAYER, "token_embd", "weight");
    const GgufTensor *output = gguf_find_tensor(&m->file, "output.weight");

    // The embedding.
    if ((!is_head || gguf_find_tensor(&m->file, embed.text)) &&
        !load_tensor(l, embed, c->vocab_size, c->dim, &m->embed))
        return false;
    m->output = m->embed; // tied, unless the file has an output matrix
    m->embed.scale = (float)m->family.embed_scale;
    m->output.scale = (float)(1 / m->family.logit_scale);

    // Each layer has at least one tensor. This check bounds the memory that a hostile file can
    // request.
    if (c->n_layers > m->file.n_tensors)
        return refuse(l, "%s: expected at most the %d tensors, found %d",
                      family_key(&m->file, "block_count").text, m->file.n_tensors, c->n_layers);
    m->layers = xalloc((size_t)c->n_layers, sizeof *m->layers);

    // The other tensors outside the layers.
    if (!load_norm(l, NO_LAYER, "output_norm", c->dim, &m->final_norm) ||
        !attach_adapters(l, embed, &m->embed, true))
        return false;
    if (output &&
        !load_matrix(l, NO_LAYER, "output", is_head ? (int)output->dims[1] : c->vocab_size, c->dim,
                     m->output.scale, &m->output))
        return false;

    for (int i = 0; i < c->n_layers; i++)
        if (!load_layer(l, i, &m->layers[i])) return false;

    for (int i = 0; i < m->n_adapters; i++)
        if (!lora_check(&m->adapters[i], l->err)) return false;

    return check_unused(l);
}

// Options: LoRA adapters, RoPE, the type of the KV cache, and --deterministic.

static bool open_adapters(const Loader *l, const ModelOptions *o) {
    Model *m = l->m;
    m->adapters = xalloc((size_t)o->n_adapters + 1, sizeof *m->adapters);
    for (; m->n_adapters < o->n_adapters; m->n_adapters++)
        if (!lora_open(&m->adapters[m->n_adapters], &o->adapters[m->n_adapters],
                       m->family.architecture, l->err))
            return false;
    return true;
}

// Reads the RoPE parameters of the file, then applies the options.
static bool set_rope(const Loader *l, const ModelOptions *o) {
    RopeParams *p = &l->m->rope;
    const Family *f = &l->m->family;
    if (!rope_params_read(p, &l->m->file, f, l->m->config.head_dim, l->err)) return false;
    // Some converters omit RoPE scaling. Such a model works up to 8192 positions and fails beyond.
    if (f->is_llama && p->rule == ROPE_NONE && !o->rope_rule && p->theta == 500000 &&
        l->m->config.max_context == 131072)
        warn("%s: no RoPE scaling, but Llama 3.1 and later need it; add --rope-scaling llama3 "
             "--rope-scale 8 (Llama 3.2: 32)",
             l->m->file.path);
    return rope_params_override(p, o->rope_rule, o->rope_theta, o->rope_scale, o->rope_orig_ctx,
                                l->err);
}

// Finds a type of the KV cache by name. A row of the cache is the key or value of one head, so Q8_0
// and Q4_0 need a head dimension that is a multiple of 32.
static bool find_kv_type(Str name, int head_dim, Type *type) {
    static const Type types[] = {TYPE_F16, TYPE_F32, TYPE_Q8_0, TYPE_Q4_0};
    static const char *const names[] = {"f16", "f32", "q8_0", "q4_0"};
    for (int i = 0; i < 4; i++) {
        *type = types[i];
        if (str_is(name, names[i])) return head_dim % type_info(*type)->block == 0;
    }
    return false;
}

static bool set_kv_types(const Loader *l, const ModelOptions *o) {
    const Config *c = &l->m->config;
    const char *given = o->kv_type ? o->kv_type : "f16", *comma = strchr(given, ',');
    Str keys = {given, strcspn(given, ",")}, values = comma ? str_of(comma + 1) : keys;
    KvShape *kv = &l->m->kv;
    *kv = (KvShape){c->n_layers, c->n_kv_heads, c->head_dim, TYPE_F16, TYPE_F16};
    return (find_kv_type(keys, c->head_dim, &kv->k_type) &&
            find_kv_type(values, c->head_dim, &kv->v_type)) ||
           error_set(l->err, EXIT_USAGE,
                     "--kv %s: expected f16, f32 or (head dimension a multiple of 32) q8_0 or "
                     "q4_0, or two of them: KEYS,VALUES",
                     given);
}

// True if no matrix product depends on the number of rows.
static bool has_invariant_products(const Model *m) {
    if (!ops_is_batch_invariant(&m->output) || !lora_is_batch_invariant(&m->output)) return false;
    for (const Layer *l = m->layers; l < m->layers + m->config.n_layers; l++) {
        const Tensor *const weights[] = {&l->wq,        &l->wk,         &l->wv,     &l->wo,
                                         &l->w_gate,    &l->w_up,       &l->w_down, l->expert_gates,
                                         l->expert_ups, l->expert_downs};
        for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
            if (weights[i] && weights[i]->rows &&
                (!ops_is_batch_invariant(weights[i]) || !lora_is_batch_invariant(weights[i])))
                return false;
    }
    return true;
}

// The model. On failure everything that was opened is closed again.

bool model_bind(Model *m, Gguf *file, const ModelOptions *options, Error *err) {
    *m = (Model){.file = *file, .n_batch_threads = options->n_batch_threads};
    m->n_threads = options->n_threads > 0 ? options->n_threads : team_default_threads();
    Loader l = {m, err, xalloc((size_t)file->n_tensors + 1, sizeof *l.is_used)};
    bool is_loaded =
        (file->n_tensors > 0 || refuse(&l, "this file has a vocabulary only, no tensors")) &&
        read_config(&l, options) && open_adapters(&l, options) && read_vocab_size(&l) &&
        load_tensors(&l) && set_rope(&l, options) && set_kv_types(&l, options);
    free(l.is_used);
    if (is_loaded)
        m->is_batch_invariant =
            options->is_batch_invariant ||
            ((options->is_batch || !kernel.attend_many) && has_invariant_products(m));
    else
        model_close(m);
    return is_loaded;
}

extern const unsigned char builtin_model[], builtin_model_end[]; // stories/builtin.S

// Appends a word of a shell command, in quotes where the shell would change it.
static void put_shell_word(Buffer *out, Str word) {
    bool is_plain = word.len > 0;
    for (size_t i = 0; i < word.len && is_plain; i++)
        is_plain = isalnum((unsigned char)word.data[i]) || strchr("_-+./:@%=", word.data[i]);
    if (is_plain) {
        buffer_put(out, word);
        return;
    }

    buffer_puts(out, "'");
    for (size_t i = 0; i < word.len; i++) {
        if (word.data[i] == '\'')
            buffer_puts(out, "'\\''");
        else
            buffer_append(out, &word.data[i], 1);
    }
    buffer_puts(out, "'");
}

// True if `path` is the directory of a checkpoint. The error then has the command that converts it.
// The name of the output is that of the directory.
static bool is_checkpoint(const char *path, Error *err) {
    static const char *const kinds[][2] = {{"/config.json", "a Hugging Face directory"},
                                           {"/refs/main", "a model in the Hugging Face cache"},
                                           {"/params.json", "a directory of a Meta checkpoint"}};
    Str directory = str_of(path);
    while (directory.len > 1 && path[directory.len - 1] == '/') directory.len--;

    const char *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !kind; i++) {
        Buffer file = {0};
        buffer_put(&file, directory);
        buffer_puts(&file, kinds[i][0]);
        if (access(file.data, F_OK) == 0) kind = kinds[i][1];
        buffer_free(&file);
    }
    if (!kind) return false;

    Str name = directory;
    for (size_t i = 0; i < directory.len; i++)
        if (path[i] == '/') name = (Str){path + i + 1, directory.len - i - 1};
    if (name.len == 0 || *name.data == '.' || *name.data == '-') name = str_of("model");

    // Both words. A directory whose name begins with a hyphen is not an option.
    Buffer output = {0}, command = {0};
    buffer_put(&output, name);
    buffer_puts(&output, ".gguf");
    if (*path == '-') buffer_puts(&command, "./");
    put_shell_word(&command, directory);
    buffer_puts(&command, " -o ");
    put_shell_word(&command, buffer_str(&output));

    error_set(err, err->code, "%s: %s; convert it: scripts/export.py %s", path, kind, command.data);
    buffer_free(&output);
    buffer_free(&command);
    return true;
}

bool model_open_file(Gguf *g, const char *path, Error *err) {
    if (!path)
        return gguf_parse(g, builtin_model, (size_t)(builtin_model_end - builtin_model),
                          "built-in model", err);
    if (gguf_open(g, path, err)) return true;
    if (is_checkpoint(path, err)) return false;
    if (access(path, F_OK) && errno == ENOENT)
        error_set(err, err->code, "%s%s: no such file; %s",
                  path == getenv("LLAMA31_MODEL") ? "LLAMA31_MODEL=" : "", path, // -m was not given
                  strstr(path, "://") ? "llama31 does not download models (curl -LO does)"
                                      : "models are GGUF files; scripts/export.py makes them");
    return false;
}

bool model_open(Model *m, const char *path, const ModelOptions *options, Error *err) {
    Gguf file;
    return model_open_file(&file, path, err) && model_bind(m, &file, options, err);
}

void model_close(Model *m) {
    free(m->layers);
    arena_free(&m->memory);
    for (int i = 0; i < m->n_adapters; i++) lora_close(&m->adapters[i]);
    free(m->adapters);
    gguf_close(&m->file);
    *m = (Model){0};
}
