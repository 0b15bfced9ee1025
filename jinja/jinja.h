// Jinja as chat templates use it, with the settings of Hugging Face's transformers: trim_blocks,
// lstrip_blocks, no autoescape, break and continue, tojson without escapes, raise_exception,
// strftime_now, generation blocks; nothing of a template can change what it was given. After the
// documentation of Jinja2 3.1 and the behaviour of its implementation.
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include "../base/json.h"

#include <time.h>

typedef struct Jinja Jinja; // a template

// Reads a template; `name` is for messages and must outlive it. NULL with err (its line, what was
// found) where it is none, or has what we do not know, or is longer than 256 KiB.
Jinja *jinja_open(Str source, const char *name, Error *err);
void jinja_close(Jinja *t);
// The text of the template, which names the control tokens that it uses.
Str jinja_source(const Jinja *t);

typedef struct {
    const Json *const *objects; // (n_objects) their members are the template's variables, the later
                                // before the earlier
    int n_objects;
    const Json *template_vars; // an object of variables (after those) whose strings count as
                               // written by the template; or NULL
    bool (*is_template_text)(const Json *string); // whether another string does; NULL: none
    const struct tm *now;                         // today
} JinjaInput;

// Renders a template. *mask gets a byte for each of *text: 1 where the template wrote it, 0 where
// it came from the variables. A template that goes on and on, or needs more than 60 MB, is an
// error, as is what it raises itself.
bool jinja_render(const Jinja *t, const JinjaInput *in, Buffer *text, Buffer *mask, Error *err);

#endif
