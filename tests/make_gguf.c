// Encodes values and tensors without any checks, so that tests can build invalid files. This
// encoder is independent of quantize/gguf_writer.c.
#include "tests/make_gguf.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void make_le(Buffer *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buffer_append(b, &(char){(char)(v >> 8 * i)}, 1);
}

void make_item(Buffer *items, const char *data, size_t n) {
    make_le(items, n, 8);
    buffer_append(items, data, n);
}

void make_begin(Maker *m) { *m = (Maker){.version = 3, .alignment = 32}; }

static void pad(Buffer *b, size_t alignment) {
    while (alignment && b->len % alignment) buffer_append(b, "", 1);
}

Buffer make_end(Maker *m) {
    Buffer file = {0};
    buffer_puts(&file, "GGUF");
    make_le(&file, m->version, 4);
    make_le(&file, m->n_tensors, 8);
    make_le(&file, m->n_values, 8);
    buffer_append(&file, m->values.data, m->values.len);
    buffer_append(&file, m->infos.data, m->infos.len);
    if (m->data.len) pad(&file, m->alignment);
    buffer_append(&file, m->data.data, m->data.len);

    buffer_free(&m->values);
    buffer_free(&m->infos);
    buffer_free(&m->data);
    return file;
}

bool make_key(Maker *m, const char *key, uint32_t kind) {
    if (m->skip && !strcmp(m->skip, key)) return false;
    make_item(&m->values, key, strlen(key));
    make_le(&m->values, kind, 4);
    m->n_values++;
    return true;
}

void make_value(Maker *m, const char *key, GgufKind kind, uint64_t bits) {
    static const int bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (make_key(m, key, kind)) make_le(&m->values, bits, bytes[kind]);
}

void make_u32(Maker *m, const char *key, uint32_t v) { make_value(m, key, GGUF_U32, v); }
void make_bool(Maker *m, const char *key, bool v) { make_value(m, key, GGUF_BOOL, v); }

void make_f32(Maker *m, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    make_value(m, key, GGUF_F32, bits);
}

void make_string(Maker *m, const char *key, const char *v) {
    if (make_key(m, key, GGUF_STRING)) make_item(&m->values, v, strlen(v));
}

void make_array(Maker *m, const char *key, GgufKind item_kind, uint64_t count, const void *items,
                size_t bytes) {
    if (!make_key(m, key, GGUF_ARRAY)) return;
    make_le(&m->values, item_kind, 4);
    make_le(&m->values, count, 8);
    buffer_append(&m->values, items, bytes);
}

void make_info(Maker *m, const char *name, int n_dims, const uint64_t *dims, uint32_t type,
               uint64_t offset) {
    make_item(&m->infos, name, strlen(name));
    make_le(&m->infos, (uint32_t)n_dims, 4);
    for (int i = 0; i < n_dims && i < 8; i++) make_le(&m->infos, dims[i], 8);
    make_le(&m->infos, type, 4);
    make_le(&m->infos, offset, 8);
    m->n_tensors++;
}

void make_matrices(Maker *m, const char *name, uint32_t type, uint64_t cols, uint64_t rows,
                   uint64_t depth, const void *data, size_t bytes) {
    const uint64_t dims[] = {cols, rows, depth};
    int n_dims = rows > 1 ? 2 : 1;
    if (m->skip && !strcmp(m->skip, name)) return;

    pad(&m->data, m->alignment);
    make_info(m, name, depth > 1 ? 3 : n_dims, dims, type, m->data.len);
    if (data)
        buffer_append(&m->data, data, bytes);
    else
        for (size_t i = 0; i < bytes; i++) buffer_append(&m->data, "", 1);
}

void make_tensor(Maker *m, const char *name, uint32_t type, uint64_t cols, uint64_t rows,
                 const void *data, size_t bytes) {
    make_matrices(m, name, type, cols, rows, 1, data, bytes);
}

