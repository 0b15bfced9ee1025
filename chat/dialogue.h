// A dialogue: its messages with their token ids, and its transcript, JSON lines of {"role", "content"}.
#ifndef CHAT_DIALOGUE_H
#define CHAT_DIALOGUE_H

#include "template.h"

// Zero-initialise.
typedef struct {
    Message *messages; // (n), texts owned
    Ids *ids;          // (n): the tokens each is fed as; none: not encoded yet
    int n;
    Buffer dropped; // transcript lines of what dialogue_drop took out
} Dialogue;

void dialogue_push(Dialogue *d, Str role, Str content);
bool dialogue_has(const Dialogue *d, int i, const char *role); // whether message i exists and has this role
int dialogue_last_user(const Dialogue *d);                     // the last message of the user, or -1
// Forgets messages [from, to); what follows them is to be encoded anew.
void dialogue_remove(Dialogue *d, int from, int to);
// The same, but the transcript keeps them.
void dialogue_drop(Dialogue *d, int from, int to);
// Sets the system prompt, or removes it if n is 0.
void dialogue_system(Dialogue *d, const char *text, size_t n);
// Encodes the messages that are not; the number of all tokens.
int dialogue_encode(Dialogue *d, Template tpl, const Tokenizer *t);

// Adds the messages of a file. The last line, if a kill or a full disk has torn it, is passed over: *n_torn is its
// length. False with err (exit 1).
bool transcript_read(Dialogue *d, const char *path, size_t *n_torn, Error *err);
// Appends all lines of the transcript; that of the last message.
void transcript_put(const Dialogue *d, Buffer *out);
void transcript_put_last(const Dialogue *d, Buffer *out);

#endif
