// Prefix cache: stores the keys and values of prompts in files. A prompt that begins like an
// earlier one, of this process or another, loads the common prefix instead of computing it.
//
// A file holds one page, KV_PAGE positions of all layers. Its name is a hash of the model and of
// all tokens up to the end of the page. cache_load() extends a session by the pages that exist,
// cache_store() writes those that are missing, and the pages used least recently are removed when
// the directory is full.
//
// Invariant: a session that was loaded computes the same bits as one that was not. A page is used
// only if the model, the tokens and every byte of the page match; otherwise it is a cache miss.
#pragma once

#include "model.h"

typedef struct PrefixCache PrefixCache;

// Opens a directory, and creates it if it does not exist. `chunk` is the number of prompt tokens
// per forward pass, max_bytes the limit of all files together. `dir` must outlive the cache. NULL
// with err (exit 1) if the directory cannot be used, or if others can write to it.
PrefixCache *cache_open(const char *dir, uint64_t max_bytes, const Model *m, int chunk, Error *err);

// Extends a session by the cached pages of a prompt, `tokens` (n). The session is empty or holds
// the first whole pages of the prompt. Leaves at least one token to feed, for its logits. Returns
// the number of positions loaded.
int cache_load(PrefixCache *c, Session *s, const int *tokens, int n);
// Stores the reproducible pages of a session (Session.n_reproducible) from page `first` on, and
// returns the page to continue with. After a failed write, warns and writes no more.
int cache_store(PrefixCache *c, const Session *s, int first);
