// Each optional directory defines NAME_is_built: true in its sources, false in its stub.c.
#include "modules.h"
#include "../cache/cache.h"
#include "../constrain/constraint.h"
#include "../lora/lora.h"
#include "../quantize/quantize.h"
#include "../speculate/speculate.h"

static const struct {
    const char *directory; // as in WITHOUT="..."
    const char *provides;
    const bool *is_built;
} modules[MODULE_COUNT] = {
    [MODULE_CONSTRAIN] = {"constrain", "constrained generation", &constrain_is_built},
    [MODULE_SPECULATE] = {"speculate", "speculative decoding", &speculate_is_built},
    [MODULE_CACHE] = {"cache", "prefix cache", &cache_is_built},
    [MODULE_LORA] = {"lora", "LoRA adapters", &lora_is_built},
    [MODULE_QUANTIZE] = {"quantize", "quantizer", &quantize_is_built},
};

bool module_check(Module m, const char *needed_by, Error *err) {
    if (m == MODULE_CORE || *modules[m].is_built) return true;
    return error_set(err, EXIT_USAGE, "%s: this build has no %s (built with WITHOUT=%s)", needed_by,
                     modules[m].provides, modules[m].directory);
}

void modules_put_missing(Buffer *out) {
    for (int m = MODULE_CORE + 1; m < MODULE_COUNT; m++)
        if (!*modules[m].is_built) buffer_printf(out, " %s", modules[m].directory);
}
