// See samplers.h. The names are those of llama.cpp (common/sampling.cpp).
#include "generate/samplers.h"

#include <string.h>

static const struct {
    const char *name;
    const char *others; // other names, separated by spaces
} samplers[N_SAMPLERS] = {
    [SAMPLER_PENALTIES] = {"penalties", ""},
    [SAMPLER_DRY] = {"dry", ""},
    [SAMPLER_TEMPERATURE] = {"temperature", "temp"},
    [SAMPLER_TOP_K] = {"top_k", "top-k"},
    [SAMPLER_MIN_P] = {"min_p", "min-p"},
    [SAMPLER_TOP_P] = {"top_p", "top-p nucleus"},
};

const char *sampler_name(SamplerKind kind) { return samplers[kind].name; }

SamplerOrder samplers_resolve(const SamplerOrder *order) {
    SamplerOrder all = {.n = N_SAMPLERS};
    for (int i = 0; i < N_SAMPLERS; i++) all.at[i] = (SamplerKind)i;
    return order->n ? *order : all;
}

bool samplers_have(const SamplerOrder *order, SamplerKind kind) {
    bool found = !order->n;
    for (int i = 0; i < order->n; i++) found |= order->at[i] == kind;
    return found;
}

static bool add_name(SamplerOrder *out, Str name, Error *err) {
    int kind = 0;
    while (kind < N_SAMPLERS && !str_is(name, samplers[kind].name) &&
           !str_is_one_of(name, samplers[kind].others))
        kind++;

    if (kind == N_SAMPLERS)
        return error_set(err, EXIT_USAGE,
                         "no sampler \"%.*s\"; the names are penalties, dry, top_k, top_p, min_p "
                         "and temperature",
                         SHOWN(name));
    if (out->n && samplers_have(out, (SamplerKind)kind))
        return error_set(err, EXIT_USAGE, "%.*s is named twice", SHOWN(name));

    out->at[out->n++] = (SamplerKind)kind;
    return true;
}

bool samplers_parse(SamplerOrder *out, Str names, Error *err) {
    SamplerOrder order = {0};
    size_t at = 0;

    while (at <= names.len) {
        size_t end = at;
        while (end < names.len && !strchr(";,", names.data[end])) end++;
        if (!add_name(&order, (Str){names.data + at, end - at}, err)) return false;
        at = end + 1;
    }

    *out = order;
    return true;
}
