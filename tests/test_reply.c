// Parsing replies, and the token stream of a dialogue.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "chat/dialogue.h"
#include "chat/token_stream.h"
#include "chat/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
static const char tools[] = "[" TOOL("f") "," TOOL("g") "," TOOL("now") "," TOOL(
    "brave_search") "," TOOL("code_interpreter") "]";

// Parses a text with control tokens by name; expected: "REASONING|CONTENT|NAME(ARGUMENTS)...".
// The template has one form of calls; NULL: an unknown one.
static void check_form(const CallForm *form, const char *raw, bool has_reasoning, bool in_reasoning,
                       bool has_tools, bool is_truncated, const char *expected) {
    Reply r;
    Buffer found = {0};
    Template tpl = {.has_reasoning = has_reasoning, .takes_calls = true};
    tpl.call_forms[0] = form;
    tpl.n_call_forms = form != NULL;

    ToolOffer offer = {.tools = has_tools ? str_of(tools) : (Str){0}};
    ReplyText text = {str_of(raw), str_of(raw), in_reasoning, is_truncated, false};
    reply_parse(&r, &tpl, &text, offer, 0);

    buffer_printf(&found, "%.*s|%.*s|", (int)r.reasoning.len,
                  r.reasoning.data ? r.reasoning.data : "", (int)r.content.len, r.content.data);
    for (int i = 0; i < r.n_calls; i++)
        buffer_printf(&found, "%s(%s)", r.calls[i].name.data, r.calls[i].arguments.data);
    CHECK(!strcmp(found.data, expected), "%s: found %s, expected %s", raw, found.data, expected);

    // The message for the dialogue has the same calls.
    Message m = reply_message(&r);
    JsonDoc doc = {0};
    Error err = {0};
    CHECK(json_parse(&doc, m.json.data, m.json.len, &err), "%s: %s", m.json.data, err.text);
    const Json *calls = json_get(doc.root, "tool_calls");
    CHECK((calls ? calls->n_items : 0) == r.n_calls, "%s", m.json.data);

    json_free(&doc);
    message_free(&m);
    buffer_free(&found);
    reply_free(&r);
}

static void check_parsed(const char *raw, bool has_reasoning, bool in_reasoning, bool has_tools,
                         bool is_truncated, const char *expected) {
    check_form(NULL, raw, has_reasoning, in_reasoning, has_tools, is_truncated, expected);
}

static void check_reply(const char *raw, bool has_reasoning, bool in_reasoning, bool has_tools,
                        const char *expected) {
    check_parsed(raw, has_reasoning, in_reasoning, has_tools, false, expected);
}

// Texts that resemble calls, in the form of each template: none is a call except a call of an
// offered tool in this form, outside code blocks and reasoning.
static void texts_that_resemble_calls(void) {
    static const CallForm forms[] = {
        {"{\"name\"", "", "parameters", false, NULL, NULL},
        {"<tool_call>", "\n</tool_call>", "arguments", false, NULL, NULL},
        {"[TOOL_CALLS]", "", "arguments", true, NULL, NULL},
        {"<|python_tag|>", "", "parameters", false, NULL, NULL}};
    static const char *const names[] = {"f", "g", "h", "F", "", "f ", "f.g", "now\\u0000"};
    static const char *const keys[] = {"arguments", "parameters", "args", "input"};
    static const char *const values[] = {"{}", "{\"a\":[1]}", "\"{}\"", "null", "[]", "{\"a\":}"};
    static const char *const openers[] = {
        "", "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<toolcall>", "[TOOL_CALL]", "call: "};
    static const char *const before[] = {"", "Text. ", "```json\n", "<think>", "`"};
    unsigned seed = 52;
    int n_calls = 0;

#define DRAW(list)                                                                                 \
    (int)((seed = seed * 1664525 + 1013904223) >> 16) % (int)(sizeof list / sizeof *list)
    for (int i = 0; i < 4000; i++) {
        const CallForm *form = &forms[i % 4];
        int name = DRAW(names), key = DRAW(keys), value = DRAW(values), opener = DRAW(openers);
        int at = DRAW(before), has_list = DRAW(forms) & 1;
        bool is_bare = *form->opener == '{';
        bool is_call = name < 2 && !strcmp(keys[key], form->key) && value < 2 &&
                       has_list == form->is_list &&
                       (at == 0 || (!is_bare && (at == 1 || at == 4))) &&
                       !strcmp(openers[opener], is_bare ? "" : form->opener);
        Buffer text = {0};
        Reply r;
        Template tpl = {
            .takes_calls = true, .has_reasoning = true, .call_forms = {form}, .n_call_forms = 1};

        buffer_printf(&text, "%s%s%s{\"name\": \"%s\", \"%s\": %s}%s%s", before[at],
                      openers[opener], has_list ? "[" : "", names[name], keys[key], values[value],
                      has_list ? "]" : "", opener == 1 ? "</tool_call>" : "");
        ReplyText reply = {.raw = buffer_str(&text), .shown = buffer_str(&text)};
        reply_parse(&r, &tpl, &reply, (ToolOffer){.tools = str_of(tools)}, 0);
        // Python code after the tag is a call of the offered interpreter.
        bool is_code = form == &forms[3] && opener == 3 && has_list && (at < 2 || at == 4);
        CHECK(r.n_calls == (is_call || is_code), "%s %s: %d calls", form->opener, text.data,
              r.n_calls);
        CHECK(!r.n_calls || is_code || str_is(r.calls[0].name, names[name]), "%s", text.data);
        CHECK(r.n_calls || r.reasoning.data || str_contains(r.content, "name"), "%s", text.data);
        n_calls += r.n_calls;
        reply_free(&r);
        buffer_free(&text);
    }
#undef DRAW
    CHECK(n_calls > 10, "%d calls", n_calls);
}

