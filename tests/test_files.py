"""What is written: nothing lost, nothing replaced unasked, nothing left behind."""
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from cli import PROGRAM, ROOT, SCRIPTS, Skip, check, main, read_lines, same, test

STORIES = os.path.join(ROOT, "models", "stories.gguf")
TURN = b'{"role":"user","content":"hi"}\n'


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def run(*args, stdin=b"", code=0, **options):
    r = subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, timeout=60, **options)
    err = r.stderr.decode("utf-8", "replace")
    check(r.returncode == code, args, "exit", r.returncode, "expected", code, err[-300:])
    return r.stdout, err


def chat(*args, stdin=b"Hello\n", code=0, **options):
    return run("chat", "-q", "-t", 1, "-n", 2, *args, stdin=stdin, code=code, **options)


def only(folder, *names):
    same(sorted(os.listdir(folder)), sorted(names), "left behind in " + folder)


@test
def session_of_another_kind(tmp):
    """A file that is no transcript is refused and kept, with a newline at its end or without."""
    for text in b"notes", b"notes\n", b'{"a":1}', TURN + b"notes", b"{role}\n":
        path = write(os.path.join(tmp, "n"), text)
        _, err = chat("--session", path, code=1)
        check("line" in err, err)
        same(read(path), text)
    only(tmp, "n")


@test
def session_without_last_newline(tmp):
    path = write(os.path.join(tmp, "s"), TURN[:-1])
    chat("--session", path)
    same([m["role"] for m in read_lines(path)], ["user", "user", "assistant"])
    chat("--session", path)  # and it can be gone on with
    same(len(read_lines(path)), 5)


@test
def session_torn(tmp):
    for torn in b'{"role":"us', b'{"ro', b'{"role":"user","content":"x':
        path = write(os.path.join(tmp, "s"), TURN + torn)
        chat("--session", path)
        same([m["role"] for m in read_lines(path)], ["user", "user", "assistant"], torn)


