"""Output for people: why an answer ended, progress, tables, Markdown, colors, history, completion. Uses the built-in
model, partly on a pseudo-terminal."""
import json
import os
import re
import signal
import struct
import subprocess

from cli import PROGRAM, ROOT, check, in_ci, main, same, some, test
from terminal import Terminal

PROMPT = b"\r\x1b[J> \r\x1b[2C"
ONCE = "Once upon a time"


def environment(tmp, **more):
    return dict({"XDG_STATE_HOME": tmp, "LLAMA31_MODEL": "", "LLAMA31_HISTORY": os.path.join(tmp, "history"), "TERM": "xterm",
                 "NO_COLOR": "1"}, **more)


def call(*args, stdin=b"", code=0):
    r = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, timeout=120)
    check(r.returncode == code, args, r.returncode, r.stderr.decode())
    return r.stdout.decode(), r.stderr.decode()


def run(*args, **options):
    return call("run", "-t", "1", "--seed", "1", *args, **options)


def chat(tmp, *args, rows=24, **more):
    t = Terminal([PROGRAM, "chat", "-t", "1", "--seed", "1", *args], rows, 80, environment(tmp, **more))
    check(t.wait(lambda: t.raw.endswith(PROMPT)), t.text())
    return t


@test
def length_limits(tmp):
    """A note names the limit that ended a completion: -n or the context. No note with -q or after a stop token."""
    check("ended: 3 tokens (-n)\n" in run("-n", "3", ONCE)[1])
    check("ended: 1 token (-n)\n" in run("-n", "1", ONCE)[1])
    for quiet in [], ["-q"]:
        check("warning: 1 text cut: context full (40, -c)\n" in run("-c", "40", "-n", "-1", "--ignore-eos", *quiet, ONCE)[1])
    check("2 texts cut: context full" in run("-c", "40", "-N", "2", "-n", "-1", "--ignore-eos", "--json", "-q", ONCE)[1])
    ask = b'{"prompt":"x","ignore_eos":true}\n{"prompt":"x","max_tokens":2}\n'
    check("warning: 1 answer cut: context full (40, -c)\n" in call("batch", "-t", "1", "-c", "40", "-q", stdin=ask)[1])
    check("ended" not in run("-n", "0", ONCE)[1] + run("-q", "-n", "3", ONCE)[1] + run("-r", "a", "-n", "300", ONCE)[1])
    same(json.loads(run("--json", "-n", "3", ONCE)[0])["finish_reason"], "length")
    check("ended: 3 tokens (-n)\n" in call("chat", "-t", "1", "-n", "3", stdin=b"hello\n")[1])


@test
def repetition(tmp):
    """A loop ends a completion, with a warning that -q keeps, unless --no-loop-stop or --ignore-eos is given. A story is no loop."""
    loop = ["--raw", "-n", "2080", "--logit-bias", "300+99", "-q"]
    ends = "ended in a loop; --no-loop-stop lets it continue"
    for args, n, warning in some((([], 2048, "1 text " + ends), (["--ignore-eos"], 2080, ""), (["--no-loop-stop"], 2080, ""),
                                  (["--min-tokens", "2060"], 2061, ends), (["--no-lookup"], 2048, ends),
                                  (["-N", "3", "--deterministic"], 2048, "3 texts " + ends))):
        out, err = run("--json", *loop, *args, "a")
        answers = json.loads(out).get("choices", [json.loads(out)])
        check(warning in err and err.count("\n") == (warning != ""), args, err)
        for a in answers:
            same((a["n_generated"], a["finish_reason"]), (n, "repetition" if warning else "length"), args)
    same(run("--json", *loop, "-n", "2048", "a")[1].count("ended in a loop"), 1)
    check("loop" not in run("--temp", "0", "-n", "200", ONCE)[1])
    check("1 answer " + ends in call("chat", "-t", "1", *loop[1:], stdin=b"hello\n")[1])


