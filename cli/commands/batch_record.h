// A batch request, from its line of input to its line of output.
//
// Requests have two forms, which one file may mix:
//
//     short   {"id", "prompt" | "messages", OPTIONS...}
//          -> {"id", "text", "finish_reason", "n_prompt", "n_generated", "seed"}
//     OpenAI  {"custom_id", "method", "url", "body": {...}}
//          -> {"id", "custom_id", "response": {...}, "error"}
//
// batch_request.c parses requests, batch_answer.c writes answers, batch.c runs them.
#pragma once

#include "chat/reply.h"
#include "generate/answer.h"
#include "base/intern.h"
#include "base/json.h"
#include "cli/open_model.h"

enum {
    MAX_CHOICES = 64,       // "n" of a request
    MAX_COMPLETIONS = 2048, // of a request: prompts times "n"
    MAX_UNKNOWN = 32        // unknown fields that are listed
};

typedef enum { FORM_SHORT, FORM_CHAT, FORM_COMPLETION } RequestForm; // the last two: OpenAI's

typedef enum { RECORD_WAITING, RECORD_RUNNING, RECORD_DONE } RecordState;

// The line of input that holds a request.
typedef struct {
    long number; // from 1
    RequestForm form;
    Buffer id;     // as JSON: a string, an integer, or the line number
    bool has_id;   // false: no id could be read; `id` is then "line N", which is not JSON
    bool is_named; // the request has an id; otherwise it is the line number
    uint64_t hash; // of the request
} RequestLine;

// The tools that a request offers.
typedef struct {
    Buffer text; // JSON array of the tools of the request, or of the command line
    bool is_offered;
    bool is_forced; // the answer is a call of one of them
    bool is_single; // it has at most one call
    Str forced;     // that one, while the request is parsed; data NULL: any
} RequestTools;

// The answer to a request, from all its records.
typedef struct {
    Buffer *choices;              // (n_choices) each finished choice as a JSON object
    int n_unfinished;             // records without a result
    int n_generated, n_reasoning; // tokens of all choices
    int n_cut;                    // choices that ended within a character
    int n_truncated; // tokens that were removed from the beginning of the context (score)
    bool has_failed, is_incomplete; // is_incomplete: completion_is_incomplete() of any choice
    Buffer notes;                   // what is not enforced or was left out; or empty
    char *failure;                  // why a text ended early: FINISH_ERROR of a choice; or NULL
    Buffer text;                    // the line of output, with a newline
} RecordAnswer;

// The longest prefix of a prompt in the sessions of other records.
typedef struct {
    const Session *session; // NULL: none
    int kept;               // its index in Batch.prefixes; -1: it is a running record's
    int n_now;              // positions that `session` has computed
    int n_soon;             // positions that some session has computed or is going to compute
} SharedPrefix;

// What the schedule knows of a record (batch_schedule.c).
typedef struct {
    long order;          // number of records that were read before it
    int n_common;        // common prefix with the record before it in Batch.waiting
    SharedPrefix prefix; // of a waiting record, as of the last find_prefixes()
    int n_shared;        // positions that were forked from another session
} RecordSchedule;

// The beginning of the answer: the last message, with "continue_final_message".
typedef struct {
    bool is_given;
    Str text; // data NULL: none
} RecordStart;

// What has been read and written of a choice that is streamed (batch_stream.c).
typedef struct {
    bool is_on; // "stream": true; of a parent
    Buffer raw; // the text so far, with control tokens by name
    int n_read; // tokens of it
    TextParts parts;
    size_t n_searched;          // bytes of the answer in `raw` that have no tag of a call
    bool has_call;              // the text may be a tool call, which its end decides
    size_t n_text, n_reasoning; // bytes that have been written
    int n_tokens;               // with log-probabilities, that have been written
} RecordStream;

