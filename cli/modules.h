// Optional modules: directories that `make WITHOUT="..."` leaves out of the program.
//
// The table row of an option or command names the module that it needs. A program built without
// that module refuses the option or command by name, instead of reporting it as unknown.
#pragma once

#include "base/text.h"

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
