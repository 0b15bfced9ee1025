// The order in which records of a batch run: batch_add_waiting(), batch_start_waiting(),
// batch_collect_finished().
//
// A common prefix of several prompts is prefilled once, in whatever order the prompts come. A
// record starts as a fork of the session that has the longest common prefix; it waits while a
// running record is still computing a longer one. The waiting record with the longest computed
// prefix starts first, so a group of prompts is completed before the next one begins. Prefixes of
// finished records are kept as long as waiting records can use them.
//
// Waiting records are sorted by their tokens, and each knows its common prefix with the one before
// it. The common prefix of any tokens with all waiting prompts is then one walk in both directions
// from the place of these tokens: it is the minimum of the stored lengths on the way.
//
// Invariants: the KV caches of all running records fit in memory, each at its full length. A record
// is overtaken by at most MAX_OVERTAKEN records that were read later, plus those that start while
// another record computes its prefix.
#include "cli/commands/batch.h"
#include "cli/report.h"

#include <limits.h>

enum { MIN_SHARED = 32 }; // tokens of the shortest common prefix that is shared

// Shared prefixes

// Most tokens of a prompt that may be shared. The last token, or the one before the first scored
// token, must be fed for its logits.
static int max_shared(const Record *r) {
    return (r->request.first_scored ? r->request.first_scored : r->prompt.len) - 1;
}

// Least number of tokens that is shared. The choices of one request share a prompt even if it is
// short.
static int min_shared(const Record *r) {
    int n = max_shared(r);
    if (r->parent->n_choices < 2 || n >= 2 * MIN_SHARED) return MIN_SHARED;
    return n > 1 ? n / 2 : 1;
}

// Waiting records

// The order of two prompts, and the length of their common prefix.
static int compare_prompts(const int *a, int n_a, const int *b, int n_b, int *n_common) {
    int n = n_a < n_b ? n_a : n_b;
    int i = 0;
    while (i < n && a[i] == b[i]) i++;
    *n_common = i;
    return i < n ? (a[i] > b[i]) - (a[i] < b[i]) : (n_a > n_b) - (n_a < n_b);
}

// The common prefix of a waiting record and other tokens (n).
static int common_prefix(const Batch *b, int i, const int *tokens, int n) {
    int n_common = 0;
    if (i < 0 || i >= b->n_waiting) return 0;
    const Ids *prompt = &b->waiting[i]->prompt;
    compare_prompts(prompt->data, prompt->len, tokens, n, &n_common);
    return n_common;
}

// The place of tokens (n) among the waiting records, behind equal ones.
static int find_place(const Batch *b, const int *tokens, int n) {
    int begin = 0, end = b->n_waiting;
    while (begin < end) {
        int i = begin + (end - begin) / 2, n_common;
        const Ids *prompt = &b->waiting[i]->prompt;
        if (compare_prompts(prompt->data, prompt->len, tokens, n, &n_common) <= 0)
            begin = i + 1;
        else
            end = i;
    }
    return begin;
}

void batch_add_waiting(Batch *b, Record *r) {
    const Ids *prompt = &r->prompt;
    int place = find_place(b, prompt->data, prompt->len);
    r->schedule.order = b->n_read++;
    r->schedule.n_common = common_prefix(b, place - 1, prompt->data, prompt->len);
    if (place < b->n_waiting)
        b->waiting[place]->schedule.n_common = common_prefix(b, place, prompt->data, prompt->len);

    b->waiting = list_grow(b->waiting, b->n_waiting, sizeof *b->waiting);
    memmove(b->waiting + place + 1, b->waiting + place,
            (size_t)(b->n_waiting++ - place) * sizeof *b->waiting);
    b->waiting[place] = r;
}

static void remove_waiting(Batch *b, const Record *r) {
    int i = 0;
    while (b->waiting[i] != r) i++;
    b->n_started++;
    memmove(b->waiting + i, b->waiting + i + 1, (size_t)(--b->n_waiting - i) * sizeof r);
    if (i == b->n_waiting) return;

    RecordSchedule *next = &b->waiting[i]->schedule;
    if (next->n_common > r->schedule.n_common) next->n_common = r->schedule.n_common;
}

