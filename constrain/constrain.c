#include "constrain.h"
#include "regex.h"

Grammar *grammar_regex(Str pattern, Error *err) {
    Budget budget = {COMPILE_BUDGET};
    Dfa d;
    if (!regex_compile(pattern, REGEX_WHOLE, &budget, &d, err)) return NULL;
    if (!dfa_is_empty(&d)) return grammar_of_dfa(&d);
    dfa_free(&d);
    return error_set(err, EXIT_USAGE, "regular expression: no text matches it"), NULL;
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
