#!/usr/bin/env python3
"""llama31 quantize: mixtures, metadata, threads, and that a failure leaves nothing behind."""
import array
import os
import random
import resource
import signal
import struct
import subprocess

from cli import call, check, main, refuses, same, test

BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176),
          14: (256, 210), 20: (32, 18), 23: (256, 136), 30: (1, 2)}
F32, F16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16 = 0, 1, 2, 6, 7, 8, 12, 13, 14, 20, 23, 30
FILE_TYPES = {"Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q4_K_M": 15, "Q4_K_S": 14, "Q4_0": 2, "IQ4_XS": 30, "BF16": 32,
              "F16": 1, "F32": 0}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


KEYS = [("general.architecture", 8, text("llama")), ("general.name", 8, text("a test")),
        ("llama.attention.head_count", 4, struct.pack("<I", 8)),
        ("llama.attention.head_count_kv", 4, struct.pack("<I", 2)),
        ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b\u00e9")),
        ("general.file_type", 4, struct.pack("<I", 0)), ("split.count", 2, struct.pack("<H", 1)),
        ("test.double", 12, struct.pack("<d", 0.1))]


def write_model(path, n_layers=16, dim=256, kv_heads=2, tied=False, poison=None):
    """A file of small random tensors in F32; poison: a value put into blk.1.ffn_up."""
    noise = random.Random(1)
    pool = array.array("f", [noise.gauss(0, 0.02) for _ in range(5003)])
    shapes = [("token_embd.weight", (dim, 24))] + ([] if tied else [("output.weight", (dim, 24))])
    for i in range(n_layers):
        for name, rows in (("attn_norm", 0), ("attn_q", 16), ("attn_k", 8), ("attn_v", 8), ("attn_output", 16),
                           ("ffn_down", 16), ("ffn_up", 16)):
            shapes.append(("blk.%d.%s.weight" % (i, name), (dim, rows) if rows else (dim,)))
    infos, data = b"", b""
    for k, (name, shape) in enumerate(shapes):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        x = array.array("f", [pool[(k * 977 + i) % 5003] for i in range(n)])
        if poison is not None and name == "blk.1.ffn_up.weight":
            x[3 * dim + 5] = poison
        infos += text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, F32, len(data))
        data += x.tobytes() + bytes(-4 * n % 32)
    keys = [(k, kind, struct.pack("<I", kv_heads) if k.endswith("count_kv") else v) for k, kind, v in KEYS]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys))
    head += b"".join(text(k) + struct.pack("<I", kind) + v for k, kind, v in keys) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def read_model(path):
    """({key: (kind, bytes)}, {name: (type, shape, bytes)})"""
    with open(path, "rb") as f:
        b = f.read()
    at = 24

    def take(n):
        nonlocal at
        at += n
        check(at <= len(b), "the file ends early")
        return b[at - n:at]

    def skip(kind):
        if kind == 8:
            take(struct.unpack("<Q", take(8))[0])
        elif kind == 9:
            item, n = struct.unpack("<IQ", take(12))
            for _ in range(n):
                skip(item)
        else:
            take({2: 2, 4: 4, 5: 4, 6: 4, 7: 1, 12: 8}[kind])
    same(b[:8], b"GGUF\3\0\0\0")
    n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
    keys, infos, tensors = {}, [], {}
    for _ in range(n_keys):
        key = take(struct.unpack("<Q", take(8))[0]).decode()
        kind, = struct.unpack("<I", take(4))
        begin = at
        skip(kind)
        keys[key] = (kind, b[begin:at])
    for _ in range(n_tensors):
        name = take(struct.unpack("<Q", take(8))[0]).decode()
        n, = struct.unpack("<I", take(4))
        infos.append((name, struct.unpack("<%dQ" % n, take(8 * n))) + struct.unpack("<IQ", take(12)))
    begin = at + -at % 32
    for name, shape, kind, offset in infos:
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        block, size = BLOCKS[kind]
        check(offset % 32 == 0 and n % block == 0, name)
        check(begin + offset + n // block * size <= len(b), name, "lies outside the file")
        tensors[name] = (kind, shape, b[begin + offset:begin + offset + n // block * size])
    return keys, tensors


def quantize(*args, **options):
    same(call("quantize", *args, **options)[0], b"")


def kinds(tmp, name, **model):
    source, out = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "out.gguf")
    write_model(source, **model)
    quantize("-q", source, out, name)
    keys, tensors = read_model(out)
    same(keys["general.file_type"], (4, struct.pack("<I", FILE_TYPES[name])), name)
    return {k: v[0] for k, v in tensors.items()}


MORE = {0, 1, 4, 7, 10, 13, 14, 15}  # of 16 layers: the first and last eighth, every third between


@test
def mixtures(tmp):
    for name, base, output, value, down in (
            ("F16", F16, F16, {}, {}), ("BF16", BF16, BF16, {}, {}), ("Q8_0", Q8_0, Q8_0, {}, {}),
            ("Q6_K", Q6_K, Q6_K, {}, {}), ("Q4_0", Q4_0, Q6_K, {}, {}),
            ("Q5_K_M", Q5_K, Q6_K, dict.fromkeys(MORE, Q6_K), dict.fromkeys(MORE, Q6_K)),
            ("Q4_K_M", Q4_K, Q6_K, dict.fromkeys(MORE, Q6_K), dict.fromkeys(MORE, Q6_K)),
            ("Q4_K_S", Q4_K, Q6_K, dict.fromkeys(range(4), Q5_K), dict.fromkeys(range(2), Q5_K)),
            ("IQ4_XS", IQ4_XS, Q6_K, dict.fromkeys(range(16), Q5_K), dict.fromkeys(range(2), Q5_K))):
        found = kinds(tmp, name)
        same(found["output.weight"], output, name)
        same(found["token_embd.weight"], base, name)
        for i in range(16):
            for part, types in (("attn_v", value), ("ffn_down", down), ("attn_q", {}), ("attn_k", {}), ("ffn_up", {})):
                same(found["blk.%d.%s.weight" % (i, part)], types.get(i, base), "%s, layer %d %s" % (name, i, part))
            same(found["blk.%d.attn_norm.weight" % i], F32, name)
    same(kinds(tmp, "Q4_K_M", tied=True)["token_embd.weight"], Q6_K, "tied")
    same(kinds(tmp, "IQ4_XS", kv_heads=8)["blk.5.attn_v.weight"], IQ4_XS, "without grouped queries")
    same(kinds(tmp, "Q4_K_M", n_layers=80)["blk.11.attn_v.weight"], Q5_K, "the 70B rule")
    for name, base, sensitive, output in (("Q4_K_M", Q5_0, Q8_0, Q8_0), ("Q5_K_M", Q5_1, Q8_0, Q8_0),
                                          ("Q6_K", Q8_0, Q8_0, Q8_0), ("IQ4_XS", IQ4_NL, Q5_1, Q8_0)):
        found = kinds(tmp, name, dim=288)
        same([found[n] for n in ("blk.2.attn_q.weight", "blk.1.attn_v.weight", "output.weight")],
             [base, sensitive, output], "288 columns, " + name)
    same(kinds(tmp, "Q4_K_M", dim=40)["blk.2.attn_q.weight"], F16, "40 columns")


@test
def metadata(tmp):
    source, out = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "out.gguf")
    write_model(source, n_layers=2)
    for name in "Q4_K_M", "F32":
        quantize(source, out, name.lower())
        keys, tensors = read_model(out)
        expected = {k: (kind, v) for k, kind, v in KEYS if not k.startswith("split.")}
        expected["general.file_type"] = (4, struct.pack("<I", FILE_TYPES[name]))
        expected["general.quantization_version"] = (4, struct.pack("<I", 2))
        expected["llama31.checksum"] = keys["llama31.checksum"]  # tests/test_files.py looks at it
        same(keys, expected, name)
    same({k: v[2] for k, v in tensors.items()}, {k: v[2] for k, v in read_model(source)[1].items()}, "F32 is a copy")


@test
def threads(tmp):
    source, out = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "out.gguf")
    write_model(source, n_layers=4)
    for name in ("Q4_K_M", "Q8_0"):
        files = []
        for n in "1", "2", "5":
            quantize("-q", "--threads", n, source, out, name)
            with open(out, "rb") as f:
                files.append(f.read())
        check(files[0] == files[1] == files[2], name)


