#!/usr/bin/env python3
"""Speculation and the prefix cache do not change the output: text and log-probabilities equal those without, on every
backend of this machine, with a cold, warm, damaged or unwritable cache."""
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

from cli import ROOT, SCRIPTS, Skip, change_byte, check, in_ci, main, requires, same, slow, some, test

sys.path.insert(0, SCRIPTS)
from lib import gguf_writer, weights

PROMPTS = ["Once upon a time", "The dog said hello. The cat said hello. The dog said hello. The cat said",
           "One day, one day, one day, one day,", "Lily had a red ball. Tom had a blue ball. Lily had a red"]
BACKENDS = ["scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"]


def backends(cli):
    """Environments for the backends that this machine has; outside of .ci/run every second one, from the best."""
    envs = [dict(os.environ, LLAMA31_ISA=name) for name in BACKENDS]
    found = [env for env in envs if b'"kernels":"%s"' % env["LLAMA31_ISA"].encode() in
             cli.run("show", "--json", "--bandwidth", 1, env=env)[0]]
    return some(found[::-1], 2)


def answer(cli, env, prompt, *args):
    """Text and log-probabilities, without the times and the numbers of draft tokens."""
    ends = [] if "--regex" in args else ["--ignore-eos"]
    out = cli.run("run", "--raw", "--json", "--logprobs", 3, "-n", 60, *ends, prompt, *args, env=env)[0]
    a = json.loads(out)
    return {k: a[k] for k in a if not k.endswith(("_sec", "drafted", "accepted"))}


@test
def lookup_changes_nothing(cli):
    requires("speculate")
    n_drafted = 0
    for n, env in enumerate(backends(cli)):
        for i, prompt in enumerate(PROMPTS):
            hows = ["--temp", 0, "--seed", 1], ["--temp", 0.7, "--seed", i], ["--seed", i, "--repeat-penalty", 1.2]
            for how in in_ci(hows, [hows[(n + i) % 3]]):  # sampling is the same code on all backends
                plain = answer(cli, env, prompt, "--no-lookup", *how)
                same(answer(cli, env, prompt, *how), plain, (env["LLAMA31_ISA"], prompt, how))
        err = cli.run("run", "-v", "--raw", "-n", 120, "--ignore-eos", "--temp", 0, PROMPTS[2], env=env)[1]
        n_drafted += "draft tok" in err
    check(n_drafted, "no backend drafted a token")


@test
def lookup_in_a_batch(cli):
    requires("speculate")
    requests = "".join(json.dumps({"id": i, "prompt": p * (1 + i % 3), "max_tokens": 40, "seed": i}) + "\n"
                       for i, p in enumerate(PROMPTS * 3)).encode()
    for args in (["--deterministic"], ["--deterministic", "--parallel", 3], ["--parallel", 1]):
        plain = cli.run("batch", "--raw", "-q", "--ordered", "--no-lookup", *args, stdin=requests)[0]
        same(cli.run("batch", "--raw", "-q", "--ordered", *args, stdin=requests)[0], plain, args)


@test
@slow
def lookup_in_a_batch_invariant_backend(cli):
    """Quantized weights on AVX2 have the same bits for any batch size: drafts need no --deterministic there."""
    requires("speculate")
    cli.model = None
    if subprocess.run(cli.command("show"), capture_output=True).returncode:
        raise Skip("no built-in model")
    requests = "".join(json.dumps({"id": i, "prompt": p * 3, "max_tokens": 60, "temp": 0.5 * (i % 2), "seed": i}) + "\n"
                       for i, p in enumerate(PROMPTS * 2)).encode()
    for env in backends(cli):
        ways = [["--ordered", "--parallel", 2, *args] for args in ([], ["--no-lookup"], ["--deterministic", "--no-lookup"])]
        (text, err), (plain, _), (alone, _) = [cli.run("batch", "--raw", "-v", *way, stdin=requests, env=env) for way in ways]
        same(text, plain, env["LLAMA31_ISA"])
        if env["LLAMA31_ISA"] in ("scalar", "avx2"):
            same(text, alone, env["LLAMA31_ISA"])
        if env["LLAMA31_ISA"] == "avx2":
            check(" draft tok" in err, err)