@test
def final_newline(tmp):
    """One final newline of stdin and of -f FILE is removed, except with --keep-newline. A second newline is text."""
    name = os.path.join(tmp, "p")
    with open(name, "wb") as f:
        f.write(ONCE.encode() + b"\r\n")

    def prompt(*args, **options):
        return json.loads(run("--raw", "--temp", "0", "-n", "4", "--json", *args, **options)[0])["n_prompt"]
    n = prompt(ONCE)
    same([prompt(stdin=ONCE.encode() + b"\n"), prompt("-f", name), prompt(stdin=ONCE.encode())], [n, n, n])
    check(prompt("--keep-newline", stdin=ONCE.encode() + b"\n") > n and prompt(stdin=ONCE.encode() + b"\n\n") > n)
    same(call("tokenize", "--count", stdin=b"a\n")[0], call("tokenize", "--count", "a\n")[0], "tokenize keeps the newline")
    sys = [json.loads(run("-sys", "@" + name, "-n", "0", "--json", "x")[0]), json.loads(run("-sys", ONCE, "-n", "0", "--json", "x")[0])]
    same(sys[0]["n_prompt"], sys[1]["n_prompt"])


@test
def prompt_progress(tmp):
    """run shows the progress of a long prompt and erases it; not on a dumb terminal or with -q."""
    name = os.path.join(tmp, "long")
    with open(name, "w") as f:
        f.write("a long story about a dog and a cat\n" * 150)
    argv = [PROGRAM, "run", "-t", "1", "-n", "2", "-f", name, "-b", "128"]
    t = Terminal(argv, 24, 80, environment(tmp))
    same(t.status(60), 0)
    check(b"reading 128 of " in t.raw and b" s left" in t.raw and "reading" not in t.text(), t.text())
    first = [int(n) for n in re.findall(rb"reading (\d+) of \d+ tokens, \d+ s left", t.raw)]
    check(first == sorted(first) and 0 < first[0] < 128, "no movement within the first chunk", first)
    for args, more in ((["-q"], {}), ([], {"TERM": "dumb"})):
        t = Terminal(argv + args, 24, 80, environment(tmp, **more))
        same(t.status(60), 0)
        check(b"reading" not in t.raw and b"\x1b" not in t.raw, t.raw)


@test
def score_progress(tmp):
    """score shows the progress through a long prompt, the windows of a text, or lines, and erases it before the result."""
    name, lines = os.path.join(tmp, "long"), os.path.join(tmp, "long.jsonl")
    with open(name, "w") as f:
        f.write("a long story about a dog and a cat\n" * 400)
    with open(lines, "w") as f:
        f.write('{"text":"a story about a dog and a cat"}\n' * 20)
    for args, progress in ((["--choices", " dog, cat", "-f", name, "-b", "128"], rb"0/1 records, 1 running, \d+ tokens"),
                       (["--perplexity", name, "-c", "64", "--parallel", "2"], rb"reading \d+ of \d+ tokens"),
                       (["--perplexity", lines, "--parallel", "2"], rb"read \d+ tokens, \d+ tok/s")):
        argv = [PROGRAM, "score", "-t", "1"] + args
        t = Terminal(argv, 24, 80, environment(tmp))
        same(t.status(60), 0)
        check(re.search(progress, t.raw) and "read" not in t.text(), args, t.text(), t.raw[-300:])
        shares = [(int(a), int(b)) for a, b in re.findall(rb"reading (\d+) of (\d+)", t.raw)]
        check(shares == sorted(shares) and all(a < b for a, b in shares) and len({b for a, b in shares}) <= 1, shares)
        for more, more_env in in_ci(((["-q"], {}), ([], {"TERM": "dumb"})), ()):
            t = Terminal(argv + more, 24, 80, environment(tmp, **more_env))
            same(t.status(60), 0)
            check(b"read" not in t.raw and b"\x1b" not in t.raw, t.raw)
    with open(name, "a") as f:
        f.write("a long story about a dog and a cat\n" * 20000)
    t = Terminal([PROGRAM, "score", "-t", "1", "--perplexity", name], 24, 80, environment(tmp))
    check(t.wait("reading "), t.text())
    t.send("\x03")
    same(t.status(), 130)
    same(t.column, 0, "column of the shell prompt")


