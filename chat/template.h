// Chat templates: messages -> text -> token ids. The text is what the template's Jinja makes of
// them; its control tokens are those that the template itself wrote, so nothing in a message, a
// tool or a name can forge one.
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "../tokenizer.h"
#include "../jinja/jinja.h"

// A message as the OpenAI API has it, as the text of a JSON object with its members in order: role,
// content (a string, null, or parts), tool_calls, tool_call_id, name, reasoning_content and
// whatever else there is.
typedef struct {
    Str json;
    Str role, content; // of it, decoded; content is empty if it is no string
    bool has_calls;    // tool_calls
} Message;

typedef struct {
    const char *name;
    bool is_none;      // the texts one after another: a model that was made for no dialogue
    Jinja *plain;      // of the dialogue
    Jinja *with_tools; // where there are tools; the same unless the file has two
    Buffer variables;  // of --template-var: a JSON object
    bool takes_tools, takes_calls; // mentions tools; tool_calls of messages
    bool has_reasoning;            // its answers may begin with thoughts, up to </think>
    struct tm today;               // of $SOURCE_DATE_EPOCH, or now
    char *stop;     // text that ends an answer, where no control token does; NULL: none
    Buffer missing; // names of its text that look like control tokens and are none of the
                    // vocabulary, or empty
} Template;

// The template of this name ("llama3.1", or a file that ends in .jinja), or, name NULL, the file's
// own; where that has none, what the control tokens of its vocabulary say. Its names become control
// tokens of t (tokenizer_reserve_special). False with err: exit 2 for a name that is unknown, 3 for
// a template of the file that we cannot read.
bool template_open(Template *tpl, const char *name, const Gguf *g, Tokenizer *t, Error *err);
void template_close(Template *tpl);
// Names of the built-in ones, separated by commas.
void template_put_names(Buffer *out);
// Adds a variable, "NAME=JSON". False with err (exit 2).
bool template_set(Template *tpl, const char *text, Error *err);

// What is to be rendered.
typedef struct {
    const Message *messages; // (n_messages)
    int n_messages;
    Str tools;         // JSON array as the API has it; data NULL: none
    Str variables;     // JSON object of more variables, which may hold the messages too; data NULL:
                       // none
    bool wants_answer; // add what precedes the assistant's next message
} TemplateInput;

// The text, and for each byte whether the template wrote it. False with err (exit 1): the template
// refuses.
bool template_render(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Buffer *text,
                     Buffer *mask, Error *err);
// Its tokens, appended; those of rendered text. A text begins with one BOS where the vocabulary
// wants it.
bool template_encode(const Template *tpl, const Tokenizer *t, const TemplateInput *in, Ids *out,
                     Error *err);
void template_tokenize(const Tokenizer *t, Str text, const char *mask, Ids *out);

// Whether a message may have this role.
bool template_has_role(Str role);
// The message of a parsed object, whose arguments of tool calls become objects where they are
// strings of JSON, and whose parts of text become one. Its texts are owned. False with err: what is
// wrong, or cannot be represented.
bool message_read(const Json *object, Message *out, Error *err);
Message message_make(Str role, Str content);
void message_free(Message *m);

#endif
