// A mask is computed by walking a byte trie of all tokens together with the machine. Where a byte
// leads the machine to DEAD, the whole subtree is skipped. After the text {"na, with a schema whose
// only property is "name", the walk enters only the branch m of the trie, then e, then the quote.
//
// Inside a string, nearly every token fits, so this walk would visit nearly every token. Three
// shortcuts avoid that:
//
// 1. Loops. In a string without a length limit, each character leads the machine back to the same
//    configuration (machine_is_loop). All tokens of plain characters fit, and their mask is
//    precomputed. Any other token is a plain prefix and a tail that begins with a quote or a
//    backslash. The prefix does not change the configuration, so each distinct tail is walked only
//    once; hundreds of tokens may have the same tail, such as a quote and a comma. If the string
//    excludes some characters, the subtrees of the trie that contain these characters are walked as
//    well (byte_group).
// 2. Counted strings. If a string has a length limit, a token fits if it has at most `max`
//    characters; the masks of plain tokens are precomputed by their number of characters. A tail
//    that closes the string needs a prefix of min to max characters. A tail that begins with a
//    backslash is walked from the configuration after its prefix.
// 3. Differences. Just before a loop, for example after {" or in a property name that may still
//    become a listed name, the mask is computed from the mask of the loop. Both configurations are
//    walked together, and bits are corrected until the two paths reach the same configuration.
#include "constrain/mask.h"
#include "constrain/json_char.h"
#include "base/bits.h"

// A trie in depth-first order: the subtree of node i is the nodes [i, i + size).
typedef struct {
    uint32_t byte : 8, size : 24;
    int32_t token; // the token that ends here, or NONE
} ByteNode;

typedef struct {
    ByteNode *nodes;
    uint64_t *groups; // (n) byte_group() of all nodes of the subtree
    uint32_t n, depth;
} ByteTrie;

// A token and its text or, for a mixed token, its tail. A mixed token consists of a prefix of plain
// characters of a JSON string and a tail that begins with a quote or backslash.
typedef struct {
    Str text;
    int token;
    uint32_t n_plain; // characters of the prefix
} TokenText;

enum { N_LENGTHS = 33, N_MASKS = 128 };

struct TokenTable {
    size_t n_words; // 64-bit words of a mask
    ByteTrie trie;
    ByteTrie tails;   // the distinct tails of mixed tokens; ByteNode.token is the tail's number
    TokenText *mixed; // (n_mixed) tokens with a tail, sorted by tail, then n_plain
    int *tail_begin;  // (n_tails + 1) first token of each tail in `mixed`
    int n_tails, n_mixed;
    int first_escape; // mixed tokens [first_escape, n_mixed): the tail begins with a backslash
    // (N_LENGTHS + 1, n_words): row k has the tokens of at most k plain characters, the last row
    // all plain tokens. A character that is cut off by the end of the token counts.
    uint64_t *plain;
    TokenText *long_plain; // (n_long) plain tokens of N_LENGTHS or more characters
    int n_long;
};

// A node on the path of a walk through a trie.
typedef struct {
    uint32_t config; // after the bytes up to this node
    uint32_t other;  // second configuration of walk() after these bytes, or DEAD
    uint32_t end;    // first node after the subtree
} WalkLevel;

// Tables shared by all matchers of a grammar.
typedef struct {
    Machine *machine;
    const TokenTable *tokens;
    Matcher *matchers;       // linked list of all matchers that use these tables
    uint64_t *masks;         // (n_masks, n_words) cached masks
    int n_masks;             // at most N_MASKS
    uint32_t owner[N_MASKS]; // configuration of each cached mask; DEAD: none
    int next_mask;           // number of the next mask to be computed, which replaces the oldest
    WalkLevel *path;         // (greatest depth of a trie + 2)
    uint32_t pinned;         // a configuration that a flush must keep, or DEAD
    Budget budget;           // of the mask or forced text in progress
} MaskTables;

struct Matcher {
    MaskTables *tables;
    Matcher *next;
    uint32_t config;
    uint64_t *own_mask; // (n_words) a mask that differs from the cached one; NULL until needed
};

