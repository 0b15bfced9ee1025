// What a request may set: sampling, limits, stops, reasoning, constraint, template variables.
//
// The command line writes numbers and flags to the Settings in its Options. settings_resolve()
// (resolve.h) makes the settings of a model from them. A batch record has a copy, to which the
// fields of its request are written; chat's /set writes to the copy of the chat.
#pragma once

#include "chat/template.h"
#include "constrain/constraint_spec.h"
#include "generate/sample.h"

#include <limits.h>

enum { BUDGET_AUTO = -2 }; // reasoning_budget: leaves a quarter of n_predict for the answer

typedef struct {
    int n_predict;  // INT_MIN: not given, -1: until the context is full
    int min_tokens; // tokens before which no stop token or string ends the text
    bool ignore_eos, no_loop_stop;
    bool has_echo;
    int n_logprobs; // alternatives per token
    bool has_seed;  // sample.seed was given, not drawn
    SampleOptions sample;
    Str *stops; // (n_stops)
    int n_stops;
    Ids stop_ids;

    int thinks;                    // 1 on, -1 off, 0 auto
    int reasoning_budget;          // tokens; INT_MIN: not given, -1: no limit, BUDGET_AUTO
    const char *reasoning_message; // fed before </think> when the budget ends the reasoning
    Str variables;                 // of the template, a JSON object; data NULL: none
    ConstraintSpec constraint;     // its source belongs to the process
} Settings;

// A copy with lists of its own, for settings_free().
Settings settings_copy(const Settings *s);
void settings_free(Settings *s);

// Replace a list by an empty one.
void settings_clear_strings(Str **list, int *n);
void settings_clear_biases(SampleOptions *sample);
void settings_add_bias(SampleOptions *sample, LogitBias bias);
// Turns reasoning on or off.
void settings_think(Settings *s, bool is_on);
// The reasoning that the settings request.
Reasoning settings_reasoning(const Settings *s);
