#!/usr/bin/env python3
"""Constraints: verdicts about texts of real schemas, refused constraints, generated texts."""
import datetime
import decimal
import enum
import glob
import ipaddress
import itertools
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import typing
import unicodedata
import uuid

from cli import DATA, Skip, check, in_ci, main, read_lines, run_batch, same, slow, some, test
import schema_closed
from schema_check import is_valid
from schema_random import Random

SUITE = os.environ.get("LLAMA31_SCHEMA_SUITE", "/usr/share/json-schema-test-suite/tests")
EVERY = int(os.environ.get("LLAMA31_EVERY", in_ci(8, 64)))  # test one of EVERY real schemas


ANY = "--any-order", "--extra-properties"  # every valid value can be generated, in any order


def tokenize(cli, texts, *args, code=0):
    out, err = cli.run("tokenize", "--jsonl", *args, stdin="".join(json.dumps(t) + "\n" for t in texts).encode(),
                       code=code)
    return [json.loads(line) for line in out.splitlines()], err


def verdicts(cli, texts, schema, *args):
    """For each text, whether it is valid and whether it is accepted; an accepted text is valid."""
    found = [(r["valid"], r["accepted"]) for r in tokenize(cli, texts, "--json-schema", schema, *args)[0]]
    for text, verdict in zip(texts, found):
        check(verdict != (False, True), "accepted, but not valid:", text, "for", schema)
    return found


