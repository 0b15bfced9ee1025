// Constraints on a text: a JSON Schema, a grammar, a regular expression or a list of choices,
// compiled once. mask.h says which tokens may come next by one.
#ifndef CONSTRAIN_CONSTRAIN_H
#define CONSTRAIN_CONSTRAIN_H

#include "../base/json.h"
#include "mask.h"

// JSON texts that a schema (draft 2020-12; the spellings of drafts 4 to 7 where $schema says so or
// they are plain) accepts, written with the white space of json.dumps: none, its default, or
// indent=2. is_ordered: properties come in the schema's order, else in any. Every keyword either
// counts in full or is an error that names it and its place; annotations and unknown keywords say
// nothing about texts; the latter are listed in `unknown` (may be NULL). NULL with err (exit 2).
Grammar *grammar_schema(const Json *schema, bool is_ordered, Buffer *unknown, Error *err);
// The same from text, with errors of its syntax.
Grammar *grammar_schema_text(Str text, bool is_ordered, Buffer *unknown, Error *err);
// A grammar in llama.cpp's GBNF; the text is one of its rule `root`. NULL with err (exit 2: line
// and column).
Grammar *grammar_gbnf(Str text, Error *err);
// Texts that a regular expression (regex.h) matches from end to end.
Grammar *grammar_regex(Str pattern, Error *err);
// One of n texts.
Grammar *grammar_choices(const Str *choices, int n, Error *err);
void grammar_free(Grammar *c);

// For the compilers: adds what a constraint is made of; the index.
Grammar *grammar_new(void);
int grammar_add_dfa(Grammar *c, Dfa *d); // takes it over
int grammar_add_string(Grammar *c, StringDef s);
int grammar_add_object(Grammar *c, ObjectDef o);
int grammar_add_array(Grammar *c, ArrayDef a);
int grammar_add_node(Grammar *c);
void node_add(Grammar *c, int node, Alt alt); // unless it is there
// One automaton as the whole text.
Grammar *grammar_of_dfa(Dfa *d);

#endif
