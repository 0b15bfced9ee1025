#include "generator.h"

#include <stdlib.h>
#include <string.h>

// Bytes of "500M", "8G" ...; without a letter in GiB.
static uint64_t size_parse(const char *text) {
    static const char units[] = "KMGT";
    char *end;
    double n = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end & ~0x20) : strchr(units, 'G');
    if (end == text || !(n > 0 && n < 1e6) || !unit || !*unit || (*end && end[1]))
        die(EXIT_USAGE, "--cache-size: expected a size like 500M or 8G, found \"%s\"", text);
    return (uint64_t)(n * (double)((uint64_t)1024 << 10 * (unit - units)));
}

PrefixCache *prefix_cache_open(const Pipeline *p, int chunk) {
    const Options *o = p->options;
    const char *dir = o->cache ? o->cache : getenv("LLAMA31_CACHE");
    Error err;
    if (!dir || !*dir) return NULL;
    PrefixCache *c =
        cache_open(dir, size_parse(o->cache_size ? o->cache_size : "8G"), &p->model, chunk, &err);
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
    gguf_prefetch(&m.file, true);
    return &m;
}

void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel) {
    generator_init(g, &p->model, p->tokenizer, chunk, n_parallel);
    g->speculation = speculation_new(draft_open(p), !p->options->no_lookup);
    g->cache = prefix_cache_open(p, g->chunk_size);
}
