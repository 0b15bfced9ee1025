"""Tokenizers of all source formats as GGUF metadata."""
import base64
import os
import struct

from .checkpoints import read_json
from .gguf_writer import Failure
from .weights import MAX_TABLE, inside, read_bytes

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MAX_TOKENS = MAX_MERGES = 1 << 20  # Gemma 3 has 262144 and 514906
MAX_TOKEN = 512  # bytes or characters; Llama 3 has a token of 128 spaces
MAX_JSON = 64 << 20  # bytes of tokenizer.json; Gemma 3's has 33 MB
SPACE = "\u2581"  # SentencePiece writes it for a space

# Pre-tokenizer expressions of Llama 3, Qwen 2 and Mistral (Tekken), and their names in tokenizer.ggml.pre.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
BEGIN, END = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPLITS = {SPLIT: "llama-bpe", SPLIT.replace("{1,3}", ""): "qwen2",
          r"[^\r\n\p{L}\p{N}]?" + BEGIN + "*" + END + r"+|[^\r\n\p{L}\p{N}]?" + BEGIN + "+" + END +
          r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+": "tekken"}
# The 256 special tokens of Llama 3.1, which follow the ranks.
SPECIAL = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1",
           "finetune_right_pad_id", "reserved_special_token_2", "start_header_id", "end_header_id", "eom_id", "eot_id",
           "python_tag"]
SPECIAL = ["<|%s|>" % s for s in SPECIAL + ["reserved_special_token_%d" % i for i in range(3, 248)]]


def check_vocabulary(v):
    """Checks the kinds of values and the lengths of a tokenizer, before they become metadata."""
    for key, count, length in ("tokens", MAX_TOKENS, MAX_TOKEN), ("merges", MAX_MERGES, 2 * MAX_TOKEN + 1):
        texts = v.get("tokenizer.ggml." + key, [""])
        is_valid = all(isinstance(text, (str, bytes)) and len(text) <= length for text in texts)
        if not is_valid or not 0 < len(texts) <= count:
            raise Failure("tokenizer: %s: expected 1 to %d texts of at most %d bytes" % (key, count, length))
    n_tokens = len(v["tokenizer.ggml.tokens"])
    for key in ("bos", "eos", "unknown"):
        id = v.get("tokenizer.ggml.%s_token_id" % key, 0)
        if type(id) is not int or not 0 <= id < n_tokens:
            raise Failure("the id of the tokenizer's %s token is not below its size, %d" % (key, n_tokens))
    if not isinstance(v.get("tokenizer.chat_template", ""), (str, bytes)):
        raise Failure("tokenizer_config.json: chat_template: expected a text")


# SentencePiece: Llama 2 and the story models

def sentencepiece(pieces, scores, types, unknown=0, bos=1, eos=2, space_prefix=True):
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": unknown,
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.eos_token_id": eos,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": space_prefix,
    }


def llama2c_vocabulary(path, n_vocab):
    """llama2.c's tokenizer.bin: i32 length of the longest piece, then f32 score, i32 length and text of each piece.
    <s> and </s> have line breaks around them, U+2581 is written as a space, and older files have byte tokens as the
    code point of the byte."""
    b, name = read_bytes(path), os.path.basename(path)
    pieces, scores, at = [], [], 4
    for i in range(n_vocab):
        score, n = struct.unpack_from("<fi", b, at) if at + 8 <= len(b) else (0, -1)
        if n < 0 or at + 8 + n > len(b):
            raise Failure("%s: piece %d of %d: truncated file" % (name, i, n_vocab))
        pieces.append(b[at + 8:at + 8 + n])
        scores.append(score)
        at += 8 + n

    if at != len(b):
        raise Failure("%s: more than the expected %d pieces" % (name, n_vocab))
    if n_vocab < 259 or pieces[3] not in (b"\0", b"<0x00>"):
        raise Failure("%s: piece 3: expected the byte token <0x00>, found %r" % (name, pieces[3:4]))

    pieces = ([b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)] +
              [p.replace(b" ", SPACE.encode()) for p in pieces[259:]])
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (n_vocab - 259)
    return sentencepiece(pieces, scores, types)


def fields(b):
    """Yields (field number, value) of a protobuf message; values are ints or bytes."""
    at = 0

    def varint():
        nonlocal at
        v = shift = 0
        while True:
            byte = b[at]
            at += 1
            v |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return v
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    while at < len(b):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        n = {1: 8, 5: 4}.get(key & 7) or (varint() if key & 7 == 2 else -1)
        if n < 0 or at + n > len(b):
            raise ValueError("truncated")
        yield key >> 3, b[at:at + n]
        at += n


