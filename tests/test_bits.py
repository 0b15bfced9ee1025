#!/usr/bin/env python3
"""The bits of --deterministic: the same on every backend, for every chunk size, alone and in a batch, as recorded in
tests/golden/bits.json. `python3 tests/test_bits.py --record` records them anew, for a new version of the arithmetic."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from cli import DATA, GOLDEN, PROGRAM, ROOT, SCRIPTS, Skip, check, in_ci, main, requires, same, some, test

BUILT_IN = os.path.join(ROOT, "stories", "stories.gguf")
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL")
IDS = ",".join(str(5 + 7 * i % 240) for i in range(64))
WAYS = ([], ["-b", "1"], ["-b", "7"], ["-t", "1"])
KV = ("f16", "f32")
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


def texts(isa, *args):
    lines = "".join(json.dumps({"id": i, "prompt": f"{p} {i}", "max_tokens": 24}) + "\n" for i, p in enumerate(PROMPTS))
    out = run(isa, "batch", "-q", "--ordered", "--raw", "--temp", "0", "--deterministic", "-m", BUILT_IN, *args, stdin=lines.encode())
    return hashlib.sha256("\n".join(json.loads(line)["text"] for line in out.splitlines()).encode()).hexdigest()


def measure(isa, tmp):
    bits = {name: logits(isa, tmp, quantized(tmp, name)) for name in TYPES}
    bits.update({"kv " + kv: logits(isa, tmp, BUILT_IN, "--kv", kv) for kv in KV})
    bits["40 texts"] = texts(isa)
    return bits


@test
def golden_bits(tmp):
    requires("quantize")
    with open(os.path.join(GOLDEN, "bits.json"), encoding="utf-8") as f:
        golden = json.load(f)
    for isa in backends():
        same(measure(isa, tmp), golden, isa)


@test
def batches_and_chunks(tmp):
    """Neither the chunk size nor the other sequences of a batch change a bit."""
    requires("quantize")
    for isa in some(backends(), 2):
        for name in "Q8_0", "Q5_1", "BF16":
            same(len({logits(isa, tmp, quantized(tmp, name), *way) for way in WAYS}), 1, (isa, name))
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
    code, said = verify(isas[-1], "--sample", "100%", requests, out, *options)
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
        json.dump(measure(backends()[0], folder), f, indent=1)
        f.write("\n")
else:
    main("bits")
