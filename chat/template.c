// Chooses a template, derives its properties, and renders it.
// Order: choosing a template, facts about it, opening, rendering to tokens.
#include "chat/template.h"
#include "base/files.h"

#include <ctype.h>

// Choosing

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
enum { N_BUILTINS = sizeof builtin_templates / sizeof *builtin_templates };

const char *template_builtin_name(int i) {
    return i < N_BUILTINS ? builtin_templates[i].name : NULL;
}

// True if general.name says that the model is made for dialogue.
static bool is_named_chat(const Gguf *g) {
    Str name = gguf_get_text(g, "general.name");
    char lower[256];
    size_t n = name.len < sizeof lower ? name.len : sizeof lower;
    for (size_t i = 0; i < n; i++) lower[i] = (char)tolower((unsigned char)name.data[i]);
    return str_contains((Str){lower, n}, "instruct") || str_contains((Str){lower, n}, "chat");
}

// The built-in template that fits the control tokens of a vocabulary. Base models of Llama 3 have
// the control tokens of dialogues as well, but their EOS is not the end of a turn.
static const char *template_for_vocabulary(const Gguf *g, const Tokenizer *t) {
    static const struct {
        const char *name, *start, *end; // control tokens of a turn
    } formats[] = {{"llama3", "<|start_header_id|>", "<|eot_id|>"},
                   {"chatml", "<|im_start|>", "<|im_end|>"}};
    for (int i = 0; i < 2; i++) {
        int end = tokenizer_special_id(t, formats[i].end);
        if (end >= 0 && tokenizer_special_id(t, formats[i].start) >= 0 &&
            (end == tokenizer_eos(t) || is_named_chat(g)))
            return formats[i].name;
    }
    return "none";
}

static bool open_named(Template *tpl, const char *name, Error *err) {
    const char *source = NULL;
    Buffer text = {0}, names = {0};

    for (int i = 0; i < N_BUILTINS; i++) {
        if (!strcmp(builtin_templates[i].name, name)) source = builtin_templates[i].source;
        buffer_printf(&names, "%s%s", i ? ", " : "", builtin_templates[i].name);
    }

    tpl->name = name;
    tpl->is_none = !strcmp(name, "none");
    if (str_ends_with(str_of(name), ".jinja") || strchr(name, '/')) {
        if (file_read_text(name, &text, err)) tpl->plain = jinja_open(buffer_str(&text), name, err);
        if (!tpl->plain) err->code = EXIT_USAGE;
    } else if (source) {
        tpl->plain = jinja_open(str_of(source), name, err);
    } else {
        error_set(err, EXIT_USAGE, "--template: expected FILE.jinja or one of %s; found \"%s\"",
                  names.data, name);
    }

    buffer_free(&text);
    buffer_free(&names);
    tpl->with_tools = tpl->plain;
    return tpl->plain;
}

static bool open_from_model(Template *tpl, const Gguf *g, Str source, Error *err) {
    Str tools = gguf_get_text(g, "tokenizer.chat_template.tool_use");
    Error why = {0};
    tpl->name = "of the file";
    tpl->plain = tpl->with_tools = jinja_open(source, "tokenizer.chat_template", &why);
    if (tpl->plain && tools.len)
        tpl->with_tools = jinja_open(tools, "tokenizer.chat_template.tool_use", &why);
    if (tpl->with_tools) return true;
    jinja_close(tpl->plain);
    tpl->plain = NULL;
    return error_set(err, EXIT_MODEL,
                     "%s: %s; --template chooses another template, --raw uses none", g->path,
                     why.text);
}

// Facts about an opened template

// The texts of the dialogue that probe_template() renders: bytes that no template contains.
static const char question[] = "\x01", answer[] = "\x02";

// Adds the names <|...|> in `plain` to tpl->missing. `plain` is a rendered text without its control
// tokens, so the vocabulary lacks these names.
static void find_missing(Template *tpl, const char *plain) {
    for (const char *at = plain; (at = strstr(at, "<|"));) {
        size_t n = strcspn(at += 2, "|> \n\1\2");
        if (!n || strncmp(at + n, "|>", 2)) continue;
        Str name = {at - 2, n + 4};
        if (str_find(buffer_str(&tpl->missing), name) != SIZE_MAX) continue;
        if (tpl->missing.len) buffer_puts(&tpl->missing, ", ");
        buffer_put(&tpl->missing, name);
    }
}

