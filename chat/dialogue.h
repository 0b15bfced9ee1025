// A dialogue: its messages, and its transcript, the content of a session file (one JSON object per
// line and message). A line {"role":"clear"} ends a dialogue: the file may have several, and the
// last one is continued.
#pragma once

#include "chat/message.h"

// Zero-initialize.
typedef struct {
    Message *messages; // (n) owned
    int n;
    Buffer dropped; // transcript lines of the messages that dialogue_drop removed
    Buffer earlier; // transcript lines of earlier dialogues, each with the line that ends it
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
// joined with the next message. Returns the number of such messages. *out is empty before.
int dialogue_join(const Dialogue *d, Dialogue *out);
// Begins another dialogue with the same system prompt. If there are other messages, the lines of
// this one become earlier ones.
void dialogue_begin_anew(Dialogue *d);
// Removes the lines of all but the last n earlier dialogues.
void dialogue_keep_earlier(Dialogue *d, int n);
// Sets the system prompt; an empty one removes it.
void dialogue_set_system(Dialogue *d, Str text);

// Add the messages of the last dialogue of a transcript, which is in a file or in `text` (`name` is
// used in messages). Its earlier ones become those of *d.
// If the last line is truncated, because the program was killed or the disk was full, it is ignored
// and *n_truncated is its length. False with err (exit 1).
bool transcript_read(Dialogue *d, const char *path, size_t *n_truncated, Error *err);
bool transcript_parse(Dialogue *d, Str text, const char *name, size_t *n_truncated, Error *err);
// Append the lines of the dialogue, without earlier ones, or only the line of the last message.
void transcript_put(const Dialogue *d, Buffer *out);
void transcript_put_last(const Dialogue *d, Buffer *out);
// Appends the whole transcript as Markdown for readers: a heading per message, then its text, or
// its JSON object if it has tool calls.
void transcript_put_markdown(const Dialogue *d, Buffer *out);
