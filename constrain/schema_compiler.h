// The JSON Schema compiler: its state, and services for the files that implement keywords: error
// messages with a JSON pointer, memory, $ref, and a table of the values built so far.
//
// schema_open() begins a compilation, schema_close() ends it.
//
// Every keyword of JSON Schema is in a row (SchemaKeyword) of the table of its file:
// schema_logic.c, schema_value.c, schema_number.c, schema_string.c, schema_array.c or
// schema_object.c. The row says what the keyword asserts, how it is negated, and how a known value
// is checked against it. schema_expand.h describes how these functions work together. schema.c
// lists the tables.
#pragma once

#include "constrain/language.h"
#include "base/json.h"

// Types of values, as bits.
enum {
    TYPE_NULL = 1,
    TYPE_TRUE = 2,
    TYPE_FALSE = 4,
    TYPE_INTEGER = 8,
    TYPE_FRACTION = 16, // a number that is not an integer
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_STRING = 32,
    TYPE_ARRAY = 64,
    TYPE_OBJECT = 128,
    TYPE_ANY = 255
};

typedef struct SchemaCompiler SchemaCompiler;
typedef struct SchemaKeyword SchemaKeyword;
typedef struct Conjunction Conjunction;

// What is asserted about a value. The first three are the same unless objects are closed
// (is_closed() in schema_object.c).
typedef enum {
    ASSERT_SCHEMA,    // a schema holds
    ASSERT_CONDITION, // a schema of an "if" holds: it closes no object
    ASSERT_UNDER_NOT, // a schema under a "not" holds: it describes no properties either
    ASSERT_NOT,       // a schema does not hold
    ASSERT_EQUAL,     // the value equals another
    ASSERT_UNEQUAL
} AssertionKind;

typedef struct {
    AssertionKind kind;
    const Json *json; // the schema that holds or does not hold, or the value to compare with
} SchemaAssertion;

// An occurrence of a keyword in a schema.
typedef struct {
    const SchemaKeyword *keyword;
    const Json *schema, *value;
    bool is_negated; // the keyword must not hold
    // A $ref does not hide the other keywords of its schema. Before draft 2019-09 it does, but
    // libraries write keywords there, and many validators read them. A schema that a text must
    // satisfy is therefore asserted with them: the text is valid either way.
    bool has_siblings;
    AssertionKind kind; // of the schema, if it holds
} KeywordUse;

// Expands branches of a conjunction (schema_expand.h) for an occurrence of a keyword.
typedef void SchemaSplit(SchemaCompiler *c, Conjunction f, const KeywordUse *u);

// A file that implements keywords: their table, and the functions for a type of value. schema.c
// lists these parts.
typedef struct {
    const SchemaKeyword *keywords; // ends with a row without a name
    unsigned types;                // of the values that the functions below emit; 0: none
    // Adds the values of these types that a conjunction allows to the alternatives of c->target.
    void (*emit)(SchemaCompiler *c, const Conjunction *f);
    // Arrays and objects only. Adds the texts of one value.
    void (*emit_value)(SchemaCompiler *c, const Json *value);
    // Arrays and objects only. Expands the branches of the values that differ from u->value.
    SchemaSplit *split_unequal;
} SchemaPart;

// The value of the grammar that is being compiled.
typedef struct {
    int value;                         // its number
    const SchemaAssertion *assertions; // (n_assertions) what it must satisfy
    int n_assertions;
    int n_alts;        // conjunctions emitted so far
    const Json *place; // the first of the assertions, or NULL
    Buffer *names;     // Str: receives listed strings, which add no alternative; NULL: they do
} CompileTarget;

// What schema_index() knows about the schemas of a document, and the tables that it uses.
typedef struct {
    InternTable schemas;  // addresses of schemas, each with its SchemaInfo
    InternTable targets;  // addresses of references, each with its target
    InternTable ids;      // texts of "$id", each with its schema; NULL: different ones have it
    InternTable contents; // what a schema says without its annotations, with the first such schema
} SchemaIndex;