@test
def refusals(tmp):
    source, out = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "out.gguf")
    write_model(source, n_layers=2)
    os.symlink(source, os.path.join(tmp, "link.gguf"))
    absent = os.path.join(tmp, "absent")
    for code, says, *args in ((2, "same file", source, os.path.join(tmp, "link.gguf"), "Q8_0"),
                              (2, "did you mean Q4_K_M", source, out, "Q4_KM"),
                              (2, "expected IN.gguf OUT.gguf TYPE", source, out),
                              (1, absent + ": No such file", absent, out, "Q8_0"),
                              (1, absent + "/out.gguf", source, absent + "/out.gguf", "Q8_0"),
                              (1, "No space left", source, "/dev/full", "Q8_0")):
        refuses(code, says, "quantize", *args)
    for value in float("nan"), float("inf"), 1e30:
        write_model(source, n_layers=2, poison=value)
        refuses(3, "blk.1.ffn_up.weight: row 3", "quantize", source, out, "Q4_K_M")
    same(sorted(os.listdir(tmp)), ["in.gguf", "link.gguf"], "left behind")


@test
def disk_full(tmp):
    """A limit on the file's size stands for a full disk: the old result stays."""
    source, out = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "out.gguf")
    write_model(source, n_layers=2)
    with open(out, "wb") as f:
        f.write(b"old")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    refuses(1, "File too large", "quantize", "--force", source, out, "Q8_0", preexec_fn=limit)
    same(sorted(os.listdir(tmp)), ["in.gguf", "out.gguf"], "left behind")
    with open(out, "rb") as f:
        same(f.read(), b"old")


if __name__ == "__main__":
    main("quantize")
