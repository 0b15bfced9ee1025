// Values of the template language: Python's types, as far as Jinja shows them, and the bounded
// memory they are stored in.
//
// Provenance. A prompt mixes text of the template with text of messages, tools and names, and only
// the template may write control tokens. Each Text therefore carries a provenance mask: one
// byte per text byte, 1 if the template wrote it, 0 if data did. Operations that copy bytes (slice,
// join, replace, strip) copy the mask with them; a character whose case changes keeps its mask;
// bytes that an operation makes itself (digits, quotes, escapes) have 0. Invariant: a byte with
// mask 1 comes from a literal of the template or from a value that the caller vouches for
// (JinjaInput).
//
// Heap. Templates come from untrusted files, so a Heap bounds memory, evaluation steps, output and
// recursion. All values of one parse or one rendering are allocated in it and freed with it. Every
// failure, of a limit or of a type, calls heap_fail, which longjmps to where the heap was set up.
// So functions need not return errors, and must not own memory outside the heap.
#pragma once

#include "../base/json.h"

#include <setjmp.h>

// UTF-8 text, always valid. Positions are byte offsets unless a comment says characters.
typedef struct {
    const char *data;
    const char *mask; // (len) provenance mask; NULL: all bytes are data
    size_t len;
} Text;

#define WHITE_SPACE ((Text){0}) // a set of characters for text_strip

// The order matters: value_is_list and value_is_number test ranges, and "kind <= VALUE_NONE" means
// "no value".
typedef enum {
    VALUE_ABSENT, // an argument that was not given
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_BIG_INT, // an integer of the data beyond 64 bits: its digits
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,      // keys(), values() or items() of a dictionary
    VALUE_GENERATOR, // result of some filters: can be iterated once
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_FUNCTION,
    VALUE_MACRO,
    VALUE_LOOP // the variable "loop"
} ValueKind;

typedef struct Value Value;
typedef struct Builtin Builtin; // jinja_library.c
typedef struct Heap Heap;
typedef struct DictPair DictPair;

typedef struct {
    Value *items; // (n) shared by slices: lists are immutable
    int n;
} List;

typedef struct {
    DictPair *pairs; // (n) in insertion order; lookup is linear
    int n;
} Dict;

struct Value {
    ValueKind kind;
    bool is_markup; // of a VALUE_STRING: result of the filter "safe"
    union {
        bool boolean;
        int64_t integer;
        double number;
        Text text;  // VALUE_STRING, VALUE_BIG_INT
        List *list; // VALUE_LIST to VALUE_GENERATOR
        Dict *dict; // VALUE_DICT, VALUE_NAMESPACE
        struct {    // VALUE_UNDEFINED
            Str name;
            const char *owner; // type without an attribute of this name; NULL: no such variable
        };
        struct { // VALUE_FUNCTION
            const Builtin *builtin;
            Value *self; // of a method; NULL: a function
            int variant; // see Builtin
        };
        struct Macro *macro;
        struct Loop *loop;
    };
};
struct DictPair {
    Value key, value;
};

struct Heap {
    struct HeapChunk *chunks;
    size_t n_left;    // bytes that can still be allocated
    Buffer out, mask; // (out.len each) output and its provenance mask. The end of the output is
                      // also where strings are put together: see heap_pop_string
    size_t steps;     // evaluation steps left
    int line, depth;  // line of the template; recursion
    const char *name; // of the template, for messages
    const struct tm *now;
    struct Scope *scope; // innermost scope of the evaluation (jinja.c)
    Value body;          // captured text, while the filters of its statement run (jinja.c)
    Error *err;
    jmp_buf on_fail;
};

enum { HEAP_DEPTH = 600 }; // levels of recursion: 3 MB of stack with AddressSanitizer's frames

// Sets h->err to "NAME: line N: ..." and jumps to h->on_fail.
_Noreturn void heap_fail(Heap *h, const char *fmt, ...) PRINTF_LIKE(2, 3);
void *heap_alloc(Heap *h, size_t n, size_t size); // zeroed
void heap_spend(Heap *h, size_t n_steps);         // fails when h->steps are used up
void heap_enter(Heap *h);                         // one level of recursion; h->depth-- leaves it
void heap_free(Heap *h);
// An array with room for another item after its n: `items`, or a copy if its capacity, which
// follows from n, is used up.
void *heap_grow(Heap *h, void *items, int n, size_t size);

void heap_put(Heap *h, Text t); // appends to the output
void heap_puts(Heap *h, const char *text);
// Removes what was appended since out.len was `start`, and returns it as a string. Every function
// that builds a string appends and then pops; nested calls form a stack.
Value heap_pop_string(Heap *h, size_t start);

Text text_part(Text t, size_t from, size_t to);             // bytes [from, to)
Text text_next(Text *rest);                                 // removes the first character
size_t text_length(Heap *h, Text t);                        // in characters
size_t text_offset(Text t, int64_t i);                      // byte offset of character i,
                                                            // from the end if i < 0; clamped
Text text_strip(Text t, Text chars, bool left, bool right); // `chars` is a set
size_t text_find(Heap *h, Text t, Text part, size_t from);  // SIZE_MAX: not found
uint32_t text_code(Text c);                                 // code point of a character
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
void list_push(Heap *h, List *list, Value item);  // only to a list that the caller has just made
Value value_dict(Heap *h, ValueKind kind);
void dict_set(Heap *h, Dict *d, Value key, Value v);
Value *dict_find(Heap *h, const Dict *d, Value key); // NULL: not found
// The value of parsed JSON. Strings are not copied, so j must outlive the heap. is_template_text:
// see JinjaInput.
Value value_from_json(Heap *h, const Json *j, bool (*is_template_text)(const Json *string));

static inline bool value_is_list(Value v) {
    return v.kind >= VALUE_LIST && v.kind <= VALUE_GENERATOR;
}
static inline bool value_is_number(Value v) {
    return v.kind >= VALUE_BOOL && v.kind <= VALUE_BIG_INT;
}
const char *value_type_name(Value v); // Python's name of the type
bool value_truth(Value v);
double value_number(Heap *h, Value v);   // of a number
int64_t value_integer(Heap *h, Value v); // of an int or a bool
List *value_iterate(Heap *h, Value v);   // its items; uses up a generator
Text value_str(Heap *h, Value v);        // Python's str()

typedef enum { CMP_EQ, CMP_NE, CMP_LE, CMP_GE, CMP_LT, CMP_GT, CMP_IN, CMP_NOT_IN } Comparison;
bool value_compare(Heap *h, Comparison op, Value a, Value b);
bool value_equal(Heap *h, Value a, Value b);
bool value_less(Heap *h, Value a, Value b);

typedef struct {
    bool is_json; // else Python's repr()
    bool is_ascii, is_sorted, is_indented;
    Text indent, comma, colon;
} ValueStyle;
// Appends a value to the output. style NULL: str(). level: of the indent.
void value_put(Heap *h, Value v, const ValueStyle *style, int level);
