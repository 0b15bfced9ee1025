// The options: one table for the command line, its help and chat's /set.
#include "options.h"
#include "spellings.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum {
    FLAG,
    INT,
    FLOAT,
    DOUBLE,
    INVERSE,
    STRING,
    SEED,
    STOP,
    VARIABLE,
    BIAS,
    ADAPTER
} OptionKind; // INVERSE: 1 / a DOUBLE

struct Option {
    const char *names[3];
    const char *commands; // letters, see commands.h
    OptionKind kind;
    size_t offset; // into Options
    double min, max;
    const char *value, *help;
};

#define AT(field)     offsetof(Options, field)
#define ALL_VERBS     "rcbstlwnoqhk"
#define MODEL_VERBS   "rcbstlwnoq"
#define FORWARD_VERBS "rcbslwn"
#define TEXT_VERBS    "rcb"
#define SAMPLE_VERBS  "rcbSJ"
#define GROUP(title)                                                                               \
    { .commands = ALL_VERBS, .help = title } // of the options that follow

// clang-format off
static const Option options[] = {
    GROUP("Model, prompt and length"),
    {{"-m", "--model"}, "rcbstlwno", STRING, AT(model), 0, 0, "FILE",
     "model, a GGUF file (default $LLAMA31_MODEL, else the built-in story model)"},
    {{"-p", "--prompt"}, "rst", STRING, AT(prompt), 0, 0, "TEXT", "the prompt"},
    {{"-f", "--file"}, "rst", STRING, AT(file), 0, 0, "FILE", "read it from a file; - is stdin"},
    {{"-n", "--n-predict", "--predict"}, SAMPLE_VERBS, INT, AT(n_predict), -1, 1e9, "N",
     "most tokens to generate; -1: until the model stops (default, but 256 for plain text)"},
    {{"-c", "--ctx-size", "--context"}, "rcbslw", INT, AT(ctx), 0, MAX_CONTEXT, "N",
     "positions of context (default 0: what the job needs)"},
    {{"-t", "--threads"}, MODEL_VERBS, INT, AT(model_options.n_threads), 1, 1024, "N",
     "threads (default all cores that the process may use)"},
    {{"-b", "--chunk"}, "rcbsln", INT, AT(chunk), 1, 65536, "N", "prompt tokens per forward pass (default 512; chat 256)"},
    {{"--kv"}, FORWARD_VERBS, STRING, AT(model_options.kv_type), 0, 0, "TYPE", "KV cache: f32, f16 or q8_0 (default f16)"},
    {{"--lora"}, FORWARD_VERBS, ADAPTER, AT(model_options.adapters), 0, 0, "FILE[:SCALE]",
     "add a LoRA adapter (GGUF), SCALE times (default 1); repeatable"},
    {{"--deterministic"}, "rcbsln", FLAG, AT(model_options.is_invariant), 0, 0, NULL,
     "same bits alone or in a batch, for any chunk"},
    {{"--cache"}, "rcbs", STRING, AT(cache), 0, 0, "DIR",
     "keep what prompts compute in this folder, and take it from there (default $LLAMA31_CACHE, else none)"},
    {{"--cache-size"}, "rcbs", STRING, AT(cache_size), 0, 0, "SIZE", "most it may take: 500M, 20G ... (default 8G)"},
    {{"--verify"}, "k", FLAG, AT(is_verify), 0, 0, NULL, "read every file and remove what is damaged"},
    {{"--empty"}, "k", FLAG, AT(is_empty), 0, 0, NULL, "remove all files of the cache"},
    {{"--draft"}, TEXT_VERBS, STRING, AT(draft), 0, 0, "FILE",
     "a smaller model of the same vocabulary that guesses tokens"},
    {{"--no-lookup"}, TEXT_VERBS, FLAG, AT(no_lookup), 0, 0, NULL,
     "never guess tokens from what the text repeats (which saves time, and changes nothing else)"},
    GROUP("Sampling"),
    {{"-s", "--seed"}, SAMPLE_VERBS, SEED, AT(sample.seed), 0, 0, "N", "seed (default -1: random, and printed)"},
    {{"--temp", "--temperature"}, SAMPLE_VERBS, FLOAT, AT(sample.temp), 0, 100, "T",
     "temperature; 0 is greedy (default 0.8)"},
    {{"--top-k"}, SAMPLE_VERBS, INT, AT(sample.top_k), -1, 1e9, "K", "keep the K best; 0 or -1: all (default 40)"},
    {{"--top-p"}, SAMPLE_VERBS, FLOAT, AT(sample.top_p), 0, 1, "P",
     "keep the best that hold probability P (default 0.95)"},
    {{"--min-p"}, SAMPLE_VERBS, FLOAT, AT(sample.min_p), 0, 1, "P", "keep those above P times the best (default 0.05)"},
    {{"--repeat-penalty"}, SAMPLE_VERBS, FLOAT, AT(sample.repeat_penalty), 0.01, 100, "X", "divide the logits of what was said; 1 is off (default 1)"},
    {{"--repeat-last-n"}, SAMPLE_VERBS, INT, AT(sample.repeat_last_n), -1, 1e9, "N",
     "tokens the penalties look at; -1: all (default 64)"},
    {{"--presence-penalty"}, SAMPLE_VERBS, FLOAT, AT(sample.presence_penalty), -100, 100, "X", "take X from them (default 0)"},
    {{"--frequency-penalty"}, SAMPLE_VERBS, FLOAT, AT(sample.frequency_penalty), -100, 100, "X",
     "take X from them each time (default 0)"},
    {{"--logit-bias"}, TEXT_VERBS, BIAS, AT(biases), 0, 0, "ID+X",
     "add X (or subtract: ID-X) to a token's logit; repeatable"},
    GROUP("Text"),
    {{"-r", "--reverse-prompt", "--stop"}, TEXT_VERBS, STOP, AT(stops), 0, 0, "TEXT",
     "end the text here; repeatable, never printed"},
    {{"--ignore-eos"}, "rcbJ", FLAG, AT(ignore_eos), 0, 0, NULL, "go on after an end-of-text token"},
    {{"-sys", "--system-prompt", "--system"}, "rcbs", STRING, AT(system), 0, 0, "TEXT",
     "system prompt; @FILE reads a file"},
    {{"--template"}, "rcbst", STRING, AT(template_name), 0, 0, "NAME",
     "FILE.jinja, or llama3, llama3.1, llama2, chatml, zephyr, mistral, vicuna, alpaca, none (default: the file's)"},
    {{"--template-var"}, "rcbst", VARIABLE, AT(template_vars), 0, 0, "NAME=JSON",
     "a variable of the template, such as enable_thinking=false; repeatable"},
    {{"--tools"}, "rcb", STRING, AT(tools), 0, 0, "FILE", "functions that the model may call: the JSON array of the API"},
    {{"--rendered"}, "t", FLAG, AT(is_rendered), 0, 0, NULL, "with --chat: the text that the template makes, not its ids"},
    {{"--raw"}, "rbs", FLAG, AT(is_raw), 0, 0, NULL, "complete the prompt as it is, without a chat template"},
    {{"--special"}, "rt", FLAG, AT(has_special), 0, 0, NULL, "control tokens written in the text count (run: with --raw)"},
    {{"--keep-newline"}, "rcs", FLAG, AT(keep_newline), 0, 0, NULL, "a final newline of a file or of stdin is text too"},
    {{"-N"}, "r", INT, AT(n_choices), 1, 64, "N", "answers from one reading of the prompt (default 1)"},
    {{"--echo"}, "r", FLAG, AT(has_echo), 0, 0, NULL, "print the prompt first"},
    GROUP("Input and output"),
    {{"--json"}, "rcswno", FLAG, AT(is_json), 0, 0, NULL, "machine-readable result on stdout"},
    {{"--logprobs"}, "r", INT, AT(logprobs), 0, MAX_LOGPROBS, "N", "with --json: the N best alternatives of every token"},
    {{"-o", "--output"}, "bl", STRING, AT(output), 0, 0, "FILE", "where the result goes; - is stdout"},
    {{"--force"}, "lqb", FLAG, AT(is_forced), 0, 0, NULL, "replace a file that is there"},
    {{"--ids"}, "ls", STRING, AT(ids), 0, 0, "LIST", "tokens; @FILE reads them"},
    {{"--ids"}, "t", FLAG, AT(ids_only), 0, 0, NULL, "print only the ids"},
    {{"--count"}, "t", FLAG, AT(count_only), 0, 0, NULL, "print only the number of tokens"},
    {{"--jsonl"}, "ts", FLAG, AT(is_jsonl), 0, 0, NULL, "JSON lines in and out"},
    {{"--decode"}, "t", FLAG, AT(is_decode), 0, 0, NULL, "ids in, bytes out"},
    {{"--chat"}, "t", STRING, AT(chat_file), 0, 0, "FILE", "ids of a dialogue: {\"role\",\"content\"} a line"},
    {{"--stats"}, "t", FLAG, AT(has_stats), 0, 0, NULL, "with a constraint: times as a last JSON line"},
    {{"--last"}, "l", FLAG, AT(last_only), 0, 0, NULL, "only the last position"},
    {{"--tensors"}, "w", FLAG, AT(show_tensors), 0, 0, NULL, "list the tensors"},
    {{"--bandwidth"}, "w", DOUBLE, AT(bandwidth), 0.01, 1e6, "GB/S", "the memory's, for the speed to expect (default measured)"},
    {{"--check"}, "w", FLAG, AT(is_check), 0, 0, NULL, "read every weight: all finite? and their checksum"},
    {{"--verify"}, "w", FLAG, AT(is_verify), 0, 0, NULL, "the same, compared with the checksum that the file stores"},
    GROUP("Constraint"),
    {{"--json-schema"}, "rbt", STRING, AT(json_schema), 0, 0, "S", "the text is JSON of this schema; @FILE reads it"},
    {{"--ordered-properties"}, "rbtJ", FLAG, AT(is_ordered_json), 0, 0, NULL, "properties come in the schema's order"},
    {{"--grammar"}, "rbt", STRING, AT(grammar), 0, 0, "FILE", "the text fits a grammar (GBNF)"},
    {{"--regex"}, "rbt", STRING, AT(regex), 0, 0, "RE", "the text matches a regular expression"},
    {{"--choices"}, "rb", STRING, AT(only), 0, 0, "A,B,...", "the text is one of these"},
    {{"--think"}, "rbJ", FLAG, AT(may_think), 0, 0, NULL, "a part <think>...</think> may come first, of any text"},
    GROUP("Rotary embedding"),
    {{"--rope-scaling"}, "rcbslno", STRING, AT(model_options.rope_rule), 0, 0, "RULE",
     "scaling: none, linear, ntk, dynamic, yarn, llama3 or file (default what the model says)"},
    {{"--rope-theta", "--theta"}, "rcbslno", DOUBLE, AT(model_options.rope_theta), 1, 1e12, "T",
     "base (default what the model says)"},
    {{"--rope-scale"}, "rcbslno", DOUBLE, AT(model_options.rope_scale), 1e-3, 1e6, "S",
     "how many times longer the context becomes"},
    {{"--rope-freq-scale"}, "rcbslno", INVERSE, AT(model_options.rope_scale), 1e-6, 1e3, "F", "the same as 1/F"},
    {{"--rope-orig-ctx"}, "rcbslno", INT, AT(model_options.rope_orig_ctx), 1, MAX_CONTEXT, "N", "positions before scaling"},
    {{"--dim"}, "o", INT, AT(rope_dim), 2, 65536, "D",
     "rotated values per head, of no model: theta 10000, and factor 8 of 8192 where a rule wants them"},
    {{"--positions"}, "o", STRING, AT(positions), 0, 0, "A..B:STEP",
     "rows of the cis table, not the frequencies; N: the first N"},
    {{"--columns"}, "o", STRING, AT(columns), 0, 0, "LIST",
     "of frequency, wavelength, band, ramp, unscaled, angle, degrees, cos, sin, ...; all"},
    {{"--compare"}, "o", STRING, AT(compare), 0, 0, "RULES", "these scaling rules, side by side"},
    {{"--rotate"}, "o", STRING, AT(rotate), 0, 0, "X,Y,...", "the pairs of a vector before and after"},
    {{"--decay"}, "o", FLAG, AT(has_decay), 0, 0, NULL, "the mean of q.k over the distance of q and k"},
    GROUP("This command"),
    {{"-i", "--input"}, "b", STRING, AT(input), 0, 0, "FILE", "requests, one JSON object a line; - is stdin"},
    {{"--lines"}, "b", FLAG, AT(is_lines), 0, 0, NULL, "input is plain text, one prompt a line"},
    {{"--ordered"}, "b", FLAG, AT(is_ordered), 0, 0, NULL, "results in the order of the input"},
    {{"--resume"}, "b", FLAG, AT(is_resume), 0, 0, NULL, "keep what the output holds and go on"},
    {{"--strict"}, "b", FLAG, AT(is_strict), 0, 0, NULL, "an unknown field is an error"},
    {{"--progress-json"}, "b", FLAG, AT(progress_json), 0, 0, NULL, "progress on stderr as JSON lines"},
    {{"--parallel"}, "bs", INT, AT(parallel), 1, 1024, "N", "sequences at once (default 16), as memory allows"},
    {{"--shard"}, "b", STRING, AT(shard), 0, 0, "K/N", "only every N-th record, from the K-th; or: slurm"},
    {{"--choices"}, "s", STRING, AT(choices), 0, 0, "A,B,...", "continuations to compare; or a JSON array of them"},
    {{"--perplexity"}, "s", STRING, AT(perplexity), 0, 0, "FILE", "perplexity of a text (or .jsonl of {\"text\"})"},
    {{"--kl"}, "s", STRING, AT(kl), 0, 0, "FILE",
     "divergence of this model from another (GGUF), or, with --ids, from what `logits` wrote"},
    {{"--imatrix"}, "q", STRING, AT(imatrix), 0, 0, "FILE",
     "importance of the columns, from llama.cpp's imatrix; with --calibrate: keep it there"},
    {{"--calibrate"}, "q", STRING, AT(calibrate), 0, 0, "TEXT",
     "a file of text that the model reads first, to see what counts"},
    {{"--session"}, "c", STRING, AT(session_file), 0, 0, "FILE", "resume this transcript and append to it"},
    {{"--show-tokens"}, "c", FLAG, AT(show_tokens), 0, 0, NULL, "print the ids that are fed"},
    {{"--no-history"}, "c", FLAG, AT(no_history), 0, 0, NULL, "keep no record of what is typed"},
    {{"--keep-going"}, "c", FLAG, AT(keep_going), 0, 0, NULL, "drop the oldest turns when the context is full"},
    {{"--tests"}, "n", STRING, AT(tests), 0, 0, "LIST",
     "of p512 (prefill), d4096 (decode at a depth), b16 (batch); default all that fit"},
    {{"-n", "--runs"}, "n", INT, AT(n_predict), 1, 1000, "N", "tokens or rounds per measurement (default 16)"},
    {{"--profile"}, "n", FLAG, AT(is_profile), 0, 0, NULL, "time per kind of operation"},
    {{"--sweep"}, "n", FLAG, AT(is_sweep), 0, 0, NULL, "instead: time of each kernel by type and tokens"},
    {{"--man"}, "h", FLAG, AT(wants_man), 0, 0, NULL, "the manual page, for man -l -"},
    {{"--completion"}, "h", STRING, AT(completion), 0, 0, "SHELL", "what bash, zsh or fish completes words by"},
    GROUP("Everywhere"),
    {{"-h", "--help"}, ALL_VERBS, FLAG, AT(wants_help), 0, 0, NULL, "the options of a command"},
    {{"--no-sandbox"}, "rbst", FLAG, AT(no_sandbox), 0, 0, NULL, "keep what the work needs not: files, network, programs"},
    {{"-q", "--quiet"}, MODEL_VERBS, FLAG, AT(is_quiet), 0, 0, NULL, "no stats line, no progress"},
    {{"-v", "--verbose"}, MODEL_VERBS, FLAG, AT(is_verbose), 0, 0, NULL, "say more on stderr"},
};
// clang-format on
enum { N_OPTIONS = sizeof options / sizeof *options };