@test
def draft_changes_nothing(cli):
    requires("speculate")
    if not cli.model:
        raise Skip("no model but the built-in one")
    for i, prompt in enumerate(PROMPTS):
        for how in (["--temp", 0, "--seed", 1], ["--temp", 0.9, "--seed", i], ["--seed", i, "--no-lookup"]):
            plain = answer(cli, None, prompt, "--no-lookup", *how)
            same(answer(cli, None, prompt, "--draft", cli.model, *how), plain, (prompt, how))
    cli.refuses(2, "expected the vocabulary of", "run", "--draft", os.path.join(ROOT, "stories", "stories.gguf"), "a")


def heads():
    """The target and the EAGLE-3 heads of the test data."""
    requires("speculate")
    folder = os.path.join(os.environ.get("LLAMA31_DATA", os.path.join(ROOT, "..", "shared", "data")), "eagle3")
    if not os.path.exists(folder):
        raise Skip("no eagle3/ under LLAMA31_DATA")
    return os.path.join(folder, "target.gguf"), [os.path.join(folder, "head-%s.gguf" % name) for name in ("apt", "own", "random")]


@test
def head_changes_nothing(cli):
    """Every backend, greedy and sampled, alone, with a constraint, with a cold and a warm cache; drafts are accepted."""
    cli.model, files = heads()
    counts = [0, 0]
    for n, env in enumerate(backends(cli)):
        for i, prompt in enumerate(PROMPTS):
            hows = (["--temp", 0], ["--temp", 0.8, "--regex", "[a-z ]{30,60}"], ["--temp", 0.8],
                    ["--temp", 0, "--cache", cli.path_of("cache%d" % n)])
            for how in some(hows[(n + i) % 2:], 2):
                if "--regex" in how:
                    requires("constrain")
                if "--cache" in how:
                    requires("cache")
                    prompt = (prompt * 24)[:380]  # more than a page
                how += ["--seed", i]
                plain = answer(cli, env, prompt, "--no-lookup", *[x for x in how if "cache" not in str(x)])
                for head in files[:1] + files[i % 3:i % 3 + 1]:
                    found = answer(cli, env, prompt, "--draft", head, *how)
                    same({k: v for k, v in found.items() if "cache" not in k},
                         {k: v for k, v in plain.items() if "cache" not in k}, (env["LLAMA31_ISA"], prompt, how, head))
        err = cli.run("run", "-v", "--raw", "-n", 200, "--ignore-eos", "--temp", 0, "--no-lookup", "--draft", files[0],
                      PROMPTS[0], env=env)[1]
        found = re.search(r"accepted (\d+) of (\d+) draft tok", err)
        counts = [n + int(found[i + 1]) for i, n in enumerate(counts)] if found else counts
    check(0 < counts[0] <= counts[1], counts)


@test
def head_in_other_ways(cli):
    """With an adapter, a JSON Schema, in a chat of several turns, and in bench; JSON counts the draft tokens."""
    requires("lora", "constrain")
    cli.model, files = heads()
    env, lora = dict(os.environ), write_adapter(cli, "lora.gguf")
    schema = '{"type":"object","properties":{"a":{"type":"string","maxLength":9},"n":{"type":"integer"}},"required":["a","n"]}'
    for how in ["--lora", lora], ["--json-schema", schema], ["--lora", lora, "--choices", '["one of","the other"]']:
        way = ["run", "--raw", "--json", "--logprobs", 3, "-n", 60, "--seed", 2, PROMPTS[1], *how]
        plain, found = (json.loads(cli.run(*way, *args, env=env)[0]) for args in (["--no-lookup"], ["--draft", files[0]]))
        check(plain["n_drafted"] == 0 and 0 <= found["n_accepted"] <= found["n_drafted"], found)
        same([found[k] for k in ("text", "logprobs", "finish_reason")],
             [plain[k] for k in ("text", "logprobs", "finish_reason")], how)
    turns = "".join(p + "\n" for p in PROMPTS).encode()
    same(cli.run("chat", "-q", "--seed", 3, "-n", 40, "--draft", files[0], stdin=turns)[0],
         cli.run("chat", "-q", "--seed", 3, "-n", 40, "--no-lookup", stdin=turns)[0])

    # At first a head is always tried, so some tokens are drafted.
    results = json.loads(cli.run("bench", "--draft", files[0], "--tests", "d0,s40", "-n", 2, "--json")[0])["results"]
    same([r["test"] for r in results], ["decode", "spec"])
    spec = results[1]
    check(0 < spec["n_passes"] <= 40 and spec["n_accepted"] <= spec["n_drafted"] > 0, spec)
    same(spec["n_passes"] + spec["n_accepted"], 40, spec)
    cli.refuses(2, "--draft: expected one number in -t", "bench", "--draft", files[0], "-t", "1,2")
    check("drafts 330 of the target's tokens" in cli.run("show", "-m", files[0])[0].decode(), "show")


