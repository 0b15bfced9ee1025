#!/usr/bin/env python3
"""Converts an importance matrix from llama.cpp's older binary form (imatrix.dat), which ik_llama.cpp still writes, to
GGUF, which llama31 quantize --imatrix reads. Needs only the Python standard library.

    scripts/convert_imatrix.py imatrix.dat imatrix.gguf

The form, little-endian; the numbers of the last line are in newer files only:

    u32 n_entries
    n_entries times: u32 length, name, u32 n_calls, u32 n_sums, f32 sums[n_sums]
    u32 n_chunks, u32 length, name of the text

A sum is the mean square of the inputs of a column, times n_calls."""
import lib.interrupt  # noqa: F401
import argparse
import struct
import sys

from lib.gguf_writer import Failure, run, write_gguf
from lib.weights import Literal


class Reader:
    """The bytes of a file, from front to back."""

    def __init__(self, path):
        self.path, self.at = path, 0
        with open(path, "rb") as f:
            self.data = f.read()

    def left(self):
        return len(self.data) - self.at

    def bytes(self, n, what):
        if n > self.left():
            raise Failure("%s: truncated in %s: expected %d bytes, found %d" % (self.path, what, n, self.left()))
        self.at += n
        return self.data[self.at - n:self.at]

    def u32(self, what):
        return struct.unpack("<I", self.bytes(4, what))[0]

    def text(self, what):
        text = self.bytes(self.u32(what), what)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise Failure("%s: %s: not UTF-8" % (self.path, what))


def read_entry(reader, number):
    """The name of a tensor, the number of calls, and the bytes of the sums."""
    name = reader.text("the name of entry %d" % number)
    n_calls, n_sums = reader.u32(name), reader.u32(name)
    return name, n_calls, reader.bytes(4 * n_sums, name)


def tensors_of(name, n_calls, sums):
    """The two tensors of an entry in GGUF. llama.cpp does not divide the sums of an entry over 0 calls."""
    return [Literal(name + ".in_sum2", "f32", (1, len(sums) // 4), sums),
            Literal(name + ".counts", "f32", (1, 1), struct.pack("<f", n_calls or 1))]


def convert(source, output, is_forced):
    reader = Reader(source)
    if reader.data[:4] == b"GGUF":
        raise Failure("%s: already in GGUF, which --imatrix reads" % source)
    n_entries = reader.u32("the number of entries")
    if not 0 < 13 * n_entries <= reader.left():  # an entry has a name of at least one byte
        raise Failure("%s: not an importance matrix (imatrix.dat)" % source)

    tensors, names = [], set()
    for i in range(n_entries):
        name, n_calls, sums = read_entry(reader, i + 1)
        if not name or not sums or name in names:
            raise Failure("%s: entry %d: empty or repeated (\"%s\")" % (source, i + 1, name))
        names.add(name)
        tensors += tensors_of(name, n_calls, sums)

    metadata = {"general.type": "imatrix"}
    if reader.left():
        metadata["imatrix.chunk_count"] = reader.u32("the number of chunks")
        metadata["imatrix.datasets"] = [reader.text("the name of the text")]
    write_gguf(output, metadata, tensors, [source], is_forced)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="OLD.dat")
    parser.add_argument("output", metavar="NEW.gguf")
    parser.add_argument("--force", action="store_true", help="overwrite the output")
    options = parser.parse_args()
    return run(options.output, lambda: convert(options.source, options.output, options.force), options.source)


if __name__ == "__main__":
    sys.exit(main())