// Names of one letter are never meant by a longer word.
static bool is_hint(const char *name) { return strlen(name + strspn(name, "-")) > 1; }

const Option *option_find(const Options *o, char command, const char *name, Error *err) {
    const char *names[N_OPTIONS * 3];
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++)
        for (int k = 0; k < 3 && options[i].names[k] && strchr(options[i].commands, command); k++) {
            if (!strcmp(options[i].names[k], name)) return &options[i];
            if (is_hint(options[i].names[k])) names[n++] = options[i].names[k];
        }
    if (err)
        error_set(err, EXIT_USAGE, "%s: unknown option %s%s (llama31 help %s lists them)",
                  o->command, name, did_you_mean(name, names, sizeof *names, n), o->command);
    return NULL;
}

bool option_text(int i, OptionText *out) {
    if (i >= N_OPTIONS) return false;
    *out = (OptionText){options[i].names, options[i].commands, options[i].value, options[i].help};
    return true;
}

void options_put_settings(const Options *o, Buffer *out) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const Option *option = &options[i];
        const void *field = (const char *)o + option->offset;
        if (!strchr(option->commands, 'S') ||
            (option->kind == INT && *(const int *)field == INT_MIN))
            continue;
        const char *name = option->names[option->names[0][1] != '-'] + 2; // the first long one
        buffer_printf(out, "%s%s ", out->len ? ", " : "", name);
        if (option->kind == INT)
            buffer_printf(out, "%d", *(const int *)field);
        else if (option->kind == FLOAT)
            buffer_printf(out, "%g", (double)*(const float *)field);
        else
            buffer_printf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
    }
}

