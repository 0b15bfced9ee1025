// Both tokenizers on synthetic vocabularies: round trips, the piece cache, special tokens, linear
// time, and errors in broken vocabularies. test_tokenizer.py compares ids with other programs.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static Buffer file;
static Gguf gguf;

static Tokenizer *open_small(bool is_sentencepiece) {
    Error err;
    buffer_free(&file);
    file = make_llama_file(
        (MakeLlama){.is_sentencepiece = is_sentencepiece, .is_vocabulary_only = true});
    if (!gguf_parse(&gguf, file.data, file.len, "small", &err)) die_error(&err);
    Tokenizer *t = tokenizer_open(&gguf, &err);
    if (!t) die_error(&err);
    return t;
}

static void close_small(Tokenizer *t) {
    tokenizer_close(t);
    gguf_close(&gguf);
}

static void decode(const Tokenizer *t, const Ids *ids, Buffer *out) {
    out->len = 0;
    buffer_puts(out, "");
    for (int i = 0; i < ids->len; i++) {
        Str s = tokenizer_piece(t, ids->data[i], false);
        buffer_append(out, s.data, s.len);
    }
}

static bool is_spelled(const Tokenizer *t, const Ids *ids, const char *s, size_t n) {
    Buffer out = {0};
    decode(t, ids, &out);
    size_t skip = n && tokenizer_has_space_prefix(t) ? 1 : 0;
    bool ok = out.len == n + skip && !memcmp(out.data + skip, s, n);
    buffer_free(&out);
    return ok;
}

// A text of words, spaces, line ends, punctuation, characters of all UTF-8 lengths and, unless
// is_valid, invalid bytes.
static size_t random_text(uint64_t *state, char *out, size_t max, bool is_valid) {
    static const char *const some[] = {
        "the",      " ",          "  ",       "\n",           "\r\n",
        "'s",       "'Ve",        "7",        "1234",         "\t",
        "!",        "...",        "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x8e\x89",
        "\xc2\xa0", "<|eot_id|>", "</s>"};
    size_t n = 0;

    // No piece is longer than 16 bytes.
    while (n + 16 < max && test_random(state) % 40) {
        uint64_t r = test_random(state);
        const char *s = some[r % (sizeof some / sizeof *some)];
        uint32_t code = (uint32_t)((r >> 34) % 0x110000);
        bool is_surrogate = code - 0xd800 < 0x800;

        if (r >> 32 & 1) {
            memcpy(out + n, s, strlen(s));
            n += strlen(s);
        } else if (!is_valid && r >> 33 & 1) {
            out[n++] = (char)(r >> 40);
        } else if (!is_surrogate && code != 0x2581) {
            n += (size_t)utf8_encode(code, out + n);
        }
    }

    return n;
}

static void round_trips(bool is_sentencepiece) {
    Tokenizer *t = open_small(is_sentencepiece);
    Ids ids = {0};
    uint64_t state = 5;
    char text[512];

    // Random texts. Every other one is valid UTF-8.
    for (int i = 0; i < 4000; i++) {
        size_t n = random_text(&state, text, sizeof text, i % 2);
        ids.len = 0;
        tokenizer_encode(t, (Str){text, n}, false, &ids);
        CHECK(is_spelled(t, &ids, text, n), "text %d of %zu bytes", i, n);
        CHECK(tokenizer_min_tokens(t, n) <= (size_t)ids.len, "text %d: %d tokens", i, ids.len);
        for (int k = 0; k < ids.len; k++)
            CHECK(!tokenizer_is_control(t, ids.data[k]), "a control token from ordinary text");
    }

    // Each byte alone.
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        ids.len = 0;
        tokenizer_encode(t, (Str){&c, 1}, false, &ids);
        CHECK(is_spelled(t, &ids, &c, 1), "byte %d", b);
    }

    // Visible spaces (U+2581), which SentencePiece vocabularies use for spaces.
    ids.len = 0;
    for (int i = 0; i < 100; i++) memcpy(text + 3 * i, "\xe2\x96\x81", 3);
    tokenizer_encode(t, (Str){text, 300}, false, &ids);
    CHECK(tokenizer_min_tokens(t, 300) <= (size_t)ids.len && tokenizer_min_tokens(t, 1 << 20),
          "%d tokens for visible spaces", ids.len);

    // No text.
    ids.len = 0;
    tokenizer_encode(t, str_of(""), false, &ids);
    CHECK(ids.len == 0, "%d tokens for an empty text", ids.len);

    free(ids.data);
    close_small(t);
}

