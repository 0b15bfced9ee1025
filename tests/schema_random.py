"""Random JSON Schemas that nest all keywords, and documents that are close to them."""
import copy

NAMES = ["a", "b", "c", "ab", "x-y"]
VALUES = [None, True, False, 0, 1, 2, 3, -1, 1.0, 1.5, -2.5, 7, 10, 2**53 + 1, 1e-07, 1e20, "", "a", "ab", "b", "xyz",
          "\u00e9\"\t", [], [1], [None, "a"], [[], {}], {}, {"a": 1}, {"a": None, "b": []}]
NUMBERS = [-3, -1, 0, 1, 1.5, 2, 2.25, 5, 100, 1e20, -1e-06]
PATTERNS = ["a", "^a", "b$", "^[ab]*$", "^$", "^.{2,}$", "x|y", "^[^a]"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


class Random:
    """Schemas and documents of one seed. `r` is a random.Random."""

    def __init__(self, r):
        self.r = r
        self.refs = []
        self.is_closed = False  # no keywords that describe properties beside those of schema_closed

    def some(self, items, low=1, high=3):
        return self.r.sample(items, self.r.randint(low, min(high, len(items))))

    def value(self, depth=2):
        if depth and self.r.random() < 0.25:
            return [self.value(depth - 1) for _ in range(self.r.randint(0, 3))]
        if depth and self.r.random() < 0.3:
            return {k: self.value(depth - 1) for k in self.some(NAMES, 0, 3)}
        return copy.deepcopy(self.r.choice(VALUES))

    def schemas(self, depth, low=1, high=3):
        return [self.schema(depth - 1) for _ in range(self.r.randint(low, high))]

    def keyword(self, s, kind, depth):
        """Adds keywords of one kind to a schema."""
        r = self.r
        if kind == "type":
            s["type"] = r.choice(TYPES) if r.random() < 0.7 else self.some(TYPES)
        elif kind == "const":
            s["const"] = self.value()
        elif kind == "enum":
            s["enum"] = [self.value() for _ in range(r.randint(1, 4))]
        elif kind == "number":
            for k in self.some(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], 1, 2):
                s[k] = r.choice(NUMBERS)
            if r.random() < 0.3:
                s["multipleOf"] = r.choice([1, 2, 3, 0.5, 0.25, 1.5, 7])
        elif kind == "string":
            for k in self.some(["minLength", "maxLength"], 0, 2):
                s[k] = r.randint(0, 4)
            if r.random() < 0.5 or len(s) == 0:
                s["pattern"] = r.choice(PATTERNS)
        elif kind == "array":
            for k in self.some(["minItems", "maxItems"], 0, 2):
                s[k] = r.randint(0, 3)
            if r.random() < 0.5:
                s["items"] = self.schema(depth - 1)
            if r.random() < 0.3:
                s["prefixItems"] = self.schemas(depth)
            if r.random() < 0.05:
                s["uniqueItems"] = r.random() < 0.5
            if r.random() < 0.15:
                s["contains"] = self.schema(depth - 1)
                for k in self.some(["minContains", "maxContains"], 0, 1):
                    s[k] = r.randint(0, 2)
            if r.random() < 0.1:
                s["unevaluatedItems"] = self.schema(depth - 1)
        elif kind == "object":
            if r.random() < 0.7:
                s["properties"] = {k: self.schema(depth - 1) for k in self.some(NAMES)}
            if r.random() < 0.4:
                s["required"] = self.some(NAMES, 1, 2)
            if r.random() < 0.3:
                s["additionalProperties"] = self.schema(depth - 1)
            if r.random() < 0.2:
                s["patternProperties"] = {k: self.schema(depth - 1) for k in self.some(PATTERNS, 1, 2)}
            if r.random() < 0.15:
                s["propertyNames"] = self.schema(depth - 1) if r.random() < 0.6 else {"enum": self.some(NAMES)}
            for k in self.some(["minProperties", "maxProperties"], 0, 1):
                s[k] = r.randint(0, 3) if k == "maxProperties" else r.choice([0, 1, 1, 2])
            if r.random() < 0.1 and not self.is_closed:
                s["dependentSchemas"] = {k: self.schema(depth - 1) for k in self.some(NAMES, 1, 2)}
            if r.random() < 0.1 and not self.is_closed:
                s["unevaluatedProperties"] = self.schema(depth - 1)
            if r.random() < 0.15:
                s["dependentRequired"] = {k: self.some(NAMES, 1, 2) for k in self.some(NAMES, 1, 2)}
        elif kind in ("allOf", "anyOf", "oneOf"):
            s[kind] = self.schemas(depth)
        elif kind == "not":
            s["not"] = self.schema(depth - 1)
        elif kind == "if":
            s["if"] = self.schema(depth - 1)
            for k in self.some(["then", "else"], 1, 2):
                s[k] = self.schema(depth - 1)
        elif kind == "$ref" and self.refs:
            s["$ref"] = r.choice(self.refs)

    def schema(self, depth):
        r = self.r
        if depth < 0 or r.random() < 0.06:
            return r.random() < 0.7
        simple = ["type", "type", "const", "enum", "number", "string", "array", "object", "$ref"]
        s = {}
        for kind in self.some(simple + ["object", "allOf", "anyOf", "oneOf", "not", "if"] * (depth > 0), 1, 3):
            self.keyword(s, kind, depth)
        return s

    def document_schema(self):
        """A whole schema. Some have definitions, one of which has an $id: its references are relative to it."""
        r, self.refs = self.r, []
        if r.random() < 0.3:
            self.refs = ["#/$defs/p", "#"]
            inner = {"$id": "item.json", "$defs": {"p": self.schema(0)}}
            self.keyword(inner, "array", 1)
            self.keyword(inner, "$ref", 1)
            self.refs = ["#/$defs/p", "#/$defs/item", "#/$defs/item/$defs/p"]
            s = self.schema(2)
            s = s if isinstance(s, dict) else {}
            s["$id"] = "http://example.com/root/main.json"
            s["$defs"] = {"item": inner, "p": self.schema(0)}
            return s
        return self.schema(r.choice([1, 2, 2, 3]))

    def mutate(self, value):
        """The value with one random change."""
        r = self.r
        if isinstance(value, list) and value and r.random() < 0.8:
            value, i = list(value), r.randrange(len(value))
            if r.random() < 0.3:
                return value[:i] + value[i + 1:]
            if r.random() < 0.3:
                return value + [self.value(1)]
            value[i] = self.mutate(value[i])
            return value
        if isinstance(value, dict) and value and r.random() < 0.8:
            k = r.choice(list(value))
            if r.random() < 0.3:
                return {n: v for n, v in value.items() if n != k}
            if r.random() < 0.3:
                return dict(value, **{r.choice(NAMES): self.value(1)})
            return dict(value, **{k: self.mutate(value[k])})
        if isinstance(value, str) and r.random() < 0.7:
            return value + "a" if r.random() < 0.5 else value[1:]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and r.random() < 0.7:
            return value + r.choice([1, -1, 0.5, 0.0])
        return self.value(2)
