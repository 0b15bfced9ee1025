// See batch_output.h.
// Order: earlier results, opening, writing.
#include "cli/commands/batch_output.h"
#include "cli/output.h"
#include "cli/lines.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RESULT = 1 << 30 }; // bytes of a line of output

// Results of an earlier run

bool result_parse(const Json *root, Buffer *id, ResultKind *kind) {
    static const char prefix[] = "batch_req_";
    const Json *custom_id = json_get(root, "custom_id");
    const Json *own = json_get_string(root, "id");
    const Json *line = json_get(root, "line");
    const Json *error = json_get(root, "error");
    bool is_temporary = json_is(json_get(error, "code"), "out_of_memory");

    *kind = is_temporary ? RESULT_RETRY : RESULT_ERROR;
    if (!error || error->kind == JSON_NULL)
        *kind = json_get(root, "failure") ? RESULT_FAILED : RESULT_ANSWER;

    id->len = 0;
    if (record_put_id(id, custom_id ? custom_id : json_get(root, "id"))) return true;

    // Otherwise it is an error in a line without a readable id.
    if (!custom_id && line && line->kind == JSON_NUMBER) {
        buffer_printf(id, "line %.0f", line->number);
    } else if (custom_id && own && str_begins_with(own->string, prefix)) {
        Str number = {own->string.data + strlen(prefix), own->string.len - strlen(prefix)};
        buffer_printf(id, "line %.*s", SHOWN(number));
    }

    return id->len;
}

// Appends a line of output, with the identity of the run unless `run` is NULL.
static void put_result(Buffer *out, Str line, const char *run) {
    while (line.data[--line.len] != '}') continue; // white space may follow the brace
    buffer_put(out, line);
    if (run) buffer_printf(out, ",\"run\":%s", run);
    buffer_puts(out, "}\n");
}

static void copy_run(const Json *run, Buffer *out) {
    out->len = 0;
    json_write_value(&(JsonWriter){.out = out}, NULL, run, NULL);
}

// Adds a result to the table. It replaces an earlier one with the same id.
static void add_result(BatchOutput *out, const Buffer *id, const Json *root, Result result) {
    const Json *request = json_get_string(root, "request");
    char hash[24] = "";
    int i = intern_add(&out->done, id->data, id->len, NULL);

    if (request) snprintf(hash, sizeof hash, "%.*s", SHOWN(request->string));
    result.hash = strtoull(hash, NULL, 16);
    result.is_incomplete = json_get(root, "incomplete") != NULL;

    if (i < out->n_results) {
        out->n_superseded++;
        out->n_failed -= out->results[i].kind == RESULT_ERROR;
        out->n_incomplete -= out->results[i].is_incomplete;
    } else {
        out->results = list_grow(out->results, out->n_results, sizeof *out->results);
        out->n_results++;
    }

    out->n_unhashed += !result.hash;
    out->n_failed += result.kind == RESULT_ERROR;
    out->n_incomplete += result.is_incomplete;
    out->results[i] = result;
}

// Reads all results except an incomplete last line, and sets out->n_truncated to the length of that
// line. Adds the results to the table or, if `kept` is not NULL, appends the lines of those that
// stay to it. Results of kind RESULT_RETRY are only counted (out->n_retry).
static void read_results(BatchOutput *out, Buffer *kept) {
    LineReader l;
    JsonDoc doc = {0};
    Buffer id = {0};
    Str line;
    Error err;
    LineState state;

    out->n_retry = 0;
    out->n_truncated = 0;
    lines_open(&l, out->journal.path, MAX_RESULT);

    while ((state = lines_next(&l, &line, true)) == LINE_READY) {
        ResultKind kind;

        // An interrupted run or a power failure may have left an incomplete last line.
        bool ok = json_parse(&doc, line.data, line.len, &err);
        if (!ok && !l.is_whole && str_may_begin_with(line, ANSWER_START)) {
            out->n_truncated = line.len;
            break;
        }

        if (ok && json_get(doc.root, DELTA_MEMBER)) {
            out->n_deltas++;
            continue;
        }
        if (ok && !result_parse(doc.root, &id, &kind)) ok = error_set(&err, EXIT_RUNTIME, "no id");
        if (!ok)
            die(EXIT_RUNTIME, "%s: line %ld: %s; not an output of batch?", l.path, l.number,
                err.text);

        if (out->retries_failed && kind != RESULT_ANSWER) kind = RESULT_RETRY;
        out->n_retry += kind == RESULT_RETRY;
        if (kind == RESULT_RETRY) continue;

        const Json *run = json_get(doc.root, "run");
        if (!kept) {
            add_result(out, &id, doc.root, (Result){.line = l.number, .kind = kind});
            if (run) copy_run(run, &out->run);
            continue;
        }
        const Result *r = &out->results[intern_add(&out->done, id.data, id.len, NULL)];
        if (r->line == l.number && !r->is_stale)
            put_result(kept, line, kept->len || run ? NULL : out->run.data);
    }

    if (state == LINE_LONG) die(EXIT_RUNTIME, "%s: line %ld is too long", l.path, l.number);

    close(l.fd);
    buffer_free(&l.bytes);
    json_free(&doc);
    buffer_free(&id);
}

