// See spellings.h.
#include "cli/spellings.h"

#include <unistd.h>

// Options of `llama-cli --help` and `llama-bench --help` that option_table lacks, and commands of
// ollama. --ordered-properties names the default that --any-order changes; files replace `cache`.
// The first row that matches decides. An option is accepted without effect only if it cannot change
// a result: it asks for what is the case anyway, or concerns the speed or the messages of
// llama.cpp.
static const struct {
    Spelling kind;
    const char *names; // separated by spaces; *PART: all names that contain PART
    const char *text;  // OPTION, FILE, EXISTING, INVERSE: the name in the option table. VALUE: the
                       // name, a NUL, and the value. REFUSED, SAMPLER: the reason.
                       // IGNORED_VALUE: the possible values (NULL: any); with any other value, the
                       // row does not match
} spellings[] = {
    {SPELLING_OPTION, "--batch-size", "-b"},
    {SPELLING_OPTION,
     "--predict --max-completion-tokens --max-new-tokens --num-predict --max-length", "-n"},
    {SPELLING_OPTION, "--repetition-penalty", "--repeat-penalty"},
    {SPELLING_OPTION, "--thinking-budget", "--reasoning-budget"},
    {SPELLING_OPTION, "--ctx --num-ctx --n-ctx", "-c"},
    {SPELLING_OPTION, "--resume", "--continue"},
    {SPELLING_EXISTING, "--load", "--session"},
    {SPELLING_OPTION, "--rope-freq-base", "--rope-theta"},
    {SPELLING_OPTION, "--yarn-orig-ctx", "--rope-orig-ctx"},
    {SPELLING_OPTION, "--chat-template --chat-template-file", "--template"},
    {SPELLING_OPTION, "--grammar-file", "--grammar"},
    {SPELLING_OPTION, "-j --schema", "--json-schema"},
    {SPELLING_OPTION, "-md --model-draft --spec-draft-model", "--draft"},
    {SPELLING_OPTION, "-l", "--logit-bias"},
    {SPELLING_OPTION, "--lora-scaled", "--lora"},
    {SPELLING_OPTION, "-sp", "--special"},
    {SPELLING_OPTION, "-no-cnv --no-conversation", "--raw"},
    {SPELLING_OPTION, "--display-prompt", "--echo"},
    {SPELLING_OPTION, "--log-disable --no-show-timings --silent", "-q"},
    {SPELLING_OPTION, "--log-verbose", "-v"},
    {SPELLING_OPTION, "--usage", "--help"},
    {SPELLING_OPTION, "-V", "--version"},
    {SPELLING_FILE, "-jf --json-schema-file", "--json-schema"},
    {SPELLING_FILE, "-sysf --system-prompt-file", "-sys"},
    {SPELLING_OPTION, "-ctk --cache-type-k -ctv --cache-type-v", "--kv"},
    {SPELLING_INVERSE, "--rope-freq-scale", "--rope-scale"},
    {SPELLING_VALUE, "--think", "--reasoning\0on"},
    {SPELLING_VALUE, "--no-think", "--reasoning\0off"},
    {SPELLING_VALUE, "--no-sandbox", "--sandbox\0none"},

    // Without effect.
    {SPELLING_IGNORED_VALUE, "--log-colors -co --color -fa --flash-attn -fit --fit",
     "on off auto always never"},
    {SPELLING_IGNORED_VALUE,
     "--log-level --keepalive -ngl -ngld *gpu-layers *draft-ngl -fitt --fit-target -fitc --fit-ctx "
     "-ncmoe -ncmoed "
     "*n-cpu-moe *draft-ncmoe -ub --ubatch-size *-prio *-poll -lv --verbosity --log-verbosity "
     "-np --parallel -dt --defrag-thold -ctxcp *-checkpoints -cram --cache-ram --draft-max "
     "--draft-min --draft-n --draft-n-min *draft-p- *spec-draft-n-",
     NULL},
    {SPELLING_IGNORED,
     "--stream --no-stream --nowordwrap --no-color -st --single-turn --simple-io "
     "--no-display-prompt --no-escape --no-warmup --warmup --mmap "
     "--no-mmap --no-kv-offload -nkvo --no-op-offload *no-mmproj *no-spec-draft-backend --repack "
     "-nr --no-repack -cb --cont-batching --no-context-shift --jinja --no-host --swa-full "
     "*log-timestamps *log-prefix --perf --no-perf --show-timings --offline -ndio --no-direct-io "
     "-kvu *kv-unified -cmoe -cmoed *cpu-moe --spec-default --no-skip-chat-parsing --log-colors "
     "-co --color -fa --flash-attn -fit --fit --ordered-properties --allow-requantize -mli "
     "--multiline-input",
     NULL},

    // Sampling methods: their neutral values, parameters without effect on others, and the methods.
    {SPELLING_IGNORED_VALUE, "--mirostat --xtc-probability --dynatemp-range", "0 0.0 0.00"},
    {SPELLING_IGNORED_VALUE, "*mirostat- --xtc-threshold *dynatemp-exp --adaptive-decay", NULL},
    {SPELLING_IGNORED_VALUE, "--typical --typical-p", "1 1.0 1.00"},
    {SPELLING_IGNORED_VALUE, "--top-nsigma --top-n-sigma --adaptive-target", "-1 -1.0 -1.00"},
    {SPELLING_SAMPLER, "--mirostat", "no Mirostat; use --temp with --min-p or --top-p"},
    {SPELLING_SAMPLER, "--typical --typical-p", "no locally typical sampling; use --top-p"},
    {SPELLING_SAMPLER, "--top-nsigma --top-n-sigma", "no top-n-sigma sampling; use --min-p"},
    {SPELLING_SAMPLER, "--xtc-probability", "no XTC; use a higher --temp with --min-p"},
    {SPELLING_SAMPLER, "--dynatemp-range", "no dynamic temperature; use --temp with --min-p"},
    {SPELLING_SAMPLER, "--adaptive-target", "no adaptive-p; use --temp with --min-p"},
    {SPELLING_SAMPLER, "--samplers --sampler-seq --sampling-seq",
     "the order is fixed: penalties, DRY, temperature, top-k, min-p, top-p"},

    // GPUs, images and sound: one rule by parts of names; short names have none.
    {SPELLING_REFUSED,
     "*gpu *device *split-mode *tensor-split *override-tensor *offload *backend *rpc *mmproj "
     "*image *audio *video -dev -devd -sm -ts -mg -ot -otd -kvo -bs -mm -mmu -mmdev",
     "llama31 runs text models on the CPU only"},

    {SPELLING_REFUSED, "-hf -hfr --hf-repo",
     "llama31 does not download models; run: hf download REPO --include '*Q4_K_M.gguf' "
     "--local-dir ."},
    {SPELLING_REFUSED,
     "pull *hf- *draft-hf -hff -hft -hfd -hfrd -hfv -hfrv -hffv -mu --model-url -dr --docker-repo "
     "*-default",
     "llama31 does not download models; pass a GGUF file (-m FILE, docs/models.md)"},
    {SPELLING_REFUSED, "list ls models rm cp info inspect -cl --cache-list --license",
     "models are plain files (scripts/get_model.sh loads some); llama31 show FILE describes one"},
    {SPELLING_REFUSED, "create convert", "use scripts/export.py, which makes GGUF files"},
    {SPELLING_REFUSED, "generate prompt ask complete",
     "use llama31 run TEXT (without a template: --raw)"},
    {SPELLING_REFUSED, "perplexity count", "use llama31 score --perplexity FILE, tokenize --count"},
    {SPELLING_REFUSED, "--format", "use --json for the result, --json-schema '{}' for the text"},
    {SPELLING_REFUSED, "--json", "use --ids or --jsonl for tokenize; batch always writes JSON"},
    {SPELLING_REFUSED, "--ids", "use score --jsonl, whose texts may be arrays of token ids"},
    {SPELLING_REFUSED, "--messages",
     "use batch, whose requests have messages; chat: --session FILE"},
    {SPELLING_REFUSED, "--timeout", "use the command timeout: timeout 60 llama31 ..."},
    {SPELLING_REFUSED, "cache",
     "a prefix cache is a directory of files; use ls, rm, and --cache-size"},
    {SPELLING_REFUSED, "embed", "llama31 has no embeddings; see logits and score"},
    {SPELLING_REFUSED, "--completion-bash completion", "use llama31 help --completion bash"},
    {SPELLING_REFUSED, "serve server stop ps --host --port --server-base",
     "not a server; see llama31 help batch"},
    {SPELLING_REFUSED, "*control-vector", "not supported; LoRA adapters are (--lora)"},
    {SPELLING_REFUSED, "-e --escape", "no escape sequences; use the shell's $'...' or -f FILE"},
    {SPELLING_REFUSED, "-bf --binary-file", "use -f FILE --keep-newline"},
    {SPELLING_REFUSED, "-cnv --conversation -i --interactive -if --interactive-first",
     "use the command chat, which is interactive; run answers one prompt"},
    {SPELLING_REFUSED, "--mlock -lm --load-mode -dio --direct-io",
     "no option; the model is memory-mapped and stays in the page cache"},
    {SPELLING_REFUSED, "--numa", "no option; see NUMA in docs/performance.md, and numactl"},
    {SPELLING_REFUSED, "*cpu-mask *cpu-range *cpu-strict -C -Cb -Cr -Crb -Cd -Cbd -Crd -Crbd",
     "use taskset, whose CPUs are respected; -t N sets the number of threads"},
    {SPELLING_REFUSED, "--keep --context-shift",
     "the context is never shifted; see chat --keep-going"},
    {SPELLING_REFUSED, "--check-tensors", "use llama31 show --check -m FILE"},
    {SPELLING_REFUSED, "--verbose-prompt --log-prompts-dir",
     "use llama31 tokenize, or chat --show-tokens"},
    {SPELLING_REFUSED, "*prompt-cache *cache-prompt", "use --cache DIR"},
    {SPELLING_REFUSED, "-o --output --output-file", "the text goes to standard output: > FILE"},
    {SPELLING_REFUSED, "--log-file", "messages go to standard error: 2> FILE"},
    {SPELLING_REFUSED, "-r --repetitions", "no option of this command; bench: -n N"},
    {SPELLING_REFUSED, "-p --n-prompt",
     "no option of this command, which reads its input; run: -p, bench: --tests p512,d0"},
    {SPELLING_REFUSED, "--reasoning-format",
     "reasoning_content is apart with --json, in chat and in batch; --reasoning off: none"},
    {SPELLING_REFUSED, "--no-jinja",
     "chat templates are Jinja; --template NAME chooses a built-in one, --raw uses none"},
    {SPELLING_REFUSED, "*in-prefix --in-suffix", "use --template FILE.jinja, or --raw"},
    {SPELLING_REFUSED, "--template-var", "use --chat-template-kwargs '{\"NAME\": VALUE}'"},
    {SPELLING_REFUSED, "--rotate --decay",
     "an option of scripts/plot_rope.py, which reads rope --positions A..B --json"},
    {SPELLING_REFUSED, "--override-kv", "not supported, except for RoPE (--rope-...)"},
    {SPELLING_REFUSED, "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     "YaRN parameters come from the model file or the paper (beta 1 and 32)"},
    {SPELLING_REFUSED, "-td -tbd *threads-draft *threads-batch-draft *draft-threads",
     "the draft model runs on the threads of -t"},
    {SPELLING_REFUSED, "-ctkd -ctvd --cache-type-k-draft --cache-type-v-draft *spec-draft-type",
     "the KV cache of a draft model is f16"},
    {SPELLING_REFUSED, "-gan -gaw *grp-attn -ptc --print-token-count --skip-chat-parsing",
     "not supported, and nothing here replaces it"},
    {SPELLING_REFUSED, "*spec-type *spec-ngram",
     "use --draft FILE or --no-lookup; the number of drafts adapts to their success"},
};

// True if a name is in a list of names and parts of names.
static bool has_name(const char *list, Str name) {
    while (*list) {
        Str item = {list, strcspn(list, " ")};
        list += item.len + (list[item.len] == ' ');
        bool is_part = item.data[0] == '*';
        if (is_part ? str_find(name, (Str){item.data + 1, item.len - 1}) != SIZE_MAX
                    : str_eq(name, item))
            return true;
    }
    return false;
}

Spelling spelling_translate(const char **name, const char **value, const char *kv_type,
                            Error *err) {
    size_t i = 0, n = sizeof spellings / sizeof *spellings;

    // "--top_p" is --top-p. No option has a longer name.
    static char dashed[64];
    bool has_underscore = (*name)[0] == '-' && strchr(*name, '_') && strlen(*name) < sizeof dashed;
    if (has_underscore) *name = strcpy(dashed, *name);
    for (char *c = dashed; has_underscore && *c; c++)
        if (*c == '_') *c = '-';

    for (; i < n; i++) {
        bool takes_any = spellings[i].kind != SPELLING_IGNORED_VALUE || !spellings[i].text;
        if (has_name(spellings[i].names, str_of(*name)) &&
            (takes_any || (*value && str_is_one_of(str_of(*value), spellings[i].text))))
            break;
    }
    if (i == n) return has_underscore ? SPELLING_OPTION : SPELLING_UNKNOWN;

    Spelling kind = spellings[i].kind;
    const char *text = spellings[i].text;
    double number;

    if (kind == SPELLING_REFUSED || kind == SPELLING_SAMPLER)
        error_set(err, EXIT_USAGE, "%s: %s", *name, text);
    if (kind > SPELLING_VALUE) return kind; // nothing to replace

    if (!strcmp(text, "--kv") && *value) { // llama.cpp: -ctk sets keys, -ctv values
        const char *old = kv_type ? kv_type : "f16";
        const char *comma = strchr(old, ',');
        *value = str_ends_with(str_of(*name), "v")
                     ? text_format("%.*s,%s", (int)strcspn(old, ","), old, *value)
                     : text_format("%s,%s", *value, comma ? comma + 1 : old);
    }
    if (kind == SPELLING_FILE && *value) *value = text_format("@%s", *value);
    if (kind == SPELLING_EXISTING && *value && access(*value, F_OK)) {
        error_file(err, *value);
        return SPELLING_REFUSED;
    }
    if (kind == SPELLING_INVERSE && *value && parse_f64(*value, &number) && number != 0)
        *value = text_format("%.17g", 1 / number);
    if (kind == SPELLING_VALUE) *value = text + strlen(text) + 1;
    *name = text;
    return kind;
}
