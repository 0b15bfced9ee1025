// rope: prints the rotary embedding of a model, or of given parameters, as CSV or JSON.
//
// A table has one of four kinds of rows: pairs of dimensions with their frequencies; with
// --positions, pairs at positions, the cis table (cos and sin) of the forward pass; with --rotate,
// the pairs of a vector before and after rotation; with --decay, distances and the mean of q.k.
// Rules of --compare repeat each column, as "llama3.cos". docs/rope.md explains the mathematics.
//
// Order: the values of a column, the options, the output, command_rope().
#include "cli/commands/commands.h"
#include "base/json.h"
#include "cli/output.h"
#include "generate/generate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

typedef enum { PAIRS = 1, TABLE = 2, VECTOR = 4, DISTANCES = 8 } RopeRowKind;

// clang-format off
// In the order of printing. The first N_KEYS identify the row and are always shown.
enum {
    POS, DISTANCE, PAIR, FREQUENCY, WAVELENGTH, BAND, RAMP, UNSCALED, UNSCALED_WAVELENGTH, ANGLE,
    DEGREES, UNSCALED_ANGLE, COS, SIN, UNSCALED_COS, UNSCALED_SIN, X, Y, ROTATED_X, ROTATED_Y, MEAN,
    BOUND, N_COLUMNS
};
enum { N_KEYS = 3, MAX_RULES = 16 };

static const struct {
    const char *name;
    int kinds; // kinds of rows that have the column
} columns[N_COLUMNS] = {
    [POS]                 = {"pos", TABLE | VECTOR},
    [DISTANCE]            = {"distance", DISTANCES},
    [PAIR]                = {"i", PAIRS | TABLE | VECTOR},
    [FREQUENCY]           = {"frequency", PAIRS | TABLE | VECTOR},
    [WAVELENGTH]          = {"wavelength", PAIRS | TABLE | VECTOR},
    [BAND]                = {"band", PAIRS | TABLE | VECTOR},
    [RAMP]                = {"ramp", PAIRS | TABLE | VECTOR},
    [UNSCALED]            = {"unscaled", PAIRS | TABLE | VECTOR},
    [UNSCALED_WAVELENGTH] = {"unscaled_wavelength", PAIRS | TABLE | VECTOR},
    [ANGLE]               = {"angle", TABLE | VECTOR},
    [DEGREES]             = {"degrees", TABLE | VECTOR},
    [UNSCALED_ANGLE]      = {"unscaled_angle", TABLE | VECTOR},
    [COS]                 = {"cos", TABLE | VECTOR},
    [SIN]                 = {"sin", TABLE | VECTOR},
    [UNSCALED_COS]        = {"unscaled_cos", TABLE | VECTOR},
    [UNSCALED_SIN]        = {"unscaled_sin", TABLE | VECTOR},
    [X]                   = {"x", VECTOR},
    [Y]                   = {"y", VECTOR},
    [ROTATED_X]           = {"rotated_x", VECTOR},
    [ROTATED_Y]           = {"rotated_y", VECTOR},
    [MEAN]                = {"mean", DISTANCES},
    [BOUND]               = {"bound", DISTANCES},
};
// clang-format on

typedef struct {
    const Options *options;
    RopeParams params;
    RopeRowKind kind;
    Rope ropes[MAX_RULES]; // (n_ropes) one, or one for each rule of --compare
    int n_ropes;
    Rope unscaled;
    float *vector;         // (dim) of --rotate
    int first, last, step; // positions
    bool is_shown[N_COLUMNS];
} RopeTable;

// Values

// The share of interpolation in a frequency: 0 if it is not scaled, 1 if it is divided by the full
// factor. `divisor` is the unscaled frequency divided by the scaled one. Relative differences below
// 1e-5 are rounding errors of float32.
static double ramp(const Rope *rope, double divisor) {
    const RopeParams *p = &rope->params;
    double factor = p->factor;
    for (int i = 0; p->rule == ROPE_FILE && i < p->dim / 2; i++)
        if ((double)p->divisors[i] > factor) factor = (double)p->divisors[i];
    if (fabs(divisor - 1) < 1e-5) return 0;
    return divisor > factor * (1 - 1e-5) ? 1 : (1 - 1 / divisor) / (1 - 1 / factor);
}

