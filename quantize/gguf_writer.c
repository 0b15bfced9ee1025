// See gguf_writer.h.
#include "quantize/gguf_writer.h"
#include "base/bits.h"

static void put_int(Buffer *b, uint64_t v, int n_bytes) { // little-endian
    for (int i = 0; i < n_bytes; i++) buffer_append(b, &(char){(char)(v >> 8 * i)}, 1);
}

static void put_text(Buffer *b, Str s, const char *suffix) {
    put_int(b, s.len + strlen(suffix), 8);
    buffer_put(b, s);
    buffer_puts(b, suffix);
}

static void begin_value(GgufWriter *w, Str key, GgufKind kind) {
    put_text(&w->metadata, key, "");
    put_int(&w->metadata, kind, 4);
    w->n_metadata++;
}

void gguf_write_u32(GgufWriter *w, const char *key, uint32_t value) {
    begin_value(w, str_of(key), GGUF_U32);
    put_int(&w->metadata, value, 4);
}

void gguf_write_string(GgufWriter *w, const char *key, Str value) {
    begin_value(w, str_of(key), GGUF_STRING);
    put_text(&w->metadata, value, "");
}

static void begin_array(GgufWriter *w, Str key, GgufKind item_kind, uint64_t n_items) {
    begin_value(w, key, GGUF_ARRAY);
    put_int(&w->metadata, item_kind, 4);
    put_int(&w->metadata, n_items, 8);
}

void gguf_write_string_array(GgufWriter *w, const char *key, Str value) {
    begin_array(w, str_of(key), GGUF_STRING, 1);
    put_text(&w->metadata, value, "");
}

void gguf_write_value(GgufWriter *w, const GgufValue *v) {
    if (v->kind == GGUF_ARRAY)
        begin_array(w, v->key, v->item_kind, v->count);
    else
        begin_value(w, v->key, v->kind);
    buffer_append(&w->metadata, v->data, v->bytes);
}

uint64_t gguf_write_tensor(GgufWriter *w, Str name, const char *suffix, Type type, int n_dims,
                           const uint64_t *dims, uint64_t bytes) {
    uint64_t offset = w->data_bytes;
    put_text(&w->tensors, name, suffix);
    put_int(&w->tensors, (uint64_t)n_dims, 4);
    for (int d = 0; d < n_dims; d++) put_int(&w->tensors, dims[d], 8);
    put_int(&w->tensors, type, 4);
    put_int(&w->tensors, offset, 8);
    w->n_tensors++;
    w->data_bytes = size_round_up(offset + bytes, w->alignment);
    return offset;
}

void gguf_write_head(GgufWriter *w, Buffer *out) {
    buffer_puts(out, "GGUF");
    put_int(out, 3, 4); // version
    put_int(out, w->n_tensors, 8);
    put_int(out, w->n_metadata, 8);
    buffer_put(out, buffer_str(&w->metadata));
    buffer_put(out, buffer_str(&w->tensors));
    gguf_pad(out, w->alignment);
    buffer_free(&w->metadata);
    buffer_free(&w->tensors);
}

void gguf_pad(Buffer *b, uint64_t alignment) {
    while (b->len % alignment) buffer_append(b, "", 1);
}
