// See resolve.h.
// Order: files, template variables, constraint, defaults of the model, biases, settings_resolve().
#include "cli/resolve.h"
#include "base/files.h"
#include "cli/output.h"
#include "cli/prompt.h"

#include <math.h>

const char *text_resolve(const char *value) {
    Buffer text = {0};
    Error err;
    if (!value || *value != '@') return value;
    if (value[1] == '@') return value + 1;
    if (!file_read_text(value + 1, &text, &err)) die_error(&err);
    file_register_input(value + 1);
    return text.data;
}

// The lines of a file as a JSON array.
static bool put_lines(Buffer *out, Str text, const char *path, Error *err) {
    JsonWriter w = {.out = out};
    while (text.len && strchr("\r\n", text.data[text.len - 1])) text.len--;
    if (!text.len)
        return error_set(err, EXIT_USAGE, "%s: the file is empty; write one per line", path);

    json_begin_array(&w, NULL);
    for (int n = 1; text.len; n++) {
        const char *end = memchr(text.data, '\n', text.len);
        Str line = {text.data, end ? (size_t)(end - text.data) : text.len};
        text = end ? (Str){end + 1, text.len - line.len - 1} : str_of("");
        if (str_ends_with(line, "\r")) line.len--;
        if (!line.len) return error_set(err, EXIT_USAGE, "%s: line %d is empty", path, n);
        json_write_string(&w, NULL, line);
    }
    json_end_array(&w);
    return true;
}

Str *choices_read(JsonDoc *doc, const char *value, int *n, Error *err) {
    Buffer text = {0}, lines = {0};
    if (*value != '@') return json_list(doc, value, n, err);
    if (value[1] == '@') return json_list(doc, value + 1, n, err);

    const char *path = value + 1;
    bool ok = file_read_text(path, &text, err);
    if (ok) file_register_input(path);
    const char *array = ok ? text.data + strspn(text.data, " \t\r\n") : "";
    bool is_array = *array == '[';
    ok = ok && (is_array || put_lines(&lines, buffer_str(&text), path, err));
    // Both are arrays, whose strings are copied to the document.
    Str *list = ok ? json_list(doc, is_array ? array : lines.data, n, err) : NULL;

    buffer_free(&text);
    buffer_free(&lines);
    return list;
}

bool settings_set_variables(Settings *s, const Json *variables, Error *err) {
    static const char reserved[] = "messages tools add_generation_prompt bos_token eos_token";
    static const char budgets[] = "reasoning_budget thinking_budget thinking_budget_tokens";
    const Option *budget = option_find(NULL, CMD_SET, "--reasoning-budget", NULL);

    for (const Json *m = variables->child; m; m = m->next) {
        if (str_is_one_of(m->key, reserved))
            return error_set(err, EXIT_USAGE, "\"%.*s\" cannot be set", SHOWN(m->key));
        if (m->kind == JSON_BOOL && str_is_one_of(m->key, "enable_thinking thinking"))
            settings_think(s, m->boolean);
        if (m->kind == JSON_NUMBER && str_is_one_of(m->key, budgets) &&
            !setting_set_number(s, budget, "thinking_budget", m->number, err))
            return false;
    }
    if (variables->kind != JSON_OBJECT) return error_set(err, EXIT_USAGE, "expected a JSON object");

    Buffer text = {0};
    json_write_value(&(JsonWriter){.out = &text}, NULL, variables, NULL);
    free((char *)s->variables.data);
    s->variables = buffer_str(&text);
    return true;
}

// --chat-template-kwargs
static void use_variables(Settings *s, const char *text) {
    JsonDoc doc = {0};
    Error err;
    if (!text) return;
    if (!json_parse(&doc, text, strlen(text), &err) || !settings_set_variables(s, doc.root, &err))
        die(EXIT_USAGE, "--chat-template-kwargs: %s", err.text);
    json_free(&doc);
}

// --json-schema, --grammar, --regex or --choices.
static void use_constraint(ConstraintSpec *spec, const TextArgs *args) {
    static JsonDoc choices;
    const struct {
        ConstraintKind kind;
        const char *text;
    } sources[] = {{CONSTRAINT_SCHEMA_TEXT, text_resolve(args->json_schema)},
                   {CONSTRAINT_GRAMMAR, text_resolve(args->grammar)},
                   {CONSTRAINT_REGEX, args->regex},
                   {CONSTRAINT_CHOICES, args->choices}};
    Error err;

    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (!sources[i].text) continue;
        if (spec->kind)
            die(EXIT_USAGE, "more than one constraint; use one of a JSON Schema, a grammar, a "
                            "regular expression and choices");
        spec->kind = sources[i].kind;
        spec->text = str_of(sources[i].text);
    }

    if (spec->kind != CONSTRAINT_CHOICES) return;
    spec->choices.at = choices_read(&choices, args->choices, &spec->choices.n, &err);
    if (!spec->choices.at) die(err.code, "--choices: %s", err.text);
}

bool logit_bias_check(const SampleOptions *s, int n_vocab, Error *err) {
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id >= n_vocab)
            return error_set(err, EXIT_USAGE, "logit_bias: expected a token id below %d, found %d",
                             n_vocab, s->bias[i].id);
    return true;
}

// Sets an option to its default in the model file.
static void use_default(Settings *s, const Option *option, const Options *o, const Gguf *g) {
    double number;
    Error err;
    bool is_number = option->kind != OPTION_SAMPLERS;
    Str text = str_copy(gguf_get_text(g, option->key));
    bool ok = is_number ? gguf_get_f64(g, option->key, &number, &err) &&
                              setting_set_number(s, option, option->key, number, &err)
                        : setting_set(s, option, option->key, text.data, &err);

    if (!ok)
        warn("%s: ignored the default of %s: %s", g->path, option->names[0], err.text);
    else if (o->is_verbose && is_number)
        note(o, "%s %g (model file)", option->names[0], number);
    else if (o->is_verbose)
        note(o, "%s %s (model file)", option->names[0], text.data);
    free((char *)text.data);
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
static bool add_bias(SampleOptions *s, const Tokenizer *t, Str text, Error *err) {
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

    for (int i = 0; i < ids.len; i++) settings_add_bias(s, (LogitBias){ids.data[i], (float)x});
    free(ids.data);
    return true;
}

Settings settings_resolve(const Options *o, const Model *m, const Tokenizer *t) {
    Settings s = settings_copy(&o->settings);
    Error err;

    use_variables(&s, o->text.template_kwargs);
    use_constraint(&s.constraint, &o->text);
    if (!m) return s;

    for (const Option *row = option_table; row < option_table + n_option_rows; row++)
        if (row->key && gguf_find_value(&m->file, row->key) && !o->is_given[row - option_table] &&
            !o->model.no_sampling)
            use_default(&s, row, o, &m->file);

    for (int i = 0; i < o->text.n_biases; i++)
        if (!add_bias(&s.sample, t, o->text.biases[i], &err)) die_error(&err);
    if (!logit_bias_check(&s.sample, m->config.vocab_size, &err)) die_error(&err);
    if (o->text.stop_token_ids)
        ids_parse(o->text.stop_token_ids, m->config.vocab_size, &s.stop_ids);
    return s;
}
