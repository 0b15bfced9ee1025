// Tokens are the paths of a byte trie. A mask is computed by walking the trie and the machine
// together: where a byte leads the machine to DEAD, the whole subtree is skipped. For the text {"na
// and a schema with the property "name", only the branch m of the trie survives, then e, then the
// quote ...
//
// Inside strings this would visit nearly every token, as nearly every token fits. There three short
// cuts are used:
//
// 1. Loops. In a string without a maximum length, a character leads the machine back to the same
//    configuration (machine_is_loop). All tokens of plain characters fit; they are precomputed.
//    The others are a plain prefix and a tail that begins with a quote or a backslash; as the
//    prefix does not change the configuration, each distinct tail is walked once ('", "' is the
//    tail of hundreds of tokens). Characters that the pattern excludes are corrected by walking the
//    subtrees that contain them (byte_group).
// 2. Counted strings. With a length, a token fits if it has at most `max` characters; plain tokens
//    are precomputed by their length. A tail that closes the string needs min to max characters
//    before it; one that begins with a backslash is walked from the configuration behind them.
// 3. Differences. Before a loop, for example after {" or in a name that still has listed
//    continuations, the mask differs from that of the loop only where the two configurations have
//    not met yet: it starts as the mask of the loop and is corrected there.
#include "mask.h"
#include "json_char.h"

#include <stdlib.h>
#include <string.h>

// A trie in depth-first order: the subtree of node i is the nodes [i, i + size).
typedef struct {
    uint32_t byte : 8, size : 24;
    int32_t token; // that ends here, or NONE
} ByteNode;

typedef struct {
    ByteNode *nodes;
    uint64_t *groups; // (n) byte_group of the node and all below it
    uint32_t n, depth;
} ByteTrie;

// A token that holds a quote or backslash: its characters before that, and the rest.
typedef struct {
    uint32_t n_plain; // characters
    int token;
    Str tail;
} MixedToken;

enum { N_LENGTHS = 33, N_MASKS = 128 };

struct Vocabulary {
    size_t n_words; // 64-bit words of a mask
    ByteTrie trie;
    ByteTrie tails;    // the distinct tails of mixed tokens; "tokens" are their numbers
    MixedToken *mixed; // (n_mixed) sorted by tail, then n_plain
    int *tail_begin;   // (n_tails + 1) into mixed
    int n_tails, n_mixed;
    int *escapes, n_escapes; // indices of mixed tokens whose tail begins with a backslash
    uint32_t max_plain;      // greatest n_plain of these
    // (N_LENGTHS + 1, n_words): row k has the tokens of up to k plain characters, the last row
    // those of any number. A character that the token's end cuts off counts.
    uint64_t *plain;
    int *long_plain, n_long; // plain tokens of N_LENGTHS or more characters, and their lengths
    uint32_t *long_length;
};

// Tables of all matchers of a grammar. A mask is cached under its configuration.
typedef struct {
    Machine *machine;
    const Vocabulary *vocabulary;
    Matcher *matchers;       // linked list of all of them
    uint64_t *masks;         // (N_MASKS, n_words)
    uint32_t owner[N_MASKS]; // configuration of each mask; DEAD: none
    int16_t *mask_of;        // (n_mask_of) by configuration: index of its mask + 1, or 0
    uint32_t n_mask_of;
    int next_mask;                     // to be replaced next
    uint32_t *configs, *others, *ends; // (depth) of the path of a walk; see walk_subtree
    uint32_t pinned;                   // a configuration that a flush must keep, or DEAD
} MaskTables;

struct Matcher {
    MaskTables *tables;
    Matcher *next;
    uint32_t config;
    uint64_t *first_mask; // see skips_space
};

static void set_bit(uint64_t *bits, int i) { bits[(size_t)i / 64] |= (uint64_t)1 << (i & 63); }
static void clear_bit(uint64_t *bits, int i) { bits[(size_t)i / 64] &= ~((uint64_t)1 << (i & 63)); }

// --- the vocabulary

typedef struct {
    uint64_t head; // the first eight bytes as a number, which decides most comparisons
    Str s;
    int token;
} TokenKey;

