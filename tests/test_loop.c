// The loop detector on token sequences: where loops end, and texts that are none.
#include "base/files.h"
#include "base/json.h"
#include "generate/loop.h"
#include "tests/test.h"
#include "tokenizer.h"

enum { MAX = 6000 };

// The number of tokens of a text at which it has become a loop, or 0.
static int end_of(const int *text, int n) {
    int n_equal[LOOP_PERIOD] = {0};
    for (int i = 0; i < n; i++)
        if (loop_add(n_equal, text + i, i, text[i])) return i + 1;
    return 0;
}

// A beginning of `first` different tokens, then copies of a part of p tokens.
static int loop_after(int *text, int first, int p) {
    for (int i = 0; i < MAX; i++) text[i] = i < first ? 100000 + i : (i - first) % p;
    return end_of(text, MAX);
}

static void loops(void) {
    static int text[MAX];
    for (int p = 1; p <= LOOP_PERIOD; p++) {
        int n = p * LOOP_TIMES < LOOP_TOKENS ? LOOP_TOKENS : p * LOOP_TIMES;
        for (int first = 0; first < 300; first += 99) {
            int end = loop_after(text, first, p);
            CHECK(end == first + n, "period %d after %d: ends at %d", p, first, end);
        }
    }
    CHECK(loop_after(text, 0, LOOP_PERIOD + 1) == 0, "a longer period");
}

static void no_loops(void) {
    static int text[MAX];

    // Numbers that count up: "N, N+1, ..." with equal tokens between them, in one to three tokens.
    for (int i = 0; i < MAX; i++) text[i] = i % 3 ? i % 3 : 1000 + i / 3;
    CHECK(end_of(text, MAX) == 0, "numbers");
    static const int units[] = {100, 10, 1};
    for (int i = 0; i < MAX; i++) text[i] = i % 4 == 3 ? 10 : i / 4 / units[i % 4] % 10;
    CHECK(end_of(text, MAX) == 0, "digits");

    // A table of zeros with 1,900 tokens, and "no" 2,040 times with a change.
    for (int i = 0; i < MAX; i++) text[i] = i < 1900 ? i % 20 == 19 : 2 + i;
    CHECK(end_of(text, MAX) == 0, "table");
    for (int i = 0; i < MAX; i++) text[i] = i % 2041 < 2040 ? 7 : 8;
    CHECK(end_of(text, MAX) == 0, "no");
}

// Texts with repetitions that somebody asked for: lines, tables, arrays, sequences.
static void wanted(void) {
    static const char *const vocabularies[] = {"vocab/ggml-vocab-llama-spm.gguf",
                                               "vocab/ggml-vocab-llama-bpe.gguf"};
    const char *path = test_data("usage/wanted_repetition.jsonl");
    Buffer lines = {0};
    Error err;
    if (!path || !file_read_text(path, &lines, &err)) {
        test_skip("no usage/wanted_repetition.jsonl");
        return;
    }

    for (int v = 0; v < 2; v++) {
        Gguf g;
        const char *name = test_data(vocabularies[v]);
        Tokenizer *t = name && gguf_open(&g, name, &err) ? tokenizer_open(&g, &err) : NULL;
        CHECK(t, "%s", vocabularies[v]);
        Str rest = buffer_str(&lines);
        int n_texts = 0;

        while (t && rest.len) {
            size_t n = str_find(rest, str_of("\n"));
            JsonDoc doc = {0};
            Ids ids = {0};
            CHECK(n != SIZE_MAX && json_parse(&doc, rest.data, n, &err), "line %d", n_texts + 1);
            if (!doc.root) break;

            tokenizer_encode(t, json_get_string(doc.root, "text")->string, false, &ids);
            CHECK(ids.len > 100 && end_of(ids.data, ids.len) == 0, "line %d ends", n_texts + 1);
            n_texts++;
            free(ids.data);
            json_free(&doc);
            rest = (Str){rest.data + n + 1, rest.len - n - 1};
        }

        CHECK(n_texts == 18, "%d texts", n_texts);
        if (t) tokenizer_close(t);
        if (t) gguf_close(&g);
    }
    buffer_free(&lines);
}

void test_loop(void) {
    test_case("loop: texts that somebody asked for", wanted);
    test_case("loop: end after 2048 tokens and 20 repetitions", loops);
    test_case("loop: texts that change", no_loops);
}
