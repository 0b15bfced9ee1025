// rope: what a model's rotary embedding does, or would do: frequencies, rows of the cis table, a
// vector turned, the decay of q.k with distance, under one scaling rule or several. CSV, or JSON
// with the same columns.
#include "commands.h"
#include "../base/json.h"
#include "../cli/output.h"
#include "../generate.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What a row is about: a pair of dimensions, a pair at a position, a pair of a vector there, a
// distance.
typedef enum { PAIRS = 1, TABLE = 2, VECTOR = 4, DISTANCES = 8 } RowKind;

// One row as one rule sees it.
typedef struct {
    const Rope *rope, *unscaled;
    const float *vector; // (dim), of --rotate
    int pos, i;
} Row;

typedef struct {
    const char *name;
    int kinds;                     // of rows that have it
    int defaults;                  // of rows that show it when nobody asks
    double (*value)(const Row *r); // NULL: the band's name
} Column;

static double frequency(const Row *r) { return (double)rope_freq(r->rope, r->pos, r->i); }
static double wavelength(const Row *r) { return 2 * M_PI / frequency(r); }
static double unscaled(const Row *r) { return (double)r->unscaled->freqs[r->i]; }
static double unscaled_wavelength(const Row *r) { return 2 * M_PI / unscaled(r); }

// By how much the rule divides at most.
static double factor_of(const RopeParams *p) {
    double factor = p->factor;
    for (int i = 0; p->rule == ROPE_FILE && i < p->dim / 2; i++)
        if ((double)p->divisors[i] > factor) factor = (double)p->divisors[i];
    return factor;
}

// How far the rule has gone from the kept frequency (0) to the one divided by the whole factor (1).
// Quotients of float32 values: what is nearly kept or nearly divided is so.
static double ramp(const Row *r) {
    double divisor = unscaled(r) / frequency(r), factor = factor_of(&r->rope->params);
    if (fabs(divisor - 1) < 1e-5) return 0;
    return divisor > factor * (1 - 1e-5) ? 1 : (1 - 1 / divisor) / (1 - 1 / factor);
}

static const char *band(const Row *r) {
    double share = ramp(r);
    return share == 0 ? "kept" : share == 1 ? "interpolated" : "smoothed";
}

static double angle_in(const Rope *rope, const Row *r, float *c, float *s) {
    return (double)rope_cis(rope, r->pos, r->i, c, s);
}
static double angle(const Row *r) { return angle_in(r->rope, r, &(float){0}, &(float){0}); }
static double unscaled_angle(const Row *r) {
    return angle_in(r->unscaled, r, &(float){0}, &(float){0});
}
static double degrees(const Row *r) { return fmod(angle(r) * (180 / M_PI), 360); }

static double cosine(const Row *r) {
    float c, s;
    angle_in(r->rope, r, &c, &s);
    return (double)c;
}

static double sine(const Row *r) {
    float c, s;
    angle_in(r->rope, r, &c, &s);
    return (double)s;
}

static double unscaled_cosine(const Row *r) {
    return cosine(&(Row){r->unscaled, r->unscaled, NULL, r->pos, r->i});
}
static double unscaled_sine(const Row *r) {
    return sine(&(Row){r->unscaled, r->unscaled, NULL, r->pos, r->i});
}

static double before_x(const Row *r) { return (double)r->vector[2 * r->i]; }
static double before_y(const Row *r) { return (double)r->vector[2 * r->i + 1]; }
static double after_x(const Row *r) { return before_x(r) * cosine(r) - before_y(r) * sine(r); }
static double after_y(const Row *r) { return before_x(r) * sine(r) + before_y(r) * cosine(r); }

// Mean of q.k over all q = k of length 1, k further back by `pos`: each pair adds the cosine of its
// angle.
static double mean_product(const Row *r) {
    int half = r->rope->params.dim / 2;
    double sum = 0;
    for (int i = 0; i < half; i++) sum += cosine(&(Row){r->rope, r->unscaled, NULL, r->pos, i});
    return sum / half * (double)r->rope->scale;
}

