// batch: a file of requests, many under way at once, a line of output for each.
//
// The window holds the requests that were read and not yet written, in the order of the input.
// Those waiting start as places get free; one that shares a prefix with a sequence at hand starts
// as a fork of it, or waits the few steps until that has computed the prefix. What a request is
// answered depends on itself alone: its options, its prompt and its own random stream.
#include "commands.h"
#include "../base/clock.h"
#include "batch_requests.h"
#include "../base/signals.h"
#include "../base/files.h"
#include "../os/os.h"
#include "../os/os.h"
#include "../cli/generator.h"
#include "../cli/request.h"
#include "../cli/lines.h"
#include "../cli/output.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_LINE = 4 << 20,      // bytes of a request; a context of 131072 tokens is well below
    MAX_RESULT = 1 << 30,    // bytes of a line of output when resuming
    WINDOW = 512,            // requests read ahead
    WINDOW_TOKENS = 1 << 22, // tokens of their prompts
    MIN_SHARE = 32,          // tokens of a prefix worth sharing
    N_KEPT = 8               // prefixes kept when no sequence holds them
};

// A set of keys is a search tree of strings.
static int by_text(const void *a, const void *b) { return strcmp(a, b); }

static bool set_has(void *const *set, const char *key) { return tfind(key, set, by_text); }

// False if it was there. The set keeps a copy.
static bool set_add(void **set, const Buffer *key) {
    if (set_has(set, key->data)) return false;
    if (!tsearch(str_copy(buffer_str(key)).data, set, by_text))
        die(EXIT_RUNTIME, "out of memory: ids");
    return true;
}

typedef struct {
    const Options *options; // own, which goes on with an earlier run's seed
    Options own;
    Pipeline pipeline;
    Generator generator;
    LineReader in;
    JsonDoc doc;
    RecordForm form; // of the request read last
    long shard, n_shards;
    bool at_end;
    void *seen, *done; // ids of the input so far; keys that the output held at the start
    Journal out;
    Record *window[WINDOW + MAX_CHOICES]; // (n_window) in order of input
    int n_window, n_waiting;
    size_t window_tokens;
    Record **active;      // (n_active), those that started first in front
    Sequence **sequences; // (n_active) theirs
    int n_active, parallel;
    Session *kept[N_KEPT]; // (n_kept) prefixes of finished sequences, for those that wait; used
                           // longest ago first
    int n_kept;
    size_t memory; // bytes that KV caches may take
    // counts for the summary and for progress
    long n_total, n_done, n_failed, n_skipped, n_failed_before;
    uint64_t n_prompt, n_shared, n_generated;
    double start, last_progress;
    bool shows_progress;
} Batch;

// Output

// One line, whole or not at all.
static void write_line(Batch *b, const Buffer *line) {
    Error err;
    if (journal_append(&b->out, buffer_str(line), &err)) return;
    if (errno == EPIPE) _exit(EXIT_OK); // the reader has had enough
    die(EXIT_RUNTIME, "%s%s", err.text,
        !b->out.is_file       ? ""
        : b->out.is_truncated ? " (its last line is torn; --resume goes on)"
                              : " (its lines are whole; --resume goes on)");
}

// The output without the errors that are tried again.
static void drop_passing(Batch *b) {
    static LineReader l;
    Buffer kept = {0}, key = {0};
    Str line;
    Error err;
    ResultKind kind;
    buffer_puts(&kept, "");
    lines_open(&l, b->out.path, MAX_RESULT);
    while (lines_next(&l, &line, true) == LINE_READY) {
        if (!json_parse(&b->doc, line.data, line.len, &err)) die_error(&err);
        if (result_key(b->doc.root, &key, &kind) && kind == RESULT_AGAIN) continue;
        buffer_put(&kept, line);
        buffer_puts(&kept, "\n");
    }
    close(l.fd);
    if (!journal_replace(&b->out, buffer_str(&kept), &err)) die_error(&err);
    buffer_free(&kept);
    buffer_free(&key);
}

// One whole line of what an earlier run has left.
static void take_result(Batch *b, const LineReader *l, Str line, long *n_again) {
    static Buffer key;
    ResultKind kind = RESULT_ANSWER;
    Error err;
    bool is_good = json_parse(&b->doc, line.data, line.len, &err);
    if (is_good && !result_key(b->doc.root, &key, &kind))
        is_good = error_set(&err, EXIT_RUNTIME, "expected an answer with an id");
    if (!is_good)
        die(EXIT_RUNTIME, "%s: line %ld: %s (not an output of batch?)", b->out.path, l->number,
            err.text);
    *n_again += kind == RESULT_AGAIN;
    if (kind == RESULT_AGAIN) return;
    set_add(&b->done, &key);
    b->n_failed_before += kind == RESULT_ERROR;
}

