// The values of options that can change an answer, beside their defaults: the one loop for the
// identity of a batch run and for the settings that a chat shows.
//
//     OptionWalk walk = option_walk(CMD_SET, options, settings, NULL);
//     while (option_walk_next(&walk))
//         if (option_walk_has_changed(&walk)) ... walk.name, walk.value ...
#pragma once

#include "cli/open_model.h"

typedef struct {
    // The current option. Values are JSON: null if the option is not set. A file and a long text
    // count by their content, {"text":"HASH"}; a model is {"file":"HASH"}.
    const char *name;          // its first long name: "--temp"
    const char *value, *usual; // usual: the default

    unsigned commands;
    const Option *row; // the next one
    const Options *options;
    const Settings *settings;
    const Pipeline *pipeline;
    Options defaults;
    Buffer texts[2];
} OptionWalk;

// Begins before the first option of some commands (CMD_* bits), with the values of *o and, of
// settings, *s. p: the opened model files; NULL if no option of the commands names one.
OptionWalk option_walk(unsigned commands, const Options *o, const Settings *s, const Pipeline *p);
// Goes to the next option that can change an answer. False after the last; frees the values.
bool option_walk_next(OptionWalk *w);
// True if the current option differs from its default.
bool option_walk_has_changed(const OptionWalk *w);
