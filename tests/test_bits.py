#!/usr/bin/env python3
"""The bits of --deterministic: the same on every backend, for every chunk size, alone and in a batch, as recorded in
tests/golden/bits.json. `python3 tests/test_bits.py --record` records them anew, for a new version of the arithmetic."""
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from cli import DATA, GOLDEN, PROGRAM, ROOT, SCRIPTS, Skip, check, in_ci, main, requires, same, some, test

sys.path.insert(0, SCRIPTS)
from export import Config
from lib import gguf_writer, weights

BUILT_IN = os.path.join(ROOT, "stories", "stories.gguf")
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL")
IDS = ",".join(str(5 + 7 * i % 240) for i in range(64))
WAYS = ([], ["-b", "1"], ["-b", "7"], ["-t", "1"])
KV = ("f16", "f32")
QUANTIZED_KV = ("q8_0", "q4_0", "q8_0,q4_0")  # of heads of 64
# Quantized types: number in GGUF, weights and bytes of a block, offsets of its float16 numbers, and these. All other bytes
# are random. Weights are at most about 0.3.
BLOCKS = {
    "Q4_0": (2, 32, 18, {0: 0.03}), "Q4_1": (3, 32, 20, {0: 0.03, 2: -0.2}), "Q5_0": (6, 32, 22, {0: 0.02}),
    "Q5_1": (7, 32, 24, {0: 0.02, 2: -0.3}), "Q8_0": (8, 32, 34, {0: 0.002}), "Q2_K": (10, 256, 84, {80: 0.01, 82: 0.015}),
    "Q3_K": (11, 256, 110, {108: 0.003}), "Q4_K": (12, 256, 144, {0: 0.0005, 2: 0.004}),
    "Q5_K": (13, 256, 176, {0: 0.0003, 2: 0.004}), "Q6_K": (14, 256, 210, {208: 0.0001}), "IQ2_XXS": (16, 256, 66, {0: 0.002}),
    "IQ2_XS": (17, 256, 74, {0: 0.002}), "IQ3_XXS": (18, 256, 98, {0: 0.002}), "IQ1_S": (19, 256, 50, {0: 0.02}),
    "IQ4_NL": (20, 32, 18, {0: 0.002}), "IQ3_S": (21, 256, 110, {0: 0.001}), "IQ2_S": (22, 256, 82, {0: 0.002}),
    "IQ4_XS": (23, 256, 136, {0: 0.0001}), "IQ1_M": (29, 256, 56, {}), "TQ1_0": (34, 256, 54, {52: 0.1}),
    "TQ2_0": (35, 256, 66, {64: 0.1}), "Q1_0": (41, 128, 18, {0: 0.1}), "Q2_0": (42, 64, 18, {0: 0.1}),
}
FAMILIES = {  # hyperparameters, all with matrices of Q4_K
    "llama": dict(rope={"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                        "original_max_position_embeddings": 32}),
    "qwen3": dict(qk_norm="head", head_dim=128, rope_theta=1e6),
    "granite": dict(extra={"embedding_scale": 3.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 7.0}),
    "qwen3moe": dict(qk_norm="head", n_experts=5, n_used=2, expert_dim=256, extra={"expert_feed_forward_length": 256}),
}
# Matrices of zeros switch operations off. In this order, a stage adds these operations to those of the stage before.
STAGES = {
    "embedding, RMSNorm, output matrix": ("attn_output", "ffn_down"),
    "products of values and attention output, sum of values": ("attn_q", "ffn_down"),
    "products of queries and keys, RoPE, attention scores, softmax": ("ffn_down",),
    "router, products of the FFN, SwiGLU": (),
}
PROMPTS = ["Once upon a time", "The dog", "Lily and Ben", "One day, a big cat", "It was raining", "Tom had a red ball", "A bird",
           "The little boat"] * 5


def run(isa, *args, stdin=b""):
    env = dict(os.environ, LLAMA31_ISA=isa)
    r = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, env=env, timeout=300)
    check(r.returncode == 0, isa, args, r.stderr.decode())
    return r.stdout


def backends():
    """The backends of this CPU that share the arithmetic."""
    found = []
    for isa in "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm":
        r = subprocess.run([PROGRAM, "show", "--bandwidth", "1"], capture_output=True, text=True, env=dict(os.environ, LLAMA31_ISA=isa))
        if f"kernels       {isa}\n" in r.stdout:
            found.append(isa)
    if not found:
        raise Skip("this CPU has the scalar backend only")
    return found


def logits(isa, tmp, model, *args):
    out = os.path.join(tmp, "logits")
    run(isa, "logits", "-q", "--force", "--deterministic", "-m", model, "--ids", IDS, "-o", out, *args)
    with open(out, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def quantized(tmp, name):
    path = os.path.join(tmp, name + ".gguf")
    if not os.path.exists(path):
        run("", "quantize", "-q", BUILT_IN, path, name)
    return path


def random_blocks(rng, name, n_weights):
    """Blocks of a type."""
    _, per_block, size, numbers = BLOCKS[name]
    data = bytearray(rng.getrandbits(8 * size * (n_weights // per_block)).to_bytes(size * (n_weights // per_block), "little"))
    for offset, number in numbers.items():
        for i, byte in enumerate(struct.pack("<e", number)):
            data[offset + i::size] = bytes([byte]) * len(data[offset + i::size])
    if name == "IQ1_M":  # d = 2^-7 is in the upper four bits of four words
        for offset, nibble in zip((49, 51, 53, 55), (0, 0, 0, 2)):
            data[offset::size] = bytes(b & 15 | nibble << 4 for b in data[offset::size])
    return bytes(data)


def random_model(tmp, name, block_type, **values):
    """The paths of a random model, one for each stage. Only exact operations make the weights."""
    paths = [os.path.join(tmp, "%s-%d.gguf" % (name, i)) for i in range(len(STAGES))]
    if os.path.exists(paths[-1]):
        return paths
    rng, c = random.Random(name), Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim = 256, 768, 2, 4, 2, 64
    c.vocab_size, c.context_length, c.name, c.architecture = 256, 256, name, name if name in FAMILIES else "llama"
    vars(c).update(values)
    number, per_block, size, _ = BLOCKS[block_type]
    gguf_writer.TYPES[block_type] = number, size / per_block

    tensors = c.divisors()
    for tensor, shape in {**c.shapes(), "output.weight": (c.vocab_size, c.dim)}.items():
        n = gguf_writer.product(shape)
        if len(shape) == 1 or "ffn_gate_inp" in tensor:
            numbers = [rng.getrandbits(16) / 65536 + 0.5 * (len(shape) == 1) for _ in range(n)]
            tensors.append(weights.Literal(tensor, "f32", shape, struct.pack("<%df" % n, *numbers)))
        else:
            tensors.append(weights.Literal(tensor, block_type, shape, random_blocks(rng, block_type, n)))
    for path, zeros in zip(paths, STAGES.values()):
        stage = [weights.Literal(t.name, t.type, t.shape, bytes(len(t.data))) if any(z in t.name for z in zeros) else t
                 for t in tensors]
        gguf_writer.write_gguf(path, c.metadata(0), stage)
    return paths


def family(tmp, name):
    return random_model(tmp, name, "Q4_K", **FAMILIES[name])


def texts(isa, *args):
    lines = "".join(json.dumps({"id": i, "prompt": f"{p} {i}", "max_tokens": 24}) + "\n" for i, p in enumerate(PROMPTS))
    out = run(isa, "batch", "-q", "--ordered", "--raw", "--temp", "0", "--deterministic", "-m", BUILT_IN, *args, stdin=lines.encode())
    return hashlib.sha256("\n".join(json.loads(line)["text"] for line in out.splitlines()).encode()).hexdigest()


def measure(isa, tmp):
    bits = {name: logits(isa, tmp, quantized(tmp, name)) for name in TYPES}
    bits.update({"kv " + kv: logits(isa, tmp, BUILT_IN, "--kv", kv) for kv in KV})
    bits.update({"kv " + kv: logits(isa, tmp, family(tmp, "llama")[-1], "--kv", kv) for kv in QUANTIZED_KV})
    bits["40 texts"] = texts(isa)
    return bits


def measure_stages(isa, tmp):
    """{name: hashes of the stages} of a model of each quantized type and of each family."""
    models = {**{name: random_model(tmp, name, name) for name in BLOCKS}, **{name: family(tmp, name) for name in FAMILIES}}
    return {name: [logits(isa, tmp, path)[:16] for path in paths] for name, paths in models.items()}


@test
def golden_bits(tmp):
    requires("quantize")
    with open(os.path.join(GOLDEN, "bits.json"), encoding="utf-8") as f:
        golden = json.load(f)
    stages = golden.pop("stages")
    for isa in backends():
        same(measure(isa, tmp), golden, isa)
        found = measure_stages(isa, tmp)
        same(list(found), list(stages))
        for name, expected in stages.items():
            differing = [stage for stage, a, b in zip(STAGES, found[name], expected) if a != b]
            check(not differing, isa, name, "the first differing operations:", *differing[:1])


@test
def batches_and_chunks(tmp):
    """Neither the chunk size nor the other sequences of a batch change a bit."""
    requires("quantize")
    for isa in some(backends(), 2):
        for name in "Q8_0", "Q5_1", "BF16":
            same(len({logits(isa, tmp, quantized(tmp, name), *way) for way in WAYS}), 1, (isa, name))
        for model in [random_model(tmp, name, name)[-1] for name in some(list(BLOCKS), 4)] + [family(tmp, "qwen3moe")[-1]]:
            same(len({logits(isa, tmp, model, *way) for way in WAYS}), 1, (isa, model))
        same(len({texts(isa, "-np", n) for n in ("1", "3", "16")}), 1, isa)


def verify(isa, *args):
    r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "verify_batch.py"), "--program", PROGRAM, *args], capture_output=True,
                       text=True, env=dict(os.environ, LLAMA31_ISA=isa), timeout=300)
    return r.returncode, r.stdout + r.stderr


@test
def verified_batches(tmp):
    """verify_batch.py recomputes answers of another backend, finds each changed byte, and refuses what cannot be verified."""
    requests, out, changed = (os.path.join(tmp, name) for name in ("in.jsonl", "out.jsonl", "changed.jsonl"))
    with open(requests, "w", encoding="utf-8") as f:
        for i, prompt in enumerate(PROMPTS):
            named = {"id": f"r{i}"} if i % 3 else {}
            f.write(json.dumps({"prompt": f"{prompt} {i}", "max_tokens": 12, "n": 1 + (i % 5 == 0), **named}) + "\n")
        f.write(json.dumps({"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 9}}))
    isas = backends()
    how = ["batch", "-q", "--raw", "--temp", "0.8", "-m", BUILT_IN, "-i", requests]
    run(isas[0], *how, "--deterministic", "-o", out)
    options = ["--raw", "--temp", "0.8", "-m", BUILT_IN]
    code, said = verify(isas[-1], "--sample", "100%", requests, out, *options, "--deterministic", "-i", "x", "-o", out, "--force")
    same((code, said), (0, "41 of 41 answers recomputed, 0 differ\n"))

    with open(out, encoding="utf-8") as f:
        lines = f.readlines()
    for i in range(in_ci(20, 2)):
        other, at = list(lines), 7 * i % len(lines)
        begin = other[at].index('"text":"') + 8
        other[at] = other[at][:begin] + "X" + other[at][begin:]
        with open(changed, "w", encoding="utf-8") as f:
            f.write("".join(other))
        code, said = verify(isas[-1], "--sample", "41", requests, changed, *options)
        check(code == 1 and "41 answers recomputed, 1 differ" in said, said)

    # What is no answer to a request.
    first = next(i for i, line in enumerate(lines) if line.startswith('{"id":"r') and '"run"' not in line)
    for old, new, word in ('"id":"r', '"id":"x', ": no such request"), ('"request":"', '"request":"0', ": the request has changed"):
        with open(changed, "w", encoding="utf-8") as f:
            f.write("".join(lines[:first] + [lines[first].replace(old, new)] + lines[first + 1:]))
        code, said = verify(isas[-1], "--sample", "1", requests, changed, *options)
        check(code == 1 and word in said, said)
    for old, new, words in (('"deterministic 1"', '"deterministic 0"', 'arithmetic "deterministic 0", now "deterministic 1"; compute it again'),
                            ('{"version":', '{"version":9', "the identity of its run has another version than ")):
        with open(changed, "w", encoding="utf-8") as f:
            f.write("".join(line.replace(old, new) for line in lines))
        code, said = verify(isas[-1], requests, changed, *options)
        check(code == 2 and words in said and said.count("\n") == 1, said)
    for args, status, words in ((["/none", out], 1, "/none: No such file"), (["--sample", "0", requests, out], 2, "--sample: expected"),
                                ([requests, out, "-m", "/none"], 1, "/none: no such file")):
        code, said = verify(isas[-1], *args)
        check(code == status and words in said and "Traceback" not in said, said)

    # Lines of text: their numbers are the ids.
    text = os.path.join(tmp, "in.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.write("Once\n\nThe dog\n  \n{x}\n")
    run(isas[0], "batch", "-q", "--raw", "--lines", "-n", "9", "--deterministic", "-m", BUILT_IN, "-i", text, "-o", out + ".txt")
    code, said = verify(isas[-1], "--sample", "100%", "--lines", text, out + ".txt", "--raw", "-n", "9", "-m", BUILT_IN)
    same((code, said), (0, "3 of 3 answers recomputed, 0 differ\n"))

    code, said = verify(isas[0], requests, out, "--raw", "-m", BUILT_IN, "--temp", "0.5")
    check(code == 2 and "--temp 0.8, now 0.5" in said, said)
    run(isas[0], *how, "-o", os.path.join(tmp, "fast.jsonl"))
    code, said = verify(isas[0], requests, os.path.join(tmp, "fast.jsonl"), *options)
    check(code == 2 and "compute it again with batch --deterministic" in said, said)


@test
def reference_models(tmp):
    """Every reference model has the same logits on every backend of this CPU."""
    models = [os.path.join(DATA, folder, name) for folder in ("families", "moe", "types") if os.path.isdir(os.path.join(DATA, folder))
              for name in sorted(os.listdir(os.path.join(DATA, folder))) if name.endswith(".gguf")]
    isas = backends()
    if not models or len(isas) < 2:
        raise Skip("no reference models" if not models else "one backend only")
    for model in some(models):
        same({isa: logits(isa, tmp, model) for isa in isas}, dict.fromkeys(isas, logits(isas[0], tmp, model)), model)


if "--record" in sys.argv:
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(GOLDEN, "bits.json"), "w", encoding="utf-8") as f:
        isa = backends()[0]
        bits = json.dumps(dict(measure(isa, folder), stages=0), indent=1)
        stages = ",\n".join('  "%s": %s' % (name, json.dumps(found)) for name, found in measure_stages(isa, folder).items())
        f.write(bits.replace('"stages": 0', '"stages": {\n%s\n }' % stages))
        f.write("\n")
else:
    main("bits")
