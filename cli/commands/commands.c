// The command table, in the order of the help.
#include "cli/commands/commands.h"
#include "cli/prompt.h"
#include "cli/spellings.h"

#include <unistd.h>

const Command command_table[] = {
    {"run", CMD_RUN, INT_MAX, run_prepare, command_run, MODULE_CORE,
     "[-m MODEL] [PROMPT | -f FILE | < stdin]", "generate text",
     "llama31 run -m model.gguf \"Why is the sky blue?\"\n"
     "llama31 run -sys \"Summarize in one sentence.\" -f notes.txt\n"
     "git diff | llama31 run -q -n 60 -sys \"Write a commit message.\"\n"
     "llama31 run --choices yes,no --temp 0 \"Is this spam? You have won!\"\n"
     "llama31 run --json-schema @person.json --json \"Ada Lovelace, 36\"\n"
     "llama31 run --reasoning off -s 7 -v \"How many days has a leap year?\"\n"
     "llama31 run --raw -t 4 -c 4096 \"Once upon a time\""},
    {"chat", CMD_CHAT, 0, model_take_argument, command_chat, MODULE_CORE, "[-m MODEL] [-sys TEXT]",
     "chat with a model",
     "llama31 chat -m model.gguf -sys \"You are terse.\" --session talk.jsonl"},
    {"batch", CMD_BATCH, 0, model_take_argument, command_batch, MODULE_CORE,
     "[-m MODEL] -i IN.jsonl -o OUT.jsonl", "complete a file of prompts",
     "llama31 batch -m model.gguf -i prompts.jsonl -o answers.jsonl --resume"},
    {"score", CMD_SCORE, INT_MAX, prompt_prepare, command_score, MODULE_CORE,
     "[-m MODEL] --choices A,B TEXT | --jsonl | --perplexity FILE",
     "log-probabilities, reranking, perplexity",
     "llama31 score -m model.gguf --choices yes,no \"Is this spam? ...\""},
    {"tokenize", CMD_TOKENIZE, INT_MAX, prompt_prepare, command_tokenize, MODULE_CORE,
     "[-m MODEL] [TEXT | -f FILE | < stdin]", "convert text to token ids and back",
     "llama31 tokenize -m model.gguf --ids \"Hello, world\""},
    {"logits", CMD_LOGITS, 0, model_take_argument, command_logits, MODULE_CORE,
     "[-m MODEL] --ids 1,2,3 | --ids @FILE -o OUT.f32", "write raw float32 logits",
     "llama31 logits -m model.gguf --ids 128000,9906 --last -o logits.f32"},
    {"show", CMD_SHOW, 1, NULL, command_show, MODULE_CORE, "[-m MODEL | MODEL] [--tensors]",
     "describe a model file and its memory needs", "llama31 show model.gguf"},
    {"quantize", CMD_QUANTIZE, 3, NULL, command_quantize, MODULE_QUANTIZE, "IN.gguf OUT.gguf TYPE",
     "convert weights to another type", "llama31 quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M"},
    {"bench", CMD_BENCH, 0, bench_prepare, command_bench, MODULE_CORE, "[-m MODEL]",
     "measure speed and hardware limits", "llama31 bench -m model.gguf --tests p512,d0,b8"},
    {"rope", CMD_ROPE, 0, model_take_argument, command_rope, MODULE_CORE,
     "[-m MODEL | --dim D] [--positions A..B:STEP]",
     "print rotary frequencies, angles and the cis table",
     "llama31 rope --dim 128 --theta 500000 --rope-scaling llama3 --positions 8"},
    {"help", CMD_HELP, 1, NULL, command_help, MODULE_CORE,
     "[COMMAND [--all] | TOPIC] [--man | --completion SHELL]", "list commands or options",
     "llama31 help run --all"},
};
const int n_commands = sizeof command_table / sizeof *command_table;

const Command *command_find(const char *name) {
    for (const Command *c = command_table; c < command_table + n_commands; c++)
        if (!strcmp(name, c->name)) return c;
    Error err;
    TypedOption typed = {.name = name};
    if (spelling_translate(&typed, &err) == SPELLING_REFUSED) die_error(&err);
    die(EXIT_USAGE,
        "unknown command \"%s\"%s (llama31 help lists the commands; a prompt: llama31 run TEXT)",
        name, did_you_mean(name, &command_table->name, sizeof *command_table, n_commands));
}

const Command *command_choose(int argc, char **argv, int *n_before) {
    if (argc > 1 && !strcmp(argv[1], "version")) argv[1] = "--version";
    const char *first = argc > 1 ? argv[1] : "";
    bool is_model = argument_is_model(first);
    bool is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    *n_before = str_is_one_of(str_of(first), "--help -h") ? argc : 1;

    if (argc == 1 + is_model && is_terminal) return command_find("chat");
    if (!*first)
        die(EXIT_USAGE, "expected a command: llama31 run \"Once upon a time\", or llama31 help");
    if (str_is_one_of(str_of(first), "--help -h --man --completion")) return command_find("help");
    if (*first == '-' || is_model) return command_find("run");
    *n_before = 2;
    return command_find(first);
}
