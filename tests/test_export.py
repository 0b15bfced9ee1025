#!/usr/bin/env python3
"""scripts/export.py: equal tensors from every source format, the golden logits in the program, and invalid sources."""
import array
import base64
import collections
import contextlib
import io
import json
import math
import os
import pickle
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
import zipfile

from cli import (DATA, PROGRAM, ROOT, SCRIPTS, Skip, call, check, export_here, in_ci, main, requires, same, slow,
                 some, test)

sys.path.insert(0, SCRIPTS)
import export
import make_synthetic
from lib import adapters, gguf_writer, vocabulary, weights
from lib.gguf_writer import TYPES

GOLDEN = os.path.join(ROOT, "tests", "golden")
EXPORT = [sys.executable, "-B", os.path.join(SCRIPTS, "export.py")]


# A GGUF reader, independent of the writer

def read_gguf(path):
    """(metadata, {name: (type, shape, bytes)})"""
    with open(path, "rb") as f:
        b = f.read()
    at = 24

    def take(form):
        nonlocal at
        v = struct.unpack_from("<" + form, b, at)
        at += struct.calcsize("<" + form)
        return v[0] if len(v) == 1 else v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return b[at - n:at].decode("utf-8")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = take("IQ")
            return [value(kind) for _ in range(n)]
        return take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])


    same(b[:8], b"GGUF\3\0\0\0")
    n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
    metadata = {}
    for _ in range(n_keys):
        key = text()
        metadata[key] = value(take("I"))

    infos = []
    for _ in range(n_tensors):
        name, n = text(), take("I")
        infos.append((name, [take("Q") for _ in range(n)][::-1], take("I"), take("Q")))
    begin = at + -at % 32

    tensors = {}
    for name, shape, kind, offset in infos:
        kind, width, block = {0: ("f32", 4, 1), 1: ("f16", 2, 1), 30: ("bf16", 2, 1), 8: ("q8_0", 34, 32),
                              12: ("q4_k", 144, 256), 14: ("q6_k", 210, 256), 27: ("i64", 8, 1)}[kind]
        size = width * shape[-1] // block
        for n in shape[:-1]:
            size *= n
        check(offset % 32 == 0 and begin + offset + size <= len(b), name, "is outside the file")
        tensors[name] = (kind, shape, b[begin + offset:begin + offset + size])
    return metadata, tensors


# Writers of source files

def write_pth(path, tensors, pickled=None, extra=(), nested=None, is_parameter=False):
    """Writes {name: (type, shape, bytes)} as torch.save does; as parameters of a module, and under a key beside the state
    of a trainer; or another pickle in place of its own."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("BFloat16Storage", "HalfStorage", "FloatStorage", "LongStorage", "IntStorage", "BoolStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*_):
        pass

    def _rebuild_parameter(*_):
        pass

    for f in (_rebuild_tensor_v2, _rebuild_parameter):
        f.__module__, f.__qualname__ = "torch._utils", f.__name__
        setattr(utils, f.__name__, f)
    kinds = {"bf16": torch.BFloat16Storage, "f16": torch.HalfStorage, "f32": torch.FloatStorage,
             "i64": torch.LongStorage, "i32": torch.IntStorage, "bool": torch.BoolStorage}

    class Storage:
        def __init__(self, key, kind, n):
            self.id = ("storage", kinds[kind], key, "cpu", n)

    class Tensor:
        def __init__(self, key, kind, shape, size, stride):
            strides, n = [], 1
            for d in reversed(shape):
                strides.insert(0, n)
                n *= d
            self.args = (Storage(key, kind, size // TYPES[kind][1]), 0, tuple(shape),
                         tuple(stride or strides), False, {})

        def __reduce__(self):
            return _rebuild_tensor_v2, self.args

    class Parameter(Tensor):
        def __reduce__(self):
            tensor = Tensor.__new__(Tensor)
            tensor.args = self.args
            return _rebuild_parameter, (tensor, True, collections.OrderedDict())

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return obj.id if isinstance(obj, Storage) else None

    state, out = {}, io.BytesIO()
    for i, (name, (kind, shape, data, *stride)) in enumerate(tensors.items()):
        state[name] = (Parameter if is_parameter else Tensor)(str(i), kind, shape, len(data), stride[0] if stride else None)
    if nested:
        optimizer = {"state": {}, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95), "foreach": None, "params": [0, 1]}]}
        state = {nested: state, "optimizer": optimizer, "step": 70000, "is_done": False}
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    try:
        Pickler(out, 2).dump(state)
    finally:
        del sys.modules["torch"], sys.modules["torch._utils"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", pickled if pickled is not None else out.getvalue())
        for i, (kind, shape, data, *_) in enumerate(tensors.values()):
            z.writestr("archive/data/%d" % i, data)
        for name, data, method in extra:
            z.writestr(zipfile.ZipInfo(name), data, method)


def read_pth(path):
    """{name: (type, shape, bytes)} of a golden checkpoint."""
    return {n: (w.type, w.shape, b"".join(w.pieces())) for n, w in export.read_pth(path).items()}


def write_safetensors(path, tensors, header=None, tail=b""):
    """header(dict) -> dict or bytes may change the header."""
    h, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        h[name] = {"dtype": kind.upper(), "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    h = header(h) if header else h
    h = h if isinstance(h, bytes) else json.dumps(h).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(t[2] for t in tensors.values()) + tail)


def copy(name, to):
    """A copy of a golden checkpoint, for modification."""
    path = os.path.join(to, "source")
    shutil.copytree(os.path.join(GOLDEN, name), path)
    return path


def json_lines(values):
    return "".join(json.dumps(v) + "\n" for v in values).encode()


def edit_json(path, change):
    with open(path) as f:
        v = json.load(f)
    v = change(v) or v
    with open(path, "w") as f:
        json.dump(v, f)


# Running export.py

def run_export(source, out, *args, **kw):
    return subprocess.run(EXPORT + [source, "-o", out] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, **kw)


def exported(source, tmp, *args):
    out = os.path.join(tmp, "out.gguf")
    export_here(source, out, *args)
    return read_gguf(out)


def refused(source, tmp, *words, code=3, args=()):
    """The export fails with this exit code and one line with these words, and leaves no file."""
    directory = os.path.join(tmp, "refused")
    os.makedirs(directory, exist_ok=True)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = export.main([source, "-o", os.path.join(directory, "out.gguf")] + list(args))
    lines = [line for line in err.getvalue().splitlines() if not line.startswith("note:")]
    same(os.listdir(directory), [], "left behind:")
    check(status == code and len(lines) == 1 and lines[0].startswith("error: ") and not out.getvalue(),
          "expected exit", code, "and one line, found", status, out.getvalue(), err.getvalue())
    for word in words:
        check(word in lines[0], "expected", repr(word), "in", lines[0])


def find(name):
    for root in (GOLDEN, DATA):
        if os.path.isdir(os.path.join(root, name)):
            return os.path.join(root, name)
    raise Skip("no %s in %s" % (name, DATA))


# The same model from every format

def forms_agree(name, tmp):
    """The formats of Meta and Hugging Face give the tensors of the .pth file, byte for byte."""
    meta, from_meta = exported(find(name), tmp)
    face, from_face = exported(find(name + "-hf"), tmp)
    same(sorted(from_meta), sorted(from_face))
    for t in from_meta:
        check(from_meta[t] == from_face[t], t, "differs between the two formats")
    with zipfile.ZipFile(os.path.join(find(name), "consolidated.00.pth")) as z:
        stored = [z.read(n) for n in z.namelist() if "/data/" in n]
    for t, (kind, shape, data) in from_meta.items():
        if len(shape) > 1:
            check(kind == "bf16" and data in stored, t, "differs from the checkpoint")
    for key in ("tokens", "token_type", "bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "model", "pre"):
        same(meta["tokenizer.ggml." + key], face["tokenizer.ggml." + key], key)
    for key in ("block_count", "embedding_length", "feed_forward_length", "attention.head_count", "rope.freq_base",
                "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "vocab_size"):
        same(meta["llama." + key], face["llama." + key], key)


def golden_logits(name, tmp):
    """Logits of both formats against Meta's implementation, along the greedy path, with the scalar backend and with the
    best one (which may round activations to bf16)."""
    with open(os.path.join(find(name), "golden.json")) as f:
        golden = json.load(f)

    if not os.path.exists(PROGRAM):
        raise Skip("no %s" % PROGRAM)

    n_vocab = golden["params"]["vocab_size"]
    own = os.environ.get("LLAMA31_ISA")
    for form, isa, limit in ((name, own or "scalar", 1e-6), (name + "-hf", own, 1e-4)):
        environment = dict(os.environ, LLAMA31_ISA=isa) if isa else dict(os.environ)

        model, out, ids = (os.path.join(tmp, n) for n in ("m.gguf", "logits.f32", "ids"))
        same(run_export(find(form), model).returncode, 0)

        for case in golden["cases"]:
            tokens = case["tokens"] + case["greedy"][:-1]
            with open(ids, "w") as f:
                f.write(",".join(map(str, tokens)))
            p = subprocess.run([PROGRAM, "logits", "-m", model, "--ids", "@" + ids, "-o", out], stderr=subprocess.PIPE,
                               universal_newlines=True, env=environment)
            check(p.returncode == 0, p.stderr)

            found, expected = array.array("f"), array.array("f")
            with open(out, "rb") as f:
                found.frombytes(f.read())
            with open(os.path.join(find(name), case["logits_file"]), "rb") as f:
                expected.frombytes(f.read())

            same(len(found), len(tokens) * n_vocab)
            rows = [found[i * n_vocab:(i + 1) * n_vocab] for i in range(len(tokens))]
            error = size = 0.0
            for i, position in enumerate(case["positions"]):
                for a, b in zip(rows[position], expected[i * n_vocab:(i + 1) * n_vocab]):
                    error += (a - b) ** 2
                    size += b * b
            check(error <= limit * size, form, isa or "own", len(case["tokens"]), "tokens: NMSE", error / size)

            # The error may decide near ties.
            slack = 6 * (error / (len(case["positions"]) * n_vocab)) ** 0.5
            for row, best in zip(rows[len(case["tokens"]) - 1:], case["greedy"]):
                check(row[best] >= max(row) - slack, "greedy id", best, row[best], max(row))


for model in ("small31", "tiny31", "tiny2"):
    for body in (forms_agree, golden_logits):
        def one(tmp, model=model, body=body):
            body(model, tmp)
        one.__name__ = "%s_%s" % (body.__name__, model)
        test(one)


@test
def meta_shards(tmp):
    """Several consolidated files, with the embedding split by rows (Llama 3) and by columns (Llama 2)."""
    _, expected = exported(find("small31"), tmp)
    whole = read_pth(os.path.join(find("small31"), "consolidated.00.pth"))

    for embedding in ("rows", "columns"):
        source = os.path.join(tmp, embedding)
        shutil.copytree(find("small31"), source)

        # wo, w2 and, for Llama 2, the embedding are split by columns, the other matrices by rows.
        for k in range(2):
            shard = {"rope.freqs": ("f32", (16,), bytes(64))}
            for name, (kind, shape, data) in whole.items():
                if len(shape) == 1:
                    shard[name] = (kind, shape, data)
                elif name.endswith(("wo.weight", "w2.weight")) or "embed" in name and embedding == "columns":
                    row, half = 2 * shape[1], shape[1]
                    shard[name] = (kind, (shape[0], shape[1] // 2),
                                   b"".join(data[r * row + k * half:r * row + (k + 1) * half] for r in range(shape[0])))
                else:
                    shard[name] = (kind, (shape[0] // 2, shape[1]), data[k * len(data) // 2:(k + 1) * len(data) // 2])
            write_pth(os.path.join(source, "consolidated.%02d.pth" % k), shard)

        _, found = exported(source, tmp)
        check(found == expected, "joined by", embedding)

        # Without the second file, without the first one.
        os.remove(os.path.join(source, "consolidated.01.pth"))
        refused(source, tmp, "expected 2 files", "found 1")
        os.rename(os.path.join(source, "consolidated.00.pth"), os.path.join(source, "consolidated.01.pth"))
        refused(source, tmp, "consolidated.00.pth")


@test
def rope_scaling(tmp):
    """Frequency divisors of Llama 3.1; the default factor and --rope-factor; linear scaling."""
    source = copy("small31", tmp)
    metadata, tensors = exported(source, tmp)
    kind, shape, data = tensors["rope_freqs.weight"]
    d = struct.unpack("<16f", data)
    check(kind == "f32" and shape == [16] and d[0] == 1 and d[-1] == 8 and all(a <= b for a, b in zip(d, d[1:])), d)
    check("llama.rope.scaling.type" not in metadata and "llama.rope.scaling.factor" not in metadata)
    same(metadata["llama.context_length"], 131072)

    _, tensors = exported(source, tmp, "--rope-factor", "32")
    same(struct.unpack("<16f", tensors["rope_freqs.weight"][2])[-1], 32.0)

    # Other factors and head sizes, against the sines of the reference.
    c = export.Config()
    c.head_dim, c.rope_theta = 64, 500000.0
    c.rope = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    same(struct.unpack("<32f", c.divisors()[0].data)[-1], 32.0)

    for name, c.head_dim, c.rope["factor"] in (("llama31-dim128-theta5e5-scaled", 128, 8.0),
                                              ("llama32-dim64-theta5e5-scaled8", 64, 8.0)):
        with open(os.path.join(GOLDEN, "rope", name + ".csv")) as f:
            sines = [float(line.split(",")[3]) for line in f if line.startswith("1,")]
        divisors = struct.unpack("<%df" % len(sines), c.divisors()[0].data)
        for i, (sine, divisor) in enumerate(zip(sines, divisors)):
            found = math.sin(c.rope_theta ** (-2 * i / c.head_dim) / divisor)
            check(abs(found / sine - 1) < 1e-6, name, "frequency", i, found, sine)

    face = copy("small31-hf", os.path.join(tmp, "hf"))
    edit_json(os.path.join(face, "config.json"), lambda c: c["rope_scaling"].update(factor=32.0))
    same(struct.unpack("<16f", exported(face, tmp)[1]["rope_freqs.weight"][2])[-1], 32.0)

    edit_json(os.path.join(face, "config.json"), lambda c: c.update(rope_scaling={"type": "linear", "factor": 4.0}))
    metadata, tensors = exported(face, tmp)
    check("rope_freqs.weight" not in tensors)
    same((metadata["llama.rope.scaling.type"], metadata["llama.rope.scaling.factor"]), ("linear", 4.0))

    yarn = {"type": "yarn", "factor": 4.0, "beta_fast": 16, "beta_slow": 2.0}
    edit_json(os.path.join(face, "config.json"), lambda c: c.update(rope_scaling=yarn))
    metadata, _ = exported(face, tmp)
    same([metadata["llama.rope.scaling.yarn_beta_" + speed] for speed in ("fast", "slow")], [16.0, 2.0])


@test
def types_of_weights(tmp):
    """--type converts matrices; vectors stay f32. All conversions equal those of struct."""
    _, bf16 = exported(find("small31"), tmp)

    for kind in ("f32", "f16"):
        metadata, found = exported(find("small31"), tmp, "--type", kind)
        same(metadata["general.file_type"], {"f32": 0, "f16": 1}[kind])

        for name, (_, shape, data) in bf16.items():
            if len(shape) == 1:
                same(found[name], ("f32", shape, data))
            else:
                numbers = struct.unpack("<%df" % (len(data) // 2), weights.bf16_to_f32(data))
                form = "<%d%s" % (len(numbers), "f" if kind == "f32" else "e")
                same(found[name], (kind, shape, struct.pack(form, *numbers)))

    rng = random.Random(1)
    x = [rng.uniform(-1, 1) * 2.0 ** rng.randint(-30, 15) for _ in range(20000)] + [0.0, -0.0, 65504.0, 2.0 ** -149]
    f32 = struct.pack("<%df" % len(x), *x)
    f16 = b"".join(struct.pack("<H", h) for h in range(65536) if h >> 10 & 31 != 31)
    bf16 = b"".join(struct.pack("<H", h) for h in range(65536) if h >> 7 & 255 < 127 + 15)

    def unpack(form, b):
        return struct.unpack("<%d%s" % (len(b) // struct.calcsize(form), form), b)

    def to_bf16(b):
        return struct.pack("<%dH" % (len(b) // 4), *[(v + 0x7fff + (v >> 16 & 1)) >> 16 for v in unpack("I", b)])

    f16_as_f32 = struct.pack("<%df" % (len(f16) // 2), *unpack("e", f16))
    bf16_as_f32 = struct.pack("<%df" % (len(bf16) // 2), *[struct.unpack("<f", struct.pack("<I", h << 16))[0]
                                                      for h in unpack("H", bf16)])

    for pair, source, expected in (
            (("f32", "f16"), f32, struct.pack("<%de" % len(x), *unpack("f", f32))),
            (("f32", "bf16"), f32, to_bf16(f32)),
            (("f16", "f32"), f16, f16_as_f32),
            (("f16", "bf16"), f16, to_bf16(f16_as_f32)),
            (("bf16", "f32"), bf16, bf16_as_f32),
            (("bf16", "f16"), bf16, struct.pack("<%de" % (len(bf16) // 2), *unpack("f", bf16_as_f32)))):
        check(weights.CONVERSIONS[pair](source) == expected, pair)

    for pair, bad in ((("f32", "bf16"), struct.pack("<2f", 1, float("nan"))), (("f32", "f16"), struct.pack("<f", 7e4)),
                      (("f32", "f16"), struct.pack("<f", float("inf"))),
                      (("f16", "f32"), struct.pack("<e", float("nan"))),
                      (("bf16", "f16"), struct.pack("<H", 0x7f80))):
        try:
            weights.CONVERSIONS[pair](bad)
        except ValueError:
            continue
        check(False, pair, "accepted", bad)


@test
def tied_output(tmp):
    source = copy("small31-hf", tmp)
    edit_json(os.path.join(source, "config.json"), lambda c: c.update(tie_word_embeddings=True))
    _, tensors = exported(source, tmp)
    check("output.weight" not in tensors)
    meta = copy("small31", os.path.join(tmp, "meta"))
    state = read_pth(os.path.join(meta, "consolidated.00.pth"))
    state["output.weight"] = state["tok_embeddings.weight"]
    write_pth(os.path.join(meta, "consolidated.00.pth"), state)
    _, tensors = exported(meta, tmp)
    check("output.weight" not in tensors, "an output equal to the embedding is tied")
    del state["output.weight"]
    write_pth(os.path.join(meta, "consolidated.00.pth"), state)
    refused(meta, tmp, "missing tensor output.weight")


# Tokenizers

def message(*fields):
    """A protobuf message of (number, int, float or bytes)."""
    def varint(n):
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])

    out = b""
    for number, v in fields:
        if isinstance(v, float):
            out += varint(number << 3 | 5) + struct.pack("<f", v)
        elif isinstance(v, int):
            out += varint(number << 3) + varint(v)
        else:
            out += varint(number << 3 | 2) + varint(len(v)) + v
    return out


PIECES = ([("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + [("<0x%02X>" % i, 0.0, 6) for i in range(256)] +
          [(p.replace("_", "\u2581"), -float(i), 1) for i, p in enumerate("_t he _the e h t _ __".split())])


def sentencepiece_model(kind=2, pieces=PIECES, trainer=(), normalizer=((4, 0),)):
    pieces = [(1, message((1, p.encode()), (2, score), (3, t))) for p, score, t in pieces]
    return message(*pieces, (2, message((3, kind), (40, 0), (41, 1), (42, 2), *trainer)),
                   (3, message((1, b"identity"), (3, 1), *normalizer)))


@test
def sentencepiece(tmp):
    """Llama 2's tokenizer.model, both versions of llama2.c's tokenizer.bin, and Hugging Face's merges agree."""
    v = vocabulary.sentencepiece_vocabulary(sentencepiece_model(), "tokenizer.model")
    same([t.decode() for t in v["tokenizer.ggml.tokens"]], [p for p, _, _ in PIECES])
    same(v["tokenizer.ggml.scores"], [s for _, s, _ in PIECES])
    same(v["tokenizer.ggml.token_type"], [t for _, _, t in PIECES])

    for is_old in (False, True):
        path = os.path.join(tmp, "tokenizer.bin")
        with open(path, "wb") as f:
            f.write(struct.pack("<i", 8))
            for i, (p, score, kind) in enumerate(PIECES):
                p = "\n%s\n" % p if kind == 3 else chr(i - 3) if kind == 6 and is_old else p.replace("\u2581", " ")
                f.write(struct.pack("<fi", score, len(p.encode())) + p.encode())
        same(vocabulary.llama2c_vocabulary(path, len(PIECES)), v)

    for invalid in (sentencepiece_model(1), sentencepiece_model()[:-1], b"", b"\x0a" + b"\xff" * 9 + b"\x7f",
                    sentencepiece_model(trainer=[(24, 1)]), sentencepiece_model(normalizer=[(5, 0)]),
                    sentencepiece_model(pieces=PIECES[:3] + PIECES[259:])):
        path = os.path.join(tmp, "tokenizer.model")
        with open(path, "wb") as f:
            f.write(invalid)
        try:
            vocabulary.meta_vocabulary(path)
        except export.Failure:
            continue
        check(False, "accepted an invalid tokenizer.model of", len(invalid), "bytes")

    with contextlib.redirect_stderr(io.StringIO()) as err:
        vocabulary.sentencepiece_vocabulary(sentencepiece_model(normalizer=()), "tokenizer.model")
    check("remove_extra_whitespaces is not supported" in err.getvalue(), err.getvalue())

    t = pieces_json()
    t["model"]["vocab"]["\u2581\u2581"] = len(PIECES) - 1
    t["model"]["merges"].append("\u2581 \u2581")
    t["added_tokens"] = [{"id": len(PIECES), "content": "<|im_start|>", "special": True}]
    with open(os.path.join(tmp, "tokenizer.json"), "w") as f:
        json.dump(t, f)
    os.remove(os.path.join(tmp, "tokenizer.model"))

    h = vocabulary.huggingface_vocabulary(tmp, len(PIECES) + 2)
    same(h["tokenizer.ggml.tokens"][-2:], ["<|im_start|>", "[PAD%d]" % (len(PIECES) + 1)])
    same(h["tokenizer.ggml.token_type"], v["tokenizer.ggml.token_type"] + [3, 5])
    same(h["tokenizer.ggml.scores"][259:262], [0.0, -1.0, -2.0])

    with open(os.path.join(tmp, "tokenizer.model"), "wb") as f:
        f.write(sentencepiece_model())
    h = vocabulary.huggingface_vocabulary(tmp, len(PIECES) + 1)
    same(h["tokenizer.ggml.scores"], v["tokenizer.ggml.scores"] + [0.0])
    same(h["tokenizer.ggml.tokens"][-1], "<|im_start|>")

    # A tokenizer.json of other tokens.
    t["model"]["vocab"] = {w: {261: 262, 262: 261}.get(i, i) for w, i in t["model"]["vocab"].items()}
    with open(os.path.join(tmp, "tokenizer.json"), "w") as f:
        json.dump(t, f)
    try:
        vocabulary.huggingface_vocabulary(tmp, len(PIECES) + 1)
        check(False, "accepted two vocabularies")
    except export.Failure as e:
        check("(262) is b" in str(e) and "in tokenizer.model" in str(e), e)


