"""The structure of the source: directions of #includes and calls, names that grep can find, functions that have paragraphs,
and measures that may only fall.

The table "Modules" of docs/architecture.md is the specification: a row names a module and the modules above it that it may
include. tests/measures.json has the recorded measures."""
import collections
import os
import re

import c_source
import measures
from c_source import module_of, sources, tests, text_of
from cli import check, main, same, test

LONG = 20             # lines of a function that needs paragraphs
WITH_COMMAS = ["gguf/checksum.c"]  # comma statements are not counted
KNOWN_CIRCLES = [  # files that call each other; no new one is allowed
    {"cli/commands/commands.c", "cli/commands/help.c"}]  # the table of commands, and the command that prints it
BACKENDS = ("kernels/vector/", "kernels/x86/", "kernels/arm/")
PARTS = {"tokenizer/vocabulary": "tokenizer"}  # the second file of a module; only the two files include its header
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def unit_of(name):
    """model.c and model.h are the unit "model"; kernels/ops.c is of "kernels/ops"."""
    stem = os.path.splitext(name)[0]
    return PARTS.get(stem, stem)


def modules():
    """{module: modules that it may include} of docs/architecture.md, in order"""
    rows = re.findall(r"^\| `([\w/.]+?)(?:/|\.c)?` \|[^|]*\|([^|]*)\|$", text_of("docs/architecture.md"), re.M)
    return {name: re.findall(r"`(\w+)", others) for name, others in rows}


def includes():
    """{file: included files of the program}"""
    files = set(sources())
    found = {}
    for name in files:
        found[name] = [p for p in INCLUDE.findall(text_of(name)) if p in files]
    return found


def find_circle(arrows):
    """A list of nodes that lead back to the first, or None. Depth-first search; 1 is open, 2 is done."""
    state = {}

    def visit(node, path):
        if state.get(node) == 2:
            return None
        if state.get(node) == 1:
            return path[path.index(node):] + [node]
        state[node] = 1
        for other in sorted(arrows.get(node, ())):
            circle = visit(other, path + [node])
            if circle:
                return circle
        state[node] = 2
        return None

    for node in sorted(arrows):
        circle = visit(node, [])
        if circle:
            return circle
    return None


@test
def paragraphs():
    walls, commas, n_long = [], [], 0
    for name in sources() + tests():
        for f in c_source.functions(text_of(name)):
            if len(f.lines) >= LONG:
                n_long += 1
                if not f.n_blank():
                    walls.append("%s:%d %s" % (name, f.line, f.name))
            if name in WITH_COMMAS:
                continue
            commas += ["%s:%d: %s" % (name, f.line + f.code.count("\n", 0, at), text)
                       for at, kind, text in c_source.defects(f) if kind == "comma"]
    print("%d functions of %d lines or more, %d of them without a blank line" % (n_long, LONG, len(walls)))
    check(n_long > 100, "found only", n_long, "long functions")
    check(not walls, len(walls), "long functions have no blank line:", *walls[:10])
    check(not commas, "comma statements:", *commas[:10])


@test
def defects_are_found():
    code = c_source.strip_comments("""
int f(int a, int b) {
    int c = g(a, b), d = 0;
    for (int i = 0, n = 3; i < n; i++, d++) c += (struct p){a, b}.x;
    if (a) c = 1, d = 2;
    return a ? b : c ? d : 0;
}""")
    found = [kind for f in c_source.functions(code) for _, kind, _ in c_source.defects(f)]
    check(found == ["comma", "ternary"], "found", found)


@test
def no_circles():
    arrows = collections.defaultdict(set)
    for name, others in includes().items():
        arrows[unit_of(name)] |= {unit_of(o) for o in others} - {unit_of(name)}
    circle = find_circle(arrows)
    check(not circle, "modules include each other:", " -> ".join(circle or []))


@test
def no_circles_of_calls():
    code, home = {}, {}
    for name in sources():
        if name.endswith(".c") and not name.startswith(("base/os/", *BACKENDS)) and not name.endswith("/stub.c"):
            code[name] = c_source.strip_directives(c_source.strip_comments(text_of(name)))
            for found in c_source.FUNCTION.finditer(code[name]):
                if not found.group().startswith("static"):
                    home[found.group(1)] = name
    arrows = {}
    for name, text in code.items():
        tolerated = set().union(*(circle for circle in KNOWN_CIRCLES if name in circle))
        arrows[name] = {home[word] for word in re.findall(r"\w+", text) if word in home} - {name} - tolerated
    circle = find_circle(arrows)
    check(not circle, "files call each other:", " -> ".join(circle or []))


