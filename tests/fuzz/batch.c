// Fuzz target: batch requests from a grammar, with hundreds of different constraints. They enter
// and leave a window in any order, as in `batch`, and the constraints of those inside are used.
#include "tests/fuzz/productions.h"
#include "tests/make_gguf.h"
#include "base/json.h"
#include "cli/commands/batch_record.h"

#include <math.h>

// In a production, '~' is a digit. '!' to '^' are fields of one kind, each with a comma before it.
// clang-format off
static const char *const requests[] = {
    "{\"id\":\"a~\",\"prompt\":\"x~\"!%;}",
    "{\"id\":~,\"messages\":[@]!%;^}",
    ("{\"custom_id\":\"c~\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
     "\"body\":{\"messages\":[@]!%;^}}"),
    "{\"custom_id\":\"c~\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"!%;}}",
    "{\"prompt\":[~,1~]!%;}",
    "{\"prompt\":\"<think>\",\"think\":true;}",
    "{\"messages\":[@]^}",
};
static const char *const messages[] = {
    "{\"role\":\"user\",\"content\":\"u~\"}",
    "{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}",
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t~\"}]}",
    "{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
    "[{\"id\":\"i~\",\"type\":\"function\",\"function\":{\"name\":\"f~\",\"arguments\":\"{}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"i~\",\"content\":\"r\"}",
    "{\"role\":\"user\"}",
};
static const char *const sampling[] = {
    "", ",\"temperature\":0.~", ",\"top_p\":0.~,\"seed\":~", ",\"top_k\":~,\"min_p\":0.~",
    ",\"repeat_penalty\":1.~", ",\"dry_multiplier\":~",
    ",\"dry_sequence_breakers\":[\"~\"]", ",\"max_tokens\":~", ",\"ordered_properties\":true",
    ",\"think\":true", ",\"ignore_eos\":true", ",\"temperature\":-~", ",\"seed\":1~.5",
    ",\"max_completion_tokens\":1~~~", ",\"presence_penalty\":~,\"unknown\":~",
};
static const char *const outputs[] = {
    "", ",\"n\":~", ",\"n\":~,\"stop\":[\"~\",\"b\"]", ",\"stop\":\"x~\"", ",\"logprobs\":~",
    ",\"logprobs\":true,\"top_logprobs\":~", ",\"logit_bias\":{\"~\":-100,\"1~\":1.5}",
    ",\"stop\":[]", ",\"stream\":false", ",\"best_of\":~", ",\"logit_bias\":{\"~~~~\":~}",
};
static const char *const constraints[] = {
    "", ",\"choices\":[\"a~~\",\"b~\"]", ",\"regex\":\"[a-c]{~~}x\"", ",\"regex\":\"(a|b~)*~~\"",
    ",\"grammar\":\"root ::= \\\"a~~\\\" x | \\\"b\\\"\\nx ::= [a-z]{~} | \\\"(\\\" x \\\")\\\"\\n\"",
    ",\"json_schema\":{\"type\":\"integer\",\"minimum\":1~~}",
    ",\"json_schema\":\"{\\\"enum\\\":[1~~,\\\"a~\\\",{}]}\"",
    ",\"response_format\":{\"type\":\"json_object\"}",
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"object\","
    "\"properties\":{\"k\":{\"type\":\"string\",\"maxLength\":1~},\"l\":{\"const\":1~~}}}}}",
    ",\"json_schema\":{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"const\":1~~},"
    "{\"type\":\"array\",\"maxItems\":~,\"items\":{\"$ref\":\"#/$defs/a\"}}]}}}",
    ",\"regex\":\"(~\"", ",\"json_schema\":{\"type\":~}", ",\"grammar\":\"root ::= root ~\"",
    ",\"regex\":\"a~\",\"choices\":[\"a\"]", ",\"response_format\":{\"type\":\"text\"}",
    ",\"choices\":[~]", ",\"choices\":[\"\",\"~\"]", ",\"regex\":\"([0-9]{1,~}x){~}\"",
};
static const char *const tools[] = {
    "", ",\"tools\":[&],\"tool_choice\":\"required\"", ",\"tools\":[&,&]",
    ",\"tools\":[&,&],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f~\"}}",
    ",\"tools\":[&],\"tool_choice\":\"none\"", ",\"tool_choice\":\"required\"", ",\"tools\":[]",
};
static const char *const functions[] = {
    "{\"type\":\"function\",\"function\":{\"name\":\"f~\"}}",
    ("{\"type\":\"function\",\"function\":{\"name\":\"f~\",\"description\":\"d\",\"parameters\":{"
     "\"type\":\"object\",\"properties\":{\"x~\":{\"type\":\"integer\"}},\"required\":[\"x~\"]}}}"),
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\"}}}",
    "{\"type\":\"function\",\"function\":{\"name\":\"f~\",\"parameters\":{\"type\":\"array\"}}}",
    "{\"type\":\"function\"}",
};
static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
static const Symbol symbols[] = {
    SYMBOL('@', messages), SYMBOL('!', sampling), SYMBOL('%', outputs), SYMBOL(';', constraints),
    SYMBOL('^', tools), SYMBOL('&', functions), LEAF_SYMBOL('~', digits), {0}};
