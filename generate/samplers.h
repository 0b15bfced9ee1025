// The samplers, and the order in which a Sampler applies them (sample.h).
#pragma once

#include "base/error.h"
#include "base/text.h"

// In the default order. Those before the temperature change logits, those after it drop tokens.
typedef enum {
    SAMPLER_PENALTIES, // repetition, presence and frequency
    SAMPLER_DRY,
    SAMPLER_TEMPERATURE,
    SAMPLER_TOP_K,
    SAMPLER_MIN_P,
    SAMPLER_TOP_P,
    N_SAMPLERS
} SamplerKind;

typedef struct {
    SamplerKind at[N_SAMPLERS]; // (n) in the order of application
    int n;                      // 0: all, in the default order; otherwise the others are off
} SamplerOrder;

// Reads llama.cpp's names, separated by semicolons or commas: "top_k;temperature". False with err
// (exit 2) unless every name is known here and occurs once.
bool samplers_parse(SamplerOrder *out, Str names, Error *err);
// The default order in place of one that is not set.
SamplerOrder samplers_resolve(const SamplerOrder *order);
// True if the order contains a sampler.
bool samplers_have(const SamplerOrder *order, SamplerKind kind);
const char *sampler_name(SamplerKind kind);
