// See batch_output.h.
// Order: earlier results, opening, the fingerprint and --resume, writing.
#include "cli/commands/batch_output.h"
#include "gguf/checksum.h"
#include "cli/open_answer.h"
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
    const Json *code = json_get(error, "code");
    bool is_temporary = json_is(code, "out_of_memory") || json_is(code, "generation_failed");

    *kind = is_temporary ? RESULT_RETRY : RESULT_ERROR;
    if (!error || error->kind == JSON_NULL) *kind = RESULT_ANSWER;

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
    if (run) buffer_printf(out, ",\"run\":\"%s\"", run);
    buffer_puts(out, "}\n");
}

// Copies a member that is a string; "" if there is none, or if it is too long.
static void copy_string(const Json *root, const char *key, char *out, size_t size) {
    const Json *j = json_get_string(root, key);
    bool fits = j && j->string.len < size;
    snprintf(out, size, "%.*s", fits ? (int)j->string.len : 0, fits ? j->string.data : "");
}

// Adds a result to the table. It replaces an earlier one with the same id.
static void add_result(BatchOutput *out, const Buffer *id, const Json *root, Result result) {
    char hash[24];
    int i = intern_add(&out->done, id->data, id->len, NULL);

    copy_string(root, "request", hash, sizeof hash);
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

        if (ok && !result_parse(doc.root, &id, &kind)) ok = error_set(&err, EXIT_RUNTIME, "no id");
        if (!ok)
            die(EXIT_RUNTIME, "%s: line %ld: %s; not an output of batch?", l.path, l.number,
                err.text);

        out->n_retry += kind == RESULT_RETRY;
        if (kind == RESULT_RETRY) continue;

        const Json *run = json_get(doc.root, "run");
        if (!kept) {
            add_result(out, &id, doc.root, (Result){.line = l.number, .kind = kind});
            if (run) copy_string(doc.root, "run", out->run, sizeof out->run);
            continue;
        }
        const Result *r = &out->results[intern_add(&out->done, id.data, id.len, NULL)];
        if (r->line == l.number && !r->is_stale)
            put_result(kept, line, kept->len || run ? NULL : out->run);
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
    int i = intern_add(&out->done, r->id.data, r->id.len, NULL);
    if (i >= out->n_results) return false;

    Result *result = &out->results[i];
    bool is_current = is_own && (!result->hash || result->hash == r->hash);
    result->has_request = true;
    if (!is_current && !result->is_stale) discard(out, i);
    if (!is_current && out->is_repaired && r->options.is_strict) die_stale(out);
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
        n_answers += is_orphan && r->kind == RESULT_ANSWER;
    }
    if (n_answers)
        warn("%s: the input has no request for %s; they stay", path,
             count_of((int)n_answers, "result"));
}

void batch_output_repair(BatchOutput *out, const Options *o, bool is_checked) {
    Error err;
    Buffer kept = {0};
    if (!out->journal.is_file || out->journal.fd == STDOUT_FILENO) return;

    if (is_checked) find_orphans(out, o->output);
    if (out->n_stale && o->is_strict) die_stale(out);
    if (out->n_unhashed)
        warn("%s: %s from an earlier version: not compared with requests, model and options",
             o->output, count_of((int)out->n_unhashed, "result"));

    if (!journal_repair(&out->journal, out->n_truncated, &err)) die_error(&err);
    if (out->n_truncated && !o->is_quiet) warn("%s: removed an incomplete last line", o->output);
    if (out->n_superseded)
        warn("%s: removed %s of ids that have a later one", o->output,
             count_of((int)out->n_superseded, "result"));
    if (out->n_stale)
        warn("%s: removed %s no longer matching the requests (first: id %s)", o->output,
             count_of((int)out->n_stale, "result"), out->first_stale);

    if (out->n_retry + out->n_superseded + out->n_stale) {
        read_results(out, &kept);
        if (!journal_replace(&out->journal, buffer_str(&kept), &err)) die_error(&err);
        out->adds_run |= !kept.len;
        buffer_free(&kept);
    }
    out->n_stale = 0;
    out->is_repaired = true;
}

