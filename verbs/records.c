#include "records.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOP = 100, MAX_STOPS = 64 };

uint64_t hash_bytes(uint64_t seed, Str text) { // FNV-1a, and MurmurHash3's last step to spread it
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.len; i++) h = (h ^ (unsigned char)text.data[i]) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

static char *copy_bytes(char first, const char *text, size_t n) {
    char *copy = xrealloc(NULL, n + 2, 1);
    copy[0] = first;
    if (n) memcpy(copy + 1, text, n);
    copy[n + 1] = 0;
    return copy;
}

static Str make_key(char kind, const char *text, size_t n) { return (Str){copy_bytes(kind, text, n), n + 1}; }

void record_set_key(Record *r, char kind, const char *text, size_t n) {
    free((char *)r->key.data);
    r->key = make_key(kind, text, n);
}

// Reading values

static bool wrong(Error *err, const char *name, const char *expected, const Json *found) {
    static const char *const kinds[] = {"null", "a truth value", "a number", "a string", "an array", "an object"};
    if (!found) return error_set(err, EXIT_RUNTIME, "%s: expected %s, found nothing", name, expected);
    if (found->kind == JSON_NUMBER)
        return error_set(err, EXIT_RUNTIME, "%s: expected %s, found %g", name, expected, found->number);
    if (found->kind == JSON_STRING)
        return error_set(err, EXIT_RUNTIME, "%s: expected %s, found \"%.*s\"", name, expected,
                         (int)(found->string.len < 40 ? found->string.len : 40), found->string.data);
    return error_set(err, EXIT_RUNTIME, "%s: expected %s, found %s", name, expected, kinds[found->kind]);
}

static bool is_whole(const Json *j, double min, double max) {
    return j && j->kind == JSON_NUMBER && j->number >= min && j->number <= max && j->number == floor(j->number);
}

static const Json *get(const Json *object, const char *key) { // null is the same as absent
    const Json *j = json_get(object, key);
    return j && j->kind != JSON_NULL ? j : NULL;
}

static bool set_id(Record *r, const char *name, const Json *id, Error *err) {
    char number[32];
    if (id->kind == JSON_STRING) {
        record_set_key(r, 's', id->string.data, id->string.len);
    } else if (is_whole(id, -0x1p53, 0x1p53)) {
        record_set_key(r, 'n', number, (size_t)snprintf(number, sizeof number, "%.0f", id->number + 0.0));
    } else {
        return wrong(err, name, "a string or a whole number", id);
    }
    return true;
}

bool record_identify(Record *r, const Json *root, Error *err) {
    if (root->kind != JSON_OBJECT) return wrong(err, "request", "an object", root);
    const Json *custom_id = json_get(root, "custom_id"), *id = get(root, "id");
    if (custom_id || json_get(root, "body") || json_get(root, "url")) {
        const Json *url = json_get(root, "url");
        r->form =
            url && url->kind == JSON_STRING && str_is(url->string, "/v1/completions") ? FORM_COMPLETION : FORM_CHAT;
        if (!custom_id || custom_id->kind != JSON_STRING) return wrong(err, "custom_id", "a string", custom_id);
        return set_id(r, "custom_id", custom_id, err);
    }
    r->form = FORM_SHORT;
    if (id) return set_id(r, "id", id, err);
    char number[32]; // the number of the line is its name
    record_set_key(r, 'n', number, (size_t)snprintf(number, sizeof number, "%ld", r->line));
    return true;
}

// Options

typedef enum {
    FIELD_FLOAT,
    FIELD_INT,
    FIELD_BOOL,
    FIELD_SEED,
    FIELD_STOP,
    FIELD_BIAS,
    FIELD_LOGPROBS,
    FIELD_TOP,
    FIELD_INPUT,
    FIELD_FREE,
    FIELD_REFUSED
} FieldKind;

typedef struct {
    const char *name;
    FieldKind kind;
    size_t offset; // into Record
    double min, max;
} Field;

#define AT(field) offsetof(Record, field)

