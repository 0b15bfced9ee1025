"""Short memory, failing writes and kills, at every place where they can happen (or, for a quick run, at some of them:
LLAMA31_TORTURE=all takes all, and so many kills as LLAMA31_KILLS says).

A library that is preloaded (tests/torture/torture.c) counts the allocations and writes of a run, and lets the N-th fail."""
import json
import os
import random
import shutil
import signal
import subprocess
import time
from cli import PROGRAM, ROOT, Skip, check, main, read_lines, same, test

LIBRARY = os.path.join(ROOT, os.environ.get("BUILD", "build"), "torture.so")
STORIES = os.path.join(ROOT, "models", "stories.gguf")
ALL = os.environ.get("LLAMA31_TORTURE") == "all"
KILLS = int(os.environ.get("LLAMA31_KILLS", "12"))
REQUESTS = b"".join(b'{"id":%d,"prompt":"Once upon a time %d","max_tokens":6,"seed":%d}\n' % (i, i, i) for i in range(8))
TALK = b"Hello\n/undo\nHello again\n"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def needs_library():
    if not os.path.exists(LIBRARY):
        raise Skip("no torture.so: it needs a C library that names its own allocator as glibc does")


def run(args, tmp, stdin=b"", **plan):
    env = dict(os.environ, LD_PRELOAD=LIBRARY, **{"TORTURE_" + k.upper(): str(v) for k, v in plan.items()})
    return subprocess.run([PROGRAM, *args], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=tmp,
                          timeout=60)


def counts(args, tmp, stdin=b""):
    r = run(args, tmp, stdin, count=os.path.join(tmp, "counts"))
    same(r.returncode, 0, r.stderr)
    n = [int(x) for x in read(os.path.join(tmp, "counts")).split()]
    os.remove(os.path.join(tmp, "counts"))
    return n


def places(n, few):
    return range(1, n + 1) if ALL or n <= few else sorted(random.Random(n).sample(range(1, n + 1), few))


JOBS = {
    "run": (["run", "-t", "1", "-n", "3", "--seed", "1", "Once"], b""),
    "json": (["run", "-t", "2", "-n", "3", "--json", "--logprobs", "2", "-r", "zebra", "--logit-bias", "5+1", "Once"], b""),
    "chat": (["chat", "-t", "1", "-n", "3", "--seed", "1", "--session", "s.jsonl"], TALK),
    "batch": (["batch", "-t", "1", "-i", "-", "-o", "out.jsonl"], b"".join(REQUESTS.splitlines(True)[:3])),
    "score": (["score", "-t", "1", "--choices", "a,b", "Once"], b""),
    "tokenize": (["tokenize", "Once upon a time"], b""),
    "logits": (["logits", "-t", "1", "--ids", "1,2,3", "-o", "out.f32"], b""),
    "show": (["show", "-t", "1", "--tensors"], b""),
    "quantize": (["quantize", "-q", "-t", "1", STORIES, "out.gguf", "Q4_0"], b""),
    "rope": (["rope", "--positions", "3"], b""),
}


def clean(tmp):
    for name in os.listdir(tmp):
        os.remove(os.path.join(tmp, name))


def check_left(tmp, name, code):
    """Whole files or none, and no file beside them."""
    for left in os.listdir(tmp):
        check(not left.endswith(".tmp"), name, "left", left)
        path = os.path.join(tmp, left)
        if left.endswith(".jsonl"):
            read_lines(path)
        else:
            check(code == 0, name, "failed, and left", left)


@test
def short_of_memory(tmp):
    """The N-th allocation fails, or all from the N-th on: exit 1 and a line that says so, or it was not needed."""
    needs_library()
    for name, (args, stdin) in JOBS.items():
        n, _ = counts(args, tmp, stdin)
        clean(tmp)
        for at in places(n, 6):
            for goes_on in "", "+":
                r = run(args, tmp, stdin, alloc="%d%s" % (at, goes_on))
                what = "%s: allocation %d%s of %d: exit %d: %s" % (name, at, goes_on, n, r.returncode, r.stderr[-200:])
                check(r.returncode in (0, 1, 5) and (r.returncode == 0 or r.stderr), what)
                check_left(tmp, what, r.returncode)
                clean(tmp)


