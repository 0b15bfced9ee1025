#!/usr/bin/env python3
"""Draws the pictures of README.md: scripts/make_pictures.py terminal MODEL.gguf, or scripts/make_pictures.py speed.

`terminal` runs the commands of SESSION in a pseudo-terminal and draws the final screen. `speed` draws ratios of
docs/pictures/measured.csv. Both write docs/pictures/NAME.svg, with colors for light and dark backgrounds."""
import lib.interrupt  # noqa: F401
import argparse
import csv
import html
import itertools
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PICTURES = os.path.join(ROOT, "docs", "pictures")
sys.path.insert(0, os.path.join(ROOT, "tests"))

SCHEMA = """{"type": "object", "required": ["name", "born"], "properties":
 {"name": {"type": "string", "maxLength": 40}, "born": {"type": "integer"}}}"""
SESSION = [  # what is typed, and the prompt of the answer
    ('./llama31 run --deterministic --temp 0.7 --seed 18 "Once upon a time"', "$"),
    ("./llama31 chat -q --deterministic --temp 0 -m tinyllama.gguf", ">"),
    ("What is the capital of France?", ">"),
    ("/exit", "$"),
    ("cat person.json", "$"),
    ("./llama31 run -q --deterministic --temp 0 -m tinyllama.gguf \\", ">"),
    ('--json-schema person.json "Ada Lovelace was born in London in 1815."', "$"),
]

# name: color on a light and on a dark background
COLORS = {"paper": ("#f6f8fa", "#161b22"), "ink": ("#1f2328", "#e6edf3"), "dim": ("#656d76", "#8d96a0"),
          "mark": ("#0969da", "#58a6ff"), "peer": ("#afb8c1", "#6e7681")}
CHAR, LINE, EDGE = 8.2, 19, 16  # width of a character, height of a line, margin
FONTS = {"terminal": "13.6px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace",
         "speed": "13px system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif"}