def sentencepiece_vocabulary(data, name):
    """SentencePiece's model file, a protobuf message: pieces (1), trainer (2), normalizer (3)."""
    pieces, scores, types = [], [], []
    ids, model_type, space_prefix = {40: 0, 41: 1, 42: 2}, 1, True  # unknown, bos, eos

    try:
        for number, body in fields(data):
            if number == 1:
                piece = dict(fields(body))
                pieces.append(piece[1])
                scores.append(struct.unpack("<f", piece.get(2, bytes(4)))[0])
                types.append(piece.get(3, NORMAL))
            elif number == 2:
                trainer = dict(fields(body))
                model_type = trainer.get(3, 1)
                ids = {k: trainer.get(k, v) for k, v in ids.items()}
            elif number == 3:
                space_prefix = bool(dict(fields(body)).get(3, 1))
    except (ValueError, IndexError, KeyError, TypeError, struct.error) as e:
        raise Failure("%s: neither tiktoken ranks nor a SentencePiece model: %s" % (name, e))

    if model_type != 2 or not pieces:
        raise Failure("%s: a SentencePiece model other than BPE is not supported" % name)
    return sentencepiece(pieces, scores, types, ids[40], ids[41], ids[42], space_prefix)


# Byte-level BPE: Llama 3

def byte_letters():
    """GPT-2's character for each byte: itself if printable, else the next one from U+0100."""
    letters, spare = [], 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            letters.append(chr(b))
        else:
            letters.append(chr(spare))
            spare += 1
    return letters


def merges_of(ranks):
    """(tokens as text, merges): all pairs of tokens that form a token, in the order of BPE by rank."""
    letters = byte_letters()
    rank_of = {t: i for i, t in enumerate(ranks)}
    text = ["".join(letters[b] for b in t) for t in ranks]
    merges = []
    for token in ranks:
        pairs = []
        for i in range(1, len(token)):
            a, b = rank_of.get(token[:i]), rank_of.get(token[i:])
            if a is not None and b is not None:
                pairs.append((a, b))
        merges += [text[a] + " " + text[b] for a, b in sorted(pairs)]
        if len(merges) > MAX_MERGES:
            raise Failure("tokenizer: more than %d pairs of tokens form a token" % MAX_MERGES)
    return text, merges


def byte_level(tokens, types, merges, pre="llama-bpe"):
    """Metadata of a byte-level BPE vocabulary. Llama 3's special tokens are recognized by name."""
    id_of = {t: i for i, t in enumerate(tokens) if types[i] == CONTROL}
    vocabulary = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
    }
    for key, name in (("bos", "begin_of_text"), ("eos", "end_of_text"), ("eot", "eot_id"), ("eom", "eom_id"),
                      ("padding", "finetune_right_pad_id")):
        if "<|%s|>" % name in id_of:
            vocabulary["tokenizer.ggml.%s_token_id" % key] = id_of["<|%s|>" % name]
    vocabulary["tokenizer.ggml.add_bos_token"] = pre in ("llama-bpe", "tekken")
    return vocabulary


def tiktoken_vocabulary(data, name):
    """Meta's tokenizer.model of Llama 3: lines of a token in base 64 and its rank."""
    ranks = []
    for i, line in enumerate(data.split(b"\n")):
        if not line:
            continue
        if len(line) > 2 * MAX_TOKEN:
            raise Failure("%s: line %d: %d bytes; expected a token of at most %d" % (name, i + 1, len(line), MAX_TOKEN))
        try:
            token, rank = line.split()
            token, rank = base64.b64decode(token, validate=True), int(rank)
        except ValueError:
            raise Failure("%s: line %d: expected a token in base 64 and its rank" % (name, i + 1))
        if rank != len(ranks) or not token:
            raise Failure("%s: line %d: expected rank %d, found %d" % (name, i + 1, len(ranks), rank))
        ranks.append(token)

    if len(set(ranks)) != len(ranks):
        raise Failure("%s: a token has two ranks" % name)
    text, merges = merges_of(ranks)
    return byte_level(text + SPECIAL, [NORMAL] * len(text) + [CONTROL] * len(SPECIAL), merges)


def meta_vocabulary(path):
    """tokenizer.model: tiktoken ranks (Llama 3), or a SentencePiece model (Llama 2)."""
    data, name = read_bytes(path), os.path.basename(path)
    first = data[:4096].split(b"\n")[0].split()
    if len(first) == 2 and first[1].isdigit():
        return tiktoken_vocabulary(data, name)
    return sentencepiece_vocabulary(data, name)


# Hugging Face

def split_name(pre_tokenizer):
    """The tokenizer.ggml.pre name of the pre-tokenizer of a tokenizer.json, or None if it is not supported."""
    steps = (pre_tokenizer or {}).get("pretokenizers") or [pre_tokenizer or {}]
    for s in steps:
        if s.get("type") == "Split" and (s.get("pattern") or {}).get("Regex") in SPLITS:
            return SPLITS[s["pattern"]["Regex"]]
    last = steps[-1]  # ByteLevel implies the expression of GPT-2
    if last.get("type") != "ByteLevel" or not last.get("use_regex", True) or last.get("add_prefix_space"):
        return None
    before = [(s.get("type"), s.get("individual_digits")) for s in steps[:-1]]
    return {(): "gpt-2", (("Digits", True),): "smollm"}.get(tuple(before))


