// Parses a reply into reasoning, content and tool calls. reply_parse() is the entry point.
//
// take_objects(), take_python_call(), take_python() and take_blocks() recognize one form of tool
// calls each. They add the calls to the reply, or leave it without calls if the text does not have
// this form.
//
// Order: the forms of tool calls, reasoning, then the whole reply.
#include "chat/reply.h"

#include <ctype.h>

static const char python_tag[] = "<|python_tag|>", tool_calls_tag[] = "[TOOL_CALLS]";
static const char bare_opener[] = "{\"name\""; // of a call without a tag

static Str skip(Str s, size_t n) { return (Str){s.data + n, s.len - n}; }

static size_t find_tag(Str s, const char *tag) { return str_find(s, str_of(tag)); }

// The offset of the first tag outside code blocks, or SIZE_MAX.
static size_t find_opener(Str s, const char *tag) {
    int fence = 0;
    for (size_t i = 0; i < s.len; i++)
        if (!fence_read(&fence, s.data[i]) && str_begins_with(skip(s, i), tag)) return i;
    return SIZE_MAX;
}

void reply_put_raw(const Tokenizer *t, const int *ids, int n, Buffer *out) {
    buffer_puts(out, "");
    for (int i = 0; i < n; i++) buffer_put(out, tokenizer_piece(t, ids[i], true));
}

// What the text of a reply is read for.
typedef struct {
    Reply *reply;
    const Json *tools;    // offered; NULL: only the built-in tools of Llama 3.1
    const CallForm *form; // NULL: the template's form is not known, so any form is taken
} CallReader;

static bool is_offered(const CallReader *c, Str name) {
    const Json *tool = c->tools ? c->tools->child : NULL;
    if (!c->tools) return str_is_one_of(name, "brave_search wolfram_alpha code_interpreter");
    while (tool && !str_eq(json_get_string(json_get(tool, "function"), "name")->string, name))
        tool = tool->next;
    return tool;
}

// Adds a call and takes ownership of `arguments`.
static void add_tool_call(Reply *r, Str name, Buffer *arguments) {
    r->calls = xrealloc(r->calls, (size_t)r->n_calls + 1, sizeof *r->calls);
    r->calls[r->n_calls++] = (ToolCall){str_copy(name), buffer_str(arguments)};
}

static void drop_calls(Reply *r) {
    for (int i = 0; i < r->n_calls; i++) {
        free((char *)r->calls[i].name.data);
        free((char *)r->calls[i].arguments.data);
    }
    r->n_calls = 0;
}

// A call of an offered tool: an object with a name and, as KEY, an object of arguments.
static bool take_call(const CallReader *c, const Json *call) {
    const Json *name = json_get_string(call, "name");
    const Json *args = json_get(call, c->form ? c->form->key : "arguments");
    if (!args && !c->form) args = json_get(call, "parameters");
    bool is_call = name && args && args->kind == JSON_OBJECT && is_offered(c, name->string);
    if (!is_call) return false;

    Buffer text = {0};
    json_write_value(&(JsonWriter){&text, false}, NULL, args, NULL);
    add_tool_call(c->reply, name->string, &text);
    return true;
}

// Compares a text with the beginning of a call; white space does not count. A text with an escape
// may spell the same name in another way.
static CallStart compare_start(Str text, const char *start) {
    bool has_escape = false;
    for (size_t i = 0; i < text.len && *start; i++) {
        if (isspace((unsigned char)text.data[i])) continue;
        while (isspace((unsigned char)*start)) start++;
        has_escape |= text.data[i] == '\\';
        if (text.data[i] != *start++) return has_escape ? CALL_POSSIBLE : CALL_NONE;
    }
    return *start ? CALL_POSSIBLE : CALL_BEGUN;
}

