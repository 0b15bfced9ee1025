// See spellings.h.
#include "spellings.h"

// Options of `llama-cli --help` and `llama-bench --help` that option_table lacks, and commands of
// ollama. --ordered-properties is the former name of a default of llama31.
static const struct {
    Spelling kind;
    const char *names; // separated by spaces
    const char *text;  // OPTION, FILE: the name in the option table. REFUSED: the reason.
                       // IGNORED_VALUE: the possible values (NULL: any); any other argument is
                       // not its value
} spellings[] = {
    {SPELLING_OPTION, "--batch-size", "-b"},
    {SPELLING_OPTION, "--rope-freq-base", "--rope-theta"},
    {SPELLING_OPTION, "--yarn-orig-ctx", "--rope-orig-ctx"},
    {SPELLING_OPTION, "--chat-template --chat-template-file", "--template"},
    {SPELLING_OPTION, "--grammar-file", "--grammar"},
    {SPELLING_OPTION, "-j", "--json-schema"},
    {SPELLING_OPTION, "-md --model-draft", "--draft"},
    {SPELLING_OPTION, "-l", "--logit-bias"},
    {SPELLING_OPTION, "--lora-scaled", "--lora"},
    {SPELLING_OPTION, "-sp", "--special"},
    {SPELLING_OPTION, "-np", "--parallel"},
    {SPELLING_OPTION, "-no-cnv --no-conversation", "--raw"},
    {SPELLING_OPTION, "--log-disable", "-q"},
    {SPELLING_FILE, "-jf --json-schema-file", "--json-schema"},
    {SPELLING_FILE, "-sysf --system-prompt-file", "-sys"},
    {SPELLING_OPTION, "-ctk --cache-type-k -ctv --cache-type-v", "--kv"},
    {SPELLING_IGNORED,
     "-st --single-turn --simple-io --no-display-prompt --no-escape --no-warmup --warmup --mmap "
     "--no-mmap --no-kv-offload -nkvo --no-op-offload --no-repack -cb --cont-batching "
     "--no-context-shift --jinja --no-host --swa-full --log-timestamps --log-prefix --perf "
     "--no-perf --offline --ordered-properties "
     "--allow-requantize -mli --multiline-input",
     NULL},
    {SPELLING_IGNORED_VALUE, "--log-colors -co --color -fa --flash-attn", "on off auto"},
    {SPELLING_IGNORED_VALUE,
     "-ngl --gpu-layers --n-gpu-layers -ub --ubatch-size --prio --poll -lv "
     "--log-verbosity --prio-batch --poll-batch --draft-max --draft-min --draft-p-min -dt "
     "--defrag-thold",
     NULL},
    {SPELLING_REFUSED,
     "-dev --device --list-devices -sm --split-mode -ts --tensor-split -mg --main-gpu -ot "
     "--override-tensor",
     "llama31 runs on the CPU only"},
    {SPELLING_REFUSED, "-hf --hf-repo", NULL}, // value: REPO or REPO:TYPE
    {SPELLING_REFUSED, "pull -hff --hf-file -mu --model-url",
     "llama31 does not download models; pass a GGUF file (-m FILE, docs/models.md)"},
    {SPELLING_REFUSED, "list ls", "models are files; llama31 show FILE.gguf describes one"},
    {SPELLING_REFUSED, "embed", "llama31 has no embeddings; see logits and score"},
    {SPELLING_REFUSED, "version -V", "use llama31 --version"},
    {SPELLING_REFUSED, "serve server --host --port", "not a server; see llama31 help batch"},
    {SPELLING_REFUSED,
     "--mirostat --typical --xtc-probability --dynatemp-range --dry-multiplier --samplers "
     "--top-nsigma",
     "unsupported sampler; use --temp, --top-k, --top-p, --min-p and penalties"},
    {SPELLING_REFUSED, "--control-vector", "not supported; LoRA adapters are (--lora)"},
    {SPELLING_REFUSED, "--mmproj --image", "only text models are supported"},
    {SPELLING_REFUSED, "-e --escape", "no escape sequences; use the shell's $'...' or -f FILE"},
    {SPELLING_REFUSED, "-cnv --conversation -i --interactive -if --interactive-first",
     "use the command chat, which is interactive; run answers one prompt"},
    {SPELLING_REFUSED, "--mlock", "not supported; the mapped model stays in the page cache"},
    {SPELLING_REFUSED, "--numa", "no option; see NUMA in docs/performance.md, and numactl"},
    {SPELLING_REFUSED, "--keep", "the context is never shifted; see chat --keep-going"},
    {SPELLING_REFUSED, "--check-tensors", "use llama31 show --check -m FILE"},
    {SPELLING_REFUSED, "--verbose-prompt", "use llama31 tokenize, or chat --show-tokens"},
    {SPELLING_REFUSED, "--prompt-cache", "use --cache DIR"},
    {SPELLING_REFUSED, "-o --output", "the text goes to standard output: > FILE"},
    {SPELLING_REFUSED, "-r --repetitions", "no option of this command; bench: -n N"},
    {SPELLING_REFUSED, "-p --n-prompt", "no option of this command; bench: --tests p512,d0"},
    {SPELLING_REFUSED, "--reasoning-budget --reasoning-format",
     "use --template-var enable_thinking=false"},
    {SPELLING_REFUSED, "--in-prefix --in-suffix", "use --template FILE.jinja, or --raw"},
    {SPELLING_REFUSED, "--override-kv", "not supported, except for RoPE (--rope-...)"},
    {SPELLING_REFUSED, "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     "YaRN parameters come from the model file or the paper (beta 1 and 32)"},
};

Spelling spelling_translate(const char **name, const char **value, const char *kv_type,
                            Error *err) {
    size_t i = 0, n = sizeof spellings / sizeof *spellings;
    while (i < n && !str_is_one_of(str_of(*name), spellings[i].names)) i++;
    if (i == n) return SPELLING_UNKNOWN;

    Spelling kind = spellings[i].kind;
    const char *text = spellings[i].text;
    if (kind == SPELLING_IGNORED_VALUE && text && !(*value && str_is_one_of(str_of(*value), text)))
        return SPELLING_IGNORED;

    // -hf is refused with a command that downloads the model, other options with the text of their
    // row.
    if (kind == SPELLING_REFUSED && !text) {
        const char *repo = *value ? *value : "REPO";
        const char *type = repo + strcspn(repo, ":");
        error_set(err, EXIT_USAGE,
                  "%s: llama31 does not download models; run: hf download %.*s --include "
                  "'*%s.gguf' --local-dir .",
                  *name, (int)(type - repo), repo, *type ? type + 1 : "Q4_K_M");
    } else if (kind == SPELLING_REFUSED) {
        error_set(err, EXIT_USAGE, "%s: %s", *name, text);
    }

    if (kind != SPELLING_OPTION && kind != SPELLING_FILE) return kind;

    if (!strcmp(text, "--kv") && *value) { // llama.cpp: -ctk sets keys, -ctv values
        const char *old = kv_type ? kv_type : "f16";
        const char *comma = strchr(old, ',');
        *value = str_ends_with(str_of(*name), "v")
                     ? text_format("%.*s,%s", (int)strcspn(old, ","), old, *value)
                     : text_format("%s,%s", *value, comma ? comma + 1 : old);
    }
    if (kind == SPELLING_FILE && *value) *value = text_format("@%s", *value);
    *name = text;
    return kind;
}