void options_add_bias(Options *o, int id, float bias) {
    o->biases = xrealloc(o->biases, (size_t)o->sample.n_bias + 1, sizeof *o->biases);
    o->biases[o->sample.n_bias++] = (LogitBias){id, bias};
    o->sample.bias = o->biases;
}

// "ID+X" or "ID-X"
static bool read_bias(Options *o, const char *name, const char *text, Error *err) {
    char *end;
    long id = strtol(text, &end, 10);
    double bias;
    bool is_ban = !strcmp(end, "-inf") || !strcmp(end, "false");
    if (end == text || id < 0 || id > INT_MAX || (*end != '+' && *end != '-') ||
        (!is_ban && !parse_f64(*end == '+' ? end + 1 : end, &bias)))
        return error_set(err, EXIT_USAGE, "%s: expected ID+X or ID-X, found \"%s\"", name, text);
    options_add_bias(o, (int)id, is_ban ? -__builtin_inff() : (float)bias);
    return true;
}

// "FILE", or "FILE:SCALE"
static bool read_adapter(Options *o, const char *name, const char *text, Error *err) {
    ModelOptions *m = &o->model_options;
    LoraOption adapter = {str_of(text), 1};
    const char *colon = strrchr(text, ':');
    bool has_scale = colon && !strpbrk(colon, "/\\") && access(text, F_OK);
    if (!*text || (has_scale && !parse_f64(colon + 1, &adapter.scale)))
        return error_set(err, EXIT_USAGE, "%s: expected FILE or FILE:SCALE, a number, found \"%s\"",
                         name, text);
    if (has_scale) adapter.path.len = (size_t)(colon - text);
    m->adapters = xrealloc(m->adapters, (size_t)m->n_adapters + 1, sizeof *m->adapters);
    m->adapters[m->n_adapters++] = adapter;
    return true;
}