static void set_bit(uint64_t *bits, int i) { bits[(size_t)i / 64] |= (uint64_t)1 << (i & 63); }
static bool get_bit(const uint64_t *bits, int i) { return bits[(size_t)i / 64] >> (i & 63) & 1; }
static void clear_bit(uint64_t *bits, int i) { bits[(size_t)i / 64] &= ~((uint64_t)1 << (i & 63)); }

// The table of tokens.

static int compare_tokens(const void *a, const void *b) {
    const TokenText *x = a, *y = b;
    int order = str_compare(x->text, y->text);
    return order ? order : (x->n_plain > y->n_plain) - (x->n_plain < y->n_plain);
}

static uint32_t common_prefix(Str a, Str b) {
    uint32_t n = 0;
    while (n < a.len && n < b.len && a.data[n] == b.data[n]) n++;
    return n;
}

// Sets the sizes of the nodes path[begin, end), whose subtrees are complete.
static void end_subtrees(ByteTrie *t, const uint32_t *path, uint32_t begin, uint32_t end) {
    for (uint32_t k = begin; k < end; k++) t->nodes[path[k]].size = (t->n - path[k]) & 0xffffff;
}

// Builds the trie of sorted keys (n), none of them empty. The keys "a", "at" and "to" become
//
//     node     0    1    2    3
//     byte     a    t    t    o
//     size     2    1    2    1     nodes of the subtree, this node included
//     token    "a"  "at" -    "to"
//
// There is no root: the subtrees of the first bytes follow each other. Equal keys share all nodes
// except the last one.
static void build_trie(ByteTrie *t, const TokenText *keys, int n) {
    size_t n_bytes = 1;
    for (int i = 0; i < n; i++) {
        n_bytes += keys[i].text.len;
        if (keys[i].text.len > t->depth) t->depth = (uint32_t)keys[i].text.len;
    }

    uint32_t *path = xalloc(t->depth + 1, sizeof *path); // node of each byte of the previous key
    uint32_t n_path = 0;
    t->nodes = xrealloc(NULL, n_bytes, sizeof *t->nodes);

    for (int i = 0; i < n; i++) {
        Str key = keys[i].text;
        uint32_t n_common = i ? common_prefix(key, keys[i - 1].text) : 0;
        if (n_common == key.len) n_common--; // an equal key

        end_subtrees(t, path, n_common, n_path);
        for (n_path = n_common; n_path < key.len; n_path++) {
            path[n_path] = t->n;
            t->nodes[t->n++] =
                (ByteNode){.byte = (unsigned char)key.data[n_path], .size = 1, .token = NONE};
        }
        t->nodes[t->n - 1].token = keys[i].token;
    }

    end_subtrees(t, path, 0, n_path);
    free(path);

    // Set the groups of all subtrees, children before their parents.
    t->groups = xalloc(t->n + 1, sizeof *t->groups);
    for (uint32_t i = t->n; i-- > 0;) {
        t->groups[i] = byte_group((int)t->nodes[i].byte);
        for (uint32_t k = i + 1; k < i + t->nodes[i].size; k += t->nodes[k].size)
            t->groups[i] |= t->groups[k];
    }
}

// Length in bytes of the longest prefix that a JSON string can contain without escapes. A character
// that is cut off by the end of s belongs to the prefix.
static size_t plain_prefix(Str s, uint32_t *n_chars) {
    uint32_t partial = CHAR_COMPLETE, code = 0;
    size_t begin = 0; // of the current character

    *n_chars = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (!partial) {
            begin = i;
            ++*n_chars;
        }

        partial = char_step_utf8(partial, (unsigned char)s.data[i], &code);
        bool is_plain = partial || (code >= 0x20 && code != '"' && code != '\\');
        if (partial == CHAR_INVALID || !is_plain) {
            --*n_chars;
            return begin;
        }
    }

    return s.len;
}

