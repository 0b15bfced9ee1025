"""Measures of the source. `make size` prints them: tokens per module, which are a trend, and how often the source has what
hurts a reader (`MEASURES`), which may only become less.

tests/measures.json has the recorded values: the places that each measure found last, and the tokens of each module when
work on the version in VERSION began. `python3 tests/measures.py --record` updates it. A number that has risen is refused."""
import collections
import glob
import io
import json
import os
import re
import subprocess
import sys
import tokenize

import c_source
from c_source import sources, text_of
from cli import ROOT

RECORD = os.path.join(ROOT, "tests", "measures.json")
CORE = ["run.c", "model.[ch]", "rope.[ch]", "tokenizer.[ch]", "model/load.[ch]", "model/session.[ch]",
        "generate/generate.[ch]", "generate/sample.[ch]", "tokenizer/pretokenize.[ch]", "gguf/gguf.[ch]",
        "kernels/*.[ch]", "cli/options.[ch]", "cli/open_model.[ch]", "cli/commands/run.c", "cli/commands/commands.h"]
OPERATOR = r"<<=?|>>=?|->|&&|\|\||\+\+|--|[-+*/%&|^<>=!]=|\S"
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|" + OPERATOR)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
COMMENTS = {  # by the end of a file's name
    (".c", ".h", ".S", ".mjs"): r"//[^\n]*|/\*.*?\*/",
    (".sh", "/bash", "/zsh", "/fish"): r"^\s*#[^\n]*",
    (".jinja",): r"\{#.*?#\}",
    (".roff",): r'^\.\\"[^\n]*'}


# Tokens.

def embedded():
    """Relative paths of the text files that the program contains."""
    named = [re.findall(r"^\s+embed \S+, (\S+)$", text_of(s), re.M) for s in matching("*/*.S", "*/*/*.S")]
    return [name for names in named for name in names if not name.endswith(".gguf")]


def matching(*patterns):
    """Relative paths of the files in the root that match."""
    return sorted(os.path.relpath(f, ROOT) for p in patterns for f in glob.glob(os.path.join(ROOT, p)))


def n_tokens(name):
    """The number of tokens of a file. A string is one token, comments are none."""
    text = text_of(name)
    if name.endswith(".py"):
        layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        return sum(t.type not in layout for t in tokenize.generate_tokens(io.StringIO(text).readline))
    for ends, comment in COMMENTS.items():
        if name.endswith(ends):
            text = re.sub(comment, " ", text, flags=re.M | re.S)
    if name.endswith((".c", ".h", ".sh", ".mjs")):
        text = STRING.sub('S', text)
    return len(TOKEN.findall(text))


def files_by_module():
    """{module: its files}, followed by the whole program, its core, the scripts and the tests."""
    found = collections.defaultdict(list)
    for name in sources() + embedded():
        found[c_source.module_of(name)].append(name)
    found = {module: found[module] for module in sorted(found)}
    found["program"] = sources() + embedded()
    found["core"] = matching(*CORE)
    found["scripts"] = matching("scripts/*.py", "scripts/lib/*.py", "scripts/*.sh", "scripts/*.mjs")
    found["tests"] = matching("tests/*.[ch]", "tests/*/*.[ch]", "tests/*.py", "tests/*.sh")
    return found


def kind_of(name):
    return "C" if name.endswith((".c", ".h")) else "Python" if name.endswith(".py") else "other"


def tokens():
    """{module: {kind: tokens}}"""
    found = {}
    for module, names in files_by_module().items():
        found[module] = dict.fromkeys(("C", "Python", "other"), 0)
        for name in names:
            found[module][kind_of(name)] += n_tokens(name)
    return found


def count_lines(names):
    """(lines of code, share of lines with a comment) of some files, blank lines not counted."""
    n_code = n_comment = n_lines = 0
    for name in names:
        for line in text_of(name).splitlines():
            n_lines += bool(line.strip())
            n_code += bool(line.strip()) and not line.strip().startswith("//")
            n_comment += bool(re.search(r"//(?![^\"]*\"[^\"]*$)", line))
    return n_code, n_comment / n_lines


# What hurts a reader. Each measure yields the names of what it finds in the text of a C file without comments.