@test
def session_disk_full(tmp):
    """A limit on the file's size stands for a full disk: whole lines, and exit 1."""
    path = os.path.join(tmp, "s")
    for limit in range(1, 100, 7):
        write(path, b"")
        _, err = chat("--session", path, stdin=b"Hello\nAgain\n", code=1,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        check("File too large" in err, err)
        for message in read_lines(path):
            check(message["role"] in ("user", "assistant"))
    only(tmp, "s")


@test
def session_that_cannot_be_written(tmp):
    chat("--session", os.path.join(tmp, "absent", "s"), code=1)
    chat("--session", tmp, code=1)
    chat("--session", "/dev/null", code=1)


@test
def session_lock(tmp):
    """Two chats on one session: the second is refused, also after the first has replaced the file."""
    path = os.path.join(tmp, "s")
    first = subprocess.Popen([PROGRAM, "chat", "-q", "-n", "2", "--json", "--session", path], stdin=subprocess.PIPE,
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
    only(tmp, "s")


@test
def links_are_followed(tmp):
    """A link stays a link, and what it points to is what is written."""
    os.mkdir(os.path.join(tmp, "d"))
    link, real = os.path.join(tmp, "link"), os.path.join(tmp, "d", "real")
    for target, again in ((real, False), ("d/real", True)):
        os.symlink(target, link)
        chat("--session", link, stdin=b"Hello\n/undo\nAgain\n")
        check(os.path.islink(link) and not os.path.islink(real))
        same(len(read_lines(real)), 2)
        os.remove(real)
        run("quantize", "-q", STORIES, link, "Q4_0")  # nothing is there yet
        run("quantize", "-q", "--force", STORIES, link, "Q8_0")
        check(os.path.islink(link) and os.path.getsize(real) > 1000)
        os.remove(real)
        os.remove(link)
    only(os.path.join(tmp, "d"))


@test
def nothing_is_replaced_unasked(tmp):
    path = write(os.path.join(tmp, "old"), b"precious\n")
    ids = write(os.path.join(tmp, "ids"), b"1 2 3\n")
    for args in (("quantize", STORIES, path, "Q8_0"), ("logits", "--ids", "1", "-o", path),
                 ("logits", "--ids", "@" + ids, "-o", ids), ("logits", "--force", "--ids", "@" + ids, "-o", ids)):
        before = read(args[-1]) if args[0] == "logits" else read(path)
        run(*args, code=2)
        same(read(path), b"precious\n")
        same(read(ids), b"1 2 3\n")
    _, err = chat(stdin=b"Hello\n/save " + path.encode() + b"\n")
    check("--force" in err, err)
    same(read(path), b"precious\n")
    chat(stdin=b"Hello\n/save --force " + path.encode() + b"\n")
    same(len(read_lines(path)), 2)
    run("logits", "--force", "--ids", "1", "-o", path)
    run("logits", "--ids", "1", "-o", path)  # logits may go
    os.chmod(path, 0o640)
    run("quantize", "-q", "--force", STORIES, path, "Q8_0")
    run("quantize", "-q", STORIES, path, "Q8_0", code=2)  # its own file may have cost hours
    same(stat.S_IMODE(os.stat(path).st_mode), 0o640)
    only(tmp, "old", "ids")


@test
def save_goes_on(tmp):
    """What holds a beginning of the dialogue is replaced: nothing is lost. The session's own file is not."""
    path, session = os.path.join(tmp, "saved"), os.path.join(tmp, "s")
    line = b"/save " + path.encode() + b"\n"
    _, err = chat("--session", session, stdin=b"Hello\n" + line + b"Again\n" + line + b"/save " + session.encode() +
                  b"\nMore\n")
    check("same file" in err, err)
    same(len(read_lines(path)), 4)
    same(len(read_lines(session)), 6)
    _, err = chat(stdin=b"Something else\n" + line)
    check("exists" in err, err)
    same(len(read_lines(path)), 4)


@test
def inputs_stay(tmp):
    """Nothing is written over what the run reads."""
    model = shutil.copy(STORIES, os.path.join(tmp, "m.gguf"))
    os.link(model, os.path.join(tmp, "hard.gguf"))
    os.symlink("m.gguf", os.path.join(tmp, "soft.gguf"))
    before = read(model)
    for name in "m.gguf", "hard.gguf", "soft.gguf":
        out = os.path.join(tmp, name)
        run("logits", "-m", model, "--force", "--ids", "1", "-o", out, code=2)
        run("quantize", "--force", model, out, "Q8_0", code=2)
        _, err = chat("-m", model, stdin=b"Hello\n/save --force " + out.encode() + b"\n")
        check("same file" in err, err)
    run("batch", "-m", model, "-i", "/dev/null", "-o", model, "--resume", code=1)
    same(read(model), before)
    only(tmp, "m.gguf", "hard.gguf", "soft.gguf")


@test
def devices_stay(tmp):
    try:
        os.mknod(os.path.join(tmp, "full"), stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except OSError as e:
        raise Skip("mknod: %s" % e.strerror)
    full = os.path.join(tmp, "full")
    os.mkfifo(os.path.join(tmp, "fifo"))
    for path in full, os.path.join(tmp, "fifo"), tmp:
        _, err = chat(stdin=b"Hello\n/save --force " + path.encode() + b"\n")
        check("expected a file" in err, err)
    run("quantize", "-q", "--force", STORIES, full, "Q8_0", code=1)
    run("logits", "--force", "--ids", "1", "-o", full, code=1)
    check(stat.S_ISCHR(os.stat(full).st_mode))
    only(tmp, "full", "fifo")


@test
def batch_output_of_another_kind(tmp):
    source = write(os.path.join(tmp, "in"), b'{"id":1,"prompt":"a","max_tokens":2}\n')
    for text in b"notes", b'{"id":1,"text":"a"}\nnotes', b'{"a', b"\xef\xbb\xbfnotes":
        out = write(os.path.join(tmp, "out"), text)
        run("batch", "-q", "-i", source, "-o", out, "--resume", code=1)
        same(read(out), text)
    only(tmp, "in", "out")


@test
def signals_leave_nothing(tmp):
    """Every signal that ends the program removes what it has begun."""
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
                only(tmp, "in.gguf", "ids")
            if os.path.exists(out):
                os.remove(out)


@test
def failed_writes_leave_nothing(tmp):
    """A file size limit at every stage of logits and quantize: exit 1, no part of a file."""
    for limit in 0, 1, 4096, 100000:
        for args in ("logits", "--ids", "1 2 3 4 5 6 7 8"), ("quantize", "-q", STORIES, os.path.join(tmp, "q"), "Q8_0"):
            args += ("-o", os.path.join(tmp, "l")) if args[0] == "logits" else ()
            r = subprocess.run([PROGRAM, *args], capture_output=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            if r.returncode:
                same((r.returncode, "File too large" in r.stderr.decode()), (1, True), r.stderr)
                only(tmp)
            for name in os.listdir(tmp):
                os.remove(os.path.join(tmp, name))


@test
def checksums(tmp):
    """What quantize and export.py store, show --verify finds again; a flipped bit it does not."""
    out, copy = os.path.join(tmp, "q.gguf"), os.path.join(tmp, "flipped.gguf")
    run("quantize", "-q", STORIES, out, "Q4_0")
    made = os.path.join(tmp, "e.gguf")
    small = os.path.join(ROOT, "tests", "golden", "small31")
    subprocess.run([sys.executable, os.path.join(SCRIPTS, "export.py"), small, "-o", made], check=True, capture_output=True)
    for path in out, made:
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
def weights_that_are_no_numbers(tmp):
    out, bad = os.path.join(tmp, "f.gguf"), os.path.join(tmp, "bad.gguf")
    run("quantize", "-q", STORIES, out, "F32")
    data = bytearray(read(out))
    data[-8:-4] = b"\0\0\xc0\x7f"
    write(bad, data)
    _, err = run("show", bad, "--check", code=3)
    check("row" in err and "infinite" in err, err)
    _, err = run("logits", "-m", bad, "--ids", "1,2", "-o", os.path.join(tmp, "l"), code=1)
    check("NaN" in err, err)
    only(tmp, "f.gguf", "bad.gguf")


@test
def model_cut_while_in_use(tmp):
    """Inside its last page no signal tells: what is read there is zero."""
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
def names_do_not_drive_the_terminal(tmp):
    """Tensors' names and files' are escaped, also what turns the direction of text."""
    evil = b"\x1b]52;c;aGk=\x07"
    data = read(STORIES).replace(b"blk.0.ffn_down.weight", (evil + b"x" * 21)[:21])
    model = write(os.path.join(tmp, "m.gguf"), data)
    r = subprocess.run([PROGRAM, "quantize", "-v", model, os.path.join(tmp, "q"), "Q4_0"], capture_output=True)
    check(b"\x1b" not in r.stderr and b"\\x1b" in r.stderr, r.stderr[:300])
    odd = shutil.copy(STORIES, os.path.join(tmp, "a\x1b[2J\u202eb.gguf"))
    out, _ = run("show", odd)
    check(b"\x1b" not in out and "\u202e".encode() not in out, out[:100])
    _, err = run("show", odd + "\u202e", code=1)
    check("\x1b" not in err and "\u202e" not in err, err)


@test
def descriptors_that_would_block(tmp):
    """Neither a full pipe nor an empty one is an error or the end."""
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
def input_that_cannot_be_read(tmp):
    """A read that fails is not the end of the input."""
    for command in "run", "chat", "batch", "tokenize":
        folder = os.open(tmp, os.O_RDONLY)
        r = subprocess.run([PROGRAM, command], stdin=folder, capture_output=True)
        os.close(folder)
        check(r.returncode == 1 and b"Is a directory" in r.stderr, command, r)


@test
def interrupts_are_130(tmp):
    """Every command ends on Ctrl-C within 0.2 s (here five times that: the machine may be busy)."""
    fifo = os.path.join(tmp, "fifo")
    os.mkfifo(fifo)
    ids = "@" + write(os.path.join(tmp, "ids"), b"1 " * 500)
    long = write(os.path.join(tmp, "long"), b"Once upon a time there was a dog. " * 6000)  # one forward of minutes
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
    only(tmp, "fifo", "ids", "long") if not os.path.exists(os.path.join(tmp, "l")) else None


@test
def small_stacks(tmp):
    for args in ("run", "-q", "-n", "4", "Once"), ("logits", "--ids", "1 " * 100, "-o", "/dev/null"):
        run(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (320 << 10, 320 << 10)))


@test
def little_memory(tmp):
    """The address space ends somewhere: a line and exit 1, never a signal."""
    codes = set()
    for mib in range(10, 60, 2):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
        if subprocess.run([PROGRAM, "--version"], capture_output=True, preexec_fn=limit).returncode:
            continue  # not even loaded
        r = subprocess.run([PROGRAM, "run", "-q", "-n", "3", "-t", "1", "hi"], capture_output=True, preexec_fn=limit)
        check(r.returncode in (0, 1, 127) and (r.returncode == 0 or r.stderr), mib, r.returncode, r.stderr)
        codes.add(r.returncode)
    check(1 in codes, codes)


@test
def closed_descriptors(tmp):
    """A result file never becomes stdin, stdout or stderr; output that has nowhere to go is an error."""
    out, expected = os.path.join(tmp, "l"), run("logits", "--ids", "1 2", "-o", "-")[0]
    for closed in (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2):
        p = subprocess.Popen([PROGRAM, "logits", "--ids", "1 2", "-o", out], preexec_fn=lambda: [os.close(fd) for fd in closed])
        same((p.wait(), read(out)), (0, expected), closed)
    p = subprocess.Popen([PROGRAM, "run", "-n", "2", "Once"], stderr=subprocess.DEVNULL, preexec_fn=lambda: os.close(1))
    same(p.wait(), 1)


@test
def closed_pipe(tmp):
    """Who has read enough is no error."""
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
    """The commands that only compute give up files, network and programs (tests/test_sandbox.c looks from inside)."""
    def mode(*args):
        p = subprocess.Popen([PROGRAM, "run", "-q", "-n", "100000", "-c", "200000", "--ignore-eos", *args, "Once"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        p.stdout.read(10)  # it is at work
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
    """--resume notices other options, another seed, another model; takes up a drawn seed; tries passing errors again."""
    source = write(os.path.join(tmp, "in"), b"".join(b'{"id":%d,"prompt":"Once %d","max_tokens":4}\n' % (i, i) for i in range(4)))
    out = os.path.join(tmp, "out")
    run("batch", "-q", "-i", source, "-o", out, "--ordered")
    whole = read(out)
    try:
        os.getxattr(out, "user.llama31")
    except (OSError, AttributeError):
        raise Skip("no extended attributes here")
    os.truncate(out, whole.index(b"\n") + 1)
    for args in ("--temp", "0.1"), ("-s", "77"), ("-m", STORIES, "--raw", "-sys", ""):
        if args[0] == "-m":
            args = "-m", os.path.join(tmp, "other.gguf")
            run("quantize", "-q", STORIES, args[1], "Q4_0")
        _, err = run("batch", "-q", "-i", source, "-o", out, "--resume", *args, code=2)
        check("started with another" in err, err)
    run("batch", "-q", "-i", source, "-o", out, "--ordered", "--resume")
    same(read(out), whole)  # with the seed that was drawn for the first run
    lines = whole.splitlines(True)
    lines[2] = b'{"id":2,"line":3,"error":{"code":"out_of_memory","message":"line 3: short"}}\n'
    with open(out, "wb") as f:
        f.write(b"".join(lines))
    run("batch", "-q", "-i", source, "-o", out, "--resume")
    same(sorted(read(out).splitlines(True)), sorted(whole.splitlines(True)))


if __name__ == "__main__":
    main("files")
