#!/usr/bin/env python3
"""Answers: reasoning and its budgets, also without constraints; where a constraint begins; tool calls, also beside a format."""
import json
import os
import random
import re

from terminal import Terminal
from cli import PROGRAM, check, in_ci, main, requires, run_batch, same, some, test
from schema_check import is_valid

os.environ["SOURCE_DATE_EPOCH"] = "1700000000"  # some templates write the date, on which texts would depend


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
        reasoning, answer = r["reasoning_content"], r["text"]
        check(reasoning and answer.strip(), r)
        for form in ([], ["--no-stream"], ["--reasoning-format", "auto"]):
            out, err = cli.run("run", *form, *how)
            same(out.decode(), answer + "\n", form)
            check("\n" + reasoning + "\n" in "\n" + err and "think>" not in err, err)
            same(cli.run("run", "-q", *form, *how), (out, ""))
        raw = cli.run("run", "-q", "--reasoning-format", "none", *how)[0].decode()
        check(raw.startswith(reasoning) and raw.endswith("</think>" + answer + "\n"), raw)
        same(json.loads(cli.run("run", "--json", "--reasoning-format", "none", *how)[0])["text"], raw[:-1])

    how = ["--template", opens, *args]
    message = b"x\n"
    out, err = cli.run("chat", *how[:-1], stdin=message)
    check(out.decode() == answer + "\n" and reasoning in err, out, err)
    same(cli.run("chat", "-q", *how[:-1], stdin=message), (out, ""))
    same(cli.run("chat", "-q", "--reasoning-format", "none", *how[:-1], stdin=message)[0].decode(), raw)
    same(json.loads(cli.run("chat", "--json", "--reasoning-format", "none", *how[:-1], stdin=message)[0])["content"], raw[:-1])
    for command in "run", "chat":
        cli.refuses(2, "--reasoning-format: ... none ... deep", command, "--reasoning-format", "deep", stdin=message)
    two = cli.run("run", "-N", 2, "-q", *how[:-1], "--temp", 1, "--seed", 3, "x")[0]
    check(reasoning.encode() not in two and b"think" not in two, two)

    stop = answer.split()[-1]
    for word in reasoning.split()[0], " ":
        r = json.loads(cli.run("run", "--json", "--stop", word, *how)[0])
        same((r["reasoning_content"], r["text"]), (reasoning, answer.split(word)[0]))
    r = run_batch(cli, ask(1, stop=[stop], temperature=0, messages=[{"role": "user", "content": "x"}], max_tokens=40),
                  "--template", opens, "--reasoning-budget", 8)[0]
    same((r["reasoning_content"], r["text"]), (reasoning, answer.split(stop)[0]))

    for command in ["run", *how], ["chat", *how[:-1]]:
        t = Terminal([PROGRAM, *map(str, command), *(["-q"] if command[0] == "run" else ["-q", "--plain"])], 24, 200)
        if command[0] == "chat":
            check(t.wait(">"), t.text())
            t.send("x\r")
        words = answer.split()
        check(t.wait(words[-1]), t.text())
        check(re.search(rb"\x1b\[2m" + re.escape(reasoning.encode()) + rb"\s*</think>\s*\x1b\[0m\s*" + re.escape(words[0].encode()), t.raw), t.raw)
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
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"properties": {"a": {"$dynamicRef": "#"}}}}}
    tools = cli.write("tools.json", [json.dumps([bad] + json.load(open(tools)))])
    _, err = cli.run("run", "--tools", tools, "--template", "llama3.1", "-n", 1, "x")
    check("tool bad: " in err and '#/properties/a: "$dynamicRef"' in err and "not enforced" not in err, err)


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
             ({"properties": {"a": {"$dynamicRef": "#"}}}, '#/properties/a: "$dynamicRef"'),
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


HERMES = ("{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.role ~ ': ' ~ (m.content or '') }}{% for c in m.tool_calls %}"
          "{{ '<tool_call>\\n' ~ {'name': c.function.name, 'arguments': c.function.arguments}|tojson ~ '\\n</tool_call>' }}"
          "{% endfor %}{{ '\\n' }}{% endfor %}{{ 'assistant: ' if add_generation_prompt }}")


