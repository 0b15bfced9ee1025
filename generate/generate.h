// The generation loop, for one sequence or a batch.
//
// A Request describes what to generate, a Sequence is one running request with its KV cache, and a
// Generator holds what all sequences share. sequence_start() begins a request, generate_step() runs
// one forward pass for all unfinished sequences.
//
// Invariant: the output of a sequence does not depend on speculation or on the prefix cache, and
// the options of the other sequences of a batch do not affect it. Their number, and the chunk size,
// may change the last bits of its logits unless the model is batch-invariant (kernels/exactness.h).
//
// Text is emitted only when it can no longer change: never a part of a UTF-8 character, never text
// that may turn out to begin a stop string.
#pragma once

#include "generate/cache/cache.h"
#include "generate/loop.h"
#include "model.h"
#include "generate/sample.h"
#include "generate/speculate/speculate.h"
#include "generate/stops.h"
#include "generate/text_parts.h"
#include "tokenizer.h"

typedef enum {
    FINISH_NONE,   // still running
    FINISH_STOP,   // a stop token or stop string
    FINISH_LENGTH, // max_tokens or the context is reached
    FINISH_LOOP,   // the text repeats itself, and Request.stops_loops is set
    FINISH_CANCEL, // emit returned false, or an interrupt
    FINISH_ERROR   // see Sequence.error
} Finish;

enum {
    GENERATE_CHUNK = 512,                    // default prompt tokens per forward pass
    GENERATE_LOOKAHEAD = SPECULATE_MAX_DRAFT // most forced and draft tokens of a pass, in addition
                                             // to one token per sequence
};

// Restricts the text of a sequence; implemented by answer.c. `arg` is the constraint's state.
typedef struct {
    // Writes the tokens that must come next, whatever the model predicts, to out (at most
    // GENERATE_LOOKAHEAD) and returns their number. Forced tokens are not sampled. force() is
    // called again when all of them have been accepted. -1: the text is complete, and no token may
    // follow.
    int (*force)(void *arg, int *out);
    // The number of the n draft tokens before the first that the constraint forbids, or more.
    int (*count_fitting)(void *arg, const int *drafts, int n);
    // Sets the logits (n_vocab) of tokens that may not come next to -INFINITY. `logits` is a copy,
    // before bias and penalties. False on an interrupt, or if the text has too many readings.
    bool (*mask)(void *arg, float *logits);
    // Tells the constraint that a token was appended to the text. Not called for stop tokens. False
    // if the token does not fit, which is an error.
    bool (*accept)(void *arg, int token);
    // Returns the token that continues the text in place of a sampled stop token, or that stop
    // token if the text may end. NULL: it may end.
    int (*replace_stop)(void *arg, int stop);
    // True where any text may follow, so that a loop ends the text.
    bool (*is_free)(void *arg);
    void *arg;
} Constraint;

// The beginning of an answer that is not generated. Its tokens are the last ones of the prompt,
// except for those of its last word: the first generated tokens spell it, so that its tokenization
// is that of the whole word. It is not part of the generated text.
typedef struct {
    Str all;      // the beginning, behind the space that the template puts before an answer
    Str text;     // without that space; empty: none
    Str word;     // its last word
    int n_tokens; // of the prompt
} AnswerStart;

// Pointers must stay valid until the sequence has finished.
typedef struct {
    const int *prompt; // (n_prompt) the session may already hold a prefix, but not the last token
    int n_prompt;
    AnswerStart start;
    int max_tokens;   // < 0: until the context is full
    int max_context;  // positions that the session may use
    bool ignore_eos;  // the stop tokens of the vocabulary are banned
    bool stops_loops; // a loop ends the text, except within a constraint
    SampleOptions sample;
    Stops stops; // beside the stop tokens of the vocabulary; strings end only the answer
    ReasoningStart reasoning;
    int min_tokens; // stop tokens, stop strings and loops do not end the text before this many
                    // tokens
    const Constraint *constraint; // NULL: any token may follow
    int n_logprobs; // alternatives to record per token; 0: log-probabilities of scored tokens only
    // Index of the first prompt token whose log-probability is recorded, too; 0: none. The session
    // must not hold the token before it. With max_tokens 0, the last prompt token is not fed.
    int first_scored;
    // Passes that hold such a sequence use the kernels for one row, so its results do not depend on
    // the batch. If this is set, they use the faster kernels for the actual rows
    // (kernels/exactness.h).
    bool uses_actual_rows;
    // Receives the text in pieces of complete UTF-8 characters (invalid bytes unchanged), each of
    // one part; may be NULL. Returning false cancels the sequence.
    bool (*emit)(void *arg, Str text, TextPart part);
    void *arg; // of emit
} Request;

