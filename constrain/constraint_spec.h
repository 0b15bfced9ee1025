// What a constraint is made from, and what its compilation reports.
#pragma once

#include "base/json.h"

typedef enum {
    CONSTRAINT_NONE, // any text is allowed
    CONSTRAINT_SCHEMA,
    CONSTRAINT_SCHEMA_TEXT,
    CONSTRAINT_GRAMMAR,
    CONSTRAINT_REGEX,
    CONSTRAINT_CHOICES,
    CONSTRAINT_CALLS
} ConstraintKind;

// Calls of tools: a text is {"name": NAME, KEY: ARGUMENTS} or, with is_list, an array of such
// objects.
typedef struct {
    Str tools;       // a JSON array of {"function": {"name": NAME, "parameters": SCHEMA}}, or empty
    Str only;        // the only tool that can be called; data NULL: any
    const char *key; // name of the arguments
    bool is_list;
} CallSpec;

// The requested constraint.
typedef struct {
    ConstraintKind kind;
    union {
        const Json *schema; // SCHEMA
        Str text;           // of a SCHEMA_TEXT, a GRAMMAR (GBNF) or a REGEX
        struct {
            const Str *at; // (n)
            int n;
        } choices;      // CHOICES
        CallSpec calls; // CALLS
    };
    bool any_order;        // properties come in any order; otherwise in the schema's
    bool extra_properties; // objects may have properties that the schema does not describe
} ConstraintSpec;

// What a user should know about a compiled constraint; empty in most cases.
typedef struct {
    Buffer ignored;  // unknown keywords and formats of JSON Schemas, which have no effect
    Buffer problems; // tools whose arguments are only a JSON object, and why
} ConstraintNotes;
