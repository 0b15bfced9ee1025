// The functions are in the order of their use: the request, the constraint, the generator with
// draft model and prefix cache. A request that does not fit the context or the memory is refused
// here, before any computation.
#include "request.h"
#include "output.h"
#include "../base/files.h"
#include "../os/os.h"

#include <stdio.h>

enum { PLAIN_PREDICT = 256 }; // default -n of plain text, which has no natural end

Reasoning reasoning_from_options(const Options *o) {
    if (o->no_think || o->reasoning_budget == 0) return REASONING_OFF;
    return o->may_think || o->reasoning_budget != INT_MIN ? REASONING_ON : REASONING_AUTO;
}

bool template_kwargs_read(Options *o, const Json *kwargs, Error *err) {
    static const char reserved[] = "messages tools add_generation_prompt bos_token eos_token";
    static const char budgets[] = "reasoning_budget thinking_budget thinking_budget_tokens";
    const Option *budget = option_find(o, CMD_SET, "--reasoning-budget", NULL);

    for (const Json *m = kwargs->child; m; m = m->next) {
        if (str_is_one_of(m->key, reserved))
            return error_set(err, EXIT_USAGE, "\"%.*s\" cannot be set", SHOWN(m->key));
        if (m->kind == JSON_BOOL && str_is_one_of(m->key, "enable_thinking thinking"))
            options_set_think(o, m->boolean);
        if (m->kind == JSON_NUMBER && str_is_one_of(m->key, budgets) &&
            !option_set_number(o, budget, "thinking_budget", m->number, err))
            return false;
    }
    return kwargs->kind == JSON_OBJECT || error_set(err, EXIT_USAGE, "expected a JSON object");
}

void template_kwargs_apply(Options *o) {
    const Option *variable = option_find(o, CMD_RUN, "--template-var", NULL);
    JsonDoc doc = {0};
    Error err;
    if (!o->template_kwargs) return;
    if (!json_parse(&doc, o->template_kwargs, strlen(o->template_kwargs), &err) ||
        !template_kwargs_read(o, doc.root, &err))
        die(EXIT_USAGE, "--chat-template-kwargs: %s", err.text);

    for (const Json *m = doc.root->child; m; m = m->next) {
        Buffer text = {0}; // stays, as the value of the option
        buffer_put(&text, m->key);
        buffer_puts(&text, "=");
        json_write_value(&(JsonWriter){.out = &text}, NULL, m, NULL);
        option_set(o, variable, "--template-var", text.data, &err);
    }
    json_free(&doc);
    o->template_kwargs = NULL;
}

bool prompt_encode(const Pipeline *p, const Options *o, Str prompt, bool is_plain, Ids *out,
                   Error *err) {
    const Tokenizer *t = p->tokenizer;

    if (!is_plain && !p->tpl.is_none) {
        bool has_system = p->system.data;
        Message messages[2] = {message_make(str_of("system"), p->system),
                               message_make(str_of("user"), prompt)};
        TemplateInput in = {.messages = messages + !has_system,
                            .n_messages = 1 + has_system,
                            .tools = p->tools,
                            .variables = str_of(o->template_kwargs ? o->template_kwargs : ""),
                            .wants_answer = true,
                            .reasoning = reasoning_from_options(o)};
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
                     "the prompt does not fit the context: %d tokens%s, context %d", n_tokens,
                     n_tokens == context ? " and one to generate" : "", context);
}

bool text_may_fit(const Pipeline *p, size_t n_bytes, Error *err) {
    int context = p->options->ctx ? p->options->ctx : p->model.config.max_context;
    size_t n = tokenizer_min_tokens(p->tokenizer, n_bytes);
    return n <= (size_t)context ||
           error_set(err, EXIT_CONTEXT,
                     "the prompt does not fit the context: at least %zu tokens, context %d", n,
                     context);
}

