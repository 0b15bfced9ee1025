// Values of options with a syntax of their own. The bool functions return false for an invalid
// value.
#pragma once

#include "../lora/lora.h"
#include "../sample.h"

// --lora: "FILE" or "FILE:SCALE"
bool lora_option_parse(const char *text, LoraOption *out);
// --logit-bias: "ID+X" or "ID-X"; "ID-inf" bans the token.
bool logit_bias_parse(const char *text, LogitBias *out);
// "A,B,...": the items (n), which point into `list`; free the array.
Str *list_split(const char *list, int *n);
// Whether all token ids are in the vocabulary. False with err (exit 2).
bool logit_bias_check(const SampleOptions *s, int n_vocab, Error *err);
