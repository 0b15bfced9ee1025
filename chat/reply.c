#include "reply.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static Str stripped(Str s) {
    while (s.len && isspace((unsigned char)s.data[0])) s.data++, s.len--;
    while (s.len && isspace((unsigned char)s.data[s.len - 1])) s.len--;
    return s;
}

static Str after(Str s, size_t n) { return (Str){s.data + n, s.len - n}; }

static bool begins(Str s, const char *with) {
    size_t n = strlen(with);
    return s.len >= n && !memcmp(s.data, with, n);
}

static size_t find(Str s, const char *part) { return str_find(s, str_of(part)); }

bool reply_begins_in_reasoning(const Tokenizer *t, const int *prompt, int n) {
    Buffer end = {0};
    for (int i = n > 8 ? n - 8 : 0; i < n; i++)
        buffer_put(&end, tokenizer_piece(t, prompt[i], true));
    bool is_in = str_ends_with(stripped(buffer_str(&end)), "<think>");
    buffer_free(&end);
    return is_in;
}

void reply_put_raw(const Tokenizer *t, const int *ids, int n, Buffer *out) {
    buffer_puts(out, "");
    for (int i = 0; i < n; i++) buffer_put(out, tokenizer_piece(t, ids[i], true));
}

// Adds a call; takes `arguments` over. Ids have the nine letters and digits that Mistral's
// templates ask for.
static void add_call(Reply *r, Str name, Buffer *arguments, int n_before) {
    Buffer id = {0};
    buffer_printf(&id, "call%05d", (n_before + r->n_calls + 1) % 100000);
    r->calls = xrealloc(r->calls, (size_t)r->n_calls + 1, sizeof *r->calls);
    r->calls[r->n_calls++] = (ToolCall){buffer_str(&id), str_copy(name), buffer_str(arguments)};
}

// {"name": ..., "arguments" | "parameters": {...}}
static bool take_object(Reply *r, const Json *call, int n_before) {
    const Json *name = json_get_string(call, "name"), *arguments = json_get(call, "arguments");
    Buffer text = {0};
    if (!arguments) arguments = json_get(call, "parameters");
    if (!name || !arguments || arguments->kind != JSON_OBJECT) return false;
    json_put_value(&text, arguments, NULL);
    add_call(r, name->string, &text, n_before);
    return true;
}

static void forget_calls(Reply *r) {
    for (int i = 0; i < r->n_calls; i++) {
        free((char *)r->calls[i].id.data);
        free((char *)r->calls[i].name.data);
        free((char *)r->calls[i].arguments.data);
    }
    r->n_calls = 0;
}

// The end of the JSON value that begins s: after its last bracket.
static size_t value_length(Str s) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (in_string && c == '\\') {
            i++;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
            if (depth <= 0) return i + 1;
        }
    }
    return 0;
}

// Objects one after another, or arrays of them, until the text ends or `end` begins. Returns the
// bytes, 0: other text.
static size_t take_objects(Reply *r, Str s, const char *end, int n_before) {
    JsonDoc doc = {0};
    Error err;
    Str rest = s;
    bool ok = true;
    int n = r->n_calls;
    for (;;) {
        while (rest.len && (isspace((unsigned char)*rest.data) || *rest.data == ';'))
            rest = after(rest, 1);
        if (!rest.len || (end && begins(rest, end))) break;
        size_t len = *rest.data == '{' || *rest.data == '[' ? value_length(rest) : 0;
        ok = len && json_parse(&doc, rest.data, len, &err);
        const Json *call = ok && doc.root->kind == JSON_ARRAY ? doc.root->child
                           : ok                               ? doc.root
                                                              : NULL;
        for (; ok && call; call = call->next) ok = take_object(r, call, n_before);
        if (!ok) break;
        rest = after(rest, len);
    }
    json_free(&doc);
    if (!ok || r->n_calls == n || (end && !rest.len)) return forget_calls(r), 0;
    return s.len - rest.len;
}

// NAME.call(KEY=JSON, ...), as Llama 3.1 calls its own tools.
static bool take_python_call(Reply *r, Str s, int n_before) {
    size_t n = find(s, ".call(");
    Buffer text = {0};
    if (n == SIZE_MAX || n == 0 || s.data[s.len - 1] != ')') return false;
    Str rest = {s.data + n + 6, s.len - n - 7}, name = {s.data, n};
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name.data[i]) && !strchr("_.-", name.data[i])) return false;
    buffer_puts(&text, "{");
    while ((rest = stripped(rest)).len) {
        size_t key = 0, value = 0;
        while (key < rest.len && (isalnum((unsigned char)rest.data[key]) || rest.data[key] == '_'))
            key++;
        if (!key || key == rest.len || rest.data[key] != '=') return buffer_free(&text), false;
        json_put_string(&text, text.len > 1 ? "," : "", (Str){rest.data, key});
        rest = after(rest, key + 1);
        if (rest.len && strchr("\"[{", *rest.data)) {
            value = *rest.data == '"' ? 1 : value_length(rest);
            while (*rest.data == '"' && value < rest.len && rest.data[value] != '"')
                value += 1 + (rest.data[value] == '\\');
            value += *rest.data == '"';
        } else {
            while (value < rest.len && rest.data[value] != ',') value++;
        }
        if (!value || value > rest.len) return buffer_free(&text), false;
        buffer_puts(&text, ":");
        buffer_append(&text, rest.data, value);
        rest = stripped(after(rest, value));
        if (rest.len && *rest.data != ',') return buffer_free(&text), false;
        if (rest.len) rest = after(rest, 1);
    }
    buffer_puts(&text, "}");
    JsonDoc doc = {0};
    Error err;
    bool ok = json_parse(&doc, text.data, text.len, &err);
    json_free(&doc);
    if (ok)
        add_call(r, name, &text, n_before);
    else
        buffer_free(&text);
    return ok;
}

