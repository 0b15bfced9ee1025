// rope: the rotary frequencies of a model, or the rows of its cis table, as CSV.
#include "verbs.h"

#include <math.h>
#include <stdio.h>

// What scaling did to a frequency: "kept", "interpolated" (divided by the whole factor) or "smoothed" (between).
static const char *band(const RopeParams *p, double base, double freq) {
    double divisor = base / freq, factor = p->factor;
    if (p->rule == ROPE_FILE)
        for (int i = 0; i < p->dim / 2; i++)
            if ((double)p->divisors[i] > factor) factor = (double)p->divisors[i];
    if (fabs(divisor - 1) < 1e-5) return "kept";
    return divisor > factor * (1 - 1e-5) ? "interpolated" : "smoothed";
}

int verb_rope(const Options *o) {
    const ModelOptions *m = &o->model_options;
    RopeParams p = {.dim = o->dim,
                    .theta = 10000,
                    .factor = 1,
                    .low_freq_factor = 1,
                    .high_freq_factor = 4,
                    .beta_fast = 32,
                    .beta_slow = 1,
                    .orig_ctx = 8192};
    Gguf file;
    Error err;
    if (o->dim % 2) die(EXIT_USAGE, "--dim: expected an even number, found %d", o->dim);
    if (!o->dim) {
        uint64_t dim = 0, heads = 0, head_dim;
        if (!model_open_file(&file, o->model, &err)) die_error(&err);
        if (!gguf_u64(&file, "llama.embedding_length", &dim, &err) ||
            !gguf_u64(&file, "llama.attention.head_count", &heads, &err))
            die_error(&err);
        head_dim = heads ? dim / heads : 0;
        if (gguf_find(&file, "llama.attention.key_length") &&
            !gguf_u64(&file, "llama.attention.key_length", &head_dim, &err))
            die_error(&err);
        if (head_dim < 2 || head_dim > 65536)
            die(EXIT_MODEL, "%s: expected a head of 2 to 65536 values, found %llu", file.path,
                (unsigned long long)head_dim);
        if (!rope_params_read(&p, &file, (int)head_dim, &err)) die_error(&err);
    }
    if (!rope_params_override(&p, m->rope_rule, m->rope_theta, m->rope_scale, m->rope_orig_ctx, &err)) die_error(&err);

    Rope rope, base;
    RopeParams unscaled = p;
    unscaled.rule = ROPE_NONE;
    rope_init(&rope, &p);
    rope_init(&base, &unscaled);
    if (o->positions < 0) {
        printf("i,frequency,wavelength,band\n");
        for (int i = 0; i < p.dim / 2; i++)
            printf("%d,%.9g,%.9g,%s\n", i, (double)rope.freqs[i], 2 * M_PI / (double)rope.freqs[i],
                   band(&p, (double)base.freqs[i], (double)rope.freqs[i]));
    } else {
        printf("pos,i,cos,sin\n");
        for (int pos = 0; pos < o->positions; pos++) {
            rope_reserve(&rope, pos + 1);
            for (int i = 0; i < p.dim / 2; i++) {
                size_t at = (size_t)pos * (size_t)(p.dim / 2) + (size_t)i;
                printf("%d,%d,%.9g,%.9g\n", pos, i, (double)rope.cos[at], (double)rope.sin[at]);
            }
        }
    }
    stdout_flush();
    rope_free(&rope);
    rope_free(&base);
    if (!o->dim) gguf_close(&file);
    return EXIT_OK;
}
