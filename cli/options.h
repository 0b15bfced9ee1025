// Command-line options: one table that parses arguments, prints help and completions, and serves
// chat's /set and the fields of batch requests.
//
// Entry points: options_default() and options_parse(). All options of all commands are fields of
// one struct, Options. To add one, add a field and a row to the table in options.c.
#pragma once

#include "cli/modules.h"
#include "model/load.h"
#include "generate/sample.h"

#include <limits.h>

enum {
    MAX_LOGPROBS = 100, // alternatives per token; OpenAI's API allows 20
    MAX_OPTIONS = 160   // rows of the option table
};
enum { BUDGET_AUTO = -2 }; // reasoning_budget: leaves a quarter of n_predict for the answer

// The commands that accept an option: bits of Option.commands.
enum {
    CMD_RUN = 1 << 0,
    CMD_CHAT = 1 << 1,
    CMD_BATCH = 1 << 2,
    CMD_SCORE = 1 << 3,
    CMD_TOKENIZE = 1 << 4,
    CMD_LOGITS = 1 << 5,
    CMD_SHOW = 1 << 6,
    CMD_QUANTIZE = 1 << 7,
    CMD_BENCH = 1 << 8,
    CMD_ROPE = 1 << 9,
    CMD_HELP = 1 << 10,
    CMD_ALL = (1 << 11) - 1,
    CMD_SET = 1 << 11,    // chat's /set NAME VALUE
    CMD_REQUEST = 1 << 12 // a field of a batch request
};
// Adds to a set of commands that `help COMMAND` lists the option for them without --all.
#define COMMON(commands) ((unsigned)(commands) | (unsigned)(commands) << 16)

// Values of all options of all commands. A field keeps its default if its option is not given.
typedef struct {
    const char *command; // name of the command, for messages
    unsigned flag;       // CMD_*, its bit
    const char **args;   // (n_args) positional arguments
    int n_args;
    bool is_given[MAX_OPTIONS]; // by the command line, for each row of option_table
    bool wants_help, wants_all, wants_man, wants_version;
    const char *completion; // shell name
    Buffer ignored;         // llama.cpp options without effect, a space before each

    // The model, and how it runs.
    const char *model; // NULL: the built-in model
    int ctx;           // context size in tokens; 0: as needed
    int chunk;         // prompt tokens per forward pass; 0: default
    ModelOptions model_options;
    const char *cache, *cache_size; // prefix cache: directory (NULL or empty: none), size limit
    const char *draft;              // draft model
    bool no_lookup, no_loop_stop;

    // The prompt. A value of system that begins with '@' names a file.
    const char *prompt, *file, *system, *template_name, *tools;
    const char *answer;                                             // its beginning; NULL: none
    bool is_raw, has_special, has_echo, keep_newline, shares_stdin; // see prompt_prepare()

    // Generation.
    int n_choices;             // -N; 0: one
    int n_predict;             // -n; INT_MIN: not given, -1: until the context is full
    int min_tokens;            // tokens before which no stop token or string ends the text
    bool ignore_eos, has_seed; // has_seed: sample.seed was given, not drawn
    SampleOptions sample;
    bool no_model_sampling;
    Str *biases; // (n_biases) "TOKEN+X"; sampling_complete() adds them to sample.bias
    int n_biases;
    Str *stops; // (n_stops)
    int n_stops;
    const char *stop_token_ids;
    Ids stop_ids; // those of stop_token_ids, from sampling_complete()

    // Constraint: at most one of the strings. The first two: a text or, before
    // options_read_files(),
    // '@' and a file.
    const char *json_schema, *grammar, *regex, *constraint_choices;
    bool any_order, extra_properties;

    // Reasoning.
    int thinks;                    // --reasoning: 1 on, -1 off, 0 auto
    int reasoning_budget;          // tokens; INT_MIN: not given, -1: no limit, BUDGET_AUTO
    const char *reasoning_message; // fed before </think> when the budget ends the reasoning
    const char *template_kwargs;   // a JSON object of template variables

    // Output.
    bool is_json, is_quiet, is_verbose;
    const char *sandbox; // NULL: "auto"
    int logprobs;        // alternatives per token
    const char *output;
    bool is_forced; // may overwrite a file

    // Options of single commands: tokenize, logits.
    bool ids_only, count_only, is_jsonl, is_decode, last_only, is_rendered;
    const char *ids, *chat_file;
    // show
    bool show_tensors, is_check, is_verify;
    double bandwidth; // GB/s; 0: measured
    // rope
    int rope_dim;          // --dim; 0: the model's
    const char *positions; // "A..B:STEP"; NULL: no positions
    const char *columns, *compare;
    // batch
    const char *input, *shard;
    bool is_lines, is_ordered, is_resume, is_strict, progress, progress_json;
    int parallel; // maximum concurrent sequences; 0: default
    // score
    const char *choices, *perplexity, *rerank, *instruction;
    bool is_sorted;
    // quantize
    const char *imatrix, *calibrate;
    // chat
    const char *session_file;
    bool show_tokens, keep_going, no_history, is_plain, is_continued, has_commands;
    // bench
    const char *tests, *thread_counts;
    bool is_profile;
} Options;

