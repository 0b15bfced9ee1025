#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_THREADS = 2048,   // alive at once
    MAX_CONFIGS = 24576,  // with 1 KiB of steps each
    MAX_FRAMES = 1 << 18, // kept before a flush
    CHUNK = 64            // rows allocated at once
};

typedef enum {
    T_END,    // the text is complete
    T_VALUE,  // before a value of node def
    T_TEXT,   // in automaton def, state q
    T_STRING, // in string def, after count characters; state q of its automaton or tree
    T_OPEN,   // after { or [
    T_QUOTE,  // before the quote of a name
    T_NAME,   // in a name: q the tree's node, count the state of ObjectDef.other
    T_COLON,  // after a name; def: node of the value
    T_SPACE,  // after a colon
    T_NEXT,   // after a comma
    T_INDENT, // count spaces before q, which is one of T_VALUE (def), T_QUOTE, T_CLOSE
    T_AFTER,  // after a value in a container
    T_CLOSE   // before } or ]
} ThreadKind;

// White space that the text may still use: as json.dumps writes it without, by default, with
// indent=2.
enum { COMPACT = 1, SPACED = 2, INDENTED = 4 };

typedef struct {
    uint32_t frame;
    uint8_t kind, style;
    uint16_t is_loose; // T_STRING: characters are not counted
    int32_t def, q;
    uint32_t count;
    uint32_t partial; // a character under way, see Partial
} Thread;

typedef enum { F_ROOT, F_RULE, F_OBJECT, F_ARRAY } FrameKind;

typedef struct {
    uint32_t parent;
    FrameKind kind;
    int32_t def;      // rule: automaton; object, array: its index
    int32_t state;    // rule: where the automaton goes on
    uint32_t count;   // properties or items so far
    uint32_t depth;   // containers around and including it
    uint32_t missing; // required properties not seen
    uint32_t last;    // ordered: first place that may still come
    size_t seen;      // index of its bits in words
} Frame;

typedef struct {
    size_t begin; // into threads
    uint32_t n;
    bool is_end;
} Config;

struct Machine {
    const Grammar *c;
    Frame *frames;
    uint32_t n_frames, cap_frames, *frame_table, frame_slots;
    uint64_t *words;
    size_t n_words, cap_words;
    Thread *threads;
    size_t n_threads, cap_threads;
    Config *configs;
    uint32_t n_configs, cap_configs, *config_table;
    uint32_t **rows;
    Thread *out; // threads of the step under way
    uint32_t n_out;
    bool overflowed;
};

enum { CONFIG_SLOTS = 1 << 16 };

// --- trees of strings

// Characters of string i from `at`: its code and length, 0 at the end.
static size_t code_at(Str s, size_t at, uint32_t *code) {
    return at < s.len ? (size_t)utf8_decode(s.data + at, s.len - at, code) : 0;
}

static int trie_push(Grammar *c, TrieNode node) {
    if (c->n_tries % 256 == 0)
        c->tries = xrealloc(c->tries, (size_t)c->n_tries + 256, sizeof *c->tries);
    c->tries[c->n_tries] = node;
    return c->n_tries++;
}

int trie_add(Grammar *c, const Str *strings, int n) {
    int root = trie_push(c, (TrieNode){.lo = 0, .hi = n, .label = NONE});
    size_t *at =
        xalloc((size_t)n + 1, sizeof *at); // bytes of each string that stand above its node
    for (int node = root; node < c->n_tries; node++) {
        int lo = c->tries[node].lo, hi = c->tries[node].hi;
        uint32_t code, last = 0;
        if (lo < hi && at[lo] == strings[lo].len) c->tries[node].label = lo++;
        c->tries[node].first = c->n_tries;
        for (int i = lo, begin = lo; i < hi; i++) {
            at[i] += code_at(strings[i], at[i], &code);
            if (i == lo) last = code;
            if (code != last) {
                trie_push(c, (TrieNode){.code = last, .lo = begin, .hi = i, .label = NONE});
                begin = i, last = code;
            }
            if (i + 1 == hi)
                trie_push(c, (TrieNode){.code = last, .lo = begin, .hi = hi, .label = NONE});
        }
        c->tries[node].n = c->n_tries - c->tries[node].first;
    }
    free(at);
    return root;
}

