#!/usr/bin/env python3
"""The rope command without a model, and scripts/plot_rope.py: the commands in docs/rope.md reproduce its plots."""
import cmath
import json
import math
import os
import subprocess
import sys
import xml.etree.ElementTree as xml

import cli
from cli import PROGRAM, SCRIPTS, check, some, test

TOP = os.path.dirname(SCRIPTS)
PLOT = [sys.executable, os.path.join(SCRIPTS, "plot_rope.py")]


def rope(*args, code=0):
    r = subprocess.run([PROGRAM, "rope"] + [str(a) for a in args], capture_output=True, text=True, timeout=60)
    check(r.returncode == code, args, "exit", r.returncode, r.stderr)
    return r.stdout if code == 0 else r.stderr


def table(*args):
    return json.loads(rope(*args, "--json"))


def shell_commands():
    """The indented commands of docs/rope.md, with continuation lines joined."""
    commands, text = [], ""
    with open(os.path.join(TOP, "docs", "rope.md")) as f:
        for line in f:
            if line.startswith("    llama31 ") or text:
                text += line.strip().rstrip("\\") + " "
                if not line.rstrip().endswith(("|", "\\")):
                    commands.append(text)
                    text = ""
    return commands


@test
def documented_pictures(tmp):
    """Each command of docs/rope.md runs and writes the plot in docs/rope/."""
    os.mkdir(os.path.join(tmp, "docs"))
    os.mkdir(os.path.join(tmp, "docs", "rope"))
    os.symlink(SCRIPTS, os.path.join(tmp, "scripts"))
    n_pictures = 0
    for command in shell_commands():
        r = subprocess.run(["sh", "-ec", command.replace("llama31 rope", PROGRAM + " rope")], cwd=tmp, capture_output=True)
        check(r.returncode == 0, command, r.stderr.decode())
    for name in os.listdir(os.path.join(tmp, "docs", "rope")):
        with open(os.path.join(tmp, "docs", "rope", name)) as f, open(os.path.join(TOP, "docs", "rope", name)) as g:
            drawn, kept = f.read(), g.read()
        check(drawn == kept, name, "is not what its command draws")
        check(xml.fromstring(drawn).tag.endswith("svg"), name)
        n_pictures += 1
    check(n_pictures == 4, n_pictures)


@test
def documented_example(tmp):
    """The example of dim 4 and 3 positions equals the reference and the document."""
    out = rope("--dim", 4, "--positions", 3)
    with open(os.path.join(TOP, "tests", "golden", "rope", "seed-dim4-end3-theta1e4.csv")) as f:
        check(out == f.read(), out)
    with open(os.path.join(TOP, "docs", "rope.md")) as f:
        check("".join("    " + line for line in out.splitlines(True)) in f.read(), "docs/rope.md")


@test
def golden_positions(tmp):
    """Tables without a model equal the reference, at positions far apart."""
    with open(os.path.join(TOP, "tests", "golden", "rope", "llama31-dim128-theta5e5-scaled.csv")) as f:
        rows = [line.split(",") for line in f.read().splitlines()[1:]]
    for pos in sorted({int(r[0]) for r in rows}):
        t = table("--dim", 128, "--theta", 500000, "--rope-scaling", "llama3", "--positions", "%d..%d" % (pos, pos))
        for found, (p, i, c, s) in zip(t["rows"], [r for r in rows if int(r[0]) == pos]):
            check(found["i"] == int(i) and abs(found["cos"] - float(c)) < 1.3e-7 and abs(found["sin"] - float(s)) < 1.3e-7,
                  pos, i, found)


@test
def columns(tmp):
    """Angles, bands and scaled and unscaled frequencies are consistent."""
    t = table("--dim", 64, "--theta", 500000, "--rope-scaling", "llama3", "--rope-scale", 32, "--positions", "0..8191:64",
              "--columns", "all")
    check(len(t["rows"]) == 128 * 32 and t["rows"][-1]["pos"] == 8128, len(t["rows"]))
    for r in t["rows"]:
        near = 1e-6 + 1e-8 * r["angle"]  # nine digits are printed
        check(abs(math.cos(r["angle"]) - r["cos"]) < near and abs(math.sin(r["angle"]) - r["sin"]) < near, r)
        check(abs(r["wavelength"] * r["frequency"] - 2 * math.pi) < 1e-6, r)
        divisor = r["unscaled"] / r["frequency"]
        band = "kept" if divisor < 1 + 1e-5 else "interpolated" if divisor > 32 * (1 - 1e-5) else "smoothed"
        check(0.99999 < divisor < 32.001 and r["band"] == band, r)
    check(rope("--dim", 4, "--positions", "5..9:2", "--columns", "sin").splitlines()[0] == "pos,i,sin")
    first = rope("--dim", 4, "--positions", "0..0", "--columns", "cos", "--compare", "none,yarn").splitlines()
    check(first[:2] == ["pos,i,none.cos,yarn.cos", "0,0,1,1.20794415"], first)  # 0.1 ln 8 + 1