static TokenKey make_key(Str s, int token) {
    TokenKey key = {0, s, token};
    for (size_t i = 0; i < 8; i++)
        key.head = key.head << 8 | (i < s.len ? (unsigned char)s.data[i] : 0);
    return key;
}

static int compare_keys(const void *a, const void *b) {
    const TokenKey *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    int order = str_compare(x->s, y->s);
    return order ? order : (x->token > y->token) - (x->token < y->token);
}

// Sorts the keys and builds their trie. Equal keys have a node each, beside each other.
static void build_trie(ByteTrie *t, TokenKey *keys, int n) {
    size_t n_bytes = 1;
    uint32_t n_path = 0; // nodes from the root to the current one
    if (n > 1) qsort(keys, (size_t)n, sizeof *keys, compare_keys);
    for (int i = 0; i < n; i++) {
        n_bytes += keys[i].s.len;
        if (keys[i].s.len > t->depth) t->depth = (uint32_t)keys[i].s.len;
    }
    uint32_t *path = xalloc(t->depth + 1, sizeof *path);
    t->nodes = xrealloc(NULL, n_bytes, sizeof *t->nodes);
    for (int i = 0; i <= n; i++) { // the last round only ends the path
        Str s = i < n ? keys[i].s : (Str){0}, last = i ? keys[i - 1].s : (Str){0};
        uint32_t n_common = 0;
        while (n_common < s.len && n_common < last.len && s.data[n_common] == last.data[n_common])
            n_common++;
        if (i < n && n_common == s.len) n_common--;
        for (; n_path > n_common; n_path--)
            t->nodes[path[n_path - 1]].size = (t->n - path[n_path - 1]) & 0xffffff;
        for (; n_path < s.len; n_path++) {
            path[n_path] = t->n;
            t->nodes[t->n++] =
                (ByteNode){.byte = (unsigned char)s.data[n_path], .size = 1, .token = NONE};
        }
        if (i < n) t->nodes[t->n - 1].token = keys[i].token;
    }
    free(path);
    t->groups = xalloc(t->n + 1, sizeof *t->groups);
    for (uint32_t i = t->n; i-- > 0;) {
        t->groups[i] = byte_group((int)t->nodes[i].byte);
        for (uint32_t k = i + 1; k < i + t->nodes[i].size; k += t->nodes[k].size)
            t->groups[i] |= t->groups[k];
    }
}

// Bytes of s before the first that JSON strings do not contain as it is. A character that the end
// cuts off belongs to them.
static size_t plain_prefix(Str s, uint32_t *n_chars) {
    uint32_t partial = CHAR_COMPLETE, code = 0;
    size_t begin = 0; // of the current character
    *n_chars = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (!partial) begin = i, ++*n_chars;
        partial = char_step_utf8(partial, (unsigned char)s.data[i], &code);
        bool is_plain = partial || (code >= 0x20 && code != '"' && code != '\\');
        if (partial == CHAR_INVALID || !is_plain) return --*n_chars, begin;
    }
    return s.len;
}

static int compare_tails(const void *a, const void *b) {
    const MixedToken *x = a, *y = b;
    int order = str_compare(x->tail, y->tail);
    return order ? order : (x->n_plain > y->n_plain) - (x->n_plain < y->n_plain);
}

static void group_tails(Vocabulary *v) {
    TokenKey *keys = xalloc((size_t)v->n_mixed + 1, sizeof *keys);
    if (v->n_mixed) qsort(v->mixed, (size_t)v->n_mixed, sizeof *v->mixed, compare_tails);
    v->tail_begin = xalloc((size_t)v->n_mixed + 1, sizeof(int));
    v->escapes = xalloc((size_t)v->n_mixed + 1, sizeof(int));
    for (int i = 0; i < v->n_mixed; i++) {
        MixedToken *m = &v->mixed[i];
        if (!i || !str_eq(m->tail, m[-1].tail)) {
            keys[v->n_tails] = make_key(m->tail, v->n_tails);
            v->tail_begin[v->n_tails++] = i;
        }
        if (m->tail.data[0] != '\\') continue;
        v->escapes[v->n_escapes++] = i;
        if (m->n_plain > v->max_plain) v->max_plain = m->n_plain;
    }
    v->tail_begin[v->n_tails] = v->n_mixed;
    build_trie(&v->tails, keys, v->n_tails);
    free(keys);
}

