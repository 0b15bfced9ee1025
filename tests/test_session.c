// The paged KV cache. Rows keep their content while the cache grows. Sessions share the pages of a
// common prefix and copy a page before they write to it.
#include "tests/test.h"
#include "model/session.h"

#include <string.h>

static const KvShape shape = {
    .n_layers = 3, .n_kv_heads = 2, .head_dim = 32, .k_type = TYPE_F16, .v_type = TYPE_Q8_0};
enum { K_BYTES = 64, V_BYTES = 34 }; // of a row

// The byte that fills a row: a different one for neighboring sequences, layers, heads and
// positions, and for key and value.
static int row_byte(int sequence, int layer, int head, int pos, int is_value) {
    return (sequence * 89 + layer * 31 + head * 17 + pos * 3 + is_value) & 255;
}

// Appends positions up to n, as the forward pass does.
static void append(Session *s, int sequence, int n) {
    Error err;
    if (!session_reserve(s, n, &err)) die_error(&err);

    for (; s->n_tokens < n; s->n_tokens++) {
        s->tokens[s->n_tokens] = 1000 * sequence + s->n_tokens;
        for (int l = 0; l < shape.n_layers; l++)
            for (int h = 0; h < shape.n_kv_heads; h++) {
                memset(session_key(s, l, h, s->n_tokens), row_byte(sequence, l, h, s->n_tokens, 0),
                       K_BYTES);
                memset(session_value(s, l, h, s->n_tokens),
                       row_byte(sequence, l, h, s->n_tokens, 1), V_BYTES);
            }
    }
}

// Number of rows of positions [from, to) whose content differs from what `sequence` wrote.
static int n_wrong(const Session *s, int sequence, int from, int to) {
    int n = 0;
    for (int pos = from; pos < to; pos++)
        for (int l = 0; l < shape.n_layers; l++)
            for (int h = 0; h < shape.n_kv_heads; h++) {
                const uint8_t *k = session_key(s, l, h, pos);
                const uint8_t *v = session_value(s, l, h, pos);
                int key = row_byte(sequence, l, h, pos, 0);
                int value = row_byte(sequence, l, h, pos, 1);
                n += k[0] != key || k[K_BYTES - 1] != key || v[0] != value ||
                     v[V_BYTES - 1] != value;
            }
    return n;
}

static void sizes(void) {
    static const struct {
        Type k, v;
        size_t kib; // per position
    } cases[] = {{TYPE_F16, TYPE_F16, 128},
                 {TYPE_Q8_0, TYPE_Q8_0, 68},
                 {TYPE_Q8_0, TYPE_Q4_0, 52},
                 {TYPE_Q4_0, TYPE_Q8_0, 52},
                 {TYPE_Q4_0, TYPE_Q4_0, 36}};

    // Llama 3.1 8B: 32 layers, 8 KV heads, 128 dimensions.
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KvShape s = {32, 8, 128, cases[i].k, cases[i].v};
        CHECK(kv_position_bytes(&s) == cases[i].kib << 10, "%s and %s: %zu bytes, not %zu KiB",
              type_info(s.k_type)->name, type_info(s.v_type)->name, kv_position_bytes(&s),
              cases[i].kib);
    }
}

static void growth(void) {
    Session *s = session_new(&shape);
    for (int n = 1; n < 9 * KV_PAGE; n += 1 + n / 2) {
        append(s, 1, n);
        CHECK(n_wrong(s, 1, 0, n) == 0 && s->n_tokens == n, "%d positions", n);
    }
    session_free(s);
}

static void shared_prefix(void) {
    enum { PREFIX = 2 * KV_PAGE + 5, END = 4 * KV_PAGE };
    Session *a = session_new(&shape);
    append(a, 1, PREFIX + 3);

    Session *b = session_fork(a, PREFIX);
    CHECK(b && b->n_tokens == PREFIX && !memcmp(a->tokens, b->tokens, PREFIX * sizeof *a->tokens),
          "fork");
    CHECK(session_key(a, 0, 0, 0) == session_key(b, 0, 0, 0), "whole pages are shared");
    CHECK(session_key(a, 0, 0, PREFIX) != session_key(b, 0, 0, PREFIX), "the last page is copied");

    append(b, 2, END);
    append(a, 1, END);
    CHECK(n_wrong(b, 1, 0, PREFIX) == 0 && n_wrong(b, 2, PREFIX, END) == 0, "the fork");
    CHECK(n_wrong(a, 1, 0, END) == 0, "the original");

    session_free(a);
    CHECK(n_wrong(b, 1, 0, PREFIX) == 0, "shared pages outlive one owner");
    session_free(b);
}

static void rewound(void) {
    enum { CUT = KV_PAGE + 7, END = 3 * KV_PAGE };
    Session *a = session_new(&shape);
    append(a, 1, END);

    Session *b = session_fork(a, 2 * KV_PAGE);
    session_rewind(b, CUT); // inside a shared page
    CHECK(b->n_tokens == CUT && n_wrong(b, 1, 0, CUT) == 0, "rewound");

    append(b, 2, END);
    CHECK(n_wrong(b, 2, CUT, END) == 0 && n_wrong(a, 1, 0, END) == 0,
          "writing after a rewind changes the other session");

    session_rewind(b, 0);
    CHECK(b->n_tokens == 0 && b->n_pages == 0, "%d tokens, %d pages", b->n_tokens, b->n_pages);

    session_free(a);
    session_free(b);
}

static void padded(void) {
    Error err;
    Session *s = session_new(&shape);
    CHECK(session_pad(s, KV_PAGE + 1, &err) && s->n_tokens == KV_PAGE + 1, "pad");
    static const uint8_t zeros[V_BYTES];
    CHECK(!memcmp(session_value(s, 2, 1, KV_PAGE), zeros, V_BYTES), "zeros");
    session_free(s);
}

void test_session(void) {
    test_case("session: bytes of a position", sizes);
    test_case("session: growth keeps the rows", growth);
    test_case("session: a fork shares a prefix", shared_prefix);
    test_case("session: rewind into a shared page", rewound);
    test_case("session: pad with zeros", padded);
}
