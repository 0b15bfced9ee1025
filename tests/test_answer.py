#!/usr/bin/env python3
"""Answers: reasoning and its budgets, also without constraints; where a constraint begins; known forms of tool calls."""
import json
import random
import re

from terminal import Terminal
from cli import PROGRAM, check, in_ci, main, requires, run_batch, same, some, test


@test
def reasoning(cli):
    """With --think, the constrained text may follow a <think> part, or begin immediately."""
    requires("constrain")
    for seed in range(4):
        out, _ = cli.run("run", "-q", "--think", "--regex", "[0-9]{2}", "--seed", seed, "-n", 300, "x", code=(0, 6))
        check(re.fullmatch(rb"(<think>.*</think>\s*)?[0-9]{2}\n", out, re.S) or b"<think>" in out, out)
    out, _ = cli.run("run", "-q", "--raw", "--think", "--regex", "[0-9]{2}", "-n", 30, "x <think>", code=(0, 6))
    check(not re.match(rb"[0-9]{2}\n$", out), "the text does not begin inside the reasoning", out)


THINKING = ("{{ bos_token }}{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}"
            "{{ 'assistant: <think>\\n' if add_generation_prompt }}{{ '</think>\\n' if enable_thinking is false }}")


def ask(n, **fields):
    return [dict({"id": i, "messages": [{"role": "user", "content": "Story %d" % i}], "seed": i, "max_tokens": 60}, **fields)
            for i in range(n)]


