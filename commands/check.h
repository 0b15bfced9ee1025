// Every weight of a file, read and hashed.
#ifndef COMMANDS_CHECK_H
#define COMMANDS_CHECK_H

#include "../base/checksum.h"

// Reads all tensors: the checksum, and whether all weights are finite (types that this program
// cannot compute with are only hashed). False with err (exit 3: tensor and row).
bool weights_check(const Gguf *g, int n_threads, char checksum[2 * BLAKE2B_BYTES + 1], Error *err);
// Compares it with the one that the file stores. False with err (exit 3).
bool checksum_verify(const Gguf *g, const char *checksum, Error *err);

#endif
