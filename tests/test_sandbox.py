"""The sandbox of every command: it is entered before a file is read, and it permits what the command needs.
tests/test_sandbox.c tests what the sandbox forbids."""
import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import time

from cli import PROGRAM, ROOT, Skip, call, check, in_ci, main, refuses, requires, same, some, test

MODEL = os.path.join(ROOT, "stories", "stories.gguf")
FILES = {
    "text": b"Once upon a time there was a little girl named Lily. " * 60,
    "system": b"Be brief.",
    "ids": b"1 2 3 4 5",
    "schema": b'{"enum":["yes","no"]}',
    "grammar": b'root ::= "yes" | "no"',
    "template.jinja": b"{% for m in messages %}{{ m.content }}\n{% endfor %}{{ tools }}",
    "tools": b'[{"type":"function","function":{"name":"f"}}]',
    "requests": b'{"id":1,"prompt":"Once","max_tokens":4}\n{"id":2,"prompt":"Two","max_tokens":4}\n',
    "texts.jsonl": b'{"text":"Once upon a time"}\n{"text":"There was a dog"}\n',
    "one": b'{"prompt":"Once"}\n',
    "strings": b'"yes"\n"maybe"\n',
    "talk": b'{"role":"user","content":"Hello"}\n{"role":"assistant","content":"Hi"}\n',
}
# Each command with the options that name files. In braces: an input. In brackets: an output.
COMMANDS = [
    "run -q -n 4 --temp 0 -m {model} -f {text} --cache [cache] --draft {draft} --lora {lora}:0.5",
    "run -q -n 40 --temp 0 -m {model} -sys @{system} --template {template.jinja} --tools {tools} Hello",
    "run -q -n 40 --temp 0 -m {model} --json-schema @{schema} Hello",
    "run -q -n 40 --temp 0 -m {model} --grammar {grammar} -N 2 Hello",
    "run -q -n 4 --temp 0 -m {m-00001-of-00002.gguf} Hello",
    "chat --commands -q -n 4 -m {model} --session [session] --lora {lora} --cache [cache] -sys @{system} --template {template.jinja}",
    "chat --commands -q -n 4 -m {model} --session [session] --no-history",
    "batch -q -m {model} -i {requests} -o [out] --cache [cache] --draft {draft} --tools {tools} --template {template.jinja}",
    "batch -q -m {model} -i {requests} -o [out] --resume --cache [cache] --draft {draft} --tools {tools} "
    "--template {template.jinja}",
    "batch -q -m {model} -i {one} --raw -o [out2] --json-schema @{schema}",
    "batch -q -m {model} -i {one} --raw -o [out3] --grammar {grammar} --ordered --shard 1/1",
    "score -q -m {model} -f {text} --choices a,b --cache [cache] --lora {lora}",
    "score -q -m {model} --perplexity {text} -c 64",
    "score -q -m {model} --perplexity {texts.jsonl}",
    "score -q -m {model} --jsonl -i {texts.jsonl} -o [scores] --resume",
    "score -q -m {model} --rerank a -i {texts.jsonl} --sort",
    "tokenize -m {model} -f {text} --count",
    "tokenize -m {model} --jsonl -f {strings}",
    "tokenize -q -m {model} --jsonl -f {strings} --grammar {grammar} --special",
    "tokenize -q -m {model} --jsonl -f {strings} --json-schema @{schema}",
    "tokenize -m {model} --chat {talk} --template {template.jinja} --rendered",
    "logits -q -m {model} --ids @{ids} -o [logits] --lora {lora}",
    "logits -q -m {model} --ids @{ids} -o [logits] --last",
    "show {model} --tensors --lora {lora}",
    "show -m {m-00001-of-00002.gguf} --check --bandwidth 10",
    "quantize -q {model} [small] Q8_0",
    "quantize -q {m-00001-of-00002.gguf} [small] Q4_K_S --calibrate {text} --imatrix [matrix] --force",
    "quantize -q --imatrix {matrix} {model} [smaller] IQ4_XS",
    "bench -m {model} --tests d0 -n 1 --lora {lora} --json",
    "rope -m {model} --positions 4",
]
OPTIONAL = {"--draft": "speculate", "--cache": "cache", "--lora": "lora", "quantize": "quantize",
            "--json-schema": "constrain", "--grammar": "constrain", "--regex": "constrain"}


