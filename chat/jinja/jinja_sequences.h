// Functions of lists and dictionaries, for the table of builtins. Their parameters are in that
// table; the variants are the enumerators above each function.
#pragma once

#include "chat/jinja/jinja_library.h"

// One item of a sequence
enum { END_FIRST, END_LAST };
Value filter_end(Heap *h, const Args *a);
enum { EXTREME_MIN, EXTREME_MAX };
Value filter_extreme(Heap *h, const Args *a);
Value filter_sum(Heap *h, const Args *a);
enum { LIST_INDEX, LIST_COUNT };
Value list_search(Heap *h, const Args *a);

// Sequences
Value filter_list(Heap *h, const Args *a);
Value filter_length(Heap *h, const Args *a);
Value filter_join(Heap *h, const Args *a);
Value filter_reverse(Heap *h, const Args *a);
Value filter_sort(Heap *h, const Args *a);
Value filter_unique(Heap *h, const Args *a);
Value filter_groupby(Heap *h, const Args *a);
Value filter_map(Heap *h, const Args *a);
enum { SELECT_REJECT = 1, SELECT_BY_ATTRIBUTE = 2 };
Value filter_select(Heap *h, const Args *a);
Value filter_batch(Heap *h, const Args *a);
Value filter_slice(Heap *h, const Args *a);
Value call_range(Heap *h, const Args *a);

// Dictionaries
enum { DICT_KEYS, DICT_VALUES, DICT_ITEMS, DICT_ITEMS_FILTER };
Value dict_view(Heap *h, const Args *a);
Value dict_get(Heap *h, const Args *a);
Value filter_dictsort(Heap *h, const Args *a);
Value call_dict(Heap *h, const Args *a); // VALUE_DICT or VALUE_NAMESPACE
