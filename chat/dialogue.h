// A dialogue: its messages, its transcript (a JSON object a line), and its tokens.
#ifndef CHAT_DIALOGUE_H
#define CHAT_DIALOGUE_H

#include "template.h"

// Zero-initialise.
typedef struct {
    Message *messages; // (n), texts owned
    int n;
    Buffer dropped; // transcript lines of what dialogue_drop took out
} Dialogue;

void dialogue_push(Dialogue *d, Message m); // m is the dialogue's from now on
bool dialogue_has(const Dialogue *d, int i,
                  const char *role);       // whether message i exists and has this role
int dialogue_last_user(const Dialogue *d); // the last message of the user, or -1
// Forgets messages [from, to).
void dialogue_remove(Dialogue *d, int from, int to);
// The same, but the transcript keeps them.
void dialogue_drop(Dialogue *d, int from, int to);
// Sets the system prompt, or removes it if n is 0.
void dialogue_system(Dialogue *d, const char *text, size_t n);

// The tokens of a dialogue that grows: what a template makes of it anew each turn, but what the
// model said in the tokens in which it said it, so that a turn costs its own tokens.
// Zero-initialise.
typedef struct {
    size_t text;
    int ids;
} ResumePoint; // where an answer ends: encoding can be taken up again there
typedef struct {
    Buffer text, mask;          // of the last update, and an answer found in it
    Ids ids;                    // its tokens
    ResumePoint *resume_points; // (n_resume_points)
    int n_resume_points;
    bool has_answer;      // an answer that the next update may find in its text:
    Buffer answer, shown; // with control tokens by name, and without
    Ids answer_ids;
    int answer_stop;
} TokenStream;

// The dialogue as it is rendered now (mask: see template_render): s->ids are its tokens.
void token_stream_update(TokenStream *s, const Tokenizer *t, Str text, const char *mask);
// The model has answered s->ids with these n tokens: their text with control tokens by name, and
// without. stop: the token that ended it, or -1.
void token_stream_add_answer(TokenStream *s, const int *ids, int n, Str answer, Str shown,
                             int stop);

// Adds the messages of a file. The last line, if a kill or a full disk has torn it, is passed over:
// *n_torn is its length. False with err (exit 1).
bool transcript_read(Dialogue *d, const char *path, size_t *n_torn, Error *err);
bool transcript_parse(Dialogue *d, Str text, const char *name, size_t *n_torn,
                      Error *err); // the same of its text
// Appends all lines of the transcript; that of the last message.
void transcript_put(const Dialogue *d, Buffer *out);
void transcript_put_last(const Dialogue *d, Buffer *out);

#endif