// Section 3.4.3 of Su et al. 2021: the mean length of the partial sums of e^(i angle), by which q.k
// is bounded.
static double bound(const Row *r) {
    int half = r->rope->params.dim / 2;
    double re = 0, im = 0, sum = 0;
    for (int i = 0; i < half; i++) {
        float c, s;
        rope_cis(r->rope, r->pos, i, &c, &s);
        re += (double)c, im += (double)s;
        sum += sqrt(re * re + im * im);
    }
    return sum / half * (double)r->rope->scale;
}

static double row_pos(const Row *r) { return r->pos; }
static double row_pair(const Row *r) { return r->i; }

// In the order of printing. The first three name the row and are always there.
static const Column columns[] = {
    {"pos", TABLE | VECTOR, TABLE | VECTOR, row_pos},
    {"distance", DISTANCES, DISTANCES, row_pos},
    {"i", PAIRS | TABLE | VECTOR, PAIRS | TABLE | VECTOR, row_pair},
    {"frequency", PAIRS | TABLE | VECTOR, PAIRS, frequency},
    {"wavelength", PAIRS | TABLE | VECTOR, PAIRS, wavelength},
    {"band", PAIRS | TABLE | VECTOR, PAIRS, NULL},
    {"ramp", PAIRS | TABLE | VECTOR, 0, ramp},
    {"unscaled", PAIRS | TABLE | VECTOR, 0, unscaled},
    {"unscaled_wavelength", PAIRS | TABLE | VECTOR, 0, unscaled_wavelength},
    {"angle", TABLE | VECTOR, 0, angle},
    {"degrees", TABLE | VECTOR, 0, degrees},
    {"unscaled_angle", TABLE | VECTOR, 0, unscaled_angle},
    {"cos", TABLE | VECTOR, TABLE, cosine},
    {"sin", TABLE | VECTOR, TABLE, sine},
    {"unscaled_cos", TABLE | VECTOR, 0, unscaled_cosine},
    {"unscaled_sin", TABLE | VECTOR, 0, unscaled_sine},
    {"x", VECTOR, VECTOR, before_x},
    {"y", VECTOR, VECTOR, before_y},
    {"rotated_x", VECTOR, VECTOR, after_x},
    {"rotated_y", VECTOR, VECTOR, after_y},
    {"mean", DISTANCES, DISTANCES, mean_product},
    {"bound", DISTANCES, DISTANCES, bound},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns, N_KEYS = 3, MOST_RULES = 16 };

typedef struct {
    const Options *options;
    RopeParams params;
    RowKind kind;
    Rope ropes[MOST_RULES], unscaled; // one rope, or one for each rule of --compare
    int n_ropes;
    float *vector;
    int first, last, step; // positions
    bool is_shown[N_COLUMNS];
} View;

// The next of several words with commas between, or false. *list moves on.
static bool next_word(const char **list, Buffer *word) {
    if (!**list) return false;
    size_t n = strcspn(*list, ",");
    word->len = 0;
    buffer_append(word, *list, n);
    *list += n + ((*list)[n] == ',');
    return true;
}