// Computes a row of DISTANCES, for a key `pos` positions before the query. MEAN: the mean of q.k
// over all q = k of length 1, to which each pair contributes the cosine of its angle. BOUND: the
// bound of |q.k| by Su et al. 2021, section 3.4.3: the mean length of the partial sums of e^(i
// angle).
static void compute_distance(const Rope *rope, int pos, double out[N_COLUMNS]) {
    int half = rope->params.dim / 2;
    double re = 0, im = 0, lengths = 0;
    for (int i = 0; i < half; i++) {
        float c, s;
        rope_cis(rope, pos, i, &c, &s);
        re += (double)c;
        im += (double)s;
        lengths += sqrt(re * re + im * im);
    }
    out[DISTANCE] = pos;
    out[MEAN] = re / half * (double)rope->scale;
    out[BOUND] = lengths / half * (double)rope->scale;
}

// Computes a row of any other kind: pair i at a position.
static void compute_row(const RopeTable *t, const Rope *rope, int pos, int i,
                        double out[N_COLUMNS]) {
    float c, s;
    out[POS] = pos;
    out[PAIR] = i;

    // Frequency and wavelength, with and without scaling.
    out[FREQUENCY] = (double)rope_freq(rope, pos, i);
    out[UNSCALED] = (double)t->unscaled.freqs[i];
    out[WAVELENGTH] = 2 * M_PI / out[FREQUENCY];
    out[UNSCALED_WAVELENGTH] = 2 * M_PI / out[UNSCALED];
    out[RAMP] = ramp(rope, out[UNSCALED] / out[FREQUENCY]);

    // Angle, cosine and sine, with and without scaling.
    out[UNSCALED_ANGLE] = (double)rope_cis(&t->unscaled, pos, i, &c, &s);
    out[UNSCALED_COS] = (double)c;
    out[UNSCALED_SIN] = (double)s;
    out[ANGLE] = (double)rope_cis(rope, pos, i, &c, &s);
    out[COS] = (double)c;
    out[SIN] = (double)s;
    out[DEGREES] = fmod(out[ANGLE] * (180 / M_PI), 360);

    // The pair of the vector, before and after rotation.
    bool is_half = rope->params.has_half_pairs;
    const float *x = t->vector + (is_half ? i : 2 * i);
    out[X] = (double)x[0];
    out[Y] = (double)x[is_half ? rope->params.dim / 2 : 1];
    out[ROTATED_X] = out[X] * out[COS] - out[Y] * out[SIN];
    out[ROTATED_Y] = out[X] * out[SIN] + out[Y] * out[COS];
}

// Options

// Removes the first word from a comma-separated list (NULL: empty) and returns it, in static
// memory; NULL at the end.
static const char *next_word(const char **list) {
    static Buffer word;
    if (!*list || !**list) return NULL;
    size_t n = strcspn(*list, ",");
    word.len = 0;
    buffer_append(&word, *list, n);
    *list += n + ((*list)[n] == ',');
    return word.data;
}

// The options that a column needs, for error messages.
static const char *needed_options(int column) {
    if (columns[column].kinds & DISTANCES) return "--decay";
    if (columns[column].kinds & TABLE) return "--positions without --decay";
    return "--rotate without --decay";
}

// The columns without --columns, beside those that identify the row.
static const char *default_columns(const RopeTable *t) {
    if (t->kind == DISTANCES) return "mean,bound";
    if (t->kind == VECTOR) return "x,y,rotated_x,rotated_y";
    if (t->kind == TABLE) return "cos,sin";
    return t->options->compare ? "frequency" : "frequency,wavelength,band";
}

