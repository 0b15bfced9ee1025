// The functions are in the order of their use: the request, the constraint, the generator with
// draft model and prefix cache. A request that does not fit the context or the memory is refused
// here, before any computation.
#include "request.h"
#include "output.h"
#include "../base/files.h"
#include "../os/os.h"

#include <stdio.h>

enum { PLAIN_PREDICT = 256 }; // default -n of plain text, which has no natural end

bool prompt_encode(const Pipeline *p, Str prompt, bool is_plain, Ids *out, Error *err) {
    const Tokenizer *t = p->tokenizer;

    if (!is_plain && !p->tpl.is_none) {
        bool has_system = p->system.data;
        Message messages[2] = {message_make(str_of("system"), p->system),
                               message_make(str_of("user"), prompt)};
        TemplateInput in = {.messages = messages + !has_system,
                            .n_messages = 1 + has_system,
                            .tools = p->tools,
                            .wants_answer = true};
        bool ok = template_encode(&p->tpl, t, &in, out, err);

        message_free(&messages[0]);
        message_free(&messages[1]);
        return ok;
    }

    if (tokenizer_adds_bos(t)) ids_push(out, tokenizer_bos(t));
    tokenizer_encode(t, prompt, p->options->has_special, out);
    if (out->len == 0 && tokenizer_bos(t) >= 0) ids_push(out, tokenizer_bos(t));
    return true;
}

// The context size of a session: -c or, without it, as many positions as n_predict needs.
static int context_choose(const Pipeline *p, int n_prompt, int n_predict) {
    long most = p->model.config.max_context, need = (long)n_prompt + n_predict;
    if (p->options->ctx) return p->options->ctx;
    if (n_predict < 0) // unlimited
        need = n_prompt > DEFAULT_CONTEXT / 2 ? n_prompt + DEFAULT_CONTEXT / 2L : DEFAULT_CONTEXT;
    return (int)(need < most ? need : most);
}

bool context_fits(int n_tokens, bool needs_next, int context, Error *err) {
    return n_tokens + needs_next <= context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: %d tokens, context %d", n_tokens,
                     context);
}

bool text_may_fit(const Pipeline *p, size_t n_bytes, Error *err) {
    int context = p->options->ctx ? p->options->ctx : p->model.config.max_context;
    size_t n = tokenizer_min_tokens(p->tokenizer, n_bytes);
    return n <= (size_t)context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: at least %zu tokens, context %d", n,
                     context);
}

bool request_from_options(const Pipeline *p, const Options *o, const Ids *prompt, bool is_plain,
                          Request *r, Error *err) {
    bool is_chat = !is_plain && !p->tpl.is_none;
    int n = is_chat ? -1 : PLAIN_PREDICT;
    if (o->n_predict != INT_MIN) n = o->n_predict;

    *r = (Request){.prompt = prompt->data,
                   .n_prompt = prompt->len,
                   .max_tokens = n,
                   .max_context = context_choose(p, prompt->len, n),
                   .ignore_eos = o->ignore_eos,
                   .sample = o->sample,
                   .stops = o->stops,
                   .n_stops = o->n_stops,
                   .n_logprobs = o->logprobs};
    r->sample.dry.tokenizer = p->tokenizer;
    return context_fits(prompt->len, n != 0, r->max_context, err);
}

const char *kv_type_text(const KvShape *kv, char text[KV_TYPE_TEXT]) {
    const char *keys = type_info(kv->k_type)->name, *values = type_info(kv->v_type)->name;
    snprintf(text, KV_TYPE_TEXT, keys == values ? "%s" : "%s,%s", keys, values);
    return text;
}

bool kv_memory_check(const Model *m, size_t n_positions, Error *err) {
    char need[24], most[24], type[KV_TYPE_TEXT];
    double bytes = (double)n_positions * (double)kv_position_bytes(&m->kv);
    double available = (double)os_memory_available();
    return bytes <= available ||
           error_set(err, EXIT_RUNTIME,
                     "%zu positions need %s of KV cache (%s), %s are available; use a smaller "
                     "context (-c) or type (--kv)",
                     n_positions, scaled(need, bytes, "B"), kv_type_text(&m->kv, type),
                     scaled(most, available, "B"));
}

Str *list_split(const char *list, int *n) {
    *n = 1;
    for (const char *s = list; *s; s++) *n += *s == ',';
    Str *items = xalloc((size_t)*n, sizeof *items);
    for (int i = 0; i < *n; i++) {
        items[i] = (Str){list, strcspn(list, ",")};
        list += items[i].len + 1;
    }
    return items;
}

