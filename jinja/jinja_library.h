// What templates can call by name: Jinja's filters and tests, the methods of Python's types, and
// the functions that transformers defines; and access to attributes, items and slices. All of them
// are rows of one table (builtins, in jinja_library.c). Methods that would change a value fail, as
// in Jinja's sandbox.
#pragma once

#include "jinja_value.h"

// Arguments of a call: in order, then those with names.
typedef struct {
    Value self;    // the operand of a filter or test, the object of a method
    Value *values; // (n)
    Str *names;    // (n) data NULL: no name
    int n;
    int variant; // set by the library: the variant of the builtin that runs
} Args;

// Each fails if the name is unknown or the arguments do not fit.
Value library_apply(Heap *h, bool is_test, Str name, const Args *a); // a test or a filter
Value library_function(Str name);                           // VALUE_UNDEFINED if there is none
Value library_call(Heap *h, Value function, const Args *a); // of a VALUE_FUNCTION

// v.name, v[key] and v[from:to:step], except of loops: VALUE_UNDEFINED if there is nothing. The
// bounds of a slice are integers or VALUE_NONE.
Value library_attribute(Heap *h, Value v, Str name);
Value library_item(Heap *h, Value v, Value key);
Value library_slice(Heap *h, Value v, Value from, Value to, Value step);
// The text with & < > ' " as entities; unchanged if it is markup already.
Value library_escape(Heap *h, Value v);
