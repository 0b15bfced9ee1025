"""Readers of checkpoint files: PyTorch's .pth and safetensors.

The files are untrusted. A pickle is interpreted, never executed; whatever torch.save does not write is rejected."""
import io
import json
import os
import pickletools
import re
import zipfile

from .gguf_writer import Failure, TYPES, product
from .shapes import check_shape
from .weights import File, MAX_DIMENSIONS, MAX_TABLE, Weight, inside, read_bytes

MAX_PICKLE = 4 << 20  # bytes of a pickle or zip directory; Llama 3.1 405B has less than 1 MiB


# PyTorch: an uncompressed zip. PREFIX/data.pkl describes the tensors, PREFIX/data/KEY holds the numbers of a storage.

class Global:
    def __init__(self, name):
        self.name = name


STORAGES = {"torch BFloat16Storage": "bf16", "torch HalfStorage": "f16", "torch FloatStorage": "f32",
            "torch LongStorage": "i64", "torch IntStorage": "i32", "torch BoolStorage": "bool"}
FLOATS = "f32", "f16", "bf16"
VOCABULARY_MAPS = {"d2t": ("i64", "i32"), "t2d": ("bool",)}  # of draft heads; all other tensors hold floats
REBUILD, DICT = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
PARAMETER = "torch._utils _rebuild_parameter"
PUSHED = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}
# Where trainers keep the weights in a dictionary of more than weights, a prefix of all names, and names that torch.compile,
# FSDP and checkpointing of activations insert.
NESTED = "model", "state_dict", "model_state_dict", "module"
PREFIX = re.compile(r"(?:module\.)*")
WRAPPERS = re.compile(r"\b(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


def unpickle(data, storage):
    """Interprets a pickle of a dictionary of tensors: no imports, no calls, only the opcodes that torch.save writes.
    storage(type, key, n) returns the storage of n numbers with this key."""
    stack, marks, memo = [], [], {}

    def since_mark():
        at = marks.pop()
        items = stack[at:]
        del stack[at:]
        return items

    def fill(d, items):
        if type(d) is not dict or not all(type(k) in (str, int) for k in items[0::2]):
            raise Failure("items of a %s, or keys of another kind than text" % type(d).__name__)
        d.update(zip(items[0::2], items[1::2]))

    def call(f, args):
        if f.name == DICT and not args:
            return {}
        if f.name == REBUILD:
            return tensor(*args[:4])
        if f.name == PARAMETER and type(args[0]) is Weight:
            return args[0]
        raise Failure("a call of %s" % f.name)

    for op, arg, _ in pickletools.genops(data):
        name = op.name
        if name in ("PROTO", "FRAME"):
            pass
        elif name in PUSHED:
            stack.append(arg)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in ("EMPTY_DICT", "EMPTY_TUPLE", "EMPTY_LIST"):
            stack.append({"D": {}, "T": (), "L": []}[name[6]])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if arg is None else arg] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[arg])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name in TUPLES:
            n = TUPLES[name]
            stack[-n:] = [tuple(stack[-n:])]
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            if name == "STACK_GLOBAL":
                arg = " ".join(stack[-2:])
                del stack[-2:]
            if arg not in STORAGES and arg not in (REBUILD, PARAMETER, DICT):
                raise Failure("%s is not allowed in a checkpoint (nothing was executed)" % arg.replace(" ", "."))
            stack.append(Global(arg))
        elif name == "BINPERSID":
            _, kind, key, _, n = stack.pop()
            stack.append(storage(STORAGES[kind.name], key, n))
        elif name == "REDUCE":
            args = stack.pop()
            stack.append(call(stack.pop(), args))
        elif name == "SETITEM":
            items = stack[-2:]
            del stack[-2:]
            fill(stack[-1], items)
        elif name == "SETITEMS":
            items = since_mark()
            fill(stack[-1], items)
        elif name in ("APPEND", "APPENDS"):
            items = since_mark() if name == "APPENDS" else [stack.pop()]
            if type(stack[-1]) is not list:
                raise Failure("items of a %s" % type(stack[-1]).__name__)
            stack[-1].extend(items)
        elif name == "BUILD":  # attributes of a dictionary, such as its version: ignored
            stack.pop()
        elif name == "STOP":
            return stack.pop()
        else:
            raise Failure("opcode %s is not allowed in a checkpoint (nothing was executed)" % name)


