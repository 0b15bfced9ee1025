#!/usr/bin/env python3
"""batch: records with "stream": true, and the client of docs/batch.md."""
import glob
import json
import os
import re
import subprocess
import sys
import threading

from cli import DATA, PROGRAM, ROOT, Skip, call, check, in_ci, main, matches, read_lines, requires, same, test

USER = {"role": "user", "content": "Tell a story."}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": [1, 2]}},
                                                                     "required": ["a"]}}}
THINKING = ("{{ bos_token }}{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}"
            "{{ 'assistant: <think>\\n' if add_generation_prompt }}{{ '</think>\\n' if enable_thinking is false }}")
CALLS = ("{%% if tools %%}T{%% endif %%}{%% for m in messages %%}Q{{ m.content }}{%% for c in m.tool_calls %%}"
         "{{ '%s' ~ {'name': c.function.name, 'arguments': c.function.arguments}|tojson ~ '%s' }}{%% endfor %%}{%% endfor %%}")


def run(records, *args, code=0):
    out, _ = call("batch", "-t", "1", "-q", "--deterministic", "-s", "1", *args,
                  stdin="".join(json.dumps(r) + "\n" for r in records).encode(), code=code)
    return [json.loads(line) for line in out.splitlines()]


def choices_of(answer):
    """[(text, reasoning, tool calls, log-probabilities)] of a record in one of the forms."""
    body = (answer.get("response") or {}).get("body", answer)
    found = []
    for c in body.get("choices", [body]):
        m, logprobs = c.get("message", c), c.get("logprobs")
        logprobs = logprobs["content"] if isinstance(logprobs, dict) else logprobs
        found.append((m.get("content", c.get("text")), m.get("reasoning_content", ""), m.get("tool_calls", []), logprobs or []))
    return found


def streamed(records, *args, code=0):
    """The answers to records with "stream", each equal to its joined deltas and to the answer without "stream"."""
    plain = {a["id"]: a for a in run(records, *args, code=code)}
    texts, answers = {}, {}
    for line in run([with_stream(r) for r in records], *args, code=code):
        if "delta" not in line:
            answers[line["id"]] = line
            continue
        check(line["id"] not in answers, "a delta behind its record", line)
        parts = texts.setdefault((line["id"], line.get("index", 0)), [])
        parts.append(line)
    same(set(answers), set(plain))
    for key, answer in answers.items():
        found, expected = choices_of(answer), choices_of(plain[key])
        same(found, expected, key)
        if answer.get("error"):
            same(answer["error"], plain[key]["error"], key)
            continue
        for i, (text, reasoning, calls, logprobs) in enumerate(found):
            parts = texts.get((key, i), [])
            joined = "".join(p["delta"] for p in parts)
            same(*(joined, text) if not calls else (joined.strip(), text.strip()), key)
            same("".join(p.get("reasoning_content", "") for p in parts), reasoning, key)
            same(sum((p.get("tool_calls", []) for p in parts), []), calls, key)
            same(sum((p.get("logprobs", []) for p in parts), []), logprobs, key)
    return texts, answers


def with_stream(record):
    return dict(record, body=dict(record["body"], stream=True)) if "body" in record else dict(record, stream=True)


def chat(i, **body):
    return {"custom_id": "c%d" % i, "method": "POST", "url": "/v1/chat/completions", "body": dict({"messages": [USER]}, **body)}


@test
def deltas():
    """Joined deltas are the answer, step by step, in both forms, with stop strings, several choices and log-probabilities."""
    records = [{"id": i, "prompt": "Once upon a time %d" % i, "max_tokens": 20, "temperature": 1} for i in range(8)]
    records += [dict(records[0], id="stop", stop=["the little", "was a", "he"], max_tokens=60), dict(records[0], id="n", n=3),
                dict(records[0], id="log", logprobs=2), dict(records[0], id="log0", logprobs=0, n=2), dict(records[0], id="none", max_tokens=0),
                chat(1, max_tokens=9, logprobs=True, top_logprobs=1), chat(2, max_tokens=9, n=2),
                {"id": "begun", "messages": [USER, {"role": "assistant", "content": "Once upo"}], "continue_final_message": True,
                 "max_tokens": 9}]
    texts, answers = streamed(records, "--parallel", "3")
    for i in range(8):
        check(len(texts[i, 0]) > answers[i]["n_generated"] / 3, texts[i, 0])  # accepted draft tokens come together
    streamed([dict(r, id=i) for i, r in enumerate(records[:8] * in_ci(4, 1))], "--raw")