// Those of --columns, or what suits the kind of row.
static void choose_columns(View *v) {
    const char *list = v->options->columns;
    bool is_all = list && !strcmp(list, "all");
    Buffer word = {0};
    for (int i = 0; i < N_COLUMNS; i++) {
        int kinds = list && !is_all && i >= N_KEYS ? 0
                    : is_all                       ? columns[i].kinds
                                                   : columns[i].defaults;
        v->is_shown[i] = kinds & (int)v->kind;
        if (v->options->compare && !list && v->kind == PAIRS &&
            i >= N_KEYS) // side by side, one figure is enough
            v->is_shown[i] = columns[i].value == frequency;
    }
    while (list && !is_all && next_word(&list, &word)) {
        int i = 0;
        while (i < N_COLUMNS && strcmp(columns[i].name, word.data)) i++;
        if (i == N_COLUMNS)
            die(EXIT_USAGE, "--columns: no column \"%s\"%s", word.data,
                did_you_mean(word.data, &columns->name, sizeof *columns, N_COLUMNS));
        if (!(columns[i].kinds & (int)v->kind))
            die(EXIT_USAGE, "--columns: \"%s\" needs %s", word.data,
                columns[i].kinds & (int)DISTANCES ? "--decay"
                : columns[i].kinds & (int)TABLE   ? "--positions, and no --decay"
                                                  : "--rotate, and no --decay");
        v->is_shown[i] = true;
    }
    buffer_free(&word);
}

// "N", "A..B" or "A..B:STEP"
static void choose_positions(View *v) {
    const char *text = v->options->positions;
    int64_t a = 0, b = 0, step = 1;
    if (!text) { // 0 for what does not depend on them, else 256 over the context before scaling
        v->last = v->kind == DISTANCES ? v->params.orig_ctx - 1 : v->kind == VECTOR ? 3 : 0;
        v->step = v->kind == DISTANCES ? v->params.orig_ctx / 256 + !(v->params.orig_ctx / 256) : 1;
        return;
    }
    char *copy = (char *)str_copy(str_of(text)).data, *to = strstr(copy, ".."),
         *colon = to ? strchr(to, ':') : NULL;
    if (colon) *colon = 0;
    if (to) *to = 0;
    bool is_good = parse_i64(copy, &a) && (!to || parse_i64(to + 2, &b)) &&
                   (!colon || parse_i64(colon + 1, &step));
    if (!to) b = a - 1, a = 0;
    if (!is_good || a < 0 || b < a - 1 || b > 1 << 30 || step < 1 || step > 1 << 30)
        die(EXIT_USAGE, "--positions: expected N, A..B or A..B:STEP up to %d, found \"%s\"",
            1 << 30, text);
    v->first = (int)a, v->last = (int)b, v->step = (int)step;
    free(copy);
}

// The vector's numbers; what it lacks of dim is 0.
static int vector_read(const char *list, float *out, int most) {
    Buffer word = {0};
    int n = 0;
    double x;
    for (; next_word(&list, &word); n++) {
        if (!parse_f64(word.data, &x))
            die(EXIT_USAGE, "--rotate: expected a number, found \"%s\"", word.data);
        if (n == most) die(EXIT_USAGE, "--rotate: expected at most %d numbers, found more", most);
        out[n] = (float)x;
    }
    buffer_free(&word);
    return n;
}

// Parameters of the model, or of no model, and what the command line says instead.
static void choose_params(View *v) {
    static Model model;
    const Options *o = v->options;
    const ModelOptions *m = &o->model_options;
    Error err;
    if (!o->rope_dim) {
        if (!model_open(&model, o->model, m, &err)) die_error(&err);
        v->params = model.rope;
        return;
    }
    if (o->rope_dim % 2) die(EXIT_USAGE, "--dim: expected an even number, found %d", o->rope_dim);
    v->params = rope_params_default(o->rope_dim);
    if (!rope_params_override(&v->params, m->rope_rule, m->rope_theta, m->rope_scale,
                              m->rope_orig_ctx, &err))
        die_error(&err);
}

// A rope for each rule that is compared, and one without any.
static void choose_rules(View *v) {
    const char *list = v->options->compare;
    RopeParams p = v->params;
    Buffer rule = {0};
    Error err;
    if (!list) rope_init(&v->ropes[v->n_ropes++], &p);
    if (list && p.factor == 1)
        p.factor = rope_params_default(p.dim).factor; // of a model that scales nothing
    while (list && next_word(&list, &rule)) {
        if (v->n_ropes == MOST_RULES)
            die(EXIT_USAGE, "--compare: expected at most %d rules", MOST_RULES);
        if (rope_rule_from_name(rule.data) < 0)
            die(EXIT_USAGE, "--compare: no rule \"%s\"", rule.data);
        if (!rope_params_override(&p, rule.data, 0, 0, 0, &err)) die_error(&err);
        rope_init(&v->ropes[v->n_ropes++], &p);
    }
    p.rule = ROPE_NONE;
    rope_init(&v->unscaled, &p);
    buffer_free(&rule);
}

