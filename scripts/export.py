#!/usr/bin/env python3
"""Turns a Llama checkpoint into one GGUF file. Python standard library only.

SOURCE is a llama2.c model, NAME.bin with tokenizer.bin beside it (or --tokenizer FILE). Weights are streamed from file
to file; the output appears under its name only when it is complete."""
import argparse
import os
import signal
import struct
import sys
import time

from gguf_writer import Bad, FILE_TYPES, write_gguf
from vocabulary import llama2c_vocabulary
from weights import File, View, Weight, convert


class Config:
    """The shape of a model; every source form is read into one."""
    name = ""
    rope_theta = 10000.0
    norm_eps = 1e-5

    def metadata(self, type):
        return {
            "general.architecture": "llama",
            "general.name": self.name,
            "general.file_type": FILE_TYPES[type],
            "llama.vocab_size": self.vocab_size,
            "llama.context_length": self.context_length,
            "llama.embedding_length": self.dim,
            "llama.block_count": self.n_layers,
            "llama.feed_forward_length": self.hidden_dim,
            "llama.attention.head_count": self.n_heads,
            "llama.attention.head_count_kv": self.n_kv_heads,
            "llama.attention.key_length": self.head_dim,
            "llama.attention.value_length": self.head_dim,
            "llama.attention.layer_norm_rms_epsilon": self.norm_eps,
            "llama.rope.dimension_count": self.head_dim,
            "llama.rope.freq_base": self.rope_theta,
        }


# llama2.c

def read_llama2c(path, tokenizer):
    """Returns the config, the weights and the tokenizer's metadata of llama2.c's versions 0 and 1."""
    file = File(path)
    head = file.read(0, 28)
    version = 0
    if head[:4] == b"24ka":
        version = struct.unpack("<i", head[4:8])[0]
        if version != 1:
            raise Bad("%s: llama2.c version %d (quantised) is not supported: export version 0 or 1" %
                      (file.name, version))
        head = file.read(8, 29)
    c = Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, vocab, c.context_length = struct.unpack("<7i", head[:28])
    c.vocab_size, tied = abs(vocab), head[28] == 1 if version else vocab > 0
    if min(c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, c.vocab_size, c.context_length) <= 0 or \
            c.dim % c.n_heads or c.n_heads % c.n_kv_heads or c.dim // c.n_heads % 2 or c.n_layers > 1 << 16:
        raise Bad("%s: not a llama2.c model: its header is %s" % (file.name, struct.unpack("<7i", head[:28])))
    c.head_dim = c.dim // c.n_heads
    c.name = os.path.splitext(os.path.basename(path))[0]

    weights, offset = [], 256 if version else 28

    def take(name, *shape):
        nonlocal offset
        weights.append(Weight(file, name, "f32", shape, offset))
        offset += weights[-1].n_rows * weights[-1].row_bytes

    def take_layers(name, *shape):
        for i in range(c.n_layers):
            take("blk.%d.%s.weight" % (i, name), *shape)

    dim, kv_dim = c.dim, c.n_kv_heads * c.head_dim
    projections = [("attn_q", dim, dim), ("attn_k", kv_dim, dim), ("attn_v", kv_dim, dim), ("attn_output", dim, dim)]
    ffn = [("ffn_gate", c.hidden_dim, dim), ("ffn_down", dim, c.hidden_dim), ("ffn_up", c.hidden_dim, dim)]
    if version:
        take_layers("attn_norm", dim)
        take_layers("ffn_norm", dim)
        take("output_norm.weight", dim)
        take("token_embd.weight", c.vocab_size, dim)
        for p in projections + ffn:
            take_layers(*p)
    else:
        take("token_embd.weight", c.vocab_size, dim)
        take_layers("attn_norm", dim)
        for p in projections:
            take_layers(*p)
        take_layers("ffn_norm", dim)
        for p in ffn:
            take_layers(*p)
        take("output_norm.weight", dim)
        offset += 4 * c.context_length * c.head_dim  # cosines and sines
    if not tied:
        take("output.weight", c.vocab_size, dim)
    if offset != file.size:
        raise Bad("%s: expected %d bytes, found %d" % (file.name, offset, file.size))

    folder = os.path.dirname(path) or "."
    names = [tokenizer] if tokenizer else [os.path.join(folder, n) for n in ("tok%d.bin" % c.vocab_size, "tokenizer.bin")]
    for n in names:
        if os.path.exists(n):
            return c, weights, llama2c_vocabulary(n, c.vocab_size)
    raise Bad("%s: no tokenizer: expected %s" % (file.name, " or ".join(names)))


# Everything

def read_source(path, options):
    if os.path.isdir(path):
        found = [f for f in sorted(os.listdir(path)) if f.endswith(".bin") and not f.startswith("tok")]
        if len(found) != 1:
            raise Bad("%s: no checkpoint recognised in this folder" % path)
        path = os.path.join(path, found[0])
    if not os.path.exists(path):
        raise Bad("%s: no such file or folder" % path, 1)
    return read_llama2c(path, options.tokenizer)


def order(weight):
    """The embedding first, then layers in order, then the rest: as a forward pass reads them."""
    part = weight.name.split(".")
    return (1, int(part[1])) if part[0] == "blk" else (0, 0) if part[0] == "token_embd" else (2, 0)


def export(options):
    config, weights, vocabulary = read_source(options.source, options)
    by_type = {}
    for w in weights:
        by_type[w.type] = by_type.get(w.type, 0) + w.shape[0] * w.shape[-1]
    type = options.type or max(by_type, key=by_type.get)
    tensors = [convert(w, type if len(w.shape) > 1 else "f32") for w in sorted(weights, key=order)]
    metadata = config.metadata(type)
    metadata.update(vocabulary)
    return len(tensors), type, write_gguf(options.output, metadata, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", metavar="SOURCE", help="a model file or folder")
    parser.add_argument("-o", "--output", metavar="OUT.gguf", required=True)
    parser.add_argument("--type", choices=sorted(FILE_TYPES), help="type of the matrices (default: the source's)")
    parser.add_argument("--tokenizer", metavar="FILE", help="the tokenizer, where it is not beside the model")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.time()
    try:
        n, type, size = export(options)
    except Bad as e:
        code, message = e.code, str(e)
    except OSError as e:
        code, message = 1, "%s: %s" % (e.filename or options.output, e.strerror)
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    else:
        sys.stderr.write("%s: %d tensors, %s, %.2f GB in %.1f s\n" %
                         (options.output, n, type, size / 1e9, time.time() - start))
        return 0
    sys.stderr.write("error: %s\n" % message)
    return code


if __name__ == "__main__":
    sys.exit(main())
