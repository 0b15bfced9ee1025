// score --kl: the Kullback-Leibler divergence of the model's token probabilities from a reference,
// which is another model or a file of logits.
#pragma once

#include "base/json.h"
#include "cli/open_model.h"
#include "generate/generate.h"

typedef struct {
    int n_vocab;
    // A reference model, which is fed the same tokens
    Model model;
    Workspace *workspace; // NULL: a file of logits
    // A file of logits (n_rows, n_vocab)
    const char *path;
    int fd, n_rows;
    float *row; // (n_vocab) the row read last
    // Results
    double *divergences; // (n) in nats, one per position
    int n, n_agreed;     // n_agreed: positions at which both have the same most likely token
} KlReference;

// Opens the file of --kl for a model that feeds up to `chunk` tokens and computes max_rows rows of
// logits per pass. Dies if the vocabulary differs.
void kl_open(KlReference *r, const Options *o, const Model *m, int chunk, int max_rows);
// Compares the last forward pass of sequences (n) with the rows of the file, or with a pass of the
// reference model over the same tokens. Request.arg is then its session for a sequence.
void kl_compare(KlReference *r, const Generator *g, Sequence *const *sequences, int n);
// Writes the result: the member "kl" of a JSON object, or a line of text. Sorts the divergences.
void kl_report(KlReference *r, JsonWriter *w, bool is_json);
