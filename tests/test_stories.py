#!/usr/bin/env python3
"""The built-in story model: its file, what it costs to say held-out stories, what it tells when asked."""
import json
import lzma
import os
import re

from cli import GOLDEN, ROOT, call, check, main, same, test

MODEL = os.path.join(ROOT, "models", "stories.gguf")
NATS_PER_BYTE = 0.49339 * 0.75  # 25 % below stories260K on the same stories


def tell(*args):
    return json.loads(call("run", "--json", "-n", "500", *args)[0])


@test
def size():
    check(os.path.getsize(MODEL) <= 5000000, "the file is larger than 5 MB")


@test
def heldout(cli):
    """200 stories that the teacher told at temperature 0.8, each from a fresh context."""
    with lzma.open(os.path.join(GOLDEN, "heldout_stories.txt.xz"), "rt", encoding="utf-8") as f:
        stories = [s.strip() for s in f.read().split("<|end|>") if s.strip()]
    check(len(stories) == 200, "200 stories")
    source = cli.write("stories.jsonl", [{"text": s} for s in stories])
    r = json.loads(call("score", "--perplexity", source, "--json")[0])
    check(r["n_bytes"] == sum(len(s.encode()) for s in stories), "all bytes are counted")
    check(r["nll"] / r["n_bytes"] <= NATS_PER_BYTE, "%.4f nats per byte" % (r["nll"] / r["n_bytes"]))


@test
def asked():
    """Asked for a dog and a red ball, at least 14 of 20 stories have both and end by themselves."""
    good = 0
    for seed in range(1, 21):
        r = tell("--seed", str(seed), "--temp", "0.6", "Tell me a story about a dog and a red ball")
        text = r["text"].lower()
        good += r["finish_reason"] == "stop" and all(re.search(r"\b" + w, text) for w in ("dog", "ball"))
    check(good >= 14, "%d of 20" % good)


@test
def begun():
    """Given a beginning, it tells the story from there, in whole sentences, to an end."""
    for seed in range(1, 4):
        r = tell("--seed", str(seed), "--temp", "0.5", "Once upon a time")
        text = r["text"].strip()
        check(r["finish_reason"] == "stop" and text.startswith("Once upon a time") and text[-1] in '.!?"', text)


@test
def greedy():
    """llama.cpp says the same from the same file."""
    with open(os.path.join(GOLDEN, "stories_greedy.json")) as f:
        for case in json.load(f):
            text = tell("--raw", "--temp", "0", "-n", str(case["n"]), case["prompt"])["text"]
            check(text == case["text"], "%r, expected %r" % (text, case["text"]))


if __name__ == "__main__":
    main("stories")
