// Prompts and requests from the settings. A request that does not fit the context or the memory is
// refused here, before any computation.
#pragma once

#include "cli/open_model.h"
#include "generate/generate.h"

enum {
    DEFAULT_CONTEXT = 8192, // context size without -c and -n, for models that have a larger one
    DEFAULT_PARALLEL = 16,  // sequences per batch; more increase throughput, but each is slower
    MAX_LOGITS_BYTES = 128 << 20 // logits of a forward pass, in commands that need all positions
};

// Appends the tokens of a prompt: rendered as a user message after the system prompt or, if
// is_plain or without a template, BOS and the text. False with err if the message is blank or the
// template rejects it.
bool prompt_encode(const Pipeline *p, const Settings *s, Str prompt, bool is_plain, Ids *out,
                   Error *err);
// False with err (exit 4) unless n_tokens fit the context, and one more if needs_next.
bool context_fits(int n_tokens, bool needs_next, int context, Error *err);
// False with err (exit 4) if n_bytes of text exceed the context in any tokenization. The text is
// not encoded, which would take long for a huge file.
bool text_may_fit(const Pipeline *p, size_t n_bytes, Error *err);
// Sets the prompt of a request, which must outlive it, and the context that the prompt needs. False
// with err if the prompt has no token, or does not fit the context (exit 4).
bool request_set_prompt(const Pipeline *p, const Ids *prompt, Request *r, Error *err);
// Makes the request for an encoded prompt, which must outlive it. False with err (exit 4) if the
// prompt does not fit the context.
bool request_from_settings(const Pipeline *p, const Settings *s, const Ids *prompt, bool is_plain,
                           Request *r, Error *err);
// Adds the beginning of an answer to a request and to its prompt, in which the template has opened
// the answer. The text never becomes special tokens. r->start.all is allocated. False with err
// (exit 4) if the prompt does not fit the context, exit 2 without a template.
bool request_begin_answer(const Pipeline *p, Str text, Ids *prompt, Request *r, Error *err);
enum { KV_TYPE_TEXT = 16 };
// Writes the types of a KV cache to `text` and returns it: "F16", or "Q8_0,Q4_0" if keys and values
// differ.
const char *kv_type_text(const KvShape *kv, char text[KV_TYPE_TEXT]);
// True if the available memory can hold a KV cache of n_positions. False with err (exit 1).
bool kv_memory_check(const Model *m, size_t n_positions, Error *err);