static void choose_columns(RopeTable *t) {
    const char *list = t->options->columns ? t->options->columns : default_columns(t);
    bool is_all = !strcmp(list, "all");
    const char *word;

    for (int i = 0; i < N_COLUMNS; i++)
        t->is_shown[i] = (columns[i].kinds & (int)t->kind) && (is_all || i < N_KEYS);

    while (!is_all && (word = next_word(&list))) {
        int i = 0;
        while (i < N_COLUMNS && strcmp(columns[i].name, word)) i++;
        if (i == N_COLUMNS)
            die(EXIT_USAGE, "--columns: unknown column \"%s\"%s", word,
                did_you_mean(word, &columns->name, sizeof *columns, N_COLUMNS));
        if (!(columns[i].kinds & (int)t->kind))
            die(EXIT_USAGE, "--columns: \"%s\" needs %s", word, needed_options(i));
        t->is_shown[i] = true;
    }
}

// Parses "N" (0 to N - 1), "A..B" or "A..B:STEP" (both with B). The default is position 0 for
// frequencies, positions 0 to 3 for a vector, and 256 distances up to the original context.
static void choose_positions(RopeTable *t) {
    const char *text = t->options->positions;
    long long a = 0, b = 0, step = 1;
    int end = 0;

    if (!text) {
        int context = t->params.orig_ctx;
        if (t->kind == VECTOR) t->last = 3;
        if (t->kind == DISTANCES) t->last = context - 1;
        if (t->kind == DISTANCES && context >= 512) t->step = context / 256;
        return;
    }

    // `end` is the length of the text that has one of the forms.
    int n = sscanf(text, "%10lld..%10lld%n:%10lld%n", &a, &b, &end, &step, &end);
    if (n < 2) {
        n = sscanf(text, "%10lld%n", &b, &end);
        a = 0;
        b--;
    }

    bool is_valid = n >= 1 && !text[end] && !strpbrk(text, " \t\n\v\f\r+"); // sscanf() takes these
    if (!is_valid || a < 0 || b < a - 1 || b > 1 << 30 || step < 1 || step > 1 << 30)
        die(EXIT_USAGE, "--positions: expected N, A..B or A..B:STEP up to %d, found \"%s\"",
            1 << 30, text);

    t->first = (int)a;
    t->last = (int)b;
    t->step = (int)step;
}

// Reads the values of --rotate; missing values are 0.
static void read_vector(RopeTable *t) {
    const char *list = t->options->rotate;
    const char *word;
    double x;
    t->vector = xalloc((size_t)t->params.dim, sizeof *t->vector);
    for (int n = 0; (word = next_word(&list)); n++) {
        if (!parse_f64(word, &x) || fabs(x) > (double)FLT_MAX)
            die(EXIT_USAGE, "--rotate: expected a float32 number, found \"%s\"", word);
        if (n == t->params.dim)
            die(EXIT_USAGE, "--rotate: expected at most %d numbers", t->params.dim);
        t->vector[n] = (float)x;
    }
}

// The parameters of the model or, with --dim, of the command line alone.
static void choose_params(RopeTable *t) {
    static Model model;
    const Options *o = t->options;
    const ModelOptions *m = &o->model_options;
    Error err;

    if (!o->rope_dim) {
        if (!model_open(&model, o->model, m, &err)) die_error(&err);
        t->params = model.rope;
        return;
    }

    if (o->rope_dim % 2) die(EXIT_USAGE, "--dim: expected an even number, found %d", o->rope_dim);
    t->params = rope_params_default(o->rope_dim);
    if (!rope_params_override(&t->params, m->rope_rule, m->rope_theta, m->rope_scale,
                              m->rope_orig_ctx, &err))
        die_error(&err);
}

static void init_ropes(RopeTable *t) {
    const char *list = t->options->compare;
    RopeParams p = t->params;
    const char *rule;
    Error err;

    if (!list) rope_init(&t->ropes[t->n_ropes++], &p);
    if (list && p.factor == 1)
        p.factor = rope_params_default(p.dim).factor; // a model without scaling

    while ((rule = next_word(&list))) {
        if (t->n_ropes == MAX_RULES)
            die(EXIT_USAGE, "--compare: expected at most %d rules", MAX_RULES);
        if (rope_rule_from_name(str_of(rule)) < 0)
            die(EXIT_USAGE, "--compare: unknown rule \"%s\"", rule);
        for (int k = 0; k < t->n_ropes; k++)
            if ((int)t->ropes[k].params.rule == rope_rule_from_name(str_of(rule)))
                die(EXIT_USAGE, "--compare: duplicate rule \"%s\"", rule);
        if (!rope_params_override(&p, rule, 0, 0, 0, &err)) die_error(&err);
        rope_init(&t->ropes[t->n_ropes++], &p);
    }

    p.rule = ROPE_NONE;
    rope_init(&t->unscaled, &p);
}

