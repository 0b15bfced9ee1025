"""config.json and generation_config.json of a Hugging Face directory: defaults, RoPE, sliding windows, sampling; and the
directory itself, which may be in a cache."""
import os
import re
import sys

from .checkpoints import read_json
from .gguf_writer import Failure
from .shapes import NUMBERS, ROPE, ROPE_BY_LAYER_TYPE, ROPE_UNUSED
from .weights import inside, read_bytes

# Defaults of keys that a config.json leaves out, by model_type. Source: the signatures of the configuration classes of
# transformers, LlamaConfig to GraniteMoeConfig (src/transformers/models/*/configuration_*.py), versions 4.57 and 5.0;
# RoPE's base is their rope_theta, default_theta in 5.0. Classes outside transformers have no row.
KEYS = """hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim vocab_size
    max_position_embeddings rms_norm_eps rope_theta tie_word_embeddings""".split()
DEFAULTS = {
    "llama": (4096, 11008, 32, 32, None, None, 32000, 2048, 1e-6, 1e4, False),
    "mistral": (4096, 14336, 32, 32, 8, None, 32000, 131072, 1e-6, 1e4, False),
    "qwen2": (4096, 22016, 32, 32, 32, None, 151936, 32768, 1e-6, 1e4, False),
    "qwen3": (4096, 22016, 32, 32, 32, 128, 151936, 32768, 1e-6, 1e4, False),
    "smollm3": (2048, 11008, 36, 16, 4, None, 128256, 32768, 1e-6, 2e6, True),
    "granite": (4096, 11008, 32, 32, None, None, 32000, 2048, 1e-6, 1e4, False),
    "ministral3": (4096, 14336, 34, 32, 8, 128, 131072, 262144, 1e-5, 1e6, False),
    "ernie4_5": (1024, 3072, 18, 16, 2, 128, 103424, 131072, 1e-5, 5e5, True),
    "mixtral": (4096, 14336, 32, 32, 8, None, 32000, 131072, 1e-5, 1e6, False),
    "qwen2_moe": (2048, 5632, 24, 16, 16, None, 151936, 32768, 1e-6, 1e4, False),
    "qwen3_moe": (2048, 6144, 24, 32, 4, None, 151936, 32768, 1e-6, 1e4, False),
    "granitemoe": (4096, 11008, 32, 32, None, None, 32000, 2048, 1e-6, 1e4, False),
    "granitemoeshared": (4096, 11008, 32, 32, None, None, 32000, 2048, 1e-6, 1e4, False),
    "ernie4_5_moe": (2560, 12288, 28, 20, 4, None, 103424, 131072, 1e-5, 5e5, True),
    "olmoe": (2048, 2048, 16, 16, None, None, 50304, 4096, 1e-5, 1e4, False),
    "dots1": (4608, 10944, 62, 32, 32, None, 152064, 2048, 1e-6, 1e4, False)}
MORE_DEFAULTS = {
    "mistral": {"sliding_window": 4096},
    "ministral3": {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                  "shared_expert_intermediate_size": 5632},
    "qwen3_moe": {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "granitemoe": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "granitemoeshared": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "ernie4_5_moe": {"moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2, "moe_intermediate_size": 1536,
                     "moe_layer_start_index": 1},
    "olmoe": {"num_experts": 64, "num_experts_per_tok": 8},
    "dots1": {"sliding_window": 4096, "max_window_layers": 62}}
# Classes with sliding windows: the key that enables them, and whether max_window_layers is the first layer with one.
WINDOWS = {"mistral": (None, False), "mixtral": (None, False), "ministral3": (None, False), "dots1": (None, True),
           "qwen2": ("use_sliding_window", True), "qwen3": ("use_sliding_window", True),
           "qwen2_moe": ("use_sliding_window", False), "qwen3_moe": ("use_sliding_window", False),
           "smollm3": ("use_sliding_window", False)}
# RoPE rules: the numbers that they need, and others that they use.
ORIGINAL = "original_max_position_embeddings"
ROPE_RULES = {
    "default": ("", ""), "linear": ("factor", ""), "llama3": ("factor low_freq_factor high_freq_factor " + ORIGINAL, ""),
    "yarn": ("factor", ORIGINAL + " attention_factor truncate beta_fast beta_slow mscale mscale_all_dim")}
ROPE_ANY = "rope_type", "type", "rope_theta", "partial_rotary_factor", "llama_4_scaling_beta"  # of every rule
SAMPLING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
            "repetition_penalty": "penalty_repeat"}
