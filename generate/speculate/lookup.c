// The index is a hash table with chaining: a bucket holds the latest position whose last three
// tokens have that hash, and each position links to the previous one of the same bucket. Appending
// a token is O(1); a search follows at most MAX_CANDIDATES links.
//
//     tokens    2 3 4 5 8 8 2 3 4          the last three tokens are 2 3 4
//     position  0 1 2 3 4 5 6 7 8
//     heads[hash(2 3 4)] = 8, previous[8] = 2     so the draft is 5 8 8 2 3 4 5 8 ...
//
// The acceptance rate of a draft depends mainly on the length of the match before it. One rate is
// therefore kept for each of five classes of match length. It is updated with every token that
// follows a draft, whether or not a forward pass verified the draft, because the comparison costs
// nothing.
#include "generate/speculate/lookup.h"
#include "base/hash.h"
#include "base/memory.h"

enum { MAX_CANDIDATES = 32, MAX_MATCH = 32, N_CLASSES = 5, INITIAL_TOKENS = 1024 };

typedef struct {
    int *tokens;   // (n) the sequence
    int *previous; // (n) previous position in the same hash bucket, or -1; unset before position 2
    int *heads;    // (cap) latest position of each hash bucket, or -1
    int n, cap;    // cap: a power of two
    int draft[SPECULATE_MAX_DRAFT]; // the latest draft
    int n_draft;                    // 0: none, or it was wrong
    int n_checked;                  // tokens of the draft that the sequence has repeated so far
    int n_match;                    // length of the match before the draft
    // Exponentially decayed counts per class; n_right / n_seen is the acceptance rate.
    float n_right[N_CLASSES], n_seen[N_CLASSES];
} PromptLookup;

// Class of a match: 3, 4, 5 to 6, 7 to 10, or more tokens.
static int match_class(int n_match) {
    int i = 0;
    while (i < N_CLASSES - 1 && n_match > LOOKUP_MIN_MATCH - 1 + (1 << i)) i++;
    return i;
}

// Puts position `end` at the front of the hash bucket of the three tokens that end there.
static void index_position(PromptLookup *l, int end) {
    if (end < LOOKUP_MIN_MATCH - 1) return;
    const int *last = &l->tokens[end - LOOKUP_MIN_MATCH + 1];
    uint64_t h = hash_bytes(0, last, LOOKUP_MIN_MATCH * sizeof *last);
    int *head = &l->heads[h & (uint64_t)(l->cap - 1)];
    l->previous[end] = *head;
    *head = end;
}

static void index_grow(PromptLookup *l) {
    l->cap = l->cap ? 2 * l->cap : INITIAL_TOKENS;
    l->tokens = xrealloc(l->tokens, (size_t)l->cap, sizeof *l->tokens);
    l->previous = xrealloc(l->previous, (size_t)l->cap, sizeof *l->previous);
    l->heads = xrealloc(l->heads, (size_t)l->cap, sizeof *l->heads);
    for (int i = 0; i < l->cap; i++) l->heads[i] = -1;
    for (int i = 0; i < l->n; i++) index_position(l, i);
}

// Appends a token of the sequence. If the latest draft predicted a token for this position, updates
// the acceptance rate.
static void append(PromptLookup *l, int token) {
    if (l->n_checked < l->n_draft) {
        int class = match_class(l->n_match + l->n_checked);
        bool is_right = l->draft[l->n_checked++] == token;
        l->n_seen[class] = 0.97f * l->n_seen[class] + 1;
        l->n_right[class] = 0.97f * l->n_right[class] + (float)is_right;
        if (!is_right) l->n_draft = 0;
    }
    if (l->n == l->cap) index_grow(l);
    l->tokens[l->n++] = token;
    index_position(l, l->n - 1);
}

// Finds the longest earlier match for the end of the sequence, and sets n_match. Returns its last
// position, or -1. Of equal lengths, the latest wins.
static int find_match(PromptLookup *l) {
    int best = -1, last = l->n - 1;
    l->n_match = 0;
    if (l->n <= LOOKUP_MIN_MATCH) return -1;

    int at = l->previous[last];
    for (int i = 0; at >= 0 && i < MAX_CANDIDATES; at = l->previous[at], i++) {
        int n = 0; // tokens up to `at` that equal the last ones
        while (n < MAX_MATCH && n <= at && l->tokens[at - n] == l->tokens[last - n]) n++;
        if (n >= LOOKUP_MIN_MATCH && n > l->n_match) {
            best = at;
            l->n_match = n;
        }
    }
    return best;
}

// Finds the whole draft: its acceptance rates depend on the match, and reading it costs nothing.
static int lookup_estimate(void *arg, const DraftPoint *at, float *p_accept, int max,
                           double *sec_per_draft) {
    PromptLookup *l = arg;
    *sec_per_draft = 0;

    // After an interrupted pass, the index already has the pending token.
    if (l->n == at->session->n_tokens) append(l, at->pending);

    l->n_draft = l->n_checked = 0;
    int match = find_match(l);
    if (match < 0) return 0;

    // The draft is the tokens that follow the match.
    for (int i = 0; i < SPECULATE_MAX_DRAFT; i++) {
        int from = match + 1 + i; // after the end of the sequence, the draft repeats itself
        l->draft[i] = from < l->n ? l->tokens[from] : l->draft[from - l->n];
    }
    l->n_draft = SPECULATE_MAX_DRAFT;

    int n = max < l->n_draft ? max : l->n_draft;
    for (int i = 0; i < n; i++) {
        int class = match_class(l->n_match + i);
        p_accept[i] = l->n_right[class] / l->n_seen[class];
    }
    return n;
}

static int lookup_draft(void *arg, const DraftPoint *at, int *out, int n) {
    const PromptLookup *l = arg;
    (void)at;
    memcpy(out, l->draft, (size_t)n * sizeof *out);
    return n;
}

static void lookup_accept(void *arg, const Session *session, int row, int n) {
    PromptLookup *l = arg;
    (void)row;
    (void)n;
    while (l->n < session->n_tokens) append(l, session->tokens[l->n]);
}

static void lookup_free(void *arg) {
    PromptLookup *l = arg;
    free(l->tokens);
    free(l->previous);
    free(l->heads);
    free(l);
}

Drafter lookup_begin(void) {
    // Initial rates, with the weight of four observed tokens. They are typical of repetitive text.
    // With lower ones, drafts would never be tried.
    static const float prior_rate[N_CLASSES] = {0.3f, 0.4f, 0.5f, 0.7f, 0.8f};
    PromptLookup *l = xalloc(1, sizeof *l);
    for (int i = 0; i < N_CLASSES; i++) {
        l->n_seen[i] = 4;
        l->n_right[i] = 4 * prior_rate[i];
    }
    return (Drafter){lookup_estimate, lookup_draft, lookup_accept, lookup_free, l};
}
