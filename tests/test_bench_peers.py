#!/usr/bin/env python3
"""scripts/bench_peers.py: medians and ratios, command lines, variants, and invalid arguments, with programs that print fixed
numbers."""
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from cli import PROGRAM, ROOT, SCRIPTS, Skip, check, main, same, test

# A script logs its call; `figure NAME` prints and removes the first line of the file NAME next to it.
FIGURE = """#!/bin/sh
echo "$0 $*" >> "$(dirname "$0")/calls"
figure() { f=$(dirname "$0")/$1; head -n 1 "$f"; tail -n +2 "$f" > "$f.rest"; mv "$f.rest" "$f"; }
"""
OURS = FIGURE + """[ "$1" != --version ] || echo "llama31 1.2.3"
[ "$1" != show ] || echo '{"vocab_size": 2048, "kernels": "avx2"}'
[ "$1" = bench ] || exit 0
cat <<EOF
{"machine":{"threads":2},"probe":{"read_gb_per_sec":5},"results":[{"test":"prefill","n_tokens":512,\
"depth":0,"batch":1,"tokens_per_sec":$(figure p),"gb_per_sec":3},{"test":"decode","n_tokens":256,"depth":0,"batch":8,\
"tokens_per_sec":50,"gb_per_sec":3},{"test":"decode","n_tokens":32,"depth":4096,"batch":1,"tokens_per_sec":7.5,\
"gb_per_sec":9}]}
EOF
"""
BENCH = FIGURE + """case "$*" in
--help) echo "  -d, --n-depth <n>" ;;
*"-fa 0"*"-p 512"*) echo '[{"n_prompt": 512, "n_gen": 0, "avg_ts": 10}]' ;;
*"-p 512"*) echo "[{\\"n_prompt\\": 512, \\"n_gen\\": 0, \\"n_depth\\": 0, \\"avg_ts\\": $(figure q)}]" ;;
*) echo '[{"n_prompt": 0, "n_gen": 32, "n_depth": 4096, "avg_ts": 2.5, "samples_ts": [ 2.5 ]}]' ;;
esac
"""
BATCHED = FIGURE + """case "$*" in
--version) echo "version: 7 (abc)" >&2 ;;
--help) echo "-kvu, --kv-unified"; exit 1 ;;
*"-c 1128"*-pps*--kv-unified*) echo '|  1000 |     32 |    4 |   1128 |    2.000 |   500.00 |    6.000 |    21.33 |    8.000 |   141.00 |' ;;
*) exec >&2; echo 'main: log'
   echo '|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |'
   echo '|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|'
   echo '|     1 |     32 |    8 |    264 |    0.100 |    80.00 |   20.480 |    12.50 |   20.580 |    12.83 |' ;;
esac
"""
BLOCK = FIGURE + """[ "$1" != --version ] || exit 0
d=$(dirname "$0")
[ -e "$d/first" ] || { touch "$d/first"; exit; }
touch "$d/second"
exec sleep 60
"""  # returns from the first turn and waits in the second
PACKAGE = """export async function getLlama(options) {
  if (options.gpu || options.build !== "never") throw new Error("options");
  async function* evaluate(ids) { for (;;) { await new Promise((r) => setTimeout(r, 1)); yield ids.length; } }
  const createContext = async () => ({ getSequence: () => ({ evaluate }), dispose: async () => {} });
  return { loadModel: async () => ({ createContext, tokenize: (text) => [...text] }) };
}
"""


def write(tmp, name, text):
    path = os.path.join(tmp, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)
    return path


