// Reads the input of the model from the options: the prompt, the system prompt, tools, token ids.
//
// Stdin beside a prompt belongs to the prompt. Where a script or loop that calls this program may
// read it, too, only the user knows which of the two should: this is an error. Such an input is a
// file of which something has been read before, or a pipe that a calling shell reads.
//
// One final newline of a file or of stdin is not part of a prompt, unless --keep-newline is given.
#pragma once

#include "cli/options.h"
#include "chat/template.h"
#include "tokenizer.h"

// True if a positional argument is the name of a GGUF file, not a prompt that ends in ".gguf".
bool argument_is_model(const char *arg);
// Without -m, makes a first positional argument that is a GGUF file the model.
void model_take_argument(Options *o);
// The same, for a command with a prompt, and finds out whether the caller reads stdin, too. This is
// not possible in the sandbox.
void prompt_prepare(Options *o);
// The same. Dies (exit 2) if the first argument is the name of a published model, as ollama has
// them ("llama3.1:8b").
void run_prepare(Options *o);
// Appends the prompt: -p, then -f, then the positional arguments joined by spaces, where "-" stands
// for stdin, then stdin after an empty line; dies (exit 2) if a caller may read stdin, too. Stdin
// is the prompt if none is given; dies (exit 2) if it is then a terminal.
void prompt_read(const Options *o, Buffer *out);
// Dies (exit 2) if the prompt is blank. With --raw, an explicit "" stands for BOS alone.
void prompt_check(const Options *o, const Buffer *prompt);
// The text of -sys, owned; data NULL: none. Dies (exit 2) if there is no template for it.
Str system_prompt_read(const Options *o, const Template *tpl);
// The JSON array of --tools, owned; data NULL: none. Dies (exit 2) if it is invalid.
Str tools_read(const Options *o, const Template *tpl);
// Checks an array of tools as in OpenAI's API. False with err (exit 1) if it is invalid, or if the
// template does not support tools.
bool tools_check(const Json *tools, const Template *tpl, Error *err);
// Appends token ids written as text, separated by commas or white space. Dies (exit 2) on anything
// else.
void ids_parse(const char *text, int n_vocab, Ids *out);