static void bpe_round_trips(void) { round_trips(false); }
static void spm_round_trips(void) { round_trips(true); }

// A cached piece has the ids of its first occurrence, wherever it occurs.
static void repeated_pieces(void) {
    static const char line[] = "the there Then other hello\n";
    enum { TIMES = 300 };

    for (int kind = 0; kind < 2; kind++) {
        Tokenizer *t = open_small(kind);
        Ids one = {0}, many = {0};
        Buffer text = {0};

        tokenizer_encode(t, (Str){line, sizeof line - 1}, false, &one);
        for (int i = 0; i < TIMES; i++) buffer_puts(&text, line);
        tokenizer_encode(t, buffer_str(&text), false, &many);

        CHECK(is_spelled(t, &many, text.data, text.len), "kind %d", kind);
        if (kind == 0) CHECK(many.len == TIMES * one.len, "%d tokens, then %d", one.len, many.len);
        for (int i = 0; i < many.len && kind == 0; i += one.len)
            CHECK(!memcmp(many.data + i, one.data, (size_t)one.len * sizeof(int)), "token %d", i);

        free(one.data);
        free(many.data);
        buffer_free(&text);
        close_small(t);
    }
}

static void special_tokens(void) {
    static const char text[] = "a<|eot_id|><|eot_id|>b<|eot_i<|end_header_id|>";
    Tokenizer *t = open_small(false);
    Ids ids = {0};
    Buffer out = {0};

    // Ids of names. Ordinary tokens and unknown names have none.
    int eot = tokenizer_special_id(t, "<|eot_id|>");
    int end = tokenizer_special_id(t, "<|end_header_id|>");
    CHECK(eot > 0 && end > 0 && tokenizer_special_id(t, "<|none|>") == -1 &&
              tokenizer_special_id(t, "a") == -1,
          "ids %d %d", eot, end);

    // Encoding and decoding.
    tokenizer_encode(t, (Str){text, sizeof text - 1}, true, &ids);
    CHECK(ids.len >= 5 && ids.data[1] == eot && ids.data[2] == eot && ids.data[ids.len - 1] == end,
          "%d ids", ids.len);
    decode(t, &ids, &out);
    CHECK(!strcmp(out.data, "ab<|eot_i"), "%s", out.data);

    // Pieces and kinds of tokens.
    CHECK(str_is(tokenizer_piece(t, eot, true), "<|eot_id|>") &&
              tokenizer_piece(t, eot, false).len == 0,
          "piece");
    CHECK(tokenizer_is_stop(t, eot) &&
              tokenizer_is_stop(t, tokenizer_special_id(t, "<|eom_id|>")) &&
              !tokenizer_is_stop(t, end),
          "stops");
    CHECK(tokenizer_is_control(t, eot) && !tokenizer_is_control(t, 0) &&
              !tokenizer_is_control(t, -1),
          "control");
    CHECK(tokenizer_bos(t) == tokenizer_special_id(t, "<|begin_of_text|>") && tokenizer_adds_bos(t),
          "bos %d", tokenizer_bos(t));
    CHECK(tokenizer_piece(t, 1 << 30, true).len == 0 && tokenizer_piece(t, -1, true).len == 0,
          "ids out of range");

    buffer_free(&out);
    free(ids.data);
    close_small(t);

    // The small SentencePiece vocabulary.
    t = open_small(true);
    CHECK(tokenizer_is_stop(t, tokenizer_special_id(t, "</s>")) && tokenizer_has_space_prefix(t),
          "</s>");
    close_small(t);
}