static uint64_t seed_random(void) {
    uint32_t seed; // 32 bits are enough, and easy to type again
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &seed, sizeof seed) != sizeof seed)
        seed = (uint32_t)(now_sec() * 1e6) ^ (uint32_t)getpid();
    if (fd >= 0) close(fd);
    return seed;
}

static void set_seed(Options *o, int64_t seed) {
    o->has_seed = seed != -1; // -1 is llama.cpp's spelling of random
    o->sample.seed = o->has_seed ? (uint64_t)seed : seed_random();
}

Options options_default(const char *command) {
    const char *model = getenv("LLAMA31_MODEL");
    return (Options){.command = command,
                     .model = model && *model ? model : NULL,
                     .n_predict = INT_MIN,
                     .sample = {.temp = 0.8f,
                                .top_k = 40,
                                .top_p = 0.95f,
                                .min_p = 0.05f,
                                .repeat_penalty = 1,
                                .repeat_last_n = 64,
                                .seed = seed_random()}};
}

bool option_set_number(Options *o, const Option *option, const char *label, double v, Error *err) {
    void *field = (char *)o + option->offset;
    bool is_seed = option->kind == SEED, is_whole = option->kind == INT || is_seed;
    bool is_number = is_whole || option->kind == FLOAT || option->kind == DOUBLE;
    double max = is_seed ? 0x1p53 : option->max,
           min = is_seed ? -max : option->min; // exact in JSON
    if (!is_number || !(v >= min && v <= max) || (is_whole && v != floor(v)))
        return error_set(err, EXIT_USAGE, "%s: expected a %s from %.10g to %.10g, found %.10g",
                         label,
                         !is_number ? "truth value, not a number"
                         : is_whole ? "whole number"
                                    : "number",
                         min, max, v);
    if (is_seed)
        set_seed(o, (int64_t)v);
    else if (is_whole)
        *(int *)field = (int)v;
    else if (option->kind == FLOAT)
        *(float *)field = (float)v;
    else
        *(double *)field = v;
    return true;
}

