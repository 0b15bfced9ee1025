// The commands of chat, which begin with a slash.
#ifndef COMMANDS_CHAT_COMMANDS_H
#define COMMANDS_CHAT_COMMANDS_H

#include "chat_turn.h"

// Runs a line that begins with a slash. False ends the chat.
bool chat_command(Chat *c, const char *text);
// What Tab makes of a line, for editor_set_completer: commands, what /set sets, files.
void chat_complete(void *arg, Str before, Buffer *out);

#endif