// One piece of a megabyte.
static void long_runs(void) {
    static const char *const runs[] = {"a", " ", "^", "\n", "the", "'"};
    enum { SIZE = 1 << 20 };
    char *text = xalloc(SIZE, 1);

    for (int kind = 0; kind < 2; kind++) {
        Tokenizer *t = open_small(kind);
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            Ids ids = {0};
            size_t n = strlen(runs[i]);
            for (size_t k = 0; k < SIZE; k++) text[k] = runs[i][k % n];

            clock_t start = clock();
            tokenizer_encode(t, (Str){text, SIZE}, false, &ids);
            double sec = (double)(clock() - start) / CLOCKS_PER_SEC;

            // Linear time takes about 0.5 s, quadratic time hours.
            CHECK(sec < 20, "\"%s\" takes %.1f s", runs[i], sec);
            CHECK(is_spelled(t, &ids, text, SIZE), "\"%s\"", runs[i]);
            free(ids.data);
        }

        close_small(t);
    }
    free(text);
}

static void put_tokens(Maker *m, const char *const *tokens, int n, int type) {
    Buffer items = {0}, types = {0};
    for (int i = 0; i < n; i++) make_item(&items, tokens[i], strlen(tokens[i]));
    for (int i = 0; i < n; i++) make_le(&types, (uint64_t)type, 4);
    make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)n, items.data, items.len);
    make_array(m, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n, types.data, types.len);
    buffer_free(&items);
    buffer_free(&types);
}

// A vocabulary of byte tokens and special tokens "<", "<<" ...: special tokens of even length (or
// all except the longest) are control tokens, the other special tokens are user-defined.
enum { N_NESTED = 254 };
static Tokenizer *open_nested(bool all_but_one) {
    static const uint8_t zeros[4 * (256 + N_NESTED)];
    char name[N_NESTED + 1];
    Maker m;
    Buffer items = {0}, types = {0};
    Error err;

    make_begin(&m);
    make_string(&m, "general.architecture", "llama");
    make_string(&m, "tokenizer.ggml.model", "llama");
    make_bool(&m, "tokenizer.ggml.add_space_prefix", false);

    // Tokens. Types: 3 is control, 4 user-defined, 6 byte.
    for (int i = 0; i < 256 + N_NESTED; i++) {
        int n = i < 256 ? snprintf(name, sizeof name, "<0x%02X>", (unsigned)i) : i - 255;
        if (i >= 256) memset(name, '<', (size_t)n);
        make_item(&items, name, (size_t)n);
        bool is_control = all_but_one ? n < N_NESTED : n % 2 == 0;
        int special_type = is_control ? 3 : 4;
        make_le(&types, i < 256 ? 6 : special_type, 4);
    }

    uint64_t n = 256 + N_NESTED;
    make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, n, items.data, items.len);
    make_array(&m, "tokenizer.ggml.token_type", GGUF_I32, n, types.data, types.len);
    make_array(&m, "tokenizer.ggml.scores", GGUF_F32, n, zeros, sizeof zeros);
    buffer_free(&items);
    buffer_free(&types);

    buffer_free(&file);
    file = make_end(&m);

    if (!gguf_parse(&gguf, file.data, file.len, "nested", &err)) die_error(&err);
    Tokenizer *t = tokenizer_open(&gguf, &err);
    if (!t) die_error(&err);
    return t;
}

