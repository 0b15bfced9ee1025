#!/usr/bin/env python3
"""The contract of the command line: exit codes, streams, error messages. Uses small models written here.

LLAMA31_FUZZ=N sets the number of damaged models (default 120)."""
import json
import os
import pty
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from cli import PROGRAM, ROOT, Skip, call, check, in_ci, main, matches, refuses, requires, same, slow, some, test

IS_SANITIZED = "asan" in os.environ.get("BUILD", "")
WORK = tempfile.TemporaryDirectory(prefix="llama31-cli-")
ENV = dict({k: v for k, v in os.environ.items() if not k.startswith("LLAMA31_")}, OMP_NUM_THREADS="2",
           ASAN_OPTIONS="exitcode=99:detect_leaks=0", UBSAN_OPTIONS="exitcode=99")

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    if kind == STRING:
        return string(v)
    if kind == ARRAY:
        item, items = v
        return struct.pack("<IQ", item, len(items)) + b"".join(value(item, i) for i in items)
    return struct.pack("<" + FORMS[kind], v)


def gguf(values, tensors):
    """values: key -> (kind, value); tensors: name -> (rows, cols, float32 bytes)."""
    out, data = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))], []
    for key, (kind, v) in values.items():
        out += [string(key), struct.pack("<I", kind), value(kind, v)]
    offset = 0
    for name, (rows, cols, floats) in tensors.items():
        dims = (cols,) if rows == 1 else (cols, rows)
        out += [string(name), struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, 0, offset)]
        data += [floats, bytes(-len(floats) % 32)]
        offset += len(floats) + -len(floats) % 32
    head = b"".join(out)
    return head + bytes(-len(head) % 32) + b"".join(data[:-1])  # no padding at the end, so that every truncation loses data


