#include "constraints.h"
#include "../base/files.h"

#include <stdlib.h>
#include <string.h>

#include "output.h"

// TEXT, or @FILE's contents.
static bool read_text(const char *text, bool is_file, Buffer *out, Error *err) {
    if (is_file) return file_read(text, out, err);
    buffer_puts(out, text);
    return true;
}

Grammar *constraint_list(const char *list, Error *err) {
    int n = 1, k = 0;
    for (const char *s = list; *s; s++) n += *s == ',';
    Str *choices = xalloc((size_t)n, sizeof *choices);
    for (const char *s = list, *end; k < n; s = end + 1) {
        end = strchr(s, ',');
        if (!end) end = s + strlen(s);
        choices[k++] = (Str){(char *)s, (size_t)(end - s)};
    }
    Grammar *c = grammar_choices(choices, n, err);
    free(choices);
    return c;
}

bool constraint_choose(const Options *o, Grammar **out, double *sec, Error *err) {
    Buffer text = {0}, unknown = {0};
    const char *schema = o->json_schema;
    *out = NULL;
    if (!!schema + !!o->grammar + !!o->regex + !!o->only > 1)
        return error_set(err, EXIT_USAGE, "expected one of --json-schema, --grammar, --regex and --choices");
    if (schema && !read_text(schema + (*schema == '@'), *schema == '@', &text, err)) return false;
    if (o->grammar && !read_text(o->grammar, true, &text, err)) return false;
    double start = now_sec();
    if (schema)
        *out = grammar_schema_text(buffer_str(&text), o->is_ordered_json, &unknown, err);
    else if (o->grammar)
        *out = grammar_gbnf(buffer_str(&text), err);
    else if (o->regex)
        *out = grammar_regex(str_of(o->regex), err);
    else if (o->only)
        *out = constraint_list(o->only, err);
    *sec = now_sec() - start;
    if (*out && unknown.len) note(o, "JSON Schema: unknown keywords say nothing: %s", unknown.data);
    buffer_free(&text), buffer_free(&unknown);
    return *out || !(schema || o->grammar || o->regex || o->only);
}

Vocabulary *vocabulary_of(const Tokenizer *t) {
    int n = tokenizer_n_vocab(t);
    Str *pieces = xalloc((size_t)n, sizeof *pieces);
    for (int id = 0; id < n; id++)
        if (!tokenizer_is_control(t, id)) pieces[id] = tokenizer_piece(t, id, false);
    Vocabulary *v = vocabulary_new(pieces, n);
    free(pieces);
    return v;
}
