// Reads the input of the model from the options: the prompt, the system prompt, tools, token ids.
//
// One final newline of a file or of stdin is not part of a prompt, unless --keep-newline is given.
#pragma once

#include "cli/options.h"
#include "chat/template.h"
#include "tokenizer.h"

// True if a positional argument is the name of a GGUF file, not a prompt that ends in ".gguf".
bool argument_is_model(const char *arg);
// Without -m, makes a first positional argument that is a GGUF file the model. Dies (exit 2) if it
// is the name of a published model, as ollama has them ("llama3.1:8b").
void model_take_argument(Options *o);
// Appends the prompt: -p, then -f, then the positional arguments joined by spaces. The argument "-"
// inserts stdin. Stdin is also the prompt if none is given; dies (exit 2) if it is then a terminal.
void prompt_read(const Options *o, Buffer *out);
// The text of -sys, owned; data NULL: none. Dies (exit 2) if there is no template for it.
Str system_prompt_read(const Options *o, const Template *tpl);
// The JSON array of --tools, owned; data NULL: none. Dies (exit 2) if it is invalid.
Str tools_read(const Options *o, const Template *tpl);
// Checks an array of tools as in OpenAI's API. False with err (exit 1) if it is invalid, or if the
// template does not support tools.
bool tools_check(const Json *tools, const Template *tpl, Error *err);
// Appends the token ids of --ids, a list or @FILE. Dies (exit 1) if the file cannot be read.
void ids_read(const Options *o, int n_vocab, Ids *out);
// Appends token ids written as text, separated by commas or white space. Dies (exit 2) on anything
// else.
void ids_parse(const char *text, int n_vocab, Ids *out);