@test
def characters():
    """A delta has whole characters, and none that a stop string takes away."""
    requires("constrain")
    records = [{"id": i, "prompt": "x", "regex": "[\u00e9\u4f60\u20ac\U0001f600]{5}END", "max_tokens": 60, "seed": i, "temperature": 2,
                "stop": ["END"]} for i in range(4)]
    texts, answers = streamed(records, "--raw", code=(0, 6))
    check(all("\ufffd" not in part["delta"] for parts in texts.values() for part in parts))
    check(any(len(parts) > 3 for parts in texts.values()) and any(len(a["text"]) == 5 for a in answers.values()), texts)


@test
def reasoning(tmp):
    """Reasoning is in a member of its own, without tags, also where the prompt begins it."""
    paths = []
    for i, template in enumerate((THINKING, THINKING.replace("<think>", "</think>"))):
        paths.append(os.path.join(tmp, "t%d.jinja" % i))
        with open(paths[-1], "w") as f:
            f.write(template)
    ask = [{"id": i, "messages": [USER], "max_tokens": 40, "seed": i, "reasoning_budget": 8 + i} for i in range(6)]
    texts, answers = streamed(ask, "--template", paths[0])
    check(all(a["reasoning_content"] and a["text"] for a in answers.values()), answers)
    check(all("</" not in part.get("reasoning_content", "") + part["delta"] for parts in texts.values() for part in parts))
    check(any("reasoning_content" not in part for parts in texts.values() for part in parts))

    requires("constrain")
    begun = [dict(r, reasoning_budget=-1, max_tokens=60, regex=regex) for r, regex in zip(ask, (
        "<think>[a-z ]{3}</think>\\n[a-z]{4}", " <think>a < b </thin c</think>x", "<thi[a-z]{3}", "<think>never"))]
    streamed(begun, "--template", paths[1], "--reasoning", "off", code=(0, 6))


@test
def tool_calls(tmp):
    """A call comes whole, behind the text before it; what only resembles one is text."""
    requires("constrain")
    ask = {"messages": [USER], "tools": [TOOL], "temperature": 1.5, "max_tokens": 60}
    call_text = '{"name": "f", "%s": {"a": 1}}'
    for name, opener, closer, key in (("llama3.1", "", "", "parameters"), ("mistral", "[TOOL_CALLS][", "]", "arguments"),
                                      ("hermes", "<tool_call>", "</tool_call>", "arguments")):
        template = name
        if name == "hermes":
            template = os.path.join(tmp, name)
            with open(template, "w") as f:
                f.write(CALLS % ("<tool_call>\\n", "\\n</tool_call>"))
        text = opener + call_text % key + closer
        records = [dict(ask, id="forced", tool_choice="required", parallel_tool_calls=False), dict(ask, id="free", regex="[a-z]{5}")]
        for i, begun in enumerate((text, "Well: " + text, "a < b", opener[:5] + " x", '{"name": "g"', text[:-4])):
            # The text is generated, token by token.
            records.append(dict(ask, id="text %d" % i, choices=[begun, begun + "."], seed=i))
            records.append(dict(ask, id="none %d" % i, choices=[begun, begun + "."], seed=i, tool_choice="none"))
        _, answers = streamed(records, "--template", template, code=(0, 5, 6))
        check(any(a.get("tool_calls") for a in answers.values()), name, answers)


