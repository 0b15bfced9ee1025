"""Reader of the tensors of GGUF files: those that llama31 has written, and importance matrices. Standard library only."""
import array
import struct

from lib.gguf_writer import Failure, product

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a value, by GGUF kind
STRING, ARRAY, F32 = 8, 9, 0


class GgufFile:
    """`tensors` has the shape (rows first) and the place of each tensor, by name."""

    def __init__(self, path):
        self.path, self.alignment = path, 32
        self.f = open(path, "rb")
        try:
            self.tensors = self.read_head()
        except (struct.error, KeyError, UnicodeDecodeError):
            raise Failure("%s: damaged, or not a GGUF file" % path)

    def numbers(self, form):
        return struct.unpack("<" + form, self.f.read(struct.calcsize("<" + form)))

    def text(self):
        return self.f.read(self.numbers("Q")[0]).decode()

    def skip(self, kind, n=1):
        if kind in SIZES:
            self.f.seek(n * SIZES[kind], 1)
            return
        for _ in range(n):
            if kind == STRING:
                self.f.seek(self.numbers("Q")[0], 1)
            elif kind == ARRAY:
                self.skip(*self.numbers("IQ"))
            else:
                raise KeyError(kind)

    def read_head(self):
        if self.f.read(4) != b"GGUF":
            raise KeyError
        _, n_tensors, n_keys = self.numbers("IQQ")
        for _ in range(n_keys):
            key, (kind,) = self.text(), self.numbers("I")
            if key == "general.alignment":
                self.alignment, = self.numbers("I")
            else:
                self.skip(kind)

        tensors = {}
        for _ in range(n_tensors):
            name, (n_dims,) = self.text(), self.numbers("I")
            shape = tuple(reversed(self.numbers("%dQ" % n_dims)))
            tensors[name] = (shape, *self.numbers("IQ"))
        begin = self.f.tell() + -self.f.tell() % self.alignment
        return {name: (shape, kind, begin + offset) for name, (shape, kind, offset) in tensors.items()}

    def floats(self, name):
        """The values of a tensor in F32."""
        shape, kind, offset = self.tensors[name]
        if kind != F32:
            raise Failure("%s: %s: expected F32" % (self.path, name))
        self.f.seek(offset)
        values = array.array("f", self.f.read(4 * product(shape)))
        if len(values) != product(shape):
            raise Failure("%s: %s: truncated" % (self.path, name))
        return values
