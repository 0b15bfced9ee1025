// A sequence: its tokens, and their keys and values in a paged KV cache.
//
// The cache is divided into pages of KV_PAGE positions (of all layers), which are allocated as the
// sequence grows. Pages are reference-counted: session_fork() shares the pages of a common prefix.
//
// Invariants: positions [0, n_tokens) hold keys and values. A page that is shared, or mapped from a
// file, is never written; it is replaced by a copy first.
#pragma once

#include "kernels/kernels.h"

// The content of a position: for each layer and KV head, a key and a value of head_dim numbers.
typedef struct {
    int n_layers, n_kv_heads, head_dim;
    Type k_type, v_type; // F16, F32, Q8_0 or Q4_0
} KvShape;

size_t kv_position_bytes(const KvShape *shape); // of all keys and values of a position

typedef struct KvPage KvPage;

typedef struct {
    KvShape shape;
    int *tokens; // (n_tokens) token at each position
    int n_tokens;
    // Leading positions whose keys and values have the bits of any uncached prefill: whole pages,
    // each computed in one forward pass; all positions if the model is batch-invariant. Only these
    // are written to the prefix cache.
    int n_reproducible;
    int n_pages, cap_pages;
    KvPage **pages;      // (n_pages)
    const void **k, **v; // (n_layers, cap_pages) pointers to the keys and values of one layer in
                         // one page: (n_kv_heads, KV_PAGE, head_dim)
} Session;

Session *session_new(const KvShape *shape);
void session_free(Session *s);
// Allocates pages up to a total of n positions. False with err (exit 1) if memory is short.
bool session_reserve(Session *s, int n, Error *err);
// The key (value) of a position that has been reserved.
void *session_key(const Session *s, int layer, int kv_head, int pos);
void *session_value(const Session *s, int layer, int kv_head, int pos);
// The data of a page: KV_PAGE * kv_position_bytes(shape) bytes.
const void *session_page(const Session *s, int page);
// Appends tokens (KV_PAGE) and a page with their keys and values to a session of whole pages. The
// page's data is inside a mapping (map, map_bytes), which the session then owns.
void session_append_mapped(Session *s, const int *tokens, void *data, void *map, size_t map_bytes);
// Removes all positions from n on.
void session_rewind(Session *s, int n);
// Fills positions up to n with zeros, for measurements at that depth. False with err (exit 1) if
// memory is short.
bool session_pad(Session *s, int n, Error *err);
// A new session with the first n positions of s. Whole pages are shared; a page that is used in
// part is copied. NULL if memory is short.
Session *session_fork(const Session *s, int n);
