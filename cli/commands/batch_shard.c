// See batch_shard.h.
//
// The rule `prefix` is a function of the texts that must never change, because processes of several
// machines and versions share the work. It is computed in integers. A request goes to the shard
// with the highest value:
//
//     (common beginning / length)^4 + preference / 16 - excess / tolerance
//
// - The common beginning is the longest that any request of the shard has, in steps of 64 bytes or
//   1/16 of it. The fourth power ignores a system prompt that all requests have.
// - The preference is a random number from 0 to 1 for a new beginning and a shard. It chooses among
//   equal shards, so that an edited or inserted line moves few later requests.
// - The excess is the number of requests that the shard has more than the smallest one. The
//   tolerance is 12 requests, plus 5 % of the requests per shard: no shard has much more in excess.
#include "cli/commands/batch_shard.h"
#include "cli/commands/batch_record.h"

#include <stdio.h>

enum {
    STEP = 64,           // bytes between the shortest beginnings
    MAX_STEPS = 256,     // a request of 4 MiB has 150
    MAX_KNOWN = 1 << 20, // beginnings; then all are forgotten
    TOLERANCE = 12,      // requests
    PER_CENT_5 = 20      // 1/20
};

bool shard_parse(Shard *s, const char *text) {
    long k, n;
    int end = 0;
    if (sscanf(text, "%ld/%ld%n", &k, &n, &end) != 2 || k < 1 || k > n) return false;

    const char *rule = text + end;
    bool by_lines = !strcmp(rule, ":lines");
    bool by_prefix = !strcmp(rule, ":prefix");
    if (*rule && !by_lines && !by_prefix) return false;
    if (!by_lines && n > MAX_SHARDS) return false;

    *s = (Shard){.k = k, .n = n, .by_lines = by_lines, .has_rule = *rule};
    return true;
}

void shard_put(const Shard *s, char text[SHARD_TEXT]) {
    *text = 0;
    if (s->n > 1) snprintf(text, SHARD_TEXT, "%ld/%ld%s", s->k, s->n, s->by_lines ? "" : ":prefix");
}

void shard_restart(Shard *s) {
    intern_clear(&s->known);
    s->n_total = 0;
    if (s->n_requests) memset(s->n_requests, 0, (size_t)s->n * sizeof *s->n_requests);
}

void shard_put_beginning(const Json *root, Str line, Buffer *out) {
    static const char *const members[] = {"tools", "messages", "prompt", "context", "text"};
    const Json *body = json_get(root, "body") ? json_get(root, "body") : root;
    JsonWriter w = {.out = out};
    if (!root || root->kind != JSON_OBJECT) {
        buffer_put(out, root && root->kind == JSON_STRING ? root->string : line);
        return;
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const Json *member = json_get_value(body, members[i]);
        if (member) json_write_value(&w, NULL, member, NULL);
        w.needs_comma = false;
    }
}

// The hashes of the beginnings of a text, and their lengths. Returns their number.
static int hash_beginnings(Str text, uint64_t hash[MAX_STEPS], size_t length[MAX_STEPS]) {
    size_t begin = 0;
    int n = 0;
    for (size_t end = STEP; end < text.len && n < MAX_STEPS; n++) {
        hash[n] = record_hash(n ? hash[n - 1] : 0, (Str){text.data + begin, end - begin});
        length[n] = begin = end;
        size_t step = end / 16 / STEP * STEP;
        end += step > STEP ? step : STEP;
    }
    return n;
}

// A random number below 2^16 for a beginning and a shard.
static int64_t preference(uint64_t beginning, long k) {
    char text[24];
    snprintf(text, sizeof text, "%ld", k);
    return (int64_t)(record_hash(beginning, str_of(text)) >> 48);
}

// 2^20 times the part of the value that the common beginning adds.
static int64_t affinity(size_t common, size_t length) {
    uint64_t share = common * 1024 / length;
    return (int64_t)(share * share * share * share >> 20);
}

// Adds shard k, from 0, to those that have the beginnings (n) of a text.
static void add_beginnings(Shard *s, const uint64_t *hash, int n, long k) {
    if (s->known.n + n > MAX_KNOWN) intern_clear(&s->known);
    for (int i = 0; i < n; i++) {
        bool is_new;
        int at = intern_add(&s->known, &hash[i], sizeof hash[i], &is_new);
        if (is_new) s->shard_of = list_grow(s->shard_of, at, sizeof *s->shard_of);
        s->shard_of[at] = (is_new ? 0 : s->shard_of[at]) | (uint64_t)1 << k % 64;
    }
}

// The shard of a text, from 0.
static long choose_shard(const Shard *s, Str text, const uint64_t *hash, const size_t *length,
                         int n) {
    size_t common[64] = {0}; // of the shards k % 64
    int n_known = 0;
    for (; n_known < n; n_known++) {
        int at = intern_find(&s->known, &hash[n_known], sizeof *hash);
        if (at < 0) break;
        for (int bit = 0; bit < 64; bit++)
            if (s->shard_of[at] >> bit & 1) common[bit] = length[n_known];
    }

    // The first beginning that no request has; a text that is known or short has its last one.
    int first = n_known < n ? n_known : n - 1;
    uint64_t beginning = n ? hash[first] : record_hash(0, text);

    long least = s->n_requests[0];
    for (long k = 1; k < s->n; k++)
        if (s->n_requests[k] < least) least = s->n_requests[k];

    int64_t tolerance = TOLERANCE * PER_CENT_5 * s->n + s->n_total; // in 1 / (20 n) requests
    long best = 0;
    int64_t best_value = INT64_MIN;
    for (long k = 0; k < s->n; k++) {
        int64_t excess = s->n_requests[k] - least;
        int64_t value = preference(beginning, k) - (excess << 20) * PER_CENT_5 * s->n / tolerance;
        if (n) value += affinity(common[k % 64], text.len);
        if (value > best_value) {
            best = k;
            best_value = value;
        }
    }
    return best;
}

bool shard_takes(Shard *s, long line, Str text) {
    uint64_t hash[MAX_STEPS];
    size_t length[MAX_STEPS];
    if (s->n == 1) return true;
    if (s->by_lines) return (line - 1) % s->n == s->k - 1;

    if (!s->n_requests) s->n_requests = xalloc((size_t)s->n, sizeof *s->n_requests);
    int n = hash_beginnings(text, hash, length);
    long k = choose_shard(s, text, hash, length, n);
    add_beginnings(s, hash, n, k);
    s->n_requests[k]++;
    s->n_total++;
    return k == s->k - 1;
}