def key(name, kind, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def text_key(name, text):
    return key(name, 8, struct.pack("<Q", len(text)) + text)


def write_adapter(path):
    """A LoRA adapter of zeros for a matrix of the built-in model."""
    tensors = b""
    for at, (side, dims) in enumerate((("a", (288, 4)), ("b", (4, 288)))):
        name = b"blk.0.attn_q.weight.lora_" + side.encode()
        tensors += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, *dims, 0, at * 4608)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 2, 4) + text_key(b"general.type", b"adapter") + \
        text_key(b"general.architecture", b"llama") + text_key(b"adapter.type", b"lora") + \
        key(b"adapter.lora.alpha", 6, struct.pack("<f", 4)) + tensors
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + bytes(2 * 4608))


def write_shards(directory):
    """The model as a first shard with all tensors, and a second one without any. Both are links to files of other names,
    as in the download directory of Hugging Face."""
    with open(MODEL, "rb") as f:
        model = f.read()
    n_tensors, n_values = struct.unpack_from("<QQ", model, 8)
    for no in 0, 1:
        keys = key(b"split.no", 2, struct.pack("<H", no)) + key(b"split.count", 2, struct.pack("<H", 2))
        blob = os.path.join(directory, "blobs", "%d" % no)
        os.makedirs(os.path.dirname(blob), exist_ok=True)
        padding = text_key(b"padding", b"")
        padding = text_key(b"padding", bytes(-(len(keys) + len(padding)) % 32))  # the tensors keep their alignment
        with open(blob, "wb") as f:
            if no:
                f.write(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + keys)
            else:
                f.write(struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_values + 3) + keys + padding + model[24:])
        os.symlink(blob, os.path.join(directory, "m-0000%d-of-00002.gguf" % (no + 1)))


def prepare(tmp):
    for name, data in FILES.items():
        with open(os.path.join(tmp, name), "wb") as f:
            f.write(data)
    shutil.copy(MODEL, os.path.join(tmp, "model"))
    shutil.copy(MODEL, os.path.join(tmp, "draft"))
    write_adapter(os.path.join(tmp, "lora"))
    write_shards(tmp)


def is_possible(line):
    try:
        requires(*(module for word, module in OPTIONAL.items() if word in line.split()))
    except Skip:
        return False
    return True


def arguments(line, prefix):
    return [re.sub(r"[{\[]([^]}]*)[]}]", lambda m: prefix + m[1], word) for word in line.split()]


def has_sandbox():
    """False if --sandbox require finds that a layer is missing."""
    return subprocess.run([PROGRAM, "show", "--sandbox", "require"], capture_output=True).returncode != 1


@test
def every_command_works_inside(tmp):
    """With relative and absolute paths, and --sandbox require where the system has all layers."""
    prepare(tmp)
    mode = "require" if has_sandbox() else "auto"
    stdin = b"Hello\n/file text\nHello\n/save --force saved\n"
    for prefix in in_ci((tmp + "/", "", "./"), ("",)):
        for line in filter(is_possible, COMMANDS):
            args = arguments(line, prefix) + ["--force"] * line.startswith(("quantize", "logits"))
            out, err = call(*args, "--sandbox", mode, stdin=stdin if line.startswith("chat") else b"", cwd=tmp)
            check("denied" not in err and "not permitted" not in err and "without a cache" not in err, args, err)
        for name in "session", "saved", "logits", "cache", "out", "out2", "out3":
            if is_possible({"cache": "--cache", "out": "--draft", "out2": "--grammar", "out3": "--grammar"}.get(name, "")):
                path = os.path.join(tmp, name)
                check(os.listdir(path) if name == "cache" else os.path.getsize(path), name, "is empty")
                shutil.rmtree(path) if name == "cache" else os.remove(path)
    leftover = [n for n in os.listdir(tmp) if n.endswith(".tmp")]
    same(leftover, [])


