#include "template.h"
#include "../base/files.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const roles[] = {"system", "developer", "user", "assistant", "ipython", "tool"};

bool template_has_role(Str role) {
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (str_is(role, roles[i])) return true;
    return false;
}

// Which template

// The files of chat/templates/, embedded by chat/templates.S.
extern const char template_alpaca[], template_chatml[], template_llama2[], template_llama3[],
    template_llama3_1[], template_mistral[], template_none[], template_vicuna[], template_zephyr[];

static const struct {
    const char *name, *source;
} builtin_templates[] = {
    {"llama3", template_llama3},     {"llama3.1", template_llama3_1},
    {"llama3.2", template_llama3_1}, {"llama3.3", template_llama3_1},
    {"llama2", template_llama2},     {"chatml", template_chatml},
    {"zephyr", template_zephyr},     {"mistral", template_mistral},
    {"vicuna", template_vicuna},     {"alpaca", template_alpaca},
    {"none", template_none},
};
enum { N_BUILTIN_TEMPLATES = sizeof builtin_templates / sizeof *builtin_templates };

static const char *builtin_source(const char *name) {
    for (int i = 0; i < N_BUILTIN_TEMPLATES; i++)
        if (!strcmp(builtin_templates[i].name, name)) return builtin_templates[i].source;
    return NULL;
}

void template_put_names(Buffer *out) {
    for (int i = 0; i < N_BUILTIN_TEMPLATES; i++)
        buffer_printf(out, "%s%s", i ? ", " : "", builtin_templates[i].name);
}

// Whether the file calls itself a model for dialogue.
static bool is_named_chat(const Gguf *g) {
    Str name = gguf_get_text(g, "general.name");
    char lower[256];
    size_t n = name.len < sizeof lower ? name.len : sizeof lower;
    for (size_t i = 0; i < n; i++) lower[i] = (char)tolower((unsigned char)name.data[i]);
    return str_contains((Str){lower, n}, "instruct") || str_contains((Str){lower, n}, "chat");
}

// A base model of Llama 3 has the control tokens of its dialogue too: what it calls the end of a
// text tells them apart.
static const char *recognise_vocabulary(const Gguf *g, const Tokenizer *t) {
    int eos = tokenizer_eos(t);
    int eot = tokenizer_special_id(t, "<|eot_id|>"), end = tokenizer_special_id(t, "<|im_end|>");
    if (eot >= 0 && tokenizer_special_id(t, "<|start_header_id|>") >= 0 &&
        (eos == eot || is_named_chat(g)))
        return "llama3";
    if (end >= 0 && tokenizer_special_id(t, "<|im_start|>") >= 0 &&
        (eos == end || is_named_chat(g)))
        return "chatml";
    return "none";
}

static bool open_file(Template *tpl, const char *path, Error *err) {
    Buffer text = {0};
    bool ok = file_read(path, &text, err);
    if (ok) tpl->plain = tpl->with_tools = jinja_open(buffer_str(&text), path, err);
    buffer_free(&text);
    if (!tpl->plain) err->code = EXIT_USAGE;
    return tpl->plain;
}

static bool open_name(Template *tpl, const char *name, Error *err) {
    const char *source = builtin_source(name);
    Buffer names = {0};
    tpl->name = name;
    tpl->is_none = !strcmp(name, "none");
    if (str_ends_with(str_of(name), ".jinja") || strchr(name, '/'))
        return open_file(tpl, name, err);
    if (source) return (tpl->plain = tpl->with_tools = jinja_open(str_of(source), name, err));
    template_put_names(&names);
    error_set(err, EXIT_USAGE, "--template: expected FILE.jinja or one of %s; found \"%s\"",
              names.data, name);
    buffer_free(&names);
    return false;
}

static bool open_own(Template *tpl, const Gguf *g, Str source, Error *err) {
    Str tools = gguf_get_text(g, "tokenizer.chat_template.tool_use");
    tpl->name = "of the file";
    tpl->plain = tpl->with_tools = jinja_open(source, "tokenizer.chat_template", err);
    if (tpl->plain && tools.len) {
        tpl->with_tools = jinja_open(tools, "tokenizer.chat_template.tool_use", err);
        if (!tpl->with_tools)
            tpl->with_tools = tpl->plain, jinja_close(tpl->plain), tpl->plain = NULL;
    }
    if (tpl->plain) return true;
    Error why = *err;
    return error_set(err, EXIT_MODEL, "%s: %s (--template chooses another, --raw none)", g->path,
                     why.text);
}

