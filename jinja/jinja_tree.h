// The tree of a template, as jinja_parse.c makes it and jinja.c walks it.
#ifndef JINJA_JINJA_TREE_H
#define JINJA_JINJA_TREE_H

#include "jinja.h"
#include "jinja_value.h"

// What a node says is in its kind; which of the fields it uses, in the comment.
enum { JINJA_ARGS = 32 }; // most arguments of a call

typedef enum {
    // statements
    S_TEXT,    // value
    S_OUTPUT,  // a
    S_IF,      // a, then body, else other
    S_FOR,     // name or tuple a in b, if c; body, other; op: recursive
    S_SET,     // a = b
    S_CAPTURE, // a = body, through the filters b
    S_MACRO,   // name(args a): body
    S_CALL,    // a called with a macro of args b and the body
    S_FILTER,  // body through the filters b
    S_WITH,    // (target a = b)*: body
    S_BLOCK,   // body
    S_BREAK,
    S_CONTINUE,
    // expressions
    E_CONST,     // value
    E_NAME,      // name
    E_LIST,      // items a
    E_TUPLE,     // items a
    E_DICT,      // keys and values in turn: a
    E_ATTRIBUTE, // a.name
    E_ITEM,      // a[b]
    E_SLICE,     // a[b:c:other]; NULL: absent
    E_CALL,      // a(args b)
    E_FILTER,    // a|name(args b); a NULL: the body of a block
    E_TEST,      // a is name(args b); op: not
    E_IF,        // b if a else c
    E_NOT,       // a
    E_AND,       // a, b
    E_OR,        // a, b
    E_NEGATIVE,  // a
    E_BINARY,    // a op b
    E_COMPARE,   // a (op b)*: the nodes of b are E_COMPARE with their op and operand a
    E_ARG,       // an argument: a, with a name or none; op: '*' or '2' (**)
} NodeKind;

enum { ADD, SUB, CONCAT, MUL, DIV, FLOOR, MOD, POW, EQ, NE, LE, GE, LT, GT, IN, NOT_IN };

typedef struct Node Node;
struct Node {
    NodeKind kind;
    int line, op;
    Str name;
    Value value;
    Node *a, *b, *c, *body, *other;
    Node *next; // in a list of statements, items or arguments
};

struct Jinja {
    Heap heap; // of the tree
    const char *name;
    char *source, *ones; // (n) ones: the marks of what the template wrote
    size_t n;
    Node *root;
};

// The tree of t->source in t->root, or a failure in t's heap.
void jinja_parse(Jinja *t);

#endif
