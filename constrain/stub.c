// Replaces constrain/ in a program built with WITHOUT=constrain. No constraint can be compiled: the
// option table refuses the options, and constraint_compile() the fields of batch records.
#include "constrain/constraint.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

ConstraintCache *constraint_cache_new(const Tokenizer *t) { return NULL; }

bool constraint_compile(ConstraintCache *cache, const ConstraintSpec *spec,
                        CompiledConstraint **out, Error *err) {
    *out = NULL;
    bool is_none = spec->kind == CONSTRAINT_NONE && !spec->calls.tools.len;
    return is_none ||
           error_set(err, EXIT_USAGE,
                     "this build has no constrained generation (built with WITHOUT=constrain)");
}

CompiledConstraint *constraint_retain(CompiledConstraint *c) { return NULL; }
void constraint_release(CompiledConstraint *c) {}
Matcher *matcher_copy(Matcher *m) { return NULL; }
void matcher_free(Matcher *m) {}

// Neither a CompiledConstraint nor a Matcher exists, so the following functions are never called.
Matcher *constraint_begin(const CompiledConstraint *c) { return NULL; }
bool constraint_check(const CompiledConstraint *c, Str text, Error *err) { return true; }
double constraint_compile_sec(const CompiledConstraint *c) { return 0; }
const ConstraintNotes *constraint_notes(const CompiledConstraint *c) { return NULL; }
SchemaValidator *validator_new(Str schema, Error *err) { return NULL; }
void validator_free(SchemaValidator *v) {}
void validator_make_strict(SchemaValidator *v) {}
bool validator_check(SchemaValidator *v, Str text, Error *err) { return true; }
const uint64_t *matcher_mask(Matcher *m, bool skips_space) { return NULL; }
bool matcher_is_end(const Matcher *m) { return true; }
bool matcher_is_done(Matcher *m) { return true; }
size_t matcher_accept(Matcher *m, Str bytes) { return 0; }
Str matcher_tag(const Matcher *m) { return (Str){0}; }
void matcher_forced(const Matcher *m, Buffer *out) {}
