// See spellings.h.
//
// Order: the conversions of values, the table, the look-up.
#include "cli/spellings.h"

#include <unistd.h>

// Returns what a value means for the option of the row, or NULL with err.
typedef const char *Conversion(const TypedOption *typed, Error *err);

// What an option means that has one of these names. The first row that matches decides.
typedef struct {
    const char *names; // separated by spaces; *PART: all names that contain PART
    Spelling kind;
    const char *option;   // its name in the option table
    const char *value;    // the value of that option
    Conversion *convert;  // of a typed value; of a refusal: adds to err what was typed
    const char *values;   // the row matches only with one of these; NULL: any value, or none
    const char *commands; // the row matches only for one of these; NULL: for any
    const char *reason;   // of a refusal
} SpellingRow;

// Conversions of values.

// --json-schema and -sys read a file if its name follows "@".
static const char *name_file(const TypedOption *typed, Error *err) {
    (void)err;
    return text_format("@%s", typed->value);
}

// A file that does not exist is an error, where --session would begin one.
static const char *require_file(const TypedOption *typed, Error *err) {
    if (!access(typed->value, F_OK)) return typed->value;
    error_file(err, typed->value);
    return NULL;
}

// --rope-scale multiplies the context, its inverse the frequencies. What has no inverse is refused
// as a value of --rope-scale.
static const char *invert(const TypedOption *typed, Error *err) {
    double number;
    (void)err;
    if (!parse_f64(typed->value, &number) || number == 0) return typed->value;
    return text_format("%.17g", 1 / number);
}

// llama.cpp has an option for the type of keys and one for that of values, --kv has KEYS,VALUES.
static const char *set_key_type(const TypedOption *typed, Error *err) {
    (void)err;
    if (!typed->kv_type) return typed->value;
    const char *comma = strchr(typed->kv_type, ',');
    return text_format("%s,%s", typed->value, comma ? comma + 1 : typed->kv_type);
}

static const char *set_value_type(const TypedOption *typed, Error *err) {
    (void)err;
    if (!typed->kv_type) return typed->value;
    int n_keys = (int)strcspn(typed->kv_type, ",");
    return text_format("%.*s,%s", n_keys, typed->kv_type, typed->value);
}

// The value of the first option with one of these names, or NULL.
static const char *find_argument(char *const *args, const char *names) {
    for (; *args; args++) {
        Str name = {*args, strcspn(*args, "=")};
        if (!str_is_one_of(name, names)) continue;
        return name.data[name.len] ? name.data + name.len + 1 : args[1];
    }
    return NULL;
}

#define NO_DOWNLOADS "llama31 does not download models; run: "

// Refuses -hf REPO, -hf REPO:TYPE and -hf REPO -hff FILE with the command that downloads the file.
// llama.cpp's default is Q4_K_M. A name without '/' is no repository.
static const char *suggest_download(const TypedOption *typed, Error *err) {
    if (!typed->args) return NULL;
    const char *repo = find_argument(typed->args, "-hf -hfr --hf-repo --hf_repo");
    const char *file = find_argument(typed->args, "-hff --hf-file --hf_file");
    if (!repo || !strchr(repo, '/')) return NULL;

    int n = (int)strcspn(repo, ":");
    const char *type = repo[n] ? repo + n + 1 : "Q4_K_M";
    if (file)
        error_set(err, EXIT_USAGE,
                  "%s: " NO_DOWNLOADS "curl -LO https://huggingface.co/%.*s/resolve/main/%s",
                  typed->name, n, repo, file);
    else
        error_set(err, EXIT_USAGE,
                  "%s: " NO_DOWNLOADS "hf download %.*s --include '*%s*.gguf' --local-dir .",
                  typed->name, n, repo, type);
    return NULL;
}

// What follows the names of a row: the same option under another name, with another value, or with
// a value that the name implies; no effect, also of a value, or only of some values; a refusal.
#define RENAMED(to)        .kind = SPELLING_OPTION, .option = to
#define CONVERTED(to, how) .kind = SPELLING_OPTION, .option = to, .convert = how
#define FIXED(to, text)    .kind = SPELLING_VALUE, .option = to, .value = text
#define IGNORED            .kind = SPELLING_IGNORED
#define IGNORED_VALUE      .kind = SPELLING_IGNORED_VALUE
#define IGNORED_IF(list)   .kind = SPELLING_IGNORED_VALUE, .values = list
#define REFUSED(why)       .kind = SPELLING_REFUSED, .reason = why
#define NO_SAMPLER(why)    .kind = SPELLING_SAMPLER, .reason = why

