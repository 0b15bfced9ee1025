// score: opens the models and runs one form of the command (score_choices.c, score_perplexity.c).
// All forms run their tasks with score_run().
#include "score.h"
#include "commands.h"
#include "../base/clock.h"
#include "../cli/output.h"
#include "../cli/request.h"

int command_score(const Options *o) {
    static Scorer s;
    static KlReference reference;
    bool is_text = o->perplexity || o->ids;
    bool is_questions = o->is_jsonl && !is_text;

    if (!!o->perplexity + !!o->ids + !!o->choices + is_questions != 1 ||
        (!o->choices && (o->n_args || o->prompt)))
        die(EXIT_USAGE,
            "score: needs one of --choices A,B PROMPT, --jsonl, --perplexity FILE and --ids LIST");
    if (o->kl && !is_text) die(EXIT_USAGE, "--kl: needs --perplexity or --ids");

    s.start = now_sec();
    pipeline_open(&s.pipeline, o);
    template_warn_missing(o, &s.pipeline.tpl);

    // A pass computes as many rows of logits as fit MAX_LOGITS_BYTES.
    int max_rows = MAX_LOGITS_BYTES / 4 / s.pipeline.model.config.vocab_size;
    s.parallel = o->parallel ? o->parallel : DEFAULT_PARALLEL;
    s.chunk = o->chunk ? o->chunk : GENERATE_CHUNK;
    if (max_rows < 1) max_rows = 1;
    if (max_rows > s.chunk) max_rows = s.chunk;
    s.workspace = workspace_new(&s.pipeline.model, s.chunk, max_rows);

    if (!is_text) s.cache = prefix_cache_open(&s.pipeline, s.chunk);

    if (o->kl) {
        s.reference = &reference;
        kl_open(s.reference, o, &s.pipeline.model, s.chunk, max_rows);
    }

    if (is_text)
        score_perplexity(&s);
    else if (is_questions)
        score_questions(&s);
    else
        score_choices(&s);
    return EXIT_OK;
}