def plain(value):
    """The value with integers as they are generated: 1 for 1.0."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return int(decimal.Decimal(repr(value))) if isinstance(value, float) and value == int(value) else value


def same_accepted(accepted, expected, text, name):
    """Integers of more than 19 digits need not be accepted."""
    check(accepted == expected or expected and re.search(r"\d{20}", text), name, text[:200], "accepted:", accepted)


def orders(value, limit):
    """The value with the properties of its objects in every order, or the first `limit` of them."""
    found = iter([value])
    if isinstance(value, list):
        found = map(list, itertools.product(*(orders(x, limit) for x in value)))
    if isinstance(value, dict):
        members = [[(k, x) for x in orders(v, limit)] for k, v in value.items()]
        found = (dict(m) for p in itertools.permutations(members) for m in itertools.product(*p))
    return list(itertools.islice(found, limit))


def check_orders(cli, schema, values, valid, name):
    """Each valid value is accepted in one of all orders. No other value is."""
    MAX_ORDERS = in_ci(24, 6)
    texts = [[json.dumps(v) for v in orders(value, MAX_ORDERS + 1)] for value in values]
    if all(len(some) == 1 for some in texts):
        return
    found = iter(verdicts(cli, [t for some in texts for t in some], schema, "--extra-properties"))
    for some, expected in zip(texts, valid):
        is_accepted = any([next(found)[1] for _ in some])
        if is_accepted or len(some) <= MAX_ORDERS:
            same_accepted(is_accepted, expected, some[0], name)


def reverse_properties(value):
    """The value with the properties of all objects in the opposite order."""
    if isinstance(value, dict):
        return {k: reverse_properties(v) for k, v in reversed(list(value.items()))}
    return [reverse_properties(v) for v in value] if isinstance(value, list) else value


def json_texts(value):
    """The value as JSON in all supported styles."""
    return [json.dumps(value), json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2),
            json.dumps(reverse_properties(value)), json.dumps(value, ensure_ascii=False)]


@test
def real_schemas(cli):
    """Texts are valid in every style, and accepted as they are generated; at most a tenth of the schemas is refused."""
    path = os.path.join(DATA, "jsonschema", "schemas.jsonl.xz")
    if not os.path.exists(path):
        raise Skip("no " + path)
    n = n_refused = 0
    for i, line in enumerate(lzma.open(path)):
        if i % EVERY:
            continue
        r = json.loads(line)
        schema = cli.write("schema.json", [r["schema"]])
        texts = [(text, t["valid"]) for t in r["tests"] for text in json_texts(t["data"])]
        values, valid = [plain(t["data"]) for t in r["tests"]], [t["valid"] for t in r["tests"]]
        written = list(map(json.dumps, values))  # as it is generated
        n += 1
        try:
            results, _ = tokenize(cli, written + [t for t, _ in texts], "--json-schema", "@" + schema, *ANY)
        except AssertionError:
            _, err = tokenize(cli, [], "--json-schema", "@" + schema, code=2)
            check("JSON Schema, #" in err, r["name"], err)
            n_refused += 1
            continue
        for result, (text, is_valid) in zip(results, list(zip(written, valid)) + texts):
            same(result["valid"], is_valid, "%s: %s: %s" % (r["name"], text[:200], result.get("error")))
        for result, text, is_valid in zip(results, written, valid):
            same_accepted(result["accepted"], is_valid, text, r["name"])
        check_orders(cli, "@" + schema, values, valid, r["name"])
    check(n_refused * 10 <= n, n_refused, "of", n, "schemas are refused")


def generate(cli, schemas, is_closed):
    """A text for each schema, sampled at temperature 2. None: refused, or cut off."""
    texts, size = [], 50  # a batch per 50 schemas
    for begin in range(0, len(schemas), size):
        lines = [{"id": i, "prompt": "x", "json_schema": s, "temperature": 2, "top_k": 0, "top_p": 1, "seed": begin + i,
                  "max_tokens": 150, "any_order": i % 2 == 0, "extra_properties": not is_closed}
                 for i, s in enumerate(schemas[begin:begin + size])]
        path = cli.write("in.jsonl", lines)
        r = subprocess.run(cli.command("batch", "-i", path, "-q"), capture_output=True, timeout=300)
        check(r.returncode >= 0, "batch ends with signal", -r.returncode, path)
        found = {r["id"]: r for r in map(json.loads, r.stdout.splitlines())}
        texts += [found[i]["text"] if found[i].get("finish_reason") == "stop" and "incomplete" not in found[i] else None
                  for i in range(len(lines))]
    return texts


def compare_schema(cli, schema, text, rng, library, strict, is_closed):
    """Compares verdicts about documents near one schema with the library's. Returns their number, or None if the schema
    is refused."""
    is_valid = library(schema).is_valid
    closed = library(schema_closed.Closer(schema).close(schema)) if is_closed else None

    def is_fit(document):
        return is_valid(document) and (not closed or closed.is_valid(document))
    documents, has_multiples = [rng.value() for _ in range(8)], "multipleOf" in json.dumps(schema)
    # In ECMA-262, "." matches no line separator, and "$" not before a final newline; in Python, they do.
    if text is not None and not re.search(r"\\r|\\n\"|\\u202[89]", json.dumps(json.loads(text))):
        found = json.loads(text)
        # Python rounds decimals and, to divide them, integers; the program does not.
        is_rounded = any(len(x) > 15 and ("." in x or has_multiples) for x in re.findall(r"[\d.]+", text))
        check(is_rounded or (is_fit(found) and strict(schema).is_valid(found)), "generated", text, "for", json.dumps(schema))
        documents += [found] + [rng.mutate(found) for _ in range(6)]
    if has_multiples:  # beside which exponents are not accepted
        documents = [d for d in documents if not re.search(r"\de[+-]|\d{16}", json.dumps(d))]
    args = ["--any-order", "--extra-properties"][:2 - is_closed] + ["--jsonl", "--json-schema", json.dumps(schema)]
    texts = [json.dumps(f(d)) for f in (lambda d: d, plain) for d in documents]
    r = subprocess.run(cli.command("tokenize", *args), capture_output=True,
                       input="".join(json.dumps(t) + "\n" for t in texts).encode())
    if r.returncode:
        check(r.returncode == 2 and b"JSON Schema, #" in r.stderr, "exit", r.returncode, r.stderr, json.dumps(schema))
        if b"no value fits" in r.stderr:
            check(not any(map(is_fit, documents)), "some value fits", json.dumps(schema), documents)
        return None
    found = list(map(json.loads, r.stdout.splitlines()))
    for verdict, document in zip(found, documents + documents):
        if "without end" in verdict.get("error", ""):  # the library may find another branch first
            continue
        same(verdict["valid"], is_valid(document), json.dumps([schema, document]))
        check(is_fit(document) or not verdict["accepted"], "accepted:", json.dumps([schema, document]))
    for text, verdict, document in list(zip(texts, found, documents + documents))[len(documents):]:
        if "without end" in verdict.get("error", ""):
            continue
        same_accepted(verdict["accepted"], is_fit(document), text, json.dumps(schema))
    return len(documents)


def compare_schemas(cli, n, rng, library, strict, is_closed):
    rng.is_closed = is_closed
    schemas = [rng.document_schema() for _ in range(n)]
    if is_closed:
        schemas = list(map(schema_closed.without_objects, schemas))
    texts = generate(cli, schemas, is_closed)
    n_documents = n_refused = n_skipped = 0
    for schema, text in zip(schemas, texts):
        try:
            found = compare_schema(cli, schema, text, rng, library, strict, is_closed)
            n_refused += found is None
            n_documents += found or 0
        except (RecursionError, schema_closed.Incomparable):  # RecursionError: the library follows endless references
            n_skipped += 1
    print("   %s: %d schemas, %d refused, %d skipped, %d generated, %d verdicts" %
          ("closed" if is_closed else "open", n, n_refused, n_skipped, sum(t is not None for t in texts), n_documents))
    check(n_refused * 2 < n, n_refused, "of", n, "schemas are refused")


@test
def random_schemas(cli):
    """Random schemas: generated texts are valid, and verdicts agree with those of python3-jsonschema. Half of the schemas
    are closed. LLAMA31_SCHEMAS sets their number, LLAMA31_SEED the seed."""
    try:
        import jsonschema
    except ImportError:
        raise Skip("no python3-jsonschema")
    library = getattr(jsonschema, "Draft202012Validator", None)
    if not library:
        raise Skip("python3-jsonschema does not know draft 2020-12")
    is_int = library.TYPE_CHECKER.redefine("integer", lambda _, x: isinstance(x, int) and not isinstance(x, bool))
    strict = jsonschema.validators.extend(library, type_checker=is_int)  # generated integers have no point
    # LLAMA31_SEED and LLAMA31_SCHEMAS search for more.
    seed = int(os.environ.get("LLAMA31_SEED") or 1)
    n = int(os.environ.get("LLAMA31_SCHEMAS", in_ci(150, 40)))
    rng = Random(random.Random(seed))
    # Early versions of the library do not evaluate the properties of "additionalProperties".
    evaluates = library({"additionalProperties": {"const": 1}, "unevaluatedProperties": False}).is_valid({"x": 1})
    try:
        for is_closed in (False, True)[:1 + evaluates]:
            compare_schemas(cli, n // 2, rng, library, strict, is_closed)
    except AssertionError as e:
        raise AssertionError("LLAMA31_SEED=%d LLAMA31_SCHEMAS=%d: %s" % (seed, n, e))
    print("   seed %d" % seed)


@test
def small_numbers(cli):
    """Numbers below the normal range of a double, as json.dumps writes them."""
    texts = ["-5e-309", "1e-312", "5e-324", "1.5e-310", "1e-325"]
    for schema, valid, accepted in ((True, [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]),
                                    ({"type": ["integer", "number"]}, [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]),
                                    ({"minimum": 0}, [0, 1, 1, 1, 1], [0, 1, 0, 1, 0]),
                                    ({"maximum": 1e-311}, [1, 1, 1, 0, 1], [1, 1, 0, 0, 0])):
        same(verdicts(cli, texts, json.dumps(schema)), list(zip(map(bool, valid), map(bool, accepted))), json.dumps(schema))


def hides_keywords(schema):
    """True if a $ref has keywords beside it. Before draft 2019-09 it hides them; generated texts satisfy them all the same."""
    annotations = {"$ref", "definitions", "$defs", "$id", "id"}
    return any(isinstance(s, dict) and "$ref" in s and set(s) - annotations for s in schema_closed.nodes(schema))


@test
def schema_suite(cli):
    """The cases of the JSON Schema Test Suite (Debian: json-schema-test-suite), by draft and keyword: verdicts agree, and
    valid values are accepted as they are generated, or the schema is refused by name, or its format is an annotation,
    which a note names."""
    drafts = {d: uri for d, uri in (("draft4", "http://json-schema.org/draft-04/schema#"),
                                    ("draft6", "http://json-schema.org/draft-06/schema#"),
                                    ("draft7", "http://json-schema.org/draft-07/schema#"),
                                    ("draft2019-09", "https://json-schema.org/draft/2019-09/schema"),
                                    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"))
              if os.path.isdir(os.path.join(SUITE, d))}
    if not drafts:
        raise Skip("no " + SUITE)
    for draft, uri in drafts.items():
        n = n_refused = 0
        for path in some(sorted(glob.glob(os.path.join(SUITE, draft, "**", "*.json"), recursive=True)), 12):
            name = os.path.basename(path)
            if name == "content.json":  # contentEncoding and contentMediaType are annotations
                continue
            for case in json.load(open(path, encoding="utf-8")):
                schema, tests = case["schema"], case["tests"]
                if isinstance(schema, dict):
                    schema = {"$schema": uri, **schema}
                schema = cli.write("schema.json", [schema])
                n += len(tests)
                values = [t["data"] if draft == "draft4" else plain(t["data"]) for t in tests]  # there, 1.0 is no integer
                written, valid = list(map(json.dumps, values)), [t["valid"] for t in tests]
                texts = written + [json.dumps(t["data"]) for t in tests]
                out, err = cli.run("tokenize", "--jsonl", "--json-schema", "@" + schema, *ANY, code=(0, 2),
                                   stdin="".join(json.dumps(t) + "\n" for t in texts).encode())
                if "no value fits" in err:
                    check(not any(t["valid"] for t in tests), draft, name, case["description"], err)
                elif re.search("ignored.*#/format", err) or not out:  # an annotation; refused
                    check("JSON Schema" in err, draft, name, case["description"], err)
                    n_refused += len(tests)
                else:
                    place = " ".join((draft, name, case["description"]))
                    results = list(map(json.loads, out.splitlines()))
                    same([r["valid"] for r in results], valid + valid, place)
                    has_format = '"format"' in json.dumps(case["schema"])  # of which not all texts are generated
                    is_hiding = draft in ("draft4", "draft6", "draft7") and hides_keywords(case["schema"])
                    for result, text, is_valid in zip(results, written, valid):
                        if not (has_format or is_hiding) or result["accepted"]:
                            same_accepted(result["accepted"], is_valid, text, place)
                    if not is_hiding:
                        check_orders(cli, "@" + schema, values, valid, place)
        print("   %s: %d verdicts, %d refused" % (draft, n - n_refused, n_refused))
        check(n_refused * 4 < n, draft, n_refused, "of", n, "refused")


@test
def checked_texts(cli):
    for name in cli.write("s.json", [{"const": 1}]), "@" + cli.path_of("s.json"):  # a file; the "@" is optional here
        same([r["accepted"] for r in tokenize(cli, ["1", "2"], "--json-schema", name)[0]], [True, False])
    results, err = tokenize(cli, ["{}", '{"a": 1}', '{"a": 1', '{"a":1}x', "", '{"a":1.0}'], "--json-schema",
                            '{"properties":{"a":{"type":"integer"}},"type":"object"}')
    same([r["accepted"] for r in results], [True, True, False, False, False, False])
    same([r["valid"] for r in results], [True, True, False, False, False, True])
    same([r["at"] for r in results], [2, 8, 7, 7, 0, 6])
    same(["error" in r for r in results], [False, False, True, True, True, False])
    check("compiled in" in err, err)
    results, _ = tokenize(cli, ["12", "1x"], "--regex", "[0-9]+")
    same([r["accepted"] for r in results], [True, False])
    check("valid" not in results[0], results)
    grammar = cli.write("g.gbnf", ['root ::= "a" b*', 'b ::= "b" | "(" b ")"'])
    results, _ = tokenize(cli, ["abb(b)", "ab)"], "--grammar", grammar)
    same([r["accepted"] for r in results], [True, False])


@test
def general_categories(cli):
    """\\p{...} of every general category, against Python's unicodedata, as far as it has not changed since Unicode 3.2."""
    by_name = {}
    for c in map(chr, range(0x110000)):
        name = unicodedata.category(c)
        if name != "Cs" and name == unicodedata.ucd_3_2_0.category(c) and (name != "Cn" or not ord(c) & 0xfffe ^ 0xfffe):
            by_name.setdefault(name, []).append(c)
    rng = random.Random(1)
    texts = [(rng.choice(chars), name) for name, chars in by_name.items() for _ in range(8)]
    for name in sorted(by_name) + list("LMNPSZC"):
        for letter, is_negated in some((("p", False), ("P", True)), 2):
            results, _ = tokenize(cli, [c for c, _ in texts], "--regex", r"\%s{%s}" % (letter, name))
            for (c, category), r in zip(texts, results):
                same(r["accepted"], category.startswith(name) != is_negated, "%s %r" % (name, c))


