#!/usr/bin/env python3
"""Generates base/nfc_table.txt, the tables of Unicode Normalization Form C, from Python's unicodedata.

usage: make_nfc.py > base/nfc_table.txt

The file is a list of numbers in base 31, the last digit first. Digits are the characters from @ on, except the backslash;
all digits of a number but the final one are 31 greater. Its numbers are: the count of decompositions, then three for each;
the count of runs of characters with one combining class, then three for each.

Decompositions of assigned characters never change. Characters that are newer than the tables are left as they are."""
import textwrap
import unicodedata

HANGUL = range(0xac00, 0xac00 + 11172)  # composed by arithmetic


def encode(number):
    text = ""
    while number >= 31:
        text += character(31 + number % 31)
        number //= 31
    return text + character(number)


def character(digit):
    return chr(64 + digit + (digit >= 28))


def signed(number):
    """Negative numbers become odd, others even."""
    return 2 * number if number >= 0 else -2 * number - 1


def mappings():
    """Distance from the code before; first character, relative to the one before; then 0 if there is no second one, else
    2 (1 + the second one, relative to the second one before), and 1 more if the two do not compose."""
    code = first = second = 0
    for c in range(0x110000):
        parts = unicodedata.decomposition(chr(c)).split()
        if not parts or parts[0].startswith("<") or c in HANGUL:
            continue
        parts = [int(p, 16) for p in parts]
        last = 0
        if len(parts) == 2:
            is_excluded = unicodedata.normalize("NFC", chr(c)) != chr(c)
            last = 2 * (1 + signed(parts[1] - second)) + is_excluded
            second = parts[1]
        yield c - code, signed(parts[0] - first), last
        code, first = c, parts[0]


def runs():
    """Distance from the end of the run before, length, class."""
    end = c = 0
    while c < 0x110000:
        kind, start = unicodedata.combining(chr(c)), c
        while c < 0x110000 and unicodedata.combining(chr(c)) == kind:
            c += 1
        if kind:
            yield start - end, c - start, kind
            end = c


def main():
    text = ""
    for table in (list(mappings()), list(runs())):
        text += encode(len(table)) + "".join(encode(number) for row in table for number in row)
    print("\n".join(textwrap.wrap(text, 118)))


main()
