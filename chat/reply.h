// The reply of a model, parsed into reasoning, text and tool calls.
#pragma once

#include "template.h"

typedef struct {
    Str id, name, arguments; // owned; arguments: a JSON object
} ToolCall;

typedef struct {
    Str content, reasoning; // owned; reasoning.data is NULL if there is none
    ToolCall *calls;        // (n_calls)
    int n_calls;
} Reply;

// Whether a prompt ends in <think>, so that the reply begins inside the reasoning.
bool reply_begins_in_reasoning(const Tokenizer *t, const int *prompt, int n);
// Appends the text of tokens, with control tokens by name.
void reply_put_raw(const Tokenizer *t, const int *ids, int n, Buffer *out);
// Parses the text of a reply: `raw` has control tokens by name, `shown` does not contain them.
// These forms of tool calls are known:
//   {"name", "parameters" or "arguments"}, or several after ';' (*)    Llama 3.1
//   <|python_tag|>, then those, or NAME.call(KEY=JSON, ...), or code    Llama 3.1
//   text <tool_call>{"name", "arguments"}</tool_call> ... (*)           Hermes, Qwen
//   [TOOL_CALLS] and an array of such objects                           Mistral
// (*) only if has_tools: tools were offered. Anything else is text, and so is everything if the
// template cannot represent calls. n_before: calls of the dialogue so far, to number the ids.
void reply_parse(Reply *r, const Template *tpl, Str raw, Str shown, bool in_reasoning,
                 bool has_tools, int n_before);
bool reply_is_call(Str raw); // begins with the control token of a call
void reply_free(Reply *r);
// The reply as a message of the dialogue, for the template.
Message reply_message(const Reply *r);
// Writes the members "reasoning_content" and "tool_calls" as in the API, if there are any.
void reply_write_extras(JsonWriter *w, const Reply *r);