@test
def lookaheads(cli):
    """Random patterns with lookahead at any place outside repetitions, and with lookbehind, against Python's re. Half of
    them are multiline. LLAMA31_PATTERNS sets their number, LLAMA31_SEED the seed."""
    seed = int(os.environ.get("LLAMA31_SEED", 1))
    rng = random.Random(seed)

    def items(n, *ends):
        atoms = ["a", "b", "[ab]", "[^a]", ".", "(?:a|bc)", "(?:|b$)"]
        return "".join(rng.choice(atoms) + rng.choice(["", "*", "?", "{1,2}"])
                       for _ in range(rng.randint(0, n))) + rng.choice(["", "$", *ends])

    def ahead():
        return rng.choice(["^", "(?=" + items(2, "|^c") + ")", "(?!" + items(2, "|^c") + ")"])

    def alternative(depth):
        text = "".join(ahead() for _ in range(rng.randint(0, 2))) + items(2)
        if depth and rng.random() < 0.7:
            group = "|".join(alternative(depth - 1) for _ in range(rng.randint(1, 2)))
            text += "(?:%s)%s" % (group, rng.choice(["", "?"])) + items(2)
        if rng.random() < 0.3:
            text += rng.choice(["a", "[ab]"]) + ahead() + items(2)
        return rng.choice(["", "", "", "(?<=[bc])"]) + text

    n = int(os.environ.get("LLAMA31_PATTERNS", 80))
    texts = ["".join(t) for n in range(5) for t in itertools.product("abc", repeat=n)]
    lines = ["".join(t) for n in range(4) for t in itertools.product("ab\n", repeat=n)]
    patterns = ["|".join(alternative(2) for _ in range(rng.randint(1, 2))) for _ in range(n)]
    patterns[1::2] = [p.replace("(?:|b$)", "(?:|b)") for p in patterns[1::2]]  # else a lookahead in repetitions
    n_refused = 0
    for i, p in enumerate(patterns):
        flags = "(?m:%s)" if i % 2 else "%s"
        chosen = rng.sample(lines if i % 2 else texts, 40)
        if re.search(r"\$.*\^", p):
            chosen = [t or "a" for t in chosen]  # the end of the text before its beginning, which matches no text here
        schema = json.dumps({"pattern": flags % p})
        out, err = cli.run("tokenize", "--jsonl", "--json-schema", schema, code=(0, 2),
                           stdin="".join(json.dumps(json.dumps(t)) + "\n" for t in chosen).encode())
        if not out:
            check(re.search("lookbehind next to|in a repetition|too complex|no value fits", err), p, err)
            n_refused += "no value fits" not in err and i % 2 == 0
            continue
        expected = re.compile((p if i % 2 else p.replace("$", r"\Z")), re.M if i % 2 else 0)
        for t, r in zip(chosen, map(json.loads, out.splitlines())):
            same((r["valid"], r["accepted"]), (bool(expected.search(t)),) * 2, "%d %s %r" % (seed, p, t))
    print("   %d patterns, %d refused" % (n, n_refused))
    check(n_refused * 3 < n, n_refused, "of", n, "patterns are refused")


@test
def invalid_constraints(cli):
    for args, why in ((["--regex", "("], "character 2"), (["--json-schema", "{"], "JSON Schema"),
                      (["--json-schema", '{"$ref":5}'], '#: "$ref": expected a string'),
                      (["--json-schema", '{"contains":{}}', "--strict-schema"], '#: "contains"'),
                      (["--json-schema", '{"$dynamicRef":"#"}'], '#: "$dynamicRef"'),
                      (["--grammar", cli.write("g", ['root ::= "a', ""])], "line 1, column 12"),
                      (["--regex", "a", "--json-schema", "{}"], "more than one constraint")):
        _, err = tokenize(cli, [], *args, code=2)
        check(why in err, args, err)
    _, err = cli.run("tokenize", "--regex", "a", "x", code=2)
    check("--jsonl" in err, err)


