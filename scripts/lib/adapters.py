"""LoRA adapters of PEFT (adapter_model.safetensors or .bin, adapter_config.json): low-rank matrices A and B for some
of the matrices W of a model, which become W + scale * B A."""
import array
import math
import operator
import os
import re
import struct

from .checkpoints import read_json, read_pth, read_safetensors, without_wrappers
from .config import note
from .gguf_writer import Failure
from .weights import View, convert, inside

# Settings of LoraConfig that change the result, and the values of them that are supported.
SUPPORTED = (("peft_type", ("LORA",)), ("bias", (None, "none")), ("modules_to_save", (None, [])),
         ("target_parameters", (None, [])), ("layer_replication", (None,)), ("trainable_token_indices", (None,)),
         ("alora_invocation_tokens", (None,)), ("kasa_config", (None,)), ("arrow_config", (None,)),
         ("use_bdlora", (None,)), ("monteclora_config", (None,))) + tuple(
             (key, (None, False)) for key in ("use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"))
# The other settings of LoraConfig: used here, or without effect on the result. Source: PEFT 0.18 and its main branch of
# 2026-08, src/peft/tuners/lora/config.py.
KNOWN = set("""alpha_pattern auto_mapping base_model_name_or_path corda_config ensure_weight_tying eva_config exclude_modules
    inference_mode init_lora_weights layers_pattern layers_to_transform loftq_config lora_alpha lora_dropout lora_ga_config
    megatron_config megatron_core peft_version qalora_group_size r rank_pattern revision runtime_config target_modules
    task_type use_rslora velora_config""".split()).union(key for key, _ in SUPPORTED)
# Initializations that also change the weights of the base model.
BASE_CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")
MAX_MATCHES = 1 << 22  # comparisons of a module with a pattern; 405B with a pattern per module needs 882 * 882
MAX_NAME, MAX_WILDCARDS = 256, 4  # characters of a module or pattern; .* in a pattern


