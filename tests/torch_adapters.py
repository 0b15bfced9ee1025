"""Logits of a Llama model with a LoRA adapter, by torch in float64, as a reference for export.py and `--lora`. The
equations are those of transformers and PEFT. Nothing is shared with scripts/.

Each line of stdin is an object: "base" and "adapter" are directories of Hugging Face and PEFT (adapter null: none), "ids"
the tokens, "out" the file for the logits in f32. With "is_pickle", the adapter is then saved again by torch.save."""
import json
import math
import os
import re
import struct
import sys

import torch

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_json(directory, name):
    with open(os.path.join(directory, name)) as f:
        return json.load(f)


def read_model(directory):
    files = [name for name in sorted(os.listdir(directory)) if name.endswith(".safetensors")]
    return {k: w for name in files for k, w in read_safetensors(os.path.join(directory, name)).items()}


def read_safetensors(path):
    with open(path, "rb") as f:
        length, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[slice(*t["data_offsets"])]), dtype=TYPES[t["dtype"]])
            .reshape(t["shape"]).double() for name, t in header.items()}


def pattern_value(patterns, module, default):
    """The value of the first pattern that matches a module's name, or its end after a dot."""
    return next((v for p, v in (patterns or {}).items() if re.match(r"(.*\.)?(%s)$" % p, module)), default)


def read_adapter(directory):
    """{module: (A, B, scale)}"""
    if not directory:
        return {}
    settings = read_json(directory, "adapter_config.json")
    tensors = read_safetensors(os.path.join(directory, "adapter_model.safetensors"))

    adapter = {}
    for name, b in tensors.items():
        m = re.match(r"base_model\.model\.(.*)\.lora_(embedding_)?B(\.weight)?$", name)
        if m:
            module, a = m.group(1), tensors[re.sub(r"B(\.weight)?$", r"A\1", name)]
            rank = pattern_value(settings.get("rank_pattern"), module, settings["r"])
            alpha = pattern_value(settings.get("alpha_pattern"), module, settings["lora_alpha"])
            adapter[module] = a, b, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return adapter


def frequencies(config):
    """The frequencies of RoPE with Llama 3.1's scaling."""
    dim, rule = config["head_dim"], config["rope_scaling"]
    f = config["rope_theta"] ** (-torch.arange(0, dim, 2).double() / dim)
    turns = rule["original_max_position_embeddings"] * f / (2 * math.pi)
    smooth = (turns - rule["low_freq_factor"]) / (rule["high_freq_factor"] - rule["low_freq_factor"])
    smooth = smooth.clamp(0, 1)
    return f * ((1 - smooth) / rule["factor"] + smooth)


def forward(config, weights, adapter, ids):
    def linear(module, x):
        y = x @ weights[module + ".weight"].T
        if module in adapter:
            a, b, scale = adapter[module]
            y = y + scale * (x @ a.T @ b.T)
        return y

    def rmsnorm(name, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[name + ".weight"]

    def heads(x):
        return x.reshape(len(ids), -1, config["head_dim"]).transpose(0, 1)

    def rotate(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    angles = torch.outer(torch.arange(len(ids)).double(), frequencies(config)).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    mask = torch.full((len(ids), len(ids)), -math.inf).triu(1)
    group = config["num_attention_heads"] // config["num_key_value_heads"]

    x = weights["model.embed_tokens.weight"][ids]
    if "model.embed_tokens" in adapter:
        a, b, scale = adapter["model.embed_tokens"]
        x = x + scale * (a.T[ids] @ b.T)

    for i in range(config["num_hidden_layers"]):
        layer = "model.layers.%d." % i
        h = rmsnorm(layer + "input_layernorm", x)
        q, k, v = (heads(linear(layer + "self_attn.%s_proj" % side, h)) for side in "qkv")
        k, v = rotate(k).repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = rotate(q) @ k.transpose(1, 2) / math.sqrt(config["head_dim"]) + mask
        h = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), -1)
        x = x + linear(layer + "self_attn.o_proj", h)

        h = rmsnorm(layer + "post_attention_layernorm", x)
        gate, up = (linear(layer + "mlp.%s_proj" % name, h) for name in ("gate", "up"))
        x = x + linear(layer + "mlp.down_proj", torch.nn.functional.silu(gate) * up)
    return linear("lm_head", rmsnorm("model.norm", x))


for line in sys.stdin:
    task = json.loads(line)
    logits = forward(read_json(task["base"], "config.json"), read_model(task["base"]), read_adapter(task["adapter"]),
                     task["ids"]).float().flatten().tolist()
    with open(task["out"], "wb") as f:
        f.write(struct.pack("<%df" % len(logits), *logits))
    if task.get("is_pickle"):
        path = os.path.join(task["adapter"], "adapter_model.safetensors")
        torch.save({k: v.float() for k, v in read_safetensors(path).items()}, path.replace(".safetensors", ".bin"))
        os.remove(path)