@test
def hostile_constraints(cli):
    """Constraints made to be expensive are compiled or refused in bounded time."""
    deep = {"type": "integer"}
    for _ in range(60):
        deep = {"anyOf": [deep, {"items": deep if len(json.dumps(deep)) < 2000 else {}}]}
    wide = {"anyOf": [{"properties": {"p%d" % i: {"const": i}}} for i in range(40)]}
    many = {"allOf": [{"anyOf": [{"required": ["a%d" % i]}, {"required": ["b%d" % i]}]} for i in range(30)]}
    schemas = [deep, wide, many, {"allOf": [wide, wide, wide]}, {"oneOf": [wide] * 30}, {"type": "string", "maxLength": 10**9},
               {"type": "string", "maxLength": 10**9, "pattern": "a.*b"}, {"type": "array", "minItems": 10**9},
               {"pattern": "(a*)*b|(x+x+)+y"}, {"pattern": "(.*a){25}"}, {"pattern": "[ab]*a[ab]{200}"},
               {"patternProperties": {"a.*" * i + "b": {} for i in range(1, 12)}},
               {"enum": ["x" * i for i in range(2000)]}, {"$ref": "#"}, {"allOf": [{"$ref": "#"}], "type": "object"},
               {"properties": {"p%d" % i: {"$ref": "#"} for i in range(3000)}, "required": ["p1"]},
               {"multipleOf": 4999, "type": "integer", "minimum": 1, "maximum": 10**15},
               {"enum": ["value number %d" % i for i in range(100000)]}, {"enum": list(range(100000))},
               {"enum": [[i] for i in range(20000)]}, {"enum": [list(range(20000))], "uniqueItems": True},
               {"properties": {"p%d" % i: {"const": i} for i in range(20000)}},
               {"type": "object", "required": ["p%d" % i for i in range(20000)]},
               {"type": "object", "allOf": [{"required": ["p%d" % i]} for i in range(20000)]},
               {"allOf": [{"properties": {"p%d" % i: {"type": "string"}}} for i in range(5000)]}]
    for schema in some(schemas, 6):
        path = cli.write("schema.json", [schema])
        out, err = cli.run("tokenize", "--jsonl", "--json-schema", "@" + path, stdin=b'"aaab"\n', code=(0, 2))
        if out:  # not refused
            check(int(re.search("compiled in ([0-9]+) us", err)[1]) < 5e6, json.dumps(schema)[:100], err)


@test
def many_listed_strings(cli):
    """A list of 100,000 strings accepts its own, also where the list applies to the values inside as well."""
    path = cli.write("schema.json", [{"enum": ["value number %d" % i for i in range(100000)]}])
    found = verdicts(cli, ['"value number 99999"', '"value number 100000"', '"value number 1"'], "@" + path)
    same(found, [(True, True), (False, False), (True, True)])
    path = cli.write("schema.json", [{"enum": [[1], [[1]], "a"], "items": {"$ref": "#"}}])
    same(verdicts(cli, ["[1]", "[[1]]", '"a"'], "@" + path), [(False, False), (False, False), (True, True)])


class RandomGrammar:
    """A small grammar over "ab", and all of its texts and their prefixes of at most MAX characters, by enumeration. An item
    of an alternative is a character or a rule, and a suffix. `texts` counts the derivations of each text, up to 2."""
    MAX, NAMES, SUFFIXES = 6, ["root", "r", "s", "t"], {"": (1, 1), "?": (0, 1), "{0,2}": (0, 2), "*": (0, 7), "+": (1, 7)}

    def __init__(self, r):
        def item():
            return r.choice("aabbrst"), r.choice([""] * 9 + list(self.SUFFIXES))
        self.rules = {name: [[item() for _ in range(r.randint(n > 1, 4))] for n in range(r.randint(1, 4))]
                      for name in self.NAMES}
        self.texts, self.prefixes = {name: {} for name in self.NAMES}, {name: {} for name in self.NAMES}
        self.possible = set("ab")  # characters, and rules that have a text of any length
        while self.improve():
            pass

    def source(self):
        return "".join("%s ::= %s\n" % (name, " | ".join(" ".join(
            ('"%s"' % c if c in "ab" else c) + suffix for c, suffix in items) or '""' for items in alternatives))
            for name, alternatives in self.rules.items())

    def join(self, a, b):
        out = {}
        for u, n in a.items():
            for v, k in b.items():
                if len(u) + len(v) <= self.MAX:
                    out[u + v] = min(2, out.get(u + v, 0) + n * k)
        return out

    def improve(self):
        """Derives the texts and prefixes that follow from the known ones. False if there are no new ones."""
        def add(a, b):
            return {u: min(2, a.get(u, 0) + b.get(u, 0)) for u in a | b}
        old, self.texts, self.prefixes = (self.texts, self.prefixes), {}, {}
        n_possible = len(self.possible)
        for name, alternatives in self.rules.items():
            all_texts, all_prefixes = {}, {}
            for items in alternatives:
                texts, prefixes = {"": 1}, {"": 1}
                for c, suffix in items:
                    low, high = self.SUFFIXES[suffix]
                    before, texts = texts, {} if low else texts
                    for n in range(1, high + 1):
                        prefixes = add(prefixes, self.join(before, old[1].get(c, {c: 1})))
                        before = self.join(before, old[0].get(c, {c: 1}))
                        texts = add(texts, before if n >= low else {})
                all_texts = add(all_texts, texts)
                if all(c in self.possible or not self.SUFFIXES[suffix][0] for c, suffix in items):
                    all_prefixes = add(all_prefixes, prefixes)
                    self.possible.add(name)
            self.texts[name], self.prefixes[name] = all_texts, all_prefixes
        return old != (self.texts, self.prefixes) or n_possible < len(self.possible)


@test
@slow
def ambiguous_grammars(cli):
    """All short texts of random ambiguous grammars: the verdict, and how much of each text can be continued, are those of
    an enumeration. LLAMA31_GRAMMARS sets the number of grammars, LLAMA31_SEED the seed."""
    seed = int(os.environ.get("LLAMA31_SEED") or random.randrange(10**9))
    left, n_texts = int(os.environ.get("LLAMA31_GRAMMARS", "20")), 0
    r = random.Random(seed)
    texts = ["".join(t) for n in range(RandomGrammar.MAX + 1) for t in itertools.product("ab", repeat=n)]
    while left > 0:
        g = RandomGrammar(r)
        if 2 not in g.texts["root"].values():
            continue  # not ambiguous
        p = subprocess.run(cli.command("tokenize", "--jsonl", "--grammar", g.source()), capture_output=True,
                           input="".join(json.dumps(t) + "\n" for t in texts).encode())
        if p.returncode:
            check(b"left recursion" in p.stderr, g.source(), p.stderr)
            continue
        left -= 1
        for line, text in zip(p.stdout.splitlines(), texts, strict=True):
            found = json.loads(line)
            at = max(i for i in range(len(text) + 1) if text[:i] in g.prefixes["root"])
            same((found["accepted"], found["at"]), (text in g.texts["root"], at), (seed, g.source(), text))
            n_texts += 1
    print("   seed %d: %d texts" % (seed, n_texts))