def many_decisions(code):
    """Functions with more than 15 decisions: 1, and one for each `if`, `for`, `while`, `case`, `&&`, `||` and `?`."""
    for f in c_source.functions(code):
        if 1 + len(re.findall(r"\b(?:if|for|while|case)\b|&&|\|\||\?", f.code)) > 15:
            yield f.name


def many_parameters(code):
    """Functions with 8 parameters or more."""
    for f in c_source.functions(code):
        if f.head.count(",") >= 7:
            yield f.name


def changing_statics(code):
    """Local variables that keep their value between calls and are no constants."""
    for f in c_source.functions(code):
        for declaration in re.findall(r"^\s+static ([^=;]*)", f.code, re.M):
            if not re.match(r"const\b", declaration) and not re.search(r"\bconst [\w ]+\w+\[", declaration):
                yield "%s: %s" % (f.name, " ".join(declaration.split()))


def many_fields(code):
    """Structs and unions of more than 25 fields, including those of their members; a table of constants with a type of its own
    counts with its values."""
    end = 0
    for head in re.finditer(r"\b(?:struct|union)\s*(\w*)\s*\{", code):
        if head.start() < end:  # a member of the last one
            continue
        end = code.find("\n}", head.end())
        body = code[head.end():end]
        if re.search(r"\)\s*\{", body):  # a function follows
            end = head.end()
            continue
        fields = [re.sub(r"\([^)]*\)", "", field) for field in body.split(";") if field.strip()]
        if sum(1 + field.count(",") for field in fields) > 25:
            table = re.search(r"(\w+)\[[^]]*\] = \{", body)
            name = re.match(r"\n\} (\w+)", code[end:]) or table
            yield name.group(1) if name else head.group(1)


MEASURES = {
    "functions of more than 15 decisions": many_decisions,
    "structs of more than 25 fields": many_fields,
    "functions of 8 parameters or more": many_parameters,
    "static locals that change": changing_statics}
TOP_LEVEL = "entries at the top level"  # in git; not measured in a source archive


def places():
    """{measure: sorted list of "FILE: NAME"}"""
    found = {measure: [] for measure in MEASURES}
    for name in sources():
        code = c_source.strip_comments(text_of(name))
        for measure, names in MEASURES.items():
            found[measure] += ["%s: %s" % (name, place) for place in names(code)]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode == 0 and tracked.stdout:
        found[TOP_LEVEL] = sorted({f.split("/")[0] for f in tracked.stdout.splitlines()})
    return found


def recorded():
    with open(RECORD, encoding="utf-8") as f:
        return json.load(f)


def risen(found, known):
    """A message for each measure that finds more than the recorded places, with the new ones."""
    for measure, names in found.items():
        if len(names) > len(known[measure]):
            new = collections.Counter(names) - collections.Counter(known[measure])
            yield "%s: %d, recorded %d; new: %s" % (measure, len(names), len(known[measure]), "; ".join(new.elements()))


# Commands.

def print_measures(found, known):
    print("\n%-38s %8s %9s" % ("may only fall", "now", "recorded"))
    for measure, names in found.items():
        print("%-38s %8d %9d" % (measure, len(names), len(known[measure])))


def print_size():
    old, found = recorded(), tokens()
    print("%-10s %8s %8s %8s %8s %12s %9s" % ("tokens", "C", "Python", "other", "all", old["version"] + " began", "change"))
    for module, kinds in found.items():
        now, before = sum(kinds.values()), old["tokens"].get(module)
        change = "%+.1f %%" % (100 * (now / before - 1)) if before else "new"
        print("%-10s %8d %8d %8d %8d %12d %9s" % (module, *kinds.values(), now, before or 0, change))

    n_lines, comments = count_lines(files_by_module()["core"])
    print("the core has %d lines of code; %.0f %% of its lines have a comment" % (n_lines, 100 * comments))
    print_measures(places(), old["places"])


def record():
    """Stores the places of each measure, and the tokens after a change of VERSION. Returns the exit status: 1 if a number
    has risen, and nothing is stored."""
    old, found = recorded(), places()
    errors = list(risen(found, old["places"]))
    if errors:
        print("\n".join(errors))
        return 1

    old["places"].update(found)
    version = text_of("VERSION").strip()
    if version != old["version"]:
        old.update(version=version, tokens={module: sum(kinds.values()) for module, kinds in tokens().items()})
    with open(RECORD, "w", encoding="utf-8") as f:
        f.write(json.dumps(old, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        sys.exit(record())
    print_size()
