"""A JSON Schema validator for tests, independent of the program. It has the keywords of the tests' schemas."""
import re


def is_type(value, name):
    if name in ("integer", "number"):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and (name == "number" or value == int(value))
    return isinstance(value, {"string": str, "boolean": bool, "null": type(None), "object": dict, "array": list}[name])


def equal(a, b):
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return a == b


def number_is_valid(s, v):
    return (s.get("minimum", v) <= v <= s.get("maximum", v) and s.get("exclusiveMinimum", v - 1) < v and
            s.get("exclusiveMaximum", v + 1) > v and v % s.get("multipleOf", v or 1) == 0)


def object_is_valid(s, v, root):
    named, patterns = s.get("properties", {}), s.get("patternProperties", {})
    for k, x in v.items():
        parts = ([named[k]] if k in named else []) + [p for r, p in patterns.items() if re.search(r, k)]
        if not all(is_valid(p, x, root) for p in parts or [s.get("additionalProperties", True)]):
            return False
    return (all(k in v for k in s.get("required", [])) and
            s.get("minProperties", 0) <= len(v) <= s.get("maxProperties", len(v)))


def array_is_valid(s, v, root):
    prefix = s.get("prefixItems", [])
    return (s.get("minItems", 0) <= len(v) <= s.get("maxItems", len(v)) and
            all(is_valid(p, x, root) for p, x in zip(prefix, v)) and
            all(is_valid(s.get("items", True), x, root) for x in v[len(prefix):]))


def is_valid(s, v, root=None):
    root = s if root is None else root
    if isinstance(s, bool):
        return s
    if "$ref" in s:
        target = root
        for step in s["$ref"].split("/")[1:]:
            target = target[step]
        if not is_valid(target, v, root):
            return False
    types = s.get("type", [])
    if types and not any(is_type(v, t) for t in ([types] if isinstance(types, str) else types)):
        return False
    if "enum" in s and not any(equal(v, x) for x in s["enum"]) or "const" in s and not equal(v, s["const"]):
        return False
    if isinstance(v, str) and not (s.get("minLength", 0) <= len(v) <= s.get("maxLength", len(v)) and
                                   re.search(s.get("pattern", ""), v)):
        return False
    if is_type(v, "number") and not number_is_valid(s, v):
        return False
    if isinstance(v, dict) and not object_is_valid(s, v, root):
        return False
    if isinstance(v, list) and not array_is_valid(s, v, root):
        return False
    return (all(is_valid(x, v, root) for x in s.get("allOf", [])) and
            ("anyOf" not in s or any(is_valid(x, v, root) for x in s["anyOf"])) and
            ("oneOf" not in s or sum(is_valid(x, v, root) for x in s["oneOf"]) == 1) and
            ("not" not in s or not is_valid(s["not"], v, root)))
