"""The structure of the source: size of the core and of the whole, directions of the #includes, names that grep can find.

The table "Modules" of docs/architecture.md is the specification: a row names a directory or a file of the top level, and
the modules that it may include. CONTRIBUTING.md explains the ceilings."""
import collections
import glob
import os
import re

from cli import ROOT, check, main, test

CORE_CEILING = 4800   # lines of code: neither blank nor a comment alone
TOTAL_CEILING = 28209
CORE = ["run.c", "model.[ch]", "model_load.[ch]", "session.[ch]", "rope.[ch]", "generate.[ch]", "sample.[ch]",
        "tokenizer.[ch]", "pretokenize.[ch]", "gguf.[ch]", "kernels/*.[ch]", "cli/options.[ch]", "cli/open_model.[ch]",
        "commands/run.c", "commands/commands.h"]
PARTS = {"vocabulary": "tokenizer"}  # the second file of a module, and the header that only the two share
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def sources():
    """Relative paths of all C files outside tests."""
    found = []
    for pattern in ("*.[ch]", "*/*.[ch]", "*/*/*.[ch]", "*/*/*/*.[ch]"):
        found += glob.glob(os.path.join(ROOT, pattern))
    names = sorted(os.path.relpath(f, ROOT) for f in found)
    return [n for n in names if not n.startswith(("tests/", "build"))]


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


@test
def size():
    core = [os.path.relpath(f, ROOT) for p in CORE for f in sorted(glob.glob(os.path.join(ROOT, p)))]
    check(all(glob.glob(os.path.join(ROOT, p)) for p in CORE), "a pattern of the core matches no file")
    n_core, comments = count(core)
    n_total, _ = count(sources())
    print("core: %d lines of code (at most %d), %.0f %% of its lines have a comment; total: %d (at most %d)" % (
        n_core, CORE_CEILING, 100 * comments, n_total, TOTAL_CEILING))
    check(n_core <= CORE_CEILING, "the core has", n_core, "lines of code; the ceiling is", CORE_CEILING)
    check(n_total <= TOTAL_CEILING, "the program has", n_total, "lines of code; the ceiling is", TOTAL_CEILING)


@test
def no_circles():
    arrows = collections.defaultdict(set)
    for name, others in includes().items():
        arrows[module_of(name)] |= {module_of(o) for o in others} - {module_of(name)}
    circle = find_circle(arrows)
    check(not circle, "modules include each other:", " -> ".join(circle or []))


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
        if name.startswith("os/") or name.endswith("/stub.c"):
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
    shared = "int head = item->kv_head * item->group + query % item->group;"
    check(shared in text and shared in text_of("kernels/attention.c"), "the line that shares a KV head has changed")


if __name__ == "__main__":
    main("structure")