def draw_schema(rng, names):
    """A closed object schema of one or two properties."""
    kinds = ({"type": "integer", "minimum": -9, "maximum": 99}, {"enum": ["Paris", "Rome", 'the "sea"']}, {"type": "boolean"},
             {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 3},
             {"type": "string", "maxLength": 12}, {"type": "object", "properties": {"to": {"type": "null"}}, "additionalProperties": False})
    drawn = rng.sample(names, rng.randint(1, 2))
    return {"type": "object", "properties": {name: rng.choice(kinds) for name in drawn}, "required": drawn[:1],
            "additionalProperties": False}


def draw_dialogue(rng, i, closers, openers):
    """A request with rounds of calls, tools and a format; half of them raise the probability of a call."""
    tools = [{"type": "function", "function": dict({"name": name}, **({} if rng.random() < 0.2 else
              {"parameters": draw_schema(rng, ["city", "day", "name"])}))} for name in rng.sample(["weather", "now", "find", "ask"], 3)]
    formats = {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": draw_schema(rng, ["name", "once", "degrees"])}}
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    for _ in range(rng.randint(0, 3)):
        call = {"id": "call00001", "type": "function", "function": {"name": tools[0]["function"]["name"], "arguments": "{}"}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": "call00001", "content": "20"},
                     {"role": "assistant", "content": '{"degrees": 20}'}, {"role": "user", "content": "And now?"}]
    request = {"id": i, "messages": messages, "tools": tools, "response_format": rng.choice((formats[0],) + formats[1:] * 3),
               "seed": i, "temperature": 1, "max_tokens": 500}
    request.update(rng.choice(({}, {}, {}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"tool_choice": "required"},
                               {"tool_choice": {"type": "function", "function": {"name": tools[1]["function"]["name"]}}})))
    request.update(rng.choice(({}, {"parallel_tool_calls": True}, {"parallel_tool_calls": False})))
    request["logit_bias"] = dict(closers, **(openers if rng.random() < 0.5 else {}))
    return request


def check_dialogue(request, answer):
    """True for calls, which are as the request says; otherwise the text has the format. Answers that were cut count as neither."""
    choice, calls = request.get("tool_choice", "auto"), answer.get("tool_calls", [])
    tools = {t["function"]["name"]: t["function"].get("parameters", {"properties": {}, "additionalProperties": False}) for t in request["tools"]}
    schema = request["response_format"].get("json_schema", {}).get("schema", {"type": "object"})
    if answer.get("incomplete"):
        return None
    for call in calls:
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        check(choice != "none" and is_valid(tools[name], arguments), request, answer)
        check(isinstance(choice, str) or name == choice["function"]["name"], request, answer)
    if calls:
        may_repeat = isinstance(choice, str) and request.get("parallel_tool_calls", True)
        check(answer["text"] == "" and (len(calls) == 1 or may_repeat), request, answer)
        return True
    check(choice in ("auto", "none") and is_valid(schema, json.loads(answer["text"])), request, answer)
    return False


@test
def tools_beside_format(cli):
    """With tools and a format, an answer is a valid call or has the format, as tool_choice and parallel_tool_calls say."""
    requires("constrain")
    cli.model = None
    rng = random.Random(63)
    token = {c: cli.run("tokenize", "--ids", "x" + c)[0].split()[-1].decode() for c in '<["]'}
    closers = {token['"']: 3, token["]"]: 3}
    templates = (("llama3.1", {}), ("mistral", {token["["]: 6}), (cli.write("h.jinja", [HERMES]), {token["<"]: 6}),
                 (cli.write("q.jinja", [HERMES + "{{ '<think>\\n\\n</think>\\n\\n' if enable_thinking is false }}"]), {token["<"]: 6}))
    for template, openers in templates:
        records = [draw_dialogue(rng, i, closers, openers) for i in range(in_ci(75, 30))]
        answers = run_batch(cli, records, "--template", template, "--no-think", code=(0, 6))
        kinds = [check_dialogue(r, answers[r["id"]]) for r in records]
        check(kinds.count(True) and kinds.count(False), template, kinds)
        print("   %s: %d with calls, %d with the format, %d cut" % (template[-20:], kinds.count(True), kinds.count(False), kinds.count(None)))

    # Without a known form there are no calls in a constrained answer; a forced one has Llama's form, and a note says so.
    unknown = cli.write("u.jinja", [HERMES.replace("tool_call>", "call>")])
    request = draw_dialogue(rng, 0, closers, {})
    for choice, words in ("auto", "the call form of chat template"), ("none", None), ("required", None):
        record = dict(request, tool_choice=choice, max_tokens=900)
        answer = run_batch(cli, [record], "--template", unknown, code=5 if words else (0, 6))[0]
        check(words in answer["error"]["message"] if words else check_dialogue(record, answer) in (None, choice == "required"), answer)
    tools = cli.write("tools.json", [request["tools"]])
    cli.refuses(2, "tools cannot be combined with a constraint", "run", "--template", unknown, "--tools", tools, "--regex", "a", "x")
    _, err = cli.run("batch", "--template", unknown, "-i", "-", stdin=json.dumps(record).encode(), code=(0, 6))
    check('a forced call is {"name"' in err and "so the constraint has no effect" in err, err)


