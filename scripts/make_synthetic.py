#!/usr/bin/env python3
"""Writes a model with random weights and the dimensions of a real one, for benchmarks. Python standard library only.

Weights are normally distributed (standard deviation 0.02, norms 1), quantized ones uniformly. They come from a pool of
2 million numbers, which each tensor reads cyclically from a random offset, so that 16 GB are written at disk speed. The
vocabulary has the size and structure of Llama 3.1's or of the family's, with made-up tokens."""
import lib.interrupt  # noqa: F401
import argparse
import random
import struct
import sys

from export import Config
from lib.gguf_writer import FILE_TYPES, TYPES, product, run, write_gguf
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
    "qwen3-30b-a3b": (2048, 6144, 48, 32, 4, None, False),
    "granite-1b-a400m": (1024, 512, 24, 16, 8, None, True),
    "olmoe-7b-a1b": (2048, 1024, 16, 16, 16, None, False),
}
# architecture: head dim, RoPE base, epsilon, context, pre-tokenizer, tokens beyond those of Llama 3.1
FAMILIES = {
    "qwen3": (128, 1000000.0, 1e-6, 40960, "qwen2", 151936 - 128256),
    "smollm3": (128, 5000000.0, 1e-6, 65536, "smaug-bpe", 0),
    "qwen3moe": (128, 1000000.0, 1e-6, 40960, "qwen2", 151936 - 128256),
    "granitemoe": (64, 1500000.0, 1e-6, 131072, "refact", 49155 - 128256),
    "olmoe": (128, 10000.0, 1e-5, 4096, "olmo", 50304 - 128256),
}
# geometry of a mixture of experts: architecture, experts, experts used, hidden dim of an expert
EXPERTS = {
    "qwen3-30b-a3b": ("qwen3moe", 128, 8, 768),
    "granite-1b-a400m": ("granitemoe", 32, 8, 512),
    "olmoe-7b-a1b": ("olmoe", 64, 8, 1024),
}
QK_NORMS = {"qwen3": "head", "qwen3moe": "head", "olmoe": "row"}
GRANITE_SCALES = {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 1 / 64, "logit_scale": 6.0}
POOL = 2000003  # numbers; a prime, so that all rows of a matrix start at different offsets
RANKS = 128000

# Quantized types: the weights of a block, its scales (little-endian), its random bytes, more scales. With integers q, a
# weight is 32 d (q - 7.5) in Q4_K, d (q - 32) in Q6_K and d q in Q8_0. Its standard deviation is 0.02.
BLOCKS = {
    "q4_k": (256, struct.pack("<ee", 0.02 / 147.5, 7.5 * 0.02 / 147.5) + b"\xa0" * 8 + bytes(4), 128, b""),
    "q6_k": (256, b"", 192, b"\1" * 16 + struct.pack("<e", 0.02 / 18.5)),
    "q8_0": (32, struct.pack("<e", 0.02 / 73.9), 32, b""),
}
MIXTURES = {**FILE_TYPES, "q8_0": 7, "q4_k_m": 15}  # general.file_type


class Noise:
    """A tensor of numbers from the pool, read cyclically."""

    def __init__(self, name, type, shape, pool, begin):
        self.name, self.type, self.shape, self.pool, self.begin = name, type, shape, pool, begin

    def pieces(self):
        left, at = int(product(self.shape) * TYPES[self.type][1]), self.begin
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


def make_pool(rng, type):
    if type not in BLOCKS:
        pool = struct.pack("<%df" % POOL, *[rng.gauss(0, 0.02) for _ in range(POOL)])
        return memoryview(pool if type == "f32" else CONVERSIONS["f32", type](pool))
    n_weights, before, n_random, after = BLOCKS[type]
    n_blocks = POOL // n_weights | 1  # odd: the rows of a matrix start at different offsets
    blocks = [before + rng.getrandbits(8 * n_random).to_bytes(n_random, "little") + after for _ in range(n_blocks)]
    return memoryview(b"".join(blocks))


def tensor_type(mixture, name, c, is_output):
    """The type of a matrix. The rules of Q4_K_M are those of quantize/mixture.c."""
    if name.endswith("ffn_gate_inp.weight"):
        return "f32"
    if mixture != "q4_k_m":
        return mixture
    if is_output:
        return "q6_k"
    if "attn_v" not in name and "ffn_down" not in name:
        return "q4_k"
    layer, eighth = int(name.split(".")[1]), c.n_layers // 8
    has_more_bits = layer < eighth or layer >= 7 * c.n_layers // 8 or (layer - eighth) % 3 == 2
    return "q6_k" if has_more_bits else "q4_k"


def make(options):
    rng = random.Random(1)
    c = Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, factor, tied = GEOMETRIES[options.geometry]
    c.n_layers = options.layers or c.n_layers
    c.name, n_ranks, pre = "random weights, %s, %d layers" % (options.geometry, c.n_layers), RANKS, "llama-bpe"
    c.head_dim, c.rope_theta, c.context_length = c.dim // c.n_heads, 500000.0, 131072
    c.architecture = options.geometry.partition("-")[0] if factor is None else "llama"

    if options.geometry in EXPERTS:
        c.architecture, c.n_experts, n_used, c.expert_dim = EXPERTS[options.geometry]
        c.extra = {"expert_count": c.n_experts, "expert_used_count": n_used, "expert_feed_forward_length": c.expert_dim}
        if c.architecture == "granitemoe":
            c.extra.update(GRANITE_SCALES)

    c.qk_norm = QK_NORMS.get(c.architecture)
    if factor is None:
        c.head_dim, c.rope_theta, c.norm_eps, c.context_length, pre, more = FAMILIES[c.architecture]
        n_ranks += more
    else:
        c.rope = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192}

    c.vocab_size = n_ranks + len(SPECIAL)

    shapes = c.shapes()
    if not tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    tensors, pools = c.divisors(), {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            tensors.append(Literal(name, "f32", shape, struct.pack("<f", 1) * shape[0]))
            continue
        type = tensor_type(options.type, name, c, name == ("token_embd.weight" if tied else "output.weight"))
        if type not in pools:
            pools[type] = make_pool(rng, type)
        block_bytes = int(BLOCKS.get(type, (1,))[0] * TYPES[type][1])
        n_blocks = len(pools[type]) // block_bytes
        tensors.append(Noise(name, type, shape, pools[type], block_bytes * rng.randrange(n_blocks)))

    text, merges = merges_of(make_ranks(rng, n_ranks))
    metadata = c.metadata(MIXTURES[options.type])
    if options.type not in FILE_TYPES:
        metadata["general.quantization_version"] = 2
    metadata.update(byte_level(text + SPECIAL, [NORMAL] * n_ranks + [CONTROL] * len(SPECIAL), merges, pre))
    write_gguf(options.output, metadata, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("geometry", choices=GEOMETRIES)
    parser.add_argument("output", metavar="OUT.gguf")
    parser.add_argument("--type", choices=sorted(MIXTURES), default="bf16")
    parser.add_argument("--layers", type=int, metavar="N", help="number of layers (default: that of the real model)")
    options = parser.parse_args()
    return run(options.output, lambda: make(options))


if __name__ == "__main__":
    sys.exit(main())
