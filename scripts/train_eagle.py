#!/usr/bin/env python3
"""Trains an EAGLE-3 draft head for a GGUF model of the Llama architecture, on texts that the model wrote.

    for i in $(seq 5000); do echo '{"prompt": "", "temperature": 0.8}'; done | llama31 batch --raw -n 400 -o texts.jsonl
    train_eagle.py --texts texts.jsonl --minutes 30 stories/stories.gguf head.gguf
    llama31 run --draft head.gguf "Once upon a time"

The method is that of Li et al., EAGLE-3 (2025): one decoder layer reads three hidden states of the target and the token
that came next, and drafts the token after that. During training it is unrolled: in step k the layer's own output of
step k - 1 stands in for the target's hidden states, as it does when several tokens are drafted. The loss is the
cross-entropy to the target's next-token distribution, with a weight of 0.8 to the power of the step. The layer starts
from the last layer of the target, which must be F32, F16 or Q8_0. With --draft-vocab the head can only draft the most
frequent tokens of the texts, which makes its output matrix smaller.

One of 20 documents is held out. After the training, the acceptance rate on these is printed for each step after
accepted ones (a draft token is accepted if it is the target's most likely one), and the tokens per pass.

Needs PyTorch (1.13 or later) and NumPy.
"""
import lib.interrupt  # noqa: F401
import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "stories"))
from lib.gguf_writer import Failure, check_output, is_own, write_gguf
from lib.program import find_program
from lib.weights import Literal


def read_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("target", help="GGUF file of the target")
    p.add_argument("output", help="GGUF file to write")
    p.add_argument("--texts", required=True, help="output of llama31 batch: a line {\"text\": ...} per document")
    p.add_argument("--layers", default="", help="the layers whose inputs the head reads (default: 2, L / 2, L - 3)")
    p.add_argument("--llama31", default=find_program() or "llama31", help="the program that tokenizes the texts")
    p.add_argument("--draft-vocab", type=int, metavar="N", help="number of tokens that can be drafted (default: all)")
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--steps", type=int, default=4, help="drafted tokens that are trained for")
    p.add_argument("--batch", type=int, default=2048, help="tokens per step of the training")
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if args.draft_vocab is not None and args.draft_vocab < 1:
        p.error("--draft-vocab: expected a positive number, found %d" % args.draft_vocab)
    return p, args


if __name__ == "__main__":
    parser, arguments = read_args()  # --help needs no PyTorch
try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as e:
    sys.exit("train_eagle.py: %s" % e)
from train_stories import LAYER_NAMES, NORM_EPS, Llama, Tensor, progress, read_gguf, start_from_file

LENGTH = 512        # longest document in tokens; the rest is cut
STEP_WEIGHT = 0.8


def load_target(path):
    """(metadata, tensors, the target in evaluation mode, its output matrix)."""
    metadata, tensors = read_gguf(path)
    if metadata["general.architecture"] != "llama":
        sys.exit("train_eagle.py: %s: architecture %s, not llama" % (path, metadata["general.architecture"]))
    key = lambda name: metadata["llama." + name]
    n_vocab, dim = tensors["token_embd.weight"].shape
    head_dim = dim // key("attention.head_count")
    for name, expected in (("attention.layer_norm_rms_epsilon", NORM_EPS), ("attention.key_length", head_dim),
                           ("rope.dimension_count", head_dim), ("rope.scaling.type", "none")):
        found = metadata.get("llama." + name, expected)
        if found != expected and not (isinstance(found, float) and abs(found - expected) < 1e-9):
            sys.exit("train_eagle.py: %s: llama.%s: %s is not supported, only %s" % (path, name, found, expected))
    frequencies = key("rope.freq_base") ** (-np.arange(0, head_dim, 2) / head_dim)
    if "rope_freqs.weight" in tensors:
        frequencies /= tensors["rope_freqs.weight"].numpy()
    target = Llama(dim, key("block_count"), key("attention.head_count"), key("attention.head_count_kv"),
                   key("feed_forward_length"), n_vocab, frequencies, LENGTH)
    start_from_file(target, tensors)
    return metadata, tensors, target.eval(), tensors.get("output.weight", tensors["token_embd.weight"])


