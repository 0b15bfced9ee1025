// What a constraint is made from, and what its compilation reports.
#pragma once

#include "base/json.h"

typedef enum {
    CONSTRAINT_NONE, // any text is allowed
    CONSTRAINT_SCHEMA,
    CONSTRAINT_SCHEMA_TEXT,
    CONSTRAINT_GRAMMAR,
    CONSTRAINT_REGEX,
    CONSTRAINT_CHOICES
} ConstraintKind;

enum { MAX_OPENERS = 2 }; // of calls

// Calls of tools: a text is OPENER CALL CLOSER, where CALL is {"name": NAME, KEY: ARGUMENTS} or,
// with is_list, an array of such objects. Several may follow each other; without a closer, only the
// first has an opener. An opener that begins with a brace is the beginning of CALL.
typedef struct {
    Str tools; // a JSON array of {"function": {"name": NAME, "parameters": SCHEMA}}; empty: no
               // calls
    Str only;  // the only tool that can be called; data NULL: any
    const char *openers[MAX_OPENERS]; // (n_openers)
    int n_openers;
    const char *closer, *key; // key: name of the arguments
    bool is_list;
    bool is_single; // at most one call
    bool is_opened; // the text begins after an opener; with a closer, it has one call
} CallSpec;

// The requested constraint. With tools in `calls`, a text may also be calls; with kind NONE it
// must.
typedef struct {
    ConstraintKind kind;
    union {
        const Json *schema; // SCHEMA
        Str text;           // of a SCHEMA_TEXT, a GRAMMAR (GBNF) or a REGEX
        struct {
            const Str *at; // (n)
            int n;
        } choices; // CHOICES
    };
    CallSpec calls;
    bool any_order;        // properties come in any order; otherwise in the schema's
    bool extra_properties; // objects may have properties that the schema does not describe
    bool is_strict;        // a keyword of a schema that cannot be enforced is an error
} ConstraintSpec;

// What a user should know about a compiled constraint; empty in most cases.
typedef struct {
    Buffer ignored;  // unknown keywords and formats of JSON Schemas, which have no effect
    Buffer problems; // tools whose arguments are only a JSON object, and why
    Buffer checked;  // keywords that are not enforced, but checked: constraint_check()
} ConstraintNotes;