def tiny_model():
    """A byte-level model of random weights. Its output is random and includes invalid UTF-8."""
    dim, hidden, heads, layers, rng = 16, 32, 2, 2, random.Random(1)
    plain = [b for b in range(256) if 32 < b < 127 or b > 160 and b != 173]
    hidden_bytes = [b for b in range(256) if b not in plain]
    tokens = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(hidden_bytes))] + ["th", "the"]
    control = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
               "<|eot_id|>"]

    n = len(tokens)
    values = {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "evil\x1b]52;c;eA==\x07name"),
        "general.license": (STRING, "llama3.1"),
        "general.source.url": (STRING, "https://a.b/c\x1b[2J" + "x" * 300),
        "llama.block_count": (U32, layers),
        "llama.context_length": (U32, 128),
        "llama.embedding_length": (U32, dim),
        "llama.feed_forward_length": (U32, hidden),
        "llama.attention.head_count": (U32, heads),
        "llama.attention.head_count_kv": (U32, 1),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.freq_base": (F32, 10000.0),
        "llama.rope.dimension_count": (U32, dim // heads),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "llama-bpe"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens + control)),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [1] * n + [3] * len(control))),
        "tokenizer.ggml.merges": (ARRAY, (STRING, ["t h", "th e"])),
        "tokenizer.ggml.bos_token_id": (U32, n),
        "tokenizer.ggml.eos_token_id": (U32, n + 1),
        "tokenizer.ggml.eot_token_id": (U32, n + 5),
    }

    def matrix(rows, cols):
        scale = cols ** -0.5
        return rows, cols, struct.pack("<%df" % (rows * cols), *(rng.gauss(0, scale) for _ in range(rows * cols)))


    norm = (1, dim, struct.pack("<%df" % dim, *[1.0] * dim))
    tensors = {"token_embd.weight": matrix(n + 6, dim), "output_norm.weight": norm}

    for i in range(layers):
        tensors.update({"blk.%d.%s.weight" % (i, part): tensor for part, tensor in {
            "attn_norm": norm, "attn_q": matrix(dim, dim), "attn_k": matrix(dim // 2, dim),
            "attn_v": matrix(dim // 2, dim), "attn_output": matrix(dim, dim), "ffn_norm": norm,
            "ffn_gate": matrix(hidden, dim), "ffn_up": matrix(hidden, dim), "ffn_down": matrix(dim, hidden)}.items()})

    tensors["output.weight"] = matrix(n + 6, dim)
    return values, tensors


VALUES, TENSORS = tiny_model()


def path_of(name, data=None):
    path = os.path.join(WORK.name, name)
    if data is not None:
        with open(path, "wb") as f:
            f.write(data)
    return path


GOOD = path_of("good.gguf", gguf(VALUES, TENSORS))


def damaged(changes, tensors=None):
    """The tiny model with some values replaced (None: removed)."""
    values = {k: v for k, v in dict(VALUES, **changes).items() if v is not None}
    return gguf(values, TENSORS if tensors is None else tensors)


class Result:
    def __init__(self, code, out, err, rss, cpu):
        self.code, self.out, self.err, self.rss, self.cpu = code, out, err, rss, cpu

    def __str__(self):
        return "exit %s, stdout %r, stderr %r" % (self.code, self.out[:200], self.err[:400])


def run(*args, stdin=b"", env=None, stdout=None):
    """Runs the program. stdout: a file to write to, or None to return the output. rss in MiB, cpu in seconds."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()

    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        p = subprocess.Popen([PROGRAM, *args], stdin=given, stdout=out if stdout is None else stdout, stderr=err,
                             env=dict(ENV, **(env or {})))

        deadline = time.monotonic() + 30
        while True:
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                p.kill()
                os.wait4(p.pid, 0)
                raise AssertionError("%s: still running after 30 s" % (args,))
            time.sleep(0.002)

    p.returncode = os.waitstatus_to_exitcode(status)
    out.seek(0)
    err.seek(0)
    return Result(p.returncode, out.read(), err.read(), usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def generate(*args, **kw):
    r = run("run", "-m", GOOD, "--raw", "-n", "12", "--temp", "0", *args, **kw)
    check(r.code == 0, args, r)
    return r


@test
def usage():
    refuses(2, "expected a command")

    # Unknown commands and options, and values of a wrong kind or range.
    refuses(2, "did you mean tokenize", "tokenise")
    refuses(2, "did you mean --temp", "run", "-m", GOOD, "--tmep", "0", "x")
    refuses(2, "unknown option", "run", "-m", GOOD, "--completely-different", "x")
    refuses(2, "missing value", "run", "-m", GOOD, "x", "-n")
    refuses(2, "whole number", "run", "-m", GOOD, "-n", "1x", "x")
    refuses(2, "whole number", "run", "-m", GOOD, "-n", "99999999999999999999", "x")
    refuses(2, "expected", "run", "-m", GOOD, "-t", "0", "x")
    refuses(2, "number", "run", "-m", GOOD, "--temp", "nan", "x")
    refuses(2, "expected", "run", "-m", GOOD, "--top-p", "1.5", "x")
    refuses(2, "true or false", "run", "-m", GOOD, "--raw=1", "x")
    for option in "-n", "--top-k", "-c", "-b", "-t":
        for value in str(1 << 31), str(1 << 63), str(10 ** 30), str(-(1 << 63) - 1):
            refuses(2, "%s: expected a whole number from " % option, "run", option, value, "x")
    refuses(2, "-s: expected a whole number of 64 bits, found %d" % (1 << 63), "run", "-s", str(1 << 63), "x")
    refuses(2, "1000000000", "run", "-m", GOOD, "-n", "999999999999", "x")
    for bias in ("99999+1", "99999999999+1"):
        refuses(2, "token id below", "run", "-m", GOOD, "--logit-bias", bias, "x")

    refuses(2, "--json", "run", "-m", GOOD, "--logprobs", "2", "x")
    refuses(2, "--raw", "run", "-m", GOOD, "--template", "chatml", "--special", "x")
    refuses(2, "unknown option -x (", "run", "-m", GOOD, "-x")
    for command in ("bench", "chat", "batch", "logits", "rope"):
        refuses(2, "unexpected argument \"x\"", command, "x")
    refuses(2, "\"two\"", "show", GOOD, "two")
    refuses(2, "other text", "tokenize", "-m", GOOD, "--chat", "none", "text")

    # Types of the KV cache.
    refuses(2, "--kv q3: expected f16", "run", "-m", GOOD, "--kv", "q3", "x")
    for kv in "q3,f16", "f16,q3", "f16,", ",f16", ",", "", "f16,f16,f16":
        refuses(2, f"--kv {kv}: expected f16", "run", "-m", GOOD, "--kv", kv, "x")
    refuses(2, "head dimension a multiple of 32", "run", "--kv", "f16,q8_0", "x")
    refuses(2, "head dimension a multiple of 32", "run", "--kv", "q4_0", "x")  # the built-in model has heads of 48

    # Environment variables.
    refuses(2, "LLAMA31_ISA", "run", "-m", GOOD, "x", env=dict(ENV, LLAMA31_ISA="mmx"))
    check(run("show", "-m", GOOD, env={"LLAMA31_ISA": ""}).code == 0, "an empty variable")
    for isa in "avx2", "neon":  # one of them is a backend of other processors
        r, name = run("show", "-m", GOOD, "-v", env={"LLAMA31_ISA": isa}), isa.encode()
        check((b"LLAMA31_ISA=%s: not supported by this processor; " % name in r.err) != (name in run("--version", "-v").out), isa, r)
    for epoch, code in ("abc", 2), ("1e3", 2), ("1" + "0" * 20, 2), ("9" * 18, 2), ("1721952000", 0), ("", 0):
        r = run("run", "-m", GOOD, "-n", "1", "-q", "x", env={"SOURCE_DATE_EPOCH": epoch})
        check(r.code == code and (b"SOURCE_DATE_EPOCH: expected seconds" in r.err) == (code == 2), epoch, r)

    # Help and version, which take precedence over other errors. Arguments after -- are text.
    for args in (["help"], ["--help"], ["help", "run"], ["run", "--help"], ["run", "--no-such", "-n", "x", "-h"],
                 ["run", "-n", "--help"], ["batch", "-i", "none", "--help", "--kv", "q3"], ["--version"]):
        r = run(*args)
        check(r.code == 0 and r.out and not r.err, args, r)
    check(generate("-q", "--echo", "--", "--help").out.startswith(b"--help"), "arguments after -- are text")


@test
def empty_texts_without_bos():
    """A text of no token is skipped by score --perplexity; one of a single token scores nothing."""
    path = path_of("no-bos.gguf", damaged({"tokenizer.ggml.add_bos_token": (BOOL, False)}))
    results = []
    for name, lines in (("full", ["the x", "the y"]), ("holes", ["", "the x", "", "", "z", "the y", ""])):
        texts = path_of(name + ".jsonl", "".join(json.dumps(t) + "\n" for t in lines).encode())
        r = run("score", "-m", path, "--json", "--perplexity", texts, "--deterministic")
        check(r.code == 0, r)
        results.append(json.loads(r.out))
    same(results[1], results[0])
    empty = path_of("empty.jsonl", b'""\n')
    refuses(1, "empty.jsonl: no tokens to score", "score", "-m", path, "--perplexity", empty)


@test
def sampling_defaults_of_a_file():
    """general.sampling.* are defaults of run, chat and batch. The command line wins; show prints them."""
    keys = {"temp": (F32, 1.5), "top_k": (U32, 7), "top_p": (F32, 0.5), "min_p": (F32, 0.25), "penalty_repeat": (F32, 1.25),
            "penalty_last_n": (I32, -1), "mirostat": (U32, 2)}
    path = path_of("sampling.gguf", damaged({"general.sampling." + k: v for k, v in keys.items()}))
    text = "temp 1.5, top-k 7, top-p 0.5, min-p 0.25, repeat-penalty 1.25, repeat-last-n -1"
    check(("sampling      " + text + "\n").encode() in run("show", "-m", path, "--bandwidth", "1").out)
    check(b"sampling" not in run("show", "-m", GOOD, "--bandwidth", "1").out)
    explicit = ["--temp", "1.5", "--top-k", "7", "--top-p", "0.5", "--min-p", "0.25", "--repeat-penalty", "1.25",
                "--repeat-last-n", "-1"]
    usual = ["--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05", "--repeat-penalty", "1",
             "--repeat-last-n", "64"]

    def texts(model, *args):
        how = ["-m", model, "--raw", "-q", "-n", "60", "--seed", "3", "--ignore-eos", *args]
        return (run("run", *how, "the").out, run("batch", "--lines", *how, stdin=b"the\n").out,
                run("chat", *[a for a in how if a != "--raw"], stdin=b"the\n").out)

    order = path_of("order.gguf", damaged({"general.sampling.sequence": (STRING, "top_k;temp"), "general.sampling.temp": (F32, 1.5)}))
    same(texts(order), texts(GOOD, "--temp", "1.5", "--samplers", "top_k;temperature"))
    same(texts(order, "--no-model-sampling"), texts(GOOD))
    check(b"\nsampling      temp 1.5, samplers top_k;temp\n" in run("show", "-m", order, "--bandwidth", "1").out)
    for args, expected in (([], explicit), (usual, usual), (["--no-model-sampling"], usual),
                           (["--temp", "0.8"], explicit[2:] + usual[:2])):
        same(texts(path, *args), texts(GOOD, *expected), args)
    check(len({texts(GOOD, *how) for how in (explicit, usual)}) == 2)
    check(b"temp 1.5, top-k 7" in run("chat", "--commands", "-m", path, stdin=b"/set\n").err, "/set")
    for key, value, why in (("top_p", (F32, 7), "from 0 to 1, found 7"), ("temp", (STRING, "hot"), "expected a number"),
                            ("top_k", (F32, 2.5), "whole number"), ("sequence", (STRING, "top_k;xtc"), 'no sampler "xtc"'),
                            ("sequence", (U32, 3), 'no sampler ""'), ("min_p", (F32, float("nan")), "found nan")):
        bad = path_of("sampling.gguf", damaged({"general.sampling." + key: value}))
        r = run("run", "-m", bad, "--raw", "-q", "-n", "9", "--seed", "1", "the")
        same((r.code, r.out), (0, run("run", "-m", GOOD, "--raw", "-q", "-n", "9", "--seed", "1", "the").out), key)
        check(matches(r.err.decode(), f"{bad}: ignored the default of -- ... general.sampling.{key}: ... {why}"), r)


@test
def order_of_samplers():
    """--samplers: min-p before the temperature T keeps the tokens that min_p^(1/T) keeps after it. An absent one is off."""
    how = ["--raw", "-n", "60", "--seed", "3", "--ignore-eos"]
    plain = ["--temp", "3", "--top-k", "0", "--top-p", "1"]
    last = "penalties;dry;top_k;top_p;min_p;temperature"

    def text(*args):
        return run("run", "-m", GOOD, *how, *args, "the").out

    first = text(*plain, "--min-p", "0.464159")
    same(text(*plain, "--min-p", "0.1", "--samplers", last), first)
    check(text(*plain, "--min-p", "0.1") != first, "the order has no effect")
    same(text(*plain, "--min-p", "0.1", "--samplers", "penalties,dry,temp,top-k,min-p,nucleus"), text(*plain, "--min-p", "0.1"))
    same(text("--temp", "9", "--samplers", "top_k"), text("--temp", "1", "--top-p", "1", "--min-p", "0"))
    records = "".join(json.dumps({"id": i, "prompt": "the", "seed": 3, "min_p": 0.1, **more}) + "\n"
                      for i, more in enumerate(({"samplers": last.split(";")}, {"samplers": last}, {"samplers": ["top_k"]})))
    lines = [json.loads(line) for line in run("batch", "-m", GOOD, *how, *plain, stdin=records.encode()).out.splitlines()]
    alone = json.loads(text("--json", *plain, "--min-p", "0.464159"))["text"]
    same([r["text"] for r in lines[:2]], [alone] * 2)
    off = "not among the samplers, so off: temperature, min_p"
    same([off in r.get("note", "") for r in lines], [False, False, True])
    r = run("run", "-m", GOOD, *how, "--samplers", "temperature", "the")
    check(b"not among the samplers, so off: top_k, min_p, top_p\n" in r.err, r)
    check(b"not among" not in run("run", "-m", GOOD, *how, "--samplers", last, "the").err)
    r = run("batch", "-m", GOOD, *how, "--samplers", "top_k", stdin=b'{"prompt": "the", "max_tokens": 1}\n')
    check(b"not among" in r.err and b"not among" not in r.out, r)  # said once, not in each record
    for bad in ("top_k;xtc", "", "top_k;top_k"):
        refuses(2, "--samplers: ... " + (bad[6:] or '""'), "run", "-m", GOOD, "--samplers", bad, "the")


@test
def logit_bias_of_texts():
    """--logit-bias TEXT+X: the tokens of the text, which may contain signs. Digits are an id."""
    ids = {t: int(run("tokenize", "-m", GOOD, "--ids", "-p", t).out) for t in ("the", "-", "+", "7")}
    for typed, id in (("the+50", ids["the"]), ("--1e-1", None), ("-+50", ids["-"]), ("+++50", None), ("++50", ids["+"]),
                      ("7+50", 7), ("the-inf", None)):
        r = generate("--logit-bias", typed, "the")
        check(id is None or r.out == generate("--logit-bias", "%d+50" % id, "the").out, typed, r)
    check(b'"7t" is 2 tokens, each' in generate("--logit-bias", "7t+1", "the").err)
    r = generate("--logit-bias", "thethe+50", "--logit-bias", "th+50", "x")  # "thethe" is twice the same token
    check(r.out.startswith(b"the") or r.out.startswith(b"th"), r)


@test
@slow
def sweep():
    program = os.path.join(os.path.dirname(PROGRAM), "sweep")
    if not os.path.exists(program):
        raise Skip("no " + program + ": make sweep")
    r = subprocess.run([program, "-m", GOOD, "--json", "-t", "1"], capture_output=True, timeout=120)
    lines = json.loads(r.stdout)["sweep"]
    check(r.returncode == 0 and len({(x["type"], x["n_tokens"]) for x in lines}) == len(lines) >= 15, r)
    for x in lines:
        ms = {k[:-3]: v for k, v in x.items() if k.endswith("_ms")}
        check(ms["mat"] > 0 and ms[x["best"]] == min(ms.values()), x)


READERS = ["run", "x"], ["show"], ["tokenize", "x"], ["logits", "--ids", "1", "-o", path_of("never.f32")]


@test
def unreadable_models():
    empty, fifo = path_of("empty.gguf", b""), path_of("fifo")
    os.mkfifo(fifo)
    for command in READERS:
        args = [command[0], "-m", None, *command[1:]]
        for code, says, path in ((1, "such file", path_of("missing.gguf")), (1, "directory", WORK.name),
                                 (3, "byte 0: magic", empty), (1, "expected a file", fifo),
                                 (1, "expected a file", "/dev/zero")):
            args[2] = path
            refuses(code, says, *args)
    check(not os.path.exists(path_of("never.f32")), "the output file exists before the model was read")
    err = refuses(1, "such file", "show", "-m", path_of("a\x1b[2Jb\n.gguf"))
    check("\x1b" not in err, err)


@test
def other_formats():
    """A file that is not GGUF is named, with what to do. A truncated file may be an interrupted download."""
    for data, says in ((struct.pack("<Q", 40) + b'{"__metadata__":{}}', "safetensors file; convert"),
                       (b"\x1f\x8b\x08\0", "gzip file; decompress it first"),
                       (b"PK\3\4\0\0", "PyTorch checkpoint?); convert"), (b"\x80\2}q\0", "pickled"),
                       (b"lmgg\1\0", "from before GGUF; download"), (b"tjgg\3\0", "from before GGUF; download"),
                       (b"<!DOCTYPE html><html>", "web page; the download failed"),
                       (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), (b"\1\2\3\4", "found 01 02 03 04"),
                       (b'["a", 1]\n', "found a JSON file"), (b'{\n "model_type": "llama"}', "found a JSON file"),
                       (b"\xff\xfeO\0n\0", "found text in UTF-16"), ("Es war\n\tschön".encode(), "found a text file")):
        refuses(3, "byte 0: magic: expected ... found ", "show", "-m", path_of("other.gguf", data))
        refuses(3, says, "show", "-m", path_of("other.gguf", data))
    os.mkfifo(path_of("pipe.gguf"))
    refuses(1, "expected a file, found a pipe", "show", "-m", path_of("pipe.gguf"))
    whole = gguf(VALUES, TENSORS)
    for n in (2, 100, len(whole) - 1):
        refuses(3, "interrupted download?", "show", "-m", path_of("cut.gguf", whole[:n]))


@test
def forbidden_models():
    if os.geteuid() == 0:
        raise Skip("root can read every file")
    locked = path_of("locked.gguf", b"GGUF")
    os.chmod(locked, 0)
    for command in READERS:
        refuses(1, "denied", command[0], "-m", locked, *command[1:])


@test
def text():
    a = generate("The")
    check(a.out.endswith(b"\n") and b"prefill" in a.err and b"decode" in a.err, a)
    quiet = generate("The", "-q")
    check(quiet.err == b"" and quiet.out == a.out, quiet)
    for args, kw in ((["-p", "The"], {}), (["--prompt=The"], {}), (["-f", path_of("the.txt", b"The")], {}),
                     ([], {"stdin": b"The"}), (["-f", "-"], {"stdin": b"The"}), (["-"], {"stdin": b"The"}),
                     (["--", "The"], {}), (["-t", "1", "The"], {}), (["-t", "1", "-tb", "3", "The"], {}), (["-b", "1", "The"], {})):
        check(generate("-q", *args, **kw).out == a.out, args, "other output")
    check(generate("-q", "--echo", "The").out == b"The" + a.out, "--echo")
    r = run("run", "-q", "--raw", "-n", "12", "--temp", "0", "The", env={"LLAMA31_MODEL": GOOD})
    check(r.out == a.out, r)
    refuses(1, "such file", "run", "-m", GOOD, "-f", path_of("missing.txt"))
    r = run("run", "-t", "1", "-n", "1", stdin=b"a" * (9 << 20))  # no chat template renders as much
    check(r.code == 4 and b"does not fit the context: at least 3" in r.err, r)
    refuses(4, "50003 tokens, context 4096", "run", "--raw", "-n", "1", stdin=b"." + b"b " * 50000)


@test
def model_argument():
    """A first argument that is a GGUF file is the model, unless -m is given; no command means run."""
    args = ["-q", "-t", "1", "--temp", "0", "-n", "12"]
    expected = run("run", "-m", GOOD, *args, "The").out
    for words in (["run", GOOD, "The"], [GOOD, "The"], [GOOD, "-p", "The"], ["-m", GOOD, "The"], ["-m", GOOD, "-p", "The"],
                  ["run", "-p", "The", GOOD]):
        for env in ({}, {"LLAMA31_MODEL": path_of("missing.gguf")}):
            r = run(*words, *args, env=env)
            check(r.code == 0 and r.out == expected, words, env, r)
    check(run(GOOD, *args, stdin=b"The").out == expected, "the prompt on stdin")
    for words in (["run", "-m", GOOD, GOOD, "The"], ["run", "-m", GOOD, "The", GOOD]):
        check(run(*words, *args, "--echo", "--raw").out.startswith(" ".join(words[3:]).encode()), words)
    r = run("run", *args, "--echo", "--raw", "The end.gguf", env={"LLAMA31_MODEL": GOOD})
    check(r.out.startswith(b"The end.gguf"), "a prompt that ends in .gguf", r)
    for words in (["run", "missing.gguf", "The"], ["missing.gguf"]):
        refuses(1, "missing.gguf: no such file; models are GGUF files", *words)
    refuses(1, "x.gguf: no such file; llama31 does not download models (curl -LO does)", "show", "-m", "https://a.b/x.gguf")


@test
def model_names():
    for name in ("llama3.1", "Llama-3.1-8B-Instruct", "llama3.2:1b", "qwen3:4b", "hf.co/bartowski/Llama-3.2-1B:Q4_K_M", "mistral"):
        refuses(2, 'run: "%s" names a model; models are files' % name, "run", name, "hi")
        refuses(2, "docs/models.md", "run", name, env=dict(ENV, LLAMA31_MODEL=GOOD))
    for words in (["llamas", "are"], ["Llama3 is"], ["Phidias"], ["-p", "llama3.1"], ["-m", GOOD, "llama3.1"]):
        r = run("run", "-q", "-n", "2", "--raw", *words, env={"LLAMA31_MODEL": GOOD})
        check(r.code == 0, words, r)


@test
def builtin_model_note():
    note = b"the built-in story model answers; -m FILE.gguf opens another\n"
    if run("show").code:
        raise Skip("no built-in model")
    for args, is_noted in (([], True), (["-q"], False), (["-m", GOOD], False)):
        r = run("run", "-n", "2", *args, "The")
        check(r.code == 0 and (note in r.err) == is_noted, args, r)


@test
def pipes_beside_a_prompt():
    """However a pipe reaches the program, it is read, or the command is refused: no answer lacks its input."""
    script = path_of("ask", b'#!/bin/sh\n$R X\ntrue\n')
    os.chmod(script, 0o755)
    python = "import subprocess, os; subprocess.run([*os.environ['R'].split(), 'X'])"
    env = dict(ENV, R=f"{PROGRAM} run -m {GOOD} --raw -q --echo -n 0", ASK=script, PY=python, LOCK=path_of("lock", b""))
    ways = {  # True: read by every shell; False: refused by every shell; None: either
        "$R X": True, "$R X | cat": True, "($R X)": True, "env $R X": True, "nice $R X": True, "nohup $R X": True,
        "timeout 60 $R X": True, "timeout 60 env $R X": True, 'python3 -c "$PY"': True, "$R -p X": True, "$R X -": True,
        "exec $R X": True, "run X": None, "run X | cat": None, "(run X)": None, "(cd / && run X)": None,
        "{ run X; }": None, "{ run X; true; }": None, "if true; then run X; fi": None, "eval 'run X'": None, "ask": None,
        "case a in a) run X;; esac": None, "for i in 1; do run X; done": None, "(run X; true)": None,
        "{ timeout 60 $R X; true; }": None, "{ r=$(run X); s=$?; echo \"$r\"; (exit $s); }": None, "until run X; do break; done": None,
        "sh -c '$R X; true'": False, "sh -c 'sh -c \"\\$R X; true\"; true'": False, "$ASK": False, "timeout 60 $ASK": False,
        "sh -c 'timeout 60 $R X; true'": False, "bash -c 'for i in 1; do $R X; done'": False,
        "{ read x; timeout 60 $R X; true; }": False, "while read x; do run X; break; done": False,
        "while read x; do timeout 60 $R X; break; done": False,
    }
    others = {  # with programs that a machine may lack
        "flock $LOCK $R X": True, "flock $LOCK -c '$R X; true'": False, "setsid -w $R X": True, "stdbuf -o0 $R X": True,
        "perl -e 'system(split(/ /, $ENV{R}), q(X))'": True, "perl -e 'print `$ENV{R} X`'": None, "awk 'BEGIN { system(ENVIRON[\"R\"] \" X\") }'": None,
        "find $LOCK -exec $R X ;": True, "xargs -0 $R": True, "parallel --pipe $R X": None,
        "node -e 'const [a, ...b] = process.env.R.split(\" \"); child_process.spawnSync(a, [...b, \"X\"], {stdio: \"inherit\"})'": True,
        "git -c alias.ask='!$R X' ask": None,
    }
    ways.update((way.replace(" ;", " ';'"), is_read) for way, is_read in others.items() if shutil.which(way.split()[0]))
    for shell in filter(shutil.which, ("dash", "bash", "zsh")):
        setup = "setopt shwordsplit\n" if shell == "zsh" else ""
        setup += "run() { $R \"$@\"; }\nask() { $R X; }\n"
        for way, is_read in ways.items():
            r = subprocess.run([shell, "-c", f"{setup}printf 'a\\nb\\nc\\n' | {way}"], stdin=subprocess.DEVNULL,
                               capture_output=True, env=env, timeout=60)
            was_read, was_refused = b"a\nb\nc" in r.stdout, b"may read standard input" in r.stderr
            check(was_read != was_refused and (was_refused or not r.stderr.count(b"warning")), shell, way, r)
            check(is_read is None or was_read == is_read, shell, way, r)


@test
def stdin_beside_a_prompt():
    """Stdin belongs to the prompt. Where the calling script may read it, too, the command is refused."""
    env = dict(ENV, R=f"{PROGRAM} run -m {GOOD} --raw -q --echo -n 0", LIST=path_of("list", b"a\nb\nc\n"), EMPTY=path_of("none", b""))
    env.pop("MAKEFLAGS", None)  # of a `make -j test`
    error = b"llama31: run: a calling script may read standard input, too"

    def sh(script, out, n_errors=0):
        r = subprocess.run(["sh", "-c", script + "; true"], stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=60)
        same((r.stdout, r.stderr.count(b"\n"), r.stderr.count(error)), (out, n_errors, n_errors), script + r.stderr.decode())

    # A file or pipe of our own. One of nothing, a device or a closed descriptor adds nothing.
    whole, lines = b"X\n\na\nb\nc\n", b"a\nb\nc\n"
    sh("$R X < $LIST", whole)
    sh("cat $LIST | $R -p X", whole)
    sh("(sleep 0.2; cat $LIST) | $R -f - X", b"a\nb\ncX\n")
    sh("cat $LIST | $R X - Y", b"X a\nb\nc Y\n")
    sh("cat $LIST | $R -f $LIST", b"a\nb\nc\n\na\nb\nc\n")
    sh("cat $LIST | $R ''", lines)
    sh("true | $R X; $R X < $EMPTY; $R X; $R X <&-; $R X 0<>/dev/zero", b"X\n" * 5)

    # The input of a loop or script is left to it. The last pass of a loop over a file finds nothing more.
    sh("while read x; do $R $x; done < $LIST", b"c\n", 2)
    sh("cat $LIST | (while read x; do $R $x; done)", b"c\n", 2)
    sh("cat $LIST | while read x; do $R $x < /dev/null; done", lines)
    sh("cat $LIST | (read x; $R $x -; cat)", b"a b\nc\n")
    sh("cat $LIST | xargs -n 1 $R", lines)
    sh("cat $LIST | sh -c '$R X; cat'", lines, 1)
    sh("echo '$R X; echo end' | sh", b"X\nend\n")  # sh has read all of the script
    for name, text in (("inner", "$R X; true"), ("outer", "sh $INNER; cat"), ("make", "all:\n\t@$$R X || true\n\t@cat\n")):
        env[name.upper()] = path_of(name, text.encode())
    sh("cat $LIST | sh $OUTER", lines, 1)
    sh("cat $LIST | make -sf $MAKE", lines, 1)
    sh("make -sf $MAKE < $LIST; sh $OUTER < $LIST", 2 * whole)  # a file of which nothing is read
    sh("for x in 1 2; do $R $x; done < $LIST", b"1\n\na\nb\nc\n2\n")
    sh("cat $LIST | for x in 1 2; do $R $x; done", b"1\n\na\nb\nc\n2\n")

    # Cron and other programs without a terminal: a device, a closed descriptor, a pipe of nothing.
    sh("setsid $R X; setsid $R X <&-; true | setsid sh -c 'sleep 0.5; $R X; true'; $R X & wait",
       b"X\n" * 4)  # before `true` ends, its pipe may still bring lines
    r = subprocess.run(["sh", "-c", "$R <&-; $R"], stdin=subprocess.DEVNULL, stderr=-1, env=env)
    check(matches(r.stderr.decode(), "standard input: Bad file descriptor\n ... the prompt is empty\n"), r)

    # sshd passes a socket, and closes it after it has started a shell.
    if sys.platform == "linux":
        for data, out, n_errors in ((b"", b"X\n", 0), (b"text", b"", 1)):
            ours, theirs = socket.socketpair()
            p = subprocess.Popen(["sh", "-c", "echo started >&2; $R X; true"], stdin=theirs, stdout=-1, stderr=-1, env=env)
            theirs.close()
            same(p.stderr.readline(), b"started\n")
            ours.sendall(data)
            ours.close()
            printed, err = p.communicate(timeout=30)
            same((printed, err.count(error)), (out, n_errors), err)

    # A pipe that stays open is waited for, which is said after a second.
    for data, out in ((b"", b"X\n"), (b"text", b"X\n\ntext\n")):
        p = subprocess.Popen([*env["R"].split(), "X"], stdin=-1, stdout=-1, stderr=-1, env=env)
        p.stdin.write(data)
        p.stdin.flush()
        check(p.stderr.readline().startswith(b"llama31: warning: waiting for the end of standard input"))
        same(p.communicate(timeout=30), (out, b""))

    # Ctrl-C ends the wait within a second.
    for args in some((["run", "X"], ["run"], ["run", "-f", "-"], ["batch"], ["tokenize"], ["score", "--perplexity", "-"], ["chat"])):
        p = subprocess.Popen([PROGRAM, *args, "-m", GOOD], stdin=-1, stdout=-1, stderr=-1, env=env)
        if args[0] in ("batch", "chat"):  # they wait for the next line without a message
            time.sleep(0.2)
        else:
            p.stderr.readline()
        p.send_signal(signal.SIGINT)
        same(p.wait(timeout=1), 130, args)
        p.stdin.close()

    # A program that passes its own input on and keeps it open is waited for, too.
    agent = "import subprocess, os; subprocess.run(os.environ['R'].split() + ['X'])"
    p = subprocess.Popen([sys.executable, "-c", agent], stdin=-1, stdout=-1, stderr=-1, env=env)
    check(b"waiting for the end" in p.stderr.readline() and p.communicate(timeout=30) == (b"X\n", b"") and p.returncode == 0)


@test
def empty_prompts():
    """A blank prompt is refused, not answered. Only --raw "" asks for a text that begins with BOS."""
    none = path_of("none", b"")
    for args in ([""], ["-p", " \n"], ["-f", none], [], ["--raw"], ["--raw", "-f", none], ["--raw", " "], ["-sys", "x", ""]):
        refuses(2, "the prompt is empty", "run", *args, stdin=b"\n")
    refuses(2, "the prompt is empty", "score", "--choices", "a,b", "")
    check(generate("").code == 0 and run("tokenize", "--count", "").out == b"0\n")
    no_bos = path_of("no-bos.gguf", damaged({"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.tokens": (ARRAY, (STRING, [
        t.replace("begin_of", "start_of") for t in VALUES["tokenizer.ggml.tokens"][1][1]]))}))
    refuses(2, "the prompt is empty", "run", "-m", no_bos, "--raw", "")
    for choices in ("", ",,"):
        requires("constrain")
        refuses(2, f'--choices: expected A,B,... or a JSON array of strings, none of them empty; found "{choices}"', "run", "--choices", choices, "x")
    requests = [{"prompt": ""}, {"prompt": " "}, {"messages": [{"role": "user", "content": "\n"}]}]
    r = run("batch", "-q", stdin="\n".join(map(json.dumps, requests)).encode())
    same((r.code, r.out.count(b": the prompt is empty\"")), (5, 3), r)


@test
def model_arguments():
    """Without -m, a first argument that is a GGUF file is the model of every command."""
    request = {"stdin": b'{"prompt":"the","max_tokens":3}'}
    for args, options in ((["tokenize", "--ids", "the"], {}), (["rope"], {}), (["batch", "-q", "--raw", "--seed", "1"], request),
                          (["chat", "-q", "--temp", "0", "-n", "5"], {"stdin": b"the"}), (["score", "--choices", "a,b", "the"], {}),
                          (["logits", "--ids", "1", "-o", "-"], {})):
        same(run(args[0], GOOD, *args[1:], **options).out, run(args[0], "-m", GOOD, *args[1:], **options).out, args)
    if in_ci(True, False):  # it measures the memory bandwidth first
        check(run("bench", GOOD, "--tests", "p1", "-n", "1").code == 0)
    refuses(2, "unexpected argument \"x\"", "chat", GOOD, "x")


@test
def lines():
    """A byte order mark, CR LF and blank lines are accepted."""
    r = run("tokenize", "-m", GOOD, "--jsonl", stdin=b'\xef\xbb\xbf\r\n"th"\r\n \r\n"the"')
    check(r.code == 0 and r.out.count(b"\n") == 2, r)
    r = run("tokenize", "-m", GOOD, "--chat", "-", "--template", "none", "--count",
            stdin=b'\xef\xbb\xbf{"role":"user","content":"the"}\r\n\r\n')
    check(r.code == 0 and r.out == b"2\n", r)


@test
def seeds():
    def sample(*args):
        return run("run", "-m", GOOD, "-q", "--raw", "-n", "20", "--temp", "1", *args, "The").out

    check(sample("-s", "7") == sample("--seed", "7"), "the same seed, different texts")
    check(sample("-s", "7") != sample("-s", "8"), "different seeds, the same text")
    check(len({sample() for _ in range(4)}) > 1, "random seeds, the same text")
    for given in ([], ["-s", "-5"]):
        r = run("run", "-m", GOOD, "--raw", "-n", "20", "--temp", "1", "The", *given)
        seed = r.err.decode().split("seed ")[1].split()[0]
        check(sample("-s", seed) == r.out, given, "the printed seed does not reproduce the text")


@test
def several_completions(cli):
    """-N gives the completions of consecutive seeds."""
    args = ["--deterministic", "-q", "-n", 40, "--temp", 1, "Once upon a time"]
    alone = [cli.run("run", "--seed", 5 + i, *args)[0].rstrip(b"\n") for i in range(3)]
    check(len(set(alone)) == 3, alone)
    same(cli.run("run", "-N", 3, "--seed", 5, *args)[0], b"".join(text + b"\n" for text in alone))
    echoed = b"".join(b"Once upon a time" + text + b"\n" for text in alone)
    same(cli.run("run", "-N", 3, "--seed", 5, "--echo", *args)[0], echoed)
    choices = json.loads(cli.run("run", "-N", 3, "--seed", 5, "--json", *args)[0])["choices"]
    same([c["text"].encode() for c in choices], alone)
    same([c["seed"] for c in choices], [5, 6, 7])
    err = cli.run("run", "-N", 2, "--seed", 5, *args[:1], *args[2:])[1]
    check("completion 2, seed 6:" in err, err)


@test
def whole_texts(cli):
    """--no-stream writes the text in one piece: processes that share a file do not mix their texts."""
    args = ["run", "--deterministic", "-q", "-n", 60, "--temp", 1, "--echo", "Once upon a time"]
    whole = [cli.run(*args, "--no-stream", "-s", i)[0] for i in range(6)]
    same(whole, [cli.run(*args, "-s", i)[0] for i in range(6)])

    shared = os.path.join(cli.tmp, "shared")
    with open(shared, "ab") as out:
        for p in [subprocess.Popen(cli.command(*args, "--no-stream", "-s", i), stdout=out) for i in range(6)]:
            same(p.wait(), 0)
    with open(shared, "rb") as f:
        text = f.read()
    check(all(text.count(one) == 1 for one in whole) and len(text) == sum(map(len, whole)), text)


@test
def json_output():
    for prompt in (b"The", b"\xff \xfe\xf4\x90\x80\x80 \xed\xa0\x80 \xc0\xaf", b"\x1b]52;c;\x07"):
        r = generate("--json", "--logprobs", "3", "--ignore-eos", stdin=prompt)
        check(r.out.count(b"\n") == 1, r)
        o = json.loads(r.out.decode())
        check(o["n_generated"] == 12 and o["finish_reason"] == "length" and isinstance(o["text"], str), o)
        check(o["n_prompt"] >= 1 and o["prefill_sec"] >= 0 and o["decode_sec"] >= 0 and "seed" in o, o)

        check(len(o["logprobs"]) == 12, o)
        for t in o["logprobs"]:
            tops = [x["logprob"] for x in t["top"]]
            check(len(tops) == 3 and tops == sorted(tops, reverse=True) and t["logprob"] == tops[0] <= 0, t)

    # show describes the file and the kernels.
    r = run("show", "-m", GOOD, "--json")
    check(r.code == 0 and json.loads(r.out)["n_layers"] == 2 and json.loads(r.out)["mixture"] == "", r)
    shown = json.loads(run("show", "-m", GOOD, "--json", "--tensors", "--check").out)
    check(shown["checksum"] in run("show", "-m", GOOD, "--check").out.decode(), shown["checksum"])
    same({t["name"]: tuple(t["shape"]) for t in shown["tensors"] if len(t["shape"]) == 2},
         {name: (rows, cols) for name, (rows, cols, _) in TENSORS.items() if rows > 1})

    # The F32 matrices of this model: gemv and gemm of AVX2 add in different orders.
    for isa in "scalar", "avx2":
        r = run("show", "-m", GOOD, "-v", env={"LLAMA31_ISA": isa})
        depends = b"\nkernels       avx2" in r.out
        check((b"\nexactness     same bits for any batch\n" in r.out) != depends, r)
        r = run("show", "-m", GOOD, "--json", env={"LLAMA31_ISA": isa})
        check(json.loads(r.out)["batch_invariant"] != depends, r)

    # The metadata of the file, escaped and truncated.
    named = path_of("named.gguf", damaged({"general.file_type": (U32, 15)}))
    shown = run("show", "-m", named).out
    check(b"\nmixture       Q4_K_M\n" in shown and b'\nlicense       "llama3.1"\n' in shown, shown)
    check(b'\nsource        "https://a.b/c\\u001b[2Jxxx' in shown and b"x" * 200 not in shown, shown)
    check(json.loads(run("show", "-m", named, "--json").out)["mixture"] == "Q4_K_M")

    # A file without tensors.
    r = run("show", "-m", path_of("words.gguf", gguf(VALUES, {})), "--json")
    check(r.code == 0 and json.loads(r.out)["n_tensors"] == 0, r)


@test
def context():
    refuses(4, "41 tokens, context 10", "run", "-m", GOOD, "--raw", "-c", "10", "x" * 40)
    refuses(4, "10 tokens and one to generate, context 10", "run", "-m", GOOD, "--raw", "-c", "10", "x" * 9)
    refuses(4, "401 tokens, context 128", "run", "-m", GOOD, "--raw", "x" * 400)
    r = generate("--json", "--ignore-eos", "-c", "8", "xyz")
    check(json.loads(r.out)["finish_reason"] == "length" and json.loads(r.out)["n_generated"] <= 5, r)


@test
def ends():
    """Stop strings that name control tokens, ids of stop tokens, banned end tokens, and BOS in the text."""
    def ending(*args):
        out = json.loads(call("run", "-q", "--json", "--raw", "--temp", "0", "-n", "8", "Once", *args)[0])
        return out["finish_reason"], out["n_generated"]

    force = "--logit-bias", "<|eot_id|>+100"
    same(ending(*force), ("stop", 0))
    same(ending(*force, "--ignore-eos"), ("length", 8))
    same(ending(*force, "--ignore-eos", "--stop", "<|eot_id|>"), ("stop", 0))
    same(ending(*force, "--ignore-eos", "--stop-token-ids", "5,2038"), ("stop", 0))
    force = "--logit-bias", "<|start_header_id|>+100"
    same([ending(*force), ending(*force, "--stop", "<|start_header_id|>")], [("length", 8), ("stop", 0)])
    same(ending(*force, "--stop", "<|start_header_id|>", "--logit-bias", "<|start_header_id|>-inf")[1] > 0, True)
    refuses(2, 'token ids: expected ... found "x"', "run", "--stop-token-ids", "x", "Once")
    check("2 tokens, each of which gets the bias" in call("run", "-q", "-n", "1", "--logit-bias", "qz+1", "x")[1])

    def n_prompt(text):
        out, err = call("run", "--json", "--raw", "--special", "-n", "1", text)
        return json.loads(out)["n_prompt"], "no other is added" in err
    same([n_prompt("Once"), n_prompt("<|begin_of_text|>Once")], [(2, False), (2, True)])

    shown = call("show", "--bandwidth", "1")[0].decode()
    check("ends answers with <|eot_id|>\n" in shown and "2038 <|eot_id|> (eot_token_id)\n" in shown, shown)


@test
def cut_character():
    """A text that is cut within a character ends before it."""
    requires("constrain")
    for n in (1, 2, 3):
        args = ("run", "--raw", "--regex", "\u20ac+", "-n", str(n), "Once")
        code = 0 if n == 3 else 6
        out, err = call(*args, code=code)
        same((out.decode(), "within a character" in err), ("\u20ac\n" if n == 3 else "\n", n < 3))
        same(json.loads(call(*args, "-q", "--json", code=code)[0])["text"], "\u20ac" * (n == 3))


@test
def begun_answers():
    """An answer that begins with a part of the greedy answer continues it, wherever the border is."""
    requires("constrain")
    how = "-q", "--json", "--temp", "0", "--deterministic"
    ask = "Tell a story about a dog."
    whole = json.loads(call("run", *how, "-n", "40", ask)[0])["text"]
    for n in range(1, len(whole), 9):
        r = json.loads(call("run", *how, "-n", "20", "--answer", whole[:n], ask)[0])
        text = r["answer"] + r["text"]
        check(r["answer"] == whole[:n] and r["text"], r)
        same(text[:len(whole)], whole[:len(text)], n)

    # Constraints apply to the beginning, too. It cannot forge special tokens.
    def chosen(begin, *args, code=0):
        return call("run", "-q", "--choices", "yes,no,\u20ac", "--answer", begin, ask, *args, code=code)[0].decode()
    same([chosen("ye"), chosen("yes")], ["s\n", "\n"])
    refuses(2, 'allows no answer that begins with "yo"', "run", "--choices", "yes,no", "--answer", "yo", ask)
    n_prompt = [json.loads(call("run", *how, "-n", "5", "--answer", begin, ask)[0])["n_prompt"] for begin in ("", "a <|eot_id|> b")]
    check(n_prompt[1] > n_prompt[0] + 6, "tokens of the name of a control token", n_prompt)
    refuses(2, "needs a chat template", "run", "--raw", "--answer", "x", ask)


@test
def streams():
    with open("/dev/full", "wb") as full:
        for args in (["run", "-m", GOOD, "--raw", "-n", "5", "The"], ["run", "-m", GOOD, "--raw", "--json", "The"],
                     ["show", "-m", GOOD], ["tokenize", "-m", GOOD, "The"], ["help"]):
            r = run(*args, stdout=full)
            check(r.code == 1 and b"No space" in r.err, args, r)

    r = run("logits", "-m", GOOD, "--ids", "1,2", "-o", "/dev/full")
    check(r.code == 1 and b"No space" in r.err, r)

    # A closed pipe is not a failure.
    for args in (["run", "-m", GOOD, "--raw", "-q", "-n", "100", "--ignore-eos", "The"], ["show", "-m", GOOD],
                 ["logits", "-m", GOOD, "--ids", "1,2", "-o", "-"], ["help"]):
        reader, writer = os.pipe()
        os.close(reader)
        r = run(*args, stdout=writer)
        os.close(writer)
        check(r.code == 0 and r.err == b"", "closed pipe:", args, r)

    # A closed stdout is a failure.
    r = subprocess.run(["sh", "-c", '"$0" run -m "$1" --raw -q The >&-', PROGRAM, GOOD], env=ENV,
                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    check(r.returncode == 1 and r.stderr.count(b"\n") == 1, "closed stdout:", r)

    r = run("show", "-m", GOOD)
    check(r.code == 0 and b"\x1b" not in r.out and b"\x07" not in r.out, r)


@test
def terminal():
    """On a terminal, control bytes of the output are escaped."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(PROGRAM, [PROGRAM, "run", "-m", GOOD, "--raw", "-q", "-n", "100", "--temp", "2", "--top-k", "0",
                           "--top-p", "1", "--min-p", "0", "-s", "1", "--ignore-eos", "x"], ENV)
    out = b""
    try:
        while True:
            part = os.read(fd, 4096)
            if not part:
                break
            out += part
    except OSError:
        pass
    check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and len(out) > 50, out)
    check(b"\\x" in out and not any(b < 32 and b not in b"\t\r\n" or b == 127 for b in out), out)
    out.decode()


