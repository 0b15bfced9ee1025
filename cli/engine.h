// What the verbs share that use a model: prompt, model, template, seed, context, memory.
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "options.h"
#include "../chat/template.h"
#include "../generate.h"

// The text of -p, -f, the positional arguments (joined by spaces) or stdin, in this order; dies with a usage error if
// there is none and stdin is a terminal. Piped stdin is appended to a given prompt only with `-` in its place.
void prompt_read(const Options *o, Buffer *out);
// Opens model and tokenizer or dies; warns of a -c beyond what the model was made for.
void model_load(const Options *o, Model *m, Tokenizer **t);
// Bytes of memory that can still be had without swapping, or SIZE_MAX where the system does not tell.
size_t memory_available(void);
// Refuses (exit 1, both numbers) a KV cache that the memory at hand cannot hold.
void memory_check(const Model *m, size_t n_positions);
bool memory_fits(const Model *m, size_t n_positions);
// GB of weights that one decode step reads.
double model_decode_gb(const Model *m);
// The chat template of --template or of the file; dies if the file has one that we do not know (--raw: takes none).
Template template_choose(const Options *o, const Gguf *g, const Tokenizer *t);
// A model and what its prompts are put into, for the verbs that generate or score.
typedef struct {
    const Options *options;
    Model model;
    Tokenizer *tokenizer;
    Template tpl;  // of messages
    Str system;    // of -sys (@FILE reads a file); data NULL: none
    uint64_t seed; // of --seed, or from the system's random source
} Engine;

// Opens all that or dies.
void engine_open(Engine *e, const Options *o);
// Tokens of a prompt: a user's message after the system's, or, plain or without a template, the text after BOS.
void prompt_encode(const Engine *e, Str prompt, bool is_plain, Ids *out);
// -n, or as many tokens as are to be generated when nobody says: plain text goes on and on.
int predict_choose(const Options *o, Template tpl, bool is_plain);
// A request as the command line asks for it, its prompt apart.
Request request_make(const Options *o, int n_predict, int context);
// Whether all tokens of --logit-bias are in the vocabulary. False with err.
bool biases_check(const Engine *e, const SampleOptions *s, Error *err);
// Positions a session may reach: -c, or what n_predict tokens (-1: as many as the model likes) after the prompt need.
int context_choose(const Engine *e, int n_prompt, int n_predict);
// Token ids written as text, separated by commas or white space; dies on anything else.
void ids_parse(const char *text, int n_vocab, Ids *out);

#endif
