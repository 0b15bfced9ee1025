// Jinja, as chat templates use it: after the documentation of Jinja2 3.1 and the behaviour of its
// implementation, with the settings of Hugging Face's transformers (trim_blocks, lstrip_blocks, no
// autoescape; break and continue, tojson without HTML escapes, raise_exception, strftime_now,
// generation blocks).
//
// jinja_open() parses a template (jinja_parse.c), jinja_render() evaluates it (jinja.c). Templates
// are untrusted: memory, output, steps and recursion are bounded, and a template can read only the
// variables that it is given, and change none of them. Not supported: include, import, inheritance.
//
// The result carries a provenance mask, one byte per text byte: 1 if the template wrote it, 0 if it
// comes from the variables. Only bytes with mask 1 may become control tokens (jinja_value.h says
// how the mask is kept).
#pragma once

#include "../base/json.h"

#include <time.h>

typedef struct Jinja Jinja; // a parsed template

// Parses a template of at most 256 KiB. `name` is used in messages and must outlive it. NULL with
// err: "NAME: line N: ...".
Jinja *jinja_open(Str source, const char *name, Error *err);
void jinja_close(Jinja *t);
Str jinja_source(const Jinja *t);

typedef struct {
    const Json *const *objects; // (n_objects) their members are the variables; a later object wins
    int n_objects;
    const Json
        *template_vars; // an object of variables whose strings get mask 1, or NULL; these win
    bool (*is_template_text)(const Json *string); // other strings that get mask 1, or NULL
    const struct tm *now;                         // for strftime_now
} JinjaInput;

// Appends the rendered text and its provenance mask. False with err if the template fails, raises
// an exception or exceeds a limit.
bool jinja_render(const Jinja *t, const JinjaInput *in, Buffer *text, Buffer *mask, Error *err);