// A scored token, or a generated token of a request with n_logprobs > 0.
typedef struct {
    int id;
    float logprob;
    Alternative *top; // (n_logprobs) best first
} TokenLogprob;

// What a forward pass feeds for one sequence. build_batch() begins by setting all fields to 0.
// Tokens are numbered from the first fed token, which is 0.
typedef struct {
    int n_fed, n_drafted; // tokens in the pass; of these, draft tokens
    int first_step;       // index of the first fed token among those of all sequences
    int first_generating; // first token after which one is generated; one of the prompt follows
                          // those before it
    int first_logits;     // first token whose logits are computed
    int logits_row;       // index of that token's row in the logits of the pass
} SequencePass;

// Tokens that the constraint requires next.
typedef struct {
    int tokens[GENERATE_LOOKAHEAD];
    int next, n; // tokens[next .. n) are not in the text yet
} ForcedTokens;

// State of the conversion of tokens to text.
typedef struct {
    TextParts parts;
    size_t n_searched; // bytes of the text in which stop strings were searched for
    size_t n_emitted;  // bytes of the text that were passed to emit
    size_t n_spelled;  // bytes of request.start.word that the tokens have spelled
    bool drops_space;  // the next token's leading space is not part of the text
} TextState;

// A running request. The results are valid once `finish` is set.
typedef struct {
    Request request;
    Session *session; // KV cache and tokens
    Sampler *sampler;
    Drafters *drafters; // NULL: no speculation

    // Prefill
    int n_reused;     // prompt tokens that were in the session at the start
    int n_from_cache; // prompt tokens after these that were loaded from the prefix cache
    int n_prefilled;  // prompt tokens in the session now: reused, from the cache, and fed
    int n_stored;     // pages of the session that are in the prefix cache or were offered to it

    // Decoding
    int pending; // last token of the text, not yet in the KV cache
    ForcedTokens forced;
    TextState decoded;
    int loop[LOOP_PERIOD]; // state of loop_add()

    SequencePass pass; // this sequence's part of the current forward pass

    // Results
    Finish finish;
    Error error;                    // of FINISH_ERROR
    bool lacks_memory;              // the reason of FINISH_ERROR, which may be temporary
    int n_generated;                // tokens of the text, without a stop token
    int stop_token;                 // the token that ended the text, or -1
    Buffer text;                    // the text so far, without a stop string
    int n_cut;                      // bytes of an incomplete character that the end of it has lost
    TokenLogprob *logprobs;         // (n_generated), then that of the stop token, if any; or NULL
    int n_scored;                   // prompt tokens with a log-probability
    TokenLogprob *prompt_logprobs;  // (n_scored), from Request.first_scored on
    double prefill_sec, decode_sec; // wall time of its prefill passes, of its decode passes
} Sequence;

// State that all sequences share.
typedef struct {
    const Model *model;
    const Tokenizer *tokenizer;
    Workspace *workspace;
    int chunk_size;           // prompt tokens per forward pass
    float *masked;            // (n_vocab) logits that a constraint has masked
    PrefixCache *cache;       // NULL: none
    Speculation *speculation; // NULL: none

    // Statistics
    uint64_t n_prefill, n_decode;   // prompt and generated tokens fed, without rejected drafts
    uint64_t n_from_cache;          // prompt tokens loaded from the prefix cache
    uint64_t n_decode_passes;       // forward passes that hold at least one generated token
    uint64_t n_drafted, n_accepted; // draft tokens verified; of these, accepted
    double prefill_sec, decode_sec; // wall time of prompt-only passes, of decode passes and drafts
} Generator;

// chunk_size: prompt tokens per forward pass, 0 for the default; max_logits: rows of logits per
// pass, at least the largest batch. The caller may then set `cache` and `speculation`.
void generator_init(Generator *g, const Model *m, const Tokenizer *t, int chunk_size,
                    int max_logits);

// Starts a request on a session, whose tokens must be a prefix of the prompt.
void sequence_start(Sequence *s, Generator *g, const Request *r, Session *session);
void sequence_free(Sequence *s); // does not free the session
// A part of a finished text: the answer, or the reasoning.
Str sequence_part(const Sequence *s, TextPart part);

// Runs one forward pass for all unfinished sequences of `sequences` (n), and sets `finish` of each
// sequence that ends. Returns false if all had finished before.
bool generate_step(Generator *g, Sequence *const *sequences, int n);

// Set by the SIGINT handler: running sequences finish with FINISH_CANCEL.
extern volatile int generate_interrupted;
