// batch: completes a file of requests, many at a time, and writes one line of output for each.
// score runs its requests here as well, with hooks of its own (BatchTask).
//
// The loop of batch_run() reads requests ahead into a window, starts those that wait
// (batch_schedule.c), runs a forward pass for all running sequences, and writes the lines that are
// done.
//
// Invariant: an answer depends on its request and the command line only, not on other requests or
// their order (as far as generate.h guarantees it for a batch). Each record has a random stream of
// its own, seeded from its id.
#include "cli/commands/batch.h"
#include "cli/commands/commands.h"
#include "base/clock.h"
#include "base/signals.h"
#include "cli/open_generator.h"
#include "cli/output.h"
#include "cli/privileges.h"
#include "cli/report.h"
#include "model/size.h"
#include "base/os/os.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WINDOW_TOKENS = 1 << 22, // prompt tokens of the records read ahead
    LOG_SEC = 30,            // seconds between lines of progress in a log file
    MAX_PREFIXES = 8         // kept prefixes of finished records, and one per sequence
};

static const double READ_SEC = 0.02;

// Progress

// Counts the records of this shard, if the input is a file.
static void count_records(Batch *b) {
    static char bytes[1 << 16];
    struct stat st;
    off_t at = 0;
    ssize_t n;
    if (fstat(b->input.lines.fd, &st) || !S_ISREG(st.st_mode)) return;
    while ((n = pread(b->input.lines.fd, bytes, sizeof bytes, at)) > 0) {
        for (char *p = bytes; (p = memchr(p, '\n', (size_t)(bytes + n - p))); p++)
            b->counts.n_total++;
        if (at + n == st.st_size && bytes[n - 1] != '\n') b->counts.n_total++;
        at += n;
    }
    const Shard *s = &b->input.shard;
    b->counts.n_total = (b->counts.n_total - s->k + s->n) / s->n;
}

// Estimates the remaining seconds from the records done so far, where a running record counts in
// part; negative: unknown.
static double seconds_left(const Batch *b, double sec) {
    double n_done = (double)b->counts.n_done,
           n_left = (double)(b->counts.n_total - b->counts.n_done - b->counts.n_skipped);
    for (int i = 0; i < b->n_running; i++) {
        const Sequence *s = &b->running[i]->sequence;
        double n = s->n_prefilled + s->n_generated;
        double n_max = s->request.max_tokens < 0 ? s->request.max_context
                                                 : s->request.n_prompt + s->request.max_tokens;
        if (n_max > 0) n_done += n / n_max;
    }
    if (!b->counts.n_total) return -1;
    if (n_left <= 0) return 0;
    return n_done > 0.01 ? sec / n_done * ((double)b->counts.n_done + n_left - n_done) : -1;
}

static void show_progress(Batch *b, bool is_last) {
    double now = now_sec(), sec = now - b->progress.start;
    double interval = b->options->batch.has_progress_json ? 1 : 0.2; // seconds
    if (b->progress.is_log) interval = LOG_SEC;
    if (!b->progress.is_shown || (!is_last && now - b->progress.last < interval)) return;
    b->progress.last = now;

    const Generator *g = &b->generator;
    long n = b->counts.n_done + b->counts.n_skipped;
    double per_sec = g->decode_sec > 0 ? (double)g->n_decode / g->decode_sec : 0;
    double left = seconds_left(b, sec);

    if (b->options->batch.has_progress_json) {
        Buffer line = {0};
        JsonWriter w = json_object(&line);
        json_write_int(&w, "done", n);
        json_write_int(&w, "total", b->counts.n_total > n ? b->counts.n_total : n);
        json_write_int(&w, "failed", b->counts.n_failed);
        json_write_int(&w, "skipped", b->counts.n_skipped);
        json_write_int(&w, "tokens", (int64_t)b->counts.n_generated);
        json_write_format(&w, "tokens_per_sec", "%.1f", per_sec);
        json_write_format(&w, "elapsed_sec", "%.1f", sec);
        json_write_number(&w, "left_sec", left >= 0 ? rint(left) : NAN); // NAN: null
        json_end_object(&w);
        fprintf(stderr, "%s\n", line.data);
        buffer_free(&line);
    } else if (is_last) {
        progress_end();
    } else {
        char total[24] = "", speed[32] = "", eta[32] = "";
        if (b->counts.n_total > n) snprintf(total, sizeof total, "/%ld", b->counts.n_total);
        if (per_sec > 0) snprintf(speed, sizeof speed, ", %.1f tok/s", per_sec);
        if (left > 0) snprintf(eta, sizeof eta, ", %d:%02d left", (int)left / 60, (int)left % 60);
        (b->progress.is_log ? note : progress_print)(
            b->options, "%ld%s records, %d running, %llu tokens%s%s", n, total, b->n_running,
            (unsigned long long)(g->n_prefill + g->n_decode), speed, eta);
    }
}

