"""Weights as ranges of files: streamed, joined, reordered and converted.

A Python loop over single numbers would take minutes for 8B weights. So whole rows are copied, and conversions work on
256 KiB at a time, with byte slices, translation tables and long integers as vectors."""
import functools
import os
import re
import stat
import struct

from .gguf_writer import Failure, TYPES, product

CHUNK = 1 << 18  # bytes; stays in the CPU cache between reading and writing
MAX_DIMENSIONS = 4  # of a GGUF tensor
MAX_TABLE = 16 << 20  # bytes of a file or header that is read as a whole


def inside(directory, name):
    """The path of a file of a checkpoint. Refuses a symbolic link out of the directory, whose target would become part
    of the output. A Hugging Face cache has links: models--X/snapshots/HASH/NAME -> ../../blobs/HASH."""
    path, roots = os.path.join(directory, name), [os.path.realpath(directory)]
    cache = re.match(r"(.*/models--[^/]+/)snapshots/[^/]", roots[0])
    if cache:
        roots.append(cache.group(1) + "blobs")
    if not os.path.realpath(path).startswith(tuple(os.path.join(root, "") for root in roots)):
        raise Failure("%s: a link out of its directory; replace it with the file" % path)
    return path


def read_bytes(path, limit=MAX_TABLE):
    file = File(path)
    if file.size > limit:
        raise Failure("%s: %d bytes; expected at most %d" % (path, file.size, limit))
    return file.read(0, file.size)


