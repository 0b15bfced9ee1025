// A request of score: a line of JSON in, log-probabilities out.
//
//     {"context", "continuation"}            -> {"logprob", "n_tokens", ..., "is_greedy"}
//     {"context", "choices": [...]}          -> {"choices": [...], "best", "best_per_token", ...}
//     {"prompt" | "messages", "choices"}     -> the same, after the chat template
//     {"text"}                               -> {"logprob", ...}: all tokens of the text
//     {"text"} with --rerank QUERY           -> {"score", "logprob_yes", "logprob_no"}
//
// A request has one item for each choice, or for each window of a text. Each item is a Record, so
// the scheduler of batch.c runs them as it runs the choices of a completion: items that share a
// prefix compute it once.
//
// Encoding follows lm-evaluation-harness (TemplateLM._encode_pair, get_rolling_token_windows).
#pragma once

#include "cli/commands/batch_record.h"

typedef struct {
    Ids ids;          // all but the last are fed; owned by the item's Record once it has begun
    int first_scored; // index of the first scored id
    Str text;         // of a choice; owned
    size_t n_bytes, n_chars;
    // Result
    int n_tokens;   // scored tokens
    double logprob; // their sum, in nats
    bool is_greedy; // each of them is the most likely token
} ScoreItem;

typedef struct ScoreRequest {
    ScoreItem *items; // (n_items)
    int n_items;
    bool has_choices; // items are choices; otherwise windows of a text
    bool is_whole;    // the context is refused, not truncated, if it is too long
} ScoreRequest;

// score_request.c

// Parses a request; root NULL: `text` is the prompt of score --choices. False with err (exit 4 if a
// continuation does not fit the context, exit 1 or 2 for any other error).
bool score_record_parse(Record *r, const Json *root, Str text, Error *err);
// Sets the request to choices (n) after tokens, which are refused if they do not fit the context.
bool score_record_set(Record *r, const Ids *context, const Str *texts, int n, Error *err);
// Creates the record of item `index` (from 1) of a parsed request.
Record *score_record_item(Record *parent, int index);
void score_record_free(Record *r);

// score_answer.c

// Takes the result of a finished item.
void score_record_take(const Record *r);
// The probability of an item relative to all items of the request.
double score_share(const ScoreRequest *score, const ScoreItem *item);
// Writes the members of the answer, when all items have finished.
void score_record_write(JsonWriter *w, const Record *parent);
// Appends the answer as a table: a line per choice, in which the best is marked.
void score_record_put_table(Buffer *out, const Record *parent);

// score_rerank.c: hooks for the scheduler (BatchTask)

// Reserves the special tokens of the reranking template.
void score_rerank_open(Pipeline *p);
// Parses a document, a JSON string or the "text" of an object. False with err as above.
bool score_rerank_parse(Record *r, const Json *root, Str text, Error *err);
// Keeps the answer to a document.
void score_rerank_collect(const Record *r);
// Prints the kept answers, the most relevant documents first.
void score_rerank_print(void);
