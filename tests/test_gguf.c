// The GGUF reader: valid files are read completely; truncated, mutated and hostile ones are
// rejected with a message, quickly, and without reading outside the file.
#include "tests/make_gguf.h"
#include "base/clock.h"
#include "base/signals.h"
#include "tests/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#define HAS_ASAN __has_feature(address_sanitizer)
#else
#define HAS_ASAN 0
#endif

// CPU time, so that a busy machine does not fail a test.
static double cpu_sec(void) { return (double)clock() / CLOCKS_PER_SEC; }

static const float weights[64] = {1, 2, 3};

// Every kind of value, and two tensors, in about a kilobyte.
static void make_small(Maker *m) {
    static const char *const words[] = {"a", "", "ccc"};
    Buffer items = {0};
    for (int i = 0; i < 3; i++) make_item(&items, words[i], strlen(words[i]));

    make_string(m, "text", "hello");
    make_value(m, "u8", GGUF_U8, 200);
    make_value(m, "i8", GGUF_I8, (uint8_t)-5);
    make_value(m, "u16", GGUF_U16, 60000);
    make_value(m, "i16", GGUF_I16, (uint16_t)-300);
    make_u32(m, "u32", 4000000000u);
    make_value(m, "i32", GGUF_I32, 7);
    make_value(m, "u64", GGUF_U64, UINT64_MAX);
    make_value(m, "i64", GGUF_I64, (uint64_t)-1);
    make_value(m, "f64", GGUF_F64, 0x3ff8000000000000u); // 1.5
    make_f32(m, "f32", -0.25f);
    make_bool(m, "yes", true);

    make_array(m, "words", GGUF_STRING, 3, items.data, items.len);
    make_array(m, "bytes", GGUF_U8, 5, "\1\2\3\4\5", 5);
    make_u32(m, "general.alignment", 64);
    m->alignment = 64;
    make_tensor(m, "a.weight", TYPE_F32, 8, 2, weights, 64);
    make_tensor(m, "b.weight", TYPE_Q8_0, 32, 1, NULL, 34);

    buffer_free(&items);
}

static Buffer small_file(void) {
    Maker m;
    make_begin(&m);
    make_small(&m);
    return make_end(&m);
}

static void contents(void) {
    Buffer file = small_file();
    Gguf g;
    Error e;

    if (!gguf_parse(&g, file.data, file.len, "small", &e)) {
        CHECK(false, "%s", e.text);
        return;
    }
    static const struct {
        const char *key;
        double value;
        bool is_unsigned;
    } numbers[] = {{"u8", 200, 1},   {"i8", -5, 0},          {"u16", 60000, 1},
                   {"i16", -300, 0}, {"u32", 4000000000, 1}, {"i32", 7, 1},
                   {"i64", -1, 0},   {"f64", 1.5, 0},        {"f32", -0.25, 0}};

    // Numbers convert to double, non-negative integers also to uint64_t.
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double x = 0;
        uint64_t u = 0;
        CHECK(gguf_get_f64(&g, numbers[i].key, &x, &e) && x == numbers[i].value, "%s: %g",
              numbers[i].key, x);
        CHECK(gguf_get_u64(&g, numbers[i].key, &u, &e) == numbers[i].is_unsigned, "%s",
              numbers[i].key);
        CHECK(!numbers[i].is_unsigned || (double)u == x, "%s", numbers[i].key);
    }

    // Values of the other kinds. 2^64 - 1 does not fit a double.
    uint64_t u;
    double x;
    bool yes = false;
    Str s = {0};
    CHECK(gguf_get_u64(&g, "u64", &u, &e) && u == UINT64_MAX, "u64");
    CHECK(!gguf_get_f64(&g, "u64", &x, &e), "2^64 - 1 is not a double");
    CHECK(gguf_get_bool(&g, "yes", &yes, &e) && yes, "bool");
    CHECK(gguf_get_string(&g, "text", &s, &e) && str_is(s, "hello"), "string");

    // A missing key and the wrong kind.
    CHECK(!gguf_get_u64(&g, "nothing", &u, &e) && e.code == EXIT_MODEL &&
              strstr(e.text, "small: nothing: missing key"),
          "%s", e.text);
    CHECK(!gguf_get_u64(&g, "text", &u, &e) && strstr(e.text, "found string"), "%s", e.text);
    CHECK(!gguf_get_bool(&g, "u8", &yes, &e) && !gguf_get_string(&g, "words", &s, &e), "kinds");

    // Arrays.
    const GgufValue *words = gguf_get_array(&g, "words", GGUF_STRING, &e);
    CHECK(words && words->count == 3 && !gguf_get_array(&g, "words", GGUF_I32, &e), "array");
    if (words) {
        const uint8_t *cursor = words->data;
        gguf_next_string(&cursor);
        CHECK(gguf_next_string(&cursor).len == 0 && str_is(gguf_next_string(&cursor), "ccc"),
              "strings");
        CHECK(cursor == words->data + words->bytes, "end of the array");
    }

    // Tensors.
    const GgufTensor *a = gguf_find_tensor(&g, "a.weight");
    const GgufTensor *b = gguf_find_tensor(&g, "b.weight");
    CHECK(a && a->n_dims == 2 && a->dims[0] == 8 && a->dims[1] == 2 && a->dims[2] == 1 &&
              a->bytes == 64,
          "a.weight");
    CHECK(a && !memcmp(a->data, weights, 64), "a.weight's data");
    CHECK(b && b->type == TYPE_Q8_0 && b->bytes == 34 && !gguf_find_tensor(&g, "c.weight"),
          "b.weight");

    gguf_close(&g);
    buffer_free(&file);
}