@test
def head_in_a_batch(cli):
    cli.model, files = heads()
    requests = "".join(json.dumps({"id": i, "prompt": p * (1 + i % 3), "max_tokens": 60, "temp": 0.8 * (i % 2), "seed": i}) +
                       "\n" for i, p in enumerate(PROMPTS * 4)).encode()
    for env in backends(cli):
        way = ["batch", "--raw", "-v", "--ordered", "--deterministic", "--parallel", 8]
        plain = cli.run(*way, "--no-lookup", stdin=requests, env=env)[0]
        for head in files:
            same(cli.run(*way, "--draft", head, stdin=requests, env=env)[0], plain, (env["LLAMA31_ISA"], head))


@test
def refused_heads(cli, tmp):
    """A head alone, of another target, and damaged ones."""
    cli.model, files = heads()
    cli.refuses(3, "EAGLE-3 draft head; pass its target model with -m", "run", "-m", files[0], "a")
    with open(files[0], "rb") as f:
        data = f.read()

    def refuses(message, place, change, skip=0):
        at = data.index(place) + len(place) + skip
        path = os.path.join(tmp, "head.gguf")
        with open(path, "wb") as f:
            f.write(data[:at] + change + data[at + len(change):])
        cli.refuses(3, message, "run", "--draft", path, "a")

    u32 = struct.pack("<I", 4)
    refuses("eagle3.target_hidden_size: expected 128 ... found 64", b"eagle3.target_hidden_size", u32 + struct.pack("<I", 64))
    for layer in (6, 0xffffffff):
        refuses("eagle3.target_layers: expected 3 numbers below 6", b"eagle3.target_layers", struct.pack("<I", layer), 16)
    ids = next(at for at in range(0, len(data) - 8 * 330, 32)  # the tensor d2t: 330 ascending ids
               if 0 <= struct.unpack_from("<q", data, at)[0] <= struct.unpack_from("<q", data, at + 329 * 8)[0] < 512
               and sorted(set(row := struct.unpack_from("<330q", data, at))) == list(row))
    for token in (512, -1):
        refuses("tensor d2t: expected 330 numbers below 512", data[ids - 32:ids], struct.pack("<q", token))
    refuses("tensor blk.0.attn_norm_3.weight: not part of", b"blk.0.attn_norm_", b"3")
    cli.refuses(2, "expected the vocabulary of", "run", "-m", os.path.join(ROOT, "stories", "stories.gguf"), "--draft", files[0],
                "a")


@test
def dry_in_every_path(cli):
    """The same text alone, without lookup, from the cache, and in a batch whose records have other DRY options."""
    requires("cache")
    long_context(cli)
    how = ["--temp", 0, "--deterministic", "-n", 40, "--raw", "-q", "--ignore-eos"]
    ways = [({}, []), ({"dry_multiplier": 0.8}, ["--dry-multiplier", 0.8]),
            ({"dry_multiplier": 5, "dry_base": 3, "dry_allowed_length": 1, "dry_penalty_last_n": 500,
              "dry_sequence_breakers": ["e d", "."]},
             ["--dry-multiplier", 5, "--dry-base", 3, "--dry-allowed-length", 1, "--dry-penalty-last-n", 500,
              "--dry-sequence-breaker", "e d", "--dry-sequence-breaker", "."])]
    texts = [cli.run("run", *how, *way, STORY)[0].decode().rstrip("\n") for _, way in ways]
    same(len(set(texts)), 3, texts)
    for more in (["--no-lookup"], ["--cache", cli.path_of("cache")], ["--cache", cli.path_of("cache")]):
        same(cli.run("run", *how, *ways[1][1], *more, STORY)[0].decode().rstrip("\n"), texts[1], more)
    records = "".join(json.dumps({"id": i, "prompt": STORY, **ways[i][0]}) + "\n" for i in range(3))
    answers = cli.run("batch", "--ordered", *how, stdin=records.encode())[0]
    same([json.loads(line)["text"].rstrip("\n") for line in answers.splitlines()], texts)