@test
def bound_threads(tmp):
    """OpenMP may bind each thread that it starts to a core."""
    expected, _ = call("run", "-q", "-n", "4", "--temp", "0", "Once", cwd=tmp)
    for bind in "close", "spread":
        args = ["env", "OMP_PROC_BIND=" + bind, PROGRAM, "run", "-t", "3", "-q", "-n", "4", "--temp", "0", "Once"]
        r = subprocess.run(args, capture_output=True, timeout=60, cwd=tmp)
        same((r.returncode, r.stdout, r.stderr), (0, expected, b""))


@test
def openmp_variables(tmp):
    """Unusual values of OpenMP's variables change no result; a stack that the system cannot give is an error."""
    args = [PROGRAM, "run", "-t", "3", "-q", "-n", "4", "--temp", "0", "Once"]
    expected, _ = call(*args[1:], cwd=tmp)
    for variable in ("OMP_STACKSIZE=16k", "OMP_STACKSIZE=x", "GOMP_CPU_AFFINITY=9999", "OMP_PLACES={9999}",
                     "OMP_STACKSIZE=9000000G"):
        r = subprocess.run(["env", variable] + args, capture_output=True, timeout=60, cwd=tmp)
        messages = {1: b"Thread creation failed", -6: b"unable to allocate"}  # of libgomp, of LLVM's runtime
        is_refused = messages.get(r.returncode, b"no error") in r.stderr and variable.endswith("G")
        check(is_refused or (r.returncode, r.stdout) == (0, expected), variable, r.returncode, r.stdout, r.stderr)


@test
def unusual_paths(tmp):
    prepare(tmp)
    mode = ["--sandbox", "require" if has_sandbox() else "auto"]

    os.mkdir(os.path.join(tmp, "elsewhere"))
    os.symlink("elsewhere", os.path.join(tmp, "directory"))
    os.symlink("elsewhere/target", os.path.join(tmp, "dangling"))
    os.symlink("model", os.path.join(tmp, "link"))

    # Inputs behind links, and standard input by name.
    expected, _ = call("tokenize", "-m", MODEL, "--ids", "Hello", cwd=tmp)
    same(call("tokenize", "-m", "link", "--ids", "-f", "/dev/stdin", *mode, stdin=b"Hello", cwd=tmp)[0], expected)
    same(call("tokenize", "-m", "directory/../model", "--ids", "-f", "-", *mode, stdin=b"Hello", cwd=tmp)[0], expected)

    # Outputs behind links, and devices.
    for out in "dangling", "directory/new", "/dev/null", "/dev/stdout", "-":
        stdout, _ = call("batch", "-q", "-m", "link", "-i", "/dev/stdin", "-o", out, *mode, stdin=FILES["requests"], cwd=tmp)
        same(stdout.count(b"\n"), 2 if out in ("/dev/stdout", "-") else 0, out)
    same(sorted(os.listdir(os.path.join(tmp, "elsewhere"))), ["new", "target"])
    call("logits", "-q", "-m", "link", "--ids", "1", "-o", "dangling", "--force", *mode, cwd=tmp)
    same(os.path.getsize(os.path.join(tmp, "elsewhere", "target")) % 4, 0)

    # A descriptor of a pipe.
    read_end, write_end = os.pipe()
    os.write(write_end, b"Hello")
    os.close(write_end)
    same(call("tokenize", "--ids", "-m", "model", "-f", "/dev/fd/%d" % read_end, *mode, cwd=tmp,
              pass_fds=[read_end])[0], expected)
    os.close(read_end)

    # Missing files keep their usual messages.
    refuses(1, "No such file or directory", "batch", "-m", "model", "-i", "requests", "-o", "absent/out", *mode, cwd=tmp)
    refuses(1, "no such file", "run", "-m", "absent", "x", *mode, cwd=tmp)
    refuses(1, "No such file or directory", "run", "-m", "model", "-f", "absent/x", *mode, cwd=tmp)
    refuses(1, "expected a file, found a directory", "show", "elsewhere", *mode, cwd=tmp)
    os.remove(os.path.join(tmp, "m-00002-of-00002.gguf"))
    refuses(1, "m-00002-of-00002.gguf: No such file", "show", "m-00001-of-00002.gguf", *mode, cwd=tmp)


