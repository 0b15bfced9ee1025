"""Tensors of checkpoint files: PyTorch's .pth and safetensors. Both come from strangers: everything they say is
checked, nothing in them is run, and what is unexpected is refused by name."""
import json
import pickletools
import zipfile

from .gguf_writer import Bad, TYPES
from .weights import File, Weight

MAX_TABLE = 16 << 20  # bytes of a pickle, or of a safetensors header


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


# PyTorch: a zip of stored members, PREFIX/data.pkl saying which numbers of which PREFIX/data/KEY are a tensor

class Global:
    def __init__(self, name):
        self.name = name


STORAGES = {"torch BFloat16Storage": "bf16", "torch HalfStorage": "f16", "torch FloatStorage": "f32"}
REBUILD, DICT = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
PUSHED = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}


def unpickle(data, storage):
    """What a pickle of nothing but dictionaries of tensors says. It is read, not run: there is no import, no call, and
    no opcode beyond those that torch.save writes. storage(type, key, n) answers for a storage."""
    stack, marks, memo = [], [], {}

    def since_mark():
        at = marks.pop()
        items = stack[at:]
        del stack[at:]
        return items

    def fill(d, items):
        if type(d) is not dict or not all(type(k) is str for k in items[0::2]):
            raise Bad("items are set on a %s, or their keys are no text" % type(d).__name__)
        d.update(zip(items[0::2], items[1::2]))

    def call(f, args):
        if f.name == DICT and not args:
            return {}
        if f.name == REBUILD:
            return tensor(*args[:4])
        raise Bad("%s is called" % f.name)

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
            if arg not in STORAGES and arg not in (REBUILD, DICT):
                raise Bad("%s is not part of a checkpoint: refused, not run" % arg.replace(" ", "."))
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
        elif name == "BUILD":  # attributes of a dictionary, such as its version
            stack.pop()
        elif name == "STOP":
            return stack.pop()
        else:
            raise Bad("opcode %s is not part of a checkpoint: refused, not run" % name)


def are_counts(numbers):
    return all(type(n) is int and 0 <= n < 1 << 40 for n in numbers)


def tensor(storage, offset, shape, stride):
    """The Weight, without a name, of that shape whose numbers lie one after the other in a storage, from offset."""
    if type(storage) is not Weight or not are_counts((offset,) + shape + stride) or not len(shape) == len(stride) > 0:
        raise Bad("a tensor that is no storage, offset, shape and strides")
    expected = 1
    for n, s in zip(reversed(shape), reversed(stride)):
        if n != 1 and s != expected:
            raise Bad("a tensor of shape %s has strides %s: it is not contiguous" % (shape, stride))
        expected *= n
    if offset + expected > storage.shape[0]:
        raise Bad("a tensor of shape %s at %d does not fit its storage of %d" % (shape, offset, storage.shape[0]))
    return Weight(storage.file, "", storage.type, shape, storage.offset + offset * TYPES[storage.type][1])


