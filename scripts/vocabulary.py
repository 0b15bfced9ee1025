"""Tokenizers of every source form as GGUF metadata."""
import os
import struct

from gguf_writer import Bad

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def read_bytes(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise Bad("%s: %s" % (path, e.strerror), 1)


def sentencepiece(pieces, scores, types):
    """Metadata of a SentencePiece vocabulary, which Llama 2 and the story models use."""
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
    }


def llama2c_vocabulary(path, n_vocab):
    """llama2.c's tokenizer.bin: the length of the longest piece, then a score, a length and the text of each piece.
    It has put line ends around <s> and </s>, a space for SentencePiece's U+2581, and, in older files, each byte
    token's byte, as a code point, for its name."""
    b = read_bytes(path)
    pieces, scores, at = [], [], 4
    for i in range(n_vocab):
        score, n = struct.unpack_from("<fi", b, at) if at + 8 <= len(b) else (0, -1)
        if n < 0 or at + 8 + n > len(b):
            raise Bad("%s: piece %d: truncated, %d pieces expected" % (os.path.basename(path), i, n_vocab))
        pieces.append(b[at + 8:at + 8 + n])
        scores.append(score)
        at += 8 + n
    if at != len(b):
        raise Bad("%s: expected %d pieces, found more" % (os.path.basename(path), n_vocab))
    if n_vocab < 259 or pieces[3] not in (b"\0", b"<0x00>"):
        raise Bad("%s: piece 3: expected the byte token <0x00>, found %r" % (os.path.basename(path), pieces[3:4]))
    pieces = ([b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)] +
              [p.replace(b" ", "\u2581".encode()) for p in pieces[259:]])
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (n_vocab - 259)
    return sentencepiece(pieces, scores, types)
