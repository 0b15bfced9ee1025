"""PEFT's LoRA adapters (adapter_model.safetensors, adapter_config.json): for some of a model's matrices W, two narrow
ones that add scale * B A to it."""
import math
import operator
import os
import re
import struct

from .checkpoints import parse_json, read_safetensors
from .gguf_writer import Bad
from .vocabulary import read_bytes
from .weights import View, convert

# Settings of LoraConfig that would change the result in a way that is not made here: none but these values.
PLAIN = (("peft_type", ("LORA",)), ("bias", (None, "none")), ("modules_to_save", (None, [])),
         ("target_parameters", (None, [])), ("layer_replication", (None,)), ("trainable_token_indices", (None,)),
         ("alora_invocation_tokens", (None,))) + tuple(
             (key, (None, False)) for key in ("use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"))
# Ways to begin the training that change the model's own weights as well.
MOVED = ("pissa", "olora", "corda", "loftq", "lora_ga")


class Scaled(View):
    """A weight as f32, times a number."""

    def __init__(self, source, factor):
        super().__init__(source, type="f32")
        self.factor = factor

    def pieces(self):
        for piece in convert(self.source, "f32").pieces():
            x = struct.unpack("<%df" % (len(piece) // 4), piece)
            yield packed(self.name, [v * self.factor for v in x])


class Merged(View):
    """W + B A as f32, each sum rounded once."""

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
        raise Bad("%s: a number that does not fit f32" % name)


def rows(weight):
    """The numbers of a matrix, row by row."""
    n = weight.shape[1]
    for piece in convert(weight, "f32").pieces():
        x = struct.unpack("<%df" % (len(piece) // 4), piece)
        for begin in range(0, len(x), n):
            yield x[begin:begin + n]


def is_adapter(folder):
    return os.path.exists(os.path.join(folder, "adapter_config.json"))


def chosen(patterns, module, otherwise):
    """What rank_pattern or alpha_pattern says of a module."""
    for pattern, v in (patterns or {}).items():
        if re.match(r"(.*\.)?(%s)$" % pattern, module):
            return v
    return otherwise


def read_adapter(folder):
    """(alpha, {module: (A, B, factor)}) of a PEFT folder: what a module adds is alpha / rank * factor * B A. The factor
    is 1 but where the module has an alpha, or under rslora (alpha / sqrt(rank)) a rank, of its own."""
    name = "adapter_config.json"
    config = parse_json(read_bytes(os.path.join(folder, name)), name)
    for key, expected in PLAIN:
        if config.get(key) not in expected:
            raise Bad("%s: %s: expected %s, found %s" % (name, key, expected[0] or "none", ascii(config.get(key))[:60]))
    init = config.get("init_lora_weights")
    if type(init) is str and init.lower().startswith(MOVED):
        raise Bad("%s: init_lora_weights %s: such an adapter belongs to a model whose weights it has changed; save it "
                  "with path_initial_model_for_weight_conversion" % (name, ascii(init)[:40]))
    modules = {}
    for key, w in read_safetensors(os.path.join(folder, "adapter_model.safetensors")).items():
        m = re.match(r"base_model\.model\.(.+)\.lora_([AB])(?:\.\w+)?\.weight$", key)
        if not m or len(w.shape) != 2:
            raise Bad("adapter_model.safetensors: %s: expected lora_A and lora_B of matrices" % ascii(key))
        modules.setdefault(m.group(1), {})[m.group(2)] = w
    try:
        rank, alpha, root = config["r"], config["lora_alpha"], bool(config.get("use_rslora"))
        if not 0 < rank < 1 << 20 or not 0 < abs(alpha) < 1e9:
            raise ValueError("r %s, lora_alpha %s" % (rank, alpha))
        for module, pair in modules.items():
            own = chosen(config.get("rank_pattern"), module, rank)
            factor = chosen(config.get("alpha_pattern"), module, alpha) / alpha * (math.sqrt(own / rank) if root else 1)
            if sorted(pair) != ["A", "B"] or pair["A"].shape[0] != own or pair["B"].shape[1] != own:
                raise Bad("adapter_model.safetensors: %s: expected lora_A (%s, ...) and lora_B (..., %s), found %s" %
                          (ascii(module), own, own, ", ".join("lora_%s %s" % (k, pair[k].shape) for k in sorted(pair))))
            modules[module] = pair["A"], pair["B"], factor
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, re.error) as e:
        raise Bad("%s: no settings of a LoRA: %s: %s" % (name, type(e).__name__, e))
    return alpha * (math.sqrt(rank) if root else 1), modules
