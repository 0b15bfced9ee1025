// Functions of strings, for the table of builtins. Their parameters are in that table; the variants
// are the enumerators above each function.
#pragma once

#include "chat/jinja/jinja_library.h"

// Case: jinja_case.c
typedef enum { CASE_LOWER, CASE_UPPER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_FILTER } CaseRule;
Value str_case(Heap *h, const Args *a);

// Parts
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
Value str_strip(Heap *h, const Args *a);
Value str_replace(Heap *h, const Args *a);
enum { AT_START, AT_END };
Value str_split(Heap *h, const Args *a);
Value str_partition(Heap *h, const Args *a);
Value str_has_affix(Heap *h, const Args *a);
Value str_remove_affix(Heap *h, const Args *a);
Value str_splitlines(Heap *h, const Args *a);
enum { FIND_FIRST, FIND_LAST, INDEX_FIRST, INDEX_LAST };
Value str_find_part(Heap *h, const Args *a);
Value str_count(Heap *h, const Args *a);
Value filter_truncate(Heap *h, const Args *a);
Value filter_wordcount(Heap *h, const Args *a);

// Characters. The set of a class is its bit 1 << class >> 1; UNICODE_OTHER has none.
enum { CLASS_LETTER = 1, CLASS_NUMBER = 2, CLASS_SPACE = 4 };
Value str_is_class(Heap *h, const Args *a);
Value str_is_ascii(Heap *h, const Args *a);
Value str_is_case(Heap *h, const Args *a); // CASE_LOWER or CASE_UPPER

// Construction
Value str_join(Heap *h, const Args *a);
enum { PAD_RIGHT, PAD_LEFT, PAD_BOTH, PAD_ZEROS };
Value str_pad(Heap *h, const Args *a);
Value filter_center(Heap *h, const Args *a);
Value filter_indent(Heap *h, const Args *a);
enum { MARKUP_STRING, MARKUP_ESCAPE, MARKUP_SAFE, MARKUP_FORCE };
Value filter_markup(Heap *h, const Args *a);
Value filter_urlencode(Heap *h, const Args *a);

// Replaces & < > ' " by entities; markup is returned unchanged.
Value string_escape(Heap *h, Value v);
// The indent of a line, given as a string or as a number of spaces.
Text string_indent(Heap *h, Value by);