@test
@slow
def tiktoken_ranks(tmp):
    """Llama 3's tokenizer.model gives exactly the merges of the published GGUF vocabulary."""
    path = os.path.join(DATA, "vocab", "llama3-tokenizer.model")
    if not os.path.exists(path):
        raise Skip("no " + path)
    v = vocabulary.meta_vocabulary(path)
    expected, _ = read_gguf(os.path.join(DATA, "vocab", "ggml-vocab-llama-bpe.gguf"))
    check(v["tokenizer.ggml.merges"] == expected["tokenizer.ggml.merges"], "merges differ")
    check(v["tokenizer.ggml.tokens"][:128000] == expected["tokenizer.ggml.tokens"][:128000], "tokens differ")
    same((v["tokenizer.ggml.bos_token_id"], v["tokenizer.ggml.eos_token_id"], v["tokenizer.ggml.eot_token_id"],
          v["tokenizer.ggml.eom_token_id"], v["tokenizer.ggml.tokens"][128010]), (128000, 128001, 128009, 128008,
                                                                                  "<|python_tag|>"))


@test
def chat_template(tmp):
    source = copy("small31-hf", tmp)
    check("tokenizer.chat_template" not in exported(source, tmp)[0])
    settings = os.path.join(source, "tokenizer_config.json")
    with open(settings, "w") as f:
        json.dump({"chat_template": [{"name": "tool_use", "template": "B"}, {"name": "default", "template": "A"}]}, f)
    same(exported(source, tmp)[0]["tokenizer.chat_template"], "A")
    with open(os.path.join(source, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write("{{ \u2603 }}\n")
    same(exported(source, tmp)[0]["tokenizer.chat_template"], "{{ \u2603 }}\n")
    template = os.path.join(source, "chat_template.jinja")
    same(exported(find("small31"), tmp, "--chat-template", template)[0]["tokenizer.chat_template"], "{{ \u2603 }}\n")


# llama2.c

def llama2c(path, version, tied=False):
    """Writes a small random model in llama2.c's format. Returns {name: bytes} of its tensors."""
    c = export.Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, c.vocab_size = 8, 12, 2, 2, 1, 4, len(PIECES)
    c.context_length = 16
    rng = random.Random(3)

    shapes = c.shapes()
    shapes["output.weight"] = shapes["token_embd.weight"]
    data = {}

    for name, shape in shapes.items():
        n = shape[0] * shape[-1] if len(shape) > 1 else shape[0]
        data[name] = struct.pack("<%df" % n, *[rng.gauss(0, 1) for _ in range(n)])

    def layers(*names):
        return b"".join(data["blk.%d.%s.weight" % (i, n)] for n in names for i in range(c.n_layers))

    head = [c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.vocab_size, c.context_length]
    attention, ffn = ("attn_q", "attn_k", "attn_v", "attn_output"), ("ffn_gate", "ffn_down", "ffn_up")
    if version:
        b = struct.pack("<4si7iB", b"24ka", version, *head, tied).ljust(256, b"\0") + layers("attn_norm", "ffn_norm")
        b += data["output_norm.weight"] + data["token_embd.weight"] + layers(*attention) + layers(*ffn)
    else:
        head[5] *= 1 if tied else -1
        b = struct.pack("<7i", *head) + data["token_embd.weight"] + layers("attn_norm", *attention)
        b += layers("ffn_norm", *ffn) + data["output_norm.weight"] + bytes(4 * 16 * 4)

    if tied:
        del data["output.weight"]
    with open(path, "wb") as f:
        f.write(b + data.get("output.weight", b""))

    with open(os.path.join(os.path.dirname(path), "tokenizer.bin"), "wb") as f:
        f.write(struct.pack("<i", 8))
        for p, score, _ in PIECES:
            p = p.replace("\u2581", " ").encode()
            f.write(struct.pack("<fi", score, len(p)) + p)
    return data


@test
def llama2c_versions(tmp):
    path = os.path.join(tmp, "model.bin")
    for version in (0, 1):
        for tied in (False, True):
            data = llama2c(path, version, tied)
            _, tensors = exported(tmp, tmp)
            same({n: t[2] for n, t in tensors.items()}, data, "version %d" % version)

    # Files of a wrong length, version, shape, and without a tokenizer.
    with open(path, "rb") as f:
        b = f.read()
    with open(path, "wb") as f:
        f.write(b[:-1])
    refused(path, tmp, "bytes, found")

    llama2c(path, 2)
    refused(path, tmp, "version 2", "not supported")

    with open(path, "wb") as f:
        f.write(struct.pack("<7i", 8, 12, 2, 3, 1, 9, 16))
    refused(path, tmp, "model.bin")

    llama2c(path, 0)
    os.remove(os.path.join(tmp, "tokenizer.bin"))
    refused(path, tmp, "no tokenizer")


# Invalid and hostile sources

def modified_pth(tmp, pickled=None, extra=(), change=None):
    source = copy("small31", tempfile.mkdtemp(dir=tmp))
    path = os.path.join(source, "consolidated.00.pth")
    state = read_pth(path)
    if change:
        change(state)
    write_pth(path, state, pickled, extra)
    return source


@test
def refuses_pickled_code(tmp):
    mark = os.path.join(tmp, "executed")
    command = "touch " + mark

    class Evil:
        def __init__(self, f, *args):
            self.call = f, args

        def __reduce__(self):
            return self.call
    import builtins
    for f, args in ((os.system, (command,)), (builtins.eval, ("__import__('os').system(%r)" % command,)),
                    (builtins.exec, ("import os; os.system(%r)" % command,)), (subprocess.Popen, (["touch", mark],))):
        for protocol in (0, 1, 2, 4):
            for payload in ({"tok_embeddings.weight": Evil(f, *args)}, Evil(f, *args)):
                refused(modified_pth(tmp, pickle.dumps(payload, protocol)), tmp, "nothing was executed")
    refused(modified_pth(tmp, pickle.dumps({"w": Evil(os.system, command)}, 2)), tmp, "%s.system" % os.system.__module__)
    # allowed names in other places
    for body in (b"\x80\x02ctorch\nBFloat16Storage\nX\x01\0\0\0a\x85R.", b"\x80\x02ccollections\nOrderedDict\n]\x85R.",
                 b"\x80\x02}(}K\x01u.", b"\x80\x02K\x01.", b"\x80\x02h\x05.", b"\x80\x02R.", b"\x80\x02(lp0\n.", b"",
                 b"\x80\x02", b"\x80\x02)" + b"2\x86" * 60 + b".", b"\x80\x02" + b"(" * 100000,
                 b"\x80\x02cos\n../system\n."):
        refused(modified_pth(tmp, body), tmp, "consolidated.00.pth: pickle")
    check(not os.path.exists(mark), "the pickle was executed")


@test
def refuses_other_tensors(tmp):
    def integers(s):
        s["norm.weight"] = ("i64", (128,), bytes(1024))

    def transposed(s):
        s["norm.weight"] = ("bf16", (2, 64), bytes(256), (1, 2))

    def short(s):
        s["norm.weight"] = ("bf16", (129,), bytes(256))

    refused(modified_pth(tmp, change=integers), tmp, "norm.weight': type i64 is not supported")
    refused(modified_pth(tmp, change=transposed), tmp, "not contiguous")
    refused(modified_pth(tmp, change=short), tmp, "does not fit its storage")
    refused(modified_pth(tmp, change=lambda s: s.pop("layers.1.attention.wo.weight") and None), tmp,
            "missing tensor blk.1.attn_output.weight")
    refused(modified_pth(tmp, change=lambda s: s.update({"layers.7.attention.wo.weight": s["norm.weight"]})), tmp,
            "blk.7.attn_output.weight: not a tensor")
    refused(modified_pth(tmp, change=lambda s: s.update({"layers.1.attention.wo.weight": s["norm.weight"]})), tmp,
            "blk.1.attn_output.weight: expected shape (128, 128)")


@test
def refuses_zip_tricks(tmp):
    deflated = zipfile.ZIP_DEFLATED
    refused(modified_pth(tmp, extra=[("archive/data/99", bytes(1 << 20), deflated)]), tmp, "compressed")
    for name in ("../evil", "archive/../../evil", "/etc/evil", "..\\evil"):
        refused(modified_pth(tmp, extra=[(name, b"x", zipfile.ZIP_STORED)]), tmp, "a path outside")
    refused(modified_pth(tmp, extra=[("other/data.pkl", b"x", zipfile.ZIP_STORED)]), tmp, "one data.pkl")
    refused(modified_pth(tmp, extra=[("archive/byteorder", b"big", zipfile.ZIP_STORED)]), tmp, "little-endian")

    source = modified_pth(tmp)
    path = os.path.join(source, "consolidated.00.pth")
    with open(path, "rb") as f:
        whole = f.read()

    def rewrite(b, *words):
        with open(path, "wb") as f:
            f.write(b)
        refused(source, tmp, "consolidated.00.pth", *words)

    for n in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        rewrite(whole[:n])
    # two directory entries for one member: a zip bomb
    second = whole.rindex(b"PK\1\2", 0, whole.rindex(b"PK\1\2"))
    first = whole.index(b"PK\1\2")
    rewrite(whole[:second + 42] + whole[first + 42:first + 46] + whole[second + 46:], "overlaps")
    # a size beyond the end of the file
    last = whole.rindex(b"PK\1\2")
    rewrite(whole[:last + 20] + struct.pack("<II", 1 << 30, 1 << 30) + whole[last + 28:], "outside")
    rewrite(b"\x80\x02" + pickle.dumps({}, 2), "not a PyTorch checkpoint")


def hf_state():
    state = {}
    for n in (1, 2):
        path = os.path.join(GOLDEN, "small31-hf", "model-0000%d-of-00002.safetensors" % n)
        for name, w in export.read_safetensors(path).items():
            state[name] = (w.type, w.shape, b"".join(w.pieces()))
    return state


@test
def refuses_safetensors_tricks(tmp):
    source = copy("small31-hf", tmp)
    for n in os.listdir(source):
        if "safetensors" in n:
            os.remove(os.path.join(source, n))
    path, state = os.path.join(source, "model.safetensors"), hf_state()

    write_safetensors(path, state)
    check(exported(source, tmp)[1] == exported(find("small31-hf"), tmp)[1], "one file without an index")
    a, b = "model.norm.weight", "model.layers.0.input_layernorm.weight"

    def rejected(word, change=None, tail=b""):
        write_safetensors(path, state, change, tail)
        refused(source, tmp, "model.safetensors", word)

    def offsets(name, begin, end):
        def change(h):
            at = h[name]["data_offsets"]
            h[name]["data_offsets"] = [at[0] + begin, at[1] + end]
            return h

        return change

    def field(name, key, value):
        def change(h):
            h[name][key] = value
            return h

        return change

    rejected("overlaps", offsets(a, -2, -2))
    rejected("gap", offsets(a, 2, 2))
    rejected("does not match", offsets(a, 256, 0))
    rejected("does not match", field(a, "data_offsets", [256, 0]))
    rejected("does not match", field(a, "data_offsets", [-256, 0]))
    rejected("does not match", field(a, "shape", [1 << 32, 1 << 32, 128]))
    rejected("does not match", field(a, "shape", [-1, -128]))
    rejected("does not match", field(a, "shape", [128.0]))
    rejected("does not match", field(a, "shape", [True, 128]))
    rejected("expected dtype", field(a, "shape", None))
    rejected("expected dtype", field(a, "data_offsets", [1]))
    rejected("F8_E4M3", field(a, "dtype", "F8_E4M3"))
    rejected("expected dtype", lambda h: h.update({a: 1}) or h)

    rejected("bytes, found", tail=b"\0")
    rejected("duplicate key", lambda h: json.dumps(h).encode()[:-1] + b', "%s": 1}' % a.encode())
    rejected("duplicate key", lambda h: json.dumps(h).replace('"dtype"', '"dtype": "F16", "dtype"', 1).encode())
    rejected("not JSON", lambda h: b"{")
    rejected("not JSON", lambda h: b"[" * 200000)
    rejected("JSON object", lambda h: b"[]")
    rejected("not JSON", lambda h: b"\xff")

    write_safetensors(path, state, lambda h: h.update({"model.extra": h.pop(b)}) or h)
    refused(source, tmp, "missing tensor blk.0.attn_norm.weight")

    with open(path, "wb") as f:
        f.write(struct.pack("<Q", 1 << 62) + b"{}")
    refused(source, tmp, "header of")
    with open(path, "wb") as f:
        f.write(b"\0\0")
    refused(source, tmp, "truncated")


@test
def refuses_broken_index(tmp):
    source = copy("small31-hf", tmp)
    index = os.path.join(source, "model.safetensors.index.json")
    with open(index) as f:
        good = f.read()

    def rejected(change, *words):
        with open(index, "w") as f:
            f.write(good)
        edit_json(index, change)
        refused(source, tmp, *words)

    def elsewhere(name, file):
        return lambda v: v["weight_map"].update({name: file})

    rejected(elsewhere("lm_head.weight", "../source/model-00001-of-00002.safetensors"), "not a file name")
    rejected(elsewhere("lm_head.weight", "/etc/passwd"), "not a file name")
    rejected(elsewhere("lm_head.weight", "model-00002-of-00002.safetensors"), "lm_head.weight")
    rejected(elsewhere("new.weight", "model-00002-of-00002.safetensors"), "new.weight", "missing")
    rejected(lambda v: v.pop("weight_map") and None, "weight_map")

    with open(index, "w") as f:
        f.write(good[:-1] + ', "weight_map": {}}')
    refused(source, tmp, "duplicate key")

    with open(index, "w") as f:
        f.write(good)
    os.remove(os.path.join(source, "model-00002-of-00002.safetensors"))
    refused(source, tmp, "model-00002-of-00002.safetensors", code=1)
    os.remove(index)
    refused(source, tmp, "expected 2 safetensors files, found 1")


def changed(content, at, value, is_merged):
    """The JSON value with the member at this path set, merged, or (with Ellipsis) removed."""
    if not at:
        return dict(content, **value) if is_merged else value
    inner = content
    for key in at[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return content


def change_file(path, case):
    """Applies a case of export_refusals.jsonl to a JSON file or the header of a safetensors file, or replaces the text."""
    with open(path, "rb") as f:
        good = f.read()
    if "text" in case:
        new = case["text"].encode()
    else:
        begin = 8 + int.from_bytes(good[:8], "little") if path.endswith(".safetensors") else len(good)
        content = json.loads(good[8:begin] if begin < len(good) else good)
        new = json.dumps(changed(content, case["at"], case.get("value", ...), case.get("merge"))).encode()
        if begin < len(good):
            new = struct.pack("<Q", len(new)) + new + good[begin:]
    with open(path, "wb") as f:
        f.write(new)
    return good


@test
def refuses_values(tmp):
    """Each case of export_refusals.jsonl changes one value of a source file. The refusal names it."""
    sources = {name: copy(name, os.path.join(tmp, name)) for name in ("small31", "small31-hf")}
    with open(os.path.join(sources["small31-hf"], "tokenizer_config.json"), "w") as f:
        f.write("{}")
    with open(os.path.join(ROOT, "tests", "export_refusals.jsonl")) as f:
        cases = [json.loads(line) for line in f]
    for case in cases:
        source = sources[case["source"]]
        path = os.path.join(source, case["file"])
        good = change_file(path, case)
        try:
            refused(source, tmp, case["says"])
        except AssertionError as e:
            raise AssertionError("%s: %s: %s" % (case["file"], case["why"], e))
        with open(path, "wb") as f:
            f.write(good)


def variant_source(case, sources, folder):
    """The directory of a case of export_variants.jsonl, and the path to export."""
    place = os.path.join(folder, case.get("place", "source"))
    shutil.copytree(sources[case.get("source", "small31-hf")], place)

    # The weights under other names, or in other files.
    if "weights" in case:
        names, w = os.listdir(place), case["weights"]
        files = [f for f in names if f.endswith((".safetensors", ".pth", ".index.json"))]
        state = {}
        for f in files:
            if not f.endswith(".json"):
                read = export.read_safetensors if f.endswith(".safetensors") else export.read_pth
                state.update((n, (x.type, x.shape, b"".join(x.pieces()))) for n, x in read(os.path.join(place, f)).items())
            os.remove(os.path.join(place, f))
        for old, new in w.get("rename", []):
            state = {re.sub(old, new, name): x for name, x in state.items()}
        for name in w.get("without", []):
            del state[name]
        write = write_safetensors if w["file"].endswith(".safetensors") else write_pth
        write(os.path.join(place, w["file"]), state, **w.get("how", {}))
        if "index" in w:
            edit = {"weight_map": {name: w["file"] for name in state}}
            with open(os.path.join(place, w["index"]), "w") as f:
                json.dump(edit, f)

    # Other files, and values of files.
    if "config" in case or "absent" in case:
        edit_json(os.path.join(place, "config.json"), lambda c: {
            key: v for key, v in dict(c, **case.get("config", {})).items() if key not in case.get("absent", ())})
    for name, at, value in case.get("edits", ()):
        edit_json(os.path.join(place, name), lambda content: changed(content, at, value, False))
    for name, content in case.get("files", {}).items():
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if content is None:
            os.remove(path)
        elif "copy_of" in content:
            shutil.copy(os.path.join(GOLDEN, content["copy_of"]), path)
        else:
            text = content if type(content) is str else json.dumps(content)
            with open(path, "wb") as f:
                f.write(content["latin1"].encode("latin-1") if "latin1" in content else text.encode())

    # The links of a Hugging Face cache.
    if case.get("has_links"):
        blobs = os.path.join(os.path.dirname(os.path.dirname(place)), "blobs")
        os.rename(place, blobs)
        os.mkdir(place)
        for name in os.listdir(blobs):
            os.symlink(os.path.join("..", "..", "blobs", name), os.path.join(place, name))
    return place, os.path.join(folder, case.get("argument", case.get("place", "source")))


def variant_sources(tmp):
    """The directories that the cases change: golden ones, and two of 8 dimensions with a SentencePiece vocabulary, as
    tokenizer.model and as tokenizer.json."""
    tiny_sources(tmp)
    pieces, merges = os.path.join(tmp, "pieces"), os.path.join(tmp, "merges")
    with open(os.path.join(pieces, "tokenizer.model"), "wb") as f:
        f.write(sentencepiece_model(pieces=PIECES[:-1]))
    edit_json(os.path.join(pieces, "config.json"), lambda c: c.update(rope_scaling=None, eos_token_id=2, bos_token_id=1))
    shutil.copytree(pieces, merges)
    os.remove(os.path.join(merges, "tokenizer.model"))
    with open(os.path.join(merges, "tokenizer.json"), "w") as f:
        json.dump(pieces_json(), f)
    return dict({name: find(name) for name in ("small31", "small31-hf")}, pieces=pieces, merges=merges)


def variant_cases():
    with open(os.path.join(ROOT, "tests", "export_variants.jsonl")) as f:
        return [json.loads(line) for line in f]


@test
def variants(tmp):
    """Each case of export_variants.jsonl changes or adds files of a directory: the keys of the output, its ids of some texts
    and what is said, or the refusal. The tensors remain those of the unchanged directory."""
    sources = variant_sources(tmp)
    plain = {name: exported(source, tmp, "--force")[1] for name, source in sources.items()}

    for i, case in enumerate(some(variant_cases(), 2)):
        folder, err = os.path.join(tmp, "case%d" % i), io.StringIO()
        out = os.path.join(folder, "out.gguf")
        _, path = variant_source(case, sources, folder)
        if "refused" in case:
            try:
                refused(path, tmp, case["refused"], code=case.get("code", 3))
            except AssertionError as e:
                raise AssertionError("%s: %s" % (case["why"], e))
            continue

        with contextlib.redirect_stderr(err):
            status = export.main([path, "-o", out])
        lines = err.getvalue().splitlines()
        says = [case["says"]] if type(case.get("says")) is str else case.get("says", [])
        check(status == 0 and len(lines) == 1 + len(says) and all(map(str.__contains__, lines, says)), case["why"], lines)

        metadata, tensors = read_gguf(out)
        for key, v in case["keys"].items():
            same(metadata.get(key), v, case["why"])
        expected = plain[case.get("source", "small31-hf")]
        for name in set(expected) | set(tensors) - {"rope_freqs.weight", "output.weight"}:
            check(name not in tensors and name in ("rope_freqs.weight", "output.weight") or
                  tensors.get(name) == expected.get(name), case["why"], name)
        if "ids" in case:
            found = call("tokenize", "-m", out, "--special", "--jsonl", stdin=json_lines(case["ids"]))[0]
            same([json.loads(line) for line in found.splitlines()], list(case["ids"].values()), case["why"])
        shutil.rmtree(folder)


PEER = r"""
const fs = require("fs"), path = require("path");
const { Tokenizer } = require(path.resolve(process.argv[1], "node_modules", "@anush008", "tokenizers"));
(async () => {
  for (const line of fs.readFileSync(0, "utf8").split("\n").filter(l => l)) {
    const { file, texts } = JSON.parse(line), t = Tokenizer.fromFile(file), ids = [];
    for (const text of texts) ids.push(Array.from((await t.encode(text, null, { addSpecialTokens: false })).getIds()));
    console.log(JSON.stringify(ids));
  }
})();
"""


def read_optional(directory, name):
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        return json.load(f)


def pieces_json(has_space_prefix=True):
    """The tokenizer.json of PIECES, as the converters of transformers write it."""
    words = [w for w, _, _ in PIECES[:-1]]
    merges = [(words.index(w), [w[:i], w[i:]]) for w in words[259:] for i in range(1, len(w))
              if w[:i] in words and w[i:] in words]
    spaces = [{"type": "Prepend", "prepend": "\u2581"}] * has_space_prefix
    spaces.append({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})
    return {"version": "1.0", "added_tokens": [], "normalizer": {"type": "Sequence", "normalizers": spaces},
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": {w: i for i, w in enumerate(words)}, "merges": [m for _, m in sorted(merges)]}}


def peer_tokenizer(directory, source):
    """A tokenizer.json that has all the tokens of a directory, for Hugging Face's library: added to the vocabulary as
    transformers does, which reads added_tokens.json and tokenizer_config.json for them."""
    settings, t = read_optional(directory, "tokenizer_config.json"), read_optional(directory, "tokenizer.json")
    if not t and source == "pieces":
        t = pieces_json(settings.get("add_prefix_space") is not False)
    t = t or read_optional(os.path.join(GOLDEN, "small31-hf"), "tokenizer.json")

    # The library numbers added tokens itself, except those of the vocabulary.
    listed = [(i, text, False) for text, i in read_optional(directory, "added_tokens.json").items()]
    listed += [(int(i), a["content"], a.get("special", False)) for i, a in settings.get("added_tokens_decoder", {}).items()]
    listed += [(a["id"], a["content"], a["special"]) for a in t["added_tokens"]]
    listed, model, flags = {i: rest for i, *rest in listed}, t["model"], ("single_word", "lstrip", "rstrip", "normalized")
    replaced = {w for w, i in model["vocab"].items() if i in listed}
    model["merges"] = [m for m in model["merges"] if not replaced & {"".join(m if type(m) is list else m.split(" "))}]
    model["vocab"] = dict({w: i for w, i in model["vocab"].items() if w not in replaced},
                          **{text: i for i, (text, _) in listed.items()})
    t["added_tokens"] = [dict({flag: False for flag in flags}, id=i, content=text, special=special)
                         for i, (text, special) in sorted(listed.items())]
    return t


@test
def variants_against_tokenizers(tmp):
    """The ids of export_variants.jsonl are those of Hugging Face's tokenizers library."""
    modules = os.path.join(os.environ.get("LLAMA31_PEER") or os.devnull, "node_modules")
    if not os.path.isdir(os.path.join(modules, "@anush008")) or not shutil.which("node"):
        raise Skip("no @anush008/tokenizers in $LLAMA31_PEER")
    sources, lines = variant_sources(tmp), []
    cases = [case for case in variant_cases() if "ids" in case]
    for i, case in enumerate(cases):
        folder = os.path.join(tmp, str(i))
        directory, _ = variant_source(case, sources, folder)
        with open(os.path.join(folder, "peer.json"), "w") as f:
            json.dump(peer_tokenizer(directory, case.get("source")), f)
        lines.append({"file": f.name, "texts": list(case["ids"])})
    out = subprocess.run(["node", "-e", PEER, os.environ["LLAMA31_PEER"]], input=json_lines(lines), stdout=subprocess.PIPE,
                         check=True).stdout
    for case, line in zip(cases, out.splitlines()):
        same(list(case["ids"].values()), json.loads(line), case["why"])


@test
def refuses_configurations(tmp):
    """What JSON values cannot say: NaN, duplicate keys, absent files."""
    source = copy("small31-hf", tmp)
    path = os.path.join(source, "config.json")
    with open(path) as f:
        good = f.read()
    edit_json(path, lambda c: c.update(rms_norm_eps=float("nan")))
    refused(source, tmp, "config.json: rms_norm_eps: expected a number, found nan")
    with open(path, "w") as f:
        f.write(good.rstrip()[:-1] + ', "hidden_size": 128}')
    refused(source, tmp, "config.json", "duplicate key")
    with open(path, "w") as f:
        f.write(good)
    os.remove(os.path.join(source, "tokenizer.json"))
    refused(source, tmp, "tokenizer.json")

    meta = copy("small31", os.path.join(tmp, "meta"))
    os.remove(os.path.join(meta, "tokenizer.model"))
    refused(meta, tmp, "tokenizer.model", code=1)


@test
def refuses_unusual_names_and_files(tmp):
    refused(modified_pth(tmp, change=lambda s: s.update({"norm\n\x1b]0;x\x07": s["norm.weight"]})), tmp, "norm\\n\\x1b")
    refused(modified_pth(tmp, change=lambda s: s.update({"model.layers.01.attention.wo.weight": s["norm.weight"]})), tmp,
            "the same tensor")
    refused(modified_pth(tmp, change=lambda s: s.update({"norm.weight": ("bf16", (), bytes(2))})), tmp, "pickle")
    source = copy("small31-hf", tmp)
    edit_json(os.path.join(source, "tokenizer.json"), lambda t: t["added_tokens"][3].update(content="\ud800"))
    refused(source, tmp, "lone surrogate")
    meta = modified_pth(tmp)
    os.remove(os.path.join(meta, "consolidated.00.pth"))
    os.mkfifo(os.path.join(meta, "consolidated.00.pth"))
    refused(meta, tmp, "not a regular file", code=1)
    os.remove(os.path.join(meta, "consolidated.00.pth"))
    os.mkdir(os.path.join(meta, "consolidated.00.pth"))
    refused(meta, tmp, "not a regular file", code=1)


@test
def refuses_other_files(tmp):
    empty = os.path.join(tmp, "empty")
    os.mkdir(empty)
    refused(empty, tmp, "not a checkpoint")
    refused(os.path.join(tmp, "absent"), tmp, "No such file", code=1)
    p = run_export(find("small31"), os.path.join(tmp, "absent", "out.gguf"))
    check(p.returncode == 1 and p.stderr.splitlines()[-1].startswith("error: "), p.stderr)
    same(run_export(find("small31"), os.path.join(tmp, "x.gguf"), "--type", "q9").returncode, 2)


@test
def quantized_in_one_step(tmp):
    """--type q4_k_m gives the bytes of export and quantize, and leaves no other file. Errors come before the work."""
    requires("quantize")
    program = export.find_program()
    if not program:
        raise Skip("no llama31 next to scripts/; run make")
    source, out, two = find("small31"), os.path.join(tmp, "out.gguf"), os.path.join(tmp, "two.gguf")
    for args in ([], ["--force"]):
        p = run_export(source, out, "--type", "q4_k_m", *args)
        same(p.returncode, 0, p.stderr)

    same(run_export(source, two).returncode, 0)
    subprocess.run([program, "quantize", "-q", two, two + "4", "Q4_K_M"], check=True)
    with open(out, "rb") as f, open(two + "4", "rb") as g:
        check(f.read() == g.read(), "differs from two steps")

    # Files that exist.
    with open(os.path.join(tmp, "old"), "w") as f:
        f.write("old")
    for args in some(((source, os.path.join(tmp, "old"), "--type", "q4_k_m"), (source, out, "--type", "q4_k_m"),
                      (source, out, "--type", "q4_k"), (source, two, "--type", "q4_k_m")), 2):
        p = run_export(*args)
        check(p.returncode == 2 and p.stderr.startswith("error: ") and p.stderr.count("\n") == 1, p.stderr)

    same(run_export(os.path.join(tmp, "absent"), out, "--type", "q8_0").returncode, 1)
    same(run_export(source, os.path.join(tmp, "old"), "--type", "q4_k_m", "--force").returncode, 0)

    same(sorted(os.listdir(tmp)), ["old", "out.gguf", "two.gguf", "two.gguf4"])


@contextlib.contextmanager
def at_most(seconds):
    """Fails if the body takes longer. (SIGALRM ends a run of export.py with this status.)"""
    signal.signal(signal.SIGALRM, lambda n, _: sys.exit(128 + n))
    signal.alarm(seconds)
    try:
        yield
    except SystemExit:
        raise AssertionError("not finished after %d s" % seconds)
    finally:
        signal.alarm(0)


@test
def refuses_links(tmp):
    """A link out of the source directory is refused by name; links within it and within a Hugging Face cache work."""
    outside = os.path.join(tmp, "outside")
    face, meta, old = copy("small31-hf", os.path.join(tmp, "a")), copy("small31", os.path.join(tmp, "b")), \
        os.path.join(tmp, "c")
    lora = write_adapter(os.path.join(tmp, "d"))
    os.mkdir(old)
    llama2c(os.path.join(old, "model.bin"), 1)

    for name in ("tokenizer_config.json", "chat_template.jinja"):
        with open(os.path.join(face, name), "w") as f:
            f.write("{}")

    # Every file of every kind of source, behind three kinds of links.
    for directory in (face, meta, old, lora):
        for name in sorted(os.listdir(directory)):
            if name in ("golden.json", "README.md") or name.endswith(".f32"):
                continue
            path = os.path.join(directory, name)
            for target in (outside, os.path.join("..", "..", "outside"), "/dev/zero"):
                os.rename(path, outside)
                os.symlink(target, path)
                with at_most(60):
                    refused(directory, tmp, name + ": a link out of its directory", args=["--base", face])
                os.remove(path)
                os.rename(outside, path)

    inside = os.path.join(face, "parts")
    os.mkdir(inside)
    os.rename(os.path.join(face, "config.json"), os.path.join(inside, "x"))
    os.symlink(os.path.join("parts", "x"), os.path.join(face, "config.json"))
    os.symlink(face, os.path.join(tmp, "link"))
    exported(os.path.join(tmp, "link"), tmp)

    cache = os.path.join(tmp, "hub", "models--small31-hf")
    os.makedirs(os.path.join(cache, "snapshots", "0123"))
    shutil.copytree(os.path.join(GOLDEN, "small31-hf"), os.path.join(cache, "blobs"))
    for name in os.listdir(os.path.join(cache, "blobs")):
        os.symlink(os.path.join("..", "..", "blobs", name), os.path.join(cache, "snapshots", "0123", name))
    check(exported(os.path.join(cache, "snapshots", "0123"), tmp)[1] == exported(find("small31-hf"), tmp)[1])
    os.rename(os.path.join(cache, "blobs", "config.json"), outside)
    os.symlink(outside, os.path.join(cache, "blobs", "config.json"))
    refused(os.path.join(cache, "snapshots", "0123"), tmp, "config.json: a link out")
    os.rename(cache, os.path.join(tmp, "hub", "other"))
    refused(os.path.join(tmp, "hub", "other", "snapshots", "0123"), tmp, ": a link out")


@test
def refuses_special_and_large_files(tmp):
    """FIFOs and directories are refused without waiting for them, as are files too large to read as a whole."""
    face, meta = copy("small31-hf", os.path.join(tmp, "a")), copy("small31", os.path.join(tmp, "b"))
    lora = write_adapter(os.path.join(tmp, "c"))

    for name in ("tokenizer_config.json", "chat_template.jinja"):
        with open(os.path.join(face, name), "w") as f:
            f.write("{}")

    for directory, names in ((face, ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                     "model.safetensors.index.json", "model-00001-of-00002.safetensors")),
                             (meta, ("params.json", "tokenizer.model", "consolidated.00.pth")),
                             (lora, ("adapter_config.json", "adapter_model.safetensors"))):
        for name in names:
            path = os.path.join(directory, name)
            os.rename(path, path + ".old")
            for make in (os.mkfifo, os.mkdir):
                make(path)
                with at_most(60):
                    refused(directory, tmp, name + ": not a regular file", code=1, args=["--base", face])
                (os.rmdir if make is os.mkdir else os.remove)(path)
            os.rename(path + ".old", path)

    # Files named by options.
    os.mkfifo(os.path.join(tmp, "fifo"))
    for args in (["--chat-template"], ["--tokenizer"]):
        for path in (os.path.join(tmp, "fifo"), "/dev/zero"):
            with at_most(60):
                refused(meta, tmp, path + ": not a regular file", code=1, args=args + [path])

    # Sparse files of 1 TiB.
    for directory, name in ((face, "tokenizer.json"), (face, "config.json"), (meta, "params.json"),
                            (meta, "tokenizer.model")):
        os.truncate(os.path.join(directory, name), 1 << 40)
        with at_most(60):
            refused(directory, tmp, name, "1099511627776 bytes; expected at most")
        shutil.copy(os.path.join(GOLDEN, "small31-hf" if directory == face else "small31", name), directory)


@test
@slow
def refuses_excess(tmp):
    """Counts and lengths that no checkpoint has are refused before work that grows with their square."""
    meta = copy("small31", os.path.join(tmp, "a"))
    tokenizer = os.path.join(meta, "tokenizer.model")

    def ranks(tokens):
        with open(tokenizer, "wb") as f:
            f.write(b"".join(b"%s %d\n" % (base64.b64encode(t), i) for i, t in enumerate(tokens)))

    ranks([b"a", b"b" * 3000000])
    with at_most(60):
        refused(meta, tmp, "tokenizer.model: line 2: 4000002 bytes")
    ranks([bytes([letter]) * n for letter in range(97, 110) for n in range(1, 500)])
    with at_most(60):
        refused(meta, tmp, "pairs of tokens form a token")

    face = copy("small31-hf", os.path.join(tmp, "b"))
    path = os.path.join(face, "tokenizer.json")
    with open(path) as f:
        good = json.load(f)
    for change, word in (({"merges": []}, "merges: expected 1 to"),
                         ({"merges": ["a b"] * 1100000}, "merges: expected 1 to"),
                         ({"merges": ["a " + "b" * 3000000]}, "merges: 'a bbb"),
                         ({"vocab": dict(good["model"]["vocab"], **{"b" * 3000000: 5})}, "tokenizer.json: token")):
        with open(path, "w") as f:
            json.dump(dict(good, model=dict(good["model"], **change)), f)
        with at_most(60):
            refused(face, tmp, word)
    with open(path, "w") as f:
        json.dump(dict(good, added_tokens=[dict(good["added_tokens"][0], content="b" * 3000000)]), f)
    refused(face, tmp, "added tokens: expected texts of at most 512 characters")
    pieces = pieces_json()
    pieces["model"]["vocab"]["a" * 3000000] = 300
    with open(path, "w") as f:
        json.dump(pieces, f)
    with at_most(60):
        refused(face, tmp, "vocab: expected tokens of at most 512 characters")
    with open(path, "w") as f:
        json.dump(good, f)
    edit_json(os.path.join(face, "config.json"), lambda c: c.update(vocab_size=(1 << 20) + 1))
    refused(face, tmp, "hyperparameters")
    edit_json(os.path.join(face, "config.json"), lambda c: c.update(vocab_size=640))

    path = os.path.join(face, "model-00001-of-00002.safetensors")
    n = 2000000
    many = b'"a":0,' * (n // 2)
    for header, word in ((b'{"a":{"dtype":"F32","shape":[%s1],"data_offsets":[0,4]}}' % (b"1234567," * n),
                          "2000001 dimensions"),
                         (b"{%s}" % b",".join(b'"%d":0' % i for i in list(range(n // 2)) + [n // 2 - 1]),
                          "duplicate key '999999'"),
                         (b"{%s}" % many[:-1], "duplicate key 'a'")):
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + bytes(4))
        with at_most(60):
            refused(face, tmp, word)

    with at_most(60):  # a pickled tensor of many dimensions, and a zip file with a directory of 40 MB
        shape = (1234567,) * 2000
        refused(modified_pth(tmp, change=lambda s: s.update({"norm.weight": ("bf16", shape, bytes(2), shape)})), tmp,
                "invalid storage, offset, shape")
        source = modified_pth(tmp)
        path = os.path.join(source, "consolidated.00.pth")
        with open(path, "rb") as f:
            whole = f.read()
        at = whole.index(b"PK\1\2")
        end = whole.index(b"PK\5\6")
        entry = whole[at:whole.index(b"PK\1\2", at + 1)]
        n = 40000000 // len(entry)
        with open(path, "wb") as f:
            f.write(whole[:at] + entry * n)
            f.write(whole[end:end + 8] + struct.pack("<HHIIH", n & 65535, n & 65535, n * len(entry), at, 0))
        refused(source, tmp, "not a PyTorch checkpoint")


@test
def refuses_sentencepiece_of_a_wrong_kind(tmp):
    """A tokenizer.model whose pieces lack their text: one line that names the file."""
    face = copy("small31-hf", tmp)
    os.remove(os.path.join(face, "tokenizer.json"))
    with open(os.path.join(face, "tokenizer.model"), "wb") as f:
        f.write(message((1, message((1, 5))), (2, message((3, 2)))))
    refused(face, tmp, "tokenizer")


# Random mutations

def tiny_sources(tmp):
    """[(directory, file)] of every kind of source file: a model of 8 dimensions in all formats, and an adapter."""
    face, pieces, meta, old, lora = (os.path.join(tmp, name) for name in ("face", "pieces", "meta", "old", "lora"))
    for directory in (face, meta, old):
        os.mkdir(directory)
    rng, n_vocab, state, params = random.Random(5), len(PIECES), {}, {}

    c = export.Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, c.vocab_size = 8, 12, 1, 2, 1, 4, n_vocab

    # Weights, under the names of Hugging Face and of Meta.
    shapes = dict(c.shapes(), **{"output.weight": (n_vocab, 8)})
    for names, layer_names, prefix, out in ((export.HF_NAMES, export.HF_LAYER, "model.", state),
                                            (export.META_NAMES, export.META_LAYER, "", params)):
        for name in list(names) + [prefix + "layers.0." + n for n in layer_names]:
            shape = shapes.get(export.gguf_name(name + ".weight", names, layer_names))
            if shape:
                data = bytes(rng.choice((0, 60, 61, 189)) for _ in range(2 * gguf_writer.product(shape)))
                out[name + ".weight"] = "bf16", shape, data

    # A Hugging Face directory with byte-level BPE.
    letters = vocabulary.byte_letters()
    words = letters + ["ab", "cd", "abcd"]
    config = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
              "rms_norm_eps": 1e-5, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": n_vocab,
              "max_position_embeddings": 64,
              "rope_theta": 1e4, "eos_token_id": [260, 261], "bos_token_id": 259, "layer_types": ["full_attention"],
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 32}}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    tokenizer = {"model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(words)},
                           "merges": ["a b", ["c", "d"], "ab cd"]},
                 "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]},
                 "added_tokens": [{"id": 259 + i, "content": "<%d>" % i, "special": i < 2} for i in range(4)]}
    settings = {"bos_token": "<0>", "eos_token": {"content": "<1>"}, "add_bos_token": True,
                "chat_template": [{"name": "default", "template": "{{ x }}"}]}
    index = {"weight_map": {name: "model.safetensors" for name in state}}

    write_safetensors(os.path.join(face, "model.safetensors"), state)
    for name, v in (("config.json", config), ("model.safetensors.index.json", index), ("tokenizer.json", tokenizer),
                    ("tokenizer_config.json", settings)):
        with open(os.path.join(face, name), "w") as f:
            json.dump(v, f)

    # The same with a SentencePiece vocabulary.
    shutil.copytree(face, pieces)
    os.remove(os.path.join(pieces, "tokenizer.json"))
    with open(os.path.join(pieces, "tokenizer.model"), "wb") as f:
        f.write(sentencepiece_model())
    os.remove(os.path.join(pieces, "tokenizer_config.json"))

    # Meta's files.
    with open(os.path.join(meta, "params.json"), "w") as f:
        json.dump({"dim": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-5, "rope_theta": 5e5,
                   "use_scaled_rope": True, "vocab_size": n_vocab}, f)
    write_pth(os.path.join(meta, "consolidated.00.pth"), params)
    with open(os.path.join(meta, "tokenizer.model"), "wb") as f:
        f.write(sentencepiece_model())

    # A file of llama2.c, and an adapter.
    llama2c(os.path.join(old, "model.bin"), 1)
    write_adapter(lora, ["q_proj", "down_proj"], {"rank_pattern": {"layers.0.mlp.down_proj": 4, ".*k_proj": 2},
                                                  "alpha_pattern": {"q_proj": 2}}, state=state)
    return face, [(face, "config.json"), (lora, "adapter_config.json"), (face, "tokenizer.json"),
                  (lora, "adapter_model.safetensors"), (face, "model.safetensors"),
                  (face, "model.safetensors.index.json"), (face, "tokenizer_config.json"), (meta, "params.json"),
                  (meta, "consolidated.00.pth"), (meta, "tokenizer.model"), (old, "model.bin"),
                  (old, "tokenizer.bin"), (pieces, "tokenizer.model")]


KINDS = [None, True, False, 0, 1, -1, 2, 8, 1 << 31, 10 ** 30, 0.5, 1e-320, 1e300, math.inf, math.nan, "", "x", "8",
         "\ud800", "../config.json", "(a+)+$", [], [[]], [None], ["x", 1], {}, {"a": {}}, [[[[[]]]]]]


def mutate_json(rng, v):
    """Replaces, removes, adds or exchanges values at random places of a JSON value."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        # All places, except in large objects and arrays, of which ten are chosen.
        places, stack = [], [v]
        while stack:
            node = stack.pop()
            items = list(node.items()) if type(node) is dict else list(enumerate(node))
            places += [(node, key) for key, _ in (items if len(items) < 50 else rng.sample(items, 10))]
            stack += [child for _, child in items if type(child) in (dict, list)]

        if not places:
            return v

        # One change.
        (node, key), (other, other_key), how = rng.choice(places), rng.choice(places), rng.random()
        if how < 0.55:
            node[key] = json.loads(json.dumps(rng.choice(KINDS)))
        elif how < 0.65:
            del node[key]
        elif how < 0.75:
            node[key] = json.loads(json.dumps(other[other_key]))
        elif how < 0.85:
            node[key] = [node[key]] * rng.choice((1, 2, 5))
        elif how < 0.95 and type(node[key]) in (int, float):
            node[key] = rng.choice((-node[key], 2 * node[key], node[key] + 1, float(node[key]), str(node[key])))
        elif type(node) is dict:
            node[rng.choice(("x", "", "q_proj", "model.norm.weight", "dtype", key + "x"))] = node[key]
        else:
            node.append(node[key])
    return v


def mutate_bytes(rng, b, begin):
    b, how = bytearray(b), rng.random()
    at = rng.randrange(begin, len(b)) if begin and rng.random() < 0.5 else rng.randrange(min(len(b), 2000))
    if how < 0.5:
        b[at] = rng.choice(b"\0\1\x7f\xff09-e\"[")
    elif how < 0.6:
        words = b"null", b"-1", b"1e999", b"[[", b'{"a":', b"\xff" * 4, b"\xff" * 8, bytes(8), b"\x80" * 9
        b[at:at + rng.choice((0, 4, 8))] = rng.choice(words)
    elif how < 0.8:
        del b[at:at + rng.randrange(1, 9)]
    else:
        del b[at:]
    return b


@test
def refuses_mutations(tmp):
    """Random mutations of every kind of source file: a valid output, or one line and no file. LLAMA31_FUZZ sets their
    number. Mutation N depends on N alone, which a failure prints."""

    base, mutated = tiny_sources(tmp)
    directory_of_output = os.path.join(tmp, "out")
    os.mkdir(directory_of_output)
    out = os.path.join(directory_of_output, "out.gguf")

    n, n_accepted = int(os.environ.get("LLAMA31_FUZZ", in_ci(300, 120))), 0
    for i in range(n):
        rng = random.Random(i)

        directory, name = mutated[i % len(mutated)]
        path = os.path.join(directory, name)
        with open(path, "rb") as f:
            good = f.read()

        # JSON and the header of safetensors, after 8 bytes, are mostly changed as values, all else as bytes.
        skipped = 8 if name.endswith(".safetensors") else 0
        end = 8 + int.from_bytes(good[:8], "little") if skipped else len(good)
        if name.endswith(("json", ".safetensors")) and rng.random() < 0.75:
            header = json.dumps(mutate_json(rng, json.loads(good[skipped:end]))).encode()
            b = struct.pack("<Q", len(header))[:skipped] + header + good[end:]
        else:
            b = mutate_bytes(rng, good, good.index(b"PK\1\2") if name.endswith(".pth") else 0)

        with open(path, "wb") as f:
            f.write(b)

        # Adapters are exported alone, or merged into the base model.
        args = ["--base", base] if name.startswith("adapter") else []
        if args and rng.random() < 0.3:
            args, directory = ["--merge", directory], base

        err = io.StringIO()
        try:
            with contextlib.redirect_stderr(err), at_most(60):
                status = export.main([directory, "-o", out] + args)
        except Exception as e:
            raise AssertionError("mutation %d of %s: %r %s" % (i, name, e, err.getvalue()))

        # One line of output: the name of the file, or the error.
        lines = [line for line in err.getvalue().splitlines() if not line.startswith("note:")]
        check(status in (0, 1, 3) and len(lines) == 1 and lines[0].startswith(out if status == 0 else "error: ") and
              "bug" not in lines[0], "mutation", i, "of", name, "status", status, lines)
        same(os.listdir(directory_of_output), [] if status else ["out.gguf"], "mutation %d of %s: files" % (i, name))

        if status == 0:
            n_accepted += 1
            os.remove(out)

        # The next mutation begins with the valid file.
        with open(path, "wb") as f:
            f.write(good)

    check(n < 300 or n // 50 < n_accepted < n // 2, n_accepted, "of", n, "mutations are valid")


WRONG = ..., None, "x", ["x"], 10 ** 30, {}, [[]], True, 0.5, -1
FILES = {  # beside config.json and tokenizer.json of small31-hf
    "tokenizer_config.json": {
        "chat_template": [{"name": "default", "template": "A"}], "bos_token": {"content": "<|begin_of_text|>"},
        "added_tokens_decoder": {"393": {"content": "<|eot_id|>", "special": True}}, "eos_token": "<|eot_id|>",
        "additional_special_tokens": ["<|eot_id|>"], "add_bos_token": True, "add_prefix_space": False},
    "special_tokens_map.json": {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>"}},
    "generation_config.json": {
        "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1,
        "eos_token_id": [385, 393], "bos_token_id": 384, "num_beams": 1, "stop_strings": []},
    "added_tokens.json": {"<|eot_id|>": 393}, "chat_template.json": {"chat_template": "A"}}


def places(v, at=()):
    """The paths of all values of a JSON value; of a vocabulary, of four."""
    inner = list(v.items() if type(v) is dict else enumerate(v) if type(v) is list else ())
    for key, x in inner if len(inner) < 60 else inner[:4]:
        yield [*at, key]
        yield from places(x, (*at, key))


@test
def refuses_wrong_values(tmp):
    """Every value of every JSON file removed, or replaced by null, a text, a list, a huge number ...: a valid output, or one
    line that is not an exception of Python. All replacements with LLAMA31_CI, otherwise a random one of an eighth of the
    values."""
    face, meta, out = copy("small31-hf", tmp), copy("small31", os.path.join(tmp, "meta")), os.path.join(tmp, "out.gguf")
    for name, content in FILES.items():
        with open(os.path.join(face, name), "w") as f:
            json.dump(content, f)
    edit_json(os.path.join(face, "tokenizer.json"), lambda t: t.update(
        normalizer={"type": "Sequence", "normalizers": []},
        post_processor={"type": "Sequence", "processors": [{"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<|begin_of_text|>"}}, {"Sequence": {"id": "A"}}]}]}))
    files = [(face, name) for name in (*FILES, "config.json", "tokenizer.json", "model.safetensors.index.json")]
    files += [(meta, "params.json"), (write_adapter(os.path.join(tmp, "lora")), "adapter_config.json")]
    files += [(source, "config.json") for _, source, _ in published_sources(tmp)]

    rng = random.Random(1)
    for directory, name in files:
        path, args = os.path.join(directory, name), ["--base", face] if name.startswith("adapter") else []
        with open(path) as f:
            good = f.read()
        for at in places(json.loads(good)):
            for value in in_ci(WRONG, [rng.choice(WRONG)][rng.randrange(8):]):
                with open(path, "w") as f:
                    json.dump(changed(json.loads(good), at, value, False), f)
                err = io.StringIO()
                with contextlib.redirect_stderr(err):
                    status = export.main([directory, "-o", out, "--force"] + args)
                lines = [line for line in err.getvalue().splitlines() if not line.startswith("note:")]
                check(status in (0, 1, 3) and len(lines) == 1 and "bug" not in lines[0], path, at, value, status, lines)
        with open(path, "w") as f:
            f.write(good)


# Disk, signals, memory

@test
def full_disk_leaves_no_file(tmp):
    directory = os.path.join(tmp, "out")
    os.mkdir(directory)
    out = os.path.join(directory, "m.gguf")
    with open(out, "w") as f:
        f.write("before")
    p = run_export(find("small31"), out, "--force", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500000, 500000)))
    same(p.returncode, 1)
    check(p.stderr.splitlines()[-1].startswith("error: "), p.stderr)
    same(os.listdir(directory), ["m.gguf"])
    with open(out) as f:
        same(f.read(), "before", "the previous file")


@test
def signals_leave_no_file(tmp):
    class Slow:
        name, type, shape = "slow.weight", "f32", (4, 1)

        def pieces(self):
            yield bytes(8)
            same(len(os.listdir(tmp)), 1)
            os.kill(os.getpid(), self.signal)
            time.sleep(5)
            yield bytes(8)
    out = os.path.join(tmp, "m.gguf")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with SIGINT ignored
    for Slow.signal, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)):
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                status = gguf_writer.run(out, lambda: gguf_writer.write_gguf(out, {"a": 1}, [Slow()]))
            except SystemExit as e:
                status = e.code
            except KeyboardInterrupt:
                status = 130  # by lib/interrupt.py
        same((status, os.listdir(tmp)), (code, []))


# Mixtures of experts. A case names the tensors of a checkpoint and their GGUF names, with the shape of the latter, and
# of the former if it differs. "*": the number of an expert; "+": two tensors in one; a final ".": no ".weight".

BLOCK = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def full_name(layer, name):
    return "blk.%d.%s" % (layer, name if "." in name else name + ".weight")


def expert_tensors(case):
    """{GGUF name: (type, shape, bytes)} of random numbers, in the shapes of a case."""
    c, rng, shapes = case["config"], random.Random(1), {}
    dim, heads, kv_heads = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head_dim = c.get("head_dim") or dim // heads
    for i in range(c["num_hidden_layers"]):
        layer = {"attn_norm": [dim], "ffn_norm": [dim], "attn_output": [dim, heads * head_dim],
                 "attn_q": [heads * head_dim, dim], "attn_k": [kv_heads * head_dim, dim],
                 "attn_v": [kv_heads * head_dim, dim]}

        if i < case["n_dense"]:
            hidden = c["intermediate_size"]
            layer.update({"ffn_gate": [hidden, dim], "ffn_up": [hidden, dim], "ffn_down": [dim, hidden]})

        for to, shape, *_ in map(str.split, case["tensors"].values()):
            if to.startswith("attn") or i >= case["n_dense"]:
                layer.update((name, list(map(int, shape.split("x")))) for name in to.split("+"))
        if "attn_qkv" in layer:
            del layer["attn_q"], layer["attn_k"], layer["attn_v"]
        shapes.update((full_name(i, name), shape) for name, shape in layer.items())

    shapes.update({"output_norm.weight": [dim], "token_embd.weight": [c["vocab_size"], dim]})
    if not case.get("is_tied", c.get("tie_word_embeddings")):
        shapes["output.weight"] = [c["vocab_size"], dim]
    return {name: ("f32", shape, array.array("f", [rng.gauss(0, 1) for _ in range(math.prod(shape))]).tobytes())
            for name, shape in shapes.items()}


def checkpoint_of(case, tensors):
    """The tensors of the Hugging Face directory that becomes these GGUF tensors."""
    c, state = case["config"], {}

    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    embed = "model.word_embeddings" if c["model_type"] == "bailing_moe" else "model.embed_tokens"

    for name, to in (embed, "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output"):
        if to + ".weight" in tensors:
            state[name + ".weight"] = tensors[to + ".weight"]

    # Each layer: the names of the case replace those of Llama.
    for i in range(c["num_hidden_layers"]):
        names = {to: name for name, to in BLOCK.items()}
        names.update((to, name) for name, to in case["tensors"].items())
        for spec, name in {to.split()[0]: (to, name) for to, name in names.items()}.values():
            to, *shapes = spec.split()
            parts = [full_name(i, part) for part in to.split("+")]
            if parts[0] not in tensors:
                continue

            name = "model.layers.%d.%s" % (i, name)
            name = name[:-1] if name.endswith(".") else name if name.endswith("bias") else name + ".weight"

            # A tensor of all experts becomes one per expert.
            kind, shape, data = tensors[parts[0]]
            if "*" in name:
                size = len(data) // shape[0]
                state.update((name.replace("*", str(e)), (kind, shape[1:], data[e * size:(e + 1) * size]))
                             for e in range(shape[0]))
                continue

            # Two tensors in one: gate and up of each expert.
            if len(parts) == 2:
                size, up = 4 * shape[-2] * shape[-1], tensors[parts[1]][2]
                data = b"".join(x[at:at + size] for at in range(0, len(data), size) for x in (data, up))
                shape = shape[:-2] + [2 * shape[-2], shape[-1]]

            # Pairs of q and k: the first values of all pairs of a head, then the second ones.
            if case["is_half_order"] and to in ("attn_q", "attn_k"):
                order, row = [2 * a + b for b in range(2) for a in range(head_dim // 2)], 4 * shape[1]
                data = b"".join(data[(head + a) * row:][:row] for head in range(0, shape[0], head_dim) for a in order)

            state[name] = kind, list(map(int, shapes[1].split("x"))) if shapes[1:] else shape, data

    # Tensors of multi-token prediction, which the export leaves out.
    if c.get("num_nextn_predict_layers"):
        state["model.layers.%d.eh_proj.weight" % c["num_hidden_layers"]] = "f32", [1], bytes(4)
    if c["model_type"] == "ernie4_5_moe":
        state["model.mtp_emb_norm.0.weight"] = "f32", [1], bytes(4)

    return state


def write_experts(source, case, state):
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    words = {word: i for i, word in enumerate(vocabulary.byte_letters() + ["ab"])}
    tokenizer = {"model": {"type": "BPE", "vocab": words, "merges": ["a b"]}, "pre_tokenizer": level}
    os.makedirs(source, exist_ok=True)
    for name, content in ("config.json", case["config"]), ("tokenizer.json", tokenizer):
        with open(os.path.join(source, name), "w") as f:
            json.dump(content, f)
    write_safetensors(os.path.join(source, "model.safetensors"), state)


def expert_cases():
    with open(os.path.join(ROOT, "tests", "export_experts.jsonl")) as f:
        return [json.loads(line) for line in f]


# Sizes of the published configurations, without those that say where the experts are.
SIZES = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 1,
         "head_dim": 16, "vocab_size": 300}
PLACES = ("first_k_dense_replace", "moe_layer_start_index", "moe_layer_interval", "decoder_sparse_step", "moe_layer_freq",
          "num_nextn_predict_layers", "max_position_embeddings", "rope_theta")


def smaller(config, case):
    """A published configuration with the sizes of a case of export_experts.jsonl, or SIZES."""
    sizes, small = {**SIZES, **case.get("config", {})}, {}
    for key, v in config.items():
        if key.endswith("_token_id"):
            v = list(range(len(v))) if type(v) is list else 1
        elif key in ("layer_types", "no_rope_layers"):
            v = v[:sizes["num_hidden_layers"]]
        elif type(v) is int and key in sizes and key not in PLACES:
            v = sizes[key]
        small[key] = v
    if not case and config["num_key_value_heads"] == config["num_attention_heads"]:
        small["num_key_value_heads"] = small["num_attention_heads"]
    return small


def published_rows():
    with open(os.path.join(ROOT, "tests", "export_families.jsonl")) as f:
        return [json.loads(line) for line in f]


def published_sources(tmp):
    """Yields rows of export_families.jsonl, each with a directory with exactly the keys of its config.json and small sizes,
    and the tensors that it was made from."""
    cases = {case["config"]["model_type"]: case for case in reversed(expert_cases())}
    for i, row in enumerate(some(published_rows())):
        published, has_parts = row["config"].get("text_config", row["config"]), "text_config" in row["config"]
        case = cases.get(published["model_type"], {"tensors": {}})
        config = smaller(published, case)
        case = dict(case, **dict(row, config=config))
        case["n_dense"] = max(config.get("first_k_dense_replace", 0), config.get("moe_layer_start_index", 0))
        if published["model_type"] in export.FAMILIES:
            case["n_dense"] = config["num_hidden_layers"]

        tensors, source = expert_tensors(case), os.path.join(tmp, "published%d" % i)
        state = {"language_model." * has_parts + name: w for name, w in checkpoint_of(case, tensors).items()}
        write_experts(source, dict(case, config=dict(row["config"], text_config=config) if has_parts else config), state)
        yield row, source, tensors


@test
def published_configurations(tmp):
    """Each row of export_families.jsonl is the config.json of a published model of the families of docs/models.md. A model of
    small sizes with exactly its keys becomes the tensors that it was made from, and these keys."""
    types = {row["config"].get("text_config", row["config"])["model_type"] for row in published_rows()}
    same(types, set(export.FAMILIES) | set(export.MOE_FAMILIES) - {"granitemoeshared", "bailing_moe_v2"}, "model types")
    for row, source, tensors in published_sources(tmp):
        out, err = os.path.join(tmp, "out.gguf"), io.StringIO()
        with contextlib.redirect_stderr(err):
            status = export.main([source, "-o", out, "--force"])
        notes = [line for line in err.getvalue().splitlines() if not line.startswith(out)]
        check(status == 0 and len(notes) == ("says" in row) and row.get("says", "") in err.getvalue(), row["family"], notes)

        metadata, found = read_gguf(out)
        for key, v in row["keys"].items():
            value = metadata.get("%s.%s" % (metadata["general.architecture"], key))
            same(value, v if type(v) is not float else struct.unpack("f", struct.pack("f", v))[0], row["family"] + " " + key)
        found.pop("rope_freqs.weight", None)
        same({name: t[1:] for name, t in found.items()}, {name: (list(t[1]), t[2]) for name, t in tensors.items()}, row["family"])
        call("show", "-m", out)


LLAMA_CPP = r"""
const path = require("path"), { pathToFileURL } = require("url"), [peer, n, prompt, ...models] = process.argv.slice(1);
(async () => {
  const entry = require.resolve("node-llama-cpp", { paths: [path.resolve(peer)] });
  const { getLlama } = await import(pathToFileURL(entry).href);
  const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
  for (const file of models) {
    const model = await llama.loadModel({ modelPath: file }), ids = [];
    const context = await model.createContext({ contextSize: 64, threads: 2 });
    const options = { temperature: 0, yieldEogToken: true };
    for await (const id of context.getSequence().evaluate(prompt.split(",").map(Number), options))
      if (ids.push(id) >= +n) break;
    console.log(JSON.stringify(ids));
    await model.dispose();
  }
  process.exit(0);
})();
"""


@test
@slow
def greedy_against_llama_cpp(tmp):
    """Exports of all families and forms give the greedy ids of llama.cpp, except where two logits are equal but for the
    rounding of activations."""
    peer = os.environ.get("LLAMA31_PEER") or os.devnull
    if not os.path.isdir(os.path.join(peer, "node_modules", "node-llama-cpp")) or not shutil.which("node"):
        raise Skip("no node-llama-cpp: LLAMA31_PEER=FOLDER, after `npm install --omit=optional node-llama-cpp@3.22.1 "
                   "@node-llama-cpp/linux-x64@3.22.1` there")
    sources = {row["family"]: source for row, source, _ in published_sources(tmp)}
    sources.update((name, find(name)) for name in ("small31", "small31-hf"))
    models, n, prompt = [], 16, [1, 5, 17, 40, 33, 9, 120, 77]
    for name, source in sources.items():
        models.append(os.path.join(tmp, name.replace(" ", "-") + ".gguf"))
        same(run_export(source, models[-1]).returncode, 0, name)

    p = subprocess.run(["node", "-e", LLAMA_CPP, peer, str(n), ",".join(map(str, prompt)), *models], stdout=subprocess.PIPE,
                       check=True)
    same(p.stdout.count(b"\n"), len(models))
    for model, line in zip(models, p.stdout.splitlines()):
        ids, logits = json.loads(line), array.array("f")
        call("logits", "-q", "-m", model, "--ids", ",".join(map(str, prompt + ids[:-1])), "-o", model + ".f32")
        with open(model + ".f32", "rb") as f:
            logits.frombytes(f.read())
        n_vocab = len(logits) // (len(prompt) + n - 1)
        for i, id in enumerate(ids, len(prompt) - 1):
            row = logits[i * n_vocab:(i + 1) * n_vocab]
            check(row[id] >= max(row) - 1e-3 * max(map(abs, row)), model, "id", i - len(prompt) + 1, id, row[id], max(row))


@test
def experts(tmp):
    """Mixtures of experts: the tensors and metadata of llama.cpp's files, where they are there, or of random ones."""
    source = os.path.join(tmp, "source")
    for case in some(expert_cases()[::-1])[::-1]:  # with the last one, which is used below
        golden, expected, c = {}, expert_tensors(case), case["config"]
        path = os.path.join(DATA, "moe", "%s.gguf" % case["file"])
        if os.path.exists(path):
            golden, found = read_gguf(path)
            same({name: t[:2] for name, t in found.items()}, {name: t[:2] for name, t in expected.items()}, path)
            expected = found
        write_experts(source, case, checkpoint_of(case, expected))
        metadata, tensors = exported(source, tmp, "--force")
        if c["tie_word_embeddings"] and c["model_type"] == "olmoe":
            expected["output.weight"] = expected["token_embd.weight"]
        same(sorted(tensors), sorted(expected), c["architectures"])
        for name, t in expected.items():
            check(tensors[name] == t, c["architectures"], name, tensors[name][:2], t[:2])

        architecture = metadata["general.architecture"] + "."
        for key, value in case["metadata"].items():
            found = metadata.get(architecture + key)
            is_near = type(value) is float and abs(found - value) < 1e-6 * value
            check(found == value or is_near, architecture, key, found)
        for key in golden:
            if key.startswith(architecture) and not key.endswith("rope.scaling.type"):
                same(metadata.get(key), golden[key], key)
    _, tensors = exported(source, tmp, "--force", "--type", "bf16")
    same([tensors["blk.0.%s.weight" % name][0] for name in ("ffn_gate_inp", "ffn_down_exps", "attn_q_norm")],
         ["f32", "bf16", "f32"])


@test
def refuses_experts(tmp):
    """Configurations that files of the architecture cannot express, missing ("-") and further ("+") tensors."""
    source = os.path.join(tmp, "source")
    for case in expert_cases():
        state = checkpoint_of(case, expert_tensors(case)) if case["refusals"] else {}
        for refusal in case["refusals"]:
            change = refusal["change"]
            tensors = {name: t for name, t in state.items() if name != change.get("-")}
            if "+" in change:
                tensors[change["+"]] = "f32", [7, 48], bytes(4 * 7 * 48)
            settings = {key: value for key, value in change.items() if key not in "+-"}
            write_experts(source, dict(case, config=dict(case["config"], **settings)), tensors)
            refused(source, tmp, refusal["says"])


@test
def pre_tokenizers(tmp):
    """tokenizer.ggml.pre follows from the expressions in tokenizer.json."""
    source = copy("small31-hf", tmp)
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    forms = [("gpt-2", level), ("smollm", {"type": "Sequence", "pretokenizers": [digits, level]})]
    for regex, name in vocabulary.SPLITS.items():
        split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}
        forms.append((name, {"type": "Sequence", "pretokenizers": [split, dict(level, use_regex=False)]}))
    same(sorted(name for name, _ in forms), ["gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"])
    def change(form, normalizer, ignores):
        def edit(t):
            t["model"]["ignore_merges"] = ignores
            t.update(pre_tokenizer=form, normalizer=normalizer)

        edit_json(os.path.join(source, "tokenizer.json"), edit)

    nfc = {"gpt-2": "olmo", "qwen2": "qwen2"}
    for name, form in forms:
        for normalizer, expected in ((None, name.replace("qwen2", "deepseek-r1-qwen")), ({"type": "NFC"}, nfc.get(name))):
            change(form, normalizer, name in ("llama-bpe", "tekken"))
            if not expected:
                refused(source, tmp, "normalizer: 'NFC' is not supported with the split " + name)
                continue
            metadata, _ = exported(source, tmp, "--force")
            same((metadata["tokenizer.ggml.pre"], metadata["tokenizer.ggml.add_bos_token"]),
                 (expected, name in ("llama-bpe", "tekken")))
    for form in (dict(level, add_prefix_space=True), dict(level, use_regex=False), {"type": "Whitespace"},
                 {"type": "Sequence", "pretokenizers": [dict(digits, individual_digits=False), level]}):
        change(form, None, False)
        refused(source, tmp, "unsupported pre-tokenizer")


# LoRA

def write_adapter(directory, modules=None, config=None, rank=4, seed=1, state=None):
    """A PEFT directory for all or some matrices of small31-hf, with numbers that f16 represents exactly."""
    rng, tensors = random.Random(seed), {}
    for name, (_, shape, _) in (state or hf_state()).items():
        module = name[:-len(".weight")]
        if len(shape) != 2 or "embed" in name or modules and not any(m in module for m in modules):
            continue
        own = rank(module) if callable(rank) else rank
        for side, form in (("A", (own, shape[1])), ("B", (shape[0], own))):
            x = [rng.randint(-32, 32) / 512 for _ in range(form[0] * form[1])]
            tensors["base_model.model.%s.lora_%s.weight" % (module, side)] = "f32", form, struct.pack("<%df" % len(x), *x)
    os.makedirs(directory, exist_ok=True)
    write_safetensors(os.path.join(directory, "adapter_model.safetensors"), tensors)
    with open(os.path.join(directory, "adapter_config.json"), "w") as f:
        json.dump(dict({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "use_dora": False,
                        "target_modules": ["q_proj"]}, **config or {}), f)
    return directory


def logits(model, tmp, *args, n=40):
    out = os.path.join(tmp, "logits.f32")
    ids = ",".join(str(7 * i % 300) for i in range(n))
    p = subprocess.run([PROGRAM, "logits", "-m", model, "--ids", ids, "-o", out, "--force", "--kv", "f32"] + list(args),
                       stderr=subprocess.PIPE, universal_newlines=True, env=dict({"LLAMA31_ISA": "scalar"}, **os.environ))
    check(p.returncode == 0, p.stderr)
    x = array.array("f")
    with open(out, "rb") as f:
        x.frombytes(f.read())
    return x


def nmse(found, expected):
    same(len(found), len(expected))
    return sum((a - b) ** 2 for a, b in zip(found, expected)) / sum(b * b for b in expected)


@test
def lora_equals_merged(tmp):
    """An adapter in the program gives the logits of --merge and of W + alpha / r B A in Python; also with ranks and alphas
    per module, with rslora, and with two adapters."""
    requires("lora")
    base, model = find("small31-hf"), os.path.join(tmp, "base.gguf")
    export_here(base, model, "--type", "f32")
    plain = read_gguf(model)[1]

    forms = {"plain": write_adapter(os.path.join(tmp, "plain")),
             "pattern": write_adapter(os.path.join(tmp, "pattern"), seed=2,
                                      rank=lambda m: 8 if "layers.1.mlp" in m else 3 if "q_proj" in m else 4,
                                      config={"rank_pattern": {r"layers\.1\.mlp\..*": 8, "q_proj": 3},
                                              "alpha_pattern": {"q_proj": 2}}),
             "root": write_adapter(os.path.join(tmp, "root"), ["self_attn", "lm_head"], seed=3,
                                   rank=lambda m: 9 if "k_proj" in m else 4,
                                   config={"use_rslora": True, "rank_pattern": {"k_proj": 9}})}

    def scale(form, module):
        if form == "pattern":
            return 8 / 8 if "layers.1.mlp" in module else 2 / 3 if "q_proj" in module else 8 / 4
        return 8 / 4 if form == "plain" else 8 / (9 if "k_proj" in module else 4) ** 0.5

    if not os.path.exists(PROGRAM):
        raise Skip("no %s" % PROGRAM)

    limit = 1e-4 if os.environ.get("LLAMA31_ISA") == "amx" else 1e-6
    loras = {}
    for form, directory in forms.items():
        lora, merged = os.path.join(tmp, form + ".gguf"), os.path.join(tmp, "merged.gguf")
        export_here(directory, lora, "--base", base)
        export_here(base, merged, "--merge", directory, "--type", "f32", "--force")

        metadata, tensors = read_gguf(lora)
        same((metadata["general.type"], metadata["adapter.type"], metadata["general.architecture"]),
             ("adapter", "lora", "llama"))
        same(metadata["adapter.lora.alpha"], 16.0 if form == "root" else 8.0)
        check(all(t[0] == "f32" for t in tensors.values()))

        expected = logits(merged, tmp)
        error = nmse(logits(model, tmp, "--lora", lora), expected)
        check(error <= limit, form, "NMSE", error)
        check(nmse(logits(model, tmp), expected) > 0.01, "the adapter has no effect")
        check(nmse(logits(model, tmp, "--lora", lora + ":0.5"), expected) > 1e-4, "SCALE has no effect")

        loras[form] = lora

        found = read_gguf(merged)[1]
        state = export.read_safetensors(os.path.join(directory, "adapter_model.safetensors"))
        for module, gguf, heads in (("model.layers.1.self_attn.q_proj", "blk.1.attn_q.weight", True),
                                    ("model.layers.0.self_attn.v_proj", "blk.0.attn_v.weight", False),
                                    ("model.layers.1.mlp.down_proj", "blk.1.ffn_down.weight", False)):
            if "base_model.model.%s.lora_A.weight" % module not in state:
                continue
            a, b = [list(adapters.rows(state["base_model.model.%s.lora_%s.weight" % (module, side)]))
                    for side in "AB"]
            kind, shape, data = plain[gguf]
            old, new = struct.unpack("<%df" % (len(data) // 4), data), struct.unpack("<%df" % (len(data) // 4),
                                                                                    found[gguf][2])

            head = 32
            for row in range(shape[0]):
                at = row // head * head + row % 2 * head // 2 + row % head // 2 if heads else row
                for col in range(0, shape[1], in_ci(17, 89)):
                    sum_ = scale(form, module) * sum(x * y[col] for x, y in zip(b[at], a))
                    i = row * shape[1] + col
                    check(abs(new[i] - old[i] - sum_) < 1e-6, form, module, row, col, new[i] - old[i], sum_)

    both = os.path.join(tmp, "both.gguf")
    export_here(base, both, "--merge", forms["plain"], "--merge", forms["root"], "--type", "f32")
    error = nmse(logits(model, tmp, "--lora", loras["plain"], "--lora", loras["root"]), logits(both, tmp))
    check(error <= limit, "two adapters: NMSE", error)

    metadata, tensors = exported(forms["plain"], tmp, "--base", base, "--type", "f16", "--force")
    check(all(t[0] == "f16" for t in tensors.values()))


@test
def lora_refusals(tmp):
    """Unsupported and inconsistent adapters are rejected with the setting or module."""
    base, directory = find("small31-hf"), os.path.join(tmp, "adapter")

    def refuses(*words, code=3, source=None, args=("--base", base), **adapter):
        shutil.rmtree(directory, ignore_errors=True)
        write_adapter(directory, **{"modules": ["self_attn.q_proj"], **adapter})
        out, err = os.path.join(tmp, "refused.gguf"), io.StringIO()
        with contextlib.redirect_stderr(err):
            status = export.main([source or directory, "-o", out] + list(args))
        check(status == code and not os.path.exists(out), status, err.getvalue())
        for word in words:
            check(word in err.getvalue(), "expected", repr(word), "in", err.getvalue())

    refuses("--base DIRECTORY", code=2, args=())
    for key, v in (("peft_type", "LOHA"), ("use_dora", True), ("bias", "lora_only"), ("modules_to_save", ["lm_head"]),
                   ("fan_in_fan_out", True), ("layer_replication", [[0, 1]]), ("init_lora_weights", "pissa_niter_4"),
                   ("lora_bias", True), ("kasa_config", {"beta": 1e-4}), ("arrow_config", {"top_k": 3}),
                   ("use_bdlora", {"nblocks": 2}), ("monteclora_config", {"num_samples": 4})):
        refuses(key, config={key: v})

    refuses("invalid LoRA settings", config={"r": 0})
    refuses("invalid LoRA settings", config={"lora_alpha": "8"})

    for pattern in some(("(", "(a+)+$", "q_proj|k_proj", "[qk]_proj", "q_proj?", "q_*", "\\d", ".*" * 5, "q" * 257)):
        refuses("rank_pattern: ", ascii(pattern)[:60], config={"rank_pattern": {pattern: 4}})
        refuses("alpha_pattern: ", ascii(pattern)[:60], config={"alpha_pattern": {pattern: 4}})

    if in_ci(True, False):
        refuses("invalid LoRA settings", "patterns for", modules=None,
                config={"rank_pattern": {"x%d" % i: 8 for i in range(400000)}})
    refuses("expected lora_A (8, ...)", config={"r": 8})
    refuses("no tensors", modules=["nothing"])

    for name, to, word in (("self_attn.q_proj", "self_attn.qkv_proj", "self_attn.qkv_proj"),
                           ("q_proj.lora_A.weight", "q_proj.lora_magnitude_vector", "lora_magnitude_vector"),
                           ("layers.1", "layers.2", "layers.2"), ("self_attn.q_proj", "mlp.gate_proj", "expected shape"),
                           ("lora_B", "lora_C", "lora_C")):
        write_adapter(directory, ["layers.1.self_attn.q_proj"])
        tensors = {n.replace(name, to): (w.type, w.shape, b"".join(w.pieces())) for n, w in
                   export.read_safetensors(os.path.join(directory, "adapter_model.safetensors")).items()}
        write_safetensors(os.path.join(directory, "adapter_model.safetensors"), tensors)

        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            status = export.main([directory, "-o", os.path.join(tmp, "refused.gguf"), "--base", base])
        check(status == 3 and word in err.getvalue(), word, err.getvalue())

    for alpha, scale in ((1e300, "2.5e+299"), (1e-300, "2.5e-301"), (math.nan, "nan"), (math.inf, "inf")):
        refuses("q_proj': scale " + scale, "range of f32", config={"alpha_pattern": {"q_proj": alpha}})
    refuses("invalid LoRA settings", config={"alpha_pattern": {"q_proj": "8"}})
    refuses("invalid LoRA settings", config={"rank_pattern": ["q_proj"]})

    # Numbers that are not finite.
    name = "base_model.model.model.layers.1.self_attn.q_proj.lora_%s.weight"
    for side in "AB":
        for kind, form in (("f32", "<f"), ("f16", "<e"), ("bf16", None)):
            for number in some((float("nan"), float("inf"), float("-inf"))):
                write_adapter(directory, ["layers.1.self_attn.q_proj"])
                path = os.path.join(directory, "adapter_model.safetensors")
                tensors = {n: (kind, w.shape, b"".join(weights.convert(w, kind).pieces())) for n, w in
                           export.read_safetensors(path).items()}

                data = tensors[name % side][2]
                bad = struct.pack(form, number) if form else struct.pack("<f", number)[2:]
                tensors[name % side] = kind, tensors[name % side][1], data[:40] + bad + data[40 + len(bad):]
                write_safetensors(path, tensors)
                refused(directory, tmp, name % side + ": NaN or infinity", args=["--base", base])
                refused(base, tmp, name % side + ": NaN or infinity", args=["--merge", directory])

    # An output matrix that is tied to the embedding.
    source = copy("small31-hf", os.path.join(tmp, "tied"))
    edit_json(os.path.join(source, "config.json"), lambda c: c.update(tie_word_embeddings=True))
    refuses("tied to", args=("--base", source), modules=["lm_head"])
    refuses("tied to", source=source, args=("--merge", directory), modules=["lm_head"])


def adapter_cases():
    with open(os.path.join(ROOT, "tests", "export_adapters.jsonl")) as f:
        return [json.loads(line) for line in f]


def write_adapter_case(case, directory, state, rng):
    """The directory of a row of export_adapters.jsonl. Returns its tensors."""
    def matrix(*shape):
        return "f32", shape, struct.pack("<%df" % math.prod(shape), *(rng.randint(-32, 32) / 512 for _ in range(math.prod(shape))))

    tensors = {}
    write_adapter(directory, case.get("modules", ["nothing"]), case.get("config"))
    path = os.path.join(directory, "adapter_model.safetensors")
    for name, w in export.read_safetensors(path).items():
        tensors[name] = w.type, w.shape, b"".join(w.pieces())
    os.remove(path)
    if case.get("has_embedding"):
        n_rows, dim = state["model.embed_tokens.weight"][1]
        module = "base_model.model.model.embed_tokens.lora_embedding_"
        tensors[module + "A"], tensors[module + "B"] = matrix(4, n_rows), matrix(dim, 4)
    for name, of in case.get("copies", {}).items():
        kind, shape, data = state[of]
        tensors["base_model.model." + name] = kind, shape, bytes(case.get("zeros", 0)) + data[case.get("zeros", 0):]
    for old, new in case.get("rename", ()):
        tensors = {re.sub(old, new, name): w for name, w in tensors.items()}
    file = case.get("file", "adapter_model.safetensors")
    (write_pth if file.endswith(".bin") else write_safetensors)(os.path.join(directory, file), tensors)
    return tensors


@test
def adapters_of_peft(tmp):
    """Each row of export_adapters.jsonl is an adapter as PEFT writes it, with the names of its GGUF tensors or the refusal.
    --lora gives the logits of --merge, and the embedding of --merge is that of Python."""
    requires("lora")
    source = find("small31-hf")
    model, lora, merged = (os.path.join(tmp, name) for name in ("base.gguf", "lora.gguf", "merged.gguf"))
    same(run_export(source, model, "--type", "f32").returncode, 0)
    plain, state = read_gguf(model)[1], hf_state()
    rng = random.Random(4)

    for i, case in enumerate(some(adapter_cases(), 4)):
        directory = os.path.join(tmp, "adapter%d" % i)
        tensors = write_adapter_case(case, directory, state, rng)

        # The base: the whole directory, or its config.json alone, changed.
        base = source
        if "base" in case:
            base = os.path.join(tmp, "base%d" % i)
            os.mkdir(base)
            shutil.copy(os.path.join(source, "config.json"), base)
            edit_json(os.path.join(base, "config.json"), lambda c: c.update(case["base"]))
        if "base_type" in case:
            write_safetensors(os.path.join(base, "model.safetensors"), {"lm_head.weight": (case["base_type"], (4,), bytes(4))})
        if "refused" in case:
            refused(directory, tmp, case["refused"], args=["--base", base])
            continue
        p = run_export(directory, lora, "--base", base, "--force")
        check(p.returncode == 0, case["why"], p.stderr)
        check(case.get("says", "") in p.stderr and p.stderr.count("note:") == ("says" in case), case["why"], p.stderr)
        same(sorted(read_gguf(lora)[1]), sorted(n + s for n in case["keys"] for s in (".lora_a", ".lora_b")), case["why"])

        p = run_export(source, merged, "--merge", directory, "--type", "f32", "--force")
        check(p.returncode == 0, case["why"], p.stderr)
        error = nmse(logits(model, tmp, "--lora", lora), logits(merged, tmp))
        check(error <= 1e-6, case["why"], "NMSE", error)
        if case.get("has_embedding"):
            n_rows, dim = state["model.embed_tokens.weight"][1]
            module = "base_model.model.model.embed_tokens.lora_embedding_"
            a, b = (struct.unpack("<%df" % (4 * n), tensors[module + side][2]) for side, n in (("A", n_rows), ("B", dim)))
            old, new = (struct.unpack("<%df" % (n_rows * dim), t["token_embd.weight"][2]) for t in (plain, read_gguf(merged)[1]))
            for at in range(0, n_rows * dim, 37):
                row, col = divmod(at, dim)
                delta = 2 * sum(b[col * 4 + k] * a[k * n_rows + row] for k in range(4))
                check(abs(new[at] - old[at] - delta) < 1e-6, case["why"], row, col)


def find_torch():
    """A Python interpreter that has torch: this one, or that of the system."""
    for python in sys.executable, "/usr/bin/python3":
        if os.path.exists(python) and not subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
            return python
    raise Skip("no torch; Debian's is python3-torch")


@test
def adapters_against_torch(tmp):
    """--lora gives the logits that torch computes for the adapters of export_adapters.jsonl, within 1e-4."""
    requires("lora")
    python, base, model = find_torch(), find("small31-hf"), os.path.join(tmp, "base.gguf")
    export_here(base, model, "--type", "f32")
    state, rng, tasks = hf_state(), random.Random(5), [{"adapter": None}]
    for i, case in enumerate(adapter_cases()):
        if "refused" not in case:
            tasks.append({"adapter": os.path.join(tmp, "adapter%d" % i), "is_pickle": case.get("file", "").endswith(".bin")})
            write_adapter_case(dict(case, file="adapter_model.safetensors", rename=()), tasks[-1]["adapter"], state, rng)
    for i, task in enumerate(tasks):
        task.update(base=base, ids=[7 * i % 300 for i in range(40)], out=os.path.join(tmp, "expected%d" % i))
    subprocess.run([python, os.path.join(ROOT, "tests", "torch_adapters.py")], input=json_lines(tasks), check=True)

    lora, plain = os.path.join(tmp, "lora.gguf"), logits(model, tmp)
    for task in tasks:
        expected, found = array.array("f"), plain
        with open(task["out"], "rb") as f:
            expected.frombytes(f.read())
        if task["adapter"]:
            export_here(task["adapter"], lora, "--base", base, "--force")
            found = logits(model, tmp, "--lora", lora)
            check(max(abs(x - y) for x, y in zip(plain, expected)) > 0.01, task, "the adapter has no effect")
        same(len(found), len(expected))
        error = max(abs(x - y) for x, y in zip(found, expected))
        check(error <= 1e-4, task, "error", error)


@test
def lora_patterns(tmp):
    """rank_pattern means what it does in PEFT: a regular expression for the end of a module's name."""
    modules = ["model.layers.%d.%s" % (i, m) for i in (1, 11) for m in ("self_attn.q_proj", "mlp.down_proj", "xq_proj")]
    for pattern in ("q_proj", "self_attn.q_proj", r"self_attn\.q_proj", "1.mlp.down_proj", r"layers\.1\.mlp\..*",
                    "^model.layers.1.self_attn.q_proj", "^layers.1.self_attn.q_proj", "^model.*", "q_proj$",
                    ".*q_proj", "attn.q_proj", "layers.*proj", "model.layers.1.*.*q_proj", "l.*l", ".*", "q", ""):
        patterns = adapters.read_patterns({"rank_pattern": {"absent": 1, pattern: 2, ".*proj": 3}}, "rank_pattern")
        for module in modules:
            expected = 2 if re.match(r"(.*\.)?(%s)$" % pattern, module) else 3
            same(adapters.pattern_value(patterns, module, 4), expected, (pattern, module))


@test
@slow
def memory_is_bounded(tmp):
    """Exporting 200 MB of weights (a sparse file) needs less than 40 MB on top of Python itself."""
    source = copy("small31-hf", tmp)

    # A model of one layer with a wide feed-forward network, in a sparse file.
    for n in os.listdir(source):
        if "safetensors" in n:
            os.remove(os.path.join(source, n))
    hidden = 128 * 2048
    edit_json(os.path.join(source, "config.json"), lambda c: c.update(intermediate_size=hidden, num_hidden_layers=1))

    header, at = {}, 0
    for name, (kind, shape, _) in hf_state().items():
        if ".layers.1." in name:
            continue
        shape = [hidden if n == 352 else n for n in shape]
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size

    header = json.dumps(header).encode()
    with open(os.path.join(source, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + at)
    check(at > 200e6)

    # Memory of the program without work and with it.
    peak = []
    for args in (["--help"], [source, "-o", os.path.join(tmp, "big.gguf")]):
        p = subprocess.Popen(EXPORT + args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        error = p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = status
        same(status, 0, error)
        peak.append(usage.ru_maxrss)

    check(peak[1] - peak[0] < 40000, "peak %d kB, of which Python %d kB" % (peak[1], peak[0]))


def head_checkpoint(tmp, head, has_midlayer, write):
    """A directory with the checkpoint of a golden EAGLE-3 head, and one with the config and tokenizer of its target."""
    meta, tensors = read_gguf(os.path.join(DATA, "eagle3", "head-%s.gguf" % head))
    value = {key.partition(".")[2]: v for key, v in meta.items() if key.startswith("eagle3.")}
    directory, base = os.path.join(tmp, "head"), os.path.join(tmp, "target")
    for path in directory, base:
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)

    # Names, order of rows, and vocabulary maps of a checkpoint.
    to_names = {v: k for k, v in export.HEAD_NAMES.items()}
    to_layer = {v: k for k, v in export.HEAD_LAYER.items()}
    n_vocab, state = len(meta["tokenizer.ggml.tokens"]), {}
    for name, (kind, shape, data) in tensors.items():
        part = name.replace(".weight", "")
        shape = shape[1:] if len(shape) == 2 and shape[0] == 1 else shape
        if re.search(r"attn_[qk]\.", name):
            d = value.get("attention.key_length") or value["embedding_length"] // value["attention.head_count"]
            size = len(data) // shape[0]
            rows = [data[i * size:(i + 1) * size] for i in range(shape[0])]
            data = b"".join(rows[h + 2 * (i % (d // 2)) + i // (d // 2)] for h in range(0, shape[0], d) for i in range(d))
        if name == "d2t":
            ids = struct.unpack("<%dq" % shape[0], data)
            state["d2t"] = (kind, shape, struct.pack("<%dq" % len(ids), *(t - i for i, t in enumerate(ids))))
            state["t2d"] = ("bool", (n_vocab,), bytes(t in ids for t in range(n_vocab)))
        elif name.startswith("blk.0."):
            layer = "midlayer." if has_midlayer else "layers.0."
            state[layer + to_layer[part[6:]] + ".weight"] = (kind, shape, data)
        elif name != "rope_freqs.weight":
            state[to_names[part] + ".weight"] = (kind, shape, data)
    write(directory, state)

    # The two layouts of config.json.
    layer = {"model_type": "llama", "hidden_size": value["embedding_length"], "num_hidden_layers": 1,
             "intermediate_size": value["feed_forward_length"], "num_attention_heads": value["attention.head_count"],
             "num_key_value_heads": value["attention.head_count_kv"], "vocab_size": n_vocab, "rms_norm_eps": 1e-5,
             "max_position_embeddings": 512, "rope_theta": value["rope.freq_base"], "hidden_act": "silu"}
    if "attention.key_length" in value:
        layer["head_dim"] = value["attention.key_length"]
    config = {"norm_before_residual": value["norm_before_residual"], "norm_before_fc": value["norm_before_fc"],
              "draft_vocab_size": tensors["output.weight"][1][0]}
    if has_midlayer:
        config.update(layer, architectures=["LlamaForCausalLMEagle3"],
                      eagle_config={"eagle_aux_hidden_state_layer_ids": value["target_layers"]})
    else:
        config.update(speculators_model_type="eagle3", transformer_layer_config=layer, model_type="speculator_model",
                      target_hidden_size=None, eagle_aux_hidden_state_layer_ids=value["target_layers"])
    tokens = {t: i for i, t in enumerate(meta["tokenizer.ggml.tokens"])}
    target = dict(layer, architectures=["LlamaForCausalLM"], hidden_size=128, num_hidden_layers=6, head_dim=32)
    added = [{"id": i, "content": t, "special": True} for t, i in tokens.items() if i >= 509]
    with open(os.path.join(find("tiny31-hf"), "tokenizer.json")) as f:
        tokenizer = json.load(f)
    tokenizer["model"].update(vocab={t: i for t, i in tokens.items() if i < 509}, merges=meta["tokenizer.ggml.merges"])
    tokenizer.update(added_tokens=added, post_processor=None)
    for path, content in ((directory, config), (base, target)):
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(content, f)
    with open(os.path.join(base, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    return directory, base, meta, tensors


def write_head(directory, state):
    write_safetensors(os.path.join(directory, "model.safetensors"), state)


def write_torch_head(directory, state):
    write_pth(os.path.join(directory, "pytorch_model.bin"), state)


@test
def eagle_heads(tmp):
    """The golden heads in both layouts, in safetensors and as a pickle; the exported head drafts in the program."""
    if not os.path.exists(os.path.join(DATA, "eagle3")):
        raise Skip("no eagle3/ under LLAMA31_DATA")
    for head in some(("apt", "own", "random")):
        for has_midlayer in False, True:
            for write in write_head, write_torch_head:
                source, base, meta, tensors = head_checkpoint(tmp, head, has_midlayer, write)
                found_meta, found = exported(source, tmp, "--base", base, "--force")
                tensors.pop("rope_freqs.weight", None)
                flat = {name: (kind, [n for i, n in enumerate(shape) if n != 1 or i == len(shape) - 1], data)
                        for name, (kind, shape, data) in tensors.items()}
                same(sorted(found), sorted(flat), (head, has_midlayer))
                for name in flat:
                    check(found[name] == flat[name], head, has_midlayer, name)
                for key, v in meta.items():
                    if key == "eagle3.target_layers" and v[0] == 1:  # outputs of layers
                        v = [i + 1 for i in v]
                    if key.startswith(("eagle3.", "tokenizer.ggml.tokens", "tokenizer.ggml.merges")):
                        same(found_meta[key], v, (head, key))
        p = subprocess.run([PROGRAM, "run", "-q", "--raw", "-m", os.path.join(DATA, "eagle3", "target.gguf"), "--draft",
                            os.path.join(tmp, "out.gguf"), "-n", "8", "one of the"], capture_output=True)
        same(p.returncode, 0, p.stderr)


# Keys of config.json that a published head and a golden one have in different sizes.
HEAD_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
              "draft_vocab_size", "truncated_vocab_size", "target_hidden_size")


@test
def published_heads(tmp):
    """Each row of export_heads.jsonl has a config.json as published, or some keys of it. Sizes and tensors are those of a
    golden head, with tensors of zeros added or left out. The tensors are the golden ones and the text is that without a
    head, or the refusal names the setting."""
    if not os.path.exists(os.path.join(DATA, "eagle3")):
        raise Skip("no eagle3/ under LLAMA31_DATA")

    def text(*args):
        target = os.path.join(DATA, "eagle3", "target.gguf")
        return call("run", "-q", "--raw", "--temp", "0", "-m", target, "-n", "16", *args, "one of the")[0]

    def with_sizes(published, config):
        """The published values, but sizes and layers of the golden head where the key is there."""
        sizes = {key: config.get(key, config.get(key.replace("truncated", "draft"))) for key in HEAD_SIZES}
        sizes.update(target_hidden_size=128, eagle_aux_hidden_state_layer_ids=[2, 3, 3])
        return {key: with_sizes(v, config) if type(v) is dict else sizes[key] if v and key in sizes else v
                for key, v in published.items() if key != "head_dim" or config.get(key)}

    expected = text()
    with open(os.path.join(ROOT, "tests", "export_heads.jsonl")) as f:
        cases = [json.loads(line) for line in f]
    for case in cases:
        def write(directory, state):
            state = {name.replace("midlayer.", case.get("layer", "midlayer.")): w for name, w in state.items()}
            if "bias" in case:
                state[case["bias"]] = "f32", (4,), bytes(16)
            state = {name: w for name, w in state.items() if name not in case.get("without", ())}
            for name, shape in case.get("zeros", {}).items():
                state[name] = "f32", tuple(shape), bytes(4 * math.prod(shape))
            if case.get("d2t") == "i32":
                kind, shape, data = state["d2t"]
                state["d2t"] = "i32", shape, struct.pack("<%di" % shape[0], *struct.unpack("<%dq" % shape[0], data))
            (write_torch_head if "file" in case else write_head)(directory, state)

        def change(config):
            own = case.get("config", {})
            own = {**own, "eagle_config": {**config["eagle_config"], **own.get("eagle_config", {})}}
            if "published" in case:
                config, own = {}, with_sizes(case["published"], config)
            return {key: v for key, v in {**config, **own}.items() if v is not None}

        source, base, _, golden = head_checkpoint(tmp, "apt", True, write)
        edit_json(os.path.join(source, "config.json"), change)
        if "refused" in case:
            try:
                refused(source, tmp, case["refused"], args=["--base", base])
            except AssertionError as e:
                raise AssertionError("%s: %s" % (case["why"], e))
            continue
        metadata, found = exported(source, tmp, "--base", base, "--force")
        expected_names = set(golden) - set(case.get("lacks", ())) | set(case.get("has", ()))
        same(sorted(set(found) - {"rope_freqs.weight"}), sorted(expected_names), case["why"])
        for name in expected_names & set(golden):
            check(found[name][2] == golden[name][2], case["why"], name)
        for key, v in case.get("keys", {}).items():
            same(metadata.get(key), v, case["why"])
        same(text("--draft", os.path.join(tmp, "out.gguf")), expected, case["why"])


@test
def refused_eagle_heads(tmp):
    if not os.path.exists(os.path.join(DATA, "eagle3")):
        raise Skip("no eagle3/ under LLAMA31_DATA")
    source, base = head_checkpoint(tmp, "apt", True, write_head)[:2]
    refused(source, tmp, "--base DIRECTORY must give the config.json and the tokenizer of its target", code=2)
    for where, key, wrong, words in ((source, "num_hidden_layers", 2, "num_hidden_layers: expected 1, found 2"),
                                     (source, "vocab_size", 511, "vocab_size: expected 512, found 511"),
                                     (source, "target_hidden_size", 64, "target_hidden_size: expected 128, found 64"),
                                     (source, "draft_vocab_size", 300, "draft_vocab_size: expected 330, found 300"),
                                     (source, "eagle_config", {"eagle_aux_hidden_state_layer_ids": [1, 2, 6]},
                                      "eagle_aux_hidden_state_layer_ids: expected 3 layers below 6"),
                                     (base, "hidden_size", 64, "missing tensor token_embd.weight")):
        head_checkpoint(tmp, "apt", True, write_head)
        edit_json(os.path.join(where, "config.json"), lambda v: v.update({key: wrong}))
        refused(source, tmp, words, args=["--base", base])

    def change(name, data):
        def write(directory, state):
            kind, shape, old = state[name]
            state[name] = (kind, shape, data + old[len(data):])
            write_head(directory, state)
        return write

    for name, data in (("d2t", struct.pack("<q", 512)), ("d2t", struct.pack("<q", -1)), ("t2d", bytes(8))):
        head_checkpoint(tmp, "apt", False, change(name, data))
        refused(source, tmp, "d2t: expected 330 different tokens", args=["--base", base])


@test
def command_for_a_directory(tmp):
    """A directory of Hugging Face as a model is refused with the command that converts it."""
    same(os.path.exists(PROGRAM), True)
    for name, argument, arguments in (("llama", "llama", "llama -o llama.gguf"), ("llama", "llama/", "llama -o llama.gguf"),
                                      ("my model", "my model", "'my model' -o 'my model.gguf'"),
                                      ("Tom's", "Tom's", "'Tom'\\''s' -o 'Tom'\\''s.gguf'"),
                                      ("a{b,c}", "./a{b,c}//", "'./a{b,c}' -o 'a{b,c}.gguf'"),
                                      ("-x", "-x", "./-x -o model.gguf")):
        shutil.copytree(find("small31-hf"), os.path.join(tmp, name), dirs_exist_ok=True)
        p = subprocess.run([PROGRAM, "run", "-m", argument, "x"], stderr=subprocess.PIPE, universal_newlines=True, cwd=tmp)
        expected = "llama31: %s: a Hugging Face directory; convert it: scripts/export.py %s\n" % (argument, arguments)
        same(p.stderr, expected)
        check(p.returncode, "exit 0")

        # The command works as it is printed.
        command = p.stderr.partition("convert it: scripts/export.py ")[2]
        p = subprocess.run("%s -B %s %s" % (sys.executable, EXPORT[2], command.strip() + " --force"), shell=True, cwd=tmp,
                           stderr=subprocess.PIPE)
        same(p.returncode, 0, p.stderr)

    # Other directories, and another command.
    shutil.copytree(find("small31"), os.path.join(tmp, "meta"))
    os.makedirs(os.path.join(tmp, "models--org--name", "refs"))
    with open(os.path.join(tmp, "models--org--name", "refs", "main"), "w") as f:
        f.write("main")
    for arguments, expected in ((("run", "-m", "meta", "x"), "meta: a directory of a Meta checkpoint; convert it: scripts/export.py "
                                 "meta -o meta.gguf\n"),
                                (("run", "-m", "models--org--name", "x"), "a model in the Hugging Face cache; convert it"),
                                (("quantize", "llama", "out.gguf", "q8_0"), "llama: a Hugging Face directory; convert it")):
        if arguments[0] == "quantize":
            requires("quantize")
        p = subprocess.run([PROGRAM, *arguments], stderr=subprocess.PIPE, universal_newlines=True, cwd=tmp)
        check(p.returncode and expected in p.stderr, arguments, p.stderr)


@test
def helps_of_scripts(tmp):
    """--help begins with a usage line, without further packages and through a link; scripts are executable."""
    for name in sorted(os.listdir(SCRIPTS)):
        path = os.path.join(SCRIPTS, name)
        if name.endswith(".py"):
            os.symlink(path, os.path.join(tmp, name))
            p = subprocess.run([sys.executable, "-S", "-B", name, "--help"], stdout=subprocess.PIPE, universal_newlines=True,
                               cwd=tmp)
            check(p.returncode == 0 and p.stdout.startswith("usage: " + name), name, p.stdout[:80])
        if name.endswith((".py", ".sh")):
            check(os.access(path, os.X_OK), name, "is not executable")


@test
def synthetic_model(tmp):
    """make_synthetic.py writes a valid file of random weights."""
    make_synthetic.GEOMETRIES["tiny"] = (256, 512, 2, 4, 2, 32, True)
    make_synthetic.RANKS, make_synthetic.POOL = 2000, 20011
    out = os.path.join(tmp, "synthetic.gguf")

    class Options:
        geometry, output, type, layers = "tiny", out, "bf16", 3
    make_synthetic.make(Options)
    metadata, tensors = read_gguf(out)
    same(len(tensors), 2 + 3 * 9 + 1)
    same((metadata["llama.block_count"], metadata["llama.vocab_size"]), (3, 2256))
    tokens, ranks = metadata["tokenizer.ggml.tokens"], {}
    same(len(set(tokens)), 2256)
    for i, t in enumerate(tokens):
        ranks[t] = i
    order = [ranks["".join(m.split(" "))] for m in metadata["tokenizer.ggml.merges"]]
    check(order == sorted(order) and len(set(order)) == 2000 - 256, "each token is merged at its rank")
    x = struct.unpack("<%df" % (256 * 256), weights.bf16_to_f32(tensors["blk.1.attn_q.weight"][2]))
    check(abs(sum(v * v for v in x) / len(x) / 0.02 ** 2 - 1) < 0.1, "deviation")


@test
def synthetic_families(tmp):
    """Qwen 3 and SmolLM3: tensors and metadata of the family."""
    out = os.path.join(tmp, "synthetic.gguf")
    make_synthetic.RANKS, make_synthetic.POOL = 2000, 20011
    make_synthetic.FAMILIES["qwen3"] = (32, 1e6, 1e-6, 512, "qwen2", 100)
    for geometry, n_tensors, n_vocab in (("qwen3-tiny", 2 + 2 * 11, 2356), ("smollm3-tiny", 2 + 2 * 9, 2256)):
        make_synthetic.GEOMETRIES[geometry] = (64, 128, 2, 4, 2, None, True)

        class Options:
            output, type, layers = out, "bf16", None
        Options.geometry = geometry
        make_synthetic.make(Options)
        metadata, tensors = read_gguf(out)
        same((len(tensors), len(metadata["tokenizer.ggml.tokens"])), (n_tensors, n_vocab), geometry)
        r = subprocess.run([PROGRAM, "run", "-q", "--raw", "-m", out, "-n", "2", "a"], capture_output=True)
        same(r.returncode, 0, r.stderr)


@test
def synthetic_experts(tmp):
    """Mixtures of experts. Q4_K_M gives the types that quantize chooses, and weights of the same deviation."""
    out, other = (os.path.join(tmp, name) for name in ("synthetic.gguf", "other.gguf"))
    make_synthetic.RANKS, make_synthetic.POOL = 2000, 20011

    def make(geometry, type):
        class Options:
            output, layers = out, 9
        Options.geometry, Options.type = geometry, type
        make_synthetic.make(Options)

    def quantized(type):
        r = subprocess.run([PROGRAM, "quantize", "-q", "--force", out, other, type], capture_output=True)
        same(r.returncode, 0, r.stderr)
        return read_gguf(other)

    for geometry, architecture, is_tied in some((("qwen3", "qwen3moe", False), ("granite", "granitemoe", True)), 2):
        make_synthetic.GEOMETRIES[geometry] = (256, 512, 2, 4, 2, None, is_tied)
        make_synthetic.FAMILIES[architecture] = (64, 1e6, 1e-6, 512, "qwen2", 100)
        make_synthetic.EXPERTS[geometry] = (architecture, 6, 2, 256)
        make(geometry, "bf16")
        _, expected = quantized("q4_k_m")
        make(geometry, "q4_k_m")
        metadata, found = read_gguf(out)
        same({name: t[:2] for name, t in found.items()}, {name: t[:2] for name, t in expected.items()})
        same(found["blk.0.ffn_down_exps.weight"][:2], ("q6_k", [6, 256, 256]))
        same(found["blk.0.ffn_gate_inp.weight"][:2], ("f32", [6, 256]))
        same([metadata[architecture + key] for key in (".expert_count", ".expert_used_count")], [6, 2])
        _, floats = quantized("f32")
        for name in "blk.1.ffn_gate_exps.weight", "blk.0.ffn_down_exps.weight":
            x = struct.unpack("<%df" % (6 * 256 * 256), floats[name][2])
            check(abs(sum(v * v for v in x) / len(x) / 0.02 ** 2 - 1) < 0.1, name, "deviation")


if __name__ == "__main__":
    main("export")
