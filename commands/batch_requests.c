// Requests are read with a message for everything that is wrong; answers are written in the form
// that was asked in. What a field means that the command line knows too, its table of options says.
#include "batch_requests.h"
#include "../cli/constraint_options.h"
#include "../cli/completion.h"
#include "../cli/option_values.h"
#include "../cli/prompt.h"
#include "../cli/request.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STOPS = 64 }; // strings that end an answer; OpenAI takes 4

// Reading values

// A value as messages show it.
static void put_value(Buffer *out, const Json *v) {
    static const char *const kinds[] = {"null", "", "", "", "an array", "an object"};
    if (v && v->kind == JSON_STRING)
        json_put_string(out, "", (Str){v->string.data, v->string.len < 60 ? v->string.len : 60});
    else if (v && v->kind == JSON_NUMBER)
        json_put_number(out, "", v->number);
    else if (v && v->kind == JSON_BOOL)
        buffer_puts(out, v->boolean ? "true" : "false");
    else
        buffer_puts(out, v ? kinds[v->kind] : "nothing");
}

// "NAME: expected X, found Y"; false.
static bool wrong(Error *err, const char *name, const char *expected, const Json *found) {
    Buffer text = {0};
    put_value(&text, found);
    error_set(err, EXIT_RUNTIME, "%s: expected %s, found %s", name, expected, text.data);
    buffer_free(&text);
    return false;
}

static bool is_whole(const Json *j, double min, double max) {
    return j && j->kind == JSON_NUMBER && j->number >= min && j->number <= max &&
           j->number == floor(j->number);
}

static const Json *get(const Json *object, const char *key) { // null is the same as absent
    const Json *j = json_get(object, key);
    return j && j->kind != JSON_NULL ? j : NULL;
}

// An id as it will be written: a string with its quotes, or a whole number. False for anything
// else.
static bool put_id(Buffer *key, const Json *id) {
    if (id && id->kind == JSON_STRING)
        json_put_string(key, "", id->string);
    else if (is_whole(id, -0x1p53, 0x1p53))
        buffer_printf(key, "%.0f", id->number + 0.0); // -0 is 0
    else
        return false;
    return true;
}

bool record_identify(Record *r, const Json *root, Error *err) {
    r->form = FORM_SHORT;
    r->has_id = true;
    if (!root)
        return buffer_printf(&r->key, "%ld", r->line), true; // the number of the line is its name
    if (root->kind != JSON_OBJECT) return wrong(err, "request", "an object", root);
    const Json *custom_id = json_get(root, "custom_id"), *id = get(root, "id");
    if (custom_id || json_get(root, "body") || json_get(root, "url")) {
        r->form = json_is(json_get(root, "url"), "/v1/completions") ? FORM_COMPLETION : FORM_CHAT;
        if (!custom_id || custom_id->kind != JSON_STRING)
            return wrong(err, "custom_id", "a string", custom_id);
        return put_id(&r->key, custom_id);
    }
    if (!id) return buffer_printf(&r->key, "%ld", r->line), true;
    return put_id(&r->key, id) || wrong(err, "id", "a string or a whole number", id);
}

// Options

static const char *const ignored[] = {
    "prompt", "messages",   "id",           "model",          "user",
    "store",  "metadata",   "service_tier", "stream_options", "parallel_tool_calls",
    "tools",  "tool_choice"};
// These would change the answer: only in their neutral values.
static const char *const refused[] = {"n",      "best_of",   "stream",       "echo",
                                      "suffix", "functions", "function_call"};

static bool is_among(Str name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (str_is(name, names[i])) return true;
    return false;
}

// Whether a field says what would be done without it.
static bool is_neutral(const Json *v) {
    return v->kind == JSON_NULL || (v->kind == JSON_BOOL && !v->boolean) ||
           (v->kind == JSON_NUMBER && v->number == 1) || (v->kind == JSON_ARRAY && !v->n_items) ||
           json_is(v, "none") || json_is(json_get(v, "type"), "text");
}

