// score --kl: how far the model's probabilities are from those of a reference.
#ifndef COMMANDS_SCORE_KL_H
#define COMMANDS_SCORE_KL_H

#include "../cli/open_model.h"

// A model that is fed the same tokens, or the logits of `logits`, and what came of the comparison.
typedef struct {
    Model model;
    Workspace *workspace; // NULL: a file of logits
    const float *rows;    // the model's logits that were not compared yet
    const char *path;     // of the logits, (n_rows, n_vocab)
    int fd, n_vocab, n_rows;
    float *row;
    double *divergences;     // (n) in nats, one for each position
    size_t n, cap, n_agreed; // both have the same best token
} Reference;

// Opens the file of --kl for a model that feeds up to `chunk` tokens at once and takes the logits
// of `most`; dies if its vocabulary is another.
void reference_open(Reference *r, const Options *o, const Model *m, int chunk, int most);
// Compares logits (n_vocab) with the reference's of that position (of a file), or the next (of a
// model).
void reference_compare(Reference *r, int pos, const float *logits);
// Adds the result, as a line or as a member of a JSON object.
void reference_put(Reference *r, bool is_json, Buffer *out);

#endif