void constraint_mark_files(Options *o) {
    if (o->grammar && *o->grammar != '@' && !strstr(o->grammar, "::="))
        o->grammar = text_format("@%s", o->grammar);
    if (o->json_schema && *o->json_schema != '@' && str_ends_with(str_of(o->json_schema), ".json"))
        o->json_schema = text_format("@%s", o->json_schema);
}

// The files of --json-schema and --grammar. They are read once, because batch compiles constraints
// after close_file_access().
static Buffer schema_file, grammar_file;

static bool read_once(const char *text, Buffer *file, Error *err) {
    return !text || *text != '@' || file->data || file_read(text + 1, file, err);
}

static bool read_constraint_files(const Options *o, Error *err) {
    return read_once(o->json_schema, &schema_file, err) &&
           read_once(o->grammar, &grammar_file, err);
}

bool constraint_from_options(ConstraintCache *cache, const Options *o, bool is_checked,
                             ConstraintState **out, Error *err) {
    ConstraintSpec spec = {.is_ordered = !o->any_order && !is_checked,
                           .is_checked = is_checked,
                           .may_think = o->may_think};
    Buffer unknown = {0};
    *out = NULL;

    // The source of the constraint is the content of the file or the text of the option.
    if (!read_constraint_files(o, err)) return false;
    if (o->json_schema)
        spec.schema_text = schema_file.data ? buffer_str(&schema_file) : str_of(o->json_schema);
    if (o->grammar)
        spec.grammar = grammar_file.data ? buffer_str(&grammar_file) : str_of(o->grammar);
    if (o->regex) spec.regex = str_of(o->regex);
    if (o->constraint_choices) spec.choices = list_split(o->constraint_choices, &spec.n_choices);

    bool ok = constraint_new(cache, &spec, out, &unknown, err);
    if (ok && unknown.len) note(o, "JSON Schema: ignored unknown keywords: %s", unknown.data);
    if (ok && *out && o->ignore_eos)
        ok = error_set(err, EXIT_USAGE,
                       "expected either --ignore-eos or a constraint, which ends its text");

    free((void *)spec.choices);
    buffer_free(&unknown);
    return ok;
}

// Compares the stored token lists, not only their sizes: draft tokens and logits are compared by
// id, so an id must be the same token in both models.
void same_vocabulary_check(const Model *other, const Model *m, const char *option) {
    const GgufValue *tokens = gguf_find_value(&m->file, "tokenizer.ggml.tokens");
    const GgufValue *others = gguf_find_value(&other->file, "tokenizer.ggml.tokens");
    if (!tokens || !others || other->config.vocab_size != m->config.vocab_size ||
        tokens->bytes != others->bytes || memcmp(tokens->data, others->data, tokens->bytes))
        die(EXIT_USAGE, "%s: %s: expected the vocabulary of %s (%d tokens), found another (%d)",
            option, other->file.path, m->file.path, m->config.vocab_size, other->config.vocab_size);
}

// --cache-size: "500M", "8G"; a number alone is in GiB. False if it is invalid.
static bool size_parse(const char *text, uint64_t *bytes) {
    static const char units[] = "KMGT";
    char *end;
    double n = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : strchr(units, 'G');
    if (end == text || !(n > 0 && n < 1e6) || !unit || !*unit || (*end && end[1])) return false;
    *bytes = (uint64_t)(n * (double)((uint64_t)1024 << 10 * (unit - units)));
    return true;
}

PrefixCache *prefix_cache_open(const Pipeline *p, int chunk) {
    const Options *o = p->options;
    uint64_t max_bytes = (uint64_t)8 << 30;
    Error err;
    if (!o->cache || !*o->cache) return NULL;
    if (o->cache_size && !size_parse(o->cache_size, &max_bytes))
        die(EXIT_USAGE, "--cache-size: expected a size like 500M or 8G, found \"%s\"",
            o->cache_size);
    PrefixCache *c = cache_open(o->cache, max_bytes, &p->model, chunk, &err);
    if (!c) warn("%s; continuing without a cache", err.text);
    return c;
}

// The draft model of --draft.
static const Model *draft_open(const Pipeline *p) {
    static Model m;
    Error err;
    if (!p->options->draft) return NULL;
    if (!model_open(&m, p->options->draft, &(ModelOptions){.n_threads = p->model.n_threads}, &err))
        die_error(&err);
    same_vocabulary_check(&m, &p->model, "--draft");
    mapping_prefetch(m.file.shards, m.file.n_shards, true);
    return &m;
}

void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel) {
    Error err;
    generator_init(g, &p->model, p->tokenizer, chunk, n_parallel);
    g->speculation = speculation_new(&p->model, draft_open(p), !p->options->no_lookup);
    g->cache = prefix_cache_open(p, g->chunk_size);
    if (!read_constraint_files(p->options, &err)) die_error(&err);
}