void batch_output_open(BatchOutput *out, const Options *o) {
    struct stat st;
    Error err;
    bool is_stdout = !o->output || !strcmp(o->output, "-");

    if (is_stdout) {
        if (o->is_resume) die(EXIT_USAGE, "--resume: needs -o FILE");
        if (!file_check_stdout(&err)) die_error(&err);
        bool is_file = fstat(STDOUT_FILENO, &st) == 0 && S_ISREG(st.st_mode);
        out->journal =
            (Journal){.path = "standard output", .fd = STDOUT_FILENO, .is_file = is_file};
        return;
    }

    bool is_new = access(o->output, F_OK) != 0;
    if (!journal_open(&out->journal, o->output, FILE_STREAM, &err)) die_error(&err);
    if (!out->journal.is_file) return;
    if (is_new) files_remove_at_exit(out->created = text_format("%s", o->output));
    out->lock_directory = batch_lock(&out->journal);

    if (o->is_resume)
        read_results(out, NULL);
    else if (fstat(out->journal.fd, &st) == 0 && st.st_size > 0)
        die(EXIT_USAGE, "%s exists and is not empty; --resume completes it", o->output);
}

// Fingerprint

// Appends what identifies a model file without reading all of it: the metadata, and the first 64
// bytes of every tensor.
static void put_file(Buffer *out, const Gguf *g) {
    for (int i = 0; i < g->n_values; i++) {
        buffer_put(out, g->values[i].key);
        buffer_append(out, g->values[i].data, g->values[i].bytes);
    }
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        buffer_put(out, t->name);
        buffer_printf(out, "|%d|%zu|", (int)t->type, t->bytes);
        buffer_append(out, t->data, t->bytes < 64 ? t->bytes : 64);
    }
}

// Appends "fp_HASH_CHECKSUM_SEED". The hash covers everything that answers depend on, except for
// the seed and the requests; the checksum covers all bytes of the model and its adapters. The input
// of the hash must never change, because existing outputs carry it.
static void put_fingerprint(Buffer *out, const Options *o, const Pipeline *p) {
    const ModelOptions *m = &o->model_options;
    Buffer input = {0};

    // Options that change answers, except the seed, which is appended below.
    Options unseeded = *o;
    unseeded.sample.seed = 0;
    options_put_settings(&unseeded, NULL, &input);
    buffer_printf(&input, "|%d|%s|%d|%d|%s|%s|%g|%g|%d|", o->ctx,
                  o->template_name ? o->template_name : "", o->is_raw, o->ignore_eos,
                  m->kv_type ? m->kv_type : "", m->rope_rule ? m->rope_rule : "", m->rope_theta,
                  m->rope_scale, m->rope_orig_ctx);
    buffer_put(&input, p->system);
    if (o->thinks) buffer_printf(&input, "|think %d|", o->thinks > 0);
    if (o->no_loop_stop) buffer_puts(&input, "|no loop stop|");
    if (o->reasoning_message) buffer_printf(&input, "|message %s|", o->reasoning_message);
    for (int i = 0; i < o->n_stops; i++) buffer_printf(&input, "%s|", o->stops[i].data);
    if (o->stop_token_ids) buffer_printf(&input, "|stop ids %s|", o->stop_token_ids);
    for (int i = 0; i < o->sample.dry.n_breakers; i++)
        buffer_printf(&input, "%s|", o->sample.dry.breakers[i].data);
    if (!strcmp(o->command, "score"))
        buffer_printf(&input, "|score %s|", o->rerank ? o->rerank : "");
    if (o->instruction) buffer_printf(&input, "|instruction %s|", o->instruction);
    if (o->has_echo || o->min_tokens)
        buffer_printf(&input, "|echo %d, min %d|", o->has_echo, o->min_tokens);
    for (int i = 0; i < o->sample.n_bias; i++)
        buffer_printf(&input, "%d%+g|", o->sample.bias[i].id, (double)o->sample.bias[i].bias);
    constraint_put_settings(o, &input);
    if (o->template_kwargs) buffer_printf(&input, "|kwargs %s|", o->template_kwargs);
    if (p->tools.len) buffer_printf(&input, "|tools %.*s|", (int)p->tools.len, p->tools.data);

    // The model and its adapters.
    put_file(&input, &p->model.file);
    for (int i = 0; i < p->model.n_adapters; i++) {
        buffer_printf(&input, "|lora %a|", p->model.adapters[i].scale);
        put_file(&input, &p->model.adapters[i].file);
    }

    uint64_t checksum = checksum_files(&p->model.file);
    for (int i = 0; i < p->model.n_adapters; i++)
        checksum = checksum * 31 + checksum_files(&p->model.adapters[i].file);

    buffer_printf(out, "fp_%016llx_%016llx_%llu",
                  (unsigned long long)record_hash(0, buffer_str(&input)),
                  (unsigned long long)checksum, (unsigned long long)o->sample.seed);
    buffer_free(&input);
}