@test
def sandbox_precedes_every_file(tmp):
    """strace: before the filter is set, no thread is started, no standard input is read, and the files are opened at most
    as O_PATH, which cannot read them. After it, the inputs are read."""
    prepare(tmp)

    if not shutil.which("strace"):
        raise Skip("no strace")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("no permission to trace processes")
    if not has_sandbox():
        raise Skip("this system lacks a layer of the sandbox")

    log = os.path.join(tmp, "strace")
    lines = [line for line in COMMANDS if is_possible(line) and "--resume" not in line]
    lines += ["run -q -n 2 -m {model} -f -", "batch -q -m {model} -i - -o -", "tokenize --ids -m {model} -"]

    for line in some(lines):
        for name in "out", "small", "smaller":
            if os.path.exists(os.path.join(tmp, name)):
                os.remove(os.path.join(tmp, name))

        args = arguments(line, tmp + "/")
        has_stdin = "-" in args or args[0] == "chat"
        subprocess.run(["strace", "-f", "-qq", "-s", "4096", "-o", log, "-e",
                        "trace=open,openat,read,pread64,readv,clone,clone3,seccomp,landlock_restrict_self",
                        PROGRAM, *args, *["--force"] * (args[0] == "logits")],
                       input=FILES["requests"], capture_output=True, timeout=120)

        with open(log, encoding="utf-8", errors="replace") as f:
            calls = f.read().splitlines()

        # Both layers: seccomp and Landlock.
        filters = [i for i, c in enumerate(calls) if re.search(r" seccomp\(SECCOMP_SET_MODE_FILTER.* = 0$", c)]
        rules = [i for i, c in enumerate(calls) if re.search(r" landlock_restrict_self\(.* = 0$", c)]
        check(filters and rules, args, "does not enter the sandbox")
        begin = max(filters[0], rules[0])

        # The calls before the sandbox, and those after it.
        for c in calls[:begin]:
            is_opened = tmp in c and "O_PATH" not in c
            check(not is_opened and not re.search(r" (clone3?|read)\((0,|CLONE|\{flags|child)", c), args, "before the sandbox:", c)

        later = [c for c in calls[begin:] if "O_PATH" not in c]
        for name in re.findall(r"{([^}]*)}", line):
            check(any('"%s/%s"' % (tmp, name) in c for c in later), args, name, "is never opened")
        check(not has_stdin or any(" read(0," in c for c in later), args, "standard input is never read")


def seccomp_states(pid):
    found = []
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as f:
            found += re.findall(r"^Seccomp:\s*(\d)", f.read(), re.M)
    return found