// Reads what an earlier run has left: finished keys, and where the last whole line ends.
static void resume(Batch *b) {
    static LineReader l;
    Str line;
    Error err;
    size_t n_torn = 0;
    long n_again = 0;
    LineState state;
    lines_open(&l, b->out.path, MAX_RESULT);
    while ((state = lines_next(&l, &line, true)) == LINE_READY) {
        n_torn = !l.is_whole && str_may_begin_with(line, RESULT_HEAD) ? line.len : 0;
        if (n_torn) break;
        take_result(b, &l, line, &n_again);
    }
    close(l.fd);
    if (state == LINE_LONG) die(EXIT_RUNTIME, "%s: line %ld is too long", b->out.path, l.number);
    if (!journal_repair(&b->out, n_torn, &err)) die_error(&err);
    if (n_torn && !b->options->is_quiet)
        warn("%s: dropped the torn line %ld", b->out.path, l.number);
    if (n_again) drop_passing(b);
}

// Answers of two models, or under two sets of options, do not belong into one file: it bears a mark
// of what its lines depend on, where the system has marks. A seed that was drawn is kept.
static void check_fingerprint(Batch *b) {
    char begun[64] = "";
    Buffer own = {0};
    if (!b->out.is_file || b->out.fd == STDOUT_FILENO) return;
    if (b->options->is_resume && !b->options->is_forced)
        os_get_attribute(b->out.fd, begun, sizeof begun);
    const char *seed = strrchr(begun, '_');
    int64_t drawn;
    if (seed && !b->options->has_seed && parse_i64(seed + 1, &drawn))
        b->own.sample.seed = (uint64_t)drawn;
    fingerprint_put(&own, b->options, &b->pipeline);
    if (seed && strcmp(begun, own.data))
        die(EXIT_USAGE, "%s was begun with another %s (%s, not %s): --force goes on all the same",
            b->out.path,
            !strncmp(begun, own.data, (size_t)(seed - begun)) ? "seed" : "model or other options",
            begun, own.data);
    os_set_attribute(b->out.fd, own.data);
    buffer_free(&own);
}

// Opens what answers go to, for this process alone; what is in it stays, and only --resume goes on
// with it.
static void open_output(Batch *b) {
    const Options *o = b->options;
    struct stat st;
    Error err;
    bool is_stdout = !o->output || !strcmp(o->output, "-");
    if (is_stdout && o->is_resume) die(EXIT_USAGE, "--resume: expected -o FILE");
    if (is_stdout) {
        bool is_file = fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode);
        b->out = (Journal){.path = "standard output", .fd = STDOUT_FILENO, .is_file = is_file};
        return;
    }
    if (!journal_open(&b->out, o->output, FILE_STREAM, &err)) die_error(&err);
    if (!b->out.is_file) return;
    if (o->is_resume)
        resume(b);
    else if (fstat(b->out.fd, &st) == 0 && st.st_size > 0)
        die(EXIT_USAGE, "%s exists and is not empty: --resume goes on with it", o->output);
}

// Progress

static void count_lines(Batch *b) { // of a file, so that there is an end to run towards
    static char bytes[1 << 16];
    struct stat st;
    off_t at = 0;
    ssize_t n;
    if (fstat(b->in.fd, &st) || !S_ISREG(st.st_mode)) return;
    while ((n = pread(b->in.fd, bytes, sizeof bytes, at)) > 0) {
        for (char *p = bytes; (p = memchr(p, '\n', (size_t)(bytes + n - p))); p++) b->n_total++;
        if (at + n == st.st_size && bytes[n - 1] != '\n') b->n_total++;
        at += n;
    }
    b->n_total = (b->n_total - b->shard + b->n_shards) / b->n_shards;
}

