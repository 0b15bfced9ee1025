// See intern.h.
#include "base/intern.h"
#include "base/bits.h"
#include "base/files.h"
#include "base/hash.h"

enum { MIN_SLOTS = 16 };

struct InternSlot {
    uint32_t hash;
    int key; // number of the key + 1; 0: free
};

// The seed differs between processes, so that no file can provoke collisions. Results do not depend
// on it: keys are numbered in the order in which they are added.
static uint32_t hash_key(const void *key, size_t n) {
    static uint64_t seed;
    if (!seed) seed = random_number() | 1;
    return (uint32_t)hash_bytes(seed, key, n);
}

static void grow_slots(InternTable *t) {
    size_t n = t->n_slots ? 2 * t->n_slots : MIN_SLOTS;
    struct InternSlot *slots = xalloc(n, sizeof *slots);
    for (size_t i = 0; i < t->n_slots; i++) {
        if (!t->slots[i].key) continue;
        size_t at = t->slots[i].hash & (n - 1);
        while (slots[at].key) at = (at + 1) & (n - 1);
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->n_slots = n;
}

// Linear probing: the slot of an equal key, or the first free one.
static size_t find_slot(const InternTable *t, uint32_t hash, const void *key, size_t len) {
    size_t at = hash & (t->n_slots - 1);
    for (; t->slots[at].key; at = (at + 1) & (t->n_slots - 1)) {
        int i = t->slots[at].key - 1;
        if (t->slots[at].hash == hash && t->len[i] == len &&
            (!len || !memcmp(intern_key(t, i), key, len)))
            break;
    }
    return at;
}

int intern_find(const InternTable *t, const void *key, size_t len) {
    return t->n ? t->slots[find_slot(t, hash_key(key, len), key, len)].key - 1 : -1;
}

int intern_add(InternTable *t, const void *key, size_t len, bool *is_new) {
    uint32_t hash = hash_key(key, len);
    if (2 * (size_t)t->n >= t->n_slots) grow_slots(t);

    size_t at = find_slot(t, hash, key, len);
    if (is_new) *is_new = !t->slots[at].key;
    if (t->slots[at].key) return t->slots[at].key - 1;

    if ((size_t)t->n + 1 >= t->key_cap) {
        t->key_cap = 2 * t->key_cap + 64;
        t->begin = xrealloc(t->begin, t->key_cap, sizeof *t->begin);
        t->len = xrealloc(t->len, t->key_cap, sizeof *t->len);
        t->values = xrealloc((void *)t->values, t->key_cap, sizeof *t->values);
        if (!t->n) t->begin[0] = 0;
    }

    // Keys are aligned to 8 bytes. The arena is never NULL, even if all keys are empty.
    size_t begin = t->begin[t->n];
    size_t end = begin + size_round_up(len, 8);
    if (end >= t->arena_cap) {
        t->arena_cap = 2 * end + 64;
        t->arena = xrealloc(t->arena, t->arena_cap, 1);
    }

    if (len) memcpy(t->arena + begin, key, len);
    t->len[t->n] = len;
    t->values[t->n] = NULL;
    t->begin[t->n + 1] = end;
    t->slots[at] = (struct InternSlot){hash, t->n + 1};
    return t->n++;
}

void intern_clear(InternTable *t) {
    if (!t->n) return;

    // A few keys do not need all slots of an earlier round, which would be cleared each time.
    if ((size_t)t->n < t->n_slots / MIN_SLOTS) t->n_slots = MIN_SLOTS;
    memset(t->slots, 0, t->n_slots * sizeof *t->slots);
    t->n = 0;
}

void intern_free(InternTable *t) {
    free(t->begin);
    free(t->len);
    free((void *)t->values);
    free(t->arena);
    free(t->slots);
    *t = (InternTable){0};
}