// Normally distributed weights of variance about 1 / cols, which keep activations near 1. They have
// few mantissa bits, so that F16 and BF16 represent them exactly.
static void make_matrix(Maker *m, const MakeLlama *o, uint64_t *random, const char *name, int cols,
                        int matrix_rows, int depth) {
    int rows = matrix_rows * depth;
    const TypeInfo *info = type_info(o->type);
    size_t row_bytes = (size_t)(cols / info->block * info->bytes);
    size_t n = (size_t)cols;
    float *x = xalloc(n, sizeof *x);
    uint8_t *data = xalloc((size_t)rows, row_bytes);

    // The largest power of two that is not above 1 / sqrt(cols).
    float scale = 1;
    while (scale * scale * (float)cols > 1) scale /= 2;

    for (int r = 0; r < rows; r++) {
        uint8_t *row = data + (size_t)r * row_bytes;
        for (size_t i = 0; i < n; i++) x[i] = (float)(int)(test_normal(random) * 16) / 16 * scale;

        // float16 has an exponent with bias 15 instead of 127, and 10 instead of 23 mantissa bits.
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &x[i], 4);
            uint32_t half =
                bits << 1 ? (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112u << 10)) : 0;
            if (o->type == TYPE_F32) memcpy(row + 4 * i, &bits, 4);
            if (o->type == TYPE_BF16) memcpy(row + 2 * i, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
            if (o->type == TYPE_F16) memcpy(row + 2 * i, &(uint16_t){(uint16_t)half}, 2);
        }

        if (info->bytes > 4 && o->encode) o->encode(o->type, x, NULL, row, n);
    }

    make_matrices(m, name, o->type, (uint64_t)cols, (uint64_t)matrix_rows, (uint64_t)depth, data,
                  (size_t)rows * row_bytes);

    free(x);
    free(data);
}

static void make_norm(Maker *m, uint64_t *random, const char *name, int n) {
    float *x = xalloc((size_t)n, sizeof *x);
    for (int i = 0; i < n; i++) x[i] = 1 + (float)(int)(test_normal(random) * 8) / 128;
    make_tensor(m, name, TYPE_F32, (uint64_t)n, 1, x, (size_t)n * 4);
    free(x);
}

typedef struct {
    Buffer tokens, types, scores;
    int n;
} VocabularyArrays;

static void add_token(VocabularyArrays *v, const char *data, size_t n, int type, float score) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    make_item(&v->tokens, data, n);
    make_le(&v->types, (uint64_t)type, 4);
    make_le(&v->scores, bits, 4);
    v->n++;
}

static void end_vocabulary(Maker *m, VocabularyArrays *v, bool has_scores, int bos, int eos) {
    make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)v->n, v->tokens.data,
               v->tokens.len);
    make_array(m, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)v->n, v->types.data,
               v->types.len);
    if (has_scores)
        make_array(m, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)v->n, v->scores.data,
                   v->scores.len);

    make_u32(m, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    make_u32(m, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    make_bool(m, "tokenizer.ggml.add_bos_token", true);

    buffer_free(&v->tokens);
    buffer_free(&v->types);
    buffer_free(&v->scores);
}

// In byte-level BPE, printable Latin-1 bytes are spelled as themselves, all others from U+0100
// upwards.
static int make_bpe_vocabulary(Maker *m) {
    static const char *const merges[] = {"t h", "th e", "\xc4\xa0 the", "i n", "\xc4\xa0 a", "e r"};
    static const char *const control[] = {
        "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
        "<|eom_id|>",        "<|eot_id|>",      "<|im_start|>",        "<|im_end|>"};
    VocabularyArrays v = {0};
    Buffer items = {0};
    char text[32];
    uint32_t n_hidden = 0;

    // Bytes.
    for (uint32_t b = 0; b < 256; b++) {
        bool is_plain = (b > 32 && b < 127) || (b > 160 && b != 173);
        int len = utf8_encode(is_plain ? b : 256 + n_hidden++, text);
        add_token(&v, text, (size_t)len, 1, 0);
    }

    // The token of each merge.
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        size_t n = 0;
        for (const char *s = merges[i]; *s; s++)
            if (*s != ' ') text[n++] = *s;
        add_token(&v, text, n, 1, 0);
        make_item(&items, merges[i], strlen(merges[i]));
    }

    int bos = v.n;
    int n = v.n + (int)(sizeof control / sizeof *control);
    for (int i = 0; i < n - bos; i++) add_token(&v, control[i], strlen(control[i]), 3, 0);

    make_string(m, "tokenizer.ggml.model", "gpt2");
    make_string(m, "tokenizer.ggml.pre", "llama-bpe");
    make_array(m, "tokenizer.ggml.merges", GGUF_STRING, sizeof merges / sizeof *merges, items.data,
               items.len);
    make_u32(m, "tokenizer.ggml.eot_token_id", (uint32_t)bos + 5);
    make_u32(m, "tokenizer.ggml.eom_token_id", (uint32_t)bos + 4);

    end_vocabulary(m, &v, false, bos, bos + 1);
    buffer_free(&items);
    return n;
}