// Shared prefixes

// Updates the longest prefix of a record with one of n positions that a session has or will have.
static void improve_prefix(Record *r, int n, SharedPrefix found) {
    SharedPrefix *best = &r->schedule.prefix;
    if (n > max_shared(r)) n = max_shared(r);

    int n_now = n < found.n_now ? n : found.n_now;
    if (n_now > best->n_now) {
        best->session = found.session;
        best->kept = found.kept;
        best->n_now = n_now;
    }
    if (n > best->n_soon) best->n_soon = n;
}

// Updates the prefixes of all waiting records with those of a session that has computed
// found.n_now of tokens (n). Sorted prompts lie the further from these tokens, the less they share.
static void improve_prefixes(Batch *b, const int *tokens, int n, SharedPrefix found) {
    int place = find_place(b, tokens, n);

    int n_common = common_prefix(b, place - 1, tokens, n);
    for (int i = place - 1; n_common > 0; i--) {
        Record *r = b->waiting[i];
        improve_prefix(r, n_common, found);
        if (r->schedule.n_common < n_common) n_common = r->schedule.n_common;
    }

    n_common = common_prefix(b, place, tokens, n);
    for (int i = place; n_common > 0; i++) {
        improve_prefix(b->waiting[i], n_common, found);
        if (i + 1 == b->n_waiting) break;
        int next = b->waiting[i + 1]->schedule.n_common;
        if (next < n_common) n_common = next;
    }
}

// Finds the longest prefix of each waiting record in the kept prefixes and the running records.
static void find_prefixes(Batch *b) {
    for (int i = 0; i < b->n_waiting; i++)
        b->waiting[i]->schedule.prefix = (SharedPrefix){.kept = -1};

    for (int i = 0; i < b->n_prefixes; i++) {
        const Session *s = b->prefixes[i];
        improve_prefixes(b, s->tokens, s->n_tokens,
                         (SharedPrefix){.session = s, .kept = i, .n_now = s->n_tokens});
    }

    for (int i = 0; i < b->n_running; i++) {
        const Record *r = b->running[i];
        improve_prefixes(
            b, r->prompt.data, r->prompt.len,
            (SharedPrefix){.session = r->session, .kept = -1, .n_now = r->session->n_tokens});
    }
}

static Session *remove_prefix(Batch *b, int i) {
    Session *s = b->prefixes[i];
    memmove(b->prefixes + i, b->prefixes + i + 1, (size_t)(--b->n_prefixes - i) * sizeof s);
    return s;
}

// Frees the kept prefix that saves the waiting records least; of several, the least recently used.
// Returns its positions.
static size_t free_prefix(Batch *b) {
    size_t saved[b->n_prefixes]; // tokens
    memset(saved, 0, sizeof saved);
    find_prefixes(b);
    for (int i = 0; i < b->n_waiting; i++) {
        const SharedPrefix *prefix = &b->waiting[i]->schedule.prefix;
        if (prefix->kept >= 0) saved[prefix->kept] += (size_t)prefix->n_now;
    }

    int least = 0;
    for (int i = 1; i < b->n_prefixes; i++)
        if (saved[i] < saved[least]) least = i;
    Session *s = remove_prefix(b, least);
    size_t n = (size_t)s->n_tokens;
    session_free(s);
    return n;
}

// The longest common prefix of a prompt and the sessions, of kept prefixes and running records.
static int longest_prefix(const Batch *b, const Ids *prompt) {
    int longest = 0;
    for (int i = 0; i < b->n_prefixes + b->n_running; i++) {
        bool is_kept = i < b->n_prefixes;
        const Session *s = is_kept ? b->prefixes[i] : b->running[i - b->n_prefixes]->session;
        int n;
        compare_prompts(s->tokens, s->n_tokens, prompt->data, prompt->len, &n);
        if (n > longest) longest = n;
    }
    return longest;
}

