#!/usr/bin/env python3
"""llama31 quantize: types of the mixtures, importance matrices, metadata, threads, and failures that leave no file."""
import array
import os
import random
import resource
import signal
import struct
import subprocess
import sys

from cli import PROGRAM, ROOT, SCRIPTS, call, check, in_ci, main, matches, refuses, same, some, test

BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 18: (256, 98), 20: (32, 18), 21: (256, 110),
          22: (256, 82), 23: (256, 136), 30: (1, 2)}
F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 0, 1, 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ3_XXS, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, BF16 = 10, 11, 12, 13, 14, 18, 20, 21, 22, 23, 30
FILE_TYPES = {"Q8_0": 7, "Q6_K": 18, "Q5_K_M": 17, "Q5_K_S": 16, "Q5_1": 9, "Q5_0": 8, "Q4_K_M": 15, "Q4_K_S": 14,
              "Q4_1": 3, "Q4_0": 2, "IQ4_NL": 25, "IQ4_XS": 30, "Q3_K_L": 13, "Q3_K_M": 12, "Q3_K_S": 11, "IQ3_M": 27,
              "IQ3_S": 26, "IQ3_XXS": 23, "Q2_K": 10, "BF16": 32, "F16": 1, "F32": 0}


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


KEYS = [("general.architecture", 8, text("llama")), ("general.name", 8, text("a test")),
        ("llama.attention.head_count", 4, struct.pack("<I", 8)),
        ("llama.attention.head_count_kv", 4, struct.pack("<I", 2)),
        ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b\u00e9")),
        ("general.file_type", 4, struct.pack("<I", 0)), ("split.count", 2, struct.pack("<H", 1)),
        ("test.double", 12, struct.pack("<d", 0.1))]


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def write_model(path, n_layers=16, dim=256, kv_heads=2, tied=False, bad_value=None, experts=0, is_fused=False):
    """Writes a model of small random tensors in F32. bad_value, unless None, is put into row 3 of blk.1.ffn_up.
    experts: their number in layers from 1 on; is_fused: q, k and v are one tensor."""
    noise = random.Random(1)
    pool = array.array("f", [noise.gauss(0, 0.02) for _ in range(5003)])

    # Names and shapes. The numbers of rows are small, for any dim.
    shapes = [("token_embd.weight", (dim, 24))] + ([] if tied else [("output.weight", (dim, 24))])
    qkv = [("attn_qkv", (32,))] if is_fused else [("attn_q", (16,)), ("attn_k", (8,)), ("attn_v", (8,))]
    moe = [("ffn_gate_inp", (experts,)), ("ffn_gate_inp_shexp", (1,)), ("ffn_down_exps", (16, experts)),
           ("ffn_up_exps", (16, experts)), ("ffn_down_shexp", (16,))]

    for i in range(n_layers):
        for name, rows in [("attn_norm", ())] + qkv + [("attn_output", (16,))] + \
                (moe if i and experts else [("ffn_down", (16,)), ("ffn_up", (16,))]):
            shapes.append(("blk.%d.%s.weight" % (i, name), (dim,) + rows))
        shapes += [("blk.%d.exp_probs_b.bias" % i, (experts,))] if i and experts else []

    # Infos and data of the tensors, from a pool of random numbers.
    infos, data = b"", b""
    for k, (name, shape) in enumerate(shapes):
        n = product(shape)
        x = array.array("f", [pool[(k * 977 + i) % 5003] for i in range(n)])
        if bad_value is not None and name == "blk.1.ffn_up.weight":
            x[3 * dim + 5] = bad_value
        infos += text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, F32, len(data))
        data += x.tobytes() + bytes(-4 * n % 32)

    # Metadata.
    keys = [(k, kind, struct.pack("<I", kv_heads) if k.endswith("count_kv") else v) for k, kind, v in KEYS]
    keys += [("llama.expert_count", 4, struct.pack("<I", experts))] if experts else []
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys))
    head += b"".join(text(k) + struct.pack("<I", kind) + v for k, kind, v in keys) + infos

    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def read_model(path):
    """Returns the metadata, {key: (kind, bytes)}, and the tensors, {name: (type, shape, bytes)}."""
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
        n = product(shape)
        block, size = BLOCKS[kind]
        check(offset % 32 == 0 and n % block == 0, name)
        check(begin + offset + n // block * size <= len(b), name, "is outside the file")
        tensors[name] = (kind, shape, b[begin + offset:begin + offset + n // block * size])
    return keys, tensors


PRODUCTS = "attn_q", "attn_k", "attn_v", "attn_output", "ffn_down", "ffn_up"


def gguf_imatrix(entries, count=32.0, kind="imatrix", counts=".counts"):
    """count: of the tokens, or a list of the counts of each expert."""
    each = count if type(count) is list else [count]
    keys = text("general.type") + struct.pack("<I", 8) + text(kind)
    infos, data = b"", b""
    for name, values in entries:
        for suffix, x in ((".in_sum2", [v * each[i * len(each) // len(values)] for i, v in enumerate(values)]),
                          (counts, each)):
            shape = (1, len(each)) if x is each else (len(x) // len(each), len(each))
            infos += text(name + suffix) + struct.pack("<IQQIQ", 2, *shape, F32, len(data))
            data += struct.pack("<%df" % len(x), *x) + bytes(-4 * len(x) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(entries), 1) + keys + infos
    return head + bytes(-len(head) % 32) + data


def dat_imatrix(entries, n_calls=3, dataset=b"a.txt"):
    """llama.cpp's older binary form, with what newer versions append."""
    parts = [struct.pack("<i", len(entries))]
    for name, values in entries:
        parts += [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", n_calls, len(values)),
                  struct.pack("<%df" % len(values), *(v * n_calls for v in values))]
    return b"".join(parts) + struct.pack("<ii", 5, len(dataset)) + dataset


def write_imatrix(path, entries, **how):
    with open(path, "wb") as f:
        f.write(gguf_imatrix(entries, **how))


def quantize(*args, **options):
    same(call("quantize", "--force", *args, **options)[0], b"")


def types_of(tmp, name, has_imatrix=False, **model):
    source, out = os.path.join(tmp, "in-%s.gguf" % model), os.path.join(tmp, "out.gguf")
    if not os.path.exists(source):
        write_model(source, **model)
    if has_imatrix:
        write_imatrix(os.path.join(tmp, "im"), [("blk.%d.%s.weight" % (i, part), [1.0] * model.get("dim", 256))
                                                for i in range(model.get("n_layers", 16)) for part in PRODUCTS])
    quantize("-q", *(["--imatrix", os.path.join(tmp, "im")] if has_imatrix else []), source, out, name)
    keys, tensors = read_model(out)
    same(keys["general.file_type"], (4, struct.pack("<I", FILE_TYPES[name])), name)
    return {k: v[0] for k, v in tensors.items()}


SPREAD_LAYERS = {0, 1, 4, 7, 10, 13, 14, 15}  # of 16: the first and last eighth, and every third layer between them


@test
def mixtures(tmp):
    every = range(16)
    spread = {"attn_v": dict.fromkeys(SPREAD_LAYERS, Q6_K), "ffn_down": dict.fromkeys(SPREAD_LAYERS, Q6_K)}
    xxs = {"attn_q": dict.fromkeys(every, IQ2_S), "attn_k": dict.fromkeys(every, IQ2_S),
           "attn_v": dict.fromkeys(every, Q4_K), "attn_output": dict.fromkeys(every, IQ3_S)}

    def same_types(found, name, base, output, more, embedding=None):
        same(found["output.weight"], output, name)
        same(found["token_embd.weight"], embedding or base, name)
        for i in every:
            for part in PRODUCTS:
                same(found["blk.%d.%s.weight" % (i, part)], more.get(part, {}).get(i, base),
                     "%s, layer %d %s" % (name, i, part))
            same(found["blk.%d.attn_norm.weight" % i], F32, name)

    for name, base, output, more in some((
            ("F16", F16, F16, {}), ("BF16", BF16, BF16, {}), ("Q8_0", Q8_0, Q8_0, {}), ("Q6_K", Q6_K, Q6_K, {}),
            ("Q5_K_M", Q5_K, Q6_K, spread), ("Q5_K_S", Q5_K, Q6_K, {}), ("Q5_1", Q5_1, Q6_K, {}),
            ("Q5_0", Q5_0, Q6_K, {}), ("Q4_1", Q4_1, Q6_K, {}), ("Q4_0", Q4_0, Q6_K, {}),
            ("Q4_K_M", Q4_K, Q6_K, spread),
            ("Q4_K_S", Q4_K, Q6_K, {"attn_v": dict.fromkeys(range(4), Q5_K), "ffn_down": {0: Q5_K, 1: Q5_K}}),
            ("IQ4_XS", IQ4_XS, Q6_K, {"attn_v": dict.fromkeys(every, Q5_K), "ffn_down": {0: Q5_K, 1: Q5_K}}),
            ("IQ4_NL", IQ4_NL, Q6_K, {"attn_v": dict.fromkeys(every, Q5_K), "ffn_down": {0: Q5_K, 1: Q5_K}}),
            ("Q3_K_L", Q3_K, Q6_K, {p: dict.fromkeys(every, Q5_K) for p in ("attn_v", "attn_output", "ffn_down")}),
            ("Q3_K_M", Q3_K, Q6_K, {"attn_v": {**dict.fromkeys(every, Q4_K), 0: Q5_K, 1: Q5_K},
                                    "attn_output": dict.fromkeys(every, Q4_K),
                                    "ffn_down": {**dict.fromkeys(every, Q4_K), 0: Q5_K}}),
            ("Q3_K_S", Q3_K, Q6_K, {}),
            ("Q2_K", Q2_K, Q6_K, {"attn_v": dict.fromkeys(every, Q4_K), "attn_output": dict.fromkeys(every, Q3_K),
                                  "ffn_down": dict.fromkeys(every, Q3_K)}),
            ("IQ3_M", IQ3_S, Q6_K, {"attn_v": dict.fromkeys(every, Q4_K), "attn_output": dict.fromkeys(every, Q4_K),
                                    "ffn_down": {0: Q4_K, 1: Q4_K}}),
            ("IQ3_S", IQ3_S, Q6_K, {"attn_v": dict.fromkeys(every, Q4_K)}))):
        same_types(types_of(tmp, name), name, base, output, more)

    # With an importance matrix, tied, and without grouped queries.
    down = {**dict.fromkeys(every, Q3_K), 0: Q4_K, 1: Q4_K}
    same_types(types_of(tmp, "IQ3_XXS"), "IQ3_XXS", IQ3_XXS, Q5_K, dict(xxs, ffn_down=down), IQ3_S)
    same_types(types_of(tmp, "IQ3_XXS", True), "IQ3_XXS, with importance", IQ3_XXS, Q5_K, xxs, IQ3_S)
    same_types(types_of(tmp, "IQ4_XS", True), "IQ4_XS, with importance", IQ4_XS, Q6_K, {"attn_v": dict.fromkeys(every, Q5_K)})
    same_types(types_of(tmp, "Q4_0", True), "Q4_0, with importance", Q4_0, Q6_K, {"ffn_down": {0: Q4_1, 1: Q4_1}})
    same_types(types_of(tmp, "Q5_0", True), "Q5_0, with importance", Q5_0, Q6_K, {"ffn_down": {0: Q5_1, 1: Q5_1}})
    same(types_of(tmp, "Q4_K_M", tied=True)["token_embd.weight"], Q6_K, "tied")
    for name, kind in ("IQ4_XS", IQ4_XS), ("Q2_K", Q3_K), ("IQ3_S", IQ3_S), ("IQ3_XXS", IQ3_S):
        same(types_of(tmp, name, kv_heads=8)["blk.5.attn_v.weight"], kind, name + " without grouped queries")
    same(types_of(tmp, "IQ3_XXS", True, kv_heads=8)["blk.5.attn_v.weight"], IQ3_XXS, "with importance, without grouped queries")

    # Many layers, and row lengths that are no multiple of a superblock or of a block.
    for name in in_ci(("Q4_K_M", "Q3_K_S", "Q3_K_M", "Q2_K"), ()):
        same(types_of(tmp, name, n_layers=80)["blk.11.attn_v.weight"], Q5_K, name + ", the 70B rule")
    for name, base, sensitive, output in some((("Q4_K_M", Q5_0, Q8_0, Q8_0), ("Q5_K_M", Q5_1, Q8_0, Q8_0),
                                               ("Q6_K", Q8_0, Q8_0, Q8_0), ("IQ4_XS", IQ4_NL, Q5_1, Q8_0),
                                               ("Q3_K_M", Q4_0, Q5_1, Q8_0), ("IQ3_S", IQ4_NL, Q5_0, Q8_0))):
        found = types_of(tmp, name, dim=288)
        same([found[n] for n in ("blk.2.attn_q.weight", "blk.1.attn_v.weight", "output.weight")],
             [base, sensitive, output], "288 columns, " + name)
    same(types_of(tmp, "Q4_K_M", dim=40)["blk.2.attn_q.weight"], F16, "40 columns")


@test
def mixtures_of_experts(tmp):
    """Experts have the types of dense layers, vectors and the router keep theirs, and 8 experts change attention."""
    spread, eighth = dict.fromkeys(SPREAD_LAYERS, Q6_K), {0: Q5_K, 1: Q5_K}

    def types(name, experts=6, n_layers=16, **how):
        found = types_of(tmp, name, experts=experts, n_layers=n_layers, **how)
        for i in range(1, n_layers):
            same([found["blk.%d.%s" % (i, part)] for part in ("ffn_gate_inp.weight", "exp_probs_b.bias",
                                                             "ffn_gate_inp_shexp.weight")], [F32] * 3, name)
        return lambda part: [found["blk.%d.%s.weight" % (i, part)] for i in range(1, n_layers)]

    for name, base, down in some((("Q4_K_M", Q4_K, spread), ("Q8_0", Q8_0, {}), ("Q5_K_M", Q5_K, spread), ("Q6_K", Q6_K, {}),
                                  ("Q4_K_S", Q4_K, eighth), ("Q3_K_L", Q3_K, dict.fromkeys(range(16), Q5_K)),
                                  ("IQ3_M", IQ3_S, {1: Q4_K})), 6):
        for experts in 6, 8:
            found = types(name, experts)
            sixth = dict.fromkeys(SPREAD_LAYERS, Q4_K) if (name, experts) == ("IQ3_M", 8) else down
            for part in "ffn_down_exps", "ffn_down_shexp":
                same(found(part), [sixth.get(i, base) for i in range(1, 16)], "%s %d %s" % (name, experts, part))
            same(found("ffn_up_exps"), [base] * 15, name)
    for name, output in some((("Q4_K_M", Q5_K), ("Q4_K_S", Q5_K), ("Q5_K_M", Q5_K), ("Q6_K", Q6_K), ("Q4_0", Q4_0),
                              ("Q3_K_L", Q3_K), ("Q3_K_M", Q5_K), ("Q3_K_S", Q5_K), ("Q2_K", Q5_K), ("IQ3_XXS", Q5_K),
                              ("IQ3_M", Q5_K), ("IQ4_XS", Q5_K), ("IQ4_NL", Q5_K)), 4):
        found = types(name, 8, 2)
        same((found("attn_k"), found("attn_v"), found("attn_output")), ([Q8_0], [Q8_0], [output]), name)
    same(types("Q4_K_M", is_fused=True)("attn_qkv"), [spread.get(i, Q4_K) for i in range(1, 16)])
    for name, kind, how in (("Q2_K", Q4_K, {}), ("IQ3_XXS", Q4_K, {}), ("IQ3_XXS", IQ3_S, {"kv_heads": 8}),
                            ("Q4_K_M", Q8_0, {"experts": 8})):
        same(types(name, n_layers=2, is_fused=True, **how)("attn_qkv"), [kind], "%s %s" % (name, how))


@test
def importance_of_experts(tmp):
    """Each expert is quantized with its own columns. An expert without tokens has equal weights, and is counted."""
    source, out, path = (os.path.join(tmp, name) for name in ("in.gguf", "out.gguf", "im"))
    write_model(source, n_layers=2, experts=4)
    name = "blk.1.ffn_down_exps.weight"
    columns = [[100.0 if c % 8 == place else 1.0 for c in range(256)] for place in range(4)]

    def experts(rows, **how):
        write_imatrix(path, [(name, [x for row in rows for x in row])], **how)
        _, err = call("quantize", "--force", "--imatrix", path, source, out, "Q4_0")
        kind, shape, data = read_model(out)[1][name]
        same((kind, shape), (Q4_0, (256, 16, 4)))
        return [data[i * len(data) // 4:(i + 1) * len(data) // 4] for i in range(4)], err

    equal = [experts([row] * 4)[0] for row in columns]
    plain, _ = experts([[1.0] * 256] * 4)

    found, err = experts(columns)
    same(found, [equal[i][i] for i in range(4)], "the columns of each expert")
    check("has no tokens" not in err, err)

    check(all(equal[i][i] != plain[i] for i in range(4)))
    zeros = [0.0] * 256

    # Experts without tokens, by their own counts and by zeros with a common count.
    for rows, count in ((columns, [5.0, 0.0, 3.0, 0.0]), ([columns[0], zeros, columns[2], zeros], 4.0)):
        found, err = experts(rows, count=count)
        same(found, [equal[0][0], plain[1], equal[2][2], plain[3]], "experts without tokens")
        check("no tokens for 2 of 4 matrices (%s ...)" % name in err, err)

    _, err = experts([zeros] * 4)
    check("no tokens for 4 of 4 matrices" in err, err)

    found, err = experts(columns, count=[7.0, 1.0, 2.0, 9.0])
    same(found, [equal[i][i] for i in range(4)], "counts")

    # Counts and columns that do not fit.
    entry = [(name, [1.0] * 1024)]
    for count, message in (([1.0, 2.0], "expected 4, found 2"), ([1.0, -1.0, 1.0, 1.0], "invalid token count -1"),
                           ([0.0] * 4, "no entry for a tensor")):
        write_imatrix(path, entry, count=count)
        refuses(3, message, "quantize", "--force", "--imatrix", path, source, out, "Q4_0")

    write_imatrix(path, [(name, [1.0] * 256)])
    refuses(3, "expected 1024 columns, found 256", "quantize", "--force", "--imatrix", path, source, out, "Q4_0")


def column_error(tmp, is_counted, *args):
    """Quantizes in.gguf to Q4_0. Returns the squared error of blk.1.ffn_up in the counted columns, and its bytes."""
    source, out = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "out.gguf")
    quantize("-q", *args, source, out, "Q4_0")
    exact, packed = (read_model(path)[1]["blk.1.ffn_up.weight"][2] for path in (source, out))
    exact, error = struct.unpack("<4096f", exact), 0
    for block in range(128):
        d, *q = struct.unpack_from("<e16B", packed, 18 * block)
        for i in range(32):
            column = (32 * block + i) % 256
            if is_counted(column):
                w = d * ((q[i % 16] >> i // 16 * 4 & 15) - 8)
                error += (w - exact[32 * block + i]) ** 2
    return error, packed


@test
def importance(tmp):
    """Columns of high importance get a smaller error. The scale of an importance matrix changes nothing."""
    source, path = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "im")
    write_model(source, n_layers=2)
    entries = [("blk.%d.%s.weight" % (i, part), [100.0 if c % 8 == 3 else 1.0 for c in range(256)])
               for i in range(2) for part in PRODUCTS]
    before, _ = column_error(tmp, lambda c: c % 8 == 3)
    found = []
    for count in 32.0, 4096.0:
        write_imatrix(path, entries, count=count)
        found.append(column_error(tmp, lambda c: c % 8 == 3, "--imatrix", path))
    check(found[0][0] < 0.7 * before, found[0][0], "without importance", before)
    check(all(f == found[0] for f in found), [f[0] for f in found])


def convert_imatrix(data, tmp, *options, output="converted"):
    """Converts a file with scripts/convert_imatrix.py. Returns the path, the exit code and the message."""
    source, path = os.path.join(tmp, "old.dat"), os.path.join(tmp, output)
    with open(source, "wb") as f:
        f.write(data)
    r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "convert_imatrix.py"), source, path, *options], capture_output=True,
                       text=True, timeout=60)
    return path, r.returncode, r.stderr


@test
def imatrix_converted(tmp):
    """An imatrix.dat, converted, gives the weights of the same matrix in GGUF, also for experts."""
    source, out, path = (os.path.join(tmp, name) for name in ("in.gguf", "out.gguf", "im"))
    write_model(source, n_layers=2, experts=4)
    noise = random.Random(7)
    experts = [("blk.1.ffn_down_exps.weight", [noise.random() for _ in range(1024)])]
    entries = experts + [("blk.0.%s.weight" % part, [noise.random() for _ in range(256)]) for part in PRODUCTS]

    def weights(name):
        quantize("-q", "--force", "--imatrix", name, source, out, "Q4_0")
        return read_model(out)[1]

    write_imatrix(path, entries)
    expected = weights(path)
    quantize("-q", "--force", source, out, "Q4_0")
    check(read_model(out)[1] != expected, "without importance")

    whole = dat_imatrix(entries)
    for data in whole, whole[:-13], dat_imatrix(entries, n_calls=1), dat_imatrix(entries, dataset=b""):
        converted, code, err = convert_imatrix(data, tmp)
        same(code, 0, err)
        check(weights(converted) == expected)
    same(convert_imatrix(dat_imatrix(experts, n_calls=0), tmp)[1], 0)
    check("no tokens for 4 of 4 matrices" in call("quantize", "--force", "--imatrix", converted, source, out, "Q4_0")[1])

    keys, tensors = read_model(convert_imatrix(whole, tmp)[0])
    same(keys["imatrix.datasets"], (9, struct.pack("<IQ", 8, 1) + text("a.txt")))
    same(keys["imatrix.chunk_count"], (4, struct.pack("<I", 5)))
    same(sorted(tensors)[:2], ["blk.0.attn_k.weight.counts", "blk.0.attn_k.weight.in_sum2"])


@test
def imatrix_conversion_refusals(tmp):
    good = [("blk.0.attn_q.weight", [1.0] * 256), ("blk.1.ffn_down.weight", [2.0] * 256)]

    def fails(data, message, code=3):
        _, found, err = convert_imatrix(data, tmp)
        check((found, err.count("\n")) == (code, 1) and matches(err, message), message, found, err)

    fails(b"", "truncated in the number of entries: expected 4 bytes, found 0")
    fails(b"What is this?", "not an importance matrix")
    for n in some((0, -1), 2):
        fails(struct.pack("<i", n) + bytes(99), "not an importance matrix")
    fails(gguf_imatrix(good), "already in GGUF")
    fails(dat_imatrix(good + good[:1]), 'entry 3: empty or repeated ("blk.0.attn_q.weight")')
    fails(dat_imatrix([("", [1.0])]), "entry 1: empty")
    fails(dat_imatrix([("a", [])]), "entry 1: empty")
    fails(struct.pack("<ii", 1, -1) + bytes(99), "truncated in the name of entry 1: expected 4294967295 bytes, found 99")
    fails(struct.pack("<ii", 1, 2) + b"\xff\xff" + bytes(99), "the name of entry 1: not UTF-8")

    whole = dat_imatrix(good)
    for n in range(0, len(whole) - 13, in_ci(37, 999)):
        fails(whole[:n], "truncated in" if n >= 30 or n < 4 else "")
    fails(whole[:-1], "truncated in the name of the text: expected 5 bytes, found 4")
    same(os.listdir(tmp), ["old.dat"], "left behind")

    path, code, _ = convert_imatrix(whole, tmp)
    same((code, convert_imatrix(whole, tmp)[1]), (0, 0), "its own output is replaced")
    with open(path, "w") as f:
        f.write("a text")
    fails(whole, "exists; replace it with --force", 2)
    same(convert_imatrix(whole, tmp, "--force")[1], 0)
    check("the same file" in convert_imatrix(whole, tmp, output="old.dat")[2])


def compare_weights(*args, code=0):
    r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "compare_weights.py"), "--program", PROGRAM, *args],
                       capture_output=True, text=True, timeout=120)
    same(r.returncode, code, r.stderr)
    return r.stdout if code == 0 else r.stderr


@test
def errors_in_products(tmp):
    """scripts/compare_weights.py against a sum computed here."""
    source, path = os.path.join(tmp, "in.gguf"), os.path.join(tmp, "im")
    quantize("-q", os.path.join(ROOT, "stories", "stories.gguf"), source, "F32")
    out, name, n_columns = os.path.join(tmp, "out.gguf"), "blk.1.attn_q.weight", 288
    quantize("-q", source, out, "Q4_0")
    write_imatrix(path, [(name, [100.0 if c % 8 == 3 else 1.0 for c in range(n_columns)])])

    exact, packed = (read_model(p)[1][name] for p in (source, out))
    same(packed[0], Q4_0)
    exact, error, square, plain_error, plain_square = struct.unpack("<%df" % (n_columns * 288), exact[2]), 0, 0, 0, 0
    for block in range(len(exact) // 32):
        d, *q = struct.unpack_from("<e16B", packed[2], 18 * block)
        for i in range(32):
            w = exact[32 * block + i]
            difference = d * ((q[i % 16] >> i // 16 * 4 & 15) - 8) - w
            importance = 100 if (32 * block + i) % n_columns % 8 == 3 else 1
            error, square = error + importance * difference ** 2, square + importance * w ** 2
            plain_error, plain_square = plain_error + difference ** 2, plain_square + w ** 2

    def row(file, kind, n, value):
        return "%-32s %-8s %8d  %.3g" % (file, kind, n, value)

    expected = row(out, "Q4_0", 1, (error / square) ** 0.5)
    same(compare_weights(source, out, "--imatrix", path, "--match", name).splitlines()[1:], [expected])
    plain = row(out, "Q4_0", 1, (plain_error / plain_square) ** 0.5)
    same(compare_weights(source, out, "--match", name).splitlines()[1:], [plain])
    check(plain != expected)
    if in_ci(True, False):
        found = compare_weights(source, out, source).splitlines()
        check(found[-1] == row(source, "F32", 43, 0) and len(found) > 3, found)

    check('no matrix with "none" in its name' in compare_weights(source, out, "--match", "none", code=1))
    write_imatrix(path, [(name, [1.0] * 32)])
    check(name + ": made for another model" in compare_weights(source, out, "--imatrix", path, code=1))
    check("damaged, or not a GGUF file" in compare_weights(source, out, "--imatrix", __file__, code=1))
    check("no such file" in compare_weights(source, os.path.join(tmp, "none"), code=1).lower())


@test
def imatrix_refusals(tmp):
    source, out, path = (os.path.join(tmp, name) for name in ("in.gguf", "out.gguf", "im"))
    write_model(source, n_layers=2)
    good = [("blk.0.attn_q.weight", [1.0] * 256), ("blk.1.ffn_down.weight", [2.0] * 256)]

    def fails(data, message, code=3):
        with open(path, "wb") as f:
            f.write(data)
        refuses(code, message, "quantize", "--imatrix", path, source, out, "Q4_0")

    for value in float("nan"), float("inf"), -1.0:
        fails(gguf_imatrix(good[:1] + [("blk.1.ffn_down.weight", [1.0] * 255 + [value])]),
              "blk.1.ffn_down.weight: column 255: invalid sum of squares")
    fails(gguf_imatrix([("blk.0.attn_q.weight", [1.0] * 128)]), "expected ... found 128")
    fails(gguf_imatrix([("blk.9.attn_q.weight", [1.0] * 256)]), "no entry for a tensor")

    fails(gguf_imatrix(good, kind="model"), "expected \"imatrix\", found \"model\"")
    fails(gguf_imatrix(good, counts=".count"), "expected sums and counts")
    fails(gguf_imatrix(good, count=float("nan")), "invalid token count")
    fails(gguf_imatrix(good, count=0.0), "no entry for a tensor")
    fails(open(source, "rb").read(), "general.type")

    for data in b"", b"abc", b"What is this?", dat_imatrix(good):
        fails(data, "not an importance matrix in GGUF; scripts/convert_imatrix.py OLD.dat NEW.gguf converts imatrix.dat")

    # Truncated anywhere.
    for n in range(8, len(gguf_imatrix(good)) - 28, 61):
        fails(gguf_imatrix(good)[:n], path)

    refuses(1, "No such file", "quantize", "--imatrix", os.path.join(tmp, "absent"), source, out, "Q4_0")
    same(sorted(os.listdir(tmp)), ["im", "in.gguf"], "left behind")

    refuses(2, "same file", "quantize", "--force", "--imatrix", path, source, path, "Q4_0")

    # Entries that are missing or not needed.
    write_imatrix(path, good + [("blk.7.attn_q.weight", [1.0] * 64)])
    _, err = call("quantize", "--force", "--imatrix", path, source, out, "Q4_0")
    check("1 entry for tensors that the model does not have (blk.7.attn_q.weight ...)" in err, err)
    check("the importance matrix lacks 10 tensors (blk.0.attn_k.weight ...)" in err, err)


@test
def missing_importance(tmp):
    """One warning line if a type that needs an importance matrix has none; no warning for other types."""
    source, out, path = (os.path.join(tmp, name) for name in ("in.gguf", "out.gguf", "im"))
    write_model(source, n_layers=2)
    write_imatrix(path, [("blk.%d.%s.weight" % (i, part), [1.0, 2.0] * 128) for i in range(2) for part in PRODUCTS])
    for name, args, n in (("IQ3_XXS", [], 1), ("IQ3_XXS", ["-q"], 1), ("IQ3_XXS", ["--imatrix", path], 0),
                          ("IQ3_S", [], 0), ("Q2_K", [], 0)):
        _, err = call("quantize", "--force", *args, source, out, name)
        warnings = [line for line in err.splitlines() if "warning" in line]
        same(len(warnings), n, "%s %s: %s" % (name, args, err))
        check(all("without an importance matrix" in w and "--calibrate" in w for w in warnings), err)


@test
def requantized(tmp):
    """A warning if quantized weights are encoded again. Decoding them to F32 loses nothing."""
    source, q8, out = (os.path.join(tmp, name) for name in ("in.gguf", "q8.gguf", "out.gguf"))
    write_model(source, n_layers=2)
    call("quantize", source, q8, "Q8_0")
    for name, n in (("Q4_0", 1), ("F16", 1), ("Q8_0", 0), ("F32", 0)):
        _, err = call("quantize", "--force", q8, out, name)
        same(err.count("is already quantized"), n, name)


def floats(data):
    return struct.unpack("<%df" % (len(data) // 4), data)


@test
def calibrate(tmp):
    """--calibrate sums the squares of the inputs of each product. The number of threads changes nothing, and the
    importance matrix that it writes gives the same output file when it is read."""
    source, out, saved, corpus = (os.path.join(tmp, name) for name in ("in.gguf", "out.gguf", "saved", "corpus"))
    quantize("-q", os.path.join(ROOT, "stories", "stories.gguf"), source, "F32")
    with open(corpus, "w") as f:
        f.write("\n".join(["Once upon a time there was a little fox who lived near a big river."] * 60))

    files = []
    for n in "1", "2", "5":
        quantize("-q", "-t", n, "--force", "--calibrate", corpus, "--imatrix", saved, source, out, "Q4_0")
        files.append([open(path, "rb").read() for path in (saved, out)])
    check(files[0] == files[1] == files[2], "threads")

    quantize("-q", "--force", "--imatrix", saved, source, out, "Q4_0")
    same(open(out, "rb").read(), files[0][1], "the matrix that was written, read again")

    refuses(2, saved + " exists", "quantize", "-q", "--calibrate", corpus, "--imatrix", saved, source, out + "2", "Q4_0")
    for matrix in saved, os.path.join(tmp, ".", "saved"):
        refuses(2, "also the name of the output", "quantize", "-q", "--force", "--calibrate", corpus,
                "--imatrix", matrix, source, saved, "Q4_0")

    keys, sums = read_model(saved)
    same(keys["general.type"], (8, text("imatrix")))
    same(keys["imatrix.chunk_size"], (4, struct.pack("<I", 512)))
    tensors = read_model(source)[1]
    same(sorted(sums), sorted("blk.%d.%s.weight.%s" % (i, part, what) for i in range(6)
                              for part in PRODUCTS + ("ffn_gate",) for what in ("in_sum2", "counts")))

    # attn_v of the first layer: its inputs are the normalized embeddings.
    dim = tensors["token_embd.weight"][1][0]
    embed, norm = floats(tensors["token_embd.weight"][2]), floats(tensors["blk.0.attn_norm.weight"][2])
    bos, = struct.unpack("<I", read_model(source)[0]["tokenizer.ggml.bos_token_id"][1])
    ids = [bos] + [int(i) for i in call("tokenize", "-m", source, "--ids", "-f", corpus)[0].split()]
    check(len(ids) > 512 and len(ids) % 512, "whole windows only")

    expected, fed = [0.0] * dim, [bos if i % 512 == 0 else id for i, id in enumerate(ids[:len(ids) // 512 * 512])]
    for id in fed:
        x = embed[id * dim:(id + 1) * dim]
        scale = 1 / (sum(v * v for v in x) / dim + 1e-5)
        for c in range(dim):
            expected[c] += x[c] * x[c] * scale * norm[c] ** 2

    found = floats(sums["blk.0.attn_v.weight.in_sum2"][2])
    check(all(abs(f - e) <= 1e-4 * e + 1e-6 for f, e in zip(found, expected)), found[:4], expected[:4])
    same(floats(sums["blk.0.attn_v.weight.counts"][2]), (float(len(fed)),))

    # Texts that cannot be used.
    for path, message in (os.devnull, "no text"), (os.path.join(tmp, "absent"), "No such file"):
        refuses(2 if path == os.devnull else 1, message, "quantize", "-q", "--force", "--calibrate", path, source, out, "Q4_0")
    refuses(1, saved + ": expected a text in UTF-8, found a NUL byte", "quantize", "-q", "--force", "--calibrate", saved, source, out, "Q4_0")


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
        expected["llama31.checksum"] = keys["llama31.checksum"]  # checked by tests/test_files.py
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
    for code, message, *args in ((2, "same file", source, os.path.join(tmp, "link.gguf"), "Q8_0"),
                                 (2, "did you mean Q4_K_M", source, out, "Q4_KM"),
                                 (2, "expected IN.gguf OUT.gguf TYPE", source, out),
                                 (1, absent + ": no such file", absent, out, "Q8_0"),
                                 (1, absent + "/out.gguf", source, absent + "/out.gguf", "Q8_0"),
                                 (1, "No space left", source, "/dev/full", "Q8_0")):
        refuses(code, message, "quantize", *args)
    for value in float("nan"), float("inf"), 1e30:
        write_model(source, n_layers=2, bad_value=value)
        refuses(3, "blk.1.ffn_up.weight: row 3", "quantize", source, out, "Q4_K_M")
    same(sorted(os.listdir(tmp)), ["in.gguf", "link.gguf"], "left behind")


@test
def disk_full(tmp):
    """If the disk is full (here: a file size limit), an existing output stays unchanged."""
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


@test
def calibrate_short_texts(tmp):
    """A text shorter than a window counts as one window of its tokens; a model with a short context has shorter windows."""
    source, out, saved, corpus = (os.path.join(tmp, name) for name in ("in.gguf", "out.gguf", "saved", "corpus"))
    with open(corpus, "w") as f:
        f.write("Once upon a time there was a little fox.")

    stories = os.path.join(ROOT, "stories", "stories.gguf")
    args = ("quantize", "-q", "--force", "--calibrate", corpus)
    n_ids = int(call("tokenize", "-m", stories, "--count", "-f", corpus)[0]) + 1  # and BOS

    call(*args, "--imatrix", saved, stories, out, "Q4_0")
    keys, sums = read_model(saved)
    same(floats(sums["blk.0.attn_v.weight.counts"][2]), (float(n_ids),))
    written = open(out, "rb").read()

    call(*args, stories, out, "Q4_0")
    same(open(out, "rb").read(), written, "without writing the matrix")

    # A model with a context of 8. Its windows have 8 tokens each.
    data = open(stories, "rb").read()
    at = data.index(b"llama.context_length") + len("llama.context_length") + 4
    with open(source, "wb") as f:
        f.write(data[:at] + struct.pack("<I", 8) + data[at + 4:])

    call(*args, "--imatrix", saved, source, out, "Q4_0")
    keys, sums = read_model(saved)
    same(keys["imatrix.chunk_size"], (4, struct.pack("<I", 8)))
    same(floats(sums["blk.0.attn_v.weight.counts"][2]), (float(n_ids // 8 * 8),))

    # A model without a vocabulary is refused before anything is written.
    with open(source, "wb") as f:
        f.write(data.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz"))
    refuses(3, "tokenizer.ggml.tokens: missing key", *args, source, out + "2", "Q4_0")
    check(not os.path.exists(out + "2"))

if __name__ == "__main__":
    main("quantize", "quantize")