static void print_summary(const Batch *b) {
    const Generator *g = &b->generator;
    if (b->options->is_quiet) return;

    fprintf(stderr, "%s, %ld failed, %ld skipped", count_of((int)b->counts.n_done, "record"),
            b->counts.n_failed, b->counts.n_skipped);
    if (b->output.n_failed) fprintf(stderr, " (%ld failed earlier)", b->output.n_failed);

    fprintf(stderr, " | prompts %llu tok, %llu of them shared (%s%llu sharable)",
            (unsigned long long)b->counts.n_prompt, (unsigned long long)b->counts.n_shared,
            b->counts.beginnings.n >= MAX_BEGINNINGS ? "at least " : "",
            (unsigned long long)b->counts.n_sharable);
    if (!b->task->has_text) {
        fprintf(stderr, " | %.1f s\n", now_sec() - b->progress.start);
        return;
    }

    fprintf(stderr, " | generated %llu tok", (unsigned long long)b->counts.n_generated);
    if (b->counts.n_reasoning)
        fprintf(stderr, " (%llu of reasoning)", (unsigned long long)b->counts.n_reasoning);
    if (g->n_decode) fprintf(stderr, " %.1f tok/s", (double)g->n_decode / g->decode_sec);
    if (g->n_drafted && b->options->is_verbose)
        fprintf(stderr, " | accepted %llu of %llu draft tok", (unsigned long long)g->n_accepted,
                (unsigned long long)g->n_drafted);
    fprintf(stderr, " | %.1f s | base seed %lld\n", now_sec() - b->progress.start,
            (long long)b->pipeline.settings.sample.seed);
}

// Names the unknown fields of all records.
static void warn_unknown(const InternTable *unknown) {
    Buffer names = {0};
    for (int i = 0; i < unknown->n && i < MAX_UNKNOWN; i++) {
        buffer_puts(&names, i ? ", " : "");
        json_quote(&names, (Str){intern_key(unknown, i), unknown->len[i]});
    }
    if (names.len)
        warn("fields without effect: %s%s", names.data,
             unknown->n > MAX_UNKNOWN ? ", and others" : "");
    buffer_free(&names);
}

// Input

// The hash of a request. White space and escapes do not change it. Its input must never change,
// because outputs carry the hash. scripts/merge_batch.py computes it as well.
static uint64_t hash_request(const Json *root, Str line) {
    Buffer text = {0};
    if (root)
        json_write_value(&(JsonWriter){.out = &text}, NULL, root, NULL);
    else
        buffer_put(&text, line);
    uint64_t hash = record_hash(0, buffer_str(&text));
    buffer_free(&text);
    return hash;
}

// Adds a line to those whose id is their number.
static void add_unnamed(BatchInput *in, long line) {
    LineRange *last = in->n_unnamed ? &in->unnamed[in->n_unnamed - 1] : NULL;
    if (last && last->last == line - 1) {
        last->last = line;
        return;
    }
    in->unnamed = list_grow(in->unnamed, in->n_unnamed, sizeof *in->unnamed);
    in->unnamed[in->n_unnamed++] = (LineRange){line, line};
}

