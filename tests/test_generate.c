// The loop: what is fed together is what would have been fed one after another.
#include "test.h"
#include "../model_load.h"
#include "../generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A constraint for tests: every fifth token is followed by `n` given ones, handed out at most
// `most` at a time, and some tokens are banned at some positions.
typedef struct {
    int n_accepted, n_due, n, most, n_vocab;
    int tokens[2 * GENERATE_LOOKAHEAD];
} Teller;

static int tell(void *arg, int *out) {
    Teller *t = arg;
    int n = t->n_due < t->most ? t->n_due : t->most;
    for (int i = 0; i < n; i++) out[i] = t->tokens[t->n - t->n_due + i];
    return n;
}

static void ban(void *arg, float *logits) {
    const Teller *t = arg;
    for (int i = t->n_accepted % 3; i < t->n_vocab; i += 3) logits[i] = -INFINITY;
}

static void note_token(void *arg, int token) {
    Teller *t = arg;
    if (t->n_due > 0) {
        CHECK(token == t->tokens[t->n - t->n_due], "token %d, expected %d", token,
              t->tokens[t->n - t->n_due]);
        t->n_due--;
    } else if (t->n_accepted % 5 == 4) {
        t->n_due = t->n;
    }
    t->n_accepted++;
}

static Model model;
static Tokenizer *tokenizer;
static Draft *draft; // for the run that takes several tokens at once
static uint64_t n_drafted, n_accepted;

// Runs a request; returns how many forwards it took.
static int run(Sequence *s, Request r, Teller teller, Session *session) {
    static Generator g;
    int n = 0;
    Constraint c = {tell, ban, note_token, &teller};
    if (teller.n) r.constraint = &c;
    generator_init(&g, &model, tokenizer, 0, 1);
    g.has_lookup = teller.most > 1 && !draft;
    g.draft = teller.most > 1 ? draft : NULL;
    sequence_start(s, &g, &r, session);
    while (s->finish == FINISH_NONE && generate_step(&g, &s, 1)) n++;
    n_drafted = g.n_drafted, n_accepted = g.n_accepted;
    workspace_free(g.workspace);
    free(g.masked);
    return n;
}

static void compare(const Request *r, Teller teller, int most) {
    Sequence one, many;
    Session *a = session_new(&model.kv), *b = session_new(&model.kv);
    teller.most = 1;
    int n_one = run(&one, *r, teller, a);
    teller.most = most;
    int n_many = run(&many, *r, teller, b);
    CHECK(one.finish == many.finish && one.n_generated == many.n_generated &&
              one.stop_token == many.stop_token,
          "%d at a time: finish %d and %d, %d and %d tokens", most, one.finish, many.finish,
          one.n_generated, many.n_generated);
    CHECK(str_eq(buffer_str(&one.text), buffer_str(&many.text)), "%d at a time: %s | %s", most,
          one.text.data, many.text.data);
    CHECK(a->n_tokens == b->n_tokens &&
              !memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof(int)),
          "%d at a time: other tokens in the session", most);
    for (int i = 0; one.logprobs && i < one.n_generated && i < many.n_generated; i++)
        CHECK(!memcmp(&one.logprobs[i].logprob, &many.logprobs[i].logprob, sizeof(float)) &&
                  !memcmp(one.logprobs[i].top, many.logprobs[i].top,
                          (size_t)r->n_logprobs * sizeof(Alternative)),
              "%d at a time: log-probabilities of token %d", most, i);
    CHECK(n_many < n_one || one.n_generated < 7 || !teller.n,
          "%d at a time: %d forwards, %d one by one", most, n_many, n_one);
    sequence_free(&one);
    sequence_free(&many);
    session_free(a);
    session_free(b);
}

static Ids ids;

static void open_model(const char *prompt) {
    Error err;
    if (!model_open(&model, NULL, &(ModelOptions){.n_threads = 2}, &err)) die_error(&err);
    tokenizer = tokenizer_open(&model.file, &err);
    ids_push(&ids, tokenizer_bos(tokenizer));
    tokenizer_encode(tokenizer, prompt, strlen(prompt), &ids);
}

static void close_model(void) {
    ids.len = 0;
    tokenizer_close(tokenizer);
    model_close(&model);
}

static void forced(void) {
    open_model("Once upon a time");
    Str stop = str_of("e d");
    Request r = {.prompt = ids.data, .n_prompt = ids.len, .max_tokens = 90, .max_context = 512};
    r.sample = (SampleOptions){.temp = 1.2f,
                               .top_k = 40,
                               .top_p = 0.95f,
                               .repeat_penalty = 1.3f,
                               .repeat_last_n = 20,
                               .seed = 11};
    Teller t = {.n = 9, .n_vocab = model.config.vocab_size};
    for (int i = 0; i < t.n; i++) t.tokens[i] = 300 + 17 * i;
    for (int most = 2; most <= GENERATE_LOOKAHEAD; most += 7) compare(&r, t, most);
    r.n_logprobs = 3;
    compare(&r, t, 9);
    r.max_context = 61;
    compare(&r, t, 9);
    r.max_tokens = 47;
    compare(&r, t, 9);
    r.stops = &stop, r.n_stops = 1;
    compare(&r, t, 9);
    r.sample.temp = 0;
    compare(&r, t, 9);
    close_model();
}

// A text that the model repeats, greedily and not.
static void guessed(void) {
    open_model("One day a dog met a cat. The dog said hello. One day a dog met a cat. The dog said "
               "hello. One day");
    Request r = {.prompt = ids.data,
                 .n_prompt = ids.len,
                 .max_tokens = 150,
                 .max_context = 512,
                 .n_logprobs = 2};
    r.ignore_eos = true;
    for (int i = 0; i < 4; i++) {
        r.sample = (SampleOptions){.temp = 0.3f * (float)i,
                                   .top_p = 1,
                                   .repeat_penalty = 1 + 0.1f * (float)i,
                                   .repeat_last_n = -1,
                                   .seed = 3};
        compare(&r, (Teller){0}, 2);
    }
    close_model();
}

// The model drafts for itself: what it guesses is right, also when tokens are drawn.
static void drafted(void) {
    open_model("Once upon a time");
    Request r = {.prompt = ids.data,
                 .n_prompt = ids.len,
                 .max_tokens = 80,
                 .max_context = 512,
                 .n_logprobs = 2};
    for (int i = 0; i < 3; i++) {
        r.sample = (SampleOptions){.temp = 0.5f * (float)i,
                                   .top_p = 0.95f,
                                   .repeat_penalty = 1.1f,
                                   .repeat_last_n = 64,
                                   .seed = 3};
        draft = draft_new(&model);
        compare(&r, (Teller){0}, 2);
        draft_free(draft);
        CHECK(n_drafted > 0 && n_accepted * 10 >= n_drafted * 9, "%d of %d right", (int)n_accepted,
              (int)n_drafted);
    }
    draft = NULL;
    close_model();
}

void test_generate(void) {
    test_case("generate: forced text is fed at once, with the bits of one by one", forced);
    test_case("generate: drafted text changes nothing", drafted);
    test_case("generate: guessed text changes nothing", guessed);
}
