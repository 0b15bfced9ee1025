// The vocabulary stands as one array in depth-first order, so that a part of the tree that does not
// fit is passed over by adding its size. Inside strings nearly every token fits: those of plain
// characters are known beforehand by their length, and only what follows a quote, a backslash or
// half a character is walked. Where a text soon comes to such a place whatever it begins with, only
// the tokens that tell it apart are.
#include "mask.h"

#include <stdlib.h>
#include <string.h>

// 8 bytes: what leads here, and how many nodes this one and those below it are.
typedef struct {
    uint32_t byte : 8, size : 24;
    int32_t token; // or NONE
} TreeNode;

typedef struct {
    TreeNode *nodes;
    uint64_t *groups;  // (n): byte_group of the node and all below it
    uint32_t n, depth; // of the deepest node
} Tree;

// A token that is not plain: characters of its plain beginning, and the rest.
typedef struct {
    uint32_t n_plain;
    int token;
    Str tail;
} Mixed;

enum { N_LENGTHS = 33, N_MASKS = 128 };

struct Vocabulary {
    int n_tokens;
    size_t n_words;
    Tree tree;
    Tree tails;      // of the different tails; its tokens are indices into tail_begin
    Mixed *mixed;    // sorted by tail, then n_plain
    int *tail_begin; // (tails + 1) into mixed
    int n_tails, n_mixed;
    int *escapes, n_escapes; // those of mixed whose tail begins with a backslash
    uint32_t most_plain;     // before any such tail
    uint64_t *plain; // (N_LENGTHS + 1, n_words): tokens of up to so many plain characters, last: of
                     // any number; one cut off at the end counts
    int *long_plain, n_long; // plain tokens of N_LENGTHS or more characters, by their number
    uint32_t *long_length;
};

// Tables that matchers of one constraint share.
typedef struct {
    Machine *machine;
    const Vocabulary *vocabulary;
    Matcher *matchers; // all of them
    uint64_t *masks;   // (N_MASKS, n_words)
    uint32_t owner[N_MASKS];
    int16_t *mask_of; // (cap) by configuration: index + 1
    uint32_t cap;
    int next;
    uint32_t *configs, *others, *ends; // of the nodes above one, while a tree is walked
    uint32_t pinned;                   // stays too when others are forgotten
} Shared;

struct Matcher {
    Shared *shared;
    Matcher *next;
    uint32_t config;
    uint64_t *first; // mask of a text that drops its first space
};

// --- building

typedef struct {
    uint64_t head; // the first eight bytes, as a number
    Str s;
    int token;
} Key;

static uint64_t head_of(Str s) {
    uint64_t h = 0;
    for (size_t i = 0; i < 8; i++) h = h << 8 | (i < s.len ? (unsigned char)s.data[i] : 0);
    return h;
}

static int by_bytes(const void *a, const void *b) {
    const Key *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    size_t n = x->s.len < y->s.len ? x->s.len : y->s.len;
    int order = memcmp(x->s.data, y->s.data, n);
    if (order) return order;
    return x->s.len != y->s.len ? (x->s.len < y->s.len ? -1 : 1)
                                : (x->token > y->token) - (x->token < y->token);
}

// Sorted keys become a tree. Equal ones stand beside each other.
static void build_tree(Tree *t, const Key *keys, int n) {
    size_t cap = 1;
    uint32_t n_path = 0;
    for (int i = 0; i < n; i++) {
        cap += keys[i].s.len;
        if (keys[i].s.len > t->depth) t->depth = (uint32_t)keys[i].s.len;
    }
    uint32_t *path = xalloc(t->depth + 1, sizeof *path);
    t->nodes = xrealloc(NULL, cap, sizeof *t->nodes);
    for (int i = 0; i < n; i++) {
        Str s = keys[i].s, last = i ? keys[i - 1].s : (Str){0};
        uint32_t same = 0;
        while (same < s.len && same < last.len && s.data[same] == last.data[same]) same++;
        if (same == s.len) same--;
        for (; n_path > same; n_path--)
            t->nodes[path[n_path - 1]].size = (t->n - path[n_path - 1]) & 0xffffff;
        for (; n_path < s.len; n_path++) {
            path[n_path] = t->n;
            t->nodes[t->n++] =
                (TreeNode){.byte = (unsigned char)s.data[n_path], .size = 1, .token = NONE};
        }
        t->nodes[t->n - 1].token = keys[i].token;
    }
    for (; n_path > 0; n_path--)
        t->nodes[path[n_path - 1]].size = (t->n - path[n_path - 1]) & 0xffffff;
    free(path);
}