static bool is_unnamed(const BatchInput *in, int64_t line) {
    int begin = 0, end = in->n_unnamed;
    while (begin < end) {
        int i = begin + (end - begin) / 2;
        if (in->unnamed[i].last < line)
            begin = i + 1;
        else
            end = i;
    }
    return begin < in->n_unnamed && in->unnamed[begin].first <= line;
}

// Registers the id of a request. False if an earlier line has used it.
static bool add_id(BatchInput *in, const RequestLine *line) {
    bool is_new = true;
    int64_t number;
    if (line->is_named && !(parse_i64(line->id.data, &number) && is_unnamed(in, number)))
        intern_add(&in->seen, line->id.data, line->id.len, &is_new);
    else if (line->is_named || intern_find(&in->seen, line->id.data, line->id.len) >= 0)
        is_new = false;
    else
        add_unnamed(in, line->number);
    return is_new;
}

// Parses a line into r, and sets *root if it is JSON. Returns NULL, or an error code with err. A
// record with an error is identified by its line number, so that a resumed run recognizes its error
// in the output.
static const char *parse_line(Batch *b, Record *r, LineState state, Str line, const Json **root,
                              Error *err) {
    bool is_text = b->options->batch.is_lines;
    if (state == LINE_LONG) {
        r->line.hash = hash_request(NULL, (Str){0});
        error_set(err, EXIT_RUNTIME, "longer than %d bytes", MAX_LINE);
        return "line_too_long";
    }
    bool is_json = !is_text && json_parse(&b->input.doc, line.data, line.len, err);
    if (is_json) *root = b->input.doc.root;
    r->line.hash = hash_request(*root, line);
    if (!is_text && !is_json) return "invalid_json";
    bool has_id = !is_text && !(b->task->takes_strings && (*root)->kind == JSON_STRING);
    if (!record_parse_id(r, has_id ? *root : NULL, err)) return "invalid_request";
    b->input.last_form = r->line.form;

    if (add_id(&b->input, &r->line)) return NULL;
    error_set(err, EXIT_RUNTIME, "id %s was used by an earlier line", r->line.id.data);
    return "duplicate_id";
}

// True if a request belongs to this shard.
static bool takes_request(BatchInput *in, const Json *root, Str line) {
    Buffer beginning = {0};
    bool needs_text = in->shard.n > 1 && !in->shard.by_lines;
    if (needs_text) shard_put_beginning(root, line, &beginning);
    bool is_own = shard_takes(&in->shard, in->lines.number, buffer_str(&beginning));
    buffer_free(&beginning);
    return is_own;
}

static void push_records(Batch *b, Record *r) {
    for (int i = 0; i < r->n_choices; i++) {
        Record *choice = i ? b->task->new_choice(r, i) : r;
        b->window = list_grow(b->window, b->n_window, sizeof *b->window);
        b->window[b->n_window++] = choice;
        b->window_tokens += (size_t)choice->prompt.len;
        if (choice->state == RECORD_WAITING) batch_add_waiting(b, choice);
    }
}

// Adds the records of a request to the window, unless it belongs to another shard or is done.
static void add_request(Batch *b, LineState state, Str line) {
    Error err;
    long number = b->input.lines.number;

    // The id. `code` is the error code of an invalid line, or NULL.
    Record *r = record_new(number, b->input.last_form, &b->pipeline);
    r->unknown = &b->input.unknown;
    const Json *root = NULL;
    const char *code = parse_line(b, r, state, line, &root, &err);
    if (code) {
        r->line.has_id = false;
        r->line.id.len = 0;
        buffer_printf(&r->line.id, "line %ld", number);
    }

    // Lines of other shards are only checked for repeated ids.
    bool is_own = takes_request(&b->input, root, state == LINE_LONG ? (Str){0} : line);
    bool is_done = batch_output_has(&b->output, r, is_own);
    b->counts.n_skipped += is_done;
    if (!is_own || is_done || b->input.is_checking) {
        record_free(r);
        return;
    }

    // The request. An invalid request becomes an error record.
    if (!code && !b->task->parse(r, root, line, &err))
        code = err.code == EXIT_CONTEXT ? "context_length_exceeded" : "invalid_request";
    if (code && generate_interrupted) { // the constraint may have been interrupted
        record_free(r);
        return;
    }
    if (code && b->task->only) die_error(&err);
    if (code) r->n_choices = 1;
    r->answer.n_unfinished = r->n_choices;
    r->answer.choices = xalloc((size_t)r->n_choices, sizeof *r->answer.choices);
    if (code) record_fail(r, code, err.text);
    push_records(b, r);
}