static void group_tails(TokenTable *v) {
    TokenText *keys = xalloc((size_t)v->n_mixed + 1, sizeof *keys);
    qsort(v->mixed, (size_t)v->n_mixed, sizeof *v->mixed, compare_tokens);
    v->tail_begin = xalloc((size_t)v->n_mixed + 1, sizeof(int));
    for (int i = 0; i < v->n_mixed; i++) {
        TokenText *m = &v->mixed[i];
        if (m->text.data[0] != '\\') v->first_escape = i + 1;
        if (i && str_eq(m->text, m[-1].text)) continue;
        keys[v->n_tails] = (TokenText){m->text, v->n_tails, 0};
        v->tail_begin[v->n_tails++] = i;
    }
    v->tail_begin[v->n_tails] = v->n_mixed;
    build_trie(&v->tails, keys, v->n_tails);
    free(keys);
}

TokenTable *token_table_new(const Str *pieces, int n) {
    TokenTable *v = xalloc(1, sizeof *v);
    size_t n_words = size_div_up((size_t)n, 64);

    v->n_words = n_words;
    v->plain = xalloc((N_LENGTHS + 1) * n_words, sizeof *v->plain);
    v->mixed = xalloc((size_t)n, sizeof *v->mixed);
    v->long_plain = xalloc((size_t)n, sizeof *v->long_plain);

    TokenText *keys = xalloc((size_t)n, sizeof *keys);
    int n_keys = 0;

    for (int t = 0; t < n; t++) {
        uint32_t n_chars;
        Str s = pieces[t];
        if (!s.len) continue;

        keys[n_keys++] = (TokenText){s, t, 0};

        // Split the token into plain characters of a string and a tail.
        size_t n_plain = plain_prefix(s, &n_chars);
        Str tail = {s.data + n_plain, s.len - n_plain};
        TokenText token = {tail, t, n_chars};
        if (!tail.len) {
            set_bit(v->plain + (n_chars < N_LENGTHS ? n_chars : N_LENGTHS) * n_words, t);
            if (n_chars >= N_LENGTHS) v->long_plain[v->n_long++] = token;
        } else if (tail.data[0] == '"' || tail.data[0] == '\\') {
            v->mixed[v->n_mixed++] = token;
        } // else a control character or invalid UTF-8, which no string contains
    }

    // Row k: the tokens of at most k characters.
    for (size_t i = n_words; i < (N_LENGTHS + 1) * n_words; i++)
        v->plain[i] |= v->plain[i - n_words];

    qsort(keys, (size_t)n_keys, sizeof *keys, compare_tokens);
    build_trie(&v->trie, keys, n_keys);
    free(keys);
    group_tails(v);
    return v;
}

// Walks.

// Flushes the machine when it is full. Keeps the configurations of all matchers, the pinned one,
// and the first n_path levels of the current walk.
static void flush_if_full(MaskTables *s, uint32_t n_path) {
    size_t n = 0, n_matchers = 0;
    if (!machine_is_full(s->machine)) return;
    for (Matcher *m = s->matchers; m; m = m->next) n_matchers++;
    uint32_t **keep = xalloc(n_matchers + 2 * (size_t)n_path + 1, sizeof *keep);
    keep[n++] = &s->pinned;
    for (Matcher *m = s->matchers; m; m = m->next) keep[n++] = &m->config;
    for (uint32_t i = 0; i < n_path; i++) {
        keep[n++] = &s->path[i].config;
        keep[n++] = &s->path[i].other;
    }
    machine_flush(s->machine, keep, (int)n);
    free(keep);
    memset(s->owner, 0, sizeof s->owner);
}

// Begins a mask or forced text. Its work does not depend on which steps are stored, so a text meets
// the limit alone or in any batch. The work of an ambiguous text grows with the square of its
// length. A mask counts as MIN_STEPS steps, so that not all tokens before the limit are slow.
static void begin_work(const Matcher *m) {
    enum { MAX_WORK = 1 << 23, MIN_STEPS = 64 }; // at most about 0.5 s on Zen 3, 2026-11
    MaskTables *s = m->tables;
    long step_cost = machine_row(s->machine, m->config)->step_cost;
    s->budget = (Budget){.left = MAX_WORK - MIN_STEPS * step_cost};
}

static bool spend(MaskTables *s, uint32_t config) {
    return budget_spend(&s->budget, machine_row(s->machine, config)->step_cost);
}

