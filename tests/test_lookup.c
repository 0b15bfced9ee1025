// Prompt lookup and the cost model: which tokens are drafted, their acceptance rates, how many are
// worth verifying.
#include "tests/test.h"
#include "generate/speculate/cost.h"
#include "generate/speculate/lookup.h"

#include <string.h>

enum { MAX = SPECULATE_MAX_DRAFT };

// A sequence whose last token is pending, and its drafter.
typedef struct {
    Drafter drafter;
    Session session;
    int tokens[100100];
    int out[MAX];
    float p_accept[MAX];
} Text;

static void append(Text *t, int token) {
    t->tokens[t->session.n_tokens++] = token;
    t->drafter.accept(t->drafter.arg, &t->session, 0, 1);
}

// Drafts what follows the sequence and one more token.
static int draft(Text *t, int pending) {
    DraftPoint at = {.session = &t->session, .pending = pending};
    double sec = 1;
    int n = t->drafter.estimate(t->drafter.arg, &at, t->p_accept, MAX, &sec);
    CHECK(sec == 0, "%g seconds per draft", sec);
    return t->drafter.draft(t->drafter.arg, &at, t->out, n);
}

static void drafts(void) {
    static Text t;
    static const int text[] = {1, 2, 3, 4, 5, 6, 7, 9, 9, 3, 4, 5, 8, 8, 2, 3, 4};
    enum { N = sizeof text / sizeof *text };
    t.drafter = lookup_begin();
    t.session.tokens = t.tokens;

    for (int i = 0; i < N; i++) {
        int n = i == 0 || i == 12 || i == N - 1 ? draft(&t, text[i]) : 0;
        CHECK(n == (i == N - 1 ? MAX : 0), "%d drafts after %d tokens", n, i + 1);
        append(&t, text[i]);
    }

    // 2 3 4 was followed by 5 6 7 9 9 3 4 5 8 8 2 3 4; from there the draft continues with itself.
    CHECK(!memcmp(t.out, text + 4, 13 * sizeof *t.out) &&
              !memcmp(t.out + 13, text + 4, 10 * sizeof *t.out),
          "%d %d %d", t.out[0], t.out[1], t.out[2]);
    CHECK(t.p_accept[0] < t.p_accept[4] && t.p_accept[MAX - 1] < 1,
          "longer matches do not have a higher rate");

    // A wrong draft lowers the acceptance rate.
    float p_before = t.p_accept[0];
    append(&t, 100);
    for (int i = 0; i < 5; i++) append(&t, 2 + i % 3);
    CHECK(draft(&t, 4) == MAX && t.p_accept[0] < p_before && t.out[0] == 2,
          "a wrong draft does not lower the rate");
    append(&t, 4);

    // Random tokens, then a period of 7: both must be fast.
    for (uint64_t i = 0, seed = 4; i < 100000; i++) {
        int token = i < 50000 ? (int)(test_random(&seed) % 50) : (int)i % 7;
        int n = draft(&t, token);
        int expected = (int)(i + 1) % 7;
        if (i > 50100) CHECK(n == MAX && t.out[0] == expected, "period of 7 at %d", (int)i);
        append(&t, token);
    }

    t.drafter.free(t.drafter.arg);
}

static void draft_lengths(void) {
    CostModel c = {.sec = {0}};
    float always[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float half[8] = {.5f, .5f, .5f, .5f, .5f, .5f, .5f, .5f};
    float never[8] = {0};

    CHECK(cost_choose(&c, 1, always, 8, 0) == 0, "drafts before anything is measured");
    cost_record(&c, 1, 1);
    CHECK(cost_choose(&c, 1, always, 8, 0) == 8, "a longer pass is not tried");
    CHECK(cost_choose(&c, 1, never, 8, 0) == 0, "drafts that are never accepted");

    cost_record(&c, 9, 9);
    CHECK(cost_estimate(&c, 5) == 5, "interpolation: %g", cost_estimate(&c, 5));
    CHECK(cost_choose(&c, 1, always, 8, 0) == 0, "a pass that costs what it saves");

    cost_record(&c, 5, 1.5);
    CHECK(cost_choose(&c, 1, always, 8, 0) == 4, "%d", cost_choose(&c, 1, always, 8, 0));
    CHECK(cost_choose(&c, 1, half, 8, 0) > 0 && cost_choose(&c, 1, half, 8, 0) < 4, "%d",
          cost_choose(&c, 1, half, 8, 0));

    CHECK(cost_choose(&c, 1, always, 8, 1) == 0, "drafts that cost a pass each");

    // A time of 100 counts as 2; then passes of two to five tokens have shorter times than of one.
    cost_record(&c, 1, 100);
    CHECK(cost_estimate(&c, 1) > 1.19 && cost_estimate(&c, 1) < 1.21, "%g", cost_estimate(&c, 1));
    cost_record(&c, 2, 0.1);
    CHECK(cost_choose(&c, 1, never, 8, 0) == 0, "a shorter time of a longer pass");
}

void test_lookup(void) {
    test_case("lookup: the draft is what followed the longest match", drafts);
    test_case("lookup: the cost model chooses the length of a draft", draft_lengths);
}