static void note_groups(Tree *t) {
    t->groups = xalloc(t->n + 1, sizeof *t->groups);
    for (uint32_t i = t->n; i-- > 0;) {
        t->groups[i] = byte_group((int)t->nodes[i].byte);
        for (uint32_t k = i + 1; k < i + t->nodes[i].size; k += t->nodes[k].size)
            t->groups[i] |= t->groups[k];
    }
}

// Whether s is the beginning of one character, cut off.
static bool is_cut(Str s) {
    unsigned char head = (unsigned char)s.data[0],
                  next = s.len > 1 ? (unsigned char)s.data[1] : 0xa0;
    size_t n = head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : 2;
    if (head < 0xc2 || head > 0xf4 || s.len >= n || next >> 6 != 2) return false;
    if (s.len == 3 && (unsigned char)s.data[2] >> 6 != 2) return false;
    if (s.len == 1) return true;
    return head == 0xe0   ? next >= 0xa0
           : head == 0xed ? next < 0xa0
           : head == 0xf0 ? next >= 0x90
           : head == 0xf4 ? next < 0x90
                          : true;
}

// Bytes of s before the first that JSON strings do not hold as it is; a character that its end cuts
// off is in it.
static size_t plain_prefix(Str s, uint32_t *n_chars) {
    size_t at = 0;
    uint32_t code;
    *n_chars = 0;
    for (int n; at < s.len && (n = utf8_decode(s.data + at, s.len - at, &code));
         at += (size_t)n, ++*n_chars)
        if (code < 0x20 || code == '"' || code == '\\') return at;
    if (at == s.len || !is_cut((Str){s.data + at, s.len - at})) return at;
    ++*n_chars;
    return s.len;
}

static void set_bit(uint64_t *bits, int i) { bits[(size_t)i / 64] |= (uint64_t)1 << (i & 63); }
static void clear_bit(uint64_t *bits, int i) { bits[(size_t)i / 64] &= ~((uint64_t)1 << (i & 63)); }

static int by_tail(const void *a, const void *b) {
    const Mixed *x = a, *y = b;
    int order = str_compare(x->tail, y->tail);
    return order ? order : (x->n_plain > y->n_plain) - (x->n_plain < y->n_plain);
}

static void group_tails(Vocabulary *v) {
    Key *keys = xalloc((size_t)v->n_mixed + 1, sizeof *keys);
    if (v->n_mixed) qsort(v->mixed, (size_t)v->n_mixed, sizeof *v->mixed, by_tail);
    v->tail_begin = xalloc((size_t)v->n_mixed + 1, sizeof(int));
    v->escapes = xalloc((size_t)v->n_mixed + 1, sizeof(int));
    for (int i = 0; i < v->n_mixed; i++) {
        Mixed *m = &v->mixed[i];
        if (!i || !str_eq(m->tail, m[-1].tail)) {
            keys[v->n_tails] = (Key){head_of(m->tail), m->tail, v->n_tails};
            v->tail_begin[v->n_tails++] = i;
        }
        if (m->tail.data[0] != '\\') continue;
        v->escapes[v->n_escapes++] = i;
        if (m->n_plain > v->most_plain) v->most_plain = m->n_plain;
    }
    v->tail_begin[v->n_tails] = v->n_mixed;
    if (v->n_tails > 1) qsort(keys, (size_t)v->n_tails, sizeof *keys, by_bytes);
    build_tree(&v->tails, keys, v->n_tails);
    free(keys);
}

// plain[k] becomes the tokens of k characters or fewer.
static void sum_lengths(Vocabulary *v) {
    for (size_t k = 1; k <= N_LENGTHS; k++)
        for (size_t w = 0; w < v->n_words; w++)
            v->plain[k * v->n_words + w] |= v->plain[(k - 1) * v->n_words + w];
}

