// What can go wrong here is the user's to mend, so most of it ends the program with one line.
#include "engine.h"
#include "../base/files.h"
#include "../os/os.h"
#include "output.h"
#include "../os/sandbox.h"
#include "../kernels/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PLAIN_PREDICT = 256 }; // tokens of plain text, which goes on and on, when nobody says

// A text from a file. What an editor or echo ends it with, one newline, is no part of it.
static void append_file(const Options *o, const char *path, Buffer *out) {
    Error err;
    size_t before = out->len;
    if (!file_read(path, out, &err)) die_error(&err);
    if (o->keep_newline || out->len == before || out->data[out->len - 1] != '\n') return;
    out->data[--out->len] = 0;
    if (out->len > before && out->data[out->len - 1] == '\r') out->data[--out->len] = 0;
}

void prompt_read(const Options *o, Buffer *out) {
    buffer_puts(out, "");
    if (o->prompt) buffer_puts(out, o->prompt);
    if (o->file) append_file(o, o->file, out);
    for (int i = 0; i < o->n_args; i++) {
        if (i) buffer_puts(out, " ");
        if (strcmp(o->args[i], "-"))
            buffer_puts(out, o->args[i]);
        else
            append_file(o, "-", out);
    }
    if (o->prompt || o->file || o->n_args) return;
    if (isatty(STDIN_FILENO))
        die(EXIT_USAGE, "%s: expected a prompt: TEXT, -f FILE or standard input", o->command);
    append_file(o, "-", out);
}

bool memory_fits(const Model *m, size_t n_positions) {
    size_t need;
    return size_mul(n_positions, kv_position_bytes(&m->kv), &need) && need <= os_memory_available();
}

void memory_check(const Model *m, size_t n_positions) {
    if (memory_fits(m, n_positions)) return;
    die(EXIT_RUNTIME,
        "the KV cache of %zu positions needs %zu MiB, available are %zu MiB (a smaller -c, or --kv "
        "q8_0)",
        n_positions, n_positions * kv_position_bytes(&m->kv) >> 20, os_memory_available() >> 20);
}

void engine_settle(const Options *o) {
    tzset(); // templates may ask for the day
    const char *cache = o->cache ? o->cache : getenv("LLAMA31_CACHE");
    if (cache && *cache) return; // its files come and go
    if (!o->no_sandbox && !sandbox_enter() && o->is_verbose) note(o, "this system has no sandbox");
}

void model_load(const Options *o, Model *m, Tokenizer **t) {
    Error err;
    if (!model_open(m, o->model, &o->model_options, &err)) die_error(&err);
    gguf_prefetch(&m->file, true); // while one thread makes the vocabulary
    *t = tokenizer_open(&m->file, &err);
    if (!*t) die_error(&err);
    if (tokenizer_n_vocab(*t) != m->config.vocab_size)
        die(EXIT_MODEL, "%s: vocabulary: expected %d tokens (rows of the embedding), found %d",
            m->file.path, m->config.vocab_size, tokenizer_n_vocab(*t));
    if (o->ctx > m->config.max_context)
        warn("-c %d: the model was made for %d positions", o->ctx, m->config.max_context);
    if (o->is_verbose)
        fprintf(stderr,
                "llama31: %s: %d layers, dim %d, %d heads, %d KV heads, vocabulary %d; %s kernels, "
                "%d threads\n",
                m->file.path, m->config.n_layers, m->config.dim, m->config.n_heads,
                m->config.n_kv_heads, m->config.vocab_size, kernel.name, m->n_threads);
}

void template_choose(const Options *o, const Gguf *g, Tokenizer *t, Template *out) {
    Error err;
    bool is_unused = !o->template_name && (o->is_raw || o->perplexity || o->ids);
    if (!template_open(out, is_unused ? "none" : o->template_name, g, t, &err)) die_error(&err);
    for (int i = 0; i < o->n_template_vars; i++)
        if (!template_set(out, o->template_vars[i].data, &err)) die_error(&err);
}

void template_warn(const Options *o, const Template *tpl) {
    if (tpl->missing.len && !o->is_quiet && !o->is_raw)
        warn("template %s: no tokens of this vocabulary are %s: any text can spell them", tpl->name,
             tpl->missing.data);
}

