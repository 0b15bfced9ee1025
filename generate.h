// The loop: tokens in, model_forward, a token out, its text to whoever listens; for one sequence or
// many at once.
#ifndef GENERATE_H
#define GENERATE_H

#include "model.h"
#include "cache/cache.h"
#include "speculate/draft.h"
#include "speculate/lookup.h"
#include "speculate/cost.h"
#include "sample.h"
#include "tokenizer.h"

typedef enum {
    FINISH_NONE,   // still running
    FINISH_STOP,   // a stop token or stop string
    FINISH_LENGTH, // max_tokens or the context is reached
    FINISH_CANCEL, // emit returned false, or an interrupt
    FINISH_ERROR   // see error
} Finish;
const char *finish_name(Finish f); // "stop", "length", "cancel", "error"

enum {
    GENERATE_CHUNK = 512
}; // prompt tokens per forward: as many as the prefill kernels sum at a time

enum {
    GENERATE_LOOKAHEAD = SPECULATE_MAX_DRAFT
}; // most tokens that a step feeds after the one that was chosen last

// Says which tokens may follow. `arg` is the sequence's own.
typedef struct {
    // Tokens that must come next, whatever the model says, at most GENERATE_LOOKAHEAD into out;
    // returns how many. They are not sampled, but fed together; then it is asked again. -1: the
    // text is complete and nothing may follow.
    int (*force)(void *arg, int *out);
    // Bans (-INFINITY) the tokens that may not come next: logits (n_vocab), a copy, before bias and
    // penalties.
    void (*mask)(void *arg, float *logits);
    // A token was chosen, and it is not one that ends the text.
    void (*accept)(void *arg, int token);
    void *arg;
} Constraint;

// What one sequence is asked to do. Pointers must stay valid until it has finished.
typedef struct {
    const int *prompt; // all tokens; the session may hold the beginning, but not the last
    int n_prompt;
    int max_tokens;  // < 0: until the context is full
    int max_context; // positions the session may reach
    bool ignore_eos;
    SampleOptions sample;
    const Str *stops; // strings that end the text and are not part of it
    int n_stops;
    const Constraint *constraint; // NULL: any token may follow
    int n_logprobs; // alternatives to record per token (0: none; the chosen token's own is then not
                    // recorded)
    // Receives the text in pieces of complete UTF-8 characters (invalid bytes as they are); may be
    // NULL. False cancels.
    bool (*emit)(void *arg, const char *text, size_t n);
    void *arg;
} Request;

// One recorded token of a request with n_logprobs > 0.
typedef struct {
    int id;
    float logprob;
    Alternative *top; // (n_logprobs)
} TokenLogprob;

// A request under way. Read its results after `finish` is set.
typedef struct {
    Request request;
    Session *session;
    Sampler *sampler;
    int n_cached;                   // prompt tokens that the session held at the start
    int n_taken;                    // those that the prefix cache gave it then
    int n_fed;                      // all these, and prompt tokens fed since
    int n_kept;                     // pages that the prefix cache was offered
    int next;                       // token to feed next, once the prompt is in
    int forced[GENERATE_LOOKAHEAD]; // those from at_forced to n_forced must follow it
    int at_forced, n_forced;
    Sampler *shadow; // of the draft model; NULL: none
    bool has_draft;  // the tokens that the forward under way checks were drafted
    Lookup *lookup;  // NULL: nothing is proposed
    // Of the forward under way: tokens fed, the first that is followed by a new one, the first that
    // wants logits.
    int n_now, first_new, wanted;
    int kernel_rows;        // tokens that a prefill without the cache would feed with them
    int n_sure;             // of the tokens fed, those that were not guessed
    int n_generated;        // tokens sampled (a stop token is not counted)
    int stop_token;         // the token that ended it, or -1
    Buffer text;            // all text so far, stop string removed
    size_t n_emitted;       // bytes of text handed to emit
    TokenLogprob *logprobs; // (n_generated) if asked for
    Finish finish;
    Error error;
    double prefill_sec, decode_sec; // wall time in which this sequence was prefilled, decoded
    bool drop_space;                // a leading space is still to be dropped
} Sequence;

typedef struct {
    Model *model;
    const Tokenizer *tokenizer;
    Workspace *workspace;
    int max_steps;                  // tokens per forward: the prefill chunk
    Draft *draft;                   // proposes where lookup has nothing; NULL: none
    PrefixCache *cache;             // of prefixes on disk; NULL: none
    bool has_lookup;                // tokens are proposed by prompt lookup
    CostModel pace;                 // of steps that feed no prompt
    float *masked;                  // (n_vocab) logits that a constraint may change
    uint64_t n_prefill, n_decode;   // tokens fed so far, but for wrong guesses
    uint64_t n_taken;               // prompt tokens that the prefix cache had
    uint64_t n_steps;               // forwards that fed any sampled token
    uint64_t n_drafted, n_accepted; // tokens that were proposed and fed; those that were right
    double prefill_sec,
        decode_sec; // wall time of forwards that fed only prompts / any sampled token
} Generator;

// chunk: most steps per forward (prefill chunk, 0 = default); parallel: most sequences at once.
void generator_init(Generator *g, Model *m, const Tokenizer *t, int chunk, int parallel);

// Begins a request on a session. Reserves no more than the prompt.
void sequence_start(Sequence *s, Generator *g, const Request *r, Session *session);
void sequence_free(Sequence *s); // not the session

// One forward for the unfinished ones of n sequences: for each that has its prompt in the token
// chosen last, with those that must follow it, and prompt tokens of the others in the room that
// remains (in turn, so that none starves). Each sequence's results do not depend on the others, nor
// on how many of its tokens a forward feeds. Sets finish of those that end. Returns false when
// nothing was left to do.
bool generate_step(Generator *g, Sequence *const *sequences, int n);
// Runs one request to its end on a session.
void generate(Generator *g, Sequence *s, const Request *r, Session *session);

// Set by the SIGINT handler: sequences then finish with FINISH_CANCEL.
extern volatile int generate_interrupted;

#endif
