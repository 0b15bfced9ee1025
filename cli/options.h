// Command-line options: one table that parses arguments, prints help and completions, and serves
// chat's /set and the fields of batch requests.
//
// Entry points: options_default() and options_parse(). Options holds what was typed, for all
// commands, in groups by subject; what it means for a request and a model is a Settings
// (resolve.h). To add an option, add a field to a group and a row to the table in options.c.
#pragma once

#include "cli/modules.h"
#include "cli/settings.h"
#include "model/load.h"

enum {
    MAX_LOGPROBS = 100, // alternatives per token; OpenAI's API allows 20
    MAX_OPTIONS = 160   // rows of the option table
};

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

// The model, and how it runs.
typedef struct {
    const char *path; // NULL: the built-in model
    int ctx;          // context size in tokens; 0: as needed
    int chunk;        // prompt tokens per forward pass; 0: default
    ModelOptions load;
    const char *cache, *cache_size; // prefix cache: directory (NULL or empty: none), size limit
    const char *draft;              // draft model
    bool no_lookup;
    bool no_sampling; // the sampling defaults of the file are ignored
} ModelArgs;

// The parts of the prompt. A value of system that begins with '@' names a file.
typedef struct {
    const char *text, *file, *system, *template_name, *tools;
    const char *answer; // its beginning; NULL: none
    bool is_raw, has_special, keep_newline;
    bool is_jsonl;     // lines are JSON
    bool shares_stdin; // see prompt_prepare()
} PromptArgs;

// Settings that need a file or the model: settings_resolve() reads them. At most one of the
// constraints is given.
typedef struct {
    Str *biases; // (n_biases) "TOKEN+X"
    int n_biases;
    const char *stop_token_ids;
    const char *template_kwargs;                 // a JSON object of template variables
    const char *json_schema, *grammar, *choices; // a text, or '@' and a file
    const char *regex;
} TextArgs;

typedef struct {
    const char *path;
    bool is_forced; // may overwrite a file
    bool is_json;
    bool is_whole; // --no-stream
    const char *reasoning_format;
    int n_choices; // -N; 0: one
} OutputArgs;

typedef struct {
    bool wants_usage, wants_all, wants_man, wants_version;
    const char *completion; // shell name
} HelpArgs;

typedef struct {
    bool ids_only, count_only, is_decode, is_rendered;
    const char *chat_file;
} TokenizeArgs;

typedef struct {
    const char *ids; // a text, or '@' and a file
    bool last_only;
} LogitsArgs;

typedef struct {
    bool lists_tensors, is_check, is_verify;
    double bandwidth; // GB/s; 0: measured
} ShowArgs;

typedef struct {
    int dim;               // 0: the model's
    const char *positions; // "A..B:STEP"; NULL: no positions
    const char *columns, *compare;
} RopeArgs;

// Of batch and score.
typedef struct {
    const char *input, *shard;
    bool is_lines, is_ordered, is_resume, retries_failed, is_strict;
    bool has_progress, has_progress_json;
    bool is_check;
    const char *speed; // "P,D": tokens/s of prefill and of generation; NULL: unknown
    int parallel;      // maximum concurrent sequences; 0: default
} BatchArgs;

typedef struct {
    const char *choices, *perplexity, *rerank, *instruction;
    bool is_sorted;
} ScoreArgs;

typedef struct {
    const char *imatrix, *calibrate;
} QuantizeArgs;

typedef struct {
    const char *session_file;
    int continued; // --continue: number of the chat in --list; 0: none
    bool lists, show_tokens, keep_going, no_history, is_plain, has_commands;
} ChatArgs;

typedef struct {
    const char *tests, *thread_counts;
    int n_rounds; // 0: default
    bool is_profile;
} BenchArgs;

// The options of a command line. A field keeps its default if its option is not given.
typedef struct {
    const char *command; // name of the command, for messages
    unsigned flag;       // CMD_*, its bit
    const char **args;   // (n_args) positional arguments
    int n_args;
    bool is_given[MAX_OPTIONS]; // by the command line, for each row of option_table
    Buffer ignored;             // llama.cpp options without effect, a space before each
    bool is_quiet, is_verbose;
    const char *sandbox; // NULL: "auto"

    ModelArgs model;
    PromptArgs prompt;
    Settings settings; // what needs neither file nor model
    TextArgs text;
    OutputArgs output;
    HelpArgs help;

    // Of single commands
    TokenizeArgs tokenize;
    LogitsArgs logits;
    ShowArgs show;
    RopeArgs rope;
    BatchArgs batch;
    ScoreArgs score;
    QuantizeArgs quantize;
    ChatArgs chat;
    BenchArgs bench;
} Options;

typedef enum {
    OPTION_FLAG,
    OPTION_INT,
    OPTION_FLOAT,
    OPTION_DOUBLE,
    OPTION_STRING,
    // strings that may name files (cli/privileges.c)
    OPTION_TEXT,      // string; @FILE names a file to read
    OPTION_INPUT,     // file to read, or a name that is no file
    OPTION_MODEL,     // GGUF file
    OPTION_OUTPUT,    // file to write, or to read and write
    OPTION_DIRECTORY, // directory to read and write
    OPTION_STRINGS,   // list of Str
    OPTION_LORA,
    OPTION_BUDGET,    // whole number, or "auto"
    OPTION_REASONING, // "on", "off" or "auto", for settings_think()
    OPTION_SAMPLERS,  // names for samplers_parse()
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
    size_t offset;   // of the field in Options; also for a setting
    size_t n_offset; // of the length of a list
    double min, max;
    const char *value, *help; // value: placeholder in help, NULL for a flag. "[N]": a number; 1 if
                              // the next argument is not a number
    Module module;            // required module
    const char *key;          // metadata of the model file that is the default, or NULL
} Option;

extern const Option option_table[];
extern const int n_option_rows;

// Options before the command line is parsed. The seed is random.
Options options_default(const char *command, unsigned flag);
// Parses a command line into *o, whose args can hold argc entries. False with err (exit 2).
bool options_parse(Options *o, int argc, char **argv, Error *err);
// The option of this name, or NULL with err (exit 2; err may be NULL, then o too).
const Option *option_find(const Options *o, unsigned command, const char *name, Error *err);
// The field of an option: in *s if it is a setting (all options of CMD_SET and CMD_REQUEST are),
// otherwise in *o.
void *option_field(const Option *option, const Options *o, const Settings *s);
// Sets an option from text. `label` names the option in messages. False with err (exit 2).
bool option_set(Options *o, const Option *option, const char *label, const char *text, Error *err);
// The same for a setting. The second form sets one with a numeric value, or a flag (0: false).
bool setting_set(Settings *s, const Option *option, const char *label, const char *text,
                 Error *err);
bool setting_set_number(Settings *s, const Option *option, const char *label, double v, Error *err);
