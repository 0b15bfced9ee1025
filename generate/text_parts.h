// The parts of a generated text: reasoning between tags, then the answer.
//
//     <think> \n It is 42. </think> \n\n The answer is 42.
//     markup     reasoning markup        answer
//
// The text arrives in pieces, and a tag may span several. What may be the beginning of a tag is not
// assigned to a part before more text, or the end, decides. If the prompt has opened the tag, the
// text begins within the reasoning. Text that does not begin with a tag is the answer as a whole.
#pragma once

#include "base/text.h"

typedef enum { PART_ANSWER, PART_REASONING, PART_MARKUP } TextPart; // markup: tags, space around

// How the reasoning begins.
typedef enum {
    REASONING_NEVER, // the text is the answer
    REASONING_MAYBE, // with a tag, if at all
    REASONING_BEGUN  // before the text
} ReasoningStart;

// Offsets in the text; SIZE_MAX if they are not known yet.
typedef struct {
    enum { PARTS_TAG, PARTS_SPACE, PARTS_REASONING, PARTS_GAP, PARTS_ANSWER } phase;
    bool is_begun;
    size_t begin, end; // of the reasoning; equal without one
    size_t answer;     // beginning of the answer
    size_t n_assigned; // bytes that belong to known parts
} TextParts;

TextParts text_parts_begin(ReasoningStart start);
// Reads a text that has grown since the last call; is_end: it will not grow.
void text_parts_read(TextParts *p, Str text, bool is_end);
// The part of a byte that has been assigned, and where it ends, at most n_assigned.
TextPart text_parts_at(const TextParts *p, size_t at, size_t *end);
// Removes the first n bytes of the text.
void text_parts_drop(TextParts *p, size_t n);
