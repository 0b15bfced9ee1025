// Answers of a model as JSON, for run, chat and batch; and the closing stats line.
#ifndef CLI_ANSWERS_H
#define CLI_ANSWERS_H

#include "options.h"
#include "../chat/reply.h"
#include "../generate.h"

// The tokens of an answer, without the one that ended it; what they say (see reply_parse; tpl NULL:
// plain text). The session is still there.
void answer_ids(const Sequence *s, Ids *out);
void answer_parse(Reply *r, const Template *tpl, const Tokenizer *t, const Sequence *s,
                  bool has_tools, int n_before);
const char *answer_finish(const Reply *r, const Sequence *s); // finish_name, or "tool_calls"
// An answer as members of a JSON object: `before` (its brace and name), the text, how it ended,
// counts and seed.
void answer_put(Buffer *out, const char *before, const Reply *r, const Sequence *s, int n_prompt);
// JSON array of the recorded tokens of a sequence with n_top alternatives each, as OpenAI writes it
// or with ids.
void logprobs_put(Buffer *out, const Tokenizer *t, const Sequence *s, int n_top, bool is_openai);
// Begins a request on a session and reads its prompt, with progress; the first token is there
// then. The second goes on to the end.
void answer_read(const Options *o, Generator *g, Sequence *s, const Request *r, Session *session);
void answer_generate(const Options *o, Generator *g, Sequence *s, const Request *r,
                     Session *session);
// Notes for people: an answer that was cut, and by what; a text that repeats itself over and over.
void ending_print(const Options *o, const Generator *g, const Sequence *s);
// "prefill 512 tok 91.2 tok/s | decode 128 tok 4.6 tok/s | seed 42" on stderr, in 80 columns; with
// -v also GB/s.
void stats_print(const Options *o, const Generator *g, uint64_t seed);

#endif