def plot(table, *args, code=0):
    r = subprocess.run(PLOT + list(args), input=json.dumps(table), capture_output=True, text=True)
    check(r.returncode == code and (code == 0 or r.stdout == ""), args, "exit", r.returncode, r.stderr)
    return r.stdout if code == 0 else r.stderr


@test
def rotate_and_decay(tmp):
    """plot_rope.py rotates a vector, and computes the mean of q.k, from the cis table."""
    t = table("--dim", 8, "--positions", "0..40:8", "--compare", "none,linear")
    lines = [line.split() for line in plot(t, "--text", "--rotate", "3,4,0,-2").splitlines()[1:]]
    check([line[:4] for line in lines[:2]] == [["0", "0", "3.000000", "4.000000"], ["0", "1", "0.000000", "-2.000000"]], lines)
    check(len(lines) == 2 * 6, lines)
    for pos, i, x, y, rotated_x, rotated_y in (map(float, line) for line in lines):
        turned = complex(x, y) * cmath.exp(1j * pos * 10000 ** (-2 * i / 8))
        check(abs(turned - complex(rotated_x, rotated_y)) < 1e-5, pos, i, turned, rotated_x, rotated_y)

    # A scale of 1.2 (YaRN) counts twice.
    sys.path.insert(0, SCRIPTS)
    import plot_rope
    t = table("--dim", 8, "--positions", "0..100:10", "--compare", "none,yarn")
    distances, (none, yarn) = plot_rope.means(t)
    check(distances == list(range(0, 101, 10)), distances)
    for d, found in zip(distances, none):
        mean = sum(math.cos(d * 10000 ** (-2 * i / 8)) for i in range(4)) / 4
        check(abs(found - mean) < 1e-5, d, found, mean)
    check(none[0] == 1 and abs(yarn[0] - 1.20794415 ** 2) < 1e-6, none[0], yarn[0])

    for args, what in [(("--rotate", "1,2,3,4,5,6,7,8,9"), "at most 8"), (("--rotate", "1,a"), "'1,a'"),
                       (("--rotate", "1,nan"), "'1,nan'")]:
        check(what in plot(t, *args, code=1 if what == "at most 8" else 2), args)
    for args in (("--rotate", "1"), ("--decay",)):
        check("with --positions" in plot(table("--dim", 8), *args, code=1), args)


@test
def refusals(tmp):
    for args, what in [(("--dim", 3), "even"), (("--dim", 4, "--positions", "9..3"), "--positions"),
                       (("--dim", 4, "--positions", "1..9:0"), "--positions"), (("--dim", 4, "--positions", "x"), "x"),
                       (("--dim", 4, "--columns", "cos"), "needs --positions"), (("--dim", 4, "--columns", "pos"), "needs --positions"),
                       (("--dim", 4, "--columns", "frequencie"), "did you mean frequency"),
                       (("--dim", 4, "--compare", "none,warp"), "warp"),
                       (("--dim", 4, "--compare", "ntk,none,ntk"), "duplicate rule \"ntk\""),
                       (("--dim", 4, "--compare", "file"), "rope_freqs"),
                       (("--dim", 4, "--rotate", "1"), "plot_rope.py"), (("--dim", 4, "--decay"), "plot_rope.py"),
                       (("--dim", 4, "--theta", 1), "theta")]:
        err = rope(*args, code=2)
        check(what in err and err.count("\n") == 1, args, err)


@test
def text_pictures(tmp):
    """--text plots every kind of table in 80 columns. Other input is rejected with one line."""
    for args, more in [(("--compare", "none,ntk"), ()), (("--positions", 300), ()), (("--positions", 2), ("--rotate", "1,2")),
                       (("--positions", 99, "--compare", "none,yarn"), ("--decay",))]:
        r = subprocess.run(PLOT + ["--text", *more], input=rope("--dim", 32, "--json", *args), capture_output=True, text=True)
        check(r.returncode == 0 and max(map(len, r.stdout.splitlines())) <= 80 and r.stdout.count("\n") > 2, args, r.stderr)
    for bad in cli.some(("", "[]", "{}", '{"rows":[]}', '{"rules":["none"],"rows":[{"i":0}]}'), 2):
        r = subprocess.run(PLOT, input=bad, capture_output=True, text=True)
        check(r.returncode == 1 and r.stdout == "" and r.stderr.count("\n") == 1, repr(bad), r.stderr)
    r = subprocess.run(PLOT + ["-o", "plot.png"], input="{}", capture_output=True, text=True, cwd=tmp)
    check(r.returncode == 1 and "plot.png: the plot is SVG" in r.stderr and not os.listdir(tmp), r.stderr)


if __name__ == "__main__":
    cli.main("rope")