// Names that look like control tokens and stand in text that has none left.
static void find_missing(Template *tpl, const char *plain) {
    for (const char *at = plain; (at = strstr(at, "<|"));) {
        size_t n = strcspn(at += 2, "|> \n\1\2");
        if (!n || strncmp(at + n, "|>", 2)) continue;
        Str name = str_copy((Str){at - 2, n + 4});
        if (!tpl->missing.len || !strstr(tpl->missing.data, name.data))
            buffer_printf(&tpl->missing, "%s%s", tpl->missing.len ? ", " : "", name.data);
        free((char *)name.data);
    }
}

// The first line of ordinary text between an answer and the next question, if it is a mark and no
// mere word.
static void find_stop(Template *tpl, const char *from, const char *to) {
    while (from < to && (*from == ' ' || *from == '\n')) from++;
    Str line = {from, 0};
    while (from + line.len < to && from[line.len] != '\n') line.len++;
    while (line.len && from[line.len - 1] == ' ') line.len--;
    if (line.len > 1 && (strchr("<[#", *from) || from[line.len - 1] == ':'))
        tpl->stop = (char *)str_copy(line).data;
}

// What the template makes of a question, an answer and a question, control tokens aside, shows what
// it spells in ordinary text.
static void probe(Template *tpl, const Tokenizer *t) {
    static const char question[] = "\x01", answer[] = "\x02"; // in no template
    Message messages[3] = {message_make(str_of("user"), str_of(question)),
                           message_make(str_of("assistant"), str_of(answer)),
                           message_make(str_of("user"), str_of(question))};
    Buffer plain = {0};
    Ids ids = {0};
    Error err;
    TemplateInput in = {.messages = messages, .n_messages = 3, .wants_answer = true};
    buffer_puts(&plain, "");
    if (!tpl->is_none && template_encode(tpl, t, &in, &ids, &err))
        for (int i = 0; i < ids.len; i++)
            if (!tokenizer_is_special(t, ids.data[i]))
                buffer_put(&plain, tokenizer_piece(t, ids.data[i], false));
    find_missing(tpl, plain.data);
    const char *from = strchr(plain.data, *answer), *to = from ? strchr(from, *question) : NULL;
    if (to) find_stop(tpl, from + 1, to);
    for (int i = 0; i < 3; i++) message_free(&messages[i]);
    buffer_free(&plain);
    free(ids.data);
}

static bool mentions(const Template *tpl, const char *word) {
    return str_contains(jinja_source(tpl->plain), word) ||
           str_contains(jinja_source(tpl->with_tools), word);
}

bool template_open(Template *tpl, const char *name, const Gguf *g, Tokenizer *t, Error *err) {
    Str source = gguf_get_text(g, "tokenizer.chat_template");
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    int64_t sec;
    *tpl = (Template){0};
    time_t now = epoch && parse_i64(epoch, &sec) ? (time_t)sec : time(NULL);
    const struct tm *today = epoch ? gmtime(&now) : localtime(&now);
    tpl->today = today ? *today : (struct tm){.tm_mday = 1};
    if (!name && !source.len) name = recognise_vocabulary(g, t);
    if (!(name ? open_name(tpl, name, err) : open_own(tpl, g, source, err))) return false;
    tpl->takes_tools = mentions(tpl, "tools");
    tpl->takes_calls = mentions(tpl, "tool_calls");
    tpl->has_reasoning = mentions(tpl, "</think>");
    if (!tpl->is_none) tokenizer_reserve_special(t, jinja_source(tpl->plain));
    if (tpl->with_tools != tpl->plain) tokenizer_reserve_special(t, jinja_source(tpl->with_tools));
    probe(tpl, t);
    return true;
}

void template_close(Template *tpl) {
    if (tpl->with_tools != tpl->plain) jinja_close(tpl->with_tools);
    jinja_close(tpl->plain);
    buffer_free(&tpl->variables);
    buffer_free(&tpl->missing);
    free(tpl->stop);
}

