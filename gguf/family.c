// The table of model families, and the checks that refuse all other files.
// Order: the two tables, keys and numbers, refused parts, values, family_read(), its results.
#include "gguf/family.h"

#include <math.h>
#include <stdio.h>

// clang-format off
static const Family families[] = {
    {.architecture = "llama",    .name = "Llama",     .has_rope_freqs = true, .has_yarn_betas = true,
     .is_llama = true, .experts = {.presence = EXPERTS_OPTIONAL, .is_normalized = true}},
    {.architecture = "qwen2",    .name = "Qwen 2",    .has_half_pairs = true},
    {.architecture = "qwen3",    .name = "Qwen 3",    .has_half_pairs = true, .has_qk_norm = true},
    {.architecture = "smollm3",  .name = "SmolLM3",   .no_rope_interval = 4},
    {.architecture = "granite",  .name = "Granite",   .has_scales = true, .has_rope_switch = true,
     .has_rope_freqs = true},
    {.architecture = "mistral3", .name = "Mistral 3", .has_temperature = true, .has_rope_freqs = true,
     .has_yarn_betas = true},
    {.architecture = "ernie4_5", .name = "ERNIE 4.5"},
    {.architecture = "eagle3",   .name = "EAGLE-3 draft head", .has_rope_freqs = true, .has_yarn_betas = true,
     .head_tensors = "fc.weight enc.output_norm.weight blk.0.attn_norm_2.weight d2t"},

    // Mixtures of experts.
    {.architecture = "qwen2moe", .name = "Qwen 2 MoE", .has_half_pairs = true,
     .experts = {.presence = EXPERTS_REQUIRED, .dim = EXPERT_DIM_SHARE, .shared_dim = SHARED_DIM_FFN, .has_shared_gate = true}},
    {.architecture = "qwen3moe", .name = "Qwen 3 MoE", .has_half_pairs = true, .has_qk_norm = true,
     .experts = {.presence = EXPERTS_REQUIRED, .dim = EXPERT_DIM_SHARE, .is_normalized = true}},
    {.architecture = "granitemoe", .name = "Granite MoE", .has_scales = true, .has_rope_freqs = true,
     .experts = {.presence = EXPERTS_OPTIONAL, .is_normalized = true}},
    {.architecture = "ernie4_5-moe", .name = "ERNIE 4.5 MoE",
     .experts = {.presence = EXPERTS_REQUIRED, .required = "expert_feed_forward_length interleave_moe_layer_step",
                 .is_normalized = true}},
    {.architecture = "olmoe", .name = "OLMoE", .has_half_pairs = true, .has_qk_row_norm = true,
     .experts = {.presence = EXPERTS_REQUIRED}},
    {.architecture = "bailingmoe2", .name = "Ling 2", .has_half_pairs = true, .has_qk_norm = true,
     .has_fused_qkv = true, .has_extra_blocks = true,
     .experts = {.presence = EXPERTS_REQUIRED, .required = "expert_feed_forward_length expert_gating_func",
                 .shared_dim = SHARED_DIM_COUNTED}},
    {.architecture = "dots1", .name = "dots.llm1", .has_half_pairs = true, .has_qk_norm = true,
     .experts = {.presence = EXPERTS_REQUIRED, .required = "expert_feed_forward_length expert_gating_func",
                 .shared_dim = SHARED_DIM_COUNTED}},
    {.architecture = "deepseek", .name = "DeepSeek MoE",
     .experts = {.presence = EXPERTS_REQUIRED, .required = "expert_feed_forward_length", .shared_dim = SHARED_DIM_COUNTED}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

// Parts of a model that only some families support, or none. A part is recognized by a metadata key,
// a tensor of the first layers, or the architecture.
static const struct {
    const char *key, *tensor, *architecture; // key without its prefix; a value of 0 means absent
    const char *part, *alternative;
    enum { NO_FAMILY, ALL_FAMILIES, EXPERT_FAMILIES, FUSED_QKV_FAMILIES } allowed_in;
} refused_parts[] = {
    {"expert_count", "ffn_gate_inp.weight", NULL, "a mixture of experts", "use a dense model", EXPERT_FAMILIES},
    {"ssm.state_size", "ssm_a", NULL, "recurrent layers", "use a model with attention in all layers", NO_FAMILY},
    {"wkv.head_size", "time_mix_key.weight", NULL, "recurrent layers", "use a model with attention in all layers", NO_FAMILY},
    {"shortconv.l_cache", "shortconv.conv.weight", NULL, "convolutions", "use a model with attention in all layers", NO_FAMILY},
    {"attn_logit_softcapping", NULL, NULL, "soft caps of attention scores", "use a model without soft caps", NO_FAMILY},
    {"final_logit_softcapping", NULL, NULL, "soft caps of logits", "use a model without soft caps", NO_FAMILY},
    {NULL, "post_attention_norm.weight", NULL, "norms after the attention (post-norms)", "use a model without them", NO_FAMILY},
    {NULL, "post_ffw_norm.weight", NULL, "norms after the FFN (post-norms)", "use a model without them", NO_FAMILY},
    {NULL, "attn_sinks.weight", NULL, "attention sinks", "use a model without them", NO_FAMILY},
    {NULL, "attn_qkv.weight", NULL, "q, k and v in one tensor", "convert it with attn_q, attn_k and attn_v", FUSED_QKV_FAMILIES},
    {"deepstack_mapping", NULL, NULL, "image features in several layers", "use a text model", NO_FAMILY},
    {NULL, NULL, "gemma", "another activation (GELU)", "use a model with SiLU", NO_FAMILY},
    {NULL, NULL, "arcee", "another activation (squared ReLU)", "use a model with SiLU", NO_FAMILY},
    // Some files have both LayerNorm's and RMSNorm's key. A window has no effect on short texts
    // (family_context).
    {"attention.layer_norm_epsilon", NULL, NULL, "LayerNorm", "use a model with RMSNorm", ALL_FAMILIES},
    {"attention.sliding_window", NULL, NULL, "sliding windows", "use a model with full attention", ALL_FAMILIES},
};
enum { N_PARTS = sizeof refused_parts / sizeof *refused_parts };
// clang-format on

FamilyKey family_key(const Gguf *g, const char *name) {
    FamilyKey key;
    Str architecture = gguf_get_text(g, "general.architecture");
    snprintf(key.text, sizeof key.text, "%.*s.%s", SHOWN(architecture), name);
    return key;
}

bool family_number(const Gguf *g, const char *name, bool zero_is_absent, double *out, Error *err) {
    FamilyKey key = family_key(g, name);
    double x;
    if (!gguf_find_value(g, key.text)) return true;
    if (!gguf_get_f64(g, key.text, &x, err)) return false;
    if (zero_is_absent && x == 0) return true;
    *out = x;
    return (x > 0 && x < 1e12) ||
           gguf_refuse(g, err, "%s: expected a positive number, found %g", key.text, x);
}

bool family_count(const Gguf *g, const char *name, int min, int max, int *out, Error *err) {
    FamilyKey key = family_key(g, name);
    uint64_t v;
    if (!gguf_get_u64(g, key.text, &v, err)) return false;
    *out = (int)v;
    return (v >= (uint64_t)min && v <= (uint64_t)max) ||
           gguf_refuse(g, err, "%s: expected %d to %d, found %llu", key.text, min, max,
                       (unsigned long long)v);
}

bool family_optional_count(const Gguf *g, const char *name, int min, int max, int *out,
                           Error *err) {
    return !gguf_find_value(g, family_key(g, name).text) ||
           family_count(g, name, min, max, out, err);
}

static bool has_tensor(const Gguf *g, const char *name) {
    bool is_found = false;
    for (int layer = 0; layer < 4; layer++) {
        char full[64];
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
        is_found |= gguf_find_tensor(g, full) != NULL;
    }
    return is_found;
}

// False with err if the file has one of refused_parts that its family does not support.
static bool check_parts(const Family *f, const Gguf *g, Str architecture, Error *err) {
    const bool is_allowed[] = {[ALL_FAMILIES] = f->name != NULL,
                               [EXPERT_FAMILIES] = f->experts.presence != EXPERTS_NONE,
                               [FUSED_QKV_FAMILIES] = f->has_fused_qkv};

    for (int i = 0; i < N_PARTS; i++) {
        if (is_allowed[refused_parts[i].allowed_in]) continue;
        const char *key = refused_parts[i].key, *tensor = refused_parts[i].tensor,
                   *name = refused_parts[i].architecture;
        double x = 0;
        if ((key && (!family_number(g, key, true, &x, err) || x != 0)) ||
            (tensor && has_tensor(g, tensor)) || (name && str_is(architecture, name)))
            return gguf_refuse(g, err, "%s (architecture \"%.*s\"): not supported; %s",
                               refused_parts[i].part, SHOWN(architecture),
                               refused_parts[i].alternative);
    }
    return true;
}

// Reads the values that only some families have.
static bool read_values(Family *f, const Gguf *g, Error *err) {
    const struct {
        const char *name;
        double *value, absent; // `absent`: the value of Llama
        bool is_read;
    } values[] = {
        {"embedding_scale", &f->embed_scale, 1, f->has_scales},
        {"residual_scale", &f->residual_scale, 1, f->has_scales},
        {"attention.scale", &f->attn_scale, 0, f->has_scales},
        {"logit_scale", &f->logit_scale, 1, f->has_scales},
        {"attention.temperature_scale", &f->temperature, 0, f->has_temperature},
        {"context_length", &f->orig_context, 8192, true},
        {"rope.scaling.original_context_length", &f->orig_context, 0, true},
        {"rope.scaling.attn_factor", &f->yarn.magnitude, 1, !f->is_llama},
        {"rope.scaling.yarn_beta_fast", &f->yarn.beta_fast, 32, f->has_yarn_betas},
        {"rope.scaling.yarn_beta_slow", &f->yarn.beta_slow, 1, f->has_yarn_betas},
        {"rope.scaling.yarn_attn_factor", &f->yarn.attn_factor, 0, f->is_llama},
        {"rope.scaling.yarn_log_multiplier", &f->yarn.log_multiplier, 0, f->has_temperature},
        {"attention.sliding_window", &f->window, 0, true},
    };
    bool has_rope = true;
    double required;

    // A value that is 0 in the family's row defaults to Llama's; the metadata overrides both.
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (*values[i].value == 0) *values[i].value = values[i].absent;
        if (values[i].is_read && !family_number(g, values[i].name, true, values[i].value, err))
            return false;
    }

    FamilyKey original = family_key(g, "rope.scaling.original_context_length");
    if (gguf_find_value(g, original.text) && !(f->orig_context >= 1 && f->orig_context < INT32_MAX))
        return gguf_refuse(g, err, "%s: expected a context length, found %g", original.text,
                           f->orig_context);
    f->orig_context = fmin(f->orig_context, INT32_MAX); // read_config() checks context_length

    if (!f->has_scales) return true;

    // Granite: logit_scale is required, and the file may disable RoPE.
    if (!gguf_get_f64(g, family_key(g, "logit_scale").text, &required, err) ||
        (f->has_rope_switch &&
         !gguf_get_bool(g, family_key(g, "rope.scaling.finetuned").text, &has_rope, err)))
        return false;
    if (!has_rope) f->no_rope_interval = 1;

    return true;
}

bool family_read(Family *f, const Gguf *g, bool is_draft, Error *err) {
    char names[200] = "";
    Str architecture;
    *f = (Family){0};
    if (!gguf_get_string(g, "general.architecture", &architecture, err)) return false;

    for (int i = 0; i < N_FAMILIES; i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", families[i].architecture);
        if (str_is(architecture, families[i].architecture)) *f = families[i];
    }

    if (!check_parts(f, g, architecture, err)) return false;
    if (!f->name)
        return gguf_refuse(g, err, "general.architecture: expected %s; found \"%.*s\"", names,
                           SHOWN(architecture));
    if (f->head_tensors && !is_draft)
        return gguf_refuse(
            g, err, "this is an %s; pass its target model with -m, and the head with --draft",
            f->name);
    if (!f->has_rope_freqs && gguf_find_tensor(g, "rope_freqs.weight"))
        return gguf_refuse(g, err, "tensor rope_freqs.weight: not part of a %s model", f->name);

    return read_values(f, g, err);
}

bool family_uses_tensor(const Family *f, Str name) {
    return str_is(name, "rope_freqs.weight") ||
           (f->head_tensors && str_is_one_of(name, f->head_tensors));
}

float family_attn_scale(const Family *f, int head_dim, int pos) {
    float scale = f->attn_scale > 0 ? (float)f->attn_scale : 1.0f / sqrtf((float)head_dim);
    if (f->temperature == 0) return scale;
    return scale * (float)(1 + f->temperature * log(1 + floor(pos / f->orig_context)));
}

bool family_has_rope(const Family *f, int layer) {
    return !f->no_rope_interval || (layer + 1) % f->no_rope_interval;
}

int family_context(const Family *f, const Gguf *g, int max_context) {
    if (f->window == 0 || f->window >= max_context) return max_context;
    warn("%s: a sliding window of %.0f positions is not supported; the context is limited to that "
         "many (of %d), up to which it has no effect",
         g->path, f->window, max_context);
    return (int)ceil(f->window);
}
