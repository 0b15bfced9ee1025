// Prefix cache: loaded pages have the bits of computed ones, damaged pages are cache misses, and
// the directory stays within its size.
#include "tests/make_gguf.h"
#include "tests/test.h"
#include "base/files.h"
#include "model/load.h"
#include "quantize/encode.h"
#include "generate/cache/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TOKENS = 1030, N_NEW = 4 };

static char dir[] = "/tmp/llama31-cache-XXXXXX";
static Model model;
static Buffer file;
static int tokens[MAX_TOKENS];

static void open_small(MakeLlama recipe, ModelOptions options) {
    Gguf g;
    Error err;
    uint64_t seed = recipe.seed;
    recipe.max_context = 2048;
    buffer_free(&file);
    file = make_llama_file(recipe);
    if (!gguf_parse(&g, file.data, file.len, "small", &err) ||
        !model_bind(&model, &g, &options, &err))
        die_error(&err);
    for (int i = 0; i < MAX_TOKENS; i++) tokens[i] = (int)(test_random(&seed) % 256);
}

// Returns the number of pages. Sets the bytes of all pages and the path of one of them.
static int list_pages(uint64_t *bytes, char path[128]) {
    DIR *d = opendir(dir);
    struct stat st;
    int n = 0;

    if (!d) die_file(dir);
    *bytes = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strstr(e->d_name, ".kv")) continue;
        snprintf(path, 128, "%s/%.80s", dir, e->d_name);
        CHECK(!stat(path, &st), "stat");
        *bytes += (uint64_t)st.st_size;
        n++;
    }

    closedir(d);
    return n;
}

static void remove_files(void) {
    uint64_t bytes;
    char path[128];
    while (list_pages(&bytes, path)) unlink(path);
}

// Feeds a prompt of n tokens in passes of `chunk`, then N_NEW - 1 tokens one at a time, as
// generate.c does. Logits (N_NEW, n_vocab) go to out. Returns the positions loaded from the cache.
static int run_prompt(float *out, int n, int chunk, PrefixCache *c) {
    Error err;
    size_t n_vocab = (size_t)model.config.vocab_size;
    Workspace *ws = workspace_new(&model, chunk, 1);
    Session *s = session_new(&model.kv);
    int n_loaded = c ? cache_load(c, s, tokens, n) : 0;
    int n_stored = 0;

    // The prompt. A pass ends at a multiple of `chunk` also if the cache has loaded a part of it.
    while (s->n_tokens < n) {
        int before = s->n_tokens % chunk; // positions of this pass that the cache has loaded
        int left = n - s->n_tokens;
        int max = left < chunk - before ? left : chunk - before;
        if (workspace_feed(ws, s, tokens + s->n_tokens, max, left - 1, &err) != max)
            die_error(&err);
        memcpy(out, model_forward(&model, ws, before + max), n_vocab * sizeof *out);
        if (c) n_stored = cache_store(c, s, n_stored);
    }

    // The generated tokens: any ids, so that both runs have the same.
    for (int i = 1; i < N_NEW; i++) {
        if (workspace_feed(ws, s, tokens + i, 1, 0, &err) != 1) die_error(&err);
        memcpy(out + (size_t)i * n_vocab, model_forward(&model, ws, 1), n_vocab * sizeof *out);
    }

    workspace_free(ws);
    session_free(s);
    return n_loaded;
}

// Compares a prompt without a cache, with an empty one and with a full one, from which `expected`
// positions are loaded.
static void compare(int n, int chunk, int expected) {
    Error err;

    size_t bytes = N_NEW * (size_t)model.config.vocab_size * sizeof(float);
    float *plain = xalloc(bytes, 1);
    float *cached = xalloc(bytes, 1);
    PrefixCache *c = cache_open(dir, 1u << 30, &model, chunk, &err);
    if (!c) die_error(&err);
    run_prompt(plain, n, chunk, NULL);

    for (int round = 0; round < 2; round++) {
        int n_loaded = run_prompt(cached, n, chunk, c);
        CHECK(!memcmp(plain, cached, bytes), "%d tokens in passes of %d, round %d: different bits",
              n, chunk, round);
        if (round)
            CHECK(n_loaded == expected, "%d tokens in passes of %d: %d loaded, expected %d", n,
                  chunk, n_loaded, expected);
    }

    free(c);
    free(plain);
    free(cached);
}