// Keeps the longest prefix of a finished record's prompt that a waiting record needs and no other
// session has. If more input may come, keeps the whole prompt of a free place, unless other
// sessions have nearly all of it. False if nothing is kept.
static bool keep_prefix(Batch *b, Record *r) {
    bool has_place = b->n_prefixes < b->max_prefixes || b->n_waiting == 0;
    bool may_need_all = !b->input.at_end && has_place &&
                        r->prompt.len - longest_prefix(b, &r->prompt) >= MIN_SHARED;
    int keep = may_need_all ? r->prompt.len : 0;

    find_prefixes(b);
    for (int i = 0; i < b->n_waiting; i++) {
        const Record *w = b->waiting[i];
        int n = common_prefix(b, i, r->prompt.data, r->prompt.len);
        if (n > max_shared(w)) n = max_shared(w);
        if (n > keep && n - w->schedule.prefix.n_soon >= min_shared(w)) keep = n;
    }

    if (keep > r->session->n_tokens) keep = r->session->n_tokens;
    if (keep == 0) return false;
    if (b->n_prefixes == b->max_prefixes) free_prefix(b);
    session_rewind(r->session, keep);
    b->prefixes[b->n_prefixes++] = r->session;

    return true;
}

// An ideal order shares the longest beginning that an earlier prompt has as well. The sum over all
// prompts depends on their order only by prompts that share little, or all but their last token.
void batch_count_prompt(BatchCounts *counts, const Record *r) {
    InternTable *beginnings = &counts->beginnings;
    uint64_t hash = 0;
    int n_known = 0;
    bool is_new = false;

    for (int i = 0; i < r->prompt.len; i++) {
        const Str token = {(const char *)&r->prompt.data[i], sizeof r->prompt.data[i]};
        hash = record_hash(hash, token);
        if (is_new && beginnings->n >= MAX_BEGINNINGS) break;
        intern_add(beginnings, &hash, sizeof hash, &is_new);
        if (!is_new) n_known = i + 1;
    }

    if (n_known > max_shared(r)) n_known = max_shared(r);
    if (n_known >= min_shared(r)) counts->n_sharable += (uint64_t)n_known;
    counts->n_prompt += (uint64_t)r->prompt.len;
    counts->n_shared += (uint64_t)r->schedule.n_shared;
}

// Scheduling

// Positions that a record's KV cache may grow to.
static size_t max_positions(const Record *r) {
    const Request *q = &r->request;
    long n = (long)r->prompt.len + q->max_tokens;
    return (size_t)(q->max_tokens < 0 || n > q->max_context ? q->max_context : n);
}

bool batch_fits_memory(const Batch *b, const Record *r, Error *err) {
    size_t n = max_positions(r), per_position = kv_position_bytes(&b->pipeline.model.kv), bytes;
    if (size_mul(n, per_position, &bytes) && bytes <= b->kv_memory) return true;
    return error_set(err, EXIT_RUNTIME,
                     "a KV cache of %zu positions needs %zu MiB, %zu MiB are available", n,
                     n * per_position >> 20, b->kv_memory >> 20);
}

// True if the KV cache of a record fits in memory beside those of all running records, each at its
// full length. Frees kept prefixes if necessary.
static bool reserve_memory(Batch *b, const Record *r) {
    size_t per_position = kv_position_bytes(&b->pipeline.model.kv), n = max_positions(r), bytes;
    for (int i = 0; i < b->n_running; i++) n += max_positions(b->running[i]);
    for (int i = 0; i < b->n_prefixes; i++) n += (size_t)b->prefixes[i]->n_tokens;
    while (!size_mul(n, per_position, &bytes) || bytes > b->kv_memory) {
        if (!b->n_prefixes) return false;
        n -= free_prefix(b);
    }
    return true;
}