Vocabulary *vocabulary_new(const Str *pieces, int n) {
    Vocabulary *v = xalloc(1, sizeof *v);
    v->n_tokens = n;
    v->n_words = ((size_t)n + 63) / 64;
    v->plain = xalloc((N_LENGTHS + 1) * v->n_words, sizeof *v->plain);
    v->mixed = xalloc((size_t)n, sizeof *v->mixed);
    v->long_plain = xalloc((size_t)n, sizeof(int));
    v->long_length = xalloc((size_t)n, sizeof *v->long_length);
    Key *keys = xalloc((size_t)n, sizeof *keys);
    int n_keys = 0;
    for (int t = 0; t < n; t++) {
        uint32_t n_chars;
        size_t plain = plain_prefix(pieces[t], &n_chars);
        if (!pieces[t].len) continue;
        keys[n_keys++] = (Key){head_of(pieces[t]), pieces[t], t};
        if (plain <
            pieces[t]
                .len) { // what begins with a control character or half of one never fits a string
            if (pieces[t].data[plain] != '"' && pieces[t].data[plain] != '\\') continue;
            v->mixed[v->n_mixed++] =
                (Mixed){n_chars, t, {pieces[t].data + plain, pieces[t].len - plain}};
        } else {
            set_bit(v->plain + (n_chars < N_LENGTHS ? n_chars : N_LENGTHS) * v->n_words, t);
            if (n_chars < N_LENGTHS) continue;
            v->long_plain[v->n_long] = t;
            v->long_length[v->n_long++] = n_chars;
        }
    }
    if (n_keys > 1) qsort(keys, (size_t)n_keys, sizeof *keys, by_bytes);
    build_tree(&v->tree, keys, n_keys);
    note_groups(&v->tree);
    free(keys);
    group_tails(v);
    sum_lengths(v);
    return v;
}

void vocabulary_free(Vocabulary *v) {
    if (!v) return;
    free(v->tree.nodes), free(v->tree.groups), free(v->tails.nodes), free(v->mixed),
        free(v->tail_begin), free(v->escapes), free(v->plain);
    free(v->long_plain), free(v->long_length), free(v);
}

// --- walking

// Makes room when too many configurations are known: those on the path and of all matchers stay.
static void make_room(Shared *s, uint32_t *path, uint32_t *other, uint32_t depth) {
    size_t n = 0, n_matchers = 0;
    if (!machine_is_full(s->machine)) return;
    for (Matcher *m = s->matchers; m; m = m->next) n_matchers++;
    uint32_t **keep = xalloc(n_matchers + 2 * (size_t)depth + 1, sizeof *keep);
    keep[n++] = &s->pinned;
    for (Matcher *m = s->matchers; m; m = m->next) keep[n++] = &m->config;
    for (uint32_t i = 0; i < depth; i++) {
        keep[n++] = &path[i];
        if (other) keep[n++] = &other[i];
    }
    machine_flush(s->machine, keep, (int)n);
    free(keep);
    memset(s->owner, 0, sizeof s->owner);
    memset(s->mask_of, 0, s->cap * sizeof *s->mask_of);
}

// Sets the bits of all tokens in nodes [begin, end) that lead on from a configuration, which may be
// renumbered: its number afterwards. The path stands from `base` on; what is below it stays.
static uint32_t walk_at(Shared *s, uint32_t base, const TreeNode *nodes, uint32_t begin,
                        uint32_t end, uint32_t config, uint64_t *out) {
    uint32_t depth = base;
    s->configs[base] = config;
    s->ends[base] = end;
    for (uint32_t i = begin; i < end;) {
        while (i >= s->ends[depth]) depth--;
        uint32_t next = machine_step(s->machine, s->configs[depth], (int)nodes[i].byte);
        if (next == DEAD) {
            i += nodes[i].size;
            continue;
        }
        if (nodes[i].token != NONE) set_bit(out, nodes[i].token);
        if (nodes[i].size > 1) {
            s->configs[++depth] = next;
            s->ends[depth] = i + nodes[i].size;
            make_room(s, s->configs, NULL, depth + 1);
        }
        i++;
    }
    return s->configs[base];
}

