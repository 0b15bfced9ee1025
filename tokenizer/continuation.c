// See continuation.h.
#include "tokenizer/continuation.h"

#include <math.h>

// Encodes the last token's text and the new text together, and drops the ids of the last token.
// With SentencePiece, which adds a space at the beginning of a text, a line break replaces the last
// token. False without ids if one token spans both texts.
static bool encode_behind(const Tokenizer *t, int last, Str text, bool parse_special, Ids *out) {
    bool has_space_prefix = tokenizer_has_space_prefix(t);
    Buffer all = {0};
    Ids ids = {0};

    // Encode the text of the last token and the new text.
    Str before = last >= 0 ? tokenizer_piece(t, last, false) : (Str){"", 0};
    if (has_space_prefix) before = (Str){"\n", 1};
    buffer_put(&all, before);
    buffer_put(&all, text);
    tokenizer_encode(t, buffer_str(&all), parse_special, &ids);

    // Drop the tokens of `before`, if no token spans both texts.
    size_t n_before = before.len + has_space_prefix, n = 0; // bytes
    int k = 0;                                              // tokens
    while (k < ids.len && n < n_before) n += tokenizer_piece(t, ids.data[k++], false).len;
    bool is_split = n == n_before && k < ids.len;
    for (; is_split && k < ids.len; k++) ids_push(out, ids.data[k]);

    free(ids.data);
    buffer_free(&all);
    return is_split;
}

void continuation_encode(const Tokenizer *t, int last, Str text, bool parse_special, Ids *out) {
    if (!encode_behind(t, last, text, parse_special, out))
        tokenizer_encode(t, text, parse_special, out);
}

size_t continuation_encode_begun(const Tokenizer *t, Str text, Ids *out) {
    enum { MAX_LEFT_OUT = 16 };
    int first = out->len;
    bool is_word = true;
    continuation_encode(t, -1, text, false, out);

    // A word begins with white space. The text of a token must be as in the text.
    size_t n = text.len;
    for (int k = 0; k < MAX_LEFT_OUT && is_word && out->len > first; k++) {
        Str piece = tokenizer_piece(t, out->data[out->len - 1], false);
        if (piece.len > n || memcmp(text.data + n - piece.len, piece.data, piece.len) != 0) break;
        n -= piece.len;
        out->len--;
        is_word = !piece.len || !strchr(" \n\t\r", piece.data[0]);
    }
    return text.len - n;
}

void continuation_encode_open(const Tokenizer *t, int last, Str text, Ids *out) {
    Ids ids = {0};

    // A SentencePiece text alone would begin with a space.
    if (!encode_behind(t, last, text, false, &ids) && !tokenizer_has_space_prefix(t))
        tokenizer_encode(t, text, false, &ids);

    // Count the tokens that spell the text, and append them except for the last.
    int n = 0;
    for (; n < ids.len && !tokenizer_is_control(t, ids.data[n]); n++) {
        Str piece = tokenizer_piece(t, ids.data[n], false);
        if (!str_has_prefix(text, piece)) break;
        text = (Str){text.data + piece.len, text.len - piece.len};
    }
    for (int i = 0; i + 1 < n; i++) ids_push(out, ids.data[i]);
    free(ids.data);
}

void continuation_mask(const Tokenizer *t, Str text, float *logits) {
    for (int id = 0; id < tokenizer_n_vocab(t); id++) {
        Str piece = tokenizer_piece(t, id, false);
        bool is_begun = str_has_prefix(piece, text) || str_has_prefix(text, piece);
        if (!piece.len || !is_begun || tokenizer_is_special(t, id)) logits[id] = -INFINITY;
    }
}
