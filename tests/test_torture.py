"""Fault injection: allocations, writes and other system calls that fail, and kills at random times.

A preloaded library (tests/torture/torture.c) counts the calls of a run and makes the N-th fail. By
default a few N are tested; LLAMA31_TORTURE=all tests all of them, and LLAMA31_KILLS sets the number of kills."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

from cli import PROGRAM, ROOT, Skip, check, in_ci, main, read, read_lines, requires, same, some, test

LIBRARY = os.path.join(ROOT, os.environ.get("BUILD", "build"), "torture.so")
STORIES = os.path.join(ROOT, "stories", "stories.gguf")
ALL = os.environ.get("LLAMA31_TORTURE") == "all"
KILLS = int(os.environ.get("LLAMA31_KILLS", in_ci(12, 4)))
REQUESTS = b"".join(b'{"id":%d,"prompt":"Once upon a time %d","max_tokens":6,"seed":%d}\n' % (i, i, i) for i in range(8))
DIALOGUE = b"Hello\n/undo\nHello again\n"
COMMANDS = {  # name: (arguments, stdin)
    "run": (["run", "-t", "1", "-n", "3", "--seed", "1", "Once"], b""),
    "json": (["run", "-t", "2", "-n", "3", "--json", "--logprobs", "2", "-r", "zebra", "--logit-bias", "5+1", "Once"], b""),
    "chat": (["chat", "-t", "1", "-n", "3", "--seed", "1", "--commands", "--session", "s.jsonl"], DIALOGUE),
    "batch": (["batch", "-t", "1", "-i", "-", "-o", "out.jsonl"], b"".join(REQUESTS.splitlines(True)[:3])),
    "score": (["score", "-t", "1", "--choices", "a,b", "Once"], b""),
    "tokenize": (["tokenize", "Once upon a time"], b""),
    "logits": (["logits", "-t", "1", "--ids", "1,2,3", "-o", "out.f32"], b""),
    "show": (["show", "-t", "1", "--tensors"], b""),
    "quantize": (["quantize", "-q", "-t", "1", STORIES, "out.gguf", "Q4_0"], b""),
    "rope": (["rope", "--positions", "3"], b""),
}

CALLS = "open", "stat", "fstat", "access", "fchmod", "read", "pread", "flock", "close"


def needs_library():
    if not os.path.exists(LIBRARY):
        raise Skip("no torture.so, which needs the allocator names of glibc")


def built(*names):
    """Of these commands, those that the program was built with."""
    try:
        requires("quantize")
    except Skip:
        return [n for n in names if n != "quantize"]
    return names


def run(args, tmp, stdin=b"", **faults):
    env = dict(os.environ, LD_PRELOAD=LIBRARY, **{"TORTURE_" + k.upper(): str(v) for k, v in faults.items() if v})
    return subprocess.run([PROGRAM, *args], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=tmp,
                          timeout=60)


def counts(args, tmp, stdin=b"", **faults):
    """The number of allocations, of writes, and of the calls `call` of a run."""
    r = run(args, tmp, stdin, count=os.path.join(tmp, "counts"), **faults)
    same(r.returncode, 0, r.stderr)
    n = [int(x) for x in read(os.path.join(tmp, "counts")).split()]
    os.remove(os.path.join(tmp, "counts"))
    return n


def sampled(n, few):
    """1 to n, or `few` of them (a third as many outside .ci/run)."""
    few = in_ci(few, few // 3)
    return range(1, n + 1) if ALL or n <= few else sorted(random.Random(n).sample(range(1, n + 1), few))


def contents(tmp):
    return {name: read(os.path.join(tmp, name)) for name in os.listdir(tmp)}


def clean(tmp):
    for name in os.listdir(tmp):
        os.remove(os.path.join(tmp, name))


def check_files(tmp, what, code):
    """No temporary files; after a failure, only journals, in whole lines."""
    for name in os.listdir(tmp):
        check(not name.endswith(".tmp"), what, "left", name)
        if name.endswith(".jsonl"):
            read_lines(os.path.join(tmp, name))
        else:
            check(code == 0, what, "failed and left", name)


def texts(tmp):
    """The ids and texts of a batch, except those of failed records."""
    path = os.path.join(tmp, "out.jsonl")
    return {(a["id"], a["text"]) for a in (read_lines(path) if os.path.exists(path) else []) if "error" not in a}


@test
def failing_allocations(tmp):
    """Allocation N fails, alone or with all later ones: exit 1 with a message, unless the memory was not essential. The
    other records of a batch have the same texts."""
    needs_library()
    for name in built(*COMMANDS):
        args, stdin = COMMANDS[name]
        n, _, _ = counts(args, tmp, stdin)
        expected = texts(tmp)
        clean(tmp)
        for at in sampled(n, 6):
            for onwards in "", "+":
                r = run(args, tmp, stdin, alloc="%d%s" % (at, onwards))
                what = "%s: allocation %d%s of %d: exit %d: %s" % (name, at, onwards, n, r.returncode, r.stderr[-200:])
                check(r.returncode in (0, 1, 5) and (r.returncode == 0 or r.stderr), what)
                check_files(tmp, what, r.returncode)
                check(texts(tmp) <= expected, what, texts(tmp), expected)
                clean(tmp)


def check_failing_writes(tmp, name, named):
    args, stdin = COMMANDS[name]
    args = args + ["--seed", "1"] if name == "batch" else args
    _, n, _ = counts(args, tmp, stdin, named=named)
    expected = contents(tmp)
    check(n > 0, name)
    clean(tmp)
    for at in sampled(n, 5):
        for how in "i", "s", "a", "e", "+e":
            r = run(args, tmp, stdin, write="%d%s" % (at, how), named=named)
            what = "%s: write %d%s of %d: exit %d: %s" % (name, at, how, n, r.returncode, r.stderr[-200:])
            if how in ("s", "a", "i") and r.returncode == 0:
                same(contents(tmp), expected, what)
            else:
                check(r.returncode in (0, 1), what)
                if r.returncode == 0:  # a later write of a chat, or rename instead of link, has succeeded
                    same(sorted(os.listdir(tmp)), sorted(expected), what)
            check_files(tmp, what, r.returncode)
            clean(tmp)


@test
def failing_writes(tmp):
    """Write N is interrupted, short or would block: the output is the same. Write N finds the disk full: exit 1."""
    needs_library()
    for name in some(built("run", "chat", "batch", "logits", "quantize"), 2):
        check_failing_writes(tmp, name, named=0)


@test
def failing_writes_to_named_files(tmp):
    """failing_writes() as on file systems without unnamed files (O_TMPFILE)."""
    needs_library()
    for name in built("chat", "logits", "quantize"):
        check_failing_writes(tmp, name, named=1)


@test
def failing_calls(tmp):
    """A failing call that opens, reads, locks or closes a file: an error message, or the same files as without it. A file
    whose close() fails has been synced and keeps its name."""
    needs_library()
    for name in some(built("run", "chat", "batch", "logits", "quantize")):
        args, stdin = COMMANDS[name]
        args = args + ["--seed", "1"] if name == "batch" else args

        for call in CALLS:
            _, _, n = counts(args, tmp, stdin, call=call)
            expected = contents(tmp)
            clean(tmp)

            for at in sampled(n, 12):
                for how in ("e", "i", "a") if call == "read" else ("e",):
                    r = run(args, tmp, stdin, call=call, at="%d%s" % (at, how))
                    what = "%s: %s %d%s of %d: exit %d: %s" % (name, call, at, how, n, r.returncode, r.stderr[-200:])

                    check(r.returncode in (0, 1, 2, 3) and (r.returncode == 0 or r.stderr), what)
                    check(r.returncode == 0 or (call != "flock" and how == "e"), what)  # locks are optional
                    if r.returncode == 0:
                        same(sorted(contents(tmp)), sorted(expected), what)

                    is_synced = call == "close" and contents(tmp) == expected
                    check_files(tmp, what, 0 if is_synced else r.returncode)
                    clean(tmp)


@test
def failing_reads(tmp):
    """A prompt that cannot be read to its end is an error, not a shorter prompt."""
    needs_library()
    source = os.path.join(tmp, "prompt")
    with open(source, "w") as f:
        f.write("Once upon a time " * 9000)
    for args, stdin in (["tokenize", "--count", "-f", source], b""), (["tokenize", "--count"], read(source)):
        expected = run(args, tmp, stdin).stdout
        n = counts(args, tmp, stdin, call="read")[2]
        codes = []
        for at in sampled(n, 12):
            for how in "e", "i", "a":
                r = run(args, tmp, stdin, call="read", at="%d%s" % (at, how))
                codes.append(r.returncode)
                what = "%s: read %d%s of %d: exit %d: %s" % (args, at, how, n, r.returncode, r.stderr[-200:])
                check(r.returncode in ((0, 1) if how == "e" else (0,)), what)
                same(r.stdout, b"" if r.returncode else expected, what)
        check(1 in codes, args, "no failing read ended the run")


@test
def failing_calls_keep_the_target(tmp):
    """logits --force replaces a file: after a failing call the file is the old one or the new one, and exit 0 means new."""
    needs_library()
    args, _ = COMMANDS["logits"]
    args, out = args + ["--force"], os.path.join(tmp, "out.f32")
    subprocess.run([PROGRAM, *args], cwd=tmp, check=True)
    new = read(out)
    for call in CALLS:
        _, _, n = counts(args, tmp, call=call)
        for at in sampled(n, 12):
            with open(out, "wb") as f:
                f.write(b"old")
            r = run(args, tmp, call=call, at="%de" % at)
            what = "%s %d of %d: exit %d: %s" % (call, at, n, r.returncode, r.stderr[-200:])
            check(r.returncode in (0, 1, 2, 3) and (r.returncode == 0 or r.stderr), what)
            check(os.listdir(tmp) == ["out.f32"] and read(out) in (b"old", new), what, os.listdir(tmp))
            check(r.returncode or read(out) == new, what)


def kill_at_random(args, tmp, stdin, longest, rng):
    """Kills a run after up to `longest` seconds. Returns its exit code."""
    p = subprocess.Popen([PROGRAM, *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         cwd=tmp)
    try:
        p.stdin.write(stdin)
        p.stdin.close()
    except OSError:
        pass
    time.sleep(rng.random() * longest)
    p.send_signal(rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
    return p.wait()


@test
def batch_kills(tmp):
    """A batch killed and resumed many times has the lines of an undisturbed run, each once."""
    args = ["batch", "-q", "-t", "1", "-i", "in", "-o", "out.jsonl", "--seed", "1"]
    out = os.path.join(tmp, "out.jsonl")
    with open(os.path.join(tmp, "in"), "wb") as f:
        f.write(REQUESTS)

    start = time.time()
    subprocess.run([PROGRAM, *args], cwd=tmp, check=True)
    longest, rng = 1.2 * (time.time() - start), random.Random(1)
    expected = sorted(read(out).splitlines())
    os.remove(out)

    for _ in range(KILLS):
        code = kill_at_random(args + ["--resume"], tmp, b"", longest, rng)
        check(code in (0, -2, -9, -15, 130), code)  # -2: before the handler was installed
        if code == 0:
            same(sorted(read(out).splitlines()), expected)
            os.remove(out)

    subprocess.run([PROGRAM, *args, "--resume"], cwd=tmp, check=True)
    same(sorted(read(out).splitlines()), expected)
    same(sorted(os.listdir(tmp)), ["in", "out.jsonl"])


@test
def session_kills(tmp):
    """A session keeps its messages through a kill, in whole lines except perhaps the last, which is repaired."""
    path, rng, before = os.path.join(tmp, "s.jsonl"), random.Random(2), []
    args = ["chat", "-q", "-t", "1", "-n", "4", "--seed", "1", "--session", "s.jsonl"]
    for i in range(KILLS):
        kill_at_random(args, tmp, b"Question %d\n" % i, 0.05, rng)
        lines = read(path).split(b"\n") if os.path.exists(path) else [b""]
        messages = [json.loads(line) for line in lines[:-1]]
        same(messages[:len(before)], before, "kill %d" % i)
        before = messages
        if len(before) > 12:
            os.remove(path)
            before = []
    same([f for f in os.listdir(tmp) if f != "s.jsonl"], [])


@test
def quantize_kills(tmp):
    """The output is complete or absent. Only SIGKILL may leave a temporary file, where it needs a name."""
    requires("quantize")
    rng, out = random.Random(3), os.path.join(tmp, "out.gguf")
    shutil.copy(STORIES, os.path.join(tmp, "in.gguf"))
    args = ["quantize", "-q", "--force", "-t", "1", "in.gguf", "out.gguf", "Q4_0"]
    start = time.time()
    subprocess.run([PROGRAM, *args], cwd=tmp, check=True)
    longest, expected = 1.2 * (time.time() - start), read(out)
    for _ in range(KILLS):
        if os.path.exists(out):
            os.remove(out)
        code = kill_at_random(args, tmp, b"", longest, rng)
        if os.path.exists(out):
            same(read(out), expected)
        left = [f for f in os.listdir(tmp) if f not in ("in.gguf", "out.gguf")]
        check(code == -9 or not left, code, left)
        for f in left:
            os.remove(os.path.join(tmp, f))


if __name__ == "__main__":
    main("torture")
