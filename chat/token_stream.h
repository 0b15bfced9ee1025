// The tokens of a growing dialogue.
//
// Each turn the template renders the whole dialogue anew. Encoding that text anew would be wrong
// and slow: text has many tokenizations, and the model's own tokens, which the KV cache holds, are
// rarely the one that the tokenizer chooses. So the stream keeps the tokens of each answer, finds
// the answer again in the next rendered text, and encodes only what follows. Then the tokens of the
// dialogue so far stay a prefix of the new ones, and a turn costs its own tokens.
//
// A resume point is a position behind an answer, in the text and in the tokens. If the rendered
// text changes further back (an undone turn, a template that removes old reasoning), encoding
// resumes at the last resume point before the change, or starts again.
#ifndef CHAT_TOKEN_STREAM_H
#define CHAT_TOKEN_STREAM_H

#include "template.h"

typedef struct {
    size_t text; // bytes of TokenStream.text before it
    int ids;     // tokens before it
} ResumePoint;

// Zero-initialise.
typedef struct {
    Buffer text, mask;          // rendered text and its provenance mask
    Ids ids;                    // its tokens
    ResumePoint *resume_points; // (n_resume_points) in order
    int n_resume_points;
    // the last answer, until the next update has looked for it
    bool has_answer;
    Buffer answer, shown; // its text with control tokens by name, and without
    Ids answer_ids;
    int answer_stop; // the token that ended it, or -1
} TokenStream;

// Sets s->ids to the tokens of the dialogue as it is rendered now.
void token_stream_update(TokenStream *s, const Tokenizer *t, Str text, const char *mask);
// The model has continued s->ids with these n tokens.
void token_stream_add_answer(TokenStream *s, const int *ids, int n, Str answer, Str shown,
                             int stop);

#endif
