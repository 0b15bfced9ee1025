// The binary and unary operators of expressions, except comparisons.
#pragma once

#include "chat/jinja/jinja_value.h"

// a op b. op: + - ~ * / % as characters, 'f' for "//", 'p' for "**". Fails if the operator is not
// defined for these types, and where an integer would exceed 64 bits.
Value operator_binary(Heap *h, int op, Value a, Value b);
// -v or +v
Value operator_sign(Heap *h, int op, Value v);