static void types(void) {
    static const struct {
        uint32_t type;
        const char *name;
        double bits;
    } known[] = {
        {0, "F32", 32},       {1, "F16", 16},          {30, "BF16", 16},    {8, "Q8_0", 8.5},
        {2, "Q4_0", 4.5},     {3, "Q4_1", 5},          {6, "Q5_0", 5.5},    {7, "Q5_1", 6},
        {10, "Q2_K", 2.625},  {11, "Q3_K", 3.4375},    {12, "Q4_K", 4.5},   {13, "Q5_K", 5.5},
        {14, "Q6_K", 6.5625}, {16, "IQ2_XXS", 2.0625}, {20, "IQ4_NL", 4.5}, {23, "IQ4_XS", 4.25}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const TypeInfo *t = type_info(known[i].type);
        CHECK(!strcmp(t->name, known[i].name) && 8.0 * t->bytes / t->block == known[i].bits, "%s",
              known[i].name);
    }

    // Numbers of removed types, and numbers beyond the last type.
    static const uint32_t unused[] = {4,  5,  31,         32,       33,        36,
                                      37, 38, TYPE_COUNT, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        CHECK(type_info(unused[i])->block == 0, "%u", unused[i]);
}

// Parses a copy in memory of exactly its size, and reads all values and tensors of a valid file, so
// that a sanitizer finds reads beyond the end.
static bool parse_copy(const void *data, size_t n, Error *err) {
    uint8_t *copy = malloc(n ? n : 1);
    unsigned sum = 0;
    Gguf g;

    memcpy(copy, data, n);
    bool ok = gguf_parse(&g, copy, n, "bad.gguf", err);

    if (!ok) {
        CHECK(err->code == EXIT_MODEL && !strncmp(err->text, "bad.gguf: ", 10), "%s", err->text);
        CHECK(!strchr(err->text, '\n'), "%s", err->text);
    } else {
        for (int i = 0; i < g.n_values; i++) {
            const GgufValue *v = &g.values[i];
            for (size_t k = 0; k < v->bytes; k++) sum += v->data[k];
        }
        for (int i = 0; i < g.n_tensors; i++)
            for (size_t k = 0; k < g.tensors[i].bytes; k++)
                sum += ((const uint8_t *)g.tensors[i].data)[k];
        gguf_close(&g);
    }

    free(copy);
    return ok && sum != 1;
}

static void truncations(void) {
    Buffer file = small_file();
    Error e;
    CHECK(parse_copy(file.data, file.len, &e), "%s", e.text);
    for (size_t n = 0; n < file.len; n++)
        CHECK(!parse_copy(file.data, n, &e), "accepted after %zu of %zu bytes", n, file.len);

    // Within the type of the first tensor: after its name, n_dims and two dimensions.
    const char *name = memmem(file.data, file.len, "a.weight", 8);
    size_t type = (size_t)(name - file.data) + 8 + 4 + 2 * 8;
    CHECK(!parse_copy(file.data, type + 2, &e) &&
              test_matches(e.text, "a.weight: type: truncated file: 4 bytes needed, 2 left"),
          "%s", e.text);
    buffer_free(&file);

    file = make_llama_file((MakeLlama){.n_layers = 1, .dim = 8, .hidden_dim = 8});
    CHECK(parse_copy(file.data, file.len, &e), "%s", e.text);
    for (size_t n = 0; n < file.len; n += 1 + n / 400)
        CHECK(!parse_copy(file.data, n, &e), "%zu of %zu bytes", n, file.len);
    buffer_free(&file);
}

static void mutations(void) {
    static const uint8_t masks[] = {0x01, 0x02, 0x04, 0x10, 0x40, 0x80, 0xff, 0x7f};
    Buffer file = small_file();
    uint64_t random = 7;
    Error e;

    // Each byte before the data of the tensors, with each mask and as 0.
    for (size_t i = 0; i < file.len - 128; i++) {
        char old = file.data[i];
        for (size_t k = 0; k < sizeof masks; k++) {
            file.data[i] = (char)(old ^ masks[k]);
            parse_copy(file.data, file.len, &e);
        }
        file.data[i] = 0;
        parse_copy(file.data, file.len, &e);
        file.data[i] = old;
    }

    // Three random bytes at a time.
    for (int i = 0; i < 20000; i++) {
        size_t at[3];
        char old[3];
        for (int k = 0; k < 3; k++) {
            at[k] = test_random(&random) % file.len;
            old[k] = file.data[at[k]];
            file.data[at[k]] = (char)test_random(&random);
        }
        parse_copy(file.data, file.len, &e);
        for (int k = 2; k >= 0; k--) file.data[at[k]] = old[k];
    }

    // All bytes have been restored.
    CHECK(parse_copy(file.data, file.len, &e), "%s", e.text);
    buffer_free(&file);
}

// Each of the following makes a file with one invalid number, which the message must name.
static void bad_alignment(Maker *m, uint64_t v) {
    make_u32(m, "general.alignment", (uint32_t)v);
    make_tensor(m, "w", TYPE_F32, 8, 1, NULL, 32);
}
static void bad_alignment_kind(Maker *m, uint64_t kind) {
    make_value(m, "general.alignment", (GgufKind)kind, 32);
}
static void bad_version(Maker *m, uint64_t v) { m->version = (uint32_t)v; }
static void bad_n_tensors(Maker *m, uint64_t n) { m->n_tensors = n; }
static void bad_n_values(Maker *m, uint64_t n) { m->n_values = n; }
static void bad_key_length(Maker *m, uint64_t n) {
    make_le(&m->values, n, 8);
    make_le(&m->values, 0, 8);
    m->n_values++;
}
static void bad_string_length(Maker *m, uint64_t n) {
    make_key(m, "s", GGUF_STRING);
    make_le(&m->values, n, 8);
}
static void bad_item_length(Maker *m, uint64_t n) {
    Buffer items = {0};
    make_item(&items, "fine", 4);
    make_le(&items, n, 8);
    make_array(m, "s", GGUF_STRING, 2, items.data, items.len);
    buffer_free(&items);
}
static void bad_count(Maker *m, uint64_t n) { make_array(m, "s", GGUF_STRING, n, "12345678", 8); }
static void bad_count_f64(Maker *m, uint64_t n) { make_array(m, "s", GGUF_F64, n, "12345678", 8); }
static void bad_nesting(Maker *m, uint64_t depth) {
    make_key(m, "deep", GGUF_ARRAY);
    for (uint64_t i = 0; i < depth; i++) {
        make_le(&m->values, GGUF_ARRAY, 4);
        make_le(&m->values, 1, 8);
    }
}
static void bad_kind(Maker *m, uint64_t kind) {
    make_key(m, "k", (uint32_t)kind);
    make_le(&m->values, 0, 8);
}
static void bad_item_kind(Maker *m, uint64_t kind) {
    make_array(m, "k", (GgufKind)kind, 1, "12345678", 8);
}
static void bad_bool(Maker *m, uint64_t v) { make_value(m, "b", GGUF_BOOL, v); }
static void bad_duplicate_key(Maker *m, uint64_t v) {
    make_u32(m, "same", (uint32_t)v);
    make_u32(m, "other", 1);
    make_u32(m, "same", 2);
}
static void bad_n_dims(Maker *m, uint64_t n) {
    make_info(m, "w", (int)n, (const uint64_t[8]){1, 1, 1, 1, 1, 1, 1, 1}, 0, 0);
}
static void bad_dim(Maker *m, uint64_t n) { make_info(m, "w", 1, &n, TYPE_F32, 0); }
static void bad_square(Maker *m, uint64_t n) {
    make_info(m, "w", 2, (const uint64_t[]){n, n}, TYPE_F32, 0);
}
static void bad_rows(Maker *m, uint64_t n) {
    make_info(m, "w", 2, (const uint64_t[]){32, n}, TYPE_F32, 0);
}
static void bad_q4_row(Maker *m, uint64_t n) { make_info(m, "w", 1, &n, TYPE_Q4_0, 0); }
static void bad_sum(Maker *m, uint64_t n) {
    make_info(m, "v", 1, &n, 24, 0);
    make_info(m, "w", 1, &n, 24, n);
}
static void bad_type(Maker *m, uint64_t type) {
    make_u32(m, "general.file_type", 38);
    make_info(m, "w", 1, &(uint64_t){256}, (uint32_t)type, 0);
}
static void bad_offset(Maker *m, uint64_t offset) {
    make_tensor(m, "v", TYPE_F32, 32, 1, NULL, 128);
    make_info(m, "w", 1, &(uint64_t){16}, TYPE_F32, offset);
}
static void bad_overlap(Maker *m, uint64_t offset) {
    make_tensor(m, "v", TYPE_F32, 32, 1, NULL, 128);
    make_info(m, "w", 1, &(uint64_t){8}, TYPE_F32, offset);
}
static void bad_name(Maker *m, uint64_t len) {
    char name[100] = {0};
    memset(name, 'x', len);
    make_tensor(m, name, TYPE_F32, 8, 1, NULL, 32);
}
static void bad_duplicate_tensor(Maker *m, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) make_tensor(m, "w", TYPE_F32, 8, 1, NULL, 32);
}
static void bad_last_byte(Maker *m, uint64_t missing) {
    make_tensor(m, "w", TYPE_F32, 8, 1, NULL, 32 - missing);
}

