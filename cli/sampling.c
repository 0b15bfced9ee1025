// See sampling.h.
#include "cli/sampling.h"
#include "cli/output.h"
#include "cli/prompt.h"

#include <math.h>

bool logit_bias_check(const SampleOptions *s, int n_vocab, Error *err) {
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id >= n_vocab)
            return error_set(err, EXIT_USAGE, "logit_bias: expected a token id below %d, found %d",
                             n_vocab, s->bias[i].id);
    return true;
}

// Sets an option to its default in the model file.
static void use_default(Options *o, const Option *option, const Gguf *g) {
    double value;
    Error err;
    if (!gguf_get_f64(g, option->key, &value, &err) ||
        !option_set_number(o, option, option->key, value, &err))
        warn("%s: ignored the default of %s: %s", g->path, option->names[0], err.text);
    else if (o->is_verbose)
        note(o, "%s %g (model file)", option->names[0], value);
}

// Splits "TOKEN+X" or "TOKEN-X" at the first sign that a number follows. X is -inf for a ban.
// Returns the length of TOKEN; 0 if the text has another form.
static size_t split_bias(Str text, double *x) {
    for (size_t at = 1; at < text.len; at++) {
        const char *sign = text.data + at;
        bool has_digit = sign[1] && strchr(".0123456789", sign[1]);
        if ((*sign == '+' && has_digit && parse_f64(sign + 1, x)) ||
            (*sign == '-' && has_digit && parse_f64(sign, x)))
            return at;

        *x = -INFINITY;
        if (!strcmp(sign, "-inf")) return at;
    }
    return 0;
}

// Adds a bias of --logit-bias. Digits are an id. The tokens of any other text, in which names of
// special tokens mean these tokens, all get the bias, as in llama.cpp's server.
static bool add_bias(Options *o, const Tokenizer *t, Str text, Error *err) {
    double x;
    Str token = {text.data, split_bias(text, &x)};
    if (!token.len)
        return error_set(err, EXIT_USAGE,
                         "--logit-bias: expected TOKEN+X or TOKEN-X, found \"%.*s\"", SHOWN(text));

    Ids ids = {0};
    if (strspn(text.data, "0123456789") == token.len)
        ids_push(&ids, (int)fmin(strtod(text.data, NULL), INT_MAX));
    else
        tokenizer_encode(t, token, true, &ids);
    if (ids.len > 1)
        warn("--logit-bias: \"%.*s\" is %d tokens, each of which gets the bias", SHOWN(token),
             ids.len);

    for (int i = 0; i < ids.len; i++) options_add_bias(o, (LogitBias){ids.data[i], (float)x});
    free(ids.data);
    return true;
}

void sampling_complete(Options *o, const Pipeline *p) {
    const Gguf *g = &p->model.file;
    Error err;

    for (const Option *row = option_table; row < option_table + n_option_rows; row++)
        if (row->key && gguf_find_value(g, row->key) && !o->is_given[row - option_table] &&
            !o->no_model_sampling)
            use_default(o, row, g);

    for (int i = 0; i < o->n_biases; i++)
        if (!add_bias(o, p->tokenizer, o->biases[i], &err)) die_error(&err);
    if (!logit_bias_check(&o->sample, p->model.config.vocab_size, &err)) die_error(&err);
    if (o->stop_token_ids) ids_parse(o->stop_token_ids, p->model.config.vocab_size, &o->stop_ids);
}