Vocabulary *vocabulary_new(const Str *pieces, int n) {
    Vocabulary *v = xalloc(1, sizeof *v);
    size_t n_words = ((size_t)n + 63) / 64;
    v->n_words = n_words;
    v->plain = xalloc((N_LENGTHS + 1) * n_words, sizeof *v->plain);
    v->mixed = xalloc((size_t)n, sizeof *v->mixed);
    v->long_plain = xalloc((size_t)n, sizeof(int));
    v->long_length = xalloc((size_t)n, sizeof *v->long_length);
    TokenKey *keys = xalloc((size_t)n, sizeof *keys);
    int n_keys = 0;
    for (int t = 0; t < n; t++) {
        uint32_t n_chars;
        Str s = pieces[t];
        if (!s.len) continue;
        keys[n_keys++] = make_key(s, t);
        size_t n_plain = plain_prefix(s, &n_chars);
        if (n_plain < s.len) { // a control character or invalid UTF-8 there never fits a string
            if (s.data[n_plain] == '"' || s.data[n_plain] == '\\')
                v->mixed[v->n_mixed++] =
                    (MixedToken){n_chars, t, {s.data + n_plain, s.len - n_plain}};
            continue;
        }
        set_bit(v->plain + (n_chars < N_LENGTHS ? n_chars : N_LENGTHS) * n_words, t);
        if (n_chars < N_LENGTHS) continue;
        v->long_plain[v->n_long] = t;
        v->long_length[v->n_long++] = n_chars;
    }
    for (size_t i = n_words; i < (N_LENGTHS + 1) * n_words; i++)
        v->plain[i] |= v->plain[i - n_words];
    build_trie(&v->trie, keys, n_keys);
    free(keys);
    group_tails(v);
    return v;
}

void vocabulary_free(Vocabulary *v) {
    if (!v) return;
    free(v->trie.nodes), free(v->trie.groups), free(v->tails.nodes), free(v->tails.groups);
    free(v->mixed), free(v->tail_begin), free(v->escapes);
    free(v->plain), free(v->long_plain), free(v->long_length), free(v);
}

// --- walks

// Flushes the machine when it is full; keeps the configurations of all matchers and of the first
// n_path nodes of the current walk.
static void flush_if_full(MaskTables *s, uint32_t n_path, bool has_others) {
    size_t n = 0, n_matchers = 0;
    if (!machine_is_full(s->machine)) return;
    for (Matcher *m = s->matchers; m; m = m->next) n_matchers++;
    uint32_t **keep = xalloc(n_matchers + 2 * (size_t)n_path + 1, sizeof *keep);
    keep[n++] = &s->pinned;
    for (Matcher *m = s->matchers; m; m = m->next) keep[n++] = &m->config;
    for (uint32_t i = 0; i < n_path; i++) {
        keep[n++] = &s->configs[i];
        if (has_others) keep[n++] = &s->others[i];
    }
    machine_flush(s->machine, keep, (int)n);
    free(keep);
    memset(s->owner, 0, sizeof s->owner);
    if (s->n_mask_of) memset(s->mask_of, 0, s->n_mask_of * sizeof *s->mask_of);
}

// Sets the bits of the tokens in nodes [begin, end) that the machine can read from a configuration.
// Level d of the path is at configs[d] and covers the nodes before ends[d]; levels below `base`
// belong to the caller. Returns the configuration's number, which a flush may have changed.
static uint32_t walk_subtree(MaskTables *s, uint32_t base, const ByteNode *nodes, uint32_t begin,
                             uint32_t end, uint32_t config, uint64_t *out) {
    uint32_t depth = base;
    s->configs[base] = config, s->ends[base] = end;
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
            flush_if_full(s, depth + 1, false);
        }
        i++;
    }
    return s->configs[base];
}