bool request_set_prompt(const Pipeline *p, const Ids *prompt, Request *r, Error *err) {
    r->prompt = prompt->data;
    r->n_prompt = prompt->len;
    r->max_context = context_choose(p, prompt->len, r->max_tokens);
    return context_fits(prompt->len, r->max_tokens != 0, r->max_context, err);
}

bool request_from_options(const Pipeline *p, const Options *o, const Ids *prompt, bool is_plain,
                          Request *r, Error *err) {
    bool is_chat = !is_plain && !p->tpl.is_none;
    int n = is_chat ? -1 : PLAIN_PREDICT;
    if (o->n_predict != INT_MIN) n = o->n_predict;

    *r = (Request){.max_tokens = n,
                   .ignore_eos = o->ignore_eos,
                   .min_tokens = o->min_tokens,
                   .sample = o->sample,
                   .stops = o->stops,
                   .n_stops = o->n_stops,
                   .n_logprobs = o->logprobs};
    r->sample.dry.tokenizer = p->tokenizer;
    if (n >= 0 && o->min_tokens > n)
        return error_set(err, EXIT_USAGE, "min_tokens: expected at most max_tokens, %d, found %d",
                         n, o->min_tokens);
    return request_set_prompt(p, prompt, r, err);
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

// Sets the constraint of the options. Their files have been read.
static void use_option_source(const Options *o, ConstraintSpec *spec) {
    if (o->json_schema)
        spec->schema_text = schema_file.data ? buffer_str(&schema_file) : str_of(o->json_schema);
    if (o->grammar)
        spec->grammar = grammar_file.data ? buffer_str(&grammar_file) : str_of(o->grammar);
    if (o->regex) spec->regex = str_of(o->regex);
    if (o->constraint_choices) spec->choices = list_split(o->constraint_choices, &spec->n_choices);
}

bool constraint_is_requested(const ConstraintSpec *s) {
    return s->schema || s->schema_text.data || s->grammar.data || s->regex.data || s->choices;
}

// Appends the schema of a tool's parameters; NULL: any object. A reference such as "#/$defs/x" is
// relative to the parameters, so they get their own base URI.
static void put_parameters(Buffer *out, const Json *parameters, int i) {
    Buffer text = {0};
    if (parameters)
        json_write_value(&(JsonWriter){.out = &text}, NULL, parameters, NULL);
    else
        buffer_puts(&text, "{\"type\":\"object\"}");

    bool has_references = str_contains(buffer_str(&text), "\"$ref\"");
    if (has_references && parameters->kind == JSON_OBJECT && !json_get(parameters, "$id"))
        buffer_printf(out, "{\"$id\":\"tool:/%d\",%s", i, text.data + 1); // after its brace
    else
        buffer_put(out, buffer_str(&text));
    buffer_free(&text);
}

int tools_put_schema(Buffer *out, const Json *tools, const Str *wanted, const char *key,
                     bool is_list) {
    int n = 0;
    if (is_list) buffer_puts(out, "{\"type\":\"array\",\"minItems\":1,\"items\":");
    buffer_puts(out, "{\"anyOf\":[");

    // {"name": NAME, KEY: PARAMETERS}
    for (const Json *tool = tools ? tools->child : NULL; tool; tool = tool->next) {
        const Json *function = json_get(tool, "function");
        const Json *name = json_get_string(function, "name");
        if (wanted && !str_eq(*wanted, name->string)) continue;

        buffer_puts(out, n ? "," : "");
        buffer_puts(out, "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":");
        json_quote(out, name->string);
        buffer_printf(out, "},\"%s\":", key);
        put_parameters(out, json_get_value(function, "parameters"), n++);
        buffer_printf(out, "},\"required\":[\"name\",\"%s\"],\"additionalProperties\":false}", key);
    }

    buffer_puts(out, is_list ? "]}}" : "]}");
    return n;
}

// Prints a note that is the same for all requests, once.
static void note_once(const Options *o, bool *was_noted, const char *text, const char *why) {
    if (!*was_noted) note(o, "%s%s", text, why);
    *was_noted = true;
}

// Constrains tool calls in a free answer, or bans them. `schema` becomes the source.
static void constrain_calls(const Template *tpl, const Json *tools, bool is_banned,
                            ConstraintSpec *spec, Buffer *schema) {
    const CallForm *form = tpl->call_forms[0];
    spec->n_openers = tpl->n_call_forms;
    for (int i = 0; i < tpl->n_call_forms; i++)
        spec->openers[i] = str_of(tpl->call_forms[i]->opener);
    if (is_banned || !form) return;

    tools_put_schema(schema, tools, NULL, form->key, form->is_list);
    spec->schema_text = buffer_str(schema);
    spec->is_ordered = true; // the name of the tool comes before its parameters
    spec->closer = str_of(form->closer);
    spec->has_more = !form->is_list && !*form->closer;
}

bool constraint_open(const Pipeline *p, const Options *o, ConstraintSpec *spec, Str tools,
                     bool bans_calls, Request *r, ConstraintState **out, Error *err) {
    static bool noted[3];
    const Template *tpl = &p->tpl;
    bool is_own = constraint_is_requested(spec);
    Buffer unknown = {0}, schema = {0};
    JsonDoc doc = {0};
    *out = NULL;

    // Reasoning before the answer.
    Reasoning reasoning = reasoning_from_options(o);
    bool is_known = spec->may_think; // the template knows <think>
    spec->may_think |= reasoning == REASONING_ON;
    spec->no_think = reasoning == REASONING_OFF;
    spec->has_budget = o->reasoning_budget >= 0 || o->reasoning_budget == BUDGET_AUTO;
    spec->budget = o->reasoning_budget;
    if (o->reasoning_message) spec->message = str_of(o->reasoning_message);
    if (spec->no_think) spec->may_think = spec->has_budget = false;

    // The constraint of the request, or else of the options, or else of the offered tools.
    if (!read_constraint_files(o, err)) return false;
    spec->is_ordered = !o->any_order && !spec->is_checked;
    spec->is_closed = !o->extra_properties;
    if (!is_own) use_option_source(o, spec);
    bool has_answer = constraint_is_requested(spec);
    if (has_answer && o->ignore_eos)
        return error_set(err, EXIT_USAGE,
                         "expected either --ignore-eos or a constraint, which ends its text");
    if (!has_answer && tools.len && json_parse(&doc, tools.data, tools.len, &(Error){0}) &&
        doc.root->n_items) {
        constrain_calls(tpl, doc.root, bans_calls, spec, &schema);
        if (!tpl->n_call_forms)
            note_once(o, &noted[0],
                      "tool calls are not enforced: ", "unknown form of the template");
    }

    bool ok = constraint_new(p->constraints, spec, out, is_own ? NULL : &unknown, err);
    if (!ok && !has_answer && spec->n_openers) { // the schemas of the tools
        note_once(o, &noted[0], "tool calls are not enforced: ", err->text);
        spec->n_openers = 0;
        spec->schema_text = (Str){0};
        ok = constraint_new(p->constraints, spec, out, NULL, err);
    }
    if (ok && has_answer && unknown.len)
        note(o, "JSON Schema: ignored unknown keywords: %s", unknown.data);

    if (*out && r) constraint_attach(*out, r);
    if (*out && r && has_answer && constraint_may_think(*out))
        note_once(o, &noted[1], "the constraint begins after the reasoning", "");
    else if (*out && r && has_answer && is_known)
        note_once(o, &noted[2], "the constraint begins with the first token",
                  ", without reasoning");

    if (!is_own) free((void *)spec->choices);
    if (!is_own) spec->choices = NULL;
    json_free(&doc);
    buffer_free(&unknown);
    buffer_free(&schema);
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

// The prefix cache of --cache or $LLAMA31_CACHE, for `chunk` prompt tokens per forward pass. NULL
// without a cache or, with a warning, if it cannot be used.
static PrefixCache *prefix_cache_open(const Pipeline *p, int chunk) {
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