// Truncated calls are content if no tools were offered, and never become Python code.
static void truncated_calls(void) {
    static const char *const cases[][2] = {
        {"<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": ",
         "|<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": |"},
        {"<|python_tag|>{\"name\": \"f", "|<|python_tag|>{\"name\": \"f|"},
        {"[TOOL_CALLS] [{\"name\": \"f\", \"argum", "|[TOOL_CALLS] [{\"name\": \"f\", \"argum|"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 4; k++)
            check_parsed(cases[i][0], false, false, k & 1, k & 2, cases[i][1]);

    check_parsed("<|python_tag|>print(\"x", false, false, false, true, "|<|python_tag|>print(\"x|");
    check_parsed("<|python_tag|>f.call(x=\"a", false, false, false, true,
                 "|<|python_tag|>f.call(x=\"a|");
    check_parsed("<|python_tag|>print(1)", false, false, true, true,
                 "||code_interpreter({\"code\":\"print(1)\"})");
}

static void calls(void) {
    static const char *const cases[][2] = {
        {"plain text", "|plain text|"},
        {"{\"name\": \"f\", \"parameters\": {\"a\": 1.0}}", "||f({\"a\":1.0})"},
        {" {\"name\":\"f\",\"arguments\":{}}; "
         "{\"name\":\"g\",\"parameters\":{\"x\":[1,{\"y\":null}]}}\n",
         "||f({})g({\"x\":[1,{\"y\":null}]})"},
        {"{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"q\":\"}{\\\"\"}}",
         "||f({\"q\":\"}{\\\"\"})"},
        {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "||f({})"},
        {"<|python_tag|>brave_search.call(query=\"a, (b)\", n=3, deep=true)",
         "||brave_search({\"query\":\"a, (b)\",\"n\":3,\"deep\":true})"},
        {"<|python_tag|>now.call()", "||now({})"},
        {"<|python_tag|>print(\"x\")\n", "||code_interpreter({\"code\":\"print(\\\"x\\\")\"})"},
        {"<|python_tag|>f.call(x=)", "||code_interpreter({\"code\":\"f.call(x=)\"})"},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}\n</tool_call>",
         "||f({\"a\":\"b\"})"},
        {"Let me "
         "see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
         "tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}"
         "</tool_call>",
         "|Let me see.|f({})g({})"},
        // without the closing tag, which was the stop token
        {"<tool_call>{\"name\":\"f\",\"arguments\":{}}", "||f({})"},
        {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}, "
         "{\"name\":\"g\",\"arguments\":{}}]",
         "||f({\"a\":1})g({})"},
        // invalid calls are content
        {"{\"name\": \"f\"}", "|{\"name\": \"f\"}|"},
        {"<|python_tag|>f.call(1x)", "||code_interpreter({\"code\":\"f.call(1x)\"})"},
        {"<|python_tag|>f.call(a=1 b=2)", "||code_interpreter({\"code\":\"f.call(a=1 b=2)\"})"},
        {"<|python_tag|>f.call(\"a\")", "||code_interpreter({\"code\":\"f.call(\\\"a\\\")\"})"},
        {"<|python_tag|>f.call(a=\"x\"b)",
         "||code_interpreter({\"code\":\"f.call(a=\\\"x\\\"b)\"})"},
        {"<|python_tag|>.call(a=1)", "||code_interpreter({\"code\":\".call(a=1)\"})"},
        {"<|python_tag|>a b.call(x=1)", "||code_interpreter({\"code\":\"a b.call(x=1)\"})"},
        {"<|python_tag|>f.call(a=1)!", "||code_interpreter({\"code\":\"f.call(a=1)!\"})"},
        {"<|python_tag|>{\"a\": 1} x", "|<|python_tag|>{\"a\": 1} x|"},
        {"{\"name\": 3, \"parameters\": {}}", "|{\"name\": 3, \"parameters\": {}}|"},
        {"[{\"name\": \"f\", \"parameters\": {}}, {\"x\": 1}]",
         "|[{\"name\": \"f\", \"parameters\": {}}, {\"x\": 1}]|"},
        {"{\"name\" \"f\"}", "|{\"name\" \"f\"}|"},
        {"{\"x\": 1, \"name\": \"f\", \"parameters\": {}}",
         "|{\"x\": 1, \"name\": \"f\", \"parameters\": {}}|"},
        {"{\"type\": \"object\", \"name\": \"f\", \"parameters\": {}}",
         "|{\"type\": \"object\", \"name\": \"f\", \"parameters\": {}}|"},
        {"{\"name\": \"f\", \"parameters\": 3}", "|{\"name\": \"f\", \"parameters\": 3}|"},
        {"{\"name\": \"f\", \"parameters\": {}} and more",
         "|{\"name\": \"f\", \"parameters\": {}} and more|"},
        {"{\"name\": \"f\", \"parameters\": {", "|{\"name\": \"f\", \"parameters\": {|"},
        {"<tool_call>f(x)</tool_call>", "|<tool_call>f(x)</tool_call>|"},
        {"[TOOL_CALLS] f", "|[TOOL_CALLS] f|"},
        {"", "||"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_reply(cases[i][0], false, false, true, cases[i][1]);

    // A template that cannot represent calls: the call is content.
    Reply r;
    ReplyText reply = {.raw = str_of("<|python_tag|>f()"), .shown = str_of("f()")};
    reply_parse(&r, &(Template){0}, &reply, (ToolOffer){.tools = str_of(tools)}, 0);
    CHECK(!r.n_calls && str_is(r.content, "<|python_tag|>f()"), "%s", r.content.data);
    reply_free(&r);

    // No tools are offered.
    check_reply("{\"name\":\"f\",\"parameters\":{}}", false, false, false,
                "|{\"name\":\"f\",\"parameters\":{}}|");
    check_reply("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", false, false, false,
                "|<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>|");
}

// The beginning of a call without a tag is decided by the first byte that differs.
static void beginnings(void) {
    static const struct {
        const char *text;
        CallStart start;
    } cases[] = {{"{", CALL_POSSIBLE},
                 {"{\n  \"na", CALL_POSSIBLE},
                 {"{\"name\": \"f", CALL_POSSIBLE},
                 {"{ \"name\" : \"f\"", CALL_BEGUN},
                 {"{\"name\": \"f\", \"x\": 1} and more", CALL_BEGUN},
                 {"{\"name\": \"fo", CALL_NONE},
                 {"{\"names\"", CALL_NONE},
                 {"{\"type\": \"func", CALL_POSSIBLE},
                 {"{\"type\": \"function\"", CALL_BEGUN},
                 {"{\"type\": \"obj", CALL_NONE},
                 {"{\"parameters\": {", CALL_BEGUN},
                 {"{x", CALL_NONE},
                 {"{}", CALL_NONE},
                 {"[{", CALL_NONE}};
    static const CallForm mistral = {.opener = "[TOOL_CALLS]", .key = "arguments", .is_list = true};
    Template tagged = {.takes_calls = true, .call_forms = {&mistral}, .n_call_forms = 1};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Str text = str_of(cases[i].text);
        CallStart found = reply_call_start(&(Template){.takes_calls = true}, str_of(tools), text);
        CHECK(found == cases[i].start, "%s: %d", text.data, (int)found);
        CHECK(reply_call_start(&tagged, str_of(tools), text) == CALL_NONE, "%s", text.data);
    }
}

