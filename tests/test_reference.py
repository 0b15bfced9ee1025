#!/usr/bin/env python3
"""Logits against a reference forward pass in double precision, written here from the equations.

For Llama it reads the original Hugging Face checkpoint, whose layout differs from GGUF: the rotary pairs are the two
halves of a head, and matrices may have biases. For the other families it reads generated GGUF files, with nothing but
their metadata. The files of data/families, data/types and data/moe have logits of llama.cpp."""
import functools
import json
import math
import os
import random
import re
import struct
import subprocess
import sys

from cli import (DATA, GOLDEN, SCRIPTS, Skip, call, check, export_here, in_ci, main, matches, refuses, requires, some,
                 test)

sys.path.insert(0, SCRIPTS)
from lib import checkpoints, gguf_writer, weights

TOKENS = [384, 17, 301, 5, 88, 250, 3]
FLOATS = {"bf16": (2, lambda b: struct.unpack("<%df" % (len(b) // 2), b"".join(
    b"\0\0" + b[i:i + 2] for i in range(0, len(b), 2)))), "f32": (4, lambda b: struct.unpack("<%df" % (len(b) // 4), b))}


def read_tensors(folder):
    """{name: (shape, numbers)}"""
    out = {}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".safetensors"):
            for name, w in checkpoints.read_safetensors(os.path.join(folder, f)).items():
                out[name] = tuple(w.shape), FLOATS[w.type][1](b"".join(w.pieces()))
    return out


def add_biases(folder, config):
    """Adds a shard with a bias for every matrix of a layer."""
    rng, tensors = random.Random(4), {}
    hidden, kv = config["hidden_size"], config["num_key_value_heads"] * config["head_dim"]

    for i in range(config["num_hidden_layers"]):
        for name, n in (("self_attn.q_proj", hidden), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv),
                        ("self_attn.o_proj", hidden), ("mlp.gate_proj", config["intermediate_size"]),
                        ("mlp.up_proj", config["intermediate_size"]), ("mlp.down_proj", hidden)):
            tensors["model.layers.%d.%s.bias" % (i, name)] = [rng.gauss(0, 0.3) for _ in range(n)]

    header, data = {}, b""
    for name, values in tensors.items():
        start = len(data)
        data += struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [start, len(data)]}
    head = json.dumps(header).encode()
    with open(os.path.join(folder, "biases.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)

    path = os.path.join(folder, "model.safetensors.index.json")
    with open(path) as f:
        index = json.load(f)
    index["weight_map"].update({name: "biases.safetensors" for name in tensors})
    with open(path, "w") as f:
        json.dump(index, f)


class Reference:
    """The transformer, one token at a time."""

    def __init__(self, config, tensors):
        self.c, self.t = config, tensors
        self.keys = [[] for _ in range(config["num_hidden_layers"])]
        self.values = [[] for _ in range(config["num_hidden_layers"])]

    def norm(self, x, name):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.c["rms_norm_eps"])
        return [v * scale * w for v, w in zip(x, self.t[name + ".weight"][1])]

    def linear(self, x, name):
        (rows, cols), w = self.t[name + ".weight"]
        bias = self.t.get(name + ".bias", (0, [0] * rows))[1]
        return [sum(map(float.__mul__, w[r * cols:(r + 1) * cols], x)) + bias[r] for r in range(rows)]

    def rotate(self, x, pos):
        d = self.c["head_dim"]
        out = list(x)
        for head in range(0, len(x), d):
            for i in range(d // 2):
                angle = pos * self.c["rope_theta"] ** (-2 * i / d)
                a, b = x[head + i], x[head + i + d // 2]
                out[head + i] = a * math.cos(angle) - b * math.sin(angle)
                out[head + i + d // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    def attend(self, layer, q):
        d, out = self.c["head_dim"], []
        group = self.c["num_attention_heads"] // self.c["num_key_value_heads"]
        for head in range(self.c["num_attention_heads"]):
            begin, query = head // group * d, q[head * d:(head + 1) * d]
            scores = [sum(a * b for a, b in zip(query, k[begin:begin + d])) / math.sqrt(d) for k in self.keys[layer]]
            weights = [math.exp(s - max(scores)) for s in scores]
            for i in range(d):
                out.append(sum(w * v[begin + i] for w, v in zip(weights, self.values[layer])) / sum(weights))
        return out

    def forward(self, token, pos):
        dim = self.c["hidden_size"]
        x = list(self.t["model.embed_tokens.weight"][1][token * dim:(token + 1) * dim])
        for i in range(self.c["num_hidden_layers"]):
            part = "model.layers.%d." % i
            h = self.norm(x, part + "input_layernorm")
            self.keys[i].append(self.rotate(self.linear(h, part + "self_attn.k_proj"), pos))
            self.values[i].append(self.linear(h, part + "self_attn.v_proj"))
            q = self.rotate(self.linear(h, part + "self_attn.q_proj"), pos)
            x = [a + b for a, b in zip(x, self.linear(self.attend(i, q), part + "self_attn.o_proj"))]
            h = self.norm(x, part + "post_attention_layernorm")
            gate, up = self.linear(h, part + "mlp.gate_proj"), self.linear(h, part + "mlp.up_proj")
            h = self.linear([g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)], part + "mlp.down_proj")
            x = [a + b for a, b in zip(x, h)]
        return self.linear(self.norm(x, "model.norm"), "lm_head")


def compare(tmp, has_biases):
    folder = os.path.join(tmp, "checkpoint")
    subprocess.run(["cp", "-r", os.path.join(GOLDEN, "small31-hf"), folder], check=True)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)

    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    config.pop("rope_scaling", None)  # scaling rules are tested in test_rope.c
    config["attention_bias"] = config["mlp_bias"] = has_biases
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)

    if has_biases:
        add_biases(folder, config)

    model, out = os.path.join(tmp, "model.gguf"), os.path.join(tmp, "logits")
    subprocess.run([sys.executable, os.path.join(SCRIPTS, "export.py"), folder, "-o", model], check=True,
                   capture_output=True)

    reference = Reference(config, read_tensors(folder))
    expected = [v for pos, token in enumerate(TOKENS) for v in reference.forward(token, pos)]

    for backend, chunk in (("scalar", "3"), ("avx2", "512"), ("avx512", "1"), ("avx512", "512")):
        call("logits", "-m", model, "--ids", ",".join(map(str, TOKENS)), "-o", out, "--kv", "f32", "-b", chunk,
             env=dict(os.environ, LLAMA31_ISA=backend))
        with open(out, "rb") as f:
            found = struct.unpack("<%df" % len(expected), f.read())
        nmse = sum((a - b) ** 2 for a, b in zip(found, expected)) / sum(b * b for b in expected)
        check(nmse <= 1e-6, backend, "chunks of", chunk, "NMSE", nmse)


HALF_PAIRS = ("qwen2", "qwen3", "qwen2moe", "qwen3moe", "dots1")


class FamilyReference:
    """The transformer of any family, from the metadata and tensors of a GGUF file, one token at a time."""

    def __init__(self, metadata, tensors):
        self.arch = metadata["general.architecture"]
        self.metadata, self.t = metadata, tensors
        self.heads, self.kv_heads = self.get("attention.head_count"), self.get("attention.head_count_kv")
        if isinstance(self.kv_heads, list):
            self.kv_heads = self.kv_heads[0]
        self.d = self.get("attention.key_length", self.get("embedding_length") // self.heads)
        self.keys = [[] for _ in range(self.get("block_count"))]
        self.values = [[] for _ in self.keys]

    def get(self, name, absent=None):
        return self.metadata.get(self.arch + "." + name, absent)

    def norm(self, x, weight):
        scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + self.get("attention.layer_norm_rms_epsilon"))
        return [v * scale * w for v, w in zip(x, self.t[weight][1])]

    def norm_heads(self, x, weight):
        if weight not in self.t:
            return x
        return [v for head in range(0, len(x), self.d) for v in self.norm(x[head:head + self.d], weight)]

    def linear(self, x, name):
        (rows, cols), w = self.t[name + ".weight"]
        bias = self.t.get(name + ".bias", (0, [0] * rows))[1]
        return [sum(map(float.__mul__, w[r * cols:(r + 1) * cols], x)) + bias[r] for r in range(rows)]

    def has_rope(self, layer):
        return (self.arch != "smollm3" or (layer + 1) % 4 != 0) and self.get("rope.scaling.finetuned", True)

    def frequency(self, i):
        """(frequency, magnitude) of a pair."""
        theta, d, kind = self.get("rope.freq_base", 10000.0), self.d, self.get("rope.scaling.type", "linear")
        factor, w = self.get("rope.scaling.factor", 1.0), theta ** (-2 * i / d)
        if "rope_freqs.weight" in self.t:
            w /= self.t["rope_freqs.weight"][1][i]
        if kind != "yarn":
            return w / (factor if kind == "linear" else 1), 1
        context, betas, log_factor = self.get("rope.scaling.original_context_length"), (32, 1), 0.1 * math.log(factor)
        multiplier = 0
        if self.arch == "mistral3":
            betas = self.get("rope.scaling.yarn_beta_fast", 32), self.get("rope.scaling.yarn_beta_slow", 1)
            multiplier = self.get("rope.scaling.yarn_log_multiplier", 0)
        low, high = (d * math.log(context / (b * 2 * math.pi)) / (2 * math.log(theta)) for b in betas)
        low, high = max(0, math.floor(low)), min(d - 1, math.ceil(high))
        keep = 1 - min(max((i - low) / max(0.001, high - low), 0), 1)
        return w * keep + w / factor * (1 - keep), (1 + log_factor) / (1 + multiplier * log_factor)

    def rotate(self, x, pos, layer):
        d, out = self.d, list(x)
        for head in range(0, len(x) if self.has_rope(layer) else 0, d):
            for i in range(d // 2):
                first, second = (head + i, head + i + d // 2) if self.arch in HALF_PAIRS else \
                    (head + 2 * i, head + 2 * i + 1)
                w, magnitude = self.frequency(i)
                cos, sin = magnitude * math.cos(pos * w), magnitude * math.sin(pos * w)
                out[first], out[second] = x[first] * cos - x[second] * sin, x[second] * cos + x[first] * sin
        return out

    def attend(self, layer, q):
        d, out, scale = self.d, [], self.get("attention.scale") or 1 / math.sqrt(self.d)
        for head in range(self.heads):
            begin, query = head // (self.heads // self.kv_heads) * d, q[head * d:(head + 1) * d]
            scores = [scale * sum(a * b for a, b in zip(query, k[begin:begin + d])) for k in self.keys[layer]]
            probabilities = [math.exp(s - max(scores)) for s in scores]
            total = sum(probabilities)
            out += [sum(p * v[begin + i] for p, v in zip(probabilities, self.values[layer])) / total for i in range(d)]
        return out

    def swiglu(self, h, gate, up, down):
        """The FFN of three matrices, given as (shape, numbers)."""
        gate, up = self.multiply(gate, h), self.multiply(up, h)
        return self.multiply(down, [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    @staticmethod
    def multiply(matrix, x):
        (rows, cols), w = matrix
        return [sum(map(float.__mul__, w[r * cols:(r + 1) * cols], x)) for r in range(rows)]

    def ffn(self, h, part):
        if part + "ffn_gate_inp.weight" in self.t:
            return self.experts(h, part)
        gate, up = self.linear(h, part + "ffn_gate"), self.linear(h, part + "ffn_up")
        return self.linear([g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)], part + "ffn_down")

    def experts(self, h, part):
        """The chosen experts and the shared expert."""
        # Probabilities: sigmoid (2) or softmax.
        scores = self.linear(h, part + "ffn_gate_inp")
        if self.get("expert_gating_func") == 2:
            p = [1 / (1 + math.exp(-s)) for s in scores]
        else:
            p = [math.exp(s - max(scores)) for s in scores]
            p = [v / sum(p) for v in p]

        # The choice: by probability and bias, in the order of the ids.
        bias = self.t.get(part + "exp_probs_b.bias", (0, [0] * len(p)))[1]
        chosen = sorted(range(len(p)), key=lambda e: (-p[e] - bias[e], e))[:self.get("expert_used_count")]
        is_normalized = self.get("expert_weights_norm", self.arch in ("qwen3moe", "llama", "ernie4_5-moe"))
        total = sum(p[e] for e in chosen) if is_normalized else 1

        # The weighted sum.
        out = [0] * len(h)
        for e in sorted(chosen):
            matrices = []
            for name in ("gate", "up", "down"):
                (_, rows, cols), w = self.t["%sffn_%s_exps.weight" % (part, name)]
                matrices.append(((rows, cols), w[e * rows * cols:(e + 1) * rows * cols]))
            weight = p[e] / total * self.get("expert_weights_scale", 1)
            out = [a + weight * b for a, b in zip(out, self.swiglu(h, *matrices))]

        # The shared expert, with a gate in some families.
        if part + "ffn_up_shexp.weight" in self.t:
            factor = 1
            if part + "ffn_gate_inp_shexp.weight" in self.t:
                v = self.t[part + "ffn_gate_inp_shexp.weight"][1]
                factor = 1 / (1 + math.exp(-sum(map(float.__mul__, v, h))))
            shared = (self.t["%sffn_%s_shexp.weight" % (part, name)] for name in ("gate", "up", "down"))
            out = [a + factor * b for a, b in zip(out, self.swiglu(h, *shared))]
        return out

    def forward(self, token, pos):
        embed, residual = self.get("embedding_scale") or 1, self.get("residual_scale") or 1
        beta, context = self.get("attention.temperature_scale", 0), self.get("rope.scaling.original_context_length", 1)
        temperature = 1 + beta * math.log(1 + pos // context)
        dim = self.get("embedding_length")
        x = [embed * v for v in self.t["token_embd.weight"][1][token * dim:(token + 1) * dim]]
        for i in range(len(self.keys)):
            part = "blk.%d." % i
            h = self.norm(x, part + "attn_norm.weight")
            q = self.norm_heads(self.linear(h, part + "attn_q"), part + "attn_q_norm.weight")
            k = self.norm_heads(self.linear(h, part + "attn_k"), part + "attn_k_norm.weight")
            self.keys[i].append(self.rotate(k, pos, i))
            self.values[i].append(self.linear(h, part + "attn_v"))
            q = [temperature * v for v in self.rotate(q, pos, i)]
            x = [a + residual * b for a, b in zip(x, self.linear(self.attend(i, q), part + "attn_output"))]
            x = [a + residual * b for a, b in zip(x, self.ffn(self.norm(x, part + "ffn_norm.weight"), part))]
        output = "output" if "output.weight" in self.t else "token_embd"
        return [v / (self.get("logit_scale") or 1) for v in self.linear(self.norm(x, "output_norm.weight"), output)]


def random_family(arch, seed, dim=32, layers=2, heads=4, kv_heads=2, head_dim=None, hidden=48, vocab=40, is_tied=True,
                  biases=(), qk_norm=False, divisors=None, experts=0, shared=0, dense_layers=0, choice_bias=False,
                  shared_gate=False, **values):
    """(metadata, {name: (shape, numbers)}) of a model with random weights. Keywords are metadata, _ for a dot."""
    rng, tensors, d = random.Random(seed), {}, head_dim or dim // heads

    def add(name, *shape, mean=0.0, scale=None):
        n, scale = math.prod(shape), scale or shape[-1] ** -0.5
        numbers = struct.unpack("<%df" % n, struct.pack("<%df" % n, *(rng.gauss(mean, scale) for _ in range(n))))
        tensors[name] = shape, list(numbers)

    metadata = {"block_count": layers, "context_length": 256, "embedding_length": dim, "feed_forward_length": hidden,
                "attention.head_count": heads, "attention.head_count_kv": kv_heads,
                "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}
    if head_dim:
        metadata.update({"attention.key_length": d, "attention.value_length": d})

    metadata.update(values)
    metadata = {arch + "." + key: value for key, value in metadata.items()}
    metadata["general.architecture"] = arch

    shapes = {"attn_q": (heads * d, dim), "attn_k": (kv_heads * d, dim), "attn_v": (kv_heads * d, dim),
              "attn_output": (dim, heads * d), "ffn_gate": (hidden, dim), "ffn_up": (hidden, dim), "ffn_down": (dim, hidden)}

    add("token_embd.weight", vocab, dim, scale=1)
    for i in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            add("blk.%d.%s.weight" % (i, name), dim, mean=1, scale=0.2)
        for name in ("attn_q_norm", "attn_k_norm") if qk_norm else ():
            add("blk.%d.%s.weight" % (i, name), d, mean=1, scale=0.2)

        layer_shapes = dict(shapes)
        if experts and i >= dense_layers:
            for name in ("ffn_gate", "ffn_up", "ffn_down"):
                rows, cols = layer_shapes.pop(name)
                layer_shapes[name + "_exps"] = (experts, rows, cols)
                if shared:
                    layer_shapes[name + "_shexp"] = (dim, shared) if name == "ffn_down" else (shared, dim)
            layer_shapes["ffn_gate_inp"] = (experts, dim)
            if shared_gate:
                layer_shapes["ffn_gate_inp_shexp"] = (dim,)
            if choice_bias:
                add("blk.%d.exp_probs_b.bias" % i, experts, scale=0.3)

        for name, shape in layer_shapes.items():
            add("blk.%d.%s.weight" % (i, name), *shape)
            if name in biases:
                add("blk.%d.%s.bias" % (i, name), shape[0], scale=0.5)

    add("output_norm.weight", dim, mean=1, scale=0.2)
    if not is_tied:
        add("output.weight", vocab, dim)
    if divisors:
        tensors["rope_freqs.weight"] = (len(divisors),), divisors
    return metadata, tensors


def write_family(path, metadata, tensors):
    gguf_writer.write_gguf(path, metadata, [
        weights.Literal(name, "f32", shape, struct.pack("<%df" % len(numbers), *numbers))
        for name, (shape, numbers) in tensors.items()])


def logits_of(model, tokens, out, isa, *args):
    call("logits", "-m", model, "--ids", ",".join(map(str, tokens)), "-o", out, "--force", "--kv", "f32", *args,
         env=dict(os.environ, LLAMA31_ISA=isa))
    with open(out, "rb") as f:
        data = f.read()
    return struct.unpack("<%df" % (len(data) // 4), data)


def nmse(found, expected):
    check(len(found) == len(expected), len(found), "logits, expected", len(expected))
    return sum((a - b) ** 2 for a, b in zip(found, expected)) / sum(b * b for b in expected)


def yarn(factor, context, **more):
    return dict({"rope.scaling.type": "yarn", "rope.scaling.factor": factor,
                 "rope.scaling.original_context_length": context}, **more)


FAMILIES = {  # name: arguments of random_family
    "llama": dict(arch="llama", is_tied=False),
    "qwen2": dict(arch="qwen2", biases=("attn_q", "attn_k", "attn_v")),
    "qwen2-yarn": dict(arch="qwen2", biases=("attn_k",), is_tied=False, **yarn(4.0, 8)),
    "qwen3": dict(arch="qwen3", head_dim=12, qk_norm=True),
    "qwen3-one-kv-head": dict(arch="qwen3", kv_heads=1, head_dim=16, qk_norm=True, is_tied=False, **yarn(2.5, 16)),
    "qwen3-linear": dict(arch="qwen3", qk_norm=True, head_dim=8, **{"rope.scaling.factor": 3.0}),
    "smollm3": dict(arch="smollm3", layers=5),
    "granite": dict(arch="granite", embedding_scale=3.0, residual_scale=0.3, logit_scale=7.0, **{"attention.scale": 0.2}),
    "granite-array": dict(arch="granite", kv_heads=[2, 2, 2], layers=3, is_tied=False, logit_scale=2.0, residual_scale=0.0,
                          biases=("attn_output", "ffn_down"), **{"rope.scaling.finetuned": True}),
    "granite-no-rope": dict(arch="granite", logit_scale=0.0, **{"rope.scaling.finetuned": False}),
    "granite-divisors": dict(arch="granite", logit_scale=1.0, divisors=[1.0, 1.5, 2.0, 4.0]),
    "mistral3": dict(arch="mistral3", head_dim=16, **yarn(8.0, 8, **{
        "attention.temperature_scale": 0.2, "rope.scaling.yarn_log_multiplier": 1.0})),
    "mistral3-betas": dict(arch="mistral3", head_dim=16, is_tied=False, divisors=[1.0] * 4 + [2.0] * 4, **yarn(4.0, 16, **{
        "rope.scaling.yarn_beta_fast": 2.0, "rope.scaling.yarn_beta_slow": 0.25, "rope.scaling.yarn_log_multiplier": 0.0})),
    "ernie4_5": dict(arch="ernie4_5", heads=3, kv_heads=1, dim=24, head_dim=16),
    "mixtral": dict(arch="llama", is_tied=False, experts=4, expert_count=4, expert_used_count=2),
    "qwen3moe": dict(arch="qwen3moe", head_dim=12, qk_norm=True, experts=7, expert_count=7, expert_used_count=3,
                     expert_feed_forward_length=48),
    "qwen2moe": dict(arch="qwen2moe", biases=("attn_q", "attn_k", "attn_v"), is_tied=False, experts=5, expert_count=5,
                     expert_used_count=2, expert_feed_forward_length=48, shared=20, shared_gate=True,
                     expert_shared_feed_forward_length=20),
    "ernie4_5-moe": dict(arch="ernie4_5-moe", experts=6, expert_count=6, expert_used_count=2, choice_bias=True, shared=16,
                         layers=3, dense_layers=1, leading_dense_block_count=1, interleave_moe_layer_step=1,
                         expert_feed_forward_length=48, expert_shared_feed_forward_length=16),
    "dots1": dict(arch="dots1", head_dim=8, qk_norm=True, kv_heads=4, is_tied=False, experts=6, expert_count=6,
                  expert_used_count=3, expert_feed_forward_length=48, expert_shared_count=2, shared=96, choice_bias=True,
                  expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=2.5),
}


@functools.lru_cache(None)
def family_tensors(name):
    """(metadata, tensors) of a random model of a family."""
    args = dict(FAMILIES[name])
    kv_heads = args.get("kv_heads")
    if isinstance(kv_heads, list):
        args["kv_heads"] = kv_heads[0]
    metadata, tensors = random_family(seed=len(name), **args)
    if isinstance(kv_heads, list):
        metadata[args["arch"] + ".attention.head_count_kv"] = kv_heads
    return metadata, tensors


def make_family(tmp, name):
    metadata, tensors = map(dict, family_tensors(name))
    path = os.path.join(tmp, name + ".gguf")
    write_family(path, metadata, tensors)
    return path, metadata, tensors


@test
def families(tmp):
    """Generated models of each family: logits beyond the original context, on every backend, in chunks and in one pass."""
    rng, out = random.Random(6), os.path.join(tmp, "logits")
    tokens = [rng.randrange(40) for _ in range(40)]
    for name in some(list(FAMILIES), 5):
        path, metadata, tensors = make_family(tmp, name)
        reference = FamilyReference(metadata, tensors)
        expected = [v for pos, token in enumerate(tokens) for v in reference.forward(token, pos)]
        for isa, chunk in (("scalar", "512"), ("avx2", "7"), ("avx512", "512"), ("amx", "512")):
            error = nmse(logits_of(path, tokens, out, isa, "-b", chunk), expected)
            check(error <= (1e-4 if (name, isa) == ("llama", "amx") else 1e-6), name, isa, "NMSE", error)


@test
def family_adapters(tmp):
    """LoRA: the terms of an adapter get the factors of the matrix that they are added to."""
    requires("lora")
    rank, tokens, out, rng = 2, list(range(12)), os.path.join(tmp, "logits"), random.Random(3)
    for name in ("granite", "qwen3", "mistral3"):
        path, metadata, tensors = make_family(tmp, name)

        pairs, merged = [], dict(tensors)

        # A and B of three matrices. alpha is 3.
        for matrix in ("blk.0.attn_q.weight", "blk.1.attn_output.weight", "blk.1.ffn_down.weight"):
            (rows, cols), numbers = tensors[matrix]
            a, b = ([rng.gauss(0, 0.2) for _ in range(rank * n)] for n in (cols, rows))
            pairs += [(matrix + ".lora_a", ((rank, cols), a)), (matrix + ".lora_b", ((rows, rank), b))]
            merged[matrix] = (rows, cols), [w + 3 / rank * sum(b[i // cols * rank + k] * a[k * cols + i % cols]
                                                               for k in range(rank)) for i, w in enumerate(numbers)]

        # The embedding: A has a row per token, B one per dimension. The tied output matrix does not change.
        (rows, cols), numbers = tensors["token_embd.weight"]
        a, b = ([rng.gauss(0, 0.5) for _ in range(rank * n)] for n in (rows, cols))
        pairs += [("token_embd.weight.lora_a", ((rows, rank), a)), ("token_embd.weight.lora_b", ((cols, rank), b))]
        merged["output.weight"] = tensors["token_embd.weight"]
        merged["token_embd.weight"] = (rows, cols), [
            w + 3 / rank * sum(a[i // cols * rank + k] * b[i % cols * rank + k] for k in range(rank))
            for i, w in enumerate(numbers)]

        adapter = os.path.join(tmp, "adapter.gguf")
        write_family(adapter, {"general.architecture": metadata["general.architecture"], "general.type": "adapter",
                               "adapter.type": "lora", "adapter.lora.alpha": 3.0}, dict(pairs))

        # The logits with the adapter, and the effect of the adapter.
        reference = FamilyReference(metadata, merged)
        expected = [v for pos, token in enumerate(tokens) for v in reference.forward(token, pos)]
        error = nmse(logits_of(path, tokens, out, "avx512", "--lora", adapter), expected)
        check(error <= 1e-6, name, "NMSE", error)
        plain = FamilyReference(metadata, tensors)
        check(nmse([v for pos, token in enumerate(tokens) for v in plain.forward(token, pos)], expected) > 1e-3, "no effect")


@test
def family_quantized(tmp):
    """quantize keeps the vectors of a family and its metadata."""
    requires("quantize")
    tokens, out, small = list(range(30)), os.path.join(tmp, "logits"), os.path.join(tmp, "small.gguf")
    for name in ("qwen2", "qwen3", "smollm3", "granite", "mistral3"):
        path, metadata, tensors = make_family(tmp, name)
        call("quantize", "--force", path, small, "q8_0")
        found, expected = (logits_of(m, tokens, out, "scalar") for m in (small, path))
        check(found != expected and nmse(found, expected) <= 1e-3, name, "NMSE", nmse(found, expected))


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        start = len(data)
        data += struct.pack("<%df" % len(numbers), *numbers)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    head = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)


def half_order(tensor, d):
    """Rows of q or k as Hugging Face stores them: the first values of all pairs of a head, then the second ones."""
    shape, numbers = tensor
    cols = shape[1] if len(shape) > 1 else 1
    order = [head + 2 * i + part for head in range(0, shape[0], d) for part in (0, 1) for i in range(d // 2)]
    return shape, [v for r in order for v in numbers[r * cols:(r + 1) * cols]]


HF_LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
            "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def write_checkpoint(folder, metadata, tensors, model_type, vocabulary_of, **more):
    """A family as a Hugging Face directory, with the tokenizer of another one."""
    arch, named = metadata["general.architecture"], {}
    get = FamilyReference(metadata, tensors).get
    d = FamilyReference(metadata, tensors).d

    # Tensors. Files of these families have the rows of q and k in another order.
    for name, tensor in tensors.items():
        part, _, kind = name.rpartition(".")
        if arch in ("llama", "smollm3", "granite", "mistral3") and part.endswith(("attn_q", "attn_k")):
            tensor = half_order(tensor, d)
        if name.startswith("blk."):
            _, layer, short = part.split(".")
            part = "model.layers.%s.%s" % (layer, HF_LAYER[short])
        else:
            part = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[part]
        named[part + "." + kind] = tensor

    os.mkdir(folder)
    write_safetensors(os.path.join(folder, "model.safetensors"), named)

    config = {"model_type": model_type, "hidden_act": "silu", "hidden_size": get("embedding_length"), "head_dim": d,
              "intermediate_size": get("feed_forward_length"), "num_hidden_layers": get("block_count"),
              "num_attention_heads": get("attention.head_count"), "num_key_value_heads": get("attention.head_count_kv"),
              "vocab_size": len(tensors["token_embd.weight"][1]) // get("embedding_length"),
              "max_position_embeddings": get("context_length"), "rope_theta": get("rope.freq_base"),
              "rms_norm_eps": get("attention.layer_norm_rms_epsilon"), "use_sliding_window": False, "sliding_window": 64,
              "tie_word_embeddings": "output.weight" not in tensors}

    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(config, **more), f)

    for name in ("tokenizer.json", "tokenizer_config.json"):
        if os.path.exists(os.path.join(vocabulary_of, name)):
            subprocess.run(["cp", os.path.join(vocabulary_of, name), folder], check=True)


@test
def family_exports(tmp):
    """Hugging Face directories of each family, exported: the metadata and logits of the model that they were made from."""
    source, tokens, out = os.path.join(GOLDEN, "small31-hf"), list(range(20)), os.path.join(tmp, "logits")
    with open(os.path.join(source, "config.json")) as f:
        vocab = json.load(f)["vocab_size"]

    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    cases = [("qwen2", "qwen2", {}), ("qwen2-yarn", "qwen2", {"rope_scaling": scaled}), ("qwen3", "qwen3", {}),
             ("smollm3", "smollm3", {"no_rope_layers": [1, 1, 1, 0, 1]}),
             ("granite", "granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.3, "logits_scaling": 7.0,
                                     "attention_multiplier": 0.2}),
             ("mistral3", "ministral3", {"rope_scaling": dict(
                 scaled, factor=8.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.2, beta_fast=32.0, beta_slow=1.0)}),
             ("ernie4_5", "ernie4_5", {})]

    # Exported models have the logits of the reference.
    for name, model_type, more in some(cases, 4):
        metadata, tensors = random_family(seed=9, **dict(FAMILIES[name], vocab=vocab))
        folder, model = os.path.join(tmp, name + "-hf"), os.path.join(tmp, name + ".gguf")
        write_checkpoint(folder, metadata, tensors, model_type, source, **more)

        export_here(folder, model)
        reference = FamilyReference(metadata, tensors)
        expected = [v for pos, token in enumerate(tokens) for v in reference.forward(token, pos)]
        error = nmse(logits_of(model, tokens, out, "avx512"), expected)
        check(error <= 1e-6, name, "NMSE", error)

        call("tokenize", "-m", model, "a text")

    # What cannot be exported is refused.
    for name, model_type, more, message in some((
            ("smollm3", "smollm3", {"no_rope_layers": [1, 1, 0, 0, 1]}, "no_rope_layers: expected every fourth layer"),
            ("granite", "granite", {"use_sliding_window": True}, "sliding_window: expected ... found 64"),
            ("qwen3", "gpt_neox", {}, "model_type: expected llama"),
            ("mistral3", "ministral3", {"rope_scaling": dict(scaled, mscale=2.0)}, "mscale: expected ... found 2.0"),
            ("qwen2", "qwen2", {"rope_scaling": dict(scaled, beta_fast=16)}, "beta_slow cannot be exported"))):
        metadata, tensors = random_family(seed=9, **dict(FAMILIES[name], vocab=vocab))
        folder = os.path.join(tmp, "refused")
        write_checkpoint(folder, metadata, tensors, model_type, source, **more)
        r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "export.py"), folder, "-o", os.path.join(tmp, "no.gguf")],
                           capture_output=True)
        check(r.returncode == 3 and matches(r.stderr.decode(), message), name, r.returncode, r.stderr.decode())
        subprocess.run(["rm", "-r", folder], check=True)


@test
def family_refusals(tmp):
    """What a family lacks, or has beyond Llama, is refused by name, with an alternative."""
    def refused(message, name, keys=None, add=(), remove=()):
        _, metadata, tensors = make_family(tmp, name)
        metadata.update(keys or {})
        tensors.update({n: ((size,), [1.0] * size) for n, size in add})
        path = os.path.join(tmp, "refused.gguf")
        write_family(path, {k: v for k, v in metadata.items() if k not in remove},
                     {k: v for k, v in tensors.items() if k not in remove})
        refuses(3, message, "show", "-m", path)

    refused("a mixture of experts", "qwen3", {"qwen3.expert_count": 8})
    refused("a mixture of experts", "qwen3", {"general.architecture": "phimoe", "phimoe.expert_count": 8})
    refused("qwen3moe.expert_count: expected 1 to 1024, found 0", "qwen3moe", {"qwen3moe.expert_count": 0})
    refused("qwen3moe.expert_count: missing key", "qwen3moe", remove=["qwen3moe.expert_count"])
    refused("qwen3moe.expert_used_count: expected 1 to 7, found 8", "qwen3moe", {"qwen3moe.expert_used_count": 8})
    refused("qwen3moe.expert_used_count: expected 1 to 7, found 0", "qwen3moe", {"qwen3moe.expert_used_count": 0})
    refused("qwen3moe.expert_used_count: expected ... found", "qwen3moe", {"qwen3moe.expert_used_count": "3"})
    refused("qwen3moe.expert_used_count: expected ... found", "qwen3moe", {"qwen3moe.expert_used_count": [3, 2]})
    refused("expert groups", "qwen3moe", {"qwen3moe.expert_group_count": 3, "qwen3moe.expert_group_used_count": 1})
    refused("expert groups", "qwen3moe", {"qwen3moe.expert_group_count": 7, "qwen3moe.expert_group_used_count": 7})
    refused("expert groups", "qwen3moe", {"qwen3moe.expert_group_count": 7, "qwen3moe.expert_group_used_count": 2})

    refused("ffn_gate_exps.weight: expected shape (7, 24, 32), found (7, 48, 32)", "qwen3moe",
            {"qwen3moe.expert_feed_forward_length": 24})
    refused("blk.1.ffn_up_exps.weight: expected shape ... found no such tensor", "mixtral",
            remove=["blk.1.ffn_up_exps.weight"])
    refused("tensor blk.0.ffn_gate.weight: expected shape", "mixtral", remove=["llama.expert_count"])
    refused("blk.0.ffn_down_shexp.weight: expected shape", "qwen2moe", remove=["blk.0.ffn_down_shexp.weight"])
    refused("ffn_gate_inp_shexp.weight: expected shape", "qwen2moe", remove=["blk.1.ffn_gate_inp_shexp.weight"])
    refused("expert_gating_func: expected 1 to 2, found 3", "dots1", {"dots1.expert_gating_func": 3})
    refused("expert_shared_count: expected 1 ... found 0", "dots1", {"dots1.expert_shared_count": 0})
    for name, keys in {"ernie4_5-moe": "interleave_moe_layer_step expert_feed_forward_length",
                       "dots1": "expert_gating_func expert_feed_forward_length expert_shared_count expert_used_count"}.items():
        for key in keys.split():
            refused("%s.%s: missing key" % (name, key), name, remove=["%s.%s" % (name, key)])
    refused("tensor blk.0.ffn_gate_inp.bias: not part of a Llama model", "mixtral", add=[("blk.0.ffn_gate_inp.bias", 4)])
    refused("blk.0.exp_probs_b.bias: expected shape (1, 7), found (1, 6)", "qwen3moe", add=[("blk.0.exp_probs_b.bias", 6)])

    refused("recurrent layers", "granite", add=[("blk.1.ssm_a", 4)])
    refused("soft caps of logits", "granite", {"granite.final_logit_softcapping": 30.0})
    refused("post-norms", "qwen2", add=[("blk.0.post_attention_norm.weight", 32)])
    refused("q, k and v in one tensor", "qwen2", add=[("blk.0.attn_qkv.weight", 32)])
    refused("sliding windows", "qwen2", {"general.architecture": "cohere2", "cohere2.attention.sliding_window": 8})
    refused('expected ... found "gpt2"', "qwen2",
            {"general.architecture": "gpt2"})
    refused("another activation (GELU)", "llama", {"general.architecture": "gemma"})

    refused("tensor blk.0.attn_q_norm.weight: not part of a Llama model", "llama", add=[("blk.0.attn_q_norm.weight", 8)])
    refused("tensor rope_freqs.weight: not part of a Qwen 3 model", "qwen3", add=[("rope_freqs.weight", 6)])
    refused("tensor blk.0.attn_k_norm.weight: expected shape (1, 12)", "qwen3", remove=["blk.0.attn_k_norm.weight"])

    refused("granite.logit_scale: missing key", "granite", remove=["granite.logit_scale"])
    refused("granite.residual_scale: expected a positive number", "granite", {"granite.residual_scale": -1.0})
    refused("mistral3.attention.temperature_scale: expected a positive number", "mistral3",
            {"mistral3.attention.temperature_scale": float("nan")})
    refused("granite.attention.head_count_kv: expected ... found an array", "granite",
            {"granite.attention.head_count_kv": [2, 4]})


@test
def sliding_window(tmp):
    """A window limits the context, with a warning; up to it, the logits are those of a file without."""
    path, metadata, tensors = make_family(tmp, "qwen2")
    plain, out = logits_of(path, range(20), os.path.join(tmp, "logits"), "avx512"), os.path.join(tmp, "logits")
    windowed = os.path.join(tmp, "windowed.gguf")
    write_family(windowed, dict(metadata, **{"qwen2.attention.sliding_window": 20}), tensors)
    check(logits_of(windowed, range(20), out, "avx512") == plain, "the window matters before its length")
    _, err = call("show", "-m", windowed)
    check("a sliding window of 20 positions is not supported; the context is limited" in err, err)
    for args in ((), ("-c", "100")):
        ids = ",".join(map(str, range(21)))
        _, err = call("logits", "-m", windowed, "--ids", ids, "-o", out, "--force", *args, code=4)
        check("21 tokens, context 20" in err, err)


def compare_data(tmp, folder):
    """Files with logits of llama.cpp."""
    source = os.path.join(DATA, folder, "golden.json")
    if not os.path.exists(source):
        raise Skip("no " + source)
    with open(source, encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    check(len(cases) > 4, len(cases), "cases")

    def read(name):
        with open(os.path.join(DATA, folder, name), "rb") as f:
            return f.read()

    for case in some(cases):
        data = read(case["logits"])
        expected, vocab = struct.unpack("<%df" % (len(data) // 4), data), case["vocab"]
        tokens, limit = list(map(int, read(case["ids"]).split())), case["limit"]
        for isa in in_ci(("scalar", "avx2", "avxvnni", "avx512", "amx"), ("scalar", "amx")):
            found = logits_of(os.path.join(DATA, folder, case["file"]), tokens, os.path.join(tmp, "logits"), isa)
            rows = [v for pos in case["positions"] for v in found[pos * vocab:(pos + 1) * vocab]]
            error = nmse(rows, expected)
            check(error <= limit, case["ids"], isa, "NMSE", error)


@test
def family_files(tmp):
    compare_data(tmp, "families")


@test
def expert_files(tmp):
    compare_data(tmp, "moe")


@test
def listed_experts(tmp):
    """show --tensors prints the number of experts too."""
    path, _, _ = make_family(tmp, "qwen3moe")
    out = call("show", "-m", path, "--tensors")[0].decode()
    for name, shape in (("ffn_gate_exps", "(7, 48, 32)"), ("ffn_gate_inp", "(7, 32)"), ("ffn_norm", "(1, 32)")):
        check(re.search(r"blk\.1\.%s\.weight +\S+ +%s\n" % (name, re.escape(shape)), out), name, out[-900:])


@test
def router_nan(tmp):
    """A router that is not finite is an error, never a choice."""
    _, metadata, tensors = make_family(tmp, "qwen3moe")
    path, out = os.path.join(tmp, "nan.gguf"), os.path.join(tmp, "logits")
    for value in (float("nan"), float("inf")):
        tensors["blk.1.ffn_gate_inp.weight"][1][40] = value
        write_family(path, metadata, tensors)
        refuses(1, "the logits contain NaN or infinity", "logits", "-m", path, "--ids", "1,2,3", "-o", out, "--force")
        refuses(3, "tensor blk.1.ffn_gate_inp.weight: row 1: NaN or infinite weight", "show", "--check", "-m", path)


@test
def type_files(tmp):
    compare_data(tmp, "types")


@test
def plain(tmp):
    compare(tmp, False)


@test
def biases(tmp):
    compare(tmp, True)


if __name__ == "__main__":
    main("reference")