// Compares a text with the calls that have no tag. Their first member is the name of an offered
// tool or another member of a call. What differs is text, as soon as it differs.
static CallStart find_start(const CallReader *c, Str text) {
    static const char *const others[] = {"{\"type\":\"function\"", "{\"id\"", "{\"parameters\"",
                                         "{\"arguments\""};
    CallStart best = CALL_NONE;
    Buffer start = {0};

    for (const Json *tool = c->tools->child; tool; tool = tool->next) {
        start.len = 0;
        buffer_puts(&start, "{\"name\":");
        json_quote(&start, json_get_string(json_get(tool, "function"), "name")->string);
        CallStart found = compare_start(text, start.data);
        if (found > best) best = found;
    }
    buffer_free(&start);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CallStart found = compare_start(text, others[i]);
        if (found > best) best = found;
    }
    return best;
}

// A call, or an array of calls, as the form says.
static bool take_call_or_list(const CallReader *c, const Json *root) {
    bool is_list = root->kind == JSON_ARRAY;
    if (c->form && c->form->is_list != is_list) return false;
    if (!is_list) return take_call(c, root);

    for (const Json *call = root->child; call; call = call->next)
        if (!take_call(c, call)) return false;
    return true;
}

// Objects {"name": ..., KEY: {...}}, or an array of them, as the form says; separated by white
// space or semicolons. They must fill s, and call offered tools.
static bool take_objects(const CallReader *c, Str s) {
    JsonDoc doc = {.keeps_last = true}; // an open object may repeat a name
    bool ok = true;
    int n = c->reply->n_calls;

    while (ok) {
        while (s.len && (isspace((unsigned char)*s.data) || *s.data == ';')) s = skip(s, 1);
        if (!s.len) break;

        size_t len = *s.data == '{' || *s.data == '[' ? json_span(s) : 0;
        ok = len && json_parse(&doc, s.data, len, &(Error){0}) && take_call_or_list(c, doc.root);
        s = skip(s, len);
    }
    json_free(&doc);

    ok = ok && c->reply->n_calls > n;
    if (!ok) drop_calls(c->reply);
    return ok;
}

static size_t word_length(Str s, const char *more) {
    size_t n = 0;
    while (n < s.len && s.data[n] && (isalnum((unsigned char)s.data[n]) || strchr(more, s.data[n])))
        n++;
    return n;
}

// Writes KEY=JSON, at the beginning of `rest`, as a member, and removes it with the comma behind
// it. Only brackets and quotes of the value are checked.
static bool write_python_argument(JsonWriter *w, Str *rest) {
    size_t key = word_length(*rest, "_");
    if (!key || key == rest->len || rest->data[key] != '=') return false;
    json_write_key(w, (Str){rest->data, key});
    *rest = skip(*rest, key + 1);

    size_t n = 0;
    if (rest->len && memchr("\"[{", *rest->data, 3))
        n = json_span(*rest);
    else
        while (n < rest->len && rest->data[n] != ',') n++;
    if (!n || memchr(rest->data, 0, n)) return false;
    json_write_format(w, NULL, "%.*s", (int)n, rest->data);

    *rest = content_strip(skip(*rest, n));
    if (!rest->len) return true;
    if (*rest->data != ',') return false;
    *rest = skip(*rest, 1);
    return true;
}

// NAME.call(KEY=JSON, ...), the form in which Llama 3.1 calls its built-in tools. It must fill s.
static bool take_python_call(const CallReader *c, Str s) {
    size_t n = find_tag(s, ".call(");
    if (n == SIZE_MAX || n == 0 || word_length(s, "_.-") < n || s.data[s.len - 1] != ')')
        return false;

    // The arguments become members of an object.
    Str name = {s.data, n};
    Str rest = content_strip((Str){s.data + n + 6, s.len - n - 7});
    Buffer text = {0};
    JsonWriter w = json_object(&text);
    bool ok = is_offered(c, name);
    while (ok && rest.len) {
        ok = write_python_argument(&w, &rest);
        rest = content_strip(rest);
    }
    json_end_object(&w);

    // If a value is not valid JSON, the text is not a call.
    JsonDoc doc = {0};
    ok = ok && json_parse(&doc, text.data, text.len, &(Error){0});
    json_free(&doc);

    if (ok)
        add_tool_call(c->reply, name, &text);
    else
        buffer_free(&text);
    return ok;
}

