// Replaces constrain/ in a program built with WITHOUT=constrain. Only the empty constraint exists:
// the option table refuses the options, and constraint_new() the fields of batch records.
#include "constraint.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

ConstraintCache *constraint_cache_new(const Tokenizer *t) { return NULL; }

bool constraint_new(ConstraintCache *cache, const ConstraintSpec *spec, ConstraintState **out,
                    Buffer *unknown, Error *err) {
    *out = NULL;
    if (!spec->schema && !spec->schema_text.data && !spec->grammar.data && !spec->regex.data &&
        !spec->n_choices && !spec->has_budget)
        return true;
    return error_set(
        err, EXIT_USAGE,
        "this build has no constrained generation and no reasoning budgets (built with "
        "WITHOUT=constrain)");
}

// No ConstraintState exists, so the following functions are never called with one.
ConstraintState *constraint_clone(const ConstraintState *g) { return NULL; }
void constraint_free(ConstraintState *g) {}
void constraint_attach(ConstraintState *g, Request *r) {}
bool constraint_may_think(const ConstraintState *g) { return false; }
bool constraint_is_complete(const ConstraintState *g) { return true; }
bool constraint_matches(const ConstraintState *g, Str text) { return true; }
void constraint_spell_out(Buffer *out, Str text, size_t *at) {}
const uint64_t *constraint_mask(ConstraintState *g) { return NULL; }
bool constraint_accept(ConstraintState *g, int token, size_t *n_accepted) {
    *n_accepted = 0;
    return false;
}
double constraint_compile_sec(const ConstraintState *g) { return 0; }