@test
def tables(tmp):
    """bench and show begin with the speed and fit 80 columns; show accepts a memory bandwidth."""
    lines = call("bench", "-t", "1", "-n", "1", "--tests", "p8,d0,b2")[0].splitlines()
    check(re.match(r"decode [\d.]+ tokens/s \(.*\), prefill [\d.]+ tokens/s$", lines[0]), lines)
    check(max(map(len, lines)) <= 80 and "of memory" in "".join(lines), lines)
    # A batch is not compared with the speed of one sequence.
    for test_, first in in_ci((("p8", r"prefill [\d.]+ tokens/s\n"), ("b2", r"\w+ kernels, 1 thread\n")), ()):
        check(re.match(first, call("bench", "-t", "1", "-n", "1", "--tests", test_)[0]), test_)
    lines = call("bench", "-t", "2,1,3", "-n", "1", "--tests", "p8,d0")[0].splitlines()
    rows = [x.split() for x in lines if x.startswith(("prefill  ", "decode  "))]
    same([x for x in lines if " thread" in x and ": memory " in x][1][:10], "1 thread: ")
    same([r[6:8] for r in rows[:2]], [["100", "%"]] * 2, lines)
    check(len(rows) == 6 and max(map(len, lines)) <= 80 and "kernels, 3 threads" in "".join(lines), lines)
    data = json.loads(call("bench", "-t", "2,1", "-n", "1", "--tests", "d0,p8", "--json")[0])
    same([(r["test"], r["n_threads"]) for r in data["results"]], [("decode", 2), ("prefill", 2), ("decode", 1), ("prefill", 1)])
    for r in data["results"]:
        check(r["read_gb_per_sec"] > 0 and r["peak_gflop_per_sec"] > 0, r)
        check(r["joules_per_token"] is None or r["joules_per_token"] >= 0, r)
    for first, r in zip(data["results"], data["results"][2:]):
        check(abs(r["efficiency"] - 2 * r["tokens_per_sec"] / first["tokens_per_sec"]) < 0.01, first, r)
    same((data["machine"]["threads"], data["probe"]["peak_gflop_per_sec"]), (2, data["results"][3]["peak_gflop_per_sec"]))
    for counts in some(("", "0", "x", "1,x", "1,,2", "1025", "2 4", "-1")):
        check("-t: expected numbers from 1 to 1024 like 1,2,4, found " in call("bench", "--threads=" + counts, code=2)[1], counts)
    line = [x for x in call("show", "--bandwidth", "50")[0].splitlines() if x.startswith("decode")][0]
    found = re.search(r"([\d.]+) tokens/s at most: ([\d.]+) ([kMG])B a token, 50.0 GB/s \(--bandwidth\)$", line)
    check(found, line)
    bytes_ = float(found[2]) * {"k": 1e3, "M": 1e6, "G": 1e9}[found[3]]
    check(abs(float(found[1]) * bytes_ / 50e9 - 1) < 0.01, line)
    check("threads       1 (-t)\n" in call("show", "-t", "1", "--bandwidth", "1")[0], "show -t")
    check(re.search(r"threads       \d+ \(performance cores: \d+ of \d+|threads       \d+ \((CPU quota|set by OpenMP)",
                    call("show", "--bandwidth", "1")[0]), "show")
    found = re.search(r"available     [\d.]+ [MGT]B: the weights and (\d+) of 200000000 positions fit", 
                      call("show", "-c", "200000000", "--bandwidth", "1")[0])
    if found:
        check(int(found[1]) < 200000000, found[0])
        err = call("chat", "-c", "200000000", code=1)[1]
        check(re.search(r"200000000 positions need 691 GB of KV cache \(F16\), [\d.]+ [MGT]B are available; use a ", err), err)
    lines = call("show", "--tensors", "--check")[0].splitlines()
    check(any("(measured)" in line for line in lines) and max(map(len, lines)) <= 80, lines)


@test
def stats_line(tmp):
    err = run("-n", "20", ONCE)[1]
    line = err.splitlines()[-1]
    check(line.startswith("prefill ") and " | decode 19 tok " in line and line.endswith("seed 1") and len(line) <= 80, line)
    lines = [run("-v", "-n", "20", *args, ONCE)[1].splitlines()[-1] for args in ([], ["--samplers", "min_p;temperature"])]
    check("GB/s" not in line and "GB/s" in lines[0], line)
    orders = "penalties;dry;temperature;top_k;min_p;top_p", "min_p;temperature"
    check(all(line.endswith(" | seed 1 | " + order) for line, order in zip(lines, orders)), lines)


