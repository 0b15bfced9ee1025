// Values of the template language (Python's types, as far as templates can observe them) and the
// bounded memory that holds them.
//
// Provenance. A prompt mixes text of the template with text of messages, tools and names, and only
// the template may write control tokens. Each Text therefore carries a provenance mask with one
// byte per text byte: 1 if the template wrote the byte, 0 if it is data. Operations that copy bytes
// (slice, join, replace, strip) copy their mask. A character whose case changes keeps its mask.
// Bytes that an operation produces (digits, quotes, escapes) have mask 0. Invariant: a byte with
// mask 1 comes from a literal of the template or from a string that the caller declares to be
// template text (JinjaInput).
//
// Heap. A Heap is the state of one parse or one rendering. Templates come from untrusted files, so
// it bounds memory, evaluation steps, output and recursion. All values are allocated in it and
// freed with it. All errors, exceeded limits as well as wrong types, call heap_fail(), which
// longjmps to the function that set up the heap. Functions therefore return no errors, and must not
// own memory outside the heap.
#pragma once

#include "base/json.h"

#include <setjmp.h>

// Valid UTF-8 text. Positions are byte offsets unless a comment says that they count characters.
typedef struct {
    const char *data;
    const char *mask; // (len) provenance mask; NULL: all bytes are data
    size_t len;
} Text;

#define WHITE_SPACE ((Text){0}) // a set of characters for text_strip

// The order matters: value_is_list() and value_is_number() test ranges, and kind <= VALUE_NONE
// means "no value".
typedef enum {
    VALUE_ABSENT, // an omitted argument
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_BIG_INT, // an integer of the input that exceeds 64 bits; its digits are kept as text
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,      // keys(), values() or items() of a dictionary
    VALUE_GENERATOR, // result of some filters; can be iterated once
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_FUNCTION,
    VALUE_MACRO,
    VALUE_LOOP // the variable "loop"
} ValueKind;

typedef struct {
    struct Value *items; // (n) lists are immutable, so slices share them
    int n;
} List;

typedef struct {
    struct DictPair *pairs; // (n) in insertion order; lookup is linear
    int n;
} Dict;

typedef struct Value {
    ValueKind kind;
    bool is_markup; // of a VALUE_STRING: result of the filter "safe"
    bool is_group;  // of a VALUE_TUPLE: result of the filter "groupby"
    union {
        bool boolean;
        int64_t integer;
        double number;
        Text text;  // VALUE_STRING, VALUE_BIG_INT
        List *list; // VALUE_LIST to VALUE_GENERATOR
        Dict *dict; // VALUE_DICT, VALUE_NAMESPACE
        struct {    // VALUE_UNDEFINED
            Str name;
            const char *owner; // type that lacks the attribute `name`; NULL: `name` is a variable
        };
        struct {                           // VALUE_FUNCTION
            const struct Builtin *builtin; // jinja_library.h
            struct Value *self;            // the object of a method; NULL for a function
            int variant;                   // see Builtin
        };
        struct Macro *macro;
        struct Loop *loop;
    };
} Value;
typedef struct DictPair {
    Value key, value;
} DictPair;

typedef struct Heap {
    Arena chunks;
    char *chunk;       // free part of the last chunk
    size_t chunk_left; // (bytes) size of the free part
    size_t n_left;     // bytes that can still be allocated
    Buffer out, mask; // (out.len each) output and its provenance mask; strings are built at the end
                      // of the output, see heap_pop_string()
    Value *args;      // (n_args) stack of the arguments of running calls, allocated for a rendering
    Str *arg_names;   // (n_args) data NULL for a positional argument
    int n_args;       // at most HEAP_ARGS
    size_t steps;     // evaluation steps left
    size_t n_touched; // bytes touched that are not counted in `steps` yet
    int line, depth;  // current line of the template; current recursion depth
    const char *name; // of the template, for messages
    const struct tm *now;
    struct Scope *scope; // innermost scope of the evaluation (jinja.c)
    Value body;          // captured text, while the filters of its statement run (jinja.c)
    Error *err;
    jmp_buf on_fail;
} Heap;

enum {
    // Recursion limit. This depth takes 230 KiB of stack (gcc 12, -O0 to -O3, without sanitizers).
    HEAP_DEPTH = 300,
    HEAP_ARGS = 4096
};
// Functions with large frames are not inlined into the functions that recurse.
#define OWN_FRAME __attribute__((noinline))

// Sets h->err to "NAME: line N: ..." and jumps to h->on_fail.
_Noreturn void heap_fail(Heap *h, const char *fmt, ...) PRINTF_LIKE(2, 3);
void *heap_alloc(Heap *h, size_t n, size_t size); // zeroed
void heap_spend(Heap *h, size_t n_steps);         // fails when h->steps are used up
void heap_touch(Heap *h, size_t n_bytes);         // spends a step for every 64 bytes of data
void heap_enter(Heap *h);                         // enters a level of recursion; h->depth-- leaves
void heap_free(Heap *h);
// Grows an array of n items for one more. Returns `items`, or a larger copy if n is the capacity of
// the array, which follows from n.
void *heap_grow(Heap *h, void *items, int n, size_t size);