@test
def failing_writes(tmp):
    """The N-th write is interrupted, short, would block (as if nothing had been), or finds the disk full (exit 1)."""
    needs_library()
    for name in "run", "chat", "batch", "logits", "quantize":
        args, stdin = JOBS[name]
        args = args + ["--seed", "1"] if name == "batch" else args
        _, n = counts(args, tmp, stdin)
        whole = {f: read(os.path.join(tmp, f)) for f in os.listdir(tmp)}
        check(n > 0, name)
        clean(tmp)
        for at in places(n, 5):
            for how in "i", "s", "a", "e", "+e":
                r = run(args, tmp, stdin, write="%d%s" % (at, how))
                what = "%s: write %d%s of %d: exit %d: %s" % (name, at, how, n, r.returncode, r.stderr[-200:])
                if how in ("s", "a", "i") and r.returncode == 0:
                    same({f: read(os.path.join(tmp, f)) for f in os.listdir(tmp)}, whole, what)
                else:
                    check(r.returncode in (0, 1), what)
                    if r.returncode == 0:  # a chat's next write, or a link instead of a rename, made up for it
                        check(sorted(os.listdir(tmp)) == sorted(whole), what)
                check_left(tmp, what, r.returncode)
                clean(tmp)


def kill_at_random(args, tmp, stdin, longest, rng):
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
    """Killed again and again and resumed: the lines of a run that was left alone, each once."""
    args = ["batch", "-q", "-t", "1", "-i", "in", "-o", "out.jsonl", "--seed", "1"]
    with open(os.path.join(tmp, "in"), "wb") as f:
        f.write(REQUESTS)
    start = time.time()
    subprocess.run([PROGRAM, *args], cwd=tmp, check=True)
    longest, rng = 1.2 * (time.time() - start), random.Random(1)
    expected = sorted(read(os.path.join(tmp, "out.jsonl")).splitlines())
    os.remove(os.path.join(tmp, "out.jsonl"))
    for _ in range(KILLS):
        code = kill_at_random(args + ["--resume"], tmp, b"", longest, rng)
        check(code in (0, -2, -9, -15, 130), code)  # -2: before it had begun
        if code == 0:
            same(sorted(read(os.path.join(tmp, "out.jsonl")).splitlines()), expected)
            os.remove(os.path.join(tmp, "out.jsonl"))
    subprocess.run([PROGRAM, *args, "--resume"], cwd=tmp, check=True)
    same(sorted(read(os.path.join(tmp, "out.jsonl")).splitlines()), expected)
    same(sorted(os.listdir(tmp)), ["in", "out.jsonl"])


@test
def session_kills(tmp):
    """What a session held before a kill it holds after it, in whole lines (but for the last, which is mended)."""
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
    """There is a whole file or none; a run that was killed outright may leave its beginning under another name."""
    rng = random.Random(3)
    shutil.copy(STORIES, os.path.join(tmp, "in.gguf"))
    args = ["quantize", "-q", "--force", "-t", "1", "in.gguf", "out.gguf", "Q4_0"]
    start = time.time()
    subprocess.run([PROGRAM, *args], cwd=tmp, check=True)
    longest, expected = 1.2 * (time.time() - start), read(os.path.join(tmp, "out.gguf"))
    for _ in range(KILLS):
        os.remove(os.path.join(tmp, "out.gguf")) if os.path.exists(os.path.join(tmp, "out.gguf")) else None
        code = kill_at_random(args, tmp, b"", longest, rng)
        if os.path.exists(os.path.join(tmp, "out.gguf")):
            same(read(os.path.join(tmp, "out.gguf")), expected)
        left = [f for f in os.listdir(tmp) if f not in ("in.gguf", "out.gguf")]
        check(code == -9 or not left, code, left)
        for f in left:
            os.remove(os.path.join(tmp, f))


if __name__ == "__main__":
    main("torture")