@test
def long_lines(tmp):
    """chat and run cut no word at the edge, and copied text has no run of blanks. A dumb terminal gets the text as it is."""
    options = ["-t", "1", "--seed", "1", "--temp", "0", "-n", "120", "-q"]
    plain = call("chat", *options, stdin=ONCE.encode() + b"\n")[0]
    check(max(map(len, plain.splitlines())) > 200 and "  " not in plain, plain)
    for command, columns, more in (("chat", 80, []), ("chat", 80, ["--plain"]), ("chat", 33, []), ("chat", 20, []), ("run", 33, [])):
        argv = [PROGRAM, command, *options, *more] + [ONCE] * (command == "run")
        t = Terminal(argv, 60, columns, environment(tmp))
        mark = 0
        if command == "chat":
            check(t.wait(lambda: t.raw.endswith(PROMPT)), t.text())
            mark = len(t.raw)
            t.send(ONCE + "\r")
            check(t.wait(lambda: t.raw[mark:].endswith(PROMPT)), t.text())
            t.close()
        else:
            same(t.status(), 0)
        copied = t.raw[mark:].decode().replace(PROMPT.decode(), "").rpartition("\r\r\n")[2]
        rows = t.text().rpartition("> " + ONCE + "\n")[2].rstrip("\n>").splitlines()
        check("  " not in copied and max(map(len, copied.splitlines())) <= columns, copied)
        same((copied.split(), " ".join(rows).split()), (plain.split(), plain.split()))
    for command in "chat", "run":
        t = Terminal([PROGRAM, command, *options] + [ONCE] * (command == "run"), 24, 80, environment(tmp, TERM="dumb"))
        if command == "chat":
            t.send(ONCE + "\n\x04")
        same(t.status(), 0)
        check(plain.rstrip("\n").replace("\n", "\r\n").encode() in t.raw, t.raw)


def model_that_says(tmp, piece):
    """(model file, options): the built-in model with a token whose text is `piece` and which it always predicts."""
    name = b"<|finetune_right_pad_id|>"
    piece = piece.encode().ljust(len(name), b".")
    with open(os.path.join(ROOT, "stories", "stories.gguf"), "rb") as f:
        model = bytearray(f.read().replace(name, piece))
    token = int(call("tokenize", "--special", "--ids", name.decode())[0].split()[-1])
    types = model.index(b"tokenizer.ggml.token_type") + 25 + 4 + 4 + 8
    struct.pack_into("<i", model, types + 4 * token, 4)  # a user-defined token
    path = os.path.join(tmp, "says.gguf")
    with open(path, "wb") as f:
        f.write(model)
    return ["-m", path, "--temp", "0", "--logit-bias", "%d+99" % token, "-n", "2", "-q"]


@test
def reasoning_tags(tmp):
    """The first </think> ends the reasoning, and --reasoning on reads tags with any template. A missing answer is a warning."""
    template = os.path.join(tmp, "plain.jinja")
    with open(template, "w") as f:
        f.write("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    for piece, reasoning, text in (("<think>a</think>b", "a", "b"), ("<think>a</think></think>", "a", "</think>"), ("<think></think>x", "", "x"),
                                   ("<think><think>a</think>b", "<think>a", "b"), ("x<think>a</think>", None, "x<think>a</think>")):
        options = ["run", *model_that_says(tmp, piece), "-n", "1", "--template", template, "hi"]
        answer = json.loads(call(*options, "--json", "--reasoning", "on")[0])
        same((answer.get("reasoning_content"), answer["text"].strip(".")), (reasoning, text), piece)
        same(call(*options, "--reasoning", "on")[0].strip(".\n"), text, piece)
        same(call(*options)[0].strip(".\n"), piece)
    options = ["--reasoning", "on", *model_that_says(tmp, "<think>a"), "--template", template]
    for end, says in (["-n", "3"], ""), (["-n", "-1", "-c", "40"], "cut: context full (40, -c)"):
        out, err = call("run", *options, *end, "hi")
        check(out == "\n" and "warning: 1 text cut within the reasoning, so without an answer" in err and says in err, end, out, err)
        out, err = call("chat", "-t", "1", *options, *end, stdin=b"hi\n")
        check(out == "\n" and "so without an answer" in err and says in err, end, out, err)


