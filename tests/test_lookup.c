// Prompt lookup and the cost model: which tokens are drafted, their acceptance rates, how many are
// worth verifying.
#include "tests/test.h"
#include "generate/speculate/cost.h"
#include "generate/speculate/lookup.h"

#include <string.h>

static void drafts(void) {
    PromptLookup *l = lookup_new();
    int out[LOOKUP_MAX_DRAFT];
    float p_accept[LOOKUP_MAX_DRAFT], p_before;
    static const int text[] = {1, 2, 3, 4, 5, 6, 7, 9, 9, 3, 4, 5, 8, 8, 2, 3, 4};

    CHECK(lookup_draft(l, out, p_accept) == 0, "draft of an empty sequence");
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        lookup_append(l, text[i]);
        if (i == 12) CHECK(lookup_draft(l, out, p_accept) == 0, "3 tokens without a match");
    }

    // 2 3 4 was followed by 5 6 7 9 9 3 4 5 8 8 2 3 4; from there the draft continues with itself.
    CHECK(lookup_draft(l, out, p_accept) == LOOKUP_MAX_DRAFT, "no draft");
    CHECK(!memcmp(out, text + 4, 13 * sizeof *out) && !memcmp(out + 13, text + 4, 10 * sizeof *out),
          "%d %d %d", out[0], out[1], out[2]);
    CHECK(p_accept[0] < p_accept[4] && p_accept[LOOKUP_MAX_DRAFT - 1] < 1,
          "longer matches do not have a higher rate");

    // A wrong draft lowers the acceptance rate.
    p_before = p_accept[0];
    lookup_append(l, 100);
    for (int i = 0; i < 2; i++)
        for (int k = 2; k < 5; k++) lookup_append(l, k);
    CHECK(lookup_draft(l, out, p_accept) && p_accept[0] < p_before && out[0] == 2,
          "a wrong draft does not lower the rate");

    // Random tokens, then a period of 7: both must be fast.
    for (uint64_t i = 0, seed = 4; i < 100000; i++) {
        lookup_append(l, i < 50000 ? (int)(test_random(&seed) % 50) : (int)i % 7);
        int n = lookup_draft(l, out, p_accept);
        int expected = (int)(i + 1) % 7;
        if (i > 50100)
            CHECK(n == LOOKUP_MAX_DRAFT && out[0] == expected, "period of 7 at %d", (int)i);
    }

    lookup_free(l);
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