// By the records that are done, and those under way as far as they are; -1: there is nothing to
// tell it by.
static double seconds_left(const Batch *b, double sec) {
    double done = (double)b->n_done, n_left = (double)(b->n_total - b->n_done - b->n_skipped);
    for (int i = 0; i < b->n_active; i++) {
        const Sequence *s = b->sequences[i];
        double n = s->n_prefilled + s->n_generated,
               most = s->request.n_prompt + (double)s->request.max_tokens;
        if (s->request.max_tokens < 0) most = s->request.max_context;
        if (most > 0) done += n / most;
    }
    if (!b->n_total || n_left <= 0) return b->n_total ? 0 : -1;
    return done > 0.01 ? sec / done * ((double)b->n_done + n_left - done) : -1;
}

// A few times a second on a terminal, once a second as JSON.
static void show_progress(Batch *b, bool is_last) {
    double now = now_sec(), sec = now - b->start;
    if (!b->shows_progress ||
        (!is_last && now - b->last_progress < (b->options->progress_json ? 1 : 0.2)))
        return;
    b->last_progress = now;
    long n = b->n_done + b->n_skipped;
    double per_sec =
        b->generator.decode_sec > 0 ? (double)b->generator.n_decode / b->generator.decode_sec : 0;
    double left = seconds_left(b, sec);
    if (b->options->progress_json) {
        fprintf(stderr,
                "{\"done\":%ld,\"total\":%ld,\"failed\":%ld,\"skipped\":%ld,\"tokens\":%llu,"
                "\"tokens_per_sec\":%.1f,"
                "\"elapsed_sec\":%.1f,\"left_sec\":",
                n, b->n_total > n ? b->n_total : n, b->n_failed, b->n_skipped,
                (unsigned long long)b->n_generated, per_sec, sec);
        fprintf(stderr, left >= 0 ? "%.0f}\n" : "null}\n", left);
    } else if (is_last) {
        progress_end();
    } else {
        char total[24] = "", speed[32] = "", eta[32] = "";
        if (b->n_total > n) snprintf(total, sizeof total, "/%ld", b->n_total);
        if (per_sec > 0) snprintf(speed, sizeof speed, ", %.1f tok/s", per_sec);
        if (left > 0) snprintf(eta, sizeof eta, ", %d:%02d left", (int)left / 60, (int)left % 60);
        progress_print(
            b->options, "%ld%s records, %d under way, %llu tokens%s%s", n, total, b->n_active,
            (unsigned long long)(b->generator.n_prefill + b->generator.n_decode), speed, eta);
    }
}

static void print_summary(const Batch *b) {
    const Generator *g = &b->generator;
    SpeculationStats speculation = speculation_stats(g->speculation);
    if (b->options->is_quiet) return;
    fprintf(stderr, "%ld records, %ld failed, %ld skipped", b->n_done, b->n_failed, b->n_skipped);
    if (b->n_failed_before) fprintf(stderr, " (%ld had failed)", b->n_failed_before);
    fprintf(stderr, " | prompts %llu tok, %llu of them shared | generated %llu tok",
            (unsigned long long)b->n_prompt, (unsigned long long)b->n_shared,
            (unsigned long long)b->n_generated);
    if (g->n_decode) fprintf(stderr, " %.1f tok/s", (double)g->n_decode / g->decode_sec);
    if (speculation.n_drafted && b->options->is_verbose)
        fprintf(stderr, " | accepted %llu of %llu draft tok",
                (unsigned long long)speculation.n_accepted,
                (unsigned long long)speculation.n_drafted);
    fprintf(stderr, " | %.1f s | seed %lld\n", now_sec() - b->start,
            (long long)b->options->sample.seed);
}

// Input

// A record for the line read last, with the options of the command line to begin with.
static Record *record_new(const Batch *b) {
    Record *r = xalloc(1, sizeof *r);
    r->line = b->in.number;
    r->common = b->options;
    r->options = *b->options;
    r->options.has_seed = false;
    r->n_top = -1;
    r->n_choices = r->n_open = 1;
    r->form = b->form;
    return r;
}

// Who asks: NULL, or with err the code of what is wrong.
static const char *identify(Batch *b, Record *r, LineState state, Str line, Error *err) {
    bool is_text = b->options->is_lines;
    if (state == LINE_LONG) {
        error_set(err, EXIT_RUNTIME, "expected at most %d bytes, found more", MAX_LINE);
        return "line_too_long";
    }
    if (!is_text && !json_parse(&b->doc, line.data, line.len, err)) return "invalid_json";
    if (!record_identify(r, is_text ? NULL : b->doc.root, err)) return "invalid_request";
    b->form = r->form;
    if (set_add(&b->seen, &r->key)) return NULL;
    error_set(err, EXIT_RUNTIME, "the id %s was used by an earlier line", r->key.data);
    return "duplicate_id";
}

