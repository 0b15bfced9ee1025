// The verbs: one file per thing users do. Each takes the parsed options and returns an exit code. It is the last thing
// that a process does: what lives as long as the verb is static, and left to the system in the end.
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include "../cli/options.h"

int verb_run(const Options *o);
int verb_chat(const Options *o);
int verb_batch(const Options *o);
int verb_score(const Options *o);
int verb_tokenize(const Options *o);
int verb_logits(const Options *o);
int verb_show(const Options *o);
int verb_quantize(const Options *o);
int verb_bench(const Options *o);
int verb_rope(const Options *o);

#endif