// Names an input that is not what it should be, as seen from its first line.
static void check_first_line(const Batch *b, Str line) {
    bool is_gzip = str_begins_with(line, "\x1f\x8b");
    if (is_gzip || memchr(line.data, 0, line.len)) // UTF-16 has a zero byte in each line break
        die(EXIT_RUNTIME, "%s: expected a text in UTF-8, found %s", b->input.lines.path,
            is_gzip ? "a gzip file (gunzip)" : "UTF-16 or binary data (iconv)");
    if (b->options->batch.is_lines || b->input.is_checking || !b->task->has_text || !line.len)
        return;

    bool is_open = str_is_blank((Str){line.data + 1, line.len - 1}); // "{" alone
    if (line.data[0] == '[' || (line.data[0] == '{' && is_open))
        warn("%s: JSON, but not an object per line (jq -c .; of an array: jq -c '.[]')",
             b->input.lines.path);
    else if (line.data[0] != '{')
        warn("%s: plain text, not JSON (--lines: each line is a prompt)", b->input.lines.path);
}

static void add_line(Batch *b, LineState state, Str line) {
    if (b->input.lines.number == 1 && state == LINE_READY) check_first_line(b, line);
    if (b->options->batch.is_lines && str_ends_with(line, "\r")) line.len--;
    if (state != LINE_READY || !str_is_blank(line)) add_request(b, state, line);
}

// Reads ahead. Waits for input only if there is nothing else to do. While other records can run,
// reading stops after READ_SEC, so that they wait for at most one slow constraint to compile.
static void fill_window(Batch *b) {
    Str line;
    double start = now_sec();
    while (!b->input.at_end && b->n_window < MAX_WINDOW && b->window_tokens < WINDOW_TOKENS) {
        if (b->n_running + b->n_waiting > 0 && now_sec() - start > READ_SEC) return;
        LineState state = lines_next(&b->input.lines, &line, b->n_running == 0 && b->n_window == 0);
        if (state == LINE_NONE) return;
        b->input.at_end = state == LINE_END;
        if (!b->input.at_end) add_line(b, state, line);
    }
}

// Output

// Writes the answers of finished records; with --ordered, only up to the first unfinished record.
static void write_done(Batch *b) {
    int n = 0; // records kept in the window

    for (int i = 0; i < b->n_window; i++) {
        Record *r = b->window[i];
        bool is_parent = r->parent == r;
        bool is_done = r->state == RECORD_DONE;
        if (!is_done || (is_parent && r->answer.n_unfinished) ||
            (b->options->batch.is_ordered && n > 0)) {
            b->window[n++] = r;
            continue;
        }

        if (is_parent) {
            if (b->task->deliver)
                b->task->deliver(r);
            else if (r->answer.text.len) // --check writes errors only
                batch_output_write(&b->output, buffer_str(&r->answer.text));
            b->counts.n_done++;
            b->counts.n_truncated += r->answer.n_truncated > 0;
            b->counts.n_failed += r->answer.has_failed;
            b->counts.n_reasoning += (uint64_t)r->answer.n_reasoning;
            b->output.n_incomplete += r->answer.is_incomplete && !r->answer.has_failed;
        }

        b->window_tokens -= (size_t)r->prompt.len;
        if (b->task->free) b->task->free(r);
        record_free(r);
    }
    b->n_window = n;
}