// Sets tpl->stop to the first line of text between an answer and the next question, if that line
// looks like markup rather than a word.
static void find_stop_text(Template *tpl, const char *from) {
    from += strspn(from, " \n");
    Str line = {from, strcspn(from, "\n\1")}; // \1: the question
    while (line.len && from[line.len - 1] == ' ') line.len--;
    if (line.len > 1 && (strchr("<[#", *from) || from[line.len - 1] == ':'))
        tpl->stop = (char *)str_copy(line).data;
}

// Finds what the template writes around an answer, between two questions: a space before it, and
// the token that ends it. That is the first that is known to end answers, or else the first special
// one. Command R's answers end with <|END_TEXT|><|END_OF_TURN_TOKEN|>, GLM's with the <|user|> of
// the question.
static void find_end_token(Template *tpl, Tokenizer *t, const Ids *ids) {
    int i = 0;
    while (i < ids->len && !str_contains(tokenizer_piece(t, ids->data[i], false), answer)) i++;
    tpl->has_space = i > 0 && str_ends_with(tokenizer_piece(t, ids->data[i - 1], false), " ");

    for (i++; i < ids->len && !tokenizer_is_stop(t, tpl->end_token); i++) {
        int id = ids->data[i];
        if (str_contains(tokenizer_piece(t, id, false), question)) break;
        bool is_first = tpl->end_token < 0 && tokenizer_is_special(t, id);
        if (is_first || tokenizer_is_stop(t, id)) tpl->end_token = id;
    }
    tokenizer_add_stop(t, tpl->end_token, "chat template");
}

// Renders a question, an answer and a question, and examines the text around them.
static void probe_template(Template *tpl, Tokenizer *t) {
    Message messages[3] = {message_make(str_of("user"), str_of(question)),
                           message_make(str_of("assistant"), str_of(answer)),
                           message_make(str_of("user"), str_of(question))};
    Buffer plain = {0};
    Ids ids = {0};
    Error err;
    TemplateInput in = {.messages = messages, .n_messages = 3, .wants_answer = true};

    // The rendered text, without control tokens.
    buffer_puts(&plain, "");
    if (!tpl->is_none && template_encode(tpl, t, &in, &ids, &err))
        for (int i = 0; i < ids.len; i++)
            if (!tokenizer_is_special(t, ids.data[i]))
                buffer_put(&plain, tokenizer_piece(t, ids.data[i], false));

    tpl->end_token = -1;
    find_end_token(tpl, t, &ids);

    // Control tokens that the vocabulary lacks, and a stop string from the text after the answer.
    find_missing(tpl, plain.data);
    const char *from = strchr(plain.data, *answer);
    if (from && strchr(from, *question)) find_stop_text(tpl, from + 1);

    for (int i = 0; i < 3; i++) message_free(&messages[i]);
    buffer_free(&plain);
    free(ids.data);
}

// Forms of tool calls: as reply_parse() reads them, and what a template writes for the call of a
// probe, white space aside.
static const CallForm call_forms[] = {
    {"{\"name\"", "", "parameters", false, "{}",
     "{\"name\":\"probe\",\"parameters\":{\"key\":\"v\"}}"},
    {"<|python_tag|>", "", "parameters", false, "{\"builtin_tools\":[\"probe\"]}",
     "<|python_tag|>probe.call(key=\"v\")"},
    {"<tool_call>", "\n</tool_call>", "arguments", false, "{}",
     "<tool_call>{\"name\":\"probe\",\"arguments\":{\"key\":\"v\"}}</tool_call>"},
    {"[TOOL_CALLS]", "", "arguments", true, "{}",
     "[TOOL_CALLS][{\"name\":\"probe\",\"arguments\":{\"key\":\"v\"}"}};