// "stop": they replace those of the command line.
static bool read_stops(Record *r, const Json *v, Error *err) {
    const Json *item = v->kind == JSON_STRING ? v : v->child;
    int n = v->kind == JSON_STRING ? 1 : v->n_items;
    if (v->kind != JSON_STRING && v->kind != JSON_ARRAY)
        return wrong(err, "stop", "a string or an array of them", v);
    if (n > MAX_STOPS)
        return error_set(err, EXIT_RUNTIME, "stop: expected at most %d strings, found %d",
                         MAX_STOPS, n);
    r->options.stops = xalloc((size_t)n, sizeof *r->options.stops);
    r->options.n_stops = 0;
    for (int i = 0; i < n; i++, item = item->next) {
        if (item->kind != JSON_STRING || !item->string.len)
            return wrong(err, "stop", "strings that are not empty", item);
        r->options.stops[r->options.n_stops++] = str_copy(item->string);
    }
    return true;
}

// The key of a "logit_bias" is a token id in a string.
static bool read_biases(Record *r, const Pipeline *e, const Json *v, Error *err) {
    if (v->kind != JSON_OBJECT) return wrong(err, "logit_bias", "an object of numbers", v);
    r->options.biases = NULL;
    r->options.sample.n_bias = 0;
    for (const Json *j = v->child; j; j = j->next) {
        char key[24];
        int64_t id;
        snprintf(key, sizeof key, "%.*s", (int)(j->key.len < sizeof key ? j->key.len : sizeof key),
                 j->key.data);
        if (!parse_i64(key, &id) || id < 0 || id > INT_MAX)
            return error_set(err, EXIT_RUNTIME, "logit_bias: expected token ids, found \"%.*s\"",
                             SHOWN(j->key));
        if (j->kind != JSON_NUMBER || fabs(j->number) > 100)
            return wrong(err, "logit_bias", "numbers from -100 to 100", j);
        float bias = j->number == -100 ? -INFINITY : (float)j->number; // -100 bans
        options_add_bias(&r->options, (LogitBias){(int)id, bias});
    }
    return logit_bias_check(&r->options.sample, e->model.config.vocab_size, err);
}

// "logprobs": a truth value in chats, else a number; "top_logprobs": a number.
static bool read_logprobs(Record *r, const Json *v, Error *err) {
    bool is_top = str_is(v->key, "top_logprobs"), is_number = is_top || r->form != FORM_CHAT;
    if (is_number && is_whole(v, 0, MAX_LOGPROBS))
        r->n_top = (int)v->number;
    else if (is_top || v->kind != JSON_BOOL)
        return wrong(err, is_top ? "top_logprobs" : "logprobs",
                     is_number ? "a whole number from 0 to 100" : "true or false", v);
    else if (v->boolean && r->n_top < 0)
        r->n_top = 0;
    return true;
}

// A field that is an option of the command line too, under the same name or another.
static const Option *find_option(const Options *o, Str key) {
    static const char *const others[][2] = {{"max_tokens", "n_predict"},
                                            {"max_completion_tokens", "n_predict"},
                                            {"repetition_penalty", "repeat_penalty"}};
    char name[40] = "--";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (str_is(key, others[i][0])) key = str_of(others[i][1]);
    for (size_t i = 0; i < key.len && i < sizeof name - 3; i++)
        name[2 + i] = key.data[i] == '_' ? '-' : key.data[i];
    return option_find(o, CMD_REQUEST, name, NULL);
}

// A field that the table of options knows.
static bool read_option(Record *r, const Option *option, const Json *v, Error *err) {
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)v->key.len, v->key.data);
    if (v->kind == JSON_NUMBER) return option_set_number(&r->options, option, name, v->number, err);
    if (v->kind == JSON_BOOL) return option_set_flag(&r->options, option, name, v->boolean, err);
    return wrong(err, name, "a number or a truth value", v);
}

// {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": {...}}}.
static bool read_format(Record *r, const Json *v, Error *err) {
    const Json *type = json_get(v, "type"),
               *schema = json_get(json_get(v, "json_schema"), "schema");
    if (json_is(type, "text")) return true;
    if (json_is(type, "json_object"))
        return r->wish.schema_text = str_of("{\"type\":\"object\"}"), true;
    if (!json_is(type, "json_schema"))
        return wrong(err, "response_format", "text, json_object or json_schema", type);
    if (!schema)
        return wrong(err, "response_format", "a \"schema\" in its \"json_schema\"", schema);
    r->wish.schema = schema;
    return true;
}

