#!/usr/bin/env python3
"""Plots the output of `llama31 rope --json` as SVG or as text.

    llama31 rope --dim 128 --theta 500000 --compare none,linear,ntk,yarn,llama3 --json | scripts/plot_rope.py -o f.svg
    llama31 rope --dim 128 --theta 500000 --positions 0..255 --json | scripts/plot_rope.py --text

Frequencies are plotted by rule. For a table with --positions, the plot is cos and sin over position and pair; with
--rotate, the pairs of a vector (x[2i], x[2i+1]), rotated; with --decay, the mean of q.k over the distance of q and k."""
import lib.interrupt  # noqa: F401
import argparse
import base64
import html
import json
import math
import os
import struct
import sys
import zlib

WIDTH, LEFT, RIGHT, FONT = 760, 70, 20, "font-family='sans-serif' font-size='13'"
# Lines differ in lightness and dashes, so that they are distinct without colors.
STYLES = [("#000000", ""), ("#c25b00", "8 4"), ("#8a8a8a", ""), ("#1f5fae", "2 3"), ("#0a7d5a", "10 3 2 3"),
          ("#b03a8c", "4 2"), ("#5d4a1f", "1 2")]
SHADES = [(16, 22, 64), (32, 84, 130), (96, 150, 150), (190, 205, 150), (255, 248, 214)]  # from -1 to 1, increasingly light
SYMBOLS = "oxsvanm"
DENSITY = " .:-=+*#%@"


def shade(x):
    """The color of a value from -1 to 1."""
    at = min(max((x + 1) / 2, 0), 1) * (len(SHADES) - 1)
    k = min(int(at), len(SHADES) - 2)
    return tuple(round(a + (b - a) * (at - k)) for a, b in zip(SHADES[k], SHADES[k + 1]))


def number(x):
    return ("%.1f" % x).rstrip("0").rstrip(".")


class Svg:
    def __init__(self, height):
        self.out = ["<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' %s>"
                    % (WIDTH, height, WIDTH, height, FONT), "<rect width='100%' height='100%' fill='white'/>"]

    def text(self, x, y, text, anchor="middle", more=""):
        self.out.append("<text x='%s' y='%s' text-anchor='%s'%s>%s</text>"
                        % (number(x), number(y), anchor, more, html.escape(text)))

    def line(self, x1, y1, x2, y2, color="#888888", width=1, dash=""):
        self.path([(x1, y1), (x2, y2)], color, width, dash)

    def path(self, points, color, width=1, dash=""):
        self.out.append("<polyline fill='none' stroke='%s' stroke-width='%s'%s points='%s'/>"
                        % (color, number(width), " stroke-dasharray='%s'" % dash if dash else "",
                           " ".join(number(x) + "," + number(y) for x, y in points)))

    def image(self, x, y, width, height, rows):
        """Rows of values from -1 to 1 as an uncompressed PNG, so that the bytes do not depend on the zlib version."""
        data = b"".join(b"\0" + bytes(min(max(round((v + 1) * 127.5), 0), 255) for v in row) for row in rows)
        palette = b"".join(bytes(shade(k / 127.5 - 1)) for k in range(256))
        blocks = [data[i:i + 65535] for i in range(0, len(data), 65535)]
        stored = b"".join(struct.pack("<BHH", b is blocks[-1], len(b), len(b) ^ 0xffff) + b for b in blocks)
        parts = [(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)), (b"PLTE", palette),
                 (b"IDAT", b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(data))), (b"IEND", b"")]
        png = b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
                                              for k, d in parts)
        self.out.append("<image x='%s' y='%s' width='%s' height='%s' preserveAspectRatio='none' "
                        "style='image-rendering:pixelated' href='data:image/png;base64,%s'/>"
                        % (number(x), number(y), number(width), number(height), base64.b64encode(png).decode()))

    def end(self):
        return "\n".join(self.out + ["</svg>"]) + "\n"


class Axis:
    """Maps values first..last to pixels begin..end. Logarithmic axes have ticks at powers of ten."""

    def __init__(self, first, last, begin, end, is_log=False):
        self.first, self.last, self.begin, self.end, self.is_log = first, last, begin, end, is_log

    def at(self, v):
        f = math.log if self.is_log else float
        share = (f(v) - f(self.first)) / ((f(self.last) - f(self.first)) or 1)
        return self.begin + share * (self.end - self.begin)

    def ticks(self):
        if self.is_log:
            powers = range(math.ceil(math.log10(self.first) - 1e-9), math.floor(math.log10(self.last) + 1e-9) + 1)
            return [10.0 ** k for k in powers]
        span = abs(self.last - self.first) or 1
        step = 10.0 ** math.floor(math.log10(span / 4))
        for multiple in (1, 2, 5):
            if span / (step * multiple) <= 8:
                step *= multiple
                break
        low, high = sorted((self.first, self.last))
        return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]

    def label(self, v):
        return "10^%d" % round(math.log10(v)) if self.is_log and v >= 1e4 else "%.6g" % v