// If several special tokens match, the longest is used; in ordinary text, the longest user-defined
// token.
static void nested_specials(void) {
    Tokenizer *t = open_nested(false);
    uint64_t state = 3;
    for (int special = 0; special < 2; special++) {
        Buffer text = {0};
        Ids ids = {0}, expected = {0};

        // Runs of "<" that end with "x". Each step takes the longest allowed token.
        for (int i = 0; i < 300; i++) {
            int n = (int)(test_random(&state) % 600);
            for (int k = 0; k < n; k++) buffer_puts(&text, "<");
            buffer_puts(&text, "x");
            while (n > 0) {
                int len = n < N_NESTED ? n : N_NESTED;
                len -= !special && len % 2 == 0;
                ids_push(&expected, 255 + len);
                n -= len;
            }
            ids_push(&expected, 'x');
        }

        tokenizer_encode(t, buffer_str(&text), special, &ids);
        CHECK(ids.len == expected.len &&
                  !memcmp(ids.data, expected.data, (size_t)ids.len * sizeof(int)),
              "special %d: %d ids, expected %d", special, ids.len, expected.len);

        free(ids.data);
        free(expected.data);
        buffer_free(&text);
    }
    close_small(t);
}

// Special tokens begin at every byte of the text, but none of them is accepted. Encoding must not
// take much longer than for a text without special tokens.
static void nested_specials_are_fast(void) {
    enum { SIZE = 1 << 17 };
    double sec[2];
    char *text = xalloc(SIZE, 1);
    Tokenizer *t = open_nested(true);
    for (int nested = 0; nested < 2; nested++) {
        Ids ids = {0};
        for (size_t i = 0; i < SIZE; i++) text[i] = nested && i % 253 ? '<' : 'x';
        clock_t start = clock();
        tokenizer_encode(t, (Str){text, SIZE}, false, &ids);
        sec[nested] = (double)(clock() - start) / CLOCKS_PER_SEC;
        CHECK(ids.len == SIZE, "%d ids", ids.len);
        free(ids.data);
    }
    CHECK(sec[1] < 30 * sec[0] + 0.1, "%g s; without special tokens %g s", sec[1], sec[0]);
    close_small(t);
    free(text);
}

// Checks that a vocabulary is refused with this message.
static void expect_refusal(Maker *m, const char *says) {
    Gguf g;
    Error err;
    Buffer b = make_end(m);
    if (!gguf_parse(&g, b.data, b.len, "broken", &err)) die_error(&err);
    Tokenizer *t = tokenizer_open(&g, &err);

    CHECK(!t, "accepted, expected: %s", says);
    if (!t)
        CHECK(err.code == EXIT_MODEL && test_matches(err.text, says), "expected %s, found %s", says,
              err.text);
    if (!t) CHECK(!strchr(err.text, '\n'), "%s", err.text);

    tokenizer_close(t);
    gguf_close(&g);
    buffer_free(&b);
}

// Checks that the small vocabulary is refused without the key `skip` and with those of `spoil`.
static void refused(bool is_sentencepiece, const char *skip, void (*spoil)(Maker *m),
                    const char *says) {
    Maker m;
    make_begin(&m);
    m.skip = skip;
    make_llama(&m, (MakeLlama){.is_sentencepiece = is_sentencepiece, .is_vocabulary_only = true});
    m.skip = NULL;
    if (spoil) spoil(&m);
    expect_refusal(&m, says);
}

