// Each target runs one parser of untrusted data, and then the code that relies on its checks.
#include "tests/fuzz/targets.h"
#include "tests/make_gguf.h"
#include "constrain/constrain.h"
#include "model/load.h"
#include "chat/jinja/jinja.h"
#include "model.h"
#include "tokenizer.h"
#include "cli/commands/batch_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const MakeLlama models[] = {
    {.dim = 32, .hidden_dim = 32, .n_layers = 1},
    {.dim = 32,
     .hidden_dim = 32,
     .n_layers = 1,
     .is_sentencepiece = true,
     .n_experts = 3,
     .type = TYPE_F16},
    {.dim = 32, .hidden_dim = 32, .n_layers = 2, .is_tied = true, .has_rope_freqs = true},
    {.is_vocabulary_only = true}};
enum { N_MODELS = sizeof models / sizeof *models };
enum { MAX_WORK = 1 << 22 }; // multiplications per token that a mutated model may cost

Str fuzz_valid_model(int i) {
    static Buffer files[N_MODELS];
    if (!files[i].len) files[i] = make_llama_file(models[i]);
    return buffer_str(&files[i]);
}

static void use_tokenizer(const Gguf *g) {
    static const char text[] = "Hello <|eot_id|> w\xc3\xb6rld\xff 123\n";
    Error err;
    Ids ids = {0};
    Tokenizer *t = tokenizer_open(g, &err);
    if (!t) return;
    tokenizer_encode(t, (Str){text, sizeof text - 1}, false, &ids);
    tokenizer_encode(t, (Str){text, sizeof text - 1}, true, &ids);
    for (int i = 0; i < ids.len; i++) HOLDS(ids.data[i] >= 0 && ids.data[i] < tokenizer_n_vocab(t));
    free(ids.data);
    tokenizer_close(t);
}

static void use_model(Model *m) {
    const Config *c = &m->config;
    double work = ((double)c->dim + c->n_heads * (double)c->head_dim) *
                      ((double)c->hidden_dim + c->dim) * c->n_layers +
                  (double)c->vocab_size * c->dim;
    double expert_work = (double)c->experts.n_used * c->experts.dim + c->experts.shared_dim;
    const int tokens[] = {0, c->vocab_size - 1};
    Error err;
    if (work + expert_work * c->dim * c->n_layers > MAX_WORK || c->max_context < 2) return;
    Workspace *ws = workspace_new(m, 2, 1);
    Session *s = session_new(&m->kv);
    if (workspace_feed(ws, s, tokens, 2, 1, &err) == 2) HOLDS(model_forward(m, ws, 0));
    session_free(s);
    workspace_free(ws);
}

uint8_t *fuzz_mutate(Str (*valid_file)(int i), const uint8_t *data, size_t n, size_t *len) {
    bool is_mutation = *data < 16;
    Str source = is_mutation ? valid_file(*data & 3) : (Str){(const char *)data + 1, n - 1};
    void *memory = NULL;
    if (posix_memalign(&memory, 64, source.len + !source.len)) abort();
    uint8_t *file = memory;
    if (source.len) memcpy(file, source.data, source.len);
    *len = source.len;
    for (size_t i = 1; is_mutation && i + 4 <= n; i += 4) {
        size_t at = (data[i] | (size_t)data[i + 1] << 8 | (size_t)data[i + 2] << 16) % *len;
        file[at] ^= data[i + 3];
        if (i == 1 && *data & 8) *len = at + 1;
    }
    return file;
}

void fuzz_file(const uint8_t *data, size_t n) {
    static const ModelOptions options = {.n_threads = 1};
    Gguf g;
    Model m;
    Error err;
    size_t len;
    if (n == 0) return;
    uint8_t *file = fuzz_mutate(fuzz_valid_model, data, n, &len);
    if (gguf_parse(&g, file, len, "fuzz", &err)) {
        use_tokenizer(&g);
        if (model_bind(&m, &g, &options, &err)) {
            use_model(&m);
            model_close(&m);
        }
    } else {
        HOLDS(err.code == EXIT_MODEL && *err.text);
    }
    free(file);
}

