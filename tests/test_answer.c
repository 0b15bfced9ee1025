// The automaton of answers: reasoning and budgets, tool calls, forced tokens. The cases with a
// constraint are skipped in a build WITHOUT=constrain.
#include "generate/answer.h"
#include "tests/make_gguf.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Buffer file;
    Gguf gguf;
    Tokenizer *tokenizer;
    ConstraintCache *cache;
    AnswerState *state;
    Request request;
} TestAnswer;

static TestAnswer *open_vocabulary(bool is_sentencepiece) {
    static TestAnswer all[2];
    TestAnswer *c = &all[is_sentencepiece];
    Error err;
    if (c->tokenizer) return c;
    c->file = make_llama_file(
        (MakeLlama){.is_sentencepiece = is_sentencepiece, .is_vocabulary_only = true});
    if (!gguf_parse(&c->gguf, c->file.data, c->file.len, "small", &err)) die_error(&err);
    c->tokenizer = tokenizer_open(&c->gguf, &err);
    if (!c->tokenizer) die_error(&err);
    c->cache = constraint_cache_new(c->tokenizer);
    return c;
}

// Begins an answer to a request, whose text or calls match a regular expression (NULL: any).
static TestAnswer *begin_answer(bool is_sentencepiece, const char *regex, AnswerSpec spec,
                                Request request) {
    TestAnswer *c = open_vocabulary(is_sentencepiece);
    CompiledConstraint *constraint = NULL;
    Error err;
    ConstraintSpec source = {.kind = CONSTRAINT_NONE};
    if (regex) source = (ConstraintSpec){.kind = CONSTRAINT_REGEX, .text = str_of(regex)};
    if (!constraint_compile(c->cache, &source, &constraint, &err)) die_error(&err);
    answer_free(c->state);
    c->request = request;
    c->state = answer_new(c->tokenizer, &spec, constraint, &c->request);
    return c;
}

// Skips the running case in a build without constraints.
static bool has_constraints(void) {
    CompiledConstraint *constraint;
    Error err;
    ConstraintSpec source = {.kind = CONSTRAINT_REGEX, .text = str_of("a")};
    bool ok = constraint_compile(open_vocabulary(false)->cache, &source, &constraint, &err);
    if (!ok)
        test_skip("%s", err.text);
    else
        constraint_release(constraint);
    return ok;
}

// The last token with exactly these bytes.
static int token_of(const TestAnswer *c, const char *text) {
    int id = tokenizer_n_vocab(c->tokenizer) - 1;
    while (id > 0 && !str_is(tokenizer_piece(c->tokenizer, id, false), text)) id--;
    CHECK(id, "\"%s\" is no token", text);
    return id;
}

static bool allows(const TestAnswer *c, int id) {
    static float logits[1024];
    memset(logits, 0, sizeof logits);
    c->request.constraint->mask(c->request.constraint->arg, logits);
    return logits[id] == 0;
}

// Checks that `good`, but no token of `bad`, may come next. Tokens are single bytes.
static void check_next(const TestAnswer *c, const char *good, const char *bad) {
    for (const char *s = good; *s; s++)
        CHECK(allows(c, token_of(c, (char[]){*s, 0})), "'%c' is not allowed", *s);
    for (const char *s = bad; *s; s++)
        CHECK(!allows(c, token_of(c, (char[]){*s, 0})), "'%c' is allowed", *s);
}

static void accept_bytes(const TestAnswer *c, const char *text) {
    for (const char *s = text; *s; s++)
        c->request.constraint->accept(c->request.constraint->arg, token_of(c, (char[]){*s, 0}));
}

