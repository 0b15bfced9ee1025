// Expands a schema into the alternatives of a value: assertions, conjunctions and negation.
//
// Each place of a JSON text must satisfy a set of assertions: schemas that hold, schemas that do
// not hold, or a value that it equals. Each distinct set is compiled once and becomes one value of
// the grammar. Recursion through $ref therefore ends when a set occurs again.
//
// To compile a set, its assertions are expanded into a conjunction: everything known about the
// value on one branch, such as the allowed types, a range of numbers, and a list of patterns. A
// keyword that leaves a choice (anyOf, oneOf, if, not ...) is postponed as a pending branch. When
// nothing but choices is left, one of them splits the conjunction, and each branch continues with a
// copy. A conjunction without pending branches is emitted: it becomes one alternative per allowed
// type.
//
// Negation follows De Morgan's laws. A schema does not hold if one of its keywords does not, so NOT
// S splits into one branch per keyword, in which that keyword is negated. The negation of a keyword
// is an assertion of the same kind (NOT "maxLength": 2 is a length of at least 3), a choice, or NOT
// of a subschema. A keyword whose negation cannot be expressed is an error. For example,
//
//     {"type": ["integer", "string"], "minimum": 3, "not": {"maxLength": 2}}
//
//     conjunction   types integer|string, number >= 3; pending: NOT {"maxLength": 2}
//     only branch   NOT "maxLength": 2, which only strings can satisfy: type string, length >= 3
//     emitted       a string of at least 3 characters
//
// oneOf [A, B] has the branches "A and NOT B" and "B and NOT A". NOT B is omitted if A and B have
// no value in common (schema_logic.c). This avoids many negations that are not supported.
#pragma once

#include "constrain/number.h"
#include "constrain/schema_compiler.h"

typedef enum {
    CONJUNCT_SCHEMA,   // `schema` holds; object_emit() and array_emit() apply it to their parts
    CONJUNCT_PROPERTY, // property `name` satisfies the assertion, and is present if is_required
    CONJUNCT_NAMES,    // all names of properties satisfy the assertion
    CONJUNCT_ITEM,     // item `index`, if present, satisfies the assertion
    CONJUNCT_MULTIPLE, // the number is a multiple of `json` (negated: is not)
    CONJUNCT_LANGUAGE, // the string matches a pattern or format (negated: does not)
    CONJUNCT_NOT_EQUAL // the value differs from all n_values values from `json` on
} ConjunctKind;

typedef struct Conjunct {
    ConjunctKind kind;
    const Json *schema; // the schema with the keyword
    const Json *json;   // value of the keyword; SCHEMA: NULL
    Str name;
    int index, n_values;
    bool is_negated, is_required;
    bool is_described;           // PROPERTY: closed objects may have it, though no schema lists it
    SchemaAssertion assertion;   // SCHEMA: only its kind
    const struct Conjunct *next; // the conjunct added before this one
} Conjunct;

typedef struct PendingAssertion PendingAssertion;
typedef struct PendingBranch PendingBranch;

typedef struct {
    uint32_t min, max;
} CountRange;

struct Conjunction {
    unsigned types;
    NumberRange number;
    CountRange length, items, properties;
    const Conjunct *conjuncts;          // the latest first
    const PendingAssertion *assertions; // not yet expanded
    const PendingBranch *branches;      // choices that have not yet split the conjunction
    const Json *values;                 // first of the n_values allowed values ("enum", "const")
    int n_values;                       // ANY_VALUE: values are not listed
};

enum { ANY_VALUE = -1 };

// The number of the grammar's value for n assertions, which are reordered; c->never if no value
// satisfies them.
int schema_value(SchemaCompiler *c, SchemaAssertion *assertions, int n);
// Adds the alternatives of a value.
void schema_compile_value(SchemaCompiler *c, int value);

Conjunction conjunction_new(void);
// Adds a conjunct of a keyword, which the caller completes.
Conjunct *conjunction_add(SchemaCompiler *c, Conjunction *f, ConjunctKind kind,
                          const KeywordUse *u);
void conjunction_assert(SchemaCompiler *c, Conjunction *f, AssertionKind kind, const Json *json);
// Postpones a choice: split() is called with the conjunction when only choices are left.
void conjunction_postpone(SchemaCompiler *c, Conjunction *f, const KeywordUse *u,
                          SchemaSplit *split);
// Excludes the n values from v on. Values that are arrays or objects become pending branches.
void conjunction_exclude(SchemaCompiler *c, Conjunction *f, const KeywordUse *u, const Json *v,
                         int n);
// Expands all assertions and choices of a conjunction and passes each branch to c->emit, which adds
// alternatives to the value c->target.
void schema_expand(SchemaCompiler *c, Conjunction f);
// schema_expand() with one more assertion.
void schema_expand_with(SchemaCompiler *c, Conjunction f, AssertionKind kind, const Json *json);
// See SchemaKeyword.negate.
void schema_negate(SchemaCompiler *c, Conjunction f, const KeywordUse *u);
// For a keyword that cannot be negated: expands the conjunction without it if it can be left to a
// check, or else fails.
void schema_leave_negation(SchemaCompiler *c, Conjunction f, const KeywordUse *u);

// Bounds on the number of characters, items or properties: functions for the rows of keywords.
void count_assert(SchemaCompiler *c, Conjunction *f, const KeywordUse *u);
bool count_check(SchemaCompiler *c, const KeywordUse *u, const Json *value);
// True if a schema has only annotations, so that every value satisfies it.
bool schema_is_trivial(SchemaCompiler *c, const Json *schema);