static void clear_subtree(const ByteNode *nodes, uint32_t i, uint64_t *out) {
    for (uint32_t k = i; k < i + nodes[i].size; k++)
        if (nodes[k].token != NONE) clear_bit(out, nodes[k].token);
}

// Changes the mask of the configuration `other` into that of `config`. Both are walked together;
// where they reach the same state, the masks agree.
static void walk_difference(MaskTables *s, uint32_t config, uint32_t other, uint64_t *out) {
    const ByteTrie *t = &s->vocabulary->trie;
    uint32_t depth = 0;
    s->configs[0] = config, s->others[0] = other, s->ends[0] = t->n;
    for (uint32_t i = 0; i < t->n;) {
        while (i >= s->ends[depth]) depth--;
        const ByteNode *node = &t->nodes[i];
        uint32_t next = machine_step(s->machine, s->configs[depth], (int)node->byte);
        uint32_t other_next =
            s->others[depth] ? machine_step(s->machine, s->others[depth], (int)node->byte) : DEAD;
        if (next == other_next || next == DEAD) {
            if (next != other_next) clear_subtree(t->nodes, i, out);
            i += node->size;
            continue;
        }
        if (node->token != NONE) set_bit(out, node->token);
        if (node->size > 1) {
            s->configs[++depth] = next;
            s->others[depth] = other_next, s->ends[depth] = i + node->size;
            flush_if_full(s, depth + 1, true);
        }
        i++;
    }
}

// Corrects a mask that assumes that every plain character leads the loop back to itself, in the
// subtrees that contain a character of `others`. Returns the loop's number.
static uint32_t walk_others(MaskTables *s, uint32_t loop, uint64_t others, uint64_t *out) {
    const ByteTrie *t = &s->vocabulary->trie;
    uint32_t depth = 0;
    s->configs[0] = loop, s->ends[0] = t->n;
    for (uint32_t i = 0; others && i < t->n;) {
        while (i >= s->ends[depth]) depth--;
        const ByteNode *node = &t->nodes[i];
        uint32_t end = i + node->size;
        bool in_loop = s->configs[depth] == s->configs[0];
        if ((in_loop && !(t->groups[i] & others)) || node->byte < 0x20 || node->byte == '"' ||
            node->byte == '\\') {
            i = end;
            continue;
        }
        uint32_t next = machine_step(s->machine, s->configs[depth], (int)node->byte);
        if (next == s->configs[0] || machine_is_partial(s->machine, next)) {
            s->configs[++depth] = next, s->ends[depth] = end;
            i++;
            continue;
        }
        clear_subtree(t->nodes, i, out);
        if (next != DEAD) {
            if (node->token != NONE) set_bit(out, node->token);
            walk_subtree(s, depth + 1, t->nodes, i + 1, end, next, out);
        }
        i = end;
    }
    return s->configs[0];
}

// --- masks

// Sets the bits of tokens with min to max plain characters before a tail that the machine can read
// from a configuration; with only_quotes, only of tails that begin with a quote. Returns the
// configuration's number.
static uint32_t mask_tails(MaskTables *s, uint32_t config, bool only_quotes, uint32_t min,
                           uint32_t max, uint64_t *out) {
    const Vocabulary *v = s->vocabulary;
    const ByteNode *nodes = v->tails.nodes;
    uint64_t *fits = xalloc((size_t)v->n_tails / 64 + 1, sizeof *fits);
    for (uint32_t i = 0; i < v->tails.n; i += nodes[i].size)
        if (!only_quotes || nodes[i].byte == '"')
            config = walk_subtree(s, 0, nodes, i, i + nodes[i].size, config, fits);
    for (int t = 0; t < v->n_tails; t++) {
        if (!(fits[t / 64] >> (t & 63) & 1)) continue;
        for (int i = v->tail_begin[t]; i < v->tail_begin[t + 1] && v->mixed[i].n_plain <= max; i++)
            if (v->mixed[i].n_plain >= min) set_bit(out, v->mixed[i].token);
    }
    free(fits);
    return config;
}

