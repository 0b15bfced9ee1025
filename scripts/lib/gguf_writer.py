"""Writes GGUF v3 files: metadata, tensor table, tensors streamed piece by piece. Standard library only.

The file appears under its name only when it is complete: it is written beside it and renamed at the end."""
import os
import signal
import struct
import sys
import time

ALIGNMENT = 32
TYPES = {"f32": (0, 4), "f16": (1, 2), "bf16": (30, 2), "q8_0": (8, 34 / 32)}  # name: GGUF tensor type, bytes per weight
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}  # general.file_type


class Bad(Exception):
    """A message of one line, and the exit code it deserves: 3 for a bad source, 1 for a failure of the machine."""

    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code


def string(s):
    try:
        b = s if isinstance(s, bytes) else s.encode("utf-8")
    except UnicodeEncodeError:
        raise Bad("%s: text with half a character" % ascii(s))
    return struct.pack("<Q", len(b)) + b


def value(v):
    """The GGUF type and bytes of a metadata value: bool, u32, f32, string, or an array (integers in it are i32)."""
    if isinstance(v, bool):
        return 7, struct.pack("<B", v)
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
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
    """Bytes done, on stderr, for people only."""

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


def write_gguf(path, metadata, tensors):
    """Writes metadata, a dict, and tensors, each with name, type, shape (rows first) and pieces(), an iterable of
    bytes. Nothing is left behind on failure."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, v in metadata.items():
        kind, body = value(v)
        head += [string(key), struct.pack("<I", kind), body]
    offset, sizes = 0, []
    for t in tensors:
        kind, width = TYPES[t.type]
        size = width
        for n in t.shape:
            size *= n
        size = int(size)
        head += [string(t.name), struct.pack("<I%dQ" % len(t.shape), len(t.shape), *reversed(t.shape)),
                 struct.pack("<IQ", kind, offset)]
        sizes.append(size)
        offset += size + -size % ALIGNMENT
    head = b"".join(head)
    head += bytes(-len(head) % ALIGNMENT)

    progress = Progress(offset)
    temporary = "%s.part%d" % (path, os.getpid())
    f = open(temporary, "xb", buffering=0)
    try:
        with f:
            write_all(f, head)
            for t, size in zip(tensors, sizes):
                done = 0
                for piece in t.pieces():
                    write_all(f, piece)
                    done += len(piece)
                    progress.add(len(piece))
                if done != size:
                    raise Bad("%s: expected %d bytes, found %d" % (t.name, size, done))
                write_all(f, bytes(-size % ALIGNMENT))
                progress.add(-size % ALIGNMENT)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_all(f, piece):
    view = memoryview(piece)
    while view:
        view = view[f.write(view):]


def run(output, work):
    """Runs a command that writes one file. Returns its exit code; says in one line, on stderr, how it went."""
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda n, _: sys.exit(128 + n))
    start = time.time()
    try:
        work()
    except Bad as e:
        code, message = e.code, str(e)
    except OSError as e:
        code, message = 1, "%s: %s" % (e.filename or output, e.strerror)
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    else:
        sys.stderr.write("%s: %.2f GB in %.1f s\n" % (output, os.path.getsize(output) / 1e9, time.time() - start))
        return 0
    sys.stderr.write("error: %s\n" % "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message))
    return code
