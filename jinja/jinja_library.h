// What templates may call: Jinja's filters and tests, Python's methods, and the functions that
// transformers gives them.
#ifndef JINJA_JINJA_LIBRARY_H
#define JINJA_JINJA_LIBRARY_H

#include "jinja_value.h"

// Each fails where it knows no such name, or the arguments do not fit.
Value library_filter(Heap *h, Str name, Value v, const Args *a);
bool library_test(Heap *h, Str name, Value v, const Args *a);
Value library_function(Str name); // VALUE_UNDEFINED if there is none
// Runs a VALUE_FUNCTION.
Value library_call(Heap *h, Value function, const Args *a);

// v.name and v[key] of all but loops: VALUE_UNDEFINED where there is nothing.
Value library_attribute(Heap *h, Value v, Str name);
Value library_item(Heap *h, Value v, Value key);
// v[from:to:step], each of them an VALUE_INT or VALUE_NONE.
Value library_slice(Heap *h, Value v, Value from, Value to, Value step);
// What "safe" strings do with others: & < > ' " as entities.
Value library_escape(Heap *h, Value v);

#endif