static void copy_plain(const Vocabulary *v, uint32_t max, uint64_t *out) {
    size_t row = max == NO_LIMIT ? N_LENGTHS : max < N_LENGTHS ? max : N_LENGTHS - 1;
    memcpy(out, v->plain + row * v->n_words, v->n_words * sizeof *out);
    for (int i = 0; max != NO_LIMIT && i < v->n_long; i++)
        if (v->long_length[i] <= max) set_bit(out, v->long_plain[i]);
}

static uint32_t mask_loop(MaskTables *s, uint32_t loop, uint64_t others, uint64_t *out) {
    copy_plain(s->vocabulary, NO_LIMIT, out);
    loop = mask_tails(s, loop, false, 0, NO_LIMIT, out);
    return walk_others(s, loop, others, out);
}

static void mask_counted(MaskTables *s, uint32_t config, uint32_t min, uint32_t max,
                         uint64_t others, uint64_t *out) {
    const Vocabulary *v = s->vocabulary;
    uint32_t n = max < v->max_plain ? max : v->max_plain;
    uint32_t *after = xalloc((size_t)n + 1, sizeof *after); // configuration after k characters
    copy_plain(v, max, out);
    for (uint32_t k = 0; k <= n; k++) after[k] = machine_skip(s->machine, config, k);
    for (int i = 0; i < v->n_escapes; i++) {
        const MixedToken *m = &v->mixed[v->escapes[i]];
        uint32_t at = m->n_plain <= n ? after[m->n_plain] : DEAD;
        for (size_t b = 0; at && b < m->tail.len; b++)
            at = machine_step(s->machine, at, (unsigned char)m->tail.data[b]);
        if (at) set_bit(out, m->token);
    }
    free(after);
    s->pinned = config;
    if (min <= max) mask_tails(s, machine_skip(s->machine, config, min), true, min, max, out);
    walk_others(s, machine_uncounted(s->machine, s->pinned), others, out);
}

// The loop that most texts from this configuration reach within a few characters, or DEAD.
static uint32_t find_loop(MaskTables *s, uint32_t config, uint64_t *others) {
    static const char unlikely[] = "~^Qz"; // characters that no listed name has, with luck
    for (int i = 0; unlikely[i]; i++) {
        uint32_t next = machine_step(s->machine, config, unlikely[i]);
        for (int k = 0; next && k < 2; k++) {
            if (machine_is_loop(s->machine, next, others)) return next;
            next = machine_step(s->machine, next, unlikely[i]);
        }
    }
    return DEAD;
}

static void compute_mask(MaskTables *s, uint32_t config, uint64_t *out) {
    const Vocabulary *v = s->vocabulary;
    uint32_t min, max, loop;
    uint64_t others;
    if (machine_is_loop(s->machine, config, &others)) {
        mask_loop(s, config, others, out);
    } else if (machine_is_counted(s->machine, config, &min, &max, &others)) {
        mask_counted(s, config, min, max, others, out);
    } else if ((loop = find_loop(s, config, &others))) {
        s->pinned = config;
        loop = mask_loop(s, loop, others, out);
        walk_difference(s, s->pinned, loop, out);
    } else {
        memset(out, 0, v->n_words * sizeof *out);
        walk_subtree(s, 0, v->trie.nodes, 0, v->trie.n, config, out);
    }
}

// --- matchers

static MaskTables *tables_new(const Grammar *g, const Vocabulary *v) {
    MaskTables *s = xalloc(1, sizeof *s);
    uint32_t depth = (v->trie.depth > v->tails.depth ? v->trie.depth : v->tails.depth) + 2;
    s->machine = machine_new(g);
    s->vocabulary = v;
    s->configs = xalloc(depth, sizeof *s->configs);
    s->others = xalloc(depth, sizeof *s->others);
    s->ends = xalloc(depth, sizeof *s->ends);
    return s;
}

