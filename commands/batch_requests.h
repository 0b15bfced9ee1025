// Requests and answers of `batch` as JSON lines, in two forms:
//   short   {"id", "prompt" | "messages", OPTIONS...}
//           -> {"id", "text", "finish_reason", "n_prompt", "n_generated", "seed"}
//   OpenAI  {"custom_id", "method", "url", "body": {...}} -> {"id", "custom_id", "response": {...},
//   "error"}
#ifndef COMMANDS_BATCH_REQUESTS_H
#define COMMANDS_BATCH_REQUESTS_H

#include "../base/json.h"
#include "../cli/open_model.h"

typedef enum { FORM_SHORT, FORM_CHAT, FORM_COMPLETION } RecordForm;
// OPEN: answered, but its other choices are not.
typedef enum { RECORD_WAITING, RECORD_ACTIVE, RECORD_OPEN, RECORD_DONE } RecordState;
enum { MAX_CHOICES = 64 };

// A request, from its line to its answer. One that wants several choices is the first of them; the
// others are records of their own, which find its prompt computed.
typedef struct Record Record;
struct Record {
    long line;
    RecordForm form;
    Buffer key;  // its id as JSON, or "line N" for one that has none
    bool has_id; // not "line N"
    Ids prompt;
    const Options *common; // the command line's
    Options options;       // the same, but for what the request says
    int n_top;             // alternatives to report for each token; -1: no log-probabilities at all
    ConstraintSpec wish;   // while its line is read: what its text is to be
    Buffer call;           // of that: the schema of a call that must be made
    ConstraintState *constraint; // or NULL
    Request request; // its prompt is set at the start, when it is known what others have computed
    RecordState state;
    Session *session; // while active
    int n_shared;     // positions of it that were computed for others
    Sequence sequence;
    bool has_failed;
    Buffer answer;                // the line to write, once done
    bool is_plain, has_tools;     // its prompt is no dialogue; calls may be answered
    Record *first;                // whose choice it is; NULL: its own
    int n_choices, index, n_open; // of the first: choices wanted, and not yet answered
    int n_answered;               // tokens of all choices
    Buffer choices[MAX_CHOICES];  // of the first: each as JSON
};

// Who a request is: fills form and key. root NULL: a line of plain text. False with err if it
// cannot be told.
bool record_identify(Record *r, const Json *root, Error *err);
// The rest of the request; of a line of plain text. False with err (EXIT_CONTEXT if the prompt is
// too long).
bool record_parse(Record *r, const Pipeline *e, const Json *root, Error *err);
bool record_take_text(Record *r, const Pipeline *e, Str line, Error *err);
// Renders the answer of a finished sequence, or an error; the record is then done.
void record_answer(Record *r, const Pipeline *e);
void record_fail(Record *r, const char *code, const char *message);
void record_free(Record *r);
// The choice of this index (from 1) of a request with r->n_choices, with a seed of its own.
Record *record_choice(Record *r, int index);

// How a line of output begins.
#define RESULT_HEAD "{\"id\":"

typedef enum {
    RESULT_ANSWER,
    RESULT_ERROR,
    RESULT_AGAIN, // an error that another run need not meet: memory was short, or generation failed
} ResultKind;
// The key of a line of output, as it was made for its request.
bool result_key(const Json *root, Buffer *key, ResultKind *kind);
// What the answers of a run depend on besides their requests, as "fp_HASH_SEED": a hash of the
// model (what its file says of itself, and a sample of each tensor) and of the options, and the
// seed.
void fingerprint_put(Buffer *out, const Options *o, const Pipeline *e);

#endif
