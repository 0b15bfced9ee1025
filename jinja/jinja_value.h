// Values as the templates' language has them: Python's, as far as Jinja shows them, and texts that
// know for every byte who wrote it. All of them live in a heap that is bounded in memory and steps,
// since a template comes from anywhere.
#ifndef JINJA_JINJA_VALUE_H
#define JINJA_JINJA_VALUE_H

#include "../base/json.h"

#include <setjmp.h>

typedef struct {
    const char *data;
    const char *mask; // (len) 1 where the template wrote the byte, 0 where data did; NULL: data
                      // wrote all of it
    size_t len;
} Text;

typedef enum {
    VALUE_ABSENT, // an argument that was not given
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_BIG_INT, // a whole number of the data beyond 64 bits: its text
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,      // the keys, values or items of a dictionary
    VALUE_GENERATOR, // what some filters make: it can be iterated once
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_FUNCTION,
    VALUE_MACRO,
    VALUE_LOOP
} ValueKind;

typedef struct Value Value;
typedef struct Builtin Builtin;
typedef struct Heap Heap;
typedef struct {
    Value *items; // shared by slices: nothing changes a list
    int n;
} List;
typedef struct DictPair DictPair;
typedef struct {
    DictPair *pairs; // in the order in which the keys came
    int n, cap;
} Dict;

struct Value {
    ValueKind kind;
    bool is_markup; // a VALUE_STRING that the filter "safe" has passed
    union {
        bool boolean;
        int64_t integer;
        double number;
        Text text;
        List *list;
        Dict *dict;
        struct { // VALUE_UNDEFINED
            Str name;
            const char *owner; // what has no attribute of this name; NULL: it is a variable
        };
        struct { // VALUE_FUNCTION
            const Builtin *builtin;
            Value *self; // of a method
        };
        struct Macro *macro;
        struct Loop *loop;
    };
};
struct DictPair {
    Value key, value;
};

// Arguments of a call: in order, then those with names.
typedef struct {
    Value *values;
    Str *names; // data NULL: none
    int n;
} Args;

// A function, method, filter or test. `params` names its parameters, separated by spaces, those
// that may be absent after a '?'; run then finds one value for each. NULL: it takes the arguments
// as they are.
struct Builtin {
    const char *name, *params;
    Value (*run)(Heap *h, Value self, const Args *a);
};

// Memory, output and limits of one parse or one rendering.
struct Heap {
    struct Chunk *chunks;
    size_t n_left; // bytes that may still be allocated
    Buffer out,
        mask; // the text so far, and the marks of its bytes; the tail is what is being put together
    size_t steps;     // that may still be taken
    int line, depth;  // of the template; of the recursion
    const char *name; // of the template, for messages
    const struct tm *now;
    Error *err;
    jmp_buf on_fail;
};

enum { HEAP_DEPTH = 600 }; // 3 MB of stack with the address sanitizer's frames

// Every failure ends here: "NAME: line N: ..." in the heap's err, and back to where the heap was
// set up.
_Noreturn void heap_fail(Heap *h, const char *fmt, ...) PRINTF_LIKE(2, 3);
void *heap_alloc(Heap *h, size_t n, size_t size); // zeroed
void heap_spend(Heap *h, size_t n_steps);
void heap_enter(Heap *h); // one level of recursion deeper; h->depth-- leaves it
void heap_free(Heap *h);

// What is put goes to the end of the output; heap_take makes a string of what was put since out.len
// was `start`.
void heap_put(Heap *h, Text t);
void heap_puts(Heap *h, const char *text);
Value heap_take(Heap *h, size_t start);

// Text by characters (code points).
Text text_part(Text t, size_t from, size_t to); // bytes [from, to)
Text text_next(Text *rest);                     // takes the first character off
size_t text_length(Heap *h, Text t);
size_t text_offset(Text t,
                   int64_t i); // of character i, or counted from the end if negative; clamped
Text text_strip(Text t, const Text *chars, bool left, bool right); // chars NULL: white space
size_t text_find(Heap *h, Text t, Text part, size_t from);         // SIZE_MAX: not there
bool text_eq(Text a, Text b);
static inline Str text_str(Text t) { return (Str){t.data, t.len}; }
static inline Text text_of(const char *s) { return (Text){s, NULL, str_of(s).len}; }

static inline Value value_bool(bool b) { return (Value){.kind = VALUE_BOOL, .boolean = b}; }
static inline Value value_int(int64_t i) { return (Value){.kind = VALUE_INT, .integer = i}; }
static inline Value value_float(double x) { return (Value){.kind = VALUE_FLOAT, .number = x}; }
static inline Value value_text(Text t) { return (Value){.kind = VALUE_STRING, .text = t}; }
static inline Value value_none(void) { return (Value){.kind = VALUE_NONE}; }
static inline bool value_is_list(Value v) {
    return v.kind >= VALUE_LIST && v.kind <= VALUE_GENERATOR;
}
static inline bool value_is_number(Value v) {
    return v.kind >= VALUE_BOOL && v.kind <= VALUE_BIG_INT;
}
Value value_list(Heap *h, ValueKind kind, int n); // n items, all VALUE_ABSENT
Value value_dict(Heap *h, ValueKind kind);
void value_set(Heap *h, Dict *d, Value key, Value v);
Value *value_find(Heap *h, const Dict *d, Value key); // NULL: not there
// Of JSON, whose strings are not copied: it must outlive the heap. is_template_text: see jinja.h.
Value value_json(Heap *h, const Json *j, bool (*is_template_text)(const Json *string));

const char *value_kind(Value v); // as Python calls the type
bool value_truth(Value v);
double value_number(Heap *h, Value v); // of a number
bool value_equal(Heap *h, Value a, Value b);
bool value_less(Heap *h, Value a, Value b);
bool value_contains(Heap *h, Value all, Value v);
List *value_iterate(Heap *h, Value v); // its items, or a failure
// str() and repr() to the output; a value as a text.
void value_put(Heap *h, Value v, bool is_repr);
Text value_str(Heap *h, Value v);

typedef struct {
    bool is_ascii, is_sorted, is_indented;
    Text indent, comma, colon;
} JsonStyle;
void value_put_json(Heap *h, Value v, const JsonStyle *style, int level);

#endif