// LoRA adapters of fuzz_valid_model(0): of one matrix; of all kinds of matrices in F32, F16 and
// Q8_0.
static Str valid_adapter(int i) {
    static const struct {
        const char *name;
        int rows, cols;
    } matrices[] = {{"blk.0.attn_k", 16, 32},      {"blk.0.attn_q", 32, 32},
                    {"blk.0.attn_output", 32, 32}, {"blk.0.ffn_gate", 32, 32},
                    {"blk.0.ffn_down", 32, 32},    {"token_embd", 0, 32}};
    static const Type types[] = {TYPE_F32, TYPE_F32, TYPE_F16, TYPE_Q8_0};
    static Buffer files[4];
    enum { N = sizeof matrices / sizeof *matrices };
    if (files[i].len) return buffer_str(&files[i]);
    Maker m;
    uint64_t rank = types[i] == TYPE_Q8_0 ? 32 : 3, n_vocab = 0;
    Gguf g;
    Error err;
    Str base = fuzz_valid_model(0);
    HOLDS(gguf_parse(&g, base.data, base.len, "valid", &err));
    n_vocab = gguf_find_tensor(&g, "token_embd.weight")->dims[1];
    gguf_close(&g);
    make_begin(&m);
    make_string(&m, "general.architecture", "llama");
    make_string(&m, "general.type", "adapter");
    make_string(&m, "adapter.type", "lora");
    make_f32(&m, "adapter.lora.alpha", 8);
    for (int k = 0; k < (i ? N : 1); k++) {
        char name[64];
        bool is_embedding = k == N - 1;
        uint64_t a_rows = is_embedding ? n_vocab : rank, a_cols = is_embedding ? rank : 32,
                 b_rows = (uint64_t)(is_embedding ? matrices[k].cols : matrices[k].rows);
        snprintf(name, sizeof name, "%s.weight.lora_a", matrices[k].name);
        make_tensor(&m, name, types[i], a_cols, a_rows, NULL,
                    a_rows * quant_row_bytes(types[i], a_cols));
        snprintf(name, sizeof name, "%s.weight.lora_b", matrices[k].name);
        make_tensor(&m, name, types[i], rank, b_rows, NULL,
                    b_rows * quant_row_bytes(types[i], rank));
    }
    files[i] = make_end(&m);
    return buffer_str(&files[i]);
}

void fuzz_adapter(const uint8_t *data, size_t n) {
    Gguf g;
    Model m;
    Error err;
    size_t len;
    if (n == 0) return;
    uint8_t *file = fuzz_mutate(valid_adapter, data, n, &len);
    LoraOption adapter = {str_of(make_path("adapter.gguf", file, len)), 1};
    ModelOptions options = {.n_threads = 1, .adapters = &adapter, .n_adapters = 1};
    Str base = fuzz_valid_model(0);
    HOLDS(gguf_parse(&g, base.data, base.len, "valid", &err));
    if (model_bind(&m, &g, &options, &err)) {
        use_model(&m);
        model_close(&m);
    } else {
        HOLDS(err.code == EXIT_MODEL && *err.text);
        HOLDS(n > 1 || *data > 15); // only mutated files are rejected
    }
    free(file);
}