// A call is taken only in the form of the template, and only of an offered tool.
static void forms(void) {
#define CALL(name, key) "{\"name\":\"" name "\",\"" key "\":{\"a\":1}}"
    static const CallForm all[] = {{.opener = "{\"name\"", .key = "parameters"},
                                   {.opener = "<|python_tag|>", .key = "parameters"},
                                   {.opener = "<tool_call>", .key = "arguments"},
                                   {.opener = "[TOOL_CALLS]", .key = "arguments", .is_list = true}};
    static const char *const before[] = {"", "<|python_tag|>", "<tool_call>", "[TOOL_CALLS]["};
    static const char *const after[] = {"", "", "</tool_call>", "]"};
    enum { N_FORMS = 4 };

    for (int form = 0; form < N_FORMS; form++)
        for (int i = 0; i < N_FORMS; i++)
            for (int k = 0; k < 4; k++) {
                const char *calls[] = {CALL("f", "parameters"), CALL("f", "arguments"),
                                       CALL("x", "parameters"), CALL("x", "arguments")};
                char text[200], fenced[240], expected[260];
                snprintf(text, sizeof text, "%s%s%s", before[i], calls[k], after[i]);
                bool is_call = i == form && k == (form >= 2);
                snprintf(expected, sizeof expected, is_call ? "||f({\"a\":1})" : "|%s|", text);
                check_form(&all[form], text, false, false, true, false, expected);

                // In a code block, or in reasoning that the template does not know.
                snprintf(fenced, sizeof fenced, "So:\n```\n%s\n```", text);
                snprintf(expected, sizeof expected, "|%s|", fenced);
                check_form(&all[form], fenced, false, false, true, false, expected);
                snprintf(fenced, sizeof fenced, "<think>%s</think>", text);
                snprintf(expected, sizeof expected, "|%s|", fenced);
                check_form(&all[form], fenced, false, false, true, false, expected);
            }

    check_form(&all[2], "```\nx\n```\n<tool_call>" CALL("g", "arguments"), false, false, true,
               false, "|```\nx\n```|g({\"a\":1})");
    check_form(&all[1], "<|python_tag|>x.call(a=1)", false, false, false, false,
               "||code_interpreter({\"code\":\"x.call(a=1)\"})");
    check_form(&all[1], "<|python_tag|>" CALL("f", "parameters"), false, false, false, false,
               "|<|python_tag|>" CALL("f", "parameters") "|");
}

