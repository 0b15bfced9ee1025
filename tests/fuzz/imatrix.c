// The readers of importance matrices: their source, in which what ends the program ends the
// reading.
#include "targets.h"
#include "../make_gguf.h"
#include "../../base/files.h"
#include "../../cli/open_model.h"
#include "../../cli/output.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf refused;
static Gguf *opened; // both are left to the end of the process
static Buffer *kept;

static _Noreturn void refuse_error(const Error *err) {
    HOLDS((err->code == EXIT_MODEL || err->code == EXIT_RUNTIME) && *err->text);
    longjmp(refused, 1);
}
static _Noreturn void refuse(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
static _Noreturn void refuse(int code, const char *fmt, ...) {
    Error err = {.code = code};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err.text, sizeof err.text, fmt, ap);
    va_end(ap);
    refuse_error(&err);
}
static bool open_noted(Gguf *g, const char *path, Error *err) {
    return gguf_open(g, path, err) && (opened = g);
}
static bool read_noted(const char *path, Buffer *out, Error *err) {
    return file_read(path, kept = out, err);
}

#define imatrix_read      fuzz_imatrix_read
#define imatrix_calibrate fuzz_imatrix_calibrate
#define die               refuse
#define die_error         refuse_error
#define gguf_open         open_noted
#define file_read         read_noted
#include "../../quantize/imatrix.c"

enum { N_COLUMNS = 32 }; // of all matrices of the model

// For two matrices and one that the model lacks: as GGUF, in the older form, and each of them with
// one matrix that nothing is known of.
static Str sound_matrix(int i) {
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
    if (i & 1) make_le(&files[i], 3, 4);
    for (int k = 0; k < 3; k++) {
        float count = k == 1 && i & 2 ? 0 : 7;
        if (i & 1) {
            make_le(&files[i], strlen(names[k]), 4);
            buffer_puts(&files[i], names[k]);
            make_le(&files[i], (uint64_t)count, 4);
            make_le(&files[i], N_COLUMNS, 4);
            buffer_append(&files[i], sums, sizeof sums);
            continue;
        }
        snprintf(name, sizeof name, "%s.in_sum2", names[k]);
        make_tensor(&m, name, TYPE_F32, N_COLUMNS, 1, sums, sizeof sums);
        snprintf(name, sizeof name, "%s.counts", names[k]);
        make_tensor(&m, name, TYPE_F32, 1, 1, &count, sizeof count);
    }
    Buffer gguf = make_end(&m);
    if (i & 1)
        buffer_free(&gguf);
    else
        files[i] = gguf;
    return buffer_str(&files[i]);
}

// What is read is of mean 1 in each matrix, and no column is nothing.
static void check_columns(const Gguf *g, const Imatrix *m) {
    int n_known = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        if (!m->columns[i]) continue;
        n_known++;
        for (uint64_t c = 0; c < n_columns(&g->tensors[i]); c++)
            HOLDS(m->columns[i][c] >= 1e-3f &&
                  m->columns[i][c] <= 2 * (float)g->tensors[i].dims[0]);
    }
    HOLDS(n_known);
}

void fuzz_imatrix(const uint8_t *data, size_t n) {
    static Gguf g;
    static Imatrix m;
    Error err;
    size_t len;
    if (n == 0) return;
    if (!g.n_tensors) {
        Str model = fuzz_sound_model(0);
        HOLDS(gguf_parse(&g, model.data, model.len, "sound", &err));
    }
    uint8_t *file = fuzz_file_of(sound_matrix, data, n, &len);
    const char *path = make_path("imatrix", file, len);
    free(file);
    m = (Imatrix){0};
    if (!setjmp(refused)) {
        fuzz_imatrix_read(&m, path, &g);
        check_columns(&g, &m);
    } else {
        HOLDS(n > 1 || *data > 15); // a sound file is read
    }
    for (int i = 0; m.columns && i < g.n_tensors; i++) free(m.columns[i]);
    free(m.columns);
    if (opened) gguf_close(opened);
    if (kept) kept->len = 0;
    opened = NULL;
}