// The command

// Compares the requests of the input with the results of earlier runs, so that the output can be
// repaired before the run gives up access to files. False for a pipe, which can be read only once.
static bool check_results(Batch *b) {
    off_t start = lseek(b->input.lines.fd, 0, SEEK_CUR);
    const LineReader input = b->input.lines; // nothing is read yet
    Str line;
    LineState state;
    if (b->task->only || !b->output.n_results || start < 0) return false;

    b->input.is_checking = true;
    while ((state = lines_next(&b->input.lines, &line, true)) != LINE_END) add_line(b, state, line);
    b->input.is_checking = false;

    // Start again.
    if (lseek(b->input.lines.fd, start, SEEK_SET) < 0) die_file(b->input.lines.path);
    buffer_free(&b->input.lines.bytes);
    intern_clear(&b->input.seen);
    b->input.n_unnamed = 0;
    shard_restart(&b->input.shard);
    b->input.lines = input;
    b->input.last_form = FORM_SHORT;
    b->counts.n_skipped = 0;
    return true;
}

// Finds the shard of a task of a Slurm array: that of the output or, for a new output, the place of
// the task in the array. The array may be a part of an earlier one, whose size is then unknown,
// unless it is numbered 1 to N or 0 to N - 1. A single task is never taken for an array. False if
// the variables are not those of an array.
static bool find_slurm_shard(const BatchOutput *out, long *k, long *n) {
    long task = slurm_number("SLURM_ARRAY_TASK_ID", -1);
    long count = slurm_number("SLURM_ARRAY_TASK_COUNT", 0);
    long first = slurm_number("SLURM_ARRAY_TASK_MIN", 1);
    long last = slurm_number("SLURM_ARRAY_TASK_MAX", first + count - 1);
    long step = slurm_number("SLURM_ARRAY_TASK_STEP", 1);
    bool is_whole = count > 1 && (first == 0 || first == 1) && last == first + count - 1;

    *k = task - first + 1;
    *n = count;
    if (task < first || step < 1 || count < 1) return false;
    Shard stored;
    bool has_shard = batch_output_shard(out, &stored);
    if (has_shard) {
        *k = stored.k;
        *n = stored.n;
        is_whole = task == *k || task == *k - 1;
    }
    if (!is_whole)
        die(EXIT_USAGE,
            "--shard slurm: a part of an array, and the output %s; type --shard K/N, for task %ld "
            "of --array=1-N: --shard %ld/N",
            has_shard ? "has the shard of another task" : "does not know its shard", task, task);
    return true;
}

// True for "slurm", also with a rule: "slurm:lines".
static bool is_slurm_shard(const char *text) {
    return text && !strncmp(text, "slurm", 5) && (!text[5] || text[5] == ':');
}

// Sets the shard from "K/N", or from "slurm", with or without a rule.
static void parse_shard(Batch *b, const char *text) {
    char place[SHARD_TEXT] = "1/1";
    long k, n;
    bool ok = true;

    if (is_slurm_shard(text)) {
        ok = find_slurm_shard(&b->output, &k, &n);
        snprintf(place, sizeof place, "%ld/%ld%s", k, n, text + 5);
    } else if (text) {
        snprintf(place, sizeof place, "%s", text);
    }

    if (!ok || !shard_parse(&b->input.shard, place))
        die(EXIT_USAGE,
            "--shard: expected K/N with 1 <= K <= N <= %d, or slurm with SLURM_ARRAY_TASK_ID and "
            "SLURM_ARRAY_TASK_COUNT of a job array, found \"%s\"",
            MAX_SHARDS, text);
}

static void open_input(Batch *b) {
    const Options *o = b->options;
    if (b->task->only) return;
    if (!o->batch.input && isatty(STDIN_FILENO))
        die(EXIT_USAGE, "%s: needs -i FILE, or requests on standard input", o->command);
    lines_open(&b->input.lines, o->batch.input, MAX_LINE);
    file_register_input(o->batch.input); // never overwritten
}

