// Loading: valid and invalid metadata and tensors, and the message of each refusal.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "model/load.h"

#include <string.h>

// A model with one entry left out or replaced is refused with exit 3 and this message.
static void expect_refusal(const char *key, void (*replace)(Maker *m), const char *says) {
    Maker maker;
    Gguf g;
    Model m;
    Error err = {0};

    make_begin(&maker);
    maker.skip = key;
    make_llama(&maker, (MakeLlama){0});
    maker.skip = NULL;
    if (replace) replace(&maker);

    Buffer bytes = make_end(&maker);
    bool is_open = gguf_parse(&g, bytes.data, bytes.len, "bad", &err) &&
                   model_bind(&m, &g, &(ModelOptions){0}, &err);

    CHECK(!is_open, "%s was accepted", key);
    if (is_open)
        model_close(&m);
    else
        CHECK(err.code == EXIT_MODEL && test_matches(err.text, says), "%s: exit %d, %s", key,
              err.code, err.text);

    buffer_free(&bytes);
}

static void heads_zero(Maker *m) { make_u32(m, "llama.attention.head_count", 0); }
static void heads_five(Maker *m) { make_u32(m, "llama.attention.head_count", 5); }
static void kv_heads_three(Maker *m) { make_u32(m, "llama.attention.head_count_kv", 3); }
static void kv_heads_zero(Maker *m) { make_u32(m, "llama.attention.head_count_kv", 0); }
static void layers_zero(Maker *m) { make_u32(m, "llama.block_count", 0); }
static void layers_many(Maker *m) { make_u32(m, "llama.block_count", 513); }
static void layers_2_32(Maker *m) { make_u32(m, "llama.block_count", 0xffffffffu); }
static void context_2_32(Maker *m) { make_u32(m, "llama.context_length", 0xffffffffu); }
static void eps_zero(Maker *m) { make_f32(m, "llama.attention.layer_norm_rms_epsilon", 0); }
static void eps_nan(Maker *m) {
    make_f32(m, "llama.attention.layer_norm_rms_epsilon", __builtin_nanf(""));
}
static void theta_negative(Maker *m) { make_f32(m, "llama.rope.freq_base", -1); }
static void theta_vast(Maker *m) {
    make_value(m, "llama.rope.freq_base", GGUF_F64, 0x426d1a94a2000000u); // 1e12
}
static void dim_string(Maker *m) { make_string(m, "llama.embedding_length", "64"); }
static void gpt(Maker *m) { make_string(m, "general.architecture", "gpt2"); }
static void wide_q(Maker *m) {
    make_tensor(m, "blk.0.attn_q.weight", TYPE_F32, 64, 128, NULL, 64 * 128 * 4);
}
static void mxfp4_q(Maker *m) {
    make_u32(m, "general.file_type", 38);
    make_tensor(m, "blk.0.attn_q.weight", 39, 64, 64, NULL, 64 * 2 * 17);
}
static void flat_norm(Maker *m) {
    make_tensor(m, "output_norm.weight", TYPE_F32, 32, 1, NULL, 32 * 4);
}

static void refusals(void) {
    expect_refusal("llama.attention.head_count", heads_zero, "head_count: expected ... found 0");
    expect_refusal("llama.attention.head_count", heads_five, "head_count_kv: expected ... found 2");
    expect_refusal("llama.attention.head_count_kv", kv_heads_three,
                   "head_count_kv: expected ... found 3");
    expect_refusal("llama.attention.head_count_kv", kv_heads_zero,
                   "head_count_kv: expected ... found 0");

    expect_refusal("llama.block_count", layers_zero, "block_count: expected ... found 0");
    expect_refusal("llama.block_count", layers_many, "block_count: expected ... found 513");
    expect_refusal("llama.block_count", layers_2_32, "block_count: expected ... found 4294967295");
    expect_refusal("llama.block_count", NULL,
                   "block_count: missing key (expected an unsigned integer)");

    expect_refusal("llama.context_length", context_2_32, "context_length: expected 1 to 268435456");
    expect_refusal("llama.attention.layer_norm_rms_epsilon", eps_zero,
                   "epsilon: expected ... found 0");
    expect_refusal("llama.attention.layer_norm_rms_epsilon", eps_nan,
                   "epsilon: expected ... found nan");
    expect_refusal("llama.rope.freq_base", theta_negative, "freq_base: expected ... found -1");
    expect_refusal("llama.rope.freq_base", theta_vast, "freq_base: expected ... found 1e+12");
    expect_refusal("llama.embedding_length", dim_string,
                   "embedding_length: expected ... found string");
    expect_refusal("general.architecture", gpt, "architecture: expected ... found \"gpt2\"");

    // Tensors.
    expect_refusal("blk.0.attn_q.weight", wide_q,
                   "tensor blk.0.attn_q.weight: expected ... found (128, 64)");
    expect_refusal("blk.0.attn_q.weight", mxfp4_q,
                   "unsupported type MXFP4 (use Q4_K_M) in a file of type MXFP4_MOE");
    expect_refusal("output_norm.weight", flat_norm,
                   "tensor output_norm.weight: expected ... found (1, 32)");
    expect_refusal("blk.1.ffn_down.weight", NULL,
                   "tensor blk.1.ffn_down.weight: expected ... found no such");
    expect_refusal("token_embd.weight", NULL,
                   "tensor token_embd.weight: expected ... found no such");
}

// The shapes follow from the metadata. A tied model has its embedding as output matrix.
static void bound(void) {
    for (int is_tied = 0; is_tied < 2; is_tied++) {
        Gguf g;
        Model m;
        Error err;
        Buffer bytes = make_llama_file((MakeLlama){.is_tied = is_tied, .n_kv_heads = 2});
        bool ok = gguf_parse(&g, bytes.data, bytes.len, "good", &err) &&
                  model_bind(&m, &g, &(ModelOptions){0}, &err);
        CHECK(ok, "%s", err.text);
        if (!ok) continue;

        const Config *c = &m.config;
        CHECK(c->dim == 64 && c->n_heads == 4 && c->n_kv_heads == 2 && c->head_dim == 16,
              "%d %d %d %d", c->dim, c->n_heads, c->n_kv_heads, c->head_dim);
        CHECK(m.kv.k_type == TYPE_F16 && m.kv.v_type == TYPE_F16 && m.kv.n_layers == c->n_layers,
              "the default cache is F16");
        CHECK((m.output.data == m.embed.data) == is_tied, "tied %d", is_tied);

        model_close(&m);
        buffer_free(&bytes);
    }
}

void test_model_load(void) {
    test_case("load: hyper-parameters and tensors", bound);
    test_case("load: refusals", refusals);
}