@test
def reasoning_budgets(cli):
    """Budgets in all spellings: alone and in a batch, with and without lookup, equal to feeding </think> by hand."""
    cli.model = None
    template = cli.write("t.jinja", [THINKING])
    args = "--template", template, "--deterministic"
    for fields in some(({"reasoning_budget": 0}, {"reasoning_budget": 1}, {"reasoning_budget": 20}, {"reasoning_budget": -1},
                        {"reasoning_budget": "auto"}, {"chat_template_kwargs": {"thinking_budget": 20}}), 2):
        records = ask(in_ci(8, 4), temperature=0, logprobs=1, **fields)
        answers = run_batch(cli, records, *args, "--parallel", 8)
        same(run_batch(cli, records, *args, "--parallel", 1, "--no-lookup"), answers)
        budget = fields.get("reasoning_budget", 20)
        for i, a in answers.items():
            n = a.get("n_reasoning", 0)
            check(budget in (-1, "auto") or (n <= budget + budget // 10 and a["text"].strip()), fields, a)
            check(budget != "auto" or a["finish_reason"] == "stop" or a["n_answer"] >= 15, a)
            check(budget != 0 or "reasoning_content" not in a, a)
        if budget == 20:
            ids = [token["id"] for token in answers[1]["logprobs"]]
            chat = cli.write("chat", [records[1]["messages"][0]])
            prompt = list(map(int, cli.run("tokenize", "--template", template, "--chat", chat, "--ids")[0].split()))
            n = len(ids) - answers[1]["n_answer"]
            by_hand = dict(records[1], prompt=prompt + ids[:n], max_tokens=60 - n)
            del by_hand["messages"]
            same(run_batch(cli, [by_hand], *args)[1]["logprobs"], answers[1]["logprobs"][n:], "by hand")
    out, err = cli.run("run", "--json", "--reasoning-budget", 3, "--reasoning-budget-message", "Enough.", *args, "-n", 50, "x")
    check(json.loads(out)["reasoning_content"].endswith("Enough.") and "| reasoning " in err, out, err)
    out, _ = cli.run("chat", "--json", "--reasoning-budget", 3, *args, "-n", 50, stdin=b"Hi\nHi\n")
    check(all(json.loads(line)["n_reasoning"] == 3 for line in out.splitlines()), out)
    for args in ("--reasoning", "off"), ("--no-think",), ("--chat-template-kwargs", '{"enable_thinking": false}'):
        out, _ = cli.run("tokenize", "--template", template, "--chat", chat, "--rendered", *args)
        check(out.endswith(b"<think>\n</think>\n"), args, out)
    cli.refuses(2, "on, off or auto", "run", "--reasoning", "maybe", "x")
    cli.refuses(2, "cannot be set", "run", "--chat-template-kwargs", '{"messages": []}', "x")


@test
def reasoning_is_apart(cli):
    """Without a terminal stdout is the answer, stderr the reasoning; on one it is dim. Stop strings end only the answer."""
    cli.model = None
    opens = cli.write("t.jinja", [THINKING])
    asks = cli.write("asks.jinja", [THINKING.replace("<think>\\n", "")])
    args = ["--temp", 0, "-n", 40, "--reasoning-budget", 8, "x"]

    for more in (["--template", asks, "--answer", "<think>\n"], ["--template", opens]):
        how = [*more, *args]
        r = json.loads(cli.run("run", "--json", *how)[0])
        thoughts, answer = r["reasoning_content"], r["text"]
        check(thoughts and answer.strip(), r)
        for form in ([], ["--no-stream"], ["--reasoning-format", "auto"]):
            out, err = cli.run("run", *form, *how)
            same(out.decode(), answer + "\n", form)
            check("\n" + thoughts + "\n" in "\n" + err and "think>" not in err, err)
            same(cli.run("run", "-q", *form, *how), (out, ""))
        raw = cli.run("run", "-q", "--reasoning-format", "none", *how)[0].decode()
        check(raw.startswith(thoughts) and raw.endswith("</think>" + answer + "\n"), raw)
        same(json.loads(cli.run("run", "--json", "--reasoning-format", "none", *how)[0])["text"], raw[:-1])

    how = ["--template", opens, *args]
    message = b"x\n"
    out, err = cli.run("chat", *how[:-1], stdin=message)
    check(out.decode() == answer + "\n" and thoughts in err, out, err)
    same(cli.run("chat", "-q", *how[:-1], stdin=message), (out, ""))
    same(cli.run("chat", "-q", "--reasoning-format", "none", *how[:-1], stdin=message)[0].decode(), raw)
    same(json.loads(cli.run("chat", "--json", "--reasoning-format", "none", *how[:-1], stdin=message)[0])["content"], raw[:-1])
    for command in "run", "chat":
        cli.refuses(2, "--reasoning-format: ... none ... deep", command, "--reasoning-format", "deep", stdin=message)
    two = cli.run("run", "-N", 2, "-q", *how[:-1], "--temp", 1, "--seed", 3, "x")[0]
    check(thoughts.encode() not in two and b"think" not in two, two)

    stop = answer.split()[-1]
    for word in thoughts.split()[0], " ":
        r = json.loads(cli.run("run", "--json", "--stop", word, *how)[0])
        same((r["reasoning_content"], r["text"]), (thoughts, answer.split(word)[0]))
    r = run_batch(cli, ask(1, stop=[stop], temperature=0, messages=[{"role": "user", "content": "x"}], max_tokens=40),
                  "--template", opens, "--reasoning-budget", 8)[0]
    same((r["reasoning_content"], r["text"]), (thoughts, answer.split(stop)[0]))

    for command in ["run", *how], ["chat", *how[:-1]]:
        t = Terminal([PROGRAM, *map(str, command), *(["-q"] if command[0] == "run" else ["-q", "--plain"])], 24, 200)
        if command[0] == "chat":
            check(t.wait(">"), t.text())
            t.send("x\r")
        words = answer.split()
        check(t.wait(words[-1]), t.text())
        check(re.search(rb"\x1b\[2m" + re.escape(thoughts.encode()) + rb"\s*</think>\s*\x1b\[0m\s*" + re.escape(words[0].encode()), t.raw), t.raw)
        t.close()


@test
def constraint_after_reasoning(cli):
    """By default a constraint begins after the reasoning, with --no-think at the first token; a note says which."""
    requires("constrain")
    cli.model = None
    template = cli.write("t.jinja", [THINKING])
    args = "--template", template, "--regex", "[0-9]{4}"
    for extra, words, has_reasoning in (((), "begins after the reasoning", True),
                                        (("--no-think",), "begins with the first token", False)):
        _, err = cli.run("run", *args, *extra, "-n", 50, "x", code=(0, 6))
        check(words in err, err)
        for a in run_batch(cli, ask(8, reasoning_budget=10, temperature=1), *args, *extra).values():
            check(re.fullmatch("[0-9]{4}", a["text"]) and a["finish_reason"] == "stop" and "incomplete" not in a, a)
            same(bool(re.search("[a-z]", a.get("reasoning_content", ""))), has_reasoning, a)
    out, err = cli.run("run", "--json", *args, "-n", 5, "x", code=6)  # cut within the reasoning
    same([json.loads(out)[k] for k in ("text", "finish_reason", "incomplete")], ["", "length", True])


@test
def call_forms(cli):
    """A note says that tool calls are not enforced where the template's form is not known."""
    requires("constrain")
    cli.model = None
    tools = cli.write("tools.json", [[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]])
    qwen = "{% if tools %}T{% endif %}{% for m in messages %}Q{{ m.content }}{% for c in m.tool_calls %}CALL{% endfor %}{% endfor %}"
    call = "{{ '%s' ~ {'name': c.function.name, 'arguments': c.function.arguments}|tojson ~ '%s' }}"
    for template, is_known in (("llama3.1", True), ("mistral", True),
                               (qwen.replace("CALL", call % ("<tool_call>\\n", "\\n</tool_call>")), True),
                               (qwen.replace("CALL", call % ("<call>", "</call>")), False)):
        if "%" in template:
            template = cli.write("t.jinja", [template])
        _, err = cli.run("run", "--tools", tools, "--template", template, "-n", 1, "x")
        same("not enforced" in err, not is_known, err)
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"properties": {"a": {"contains": {}}}}}}
    tools = cli.write("tools.json", [json.dumps([bad] + json.load(open(tools)))])
    _, err = cli.run("run", "--tools", tools, "--template", "llama3.1", "-n", 1, "x")
    check("tool bad: " in err and '#/properties/a: "contains"' in err and "not enforced" not in err, err)