@test
def markdown(tmp):
    """chat styles Markdown on a terminal and keeps its characters; not with --plain, NO_COLOR or in a pipe."""
    piece = "# T\n**b** `c`\n```\n**x**\n\x1b"
    options = model_that_says(tmp, piece)
    same(call("chat", "-t", "1", *options, stdin=b"x\n")[0], piece * 2 + "\n")
    bold, code, end = b"\x1b[0;1m", b"\x1b[0;36m", b"\x1b[0m"
    first = bold + b"# T" + end + b"\n" + bold + b"**b**" + end + b" " + code + b"`c`" + end + b"\n" + code + b"```\n**x**\n"
    second = b"\\x1b# T\n**b** `c`\n```" + end + b"\n" + bold + b"**x**" + end + b"\n\\x1b\n"
    for args, value, shown in (([], "", first + second), (["--plain"], "", None), ([], "1", None)):
        t = chat(tmp, *options, *args, NO_COLOR=value)
        mark = len(t.raw)
        t.send("x\r")
        check(t.wait(lambda: t.raw[mark:].endswith(PROMPT)), t.text())
        answer = shown or (piece * 2 + "\n").replace("\x1b", "\\x1b").encode()
        check(answer.replace(b"\n", b"\r\n") in t.raw[mark:], args, value, t.raw[mark:])
        t.close()


@test
def dumb_terminal(tmp):
    """With TERM=dumb, chat writes no escape sequences; Ctrl-D ends it."""
    t = Terminal([PROGRAM, "chat", "-t", "1", "-n", "8"], 24, 80, environment(tmp, TERM="dumb", NO_COLOR=""))
    check(t.wait("/help lists the commands.\n>"), t.text())
    t.send("Once\n")
    check(t.wait("ended: 8 tokens"), t.text())
    t.send("/set temp 0\n\x04")
    same(t.status(), 0)
    check(b"\x1b" not in t.raw, t.raw)


@test
def no_color(tmp):
    """NO_COLOR removes the colors and nothing else. An empty value has no effect."""
    styles, screens = re.compile(rb"\x1b\[[0-9;]*m"), {}
    for value in "1", "":
        t = chat(tmp, "--temp", "0", "-n", "6", **{"LLAMA31_HISTORY": "", "NO_COLOR": value})
        for line in "Once", "/nothing", "/set temp 1":
            mark = len(t.raw)
            t.send(line + "\r")
            check(t.wait(lambda: t.raw[mark:].endswith(PROMPT)), t.text())
        t.send("\x04")
        same(t.status(), 0)
        screen = re.sub(r"(\d+(\.\d+)? (tok/s|GB/s|ms|s)\b|seed \d+)", "N", t.text())
        screens[value] = screen, styles.findall(t.raw)
    same(screens["1"][1], [])
    check(b"\x1b[2m" in screens[""][1], "no colors")
    same(screens[""][0], screens["1"][0])


@test
def history_and_search(tmp):
    """LLAMA31_HISTORY names the history file. An empty value or --no-history disables it. Ctrl-R searches, Ctrl-G cancels."""
    history = os.path.join(tmp, "history")
    t = chat(tmp, "-n", "1", "-q")
    for text in ("the red dog", "a blue cat", "the red bird"):
        mark = len(t.raw)
        t.send(text + "\r")
        check(t.wait(lambda: t.raw[mark:].endswith(PROMPT)), t.text())
    t.send("draft\x12red")
    check(t.wait('search "red": the red bird'), t.text())
    t.send("\x12")
    check(t.wait('search "red": the red dog'), t.text())
    t.send("zz")
    check(t.wait('search "redzz" (none)'), t.text())
    t.send("\x07")
    check(t.wait("\n> draft"), t.text())
    mark = len(t.raw)
    t.send("\x15\x12blu\r")
    check(t.wait(lambda: t.text().count("> a blue cat") == 2 and t.raw[mark:].endswith(PROMPT)), t.text())
    t.close()
    with open(history) as f:
        same(f.read().splitlines(), ["the red dog", "a blue cat", "the red bird", "a blue cat"])
    for args, more in ((["--no-history"], {}), ([], {"LLAMA31_HISTORY": ""})):
        size = os.path.getsize(history)
        t = chat(tmp, "-n", "1", *args, **more)
        t.send("secret\r\x04")
        t.status()
        same(os.path.getsize(history), size)
        check(not os.path.exists(os.path.join(tmp, "llama31")), "a history in the state directory")


