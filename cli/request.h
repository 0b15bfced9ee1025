// Turns a prompt and the options into a Request, and checks that it fits context and memory.
#ifndef CLI_REQUEST_H
#define CLI_REQUEST_H

#include "open_model.h"
#include "../generate.h"

enum {
    DEFAULT_CONTEXT = 8192, // positions of a session that no option limits, if the model has more
    DEFAULT_PARALLEL = 16,  // sequences per batch: more gain throughput, but each is slower
    MAX_LOGITS_BYTES = 128 << 20 // of logits per forward pass, for commands that need all positions
};

// Appends the tokens of a prompt: rendered as a user message after the system prompt or, if
// is_plain or without a template, BOS and the text. False with err if the template rejects it.
bool prompt_encode(const Pipeline *p, Str prompt, bool is_plain, Ids *out, Error *err);
// False with err (exit 4) unless n_tokens fit the context, and one more if needs_next.
bool context_fits(int n_tokens, bool needs_next, int context, Error *err);
// Makes the request for an encoded prompt, which must outlive it. False with err (exit 4) if the
// prompt does not fit the context.
bool request_from_options(const Pipeline *p, const Options *o, const Ids *prompt, bool is_plain,
                          Request *r, Error *err);
// Whether the available memory can hold a KV cache of n_positions; dies (exit 1) if not.
bool kv_memory_fits(const Model *m, size_t n_positions);
void kv_memory_check(const Model *m, size_t n_positions);

#endif
