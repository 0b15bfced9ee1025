// Operators follow Python: two integers give an integer, except for "/"; integer division rounds
// toward minus infinity. operator_binary() selects the operation by the types of the operands.
#include "chat/jinja/jinja_operators.h"
#include "chat/jinja/jinja_format.h"
#include "chat/jinja/jinja_strings.h"

#include <math.h>

static Value concat(Heap *h, Value a, Value b) {
    size_t start = h->out.len;
    value_put(h, a, NULL, 0);
    value_put(h, b, NULL, 0);
    return heap_pop_string(h, start);
}

// a + b. If one of them is markup, the other one is escaped.
static Value add_strings(Heap *h, Value a, Value b) {
    bool is_markup = a.is_markup || b.is_markup;
    Value v = is_markup ? concat(h, string_escape(h, a), string_escape(h, b)) : concat(h, a, b);
    v.is_markup = is_markup;
    return v;
}

// a + b, for two lists or two tuples.
static Value add_lists(Heap *h, Value a, Value b) {
    Value v = value_list(h, a.kind, a.list->n + b.list->n);
    if (a.list->n) memcpy(v.list->items, a.list->items, (size_t)a.list->n * sizeof v);
    if (b.list->n) memcpy(v.list->items + a.list->n, b.list->items, (size_t)b.list->n * sizeof v);
    return v;
}

// a + b, for two strings, two lists or two tuples.
static Value add(Heap *h, Value a, Value b) {
    return a.kind == VALUE_STRING ? add_strings(h, a, b) : add_lists(h, a, b);
}

// v * n, for a string, a list or a tuple.
static Value repeat(Heap *h, Value v, int64_t n) {
    size_t start = h->out.len;
    if (v.kind == VALUE_STRING) {
        for (; n > 0; n--) {
            heap_spend(h, 1);
            heap_put(h, v.text);
        }
        return heap_pop_string(h, start);
    }

    Value out = value_list(h, v.kind, 0);
    for (; n > 0; n--) {
        heap_spend(h, 1 + (size_t)v.list->n);
        for (int i = 0; i < v.list->n; i++) list_push(h, out.list, v.list->items[i]);
    }
    return out;
}

static double power(Heap *h, double x, double y) {
    double z = pow(x, y);
    if (x == 0 && y < 0) heap_fail(h, "0 cannot be raised to a negative power");
    if (!isfinite(x) || !isfinite(y)) return z;
    if (isnan(z)) heap_fail(h, "the power is not a real number");
    if (isinf(z)) heap_fail(h, "a number is too large");
    return z;
}

// The remainder has the sign of y.
static double modulo(double x, double y) {
    double z = fmod(x, y);
    if (z == 0) return copysign(0, y);
    return (z < 0) != (y < 0) ? z + y : z;
}

// As Python computes it: 1.0 // 0.1 is 9.0, because the remainder is not 0.
static double floor_quotient(double x, double y) {
    double quotient = (x - modulo(x, y)) / y; // an integer, except for rounding
    return quotient == 0 ? copysign(0, x / y) : floor(quotient + 0.5);
}

static double float_op(Heap *h, int op, double x, double y) {
    if (y == 0 && strchr("/f%", op)) heap_fail(h, "division by zero");
    switch (op) {
    case '+': return x + y;
    case '-': return x - y;
    case '*': return x * y;
    case '/': return x / y;
    case 'f': return floor_quotient(x, y);
    case 'p': return power(h, x, y);
    default: return modulo(x, y); // %
    }
}

// x ** y, y >= 0. False if it exceeds 64 bits, which happens within 64 multiplications.
static bool int_power(int64_t x, int64_t y, int64_t *z) {
    bool has_small_powers = x >= -1 && x <= 1;
    if (has_small_powers && y > 1) y = 2 - (y & 1);

    *z = 1;
    for (; y > 0; y--)
        if (__builtin_mul_overflow(*z, x, z)) return false;
    return true;
}

static int64_t int_modulo(int64_t x, int64_t y) {
    int64_t z = y == -1 ? 0 : x % y;
    bool has_other_sign = z && (z < 0) != (y < 0);
    return has_other_sign ? z + y : z;
}

// Rounds down. False if the result exceeds 64 bits.
static bool int_divide(int64_t x, int64_t y, int64_t *z) {
    if (y == -1) return !__builtin_sub_overflow(0, x, z);
    *z = x / y - (x % y != 0 && (x < 0) != (y < 0));
    return true;
}

static Value int_op(Heap *h, int op, int64_t x, int64_t y) {
    int64_t z = 0;
    bool overflows = false;
    if (y == 0 && (op == 'f' || op == '%')) heap_fail(h, "integer division or modulo by zero");

    switch (op) {
    case '+': overflows = __builtin_add_overflow(x, y, &z); break;
    case '-': overflows = __builtin_sub_overflow(x, y, &z); break;
    case '*': overflows = __builtin_mul_overflow(x, y, &z); break;
    case 'p': overflows = !int_power(x, y, &z); break;
    case 'f': overflows = !int_divide(x, y, &z); break;
    default: z = int_modulo(x, y); // %
    }

    if (overflows) heap_fail(h, "a number is too large");
    return value_int(z);
}

static bool is_integral(Value v) { return value_is_number(v) && v.kind != VALUE_FLOAT; }

static bool is_sequence(Value v) {
    return v.kind == VALUE_STRING || v.kind == VALUE_LIST || v.kind == VALUE_TUPLE;
}

static Value number_op(Heap *h, int op, Value a, Value b) {
    bool is_fraction = op == '/' || (op == 'p' && is_integral(b) && value_number(h, b) < 0);
    if (is_integral(a) && is_integral(b) && !is_fraction)
        return int_op(h, op, value_integer(h, a), value_integer(h, b));
    return value_float(float_op(h, op, value_number(h, a), value_number(h, b)));
}

static const char *operator_name(const char *op) {
    if (*op == 'f') return "//";
    return *op == 'p' ? "**" : op;
}

Value operator_binary(Heap *h, int op, Value a, Value b) {
    if (op == '~') return concat(h, a, b);
    if (op == '%' && a.kind == VALUE_STRING) return format_percent(h, a, b);
    value_require(h, a);
    value_require(h, b);

    if (value_is_number(a) && value_is_number(b)) return number_op(h, op, a, b);

    if (op == '+' && a.kind == b.kind && is_sequence(a)) return add(h, a, b);
    if (op == '*' && is_sequence(a) && is_integral(b)) return repeat(h, a, value_integer(h, b));
    if (op == '*' && is_integral(a) && is_sequence(b)) return repeat(h, b, value_integer(h, a));

    const char name[] = {(char)op, 0};
    heap_fail(h, "unsupported operand types for %s: '%s' and '%s'", operator_name(name),
              value_type_name(a), value_type_name(b));
}

Value operator_sign(Heap *h, int op, Value v) {
    value_require(h, v);
    if (v.kind == VALUE_FLOAT) return value_float(op == '-' ? -v.number : v.number);
    if (v.kind == VALUE_BIG_INT && op == '+') return v;
    if (!value_is_number(v))
        heap_fail(h, "bad operand type for unary %c: '%s'", op, value_type_name(v));
    return int_op(h, op, 0, value_integer(h, v));
}
