// Prefix cache: pages of keys and values in files, so that a beginning that was fed before is not
// fed again, by this process or another. A page is found by a hash of its tokens, all before them,
// and the model as it runs; it is taken only if all of that, and its bytes, are as they were
// written. Anything else is a miss.
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include "../model.h"

extern const bool cache_is_built;

typedef struct PrefixCache PrefixCache;

// Opens a folder, which is made if need be, for a model whose prefill feeds `chunk` tokens at once;
// the files in it may take most_bytes. NULL with err (exit 1) if it cannot be used.
PrefixCache *cache_open(const char *dir, uint64_t most_bytes, const Model *m, int chunk,
                        Error *err);
void cache_close(PrefixCache *c);

// A session that holds whole pages of `tokens` (n), or nothing, takes the pages that follow, as far
// as the cache has them; at least one token is left to feed. Returns the positions taken.
int cache_load(PrefixCache *c, Session *s, const int *tokens, int n);
// Writes the session's pages from `first` on that a prefill computed whole
// (Session.n_reproducible), and returns the page to go on with. A cache that cannot be written
// warns once, and then is only read.
int cache_store(PrefixCache *c, const Session *s, int first);

// One file of a cache.
typedef struct {
    char name[40];
    uint64_t bytes;
    int64_t used; // nanoseconds since 1970
    bool is_page; // by its name; else the rest of a write that was cut off
} CacheFile;

// The files of a cache, used longest ago first; free them. -1 with err (exit 1) if it cannot be
// read.
int cache_list(const char *dir, CacheFile **files, Error *err);
// What model a page belongs to, and the positions that it ends. False if it is damaged, as far as
// its head tells, or with all_bytes if any of it is.
bool cache_check(const char *dir, const CacheFile *file, bool all_bytes, uint64_t *model,
                 int *n_tokens);

#endif
