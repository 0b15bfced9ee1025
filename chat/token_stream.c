// See token_stream.h.
#include "chat/token_stream.h"

// Appends the next n bytes of the rendered text to the stream's text.
static void extend_text(TokenStream *s, Str text, const char *mask, size_t n) {
    buffer_append(&s->mask, mask + s->text.len, n);
    buffer_append(&s->text, text.data + s->text.len, n);
}

// Adds the tokens of the last answer to the stream if the rendered text continues with the answer
// after s->text. White space at the ends of the answer may differ, and control tokens may be
// missing.
static void find_answer(TokenStream *s, const Tokenizer *t, Str text, const char *mask) {
    Str forms[2] = {content_strip(buffer_str(&s->answer)), content_strip(buffer_str(&s->shown))};
    Str rest = {text.data + s->text.len, text.len - s->text.len}, found = content_skip_space(rest);
    int i = 0;

    while (i < 2 && !str_has_prefix(found, forms[i])) i++;
    if (i == 2) return;
    if (forms[i].len) extend_text(s, text, mask, rest.len - found.len + forms[i].len);
    for (int k = 0; k < s->answer_ids.len; k++) ids_push(&s->ids, s->answer_ids.data[k]);

    // Llama 3.1 ends a tool call with <|eom_id|>, where templates write <|eot_id|>.
    int eom = tokenizer_special_id(t, "<|eom_id|>"), eot = tokenizer_special_id(t, "<|eot_id|>");
    Str end = tokenizer_piece(t, eot, true);

    rest = (Str){text.data + s->text.len, text.len - s->text.len};
    if (eom >= 0 && s->answer_stop == eom && eot >= 0 && str_has_prefix(rest, end) &&
        mask[s->text.len]) {
        extend_text(s, text, mask, end.len);
        ids_push(&s->ids, eom);
    }

    s->resume_points = list_grow(s->resume_points, s->n_resume_points, sizeof *s->resume_points);
    s->resume_points[s->n_resume_points++] = (ResumePoint){s->text.len, s->ids.len};
}

// Looks for the last answer if the text before it is unchanged. Then encodes everything after the
// last valid resume point.
void token_stream_update(TokenStream *s, const Tokenizer *t, Str text, const char *mask) {
    size_t same = 0; // length of the common prefix of the old and the new text
    while (same < text.len && same < s->text.len && text.data[same] == s->text.data[same] &&
           mask[same] == s->mask.data[same])
        same++;

    if (s->has_answer && same == s->text.len) {
        find_answer(s, t, text, mask);
        same = s->text.len;
    }

    s->has_answer = false;
    ResumePoint from = {0};
    int n_valid = 0;
    while (n_valid < s->n_resume_points && s->resume_points[n_valid].text <= same)
        from = s->resume_points[n_valid++];
    s->n_resume_points = n_valid;
    s->ids.len = from.ids;
    s->text.len = s->mask.len = from.text;

    if (from.text == 0) {
        s->n_resume_points = 0;
        template_tokenize(t, text, mask, &s->ids);
    } else {
        tokenizer_encode_masked(t, text.data + from.text, mask + from.text, text.len - from.text,
                                true, &s->ids);
    }

    extend_text(s, text, mask, text.len - from.text);
}

void token_stream_add_answer(TokenStream *s, const int *ids, int n, Str answer, Str shown,
                             int stop) {
    s->has_answer = true;
    s->answer_stop = stop;
    s->answer_ids.len = s->answer.len = s->shown.len = 0;
    for (int i = 0; i < n; i++) ids_push(&s->answer_ids, ids[i]);
    buffer_put(&s->answer, answer);
    buffer_put(&s->shown, shown);
}