// Encoding and decoding gives the same text.
void fuzz_tokenizer(const uint8_t *data, size_t n) {
    static Tokenizer *tokenizers[2];
    static Gguf files[2];
    Error err;
    Ids ids = {0};
    Buffer back = {0};
    if (n == 0) return;
    int kind = *data & 1;
    if (!tokenizers[kind]) {
        Str file = fuzz_valid_model(kind);
        HOLDS(gguf_parse(&files[kind], file.data, file.len, "valid", &err));
        tokenizers[kind] = tokenizer_open(&files[kind], &err);
    }
    const Tokenizer *t = tokenizers[kind];
    Str text = {(const char *)data + 1, n - 1};
    tokenizer_encode(t, text, *data & 2, &ids);
    for (int i = 0; i < ids.len; i++) buffer_put(&back, tokenizer_piece(t, ids.data[i], true));
    buffer_puts(&back, "");
    Str found = buffer_str(&back);
    if (kind == 0) HOLDS(str_eq(found, text)); // SentencePiece changes spaces
    free(ids.data);
    buffer_free(&back);
}

// A parsed text that is written and parsed again is the same.
void fuzz_json(const uint8_t *data, size_t n) {
    static JsonDoc a, b;
    Buffer first = {0}, second = {0};
    Error err;
    if (!json_parse(&a, (const char *)data, n, &err)) return;
    json_write_value(&(JsonWriter){.out = &first}, NULL, a.root, NULL);
    HOLDS(json_parse(&b, first.data, first.len, &err));
    json_write_value(&(JsonWriter){.out = &second}, NULL, b.root, NULL);
    HOLDS(str_eq(buffer_str(&first), buffer_str(&second)));
    buffer_free(&first);
    buffer_free(&second);
}

void fuzz_records(const uint8_t *data, size_t n) {
    static Pipeline e;
    static Options o;
    static JsonDoc doc;
    Buffer key = {0};
    ResultKind kind;
    Error err;
    if (!e.tokenizer) {
        Str file = fuzz_valid_model(0);
        o = options_default("batch", CMD_BATCH);
        o.prompt.template_name = "chatml";
        o.model.path = make_path("fuzz.gguf", file.data, file.len);
        o.model.load.n_threads = 1;
        pipeline_open(&e, &o);
    }
    if (!json_parse(&doc, (const char *)data, n, &err)) return;
    Record *r = record_new(1, FORM_SHORT, &e);
    if (record_parse_id(r, doc.root, &err) && !record_parse(r, doc.root, (Str){0}, &err))
        record_fail(r, "x", err.text);
    if (r->answer.text.len)
        HOLDS(json_parse(&doc, r->answer.text.data, r->answer.text.len - 1, &err));
    record_free(r);
    if (json_parse(&doc, (const char *)data, n, &err)) result_parse(doc.root, &key, &kind);
    buffer_free(&key);
}