static uint32_t walk(Shared *s, const TreeNode *nodes, uint32_t begin, uint32_t end,
                     uint32_t config, uint64_t *out) {
    return walk_at(s, 0, nodes, begin, end, config, out);
}

// All of the main tree at and below node i, which leads to `config`; the path above it ends at
// `depth`.
static void walk_below(Shared *s, uint32_t i, uint32_t config, uint32_t depth, uint64_t *out) {
    const Tree *t = &s->vocabulary->tree;
    if (t->nodes[i].token != NONE) set_bit(out, t->nodes[i].token);
    walk_at(s, depth + 1, t->nodes, i + 1, i + t->nodes[i].size, config, out);
}

static void clear_part(const TreeNode *nodes, uint32_t begin, uint32_t end, uint64_t *out) {
    for (uint32_t i = begin; i < end; i++)
        if (nodes[i].token != NONE) clear_bit(out, nodes[i].token);
}

// `out` holds the mask of configuration `like`; becomes that of config. Where both come to the same
// place, nothing differs from there on.
static void walk_difference(Shared *s, uint32_t config, uint32_t like, uint64_t *out) {
    const Tree *t = &s->vocabulary->tree;
    uint32_t depth = 0;
    s->configs[0] = config, s->others[0] = like, s->ends[0] = t->n;
    for (uint32_t i = 0; i < t->n;) {
        while (i >= s->ends[depth]) depth--;
        const TreeNode *node = &t->nodes[i];
        uint32_t next = machine_step(s->machine, s->configs[depth], (int)node->byte);
        uint32_t other =
            s->others[depth] ? machine_step(s->machine, s->others[depth], (int)node->byte) : DEAD;
        if (next == other || next == DEAD) {
            if (next != other) clear_part(t->nodes, i, i + node->size, out);
            i += node->size;
            continue;
        }
        if (node->token != NONE) set_bit(out, node->token);
        if (node->size > 1) {
            depth++;
            s->configs[depth] = next, s->others[depth] = other, s->ends[depth] = i + node->size;
            make_room(s, s->configs, s->others, depth + 1);
        }
        i++;
    }
}

// Sets the bits of tokens that end with tail t and have min to max plain characters before it.
static void set_tails(const Vocabulary *v, int t, uint32_t min, uint32_t max, uint64_t *out) {
    for (int i = v->tail_begin[t]; i < v->tail_begin[t + 1] && v->mixed[i].n_plain <= max; i++)
        if (v->mixed[i].n_plain >= min) set_bit(out, v->mixed[i].token);
}

// The tails that begin with a quote or, unless `only_quotes`, with anything. Returns the
// configuration's number.
static uint32_t walk_tails(Shared *s, uint32_t config, bool only_quotes, uint32_t min, uint32_t max,
                           uint64_t *out) {
    const Vocabulary *v = s->vocabulary;
    uint64_t *fits = xalloc((size_t)v->n_tails / 64 + 1, sizeof *fits);
    for (uint32_t i = 0; i < v->tails.n; i += v->tails.nodes[i].size)
        if (!only_quotes || v->tails.nodes[i].byte == '"')
            config = walk(s, v->tails.nodes, i, i + v->tails.nodes[i].size, config, fits);
    for (int t = 0; t < v->n_tails; t++)
        if (fits[t / 64] >> (t & 63) & 1) set_tails(v, t, min, max, out);
    free(fits);
    return config;
}

static void copy_plain(const Vocabulary *v, uint32_t most, uint64_t *out) {
    size_t row = most == NO_LIMIT ? N_LENGTHS : most < N_LENGTHS ? most : N_LENGTHS - 1;
    memcpy(out, v->plain + row * v->n_words, v->n_words * sizeof *out);
    for (int i = 0; most != NO_LIMIT && i < v->n_long; i++)
        if (v->long_length[i] <= most) set_bit(out, v->long_plain[i]);
}

