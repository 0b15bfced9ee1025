// See mixture.h.
#include "quantize/mixture.h"
#include "gguf/family.h"
#include "kernels/quant.h"

#include <strings.h>

// clang-format off
static const Mixture mixtures[] = {
    {"F32", 0, TYPE_F32},         {"F16", 1, TYPE_F16},        {"BF16", 32, TYPE_BF16},
    {"Q8_0", 7, TYPE_Q8_0},       {"Q6_K", 18, TYPE_Q6_K},     {"Q5_K_M", 17, TYPE_Q5_K},
    {"Q5_K_S", 16, TYPE_Q5_K},    {"Q5_1", 9, TYPE_Q5_1},      {"Q5_0", 8, TYPE_Q5_0},
    {"Q4_K_M", 15, TYPE_Q4_K},    {"Q4_K_S", 14, TYPE_Q4_K},   {"IQ4_NL", 25, TYPE_IQ4_NL},
    {"IQ4_XS", 30, TYPE_IQ4_XS},  {"Q4_1", 3, TYPE_Q4_1},      {"Q4_0", 2, TYPE_Q4_0},
    {"Q3_K_L", 13, TYPE_Q3_K},    {"Q3_K_M", 12, TYPE_Q3_K},   {"Q3_K_S", 11, TYPE_Q3_K},
    {"IQ3_M", 27, TYPE_IQ3_S},    {"IQ3_S", 26, TYPE_IQ3_S},   {"IQ3_XXS", 23, TYPE_IQ3_XXS},
    {"Q2_K", 10, TYPE_Q2_K},
};
// clang-format on
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

// The scope of a rule: layers, and conditions that must all be true.
enum {
    ALL_LAYERS,
    FIRST_2,          // layers 0 and 1
    FIRST_4,          // layers 0 to 3
    FIRST_16TH,       // the first sixteenth of the layers
    FIRST_8TH,        // the first eighth
    SPREAD,           // the first and last eighth, and every third layer between them
    LAYERS = 7,       // the bits of the above
    IF_8 = 8,         // the model has exactly 8 experts (Mixtral)
    IF_GQA = 16,      // four or more query heads share a KV head
    NO_IMATRIX = 32,  // there is no importance matrix
    WITH_IMATRIX = 64 // there is one
};

// Rules of mixtures for tensors whose name contains one of `parts`; names are separated by a space.
// The first rule that applies wins. The part ffn_down includes the experts (ffn_down_exps).
typedef struct {
    const char *mixtures, *parts; // mixtures NULL: all
    unsigned scope;
    Type type;
} MixtureRule;

