// Proposals: what is guessed and how far it is trusted, how many pay.
#include "test.h"
#include "../speculate/lookup.h"
#include "../speculate/cost.h"

#include <string.h>

static void guesses(void) {
    Lookup *l = lookup_new();
    int out[SPECULATE_MAX_DRAFT];
    float trust[SPECULATE_MAX_DRAFT], before;
    static const int text[] = {1, 2, 3, 4, 5, 6, 7, 9, 9, 3, 4, 5, 8, 8, 2, 3, 4};
    CHECK(lookup_draft(l, out, trust) == 0, "of nothing");
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        lookup_push(l, text[i]);
        if (i == 12) CHECK(lookup_draft(l, out, trust) == 0, "3 tokens that are new");
    }
    // 2 3 4 has been followed by 5 6 7 9 9 3 4 5 8 8 2 3 4, and then by itself
    CHECK(lookup_draft(l, out, trust) == SPECULATE_MAX_DRAFT, "the longest match");
    CHECK(!memcmp(out, text + 4, 13 * sizeof *out) && !memcmp(out + 13, text + 4, 10 * sizeof *out),
          "%d %d %d", out[0], out[1], out[2]);
    CHECK(trust[0] < trust[4] && trust[SPECULATE_MAX_DRAFT - 1] < 1,
          "trust grows with what agrees");
    before = trust[0];
    lookup_push(l, 100);
    for (int i = 0; i < 2; i++)
        for (int k = 2; k < 5; k++) lookup_push(l, k);
    CHECK(lookup_draft(l, out, trust) && trust[0] < before && out[0] == 2,
          "a wrong guess costs trust");
    for (uint64_t i = 0, seed = 4; i < 100000; i++) { // long, and periodic: as fast
        lookup_push(l, i < 50000 ? (int)(test_random(&seed) % 50) : (int)i % 7);
        int n = lookup_draft(l, out, trust);
        int expected = (int)(i + 1) % 7;
        if (i > 50100)
            CHECK(n == SPECULATE_MAX_DRAFT && out[0] == expected, "period of 7 at %d", (int)i);
    }
    lookup_free(l);
}

static void paces(void) {
    CostModel p = {{0}};
    float sure[8] = {1, 1, 1, 1, 1, 1, 1, 1}, even[8] = {.5f, .5f, .5f, .5f, .5f, .5f, .5f, .5f},
          none[8] = {0};
    CHECK(cost_choose(&p, 1, sure, 8, 0) == 0, "nothing is known yet");
    cost_record(&p, 1, 1);
    CHECK(cost_choose(&p, 1, sure, 8, 0) == 8, "a longer step is tried");
    CHECK(cost_choose(&p, 1, none, 8, 0) == 0, "not for nothing");
    cost_record(&p, 9, 9);
    CHECK(cost_estimate(&p, 5) == 5, "in proportion: %g", cost_estimate(&p, 5));
    CHECK(cost_choose(&p, 1, sure, 8, 0) == 0, "a step that costs what it saves");
    cost_record(&p, 5, 1.5);
    CHECK(cost_choose(&p, 1, sure, 8, 0) == 4, "%d", cost_choose(&p, 1, sure, 8, 0));
    CHECK(cost_choose(&p, 1, even, 8, 0) > 0 && cost_choose(&p, 1, even, 8, 0) < 4, "%d",
          cost_choose(&p, 1, even, 8, 0));
    CHECK(cost_choose(&p, 1, sure, 8, 1) == 0, "guesses that cost a step each");
}

void test_lookup(void) {
    test_case("lookup: what followed before is guessed", guesses);
    test_case("lookup: as many as pay", paces);
}
