// llama31: the command line. argv -> Options -> one verb.
#include "verbs/verbs.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *name;
    char letter; // in Option.verbs
    int (*run)(const Options *o);
    const char *usage, *summary;
} Verb;

static const Verb verbs[] = {
    {"run", 'r', verb_run, "[-m MODEL] [PROMPT | -f FILE | < stdin]", "generate text"},
    {"chat", 'c', verb_chat, "[-m MODEL] [-sys TEXT]", "converse"},
    {"batch", 'b', verb_batch, "[-m MODEL] -i IN.jsonl -o OUT.jsonl", "complete a file of prompts"},
    {"score", 's', verb_score, "[-m MODEL] --choices A,B PROMPT | --perplexity FILE", "log-probabilities, perplexity"},
    {"tokenize", 't', verb_tokenize, "[-m MODEL] [TEXT | -f FILE | < stdin]", "text <-> token ids"},
    {"logits", 'l', verb_logits, "[-m MODEL] --ids 1,2,3 | --ids @FILE -o OUT.f32", "raw logits, float32"},
    {"show", 'w', verb_show, "[-m MODEL] [--tensors]", "what is in a model file, memory and kernels"},
    {"quantize", 'q', verb_quantize, "IN.gguf OUT.gguf TYPE", "a smaller model file"},
    {"bench", 'n', verb_bench, "[-m MODEL]", "tokens/s, GB/s and the machine's limits"},
    {"rope", 'o', verb_rope, "[-m MODEL] [--positions N]", "RoPE frequencies and cis table as CSV"},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

typedef enum { FLAG, INT, FLOAT, DOUBLE, STRING, SEED, STOP, BIAS, TEMP } OptionKind;

typedef struct {
    const char *names; // separated by spaces; the last is the one help shows first
    const char *verbs; // letters of the verbs that take it
    OptionKind kind;
    size_t offset; // into Options
    double min, max;
    const char *value, *help;
} Option;

#define AT(field)     offsetof(Options, field)
#define MODEL_VERBS   "rcbstlwnoq"
#define FORWARD_VERBS "rcbslwn"
#define TEXT_VERBS    "rcb"

static const Option options[] = {
    {"-m --model", "rcbstlwno", STRING, AT(model), 0, 0, "FILE",
     "model (GGUF); default $LLAMA31_MODEL, else the built-in story model"},
    {"-p --prompt", "rst", STRING, AT(prompt), 0, 0, "TEXT", "the prompt"},
    {"-f --file", "rst", STRING, AT(file), 0, 0, "FILE", "read it from a file; - is stdin"},
    {"-n --n-predict --predict", "rcb", INT, AT(n_predict), -1, 1e9, "N",
     "most tokens to generate; -1: until the model stops"},
    {"-c --ctx-size --context", "rcbslwn", INT, AT(ctx), 1, 1 << 28, "N",
     "positions of context; default what the job needs"},
    {"-t --threads", MODEL_VERBS, INT, AT(model_options.n_threads), 1, 1024, "N",
     "threads; default all cores the process may use"},
    {"-b --chunk", "rcbsln", INT, AT(chunk), 1, 65536, "N", "prompt tokens per forward pass"},
    {"--kv", FORWARD_VERBS, STRING, AT(model_options.kv_type), 0, 0, "TYPE", "KV cache: f16 (default), f32, q8_0"},
    {"--deterministic", "rcbsln", FLAG, AT(model_options.is_invariant), 0, 0, NULL,
     "same bits alone or in a batch, for any chunk"},
    {"-s --seed", TEXT_VERBS, SEED, AT(sample.seed), 0, 0, "N", "seed; default random, and printed"},
    {"--temp --temperature", TEXT_VERBS, TEMP, AT(sample.temp), 0, 100, "T", "temperature; 0 is greedy (default 0.8)"},
    {"--top-k", TEXT_VERBS, INT, AT(sample.top_k), 0, 1e9, "K", "keep the K best; 0: all (default 40)"},
    {"--top-p", TEXT_VERBS, FLOAT, AT(sample.top_p), 0, 1, "P", "keep the best that hold probability P (default 0.95)"},
    {"--min-p", TEXT_VERBS, FLOAT, AT(sample.min_p), 0, 1, "P", "keep those above P times the best (default 0.05)"},
    {"--repeat-penalty", TEXT_VERBS, FLOAT, AT(sample.repeat_penalty), 0.01, 100, "X", "1: off (default)"},
    {"--repeat-last-n", TEXT_VERBS, INT, AT(sample.repeat_last_n), -1, 1e9, "N",
     "tokens the penalties look at; -1: all (default 64)"},
    {"--presence-penalty", TEXT_VERBS, FLOAT, AT(sample.presence_penalty), -100, 100, "X", "0: off (default)"},
    {"--frequency-penalty", TEXT_VERBS, FLOAT, AT(sample.frequency_penalty), -100, 100, "X", "0: off (default)"},
    {"--logit-bias", TEXT_VERBS, BIAS, AT(biases), 0, 0, "ID+X",
     "add X (or subtract: ID-X) to a token's logit; repeatable"},
    {"-r --reverse-prompt --stop", TEXT_VERBS, STOP, AT(stops), 0, 0, "TEXT",
     "end the text here; repeatable, never printed"},
    {"--ignore-eos", TEXT_VERBS, FLAG, AT(ignore_eos), 0, 0, NULL, "go on after an end-of-text token"},
    {"-sys --system-prompt --system", "rcbs", STRING, AT(system), 0, 0, "TEXT", "system prompt; @FILE reads a file"},
    {"--template", "rcbst", STRING, AT(template_name), 0, 0, "NAME",
     "llama3, llama2, zephyr, chatml or none; default recognised"},
    {"--raw", "rbs", FLAG, AT(is_raw), 0, 0, NULL, "complete the prompt as it is, without a chat template"},
    {"--special", "rt", FLAG, AT(has_special), 0, 0, NULL, "control tokens written in the text count (with --raw)"},
    {"--echo", "r", FLAG, AT(has_echo), 0, 0, NULL, "print the prompt first"},
    {"--json", "rcswn", FLAG, AT(is_json), 0, 0, NULL, "machine-readable result on stdout"},
    {"--logprobs", "r", INT, AT(logprobs), 0, 100, "N", "with --json: the N best alternatives of every token"},
    {"-o --output", "blo", STRING, AT(output), 0, 0, "FILE", "where the result goes; - is stdout"},
    {"--ids", "tl", STRING, AT(ids), 0, 0, "LIST", NULL},
    {"--count", "t", FLAG, AT(count_only), 0, 0, NULL, "print only the number of tokens"},
    {"--jsonl", "ts", FLAG, AT(is_jsonl), 0, 0, NULL, "JSON lines in and out"},
    {"--decode", "t", FLAG, AT(is_decode), 0, 0, NULL, "ids in, bytes out"},
    {"--chat", "t", STRING, AT(chat_file), 0, 0, "FILE", "ids of a dialogue: {\"role\",\"content\"} a line"},
    {"--last", "l", FLAG, AT(last_only), 0, 0, NULL, "only the last position"},
    {"--tensors", "w", FLAG, AT(show_tensors), 0, 0, NULL, "list the tensors"},
    {"--rope-scaling", "rcbslno", STRING, AT(model_options.rope_rule), 0, 0, "RULE",
     "none, linear, ntk, dynamic, yarn, llama3 or file"},
    {"--rope-theta", "rcbslno", DOUBLE, AT(model_options.rope_theta), 1, 1e12, "T", "RoPE base"},
    {"--rope-scale", "rcbslno", DOUBLE, AT(model_options.rope_scale), 1e-3, 1e6, "S", "RoPE scaling factor"},
    {"--rope-orig-ctx", "rcbslno", INT, AT(model_options.rope_orig_ctx), 1, 1 << 28, "N", "context before scaling"},
    {"--positions", "o", INT, AT(positions), 0, 1e8, "N", "print N rows of the cis table, not the frequencies"},
    {"--dim", "o", INT, AT(dim), 2, 65536, "N", "values per head; then no model is read"},
    {"-i --input", "b", STRING, AT(input), 0, 0, "FILE", "requests, one JSON object a line; - is stdin"},
    {"--lines", "b", FLAG, AT(is_lines), 0, 0, NULL, "input is plain text, one prompt a line"},
    {"--ordered", "b", FLAG, AT(is_ordered), 0, 0, NULL, "results in the order of the input"},
    {"--resume", "b", FLAG, AT(is_resume), 0, 0, NULL, "keep what the output holds and go on"},
    {"--strict", "b", FLAG, AT(is_strict), 0, 0, NULL, "an unknown field is an error"},
    {"--progress-json", "b", FLAG, AT(progress_json), 0, 0, NULL, "progress on stderr as JSON lines"},
    {"--parallel", "bsn", INT, AT(parallel), 1, 1024, "N", "sequences at once; default from memory and speed"},
    {"--shard", "b", STRING, AT(shard), 0, 0, "K/N", "only every N-th record, from the K-th; or: slurm"},
    {"--choices", "s", STRING, AT(choices), 0, 0, "A,B,...", "continuations to compare"},
    {"--perplexity", "s", STRING, AT(perplexity), 0, 0, "FILE", "perplexity of a text (or .jsonl of {\"text\"})"},
    {"--session", "c", STRING, AT(session_file), 0, 0, "FILE", "resume this transcript and append to it"},
    {"--show-tokens", "c", FLAG, AT(show_tokens), 0, 0, NULL, "print the ids that are fed"},
    {"--keep-going", "c", FLAG, AT(keep_going), 0, 0, NULL, "drop the oldest turns when the context is full"},
    {"--tests", "n", STRING, AT(tests), 0, 0, "LIST",
     "of p512 (prefill), d4096 (decode at a depth), b16 (batch); default all that fit"},
    {"-n --runs", "n", INT, AT(n_predict), 1, 1000, "N", "tokens or rounds per measurement (default 16)"},
    {"--profile", "n", FLAG, AT(is_profile), 0, 0, NULL, "time per kind of operation"},
    {"-q --quiet", MODEL_VERBS, FLAG, AT(is_quiet), 0, 0, NULL, "no stats line, no progress"},
    {"-v --verbose", MODEL_VERBS, FLAG, AT(is_verbose), 0, 0, NULL, "say more on stderr"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static bool has_name(const Option *option, const char *name, size_t n) {
    for (const char *at = option->names; *at;) {
        size_t len = strcspn(at, " ");
        if (len == n && !memcmp(at, name, n)) return true;
        at += len + (at[len] == ' ');
    }
    return false;
}

static void print_help(const Verb *verb) {
    if (!verb) {
        puts("usage: llama31 VERB [OPTIONS]\n");
        for (int i = 0; i < N_VERBS; i++) printf("  %-9s %-52s %s\n", verbs[i].name, verbs[i].usage, verbs[i].summary);
        puts("\n  llama31 help VERB lists its options; --version\n\n"
             "exit codes: 0 done, 1 failed at run time, 2 usage, 3 bad model file, 4 prompt does not fit the context,\n"
             "            5 some batch records failed, 130 interrupted");
        return;
    }
    printf("usage: llama31 %s %s\n%s\n\n", verb->name, verb->usage, verb->summary);
    for (int i = 0; i < N_OPTIONS; i++) {
        const Option *o = &options[i];
        if (!strchr(o->verbs, verb->letter)) continue;
        char head[80];
        snprintf(head, sizeof head, "%s %s", o->names, o->value ? o->value : "");
        const char *help = o->help ? o->help : verb->letter == 't' ? "print only the ids" : "tokens; @FILE reads them";
        printf("  %-36s %s\n", verb->letter == 't' && !o->help ? "--ids" : head, help);
    }
}

_Noreturn static void unknown_option(const Verb *verb, const char *name) {
    static char storage[N_OPTIONS * 3][40];
    const char *names[N_OPTIONS * 3];
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!strchr(options[i].verbs, verb->letter)) continue;
        for (const char *at = options[i].names; *at; at += strcspn(at, " "), at += *at == ' ') {
            snprintf(storage[n], sizeof storage[n], "%.*s", (int)strcspn(at, " "), at);
            names[n] = storage[n];
            n++;
        }
    }
    const char *near = nearest_name(name, names, n);
    die(EXIT_USAGE, "%s: unknown option %s%s%s (llama31 help %s lists them)", verb->name, name,
        near ? "; did you mean " : "", near ? near : "", verb->name);
}

static void add_bias(Options *o, const char *text) {
    char *end;
    long id = strtol(text, &end, 10);
    double bias;
    bool is_ban = !strcmp(end, "-inf") || !strcmp(end, "false");
    if (end == text || id < 0 || id > INT_MAX || (*end != '+' && *end != '-') ||
        (!is_ban && !parse_f64(*end == '+' ? end + 1 : end, &bias)))
        die(EXIT_USAGE, "--logit-bias: expected ID+X or ID-X, found \"%s\"", text);
    o->biases = xrealloc(o->biases, (size_t)o->sample.n_bias + 1, sizeof *o->biases);
    o->biases[o->sample.n_bias++] = (LogitBias){(int)id, is_ban ? -__builtin_inff() : (float)bias};
    o->sample.bias = o->biases;
}

static double number_of(const Option *option, const char *name, const char *text) {
    double v;
    int64_t whole;
    bool is_whole = option->kind == INT;
    if (is_whole ? !parse_i64(text, &whole) : !parse_f64(text, &v))
        die(EXIT_USAGE, "%s: expected a %snumber, found \"%s\"", name, is_whole ? "whole " : "", text);
    if (is_whole) v = (double)whole;
    if (v < option->min || v > option->max)
        die(EXIT_USAGE, "%s: expected %g to %g, found %s", name, option->min, option->max, text);
    return v;
}

static void set_option(Options *o, const Option *option, const char *name, const char *text) {
    void *field = (char *)o + option->offset;
    switch (option->kind) {
    case FLAG: *(bool *)field = true; break;
    case INT: *(int *)field = (int)number_of(option, name, text); break;
    case TEMP:
        o->temp_given = true;
        *(float *)field = (float)number_of(option, name, text);
        break;
    case FLOAT: *(float *)field = (float)number_of(option, name, text); break;
    case DOUBLE: *(double *)field = number_of(option, name, text); break;
    case STRING: *(const char **)field = text; break;
    case SEED: {
        int64_t seed;
        if (!parse_i64(text, &seed)) die(EXIT_USAGE, "%s: expected a whole number, found \"%s\"", name, text);
        o->has_seed = seed != -1; // -1 is llama.cpp's spelling of random
        o->sample.seed = (uint64_t)seed;
        break;
    }
    case STOP:
        o->stops = xrealloc(o->stops, (size_t)o->n_stops + 1, sizeof *o->stops);
        o->stops[o->n_stops++] = str_of(text);
        break;
    case BIAS: add_bias(o, text); break;
    }
}

// `tokenize --ids` is a flag, `logits --ids` takes a list.
static bool takes_value(const Option *option, const Verb *verb) {
    return option->kind != FLAG && !(option->offset == AT(ids) && verb->letter == 't');
}

static void parse_options(Options *o, const Verb *verb, int argc, char **argv) {
    bool is_literal = false;
    o->args = xalloc((size_t)argc + 1, sizeof *o->args);
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!is_literal && !strcmp(arg, "--")) {
            is_literal = true;
            continue;
        }
        // "-5" and "-" are arguments, "--decode 1 -2" an error of its own
        if (is_literal || arg[0] != '-' || !arg[1] || (arg[1] >= '0' && arg[1] <= '9')) {
            o->args[o->n_args++] = arg;
            continue;
        }
        if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            print_help(verb);
            stdout_flush();
            exit(EXIT_OK);
        }
        const char *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
        size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
        const Option *found = NULL;
        for (int k = 0; k < N_OPTIONS && !found; k++)
            if (strchr(options[k].verbs, verb->letter) && has_name(&options[k], arg, n)) found = &options[k];
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), arg);
        if (!found) unknown_option(verb, name);
        if (!takes_value(found, verb)) {
            if (equals) die(EXIT_USAGE, "%s: expected no value, found \"%s\"", name, equals + 1);
            if (found->kind == FLAG)
                set_option(o, found, name, NULL);
            else
                o->ids_only = true;
            continue;
        }
        if (!equals && i + 1 == argc) die(EXIT_USAGE, "%s: expected a value (%s)", name, found->value);
        set_option(o, found, name, equals ? equals + 1 : argv[++i]);
    }
}