// With may_think, the constrained text may follow <think>...</think> and at most two white spaces.
static void reasoning(void) {
    static const char digits[] = "[0-9]{2}";
    if (!has_constraints()) return;
    AnswerSpec spec = {.may_think = true};
    TestAnswer *c = begin_answer(false, digits, spec, (Request){0});
    int eos = tokenizer_eos(c->tokenizer);
    check_next(c, "<1", "ta>/ ");
    accept_bytes(c, "<");
    check_next(c, "t", "1<h");
    CHECK(allows(c, token_of(c, "th")) && !allows(c, token_of(c, "the")), "parts of <think>");
    accept_bytes(c, "think>");
    check_next(c, "1a< \n", "");
    CHECK(!answer_is_complete(c->state), "the end inside the reasoning");
    accept_bytes(c, "so it is 42 or 43, which follows </think from <this and that");
    check_next(c, "1a< \n", "");
    accept_bytes(c, "</think>");
    check_next(c, "1 \n", "a<");
    accept_bytes(c, "\n");
    check_next(c, "1\n", "a<");
    accept_bytes(c, "\n");
    check_next(c, "1", " \na<");
    accept_bytes(c, "1");
    CHECK(!allows(c, eos), "the end after one digit");
    accept_bytes(c, "2");
    check_next(c, "", "3 <");
    CHECK(allows(c, eos) && answer_matches(c->state, str_of("12"), true), "the end");

    begin_answer(false, digits, spec, (Request){0});
    accept_bytes(c, "12"); // without reasoning
    CHECK(answer_is_complete(c->state), "12");

    // A text may begin like <think>.
    begin_answer(false, "<a?[0-9]", spec, (Request){0});
    accept_bytes(c, "<");
    check_next(c, "ta1", "<");
    accept_bytes(c, "a");
    check_next(c, "1", "ta<");
    begin_answer(false, "<a?[0-9]", spec, (Request){0});
    accept_bytes(c, "<think>a</think>");
    check_next(c, "<", "a1");

    static const char prompt[] = "a prompt of more than sixteen tokens <think>\n ";
    Ids ids = {0};
    tokenizer_encode(c->tokenizer, (Str){prompt, sizeof prompt - 1}, false, &ids);
    begin_answer(false, digits, spec, (Request){.prompt = ids.data, .n_prompt = ids.len});
    check_next(c, "1a<", "");
    CHECK(c->request.constraint->force(c->request.constraint->arg, (int[64]){0}) == 0, "forced");
    begin_answer(false, digits, spec, (Request){.prompt = ids.data, .n_prompt = ids.len - 4});
    check_next(c, "1<", "a");
    free(ids.data);
}

// Accepts the tokens that are fed next, as their text appears in `expected`.
static void check_fed(const TestAnswer *c, const char *expected) {
    const Constraint *hook = c->request.constraint;
    Buffer text = {0};
    int ids[GENERATE_LOOKAHEAD];
    buffer_puts(&text, "");
    for (int n; (n = hook->force(hook->arg, ids)) > 0;)
        for (int i = 0; i < n; i++) {
            buffer_put(&text, tokenizer_piece(c->tokenizer, ids[i], true));
            hook->accept(hook->arg, ids[i]);
        }
    CHECK(!strcmp(text.data, expected), "fed \"%s\", expected \"%s\"", text.data, expected);
    buffer_free(&text);
}

static void fitting_drafts(void) {
    if (!has_constraints()) return;
    TestAnswer *c = begin_answer(false, "[0-9]{4}", (AnswerSpec){0}, (Request){0});
    const Constraint *hook = c->request.constraint;
    int one = token_of(c, "1"), drafts[6] = {one, one, token_of(c, "a"), one, one, one};
    accept_bytes(c, "7");
    CHECK(hook->count_fitting(hook->arg, drafts, 6) == 2, "a letter");
    drafts[2] = one;
    CHECK(hook->count_fitting(hook->arg, drafts, 6) == 3, "four digits");
    drafts[1] = tokenizer_eos(c->tokenizer);
    CHECK(hook->count_fitting(hook->arg, drafts, 6) == 1, "a stop token");
    check_next(c, "1", "a"); // nothing has been accepted

    begin_answer(false, "[0-9]{4}", (AnswerSpec){.may_think = true}, (Request){0});
    accept_bytes(c, "<think>");
    hook = c->request.constraint;
    drafts[1] = token_of(c, "a");
    CHECK(hook->count_fitting(hook->arg, drafts, 6) == 6, "reasoning");
}

