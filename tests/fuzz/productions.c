#include "tests/fuzz/productions.h"

size_t production_choose(Productions *p, size_t n) { return p->n ? p->n--, *p->data++ % n : 0; }

static void put_symbol(Productions *p, const Symbol *s) {
    bool is_deep = p->depth > p->max_depth;
    size_t n_repeats = 1;
    if (s->max_repeats) n_repeats = is_deep ? 0 : production_choose(p, (size_t)s->max_repeats + 1);
    while (n_repeats--) {
        size_t i = is_deep && !s->is_leaf ? 0 : production_choose(p, s->n);
        if (s->is_leaf)
            buffer_puts(&p->text, s->productions[i]);
        else
            production_put(p, s->productions[i]);
    }
}

void production_put(Productions *p, const char *production) {
    p->depth++;
    for (const char *at = production; *at; at++) {
        const Symbol *s = p->symbols;
        while (s->name && s->name != *at) s++;
        if (s->name)
            put_symbol(p, s);
        else
            buffer_append(&p->text, at, 1);
    }
    p->depth--;
}

void fuzz_show(Str text) {
    if (getenv("FUZZ_SHOW")) printf("%.*s\n", (int)text.len, text.data);
}

uint64_t fuzz_random(uint64_t *state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}
