// What the loop of chat and its commands share.
#ifndef COMMANDS_CHAT_TURN_H
#define COMMANDS_CHAT_TURN_H

#include "../base/files.h"
#include "../chat/dialogue.h"
#include "../chat/token_stream.h"
#include "../editor/editor.h"
#include "../cli/open_model.h"

typedef struct {
    Options options; // ours: /set changes them
    Pipeline pipeline;
    Generator generator;
    Session *session;
    Editor *editor;
    Dialogue dialogue;
    TokenStream stream; // the tokens of the dialogue and of what opens an answer
    int n_answers;      // each answer has a stream of random numbers of its own
    Journal journal;    // the session file
    bool is_behind;     // the last write to it failed
    Buffer attached;    // of /file, for the next message
    Buffer edited;      // what the next prompt begins with
    bool is_editing;    // the next text takes the place of the last question
    bool is_terminal;
    int code;                     // exit status at the end of piped input
    uint64_t n_prefill, n_decode; // of all turns
    double prefill_sec, decode_sec;
} Chat;

// Something that could not be done. In --json a driver waits for a line of output.
void chat_complain(const Chat *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The session file follows the dialogue: by one message more, or whole after any other change and
// after a failure.
void chat_follow(Chat *c, bool is_appended);
// True if the dialogue and the start of an answer fit; if not, says so, with what can be done.
bool chat_fits(Chat *c);
// Adds a message and lets the model answer; answers what the dialogue holds.
void chat_say(Chat *c, const char *role, const char *text, size_t n);
void chat_answer(Chat *c);
void chat_take(Chat *c, Message m, bool wants_answer);
// Takes the last question back, with what was said to it. False if there is none.
bool chat_undo(Chat *c);

#endif