// The array of --tools, as JSON.
static Str tools_read(const Engine *e) {
    Buffer text = {0};
    JsonDoc doc = {0};
    Error err, why;
    if (!e->options->tools) return (Str){0};
    if (!file_read(e->options->tools, &text, &err)) die_error(&err);
    if (!json_parse(&doc, text.data, text.len, &why))
        die(EXIT_USAGE, "%s: %s", e->options->tools, why.text);
    if (!tools_check(e, doc.root, &why))
        die(EXIT_USAGE, "--tools %s: %s", e->options->tools, why.text);
    json_free(&doc);
    return buffer_str(&text);
}

bool tools_check(const Engine *e, const Json *tools, Error *err) {
    int i = 0;
    if (tools->kind != JSON_ARRAY) return error_set(err, EXIT_RUNTIME, "tools: expected an array");
    for (const Json *tool = tools->child; tool; tool = tool->next, i++)
        if (!json_is(json_get(tool, "type"), "function") ||
            !json_get_string(json_get(tool, "function"), "name"))
            return error_set(
                err, EXIT_RUNTIME,
                "tools[%d]: expected {\"type\":\"function\",\"function\":{\"name\":\"...\"}}", i);
    return !tools->n_items || e->tpl.takes_tools ||
           error_set(err, EXIT_RUNTIME, "tools: the chat template %s has no place for them",
                     e->tpl.name);
}

// The system prompt of -sys; dies where no template has a place for one.
static Str system_read(const Engine *e) {
    const char *text = e->options->system;
    Buffer file = {0};
    if (!text) return (Str){0};
    if (e->options->is_raw) die(EXIT_USAGE, "-sys: expected no --raw beside it");
    if (e->tpl.is_none)
        die(EXIT_USAGE, "-sys: %s has no chat template; choose one with --template",
            e->model.file.path);
    if (text[0] != '@') return str_copy(str_of(text));
    append_file(e->options, text + 1, &file);
    return buffer_str(&file);
}

void engine_open(Engine *e, const Options *o) {
    *e = (Engine){.options = o};
    model_load(o, &e->model, &e->tokenizer);
    template_choose(o, &e->model.file, e->tokenizer, &e->tpl);
    e->system = system_read(e);
    e->constraints = constraint_cache_new(e->tokenizer);
    e->tools = tools_read(e);
    if (o->has_special && !o->is_raw && !e->tpl.is_none)
        die(EXIT_USAGE,
            "--special: expected --raw beside it (a message never holds a control token)");
    Error err;
    if (!biases_check(e, &o->sample, &err)) die_error(&err);
    template_warn(o, &e->tpl);
}

bool prompt_encode(const Engine *e, Str prompt, bool is_plain, Ids *out, Error *err) {
    const Tokenizer *t = e->tokenizer;
    if (!is_plain && !e->tpl.is_none) {
        bool has_system = e->system.data;
        Message messages[2] = {message_make(str_of("system"), e->system),
                               message_make(str_of("user"), prompt)};
        bool ok = template_encode(&e->tpl, t,
                                  &(TemplateInput){.messages = messages + !has_system,
                                                   .n_messages = 1 + has_system,
                                                   .tools = e->tools,
                                                   .wants_answer = true},
                                  out, err);
        message_free(&messages[0]);
        message_free(&messages[1]);
        return ok;
    }
    if (tokenizer_adds_bos(t)) ids_push(out, tokenizer_bos(t));
    (e->options->has_special ? tokenizer_encode_special : tokenizer_encode)(t, prompt.data,
                                                                            prompt.len, out);
    if (out->len == 0 && tokenizer_bos(t) >= 0) ids_push(out, tokenizer_bos(t));
    return true;
}

// "500M", "8G": bytes. Without a letter in GiB.
static uint64_t size_read(const char *text) {
    static const char units[] = "KMGT";
    char *end;
    double n = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : units + 2;
    if (end == text || !(n > 0 && n < 1e6) || !unit || !*unit || (*end && end[1]))
        die(EXIT_USAGE, "--cache-size: expected a size as 500M or 8G, found \"%s\"", text);
    return (uint64_t)(n * (double)((uint64_t)1024 << 10 * (unit - units)));
}