@test
def json_answers(tmp):
    """With tools, an answer that begins like an object is written as soon as it can no longer be a call without a tag."""
    requires("constrain")
    plain = os.path.join(tmp, "plain.jinja")  # represents no calls; a forced one is the whole answer
    with open(plain, "w") as f:
        f.write("{% if tools %}T{% endif %}{% for m in messages %}Q{{ m.content }}{% endfor %}")
    ask = {"messages": [USER], "tools": [TOOL], "max_tokens": 60, "temperature": 50, "min_p": 0, "top_p": 1}
    texts = ['{"city": "Paris", "name": "f", "parameters": {}}', "{x | x > 0}", ' {"name": "Bob", "parameters": {}}',
             '{"na', '{"parameters": {"a": 1}, "name": "g"}', '{"type": "object", "name": "f"}']
    calls = ['{"name": "f", "parameters": {"a": 1}}', ' { "type" : "function", "name": "f", "parameters": {"a": 2}}',
             '{"parameters": {"a": 1}, "name": "f"}']
    records = [dict(ask, id=text, choices=[text, text + "."], n=12, seed=i) for i, text in enumerate(texts + calls)]
    for template in "llama3.1", "mistral":
        found, _ = streamed(records, "--template", template, code=(0, 6))
        for text in texts[:3]:
            written = [found[text, i] for i in range(12) if found[text, i][0]["delta"]]  # the others are calls
            check(any(len(parts) > 1 for parts in written), template, text, written)
    forced = [dict(ask, id=i, seed=i, tool_choice="required", parallel_tool_calls=False) for i in range(3)]
    _, answers = streamed(forced, "--template", plain, code=(0, 6))
    check(any(a.get("tool_calls") for a in answers.values()), answers)
    for name in "get weather", "\u65e5", 'a"b':  # in the text with or without escapes
        tool = {"type": "function", "function": {"name": name}}
        odd = [dict(ask, id=i, seed=i, tools=[tool], tool_choice="required", parallel_tool_calls=False, temperature=1) for i in range(3)]
        _, answers = streamed(odd, "--template", "llama3.1")
        same({a["tool_calls"][0]["function"]["name"] for a in answers.values()}, {name})


@test
def published_templates():
    """Joined deltas are the answer with the templates of published models, for one sequence and for eight."""
    requires("constrain")
    paths = sorted(glob.glob(os.path.join(DATA, "templates", "*.jinja")))
    if not paths:
        raise Skip("no templates in %s" % DATA)
    schema = {"type": "object", "properties": {"degrees": {"type": "integer"}, "name": {"type": "string", "maxLength": 4}},
              "required": ["degrees"]}
    ask = {"messages": [USER], "max_tokens": 40, "temperature": 1.2}
    kinds = [{}, {"stop": ["the", "a "]}, {"n": 2, "logprobs": True}, {"logprobs": 1, "stop": ["e"]}, {"tools": [TOOL]},
             {"tools": [TOOL], "tool_choice": "required", "logprobs": True}, {"tools": [TOOL], "json_schema": schema},
             {"json_schema": schema}, {"reasoning_budget": 8}, {"reasoning_budget": 8, "tools": [TOOL], "n": 2},
             {"regex": "[a-z ]{10,30}\\n?", "stop": ["b"]}]
    for i, path in enumerate(paths[1::in_ci(4, 16)]):
        records = [dict(ask, id=k, seed=k, **kind) for k, kind in enumerate(kinds)]
        records += [chat(k, **dict(ask, **kind)) for k, kind in enumerate(kinds[:5])]
        streamed(records, "--template", path, "--parallel", "18"[i % 2], code=(0, 5, 6))


