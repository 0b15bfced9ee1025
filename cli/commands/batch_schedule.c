// The order in which records of a batch run: batch_start_waiting(), batch_collect_finished().
//
// A common prefix of several prompts is prefilled once. A record starts as a fork of the session
// that has the longest common prefix; it waits while a running record is still computing a longer
// one. Prefixes of finished records are kept as long as waiting records can use them.
//
// Invariant: the KV caches of all running records fit in memory, each at its full length.
#include "cli/commands/batch.h"

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

// Length of the common prefix of a record's prompt and other tokens (n).
static int common_prefix(const Record *r, const int *tokens, int n) {
    int i = 0;
    if (n > max_shared(r)) n = max_shared(r);
    while (i < n && r->prompt.data[i] == tokens[i]) i++;
    return i;
}

// The longest prefix of a prompt in other sessions.
typedef struct {
    const Session *session;
    int kept;   // index of `session` in Batch.prefixes; -1: it is a running record's
    int n_now;  // positions that `session` has computed
    int n_soon; // positions that some session has computed or is going to compute
} SharedPrefix;

// Searches the kept prefixes and the running records, except for the record `except`.
static SharedPrefix find_prefix(const Batch *b, const Record *r, const Record *except) {
    SharedPrefix best = {.kept = -1};
    for (int i = 0; i < b->n_prefixes; i++) {
        int n = common_prefix(r, b->prefixes[i]->tokens, b->prefixes[i]->n_tokens);
        if (n > best.n_now) best = (SharedPrefix){b->prefixes[i], i, n, n};
    }

    for (int i = 0; i < b->n_running; i++) {
        const Record *other = b->running[i];
        if (other == except) continue;
        int n = common_prefix(r, other->prompt.data, other->prompt.len);
        int n_now = n < other->session->n_tokens ? n : other->session->n_tokens;
        if (n_now > best.n_now) best = (SharedPrefix){other->session, -1, n_now, best.n_soon};
        if (n > best.n_soon) best.n_soon = n;
    }

    return best;
}

static Session *remove_prefix(Batch *b, int i) {
    Session *s = b->prefixes[i];
    memmove(b->prefixes + i, b->prefixes + i + 1, (size_t)(--b->n_prefixes - i) * sizeof s);
    return s;
}

// Keeps the longest prefix of a finished record's prompt that a waiting record needs and no other
// session has. If no record is waiting but more input may come, keeps the whole prompt. False if
// nothing is kept.
static bool keep_prefix(Batch *b, Record *r) {
    bool may_need_all = b->n_waiting == 0 && !b->input.at_end && r->prompt.len >= MIN_SHARED;
    int keep = may_need_all ? r->prompt.len : 0;
    int n_available = 0; // longest prefix of r that other sessions have

    for (int i = 0; i < b->n_window; i++) {
        const Record *w = b->window[i];
        if (w->state != RECORD_WAITING) continue;

        int n = common_prefix(w, r->prompt.data, r->prompt.len);
        if (n <= keep || n <= n_available || n < min_shared(w)) continue;
        if (n - find_prefix(b, w, r).n_soon >= min_shared(w))
            keep = n;
        else
            n_available = n;
    }

    if (keep > r->session->n_tokens) keep = r->session->n_tokens;
    if (keep == 0) return false;
    if (b->n_prefixes == b->max_prefixes) session_free(remove_prefix(b, 0));
    session_rewind(r->session, keep);
    b->prefixes[b->n_prefixes++] = r->session;

    return true;
}

// Scheduling

// Positions that a record's KV cache may grow to.
static size_t max_positions(const Record *r) {
    const Request *q = &r->request;
    long n = (long)r->prompt.len + q->max_tokens;
    return (size_t)(q->max_tokens < 0 || n > q->max_context ? q->max_context : n);
}

// True if the KV cache of a record fits in memory beside those of all running records, each at its
// full length. Frees kept prefixes if necessary.
static bool reserve_memory(Batch *b, const Record *r) {
    size_t per_position = kv_position_bytes(&b->pipeline.model.kv), n = max_positions(r), bytes;
    for (int i = 0; i < b->n_running; i++) n += max_positions(b->running[i]);
    for (int i = 0; i < b->n_prefixes; i++) n += (size_t)b->prefixes[i]->n_tokens;
    while (!size_mul(n, per_position, &bytes) || bytes > b->kv_memory) {
        if (!b->n_prefixes) return false;
        n -= (size_t)b->prefixes[0]->n_tokens;
        session_free(remove_prefix(b, 0));
    }
    return true;
}

static void start_record(Batch *b, Record *r) {
    SharedPrefix prefix = find_prefix(b, r, NULL);
    bool is_shared = prefix.n_now >= min_shared(r);
    r->session = is_shared ? session_fork(prefix.session, prefix.n_now) : NULL;
    r->n_shared = r->session ? prefix.n_now : 0;
    if (!r->session) r->session = session_new(&b->pipeline.model.kv);
    if (r->n_shared && prefix.kept >= 0) { // now the most recently used
        Session *used = remove_prefix(b, prefix.kept);
        b->prefixes[b->n_prefixes++] = used;
    }
    sequence_start(&r->sequence, &b->generator, &r->request, r->session);
    r->state = RECORD_RUNNING;
    b->n_waiting--;
    b->running[b->n_running++] = r;
}

void batch_start_waiting(Batch *b) {
    for (int i = 0; i < b->n_window && b->n_waiting && b->n_running < b->max_running; i++) {
        Record *r = b->window[i];
        if (r->state != RECORD_WAITING) continue;

        SharedPrefix prefix = find_prefix(b, r, NULL);
        if (prefix.n_soon - prefix.n_now >= min_shared(r))
            continue; // another record is computing it
        if (reserve_memory(b, r)) {
            start_record(b, r); // searches again: reserve_memory() may have freed the prefix
            continue;
        }
        if (b->n_running) return; // a running record will free memory

        Error err;
        size_t n = max_positions(r);
        error_set(&err, EXIT_RUNTIME,
                  "a KV cache of %zu positions needs %zu MiB, %zu MiB are available", n,
                  n * kv_position_bytes(&b->pipeline.model.kv) >> 20, b->kv_memory >> 20);
        if (b->task->only) die_error(&err);
        record_fail(r, "out_of_memory", err.text);
        b->n_waiting--;
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
        record_finish(r, b->task);

        if (r->index % r->parent->n_per_prompt == 0) { // the first choice of its prompt
            b->counts.n_prompt += (uint64_t)r->prompt.len;
            b->counts.n_shared += (uint64_t)r->n_shared;
        }
        b->counts.n_generated += (uint64_t)r->sequence.n_generated;
        sequence_free(&r->sequence);
        if (!keep_prefix(b, r)) session_free(r->session);
        r->session = NULL;
    }
}