PrefixCache *engine_cache(const Engine *e, int chunk) {
    const Options *o = e->options;
    const char *dir = o->cache ? o->cache : getenv("LLAMA31_CACHE");
    Error err;
    if (!dir || !*dir) return NULL;
    PrefixCache *c =
        cache_open(dir, size_read(o->cache_size ? o->cache_size : "8G"), &e->model, chunk, &err);
    if (!c) warn("%s (going on without a cache)", err.text);
    return c;
}

void vocabulary_check(const Model *other, const Model *m, const char *option) {
    const GgufValue *mine = gguf_find(&m->file, "tokenizer.ggml.tokens");
    const GgufValue *its = gguf_find(&other->file, "tokenizer.ggml.tokens");
    if (!mine || !its || other->config.vocab_size != m->config.vocab_size ||
        mine->bytes != its->bytes || memcmp(mine->data, its->data, its->bytes))
        die(EXIT_USAGE, "%s: %s: expected the vocabulary of %s (%d tokens), found another (%d)",
            option, other->file.path, m->file.path, m->config.vocab_size, other->config.vocab_size);
}

// The model of --draft. Dies if its vocabulary is another.
static Draft *draft_open(const Engine *e) {
    static Model m;
    Error err;
    if (!e->options->draft) return NULL;
    if (!model_open(&m, e->options->draft, &(ModelOptions){.n_threads = e->model.n_threads}, &err))
        die_error(&err);
    vocabulary_check(&m, &e->model, "--draft");
    gguf_prefetch(&m.file, true);
    return draft_new(&m);
}

void engine_generator(Engine *e, Generator *g, int chunk, int parallel) {
    generator_init(g, &e->model, e->tokenizer, chunk, parallel);
    g->draft = draft_open(e);
    g->cache = engine_cache(e, g->max_steps);
    g->has_lookup = !e->options->no_lookup;
}

bool biases_check(const Engine *e, const SampleOptions *s, Error *err) {
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id >= e->model.config.vocab_size)
            return error_set(err, EXIT_USAGE, "logit_bias: expected a token id below %d, found %d",
                             e->model.config.vocab_size, s->bias[i].id);
    return true;
}

// Positions a session may reach: -c, or what n_predict tokens (-1: as many as the model likes)
// after the prompt need.
static int context_choose(const Engine *e, int n_prompt, int n_predict) {
    long most = e->model.config.max_context, need = (long)n_prompt + n_predict;
    if (e->options->ctx) return e->options->ctx;
    if (n_predict < 0)
        need = n_prompt > ROOMY_CONTEXT / 2 ? n_prompt + ROOMY_CONTEXT / 2L : ROOMY_CONTEXT;
    return (int)(need < most ? need : most);
}

bool context_fits(int n_tokens, bool wants_more, int context, Error *err) {
    return n_tokens + wants_more <= context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: %d tokens, context %d", n_tokens,
                     context);
}

bool request_make(const Engine *e, const Options *o, const Ids *prompt, bool is_plain, Request *r,
                  Error *err) {
    bool has_turns = !is_plain && !e->tpl.is_none;
    int n = o->n_predict != INT_MIN ? o->n_predict : has_turns ? -1 : PLAIN_PREDICT;
    *r = (Request){.prompt = prompt->data,
                   .n_prompt = prompt->len,
                   .max_tokens = n,
                   .max_context = context_choose(e, prompt->len, n),
                   .ignore_eos = o->ignore_eos,
                   .sample = o->sample,
                   .stops = o->stops,
                   .n_stops = o->n_stops,
                   .n_logprobs = o->logprobs};
    return context_fits(prompt->len, n != 0, r->max_context, err);
}

double model_decode_gb(const Model *m) {
    const Config *c = &m->config;
    size_t bytes = model_weight_bytes(m);
    if (m->output.data != m->embed.data) bytes -= (size_t)c->vocab_size * m->embed.row_bytes;
    return (double)bytes * 1e-9;
}

void ids_parse(const char *text, int n_vocab, Ids *out) {
    const char *at = text + strspn(text, " ,\t\r\n");
    while (*at) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id >= n_vocab || (*end && !strchr(" ,\t\r\n", *end)))
            die(EXIT_USAGE, "ids: expected numbers from 0 to %d, found \"%.20s\"", n_vocab - 1, at);
        ids_push(out, (int)id);
        at = end + strspn(end, " ,\t\r\n");
    }
}
