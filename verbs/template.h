// Chat encodings: messages -> token ids. Roles and content are tokenised apart, so nothing in a message can forge a
// control token.
#ifndef VERBS_TEMPLATE_H
#define VERBS_TEMPLATE_H

#include "../tokenizer.h"

typedef enum { TEMPLATE_NONE, TEMPLATE_LLAMA3, TEMPLATE_LLAMA2, TEMPLATE_ZEPHYR, TEMPLATE_CHATML } Template;

typedef struct {
    Str role;    // "system", "user", "assistant", "ipython" ("tool" is the same)
    Str content;
} Message;

const char *template_name(Template t);
// By name ("llama3", "llama2", "zephyr", "chatml", "none"), or -1.
int template_of(const char *name);
// What the file's chat template text says (recognised, never evaluated), or, where it has none, what the control
// tokens of its vocabulary say. TEMPLATE_NONE for a base model; *is_unknown is set if it has a template we do not know.
Template template_recognise(const Gguf *g, const Tokenizer *t, bool *is_unknown);

// Appends BOS (if the model uses one) - the start of a dialogue.
void template_begin(Template tpl, const Tokenizer *t, Ids *out);
// Appends one message as it stands in a finished dialogue. index counts messages from 0 (Llama 2 folds the system
// message into the first user message: pass it as `system` there).
void template_message(Template tpl, const Tokenizer *t, const Message *m, Ids *out);
// Appends what precedes the assistant's answer.
void template_answer(Template tpl, const Tokenizer *t, Ids *out);
// Whether a control token (or piece) ends the assistant's turn in this template, beyond the model's own stop ids.
const char *template_stop(Template tpl);

#endif
