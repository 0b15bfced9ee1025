// The part of the input that one of several processes completes: --shard K/N.
//
// Two rules divide the requests. Both read each line once, in order, and depend on earlier lines
// only, so that appended lines change nothing:
//
//     lines   every N-th line
//     prefix  requests with a long common beginning go to one shard, as far as the numbers of
//             requests stay similar
//
// Outputs name shard and rule in their identity: "2/8" (lines), "2/8:prefix".
#pragma once

#include "base/intern.h"
#include "base/json.h"

enum { MAX_SHARDS = 4096, SHARD_TEXT = 64 };

typedef struct {
    long k, n;          // from 1; 1 of 1: the whole input
    bool by_lines;      // the rule
    bool has_rule;      // it was typed
    long *n_requests;   // (n) requests of each shard so far
    long n_total;       // their sum
    InternTable known;  // hashes of beginnings of requests
    uint64_t *shard_of; // (known.n) a set of shards for each: bit k % 64
} Shard;

// Parses "K/N", "K/N:lines" or "K/N:prefix". False if it is invalid.
bool shard_parse(Shard *s, const char *text);
// Writes the text of a shard; "" for 1 of 1. Without a rule in an old output, the rule is `lines`.
void shard_put(const Shard *s, char text[SHARD_TEXT]);
// Assigns the next request to a shard. True if it is this one. `text`: see shard_put_beginning().
bool shard_takes(Shard *s, long line, Str text);
// Begins again with the first line.
void shard_restart(Shard *s);
// Appends what decides on the shard of a request: its tools and its prompt as JSON, the line itself
// for root NULL.
void shard_put_beginning(const Json *root, Str line, Buffer *out);