@test
def unusable_history(tmp):
    """A history that is a pipe, a device or cannot be opened is refused. /dev/null keeps none."""
    os.mkfifo(os.path.join(tmp, "fifo"))
    os.symlink("loop", os.path.join(tmp, "loop"))
    for path, says in (("fifo", "a file, found a pipe"), ("/dev/zero", "a file, found a device"), (".", "a file, found a directory"),
                       ("loop", "symbolic links"), ("none/history", "No such file")):
        path = os.path.join(tmp, path)
        t = Terminal([PROGRAM, "chat", "-t", "1"], 24, 80, environment(tmp, LLAMA31_HISTORY=path))
        same(t.status(), 2, path)
        check("LLAMA31_HISTORY: " in t.text() and says in " ".join(t.text().split()), path, t.text())
    t = chat(tmp, LLAMA31_HISTORY="/dev/null")
    t.send("/exit\r")
    same(t.status(), 0)


@test
def completion(tmp):
    """Tab completes commands, options of /set and file names. If there are several completions, it lists them in order."""
    os.mkdir(os.path.join(tmp, "notes"))
    open(os.path.join(tmp, "notes", "first.txt"), "w").close()
    os.mkdir(os.path.join(tmp, "many"))
    for name in "dbeca":
        open(os.path.join(tmp, "many", "x" + name), "w").close()
    t = chat(tmp, HOME=tmp)
    for keys, shown in [("/he\t", "> /help "), ("/s\t", "/save /set /show /stats /system"), ("\x15/set temp\t", "> /set temp"),
                        ("\x15/set pres\t", "> /set presence-penalty "),
                        ("\x15/file %s/no\t" % tmp, "/notes/"), ("fi\t", "/notes/first.txt ")]:
        t.send(keys if keys[0] != "/" else "\x15" + keys)
        check(t.wait(shown.rstrip()), keys, t.text())
    # Names with blanks and quotes, in a home directory. A completed name is read.
    odd = os.path.join(tmp, "it's \"odd\"")
    os.mkdir(odd)
    with open(os.path.join(odd, "b c$.txt"), "w") as f:
        f.write("text")
    for typed, shown in (("~/it\t", "~/it\\'s\\ \\\"odd\\\"/"), ("~/it's\t", "~/it's"), ("~/it\\'s \t", "~/it\\'s \\\"odd\\\"/"),
                         ('"%s/it\'s \t' % tmp, '"%s/it\'s \\"odd\\"/' % tmp), ("'%s/i\t" % tmp, "'%s/it'\\''s \"odd\"/" % tmp)):
        t.send("\x15/file %s" % typed)
        check(t.wait("> /file " + shown), typed, t.text())
        t.send("\t\r")
        says = "a quote is not closed" if shown == "~/it's" else "begins with %s/b c$.txt: " % odd
        check(t.wait(lambda: says in " ".join(t.text().split())), typed, t.text())
        t.send("\x0c")
    t.send("\x15/load %s/many/\t\t" % tmp)
    files = " ".join("%s/many/x%s" % (tmp, c) for c in "abcde")
    check(t.wait(lambda: files.encode() in t.raw), t.raw[-300:])
    t.close()


@test
def edit_and_cancel(tmp):
    """Ctrl-C in /edit keeps question and reply; Enter replaces them."""
    session = os.path.join(tmp, "s.jsonl")
    t = chat(tmp, "-n", "2", "--session", session)
    mark = len(t.raw)
    t.send("first question\r")
    check(t.wait(lambda: t.raw[mark:].endswith(PROMPT)), t.text())
    t.send("/edit\r")
    check(t.wait(lambda: t.text().endswith("> /edit\n> first question")), t.text())
    with open(session) as f:
        before = f.read()
    t.send("xyz\x03")
    check(t.wait("(not changed)"), t.text())
    with open(session) as f:
        same(f.read(), before)
    t.send("/edit\r")
    check(t.wait(lambda: t.text().endswith("> /edit\n> first question")), t.text())
    t.send(" two\r")
    check(t.wait(lambda: t.raw.endswith(PROMPT) and "question two" in t.text()), t.text())
    t.send("\x04")
    same(t.status(), 0)
    with open(session) as f:
        same([json.loads(line)["content"] for line in f][0], "first question two")


