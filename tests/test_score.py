#!/usr/bin/env python3
"""The command score against sums computed here, in double, from the raw logits of `llama31 logits`."""
import array
import json
import math
import os

from cli import ROOT, check, main, same, test

STORY = ("Once upon a time there was a little girl named Lily. She loved to play with her big dog in the park. "
         "One day, they saw a red ball and ran to it.\n")


def encode(cli, text):
    """The ids of a text, after BOS if the model has one."""
    message = json.dumps({"role": "user", "content": text}).encode()
    return list(map(int, cli.run("tokenize", "--ids", "--template", "none", "--chat", "-", stdin=message)[0].split()))


def rows(cli, ids, *args):
    """The path of a file with the logits of some tokens, and its rows as log-probabilities."""
    path = cli.path_of("logits%d" % len(args))
    cli.run("logits", "--ids", ",".join(map(str, ids)), "-o", path, "--deterministic", "--force", *args)
    logits, out = array.array("f"), []
    with open(path, "rb") as f:
        logits.frombytes(f.read())
    n = len(logits) // len(ids)
    for i in range(len(ids)):
        row = logits[i * n:(i + 1) * n]
        top = max(row)
        total = math.log(sum(math.exp(x - top) for x in row))
        out.append([x - top - total for x in row])
    return path, out


def logprobs(cli, ids):
    """log P(ids[i] | ids[:i]) for i >= 1"""
    return [row[target] for row, target in zip(rows(cli, ids)[1], ids[1:])]


def near(found, expected, what=""):
    check(abs(found - expected) <= 2e-5 * max(1, abs(expected)), what, "expected", expected, "found", found)


def score(cli, *args, **options):
    return json.loads(cli.run("score", "--json", *args, **options)[0])


@test
def texts(cli):
    """.jsonl: every token after BOS counts, each text from a fresh context."""
    pieces = [STORY * 2, STORY[:40], "A", "\u00e9t\u00e9 \u4f60"]
    source = cli.write("texts.jsonl", [{"text": t} for t in pieces[1:]] + [json.dumps(pieces[0])])
    expected = [logprobs(cli, encode(cli, t)) for t in pieces]
    found = score(cli, "--perplexity", source, "--deterministic")
    same(found["n_tokens"], sum(map(len, expected)))
    near(found["nll"], -sum(map(sum, expected)))
    near(found["perplexity"], math.exp(found["nll"] / found["n_tokens"]))
    for args in ["--parallel", 1], ["--chunk", 3], ["--parallel", 2, "-t", 2]:
        same(score(cli, "--perplexity", source, "--deterministic", *args), found, args)


