"""Closed schemas: what a schema means if objects have only the properties that it lists, in terms of the standard."""
DESCRIBING = ("properties", "patternProperties", "additionalProperties")


class Incomparable(Exception):
    """The meaning is not that of one "unevaluatedProperties": false per object."""


def without_objects(schema):
    """The schema with 0 for each object among its listed values. Listed values are not closed."""
    def scalar(value):
        return [scalar(v) for v in value] if isinstance(value, list) else 0 if isinstance(value, dict) else value
    if isinstance(schema, list):
        return [without_objects(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: scalar(v) if k in ("const", "enum") and not isinstance(v, dict) or k == "const" else without_objects(v)
            for k, v in schema.items()}


def describe_required(s):
    """The schema, in which required names are properties. Their values are those that "additionalProperties" allows."""
    if not isinstance(s, dict):
        return s
    parts = [{"properties": dict.fromkeys(s.get("required", []), True)}]
    # The name itself is not required. "not" keeps it from becoming a property in describe_condition().
    parts += [{"if": {"not": {"not": {"required": [k]}}}, "then": {"properties": dict.fromkeys(names, True)}}
              for k, names in s.get("dependentRequired", {}).items()]
    if "required" in s or len(parts) > 1:
        s = dict(s, allOf=s.get("allOf", []) + parts)
    if "if" in s:
        s = dict(s, **{"if": describe_condition(s["if"])})
    return s


def describe_condition(s):
    """describe_required() for a schema of an "if", and for its parts."""
    s = describe_required(s)
    for k in ("allOf", "anyOf", "oneOf", "then", "else"):
        if isinstance(s, dict) and k in s:
            s = dict(s, **{k: [describe_condition(p) for p in s[k]] if isinstance(s[k], list) else describe_condition(s[k])})
    return s


def nodes(schema):
    yield schema
    for x in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from nodes(x)


def may_meet(a, b):
    """True if two subschemas (part, keyword, name, ...) may apply to the same property or item."""
    if ("tems" in a[1]) != ("tems" in b[1]):
        return False
    if a[1] == b[1] in ("properties", "prefixItems"):
        return a[2] == b[2]
    return a[0] != b[0] or not {"additionalProperties", "items"} & {a[1], b[1]}


class Closer:
    """Closes a document of schema_random.Random."""

    def __init__(self, root):
        definitions = root.get("$defs", {}) if isinstance(root, dict) else {}
        self.root, self.item = root, definitions.get("item")
        self.inside = {id(x) for x in nodes(self.item)}

    def target(self, s):
        """The target of the $ref of a schema."""
        found = self.item if id(s) in self.inside else self.root
        for step in s["$ref"].split("/")[1:]:
            found = found[step]
        return found

    def parts(self, s, seen=(), conditions=True):
        """The schemas that may apply to the same value, the schema itself first."""
        if not isinstance(s, dict) or id(s) in seen:
            return
        seen += (id(s),)
        yield s
        below = [p for k in ("allOf", "anyOf", "oneOf") for p in s.get(k, [])]
        below += [s[k] for k in ("if", "then", "else") if k in s and (k != "if" or conditions)]
        below += [self.target(s)] if "$ref" in s else []
        for p in below:
            yield from self.parts(p, seen, conditions)

    def lists(self, s):
        return any("properties" in p for p in self.parts(s, conditions=False))

    def always_lists(self, s, seen=()):
        if not isinstance(s, dict) or id(s) in seen:
            return False
        seen += (id(s),)
        every = s.get("allOf", []) + ([self.target(s)] if "$ref" in s else [])
        return ("properties" in s or any(self.always_lists(p, seen) for p in every) or
                any(k in s and all(self.always_lists(p, seen) for p in s[k]) for k in ("anyOf", "oneOf")))

    def check_parts(self, s):
        """Fails if two parts describe the properties of the same object inside the value."""
        inner = []
        for i, p in enumerate(self.parts(s)):
            for k in ("properties", "patternProperties"):
                inner += [(i, k, name, x) for name, x in p.get(k, {}).items()]
            inner += [(i, "prefixItems", n, x) for n, x in enumerate(p.get("prefixItems", []))]
            inner += [(i, k, "", p[k]) for k in ("additionalProperties", "items") if k in p]
        inner = [x for x in inner if any(k in part for part in self.parts(x[3]) for k in DESCRIBING)]
        for n, a in enumerate(inner):
            if any(may_meet(a, b) and (self.lists(a[3]) or self.lists(b[3])) for b in inner[:n]):
                raise Incomparable

    def part(self, s):
        """The schema as a part of another one: its objects are closed except the value itself. A oneOf becomes an
        anyOf, because closing must not decide which of its schemas hold."""
        if not isinstance(s, dict):
            return s
        s, out = describe_required(s), {}
        for k, v in s.items():
            if k in ("properties", "patternProperties"):
                v = {name: self.close(x) for name, x in v.items()}
            elif k in ("additionalProperties", "items"):
                v = self.close(v)
            elif k == "prefixItems":
                v = [self.close(x) for x in v]
            elif k in ("allOf", "anyOf", "oneOf"):
                v = [self.part(x) for x in v]
            elif k in ("then", "else"):
                v = self.part(v)
            elif k == "$defs":
                v = {name: self.part(x) for name, x in v.items()}
            out[k] = v
        if "oneOf" in out:
            out["allOf"] = out.get("allOf", []) + [{"anyOf": out.pop("oneOf")}]
        return out

    def close(self, s):
        """The schema of a whole value."""
        if not isinstance(s, dict):
            return s
        target, out = s, self.part(s)
        for _ in range(9):
            if isinstance(target, dict) and set(target) - {"$id", "$defs"} == {"$ref"}:
                target = self.target(target)
        self.check_parts(target)
        if not self.lists(target) or any(k in target for k in DESCRIBING[1:]):
            return out
        if not self.always_lists(target):
            raise Incomparable
        return dict(out, unevaluatedProperties=False)