static const struct {
    void (*make)(Maker *m, uint64_t n);
    uint64_t n;
    const char *message;
} bad_files[] = {
    {bad_version, 0, "version: expected ... found 0"},
    {bad_version, 1, "version: expected ... found 1"},
    {bad_version, 4, "version: expected ... found 4"},
    {bad_version, 0x03000000, "big-endian files are not supported"},
    {bad_n_tensors, UINT64_MAX, "n_tensors: expected ... found 18446744073709551615"},
    {bad_n_tensors, 1, "tensor name: truncated file: 8 bytes needed"},
    {bad_n_values, UINT64_MAX, "n_values: expected 0 to"},
    {bad_n_values, UINT32_MAX, "n_values: expected 0 to"},
    {bad_n_values, 200000, "key: truncated file: 8 bytes"},
    {bad_key_length, UINT64_MAX, "key: expected 1 to 65535, found"},
    {bad_key_length, 0, "key: expected 1 to 65535, found"},
    {bad_key_length, 9, "key: truncated file: 9 bytes needed, 8 left"},
    {bad_string_length, UINT64_MAX, "s: string: truncated file"},
    {bad_string_length, UINT64_MAX - 7, "s: string: truncated file"},
    {bad_string_length, 1, "s: string: truncated file"},
    {bad_item_length, UINT64_MAX, "s: string: "},
    {bad_item_length, 1, "s: string: "},
    {bad_count, 2, "s: string: "},
    {bad_count, 1ull << 61, "s: count: expected 0 to 4194304, found"},
    {bad_count, UINT64_MAX, "s: count: expected 0 to 4194304, found"},
    {bad_count_f64, 2, "s: value: truncated file: 16 bytes needed, 8 left"},
    {bad_count_f64, 1ull << 61, "s: count: expected"},
    {bad_count_f64, (1ull << 61) + 1, "s: count: expected"},
    {bad_count_f64, UINT64_MAX, "s: count: expected"},
    {bad_nesting, 1, "deep: item kind: arrays cannot be nested"},
    {bad_nesting, 100000, "deep: item kind: arrays cannot be nested"},
    {bad_kind, 13, "k: kind: expected 0 to 12"},
    {bad_kind, UINT32_MAX, "k: kind: expected 0 to 12"},
    {bad_item_kind, 13, "k: item kind: expected 0 to 12"},
    {bad_bool, 2, "b: value: expected ... found 2"},
    {bad_duplicate_key, 0, "same: duplicate key"},
    {bad_alignment, 0, "general.alignment: value: expected a power of two"},
    {bad_alignment, 13, "general.alignment: value: expected a power of two"},
    {bad_alignment, 1u << 31, "general.alignment: value: expected a power of two"},
    {bad_alignment, 4, "general.alignment: value: expected a power of two"},
    {bad_alignment_kind, GGUF_I32,
     "general.alignment: value: expected a power of two from 8 to 65536 (u32)"},
    {bad_n_dims, 0, "w: n_dims: expected 1 to 4"},
    {bad_n_dims, 5, "w: n_dims: expected 1 to 4"},
    {bad_n_dims, UINT32_MAX, "w: n_dims: expected 1 to 4"},
    {bad_dim, 0, "w: dimensions: "},
    {bad_dim, 1ull << 63, "w: dimensions: "},
    {bad_dim, INT64_MAX, "w: type: the tensor is too large"},
    {bad_dim, UINT64_MAX / 4, "w: "}, // (2^64 - 4) / 4: padding the size would wrap to 0
    {bad_square, 1ull << 32, "w: dimensions: "},
    {bad_square, 1ull << 31, "w: "},
    {bad_rows, 1ull << 60, "w: dimensions: "},
    {bad_rows, 1ull << 57, "w: type: the tensor is too large"},
    {bad_q4_row, 5124095576030431008u, "w: "},
    {bad_q4_row, 48, "w: type: Q4_0 needs rows of a multiple of 32 weights, found 48"},
    {bad_sum, 0x7FFFFFFFFFFFFFC0u, "w: dimensions: "},
    {bad_sum, 0x3FFFFFFFFFFFFFC0u, "v: offset: "},
    {bad_type, UINT32_MAX, "w: type: unknown tensor type"},
    {bad_type, TYPE_COUNT, "w: type: unknown tensor type"},
    {bad_type, 4, "w: type: unknown tensor type Q4_2 (use Q4_1) in a file of type MXFP4_MOE"},
    {bad_type, 31, "w: type: unknown tensor type Q4_0_4_4 (use Q4_0) in"},
    {bad_type, 38, "w: type: unknown tensor type IQ4_NL_8_8 (use IQ4_NL) in"},
    {bad_type, 43, "byte 78: w: type: unknown tensor type 43 in"},
    {bad_type, 139, "w: type: unknown tensor type 139 (ik_llama.cpp only; use"},
    {bad_offset, UINT64_MAX, "w: offset: expected a multiple of 32"},
    {bad_offset, UINT64_MAX - 31, "w: offset: 64 bytes at"},
    {bad_offset, 1, "w: offset: expected a multiple of 32"},
    {bad_offset, 96, "w: offset: 64 bytes at"},
    {bad_offset, 128, "w: offset: 64 bytes at"},
    {bad_overlap, 0, "offset: data overlaps tensor"},
    {bad_overlap, 96, "w: offset: data overlaps tensor v"},
    {bad_name, 0, "tensor name: expected 1 to 63, found"},
    {bad_name, 64, "tensor name: expected 1 to 63, found"},
    {bad_duplicate_tensor, 2, "w: duplicate tensor"},
    {bad_last_byte, 1, "w: offset: 32 bytes at"},
};

