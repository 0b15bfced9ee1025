// rope: prints the rotary embedding of a model, or of given parameters, as CSV or JSON.
//
// A row is a pair of dimensions with its frequency or, with --positions, a pair at a position, with
// its entry of the cis table (cos and sin) of the forward pass. Rules of --compare repeat each
// column, as "llama3.cos". docs/rope.md explains the mathematics.
//
// Order: the values of a column, the options, the output, command_rope().
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "generate/generate.h"

#include <math.h>
#include <stdio.h>

// clang-format off
// In the order of printing. The first N_KEYS identify the row and are always shown. POS, and the
// columns from ANGLE on, need positions.
enum {
    POS, PAIR, FREQUENCY, WAVELENGTH, BAND, UNSCALED, ANGLE, COS, SIN, N_COLUMNS
};
enum { N_KEYS = 2, MAX_RULES = ROPE_FILE + 1 };

static const char *const columns[N_COLUMNS] = {
    "pos", "i", "frequency", "wavelength", "band", "unscaled", "angle", "cos", "sin"
};
// clang-format on

typedef struct {
    const Options *options;
    RopeParams params;
    Rope ropes[MAX_RULES]; // (n_ropes) one, or one for each rule of --compare
    int n_ropes;
    Rope unscaled;
    int first, last, step; // positions
    bool is_shown[N_COLUMNS];
} RopeTable;

// Values

// How a frequency was scaled: not at all, by the full factor, or by a part of it. `divisor` is the
// unscaled frequency divided by the scaled one. Relative differences below 1e-5 are rounding errors
// of float32.
static const char *band_name(const Rope *rope, double divisor) {
    const RopeParams *p = &rope->params;
    double factor = p->factor;
    for (int i = 0; p->rule == ROPE_FILE && i < p->dim / 2; i++)
        if ((double)p->divisors[i] > factor) factor = (double)p->divisors[i];
    if (fabs(divisor - 1) < 1e-5) return "kept";
    return divisor > factor * (1 - 1e-5) ? "interpolated" : "smoothed";
}

// Computes a row: pair i at a position.
static void compute_row(const RopeTable *t, const Rope *rope, int pos, int i,
                        double out[N_COLUMNS]) {
    float c, s;
    out[POS] = pos;
    out[PAIR] = i;

    out[FREQUENCY] = (double)rope_freq(rope, pos, i);
    out[UNSCALED] = (double)t->unscaled.freqs[i];
    out[WAVELENGTH] = 2 * M_PI / out[FREQUENCY];
    out[ANGLE] = (double)rope_cis(rope, pos, i, &c, &s);
    out[COS] = (double)c;
    out[SIN] = (double)s;
}

// Options

// Dies if the list of an option has an empty entry, or none.
static void check_list(const char *option, const char *list, const char *entries) {
    size_t n = strlen(list);
    if (!n || list[0] == ',' || list[n - 1] == ',' || strstr(list, ",,"))
        die(EXIT_USAGE, "%s: expected %s separated by commas, found \"%s\"", option, entries, list);
}

static bool is_available(const RopeTable *t, int column) {
    return t->options->rope.positions || (column != POS && column < ANGLE);
}

static void choose_columns(RopeTable *t) {
    const Options *o = t->options;
    const char *list =
        o->rope.compare ? "frequency" : "frequency,wavelength,band"; // beside the keys
    if (o->rope.positions) list = "cos,sin";
    if (o->rope.columns) list = o->rope.columns;
    bool is_all = !strcmp(list, "all");

    check_list("--columns", list, "columns");
    for (int i = 0; i < N_COLUMNS; i++)
        t->is_shown[i] = is_available(t, i) && (is_all || i < N_KEYS);
    if (is_all) return;

    char *copy = text_format("%s", list);
    for (char *word = strtok(copy, ","); word; word = strtok(NULL, ",")) {
        int i = 0;
        while (i < N_COLUMNS && strcmp(columns[i], word)) i++;
        if (i == N_COLUMNS)
            die(EXIT_USAGE, "--columns: unknown column \"%s\"%s", word,
                did_you_mean(word, columns, sizeof *columns, N_COLUMNS));
        if (!is_available(t, i)) die(EXIT_USAGE, "--columns: \"%s\" needs --positions", word);
        t->is_shown[i] = true;
    }
    free(copy);
}

// Parses "N" (0 to N - 1), "A..B" or "A..B:STEP" (both with B). Without it, the position is 0.
static void choose_positions(RopeTable *t) {
    const char *text = t->options->rope.positions;
    long long a = 0, b = 0, step = 1;
    int end = 0;

    if (!text) return;

    // `end` is the length of the text that has one of the forms.
    int n = sscanf(text, "%10lld%n..%10lld%n:%10lld%n", &a, &end, &b, &end, &step, &end);
    if (n == 1) {
        b = a - 1;
        a = 0;
    }

    bool is_valid = n >= 1 && !text[end] && !strpbrk(text, " \t\n\v\f\r+"); // sscanf() takes these
    if (!is_valid || a < 0 || b < a - 1 || b > 1 << 30 || step < 1 || step > 1 << 30)
        die(EXIT_USAGE, "--positions: expected N, A..B or A..B:STEP up to %d, found \"%s\"",
            1 << 30, text);

    t->first = (int)a;
    t->last = (int)b;
    t->step = (int)step;
}