STORY = "Once upon a time there was a little dog. It ran to the park, saw a red ball and was very happy. " * 30


def long_context(cli):
    """Selects the built-in model, whose context holds STORY: more than two pages."""
    cli.model = None
    if subprocess.run(cli.command("show"), capture_output=True).returncode:
        raise Skip("no built-in model")


def run_cached(cli, dir, *args, text=STORY, **options):
    """Runs STORY with a cache; returns stdout and stderr."""
    return cli.run("run", "--raw", "-n", 8, "--seed", 4, "--cache", dir, *args, text, **options)


@test
def cache_changes_nothing(cli, tmp):
    requires("cache")
    long_context(cli)
    for env in backends(cli):
        plain = answer(cli, env, STORY, "--seed", 3)
        for i in range(2):
            same(answer(cli, env, STORY, "--seed", 3, "--cache", tmp), plain, (env["LLAMA31_ISA"], "round", i))
        err = cli.run("run", "--raw", "-n", 2, STORY, env=dict(env, LLAMA31_CACHE=tmp))[1]
        check(" | cached 512 of " in err or " | cached 7" in err, err)


@test
def cache_of_another_backend(cli, tmp):
    """With --deterministic, backends share their pages; otherwise, and with the scalar backend, each has its own."""
    requires("cache")
    long_context(cli)
    envs = {env["LLAMA31_ISA"]: env for env in backends(cli)}
    for args, is_shared in (["--deterministic"], True), ([], False):
        n_cached = {}
        for isa, env in envs.items():
            out, err = run_cached(cli, os.path.join(tmp, str(is_shared)), *args, env=env)
            found = re.search(r" \| cached (\d+) of ", err)
            n_cached[isa] = int(found[1]) if found else 0
            same(out, run_cached(cli, cli.path_of("none-" + isa), *args, env=env)[0], (isa, args))
        first = [isa for isa in envs if isa != "scalar"][:1]
        same([isa for isa, n in n_cached.items() if not n],
             [isa for isa in envs if not is_shared or isa in first or isa == "scalar"], n_cached)


@test
def cache_in_other_commands(cli, tmp):
    requires("cache")
    long_context(cli)
    requests = "".join(json.dumps({"id": i, "prompt": STORY + p, "max_tokens": 12, "seed": i}) + "\n"
                       for i, p in enumerate(PROMPTS)).encode()
    for command, args, stdin in some((("batch", ["-q", "--raw", "--ordered", "--deterministic"], requests),
                                      ("batch", ["-q", "--raw", "--ordered", "--parallel", 1], requests),
                                      ("score", ["-q", "--json", "--raw", "--choices", "dog,cat", "-p", STORY], b""),
                                      ("chat", ["-q", "--seed", 3, "-n", 12, "-c", 2000], (STORY + "\n" + STORY).encode())), 2):
        plain = cli.run(command, *args, stdin=stdin)[0]
        for i in range(2):
            same(cli.run(command, *args, "--cache", tmp, stdin=stdin)[0], plain, (command, args, "round", i))


@test
def cache_and_echo(cli, tmp):
    """Passes that score an echoed prompt use other kernels than an uncached prefill, so their pages are not cached."""
    requires("cache")
    long_context(cli)
    records = [{"id": i, "prompt": STORY, "max_tokens": 4, "seed": 1, "logprobs": 2, "echo": not i} for i in (0, 1)]

    def answers(records, *args):
        lines = "".join(json.dumps(r) + "\n" for r in records).encode()
        return cli.run("batch", "--raw", "--ordered", *args, stdin=lines)[0].splitlines()

    plain = answers(records[1:])
    same(answers(records, "--cache", tmp)[0], answers(records[:1])[0])
    for i in range(3):
        same(answers(records[1:], "--cache", tmp), plain, i)