static void hostile_numbers(void) {
    bool is_32_bit = sizeof(size_t) < 8; // one number alone may then be too large
    struct rusage before, after;

    getrusage(RUSAGE_SELF, &before);
    double start = cpu_sec();

    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        Maker m;
        Error e = {0};
        make_begin(&m);
        bad_files[i].make(&m, bad_files[i].n);
        Buffer file = make_end(&m);
        CHECK(!parse_copy(file.data, file.len, &e), "case %zu: accepted", i);
        CHECK(test_matches(e.text, bad_files[i].message) ||
                  (is_32_bit && (strstr(e.text, ": dimensions: ") || strstr(e.text, ": offset: ") ||
                                 strstr(e.text, ": expected 0 to "))),
              "case %zu: %s", i, e.text);
        buffer_free(&file);
    }

    // Neither time nor memory depends on the numbers.
    getrusage(RUSAGE_SELF, &after);
    CHECK(cpu_sec() - start < 1, "%g s", cpu_sec() - start);
    CHECK(HAS_ASAN || after.ru_maxrss - before.ru_maxrss < 65536, "%ld KiB",
          after.ru_maxrss - before.ru_maxrss);

    // Other magics.
    static const char *const magics[] = {"FUGG\3xxx", "ggml\1xxx", "GGUF", "GGU", ""};
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        Error e;
        CHECK(!parse_copy(magics[i], strlen(magics[i]), &e), "magic %zu", i);
        CHECK(i || strstr(e.text, "big-endian"), "%s", e.text);
    }
}