static void view_open(View *v, const Options *o) {
    *v = (View){.options = o, .step = 1};
    if (o->has_decay && o->rotate) die(EXIT_USAGE, "--decay: expected no --rotate beside it");
    v->kind = o->has_decay ? DISTANCES : o->rotate ? VECTOR : o->positions ? TABLE : PAIRS;
    choose_params(v);
    v->vector = xalloc((size_t)v->params.dim, sizeof *v->vector);
    if (o->rotate) vector_read(o->rotate, v->vector, v->params.dim);
    choose_positions(v);
    choose_rules(v);
    choose_columns(v);
}

// "cos", or "llama3.cos" where rules are compared.
static void put_name(const View *v, int column, int k, Buffer *out) {
    if (v->options->compare && column >= N_KEYS)
        buffer_printf(out, "%s.", rope_rule_name(v->ropes[k].params.rule));
    buffer_puts(out, columns[column].name);
}

// A row's values, for each rule in each column; `header`: their names.
static void put_row(const View *v, int pos, int i, bool is_header, Buffer *out) {
    bool is_json = v->options->is_json;
    const char *between = is_json ? "{" : "";
    for (int c = 0; c < N_COLUMNS; c++)
        for (int k = 0; v->is_shown[c] && k < (c < N_KEYS ? 1 : v->n_ropes); k++, between = ",") {
            Row r = {&v->ropes[k], &v->unscaled, v->vector, pos, i};
            buffer_printf(out, is_json ? "%s\"" : "%s", between);
            if (is_json || is_header) put_name(v, c, k, out);
            if (is_json) buffer_puts(out, "\":");
            if (!is_header && !columns[c].value)
                buffer_printf(out, is_json ? "\"%s\"" : "%s", band(&r));
            else if (!is_header)
                buffer_printf(out, "%.9g", columns[c].value(&r));
        }
    buffer_puts(out, is_json ? "}" : "\n");
}

// The JSON's members before its rows.
static void put_params(const View *v, Buffer *out) {
    const RopeParams *p = &v->ropes[0].params;
    json_put_number(out, "{\"dim\":", p->dim);
    json_put_number(out, ",\"theta\":", p->theta);
    buffer_puts(out, ",\"rules\":[");
    for (int k = 0; k < v->n_ropes; k++)
        buffer_printf(out, "%s\"%s\"", k ? "," : "", rope_rule_name(v->ropes[k].params.rule));
    json_put_number(out, "],\"factor\":", p->factor);
    json_put_number(out, ",\"original_context\":", p->orig_ctx);
    buffer_puts(out, ",\"rows\":[");
}

int command_rope(const Options *o) {
    static View v;
    static Buffer out;
    view_open(&v, o);
    int n_pairs = v.kind == DISTANCES ? 1 : v.params.dim / 2, n_rows = 0;
    if (o->is_json)
        put_params(&v, &out);
    else
        put_row(&v, 0, 0, true, &out);
    for (int64_t pos = v.first; pos <= v.last && !generate_interrupted; pos += v.step)
        for (int i = 0; i < n_pairs; i++, n_rows = 1) {
            if (o->is_json && n_rows) buffer_puts(&out, ",");
            put_row(&v, (int)pos, i, false, &out);
            if (out.len < 1 << 16) continue;
            text_write(out.data, out.len);
            out.len = 0;
        }
    if (o->is_json) buffer_puts(&out, "]}\n");
    text_print(&out);
    return generate_interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}