static const Field fields[] = {
    {"max_tokens", FIELD_INT, AT(n_predict), -1, 1e9},
    {"max_completion_tokens", FIELD_INT, AT(n_predict), -1, 1e9},
    {"n_predict", FIELD_INT, AT(n_predict), -1, 1e9},
    {"temperature", FIELD_FLOAT, AT(sample.temp), 0, 100},
    {"top_p", FIELD_FLOAT, AT(sample.top_p), 0, 1},
    {"top_k", FIELD_INT, AT(sample.top_k), -1, 1e9},
    {"min_p", FIELD_FLOAT, AT(sample.min_p), 0, 1},
    {"repeat_penalty", FIELD_FLOAT, AT(sample.repeat_penalty), 0.01, 100},
    {"repetition_penalty", FIELD_FLOAT, AT(sample.repeat_penalty), 0.01, 100},
    {"repeat_last_n", FIELD_INT, AT(sample.repeat_last_n), -1, 1e9},
    {"presence_penalty", FIELD_FLOAT, AT(sample.presence_penalty), -100, 100},
    {"frequency_penalty", FIELD_FLOAT, AT(sample.frequency_penalty), -100, 100},
    {"ignore_eos", FIELD_BOOL, AT(ignore_eos), 0, 0},
    {"seed", FIELD_SEED, AT(sample.seed), -0x1p53, 0x1p53},
    {"stop", FIELD_STOP, 0, 0, 0},
    {"logit_bias", FIELD_BIAS, 0, 0, 0},
    {"logprobs", FIELD_LOGPROBS, 0, 0, 0},
    {"top_logprobs", FIELD_TOP, 0, 0, MAX_TOP},
    {"prompt", FIELD_INPUT, 0, 0, 0},
    {"messages", FIELD_INPUT, 0, 0, 0},
    // of no consequence here
    {"id", FIELD_FREE, 0, 0, 0},
    {"model", FIELD_FREE, 0, 0, 0},
    {"user", FIELD_FREE, 0, 0, 0},
    {"metadata", FIELD_FREE, 0, 0, 0},
    {"store", FIELD_FREE, 0, 0, 0},
    {"service_tier", FIELD_FREE, 0, 0, 0},
    {"stream_options", FIELD_FREE, 0, 0, 0},
    {"parallel_tool_calls", FIELD_FREE, 0, 0, 0},
    // would change the answer: only in their neutral values
    {"n", FIELD_REFUSED, 0, 0, 0},
    {"best_of", FIELD_REFUSED, 0, 0, 0},
    {"stream", FIELD_REFUSED, 0, 0, 0},
    {"echo", FIELD_REFUSED, 0, 0, 0},
    {"suffix", FIELD_REFUSED, 0, 0, 0},
    {"tools", FIELD_REFUSED, 0, 0, 0},
    {"tool_choice", FIELD_REFUSED, 0, 0, 0},
    {"functions", FIELD_REFUSED, 0, 0, 0},
    {"function_call", FIELD_REFUSED, 0, 0, 0},
    {"response_format", FIELD_REFUSED, 0, 0, 0},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static bool is_neutral(const Json *v) {
    const Json *type = json_get(v, "type");
    return v->kind == JSON_NULL || (v->kind == JSON_BOOL && !v->boolean) ||
           (v->kind == JSON_NUMBER && v->number == 1) || (v->kind == JSON_ARRAY && !v->n_items) ||
           (v->kind == JSON_STRING && str_is(v->string, "none")) ||
           (type && type->kind == JSON_STRING && str_is(type->string, "text"));
}

static bool read_stops(Record *r, const Json *v, Error *err) {
    const Json *item = v->kind == JSON_STRING ? v : v->child;
    int n = v->kind == JSON_STRING ? 1 : v->n_items;
    if (v->kind != JSON_STRING && v->kind != JSON_ARRAY) return wrong(err, "stop", "a string or an array of them", v);
    if (n > MAX_STOPS) return error_set(err, EXIT_RUNTIME, "stop: expected at most %d strings, found %d", MAX_STOPS, n);
    r->stops = xrealloc(NULL, (size_t)n, sizeof *r->stops);
    r->n_stops = 0;
    r->owns_stops = true;
    for (int i = 0; i < n; i++, item = item->next) {
        if (item->kind != JSON_STRING || !item->string.len)
            return wrong(err, "stop", "strings that are not empty", item);
        char *copy = copy_bytes(0, item->string.data, item->string.len);
        r->stops[r->n_stops++] = (Str){copy + 1, item->string.len};
    }
    return true;
}

static bool read_biases(Record *r, const RecordContext *c, const Json *v, Error *err) {
    if (v->kind != JSON_OBJECT) return wrong(err, "logit_bias", "an object of numbers", v);
    r->biases = xrealloc(NULL, (size_t)v->n_items, sizeof *r->biases);
    r->sample.bias = r->biases;
    r->sample.n_bias = 0;
    for (const Json *j = v->child; j; j = j->next) {
        char name[16] = "";
        int64_t id;
        if (j->key.len && j->key.len < sizeof name) memcpy(name, j->key.data, j->key.len);
        if (!parse_i64(name, &id) || id < 0 || id >= c->model->config.vocab_size)
            return error_set(err, EXIT_RUNTIME, "logit_bias: expected token ids below %d, found \"%.*s\"",
                             c->model->config.vocab_size, j->key.len < 40 ? (int)j->key.len : 40, j->key.data);
        if (j->kind != JSON_NUMBER || fabs(j->number) > 100)
            return wrong(err, "logit_bias", "numbers from -100 to 100", j);
        // -100 is how the API spells a ban
        float bias = j->number == -100 ? -INFINITY : (float)j->number;
        r->biases[r->sample.n_bias++] = (LogitBias){(int)id, bias};
    }
    return true;
}

static bool read_field(Record *r, const RecordContext *c, const Field *f, const Json *v, Error *err) {
    char expected[64];
    bool is_number = v->kind == JSON_NUMBER && v->number >= f->min && v->number <= f->max;
    snprintf(expected, sizeof expected, "a%s number from %g to %g", f->kind == FIELD_FLOAT ? "" : " whole", f->min,
             f->max);
    void *at = (char *)r + f->offset;
    switch (f->kind) {
    case FIELD_FLOAT:
        if (!is_number) return wrong(err, f->name, expected, v);
        *(float *)at = (float)v->number;
        return true;
    case FIELD_INT:
        if (!is_whole(v, f->min, f->max)) return wrong(err, f->name, expected, v);
        *(int *)at = (int)v->number;
        return true;
    case FIELD_SEED:
        if (!is_whole(v, f->min, f->max)) return wrong(err, f->name, expected, v);
        if (v->number != -1) *(uint64_t *)at = (uint64_t)(int64_t)v->number;
        return true;
    case FIELD_BOOL:
        if (v->kind != JSON_BOOL) return wrong(err, f->name, "true or false", v);
        *(bool *)at = v->boolean;
        return true;
    case FIELD_LOGPROBS: // a truth value in chats, else a number
        if (r->form != FORM_CHAT && v->kind == JSON_NUMBER ? !is_whole(v, 0, MAX_TOP) : v->kind != JSON_BOOL)
            return wrong(err, f->name, r->form == FORM_CHAT ? "true or false" : "a whole number from 0 to 100", v);
        if (v->kind == JSON_NUMBER)
            r->n_top = (int)v->number;
        else if (v->boolean && r->n_top < 0)
            r->n_top = 0;
        return true;
    case FIELD_TOP:
        if (!is_whole(v, f->min, f->max)) return wrong(err, f->name, expected, v);
        r->n_top = (int)v->number;
        return true;
    case FIELD_STOP: return read_stops(r, v, err);
    case FIELD_BIAS: return read_biases(r, c, v, err);
    case FIELD_REFUSED:
        return is_neutral(v) || error_set(err, EXIT_RUNTIME, "%s: not supported with this value", f->name);
    case FIELD_INPUT:
    case FIELD_FREE: return true;
    }
    return true;
}

static bool read_options(Record *r, const RecordContext *c, const Json *body, Error *err) {
    for (const Json *v = body->child; v; v = v->next) {
        int i = 0;
        while (i < N_FIELDS && !str_is(v->key, fields[i].name)) i++;
        if (i == N_FIELDS && c->options->is_strict)
            return error_set(err, EXIT_RUNTIME, "unknown field \"%.*s\"", v->key.len < 60 ? (int)v->key.len : 60,
                             v->key.data);
        if (i < N_FIELDS && v->kind != JSON_NULL && !read_field(r, c, &fields[i], v, err)) return false;
    }
    if (r->form == FORM_CHAT && get(body, "top_logprobs") &&
        (!get(body, "logprobs") || !get(body, "logprobs")->boolean))
        return error_set(err, EXIT_RUNTIME, "top_logprobs: expected \"logprobs\": true beside it");
    return true;
}

// Prompts

// The text of a message: a string, or an array of parts of type "text", which are joined in `joined`.
static bool read_content(const Json *v, Buffer *joined, Str *out, Error *err) {
    if (v && v->kind == JSON_STRING) return *out = v->string, true;
    if (!v || v->kind != JSON_ARRAY) return wrong(err, "content", "a string", v);
    for (const Json *part = v->child; part; part = part->next) {
        const Json *type = json_get(part, "type"), *text = json_get(part, "text");
        if (!type || type->kind != JSON_STRING || !str_is(type->string, "text") || !text || text->kind != JSON_STRING)
            return error_set(err, EXIT_RUNTIME, "content: expected parts of type \"text\"");
        buffer_append(joined, text->string.data, text->string.len);
    }
    buffer_puts(joined, "");
    *out = (Str){joined->data, joined->len};
    return true;
}

static bool read_messages(Record *r, const RecordContext *c, const Json *v, Error *err) {
    if (v->kind != JSON_ARRAY) return wrong(err, "messages", "an array of messages", v);
    if (!v->n_items) return error_set(err, EXIT_RUNTIME, "messages: expected at least one");
    if (c->tpl == TEMPLATE_NONE)
        return error_set(err, EXIT_RUNTIME, "messages: the model has no chat template; choose one with --template");
    Message *messages = xrealloc(NULL, (size_t)v->n_items + 1, sizeof *messages);
    Buffer *joined = xalloc((size_t)v->n_items, sizeof *joined);
    bool is_good = true;
    int n = 0, i = 0;
    const Json *first = json_get(v->child, "role");
    if (c->system && !(first && first->kind == JSON_STRING && str_is(first->string, "system")))
        messages[n++] = (Message){str_of("system"), *c->system};
    for (const Json *m = v->child; m && is_good; m = m->next, i++) {
        const Json *role = json_get(m, "role");
        Message *message = &messages[n++];
        if (role && role->kind == JSON_STRING)
            message->role = str_is(role->string, "developer") ? str_of("system") : role->string;
        if (!role || role->kind != JSON_STRING || !template_has_role(message->role))
            is_good = wrong(err, "role", "system, user, assistant or tool", role);
        else if (get(m, "tool_calls") && get(m, "tool_calls")->n_items)
            is_good = error_set(err, EXIT_RUNTIME, "tool_calls: not supported");
        else
            is_good = read_content(json_get(m, "content"), &joined[i], &message->content, err);
    }
    if (is_good) template_encode(c->tpl, c->tokenizer, messages, n, 0, true, &r->prompt);
    for (i = 0; i < v->n_items; i++) buffer_free(&joined[i]);
    free(joined);
    free(messages);
    return is_good;
}

static bool read_ids(Record *r, const RecordContext *c, const Json *v, Error *err) {
    for (const Json *j = v->child; j; j = j->next) {
        if (!is_whole(j, 0, c->model->config.vocab_size - 1))
            return wrong(err, "prompt", "token ids of the vocabulary", j);
        ids_push(&r->prompt, (int)j->number);
    }
    return true;
}

// A string, an array with one string, or token ids.
static bool read_prompt(Record *r, const RecordContext *c, const Json *v, Error *err) {
    if (v->kind == JSON_ARRAY && v->n_items == 1 && v->child->kind != JSON_NUMBER) v = v->child;
    if (v->kind == JSON_ARRAY && v->n_items) return read_ids(r, c, v, err);
    if (v->kind != JSON_STRING) return wrong(err, "prompt", "a string or an array of token ids", v);
    bool is_chat = r->form == FORM_SHORT && !c->options->is_raw; // what `run` would do with it
    prompt_encode(is_chat ? c->tpl : TEMPLATE_NONE, c->tokenizer, c->system, v->string, false, &r->prompt);
    return true;
}

static void set_defaults(Record *r, const RecordContext *c) {
    const Options *o = c->options;
    r->n_predict = INT_MIN;
    r->sample = o->sample;
    r->sample.seed = (uint32_t)hash_bytes(c->seed, r->key); // 32 bits survive every reader of JSON
    r->ignore_eos = o->ignore_eos;
    r->n_top = -1;
    r->stops = o->stops;
    r->n_stops = o->n_stops;
}

// With the prompt in place: how long the answer may be.
static bool set_lengths(Record *r, const RecordContext *c, bool is_chat, const char **code, Error *err) {
    if (r->n_predict == INT_MIN) r->n_predict = c->options->n_predict;
    if (r->n_predict == INT_MIN) r->n_predict = predict_default(is_chat ? c->tpl : TEMPLATE_NONE);
    r->max_context = context_choose(c->options, c->model, r->prompt.len, r->n_predict);
    if (r->sample.top_k < 0) r->sample.top_k = 0; // -1 is the API's spelling of "off"
    if (r->prompt.len == 0) return error_set(err, EXIT_RUNTIME, "the prompt is empty");
    if (r->prompt.len < r->max_context || (r->prompt.len == r->max_context && r->n_predict == 0)) return true;
    *code = "context_length_exceeded";
    return error_set(err, EXIT_RUNTIME, "the prompt does not fit the context: %d tokens, context %d", r->prompt.len,
                     r->max_context);
}

bool record_parse(Record *r, const RecordContext *c, const Json *root, const char **code, Error *err) {
    const Json *body = root;
    *code = "invalid_request";
    set_defaults(r, c);
    if (r->form != FORM_SHORT) {
        const Json *method = json_get(root, "method"), *url = json_get(root, "url");
        body = json_get(root, "body");
        if (!method || method->kind != JSON_STRING || !str_is(method->string, "POST"))
            return wrong(err, "method", "\"POST\"", method);
        if (!url || url->kind != JSON_STRING || (r->form == FORM_CHAT && !str_is(url->string, "/v1/chat/completions")))
            return wrong(err, "url", "\"/v1/chat/completions\" or \"/v1/completions\"", url);
        if (!body || body->kind != JSON_OBJECT) return wrong(err, "body", "an object", body);
    }
    if (!read_options(r, c, body, err)) return false;
    const Json *prompt = get(body, "prompt"), *messages = get(body, "messages");
    if (r->form == FORM_CHAT && !messages) return wrong(err, "messages", "an array of messages", NULL);
    if (r->form == FORM_COMPLETION && !prompt) return wrong(err, "prompt", "a string", NULL);
    if (!prompt == !messages) return error_set(err, EXIT_RUNTIME, "expected either \"prompt\" or \"messages\"");
    if (!(prompt ? read_prompt : read_messages)(r, c, prompt ? prompt : messages, err)) return false;
    return set_lengths(r, c, messages || (r->form == FORM_SHORT && !c->options->is_raw), code, err);
}

bool record_from_text(Record *r, const RecordContext *c, Str text, const char **code, Error *err) {
    *code = "invalid_request";
    set_defaults(r, c);
    prompt_encode(c->options->is_raw ? TEMPLATE_NONE : c->tpl, c->tokenizer, c->system, text, false, &r->prompt);
    return set_lengths(r, c, !c->options->is_raw, code, err);
}

Request record_request(const Record *r) {
    int n = r->prompt.len - r->n_shared;
    return (Request){.prompt = r->prompt.data + r->n_shared,
                     .n_prompt = n,
                     .max_tokens = r->n_predict,
                     .max_context = r->max_context,
                     .ignore_eos = r->ignore_eos,
                     .sample = r->sample,
                     .stops = r->stops,
                     .n_stops = r->n_stops,
                     .n_logprobs = r->n_top < 0 ? 0 : r->n_top + !r->n_top};
}

// Answers

static void put_key(Buffer *out, Str key) {
    if (key.data[0] == 's')
        json_put_string(out, key.data + 1, key.len - 1);
    else
        buffer_puts(out, key.data[0] == 'n' ? key.data + 1 : "null");
}

static void put_token(Buffer *out, const Tokenizer *t, int id, float logprob) {
    Str piece = tokenizer_piece(t, id, true);
    buffer_puts(out, "{\"token\":");
    json_put_string(out, piece.data, piece.len);
    buffer_puts(out, ",\"logprob\":");
    json_put_number(out, (double)logprob);
    buffer_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len; i++) buffer_printf(out, "%s%d", i ? "," : "", (unsigned char)piece.data[i]);
    buffer_puts(out, "]");
}