static int make_spm_vocabulary(Maker *m) {
    static const char *const words[] = {"\xe2\x96\x81", "th", "the",          "\xe2\x96\x81the",
                                        "in",           "er", "\xe2\x96\x81r"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!?'";
    VocabularyArrays v = {0};
    char text[16];

    add_token(&v, "<unk>", 5, 2, 0);
    add_token(&v, "<s>", 3, 3, 0);
    add_token(&v, "</s>", 4, 3, 0);
    for (int b = 0; b < 256; b++)
        add_token(&v, text, (size_t)snprintf(text, sizeof text, "<0x%02X>", b), 6, 0);

    // Words have higher scores than letters.
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        add_token(&v, words[i], strlen(words[i]), 1, -(float)i - 1);
    for (size_t i = 0; letters[i]; i++) {
        if (letters[i] != ' ') add_token(&v, &letters[i], 1, 1, -100 - (float)i);
    }

    int n = v.n;
    make_string(m, "tokenizer.ggml.model", "llama");
    make_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    end_vocabulary(m, &v, true, 1, 2);
    return n;
}

static void make_tensors(Maker *m, const MakeLlama *o, int n_vocab) {
    static const struct {
        const char *name;
        char out, in; // d: dim, h: hidden_dim, q: n_heads * head_dim, k: n_kv_heads * head_dim
    } matrices[] = {{"attn_q", 'q', 'd'},      {"attn_k", 'k', 'd'},   {"attn_v", 'k', 'd'},
                    {"attn_output", 'd', 'q'}, {"ffn_gate", 'h', 'd'}, {"ffn_up", 'h', 'd'},
                    {"ffn_down", 'd', 'h'}};
    uint64_t random = o->seed + 1;
    char name[64];
    int sizes[128] = {['d'] = o->dim,
                      ['h'] = o->hidden_dim,
                      ['q'] = o->n_heads * o->head_dim,
                      ['k'] = o->n_kv_heads * o->head_dim};

    make_matrix(m, o, &random, "token_embd.weight", o->dim, n_vocab, 1);
    for (int layer = 0; layer < o->n_layers; layer++) {
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, i ? "ffn_norm" : "attn_norm");
            make_norm(m, &random, name, o->dim);
        }

        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
            bool has_experts = o->n_experts && !strncmp(matrices[i].name, "ffn", 3);
            snprintf(name, sizeof name, "blk.%d.%s%s.weight", layer, matrices[i].name,
                     has_experts ? "_exps" : "");
            make_matrix(m, o, &random, name, sizes[(int)matrices[i].in],
                        sizes[(int)matrices[i].out], has_experts ? o->n_experts : 1);
        }

        if (!o->n_experts) continue;
        MakeLlama router = *o;
        router.type = TYPE_F32;
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
        make_matrix(m, &router, &random, name, o->dim, o->n_experts, 1);
    }

    make_norm(m, &random, "output_norm.weight", o->dim);
    if (!o->is_tied) make_matrix(m, o, &random, "output.weight", o->dim, n_vocab, 1);

    if (!o->has_rope_freqs) return;

    float divisors[512];
    int n = o->head_dim / 2;
    for (int i = 0; i < n && i < 512; i++) divisors[i] = i < n / 2 ? 1.0f : 8.0f;
    make_tensor(m, "rope_freqs.weight", TYPE_F32, (uint64_t)n, 1, divisors, (size_t)n * 4);
}