static bool read_choices(Record *r, const Json *v, Error *err) {
    if (v->kind != JSON_ARRAY || !v->n_items)
        return wrong(err, "choices", "an array of strings", v);
    Str *choices = xalloc((size_t)v->n_items, sizeof *choices);
    r->wish.choices = choices;
    for (const Json *item = v->child; item; item = item->next) {
        if (item->kind != JSON_STRING) return wrong(err, "choices", "an array of strings", item);
        choices[r->wish.n_choices++] = item->string;
    }
    return true;
}

static bool read_string(Str *out, const Json *v, Error *err) {
    if (v->kind != JSON_STRING)
        return error_set(err, EXIT_RUNTIME, "%.*s: expected a string", SHOWN(v->key));
    *out = v->string;
    return true;
}

// What the text is to be; *is_one: the field says that.
static bool read_wish(Record *r, const Json *v, bool *is_one, Error *err) {
    bool is_schema = str_is(v->key, "json_schema"), is_grammar = str_is(v->key, "grammar");
    bool is_choices = str_is(v->key, "choices"), is_format = str_is(v->key, "response_format");
    *is_one = is_schema || is_grammar || is_choices || is_format || str_is(v->key, "regex");
    if (!*is_one || v->kind == JSON_NULL) return true;
    if (is_format) return read_format(r, v, err);
    if (is_choices) return read_choices(r, v, err);
    if (is_schema && v->kind != JSON_STRING) return r->wish.schema = v, true;
    return read_string(is_schema    ? &r->wish.schema_text
                       : is_grammar ? &r->wish.grammar
                                    : &r->wish.regex,
                       v, err);
}

// The constraint of the request, or the command line's.
static bool find_guide(Record *r, const Pipeline *e, Error *err) {
    ConstraintSpec *w = &r->wish;
    w->is_ordered = r->options.is_ordered_json, w->may_think = r->options.may_think;
    bool ok = constraint_new(e->constraints, w, &r->constraint, NULL, err);
    if (ok && !r->constraint)
        ok = constraint_from_options(e->constraints, &r->options, &r->constraint, err);
    if (ok && r->constraint && r->options.ignore_eos)
        ok = error_set(err, EXIT_RUNTIME,
                       "expected either ignore_eos or a constraint, which ends its text");
    if (r->constraint) constraint_attach(r->constraint, &r->request);
    free((void *)w->choices);
    *w = (ConstraintSpec){0};
    buffer_free(&r->call);
    return ok;
}

// Unknown ones are passed over, unless --strict.
static bool read_field(Record *r, const Pipeline *e, const Json *v, Error *err) {
    const Option *option = find_option(&r->options, v->key);
    bool is_null = v->kind == JSON_NULL, is_wish; // null is the same as absent
    if (!read_wish(r, v, &is_wish, err)) return false;
    if (is_wish) return true;
    if (option) return is_null || read_option(r, option, v, err);
    if (str_is(v->key, "stop")) return is_null || read_stops(r, v, err);
    if (str_is(v->key, "n")) {
        if (!is_null && !is_whole(v, 1, MAX_CHOICES))
            return wrong(err, "n", "a whole number from 1 to 64", v);
        if (!is_null) r->n_choices = r->n_open = (int)v->number;
        return true;
    }
    if (str_is(v->key, "logit_bias")) return is_null || read_biases(r, e, v, err);
    if (str_is(v->key, "logprobs") || str_is(v->key, "top_logprobs"))
        return is_null || read_logprobs(r, v, err);
    if (is_among(v->key, refused, sizeof refused / sizeof *refused))
        return is_neutral(v) ||
               error_set(err, EXIT_RUNTIME, "%.*s: not supported with this value", SHOWN(v->key));
    return !r->options.is_strict || is_among(v->key, ignored, sizeof ignored / sizeof *ignored) ||
           error_set(err, EXIT_RUNTIME, "unknown field \"%.*s\"", SHOWN(v->key));
}

