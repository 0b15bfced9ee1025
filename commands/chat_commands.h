// The slash commands of chat, and their completion.
#ifndef COMMANDS_CHAT_COMMANDS_H
#define COMMANDS_CHAT_COMMANDS_H

#include "chat_turn.h"

// Runs a line that begins with a slash. False ends the chat.
bool chat_command(Chat *c, const char *text);
// A Completer: completes commands, options of /set, and files.
void chat_complete(Str before, Buffer *out);

#endif