// Renders the call of a probe with each form's variables, and keeps the forms whose text appears
// after the question.
static void find_call_forms(Template *tpl, const Tokenizer *t) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"probe\","
                                "\"description\":\"\",\"parameters\":{\"type\":\"object\","
                                "\"properties\":{}}}}]";
    static const char call[] =
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00001\",\"type\":"
        "\"function\",\"function\":{\"name\":\"probe\",\"arguments\":{\"key\":\"v\"}}}]}";
    Message messages[2] = {message_make(str_of("user"), str_of("\x01")), {.json = str_of(call)}};

    for (size_t i = 0; i < sizeof call_forms / sizeof *call_forms; i++) {
        const CallForm *form = &call_forms[i];
        TemplateInput in = {.messages = messages,
                            .n_messages = 2,
                            .tools = str_of(tools),
                            .variables = str_of(form->variables)};
        Buffer text = {0}, mask = {0}, squeezed = {0};
        Error err;

        bool ok = tpl->takes_calls && template_render(tpl, t, &in, &text, &mask, &err);
        const char *from = ok ? strchr(text.data, '\x01') : NULL;
        if (ok && (!from || !strstr(from, "probe"))) tpl->takes_calls = false; // it drops the call
        for (; from && *from; from++)
            if (!isspace((unsigned char)*from)) buffer_append(&squeezed, from, 1);
        if (str_contains(buffer_str(&squeezed), form->probe) && tpl->n_call_forms < MAX_CALL_FORMS)
            tpl->call_forms[tpl->n_call_forms++] = form;

        buffer_free(&text);
        buffer_free(&mask);
        buffer_free(&squeezed);
    }
    message_free(&messages[0]);
}

static bool mentions(const Template *tpl, const char *word) {
    return str_contains(jinja_source(tpl->plain), word) ||
           str_contains(jinja_source(tpl->with_tools), word);
}

static bool set_today(Template *tpl, Error *err) {
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    bool is_fixed = epoch && *epoch;
    int64_t sec = is_fixed ? 0 : (int64_t)time(NULL);
    bool is_number = !is_fixed || parse_i64(epoch, &sec);
    time_t now = (time_t)sec;
    const struct tm *today = is_fixed ? gmtime(&now) : localtime(&now);
    if (is_fixed && !(is_number && today))
        return error_set(err, EXIT_USAGE,
                         "SOURCE_DATE_EPOCH: expected seconds since 1970, found \"%s\"", epoch);
    tpl->today = today ? *today : (struct tm){.tm_mday = 1};
    return true;
}

bool template_open(Template *tpl, const char *name, const Gguf *g, Tokenizer *t, Error *err) {
    Str source = gguf_get_text(g, "tokenizer.chat_template");

    *tpl = (Template){0};
    if (!set_today(tpl, err)) return false;
    if (!name && !source.len) name = template_for_vocabulary(g, t);
    if (!(name ? open_named(tpl, name, err) : open_from_model(tpl, g, source, err))) return false;

    tpl->takes_tools = mentions(tpl, "tools");
    tpl->takes_calls = mentions(tpl, "tool_calls");
    tpl->has_reasoning = mentions(tpl, "</think>");

    // Reserves the special tokens of the templates: no message can produce them.
    if (!tpl->is_none) tokenizer_reserve_special(t, jinja_source(tpl->plain));
    if (tpl->with_tools != tpl->plain) tokenizer_reserve_special(t, jinja_source(tpl->with_tools));
    probe_template(tpl, t);
    find_call_forms(tpl, t);
    return true;
}

void template_close(Template *tpl) {
    if (tpl->with_tools != tpl->plain) jinja_close(tpl->with_tools);
    jinja_close(tpl->plain);
    buffer_free(&tpl->missing);
    free(tpl->stop);
}

// Rendering

// Role names count as text of the template, because templates write them between control tokens.
static bool is_role_name(const Json *string) {
    return str_is(string->key, "role") && message_is_role(string->string);
}

// The variables that every template has.
static void write_input(Buffer *out, const TemplateInput *in) {
    JsonWriter w = json_object(out);
    json_write_bool(&w, "add_generation_prompt", in->wants_answer);
    if (in->reasoning != REASONING_AUTO) { // Qwen's name, and that of DeepSeek and Granite
        json_write_bool(&w, "enable_thinking", in->reasoning == REASONING_ON);
        json_write_bool(&w, "thinking", in->reasoning == REASONING_ON);
    }
    json_write_null(&w, "documents");
    json_write_format(&w, "tools", "%.*s", in->tools.data ? (int)in->tools.len : 4,
                      in->tools.data ? in->tools.data : "null");
    json_begin_array(&w, "messages");
    for (int i = 0; i < in->n_messages; i++)
        json_write_format(&w, NULL, "%.*s", (int)in->messages[i].json.len,
                          in->messages[i].json.data);
    json_end_array(&w);
    json_end_object(&w);
}