// Marks a result as stale.
static void discard(BatchOutput *out, int i) {
    Result *r = &out->results[i];
    r->is_stale = true;
    out->n_failed -= r->kind == RESULT_ERROR;
    out->n_incomplete -= r->is_incomplete;
    const Str id = {intern_key(&out->done, i), out->done.len[i]};
    if (out->n_stale++ == 0) out->first_stale = text_format("%.*s", SHOWN(id));
}

static _Noreturn void die_stale(const BatchOutput *out) {
    die(EXIT_USAGE,
        "%s: %s no longer matching the requests (first: id %s); without --strict, they are removed "
        "and completed again",
        out->journal.path, count_of((int)out->n_stale, "result"), out->first_stale);
}

bool batch_output_has(BatchOutput *out, const Record *r, bool is_own) {
    int i = intern_find(&out->done, r->line.id.data, r->line.id.len);
    if (i < 0) return false;

    Result *result = &out->results[i];
    bool is_current = is_own && (!result->hash || result->hash == r->line.hash);
    result->has_request = true;
    if (!is_current && !result->is_stale) discard(out, i);
    if (!is_current && out->is_repaired && r->pipeline->options->batch.is_strict) die_stale(out);
    return is_current && !result->is_stale;
}

// Discards the errors of lines that the input no longer has. Answers stay, because an output may
// collect those of several inputs.
static void find_orphans(BatchOutput *out, const char *path) {
    long n_answers = 0;
    for (int i = 0; i < out->n_results; i++) {
        Result *r = &out->results[i];
        bool is_orphan = !r->has_request && !r->is_stale;
        if (is_orphan && r->kind == RESULT_ERROR) discard(out, i);
        n_answers += is_orphan && r->kind != RESULT_ERROR;
    }
    if (n_answers)
        warn("%s: the input has no request for %s; they stay", path,
             count_of((int)n_answers, "result"));
}

void batch_output_repair(BatchOutput *out, const Options *o, bool is_checked) {
    Error err;
    Buffer kept = {0};
    if (!out->journal.is_file || out->journal.fd == STDOUT_FILENO) return;

    if (is_checked) find_orphans(out, o->output.path);
    if (out->n_stale && o->batch.is_strict) die_stale(out);
    if (out->n_unhashed)
        warn("%s: %s from an earlier version: not compared with requests, model and options",
             o->output.path, count_of((int)out->n_unhashed, "result"));

    if (!journal_repair(&out->journal, out->n_truncated, &err)) die_error(&err);
    if (out->n_truncated && !o->is_quiet)
        warn("%s: removed an incomplete last line", o->output.path);
    if (out->n_superseded)
        warn("%s: removed %s of ids that have a later one", o->output.path,
             count_of((int)out->n_superseded, "result"));
    if (out->n_stale)
        warn("%s: removed %s no longer matching the requests (first: id %s)", o->output.path,
             count_of((int)out->n_stale, "result"), out->first_stale);

    if (out->n_deltas)
        warn("%s: removed %s of streamed text", o->output.path,
             count_of((int)out->n_deltas, "line"));

    if (out->n_retry + out->n_superseded + out->n_stale + out->n_deltas) {
        read_results(out, &kept);
        if (!journal_replace(&out->journal, buffer_str(&kept), &err)) die_error(&err);
        out->adds_run |= !kept.len;
        buffer_free(&kept);
    }
    out->n_stale = 0;
    out->is_repaired = true;
}