static const MixtureRule rules[] = {
    {NULL, "attn_v attn_qkv attn_k", IF_8, TYPE_Q8_0},
    {"Q3_K_L", "attn_output", IF_8, TYPE_Q3_K},
    {"Q4_K_M Q4_K_S IQ4_NL IQ4_XS Q3_K_M Q3_K_S IQ3_M IQ3_S IQ3_XXS Q2_K", "attn_output", IF_8,
     TYPE_Q5_K},
    {"IQ3_M", "ffn_down", SPREAD | IF_8, TYPE_Q4_K},
    {"Q5_K_M Q4_K_M", "attn_v attn_qkv ffn_down", SPREAD, TYPE_Q6_K},
    {"Q5_0", "ffn_down", FIRST_8TH | WITH_IMATRIX, TYPE_Q5_1},
    {"Q4_K_S", "attn_v attn_qkv", FIRST_4, TYPE_Q5_K},
    {"Q4_K_S", "ffn_down", FIRST_8TH, TYPE_Q5_K},
    {"Q4_0", "ffn_down", FIRST_8TH | WITH_IMATRIX, TYPE_Q4_1},
    {"IQ4_NL IQ4_XS", "attn_v attn_qkv", IF_GQA, TYPE_Q5_K},
    {"IQ4_NL IQ4_XS", "ffn_down", FIRST_8TH | NO_IMATRIX, TYPE_Q5_K},
    {"Q3_K_L", "attn_v attn_qkv attn_output ffn_down", ALL_LAYERS, TYPE_Q5_K},
    {"Q3_K_M", "attn_v attn_qkv", FIRST_2, TYPE_Q5_K},
    {"Q3_K_M", "ffn_down", FIRST_16TH, TYPE_Q5_K},
    {"Q3_K_M", "attn_v attn_qkv attn_output ffn_down", ALL_LAYERS, TYPE_Q4_K},
    {"IQ3_M", "attn_v attn_qkv attn_output", ALL_LAYERS, TYPE_Q4_K},
    {"IQ3_M", "ffn_down", FIRST_8TH, TYPE_Q4_K},
    {"IQ3_S IQ3_XXS Q2_K", "attn_v attn_qkv", IF_GQA, TYPE_Q4_K},
    {"IQ3_XXS", "token_embd attn_output", ALL_LAYERS, TYPE_IQ3_S},
    {"IQ3_XXS", "attn_q.weight attn_k.weight", ALL_LAYERS, TYPE_IQ2_S},
    {"IQ3_XXS", "attn_v attn_qkv", NO_IMATRIX, TYPE_IQ3_S},
    {"IQ3_XXS", "ffn_down", FIRST_8TH | NO_IMATRIX, TYPE_Q4_K},
    {"IQ3_XXS", "ffn_down", NO_IMATRIX, TYPE_Q3_K},
    {"Q2_K", "attn_v attn_qkv attn_output ffn_down", ALL_LAYERS, TYPE_Q3_K},
};
enum { N_RULES = sizeof rules / sizeof *rules };

// The properties of a model that rules depend on.
typedef struct {
    const Mixture *mixture;
    int n_layers;
    int n_heads, n_kv_heads; // 0: unknown
    int n_experts;           // 0: none
    bool is_tied;            // the embedding is the output matrix too
    bool has_imatrix;
} RuleInput;

const char *mixture_name(int i) { return i < N_MIXTURES ? mixtures[i].name : NULL; }

const Mixture *mixture_find(const char *name, Error *err) {
    Buffer names = {0};
    for (int i = 0; i < N_MIXTURES; i++)
        if (!strcasecmp(name, mixtures[i].name)) return &mixtures[i];
    for (int i = 0; i < N_MIXTURES; i++)
        buffer_printf(&names, "%s%s", i ? ", " : "", mixtures[i].name);
    error_set(err, EXIT_USAGE, "quantize: unknown type \"%s\"%s; types: %s", name,
              did_you_mean(name, &mixtures->name, sizeof *mixtures, N_MIXTURES), names.data);
    buffer_free(&names);
    return NULL;
}

// True if a layer is in a scope.
static bool scope_has(const RuleInput *in, unsigned scope, int layer) {
    int n = in->n_layers;
    bool has_gqa = in->n_kv_heads && in->n_heads / 4 >= in->n_kv_heads;

    if (scope & IF_8 && in->n_experts != 8) return false;
    if (scope & IF_GQA && !has_gqa) return false;
    if (scope & (in->has_imatrix ? NO_IMATRIX : WITH_IMATRIX)) return false;

    switch (scope & LAYERS) {
    case FIRST_2: return layer < 2;
    case FIRST_4: return layer < 4;
    case FIRST_16TH: return layer < n / 16;
    case FIRST_8TH: return layer < n / 8;
    case SPREAD: return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    default: return true;
    }
}

static bool contains_one_of(Str name, const char *parts) {
    for (size_t n; (n = strcspn(parts, " ")); parts += n + (parts[n] == ' '))
        if (str_find(name, (Str){parts, n}) != SIZE_MAX) return true;
    return false;
}

static bool rule_applies(const MixtureRule *rule, const RuleInput *in, Str name) {
    if (rule->mixtures && !str_is_one_of(str_of(in->mixture->name), rule->mixtures)) return false;
    return contains_one_of(name, rule->parts) &&
           scope_has(in, rule->scope, gguf_tensor_layer(name));
}

