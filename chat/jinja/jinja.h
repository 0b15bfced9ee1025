// The template language Jinja, for chat templates. It follows the documentation and behavior of
// Jinja2 3.1, with the settings of Hugging Face's transformers: trim_blocks, lstrip_blocks, no
// autoescape, break and continue, tojson without HTML escapes, raise_exception, strftime_now,
// generation blocks.
//
// jinja_open() parses a template (jinja_parse.c), jinja_render() evaluates it (jinja.c). Templates
// are untrusted: memory, output, steps and recursion are bounded. A template can read only the
// variables that the caller passes, and cannot change them. docs/chat.md lists what is not
// supported.
//
// The result carries a provenance mask with one byte per text byte: 1 if the template wrote the
// byte, 0 if it comes from the variables. Only bytes with mask 1 may become control tokens.
// jinja_value.h describes how operations preserve the mask.
#pragma once

#include "base/json.h"

#include <time.h>

typedef struct Jinja Jinja; // a parsed template

// Parses a template of at most 256 KiB. `name` is used in messages and must outlive the template.
// Returns NULL and sets err to "NAME: line N: ..." if the template is invalid.
Jinja *jinja_open(Str source, const char *name, Error *err);
void jinja_close(Jinja *t);
Str jinja_source(const Jinja *t);

typedef struct {
    // Objects whose members are the variables; NULL entries are skipped. Later objects override
    // earlier ones.
    const Json *const *objects; // (n_objects)
    int n_objects;
    // More variables. They override `objects`, and their strings get mask 1. NULL: none.
    const Json *template_vars;
    // Returns true for the strings of `objects` that get mask 1. NULL: no string gets it.
    bool (*is_template_text)(const Json *string);
    const struct tm *now; // for strftime_now
} JinjaInput;

// Appends the rendered text and its provenance mask. Returns false and sets err if the template
// fails, raises an exception or exceeds a limit.
bool jinja_render(const Jinja *t, const JinjaInput *in, Buffer *text, Buffer *mask, Error *err);