static void put_chat_logprobs(Buffer *out, const Tokenizer *t, const Record *r) {
    buffer_puts(out, "{\"content\":[");
    for (int i = 0; i < r->sequence.n_generated; i++) {
        const TokenLogprob *l = &r->sequence.logprobs[i];
        if (i) buffer_puts(out, ",");
        put_token(out, t, l->id, l->logprob);
        buffer_puts(out, ",\"top_logprobs\":[");
        for (int k = 0; k < r->n_top; k++) {
            if (k) buffer_puts(out, ",");
            put_token(out, t, l->top[k].id, l->top[k].logprob);
            buffer_puts(out, "}");
        }
        buffer_puts(out, "]}");
    }
    buffer_puts(out, "],\"refusal\":null}");
}

// An object of the n_top best; tokens that read the same (broken UTF-8) appear once, with the best.
static void put_top_object(Buffer *out, const Tokenizer *t, const Record *r, const TokenLogprob *l) {
    Buffer names[MAX_TOP] = {{0}};
    const char *separator = "";
    buffer_puts(out, "{");
    for (int k = 0; k < r->n_top; k++) {
        Str piece = tokenizer_piece(t, l->top[k].id, true);
        json_put_string(&names[k], piece.data, piece.len);
        bool is_new = true;
        for (int i = 0; i < k; i++) is_new = is_new && strcmp(names[i].data, names[k].data);
        if (!is_new) continue;
        buffer_printf(out, "%s%s:", separator, names[k].data);
        json_put_number(out, (double)l->top[k].logprob);
        separator = ",";
    }
    buffer_puts(out, "}");
    for (int k = 0; k < r->n_top; k++) buffer_free(&names[k]);
}

