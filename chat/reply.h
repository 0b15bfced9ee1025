// The reply of a model, parsed into reasoning, text and tool calls.
#pragma once

#include "chat/template.h"

typedef struct {
    Str name, arguments; // owned; arguments: a JSON object
} ToolCall;

typedef struct {
    Str content, reasoning;      // owned; reasoning.data is NULL if there is none
    ToolCall *calls;             // (n_calls)
    int n_calls, n_calls_before; // see reply_parse()
    // Bytes of the raw text: the reasoning is [begin, end), the answer begins at `answer`.
    size_t begin, end, answer;
    int n_reasoning, n_answer; // tokens that begin in them, set by completion_parse()
} Reply;

// Appends the text of tokens, with control tokens by name.
void reply_put_raw(const Tokenizer *t, const int *ids, int n, Buffer *out);
// The tools that a model was offered.
typedef struct {
    Str tools;      // a JSON array; data NULL: none
    bool is_forced; // the whole reply is a call, by "tool_choice"
    bool is_banned; // no call can begin
    bool is_single; // at most one call, by "parallel_tool_calls"
    Str only;       // is_forced: the only tool that can be called; data NULL: any
} ToolOffer;

// The text of a reply.
typedef struct {
    Str raw, shown;    // with control tokens by name, and without
    bool in_reasoning; // the prompt ends within reasoning
    bool is_truncated; // it ends at a limit
    bool may_think;    // it may begin with reasoning, even if the template does not know it
} ReplyText;

// Parses the text of a reply. A tool call is taken only in a form that the template writes
// (Template.call_forms), and only of an offered tool:
//   CALL; CALL ...  where CALL is {"name", "parameters"}                          Llama 3.1
//   <|python_tag|>  then CALLs, or NAME.call(KEY=JSON, ...), or Python code       Llama 3.1
//   text <tool_call>CALL</tool_call> ...  where CALL is {"name", "arguments"}     Hermes, Qwen
//   [TOOL_CALLS]    then an array of these CALLs                                  Mistral
// A call without a tag begins with its name, "type": "function", its id or its arguments
// (reply_call_start). Python code calls the tool "code_interpreter". Without tools, only built-in
// tools can be called, by <|python_tag|>. If the form of a template is not known, all of these
// forms are taken, and a forced call is {"name", "parameters"}.
//
// All other text is content: calls in code blocks and in reasoning, calls of other tools, an
// incomplete object and, without tools, any call in a truncated reply. If the template cannot
// represent calls, the whole reply is content. n_calls_before: number of calls in the dialogue so
// far, for the ids of the new ones.
void reply_parse(Reply *r, const Template *tpl, const ReplyText *text, ToolOffer offer,
                 int n_calls_before);
bool reply_is_call(Str raw); // true if a reply begins with the control token of a call
// Compares the beginning of a reply, without its reasoning, with a tool call that has no tag.
typedef enum { CALL_NONE, CALL_POSSIBLE, CALL_BEGUN } CallStart;
CallStart reply_call_start(const Template *tpl, Str tools, Str text);
void reply_free(Reply *r);
// The reply as a message of the dialogue, for the template.
Message reply_message(const Reply *r);
// Writes the members "reasoning_content" and "tool_calls", unless empty. is_api: the arguments of
// calls are a string, as in the API; otherwise an object, the form that templates expect.
void reply_write_extras(JsonWriter *w, const Reply *r, bool is_api);
