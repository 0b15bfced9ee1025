#!/usr/bin/env python3
"""Writes a model with random weights and the dimensions of a real one, for benchmarks. Python standard library only.

Weights are normally distributed (standard deviation 0.02, norms 1). They come from a pool of 2 million numbers, which each
tensor reads cyclically from a random offset, so that 16 GB are written at disk speed. The vocabulary has the size and
structure of Llama 3.1's or of the family's, with made-up tokens."""
import argparse
import random
import struct
import sys

from export import Config
from lib.gguf_writer import FILE_TYPES, TYPES, run, write_gguf
from lib.vocabulary import CONTROL, NORMAL, SPECIAL, byte_letters, byte_level, merges_of
from lib.weights import CONVERSIONS, Literal

# dim, hidden dim, layers, heads, KV heads, RoPE factor, output tied to the embedding
GEOMETRIES = {
    "1b": (2048, 8192, 16, 32, 8, 32, True),
    "3b": (3072, 8192, 28, 24, 8, 32, True),
    "8b": (4096, 14336, 32, 32, 8, 8, False),
    "70b": (8192, 28672, 80, 64, 8, 8, False),
    "405b": (16384, 53248, 126, 128, 8, 8, False),
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, None, True),
    "qwen3-4b": (2560, 9728, 36, 32, 8, None, True),
    "smollm3-3b": (2048, 11008, 36, 16, 4, None, True),
}
# architecture: head dim, RoPE base, epsilon, context, pre-tokenizer, tokens beyond those of Llama 3.1
FAMILIES = {
    "qwen3": (128, 1000000.0, 1e-6, 40960, "qwen2", 151936 - 128256),
    "smollm3": (128, 5000000.0, 1e-6, 65536, "smaug-bpe", 0),
}
POOL = 2000003  # numbers; a prime, so that all rows of a matrix start at different offsets
RANKS = 128000


class Noise:
    """A tensor of numbers from the pool, read cyclically."""

    def __init__(self, name, type, shape, pool, begin):
        self.name, self.type, self.shape, self.pool = name, type, shape, pool
        self.begin = begin * TYPES[type][1]

    def pieces(self):
        left, at = self.shape[0] * self.shape[1] * TYPES[self.type][1], self.begin
        while left:
            piece = self.pool[at:at + left]
            yield piece
            left -= len(piece)
            at = 0


def make_ranks(rng, n):
    """The tokens: 256 bytes, then random words, each a concatenation of two earlier tokens."""
    letters = byte_letters()
    ranks = sorted((bytes([b]) for b in range(256)), key=lambda t: letters[t[0]])
    parts = [bytes([b]) for b in b"abcdefghijklmnopqrstuvwxyz"]
    known, words = set(ranks), parts + [b" "]
    while len(ranks) < n:
        token = words[int(len(words) * rng.random() ** 2)] + parts[int(len(parts) * rng.random() ** 3)]
        if len(token) > 12 or token in known:
            continue
        known.add(token)
        ranks.append(token)
        words.append(token)
        if token[0] != 32:
            parts.append(token)
    return ranks


def make(options):
    rng = random.Random(1)
    c = Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, factor, tied = GEOMETRIES[options.geometry]
    c.n_layers = options.layers or c.n_layers
    c.name, n_ranks, pre = "random weights, %s, %d layers" % (options.geometry, c.n_layers), RANKS, "llama-bpe"
    c.head_dim, c.rope_theta, c.context_length = c.dim // c.n_heads, 500000.0, 131072
    c.architecture = options.geometry.partition("-")[0] if factor is None else "llama"
    if factor is None:
        c.head_dim, c.rope_theta, c.norm_eps, c.context_length, pre, more = FAMILIES[c.architecture]
        n_ranks += more
    else:
        c.rope = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192}
    c.vocab_size = n_ranks + len(SPECIAL)

    pool = struct.pack("<%df" % POOL, *[rng.gauss(0, 0.02) for _ in range(POOL)])
    pool = memoryview(pool if options.type == "f32" else CONVERSIONS["f32", options.type](pool))
    shapes = c.shapes()
    if not tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    tensors = c.divisors()
    for name, shape in shapes.items():
        if len(shape) == 1:
            tensors.append(Literal(name, "f32", shape, struct.pack("<f", 1) * shape[0]))
        else:
            tensors.append(Noise(name, options.type, shape, pool, rng.randrange(POOL)))

    text, merges = merges_of(make_ranks(rng, n_ranks))
    metadata = c.metadata(options.type)
    metadata.update(byte_level(text + SPECIAL, [NORMAL] * n_ranks + [CONTROL] * len(SPECIAL), merges, pre))
    write_gguf(options.output, metadata, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("geometry", choices=GEOMETRIES)
    parser.add_argument("output", metavar="OUT.gguf")
    parser.add_argument("--type", choices=sorted(FILE_TYPES), default="bf16")
    parser.add_argument("--layers", type=int, metavar="N", help="number of layers (default: that of the real model)")
    options = parser.parse_args()
    return run(options.output, lambda: make(options))


if __name__ == "__main__":
    sys.exit(main())