// Version 2, an empty array, and tensors out of order with a gap between them.
static void unusual_files(void) {
    Error e;
    Maker m;

    make_begin(&m);
    m.version = 2;
    make_array(&m, "none", GGUF_F32, 0, "", 0);
    make_info(&m, "second", 4, (const uint64_t[]){2, 2, 2, 1}, TYPE_F32, 64);
    make_info(&m, "first", 1, (const uint64_t[]){8}, TYPE_F32, 0);
    for (int i = 0; i < 96; i++) buffer_append(&m.data, "", 1);

    Buffer file = make_end(&m);
    CHECK(parse_copy(file.data, file.len, &e), "%s", e.text);
    buffer_free(&file);

    for (int i = 0; i < 3; i++) {
        file = make_llama_file((MakeLlama){
            .is_vocabulary_only = i == 0, .is_sentencepiece = i == 1, .has_rope_freqs = i == 2});
        CHECK(parse_copy(file.data, file.len, &e), "%s", e.text);
        buffer_free(&file);
    }
}

static void many_keys(void) {
    enum { N = 200000 };
    Maker m;
    Gguf g;
    Error e = {0};
    char key[16];

    make_begin(&m);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%d", i);
        make_value(&m, key, GGUF_U8, (uint64_t)i);
    }

    Buffer file = make_end(&m);
    double start = cpu_sec();
    bool ok = gguf_parse(&g, file.data, file.len, "many", &e);
    CHECK(ok, "%s", e.text);

    if (ok) {
        for (int i = 0; i < N; i += 7) {
            uint64_t v = 0;
            snprintf(key, sizeof key, "k%d", i);
            CHECK(gguf_get_u64(&g, key, &v, &e) && v == (uint8_t)i, "%s", key);
        }
        CHECK(cpu_sec() - start < 1, "%g s", cpu_sec() - start);
        gguf_close(&g);
    }
    buffer_free(&file);
}

