// The names that templates can call: Jinja's filters and tests, the methods of Python's types, and
// the functions that transformers defines. All of them are rows of one table (`builtins` in
// jinja_library.c). Methods that would change a value fail, as in Jinja's sandbox. The functions at
// the end access attributes, items and slices.
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

// These fail if the name is unknown or the arguments do not match the parameters.
Value library_apply(Heap *h, bool is_test, Str name, const Args *a); // a test or a filter
Value library_function(Str name);                           // VALUE_UNDEFINED if there is none
Value library_call(Heap *h, Value function, const Args *a); // calls a VALUE_FUNCTION
// Stores arguments in the slots of their positions or names. The slots of the parameters are the
// argument stack from `start` on, with the names of the parameters and VALUE_ABSENT.
void library_bind(Heap *h, int start, Str callee, const Args *a);

// v.name, v[key] and v[from:to:step], where v is not a loop. VALUE_UNDEFINED if v has no such
// attribute or item. Fails if v has no slices. The bounds of a slice are integers or VALUE_NONE.
Value library_attribute(Heap *h, Value v, Str name);
Value library_item(Heap *h, Value v, Value key);
Value library_slice(Heap *h, Value v, Value from, Value to, Value step);
// Replaces & < > ' " by entities; markup is returned unchanged.
Value library_escape(Heap *h, Value v);
