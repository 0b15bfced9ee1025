#include "option_values.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The colon is part of the file name if a file of that name exists.
bool lora_option_parse(const char *text, LoraOption *out) {
    const char *colon = strrchr(text, ':');
    bool has_scale = colon && !strpbrk(colon, "/\\") && access(text, F_OK);
    *out = (LoraOption){str_of(text), 1};
    if (has_scale) out->path.len = (size_t)(colon - text);
    return *text && (!has_scale || parse_f64(colon + 1, &out->scale));
}

bool logit_bias_parse(const char *text, LogitBias *out) {
    char *sign;
    long id = strtol(text, &sign, 10);
    double bias = -INFINITY;
    bool is_ban = !strcmp(sign, "-inf");
    if (sign == text || id < 0 || id > INT_MAX || (*sign != '+' && *sign != '-')) return false;
    if (!is_ban && !parse_f64(*sign == '+' ? sign + 1 : sign, &bias)) return false;
    *out = (LogitBias){(int)id, (float)bias};
    return true;
}

Str *list_split(const char *list, int *n) {
    *n = 1;
    for (const char *s = list; *s; s++) *n += *s == ',';
    Str *items = xalloc((size_t)*n, sizeof *items);
    for (int i = 0; i < *n; i++) {
        items[i] = (Str){list, strcspn(list, ",")};
        list += items[i].len + 1;
    }
    return items;
}

bool logit_bias_check(const SampleOptions *s, int n_vocab, Error *err) {
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id >= n_vocab)
            return error_set(err, EXIT_USAGE, "logit_bias: expected a token id below %d, found %d",
                             n_vocab, s->bias[i].id);
    return true;
}
