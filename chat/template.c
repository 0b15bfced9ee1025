// llama3  <|begin_of_text|>(<|start_header_id|>ROLE<|end_header_id|>\n\n TEXT <|eot_id|>)*
//         as Meta's ChatFormat encodes it: TEXT stripped, each part tokenised by itself. A call that the model made
//         for a tool (assistant text that starts with <|python_tag|>) ends with <|eom_id|>.
// llama2  (<s>[INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\n USER [/INST] ANSWER </s>)*, <<SYS>> in the first turn only
// zephyr  <s><|ROLE|>\nTEXT</s>(\n<|ROLE|>\nTEXT</s>)*, as TinyLlama was trained: <|ROLE|> is ordinary text there
// chatml  <|im_start|>ROLE\nTEXT<|im_end|>(\n<|im_start|>ROLE\nTEXT<|im_end|>)*
// none    the texts one after another
//
// Text is never tokenised with control tokens on, so a control token written in a message is a run of ordinary ones.
// What Llama 2 and Zephyr use as ordinary text ([INST], <|user|>) can be written by anybody: those formats are so.
#include "template.h"

#include <ctype.h>
#include <string.h>

static const char *const names[] = {"none", "llama3", "llama2", "zephyr", "chatml"};
enum { N_TEMPLATES = sizeof names / sizeof *names };

const char *template_name(Template t) { return names[t]; }

Template template_of(const char *name) {
    for (int i = 0; i < N_TEMPLATES; i++)
        if (!strcmp(name, names[i])) return (Template)i;
    return TEMPLATE_UNKNOWN;
}

const char *template_stop(Template tpl) {
    static const char *const stops[] = {
        [TEMPLATE_LLAMA2] = "[INST]", [TEMPLATE_ZEPHYR] = "<|user|>", [TEMPLATE_CHATML] = "<|im_end|>"};
    return stops[tpl];
}