@test
def windows(cli):
    """A text is divided as by llama-perplexity: windows begin with BOS, their second halves count, a last part is left out."""
    text = STORY * 9
    source = cli.path_of("text")
    with open(source, "w") as f:
        f.write(text)
    ids, n = encode(cli, text), 48
    first = encode(cli, "")  # BOS, if the model has one
    expected = []
    for at in range(0, len(ids) // n * n, n):
        expected += logprobs(cli, first + ids[at + len(first):at + n])[n // 2:]
    found = score(cli, "--perplexity", source, "-c", n, "--deterministic")
    same((found["n_tokens"], found["n_ctx"]), (len(ids) // n * (n - 1 - n // 2), n))
    near(found["nll"], -sum(expected))
    for args in ["--parallel", 1], ["--chunk", 7], ["-t", 2]:
        same(score(cli, "--perplexity", source, "-c", n, "--deterministic", *args), found, args)
    out, _ = cli.run("score", "--perplexity", source, "-c", n, "--deterministic")
    check(out.startswith(b"perplexity %.4f " % found["perplexity"]), out)


@test
def choices(cli):
    """Sums over the tokens of each choice, from the command line and from JSON lines, for any --parallel."""
    prompt, texts = "Once upon a time there was a little", [" girl", " big dog", " boy named Tim"]

    # The log-probabilities of the model.
    found = score(cli, "--raw", "--choices", ",".join(texts), prompt, "--deterministic")
    n_prompt = len(encode(cli, prompt))
    for choice, text in zip(found["choices"], texts):
        ids = encode(cli, prompt + text)
        same((choice["text"], choice["n_tokens"]), (text, len(ids) - n_prompt))
        near(choice["logprob"], sum(logprobs(cli, ids)[n_prompt - 1:]), text)
    same(found["best"], max(found["choices"], key=lambda c: c["logprob"])["text"])

    # A space that the tokenizer merges with the next word makes no difference.
    spaced = score(cli, "--raw", "--choices", ",".join(t[1:] for t in texts), prompt + " ", "--deterministic")
    if len(encode(cli, prompt + " ")) > n_prompt:
        for a, b in zip(found["choices"], spaced["choices"]):
            near(a["logprob"], b["logprob"])

    # Several questions, in passes of any size.
    lines = [{"id": i, "prompt": prompt, "choices": texts} for i in range(5)]
    lines[2] = {"id": "short", "prompt": "The", "choices": [" cat"]}
    source = cli.write("questions", lines)

    for args in [], ["--parallel", 2], ["--chunk", 4]:
        out, _ = cli.run("score", "--raw", "--jsonl", "-f", source, "--deterministic", *args)
        answers = [json.loads(line) for line in out.splitlines()]
        same([a.pop("id") for a in answers], [0, 1, "short", 3, 4])
        same([len(a["choices"]) for a in answers], [3, 3, 1, 3, 3])
        for i in 0, 1, 3, 4:
            same(answers[i], found, args)


@test
def choices_of_json(cli):
    """--choices accepts a JSON array, for texts with commas; shares, probabilities and means follow from the sums."""
    prompt, texts = "Once upon a time there was a little", [" girl, and a dog", " boy", ",x"]
    found = score(cli, "--raw", "--choices", " " + json.dumps(texts), prompt)
    same([c["text"] for c in found["choices"]], texts)
    near(sum(c["share"] for c in found["choices"]), 1)
    best = max(found["choices"], key=lambda c: c["logprob"])
    same(found["best"], best["text"])
    for c in found["choices"]:
        near(c["probability"], math.exp(c["logprob"]))
        near(c["logprob_per_token"], c["logprob"] / c["n_tokens"])
        near(c["share"] / best["share"], math.exp(c["logprob"] - best["logprob"]))
    table = cli.run("score", "--raw", "--choices", json.dumps(texts), prompt)[0].decode().splitlines()
    same(table[0].split(), ["share", "logprob", "per", "token", "tokens"])
    same([line.endswith("  *") for line in table[1:]], [c is best for c in found["choices"]])
    for bad in ("[]", "[1]", '["a",""]', '["a"', '[["a"]]'):
        cli.refuses(2, "--choices", "score", "--choices", bad, prompt)


@test
def refusals(cli):
    source = cli.write("short", ["A few words."])
    for code, says, *args in ((2, "window", "--perplexity", source), (2, "--choices"),
                              (2, "one of", "--choices", "a", "--perplexity", source, "x"),
                              (2, "one of", "--perplexity", source, "x"), (2, "a,,b", "--choices", "a,,b", "x"),
                              (1, "none: No such file", "--perplexity", cli.path_of("none")),
                              (1, "line 1", "--perplexity", source, "--jsonl"),
                              (1, "no tokens to score", "--perplexity", cli.write("empty.jsonl", [])),
                              (4, "context 20", "--perplexity", cli.write("long.jsonl", [{"text": STORY}]), "-c", 20),
                              (1, "line 1", "--jsonl", "-f", cli.write("bad", [{"prompt": "x", "choices": []}]))):
        cli.refuses(code, says, "score", *args)


OTHER = ["--rope-scaling", "linear", "--rope-scale", "1.5"]  # the same file as another model


@test
def kl(cli):
    """Divergences from a file of logits and from a model, against sums computed here."""
    ids = encode(cli, STORY)
    path, own = rows(cli, ids)
    others = rows(cli, ids, *OTHER)[1]
    divergences = sorted(sum(math.exp(p) * (p - q) for p, q in zip(a, b)) for a, b in zip(own[:-1], others[:-1]))
    agreed = sum(a.index(max(a)) == b.index(max(b)) for a, b in zip(own[:-1], others[:-1]))
    listed = ",".join(map(str, ids))
    found = score(cli, "--ids", listed, "--kl", path, "--deterministic", *OTHER)
    n = len(ids) - 1
    same((found["n_tokens"], found["kl"]["n_positions"]), (n, n))
    check(divergences[-1] > 0.1, "the two are the same")
    near(found["kl"]["mean"], sum(divergences) / n, "mean")
    near(found["kl"]["max"], divergences[-1], "max")
    near(found["kl"]["p99"], divergences[math.ceil(0.99 * n) - 1], "p99")
    near(found["kl"]["top1_agreement"], agreed / n, "agreement")
    near(found["nll"], -sum(row[t] for row, t in zip(others, ids[1:])), "nll")
    same(score(cli, "--ids", listed, "--kl", path, "--deterministic")["kl"],
         {"mean": 0, "p99": 0, "max": 0, "top1_agreement": 1, "n_positions": n})

    model = cli.model or os.path.join(ROOT, "models", "stories.gguf")
    lines = cli.write("texts.jsonl", [{"text": STORY}])
    for args in ([], ["--chunk", 7]):
        same(score(cli, "--perplexity", lines, "--kl", model, "--deterministic", *OTHER, *args)["kl"], found["kl"], args)
    source = cli.write("text", [STORY * 3])
    windows = score(cli, "--perplexity", source, "-c", 32, "--kl", model, *OTHER)
    same(windows["kl"]["n_positions"], windows["n_tokens"])
    out, _ = cli.run("score", "--perplexity", source, "-c", 32, "--kl", model, *OTHER)
    check(out.count(b"\n") == 2 and b"\nKL divergence %.6f nats" % windows["kl"]["mean"] in out, out)

    cli.refuses(2, "expected the logits of %d tokens, found %d rows" % (n, n + 1), "score", "--ids", listed.rpartition(",")[0],
                "--kl", path)
    cli.refuses(2, "logits need --ids", "score", "--perplexity", source, "-c", 32, "--kl", path)
    cli.refuses(2, "expected a model, or logits", "score", "--ids", listed, "--kl", lines)
    cli.refuses(1, "no-such-file", "score", "--ids", listed, "--kl", "no-such-file")
    cli.refuses(2, "needs --perplexity or --ids", "score", "--choices", "a,b", "--kl", path, "Once")
    cli.refuses(2, "expected at least two tokens", "score", "--ids", "5")


@test
def refused_questions(cli):
    """Questions without prompt, choices or a valid id are refused with their line."""
    good = {"id": "a", "prompt": "The", "choices": [" cat", " dog"]}
    for change in {"prompt": 1}, {"prompt": None}, {"id": [1]}, {"id": True}, {"choices": None}, {"choices": "a"}, \
            {"choices": [1]}, {"choices": [""]}:
        source = cli.write("in", [{k: v for k, v in dict(good, **change).items() if v is not None}])
        cli.refuses(1, "line 1: expected {", "score", "--raw", "--jsonl", "-f", source)
    for id in "a", 7, 7.5:
        out = cli.run("score", "--raw", "--jsonl", "-f", cli.write("in", [dict(good, id=id)]))[0]
        same(json.loads(out.splitlines()[0])["id"], id)
    cli.refuses(2, "--choices: byte 4", "score", "--choices", '["a"', "x")
    cli.refuses(2, "--choices: expected A,B,...", "score", "--choices", "a,,b", "x")

if __name__ == "__main__":
    main("score")
