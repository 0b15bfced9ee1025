#!/usr/bin/env python3
"""Constraints: texts checked against real schemas."""
import json
import lzma
import os

from cli import DATA, Skip, check, main, same, test

EVERY = int(os.environ.get("LLAMA31_EVERY", "8"))  # of the schemas; 1: all


def tokenize(cli, texts, *args, code=0):
    out, err = cli.run("tokenize", "--jsonl", *args, stdin="".join(json.dumps(t) + "\n" for t in texts).encode(),
                       code=code)
    return [json.loads(line) for line in out.splitlines()], err


def turned(value):
    """The same value, all properties in the opposite order."""
    if isinstance(value, dict):
        return {k: turned(v) for k, v in reversed(list(value.items()))}
    return [turned(v) for v in value] if isinstance(value, list) else value


def written(value):
    """The ways json.dumps writes it."""
    return [json.dumps(value), json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2),
            json.dumps(turned(value)), json.dumps(value, ensure_ascii=False)]


@test
def real_schemas(cli):
    path = os.path.join(DATA, "jsonschema", "schemas.jsonl.xz")
    if not os.path.exists(path):
        raise Skip("no " + path)
    n = n_refused = 0
    for i, line in enumerate(lzma.open(path)):
        if i % EVERY:
            continue
        r = json.loads(line)
        schema = cli.write("schema.json", [r["schema"]])
        texts = [(text, t["valid"]) for t in r["tests"] for text in written(t["data"])]
        n += 1
        try:
            found, _ = tokenize(cli, [t for t, _ in texts], "--json-schema", "@" + schema)
        except AssertionError:
            _, err = tokenize(cli, [], "--json-schema", "@" + schema, code=2)
            check("JSON Schema, #" in err, r["name"], err)
            n_refused += 1
            continue
        for answer, (text, valid) in zip(found, texts):
            same(answer["accepted"], valid, "%s: %s: at %d" % (r["name"], text[:200], answer["at"]))
    check(n_refused * 10 <= n, n_refused, "of", n, "schemas are refused")


@test
def checked_texts(cli):
    found, err = tokenize(cli, ["{}", '{"a": 1}', '{"a": 1', '{"a":1}x', ""], "--json-schema",
                          '{"properties":{"a":{"type":"integer"}},"type":"object"}')
    same([f["accepted"] for f in found], [True, True, False, False, False])
    same([f["at"] for f in found], [2, 8, 7, 7, 0])
    check("compiled in" in err, err)
    found, _ = tokenize(cli, ["12", "1x"], "--regex", "[0-9]+", "--stats")
    same([f["accepted"] for f in found[:-1]], [True, False])
    check(found[-1]["n_masks"] > 0 and found[-1]["mask_max_us"] >= found[-1]["mask_p99_us"] >= 0, found[-1])
    grammar = cli.write("g.gbnf", ['root ::= "a" b*', 'b ::= "b" | "(" b ")"'])
    found, _ = tokenize(cli, ["abb(b)", "ab)"], "--grammar", grammar)
    same([f["accepted"] for f in found], [True, False])


@test
def wrong_constraints(cli):
    for args, why in ((["--regex", "("], "character 2"), (["--json-schema", "{"], "JSON Schema"),
                      (["--json-schema", '{"contains":{}}'], '#: "contains"'),
                      (["--grammar", cli.write("g", ['root ::= "a', ""])], "line 1, column 12"),
                      (["--regex", "a", "--json-schema", "{}"], "expected one of")):
        _, err = tokenize(cli, [], *args, code=2)
        check(why in err, args, err)
    _, err = cli.run("tokenize", "--regex", "a", "x", code=2)
    check("--jsonl" in err, err)


@test
def hostile_constraints(cli):
    """Refused or done, in a second and 256 MiB each."""
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
               {"multipleOf": 4999, "type": "integer", "minimum": 1, "maximum": 10**15}]
    for schema in schemas:
        found, err = [], ""
        path = cli.write("schema.json", [schema])
        try:
            found, err = tokenize(cli, ['{"a": 1}', '"aaab"', "[[1]]"], "--json-schema", "@" + path, "--stats")
            check(found[-1]["compile_us"] < 5e6, json.dumps(schema)[:100], found[-1])
        except AssertionError as e:
            check("exit 2" in str(e) or "2" in str(e), e)


if __name__ == "__main__":
    main("constrain")