// Compares the output with this run and its input, and repairs it.
static void open_output(Batch *b) {
    JsonDoc *doc = &b->input.doc;
    doc->replaces_surrogates = true;
    if (b->options->batch.is_check)
        batch_output_open_check(&b->output, b->options);
    else
        batch_output_open(&b->output, b->options);
    if (b->input.shard.n == 0) parse_shard(b, b->options->batch.shard);
    batch_output_use_rule(&b->output, &b->input.shard);
    if (b->options->batch.is_check) return;
    batch_output_resume(&b->output, &b->pipeline, &b->input.shard);

    batch_output_repair(&b->output, b->options, check_results(b));
    doc->n_replaced = 0;
}

// KV caches may use 90 % of the memory that the weights leave. Weights that take more than three
// quarters of the memory are partly evicted and read again in any case. KV caches may then use 90 %
// of a quarter of the memory.
static size_t choose_kv_memory(const Model *m) {
    size_t available = os_memory_available();
    size_t weights = model_weight_bytes(m);
    size_t rest = weights > available / 4 * 3 ? available / 4 : available - weights;
    return available == SIZE_MAX ? SIZE_MAX : rest / 10 * 9;
}

static void open_schedule(Batch *b) {
    const Options *o = b->options;
    const Config *c = &b->pipeline.model.config;

    b->max_running = o->batch.parallel ? o->batch.parallel : DEFAULT_PARALLEL;
    b->max_prefixes = MAX_PREFIXES + b->max_running;
    b->running = xalloc((size_t)b->max_running, sizeof *b->running);
    b->prefixes = xalloc((size_t)b->max_prefixes, sizeof *b->prefixes);

    // Generation computes the logits of one token per sequence, scoring those of most tokens.
    int chunk = o->model.chunk ? o->model.chunk : GENERATE_CHUNK;
    int max_logits = MAX_LOGITS_BYTES / 4 / c->vocab_size;
    if (max_logits > chunk) max_logits = chunk;
    if (max_logits > c->max_context) max_logits = c->max_context;
    if (max_logits < b->max_running) max_logits = b->max_running;
    generator_open(&b->pipeline, &b->generator, o->model.chunk, max_logits);
}

static void open_progress(Batch *b) {
    const Options *o = b->options;
    BatchProgress *p = &b->progress;
    bool has_terminal = terminal_has_escapes(STDERR_FILENO);
    bool is_json = o->batch.has_progress_json;

    p->is_log = o->batch.has_progress && !is_json && !has_terminal;
    p->is_shown = !o->is_quiet && (is_json || p->is_log || has_terminal);
    b->counts.n_total = b->task->only ? 1 : 0;
    if (p->is_shown && !b->task->only) count_records(b);
    p->start = p->last = now_sec();
}

static void open_batch(Batch *b) {
    const Options *o = b->options;
    batch_check_parse(o, b->check_speed);

    // The output of an earlier run knows the shard of an array task, so it is opened first.
    bool is_slurm = is_slurm_shard(o->batch.shard);
    bool has_output = o->batch.is_resume && o->output.path && access(o->output.path, F_OK) == 0;
    if (!is_slurm || !has_output) parse_shard(b, o->batch.shard);
    open_input(b);

    pipeline_open(&b->pipeline, o);
    template_note_missing(o, &b->pipeline.tpl);
    if (b->task->open) b->task->open(&b->pipeline);

    // The output is created last, so that no error above leaves an empty file.
    open_output(b);
    b->kv_memory = choose_kv_memory(&b->pipeline.model);
    if (!o->batch.is_check) open_schedule(b);
    open_progress(b);

    close_file_access_except(o, b->output.lock_directory);
    signals_defer(SIGINT);
    signals_defer(SIGTERM);
}

