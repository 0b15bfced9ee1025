"""Writer of GGUF v3 files: metadata, tensor table, and tensors streamed in pieces. Standard library only.

The output is written to a temporary file and renamed when complete."""
import binascii
import hashlib
import os
import signal
import struct
import sys
import time
import traceback

ALIGNMENT = 32
TYPES = {"f32": (0, 4), "f16": (1, 2), "bf16": (30, 2), "q8_0": (8, 34 / 32), "q4_k": (12, 144 / 256),
         "q6_k": (14, 210 / 256), "i32": (26, 4), "i64": (27, 8), "bool": (None, 1)}  # name: GGUF tensor type, bytes per weight
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}  # general.file_type


class Failure(Exception):
    """A message of one line and an exit code: 3 for an invalid source, 2 for usage, 1 for the rest."""

    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code


def string(s):
    try:
        b = s if isinstance(s, bytes) else s.encode("utf-8")
    except UnicodeEncodeError:
        raise Failure("%s: text with a lone surrogate" % ascii(s))
    return struct.pack("<Q", len(b)) + b


def value(v):
    """(GGUF kind, bytes) of a metadata value: bool, u32 (or i32), f32, string, or an array (of i32, f32 or strings)."""
    if isinstance(v, bool):
        return 7, struct.pack("<B", v)
    if isinstance(v, int):
        return (4, struct.pack("<I", v)) if v >= 0 else (5, struct.pack("<i", v))
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, (str, bytes)):
        return 8, string(v)
    if isinstance(v[0], (str, bytes)):
        kind, body = 8, b"".join(map(string, v))
    elif isinstance(v[0], float):
        kind, body = 6, struct.pack("<%df" % len(v), *v)
    else:
        kind, body = 5, struct.pack("<%di" % len(v), *v)
    return 9, struct.pack("<IQ", kind, len(v)) + body


class Progress:
    """Progress on stderr, if it is a terminal."""

    def __init__(self, total):
        self.total, self.done, self.shown = total, 0, -1
        self.on = sys.stderr.isatty()

    def add(self, n):
        self.done += n
        percent = 100 * self.done // max(self.total, 1)
        if self.on and percent != self.shown:
            self.shown = percent
            end = "\r\x1b[K" if self.done == self.total else ""
            sys.stderr.write("\r%3d%% of %.2f GB%s" % (percent, self.total / 1e9, end))
            sys.stderr.flush()


class Output:
    """A file written under an unpredictable temporary name, synced, and renamed when complete. Links are followed.
    Rejects devices, directories and the inputs of this run (files and directories); an existing file too, unless it is
    empty, is_ours(path), or is_forced."""

    def __init__(self, path, inputs=(), is_forced=False, is_ours=lambda path: False):
        self.target = os.path.realpath(path)
        check_output(path, inputs, is_forced, is_ours)
        self.temporary = "%s.%s.tmp" % (self.target, binascii.hexlify(os.urandom(8)).decode())
        self.f = open(self.temporary, "x+b", buffering=0)

    def __enter__(self):
        return self.f

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                os.fsync(self.f.fileno())
                if os.path.exists(self.target):
                    os.fchmod(self.f.fileno(), os.stat(self.target).st_mode & 0o777)
                os.replace(self.temporary, self.target)
        finally:
            self.f.close()
            if os.path.exists(self.temporary):
                os.unlink(self.temporary)


def check_output(path, inputs, is_forced, is_ours):
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise Failure("%s: expected a file, found a %s" % (path, "directory" if os.path.isdir(path) else "device"), 1)
        if any(os.path.samefile(path, name) for name in files_of(inputs)):
            raise Failure("%s: input and output of this run are the same file" % path, 2)
        if os.path.getsize(path) and not is_forced and not is_ours(path):
            raise Failure("%s exists; replace it with --force" % path, 2)


def files_of(paths):
    """The files, and the files in the directories that a run reads."""
    for path in paths:
        names = [] if os.path.isfile(path) else os.listdir(path)
        yield from [os.path.join(path, n) for n in names if not n.endswith(".gguf")] or [path]


CHECKSUM = "llama31.checksum"


