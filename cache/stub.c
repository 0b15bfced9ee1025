// Replaces cache/ in builds WITHOUT=cache: there is no prefix cache to open.
#include "cache.h"

const bool cache_is_built = false;

static bool refuse_cache(const char *dir, Error *err) {
    return error_set(err, EXIT_USAGE, "%s: this build has no prefix cache (built WITHOUT=cache)",
                     dir);
}

PrefixCache *cache_open(const char *dir, uint64_t max_bytes, const Model *m, int chunk,
                        Error *err) {
    (void)max_bytes, (void)m, (void)chunk;
    refuse_cache(dir, err);
    return NULL;
}
void cache_close(PrefixCache *c) { (void)c; }
int cache_load(PrefixCache *c, Session *s, const int *tokens, int n) {
    (void)c, (void)s, (void)tokens, (void)n;
    return 0;
}
int cache_store(PrefixCache *c, const Session *s, int first) {
    (void)c, (void)s;
    return first;
}
int cache_list(const char *dir, CacheFile **files, Error *err) {
    *files = NULL;
    refuse_cache(dir, err);
    return -1;
}
bool cache_check(const char *dir, CacheFile *file, bool all_bytes) {
    (void)dir, (void)file, (void)all_bytes;
    return false;
}
