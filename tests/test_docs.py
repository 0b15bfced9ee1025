#!/usr/bin/env python3
"""The documents: every command line with llama31 in a code block runs, and links lead to files and headings.

A block is run by bash in a directory with the built-in model under the names that the documents use. `$ cat FILE`
followed by lines writes FILE. Each command must exit with 0, without a warning, and print or write something."""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess

from cli import PROGRAM, ROOT, Skip, check, in_ci, main, requires, some, test

PAGES = sorted(os.path.relpath(f, ROOT) for pattern in ("*.md", "docs/*.md", "stories/*.md") for f in glob.glob(os.path.join(ROOT, pattern)))
MODEL = os.path.join(ROOT, "stories", "stories.gguf")
NOT_RUN = {  # part of a command: why it does not run here
    "parallel -j1": "needs other machines",
    "sbatch": "needs a cluster",
    "< requests": "needs two pipes",
    "truncated.gguf": "shows a refusal",
    '"contains"': "shows an incomplete text",
    "bench -m": "measures for seconds; tests/test_cli.py runs it",
    "--rerank": "needs a reranker; tests/test_score.py runs it",
    "scripts/lm_eval": "needs lm-evaluation-harness",
    "plot_rope.py": "tests/test_plot_rope.py runs it",
    "--lora": "needs an adapter; tests/test_reuse.py runs it",
    "--continue": "needs a chat on a terminal; tests/test_chat.py runs it",
    "--tools": "needs a template with tools; tests/test_cli.py runs it",
    "--kv q8_0": "needs other heads; tests/test_reference.py runs it",
    "16.f32": "shows a difference, and then nothing",
    "man -l": "needs man",
    "source <(": "prints nothing; tests/test_help.py runs it",
    "fish": "tests/test_help.py runs it",
    "-i $< -o $@": "is a rule of a Makefile",
    "$SGE_TASK_ID": "needs a scheduler; tests/test_slurm.py runs another",
    "--shard $i/8": "needs Kubernetes",
}
REPLACED = {  # what the built-in model or this directory does not have
    "git diff": "cat notes.txt",
    "git log -5": "cat notes.txt",
    "128000,9906": "1,2",
    "9906 11 1917": "1 11 19",
    "/home/you/llama31/": "",
}
FILES = {
    "person.json": '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}',
    "answer.gbnf": 'root ::= "yes" | "no"',
    "talk.jsonl": '{"role": "user", "content": "Hi"}\n{"role": "assistant", "content": "Hello."}\n',
    "ids": "1,2,3",
    "in.jsonl": '{"prompt": "One", "max_tokens": 2}\n{"prompt": "Two", "max_tokens": 2}\n',
    **dict.fromkeys(("notes.txt", "PROMPT", "long-prompt.txt"), "Once upon a time there was a dog. " * 8),
    "text.txt": "Once upon a time there was a dog. " * 60,
    **dict.fromkeys(("strings.jsonl", "texts.jsonl"), '"Once upon a time"\n'),
}
SEEDED = """#!/bin/sh
# llama31 with a seed: the same texts in each run of this test.
program='%s'
case $1 in
run | batch | chat) command=$1; shift; exec "$program" "$command" -s 1 "$@" ;;
*) exec "$program" "$@" ;;
esac
"""


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """Lists of the lines of each indented code block, without the indentation."""
    found, is_open = [], False
    for line in text.splitlines():
        if not line.startswith("    "):
            is_open = False
            continue
        if not is_open:
            found.append([])
        found[-1].append(line[4:])
        is_open = True
    return found


def commands_of(block):
    """The commands of a block: those with llama31, and those that write what they need."""
    lines = "\n".join(block).replace("\\\n", " ").replace("|\n", "| ").split("\n")
    is_dialogue = any(line.startswith("$ ") for line in lines)
    found = []
    for i, line in enumerate(lines):
        if is_dialogue and not line.startswith("$ "):
            continue
        line = line[2:] if is_dialogue else line
        shown = re.fullmatch(r"cat ([\w.-]+)", line)
        if shown:
            end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith("$ ")), len(lines))
            found.append("cat > %s <<'END'\n%s\nEND" % (shown[1], "\n".join(lines[i + 1:end])))
        elif re.search(r"(^|[ |(;'])(\./)?llama31 ", line) or re.match(r"\w+=\$|export |echo .*> ", line):
            found.append(line)
    return found


