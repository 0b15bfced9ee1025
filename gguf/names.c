// Names of tensor types, file types and other file formats, for messages about files that this
// program cannot use.
#include "gguf/gguf.h"

#include <stdio.h>

enum { IK_FIRST = 97, IK_LAST = 399 }; // type numbers that only ik_llama.cpp assigns

// In the order of llama.cpp's enum llama_ftype.
const char *gguf_file_type_name(uint64_t number) {
    static const char *const names[] = {
        "F32",      "F16",    "Q4_0",    "Q4_1",      "Q4_1_SOME_F16", "Q4_2",     "Q4_3",
        "Q8_0",     "Q5_0",   "Q5_1",    "Q2_K",      "Q3_K_S",        "Q3_K_M",   "Q3_K_L",
        "Q4_K_S",   "Q4_K_M", "Q5_K_S",  "Q5_K_M",    "Q6_K",          "IQ2_XXS",  "IQ2_XS",
        "Q2_K_S",   "IQ3_XS", "IQ3_XXS", "IQ1_S",     "IQ4_NL",        "IQ3_S",    "IQ3_M",
        "IQ2_S",    "IQ2_M",  "IQ4_XS",  "IQ1_M",     "BF16",          "Q4_0_4_4", "Q4_0_4_8",
        "Q4_0_8_8", "TQ1_0",  "TQ2_0",   "MXFP4_MOE", "NVFP4",         "Q1_0",     "Q2_0"};
    return number < sizeof names / sizeof *names ? names[number] : NULL;
}

const char *gguf_describe_type(uint32_t type, const char *file_type) {
    // By type number: a supported type of about the same size.
    static const char *const alternatives[TYPE_COUNT] = {
        [4] = "Q4_1",    [5] = "Q4_1",    [9] = "Q8_0",    [15] = "Q8_0",
        [31] = "Q4_0",   [32] = "Q4_0",   [33] = "Q4_0",   [36] = "IQ4_NL",
        [37] = "IQ4_NL", [38] = "IQ4_NL", [39] = "Q4_K_M", [40] = "Q4_K_M"};

    static char text[160];
    const char *alternative = type < TYPE_COUNT ? alternatives[type] : NULL;
    bool has_name = type_info(type) != type_info(TYPE_COUNT),
         is_ik = type >= IK_FIRST && type <= IK_LAST;
    char number[16];

    snprintf(number, sizeof number, "%u", type);
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", has_name ? type_info(type)->name : number,
             is_ik ? " (ik_llama.cpp only; use a mixture of llama.cpp)" : "",
             alternative ? " (use " : "", alternative ? alternative : "", alternative ? ")" : "",
             file_type ? " in a file of type " : "", file_type ? file_type : "");
    return text;
}

#define CONVERT "; convert its directory with scripts/export.py"

const char *gguf_describe_magic(const uint8_t *data, size_t n) {
    static const struct {
        size_t at;
        const char *bytes, *format;
    } formats[] = {
        {8, "{\"", "a safetensors file" CONVERT}, // after the length of its JSON header
        {0, "PK\3\4", "a zip archive (a PyTorch checkpoint?)" CONVERT},
        {0, "\x1f\x8b", "a gzip file; decompress it first (gunzip, or tar -xzf)"},
        {0, "\x80\2", "a pickled PyTorch checkpoint; save it with torch 1.6 or newer" CONVERT},
        {0, "<", "a web page; the download failed, repeat it (curl -L)"},
        {0, "version https://git-lfs", "a Git LFS pointer; git lfs pull downloads the file"},
        {0, "\xff\xfe", "text in UTF-16"},
        {0, "\xfe\xff", "text in UTF-16"},
        {0, "{", "a JSON file" CONVERT},
        {0, "[", "a JSON file" CONVERT},
        {2, "gg", "a GGML file from before GGUF; download the model as GGUF"}, // GGML, GGMF, GGJT
    };
    static char text[16];
    Str head = {(const char *)data, n < 64 ? n : 64};

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (str_find(head, str_of(formats[i].bytes)) == formats[i].at) return formats[i].format;

    // Text has no control characters except tabs and line breaks.
    size_t n_text = 0;
    while (n_text < head.len &&
           (data[n_text] >= ' ' || (data[n_text] >= '\t' && data[n_text] <= '\r')))
        n_text++;
    if (n_text == head.len) return "a text file";

    snprintf(text, sizeof text, "%02x %02x %02x %02x", data[0], data[1], data[2], data[3]);
    return text;
}