// A sparse file of the size of Llama 3.1 8B in BF16: a large vocabulary and 16 GiB of weights,
// which opening does not read.
static void large_file(void) {
    enum { N_TOKENS = 128256, N_MERGES = 280147 };
    uint64_t rows = 1u << 21;
    Maker m;
    Gguf g;
    Error e = {0};
    Buffer items = {0};
    char text[32];

    // Tokens and merges. The tokens are the first N_TOKENS of the same strings.
    make_begin(&m);
    for (int i = 0; i < N_MERGES; i++) {
        make_item(&items, text, (size_t)snprintf(text, sizeof text, "left%d right", i));
        if (i == N_TOKENS - 1)
            make_array(&m, "tokenizer.ggml.tokens", GGUF_STRING, N_TOKENS, items.data, items.len);
    }
    make_array(&m, "tokenizer.ggml.merges", GGUF_STRING, N_MERGES, items.data, items.len);

    make_info(&m, "w", 2, (const uint64_t[]){4096, rows}, TYPE_BF16, 0);
    Buffer file = make_end(&m);

    // The file ends with a hole of the size of the tensor.
    const char *path = make_path("large.gguf", file.data, file.len);

    if (sizeof(size_t) < 8) {
        test_skip("32-bit addresses");
    } else if (truncate(path, (off_t)(file.len + 32 + 4096 * 2 * rows))) {
        test_skip("no sparse files");
    } else {
        double best = 1;
        for (int i = 0; i < 3; i++) {
            double start = now_sec();
            bool ok = gguf_open(&g, path, &e);
            if (now_sec() - start < best) best = now_sec() - start;
            CHECK(ok && gguf_find_tensor(&g, "w")->bytes == 1ull << 34, "%s", e.text);
            if (ok) gguf_close(&g);
        }
        CHECK(best < 0.5, "%g s", best); // reading the weights takes longer
    }

    unlink(path);
    buffer_free(&items);
    buffer_free(&file);
}

