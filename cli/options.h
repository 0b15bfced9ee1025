// The options: what a command line can say, read by one table that also prints the help and serves
// chat's /set.
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "../model_load.h"
#include "../sample.h"

enum {
    MAX_LOGPROBS = 100
}; // alternatives of a token that may be asked for: five times what OpenAI gives

// All that the command line can say. Fields keep their default where an option was not given.
typedef struct {
    const char *command;
    const char **args; // positional arguments
    int n_args;
    bool wants_help, wants_man;
    const char *completion; // a shell
    Buffer ignored;         // llama.cpp's options that change nothing here, each after a space
    // model and machine
    const char *model; // NULL: the built-in model
    int ctx;           // -c; 0: what the job needs
    int chunk;         // --chunk: prefill tokens per forward; 0: default
    ModelOptions model_options;
    // reuse
    bool no_lookup, is_verify, is_empty;
    const char *cache, *cache_size, *draft;
    // prompt
    const char *prompt, *file, *system, *template_name, *tools;
    Str *template_vars; // (n_template_vars)
    int n_template_vars;
    bool is_raw, has_special, has_echo, keep_newline;
    // generation
    int n_choices;             // -N
    int n_predict;             // -n; INT_MIN: not given, -1: until the context is full
    bool ignore_eos, has_seed; // sample.seed was given, not drawn
    SampleOptions sample;
    Str *stops;
    int n_stops;
    LogitBias *biases;
    // constraint
    const char *json_schema, *grammar, *regex, *only; // only: --choices of run
    bool is_ordered_json, may_think, has_stats;
    // output
    bool is_json, is_quiet, is_verbose, no_sandbox;
    int logprobs;
    const char *output;
    bool is_forced; // may replace a file
    // tokenize, logits
    bool ids_only, count_only, is_jsonl, is_decode, last_only;
    const char *ids, *chat_file;
    bool is_rendered;
    // show
    bool show_tensors, is_check;
    double bandwidth; // --bandwidth in GB/s; 0: measured
    // rope
    int rope_dim;          // --dim; 0: what the model has
    const char *positions; // A..B:STEP; NULL: no positions
    const char *columns, *rotate, *compare;
    bool has_decay;
    // batch
    const char *input;
    bool is_lines, is_ordered, is_resume, is_strict, progress_json;
    int parallel;
    const char *shard;
    // score
    const char *choices, *perplexity, *kl;
    // quantize
    const char *imatrix, *calibrate;
    // chat
    const char *session_file;
    bool show_tokens, keep_going, no_history;
    // bench
    const char *tests;
    bool is_profile, is_sweep;
} Options;

// The table of options (cli/options.c). `command` is the letter of a command, S for what chat's
// /set changes, or J for what a request of batch may say.
typedef struct Option Option;

// What stands where the command line says nothing; a seed is drawn.
Options options_default(const char *command);
// Reads the command line. False with err (exit 2).
bool options_parse(Options *o, char command, int argc, char **argv, Error *err);
// The option of this name; NULL, with err (exit 2) if that is wanted, if there is none.
const Option *option_find(const Options *o, char command, const char *name, Error *err);
// Sets it; `label` is what messages call it. False with err (exit 2).
bool option_set(Options *o, const Option *option, const char *label, const char *text, Error *err);
// The same from a number or a truth value, for requests in JSON.
bool option_set_number(Options *o, const Option *option, const char *label, double v, Error *err);
bool option_set_flag(Options *o, const Option *option, const char *label, bool v, Error *err);
void options_add_bias(Options *o, int id, float bias);
// What /set changes, as "temp 0.8, top-k 40, ...".
void options_put_settings(const Options *o, Buffer *out);
// A row of the table as help shows it: names (at most 3, NULL after the last), letters of commands,
// what the value is (NULL: none). A row without names begins a group, which `help` names. False
// after the last.
typedef struct {
    const char *const *names;
    const char *commands, *value, *help;
} OptionText;
bool option_text(int i, OptionText *out);

#endif
