// Chat encodings: messages -> token ids. Roles and content are tokenised apart, so nothing in a message can forge a
// control token.
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "../tokenizer.h"

typedef enum {
    TEMPLATE_UNKNOWN = -1,
    TEMPLATE_NONE,
    TEMPLATE_LLAMA3,
    TEMPLATE_LLAMA2,
    TEMPLATE_ZEPHYR,
    TEMPLATE_CHATML
} Template;

typedef struct {
    Str role; // "system", "user", "assistant", "ipython" ("tool" is the same)
    Str content;
} Message;

const char *template_name(Template t);
// By name ("llama3", "llama2", "zephyr", "chatml", "none"), or TEMPLATE_UNKNOWN.
Template template_of(const char *name);
// What the file's chat template text says (recognised, never evaluated), or, where it has none, what the control
// tokens of its vocabulary say. TEMPLATE_NONE for a base model.
Template template_recognise(const Gguf *g, const Tokenizer *t);

// Appends messages [first, n) of a dialogue as they stand when finished (the start of the dialogue too if first is 0),
// and with `wants_answer` what precedes the assistant's next message.
void template_encode(Template tpl, const Tokenizer *t, const Message *messages, int n, int first, bool wants_answer,
                     Ids *out);
// Appends what stands between an answer that the model has just generated and the next message; stop_token is what
// ended the answer, or -1.
void template_close(Template tpl, const Tokenizer *t, int stop_token, Ids *out);
// A string that ends the assistant's turn in this template, beyond the model's own stop tokens, or NULL.
const char *template_stop(Template tpl);
// Whether a message may have this role.
bool template_has_role(Str role);

#endif