def are_counts(numbers):
    return all(type(n) is int and 0 <= n < 1 << 40 for n in numbers)


def tensor(storage, offset, shape, stride):
    """The contiguous tensor of this shape at an offset of a storage, as a Weight without a name."""
    if type(storage) is not Weight or not are_counts((offset,) + shape + stride) or \
            not 0 < len(shape) == len(stride) <= MAX_DIMENSIONS:
        raise Failure("an invalid storage, offset, shape or stride")
    expected = 1
    for n, s in zip(reversed(shape), reversed(stride)):
        if n != 1 and s != expected:
            raise Failure("a tensor of shape %s with strides %s is not contiguous" % (shape, stride))
        expected *= n
    if offset + expected > storage.shape[0]:
        raise Failure("a tensor of shape %s at %d does not fit its storage of %d" % (shape, offset, storage.shape[0]))
    return Weight(storage.file, "", storage.type, shape, storage.offset + offset * TYPES[storage.type][1])


class ZipSource(io.FileIO):
    """A file for zipfile, which would read a directory of any size as a whole."""

    def read(self, n=-1):
        return super().read(min(n, MAX_PICKLE) if n >= 0 else MAX_PICKLE)


def read_pth(path):
    """The tensors of a .pth file, by name."""
    file = File(path)
    members = {}

    # zipfile only reads the table of the members. Their names, sizes and offsets are checked here.
    try:
        with zipfile.ZipFile(ZipSource(file.f.fileno(), closefd=False)) as z:
            infos = z.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError, EOFError, OverflowError) as e:
        check_format(file.read(0, min(file.size, 64)), file.name)
        raise Failure("%s: not a PyTorch checkpoint (zip file): %s" % (file.name, e))

    end = 0
    for m in sorted(infos, key=lambda m: m.header_offset):
        if ".." in m.filename.split("/") or m.filename.startswith("/") or "\\" in m.filename:
            raise Failure("%s: member %s: a path outside the archive" % (file.name, ascii(m.filename)))
        if m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size or m.flag_bits & 1:
            raise Failure("%s: member %s: compressed or encrypted" % (file.name, ascii(m.filename)))

        head = file.read(m.header_offset, 30)
        begin = m.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if head[:4] != b"PK\3\4" or m.header_offset < end or begin + m.file_size > file.size:
            raise Failure("%s: member %s: overlaps another or is outside the file" % (file.name, ascii(m.filename)))

        if m.filename in members:
            raise Failure("%s: member %s: duplicate" % (file.name, ascii(m.filename)))
        end = begin + m.file_size
        members[m.filename] = (begin, m.file_size)

    # The pickle and the byte order.
    pickles = [n for n in members if n.split("/")[-1] == "data.pkl"]
    if len(pickles) != 1 or members[pickles[0]][1] > MAX_PICKLE:
        raise Failure("%s: expected one data.pkl of at most %d bytes" % (file.name, MAX_PICKLE))
    prefix = pickles[0][:-len("data.pkl")]
    order = members.get(prefix + "byteorder")
    if order and file.read(order[0], min(order[1], 16)) != b"little":
        raise Failure("%s: not little-endian" % file.name)

    def storage(kind, key, n):
        if type(key) is not str or not are_counts([n]):
            raise Failure("an invalid storage key or size")
        begin, size = members.get(prefix + "data/" + key, (0, -1))
        if size != n * TYPES[kind][1]:
            raise Failure("storage %s: expected %d %s numbers, found %d bytes" % (ascii(key), n, kind, size))
        return Weight(file, "", kind, (n,), begin)

    begin, size = members[pickles[0]]
    try:
        state = unpickle(file.read(begin, size), storage)
        for key in NESTED:
            if type(state) is dict and type(state.get(key)) is dict:
                state = state[key]
        if type(state) is not dict or not all(type(k) is str for k in state):
            raise Failure("not a dictionary of tensors")
    except Failure as e:
        raise Failure("%s: pickle: %s" % (file.name, e))
    except Exception as e:  # a malformed pickle can raise any exception above
        raise Failure("%s: pickle: malformed: %s: %s" % (file.name, type(e).__name__, str(e).split("\n")[0]))

    for name, w in state.items():
        if type(w) is not Weight:
            raise Failure("%s: %s: expected a tensor, found %s" % (file.name, ascii(name), type(w).__name__))
        if w.type not in VOCABULARY_MAPS.get(name, FLOATS):
            raise Failure("%s: %s: type %s is not supported, only f32, f16 and bf16" % (file.name, ascii(name), w.type))
        w.name = name
    return without_wrappers(state)


