// What the commands share that use a model: prompt, model, template, context, memory.
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "options.h"
#include "../chat/template.h"
#include "../generate.h"
#include "../constrain/constraint.h"

// The text of -p, -f, the positional arguments (joined by spaces) or stdin, in this order; dies
// with a usage error if there is none and stdin is a terminal. Piped stdin is appended to a given
// prompt only with `-` in its place. One final newline of a file or of stdin is dropped, but for
// --keep-newline.
void prompt_read(const Options *o, Buffer *out);
// Opens model and tokenizer or dies; warns of a -c beyond what the model was made for.
void model_load(const Options *o, Model *m, Tokenizer **t);
// Dies unless another model, of that option, has the model's vocabulary.
void vocabulary_check(const Model *other, const Model *m, const char *option);
// All files are open: what the work does not need is given up (base/guard.h), unless --no-sandbox.
void engine_settle(const Options *o);
// Refuses (exit 1, both numbers) a KV cache that the memory at hand cannot hold.
void memory_check(const Model *m, size_t n_positions);
bool memory_fits(const Model *m, size_t n_positions);
// GB of weights that one decode step reads.
double model_decode_gb(const Model *m);
// The chat template of --template or of the file, with its variables, or dies; --raw takes none.
// The second names, on stderr, the control tokens of it that the vocabulary lacks.
void template_choose(const Options *o, const Gguf *g, Tokenizer *t, Template *out);
void template_warn(const Options *o, const Template *tpl);
// A model and what its prompts are put into, for the commands that generate or score.
typedef struct {
    const Options *options;
    Model model;
    Tokenizer *tokenizer;
    Template tpl; // of messages
    Str system;   // of -sys (@FILE reads a file); data NULL: none
    Str tools;    // of --tools, a JSON array; data NULL: none
    ConstraintCache *constraints;
} Engine;

// Opens all that or dies.
void engine_open(Engine *e, const Options *o);
// Tokens of a prompt: a user's message after the system's, or, plain or without a template, the
// text after BOS. False with err if the template refuses it.
bool prompt_encode(const Engine *e, Str prompt, bool is_plain, Ids *out, Error *err);
// Whether these are tools as the API has them, and the template has a place for them. False with
// err.
bool tools_check(const Engine *e, const Json *tools, Error *err);
enum {
    DEFAULT_PARALLEL =
        16, // sequences at once: more of them are faster together, and each is slower
    LOGITS_BYTES =
        128
        << 20 // of the logits that a command asks for at a time, where it wants those of all tokens
};
// Positions of a dialogue or an answer without a bound of its own, where the model was made for
// more.
enum { ROOMY_CONTEXT = 8192 };
// False with err (EXIT_CONTEXT, both numbers) unless n_tokens, and one more if that is wanted, have
// a position each.
bool context_fits(int n_tokens, bool wants_more, int context, Error *err);
// A prompt, plain or of messages, becomes a request as the options ask for it. False with err
// (EXIT_CONTEXT) if it does not fit.
bool request_make(const Engine *e, const Options *o, const Ids *prompt, bool is_plain, Request *r,
                  Error *err);
// The prefix cache of --cache or $LLAMA31_CACHE, for forwards of `chunk` prompt tokens; NULL if
// there is none, or (with a warning) none that can be used.
PrefixCache *engine_cache(const Engine *e, int chunk);
// Makes a generator as the options ask for it.
void engine_generator(Engine *e, Generator *g, int chunk, int parallel);
// Whether all tokens of --logit-bias are in the vocabulary. False with err.
bool biases_check(const Engine *e, const SampleOptions *s, Error *err);
// Token ids written as text, separated by commas or white space; dies on anything else.
void ids_parse(const char *text, int n_vocab, Ids *out);

#endif
