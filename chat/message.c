// See message.h.
#include "chat/message.h"

#include <ctype.h>

Str content_skip_space(Str s) {
    while (s.len && isspace((unsigned char)s.data[0])) {
        s.data++;
        s.len--;
    }
    return s;
}

Str content_strip(Str s) {
    s = content_skip_space(s);
    while (s.len && isspace((unsigned char)s.data[s.len - 1])) s.len--;
    return s;
}

bool message_is_role(Str role) {
    return str_is_one_of(role, "system developer user assistant ipython tool");
}

Message message_make(Str role, Str content) {
    Buffer json = {0};
    JsonWriter w = json_object(&json);
    json_write_string(&w, "role", role);
    json_write_string(&w, "content", content);
    json_end_object(&w);
    return (Message){buffer_str(&json), str_copy(role), str_copy(content), false};
}

Message message_copy(const Message *m) {
    return (Message){str_copy(m->json), str_copy(m->role), str_copy(m->content), m->has_calls};
}

void message_free(Message *m) {
    free((char *)m->json.data);
    free((char *)m->role.data);
    free((char *)m->content.data);
    *m = (Message){0};
}

// Fails, because part i of a content has this type (may be NULL) or no text.
static bool part_mismatch(int i, const Json *type, Error *err) {
    static const char form[] = "{\"type\":\"text\",\"text\":\"...\"}";
    if (!type)
        return error_set(err, EXIT_RUNTIME, "content[%d]: expected %s, found no type", i, form);
    return error_set(err, EXIT_RUNTIME, "content[%d]: expected %s, found %s \"%.*s\"", i, form,
                     json_is(type, "text") ? "no text beside type" : "type", SHOWN(type->string));
}

// Appends the text of the content: a string, or an array of parts, which are concatenated.
static bool read_content(const Json *content, Buffer *out, Error *err) {
    int i = 0;
    buffer_puts(out, "");
    if (content->kind == JSON_STRING) buffer_put(out, content->string);
    for (const Json *part = content->child; part; part = part->next, i++) {
        const Json *text = json_get_string(part, "text");
        const Json *type = json_get_string(part, "type");
        if (!json_is(type, "text") || !text) return part_mismatch(i, type, err);
        buffer_put(out, text->string);
    }
    return true;
}

bool message_put_arguments(Buffer *out, const Json *v) {
    JsonDoc doc = {0};
    bool is_text = v->kind == JSON_STRING;
    if (!str_is(v->key, "arguments")) return false;
    bool is_empty = v->kind == JSON_NULL || (is_text && str_is_blank(v->string));
    bool is_object = is_text && !is_empty &&
                     json_parse(&doc, v->string.data, v->string.len, &(Error){0}) &&
                     doc.root->kind == JSON_OBJECT;
    if (is_empty || is_object) buffer_put(out, is_empty ? str_of("{}") : v->string);
    json_free(&doc);
    return is_empty || is_object;
}

// Checks the kinds of the members. False with err if one is missing or has another kind.
static bool check_members(const Json *object, Error *err) {
    const Json *role = json_get_string(object, "role");
    const Json *content = json_get_value(object, "content");
    const Json *calls = json_get_value(object, "tool_calls");

    if (!role)
        return error_set(err, EXIT_RUNTIME,
                         "role: expected a string (of {\"role\":\"...\",\"content\":\"...\"})");
    if (!message_is_role(role->string))
        return error_set(err, EXIT_RUNTIME,
                         "role: expected system, user, assistant, tool or ipython, found \"%.*s\"",
                         SHOWN(role->string));

    if (calls && calls->kind != JSON_ARRAY)
        return error_set(err, EXIT_RUNTIME, "tool_calls: expected an array");
    if (json_get_value(object, "function_call"))
        return error_set(err, EXIT_RUNTIME,
                         "function_call: not supported; write \"tool_calls\": "
                         "[{\"type\":\"function\",\"function\":{...}}]");

    int i = 0;
    for (const Json *call = calls ? calls->child : NULL; call; call = call->next, i++) {
        const Json *function = json_get(call, "function");
        if (!json_get_string(function, "name") || !json_get(function, "arguments"))
            return error_set(err, EXIT_RUNTIME,
                             "tool_calls[%d]: expected {\"type\":\"function\",\"function\":{"
                             "\"name\":\"...\",\"arguments\":\"...\"}}",
                             i);
    }

    // A message with tool calls needs no content.
    bool has_calls = calls && calls->n_items;
    if (content ? content->kind != JSON_STRING && content->kind != JSON_ARRAY : !has_calls)
        return error_set(err, EXIT_RUNTIME, "content: expected a string");
    return true;
}

bool message_read(const Json *object, Message *out, Error *err) {
    if (!check_members(object, err)) return false;
    const Json *role = json_get_string(object, "role");
    const Json *content = json_get_value(object, "content");
    const Json *calls = json_get_value(object, "tool_calls");
    bool has_calls = calls && calls->n_items;
    Buffer json = {0}, text = {0};
    if (content && !read_content(content, &text, err)) {
        buffer_free(&text);
        return false;
    }

    // The copy has the content as one string. Other members that say something are kept, except
    // that the arguments of calls become objects.
    Str name = json_is(role, "developer") ? str_of("system") : role->string;
    JsonWriter w = json_object(&json);
    json_write_string(&w, "role", name);
    if (!content && has_calls) json_write_string(&w, "content", str_of(""));
    for (const Json *m = object->child; m; m = m->next) {
        bool is_empty = m->kind == JSON_NULL || (m == calls && !has_calls);
        if (m == role || is_empty) continue;

        json_write_key(&w, m->key);
        if (m == content)
            json_write_string(&w, NULL, buffer_str(&text));
        else
            json_write_value(&w, NULL, m, m == calls ? message_put_arguments : NULL);
    }
    json_end_object(&w);

    *out = (Message){buffer_str(&json), str_copy(name), str_copy(buffer_str(&text)), has_calls};
    buffer_free(&text);
    return true;
}

static void put_description(JsonWriter *w) { json_write_string(w, "description", str_of("")); }

// Writes the members of a function.
static void write_function(JsonWriter *w, const Json *function) {
    bool has_description = json_get_value(function, "description");
    bool has_parameters = json_get_value(function, "parameters");

    json_begin_object(w, "function");
    for (const Json *m = function->child; m; m = m->next) {
        if (m->kind == JSON_NULL) continue;
        if (str_is(m->key, "parameters") && !has_description) put_description(w);
        json_write_key(w, m->key);
        json_write_value(w, NULL, m, NULL);
    }

    if (!has_parameters) {
        if (!has_description) put_description(w);
        json_write_format(w, "parameters", "{\"type\":\"object\",\"properties\":{}}");
    }
    json_end_object(w);
}

void tools_put(const Json *tools, Buffer *out) {
    JsonWriter w = {.out = out};
    json_begin_array(&w, NULL);
    for (const Json *tool = tools->child; tool; tool = tool->next) {
        json_begin_object(&w, NULL);
        for (const Json *m = tool->child; m; m = m->next) {
            if (m->kind == JSON_NULL) continue;
            if (str_is(m->key, "function")) {
                write_function(&w, m);
                continue;
            }
            json_write_key(&w, m->key);
            json_write_value(&w, NULL, m, NULL);
        }
        json_end_object(&w);
    }
    json_end_array(&w);
}