static const MakeLlama shapes[] = {
    {.seed = 1},
    {.seed = 2, .n_heads = 8, .n_kv_heads = 1, .type = TYPE_F16},
    {.seed = 3, .n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .type = TYPE_BF16},
    {.seed = 4, .n_heads = 72, .n_kv_heads = 1, .head_dim = 4},
    {.seed = 5, .dim = 256, .n_heads = 4, .type = TYPE_Q8_0, .encode = quant_encode},
    {.seed = 6, .n_experts = 12, .hidden_dim = 64, .type = TYPE_BF16},
    {.seed = 7, .dim = 256, .n_experts = 40, .type = TYPE_Q8_0, .encode = quant_encode}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void same_bits(void) {
    static const struct {
        int n, chunk, whole; // whole: pages computed in one pass, except one at the end
    } cases[] = {{255, 512, 0}, {257, 512, 1}, {300, 300, 1}, {513, 512, 2},
                 {700, 300, 1}, {260, 100, 0}, {530, 256, 2}, {775, 1024, 3}};

    for (size_t k = 0; k < N_SHAPES; k += (size_t)test_step(2))
        for (int invariant = 0; invariant < 2; invariant++) {
            open_small(shapes[k], (ModelOptions){.n_threads = 2, .is_batch_invariant = invariant});
            for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i += test_step(3)) {
                int pages = model.is_batch_invariant ? (cases[i].n - 1) / KV_PAGE : cases[i].whole;
                remove_files();
                compare(cases[i].n, cases[i].chunk, pages * KV_PAGE);
            }
            model_close(&model);
        }
}

// A prompt that ends with a page: its last tokens are fed again, into a copy of the page.
static void whole_prompt(void) {
    for (size_t k = 0; k < N_SHAPES; k++) {
        open_small(shapes[k], (ModelOptions){.n_threads = 1});

        // Tokens that are fed again, see n_refeed in cache.c. With 3 heads per KV head, the last
        // of the 4 tiles of a page has 1 step, the others have 85.
        int group = model.config.n_heads / model.config.n_kv_heads;
        int again = kernel.attend_many_above / group + 1;
        if (group == 3) again = 1;

        remove_files();
        compare(512, 512, 512 - again);
        compare(256, 512, 256 - again);
        model_close(&model);
    }
    remove_files();
}

static void flip_bit(const char *path, off_t at, unsigned char *saved) {
    int fd = open(path, O_RDWR);
    unsigned char bad;

    CHECK(pread(fd, saved, 1, at) == 1, "read");
    bad = *saved ^ (unsigned char)(1 << at % 8);
    CHECK(pwrite(fd, &bad, 1, at) == 1, "write");
    close(fd);
}

static int load_prompt(PrefixCache *c, int n) {
    Session *s = session_new(&model.kv);
    int n_loaded = cache_load(c, s, tokens, n);
    session_free(s);
    return n_loaded;
}

// A flipped bit in every byte of the head and in some of the page; wrong lengths; other tokens;
// another model.
static void damaged_pages(void) {
    Error err;
    uint64_t bytes;
    char path[128];

    open_small((MakeLlama){.seed = 1, .n_layers = 1}, (ModelOptions){.n_threads = 1});
    remove_files();
    compare(300, 512, 256);

    // The only page of the cache, and its undamaged content.
    CHECK(list_pages(&bytes, path) == 1, "one page");
    PrefixCache *c = cache_open(dir, 1u << 30, &model, 512, &err);
    Buffer whole = {0};
    if (!file_read(path, &whole, &err)) die_error(&err);

    // One bit flipped, in each byte of the head and in some of the page.
    for (size_t at = 0; at < whole.len; at += at < 5000 ? (size_t)test_step(5) : 997) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600); // a miss removes the file
        unsigned char saved;
        CHECK(fd >= 0 && write_all(fd, whole.data, whole.len) && !close(fd), "write");
        flip_bit(path, (off_t)at, &saved);
        CHECK(load_prompt(c, 300) == 0, "byte %d changed, page loaded", (int)at);
    }

    // Wrong lengths. None equals the length of the file, which is a multiple of 64.
    for (size_t len = 0; len <= whole.len + 1; len += len < 5000 ? 13 : 4096) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0 && write_all(fd, whole.data, len < whole.len ? len : whole.len) && !close(fd),
              "write");
        CHECK(load_prompt(c, 300) == 0, "cut to %d bytes, page loaded", (int)len);
    }

    // A damaged page is replaced.
    compare(300, 512, 256);

    // Other tokens.
    tokens[7] ^= 1;
    CHECK(load_prompt(c, 300) == 0, "page of other tokens loaded");
    tokens[7] ^= 1;
    CHECK(load_prompt(c, 300) == 256, "page not loaded");

    // Another model.
    model.rope.theta += 1;
    PrefixCache *other = cache_open(dir, 1u << 30, &model, 512, &err);
    CHECK(load_prompt(other, 300) == 0, "page of another RoPE base loaded");

    free(other);
    free(c);
    buffer_free(&whole);
    remove_files();
    model_close(&model);
}