// `out` holds what would fit if every character led back to `loop`; corrects it where tokens hold
// one of `others`.
static void walk_others(Shared *s, uint32_t loop, uint64_t others, uint64_t *out) {
    const Tree *t = &s->vocabulary->tree;
    uint32_t depth = 0;
    s->configs[0] = loop, s->ends[0] = t->n;
    for (uint32_t i = 0; others && i < t->n;) {
        while (i >= s->ends[depth]) depth--;
        const TreeNode *node = &t->nodes[i];
        bool in_loop = s->configs[depth] == s->configs[0];
        if ((in_loop && !(t->groups[i] & others)) || node->byte < 0x20 || node->byte == '"' ||
            node->byte == '\\') {
            i += node->size;
            continue;
        }
        uint32_t next = machine_step(s->machine, s->configs[depth], (int)node->byte);
        s->configs[++depth] = next, s->ends[depth] = i + node->size;
        if (next == s->configs[0] || machine_is_partial(s->machine, next)) {
            i++;
            continue;
        }
        depth--;
        clear_part(t->nodes, i, i + node->size, out);
        if (next != DEAD) walk_below(s, i, next, depth, out);
        i += node->size;
    }
}

// The mask inside a loop.
static uint32_t mask_loop(Shared *s, uint32_t loop, uint64_t others, uint64_t *out) {
    copy_plain(s->vocabulary, NO_LIMIT, out);
    loop = walk_tails(s, loop, false, 0, NO_LIMIT, out);
    walk_others(s, loop, others, out);
    return others ? s->configs[0] : loop;
}

// A string of one set of characters, of which the number counts.
static void mask_counted(Shared *s, uint32_t config, uint32_t least, uint32_t most, uint64_t others,
                         uint64_t *out) {
    const Vocabulary *v = s->vocabulary;
    uint32_t n = most < v->most_plain ? most : v->most_plain,
             *after = xalloc((size_t)n + 2, sizeof *after);
    copy_plain(v, most, out);
    for (uint32_t k = 0; k <= n; k++) after[k] = machine_skip(s->machine, config, k);
    for (int i = 0; i < v->n_escapes; i++) {
        const Mixed *m = &v->mixed[v->escapes[i]];
        uint32_t at = m->n_plain <= n ? after[m->n_plain] : DEAD;
        for (size_t b = 0; at && b < m->tail.len; b++)
            at = machine_step(s->machine, at, (unsigned char)m->tail.data[b]);
        if (at) set_bit(out, m->token);
    }
    free(after);
    s->pinned = config;
    if (least <= most)
        walk_tails(s, machine_skip(s->machine, config, least), true, least, most, out);
    walk_others(s, machine_uncounted(s->machine, s->pinned), others, out);
}

// The loop that any text from this configuration soon comes to, or DEAD.
static uint32_t loop_after(Shared *s, uint32_t config, uint64_t *others) {
    static const char rare[] = "~^Qz";
    for (int i = 0; rare[i]; i++) {
        uint32_t next = machine_step(s->machine, config, rare[i]);
        for (int k = 0; next && k < 2; k++) {
            if (machine_is_loop(s->machine, next, others)) return next;
            next = machine_step(s->machine, next, rare[i]);
        }
    }
    return DEAD;
}

static void mask_compute(Shared *s, uint32_t config, uint64_t *out) {
    const Vocabulary *v = s->vocabulary;
    uint32_t least, most, loop;
    uint64_t others;
    if (machine_is_loop(s->machine, config, &others)) {
        mask_loop(s, config, others, out);
    } else if (machine_is_counted(s->machine, config, &least, &most, &others)) {
        mask_counted(s, config, least, most, others, out);
    } else if ((loop = loop_after(s, config, &others))) {
        s->pinned = config;
        loop = mask_loop(s, loop, others, out);
        walk_difference(s, s->pinned, loop, out);
    } else {
        memset(out, 0, v->n_words * sizeof *out);
        walk(s, v->tree.nodes, 0, v->tree.n, config, out);
    }
}

// --- matchers

static Shared *shared_new(const Grammar *c, const Vocabulary *v) {
    Shared *s = xalloc(1, sizeof *s);
    uint32_t depth = (v->tree.depth > v->tails.depth ? v->tree.depth : v->tails.depth) + 2;
    s->machine = machine_new(c);
    s->vocabulary = v;
    s->configs = xalloc(depth, sizeof *s->configs);
    s->others = xalloc(depth, sizeof *s->others);
    s->ends = xalloc(depth, sizeof *s->ends);
    return s;
}