static const char *make_shard(int no, int count, int total, const char *tensor, const char *name) {
    Maker m;
    make_begin(&m);
    if (no == 0) make_string(&m, "general.architecture", "llama");
    make_value(&m, "split.no", GGUF_U16, (uint64_t)no);
    make_value(&m, "split.count", GGUF_U16, (uint64_t)count);
    make_value(&m, "split.tensors.count", GGUF_I32, (uint64_t)total);
    if (tensor) make_tensor(&m, tensor, TYPE_F32, 8, 1, weights + no, 32);
    Buffer file = make_end(&m);
    const char *path = make_path(name, file.data, file.len);
    buffer_free(&file);
    return path;
}

static void shards(void) {
    Gguf g;
    Error e = {0};
    const char *first =
        make_shard(0, 3, 2, NULL, "m-00001-of-00003.gguf"); // metadata only, as is common
    const char *second = make_shard(1, 3, 2, "one", "m-00002-of-00003.gguf");
    const char *third = make_shard(2, 3, 2, "two", "m-00003-of-00003.gguf");

    // A complete model.
    bool ok = gguf_open(&g, first, &e);
    CHECK(ok && g.n_shards == 3 && g.n_tensors == 2 && gguf_find_value(&g, "general.architecture"),
          "%s", e.text);
    if (ok) {
        const GgufTensor *t = gguf_find_tensor(&g, "two");
        CHECK(t && t->shard == 2 && !memcmp(t->data, weights + 2, 32), "two");
        gguf_close(&g);
    }

    // Only the first shard opens a model.
    CHECK(!gguf_open(&g, second, &e) && e.code == EXIT_MODEL &&
              strstr(e.text, "open the first shard"),
          "%s", e.text);

    // A wrong shard number, a tensor of another shard, and a missing tensor.
    make_shard(1, 3, 2, "one", "m-00003-of-00003.gguf");
    CHECK(!gguf_open(&g, first, &e) && e.code == EXIT_MODEL &&
              strstr(e.text, "split.no: expected 2, found 1"),
          "%s", e.text);
    make_shard(2, 3, 2, "one", "m-00003-of-00003.gguf");
    CHECK(!gguf_open(&g, first, &e) && e.code == EXIT_MODEL &&
              strstr(e.text, "one: duplicate tensor"),
          "%s", e.text);
    make_shard(2, 3, 2, NULL, "m-00003-of-00003.gguf");
    CHECK(!gguf_open(&g, first, &e) && strstr(e.text, "split.tensors.count: expected 1"), "%s",
          e.text);

    // A shard that cannot be read.
    make_path("m-00003-of-00003.gguf", "GGUF", 4);
    CHECK(!gguf_open(&g, first, &e) && e.code == EXIT_MODEL &&
              strstr(e.text, "00003-of-00003.gguf: byte 4"),
          "%s", e.text);
    unlink(third);
    CHECK(!gguf_open(&g, first, &e) && e.code == EXIT_RUNTIME &&
              strstr(e.text, "00003-of-00003.gguf: No such"),
          "%s", e.text);

    // split.count contradicts the name of the file.
    make_shard(0, 2, 2, "one", "m-00001-of-00003.gguf");
    CHECK(!gguf_open(&g, first, &e) && strstr(e.text, "split.count: expected 3"), "%s", e.text);
    CHECK(!gguf_open(&g, make_shard(0, 2, 2, "one", "renamed.gguf"), &e) &&
              strstr(e.text, "split.count"),
          "%s", e.text);
}

