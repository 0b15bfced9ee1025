// A dialogue: its messages, and its transcript, the content of a session file: one JSON object per
// line. A line is a message, or it changes what is above it:
//
//     {"role":"undo","n":2}            removes the last two messages
//     {"role":"set","system":"..."}    sets the system prompt; an empty one removes it
//     {"role":"clear"}                 ends a dialogue
//
// A file may have several dialogues; the last one is continued.
//
// So a transcript only grows while a chat is open, and a killed chat loses nothing. At the end of
// the chat it is written anew, without lines that remove or set.
#pragma once

#include "chat/message.h"

// Messages that dialogue_undo() has removed.
typedef struct {
    Message *messages; // (n)
    int n;
    int from; // index of the first one, not counting the system prompt; -1: dropped since
} Removal;

// Zero-initialize.
typedef struct {
    Message *messages; // (n) owned
    int n;
    Buffer dropped;  // transcript lines of the messages that dialogue_drop removed
    Buffer earlier;  // transcript lines of earlier dialogues, each with the line that ends it
    Removal *undone; // (n_undone) in order
    int n_undone;
    bool has_changes; // the transcript has lines that remove or set
} Dialogue;

void dialogue_free(Dialogue *d);
void dialogue_push(Dialogue *d, Message m);                    // takes ownership of m
bool dialogue_has(const Dialogue *d, int i, const char *role); // message i exists and has this role
int dialogue_last(const Dialogue *d, const char *role);        // last message of this role, or -1
// Remove the messages [from, to). dialogue_drop() keeps their lines in the transcript.
void dialogue_remove(Dialogue *d, int from, int to);
void dialogue_drop(Dialogue *d, int from, int to);
// Appends copies of the messages, as a template needs them. Some templates refuse two messages of
// the user in a row, or an empty answer. So a message without an answer, or with an empty one, is
// joined with the next message. With joins_calls, this also applies to a message whose tool calls
// no answer follows; calls and results are left out. Returns the number of such messages. *out is
// empty before.
int dialogue_join(const Dialogue *d, bool joins_calls, Dialogue *out);
// Removes the messages from index `from` on. dialogue_redo() brings back those that were removed
// last. Messages that are in their place are removed instead, so another call exchanges them again.
// Returns the index of the first message that it brought back, or -1 if there is none.
void dialogue_undo(Dialogue *d, int from);
int dialogue_redo(Dialogue *d);
void dialogue_forget_undone(Dialogue *d);

// True if there are messages other than the system prompt.
bool dialogue_is_begun(const Dialogue *d);
// Begins another dialogue with the same system prompt. If there are other messages, the lines of
// this one become earlier ones.
void dialogue_begin_anew(Dialogue *d);
// The lines of an earlier dialogue; i = 1: the last one. data is NULL if there are fewer.
Str dialogue_earlier(const Dialogue *d, int i);
// Removes the lines of all but the last n earlier dialogues.
void dialogue_keep_earlier(Dialogue *d, int n);
// Continues an earlier dialogue: it and the present one exchange their roles. False with err if its
// lines are invalid.
bool dialogue_continue_earlier(Dialogue *d, int i, Error *err);
// Sets the system prompt; an empty one removes it.
void dialogue_set_system(Dialogue *d, Str text);

// Read a transcript, which is in a file or in `text` (`name` is used in messages), into *d, which
// has no message: the last dialogue, and the messages of the earlier ones.
// If the last line is truncated, because the program was killed or the disk was full, it is ignored
// and *n_truncated is its length. False with err (exit 1).
bool transcript_read(Dialogue *d, const char *path, size_t *n_truncated, Error *err);
bool transcript_parse(Dialogue *d, Str text, const char *name, size_t *n_truncated, Error *err);
// Append the lines of the dialogue, without earlier ones, or only those that change a transcript:
// the last n_removed messages are removed from it, and the last n_new ones of the dialogue added.
void transcript_put(const Dialogue *d, Buffer *out);
void transcript_put_change(Dialogue *d, int n_removed, int n_new, Buffer *out);
// Append the line that sets the system prompt of the dialogue, or the one that ends a dialogue.
void transcript_put_system(Dialogue *d, Buffer *out);
void transcript_put_clear(Buffer *out);
// Appends the whole transcript as Markdown for readers: a heading per message, then its text, or
// its JSON object if it has tool calls.
void transcript_put_markdown(const Dialogue *d, Buffer *out);