@test
def cache_survives_kills(cli, tmp):
    requires("cache")
    long_context(cli)
    plain = run_cached(cli, os.path.join(tmp, "other"), "-q")[0]
    dir, rng = os.path.join(tmp, "cache"), random.Random(2)
    start = time.monotonic()
    run_cached(cli, dir, "-q")
    whole = time.monotonic() - start
    for i in range(int(os.environ.get("LLAMA31_KILLS", in_ci(8, 3)))):
        shutil.rmtree(dir)
        p = subprocess.Popen(cli.command("run", "--raw", "-q", "-n", 8, "--cache", dir, STORY),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole * rng.uniform(0.3, 1.1))
        p.send_signal(signal.SIGKILL)
        p.wait()
        n_pages = sum(name.endswith(".kv") for name in os.listdir(dir)) if os.path.exists(dir) else 0
        same(cached_tokens(cli, dir), n_pages * 256, ("kill", i, "a damaged page"))
        same(run_cached(cli, dir, "-q")[0], plain, ("kill", i))


def copy_builtin_model(cli):
    """A copy of the built-in model, whose bytes a test can change, and the offset of its last tensor's data."""
    long_context(cli)
    source = os.path.join(ROOT, "stories", "stories.gguf")
    if not os.path.exists(source):
        raise Skip("no stories/stories.gguf")
    cli.model = shutil.copy(source, cli.path_of("model.gguf"))


def cached_tokens(cli, dir, *args):
    """Prompt tokens that a run loads from the cache."""
    found = re.search(r" \| cached (\d+) of ", run_cached(cli, dir, *args)[1])
    return int(found[1]) if found else 0


