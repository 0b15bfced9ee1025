// The option table, and the functions that read it.
//
// A row has everything that the program knows about an option: its names, the commands that accept
// it, its effect on answers, the field of Options that holds its value, the range, the help text,
// and the optional module that it needs. Help, manual page and completions are printed from the
// same rows. A row without an effect does not compile.
//
// Arguments have the forms `--name value`, `--name=value`, `-x value` and, for flags, the name
// alone or `--name=false`. `--` ends the options. A dash before a digit, or alone, is not an
// option: "-5" and "-" are positional arguments. If an option is repeated, the last value counts,
// except for lists.
#include "cli/options.h"
#include "base/files.h"
#include "cli/spellings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

// Sets of commands that share options. CMD_SET makes an option available to chat's /set.
// CMD_REQUEST makes it a field of batch requests, under its name with underscores ("top_p").
#define GENERATE   (CMD_RUN | CMD_CHAT | CMD_BATCH)
#define PROMPTED   (GENERATE | CMD_SCORE)
#define COMPUTE    (PROMPTED | CMD_LOGITS | CMD_BENCH)
#define SAMPLE     (GENERATE | CMD_SET | CMD_REQUEST)
#define REQUESTS   (CMD_BATCH | CMD_SCORE)
#define CONSTRAIN  (CMD_RUN | CMD_BATCH | CMD_TOKENIZE)
#define WITH_MODEL (CMD_ALL & ~(CMD_QUANTIZE | CMD_HELP))

// Keys of a model file for the defaults of sampling options, as llama.cpp reads them
// (LLM_KV_GENERAL_SAMPLING).
#define SAMPLING_KEY(name) .key = "general.sampling." name

// Initializers of a row from its effect, ANSWER or NEUTRAL, to the placeholder of its value; the
// help text follows, then the module. FLAG needs no value. The range of a number is inclusive.
#define AT(field) offsetof(Options, field)
#define VALUE(does, k, field, text)                                                                \
    .effect = EFFECT_##does, .kind = k, .offset = AT(field), .value = text
#define RANGE(low, high)                    .min = low, .max = high
#define FLAG(does, field)                   VALUE(does, OPTION_FLAG, field, NULL)
#define INT(does, field, low, high, text)   RANGE(low, high), VALUE(does, OPTION_INT, field, text)
#define FLOAT(does, field, low, high, text) RANGE(low, high), VALUE(does, OPTION_FLOAT, field, text)
#define DOUBLE(does, field, low, high, text)                                                       \
    RANGE(low, high), VALUE(does, OPTION_DOUBLE, field, text)
