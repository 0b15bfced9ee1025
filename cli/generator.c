// Optional parts attach to the generation loop here: draft model and prompt lookup (speculate/),
// prefix cache (cache/).
#include "generator.h"
#include "option_values.h"

#include <stdlib.h>

PrefixCache *prefix_cache_open(const Pipeline *p, int chunk) {
    const Options *o = p->options;
    const char *dir = o->cache ? o->cache : getenv("LLAMA31_CACHE");
    uint64_t max_bytes = (uint64_t)8 << 30;
    Error err;
    if (!dir || !*dir) return NULL;
    if (o->cache_size && !size_parse(o->cache_size, &max_bytes))
        die(EXIT_USAGE, "--cache-size: expected a size like 500M or 8G, found \"%s\"",
            o->cache_size);
    PrefixCache *c = cache_open(dir, max_bytes, &p->model, chunk, &err);
    if (!c) warn("%s; continuing without a cache", err.text);
    return c;
}

// The draft model of --draft.
static const Model *draft_open(const Pipeline *p) {
    static Model m;
    Error err;
    if (!p->options->draft) return NULL;
    if (!model_open(&m, p->options->draft, &(ModelOptions){.n_threads = p->model.n_threads}, &err))
        die_error(&err);
    vocabulary_check(&m, &p->model, "--draft");
    mapping_prefetch(m.file.shards, m.file.n_shards, true);
    return &m;
}

void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel) {
    generator_init(g, &p->model, p->tokenizer, chunk, n_parallel);
    g->speculation = speculation_new(draft_open(p), !p->options->no_lookup);
    g->cache = prefix_cache_open(p, g->chunk_size);
}