// What follows <|python_tag|>: at the least it is code.
static void take_python(Reply *r, Str s, int n_before) {
    Buffer text = {0};
    s = stripped(s);
    if (take_objects(r, s, NULL, n_before) || (s.len && take_python_call(r, s, n_before))) return;
    json_put_string(&text, "{\"code\":", s);
    buffer_puts(&text, "}");
    add_call(r, str_of("code_interpreter"), &text, n_before);
}

// <tool_call>...</tool_call> blocks; the bytes before the first, SIZE_MAX: there are none.
static size_t take_blocks(Reply *r, Str s, int n_before) {
    static const char open[] = "<tool_call>", close[] = "</tool_call>";
    size_t first = find(s, open);
    Reply found = {0};
    for (size_t at = first; at != SIZE_MAX; at = find(s, open)) {
        s = after(s, at + sizeof open - 1);
        size_t end = find(s, close);
        Str inside = end == SIZE_MAX ? s : (Str){s.data, end};
        Reply one = {0};
        if (!take_objects(&one, stripped(inside), NULL, n_before + found.n_calls)) {
            first = SIZE_MAX; // a block that is none: all of it stays text
            break;
        }
        for (int i = 0; i < one.n_calls; i++) {
            found.calls = xrealloc(found.calls, (size_t)found.n_calls + 1, sizeof *found.calls);
            found.calls[found.n_calls++] = one.calls[i];
        }
        free(one.calls);
        s = after(s, end == SIZE_MAX ? s.len : end + sizeof close - 1);
    }
    if (first == SIZE_MAX) {
        forget_calls(&found);
        free(found.calls);
        return SIZE_MAX;
    }
    r->calls = found.calls, r->n_calls = found.n_calls;
    return first;
}

// The thoughts at the beginning of a text, up to </think>; returns the bytes they take.
static size_t take_reasoning(Reply *r, Str s, bool in_reasoning) {
    static const char open[] = "<think>", close[] = "</think>";
    Str rest = s;
    while (rest.len && isspace((unsigned char)*rest.data)) rest = after(rest, 1);
    if (begins(rest, open))
        rest = after(rest, sizeof open - 1);
    else if (!in_reasoning)
        return 0;
    size_t end = find(rest, close);
    Str thoughts = {rest.data, end == SIZE_MAX ? rest.len : end};
    r->reasoning = str_copy(stripped(thoughts));
    return end == SIZE_MAX ? s.len : (size_t)(rest.data - s.data) + end + sizeof close - 1;
}

bool reply_is_call(Str raw) {
    raw = stripped(raw);
    return begins(raw, "<|python_tag|>") || begins(raw, "[TOOL_CALLS]");
}

void reply_parse(Reply *r, const Template *tpl, Str raw, Str shown, bool in_reasoning,
                 bool has_tools, int n_before) {
    *r = (Reply){0};
    if (tpl->has_reasoning || in_reasoning) {
        Reply other = {0};
        raw = after(raw, take_reasoning(r, raw, in_reasoning));
        shown = after(shown, take_reasoning(&other, shown, in_reasoning));
        reply_free(&other);
    }
    Str calls = stripped(raw), content = shown;
    size_t n_words = SIZE_MAX;
    bool is_call = reply_is_call(raw);
    if (!tpl->takes_calls)
        content = is_call ? raw : shown, is_call = false;
    else if (begins(calls, "<|python_tag|>"))
        take_python(r, after(calls, 14), n_before);
    else if (begins(calls, "[TOOL_CALLS]"))
        is_call = take_objects(r, after(calls, 12), NULL, n_before);
    else if (has_tools && (n_words = take_blocks(r, calls, n_before)) != SIZE_MAX)
        content = stripped((Str){calls.data, n_words});
    else
        is_call =
            has_tools && calls.len && *calls.data == '{' && take_objects(r, calls, NULL, n_before);
    if (is_call && n_words == SIZE_MAX) content = (Str){0};
    while (r->reasoning.data && content.len && isspace((unsigned char)*content.data))
        content = after(content, 1);
    r->content = str_copy(content);
}

void reply_free(Reply *r) {
    forget_calls(r);
    free(r->calls);
    free((char *)r->content.data);
    free((char *)r->reasoning.data);
    *r = (Reply){0};
}

static void put_extras(Buffer *out, const Reply *r, bool is_api) {
    if (r->reasoning.data) json_put_string(out, ",\"reasoning_content\":", r->reasoning);
    if (r->n_calls) buffer_puts(out, ",\"tool_calls\":[");
    for (int i = 0; i < r->n_calls; i++) {
        json_put_string(out, i ? ",{\"id\":" : "{\"id\":", r->calls[i].id);
        json_put_string(out, ",\"type\":\"function\",\"function\":{\"name\":", r->calls[i].name);
        buffer_puts(out, ",\"arguments\":");
        if (is_api)
            json_put_string(out, "", r->calls[i].arguments);
        else
            buffer_put(out, r->calls[i].arguments);
        buffer_puts(out, "}}");
    }
    if (r->n_calls) buffer_puts(out, "]");
}

void reply_put_extras(Buffer *out, const Reply *r) { put_extras(out, r, true); }

Message reply_message(const Reply *r) {
    Buffer json = {0};
    json_put_string(&json, "{\"role\":\"assistant\",\"content\":", r->content);
    put_extras(&json, r, false);
    buffer_puts(&json, "}");
    return (Message){buffer_str(&json), str_copy(str_of("assistant")), str_copy(r->content),
                     r->n_calls};
}