// Options of `llama-cli --help` and `llama-bench --help` that option_table lacks, and commands of
// ollama. --ordered-properties names the default that --any-order changes; files replace `cache`.
// An option is accepted without effect only if it cannot change a result of its command: it asks
// for what is the case anyway, or concerns the speed or the messages of llama.cpp.
static const SpellingRow spellings[] = {
    {"--batch-size", RENAMED("-b")},
    {"--predict --max-completion-tokens --max-new-tokens --num-predict --max-length",
     RENAMED("-n")},
    {"--repetition-penalty", RENAMED("--repeat-penalty")},
    {"--thinking-budget --thinking-token-budget --thinking-budget-tokens --reasoning-budget-tokens "
     "--reasoning-max-tokens --max-thinking-tokens",
     RENAMED("--reasoning-budget")},
    {"--ctx --num-ctx --n-ctx", RENAMED("-c")},
    {"--resume", RENAMED("--continue")},
    {"--load", CONVERTED("--session", require_file)},
    {"--rope-freq-base", RENAMED("--rope-theta")},
    {"--yarn-orig-ctx", RENAMED("--rope-orig-ctx")},
    {"--chat-template --chat-template-file", RENAMED("--template")},
    {"--grammar-file", RENAMED("--grammar")},
    {"-j --schema", RENAMED("--json-schema")},
    {"-md --model-draft --spec-draft-model", RENAMED("--draft")},
    {"-l", RENAMED("--logit-bias")},
    {"--lora-scaled", RENAMED("--lora")},
    {"-sp", RENAMED("--special")},
    {"-no-cnv --no-conversation", RENAMED("--raw")},
    {"--display-prompt", RENAMED("--echo")},
    {"--log-disable --no-show-timings --silent", RENAMED("-q")},
    {"--log-verbose", RENAMED("-v")},
    {"--usage", RENAMED("--help")},
    {"-V", RENAMED("--version")},
    {"-jf --json-schema-file", CONVERTED("--json-schema", name_file)},
    {"-sysf --system-prompt-file", CONVERTED("-sys", name_file)},
    {"-ctk --cache-type-k", CONVERTED("--kv", set_key_type)},
    {"-ctv --cache-type-v", CONVERTED("--kv", set_value_type)},
    {"--rope-freq-scale", CONVERTED("--rope-scale", invert)},
    {"--think", FIXED("--reasoning", "on")},
    {"--no-think", FIXED("--reasoning", "off")},
    {"--no-sandbox", FIXED("--sandbox", "none")},

    // What is the case for most commands is not for these.
    {"--stream", REFUSED("write \"stream\": true in the records"), .commands = "batch"},
    {"--no-stream", REFUSED("use --json, whose answers are written when they are complete"),
     .commands = "chat"},
    {"-st --single-turn", REFUSED("use the command run, which answers one prompt"),
     .commands = "chat"},
    {"-mli --multiline-input", REFUSED("end a line with \\, or use Alt-Enter or \"\"\""),
     .commands = "chat"},
    {"--nowordwrap",
     REFUSED("words are wrapped on a terminal only; pipes and /copy get the lines as they are"),
     .commands = "run chat"},
    {"--no-color", REFUSED("set NO_COLOR=1"), .commands = "run chat"},
    {"-co --color", REFUSED("set NO_COLOR=1"), .values = "off never", .commands = "run chat"},

    // Without effect.
    {"--log-colors -co --color -fa --flash-attn -fit --fit",
     IGNORED_IF("on off auto always never")},
    {"--log-level --keepalive -ngl -ngld *gpu-layers *draft-ngl -fitt --fit-target -fitc --fit-ctx "
     "-ncmoe -ncmoed *n-cpu-moe *draft-ncmoe -ub --ubatch-size *-prio *-poll -lv --verbosity "
     "--log-verbosity -np --parallel -dt --defrag-thold -ctxcp *-checkpoints -cram --cache-ram "
     "--draft-max "
     "--draft-min --draft-n --draft-n-min *draft-p- *spec-draft-n-",
     IGNORED_VALUE},
    {"--stream --no-stream --nowordwrap --no-color -st --single-turn --simple-io "
     "--no-display-prompt --no-escape --no-warmup --warmup --mmap "
     "--no-mmap --no-kv-offload -nkvo --no-op-offload *no-mmproj *no-spec-draft-backend --repack "
     "-nr --no-repack -cb --cont-batching --no-context-shift --jinja --no-host --swa-full "
     "*log-timestamps *log-prefix --perf --no-perf --show-timings --offline -ndio --no-direct-io "
     "-kvu *kv-unified -cmoe -cmoed *cpu-moe --spec-default --no-skip-chat-parsing --log-colors "
     "-co --color -fa --flash-attn -fit --fit --ordered-properties --allow-requantize -mli "
     "--multiline-input",
     IGNORED},

    // Sampling methods: their neutral values, parameters without effect on others, and the methods.
    {"--mirostat --xtc-probability --dynatemp-range", IGNORED_IF("0 0.0 0.00")},
    {"*mirostat- --xtc-threshold *dynatemp-exp --adaptive-decay", IGNORED_VALUE},
    {"--typical --typical-p", IGNORED_IF("1 1.0 1.00")},
    {"--top-nsigma --top-n-sigma --adaptive-target", IGNORED_IF("-1 -1.0 -1.00")},
    {"--mirostat", NO_SAMPLER("no Mirostat; use --temp with --min-p or --top-p")},
    {"--typical --typical-p", NO_SAMPLER("no locally typical sampling; use --top-p")},
    {"--top-nsigma --top-n-sigma", NO_SAMPLER("no top-n-sigma sampling; use --min-p")},
    {"--xtc-probability", NO_SAMPLER("no XTC; use a higher --temp with --min-p")},
    {"--dynatemp-range", NO_SAMPLER("no dynamic temperature; use --temp with --min-p")},
    {"--adaptive-target", NO_SAMPLER("no adaptive-p; use --temp with --min-p")},
    {"--sampler-seq --sampling-seq", NO_SAMPLER("use --samplers with names instead of letters")},

    // GPUs, images and sound: one rule by parts of names; short names have none.
    {"*gpu *device *split-mode *tensor-split *override-tensor *offload *backend *rpc *mmproj "
     "*image *audio *video -dev -devd -sm -ts -mg -ot -otd -kvo -bs -mm -mmu -mmdev",
     REFUSED("llama31 runs text models on the CPU only")},

    {"-hf -hfr --hf-repo -hff --hf-file",
     REFUSED(NO_DOWNLOADS "hf download REPO --include '*Q4_K_M*.gguf' --local-dir ."),
     .convert = suggest_download},
    {"pull *hf- *draft-hf -hft -hfd -hfrd -hfv -hfrv -hffv -mu --model-url -dr --docker-repo "
     "*-default",
     REFUSED("llama31 does not download models; pass a GGUF file (-m FILE, docs/models.md)")},
    {"list ls models rm cp info inspect -cl --cache-list --license",
     REFUSED("models are plain files (scripts/get_model.sh loads some); llama31 show FILE "
             "describes one")},
    {"create convert", REFUSED("use scripts/export.py, which makes GGUF files")},
    {"generate prompt ask complete", REFUSED("use llama31 run TEXT (without a template: --raw)")},
    {"perplexity count", REFUSED("use llama31 score --perplexity FILE, tokenize --count")},
    {"--format", REFUSED("use --json for the result, --json-schema '{}' for the text")},
    {"--json", REFUSED("use --ids or --jsonl for tokenize; batch always writes JSON")},
    {"--ids", REFUSED("use score --jsonl, whose texts may be arrays of token ids")},
    {"--messages", REFUSED("use batch, whose requests have messages; chat: --session FILE")},
    {"--timeout", REFUSED("use the command timeout: timeout 60 llama31 ...")},
    {"cache", REFUSED("a prefix cache is a directory of files; use ls, rm, and --cache-size")},
    {"embed", REFUSED("llama31 has no embeddings; see logits and score")},
    {"--completion-bash completion", REFUSED("use llama31 help --completion bash")},
    {"serve server stop ps --host --port --server-base",
     REFUSED("not a server; see llama31 help batch")},
    {"*control-vector", REFUSED("not supported; LoRA adapters are (--lora)")},
    {"-e --escape", REFUSED("no escape sequences; use the shell's $'...' or -f FILE")},
    {"-bf --binary-file", REFUSED("use -f FILE --keep-newline")},
    {"-cnv --conversation -i --interactive -if --interactive-first",
     REFUSED("use the command chat, which is interactive; run answers one prompt")},
    {"--mlock -lm --load-mode -dio --direct-io",
     REFUSED("no option; the model is memory-mapped and stays in the page cache")},
    {"--numa", REFUSED("no option; see NUMA in docs/performance.md, and numactl")},
    {"*cpu-mask *cpu-range *cpu-strict -C -Cb -Cr -Crb -Cd -Cbd -Crd -Crbd",
     REFUSED("use taskset, whose CPUs are respected; -t N sets the number of threads")},
    {"--keep --context-shift", REFUSED("the context is never shifted; see chat --keep-going")},
    {"--check-tensors", REFUSED("use llama31 show --check -m FILE")},
    {"--verbose-prompt --log-prompts-dir", REFUSED("use llama31 tokenize, or chat --show-tokens")},
    {"*prompt-cache *cache-prompt", REFUSED("use --cache DIR")},
    {"-o --output --output-file", REFUSED("the text goes to standard output: > FILE")},
    {"--log-file", REFUSED("messages go to standard error: 2> FILE")},
    {"-r --repetitions", REFUSED("no option of this command; bench: -n N")},
    {"-p --n-prompt",
     REFUSED("no option of this command, which reads its input; run: -p, bench: --tests p512,d0")},
    {"--reasoning-format", REFUSED("batch writes reasoning_content beside the text")},
    {"--no-jinja",
     REFUSED("chat templates are Jinja; --template NAME chooses a built-in one, --raw uses none")},
    {"*in-prefix --in-suffix", REFUSED("use --template FILE.jinja, or --raw")},
    {"--template-var", REFUSED("use --chat-template-kwargs '{\"NAME\": VALUE}'")},
    {"--kl", REFUSED("use scripts/compare_logits.py REFERENCE MODEL TEXT")},
    {"--stats", REFUSED("no option; tokenize reports the compile time on standard error")},
    {"--sweep", REFUSED("use build/sweep, which make sweep builds")},
    {"--rotate --decay",
     REFUSED("an option of scripts/plot_rope.py, which reads rope --positions A..B --json")},
    {"--override-kv", REFUSED("not supported, except for RoPE (--rope-...)")},
    {"--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     REFUSED("YaRN parameters come from the model file or the paper (beta 1 and 32)")},
    {"-td -tbd *threads-draft *threads-batch-draft *draft-threads",
     REFUSED("the draft model runs on the threads of -t")},
    {"-ctkd -ctvd --cache-type-k-draft --cache-type-v-draft *spec-draft-type",
     REFUSED("the KV cache of a draft model is f16")},
    {"-gan -gaw *grp-attn -ptc --print-token-count --skip-chat-parsing",
     REFUSED("not supported, and nothing here replaces it")},
    {"*spec-type *spec-ngram",
     REFUSED("use --draft FILE or --no-lookup; the number of drafts adapts to their success")},
};

// True if a name is in a list of names and parts of names.
static bool has_name(const char *list, Str name) {
    while (*list) {
        Str item = {list, strcspn(list, " ")};
        Str part = {item.data + 1, item.len - 1};
        bool is_part = item.data[0] == '*';
        if (is_part ? str_find(name, part) != SIZE_MAX : str_eq(name, item)) return true;
        list += item.len;
        list += strspn(list, " ");
    }
    return false;
}

static bool is_for(const SpellingRow *row, const char *command) {
    return !row->commands || (command && str_is_one_of(str_of(command), row->commands));
}

// The row of a typed option, or NULL.
static const SpellingRow *find_row(const TypedOption *typed) {
    size_t n = sizeof spellings / sizeof *spellings;
    for (const SpellingRow *row = spellings; row < spellings + n; row++) {
        if (!has_name(row->names, str_of(typed->name))) continue;
        if (!is_for(row, typed->command)) continue;
        if (!row->values) return row;
        if (typed->value && str_is_one_of(str_of(typed->value), row->values)) return row;
    }
    return NULL;
}

// "--top_p" is --top-p. Returns whether the name has changed. No option has a longer name.
static bool replace_underscores(TypedOption *typed) {
    const char *name = typed->name;
    bool fits = strlen(name) < sizeof typed->dashed;
    if (name[0] != '-' || !strchr(name, '_') || !fits) return false;

    strcpy(typed->dashed, name);
    for (char *c = typed->dashed; *c; c++)
        if (*c == '_') *c = '-';
    typed->name = typed->dashed;
    return true;
}

Spelling spelling_translate(TypedOption *typed, Error *err) {
    bool has_changed = replace_underscores(typed);
    const SpellingRow *row = find_row(typed);
    if (!row) return has_changed ? SPELLING_OPTION : SPELLING_UNKNOWN;

    if (row->reason) error_set(err, EXIT_USAGE, "%s: %s", typed->name, row->reason);

    if (row->convert && typed->value) {
        typed->value = row->convert(typed, err);
        if (!typed->value) return SPELLING_REFUSED;
    }
    if (row->value) typed->value = row->value;
    if (row->option) typed->name = row->option;

    return row->kind;
}
