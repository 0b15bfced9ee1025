// Chat templates: messages -> text -> token ids.
//
// template_open() chooses a template, template_render() makes a text of messages, tools and
// variables, template_tokenize() encodes it. The templates are Jinja: those of model files, of
// --template FILE, and built-in ones (chat/templates/).
//
// Invariant: a control token in the result was written by the template itself, every byte of it.
// Nothing in a message, a tool or a variable can forge one: rendering keeps the provenance of each
// byte (jinja/jinja_value.h), and the tokenizer parses special tokens only where the mask is 1.
#pragma once

#include "message.h"
#include "../tokenizer.h"
#include "../jinja/jinja.h"

typedef struct {
    const char *name;
    bool is_none;       // the template "none", of base models: texts without roles
    Jinja *plain;       // for dialogues
    Jinja *with_tools;  // for dialogues with tools; the same unless the model file has two
    Buffer variables;   // --template-var: a JSON object, or empty
    bool takes_tools;   // mentions "tools"
    bool takes_calls;   // mentions "tool_calls"
    bool has_reasoning; // mentions "</think>": replies may begin with reasoning
    struct tm today;    // local time, or $SOURCE_DATE_EPOCH in UTC
    char *stop;         // text that ends a reply if no control token does, or NULL
    Buffer missing; // control tokens that the template writes but the vocabulary lacks, or empty
} Template;

// Opens the template `name`: a file, or a built-in one. NULL: that of the model file, or, if it has
// none, the one that its vocabulary suggests. The special tokens that the template writes are then
// reserved in t. False with err: exit 2 for an unknown name, 3 for an invalid template of the model
// file.
bool template_open(Template *tpl, const char *name, const Gguf *g, Tokenizer *t, Error *err);
void template_close(Template *tpl);
// Appends the names of the built-in templates, separated by commas.
void template_put_names(Buffer *out);
// Sets a variable from "NAME=JSON". False with err (exit 2).
bool template_set(Template *tpl, const char *text, Error *err);

typedef struct {
    const Message *messages; // (n_messages)
    int n_messages;
    Str tools;         // JSON array as in the API; data NULL: none
    Str variables;     // JSON object of further variables, which win, even over the messages; data
                       // NULL: none
    bool wants_answer; // append what precedes the assistant's next message
} TemplateInput;

// Appends the text and its provenance mask. False with err (exit 1) if the template fails.
bool template_render(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Buffer *text,
                     Buffer *mask, Error *err);
// Appends the tokens of a rendered text. It begins with one BOS if the vocabulary wants one.
void template_tokenize(const Tokenizer *t, Str text, const char *mask, Ids *out);
// Renders and tokenizes.
bool template_encode(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Ids *out,
                     Error *err);
