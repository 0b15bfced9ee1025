// A template and variables: the bytes up to the first NUL, and JSON. Whatever they are, a rendering ends in a text with
// a mark for each byte, or in an error.
#include "../../chat/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char defaults[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"<|eot_id|>\"}],\"tools\":null}";
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    Str source = {(const char *)data, end ? (size_t)(end - data) : n};
    JsonDoc doc = {0};
    Error err;
    struct tm now = {.tm_year = 124, .tm_mday = 1};
    Jinja *t = jinja_open(source, "fuzz", &err);
    bool ok =
        (end && json_parse(&doc, (const char *)end + 1, n - source.len - 1, &err) && doc.root->kind == JSON_OBJECT) ||
        json_parse(&doc, defaults, sizeof defaults - 1, &err);
    if (t && ok) {
        Buffer text = {0}, own = {0};
        jinja_render(t, &(JinjaInput){&doc.root, 1, NULL, NULL, &now}, &text, &own, &err);
        if (text.len != own.len) abort();
        for (size_t i = 0; i < own.len; i++)
            if (own.data[i] & ~1) abort();
        buffer_free(&text);
        buffer_free(&own);
    }
    jinja_close(t);
    json_free(&doc);
    return 0;
}