typedef enum {
    OPTION_FLAG,
    OPTION_INT,
    OPTION_FLOAT,
    OPTION_DOUBLE,
    OPTION_STRING,
    // strings that may name files (cli/privileges.c)
    OPTION_TEXT,      // string; @FILE names a file to read
    OPTION_INPUT,     // file to read, or a name that is none
    OPTION_MODEL,     // GGUF file
    OPTION_OUTPUT,    // file to write, or to read and write
    OPTION_DIRECTORY, // directory to read and write
    OPTION_STRINGS,   // list of Str
    OPTION_LORA,
    OPTION_BUDGET,    // whole number, or "auto"
    OPTION_REASONING, // "on", "off" or "auto", for options_set_think()
    OPTION_SEED
} OptionKind;

// What an option does to an answer, the text or the numbers for a given request. A neutral option
// names requests, outputs or messages, or divides the work: which tokens share a forward pass (-b,
// -np, --cache, --draft) may change last bits, but none with --deterministic.
typedef enum { EFFECT_ANSWER = 1, EFFECT_NEUTRAL } OptionEffect;

// A row of the option table. A row without names is the title of a group of options.
typedef struct {
    const char *names[3]; // NULL after the last
    unsigned commands;    // CMD_* bits, COMMON() for some
    OptionEffect effect;
    OptionKind kind;
    size_t offset;   // of the field in Options
    size_t n_offset; // of the length of a list
    double min, max;
    const char *value, *help; // value: placeholder in help, NULL for a flag
    Module module;            // required module
    const char *key;          // metadata of the model file that is the default, or NULL
} Option;

extern const Option option_table[];
extern const int n_option_rows;

// Options before the command line is parsed. The seed is random.
Options options_default(const char *command, unsigned flag);
// Parses a command line into *o, whose args can hold argc entries. False with err (exit 2).
bool options_parse(Options *o, int argc, char **argv, Error *err);
// Replaces @FILE as the value of --json-schema, --grammar and --ids by the text of the file. Dies
// if it cannot be read.
void options_read_files(Options *o);
// The option of this name, or NULL with err (exit 2; err may be NULL).
const Option *option_find(const Options *o, unsigned command, const char *name, Error *err);
// Sets an option from text; sets an option with a numeric value, or a flag (0: false), from a
// number. `label` names the option in messages. False with err (exit 2).
bool option_set(Options *o, const Option *option, const char *label, const char *text, Error *err);
bool option_set_number(Options *o, const Option *option, const char *label, double v, Error *err);
// Turns reasoning on or off.
void options_set_think(Options *o, bool is_on);
void options_add_bias(Options *o, LogitBias bias);
