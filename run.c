// llama31: the command line. argv -> Options -> one verb.
#include "cli/output.h"
#include "generate.h"
#include "kernels/ops.h"
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
    char letter;   // in the table of options
    int most_args; // without a dash
    int (*run)(const Options *o);
    const char *usage, *summary;
} Verb;

static const Verb verbs[] = {
    {"run", 'r', INT_MAX, verb_run, "[-m MODEL] [PROMPT | -f FILE | < stdin]", "generate text"},
    {"chat", 'c', 0, verb_chat, "[-m MODEL] [-sys TEXT]", "converse"},
    {"batch", 'b', 0, verb_batch, "[-m MODEL] -i IN.jsonl -o OUT.jsonl", "complete a file of prompts"},
    {"score", 's', INT_MAX, verb_score, "[-m MODEL] --choices A,B PROMPT | --perplexity FILE",
     "log-probabilities, perplexity"},
    {"tokenize", 't', INT_MAX, verb_tokenize, "[-m MODEL] [TEXT | -f FILE | < stdin]", "text <-> token ids"},
    {"logits", 'l', 0, verb_logits, "[-m MODEL] --ids 1,2,3 | --ids @FILE -o OUT.f32", "raw logits, float32"},
    {"show", 'w', 1, verb_show, "[-m MODEL | MODEL] [--tensors]", "what is in a model file, memory and kernels"},
    {"quantize", 'q', 3, verb_quantize, "IN.gguf OUT.gguf TYPE",
     "a smaller file: Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_S Q4_0 IQ4_XS BF16 F16"},
    {"bench", 'n', 0, verb_bench, "[-m MODEL]", "tokens/s, GB/s and the machine's limits"},
    {"rope", 'o', 0, verb_rope, "[-m MODEL | --dim D] [--positions A..B:STEP]",
     "RoPE frequencies, angles, the cis table"},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static int print_help(const Verb *verb) {
    if (!verb) {
        puts("usage: llama31 VERB [OPTIONS]\n");
        for (int i = 0; i < N_VERBS; i++) printf("  %-9s %-52s %s\n", verbs[i].name, verbs[i].usage, verbs[i].summary);
        puts("\n  llama31 help VERB lists its options; --version\n\n"
             "exit codes: 0 done, 1 failed at run time, 2 usage, 3 bad model file, 4 prompt does not fit the context,\n"
             "            5 some batch records failed, 130 interrupted");
        return EXIT_OK;
    }
    printf("usage: llama31 %s %s\n%s\n\n", verb->name, verb->usage, verb->summary);
    options_print(verb->letter);
    return EXIT_OK;
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
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(name, verbs[i].name)) return &verbs[i];
    die(EXIT_USAGE, "unknown verb \"%s\"%s (llama31 help lists them)", name,
        did_you_mean(name, &verbs->name, sizeof *verbs, N_VERBS));
}

typedef struct {
    const Verb *verb;
    const Options *options;
} Job;

static int run_job(void *arg) {
    const Job *job = arg;
    return job->verb->run(job->options);
}

static int run_verb(const Verb *verb, int argc, char **argv) {
    static Options o;
    Error err;
    o = options_default(verb->name);
    o.args = xalloc((size_t)argc + 1, sizeof *o.args);
    if (!options_parse(&o, verb->letter, argc, argv, &err)) die_error(&err);
    if (o.wants_help) return print_help(verb);
    if (o.n_args > verb->most_args)
        die(EXIT_USAGE, "%s: unexpected argument \"%s\" (usage: llama31 %s %s)", o.verb, o.args[verb->most_args],
            o.verb, verb->usage);
    if (!kernels_init(NULL))
        die(EXIT_USAGE, "LLAMA31_ISA: expected scalar, avx2, avx512, amx or neon, found \"%s\"", getenv("LLAMA31_ISA"));
    int n_threads = o.model_options.n_threads > 0 ? o.model_options.n_threads : team_default_threads();
    return team_serve(n_threads, run_job, &(Job){verb, &o});
}

int main(int argc, char **argv) {
    guard_descriptors();
    signal(SIGPIPE, SIG_IGN); // a closed pipe is an error of write()
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    gguf_guard_install();
    if (argc < 2) die(EXIT_USAGE, "expected a verb: llama31 run \"Once upon a time\" (llama31 help lists them)");
    const char *name = argv[1];
    int code = EXIT_OK;
    if (!strcmp(name, "--version"))
        puts("llama31 " VERSION);
    else if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        code = print_help(argc > 2 ? find_verb(argv[2]) : NULL);
    else
        code = run_verb(find_verb(name), argc - 2, argv + 2);
    stdout_flush();
    return code;
}