def read_pth(path):
    """The tensors of a .pth file, by name."""
    file = File(path)
    members = {}
    try:
        with zipfile.ZipFile(path) as z:
            infos = z.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError, EOFError, OverflowError) as e:
        raise Bad("%s: not a PyTorch checkpoint in zip form: %s" % (file.name, e))
    end = 0
    for m in sorted(infos, key=lambda m: m.header_offset):
        if ".." in m.filename.split("/") or m.filename.startswith("/") or "\\" in m.filename:
            raise Bad("%s: member %s: a path that leads outside" % (file.name, ascii(m.filename)))
        if m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size or m.flag_bits & 1:
            raise Bad("%s: member %s: compressed or encrypted, a checkpoint is stored plainly" %
                      (file.name, ascii(m.filename)))
        head = file.read(m.header_offset, 30)
        begin = m.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if head[:4] != b"PK\3\4" or m.header_offset < end or begin + m.file_size > file.size:
            raise Bad("%s: member %s: overlaps another, or lies outside the file" % (file.name, ascii(m.filename)))
        if m.filename in members:
            raise Bad("%s: member %s: there twice" % (file.name, ascii(m.filename)))
        end = begin + m.file_size
        members[m.filename] = (begin, m.file_size)
    pickles = [n for n in members if n.split("/")[-1] == "data.pkl"]
    if len(pickles) != 1 or members[pickles[0]][1] > MAX_TABLE:
        raise Bad("%s: expected one data.pkl of at most %d bytes" % (file.name, MAX_TABLE))
    prefix = pickles[0][:-len("data.pkl")]
    order = members.get(prefix + "byteorder")
    if order and file.read(order[0], min(order[1], 16)) != b"little":
        raise Bad("%s: not little-endian" % file.name)

    def storage(kind, key, n):
        if type(key) is not str or not are_counts([n]):
            raise Bad("a storage without key and size")
        begin, size = members.get(prefix + "data/" + key, (0, -1))
        if size != n * TYPES[kind][1]:
            raise Bad("storage %s: expected %d %s numbers, found %d bytes" % (ascii(key), n, kind, size))
        return Weight(file, "", kind, (n,), begin)

    begin, size = members[pickles[0]]
    try:
        state = unpickle(file.read(begin, size), storage)
        if type(state) is not dict or not all(type(k) is str for k in state):
            raise Bad("it is no dictionary of tensors")
    except Bad as e:
        raise Bad("%s: pickle: %s" % (file.name, e))
    except Exception as e:  # whatever a broken pickle makes of the steps above
        raise Bad("%s: pickle: broken: %s: %s" % (file.name, type(e).__name__, str(e).split("\n")[0]))
    for name, w in state.items():
        if type(w) is not Weight:
            raise Bad("%s: %s: expected a tensor, found %s" % (file.name, ascii(name), type(w).__name__))
        w.name = name
    return state


# safetensors

def unique(pairs):
    """A JSON object whose keys are all different (parsers disagree on which of two counts)."""
    d = dict(pairs)
    if len(d) != len(pairs):
        keys = [k for k, _ in pairs]
        raise Bad("key %s: there twice" % ascii(next(k for k in keys if keys.count(k) > 1)))
    return d


def parse_json(data, name):
    """An object from JSON bytes."""
    try:
        v = json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except Bad as e:
        raise Bad("%s: %s" % (name, e))
    except (ValueError, RecursionError) as e:
        raise Bad("%s: not JSON: %s" % (name, str(e).split("\n")[0]))
    if type(v) is not dict:
        raise Bad("%s: expected a JSON object" % name)
    return v


SAFETENSORS_TYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


def read_safetensors(path):
    """The tensors of a .safetensors file, by name. They must cover the file exactly."""
    file = File(path)
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(MAX_TABLE, file.size - 8):
        raise Bad("%s: header of %d bytes in a file of %d" % (file.name, length, file.size))
    header = parse_json(file.read(8, length), file.name)
    header.pop("__metadata__", None)
    tensors, spans = {}, []
    for name, t in header.items():
        where = "%s: %s" % (file.name, ascii(name))
        try:
            kind, shape, (begin, end) = t["dtype"], t["shape"], t["data_offsets"]
            whole = are_counts(shape + [begin, end])
        except (KeyError, TypeError, ValueError):
            raise Bad("%s: expected dtype, shape and data_offsets" % where)
        if kind not in SAFETENSORS_TYPES:
            raise Bad("%s: type %s: expected F32, F16 or BF16 (a quantised checkpoint?)" % (where, ascii(kind)))
        kind = SAFETENSORS_TYPES[kind]
        if not whole or end - begin != product(shape) * TYPES[kind][1]:
            raise Bad("%s: shape %s does not match data_offsets %s to %s" % (where, shape, begin, end))
        tensors[name] = Weight(file, name, kind, shape, 8 + length + begin)
        spans.append((begin, end, where))
    at = 0
    for begin, end, where in sorted(spans):
        if begin != at:
            raise Bad("%s: data %s: expected at %d, found at %d" %
                      (where, "overlaps" if begin < at else "after a gap", at, begin))
        at = end
    if 8 + length + at != file.size:
        raise Bad("%s: expected %d bytes, found %d" % (file.name, 8 + length + at, file.size))
    return tensors
