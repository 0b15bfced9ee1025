#!/usr/bin/env python3
"""The command score against sums computed here, in double, from the raw logits of `llama31 logits`."""
import array
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time

from cli import DATA, PROGRAM, ROOT, SCRIPTS, Skip, check, main, read_lines, same, some, test

STORY = ("Once upon a time there was a little girl named Lily. She loved to play with her big dog in the park. "
         "One day, they saw a red ball and ran to it.\n")


def encode(cli, text):
    """The ids of a text, after BOS if the model has one."""
    message = json.dumps({"role": "user", "content": text}).encode()
    return list(map(int, cli.run("tokenize", "--ids", "--template", "none", "--chat", "-", stdin=message)[0].split()))


def raw_logits(cli, ids, *options):
    """A list of logits for each token."""
    path = cli.path_of("logits")
    cli.run("logits", "--ids", ",".join(map(str, ids)), "-o", path, "--deterministic", "--force", *options)
    logits = array.array("f")
    with open(path, "rb") as f:
        logits.frombytes(f.read())
    n = len(logits) // len(ids)
    return [logits[i * n:(i + 1) * n] for i in range(len(ids))]


def log_softmax(row):
    top = max(row)
    total = math.log(sum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


def rows(cli, ids):
    """The log-probabilities of all tokens after each of some tokens, from the output of logits."""
    return [log_softmax(row) for row in raw_logits(cli, ids)]


def logprobs(cli, ids):
    """log P(ids[i] | ids[:i]) for i >= 1"""
    return [row[target] for row, target in zip(rows(cli, ids), ids[1:])]


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
    token = next(w for w in ("the", "a", "A", "e") if len(encode(cli, w)) == 2)
    one = score(cli, "--perplexity", cli.write("one.jsonl", [json.dumps(token)]))
    same((one["n_tokens"], one["stderr"]), (1, None))


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
    nll = [-x for x in expected]
    variance = sum(x * x for x in nll) / len(nll) - (sum(nll) / len(nll)) ** 2
    near(found["stderr"], found["perplexity"] * math.sqrt(variance / (len(nll) - 1)), "standard error")
    check(out.startswith(b"perplexity %.4f +/- %.5f (" % (found["perplexity"], found["stderr"])), out)


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
        same([len(a.pop("request")) for a in answers], [16] * 5)
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
                              (2, "-o, --shard: need --jsonl", "--perplexity", source, "-o", "x"),
                              (2, "--resume: needs -o", "--jsonl", "-f", source, "--resume")):
        cli.refuses(code, says, "score", *args)


def compare_logits(cli, *args, code=0):
    r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "compare_logits.py"), "--program", PROGRAM, *map(str, args)],
                       capture_output=True, text=True, timeout=120)
    same(r.returncode, code, r.stderr)
    return r.stdout if code == 0 else r.stderr


OTHER = ["--rope-scaling", "linear", "--rope-scale", "1.5"]  # the same file as another model