@test
def checked_arguments(cli):
    """Arguments that violate a keyword that is only checked make the answer incomplete, in every form; the note names tool and place."""
    requires("constrain")
    cli.model = None
    token = {c: cli.run("tokenize", "--ids", "x" + c)[0].split()[-1].decode() for c in '"],'}
    text = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "maxLength": 9}}}

    def ask(low, high, fields):
        items = {"type": "integer", "minimum": low, "maximum": high}
        schema = {"type": "object", "properties": {"a": {"type": "array", "items": items, "uniqueItems": True, "minItems": 3, "maxItems": 3}}, "required": ["a"]}
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        return dict({"messages": [{"role": "user", "content": "x"}], "tools": tools, "max_tokens": 300, "parallel_tool_calls": False,
                     "logit_bias": {token['"']: 3, token["]"]: 3}}, **fields)
    for template, opener in some((("llama3.1", '{"name": "f", "'), (cli.write("h.jinja", [HERMES]), "<tool_call>"), ("mistral", "[TOOL_CALLS]")), 2):
        begun = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": opener}], "continue_final_message": True}
        forms = {"forced": {"tool_choice": "required"}, "opened": begun, "beside a format": dict(begun, response_format=text),
                 "streamed": {"tool_choice": "required", "stream": True}}
        records = [dict(ask(*bounds, fields), id="%s %d" % (name, bounds[0])) for name, fields in forms.items() for bounds in ((1, 2), (10, 99999))]
        out, err = cli.run("batch", "--template", template, "-i", cli.write("in.jsonl", records), code=6)
        check(err.count("tool f: checked at the end, not enforced: #/properties/a/uniqueItems\n") == 1, err)
        verdicts = set()
        for r in map(json.loads, out.splitlines()):
            check("delta" in r or "tool_calls" in r or r["incomplete"], r)
            if "delta" in r or "tool_calls" not in r:
                continue  # cut
            values = json.loads(r["tool_calls"][0]["function"]["arguments"])["a"]
            is_bad = len(set(values)) < 3
            same((r.get("note"), r.get("incomplete", False)), ('tool f: #/a: violates "uniqueItems": true' if is_bad else None, is_bad), r)
            verdicts.add(is_bad)
        same(verdicts, {True, False})

    # Repeated names in open objects; a schema that must be enforced.
    twice = {"type": "object", "additionalProperties": {"type": "null"}, "propertyNames": {"pattern": "^a$"}, "maxProperties": 3}
    record = dict(ask(1, 2, {"id": 0, "tool_choice": "required", "logit_bias": {token['"']: 3, token[","]: 5}}), max_tokens=90)
    record["tools"][0]["function"]["parameters"] = twice
    notes = [r.get("note", "") for r in run_batch(cli, [dict(record, id=i, seed=i) for i in range(8)], "--template", "llama3.1", code=(0, 6)).values()]
    check(re.search('tool f: byte [0-9]+: duplicate key "a"', " ".join(notes)), notes)
    for fields in {"tool_choice": "required"}, {}, {"response_format": text}:
        request = json.dumps(ask(1, 2, dict(fields, strict_schema=True))).encode()
        out, _ = cli.run("batch", "-q", "--template", "llama3.1", "-i", "-", stdin=request, code=5)
        check("tool f: JSON Schema, #/properties/a/uniqueItems: not supported" in json.loads(out)["error"]["message"], out)

    # In run and chat.
    tools = cli.write("tools.json", [ask(1, 2, {})["tools"]])
    args = ["--template", "llama3.1", "--tools", tools, "--json", "--temp", 1, "--logit-bias", token['"'] + "+3"]
    out, err = cli.run("run", *args, "--answer", '{"name": "f", "', "-q", "-n", 300, "x", code=6)
    check("violates" in json.loads(out)["note"] and "warning: 1 text incomplete: tool f: #/a: violates" in err, out, err)
    lines = b'x\n/answer {"name": "f", "\n'
    for form in [], ["--json"]:
        out, err = cli.run("chat", "-q", "--commands", *args[:4], *form, *args[5:], "-n", 300, stdin=lines, code=6)
        check("tool f: #/a: violates" in (out.decode() if form else err), out, err)


