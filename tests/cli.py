"""Shared by the Python tests: the program, a small model, checks, and the test runner.

A test is a function decorated with @test. Its parameters request fixtures: `cli`, the program with a small model, or
`tmp`, a temporary directory. main() prints "ok NAME", "FAIL NAME: message" or "skip NAME: reason" per test. Command-line
arguments select tests by substring of the name."""
import contextlib
import functools
import inspect
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.environ.get("LLAMA31_DATA") or os.path.join(ROOT, "..", "shared", "data")
PROGRAM = os.path.join(ROOT, os.environ.get("BUILD", "build"), "llama31")
SCRIPTS = os.path.join(ROOT, "scripts")
GOLDEN = os.path.join(ROOT, "tests", "golden")
TESTS = []
sys.dont_write_bytecode = True
os.environ.pop("LLAMA31_MODEL", None)  # tests name their model
signal.signal(signal.SIGINT, signal.default_int_handler)  # the program would keep an inherited SIG_IGN


class Skip(Exception):
    """The reason why a test cannot run here."""


@functools.lru_cache(None)
def missing_modules():
    """The optional modules that the program was built without."""
    version = subprocess.run([PROGRAM, "--version", "-v"], capture_output=True, text=True).stdout
    found = re.search(r"^without: (.*)", version, re.M)
    return set(found[1].split()) if found else set()


def requires(*modules):
    """Skips the test if the program was built without one of these optional modules."""
    missing = set(modules) & missing_modules() if modules else ()
    if missing:
        raise Skip("built without " + " ".join(sorted(missing)))


def test(f):
    TESTS.append(f)
    return f


def slow(f):
    """Leaves the test to .ci/run, which sets LLAMA31_CI."""
    f.is_slow = True
    return f


def in_ci(more, fewer):
    """`more` in .ci/run, which sets LLAMA31_CI, otherwise `fewer`: the sizes of a test."""
    return more if os.environ.get("LLAMA31_CI") else fewer


def some(cases, part=3):
    """All of many similar cases in .ci/run, otherwise one in `part`."""
    return cases[::in_ci(1, part)]


def check(condition, *why):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in why) or "condition")


def same(found, expected, what=""):
    check(found == expected, what, "expected", repr(expected)[:300], "found", repr(found)[:300])


def call(*args, code=0, stdin=b"", **options):
    """Runs the program, checks its exit code (or that it is one of a tuple) and returns (stdout, stderr)."""
    r = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, timeout=120, **options)
    check(r.returncode in (code if isinstance(code, tuple) else (code,)), args, "exit", r.returncode, "expected", code,
          r.stderr.decode()[-300:])
    return r.stdout, r.stderr.decode()


def matches(text, pattern):
    """True if the text contains all parts of the pattern, which " ... " separates, in this order."""
    return re.search(".*".join(map(re.escape, pattern.split(" ... "))), text, re.S) is not None


def refuses(code, message, *args, **options):
    """Runs the program, which must fail with this exit code, an empty stdout and one line on stderr that matches."""
    out, err = call(*args, code=code, **options)
    check(message, args, "no message to expect")
    check(out == b"" and err.startswith("llama31: ") and err.endswith("\n") and err.count("\n") == 1, args, out, err)
    check(matches(err, message), args, "expected", repr(message), "found", err)
    return err


def export_here(source, out, *args):
    """Runs scripts/export.py without a process of its own, which would take most of the time."""
    if SCRIPTS not in sys.path:
        sys.path.insert(0, SCRIPTS)
    import export
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        status = export.main([source, "-o", out, *args])
    same(status, 0, err.getvalue())


class Cli:
    """The program with a small model."""

    def __init__(self, tmp):
        self.tmp = tmp
        self.model = None  # the built-in one
        self.path = os.path.join(tmp, "stories260K.gguf")
        source = os.path.join(DATA, "stories260K", "stories260K.bin")
        if os.path.exists(source):
            export_here(source, self.path)
            self.model = self.path
        elif subprocess.run([PROGRAM, "show"], capture_output=True).returncode:
            raise Skip("no built-in model and no stories260K.bin")

    def command(self, command, *args):
        # one thread by default: the model is tiny and the machine may be busy
        return [PROGRAM, command, "-t", "1"] + (["-m", self.model] if self.model else []) + [str(a) for a in args]

    def run(self, command, *args, **options):
        return call(*self.command(command, *args)[1:], **options)

    def refuses(self, code, message, command, *args, **options):
        return refuses(code, message, *self.command(command, *args)[1:], **options)

    def path_of(self, name):
        return os.path.join(self.tmp, name)

    def write(self, name, lines):
        """Writes a file of lines: str, bytes, or anything else as JSON."""
        with open(self.path_of(name), "wb") as f:
            for line in lines:
                if not isinstance(line, (str, bytes)):
                    line = json.dumps(line)
                f.write((line.encode() if isinstance(line, str) else line) + b"\n")
        return self.path_of(name)


def change_byte(path, back):
    """Changes the byte `back` bytes before the end of a file in place, and restores the modification time."""
    st = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(-back, os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-back, os.SEEK_END)
        f.write(bytes([byte ^ 1]))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    same(os.stat(path).st_mtime_ns, st.st_mtime_ns)


def read(path):
    """The bytes of a file."""
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    """Writes the bytes of a file; returns its path."""
    with open(path, "wb") as f:
        f.write(data)
    return path


def read_lines(path):
    """The objects of a file of JSON lines; the last line must be complete."""
    data = read(path)
    check(data == b"" or data.endswith(b"\n"), path, "ends in the middle of a line")
    return [json.loads(line) for line in data.splitlines()]


def run_batch(cli, requests, *args, code=0):
    """{id: result} of a batch of requests, without the identity of the run."""
    path, out = cli.write("in.jsonl", requests), cli.path_of("out%d.jsonl" % len(os.listdir(cli.tmp)))
    cli.run("batch", "-i", path, "-o", out, "-q", *args, code=code)
    lines = read_lines(out)
    lines[0].pop("run", None)  # the first result has the identity of the run, too
    return {line["id"]: line for line in lines}


def main(suite, *modules):
    """Runs the tests of one file, each in a temporary directory of its own, if the program has these modules."""
    tmp = tempfile.mkdtemp(prefix="llama31-test-")
    cli = None

    for f in TESTS:
        name = suite + "_" + f.__name__
        if sys.argv[1:] and not any(a in name for a in sys.argv[1:]):
            continue

        folder = os.path.join(tmp, f.__name__)
        os.mkdir(folder)

        needs = inspect.signature(f).parameters
        try:
            if hasattr(f, "is_slow") and not in_ci(True, False):
                raise Skip("slow; LLAMA31_CI=1 runs it")
            requires(*modules)
            if "cli" in needs:
                cli = cli or Cli(tmp)
                cli.tmp = folder
            f(*[{"cli": cli, "tmp": folder}[n] for n in needs if n in ("cli", "tmp")])
        except Skip as e:
            print("skip %s: %s" % (name, e))
        except Exception as e:  # the other tests still run
            lines = [str(line) for frame, line in traceback.walk_tb(e.__traceback__)
                     if os.path.basename(frame.f_code.co_filename).startswith("test_")]
            what = " ".join(str(e).split())[:1500] or type(e).__name__
            print("FAIL %s: lines %s: %s" % (name, " ".join(lines), what))
        else:
            print("ok " + name)

        shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.flush()

    shutil.rmtree(tmp, ignore_errors=True)
