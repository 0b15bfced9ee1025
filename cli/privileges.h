// Least privilege: which files the options of a command name, and the sandbox that allows no
// others.
#pragma once

#include "cli/options.h"

// Enters the sandbox with the files that the options of the command name. Call it before
// threads are started and before any file of the user is read. Creates the directory of --cache,
// because only an existing directory can be allowed. Ends the program if --sandbox require is given
// and a layer is missing.
void enter_sandbox(const Options *o);
// Gives up all files except the prefix cache. Call it when all other files are open.
void close_file_access(const Options *o);
// The same, but files of this directory can be removed; NULL: none.
void close_file_access_except(const Options *o, const char *directory);
// The file of chat's input history: $LLAMA31_HISTORY, or $XDG_STATE_HOME/llama31/history, whose
// directories are created. NULL with --no-history or without a home directory.
const char *history_path(const Options *o);
// Why there is no history, for messages.
const char *history_missing(const Options *o);
// A file beside the history, whose path it extends: ".last-chat" is the file of --continue. Owned
// by the caller; NULL if there is no history.
char *history_beside(const Options *o, const char *suffix);
