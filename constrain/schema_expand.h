// How a schema becomes the alternatives of a value: assertions, conjunctions and negation.
//
// What a place of the text must satisfy is a set of assertions: schemas that hold, schemas that do
// not, a value it is equal to. Each set is compiled once and is one value of the grammar, so that
// recursion through $ref ends where a set comes again.
//
// To compile a set, its assertions are taken apart into a conjunction: everything that is known on
// one branch, such as the allowed types, a range of numbers, a list of patterns. A keyword that
// leaves a choice (anyOf, oneOf, if, not ...) is put off as a pending branch. When only choices are
// left, one of them splits the conjunction, and each branch continues with a copy. A conjunction
// without pending branches is emitted: for each type it allows, it becomes an alternative.
//
// Negation follows De Morgan: a schema does not hold if one of its keywords does not, so NOT S
// splits into a branch per keyword, in which that keyword is negated. A negated keyword is again an
// assertion of the same kind (not "maxLength": 2 is a length of at least 3), a choice, or NOT of a
// part of it, until something is reached whose negation can be stated. What cannot is an error. For
// example,
//
//     {"type": ["integer", "string"], "minimum": 3, "not": {"maxLength": 2}}
//
//     conjunction   types integer|string, number >= 3; pending NOT {"maxLength": 2}
//     one branch    "maxLength" fails: only strings can, so types string, length >= 3
//     emitted       a string of at least 3 characters
//
// oneOf [A, B] is the branches "A and NOT B" and "B and NOT A"; NOT B is left out where A and B
// share no value (schema_logic.c), which saves many schemas from a negation that is unsupported.
#pragma once

#include "number.h"
#include "schema_compiler.h"

typedef enum { ASSERT_SCHEMA, ASSERT_NOT, ASSERT_EQUAL } AssertionKind;
struct SchemaAssertion {
    AssertionKind kind;
    const Json *json; // the schema that holds or does not, or the value
};

typedef enum {
    CONJUNCT_SCHEMA,   // this schema has been taken apart
    CONJUNCT_OBJECT,   // its properties, patternProperties, additionalProperties hold
    CONJUNCT_REQUIRED, // property `name` is present
    CONJUNCT_PROPERTY, // property `name`, if present, satisfies the assertion
    CONJUNCT_NAMES,    // all names of properties satisfy the assertion
    CONJUNCT_ARRAY,    // its items, prefixItems, additionalItems hold
    CONJUNCT_ITEM,     // item `index`, if present, satisfies the assertion
    CONJUNCT_PATTERN,  // the string matches the pattern (negated: does not)
    CONJUNCT_FORMAT,   // the string has the format (negated: does not)
    CONJUNCT_NOT_EQUAL // the value is none of the n_values values from json on
} ConjunctKind;

typedef struct Conjunct Conjunct;
struct Conjunct {
    ConjunctKind kind;
    const Json *schema; // in which it is stated
    const Json *json;   // OBJECT and ARRAY: the unevaluated... keyword, or NULL
    Str name;
    int index, n_values;
    bool is_negated;
    SchemaAssertion assertion;
    const Conjunct *next; // stated before
};

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
    const PendingAssertion *assertions; // still to be taken apart
    const PendingBranch *branches;      // still to be split by
    const Json *values;                 // the value is one of the n_values values from here on
    int n_values;                       // or ANY_VALUE
};

enum { ANY_VALUE = -1 };

// The value of the grammar that satisfies n assertions, which may be reordered. 0: none does.
int schema_value(SchemaCompiler *c, SchemaAssertion *assertions, int n);
// Compiles its alternatives.
void schema_compile_value(SchemaCompiler *c, int value);

Conjunction conjunction_new(void);
// A new conjunct, for the caller to complete.
Conjunct *conjunction_add(SchemaCompiler *c, Conjunction *f, ConjunctKind kind,
                          const KeywordUse *u);
// Adds it unless the schema has one of this kind.
void conjunction_add_once(SchemaCompiler *c, Conjunction *f, ConjunctKind kind,
                          const KeywordUse *u);
void conjunction_assert(SchemaCompiler *c, Conjunction *f, AssertionKind kind, const Json *json);
// Postpones a choice: split() is called with the conjunction when nothing else is left.
void conjunction_postpone(SchemaCompiler *c, Conjunction *f, const KeywordUse *u,
                          void (*split)(SchemaCompiler *c, Conjunction f, const KeywordUse *u));
// Takes everything in a conjunction apart and passes each branch to c->emit, which adds
// alternatives to c->value.
void schema_expand(SchemaCompiler *c, Conjunction f);
// The same with one more assertion.
void schema_expand_with(SchemaCompiler *c, Conjunction f, AssertionKind kind, const Json *json);
// The negation of a keyword that has none.
bool schema_refuse_negation(SchemaCompiler *c, const KeywordUse *u);

// Bounds on numbers of characters, items and properties: functions for the rows of keywords.
void count_assert(SchemaCompiler *c, Conjunction *f, const KeywordUse *u);
void count_negate(SchemaCompiler *c, Conjunction f, const KeywordUse *u);
bool count_check(SchemaCompiler *c, const KeywordUse *u, const Json *value);
uint32_t count_chars(Str s);
// Whether an unevaluated... keyword restricts anything. Fails if an applicator is beside it, which
// may evaluate properties or items.
bool unevaluated_is_needed(SchemaCompiler *c, const KeywordUse *u);
bool unevaluated_check(SchemaCompiler *c, const KeywordUse *u, const Json *value);

// Whether a known value satisfies a schema or an assertion.
bool schema_holds(SchemaCompiler *c, const Json *schema, const Json *value);
bool assertion_holds(SchemaCompiler *c, SchemaAssertion a, const Json *value);
// Whether a schema has only annotations, so that every value satisfies it.
bool schema_is_trivial(SchemaCompiler *c, const Json *schema);
bool json_is_equal(const Json *a, const Json *b);
