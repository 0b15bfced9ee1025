// Fuzz target: importance matrix files.
#include "tests/fuzz/targets.h"
#include "tests/make_gguf.h"
#include "quantize/imatrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_COLUMNS = 32 }; // of every matrix of the model

// Valid files with entries for two matrices of the model and one that it does not have. Bit 1 of i:
// one entry has no tokens.
static Str valid_file(int i) {
    static const char *const names[] = {"blk.0.attn_k.weight", "blk.0.ffn_down.weight",
                                        "blk.7.ffn_up.weight"};
    static Buffer files[4];
    float sums[N_COLUMNS];
    Maker m;
    char name[64];
    if (files[i].len) return buffer_str(&files[i]);
    for (int c = 0; c < N_COLUMNS; c++) sums[c] = (float)(c % 5);
    make_begin(&m);
    make_string(&m, "general.type", "imatrix");
    for (int k = 0; k < 3; k++) {
        float count = k == 1 && i & 2 ? 0 : 7;
        snprintf(name, sizeof name, "%s.in_sum2", names[k]);
        make_tensor(&m, name, TYPE_F32, N_COLUMNS, 1, sums, sizeof sums);
        snprintf(name, sizeof name, "%s.counts", names[k]);
        make_tensor(&m, name, TYPE_F32, 1, 1, &count, sizeof count);
    }
    files[i] = make_end(&m);
    return buffer_str(&files[i]);
}

static void check_columns(const Gguf *g, float *const *columns) {
    int n_known = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        const GgufTensor *t = &g->tensors[i];
        if (!columns[i]) continue;
        n_known++;
        for (uint64_t c = 0; c < imatrix_n_columns(t); c++) // mean 1 per matrix, 1/1000 at least
            HOLDS(columns[i][c] >= 1e-3f && columns[i][c] <= 2 * (float)t->dims[0]);
    }
    HOLDS(n_known);
}

void fuzz_imatrix(const uint8_t *data, size_t n) {
    static Gguf g;
    Error err;
    size_t len;
    if (n == 0) return;
    if (!g.n_tensors) {
        Str model = fuzz_valid_model(0);
        HOLDS(gguf_parse(&g, model.data, model.len, "valid", &err));
    }
    uint8_t *file = fuzz_mutate(valid_file, data, n, &len);
    const char *path = make_path("imatrix", file, len);
    free(file);
    float **columns = xalloc((size_t)g.n_tensors + 1, sizeof *columns);
    if (imatrix_read(columns, path, &g, &err)) {
        check_columns(&g, columns);
    } else {
        HOLDS((err.code == EXIT_MODEL || err.code == EXIT_RUNTIME) && *err.text);
        HOLDS(n > 1 || *data > 15); // an unchanged valid file is accepted
    }
    for (int i = 0; i < g.n_tensors; i++) free(columns[i]);
    free(columns);
}