def start(*args):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA")}
    return subprocess.Popen([sys.executable, os.path.join(SCRIPTS, "bench_peers.py"), *args], env=clean, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def compare(*args, code=0, notes=""):
    """Returns stdout or, with an exit code, the last line on stderr. notes: the rest of stderr, with -q."""
    process = start(*args)
    out, err = process.communicate(timeout=60)
    same(process.returncode, code, err)
    if not code:
        check("-q" not in args or err == notes, err)
        return out
    check(err.splitlines()[-1].startswith("bench_peers") and not out, err, out)
    return err.splitlines()[-1]


def results_of(*args):
    """{test: {label: result}}"""
    printed = json.loads(compare(*args, "--json"))
    return {r["test"]: {p["label"]: p for p in r["programs"]} for r in printed["results"]}


def fake_programs(tmp):
    """Arguments with programs of both sides, and prefill speeds for four turns."""
    write(tmp, "p", "80\n100\n40\n90\n")
    write(tmp, "q", "20\n20\n20\n30\n")
    write(tmp, "llama-bench", BENCH)
    write(tmp, "llama-batched-bench", BATCHED)
    write(tmp, "llama-completion", FIGURE)
    return ["-m", write(tmp, "m.gguf", "x"), "--program", write(tmp, "ours", OURS)]


@test
def arithmetic(tmp):
    arguments = fake_programs(tmp) + ["--peer", "other=" + tmp, "-t", "2", "-r", "4", "--tests", "p512,d4096,b8,b9,start"]
    found = results_of(*arguments)
    ours, theirs = "llama31 1.2.3 avx2", "other 7 (abc)"

    def values(name):
        return found[name][ours]["value"], found[name][theirs]["value"], found[name][theirs]["ratio"]

    same(values("p512"), (85, 20, 3.5))  # medians of 40, 80, 90, 100 and of the ratios 2, 3, 4, 5
    same((found["p512"][ours]["half_range"], found["p512"][theirs]["half_range"]), (30, 5))
    same(values("d4096"), (7.5, 2.5, 3))
    same(values("b8"), (50, 12.5, 4))
    same(found["b9"], {})
    seconds, other, ratio = values("start")
    check(0 < seconds < 5 and 0 < other < 5 and ratio > 0, found["start"])

    with open(os.path.join(tmp, "calls")) as f:
        calls = [line.split(None, 1) for line in f.read().replace(tmp + "/", "").splitlines()]
    calls = [c for c in calls if c[1] not in ("--version", "--help")]
    turn = ["ours", "ours", "llama-bench", "llama-bench", "llama-batched-bench", "llama-completion"]
    same([c[0] for c in calls], ["ours"] + turn * 4)
    same(calls[1][1], "bench -m m.gguf -t 2 -n 32 --json --tests p512,d4096,b8,b9")
    check(" -c 512 -npp 1 -ntg 32 -npl 8,9" in calls[5][1], calls[5])


@test
def common_prefix(tmp):
    found = results_of(*fake_programs(tmp), "--peer", "other=" + tmp, "-r", "1", "--tests", "c4")["c4"]
    same(found["other 7 (abc)"]["value"], 4 * 32 / 8)  # 4 completions of 32 tokens in 8 seconds
    check(found["llama31 1.2.3 avx2"]["value"] > 0)


@test
def best_variant(tmp):
    arguments = fake_programs(tmp) + ["--peer", "other:fast=%s -fa 0,1 -rtr 1" % tmp, "-r", "1", "--tests", "p512 b8"]
    found = results_of(*arguments)["p512"]
    same({label: (r["value"], r["is_best"]) for label, r in found.items()},
         {"llama31 1.2.3 avx2": (80, True), "other 7 (abc) fast -fa 0 -rtr 1": (10, False),
          "other 7 (abc) fast -fa 1 -rtr 1": (20, True)})

    # llama-bench takes a value for -rtr, the other programs do not.
    with open(os.path.join(tmp, "calls")) as f:
        calls = f.read()
    check("-fa 1 -rtr 1 -r 1 -o json" in calls and "-fa 1 -rtr -c 512" in calls, calls)

    rows = list(csv.DictReader(compare(*arguments, "--csv").splitlines()))
    same((rows[0]["test"], rows[0]["llama31"], rows[0]["other"], rows[0]["other build"]),
         ("prefill 512", "100", "20", "7 (abc) fast -fa 1 -rtr 1"))


@test
def table(tmp):
    arguments = fake_programs(tmp)
    os.remove(os.path.join(tmp, "llama-batched-bench"))
    write(tmp, "llama-completion", FIGURE + 'echo "version: 8" >&2')
    note = "bench_peers: other: %%s is left out: %s has no llama-batched-bench\n" % tmp
    printed = compare("-q", *arguments, "--peer", "other=" + tmp, "-r", "1", "--tests", "p512 b8 b9",
                      notes=note % "b8" + note % "b9" + "bench_peers: llama31 1.2.3 avx2: no figure for b9\n").splitlines()
    same([line.split() for line in printed[1:]],
         [["test", "tokens/s", "half", "range", "ratio"],
          ["p512", "80", "0", "-", "llama31", "1.2.3", "avx2"], ["p512", "20", "0", "4", "*", "other", "8"],
          ["b8", "50", "0", "-", "llama31", "1.2.3", "avx2"], ["b9", "no", "program", "measured", "it"]])


@test
def interrupt(tmp):
    """The complete turns are printed."""
    arguments = fake_programs(tmp)
    write(tmp, "llama-completion", BLOCK)
    process = start(*arguments, "--peer", "other=" + tmp, "-r", "3", "--tests", "start", "--json")
    end = time.monotonic() + 60
    while not os.path.exists(os.path.join(tmp, "second")) and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    check("interrupted after 1 of 3 turns" in err, err)
    same((process.returncode, json.loads(out)["turns"]), (0, 1), err)


@test
def real_program(tmp):
    if not os.path.exists(PROGRAM):
        raise Skip("no %s" % PROGRAM)
    fake_programs(tmp)
    source = os.path.join(os.path.dirname(SCRIPTS), "stories", "stories.gguf")
    arguments = ["-m", source, "--program", PROGRAM, "--peer", "other=" + tmp, "-r", "1", "-t", "1", "-n", "2"]
    found = results_of(*arguments, "--tests", "p32,d4096,b8,d0,start")
    for name, results in found.items():
        ours = [r for label, r in results.items() if label.startswith("llama31")]
        check(not ours if name == "d4096" else ours[0]["value"] > 0, name, results)  # d4096 is beyond its context


@test
def npm_package(tmp):
    if not shutil.which("node"):
        raise Skip("no node")
    arguments = fake_programs(tmp)
    package = os.path.join(tmp, "peer", "node_modules", "node-llama-cpp")
    write(package, "package.json", '{"type": "module", "main": "index.js", "version": "3.2.1"}')
    write(package, "index.js", PACKAGE)
    peer = "npm=" + os.path.join(tmp, "peer")
    found = results_of(*arguments, "-r", "1", "--peer", peer, "--tests", "p512,d4096,b8,start")
    for results in found.values():
        r = results["npm node-llama-cpp 3.2.1"]
        check(r["value"] > 0 and r["ratio"] > 0, results)
    check("takes no flags" in compare(*arguments, "--peer", peer + " -fa 1", code=2))


@test
def picture_is_current(tmp):
    """docs/pictures/speed.svg shows measured.csv, and README.md names the lowest ratio."""
    sys.path.insert(0, SCRIPTS)
    import make_pictures
    with open(os.path.join(make_pictures.PICTURES, "speed.svg"), encoding="utf-8") as f:
        committed = f.read()
    shutil.copy(os.path.join(make_pictures.PICTURES, "measured.csv"), tmp)
    make_pictures.PICTURES = tmp
    make_pictures.speed()
    with open(os.path.join(tmp, "speed.svg"), encoding="utf-8") as f:
        check(f.read() == committed, "run scripts/make_pictures.py speed")
    lowest = re.search(r"figures: ([\d.]+) \(", committed).group(1)
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        check(re.search(r"measured\s+is\s+%s," % re.escape(lowest), f.read()), "README.md has another lowest ratio than", lowest)


@test
def invalid_arguments(tmp):
    arguments = fake_programs(tmp)
    peer = ["--peer", "other=" + tmp]
    check("no peer" in compare(*arguments, code=2))
    check("no llama-bench" in compare(*arguments, "--peer", "other=" + os.path.join(tmp, "absent"), code=2))
    for text in ("other", "=" + tmp, "other=", "other=%s fa 1" % tmp, "other=%s -fa 0 1" % tmp, "other='" + tmp):
        check("--peer" in compare(*arguments, "--peer", text, code=2))
    check("NAME:BUILD" in compare(*arguments, *peer, *peer, code=2))
    check("not allowed" in compare(*arguments, *peer, "--json", "--csv", code=2))
    check("no model" in compare(*peer, "--program", arguments[3], code=2))
    check("no such file" in compare(*peer, "-m", os.path.join(tmp, "absent.gguf"), code=1))
    check("run make" in compare(*arguments, *peer, "--program", os.path.join(tmp, "absent"), code=1))
    for args in (["--tests", "p512,q1"], ["--tests", "b1"], ["--tests", ""], ["--tests", "*"], ["-r", "0"], ["-t", "2x"],
                 ["-m"], ["--depth", "4"], ["more"]):
        compare(*arguments, *peer, *args, code=2)
    write(tmp, "llama-bench", FIGURE + "[ \"$1\" != --help ] || exit 0\necho loading >&2; echo 'bad magic' >&2; exit 7\n")
    same(compare("-q", *arguments, *peer, "--tests", "d0", code=1), "bench_peers: llama-bench: exit status 7: bad magic")


if __name__ == "__main__":
    main("bench_peers")