@test
def files_have_headers():
    for name in sources():
        check(name.endswith(".h") or text_of(name).startswith("//"), name, "does not begin with a comment: what it is for, or \"See X.h.\"")


@test
def arrows_run_down():
    table = modules()
    names = list(table)
    check(len(names) > 10, "docs/architecture.md has no table of modules")
    for i, (name, allowed) in enumerate(table.items()):
        check(set(allowed) <= set(names[:i]), "docs/architecture.md:", name, "includes a module that is not above it")
    for name, others in sorted(includes().items()):
        module = module_of(name)
        check(module in table, name, "is in no row of docs/architecture.md")
        for other in others:
            target = module_of(other)
            check(target == module or target in table[module],
                  name, "includes", other + ": docs/architecture.md has no arrow", module, "->", target)


@test
def measures_only_fall():
    found, known = measures.places(), measures.recorded()["places"]
    risen = list(measures.risen(found, known))
    check(not risen, *risen)
    fallen = [measure for measure, names in found.items() if len(names) < len(known[measure])]
    check(not fallen, "fewer", " and ".join(fallen) + ": store the lower number with `python3 tests/measures.py --record`")


@test
def measures_find():
    """Each measure finds its kind of place, one above the limit, and nothing at the limit."""
    body = "    if (a) b();\n" * 13
    code = "\nint f(int a) {\n%s    return a ? 1 : 2;\n}\n" % body
    fields = "    int %s;\n" % ", ".join("a%d" % i for i in range(25))
    cases = {
        "functions of more than 15 decisions": (code, code.replace("a ? 1 : 2", "a && b ? 1 : 2")),
        "structs of more than 25 fields": ("\ntypedef struct {\n%s} f;\n" % fields,
                                           "\ntypedef struct {\n%s    void (*g)(int, int);\n} f;\n" % fields),
        "functions of 8 parameters or more": ("\nint f(int a%s) {\n    g();\n}\n" % (", int b" * 6),
                                              "\nint f(int a%s) {\n    g();\n}\n" % (", int b" * 7)),
        "static locals that change": ("\nint f(void) {\n    static const int a = 1;\n}\n",
                                      "\nint f(void) {\n    static int a = 1;\n}\n")}
    same(set(cases), set(measures.MEASURES))
    for measure, (good, bad) in cases.items():
        find = measures.MEASURES[measure]
        same(list(find(good)), [], measure)
        same([name.split(":")[0] for name in find(bad)], ["f"], measure)
    risen = list(measures.risen({"m": ["a", "b", "c"]}, {"m": ["a", "c"]}))
    same(risen, ["m: 3, recorded 2; new: b"])


@test
def sizes_are_reported():
    files = measures.files_by_module()
    check(all(files.values()), "a module without files:", *[m for m, names in files.items() if not names])
    check(all(measures.matching(p) for p in measures.CORE), "a pattern of the core matches no file")
    n_core = measures.count_lines(files["core"])[0]
    for number in re.findall(r"about ([\d,]+) lines\s+of\s+code", text_of("README.md")):
        number = int(number.replace(",", ""))
        check(abs(number - n_core) < n_core / 20, "README.md: the core has", n_core, "lines of code, found", number)


@test
def names_are_unique():
    types, functions = collections.defaultdict(set), collections.defaultdict(set)
    for name in sources():
        if name.startswith("base/os/") or name.endswith("/stub.c"):
            continue  # one of several implementations of one header
        text = text_of(name)
        found = re.findall(r"^\} (\w+);", text, re.M) + re.findall(r"^typedef (?:struct|enum|union) \w+ (\w+);", text, re.M)
        for t in set(found):
            types[t].add(unit_of(name))
        for f in set(re.findall(r"^(?:static|INLINE)\b[^;={]*?\b(\w+)\([^;]*?\)\s*\{", text, re.M)):
            functions[f].add(name)
    for t, where in sorted(types.items()):
        check(len(where) == 1, "type", t, "is defined in", *sorted(where))
    for f, where in sorted(functions.items()):
        backend = all(w.startswith(BACKENDS) for w in where)  # twins of one kernel in every backend
        check(backend or len(where) < 3, "static function", f, "is defined in", *sorted(where))


@test
def walkthrough_names_functions():
    text = text_of("docs/walkthrough.md")
    named = re.findall(r"`([\w/]+\.[ch]):(\w+)`", text)
    check(len(named) > 20, "docs/walkthrough.md names few functions")
    for name, symbol in named:
        found = re.search(r"^[\w*][^;={]*\b%s\(|^\} %s;" % (symbol, symbol), text_of(name), re.M)
        check(found, "docs/walkthrough.md:", name, "does not define", symbol)


if __name__ == "__main__":
    main("structure")