// The text after <|python_tag|>: a call in one of the two forms above, or else Python code.
static void take_python(const CallReader *c, Str s) {
    static const Str interpreter = {"code_interpreter", 16};
    Buffer text = {0};
    s = content_strip(s);
    if (take_objects(c, s) || (s.len && take_python_call(c, s))) return;
    if (s.len && *s.data == '{') return; // a truncated object, or the call of another tool
    if (!is_offered(c, interpreter)) return;
    JsonWriter w = json_object(&text);
    json_write_string(&w, "code", s);
    json_end_object(&w);
    add_tool_call(c->reply, interpreter, &text);
}

// <tool_call>...</tool_call> blocks; the last one may lack its closing tag. Returns the offset of
// the first block; the reply has no calls if there is none or a block contains no valid call.
static size_t take_blocks(const CallReader *c, Str s) {
    static const char open[] = "<tool_call>", close[] = "</tool_call>";
    size_t first = find_opener(s, open);
    for (size_t at = first; at != SIZE_MAX; at = find_opener(s, open)) {
        s = skip(s, at + sizeof open - 1);
        size_t n_json = json_span(content_skip_space(s)); // a string may contain the tag
        size_t end = find_tag(skip(s, n_json), close);
        if (!take_objects(c, end == SIZE_MAX ? s : (Str){s.data, n_json + end}) || end == SIZE_MAX)
            break;
        s = skip(s, n_json + end + sizeof close - 1);
    }
    return first;
}

// Finds the reasoning at the beginning of a text, up to </think>. Returns the number of bytes that
// the reasoning and its tags take; the reasoning itself is [*begin, *end).
static size_t take_reasoning(Str s, bool in_reasoning, size_t *begin, size_t *end) {
    static const char open[] = "<think>", close[] = "</think>";
    Str rest = content_skip_space(s);
    *begin = *end = 0;
    if (str_begins_with(rest, open))
        *begin = (size_t)(rest.data - s.data) + sizeof open - 1;
    else if (!in_reasoning)
        return 0;
    size_t n = find_tag(skip(s, *begin), close);
    *end = n == SIZE_MAX ? s.len : *begin + n;
    return n == SIZE_MAX ? s.len : *end + sizeof close - 1;
}

bool reply_is_call(Str raw) {
    raw = content_strip(raw);
    return str_begins_with(raw, python_tag) || str_begins_with(raw, tool_calls_tag);
}

// Selects the form with this opener. False if the template has other forms.
static bool select_form(CallReader *c, const Template *tpl, const char *opener) {
    c->form = NULL;
    for (int i = 0; i < tpl->n_call_forms; i++)
        if (!strcmp(tpl->call_forms[i]->opener, opener)) c->form = tpl->call_forms[i];
    return c->form || !tpl->n_call_forms;
}

CallStart reply_call_start(const Template *tpl, Str tools, Str text) {
    CallReader c = {0};
    JsonDoc doc = {0};
    CallStart found = CALL_NONE;
    if (select_form(&c, tpl, bare_opener) && json_parse(&doc, tools.data, tools.len, &(Error){0})) {
        c.tools = doc.root;
        found = find_start(&c, text);
    }
    json_free(&doc);
    return found;
}

// Adds the calls after the tag at `at`, if the template has this form.
static void take_tagged(CallReader *c, const Template *tpl, Str s, size_t at, const char *tag) {
    if (!select_form(c, tpl, tag)) return;
    s = skip(s, at + strlen(tag));
    if (tag == python_tag)
        take_python(c, s);
    else
        take_objects(c, s);
}

// Adds the calls of a stripped reply without its reasoning. Returns the length of the text before
// them, if it has any.
static size_t take_calls(CallReader *c, const Template *tpl, Str s) {
    const Reply *r = c->reply;
    size_t python = find_opener(s, python_tag);

    // Without tools, only the tag of the built-in tools, at the beginning, is a call.
    if (!c->tools) {
        if (python == 0) take_tagged(c, tpl, s, python, python_tag);
        return 0;
    }

    size_t blocks = select_form(c, tpl, "<tool_call>") ? take_blocks(c, s) : 0;
    if (r->n_calls) return blocks;
    bool is_bare = select_form(c, tpl, bare_opener) && find_start(c, s) != CALL_NONE;
    if (is_bare && take_objects(c, s)) return 0;

    if (python != SIZE_MAX) take_tagged(c, tpl, s, python, python_tag);
    if (r->n_calls) return python;
    size_t list = find_opener(s, tool_calls_tag);
    if (list != SIZE_MAX) take_tagged(c, tpl, s, list, tool_calls_tag);
    return list;
}

