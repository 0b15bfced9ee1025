"""Files, descriptors and signals: no output is lost, replaced without --force, or left incomplete."""
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time

from cli import PROGRAM, ROOT, SCRIPTS, Skip, check, main, read, read_lines, refuses, requires, same, some, test, write

STORIES = os.path.join(ROOT, "stories", "stories.gguf")
TURN = b'{"role":"user","content":"hi"}\n'


def run(*args, stdin=b"", code=0, **options):
    r = subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, timeout=60, **options)
    err = r.stderr.decode("utf-8", "replace")
    check(r.returncode == code, args, "exit", r.returncode, "expected", code, err[-300:])
    return r.stdout, err


def chat(*args, stdin=b"Hello\n", code=0, **options):
    return run("chat", "-q", "-t", 1, "-n", 2, "--commands", *args, stdin=stdin, code=code, **options)


def holds_only(directory, *names):
    same(sorted(os.listdir(directory)), sorted(names), "files in " + directory)


@test
def session_in_another_format(tmp):
    """A file that is not a transcript is rejected and stays unchanged."""
    for text in b"notes", b"notes\n", b'{"a":1}', TURN + b"notes", b"{role}\n":
        path = write(os.path.join(tmp, "n"), text)
        _, err = chat("--session", path, code=1)
        check("line" in err, err)
        same(read(path), text)
    holds_only(tmp, "n")


@test
def session_without_last_newline(tmp):
    path = write(os.path.join(tmp, "s"), TURN[:-1])
    chat("--session", path)
    same([m["role"] for m in read_lines(path)], ["user", "user", "assistant"])
    chat("--session", path)
    same(len(read_lines(path)), 5)


@test
def session_with_truncated_line(tmp):
    """An incomplete last line is removed."""
    for line in b'{"role":"us', b'{"ro', b'{"role":"user","content":"x':
        path = write(os.path.join(tmp, "s"), TURN + line)
        chat("--session", path)
        same([m["role"] for m in read_lines(path)], ["user", "user", "assistant"], line)