void make_llama(Maker *m, MakeLlama o) {
    if (!o.dim) o.dim = 64;
    if (!o.hidden_dim) o.hidden_dim = 128;
    if (!o.n_layers) o.n_layers = 2;
    if (!o.n_heads) o.n_heads = 4;
    if (!o.n_kv_heads) o.n_kv_heads = 2;
    if (!o.max_context) o.max_context = 256;
    if (!o.head_dim) o.head_dim = o.dim / o.n_heads;

    make_string(m, "general.architecture", "llama");
    make_string(m, "general.name", "tiny");
    make_u32(m, "llama.block_count", (uint32_t)o.n_layers);
    make_u32(m, "llama.context_length", (uint32_t)o.max_context);
    make_u32(m, "llama.embedding_length", (uint32_t)o.dim);
    make_u32(m, "llama.feed_forward_length", (uint32_t)o.hidden_dim);
    make_u32(m, "llama.attention.head_count", (uint32_t)o.n_heads);
    make_u32(m, "llama.attention.head_count_kv", (uint32_t)o.n_kv_heads);
    make_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    make_f32(m, "llama.rope.freq_base", 10000.0f);
    make_u32(m, "llama.rope.dimension_count", (uint32_t)o.head_dim);

    if (o.n_experts) {
        make_u32(m, "llama.expert_count", (uint32_t)o.n_experts);
        make_u32(m, "llama.expert_used_count", 2);
    }

    if (o.head_dim * o.n_heads != o.dim) {
        make_u32(m, "llama.attention.key_length", (uint32_t)o.head_dim);
        make_u32(m, "llama.attention.value_length", (uint32_t)o.head_dim);
    }

    int n_vocab = o.is_sentencepiece ? make_spm_vocabulary(m) : make_bpe_vocabulary(m);
    make_u32(m, "llama.vocab_size", (uint32_t)n_vocab);
    if (o.template) make_string(m, "tokenizer.chat_template", o.template);
    if (!o.is_vocabulary_only) make_tensors(m, &o, n_vocab);
}

Buffer make_llama_file(MakeLlama o) {
    Maker m;
    make_begin(&m);
    make_llama(&m, o);
    return make_end(&m);
}

static char directory[64], names[64][128];
static int n_names;

static void remove_files(void) {
    for (int i = 0; i < n_names; i++) unlink(names[i]);
    rmdir(directory);
}

const char *make_path(const char *name, const void *data, size_t n) {
    if (!*directory) {
        snprintf(directory, sizeof directory, "/tmp/llama31-test-XXXXXX");
        if (!mkdtemp(directory)) die(EXIT_RUNTIME, "%s: cannot be created", directory);
        atexit(remove_files);
    }

    int i = 0;
    char path[128];
    snprintf(path, sizeof path, "%s/%.60s", directory, name);
    while (i < n_names && strcmp(names[i], path)) i++;
    if (i == 64) die(EXIT_RUNTIME, "too many test files");
    if (i == n_names) memcpy(names[n_names++], path, sizeof path);

    FILE *f = fopen(path, "wb");
    if (!f || (n && fwrite(data, 1, n, f) != n) || fclose(f))
        die(EXIT_RUNTIME, "%s: cannot be written", path);
    return names[i];
}

uint64_t test_random(uint64_t *state) {
    uint64_t x = *state ? *state : 88172645463325252u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 2685821657736338717u;
}

float test_normal(uint64_t *state) {
    double s = 0;
    for (int i = 0; i < 12; i++) s += (double)(test_random(state) >> 11) / 9007199254740992.0;
    return (float)(s - 6);
}