@test
def cache_of_a_changed_file(cli, tmp):
    """A byte of the model or of an adapter changes in place, outside of all samples, and the modification time stays."""
    requires("cache", "lora")
    copy_builtin_model(cli)
    n_pages = cached_tokens(cli, tmp) or cached_tokens(cli, tmp)
    check(n_pages >= 512, n_pages)
    lora = write_adapter(cli, "lora.gguf")
    for path, args in (cli.model, []), (lora, ["--lora", lora]):
        for back in in_ci((100, 1000, os.path.getsize(path) // 3), (1000,)):
            run_cached(cli, tmp, *args)
            same(cached_tokens(cli, tmp, *args), n_pages, "not warm")
            change_byte(path, back)
            same(cached_tokens(cli, tmp, *args), 0, (path, back, "a page of the file before the change"))
    copy = shutil.copy(cli.model, cli.path_of("copy.gguf"))  # one miss, then hits
    cli.model = copy
    run_cached(cli, tmp)
    same(cached_tokens(cli, tmp), n_pages)


@test
def cache_of_others(cli, tmp):
    """Directories and files that others own or can write to are refused, and replaced where that is possible."""
    requires("cache")
    long_context(cli)

    plain, n_pages = run_cached(cli, tmp, "-q")[0], cached_tokens(cli, tmp)
    check(n_pages, "not warm")

    # A directory that others can write to.
    for mode in some((0o777, 0o1777, 0o720, 0o702), 2):
        os.chmod(tmp, mode)
        out, err = run_cached(cli, tmp)
        check(out == plain and "others can write to it; run chmod go-w" in err and " cached " not in err, oct(mode), err)
    os.chmod(tmp, 0o700)
    same(cached_tokens(cli, tmp), n_pages)

    # Pages that others own or can write to. They are computed again, and replaced.
    pages = [os.path.join(tmp, name) for name in os.listdir(tmp)]
    owners = [(lambda path: os.chmod(path, 0o666)), (lambda path: os.chmod(path, 0o620)), link_to_itself]
    if os.geteuid() == 0:
        owners.append(lambda path: os.chown(path, 12345, 12345))
    for change in owners:
        for path in pages:
            change(path)
        same(cached_tokens(cli, tmp), 0, "pages that others can write to")

        # Each run finds the first page that is not usable.
        for _ in pages[1:]:
            run_cached(cli, tmp)
        same(cached_tokens(cli, tmp), n_pages, "not written again")

    # A directory of another user is not changed.
    if os.geteuid() == 0:
        os.chown(tmp, 12345, 12345)
        out, err = run_cached(cli, tmp)
        check(out == plain and "belongs to another user (id 12345)" in err and " cached " not in err, err)
        check(set(pages) <= {os.path.join(tmp, name) for name in os.listdir(tmp)}, "removed")


def link_to_itself(path):
    """Replaces a file by a symbolic link to its content."""
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


@test
def cache_that_cannot_be_written(cli, tmp):
    requires("cache")
    long_context(cli)
    plain = run_cached(cli, os.path.join(tmp, "other"), "-q")[0]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
    out, err = run_cached(cli, os.path.join(tmp, "full"), preexec_fn=limit)
    same(out, plain, "a full disk")
    same(err.count("continuing without writing"), 1, err)
    check(not any(f.endswith(".kv") for f in os.listdir(os.path.join(tmp, "full"))), os.listdir(tmp))
    out, err = run_cached(cli, "/dev/null")
    same(out, plain, "not a directory")
    same(err.count("continuing without a cache"), 1, err)


def write_adapter(cli, name, alpha=8.0, seed=1):
    """A LoRA adapter for the first layer's values."""
    shape = re.search(r"blk\.0\.attn_v\.weight +\S+ +\((\d+), (\d+)\)", cli.run("show", "--tensors")[0].decode())
    rows, cols = map(int, shape.groups())
    rng, tensors = random.Random(seed), []
    for side, form in (("a", (4, cols)), ("b", (rows, 4))):
        data = struct.pack("<%df" % (form[0] * form[1]), *[rng.uniform(-1, 1) for _ in range(form[0] * form[1])])
        tensors.append(weights.Literal("blk.0.attn_v.weight.lora_" + side, "f32", form, data))
    path = cli.path_of(name)
    gguf_writer.write_gguf(path, {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora",
                                  "adapter.lora.alpha": alpha}, tensors)
    return path


@test
def adapter_is_part_of_the_model(cli):
    """--lora changes the text; a cache or an output of another set of adapters is not used."""
    requires("lora", "cache")
    lora, other = write_adapter(cli, "lora.gguf"), write_adapter(cli, "other.gguf", seed=2)
    env, prompt, cache = dict(os.environ), PROMPTS[0] * 60, cli.path_of("cache")
    greedy = ["--temp", 0, "--seed", 1]
    ways = ([], ["--lora", lora], ["--lora", lora + ":0.5"], ["--lora", other], ["--lora", lora, "--lora", other])
    plain = [answer(cli, env, prompt, *greedy, *args) for args in ways]
    check(len(set(map(str, plain))) == len(ways), "an adapter changes nothing")
    for _ in range(2):
        for args, expected in zip(ways, plain):
            same(answer(cli, env, prompt, *greedy, "--cache", cache, *args), expected, args)
    same(answer(cli, env, prompt, *greedy, "--lora", lora + ":0")["text"], plain[0]["text"], "times 0")

    requests = b'{"id": "a", "prompt": "Once", "max_tokens": 4}\n'
    out = cli.path_of("out.jsonl")
    cli.run("batch", "-q", "-o", out, "--lora", lora, stdin=requests)
    cli.run("batch", "-q", "-o", out, "--resume", "--lora", lora, stdin=requests)
    for args in ([], ["--lora", other], ["--lora", lora + ":0.5"]):
        check("--lora" in cli.run("batch", "-q", "-o", out, "--resume", *args, stdin=requests, code=2)[1], args)
    for args, code, says in ((["--lora", lora + ":x"], 2, "expected FILE or FILE:SCALE"),
                             (["--lora", lora + ":"], 2, "expected FILE or FILE:SCALE"),
                             (["--lora", lora + ":nan"], 2, "expected FILE or FILE:SCALE"),
                             (["--lora", "none.gguf"], 1, "none.gguf"), (["--lora", "none.gguf:2"], 1, "none.gguf: ")):
        cli.refuses(code, says, "run", "Once", *args)
    cli.refuses(3, "this is a LoRA adapter", "show", lora)


@test
def cache_sizes(cli):
    """--cache-size accepts a number of GiB, or one with a unit, and names what it refuses."""
    requires("cache")
    args = ["run", "--raw", "-n", 1, "--cache", cli.path_of("cache"), "a"]
    for size in "1", "0.5", "500M", "64k", "1T":
        cli.run(*args, "--cache-size", size)
    for size in "x", "", "5Q", "5MB", "0", "-1", "nan", "9999999", "5 G":
        cli.refuses(2, '--cache-size: expected a size like 500M or 8G, found "%s"' % size, *args, "--cache-size", size)
    cli.run(*args[:4], "--cache", "", "--cache-size", "x", "a")  # no cache, so its size does not matter

if __name__ == "__main__":
    main("reuse")