@test
def divergence(cli):
    """scripts/compare_logits.py against sums computed here, in windows as those of --perplexity."""
    model, size = cli.model or os.path.join(ROOT, "stories", "stories.gguf"), 20
    source = cli.write("text", [STORY * 2])
    start, ids = encode(cli, ""), encode(cli, open(source).read())
    divergences, n_agreed, error, square = [], 0, 0, 0
    for first in range(0, len(ids) - size + 1, size):
        window = start + ids[first + len(start):first + size]
        logits = [raw_logits(cli, window, *options)[size // 2:-1] for options in ([], OTHER)]
        for a, b in zip(*logits):
            p, q = log_softmax(a), log_softmax(b)
            divergences.append(sum(math.exp(x) * (x - y) for x, y in zip(p, q)))
            n_agreed += p.index(max(p)) == q.index(max(q))
            error += sum((x - y) ** 2 for x, y in zip(a, b))
            square += sum(x * x for x in a)
    n = len(divergences)
    check(n > 9 and max(divergences) > 0.1, divergences)

    own = model + " --deterministic"
    found = compare_logits(cli, own, own + " " + " ".join(OTHER), source, "-c", size)
    numbers = [float(x) for x in re.findall(r" ([0-9.e-]+[0-9])(?![ %]*below)", found)]
    expected = [sum(divergences) / n, sorted(divergences)[math.ceil(0.99 * n) - 1], max(divergences), 100 * n_agreed / n,
                error / square, n]
    same(len(numbers), len(expected), found)
    for x, y in zip(numbers, expected):
        check(abs(x - y) < 1e-3 * y + 1e-6, found, expected)
    same(compare_logits(cli, own, own, source, "-c", size).splitlines()[:2],
         ["KL divergence     0.000000 nats (99 % below 0.000000, most 0.000000)", "same best token   100.000 %"])

    check("less than a window of 512" in compare_logits(cli, model, model, cli.write("short", ["A few words."]), code=1))
    check("expected at least 4" in compare_logits(cli, model, model, source, "-c", 3, code=1))
    check("none: no such file" in compare_logits(cli, model, cli.path_of("none"), source, code=1))
    check("--kv" in compare_logits(cli, model, model + " --kv q3", source, "-c", size, code=2))
    if cli.model:
        check("found another" in compare_logits(cli, model, os.path.join(ROOT, "stories", "stories.gguf"), source, code=1))


# Requests of --jsonl

def plain_ids(cli, text):
    return list(map(int, cli.run("tokenize", "--ids", stdin=text.encode())[0].split()))


def pair(cli, context, continuation, n_ctx=10**9):
    """Tokens of a context and a continuation (text or ids), and the index of the first scored token, as
    lm-evaluation-harness encodes them; a token that spans the boundary is scored."""
    start = encode(cli, "")
    if isinstance(context, str) and isinstance(continuation, str) and context.strip():
        stripped = context.rstrip()
        ids, alone = encode(cli, context + continuation), encode(cli, stripped)
        first = 0
        while first < min(len(alone), len(ids) - 1) and ids[first] == alone[first]:
            first += 1
    else:
        is_text = isinstance(context, str)
        before = context if not is_text else start + plain_ids(cli, context) if context.strip() else []
        space = context if is_text and not before else ""
        after = plain_ids(cli, space + continuation) if isinstance(continuation, str) else continuation
        before = before or start
        ids, first = before + after, len(before)
    n_over = max(0, len(ids) - 1 - n_ctx)
    return ids[n_over:], first - n_over, n_over


def models(cli):
    """A model with SentencePiece, and the built-in one with byte-level BPE."""
    given = cli.model
    for cli.model in {given, None}:
        yield cli.model
    cli.model = given


@test
def requests(cli):
    """Continuations against sums over raw logits, at every kind of boundary and beyond the window."""
    for model in models(cli):
        parts = plain_ids(cli, "\u4f60")[-3:]  # bytes of one character
        dog = plain_ids(cli, " dog")
        cases = [("Once upon a time there was a", " little girl"), ("Once upon a time there was a ", "little girl"),
                 ("Once upon a ti", "me"), ("Once upon a time \x1f\n\u3000", "there"), ("", "Once upon"), ("  ", "Once"),
                 ("The caf", "\u00e9 was big"), (parts[:1], parts[1:]), ("A", parts[:2]), (dog, dog + dog),
                 ([], dog), ("There was a", dog), (STORY, STORY), ("A \u4f60", "\u597d<|eot_id|></s>")]
        cases = some(cases)
        lines = [{"id": i, "context": a, "continuation": b, "logprobs": 1} for i, (a, b) in enumerate(cases)]
        for n_ctx in 10**9, 60:
            source = cli.write("requests.jsonl", lines)
            out, err = cli.run("score", "--jsonl", "-f", source, *(["-c", n_ctx] if n_ctx < 999 else []),
                               code=(0, 5))
            found = [json.loads(line) for line in out.splitlines()]
            same([a["id"] for a in found], list(range(len(cases))))
            for (context, continuation), a in zip(cases, found):
                ids, first, n_over = pair(cli, context, continuation, n_ctx)
                if first < 1:
                    continue
                table = rows(cli, ids)[first - 1:-1]
                expected = [row[t] for row, t in zip(table, ids[first:])]
                same((a["n_tokens"], a.get("n_truncated", 0)), (len(expected), n_over), (context, continuation))
                near(a["logprob"], sum(expected), (model, context, continuation))
                same(a["is_greedy"], all(row[t] == max(row) for row, t in zip(table, ids[first:])))
                same([t["id"] for t in a["logprobs"]], ids[first:])
                for token, row in zip(a["logprobs"], table):
                    near(token["logprob"], row[token["id"]])
                    near(token["top"][0]["logprob"], max(row))
                if isinstance(continuation, str):
                    same((a["n_bytes"], a["n_chars"]), (len(continuation.encode()), len(continuation)))
            check((n_ctx > 999) == ("longer than the context" not in err), err)


@test
def rolling(cli):
    """A text is scored once per token, in windows as lm-evaluation-harness cuts them."""
    text = STORY * 3
    start, ids = encode(cli, ""), plain_ids(cli, text)
    for n in 10**9, 50, 7:
        expected, at = 0, 0
        while at < len(ids):
            end = min(len(ids), at + n)
            window = (start + ids)[max(0, end - n):end + 1]
            expected += sum(logprobs(cli, window)[-(end - at):])
            at = end
        out = cli.run("score", "--jsonl", *(["-c", n] if n < 999 else []), stdin=json.dumps({"text": text}).encode())[0]
        found = json.loads(out)
        near(found["logprob"], expected, n)
        same((found["n_tokens"], found["n_bytes"], "n_truncated" in found), (len(ids), len(text), False))
    same(json.loads(cli.run("score", "--jsonl", stdin=json.dumps(text).encode())[0])["n_tokens"], len(ids))


@test
def measures(cli):
    """The best choice by sum, and by mean per token, byte and character; messages go through the template."""
    texts = [" dog", " little girl named Lily who went to the park", "\u00e9", " \u4f60\u597d"]
    out = cli.run("score", "--jsonl", stdin=json.dumps({"context": "There was a", "choices": texts}).encode())[0]
    found = json.loads(out)
    for key, size in (("", lambda c: 1), ("_per_token", lambda c: c["n_tokens"]),
                      ("_per_byte", lambda c: len(c["text"].encode())), ("_per_char", lambda c: len(c["text"]))):
        values = [c["logprob"] / size(c) for c in found["choices"]]
        for value, c in zip(values, found["choices"]):
            near(c["logprob" + key], value)
        same(found["best" + key], texts[values.index(max(values))], key)
    message = {"messages": [{"role": "user", "content": "Hi <|im_end|>"}], "choices": ["yes", "no"]}
    ids = list(map(int, cli.run("tokenize", "--ids", "--template", "chatml", "--chat", "-",
                                stdin=json.dumps(message["messages"][0]).encode())[0].split()))
    found = json.loads(cli.run("score", "--jsonl", "--template", "chatml", stdin=json.dumps(message).encode())[0])
    for c in found["choices"]:
        near(c["logprob"], sum(logprobs(cli, ids + plain_ids(cli, c["text"]))[len(ids) - 1:]))


def mixed_requests():
    rng, shots = random.Random(5), STORY * 2
    words = "dog cat girl boy ball park tree little big red happy".split()
    for i in range(60):
        words_here = [rng.choice(words) for _ in range(rng.randrange(9))]
        context = (shots if i % 3 else "") + "There was a " + " ".join(words_here)
        if i % 5 == 0:
            yield {"id": i, "context": context, "continuation": " " + rng.choice(words), "logprobs": True}
        elif i % 7 == 0:
            yield {"id": i, "text": context}
        else:
            yield {"id": i, "context": context, "choices": [" " + w for w in rng.sample(words, rng.randrange(1, 6))]}


@test
def one_result(cli):
    """Any batch, chunk, order, number of shards and interruption: the same bytes. A common prefix is computed once."""
    lines = list(mixed_requests())
    source, out = cli.write("in.jsonl", lines), cli.path_of("out.jsonl")
    plain, err = cli.run("score", "--jsonl", "-i", source)
    same(plain.count(b"\n"), len(lines))
    n_prompt, n_shared = (int(word) for word in err.split(" | ")[1].replace("prompts ", "").split() if word.isdigit())
    check(n_shared > 0.7 * n_prompt, err)
    for args in some((["--parallel", 1], ["--parallel", 7], ["--parallel", 32], ["--chunk", 5], ["-t", 2],
                      ["--deterministic"]), 2):
        same(cli.run("score", "--jsonl", "-i", source, *args)[0], plain, args)

    shuffled = random.Random(1).sample(lines, len(lines))
    answers = cli.run("score", "--jsonl", "-i", cli.write("shuffled.jsonl", shuffled))[0].splitlines(True)
    same(b"".join(sorted(answers, key=lambda a: json.loads(a)["id"])), plain)

    parts = [cli.path_of("out%d.jsonl" % k) for k in (1, 2, 3)]
    for k, part in enumerate(parts):
        cli.run("score", "--jsonl", "-i", source, "-o", part, "--shard", "%d/3" % (k + 1))
    merge = [sys.executable, os.path.join(SCRIPTS, "merge_batch.py"), source, *parts]
    same(subprocess.run(merge, stdout=subprocess.PIPE, check=True).stdout, plain)

    for i in some(range(10)):
        args = ["--jsonl", "-q", "-i", source, "-o", out, "--resume", "--parallel", 1 + i]
        p = subprocess.Popen(cli.command("score", *args), stderr=subprocess.DEVNULL)
        time.sleep(0.02 + 0.01 * i)
        p.send_signal(signal.SIGKILL)
        p.wait()
    cli.run("score", "--jsonl", "-i", source, "-o", out, "--resume")
    with open(out, "rb") as f:  # the first result has the identity of the run
        same(re.sub(rb',"run":{.*(?=}\n)', b"", f.read()), plain)
    cli.refuses(2, "--resume completes it", "score", "--jsonl", "-i", source, "-o", out)


@test
def refused_requests(cli):
    """An invalid request becomes an error with its line; the others are scored; exit 5."""
    good = {"context": "The", "continuation": " cat"}
    cases = [({"continuation": None}, "continuation: "), ({"context": 1}, "context: "), ({"context": [-1]}, "context: "),
             ({"context": [10**6]}, "context: "), ({"continuation": ""}, "continuation is empty"),
             ({"choices": ["a"]}, "choices: "), ({"id": [1]}, "id: "), ({"id": 1.5}, "id: "),
             ({"logprobs": "x"}, "logprobs: "), ({"continuation": []}, "empty"),
             ({"context": None}, "expected one of"), ({"text": "a"}, "expected one of"),
             ({"context": None, "continuation": None, "text": ""}, "no token"), ({"context": None, "text": "a"}, "text: "),
             ({"context": None, "continuation": None, "text": "a", "choices": ["b"]}, "text: "),
             ({"continuation": " dog" * 40}, "does not fit")]
    lines = [{k: v for k, v in dict(good, **change).items() if v is not None} for change, _ in cases] + [good]
    source, out = cli.write("in", lines + ['{"messages": null, "choices": ["a"]}', "{"]), cli.path_of("out")
    cli.run("score", "--jsonl", "-f", source, "-o", out, "-c", 30, code=5)
    found = read_lines(out)
    for i, ((change, says), a) in enumerate(zip(cases, found)):
        check("line %d: " % (i + 1) in a["error"]["message"] and says in a["error"]["message"], change, a)
    same([a.get("error", {}).get("code") for a in found[-4:]],
         ["context_length_exceeded", None, "invalid_request", "invalid_json"])
    cli.refuses(2, "--choices: byte 4", "score", "--choices", '["a"', "x")
    cli.refuses(2, "--choices: expected A,B,...", "score", "--choices", "a,,b", "x")
    cli.refuses(4, "does not fit", "score", "--raw", "--choices", "a,b", "-c", 20, STORY)


N_PAIRS = int(os.environ.get("LLAMA31_PAIRS", "8"))
RERANKER = os.path.join(DATA, "families", "qwen3-q4_k_m.gguf")
JUDGE = ('Judge whether the Document meets the requirements based on the Query and the Instruct provided. '
         'Note that the answer can only be "yes" or "no".')
INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"


CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "<|im_start|>assistant\n<think>\n\n</think>{{ '\n\n' }}")


def relevance(cli, messages, template):
    """P(yes) against P(no) as the answer to a dialogue in a chat template, from the raw logits."""
    path = cli.path_of("chat.jinja")
    with open(path, "w") as f:
        f.write(template)
    stdin = "\n".join(json.dumps({"role": role, "content": text}) for role, text in messages).encode()
    out = cli.run("tokenize", "--ids", "--template", path, "--chat", "-", stdin=stdin)[0]
    ids = list(map(int, out.split()))
    yes, no = (sum(logprobs(cli, ids + plain_ids(cli, word))[len(ids) - 1:]) for word in ("yes", "no"))
    return 1 / (1 + math.exp(no - yes)), yes, no


def with_text(path, source, key, text):
    """Copies a GGUF file and adds a text to its metadata. The padding of the tensors stays right, because the text is
    extended by spaces until the entry has a multiple of 32 bytes."""
    with open(source, "rb") as f:
        data = f.read()
    text += " " * (-(20 + len(key) + len(text)) % 32)
    entry = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IQ", 8, len(text)) + text.encode()
    n = struct.unpack_from("<Q", data, 16)[0]
    with open(path, "wb") as f:
        f.write(data[:16] + struct.pack("<Q", n + 1) + entry + data[24:])
    return text


@test
def rerank(cli):
    """Relevance of documents with the published prompt of Qwen3-Reranker; no document can forge a special token."""
    if not os.path.exists(RERANKER):
        raise Skip("no " + RERANKER)
    given, cli.model = cli.model, RERANKER
    rng, query = random.Random(3), "Which animal <|im_end|> barks?"
    words = "dog cat barks meows the a loud yes no <|im_end|> <|im_start|>assistant\n <think> </think>".split(" ")
    documents = [" ".join(rng.choice(words) for _ in range(rng.randrange(9))) for _ in range(N_PAIRS)]
    lines = [{"id": "d%d" % i, "text": d} if i % 2 else json.dumps(d) for i, d in enumerate(documents)]
    source = cli.write("documents", lines)
    found = [json.loads(line) for line in cli.run("score", "--rerank", query, "-i", source)[0].splitlines()]
    same([a["id"] for a in found], ["d%d" % i if i % 2 else i + 1 for i in range(N_PAIRS)])
    for a, d in zip(found, documents):
        user = "<Instruct>: %s\n<Query>: %s\n<Document>: %s" % (INSTRUCT, query, d)
        score, yes, no = relevance(cli, [("system", JUDGE), ("user", user)], CHATML)
        near(a["logprob_yes"], yes, d)
        near(a["logprob_no"], no, d)
        check(abs(a["score"] - score) <= 1e-4 * score, d, a, score)
    out = cli.run("score", "--rerank", query, "--instruction", "Bark <|im_end|>!", stdin=json.dumps(documents[0]).encode())[0]
    user = "<Instruct>: Bark <|im_end|>!\n<Query>: %s\n<Document>: %s" % (query, documents[0])
    near(json.loads(out)["logprob_yes"], relevance(cli, [("system", JUDGE), ("user", user)], CHATML)[1])
    cli.refuses(2, "--instruction: needs --rerank", "score", "--jsonl", "--instruction", "x")
    for args in ["--parallel", 1], ["--chunk", 7]:
        out = cli.run("score", "--rerank", query, "-i", source, "-o", "-", "--sort", *args)[0]
        same([json.loads(line) for line in out.splitlines()], sorted(found, key=lambda a: -a["score"]))
    cli.model = given


@test
def rerank_template(cli):
    """The reranking template of the file, its special tokens included."""
    if not os.path.exists(RERANKER):
        raise Skip("no " + RERANKER)
    path = cli.path_of("reranker.gguf")
    template = with_text(path, RERANKER, "tokenizer.chat_template.rerank",
                         "<|im_start|>user\n{document} answers {query}<|im_end|>\n"
                         "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    given, cli.model = cli.model, path
    found = json.loads(cli.run("score", "--rerank", "a?", stdin=b'"{query} <|im_end|>"')[0])
    end = template.index("<think>")
    chat = "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n" + template[end:]
    _, yes, no = relevance(cli, [("user", "{query} <|im_end|> answers a?")], chat)
    near(found["logprob_yes"], yes)
    near(found["logprob_no"], no)
    cli.refuses(2, "--sort: needs --rerank", "score", "--jsonl", "--sort")
    cli.refuses(2, "contains no instruction", "score", "--rerank", "a", "--instruction", "x", stdin=b'"b"')
    cli.refuses(2, "one of", "score", "--rerank", "a", "--choices", "a,b")
    out = cli.run("score", "--rerank", "a", "-c", 60, stdin=json.dumps("b" * 60).encode(), code=5)[0]
    same(json.loads(out)["error"]["code"], "context_length_exceeded")
    cli.model = given


if __name__ == "__main__":
    main("score")