// A Jinja template up to the first NUL, then its variables as JSON. Rendering fails, or gives a
// text with a provenance mask of the same length.
void fuzz_template(const uint8_t *data, size_t n) {
    static const char defaults[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
        "\"<|eot_id|>\"}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"tools\":null}";
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    Str source = {(const char *)data, end ? (size_t)(end - data) : n};
    JsonDoc doc = {0};
    Error err;
    Buffer text = {0}, mask = {0};
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    Jinja *t = jinja_open(source, "fuzz", &err);
    bool ok = (end && json_parse(&doc, (const char *)end + 1, n - source.len - 1, &err) &&
               doc.root->kind == JSON_OBJECT) ||
              json_parse(&doc, defaults, sizeof defaults - 1, &err);
    if (t && ok) {
        jinja_render(t, &(JinjaInput){.objects = &doc.root, .n_objects = 1, .now = &now}, &text,
                     &mask, &err);
        HOLDS(text.len == mask.len);
        for (size_t i = 0; i < mask.len; i++) HOLDS(!(mask.data[i] & ~1));
    }
    if (t) jinja_close(t);
    json_free(&doc);
    buffer_free(&text);
    buffer_free(&mask);
}

// A command line with one argument per line; the first byte selects the command.
void fuzz_argv(const uint8_t *data, size_t n) {
    char *text = xrealloc(NULL, n + 1, 1), *argv[65], *save = NULL;
    int argc = 0;
    Error err;
    if (n) memcpy(text, data, n);
    text[n] = 0;
    unsigned command = 1u << (n ? *data % 10 : 0);
    for (char *at = strtok_r(n ? text + 1 : text, "\n", &save); at && argc < 64;
         at = strtok_r(NULL, "\n", &save))
        argv[argc++] = at;
    argv[argc] = NULL;
    Options o = options_default("fuzz", command);
    o.args = xalloc(65, sizeof *o.args);
    if (!options_parse(&o, argc, argv, &err))
        HOLDS((err.code == EXIT_USAGE || err.code == EXIT_RUNTIME) && *err.text); // --load: no file
    free(o.args);
    free(o.settings.stops);
    free(o.text.biases);
    free(o.settings.sample.dry.breakers);
    free(o.settings.sample.bias);
    free(o.model.load.adapters);
    buffer_free(&o.ignored);
    free(text);
}

Str fuzz_piece(int token) {
    static const char *const words[N_FUZZ_TOKENS - 256] = {"{\"", "\":",  "\"}", "a\"", "[1",  "]}",
                                                           "\\u", "\xc3", "e9",  " \"", "true"};
    static char bytes[256];
    if (token >= 256) return str_of(words[token - 256]);
    bytes[token] = (char)token;
    return (Str){bytes + token, 1};
}

const TokenTable *fuzz_tokens(void) {
    static TokenTable *v;
    Str pieces[N_FUZZ_TOKENS];
    for (int i = 0; i < N_FUZZ_TOKENS; i++) pieces[i] = fuzz_piece(i);
    if (!v) v = token_table_new(pieces, N_FUZZ_TOKENS);
    return v;
}

// After each byte of the text, a token's mask bit is set exactly if its bytes are accepted, and the
// text can continue or end.
static void check_masks(const Grammar *c, const uint8_t *data, size_t n) {
    const TokenTable *v = fuzz_tokens();
    Matcher *m = matcher_new(c, v, NULL);
    for (size_t at = 0; at < n && at < 64; at++) {
        uint64_t mask[(N_FUZZ_TOKENS + 63) / 64];
        bool any = matcher_is_end(m);
        memcpy(mask, matcher_mask(m, false), sizeof mask);
        for (int i = 0; i < N_FUZZ_TOKENS; i++) {
            Matcher *one = matcher_new(c, v, m);
            HOLDS(matcher_accept(one, (Str){(char *)data, at}) == at);
            bool fits = matcher_accept(one, fuzz_piece(i)) == fuzz_piece(i).len;
            HOLDS(fits == (mask[i / 64] >> (i & 63) & 1));
            any |= fits;
            matcher_free(one);
        }
        HOLDS(any);
        if (!matcher_accept(m, (Str){(char *)data + at, 1})) break;
    }
    matcher_free(m);
}

// A regular expression, grammar or schema (selected by the first byte) up to the first NUL, then a
// text to match.
void fuzz_constrain(const uint8_t *data, size_t n) {
    const uint8_t *end = n > 1 ? memchr(data + 1, 0, n - 1) : NULL;
    Str source = {(const char *)data + !!n, end ? (size_t)(end - data) - 1 : n - !!n};
    Error err = {0};
    int kind = n ? *data % 4 : 0;
    Grammar *c = kind == 0   ? grammar_regex(source, &err)
                 : kind == 1 ? grammar_gbnf(source, &err)
                             : grammar_schema_text(source, NULL,
                                                   kind == 3 ? SCHEMA_ORDERED | SCHEMA_CLOSED : 0,
                                                   NULL, &err);
    HOLDS(c || (err.code == EXIT_USAGE && *err.text));
    if (c && end) check_masks(c, end + 1, n - source.len - 2);
    grammar_free(c);
}

#define TARGET(name) {#name, fuzz_##name},
const FuzzTarget fuzz_targets[] = {FUZZ_TARGETS(TARGET){NULL, NULL}};