static void clear_subtree(const ByteNode *nodes, uint32_t i, uint64_t *out) {
    for (uint32_t k = i; k < i + nodes[i].size; k++)
        if (nodes[k].token != NONE) clear_bit(out, nodes[k].token);
}

// Changes the mask of the configuration start.other into the mask of start.config, for the tokens
// in the trie nodes [begin, start.end). Both configurations are walked together; where the two
// reach the same configuration, their masks agree. If start.other is DEAD, whose mask is empty,
// this sets the bits of all tokens that the machine can read from start.config. The walk uses the
// levels of s->path from `base` on. Returns the number of start.config, which a flush may have
// changed.
static uint32_t walk(MaskTables *s, uint32_t base, const ByteNode *nodes, uint32_t begin,
                     WalkLevel start, uint64_t *out) {
    WalkLevel *level = &s->path[base];
    *level = start;

    uint32_t i = begin;
    while (i < start.end && s->budget.left > 0) {
        const ByteNode *node = &nodes[i];
        while (i >= level->end) level--;

        uint32_t next = machine_step(s->machine, level->config, (int)node->byte);
        uint32_t other_next =
            level->other ? machine_step(s->machine, level->other, (int)node->byte) : DEAD;
        spend(s, next);
        spend(s, other_next);

        // Skip the subtree if both paths reach the same configuration, or if no token of it fits.
        if (next == other_next || next == DEAD) {
            if (next != other_next) clear_subtree(nodes, i, out);
            i += node->size;
            continue;
        }

        if (node->token != NONE) set_bit(out, node->token);
        if (node->size > 1) {
            *++level = (WalkLevel){next, other_next, i + node->size};
            flush_if_full(s, (uint32_t)(level - s->path) + 1);
        }
        i++;
    }
    return s->path[base].config;
}

// Corrects a mask that assumes that every plain character leads the loop back to itself, in the
// subtrees that contain a character of the groups `others`.
static void walk_others(MaskTables *s, uint32_t loop, uint64_t others, uint64_t *out) {
    const ByteTrie *t = &s->tokens->trie;
    uint32_t depth = 0;
    s->path[0] = (WalkLevel){loop, DEAD, t->n};
    if (!others) return;

    uint32_t i = 0;
    while (i < t->n) {
        while (i >= s->path[depth].end) depth--;

        const ByteNode *node = &t->nodes[i];
        uint32_t end = i + node->size;
        uint32_t config = s->path[depth].config;

        // Skip subtrees without such characters. The tails of mixed tokens are already handled.
        bool is_in_loop = config == s->path[0].config;
        if ((is_in_loop && !(t->groups[i] & others)) || node->byte < 0x20 || node->byte == '"' ||
            node->byte == '\\') {
            i = end;
            continue;
        }

        uint32_t next = machine_step(s->machine, config, (int)node->byte);
        if (next == s->path[0].config || machine_is_partial(s->machine, next)) {
            s->path[++depth] = (WalkLevel){next, DEAD, end};
            i++;
            continue;
        }

        clear_subtree(t->nodes, i, out);
        if (next != DEAD) {
            if (node->token != NONE) set_bit(out, node->token);
            walk(s, depth + 1, t->nodes, i + 1, (WalkLevel){next, DEAD, end}, out);
        }
        i = end;
    }
}

// Masks.

// Sets the bits of mixed tokens with min to max plain characters before a tail that the machine can
// read from a configuration. With only_quotes, only tails that begin with a quote. Returns the
// number of the configuration, which a flush may have changed.
static uint32_t mask_tails(MaskTables *s, uint32_t config, bool only_quotes, uint32_t min,
                           uint32_t max, uint64_t *out) {
    const TokenTable *v = s->tokens;
    const ByteNode *nodes = v->tails.nodes;
    uint64_t *fits = xalloc((size_t)v->n_tails / 64 + 1, sizeof *fits);

    for (uint32_t i = 0; i < v->tails.n; i += nodes[i].size)
        if (!only_quotes || nodes[i].byte == '"')
            config = walk(s, 0, nodes, i, (WalkLevel){config, DEAD, i + nodes[i].size}, fits);

    for (int t = 0; t < v->n_tails; t++) {
        if (!get_bit(fits, t)) continue;
        for (int i = v->tail_begin[t]; i < v->tail_begin[t + 1] && v->mixed[i].n_plain <= max; i++)
            if (v->mixed[i].n_plain >= min) set_bit(out, v->mixed[i].token);
    }

    free(fits);
    return config;
}

