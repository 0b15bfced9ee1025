// EAGLE-3 draft heads against llama.cpp: features, logits and drafts of three heads for one target,
// which are in eagle3/ of the test data.
#include "tests/test.h"
#include "base/files.h"
#include "base/json.h"
#include "generate/speculate/head.h"
#include "model/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_STEPS = 5 };
static const double limit = 1e-6; // NMSE

static const char *head_file(const char *head, const char *suffix) {
    char name[80];
    snprintf(name, sizeof name, "eagle3/%s%s", head, suffix);
    return test_data(name);
}

static Buffer read_bytes(const char *head, const char *suffix) {
    Buffer bytes = {0};
    Error err = {.text = "missing"};
    const char *path = head_file(head, suffix);
    CHECK(path && file_read(path, &bytes, &err), "%s%s: %s", head, suffix, err.text);
    return bytes;
}

static void open_or_fail(Model *m, const char *name) {
    Error err = {.text = "missing"};
    ModelOptions options = {.is_draft = true, .kv_type = "f32", .n_threads = 2};
    const char *path = head_file(name, ".gguf");
    if (!path || !model_open(m, path, &options, &err)) die(1, "%s: %s", name, err.text);
}

// Runs tokens through the target, and returns the most likely token after the last of them, or
// after all of them in `after` (n).
static int feed_target(const Model *m, Workspace *ws, Session *s, const int *tokens, int n,
                       int *after) {
    Error err;
    int n_vocab = m->config.vocab_size, last = -1;
    workspace_feed(ws, s, tokens, n, 0, &err);
    const float *logits = model_forward(m, ws, 1);
    for (int i = 0; i < n; i++, logits += n_vocab) {
        last = logits_argmax(logits, n_vocab);
        if (after) after[i] = last;
    }
    return last;
}

// Compares one row of a golden file; logits, g, or x after the layer.
static void compare_row(const char *head, const char *what, const float *found,
                        const Buffer *golden, int row, int n) {
    size_t n_floats = (size_t)n, end = (size_t)(row + 1) * n_floats * sizeof(float);
    if (golden->len < end) {
        CHECK(false, "%s: %s: %zu bytes, expected %zu", head, what, golden->len, end);
        return;
    }
    double nmse =
        test_nmse(found, (const float *)(void *)golden->data + (size_t)row * n_floats, n_floats);
    CHECK(nmse <= limit, "%s: %s: row %d: NMSE %g", head, what, row, nmse);
}

// Runs n pairs in one pass; returns the logits of the last one.
static const float *run_pairs(DraftHead *head, Session *s, const int *tokens, int n,
                              bool has_features) {
    Error err;
    head->has_features = has_features;
    if (workspace_feed(head->workspace, s, tokens, n, n - 1, &err) < n) die_error(&err);
    return model_forward(&head->model, head->workspace, 0);
}

// Every row of the golden files: g of all positions in one pass, then one pair at a time.
static void compare_rows(DraftHead *head, const char *name, const int *prompt, int n_prompt,
                         const Json *golden) {
    Buffer logits = read_bytes(name, ".logits.f32"), g = read_bytes(name, ".g.f32");
    Buffer hidden = read_bytes(name, ".h.f32");
    const Json *drafted = json_get(golden, "drafted")->child;
    int last = (int)json_get(golden, "last")->number, dim = head->model.config.dim, token = 0;
    size_t n = (size_t)head->fc.cols;
    Session *s = session_new(&head->model.kv);

    // Row 0 of g is x after the pass, so the rows are moved by one.
    memcpy(head->features + n, head->target_rows, (size_t)n_prompt * n * sizeof(float));
    run_pairs(head, s, prompt, n_prompt, true);
    for (int i = 0; i < n_prompt - 1; i++)
        compare_row(name, "g", head->g + (i + 1) * dim, &g, i, dim);
    session_rewind(s, 0);

    for (int i = 0; i < n_prompt + N_STEPS - 1; i++) {
        bool has_features = i < n_prompt;
        if (has_features) {
            token = i + 1 < n_prompt ? prompt[i + 1] : last;
            memcpy(head->features, head->target_rows + (size_t)i * n, n * sizeof(float));
        }
        const float *row = run_pairs(head, s, &token, 1, has_features);
        compare_row(name, "logits", row, &logits, i, head->model.output.rows);
        if (i < n_prompt - 1) continue;

        int step = i - n_prompt + 1;
        compare_row(name, "x", head->g, &hidden, step, dim);
        token = logits_argmax(head_logits(head, row), head->model.config.vocab_size);
        CHECK(drafted && token == (int)drafted->number, "%s: draft %d: token %d", name, step,
              token);
        drafted = drafted ? drafted->next : NULL;
    }

    session_free(s);
    buffer_free(&logits);
    buffer_free(&g);
    buffer_free(&hidden);
}