class Head(torch.nn.Module):
    """The draft head. Shapes and names as in the file: fc (D, 3 D), attention on 2 D values, output over `ids`."""

    def __init__(self, target, output, layers, ids):
        super().__init__()
        dim, n_layers, _, _, _, _ = target.shape
        last, self.layers, self.ids = target.layers[n_layers - 1], layers, ids
        copy = lambda w: torch.nn.Parameter(w.detach().clone())
        # g starts as the third hidden state, and the attention as the target's on g alone.
        self.fc = torch.nn.Parameter(torch.cat((torch.zeros(dim, 2 * dim), torch.eye(dim)), 1))
        self.qkv = torch.nn.Parameter(torch.cat((torch.zeros_like(last.qkv), last.qkv.detach()), 1))
        self.o, self.gate_up, self.down = copy(last.o), copy(last.gate_up), copy(last.down)
        self.norm_token, self.norm_g = torch.nn.Parameter(torch.ones(dim)), copy(last.norm1)
        self.norm_ffn, self.norm_output, self.output = copy(last.norm2), copy(target.norm), copy(output[ids])

    def forward(self, target, ids, n_steps):
        """Logits of each step: (batch, time - 1, draft vocabulary). Row P of step k drafts the token at P + 2 from the
        hidden states of P - k and the tokens up to P + 1; rows below k have no meaning."""
        _, _, n_heads, n_kv, ffn, _ = target.shape
        with torch.no_grad():
            states = [F.embedding(ids, target.embed)]
            target(ids, states=states)
        h = F.linear(torch.cat([states[i] for i in self.layers], -1), self.fc)[:, :-1]
        token = target.rms(states[0][:, 1:], self.norm_token)
        b, n, dim = h.shape
        head_dim, group = dim // n_heads, n_heads // n_kv
        cos, sin = target.cos[:n, None], target.sin[:n, None]
        keys, values, logits = [], [], []
        for step in range(n_steps):
            x = torch.cat((token, target.rms(h, self.norm_g)), -1)
            qk, v = F.linear(x, self.qkv).view(b, n, n_heads + 2 * n_kv, head_dim).split((n_heads + n_kv, n_kv), 2)
            qk = qk * cos + qk.unflatten(-1, (head_dim // 2, 2)).flip(-1).flatten(-2) * sin
            q, k = qk.split((n_heads, n_kv), 2)
            keys.append(k.repeat_interleave(group, 2).transpose(1, 2))      # (batch, heads, time, head_dim)
            values.append(v.repeat_interleave(group, 2).transpose(1, 2))
            q = q.transpose(1, 2) * head_dim ** -0.5
            # Position P sees the target's states up to P - step, and one output of the layer at each position after it.
            seen = torch.ones(n, n, dtype=torch.bool).tril(-step)
            score = [(q @ keys[0].transpose(2, 3)).masked_fill(~seen, -1e9)]
            score += [(q * shift(keys[j], step - j)).sum(-1, keepdim=True) for j in range(1, step + 1)]
            p = torch.cat(score, -1).softmax(-1)
            y = p[..., :n] @ values[0]
            for j in range(1, step + 1):
                y = y + p[..., n + j - 1:n + j] * shift(values[j], step - j)
            h = h + F.linear(y.transpose(1, 2).reshape(b, n, -1), self.o)
            gate, up = F.linear(target.rms(h, self.norm_ffn), self.gate_up).split(ffn, -1)
            h = h + F.linear(F.silu(gate) * up, self.down)
            logits.append(F.linear(target.rms(h, self.norm_output), self.output))
            h = shift(h, 1)
        return logits


def shift(x, n):
    """Shifts x by n positions along the last dimension but one; the first n become 0."""
    return x if n == 0 else torch.cat((torch.zeros_like(x[..., :n, :]), x[..., :-n, :]), -2)


def read_texts(args, bos):
    """The documents as ids, tokenized by llama31. Prints how many are left out or cut."""
    with open(args.texts, encoding="utf-8") as f:
        records = [json.loads(line) for line in f]
    texts = [r["text"] for r in records if isinstance(r.get("text"), str)]
    r = subprocess.run([args.llama31, "tokenize", "-q", "-m", args.target, "--jsonl"], stdout=subprocess.PIPE, check=True,
                       input="".join(json.dumps(text) + "\n" for text in texts).encode())
    documents = [[bos] + json.loads(line) for line in r.stdout.splitlines()]
    fit = [d for d in documents if len(d) > args.steps + 2]
    print("%d records: %d without a text and %d too short are left out, %d are cut to %d tokens" % (
        len(records), len(records) - len(texts), len(documents) - len(fit), sum(len(d) > LENGTH for d in fit), LENGTH))
    return [d[:LENGTH] for d in fit]


def batches_of(documents, size, rng):
    """Batches of documents of similar length with about `size` ids, forever: (ids, lengths)."""
    while True:
        order = sorted(range(len(documents)), key=lambda i: len(documents[i]) + rng.random())
        groups, group = [], []
        for i in order:
            if group and len(documents[i]) * (len(group) + 1) > size:
                groups.append(group)
                group = []
            group.append(documents[i])
        groups.append(group)
        for j in rng.permutation(len(groups)):
            ids = np.zeros((len(groups[j]), max(map(len, groups[j]))), np.int64)
            for row, document in zip(ids, groups[j]):
                row[:len(document)] = document
            yield torch.from_numpy(ids), torch.tensor([len(d) for d in groups[j]])


def compare(target, output, head, ids, lengths, n_steps):
    """(loss, hits): hits is (steps, batch, time), 1 for an accepted draft token, 0 for another, -1 outside documents."""
    with torch.no_grad():
        logits = F.linear(target(ids), output)[:, 1:]
        want, best = logits[..., head.ids].softmax(-1), logits.argmax(-1)
    position = torch.arange(want.shape[1])
    loss, hits = 0, []
    for step, logits in enumerate(head(target, ids, n_steps)):
        inside = (position[None] + 1 < lengths[:, None]) & (position >= step)[None]
        entropy = -(want * logits.log_softmax(-1)).sum(-1)
        loss = loss + STEP_WEIGHT ** step * (entropy * inside).sum() / inside.sum()
        hits.append((head.ids[logits.argmax(-1)] == best).long().masked_fill(~inside, -1))
    return loss, torch.stack(hits)


@torch.no_grad()
def acceptance(target, output, head, documents, n_steps):
    """The acceptance rate of each step after steps that were all accepted."""
    right, asked = np.zeros(n_steps), np.zeros(n_steps)
    for document in documents:
        hits = compare(target, output, head, torch.tensor([document]), torch.tensor([len(document)]), n_steps)[1][:, 0]
        alive = torch.ones(len(document) - 1, dtype=torch.bool)
        for step in range(n_steps):
            asked[step] += ((hits[step] >= 0) & alive).sum()
            right[step] += ((hits[step] == 1) & alive).sum()
            # The next step's row is one position later.
            alive = torch.cat((torch.zeros(1, dtype=torch.bool), (alive & (hits[step] == 1))[:-1]))
    return right / np.maximum(asked, 1)


def train(target, output, head, documents, args):
    parameters = list(head.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.01)
    stream = batches_of(documents, args.batch, np.random.default_rng(args.seed))
    began, steps, shown = time.time(), 0, 0
    while time.time() - began < args.minutes * 60:
        share = (time.time() - began) / (args.minutes * 60)
        optimizer.param_groups[0]["lr"] = args.lr * min((steps + 1) / 20, 1 - share)
        loss, hits = compare(target, output, head, *next(stream), args.steps)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        steps += 1
        if time.time() - shown > 10:
            shown = time.time()
            rates = " ".join("%.2f" % ((h == 1).sum() / (h >= 0).sum()).item() for h in hits)
            progress("training", share, "step %d  loss %.3f  accepted %s" % (steps, loss.item(), rates))


def export(metadata, tensors, target, head, path):
    dim, _, n_heads, n_kv, ffn, n_vocab = target.shape
    kv = n_kv * dim // n_heads
    out = {"general.architecture": "eagle3", "general.name": "EAGLE-3 head", "general.file_type": 7,
           "eagle3.block_count": 1, "eagle3.target_layers": list(head.layers), "eagle3.target_hidden_size": dim}
    for name in ("vocab_size", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
                 "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base"):
        if "llama." + name in metadata:
            out["eagle3." + name] = metadata["llama." + name]
    out.update((key, v) for key, v in metadata.items() if key.startswith("tokenizer.ggml."))
    named = [("fc", head.fc), ("output", head.output), ("output_norm", head.norm_output),
             ("blk.0.attn_norm_2", head.norm_g)]
    parts = ([head.norm_token], head.qkv.split((dim, kv, kv)), [head.o], [head.norm_ffn], head.gate_up.chunk(2), [head.down])
    named += [("blk.0." + name, x) for names, part in zip(LAYER_NAMES, parts) for name, x in zip(names, part)]
    named += [("rope_freqs", tensors["rope_freqs.weight"])] if "rope_freqs.weight" in tensors else []
    ids = [Literal("d2t", "i64", head.ids.shape, head.ids.numpy().tobytes())] if len(head.ids) < n_vocab else []
    write_gguf(path, out, [Tensor(name + ".weight", x) for name, x in named] + ids)


def main(p, args):
    try:
        check_output(args.output, [args.target, args.texts], False, is_own)  # before the training
    except Failure as e:
        sys.exit("train_eagle.py: %s" % str(e).replace("; replace it with --force", ""))
    torch.manual_seed(args.seed)
    metadata, tensors, target, output = load_target(args.target)
    n_layers = target.shape[1]
    layers = [int(i) for i in args.layers.split(",")] if args.layers else [2, n_layers // 2, n_layers - 3]
    if len(layers) != 3 or min(layers) < 0 or max(layers) >= n_layers:
        p.error("--layers: three numbers from 0 to %d" % (n_layers - 1))
    documents = read_texts(args, metadata["tokenizer.ggml.bos_token_id"])
    held_out, documents = documents[::20], [d for i, d in enumerate(documents) if i % 20]
    print("%d documents, %d tokens, %d held out" % (len(documents), sum(map(len, documents)), len(held_out)), flush=True)
    frequency = np.bincount(np.concatenate(documents), minlength=len(output))
    frequent = np.sort(np.argsort(-frequency, kind="stable")[:args.draft_vocab])
    print("%d tokens can be drafted: %.2f %% of the texts" % (
        len(frequent), 100 * frequency[frequent].sum() / frequency.sum()), flush=True)
    head = Head(target, output, layers, torch.from_numpy(frequent))
    train(target, output, head, documents, args)
    rates = acceptance(target, output, head, held_out[:200], args.steps)
    print("\nacceptance rate on held-out text, by step: " + " ".join("%.3f" % r for r in rates))
    print("tokens per pass: " + ", ".join("%d drafted %.2f" % (n, 1 + sum(np.cumprod(rates[:n]))) for n in
                                          range(1, args.steps + 1)))
    export(metadata, tensors, target, head, args.output)


if __name__ == "__main__":
    main(parser, arguments)