bool template_has_role(Str role) {
    static const char *const roles[] = {"system", "user", "assistant", "ipython", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (str_is(role, roles[i])) return true;
    return false;
}

// Whether the file calls itself a model for dialogue.
static bool is_named_chat(const Gguf *g) {
    Str name = gguf_text(g, "general.name");
    char lower[256];
    size_t n = name.len < sizeof lower ? name.len : sizeof lower;
    for (size_t i = 0; i < n; i++) lower[i] = (char)tolower((unsigned char)name.data[i]);
    return str_contains((Str){lower, n}, "instruct") || str_contains((Str){lower, n}, "chat");
}

// A base model of Llama 3 has the control tokens of its dialogue too: what it calls the end of a text tells them apart.
static Template recognise_vocabulary(const Gguf *g, const Tokenizer *t) {
    Error err;
    uint64_t eos = UINT64_MAX;
    if (gguf_find(g, "tokenizer.ggml.eos_token_id")) gguf_u64(g, "tokenizer.ggml.eos_token_id", &eos, &err);
    int eot = tokenizer_special(t, "<|eot_id|>"), end = tokenizer_special(t, "<|im_end|>");
    if (eot >= 0 && tokenizer_special(t, "<|start_header_id|>") >= 0 && (eos == (uint64_t)eot || is_named_chat(g)))
        return TEMPLATE_LLAMA3;
    if (end >= 0 && tokenizer_special(t, "<|im_start|>") >= 0 && (eos == (uint64_t)end || is_named_chat(g)))
        return TEMPLATE_CHATML;
    return TEMPLATE_NONE;
}

Template template_recognise(const Gguf *g, const Tokenizer *t) {
    Str text = gguf_text(g, "tokenizer.chat_template");
    if (!text.len) return recognise_vocabulary(g, t);
    if (str_contains(text, "<|start_header_id|>") && str_contains(text, "<|eot_id|>")) return TEMPLATE_LLAMA3;
    if (str_contains(text, "<|im_start|>")) return TEMPLATE_CHATML;
    if (str_contains(text, "[INST]") && str_contains(text, "<<SYS>>")) return TEMPLATE_LLAMA2;
    if (str_contains(text, "<|user|>") && str_contains(text, "<|assistant|>") &&
        (str_contains(text, "eos_token") || str_contains(text, "</s>")))
        return TEMPLATE_ZEPHYR;
    return TEMPLATE_UNKNOWN;
}

static Str strip(Str s) {
    while (s.len && isspace((unsigned char)s.data[0])) s.data++, s.len--;
    while (s.len && isspace((unsigned char)s.data[s.len - 1])) s.len--;
    return s;
}

static void put(const Tokenizer *t, Str text, Ids *out) { tokenizer_encode(t, text.data, text.len, out); }

// A control token, or its name as text where the vocabulary has none.
static void put_control(const Tokenizer *t, const char *name, Ids *out) {
    int id = tokenizer_special(t, name);
    if (id >= 0)
        ids_push(out, id);
    else
        put(t, str_of(name), out);
}

static void put_bos(const Tokenizer *t, Ids *out) {
    if (tokenizer_bos(t) >= 0) ids_push(out, tokenizer_bos(t));
}

static void llama3_header(const Tokenizer *t, Str role, Ids *out) {
    put_control(t, "<|start_header_id|>", out);
    put(t, role, out);
    put_control(t, "<|end_header_id|>", out);
    put(t, str_of("\n\n"), out);
}

static void llama3_message(const Tokenizer *t, const Message *m, Ids *out) {
    static const char tag[] = "<|python_tag|>";
    Str role = str_is(m->role, "tool") ? str_of("ipython") : m->role, text = strip(m->content);
    bool is_call = str_is(role, "assistant") && text.len >= sizeof tag - 1 && !memcmp(text.data, tag, sizeof tag - 1) &&
                   tokenizer_special(t, tag) >= 0 && tokenizer_special(t, "<|eom_id|>") >= 0;
    llama3_header(t, role, out);
    if (is_call) {
        put_control(t, tag, out);
        text = (Str){text.data + sizeof tag - 1, text.len - (sizeof tag - 1)};
    }
    put(t, text, out);
    put_control(t, is_call ? "<|eom_id|>" : "<|eot_id|>", out);
}

// `system`: what stood before this message, folded into it; or NULL.
static void llama2_message(const Tokenizer *t, const Message *m, const Message *system, Ids *out) {
    Buffer text = {0};
    Str content = strip(m->content);
    if (str_is(m->role, "assistant")) {
        buffer_put(&text, content);
        buffer_puts(&text, " ");
    } else {
        buffer_puts(&text, "[INST] ");
        if (system) {
            buffer_puts(&text, "<<SYS>>\n");
            buffer_put(&text, system->content);
            buffer_puts(&text, "\n<</SYS>>\n\n");
        }
        buffer_put(&text, content);
        buffer_puts(&text, " [/INST]");
        put_bos(t, out);
    }
    put(t, buffer_str(&text), out);
    if (str_is(m->role, "assistant")) put_control(t, "</s>", out);
    buffer_free(&text);
}

// Zephyr and ChatML: what opens a message, up to its text, is one piece with it for the tokenizer.
static void marked_message(Template tpl, const Tokenizer *t, Str role, Str content, bool is_first, Ids *out) {
    Buffer text = {0};
    if (!is_first) buffer_puts(&text, "\n");
    if (tpl == TEMPLATE_CHATML && tokenizer_special(t, "<|im_start|>") >= 0) {
        put(t, buffer_str(&text), out);
        text.len = 0;
        put_control(t, "<|im_start|>", out);
    } else {
        buffer_puts(&text, tpl == TEMPLATE_CHATML ? "<|im_start|>" : "<|");
    }
    buffer_put(&text, role);
    buffer_puts(&text, tpl == TEMPLATE_CHATML ? "\n" : "|>\n");
    buffer_put(&text, content);
    put(t, buffer_str(&text), out);
    buffer_free(&text);
}

static void put_message(Template tpl, const Tokenizer *t, const Message *messages, int i, Ids *out) {
    const Message *m = &messages[i];
    bool is_system = str_is(m->role, "system");
    Str role = tpl == TEMPLATE_ZEPHYR && !is_system && !str_is(m->role, "assistant") ? str_of("user") : m->role;
    switch (tpl) {
    case TEMPLATE_LLAMA3: llama3_message(t, m, out); break;
    case TEMPLATE_LLAMA2:
        if (!is_system) llama2_message(t, m, i && str_is(m[-1].role, "system") ? &m[-1] : NULL, out);
        break;
    case TEMPLATE_ZEPHYR:
    case TEMPLATE_CHATML:
        marked_message(tpl, t, role, m->content, i == 0, out);
        template_close(tpl, t, -1, out);
        break;
    case TEMPLATE_UNKNOWN:
    case TEMPLATE_NONE:
        // SentencePiece begins a text with a space by itself.
        if (i && !tokenizer_drops_space(t)) put(t, str_of(" "), out);
        put(t, m->content, out);
    }
}

void template_encode(Template tpl, const Tokenizer *t, const Message *messages, int n, int first, bool wants_answer,
                     Ids *out) {
    bool is_llama = tpl == TEMPLATE_LLAMA3;
    if (first == 0 && tpl != TEMPLATE_LLAMA2 && (is_llama || tokenizer_adds_bos(t))) put_bos(t, out);
    for (int i = first; i < n; i++) put_message(tpl, t, messages, i, out);
    if (!wants_answer) return;
    if (is_llama) llama3_header(t, str_of("assistant"), out);
    if (tpl == TEMPLATE_ZEPHYR || tpl == TEMPLATE_CHATML)
        marked_message(tpl, t, str_of("assistant"), str_of(""), n == 0, out);
}

void template_close(Template tpl, const Tokenizer *t, int stop_token, Ids *out) {
    static const char *const ends[] = {[TEMPLATE_LLAMA3] = "<|eot_id|>",
                                       [TEMPLATE_LLAMA2] = "</s>",
                                       [TEMPLATE_ZEPHYR] = "</s>",
                                       [TEMPLATE_CHATML] = "<|im_end|>"};
    int eom = tokenizer_special(t, "<|eom_id|>");
    if (tpl == TEMPLATE_LLAMA3 && stop_token >= 0 && stop_token == eom) {
        ids_push(out, eom);
    } else if (tpl != TEMPLATE_NONE) {
        put_control(t, ends[tpl], out);
    } else if (stop_token >= 0) { // the text has ended: another begins
        ids_push(out, stop_token);
        if (tokenizer_adds_bos(t) && tokenizer_bos(t) != stop_token) put_bos(t, out);
    }
}
