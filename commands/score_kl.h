// score --kl: the Kullback-Leibler divergence of the model's token probabilities from a reference,
// which is another model or a file of logits.
#pragma once

#include "../base/json.h"
#include "../cli/open_model.h"

typedef struct {
    int n_vocab;
    // A reference model, which is fed the same tokens
    Model model;
    Workspace *workspace; // NULL: a file of logits
    const float *rows;    // logits of the current pass that are not compared yet
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
// Compares logits (n_vocab) with the next row of the reference model, or with row `pos` of the
// file.
void kl_compare(KlReference *r, int pos, const float *logits);
// Writes the result: the member "kl" of a JSON object, or a line of text. Sorts the divergences.
void kl_report(KlReference *r, JsonWriter *w, bool is_json);
