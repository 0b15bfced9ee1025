#!/usr/bin/env python3
"""Logits against a reference forward pass in double precision, written here from the equations.

It reads the original Hugging Face checkpoint, whose layout differs from GGUF: the rotary pairs are the two halves of a
head, and matrices may have biases."""
import json
import math
import os
import random
import struct
import subprocess
import sys

from cli import GOLDEN, SCRIPTS, call, check, main, test

sys.path.insert(0, SCRIPTS)
from lib import checkpoints

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


@test
def plain(tmp):
    compare(tmp, False)


@test
def biases(tmp):
    compare(tmp, True)


if __name__ == "__main__":
    main("reference")