// The check of a known value (schema_check.h).
typedef struct {
    int depth;                      // of schema_holds()
    const Json *listed, *candidate; // the list of values being checked, and its current value
    const Json *failed;             // the value for which `use` does not hold; NULL: none
    KeywordUse use;                 // keyword NULL: the schema is false
} SchemaCheck;

struct SchemaCompiler {
    const Json *root;               // the whole schema
    int draft;                      // 4, 6, 7, 2019 or 2020
    bool reads_siblings;            // of a $ref, in checks of values; see KeywordUse
    bool is_ordered, is_closed;     // see SCHEMA_ORDERED and SCHEMA_CLOSED in constrain.h
    const SchemaPart *const *parts; // ends with NULL
    InternTable keywords; // SchemaKeyword of each name, NULL for unknown names found in the schema
    SchemaIndex index;
    Buffer *unknown;    // receives the places of unknown keywords; may be NULL
    Buffer *unenforced; // receives the places of keywords that are not enforced; NULL: they fail
    Arena arena;        // memory that is freed when the compilation ends

    Error *err;
    bool failed; // the first failure is in err
    Error why;   // reason of the last failure to build an automaton, see schema_language()
    int quiet;   // > 0: a failure only sets `failed`

    Grammar *grammar;
    Languages languages;
    int never;          // the value without alternatives; the values of the schema follow it
    InternTable values; // the set of assertions of each value from `never` on, which has none
    CompileTarget target;
    void (*emit)(SchemaCompiler *c, const Conjunction *f); // see schema_expand()
    int expand_depth, type_depth;                          // of schema_expand(), find_types()
    SchemaCheck check;
};

// What is known about a schema.
typedef struct {
    const Json *resource; // to which its references are relative (schema_index.c)
    const Json *same;     // the first schema that says the same
    unsigned types;       // see find_types() in schema_logic.c
    bool has_types;
} SchemaInfo;

// What the value of a keyword must be.
typedef enum {
    VALUE_ANY, // any value, or the keyword's functions check it
    VALUE_STRING,
    VALUE_BOOL,
    VALUE_NUMBER,
    VALUE_COUNT, // a whole number
    VALUE_LIMIT, // a number or, as in draft 4, true or false
    VALUE_LIST,
    VALUE_NAME,          // a string in a list
    VALUE_NAMES,         // a list of strings
    VALUE_NAME_OR_NAMES, // a string or a list of strings
    VALUE_SCHEMA,
    VALUE_SCHEMAS, // a list of at least one schema
    VALUE_ITEMS,   // a schema or a list of schemas
    VALUE_SCHEMA_OR_NAMES,
    VALUE_SCHEMA_MAP,  // an object of schemas
    VALUE_NAMES_MAP,   // an object of lists of strings
    VALUE_DEPENDENCIES // an object of schemas and lists of strings
} KeywordValue;

// A row of a table: keywords that differ in nothing but their names. The first five fields are
// initialized by position.
struct SchemaKeyword {
    const char *names; // separated by spaces; NULL ends a table
    unsigned types;    // the keyword restricts only values of these types
    KeywordValue value;
    // Adds what the keyword asserts to a conjunction. NULL: nothing, or the keyword is read when
    // the conjunction is emitted.
    void (*assert)(SchemaCompiler *c, Conjunction *f, const KeywordUse *u);
    // Expands the branches of a conjunction in which the keyword does not hold. NULL: unsupported.
    // schema_negate: there is one branch, which assert() describes, see KeywordUse.is_negated.
    SchemaSplit *negate;
    // True if a value of one of these types satisfies the keyword. NULL: all values do.
    bool (*check)(SchemaCompiler *c, const KeywordUse *u, const Json *value);
    // Sets a flag for each item or member that the keyword evaluates, if the value satisfies it
    // ("unevaluatedItems", "unevaluatedProperties"). NULL: none.
    void (*mark)(SchemaCompiler *c, const KeywordUse *u, const Json *value, bool *marks);
    // Instead of `assert`, for a keyword that leaves a choice: expands its branches, see
    // conjunction_postpone().
    SchemaSplit *split;
    // The types of the values that can satisfy the keyword. NULL: any.
    unsigned (*find_types)(SchemaCompiler *c, const KeywordUse *u);
    bool is_annotation;        // it has no effect by itself
    bool is_unsupported;       // its presence is an error
    bool is_unenforced;        // it is only checked, see schema_leave()
    bool is_opaque;            // a failure is its own, not that of a schema inside it
    short first, last;         // first and last draft that define it; 0: no limit
    bool is_max, is_exclusive; // the keyword is an upper bound; the bound itself is excluded
};