bool option_set_flag(Options *o, const Option *option, const char *label, bool v, Error *err) {
    if (option->kind != FLAG)
        return error_set(err, EXIT_USAGE, "%s: expected a number, found %s", label,
                         v ? "true" : "false");
    *(bool *)((char *)o + option->offset) = v;
    return true;
}

bool option_set(Options *o, const Option *option, const char *name, const char *text, Error *err) {
    void *field = (char *)o + option->offset;
    int64_t whole;
    double v;
    switch (option->kind) {
    case FLAG: *(bool *)field = true; return true; // to name it is to set it
    case STRING: *(const char **)field = text; return true;
    case BIAS: return read_bias(o, name, text, err);
    case ADAPTER: return read_adapter(o, name, text, err);
    case INVERSE:
        if (!parse_f64(text, &v) || v < option->min || v > option->max)
            return error_set(err, EXIT_USAGE,
                             "%s: expected a number from %.10g to %.10g, found \"%s\"", name,
                             option->min, option->max, text);
        *(double *)field = 1 / v;
        return true;
    case VARIABLE:
        o->template_vars =
            xrealloc(o->template_vars, (size_t)o->n_template_vars + 1, sizeof *o->template_vars);
        o->template_vars[o->n_template_vars++] = str_of(text);
        return true;
    case STOP:
        o->stops = xrealloc(o->stops, (size_t)o->n_stops + 1, sizeof *o->stops);
        o->stops[o->n_stops++] = str_of(text);
        return true;
    case SEED:
        if (!parse_i64(text, &whole))
            return error_set(err, EXIT_USAGE, "%s: expected a whole number, found \"%s\"", name,
                             text);
        set_seed(o, whole);
        return true;
    default: break;
    }
    bool is_good = option->kind == INT ? parse_i64(text, &whole) : parse_f64(text, &v);
    if (is_good && option->kind == INT) v = (double)whole;
    if (is_good && v >= option->min && v <= option->max)
        return option_set_number(o, option, name, v, err);
    return error_set(err, EXIT_USAGE, "%s: expected a %snumber from %.10g to %.10g, found \"%s\"",
                     name, option->kind == INT ? "whole " : "", option->min, option->max, text);
}

