// See constrain.h.
#include "constrain.h"
#include "regex.h"

Grammar *grammar_regex(Str pattern, Error *err) {
    Budget budget = {COMPILE_BUDGET, err};
    Dfa d;
    if (!regex_compile(pattern, REGEX_WHOLE, &budget, &d)) return NULL;
    if (!dfa_is_empty(&d)) return grammar_of_dfa(d);
    dfa_free(&d);
    error_set(err, EXIT_USAGE, "regular expression: no text matches it");
    return NULL;
}

Grammar *grammar_choices(const Str *choices, int n, Error *err) {
    Buffer pattern = {0};
    uint32_t code;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        for (size_t at = 0, len; at < choices[i].len && ok; at += len) {
            len = (size_t)utf8_decode(choices[i].data + at, choices[i].len - at, &code);
            ok = len || error_set(err, EXIT_USAGE, "choice %d is not valid UTF-8", i + 1);
        }
        regex_put_literal(&pattern, choices[i]);
    }
    Grammar *g = ok ? grammar_regex(buffer_str(&pattern), err) : NULL;
    buffer_free(&pattern);
    return g;
}