static void spoil_pre(Maker *m) { make_string(m, "tokenizer.ggml.pre", "bloom"); }
static void spoil_model(Maker *m) { make_string(m, "tokenizer.ggml.model", "bert"); }
static void spoil_bos(Maker *m) { make_u32(m, "tokenizer.ggml.bos_token_id", 1u << 20); }
static void spoil_eos(Maker *m) { make_u32(m, "tokenizer.ggml.eos_token_id", 1u << 31); }
static void spoil_types_kind(Maker *m) {
    make_array(m, "tokenizer.ggml.token_type", GGUF_I8, 4, "\1\1\1\1", 4);
}
static void spoil_types_short(Maker *m) {
    make_array(m, "tokenizer.ggml.token_type", GGUF_I32, 1, "\1\0\0\0", 4);
}
static void spoil_scores(Maker *m) {
    make_array(m, "tokenizer.ggml.scores", GGUF_I8, 4, "\1\1\1\1", 4);
}
static void spoil_empty(Maker *m) { make_array(m, "tokenizer.ggml.tokens", GGUF_STRING, 0, "", 0); }
static void spoil_twice(Maker *m) { put_tokens(m, (const char *const[]){"a", "b", "a"}, 3, 1); }
static void spoil_bytes(Maker *m) { put_tokens(m, (const char *const[]){"a", "b"}, 2, 1); }
static void spoil_types_range(Maker *m) { put_tokens(m, (const char *const[]){"a", "b"}, 2, 77); }
static void spoil_byte(Maker *m) { put_tokens(m, (const char *const[]){"<0x00>", "<0x-1>"}, 2, 6); }
static void spoil_byte_name(Maker *m) { put_tokens(m, (const char *const[]){"<0xZZ>"}, 1, 6); }
static void spoil_byte_twice(Maker *m) {
    put_tokens(m, (const char *const[]){"<0x41>", "<0x41>"}, 2, 6);
}
static void put_merges(Maker *m, const char *merge, uint64_t n) {
    Buffer items = {0};
    for (uint64_t i = 0; i < n; i++) make_item(&items, merge, strlen(merge));
    make_array(m, "tokenizer.ggml.merges", GGUF_STRING, n, items.data, items.len);
    buffer_free(&items);
}
static void spoil_merge(Maker *m) { put_merges(m, "nospace", 1); }
static void spoil_merge_half(Maker *m) { put_merges(m, "zq xx", 1); }
static void spoil_merge_twice(Maker *m) { put_merges(m, "t h", 2); }

static void spoil_merge_right(Maker *m) { put_merges(m, "t \xe4\xb8\xad", 1); }
static void spoil_eot(Maker *m) { make_u32(m, "tokenizer.ggml.eot_token_id", 999); }
static void spoil_eom(Maker *m) { make_string(m, "tokenizer.ggml.eom_token_id", "x"); }
static void spoil_unknown(Maker *m) { make_u32(m, "tokenizer.ggml.unknown_token_id", 999); }
static void spoil_adds_bos(Maker *m) { make_u32(m, "tokenizer.ggml.add_bos_token", 1); }
static void spoil_scheme(Maker *m) { make_string(m, "tokenizer.ggml.prepend_scheme", "never"); }
static void spoil_space(Maker *m) { make_u32(m, "tokenizer.ggml.add_space_prefix", 1); }
static void spoil_scores_nan(Maker *m) {
    float scores[323] = {0};
    scores[5] = -1.0f / 0.0f;
    make_array(m, "tokenizer.ggml.scores", GGUF_F32, 323, scores, sizeof scores);
}
static void spoil_special_twice(Maker *m) {
    put_tokens(m, (const char *const[]){"<a>", "<b>", "<a>"}, 3, 3);
}
static void spoil_byte_short(Maker *m) { put_tokens(m, (const char *const[]){"<0x4>"}, 1, 6); }

// The same for a vocabulary with the tokens of `spoil` alone, and no keys that refer to others.
static void refused_tokens(void (*spoil)(Maker *m), const char *says) {
    Maker m;
    make_begin(&m);
    make_string(&m, "general.architecture", "llama");
    make_string(&m, "tokenizer.ggml.model", "gpt2");
    make_string(&m, "tokenizer.ggml.pre", "llama-bpe");
    spoil(&m);
    expect_refusal(&m, says);
}