# Settings that a GGUF file cannot hold, with their default values. None: every value except false is reported.
NEUTRAL = {
    "generation_config.json": {
        "num_beams": 1, "typical_p": 1, "guidance_scale": 1, "encoder_repetition_penalty": 1, **dict.fromkeys(
            """epsilon_cutoff eta_cutoff no_repeat_ngram_size penalty_alpha min_new_tokens min_length bad_words_ids
            suppress_tokens begin_suppress_tokens sequence_bias stop_strings forced_bos_token_id forced_eos_token_id""".split())},
    "tokenizer_config.json": {"add_eos_token": None}}


def note(form, *values):
    text = form % values
    sys.stderr.write("note: %s\n" % "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:6000])


def read_optional(directory, name, *limit):
    """The object in a JSON file, {} if there is none."""
    return read_json(directory, name, *limit) if os.path.lexists(os.path.join(directory, name)) else {}


def read_settings(directory, name):
    """The same. Names the settings that cannot be exported."""
    settings = read_optional(directory, name)
    for key, neutral in NEUTRAL[name].items():
        if settings.get(key) and settings[key] != neutral:
            note("%s: %s %s is not supported", name, key, ascii(settings[key])[:60])
    return settings


def read_config(directory):
    """config.json, or the part that describes its text model, with the defaults of its class."""
    config = read_json(directory, "config.json")
    if config.get("model_type") == "mistral3" and config.get("text_config"):
        outer = {key: config[key] for key in ("tie_word_embeddings",) if config.get(key) is not None}
        config = dict(config["text_config"], has_other_parts=True, **outer)

    # A draft head of speculators, whose layer is described by an object of its own.
    if config.get("transformer_layer_config"):
        config = {**config, **config["transformer_layer_config"]}

    has_null_as_absent = NUMBERS.split() + ["tie_word_embeddings"]  # sliding_window: null is no window
    config = {key: v for key, v in config.items() if v is not None or key not in has_null_as_absent}
    model_type = config.get("model_type")
    defaults = dict(zip(KEYS, DEFAULTS.get(model_type, ())), **MORE_DEFAULTS.get(model_type, {}))
    if config.get("rope_scaling") or "rope_theta" in config:
        defaults.pop("rope_parameters", None)
    config["rope"] = rope_of({**defaults, **config}, "rope_theta" in config)
    config["is_tie_given"] = "tie_word_embeddings" in config
    return {**defaults, **config}


def rope_of(config, has_theta):
    """The RoPE of all layers as one object. rope_parameters (transformers 5) wins over rope_scaling and rope_theta."""
    old = dict(config.get("rope_scaling") or {})
    key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    rope = config.get(key) or {}

    # One object for each type of layers.
    if set(rope) & set(ROPE_BY_LAYER_TYPE):
        used = sorted(set(config.get("layer_types") or ["full_attention"]))
        rules = [rope.get(kind) for kind in used]
        if None in rules or any(rule != rules[0] for rule in rules):
            raise Failure("config.json: %s: expected the same for %s; other layers cannot be exported" %
                          (key, " and ".join(used)))
        rope = rules[0]

    rope = {name: v for name, v in rope.items() if v is not None and name not in ROPE_UNUSED}
    for name in sorted(set(rope) - set(ROPE)):
        raise Failure("config.json: %s: %s is not supported" % (key, ascii(name)[:60]))
    if has_theta:
        old["rope_theta"] = config["rope_theta"]
    if key == "rope_parameters" and any(name in rope and rope[name] != v for name, v in old.items()):
        note("config.json: rope_parameters is used, not rope_scaling and rope_theta, which differ")

    # The rule and its numbers.
    kinds = [rope[name] for name in ("rope_type", "type") if name in rope] or ["default"]
    rule = rope["rope_type"] = kinds[0]
    if rule not in ROPE_RULES or rule != kinds[-1]:
        raise Failure("config.json: %s: expected llama3, linear or yarn, found %s" % (key, ascii(" and ".join(kinds))))
    needed, used = (names.split() for names in ROPE_RULES[rule])
    unused = [name for name in rope if name not in (*needed, *used, *ROPE_ANY)]
    if unused:
        note("config.json: %s: %s: not used by the rule %s", key, ", ".join(unused), rule)
    for name in needed:
        if not 0 < rope.get(name, 0) < 1e9:
            raise Failure("config.json: %s: %s: expected a positive number, found %s" % (key, name, rope.get(name)))
    if rule == "llama3" and not rope["low_freq_factor"] < rope["high_freq_factor"]:
        raise Failure("config.json: %s: high_freq_factor: expected more than low_freq_factor" % key)
    if not 0 < rope.get(ORIGINAL, 1) < 1 << 31:
        raise Failure("config.json: %s: %s: expected a context length" % (key, ORIGINAL))
    rope.setdefault("partial_rotary_factor", config.get("partial_rotary_factor"))
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return rope


def window_of(config):
    """The size of the sliding window that some layers have, or None."""
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    for kind in kinds or ():
        if kind not in ROPE_BY_LAYER_TYPE:
            raise Failure("config.json: layer_types: expected full_attention, found %s" % ascii(kind))
    if not window or config.get("use_sliding_window") is False or kinds and "sliding_attention" not in kinds:
        if kinds and "sliding_attention" in kinds:
            raise Failure("config.json: layer_types: sliding_attention, but sliding_window is not in use")
        return None

    if config["model_type"] not in WINDOWS or window < 0:
        raise Failure("config.json: sliding_window: expected none, found %s" % window)
    switch, has_first = WINDOWS[config["model_type"]]
    first = config.get("max_window_layers")
    first = (28 if first is None else first) if has_first else 0
    if not kinds and (switch and not config.get(switch) or first >= config["num_hidden_layers"]):
        return None
    if window < config["max_position_embeddings"]:
        note("config.json: a sliding window of %d positions is not supported; the context is limited to that many (of "
             "%d), up to which it has no effect", window, config["max_position_embeddings"])
    return window


def read_sampling(directory):
    """generation_config.json as metadata: the defaults of the options for sampling."""
    name = "generation_config.json"
    settings = read_settings(directory, name)
    values = {to: settings[key] if key == "top_k" else float(settings[key]) for key, to in SAMPLING.items()
              if settings.get(key) is not None}
    if settings.get("do_sample") is False:
        values["temp"] = 0.0
    if values.get("penalty_repeat", 1.0) != 1:
        values["penalty_last_n"] = -1  # transformers penalizes all tokens
    for key, v in values.items():
        if type(v) is float and v < 0:
            raise Failure("%s: %s: expected 0 or more, found %s" % (name, key, v))
    return {"general.sampling." + key: v for key, v in values.items()}


# Directories

def only(directory, names):
    if len(names) != 1:
        raise Failure("%s: expected one model, found %s; name its directory" %
                      (directory, ", ".join(names)[:200] or "none"))
    return os.path.join(directory, names[0])


def find_checkpoint(path):
    """The directory of a checkpoint. In a Hugging Face cache, also that of a cache with one model, of the model, or of
    its snapshots: the snapshot of refs/main, or the only one."""
    names = os.listdir(path) if os.path.isdir(path) else ()
    models = sorted(name for name in names if name.startswith("models--"))
    if models:
        return find_checkpoint(only(path, models))
    if os.path.basename(os.path.abspath(path)) == "snapshots":
        path = os.path.dirname(os.path.abspath(path))
    snapshots, main = os.path.join(path, "snapshots"), os.path.join(path, "refs", "main")
    if "config.json" in names or "params.json" in names or not os.path.isdir(snapshots):
        return path
    names = sorted(os.listdir(snapshots))
    chosen = read_bytes(main, 100).decode("utf-8", "replace").strip() if os.path.isfile(main) else None
    return os.path.join(snapshots, chosen) if chosen in names else only(snapshots, names)


def model_name(directory, config=None):
    """The name of the directory. In place of a commit hash: that of the cache, of config.json, or of the directory
    above."""
    path = os.path.abspath(directory)
    name, above = os.path.basename(path), os.path.dirname(path)
    cached = re.search(r"/models--(?:[^/]*--)?([^/]+)/snapshots$", above)
    if cached:
        return cached.group(1)
    if re.fullmatch("[0-9a-f]{40}", name):
        origin = ((config or {}).get("_name_or_path") or "").rstrip("/").split("/")[-1]
        return origin or os.path.basename(above)
    return name