def without_wrappers(tensors):
    """The tensors under the names of the model, without those that trainers put before all names or insert."""
    names = {name: WRAPPERS.sub("", name) for name in tensors}
    n = PREFIX.match(os.path.commonprefix(list(names.values()))).end()
    out = {names[name][n:]: w for name, w in tensors.items()}
    if len(out) != len(tensors):
        raise Failure("two tensors of one name, without the names that torch.compile and FSDP insert")
    return out


# JSON and safetensors

FOREIGN = ((b"version https://git-lfs", "a Git LFS pointer; git lfs pull downloads the file"),
           (b"\x1f\x8b", "a gzip file; decompress it first"),
           (b"<!DOCTYPE", "a web page; the download failed, repeat it"), (b"<html", "a web page; the download failed, repeat it"),
           (b"\xff\xfe", "text in UTF-16; convert it to UTF-8"), (b"\xfe\xff", "text in UTF-16; convert it to UTF-8"))


def check_format(head, name):
    """Refuses what is often found in the place of a file."""
    for begin, what in FOREIGN:
        if head.startswith(begin):
            raise Failure("%s: %s" % (name, what))


def unique(pairs):
    """Builds a JSON object and rejects duplicate keys, on which parsers disagree."""
    d = {}
    for key, v in pairs:
        if key in d:
            raise Failure("duplicate key %s" % ascii(key))
        d[key] = v
    return d


def integer(digits):
    return int(digits) if len(digits) < 20 else float(digits)  # before Python 3.11, int() takes quadratic time


def parse_json(data, name):
    """The object in JSON bytes."""
    try:
        v = json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique, parse_int=integer)
    except Failure as e:
        raise Failure("%s: %s" % (name, e))
    except (ValueError, RecursionError) as e:
        raise Failure("%s: not JSON: %s" % (name, str(e).split("\n")[0]))
    if type(v) is not dict:
        raise Failure("%s: expected a JSON object" % name)
    return v


def read_json(directory, name, limit=MAX_TABLE):
    """The object in a JSON file of a checkpoint."""
    data = read_bytes(inside(directory, name), limit)
    check_format(data, name)
    v = parse_json(data, name)
    check_shape(v, name)
    return v


SAFETENSORS_TYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "i64", "I32": "i32", "BOOL": "bool"}


def read_safetensors(path):
    """The tensors of a .safetensors file, by name. They must cover the file exactly."""
    file = File(path)
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(MAX_TABLE, file.size - 8):
        check_format(file.read(0, min(file.size, 64)), file.name)
        raise Failure("%s: a header of %d bytes in a file of %d" % (file.name, length, file.size))

    header = parse_json(file.read(8, length), file.name)
    header.pop("__metadata__", None)
    tensors, spans = {}, []

    for name, t in header.items():
        where = "%s: %s" % (file.name, ascii(name))
        try:
            kind, shape, (begin, end) = SAFETENSORS_TYPES.get(t["dtype"]), t["shape"], t["data_offsets"]
            whole = are_counts(shape + [begin, end])
        except (KeyError, TypeError, ValueError):
            raise Failure("%s: expected dtype, shape and data_offsets" % where)

        if kind not in VOCABULARY_MAPS.get(name, FLOATS):
            raise Failure("%s: type %s is not supported, only F32, F16 and BF16 (is this a quantized checkpoint?)" %
                          (where, ascii(t["dtype"])))
        if len(shape) > MAX_DIMENSIONS:
            raise Failure("%s: %d dimensions; expected at most %d" % (where, len(shape), MAX_DIMENSIONS))
        if not whole or end - begin != product(shape) * TYPES[kind][1]:
            raise Failure("%s: shape %s does not match data_offsets %s to %s" % (where, shape, begin, end))

        tensors[name] = Weight(file, name, kind, shape, 8 + length + begin)
        spans.append((begin, end, where))

    # The data has no gaps and no overlaps.
    at = 0
    for begin, end, where in sorted(spans):
        if begin != at:
            raise Failure("%s: data %s: expected at %d, found at %d" %
                      (where, "overlaps" if begin < at else "after a gap", at, begin))
        at = end

    if 8 + length + at != file.size:
        raise Failure("%s: expected %d bytes, found %d" % (file.name, 8 + length + at, file.size))
    return tensors
