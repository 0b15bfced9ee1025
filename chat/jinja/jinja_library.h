// Calls of what templates know by name: functions, filters, tests, and methods of Python's types.
// All of them are rows of one table, `library_builtins` (jinja_builtins.c). This file finds the row
// of a name, binds the arguments of a call to its parameters, and runs it. The functions at the end
// access attributes, items and slices.
#pragma once

#include "chat/jinja/jinja_value.h"

// The arguments of a call: positional ones, then named ones.
typedef struct {
    Value self;    // the operand of a filter or test, the object of a method
    Value *values; // (n)
    Str *names;    // (n) data NULL for a positional argument
    int n;
    int variant; // of the builtin that runs; set by the library, like its name
    Str name;
} Args;

// Where a name is valid: as a function, a filter or a test, or as a method of a type.
enum {
    BUILTIN_FUNCTION = 1,
    BUILTIN_FILTER = 2,
    BUILTIN_TEST = 4,
    BUILTIN_STR = 8,
    BUILTIN_LIST = 16,
    BUILTIN_TUPLE = 32,
    BUILTIN_DICT = 64,
    BUILTIN_LOOP = 128,  // of the variable "loop"
    BUILTIN_STATE = 256, // of the results of cycler() and joiner()
};

// A function with its variants. It gets its operand as a->self and one value per parameter in
// a->values; omitted arguments are VALUE_ABSENT. `names` lists the variants, separated by '|'; a
// variant can have several names, separated by spaces. In "first|last", "first" runs with
// Args.variant = variant, "last" with variant + 1.
typedef struct Builtin {
    int owners; // set of the above
    const char *names;
    const char *params; // names, separated by spaces; '?' precedes an optional one. NULL: `run`
                        // gets the arguments of the call unchanged
    Value (*run)(Heap *h, const Args *a);
    int variant; // of the first name
} Builtin;
extern const Builtin library_builtins[]; // up to a row without names

// The parameters of a call: their slots are the argument stack from `start` on, with their names
// and VALUE_ABSENT.
typedef struct {
    Str callee; // for messages
    int start;
    int n_positional; // the first parameters; the others take no positional argument
    List *varargs;    // takes the positional arguments without a parameter; NULL: they fail
    Dict *kwargs;     // takes the named arguments without a parameter; NULL: they fail
} Parameters;
// Stores the arguments in the slots of their positions or names.
void library_bind(Heap *h, const Parameters *p, const Args *a);

// A VALUE_FUNCTION; VALUE_UNDEFINED if the owner has no such name. library_method() sets its
// object.
Value library_find(int owner, Str name);
Value library_method(Heap *h, int owner, Str name, Value self);

// These fail if the name is unknown or the arguments do not match the parameters.
Value library_apply(Heap *h, bool is_test, Str name, const Args *a); // a test or a filter
Value library_call(Heap *h, Value function, const Args *a);          // calls a VALUE_FUNCTION

// v.name, v[key] and v[from:to:step], where v is not a loop. VALUE_UNDEFINED if v has no such
// attribute or item. Fails if v has no slices. The bounds of a slice are integers or VALUE_NONE.
Value library_attribute(Heap *h, Value v, Str name);
Value library_item(Heap *h, Value v, Value key);
Value library_slice(Heap *h, Value v, Value from, Value to, Value step);
// A bound of a slice of n items, clamped to [low, high] as in Python; `fallback` if it is absent or
// none.
int64_t library_slice_bound(Heap *h, Value bound, int64_t n, int64_t low, int64_t high,
                            int64_t fallback);
