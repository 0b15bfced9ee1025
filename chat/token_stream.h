// The tokens of a growing dialogue.
//
// Each turn the template renders the whole dialogue again. Encoding all of that text would be wrong
// and slow: a text has many tokenizations, and the one that the model generated, which is in the KV
// cache, is often not the one that the tokenizer chooses. So the stream keeps the tokens of each
// answer, finds the answer in the next rendered text, and encodes only the text after it.
// Invariant: as long as the dialogue only grows, the old tokens are a prefix of the new ones, so
// that a turn costs only its own tokens.
//
// A resume point is the end of an answer, as a position in the text and in the tokens. If the
// rendered text changes earlier (an undone turn, a template that removes old reasoning), encoding
// resumes at the last resume point before the change, or starts from the beginning.
#pragma once

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

// Sets s->ids to the tokens of the dialogue, given its rendered text.
void token_stream_update(TokenStream *s, const Tokenizer *t, Str text, const char *mask);
// The model has continued s->ids with these n tokens.
void token_stream_add_answer(TokenStream *s, const int *ids, int n, Str answer, Str shown,
                             int stop);