static void start_record(Batch *b, Record *r) {
    find_prefixes(b); // reserve_memory() may have freed the prefix
    SharedPrefix prefix = r->schedule.prefix;
    bool is_shared = prefix.n_now >= min_shared(r);

    remove_waiting(b, r);
    if (is_shared) r->session = session_fork(prefix.session, prefix.n_now);
    r->schedule.n_shared = r->session ? prefix.n_now : 0;
    if (!r->session) r->session = session_new(&b->pipeline.model.kv); // nothing is shared
    if (is_shared && prefix.kept >= 0) {                              // now the most recently used
        Session *used = remove_prefix(b, prefix.kept);
        b->prefixes[b->n_prefixes++] = used;
    }
    sequence_start(&r->sequence, &b->generator, &r->request, r->session);
    r->state = RECORD_RUNNING;
    b->running[b->n_running++] = r;
}

// Compares two records that can start: the longer computed prefix is better, then the prefix that
// more waiting records share, then the earlier record.
typedef struct {
    Record *record;
    int n_now;     // computed positions that it can share; INT_MAX: it must not wait any longer
    int n_sharing; // waiting records that share its prefix, if n_now is 0
} Candidate;

static bool is_better(Candidate a, Candidate b) {
    if (a.n_now != b.n_now) return a.n_now > b.n_now;
    if (a.n_sharing != b.n_sharing) return a.n_sharing > b.n_sharing;
    return a.record->schedule.order < b.record->schedule.order;
}

// The number of waiting records from i on that share a prefix of MIN_SHARED tokens.
static int count_sharing(const Batch *b, int i) {
    int n = 1;
    while (i + n < b->n_waiting && b->waiting[i + n]->schedule.n_common >= MIN_SHARED) n++;
    return n;
}

// The record to start next; NULL: none can start. A record that MAX_OVERTAKEN later ones have
// overtaken comes first.
static Record *next_record(Batch *b) {
    Candidate best = {0};
    int n_sharing = 0;
    find_prefixes(b);

    for (int i = 0; i < b->n_waiting; i++) {
        Record *r = b->waiting[i];
        if (i == 0 || r->schedule.n_common < MIN_SHARED) n_sharing = count_sharing(b, i);

        const SharedPrefix *prefix = &r->schedule.prefix;
        if (prefix->n_soon - prefix->n_now >= min_shared(r))
            continue; // another record is computing it
        Candidate c = {.record = r, .n_sharing = n_sharing};
        if (prefix->n_now >= min_shared(r)) c = (Candidate){.record = r, .n_now = prefix->n_now};
        if (b->n_started - r->schedule.order >= MAX_OVERTAKEN)
            c = (Candidate){.record = r, .n_now = INT_MAX};
        if (!best.record || is_better(c, best)) best = c;
    }

    return best.record;
}

void batch_start_waiting(Batch *b) {
    while (b->n_waiting && b->n_running < b->max_running) {
        Record *r = next_record(b);
        if (!r) return;
        if (reserve_memory(b, r)) {
            start_record(b, r);
            continue;
        }
        if (b->n_running) return; // a running record will free memory

        Error err;
        batch_fits_memory(b, r, &err); // alone, it does not
        if (b->task->only) die_error(&err);
        record_fail(r, "out_of_memory", err.text);
        remove_waiting(b, r);
    }
}

void batch_collect_finished(Batch *b) {
    for (int i = b->n_running - 1; i >= 0; i--) {
        Record *r = b->running[i];
        if (r->sequence.finish == FINISH_NONE || r->sequence.finish == FINISH_CANCEL) continue;

        size_t n_behind = (size_t)(--b->n_running - i);
        memmove(b->running + i, b->running + i + 1, n_behind * sizeof *b->running);
        b->counts.n_cut += r->sequence.n_cut > 0;
        b->counts.n_loops += r->sequence.finish == FINISH_LOOP;
        b->counts.n_full += is_cut_by_context(&r->sequence);
        record_finish(r, b->task);

        bool is_first = r->index % r->parent->n_per_prompt == 0; // choice of its prompt
        if (is_first) batch_count_prompt(&b->counts, r);
        b->counts.n_generated += (uint64_t)r->sequence.n_generated;
        sequence_free(&r->sequence);
        if (!keep_prefix(b, r)) session_free(r->session);
        r->session = NULL;
    }
}
