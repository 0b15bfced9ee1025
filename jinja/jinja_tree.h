// The tree of a template, as jinja_parse.c makes it and jinja.c walks it.
#ifndef JINJA_JINJA_TREE_H
#define JINJA_JINJA_TREE_H

#include "jinja.h"
#include "jinja_value.h"

// What a node says is in its kind; which of the fields it uses, in the comment.
enum { JINJA_MAX_ARGS = 32 }; // most arguments of a call

typedef enum {
    // statements
    STMT_TEXT,    // value
    STMT_OUTPUT,  // a
    STMT_IF,      // a, then body, else other
    STMT_FOR,     // name or tuple a in b, if c; body, other; op: recursive
    STMT_SET,     // a = b
    STMT_CAPTURE, // a = body, through the filters b
    STMT_MACRO,   // name(args a): body
    STMT_CALL,    // a called with a macro of args b and the body
    STMT_FILTER,  // body through the filters b
    STMT_WITH,    // (target a = b)*: body
    STMT_BLOCK,   // body
    STMT_BREAK,
    STMT_CONTINUE,
    // expressions
    EXPR_CONST,     // value
    EXPR_NAME,      // name
    EXPR_LIST,      // items a
    EXPR_TUPLE,     // items a
    EXPR_DICT,      // keys and values in turn: a
    EXPR_ATTRIBUTE, // a.name
    EXPR_ITEM,      // a[b]
    EXPR_SLICE,     // a[b:c:other]; NULL: absent
    EXPR_CALL,      // a(args b)
    EXPR_FILTER,    // a|name(args b); a NULL: the body of a block
    EXPR_TEST,      // a is name(args b); op: not
    EXPR_IF,        // b if a else c
    EXPR_NOT,       // a
    EXPR_AND,       // a, b
    EXPR_OR,        // a, b
    EXPR_NEGATIVE,  // a
    EXPR_BINARY,    // a op b
    EXPR_COMPARE,   // a (op b)*: the nodes of b are EXPR_COMPARE with their op and operand a
    EXPR_ARG,       // an argument: a, with a name or none; op: '*' or '2' (**)
} JinjaNodeKind;

enum {
    JINJA_ADD,
    JINJA_SUB,
    JINJA_CONCAT,
    JINJA_MUL,
    JINJA_DIV,
    JINJA_FLOOR,
    JINJA_MOD,
    JINJA_POW,
    JINJA_EQ,
    JINJA_NE,
    JINJA_LE,
    JINJA_GE,
    JINJA_LT,
    JINJA_GT,
    JINJA_IN,
    JINJA_NOT_IN
};

typedef struct JinjaNode JinjaNode;
struct JinjaNode {
    JinjaNodeKind kind;
    int line, op;
    Str name;
    Value value;
    JinjaNode *a, *b, *c, *body, *other;
    JinjaNode *next; // in a list of statements, items or arguments
};

struct Jinja {
    Heap heap; // of the tree
    const char *name;
    char *source, *ones; // (n) ones: the marks of what the template wrote
    size_t n;
    JinjaNode *root;
};

// The tree of t->source in t->root, or a failure in t's heap.
void jinja_parse(Jinja *t);

#endif