void batch_output_resume(BatchOutput *out, Options *o, const Pipeline *p, long shard,
                         long n_shards) {
    char *old = out->run;
    Buffer new = {0};

    if (!out->journal.is_file || out->journal.fd == STDOUT_FILENO) return;

    // A resumed run uses the seed of the first run, unless --seed is given.
    const char *old_seed = o->is_forced ? NULL : strrchr(old, '_');
    if (old_seed && !o->has_seed) o->sample.seed = strtoull(old_seed + 1, NULL, 10);
    put_fingerprint(&new, o, p);
    size_t n_new = new.len;
    if (n_shards > 1) buffer_printf(&new, " %ld/%ld", shard, n_shards);
    size_t n_shard = new.len - n_new;
    Options defaults = options_default(o->command);
    defaults.sample.seed = ~o->sample.seed; // the seed is always listed
    options_put_settings(o, &defaults, &new);
    if (o->ctx) buffer_printf(&new, ", ctx-size %d", o->ctx);

    size_t n_old = strcspn(old, " ,");
    const char *other = NULL;
    if (old_seed && (strcspn(old + n_old, ",") != n_shard ||
                     strncmp(old + n_old, new.data + n_new, n_shard) != 0))
        other = "shard";
    if (old_seed && (n_old != n_new || strncmp(old, new.data, n_new)))
        other =
            strncmp(old, new.data, (size_t)(old_seed - old)) ? "model or other options" : "seed";
    if (other)
        die(EXIT_USAGE, "%s was started with another %s (%s, now %s); --force resumes anyway",
            out->journal.path, other, old, new.data);

    out->adds_run = strcmp(old, new.data) != 0;
    snprintf(out->run, sizeof out->run, "%s", new.data);
    buffer_free(&new);
}

const char *batch_output_resumed_by(const BatchOutput *out) {
    return out->journal.fd == STDOUT_FILENO ? "-o FILE --resume" : "--resume";
}

void batch_output_write(BatchOutput *out, Str line) {
    const Journal *j = &out->journal;
    Buffer first = {0}; // the first result, with the identity of the run
    Error err;

    if (out->adds_run) {
        put_result(&first, line, out->run);
        line = buffer_str(&first);
    }
    bool is_written = journal_append(&out->journal, line, &err);
    out->adds_run &= !is_written;
    buffer_free(&first);
    if (is_written) return;

    if (errno == EPIPE) _exit(EXIT_OK);
    if (!j->is_file) die(EXIT_RUNTIME, "%s", err.text);
    die(EXIT_RUNTIME, "%s; %s%s %s", err.text,
        j->is_truncated ? "its last line is incomplete, " : "", batch_output_resumed_by(out),
        j->is_truncated ? "repairs it" : "completes it");
}