@test
def interrupt():
    args = [PROGRAM, "run", "-m", path_of("long.gguf", damaged({"llama.context_length": (U32, 100000)})), "--raw",
            "-n", "90000", "--ignore-eos", "x"]
    p = subprocess.Popen(args, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(p.stdout.read(16), "no text")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=20)
    check(p.returncode == 130, "exit", p.returncode, err)


@test
def interrupt_of_several_completions(cli):
    """The exit status is 130 if the first completion is complete and another one is not."""
    args = ["--raw", "-N", 2, "-s", 1, "--temp", 1, "--ignore-eos", "-c", 60000, "Once upon a time"]
    texts = [c["text"] for c in json.loads(cli.run("run", "--json", "-n", 60, *args)[0])["choices"]]
    p = subprocess.Popen(cli.command("run", "-n", 50000, "--stop", texts[0], *args), stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.5)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=20)[1]
    same(p.returncode, 130, err)


@test
def not_a_number():
    norm = (1, 16, struct.pack("<16f", *[float("nan")] * 16))
    path = path_of("nan.gguf", damaged({}, dict(TENSORS, **{"output_norm.weight": norm})))
    refuses(1, "NaN or infinity", "run", "-m", path, "--raw", "-q", "The")


INF, NAN = float("inf"), float("nan")
TOKENS = VALUES["tokenizer.ggml.tokens"][1][1]
TYPES = VALUES["tokenizer.ggml.token_type"][1][1]
BAD_SHAPES = [  # key, value (None: removed), text of the message
    ("general.architecture", (STRING, "mamba"), 'expected ... found "mamba"'),
    ("general.architecture", None, "general.architecture: missing key (expected a string)"),
    ("llama.block_count", (U32, 0), "llama.block_count: expected 1 to"),
    ("llama.block_count", (U32, 3), "tensor blk.2.attn_norm.weight: expected ... found no such tensor"),
    ("llama.block_count", (U32, 513), "llama.block_count: expected ... found 513"),
    ("llama.block_count", (U64, 1 << 63), "found 9223372036854775808"),
    ("llama.block_count", (F32, 2.0), "llama.block_count: expected ... found f32"),
    ("llama.block_count", None, "llama.block_count: missing key (expected an unsigned integer)"),
    ("llama.attention.head_count", (U32, 0), "llama.attention.head_count: expected 1 to"),
    ("llama.attention.head_count", (U32, 3), "llama.attention.head_count: expected ... found 3"),
    ("llama.attention.head_count", (I32, -2), "llama.attention.head_count: expected ... found -2"),
    ("llama.attention.head_count", (U32, (1 << 32) - 1), "found 4294967295"),
    ("llama.attention.head_count_kv", (U32, 0), "llama.attention.head_count_kv: expected ... found 0"),
    ("llama.attention.head_count_kv", (U32, 3), "llama.attention.head_count_kv: expected ... found 3"),
    ("llama.attention.head_count_kv", (ARRAY, (U32, [1, 2])), "head_count_kv: expected ... found an a"),
    ("llama.embedding_length", (U32, 0), "llama.embedding_length: expected 1 to"),
    ("llama.embedding_length", (U32, 17), "llama.attention.head_count: expected ... found 2"),
    ("llama.embedding_length", (U32, (1 << 32) - 16), "found 4294967280"),
    ("llama.embedding_length", (STRING, "16"), "llama.embedding_length: expected ... found string"),
    ("llama.feed_forward_length", (U32, 0), "llama.feed_forward_length: expected 1 to"),
    ("llama.feed_forward_length", (U32, 33), "tensor blk.0.ffn_gate.weight: expected ... found (32, 16)"),
    ("llama.context_length", (U32, 0), "llama.context_length: expected 1 to"),
    ("llama.context_length", (U32, (1 << 32) - 1), "found 4294967295"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, NAN), "layer_norm_rms_epsilon: expected ... found nan"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, 0.0), "layer_norm_rms_epsilon: expected ... found 0"),
    ("llama.attention.layer_norm_rms_epsilon", (F32, -1e-5), "layer_norm_rms_epsilon: expected ... found -1e-05"),
    ("llama.attention.layer_norm_rms_epsilon", None, "layer_norm_rms_epsilon: missing key (expected a number)"),
    ("llama.rope.freq_base", (F32, NAN), "llama.rope.freq_base: expected ... found nan"),
    ("llama.rope.freq_base", (F32, 0.0), "llama.rope.freq_base: expected ... found 0"),
    ("llama.rope.freq_base", (F32, -1.0), "llama.rope.freq_base: expected ... found -1"),
    ("llama.rope.freq_base", (F32, INF), "llama.rope.freq_base: expected ... found inf"),
    ("llama.rope.freq_base", (STRING, "10000"), "llama.rope.freq_base: expected ... found string"),
    ("llama.rope.dimension_count", (U32, 0), "llama.rope.dimension_count: expected ... found 0"),
    ("llama.rope.dimension_count", (U32, 3), "llama.rope.dimension_count: expected ... found 3"),
    ("llama.rope.dimension_count", (U32, 10), "llama.rope.dimension_count: expected ... found 10"),
    ("llama.rope.scaling.type", (STRING, "warp"), 'llama.rope.scaling.type: unknown rule "warp"'),
    ("llama.attention.key_length", (U32, 7), "head dimension: expected an even number up to"),
    ("llama.attention.key_length", (U32, 0), "llama.attention.key_length: expected 2 to"),
    ("llama.attention.value_length", (U32, 4), "llama.attention.value_length: expected ... found 4"),
]
BAD_VOCABULARIES = [
    ("tokenizer.ggml.model", None, "tokenizer.ggml.model: missing key (expected a string)"),
    ("tokenizer.ggml.model", (STRING, "bert"), 'tokenizer.ggml.model: expected ... found "bert"'),
    ("tokenizer.ggml.model", (U32, 1), "tokenizer.ggml.model: expected ... found u32"),
    ("tokenizer.ggml.tokens", None, "tokenizer.ggml.tokens: missing key (expected an array of string)"),
    ("tokenizer.ggml.tokens", (ARRAY, (U32, [1, 2, 3])), "tokenizer.ggml.tokens: expected ... found an"),
    ("tokenizer.ggml.tokens", (ARRAY, (STRING, [])), "tokenizer.ggml.tokens: expected"),
    ("tokenizer.ggml.tokens", (ARRAY, (STRING, TOKENS[:-1])), "token_type: expected ... found 264"),
    ("tokenizer.ggml.tokens", (ARRAY, (STRING, TOKENS[:5] + TOKENS[4:5] + TOKENS[6:])),
     'tokenizer.ggml.tokens: duplicate token "%" (ids 4 and 5)'),
    ("tokenizer.ggml.token_type", (ARRAY, (I8, TYPES)), "token_type: expected ... found an array of i8"),
    ("tokenizer.ggml.token_type", (ARRAY, (I32, TYPES[:-1])), "token_type: expected ... found 263"),
    ("tokenizer.ggml.token_type", (U32, 1), "tokenizer.ggml.token_type: expected ... found u32"),
    ("tokenizer.ggml.bos_token_id", (U32, len(TOKENS)), "bos_token_id: expected ... found 264"),
    ("tokenizer.ggml.bos_token_id", (I32, -1), "bos_token_id: expected ... found -1"),
    ("tokenizer.ggml.eos_token_id", (U32, len(TOKENS)), "eos_token_id: expected ... found 264"),
    ("tokenizer.ggml.eos_token_id", (STRING, "2"), "eos_token_id: expected ... found string"),
    ("tokenizer.ggml.merges", None, "tokenizer.ggml.merges: missing key (expected an array of string)"),
    ("tokenizer.ggml.merges", (ARRAY, (I32, [1])), "merges: expected ... found an array of i32"),
    ("tokenizer.ggml.merges", (ARRAY, (STRING, ["t h", "t h"])), 'merges: duplicate rule 1: "t h"'),
    ("tokenizer.ggml.merges", (ARRAY, (STRING, ["th"])), 'merges: rule 0 is not two parts of a token: "th"'),
    ("tokenizer.ggml.merges", (ARRAY, (STRING, ["t q"])), 'merges: rule 0 is not two parts of a token: "t q"'),
]