bool template_set(Template *tpl, const char *text, Error *err) {
    const char *value = strchr(text, '=');
    JsonDoc doc = {0};
    if (!value || value == text)
        return error_set(err, EXIT_USAGE, "--template-var: expected NAME=JSON, found \"%s\"", text);
    Error why = {0};
    bool ok = json_parse(&doc, value + 1, strlen(value + 1), &why);
    json_free(&doc);
    Str name = {text, (size_t)(value - text)};
    if (!ok)
        return error_set(err, EXIT_USAGE,
                         "--template-var %.*s: expected JSON (a string has quotes): %s",
                         SHOWN(name), why.text);
    if (tpl->variables.len) tpl->variables.data[--tpl->variables.len] = 0;
    json_put_string(&tpl->variables, tpl->variables.len ? "," : "{", name);
    buffer_printf(&tpl->variables, ":%s}", value + 1);
    if (json_parse(&doc, tpl->variables.data, tpl->variables.len, &why))
        return json_free(&doc), true;
    json_free(&doc);
    return error_set(err, EXIT_USAGE, "--template-var %.*s is given twice", SHOWN(name));
}

// Rendering

// A role that we know is a word of the template's as much as of the dialogue's.
static bool is_role(const Json *string) {
    return str_is(string->key, "role") && template_has_role(string->string);
}

// {"bos_token", "eos_token"}: of the vocabulary, or what the variables say.
static void put_own(Buffer *out, const Tokenizer *t, const JsonDoc *variables, int n) {
    static const char *const names[2] = {"bos_token", "eos_token"};
    int ids[2] = {tokenizer_bos(t), tokenizer_eos(t)};
    for (int i = 0; i < 2; i++) {
        Str value = ids[i] < 0 ? str_of("") : tokenizer_piece(t, ids[i], true);
        for (int k = 0; k < n; k++) {
            const Json *v = json_get_string(variables[k].root, names[i]);
            if (v) value = v->string;
        }
        buffer_printf(out, "%c\"%s\"", i ? ',' : '{', names[i]);
        json_put_string(out, ":", value);
    }
    buffer_puts(out, "}");
}

static void put_base(Buffer *out, const TemplateInput *in) {
    buffer_printf(out, "{\"add_generation_prompt\":%s,\"documents\":null,\"tools\":",
                  in->wants_answer ? "true" : "false");
    buffer_put(out, in->tools.data ? in->tools : str_of("null"));
    buffer_puts(out, ",\"messages\":[");
    for (int i = 0; i < in->n_messages; i++) {
        if (i) buffer_puts(out, ",");
        buffer_put(out, in->messages[i].json);
    }
    buffer_puts(out, "]}");
}

bool template_render(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Buffer *text,
                     Buffer *mask, Error *err) {
    Buffer base = {0}, marked = {0};
    JsonDoc docs[3] = {{0}}, own_doc = {0};
    const Json *objects[3];
    Str sources[3] = {{0}, buffer_str(&tpl->variables), in->variables};
    int n = 0;
    bool ok = true;
    put_base(&base, in);
    sources[0] = buffer_str(&base);
    for (int i = 0; i < 3 && ok; i++) {
        if (!sources[i].len) continue;
        ok = json_parse(&docs[n], sources[i].data, sources[i].len, err);
        objects[n] = docs[n].root;
        n++;
    }
    const Json *tools = NULL;
    for (int i = 0; ok && i < n; i++)
        if (json_get(objects[i], "tools")) tools = json_get(objects[i], "tools");
    if (ok) put_own(&marked, t, docs, n);
    ok = ok && json_parse(&own_doc, marked.data, marked.len, err) &&
         jinja_render(tools && tools->n_items ? tpl->with_tools : tpl->plain,
                      &(JinjaInput){objects, n, own_doc.root, is_role, &tpl->today}, text, mask,
                      err);
    for (int i = 0; i < 3; i++) json_free(&docs[i]);
    json_free(&own_doc);
    buffer_free(&base);
    buffer_free(&marked);
    return ok;
}

