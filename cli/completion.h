// A finished completion: its tokens, its parsed reply, and both as JSON.
//
// Members are always written in the same order, so that equal completions are equal bytes. run,
// chat and batch share these functions.
#pragma once

#include "chat/reply.h"
#include "generate/generate.h"

// Append the tokens of the answer, without the stop token, and its text: what the request has of it
// and what was generated. The session must still exist.
void completion_ids(const Sequence *s, Ids *out);
void completion_ids_from(const Sequence *s, int first, Ids *out); // without the `first` first ones
void completion_text(const Sequence *s, Buffer *out);
// Parses the reply (see reply_parse). tpl NULL: plain text.
void completion_parse(Reply *r, const Template *tpl, const Tokenizer *t, const Sequence *s,
                      ToolOffer offer, int n_before);
// True if the text ended with an error, was cut, by its token limit, the context, a stop string or
// a loop, before it satisfied its constraint, or violates it (completion_check).
bool completion_is_incomplete(const Sequence *s);
// False if the text violates what its constraint does not enforce but checks at the end. Then err
// says where.
bool completion_check(const Sequence *s, Error *err);
const char *completion_finish_reason(const Reply *r, const Sequence *s);
// The content of a reply without the beginning of the answer that the request has.
Str completion_rest(const Reply *r, const Sequence *s);
// Writes members of an object: the beginning of the answer as "answer", if any; the text as
// `text_key`, reasoning and tool calls if there are any, finish reason, token counts and seed;
// "incomplete": true if completion_is_incomplete().
void completion_write(JsonWriter *w, const char *text_key, const Reply *r, const Sequence *s,
                      int n_prompt);
// Writes tokens (n) and their log-probabilities as an array, each with n_top alternatives; a token
// without `top` has none. With is_openai, the members are those of OpenAI's API; otherwise they are
// fewer and include token ids.
void completion_write_logprobs(JsonWriter *w, const char *key, const Tokenizer *t,
                               const TokenLogprob *tokens, int n, int n_top, bool is_openai);
