// Replaces generate/cache/ in builds WITHOUT=cache: there is no prefix cache to open.
#include "generate/cache/cache.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

PrefixCache *cache_open(const char *dir, uint64_t max_bytes, const Model *m, int chunk,
                        Error *err) {
    error_set(err, EXIT_USAGE, "%s: this build has no prefix cache (built WITHOUT=cache)", dir);
    return NULL;
}
int cache_load(PrefixCache *c, Session *s, const int *tokens, int n) { return 0; }
int cache_store(PrefixCache *c, const Session *s, int first) { return first; }