static void broken_vocabularies(void) {
    // Missing and invalid keys, and arrays of wrong kinds or lengths.
    refused(false, "tokenizer.ggml.pre", spoil_pre, "pre: unknown pre-tokenizer \"bloom\"");
    refused(false, "tokenizer.ggml.pre", NULL,
            "tokenizer.ggml.pre: missing key (expected a string)");
    refused(false, "tokenizer.ggml.model", spoil_model, "model: expected ... found \"bert\"");
    refused(false, "tokenizer.ggml.model", NULL,
            "tokenizer.ggml.model: missing key (expected a string)");
    refused(false, "tokenizer.ggml.tokens", NULL,
            "tokens: missing key (expected an array of string)");
    refused(false, "tokenizer.ggml.tokens", spoil_empty, "tokens: expected 1 to 2^30");
    refused(false, "tokenizer.ggml.bos_token_id", spoil_bos,
            "bos_token_id: expected ... found 1048576");
    refused(false, "tokenizer.ggml.eos_token_id", spoil_eos,
            "eos_token_id: expected ... found 2147483648");
    refused(false, "tokenizer.ggml.token_type", spoil_types_kind,
            "token_type: expected ... found an a");
    refused(true, "tokenizer.ggml.token_type", spoil_types_short,
            "token_type: expected ... found 1");
    refused(true, "tokenizer.ggml.scores", spoil_scores,
            "scores: expected ... found an array of i8");
    refused(true, "tokenizer.ggml.scores", NULL, "scores: missing key (expected an array of f32)");

    // Merge rules.
    refused(false, "tokenizer.ggml.merges", spoil_merge,
            "merges: rule 0 is not two parts of a token: \"nospace\"");
    refused(false, "tokenizer.ggml.merges", spoil_merge_half,
            "merges: rule 0 is not two parts of a token: \"zq xx\"");
    refused(false, "tokenizer.ggml.merges", spoil_merge_twice, "merges: duplicate rule 1: \"t h\"");
    refused(false, "tokenizer.ggml.merges", NULL,
            "merges: missing key (expected an array of string)");
    refused(false, "tokenizer.ggml.merges", spoil_merge_right,
            "merges: rule 0 is not two parts of a token: \"t \xe4\xb8\xad\"");

    // Other special tokens, flags and scores.
    refused(false, "tokenizer.ggml.eot_token_id", spoil_eot,
            "eot_token_id: expected ... found 999");
    refused(false, "tokenizer.ggml.eom_token_id", spoil_eom,
            "eom_token_id: expected ... found string");
    refused(true, "tokenizer.ggml.unknown_token_id", spoil_unknown,
            "unknown_token_id: expected ... found 999");
    refused(false, "tokenizer.ggml.add_bos_token", spoil_adds_bos,
            "add_bos_token: expected ... found u32");
    refused(true, "tokenizer.ggml.add_space_prefix", spoil_space,
            "add_space_prefix: expected ... found u32");
    refused(true, "tokenizer.ggml.prepend_scheme", spoil_scheme,
            "prepend_scheme: expected always or first, found \"never\"");
    refused(true, "tokenizer.ggml.scores", spoil_scores_nan,
            "scores: token 5: expected ... found -inf");

    // Vocabularies of few tokens.
    refused_tokens(spoil_special_twice, "tokens: duplicate token \"<a>\" (ids 0 and 2)");
    refused_tokens(spoil_byte_short, "byte token 0: expected ... found \"<0x4>\"");
    refused_tokens(spoil_twice, "tokens: duplicate token \"a\" (ids 0 and 2)");
    refused_tokens(spoil_bytes, "tokens: no token for byte 0x00");
    refused_tokens(spoil_types_range, "token_type: token 0: expected ... found 77");
    refused_tokens(spoil_byte, "byte token 1: expected ... found \"<0x-1>\"");
    refused_tokens(spoil_byte_name, "byte token 0: expected ... found \"<0xZZ>\"");
    refused_tokens(spoil_byte_twice, "tokens 0 and 1 are the same byte");
}

// Opens the small vocabulary with another value of one key, and encodes a text.
static Tokenizer *open_changed(Gguf *g, Buffer *b, bool is_sentencepiece, const char *skip,
                               void (*change)(Maker *m), Ids *ids, const char *text) {
    Maker m;
    Error err;

    make_begin(&m);
    m.skip = skip;
    make_llama(&m, (MakeLlama){.is_sentencepiece = is_sentencepiece, .is_vocabulary_only = true});
    m.skip = NULL;
    if (change) change(&m);
    *b = make_end(&m);

    if (!gguf_parse(g, b->data, b->len, "changed", &err)) die_error(&err);
    Tokenizer *t = tokenizer_open(g, &err);
    if (!t) die_error(&err);

    ids->len = 0;
    tokenizer_encode(t, str_of(text), false, ids);
    return t;
}

