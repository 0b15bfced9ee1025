"""Tokenizers of all source formats as GGUF metadata."""
import base64
import os
import re
import struct

from .config import note, read_optional, read_settings
from .gguf_writer import Failure, string
from .weights import MAX_TABLE, inside, read_bytes

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MAX_TOKENS = MAX_MERGES = 1 << 20  # Gemma 3 has 262144 and 514906
MAX_TOKEN = 512  # bytes or characters; Llama 3 has a token of 128 spaces
MAX_OVERLAPS = 1 << 20  # pairs of added tokens that are compared
MAX_JSON = 64 << 20  # bytes of tokenizer.json; Gemma 3's has 33 MB
SPACE = "\u2581"  # SentencePiece writes it for a space
NO_SCORE = -1e9  # of a piece that no merge makes

# Pre-tokenizer expressions of Llama 3, Qwen 2 and Mistral (Tekken), and their names in tokenizer.ggml.pre.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
BEGIN, END = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPLITS = {SPLIT: "llama-bpe", SPLIT.replace("{1,3}", ""): "qwen2",
          r"[^\r\n\p{L}\p{N}]?" + BEGIN + "*" + END + r"+|[^\r\n\p{L}\p{N}]?" + BEGIN + "+" + END +
          r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+": "tekken"}
# (all steps of a pre-tokenizer, ignore_merges) in tokenizer.json: name in tokenizer.ggml.pre. ByteLevel has its own
# expression, that of GPT-2, or none. "dbrx" is the format's name of Llama 3's split with ignore_merges false.
LEVEL, GPT2 = ("ByteLevel", False, False), ("ByteLevel", True, False)
PRE_TOKENIZERS = {((("Split", regex, True), LEVEL), name != "qwen2"): name for regex, name in SPLITS.items()}
PRE_TOKENIZERS.update({
    ((("Split", SPLIT, True), LEVEL), False): "dbrx", ((GPT2,), False): "gpt-2",
    ((("Digits", True), GPT2), False): "smollm"})
# All steps of a normalizer and pre-tokenizer that write spaces as SentencePiece does: whether a text gets one in front.
# A text (True), or as in tokenizer.ggml.prepend_scheme of llama31: one that does not begin with a space ("always"), and
# not after a special token ("first").
REPLACE, PREPEND = ("Replace", " ", SPACE), ("Prepend", SPACE)
SPACES = {
    (PREPEND, REPLACE): True, (REPLACE, PREPEND): True, (REPLACE,): False, (("Metaspace", SPACE, "never"),): False,
    (("Metaspace", SPACE, "always"),): "always", (("Metaspace", SPACE, "first"),): "first"}
POST_PROCESSORS = "ByteLevel", "TemplateProcessing"
PLAIN_CLASSES = "PreTrainedTokenizerFast", "TokenizersBackend"  # of transformers 4 and 5: they add what tokenizer.json says
DECODERS = {"gpt2": ("ByteLevel",), "llama": ("Replace", "ByteFallback", "Fuse", "Strip", "Metaspace")}
# (split, has NFC) whose name depends on the normalizer of tokenizer.json, or that is only supported with it.
NORMALIZED = {("qwen2", True): "qwen2", ("qwen2", False): "deepseek-r1-qwen", ("gpt-2", True): "olmo"}
# Stop tokens that the program knows without a key.
KNOWN_STOPS = "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "</s>", "<|endoftext|>"
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
    for key in ("bos", "eos", "eot", "eom", "unknown"):
        id = v.get("tokenizer.ggml.%s_token_id" % key, 0)
        if type(id) is not int or not 0 <= id < n_tokens:
            raise Failure("the id of the tokenizer's %s token is not below its size, %d" % (key, n_tokens))


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
    is_suffix, has_escape, drops_spaces = False, True, False

    try:
        for number, body in fields(data):
            if number == 1:
                piece = dict(fields(body))
                pieces.append(piece[1])
                scores.append(struct.unpack("<f", piece.get(2, bytes(4)))[0])
                types.append(piece.get(3, NORMAL))
            elif number == 2:
                trainer = dict(fields(body))
                model_type, is_suffix = trainer.get(3, 1), trainer.get(24, 0)
                ids = {k: trainer.get(k, v) for k, v in ids.items()}
            elif number == 3:
                normalizer = dict(fields(body))
                space_prefix = bool(normalizer.get(3, 1))
                has_escape, drops_spaces = normalizer.get(5, 1), normalizer.get(4, 1)
                if normalizer.get(2):
                    raise Failure("%s: the normalizer %s is not supported" % (name, ascii(normalizer.get(1, b""))[1:]))
    except (ValueError, IndexError, KeyError, TypeError, struct.error) as e:
        raise Failure("%s: neither tiktoken ranks nor a SentencePiece model: %s" % (name, str(e) or "invalid pieces"))

    for is_wrong, what in ((model_type != 2 or not pieces, "other than BPE"), (is_suffix, "with treat_whitespace_as_suffix"),
                           (not has_escape, "without escape_whitespaces"),
                           (types.count(BYTE) != 256, "without byte_fallback")):
        if is_wrong:
            raise Failure("%s: a SentencePiece model %s is not supported" % (name, what))
    if drops_spaces:
        note("%s: remove_extra_whitespaces is not supported: all spaces of a text are kept", name)
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

def steps_of(step, key):
    """The steps of a normalizer, pre-tokenizer or post-processor of tokenizer.json."""
    if not step or step.get("type") != "Sequence":
        return [step] if step else []
    return [inner for part in step.get(key) or () for inner in steps_of(part, key)]


def step(s):
    """A step with the settings that change its result, as in PRE_TOKENIZERS and SPACES."""
    kind = s.get("type")
    if kind == "Split":
        is_isolated = (s.get("behavior", "Isolated"), bool(s.get("invert"))) in (("Isolated", False), ("Removed", True))
        return kind, (s.get("pattern") or {}).get("Regex"), is_isolated
    if kind == "ByteLevel":
        return kind, s.get("use_regex") is not False, bool(s.get("add_prefix_space"))
    if kind == "Replace":
        return kind, (s.get("pattern") or {}).get("String"), s.get("content")
    if kind == "Prepend":
        return kind, s.get("prepend")
    if kind == "Metaspace":
        scheme = "never" if s.get("add_prefix_space") is False else s.get("prepend_scheme", "always")
        return kind, s.get("replacement"), scheme
    return kind, s.get("individual_digits") is True


def pre_steps(t):
    return tuple(step(s) for s in steps_of(t.get("pre_tokenizer"), "pretokenizers"))


def space_steps(t):
    return tuple(step(s) for s in steps_of(t.get("normalizer"), "normalizers")) + pre_steps(t)


def split_name(t):
    """The tokenizer.ggml.pre name of a tokenizer.json of byte-level BPE, or None. All its steps and ignore_merges are
    those of a row."""
    return PRE_TOKENIZERS.get((pre_steps(t), bool((t.get("model") or {}).get("ignore_merges"))))


def unknown_step(steps, rows):
    """The first step that differs from the nearest row."""
    n_known = 0
    while n_known < len(steps) and any(row[:n_known + 1] == steps[:n_known + 1] for row in rows):
        n_known += 1
    return "step %d, %s" % (n_known + 1, ascii(steps[n_known][0])) if n_known < len(steps) else "%d steps" % len(steps)


def unsupported_split(t):
    """The refusal of a pre-tokenizer that is no row: the first step that differs from the nearest row, or a setting."""
    steps = pre_steps(t)
    rows = {row: ignores for row, ignores in PRE_TOKENIZERS}
    if steps in rows:
        return Failure("tokenizer.json: model: ignore_merges: expected %s with this pre-tokenizer, found %s" %
                       (rows[steps], not rows[steps]))
    return Failure("tokenizer.json: unsupported pre-tokenizer: %s (supported: Llama 3, Tekken, SmolLM, Qwen 2, GPT-2)" %
                   unknown_step(steps, rows))


def check_spaces(t):
    """Refuses a tokenizer.json that does not write spaces as SentencePiece does."""
    steps = space_steps(t)
    if steps not in SPACES:
        raise Failure("tokenizer.json: unsupported normalizer and pre-tokenizer: %s (SentencePiece: Prepend and Replace, or "
                      "Metaspace)" % unknown_step(steps, SPACES))

    # A split in front of each space.
    inner = [w for w in t["model"]["vocab"] if SPACE in w[1:]]
    if inner and any(s.get("type") == "Metaspace" and s.get("split") is not False
                     for s in steps_of(t.get("pre_tokenizer"), "pretokenizers")):
        raise Failure("tokenizer.json: pre_tokenizer: Metaspace: split: expected False with the token %s" % ascii(inner[0]))


def check_model(model):
    """Refuses settings of a BPE model that change its tokens."""
    for key in ("end_of_word_suffix", "continuing_subword_prefix"):
        if model.get(key):
            raise Failure("tokenizer.json: model: %s: expected none, found %s" % (key, ascii(model[key])[:60]))
    if model.get("dropout"):
        note("tokenizer.json: model: dropout %s is not used", model["dropout"])


def check_same(tokens, words, added):
    """Refuses a tokenizer.json of other tokens than tokenizer.model."""
    for w, i in words.items():
        if w not in added and (i >= len(tokens) or string(tokens[i]) != string(w)):
            raise Failure("tokenizer.json: token %s (%d) is %s in tokenizer.model" %
                          (ascii(w), i, ascii(tokens[i]) if i < len(tokens) else "missing"))


def check_letters(words, added):
    """Refuses a byte-level vocabulary without the token of a byte."""
    for b, letter in enumerate(byte_letters()):
        if letter not in words or letter in added:
            raise Failure("tokenizer.json: model: vocab: no token for byte 0x%02x" % b)


def check_merges(words, merges):
    """Refuses merges that are not two tokens that form a token."""
    for pair in merges:
        if len(pair) != 2 or not all(x in words for x in (*pair, "".join(pair))):
            raise Failure("tokenizer.json: model: merges: %s: expected two tokens that form a token" %
                          ascii(" ".join(pair))[:80])


def check_sentencepiece(words, merges, added):
    """Refuses merges that are not those of SentencePiece: all pairs of tokens that form a token, token by token. The
    format has a score of each token, and no list of merges. Every byte has a token."""
    for b in range(256):
        if "<0x%02X>" % b not in words:
            raise Failure("tokenizer.json: model: vocab: no token <0x%02X>, which byte_fallback needs" % b)

    if any(len(w) > MAX_TOKEN for w in words):
        raise Failure("tokenizer.json: model: vocab: expected tokens of at most %d characters" % MAX_TOKEN)
    rank = {tuple(pair): i for i, pair in enumerate(merges)}
    for w in words:
        if w in added or re.fullmatch("<0x[0-9A-F]{2}>", w):
            continue
        pairs = [(w[:i], w[i:]) for i in range(1, len(w)) if w[:i] in words and w[i:] in words]
        pairs = [pair for pair in pairs if not added & set(pair)]
        found = sorted(rank[pair] for pair in pairs if pair in rank)
        if len(found) < len(pairs):
            raise Failure("tokenizer.json: model: merges: no merge of %s, which SentencePiece would merge" %
                          " and ".join(ascii(x) for x in next(pair for pair in pairs if pair not in rank)))
        if found and found[-1] - found[0] >= len(found):
            raise Failure("tokenizer.json: model: merges: those of %s are not together, as in SentencePiece" % ascii(w))


def normalized_name(t, pre):
    """The name of a split with the normalizer of tokenizer.json."""
    steps = steps_of(t.get("normalizer"), "normalizers")
    for s in steps:
        if s.get("type") != "NFC":
            raise Failure("tokenizer.json: normalizer: %s is not supported" % ascii(s.get("type")))
    name = NORMALIZED.get((pre, bool(steps)), pre)
    if steps and name == pre != "qwen2":
        raise Failure("tokenizer.json: normalizer: 'NFC' is not supported with the split %s" % pre)
    return name


def has_space_prefix(t, settings, otherwise):
    """Whether a SentencePiece text gets a space in front: add_prefix_space, else the steps of tokenizer.json."""
    if settings.get("add_prefix_space") is not None:
        return settings["add_prefix_space"]
    return bool(SPACES.get(space_steps(t), otherwise))


def adds_bos(t, settings, bos, otherwise):
    """True if a text begins with BOS: add_bos_token, else the post-processor of tokenizer.json."""
    if settings.get("add_bos_token") is not None:
        return settings["add_bos_token"]
    steps = steps_of(t.get("post_processor"), "processors")
    for s in steps:
        if s.get("type") not in POST_PROCESSORS:
            note("tokenizer.json: post_processor: %s is not supported", ascii(s.get("type")))

    parts = [text_of((part.get("SpecialToken") or {}).get("id")) for s in steps for part in s.get("single") or ()]
    has_bos = bool(parts) and parts[0] is not None and parts[0] == bos
    others = [ascii(text) for text in parts[has_bos:] if text is not None]
    if others:
        note("tokenizer.json: post_processor: only the begin token in front of a text is supported, not %s", ", ".join(others))
    return has_bos if steps or settings.get("tokenizer_class") in PLAIN_CLASSES else otherwise


def overlaps(text, other):
    """True if another text can begin within this one."""
    return any(text.startswith(other, i) or other.startswith(text[i:]) for i in range(len(text)))


def note_flags(t):
    """Names the flags of added tokens that have an effect. The program finds added tokens in the text as it is, the
    leftmost and longest first."""
    added = t.get("added_tokens") or ()
    raw = [a["content"] for a in added if not a.get("normalized")]
    is_compared = len(raw) * (len(added) - len(raw)) <= MAX_OVERLAPS
    kinds = [s.get("type") for s in steps_of(t.get("normalizer"), "normalizers")]

    def is_normalized(a):
        text = a["content"]
        is_changed = "Prepend" in kinds or "Replace" in kinds and (" " in text or SPACE in text) or \
            "NFC" in kinds and not text.isascii()
        return a.get("normalized") and (is_changed or not is_compared or any(overlaps(text, other) for other in raw))

    for key, has in (("lstrip", None), ("rstrip", None), ("single_word", None), ("normalized", is_normalized)):
        named = [ascii(a["content"]) for a in added if (has(a) if has else a.get(key))]
        if named:
            note("tokenizer.json: %s of added tokens is not supported: %s", key, ", ".join(named))


def text_of(token):
    return token.get("content") if type(token) is dict else token


def huggingface_vocabulary(directory, n_vocab):
    """Reads the tokens, the chat templates, and the begin and stop ids of a Hugging Face directory."""
    t = read_optional(directory, "tokenizer.json", MAX_JSON)
    settings = read_settings(directory, "tokenizer_config.json")
    names = {**read_optional(directory, "special_tokens_map.json"),
             **{key: v for key, v in settings.items() if v is not None}}
    v = read_tokens(directory, t, settings, read_optional(directory, "config.json"), n_vocab)
    tokens, types = v["tokenizer.ggml.tokens"], v["tokenizer.ggml.token_type"]

    # Added tokens.
    special = [text_of(x) for key, x in names.items() if key.endswith("_token")]
    special += [text_of(x) for x in names.get("additional_special_tokens") or ()]
    place, beyond = {w: i for i, w in enumerate(tokens) if types[i] in (UNKNOWN, CONTROL, USER)}, []
    fixed = (UNKNOWN, BYTE, NORMAL) if v["tokenizer.ggml.model"] == "gpt2" else (UNKNOWN, BYTE)  # merges name the others
    for id, (text, is_special) in sorted(added_tokens(directory, t, settings).items()):
        if id >= n_vocab:
            beyond.append("%s (%d)" % (ascii(text), id))
        elif tokens[id] not in (None, text) and types[id] in fixed or place.setdefault(text, id) != id:
            note("tokenizer: the added token %s (%d) is left out: token %d is %s", ascii(text), id, place.get(text, id),
                 ascii(tokens[place.get(text, id)]))
        elif is_spaced_word(v, id):
            note("tokenizer: the added token %s (%d) is found where merges make it", ascii(text), id)
        elif types[id] not in (UNKNOWN, BYTE):
            tokens[id], types[id] = text, CONTROL if is_special or text in special else USER
    if beyond:
        note("tokenizer: added tokens beyond the %d rows of the embedding are left out: %s", n_vocab, ", ".join(beyond))
    note_flags(t)
    for id, text in enumerate(tokens):
        if text is None:
            tokens[id], types[id] = "[PAD%d]" % id, UNUSED

    if v["tokenizer.ggml.model"] == "gpt2":
        v = byte_level(tokens, types, v["tokenizer.ggml.merges"], v["tokenizer.ggml.pre"])
    else:
        v["tokenizer.ggml.add_space_prefix"] = has_space_prefix(t, settings, v["tokenizer.ggml.add_space_prefix"])
        scheme = SPACES.get(space_steps(t))
        if v["tokenizer.ggml.add_space_prefix"] and type(scheme) is str:
            v["tokenizer.ggml.prepend_scheme"] = scheme
    v.update(special_ids(directory, names, {w: i for i, w in enumerate(tokens)}, v))
    bos = v.get("tokenizer.ggml.bos_token_id")
    v["tokenizer.ggml.add_bos_token"] = adds_bos(t, settings, None if bos is None else tokens[bos],
                                                 v["tokenizer.ggml.add_bos_token"])
    v.update(chat_templates(directory, settings))
    return v


def is_spaced_word(v, id):
    """True for a piece of SentencePiece that is reached by merges, as an added token with U+2581 is not found in a text
    with a space."""
    has_space = SPACE.encode() in string(v["tokenizer.ggml.tokens"][id] or "")
    return has_space and v["tokenizer.ggml.model"] == "llama" and v["tokenizer.ggml.token_type"][id] == NORMAL and \
        v["tokenizer.ggml.scores"][id] > NO_SCORE


def read_tokens(directory, t, settings, config, n_vocab):
    """The tokens without the added ones, None for an id without a token: of tokenizer.model with SentencePiece or
    tiktoken, or of tokenizer.json with byte-level BPE or SentencePiece's merges."""
    path, pre, model = inside(directory, "tokenizer.model"), split_name(t), t.get("model") or {}
    words, merges = model.get("vocab") or {}, model.get("merges") or []
    merges = [m.split(" ") if type(m) is str else m for m in merges]
    is_bpe = model.get("type", "BPE") == "BPE" and type(words) is dict and words
    added = {a["content"] for a in t.get("added_tokens") or ()}

    kinds = [s.get("type") for s in steps_of(t.get("pre_tokenizer"), "pretokenizers")]
    if os.path.exists(path) and not pre and not (is_bpe and "ByteLevel" in kinds):
        v = meta_vocabulary(path)
        if is_bpe:
            check_spaces(t)
            check_same(v["tokenizer.ggml.tokens"], words, added)
    elif not is_bpe:
        others = [name for name in ("tekken.json", "vocab.json") if os.path.exists(os.path.join(directory, name))]
        raise Failure("%s: no tokenizer.json with a BPE model, and no tokenizer.model%s" %
                      (directory, "; %s is not read" % others[0] if others else ""))
    elif not pre and ("ByteLevel" in kinds or not model.get("byte_fallback")):
        raise unsupported_split(t)
    else:
        check_model(model)
        if kinds == ["ByteLevel"] and settings.get("add_prefix_space"):
            raise Failure("tokenizer_config.json: add_prefix_space: expected false with byte-level BPE, found true")
        tokens = [None] * n_vocab
        for w, i in words.items():
            if i >= n_vocab and w in added:
                continue
            if not 0 <= i < n_vocab or tokens[i] is not None:
                raise Failure("tokenizer.json: token %s: id %d is a duplicate or beyond the embedding of %d rows" %
                              (ascii(w), i, n_vocab))
            tokens[i] = w

        # Text never reaches the merges of an added token, which is cut out before.
        check_merges(words, merges)
        added = {text for text in added if pre or SPACE not in text}
        merges = [pair for pair in merges if not added & {*pair, "".join(pair)}]
        if pre:
            check_letters(words, added)
            v = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
                 "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [NORMAL] * n_vocab}
        else:
            if model.get("ignore_merges"):
                raise Failure("tokenizer.json: model: ignore_merges: expected False with byte_fallback, found True")
            check_spaces(t)
            check_sentencepiece(words, merges, added)
            v = merged_sentencepiece(tokens, merges)

    for s in steps_of(t.get("decoder"), "decoders"):
        if s.get("type") not in DECODERS[v["tokenizer.ggml.model"]]:
            raise Failure("tokenizer.json: decoder: %s is not supported" % ascii(s.get("type")))

    # Names, and rows of the embedding without a token.
    is_level = v["tokenizer.ggml.model"] == "gpt2"
    if is_level:
        name = normalized_name(t, pre or "llama-bpe")
        is_smol = config.get("model_type") == "smollm3" and name == "llama-bpe"
        v["tokenizer.ggml.pre"] = "smaug-bpe" if is_smol else name  # the same expression, without BOS
    n_tokens = len(v["tokenizer.ggml.tokens"])
    if n_tokens > n_vocab:
        raise Failure("tokenizer.model: %d tokens for an embedding of %d rows" % (n_tokens, n_vocab))
    for key, filler in ("tokens", None), ("token_type", NORMAL), ("scores", 0.0):
        if "tokenizer.ggml." + key in v:
            v["tokenizer.ggml." + key] += [filler] * (n_vocab - n_tokens)
    return v


def added_tokens(directory, t, settings):
    """{id: (text, is special)} of all files that list added tokens; the last one that has an id wins."""
    decoder = settings.get("added_tokens_decoder") or {}
    sources = (("added_tokens.json", [(i, w, False) for w, i in read_optional(directory, "added_tokens.json").items()]),
               ("tokenizer_config.json", [(i, a["content"], a.get("special")) for i, a in decoder.items()]),
               ("tokenizer.json", [(a["id"], a["content"], a.get("special")) for a in t.get("added_tokens") or ()]))
    found = {}
    for file, listed in sources:
        for id, text, is_special in listed:
            if len(text) > MAX_TOKEN:
                raise Failure("%s: added tokens: expected texts of at most %d characters" % (file, MAX_TOKEN))
            if not re.fullmatch(r"[0-9]{1,9}", str(id)):
                raise Failure("%s: added token %s: invalid id %s" % (file, ascii(text), ascii(id)[:60]))
            before = found.get(int(id), (text, False))
            if before[0] != text:
                note("%s: token %s is %s, not %s as in another file", file, id, ascii(text), ascii(before[0]))
            found[int(id)] = text, bool(is_special or before[0] == text and before[1])
    return found


def special_ids(directory, names, id_of, v):
    """The ids of BOS, EOS and further stop tokens: the tokenizer's own, then those of config.json and
    generation_config.json."""
    ids, stops = {}, []
    configs = [read_optional(directory, name) for name in ("config.json", "generation_config.json")]
    n_tokens = len(v["tokenizer.ggml.tokens"])
    for key in ("bos", "eos"):
        for name, c in zip(("config.json", "generation_config.json"), configs):
            id = c.get(key + "_token_id")
            for x in id if type(id) is list else [id]:
                if x is not None and not 0 <= x < n_tokens:
                    raise Failure("%s: %s_token_id: expected an id below %d, the size of the embedding, found %d" %
                                  (name, key, n_tokens, x))
        own = id_of.get(text_of(names.get(key + "_token")))
        listed = [c.get(key + "_token_id") for c in configs]
        listed = [own] + [id for x in listed for id in (x if type(x) is list else [x])]
        listed = list(dict.fromkeys(id for id in listed if id is not None))
        others = [v.get("tokenizer.ggml.%s_token_id" % other) for other in ("eot", "eom")]
        unnamed = [id for id in listed if id not in others]
        if listed:
            ids["tokenizer.ggml.%s_token_id" % key] = (listed if own is not None else unnamed + listed)[0]
        stops = listed

    # GGUF has three keys for stop tokens.
    named = {id_of.get(text) for text in KNOWN_STOPS}
    named.update(x.get("tokenizer.ggml.%s_token_id" % key) for x in (v, ids) for key in ("eot", "eom"))
    rest = [id for id in stops if id not in named and id != ids["tokenizer.ggml.eos_token_id"]]
    free = ["tokenizer.ggml.%s_token_id" % key for key in ("eot", "eom") if "tokenizer.ggml.%s_token_id" % key not in v]
    ids.update(zip(free, rest))
    for id in rest[len(free):]:
        note("generation_config.json: eos_token_id: a GGUF file cannot name one more stop token, %d", id)
    return ids


def chat_templates(directory, settings):
    """{key: template}. A later source replaces the template of the same name in an earlier one."""
    sources = []
    for file, content in (("tokenizer_config.json", settings),
                          ("chat_template.json", read_optional(directory, "chat_template.json"))):
        templates = content.get("chat_template") or []
        templates = [{"name": "default", "template": templates}] if type(templates) is str else templates
        sources += [(x["name"], file, x["template"]) for x in templates]

    folder = os.path.join(directory, "additional_chat_templates")
    files = [("default", "chat_template.jinja")] if os.path.lexists(os.path.join(directory, "chat_template.jinja")) else []
    if os.path.isdir(folder):
        files += [(f[:-len(".jinja")], os.path.join("additional_chat_templates", f)) for f in sorted(os.listdir(folder))
                  if f.endswith(".jinja")]
    sources += [(name, file, read_bytes(inside(directory, file))) for name, file in files]

    found = {}
    for name, file, text in sources:
        if not re.fullmatch(r"\w{1,64}", name, re.ASCII):
            raise Failure("%s: %s: expected the name of a chat template" % (file, ascii(name)[:60]))
        if name in found and string(found[name][1]) != string(text):
            note("%s is used, not the chat template %s of %s", file, name, found[name][0])
        found[name] = file, text
    if found and "default" not in found:
        note("no chat template is named default; found %s", ", ".join(found))
    return {"tokenizer.chat_template" + ("." + name) * (name != "default"): text for name, (_, text) in found.items()}


def merged_sentencepiece(tokens, merges):
    """A SentencePiece vocabulary from tokens and merges. The position of a merge is the score of its token."""
    place = {}
    for i, m in enumerate(merges):
        place.setdefault("".join(m), -float(i))
    types = [BYTE if re.fullmatch("<0x[0-9A-F]{2}>", w or "") else NORMAL for w in tokens]
    types[:3] = [UNKNOWN, CONTROL, CONTROL]
    scores = [place.get(w, NO_SCORE if kind == NORMAL and len(w or "") > 1 else 0.0) for w, kind in zip(tokens, types)]
    return sentencepiece(tokens, scores, types)
