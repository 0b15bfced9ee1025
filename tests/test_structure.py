"""The structure of the source: directions of #includes and calls, names that grep can find, functions that have paragraphs.

The table "Modules" of docs/architecture.md is the specification: a row names a module, the modules above it that it may
include, and the greatest number of its lines of code. `python3 tests/test_structure.py --size` prints the size of every
module; its exit status is 1 if one is above its ceiling."""
import collections
import glob
import os
import re
import subprocess
import sys

import c_source
from cli import ROOT, Skip, check, main, test

LONG = 20             # lines of a function that needs paragraphs
WALLS = 5             # long functions without a blank line that are tolerated, tests included
WITH_COMMAS = ["gguf/checksum.c"]  # comma statements are not counted
CORE = ["run.c", "model.[ch]", "rope.[ch]", "tokenizer.[ch]", "model/load.[ch]", "model/session.[ch]",
        "generate/generate.[ch]", "generate/sample.[ch]", "tokenizer/pretokenize.[ch]", "gguf/gguf.[ch]",
        "kernels/*.[ch]", "cli/options.[ch]", "cli/open_model.[ch]", "cli/commands/run.c", "cli/commands/commands.h"]
KNOWN_CIRCLES = [  # files that call each other; no new one is allowed
    {"cli/commands/commands.c", "cli/commands/help.c"}]  # the table of commands, and the command that prints it
BACKENDS = ("kernels/vector/", "kernels/x86/", "kernels/arm/")
PARTS = {"tokenizer/vocabulary": "tokenizer"}  # the second file of a module; only the two files include its header
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


def unit_of(name):
    """model.c and model.h are the unit "model"; kernels/ops.c is of "kernels/ops"."""
    stem = os.path.splitext(name)[0]
    return PARTS.get(stem, stem)


def module_of(name):
    """The module that a file belongs to: its directory on the top level. A file X.c of the top level belongs to X."""
    stem = os.path.splitext(name)[0]
    return {"rope": "model"}.get(stem, stem.split("/")[0])


def modules():
    """{module: (modules that it may include, ceiling of its lines of code)} of docs/architecture.md, in order; "core" and
    "whole" include nothing."""
    rows = re.findall(r"^\| (?:the )?`?([\w/.]+?)(?:/|\.c)?`? \|[^|]*\|([^|]*)\| *([\d,]+) \|$", text_of("docs/architecture.md"), re.M)
    return {name: (re.findall(r"`(\w+)", others), int(ceiling.replace(",", ""))) for name, others, ceiling in rows}


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


def sizes():
    """{module: its files}, and those of "core" and "whole"."""
    found = collections.defaultdict(list)
    for name in sources():
        found[module_of(name)].append(name)
    found["core"] = [os.path.relpath(f, ROOT) for p in CORE for f in glob.glob(os.path.join(ROOT, p))]
    found["whole"] = sources()
    return found


def print_size():
    """Prints statements and lines of code of every module. Returns the exit status: 1 above a ceiling."""
    print("%-10s %10s %8s %8s %9s" % ("module", "statements", "lines", "ceiling", "comments"))
    found, too_large = sizes(), []
    for module, (_, ceiling) in modules().items():
        n_lines, comments = count(found[module])
        n_statements = sum(c_source.n_statements(text_of(n)) for n in found[module])
        print("%-10s %10d %8d %8d %7.0f %%" % (module, n_statements, n_lines, ceiling, 100 * comments))
        if n_lines > ceiling:
            too_large.append("%s has %d lines, ceiling %d" % (module, n_lines, ceiling))
    print("\n".join(too_large) or "no module is above its ceiling")
    return len(too_large) > 0


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
    for i, (name, (allowed, _)) in enumerate(table.items()):
        check(set(allowed) <= set(names[:i]), "docs/architecture.md:", name, "includes a module that is not above it")
    for name, others in sorted(includes().items()):
        module = module_of(name)
        check(module in table, name, "is in no row of docs/architecture.md")
        for other in others:
            target = module_of(other)
            check(target == module or target in table[module][0],
                  name, "includes", other + ": docs/architecture.md has no arrow", module, "->", target)


@test
def ceilings_hold():
    table, found = modules(), sizes()
    check(set(table) == set(found), "docs/architecture.md has ceilings of", *sorted(table), "expected", *sorted(found))
    for module, (_, ceiling) in table.items():
        check(count(found[module])[0] <= ceiling, module, "is above its ceiling; see make size")
    for page in ("README.md", "CONTRIBUTING.md"):
        for number in re.findall(r"([\d,]+) lines\s+of\s+code", text_of(page)):
            check(int(number.replace(",", "")) in [c for _, c in table.values()],
                  page, "names", number, "lines of code, which is no ceiling of docs/architecture.md")


@test
def top_level_is_small():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        raise Skip("no git")
    names = {f.split("/")[0] for f in tracked.stdout.splitlines()}
    check(len(names) <= 34, "the top level has", len(names), "entries:", *sorted(names))


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
    if sys.argv[1:] == ["--size"]:
        sys.exit(print_size())
    main("structure")