@test
def session_disk_full(tmp):
    """Exit 1 and whole lines. (A file size limit stands in for a full disk.)"""
    path = os.path.join(tmp, "s")
    for limit in range(1, 100, 7):
        write(path, b"")
        _, err = chat("--session", path, stdin=b"Hello\nAgain\n", code=1,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        check(err.count("File too large") == 1, err)
        check(err.endswith("warning: %s: the last messages are not saved\n" % path) and err.count("\n") == 2, err)
        for message in read_lines(path):
            check(message["role"] in ("user", "assistant"))
    holds_only(tmp, "s")


@test
def session_that_cannot_be_written(tmp):
    chat("--session", os.path.join(tmp, "absent", "s"), code=1)
    chat("--session", tmp, code=1)
    chat("--session", "/dev/null", code=1)
    chat("--session", "-", code=2, cwd=tmp)  # standard input has the messages
    holds_only(tmp)


@test
def few_descriptors(tmp):
    """Without a free descriptor the message says so."""
    for n, code in (4, 1), (8, 0):
        _, err = run("run", "-q", "-t", 1, "-n", 2, "-m", STORIES, "Once", code=code,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        check(("Too many open files" in err) == bool(code), err)


@test
def two_quantizers(tmp):
    """Two runs with one output: the file is complete, and a run that did not write it says so."""
    requires("quantize")
    out = os.path.join(tmp, "out")
    run("quantize", "-q", STORIES, os.path.join(tmp, "expected"), "Q4_0")
    for _ in range(3):
        runs = [subprocess.Popen([PROGRAM, "quantize", "-q", "-t", "1", STORIES, out, "Q4_0"], stderr=subprocess.PIPE)
                for _ in range(2)]
        errors = [p.communicate()[1] for p in runs]
        for p, err in zip(runs, errors):
            check(p.returncode == 0 or b"created by another program" in err or b"exists" in err, p.returncode, err)
        check(0 in [p.returncode for p in runs] and read(out) == read(os.path.join(tmp, "expected")), errors)
        os.remove(out)
    holds_only(tmp, "expected")


@test
def session_lock(tmp):
    """The second chat on one session is rejected, also after the first has replaced the file."""
    path = os.path.join(tmp, "s")
    first = subprocess.Popen([PROGRAM, "chat", "-q", "-n", "2", "--json", "--commands", "--session", path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for text in b"Hello\n", b"/system x\n", b"/undo\nHello again\n":
            first.stdin.write(text)
            first.stdin.flush()
            if not text.startswith(b"/system"):
                first.stdout.readline()
            _, err = chat("--session", path, code=1)
            check("another run" in err, err)
    finally:
        first.stdin.close()
        first.wait()
        first.stdout.close()
    chat("--session", path)
    holds_only(tmp, "s")


@test
def links_are_followed(tmp):
    """A link stays a link; its target is written."""
    requires("quantize")
    os.mkdir(os.path.join(tmp, "d"))
    link, real = os.path.join(tmp, "link"), os.path.join(tmp, "d", "real")
    for target, again in ((real, False), ("d/real", True)):
        os.symlink(target, link)
        chat("--session", link, stdin=b"Hello\n/undo\nAgain\n")
        check(os.path.islink(link) and not os.path.islink(real))
        same(len(read_lines(real)), 2)
        os.remove(real)
        run("quantize", "-q", STORIES, link, "Q4_0")  # a dangling link
        run("quantize", "-q", "--force", STORIES, link, "Q8_0")
        check(os.path.islink(link) and os.path.getsize(real) > 1000)
        os.remove(real)
        os.remove(link)
    holds_only(os.path.join(tmp, "d"))


@test
def force_is_needed(tmp):
    """quantize, logits and /save replace an existing file only with --force, and keep its mode."""
    requires("quantize")
    path = write(os.path.join(tmp, "old"), b"precious\n")
    ids = write(os.path.join(tmp, "ids"), b"1 2 3\n")

    for args in (("quantize", STORIES, path, "Q8_0"), ("logits", "--ids", "1", "-o", path),
                 ("logits", "--ids", "@" + ids, "-o", ids), ("logits", "--force", "--ids", "@" + ids, "-o", ids)):
        before = read(args[-1]) if args[0] == "logits" else read(path)
        run(*args, code=2)
        same(read(path), b"precious\n")
        same(read(ids), b"1 2 3\n")

    # /save in a chat.
    _, err = chat(stdin=b"Hello\n/save " + path.encode() + b"\n", code=1)
    check("--force" in err, err)
    same(read(path), b"precious\n")
    chat(stdin=b"Hello\n/save --force " + path.encode() + b"\n")
    same(len(read_lines(path)), 2)

    # logits replaces its own files; quantize does not, because they may have taken hours.
    run("logits", "--force", "--ids", "1", "-o", path)
    run("logits", "--ids", "1", "-o", path)
    os.chmod(path, 0o640)
    run("quantize", "-q", "--force", STORIES, path, "Q8_0")
    run("quantize", "-q", STORIES, path, "Q8_0", code=2)
    same(stat.S_IMODE(os.stat(path).st_mode), 0o640)

    holds_only(tmp, "old", "ids")


@test
def save_again(tmp):
    """/save replaces a file that holds the beginning of the dialogue, but not the session itself."""
    path, session = os.path.join(tmp, "saved"), os.path.join(tmp, "s")
    line = b"/save " + path.encode() + b"\n"
    _, err = chat("--session", session, stdin=b"Hello\n" + line + b"Again\n" + line + b"/save " + session.encode() +
                  b"\nMore\n", code=1)
    check("same file" in err, err)
    same(len(read_lines(path)), 4)
    same(len(read_lines(session)), 6)
    _, err = chat(stdin=b"Something else\n" + line, code=1)
    check("exists" in err, err)
    same(len(read_lines(path)), 4)


@test
def save_after_the_session_was_replaced(tmp):
    """/undo replaces the session. A new file may get the number of the old one, and can then be replaced."""
    session, names = os.path.join(tmp, "s"), [os.path.join(tmp, "saved%d" % i) for i in range(8)]
    lines = [b"Hello"] + [b"/undo", b"Again"] * 3 + [b"/save --force " + name.encode() for name in names for _ in range(2)]
    _, err = chat("--session", session, code=1,
                  stdin=b"\n".join(lines) + b"\n/save --force " + session.encode() + b"\n")
    same(err.count("same file"), 1, err)  # the session itself
    for name in names:
        same(len(read_lines(name)), 2)


@test
def inputs_are_not_overwritten(tmp):
    """An output that is also an input is rejected, under any of its names."""
    model = shutil.copy(STORIES, os.path.join(tmp, "m.gguf"))
    os.link(model, os.path.join(tmp, "hard.gguf"))
    os.symlink("m.gguf", os.path.join(tmp, "soft.gguf"))
    before = read(model)
    for name in "m.gguf", "hard.gguf", "soft.gguf":
        out = os.path.join(tmp, name)
        run("logits", "-m", model, "--force", "--ids", "1", "-o", out, code=2)
        run("quantize", "--force", model, out, "Q8_0", code=2)  # also without the quantizer
        _, err = chat("-m", model, stdin=b"Hello\n/save --force " + out.encode() + b"\n", code=1)
        check("same file" in err, err)
    run("batch", "-m", model, "-i", "/dev/null", "-o", model, "--resume", code=2)
    same(read(model), before)
    holds_only(tmp, "m.gguf", "hard.gguf", "soft.gguf")


@test
def devices_are_not_replaced(tmp):
    requires("quantize")
    try:
        os.mknod(os.path.join(tmp, "full"), stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except OSError as e:
        raise Skip("mknod: %s" % e.strerror)
    full = os.path.join(tmp, "full")
    os.mkfifo(os.path.join(tmp, "fifo"))
    for path in full, os.path.join(tmp, "fifo"), tmp:
        _, err = chat(stdin=b"Hello\n/save --force " + path.encode() + b"\n", code=1)
        check("expected a file" in err, err)
    run("quantize", "-q", "--force", STORIES, full, "Q8_0", code=1)
    run("logits", "--force", "--ids", "1", "-o", full, code=1)
    check(stat.S_ISCHR(os.stat(full).st_mode))
    holds_only(tmp, "full", "fifo")


@test
def batch_output_in_another_format(tmp):
    """--resume rejects a file that is not a batch output, and leaves it unchanged."""
    source = write(os.path.join(tmp, "in"), b'{"id":1,"prompt":"a","max_tokens":2}\n')
    for text in b"notes", b'{"id":1,"text":"a"}\nnotes', b'{"a', b"\xef\xbb\xbfnotes":
        out = write(os.path.join(tmp, "out"), text)
        run("batch", "-q", "-i", source, "-o", out, "--resume", code=1)
        same(read(out), text)
    holds_only(tmp, "in", "out")


@test
def output_with_zero_bytes(tmp):
    """Zero bytes at the end of a batch output or a session, as after a power failure, are removed."""
    source = write(os.path.join(tmp, "in"), b'{"id":1,"prompt":"a","max_tokens":2}\n{"id":2,"prompt":"b","max_tokens":2}\n')
    out = os.path.join(tmp, "out")
    run("batch", "-q", "--ordered", "-s", "1", "-i", source, "-o", out)
    whole = read(out)
    for n in len(whole), len(whole) - 20, whole.index(b"\n") + 1:
        os.truncate(out, n)
        os.truncate(out, len(whole) + 4096)
        run("batch", "-i", source, "-o", out, "--resume")
        same(read(out), whole, n)
    session = write(os.path.join(tmp, "s"), TURN + bytes(100))
    chat("--session", session)
    same(len(read_lines(session)), 3)


@test
def text_files(tmp):
    """One byte order mark of a text file is skipped; UTF-16 and NUL bytes are named. -sys @@TEXT is a text."""
    path = os.path.join(tmp, "text")
    for data, found in (b"\xef\xbb\xbfin", b"in"), (b"\xef\xbb\xbf\xef\xbb\xbfin", b"\xef\xbb\xbfin"):
        answer = run("run", "-n", "3", "-s", "1", "-f", write(path, data))[0]
        same(answer, run("run", "-n", "3", "-s", "1", found.decode())[0])
    for data, found in ("in".encode("utf-16"), "UTF-16"), (b"a\0b", "NUL"):
        for args in ("run", "-f"), ("run", "--template"), ("run", "--tools"), ("score", "--perplexity"):
            name = write(path + ".jinja", data)
            _, err = run(*args, name, *(["x"] if args[0] == "run" else []), code=2 if "--template" in args else 1)
            check(found in err, args, err)
    same(run("run", "-n", "1", "-s", "1", "-sys", "@@x", "hi")[0], run("run", "-n", "1", "-s", "1", "-sys",
         "@" + write(path, b"@x"), "hi")[0])


@test
def endless_lines(tmp):
    """The first Ctrl-C ends a run on an endless line. An ignored SIGINT stays ignored."""
    for args in ("batch", "-q"), ("score", "-q", "--jsonl"), ("chat", "-q"):
        p = subprocess.Popen([PROGRAM, *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        p.stdin.write(bytes(8 << 20))  # more than a pipe holds: when this returns, the program reads the line
        p.send_signal(signal.SIGINT)
        same(p.wait(10), 130, args)
        p.stdin.close()
    p = subprocess.Popen([PROGRAM, "chat", "-q", "-n", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    time.sleep(0.2)
    p.send_signal(signal.SIGINT)
    p.communicate(b"hi\n")
    same(p.returncode, 0)


@test
def signals_leave_nothing(tmp):
    """Every signal that ends the program removes temporary files first."""
    source = os.path.join(tmp, "in.gguf")
    shutil.copy(STORIES, source)
    out = os.path.join(tmp, "out.f32")
    ids = write(os.path.join(tmp, "ids"), b"1 " * 250)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGALRM,
                   signal.SIGUSR1):
        for delay in 0.02, 0.05:
            p = subprocess.Popen([PROGRAM, "logits", "-t", "1", "-b", "1", "--ids", "@" + ids, "-o", out],
                                 stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
            time.sleep(delay)

            start = time.time()
            p.send_signal(number)
            code = p.wait()

            if code:
                same(code, 130 if number == signal.SIGINT else -number)
                check(time.time() - start < 5)
                holds_only(tmp, "in.gguf", "ids")

            if os.path.exists(out):
                os.remove(out)


@test
def failed_writes_leave_nothing(tmp):
    """A file size limit at every stage of logits and quantize: exit 1, no incomplete file."""
    requires("quantize")
    for limit in 0, 1, 4096, 100000:
        for args in ("logits", "--ids", "1 2 3 4 5 6 7 8"), ("quantize", "-q", STORIES, os.path.join(tmp, "q"), "Q8_0"):
            args += ("-o", os.path.join(tmp, "l")) if args[0] == "logits" else ()
            r = subprocess.run([PROGRAM, *args], capture_output=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            if r.returncode:
                same((r.returncode, "File too large" in r.stderr.decode()), (1, True), r.stderr)
                holds_only(tmp)
            for name in os.listdir(tmp):
                os.remove(os.path.join(tmp, name))


FAILING_CALLS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int synced = -1, n_interrupts, n_closed;
int fsync(int fd) { // of the output, which comes before that of its directory
    if (synced < 0) synced = fd;
    if (synced == fd && n_interrupts++ == 0) return errno = EINTR, -1;
    return 0;
}
int close(int fd) {
    if (fd == synced && n_closed++) _exit(99); // a second time
    int status = ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
    return fd == synced && getenv("FAIL_CLOSE") ? errno = atoi(getenv("FAIL_CLOSE")), -1 : status;
}
"""


@test
def failed_close(tmp):
    """A descriptor is closed once, even if close() fails; EINTR is no failure, of fsync() neither."""
    library, out = os.path.join(tmp, "failing.so"), os.path.join(tmp, "out")
    command = ["cc", "-shared", "-fPIC", "-o", library, write(library[:-2] + "c", FAILING_CALLS.encode()), "-ldl"]
    if not sys.platform.startswith("linux") or not shutil.which("cc") or subprocess.run(command).returncode:
        raise Skip("no compiler for a preloaded library")
    for error, code in ("", 0), ("4", 0), ("5", 1):  # EINTR, EIO
        env = dict(os.environ, LD_PRELOAD=library, **{"FAIL_CLOSE": error} if error else {})
        _, err = run("logits", "-t", "1", "--force", "--ids", "1 2", "-o", out, code=code, env=env)
        check("Input/output error" in err or not code, err)
        run("batch", "-q", "-t", "1", "-n", "1", "-o", out + "b" + error, stdin=b'{"prompt":"a"}\n', code=code, env=env)


@test
def checksums(tmp):
    """show --verify accepts the checksums of quantize and export.py, and rejects a flipped bit."""
    requires("quantize")
    out, copy = os.path.join(tmp, "q.gguf"), os.path.join(tmp, "flipped.gguf")
    run("quantize", "-q", STORIES, out, "Q4_0")

    exported = os.path.join(tmp, "e.gguf")
    small = os.path.join(ROOT, "tests", "golden", "small31")
    subprocess.run([sys.executable, os.path.join(SCRIPTS, "export.py"), small, "-o", exported], check=True, capture_output=True)

    for path in out, exported:
        text, _ = run("show", path, "--verify")
        check(b"as stored" in text and b"all weights finite" in text, text)
        text, _ = run("show", path, "--check")
        check(b"checksum" in text, text)

        data = bytearray(read(path))
        for at in len(data) - 40, len(data) - 5000:
            data[at] ^= 1
            write(copy, data)
            data[at] ^= 1
            _, err = run("show", copy, "--verify", code=3)
            check("llama31.checksum" in err, err)

    _, err = run("show", STORIES, "--verify", code=3)
    check("no checksum stored" in err, err)


@test
def weights_that_are_not_finite(tmp):
    requires("quantize")
    out, bad = os.path.join(tmp, "f.gguf"), os.path.join(tmp, "bad.gguf")
    run("quantize", "-q", STORIES, out, "F32")
    data = bytearray(read(out))
    data[-8:-4] = b"\0\0\xc0\x7f"
    write(bad, data)
    _, err = run("show", bad, "--check", code=3)
    check("row" in err and "infinite" in err, err)
    _, err = run("logits", "-m", bad, "--ids", "1,2", "-o", os.path.join(tmp, "l"), code=1)
    check("NaN" in err, err)
    _, err = run("score", "-m", bad, "--choices", "a,b", "x", code=1)
    same(err, "llama31: the logits contain NaN or infinity\n")
    holds_only(tmp, "f.gguf", "bad.gguf")


@test
def model_truncated_while_in_use(tmp):
    """Pages after the new end raise SIGBUS. The bytes after the new end in its own page silently read as zero."""
    model = shutil.copy(STORIES, os.path.join(tmp, "m.gguf"))
    for cut in 64, 100000:
        shutil.copy(STORIES, model)
        p = subprocess.Popen([PROGRAM, "chat", "-q", "-t", "1", "-n", "3", "-m", model, "--json"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b"Hello\n")
        p.stdin.flush()
        p.stdout.readline()
        os.truncate(model, os.path.getsize(model) - cut)
        _, err = p.communicate(b"Again\n")
        same(p.returncode, 1, err)
        check(b"changed while in use" in err, err)


@test
def names_are_escaped(tmp):
    """Control bytes and bidirectional overrides in tensor names and file names never reach the terminal."""
    requires("quantize")
    evil = b"\x1b]52;c;aGk=\x07"
    data = read(STORIES).replace(b"blk.0.ffn_down.weight", (evil + b"x" * 21)[:21])
    model = write(os.path.join(tmp, "m.gguf"), data)
    r = subprocess.run([PROGRAM, "quantize", "-v", model, os.path.join(tmp, "q"), "Q4_0"], capture_output=True)
    check(b"\x1b" not in r.stderr and b"\\x1b" in r.stderr, r.stderr[:300])
    copy = shutil.copy(STORIES, os.path.join(tmp, "a\x1b[2J\u202eb.gguf"))
    out, _ = run("show", copy)
    check(b"\x1b" not in out and "\u202e".encode() not in out, out[:100])
    _, err = run("show", copy + "\u202e", code=1)
    check("\x1b" not in err and "\u202e" not in err, err)


@test
def nonblocking_descriptors(tmp):
    """A full or empty pipe in non-blocking mode is waited for."""
    # Output. The reader starts late.
    for command in ("run", "-q", "-n", "300", "--ignore-eos", "--seed", "1", "Once"), ("rope", "--positions", "3000"), \
            ("logits", "--ids", "1 " * 30, "-o", "-"):
        expected, _ = run(*command)

        r, w = os.pipe()
        os.set_blocking(w, False)
        p = subprocess.Popen([PROGRAM, *command], stdout=w, stderr=subprocess.PIPE)
        os.close(w)
        time.sleep(0.2)

        data = b""
        while True:
            piece = os.read(r, 1000)
            data += piece
            if not piece:
                break

        os.close(r)
        err = p.communicate()[1]
        same(p.returncode, 0, err)
        check(data == expected, command, len(data), len(expected))

    # Input. The writer starts late.
    for args in ("run", "-q", "-n", "2"), ("tokenize", "--jsonl"), ("batch", "-q", "-n", "2", "--lines", "-o", "-"), \
            ("chat", "-q", "-n", "2"):
        r, w = os.pipe()
        os.set_blocking(r, False)
        p = subprocess.Popen([PROGRAM, *args], stdin=r, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(r)
        time.sleep(0.1)

        os.write(w, b'"Once"\n')
        os.close(w)

        out, err = p.communicate()
        check(p.returncode == 0 and out, args, p.returncode, err)


@test
def unreadable_stdin(tmp):
    """A read error is reported, and not mistaken for the end of the input."""
    for command in "run", "chat", "batch", "tokenize":
        directory = os.open(tmp, os.O_RDONLY)
        r = subprocess.run([PROGRAM, command], stdin=directory, capture_output=True)
        os.close(directory)
        check(r.returncode == 1 and b"Is a directory" in r.stderr, command, r)


@test
def interrupts_are_130(tmp):
    """Every command ends within 0.2 s of Ctrl-C (tested with 1 s, for busy machines)."""
    fifo = os.path.join(tmp, "fifo")
    os.mkfifo(fifo)
    ids = "@" + write(os.path.join(tmp, "ids"), b"1 " * 500)
    long = write(os.path.join(tmp, "long"), b"Once upon a time there was a dog. " * 6000)  # one pass of minutes

    for args in (("rope", "--positions", "100000000"), ("logits", "-b", "1", "-t", "1", "--ids", ids, "-o", os.path.join(tmp, "l")),
                 ("run", "-t", "1", "-b", "60000", "-c", "70000", "-f", long),
                 ("run", "-t", "1", "-N", "3", "-b", "30000", "-c", "70000", "-f", long),
                 ("bench", "-n", "1000", "--tests", "d64"), ("run", "-f", fifo), ("tokenize", "-f", fifo),
                 ("run", "-n", "100000", "--ignore-eos", "-c", "200000", "Once"), ("batch", "-i", fifo), ("chat",),
                 ("score", "--perplexity", fifo)):

        p = subprocess.Popen([PROGRAM, *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.15)

        start = time.time()
        p.send_signal(signal.SIGINT)
        code = p.wait(10)
        p.stdin.close()

        if args[0] != "logits" or code:
            same(code, 130, args)
        check(time.time() - start < 1, args, time.time() - start)

    if not os.path.exists(os.path.join(tmp, "l")):
        holds_only(tmp, "fifo", "ids", "long")


@test
def small_stacks(tmp):
    for args in ("run", "-q", "-n", "4", "Once"), ("logits", "--ids", "1 " * 100, "-o", "/dev/null"):
        run(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (320 << 10, 320 << 10)))
        for kib in 64, 128, 319:  # in 16 KiB, the dynamic linker may already fail
            refuses(1, "expected a stack of 320 KiB or more (ulimit -s)", *args,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (kib << 10, kib << 10)))


@test
def little_memory(tmp):
    """With a limited address space, the program exits with 1 and a message, never by a signal."""
    codes = set()
    for mib in some(range(10, 60, 2)):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        if subprocess.run([PROGRAM, "--version"], capture_output=True, preexec_fn=limit).returncode:
            continue  # too little to load the program
        r = subprocess.run([PROGRAM, "run", "-q", "-n", "3", "-t", "1", "hi"], capture_output=True, preexec_fn=limit)
        check(r.returncode in (0, 1, 127) and (r.returncode == 0 or r.stderr), mib, r.returncode, r.stderr)
        codes.add(r.returncode)
    check(1 in codes, codes)


@test
def closed_descriptors(tmp):
    """An output file never becomes descriptor 0, 1 or 2; a closed stdout is an error."""
    out, expected = os.path.join(tmp, "l"), run("logits", "--ids", "1 2", "-o", "-")[0]
    for closed in (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2):
        p = subprocess.Popen([PROGRAM, "logits", "--ids", "1 2", "-o", out], preexec_fn=lambda: [os.close(fd) for fd in closed])
        same((p.wait(), read(out)), (0, expected), closed)
    p = subprocess.Popen([PROGRAM, "run", "-n", "2", "Once"], stderr=subprocess.DEVNULL, preexec_fn=lambda: os.close(1))
    same(p.wait(), 1)


@test
def closed_pipe(tmp):
    """A reader that stops early is not an error."""
    for args in ("run", "-q", "-n", "2000", "-c", "4000", "--ignore-eos", "Once"), ("rope", "--positions", "100000"), \
            ("logits", "--ids", "1 " * 200, "-o", "-"):
        p = subprocess.Popen([PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.read(10)
        p.stdout.close()
        err = p.stderr.read()
        p.stderr.close()
        same((p.wait(), err), (0, b""), args)


@test
def sandboxed(tmp):
    """run enters the sandbox, unless --no-sandbox is given (tests/test_sandbox.c tests its rules)."""
    def mode(*args):
        p = subprocess.Popen([PROGRAM, "run", "-q", "-n", "100000", "-c", "200000", "--ignore-eos", *args, "Once"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        p.stdout.read(10)  # waits until it generates
        with open("/proc/%d/status" % p.pid) as f:
            found = [line.split()[1] for line in f if line.startswith("Seccomp:")]
        p.kill()
        p.wait()
        p.stdout.close()
        return found

    if not os.path.exists("/proc/self/status") or mode() in ([], ["0"]):
        raise Skip("this system has no sandbox")
    same((mode(), mode("--no-sandbox")), (["2"], ["0"]))


@test
def resume_of_another_run(tmp):
    """--resume rejects other options, another seed or model; it keeps a random seed, and retries transient errors."""
    requires("quantize")

    source = write(os.path.join(tmp, "in"), b"".join(b'{"id":%d,"prompt":"Once %d","max_tokens":4}\n' % (i, i) for i in range(4)))
    out = os.path.join(tmp, "out")

    # An unfinished output.
    run("batch", "-q", "-i", source, "-o", out, "--ordered")
    whole = read(out)
    os.truncate(out, whole.index(b"\n") + 1)

    # Other options, another seed, another model.
    for args in ("--temp", "0.1"), ("-s", "77"), ("-m", STORIES, "--raw", "-sys", ""):
        if args[0] == "-m":
            args = "-m", os.path.join(tmp, "other.gguf")
            run("quantize", "-q", STORIES, args[1], "Q4_0")
        _, err = run("batch", "-q", "-i", source, "-o", out, "--resume", *args, code=2)
        check("started with other options" in err, err)

    # The same options. The seed is that of the first run.
    run("batch", "-q", "-i", source, "-o", out, "--ordered", "--resume")
    same(read(out), whole)

    # A record that failed for lack of memory is answered.
    lines = whole.splitlines(True)
    lines[2] = b'{"id":2,"line":3,"error":{"code":"out_of_memory","message":"line 3: short"}}\n'
    with open(out, "wb") as f:
        f.write(b"".join(lines))

    run("batch", "-q", "-i", source, "-o", out, "--resume")
    same(sorted(read(out).splitlines(True)), sorted(whole.splitlines(True)))


if __name__ == "__main__":
    main("files")