@test
def inside_when_the_first_file_is_opened(tmp):
    """The first input is a FIFO, whose opening blocks: the filter is already set then, in all threads. Needs no strace."""
    prepare(tmp)
    if not os.path.exists("/proc/self/status") or not has_sandbox():
        raise Skip("this system lacks /proc or a layer of the sandbox")

    fifo = os.path.join(tmp, "fifo")
    os.mkfifo(fifo)
    lines = ("run -t 3 -f {fifo}", "tokenize -f {fifo}", "logits --ids @{fifo} -o [x]", "chat -sys @{fifo} --template {fifo}",
                 "batch -t 3 -i {fifo} -o -", "score --perplexity {fifo}", "tokenize --jsonl --regex a -f {fifo}")

    for line in filter(is_possible, lines):
        p = subprocess.Popen([PROGRAM, *arguments(line, tmp + "/")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)

        states, end = [], time.time() + 30
        while not states and time.time() < end and p.poll() is None:
            try:
                writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)  # fails until the program opens it
                states = seccomp_states(p.pid)
                os.close(writer)
            except OSError:
                time.sleep(0.01)

        p.kill()
        p.wait()
        check(states and set(states) == {"2"}, line, states)


@test
def cache_keeps_the_sandbox(tmp):
    """A prefix cache permits its directory, and all threads stay in the sandbox."""
    requires("cache")
    prepare(tmp)
    if not os.path.exists("/proc/self/status") or not has_sandbox():
        raise Skip("this system lacks /proc or a layer of the sandbox")
    cache = os.path.join(tmp, "new-cache")
    p = subprocess.Popen([PROGRAM, "batch", "-q", "-t", "2", "-m", MODEL, "-i", "-", "-o", "-", "--cache", cache],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b'{"prompt":"%s","max_tokens":2}\n' % FILES["text"])
    p.stdin.flush()
    answer = p.stdout.readline()
    states = seccomp_states(p.pid)
    _, err = p.communicate(timeout=60)
    same((p.returncode, set(states), err), (0, {"2"}, b""))
    check(b'"text"' in answer and os.listdir(cache), answer, "no page is written")


def without(*calls):
    """Makes these system calls of a child process fail with ENOSYS, as a kernel without them does."""
    def enter():
        class Program(ctypes.Structure):
            _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_void_p)]
        instructions = [(0x20, 0, 0, 0)]  # load the number of the call
        for i, number in enumerate(calls):
            instructions.append((0x15, len(calls) - i, 0, number))
        instructions += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050000 | 38)]  # allow; ENOSYS
        code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *i) for i in instructions))
        libc = ctypes.CDLL(None)
        long = ctypes.c_ulong
        libc.prctl(38, long(1), long(0), long(0), long(0))  # PR_SET_NO_NEW_PRIVS
        if libc.prctl(22, long(2), ctypes.byref(Program(len(instructions), ctypes.addressof(code)))):  # PR_SET_SECCOMP
            os._exit(99)

    return enter


