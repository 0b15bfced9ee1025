#include "constrain.h"
#include "regex.h"

#include <stdlib.h>
#include <string.h>

Grammar *grammar_new(void) { return xalloc(1, sizeof(Grammar)); }

void grammar_free(Grammar *c) {
    if (!c) return;
    for (int i = 0; i < c->n_dfas; i++) dfa_free(&c->dfas[i]);
    for (int i = 0; i < c->n_strings; i++) free(c->strings[i].live);
    for (int i = 0; i < c->n_objects; i++)
        free(c->objects[i].slots), free(c->objects[i].other_nodes);
    for (int i = 0; i < c->n_arrays; i++) free(c->arrays[i].prefix);
    for (int i = 0; i < c->n_nodes; i++) free(c->nodes[i].alts);
    free(c->dfas), free(c->strings), free(c->objects), free(c->arrays), free(c->nodes),
        free(c->tries), free(c);
}

int grammar_add_dfa(Grammar *c, Dfa *d) {
    c->dfas = list_grow(c->dfas, c->n_dfas, sizeof *c->dfas);
    c->dfas[c->n_dfas] = *d;
    *d = (Dfa){0};
    return c->n_dfas++;
}

int grammar_add_string(Grammar *c, StringDef s) {
    c->strings = list_grow(c->strings, c->n_strings, sizeof *c->strings);
    c->strings[c->n_strings] = s;
    return c->n_strings++;
}

int grammar_add_object(Grammar *c, ObjectDef o) {
    c->objects = list_grow(c->objects, c->n_objects, sizeof *c->objects);
    c->objects[c->n_objects] = o;
    return c->n_objects++;
}

int grammar_add_array(Grammar *c, ArrayDef a) {
    c->arrays = list_grow(c->arrays, c->n_arrays, sizeof *c->arrays);
    c->arrays[c->n_arrays] = a;
    return c->n_arrays++;
}

int grammar_add_node(Grammar *c) {
    c->nodes = list_grow(c->nodes, c->n_nodes, sizeof *c->nodes);
    c->nodes[c->n_nodes] = (Node){0};
    return c->n_nodes++;
}

void node_add(Grammar *c, int node, Alt alt) {
    Node *n = &c->nodes[node];
    for (int i = 0; i < n->n_alts; i++)
        if (n->alts[i].kind == alt.kind && n->alts[i].def == alt.def) return;
    n->alts = list_grow(n->alts, n->n_alts, sizeof *n->alts);
    n->alts[n->n_alts++] = alt;
}

Grammar *grammar_of_dfa(Dfa *d) {
    Grammar *c = grammar_new();
    c->root = grammar_add_node(c);
    node_add(c, c->root, (Alt){ALT_TEXT, grammar_add_dfa(c, d)});
    c->nodes[c->root].is_possible = true;
    return c;
}

Grammar *grammar_regex(Str pattern, Error *err) {
    Budget budget = {COMPILE_BUDGET};
    Dfa d;
    if (!regex_compile(pattern, REGEX_WHOLE, &budget, &d, err)) return NULL;
    if (!dfa_is_empty(&d)) return grammar_of_dfa(&d);
    dfa_free(&d);
    return error_set(err, EXIT_USAGE, "regular expression: no text matches"), NULL;
}

Grammar *grammar_choices(const Str *choices, int n, Error *err) {
    Budget budget = {COMPILE_BUDGET};
    Nfa nfa = {.budget = &budget};
    Dfa d;
    NfaFragment all = {nfa_state(&nfa), nfa_state(&nfa)};
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        int state = all.start;
        uint32_t code;
        for (size_t at = 0, len; ok && at < choices[i].len; at += len) {
            len = (size_t)utf8_decode(choices[i].data + at, choices[i].len - at, &code);
            if (!len)
                ok = error_set(err, EXIT_USAGE, "choice %d is not valid UTF-8", i + 1);
            else
                state = nfa_char_step(&nfa, state, code);
        }
        nfa_edge(&nfa, state, all.end, NFA_EMPTY, 0);
    }
    ok = ok && dfa_build(&d, &nfa, all, -1, err);
    nfa_free(&nfa);
    return ok ? grammar_of_dfa(&d) : NULL;
}
