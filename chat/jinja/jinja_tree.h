// The syntax tree of a template: jinja_parse.c builds it, jinja.c evaluates it.
#pragma once

#include "chat/jinja/jinja_value.h"

// The comments say which fields of JinjaNode each kind uses. The nodes of a list are linked by
// `next`.
typedef enum {
    // statements
    STMT_TEXT,    // value
    STMT_OUTPUT,  // {{ a }}
    STMT_IF,      // if a: body, else: other
    STMT_FOR,     // for a (a name or tuple) in b if c: body, else: other; op: recursive
    STMT_SET,     // a = b
    STMT_CAPTURE, // a = text of the body, passed through the filters b; a NULL: outputs the text
    STMT_WITH,    // body, in a scope with the list a of STMT_SET
    STMT_BREAK,
    STMT_CONTINUE,
    // expressions
    EXPR_CONST,     // value
    EXPR_NAME,      // name
    EXPR_LIST,      // [list a]
    EXPR_TUPLE,     // (list a)
    EXPR_DICT,      // {list a: keys and values alternate}
    EXPR_ATTRIBUTE, // a.name
    EXPR_ITEM,      // a[b]
    EXPR_SLICE,     // a[b:c:other]; b, c and other can be NULL
    EXPR_CALL,      // a(arguments b)
    EXPR_FILTER,    // a|name(arguments b); a NULL: the text of a STMT_CAPTURE
    EXPR_TEST,      // a is name(arguments b); op: negated
    EXPR_IF,        // b if a else c
    EXPR_NOT,       // not a
    EXPR_AND,       // a and b
    EXPR_OR,        // a or b
    EXPR_SIGN,      // op: '-' or '+'; the operand a
    EXPR_BINARY,    // a op b; op: see operator_binary()
    EXPR_COMPARE,   // a, then the list b of EXPR_COMPARE: op (a Comparison) and operand a
    EXPR_MACRO,     // name(parameters a): body; op: set of MacroUses
    EXPR_ARG,       // argument a, perhaps with a name; op: '*' for *a, 'p' for **a. As a parameter:
                    // a name, perhaps with the default a; op: takes no positional argument
} JinjaNodeKind;

// The variables that a macro has beside its parameters, if its body uses them.
typedef enum { USES_CALLER = 1, USES_VARARGS = 2, USES_KWARGS = 4 } MacroUses;

typedef struct JinjaNode {
    JinjaNodeKind kind;
    int line, op;
    Str name;
    Value value;
    struct JinjaNode *a, *b, *c, *body, *other;
    struct JinjaNode *next;
} JinjaNode;

struct Jinja {
    Heap heap;       // memory of the source and the tree
    Text source;     // followed by a NUL byte; its mask is all 1
    JinjaNode *root; // list of statements
};

// Parses t->source into t->root, or fails in t->heap.
void jinja_parse(struct Jinja *t);