// All fields of a request; prompts are read when all options are known.
static bool read_options(Record *r, const Pipeline *e, const Json *body, Error *err) {
    for (const Json *v = body->child; v; v = v->next)
        if (!read_field(r, e, v, err)) return false;
    if (r->form == FORM_CHAT && get(body, "top_logprobs") &&
        (!get(body, "logprobs") || !get(body, "logprobs")->boolean))
        return error_set(err, EXIT_RUNTIME, "top_logprobs: expected \"logprobs\": true beside it");
    return true;
}

// Prompts

// A call must be made, of any tool or of the one named: its text is that of Llama 3.1's JSON form,
// which every template with tools is read in.
static bool force_call(Record *r, const Json *tools, const Json *choice, Error *err) {
    const Json *name = json_get_string(json_get(choice, "function"), "name");
    ConstraintSpec *w = &r->wish;
    int n = 0;
    if (!name && !json_is(choice, "required"))
        return wrong(err, "tool_choice", "\"auto\", \"none\", \"required\" or a function's name",
                     choice);
    if (w->schema || w->schema_text.data || w->grammar.data || w->regex.data || w->choices)
        return error_set(err, EXIT_RUNTIME,
                         "tool_choice: expected no other constraint of the text beside it");
    for (const Json *tool = tools ? tools->child : NULL; tool; tool = tool->next) {
        const Json *f = json_get(tool, "function"), *parameters = get(f, "parameters");
        Str called = json_get_string(f, "name")->string;
        if (name && !str_eq(name->string, called)) continue;
        json_put_string(
            &r->call,
            n++ ? ",{\"type\":\"object\",\"properties\":{\"name\":{\"const\":"
                : "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":",
            called);
        buffer_puts(&r->call, "},\"parameters\":");
        if (parameters)
            json_put_value(&r->call, parameters, NULL);
        else
            buffer_puts(&r->call, "{\"type\":\"object\"}");
        buffer_puts(&r->call,
                    "},\"required\":[\"name\",\"parameters\"],\"additionalProperties\":false}");
    }
    buffer_puts(&r->call, "]}");
    w->schema_text = buffer_str(&r->call);
    r->options.is_ordered_json = true; // which tool it is comes before its parameters
    return n || error_set(err, EXIT_RUNTIME,
                          "tool_choice: expected one of the request's tools, found none such");
}

// The tools of a request, or of the command line, unless it wants none. False with err.
static bool read_tools(Record *r, const Pipeline *e, const Json *body, Buffer *out, Error *err) {
    const Json *tools = get(body, "tools"), *choice = get(body, "tool_choice");
    bool is_forced = choice && !json_is(choice, "auto") && !json_is(choice, "none");
    if (tools && !tools_check(tools, &e->tpl, err)) return false;
    if (is_forced && !force_call(r, tools, choice, err)) return false;
    if (choice && json_is(choice, "none")) return true;
    if (tools && tools->n_items)
        json_put_value(out, tools, NULL);
    else if (!tools && e->tools.data)
        buffer_put(out, e->tools);
    r->has_tools = out->len;
    return true;
}

static bool read_messages(Record *r, const Pipeline *e, const Json *body, Error *err) {
    const Json *v = get(body, "messages");
    if (v->kind != JSON_ARRAY) return wrong(err, "messages", "an array of messages", v);
    if (!v->n_items) return error_set(err, EXIT_RUNTIME, "messages: expected at least one");
    if (e->tpl.is_none)
        return error_set(err, EXIT_RUNTIME,
                         "messages: the model has no chat template; choose one with --template");
    Message *messages = xrealloc(NULL, (size_t)v->n_items + 1, sizeof *messages);
    Buffer tools = {0};
    bool is_good = read_tools(r, e, body, &tools, err);
    int n = 0, i = 0;
    if (e->system.data && !json_is(json_get(v->child, "role"), "system"))
        messages[n++] = message_make(str_of("system"), e->system);
    for (const Json *m = v->child; m && is_good; m = m->next, i++) {
        Error why;
        is_good = message_read(m, &messages[n], &why);
        n += is_good;
        if (is_good && messages[n - 1].has_calls && !e->tpl.takes_calls)
            is_good =
                error_set(&why, EXIT_RUNTIME,
                          "tool_calls: the chat template %s has no place for them", e->tpl.name);
        if (!is_good) error_set(err, EXIT_RUNTIME, "messages[%d]: %s", i, why.text);
    }
    TemplateInput in = {
        .messages = messages, .n_messages = n, .tools = buffer_str(&tools), .wants_answer = true};
    is_good = is_good && template_encode(&e->tpl, e->tokenizer, &in, &r->prompt, err);
    while (n--) message_free(&messages[n]);
    free(messages);
    buffer_free(&tools);
    return is_good;
}

