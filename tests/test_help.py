#!/usr/bin/env python3
"""Help, version, manual page, completions, installation, and options of llama.cpp."""
import os
import re
import shutil
import subprocess
import tarfile

import cli
from cli import PROGRAM, Skip, check, same, slow, some, test
from terminal import Terminal

os.environ.pop("MAKEFLAGS", None)  # the makes started here must not use the job server of `make -j test`

COMMANDS = "run chat batch score tokenize logits show quantize bench rope help".split()


def program(*args, code=0, program=PROGRAM):
    r = subprocess.run([program, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    check(r.returncode == code, args, "exit", r.returncode, r.stderr)
    return r.stdout, r.stderr


def helps(*args):
    return {command: program("help", command, *args)[0] for command in COMMANDS}


def names_in(text):
    return set(re.findall(r"^  (-[-\w]+)", text, re.M)) | set(re.findall(r", (--?[a-z][-\w]*)", text))


@test
def fits(tmp):
    """Help fits 80 columns and has groups, defaults and an example."""
    overview = program("help")[0]
    everything = helps("--all")
    for command, text in list(helps().items()) + list(everything.items()) + [("", overview)]:
        check(max(map(len, text.splitlines())) <= 80, command)
        check("\nExample:\n  " in text, command)
        check(command in overview, command)
    for words in ("Sampling:", "(default 0.8)", "(default 40)", "(default f16)", "(default 0.95)", "(default 0.05)"):
        check(words in everything["run"], words)
    for command, text in helps().items():
        same(program(command, "--help")[0], text)
        check(re.search(r"Example:\n  llama31 %s " % command, text), text)
    for args in (("--help",), ("-h",)):
        same(program(*args)[0], overview)


@test
def defaults(tmp):
    """The defaults of numbers in the help and in docs/usage.md are those of the program, which chat's /set shows."""
    shown = subprocess.run([PROGRAM, "chat", "-q", "--commands"], input="/set\n", capture_output=True, text=True, timeout=60).stderr
    values = dict(re.findall(r"([a-z][-\w]+) (-?[\d.]+)", shown))
    del values["seed"]
    text = re.sub(r"\n {20,}", " ", program("help", "chat", "--all")[0])
    in_help = dict(re.findall(r"^  --([-\w]+).*\(default (-?[\d.]+)", text, re.M))
    same({name: in_help.get(name) for name in values}, values)

    with open(os.path.join(cli.ROOT, "docs", "usage.md")) as f:
        rows = re.findall(r"^\| (`--.*?`) \| ([-\d., ()of]+) \|", f.read(), re.M)
    in_docs = {}
    for options, numbers in rows:
        names, numbers = re.findall(r"--([-\w]+)", options), re.findall(r"-?\d[\d.]*", numbers)
        in_docs.update(zip(names, numbers * len(names)))
    same({name: in_docs.get(name) for name in values}, values)


@test
def common_options(tmp):
    """help begins with run, chat and batch; help COMMAND lists the common options by one name, and counts the others."""
    overview = program("help")[0]
    same(re.findall(r"^  (\w+) ", overview.split("Tools:")[0], re.M), COMMANDS[:3])
    check(len(overview.splitlines()) < 24 and "Exit status" not in overview and "NO_COLOR" not in overview, overview)

    everything = helps("--all")
    for command, text in helps().items():
        shown = re.findall(r"^  (-[-\w]+)", text, re.M)
        rows = re.findall(r"^  (-[-\w]+)", everything[command], re.M)
        check(1 < len(shown) <= 18 and set(shown) <= set(rows), command, shown)
        check("\nllama31 help %s --all: %d more\n" % (command, len(rows) - len(shown)) in text, command, text)
        check(not re.search(r"^  -[-\w]+, ", text, re.M) and " more\n" not in everything[command], command)

    # Each of those of run is used in an example.
    options, examples = program("help", "run")[0].split("Example:")
    for name in re.findall(r"^  (-[-\w]+)", options, re.M):
        check(re.search(r" %s\b" % name, examples), name)


@test
def version(tmp):
    same(program("--version")[0], "llama31 " + open(os.path.join(cli.ROOT, "VERSION")).read())
    more = program("--version", "-v")[0]
    for word in ("commit ", "compiler ", "kernels ", "scalar", "threads "):
        check(word in more, word, more)


@test
def manual(tmp):
    """The manual page has every command, option and exit status; mandoc accepts it."""
    page = program("help", "--man")[0]
    plain = page.replace("\\-", "-").replace("\\e", "\\")

    for command, text in helps("--all").items():
        check(".TP\n\\fB%s" % command in plain, command)
        for name in names_in(text):
            check(re.search(r"(\.B |, )%s\b" % re.escape(name), plain), name)
    for code in ("0", "1", "2", "3", "4", "5", "130"):
        check(".B %s\n" % code in plain, code)

    same(program("--man")[0], page)

    # The commands of chat.
    with open(os.path.join(cli.ROOT, "cli", "commands", "chat_commands.c")) as f:
        table = re.findall(r'^    \{"(/\w+)",\s*"([^"/][^"]*)"', f.read(), re.M)
    check(len(table) > 10)
    for name, text in table:
        check(".B %s\n%s\n" % (name, text) in plain, "manual.roff lacks", name, text)

    if not shutil.which("mandoc"):
        raise Skip("no mandoc")
    r = subprocess.run(["mandoc", "-Tlint", "-Wwarning"], input=page, capture_output=True, text=True)
    check(not re.search("ERROR|WARNING(?!: missing date)", r.stdout + r.stderr), r.stdout)


def mixtures():
    """The types that `help quantize` lists: none in a build without the quantizer."""
    found = re.search("another type: (.*?)\n\n", program("help", "quantize")[0], re.S)
    return set(found[1].split()) if found else set()


@test
def bash_completion(tmp):
    if not shutil.which("bash"):
        raise Skip("no bash")
    with open(os.path.join(tmp, "c"), "w") as f:
        f.write(program("help", "--completion", "bash")[0])
    open(os.path.join(tmp, "story.gguf"), "w").close()

    def complete(*words):
        script = "source ./c; COMP_WORDS=(%s); COMP_CWORD=%d; _llama31; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            " ".join("'%s'" % w for w in words), len(words) - 1)
        r = subprocess.run(["bash", "--norc", "-c", script], cwd=tmp, capture_output=True, text=True)
        check(r.returncode == 0 and not r.stderr, r.stderr)
        return set(r.stdout.split())

    same(complete("llama31", "ro"), {"rope"})
    same(complete("llama31", "rope", "--pos"), {"--positions"})
    same(complete("llama31", "run", "-m", "st"), {"story.gguf"})
    same(complete("llama31", "run", "--seed", ""), set())
    same(complete("llama31", "help", "ba"), {"batch"})
    same(complete("llama31", "run", "--kv", ""), {"f16", "f32", "q8_0", "q4_0"})
    same(complete("llama31", "run", "--lora", "st"), {"story.gguf"})
    same(complete("llama31", "help", "--completion", "z"), {"zsh"})
    for name in complete("llama31", "chat", "--template", ""):
        check(re.search(r"\b%s[,;]" % re.escape(name), program("run", "--template", "?", "x", code=2)[1]), name)
    types = complete("llama31", "quantize", "a", "b", "")
    same(types, mixtures())
    check(not types or {"Q4_K_M", "Q2_K"} <= types, types)
    for command, text in helps("--all").items():
        check(names_in(text) <= complete("llama31", command, "-"), command, names_in(text) - complete("llama31", command, "-"))


@test
def other_completions(tmp):
    """zsh and fish accept their scripts; fish completes commands and options."""
    for shell in ("zsh", "fish"):
        path = os.path.join(tmp, shell)
        with open(path, "w") as f:
            f.write(program("help", "--completion", shell)[0])
        if shutil.which(shell):
            r = subprocess.run([shell, "-n", path], capture_output=True, text=True)
            check(r.returncode == 0 and not r.stderr, shell, r.stderr)
    if shutil.which("fish"):
        r = subprocess.run(["fish", "-c", "source fish; complete -C 'llama31 qu'; complete -C 'llama31 rope --posi'; "
                            "complete -C 'llama31 help tok'; complete -C 'llama31 help --completion z'; "
                            "complete -C 'llama31 quantize a b Q5_K'; complete -C 'llama31 run --kv q8'"],
                           cwd=tmp, capture_output=True, text=True, env=dict(os.environ, HOME=tmp))
        for word in ("quantize", "--positions", "tokenize", "zsh", "q8_0", *{"Q5_K_M"} & mixtures()):
            check(word in r.stdout, word, r.stdout, r.stderr)
    check("bash, zsh or fish" in program("help", "--completion", "tcsh", code=2)[1])


@test
def typed_completions(tmp):
    """The Tab key in bash and zsh, with the script sourced, and loaded as `make install` installs it."""
    for shell, name, begin in some((
            ("bash", "llama31", "source ./llama31"),
            ("zsh", "_llama31", "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -d $PWD/dump"),
            ("zsh", "sourced", "autoload -Uz compinit; compinit -u -D; source <(cat sourced)")), 2):
        if not shutil.which(shell):
            continue

        with open(os.path.join(tmp, name), "w") as f:
            f.write(program("help", "--completion", shell)[0])
        t = Terminal(["env", "-C", tmp, shell] + (["-f"] if shell == "zsh" else ["--norc", "--noprofile"]),
                     env={"PS1": "$ ", "TERM": "vt100", "HOME": tmp})

        t.send(begin + "; echo rea\\dy\n")
        check(t.wait("\nready"), shell, t.text())

        for typed, shown in (("llama31 ro\t", "llama31 rope"), ("--posi\t", "--positions"), ("\x15llama31 run --repeat-p\t", "--repeat-penalty"),
                             ("\x15llama31 help quan\t", "help quantize"), ("\x15llama31 run --template alp\t", "--template alpaca"),
                             ("\x15llama31 quantize a b Q8\t", "Q8_0")):
            if shown == "Q8_0" and not mixtures():
                continue
            t.send(typed)
            check(t.wait(shown), shell, repr(typed), t.text())

        # A value without candidates.
        t.send("\x15llama31 rope --positions \t\t\x15echo do\\ne\n")
        check(t.wait("\ndone") and "not found" not in t.text(), shell, t.text())
        t.close()


@test
def install(tmp):
    """make install needs no compiler, whatever the umask all may read its files; make uninstall removes everything."""
    if not os.path.exists(os.path.join(cli.ROOT, "llama31")):
        raise Skip("no ./llama31")
    make = ["make", "-s", "-C", cli.ROOT, "CC=/nonexistent", "PREFIX=/usr", "DESTDIR=" + tmp]

    def files():
        return {os.path.relpath(os.path.join(folder, f), tmp) for folder, _, names in os.walk(tmp) for f in names}

    r = subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", *make, "install"], capture_output=True, text=True)
    check(r.returncode == 0 and not r.stderr, r.stderr)
    for folder, folders, names in os.walk(os.path.join(tmp, "usr")):
        for path in (os.path.join(folder, name) for name in folders + names):
            same(os.stat(path).st_mode & 0o055, 0o055 if os.path.isdir(path) or os.access(path, os.X_OK) else 0o044, path)
    for name in ("bin/llama31", "share/man/man1/llama31.1", "share/bash-completion/completions/llama31",
                 "share/doc/llama31/LICENSE", "share/llama31/scripts/export.py",
                 "share/llama31/scripts/bench_peer.mjs"):  # bench_peers.py runs it
        check(os.path.getsize(os.path.join(tmp, "usr", name)) > 0, name)
    same(program("--version", program=os.path.join(tmp, "usr/bin/llama31"))[0], program("--version")[0])
    script = os.path.join(tmp, "usr/share/llama31/scripts/export.py")
    check(b"SOURCE" in subprocess.run([script, "--help"], capture_output=True, check=True).stdout)
    subprocess.run(make + ["uninstall"], check=True)
    same(files(), set())


@test
@slow
def dist(tmp):
    """make dist packs the files in git, and the commit, for --version in builds without git."""
    if not shutil.which("git") or subprocess.run(["git", "-C", cli.ROOT, "status"], capture_output=True).returncode:
        raise Skip("no git here")
    copy = os.path.join(tmp, "copy")
    subprocess.run(["git", "clone", "-q", "--shared", cli.ROOT, copy], check=True, capture_output=True)
    r = subprocess.run(["make", "-s", "-C", copy, "CC=/nonexistent", "dist"], capture_output=True, text=True)
    check(r.returncode == 0 and not r.stderr, r.stderr)
    name = "llama31-" + open(os.path.join(cli.ROOT, "VERSION")).read().strip()
    with tarfile.open(os.path.join(copy, name + ".tar.gz")) as f:
        packed = {n[len(name) + 1:] for n in f.getnames() if not f.getmember(n).isdir()}
        commit = f.extractfile(name + "/COMMIT").read().decode().strip()
    listed = subprocess.run(["git", "-C", copy, "ls-files"], capture_output=True, text=True).stdout.split()
    same(packed, set(listed) | {"COMMIT"})
    check(re.fullmatch("[0-9a-f]{12}", commit), commit)


@test
def package(tmp):
    """The Debian package contains what make install installs and depends on the linked libraries."""
    if not shutil.which("dpkg-deb") or not os.path.exists(os.path.join(cli.ROOT, "llama31")):
        raise Skip("no dpkg-deb, or no ./llama31")
    r = subprocess.run([os.path.join(cli.ROOT, "packaging", "deb.sh"), tmp], capture_output=True, text=True,
                       env=dict(os.environ, DPKG_DEB_COMPRESSOR_TYPE="none"))
    check(r.returncode == 0 and not r.stderr, r.stderr)
    deb, = [os.path.join(tmp, f) for f in os.listdir(tmp)]
    subprocess.run(["dpkg-deb", "-x", deb, os.path.join(tmp, "root")], check=True)
    installed = os.path.join(tmp, "root", "usr")
    same(program("--version", program=os.path.join(installed, "bin/llama31"))[0], program("--version")[0])
    for name in ("share/man/man1/llama31.1.gz", "share/doc/llama31/copyright", "share/zsh/site-functions/_llama31"):
        check(os.path.getsize(os.path.join(installed, name)) > 0, name)
    depends = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True).stdout
    check(re.match(r"libc6 \(>= \d+\.\d+\)", depends), depends)


@test
def llama_cpp_options(tmp):
    """Options of llama.cpp: renamed, ignored with a note under -v, or rejected with a reason."""
    args = ["-t", "1", "-n", "4", "--temp", "0", "Once upon a time"]
    if subprocess.run([PROGRAM, "show"], capture_output=True).returncode:
        raise Skip("no built-in model")

    expected = program("run", *args)[0]

    # Without effect here, and listed under -v.
    ignored = ["--simple-io", "-st", "-ngl", "99", "--no-mmap", "--color", "auto", "--no-warmup", "-fa", "on", "--jinja", "-ub", "64"]
    out, err = program("run", *ignored, *args)
    check(out == expected and "simple-io" not in err, err)
    out, err = program("run", "-v", *ignored, *args)
    check(out == expected, out)
    check("llama31: options without effect: --simple-io -st -ngl --no-mmap --color --no-warmup -fa --jinja -ub\n" in err, err)

    # llama.cpp's names of options that llama31 has.
    same(program("run", "-ctk", "f32", "-ctv", "f32", *args)[0], program("run", "--kv", "f32", *args)[0])
    for spelled, types in (["-ctk", "f32"], "F32,F16"), (["-ctv", "f32"], "F16,F32"), (["-ctv", "f32", "-ctk", "f16"], "F16,F32"), \
                          (["--kv", "f32", "-ctv", "f16"], "F32,F16"), (["-ctv", "f32", "-ctk", "f32"], "F32"):
        check(f" positions ({types}, " in program("show", *spelled)[0], spelled)
    same(program("run", "--rope-freq-scale", "0.25", "--rope-freq-base", "20000", *args)[0],
         program("run", "--rope-scale", "4", "--rope-theta", "20000", *args)[0])
    same(program("run", "--chat-template", "none", *args)[0], program("run", "--template", "none", *args)[0])
    same(program("run", "-no-cnv", "--log-disable", *args), (program("run", "--raw", *args)[0], ""))

    # The system prompt from a file.
    path = os.path.join(tmp, "text")
    with open(path, "w") as f:
        f.write("You are terse.")
    err = program("run", "-sysf", path + "x", "--template", "chatml", "x", code=1)[1]
    check(path + "x: No such file" in err, err)
    same(program("run", "--system-prompt-file", path, "--template", "chatml", *args)[0],
         program("run", "-sys", "You are terse.", "--template", "chatml", *args)[0])
    check("-sysf: missing value" in program("run", "-sysf", code=2)[1])
    same(program("run", "--no-think=false", "x", code=2)[1], "llama31: --no-think: takes no value; use --reasoning\n")

    # Options that a command, an option or another program replaces.
    for option in ("-cnv", "--conversation", "-i", "--interactive-first"):
        check(option + ": use the command chat" in program("run", option, "x", code=2)[1], option)
    for option, why in [(("--mlock", "-st"), "page cache"), (("--numa", "distribute"), "numactl"), (("--keep", "4"), "--keep-going"),
                        (("--check-tensors", "-st"), "show --check"), (("--verbose-prompt", "-st"), "tokenize"),
                        (("--device", "CUDA0"), "CPU only"),
                        (("-o", "out.txt"), "> FILE"), (("--reasoning-format", "x"), "auto or none"),
                        (("--port", "80"), "not a server"), (("--rope-freq-scale", "0"), "expected a number")]:
        err = program("run", *option, "x", code=2)[1]
        check(why in err and option[-2] in err and err.count("\n") == 1, err)
    # What a command does not do anyway is refused for this command alone.
    for command, option, why in (("batch", "--stream", '"stream": true'), ("chat", "--no-stream", "--json"), ("chat", "-st", "command run"),
                                 ("chat", "-mli", "Alt-Enter"), ("run", "--nowordwrap", "on a terminal only"), ("chat", "--no-color", "NO_COLOR=1"),
                                 ("run", "--color=never", "NO_COLOR=1")):
        err = program(command, option, code=2)[1]
        check(err.startswith("llama31: %s: " % option.split("=")[0]) and why in err and err.count("\n") == 1, err)
    err = program("batch", "-v", "--no-stream", "-st", "--color", "off", "-i", os.devnull)[1]
    check("options without effect: --no-stream -st --color\n" in err, err)
    program("run", "--stream", "-mli", *args)
    # The command that downloads what was typed.
    by_type, by_name = "hf download %s --include '*%s*.gguf' --local-dir .", "curl -LO https://huggingface.co/%s/resolve/main/%s"
    for typed, command in [
            ("-hf a/b", by_type % ("a/b", "Q4_K_M")), ("-hfr a/b:Q8_0", by_type % ("a/b", "Q8_0")),
            ("--hf-repo=a/b:IQ4_XS", by_type % ("a/b", "IQ4_XS")), ("-hf a/b:Q8_0 -hff c.gguf", by_name % ("a/b", "c.gguf")),
            ("--hf_file=c.gguf -q --hf_repo=a/b", by_name % ("a/b", "c.gguf")), ("-hff c.gguf", by_type % ("REPO", "Q4_K_M")),
            ("-hf llama", by_type % ("REPO", "Q4_K_M")), ("-hf", by_type % ("REPO", "Q4_K_M"))]:
        name = typed.split()[0].split("=")[0].replace("hf_", "hf-")
        same(program("run", *typed.split(), code=2)[1], "llama31: %s: llama31 does not download models; run: %s\n" % (name, command))

    for option, why in [line.rsplit(": ", 1) for line in """
            --mirostat 2: use --temp with --min-p or --top-p | --typical-p 0.9: use --top-p | --top-n-sigma 1: use --min-p
            --xtc-probability 0.5: use a higher --temp | --dynatemp-range 0.5: use --temp | --adaptive-target 0.5: use --temp
            --samplers top_k;xtc: temperature | --sampler-seq ky: use --samplers | --context-shift x: --keep-going | --output-file out.txt: > FILE
            --log-file log: 2> FILE | --no-jinja x: --template NAME | --cpu-mask ff: use taskset | -Crb 0-1: use taskset
            --threads-draft 2: -t | --cache-type-k-draft q8_0: f16 | --prompt-cache-all x: --cache DIR | --load-mode mmap: mapped
            -bf x: --keep-newline | --completion-bash x: help --completion bash | --hf-repo-draft x: does not download
            --gpt-oss-20b-default x: does not download | --spec-type ngram-mod: --no-lookup | -ptc 8: not supported
            --kl x: scripts/compare_logits.py REFERENCE | --stats x: standard error | --sweep x: build/sweep
            --rotate 1: scripts/plot_rope.py | --decay x: scripts/plot_rope.py | --template-var a=1: --chat-template-kwargs
            """.strip().replace("\n", "|").split("|") for line in [line.strip()] if line]:
        name = option.split()[0]
        check(why in program("run", *option.split(), "x", code=2)[1], option)
        check(program("run", *option.split(), "x", code=2)[1].startswith(f"llama31: {name}: "), option)

    # Options of devices and media are refused by a rule, not by a list.
    for name in ("--main-gpu", "--device", "-sm", "-mm", "--mmproj-url", "--image", "--audio-some-new-option", "--kv-offload",
                 "--some-new-gpu-option", "--rpc", "--tensor-split-draft", "--video"):
        same(program("run", name, "1", "x", code=2)[1], f"llama31: {name}: llama31 runs text models on the CPU only\n")

    # Options and values without effect.
    neutral = ["--mirostat", "0", "--mirostat-lr", "0.1", "--typical", "1.0", "--top-nsigma", "-1", "--xtc-probability", "0.0",
               "--xtc-threshold", "0.1", "--parallel", "2", "-np", "2", "--draft-n", "5", "--verbosity", "3", "--no-mmproj",
               "--cpu-moe", "--n-cpu-moe", "3", "--fit", "off", "-fa", "--color"]
    same(program("run", *neutral, *args)[0], expected)

    # Switches of output, help and version.
    same(program("run", "--display-prompt", *args)[0], program("run", "--echo", *args)[0])
    check("x" not in program("run", "--no-show-timings", *args)[1])
    same(program("run", "--usage"), program("run", "--help"))
    for command in ("run", "chat", "batch", "show"):
        same(program(command, "--version")[0], program("--version")[0])
    same(program("run", "-m", "none", "--version", "-v")[0], program("--version", "-v")[0])

    # Options of llama-bench.
    for option, why in ("-p", "--tests p512"), ("-r", "-n N"):
        check(why in program("bench", option, "5", code=2)[1], option)
    check("no option of this command" in program("chat", "-p", "hi", code=2)[1])


@test
def suggestions(tmp):
    """No suggestion for a word that resembles no option, or only one of a single letter."""
    for option, hint in [("--tmp", "--temp"), ("-temp", "--temp"), ("--temprature", "--temperature"), ("-xy", None),
                         ("-x", None), ("-nn", None), ("--zzzzzz", None)]:
        err = program("run", option, "1", code=2)[1]
        check(("did you mean %s " % hint in err) if hint else "did you mean" not in err, option, err)
    check("scripts/export.py" in program("run", "-m", "no-such.gguf", "x", code=1)[1])
    check("did you mean batch" in program("batc", code=2)[1])
    check("a prompt: llama31 run TEXT" in program("Once", "upon", "a", "time", code=2)[1])


@test
def words_of_other_programs(tmp):
    """Words of other programs lead to what they mean; a wrong suggestion is worse than none."""
    for words, hint in [("hello", None), ("prompt", "llama31 run TEXT"), ("create x", "scripts/export.py"), ("info x", "llama31 show"),
                        ("rm x", "plain files"), ("perplexity f", "score --perplexity"), ("completion bash", "help --completion bash"),
                        ("run --format json x", "--json-schema"), ("run --cache-prompt x", "--cache DIR"), ("run --license", "show"),
                        ("tokenize --json", "--jsonl"), ("run --timeout 3 x", "timeout 60")]:
        err = program(*words.split(), code=2)[1]
        check((hint or "unknown") in err and "did you mean" not in err and err.count("\n") == 1, err)
    expected = program("run", "-q", "-n", "3", "-s", "1", "--top-p", "0.5", "x")
    for words in ("--max-tokens 3 --top_p 0.5", "--max_tokens=3 --top_p=0.5 --color always --no_stream", "--num-predict 3 --top-p 0.5"):
        same(program("run", "-q", "-s", "1", *words.split(), "x"), expected, words)
    for args in (["version"], ["-V"]):
        same(program(*args), program("--version"))


@test
def commands_of_ollama(tmp):
    for command, hint in (("serve", "batch"), ("pull", "does not download"), ("list", "llama31 show"), ("embed", "score"), ("cache", "--cache-size")):
        err = program(command, "llama3.1", code=2)[1]
        check(err.startswith("llama31: %s: " % command) and hint in err and err.count("\n") == 1, err)


if __name__ == "__main__":
    cli.main("help")