// Index of the first child with this code or a later one.
static int trie_lower(const Grammar *c, int node, uint32_t code) {
    int lo = c->tries[node].first, hi = lo + c->tries[node].n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (c->tries[mid].code < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int trie_child(const Grammar *c, int node, uint32_t code) {
    int i = trie_lower(c, node, code), end = c->tries[node].first + c->tries[node].n;
    return i < end && c->tries[i].code == code ? i : NONE;
}

// --- frames

static size_t hash_bytes(uint64_t h, const void *data, size_t n) {
    const unsigned char *s = data;
    uint64_t word;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

static size_t seen_words(const Machine *m, const Frame *f) {
    return f->kind == F_OBJECT ? (size_t)(m->c->objects[f->def].n_names + 63) / 64 : 0;
}

static bool same_frame(const Machine *m, const Frame *a, const Frame *b, const uint64_t *seen) {
    return a->parent == b->parent && a->kind == b->kind && a->def == b->def &&
           a->state == b->state && a->count == b->count && a->last == b->last &&
           (!seen_words(m, a) ||
            !memcmp(m->words + a->seen, seen, seen_words(m, a) * sizeof *seen));
}

static size_t frame_hash(const Frame *f, const uint64_t *seen, size_t n_words) {
    uint32_t parts[6] = {f->parent,          (uint32_t)f->kind, (uint32_t)f->def,
                         (uint32_t)f->state, f->count,          f->last};
    return hash_bytes(hash_bytes(1, parts, sizeof parts), seen, n_words * sizeof *seen);
}

static void grow_frame_table(Machine *m) {
    m->frame_slots = m->frame_slots ? 2 * m->frame_slots : 256;
    free(m->frame_table);
    m->frame_table = xalloc(m->frame_slots, sizeof(uint32_t));
    for (uint32_t i = 1; i < m->n_frames; i++) {
        const Frame *f = &m->frames[i];
        size_t at = frame_hash(f, m->words + f->seen, seen_words(m, f)) & (m->frame_slots - 1);
        while (m->frame_table[at]) at = (at + 1) & (m->frame_slots - 1);
        m->frame_table[at] = i;
    }
}

// The number of this frame. `seen` are the bits of its properties; it may point into words.
static uint32_t frame_intern(Machine *m, Frame f, const uint64_t *seen) {
    size_t n = seen_words(m, &f);
    if (2 * m->n_frames >= m->frame_slots) grow_frame_table(m);
    size_t at = frame_hash(&f, seen, n) & (m->frame_slots - 1);
    for (; m->frame_table[at]; at = (at + 1) & (m->frame_slots - 1))
        if (same_frame(m, &m->frames[m->frame_table[at]], &f, seen)) return m->frame_table[at];
    if (m->n_words + n > m->cap_words) {
        m->cap_words = 2 * m->cap_words + n;
        size_t inside =
            seen >= m->words && seen < m->words + m->n_words ? (size_t)(seen - m->words) : SIZE_MAX;
        m->words = xrealloc(m->words, m->cap_words, sizeof *m->words);
        if (inside != SIZE_MAX) seen = m->words + inside;
    }
    if (n) memmove(m->words + m->n_words, seen, n * sizeof *seen);
    f.seen = m->n_words;
    m->n_words += n;
    if (m->n_frames == m->cap_frames)
        m->frames = xrealloc(m->frames, m->cap_frames *= 2, sizeof *m->frames);
    m->frames[m->n_frames] = f;
    return m->frame_table[at] = m->n_frames++;
}

static bool is_seen(const Machine *m, const Frame *f, int name) {
    return m->words[f->seen + (size_t)name / 64] >> (name & 63) & 1;
}

static uint32_t frame_container(Machine *m, uint32_t parent, FrameKind kind, int def) {
    Frame f = {.parent = parent, .kind = kind, .def = def, .depth = m->frames[parent].depth + 1};
    if (kind == F_ARRAY) return frame_intern(m, f, NULL);
    f.missing = m->c->objects[def].n_required;
    size_t n = seen_words(m, &f);
    uint64_t zeros[16] = {0}, *seen = n > 16 ? xalloc(n, sizeof *seen) : zeros;
    uint32_t frame = frame_intern(m, f, seen);
    if (seen != zeros) free(seen);
    return frame;
}

// Counts stop where they no longer matter.
static uint32_t count_up(uint32_t count, uint32_t min, uint32_t max) {
    return max == NO_LIMIT && count >= min ? min : count + 1;
}

static uint32_t frame_next_item(Machine *m, uint32_t frame) {
    Frame f = m->frames[frame];
    const ArrayDef *a = &m->c->arrays[f.def];
    uint32_t matters = a->min > (uint32_t)a->n_prefix ? a->min : (uint32_t)a->n_prefix;
    f.count = count_up(f.count, matters, a->max);
    return frame_intern(m, f, NULL);
}

// The object's frame once it has this property; name NONE: one that is not in the list.
static uint32_t frame_next_name(Machine *m, uint32_t frame, int name) {
    Frame f = m->frames[frame];
    const ObjectDef *o = &m->c->objects[f.def];
    size_t n = seen_words(m, &f);
    uint64_t few[16], *seen = n > 16 ? xalloc(n, sizeof *seen) : few;
    if (n) memcpy(seen, m->words + f.seen, n * sizeof *seen);
    f.count = count_up(f.count, o->min, o->max);
    if (name != NONE) {
        seen[name / 64] |= (uint64_t)1 << (name & 63);
        f.missing -= o->slots[name].is_required;
    }
    if (m->c->is_ordered) f.last = name == NONE ? NO_LIMIT : o->slots[name].order + 1;
    uint32_t next = frame_intern(m, f, seen);
    if (seen != few) free(seen);
    return next;
}

// --- which properties may come

// In the schema's order: none of the required ones may be left behind, and enough must remain.
static bool fits_order(const Machine *m, const Frame *f, const ObjectDef *o, const Slot *slot) {
    uint32_t later = 0;
    if (slot->order < f->last) return false;
    for (int i = 0; i < o->n_names; i++) {
        const Slot *s = &o->slots[i];
        if (s->is_required && !is_seen(m, f, i) && s->order < slot->order) return false;
        later += s->is_possible && s->order > slot->order;
    }
    return o->other != NONE || f->count + 1 + later >= o->min;
}

static bool may_name(const Machine *m, const Frame *f, int name) {
    const ObjectDef *o = &m->c->objects[f->def];
    const Slot *slot = &o->slots[name];
    if (!slot->is_possible || is_seen(m, f, name)) return false;
    if (!slot->is_required && o->max != NO_LIMIT && f->count + 1 + f->missing > o->max)
        return false;
    return !m->c->is_ordered || fits_order(m, f, o, slot);
}

static bool may_other(const Machine *m, const Frame *f) {
    const ObjectDef *o = &m->c->objects[f->def];
    if (o->other == NONE || (o->max != NO_LIMIT && f->count + 1 + f->missing > o->max))
        return false;
    return !m->c->is_ordered || f->missing == 0;
}

static bool may_any_of(const Machine *m, const Frame *f, int lo, int hi) {
    for (int i = lo; i < hi; i++)
        if (may_name(m, f, i)) return true;
    return false;
}

// Whether a name goes on from here to one that may come.
static bool name_lives(const Machine *m, const Frame *f, int node, int other) {
    if (node != NONE) {
        const TrieNode *t = &m->c->tries[node];
        return may_any_of(m, f, t->lo, t->hi) || (t->other_leads && may_other(m, f));
    }
    return other > 0 && may_other(m, f);
}

static bool has_more(const Machine *m, const Frame *f) {
    if (f->kind == F_ARRAY) {
        const ArrayDef *a = &m->c->arrays[f->def];
        return a->max == NO_LIMIT || f->count + 1 < a->max;
    }
    const ObjectDef *o = &m->c->objects[f->def]; // there may be none
    if (o->trie != NONE) return name_lives(m, f, o->trie, 0);
    return o->other != NONE && may_other(m, f);
}

static bool may_close(const Machine *m, const Frame *f) {
    if (f->kind == F_ARRAY) return f->count + 1 >= m->c->arrays[f->def].min;
    return f->missing == 0 && f->count >= m->c->objects[f->def].min;
}

static int item_node(const Machine *m, const Frame *f) {
    const ArrayDef *a = &m->c->arrays[f->def];
    return f->count < (uint32_t)a->n_prefix ? a->prefix[f->count] : a->rest;
}

// --- characters out of bytes

// A character under way: how it is written, the bits so far, and (low surrogates) the high half's
// ten bits.
typedef enum {
    P_NONE,
    P_UTF8_1, // so many bytes are missing
    P_UTF8_2,
    P_UTF8_3,
    P_ESCAPE, // after a backslash
    P_HEX_0,  // digits after \u
    P_HEX_1,
    P_HEX_2,
    P_HEX_3,
    P_HIGH,  // after a high surrogate
    P_HIGH_, // and a backslash
    P_LOW_0,
    P_LOW_1,
    P_LOW_2,
    P_LOW_3
} Partial;

static uint32_t partial_make(Partial p, uint32_t bits) { return (uint32_t)p << 24 | bits; }

enum { BAD_BYTE = 0xff };

// One byte of UTF-8. A whole character: P_NONE with *code set; else the new partial, or BAD_BYTE.
static uint32_t utf8_byte(uint32_t partial, int b, uint32_t *code) {
    uint32_t bits = partial & 0xffffff, byte = (uint32_t)b;
    switch ((Partial)(partial >> 24)) {
    case P_NONE:
        if (byte < 0x80) return *code = byte, 0;
        if (byte >= 0xc2 && byte < 0xe0) return partial_make(P_UTF8_1, byte & 31);
        if (byte >= 0xe0 && byte < 0xf0) return partial_make(P_UTF8_2, byte & 15);
        if (byte >= 0xf0 && byte < 0xf5) return partial_make(P_UTF8_3, byte & 7);
        return BAD_BYTE;
    case P_UTF8_1:
        if (byte >> 6 != 2) return BAD_BYTE;
        return *code = bits << 6 | (byte & 63), 0;
    case P_UTF8_2:
        if (byte >> 6 != 2) return BAD_BYTE;
        bits = bits << 6 | (byte & 63);
        return bits < 0x20 || (bits >= 0x360 && bits < 0x380) ? BAD_BYTE
                                                              : partial_make(P_UTF8_1, bits);
    case P_UTF8_3:
        if (byte >> 6 != 2) return BAD_BYTE;
        bits = bits << 6 | (byte & 63);
        return bits < 0x10 || bits >= 0x110 ? BAD_BYTE : partial_make(P_UTF8_2, bits);
    default: return BAD_BYTE;
    }
}

// What may be written as \uXXXX: as json.dumps does, only what has no shorter form, so that texts
// of ASCII are written in one way.
static const CodeRange hex_codes[] = {{0, 7}, {11, 11}, {14, 31}, {127, CODE_MAX}};
static const CodeRange escaped_codes[] = {{0, 31}, {'"', '"'}, {'\\', '\\'}, {127, CODE_MAX}};
enum { N_ESCAPED = 4, MAX_RANGES = 5 };

static bool may_be_hex(uint32_t code) {
    for (int i = 0; i < N_ESCAPED; i++)
        if (code >= hex_codes[i].lo && code <= hex_codes[i].hi) return true;
    return false;
}

// A hexadecimal digit of \uXXXX.
static uint32_t hex_byte(Partial p, uint32_t bits, int digit, uint32_t *code) {
    uint32_t more = bits << 4 | (uint32_t)digit;
    if (p < P_HEX_3) return partial_make(p + 1, more);
    if (p == P_HEX_3) {
        if (more >= 0xdc00 && more < 0xe000) return BAD_BYTE;
        if (more >= 0xd800 && more < 0xdc00) return partial_make(P_HIGH, more & 0x3ff);
        return may_be_hex(more) ? (*code = more, 0u) : BAD_BYTE;
    }
    if (p == P_LOW_0) return digit == 13 ? partial_make(P_LOW_1, bits) : BAD_BYTE;
    if (p == P_LOW_1)
        return digit >= 12 ? partial_make(P_LOW_2, bits << 2 | ((uint32_t)digit & 3)) : BAD_BYTE;
    if (p == P_LOW_2) return partial_make(P_LOW_3, more);
    return *code = 0x10000 + more, 0;
}

// One byte inside a JSON string, by the rules of utf8_byte; the closing quote is the caller's.
static uint32_t json_byte(uint32_t partial, int b, uint32_t *code) {
    static const char names[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    Partial p = (Partial)(partial >> 24);
    uint32_t bits = partial & 0xffffff;
    if (p == P_NONE && b == '\\') return partial_make(P_ESCAPE, 0);
    if (p == P_NONE && b < 0x20) return BAD_BYTE;
    if (p < P_ESCAPE) return utf8_byte(partial, b, code);
    if (p == P_ESCAPE) {
        const char *name = b ? strchr(names, b) : NULL;
        if (b == 'u') return partial_make(P_HEX_0, 0);
        return name ? (*code = (unsigned char)meanings[name - names], 0u) : BAD_BYTE;
    }
    if (p == P_HIGH) return b == '\\' ? partial_make(P_HIGH_, bits) : BAD_BYTE;
    if (p == P_HIGH_) return b == 'u' ? partial_make(P_LOW_0, bits) : BAD_BYTE;
    int digit = hex_digit(b);
    return digit < 0 ? BAD_BYTE : hex_byte(p, bits, digit, code);
}

// The parts of [lo, hi] that are in the table.
static int clip(CodeRange r, const CodeRange *table, CodeRange *out) {
    int n = 0;
    for (int i = 0; i < N_ESCAPED; i++) {
        CodeRange part = {r.lo > table[i].lo ? r.lo : table[i].lo,
                          r.hi < table[i].hi ? r.hi : table[i].hi};
        if (part.lo <= part.hi) out[n++] = part;
    }
    return n;
}

// Code points that a partial character can still become.
static int partial_ranges(uint32_t partial, CodeRange out[MAX_RANGES]) {
    Partial p = (Partial)(partial >> 24);
    uint32_t bits = partial & 0xffffff;
    if (p >= P_UTF8_1 && p <= P_UTF8_3) {
        uint32_t shift = 6 * (uint32_t)p, lo = bits << shift, hi = lo | ((1u << shift) - 1);
        uint32_t least = p == P_UTF8_2 && bits < 16 ? 0x800 : p == P_UTF8_3 ? 0x10000 : 0;
        out[0] = (CodeRange){lo > least ? lo : least, hi < CODE_MAX ? hi : CODE_MAX};
        return 1;
    }
    if (p == P_ESCAPE || p == P_HEX_0)
        return clip((CodeRange){0, CODE_MAX}, p == P_ESCAPE ? escaped_codes : hex_codes, out);
    if (p >= P_HEX_1 && p <= P_HEX_3) {
        uint32_t shift = 4 * (4 - (uint32_t)(p - P_HEX_0)), lo = bits << shift,
                 hi = lo | ((1u << shift) - 1);
        uint32_t high_lo = lo > 0xd800 ? lo : 0xd800, high_hi = hi < 0xdbff ? hi : 0xdbff;
        int n = 0;
        if (lo < 0xd800 || lo > 0xdfff)
            n = clip((CodeRange){lo, lo < 0xd800 && hi > 0xd7ff ? 0xd7ff : hi}, hex_codes, out);
        if (high_lo <= high_hi)
            out[n++] = (CodeRange){0x10000 + ((high_lo & 0x3ff) << 10),
                                   0x10000 + ((high_hi & 0x3ff) << 10 | 0x3ff)};
        return n;
    }
    uint32_t shift = p <= P_LOW_1 ? 10 : p == P_LOW_2 ? 8 : 4, lo = bits << shift;
    return out[0] = (CodeRange){0x10000 + lo, 0x10000 + (lo | ((1u << shift) - 1))}, 1;
}

// --- strings

static bool string_lives(const StringDef *s, int q, uint32_t count) {
    if (q <= 0 || count > s->max) return false;
    if (!s->live) return true;
    uint32_t at = count < s->limit ? count : s->limit;
    size_t bit = (size_t)q * ((size_t)s->limit + 1) + at;
    return s->live[bit / 64] >> (bit & 63) & 1;
}

// Whether the automaton has a step for some code point of the range, one that a string (or NULL)
// lives after.
static bool dfa_has_step(const Dfa *d, int state, CodeRange r, const StringDef *s, uint32_t count) {
    for (int i = dfa_interval(d, r.lo); i < d->n_bounds && d->bounds[i] <= r.hi; i++) {
        int to = d->next[state * d->n_classes + d->class_of[i]];
        if (to && (!s || string_lives(s, to, count))) return true;
    }
    return false;
}

// --- threads

static void put(Machine *m, Thread t) {
    for (uint32_t i = 0; i < m->n_out; i++)
        if (!memcmp(&m->out[i], &t, sizeof t)) return;
    if (m->n_out == MAX_THREADS)
        m->overflowed = true;
    else
        m->out[m->n_out++] = t;
}

static void put_text(Machine *m, Thread t);

// A value or rule ends on top of frame t.frame.
static void finish(Machine *m, Thread t) {
    const Frame *f = &m->frames[t.frame];
    switch (f->kind) {
    case F_ROOT: put(m, (Thread){.kind = T_END}); break;
    case F_RULE:
        put_text(m, (Thread){.frame = f->parent,
                             .kind = T_TEXT,
                             .style = t.style,
                             .def = f->def,
                             .q = f->state});
        break;
    default: put(m, (Thread){.frame = t.frame, .kind = T_AFTER, .style = t.style});
    }
}

static bool only_ends(const Dfa *d, int state) {
    if (!d->accept[state] || d->call_begin[state] < d->call_begin[state + 1]) return false;
    for (int c = 0; c < d->n_classes; c++)
        if (d->next[state * d->n_classes + c]) return false;
    return true;
}

// A thread of an automaton between two characters: with those of the rules it may call and of what
// follows its end. The thread itself serves as the mark that it was here.
static void put_text(Machine *m, Thread t) {
    const Dfa *d = &m->c->dfas[t.def];
    uint32_t n = m->n_out;
    put(m, t);
    if (m->n_out == n) return;
    for (int k = d->calls ? d->call_begin[t.q] : 0; d->calls && k < d->call_begin[t.q + 1]; k++) {
        DfaCall call = d->calls[k];
        if (!call.to) continue;
        Frame ret = {.parent = t.frame, .kind = F_RULE, .def = t.def, .state = call.to};
        Thread inner = t;
        if (!only_ends(d, call.to)) inner.frame = frame_intern(m, ret, NULL);
        inner.q = d->starts[call.rule];
        put_text(m, inner);
    }
    if (d->accept[t.q]) finish(m, t);
}

static void step_text(Machine *m, Thread t, int b) {
    const Dfa *d = &m->c->dfas[t.def];
    uint32_t code = 0;
    CodeRange r[MAX_RANGES];
    t.partial = utf8_byte(t.partial, b, &code);
    if (t.partial == BAD_BYTE) return;
    if (t.partial) {
        if (partial_ranges(t.partial, r) && dfa_has_step(d, t.q, r[0], NULL, 0)) put(m, t);
        return;
    }
    t.q = dfa_next(d, t.q, code);
    if (t.q) put_text(m, t);
}

// State of a string's list or automaton after a character; 0 or less: none.
static int string_next(const Machine *m, const StringDef *s, int q, uint32_t code) {
    return s->trie != NONE ? trie_child(m->c, q, code) : dfa_next(&m->c->dfas[s->dfa], q, code);
}

// Whether some child of a tree's node can be the character under way.
static bool trie_may(const Grammar *c, int node, uint32_t partial) {
    CodeRange r[MAX_RANGES];
    int n = partial_ranges(partial, r), end = c->tries[node].first + c->tries[node].n;
    for (int i = 0; i < n; i++) {
        int k = trie_lower(c, node, r[i].lo);
        if (k < end && c->tries[k].code <= r[i].hi) return true;
    }
    return false;
}

static bool string_may(const Machine *m, const StringDef *s, const Thread *t) {
    CodeRange r[MAX_RANGES];
    if (s->trie != NONE) return trie_may(m->c, t->q, t->partial);
    int n = partial_ranges(t->partial, r);
    for (int i = 0; i < n; i++)
        if (dfa_has_step(&m->c->dfas[s->dfa], t->q, r[i], s, t->count + 1)) return true;
    return false;
}

static bool string_ends(const Machine *m, const StringDef *s, const Thread *t) {
    if (s->trie != NONE) return m->c->tries[t->q].label != NONE;
    return m->c->dfas[s->dfa].accept[t->q] && t->count >= s->min && t->count <= s->max;
}

static void step_string(Machine *m, Thread t, int b) {
    const StringDef *s = &m->c->strings[t.def];
    uint32_t code = 0;
    if (b == '"' && !t.partial) {
        if (string_ends(m, s, &t)) finish(m, t);
        return;
    }
    t.partial = json_byte(t.partial, b, &code);
    if (t.partial == BAD_BYTE) return;
    if (t.partial) {
        if (string_may(m, s, &t)) put(m, t);
        return;
    }
    t.q = string_next(m, s, t.q, code);
    if (s->trie == NONE && !t.is_loose)
        t.count = t.count < s->limit || s->max != NO_LIMIT ? t.count + 1 : s->limit;
    if (s->trie != NONE ? t.q > 0 : string_lives(s, t.q, t.count)) put(m, t);
}

static void step_value(Machine *m, Thread t, int b) {
    const Node *node = &m->c->nodes[t.def];
    for (int i = 0; i < node->n_alts; i++) {
        Alt alt = node->alts[i];
        Thread next = {.frame = t.frame, .style = t.style, .def = alt.def};
        if (alt.kind == ALT_TEXT) {
            next.kind = T_TEXT, next.q = m->c->dfas[alt.def].start;
            if (next.q) step_text(m, next, b);
        } else if (alt.kind == ALT_STRING && b == '"') {
            const StringDef *s = &m->c->strings[alt.def];
            next.kind = T_STRING, next.q = s->trie != NONE ? s->trie : m->c->dfas[s->dfa].start;
            if (s->trie != NONE || string_lives(s, next.q, 0)) put(m, next);
        } else if ((alt.kind == ALT_OBJECT && b == '{') || (alt.kind == ALT_ARRAY && b == '[')) {
            next.kind = T_OPEN, next.def = 0;
            next.frame =
                frame_container(m, t.frame, alt.kind == ALT_OBJECT ? F_OBJECT : F_ARRAY, alt.def);
            put(m, next);
        }
    }
}

// --- objects and arrays

static void start_name(Machine *m, Thread t) {
    const Frame *f = &m->frames[t.frame];
    const ObjectDef *o = &m->c->objects[f->def];
    t.kind = T_NAME;
    t.q = o->trie;
    t.def = 0;
    t.count = o->other != NONE ? (uint32_t)m->c->dfas[o->other].start : 0;
    t.partial = 0;
    if (name_lives(m, f, t.q, (int)t.count)) put(m, t);
}

// Before a name or item: what the byte begins.
static void step_item(Machine *m, Thread t, int b) {
    if (m->frames[t.frame].kind == F_OBJECT) {
        if (b == '"') start_name(m, t);
    } else {
        t.def = item_node(m, &m->frames[t.frame]);
        step_value(m, t, b);
    }
}

// A line break: the text is indented, what follows stands under its container's depth.
static void break_line(Machine *m, Thread t, ThreadKind what) {
    const Frame *f = &m->frames[t.frame];
    t.style = INDENTED;
    t.count = 2 * (f->depth - (what == T_CLOSE));
    t.q = what;
    t.def = what == T_VALUE ? item_node(m, f) : 0;
    t.kind = T_INDENT;
    if (t.count == 0) t.kind = (uint8_t)what, t.q = 0;
    put(m, t);
}

static ThreadKind item_kind(const Machine *m, const Thread *t) {
    return m->frames[t->frame].kind == F_OBJECT ? T_QUOTE : T_VALUE;
}

static char closing(const Machine *m, const Thread *t) {
    return m->frames[t->frame].kind == F_OBJECT ? '}' : ']';
}

static void close_container(Machine *m, Thread t) {
    t.frame = m->frames[t.frame].parent;
    finish(m, t);
}

static void step_open(Machine *m, Thread t, int b) {
    const Frame *f = &m->frames[t.frame];
    bool is_array = f->kind == F_ARRAY;
    uint8_t style = t.style & (COMPACT | SPACED);
    bool may_begin = is_array ? m->c->arrays[f->def].max > 0 : has_more(m, f);
    bool may_end = is_array ? m->c->arrays[f->def].min == 0 : may_close(m, f);
    if (b == closing(m, &t)) {
        if (may_end) close_container(m, t);
    } else if (!may_begin) {
        return;
    } else if (b == '\n') {
        if (t.style & INDENTED) break_line(m, t, item_kind(m, &t));
    } else if (style) {
        t.style = style;
        step_item(m, t, b);
    }
}

static void step_next(Machine *m, Thread t, int b) {
    if (b == '\n') {
        if (t.style & INDENTED) break_line(m, t, item_kind(m, &t));
    } else if (b == ' ') {
        if (!(t.style & SPACED)) return;
        t.style = SPACED;
        t.kind = (uint8_t)item_kind(m, &t);
        t.def = t.kind == T_VALUE ? item_node(m, &m->frames[t.frame]) : 0;
        put(m, t);
    } else if (t.style & COMPACT) {
        t.style = COMPACT;
        step_item(m, t, b);
    }
}

static void step_after(Machine *m, Thread t, int b) {
    const Frame *f = &m->frames[t.frame];
    if (b == ',') {
        if (!has_more(m, f)) return;
        t.kind = T_NEXT;
        if (f->kind == F_ARRAY) t.frame = frame_next_item(m, t.frame);
        put(m, t);
    } else if (b == '\n') {
        if ((t.style & INDENTED) && may_close(m, f)) break_line(m, t, T_CLOSE);
    } else if (b == closing(m, &t) && (t.style & (COMPACT | SPACED)) && may_close(m, f)) {
        t.style &= COMPACT | SPACED;
        close_container(m, t);
    }
}

static void step_space(Machine *m, Thread t, int b) {
    if (b == ' ') {
        t.style &= SPACED | INDENTED;
        t.kind = T_VALUE;
        if (t.style) put(m, t);
    } else if (t.style & COMPACT) {
        t.style = COMPACT;
        step_value(m, t, b);
    }
}

// The closing quote of a name.
static void end_name(Machine *m, Thread t) {
    const Frame *f = &m->frames[t.frame];
    const ObjectDef *o = &m->c->objects[f->def];
    int name = t.q != NONE ? m->c->tries[t.q].label : NONE;
    int label = name == NONE && t.count ? m->c->dfas[o->other].accept[t.count] : 0;
    if (name != NONE ? !may_name(m, f, name) : !label || !may_other(m, f)) return;
    t.def = name != NONE ? o->slots[name].node : o->other_nodes[label - 1];
    t.frame = frame_next_name(m, t.frame, name);
    t.kind = T_COLON;
    t.q = 0, t.count = 0;
    put(m, t);
}

// Whether a name that is not in the list may go on with a code point of [lo, hi].
static bool other_may(const Machine *m, const Frame *f, const Thread *t, uint32_t lo, uint32_t hi) {
    const ObjectDef *o = &m->c->objects[f->def];
    return lo <= hi && t->count && may_other(m, f) &&
           dfa_has_step(&m->c->dfas[o->other], (int)t->count, (CodeRange){lo, hi}, NULL, 0);
}

static bool name_may(const Machine *m, const Thread *t) {
    const Frame *f = &m->frames[t->frame];
    CodeRange r[MAX_RANGES];
    int n = partial_ranges(t->partial, r);
    for (int i = 0; i < n; i++) {
        uint32_t from = r[i].lo; // code points between the children lead to other names
        int k = 0, end = 0;
        if (t->q != NONE) {
            k = trie_lower(m->c, t->q, from);
            end = m->c->tries[t->q].first + m->c->tries[t->q].n;
        }
        for (; k < end && m->c->tries[k].code <= r[i].hi; k++) {
            uint32_t code = m->c->tries[k].code;
            if (name_lives(m, f, k, 0)) return true;
            if (code > from && other_may(m, f, t, from, code - 1)) return true;
            from = code + 1;
        }
        if (other_may(m, f, t, from, r[i].hi)) return true;
    }
    return false;
}

static void step_name(Machine *m, Thread t, int b) {
    const Frame *f = &m->frames[t.frame];
    const ObjectDef *o = &m->c->objects[f->def];
    uint32_t code = 0;
    if (b == '"' && !t.partial) {
        end_name(m, t);
        return;
    }
    t.partial = json_byte(t.partial, b, &code);
    if (t.partial == BAD_BYTE) return;
    if (t.partial) {
        if (t.q != NONE && !trie_may(m->c, t.q, t.partial))
            t.q = NONE; // as any other name: configurations meet early
        if (name_may(m, &t)) put(m, t);
        return;
    }
    if (t.q != NONE) t.q = trie_child(m->c, t.q, code);
    if (t.count) t.count = (uint32_t)dfa_next(&m->c->dfas[o->other], (int)t.count, code);
    if (name_lives(m, f, t.q, (int)t.count)) put(m, t);
}

static void step_thread(Machine *m, Thread t, int b) {
    switch ((ThreadKind)t.kind) {
    case T_END: break;
    case T_VALUE: step_value(m, t, b); break;
    case T_TEXT: step_text(m, t, b); break;
    case T_STRING: step_string(m, t, b); break;
    case T_OPEN: step_open(m, t, b); break;
    case T_QUOTE:
        if (b == '"') start_name(m, t);
        break;
    case T_NAME: step_name(m, t, b); break;
    case T_COLON:
        if (b == ':') t.kind = T_SPACE, put(m, t);
        break;
    case T_SPACE: step_space(m, t, b); break;
    case T_NEXT: step_next(m, t, b); break;
    case T_INDENT:
        if (b != ' ') break;
        if (--t.count == 0) t.kind = (uint8_t)t.q, t.q = 0;
        put(m, t);
        break;
    case T_AFTER: step_after(m, t, b); break;
    case T_CLOSE:
        if (b == closing(m, &t)) close_container(m, t);
        break;
    }
}

// --- configurations

static int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(Thread)); }

static uint32_t *new_row(Machine *m, uint32_t config) {
    if (!m->rows[config / CHUNK])
        m->rows[config / CHUNK] = xrealloc(NULL, (size_t)CHUNK * 256, sizeof(uint32_t));
    uint32_t *row = m->rows[config / CHUNK] + (size_t)(config % CHUNK) * 256;
    memset(row, 0xff, 256 * sizeof *row);
    return row;
}

// The number of the configuration in m->out.
static uint32_t config_intern(Machine *m) {
    uint32_t n = m->n_out;
    if (!n) return DEAD;
    if (n > 1) qsort(m->out, n, sizeof *m->out, by_bytes);
    size_t at = hash_bytes(2, m->out, n * sizeof *m->out) & (CONFIG_SLOTS - 1);
    for (; m->config_table[at]; at = (at + 1) & (CONFIG_SLOTS - 1)) {
        const Config *c = &m->configs[m->config_table[at]];
        if (c->n == n && !memcmp(m->threads + c->begin, m->out, n * sizeof *m->out))
            return m->config_table[at];
    }
    if (m->n_threads + n > m->cap_threads)
        m->threads =
            xrealloc(m->threads, m->cap_threads = 2 * m->cap_threads + n, sizeof *m->threads);
    if (m->n_configs == m->cap_configs) {
        uint32_t old = m->cap_configs;
        m->configs = xrealloc(m->configs, m->cap_configs *= 2, sizeof *m->configs);
        m->rows = xrealloc(m->rows, m->cap_configs / CHUNK, sizeof *m->rows);
        memset(m->rows + old / CHUNK, 0, old / CHUNK * sizeof *m->rows);
    }
    memcpy(m->threads + m->n_threads, m->out, n * sizeof *m->out);
    m->configs[m->n_configs] = (Config){.begin = m->n_threads, .n = n};
    m->n_threads += n;
    for (uint32_t i = 0; i < n; i++) m->configs[m->n_configs].is_end |= m->out[i].kind == T_END;
    new_row(m, m->n_configs);
    return m->config_table[at] = m->n_configs++;
}

uint32_t machine_step_slow(Machine *m, uint32_t config, int byte) {
    Config c = m->configs[config];
    m->n_out = 0;
    for (uint32_t i = 0; i < c.n; i++) step_thread(m, m->threads[c.begin + i], byte);
    uint32_t next = config_intern(m);
    return machine_row(m, config)[byte] = next;
}

bool machine_is_end(const Machine *m, uint32_t config) { return m->configs[config].is_end; }

uint32_t *machine_row(const Machine *m, uint32_t config) {
    return m->rows[config / CHUNK] + (size_t)(config % CHUNK) * 256;
}

// --- loops

uint64_t byte_group(int byte) {
    static const char ends[] = "09afgzAFGZ"; // groups from one to the other
    static const unsigned char leads[] = {0xc2, 0xc4, 0xd0, 0xe0, 0xe2, 0xe3, 0xea, 0xf0};
    if (byte < 0x20 || byte == '"' || byte == '\\' || (byte >= 0x80 && byte < 0xc2)) return 0;
    for (int i = 0; ends[i]; i += 2)
        if (byte >= ends[i] && byte <= ends[i + 1]) return (uint64_t)1 << i / 2;
    for (int i = 8; i-- > 0;)
        if (byte >= leads[i]) return (uint64_t)1 << (5 + i);
    int sign = byte < '0'   ? byte - ' '
               : byte < 'A' ? byte - '9' + 15
               : byte < 'a' ? byte - 'Z' + 22
                            : byte - 'z' + 28;
    return (uint64_t)1 << (13 + sign); // each its own
}

// Groups of the characters that do not lead from a state back to it.
static uint64_t leaving(const Dfa *d, int state) {
    uint64_t groups = 0;
    for (int i = 0; i < d->n_bounds; i++) {
        if (d->next[state * d->n_classes + d->class_of[i]] == state) continue;
        uint32_t lo = d->bounds[i] > 0x20 ? d->bounds[i] : 0x20,
                 hi = i + 1 < d->n_bounds ? d->bounds[i + 1] - 1 : CODE_MAX;
        if (lo >= 0xd800 && hi <= 0xdfff) continue;
        for (uint32_t c = lo; c <= hi && c < 0x80; c++) groups |= byte_group((int)c);
        char first[4], last[4];
        if (hi < 0x80) continue;
        utf8_encode(lo < 0x80 ? 0x80 : lo, first), utf8_encode(hi, last);
        for (int b = (unsigned char)first[0]; b <= (unsigned char)last[0]; b++)
            groups |= byte_group(b);
    }
    return groups;
}

static bool thread_loops(const Machine *m, const Thread *t, uint64_t *others) {
    if (t->partial) return false;
    if (t->kind == T_STRING) {
        const StringDef *s = &m->c->strings[t->def];
        bool counts = s->max != NO_LIMIT || t->count < s->limit;
        if (s->trie != NONE || (counts && !t->is_loose)) return false;
        *others |= leaving(&m->c->dfas[s->dfa], t->q);
        return true;
    }
    if (t->kind != T_NAME || t->q != NONE) return false;
    *others |= leaving(&m->c->dfas[m->c->objects[m->frames[t->frame].def].other], (int)t->count);
    return true;
}

// A loop that letters leave is none: most tokens differ.
static bool letters_stay(uint64_t others) {
    return !(others & (byte_group('a') | byte_group('z')));
}

bool machine_is_loop(const Machine *m, uint32_t config, uint64_t *others) {
    const Config *c = &m->configs[config];
    *others = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (!thread_loops(m, &m->threads[c->begin + i], others)) return false;
    return c->n > 0 && letters_stay(*others);
}

bool machine_is_partial(const Machine *m, uint32_t config) {
    const Config *c = &m->configs[config];
    return c->n > 0 && m->threads[c->begin].partial;
}

bool machine_is_counted(const Machine *m, uint32_t config, uint32_t *least, uint32_t *most,
                        uint64_t *others) {
    const Config *c = &m->configs[config];
    const Thread *t = &m->threads[c->begin];
    if (c->n != 1 || t->kind != T_STRING || t->partial || t->is_loose) return false;
    const StringDef *s = &m->c->strings[t->def];
    if (s->trie != NONE || s->live || (s->max == NO_LIMIT && !s->min)) return false;
    *others = leaving(&m->c->dfas[s->dfa], t->q);
    *least = s->min > t->count ? s->min - t->count : 0;
    *most = s->max == NO_LIMIT ? NO_LIMIT : s->max - t->count;
    return letters_stay(*others);
}

uint32_t machine_uncounted(Machine *m, uint32_t config) {
    Thread t = m->threads[m->configs[config].begin];
    t.is_loose = 1, t.count = 0;
    m->n_out = 0;
    put(m, t);
    return config_intern(m);
}

uint32_t machine_skip(Machine *m, uint32_t config, uint32_t n) {
    Thread t = m->threads[m->configs[config].begin];
    const StringDef *s = &m->c->strings[t.def];
    t.count = s->max == NO_LIMIT && t.count + n > s->limit ? s->limit : t.count + n;
    m->n_out = 0;
    put(m, t);
    return config_intern(m);
}

static void machine_clear(Machine *m) {
    m->n_frames = 1; // the root
    m->frames[0] = (Frame){.kind = F_ROOT};
    m->n_configs = 1; // the dead one
    m->configs[0] = (Config){0};
    m->n_threads = m->n_words = 0;
    memset(m->frame_table, 0, m->frame_slots * sizeof *m->frame_table);
    memset(m->config_table, 0, CONFIG_SLOTS * sizeof *m->config_table);
    memset(new_row(m, DEAD), 0, 256 * sizeof(uint32_t));
}

Machine *machine_new(const Grammar *c) {
    Machine *m = xalloc(1, sizeof *m);
    *m = (Machine){.c = c, .cap_frames = 64, .cap_configs = CHUNK, .cap_threads = 64};
    m->words = xrealloc(NULL, m->cap_words = 64, sizeof *m->words);
    m->frames = xrealloc(NULL, m->cap_frames, sizeof *m->frames);
    m->configs = xrealloc(NULL, m->cap_configs, sizeof *m->configs);
    m->threads = xrealloc(NULL, m->cap_threads, sizeof *m->threads);
    m->config_table = xrealloc(NULL, CONFIG_SLOTS, sizeof *m->config_table);
    m->rows = xalloc(1, sizeof *m->rows);
    m->out = xrealloc(NULL, MAX_THREADS, sizeof *m->out);
    grow_frame_table(m);
    machine_clear(m);
    return m;
}

void machine_free(Machine *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->cap_configs / CHUNK; i++) free(m->rows[i]);
    free(m->rows), free(m->frames), free(m->frame_table), free(m->words), free(m->threads),
        free(m->configs);
    free(m->config_table), free(m->out), free(m);
}

uint32_t machine_start(Machine *m) {
    const Node *root = &m->c->nodes[m->c->root];
    m->n_out = 0;
    for (int i = 0; i < root->n_alts; i++) {
        Thread t = {.kind = T_VALUE, .style = COMPACT | SPACED | INDENTED, .def = m->c->root};
        if (root->alts[i].kind == ALT_TEXT) { // it may be empty, and begin with a call
            t.kind = T_TEXT, t.def = root->alts[i].def, t.q = m->c->dfas[t.def].start;
            put_text(m, t);
        } else {
            put(m, t);
        }
    }
    return config_intern(m);
}

uint32_t machine_size(const Machine *m) { return m->n_configs; }
bool machine_is_full(const Machine *m) {
    return m->n_configs > MAX_CONFIGS || m->n_frames > MAX_FRAMES;
}

// A frame of the old tables in the new ones. Stacks are walked from the bottom up, without
// recursion.
static uint32_t move_frame(Machine *m, const Machine *old, uint32_t frame, uint32_t *moved) {
    uint32_t n = 0, *path = xrealloc(NULL, (size_t)old->n_frames, sizeof *path);
    for (uint32_t f = frame; f && !moved[f]; f = old->frames[f].parent) path[n++] = f;
    while (n--) {
        Frame f = old->frames[path[n]];
        f.parent = f.parent ? moved[f.parent] : 0;
        moved[path[n]] = frame_intern(m, f, old->words + f.seen);
    }
    free(path);
    return frame ? moved[frame] : 0;
}

void machine_flush(Machine *m, uint32_t *const *keep, int n) {
    Machine *fresh = machine_new(m->c);
    uint32_t *moved = xalloc(m->n_frames, sizeof *moved),
             *done = xalloc(m->n_configs, sizeof *done);
    for (int i = 0; i < n; i++) {
        Config c = m->configs[*keep[i]];
        if (*keep[i] && !done[*keep[i]]) {
            fresh->n_out = c.n;
            for (uint32_t k = 0; k < c.n; k++) {
                fresh->out[k] = m->threads[c.begin + k];
                fresh->out[k].frame = move_frame(fresh, m, fresh->out[k].frame, moved);
            }
            done[*keep[i]] = config_intern(fresh);
        }
        *keep[i] = done[*keep[i]];
    }
    free(moved), free(done);
    Machine swap = *m;
    *m = *fresh;
    *fresh = swap;
    m->overflowed = fresh->overflowed;
    machine_free(fresh);
}

bool machine_overflowed(Machine *m) {
    bool was = m->overflowed;
    m->overflowed = false;
    return was;
}