// Starts a mask with the tokens of at most max plain characters.
static void copy_plain(const TokenTable *v, uint32_t max, uint64_t *out) {
    size_t row = max < N_LENGTHS ? max : N_LENGTHS;
    memcpy(out, v->plain + row * v->n_words, v->n_words * sizeof *out);
    for (int i = 0; row == N_LENGTHS && i < v->n_long; i++)
        if (v->long_plain[i].n_plain > max) clear_bit(out, v->long_plain[i].token);
}

// Returns the number of the loop, which a flush may have changed.
static uint32_t mask_loop(MaskTables *s, uint32_t loop, uint64_t others, uint64_t *out) {
    copy_plain(s->tokens, NO_LIMIT, out);
    loop = mask_tails(s, loop, false, 0, NO_LIMIT, out);
    walk_others(s, loop, others, out);
    return s->path[0].config;
}

static void mask_counted(MaskTables *s, uint32_t config, uint32_t min, uint32_t max,
                         uint64_t others, uint64_t *out) {
    const TokenTable *v = s->tokens;
    copy_plain(v, max, out);
    for (int i = v->first_escape; i < v->n_mixed; i++) {
        const TokenText *m = &v->mixed[i];
        uint32_t at = m->n_plain <= max ? machine_skip(s->machine, config, m->n_plain) : DEAD;
        for (size_t b = 0; at && b < m->text.len; b++)
            at = machine_step(s->machine, at, (unsigned char)m->text.data[b]);
        if (at) set_bit(out, m->token);
    }
    s->pinned = config;
    if (min <= max) mask_tails(s, machine_skip(s->machine, s->pinned, min), true, min, max, out);
    walk_others(s, machine_uncounted(s->machine, s->pinned), others, out);
}

// The loop that most texts from this configuration reach within a few characters, or DEAD.
static uint32_t find_loop(MaskTables *s, uint32_t config, uint64_t *others) {
    static const char unlikely[] = "~^Qz"; // characters that property names rarely contain
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
    const TokenTable *v = s->tokens;
    const ByteTrie *t = &v->trie;
    uint32_t min, max;
    uint64_t others;

    if (machine_is_loop(s->machine, config, &others)) {
        mask_loop(s, config, others, out);
        return;
    }
    if (machine_is_counted(s->machine, config, &min, &max, &others)) {
        mask_counted(s, config, min, max, others, out);
        return;
    }

    // Correct the mask of a loop a few characters ahead or, without one, the empty mask of DEAD.
    uint32_t loop = find_loop(s, config, &others);
    s->pinned = config;
    if (loop)
        loop = mask_loop(s, loop, others, out);
    else
        memset(out, 0, v->n_words * sizeof *out);
    walk(s, 0, t->nodes, 0, (WalkLevel){s->pinned, loop, t->n}, out);
}

// Matchers.

void matcher_set_limit(Matcher *m, size_t bytes) {
    enum { MIN_MASKS = 8 };
    MaskTables *s = m->tables;
    size_t mask_bytes = s->tokens->n_words * sizeof *s->masks, n = bytes / 2 / (mask_bytes + 1);
    machine_set_limit(s->machine, bytes / 2);
    if (n < MIN_MASKS) n = MIN_MASKS;
    if (n > N_MASKS) n = N_MASKS;
    if (n == (size_t)s->n_masks) return;
    s->n_masks = (int)n;
    s->masks = xrealloc(s->masks, n, mask_bytes);
    memset(s->owner, 0, sizeof s->owner);
}