class File:
    """A source file, read by position. (Mapped pages would count as used memory.)"""

    def __init__(self, path):
        self.name = os.path.basename(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            info = os.fstat(fd)
        except (OSError, ValueError) as e:
            raise Failure("%s: %s" % (path, getattr(e, "strerror", e)), 1)
        if not stat.S_ISREG(info.st_mode):
            raise Failure("%s: not a regular file" % path, 1)
        self.f, self.size = os.fdopen(fd, "rb", 0), info.st_size

    def read(self, offset, n):
        """Exactly n bytes."""
        b, is_inside = b"", 0 <= offset <= self.size - n
        while len(b) < n:
            more = is_inside and os.pread(self.f.fileno(), n - len(b), offset + len(b))
            if not more:
                raise Failure("%s: truncated: expected %d bytes at %d, found %d" % (self.name, n, offset, len(b)))
            b += more
        return b


class Weight:
    """A matrix or vector, stored by rows in a range of a file."""

    def __init__(self, file, name, type, shape, offset):
        self.file, self.name, self.type, self.shape, self.offset = file, name, type, tuple(shape), offset
        self.row_bytes = TYPES[type][1] * (shape[-1] if shape else 1)
        self.n_rows = product(shape[:-1])

    def rows(self, begin, n):
        return self.file.read(self.offset + begin * self.row_bytes, n * self.row_bytes)

    def pieces(self):
        step = max(1, CHUNK // max(1, self.row_bytes))
        for i in range(0, self.n_rows, step):
            yield self.rows(i, min(step, self.n_rows - i))


class View:
    """Base class of derived weights: the source's name, type and shape, unless given; other bytes."""

    def __init__(self, source, name=None, type=None, shape=None):
        self.source, self.name, self.type = source, name or source.name, type or source.type
        self.shape = tuple(shape or source.shape)

    def pieces(self):
        return self.source.pieces()


class RowShards(View):
    """A tensor split by rows over several files."""

    def __init__(self, parts):
        rows = sum(p.shape[0] for p in parts)
        super().__init__(parts[0], shape=(rows,) + parts[0].shape[1:])
        self.parts = parts

    def pieces(self):
        for p in self.parts:
            yield from p.pieces()


class Stacked(RowShards):
    """Matrices of the same shape as one tensor: the experts of a layer."""

    def __init__(self, parts):
        super().__init__(parts)
        if any((p.shape, p.type) != (parts[0].shape, parts[0].type) for p in parts):
            raise Failure("%s: experts of inconsistent shapes or types" % parts[0].name)
        self.shape = (len(parts),) + parts[0].shape


class Half(View):
    """The first or second half of the rows of each matrix: the gate, or up, of a tensor that has both."""

    def __init__(self, source, half):
        if len(source.shape) < 2 or source.shape[-2] % 2:
            raise Failure("%s: expected an even number of rows, found shape %s" % (source.name, source.shape))
        super().__init__(source, shape=source.shape[:-2] + (source.shape[-2] // 2, source.shape[-1]))
        self.half = half

    def pieces(self):
        n, step = self.shape[-2], max(1, CHUNK // max(1, self.source.row_bytes))
        for matrix in range(product(self.shape[:-2])):
            for i in range(0, n, step):
                yield self.source.rows((2 * matrix + self.half) * n + i, min(step, n - i))


class ColumnShards(View):
    """A tensor split by columns over several files."""

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
    """Query or key rows in Meta's order. Hugging Face stores, per head, the first elements of all RoPE pairs, then the
    second ones: row 2i + j of the result is its row j * head_dim / 2 + i."""

    def __init__(self, source, n_heads):
        super().__init__(source)
        self.head_dim = source.shape[0] // n_heads

    def pieces(self):
        d, size = self.head_dim, self.source.row_bytes
        if len(self.shape) == 1:  # a bias: one number per row
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
    """A tensor in memory."""

    def __init__(self, name, type, shape, data):
        self.name, self.type, self.shape, self.data = name, type, tuple(shape), data

    def pieces(self):
        return [self.data]


class Converted(View):
    """A weight converted to another type: round to nearest, ties to even. A conversion to its own type only rejects NaN
    and infinity."""

    def __init__(self, source, type):
        super().__init__(source, type=type)

    def pieces(self):
        step = CONVERSIONS[self.source.type, self.type]
        for piece in self.source.pieces():
            try:
                yield step(piece)
            except ValueError as e:
                raise Failure("%s: %s" % (self.name, e))


def same(a, b):
    """Two weights have the same type, shape and bytes."""
    if b is None or (a.type, a.shape) != (b.type, b.shape):
        return False
    return all(x == y for x, y in zip(a.pieces(), b.pieces()))


def convert(weight, type):
    return weight if weight.type == type else Converted(weight, type)


@functools.lru_cache(maxsize=16)
def repeated(lane, n):
    """An integer of n equal 32-bit lanes."""
    return int.from_bytes(struct.pack("<I", lane) * n, "little")


def round_f32(b, bits):
    """f32 numbers rounded to nearest even, so that their low `bits` bits can be dropped. Rejects NaN and infinity, whose
    exponent is all ones: they would carry into the next lane."""
    n = len(b) // 4
    x = int.from_bytes(b, "little")
    if ((x & repeated(0x7f800000, n)) + repeated(0x00800000, n)) & repeated(0x80000000, n):
        raise ValueError(NOT_FINITE)
    x += ((x >> bits) & repeated(1, n)) + repeated((1 << (bits - 1)) - 1, n)
    return x.to_bytes(4 * n, "little")


def byte_table(f):
    return bytes(f(i) & 255 for i in range(256))


def bitwise_or(a, b):
    return (int.from_bytes(a, "little") | int.from_bytes(b, "little")).to_bytes(len(a), "little")


def positions(b, selected):
    """Yields the positions of the bytes for which the table has 1."""
    b = b.translate(selected)
    i = b.find(1)
    while i >= 0:
        yield i
        i = b.find(1, i + 1)


def bf16_to_f32(b):
    out = bytearray(2 * len(b))
    out[2::4], out[3::4] = b[0::2], b[1::2]
    return bytes(out)


def f32_to_bf16(b):
    b = round_f32(b, 16)
    out = bytearray(len(b) // 2)
    out[0::2], out[1::2] = b[2::4], b[3::4]
    return bytes(out)


# f16 to f32 and back, by bytes:
#
#   f16        seeeeemm mmmmmmmm                            exponent bias 15
#   f32        seeeeeee emmmmmmm mmmmmmmm mmmmmmmm          exponent bias 127
#
# For normal numbers the exponents differ by 112, an even number, which does not touch the low exponent bit in the
# second byte of f32. So each byte of one format is an OR of translated bytes of the other. Zeros and subnormal numbers are
# converted one by one.
NOT_FINITE = "NaN or infinity"
SHR3, SHR5 = byte_table(lambda i: i >> 3), byte_table(lambda i: i >> 5)
SHL3, SHL5 = byte_table(lambda i: i << 3), byte_table(lambda i: i << 5)
F32_TOP = byte_table(lambda h: h & 0x80 | (h >> 3 & 15) + 56)
F32_MID = byte_table(lambda h: h << 5)
F16_SPECIAL = byte_table(lambda h: h & 0x7c in (0, 0x7c))
F16_TOP = byte_table(lambda h: h & 0x80 | (h & 15) - 8 << 3 & 0x78)
F32_SPECIAL = byte_table(lambda h: not 56 < h & 0x7f < 71)  # below 2^-13 or at least 2^15


def f16_to_f32(b):
    low, high = b[0::2], b[1::2]
    out = bytearray(2 * len(b))
    out[1::4] = low.translate(SHL5)
    out[2::4] = bitwise_or(high.translate(F32_MID), low.translate(SHR3))
    out[3::4] = high.translate(F32_TOP)
    for i in positions(high, F16_SPECIAL):
        x = struct.unpack_from("<e", b, 2 * i)[0]
        if x - x:
            raise ValueError(NOT_FINITE)
        struct.pack_into("<f", out, 4 * i, x)
    return bytes(out)


def pack_f16(top, mid, low, exact):
    """f16 from the upper three bytes of rounded f32 numbers; exact(i) is number i before rounding."""
    out = bytearray(2 * len(top))
    out[0::2] = bitwise_or(mid.translate(SHL3), low.translate(SHR5)) if low else mid.translate(SHL3)
    out[1::2] = bitwise_or(top.translate(F16_TOP), mid.translate(SHR5))
    for i in positions(top, F32_SPECIAL):
        x = exact(i)
        if x - x:
            raise ValueError(NOT_FINITE)
        try:
            struct.pack_into("<e", out, 2 * i, x)
        except OverflowError:
            raise ValueError("%g is too large for f16; use --type bf16" % x)
    return bytes(out)


def f32_to_f16(b):
    near = round_f32(b, 13)
    return pack_f16(near[3::4], near[2::4], near[1::4], lambda i: struct.unpack_from("<f", b, 4 * i)[0])


def bf16_to_f16(b):
    return pack_f16(b[1::2], b[0::2], b"", lambda i: struct.unpack("<f", b"\0\0" + b[2 * i:2 * i + 2])[0])


CONVERSIONS = {
    ("bf16", "f32"): bf16_to_f32,
    ("f16", "f32"): f16_to_f32,
    ("f32", "bf16"): f32_to_bf16,
    ("f32", "f16"): f32_to_f16,
    ("f16", "bf16"): lambda b: f32_to_bf16(f16_to_f32(b)),
    ("bf16", "f16"): bf16_to_f16,
    ("f32", "f32"): lambda b: round_f32(b, 1) and b,
    ("f16", "f16"): lambda b: f16_to_f32(b) and b,
    ("bf16", "bf16"): lambda b: f32_to_bf16(bf16_to_f32(b)),
}
