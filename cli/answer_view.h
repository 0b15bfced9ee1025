// Shows the text of an answer, piece by piece.
//
// On a terminal, stdout has the whole text: reasoning is dim, words are wrapped and, in a chat,
// Markdown is styled. Elsewhere stdout has the answer alone, and stderr the reasoning, unless -q is
// given. With --reasoning-format none, stdout has the text as it was generated.
#pragma once

#include "cli/markdown.h"
#include "cli/options.h"
#include "generate/text_parts.h"

typedef struct {
    const Options *options;
    bool is_styled;   // Markdown has styles on a terminal
    bool skips_space; // white space at the beginning is not shown

    // State
    bool has_text; // something has been shown
    int fd;        // of the last piece; 0: none
    bool is_dim;
    bool ends_line; // the last piece ended with a newline
    Markdown markdown;
} AnswerView;

// Dies unless --reasoning-format has a known value (exit 2).
void view_check(const Options *o);
// True if the text is shown as it was generated: --reasoning-format none.
bool view_is_raw(const Options *o);
void view_put(AnswerView *v, Str text, TextPart part);
// Ends the text with a newline, if it has none.
void view_end(AnswerView *v);
