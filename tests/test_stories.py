#!/usr/bin/env python3
"""The built-in story model: its file, what it costs to say held-out stories, what it tells when asked.

Prints "ok NAME", "FAIL NAME: what" or "skip NAME: why"."""
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests", "golden")
MODEL = os.path.join(ROOT, "models", "stories.gguf")
PROGRAM = os.path.join(ROOT, os.environ.get("BUILD", "build"), "llama31")
NATS_PER_BYTE = 0.49339 * 0.75  # 25 % below stories260K on the same stories


class Skip(Exception):
    pass


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def run(*args):
    env = {k: v for k, v in os.environ.items() if k != "LLAMA31_MODEL"}
    p = subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=120)
    if b"not built" in p.stderr:
        raise Skip("verb %s is not built" % args[0])
    check(p.returncode == 0, "%s: exit code %d: %s" % (args[0], p.returncode, p.stderr.decode()[-200:]))
    return p.stdout.decode()


def tell(*args):
    return json.loads(run("run", "--json", "-n", "500", *args))


def size():
    check(os.path.getsize(MODEL) <= 5000000, "the file is larger than 5 MB")


def heldout():
    """200 stories that the teacher told at temperature 0.8, each from a fresh context."""
    with lzma.open(os.path.join(GOLDEN, "heldout_stories.txt.xz"), "rt", encoding="utf-8") as f:
        stories = [s.strip() for s in f.read().split("<|end|>") if s.strip()]
    check(len(stories) == 200, "200 stories")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(json.dumps({"text": s}) + "\n" for s in stories)
        f.flush()
        r = json.loads(run("score", "--perplexity", f.name, "--json"))
    check(r["n_bytes"] == sum(len(s.encode()) for s in stories), "all bytes are counted")
    check(r["nll"] / r["n_bytes"] <= NATS_PER_BYTE, "%.4f nats per byte" % (r["nll"] / r["n_bytes"]))


def asked():
    """Asked for a dog and a red ball, at least 14 of 20 stories have both and end by themselves."""
    good = 0
    for seed in range(1, 21):
        r = tell("--seed", str(seed), "--temp", "0.6", "Tell me a story about a dog and a red ball")
        text = r["text"].lower()
        good += r["finish_reason"] == "stop" and all(re.search(r"\b" + w, text) for w in ("dog", "ball"))
    check(good >= 14, "%d of 20" % good)


def begun():
    """Given a beginning, it tells the story from there, in whole sentences, to an end."""
    for seed in range(1, 4):
        r = tell("--seed", str(seed), "--temp", "0.5", "Once upon a time")
        text = r["text"].strip()
        check(r["finish_reason"] == "stop" and text.startswith("Once upon a time") and text[-1] in '.!?"', text)


def greedy():
    """llama.cpp says the same from the same file."""
    with open(os.path.join(GOLDEN, "stories_greedy.json")) as f:
        for case in json.load(f):
            text = tell("--raw", "--temp", "0", "-n", str(case["n"]), case["prompt"])["text"]
            check(text == case["text"], "%r, expected %r" % (text, case["text"]))


def main():
    for f in (size, heldout, asked, begun, greedy):
        try:
            f()
        except Skip as e:
            print("skip stories_%s: %s" % (f.__name__, e))
        except Exception as e:
            print("FAIL stories_%s: %s" % (f.__name__, " ".join(str(e).split()) or type(e).__name__))
        else:
            print("ok stories_" + f.__name__)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
