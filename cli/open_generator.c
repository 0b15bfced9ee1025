// See open_generator.h.
#include "cli/open_generator.h"

// Dies unless a draft model has the vocabulary of m. Compares the stored token lists, not only
// their sizes: draft tokens are compared by id, so an id must be the same token in both models.
static void check_vocabulary(const Model *draft, const Model *m) {
    const GgufValue *tokens = gguf_find_value(&m->file, "tokenizer.ggml.tokens");
    const GgufValue *others = gguf_find_value(&draft->file, "tokenizer.ggml.tokens");
    if (!tokens || !others || draft->config.vocab_size != m->config.vocab_size ||
        tokens->bytes != others->bytes || memcmp(tokens->data, others->data, tokens->bytes))
        die(EXIT_USAGE,
            "--draft: %s: expected the vocabulary of %s (%d tokens), found another (%d)",
            draft->file.path, m->file.path, m->config.vocab_size, draft->config.vocab_size);
}

// --cache-size: "500M", "8G"; a number alone is in GiB. False if it is invalid.
static bool size_parse(const char *text, uint64_t *bytes) {
    static const char units[] = "KMGT";
    char *end;
    double n = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : strchr(units, 'G');
    if (end == text || !(n > 0 && n < 1e6) || !unit || !*unit || (*end && end[1])) return false;
    *bytes = (uint64_t)(n * (double)((uint64_t)1024 << 10 * (unit - units)));
    return true;
}

// The prefix cache of --cache or $LLAMA31_CACHE, for `chunk` prompt tokens per forward pass. NULL
// without a cache or, with a warning, if it cannot be used.
static PrefixCache *prefix_cache_open(const Pipeline *p, int chunk) {
    const Options *o = p->options;
    uint64_t max_bytes = (uint64_t)8 << 30;
    Error err;
    if (!o->model.cache || !*o->model.cache) return NULL;
    if (o->model.cache_size && !size_parse(o->model.cache_size, &max_bytes))
        die(EXIT_USAGE, "--cache-size: expected a size like 500M or 8G, found \"%s\"",
            o->model.cache_size);
    PrefixCache *c = cache_open(o->model.cache, max_bytes, &p->model, chunk, &err);
    if (!c) warn("%s; continuing without a cache", err.text);
    return c;
}

// The draft model or head of --draft.
static Model *draft_open(const Pipeline *p) {
    static Model m;
    Error err;
    if (!p->options->model.draft) return NULL;
    ModelOptions options = {.is_draft = true, .n_threads = p->model.n_threads};
    if (!model_open(&m, p->options->model.draft, &options, &err)) die_error(&err);
    check_vocabulary(&m, &p->model);
    mapping_prefetch(m.file.shards, m.file.n_shards, true);
    return &m;
}

void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel) {
    Error err = {0};
    generator_init(g, &p->model, p->tokenizer, chunk, n_parallel);
    g->speculation =
        speculation_new(&p->model, g->workspace, draft_open(p), !p->options->model.no_lookup, &err);
    if (err.code) die_error(&err);
    g->cache = prefix_cache_open(p, g->chunk_size);
}