// What a user should know of the input, the answers and the output.
static void print_warnings(const Batch *b) {
    const Options *o = b->options;
    const BatchOutput *out = &b->output;
    const BatchCounts *n = &b->counts;
    const Model *m = &b->pipeline.model;
    int n_replaced = b->input.doc.n_replaced;

    warn_unknown(&b->input.unknown);
    if (n->n_truncated)
        warn("%s longer than the context: the beginning was left out (\"n_truncated\")",
             count_of((int)n->n_truncated, "record"));
    warn_loops(n->n_loops, "answer");
    warn_full(n->n_full, "answer", m, b->pipeline.ctx ? b->pipeline.ctx : m->config.max_context);
    if (n->n_cut)
        warn("%s cut within a character, the beginning of which was left out",
             count_of(n->n_cut, "answer"));
    if (generate_interrupted && out->journal.is_file)
        note(o, "interrupted: %s discarded; repeat the command with %s to continue",
             count_of(b->n_running, "unfinished answer"), batch_output_resumed_by(out));
    if (out->n_stale && o->batch.is_check)
        warn("%s: %s no longer matching the requests (first: id %s)", o->output.path,
             count_of((int)out->n_stale, "result"), out->first_stale);
    else if (out->n_stale)
        warn("%s: %s replaced by a later line (first: id %s); the next --resume removes them",
             o->output.path, count_of((int)out->n_stale, "result"), out->first_stale);
    if (n_replaced)
        warn("%s of the input replaced by U+FFFD", count_of(n_replaced, "lone surrogate"));
    if (out->n_incomplete && !o->batch.is_check)
        warn("%s incomplete: cut by max_tokens, the context or stop before the constraint was "
             "satisfied, by an error (\"failure\"), or by a failed check (\"note\")",
             count_of(out->n_incomplete, "answer"));
}

static int exit_code(const Batch *b) {
    if (generate_interrupted == SIGTERM) raise(SIGTERM); // ends the program
    if (generate_interrupted) return EXIT_INTERRUPTED;
    if (b->options->batch.is_check) return b->counts.n_failed ? EXIT_RECORDS : EXIT_OK;
    if (b->counts.n_failed + b->output.n_failed) return EXIT_RECORDS;
    return b->output.n_incomplete ? EXIT_INCOMPLETE : EXIT_OK;
}

// One forward pass for all running records.
static void run_step(Batch *b) {
    Sequence *sequences[b->max_running];
    batch_start_waiting(b);
    show_progress(b, false);
    for (int i = 0; i < b->n_running; i++) sequences[i] = &b->running[i]->sequence;
    if (b->n_running) generate_step(&b->generator, sequences, b->n_running);
    batch_stream(b);
    batch_collect_finished(b);
}

int batch_run(const Options *o, const BatchTask *task) {
    static Batch batch;
    Batch *b = &batch;
    Error err;

    b->task = task;
    b->options = o;
    open_batch(b);
    if (task->only) {
        add_request(b, LINE_READY, *task->only);
        b->input.at_end = true;
    }

    while (!generate_interrupted && !(b->input.at_end && b->n_window == 0)) {
        fill_window(b);
        if (b->output.created) *b->output.created = 0; // a readable input: the output stays
        if (o->batch.is_check)
            batch_check_waiting(b);
        else
            run_step(b);
        write_done(b);
    }

    Journal *journal = &b->output.journal;
    if (journal->fd != STDOUT_FILENO && !journal_close(journal, &err)) die_error(&err);

    if (generate_interrupted) progress_interrupt();
    show_progress(b, true);
    if (o->batch.is_check)
        batch_check_print(b);
    else if (!task->only)
        print_summary(b);
    print_warnings(b);
    return exit_code(b);
}

int command_batch(const Options *o) {
    static const BatchTask task = {.parse = record_parse,
                                   .new_choice = record_new_choice,
                                   .take = record_take,
                                   .write = record_write,
                                   .has_text = true};
    return batch_run(o, &task);
}