Matcher *matcher_new(const Grammar *g, const Vocabulary *v, Matcher *shared) {
    Matcher *m = xalloc(1, sizeof *m);
    m->tables = shared ? shared->tables : tables_new(g, v);
    m->next = m->tables->matchers;
    m->tables->matchers = m;
    m->config = machine_start(m->tables->machine);
    return m;
}

void matcher_free(Matcher *m) {
    if (!m) return;
    MaskTables *s = m->tables;
    Matcher **link = &s->matchers;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
    free(m->first_mask), free(m);
    if (s->matchers) return;
    machine_free(s->machine);
    free(s->masks), free(s->mask_of), free(s->configs), free(s->others), free(s->ends), free(s);
}

// The entry of a configuration in mask_of.
static int16_t *find_mask(MaskTables *s, uint32_t config) {
    if (config >= s->n_mask_of) {
        uint32_t n = 2 * config + 64;
        s->mask_of = xrealloc(s->mask_of, n, sizeof *s->mask_of);
        memset(s->mask_of + s->n_mask_of, 0, (n - s->n_mask_of) * sizeof *s->mask_of);
        s->n_mask_of = n;
    }
    return &s->mask_of[config];
}

static const uint64_t *cached_mask(Matcher *m) {
    MaskTables *s = m->tables;
    size_t n = s->vocabulary->n_words;
    if (!s->masks) s->masks = xrealloc(NULL, N_MASKS * n, sizeof *s->masks);
    flush_if_full(s, 0, false);
    int found = *find_mask(s, m->config);
    if (found) return s->masks + (size_t)(found - 1) * n;
    int i = s->next_mask++ % N_MASKS;
    uint64_t *out = s->masks + (size_t)i * n;
    if (s->owner[i]) *find_mask(s, s->owner[i]) = 0;
    s->owner[i] = DEAD;
    compute_mask(s, m->config, out);
    s->pinned = DEAD;
    s->owner[i] = m->config; // only now: a flush may have changed the number
    *find_mask(s, m->config) = (int16_t)(i + 1);
    return out;
}

const uint64_t *matcher_mask(Matcher *m, bool skips_space) {
    const uint64_t *mask = cached_mask(m);
    const Vocabulary *v = m->tables->vocabulary;
    const ByteNode *nodes = v->trie.nodes;
    if (!skips_space) return mask;
    if (!m->first_mask) m->first_mask = xalloc(v->n_words, sizeof *m->first_mask);
    memcpy(m->first_mask, mask, v->n_words * sizeof *mask);
    for (uint32_t i = 0; i < v->trie.n; i += nodes[i].size) {
        if (nodes[i].byte != ' ') continue;
        clear_subtree(nodes, i, m->first_mask);
        walk_subtree(m->tables, 0, nodes, i + 1, i + nodes[i].size, m->config, m->first_mask);
    }
    return m->first_mask;
}

bool matcher_is_end(const Matcher *m) { return machine_is_end(m->tables->machine, m->config); }

// The number of bytes that can follow, at most 2; *byte is one of them.
static int count_next(Machine *machine, uint32_t config, int *byte) {
    int n = 0;
    for (int b = 0; b < 256 && n < 2; b++)
        if (machine_step(machine, config, b) != DEAD) n++, *byte = b;
    return n;
}

bool matcher_is_done(Matcher *m) {
    int byte;
    return matcher_is_end(m) && count_next(m->tables->machine, m->config, &byte) == 0;
}

size_t matcher_accept(Matcher *m, Str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        flush_if_full(m->tables, 0, false);
        uint32_t next = machine_step(m->tables->machine, m->config, (unsigned char)bytes.data[i]);
        if (next == DEAD) return i;
        m->config = next;
    }
    return bytes.len;
}

void matcher_forced(const Matcher *m, Buffer *out) {
    enum { MAX_BYTES = 4096 }; // a longer constant comes in parts
    Machine *machine = m->tables->machine;
    uint32_t config = m->config;
    int byte;
    for (int n = 0; n < MAX_BYTES && !machine_is_end(machine, config); n++) {
        if (count_next(machine, config, &byte) != 1) return;
        buffer_append(out, &(char){(char)byte}, 1);
        config = machine_step(machine, config, byte);
    }
}
