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
    static Model model;
    static Rope base, scaled;
    Error err;
    if (!model_open(&model, o->model, &o->model_options, &err)) die_error(&err);
    Rope *rope = &scaled;
    const RopeParams *p = &model.rope;
    RopeParams unscaled = *p;
    unscaled.rule = ROPE_NONE;
    rope_init(&base, &unscaled);
    rope_init(rope, p);
    if (o->positions < 0) {
        printf("i,frequency,wavelength,band\n");
        for (int i = 0; i < p->dim / 2; i++)
            printf("%d,%.9g,%.9g,%s\n", i, (double)rope->freqs[i], 2 * M_PI / (double)rope->freqs[i],
                   band(p, (double)base.freqs[i], (double)rope->freqs[i]));
        return EXIT_OK;
    }
    printf("pos,i,cos,sin\n");
    for (int pos = 0; pos < o->positions; pos++) {
        rope_reserve(rope, pos + 1);
        for (int i = 0; i < p->dim / 2; i++) {
            size_t at = (size_t)pos * (size_t)(p->dim / 2) + (size_t)i;
            printf("%d,%d,%.9g,%.9g\n", pos, i, (double)rope->cos[at], (double)rope->sin[at]);
        }
    }
    return EXIT_OK;
}