def refuses_cheaply(says, data, *command):
    """An invalid model is rejected with this message before much memory or time is used."""
    args = [command[0], "-m", path_of("bad.gguf", data), *command[1:]]
    refuses(3, says, *args)
    r = run(*args)
    check(r.rss < 64 and r.cpu < 1, args, says, "%.0f MiB, %.2f s" % (r.rss, r.cpu))


@test
def bad_shapes():
    for key, v, says in some(BAD_SHAPES):
        refuses_cheaply(says, damaged({key: v}), "show")
    refuses_cheaply("token_embd.weight: expected a row for each token", damaged({}, {"output.weight": TENSORS["output.weight"]}),
                    "show")
    for name in ("token_embd.weight", "output_norm.weight", "blk.1.attn_q.weight"):
        rows, cols, data = TENSORS[name]
        turned = (cols, rows, data) if rows != cols else (rows * 2, cols // 2, data)
        fewer = {k: v for k, v in TENSORS.items() if k != name}
        refuses_cheaply("tensor %s: expected ... found no such tensor" % name, damaged({}, fewer), "show")
        refuses_cheaply("tensor %s: expected" % name, damaged({}, dict(TENSORS, **{name: turned})), "show")


@test
def bad_vocabularies():
    """Files without tensors, so that only the tokenizer can reject them."""
    for key, v, says in BAD_VOCABULARIES:
        refuses_cheaply(says, damaged({key: v}, {}), "tokenize", "x")
    fewer_rows = dict(TENSORS, **{"token_embd.weight": (263, 16, TENSORS["token_embd.weight"][2][:-64])})
    refuses_cheaply("tensor token_embd.weight: expected ... found 263", damaged({}, fewer_rows),
                    "run", "x")


@test
def vocabularies_of_older_files():
    """No tokenizer.ggml.pre: that of Llama 3, if four of its tokens have their ids. An end token of 2^32 - 1: none."""
    filler = 128256 - 11 - len(TOKENS)
    special = {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128006: "<|start_header_id|>", 128009: "<|eot_id|>"}
    tokens = ["[%d]" % i if w in special.values() else w for i, w in enumerate(TOKENS)]
    tokens += ["[%d]" % i for i in range(len(TOKENS), len(TOKENS) + filler)]
    types = TYPES + [5] * filler
    for i in range(len(tokens), 128256):
        tokens.append(special.get(i, "[%d]" % i))
        types.append(3)
    for id in special:
        tokens[id], types[id] = special[id], 3

    values = {"tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)), "tokenizer.ggml.token_type": (ARRAY, (I32, types)),
              "tokenizer.ggml.pre": None}
    text = "it's 12345 they'll\n"
    path = path_of("old.gguf", damaged(dict(values, **{"tokenizer.ggml.eos_token_id": (U32, (1 << 32) - 1)}), {}))
    found, err = call("tokenize", "-m", path, text)
    expected, _ = call("tokenize", "-m", path_of("new.gguf", damaged(
        dict(values, **{"tokenizer.ggml.pre": (STRING, "llama-bpe")}), {})), text)
    same(found, expected)
    check(err.count("tokenizer.ggml.pre: missing key; the tokens are those of Llama 3") == 1, err)
    check(err.count("eos_token_id is 2^32 - 1: no such token") == 1, err)

    tokens[128006] = "<|other|>"
    refuses_cheaply("tokenizer.ggml.pre: missing key", damaged(values, {}), "tokenize", "x")


@test
def damaged_models():
    """Truncated files and flipped bytes: one line of error, or a normal run; no crash, sanitizer report or hang."""
    good, rng = gguf(VALUES, TENSORS), random.Random(os.environ.get("LLAMA31_FUZZ_SEED", "1"))
    head = good.index(b"output.weight") + 40
    for i in range(int(os.environ.get("LLAMA31_FUZZ", in_ci(120, 40)))):
        data = bytearray(good)
        if i % 4 == 0:
            del data[rng.randrange(head if i % 8 else len(data)):]
        else:
            for _ in range(1 if i % 4 == 1 else 3):
                at = rng.randrange(head)
                data[at] = rng.choice((0, 1, 0x7f, 0x80, 0xff, data[at] ^ 1 << rng.randrange(8)))

        path = path_of("damaged.gguf", data)
        args = ["show", "-m", path] if i % 2 else ["run", "-m", path, "--raw", "-q", "-n", "2", "-t", "1", "the"]
        r = run(*args)

        codes = (3,) if i % 4 == 0 else (0, 1, 2, 3, 4)
        keep = path_of("failed.gguf", data) if r.code not in codes else ""
        check(r.code in codes, "model", i, keep, r)
        check(r.code == 0 or r.err.count(b"\n") <= 2 and r.err.startswith(b"llama31: "), "model", i, r)

        # show reads bytes to measure the bandwidth.
        probe = 256 if r.code == 0 and args[0] == "show" else 0
        check(IS_SANITIZED or r.rss < 64 + probe, "model", i, "%.0f MiB" % r.rss)
        check(r.cpu < 2, "model", i, "%.2f s" % r.cpu)


USAGE_ERRORS = [  # message, arguments
    ("reads -f FILE or standard input only", "tokenize", "--jsonl", "x"),
    ("reads -f FILE or standard input only", "tokenize", "--jsonl", "-p", "x"),
    ("reads -f FILE or standard input only", "tokenize", "--jsonl", "--chat", "f"),
    ("--chat: cannot be combined with other text", "tokenize", "--chat", "f", "-p", "x"),
    ("--chat: cannot be combined with other text", "tokenize", "--chat", "f", "-f", "x"),
    ("--chat: cannot be combined with other text", "tokenize", "--chat", "f", "x"),
    ("--tools: cannot be combined with --raw", "run", "--raw", "--tools", "none", "x"),
    ("--rendered and --tools need --chat FILE", "tokenize", "--rendered", "x"),
    ("exclude each other", "tokenize", "--count", "--jsonl"),
    ("exclude each other", "tokenize", "--ids", "--count"),
    ("logits: needs --ids LIST and -o FILE", "logits"),
    ("logits: needs --ids LIST and -o FILE", "logits", "--ids", "1 2"),
    ('quantize: expected names of files, found "-"', "quantize", "none", "-", "Q8_0"),
    ("--ids: no tokens", "logits", "--ids", "", "-o", "none"),
    ('expected ... found "1;2"', "logits", "--ids", "1;2", "-o", "none"),
    ('expected ... found "-1"', "logits", "--ids=-1", "-o", "none"),
    ('expected ... found "99999999999999999999"', "logits", "--ids", "99999999999999999999", "-o", "none"),
    ('run: unknown option "- an item"; use -p TEXT for a text', "run", "- an item"),
    ("run: unknown option --max-tokenz; did you mean --max-tokens (", "run", "--max-tokenz", "5", "x"),
    ("--ids: use score --jsonl, whose texts may be arrays of token ids", "score", "--ids", "1,2"),
    ("-sys: cannot be combined with --raw", "run", "-sys", "a", "--raw", "b"),
    ("-sys: the model has no chat template", "run", "-sys", "a", "--template", "none", "b"),
    ("expected either --ignore-eos or a constraint", "run", "--choices", "a,b", "--ignore-eos", "x"),
    ("run: unknown option --" + "a" * 58 + " (", "run", "--" + "a" * 99 + "=5", "x"),
    ('--tests: expected a list like p512,d4096,b16, found "x"', "bench", "-m", "/none", "--tests", "p8,x"),
] + [("--tests: expected a list like p512,d4096,b16, found", "bench", "--tests", tests)
     for tests in ("", "x1", "p", "p0", "p1x", "b0", "b1025", "d-1", "p8 d0", "p99999999")
] + [("--positions: expected N, A..B or A..B:STEP up to 1073741824, found", "rope", "--positions", positions)
     for positions in ("5-x", "1..x", "1..3:x", "-1", "5..1", "1..3:0", "0..2000000000", "1..3:2000000000", "")
] + [("--compare: expected rules of --rope-scaling separated by commas, found", "rope", "--compare", rules)
     for rules in ("", ",", "linear,,yarn", ",linear", "linear,")
] + [("--columns: expected columns separated by commas, found", "rope", "--columns", columns)
     for columns in ("", ",", "band,,frequency", ",band", "band,")
] + [("--logit-bias: expected TOKEN+X or TOKEN-X, found", "run", "--logit-bias=" + bias, "x")
     for bias in ("", "+1", "5", "5*1", "5+x", "5-false", "a++x", "a+inf", "-inf")
] + [("--lora: expected FILE or FILE:SCALE, found", "run", "--lora", lora, "x") for lora in ("", "none:x", "none:", ":1")]
MISSING_FILES = [  # arguments; /none does not exist
    ("tokenize", "--chat", "/none"), ("logits", "--ids", "@/none", "-o", "none"), ("run", "--tools", "/none", "x"),
    ("run", "--grammar", "/none", "x"), ("run", "--json-schema", "@/none", "x"), ("run", "--draft", "/none", "x"),
    ("run", "--lora", "/none:0.5", "x"), ("rope", "-m", "/none"), ("batch", "--grammar", "/none"), ("run", "-f", "/none"),
    ("score", "--perplexity", "/none")]


def is_built(args):
    """False if an option belongs to a module that was left out."""
    modules = {"quantize": "quantize", "--lora": "lora", "--draft": "speculate", "--grammar": "constrain",
               "--json-schema": "constrain", "--choices": "constrain"}
    try:
        requires(*(modules[a] for a in args if a in modules))
    except Skip:
        return False
    return True


@test
def typed_lines(tmp):
    """Lines that people type who know other programs, or make a mistake: each runs, or says what they mean."""
    env = dict(os.environ, PATH=os.path.dirname(PROGRAM) + ":" + os.environ["PATH"], ROOT=ROOT, HOME=tmp,
               XDG_STATE_HOME=tmp)
    for name in "MAKEFLAGS", "LLAMA31_MODEL", "LLAMA31_HISTORY":
        env.pop(name, None)
    with open(os.path.join(ROOT, "tests", "typed_lines.jsonl")) as f:
        rows = [json.loads(line) for line in f]
    for i, row in enumerate(some(rows, 7)):
        if "needs" in row and not is_built(("--grammar",)):
            continue
        os.mkdir(os.path.join(tmp, str(i)))
        r = subprocess.run(["sh", "-c", row["typed"]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                           env=env, cwd=os.path.join(tmp, str(i)))
        check(r.returncode == row.get("code", r.returncode), row, r)
        check(matches(r.stderr, row["says"]) if "says" in row else not r.stderr, row, r)
        check(matches(r.stdout, row.get("out", "")), row, r)
        check(r.returncode not in (1, 2, 3) or r.stderr.count("\n") == 1, row, "more than one line", r)


@test
def refused_command_lines():
    """Invalid values and combinations: exit 2, one line that says what is expected. Missing files: exit 1."""
    env = dict(os.environ, LLAMA31_MODEL="")
    for message, *args in some(list(filter(is_built, USAGE_ERRORS)), 2):
        refuses(2, message, *args, env=env)
    for args in filter(is_built, MISSING_FILES):
        check("o such file" in refuses(1, "/none: ", *args, env=env), args)
    check(not os.path.exists("none"))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main("cli")
