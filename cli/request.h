// Turns options into what generation needs: requests that fit the context and the memory, their
// constraints, and the generator with its prefix cache and draft model.
#pragma once

#include "open_model.h"
#include "../generate.h"

enum {
    DEFAULT_CONTEXT = 8192, // context size without -c and -n, for models that have a larger one
    DEFAULT_PARALLEL = 16,  // sequences per batch; more increase throughput, but each is slower
    MAX_LOGITS_BYTES = 128 << 20 // logits of a forward pass, in commands that need all positions
};

// The reasoning that --reasoning and --reasoning-budget request.
Reasoning reasoning_from_options(const Options *o);
// Checks an object of template variables, and applies those that concern reasoning to the options:
// enable_thinking, thinking, thinking_budget and similar names. False with err (exit 2).
bool template_kwargs_read(Options *o, const Json *kwargs, Error *err);
// Replaces --chat-template-kwargs by the variables that it contains. Dies if it is invalid.
void template_kwargs_apply(Options *o);
// Appends the tokens of a prompt: rendered as a user message after the system prompt or, if
// is_plain or without a template, BOS and the text. False with err if the template rejects it.
bool prompt_encode(const Pipeline *p, const Options *o, Str prompt, bool is_plain, Ids *out,
                   Error *err);
// False with err (exit 4) unless n_tokens fit the context, and one more if needs_next.
bool context_fits(int n_tokens, bool needs_next, int context, Error *err);
// False with err (exit 4) if n_bytes of text exceed the context in any tokenization. The text is
// not encoded, which would take long for a huge file.
bool text_may_fit(const Pipeline *p, size_t n_bytes, Error *err);
// Sets the prompt of a request, which must outlive it, and the context that the prompt needs. False
// with err (exit 4) if the prompt does not fit the context.
bool request_set_prompt(const Pipeline *p, const Ids *prompt, Request *r, Error *err);
// Makes the request for an encoded prompt, which must outlive it. False with err (exit 4) if the
// prompt does not fit the context.
bool request_from_options(const Pipeline *p, const Options *o, const Ids *prompt, bool is_plain,
                          Request *r, Error *err);
enum { KV_TYPE_TEXT = 16 };
// Writes the types of a KV cache to `text` and returns it: "F16", or "Q8_0,Q4_0" if keys and values
// differ.
const char *kv_type_text(const KvShape *kv, char text[KV_TYPE_TEXT]);
// True if the available memory can hold a KV cache of n_positions. False with err (exit 1).
bool kv_memory_check(const Model *m, size_t n_positions, Error *err);

// "A,B,...": the items (n), which point into `list`; free the array.
Str *list_split(const char *list, int *n);
// Puts '@' before a --grammar without "::=" and a --json-schema that ends in ".json": file names.
void constraint_mark_files(Options *o);
// True if a spec has a source.
bool constraint_is_requested(const ConstraintSpec *s);
// Appends the JSON Schema of calls of the offered tools, or only of the tool `wanted` (NULL: any):
// {"name": NAME, KEY: PARAMETERS}, with is_list an array of them. Returns the number of tools.
int tools_put_schema(Buffer *out, const Json *tools, const Str *wanted, const char *key,
                     bool is_list);
// Compiles the constraint of `spec` or, if it has no source, of --json-schema, --grammar, --regex
// or --choices, whose file it reads. Without any of these, constrains the calls of `tools` (a JSON
// array; data NULL: none) in the form of the template, or excludes calls if bans_calls is set.
// spec->may_think: the template knows <think>; the reasoning options complete the spec.
//
// Attaches the result to the request r, if it is not NULL. *out is NULL if nothing is constrained.
// Prints notes: unknown JSON Schema keywords, where the constraint begins, calls that are not
// enforced. False with err: exit 2 for an invalid constraint, exit 1 for a file that cannot be
// read.
bool constraint_open(const Pipeline *p, const Options *o, ConstraintSpec *spec, Str tools,
                     bool bans_calls, Request *r, ConstraintState **out, Error *err);

// Initializes the generator of at most n_parallel sequences. Dies if the draft model cannot be
// opened.
void generator_open(Pipeline *p, Generator *g, int chunk, int n_parallel);
// Dies unless `other`, the model of `option`, has the same vocabulary as m.
void same_vocabulary_check(const Model *other, const Model *m, const char *option);
