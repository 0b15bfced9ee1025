#!/usr/bin/env python3
"""Compares the speed of llama31 and of other programs on this machine, in alternated turns (A B C A B C ...).

    scripts/bench_peers.py -m MODEL --peer "llama.cpp=llama.cpp/build/bin -fa 0,1"
    scripts/bench_peers.py -m MODEL --peer llama.cpp:repack=A/bin --peer llama.cpp:plain=B/bin \\
        --peer "ik_llama.cpp=C/bin -rtr 0,1"

A peer is NAME[:BUILD]=DIRECTORY [FLAGS]. DIRECTORY has llama-bench and, for the tests bN, cN and start, llama-batched-bench
and llama-completion (or llama-cli); or `npm install node-llama-cpp` was run in it. FLAGS are those of llama-bench. Each
combination of values, which are separated by commas, is a variant. In each test the fastest variant of a NAME counts.

Tests, in tokens per second unless noted:
  pN     prefill of N tokens
  dN     decoding of -n tokens at depth N
  bN     decoding with N sequences
  cN     N completions of -n tokens with a common prefix of 1,000 tokens, the prefix included; llama31 as a whole process
  start  seconds of a whole process, from its start to its first token

Prints medians, half ranges, versions and flags. A ratio is the median over the turns of llama31's speed divided by the
other: it depends less on other load than the speeds. After an interrupt the complete turns are printed."""
import lib.interrupt  # noqa: F401
import argparse
import csv
import datetime
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from lib.program import find_program

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
TEST = re.compile(r"p[1-9]\d{0,7}|d(0|[1-9]\d{0,7})|[bc]([2-9]|[1-9]\d{1,2})|start")
N_PREFIX = 1000          # tokens of the common prefix of cN
SWITCHES = ("-rtr",)     # flags with a value in llama-bench only; elsewhere they are given or left out
COMPLETIONS = {"llama-completion": ["-no-cnv"], "llama-cli": []}  # programs that complete a text, and their own options


def fail(status, message):
    print("bench_peers:", message, file=sys.stderr)
    sys.exit(status)


def call(command, with_stderr=False):
    """Returns the standard output. If the program fails, exits with the last line of its standard error."""
    r = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if r.returncode:
        last = (r.stderr.strip().splitlines() or [""])[-1]
        fail(1, "%s: exit status %d: %s" % (os.path.basename(command[0]), r.returncode, last))
    return r.stdout + r.stderr if with_stderr else r.stdout