// Begins a compilation that adds to a grammar, and indexes the schema. c keeps its address. Check
// c->failed.
void schema_open(SchemaCompiler *c, Grammar *g, const Json *schema, Error *err);
void schema_close(SchemaCompiler *c); // frees everything except for the grammar

// The keyword of this name, or NULL if the draft does not define it.
const SchemaKeyword *schema_keyword(SchemaCompiler *c, Str name);
// Checks the values of all keywords of a schema and the schemas inside it, and describes each
// schema by a SchemaInfo. `resource` is the one around the schema.
bool schema_index(SchemaCompiler *c, const Json *schema, const Json *resource);
// The result of schema_index(). NULL for true and false, which have none.
SchemaInfo *schema_info(SchemaCompiler *c, const Json *schema);
// Iterates over the keywords of u->schema: sets u->value and u->keyword (NULL for a keyword that
// the draft does not define, and for a format that is an annotation). u->value is NULL at first.
// Before draft 2019-09, a $ref hides all others, see KeywordUse.has_siblings.
bool schema_next(SchemaCompiler *c, KeywordUse *u);
// The schema that a $ref refers to; NULL after a failure.
const Json *schema_target(SchemaCompiler *c, const Json *schema, const Json *ref);
// The member of this name, or NULL. object may be NULL. Fails if the budget is exceeded.
const Json *schema_member(SchemaCompiler *c, const Json *object, Str name);
// The first item or member of a keyword's value, or NULL.
const Json *schema_items(const Json *schema, const char *keyword);
// The type of a value.
unsigned schema_type_of(const SchemaCompiler *c, const Json *value);
// The part that emits values of a type.
const SchemaPart *schema_part(const SchemaCompiler *c, unsigned type);

// Appends the JSON pointer that leads from a value to `target`. False if `target` is not inside it.
bool schema_put_pointer(Buffer *out, const Json *from, const Json *target);
// Reports a failure (exit 2) at "#/path/of/schema/keyword". Only the first failure is kept. schema
// may be NULL for the place that is being compiled; keyword may be NULL. Returns false.
bool schema_fail(SchemaCompiler *c, const Json *schema, const char *keyword, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
// Fails, because a keyword is not supported. The message is "KEYWORD is not supported", with
// `where` (such as " under \"not\"", or "") after the keyword.
bool schema_refuse(SchemaCompiler *c, const KeywordUse *u, const char *where);
// Leaves a keyword, given by its value, to a check of the finished text: the grammar has texts that
// violate it. False if this is not allowed; the caller fails.
bool schema_leave(SchemaCompiler *c, const Json *schema, const Json *value);
// Spends a part of the budget. False if the budget is exceeded or something has failed before.
bool schema_spend(SchemaCompiler *c, long steps);
bool schema_too_complex(SchemaCompiler *c, int limit, const char *unit); // fails
void schema_note_unknown(SchemaCompiler *c, const Json *schema, Str keyword);
// Returns the index of a DFA. Fails if it is -1; the error names the keyword.
int schema_language(SchemaCompiler *c, const Json *schema, const char *keyword, int dfa);
// Adds an alternative to the value that is being compiled, unless the value already has it.
void schema_add_alt(SchemaCompiler *c, int def);
