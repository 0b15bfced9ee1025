"""C sources as text with structure: functions, statements, and the constructs that CONTRIBUTING.md excludes.

This is no parser of C. It relies on the layout that clang-format gives to the sources: a function ends with a brace in
the first column, and nothing else in a function has one there."""
import glob
import os
import re

from cli import ROOT

HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
FUNCTION = re.compile(r"^(?!typedef|struct|enum|union|extern|\}|#)[A-Za-z][^;{}=#]*?\b(\w+)\([^;{}#]*\)\s*\{", re.M)
DECLARATION = re.compile(r"^(?!return\b)(?:(?:static|const|unsigned|long|struct|enum|union|register|volatile) )*\w+(?: const)?[ *]+\w+\s*(?:=|,|\[|\)|$|\()")
KEYWORD = re.compile(r"^(?:case [^:]*:|default:|else\b|do\b|UNROLL\b|\w+:(?!:))\s*")


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


def module_of(name):
    """The module that a file belongs to: its directory on the top level. A file X.c of the top level belongs to X."""
    stem = os.path.splitext(name)[0]
    return {"rope": "model"}.get(stem, stem.split("/")[0])


def blank(match):
    """Replaces all characters of a match except line breaks with spaces."""
    return re.sub(r"[^\n]", " ", match.group())


def strip_comments(text):
    """Replaces comments, and the contents of strings and character constants, with spaces."""
    def replace(match):
        found = match.group()
        return blank(match) if found[0] == "/" else found[0] + " " * (len(found) - 2) + found[0]

    return HIDDEN.sub(replace, text)


def strip_directives(text):
    """The text without preprocessor directives. Macros have no statements of their own."""
    return DIRECTIVE.sub(blank, text)


def parenthesis_end(text, start):
    """The index after the parenthesis that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return len(text)


class Function:
    """A function: its name, the number of its first line, its lines, and its body without comments."""

    def __init__(self, name, head, line, lines, code):
        self.name, self.head, self.line, self.lines, self.code = name, head, line, lines, code

    def n_blank(self):
        return sum(not line.strip() for line in self.lines)


def functions(text):
    """The functions of a file, without those that fit on one line."""
    code = strip_directives(strip_comments(text))
    lines = text.splitlines()
    found, position = [], 0
    while True:
        match = FUNCTION.search(code, position)
        if not match:
            return found
        end = code.find("\n}", match.end() - 1)
        first_break = code.find("\n", match.end())
        if "}" in code[match.end():first_break] or end < 0:  # on one line
            position = match.end()
            continue
        first, last = code.count("\n", 0, match.start()), code.count("\n", 0, end) + 1
        found.append(Function(match.group(1), match.group(), first + 1, lines[first:last + 1], code[match.end():end]))
        position = end


def statements(code):
    """(offset, text) of the statements of a body, `for` heads included as one. White space is folded."""
    found, start, depth, i = [], 0, 0, 0
    while i < len(code):
        c = code[i]
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif depth == 0 and c in ";{}":
            head = " ".join(code[start:i].split())
            if c == "{" and re.search(r"(?:=|\)|enum|struct|union|\[\])$|^(?:static )?(?:enum|struct|union)\b", head) and \
                    simple_statement(head) not in ("", "do", "else"):
                # An initializer or a compound literal is part of the statement.
                depth_braces, j = 0, i
                while j < len(code):
                    depth_braces += (code[j] == "{") - (code[j] == "}")
                    if depth_braces == 0:
                        break
                    j += 1
                i = j + 1
                continue

            text = " ".join(code[start:i].split())
            if text:
                found.append((start + len(code[start:i]) - len(code[start:i].lstrip()), text))
            start = i + 1

        i += 1
    return found


def top_level(text, separator):
    """True if the separator occurs outside parentheses, brackets and braces."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and text.startswith(separator, i):
            return True
    return False


def simple_statement(text):
    """A statement without the keywords, labels and conditions before it."""
    while True:
        head = re.match(r"(?:if|for|while|switch) ?\(", text)
        label = KEYWORD.match(text)
        if head:
            text = text[parenthesis_end(text, head.end() - 1):].lstrip()
        elif label and not re.match(r"\w+ \?", text):
            text = text[label.end():]
        else:
            return text


def conditions(text):
    """The conditions of a statement: of if and while, and the second part of a `for` head."""
    for head in re.finditer(r"\b(if|for|while) ?\(", text):
        inner = text[head.end():parenthesis_end(text, head.end() - 1) - 1]
        if head.group(1) == "for":
            parts = inner.split(";")
            inner = parts[1] if len(parts) == 3 else ""
        yield head.group(1), inner


def has_nested_ternary(text):
    """True if an operand of ?: contains another one that is not an argument of a call."""
    if text.count("?") < 2:
        return False
    open_ternaries = [0]  # per depth of parentheses
    for i, c in enumerate(text):
        if c in "([{":
            call = c != "(" or (i > 0 and (text[i - 1].isalnum() or text[i - 1] in "_)]"))
            open_ternaries.append(0 if call else open_ternaries[-1])
        elif c in ")]}":
            if len(open_ternaries) > 1:
                open_ternaries.pop()
        elif c == "?":
            if open_ternaries[-1]:
                return True
            open_ternaries[-1] += 1
        elif c in ",;":
            open_ternaries[-1] = 0
    return False


def has_constant_flag(condition, code):
    """True if a part of a loop's condition is a name that the loop does not change, so that it should be an `if`. A
    member, as in `!c->failed`, counts as changed by any call that gets the object."""
    if top_level(condition, "||"):
        return False
    for part in condition.split("&&"):
        flag = re.fullmatch(r"\s*!?([\w.>-]+)\s*", part)
        if flag and not re.search(r"(?<![\w>.])%s\s*(?:[|&^*/+-]?=[^=]|\+\+|--)|(?:&|\+\+|--)%s\b" % (
                (flag.group(1),) * 2), code):
            owner = re.split(r"\.|->", flag.group(1))[0]
            if owner == flag.group(1) or not re.search(r"\(&?%s[,)]" % owner, code):
                return "&&" in condition
    return False


def defects(function):
    """Yields (offset, kind, statement) for each construct of a function that CONTRIBUTING.md excludes."""
    for offset, text in statements(function.code):
        simple = simple_statement(text)
        if top_level(simple, ",") and not DECLARATION.match(simple):
            yield offset, "comma", text
        if has_nested_ternary(text):
            yield offset, "ternary", text
        for keyword, condition in conditions(text):
            if keyword == "for" and has_constant_flag(condition, function.code[offset:]):
                yield offset, "for", text
            if keyword == "if" and re.search(r"[^=!<>]=[^=]", re.sub(r"\{[^{}]*\}", "", condition)):
                yield offset, "assignment", text
