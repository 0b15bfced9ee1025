// Numbers byte strings: equal keys get the same number, different keys the numbers 0, 1, 2, ... in
// the order in which they are first added.
//
// An open-addressing hash table over one arena of keys. The automaton constructions of constrain/
// use it to recognize states, configurations and stack frames that exist already.
#pragma once

#include "base/memory.h"

// Zero-initialize; free with intern_free.
typedef struct {
    int n;               // keys so far
    size_t *begin;       // (n + 1) offset of each key in arena; a multiple of 8
    size_t *len;         // (n) bytes of each key
    const void **values; // (n) for the caller, who may store a pointer with a key; NULL at first
    char *arena;
    size_t arena_cap, key_cap;
    struct InternSlot *slots; // (n_slots) a power of two, at most half full
    size_t n_slots;
} InternTable;

// Returns the number of a key. A new key is copied into the table; `key` must not point into it.
// is_new may be NULL.
int intern_add(InternTable *t, const void *key, size_t len, bool *is_new);
// The number of a key, or -1 if it is not in the table.
int intern_find(const InternTable *t, const void *key, size_t len);
// The key with number i, aligned to 8 bytes. Valid until the next key is added.
static inline const void *intern_key(const InternTable *t, int i) { return t->arena + t->begin[i]; }
void intern_clear(InternTable *t); // forgets all keys, keeps the memory
void intern_free(InternTable *t);