def run_page(page, folder):
    """Runs the commands of a page in `folder`. Returns (number of commands with llama31, failures)."""
    os.mkdir(folder)
    with open(os.path.join(folder, "llama31"), "w") as f:
        f.write(SEEDED % PROGRAM)
    os.chmod(os.path.join(folder, "llama31"), 0o755)
    for name, text in FILES.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    env = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], HOME=folder, OMP_NUM_THREADS="1")

    n_run, failures = 0, []
    for block in blocks(read(os.path.join(ROOT, page))):
        setup = "set -o pipefail\n"
        for command in commands_of(block):
            if any(part in command for part in NOT_RUN):
                continue
            for text, other in REPLACED.items():
                command = command.replace(text, other)
            if "llama31 " not in command or command.startswith("cat > "):
                setup += command + "\n"
                continue

            models = re.findall(r"[\w.-]+\.gguf|\bMODEL\b", setup + command)
            for name in models[:1] if " quantize " in command else models:
                if not os.path.exists(os.path.join(folder, name)):
                    os.symlink(MODEL, os.path.join(folder, name))
            if "llama31 chat" in command and "|" not in command:
                command = "echo Hi | " + command

            before = set(os.listdir(folder))
            r = subprocess.run(["bash", "-c", setup + command], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, timeout=60)
            n_run += 1
            has_warning = re.search("warning: (?!.* is already quantized)", r.stderr)
            has_result = r.stdout or r.stderr or before < set(os.listdir(folder))
            if r.returncode or has_warning or not has_result:
                failures.append("%s: %s: exit status %d: %s" % (page, command, r.returncode, r.stderr[-300:]))
    return n_run, failures


@test
def commands(tmp):
    requires("constrain", "speculate", "cache", "lora", "quantize")
    if not shutil.which("bash"):
        raise Skip("no bash")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        pages = some(PAGES)
        results = list(pool.map(run_page, pages, [os.path.join(tmp, str(i)) for i in range(len(pages))]))
    n_run, failures = sum(n for n, _ in results), [f for _, page in results for f in page]
    check(not failures, "%d of %d commands:" % (len(failures), n_run), *failures)
    check(n_run > in_ci(50, 10), "found only", n_run, "commands")
    for part in NOT_RUN:
        check(any(part in c for page in PAGES for b in blocks(read(os.path.join(ROOT, page))) for c in commands_of(b)),
              "no command contains", repr(part))


def anchors(text):
    """The anchors of the headings of a page, as GitHub forms them."""
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}


@test
def links():
    """Links lead to files and headings, also in the installed documents, and README.md lists every page."""
    pages = {page: read(os.path.join(ROOT, page)) for page in PAGES}
    n_links = 0
    for page, text in pages.items():
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
            path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            check(os.path.exists(os.path.join(ROOT, path)), page, "links to", target, "which does not exist")
            check(not anchor or anchor in anchors(pages[path]), page, "links to", path, "which has no heading", anchor)
            n_links += 1
    check(n_links > 60, "found only", n_links, "links")
    for page in glob.glob(os.path.join(ROOT, "docs", "*.md")):
        check("(docs/%s)" % os.path.basename(page) in pages["README.md"], "README.md does not list", page)


@test
def installed_links(tmp):
    """make install copies what the installed documents link to."""
    if not os.path.exists(os.path.join(ROOT, "llama31")):
        raise Skip("no ./llama31")
    subprocess.run(["make", "-s", "-C", ROOT, "CC=/nonexistent", "DESTDIR=" + tmp, "PREFIX=", "install"], check=True)
    installed = glob.glob(os.path.join(tmp, "share/doc/llama31/**/*.md"), recursive=True)
    check(len(installed) > 10, "installed only", *installed)
    for page in installed:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", read(page)):
            check(os.path.exists(os.path.join(os.path.dirname(page), target)), page, "links to", target, "which is not installed")


if __name__ == "__main__":
    main("docs")
