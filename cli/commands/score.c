// score: chooses the form of the command. Requests (--choices, --jsonl, --rerank) run on the
// scheduler of batch, --perplexity on a loop of its own.
#include "cli/commands/commands.h"
#include "cli/commands/score_record.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/resolve.h"

// Prints the answer to score --choices.
static void print_choices(const Record *r) {
    const Options *o = r->pipeline->options;
    Buffer out = {0};

    if (o->output.is_json) {
        JsonWriter w = json_object(&out);
        score_record_write(&w, r);
        text_print_json(&w);
    } else {
        score_record_put_table(&out, r);
        text_print(&out);
    }
}

// Appends the choices of the command line as a JSON array. Their file is read here, because a run
// reads no files.
static void put_choices(Buffer *out, const char *value) {
    JsonDoc doc = {0};
    JsonWriter w = {.out = out};
    Error err;
    int n;
    Str *choices = choices_read(&doc, value, &n, &err);
    if (!choices) die(err.code, "--choices: %s", err.text);

    json_begin_array(&w, NULL);
    for (int i = 0; i < n; i++) json_write_string(&w, NULL, choices[i]);
    json_end_array(&w);
    free(choices);
    json_free(&doc);
}

// Runs requests: the lines of --jsonl or --rerank, or the one of --choices. Results are
// bit-identical for any batch and order.
static int score_requests(const Options *o) {
    Buffer prompt = {0}, choices = {0};
    Str only;
    BatchTask task = {.parse = score_record_parse,
                      .new_choice = score_record_item,
                      .take = score_record_take,
                      .write = score_record_write,
                      .free = score_record_free,
                      .takes_strings = true};
    Options options = *o;

    options.model.load.is_batch_invariant = true;
    options.batch.is_ordered = true;
    options.model.no_lookup = true;
    if (!o->batch.input) options.batch.input = o->prompt.file;

    if (o->score.choices) {
        put_choices(&choices, o->score.choices);
        options.score.choices = choices.data;
        prompt_read(o, &prompt);
        prompt_check(o, &prompt);
        only = buffer_str(&prompt);
        task.only = &only;
        task.deliver = print_choices;
        options.batch.is_lines = true;
    }
    if (o->score.rerank) {
        task.open = score_rerank_open;
        task.parse = score_rerank_parse;
        if (o->score.is_sorted) task.deliver = score_rerank_collect;
    }

    int code = batch_run(&options, &task);
    score_rerank_print();
    buffer_free(&prompt);
    buffer_free(&choices);
    return code;
}

// Dies on options that cannot be combined.
static void check_options(const Options *o) {
    const ScoreArgs *s = &o->score;
    bool is_lines = o->prompt.is_jsonl && !s->perplexity && !s->rerank;
    int n_forms = !!s->perplexity + !!s->choices + !!s->rerank + is_lines;
    bool has_prompt = o->n_args || o->prompt.text;
    bool has_requests = is_lines || s->rerank;
    bool writes_file = o->output.path && strcmp(o->output.path, "-") != 0;

    if (n_forms != 1 || (has_prompt && !s->choices))
        die(EXIT_USAGE, "score: needs one of --choices A,B PROMPT, --jsonl, --rerank QUERY and "
                        "--perplexity FILE");
    if (!has_requests && (o->batch.input || o->output.path || o->batch.shard))
        die(EXIT_USAGE, "-i, -o, --shard: need --jsonl or --rerank");
    if (s->is_sorted && (!s->rerank || writes_file))
        die(EXIT_USAGE, "--sort: needs --rerank, and writes to standard output only");
    if (s->instruction && !s->rerank) die(EXIT_USAGE, "--instruction: needs --rerank");
}

int command_score(const Options *o) {
    check_options(o);
    if (!o->score.perplexity) return score_requests(o);
    score_perplexity(o);
    return EXIT_OK;
}