// One line of input becomes a record of the window, unless it is of another shard or done already.
// A bad one becomes an error record: once, even if the run is resumed.
static void take_line(Batch *b, LineState state, Str line) {
    Error err;
    bool is_mine = (b->in.number - 1) % b->n_shards == b->shard - 1, is_text = b->options->is_lines;
    if (is_text && line.len && line.data[line.len - 1] == '\r') line.len--;
    if (state == LINE_READY && str_is_blank(line)) return;
    Record *r = record_new(b);
    const char *code = identify(b, r, state, line, &err);
    if (code) {
        r->has_id = false;
        r->key.len = 0;
        buffer_printf(&r->key, "line %ld", r->line);
    }
    if (!is_mine || set_has(&b->done, r->key.data)) {
        b->n_skipped += is_mine;
        record_free(r);
        return;
    }
    if (!code && !(is_text ? record_take_text(r, &b->pipeline, line, &err)
                           : record_parse(r, &b->pipeline, b->doc.root, &err)))
        code = err.code == EXIT_CONTEXT ? "context_length_exceeded" : "invalid_request";
    if (code) r->n_choices = r->n_open = 1;
    if (code) record_fail(r, code, err.text);
    for (int i = 0; i < (code ? 1 : r->n_choices); i++) {
        Record *choice = i ? record_choice(r, i) : r;
        b->window[b->n_window++] = choice;
        b->window_tokens += (size_t)choice->prompt.len;
        b->n_waiting += choice->state == RECORD_WAITING;
    }
}

// Reads ahead; waits for input only if there is nothing else to do.
static void fill_window(Batch *b) {
    Str line;
    while (!b->at_end && b->n_window < WINDOW && b->window_tokens < WINDOW_TOKENS) {
        LineState state = lines_next(&b->in, &line, b->n_active == 0 && b->n_window == 0);
        if (state == LINE_NONE) return;
        b->at_end = state == LINE_END;
        if (!b->at_end) take_line(b, state, line);
    }
}

// Shared prefixes

// How many tokens of a prompt are computed where these were fed.
static int common_prefix(const Ids *a, const int *tokens, int n) {
    int i = 0;
    if (n > a->len - 1)
        n = a->len - 1; // the last token of a prompt is always fed: its logits are wanted
    while (i < n && a->data[i] == tokens[i]) i++;
    return i;
}

// Who can give the longest beginning of a prompt: what is computed now, and what will soon be.
typedef struct {
    const Session *session;
    int n_now, n_soon;
} Donor;

// Looks at prefixes that are kept and at all sequences under way `but` one.
static Donor find_donor(Batch *b, const Ids *prompt, const Record *but) {
    Donor d = {0};
    for (int i = 0; i < b->n_kept; i++) {
        int n = common_prefix(prompt, b->kept[i]->tokens, b->kept[i]->n_tokens);
        if (n > d.n_now) d = (Donor){b->kept[i], n, n};
    }
    for (int i = 0; i < b->n_active; i++) {
        const Record *r = b->active[i];
        if (r == but) continue;
        int n = common_prefix(prompt, r->prompt.data, r->prompt.len);
        int now = n < r->session->n_tokens ? n : r->session->n_tokens;
        if (now > d.n_now) d = (Donor){r->session, now, d.n_soon};
        if (n > d.n_soon) d.n_soon = n;
    }
    return d;
}

// Takes a session out of those that are kept.
static Session *take_kept(Batch *b, int i) {
    Session *s = b->kept[i];
    memmove(b->kept + i, b->kept + i + 1, (size_t)(--b->n_kept - i) * sizeof *b->kept);
    return s;
}

// Keeps as much of a finished sequence's prompt as somebody waiting can use and nobody else has;
// all of it when nobody waits, since who comes next is not known. True if the session was kept.
static bool keep_prefix(Batch *b, Record *r) {
    int keep = b->n_waiting == 0 && !b->at_end ? r->prompt.len : 0;
    for (int i = 0; i < b->n_window && b->n_waiting; i++) {
        const Record *w = b->window[i];
        if (w->state != RECORD_WAITING) continue;
        int n = common_prefix(&w->prompt, r->prompt.data, r->prompt.len);
        if (n <= keep || n < MIN_SHARE) continue;
        if (n - find_donor(b, &w->prompt, r).n_soon >= MIN_SHARE) keep = n;
    }
    if (keep > r->session->n_tokens) keep = r->session->n_tokens;
    if (keep < MIN_SHARE) return false;
    if (b->n_kept == N_KEPT) session_free(take_kept(b, 0));
    session_rewind(r->session, keep);
    b->kept[b->n_kept++] = r->session;
    return true;
}