@test
def refused_tools(cli):
    """Two tools of a name, and a schema under another name than "parameters", are errors; tool calls of a dialogue have their parts."""
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    user, call = {"role": "user", "content": "x"}, {"name": "f", "arguments": "{}"}

    def tool(**function):
        return {"type": "function", "function": dict({"name": "f"}, **function)}
    for tools, why in (([tool(parameters=schema), tool()], 'tools[1]: "f" is the name of two tools'),
                       ([tool(inputSchema=schema)], 'tools[0]: function: found "inputSchema"; write "parameters"'),
                       ([tool(name="")], "found no name"), ([{"function": {"name": "f"}}], "found no type")):
        out, _ = cli.run("batch", "-q", "--template", "llama3.1", "-i", "-", stdin=json.dumps({"messages": [user], "tools": tools}).encode(), code=5)
        check(why in json.loads(out)["error"]["message"], why, out)
        cli.refuses(2, why, "run", "--template", "llama3.1", "--tools", cli.write("tools.json", [tools]), "x")
    for calls in [None], ["f"], [{"id": "a"}], [{"name": "f", "args": {}, "type": "tool_call"}], [{"function": {"arguments": "{}"}}], [{"function": {"name": "f"}}]:
        request = {"messages": [user, {"role": "assistant", "content": None, "tool_calls": [{"function": call}] + calls}]}
        out, _ = cli.run("batch", "-q", "--template", "llama3.1", "-i", "-", stdin=json.dumps(request).encode(), code=5)
        check('messages[1]: tool_calls[1]: expected {"type":"function"' in json.loads(out)["error"]["message"], calls, out)


@test
def forced_calls_streamed(cli):
    """A streamed forced call is no text, also where the template has no form of calls."""
    requires("constrain")
    cli.model = None
    template = cli.write("t.jinja", ["{{ tools|tojson if tools }}{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}"])
    record = {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required",
              "stream": True, "max_tokens": 60}
    out, _ = cli.run("batch", "-q", "--template", template, "-i", "-", stdin=json.dumps(record).encode())
    lines = list(map(json.loads, out.splitlines()))
    check(len(lines) == 2 and lines[0]["delta"] == lines[1]["text"] == "" and "tool_calls" in lines[0], out)


@test
def control_tags(cli):
    """A control token opens a call beside a format, and is in no other text."""
    requires("constrain")
    cli.model = None
    template = cli.write("t.jinja", [
        "{{ tools|tojson if tools }}{% for m in messages %}{{ m.role ~ ': ' ~ (m.content or '') }}{% for c in m.tool_calls %}"
        "{% if c.function.name in (builtin_tools or []) %}{{ '<|python_tag|>' ~ c.function.name ~ '.call(key=\"v\")' }}"
        "{% else %}{{ {'name': c.function.name, 'parameters': c.function.arguments}|tojson }}{% endif %}{% endfor %}{{ '\\n' }}{% endfor %}"])
    tag = cli.run("tokenize", "--special", "--ids", "<|python_tag|>")[0].decode().strip()
    check(tag.isdigit(), tag)
    call_of = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}}}
    text = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "maxLength": 30}}}
    ask = {"messages": [{"role": "user", "content": "x"}], "tools": [call_of], "logit_bias": {tag: 60}, "max_tokens": 200,
           "logprobs": True, "response_format": text, "temperature": 1}
    records = [dict(ask, id=i, seed=i, **fields) for i, fields in enumerate(
        ({}, {"parallel_tool_calls": False}, {"tool_choice": "required"}, {"tool_choice": "none"}))]
    for i, answer in run_batch(cli, records, "--template", template, code=(0, 6)).items():
        tokens = [t["token"] for t in answer["logprobs"]]
        same(tokens.count("<|python_tag|>"), int(i < 3), tokens)
        if "incomplete" in answer:
            check(i not in (1, 3), answer)
        elif i == 3:
            check(isinstance(json.loads(answer["text"]), str), answer)
        else:
            check(tokens[0] == "<|python_tag|>" and answer["text"] == "", answer)
            check(all(json.loads(c["function"]["arguments"])["x"] in (1, 2) for c in answer["tool_calls"]), answer)


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