// Appends an argument to h->args. The caller resets h->n_args after its call.
void heap_push_arg(Heap *h, Value v, Str name);

void heap_put(Heap *h, Text t); // appends to the output
void heap_puts(Heap *h, const char *text);
// Removes the output from offset `start` on and returns it as a string. A function builds a string
// by remembering out.len, appending, and popping; nested calls thus form a stack.
Value heap_pop_string(Heap *h, size_t start);

Text text_part(Text t, size_t from, size_t to); // bytes [from, to)
Text text_next(Text *rest);                     // removes the first character
size_t text_length(Heap *h, Text t);            // in characters
size_t text_offset(Text t, int64_t i); // byte offset of character i (< 0: from the end), clamped
Text text_strip(Text t, Text chars, bool left, bool right); // `chars` is a set
size_t text_find(Heap *h, Text t, Text part, size_t from);  // SIZE_MAX: not found
size_t text_find_last(Heap *h, Text t, Text part);
uint32_t text_code(Text c); // code point of a character
static inline Str text_str(Text t) { return (Str){t.data, t.len}; }
static inline Text text_of(const char *s) { return (Text){s, NULL, str_of(s).len}; }

static inline Value value_bool(bool b) { return (Value){.kind = VALUE_BOOL, .boolean = b}; }
static inline Value value_int(int64_t i) { return (Value){.kind = VALUE_INT, .integer = i}; }
static inline Value value_float(double x) { return (Value){.kind = VALUE_FLOAT, .number = x}; }
static inline Value value_text(Text t) { return (Value){.kind = VALUE_STRING, .text = t}; }
static inline Value value_data(Str s) { return value_text((Text){s.data, NULL, s.len}); }
static inline Value value_none(void) { return (Value){.kind = VALUE_NONE}; }
static inline Value value_undefined(Str name, const char *owner) {
    return (Value){.kind = VALUE_UNDEFINED, .name = name, .owner = owner};
}
Value value_list(Heap *h, ValueKind kind, int n); // n items, all VALUE_ABSENT
void list_push(Heap *h, List *list, Value item);  // only to a list that nothing refers to yet
List *list_reversed(Heap *h, const List *list);
Value value_dict(Heap *h, ValueKind kind);
void dict_set(Heap *h, Dict *d, Value key, Value v);
Value *dict_find(Heap *h, const Dict *d, Value key); // NULL: not found
// The pairs (key, value) of a dictionary as tuples, or the items of another value.
List *dict_pairs(Heap *h, Value v);
// Converts parsed JSON. Strings are not copied, so j must outlive the heap. is_template_text: see
// JinjaInput.
Value value_from_json(Heap *h, const Json *j, bool (*is_template_text)(const Json *string));

static inline bool value_is_list(Value v) {
    return v.kind >= VALUE_LIST && v.kind <= VALUE_GENERATOR;
}
static inline bool value_is_number(Value v) {
    return v.kind >= VALUE_BOOL && v.kind <= VALUE_BIG_INT;
}
const char *value_type_name(Value v); // Python's name of the type
// The value of an optional argument, or `other` if it was omitted.
static inline Value argument_or(Value v, Value other) { return v.kind == VALUE_ABSENT ? other : v; }
bool value_truth(Value v);
// Fails if v is undefined. Templates can only test and print undefined values.
void value_require(Heap *h, Value v);
// These check the kind of a value before they read its union, and fail for all other kinds.
double value_number(Heap *h, Value v);   // of a number
int64_t value_integer(Heap *h, Value v); // of an int or a bool
Text value_string(Heap *h, Value v);     // of a string
Dict *value_mapping(Heap *h, Value v);   // of a dictionary
List *value_iterate(Heap *h, Value v);   // its items; uses up a generator
Text value_str(Heap *h, Value v);        // Python's str()

typedef enum { CMP_EQ, CMP_NE, CMP_LE, CMP_GE, CMP_LT, CMP_GT, CMP_IN, CMP_NOT_IN } Comparison;
bool value_compare(Heap *h, Comparison op, Value a, Value b);
bool value_equal(Heap *h, Value a, Value b);
// Python's "is": lists, dictionaries and other objects are compared by identity, all other values
// by kind and contents.
bool value_is_same(Heap *h, Value a, Value b);
// The indexes (keys->n) of the keys in ascending or descending order; the sort is stable.
int *value_order(Heap *h, const List *keys, bool is_descending);

typedef struct {
    bool is_json; // else Python's repr(), or with is_ascii its ascii()
    bool is_ascii, is_sorted, is_indented;
    Text indent, comma, colon;
} ValueStyle;
extern const ValueStyle value_repr;
// Appends a value to the output, in Python's str() form if style is NULL. level: depth of the
// indent.
void value_put(Heap *h, Value v, const ValueStyle *style, int level);
