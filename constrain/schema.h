// Parts of the JSON Schema compiler: what is known about a value at one place is a set of terms; it
// becomes a node of the constraint. See schema.c.
#ifndef CONSTRAIN_SCHEMA_H
#define CONSTRAIN_SCHEMA_H

#include "constrain.h"
#include "formats.h"

typedef enum {
    TERM_IS,   // the schema holds
    TERM_NOT,  // it does not
    TERM_VALUE // equal to this value
} TermKind;
typedef struct {
    TermKind kind;
    const Json *json;
} Term;

// Kinds of values, as bits.
enum {
    IS_NULL = 1,
    IS_TRUE = 2,
    IS_FALSE = 4,
    IS_INTEGER = 8,
    IS_FRACTION = 16, // a number that is no integer
    IS_STRING = 32,
    IS_ARRAY = 64,
    IS_OBJECT = 128,
    IS_ANY = 255
};

// What each keyword does.
typedef enum {
    K_UNKNOWN,
    K_ANNOTATION,
    K_UNSUPPORTED,
    K_REF,
    K_TYPE,
    K_ENUM,
    K_CONST,
    K_ALL_OF,
    K_ANY_OF,
    K_ONE_OF,
    K_NOT,
    K_IF,
    K_OBJECT, // properties and its kin, taken together
    K_REQUIRED,
    K_MIN_PROPERTIES,
    K_MAX_PROPERTIES,
    K_NAMES,
    K_DEPENDENCIES,
    K_ARRAY, // items and its kin
    K_MIN_ITEMS,
    K_MAX_ITEMS,
    K_UNIQUE,
    K_MIN_LENGTH,
    K_MAX_LENGTH,
    K_PATTERN,
    K_FORMAT,
    K_MINIMUM,
    K_MAXIMUM,
    K_OVER,  // exclusiveMinimum
    K_UNDER, // exclusiveMaximum
    K_MULTIPLE,
    K_UNEVALUATED
} Keyword;

// One thing known about a value; a list of them ends with NULL. What it is about is the keyword's:
// A_... are ours.
typedef enum {
    A_SEEN,     // this schema is taken into account
    A_OBJECT,   // its properties, patternProperties, additionalProperties
    A_REQUIRED, // name
    A_PROPERTY, // name's value, if there is one: term
    A_NAMES,    // all names: term
    A_ARRAY,    // its items, prefixItems, additionalItems
    A_ITEM,     // item `number`: term
    A_PATTERN,  // json; negated: does not match
    A_FORMAT,
    A_NO_VALUE, // none of json's items (or json itself, if `number`)
    A_MULTIPLE  // of number
} AtomKind;
typedef struct Atom Atom;
struct Atom {
    AtomKind kind;
    const Json *json, *place; // place: the schema, for messages
    Str name;
    Term term;
    double number;
    bool is_negated;
    const Atom *next;
};

// Work that is left: a term to take into account, or a choice.
typedef struct Task Task;
struct Task {
    Keyword kind; // K_ALL_OF: the term; K_ANY_OF, K_ONE_OF, K_IF, K_DEPENDENCIES, K_NOT: a choice
    Term term;
    const Json *json;
    Str name;
    const Task *next;
};

// All that is known on one branch.
typedef struct {
    unsigned types;
    double lo, hi; // numbers
    bool lo_is_out, hi_is_out;
    uint32_t min_length, max_length, min_items, max_items, min_properties, max_properties;
    const Atom *atoms;
    const Task *todo, *later;
} Facts;

typedef struct Block Block;

typedef struct {
    Str key;
    int value;
} Known;

typedef struct {
    Grammar *c;
    const Json *root;
    Budget budget;
    Error *err;
    bool failed;
    int quiet; // > 0: a failure is not reported, the question is only asked
    Buffer *unknown;
    int draft; // 4, 6, 7, 2019, 2020
    Block *blocks;
    Known *known; // automata, strings and nodes by what they were made of
    int n_known, known_slots;
    Term **terms; // (n_nodes): of each node
    int *n_terms;
    int node; // the one being worked out
    int n_alts, depth;
} Compiler;

// schema.c
void *schema_alloc(Compiler *c, size_t size); // until the end
bool schema_fail(Compiler *c, const Json *place, const char *keyword, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
Keyword schema_keyword(const Compiler *c, const Json *place, Str name);
const Json *schema_target(Compiler *c, const Json *place,
                          const Json *ref);       // of $ref; NULL after a failure
int schema_node(Compiler *c, Term *terms, int n); // n may shrink to the terms that count
int *schema_known(Compiler *c, Str key, bool *is_new);
bool schema_spend(Compiler *c, long work); // false and a failure when too much was spent
unsigned schema_types(Compiler *c, const Json *place, const Json *type);
// Everything the term says, split into branches; each ends in schema_emit.
void schema_expand(Compiler *c, Facts f);
Facts schema_facts(void);
const Task *schema_task(Compiler *c, const Task *next, Term term);
// The greatest number of characters, items or properties, from a keyword.
uint32_t schema_count(Compiler *c, const Json *place, const Json *value);

// schema_defs.c
void schema_emit(Compiler *c, const Facts *f);                          // alternatives of c->node
void schema_emit_values(Compiler *c, const Json *const *values, int n); // one of these
void schema_finish(Compiler *c);                                        // once all nodes are there
int schema_pattern(Compiler *c, const Json *place,
                   Str pattern); // automaton of a pattern; -1 after a failure
int schema_format(Compiler *c, const Json *place, Str name,
                  uint32_t *max); // -1: says nothing, or a failure

// schema_check.c
bool json_equal(const Json *a, const Json *b);
unsigned json_type(const Compiler *c, const Json *value); // the bit of its kind
bool schema_holds(Compiler *c, const Json *schema, const Json *value, int depth);
bool term_holds(Compiler *c, Term t, const Json *value);
bool schema_disjoint(Compiler *c, const Json *a, const Json *b,
                     int depth); // surely no value fits both

#endif
