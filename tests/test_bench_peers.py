#!/usr/bin/env python3
"""scripts/bench_peers.sh: medians and ratios, command lines, and invalid arguments, with programs that print fixed numbers."""
import json
import os
import shutil
import subprocess

from cli import PROGRAM, SCRIPTS, Skip, check, main, same, test

# A script logs its call; `figure NAME` prints and removes the first line of the file NAME next to it.
FIGURE = """#!/bin/sh
echo "$0 $*" >> "$(dirname "$0")/calls"
figure() { f=$(dirname "$0")/$1; head -n 1 "$f"; tail -n +2 "$f" > "$f.rest"; mv "$f.rest" "$f"; }
"""
OURS = FIGURE + """[ "$1" = bench ] || exit 0
cat <<EOF
{"machine":{"threads":2},"probe":{"read_gb_per_sec":5},"results":[{"test":"prefill","n_tokens":512,\
"depth":0,"batch":1,"tokens_per_sec":$(figure p),"gb_per_sec":3},{"test":"decode","n_tokens":256,"depth":0,"batch":8,\
"tokens_per_sec":50,"gb_per_sec":3},{"test":"decode","n_tokens":32,"depth":4096,"batch":1,"tokens_per_sec":7.5,\
"gb_per_sec":9}]}
EOF
"""
BENCH = FIGURE + """case "$*" in
*"-p 512"*) echo "{\\"n_prompt\\": 512, \\"n_gen\\": 0, \\"n_depth\\": 0, \\"avg_ts\\": $(figure q), \\"samples_ts\\": [ 1 ]}" ;;
*) echo '{"n_prompt": 0, "n_gen": 32, "n_depth": 4096, "avg_ts": 2.5, "samples_ts": [ 2.5 ]}' ;;
esac
"""
BATCHED = FIGURE + """echo 'main: log'
echo '{"n_kv_max": 264, "pp": 1, "tg": 32, "pl": 8, "speed_pp": 3.5, "speed_tg": 12.5, "speed": 11}'
"""
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


def compare(*args, code=0, **env):
    """Returns stdout or, with an exit code, the one line on stderr."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA")}
    r = subprocess.run(["sh", os.path.join(SCRIPTS, "bench_peers.sh"), *args], env=dict(clean, **env), timeout=60,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    same(r.returncode, code, r.stderr)
    if code:
        check(r.stderr.count("\n") == 1 and r.stderr.startswith("bench_peers: ") and not r.stdout, r)
    return r.stderr if code else r.stdout


def fake_programs(tmp):
    """(model, environment) with programs of both sides, and prefill speeds for four turns."""
    write(tmp, "p", "80\n100\n40\n90\n")
    write(tmp, "q", "20\n20\n20\n30\n")
    write(tmp, "llama-batched-bench", BATCHED)
    write(tmp, "llama-completion", FIGURE)
    return write(tmp, "m.gguf", "x"), {"LLAMA31_PROGRAM": write(tmp, "ours", OURS),
                                      "LLAMA_BENCH": write(tmp, "llama-bench", BENCH)}


@test
def arithmetic(tmp):
    model, env = fake_programs(tmp)
    r = json.loads(compare("-m", model, "-r", "4", "-t", "2", "--tests", "p512,d4096,b8,b9,start", "--json", **env))
    same((r["model"], r["peer"], r["threads"], r["turns"], r["n_tokens"]), ("m.gguf", "llama-bench", 2, 4, 32))
    found = {x["test"]: (x["llama31"], x["peer"], x["ratio"]) for x in r["results"]}
    same(found["p512"], (85, 20, 3.5))  # medians of 40, 80, 90, 100 and of the ratios 2, 3, 4, 5
    same(found["d4096"], (7.5, 2.5, 3))
    same(found["b8"], (50, 12.5, 4))
    same(found["b9"], (None, None, None))
    ours, theirs, ratio = found["start"]
    check(0 < ours < 5 and 0 < theirs < 5 and ratio > 0, found["start"])
    with open(os.path.join(tmp, "calls")) as f:
        calls = [line.split(None, 1) for line in f.read().replace(tmp + "/", "").splitlines()]
    turn = ["ours", "ours", "llama-bench", "llama-bench", "llama-batched-bench", "llama-completion"]
    same([c[0] for c in calls], turn * 4)
    same(calls[0][1], "bench -m m.gguf -t 2 -n 32 --tests p512,d4096,b8,b9 --json")
    same(calls[4][1].split("-c ")[1][:3], str(9 * 33))


@test
def table(tmp):
    model, env = fake_programs(tmp)
    os.remove(os.path.join(tmp, "llama-batched-bench"))
    rows = [line.split() for line in compare("-q", "-m", model, "-r", "1", "--tests", "p512 b8", **env).splitlines()]
    same(rows[1:], [["test", "llama31", "llama.cpp", "ratio"], ["p512", "80.00", "20.00", "4.000", "tokens/s"],
                    ["b8", "50.00", "-", "-", "tokens/s"]])


@test
def real_program(tmp):
    if not os.path.exists(PROGRAM):
        raise Skip("no %s" % PROGRAM)
    model, env = fake_programs(tmp)
    source = os.path.join(os.path.dirname(SCRIPTS), "stories", "stories.gguf")
    env["LLAMA31_PROGRAM"] = PROGRAM
    r = json.loads(compare("-m", source, "-r", "1", "-t", "1", "-n", "2", "--tests", "p32,d4096,b8,d0,start", "--json", **env))
    for x in r["results"]:
        check(x["llama31"] is None if x["test"] == "d4096" else x["llama31"] > 0, x)  # beyond the context of this model


@test
def npm_package(tmp):
    if not shutil.which("node"):
        raise Skip("no node")
    model, env = fake_programs(tmp)
    del env["LLAMA_BENCH"]
    check("no node-llama-cpp" in compare("-m", model, code=2, LLAMA31_PEER=tmp, **env))
    package = os.path.join(tmp, "node_modules", "node-llama-cpp")
    write(package, "package.json", '{"type": "module", "main": "index.js"}')
    write(package, "index.js", PACKAGE)
    r = json.loads(compare("-m", model, "-r", "1", "--tests", "p512,d4096,b8,start", "--json", LLAMA31_PEER=tmp, **env))
    same(r["peer"], "node-llama-cpp")
    check(all(x["peer"] > 0 and x["ratio"] > 0 for x in r["results"]), r)


@test
def invalid_arguments(tmp):
    model, env = fake_programs(tmp)
    check("no peer" in compare("-m", model, code=2))
    check("no such program" in compare("-m", model, code=2, LLAMA_BENCH=os.path.join(tmp, "absent")))
    check("no model" in compare(code=2, **env))
    check("no such file" in compare("-m", os.path.join(tmp, "absent.gguf"), code=1, **env))
    check("run make" in compare("-m", model, code=1, **dict(env, LLAMA31_PROGRAM=os.path.join(tmp, "absent"))))
    for args in (["--tests", "p512,q1"], ["--tests", "b1"], ["--tests", ""], ["--tests", "*"], ["-r", "0"], ["-t", "2x"],
                 ["-m"], ["--depth", "4"], ["more"]):
        compare("-m", model, *args, code=2, **env)
    write(tmp, "llama-bench", "#!/bin/sh\necho loading >&2; echo 'bad magic' >&2; exit 7\n")
    same(compare("-q", "-m", model, "--tests", "d0", code=1, **env), "bench_peers: llama-bench: exit status 7: bad magic\n")


if __name__ == "__main__":
    main("bench_peers")
