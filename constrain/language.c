// See language.h.
#include "constrain/language.h"

int *language_find(Languages *l, const void *key, size_t len) {
    bool is_new;
    int i = intern_add(&l->keys, key, len, &is_new);
    if (is_new) {
        l->defs = list_grow(l->defs, i, sizeof *l->defs);
        l->defs[i] = -1;
    }
    return &l->defs[i];
}

int language_regex(Languages *l, Str pattern, RegexMode mode) {
    Dfa d;
    Buffer key = {0};
    buffer_printf(&key, "regex %d ", (int)mode);
    buffer_put(&key, pattern);
    int *def = language_find(l, key.data, key.len);
    buffer_free(&key);
    if (*def < 0 && regex_compile(pattern, mode, &l->budget, &d))
        *def = grammar_add_dfa(l->grammar, d);
    return *def;
}

int language_combine(Languages *l, int a, DfaOp op, int b) {
    Dfa d;
    int key[] = {'&', a, b, (int)op}, *def = language_find(l, key, sizeof key);
    const Def *defs = l->grammar->defs;
    if (*def < 0 && a >= 0 && b >= 0 && dfa_product(&d, &defs[a].dfa, &defs[b].dfa, op, &l->budget))
        *def = grammar_add_dfa(l->grammar, d);
    return *def;
}

int language_narrow(Languages *l, int a, DfaOp op, Str pattern) {
    return language_combine(l, a, op, language_regex(l, pattern, REGEX_WHOLE));
}