// Takes the calls of a forced reply. They have Llama's form if that of the template is unknown.
static size_t take_forced(CallReader *c, const Template *tpl, Str s) {
    if (tpl->n_call_forms) return take_calls(c, tpl, s);
    take_objects(c, s);
    return 0;
}

void reply_parse(Reply *r, const Template *tpl, const ReplyText *text, ToolOffer offer,
                 int n_calls_before) {
    static const CallForm bare = {.key = "parameters"};
    Str raw = text->raw, shown = text->shown;
    size_t n_before = 0; // bytes before the calls
    JsonDoc tools = {0};
    *r = (Reply){.n_calls_before = n_calls_before};

    if (tpl->has_reasoning || text->may_think || text->in_reasoning) {
        size_t begin, end;
        shown = skip(shown, take_reasoning(shown, text->in_reasoning, &begin, &end));
        r->answer = take_reasoning(raw, text->in_reasoning, &r->begin, &r->end);
        if (r->answer || text->in_reasoning)
            r->reasoning = str_copy(content_strip((Str){raw.data + r->begin, r->end - r->begin}));
        raw = skip(raw, r->answer);
    }

    // Tool calls are parsed from the raw text, which contains control tokens by name. Reasoning
    // that the template does not know has none.
    Str calls = content_strip(raw);
    CallReader c = {.reply = r, .form = &bare};
    if (offer.tools.len && json_parse(&tools, offer.tools.data, offer.tools.len, &(Error){0}))
        c.tools = tools.root;
    bool may_call = tpl->takes_calls && (c.tools || !text->is_truncated);
    if (offer.is_forced)
        n_before = take_forced(&c, tpl, calls);
    else if (may_call && !str_begins_with(calls, "<think>"))
        n_before = take_calls(&c, tpl, calls);
    json_free(&tools);

    // The content of a reply with calls is the text before them, if it has any. A reply that only
    // resembles a call is content, with its tag.
    Str content = reply_is_call(raw) ? raw : shown;
    if (r->n_calls) content = content_strip((Str){calls.data, n_before});
    r->content = str_copy(r->reasoning.data ? content_skip_space(content) : content);
}

void reply_free(Reply *r) {
    drop_calls(r);
    free(r->calls);
    free((char *)r->content.data);
    free((char *)r->reasoning.data);
    *r = (Reply){0};
}

void reply_write_extras(JsonWriter *w, const Reply *r, bool is_api) {
    if (r->reasoning.data) json_write_string(w, "reasoning_content", r->reasoning);
    if (!r->n_calls) return;

    json_begin_array(w, "tool_calls");
    for (int i = 0; i < r->n_calls; i++) {
        json_begin_object(w, NULL);

        // Mistral's templates require ids of nine letters and digits.
        json_write_format(w, "id", "\"call%05d\"", (r->n_calls_before + i + 1) % 100000);

        json_write_string(w, "type", str_of("function"));
        json_begin_object(w, "function");
        json_write_string(w, "name", r->calls[i].name);
        if (is_api)
            json_write_string(w, "arguments", r->calls[i].arguments);
        else
            json_write_format(w, "arguments", "%s", r->calls[i].arguments.data);
        json_end_object(w);
        json_end_object(w);
    }
    json_end_array(w);
}

Message reply_message(const Reply *r) {
    Buffer json = {0};
    JsonWriter w = json_object(&json);
    json_write_string(&w, "role", str_of("assistant"));
    json_write_string(&w, "content", r->content);
    reply_write_extras(&w, r, false);
    json_end_object(&w);
    return (Message){buffer_str(&json), str_copy(str_of("assistant")), str_copy(r->content),
                     r->n_calls};
}