// clang-format on

static void open_pipeline(Pipeline *p, Options *o) {
    Str file = fuzz_valid_model(0);
    *o = options_default("batch", CMD_BATCH);
    o->prompt.template_name = "llama3.1";
    o->model.path = make_path("batch.gguf", file.data, file.len);
    o->model.load.n_threads = 1;
    pipeline_open(p, o);
}

// Generates a token as the constraint of a request allows. False if the text ends.
// Invariant: some token is allowed, or the text is complete; forced tokens are allowed.
static bool advance(const Record *r, Productions *choices) {
    const Constraint *c = r->request.constraint;
    const Tokenizer *t = r->pipeline->tokenizer;
    int n_vocab = tokenizer_n_vocab(t), n_allowed = 0, forced[GENERATE_LOOKAHEAD];
    float *logits = xalloc((size_t)n_vocab, sizeof *logits);
    int *allowed = xalloc((size_t)n_vocab, sizeof *allowed);
    c->mask(c->arg, logits);
    for (int i = 0; i < n_vocab; i++)
        if (logits[i] != -INFINITY) allowed[n_allowed++] = i;
    int n_forced = c->force(c->arg, forced);
    HOLDS(n_allowed || n_forced < 0 || answer_is_complete(r->constraint));
    HOLDS(n_forced <= 0 || logits[forced[0]] != -INFINITY);
    int token = n_forced > 0 ? forced[0] : -1;
    if (n_forced == 0 && n_allowed) token = allowed[production_choose(choices, (size_t)n_allowed)];
    bool goes_on = token >= 0 && !tokenizer_is_stop(t, token);
    if (goes_on) c->accept(c->arg, token);
    free(logits);
    free(allowed);
    return goes_on;
}

// Reads a request of a line. Returns NULL after an error, which is answered in JSON.
static Record *read_request(const Pipeline *p, Str line) {
    JsonDoc doc = {0}, answer = {0};
    Error err = {0};
    HOLDS(json_parse(&doc, line.data, line.len, &err));
    Record *r = record_new(1, FORM_SHORT, p);
    bool ok = record_parse_id(r, doc.root, &err) && record_parse(r, doc.root, (Str){0}, &err);
    if (!ok) {
        HOLDS(err.code && *err.text);
        fuzz_show(str_of(err.text));
        record_fail(r, "x", err.text);
        HOLDS(json_parse(&answer, r->answer.text.data, r->answer.text.len - 1, &err));
        record_free(r);
        r = NULL;
    }
    json_free(&doc);
    json_free(&answer);
    return r;
}

// Brings the cache to the same state before each input, so that a failure can be reproduced: it
// holds these constraints and no others.
static void reset_cache(const Pipeline *p) {
    enum { N_CACHED = 64 }; // as many as the cache keeps
    for (int i = 0; i < N_CACHED; i++) {
        char text[] = {'r', (char)('0' + i), 0};
        Str choice = str_of(text);
        CompiledConstraint *c;
        Error err;
        ConstraintSpec spec = {.kind = CONSTRAINT_CHOICES, .choices = {&choice, 1}};
        HOLDS(constraint_compile(p->constraints, &spec, &c, &err));
        constraint_release(c);
    }
}

// Each step adds a request or a choice to the window, removes one, or generates tokens for one.
void fuzz_batch(const uint8_t *data, size_t n) {
    enum { WINDOW = 80, MAX_STEPS = 300, MAX_TOKENS = 8 }; // WINDOW: more than the cache keeps
    static Pipeline pipeline;
    static Options options;
    Record *window[WINDOW] = {NULL};
    if (!pipeline.tokenizer) open_pipeline(&pipeline, &options);
    reset_cache(&pipeline);
    Productions p = {.symbols = symbols, .max_depth = 4, .data = data, .n = n};
    for (int step = 0; p.n && step < MAX_STEPS; step++) {
        size_t action = production_choose(&p, 4), slot = production_choose(&p, WINDOW);
        Record **at = &window[slot], **other = &window[(slot + 1) % WINDOW];
        p.text.len = 0;
        if (action == 0 && *at) {
            record_free(*at);
            *at = NULL;
        } else if (action == 1 && *at && !*other) {
            (*at)->n_per_prompt = 2;            // as if the request had "n": 2
            *other = record_new_choice(*at, 1); // shares the options of its parent
        } else if (*at) {
            bool goes_on = (*at)->constraint;
            for (int i = 0; i < MAX_TOKENS && goes_on; i++) goes_on = advance(*at, &p);
        } else {
            production_put(&p, requests[production_choose(&p, sizeof requests / sizeof *requests)]);
            fuzz_show(buffer_str(&p.text));
            *at = read_request(&pipeline, buffer_str(&p.text));
        }
    }
    for (int i = 0; i < WINDOW; i++)
        if (window[i]) record_free(window[i]);
    buffer_free(&p.text);
}