// Scheduling

// Positions that a record may come to hold.
static size_t positions_needed(const Record *r) {
    const Request *q = &r->request;
    long most = (long)r->prompt.len + q->max_tokens;
    return (size_t)(q->max_tokens < 0 || most > q->max_context ? q->max_context : most);
}

// Whether its KV cache fits beside all that is promised to the others; kept prefixes make way.
static bool has_memory(Batch *b, const Record *r) {
    size_t per_position = kv_position_bytes(&b->pipeline.model.kv), positions = positions_needed(r);
    for (int i = 0; i < b->n_active; i++) positions += positions_needed(b->active[i]);
    for (int i = 0; i < b->n_kept; i++) positions += (size_t)b->kept[i]->n_tokens;
    for (size_t bytes; !size_mul(positions, per_position, &bytes) || bytes > b->memory;) {
        if (!b->n_kept) return false;
        positions -= (size_t)b->kept[0]->n_tokens;
        session_free(take_kept(b, 0));
    }
    return true;
}

// Tokens of a prefix worth sharing; choices of one request share all of it.
static int min_share(const Record *r) { return r->first || r->n_choices > 1 ? 1 : MIN_SHARE; }

static void start_record(Batch *b, Record *r) {
    Donor d = find_donor(b, &r->prompt, NULL);
    r->session = d.n_now >= min_share(r) ? session_fork(d.session, d.n_now) : NULL;
    r->n_shared = r->session ? d.n_now : 0;
    if (!r->session) r->session = session_new(&b->pipeline.model.kv);
    for (int i = 0; r->n_shared && i < b->n_kept; i++) {
        if (b->kept[i] != d.session) continue;
        Session *used = take_kept(b, i); // to the end: used last
        b->kept[b->n_kept++] = used;
        break;
    }
    sequence_start(&r->sequence, &b->generator, &r->request, r->session);
    r->state = RECORD_ACTIVE;
    b->n_waiting--;
    b->active[b->n_active] = r;
    b->sequences[b->n_active++] = &r->sequence;
}

// Starts what can start, in the order of the input.
static void start_waiting(Batch *b) {
    for (int i = 0; i < b->n_window && b->n_waiting && b->n_active < b->parallel; i++) {
        Record *r = b->window[i];
        if (r->state != RECORD_WAITING) continue;
        Donor d = find_donor(b, &r->prompt, NULL);
        if (d.n_soon - d.n_now >= min_share(r)) continue; // another is computing its beginning
        if (has_memory(b, r)) {
            start_record(b, r); // from whom is found again: making room may have dropped the donor
            continue;
        }
        if (b->n_active) return; // it waits for memory, and nobody overtakes it
        Error err;
        error_set(
            &err, EXIT_RUNTIME, "%zu positions of KV cache need %zu MiB, available are %zu MiB",
            positions_needed(r),
            positions_needed(r) * kv_position_bytes(&b->pipeline.model.kv) >> 20, b->memory >> 20);
        record_fail(r, "out_of_memory", err.text);
        b->n_waiting--;
    }
}

// Its answer is made at once; its session goes, or is kept for others.
static void finish_record(Batch *b, Record *r) {
    record_answer(r, &b->pipeline);
    if (!r->first) b->n_prompt += (uint64_t)r->prompt.len;
    if (!r->first) b->n_shared += (uint64_t)r->n_shared;
    b->n_generated += (uint64_t)r->sequence.n_generated;
    sequence_free(&r->sequence);
    if (!keep_prefix(b, r)) session_free(r->session);
    r->session = NULL;
}

// Takes the finished ones out of the active; those that an interrupt has cancelled stay, without an
// answer.
static void collect_finished(Batch *b) {
    for (int i = b->n_active - 1; i >= 0; i--) {
        Record *r = b->active[i];
        if (r->sequence.finish == FINISH_NONE || r->sequence.finish == FINISH_CANCEL) continue;
        size_t n_behind = (size_t)(--b->n_active - i);
        memmove(b->active + i, b->active + i + 1, n_behind * sizeof *b->active);
        memmove(b->sequences + i, b->sequences + i + 1, n_behind * sizeof *b->sequences);
        finish_record(b, r);
    }
}