static bool is_stdout(const Options *o) { return !o->output.path || !strcmp(o->output.path, "-"); }

static void open_stdout(BatchOutput *out) {
    struct stat st;
    Error err;
    if (!file_check_stdout(&err)) die_error(&err);
    bool is_file = fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode);
    out->journal = (Journal){.path = "standard output", .fd = STDOUT_FILENO, .is_file = is_file};
}

// Dies on options that need another one.
static void check_resume(const Options *o) {
    if (o->batch.retries_failed && !o->batch.is_resume)
        die(EXIT_USAGE, "--retry-failed: needs --resume");
    if (o->batch.is_resume && is_stdout(o)) die(EXIT_USAGE, "--resume: needs -o FILE");
}

void batch_output_open(BatchOutput *out, const Options *o) {
    struct stat st;
    Error err;
    check_resume(o);
    out->retries_failed = o->batch.retries_failed;

    if (is_stdout(o)) {
        open_stdout(out);
        return;
    }

    bool is_new = access(o->output.path, F_OK) != 0;
    if (!journal_open(&out->journal, o->output.path, FILE_STREAM, &err)) die_error(&err);
    if (!out->journal.is_file) return;
    if (is_new) files_remove_at_exit(out->created = text_format("%s", o->output.path));
    out->lock_directory = batch_lock(&out->journal);

    if (o->batch.is_resume)
        read_results(out, NULL);
    else if (fstat(out->journal.fd, &st) == 0 && st.st_size > 0)
        die(EXIT_USAGE, "%s exists and is not empty; --resume completes it", o->output.path);
}

void batch_output_open_check(BatchOutput *out, const Options *o) {
    check_resume(o);
    out->retries_failed = o->batch.retries_failed;
    if (!is_stdout(o)) {
        note(o, "--check: errors go to standard output, %s is not written", o->output.path);
        out->journal.path = o->output.path;
        if (o->batch.is_resume && access(o->output.path, F_OK) == 0) read_results(out, NULL);
    }
    open_stdout(out);
}

// Writing

const char *batch_output_resumed_by(const BatchOutput *out) {
    return out->journal.fd == STDOUT_FILENO ? "-o FILE --resume" : "--resume";
}

static _Noreturn void die_unwritten(const BatchOutput *out, const Error *err) {
    const Journal *j = &out->journal;
    if (errno == EPIPE && j->fd == STDOUT_FILENO) _exit(EXIT_OK);
    if (!j->is_file) die(EXIT_RUNTIME, "%s", err->text);
    die(EXIT_RUNTIME, "%s; %s%s %s", err->text,
        j->is_truncated ? "its last line is incomplete, " : "", batch_output_resumed_by(out),
        j->is_truncated ? "repairs it" : "completes it");
}

void batch_output_write(BatchOutput *out, Str line) {
    Buffer first = {0}; // the first result, with the identity of the run
    Error err;

    if (out->adds_run) {
        put_result(&first, line, out->run.data);
        line = buffer_str(&first);
    }
    bool is_written = journal_append(&out->journal, line, &err);
    out->adds_run &= !is_written;
    buffer_free(&first);
    if (!is_written) die_unwritten(out, &err);
}

void batch_output_write_delta(BatchOutput *out, Str line) {
    Journal other = {.path = "standard output", .fd = STDOUT_FILENO};
    Journal *j = out->journal.fd == STDOUT_FILENO ? &out->journal : &other;
    Error err;
    if (out->has_lost_reader || journal_append(j, line, &err)) return;
    if (errno != EPIPE || j != &other) die_unwritten(out, &err);
    out->has_lost_reader = true;
    warn("%s: the text of streamed records is no longer written; the records are", err.text);
}