// A string, an array with one string, or token ids.
static bool read_prompt(Record *r, const Pipeline *e, const Json *v, bool is_chat, Error *err) {
    if (v->kind == JSON_ARRAY && v->n_items == 1 && v->child->kind != JSON_NUMBER) v = v->child;
    r->is_plain = !is_chat || v->kind != JSON_STRING;
    r->has_tools = !r->is_plain && e->tools.data;
    if (v->kind == JSON_STRING) return prompt_encode(e, v->string, !is_chat, &r->prompt, err);
    if (v->kind != JSON_ARRAY || !v->n_items)
        return wrong(err, "prompt", "a string or an array of token ids", v);
    for (const Json *j = v->child; j; j = j->next) {
        if (!is_whole(j, 0, e->model.config.vocab_size - 1))
            return wrong(err, "prompt", "token ids of the vocabulary", j);
        ids_push(&r->prompt, (int)j->number);
    }
    return true;
}

// A hash that is the same everywhere and at all times: FNV-1a, and MurmurHash3's last step to
// spread it.
static uint64_t hash(uint64_t seed, const Buffer *text) {
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < text->len; i++) h = (h ^ (unsigned char)text->data[i]) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

// What the options of a request and of the command line make of its prompt.
static bool complete(Record *r, const Pipeline *e, bool is_plain, Error *err) {
    if (r->prompt.len == 0) return error_set(err, EXIT_RUNTIME, "the prompt is empty");
    if (!r->options.has_seed) // survives any reader of JSON
        r->options.sample.seed = (uint32_t)hash(r->common->sample.seed, &r->key);
    r->options.logprobs = r->n_top < 0 ? 0 : r->n_top + !r->n_top;
    return request_from_options(e, &r->options, &r->prompt, is_plain, &r->request, err) &&
           find_guide(r, e, err);
}

bool record_take_text(Record *r, const Pipeline *e, Str line, Error *err) {
    bool is_plain = r->options.is_raw; // as `run` would take it
    r->is_plain = is_plain, r->has_tools = !is_plain && e->tools.data;
    return prompt_encode(e, line, is_plain, &r->prompt, err) && complete(r, e, is_plain, err);
}

// The body of an OpenAI request, or NULL with err.
static const Json *openai_body(const Record *r, const Json *root, Error *err) {
    const Json *method = json_get(root, "method"), *url = json_get(root, "url"),
               *body = json_get(root, "body");
    if (!json_is(method, "POST")) return wrong(err, "method", "\"POST\"", method), NULL;
    if (r->form == FORM_CHAT && !json_is(url, "/v1/chat/completions"))
        return wrong(err, "url", "\"/v1/chat/completions\" or \"/v1/completions\"", url), NULL;
    if (!body || body->kind != JSON_OBJECT) return wrong(err, "body", "an object", body), NULL;
    return body;
}

bool record_parse(Record *r, const Pipeline *e, const Json *root, Error *err) {
    const Json *body = r->form == FORM_SHORT ? root : openai_body(r, root, err);
    if (!body || !read_options(r, e, body, err)) return false;
    const Json *prompt = get(body, "prompt"), *messages = get(body, "messages");
    if (r->form == FORM_CHAT && !messages)
        return wrong(err, "messages", "an array of messages", NULL);
    if (r->form == FORM_COMPLETION && !prompt) return wrong(err, "prompt", "a string", NULL);
    if (!prompt == !messages)
        return error_set(err, EXIT_RUNTIME, "expected either \"prompt\" or \"messages\"");
    if (prompt && get(body, "tools") && !is_neutral(get(body, "tools")))
        return error_set(err, EXIT_RUNTIME, "tools: expected \"messages\" beside it");
    bool is_chat =
        messages || (r->form == FORM_SHORT && !r->options.is_raw); // as `run` would take it
    return (prompt ? read_prompt(r, e, prompt, is_chat, err) : read_messages(r, e, body, err)) &&
           complete(r, e, !is_chat, err);
}

