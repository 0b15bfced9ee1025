// Order matters: the file is prefetched in the background while the vocabulary is parsed, and the
// template is opened before any text is tokenized, because it reserves special tokens.
#include "cli/open_model.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/resolve.h"
#include "kernels/ops.h"

#include <stdio.h>

// Reads the metadata, the vocabulary and the shapes of the tensors, not their data.
void model_open_or_die(const Options *o, Model *m, Tokenizer **t) {
    Error err;

    if (!model_open(m, o->model.path, &o->model.load, &err)) die_error(&err);
    bool needs_weights = !o->batch.is_check;
    if (needs_weights)
        mapping_prefetch(m->file.shards, m->file.n_shards, true); // while the vocabulary is read
    *t = tokenizer_open(&m->file, &err);
    if (!*t) die_error(&err);

    const Config *c = &m->config;
    if (m->family.window > 0 && o->model.ctx > m->family.window)
        die(EXIT_USAGE, "-c %d: expected at most the sliding window, %g", o->model.ctx,
            m->family.window);
    if (o->model.ctx > c->max_context)
        warn("-c %d: the model was trained for %d positions", o->model.ctx, c->max_context);

    if (o->is_verbose)
        fprintf(stderr,
                "llama31: %s: %d layers, dim %d, %d heads, %d KV heads, vocabulary %d; %s kernels, "
                "%d threads (%s)\n",
                m->file.path, c->n_layers, c->dim, c->n_heads, c->n_kv_heads, c->vocab_size,
                kernel.name, m->n_threads, threads_reason(o, m->n_threads));
}

// Commands that never render a message use the template "none", so that they also work with a model
// file whose template is invalid.
void template_from_options(const Options *o, const Gguf *g, Tokenizer *t, Template *out) {
    Error err;
    bool is_unused =
        !o->prompt.template_name && (o->prompt.is_raw || o->score.perplexity || o->logits.ids);
    if (!template_open(out, is_unused ? "none" : o->prompt.template_name, g, t, &err))
        die_error(&err);
    if (o->text.template_kwargs) out->variables = str_of(o->text.template_kwargs);
}

void template_note_missing(const Options *o, const Template *tpl) {
    if (tpl->missing.len && !o->prompt.is_raw && !o->prompt.template_name)
        note(o, "the template marks turns with text that users can imitate: %s", tpl->missing.data);
}

// System prompt and tools are checked against the template, so it is opened before them.
void pipeline_open(Pipeline *p, const Options *o) {
    *p = (Pipeline){.options = o, .ctx = o->model.ctx};
    model_open_or_die(o, &p->model, &p->tokenizer);
    template_from_options(o, &p->model.file, p->tokenizer, &p->tpl);
    p->system = system_prompt_read(o, &p->tpl);
    p->tools = tools_read(o, &p->tpl);
    p->constraints = constraint_cache_new(p->tokenizer);
    p->noted = xalloc(1, sizeof *p->noted);
    p->settings = settings_resolve(o, &p->model, p->tokenizer);
    if (o->prompt.has_special && !o->prompt.is_raw && !p->tpl.is_none)
        die(EXIT_USAGE, "--special: needs --raw (chat messages never contain special tokens)");
}
