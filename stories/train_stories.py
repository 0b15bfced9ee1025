#!/usr/bin/env python3
"""Trains the built-in story model, stories/stories.gguf.

The model has the architecture of Llama 3.1 (byte-level BPE with its special tokens, RMSNorm, SwiGLU, grouped-query
attention, RoPE with theta 500000 and llama3 scaling) at 1/1800 of the size. It is distilled from a larger story model,
the teacher: stories15M of llama2.c (a .bin of 60816028 bytes with the vocabulary of Llama 2, tokenizer.bin).

The student is initialized from the teacher: its layers, pruned to the FFN columns that contribute most, with keys and
values shared between heads by a singular value decomposition, RoPE pairs assigned to the nearest of the new frequencies,
and for each token the mean of the teacher's embeddings of the same text. The loss then follows the teacher's next-token
distribution and hidden states, at the positions where both tokenizations have a token boundary. This needs several times
fewer tokens than training on the stories alone. With --start, the student starts from an earlier stories.gguf and its
vocabulary instead.

    train_stories.py --teacher stories15M.bin --teacher-tokenizer tokenizer.bin --work DIR all
    train_stories.py ... --start stories/stories.gguf all

Stages. Each writes a file in DIR and is skipped if that exists:

    corpus    stories.txt.xz     sampled from the teacher, unless --corpus names one
    heldout   heldout.txt        200 stories sampled at temperature 0.8 with another seed
    vocab     vocab.json         byte-level BPE merges (those of --start if given)
    data      data.npz           token ids; half of the documents are conversations
    train     last.pt, best.pt   for --minutes of wall-clock time; resumes after a kill
    eval      (printed)          nats per byte of student, teacher and --baseline
    export    stories.gguf       Q8_0
    samples   (printed)          --temp, --seed, --prompt, --chat (not part of all)

Needs PyTorch (1.13 or later) and NumPy. A CPU is enough; a GPU is used if present. On a shared CPU, one thread gets
the most out of a second of CPU time. Debian's PyTorch is about ten times faster with libopenblas0-pthread installed.
"""
import argparse
import itertools
import json
import math
import os
import random
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

from story_text import (END, EOT, N_SPECIAL, N_VOCAB, ByteBPE, SentencePiece, encode_turns, make_data, read_stories,
                        special_names, train_bpe, write_stories)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scripts"))
from lib.gguf_writer import ALIGNMENT, TYPES, write_gguf
from lib.vocabulary import byte_level, merges_of

DIM, N_HEADS, N_KV, FFN = 288, 6, 3, 448
LAYERS = (0, 1, 2, 3, 4, 5)    # the teacher's layers that initialize the student's
CONTEXT, THETA = 4096, 500000.0
SCALING = dict(factor=8.0, low=1.0, high=4.0, original=512)
NORM_EPS = 1e-5
# A layer's tensors in a GGUF file, in the order of export and of start_from_file.
LAYER_NAMES = (["attn_norm"], ["attn_q", "attn_k", "attn_v"], ["attn_output"], ["ffn_norm"], ["ffn_gate", "ffn_up"],
               ["ffn_down"])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# ---------------------------------------------------------------- model