// A page has the bits of a computed one for every type of KV cache, and is used for this type only.
static void kv_types(void) {
    static const char *const types[] = {"f16", "q8_0", "q4_0", "q8_0,q4_0", "q4_0,q8_0", "f32"};
    Error err;

    remove_files();
    for (int i = 0; i < 6; i++) {
        open_small(shapes[4], (ModelOptions){.n_threads = 1, .kv_type = types[i]});
        PrefixCache *c = cache_open(dir, 1u << 30, &model, 512, &err);
        if (!c) die_error(&err);
        CHECK(load_prompt(c, 300) == 0, "%s: page of another type loaded", types[i]);
        compare(300, 512, 256);
        free(c);
        model_close(&model);
    }
    remove_files();
}

// The cache stays within its size and keeps the pages used most recently.
static void size_limit(void) {
    Error err;
    uint64_t bytes, total;
    char path[128];
    float *out = xalloc(N_NEW * 1000, sizeof *out);

    open_small((MakeLlama){.seed = 1, .n_layers = 1}, (ModelOptions){.n_threads = 1});
    remove_files();

    // The size of one page.
    compare(257, 512, 256);
    list_pages(&bytes, path);

    // A cache for four pages, of prompts with two pages each. Both of the last prompt are present.
    PrefixCache *c = cache_open(dir, 4 * bytes, &model, 512, &err);
    for (int i = 0; i < 9; i++) {
        tokens[0] = i;
        run_prompt(out, 700, 512, c);
        CHECK(run_prompt(out, 700, 512, c) == 512, "prompt %d was removed", i);
        int n = list_pages(&total, path);
        CHECK(total <= 4 * bytes + 8192, "%d files, %llu bytes", n, (unsigned long long)total);
    }
    free(c);

    // A cache that is too small for a page.
    c = cache_open(dir, bytes / 2, &model, 512, &err);
    tokens[0] = 77;
    run_prompt(out, 700, 512, c);
    CHECK(run_prompt(out, 700, 512, c) == 0, "a page in a cache that is too small for it");

    free(c);
    remove_files();
    free(out);
    model_close(&model);
}

// A directory that disappears is a warning. The prompt is computed.
static void missing_directory(void) {
    char text[512] = "";
    Error err;
    float *out = xalloc(N_NEW * 1000, sizeof *out);

    open_small((MakeLlama){.seed = 1, .n_layers = 1}, (ModelOptions){.n_threads = 1});
    PrefixCache *c = cache_open(dir, 1u << 30, &model, 512, &err);
    if (!c) die_error(&err);
    remove_files();
    rmdir(dir);

    int saved = dup(STDERR_FILENO);
    int warnings = open(make_path("warnings", "", 0), O_RDWR);
    dup2(warnings, STDERR_FILENO);
    int n_loaded = run_prompt(out, 300, 512, c);
    dup2(saved, STDERR_FILENO);

    lseek(warnings, 0, SEEK_SET);
    ssize_t n = read(warnings, text, sizeof text - 1);
    CHECK(n_loaded == 0 && n > 0 && strstr(text, "a page is not written to the cache"), "%s", text);

    if (mkdir(dir, 0700)) die_file(dir);
    close(saved);
    close(warnings);
    free(c);
    free(out);
    model_close(&model);
}

void test_cache(void) {
    if (!mkdtemp(dir)) die_file(dir);
    test_case("cache: loaded pages have the bits of computed ones", same_bits);
    test_case("cache: a prompt that ends with a page", whole_prompt);
    test_case("cache: damaged pages and pages of other models are misses", damaged_pages);
    test_case("cache: a page of each type of KV cache", kv_types);
    test_case("cache: the size limit removes the least recently used pages", size_limit);
    test_case("cache: a directory that disappears", missing_directory);
    buffer_free(&file);
    rmdir(dir);
}
