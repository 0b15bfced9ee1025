// The state of a chat, its file (chat_file.c), its turns (chat_turn.c) and its slash commands
// (chat_commands.c). A turn adds a message to the dialogue, and the answer of the model.
//
// Before each answer the template renders the whole dialogue, and the token stream replaces the
// texts of earlier answers with their original tokens. The session is then rewound to the end of
// the prefix that it shares with the stream, and only the tokens after it are fed. So a turn costs
// only its own tokens. After /undo, /edit or /load, or with a template that drops old reasoning,
// the tokens from the first difference on are fed again.
#pragma once

#include "base/files.h"
#include "chat/dialogue.h"
#include "chat/token_stream.h"
#include "cli/editor/editor.h"
#include "cli/lines.h"
#include "cli/open_model.h"
#include "generate/generate.h"

// Counters of all turns.
typedef struct {
    uint64_t n_prefill, n_decode; // tokens
    double prefill_sec, decode_sec;
} ChatTotals;

typedef struct {
    const Options *options;
    Settings settings; // a copy of the command line's, which /set changes
    Pipeline pipeline;
    Generator generator;
    Session *session;
    Editor *editor;
    Dialogue dialogue;
    TokenStream stream; // tokens of the dialogue, up to where the next answer begins
    int n_joined;       // messages joined with the next one that a note has counted
    int n_answers;      // added to the seed: each answer has its own random numbers
    LineReader lines;   // standard input, without a terminal
    char *path;         // file of --session, or of the last chat; NULL: none
    Journal journal;    // this file, if is_open
    bool is_open;
    Buffer unsaved;    // lines that the journal does not have yet
    bool has_failed;   // the last write to the journal failed
    int n_removed;     // messages at the end of the journal that the dialogue no longer has
    int n_new;         // messages at the end of the dialogue that the journal does not have yet
    const char *begun; // the beginning of the answer (/answer); NULL: none
    Buffer attached;   // text of /file, for the next message
    Buffer edited;     // the last user message, which the next text replaces; empty: none
    bool is_terminal;
    bool is_full;  // the dialogue fills the context
    int exit_code; // of the first line that failed
    ChatTotals totals;
} Chat;

// Prints the error of a line, a turn or a command; with --json also as {"error": ...} on stdout,
// where a program expects a line. The code of the first one is the exit status of a pipe.
void chat_error(Chat *c, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
// The file of the input history of a terminal, or NULL. One that cannot be written is an error if
// $LLAMA31_HISTORY names it, otherwise a warning.
const char *chat_history(const Options *o);
// Chooses the file of the dialogue and, with --session or --continue, opens it and resumes the
// dialogue. An error ends the program.
void chat_open_file(Chat *c);
// Prints the saved dialogues (--list). Returns the exit code.
int chat_list(const Options *o);
// Append to the file, if there is one: lines, the messages that were removed from the end of the
// dialogue or added, or the system prompt.
void chat_save(Chat *c, Str lines);
void chat_save_change(Chat *c);
void chat_save_system(Chat *c);
// Saves what is not saved yet, and deletes removed messages. False if messages are lost.
bool chat_close_file(Chat *c);
// True if the context is full, and no later line of a pipe can make room. With --json each line has
// an object.
bool chat_is_stuck(const Chat *c);
// Adds a message (takes ownership), and answers it if wants_answer. False if it does not fit or, in
// chat_replace(), has no answer.
bool chat_add(Chat *c, Message m, bool wants_answer);
// Adds a message made of the attached file and a text, and answers it. False if it does not fit.
bool chat_say(Chat *c, const char *role, Str text);
// Replaces the messages from index `from` on with a message of the user and its answer or, if
// text.data is NULL, with an answer. If there is no answer, the old messages stay.
void chat_replace(Chat *c, int from, Str text);

// On a terminal, shows the last message of the user and what follows it.
void chat_show_last(const Chat *c);

// Runs a line that begins with a slash. False ends the chat.
bool chat_command(Chat *c, const char *text);
// A Completer: completes commands, options of /set, and files.
size_t chat_complete(Str before, Buffer *out);
