#include "spellings.h"

#include <string.h>

typedef enum {
    RENAMED,        // `text` is the name here
    RENAMED_KV,     // the same, but keys and values have separate options there
    NO_EFFECT,      // a flag
    NO_EFFECT_MODE, // a flag that "on", "off" or "auto" may follow
    NO_EFFECT_VALUE,
    REFUSED // `text` says why
} SpellingKind;

// Options of `llama-cli --help` and `llama-bench --help` that option_table lacks; their names are
// separated by spaces.
static const struct {
    SpellingKind kind;
    const char *names, *text;
} spellings[] = {
    {RENAMED, "-tb --threads-batch", "-t"},
    {RENAMED, "--batch-size", "-b"},
    {RENAMED, "--rope-freq-base", "--rope-theta"},
    {RENAMED, "--yarn-orig-ctx", "--rope-orig-ctx"},
    {RENAMED, "--chat-template --chat-template-file", "--template"},
    {RENAMED, "--grammar-file", "--grammar"},
    {RENAMED, "-j", "--json-schema"},
    {RENAMED, "-md --model-draft", "--draft"},
    {RENAMED, "-l", "--logit-bias"},
    {RENAMED, "--lora-scaled", "--lora"},
    {RENAMED, "-sp", "--special"},
    {RENAMED, "-np", "--parallel"},
    {RENAMED_KV, "-ctk --cache-type-k -ctv --cache-type-v", "--kv"},
    {NO_EFFECT,
     "-cnv --conversation -no-cnv --no-conversation -st --single-turn -i --interactive -if "
     "--interactive-first --simple-io --no-display-prompt --no-escape --no-warmup --warmup --mmap "
     "--no-mmap --mlock --no-kv-offload -nkvo --no-op-offload --no-repack -cb --cont-batching "
     "--no-context-shift --jinja --check-tensors --no-host --swa-full --verbose-prompt "
     "--log-timestamps --log-prefix --perf --no-perf --offline --log-disable",
     NULL},
    {NO_EFFECT_MODE, "--log-colors -co --color -fa --flash-attn", NULL},
    {NO_EFFECT_VALUE,
     "-ngl --gpu-layers --n-gpu-layers -ub --ubatch-size --keep --numa --prio --poll -lv "
     "--log-verbosity --prio-batch --poll-batch --draft-max --draft-min --draft-p-min -dt "
     "--defrag-thold",
     NULL},
    {REFUSED,
     "-dev --device --list-devices -sm --split-mode -ts --tensor-split -mg --main-gpu -ot "
     "--override-tensor",
     "llama31 runs on the CPU only"},
    {REFUSED, "-hf --hf-repo -hff --hf-file -mu --model-url",
     "llama31 does not download models; pass a file (-m FILE)"},
    {REFUSED, "--host --port", "llama31 is not a server; batch completes a file of prompts"},
    {REFUSED, "--mirostat --typical --xtc-probability --dynatemp-range --dry-multiplier --samplers",
     "unsupported sampler; use --temp, --top-k, --top-p, --min-p and penalties"},
    {REFUSED, "--control-vector", "control vectors are not supported (LoRA adapters are: --lora)"},
    {REFUSED, "--mmproj --image", "only text models are supported"},
    {REFUSED, "-e --escape",
     "escape sequences in a prompt are not supported; use the shell's $'...' or -f FILE"},
    {REFUSED, "-sysf --system-prompt-file", "use -sys @FILE"},
    {REFUSED, "-jf --json-schema-file", "use --json-schema @FILE"},
    {REFUSED, "--prompt-cache", "use --cache DIR"},
    {REFUSED, "--override-kv", "model metadata cannot be overridden, except RoPE (--rope-...)"},
    {REFUSED, "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     "YaRN parameters come from the model file or the paper (beta 1 and 32)"},
};

// True if `names`, separated by spaces, has `name`.
static bool has_name(const char *names, const char *name) {
    size_t n = strlen(name);
    if (!n || strchr(name, ' ')) return false;
    for (const char *at = names; (at = strstr(at, name)); at += n)
        if ((at == names || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

Spelling spelling_translate(const char **name, const char *value, const char *kv_type, Error *err) {
    size_t i = 0, n = sizeof spellings / sizeof *spellings;
    while (i < n && !has_name(spellings[i].names, *name)) i++;
    if (i == n) return SPELLING_UNKNOWN;
    const char *text = spellings[i].text;
    switch (spellings[i].kind) {
    case NO_EFFECT: return SPELLING_IGNORED;
    case NO_EFFECT_VALUE: return SPELLING_IGNORED_VALUE;
    case NO_EFFECT_MODE:
        return value && has_name("on off auto", value) ? SPELLING_IGNORED_VALUE : SPELLING_IGNORED;
    case REFUSED: error_set(err, EXIT_USAGE, "%s: %s", *name, text); return SPELLING_REFUSED;
    case RENAMED_KV:
        if (value && kv_type && strcmp(value, kv_type)) {
            error_set(err, EXIT_USAGE, "%s: keys and values have one type; expected %s, found %s",
                      *name, kv_type, value);
            return SPELLING_REFUSED;
        }
        break;
    case RENAMED: break;
    }
    *name = text;
    return SPELLING_OPTION;
}
