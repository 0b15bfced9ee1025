#!/usr/bin/env python3
"""Generates base/nfc_table.txt, the tables of Unicode Normalization Form C, from Python's unicodedata.

    make_nfc.py > base/nfc_table.txt

The file is a list of decimal numbers: the count of decompositions, then a row for each; the count of runs of characters
with one combining class, then a row for each.

Decompositions of assigned characters never change. Characters that are newer than the tables are left as they are."""
import lib.interrupt  # noqa: F401
import argparse
import textwrap
import unicodedata

HANGUL = range(0xac00, 0xac00 + 11172)  # composed by arithmetic


def mappings():
    """A code; the characters that it decomposes to, the second one 0 if there is only one; 1 if the two compose, else 0."""
    for c in range(0x110000):
        parts = unicodedata.decomposition(chr(c)).split()
        if not parts or parts[0].startswith("<") or c in HANGUL:
            continue
        first, second = [int(p, 16) for p in parts] + [0] * (2 - len(parts))
        yield c, first, second, int(second > 0 and unicodedata.normalize("NFC", chr(c)) == chr(c))


def runs():
    """First character, end, class."""
    c = 0
    while c < 0x110000:
        kind, start = unicodedata.combining(chr(c)), c
        while c < 0x110000 and unicodedata.combining(chr(c)) == kind:
            c += 1
        if kind:
            yield start, c, kind


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    numbers = []
    for table in (list(mappings()), list(runs())):
        numbers += [len(table)] + [number for row in table for number in row]
    print("\n".join(textwrap.wrap(" ".join(map(str, numbers)), 118)))


main()