#define STRING(does, field, text) VALUE(does, OPTION_STRING, field, text)
#define MODEL(does, field)        VALUE(does, OPTION_MODEL, field, "FILE")
#define INPUT(does, field)        VALUE(does, OPTION_INPUT, field, "FILE")
#define OUTPUT(does, field)       VALUE(does, OPTION_OUTPUT, field, "FILE")
#define TEXT(does, field, text)   VALUE(does, OPTION_TEXT, field, text)
#define STRINGS(does, group, list, text)                                                           \
    .n_offset = AT(group.n_##list), VALUE(does, OPTION_STRINGS, group.list, text)
#define GROUP(title)                                                                               \
    { .commands = CMD_ALL, .help = title } // precedes the rows of the group

// clang-format off
const Option option_table[] = {
    GROUP("Model and prompt"),
    {{"-m", "--model"}, COMMON(WITH_MODEL), MODEL(ANSWER, model.path),
     "GGUF model (default $LLAMA31_MODEL, else built-in)"},
    {{"-p", "--prompt"}, CMD_RUN | CMD_SCORE | CMD_TOKENIZE, STRING(NEUTRAL, prompt.text, "TEXT"), "prompt"},
    {{"-f", "--file"}, COMMON(CMD_RUN | CMD_SCORE | CMD_TOKENIZE), INPUT(NEUTRAL, prompt.file),
     "read the prompt from FILE; - is stdin"},
    {{"-n", "--n-predict", "--max-tokens"}, COMMON(SAMPLE), INT(ANSWER, settings.n_predict, -1, 1e9, "N"),
     "maximum tokens to generate (default -1: no limit; plain text: 256)"},
    {{"-c", "--ctx-size", "--context"}, COMMON(PROMPTED | CMD_SHOW) | CMD_LOGITS,
     INT(ANSWER, model.ctx, 0, MAX_CONTEXT, "N"), "context size in tokens (default 0: as needed)"},
    {{"-t", "--threads"}, COMMON((WITH_MODEL & ~CMD_BENCH) | CMD_QUANTIZE),
     INT(NEUTRAL, model.load.n_threads, 1, 1024, "N"), "threads (default: one per performance core)"},
    {{"-tb", "--threads-batch"}, COMPUTE, INT(NEUTRAL, model.load.n_batch_threads, 1, 1024, "N"),
     "threads for passes of 32 tokens or more (default: -t)"},
    {{"-t", "--threads"}, COMMON(CMD_BENCH), STRING(NEUTRAL, bench.thread_counts, "N,..."),
     "threads; 1,2,4 compares (default: one per performance core)"},
    {{"-b", "--chunk"}, COMPUTE, INT(NEUTRAL, model.chunk, 1, 65536, "N"),
     "prompt tokens per forward pass (default 512; chat 256)"},
    {{"--kv"}, COMPUTE | CMD_SHOW, STRING(ANSWER, model.load.kv_type, "f32|f16|q8_0|q4_0"),
     "type of the KV cache, or KEYS,VALUES (default f16)"},
    {{"--lora"}, COMPUTE | CMD_SHOW, VALUE(ANSWER, OPTION_LORA, model.load.adapters, "FILE[:SCALE]"),
     "LoRA adapter (GGUF) and its scale; repeatable", MODULE_LORA},
    {{"--deterministic"}, COMPUTE, FLAG(ANSWER, model.load.is_batch_invariant),
     "bit-identical results for any batch, on every machine"},
    {{"--cache"}, PROMPTED, VALUE(NEUTRAL, OPTION_DIRECTORY, model.cache, "DIR"),
     "prefix cache directory (default $LLAMA31_CACHE; none if unset)", MODULE_CACHE},
    {{"--cache-size"}, PROMPTED, STRING(NEUTRAL, model.cache_size, "SIZE"),
     "limit of the prefix cache: 500M, 20G ... (default 8G)", MODULE_CACHE},
    {{"--draft"}, GENERATE | CMD_BENCH, MODEL(NEUTRAL, model.draft),
     "draft model or EAGLE-3 head (same vocabulary)", MODULE_SPECULATE},
    {{"--no-lookup"}, GENERATE, FLAG(NEUTRAL, model.no_lookup), "disable prompt-lookup speculation"},
    // The same defaults as llama.cpp.
    GROUP("Sampling"),
    {{"-s", "--seed"}, COMMON(SAMPLE), VALUE(ANSWER, OPTION_SEED, settings.sample.seed, "N"),
     "random seed (default -1: drawn and printed)"},
    {{"--temp", "--temperature"}, COMMON(SAMPLE), FLOAT(ANSWER, settings.sample.temp, 0, 100, "T"),
     "temperature; 0: greedy (default 0.8)", SAMPLING_KEY("temp")},
    {{"--top-k"}, SAMPLE, INT(ANSWER, settings.sample.top_k, -1, 1e9, "K"),
     "keep the K most likely tokens; 0, -1: all (default 40)", SAMPLING_KEY("top_k")},
    {{"--top-p"}, SAMPLE, FLOAT(ANSWER, settings.sample.top_p, 0, 1, "P"),
     "keep top tokens of total probability P (default 0.95)", SAMPLING_KEY("top_p")},
    {{"--min-p"}, SAMPLE, FLOAT(ANSWER, settings.sample.min_p, 0, 1, "P"),
     "minimum p relative to the best token (default 0.05)", SAMPLING_KEY("min_p")},
    {{"--repeat-penalty"}, SAMPLE, FLOAT(ANSWER, settings.sample.repeat_penalty, 0.01, 100, "X"),
     "divide logits of tokens already used (default 1: off)", SAMPLING_KEY("penalty_repeat")},
    {{"--repeat-last-n"}, SAMPLE, INT(ANSWER, settings.sample.repeat_last_n, -1, 1e9, "N"),
     "penalize the last N tokens; -1: all (default 64)", SAMPLING_KEY("penalty_last_n")},
    {{"--presence-penalty"}, SAMPLE, FLOAT(ANSWER, settings.sample.presence_penalty, -100, 100, "X"),
     "subtract X from the logits of tokens already used (default 0)"},
    {{"--frequency-penalty"}, SAMPLE, FLOAT(ANSWER, settings.sample.frequency_penalty, -100, 100, "X"),
     "subtract X for each use of a token (default 0)"},
    {{"--dry-multiplier"}, SAMPLE, FLOAT(ANSWER, settings.sample.dry.multiplier, 0, 100, "X"),
     "penalize tokens that continue a repetition: DRY (default 0: off)"},
    {{"--dry-base"}, SAMPLE, FLOAT(ANSWER, settings.sample.dry.base, 1, 100, "X"),
     "DRY: factor of the penalty per repeated token (default 1.75)"},
    {{"--dry-allowed-length"}, SAMPLE, INT(ANSWER, settings.sample.dry.allowed_length, 0, 1e9, "N"),
     "DRY: repeated tokens from which it applies (default 2)"},
    {{"--dry-penalty-last-n"}, SAMPLE, INT(ANSWER, settings.sample.dry.last_n, -1, 1e9, "N"),
     "DRY: search the last N tokens; -1: all (default -1)"},
    {{"--dry-sequence-breaker"}, GENERATE, STRINGS(ANSWER, settings.sample.dry, breakers, "TEXT"),
     "DRY: repetitions end here; repeatable, none: nowhere"},
    {{"--samplers"}, SAMPLE, VALUE(ANSWER, OPTION_SAMPLERS, settings.sample.order, "NAME;..."),
     "samplers in order (default penalties;dry;temperature;top_k;min_p;top_p)", SAMPLING_KEY("sequence")},
    {{"--logit-bias"}, GENERATE, STRINGS(ANSWER, text, biases, "TOKEN+X"),
     "add X to the logit of a token (id or text); repeatable"},
    {{"--no-model-sampling"}, GENERATE, FLAG(ANSWER, model.no_sampling),
     "ignore the sampling defaults of the model file"},
    // The parts of the prompt, and the end of the text.
    GROUP("Text"),
    {{"-r", "--reverse-prompt", "--stop"}, GENERATE, STRINGS(ANSWER, settings, stops, "TEXT"),
     "stop string (not part of the output); repeatable"},
    {{"--no-loop-stop"}, GENERATE, FLAG(ANSWER, settings.no_loop_stop), "do not end a text that repeats itself"},
    {{"--stop-token-ids"}, GENERATE, STRING(ANSWER, text.stop_token_ids, "LIST"),
     "ids of further tokens that end the text"},
    {{"--ignore-eos"}, GENERATE | CMD_REQUEST, FLAG(ANSWER, settings.ignore_eos), "ban the tokens that end a text"},
    {{"--min-tokens"}, CMD_RUN | CMD_BATCH | CMD_REQUEST, INT(ANSWER, settings.min_tokens, 0, 1e9, "N"),
     "do not end the text before N tokens (default 0)"},
    {{"-sys", "--system-prompt", "--system"}, COMMON(PROMPTED), TEXT(ANSWER, prompt.system, "TEXT"),
     "system prompt; @FILE reads a file, @@ stands for @"},
    {{"--answer"}, CMD_RUN, STRING(ANSWER, prompt.answer, "TEXT"),
     "begin the answer with TEXT; the output is the rest"},
    {{"--template"}, PROMPTED | CMD_TOKENIZE, VALUE(ANSWER, OPTION_INPUT, prompt.template_name, "NAME"),
     "FILE.jinja, built-in name or none (default: model's)"},
    {{"--chat-template-kwargs"}, PROMPTED | CMD_TOKENIZE, STRING(ANSWER, text.template_kwargs, "JSON"),
     "template variables as a JSON object"},
    {{"--tools"}, GENERATE | COMMON(CMD_CHAT) | CMD_TOKENIZE, INPUT(ANSWER, prompt.tools), "JSON array of tools that the model may call"},
    {{"--rendered"}, CMD_TOKENIZE, FLAG(NEUTRAL, tokenize.is_rendered),
     "with --chat: print the rendered text instead of ids"},
    {{"--raw"}, COMMON(CMD_RUN) | CMD_BATCH | CMD_SCORE, FLAG(ANSWER, prompt.is_raw),
     "complete the prompt without a chat template"},
    {{"--special"}, CMD_RUN | CMD_TOKENIZE, FLAG(ANSWER, prompt.has_special),
     "parse special tokens in the prompt (run: with --raw)"},
    {{"--keep-newline"}, CMD_RUN | CMD_CHAT | CMD_SCORE, FLAG(ANSWER, prompt.keep_newline),
     "keep the final newline of files and stdin"},
    {{"-N"}, CMD_RUN, INT(NEUTRAL, output.n_choices, 1, 64, "N"),
     "number of completions (default 1; the prompt is prefilled once)"},
    {{"--echo"}, CMD_RUN | CMD_BATCH | CMD_REQUEST, FLAG(ANSWER, settings.has_echo),
     "output the prompt before its completion"},
    GROUP("Reasoning"),
    {{"--reasoning", "-rea"}, COMMON(GENERATE) | CMD_TOKENIZE, VALUE(ANSWER, OPTION_REASONING, settings.thinks, "on|off|auto"),
     "reasoning before the answer (default auto: the template's)"},
    {{"--reasoning-budget"}, SAMPLE, RANGE(-1, 1e9), VALUE(ANSWER, OPTION_BUDGET, settings.reasoning_budget, "N"),
     "most reasoning tokens; 0: none, -1: no limit, auto: leave 1/4 of -n"},
    {{"--reasoning-budget-message"}, GENERATE, STRING(ANSWER, settings.reasoning_message, "TEXT"),
     "text before </think> where the budget ends the reasoning"},
    {{"--reasoning-format"}, CMD_RUN | CMD_CHAT, STRING(NEUTRAL, output.reasoning_format, "auto|none"),
     "none: leave the reasoning in the text (default auto: separate)"},
    // --ids has two meanings: for tokenize it is a flag.
    GROUP("Input and output"),
    {{"--json"}, COMMON(CMD_RUN | CMD_SCORE | CMD_SHOW | CMD_BENCH | CMD_ROPE) | CMD_CHAT, FLAG(NEUTRAL, output.is_json),
     "print JSON"},
    {{"--no-stream"}, CMD_RUN, FLAG(NEUTRAL, output.is_whole), "write the text when it is complete, in one piece"},
    {{"--logprobs"}, CMD_RUN, INT(NEUTRAL, settings.n_logprobs, 0, MAX_LOGPROBS, "N"),
     "with --json: log-probabilities of the N best tokens"},
    {{"-o", "--output"}, COMMON(CMD_BATCH | CMD_LOGITS | CMD_SCORE), OUTPUT(NEUTRAL, output.path),
     "output file; - is stdout"},
    {{"--force"}, COMMON(CMD_LOGITS | CMD_QUANTIZE | REQUESTS), FLAG(NEUTRAL, output.is_forced), "overwrite the output"},
    {{"--ids"}, COMMON(CMD_LOGITS), TEXT(NEUTRAL, logits.ids, "LIST"), "token ids; @FILE reads a file"},
    {{"--ids"}, COMMON(CMD_TOKENIZE), FLAG(NEUTRAL, tokenize.ids_only), "print only the ids"},
    {{"--count"}, COMMON(CMD_TOKENIZE), FLAG(NEUTRAL, tokenize.count_only), "print only the number of tokens"},
    {{"--jsonl"}, COMMON(CMD_TOKENIZE | CMD_SCORE) | CMD_CHAT, FLAG(NEUTRAL, prompt.is_jsonl), "lines are JSON (chat: a string per line of a pipe)"},
    {{"--decode"}, COMMON(CMD_TOKENIZE), FLAG(NEUTRAL, tokenize.is_decode), "convert ids to text"},
    {{"--chat"}, COMMON(CMD_TOKENIZE), INPUT(NEUTRAL, tokenize.chat_file),
     "tokenize a conversation: {\"role\",\"content\"} per line"},
    {{"--last"}, COMMON(CMD_LOGITS), FLAG(NEUTRAL, logits.last_only), "only the last position"},
    {{"--tensors"}, COMMON(CMD_SHOW), FLAG(NEUTRAL, show.lists_tensors), "list the tensors"},
    {{"--bandwidth"}, CMD_SHOW, DOUBLE(NEUTRAL, show.bandwidth, 0.01, 1e6, "GB/S"),
     "memory bandwidth for the speed estimate (default measured)"},
    {{"--check"}, COMMON(CMD_SHOW), FLAG(NEUTRAL, show.is_check), "check that all weights are finite; print a checksum"},
    {{"--verify"}, COMMON(CMD_SHOW), FLAG(NEUTRAL, show.is_verify), "as --check; compare the checksum with the stored one"},
    // At most one of the constraints may be given (cli/request.c). --choices of score,
    // in a later group, is unrelated.
    GROUP("Constraint"),
    {{"--json-schema"}, COMMON(CMD_RUN | CMD_BATCH) | CMD_TOKENIZE, TEXT(ANSWER, text.json_schema, "S"),
     "generate JSON of this schema, or of that in @FILE or FILE.json", MODULE_CONSTRAIN},
    {{"--any-order"}, CONSTRAIN | CMD_REQUEST, FLAG(ANSWER, settings.constraint.any_order),
     "generate properties in any order (default: the schema's)", MODULE_CONSTRAIN},
    {{"--extra-properties"}, CONSTRAIN | CMD_CHAT | CMD_REQUEST, FLAG(ANSWER, settings.constraint.extra_properties),
     "allow properties that the schema does not list", MODULE_CONSTRAIN},
    {{"--strict-schema"}, CONSTRAIN | CMD_REQUEST, FLAG(ANSWER, settings.constraint.is_strict),
     "refuse a schema that cannot be enforced in full", MODULE_CONSTRAIN},
    {{"--grammar"}, CONSTRAIN, TEXT(ANSWER, text.grammar, "FILE"),
     "generate text of a GBNF grammar: a file, or text with ::=", MODULE_CONSTRAIN},
    {{"--regex"}, CONSTRAIN, STRING(ANSWER, text.regex, "RE"),
     "generate text that matches a regular expression", MODULE_CONSTRAIN},
    {{"--choices"}, COMMON(CMD_RUN) | CMD_BATCH, TEXT(ANSWER, text.choices, "A,B,..."),
     "generate one of these texts, or of the lines of @FILE", MODULE_CONSTRAIN},
    // The first four replace values of the model file (rope_params_override); 0 or NULL keeps a
    // value. The options from --dim on belong to the command rope.
    GROUP("Rotary embedding"),
    {{"--rope-scaling"}, COMPUTE | COMMON(CMD_ROPE), STRING(ANSWER, model.load.rope_rule, "none|linear|ntk|dynamic|yarn|llama3|file"),
     "scaling rule (default: the model's)"},
    {{"--rope-theta", "--theta"}, COMPUTE | COMMON(CMD_ROPE),
     DOUBLE(ANSWER, model.load.rope_theta, 1, 1e12, "T"), "base frequency (default: the model's)"},
    {{"--rope-scale"}, COMPUTE | CMD_ROPE, DOUBLE(ANSWER, model.load.rope_scale, 1e-3, 1e6, "S"),
     "context extension factor"},
    {{"--rope-orig-ctx"}, COMPUTE | CMD_ROPE, INT(ANSWER, model.load.rope_orig_ctx, 1, MAX_CONTEXT, "N"),
     "context size before scaling"},
    {{"--dim"}, COMMON(CMD_ROPE), INT(ANSWER, rope.dim, 2, 65536, "D"),
     "head size, instead of a model (theta 10000; scaling 8 x 8192)"},
    {{"--positions"}, COMMON(CMD_ROPE), STRING(NEUTRAL, rope.positions, "A..B:STEP"),
     "print the cis table at these positions; N: the first N"},
    {{"--columns"}, COMMON(CMD_ROPE), STRING(NEUTRAL, rope.columns, "LIST"),
     "columns: frequency, wavelength, angle, cos, sin, ... or all"},
    {{"--compare"}, COMMON(CMD_ROPE), STRING(NEUTRAL, rope.compare, "RULES"), "compare these scaling rules"},
    // Options of one command, in the order batch, score, quantize, chat, bench, help.
    GROUP("Command-specific"),
    {{"-i", "--input"}, COMMON(REQUESTS), INPUT(NEUTRAL, batch.input),
     "requests, one JSON object per line; - is stdin"},
    {{"--lines"}, COMMON(CMD_BATCH), FLAG(ANSWER, batch.is_lines), "input is plain text, one prompt per line"},
    {{"--ordered"}, CMD_BATCH, FLAG(NEUTRAL, batch.is_ordered), "write results in input order"},
    {{"--resume"}, COMMON(CMD_BATCH) | CMD_SCORE, FLAG(NEUTRAL, batch.is_resume), "keep existing results and complete the rest"},
    {{"--retry-failed"}, REQUESTS, FLAG(NEUTRAL, batch.retries_failed),
     "with --resume: complete failed records again"},
    {{"--check"}, COMMON(CMD_BATCH), FLAG(NEUTRAL, batch.is_check), "check all requests, count their tokens, generate nothing"},
    {{"--speed"}, CMD_BATCH, STRING(NEUTRAL, batch.speed, "P,D"),
     "with --check: estimate the time at P tok/s prefill, D tok/s decode"},
    {{"--strict"}, REQUESTS, FLAG(NEUTRAL, batch.is_strict), "reject unknown fields"},
    {{"--progress"}, REQUESTS, FLAG(NEUTRAL, batch.has_progress),
     "also without a terminal: a line on stderr every 30 s"},
    {{"--progress-json"}, REQUESTS, FLAG(NEUTRAL, batch.has_progress_json), "progress as JSON lines on stderr"},
    {{"-np", "--parallel"}, COMMON(CMD_BATCH) | CMD_SCORE, INT(NEUTRAL, batch.parallel, 1, 1024, "N"),
     "maximum concurrent sequences (default 16; fewer if memory is short)"},
    {{"--shard"}, REQUESTS, STRING(NEUTRAL, batch.shard, "K/N"),
     "process part K of N of the records; slurm: by array task"},
    {{"--choices"}, COMMON(CMD_SCORE), TEXT(ANSWER, score.choices, "A,B,..."),
     "continuations to score, JSON array, or @FILE: one per line"},
    {{"--perplexity"}, COMMON(CMD_SCORE), INPUT(NEUTRAL, score.perplexity),
     "perplexity of a text (or of .jsonl with {\"text\"})"},
    {{"--rerank"}, COMMON(CMD_SCORE), STRING(ANSWER, score.rerank, "QUERY"),
     "relevance of documents for a query, one per line of -i"},
    {{"--instruction"}, CMD_SCORE, STRING(ANSWER, score.instruction, "TEXT"),
     "with --rerank: the task, for templates of Qwen3-Reranker"},
    {{"--sort"}, CMD_SCORE, FLAG(NEUTRAL, score.is_sorted), "with --rerank: the most relevant first"},
    {{"--imatrix"}, COMMON(CMD_QUANTIZE), OUTPUT(ANSWER, quantize.imatrix),
     "importance matrix to use (with --calibrate: to write)"},
    {{"--calibrate"}, COMMON(CMD_QUANTIZE), VALUE(ANSWER, OPTION_INPUT, quantize.calibrate, "TEXT"),
     "compute an importance matrix from a text file"},
    {{"--session"}, COMMON(CMD_CHAT), OUTPUT(NEUTRAL, chat.session_file), "resume and continue this transcript"},
    {{"--continue"}, COMMON(CMD_CHAT), INT(NEUTRAL, chat.continued, 1, 1e6, "[N]"),
     "resume the last chat, or number N of --list"},
    {{"--list"}, COMMON(CMD_CHAT), FLAG(NEUTRAL, chat.lists), "list the last chats, or those of --session"},
    {{"--commands"}, CMD_CHAT, FLAG(NEUTRAL, chat.has_commands), "run the commands in lines of a pipe, too"},
    {{"--plain"}, COMMON(CMD_CHAT), FLAG(NEUTRAL, chat.is_plain), "do not style Markdown on a terminal"},
    {{"--show-tokens"}, CMD_CHAT, FLAG(NEUTRAL, chat.show_tokens), "print the token ids of each prompt"},
    {{"--no-history"}, CMD_CHAT, FLAG(NEUTRAL, chat.no_history), "save neither the input nor the last chat"},
    {{"--keep-going"}, COMMON(CMD_CHAT), FLAG(ANSWER, chat.keep_going), "drop the oldest turns if the context is full"},
    {{"--tests"}, COMMON(CMD_BENCH), STRING(NEUTRAL, bench.tests, "LIST"),
     "p512 (prefill), d4096 (decode at depth), b16 (batch), s256 (drafts) ..."},
    {{"-n", "--runs"}, COMMON(CMD_BENCH), INT(NEUTRAL, bench.n_rounds, 1, 1000, "N"),
     "tokens or rounds per measurement (default 16)"},
    {{"--profile"}, COMMON(CMD_BENCH), FLAG(NEUTRAL, bench.is_profile), "time per operation"},
    {{"--all"}, COMMON(CMD_HELP), FLAG(NEUTRAL, help.wants_all), "list all options of a command"},
    {{"--man"}, COMMON(CMD_HELP), FLAG(NEUTRAL, help.wants_man), "print the manual page, for man -l -"},
    {{"--completion"}, COMMON(CMD_HELP), STRING(NEUTRAL, help.completion, "bash|zsh|fish"), "completion script of a shell"},
    GROUP("General"),
    {{"-h", "--help"}, CMD_ALL, FLAG(NEUTRAL, help.wants_usage), "options of a command"},
    {{"--version"}, CMD_ALL, FLAG(NEUTRAL, help.wants_version), "version; with -v all that results depend on"},
    {{"--sandbox"}, CMD_ALL & ~CMD_HELP, STRING(NEUTRAL, sandbox, "auto|none|require"),
     "require: refuse to run without a sandbox (default auto)"},
    {{"-q", "--quiet"}, COMMON(WITH_MODEL | CMD_QUANTIZE), FLAG(NEUTRAL, is_quiet), "no progress and no statistics"},
    {{"-v", "--verbose"}, COMMON(WITH_MODEL | CMD_QUANTIZE), FLAG(NEUTRAL, is_verbose), "more messages on stderr"},
};
// clang-format on
const int n_option_rows = sizeof option_table / sizeof *option_table;
_Static_assert(sizeof option_table / sizeof *option_table <= MAX_OPTIONS, "Options.is_given");

// The seed is printed, so that a run can be repeated. 32 bits are easier to type than 64.
static uint64_t random_seed(void) { return random_number() >> 32; }

// The sampling defaults are repeated in the help texts of the table.
Options options_default(const char *command, unsigned flag) {
    const char *model = getenv("LLAMA31_MODEL");
    Settings settings = {.n_predict = INT_MIN,
                         .reasoning_budget = INT_MIN,
                         .sample = {.temp = 0.8f,
                                    .top_k = 40,
                                    .top_p = 0.95f,
                                    .min_p = 0.05f,
                                    .repeat_penalty = 1,
                                    .repeat_last_n = 64,
                                    .dry = {.base = 1.75f, .allowed_length = 2, .last_n = -1},
                                    .seed = random_seed()}};
    return (Options){.command = command,
                     .flag = flag,
                     .model = {.path = model && *model ? model : NULL,
                               .load = {.kv_type = "f16"},
                               .cache = getenv("LLAMA31_CACHE")},
                     .settings = settings};
}

// Two rows may have the same name for different commands (--ids). For an unknown name, the error
// suggests the most similar name of the same command.
const Option *option_find(const Options *o, unsigned command, const char *name, Error *err) {
    const char *similar[sizeof option_table / sizeof *option_table * 3];
    int n = 0;
    for (const Option *row = option_table; row < option_table + n_option_rows; row++)
        for (int k = 0; k < 3 && row->names[k] && (row->commands & command); k++) {
            if (!strcmp(row->names[k], name)) return row;
            if (strlen(row->names[k]) > 2) similar[n++] = row->names[k]; // not a single letter
        }
    bool is_text = strchr(name, ' ') && (command & (CMD_RUN | CMD_SCORE | CMD_TOKENIZE));
    if (err && is_text)
        error_set(err, EXIT_USAGE, "%s: unknown option \"%.40s\"; use -p TEXT for a text",
                  o->command, name);
    else if (err)
        error_set(err, EXIT_USAGE, "%s: unknown option %s%s (llama31 help %s --all lists them)",
                  o->command, name, did_you_mean(name, similar, sizeof *similar, n), o->command);
    return NULL;
}

void *option_field(const Option *option, const Options *o, const Settings *s) {
    size_t first = offsetof(Options, settings), at = option->offset;
    bool is_setting = at >= first && at < first + sizeof *s;
    return is_setting ? (char *)s + (at - first) : (char *)o + at;
}

// A seed of -1 is llama.cpp's notation for a random one.
static void set_seed(Settings *s, int64_t seed) {
    s->has_seed = seed != -1;
    s->sample.seed = s->has_seed ? (uint64_t)seed : random_seed();
}

// Sets a number or a flag of the options o or, if that is NULL, of the settings.
static bool set_number(Options *o, Settings *s, const Option *option, const char *label, double v,
                       Error *err) {
    void *field = option_field(option, o, s);
    bool is_seed = option->kind == OPTION_SEED;
    bool is_int = option->kind == OPTION_INT || option->kind == OPTION_BUDGET || is_seed;
    double max = is_seed ? 0x1p53 : option->max; // integers up to 2^53 are exact in JSON
    double min = is_seed ? -max : option->min;

    if (option->kind == OPTION_FLAG) {
        *(bool *)field = v != 0;
        return true;
    }

    if (!(v >= min && v <= max) || (is_int && v != floor(v)))
        return error_set(err, EXIT_USAGE,
                         "%s: expected a %snumber from %.10g to %.10g, found %.10g", label,
                         is_int ? "whole " : "", min, max, v);

    if (is_seed)
        set_seed(s, (int64_t)v);
    else if (is_int)
        *(int *)field = (int)v;
    else if (option->kind == OPTION_FLOAT)
        *(float *)field = (float)v;
    else
        *(double *)field = v;

    return true;
}

bool setting_set_number(Settings *s, const Option *option, const char *label, double v,
                        Error *err) {
    return set_number(NULL, s, option, label, v, err);
}

static void add_string(void *field, const Option *option, const char *text) {
    Str **list = field;
    int *n = (int *)((char *)field + option->n_offset - option->offset);
    *list = xrealloc(*list, (size_t)*n + 1, sizeof **list);
    (*list)[(*n)++] = str_of(text);
}

// --lora: "FILE" or "FILE:SCALE". The colon is part of the file name if a file of that name exists.
static bool add_lora(ModelOptions *m, const char *text) {
    const char *colon = strrchr(text, ':');
    bool has_scale = colon && !strpbrk(colon, "/\\") && access(text, F_OK);
    LoraOption lora = {str_of(text), 1};
    if (has_scale) lora.path.len = (size_t)(colon - text);
    if (!lora.path.len || (has_scale && !parse_f64(colon + 1, &lora.scale))) return false;

    m->adapters = xrealloc(m->adapters, (size_t)m->n_adapters + 1, sizeof *m->adapters);
    m->adapters[m->n_adapters++] = lora;
    return true;
}

static bool set_flag(bool *field, const char *text) {
    *field = !text || !strcmp(text, "true");
    return *field || !strcmp(text, "false");
}

static bool set_reasoning(Settings *s, const char *text) {
    if (!str_is_one_of(str_of(text), "on off auto")) return false;
    s->thinks = 0;
    if (strcmp(text, "auto") != 0) settings_think(s, !strcmp(text, "on"));
    return true;
}

static bool set_samplers(SamplerOrder *order, const char *label, const char *text, Error *err) {
    Error why;
    return samplers_parse(order, str_of(text), &why) ||
           error_set(err, EXIT_USAGE, "%s: %s", label, why.text);
}

// Sets an option with a whole number or, of a budget, "auto".
static bool set_whole(Options *o, Settings *s, const Option *option, const char *label,
                      const char *text, Error *err) {
    bool is_budget = option->kind == OPTION_BUDGET;
    int64_t whole = 0;

    if (is_budget && !strcmp(text, "auto")) {
        *(int *)option_field(option, o, s) = BUDGET_AUTO;
        return true;
    }
    bool is_whole = parse_i64(text, &whole);
    double v = (double)whole;
    bool is_huge = !is_whole && errno == ERANGE;
    bool is_seed = option->kind == OPTION_SEED;
    if (is_huge && is_seed)
        return error_set(err, EXIT_USAGE, "%s: expected a whole number of 64 bits, found %s", label,
                         text);
    if (!is_whole && !(is_huge && parse_f64(text, &v)))
        return error_set(err, EXIT_USAGE, "%s: expected a whole number%s, found \"%s\"", label,
                         is_budget ? " or auto" : "", text);
    if (!is_seed) return set_number(o, s, option, label, v, err);
    set_seed(s, whole);
    return true;
}

static bool set_value(Options *o, Settings *s, const Option *option, const char *label,
                      const char *text, Error *err) {
    void *field = option_field(option, o, s);
    const char *expected = "a number"; // what a valid value is
    bool is_valid = true;
    double v = 0;

    switch (option->kind) {
    case OPTION_FLAG:
        expected = "true or false";
        is_valid = set_flag(field, text);
        break;
    case OPTION_LORA:
        expected = "FILE or FILE:SCALE";
        is_valid = add_lora(&o->model.load, text);
        break;
    case OPTION_REASONING:
        expected = "on, off or auto";
        is_valid = set_reasoning(s, text);
        break;
    case OPTION_SAMPLERS: return set_samplers(field, label, text, err);
    case OPTION_FLOAT:
    case OPTION_DOUBLE:
        is_valid = parse_f64(text, &v);
        if (is_valid) return set_number(o, s, option, label, v, err);
        break;
    case OPTION_INT:
    case OPTION_SEED:
    case OPTION_BUDGET: return set_whole(o, s, option, label, text, err);
    case OPTION_STRINGS: add_string(field, option, text); break;
    default: *(const char **)field = text;
    }

    return is_valid ||
           error_set(err, EXIT_USAGE, "%s: expected %s, found \"%s\"", label, expected, text);
}

bool option_set(Options *o, const Option *option, const char *label, const char *text, Error *err) {
    return set_value(o, &o->settings, option, label, text, err);
}

bool setting_set(Settings *s, const Option *option, const char *label, const char *text,
                 Error *err) {
    return set_value(NULL, s, option, label, text, err);
}

// An option of the command line: NAME VALUE or --NAME=VALUE.
typedef struct {
    char name[61];        // as typed; no name is longer
    const char *value;    // NULL: none
    bool has_equals;      // the value follows "="
    bool is_next;         // the value is the next argument
    bool is_ignored;      // accepted without effect
    const Option *option; // NULL: unknown
} TypedArgument;

// An unknown name may be the spelling of another program, which is translated, ignored with its
// value, or refused: false with err.
static bool translate(Options *o, TypedArgument *a, char **argv, Error *err) {
    TypedOption meant = {.name = a->name,
                         .value = a->value,
                         .command = o->command,
                         .kv_type = o->model.load.kv_type,
                         .args = argv};
    Spelling spelling = spelling_translate(&meant, err);
    if (spelling == SPELLING_REFUSED || spelling == SPELLING_SAMPLER) return false;
    if (spelling == SPELLING_VALUE && a->has_equals)
        return error_set(err, EXIT_USAGE, "%s: takes no value; use %s", a->name, meant.name);

    a->value = meant.value;
    a->is_ignored = spelling == SPELLING_IGNORED || spelling == SPELLING_IGNORED_VALUE;
    if (spelling == SPELLING_VALUE || spelling == SPELLING_IGNORED) a->is_next = false;
    if (a->is_ignored)
        buffer_printf(&o->ignored, " %s", a->name);
    else
        a->option = option_find(o, o->flag, meant.name, NULL);
    return true;
}

static bool is_optional(const Option *option) { return option->value && *option->value == '['; }

// Sets the option. The name of another option is not taken for a file.
static bool set_typed(Options *o, const TypedArgument *a, Error *err) {
    const Option *option = a->option;
    const char *value = a->value;
    bool is_file = option->kind >= OPTION_INPUT && option->kind <= OPTION_DIRECTORY;

    if (!module_check(option->module, a->name, err)) return false;
    if (is_file && a->is_next && value && option_find(o, o->flag, value, NULL)) value = NULL;
    if (is_optional(option) && !value) value = "1";
    if (option->kind != OPTION_FLAG && !value)
        return error_set(err, EXIT_USAGE, "%s: missing value (%s)", a->name, option->value);

    o->is_given[option - option_table] = true;
    return option_set(o, option, a->name, value, err);
}

// True if the value of an option is the argument after "=" or the next one.
static bool takes_value(const TypedArgument *a) {
    int64_t whole;
    if (!a->option || a->has_equals || !a->is_next) return true;
    if (is_optional(a->option)) return parse_i64(a->value, &whole);
    return a->option->kind != OPTION_FLAG;
}

// Parses the option at argv[*i] and advances *i to its last argument.
static bool parse_option(Options *o, char **argv, int *i, Error *err) {
    const char *equals = strncmp(argv[*i], "--", 2) ? NULL : strchr(argv[*i], '=');
    TypedArgument a = {.value = equals ? equals + 1 : argv[*i + 1],
                       .has_equals = equals,
                       .is_next = !equals && argv[*i + 1]};
    snprintf(a.name, sizeof a.name, "%s", argv[*i]);
    if (equals) a.name[strcspn(a.name, "=")] = 0;

    a.option = option_find(o, o->flag, a.name, NULL);
    if (!a.option && !translate(o, &a, argv + *i, err)) return false;
    if (!a.option && !a.is_ignored) return option_find(o, o->flag, a.name, err);

    bool has_value = takes_value(&a);
    if (!has_value) a.value = NULL;
    *i += a.is_next && has_value;
    return a.is_ignored || set_typed(o, &a, err);
}

// Puts '@' before a --grammar without "::=" and a --json-schema that ends in ".json": file names.
static void mark_files(Options *o) {
    if (o->text.grammar && *o->text.grammar != '@' && !strstr(o->text.grammar, "::="))
        o->text.grammar = text_format("@%s", o->text.grammar);
    if (o->text.json_schema && *o->text.json_schema != '@' &&
        str_ends_with(str_of(o->text.json_schema), ".json"))
        o->text.json_schema = text_format("@%s", o->text.json_schema);
}

// --help works anywhere, even if other options are wrong.
static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

// True for text, "-", a negative number and, after `help`, the name of an option.
static bool is_positional(const Options *o, const char *arg) {
    bool is_number = arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9';
    if (arg[0] != '-' || !arg[1] || is_number) return true;
    return o->flag == CMD_HELP && !option_find(o, o->flag, arg, NULL) &&
           option_find(o, CMD_ALL, arg, NULL);
}

bool options_parse(Options *o, int argc, char **argv, Error *err) {
    bool has_ended = false; // after "--"

    o->help.wants_usage = asks_for_help(argc, argv);
    if (o->help.wants_usage) return true;

    for (int i = 0; i < argc; i++) {
        if (!has_ended && !strcmp(argv[i], "--"))
            has_ended = true;
        else if (has_ended || is_positional(o, argv[i]))
            o->args[o->n_args++] = argv[i];
        else if (!parse_option(o, argv, &i, err))
            return false;
    }

    mark_files(o);
    o->model.load.is_batch = o->flag & (REQUESTS | CMD_SHOW) || o->output.n_choices > 1;
    bool is_measured = o->flag == CMD_BENCH && !o->is_quiet; // the speed is the result
    if ((o->is_verbose || is_measured) && o->ignored.len)
        fprintf(stderr, "llama31: options without effect:%s\n", o->ignored.data);
    return true;
}
