// Generation: feeding several forced or draft tokens in one pass gives the same results as feeding
// one token per pass.
#include "tests/test.h"
#include "cli/modules.h"
#include "generate/generate.h"
#include "model/load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A constraint that forces n given tokens after every fifth sampled one, at most `max` per call,
// and bans a third of the vocabulary at each position.
typedef struct {
    int n_accepted, n_due, n, max, n_vocab; // n_due: forced tokens that have not been accepted yet
    int tokens[2 * GENERATE_LOOKAHEAD];
} TestConstraint;

static int force_tokens(void *arg, int *out) {
    TestConstraint *t = arg;
    int n = t->n_due < t->max ? t->n_due : t->max;
    for (int i = 0; i < n; i++) out[i] = t->tokens[t->n - t->n_due + i];
    return n;
}

static int count_all(void *arg, const int *drafts, int n) {
    (void)arg;
    (void)drafts;
    return n;
}

static bool ban_third(void *arg, float *logits) {
    const TestConstraint *t = arg;
    for (int i = t->n_accepted % 3; i < t->n_vocab; i += 3) logits[i] = -INFINITY;
    return true;
}

static bool accept_token(void *arg, int token) {
    TestConstraint *t = arg;
    if (t->n_due > 0) {
        CHECK(token == t->tokens[t->n - t->n_due], "token %d, expected %d", token,
              t->tokens[t->n - t->n_due]);
        t->n_due--;
    } else if (t->n_accepted % 5 == 4) {
        t->n_due = t->n;
    }
    t->n_accepted++;
    return true;
}

static Model model;
static Tokenizer *tokenizer;
static Ids prompt;
static int n_drafted, n_accepted; // of all requests

// Runs a request and returns its number of forward passes.
static int run_request(Sequence *s, Request r, TestConstraint t, Session *session,
                       Speculation *speculation) {
    Generator g;
    int n = 0;
    Constraint c = {force_tokens, count_all, ban_third, accept_token, NULL, NULL, &t};
    if (t.n) r.constraint = &c;

    generator_init(&g, &model, tokenizer, 0, 1);
    g.speculation = speculation;
    sequence_start(s, &g, &r, session);
    while (s->finish == FINISH_NONE && generate_step(&g, &s, 1)) n++;

    CHECK(g.prefill_sec >= 0 && g.decode_sec >= 0, "%g and %g s", g.prefill_sec, g.decode_sec);
    n_drafted += (int)g.n_drafted;
    n_accepted += (int)g.n_accepted;
    workspace_free(g.workspace);
    free(g.masked);
    return n;
}

// Compares one token per pass with up to `max` forced tokens, or drafts, per pass.
static void compare(const Request *r, TestConstraint t, int max, Speculation *speculation) {
    Sequence one, many;
    Session *a = session_new(&model.kv);
    Session *b = session_new(&model.kv);

    t.max = 1;
    int n_one = run_request(&one, *r, t, a, NULL);
    t.max = max;
    int n_many = run_request(&many, *r, t, b, speculation);

    CHECK(one.finish == many.finish && one.n_generated == many.n_generated &&
              one.stop_token == many.stop_token,
          "%d per pass: finish %d and %d, %d and %d tokens", max, one.finish, many.finish,
          one.n_generated, many.n_generated);
    CHECK(str_eq(buffer_str(&one.text), buffer_str(&many.text)), "%d per pass: %s | %s", max,
          one.text.data, many.text.data);
    CHECK(a->n_tokens == b->n_tokens &&
              !memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof(int)),
          "%d per pass: different tokens in the session", max);

    if (one.logprobs)
        for (int i = 0; i < one.n_generated && i < many.n_generated; i++)
            CHECK(!memcmp(&one.logprobs[i].logprob, &many.logprobs[i].logprob, sizeof(float)) &&
                      !memcmp(one.logprobs[i].top, many.logprobs[i].top,
                              (size_t)r->n_logprobs * sizeof(Alternative)),
                  "%d per pass: log-probabilities of token %d", max, i);

    // Forced tokens save passes.
    CHECK(n_many < n_one || one.n_generated < 7 || !t.n,
          "%d per pass: %d passes, %d with one token per pass", max, n_many, n_one);

    sequence_free(&one);
    sequence_free(&many);
    session_free(a);
    session_free(b);
}

