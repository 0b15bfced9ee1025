#!/usr/bin/env python3
"""Compares the predictions of a model with those of a reference on a text: the cost of quantization, of a type of the KV
cache, or of a backend. Needs only the Python standard library.

    scripts/compare_logits.py llama.gguf llama-q4_k_m.gguf text.txt
    scripts/compare_logits.py "llama.gguf --kv f32" "llama.gguf --kv q8_0,q4_0" text.txt -c 900

A model may be followed by options of `llama31 logits`. The text is divided into windows of -c tokens. As in
`score --perplexity`, BOS replaces the first token of a window, and what follows each token of the second half is
predicted. Printed are:

- the Kullback-Leibler divergence of the predictions P from those of the reference R, sum of r (log r - log p), in nats
- how often both have the same most likely token
- the normalized mean squared error of the logits, sum of (p - r)^2 / sum of r^2

Comparing takes about a minute per 2,000 predictions with a vocabulary of 128,000 tokens."""
import lib.interrupt  # noqa: F401
import argparse
import array
import json
import math
import operator
import os
import shlex
import subprocess
import tempfile

from lib.gguf_writer import Failure
from lib.program import find_program, run_script

DEFAULT_WINDOW = 512


class Model:
    """A model file, with options of `llama31 logits`."""

    def __init__(self, text, program):
        words = [text] if os.path.exists(text) else shlex.split(text)
        if not words:
            raise Failure("expected the name of a model, found \"%s\"" % text)
        self.path, self.options, self.program = words[0], words[1:], program
        shown = json.loads(self.call("show", "--json"))
        self.n_vocab, self.context = shown["vocab_size"], shown["context"]

    def call(self, command, *arguments, stdin=None):
        return subprocess.run([self.program, command, "-m", self.path, *arguments], check=True, input=stdin,
                              stdout=subprocess.PIPE).stdout

    def tokens(self, path):
        """The ids of a text file."""
        return list(map(int, self.call("tokenize", "--ids", "-f", path).split()))

    def bos(self):
        """[BOS], which begins an empty conversation, or [] if the model was trained without."""
        nothing = json.dumps({"role": "user", "content": ""}).encode()
        return list(map(int, self.call("tokenize", "--ids", "--template", "none", "--chat", "-", stdin=nothing).split()))

    def start(self, ids_file):
        return subprocess.Popen([self.program, "logits", "-q", "-m", self.path, "--ids", "@" + ids_file, "-o", "-",
                                 *self.options], stdout=subprocess.PIPE)


def windows(ids, bos, size):
    ids = bos + ids
    if len(ids) < size:
        raise Failure("%d tokens are less than a window of %d; use a smaller -c" % (len(ids), size))
    for first in range(0, len(ids) - size + 1, size):
        yield bos + ids[first + len(bos):first + size]


def read_row(process, n):
    data = process.stdout.read(4 * n)
    if len(data) < 4 * n:
        raise subprocess.CalledProcessError(process.wait(), process.args)
    return array.array("f", data).tolist()


class Comparison:
    def __init__(self):
        self.divergences, self.n_agreed = [], 0
        self.error = self.square = 0.0

    def add(self, r, p):
        """Adds a prediction: the logits of the reference and those of the model.

        With both shifted to a maximum of 0, and sums of exponentials R and P, the divergence is
        1/R sum e^r (r - p) - log R + log P."""
        r_max, p_max = max(r), max(p)
        exp_r = [math.exp(x - r_max) for x in r]
        sum_r, sum_p = sum(exp_r), sum([math.exp(x - p_max) for x in p])
        difference = list(map(operator.sub, r, p))
        mean = sum(map(operator.mul, exp_r, difference)) / sum_r - (r_max - p_max)
        self.divergences.append(max(mean - math.log(sum_r) + math.log(sum_p), 0))  # below 0 by rounding

        self.n_agreed += r.index(r_max) == p.index(p_max)
        self.error += sum(map(operator.mul, difference, difference))
        self.square += sum(map(operator.mul, r, r))

    def report(self):
        n, ascending = len(self.divergences), sorted(self.divergences)
        print("KL divergence     %.6f nats (99 %% below %.6f, most %.6f)"
              % (sum(ascending) / n, ascending[(n * 99 + 99) // 100 - 1], ascending[-1]))
        print("same best token   %.3f %%" % (100 * self.n_agreed / n))
        print("error of logits   %.3g (normalized mean squared error)" % (self.error / self.square))
        print("predictions       %d" % n)


def compare_window(models, ids, comparison):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ids")
        with open(path, "w") as f:
            f.write(" ".join(map(str, ids)))
        processes = [m.start(path) for m in models]
        try:
            for i in range(len(ids)):
                rows = [read_row(process, m.n_vocab) for process, m in zip(processes, models)]
                if len(ids) // 2 <= i < len(ids) - 1:
                    comparison.add(*rows)
        finally:
            for process in processes:
                process.stdout.close()
                process.wait()


def compare(options):
    models = [Model(text, options.program) for text in (options.reference, options.model)]
    if models[0].n_vocab != models[1].n_vocab:
        raise Failure("%s: expected the vocabulary of %s (%d tokens), found another (%d)"
                      % (models[1].path, models[0].path, models[0].n_vocab, models[1].n_vocab))
    size = options.context or min(DEFAULT_WINDOW, models[0].context)
    if size < 4:
        raise Failure("-c: expected at least 4, found %d" % size)

    comparison = Comparison()
    for window in windows(models[0].tokens(options.text), models[0].bos(), size):
        compare_window(models, window, comparison)
    comparison.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", metavar="REFERENCE", help="GGUF file, or \"FILE OPTIONS\"")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("-c", "--context", type=int, metavar="N", help="tokens per window (default %d, at most the "
                        "context of the model)" % DEFAULT_WINDOW)
    parser.add_argument("--program", default=find_program() or "llama31", help="the llama31 program")
    run_script(compare, parser.parse_args())


if __name__ == "__main__":
    main()