WORD = {"type": "string", "maxLength": 12}
SCHEMAS = [
    {"type": "object", "properties": {"name": WORD, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"enum": ["red", "green", 3, None]}, "minItems": 2, "maxItems": 4},
    {"type": "string", "pattern": "^[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8})?$"},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 99}]},
    {"type": "object", "oneOf": [{"properties": {"a": WORD}, "required": ["a"]},
                                 {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}], "maxProperties": 2,
     "patternProperties": {"^[ab]$": {"maxLength": 20, "maxItems": 0, "maxProperties": 0}}, "additionalProperties": False},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {
        "type": "object", "properties": {"v": {"type": "number", "exclusiveMinimum": -1, "maximum": 1.5},
                                         "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1}},
        "required": ["v"], "additionalProperties": False}}},
    {"type": "object", "patternProperties": {"^x": {"type": "null"}}, "additionalProperties": {"type": "boolean"},
     "propertyNames": {"maxLength": 4}, "minProperties": 1, "maxProperties": 3},
    {"type": "array", "prefixItems": [WORD, {"type": "boolean"}], "items": False, "minItems": 2},
    {"allOf": [{"type": "object", "properties": {"k": {"const": "v"}}, "required": ["k"]},
               {"properties": {"n": {"type": ["null", "integer"], "maximum": 9}}}],
     "properties": {"k": True, "n": True}, "additionalProperties": False},
    {"type": "string", "minLength": 5, "maxLength": 8, "not": {"pattern": "a"}},
]


def requests(n):
    for i in range(n):
        schema = SCHEMAS[i % len(SCHEMAS)]
        form = {"json_schema": schema}
        if i % 3 == 1:
            form = {"response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": schema}}}
        yield dict(form, id="r%d" % i, prompt="The dog", temperature=1.5, top_k=0, top_p=1, seed=i, max_tokens=600)


@test
def generated_texts(cli):
    """Texts sampled at temperature 1.5 are valid, and equal seeds give equal texts, alone or in a batch."""
    cli.model = None  # the built-in model, which has a longer context
    n = in_ci(100, 2 * len(SCHEMAS))
    results = run_batch(cli, list(requests(n)), "--parallel", 16, "--deterministic", code=(0, 6))
    for i in range(n):
        r, schema = results["r%d" % i], SCHEMAS[i % len(SCHEMAS)]
        if "$ref" in schema and r.get("incomplete"):
            continue  # the tree may have reached the length limit
        same(r["finish_reason"], "stop", r)
        value = json.loads(r["text"])
        check(is_valid(schema, value), schema, r["text"])
    for i in some(range(2 * len(SCHEMAS))):
        out, _ = cli.run("run", "--json", "--json-schema", json.dumps(SCHEMAS[i % len(SCHEMAS)]), "--temp", 1.5,
                         "--top-k", 0, "--top-p", 1, "--seed", i, "-n", 600, "--deterministic", "The dog", code=(0, 6))
        same(json.loads(out)["text"], results["r%d" % i]["text"], "run %d" % i)
    again = run_batch(cli, list(requests(in_ci(30, 10))), "--parallel", 3, "--deterministic", code=(0, 6))
    for k, r in again.items():
        same(r["text"], results[k]["text"], k)


# What docs/constraints.md lists: schemas that are refused, and those that say less than the library checks.
REFUSED_OF_LIBRARIES = {"zod3.emoji", "zod4.emoji", "arktype.iso"}
LOOSE_OF_LIBRARIES = {"zod3.base64", "zod3.time", "pydantic.decimal", "pydantic.positive"}


def check_library(cli, schemas, accepts):
    """Compiles schemas, a dictionary, and samples texts. accepts: the library's errors about a list of (name, text)."""
    records = [{"id": "%s %d" % (name, i), "prompt": "x", "json_schema": schema, "seed": i, "max_tokens": 200,
                "temperature": 1.5, "top_k": 0, "top_p": 1} for name, schema in schemas.items() for i in range(in_ci(30, 2))]
    answers, size = {}, 500  # a batch per 500 records
    for begin in range(0, len(records), size):
        out, _ = cli.run("batch", "-q", "-i", cli.write("in.jsonl", records[begin:begin + size]), code=(0, 5, 6))
        answers.update((r["id"], r) for r in map(json.loads, out.splitlines()))
    refused = {k.split()[0]: r["error"]["message"] for k, r in answers.items() if "error" in r}
    same(set(refused), REFUSED_OF_LIBRARIES & set(schemas), refused)
    texts = [(k.split()[0], r["text"]) for k, r in answers.items() if "error" not in r and "incomplete" not in r]
    texts = [t for t in texts if t[0] not in LOOSE_OF_LIBRARIES]
    for (name, text), error in zip(texts, accepts(texts), strict=True):
        check(error is None, name, text, error)
    print("   %d schemas, %d refused, %d complete texts" % (len(schemas), len(refused), len(texts)))


@test
def schemas_of_npm_packages(cli):
    """Schemas of eight libraries and SCHEMAS. The library (if it can) and ajv accept all complete texts. LLAMA31_PEER has
    the packages."""
    cli.model, peer = None, os.environ.get("LLAMA31_PEER") or ""
    if not os.path.isdir(os.path.join(peer, "node_modules", "zod")) or not shutil.which("node"):
        raise Skip("no zod in LLAMA31_PEER")
    script = ["node", os.path.join(os.path.dirname(__file__), "schema_libraries.mjs"), peer]
    lines = subprocess.run(script, check=True, capture_output=True).stdout.splitlines()
    schemas = {r["name"]: r["schema"] for r in map(json.loads, lines)}
    own = {"own.%d" % i: schema for i, schema in enumerate(SCHEMAS)}

    def accepts(texts):
        path = cli.write("texts.jsonl", [dict({"schema": own[name]} if name in own else {"name": name}, text=text) for name, text in texts])
        return map(json.loads, subprocess.run(script + [path], check=True, capture_output=True).stdout.splitlines())
    check_library(cli, dict(schemas, **own), accepts)