// The output matrix gets more bits than other tensors.
static Type output_type(Type type, const GgufTensor *t) {
    if (type == TYPE_Q8_0 || t->dims[0] % (uint64_t)type_info(type)->block) return TYPE_Q8_0;
    return type == TYPE_IQ3_XXS ? TYPE_Q5_K : TYPE_Q6_K;
}

static Type rule_type(const RuleInput *in, const GgufTensor *t) {
    Type type = in->mixture->type;
    const char *output = in->is_tied ? "token_embd.weight" : "output.weight";
    if (str_is(t->name, output)) return output_type(type, t);

    const MixtureRule *rule = rules;
    while (rule < rules + N_RULES && !rule_applies(rule, in, t->name)) rule++;
    if (rule < rules + N_RULES) type = rule->type;

    // Llama 2 and 3 70B: attn_v has an eighth of the rows of attn_q, so more bits cost little.
    bool is_70b = in->n_layers == 80 && in->n_heads != in->n_kv_heads;
    bool is_small = type == TYPE_Q3_K || type == TYPE_Q4_K;
    if (is_70b && is_small && str_ends_with(t->name, "attn_v.weight")) return TYPE_Q5_K;
    return type;
}

// The type with blocks of 32 that replaces a type with superblocks.
static const Type type_of_32[TYPE_COUNT] = {
    [TYPE_Q2_K] = TYPE_Q4_0,      [TYPE_Q3_K] = TYPE_Q4_0,    [TYPE_Q4_K] = TYPE_Q5_0,
    [TYPE_Q5_K] = TYPE_Q5_1,      [TYPE_Q6_K] = TYPE_Q8_0,    [TYPE_IQ2_S] = TYPE_IQ4_NL,
    [TYPE_IQ3_XXS] = TYPE_IQ4_NL, [TYPE_IQ3_S] = TYPE_IQ4_NL, [TYPE_IQ4_XS] = TYPE_IQ4_NL};

// Vectors (also a matrix of one row), norms and the router of a mixture of experts keep their type.
// If the row length is not a multiple of 256, the tensor gets a type with blocks of 32; if it is
// not a multiple of 32 either, F16.
static Type tensor_type(const RuleInput *in, const GgufTensor *t) {
    if (gguf_n_rows(t) < 2 || !str_ends_with(t->name, "weight") ||
        str_ends_with(t->name, "_norm.weight") || str_ends_with(t->name, "ffn_gate_inp.weight"))
        return (Type)t->type;
    if (!quant_is_integer(in->mixture->type)) return in->mixture->type;

    Type type = rule_type(in, t);
    if (t->dims[0] % 256 && type_info(type)->block == 256) type = type_of_32[type];
    return t->dims[0] % (uint64_t)type_info(type)->block ? TYPE_F16 : type;
}

void mixture_choose_types(const Mixture *m, const Gguf *g, bool has_imatrix, GgufTensor *tensors) {
    RuleInput in = {
        .mixture = m, .is_tied = !gguf_find_tensor(g, "output.weight"), .has_imatrix = has_imatrix};
    Error ignored; // other architectures may have no such keys

    family_count(g, "attention.head_count", 0, INT32_MAX, &in.n_heads, &ignored);
    in.n_kv_heads = in.n_heads;
    family_count(g, "attention.head_count_kv", 0, INT32_MAX, &in.n_kv_heads, &ignored);
    family_count(g, "expert_count", 0, INT32_MAX, &in.n_experts, &ignored);
    for (int i = 0; i < g->n_tensors; i++) {
        int layer = gguf_tensor_layer(g->tensors[i].name);
        if (layer >= in.n_layers) in.n_layers = layer + 1;
    }

    for (int i = 0; i < g->n_tensors; i++) {
        tensors[i] = g->tensors[i];
        tensors[i].type = tensor_type(&in, &g->tensors[i]);
    }
}