// Writes the variables that count as text of the template: bos_token and eos_token, from the last
// object that has them as strings or else from the vocabulary.
static void write_template_vars(Buffer *out, const Tokenizer *t, const Json *const objects[3]) {
    static const char *const names[2] = {"bos_token", "eos_token"};
    int ids[2] = {tokenizer_bos(t), tokenizer_eos(t)};
    JsonWriter w = json_object(out);
    for (int i = 0; i < 2; i++) {
        Str value = ids[i] < 0 ? str_of("") : tokenizer_piece(t, ids[i], true);
        for (int k = 0; k < 3; k++) {
            const Json *v = json_get_string(objects[k], names[i]);
            if (v) value = v->string;
        }
        json_write_string(&w, names[i], value);
    }
    json_end_object(&w);
}

// Appends an empty block of reasoning, or the rest of one, to a text that ends with the beginning
// of an answer; not if the template has turned reasoning off, so that its text differs from that
// with reasoning.
static void close_reasoning(const Template *tpl, const Tokenizer *t, const TemplateInput *in,
                            Buffer *text, Buffer *mask) {
    Str answer = content_strip(buffer_str(text));
    bool is_open = str_ends_with(answer, "<think>");
    if (str_ends_with(answer, "</think>") || (!is_open && !tpl->has_reasoning)) return;

    if (is_open) {
        text->len -= (size_t)(text->data + text->len - (answer.data + answer.len));
    } else {
        Buffer other = {0}, other_mask = {0};
        TemplateInput with_reasoning = *in;
        with_reasoning.reasoning = REASONING_ON;
        bool ok = template_render(tpl, t, &with_reasoning, &other, &other_mask, &(Error){0});
        bool is_off = !ok || !str_eq(buffer_str(text), buffer_str(&other));
        buffer_free(&other);
        buffer_free(&other_mask);
        if (is_off) return;
        buffer_puts(text, "<think>");
    }

    buffer_puts(text, "\n\n</think>\n\n");
    while (mask->len < text->len) buffer_append(mask, "\1", 1);
    mask->len = text->len;
}

bool template_render(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Buffer *text,
                     Buffer *mask, Error *err) {
    Buffer input = {0}, vars = {0};
    JsonDoc docs[4] = {{0}};
    const Json *objects[3], *tools = NULL;
    bool ok = true;

    write_input(&input, in);
    Str sources[3] = {buffer_str(&input), tpl->variables, in->variables};
    for (int i = 0; ok && i < 3; i++) {
        ok = !sources[i].len || json_parse(&docs[i], sources[i].data, sources[i].len, err);
        objects[i] = docs[i].root;
        if (json_get(objects[i], "tools")) tools = json_get(objects[i], "tools");
    }

    if (ok) write_template_vars(&vars, t, objects);
    ok = ok && json_parse(&docs[3], vars.data, vars.len, err) &&
         jinja_render(tools && tools->n_items ? tpl->with_tools : tpl->plain,
                      &(JinjaInput){objects, 3, docs[3].root, is_role_name, &tpl->today}, text,
                      mask, err);
    if (ok && in->wants_answer && in->reasoning == REASONING_OFF)
        close_reasoning(tpl, t, in, text, mask);

    for (int i = 0; i < 4; i++) json_free(&docs[i]);
    buffer_free(&input);
    buffer_free(&vars);

    return ok;
}

void template_tokenize(const Tokenizer *t, Str text, const char *mask, Ids *out) {
    int bos = tokenizer_bos(t), start = out->len, n_bos = 0;
    if (tokenizer_adds_bos(t)) ids_push(out, bos);
    if (text.len) tokenizer_encode_masked(t, text.data, mask, text.len, false, out);
    while (tokenizer_adds_bos(t) && start + n_bos < out->len && out->data[start + n_bos] == bos)
        n_bos++;
    if (n_bos < 2) return; // two or more: the template writes BOS too
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