static void put_completion_logprobs(Buffer *out, const Tokenizer *t, const Record *r) {
    const Sequence *s = &r->sequence;
    size_t offset = 0;
    buffer_puts(out, "{\"tokens\":[");
    for (int i = 0; i < s->n_generated; i++) {
        Str piece = tokenizer_piece(t, s->logprobs[i].id, true);
        if (i) buffer_puts(out, ",");
        json_put_string(out, piece.data, piece.len);
    }
    buffer_puts(out, "],\"token_logprobs\":[");
    for (int i = 0; i < s->n_generated; i++) {
        if (i) buffer_puts(out, ",");
        json_put_number(out, (double)s->logprobs[i].logprob);
    }
    buffer_puts(out, "],\"top_logprobs\":[");
    for (int i = 0; i < s->n_generated; i++) {
        if (i) buffer_puts(out, ",");
        put_top_object(out, t, r, &s->logprobs[i]);
    }
    buffer_puts(out, "],\"text_offset\":[");
    for (int i = 0; i < s->n_generated; i++) {
        buffer_printf(out, "%s%zu", i ? "," : "", offset);
        offset += tokenizer_piece(t, s->logprobs[i].id, false).len;
    }
    buffer_puts(out, "]}");
}

static void put_openai(Record *r, const RecordContext *c) {
    Buffer *out = &r->answer;
    const Sequence *s = &r->sequence;
    const char *slash = strrchr(c->model->file.path, '/'), *model = slash ? slash + 1 : c->model->file.path;
    bool is_chat = r->form == FORM_CHAT;
    buffer_printf(out, "{\"id\":\"batch_req_%ld\",\"custom_id\":", r->line);
    put_key(out, r->key);
    buffer_printf(
        out,
        ",\"response\":{\"status_code\":200,\"request_id\":\"req_%ld\",\"body\":{\"id\":\"%s-%ld\",\"object\":"
        "\"%s\",\"created\":%lld,\"model\":",
        r->line, is_chat ? "chatcmpl" : "cmpl", r->line, is_chat ? "chat.completion" : "text_completion",
        (long long)time(NULL));
    json_put_string(out, model, strlen(model));
    buffer_printf(out, ",\"choices\":[{\"index\":0,%s",
                  is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    json_put_string(out, s->text.data, s->text.len);
    buffer_printf(out, "%s,\"logprobs\":", is_chat ? ",\"refusal\":null}" : "");
    if (r->n_top < 0)
        buffer_puts(out, "null");
    else
        (is_chat ? put_chat_logprobs : put_completion_logprobs)(out, c->tokenizer, r);
    buffer_printf(out,
                  ",\"finish_reason\":\"%s\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"
                  "\"total_tokens\":%d}}},\"error\":null}\n",
                  finish_name(s->finish), r->prompt.len, s->n_generated, r->prompt.len + s->n_generated);
}

void record_answer(Record *r, const RecordContext *c) {
    const Sequence *s = &r->sequence;
    if (s->finish == FINISH_ERROR) {
        record_fail(r, "generation_failed", s->error.text);
        return;
    }
    r->state = RECORD_DONE;
    if (r->form != FORM_SHORT) {
        put_openai(r, c);
        return;
    }
    Buffer *out = &r->answer;
    buffer_puts(out, "{\"id\":");
    put_key(out, r->key);
    buffer_puts(out, ",\"text\":");
    json_put_string(out, s->text.data, s->text.len);
    buffer_printf(out, ",\"finish_reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"seed\":%llu",
                  finish_name(s->finish), r->prompt.len, s->n_generated, (unsigned long long)r->sample.seed);
    if (r->n_top >= 0) {
        buffer_puts(out, ",\"logprobs\":");
        logprobs_put(out, c->tokenizer, s);
    }
    buffer_puts(out, "}\n");
}

void record_fail(Record *r, const char *code, const char *message) {
    Buffer *out = &r->answer, text = {0};
    bool is_short = r->form == FORM_SHORT;
    r->state = RECORD_DONE;
    r->has_failed = true;
    buffer_printf(&text, "line %ld: %s", r->line, message);
    if (is_short)
        buffer_puts(out, "{\"id\":");
    else
        buffer_printf(out, "{\"id\":\"batch_req_%ld\",\"custom_id\":", r->line);
    put_key(out, r->key);
    if (is_short)
        buffer_printf(out, ",\"line\":%ld", r->line);
    else
        buffer_puts(out, ",\"response\":null");
    buffer_printf(out, ",\"error\":{\"code\":\"%s\",\"message\":", code);
    json_put_string(out, text.data, text.len);
    buffer_puts(out, "}}\n");
    buffer_free(&text);
}

void record_free(Record *r) {
    if (r->state == RECORD_ACTIVE) sequence_free(&r->sequence);
    session_free(r->session);
    for (int i = 0; r->owns_stops && i < r->n_stops; i++) free((char *)r->stops[i].data - 1);
    if (r->owns_stops) free(r->stops);
    free((char *)r->key.data);
    free(r->prompt.data);
    free(r->biases);
    buffer_free(&r->answer);
    free(r);
}

bool result_key(const Json *root, Str *key, bool *is_error) {
    static const char prefix[] = "batch_req_";
    const Json *custom_id = json_get(root, "custom_id"), *id = json_get(root, "id"), *line = json_get(root, "line");
    char number[32];
    *is_error = get(root, "error") != NULL;
    if (custom_id ? custom_id->kind == JSON_STRING : id && id->kind == JSON_STRING) {
        Str text = custom_id ? custom_id->string : id->string;
        *key = make_key('s', text.data, text.len);
    } else if (custom_id) { // null: the name of a line
        if (!id || id->kind != JSON_STRING || id->string.len < sizeof prefix ||
            memcmp(id->string.data, prefix, sizeof prefix - 1))
            return false;
        *key = make_key('l', id->string.data + sizeof prefix - 1, id->string.len - (sizeof prefix - 1));
    } else {
        const Json *source = id && id->kind == JSON_NUMBER ? id : line;
        if (!is_whole(source, -0x1p53, 0x1p53)) return false;
        *key = make_key(source == id ? 'n' : 'l', number,
                        (size_t)snprintf(number, sizeof number, "%.0f", source->number + 0.0));
    }
    return true;
}