static void reasoning(void) {
    check_reply("<think>\nhm\n</think>\n\nDone.", true, false, false, "hm|Done.|");
    check_reply("hm\n</think>\n\nDone.", true, true, false, "hm|Done.|");
    check_reply("hm", true, true, false, "hm||"); // the reply ended within the reasoning
    check_reply("<think>hm", true, false, false, "hm||");
    check_reply("Done. </think>", true, false, false, "|Done. </think>|");
    check_reply("<think>hm</think>Done.", false, false, false, "|<think>hm</think>Done.|");
    check_reply("<think>hm</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", true,
                false, true, "hm||f({})");
}

// A dialogue and its token stream.
typedef struct {
    Buffer file;
    Gguf gguf;
    Tokenizer *t;
    Template tpl;
    Dialogue d;
    TokenStream stream;
} Conversation;

static bool open_conversation(Conversation *k, const char *source) {
    Error err = {0};
    k->file = make_llama_file((MakeLlama){.is_vocabulary_only = true, .template = source});
    bool ok = gguf_parse(&k->gguf, k->file.data, k->file.len, "test", &err);
    k->t = ok ? tokenizer_open(&k->gguf, &err) : NULL;
    ok = k->t && template_open(&k->tpl, NULL, &k->gguf, k->t, &err);
    CHECK(ok, "%s", err.text);
    return ok;
}

static void close_conversation(Conversation *k) {
    dialogue_remove(&k->d, 0, k->d.n);
    free(k->d.messages);

    buffer_free(&k->stream.text);
    buffer_free(&k->stream.mask);
    buffer_free(&k->stream.answer);
    buffer_free(&k->stream.shown);
    free(k->stream.ids.data);
    free(k->stream.answer_ids.data);
    free(k->stream.resume_points);

    template_close(&k->tpl);
    tokenizer_close(k->t);
    gguf_close(&k->gguf);
    buffer_free(&k->file);
}

static void update(Conversation *k) {
    Buffer text = {0}, mask = {0};
    Error err = {0};
    TemplateInput in = {.messages = k->d.messages, .n_messages = k->d.n, .wants_answer = true};
    CHECK(template_render(&k->tpl, k->t, &in, &text, &mask, &err), "%s", err.text);
    token_stream_update(&k->stream, k->t, buffer_str(&text), mask.data);
    buffer_free(&text);
    buffer_free(&mask);
}

static void add_message(Conversation *k, const char *role, const char *content) {
    dialogue_push(&k->d, message_make(str_of(role), str_of(content)));
}