static void close_changed(Tokenizer *t, Gguf *g, Buffer *b) {
    tokenizer_close(t);
    gguf_close(g);
    buffer_free(b);
}

static void no_bos(Maker *m) { make_u32(m, "tokenizer.ggml.bos_token_id", UINT32_MAX); }
static void no_space(Maker *m) { make_bool(m, "tokenizer.ggml.add_space_prefix", false); }
// More rules than tokens, sorted by the id that they make, as in the files of Llama 3.
static void rules_by_id(Maker *m) {
    Buffer items = {0};
    for (int i = 0; i < 300; i++) make_item(&items, i < 150 ? "t h" : "th e", i < 150 ? 3 : 4);
    make_array(m, "tokenizer.ggml.merges", GGUF_STRING, 300, items.data, items.len);
    buffer_free(&items);
}

// Keys with unusual values, and defaults of keys that are missing.
static void unusual_vocabularies(void) {
    Gguf g;
    Buffer b;
    Ids ids = {0};

    Tokenizer *t = open_changed(&g, &b, false, "tokenizer.ggml.bos_token_id", no_bos, &ids, "the");
    CHECK(tokenizer_bos(t) == -1 && !tokenizer_adds_bos(t), "bos %d", tokenizer_bos(t));
    CHECK(ids.len == 1, "%d tokens", ids.len);
    close_changed(t, &g, &b);

    t = open_changed(&g, &b, false, "tokenizer.ggml.bos_token_id", NULL, &ids, "the");
    CHECK(tokenizer_bos(t) == tokenizer_special_id(t, "<|begin_of_text|>"), "%d", tokenizer_bos(t));
    CHECK(tokenizer_adds_bos(t), "no BOS");
    CHECK(!tokenizer_is_control(t, tokenizer_n_vocab(t)) && !tokenizer_is_special(t, -1),
          "ids out of range");
    close_changed(t, &g, &b);

    t = open_changed(&g, &b, false, "tokenizer.ggml.merges", rules_by_id, &ids, "the th");
    CHECK(ids.len == 3, "%d tokens", ids.len); // "the", " ", "th"
    close_changed(t, &g, &b);

    t = open_changed(&g, &b, true, "tokenizer.ggml.unknown_token_id", no_space, &ids, "the");
    CHECK(ids.len == 1 && !tokenizer_has_space_prefix(t), "%d tokens", ids.len);
    CHECK(tokenizer_is_control(t, tokenizer_special_id(t, "<unk>")), "<unk>");
    close_changed(t, &g, &b);

    t = open_changed(&g, &b, true, "tokenizer.ggml.bos_token_id", NULL, &ids, "the");
    CHECK(tokenizer_bos(t) == tokenizer_special_id(t, "<s>"), "%d", tokenizer_bos(t));
    CHECK(str_is(tokenizer_piece(t, ids.data[0], false), " the"), "%d tokens", ids.len);
    close_changed(t, &g, &b);

    free(ids.data);
}

void test_tokenizer(void) {
    test_case("tokenizer: byte-level BPE round trips", bpe_round_trips);
    test_case("tokenizer: SentencePiece round trips", spm_round_trips);
    test_case("tokenizer: repeated pieces", repeated_pieces);
    test_case("tokenizer: special tokens and stop tokens", special_tokens);
    test_case("tokenizer: special tokens that are prefixes of others", nested_specials);
    test_case("tokenizer: prefixes do not cost time", nested_specials_are_fast);
    test_case("tokenizer: a piece of a megabyte", long_runs);
    test_case("tokenizer: broken vocabularies", broken_vocabularies);
    test_case("tokenizer: unusual vocabularies", unusual_vocabularies);
}
