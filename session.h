// One sequence under way: its tokens, and its keys and values in pages that sequences with a common
// prefix share.
#ifndef SESSION_H
#define SESSION_H

#include "kernels/kernels.h"

// What a position of the KV cache holds: a key and a value of head_dim numbers per layer and KV
// head.
typedef struct {
    int n_layers, n_kv_heads, head_dim;
    Type type; // F16, F32 or Q8_0
} KvShape;

// Bytes of a row (the keys, or the values, of one head at one position); of one position in all.
size_t kv_row_bytes(const KvShape *shape);
size_t kv_position_bytes(const KvShape *shape);

// Positions [page * KV_PAGE, ...) of the KV cache of all layers.
typedef struct KvPage KvPage;

typedef struct {
    KvShape shape;
    int *tokens; // (n_tokens): token at each position that is in the cache
    int n_tokens, cap_tokens;
    int n_reproducible; // positions from 0 on whose keys and values any prefill would give the same
                        // bits: whole pages of one forward each (with --deterministic, all)
    KvPage **pages;
    const void **k,
        **v; // (n_layers, cap_pages): per layer and page, (n_kv_heads, KV_PAGE, head_dim)
    int n_pages, cap_pages;
} Session;

Session *session_new(const KvShape *shape);
void session_free(Session *s);
// Makes room for n positions in all. False with err (exit 1) when memory is short. Call before
// forwarding into them.
bool session_reserve(Session *s, int n, Error *err);
// Where the key (value) of a position stands: layer, KV head. The position has room.
void *session_key(const Session *s, int layer, int kv_head, int pos);
void *session_value(const Session *s, int layer, int kv_head, int pos);
// A page as it lies in memory: KV_PAGE positions, KV_PAGE * kv_position_bytes(shape) bytes.
const void *session_page(const Session *s, int page);
// The session, which holds whole pages only, goes on with one that lies in a mapping (of map_bytes
// at map), which it then owns and never writes: it is copied when that is needed. tokens (KV_PAGE).
void session_append_mapped(Session *s, const int *tokens, void *data, void *map, size_t map_bytes);
// Forgets all positions from n on.
void session_rewind(Session *s, int n);
// Fills the cache up to position n with zeros, as if tokens had been fed: for measuring at a depth.
bool session_pad(Session *s, int n, Error *err);
// A new session that starts with the first n positions of s: whole pages are shared, the rest of
// the last is copied. NULL when memory is short.
Session *session_fork(const Session *s, int n);

#endif
