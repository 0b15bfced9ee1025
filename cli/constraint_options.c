#include "constraint_options.h"
#include "output.h"
#include "../base/files.h"

#include <stdlib.h>
#include <string.h>

// Splits A,B,... in place of its commas.
static Str *split_list(const char *list, int *n) {
    *n = 1;
    for (const char *s = list; *s; s++) *n += *s == ',';
    Str *parts = xalloc((size_t)*n, sizeof *parts);
    for (int i = 0; i < *n; i++) {
        size_t len = strcspn(list, ",");
        parts[i] = (Str){(char *)list, len};
        list += len + 1;
    }
    return parts;
}

bool constraint_from_options(ConstraintCache *cache, const Options *o, ConstraintState **out,
                             Error *err) {
    ConstraintSpec w = {.is_ordered = o->is_ordered_json, .may_think = o->may_think};
    Buffer schema = {0}, grammar = {0}, unknown = {0};
    bool is_file = o->json_schema && *o->json_schema == '@';
    *out = NULL;
    if (is_file && !file_read(o->json_schema + 1, &schema, err)) return false;
    if (o->grammar && !file_read(o->grammar, &grammar, err)) return false;
    buffer_puts(&schema, is_file || !o->json_schema ? "" : o->json_schema);
    buffer_puts(&grammar, "");
    if (o->json_schema) w.schema_text = buffer_str(&schema);
    if (o->grammar) w.grammar = buffer_str(&grammar);
    if (o->regex) w.regex = str_of(o->regex);
    Str *choices = o->constraint_choices ? split_list(o->constraint_choices, &w.n_choices) : NULL;
    w.choices = choices;
    bool ok = constraint_new(cache, &w, out, &unknown, err);
    if (ok && unknown.len) note(o, "JSON Schema: unknown keywords say nothing: %s", unknown.data);
    if (ok && *out && o->ignore_eos)
        ok = error_set(err, EXIT_USAGE,
                       "expected either --ignore-eos or a constraint, which ends its text");
    free(choices), buffer_free(&schema), buffer_free(&grammar), buffer_free(&unknown);
    return ok;
}
