// Optional modules: directories that `make WITHOUT="..."` leaves out of the program.
//
// An option or command that needs one names it in its table row. A program built without the module
// refuses that option or command by name, instead of not knowing it.
#pragma once

#include "../base/text.h"

typedef enum {
    MODULE_CORE, // always built
    MODULE_CONSTRAIN,
    MODULE_SPECULATE,
    MODULE_CACHE,
    MODULE_LORA,
    MODULE_QUANTIZE,
    MODULE_COUNT
} Module;

// False with err (exit 2) if this program was built without module m. `needed_by` is the option or
// command that needs it.
bool module_check(Module m, const char *needed_by, Error *err);
// Appends the directories of the missing modules, a space before each.
void modules_put_missing(Buffer *out);