static void unreadable(void) {
    Gguf g;
    Error e = {0};

    const char *path = make_path("empty.gguf", "", 0);
    CHECK(!gguf_open(&g, path, &e) && e.code == EXIT_MODEL && strstr(e.text, "magic"), "%s",
          e.text);
    CHECK(!gguf_open(&g, "/tmp", &e) && e.code == EXIT_RUNTIME && strstr(e.text, "directory"), "%s",
          e.text);
    CHECK(!gguf_open(&g, "/dev/zero", &e) && e.code == EXIT_RUNTIME, "%s", e.text);
    CHECK(!gguf_open(&g, "/nowhere/x.gguf", &e) && e.code == EXIT_RUNTIME &&
              strstr(e.text, "No such"),
          "%s", e.text);
    unlink(path);

    CHECK(mkfifo(path, 0600) == 0 && !gguf_open(&g, path, &e) && e.code == EXIT_RUNTIME, "%s",
          e.text);
    unlink(path);
}

static void missing_permission(void) {
    Gguf g;
    Error e = {0};
    if (!geteuid()) {
        test_skip("root may read any file");
        return;
    }

    const char *path = make_path("locked.gguf", "GGUF", 4);
    chmod(path, 0);
    CHECK(!gguf_open(&g, path, &e) && e.code == EXIT_RUNTIME && strstr(e.text, "denied"), "%s",
          e.text);
    unlink(path);
}

static void truncated_in_use(void) {
    Maker m;
    char message[128] = {0};
    int fd[2], status = 0;

    make_begin(&m);
    make_tensor(&m, "w", TYPE_F32, 1 << 14, 4, NULL, 1 << 18);
    Buffer file = make_end(&m);
    const char *path = make_path("truncated.gguf", file.data, file.len);
    buffer_free(&file);

    // The child reports to a pipe, truncates the file and reads the weights.
    CHECK(pipe(fd) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        Gguf g;
        Error e;
        volatile unsigned sum = 0;

        dup2(fd[1], STDERR_FILENO);
        signals_install(&(volatile int){0});
        if (!gguf_open(&g, path, &e) || truncate(path, 4096)) _exit(99);

        const GgufTensor *w = gguf_find_tensor(&g, "w");
        for (size_t i = 0; i < w->bytes; i++) sum += ((const uint8_t *)w->data)[i];
        _exit(sum ? 97 : 98);
    }

    close(fd[1]);
    ssize_t n = read(fd[0], message, sizeof message - 1);
    close(fd[0]);
    waitpid(child, &status, 0);

    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_RUNTIME, "status %x", (unsigned)status);
    CHECK(n > 0 && strstr(message, "model file changed while in use\n"), "%s", message);
    unlink(path);
}

void test_gguf(void) {
    test_case("gguf: values and tensors", contents);
    test_case("gguf: tensor types", types);
    test_case("gguf: every truncation is rejected", truncations);
    test_case("gguf: mutated bytes", mutations);
    test_case("gguf: hostile counts, lengths, types, offsets", hostile_numbers);
    test_case("gguf: unusual but valid files", unusual_files);
    test_case("gguf: 200000 keys", many_keys);
    test_case("gguf: 16 GiB open in 50 ms", large_file);
    test_case("gguf: shards", shards);
    test_case("gguf: unreadable files", unreadable);
    test_case("gguf: missing permission", missing_permission);
    test_case("gguf: a model truncated while in use", truncated_in_use);
}