def frame(svg, x, y, x_name, y_name):
    """Draws ticks, grid, labels and box of a panel."""
    for v in x.ticks():
        svg.line(x.at(v), y.begin, x.at(v), y.end, "#e0e0e0")
        svg.text(x.at(v), max(y.begin, y.end) + 18, x.label(v))
    for v in y.ticks():
        svg.line(x.begin, y.at(v), x.end, y.at(v), "#e0e0e0")
        svg.text(x.begin - 8, y.at(v) + 4, y.label(v), "end")
    svg.path([(x.begin, y.begin), (x.end, y.begin), (x.end, y.end), (x.begin, y.end), (x.begin, y.begin)], "#444444")
    svg.text((x.begin + x.end) / 2, max(y.begin, y.end) + 38, x_name)
    middle = (y.begin + y.end) / 2
    svg.text(x.begin - 52, middle, y_name, more=" transform='rotate(-90 %s %s)'" % (number(x.begin - 52), number(middle)))


def legend(svg, names, x, y):
    for k, name in enumerate(names):
        color, dash = STYLES[k % len(STYLES)]
        svg.line(x, y + 18 * k, x + 34, y + 18 * k, color, 2.2, dash)
        svg.text(x + 42, y + 18 * k + 4, name, "start")


def curves(svg, x, y, lines):
    for k, points in enumerate(lines):
        color, dash = STYLES[k % len(STYLES)]
        svg.path([(x.at(a), y.at(b)) for a, b in points], color, 2.2, dash)


def by_rule(table, name):
    """The values of a column, one list per rule."""
    rules = table["rules"]
    keys = [name] if name in table["rows"][0] else ["%s.%s" % (rule, name) for rule in rules]
    return [[row[key] for row in table["rows"]] for key in keys if key in table["rows"][0]]


def frequencies(table):
    rows, names, values = table["rows"], table["rules"], by_rule(table, "frequency")
    pairs = [row["i"] for row in rows]
    waves = [[2 * math.pi / v for v in line] for line in values]
    base = by_rule(table, "unscaled")[:1] or [v for name, v in zip(names, values) if name == "none"]
    context, factor = table["original_context"], table["factor"]

    svg = Svg(680 if base else 420)
    x = Axis(pairs[0], pairs[-1], LEFT, WIDTH - RIGHT)
    y = Axis(min(map(min, waves)), max(map(max, waves)) * 1.5, 350, 40, True)

    svg.text(WIDTH / 2, 22, "Wavelength of each pair, in positions (dim %g, theta %g)" % (table["dim"], table["theta"]))
    frame(svg, x, y, "pair i of dimensions (2i, 2i+1)", "wavelength")

    for n, name in ((context, "context before scaling: %d"), (context * factor, "times the factor: %d")):
        if y.first < n < y.last:
            svg.line(x.begin, y.at(n), x.end, y.at(n), "#444444", 1, "3 3")
            svg.text(x.begin + 8, y.at(n) - 5, name % n, "start")

    curves(svg, x, y, [list(zip(pairs, line)) for line in waves])
    legend(svg, names, x.end - 130, 350 - 18 * len(names))

    # Below it: the frequencies relative to the unscaled ones.
    if base:
        shares = [[a / b for a, b in zip(line, base[0])] for line in values]
        y = Axis(0, 1.05, 620, 430)
        frame(svg, x, y, "pair i", "frequency / unscaled")
        curves(svg, x, y, [list(zip(pairs, line)) for line in shares])
    return svg.end()


def grid(table, name):
    """Column `name` of the first rule, one row per position."""
    n = table["dim"] // 2
    values = by_rule(table, name)[0]
    return [values[k:k + n] for k in range(0, len(values), n)]


