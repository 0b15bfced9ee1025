// The tokens of a growing dialogue.
//
// In each turn, the template renders the whole dialogue again. Encoding the whole text again would
// be slow and wrong: a text has many tokenizations, and the tokens that the model generated, which
// are in the KV cache, are often not the tokens that the tokenizer produces. The stream therefore
// keeps the tokens of each answer, finds the answer in the next rendered text, and encodes only the
// text after it. Invariant: as long as the dialogue only grows, the old tokens are a prefix of the
// new tokens, so that a turn costs only its own tokens.
//
// A resume point is the end of an answer, as a position in the text and in the tokens. If an
// earlier part of the rendered text changes (an undone turn, a template that removes old
// reasoning), encoding resumes at the last resume point before the change, or else at the
// beginning.
#pragma once

#include "chat/template.h"

typedef struct {
    size_t text; // offset in TokenStream.text
    int ids;     // index in TokenStream.ids
} ResumePoint;

// Zero-initialize.
typedef struct {
    Buffer text, mask;          // rendered text and its provenance mask
    Ids ids;                    // its tokens
    ResumePoint *resume_points; // (n_resume_points) in order
    int n_resume_points;
    // The last answer, until the next update looks for it.
    bool has_answer;
    Buffer answer, shown; // text of the answer, with control tokens by name and without them
    Ids answer_ids;
    int answer_stop; // stop token that ended the answer, or -1
} TokenStream;

// Sets s->ids to the tokens of a dialogue, given its rendered text.
void token_stream_update(TokenStream *s, const Tokenizer *t, Str text, const char *mask);
// Records the answer: the n tokens with which the model continued s->ids.
void token_stream_add_answer(TokenStream *s, const int *ids, int n, Str answer, Str shown,
                             int stop);