class Scaled(View):
    """A weight times a number, as f32."""

    def __init__(self, source, factor):
        super().__init__(source, type="f32")
        self.factor = factor

    def pieces(self):
        for piece in convert(self.source, "f32").pieces():
            x = struct.unpack("<%df" % (len(piece) // 4), piece)
            yield packed(self.name, [v * self.factor for v in x])


class Transposed(View):
    """The transpose of a matrix, as f32. The matrix is held in memory: it is that of an embedding, with few rows."""

    def __init__(self, source):
        super().__init__(source, type="f32", shape=source.shape[::-1])

    def pieces(self):
        columns = [array.array("f", row) for row in rows(self.source)]
        for i in range(0, self.shape[0], 4096):
            block = zip(*(column[i:i + 4096] for column in columns))
            yield packed(self.name, [v for row in block for v in row])


class Merged(View):
    """W + B A as f32, rounded once."""

    def __init__(self, source, a, b):
        super().__init__(source, type="f32")
        self.a, self.b = a, b

    def pieces(self):
        n_cols, columns = self.shape[1], list(zip(*rows(self.a)))
        b = rows(self.b)
        for piece in convert(self.source, "f32").pieces():
            x, out = struct.unpack("<%df" % (len(piece) // 4), piece), []
            for begin in range(0, len(x), n_cols):
                own = next(b)
                out += [v + sum(map(operator.mul, own, c)) for v, c in zip(x[begin:begin + n_cols], columns)]
            yield packed(self.name, out)


def packed(name, numbers):
    try:
        return struct.pack("<%df" % len(numbers), *numbers)
    except OverflowError:
        raise Failure("%s: a number too large for f32" % name)


def rows(weight):
    """Yields the rows of a matrix as tuples of floats."""
    n = weight.shape[1]
    for piece in convert(weight, "f32").pieces():
        x = struct.unpack("<%df" % (len(piece) // 4), piece)
        for begin in range(0, len(x), n):
            yield x[begin:begin + n]


def read_patterns(config, key):
    """[(parts, value)] of rank_pattern or alpha_pattern. PEFT takes a pattern as a regular expression for the end of a
    module's name after a dot, which can take exponential time. Here it is a name, perhaps after ^, in which only .* is
    special. Parts are the texts between its .*, the first one after "." or "^."."""
    patterns = []
    for pattern, v in (config.get(key) or {}).items():
        m = len(pattern) <= MAX_NAME and re.fullmatch(r"(\^?)((?:[\w-]|\\?\.|\.\*)*)\$?", pattern)
        if not m or pattern.count("*") > MAX_WILDCARDS:
            raise Failure("adapter_config.json: %s: %s: expected the name of a module; only ^, $ and .* are special" %
                          (key, ascii(pattern)[:60]))
        first, *others = [part.replace("\\.", ".") for part in re.split(r"(?:\.\*)+", m.group(2))]
        patterns.append(([m.group(1) + "." + first] + others, v))
    return patterns


def is_match(parts, name):
    for part in parts[:-1]:  # its first occurrence leaves the most for the others
        _, found, name = name.partition(part)
        if not found:
            return False
    return name.endswith(parts[-1])


def pattern_value(patterns, module, otherwise):
    """The value of the first pattern that matches a module."""
    return next((v for parts, v in patterns if is_match(parts, "^." + module)), otherwise)


FILES = (("adapter_model.safetensors", read_safetensors), ("adapter_model.bin", read_pth))


def read_tensors(directory):
    """(file name, tensors) of an adapter."""
    for name, read in FILES:
        if os.path.lexists(os.path.join(directory, name)):
            return name, without_wrappers(read(inside(directory, name)))
    if os.path.exists(os.path.join(directory, "adapters.safetensors")):
        raise Failure("%s: adapters.safetensors: an adapter of MLX; merge it with mlx_lm.fuse, or save it with PEFT" %
                      directory)
    raise Failure("%s: expected %s" % (directory, " or ".join(name for name, _ in FILES)))


def read_adapter(directory):
    """(alpha, {module: (A, B, factor)}, {module: copy of its base weight}) of a PEFT directory. A module adds alpha /
    rank * factor * B A, an embedding the transpose. The factor is 1 unless the module has its own alpha or, with rslora
    (alpha / sqrt(rank)), its own rank."""
    name = "adapter_config.json"
    file, tensors = read_tensors(directory)
    config = read_json(directory, name)

    for key, expected in SUPPORTED:
        if config.get(key) not in expected:
            raise Failure("%s: %s: expected %s, found %s" % (name, key, expected[0] or "none", ascii(config.get(key))[:60]))

    for key in sorted(set(config) - KNOWN):
        if config[key]:
            note("%s: %s %s is not known, and not used", name, ascii(key)[:60], ascii(config[key])[:60])

    init = config.get("init_lora_weights")
    if type(init) is str and init.lower().startswith(BASE_CHANGING):
        raise Failure("%s: init_lora_weights %s: this adapter needs changed base weights; save it with "
                      "path_initial_model_for_weight_conversion" % (name, ascii(init)[:40]))

    modules, copies = {}, {}
    for key, w in tensors.items():
        copied = re.match(r"base_model\.model\.(?:(.+)\.base_layer|(lm_head|model\.embed_tokens))\.weight$", key)
        if copied:
            copies[copied.group(1) or copied.group(2)] = w
            continue
        m = re.match(r"base_model\.model\.(.+)\.lora_([AB])(?:\.\w+)?\.weight$", key) or \
            re.match(r"base_model\.model\.(.*embed_tokens)\.lora_embedding_([AB])(?:\.\w+)?$", key)
        if not m or len(w.shape) != 2 or len(m.group(1)) > MAX_NAME:
            raise Failure("%s: %s: expected lora_A and lora_B of matrices" % (file, ascii(key)))
        module = m.group(1).replace("language_model.", "", 1)  # of a model with other parts
        if modules.setdefault(module, {}).setdefault(m.group(2), w) is not w:
            raise Failure("%s: %s: the module has two adapters; save them one by one" % (file, ascii(key)))

    if config.get("ensure_weight_tying") and any(re.search("embed_tokens|lm_head", module) for module in modules):
        raise Failure("%s: ensure_weight_tying: expected false with an adapter of the embedding or output" % name)

    try:
        rank, alpha, root = config["r"], config["lora_alpha"], bool(config.get("use_rslora"))
        if not 0 < rank < 1 << 20 or not 1e-9 < abs(alpha) < 1e9:
            raise ValueError("r %s, lora_alpha %s" % (rank, alpha))
        ranks, alphas = read_patterns(config, "rank_pattern"), read_patterns(config, "alpha_pattern")
        if len(modules) * (len(ranks) + len(alphas)) > MAX_MATCHES:
            raise ValueError("%d patterns for %d modules" % (len(ranks) + len(alphas), len(modules)))

        # The settings of each module.
        for module, pair in modules.items():
            own, own_alpha = pattern_value(ranks, module, rank), pattern_value(alphas, module, alpha)
            scale = own_alpha / (math.sqrt(own) if root else own)
            if own_alpha and not 2.0 ** -126 <= abs(scale) < 2.0 ** 128:
                raise ValueError("%s: scale %s is outside the range of f32" % (ascii(module), scale))

            factor = own_alpha / alpha * (math.sqrt(own / rank) if root else 1)
            if sorted(pair) != ["A", "B"] or pair["A"].shape[0] != own or pair["B"].shape[1] != own:
                raise Failure("%s: %s: expected lora_A (%s, ...) and lora_B (..., %s), found %s" %
                          (file, ascii(module), own, own, ", ".join("lora_%s %s" % (k, pair[k].shape) for k in sorted(pair))))

            modules[module] = pair["A"], pair["B"], factor
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as e:
        raise Failure("%s: invalid LoRA settings: %s%s" % (name, "missing " * (type(e) is KeyError), e))
    return alpha * (math.sqrt(rank) if root else 1), modules, copies