// Answers that may be written leave the window: in order only those with nothing unfinished before
// them.
static void write_finished(Batch *b) {
    int n = 0;
    for (int i = 0; i < b->n_window; i++) {
        Record *r = b->window[i];
        if (r->state != RECORD_DONE || (b->options->is_ordered && n > 0)) {
            b->window[n++] = r;
            continue;
        }
        if (!r->first) write_line(b, &r->answer);
        b->n_done += !r->first;
        b->n_failed += r->has_failed;
        b->window_tokens -= (size_t)r->prompt.len;
        record_free(r);
    }
    b->n_window = n;
}

// A number that Slurm tells, or `absent`.
static long slurm_number(const char *name, long absent) {
    const char *text = getenv(name);
    int64_t n;
    return text && parse_i64(text, &n) ? (long)n : absent;
}

// "K/N", or "slurm": the place of this task in its job array.
static void read_shard(Batch *b, const char *text) {
    long k = 1, n = 1;
    int end = 0;
    if (text && !strcmp(text, "slurm")) {
        long first = slurm_number("SLURM_ARRAY_TASK_MIN", 1),
             step = slurm_number("SLURM_ARRAY_TASK_STEP", 1);
        long task = slurm_number("SLURM_ARRAY_TASK_ID", first - 1);
        n = slurm_number("SLURM_ARRAY_TASK_COUNT", 0);
        k = task >= first && step > 0 ? (task - first) / step + 1 : 0;
    } else if (text && (sscanf(text, "%ld/%ld%n", &k, &n, &end) != 2 || text[end])) {
        k = 0;
    }
    if (k < 1 || k > n)
        die(EXIT_USAGE,
            "--shard: expected K/N with 1 <= K <= N, or slurm with SLURM_ARRAY_TASK_ID and "
            "SLURM_ARRAY_TASK_COUNT of a "
            "job array, found \"%s\"",
            text);
    b->shard = k;
    b->n_shards = n;
}

// Also decides how much memory KV caches may take: nine tenths of what the weights leave, which of
// a file that does not fit in memory is a quarter.
static void open_model(Batch *b) {
    const Options *o = b->options;
    pipeline_open(&b->pipeline, o);
    check_fingerprint(b);
    size_t available = os_memory_available(), weights = model_weight_bytes(&b->pipeline.model);
    bool is_large =
        weights > available / 4 * 3; // then it is read from the disk again and again anyway
    b->memory = available == SIZE_MAX ? available
                                      : (is_large ? available / 4 : available - weights) / 10 * 9;
    b->parallel = o->parallel ? o->parallel : DEFAULT_PARALLEL;
    generator_open(&b->pipeline, &b->generator, o->chunk, b->parallel);
    b->active = xalloc((size_t)b->parallel, sizeof *b->active);
    b->sequences = xalloc((size_t)b->parallel, sizeof *b->sequences);
}

int command_batch(const Options *o) {
    static Batch batch;
    Batch *b = &batch;
    b->own = *o;
    b->options = o = &b->own;
    if (!o->input && isatty(STDIN_FILENO))
        die(EXIT_USAGE, "batch: expected -i FILE or requests on standard input");
    read_shard(b, o->shard);
    lines_open(&b->in, o->input, MAX_LINE);
    file_register_input(o->input);
    open_output(b);
    open_model(b);
    b->shows_progress = !o->is_quiet && (o->progress_json || terminal_has_escapes(STDERR_FILENO));
    if (b->shows_progress) count_lines(b);
    b->start = now_sec();
    enter_sandbox(o);
    signals_defer();
    while (!generate_interrupted) {
        fill_window(b);
        start_waiting(b);
        show_progress(b, false);
        if (b->n_active) generate_step(&b->generator, b->sequences, b->n_active);
        collect_finished(b);
        write_finished(b);
        if (b->at_end && b->n_window == 0) break;
    }
    Error err;
    if (b->out.fd != STDOUT_FILENO && !journal_close(&b->out, &err)) die_error(&err);
    show_progress(b, true);
    print_summary(b);
    if (generate_interrupted && b->out.is_file)
        note(o, "interrupted: %s under way given up; the same command with --resume goes on",
             count_of(b->n_active, "answer"));
    return generate_interrupted               ? EXIT_INTERRUPTED
           : b->n_failed + b->n_failed_before ? EXIT_RECORDS
                                              : EXIT_OK;
}