def rope_divisors(head_dim):
    """The divisor of each of the head_dim/2 frequencies under the llama3 scaling rule."""
    out = []
    for i in range(head_dim // 2):
        wavelength = 2 * math.pi * THETA ** (2 * i / head_dim)
        turns = SCALING["original"] / wavelength
        if turns > SCALING["high"]:
            out.append(1.0)
        elif turns < SCALING["low"]:
            out.append(SCALING["factor"])
        else:
            smooth = (turns - SCALING["low"]) / (SCALING["high"] - SCALING["low"])
            out.append(1 / ((1 - smooth) / SCALING["factor"] + smooth))
    return np.array(out, np.float32)


def student_frequencies(head_dim):
    base = (1.0 / THETA ** (np.arange(0, head_dim, 2) / head_dim)).astype(np.float32)
    return base / rope_divisors(head_dim)


class Llama(torch.nn.Module):
    """Llama with interleaved RoPE pairs and tied embeddings: (batch, time) ids to hidden states.

    Arguments of forward: cache, a list with an entry per layer, None at first, for sampling; seen(layer, which, y), called
    with the inputs of attention (which 0) and of the FFN's down projection (1); states, to which the output of each layer
    is appended."""

    def __init__(self, dim, n_layers, n_heads, n_kv, ffn, n_vocab, frequencies, length=1024):
        super().__init__()
        self.shape = (dim, n_layers, n_heads, n_kv, ffn, n_vocab)
        self.frequencies = frequencies
        hd = dim // n_heads
        new = lambda *s: torch.nn.Parameter(torch.randn(*s) * 0.02)
        self.embed = new(n_vocab, dim)
        self.norm = torch.nn.Parameter(torch.ones(dim))
        self.layers = torch.nn.ModuleList()
        for _ in range(n_layers):
            m = torch.nn.Module()
            m.norm1, m.norm2 = (torch.nn.Parameter(torch.ones(dim)) for _ in range(2))
            m.qkv, m.o = new((n_heads + 2 * n_kv) * hd, dim), new(dim, n_heads * hd)
            m.gate_up, m.down = new(2 * ffn, dim), new(dim, ffn)
            self.layers.append(m)
        angle = np.outer(np.arange(length, dtype=np.float32), frequencies.astype(np.float32))
        # Rotation of the pair (a, b): (a, b) * cos + (-b, a) * sin, with both interleaved.
        self.register_buffer("cos", torch.tensor(np.repeat(np.cos(angle), 2, 1)), persistent=False)
        sin = np.repeat(np.sin(angle), 2, 1)
        sin[:, 0::2] *= -1
        self.register_buffer("sin", torch.tensor(sin), persistent=False)
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1), persistent=False)

    @staticmethod
    def rms(x, w):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * w

    @staticmethod
    def attend(q, k, v, mask):
        """Heads of queries in groups of one key and value head: (kv heads, group * time, head dim)."""
        t, n = mask.shape
        score = torch.bmm(q * q.shape[-1] ** -0.5, k.transpose(1, 2)).view(-1, t, n).add_(mask)
        return torch.bmm(score.softmax(-1).view(*q.shape[:2], n), v)

    def forward(self, ids, cache=None, seen=None, states=None):
        dim, _, nh, nkv, ffn, _ = self.shape
        hd, g = dim // nh, nh // nkv
        b, t = ids.shape
        past = cache[0][0].shape[2] if cache and cache[0] is not None else 0
        cos, sin = self.cos[past:past + t, None, :], self.sin[past:past + t, None, :]
        mask = self.mask[past:past + t, :past + t]
        x = F.embedding(ids, self.embed)
        for i, m in enumerate(self.layers):
            y = self.rms(x, m.norm1)
            if seen is not None:
                seen(i, 0, y)
            y = F.linear(y, m.qkv).view(b, t, nh + 2 * nkv, hd)
            qk, v = y.split((nh + nkv, nkv), 2)
            swapped = qk.unflatten(-1, (hd // 2, 2)).flip(-1).flatten(-2)
            qk = qk * cos + swapped * sin
            q, k = qk.split((nh, nkv), 2)
            q = q.transpose(1, 2).reshape(b * nkv, g * t, hd)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            if cache is not None:
                if cache[i] is not None:
                    k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
                cache[i] = (k, v)
            n = k.shape[2]
            k, v = k.reshape(b * nkv, n, hd), v.reshape(b * nkv, n, hd)
            # One row at a time, so that its scores stay in the CPU cache.
            rows = [(q, k, v)] if t == 1 or DEVICE != "cpu" else zip(q.split(nkv), k.split(nkv), v.split(nkv))
            y = torch.cat([self.attend(*row, mask) for row in rows])
            y = y.view(b, nh, t, hd).transpose(1, 2).reshape(b, t, nh * hd)
            x = x + F.linear(y, m.o)
            gate, up = F.linear(self.rms(x, m.norm2), m.gate_up).split(ffn, -1)
            y = F.silu(gate) * up
            if seen is not None:
                seen(i, 1, y)
            x = x + F.linear(y, m.down)
            if states is not None:
                states.append(x)
        return self.rms(x, self.norm)


def load_llama2c(path):
    """Reads a llama2.c .bin (version 0)."""
    with open(path, "rb") as f:
        dim, ffn, nl, nh, nkv, nv, length = struct.unpack("7i", f.read(28))
        data = np.frombuffer(f.read(), np.float32)
    hd, at = dim // nh, 0
    assert nv > 0, "tied embeddings expected"

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        at += n
        return torch.tensor(data[at - n:at].reshape(shape))

    model = Llama(dim, nl, nh, nkv, ffn, nv, 1.0 / 10000 ** (np.arange(0, hd, 2) / hd), max(length, 512))
    embed = take(nv, dim)
    norm1, q, k, v = take(nl, dim), take(nl, nh * hd, dim), take(nl, nkv * hd, dim), take(nl, nkv * hd, dim)
    o, norm2 = take(nl, dim, nh * hd), take(nl, dim)
    w1, w2, w3, norm = take(nl, ffn, dim), take(nl, dim, ffn), take(nl, ffn, dim), take(dim)
    with torch.no_grad():
        model.embed.copy_(embed), model.norm.copy_(norm)
        for i, m in enumerate(model.layers):
            m.norm1.copy_(norm1[i]), m.norm2.copy_(norm2[i]), m.o.copy_(o[i]), m.down.copy_(w2[i])
            m.qkv.copy_(torch.cat((q[i], k[i], v[i]))), m.gate_up.copy_(torch.cat((w1[i], w3[i])))
    return model.to(DEVICE).eval()


def new_student():
    return Llama(DIM, len(LAYERS), N_HEADS, N_KV, FFN, N_VOCAB, student_frequencies(DIM // N_HEADS)).to(DEVICE)


def match_slots(weight, old, new):
    """Assigns an old RoPE pair to each new frequency, so that pairs with large weights change their rotation least."""
    distance = np.arange(128)
    drift = 1 - np.cos(np.abs(old[:, None] - new[None])[..., None] * distance).mean(-1)     # (pair, slot)
    cost, slot = weight.cpu().numpy()[:, None] * drift, np.arange(len(old))
    better = True
    while better:
        better = False
        for i, j in itertools.combinations(range(len(slot)), 2):
            if cost[slot[i], j] + cost[slot[j], i] < cost[slot[i], i] + cost[slot[j], j] - 1e-12:
                slot[i], slot[j] = slot[j], slot[i]
                better = True
    return torch.as_tensor(slot)


def share_heads(layer, cov, n_heads, n_kv, old_freq, new_freq):
    """Converts multi-head to grouped-query attention: (query, key and value, output, groups, losses) of a layer.

    Errors are weighted by the covariance `cov` of the inputs. The values of a group become the principal directions of
    what its heads add to the output. Each key pair, as a complex number, becomes the direction that approximates the
    group's products of query and key best; queries are scaled and rotated to compensate. Of all groupings, the one with
    the smallest loss is taken.
    """
    dim = layer.o.shape[0]
    hd, g = dim // n_heads, n_heads // n_kv
    e, u = torch.linalg.eigh(cov)
    root, unroot = (u * e.clamp_min(1e-6).pow(p) @ u.T for p in (0.5, -0.5))
    q, k, v = (w.detach().double().view(n_heads, hd, dim) @ root for w in layer.qkv.split(dim))
    o = layer.o.detach().double().view(dim, n_heads, hd).permute(1, 0, 2)
    q, k = (torch.complex(w[:, 0::2], w[:, 1::2]) for w in (q, k))

    def share(group):
        a, s, b = torch.linalg.svd(torch.cat([o[h] @ v[h] for h in group]), full_matrices=False)
        new_o = (a[:, :hd] * s[:hd]).view(g, dim, hd)
        size = torch.stack([q[h].norm(dim=1) for h in group])                   # (g, hd/2)
        rows = torch.stack([k[h] for h in group]) * size[..., None]             # (g, hd/2, dim)
        kb = torch.linalg.svd(rows.transpose(0, 1), full_matrices=False)[2][:, 0]
        new_k = kb * rows.norm(dim=(0, 2))[:, None].sqrt()
        new_q = []
        for i, h in enumerate(group):
            turn = (k[h] * new_k.conj()).sum(1) / new_k.abs().square().sum(1)   # k[h] ~ turn * new_k
            new_q.append(q[h] * turn.conj()[:, None])
        lost_v = s[hd:].square().sum() / s.square().sum()
        lost_k = 1 - (rows * kb.conj()).sum(2).abs().square().sum() / rows.abs().square().sum()
        slot = match_slots(rows.abs().square().sum((0, 2)), old_freq, new_freq)
        new_q, new_k = [w[slot] for w in new_q], new_k[slot]
        return (lost_v + lost_k).item(), new_q, new_k, b[:hd], new_o

    def groupings(heads):
        if not heads:
            yield []
        for rest in itertools.combinations(heads[1:], g - 1):
            group = heads[:1] + rest
            for more in groupings(tuple(h for h in heads if h not in group)):
                yield [group] + more

    known = {c: share(c) for c in itertools.combinations(range(n_heads), g)}
    best = min(groupings(tuple(range(n_heads))), key=lambda x: sum(known[c][0] for c in x))
    real = lambda w: torch.view_as_real(w).permute(0, 2, 1).reshape(-1, dim)
    parts = [known[c] for c in best]
    new_q = torch.cat([real(w) for p in parts for w in p[1]])
    new_k, new_v = torch.cat([real(p[2]) for p in parts]), torch.cat([p[3] for p in parts])
    new_o = torch.cat([w for p in parts for w in p[4]], 1)
    return torch.cat((new_q, new_k, new_v)).double() @ unroot, new_o, best, [p[0] for p in parts]


def start_from_teacher(student, teacher, spm, bpe, texts):
    """Initializes the student: the teacher's layers with grouped keys and values and pruned FFNs, mean embeddings."""
    cov = [[0, 0] for _ in teacher.layers]       # covariances of the inputs of attention and down projection

    def seen(i, j, y):
        y = y.flatten(0, 1).double()
        cov[i][j] = cov[i][j] + y.T @ y / len(y) / len(texts)

    with torch.no_grad():
        for text in texts:
            teacher(torch.tensor([[1] + spm.encode_text(text)], device=DEVICE)[:, :256], seen=seen)
        for m, i in zip(student.layers, LAYERS):
            t = teacher.layers[i]
            qkv, o, groups, lost = share_heads(t, cov[i][0], N_HEADS, N_KV, teacher.frequencies, student.frequencies)
            print("layer %d: groups %s, lost %s" % (i, groups, ["%.2f" % x for x in lost]))
            m.qkv.copy_(qkv), m.o.copy_(o)
            m.norm1.copy_(t.norm1), m.norm2.copy_(t.norm2)
            # Keep the FFN columns that contribute most; refit the down projection to compensate for the others.
            c, down = cov[i][1], t.down.double()
            kept = (c.diagonal() * down.square().sum(0)).topk(FFN).indices.sort().values
            gate, up = t.gate_up.chunk(2)
            m.gate_up.copy_(torch.cat((gate[kept], up[kept])))
            c_kept = c[kept][:, kept] + 1e-4 * c.diagonal().mean() * torch.eye(FFN, device=DEVICE)
            m.down.copy_(torch.linalg.solve(c_kept, c[kept] @ down.T).T)
        student.norm.copy_(teacher.norm)
        for i, token in enumerate(bpe.tokens):
            ids = spm.encode(token.decode("utf-8", "replace"), prefix=False)
            student.embed[i] = teacher.embed[ids].mean(0)
        student.embed[len(bpe.tokens):] = teacher.embed[1]      # the teacher's separator of stories


def read_gguf(path):
    """(metadata, tensors as f32) of a file with tensors of the types F32, F16 and Q8_0."""
    data, at = open(path, "rb").read(), 4

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text():
        return take("%ds" % take("Q")).decode()

    def value(kind):
        if kind == 9:
            kind, n = take("IQ")
            return [value(kind) for _ in range(n)]
        return text() if kind == 8 else take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
                                                 12: "d"}[kind])

    _, n_tensors, n_values = take("IQQ")
    metadata, tensors, places = {}, {}, {}
    for _ in range(n_values):
        key = text()
        metadata[key] = value(take("I"))
    for _ in range(n_tensors):
        name = text()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        places[name] = shape, *take("IQ")
    at += -at % ALIGNMENT
    for name, (shape, kind, offset) in places.items():
        n = int(np.prod(shape))
        if kind in (TYPES["f32"][0], TYPES["f16"][0]):
            x = np.frombuffer(data, np.float16 if kind == TYPES["f16"][0] else np.float32, n, at + offset).astype(np.float32)
        elif kind != TYPES["q8_0"][0]:
            sys.exit("%s: %s is of type %d; quantize the file to F16 or Q8_0" % (path, name, kind))
        else:
            blocks = np.frombuffer(data, np.dtype([("d", np.float16), ("q", np.int8, 32)]), n // 32, at + offset)
            x = blocks["d"][:, None].astype(np.float32) * blocks["q"]
        tensors[name] = torch.tensor(x.reshape(shape))
    return metadata, tensors


def merges_in(metadata):
    """The merges of an exported vocabulary, as pairs of ids."""
    tokens, pair = metadata["tokenizer.ggml.tokens"], {}
    ids = {t: i for i, t in enumerate(tokens)}
    for m in metadata["tokenizer.ggml.merges"]:
        a, b = m.split(" ")
        if max(ids[a], ids[b]) < ids[a + b]:
            pair[a + b] = ids[a], ids[b]
    return [pair[t] for t in tokens[256:N_VOCAB - N_SPECIAL]]


def start_from_file(student, tensors):
    """The inverse of export(), except for rounding."""
    with torch.no_grad():
        student.embed.copy_(tensors["token_embd.weight"]), student.norm.copy_(tensors["output_norm.weight"])
        for i, m in enumerate(student.layers):
            for x, names in zip((m.norm1, m.qkv, m.o, m.norm2, m.gate_up, m.down), LAYER_NAMES):
                x.copy_(torch.cat([tensors["blk.%d.%s.weight" % (i, name)] for name in names]))


# ---------------------------------------------------------------- sampling

@torch.no_grad()
def sample_ids(model, prompts, n, temperature, top_p, seed, stop):
    """Continues prompts of equal length by at most n ids, up to a stop id (excluded)."""
    gen = torch.Generator(DEVICE).manual_seed(seed)
    ids, cache, out = torch.tensor(prompts, device=DEVICE), [None] * model.shape[1], []
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=DEVICE)
    for _ in range(n):
        logits = F.linear(model(ids, cache)[:, -1], model.embed)
        if temperature == 0:
            nxt = logits.argmax(-1)
        else:
            p = (logits / temperature).softmax(-1)
            if top_p < 1:
                order = p.sort(-1, descending=True)
                cut = (order.values.cumsum(-1) - order.values) > top_p
                p = torch.zeros_like(p).scatter(-1, order.indices, order.values.masked_fill(cut, 0))
            nxt = torch.multinomial(p, 1, generator=gen)[:, 0]
        for s in stop:
            ended |= nxt == s
        out.append(nxt.masked_fill(ended, -1))
        if ended.all():
            break
        ids = nxt[:, None]
    return [[i for i in row if i >= 0] for row in torch.stack(out, 1).tolist()], ended.tolist()


def sample_teacher(teacher, spm, count, seed, temperature=None, top_p=1.0, batch=100):
    """Complete stories sampled from the teacher. Without a temperature, batches cycle through 0.7 to 1.0."""
    stories, rng = [], random.Random(seed)
    while len(stories) < count:
        t = temperature or rng.uniform(0.7, 1.0)
        rows, ended = sample_ids(teacher, [[1]] * batch, 255, t, top_p, rng.getrandbits(31), (1, 2))
        stories += [s for s in (spm.decode(r).strip() for r, e in zip(rows, ended) if e) if s]
        progress("sampling", min(1, len(stories) / count), "%d stories" % len(stories))
    return stories[:count]


# ---------------------------------------------------------------- training

def progress(what, share, text=""):
    line = "%s %5.1f %%  %s" % (what, 100 * share, text)
    print("\r" + line + "  " if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)


def batches(data, size, rng):
    """Yields batches of about `size` ids forever. A row is a document; rows of a batch have similar lengths."""
    starts = np.concatenate(([0], data["ends"][:-1]))
    lengths = data["ends"] - starts
    while True:
        order = rng.permutation(len(lengths))
        for at in range(0, len(order), 2000):
            part = order[at:at + 2000]
            part = part[np.argsort(lengths[part], kind="stable")]
            groups, group = [], []
            for d in part:
                if group and lengths[d] * (len(group) + 1) > size:
                    groups.append(group)
                    group = []
                group.append(d)
            groups.append(group)
            for j in rng.permutation(len(groups)):
                yield make_batch(data, groups[j], starts, lengths)


def make_batch(data, docs, starts, lengths):
    """(ids, targets, loss weights, teacher's ids, steps), rows padded. steps is (4, n): the student's step as flat index,
    the teacher's step that has seen the same text, the teacher's next id, and the last id of the student's document."""
    n, their_starts = max(lengths[d] for d in docs), np.concatenate(([0], data["their_ends"][:-1]))
    ids, target = np.zeros((len(docs), n), np.int64), np.zeros((len(docs), n), np.int64)
    weight = np.zeros((len(docs), n), np.float32)
    aligned = [d for d in docs if data["their_ends"][d] > their_starts[d]]
    m = max([data["their_ends"][d] - their_starts[d] for d in aligned], default=0)
    theirs, steps = np.ones((len(aligned), m), np.int64), []
    for row, d in enumerate(docs):
        a, b = starts[d], data["ends"][d]
        ids[row, :b - a] = data["ids"][a:b]
        target[row, :b - a - 1], weight[row, :b - a - 1] = data["ids"][a + 1:b], data["learn"][a + 1:b]
        if d in aligned:
            their_row, at = aligned.index(d), their_starts[d]
            theirs[their_row, :data["their_ends"][d] - at] = data["theirs"][at:data["their_ends"][d]]
            rows = data["rows"][a:b].astype(np.int64)
            j = (rows >= 0).nonzero()[0]
            steps.append(np.stack((row * (n - 1) + j, their_row * (m - 1) + rows[j], theirs[their_row, rows[j] + 1],
                                   np.full(len(j), ids[row, b - a - 1]))))
    steps = np.concatenate(steps, 1) if steps else np.zeros((4, 0), np.int64)
    batch = ids[:, :-1], target[:, :-1], weight[:, :-1], theirs[:, :-1], steps
    return tuple(torch.from_numpy(x).to(DEVICE) for x in batch)


class Distiller:
    """The teacher's next-token distribution, sharpened and mapped to the student's vocabulary.

    Each of the student's tokens is mapped to the teacher's token that most often begins the same text in the corpus; the
    probability is scaled by how often it does. For the token that did follow, both ids are known."""

    def __init__(self, teacher, data, temperature):
        self.teacher, self.temperature = teacher, temperature
        count = np.zeros((len(data["seen"]), N_VOCAB))
        count[data["pairs"][:, 0], data["pairs"][:, 1]] = data["pairs"][:, 2]
        theirs = count.argmax(0)
        share = count.max(0) / count.sum(1)[theirs]
        tensor = lambda x, type: torch.as_tensor(x, dtype=type, device=DEVICE)
        self.bias = tensor(np.log(np.maximum(share, 1e-30)), torch.float32)
        self.theirs = tensor(data["seen"][theirs], torch.long)
        self.embed = teacher.embed.detach()[self.theirs].contiguous()

    @torch.no_grad()
    def __call__(self, theirs, steps, student_ids):
        """((n_steps, N_VOCAB) probabilities, states of each layer). student_ids: the student's next token at each step."""
        states = []
        h = self.teacher(theirs, states=states).flatten(0, 1)[steps[1]]
        logits = F.linear(h, self.embed) / self.temperature + self.bias
        logits[:, [END, EOT]] = torch.where(steps[3:].T == EOT, logits[:, [EOT, END]], logits[:, [END, EOT]])
        known = (h * self.teacher.embed[steps[2]]).sum(1, keepdim=True) / self.temperature
        logits.masked_fill_(self.theirs == steps[2][:, None], -1e9)     # tokens mapped to the one that did follow
        logits.scatter_(1, student_ids[:, None], known)
        return logits.softmax(-1), [states[i].flatten(0, 1)[steps[1]] for i in LAYERS]


def nats_per_byte(model, encode, start, stories):
    """Mean negative log-likelihood per byte of stories, each after the start id."""
    total = n_bytes = 0
    with torch.no_grad():
        for s in stories:
            ids = [start] + encode(s)
            h = model(torch.tensor([ids[:-1]], device=DEVICE))[0]
            target = torch.tensor(ids[1:], device=DEVICE)
            total += F.cross_entropy(F.linear(h, model.embed), target, reduction="sum").item()
            n_bytes += len(s.encode())
    return total / n_bytes


def loss_of(student, batch, distiller, args):
    """(loss to minimize, mean cross-entropy for display)"""
    ids, target, weight, theirs, steps = batch
    keep = weight.flatten().nonzero()[:, 0]
    target, weight = target.flatten()[keep], weight.flatten()[keep]
    states = []
    logp = F.linear(student(ids, states=states).flatten(0, 1)[keep], student.embed).log_softmax(-1)
    plain = -logp.gather(1, target[:, None])[:, 0]
    if not distiller or not steps.shape[1]:
        return (weight * plain).sum() / weight.sum(), plain.mean().item()
    place = torch.full((ids.numel(),), -1, device=DEVICE)
    place[keep] = torch.arange(len(keep), device=DEVICE)
    taught = place[steps[0]]
    want = torch.zeros_like(logp).scatter_(1, target[:, None], 1.0)
    soft, their_states = distiller(theirs, steps, target[taught])
    # In conversations the teacher does not see the request.
    distil = torch.where(steps[3] == END, args.distil, args.distil_chat * (weight[taught] == 1))[:, None]
    want[taught] = (1 - distil) * want[taught] + distil * soft
    loss = -(weight * (want * logp).sum(1)).sum() / weight.sum()
    # States are matched in plain documents only: in conversations the student's depend on the request.
    alone = (steps[3] == END).nonzero()[:, 0]
    if len(alone):
        far = sum((x.flatten(0, 1)[steps[0, alone]] - y[alone]).square().mean() / y.square().mean()
                  for x, y in zip(states, their_states))
        loss = loss + args.match * far / len(states) * len(alone) / len(keep)
    return loss, plain.mean().item()


def train(student, data, bpe, heldout, distiller, args):
    """Trains until all runs together have taken --minutes, to which the learning rate decays to 0. best.pt holds the
    exponential moving average of the weights with the best score."""
    matrices = [p for p in student.parameters() if p.dim() == 2]
    vectors = [p for p in student.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([dict(params=matrices, weight_decay=args.decay), dict(params=vectors, weight_decay=0)],
                            lr=args.lr, betas=(0.9, 0.98), eps=1e-8, foreach=True)
    state = dict(step=0, tokens=0, seconds=0.0, best=9.9)
    last, best = os.path.join(args.work, "last.pt"), os.path.join(args.work, "best.pt")
    mean = {k: v.clone() for k, v in student.state_dict().items()}
    if os.path.exists(last):
        saved = torch.load(last, map_location=DEVICE)
        student.load_state_dict(saved["model"]), opt.load_state_dict(saved["opt"])
        mean, state = saved["mean"], saved["state"]
        print("resumed at step %(step)d, %(seconds).0f s" % state)
    stream = batches(data, args.batch, np.random.default_rng(args.seed + state["step"]))
    budget, began, spent = args.minutes * 60, time.time(), state["seconds"]
    saved_at, evaluated_at, loss_sum, loss_n = time.time(), time.time(), 0.0, 0

    def evaluate():
        keep = {k: v.clone() for k, v in student.state_dict().items()}
        student.load_state_dict(mean)
        score = nats_per_byte(student, bpe.encode, bpe.special["<|begin_of_text|>"], heldout[:args.eval_stories])
        if score < state["best"]:
            state["best"] = score
            torch.save(dict(model=mean, state=dict(state)), best + ".new")
            os.replace(best + ".new", best)
        student.load_state_dict(keep)
        print("\nstep %d  %.0f s  %d tokens  held out: %.4f nats/byte" %
              (state["step"], state["seconds"], state["tokens"], score), flush=True)

    if not state["step"]:
        evaluate()
    while True:
        state["seconds"] = spent + time.time() - began
        share = state["seconds"] / budget
        if share >= 1:
            break
        lr = args.lr * min((state["step"] + 1) / args.warmup, 1 - share)
        for g in opt.param_groups:
            g["lr"] = lr
        batch = next(stream)
        loss, plain = loss_of(student, batch, distiller, args)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        opt.step()
        state["step"] += 1
        state["tokens"] += batch[0].numel()
        pull = max(1 - args.ema, 1 / (state["step"] + 1))
        with torch.no_grad():
            now = student.state_dict()
            torch._foreach_mul_(list(mean.values()), 1 - pull)
            torch._foreach_add_(list(mean.values()), [now[k] for k in mean], alpha=pull)
        loss_sum, loss_n = loss_sum + plain, loss_n + 1
        if state["step"] % args.log == 0:
            progress("training", share, "step %d  loss %.3f  lr %.1e  %.0f tokens/s" % (
                state["step"], loss_sum / loss_n, lr, state["tokens"] / (state["seconds"] + 1e-9)))
            loss_sum = loss_n = 0
        if time.time() - saved_at > 120:
            torch.save(dict(model=student.state_dict(), opt=opt.state_dict(), mean=mean, state=state), last + ".new")
            os.replace(last + ".new", last)
            saved_at = time.time()
        if time.time() - evaluated_at > args.eval_every:
            evaluate()
            evaluated_at = time.time()
    torch.save(dict(model=student.state_dict(), opt=opt.state_dict(), mean=mean, state=state), last)
    evaluate()


# ---------------------------------------------------------------- export

# The chat format of Llama 3.1, without dates and tools.
CHAT_TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""


class Tensor:
    """A tensor for write_gguf: matrices as Q8_0 (blocks of 32 weights: f16 scale, 32 x i8), vectors as f32."""

    def __init__(self, name, x):
        self.name, self.x = name, x.detach().cpu().float().numpy()
        self.type, self.shape = "q8_0" if x.dim() == 2 else "f32", tuple(x.shape)

    def pieces(self):
        if self.type == "f32":
            return [self.x.tobytes()]
        x = self.x.reshape(-1, 32)
        d = np.abs(x).max(1, keepdims=True) / np.float32(127)
        inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d > 0)
        q = x * inverse
        q = (np.sign(q) * np.floor(np.abs(q) + np.float32(0.5))).astype(np.int8)
        return [np.concatenate((d.astype(np.float16).view(np.int8), q), 1).tobytes()]


def export(student, bpe, path):
    dim, n_layers, n_heads, n_kv, ffn, n_vocab = student.shape
    hd = dim // n_heads
    text, merges = merges_of(bpe.tokens)
    metadata = {
        "general.architecture": "llama",
        "general.name": "stories of llama31",
        "general.license": "mit",
        "general.file_type": 7,
        "llama.vocab_size": n_vocab,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": dim,
        "llama.block_count": n_layers,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv,
        "llama.attention.layer_norm_rms_epsilon": NORM_EPS,
        "llama.rope.dimension_count": hd,
        "llama.rope.freq_base": THETA,
        # The scaling is in rope_freqs.weight; with a scaling type here, readers would apply it twice.
        "llama.rope.scaling.original_context_length": SCALING["original"],
        **byte_level(text + special_names(), [1] * len(text) + [3] * N_SPECIAL, merges),
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    tensors = [Tensor("token_embd.weight", student.embed), Tensor("output_norm.weight", student.norm),
               Tensor("rope_freqs.weight", torch.tensor(rope_divisors(hd)))]
    for i, m in enumerate(student.layers):
        parts = ([m.norm1], m.qkv.split((n_heads * hd, n_kv * hd, n_kv * hd)), [m.o], [m.norm2], m.gate_up.chunk(2),
                 [m.down])
        tensors += [Tensor("blk.%d.%s.weight" % (i, name), x) for names, part in zip(LAYER_NAMES, parts)
                    for name, x in zip(names, part)]
    write_gguf(path, metadata, tensors, is_forced=True)
    print("%s: %d bytes" % (path, os.path.getsize(path)))


# ---------------------------------------------------------------- main

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=__doc__[__doc__.index("Stages"):],
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("stage", choices="all corpus heldout vocab data train eval export samples".split())
    ap.add_argument("--teacher", default="stories15M.bin")
    ap.add_argument("--teacher-tokenizer", default="tokenizer.bin")
    ap.add_argument("--baseline", nargs=2, metavar=("BIN", "TOKENIZER"), help="another llama2.c model to evaluate")
    ap.add_argument("--corpus", help="file of stories separated by lines <|end|>, may be .xz (default: sample them)")
    ap.add_argument("--stories", type=int, default=57000, help="number of stories to sample")
    ap.add_argument("--start", metavar="GGUF", help="start from an earlier stories.gguf")
    ap.add_argument("--work", default="train-stories")
    ap.add_argument("--minutes", type=float, default=60, help="training time of all runs together")
    ap.add_argument("--batch", type=int, default=2048, help="ids per step")
    ap.add_argument("--lr", type=float, default=4.5e-4)
    ap.add_argument("--decay", type=float, default=0.05)
    ap.add_argument("--distil", type=float, default=0.9, help="weight of the teacher's distribution in the loss")
    ap.add_argument("--distil-chat", type=float, default=0.3, help="the same for conversations")
    ap.add_argument("--match", type=float, default=1.0, help="weight of the distance to the teacher's hidden states")
    ap.add_argument("--teacher-temp", type=float, default=0.8, help="temperature of the teacher's distribution")
    ap.add_argument("--warmup", type=int, default=20)
    ap.add_argument("--ema", type=float, default=0.98, help="decay of the moving average of the weights")
    ap.add_argument("--log", type=int, default=10, help="steps between progress lines")
    ap.add_argument("--eval-every", type=float, default=400, help="seconds")
    ap.add_argument("--eval-stories", type=int, default=40)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--prompt", default="Once upon a time", help="samples: continue this")
    ap.add_argument("--chat", help="samples: answer this")
    ap.add_argument("--temp", type=float, default=0.7)
    ap.add_argument("--count", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    os.makedirs(args.work, exist_ok=True)
    at = lambda name: os.path.join(args.work, name)
    wants = lambda stage: args.stage in (stage, "all")
    need = {}

    def teacher():
        if "teacher" not in need:
            need["teacher"] = load_llama2c(args.teacher), SentencePiece(args.teacher_tokenizer)
        return need["teacher"]

    if wants("corpus") and not args.corpus and not os.path.exists(at("stories.txt.xz")):
        write_stories(at("stories.txt.xz"), sample_teacher(*teacher(), args.stories, args.seed, top_p=0.96))
    corpus = args.corpus or at("stories.txt.xz")
    if wants("heldout") and not os.path.exists(at("heldout.txt")):
        write_stories(at("heldout.txt"), sample_teacher(*teacher(), 200, args.seed + 1000, temperature=0.8))
    if wants("vocab") and not os.path.exists(at("vocab.json")):
        merges = (merges_in(read_gguf(args.start)[0]) if args.start else
                  train_bpe(read_stories(corpus), N_VOCAB - N_SPECIAL - 256))
        json.dump(merges, open(at("vocab.json"), "w"))
    bpe = ByteBPE(json.load(open(at("vocab.json")))) if os.path.exists(at("vocab.json")) else None
    if wants("data") and not os.path.exists(at("data.npz")):
        np.savez(at("data.npz"), **make_data(read_stories(corpus), bpe, teacher()[1], args.seed))
    if wants("train"):
        data = np.load(at("data.npz"))
        data = {k: data[k] for k in data}
        print("%d documents, %d ids, total loss weight %d" % (len(data["ends"]), len(data["ids"]), data["learn"].sum()))
        student = new_student()
        if os.path.exists(at("last.pt")):
            pass
        elif args.start:
            start_from_file(student, read_gguf(args.start)[1])
        else:
            start_from_teacher(student, *teacher(), bpe, read_stories(corpus)[:40])
        print("%d parameters" % sum(p.numel() for p in student.parameters()))
        train(student, data, bpe, read_stories(at("heldout.txt")),
              Distiller(teacher()[0], data, args.teacher_temp) if args.distil else None, args)
    if not (wants("eval") or wants("export") or args.stage == "samples"):
        return
    student, saved = new_student(), torch.load(at("best.pt"), map_location=DEVICE)
    student.load_state_dict(saved["model"])
    print("best model: %(step)d steps, %(tokens)d tokens, %(seconds).0f s" % saved["state"])
    if wants("eval"):
        stories, score = read_stories(at("heldout.txt")), "%-12s %.4f nats/byte on %d stories"
        start = bpe.special["<|begin_of_text|>"]
        print(score % ("student", nats_per_byte(student, bpe.encode, start, stories), len(stories)))
        print(score % ("teacher", nats_per_byte(teacher()[0], teacher()[1].encode_text, 1, stories), len(stories)))
        if args.baseline:
            small, tokens = load_llama2c(args.baseline[0]), SentencePiece(args.baseline[1])
            print(score % ("baseline", nats_per_byte(small, tokens.encode_text, 1, stories), len(stories)))
    if wants("export"):
        export(student, bpe, at("stories.gguf"))
    if args.stage == "samples":
        sp = bpe.special
        if args.chat:
            prompt = encode_turns(bpe, [("user", args.chat, ()), ("assistant", "", ())])[0][:-1]
        else:
            prompt = [sp["<|begin_of_text|>"]] + bpe.encode(args.prompt)
        with torch.no_grad():
            rows, ended = sample_ids(student, [prompt] * args.count, 400, args.temp, 1.0, args.seed,
                                     (sp["<|end_of_text|>"], sp["<|eot_id|>"]))
        for row, end in zip(rows, ended):
            print("---" if end else "--- (truncated)", ("" if args.chat else args.prompt) + bpe.decode(row), sep="\n")


if __name__ == "__main__":
    main()
