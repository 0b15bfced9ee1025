#!/usr/bin/env python3
"""Prompts with common beginnings in five orders, and the tables of docs/batch.md: prompt tokens that batch computes, divided
by those of an ideal order.

usage: batch_orders.py [MODEL]"""
import json
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, os.environ.get("BUILD", "build"), "llama31")
WORDS = ("Once upon a time there was a little girl named Lily. She loved to play with her dog in the park. The sun was warm "
         "and they found a red ball under the big tree.").split()


def contexts(n, n_questions, n_words, system=""):
    """{order: [prompt]} of n contexts of n_words with some questions each."""
    rng = random.Random(8)
    heads = [system + " ".join(rng.choice(WORDS) for _ in range(n_words)) for _ in range(n)]
    rows = [[head + " Q: " + "abcdefghij"[q] * 3 + " cat?" for q in range(n_questions)] for head in heads]
    grouped = [text for row in rows for text in row]
    halves = [text for half in (0, 1) for row in rows for text in row[half::2]]
    writers = [text for i in range(0, n, 4) for column in zip(*rows[i:i + 4]) for text in column]
    return {"grouped": grouped, "shuffled": rng.sample(grouped, len(grouped)), "by question": [t for c in zip(*rows) for t in c],
            "two halves": halves, "four writers": writers}


def count(texts, *options, program=(PROGRAM,)):
    """(records, prompt tokens computed, prompt tokens computed in an ideal order) of a run."""
    source = "".join(json.dumps({"prompt": text, "max_tokens": 1}) + "\n" for text in texts).encode()
    r = subprocess.run([*program, "batch", "--raw", *options], input=source, capture_output=True)
    numbers = re.search(r"(\d+) records?,.* prompts (\d+) tok(?:, (\d+) of them shared)? \((\d+) sharable\)", r.stderr.decode())
    n, n_prompt, n_shared, n_sharable = (int(x or 0) for x in numbers.groups())
    return n, n_prompt - n_shared, n_prompt - n_sharable


def main(options):
    systems = ("a context", ""), ("system prompt, context", " ".join(WORDS) * 4 + " ")
    parallels, sizes = (1, 4, 16), (4, 6, 16)

    print("| prompts | order |" + "".join(" `-np %d` |" % n for n in parallels) + "\n|---|---|" + "---|" * len(parallels))
    for name, system in systems:
        for order, texts in contexts(48, 6, 90, system).items():
            found = [count(texts, "--parallel", str(n), *options) for n in parallels]
            print("| %s | %s |" % (name, order), *("%.3f |" % (computed / best) for _, computed, best in found), flush=True)

    print("\n| prompts | order |" + "".join(" %d shards |" % n for n in sizes) + "\n|---|---|" + "---|" * len(sizes))
    for name, system in systems:
        for order, texts in contexts(200, 6, 90, system).items():
            n_all, _, best = count(texts, "--check", *options)
            print("| %s | %s |" % (name, order), end="")
            for n in sizes:
                parts = [count(texts, "--check", "--shard", "%d/%d" % (k, n), *options) for k in range(1, n + 1)]
                print(" %.2f (%.2f) |" % (sum(p[2] for p in parts) / best, max(p[0] for p in parts) * n / n_all), end="", flush=True)
            print()


if __name__ == "__main__":
    main(["-m", *sys.argv[1:]] if sys.argv[1:] else [])