static void on_interrupt(int signal_number) {
    (void)signal_number;
    if (generate_interrupted) _exit(EXIT_INTERRUPTED);
    generate_interrupted = 1;
}

// Descriptors 0 to 2 must be taken before any file is opened: a result file that became "stderr" would collect
// messages.
static void guard_descriptors(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) _exit(EXIT_RUNTIME);
}

static const Verb *find_verb(const char *name) {
    const char *names[N_VERBS];
    for (int i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
        if (!strcmp(name, names[i])) return &verbs[i];
    }
    const char *near = nearest_name(name, names, N_VERBS);
    die(EXIT_USAGE, "unknown verb \"%s\"%s%s (llama31 help lists them)", name, near ? "; did you mean " : "",
        near ? near : "");
}

int main(int argc, char **argv) {
    guard_descriptors();
    signal(SIGPIPE, SIG_IGN); // a closed pipe is an error of write()
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    gguf_guard_install();
    bool is_help = argc > 1 && (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        puts("llama31 " VERSION);
    } else if (is_help) {
        print_help(argc > 2 ? find_verb(argv[2]) : NULL);
    } else if (argc < 2) {
        die(EXIT_USAGE, "expected a verb: llama31 run \"Once upon a time\" (llama31 help lists them)");
    } else {
        const Verb *verb = find_verb(argv[1]);
        Options o = {.verb = verb->name, .n_predict = INT_MIN, .positions = -1, .model = getenv("LLAMA31_MODEL")};
        o.sample = (SampleOptions){
            .temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1, .repeat_last_n = 64};
        if (o.model && !*o.model) o.model = NULL;
        parse_options(&o, verb, argc - 2, argv + 2);
        if (!kernels_init(NULL))
            die(EXIT_USAGE, "LLAMA31_ISA: expected scalar, avx2, avx512, amx or neon, found \"%s\"",
                getenv("LLAMA31_ISA"));
        int code = verb->run(&o);
        stdout_flush();
        free(o.args);
        free(o.stops);
        free(o.biases);
        return code;
    }
    stdout_flush();
    return EXIT_OK;
}
