// Formatting of strings, as Python's "%" and str.format() do it.
#pragma once

#include "chat/jinja/jinja_library.h"

// format % values: the items of a tuple, the named values of a dictionary, or one value.
Value format_percent(Heap *h, Value format, Value values);
// Builtins: the filter format(values...), which is "%"; the methods format(values...) and
// format_map(dictionary).
Value filter_format(Heap *h, const Args *a);
Value str_format(Heap *h, const Args *a);
Value str_format_map(Heap *h, const Args *a);