def write_svg(name, title, width, height, shapes):
    """Writes a picture whose shapes have the names of COLORS as classes."""
    def style(i):
        return "".join(".%s{fill:%s}" % (color, values[i]) for color, values in COLORS.items())

    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img">' %
             (width, height, width, height),
             "<title>%s</title>" % html.escape(title),
             "<style>text{font:%s;white-space:pre}.bold{font-weight:600}%s@media(prefers-color-scheme:dark){%s}</style>" %
             (FONTS[name], style(0), style(1)),
             '<rect class="paper" width="%g" height="%g" rx="8"/>' % (width, height), *shapes, "</svg>"]
    with open(os.path.join(PICTURES, name + ".svg"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def text(x, y, classes, content, n_columns=0):
    """A text; with n_columns, exactly that many characters wide in any font."""
    grid = ' textLength="%g" lengthAdjust="spacingAndGlyphs"' % (n_columns * CHAR) if n_columns else ""
    return '<text x="%g" y="%g" class="%s"%s xml:space="preserve">%s</text>' % (x, y, classes, grid, html.escape(content, quote=False))


def record(model, folder):
    """Runs SESSION. Returns the lines of the screen, each a list of characters with their class."""
    from cli import PROGRAM
    from terminal import Terminal

    class Recorder(Terminal):
        """A terminal that remembers which characters are dim."""
        is_dim, classes = False, {}

        def put(self, char):
            super().put(char)
            self.classes[self.row, self.column - 1] = "dim" if self.is_dim else "ink"

        def control(self, arguments, final):
            super().control(arguments, final)
            if final == "m":
                self.is_dim = arguments == "2"

    os.symlink(PROGRAM, os.path.join(folder, "llama31"))
    os.symlink(os.path.abspath(model), os.path.join(folder, "tinyllama.gguf"))
    with open(os.path.join(folder, "person.json"), "w") as f:
        f.write(SCHEMA + "\n")

    t = Recorder(["env", "-C", folder, "sh"], rows=60, env={"PS1": "$ ", "LLAMA31_HISTORY": "", "TERM": "xterm-256color"})
    t.wait(lambda: t.text() == "$")
    for typed, prompt in SESSION:
        first = t.row
        t.send(typed + ("\r" if prompt == ">" else "\n"))
        if not t.wait(lambda: t.row > first and t.text().endswith("\n" + prompt), 120):
            sys.exit("make_pictures: no prompt %s after %s:\n%s" % (prompt, typed, t.text()))
    rows = t.text().splitlines()[:-1]
    t.close()

    # What was typed: from a prompt to the end of the line.
    return [[(char, "mark" if row.startswith(("$ ", "> ")) else t.classes.get((i, j), "ink")) for j, char in enumerate(row)]
            for i, row in enumerate(rows)]


def terminal(model):
    with tempfile.TemporaryDirectory() as folder:
        rows = record(model, folder)
    shapes = []
    for i, row in enumerate(rows):
        column = 0
        for name, run in itertools.groupby(row, key=lambda cell: cell[1]):
            content = "".join(char for char, _ in run)
            shapes.append(text(EDGE + column * CHAR, EDGE + LINE * (i + 0.75), name, content, len(content)))
            column += len(content)
    write_svg("terminal", "A story, a chat and a JSON answer in a terminal", 2 * EDGE + 80 * CHAR, 2 * EDGE + LINE * len(rows), shapes)


def ratio_of(row):
    """(speed of llama31 relative to the fastest peer, that peer's speed and name); None if no peer was measured."""
    peers = [(float(row[name]), name) for name in ("llama.cpp", "ik_llama.cpp") if row[name]]
    if peers:
        return float(row["llama31"]) / max(peers)[0], *max(peers)
    if row["ratio to llama.cpp"]:
        return float(row["ratio to llama.cpp"]), None, "llama.cpp"
    return None


def speed():
    with open(os.path.join(PICTURES, "measured.csv"), encoding="utf-8") as f:
        rows = [r for r in csv.DictReader(f) if ratio_of(r) and not r["test"].startswith("start")]
    kinds = {"prefill": "reads a prompt", "decode": "writes an answer", "batch of 8": "writes 8 answers at once"}
    width, column, scale = 800, 260, 18  # scale: pixels per unit of the ratio
    shapes = [text(EDGE, 28, "ink bold", "Speed of llama31 relative to the faster of llama.cpp and ik_llama.cpp"),
              text(EDGE, 46, "dim", "Q4_K_M. Tokens per second: llama31, then the peer (ik: ik_llama.cpp). The line is 1: equal speed.")]
    shapes += [text(EDGE + i * column, 70, "ink", title) for i, title in enumerate(kinds.values())]
    y = 76

    # A group of rows is what was measured together: a model on a machine. Groups with a single kind of test are left out.
    for group, tests in itertools.groupby(rows, key=lambda r: (r["model"], r["type"], r["machine"], r["instructions"], r["date"])):
        cells = {}
        for row in tests:
            kind = next((k for k in kinds if row["test"] in (k, k + " 256", k + " 512")), None)
            if kind and row["type"] == "Q4_K_M":
                cells[kind] = row
        if len(cells) < 2:
            continue
        y += 20
        shapes.append(text(EDGE, y, "ink bold", "%s, %s" % (group[0], ", ".join(group[2:]))))
        for i, kind in enumerate(kinds):
            left = EDGE + i * column
            if kind not in cells:
                continue
            ratio, value, peer = ratio_of(cells[kind])
            label = "%.1f x  %s" % (ratio, cells[kind]["llama31"])
            if value:
                label += " : " + cells[kind][peer] + (" ik" if peer == "ik_llama.cpp" else "")
            shapes.append('<rect class="%s" x="%g" y="%g" width="%.1f" height="12" rx="2"/>' %
                          ("mark" if ratio > 1 else "peer", left, y + 6, ratio * scale))
            shapes.append('<rect class="ink" x="%g" y="%g" width="1" height="16"/>' % (left + scale, y + 4))
            shapes.append(text(left + max(ratio, 1) * scale + 6, y + 16, "dim", label))
        y += 20

    ratio, row = min(((ratio_of(r)[0], r) for r in rows), key=lambda pair: pair[0])
    lowest = "Lowest of all %d figures: %.2f (%s of %s %s, %s)." % (len(rows), ratio, row["test"], row["model"], row["type"], row["machine"])
    shapes.append(text(EDGE, y + 24, "dim", lowest))
    write_svg("speed", "Speed of llama31 relative to llama.cpp and ik_llama.cpp", width, y + 36, shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=("terminal", "speed"))
    parser.add_argument("model", nargs="?", metavar="MODEL.gguf", help="of the terminal")
    args = parser.parse_args()
    if (args.picture == "terminal") != bool(args.model):
        parser.error("expected terminal MODEL.gguf, or speed")
    if args.model:
        terminal(args.model)
    else:
        speed()


if __name__ == "__main__":
    main()