// An option of llama.cpp that is not ours: returns how many more arguments it takes, or -1 with
// err. `*name` becomes ours where it means the same.
static int read_spelling(Options *o, const Spelling *spelling, const char *next, const char **name,
                         Error *err) {
    switch (spelling->kind) {
    case SPELLING_NEVER: error_set(err, EXIT_USAGE, "%s: %s", *name, spelling->text); return -1;
    case SPELLING_TWIN:
        *name = spelling->text;
        if (!next || !o->model_options.kv_type || !strcmp(next, o->model_options.kv_type)) return 0;
        error_set(err, EXIT_USAGE, "%s: keys and values have one type; expected %s, found %s",
                  spelling->name, o->model_options.kv_type, next);
        return -1;
    case SPELLING_SAME: *name = spelling->text; return 0;
    default: break;
    }
    buffer_printf(&o->ignored, " %s", *name);
    bool is_switch = next && (!strcmp(next, "on") || !strcmp(next, "off") || !strcmp(next, "auto"));
    return spelling->kind == SPELLING_VALUE || (spelling->kind == SPELLING_SWITCH && is_switch);
}

// One option and its value, which *i moves past.
static bool parse_option(Options *o, char command, char **argv, int *i, Error *err) {
    const char *arg = argv[*i], *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    char typed[64];
    int n = equals && equals - arg < 60 ? (int)(equals - arg) : 60; // no option's name is as long
    snprintf(typed, sizeof typed, "%.*s", n, arg);
    const char *name = typed, *value = equals ? equals + 1 : NULL;
    const Spelling *spelling = option_find(o, command, name, NULL) ? NULL : spelling_find(name);
    if (spelling) {
        int more = read_spelling(o, spelling, value ? value : argv[*i + 1], &name, err);
        if (more < 0) return false;
        if (name == typed) {
            *i += more && !value && argv[*i + 1];
            return true;
        }
    }
    const Option *option = option_find(o, command, name, NULL);
    if (!option) return option_find(o, command, typed, err);
    if (option->kind == FLAG && value)
        return error_set(err, EXIT_USAGE, "%s: expected no value, found \"%s\"", typed, value);
    if (option->kind != FLAG && !value && !(value = argv[++*i]))
        return error_set(err, EXIT_USAGE, "%s: expected a value (%s)", typed, option->value);
    return option_set(o, option, typed, value, err);
}

bool options_parse(Options *o, char command, int argc, char **argv, Error *err) {
    bool is_literal = false;
    for (int i = 0; i < argc && strcmp(argv[i], "--");
         i++) // wherever it stands, and whatever else is wrong
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return o->wants_help = true;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!is_literal && !strcmp(arg, "--")) {
            is_literal = true;
            continue;
        }
        // "-5" and "-" are arguments, "--decode 1 -2" an error of its own
        if (is_literal || arg[0] != '-' || !arg[1] || (arg[1] >= '0' && arg[1] <= '9'))
            o->args[o->n_args++] = arg;
        else if (!parse_option(o, command, argv, &i, err))
            return false;
    }
    if (o->is_verbose && o->ignored.len)
        fprintf(stderr, "llama31: changes nothing here:%s\n", o->ignored.data);
    return true;
}
