// See text_parts.h.
#include "generate/text_parts.h"

#include <string.h>

static const Str open_tag = {"<think>", 7}, close_tag = {"</think>", 8};

TextParts text_parts_begin(ReasoningStart start) {
    if (start == REASONING_NEVER) return (TextParts){.phase = PARTS_ANSWER};
    return (TextParts){.is_begun = start == REASONING_BEGUN,
                       .begin = SIZE_MAX,
                       .end = SIZE_MAX,
                       .answer = SIZE_MAX};
}

static size_t skip_space(Str text, size_t at) {
    while (at < text.len && text.data[at] && strchr(" \t\r\n\v\f", text.data[at])) at++;
    return at;
}

// The number of bytes at the end of a text that may be the beginning of the closing tag.
static size_t count_begun(Str text) {
    size_t n = text.len < close_tag.len ? text.len : close_tag.len - 1;
    while (n && memcmp(text.data + text.len - n, close_tag.data, n) != 0) n--;
    return n;
}

// At the beginning, before a tag is complete.
static void read_tag(TextParts *p, Str text, bool is_end) {
    size_t at = skip_space(text, 0);
    Str rest = {text.data + at, text.len - at};

    if (str_has_prefix(rest, open_tag)) {
        p->n_assigned = at + open_tag.len;
        p->phase = PARTS_SPACE;
    } else if (!is_end && str_has_prefix(open_tag, rest)) {
        return;
    } else if (p->is_begun) {
        p->phase = PARTS_SPACE;
    } else {
        p->begin = p->end = p->answer = 0;
        p->phase = PARTS_ANSWER;
    }
}

static void read_reasoning(TextParts *p, Str text, bool is_end) {
    Str rest = {text.data + p->n_assigned, text.len - p->n_assigned};
    size_t at = str_find(rest, close_tag);

    if (at != SIZE_MAX) {
        p->end = p->n_assigned + at;
        p->n_assigned = p->end + close_tag.len;
        p->phase = PARTS_GAP;
    } else {
        p->n_assigned = text.len - (is_end ? 0 : count_begun(rest));
    }
}

void text_parts_read(TextParts *p, Str text, bool is_end) {
    if (p->n_assigned > text.len)
        p->n_assigned = text.len; // the end has lost a part of a character
    if (p->phase == PARTS_TAG) read_tag(p, text, is_end);

    if (p->phase == PARTS_SPACE) {
        p->n_assigned = p->begin = skip_space(text, p->n_assigned);
        if (p->begin < text.len) p->phase = PARTS_REASONING;
    }

    if (p->phase == PARTS_REASONING) read_reasoning(p, text, is_end);

    if (p->phase == PARTS_GAP) {
        p->n_assigned = skip_space(text, p->n_assigned);
        if (p->n_assigned < text.len || is_end) p->answer = p->n_assigned;
        if (p->n_assigned < text.len) p->phase = PARTS_ANSWER;
    }

    if (p->phase == PARTS_ANSWER) p->n_assigned = text.len;
}

TextPart text_parts_at(const TextParts *p, size_t at, size_t *end) {
    TextPart part = PART_MARKUP;
    size_t limit = p->answer;

    if (at >= p->answer) {
        part = PART_ANSWER;
        limit = SIZE_MAX;
    } else if (at < p->begin) {
        limit = p->begin;
    } else if (at < p->end) {
        part = PART_REASONING;
        limit = p->end;
    }

    *end = limit < p->n_assigned ? limit : p->n_assigned;
    return part;
}

static void drop(size_t *at, size_t n) {
    if (*at != SIZE_MAX) *at = *at > n ? *at - n : 0;
}

void text_parts_drop(TextParts *p, size_t n) {
    drop(&p->begin, n);
    drop(&p->end, n);
    drop(&p->answer, n);
    drop(&p->n_assigned, n);
}
