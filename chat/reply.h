// What a model has answered: its thoughts, its words, and the calls of tools in it.
#ifndef CHAT_REPLY_H
#define CHAT_REPLY_H

#include "template.h"

typedef struct {
    Str id, name, arguments; // arguments: a JSON object; all owned
} ToolCall;

typedef struct {
    Str content, reasoning; // owned; reasoning has data NULL where there is none
    ToolCall *calls;        // (n_calls)
    int n_calls;
} Reply;

// Whether a prompt ends in <think>: the answer begins in the middle of its thoughts.
bool reply_begins_in_reasoning(const Tokenizer *t, const int *prompt, int n);
// The text of tokens with control tokens by their names.
void reply_put_raw(const Tokenizer *t, const int *ids, int n, Buffer *out);
// Takes an answer apart: `raw` has control tokens by their names, `shown` has not. Calls are known
// in these forms:
//   {"name", "parameters" | "arguments"} alone, or several after ';'      Llama 3.1; where tools
//   were offered
//   <|python_tag|> and then that, or NAME.call(KEY=JSON, ...), or code    Llama 3.1
//   <tool_call>{"name", "arguments"}</tool_call>, after words or not      Hermes; where tools were
//   offered [TOOL_CALLS] and an array of such objects                             Mistral
// Anything else is words, and so is a call where the template has no place for one in its messages.
// n_before: calls of the dialogue so far, for the ids.
void reply_parse(Reply *r, const Template *tpl, Str raw, Str shown, bool in_reasoning,
                 bool has_tools, int n_before);
bool reply_is_call(Str raw); // whether it begins with a control token of calls
void reply_free(Reply *r);
// Its message; `,"reasoning_content":...,"tool_calls":[...]` as the API has them, where there are
// any.
Message reply_message(const Reply *r);
void reply_put_extras(Buffer *out, const Reply *r);

#endif
