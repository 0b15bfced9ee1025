// The verbs: one file per thing users do. Each takes the parsed options and returns an exit code. It is the last thing
// that a process does: what lives as long as the verb is static, and left to the system in the end.
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include "../generate.h"
#include "template.h"
#include "../base/json.h"

// All that the command line can say. Fields keep their default where an option was not given.
typedef struct {
    const char *verb;
    const char **args; // positional arguments
    int n_args;
    bool wants_help;
    // model and machine
    const char *model; // NULL: the built-in model
    int ctx;           // -c; 0: what the job needs
    int chunk;         // --chunk: prefill tokens per forward; 0: default
    ModelOptions model_options;
    // prompt
    const char *prompt, *file, *system, *template_name;
    bool is_raw, has_special, has_echo;
    // generation
    int n_predict; // -n; INT_MIN: not given, -1: until the context is full
    bool ignore_eos, has_seed;
    SampleOptions sample;
    Str *stops;
    int n_stops;
    LogitBias *biases;
    // output
    bool is_json, is_quiet, is_verbose;
    int logprobs;
    const char *output;
    // tokenize, logits
    bool ids_only, count_only, is_jsonl, is_decode, last_only;
    const char *ids, *chat_file;
    // show
    bool show_tensors;
    // rope
    int positions; // --positions N: table rows to print; -1: the frequencies
    // batch
    const char *input;
    bool is_lines, is_ordered, is_resume, is_strict, progress_json;
    int parallel;
    const char *shard;
    // score
    const char *choices, *perplexity;
    // chat
    const char *session_file;
    bool show_tokens, keep_going;
    // bench
    const char *tests;
    bool is_profile;
} Options;

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

// The table of options (verbs/options.c). `verb` is the letter of a verb, S for what chat's /set changes, or J for what
// a request of batch may say.
typedef struct Option Option;

// Reads the command line. False with err (exit 2).
bool options_parse(Options *o, char verb, int argc, char **argv, Error *err);
// The option of this name; NULL, with err (exit 2) if that is wanted, if there is none.
const Option *option_find(const Options *o, char verb, const char *name, Error *err);
// Sets it; `label` is what messages call it. False with err (exit 2).
bool option_set(Options *o, const Option *option, const char *label, const char *text, Error *err);
// What /set changes, as "temp 0.8, top-k 40, ...".
void options_put_settings(const Options *o, Buffer *out);
// The options of a verb on stdout.
void options_print(char verb);

// Shared by the verbs (verbs/common.c).

// The text of -p, -f, the positional arguments (joined by spaces) or stdin, in this order; dies with a usage error if
// there is none and stdin is a terminal. Piped stdin is appended to a given prompt only with `-` in its place.
void prompt_read(const Options *o, Buffer *out);
// Opens model and tokenizer or dies; warns of a -c beyond what the model was made for.
void model_load(const Options *o, Model *m, Tokenizer **t);
// Bytes of memory that can still be had without swapping, or SIZE_MAX where the system does not tell.
size_t memory_available(void);
// Refuses (exit 1, both numbers) a KV cache that the memory at hand cannot hold.
void memory_check(const Model *m, size_t n_positions);
bool memory_fits(const Model *m, size_t n_positions);
// GB of weights that one decode step reads.
double model_decode_gb(const Model *m);
// The chat template of --template or of the file; dies if the file has one that we do not know (--raw: takes none).
Template template_choose(const Options *o, const Gguf *g, const Tokenizer *t);
// A model and what its prompts are put into, for the verbs that generate or score.
typedef struct {
    const Options *options;
    Model model;
    Tokenizer *tokenizer;
    Template tpl;  // of messages
    Str system;    // of -sys (@FILE reads a file); data NULL: none
    uint64_t seed; // of --seed, or from the system's random source
} Engine;

// Opens all that or dies.
void engine_open(Engine *e, const Options *o);
// Tokens of a prompt: a user's message after the system's, or, plain or without a template, the text after BOS.
void prompt_encode(const Engine *e, Str prompt, bool is_plain, Ids *out);
// -n, or as many tokens as are to be generated when nobody says: plain text goes on and on.
int predict_choose(const Options *o, Template tpl, bool is_plain);
// A request as the command line asks for it, its prompt apart.
Request request_make(const Options *o, int n_predict, int context);
// Whether all tokens of --logit-bias are in the vocabulary. False with err.
bool biases_check(const Engine *e, const SampleOptions *s, Error *err);
// Positions a session may reach: -c, or what n_predict tokens (-1: as many as the model likes) after the prompt need.
int context_choose(const Engine *e, int n_prompt, int n_predict);
// Token ids written as text, separated by commas or white space; dies on anything else.
void ids_parse(const char *text, int n_vocab, Ids *out);
// An answer as members of a JSON object: `before` (its brace and name), the text, how it ended, counts and seed.
void answer_put(Buffer *out, const char *before, Str text, const Sequence *s, int n_prompt);
// JSON array of the recorded tokens of a sequence with n_top alternatives each, as OpenAI writes it or with ids.
void logprobs_put(Buffer *out, const Tokenizer *t, const Sequence *s, int n_top, bool is_openai);
// A line (or the several of a text) on stderr unless -q (o NULL: always); dim on a terminal, which nothing in it may
// drive.
void note(const Options *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// "prefill 512 tok 91.2 tok/s | decode 128 tok 4.6 tok/s 22.1 GB/s | seed 42" on stderr.
void stats_print(const Options *o, const Generator *g, uint64_t seed);
// Writes to a file, or flushes stdio's stdout. A closed pipe ends the program quietly, any other error with exit 1.
void output_write(int fd, const char *path, const void *data, size_t n);
void stdout_flush(void);
// Writes text to stdout by the same rules, control bytes escaped when it is a terminal.
void text_write(const char *text, size_t n);
// Writes a buffer so, and frees it.
void text_print(Buffer *text);
// text_write as Request.emit.
bool text_emit(void *arg, const char *text, size_t n);
// A file read line by line. Memory is bounded by `limit`, whatever the file holds.
typedef struct {
    const char *path;
    int fd;
    size_t limit;    // bytes of the longest line that is handed out whole
    long number;     // of the line handed out last, from 1
    uint64_t offset; // of the byte after it
    bool is_whole;   // it ended with a newline
    char *data;      // [begin, end) is read and not handed out; no newline before `scanned`
    size_t begin, end, scanned, cap;
    bool at_end, is_long;
} LineReader;
typedef enum { LINE_NONE, LINE_READY, LINE_LONG, LINE_END } LineState;

// Opens a file (NULL or "-": stdin) or dies.
void lines_open(LineReader *l, const char *path, size_t limit);
// The next line without its newline, valid until the next call. LINE_LONG gives the head of one over the limit;
// LINE_NONE: an interrupt, or nothing there yet and may_wait is false. Dies when reading fails.
LineState lines_next(LineReader *l, Str *line, bool may_wait);
// Without the byte order mark that some editors put in front of a text.
Str skip_mark(Str text);
// Whether there is only white space.
bool is_blank(Str line);
// The next line that is not blank, as JSON: LINE_READY, or LINE_NONE (not may_wait) or LINE_END. Exits on an interrupt,
// dies if the line is too long or no JSON.
LineState lines_next_json(LineReader *l, JsonDoc *doc, bool may_wait);

#endif