// Answers

// The beginning of every line of output: who it answers. A request without an id has null.
static void put_head(Record *r) {
    if (r->form == FORM_SHORT)
        buffer_puts(&r->answer, RESULT_HEAD);
    else
        buffer_printf(&r->answer, RESULT_HEAD "\"batch_req_%ld\",\"custom_id\":", r->line);
    buffer_puts(&r->answer, r->has_id ? r->key.data : "null");
}

// An object of the n_top best; tokens that read the same (broken UTF-8) appear once, with the best.
static void put_top_object(Buffer *out, const Tokenizer *t, const Record *r,
                           const TokenLogprob *l) {
    size_t start = out->len;
    Buffer name = {0};
    buffer_puts(out, r->n_top ? "" : "{");
    for (int k = 0; k < r->n_top; k++) {
        name.len = 0;
        json_put_string(&name, ",", tokenizer_piece(t, l->top[k].id, true));
        buffer_puts(&name, ":");
        if (!strstr(out->data + start, name.data))
            json_put_number(out, name.data, (double)l->top[k].logprob);
    }
    out->data[start] = '{'; // was the first comma
    buffer_puts(out, "}");
    buffer_free(&name);
}

// As OpenAI's older interface has them: a list for each property.
static void put_completion_logprobs(Buffer *out, const Tokenizer *t, const Record *r) {
    const TokenLogprob *l = r->sequence.logprobs;
    int n = r->sequence.n_generated;
    size_t offset = 0;
    buffer_puts(out, "{\"tokens\":[");
    for (int i = 0; i < n; i++)
        json_put_string(out, i ? "," : "", tokenizer_piece(t, l[i].id, true));
    buffer_puts(out, "],\"token_logprobs\":[");
    for (int i = 0; i < n; i++) json_put_number(out, i ? "," : "", (double)l[i].logprob);
    buffer_puts(out, "],\"top_logprobs\":[");
    for (int i = 0; i < n; i++) {
        buffer_puts(out, i ? "," : "");
        put_top_object(out, t, r, &l[i]);
    }
    buffer_puts(out, "],\"text_offset\":[");
    for (int i = 0; i < n; i++) {
        buffer_printf(out, "%s%zu", i ? "," : "", offset);
        offset += tokenizer_piece(t, l[i].id, false).len;
    }
    buffer_puts(out, "]}");
}

static void put_openai_choice(Record *r, const Pipeline *e, const Reply *reply, Buffer *out) {
    const Sequence *s = &r->sequence;
    bool is_chat = r->form == FORM_CHAT;
    buffer_printf(out, "{\"index\":%d,", r->index);
    json_put_string(out, is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":",
                    reply->content);
    if (is_chat) reply_write_extras(&(JsonWriter){out, true}, reply);
    buffer_printf(out, "%s,\"logprobs\":", is_chat ? ",\"refusal\":null}" : "");
    if (r->n_top < 0) {
        buffer_puts(out, "null");
    } else if (is_chat) {
        buffer_puts(out, "{\"content\":");
        completion_write_logprobs(&(JsonWriter){.out = out}, NULL, e->tokenizer, s, r->n_top, true);
        buffer_puts(out, ",\"refusal\":null}");
    } else {
        put_completion_logprobs(out, e->tokenizer, r);
    }
    buffer_printf(out, ",\"finish_reason\":\"%s\"", completion_finish_reason(reply, s));
    if (r->first || r->n_choices > 1)
        buffer_printf(out, ",\"seed\":%lld", (long long)s->request.sample.seed);
    buffer_puts(out, "}");
}

