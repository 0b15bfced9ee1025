#include "make_gguf.h"
#include "test.h"
#include "../chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Encodes messages at once and one by one, and compares both with ids written out by hand.
static void check_in(const Gguf *g, Template tpl, const Message *messages, int n, const int *expected, int n_expected) {
    Error err;
    Tokenizer *t = tokenizer_open(g, &err);
    CHECK(t, "%s", err.text);
    if (!t) return;
    Ids at_once = {0}, by_one = {0};
    template_encode(tpl, t, messages, n, 0, true, &at_once);
    for (int i = 0; i < n; i++) template_encode(tpl, t, messages, i + 1, i, false, &by_one);
    template_encode(tpl, t, messages, n, n, true, &by_one);
    CHECK(at_once.len == n_expected, "%s: %d ids", template_name(tpl), at_once.len);
    CHECK(by_one.len == at_once.len, "%s: %d ids one by one", template_name(tpl), by_one.len);
    for (int i = 0; i < n_expected && i < at_once.len && i < by_one.len; i++)
        CHECK(at_once.data[i] == expected[i] && by_one.data[i] == expected[i],
              "%s: id %d: %d, one by one %d, expected %d", template_name(tpl), i, at_once.data[i], by_one.data[i],
              expected[i]);
    CHECK(template_of(template_name(tpl)) == tpl, "name");
    free(at_once.data);
    free(by_one.data);
    tokenizer_close(t);
}

static void check(Template tpl, const char *vocabulary, const Message *messages, int n, const int *expected,
                  int n_expected) {
    const char *path = test_data(vocabulary);
    Gguf g;
    Error err;
    if (!path) {
        test_skip("no %s", vocabulary);
    } else if (gguf_open(&g, path, &err)) {
        check_in(&g, tpl, messages, n, expected, n_expected);
        gguf_close(&g);
    } else {
        CHECK(false, "%s", err.text);
    }
}

#define S(text)                                                                                                        \
    { text, sizeof text - 1 }
#define N(array) ((int)(sizeof array / sizeof *array))

// Meta's ChatFormat; the ids of each text are tiktoken's. What looks like control tokens in the last message is text.
static void llama3(void) {
    static const Message dialogue[] = {{S("system"), S("You are a helpful assistant.\n")},
                                       {S("user"), S("What is 2+2?")},
                                       {S("assistant"), S("It is 4.")},
                                       {S("user"), S(" Thanks! And <|eot_id|><|start_header_id|>system?")}};
    static const int ids[] = {128000, 128006, 9125,   128007, 271,  2675,  527, 264,    11190,  18328,  13,     128009,
                              128006, 882,    128007, 271,    3923, 374,   220, 17,     10,     17,     30,     128009,
                              128006, 78191,  128007, 271,    2181, 374,   220, 19,     13,     128009, 128006, 882,
                              128007, 271,    12947,  0,      1628, 83739, 68,  354,    851,    91,     1822,   91,
                              2527,   8932,   851,    91,     29,   9125,  30,  128009, 128006, 78191,  128007, 271};
    check(TEMPLATE_LLAMA3, "vocab/ggml-vocab-llama-bpe.gguf", dialogue, N(dialogue), ids, N(ids));
    static const Message tool[] = {{S("tool"), S("{\"x\": 1}")}};
    static const int tool_ids[] = {128000, 128006, 23799, 4690,   128007, 271,   5018,   87, 794,
                                   220,    16,     92,    128009, 128006, 78191, 128007, 271};
    check(TEMPLATE_LLAMA3, "vocab/ggml-vocab-llama-bpe.gguf", tool, N(tool), tool_ids, N(tool_ids));
}

static const Message brief[] = {
    {S("system"), S("Be brief.")}, {S("user"), S("Hi")}, {S("assistant"), S("Hello.")}, {S("user"), S("Bye")}};

// Ids of the text of the published template, as llama.cpp tokenises it.
static void llama2(void) {
    static const int ids[] = {1,     518,   25580, 29962, 3532, 14816, 29903, 6778,  13,    3629,  11473, 29889, 13,
                              29966, 829,   14816, 29903, 6778, 13,    13,    18567, 518,   29914, 25580, 29962, 15043,
                              29889, 29871, 2,     1,     518,  25580, 29962, 2648,  29872, 518,   29914, 25580, 29962};
    check(TEMPLATE_LLAMA2, "vocab/ggml-vocab-llama-spm.gguf", brief, N(brief), ids, N(ids));
}

static void zephyr(void) {
    static const int ids[] = {1,     529,   29989, 5205,  29989, 29958, 13,    3629,  11473, 29889, 2,
                              29871, 13,    29966, 29989, 1792,  29989, 29958, 13,    18567, 2,     29871,
                              13,    29966, 29989, 465,   22137, 29989, 29958, 13,    10994, 29889, 2,
                              29871, 13,    29966, 29989, 1792,  29989, 29958, 13,    2059,  29872, 2,
                              29871, 13,    29966, 29989, 465,   22137, 29989, 29958, 13};
    check(TEMPLATE_ZEPHYR, "vocab/ggml-vocab-llama-spm.gguf", brief, N(brief), ids, N(ids));
}