@test
def schemas_of_pydantic(cli):
    """Schemas of pydantic 2, which accepts all complete texts."""
    try:
        import pydantic
        from pydantic import Field, TypeAdapter
    except ImportError:
        raise Skip("no pydantic")
    if pydantic.VERSION < "2":
        raise Skip("pydantic 1")
    cli.model = None
    Color = enum.Enum("Color", {"RED": "red", "GREEN": "green", "BLUE": "blue"})
    Cat = pydantic.create_model("Cat", kind=(typing.Literal["cat"], ...), age=(int, Field(ge=0, le=30)))
    Dog = pydantic.create_model("Dog", kind=(typing.Literal["dog"], ...), name=(typing.Optional[bool], None))
    Strict = pydantic.create_model("Strict", __config__=pydantic.ConfigDict(extra="forbid"), a=(bool, ...), b=(Color, Color.RED))
    class Node(pydantic.BaseModel):
        value: bool
        children: typing.List["Node"] = Field(max_length=1)
    Node.model_rebuild()
    types = {
        "decimal": typing.Annotated[decimal.Decimal, Field(max_digits=5, decimal_places=2)], "plain_decimal": decimal.Decimal,
        "positive": typing.Annotated[decimal.Decimal, Field(gt=0, max_digits=4)], "by_enum": typing.Dict[Color, int],
        "enum": Color, "set": typing.Set[Color], "frozenset": typing.FrozenSet[typing.Literal[1, 2, 3]], "datetime": datetime.datetime,
        "date": datetime.date, "time": datetime.time, "duration": datetime.timedelta, "uuid": uuid.UUID, "ipv4": ipaddress.IPv4Address,
        "ipv6": ipaddress.IPv6Address, "integer": typing.Annotated[int, Field(ge=-5, lt=100, multiple_of=3)],
        "number": typing.Annotated[float, Field(gt=0.5, le=9)], "string": typing.Annotated[str, Field(min_length=2, max_length=6)],
        "pattern": typing.Annotated[str, Field(pattern="^[a-z]{3}$")], "optional": typing.Optional[bool], "union": typing.Union[bool, None, Strict],
        "tagged": typing.Annotated[typing.Union[Cat, Dog], Field(discriminator="kind")], "literal": typing.Literal["a", 1, True],
        "tuple": typing.Tuple[bool, int], "tuples": typing.Annotated[typing.Tuple[bool, ...], Field(max_length=4)],
        "list": typing.Annotated[typing.List[bool], Field(min_length=1, max_length=4)], "strict": Strict, "node": Node,
        "nested": typing.Dict[typing.Literal["x", "y"], typing.List[Strict]]}
    adapters = {"pydantic." + name: TypeAdapter(t) for name, t in types.items()}

    def accepts(texts):
        for name, text in texts:
            try:
                adapters[name].validate_json(text)
                yield None
            except pydantic.ValidationError as e:
                yield str(e)
    check_library(cli, {name: t.json_schema() for name, t in adapters.items()}, accepts)


