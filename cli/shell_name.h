// File names in the commands of a chat, spelled as in a shell: quotes, backslashes and ~/ at the
// beginning have their meaning in sh. Unlike there, spaces within a name need none of them, because
// a command has one name. Blanks at its ends are cut.
#pragma once

#include "base/text.h"

// Appends the name that a text spells. False with err (exit 1) if a quote is not closed.
bool shell_name_read(Str text, Buffer *out, Error *err);
// Appends the spellings of the files whose names begin with the typed one, one per line. Each
// begins with `typed`. Hidden files are completed only after a dot.
void shell_name_complete(Str typed, Buffer *out);