// The parameters of the model or, with --dim, of the command line alone.
static void choose_params(RopeTable *t) {
    static Model model;
    const Options *o = t->options;
    const ModelOptions *m = &o->model.load;
    Error err;

    if (!o->rope.dim) {
        if (!model_open(&model, o->model.path, m, &err)) die_error(&err);
        t->params = model.rope;
        return;
    }

    if (o->rope.dim % 2) die(EXIT_USAGE, "--dim: expected an even number, found %d", o->rope.dim);
    t->params = rope_params_default(o->rope.dim);
    if (!rope_params_override(&t->params, m->rope_rule, m->rope_theta, m->rope_scale,
                              m->rope_orig_ctx, &err))
        die_error(&err);
}

// A rope for each rule of --compare. A model without scaling gets the default factor.
static void init_compared(RopeTable *t, const char *list) {
    RopeParams p = t->params;
    Error err;

    check_list("--compare", list, "rules of --rope-scaling");
    if (p.factor == 1) p.factor = rope_params_default(p.dim).factor;

    char *copy = text_format("%s", list);
    for (char *rule = strtok(copy, ","); rule; rule = strtok(NULL, ",")) {
        if (rope_rule_from_name(str_of(rule)) < 0)
            die(EXIT_USAGE, "--compare: unknown rule \"%s\"", rule);
        for (int k = 0; k < t->n_ropes; k++)
            if ((int)t->ropes[k].params.rule == rope_rule_from_name(str_of(rule)))
                die(EXIT_USAGE, "--compare: duplicate rule \"%s\"", rule);
        if (!rope_params_override(&p, rule, 0, 0, 0, &err)) die_error(&err);
        rope_init(&t->ropes[t->n_ropes++], &p);
    }
    free(copy);
}

static void init_ropes(RopeTable *t) {
    if (t->options->rope.compare)
        init_compared(t, t->options->rope.compare);
    else
        rope_init(&t->ropes[t->n_ropes++], &t->params);

    RopeParams unscaled = t->ropes[t->n_ropes - 1].params;
    unscaled.rule = ROPE_NONE;
    rope_init(&t->unscaled, &unscaled);
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

// The name of a column, with --compare that of a rule.
static void format_name(const RopeTable *t, int k, int column, char out[64]) {
    bool is_compared = t->options->rope.compare && column >= N_KEYS;
    const char *rule = is_compared ? rope_rule_name(t->ropes[k].params.rule) : "";
    snprintf(out, 64, "%s%s%s", rule, is_compared ? "." : "", columns[column]);
}

// The value of a column in the row that compute_row() has computed for a rule.
static void format_value(const RopeTable *t, int k, const double *row, int column, char out[32]) {
    const char *format = t->options->output.is_json ? "\"%s\"" : "%s";
    if (column == BAND)
        snprintf(out, 32, format, band_name(&t->ropes[k], row[UNSCALED] / row[FREQUENCY]));
    else
        snprintf(out, 32, "%.9g", row[column]);
}

// Writes a row as a JSON object or as CSV, or the CSV header.
static void write_row(const RopeTable *t, int pos, int i, bool is_header, JsonWriter *w) {
    double values[MAX_RULES][N_COLUMNS];
    bool is_json = t->options->output.is_json;
    const char *separator = "";

    for (int k = 0; k < t->n_ropes; k++) compute_row(t, &t->ropes[k], pos, i, values[k]);

    // A key column (position, pair) is written once, any other column once per compared rule.
    if (is_json) json_begin_object(w, NULL);
    for (int c = 0; c < N_COLUMNS; c++) {
        int n_values = c < N_KEYS ? 1 : t->n_ropes;
        if (!t->is_shown[c]) continue;

        for (int k = 0; k < n_values; k++) {
            char name[64], value[32];
            format_name(t, k, c, name);
            format_value(t, k, values[k], c, value);
            if (is_json)
                json_write_format(w, name, "%s", value);
            else
                buffer_printf(w->out, "%s%s", separator, is_header ? name : value);
            separator = ",";
        }
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

    t = (RopeTable){.options = o, .step = 1};

    choose_params(&t);
    choose_positions(&t);
    init_ropes(&t);
    choose_columns(&t);

    // Write the CSV header, or the JSON members before the rows.
    if (o->output.is_json)
        write_params(&t, &w);
    else
        write_row(&t, 0, 0, true, &w);

    for (int64_t pos = t.first; pos <= t.last; pos += t.step) {
        if (generate_interrupted) break;
        for (int i = 0; i < t.params.dim / 2; i++) {
            write_row(&t, (int)pos, i, false, &w);
            if (out.len < FLUSH_BYTES) continue;
            text_write(out.data, out.len);
            out.len = 0;
        }
    }

    if (o->output.is_json) {
        json_end_array(&w);
        text_print_json(&w);
    } else {
        text_print(&out);
    }
    return generate_interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}