// One completion. A request for several completions is that many records: the first is the parent,
// which holds the request and its answer; the others are choices, which share the KV cache of the
// prompt. With several prompts, the n choices of each are consecutive.
typedef struct Record {
    // Request. A choice has only `pipeline`, `prompt`, `request` and `constraint`; everything else
    // is in its parent.
    RequestLine line;
    const Pipeline *pipeline;
    Settings settings;   // those of the command line, replaced by those of the request
    int n_logprobs;      // alternatives to report per token; -1: no log-probabilities
    ConstraintSpec spec; // the requested constraint, while the request is parsed
    RequestTools tools;
    Ids prompt;
    Ids *more_prompts; // (n_prompts - 1) those after the first
    int n_prompts;
    InternTable *unknown; // receives the names of unknown fields; NULL: they are ignored
    RecordStart start;
    bool is_plain; // no chat template was used, so the text is not searched for tool calls
    Request request;
    AnswerState *constraint;    // NULL: none
    struct ScoreRequest *score; // of the command score (score_record.h)

    // Generation
    RecordState state;
    Session *session; // NULL unless running
    RecordSchedule schedule;
    Sequence sequence;
    RecordStream stream;

    // Choices
    struct Record *parent; // first record of the request; a parent is its own
    int index;             // of this choice, from 0; a parent has 0
    // In a parent only:
    int n_per_prompt; // choices of each prompt
    int n_choices;    // records of the request
    RecordAnswer answer;
} Record;

// What a command does with requests. Hooks that may be NULL do nothing then.
typedef struct {
    void (*open)(Pipeline *p); // prepares the pipeline; or NULL
    // Parses a request, as record_parse().
    bool (*parse)(Record *r, const Json *root, Str text, Error *err);
    // Creates choice `index` (from 1) of a parsed request.
    Record *(*new_choice)(Record *parent, int index);
    // Takes the result of a finished choice.
    void (*take)(const Record *r);
    // Writes the members of the answer, when all choices have finished.
    void (*write)(JsonWriter *w, const Record *parent);
    // Receives a finished request. NULL: its answer is written to the output.
    void (*deliver)(const Record *r);
    void (*free)(Record *r); // frees what the other hooks have added to a record; or NULL
    const Str *only;         // the only request, as text; its errors end the program. NULL: the
                             // requests are lines of the input
    bool takes_strings;      // a JSON string is a request without an id
    bool has_text;           // text is generated, which the summary describes
} BatchTask;

// Runs all requests and returns the exit code (batch.c). The task must stay valid.
int batch_run(const Options *o, const BatchTask *task);

// batch_request.c

// Creates a record with the settings of the command line.
Record *record_new(long line, RequestForm form, const Pipeline *p);
// Creates choice `index` (from 1) of a parsed request, with a seed of its own.
Record *record_new_choice(Record *parent, int index);
void record_free(Record *r);
// Reads form and id of a request; root NULL: a line of plain text. False with err (exit 1).
bool record_parse_id(Record *r, const Json *root, Error *err);
// Parses the rest of the request; root NULL: `text` is the prompt. False with err (exit 4 if the
// prompt does not fit the context, exit 1 or 2 for any other error).
bool record_parse(Record *r, const Json *root, Str text, Error *err);
// Appends an id as JSON. False unless it is a string or an integer.
bool record_put_id(Buffer *out, const Json *id);
// False with err "NAME: expected X, found Y" (exit 1); found NULL: nothing.
bool record_mismatch(Error *err, const char *name, const char *expected, const Json *found);
// Appends the token ids of an array. False with err (exit 1) if an item is not a token id.
bool record_parse_ids(const Record *r, const char *name, const Json *array, Ids *out, Error *err);
// Parses "logprobs": a boolean, or the number of alternatives per token. False with err (exit 1).
bool record_parse_logprobs(Record *r, const Json *v, Error *err);
// Collects the names of members that are not in `known` (names with spaces between them) for a
// warning. With --strict, false with err (exit 1) at the first of them.
bool record_note_unknown(const Record *r, const Json *object, const char *known, Error *err);
// Renders the "messages" of a request to r->prompt. False with err (exit 1).
bool record_parse_messages(Record *r, const Json *body, Error *err);
// A hash that never changes: FNV-1a with the final mix of MurmurHash3.
uint64_t record_hash(uint64_t seed, Str text);

// batch_answer.c

// The start of every line of output.
#define ANSWER_START "{\"id\":"
#define DELTA_MEMBER "delta" // of lines that are not results
// Begins a line of output with the ids of the request.
JsonWriter record_begin_line(const Record *parent, Buffer *out);
// Parses the text of a finished choice.
void record_parse_reply(const Record *r, Reply *reply);
// Hooks of the command batch.
void record_take(const Record *r);
void record_write(JsonWriter *w, const Record *parent);
// Finishes a record whose sequence has ended. The answer is complete when all choices are.
void record_finish(Record *r, const BatchTask *task);
// Finishes a record with an error, which becomes the answer to the whole request.
void record_fail(Record *r, const char *code, const char *message);