@test
def generated_formats(cli):
    """Sampled texts of a format are read by Python and by the expressions of pydantic 1 and zod."""
    cli.model = None
    clock = r"\d\d:\d\d:\d\d(?:\.\d{1,6}\d{0,6})?(?:Z|[+-]\d\d:\d\d)"
    formats = {"date": (r"\d{4}-\d\d-\d\d", datetime.date.fromisoformat), "time": (clock, None),
               "date-time": (r"\d{4}-\d\d-\d\dT" + clock, lambda s: datetime.date.fromisoformat(s[:10])),
               "duration": (r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?", None),
               "email": (r"(?!\.)(?!.*\.\.)[\w'+.-]*[\w+-]@([A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z]{2,}", None),
               "uint8": (r"\d+", lambda s: range(256).index(int(s)))}
    records = [{"id": "%s %d" % (f, i), "prompt": "x", "json_schema": {"type": "integer" if "int" in f else "string", "format": f},
                "seed": i, "temperature": 1.5, "top_k": 0, "top_p": 1} for f in formats for i in range(in_ci(30, 6))]
    for name, r in run_batch(cli, records).items():
        pattern, read = formats[name.split()[0]]
        text = str(json.loads(r["text"]))
        check(re.fullmatch(pattern, text, re.A), name, text)
        if read:
            read(text)


@test
def choice_files(cli):
    """--choices reads a file of lines or a JSON array, in run and score; repeated and single choices are named."""
    files = {name: cli.write(name, [text]) for name, text in (
        ("lines", "yes\nno, thanks\r\nyes\n@home"), ("array", ' ["a,b", "c"]\n'), ("one", "maybe\n"), ("gap", "a\n\nb"))}
    open(cli.path_of("none"), "w").close()
    long = cli.write("long", ["\n".join("choice %d" % i for i in range(3000))])
    for value, expected, note in (("@" + files["lines"], ["yes", "no, thanks", "@home"], 'repeated choices: "yes"'),
                                  ("@" + files["array"], ["a,b", "c"], ""), ("@@x,@y", ["@x", "@y"], ""),
                                  ("@" + files["one"], ["maybe"], 'the only choice is "maybe"'),
                                  ("@" + long, ["choice %d" % i for i in range(3000)], "")):
        out, err = cli.run("run", "--raw", "--temp", 3, "--choices", value, "Once")
        check(out.decode()[:-1] in expected and note in err and (note or "choice is" not in err), value, out, err)
        if len(expected) > 9:
            continue
        out, err = cli.run("score", "--raw", "--json", "--choices", value, "Once")
        same(sorted(set(c["text"] for c in json.loads(out)["choices"])), sorted(expected))
        check(note in err and (note or "more than once" not in err), err)
    for name, why in ("gap", "line 2 is empty"), ("none", "the file is empty"), ("missing", "No such file"):
        for command in "run", "score":
            cli.refuses(1 if name == "missing" else 2, why, command, "--choices", "@" + cli.path_of(name), "x")
    request = json.dumps({"prompt": "x", "choices": ["a", "b", "a"], "max_tokens": 1})
    _, err = cli.run("batch", "-i", "-", stdin=request.encode())
    check('repeated choices: "a"' in err, err)


@test
def other_constraints(cli):
    """Choices, regular expressions and grammars, and conflicts of options."""
    grammar = 'root ::= word (" " word){2}\nword ::= [a-z]{1,6}'
    results = run_batch(cli, [dict(r, prompt="The cat", temperature=1.5, seed=3, id=k) for k, r in {
        "choices": {"choices": ["yes", "no", "maybe"]}, "regex": {"regex": "[0-9]{3}-[0-9]{2}"},
        "grammar": {"grammar": grammar}, "object": {"response_format": {"type": "json_object"}, "max_tokens": 500},
        "text": {"response_format": {"type": "text"}, "max_tokens": 3}}.items()], code=(0, 6))
    check(results["choices"]["text"] in ("yes", "no", "maybe"), results["choices"])
    check(re.fullmatch("[0-9]{3}-[0-9]{2}", results["regex"]["text"]), results["regex"])
    check(re.fullmatch("[a-z]{1,6}( [a-z]{1,6}){2}", results["grammar"]["text"]), results["grammar"])
    check("incomplete" in results["object"] or isinstance(json.loads(results["object"]["text"]), dict))
    out, _ = cli.run("run", "-q", "--choices", "red,green", "The ball is")
    check(out in (b"red\n", b"green\n"), out)
    out, _ = cli.run("run", "--json", "--regex", "(abcdefgh|xyzxyzxyz)", "x", "--logprobs", 2)
    same(len(json.loads(out)["logprobs"]), json.loads(out)["n_generated"])
    _, err = cli.run("run", "--ignore-eos", "--regex", "a", "x", code=2)
    check("ignore-eos" in err, err)
    _, err = cli.run("run", "--regex", "a", "--choices", "b", "x", code=2)
    check("more than one constraint" in err, err)


@test
def schema_files(cli):
    """--json-schema @FILE, and llama.cpp's options for the same."""
    path = cli.write("schema.json", [{"const": 17}])
    for args in (("--json-schema", "@" + path), ("-jf", path), ("--json-schema-file", path), ("--json-schema-file=" + path,)):
        same(cli.run("run", "-q", *args, "x")[0], b"17\n")
    cli.refuses(2, "-jf: missing value", "run", "x", "-jf")
    cli.refuses(1, path + "x: No such file", "run", "-jf", path + "x", "x")


@test
def grammar_sources(cli):
    """A grammar is a file, with or without '@', or text that contains "::="."""
    path = cli.write("seven.gbnf", ['root ::= "seven"'])
    for grammar in (path, "@" + path, 'root ::= "seven"'):
        same(cli.run("run", "-q", "--grammar", grammar, "x")[0], b"seven\n")
        same(run_batch(cli, [{"id": 1, "prompt": "x"}], "--grammar", grammar)[1]["text"], "seven")
    same(cli.run("run", "-q", "--grammar-file", path, "x")[0], b"seven\n")
    cli.refuses(1, path + "x: No such file", "run", "--grammar", path + "x", "x")
    cli.refuses(2, "line 1", "run", "--grammar", 'root ::= "seven', "x")


@test
def incomplete_texts(cli):
    """A text that is cut before it satisfies its constraint is a warning that -q keeps, a member of JSON, and exit 6."""
    grammar = cli.write("a.gbnf", ['root ::= "{" [a-z]{50} "}"'])
    for args in (["--json-schema", '{"type":"string","minLength":90}'],
                 ["--json-schema", '{"type":"object","required":["abcdef"]}'], ["--regex", "[a-z]{40}"], ["--grammar", grammar], ["--choices", "a" * 80 + "," + "b" * 80],
                 ["--think", "--regex", "[0-9]{40}"]):
        for n in 0, 1, 3:
            _, err = cli.run("run", "-q", "-n", n, *args, "x", code=6)
            check(err.startswith("llama31: warning: 1 text incomplete: ") and err.count("\n") == 1, err)
    out, _ = cli.run("run", "--json", "-n", 3, "--regex", "[a-z]{40}", "x", code=6)
    same([json.loads(out)[k] for k in ("finish_reason", "incomplete")], ["length", True])
    out, err = cli.run("run", "--json", "-N", 3, "-n", 3, "--regex", "[a-z]{40}", "x", code=6)
    same([c["incomplete"] for c in json.loads(out)["choices"]], [True] * 3)
    check("warning: 3 texts incomplete" in err, err)
    # a stop string cuts the text, too; the state of the automaton is behind it
    for stop, regex, code in (("}", r"\{x\}", 6), ("x", r"\{x\}", 6), ("cd", "ab(cd)?", 0), ("b", "ab(cd)?", 6)):
        out, _ = cli.run("run", "-q", "--json", "--temp", 9, "--stop", stop, "--regex", regex, "--seed", 1, "-n", 9, "x",
                         code=code)
        same("incomplete" in json.loads(out), code == 6, (stop, regex))
    for regex in "[a-z]*", "[a-z]{3,}":  # cut, but valid
        out, err = cli.run("run", "--json", "-n", 3, "--regex", regex, "x")
        check("incomplete" not in json.loads(out) and "incomplete" not in err, out, err)


@test
def checked_at_the_end(cli):
    """Keywords that are not enforced are named once. A text that violates them is incomplete, with its place: exit 6."""
    schema = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 2}, "uniqueItems": True, "minItems": 3,
              "maxItems": 3}
    why, place = '#: violates "uniqueItems": true', "checked at the end, not enforced: #/uniqueItems\n"
    args = ["--json-schema", json.dumps(schema), "x"]
    for think in [], ["--think", "--reasoning-budget", 5]:
        out, err = cli.run("run", "--json", *think, *args, code=6)
        r = json.loads(out)
        same((r["finish_reason"], r["incomplete"], r["note"]), ("stop", True, why))
        check(err.count(place) == 1 and "warning: 1 text incomplete: " + why in err, err)
    _, err = cli.run("run", "-q", "-N", 2, *args, code=6)
    same(err, "llama31: warning: 2 texts incomplete: " + why + "\n")
    _, err = cli.run("run", "-q", "-n", 3, *args, code=6)  # cut
    check("cut by -n" in err and "violates" not in err, err)
    cli.refuses(2, "#/uniqueItems: not supported", "run", "--strict-schema", *args)

    valid = dict(schema, items={"type": "integer", "minimum": 10, "maximum": 99999}, maxItems=3)
    records = [{"id": "bad", "prompt": "x", "json_schema": schema}, {"id": "two", "prompt": "x", "json_schema": schema, "n": 2},
               {"id": "again", "prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}},
               {"id": "good", "prompt": "x", "json_schema": valid, "temperature": 2, "top_k": 0, "top_p": 1, "seed": 3}]
    out, err = cli.run("batch", "-i", cli.write("in.jsonl", records), code=6)
    found = {r["id"]: r for r in map(json.loads, out.splitlines())}
    same({k: r.get("incomplete", False) for k, r in found.items()}, {"bad": True, "two": True, "again": True, "good": False})
    same(found["bad"]["note"], why)
    check(err.count(place) == 1 and "3 answers incomplete" in err and "note" not in found["good"], err, found["good"])
    record = dict(records[0], strict_schema=True)
    out, _ = cli.run("batch", "-q", stdin=json.dumps(record).encode(), code=5)
    check(b"uniqueItems" in out and b"not supported" in out, out)

    found = [(r["valid"], r["accepted"]) for r in tokenize(cli, ["[1, 2, 1]", "[10, 11, 12]"], *args[:2])[0]]
    same(found, [(False, False), (False, False)])
    found = [(r["valid"], r["accepted"]) for r in tokenize(cli, ["[10, 11, 10]", "[10, 11, 12]"], "--json-schema", json.dumps(valid))[0]]
    same(found, [(False, False), (True, True)])


@test
def incomplete_answers(cli):
    """In batch as well: each record says so, in both forms, and failed records have precedence; --resume counts again."""
    cli.model = None
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["abc"],
            "properties": {"abc": {"type": "string", "minLength": 50}}, "additionalProperties": False}}}
    messages, forms = [{"role": "user", "content": "x"}], {
        "schema": {"json_schema": {"type": "string", "minLength": 50}}, "regex": {"regex": "a{50}"},
        "grammar": {"grammar": 'root ::= [ab]{50}'}, "choices": {"choices": ["a" * 50]},
        "object": {"response_format": {"type": "json_object"}, "max_tokens": 1},
        "tool": {"tools": [tool], "tool_choice": "required"},
        "two": {"regex": "a{50}", "n": 2}, "stop": {"regex": "a{9}", "stop": "aaa", "max_tokens": 20},
        "whole": {"regex": "a{2}"}, "cut, but valid": {"regex": "a+"}, "free": {}}
    records = [dict({"max_tokens": 2}, id=k, messages=messages, **r) for k, r in forms.items() if k != "stop"]
    records += [dict(forms["stop"], id="stop", messages=messages)]
    records += [{"custom_id": "openai " + r["id"], "method": "POST", "url": "/v1/chat/completions",
                 "body": {k: v for k, v in r.items() if k != "id"}} for r in records]
    path, out = cli.write("in.jsonl", records), cli.path_of("out.jsonl")
    chat = ["batch", "-q", "--template", "llama3", "-o", out, "-i"]
    _, err = cli.run(*chat, path, code=6)
    check(err.startswith("llama31: warning: 16 answers incomplete: ") and err.count("\n") == 1, err)
    for r in read_lines(out):
        name = r.get("custom_id", r["id"])
        same(r.get("incomplete", False), name.split("openai ")[-1] not in ("whole", "cut, but valid", "free"), r)
    _, err = cli.run(*chat, path, "--resume", code=6)
    check("16 answers incomplete" in err, err)
    cli.run(*chat, cli.write("in.jsonl", records + [{"id": "bad"}]), "--resume", code=5)
    cli.run("batch", "-q", stdin=b'{"prompt": "x", "regex": "a", "max_tokens": 2}')


