"""The structure of the source: directions of #includes and calls, names that grep can find, functions that have paragraphs.

The table "Modules" of docs/architecture.md is the specification of the #includes: a row names a directory or a file of
the top level, and the modules that it may include. `python3 tests/test_structure.py --size` prints the size of every
module and compares the totals with the ceilings, which CONTRIBUTING.md explains."""
import collections
import glob
import os
import re
import sys

import c_source
from cli import ROOT, check, main, test

CORE_CEILING = 5100   # lines of code: neither blank nor a comment alone
TOTAL_CEILING = 28700
LONG = 20             # lines of a function that needs paragraphs
WALLS = 5             # long functions without a blank line that are tolerated, tests included
WITH_COMMAS = ["gguf/checksum.c"]  # comma statements are not counted
CORE = ["run.c", "model.[ch]", "model_load.[ch]", "session.[ch]", "rope.[ch]", "generate.[ch]", "sample.[ch]",
        "tokenizer.[ch]", "pretokenize.[ch]", "gguf.[ch]", "kernels/*.[ch]", "cli/options.[ch]", "cli/open_model.[ch]",
        "cli/commands/run.c", "cli/commands/commands.h"]
KNOWN_CIRCLES = [  # files that call each other; no new one is allowed
    {"cli/commands/commands.c", "cli/commands/help.c"}]  # the table of commands, and the command that prints it
PARTS = {"vocabulary": "tokenizer"}  # the second file of a module; only the two files include its header
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def sources():
    """Relative paths of all C files outside tests."""
    found = []
    for pattern in ("*.[ch]", "*/*.[ch]", "*/*/*.[ch]", "*/*/*/*.[ch]"):
        found += glob.glob(os.path.join(ROOT, pattern))
    names = sorted(os.path.relpath(f, ROOT) for f in found)
    return [n for n in names if not n.startswith(("tests/", "build"))]


def tests():
    """Relative paths of the C files of the tests."""
    return sorted(os.path.relpath(f, ROOT) for f in glob.glob(os.path.join(ROOT, "tests", "*.c")))


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def count(names):
    """(lines of code, share of lines with a comment) of some files, blank lines not counted."""
    n_code = n_comment = n_lines = 0
    for name in names:
        for line in text_of(name).splitlines():
            n_lines += bool(line.strip())
            n_code += bool(line.strip()) and not line.strip().startswith("//")
            n_comment += bool(re.search(r"//(?![^\"]*\"[^\"]*$)", line))
    return n_code, n_comment / n_lines


def module_of(name):
    """model.c and model.h are the module "model"; kernels/ops.c is "kernels/ops"."""
    stem = os.path.splitext(name)[0]
    return PARTS.get(stem, stem)


def group_of(name):
    """The row of the table that a file belongs to: its directory, or its module on the top level."""
    return name.split("/")[0] if "/" in name else module_of(name)


def includes():
    """{file: included files of the program}"""
    files = set(sources())
    found = {}
    for name in files:
        paths = [os.path.normpath(os.path.join(os.path.dirname(name), p)) for p in INCLUDE.findall(text_of(name))]
        found[name] = [p for p in paths if p in files]
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


def print_size():
    """Prints statements and lines of code per module. Returns the exit status: 1 above a ceiling."""
    core = {os.path.relpath(f, ROOT) for p in CORE for f in glob.glob(os.path.join(ROOT, p))}
    modules = collections.defaultdict(list)
    for name in sources():
        modules["core" if name in core else os.path.dirname(name) or "top level"].append(name)
    print("%-12s %10s %8s %9s" % ("module", "statements", "lines", "comments"))
    total = [0, 0]
    for module, names in sorted(modules.items()):
        n_lines, comments = count(names)
        n_statements = sum(c_source.n_statements(text_of(n)) for n in names)
        print("%-12s %10d %8d %7.0f %%" % (module, n_statements, n_lines, 100 * comments))
        total = [total[0] + n_statements, total[1] + n_lines]
    n_core = count(core)[0]
    print("%-12s %10d %8d   ceilings: core %d, total %d lines" % ("total", *total, CORE_CEILING, TOTAL_CEILING))
    return n_core > CORE_CEILING or total[1] > TOTAL_CEILING


@test
def core_exists():
    check(all(glob.glob(os.path.join(ROOT, p)) for p in CORE), "a pattern of the core matches no file")


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
    check(len(walls) <= WALLS, len(walls), "long functions have no blank line:", *walls[:WALLS + 10])
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
    check(c_source.n_statements('void f(void) { for (;;) { g(";"); } // ;\n}') == 3, "statements are counted wrong")


@test
def no_circles():
    arrows = collections.defaultdict(set)
    for name, others in includes().items():
        arrows[module_of(name)] |= {module_of(o) for o in others} - {module_of(name)}
    circle = find_circle(arrows)
    check(not circle, "modules include each other:", " -> ".join(circle or []))


@test
def no_circles_of_calls():
    code, home = {}, {}
    for name in sources():
        if name.endswith(".c") and not name.startswith(("base/os/", "backends/")) and not name.endswith("/stub.c"):
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
def arrows_are_documented():
    allowed = {}
    for row in re.findall(r"^\| `([\w/.]+)` \|[^|]*\|([^|]*)\|$", text_of("docs/architecture.md"), re.M):
        above = set(allowed) if "everything above" in row[1] else set()
        allowed[row[0].rstrip("/")] = above | {m.rstrip("/") for m in re.findall(r"`([\w/.]+)`", row[1])}
    check(len(allowed) > 10, "docs/architecture.md has no table of modules")
    for name, others in sorted(includes().items()):
        group = group_of(name)
        check(group in allowed, name, "is in no row of docs/architecture.md")
        for other in others:
            target = group_of(other)
            check(target == group or target in allowed[group],
                  name, "includes", other + ": docs/architecture.md has no arrow", group, "->", target)


@test
def names_are_unique():
    types, functions = collections.defaultdict(set), collections.defaultdict(set)
    for name in sources():
        if name.startswith("base/os/") or name.endswith("/stub.c"):
            continue  # one of several implementations of one header
        text = text_of(name)
        found = re.findall(r"^\} (\w+);", text, re.M) + re.findall(r"^typedef (?:struct|enum|union) \w+ (\w+);", text, re.M)
        for t in set(found):
            types[t].add(module_of(name))
        for f in set(re.findall(r"^(?:static|INLINE)\b[^;={]*?\b(\w+)\([^;]*?\)\s*\{", text, re.M)):
            functions[f].add(name)
    for t, where in sorted(types.items()):
        check(len(where) == 1, "type", t, "is defined in", *sorted(where))
    for f, where in sorted(functions.items()):
        backend = all(w.startswith("backends/") for w in where)  # twins of one kernel in every backend
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
    if sys.argv[1:] == ["--size"]:
        sys.exit(print_size())
    main("structure")