def huggingface_vocabulary(directory, n_vocab):
    """Reads tokenizer.json, tokenizer.model of a SentencePiece vocabulary, the chat template, and the begin and end ids
    of the config files."""
    def load(name):
        is_file = os.path.lexists(os.path.join(directory, name))
        return read_json(directory, name, MAX_JSON if name == "tokenizer.json" else MAX_TABLE) if is_file else {}

    try:
        return assemble(directory, load("tokenizer.json"), load("tokenizer_config.json"), load("config.json"), n_vocab)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as e:
        raise Failure("tokenizer.json: invalid: %s: %s" % (type(e).__name__, e))


def assemble(directory, t, settings, config, n_vocab):
    path = inside(directory, "tokenizer.model")
    model = t.get("model") or {}
    words = model.get("vocab") or {}
    merges = [m if type(m) is str else " ".join(m) for m in model.get("merges") or []]

    pre = split_name(t.get("pre_tokenizer"))
    if config.get("model_type") == "smollm3" and pre == "llama-bpe":
        pre = "smaug-bpe"  # the same expression, without BOS

    # The tokens: SentencePiece, or byte-level BPE with a known expression.
    if os.path.exists(path) and not pre:
        v = meta_vocabulary(path)
    elif model.get("type") != "BPE":
        raise Failure("%s: no tokenizer.json with a BPE model, and no tokenizer.model" % directory)
    elif model.get("byte_fallback"):
        v = merged_sentencepiece(words, merges)
    elif pre:
        v = {"tokenizer.ggml.tokens": listed(words), "tokenizer.ggml.token_type": [NORMAL] * len(words)}
    else:
        raise Failure("tokenizer.json: unsupported pre-tokenizer (supported: Llama 3, Tekken, SmolLM, Qwen 2, GPT-2)")

    tokens, types = v["tokenizer.ggml.tokens"], v["tokenizer.ggml.token_type"]
    if len(tokens) > n_vocab:
        raise Failure("tokenizer.json: %d tokens for an embedding of %d rows" % (len(tokens), n_vocab))
    n_words = len(tokens)
    tokens += ["[PAD%d]" % i for i in range(n_words, n_vocab)]
    types += [UNUSED] * (n_vocab - n_words)

    for a in t.get("added_tokens") or []:
        if not 0 <= a["id"] < n_vocab:
            raise Failure("tokenizer.json: added token %s: id %d of %d" % (ascii(a["content"]), a["id"], n_vocab))
        if types[a["id"]] not in (UNKNOWN, BYTE):
            tokens[a["id"]] = a["content"]
            types[a["id"]] = CONTROL if a["special"] else USER

    if "tokenizer.ggml.model" not in v:
        v = byte_level(tokens, types, merges, pre)
    else:
        v["tokenizer.ggml.scores"] += [0.0] * (n_vocab - n_words)

    id_of = {w: i for i, w in enumerate(tokens)}
    # Of several end ids, the one that has no other key.
    for key in ("bos", "eos"):
        chosen = config.get(key + "_token_id")
        others = [v.get("tokenizer.ggml.eot_token_id"), v.get("tokenizer.ggml.eom_token_id")]
        chosen = [i for i in chosen if i not in others] + chosen if type(chosen) is list else [chosen]
        chosen.append(None)
        text = settings.get(key + "_token")
        text = text.get("content") if type(text) is dict else text
        chosen = chosen[0] if type(chosen[0]) is int else id_of.get(text)
        if chosen is not None:
            v["tokenizer.ggml.%s_token_id" % key] = chosen

    if type(settings.get("add_bos_token")) is bool:
        v["tokenizer.ggml.add_bos_token"] = settings["add_bos_token"]
    # The template: a text, the default one of several, or a file.
    template = settings.get("chat_template")
    if type(template) is list:
        template = next((x["template"] for x in template if x["name"] == "default"), None)
    path = inside(directory, "chat_template.jinja")
    if os.path.exists(path):
        template = read_bytes(path)
    if template:
        v["tokenizer.chat_template"] = template
    return v


def listed(words):
    tokens = [None] * len(words)
    for w, i in words.items():
        if not 0 <= i < len(tokens) or tokens[i] is not None:
            raise Failure("tokenizer.json: token %s: id %d is out of range or a duplicate" % (ascii(w), i))
        tokens[i] = w
    return tokens


def merged_sentencepiece(words, merges):
    """A SentencePiece vocabulary from tokens and merges. The position of a merge is the score of its token."""
    tokens = listed(words)
    place = {}
    for i, m in enumerate(merges):
        place.setdefault(m.replace(" ", ""), -float(i))
    types = [BYTE if w.startswith("<0x") and len(w) == 6 else NORMAL for w in tokens]
    types[:3] = [UNKNOWN, CONTROL, CONTROL]
    scores = [place.get(w, -1e9 if kind == NORMAL and len(w) > 1 else 0.0) for w, kind in zip(tokens, types)]
    return sentencepiece(tokens, scores, types)