static void put_openai(Record *r, const Pipeline *e) {
    Buffer *out = &r->answer;
    const char *slash = strrchr(e->model.file.path, '/'),
               *model = slash ? slash + 1 : e->model.file.path;
    bool is_chat = r->form == FORM_CHAT;
    buffer_printf(
        out,
        ",\"response\":{\"status_code\":200,\"request_id\":\"req_%ld\",\"body\":{\"id\":\"%s-%ld\","
        "\"object\":\"%s\",\"created\":%lld",
        r->line, is_chat ? "chatcmpl" : "cmpl", r->line,
        is_chat ? "chat.completion" : "text_completion", (long long)time(NULL));
    json_put_string(out, ",\"model\":", str_of(model));
    for (int i = 0; i < r->n_choices; i++) {
        buffer_puts(out, i ? "," : ",\"choices\":[");
        buffer_put(out, buffer_str(&r->choices[i]));
    }
    buffer_printf(out,
                  "],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}"
                  "},\"error\":null}\n",
                  r->prompt.len, r->n_answered, r->prompt.len + r->n_answered);
}

// The members of an answer in the short form, without the braces.
static void put_short_choice(Record *r, const Pipeline *e, const Reply *reply, Buffer *out) {
    const Sequence *s = &r->sequence;
    JsonWriter w = {.out = out};
    completion_write(&w, "text", reply, s, r->prompt.len);
    if (r->n_top < 0) return;
    completion_write_logprobs(&w, "logprobs", e->tokenizer, s, s->request.n_logprobs, false);
}

static void put_short(Record *r) {
    Buffer *out = &r->answer;
    bool is_one = r->n_choices == 1;
    buffer_puts(out, is_one ? "," : ",\"choices\":[");
    for (int i = 0; i < r->n_choices; i++) {
        buffer_puts(out, is_one ? "" : i ? ",{" : "{");
        buffer_put(out, buffer_str(&r->choices[i]));
        buffer_puts(out, is_one ? "" : "}");
    }
    buffer_puts(out, is_one ? "}\n" : "]}\n");
}

// One choice less is to come; true if it was the last.
static bool close_choice(Record *r) {
    Record *first = r->first ? r->first : r;
    r->state = RECORD_DONE;
    first->state =
        --first->n_open ? first->state == RECORD_DONE ? RECORD_OPEN : first->state : RECORD_DONE;
    return !first->n_open;
}

void record_answer(Record *r, const Pipeline *e) {
    Record *first = r->first ? r->first : r;
    Reply reply;
    if (r->sequence.finish == FINISH_ERROR) {
        record_fail(r, "generation_failed", r->sequence.error.text);
        return;
    }
    completion_parse(&reply, r->is_plain ? NULL : &e->tpl, e->tokenizer, &r->sequence, r->has_tools,
                     0);
    (r->form == FORM_SHORT ? put_short_choice : put_openai_choice)(r, e, &reply,
                                                                   &first->choices[r->index]);
    reply_free(&reply);
    first->n_answered += r->sequence.n_generated;
    if (!close_choice(r) || first->has_failed) return;
    put_head(first);
    if (first->form == FORM_SHORT)
        put_short(first);
    else
        put_openai(first, e);
}

Record *record_choice(Record *r, int index) {
    Record *c = xalloc(1, sizeof *c);
    Buffer key = {0};
    buffer_printf(&key, "%d", index);
    *c = (Record){.line = r->line,
                  .form = r->form,
                  .common = r->common,
                  .options = r->options,
                  .n_top = r->n_top};
    c->request = r->request;
    c->is_plain = r->is_plain, c->has_tools = r->has_tools;
    c->first = r, c->index = index;
    for (int i = 0; i < r->prompt.len; i++) ids_push(&c->prompt, r->prompt.data[i]);
    c->request.prompt = c->prompt.data;
    c->constraint = r->constraint ? constraint_clone(r->constraint) : NULL;
    if (c->constraint) constraint_attach(c->constraint, &c->request);
    c->request.sample.seed = (uint32_t)hash(r->request.sample.seed, &key);
    buffer_free(&key);
    return c;
}

void record_fail(Record *r, const char *code, const char *message) {
    Buffer *out, text = {0};
    close_choice(r);
    if (r->first) r = r->first;
    if (r->has_failed) return; // another choice has failed before
    out = &r->answer;
    r->has_failed = true;
    put_head(r);
    if (r->form == FORM_SHORT)
        buffer_printf(out, ",\"line\":%ld", r->line);
    else
        buffer_puts(out, ",\"response\":null");
    buffer_printf(out, ",\"error\":{\"code\":\"%s\"", code);
    buffer_printf(&text, "line %ld: %s", r->line, message);
    json_put_string(out, ",\"message\":", buffer_str(&text));
    buffer_puts(out, "}}\n");
    buffer_free(&text);
}