def described(program, option):
    """All that a program prints about itself, whatever its exit status."""
    return subprocess.run([program, option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace").stdout


def seconds(command):
    begin = time.monotonic()
    call(command)
    return time.monotonic() - begin


def sizes(tests, kind):
    return [int(t[1:]) for t in tests if t[0] == kind and t != "start"]


class Llama31:
    """The program that is compared. measure() returns {test: value}."""
    name = "llama31"

    def __init__(self, options):
        self.program, self.options = options.program, options
        self.version = call([self.program, "--version"]).strip().replace("llama31 ", "")
        shown = json.loads(call([self.program, "show", "--json", "-m", options.model]))
        self.flags, self.n_vocab = shown["kernels"], shown["vocab_size"]

    def write_records(self, count):
        """Writes a batch of prompts that differ in their last token."""
        ids = [300 + i * 7919 % (self.n_vocab - 600) for i in range(N_PREFIX + count)]  # without special tokens
        with open("records.jsonl", "w", encoding="utf-8") as f:
            for i in range(count):
                prompt = ids[:N_PREFIX] + [ids[N_PREFIX + i]]
                f.write(json.dumps({"id": i, "prompt": prompt, "max_tokens": self.options.n}) + "\n")

    @staticmethod
    def lacks(_):
        return None

    def measure(self, tests):
        found, common = {}, ["-m", self.options.model, "-t", str(self.options.threads)]
        speeds = [t for t in tests if t[0] in "pdb"]
        if speeds:
            bench = json.loads(call([self.program, "bench", *common, "-n", str(self.options.n), "--json",
                                     "--tests", ",".join(speeds)]))
            for r in bench["results"]:
                if r["test"] == "prefill":
                    test = "p%d" % r["n_tokens"]
                elif r["batch"] > 1:
                    test = "b%d" % r["batch"]
                else:
                    test = "d%d" % r["depth"]
                found[test] = r["tokens_per_sec"]

        for count in sizes(tests, "c"):
            self.write_records(count)
            command = [self.program, "batch", *common, "-i", "records.jsonl", "-o", "-", "-q", "--parallel", str(count),
                       "--raw", "--temp", "0", "--ignore-eos", "--no-loop-stop"]
            found["c%d" % count] = count * self.options.n / seconds(command)

        if "start" in tests:
            found["start"] = seconds([self.program, "run", *common, "--raw", "--temp", "0", "-n", "1", "-q", "Hello"])
        return found


class Programs:
    """A variant of a peer with llama-bench and its sister programs."""

    def __init__(self, options, name, directory, flags):
        self.options, self.name, self.flags = options, name, " ".join(flags)
        self.bench_flags, self.directory = flags, directory
        self.bench = self.find("llama-bench", directory)
        self.batched = self.find("llama-batched-bench", directory)
        self.completion = next(filter(None, (self.find(p, directory) for p in COMPLETIONS)), None)
        self.has_depth = "--n-depth" in described(self.bench, "--help")
        self.version = self.find_version()

        # A cache for all sequences, which keeps a common prefix once. Other versions have no other cache.
        self.shared_flags = []
        if self.batched and "--kv-unified" in described(self.batched, "--help"):
            self.shared_flags = ["--kv-unified"]

        # The other programs take no value for a switch: "-rtr 1" is "-rtr", and "-rtr 0" is left out.
        self.other_flags = []
        for flag, value in pairs_of(flags):
            if flag not in SWITCHES:
                self.other_flags += [flag, value] if value else [flag]
            elif value != "0":
                self.other_flags.append(flag)

    @staticmethod
    def find(program, directory):
        return shutil.which(program, path=directory)

    def lacks(self, test):
        """What is missing for a test, or None."""
        if test[0] in "bc" and not self.batched:
            return "%s has no llama-batched-bench" % self.directory
        if test == "start" and not self.completion:
            return "%s has no %s" % (self.directory, " or ".join(COMPLETIONS))
        return None

    def find_version(self):
        for program in filter(None, (self.batched, self.completion)):
            version = re.search(r"version:? *(.*\S)", described(program, "--version"))
            if version:
                return version.group(1)
        return "unknown version"

    def common(self):
        return ["-m", self.options.model, "-t", str(self.options.threads), "-ngl", "0"]

    def run_bench(self, *arguments):
        return json.loads(call([self.bench, *self.common(), *self.bench_flags, "-r", "1", "-o", "json", *arguments]))

    def run_batched(self, *arguments):
        """The columns of the rows of its table: PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG, T, S. ik_llama.cpp prints it on
        standard error."""
        printed = call([self.batched, *self.common(), *self.other_flags, *arguments], with_stderr=True)
        rows = [line.strip("| \n").split("|") for line in printed.splitlines() if re.match(r"\| *\d", line)]
        return [[float(cell) for cell in row] for row in rows]

    def measure(self, tests):
        found, n = {}, str(self.options.n)
        prompts, depths = sizes(tests, "p"), sizes(tests, "d")
        if prompts or 0 in depths:
            for r in self.run_bench("-p", ",".join(map(str, prompts or [0])), "-n", n if 0 in depths else "0"):
                found["p%d" % r["n_prompt"] if r["n_prompt"] else "d0"] = r["avg_ts"]
        for depth in filter(None, depths):
            place = ["-n", n, "-d", str(depth)] if self.has_depth else ["-n", "0", "-gp", "%d,%s" % (depth, n)]
            found["d%d" % depth] = self.run_bench("-p", "0", *place)[0]["avg_ts"]

        batches, counts = sizes(tests, "b"), sizes(tests, "c")
        if self.batched and batches:
            context = max(512, max(batches) * (self.options.n + 1))  # its warm-up fails in a very short one
            for row in self.run_batched("-c", str(context), "-npp", "1", "-ntg", n, "-npl", ",".join(map(str, batches))):
                found["b%d" % row[2]] = row[7]
        for count in counts if self.batched else []:
            context = N_PREFIX + count * self.options.n
            rows = self.run_batched("-c", str(context), "-npp", str(N_PREFIX), "-ntg", n, "-npl", str(count), "-pps",
                                    *self.shared_flags)
            found["c%d" % count] = count * self.options.n / rows[0][8]

        if self.completion and "start" in tests:
            own = COMPLETIONS[os.path.splitext(os.path.basename(self.completion))[0]]
            found["start"] = seconds([self.completion, *self.common(), *self.other_flags, *own, "-c", "512",
                                      "-p", "Hello", "-n", "1", "--no-warmup", "--temp", "0"])
        return found


class NodePackage:
    """A peer that is node-llama-cpp of npm, in `directory`."""

    def __init__(self, options, name, directory, flags):
        if flags:
            fail(2, "--peer %s: node-llama-cpp takes no flags" % name)
        if not shutil.which("node"):
            fail(2, "--peer %s: node is not installed" % name)
        self.options, self.name, self.flags, self.directory = options, name, "", directory
        with open(os.path.join(directory, "node_modules", "node-llama-cpp", "package.json"), encoding="utf-8") as f:
            self.version = "node-llama-cpp " + json.load(f).get("version", "of unknown version")

    @staticmethod
    def lacks(test):
        return "node-llama-cpp does not measure it" if test[0] == "c" else None

    def measure(self, tests):
        def command(n, *names):
            return ["node", os.path.join(SCRIPTS, "bench_peer.mjs"), self.directory, self.options.model,
                    str(self.options.threads), str(n), *names]

        found = {}
        speeds = [t for t in tests if t[0] in "pdb"]
        if speeds:
            for line in call(command(self.options.n, *speeds)).splitlines():
                test, value = line.split()
                found[test] = float(value)
        if "start" in tests:
            found["start"] = seconds(command(1, "start"))
        return found


def pairs_of(words):
    """[(flag, value or None)]"""
    pairs = []
    for word in words:
        if word.startswith("-"):
            pairs.append((word, None))
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = (pairs[-1][0], word)
        else:
            raise ValueError(word)
    return pairs


def variants(options, text):
    """The variants of NAME[:BUILD]=DIRECTORY [FLAGS]."""
    name, _, rest = text.partition("=")
    try:
        directory, *words = shlex.split(rest) or [""]
        flags = pairs_of(words)
    except ValueError as e:
        fail(2, "--peer %s: expected DIRECTORY [FLAG VALUES...], found \"%s\" (%s)" % (name, rest, e))
    if not name or not directory:
        fail(2, "--peer: expected NAME=DIRECTORY [FLAGS], found \"%s\"" % text)
    directory = os.path.abspath(directory)
    is_package = os.path.isdir(os.path.join(directory, "node_modules", "node-llama-cpp"))
    if not is_package and not Programs.find("llama-bench", directory):
        fail(2, "--peer %s: %s: no llama-bench and no node_modules/node-llama-cpp" % (name, directory))

    kind = NodePackage if is_package else Programs
    choices = [[(flag, value) for value in values.split(",")] if values else [(flag,)] for flag, values in flags]
    for chosen in itertools.product(*choices):
        yield kind(options, name, directory, [word for pair in chosen for word in pair])


def measure_turns(programs, tests, options):
    """[{test: value} of each program] of each complete turn"""
    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    turns, before = [], os.getcwd()
    folder = tempfile.TemporaryDirectory()  # programs may leave logs in the current directory
    os.chdir(folder.name)
    try:
        for turn in range(options.turns):
            found = []
            for p in programs:
                if not options.quiet:
                    print("bench_peers: turn %d of %d: %s" % (turn + 1, options.turns, label(p)), file=sys.stderr, flush=True)
                found.append(p.measure(tests))
            turns.append(found)
    except KeyboardInterrupt:
        print("bench_peers: interrupted after %d of %d turns" % (len(turns), options.turns), file=sys.stderr)
    finally:
        os.chdir(before)
        folder.cleanup()
    if not turns:
        sys.exit(130)
    return turns


def label(p):
    """The name, version and flags of a program. NAME:BUILD gives "NAME VERSION BUILD"."""
    name, _, build = p.name.partition(":")
    return " ".join(filter(None, (name, p.version, build, p.flags)))


def summarize(turns, programs, test):
    """A result for each program that ran the test: name, label, median, half range, ratio, and whether it is the best of its
    name."""
    results = []
    for i, p in enumerate(programs):
        values = [turn[i][test] for turn in turns if turn[i].get(test)]
        pairs = [(turn[0][test], turn[i][test]) for turn in turns if turn[0].get(test) and turn[i].get(test)]
        ratios = [b / a if test == "start" else a / b for a, b in pairs]
        if values:
            results.append({"name": p.name.partition(":")[0], "label": label(p), "values": values,
                            "value": statistics.median(values),
                            "half_range": (max(values) - min(values)) / 2,
                            "ratio": statistics.median(ratios) if ratios and i else None})

    choose = min if test == "start" else max
    for r in results:
        r["is_best"] = r is choose((x for x in results if x["name"] == r["name"]), key=lambda x: x["value"])
    return results


def number(v, width=0):
    """Four significant digits, without an exponent."""
    if v is None:
        return "-".rjust(width)
    text = "%.4g" % v
    return ("%.0f" % v if "e+" in text else text).rjust(width)


def print_table(results, turns, options):
    print("%s, %d threads, %d turns: medians; ratio above 1: llama31 is faster; *: the best variant of a name" %
          (os.path.basename(options.model), options.threads, len(turns)))
    print("%-8s %10s %12s %7s" % ("test", "tokens/s", "half range", "ratio"))
    for test, rows in results.items():
        for r in rows:
            mark = "*" if r["is_best"] and r["ratio"] else " "
            print("%-8s %s %s %s %s %s" % (test, number(r["value"], 10), number(r["half_range"], 12), number(r["ratio"], 7),
                                           mark, r["label"]))
        if not rows:
            print("%-8s no program measured it" % test)


def print_csv(results, programs, options):
    """Rows of docs/pictures/measured.csv. The columns before `test` are to be completed by hand."""
    words = {"p": "prefill %s", "b": "batch of %s", "c": "%s with a common prefix", "d": "decode at %s"}
    names = list(dict.fromkeys(p.name.partition(":")[0] for p in programs))
    w = csv.writer(sys.stdout, lineterminator="\n")
    columns = [name + part for name in names for part in ("", " half range", " build")]
    w.writerow(["date", "machine", "instructions", "model", "type", "test"] + columns)
    for test, rows in results.items():
        row = [datetime.date.today().isoformat(), "", programs[0].flags, os.path.basename(options.model), "",
               {"start": "start in seconds", "d0": "decode"}.get(test) or words[test[0]] % test[1:]]
        best = {r["name"]: r for r in rows if r["is_best"]}
        for name in names:
            r = best.get(name)
            row += [number(r["value"]), number(r["half_range"]), r["label"].removeprefix(name + " ")] if r else ["", "", ""]
        w.writerow(row)


def count(text):
    n = int(text)
    if n < 1:
        raise ValueError
    return n


count.__name__ = "positive integer"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    n_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("-m", dest="model", metavar="FILE", default=os.environ.get("LLAMA31_MODEL"),
                        help="model (default $LLAMA31_MODEL)")
    parser.add_argument("--peer", action="append", metavar="NAME=DIRECTORY [FLAGS]", help="repeatable")
    parser.add_argument("-r", dest="turns", type=count, default=3, metavar="N", help="turns (default 3)")
    parser.add_argument("-t", dest="threads", type=count, default=n_cpus, metavar="N", help="threads (default %(default)s)")
    parser.add_argument("-n", type=count, default=32, metavar="N", help="tokens to decode (default 32)")
    parser.add_argument("--tests", default="p512,d0,b8,start", metavar="LIST", help="default %(default)s")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print rows of docs/pictures/measured.csv")
    parser.add_argument("-q", dest="quiet", action="store_true", help="no progress")
    parser.add_argument("--program", default=find_program() or "llama31", help="the llama31 program")
    options = parser.parse_args()

    tests = [t for t in re.split("[, ]+", options.tests) if t]
    for t in tests or [""]:
        if not TEST.fullmatch(t):
            fail(2, "--tests: expected p512, d0, d4096, b8, c64 (2 to 999) or start, found \"%s\"" % t)
    if not options.peer:
        fail(2, "no peer; give --peer NAME=DIRECTORY")
    if not options.model:
        fail(2, "no model; give -m FILE or set LLAMA31_MODEL")
    if not os.path.isfile(options.model):
        fail(1, "%s: no such file" % options.model)
    program = shutil.which(options.program)
    if not program:
        fail(1, "%s: no such program; run make" % options.program)
    options.program, options.model = os.path.abspath(program), os.path.abspath(options.model)

    peers = [v for text in options.peer for v in variants(options, text)]
    labels = [label(p) for p in peers]
    for text in labels:
        if labels.count(text) > 1:
            fail(2, "--peer: several are called \"%s\"; tell them apart by NAME:BUILD" % text)
    left_out = {"bench_peers: %s: %s is left out: %s" % (p.name, t, p.lacks(t)) for p in peers for t in tests if p.lacks(t)}
    for line in sorted(left_out):
        print(line, file=sys.stderr)

    programs = [Llama31(options)] + peers
    with open(options.model, "rb") as f:  # into the page cache
        while f.read(1 << 24):
            pass
    turns = measure_turns(programs, tests, options)
    results = {t: summarize(turns, programs, t) for t in tests}
    for i, p in enumerate(programs):
        for t in tests:
            if not any(turn[i].get(t) for turn in turns) and not p.lacks(t):
                print("bench_peers: %s: no figure for %s" % (label(p), t), file=sys.stderr)

    if options.csv:
        print_csv(results, programs, options)
    elif options.json:
        units = {"start": "sec"}
        listed = [{"test": t, "unit": units.get(t, "tokens_per_sec"), "programs": rows} for t, rows in results.items()]
        print(json.dumps({"model": os.path.basename(options.model), "threads": options.threads, "turns": len(turns),
                          "n_tokens": options.n, "results": listed}))
    else:
        print_table(results, turns, options)


if __name__ == "__main__":
    main()