// Greedy generation with up to five drafts per pass: the text, and the numbers of passes, drafts
// and accepted drafts, unless the context of the head is shorter. Then it begins anew.
static void compare_generation(DraftHead *head, Workspace *ws, const char *name, const int *prompt,
                               int n_prompt, const Json *golden) {
    const Json *expected = json_get(golden, "ids")->child;
    int n_tokens = (int)json_get(golden, "n")->number;
    int counts[3] = {0}; // passes, drafts, accepted
    bool is_shorter = head->model.config.max_context < n_prompt + n_tokens;
    static const char *const names[] = {"rounds", "drafted", "accepted"};
    SampleOptions greedy = {.top_p = 1, .repeat_penalty = 1};
    const Model *target = head->target;
    Sampler *sampler = sampler_new(&greedy, target->config.vocab_size);
    Session *s = session_new(&target->kv);
    Drafter d = head_begin(head, &greedy);

    int pending = feed_target(target, ws, s, prompt, n_prompt, NULL), n = 0;
    d.accept(d.arg, s, 0, n_prompt);
    CHECK(expected && pending == (int)expected->number, "%s: token %d", name, pending);
    for (n = 1; n < n_tokens;) {
        int tokens[1 + N_STEPS] = {pending}, after[1 + N_STEPS], n_kept = 1;
        int n_left = n_tokens - n - 1;
        DraftPoint at = {s, pending, sampler, 1};
        int n_drafted =
            n_left ? d.draft(d.arg, &at, tokens + 1, n_left < N_STEPS ? n_left : N_STEPS) : 0;
        CHECK(n_drafted > 0 || !n_left, "%s: token %d: no draft", name, n);
        feed_target(target, ws, s, tokens, 1 + n_drafted, after);
        while (n_kept <= n_drafted && tokens[n_kept] == after[n_kept - 1]) n_kept++;
        session_rewind(s, s->n_tokens - (1 + n_drafted - n_kept));
        d.accept(d.arg, s, 0, n_kept);

        for (int i = 0; i < n_kept; i++, n++) {
            expected = expected ? expected->next : NULL;
            CHECK(expected && after[i] == (int)expected->number, "%s: token %d: %d", name, n,
                  after[i]);
        }
        pending = after[n_kept - 1];
        counts[0]++;
        counts[1] += n_drafted;
        counts[2] += n_kept - 1;
    }

    for (int i = 0; i < 3; i++)
        CHECK(is_shorter || counts[i] == (int)json_get(golden, names[i])->number, "%s: %s: %d",
              name, names[i], counts[i]);
    d.free(d.arg);
    session_free(s);
    sampler_free(sampler);
}

static void golden_heads(void) {
    static const char *const heads[] = {"head-random", "head-own", "head-apt"};
    static Model target, models[3]; // heads are not freed, as in the program
    static DraftHead *opened[3];
    JsonDoc doc = {0};
    Error err;
    int prompt[64], n_prompt = 0;

    if (!head_file("golden", ".json")) {
        test_skip("no eagle3/ under LLAMA31_DATA");
        return;
    }

    Buffer text = read_bytes("golden", ".json");
    if (!json_parse(&doc, text.data, text.len, &err)) die_error(&err);
    for (const Json *id = json_get(doc.root, "prompt")->child; id; id = id->next)
        prompt[n_prompt++] = (int)id->number;
    open_or_fail(&target, "target");
    Workspace *ws = workspace_new(&target, 64, 64);

    const Json *golden = json_get(doc.root, "cases")->child;
    for (int i = 0; i < 3; i++, golden = golden->next) {
        open_or_fail(&models[i], heads[i]);
        DraftHead *head = opened[i] = head_new(&models[i], &target, ws, &err);
        if (!head) die_error(&err);

        Session *s = session_new(&target.kv);
        int last = feed_target(&target, ws, s, prompt, n_prompt, NULL);
        CHECK(last == (int)json_get(golden, "last")->number, "%s: last %d", heads[i], last);
        session_free(s);
        compare_rows(head, heads[i], prompt, n_prompt, golden);
        compare_generation(head, ws, heads[i], prompt, n_prompt, json_get(golden, "generate"));
        head->model.config.max_context = n_prompt + 8;
        compare_generation(head, ws, heads[i], prompt, n_prompt, json_get(golden, "generate"));
    }

    workspace_free(ws);
    json_free(&doc);
    buffer_free(&text);
}

void test_head(void) { test_case("head: features, logits and drafts of llama.cpp", golden_heads); }
