"""Weights as ranges of files, streamed, joined, re-ordered and converted without touching single numbers.

Python's per-number cost would be minutes for 8B weights. So the common path copies whole rows, and conversions work on
a quarter of a megabyte at a time, with byte slices, translation tables and long integers as vectors."""
import functools
import os
import stat
import struct

from .gguf_writer import Bad, TYPES

CHUNK = 1 << 18  # bytes at a time: what stays in the cache between reading and writing


class File:
    """A source file, opened once, read by position (mapped pages would count as memory used)."""

    def __init__(self, path):
        self.name = os.path.basename(path)
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            info = os.fstat(self.fd)
        except (OSError, ValueError) as e:
            raise Bad("%s: %s" % (path, getattr(e, "strerror", e)), 1)
        if not stat.S_ISREG(info.st_mode):
            raise Bad("%s: not a regular file" % path, 1)
        self.size = info.st_size

    def read(self, offset, n):
        """Exactly n bytes."""
        b = os.pread(self.fd, n, offset)
        while len(b) < n:
            more = os.pread(self.fd, n - len(b), offset + len(b))
            if not more:
                raise Bad("%s: truncated: expected %d bytes at %d, found %d" % (self.name, n, offset, len(b)))
            b += more
        return b


class Weight:
    """A matrix or vector stored row by row in a range of a file."""

    def __init__(self, file, name, type, shape, offset):
        self.file, self.name, self.type, self.shape, self.offset = file, name, type, tuple(shape), offset
        self.row_bytes = TYPES[type][1] * (shape[-1] if shape else 1)
        self.n_rows = 1
        for n in shape[:-1]:
            self.n_rows *= n

    def rows(self, begin, n):
        return self.file.read(self.offset + begin * self.row_bytes, n * self.row_bytes)

    def pieces(self):
        step = max(1, CHUNK // max(1, self.row_bytes))
        for i in range(0, self.n_rows, step):
            yield self.rows(i, min(step, self.n_rows - i))


class View:
    """What all derived weights share: the name, type and shape of a weight, other bytes."""

    def __init__(self, source, name=None, type=None, shape=None):
        self.source, self.name, self.type = source, name or source.name, type or source.type
        self.shape = tuple(shape or source.shape)

    def pieces(self):
        return self.source.pieces()


class Stacked(View):
    """Parts of one tensor, split between files by rows."""

    def __init__(self, parts):
        rows = sum(p.shape[0] for p in parts)
        super().__init__(parts[0], shape=(rows,) + parts[0].shape[1:])
        self.parts = parts

    def pieces(self):
        for p in self.parts:
            yield from p.pieces()


class Beside(View):
    """Parts of one tensor, split between files by columns."""

    def __init__(self, parts):
        super().__init__(parts[0], shape=(parts[0].shape[0], sum(p.shape[1] for p in parts)))
        self.parts = parts

    def pieces(self):
        step = max(1, CHUNK // sum(p.row_bytes for p in self.parts))
        for i in range(0, self.shape[0], step):
            n = min(step, self.shape[0] - i)
            blocks = [(memoryview(p.rows(i, n)), p.row_bytes) for p in self.parts]
            yield b"".join(b[r * size:(r + 1) * size] for r in range(n) for b, size in blocks)


class Interleaved(View):
    """Query or key rows as Hugging Face holds them (first halves of the pairs, then second halves, per head), given
    back in Meta's order: row 2i + j of a head is its row j * head_dim / 2 + i."""

    def __init__(self, source, n_heads):
        super().__init__(source)
        self.head_dim = source.shape[0] // n_heads

    def pieces(self):
        d, size = self.head_dim, self.source.row_bytes
        if len(self.shape) == 1:  # a bias: one number for each row
            size //= self.shape[0]
            whole = memoryview(self.source.rows(0, 1))
            for head in range(0, self.shape[0], d):
                yield b"".join(whole[(head + j * d // 2 + i) * size:][:size] for i in range(d // 2) for j in range(2))
            return
        order = [(j * d // 2 + i) * size for i in range(d // 2) for j in range(2)]
        for head in range(0, self.shape[0], d):
            block = memoryview(self.source.rows(head, d))
            yield b"".join(block[at:at + size] for at in order)


class Literal(View):
    """Bytes at hand."""

    def __init__(self, name, type, shape, data):
        self.name, self.type, self.shape, self.data = name, type, tuple(shape), data

    def pieces(self):
        return [self.data]


class Converted(View):
    """A weight in another type, rounded to nearest, ties to even."""

    def __init__(self, source, type):
        super().__init__(source, type=type)

    def pieces(self):
        step = CONVERSIONS[self.source.type, self.type]
        for piece in self.source.pieces():
            try:
                yield step(piece)
            except ValueError as e:
                raise Bad("%s: %s" % (self.name, e))


def same(a, b):
    """Whether two weights hold the same bytes."""
    if b is None or (a.type, a.shape) != (b.type, b.shape):
        return False
    return all(x == y for x, y in zip(a.pieces(), b.pieces()))


def convert(weight, type):
    return weight if weight.type == type else Converted(weight, type)


@functools.lru_cache(maxsize=16)
def repeated(lane, n):
    """The integer of n 32-bit lanes, all equal."""
    return int.from_bytes(struct.pack("<I", lane) * n, "little")


def rounded(b, bits):
    """f32 bytes, rounded so that the low bits of each number can be cut off. NaN and infinity, whose exponent is all
    ones, are refused: they would carry into their neighbour."""
    n = len(b) // 4
    x = int.from_bytes(b, "little")
    if ((x & repeated(0x7f800000, n)) + repeated(0x00800000, n)) & repeated(0x80000000, n):
        raise ValueError(NOT_FINITE)
    x += ((x >> bits) & repeated(1, n)) + repeated((1 << (bits - 1)) - 1, n)
    return x.to_bytes(4 * n, "little")


def table(f):
    return bytes(f(i) & 255 for i in range(256))


def either(a, b):
    return (int.from_bytes(a, "little") | int.from_bytes(b, "little")).to_bytes(len(a), "little")


def marked(b, marks):
    """The positions of the bytes that the table marks with 1."""
    b = b.translate(marks)
    i = b.find(1)
    while i >= 0:
        yield i
        i = b.find(1, i + 1)


def bf16_to_f32(b):
    out = bytearray(2 * len(b))
    out[2::4], out[3::4] = b[0::2], b[1::2]
    return bytes(out)


def f32_to_bf16(b):
    b = rounded(b, 16)
    out = bytearray(len(b) // 2)
    out[0::2], out[1::2] = b[2::4], b[3::4]
    return bytes(out)


# A normal f16 (1 sign, 5 exponent, 10 mantissa bits) is an f32 (1, 8, 23) whose exponent is 112 higher, an even number:
# so each byte of one is the union of translated bytes of the other. The rest (zero, subnormal) goes one by one.
NOT_FINITE = "not a number, or infinite"
SHR3, SHR5 = table(lambda i: i >> 3), table(lambda i: i >> 5)
SHL3, SHL5 = table(lambda i: i << 3), table(lambda i: i << 5)
WIDE_TOP = table(lambda h: h & 0x80 | (h >> 3 & 15) + 56)
WIDE_MID = table(lambda h: h << 5)
WIDE_ODD = table(lambda h: h & 0x7c in (0, 0x7c))
NARROW_TOP = table(lambda h: h & 0x80 | (h & 15) - 8 << 3 & 0x78)
NARROW_ODD = table(lambda h: not 56 < h & 0x7f < 71)  # below 2^-13, or 2^15 and above


def f16_to_f32(b):
    low, high = b[0::2], b[1::2]
    out = bytearray(2 * len(b))
    out[1::4] = low.translate(SHL5)
    out[2::4] = either(high.translate(WIDE_MID), low.translate(SHR3))
    out[3::4] = high.translate(WIDE_TOP)
    for i in marked(high, WIDE_ODD):
        x = struct.unpack_from("<e", b, 2 * i)[0]
        if x - x:
            raise ValueError(NOT_FINITE)
        struct.pack_into("<f", out, 4 * i, x)
    return bytes(out)


def narrowed(top, mid, low, exact):
    """f16 bytes from the three upper bytes of f32 numbers, rounded already; exact(i) is number i."""
    out = bytearray(2 * len(top))
    out[0::2] = either(mid.translate(SHL3), low.translate(SHR5)) if low else mid.translate(SHL3)
    out[1::2] = either(top.translate(NARROW_TOP), mid.translate(SHR5))
    for i in marked(top, NARROW_ODD):
        x = exact(i)
        if x - x:
            raise ValueError(NOT_FINITE)
        try:
            struct.pack_into("<e", out, 2 * i, x)
        except OverflowError:
            raise ValueError("%g does not fit f16: use --type bf16" % x)
    return bytes(out)


def f32_to_f16(b):
    near = rounded(b, 13)
    return narrowed(near[3::4], near[2::4], near[1::4], lambda i: struct.unpack_from("<f", b, 4 * i)[0])


def bf16_to_f16(b):
    return narrowed(b[1::2], b[0::2], b"", lambda i: struct.unpack("<f", b"\0\0" + b[2 * i:2 * i + 2])[0])


CONVERSIONS = {
    ("bf16", "f32"): bf16_to_f32,
    ("f16", "f32"): f16_to_f32,
    ("f32", "bf16"): f32_to_bf16,
    ("f32", "f16"): f32_to_f16,
    ("f16", "bf16"): lambda b: f32_to_bf16(f16_to_f32(b)),
    ("bf16", "f16"): bf16_to_f16,
}
