// See option_values.h.
#include "cli/option_values.h"
#include "base/blake2b.h"
#include "base/files.h"
#include "base/json.h"
#include "gguf/checksum.h"

#include <stdio.h>

enum { MAX_TEXT = 100 }; // bytes of the longest text that is written out

static void put_hash(Buffer *out, const char *kind, uint64_t hash) {
    buffer_printf(out, "{\"%s\":\"%016llx\"}", kind, (unsigned long long)hash);
}

// The fewest digits that read back as the same float, at least those of %g.
static void put_float(Buffer *out, float x) {
    char text[32];
    int n_digits = 6;
    do {
        snprintf(text, sizeof text, "%.*g", n_digits++, (double)x);
    } while (n_digits <= 9 && strtof(text, NULL) != x);
    buffer_puts(out, text);
}

// A text, or the content of the file that it names.
static void put_text(Buffer *out, OptionKind kind, const char *text) {
    if (!text) {
        buffer_puts(out, "null");
        return;
    }

    uint64_t hash = 0; // 0: not a file
    if (kind == OPTION_INPUT) hash = file_hash(text);
    if (kind == OPTION_TEXT && *text == '@') hash = file_hash(text + 1);
    if (!hash && strlen(text) > MAX_TEXT) hash = blake2b_64(text, strlen(text));

    if (hash)
        put_hash(out, "text", hash);
    else
        json_quote(out, str_of(text));
}

static void put_strings(Buffer *out, const Str *list, int n) {
    JsonWriter w = {.out = out};
    json_begin_array(&w, NULL);
    for (int i = 0; i < n; i++) json_write_string(&w, NULL, list[i]);
    json_end_array(&w);
}

// The names, or null for the default order.
static void put_samplers(Buffer *out, const SamplerOrder *order) {
    size_t begin = out->len;
    bool is_usual = order->n == 0 || order->n == N_SAMPLERS;
    for (int i = 0; i < order->n; i++) {
        buffer_printf(out, "%c%s", i ? ';' : '"', sampler_name(order->at[i]));
        is_usual &= order->at[i] == (SamplerKind)i;
    }

    if (is_usual) out->len = begin;
    buffer_puts(out, is_usual ? "null" : "\"");
}

// The content and the scale of each adapter.
static void put_adapters(Buffer *out, const ModelOptions *m, const Pipeline *p) {
    JsonWriter w = {.out = out};
    json_begin_array(&w, NULL);
    for (int i = 0; i < m->n_adapters; i++)
        json_write_format(&w, NULL, "\"%016llx:%.17g\"",
                          (unsigned long long)checksum_files(&p->model.adapters[i].file),
                          m->adapters[i].scale);
    json_end_array(&w);
}

static void put_reasoning(Buffer *out, int thinks) {
    static const char *const names[] = {"off", "auto", "on"};
    json_quote(out, str_of(names[thinks + 1]));
}

static void put_int(Buffer *out, int value) {
    if (value == INT_MIN)
        buffer_puts(out, "null");
    else
        buffer_printf(out, "%d", value);
}

static void put_value(Buffer *out, const Option *row, const Options *o, const Settings *s,
                      const Pipeline *p) {
    const void *field = option_field(row, o, s);
    const void *n_items = (const char *)field + row->n_offset - row->offset; // of a list

    switch (row->kind) {
    case OPTION_FLAG: buffer_puts(out, *(const bool *)field ? "true" : "false"); break;
    case OPTION_FLOAT: put_float(out, *(const float *)field); break;
    case OPTION_DOUBLE: buffer_put_double(out, *(const double *)field); break;
    case OPTION_SEED:
        buffer_printf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case OPTION_INT: put_int(out, *(const int *)field); break;
    case OPTION_REASONING: put_reasoning(out, *(const int *)field); break;
    case OPTION_BUDGET:
        if (*(const int *)field == BUDGET_AUTO)
            json_quote(out, str_of("auto"));
        else
            put_int(out, *(const int *)field);
        break;
    case OPTION_SAMPLERS: put_samplers(out, field); break;
    case OPTION_STRINGS: put_strings(out, *(Str *const *)field, *(const int *)n_items); break;
    case OPTION_LORA: put_adapters(out, &o->model.load, p); break;
    case OPTION_MODEL:
        if (p)
            put_hash(out, "file", checksum_files(&p->model.file));
        else
            buffer_puts(out, "null");
        break;
    default: put_text(out, row->kind, *(const char *const *)field);
    }
}

OptionWalk option_walk(unsigned commands, const Options *o, const Settings *s, const Pipeline *p) {
    return (OptionWalk){.commands = commands,
                        .row = option_table,
                        .options = o,
                        .settings = s,
                        .pipeline = p,
                        .defaults = options_default(o->command, o->flag)};
}

bool option_walk_next(OptionWalk *w) {
    const Option *end = option_table + n_option_rows;
    while (w->row < end && !(w->row->effect == EFFECT_ANSWER && w->row->commands & w->commands))
        w->row++;

    if (w->row == end) {
        buffer_free(&w->texts[0]);
        buffer_free(&w->texts[1]);
        return false;
    }

    w->texts[0].len = w->texts[1].len = 0;
    put_value(&w->texts[0], w->row, w->options, w->settings, w->pipeline);
    put_value(&w->texts[1], w->row, &w->defaults, &w->defaults.settings, NULL);

    w->name = w->row->names[w->row->names[0][1] != '-'];
    w->value = w->texts[0].data;
    w->usual = w->texts[1].data;
    w->row++;
    return true;
}

bool option_walk_has_changed(const OptionWalk *w) { return strcmp(w->value, w->usual) != 0; }