static void shared_free(Shared *s) {
    machine_free(s->machine);
    free(s->masks), free(s->mask_of), free(s->configs), free(s->others), free(s->ends), free(s);
}

Matcher *matcher_new(const Grammar *c, const Vocabulary *v, Matcher *shared) {
    Matcher *m = xalloc(1, sizeof *m);
    m->shared = shared ? shared->shared : shared_new(c, v);
    m->next = m->shared->matchers;
    m->shared->matchers = m;
    m->config = machine_start(m->shared->machine);
    return m;
}

void matcher_free(Matcher *m) {
    if (!m) return;
    Matcher **link = &m->shared->matchers;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
    if (!m->shared->matchers) shared_free(m->shared);
    free(m->first);
    free(m);
}

static int16_t *mask_slot(Shared *s, uint32_t config) {
    if (config >= s->cap) {
        uint32_t cap = 2 * config + 64;
        s->mask_of = xrealloc(s->mask_of, cap, sizeof *s->mask_of);
        memset(s->mask_of + s->cap, 0, (cap - s->cap) * sizeof *s->mask_of);
        s->cap = cap;
    }
    return &s->mask_of[config];
}

static const uint64_t *mask_of(Matcher *m) {
    Shared *s = m->shared;
    size_t n = s->vocabulary->n_words;
    if (!s->masks) s->masks = xrealloc(NULL, N_MASKS * n, sizeof *s->masks);
    make_room(s, NULL, NULL, 0);
    int found = *mask_slot(s, m->config);
    if (found) return s->masks + (size_t)(found - 1) * n;
    int i = s->next++ % N_MASKS;
    uint64_t *out = s->masks + (size_t)i * n;
    if (s->owner[i]) *mask_slot(s, s->owner[i]) = 0;
    s->owner[i] = 0;
    mask_compute(s, m->config, out);
    s->pinned = DEAD;
    s->owner[i] = m->config; // only now: computing may have renumbered it
    *mask_slot(s, m->config) = (int16_t)(i + 1);
    return out;
}

const uint64_t *matcher_mask(Matcher *m, bool skips_space) {
    const uint64_t *mask = mask_of(m);
    const Vocabulary *v = m->shared->vocabulary;
    if (!skips_space) return mask;
    if (!m->first) m->first = xalloc(v->n_words, sizeof *m->first);
    memcpy(m->first, mask, v->n_words * sizeof *mask);
    for (uint32_t i = 0; i < v->tree.n; i += v->tree.nodes[i].size) {
        if (v->tree.nodes[i].byte != ' ') continue;
        clear_part(v->tree.nodes, i, i + v->tree.nodes[i].size, m->first);
        walk(m->shared, v->tree.nodes, i + 1, i + v->tree.nodes[i].size, m->config, m->first);
    }
    return m->first;
}

bool matcher_is_end(const Matcher *m) { return machine_is_end(m->shared->machine, m->config); }

bool matcher_is_done(Matcher *m) {
    if (!matcher_is_end(m)) return false;
    for (int b = 0; b < 256; b++)
        if (machine_step(m->shared->machine, m->config, b) != DEAD) return false;
    return true;
}

size_t matcher_accept(Matcher *m, Str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        make_room(m->shared, NULL, NULL, 0);
        uint32_t next = machine_step(m->shared->machine, m->config, (unsigned char)bytes.data[i]);
        if (next == DEAD) return i;
        m->config = next;
    }
    return bytes.len;
}

void matcher_forced(const Matcher *m, Buffer *out) {
    enum { MOST = 4096 }; // a long constant is fed in parts
    Machine *machine = m->shared->machine;
    uint32_t config = m->config;
    for (size_t n = 0; n < MOST && !machine_is_end(machine, config); n++) {
        int only = NONE;
        for (int b = 0; b < 256; b++) {
            if (machine_step(machine, config, b) == DEAD) continue;
            if (only != NONE) return;
            only = b;
        }
        if (only == NONE) return;
        buffer_append(out, &(char){(char)only}, 1);
        config = machine_step(machine, config, only);
    }
}