void record_free(Record *r) {
    if (r->state == RECORD_ACTIVE) sequence_free(&r->sequence);
    session_free(r->session);
    constraint_free(r->constraint);
    free((void *)r->wish.choices);
    buffer_free(&r->call);
    bool owns_stops = !r->first && r->options.stops != r->common->stops;
    for (int i = 0; owns_stops && i < r->options.n_stops; i++)
        free((char *)r->options.stops[i].data);
    if (owns_stops) free(r->options.stops);
    if (!r->first && r->options.biases != r->common->biases) free(r->options.biases);
    buffer_free(&r->key);
    free(r->prompt.data);
    buffer_free(&r->answer);
    for (int i = 0; i < r->n_choices; i++) buffer_free(&r->choices[i]);
    free(r);
}

// A file's metadata, and the beginning of every tensor.
static void put_file(Buffer *out, const Gguf *g) {
    for (int i = 0; i < g->n_values; i++) {
        buffer_put(out, g->values[i].key);
        buffer_append(out, g->values[i].data, g->values[i].bytes);
    }
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        buffer_put(out, t->name);
        buffer_printf(out, "|%d|%zu|", (int)t->type, t->bytes);
        buffer_append(out, t->data, t->bytes < 64 ? t->bytes : 64);
    }
}

void fingerprint_put(Buffer *out, const Options *o, const Pipeline *e) {
    const ModelOptions *m = &o->model_options;
    Options unseeded = *o;
    Buffer all = {0};
    unseeded.sample.seed = 0;
    options_put_settings(&unseeded, &all);
    buffer_printf(&all, "|%d|%s|%d|%d|%s|%s|%g|%g|%d|", o->ctx,
                  o->template_name ? o->template_name : "", o->is_raw, o->ignore_eos,
                  m->kv_type ? m->kv_type : "", m->rope_rule ? m->rope_rule : "", m->rope_theta,
                  m->rope_scale, m->rope_orig_ctx);
    buffer_put(&all, e->system);
    for (int i = 0; i < o->n_stops; i++) buffer_put(&all, o->stops[i]), buffer_puts(&all, "|");
    for (int i = 0; i < o->sample.n_bias; i++)
        buffer_printf(&all, "%d%+g|", o->sample.bias[i].id, (double)o->sample.bias[i].bias);
    put_file(&all, &e->model.file);
    for (int i = 0; i < e->model.n_adapters; i++) {
        buffer_printf(&all, "|lora %a|", e->model.adapters[i].scale);
        put_file(&all, &e->model.adapters[i].file);
    }
    buffer_printf(out, "fp_%016llx_%llu", (unsigned long long)hash(0, &all),
                  (unsigned long long)o->sample.seed);
    buffer_free(&all);
}

bool result_key(const Json *root, Buffer *key, ResultKind *kind) {
    static const char prefix[] = "batch_req_";
    const Json *custom_id = json_get(root, "custom_id"), *id = json_get(root, "id"),
               *line = json_get(root, "line");
    const Json *error = get(root, "error"), *code = json_get(error, "code");
    bool is_passing = json_is(code, "out_of_memory") || json_is(code, "generation_failed");
    *kind = !error ? RESULT_ANSWER : is_passing ? RESULT_AGAIN : RESULT_ERROR;
    key->len = 0;
    if (put_id(key, custom_id ? custom_id : id)) return true;
    if (!custom_id) { // an error about a line
        if (is_whole(line, 1, 0x1p53)) return buffer_printf(key, "line %.0f", line->number), true;
    } else if (id && id->kind == JSON_STRING && id->string.len >= sizeof prefix &&
               !memcmp(id->string.data, prefix, sizeof prefix - 1)) {
        size_t n = id->string.len - (sizeof prefix - 1);
        return buffer_printf(key, "line %.*s", (int)(n < 20 ? n : 20),
                             id->string.data + sizeof prefix - 1),
               true;
    }
    return false;
}