// A budget ends the reasoning at the end of a line that comes within a tenth, or else after a tenth
// more. A stop token ends it as well, and the answer then cannot be empty.
static void budgets(void) {
    AnswerSpec spec = {.may_think = true, .budget = 20};
    TestAnswer *c = begin_answer(false, NULL, spec, (Request){0});
    int eos = tokenizer_eos(c->tokenizer);
    accept_bytes(c, "<think>");
    accept_bytes(c, "nine\nnine\nnine\nnin"); // 18 tokens
    check_fed(c, "");
    accept_bytes(c, "nin");
    check_fed(c, "");
    accept_bytes(c, "\n");
    check_fed(c, "</think>");
    CHECK(!allows(c, eos) && allows(c, token_of(c, "a")), "an empty answer");
    accept_bytes(c, " a");
    CHECK(allows(c, eos) && answer_is_complete(c->state), "the end of an answer");

    spec.message = str_of("so");
    begin_answer(false, NULL, spec, (Request){0});
    accept_bytes(c, "<think>nine, nine, nine, nine");
    check_fed(c, "so</think>");

    begin_answer(false, NULL, spec, (Request){0});
    accept_bytes(c, "<think>a");
    const Constraint *hook = c->request.constraint;
    CHECK(allows(c, eos) && hook->replace_stop(hook->arg, eos) != eos, "a stop token is kept");
    check_fed(c, "</think>");
    CHECK(hook->replace_stop(hook->arg, eos) == eos, "a stop token of the answer is replaced");

    spec = (AnswerSpec){.may_think = true, .budget = -1};
    begin_answer(false, NULL, spec, (Request){.max_tokens = 100});
    accept_bytes(c, "<think>");
    for (int i = 0; i < 48; i++) accept_bytes(c, "a");
    check_fed(c, "");
    for (int i = 0; i < 20; i++) accept_bytes(c, "a");
    check_fed(c, "</think>"); // within 75 tokens

    // No token is left for the reasoning.
    begin_answer(false, NULL, spec, (Request){.max_tokens = 8});
    accept_bytes(c, "<think>");
    check_fed(c, "</think>");
    CHECK(!allows(c, eos) && allows(c, token_of(c, "a")), "an empty answer after a budget of 0");
}

// A call that is opened in a free answer is constrained until it is closed. A token that opens one
// and continues in another way is excluded, all other tokens are free.
static void tool_calls(void) {
    if (!has_constraints()) return;
    static const char call[] = "[ \\n]{0,2}h[0-9]b!</t>";
    AnswerSpec spec = {.openers = {{"<t", 2}}, .n_openers = 1};
    TestAnswer *c = begin_answer(false, call, spec, (Request){0});
    int eos = tokenizer_eos(c->tokenizer), the = token_of(c, "the"), th = token_of(c, "th");
    CHECK(allows(c, eos) && allows(c, the) && allows(c, th), "a free answer");
    accept_bytes(c, "h2 the <");
    CHECK(allows(c, eos) && !allows(c, the) && allows(c, th), "tokens that open a call");
    check_next(c, "t<ah ", "");
    accept_bytes(c, "t");
    check_next(c, "h \n", "a<t");
    CHECK(!allows(c, eos) && !answer_is_complete(c->state), "an open call");
    accept_bytes(c, "\nh1");
    check_next(c, "b", "h1 ");
    accept_bytes(c, "b!</t>");
    CHECK(allows(c, eos) && allows(c, the) && answer_is_complete(c->state), "a closed call");
    accept_bytes(c, "and <");
    CHECK(!allows(c, the), "a second call");
    c->request.constraint->accept(c->request.constraint->arg, th);
    check_next(c, "07", "hb ");

    // No call in a code block.
    begin_answer(false, call, spec, (Request){0});
    accept_bytes(c, "a:\n```\n<t");
    check_next(c, "ah<", "");
    accept_bytes(c, "a\n```\n<t");
    check_next(c, "h", "a<");

    // A code block of the reasoning ends with it.
    spec.may_think = true;
    begin_answer(false, call, spec, (Request){0});
    accept_bytes(c, "<think>\n```\n</think>``\n<t");
    check_next(c, "h", "a<");

    // Calls without a tag, only at the beginning, several in a row.
    static const char bare[] = "\\{t[0-9]b(; \\{t[0-9]b)*";
    spec = (AnswerSpec){.openers = {{"{t", 2}}, .n_openers = 1, .is_last = true};
    begin_answer(false, bare, spec, (Request){0});
    accept_bytes(c, "\n{t1");
    check_next(c, "b", "a");
    accept_bytes(c, "b");
    check_fed(c, "");
    CHECK(allows(c, eos), "the end after a call");
    check_next(c, ";", "{at \n");
    accept_bytes(c, "; {t");
    check_next(c, "1", "b{");
    begin_answer(false, bare, spec, (Request){0});
    accept_bytes(c, "a {t");
    check_next(c, "ab{", "");
}