void template_tokenize(const Tokenizer *t, Str text, const char *mask, Ids *out) {
    int bos = tokenizer_bos(t), start = out->len;
    if (tokenizer_adds_bos(t)) ids_push(out, bos);
    if (text.len) tokenizer_encode_masked(t, text.data, mask, text.len, false, out);
    int n_bos = 0;
    while (tokenizer_adds_bos(t) && start + n_bos < out->len && out->data[start + n_bos] == bos)
        n_bos++;
    if (n_bos < 2) return;
    memmove(out->data + start + 1, out->data + start + n_bos,
            (size_t)(out->len - start - n_bos) * sizeof *out->data);
    out->len -= n_bos - 1;
}

bool template_encode(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Ids *out,
                     Error *err) {
    Buffer text = {0}, mask = {0};
    bool ok = template_render(tpl, t, in, &text, &mask, err);
    if (ok) template_tokenize(t, buffer_str(&text), mask.data, out);
    buffer_free(&text);
    buffer_free(&mask);
    return ok;
}

// Messages

Message message_make(Str role, Str content) {
    Buffer json = {0};
    json_put_string(&json, "{\"role\":", role);
    json_put_string(&json, ",\"content\":", content);
    buffer_puts(&json, "}");
    return (Message){buffer_str(&json), str_copy(role), str_copy(content), false};
}

void message_free(Message *m) {
    free((char *)m->json.data);
    free((char *)m->role.data);
    free((char *)m->content.data);
    *m = (Message){0};
}

// The texts of the parts of a content, joined.
static bool join_parts(const Json *parts, Buffer *out, Error *err) {
    int i = 0;
    buffer_puts(out, "");
    for (const Json *part = parts->child; part; part = part->next, i++) {
        const Json *text = json_get_string(part, "text"), *type = json_get(part, "type");
        if (!json_is(type, "text") || !text)
            return error_set(err, EXIT_RUNTIME,
                             "content[%d]: expected {\"type\":\"text\",\"text\":\"...\"}", i);
        buffer_put(out, text->string);
    }
    return true;
}

// Arguments of a call that are JSON in a string become what it says.
static bool put_arguments(Buffer *out, const Json *v) {
    JsonDoc doc = {0};
    Error err;
    bool is_object = v->kind == JSON_STRING && str_is(v->key, "arguments") &&
                     json_parse(&doc, v->string.data, v->string.len, &err) &&
                     doc.root->kind == JSON_OBJECT;
    if (is_object) buffer_put(out, v->string);
    json_free(&doc);
    return is_object;
}

bool message_read(const Json *object, Message *out, Error *err) {
    const Json *role = json_get_string(object, "role"), *content = json_get(object, "content");
    const Json *calls = json_get(object, "tool_calls");
    bool has_calls = calls && calls->kind == JSON_ARRAY && calls->n_items,
         is_null = !content || content->kind == JSON_NULL;
    Buffer json = {0}, joined = {0};
    if (!role)
        return error_set(err, EXIT_RUNTIME,
                         "role: expected a string (of {\"role\":\"...\",\"content\":\"...\"})");
    if (!template_has_role(role->string))
        return error_set(err, EXIT_RUNTIME,
                         "role: expected system, user, assistant, tool or ipython, found \"%.*s\"",
                         SHOWN(role->string));
    if (calls && calls->kind != JSON_ARRAY && calls->kind != JSON_NULL)
        return error_set(err, EXIT_RUNTIME, "tool_calls: expected an array");
    if ((is_null && !has_calls) ||
        (!is_null && content->kind != JSON_STRING && content->kind != JSON_ARRAY))
        return error_set(err, EXIT_RUNTIME, "content: expected a string");
    if (!is_null && content->kind == JSON_ARRAY && !join_parts(content, &joined, err))
        return buffer_free(&joined), false;
    if (!is_null && content->kind == JSON_STRING) buffer_put(&joined, content->string);
    Str word = json_is(role, "developer") ? str_of("system") : role->string;
    json_put_string(&json, "{\"role\":", word);
    for (const Json *m = object->child; m; m = m->next) {
        if (m == role) continue;
        json_put_string(&json, ",", m->key);
        buffer_puts(&json, ":");
        if (m == content && !is_null)
            json_put_string(&json, "", buffer_str(&joined));
        else
            json_put_value(&json, m, m == calls ? put_arguments : NULL);
    }
    buffer_puts(&json, "}");
    *out = (Message){buffer_str(&json), str_copy(word), str_copy(buffer_str(&joined)), has_calls};
    buffer_free(&joined);
    return true;
}