@test
def openmp_runtime(tmp):
    """LLVM's OpenMP runtime (builds with clang) creates a file when it starts. That happens before the sandbox, for any
    number of threads, and the file is removed."""
    for threads in [], ["-t", "1"], ["-t", "2"]:
        p = subprocess.Popen([PROGRAM, "run", "-q", "-n", "1", *threads, "Once"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        err = p.communicate()[1]
        check(p.returncode == 0 and not err, threads, p.returncode, err)
        left = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
        check(not [name for name in left if "_REGISTERED_LIB_%d_" % p.pid in name], threads, left)


@test
def missing_layers(tmp):
    """A layer that the system lacks is named with -v, and refused with --sandbox require."""
    if platform.machine() not in ("x86_64", "aarch64") or not sys.platform.startswith("linux") or not has_sandbox():
        raise Skip("this system lacks a layer of the sandbox")
    landlock, seccomp = 444, 317 if platform.machine() == "x86_64" else 277
    for calls, missing in (((landlock,), "Landlock (files)"), ((seccomp,), "seccomp (system calls)"),
                           ((landlock, seccomp), "seccomp and Landlock")):
        hidden = {"preexec_fn": without(*calls)}
        refuses(1, "--sandbox require: this system lacks " + missing, "run", "--sandbox", "require", "x", **hidden)
        for command in some((("run", "-n", "2", "x"), ("show",), ("tokenize", "x"), ("logits", "--ids", "1", "-o", "-")), 4):
            _, err = call(*command, "-v", **hidden)
            check("sandbox: this system lacks %s\n" % missing in err, command, err)
            _, err = call(*command, "-v", "--sandbox", "none", **hidden)
            check("sandbox" not in err, err)
            call(*command, "--no-sandbox", **hidden)
    refuses(2, "--sandbox: expected auto, require or none", "run", "--sandbox", "yes", "x")


def read(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


@test
def security_page(tmp):
    """docs/security.md has exactly the system calls that the filter allows, and every call that test_sandbox.c makes is in
    the row of its stages."""
    section = read("docs", "security.md").split("## System calls")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    always, with_paths, with_removal, checked, never = (set(re.findall(r"`(\w+)`", calls)) for _, calls in rows)

    # The filter: three lists, and the calls whose arguments it checks.
    source = read("base", "os", "sandbox_linux.c")
    lists = {name: set(re.findall(r"\bSYS_(\w+)", body))
             for name, body in re.findall(r"static const int (\w+)\[\] = \{(.*?)\};", source, re.S)}
    same(always, lists["allowed"])
    same(with_paths, lists["allowed_with_paths"] - lists["allowed_with_removal"])
    same(with_removal, lists["allowed_with_removal"])
    same(checked, set(re.findall(r"CHECK_ARG\((\w+), \d", source)) | set(re.findall(r"CHECK\(BPF_JEQ, SYS_(\w+)", source)) -
         {"clone3"})

    # The calls that the test in C makes. The arguments of most are such that the call fails where it is allowed.
    stages = {}
    for name, stage in re.findall(r"ROW\((\w+), ([A-Z_]+),", read("tests", "test_sandbox.c")):
        stages.setdefault(name, set()).add(stage)
    for name, found in stages.items():
        if name not in checked:
            row = {"LAST_STAGE": always, "WITH_PATHS": with_paths, "WITH_REMOVAL": with_removal, "NO_STAGE": never}
            check(len(found) == 1 and name in row[min(found)], name, found)
    check(never <= set(stages) and checked <= set(stages), "not tested:", (never | checked) - set(stages))
    not_made = {"exit", "exit_group", "restart_syscall", "rt_sigreturn", "set_robust_list", "rseq", "poll"}
    same(always - set(stages), not_made, "not tested")


@test
def chat_writes_below_its_directory(tmp):
    """/save writes in the current directory, and nothing outside of it and of the directory of temporary files."""
    if not has_sandbox():
        raise Skip("this system lacks a layer of the sandbox")
    inside, outside = os.path.join(tmp, "in"), os.path.join(tmp, "out")
    os.mkdir(inside), os.mkdir(outside)
    environment = dict(os.environ, TMPDIR=inside, LLAMA31_HISTORY="")
    for mode, is_written in ("auto", False), ("none", True):
        _, err = call("chat", "--commands", "-q", "-n", "2", "--sandbox", mode, cwd=inside, env=environment,
                      stdin=b"Hello\n/save x\n/save ../out/x\n", code=int(not is_written))
        same((os.path.exists(os.path.join(inside, "x")), os.path.exists(os.path.join(outside, "x"))), (True, is_written), err)
        check(is_written or "chat writes below the current directory" in err, err)
        os.remove(os.path.join(inside, "x"))


@test
def special_tokens_under_a_constraint(tmp):
    """tokenize --jsonl --special parses special tokens under a constraint: only the last token may end the text."""
    requires("constrain")
    out, _ = call("tokenize", "-q", "--jsonl", "--regex", "yes", "--special", stdin=b'"yes"\n"yes<|end_of_text|>"\n'
                  b'"y<|end_of_text|>es"\n"<|begin_of_text|>yes"\n"<|end_of_text|>"\n')
    same(re.findall(rb'"accepted":(\w+)', out), [b"true", b"true", b"false", b"false", b"false"], out)


main("sandbox")