def heat(table):
    positions = [row["pos"] for row in table["rows"]][::table["dim"] // 2]
    height = min(max(len(positions) * 2, 240), 520)
    svg = Svg(height + 120)
    svg.text(WIDTH / 2, 22, "The cis table: rule %s, dim %g, theta %g" % (table["rules"][0], table["dim"], table["theta"]))
    for k, name in enumerate(("cos", "sin")):
        begin = LEFT + k * 350
        x = Axis(-0.5, table["dim"] // 2 - 0.5, begin, begin + 290)
        y = Axis(positions[0], positions[-1], 50, 50 + height)
        frame(svg, x, y, "pair i", "position" if k == 0 else "")
        svg.image(begin, 50, 290, height, grid(table, name))
        svg.text(begin + 145, 43, name)
    svg.image(LEFT + 230, height + 102, 180, 10, [[k / 64 - 1 for k in range(129)]])
    svg.text(LEFT + 222, height + 112, "-1", "end")
    svg.text(LEFT + 418, height + 112, "1", "start")
    return svg.end()


def rotated(table, vector):
    """The pairs of a vector, complex, and their rotation at each position, by the first rule."""
    n = table["dim"] // 2
    if len(vector) > 2 * n:
        sys.exit("plot_rope.py: --rotate: expected at most %d numbers" % (2 * n))
    vector = vector + [0] * (2 * n - len(vector))
    pairs = [complex(vector[2 * i], vector[2 * i + 1]) for i in range(n)]
    turns = [[complex(c, s) for c, s in zip(*rows)] for rows in zip(grid(table, "cos"), grid(table, "sin"))]
    return pairs, [[x * turn for x, turn in zip(pairs, row)] for row in turns]


def rotation(table, vector):
    """A circle for each of up to eight pairs, with the rotated pair at every position; later positions are darker."""
    pairs, turned = rotated(table, vector)
    n, rows = table["dim"] // 2, table["rows"]

    # Up to eight pairs that are not zero, evenly chosen.
    nonzero = [k for k in range(n) if pairs[k]] or [0]
    shown = [nonzero[k * (len(nonzero) - 1) // max(min(len(nonzero), 8) - 1, 1)] for k in range(min(len(nonzero), 8))]

    positions = [row["pos"] for row in rows][::n]
    size, across = 180, 4

    svg = Svg(60 + 215 * ((len(shown) + across - 1) // across))
    svg.text(WIDTH / 2, 22, "Pairs of a vector turned at positions %s (rule %s, theta %g); darker is later"
             % (", ".join(map(str, positions)) if len(positions) <= 8 else "%d to %d" % (positions[0], positions[-1]),
                table["rules"][0], table["theta"]))

    for k, i in enumerate(shown):
        cx, cy = 20 + size * (k % across) + size / 2, 60 + 215 * (k // across) + 80
        scale = 68 / max(abs(pairs[i]), 1e-30)

        svg.out.append("<circle cx='%s' cy='%s' r='68' fill='none' stroke='#b0b0b0'/>" % (number(cx), number(cy)))
        svg.line(cx - 74, cy, cx + 74, cy, "#d8d8d8")
        svg.line(cx, cy - 74, cx, cy + 74, "#d8d8d8")

        for p in range(len(positions)):
            dx, dy = turned[p][i].real * scale, -turned[p][i].imag * scale
            color = "#%02x%02x%02x" % tuple(round(200 - c * p / max(len(positions) - 1, 1)) for c in (200, 160, 90))
            svg.line(cx, cy, cx + dx, cy + dy, color, 2)
            svg.out.append("<circle cx='%s' cy='%s' r='3.5' fill='%s'/>" % (number(cx + dx), number(cy + dy), color))

        svg.text(cx, cy + 96, "pair %d" % i)
    return svg.end()


def means(table):
    """The mean of q.k over all q = k of length 1, by distance and rule: pair i contributes the cosine of its angle,
    times the square of the rule's scale."""
    n = table["dim"] // 2
    lines = []
    for cos, sin in zip(by_rule(table, "cos"), by_rule(table, "sin")):
        scale = math.hypot(cos[0], sin[0])
        lines.append([sum(cos[k:k + n]) / n * scale for k in range(0, len(cos), n)])
    return [row["pos"] for row in table["rows"]][::n], lines


def decay(table):
    distances, lines = means(table)
    svg = Svg(420)
    x = Axis(distances[0], distances[-1], LEFT, WIDTH - RIGHT)
    y = Axis(min(0, min(map(min, lines))), max(1, max(map(max, lines))), 350, 40)
    svg.text(WIDTH / 2, 22, "Mean of q.k over the distance of q and k (dim %g, theta %g)" % (table["dim"], table["theta"]))
    frame(svg, x, y, "distance in positions", "mean of q.k, |q| = |k| = 1")
    curves(svg, x, y, [list(zip(distances, line)) for line in lines])
    legend(svg, table["rules"], x.end - 130, 60)
    return svg.end()


def text_curves(x, lines, names, title, is_log=False):
    """Plots lines with characters on 64 columns and 18 rows."""
    f = math.log10 if is_log else float
    low, high = min(f(v) for line in lines for v in line), max(f(v) for line in lines for v in line)
    cells = [[" "] * 64 for _ in range(18)]
    for k, line in enumerate(lines):
        for a, v in zip(x, line):
            column = round(63 * (a - x[0]) / ((x[-1] - x[0]) or 1))
            cells[17 - round(17 * (f(v) - low) / ((high - low) or 1))][column] = SYMBOLS[k % len(SYMBOLS)]
    out = [title]
    for k, row in enumerate(cells):
        v = high - (high - low) * k / 17
        out.append("%9.4g |%s" % (10 ** v if is_log else v, "".join(row).rstrip()))
    out += [" " * 10 + "+" + "-" * 64, "%11g%63g" % (x[0], x[-1])]
    return "\n".join(out + ["  ".join("%s %s" % (SYMBOLS[k % len(SYMBOLS)], name) for k, name in enumerate(names))]) + "\n"


def text_heat(table):
    out = ["cos (left) and sin over position (down) and pair (across): %s is -1 to 1" % DENSITY.replace(" ", "_")]
    cos, sin = grid(table, "cos"), grid(table, "sin")
    n, every = len(cos[0]), -(-len(cos) // 40)
    columns = [k * n // min(n, 32) for k in range(min(n, 32))]
    for k in range(0, len(cos), every):
        halves = ["".join(DENSITY[min(int((grid_row[c] + 1) * 5), 9)] for c in columns) for grid_row in (cos[k], sin[k])]
        out.append("%8d |%s| |%s|" % (table["rows"][k * n]["pos"], *halves))
    return "\n".join(out) + "\n"


def text_rotation(table, vector):
    pairs, turned = rotated(table, vector)
    out = ["     pos  pair          x          y  rotated x  rotated y"]
    for k, row in enumerate(table["rows"]):
        x, y = pairs[k % len(pairs)], turned[k // len(pairs)][k % len(pairs)]
        if x:
            out.append("%8d %5d %10.6f %10.6f %10.6f %10.6f" % (row["pos"], row["i"], x.real, x.imag, y.real, y.imag))
    return "\n".join(out) + "\n"


def picture(table, is_text, vector, is_decay):
    names = {name.split(".")[-1] for name in table["rows"][0]} if table["rows"] else set()
    has_cis = "cos" in names and "sin" in names
    if (vector or is_decay) and not has_cis:
        sys.exit("plot_rope.py: --rotate and --decay need cos and sin; run llama31 rope with --positions")
    if is_decay:
        x, lines = means(table)
        return text_curves(x, lines, table["rules"], "mean of q.k over distance") if is_text else decay(table)
    if vector:
        return text_rotation(table, vector) if is_text else rotation(table, vector)
    if has_cis:
        return text_heat(table) if is_text else heat(table)
    if "frequency" not in names:
        sys.exit("plot_rope.py: no column to plot; expected frequency, or cos and sin")
    waves = [[2 * math.pi / v for v in line] for line in by_rule(table, "frequency")]
    x = [row["i"] for row in table["rows"]]
    return text_curves(x, waves, table["rules"], "wavelength of each pair", True) if is_text else frequencies(table)


def numbers(text):
    """The finite numbers of a comma-separated list."""
    values = [float(x) for x in text.split(",")]
    if not all(map(math.isfinite, values)):
        raise ValueError
    return values


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", nargs="?", help="output of llama31 rope --json (default: stdin)")
    p.add_argument("-o", "--output", help="output file (default: stdout)")
    p.add_argument("--text", action="store_true", help="plot with characters, 80 columns wide")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--rotate", type=numbers, metavar="X,Y,...", help="plot the rotated pairs of a vector; missing numbers are 0")
    what.add_argument("--decay", action="store_true", help="plot the mean of q.k over the distance")
    args = p.parse_args()

    if args.output and not args.text and os.path.splitext(args.output)[1] not in ("", ".svg"):
        sys.exit("plot_rope.py: %s: the plot is SVG; use a name that ends in .svg, which browsers open" % args.output)

    if not args.file and sys.stdin.isatty():
        print("plot_rope.py: reading the output of llama31 rope --json from the terminal", file=sys.stderr)

    try:
        with open(args.file) if args.file else sys.stdin as f:
            table = json.load(f)
        drawn = picture(table, args.text, args.rotate, args.decay)
        with open(args.output, "w") if args.output else sys.stdout as f:
            f.write(drawn)
    except OSError as e:
        sys.exit("plot_rope.py: %s: %s" % (e.filename, e.strerror))
    except (ValueError, KeyError, TypeError) as e:
        sys.exit("plot_rope.py: not an output of llama31 rope --json: %s" % e)


if __name__ == "__main__":
    main()
