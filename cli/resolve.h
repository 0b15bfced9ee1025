// The settings that a command line means: with the texts of its files, the template variables that
// concern reasoning, and, for a model, the defaults of its file and tokens in place of texts.
#pragma once

#include "cli/options.h"
#include "tokenizer.h"

// Makes the settings of a command line for a model; m NULL: without what needs one. Warns about
// invalid defaults of the model file; dies if an option is invalid (exit 2) or a file cannot be
// read.
Settings settings_resolve(const Options *o, const Model *m, const Tokenizer *t);
// The value of an option or, if it is "@FILE", the text of the file; owned by the process. "@@" is
// a literal "@". NULL stays NULL. Dies if the file cannot be read.
const char *text_resolve(const char *value);
// Reads a list of choices as json_list() does, or from "@FILE", which has one per line or an array.
// "@@" is a literal "@".
Str *choices_read(JsonDoc *doc, const char *value, int *n, Error *err);
// Sets the template variables, and what some of them say about reasoning: enable_thinking,
// thinking, thinking_budget and similar names. False with err (exit 2) if they are invalid.
bool settings_set_variables(Settings *s, const Json *variables, Error *err);
// True if the vocabulary has all tokens of the logit biases. False with err (exit 2).
bool logit_bias_check(const SampleOptions *s, int n_vocab, Error *err);