static void open_model(const char *text) {
    Error err;
    if (!model_open(&model, NULL, &(ModelOptions){.n_threads = 2}, &err)) die_error(&err);
    tokenizer = tokenizer_open(&model.file, &err);
    ids_push(&prompt, tokenizer_bos(tokenizer));
    tokenizer_encode(tokenizer, str_of(text), false, &prompt);
}

static void close_model(void) {
    prompt.len = 0;
    tokenizer_close(tokenizer);
    model_close(&model);
}

static void forced_tokens(void) {
    open_model("Once upon a time");

    Str stop = str_of("e d");
    Request r = {
        .prompt = prompt.data, .n_prompt = prompt.len, .max_tokens = 90, .max_context = 512};
    r.sample = (SampleOptions){.temp = 1.2f,
                               .top_k = 40,
                               .top_p = 0.95f,
                               .repeat_penalty = 1.3f,
                               .repeat_last_n = 20,
                               .seed = 11};

    TestConstraint t = {.n = 9, .n_vocab = model.config.vocab_size};
    for (int i = 0; i < t.n; i++) t.tokens[i] = 300 + 17 * i;
    for (int max = 2; max <= GENERATE_LOOKAHEAD; max += 7) compare(&r, t, max, NULL);

    // Log-probabilities, then limits: the context, max_tokens, a stop string.
    r.n_logprobs = 3;
    compare(&r, t, 9, NULL);
    r.max_context = 61;
    compare(&r, t, 9, NULL);
    r.max_tokens = 47;
    compare(&r, t, 9, NULL);
    r.stops.strings = &stop;
    r.stops.n_strings = 1;
    compare(&r, t, 9, NULL);
    r.sample.temp = 0;
    compare(&r, t, 9, NULL);

    close_model();
}

static DryOptions dry_options(float multiplier) {
    return (DryOptions){multiplier, 1.75f, 2, -1, .tokenizer = tokenizer};
}

// A text that the model repeats, sampled at several temperatures.
static void prompt_lookup(void) {
    open_model("One day a dog met a cat. The dog said hello. One day a dog met a cat. The dog said "
               "hello. One day");

    Request r = {.prompt = prompt.data,
                 .n_prompt = prompt.len,
                 .max_tokens = 150,
                 .max_context = 512,
                 .n_logprobs = 2,
                 .ignore_eos = true};

    for (int i = 0; i < 4; i++) {
        r.sample = (SampleOptions){.temp = 0.3f * (float)i,
                                   .top_p = 1,
                                   .repeat_penalty = 1 + 0.1f * (float)i,
                                   .repeat_last_n = -1,
                                   .dry = dry_options(0.4f * (float)(i % 2)),
                                   .seed = 3};
        Speculation *speculation = speculation_new(&model, NULL, NULL, true, NULL);
        compare(&r, (TestConstraint){0}, 2, speculation);
        free(speculation);
    }

    close_model();
}

// The model is its own draft model: most drafts are accepted, at any temperature. Some are
// rejected, because the draft model's KV cache was computed in passes of other lengths, and because
// one wrong token rejects all tokens after it.
static void draft_model(void) {
    open_model("Once upon a time");

    Request r = {.prompt = prompt.data,
                 .n_prompt = prompt.len,
                 .max_tokens = 80,
                 .max_context = 512,
                 .n_logprobs = 2,
                 .ignore_eos = true};

    static Speculation *speculation; // never freed, as in the program
    speculation = speculation_new(&model, NULL, &model, false, NULL);

    for (int i = 0; i < 3; i++) {
        r.sample = (SampleOptions){.temp = 0.5f * (float)i,
                                   .top_p = 0.95f,
                                   .repeat_penalty = 1.1f,
                                   .repeat_last_n = 64,
                                   .dry = dry_options(0.4f * (float)i),
                                   .seed = 3};
        compare(&r, (TestConstraint){0}, 2, speculation);
    }

    CHECK(n_drafted > 0 && n_accepted * 2 >= n_drafted, "%d of %d drafts accepted", n_accepted,
          n_drafted);
    close_model();
}

void test_generate(void) {
    test_case("generate: forced tokens fed in one pass have the bits of one per pass",
              forced_tokens);
    if (!module_check(MODULE_SPECULATE, "", &(Error){0})) return;
    test_case("generate: a draft model does not change the output", draft_model);
    test_case("generate: prompt lookup does not change the output", prompt_lookup);
}