// Without a constraint, no call can be opened.
static void banned_calls(void) {
    AnswerSpec spec = {.openers = {{"<t", 2}}, .n_openers = 1};
    TestAnswer *c = begin_answer(false, NULL, spec, (Request){0});
    accept_bytes(c, "a <");
    check_next(c, "a<", "t");
    CHECK(!allows(c, token_of(c, "the")) && allows(c, tokenizer_eos(c->tokenizer)),
          "a banned call");
}

// Forced tokens are those of the tokenizer for the forced text, without the last one. The first
// token of a SentencePiece text may have a space that is not part of the text.
static void forced_tokens(void) {
    if (!has_constraints()) return;
    for (int is_spm = 0; is_spm < 2; is_spm++)
        for (int n_prompt = 0; n_prompt < 3; n_prompt += 2) {
            TestAnswer *c = begin_answer(is_spm, "the (the )+erin!", (AnswerSpec){0},
                                         (Request){.prompt = (int[]){1, 1}, .n_prompt = n_prompt});
            const Constraint *hook = c->request.constraint;
            bool drops_space = is_spm && !n_prompt;
            int forced[64], n = hook->force(hook->arg, forced), the = token_of(c, " the");
            CHECK(allows(c, the) == drops_space && allows(c, token_of(c, "th")), "%d", is_spm);
            CHECK(drops_space ? n == 0 : n > 0, "%d forced tokens", n);

            // The forced tokens spell the beginning of the only text.
            Buffer text = {0};
            for (int i = 0; i < n; i++)
                buffer_put(&text, tokenizer_piece(c->tokenizer, forced[i], false));
            CHECK(str_begins_with(str_of("the the "), text.len ? text.data : ""), "%s", text.data);
            buffer_free(&text);

            hook->accept(hook->arg, drops_space ? the : token_of(c, "the"));
            check_next(c, " ", "etr");
            hook->accept(hook->arg, the);
            accept_bytes(c, " e");

            // After "e", the rest is known, but it is not forced in one step.
            n = hook->force(hook->arg, forced);
            CHECK(n >= 0 && n < 4, "%d tokens after e", n);
            accept_bytes(c, "rin!");
            CHECK(hook->force(hook->arg, forced) == -1 && answer_is_complete(c->state), "end");
        }
}

void test_answer(void) {
    test_case("answer_reasoning", reasoning);
    test_case("answer_budgets", budgets);
    test_case("answer_tool_calls", tool_calls);
    test_case("answer_banned_calls", banned_calls);
    test_case("answer_forced_tokens", forced_tokens);
    test_case("answer_fitting_drafts", fitting_drafts);
}
