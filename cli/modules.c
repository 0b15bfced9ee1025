// WITHOUT is the variable of the Makefile: the directories that were left out.
#include "cli/modules.h"

static const struct {
    const char *directory, *provides;
} modules[MODULE_COUNT] = {
    [MODULE_CONSTRAIN] = {"constrain", "constrained generation"},
    [MODULE_SPECULATE] = {"speculate", "speculative decoding"},
    [MODULE_CACHE] = {"cache", "prefix cache"},
    [MODULE_LORA] = {"lora", "LoRA adapters"},
    [MODULE_QUANTIZE] = {"quantize", "quantizer"},
};

static bool is_built(Module m) {
    return m == MODULE_CORE || !str_is_one_of(str_of(modules[m].directory), WITHOUT);
}

bool module_check(Module m, const char *needed_by, Error *err) {
    return is_built(m) ||
           error_set(err, EXIT_USAGE, "%s: this build has no %s (built with WITHOUT=%s)", needed_by,
                     modules[m].provides, modules[m].directory);
}

void modules_put_missing(Buffer *out) {
    for (Module m = MODULE_CORE; m < MODULE_COUNT; m++)
        if (!is_built(m)) buffer_printf(out, " %s", modules[m].directory);
}
