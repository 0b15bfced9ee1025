#!/usr/bin/env python3
"""The built-in story model: file size, perplexity on held-out stories, quality of its stories."""
import json
import lzma
import os
import re

from cli import GOLDEN, ROOT, call, check, main, same, slow, some, test

MODEL = os.path.join(ROOT, "stories", "stories.gguf")
NATS_PER_BYTE = 0.49339 * 0.75  # 25 % below stories260K on the same stories


def generate(*args):
    return json.loads(call("run", "--json", "-n", "500", *args)[0])


@test
def size():
    check(os.path.getsize(MODEL) <= 5000000, "the file is larger than 5 MB")


@test
@slow
def heldout(cli):
    """200 stories of the teacher model at temperature 0.8, each scored in a context of its own."""
    with lzma.open(os.path.join(GOLDEN, "heldout_stories.txt.xz"), "rt", encoding="utf-8") as f:
        stories = [s.strip() for s in f.read().split("<|end|>") if s.strip()]
    check(len(stories) == 200, "200 stories")
    source = cli.write("stories.jsonl", [{"text": s} for s in stories])
    r = json.loads(call("score", "--perplexity", source, "--json")[0])
    check(r["n_bytes"] == sum(len(s.encode()) for s in stories), "n_bytes")
    check(r["nll"] / r["n_bytes"] <= NATS_PER_BYTE, "%.4f nats per byte" % (r["nll"] / r["n_bytes"]))


@test
@slow
def instruction():
    """Of 20 stories about a dog and a red ball, at least 14 mention both and end with a stop token."""
    good = 0
    for seed in range(1, 21):
        r = generate("--seed", str(seed), "--temp", "0.6", "Tell me a story about a dog and a red ball")
        text = r["text"].lower()
        good += r["finish_reason"] == "stop" and all(re.search(r"\b" + w, text) for w in ("dog", "ball"))
    check(good >= 14, "%d of 20" % good)


@test
def continuation():
    """A story continues the given beginning and ends with a whole sentence and a stop token."""
    for seed in range(1, 4):
        r = generate("--seed", str(seed), "--temp", "0.5", "Once upon a time")
        text = r["text"].strip()
        check(r["finish_reason"] == "stop" and text.startswith("Once upon a time") and text[-1] in '.!?"', text)


@test
def greedy():
    """Greedy output equals that of llama.cpp with the same file."""
    with open(os.path.join(GOLDEN, "stories_greedy.json")) as f:
        for case in json.load(f):
            text = generate("--raw", "--temp", "0", "-n", str(case["n"]), case["prompt"])["text"]
            check(text == case["text"], "%r, expected %r" % (text, case["text"]))


@test
def samples():
    """The commands of stories/README.md print the stories beside them."""
    with open(os.path.join(ROOT, "stories", "README.md"), encoding="utf-8") as f:
        found = re.findall(r'^`LLAMA31_ISA=scalar llama31 run --seed (\d+) "(.*)"`:\n\n((?:> .*\n)+)', f.read(), re.M)
    check(len(found) == 3, found)
    for seed, prompt, quoted in some(found):
        text = call("run", "-q", "--seed", seed, prompt, env=dict(os.environ, LLAMA31_ISA="scalar"))[0].decode()
        same(text.strip(), quoted.replace("> ", "").replace("  \n", "\n").strip(), seed)


if __name__ == "__main__":
    main("stories")