@test
def tool_sets(cli):
    """Every tool of a random set can be called, whatever its schema; a note in the record names what is not enforced."""
    requires("constrain")
    cli.model = None
    rng = random.Random(52)
    contradiction = {"type": "object", "properties": {"a": {"minLength": 5, "maxLength": 2, "type": "string"}}, "required": ["a"]}
    kinds = [(None, ""), ({}, ""), (True, ""), ({"type": ["object", "null"], "properties": {}}, ""),
             ({"properties": {"a": {"type": "integer"}}, "required": ["a", "unlisted"]}, ""),
             ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "null"}}}, ""),
             ({"type": "string"}, "contradicts"), (contradiction, "contradicts"), ([1], "a schema"),
             ({"properties": {"a": {"contains": {}}}}, '#/properties/a: "contains"'),
             ({"type": "object", "properties": {"a": {"type": "strin"}}}, "#/properties/a/type")]
    names = ["f", "ff", "f.g", "get weather", "日", 'a"b', "a\\b", "{", "name", "</tool_call>", "<|python_tag|>", "x;y"]
    closers = cli.run("tokenize", "--ids", '"}')[0].split()[-1].decode()
    records, expected = [], {}
    for i in range(in_ci(24, 6)):
        drawn = [(name,) + rng.choice(kinds) for name in rng.sample(names, 3)]
        tools = [{"type": "function", "function": dict({"name": n}, **({} if s is None else {"parameters": s}))} for n, s, _ in drawn]
        for k, (name, _, why) in enumerate(drawn + [("unknown", None, "")]):
            user = {"role": "user", "content": "x"}
            start = {"role": "assistant", "content": '{"name": %s, "' % json.dumps(name, ensure_ascii=False)}
            ask = {"tools": tools, "max_tokens": 40, "seed": i, "logit_bias": {closers: 5}}
            records.append(dict(ask, id="%d.%d.auto" % (i, k), messages=[user, start], continue_final_message=True))
            if k < 3:
                choice = {"type": "function", "function": {"name": name}}
                records.append(dict(ask, id="%d.%d.forced" % (i, k), messages=[user], tool_choice=choice))
            for kind in "auto", "forced":
                expected["%d.%d.%s" % (i, k, kind)] = name, drawn, [why] if kind == "forced" else [w for _, _, w in drawn]
    answers = run_batch(cli, records, "--template", "llama3.1", code=5)
    for key, answer in answers.items():
        name, drawn, reasons = expected[key]
        if name == "unknown":
            check("no answer that begins" in answer["error"]["message"], answer)
            continue
        check("error" not in answer and ("tool_calls" in answer or "incomplete" in answer), drawn, answer)
        for call in answer.get("tool_calls", []):
            same(call["function"]["name"], name)
            check(isinstance(json.loads(call["function"]["arguments"]), dict), answer)
        check(all(why in answer.get("note", "") for why in reasons) and ("note" in answer) == any(reasons), reasons, answer)
    check(sum("tool_calls" in a for a in answers.values()) > in_ci(10, 2), answers)
    request = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
               "body": {k: v for k, v in records[0].items() if k != "id"}}
    request["body"]["tools"] = [{"type": "function", "function": {"name": "bad", "parameters": contradiction}}]
    request["body"].update(messages=[{"role": "user", "content": "x"}], continue_final_message=False)
    out, _ = cli.run("batch", "-q", "--template", "llama3.1", "-i", "-", stdin=json.dumps(request).encode(), code=(0, 6))
    check(json.loads(out)["note"].startswith("tool bad: "), out)


@test
def rendered_calls(cli):
    """tokenize --chat decodes the arguments of tool calls, as batch does."""
    template = cli.write("t.jinja", ["{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }};{% endfor %}"
                                     "{% endfor %}{% if tools %}tool_calls{% endif %}"])
    calls = [{"function": {"name": "f", "arguments": a}} for a in ('{"a": [1]}', "", None, {"b": 2}, "x")]
    chat = cli.write("chat.json", [{"messages": [{"role": "assistant", "content": "", "tool_calls": calls}]}])
    out, _ = cli.run("tokenize", "--template", template, "--chat", chat, "--rendered")
    same(out.decode().strip(), '{"a": [1]};{};{};{"b": 2};"x";')


if __name__ == "__main__":
    main("answer")
