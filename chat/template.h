// Chat templates: messages -> text -> token ids.
//
// template_open() chooses a template, template_render() renders messages, tools and variables to
// text, template_tokenize() encodes the text. Templates are written in Jinja. They come from the
// model file, from --template FILE, or are built in (chat/templates/).
//
// Invariant: every byte of a control token in the result was written by the template itself. No
// message, tool or variable can forge one: rendering tracks the provenance of each byte
// (chat/jinja/jinja_value.h), and the tokenizer parses special tokens only where the mask is 1.
#pragma once

#include "chat/message.h"
#include "tokenizer.h"
#include "chat/jinja/jinja.h"

// A form of tool calls. The text after `opener` is JSON: {"name": ..., KEY: {...}}, or with is_list
// an array of such objects; then `closer` follows. An opener that begins with a brace is the
// beginning of that JSON.
typedef struct {
    const char *opener, *closer, *key;
    bool is_list;
    const char *variables, *probe; // see find_call_forms()
} CallForm;

enum { MAX_CALL_FORMS = 2 }; // of a template

// Reasoning of the model: as the template does by default, wanted, or not.
typedef enum { REASONING_AUTO, REASONING_ON, REASONING_OFF } Reasoning;

typedef struct {
    const char *name;
    bool is_none;       // the template "none" for base models, which writes no roles
    Jinja *plain;       // for dialogues without tools
    Jinja *with_tools;  // for dialogues with tools; equals `plain` unless the model file has both
    Str variables;      // --chat-template-kwargs: a JSON object; data NULL: none. Not owned
    bool takes_tools;   // mentions "tools"
    bool takes_calls;   // mentions "tool_calls", and does not drop a call
    bool has_reasoning; // mentions "</think>": replies may begin with reasoning
    const CallForm *call_forms[MAX_CALL_FORMS]; // (n_call_forms) that the template writes; they
    int n_call_forms;                           // have the same key, closer and is_list
    struct tm today;                            // local time, or $SOURCE_DATE_EPOCH in UTC
    int end_token;  // that it writes behind an answer, a stop token of the vocabulary; or -1
    bool has_space; // it writes a space before an answer
    char *stop;     // stop string of replies that no control token ends, or NULL
    Buffer missing; // control tokens that the template writes but the vocabulary lacks, or empty
} Template;

// Opens the template `name`, a file or a built-in template. If `name` is NULL, opens the template
// of the model file or, if it has none, the built-in template that fits its vocabulary. Reserves
// the special tokens that the template writes in t. False with err: exit 2 for an unknown name, 3
// for an invalid template in the model file.
bool template_open(Template *tpl, const char *name, const Gguf *g, Tokenizer *t, Error *err);
void template_close(Template *tpl);
// The name of the i-th built-in template; NULL after the last.
const char *template_builtin_name(int i);

typedef struct {
    const Message *messages; // (n_messages)
    int n_messages;
    Str tools;         // JSON array as in the OpenAI API; data NULL: none
    Str variables;     // JSON object of further variables, which override all others, even the
                       // messages; data NULL: none
    bool wants_answer; // append the beginning of the assistant's next message
    // REASONING_OFF: if the template cannot turn reasoning off, the text ends with an empty block
    // of reasoning.
    Reasoning reasoning;
} TemplateInput;

// Appends the text and its provenance mask. False with err (exit 1) if the template fails.
bool template_render(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Buffer *text,
                     Buffer *mask, Error *err);
// Appends the tokens of a rendered text, with exactly one BOS if the vocabulary adds BOS.
void template_tokenize(const Tokenizer *t, Str text, const char *mask, Ids *out);
// Renders and tokenizes.
bool template_encode(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Ids *out,
                     Error *err);