@test
def many_constraints(cli):
    """A batch with hundreds of different constraints, most of them in use at a time; an interrupted one is resumed."""
    records = []
    n = in_ci(300, 100)
    for i in range(n):
        kind = ({"choices": ["x%d" % i, "y"]}, {"regex": "a{%d}" % (i % 30 + 1)}, {"grammar": 'root ::= "%d"' % i},
                {"json_schema": {"enum": [i, "word %d" % i]}})[i % 4]
        records.append(dict(kind, id=i, prompt="a", max_tokens=50, temperature=0))
    answers = run_batch(cli, records, "--parallel", 256)
    same(len(answers), n)
    for i in range(2, n, 4):
        same(answers[i]["text"], str(i))
    source, out = cli.write("in.jsonl", records), cli.path_of("resumed.jsonl")
    with open(out, "w") as f:
        f.writelines(json.dumps(answers[i]) + "\n" for i in range(0, n, 3))
    cli.run("batch", "-i", source, "-o", out, "-q", "--parallel", 100, "--resume")
    same({a["id"]: a["text"] for a in read_lines(out)}, {i: a["text"] for i, a in answers.items()})


@test
def order_of_properties(cli):
    """Generated properties come in the schema's order, with --any-order in any."""
    schema = json.dumps({"type": "object", "properties": {k: {"type": "boolean"} for k in "zay"}, "required": list("zay"),
                         "additionalProperties": False})
    sampling = ["--json-schema", schema, "--temp", 2, "--top-k", 0, "--top-p", 1, "--min-p", 0]

    def orders(*args):
        return {"".join(json.loads(cli.run("run", "-q", *sampling, *args, "--seed", seed, "x")[0])) for seed in range(8)}
    same(orders(), {"zay"})
    err = cli.run("run", "-n", 1, "--any-order", "--strict-schema", "x")[1]
    check("no effect without a JSON Schema: --any-order --strict-schema\n" in err, err)
    same(orders("--ordered-properties"), {"zay"})
    check(len(orders("--any-order")) > 2, "always the same order")
    records = [{"id": i, "prompt": "x", "seed": i, "ordered_properties": True} for i in range(8)]
    same({"".join(json.loads(r["text"])) for r in run_batch(cli, records, "--strict", *sampling).values()}, {"zay"})
    for args, fields in ((sampling + ["--any-order"], {}), (sampling, {"ordered_properties": False}),
                         (sampling[2:], {"any_order": True, "json_schema": json.loads(schema)})):
        found = run_batch(cli, [dict(id=r["id"], prompt="x", seed=r["seed"], **fields) for r in records], "--strict",
                          *args).values()
        check(len({"".join(json.loads(r["text"])) for r in found}) > 2, args, fields)
    texts = ['{"z":true,"a":true,"y":true}', '{"a":true,"y":true,"z":true}']
    same(verdicts(cli, texts, schema), [(True, True), (True, False)])
    same(verdicts(cli, texts, schema, "--any-order"), [(True, True), (True, True)])


@test
def extra_properties(cli):
    """Objects have only listed properties, unless --extra-properties or a record's extra_properties allows others."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    args = ["--json-schema", json.dumps(schema), "--temp", 0, "--logit-bias", ",+40", "-n", 30]  # wants another property
    for extra, is_complete in (([], True), (["--extra-properties"], False), (["--extra-properties=false"], True)):
        out, _ = cli.run("run", "-q", "--raw", *args, *extra, "x", code=0 if is_complete else 6)
        same(list(json.loads(out)) if is_complete else out.count(b",") > 0, ["a"] if is_complete else True)
    records = [{"id": 0, "prompt": "x"}, {"id": 1, "prompt": "x", "extra_properties": True}]
    found = run_batch(cli, records, "--strict", *args, code=(0, 6))
    same([r.get("incomplete", False) for _, r in sorted(found.items())], [False, True])

    # The arguments of a forced tool call.
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    ask = {"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": "required", "max_tokens": 120}
    records = [dict(ask, id=0), dict(ask, id=1, extra_properties=True)]
    found = run_batch(cli, records, "--template", "llama3.1", "--logit-bias", ",+40", code=(0, 6))
    same([r.get("incomplete", False) for _, r in sorted(found.items())], [False, True])
    same(list(json.loads(found[0]["tool_calls"][0]["function"]["arguments"])), ["a"])

    # Verdicts: the standard allows other properties.
    texts = ['{"a": true}', '{"a": true, "b": 1}']
    for extra, accepted in ([], False), (["--extra-properties"], True), (["--extra-properties=false"], False):
        same(verdicts(cli, texts, json.dumps(schema), *extra), [(True, True), (True, accepted)])
    tokenize(cli, [], "--extra-properties=no", "--json-schema", "true", code=2)


if __name__ == "__main__":
    main("constrain", "constrain")
