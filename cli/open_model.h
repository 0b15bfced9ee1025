// Opens a model with everything that prompts need: tokenizer, chat template, system prompt, tools.
//
// Entry point: pipeline_open(). Commands without prompts use model_open_or_die(). Failures here are
// the user's to fix, so these functions print one line and end the program.
#pragma once

#include "cli/options.h"
#include "chat/template.h"
#include "constrain/constraint.h"
#include "tokenizer.h"
#include "base/intern.h"

// Immutable once open, except for the constraint cache, the notes, the seed that batch takes over,
// and the context size that chat chooses.
typedef struct {
    const Options *options;
    Settings settings; // of the command line; a request may have others
    int ctx;           // context size in tokens; 0: as each prompt needs
    Model model;
    Tokenizer *tokenizer;
    Template tpl;
    Str system; // system prompt; data NULL: none
    Str tools;  // JSON array; data NULL: none
    ConstraintCache *constraints;
    InternTable *noted; // texts of the notes that are printed once
} Pipeline;

void pipeline_open(Pipeline *p, const Options *o);
// Opens model and tokenizer. Warns if -c exceeds the context size that the model was trained for.
void model_open_or_die(const Options *o, Model *m, Tokenizer **t);
// The chat template of --template or of the model file, with the variables of
// --chat-template-kwargs.
void template_from_options(const Options *o, const Gguf *g, Tokenizer *t, Template *out);
// Notes special tokens of the file's template that the vocabulary lacks.
void template_note_missing(const Options *o, const Template *tpl);