Matcher *matcher_new(const Grammar *g, const TokenTable *v, Matcher *shared) {
    enum { DEFAULT_LIMIT = 64 << 20 }; // bytes of tables
    Matcher *m = xalloc(1, sizeof *m);
    if (shared) {
        m->tables = shared->tables;
    } else {
        uint32_t depth = v->trie.depth > v->tails.depth ? v->trie.depth : v->tails.depth;
        m->tables = xalloc(1, sizeof *m->tables);
        m->tables->machine = machine_new(g);
        m->tables->tokens = v;
        m->tables->path = xalloc((size_t)depth + 2, sizeof *m->tables->path);
        matcher_set_limit(m, DEFAULT_LIMIT);
    }

    m->next = m->tables->matchers;
    m->tables->matchers = m;
    m->config = machine_start(m->tables->machine);
    return m;
}

Matcher *matcher_copy(Matcher *m) {
    Matcher *copy = matcher_new(NULL, NULL, m);
    copy->config = m->config;
    return copy;
}

void matcher_free(Matcher *m) {
    if (!m) return;

    MaskTables *s = m->tables;
    Matcher **link = &s->matchers;
    while (*link != m) link = &(*link)->next;
    *link = m->next;

    free(m->own_mask);
    free(m);

    // The last matcher frees the tables.
    if (s->matchers) return;
    machine_free(s->machine);
    free(s->masks);
    free(s->path);
    free(s);
}

static const uint64_t *cached_mask(Matcher *m) {
    MaskTables *s = m->tables;
    size_t n = s->tokens->n_words;
    flush_if_full(s, 0);
    for (size_t i = 0; i < (size_t)s->n_masks; i++)
        if (s->owner[i] == m->config) return s->masks + i * n;
    size_t i = (size_t)(s->next_mask++ % s->n_masks);
    s->owner[i] = DEAD;
    compute_mask(s, m->config, s->masks + i * n);
    s->pinned = DEAD;
    if (s->budget.left <= 0) return NULL;
    s->owner[i] = m->config; // only now, because a flush may have changed the number
    return s->masks + i * n;
}

const uint64_t *matcher_mask(Matcher *m, bool skips_space) {
    begin_work(m);
    const uint64_t *mask = cached_mask(m);
    const TokenTable *v = m->tables->tokens;
    const ByteNode *nodes = v->trie.nodes;
    if (!skips_space || !mask) return mask;

    // Of a token that begins with a space, only the rest is part of the text.
    if (!m->own_mask) m->own_mask = xalloc(v->n_words, sizeof *m->own_mask);
    memcpy(m->own_mask, mask, v->n_words * sizeof *mask);
    for (uint32_t i = 0; i < v->trie.n; i += nodes[i].size) {
        if (nodes[i].byte != ' ') continue;
        clear_subtree(nodes, i, m->own_mask);
        walk(m->tables, 0, nodes, i + 1, (WalkLevel){m->config, DEAD, i + nodes[i].size},
             m->own_mask);
    }
    return m->tables->budget.left > 0 ? m->own_mask : NULL;
}

bool matcher_is_end(const Matcher *m) { return machine_is_end(m->tables->machine, m->config); }

bool matcher_is_done(Matcher *m) {
    int byte;
    return matcher_is_end(m) && machine_count_next(m->tables->machine, m->config, &byte) == 0;
}

Str matcher_tag(const Matcher *m) { return machine_tag(m->tables->machine, m->config); }

size_t matcher_accept(Matcher *m, Str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        flush_if_full(m->tables, 0);
        uint32_t next = machine_step(m->tables->machine, m->config, (unsigned char)bytes.data[i]);
        if (next == DEAD) return i;
        m->config = next;
    }
    return bytes.len;
}

void matcher_forced(const Matcher *m, Buffer *out) {
    enum { MAX_BYTES = 4096 }; // longer forced text takes several calls
    Machine *machine = m->tables->machine;
    uint32_t config = m->config;
    int byte;
    begin_work(m);
    for (int n = 0; n < MAX_BYTES && !machine_is_end(machine, config); n++) {
        if (machine_count_next(machine, config, &byte) != 1) break;
        if (machine_tag(machine, config).len) break;
        buffer_append(out, &(char){(char)byte}, 1);
        config = machine_step(machine, config, byte);
        if (!spend(m->tables, config)) break;
    }
}