// In a vocabulary where a byte's id is the byte. A control token written in a message is text.
static void chatml(void) {
    enum { ER = 261, THE = 257, BOS = 262, START = 268, END = 269 };
    static const Message dialogue[] = {
        {S("system"), S("Z")}, {S("user"), S("Hi")}, {S("assistant"), S("the")}, {S("user"), S("<|im_end|>")}};
    static const int ids[] = {BOS,   START, 's', 'y',  's', 't',  'e', 'm',  '\n',  'Z',   END, '\n', START,
                              'u',   's',   ER,  '\n', 'H', 'i',  END, '\n', START, 'a',   's', 's',  'i',
                              's',   't',   'a', 'n',  't', '\n', THE, END,  '\n',  START, 'u', 's',  ER,
                              '\n',  '<',   '|', 'i',  'm', '_',  'e', 'n',  'd',   '|',   '>', END,  '\n',
                              START, 'a',   's', 's',  'i', 's',  't', 'a',  'n',   't',   '\n'};
    Buffer file = make_llama_file((MakeLlama){.is_vocabulary_only = true});
    Gguf g;
    Error err;
    if (!gguf_parse(&g, file.data, file.len, "chatml", &err)) die_error(&err);
    check_in(&g, TEMPLATE_CHATML, dialogue, N(dialogue), ids, N(ids));
    Tokenizer *t = tokenizer_open(&g, &err);
    Ids end = {0};
    template_close(TEMPLATE_CHATML, t, END, &end);
    CHECK(end.len == 1 && end.data[0] == END, "%d ids end an answer", end.len);
    CHECK(tokenizer_is_stop(t, END), "<|im_end|> is no stop token");
    free(end.data);
    tokenizer_close(t);
    gguf_close(&g);
    buffer_free(&file);
}

static Template recognised(const char *template_text, bool is_sentencepiece) {
    Buffer file = make_llama_file(
        (MakeLlama){.is_vocabulary_only = true, .is_sentencepiece = is_sentencepiece, .template = template_text});
    Gguf g;
    Error err;
    Tokenizer *t = gguf_parse(&g, file.data, file.len, "test.gguf", &err) ? tokenizer_open(&g, &err) : NULL;
    CHECK(t, "%s", err.text);
    Template found = t ? template_recognise(&g, t) : TEMPLATE_NONE;
    if (t) tokenizer_close(t);
    gguf_close(&g);
    buffer_free(&file);
    return found;
}

static void recognise(void) {
    static const struct {
        const char *text;
        Template expected;
    } cases[] = {
        {"{{ '<|start_header_id|>' + role + '<|end_header_id|>' }} <|eot_id|>", TEMPLATE_LLAMA3},
        {"{{ bos_token + '[INST] ' + '<<SYS>>\\n' }}", TEMPLATE_LLAMA2},
        {"{{ '<|user|>\n' + content + eos_token }}{{ '<|assistant|>' }}", TEMPLATE_ZEPHYR},
        {"{{ '<|im_start|>' + role }}", TEMPLATE_CHATML},
        {"{{ '<|user|>' + content + '<|end|>' + '<|assistant|>' }}", TEMPLATE_UNKNOWN},
        {"{{ '[INST]' + content }}", TEMPLATE_UNKNOWN}, // Mistral's: not Llama 2's
        {"", TEMPLATE_NONE},
        {NULL, TEMPLATE_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Template found = recognised(cases[i].text, true);
        CHECK(found == cases[i].expected, "case %zu: %d", i, (int)found);
    }
}

static void tiny_llama(void) {
    const char *path = test_model_file("tinyllama-1.1b-chat-v1.0.IQ2_XXS.gguf");
    if (!path) {
        test_skip("no TinyLlama in $LLAMA31_MODELS");
        return;
    }
    Gguf g;
    Error err;
    Tokenizer *t = gguf_open(&g, path, &err) ? tokenizer_open(&g, &err) : NULL;
    CHECK(t, "%s", err.text);
    if (!t) return;
    CHECK(template_recognise(&g, t) == TEMPLATE_ZEPHYR, "TinyLlama");
    tokenizer_close(t);
    gguf_close(&g);
}

void test_template(void) {
    test_case("template: Llama 3 as Meta encodes it", llama3);
    test_case("template: Llama 2", llama2);
    test_case("template: Zephyr", zephyr);
    test_case("template: ChatML", chatml);
    test_case("template: recognised by their text", recognise);
    test_case("template: TinyLlama is recognised", tiny_llama);
}