@test
def lines_of_a_terminal(tmp):
    t = Terminal([PROGRAM, "tokenize", "--jsonl"], 24, 80, environment(tmp))
    check(t.wait("reading lines of standard input; Ctrl-D ends it"), t.text())
    t.send("{}\n")
    same(t.status(), 1)


@test
def command_feedback(tmp):
    err = call("chat", "--commands", "-t", "1", "-n", "1", stdin=b"hi\n/undo\n/system Be terse.\n/system\n/clear\n/set\n")[1]
    for what in ("(undone: 0 messages left; /redo reverts this)", "(system prompt set)", "(system prompt removed)", "(cleared)", "n-predict 1, ", "top-k 40"):
        check(what in err, what, err)
    check("warning" not in err, err)


@test
def interrupted_batch(tmp):
    """Ctrl-C reports the unfinished answers and suggests --resume. left_sec is null while the remaining time is unknown."""
    name, out = os.path.join(tmp, "in"), os.path.join(tmp, "out")
    with open(name, "w") as f:
        f.write('{"prompt":"Once","max_tokens":4000,"ignore_eos":true,"stop_loops":false}\n' * 8)
    p = subprocess.Popen([PROGRAM, "batch", "-t", "1", "-i", name, "-o", out, "--progress-json", "--parallel", "4"],
                         stderr=subprocess.PIPE, text=True)
    first = json.loads(p.stderr.readline())
    check(first["left_sec"] is None or first["left_sec"] > 0, first)
    p.send_signal(signal.SIGINT)
    err = p.stderr.read()
    same(p.wait(60), 130)
    check("4 unfinished answers" in err and "--resume" in err, err)


@test
def interrupted_terminal(tmp):
    """Ctrl-C of batch on a terminal begins a new line, also with -q."""
    name = os.path.join(tmp, "in")
    with open(name, "w") as f:
        f.write('{"prompt":"Once","max_tokens":4000,"ignore_eos":true,"stop_loops":false}\n' * 8)
    for i, args in enumerate(([], ["-q"])):
        out = os.path.join(tmp, "out%d" % i)
        t = Terminal([PROGRAM, "batch", "-t", "1", "-i", name, "-o", out, "--parallel", "4", *args], 24, 80, environment(tmp))
        check(t.wait(lambda: os.path.exists(out) if args else " left" in t.text()), t.text())
        t.send("\x03")
        same((t.status(), t.column), (130, 0))
        check(t.raw.endswith(b"\n") and (args or "\n0 records" in t.text()), t.raw)


@test
def batch_progress(tmp):
    """batch shows records, running records and tokens on a terminal and erases them; not with -q or on a dumb terminal."""
    source = os.path.join(tmp, "in")
    with open(source, "w") as f:  # the last line without newline counts
        f.write("\n".join('{"id":%d,"prompt":"Once","max_tokens":%d}' % (i, 60 if i % 2 else -1) for i in range(24)))
    argv = [PROGRAM, "batch", "-t", "1", "--parallel", "4", "-n", "60", "-i", source, "-o"]
    t = Terminal(argv + [os.path.join(tmp, "out1")], 24, 80, environment(tmp))
    same(t.status(60), 0)
    shown = re.findall(rb"(\d+)/24 records, (\d) running, (\d+) tokens", t.raw)
    check(shown and all(int(done) < 24 and int(n) <= 4 for done, n, _ in shown), t.raw)
    check("running" not in t.text() and b" left" in t.raw, t.text())
    for i, (args, more) in enumerate(in_ci(((["-q"], {}), ([], {"TERM": "dumb"})), ())):
        t = Terminal(argv + [os.path.join(tmp, "quiet%d" % i)] + args, 24, 80, environment(tmp, **more))
        same(t.status(60), 0)
        check(b"running" not in t.raw and b"\x1b" not in t.raw, t.raw)

if __name__ == "__main__":
    main("interactive")
