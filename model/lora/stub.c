// Replaces model/lora/ in a program built with WITHOUT=lora. The option table refuses --lora, so no
// adapter is ever opened and no tensor has one.
#include "model/lora/lora.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

bool lora_open(Lora *a, const LoraOption *option, const char *architecture, Error *err) {
    return error_set(err, EXIT_USAGE, "this build has no LoRA adapters (built with WITHOUT=lora)");
}
bool lora_attach(Lora *a, const char *name, Tensor *w, bool is_embedding, Error *err) {
    return true;
}
bool lora_check(const Lora *a, Error *err) { return true; }
void lora_close(Lora *a) {}
bool lora_is_batch_invariant(const Tensor *w) { return true; }
void lora_scratch_reserve(LoraScratch *s, MatmulScratch *matmul, const Tensor *const *weights,
                          int n_weights, int n) {
    matmul_scratch_reserve(matmul, weights, n_weights, n, 1);
}
void lora_matmuls(const LoraScratch *s, const MatmulScratch *matmul, const Product *products,
                  int n_products, Exactness exactness) {
    ops_matmuls(matmul, products, n_products, exactness);
}
void lora_embed(float *out, const Tensor *w, const int *tokens, int n) {}