@test
def outputs(cli):
    """Deltas go to stdout. With -o FILE, only records are in FILE; --resume removes deltas from a redirected stdout."""
    records = [{"id": i, "prompt": "x", "max_tokens": 5, "stream": i != 1} for i in range(3)]
    source, out, other = cli.write("in", records), cli.path_of("out"), cli.path_of("other")
    lines = [json.loads(line) for line in cli.run("batch", "-q", "--raw", "-s", 1, "-i", source, "-o", out)[0].splitlines()]
    same({line["id"] for line in lines if "delta" in line}, {0, 2})
    same((sum("delta" in line for line in lines), sorted(a["id"] for a in read_lines(out))), (len(lines), [0, 1, 2]))

    with open(other, "wb") as f:
        f.write(cli.run("batch", "-q", "--raw", "-s", 1, "-i", source)[0])
    same(sum("delta" in line for line in read_lines(other)), len(lines))
    merge = [sys.executable, os.path.join(ROOT, "scripts", "merge_batch.py"), source]
    merged = [subprocess.run(merge + [path], capture_output=True, check=True).stdout for path in (out, other)]
    same(merged[0], merged[1])
    out, err = cli.run("batch", "--raw", "-i", source, "-o", other, "--resume", "-s", 1)
    check(out == b"" and "removed %d lines of streamed text" % len(lines) in err and "3 skipped" in err, err)
    same(len(read_lines(other)), 3)

    for fields, says in ({"stream": 1}, "stream: expected true or false, found 1"), ({"stream": True, "echo": True}, 'with "echo"'):
        answer = json.loads(cli.run("batch", "--raw", stdin=json.dumps(dict(records[0], **fields)).encode(), code=5)[0])
        check(matches(answer["error"]["message"], says), answer)


@test
def consumers(cli):
    """A slow consumer receives all lines. If none is left, the records are still written to -o FILE, and a warning says so."""
    records = [{"id": i, "prompt": "x", "max_tokens": 30, "stream": True, "logprobs": 9} for i in range(in_ci(60, 20))]
    source, out = cli.write("in", records), cli.path_of("out")
    command = cli.command("batch", "-q", "--raw", "-s", 1, "-i", source)
    p = subprocess.Popen(command, stdout=subprocess.PIPE)
    pieces = []
    while True:
        pieces.append(os.read(p.stdout.fileno(), 3000))  # the pipe is full most of the time
        if not pieces[-1]:
            break
    same(p.wait(), 0)
    lines = [json.loads(line) for line in b"".join(pieces).splitlines()]
    same(sorted(line["id"] for line in lines if "text" in line), list(range(len(records))))

    p = subprocess.Popen(command + ["-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    json.loads(p.stdout.readline())
    p.stdout.close()
    err = p.stderr.read().decode()
    same((p.wait(), err.count("standard output: "), err.count("\n")), (0, 1, 1), err)
    same(sorted(a["id"] for a in read_lines(out)), list(range(len(records))))


@test
def client():
    """The client of the documentation: pieces come one by one, also to two threads, and an error is raised."""
    with open(os.path.join(ROOT, "docs", "batch.md")) as f:
        block = re.search(r"\n((?:    .*\n|\n)*    class Model:\n(?:    .*\n|\n)*)", f.read())[1]
    code = "\n".join(line[4:] for line in block.splitlines())
    check(len([line for line in code.splitlines() if line.strip()]) <= 24, code)
    code = code.replace('"./llama31"', repr(PROGRAM)).replace('"-m", "MODEL"', '"-t", "1"')
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    check(shown.returncode == 0 and len(shown.stdout) > 20, shown)

    space = {}
    exec(code[:code.index("model = ")], space)
    model = space["Model"]("-t", "1", "-s", "1")
    pieces = {}

    def ask(name):
        pieces[name] = list(model.stream(prompt="Once upon a time", max_tokens=30, temperature=0))

    threads = [threading.Thread(target=ask, args=(name,)) for name in "ab"]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    check("".join(pieces["a"]) == "".join(pieces["b"]) and len(pieces["a"]) > 20, pieces)
    try:
        list(model.stream(prompt="x", max_tokens="many"))
    except RuntimeError as e:
        check("max_tokens: expected a number" in str(e), e)
    else:
        check(False, "no error")
    model.process.kill()
    try:
        list(model.stream(prompt="x"))
    except (RuntimeError, BrokenPipeError):
        pass
    else:
        check(False, "no error")
    model.process.wait()


if __name__ == "__main__":
    main("batch_stream")
