// See settings.h.
#include "cli/settings.h"

static Str *copy_strings(const Str *list, int n) {
    Str *copy = n ? xalloc((size_t)n, sizeof *copy) : NULL;
    for (int i = 0; i < n; i++) copy[i] = str_copy(list[i]);
    return copy;
}

static void *copy_items(const void *items, int n, size_t item_size) {
    return n ? memcpy(xalloc((size_t)n, item_size), items, (size_t)n * item_size) : NULL;
}

Settings settings_copy(const Settings *s) {
    Settings copy = *s;
    copy.stops = copy_strings(s->stops, s->n_stops);
    copy.sample.dry.breakers = copy_strings(s->sample.dry.breakers, s->sample.dry.n_breakers);
    copy.sample.bias = copy_items(s->sample.bias, s->sample.n_bias, sizeof *s->sample.bias);
    copy.stop_ids = (Ids){copy_items(s->stop_ids.data, s->stop_ids.len, sizeof *s->stop_ids.data),
                          s->stop_ids.len};
    if (s->variables.data) copy.variables = str_copy(s->variables);
    return copy;
}

void settings_clear_strings(Str **list, int *n) {
    for (int i = 0; i < *n; i++) free((char *)(*list)[i].data);
    free(*list);
    *list = NULL;
    *n = 0;
}

void settings_clear_biases(SampleOptions *sample) {
    free(sample->bias);
    sample->bias = NULL;
    sample->n_bias = 0;
}

void settings_add_bias(SampleOptions *sample, LogitBias bias) {
    sample->bias = xrealloc(sample->bias, (size_t)sample->n_bias + 1, sizeof *sample->bias);
    sample->bias[sample->n_bias++] = bias;
}

void settings_free(Settings *s) {
    settings_clear_strings(&s->stops, &s->n_stops);
    settings_clear_strings(&s->sample.dry.breakers, &s->sample.dry.n_breakers);
    settings_clear_biases(&s->sample);
    free(s->stop_ids.data);
    free((char *)s->variables.data);
}

void settings_think(Settings *s, bool is_on) {
    s->thinks = is_on ? 1 : -1;
    if (is_on && s->reasoning_budget == 0) s->reasoning_budget = -1;
}

Reasoning settings_reasoning(const Settings *s) {
    if (s->thinks < 0 || s->reasoning_budget == 0) return REASONING_OFF;
    return s->thinks > 0 || s->reasoning_budget != INT_MIN ? REASONING_ON : REASONING_AUTO;
}