// Output

static void write_params(const RopeTable *t, JsonWriter *w) {
    const RopeParams *p = &t->ropes[0].params;
    json_begin_object(w, NULL);
    json_write_number(w, "dim", p->dim);
    json_write_number(w, "theta", p->theta);
    json_begin_array(w, "rules");
    for (int k = 0; k < t->n_ropes; k++)
        json_write_string(w, NULL, str_of(rope_rule_name(t->ropes[k].params.rule)));
    json_end_array(w);
    json_write_number(w, "factor", p->factor);
    json_write_number(w, "original_context", p->orig_ctx);
    json_begin_array(w, "rows");
}

// The name of a share of interpolation, which ramp() returns.
static const char *band_name(double ramp) {
    if (ramp == 0) return "kept";
    return ramp == 1 ? "interpolated" : "smoothed";
}

// Writes a row as a JSON object or as CSV, or the CSV header.
static void write_row(const RopeTable *t, int pos, int i, bool is_header, JsonWriter *w) {
    static double values[MAX_RULES][N_COLUMNS];
    bool is_json = t->options->is_json;
    const char *separator = "";

    for (int k = 0; k < t->n_ropes; k++)
        if (t->kind == DISTANCES)
            compute_distance(&t->ropes[k], pos, values[k]);
        else
            compute_row(t, &t->ropes[k], pos, i, values[k]);

    // A key column (position, pair) is written once, any other column once per compared rule.
    if (is_json) json_begin_object(w, NULL);
    for (int c = 0; c < N_COLUMNS; c++)
        for (int k = 0; t->is_shown[c] && k < (c < N_KEYS ? 1 : t->n_ropes); k++) {
            bool is_compared = t->options->compare && c >= N_KEYS;
            char name[64], value[32];

            snprintf(name, sizeof name, "%s%s%s",
                     is_compared ? rope_rule_name(t->ropes[k].params.rule) : "",
                     is_compared ? "." : "", columns[c].name);

            snprintf(value, sizeof value, "%.9g", values[k][c]);
            if (c == BAND)
                snprintf(value, sizeof value, is_json ? "\"%s\"" : "%s",
                         band_name(values[k][RAMP]));

            if (is_json)
                json_write_format(w, name, "%s", value);
            else
                buffer_printf(w->out, "%s%s", separator, is_header ? name : value);
            separator = ",";
        }

    if (is_json)
        json_end_object(w);
    else
        buffer_puts(w->out, "\n");
}

int command_rope(const Options *o) {
    enum { FLUSH_BYTES = 1 << 16 };
    static RopeTable t;
    Buffer out = {0};
    JsonWriter w = {.out = &out};

    t = (RopeTable){.options = o, .step = 1, .kind = o->positions ? TABLE : PAIRS};
    if (o->has_decay && o->rotate) die(EXIT_USAGE, "--decay: cannot be combined with --rotate");
    if (o->rotate) t.kind = VECTOR;
    if (o->has_decay) t.kind = DISTANCES;

    choose_params(&t);
    read_vector(&t);
    choose_positions(&t);
    init_ropes(&t);
    choose_columns(&t);

    // Write the CSV header, or the JSON members before the rows.
    int n_pairs = t.kind == DISTANCES ? 1 : t.params.dim / 2;
    if (o->is_json)
        write_params(&t, &w);
    else
        write_row(&t, 0, 0, true, &w);

    for (int64_t pos = t.first; pos <= t.last; pos += t.step) {
        if (generate_interrupted) break;
        for (int i = 0; i < n_pairs; i++) {
            write_row(&t, (int)pos, i, false, &w);
            if (out.len < FLUSH_BYTES) continue;
            text_write(out.data, out.len);
            out.len = 0;
        }
    }

    if (o->is_json) {
        json_end_array(&w);
        text_print_json(&w);
    } else {
        text_print(&out);
    }
    return generate_interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}