def is_own(path):
    """A file was written by this module: its first key is the checksum, and the second one is not that of quantize."""
    with open(path, "rb") as f:
        head = f.read(200)
    return head[:4] == b"GGUF" and head[24:].startswith(string(CHECKSUM)) and b"quantization_version" not in head


class Checksum:
    """The tree hash of gguf/checksum.h: of names, types, shapes and the digests of leaves of up to 1 MiB."""

    def __init__(self):
        self.all = blake()

    def begin(self, t, size):
        self.all.update(string(t.name)[8:] + struct.pack("<I4Q", TYPES[t.type][0], *(list(reversed(t.shape)) + [1] * 3)[:4]))
        row = size // (size and product(t.shape[:-1]))
        self.leaf, self.left = blake(), max(1, (1 << 20) // row) * row
        self.step = self.left

    def add(self, piece):
        view = memoryview(piece).cast("B")
        while view:
            self.leaf.update(view[:self.left])
            taken = min(self.left, len(view))
            view, self.left = view[taken:], self.left - taken
            if not self.left:
                self.end()

    def end(self):
        if self.left < self.step or not self.step:
            self.all.update(self.leaf.digest())
        self.leaf, self.left = blake(), self.step


def blake():
    return hashlib.blake2b(digest_size=16)


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def write_gguf(path, metadata, tensors, inputs=(), is_forced=False):
    """Writes metadata (a dict) and tensors, which have name, type, shape (rows first) and pieces(), an iterable of
    bytes. Nothing is left behind on failure. `inputs` and `is_forced`: see Output."""
    metadata = dict({CHECKSUM: "0" * 32}, **metadata)  # first, for is_own; the value is written at the end
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, v in metadata.items():
        kind, body = value(v)
        head += [string(key), struct.pack("<I", kind), body]
    offset, sizes = 0, []
    for t in tensors:
        kind, width = TYPES[t.type]
        size = int(width * product(t.shape))
        head += [string(t.name), struct.pack("<I%dQ" % len(t.shape), len(t.shape), *reversed(t.shape)),
                 struct.pack("<IQ", kind, offset)]
        sizes.append(size)
        offset += size + -size % ALIGNMENT
    head = b"".join(head)
    head += bytes(-len(head) % ALIGNMENT)

    progress, checksum = Progress(offset), Checksum()
    with Output(path, inputs, is_forced, is_own) as f:
        write_all(f, head)
        for t, size in zip(tensors, sizes):
            done = 0
            checksum.begin(t, size)
            for piece in t.pieces():
                write_all(f, piece)
                checksum.add(piece)
                done += len(piece)
                progress.add(len(piece))
            if done != size:
                raise Failure("%s: expected %d bytes, found %d" % (t.name, size, done))
            checksum.end()
            write_all(f, bytes(-size % ALIGNMENT))
            progress.add(-size % ALIGNMENT)
        f.seek(24 + len(string(CHECKSUM)) + 4 + 8)
        write_all(f, checksum.all.hexdigest().encode())


def write_all(f, piece):
    view = memoryview(piece)
    while view:
        view = view[f.write(view):]


def run(output, work, source=None):
    """Runs a command that writes one file. Prints the result as one line on stderr and returns the exit code. With an
    untrusted source, an exception of Python is one line, too: a missing check, which a user can report."""
    for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGALRM):
        signal.signal(s, lambda n, _: sys.exit(128 + n))

    start = time.time()
    try:
        work()
    except Failure as e:
        code, message = e.code, str(e)
    except OSError as e:
        code, message = 1, "%s: %s" % (e.filename or output, e.strerror)
    except Exception as e:
        if not source:
            raise
        place = traceback.extract_tb(e.__traceback__)[-1]
        code, message = 3, "%s: unexpected values; please report this bug: %s, line %d: %s: %s" % (
            source, os.path.basename(place.filename), place.lineno, type(e).__name__, e)
    else:
        sys.stderr.write("%s: %.2f GB in %.1f s\n" % (output, os.path.getsize(output) / 1e9, time.time() - start))
        return 0

    message = message[:6000]  # values of any length; a path has at most 4096 characters
    sys.stderr.write("error: %s\n" % "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message))
    return code