// Adds an answer whose tokens are single bytes, a tokenization that the tokenizer would not
// produce.
static void add_answer(Conversation *k, const char *text) {
    Ids ids = {0};
    Reply r;
    for (const char *c = text; *c; c++) ids_push(&ids, (unsigned char)*c);
    token_stream_add_answer(&k->stream, ids.data, ids.len, str_of(text), str_of(text), -1);
    ReplyText reply = {.raw = str_of(text), .shown = str_of(text)};
    reply_parse(&r, &k->tpl, &reply, (ToolOffer){0}, 0);
    dialogue_push(&k->d, reply_message(&r));
    reply_free(&r);
    free(ids.data);
}

static Ids copy_ids(const Ids *ids) {
    Ids out = {0};
    for (int i = 0; i < ids->len; i++) ids_push(&out, ids->data[i]);
    return out;
}

static int common_prefix(const Ids *a, const Ids *b) {
    int n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return n;
}

#define CHATML(text)                                                                               \
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ " text              \
    " ~ '<|im_end|>\n' }}{% endfor %}"                                                             \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// Answers keep their tokens, and earlier tokens do not change. After an undone turn, encoding
// resumes at the end of an answer.
static void stream(void) {
    Conversation k = {0};
    if (!open_conversation(&k, CHATML("m.content|trim"))) return;

    Ids before = {0};

    for (int turn = 0; turn < 20; turn++) {
        add_message(&k, "user", "in the hi");
        update(&k);
        CHECK(common_prefix(&before, &k.stream.ids) == before.len, "turn %d", turn);

        // The next prompt must begin with this prompt and the answer in single bytes.
        free(before.data);
        before = copy_ids(&k.stream.ids);
        add_answer(&k, "\nin the ");
        for (int i = 0; i < 8; i++) ids_push(&before, (unsigned char)"\nin the "[i]);
    }

    // The last turn is undone. The remaining answers keep their tokens.
    dialogue_remove(&k.d, 38, 40);
    add_message(&k, "user", "other");
    update(&k);
    CHECK(common_prefix(&before, &k.stream.ids) > before.len - 60, "%d of %d",
          common_prefix(&before, &k.stream.ids), before.len);

    // A system message changes the beginning: everything is encoded again.
    dialogue_set_system(&k.d, str_of("Z"));
    update(&k);

    Ids fresh = {0};
    Error err;
    TemplateInput in = {.messages = k.d.messages, .n_messages = k.d.n, .wants_answer = true};
    CHECK(template_encode(&k.tpl, k.t, &in, &fresh, &err), "%s", err.text);
    CHECK(fresh.len == k.stream.ids.len && common_prefix(&fresh, &k.stream.ids) == fresh.len,
          "expected the tokens of one encoding of the whole text");

    free(fresh.data);
    free(before.data);
    close_conversation(&k);
}

// A template removes earlier reasoning: the answer is encoded again without its reasoning.
static void dropped_reasoning(void) {
    Conversation k = {0};
    if (!open_conversation(&k, CHATML("m.content.split('</think>')[-1]|trim"))) return;

    add_message(&k, "user", "q");
    update(&k);
    Ids asked = copy_ids(&k.stream.ids);

    add_answer(&k, "<think>hm</think>in the");
    CHECK(str_is(k.d.messages[1].content, "in the"), "%s", k.d.messages[1].json.data);
    add_message(&k, "user", "q");
    update(&k);

    Error err;
    Ids fresh = {0};
    TemplateInput in = {.messages = k.d.messages, .n_messages = k.d.n, .wants_answer = true};
    CHECK(template_encode(&k.tpl, k.t, &in, &fresh, &err), "%s", err.text);
    CHECK(fresh.len == k.stream.ids.len && common_prefix(&fresh, &k.stream.ids) == fresh.len,
          "expected the tokens of one encoding of the whole text");
    CHECK(common_prefix(&asked, &fresh) == asked.len, "the tokens of the question changed");

    free(asked.data);
    free(fresh.data);
    close_conversation(&k);
}

void test_reply(void) {
    test_case("reply: calls in the forms of Llama 3.1, Hermes and Mistral", calls);
    test_case("reply: forms of templates, tools that were not offered", forms);
    test_case("reply: texts that resemble calls", texts_that_resemble_calls);
    test_case("reply: beginnings of calls without a tag", beginnings);
    test_case("reply: truncated calls", truncated_calls);
    test_case("reply: reasoning", reasoning);
    test_case("token stream: answers keep their tokens", stream);
    test_case("token stream: a template that drops reasoning", dropped_reasoning);
}
