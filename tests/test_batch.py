#!/usr/bin/env python3
"""The command batch: answers, request forms, invalid records, crashes, shards."""
import argparse
import concurrent.futures
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

from batch_orders import contexts, count
from cli import (ROOT, SCRIPTS, Skip, call, change_byte, check, in_ci, main, matches, read_lines, requires, run_batch, same, slow,
                 some, test)
from schema_check import is_valid

SHARED = "Once upon a time there was a little girl named Lily. She loved to play with her dog in the park. " * 2
OPENINGS = ["Once upon a time", "The cat", "Tim and Sue", "One day a big dog", "", "He said", "A", "\u00e9t\u00e9"]


def prompts(n):
    """Short and long prompts; every third begins with a common prefix."""
    rng = random.Random(7)
    words = "the a cat dog ran to see big red ball and then she was happy with mom in house".split()
    for i in range(n):
        tail = " ".join(rng.choice(words) for _ in range(rng.randrange(1, 12)))
        yield SHARED + tail if i % 3 == 0 else OPENINGS[i % len(OPENINGS)] + " " + tail * (1 + 4 * (i % 10 == 0))


def requests(n, **options):
    return [dict({"id": i, "prompt": p, "max_tokens": 8, "temperature": 0}, **options) for i, p in enumerate(prompts(n))]


def ids_once(path, expected):
    answers = read_lines(path)
    same(sorted(a["id"] for a in answers), sorted(expected))
    return {a["id"]: a for a in answers}


@test
def loops(cli):
    """A loop ends an answer, except with "stop_loops": false or "ignore_eos", and within a constraint."""
    requires("constrain")
    loop = {"prompt": "a", "logit_bias": {"300": 100}, "max_tokens": 2060}
    chat = {"messages": [{"role": "user", "content": "a"}], **{k: v for k, v in loop.items() if k != "prompt"}}
    lines = [loop, dict(loop, stop_loops=False), dict(loop, stop_loops=1), dict(loop, regex="[^b]*b"), dict(loop, ignore_eos=True),
             {"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": chat}]
    for how in some((["-np", "1"], []), 2):
        r = subprocess.run([*cli.command("batch", "--template", "chatml", "-q", "--ordered", "-c", "2100", *how)], capture_output=True,
                           input="\n".join(map(json.dumps, lines)).encode(), timeout=120)
        free, endless, wrong, constrained, ignored, openai = [json.loads(line) for line in r.stdout.splitlines()]
        same((free["finish_reason"], free["n_generated"]), ("repetition", 2048), how)
        for a in (endless, ignored):
            same((a["finish_reason"], a["n_generated"]), ("length", 2060), how)
        check(endless["text"].startswith(free["text"]), how)
        same(constrained.get("finish_reason"), "length", constrained)
        check("stop_loops: expected true or false, found 1" in wrong["error"]["message"], wrong)
        choice = openai["response"]["body"]["choices"][0]
        same((choice["finish_reason"], choice["stop_reason"]), ("length", "repetition"))
        check(b"2 answers ended in a loop" in r.stderr, r.stderr)


@test
def answers_equal_run(cli):
    """Records, greedy and seeded, with and without penalties, equal as many single runs for any --parallel and -t."""
    records = []
    for i, r in enumerate(requests(in_ci(200, 32))):
        if i % 4 == 1:
            r.update(temperature=0.9, seed=i, top_p=0.9)
        if i % 4 == 2:
            r.update(repeat_penalty=1.2, stop=["."])
        records.append(r)

    def single(r):
        args = ["--deterministic", "-n", r["max_tokens"], "--temp", r["temperature"], "--json",
                "--seed", r.get("seed", 0), "--top-p", r.get("top_p", 0.95), "--repeat-penalty", r.get("repeat_penalty", 1)]
        args += ["--stop", r["stop"][0]] if "stop" in r else []
        out = json.loads(cli.run("run", *args, "-q", "-p", r["prompt"])[0])
        return out["text"], out["finish_reason"], out["n_prompt"], out["n_generated"]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        expected = dict(zip((r["id"] for r in records), pool.map(single, records)))

    source = cli.write("in", records)

    for parallel in 1, 3, 16:
        for threads in 1, 2:
            out = cli.path_of("out%d-%d" % (parallel, threads))
            cli.run("batch", "-i", source, "-o", out, "--deterministic", "--parallel", parallel, "-t", threads)
            for i, a in ids_once(out, expected).items():
                same((a["text"], a["finish_reason"], a["n_prompt"], a["n_generated"]), expected[i],
                     "id %d, --parallel %d -t %d:" % (i, parallel, threads))


@test
def seeds_follow_ids(cli):
    """The seed of a record without "seed" depends on its id only; the reported seed reproduces the answer."""
    records = requests(12, temperature=1)

    out, _ = cli.run("batch", "-s", 5, "--ordered", "--deterministic", stdin="\n".join(map(json.dumps, records)).encode())
    forwards = [json.loads(line) for line in out.splitlines()]

    out, _ = cli.run("batch", "-s", 5, "--ordered", "--deterministic",
                     stdin="\n".join(map(json.dumps, reversed(records))).encode())
    same([json.loads(line) for line in out.splitlines()], forwards[::-1])
    same(len(set(a["seed"] for a in forwards)), 12)

    a = forwards[3]
    out, _ = cli.run("run", "--json", "--deterministic", "-n", 8, "--temp", 1, "-s", a["seed"], "-p", records[3]["prompt"])
    same(json.loads(out)["text"], a["text"])
    out, _ = cli.run("batch", "-s", 6, "--ordered", stdin=json.dumps(records[3]).encode())
    check(json.loads(out)["seed"] != a["seed"])


@test
def text_lines(cli):
    """--lines: line numbers are the ids; BOM, CR LF, empty lines and a missing last newline are accepted."""
    out, _ = cli.run("batch", "--lines", "--temp", 0, "-n", 4, "--ordered", stdin=b"\xef\xbb\xbfThe cat\r\n\nThe dog")
    answers = [json.loads(line) for line in out.splitlines()]
    same([a["id"] for a in answers], [1, 3])

    for a, prompt in zip(answers, ("The cat", "The dog")):
        out, _ = cli.run("run", "--json", "--temp", 0, "-n", 4, prompt)
        same((a["text"], a["n_prompt"]), (json.loads(out)["text"], json.loads(out)["n_prompt"]))


@test
def command_line(cli):
    source = cli.write("in", requests(2))
    for args, words in ((["-i", source, "-o", source], "input and output of this run are the same file"),
                        (["-i", source, "--resume"], "--resume"), (["-i", source, "--shard", "3/2"], "3/2"), (["-i", source, "--shard", "1/2:x"], "1/2:x"),
                        (["-i", source, "--shard", "1/5000"], "N <= 4096"),
                        (["-i", source, "--shard", "slurm"], "SLURM_ARRAY_TASK_ID"), (["prompt"], "prompt")):
        cli.refuses(2, words, "batch", *args)
    cli.refuses(1, "none: No such file", "batch", "-i", cli.path_of("none"))
    with open(source, "ab") as f:  # would read its own answers endlessly
        r = subprocess.run(cli.command("batch", "-i", source), stdout=f, stderr=subprocess.PIPE, text=True)
    same((r.returncode, r.stderr), (2, "llama31: standard output: input and output of this run are the same file\n"))

    same(len(read_lines(source)), 2, "the input is untouched")


def broken_lines():
    """(line, part of the error message) of records that must not be answered."""
    good = {"id": "x", "prompt": "The cat"}

    # Lines that are no object in valid JSON.
    yield '{"id": "b0", "prompt": ', "expected a JSON value"
    yield "nonsense", "expected a JSON value"
    yield '["prompt"]', "expected an object"
    yield '{"id": "b3", "prompt": "\\ud80"}', "hexadecimal"
    yield b'{"id": "b4", "prompt": "\xff"}', "UTF-8"
    yield b"\x00\x01", "0x00"
    yield '{"id": "b6", "id": "b7", "prompt": "x"}', "duplicate key"

    # Missing, contradictory and invalid inputs and ids.
    yield {"id": True, "prompt": "x"}, "id"
    yield {"id": "no input"}, "prompt"
    yield {"id": "both", "prompt": "x", "messages": []}, "either"
    yield {"id": "a number", "prompt": 3}, "prompt"
    yield {"id": "ids", "prompt": [1, 1 << 20]}, "token ids"
    yield {"id": "chat", "messages": [{"role": "user", "content": "x"}]}, "template"

    # Fields of a wrong kind or range.
    for i, (field, value) in enumerate((("max_tokens", -2), ("max_tokens", 1e99), ("max_tokens", 1.5), ("max_tokens", "8"),
                                        ("temperature", -1), ("temperature", [1]), ("top_p", 2), ("seed", "7"),
                                        ("stop", 3), ("stop", [""]), ("stop", ["a"] * 65), ("dry_multiplier", -1),
                                        ("dry_sequence_breakers", []), ("dry_sequence_breakers", 3),
                                        ("mirostat", 2), ("typical_p", 0.9), ("samplers", ["top_k", "xtc"]), ("samplers", []), ("samplers", [1]), ("samplers", 3), ("logit_bias", {"x": 1}),
                                        ("logit_bias", {"1": "y"}), ("logit_bias", {"99999999": 1}), ("logprobs", -1),
                                        ("ignore_eos", 1), ("n", 0), ("tools", [{}]),
                                        ("response_format", {"type": "xml"}),
                                        ("regex", 1), ("choices", [1]), ("grammar", 5))):
        yield dict(good, id="field %d" % i, **{field: value}), field
    yield dict(good, id="no choices", choices=[]), "at least one string"

    # Records that need too much context.
    yield dict(good, id="too long", prompt="a b " * 40000), "does not fit the context"
    yield dict(good, id="no room", prompt="The cat", max_tokens=1 << 20, logit_bias=[]), "logit_bias"


def batch(records, *args, code=0):
    """The answers of the built-in model, which has a chat template, in input order."""
    source = "".join(json.dumps(r) + "\n" for r in records).encode()
    out = call("batch", "-t", "1", "-q", "--ordered", *args, stdin=source, code=code)[0]
    return [json.loads(line) for line in out.splitlines()]


def bare(answer):
    return [(c["text"], c["seed"]) for c in answer["choices"]]


@test
def several_choices():
    """"n" answers to one prompt, which is prefilled once. Each has its own seed, which reproduces it in a single run."""
    prompt = "Once upon a time there was a little dog who lived in a big house with a garden and a cat and a bird."
    ask = {"id": "all", "prompt": prompt, "max_tokens": 6, "temperature": 1.5, "n": 5}

    together = batch([ask], "--raw", "--deterministic")[0]
    same(len(together["choices"]), 5)
    check(len({seed for _, seed in bare(together)}) == 5 and len({text for text, _ in bare(together)}) > 1, together)

    # One record for each seed gives the same texts.
    alone = [dict(ask, id=i, n=1, seed=seed) for i, (_, seed) in enumerate(bare(together))]
    answers = batch(alone, "--raw", "--deterministic")
    same([(answers[i]["text"], answers[i]["seed"]) for i in range(5)], bare(together))

    # Several passes of three records.
    many = [dict(ask, id=i) for i in range(40)]
    answers = batch(many, "--raw", "--parallel", "3", "--seed", "1")
    same([len(answers[i]["choices"]) for i in range(40)], [5] * 40)

    # The same in the chat form of the Batch API.
    chat = openai_request(0, "chat", messages=[{"role": "user", "content": "Hi"}], n=3, logprobs=True)
    body = batch([chat])[0]["response"]["body"]
    same([c["index"] for c in body["choices"]], [0, 1, 2])
    same(body["usage"]["completion_tokens"], sum(len(c["logprobs"]["content"]) for c in body["choices"]))


WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "city": {"enum": ["Paris", "Rome"]}}}}}


@test
def tool_round_trip():
    """A tool definition, a call, the result of the call, an answer."""
    requires("constrain")
    ask = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": [WEATHER]}

    first = openai_request(0, "chat", **ask, tool_choice="required")
    first["body"]["max_tokens"] = 100
    none = openai_request(1, "chat", **ask, tool_choice="none")

    choice = batch([first], "--template", "llama3")[0]["response"]["body"]["choices"][0]
    call, = choice["message"]["tool_calls"]
    same(sorted(call), ["function", "id", "type"])
    same(call["function"]["name"], "get_weather")
    json.loads(call["function"]["arguments"])

    # Its result. The prompt contains definition and call; with tool_choice none, it does not.
    messages = ask["messages"] + [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "21 degrees"}]
    second = openai_request(2, "chat", messages=messages, tools=[WEATHER])
    answers = batch([none, second], "--template", "llama3")
    lengths = [a["response"]["body"]["usage"]["prompt_tokens"] for a in answers]
    check(lengths[0] < lengths[1] - 40, lengths, "no definition, no call in the first")

    # Templates and requests that do not fit.
    error = batch([openai_request(4, "chat", messages=messages)], "--template", "zephyr", code=5)[0]["error"]
    check("messages[1]: tool_calls: the chat template zephyr does not support" in error["message"], error)
    for bad, words in ((dict(ask, tools=[{"type": "function"}]), "tools[0]"), (dict(ask, tools={}), "tools"),
                       (dict(ask, tool_choice=3), "tool_choice"),
                       ({"messages": ask["messages"] + [{"role": "user", "content": [{"type": "image_url"}]}]},
                        "messages[1]: content[0]")):
        error = batch([openai_request(3, "chat", **bad)], "--template", "llama3", code=5)[0]["error"]
        check(words in error["message"], error)


@test
def constraint_fields(cli):
    """The fields of other programs that ask for a constraint are served, or refused by name."""
    requires("constrain")
    schema = {"enum": [17]}
    served = [({"response_format": {"type": "json_object", "schema": schema}}, "17"), ({"guided_json": schema}, "17"),
              ({"response_format": {"type": "json_schema", "schema": schema}}, "17"), ({"format": schema}, "17"),
              ({"guided_choice": ["a,b"]}, "a,b"), ({"guided_regex": "q{3}"}, "qqq"),
              ({"guided_grammar": 'root ::= "yes"'}, "yes"),
              ({"structured_outputs": {"json_object": False, "choice": ["zz"]}}, "zz")]
    refused = [({"response_format": {"type": "text", "schema": schema}}, '"schema"'),
               ({"response_format": {"type": "json_object", "strict": True}}, '"strict"'),
               ({"structured_outputs": {"structural_tag": "x"}}, '"structural_tag"'), ({"format": "yaml"}, "yaml"),
               ({"format": "json", "guided_json": schema}, "one constraint"), ({"choices": ["", "a"]}, "empty")]
    records = [dict(fields, id=i, prompt="x", max_tokens=40) for i, (fields, _) in enumerate(served + refused)]
    answers = run_batch(cli, records, code=5)
    for i, (fields, text) in enumerate(served):
        same(answers[i].get("text"), text, fields)
    for i, (fields, words) in enumerate(refused):
        check(words in answers[len(served) + i]["error"]["message"], fields, answers[len(served) + i])


@test
def forced_calls():
    """"tool_choice": a required call is made, of an existing tool, with arguments that match its schema."""
    requires("constrain")
    clock = {"type": "function", "function": {"name": "clock", "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
        "additionalProperties": False}}}

    ask = {"messages": [{"role": "user", "content": "What time is it?"}], "tools": [WEATHER, clock], "temperature": 1.5}
    named = {"type": "function", "function": {"name": "clock"}}
    requests = [openai_request(i, "chat", **ask, seed=i, tool_choice=named if i % 2 else "required") for i in range(8)]
    for r in requests:
        r["body"]["max_tokens"] = 400

    for i, answer in enumerate(batch(requests, "--template", "llama3", "--ordered", code=(0, 6))):
        choice = answer["response"]["body"]["choices"][0]
        if answer.get("incomplete"):  # a long name of a city
            continue

        same(choice["finish_reason"], "tool_calls")
        call, = choice["message"]["tool_calls"]
        check(call["function"]["name"] in (["clock"] if i % 2 else ["clock", "get_weather"]), call)
        arguments = json.loads(call["function"]["arguments"])
        check(call["function"]["name"] != "clock" or arguments["zone"] in ("UTC", "CET"), arguments)

    # Choices that contradict the request.
    for bad, words in ((dict(ask, tool_choice={"function": {"name": "none"}}), "tool_choice"),
                       (dict(ask, tool_choice="required", tools=[]), "tool_choice")):
        error = batch([openai_request(3, "chat", **bad)], "--template", "llama3", code=5)[0]["error"]
        check(words in error["message"], error)


@test
def resident_process(cli):
    """With -i - -o -, each answer comes before the next request is written; so it does with the example in sh."""
    command = cli.command("batch", "-q", "-i", "-", "-o", "-")
    for extra in [], ["--ordered"]:
        p = subprocess.Popen(command + extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for i in range(20):
            p.stdin.write('{"prompt": "x", "max_tokens": %d}\n' % (i % 3) if i != 7 else "not JSON\n")
            p.stdin.flush()
            answer = json.loads(p.stdout.readline())
            check("error" in answer if i == 7 else answer["id"] == i + 1, answer)

        p.stdin.close()
        same((p.stdout.read(), p.wait()), ("", 5))

    # Two requests with the example of the documentation.
    script = """mkfifo requests answers
        "$@" < requests > answers &
        exec 3> requests 4< answers
        for i in 1 2; do
            echo '{"prompt": "x", "max_tokens": 1}' >&3
            read -r answer <&4
            echo "$answer"
        done
        exec 3>&-
        wait"""
    out = subprocess.run(["sh", "-c", script, "sh"] + command, cwd=cli.tmp, capture_output=True, timeout=60).stdout
    same([json.loads(line)["id"] for line in out.splitlines()], [1, 2])


@test
def bad_records(cli):
    """A bad record gives an error with its line and the reason; the others are answered; exit 5. --resume repeats none."""

    lines, expected = [], {}
    for line, words in broken_lines():
        expected[len(lines) + 1] = words
        lines += [line, {"id": len(lines) + 1, "prompt": "The dog", "max_tokens": 2}]
    lines.append({"id": 1, "prompt": "again"})
    expected[len(lines)] = "used by an earlier line"

    source, out = cli.write("in", lines), cli.path_of("out")
    for args in [], ["--resume"]:
        cli.run("batch", "--template", "none", "-i", source, "-o", out, *args, code=5)
        answers = read_lines(out)
        errors = {a["line"]: a["error"] for a in answers if "error" in a}
        same(sorted(errors), sorted(expected))
        for line, words in expected.items():
            message = errors[line]["message"]
            check(message.startswith("line %d: " % line) and words in message, "line", line, words, "not in", message)
        same(sorted(a["id"] for a in answers if "text" in a), list(range(1, len(lines) - 1, 2)))
        same([a["id"] for a in answers if a.get("line") == len(lines)], [None])

    # An unknown field is ignored, except with --strict.
    odd = {"id": "odd", "prompt": "x", "max_tokens": 1, "colour": "red"}
    out, _ = cli.run("batch", stdin=json.dumps(odd).encode())
    check("text" in json.loads(out))
    out, _ = cli.run("batch", "--strict", stdin=json.dumps(odd).encode(), code=5)
    check('unknown field "colour"' in json.loads(out)["error"]["message"])


@test
@slow
def long_line(cli):
    """A line of 1 GB, or a wide array of small values, gives an error record and takes little memory."""
    source = cli.path_of("in")
    with open(source, "wb") as f:
        f.write(b'{"id": "long", "prompt": "')
        f.truncate(1 << 30)
        f.seek(0, 2)
        f.write(b'"}\n' + json.dumps({"id": 1, "prompt": "The cat", "max_tokens": 2}).encode())

    p = subprocess.Popen(cli.command("batch", "-i", source, "-q"), stdout=subprocess.PIPE)
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    os.remove(source)

    same(p.returncode, 5)
    answers = {a["id"]: a for a in map(json.loads, out.splitlines())}
    same((answers[None]["error"]["code"], answers[None]["line"]), ("line_too_long", 1))
    check("longer than %d bytes" % (4 << 20) in answers[None]["error"]["message"], answers[None])
    check("text" in answers[1])
    check(usage.ru_maxrss < 200 << 10, usage.ru_maxrss, "KiB")


def openai_request(i, kind, **body):
    url = {"chat": "/v1/chat/completions", "text": "/v1/completions"}.get(kind, kind)
    return {"custom_id": "request-%d" % i, "method": "POST", "url": url,
            "body": dict({"model": "any", "max_tokens": 6, "temperature": 0}, **body)}


def read_openai(line, custom_ids):
    """Reads the output of the Batch API strictly: checks the exact keys and types of every object."""
    def fields(value, what, **kinds):
        same(sorted(value), sorted(kinds), what)
        for name, kind in kinds.items():
            check(isinstance(value[name], kind) and not (kind is int and isinstance(value[name], bool)), what, name, value[name])
        return value

    def token(t, *more):
        names = dict(token=str, logprob=float, bytes=list, **{m: list for m in more})
        check(-1000 < fields(t, "token", **names)["logprob"] <= 0 and all(0 <= b < 256 for b in t["bytes"]), t)

    nothing = type(None)
    record = json.loads(line)
    error = record.get("error")
    record.pop("run", None)  # of the first result

    fields(record, "record", request=str, id=str, custom_id=(str, nothing), response=(dict, nothing), error=(dict, nothing))
    check(record["id"].startswith("batch_req_") and (record["response"] is None) != (error is None), record)
    if error:
        fields(error, "error", code=str, message=str)
        return record

    check(record["custom_id"] in custom_ids)
    response = fields(record["response"], "response", status_code=int, request_id=str, body=dict)
    same(response["status_code"], 200)
    body = fields(response["body"], "body", id=str, object=str, created=int, model=str, choices=list, usage=dict)
    usage = fields(body["usage"], "usage", prompt_tokens=int, completion_tokens=int, total_tokens=int)
    same(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    choice, = body["choices"]
    check(choice["finish_reason"] in ("stop", "length") and choice["index"] == 0)

    if body["object"] == "chat.completion":
        fields(choice, "choice", index=int, message=dict, logprobs=(dict, nothing), finish_reason=str)
        same(fields(choice["message"], "message", role=str, content=str, refusal=nothing)["role"], "assistant")
        for t in fields(choice["logprobs"], "logprobs", content=list, refusal=nothing)["content"] if choice["logprobs"] else []:
            token(t, "top_logprobs")
            for top in t["top_logprobs"]:
                token(top)
    else:
        same(body["object"], "text_completion")
        fields(choice, "choice", index=int, text=str, logprobs=(dict, nothing), finish_reason=str)
        if choice["logprobs"]:
            l = fields(choice["logprobs"], "logprobs", tokens=list, token_logprobs=list, top_logprobs=list, text_offset=list)
            same(set(map(len, l.values())), {usage["completion_tokens"]})
    return record


@test
def openai_batch(cli):
    """Chat, completion, broken and oversized records of the Batch API; a strict reader accepts the output."""

    chat = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    good = [openai_request(0, "chat", messages=chat), openai_request(1, "text", prompt="The cat", logprobs=3),
            openai_request(2, "chat", messages=chat, logprobs=True, top_logprobs=2, seed=3, temperature=1.0, n=1, stop=None),
            openai_request(3, "text", prompt=["The dog"], stop=["."], logit_bias={"5": -100}, echo=False, user="me"),
            openai_request(4, "chat", messages=chat, logprobs=True, max_tokens=None, max_completion_tokens=3),
            openai_request(5, "text", prompt=[1, 403, 407])]

    # A bad record before each good one.
    bad = [openai_request(10, "/v1/embeddings", input="x"), openai_request(11, "chat", prompt="x"),
           openai_request(12, "text", messages=chat), openai_request(13, "chat", messages=[{"role": "king", "content": ""}]),
           dict(openai_request(14, "text", prompt="x"), method="GET"), openai_request(0, "text", prompt="again"),
           openai_request(15, "text", prompt="a b " * 40000), openai_request(16, "chat", messages=chat, top_logprobs=1),
           '{"custom_id": "request-17", "method": ', dict(openai_request(18, "text", prompt="x"), custom_id=18),
           json.dumps(openai_request(19, "text", prompt="x" * (5 << 20)))]

    lines = [x for pair in zip(bad, good) for x in pair] + bad[len(good):]
    source, out = cli.write("in", lines), cli.path_of("out")
    for args in [], ["--resume"]:
        cli.run("batch", "-i", source, "-o", out, "--template", "chatml", *args, code=5)

        with open(out) as f:
            records = [read_openai(line, {g["custom_id"] for g in good}) for line in f]
        same(len(records), len(lines))
        answers = {r["custom_id"]: r["response"]["body"]["choices"][0] for r in records if r["response"]}
        same(set(answers), {g["custom_id"] for g in good})

        same({r["error"]["code"] for r in records if r["error"]},
             {"invalid_request", "duplicate_id", "context_length_exceeded", "invalid_json", "line_too_long"})
        same(sorted(str(r["custom_id"]) for r in records if r["error"]),
             sorted(["None"] * 4 + ["request-%d" % i for i in (10, 11, 12, 13, 14, 15, 16)]))

    # The answers are those of the command run, and have the requested log-probabilities.
    single, _ = cli.run("run", "--raw", "--json", "--temp", 0, "-n", 6, "The cat")
    same(answers["request-1"]["text"], json.loads(single)["text"])
    check("." not in answers["request-3"]["text"])
    same([len(t["top_logprobs"]) for t in answers["request-4"]["logprobs"]["content"]], [0, 0, 0])
    same([len(t["top_logprobs"]) for t in answers["request-2"]["logprobs"]["content"]], [2] * 6)


@test
def echo(cli):
    """An echoed prompt has the log-probabilities of score, in OpenAI's form, for any batch and order of the records."""
    for model in {cli.model, None}:
        given, cli.model = cli.model, model
        texts = [t for t in prompts(20) if t.strip()] + ["\u00e9t\u00e9 \u4f60\u597d", "A", " two  spaces", ""]
        ids = [json.loads(line) for line in cli.run(
            "tokenize", "--jsonl", stdin="".join(json.dumps(t) + "\n" for t in texts).encode())[0].splitlines()]
        scored = [json.loads(line)["logprobs"] for line in cli.run("score", "--jsonl", stdin="".join(
            json.dumps({"text": t, "logprobs": 2}) + "\n" for t in texts if t).encode())[0].splitlines()]
        # Texts, ids without BOS, and ids with a generated token, as lm-evaluation-harness asks for it. That token may
        # end the text.
        ends = [{}, {"logit_bias": {"5": 100}, "stop_token_ids": [5]}]
        records = [openai_request(i, "text", prompt=t, echo=True, logprobs=2, max_tokens=0) for i, t in enumerate(texts)]
        records += [openai_request(100 + i, "text", prompt=[x], echo=True, logprobs=1, max_tokens=1, **ends[i % 2])
                    for i, x in enumerate(ids) if x]
        found = {}
        for n in 1, 7, 32:
            random.Random(n).shuffle(records)
            out = cli.run("batch", "-q", "--parallel", n, "-b", 5 * n, "-i", cli.write("in", records))[0]
            answers = [json.loads(line) for line in out.splitlines()]
            choices = {a["custom_id"]: a["response"]["body"]["choices"][0] for a in answers}
            same(len(choices), len(records))
            same(choices, found or choices, "--parallel %d" % n)
            found = choices

        for i, text in enumerate(texts):
            l = found["request-%d" % i]["logprobs"]
            same((found["request-%d" % i]["text"], found["request-%d" % i]["finish_reason"]), (text, "length"))
            same((l["token_logprobs"][0], l["top_logprobs"][0], l["text_offset"][0]), (None, None, 0))
            if not text:
                same(len(l["tokens"]), 1)
                continue
            same(l["token_logprobs"][1:], [t["logprob"] for t in scored[i]])
            same([max(top.values()) for top in l["top_logprobs"][1:]], [t["top"][0]["logprob"] for t in scored[i]])
            for token, begin, end in zip(l["tokens"], l["text_offset"], l["text_offset"][1:] + [len(text)]):
                check(token.endswith(text[begin:end]) or "\ufffd" in token or begin == 0, token, text[begin:end])
        for i, x in enumerate(ids):
            if x:
                choice = found["request-%d" % (100 + i)]
                same(choice["finish_reason"], ("length", "stop")[i % 2])
                same([len(v) for v in choice["logprobs"].values()], [len(x) + 1] * 4)
                check(choice["text"].startswith(texts[i]) or model, choice["text"])
        cli.model = given

    # The short form, several choices, and prompts that cannot be echoed.
    ask = {"prompt": "The cat", "echo": True, "logprobs": 0, "max_tokens": 2, "temperature": 1.5, "n": 2}
    for choice in batch([ask], "--raw")[0]["choices"]:
        check(choice["text"].startswith("The cat"), choice)
        same([t["logprob"] is None for t in choice["logprobs"]], [True] + [False] * (len(choice["logprobs"]) - 1))
        same("".join(t["token"] for t in choice["logprobs"][1:]), choice["text"])
    same(batch([{"prompt": "The cat", "max_tokens": 0}], "--raw", "--echo")[0]["text"], "The cat")
    chat = openai_request(0, "chat", messages=[{"role": "user", "content": "x"}], echo=True)
    check("echo: needs a prompt" in batch([chat], "--template", "llama3", code=5)[0]["error"]["message"])


@test
def several_prompts():
    """Several prompts in one record give the same choices, in order, as one record per prompt."""
    ask = {"max_tokens": 5, "temperature": 0, "logprobs": 1}
    texts, ids = ["The cat", "Once upon", "The cat"], [[1, 403], [1, 403, 407], [1]]
    for args in [], ["--raw", "--echo"]:
        for several in texts + [""] * len(args[:1]), ids:
            alone = batch([dict(ask, prompt=p) for p in several], "--deterministic", *args)
            together = batch([dict(ask, prompt=several, n=2)], "--deterministic", *args)[0]["choices"]
            for i, choice in enumerate(together):
                same(dict(choice, id=i // 2 + 1, request=alone[i // 2]["request"], seed=0), dict(alone[i // 2], seed=0))

    body = batch([openai_request(0, "text", prompt=texts, n=2, echo=True)])[0]["response"]["body"]
    same([c["index"] for c in body["choices"]], list(range(6)))
    check(all(c["text"].startswith(texts[c["index"] // 2]) for c in body["choices"]), body)
    n = [a["n_prompt"] for a in batch([{"prompt": t, "max_tokens": 1} for t in texts], "--raw")]
    same(body["usage"]["prompt_tokens"], sum(n))

    for prompt, says in ((["x", [1]], "found an array"), ([[1], "x"], 'found "x"'), ([[1], []], "found an array"),
                         ([], "found an array"), ([None], "found null"), (["x"] * 2049, "at most 2048, found 2049"),
                         (["x", "a b " * 40000], "prompt[1]: the prompt does not fit"), ([["x"]], 'found "x"')):
        check(says in batch([{"prompt": prompt, "max_tokens": 1}], code=5)[0]["error"]["message"], prompt[:3], says)


@test
def continued_answers(cli):
    """With "continue_final_message", the last message is the beginning of the answer."""
    requires("constrain")
    ask = {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 20, "temperature": 0}
    whole = batch([ask], "--deterministic")[0]["text"]
    begin = dict(ask, messages=ask["messages"] + [{"role": "assistant", "content": whole[:21]}], continue_final_message=True)
    short, two = batch([begin, dict(begin, n=2, temperature=1)], "--deterministic")
    same((short["answer"], (whole[:21] + short["text"])[:len(whole)]), (whole[:21], whole))
    same([c["answer"] for c in two["choices"]], [whole[:21]] * 2)
    openai = batch([{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": begin}], "--deterministic")[0]
    same(openai["response"]["body"]["choices"][0]["message"]["content"], short["text"])

    call_of = dict(ask, tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}])
    call_of["messages"] = ask["messages"] + [{"role": "assistant", "content": '{"name": "'}]
    for record, message in ((dict(ask, continue_final_message=True), "the last message must be a text of the assistant"),
                            ({"prompt": "x", "continue_final_message": True}, 'needs "messages"'),
                            (dict(ask, continue_final_message=1), "continue_final_message: expected"),
                            (dict(begin, regex="[0-9]+"), "the constraint allows no answer that begins with")):
        found = batch([record], code=5)[0]
        check(message in found["error"]["message"], found)
    # The call of a tool that begins in the message is constrained, and is a call of the whole answer.
    found = batch([dict(call_of, continue_final_message=True, max_tokens=60)], "--template", "llama3.1")[0]
    same(found["tool_calls"][0]["function"], {"name": "f", "arguments": "{}"})


@test
def stop_tokens(cli):
    """"stop_token_ids" end a text; "min_tokens" keeps stop tokens and stop strings from ending it before."""
    ask = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "logprobs": 0}
    free = batch([ask], "--raw")[0]
    ids, words = ([t[key] for t in free["logprobs"]] for key in ("id", "token"))
    at = next(i for i in range(2, 12) if ids[i] not in ids[:i] and words[i] not in "".join(words[:i]))
    stop, eos = dict(ask, stop_token_ids=[3, ids[at]]), 2033
    found = batch([stop, dict(ask, stop=words[at]), dict(stop, min_tokens=at), dict(stop, min_tokens=at + 1),
                   dict(ask, stop=words[at], min_tokens=at), dict(ask, stop=words[at], min_tokens=at + 1),
                   dict(stop, ignore_eos=True), dict(ask, logit_bias={str(eos): 100}, min_tokens=5),
                   dict(ask, logit_bias={str(eos): 100})], "--raw")
    short = "".join(words[:at]), "stop"
    is_short = [(a["text"], a["finish_reason"]) == short for a in found[:7]]
    same(is_short, [True, True, True, False, True, False, True])
    same([a["n_generated"] for a in found[7:]], [5, 0], "the end of the text is the most likely token")
    same(len(found[5]["text"]) > len(short[0]) and found[5]["finish_reason"], "length")
    check(ids[at] not in [t["id"] for t in found[3]["logprobs"][:at + 1]], found[3])
    out = call("run", "--raw", "-q", "-t", "1", "--temp", "0", "-n", "12", "--stop", words[at], "--min-tokens", str(at + 1),
               ask["prompt"])[0]
    same(out.decode().rstrip("\n"), found[5]["text"])
    given = batch([ask, dict(ask, stop_token_ids=[])], "--raw", "--stop-token-ids", str(ids[at]))
    same([a["text"] for a in given], [short[0], free["text"]], "those of a request replace those of the command line")
    banned = dict(ask, stop_token_ids=list(range(2048)), min_tokens=1)
    check("all tokens are banned" in batch([banned], "--raw", code=6)[0]["failure"])
    names = "max_tokens", "max_completion_tokens", "num_predict", "max_new_tokens", "n_predict"
    asks = [{"prompt": "Once", "ignore_eos": True, name: 2} for name in names]
    same([a["n_generated"] for a in batch(asks, "--raw")], [2] * len(names), "other names of max_tokens")
    for field, value, says in (("thinking_budget", 1.5, "thinking_budget: expected a whole number"),
                               ("stop_token_ids", [-1], "token ids"), ("stop_token_ids", "x", "an array of token ids"),
                               ("min_tokens", 13, "at most max_tokens, 12, found 13"), ("min_tokens", -1, "min_tokens")):
        check(says in batch([dict(ask, **{field: value})], code=5)[0]["error"]["message"], field, value)


@test
def unknown_fields(cli):
    """Fields that no record is served with are named on stderr, in one line, each once; --strict rejects them."""
    ask = {"prompt": "x", "max_tokens": 1, "best_of": 1, "model": "m", "null": None}
    lines = [dict(ask, prompt_logprobs=1), dict(ask, **{"a\n": [1], "prompt_logprobs": 2}), ask]
    lines.append(dict(openai_request(1, "text", prompt="x", priority=3), status=0, metadata=None))
    source = cli.write("in", lines)
    same(cli.run("batch", "-q", "-i", source)[1],
         'llama31: warning: fields without effect: "prompt_logprobs", "a\\n", "status", "priority"\n')
    same(cli.run("batch", "-q", stdin=json.dumps(ask).encode())[1], "")
    out = cli.run("batch", "-q", "--strict", "-i", source, code=5)[0]
    same([json.loads(line)["error"]["message"].count("unknown field") for line in out.splitlines()], [1] * 4)
    for name in "cache_type_k", "cache_type_v":  # options of other programs, which have no value of --kv here
        err = cli.run("batch", "-q", stdin=json.dumps({"prompt": "x", "max_tokens": 1, name: 8}).encode())[1]
        same(err, 'llama31: warning: fields without effect: "%s"\n' % name)

    request = json.dumps({"text": "x", "temperature": 1, "logprobs": None}).encode()
    same(cli.run("score", "-q", "--jsonl", stdin=request)[1], 'llama31: warning: fields without effect: "temperature"\n')
    out = cli.run("score", "-q", "--jsonl", "--strict", stdin=request, code=5)[0]
    check('unknown field "temperature"' in json.loads(out)["error"]["message"], out)

    many = json.dumps(dict(ask, **{"f%d" % i: 1 for i in range(99)})).encode()
    err = cli.run("batch", "-q", stdin=many)[1]
    check(err.endswith('"f30", "f31", and others\n'), err)


def unsupported_fields():
    """(names, places) of the fields that the program refuses, from the source."""
    with open(os.path.join(ROOT, "cli", "commands", "batch_request.c")) as f:
        table = f.read().split("Field fields[] = {")[1].split("\n};")[0]
    text = r'"(?:[^"\\]|\\.)*"'
    for names in re.findall(r"REFUSED\((?:NOTHING|\s|%s)+, ((?:%s\s*)+)," % (text, text), table):
        yield re.sub(r'["\n ]+', " ", names).split(), {"request"}
    for names, places in re.findall(r"\{(%s), ([A-Z_ |]+), NULL, [^N]" % text, table):
        yield names.strip('"').split(), {place[3:].lower() for place in places.split(" | ")}


@test
def unsupported_members(cli):
    """Members of requests and messages that could change an answer are errors that name what to write instead."""
    turn = {"role": "user", "content": "x"}
    records, names = [], []
    for row, places in unsupported_fields():
        for name in row:
            names += [(name, place) for place in sorted(places)]
            records += [{"prompt": "x", name: {"a": 7}} if place == "request" else {"messages": [dict(turn, **{name: {"a": 7}})]}
                        for place in sorted(places)]
    check(len(records) > 80 and ("images", "message") in names and ("extra_body", "request") in names, names)
    answers = batch(records, "--template", "llama3", code=5)
    for (name, place), answer in zip(names, answers):
        check(matches(answer["error"]["message"], (": messages[0]: " if place == "message" else ": ") + name + ": not supported; "), answer)

    # Values that mean the same as no field, and members that the template reads, are silent; others are named once.
    neutral = {"do_sample": True, "num_beams": 1.0, "no_repeat_ngram_size": 0, "stop_sequences": [], "options": {}, "raw": False,
               "text": {"format": {"type": "text"}}, "function_call": "none", "modalities": ["text"], "extra_body": None,
               "stopSequences": [], "truncate": True, "plugins": []}
    silent = dict(turn, images=[], prefix=False, name="n", weight=1, content=[{"type": "text", "text": "x", "cache_control": {}}])
    ask = {"messages": [silent], "max_tokens": 1, **neutral}
    same(call("batch", "-q", "--strict", "--template", "llama3", stdin=json.dumps(ask).encode())[1], "")
    odd = dict(turn, mood="calm", content=[{"type": "text", "text": "x", "lang": "en"}])
    source = cli.write("in", [dict(ask, messages=[odd, odd])])
    same(call("batch", "-q", "--template", "llama3", "-i", source)[1], 'llama31: warning: fields without effect: "mood", "lang"\n')
    out = call("batch", "-q", "--strict", "--template", "llama3", "-i", source, code=5)[0]
    check('messages[0]: unknown field "mood"' in json.loads(out)["error"]["message"], out)
    reader = cli.write("t.jinja", ["{% for m in messages %}{{ m.mood }}{{ m['content'] }}{% endfor %}"])
    same(call("batch", "-q", "--template", reader, "-i", source)[1], 'llama31: warning: fields without effect: "lang"\n')

    # Camel case, and misspelled names of fields with an effect. Other columns of a data set are no misspellings.
    for name, value, says in (("maxTokens", 3, 'write "max_tokens"'), ("TopP", 0.1, 'write "top_p"'), ("minP", 0.1, 'write "min_p"'),
                              ("responseFormat", {}, 'write "response_format"'), ("stopSequences", ["a"], 'write "stop"'),
                              ("typicalP", 0.5, "--top-p"), ("temprature", 0, 'write "temperature"'), ("max_tokesn", 3, 'write "max_tokens"'),
                              ("temp\0x", 0, 'NUL in its name, after "temp"'),
                              ("choise", ["a"], None), ("choicse", ["a"], 'write "choices"'), ("messags", [], 'write "messages"'),
                              ("prompt2", "x", None), ("choice1", "x", None), ("passages", "x", None), ("index", 3, None), ("stops", 3, None)):
        out, err = call("batch", "-q", stdin=json.dumps({"prompt": "x", "max_tokens": 1, name: value}).encode(), code=5 if says else 0)
        answer = json.loads(out)
        if says:
            check(matches(answer["error"]["message"], says), name, answer)
        else:
            check('fields without effect: "%s"' % name in err and "text" in answer, name, answer, err)

    # Two names of one option, which must agree.
    for other, says in ({"max_completion_tokens": 2}, '"max_tokens" sets the same option to another value'), ({"max_completion_tokens": 1}, None), \
            ({"n_predict": None}, None), ({"n_predict": 1.0}, None), ({"temp": 0.5, "temperature": 0.50}, None), \
            ({"repetition_penalty": 1.1, "repeat_penalty": 1.2}, "sets the same option"), \
            ({"thinking_token_budget": 3, "reasoning_budget": 4}, "sets the same option"):
        answer = batch([dict({"prompt": "x", "max_tokens": 1}, **other)], code=5 if says else 0)[0]
        check(says in answer["error"]["message"] if says else "text" in answer, other, answer)
    same([t["n_generated"] for t in batch([{"prompt": "x", "max_tokens": 1, "samplers": ["top_k", "temperature"]}])], [1])

    # Beside a body, only unknown fields have no effect.
    for name, value in ("temperature", 0), ("tools", [WEATHER]), ("stop_sequences", ["a"]), ("max_new_tokens", 3):
        error = batch([dict(openai_request(0, "text", prompt="x"), **{name: value})], code=5)[0]["error"]
        check(name + ': expected inside "body"' in error["message"], error)


@test
def resume(cli):
    """An incomplete last line is removed, complete lines stay, errors count as finished, and nothing is overwritten."""
    source, out = cli.write("in", requests(20) + ["broken"]), cli.path_of("out")

    cli.run("batch", "-i", source, "-o", out, "--ordered", "-s", 3, code=5)
    with open(out, "rb") as f:
        whole = f.read()

    cli.refuses(2, "--resume", "batch", "-i", source, "-o", out)

    # An output that ends anywhere is completed.
    for cut in 0, 1, whole.index(b"\n"), whole.index(b"\n") + 1, len(whole) // 2, len(whole) - 1, len(whole):
        with open(out, "wb") as f:
            f.write(whole[:cut])
        _, err = cli.run("batch", "-i", source, "-o", out, "--ordered", "--resume", "-s", 3, code=5)
        n_done = whole[:cut + 1].count(b"\n")  # a line that lacks only its newline is complete
        check("%d skipped" % n_done in err, err)
        same("(1 failed earlier)" in err, cut >= len(whole) - 1, err)
        with open(out, "rb") as f:
            text = f.read()
        strip = [{k: v for k, v in json.loads(line).items() if k != "seed"} for line in text.splitlines()]
        same(strip, [{k: v for k, v in json.loads(line).items() if k != "seed"} for line in whole.splitlines()], cut)

    # Other files are not changed.
    for foreign in b"notes\n", b'{"a": 1}\n', b"[]\n":
        with open(out, "wb") as f:
            f.write(foreign)
        cli.refuses(1, "line 1", "batch", "-i", source, "-o", out, "--resume")
        with open(out, "rb") as f:
            same(f.read(), foreign)


@test
def failed_texts(cli):
    """A text that the constraint cannot continue is an incomplete answer; only --retry-failed completes it again."""
    requires("constrain")
    hard = {"id": 1, "prompt": "x", "grammar": 'root ::= "a" root root | "a" | ""', "max_tokens": 1500}
    body = {**{k: v for k, v in hard.items() if k != "id"}, "n": 2}
    records = [hard, {"id": 2, "prompt": "x", "max_tokens": 2}, {"id": 3, "prompt": "x", "max_tokens": "many"},
               {"custom_id": "o", "method": "POST", "url": "/v1/completions", "body": body}]
    out = cli.path_of("out")
    way = ["batch", "--raw", "--logit-bias", "a+1000", "-o", out]

    cli.run(*way, "-i", cli.write("in", records[:2] + records[3:]), code=6)
    answers = {str(a.get("custom_id", a["id"])): a for a in read_lines(out)}
    short, openai = answers["1"], answers["o"]
    check(short["text"].startswith("aaa") and short["finish_reason"] == "error" and short["incomplete"] is True, short)
    for a in short, openai:
        check("too ambiguous" in a["failure"] and a["incomplete"] is True and not a.get("error"), a)
    for choice in openai["response"]["body"]["choices"]:
        check(choice["text"].startswith("aaa"), choice)
        same((choice["finish_reason"], choice["stop_reason"]), ("length", "error"))
    check("failure" not in answers["2"], answers)

    os.remove(out)
    source = cli.write("in", records[:3])
    cli.run(*way, "-i", source, code=5)
    for args, n_done, n_skipped in ([], 0, 3), (["--retry-failed"], 2, 1), ([], 0, 3):
        _, err = cli.run(*way, "-i", source, "--resume", *args, code=5)
        check("%d record" % n_done in err and "%d skipped" % n_skipped in err, args, err)
        same(len(read_lines(out)), 3)
    cli.refuses(2, "--retry-failed: needs --resume", *way[:-1], cli.path_of("new"), "-i", source, "--retry-failed")


@test
def checked_first(cli):
    """--check prints the errors of a run and its tokens, without generating anything; with -o, no file is written."""
    records = [line for line, _ in broken_lines()] + requests(60) + [{"id": "lone", "prompt": "\ud800", "max_tokens": 0}] + [{"id": "two", "prompt": ["a b", "a c"], "n": 2, "max_tokens": 7}]
    random.Random(2).shuffle(records)
    source, out = cli.write("in", records), cli.path_of("out")
    ask = ["--template", "none", "-i", source]
    found, err = cli.run("batch", "--check", "--speed", "100,0.5", *ask, code=5)
    run_err = cli.run("batch", *ask, "-o", out, code=5)[1]
    whole = [{k: v for k, v in a.items() if k != "run"} for a in read_lines(out)]
    same([json.loads(line) for line in found.splitlines()], sorted((a for a in whole if "error" in a), key=lambda a: a["line"]))

    pattern = r"prompts (\d+) tok.*\((\d+) sharable\)"
    of_check, of_run = ([int(n) for n in re.search(pattern, text).groups()] for text in (err, run_err))
    same(of_check[0], of_run[0])
    check(abs(of_check[1] - of_run[1]) <= 20, of_check, of_run)  # whole prompts that begin others: see batch_count_prompt()
    n_prompt, n_sharable, limit = map(int, re.search(pattern + r" \| at most (\d+) tok to generate \|", err).groups())
    same(limit, 60 * 8 + 4 * 7)
    sec = int((n_prompt - n_sharable) / 100 + limit / 0.5)
    check(" | at most %d:%02d:%02d\n" % (sec // 3600, sec // 60 % 60, sec % 60) in err, err, sec)

    # Good requests alone, with a result of an earlier run, an answer without limit, and a shard.
    good = [r for r in records if isinstance(r, dict) and type(r.get("id")) is int] + [{"prompt": "x"}]
    source, other = cli.write("good", good), cli.path_of("other")
    ask = ["-i", source, "--template", "chatml", "-o", other]
    empty, err = cli.run("batch", "--check", *ask)
    check(empty == b"" and "480 tok to generate, and 1 answer without max_tokens\n" in err and "is not written" in err, err)
    check(not os.path.exists(other) and not os.path.exists(other + ".lock"))
    cli.write("other", [{"id": good[0]["id"], "text": "a"}])
    check("60 records, 0 failed, 1 skipped" in cli.run("batch", "--check", "--resume", *ask)[1])
    same(len(read_lines(other)), 1)
    check("31 records" in cli.run("batch", "--check", "--shard", "1/2:lines", *ask)[1])
    cli.refuses(2, "--speed: needs --check", "batch", "-i", source, "--speed", "1,2")
    for speed in "1", "1,0", "1,2x", "a,b", "nan,1":
        cli.refuses(2, '--speed: expected ... found "%s"' % speed, "batch", "-i", source, "--check", "--speed", speed)


def wrong_values():
    """Records in both forms with values of wrong kinds and ranges, of which some happen to be right."""
    names = ("stop stop_token_ids n logit_bias logprobs top_logprobs response_format json_schema grammar regex choices structured_outputs "
             "format chat_template_kwargs stop_loops stream think parallel_tool_calls continue_final_message max_tokens temperature top_k seed "
             "tools tool_choice samplers reasoning_budget min_tokens ignore_eos echo id messages prompt options images maxTokens").split()
    for i, (name, value) in enumerate((n, v) for n in names for v in (5.5, -7, "hot", {"a": 1}, [{"b": 2}], True, [[]])):
        body = {"messages": [{"role": "user", "content": "x"}]} if i % 3 else {"prompt": "x"}
        body = dict({} if name in ("messages", "prompt") else body, **{name: value})
        url = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        yield dict({"id": "s%d" % i}, **body) if i % 2 else {"custom_id": "c%d" % i, "method": "POST", "url": url, "body": body}


@test
def checked_as_run(cli):
    """--check prints the errors of the run, the same text at the same place, with tools, constraints, shards and stdin."""
    requires("constrain")
    tools = cli.write("tools", [json.dumps([WEATHER])])
    source = cli.write("in", list(wrong_values()) + [line for line, _ in broken_lines()])

    def errors(text):
        lines = [json.loads(line) for line in text.splitlines()]
        place = [re.sub(r"\d+ MiB are", "MiB are", json.dumps(a)) for a in lines if a.get("error")]
        check(len(set(place)) == len(place), "an error twice")
        return sorted(place)

    for args in some([["--template", "llama3.1"], ["--template", "llama3.1", "--tools", tools, "--strict"], ["--shard", "2/3"],
                      ["--template", "chatml", "--regex", "[a-z]+"], ["--raw", "--json-schema", "true"], ["-c", "64", "--shard", "1/3:lines"]], 2):
        ask = ["batch", "-q", "-s", 1, "-n", 2, *args]
        found = errors(cli.run(*ask, "--check", "-i", source, code=5)[0])
        same(found, errors(cli.run(*ask, "-i", source, code=5)[0]), args)
        check(len(found) > (60 if "--shard" in args else 200), args, len(found))
        with open(source, "rb") as f:
            same(errors(cli.run(*ask, "--check", stdin=f.read(), code=5)[0]), found, args)

    # A KV cache that no machine holds. Where the memory is not known, it is no error.
    huge = json.dumps({"prompt": "x", "max_tokens": 260000000}).encode()
    ask = ["batch", "-q", "--raw", "-c", 1 << 28, "--kv", "f32"]
    found = errors(cli.run(*ask, "--check", stdin=huge, code=(0, 5))[0])
    if found:
        same(errors(cli.run(*ask, stdin=huge, code=5)[0]), found)


@test
def line_numbers_as_ids(cli):
    """A request without id has the number of its line, which no other request may have; only ids take memory."""
    ids = [None, None, 2, "2", 7, None, None, 8, 3, 3, None, 6, 1, 0]  # None: without id
    lines = [dict({"prompt": "x", "max_tokens": 0}, **({} if i is None else {"id": i})) for i in ids]
    errors = {a["line"]: a["error"]["message"] for a in batch(lines, code=5) if "error" in a}
    used = {3: 2, 7: 7, 10: 3, 12: 6, 13: 1}  # line: id that an earlier line has used
    same(errors, {line: "line %d: id %d was used by an earlier line" % (line, i) for line, i in used.items()})

    if not os.path.exists("/proc/self/status") or "asan" in os.environ.get("BUILD", ""):
        return  # AddressSanitizer keeps freed memory
    p = subprocess.Popen(cli.command("batch", "-q", "--raw"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    sizes = []
    for _ in range(in_ci(20, 6)):
        p.stdin.write(b'{"prompt": "x", "max_tokens": 0}\n' * 3000)
        p.stdin.flush()
        for _ in range(3000):
            p.stdout.readline()
        with open("/proc/%d/status" % p.pid) as f:
            sizes.append(int(re.search(r"VmData:\s+(\d+)", f.read())[1]))
    p.stdin.close()
    same(p.wait(), 0)
    check(sizes[-1] - sizes[1] < 0.1 * 3000 * (len(sizes) - 2), sizes, "KiB")


@test
def exact_integers(cli):
    """Ids and seeds are exact beyond 2^53, also through --resume; other numbers are exact or refused by name."""
    # Ids.
    big = [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**63, 2**64 - 1, -2**63, -2**53 - 1, 10**30, 10**30 + 1, 0, 5]
    lines = ['{"id":%d,"prompt":"a","max_tokens":1}' % i for i in big]
    source, out = cli.write("in", lines), cli.path_of("out")
    cli.run("batch", "-q", "--ordered", "-i", source, "-o", out)
    same([r["id"] for r in read_lines(out)], big)
    check("%d skipped" % len(big) in cli.run("batch", "-i", source, "-o", out, "--resume")[1])
    same(len(read_lines(out)), len(big))

    # Seeds. An answer reports its seed, with which run gives the same text.
    seeds = 2**53 - 1, 2**53 + 1, 2**62 + 1, 2**63 - 1, -2**63, -2
    lines = ['{"prompt":"a","temperature":1.5,"max_tokens":5,"seed":%d}' % seed for seed in seeds]
    records, texts = [], []
    for line in cli.run("batch", "-q", "--ordered", "--raw", "--deterministic", "-i", cli.write("in", lines))[0].splitlines():
        records.append(json.loads(line))
    same([r["seed"] for r in records], list(seeds))
    for seed in seeds:
        run = cli.run("run", "-q", "--raw", "--json", "--deterministic", "--temp", 1.5, "-n", 5, "--seed", seed, "a")[0]
        texts.append(json.loads(run)["text"])
    same([r["text"] for r in records], texts)

    # Numbers in other forms.
    lines = ['{"id":%s,"prompt":"a","max_tokens":1%s}' % (k, v) for k, v in (
        ("5.0", ""), ("5e0", ""), ("-0", ""), ("9007199254740991.4", ""), ("5.00000000000000000001", ""), ("1e400", ""),
        ("11", ',"seed":9223372036854775808'), ("12", ',"seed":9007199254740991.4'), ("13", ',"seed":1e300'),
        ("14", ',"logit_bias":{"00000000000000000000000512345":1}'), ("15", ',"n":1.00000000000000000001'),
        ("16", ',"top_k":99999999999999999999'), ("17", ',"logit_bias":{"5\\u0000":1}'), ("18", ',"seed":1e3'))]

    out = cli.run("batch", "-q", "--ordered", "-i", cli.write("in", lines), code=5)[0].splitlines()
    errors = [json.loads(line).get("error", {}).get("message", "") for line in out]

    # The expected messages. "": accepted, or too large for a double.
    for error, words in zip(errors, ("", "id 5 was used", "", "id: expected", "id: expected", "", "seed: expected", "seed: exp",
                                     "seed: exp", "logit_bias: expected token ids", "n: expected", "top_k: expected",
                                     "logit_bias: expected token ids", "")):
        check(words in error and bool(words or "double" in error) == bool(error), words, "found", error)


@test
def resume_checks_first(cli):
    """An output of another model, seed or options is refused before a byte of it changes; nothing else is refused."""
    source, out = cli.write("in", requests(6)), cli.path_of("out")
    kernels = json.loads(cli.run("show", "--json", "--bandwidth", 1)[0])["kernels"]
    model = shutil.copy(cli.model or os.path.join(ROOT, "stories", "stories.gguf"), cli.path_of("model.gguf"))

    def resume(*args, **how):
        return cli.run("batch", "-q", "-i", source, "-o", out, "--resume", "-m", model, *args, **how)

    cli.run("batch", "-q", "-i", source, "-o", out, "--seed", -5, "-m", model)
    with open(out, "rb") as f:
        lines = f.read().splitlines(True)
    retry = b'{"id":77,"line":7,"error":{"code":"out_of_memory","message":"x"}}\n'
    broken = b"".join(lines[:3]) + retry + lines[4][:-9]

    with open(out, "r+b") as f:
        f.truncate(0)
        f.write(broken)

    def refused(*args, says, code=2, **how):
        _, err = resume(*args, code=code, **how)
        check(matches(err, says), args, err)
        with open(out, "rb") as f:
            same(f.read(), broken, args)

    refused("--temp", 0.123, "-c", 77, says="options: --ctx-size 0, now 77; --temp 0.8, now 0.123; --force resumes anyway")
    refused("--seed", 6, says="options: --seed 18446744073709551611, now 6; --force")
    if kernels != "scalar":
        refused(says='arithmetic "%s", now "scalar"; --force' % kernels, env=dict(os.environ, LLAMA31_ISA="scalar"))
    refused("-m", cli.path_of("none.gguf"), says="none.gguf", code=1)

    # A changed byte of the model.
    for back in 100, 1000, os.path.getsize(model) // 3:
        change_byte(model, back)
        refused(says=r"options: --model file ... , now file ... ; --force")
        change_byte(model, back)

    model = shutil.copy(model, cli.path_of("copy.gguf"))  # on another machine
    resume()  # takes over the seed

    with open(out, "rb") as f:
        text = f.read()
    check(text.startswith(b"".join(lines[:3])) and retry not in text, text)
    same(sorted(text.splitlines(True)), sorted(lines), "the same answers as without an interruption")

    identity = json.loads(text.splitlines()[0])["run"]
    same((identity["version"], identity["command"], identity["arithmetic"]), (3, "batch", kernels))
    same((sorted(identity["options"]), identity["options"]["--seed"]), (["--model", "--seed"], 2**64 - 5))
    resume("--temp", 0.123, "--force")

    # An identity of another version is refused by the number.
    for other, version in (dict(identity, version=9), 9), ("fp_1_2_3", 1):
        lines = list(map(json.loads, text.splitlines()))
        lines[0]["run"] = other
        cli.write("out", lines)
        err = resume(code=2)[1]
        check("version %d, this program writes version 3" % version in err, err)
        check("has another version than 3" in merge(cli, source, [out], code=1)[1])
        resume("--force")

    # Results of earlier versions have neither hash nor identity.
    old = [{k: v for k, v in json.loads(line).items() if k not in ("request", "run")} for line in text.splitlines()]
    cli.write("out", old)
    check("not compared with requests, model and options" in resume("--temp", 0.123)[1])


@test
def resume_checks_constraint(cli):
    """A constraint with its file's text and the template's variables are options: --resume with others is refused."""
    requires("constrain")
    source, out, schema = cli.write("in", requests(2)), cli.path_of("out"), cli.path_of("schema.json")
    cli.write("schema.json", [{"enum": [1, 2]}])
    cli.run("batch", "-q", "-i", source, "-o", out, "--json-schema", schema)

    others = [(["--json-schema", '{"enum": [1, 3]}'], "--json-schema"), ([], "--json-schema"),
              (["--json-schema", schema, "--extra-properties"], "--extra-properties false, now true;"),
              (["--json-schema", schema, "--any-order"], "--any-order false, now true;"),
              (["--json-schema", schema, "--chat-template-kwargs", '{"date_string": "today"}'], "--chat-template-kwargs not set,")]
    for args, says in others:
        err = cli.run("batch", "-i", source, "-o", out, "--resume", *args, code=2)[1]
        check(says in err, args, err)
    cli.run("batch", "-i", source, "-o", out, "--resume", "--json-schema", schema)
    cli.write("schema.json", [{"enum": [1, 4]}])
    check("--json-schema" in cli.run("batch", "-i", source, "-o", out, "--resume", "--json-schema", schema, code=2)[1])


def option_rows():
    """(names, effect, kind, arguments of the kind) of the rows of option_table in which batch appears, from the source."""
    with open(os.path.join(ROOT, "cli", "options.c")) as f:
        table = f.read().split("option_table[] = {")[1].split("// clang-format on")[0]
    names = set(re.findall(r"(?<!\S)--?\w[\w-]*(?=[ ,\n])", call("help", "batch", "--all")[0].decode()))
    pattern = r'\{\{("[^}]*)\},(.*?)\b([A-Z]+)\((ANSWER|NEUTRAL), ([^)]*)\)'
    for match in re.finditer(pattern, table, re.S):
        own = [name.strip(' "') for name in match[1].split(",")]
        commands = set(re.findall(r"\w+", match[2]))
        if commands & {"CMD_BATCH", "GENERATE", "PROMPTED", "COMPUTE", "SAMPLE", "REQUESTS", "CONSTRAIN", "WITH_MODEL", "CMD_ALL"}:
            check(names.issuperset(own), own, "not in the help of batch")
            yield own, match[4], match[3], [a.strip(' "\n') for a in match[5].split(",")]


@test
def resume_checks_each_option(cli):
    """--resume refuses another value of each option that can change an answer, by its name, and of no other option."""
    requires("constrain", "speculate", "cache", "lora")
    source, out = cli.write("in", requests(2)), cli.path_of("out")
    model = cli.model or os.path.join(ROOT, "stories", "stories.gguf")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    files = {"--tools": cli.write("tools.json", [[tool]]), "--input": shutil.copy(source, cli.path_of("copy")),
             "--draft": model, "--output": out, "--model": shutil.copy(model, cli.path_of("model.gguf"))}
    change_byte(files["--model"], 100)
    texts = {"TEXT": "x", "TOKEN+X": "5+1", "LIST": "5", "JSON": '{"a": 1}', "S": '{"enum": [1]}', "RE": "[a-z]*", "A,B,...": "a,b",
             "NAME": "chatml", "NAME;...": "top_k;temperature", "SIZE": "1G", "DIR": cli.path_of("cache"), "K/N": "1/1"}
    base = ["-q", "-i", source, "-o", out, "--template", "llama3.1"]

    def value_of(name, kind, arguments):
        if kind in ("INT", "FLOAT", "DOUBLE"):
            return ["0.5"] if arguments[2] == "1" else ["%d" % max(float(arguments[1]) + 2, 3)]  # no default
        if kind == "MODEL" or arguments[-1] == "FILE" or kind in ("INPUT", "OUTPUT") and arguments[-1] != "NAME":
            return [files.get(name, 'root ::= "a"')]
        return [texts.get(arguments[-1], arguments[-1].split("|")[0])]

    cli.run("batch", *base)
    n = {"ANSWER": 0, "NEUTRAL": 0}
    for names, effect, kind, arguments in option_rows():
        name = ([x for x in names if x.startswith("--")] + names)[0]
        if name in ("--help", "--version", "--lora"):  # --lora: tests/test_reuse.py
            continue
        value = []
        if kind == "VALUE" and arguments[0] in ("OPTION_SEED", "OPTION_BUDGET"):
            value = ["7"]
        elif kind not in ("FLAG", "GROUP"):
            value = value_of(name, kind, arguments)
        err = cli.run("batch", *base, "--resume", name, *value, code=(0, 2))[1]
        same(re.search("started with other options: .*%s " % name, err) is not None, effect == "ANSWER", (name, value, err))
        n[effect] += 1
    check(n["ANSWER"] > 40 and n["NEUTRAL"] > 20, n)


@test
def resume_compares_contents(cli):
    """Files count by their content, repeated options as a list, and every difference is named."""
    source, out = cli.write("in", requests(2)), cli.path_of("out")
    template = cli.write("t.jinja", ["{% for m in messages %}[{{ m.content }}]{% endfor %}"])
    system = cli.write("system", ["Be brief."])
    args = ["--template", template, "-sys", "@" + system, "--stop", "a", "--stop", "b"]

    def refused(*args):
        return cli.run("batch", "-q", "-i", source, "-o", out, "--resume", *args, code=2)[1]

    cli.run("batch", "-q", "-i", source, "-o", out, *args)
    cli.run("batch", "-q", "-i", source, "-o", out, "--resume", *args)
    check('options: --reverse-prompt ["a","b"], now ["a|b"]; --force' in refused(*args[:4], "--stop", "a|b"))
    cli.write("t.jinja", ["{% for m in messages %}<<{{ m.content }}>>{% endfor %}"])
    check(matches(refused(*args), "options: --template text ... , now text ... ; --force"))
    cli.write("system", ["Be kind."])
    check(matches(refused(*args), "options: --system-prompt text ... , now text ... ; --template text ... , now text ... ; --force"))
    check(matches(refused("--template", "llama3", "-sys", "x"), '--system-prompt text ... , now "x"; --template text ... , now "llama3"'))


@test
def resume_names_values(cli):
    """A refusal has the values as they are typed; a default that is given does not differ from one that is not."""
    source, out = cli.write("in", requests(2)), cli.path_of("out")
    dated = dict(os.environ, SOURCE_DATE_EPOCH="86400")
    cli.run("batch", "-q", "-i", source, "-o", out, env=dated)
    cli.run("batch", "-q", "-i", source, "-o", out, "--resume", "--kv", "f16", "--reasoning", "auto", "--samplers", "penalties;dry;temperature;top_k;min_p;top_p", env=dated)

    def refused(*args, env=dated):
        return cli.run("batch", "-q", "-i", source, "-o", out, "--resume", *args, code=2, env=env)[1]

    check('options: --reasoning "auto", now "on"; --force' in refused("--reasoning", "on"))
    check('options: --reasoning-budget not set, now "auto"; --force' in refused("--reasoning-budget", "auto"))
    check('options: --kv "f16", now "f16,f32"; --force' in refused("-ctv", "f32"))
    check("options: --lines false, now true; --force" in refused("--lines"))
    check('options: SOURCE_DATE_EPOCH "86400", now "0"; --force' in refused(env=dict(dated, SOURCE_DATE_EPOCH="0")))
    check('options: SOURCE_DATE_EPOCH "86400", now not set; --force' in refused(env={k: v for k, v in dated.items() if k != "SOURCE_DATE_EPOCH"}))


@test
def option_without_effect(tmp):
    """A row of the option table that does not say whether it can change an answer does not compile."""
    with open(os.path.join(ROOT, "cli", "options.c")) as f:
        source = f.read()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skip("no C compiler")
    changes = ("FLAG(ANSWER, settings.ignore_eos)", "FLAG(ANSWER, settings.ignore_eos)"), ("FLAG(ANSWER, ", "FLAG("), ("STRING(NEUTRAL, ", "STRING("), \
        ("INT(ANSWER, ", "INT(, ")
    for i, (old, new) in enumerate(changes):
        check(old in source, old)
        path = os.path.join(tmp, "options.c")
        with open(path, "w") as f:
            f.write(source.replace(old, new, 1))
        p = subprocess.run([compiler, "-std=gnu11", "-fsyntax-only", "-I", ROOT, path], capture_output=True)
        same(p.returncode == 0, i == 0, (new, p.stderr.decode()[-300:]))


@test
def resume_changed_requests(cli):
    """Changed requests are completed again, in one line each, also from a copy; --strict and another shard are refused."""
    records = requests(12)
    source, out = cli.write("in", records), cli.path_of("out")
    cli.run("batch", "-q", "-i", source, "-o", out, "-s", 1)
    records[3]["prompt"], records[5]["max_tokens"] = "Another", 2
    records.insert(0, records.pop())
    source, copy = cli.write("in", [json.dumps(r, indent=None, separators=(" ,", " : ")) for r in records]), cli.path_of("copy")
    with open(out, "rb") as f, open(copy, "wb") as g:
        g.write(f.read())
    for args, words in ((["--strict"], "2 results no longer matching"), (["--shard", "1/2"], 'shard not set, now "1/2:prefix"')):
        check(words in cli.run("batch", "-i", source, "-o", copy, "--resume", *args, code=2)[1])
    err = cli.run("batch", "-i", source, "-o", copy, "--resume")[1]
    check("removed 2 results" in err and "2 records" in err and "10 skipped" in err, err)
    fresh = cli.run("batch", "-q", "-i", source, "-s", 1)[0]
    same({i: (a["text"], a["request"]) for i, a in ids_once(copy, range(12)).items()},
         {a["id"]: (a["text"], a["request"]) for a in map(json.loads, fresh.splitlines())})
    same(merge(cli, source, [copy, out], code=1)[1].count("duplicate"), 10)
    found = subprocess.run([sys.executable, os.path.join(SCRIPTS, "merge_batch.py"), "--dedupe", source, copy, out],
                           capture_output=True, text=True)
    same((found.returncode, len(found.stdout.splitlines())), (0, 12), found.stderr)


@test
def lone_surrogates(cli):
    """They become U+FFFD, and one warning counts them. The second line is longer than the memory of the first."""
    lines = [b'{"prompt": "\\ud800 a", "max_tokens": 1, "echo": true}', b'{"prompt": "\\udc00 %s", "max_tokens": 1}' % (b"a " * 60)]
    out, err = cli.run("batch", "--raw", stdin=b"\n".join(lines))
    check("\ufffd a" in json.loads(out.splitlines()[0])["text"] and "2 lone surrogates of the input" in err, out, err)


@test
def lock_file(cli):
    """OUT.lock of another host is refused by name; that of a process which has not locked OUT is taken over."""
    source, out = cli.write("in", requests(2)), cli.path_of("out")
    cli.write("out.lock", ["1 elsewhere 0 0 0"])
    err = cli.run("batch", "-i", source, "-o", out, "--resume", code=1)[1]
    check("process 1 on elsewhere" in err and "remove" in err, err)
    cli.write("out.lock", ["4194303 %s 0 0 0" % os.uname()[1]])
    check("taken over" in cli.run("batch", "-i", source, "-o", out, "--resume")[1])
    check(not os.path.exists(out + ".lock"))


@test
def stale_lock(cli):
    """While a run writes OUT, a second one is refused. The lock that SIGKILL leaves is taken over with a warning."""
    source, out = cli.write("in", requests(3)), cli.path_of("out")
    p = subprocess.Popen(cli.command("batch", "-o", out, "-q"), stdin=subprocess.PIPE)
    p.stdin.write(json.dumps(requests(1)[0]).encode() + b"\n")
    p.stdin.flush()
    while not os.path.exists(out) or not os.path.getsize(out):
        check(p.poll() is None)
        time.sleep(0.002)
    with open(out + ".lock") as f:
        same(f.read().split()[:2], [str(p.pid), os.uname()[1]])
    cli.refuses(1, "another run", "batch", "-i", source, "-o", out, "--resume")
    check(os.path.exists(out + ".lock"), "the refused run removed the lock of the first")

    p.kill()
    p.wait()
    p.stdin.close()
    check(os.path.exists(out + ".lock"))
    err = cli.run("batch", "-i", source, "-o", out, "--resume", "-q")[1]
    check(matches(err, "warning: ... out.lock: left by process %d on ... taken over\n" % p.pid), err)
    ids_once(out, range(3))
    check(not os.path.exists(out + ".lock"))


@test
def cut_characters(cli):
    """Answers that end within a character are counted at the end, also with -q."""
    requires("constrain")
    euro = [{"prompt": "a", "regex": "\u20ac+", "max_tokens": n} for n in (1, 2, 3)]
    out, err = call("batch", "--raw", "-q", "--ordered", stdin="\n".join(map(json.dumps, euro)).encode(), code=6)
    answers = [json.loads(line) for line in out.splitlines()]
    same([a["text"] for a in answers], ["", "", "\u20ac"])
    same(["cut within a character" in a.get("note", "") for a in answers], [True, True, False])
    check("warning: 2 answers cut within a character" in err, err)


@test
@slow
def kill_loop(cli):
    """1000 records or more with shuffled prefixes, 30 kills or LLAMA31_KILLS: in the end every id is there once, with the same text."""
    n_kills = int(os.environ.get("LLAMA31_KILLS", 30))
    texts = contexts(max(200, 4 * n_kills), 5, 30)["shuffled"]
    records = [{"id": i, "prompt": text, "max_tokens": 8, "temperature": 1} for i, text in enumerate(texts)]
    source, out = cli.write("in", records), cli.path_of("out")
    options = ["-i", source, "--raw", "--parallel", 4, "--deterministic", "-s", 1]
    command = cli.command("batch", *options, "-q", "-o", out, "--resume")

    # The time of an uninterrupted run.
    start = time.monotonic()
    cli.run("batch", *options, "-q", "-o", cli.path_of("all"))
    whole = time.monotonic() - start

    rng = random.Random(1)
    kills = 0
    while kills < n_kills:
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        size = os.path.getsize(out) if os.path.exists(out) else 0

        # wait for the first new answers, so that every round makes progress, and then for a random time
        while p.poll() is None and os.path.exists(out) and os.path.getsize(out) <= size and time.monotonic() < begun + 1:
            time.sleep(0.001)

        time.sleep(rng.uniform(0, whole / (2 * n_kills)))
        if p.poll() is not None:
            break

        p.send_signal(signal.SIGKILL)
        p.wait()
        kills += 1
        if kills % 10 == 0:  # an incomplete line, as a kill inside write() may leave
            with open(out, "ab") as f:
                f.write(b'{"id":99')

    check(kills >= n_kills, "only", kills, "kills")
    cli.run("batch", *options, "-q", "-o", out, "--resume")

    answers, expected = (ids_once(path, range(len(records))) for path in (out, cli.path_of("all")))
    for i, a in answers.items():
        same({k: v for k, v in a.items() if k != "run"}, {k: v for k, v in expected[i].items() if k != "run"})


@test
def disk_full(cli):
    """On a full disk the written lines are whole and the exit code is 1; a later run completes the file."""
    source, out = cli.write("in", requests(100)), cli.path_of("out")

    cli.refuses(1, "/dev/full: No space left", "batch", "-i", source, "-o", "/dev/full")
    with open("/dev/full", "wb") as full:
        p = subprocess.run(cli.command("batch", "-i", source), stdout=full, stderr=subprocess.PIPE)

    same(p.returncode, 1)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    with open(cli.path_of("stdout"), "wb") as f:
        p = subprocess.run(cli.command("batch", "-i", source), stdout=f, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    check("File too large; -o FILE --resume completes it" in p.stderr, p.stderr)

    cli.refuses(1, "File too large; --resume completes it", "batch", "-i", source, "-o", out, preexec_fn=limit)
    check(3000 < os.path.getsize(out) <= 4000)

    for path in out, f.name:
        n = len(read_lines(path))
        _, err = cli.run("batch", "-i", source, "-o", path, "--resume")
        check("%d skipped" % n in err)
        ids_once(path, range(100))


@test
def vanished_reader(cli):
    source = cli.write("in", requests(300))
    p = subprocess.Popen(cli.command("batch", "-i", source), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    json.loads(p.stdout.readline())
    p.stdout.close()
    err = p.stderr.read()
    same((p.wait(), err), (0, b""))


@test
def interrupt(cli):
    """SIGINT: exit 130, whole lines; --resume completes the file."""
    source, out = cli.write("in", requests(200, max_tokens=40)), cli.path_of("out")

    p = subprocess.Popen(cli.command("batch", "-i", source, "-o", out), stderr=subprocess.PIPE)
    while not os.path.exists(out) or not os.path.getsize(out):
        check(p.poll() is None)
        time.sleep(0.002)

    p.send_signal(signal.SIGINT)
    p.stderr.read()
    same(p.wait(), 130)
    check(0 < len(read_lines(out)) < 200)

    cli.run("batch", "-i", source, "-o", out, "--resume")
    ids_once(out, range(200))


@test
def one_writer(cli):
    """A second run on the same output is refused while the first is running."""
    out = cli.path_of("out")
    p = subprocess.Popen(cli.command("batch", "-o", out, "-q"), stdin=subprocess.PIPE)
    p.stdin.write(json.dumps({"id": 1, "prompt": "x", "max_tokens": 1}).encode() + b"\n")
    p.stdin.flush()

    while not os.path.exists(out) or not os.path.getsize(out):
        time.sleep(0.002)
    cli.refuses(1, "another run", "batch", "-o", out, "--resume")

    p.stdin.close()
    same(p.wait(), 0)


@test
def streaming(cli):
    """Through pipes, an answer is written before the next request arrives; --ordered keeps the order."""
    p = subprocess.Popen(cli.command("batch", "-q"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    for i in range(5):
        p.stdin.write(json.dumps({"id": i, "prompt": "The cat", "max_tokens": 2}).encode() + b"\n")
        p.stdin.flush()
        same(json.loads(p.stdout.readline())["id"], i)

    p.stdin.close()
    same(p.wait(), 0)

    records = [dict(r, max_tokens=1 + (40 if i % 7 == 0 else i % 3)) for i, r in enumerate(requests(60))]
    out, _ = cli.run("batch", "--ordered", "-i", cli.write("in", records))
    same([json.loads(line)["id"] for line in out.splitlines()], list(range(60)))


@test
def shared_prefix(cli):
    """The long common prefix of 64 prompts is prefilled once; two alternating prefixes are prefilled once each."""
    for parallel in 1, 16:
        for heads in 1, 2:
            texts = ["%s%s. %s" % (SHARED, "ab"[:heads][i % heads] * 150, "cat dog sun"[:i % 10 + 1]) for i in range(64)]

            _, err = cli.run("batch", "--parallel", parallel, "-n", 2, "-i", cli.write("in", [{"prompt": t} for t in texts]))
            words = err[err.index("prompts "):].replace(",", "").split()
            total, shared = int(words[1]), int(words[3])

            head = total // 64 - 12
            check(shared >= (64 - heads) * head, parallel, heads, "prompts", total, "shared", shared)


@test
def prefix_in_any_order(cli):
    """The prefixes of two levels (system prompt, document) are prefilled once in any order, with the same texts."""
    words = SHARED.split()
    heads = [" ".join(words[:30] + ["number", str(i)] + words[i % 7:] * 2) for i in range(12)]
    grouped = [{"id": "%d %d" % (i, q), "prompt": "%s. %s cat" % (head, "abcdefgh"[q] * 3), "max_tokens": 3}
               for i, head in enumerate(heads) for q in range(6)]
    shuffled = random.Random(4).sample(grouped, len(grouped))
    by_question = sorted(grouped, key=lambda r: r["id"].split()[1])
    sharable, texts = set(), {}

    for order in grouped, shuffled, by_question, grouped[::-1]:
        for parallel in 1, 4, 16:
            out, err = cli.run("batch", "--parallel", parallel, "--deterministic", "-s", 1, "-i", cli.write("in", order))
            total, shared, most = map(int, re.search(r"prompts (\d+) tok, (\d+) of them shared \((\d+) sharable\)", err).groups())
            check(total - shared <= 1.02 * (total - most), parallel, err)
            sharable.add(most)
            for answer in map(json.loads, out.splitlines()):
                same(answer["text"], texts.setdefault(answer["id"], answer["text"]), answer["id"])

    same((len(sharable), len(texts)), (1, 72), sharable)


@test
@slow
def no_starvation(cli):
    """A record that shares nothing is answered while records with a computed prefix come without end."""
    most = 4096  # MAX_OVERTAKEN
    p = subprocess.Popen(cli.command("batch", "-q", "--raw", "--parallel", 1), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other = {"prompt": SHARED, "max_tokens": 1}
    lonely = {"id": "lonely", "prompt": "The cat", "max_tokens": 1}

    def feed():
        lines = [json.dumps(other)] * 8 + [json.dumps(lonely)] + [json.dumps(other)] * (4 * most)
        try:
            p.stdin.write("".join(line + "\n" for line in lines).encode())
            p.stdin.flush()
        except BrokenPipeError:
            pass  # the test has ended

    feeder = threading.Thread(target=feed)
    feeder.start()
    n_before = next(n for n, line in enumerate(p.stdout) if json.loads(line)["id"] == "lonely")
    p.kill()
    p.wait()
    feeder.join()
    check(most / 2 < n_before <= most + 16, n_before, "records overtook it")


@test
def slow_constraints(cli):
    """The first answer does not wait until the constraints of all records ahead are compiled."""
    requires("constrain")
    source, out = cli.path_of("in"), cli.path_of("out")
    cli.write("in", [{"prompt": "x", "max_tokens": 2, "json_schema": {"type": "string", "not": {"pattern": "a.{12}b%d" % i}}}
                     for i in range(in_ci(40, 20))])

    start, first = time.monotonic(), None

    p = subprocess.Popen(cli.command("batch", "-q", "-i", source, "-o", out), stderr=subprocess.DEVNULL)

    while p.poll() is None:
        if first is None and os.path.exists(out) and os.path.getsize(out):
            first = time.monotonic() - start
        time.sleep(0.005)
    whole = time.monotonic() - start

    check(first is not None and first < whole / 2, "first answer after", first, "of", whole, "seconds")
    same(len(read_lines(out)), in_ci(40, 20))


@test
def progress(cli):
    _, err = cli.run("batch", "--progress-json", "-i", cli.write("in", requests(30)), "-o", cli.path_of("out"))
    last = json.loads(err.splitlines()[-2])
    same((last["done"], last["total"], last["failed"]), (30, 30, 0))
    _, err = cli.run("batch", "-q", stdin=b'{"prompt": "x", "max_tokens": 1}')
    same(err, "")


def mixed_input(cli):
    lines = requests(40, seed=1) + ["broken", {"id": 3, "prompt": "double"}, "", {"prompt": "no id", "temperature": 0}]
    random.Random(3).shuffle(lines)
    return cli.write("in", lines)


def merge(cli, source, outs, code=0):
    p = subprocess.run([sys.executable, os.path.join(SCRIPTS, "merge_batch.py"), source] + outs, capture_output=True)
    same(p.returncode, code, p.stderr.decode())
    return p.stdout, p.stderr.decode()


@test
def shards(cli):
    """Shards of a file, by K/N and by Slurm's variables, merge to the output of one run; the merger finds faults."""
    source = mixed_input(cli)
    options = ["--deterministic", "-n", 5, "--temp", 0, "-s", 1, "-i", source]
    whole, _ = cli.run("batch", "--ordered", *options, code=5)

    for slurm in False, True:
        outs = []

        for k in 1, 2, 3:
            outs.append(cli.path_of("out%d-%d" % (k, slurm)))
            environment = dict(os.environ, SLURM_ARRAY_TASK_ID=str(k), SLURM_ARRAY_TASK_COUNT="3",
                               SLURM_ARRAY_TASK_MIN="1", SLURM_ARRAY_TASK_MAX="3")
            shard = "slurm" if slurm else "%d/3" % k

            p = subprocess.run(cli.command("batch", "--shard", shard, "-o", outs[-1], *options), env=environment,
                               capture_output=True)
            check(p.returncode in (0, 5), p.stderr)

        merged, err = merge(cli, source, outs)
        n_errors = sum("error" in json.loads(line) for line in whole.splitlines())
        same((merged, err), (whole, "merge_batch: %d answers, %d errors\n" % (whole.count(b"\n") - n_errors, n_errors)))

    # A file of merged answers has the identity of the run, like an output of the program.
    merged, alone = cli.path_of("merged"), cli.path_of("alone")
    cli.run("batch", "-q", "--ordered", "-o", alone, *options, code=5)
    merge(cli, source, ["-o", merged, *outs])
    with open(merged, "rb") as f, open(alone, "rb") as g:
        same(f.read(), g.read())

    # Faults of an input of the merger.
    with open(outs[0], "rb") as f:
        lines = f.readlines()

    for name, content, word in (("missing", lines[1:], "missing"), ("duplicate", lines + lines[:1], "duplicate"),
                                ("unknown", lines + [b'{"id":"who","text":""}\n'], "unknown"),
                                ("truncated", lines[:-1] + [lines[-1][:9]], "truncated")):
        with open(outs[0], "wb") as f:
            f.writelines(content)

        out, err = merge(cli, source, outs, code=1)
        check(word in err and out == b"", name, err)


@test
def merged_runs(cli):
    """Outputs of runs with other options or another arithmetic are refused by name; seeds may differ."""
    source, merged = cli.write("in", [{"id": i, "prompt": "One"} for i in range(8)]), cli.path_of("merged")

    def part(k, *options, isa="scalar"):
        path = cli.path_of("part-%d-%s-%d" % (k, isa, len(os.listdir(cli.tmp))))
        command = cli.command("batch", "-q", "-n", 2, "--temp", 0, "-i", source, "-o", path, "--shard", "%d/2:lines" % k, *options)
        subprocess.run(command, env=dict(os.environ, LLAMA31_ISA=isa), check=True)
        return path

    def refused(first, second, *words):
        err = merge(cli, source, ["-o", merged, first, second], code=1)[1]
        check(all(word in err for word in ("outputs of different runs: ", *words)) and not os.path.exists(merged), err)

    first = part(1, "-s", 1)
    refused(first, part(2, "-s", 1, "--top-k", 3), "--top-k: not set in ", ", 3 in ")
    refused(first, part(2, "-s", 1, "--deterministic"), "--deterministic: not set in ")
    same(merge(cli, source, ["-o", merged, first, part(2, "-s", 1)])[1], "merge_batch: 8 answers, 0 errors\n")
    same(read_lines(merged)[0]["run"]["options"]["--seed"], 1)

    # Outputs of different seeds have no common identity.
    err = merge(cli, source, ["-o", merged, first, part(2, "-s", 2)])[1]
    check("no identity of a run, because the outputs differ in --seed\n" in err, err)
    check(not any("run" in a for a in read_lines(merged)))
    os.remove(merged)

    other = part(2, "-s", 1, isa="avx2")
    if read_lines(other)[0]["run"]["arithmetic"] == "avx2":
        refused(first, other, 'arithmetic: "scalar" in ', '"avx2" in ', "batch --deterministic")
        same(merge(cli, source, ["--force", "-o", merged, first, other])[1][:30], "merge_batch: 8 answers, 0 erro")


@test
def shards_keep_groups(cli):
    """In each order, prompts with a common beginning go to one shard, the shards have similar sizes, and no record is lost."""
    model = ["-m", cli.model] if cli.model else []
    for system in in_ci(("", "You are helpful. " * 4), ("",)):
        for order, texts in contexts(48, 6, 60, system).items():
            n_all, _, best = count(texts, "--check", *model)
            for n in in_ci((4, 6, 16), (4, 6)):
                parts = [count(texts, "--check", "--shard", "%d/%d" % (k, n), *model) for k in range(1, n + 1)]
                same(sum(n_records for n_records, _, _ in parts), n_all)
                check(sum(n_tokens for _, _, n_tokens in parts) <= 1.3 * best, order, n, parts, best)
                check(max(n_records for n_records, _, _ in parts) <= max(1.1 * n_all / n, n_all / n + 7), order, n, parts)

    # A common beginning of all records is divided.
    same_head = cli.write("in", [{"prompt": SHARED + str(i)} for i in range(600)] + ["x"])
    sizes = []
    for k in range(1, 5):
        err = cli.run("batch", "--check", "-i", same_head, "--shard", "%d/4" % k, code=(0, 5))[1]
        sizes.append(int(re.search(r"(\d+) records", err)[1]))
    check(sum(sizes) == 601 and max(sizes) - min(sizes) <= 30, sizes)


@test
def shards_are_stable(cli):
    """Appended lines, and edited ones that keep their beginning, change no shard; old outputs keep the old rule."""
    texts = contexts(20, 5, 60)["shuffled"]

    def members(texts, shard="2/3"):
        source = cli.write("members", [{"id": i, "prompt": t, "max_tokens": "x"} for i, t in enumerate(texts)])
        out = cli.run("batch", "--check", "-q", "-i", source, "--shard", shard, code=5)[0]
        return {json.loads(line)["id"] for line in out.splitlines()}

    before = members(texts)
    check(20 <= len(before) <= 47, before)
    same(members(texts + ["More %d" % i for i in range(50)]) & set(range(100)), before, "appended")
    edited = [t.replace("cat?", "dog and cat?") if i % 7 == 0 else t for i, t in enumerate(texts)]
    same(members(edited), before, "edited")
    moved = len(members([t if i != 30 else "Another beginning. " + t for i, t in enumerate(texts)]) ^ before)
    check(moved <= 50, moved)
    same(members(texts, "2/3:lines"), set(range(1, 100, 3)))
    same(members(texts, "2/3:prefix"), before)

    # An output without a rule was begun by lines.
    source, out = cli.write("in", [{"id": i, "prompt": t, "max_tokens": 1} for i, t in enumerate(texts)]), cli.path_of("out")
    for shard, stored, expected in ("2/3:lines", "2/3", set(range(1, 100, 3))), ("2/3", "2/3:prefix", before):
        cli.run("batch", "-q", "-i", source, "-o", out, "--shard", shard)
        lines = read_lines(out)
        same((lines[0]["run"]["shard"], {a["id"] for a in lines}), (stored, expected))
        cli.write("out", lines[:5])
        err = cli.run("batch", "-i", source, "-o", out, "--resume", "--shard", "2/3")[1]
        check("5 skipped" in err, err)
        same({a["id"] for a in read_lines(out)}, expected)
        other = "2/3:prefix" if stored == "2/3" else "2/3:lines"
        err = cli.run("batch", "-i", source, "-o", out, "--resume", "--shard", other, code=2)[1]
        check('shard "%s", now "%s"' % (stored, other.replace(":lines", "")) in err, err)
        os.remove(out)

    # The merger computes the same shards, also of other forms and of invalid lines.
    odd = [{"messages": [{"role": "user", "content": t + "\u00e9\ud800\u4f60"}], "tools": [{"a": 1.50, "b": [None, "\\/"]}] * (i % 3)}
           for i, t in enumerate(texts)]
    odd += [openai_request(i, "chat", messages=m["messages"]) for i, m in enumerate(odd)] + ["[" * 100, "no JSON", '"text"', "[1, 2]",
            '{"a": 1, "a": 2}', '{"body": 3, "prompt": "x"}', '{"prompt": NaN}', b"\xff" * 200, " " * 300 + '{ "prompt" : "x y" }']
    odd += [json.dumps({"prompt": t}, ensure_ascii=i % 2 == 0, indent=i % 2 or None).replace("\n", " ") for i, t in enumerate(texts)]
    odd = cli.write("odd", random.Random(5).sample(odd, len(odd)))
    place = {}
    for k in range(1, 71):
        out = cli.run("batch", "--check", "-q", "-c", 1, "-i", odd, "--shard", "%d/70" % k, code=(0, 5))[0]
        place.update((json.loads(line).get("line", int(json.loads(line)["id"][10:] if "custom_id" in json.loads(line) else 0)), k)
                     for line in out.splitlines())
    sys.path.insert(0, SCRIPTS)
    import merge_batch
    parts = merge_batch.Shards(70, "prefix")
    found = {line: parts.shard_of(line, text, False)
             for line, text in merge_batch.requests(argparse.Namespace(input=odd, lines=False))}
    same({k: (v, place.get(k)) for k, v in found.items() if v != place.get(k)}, {})

    # It names what to repeat, and outputs of different rules.
    outs = [cli.path_of("part%d" % k) for k in range(3)]
    for k, path in enumerate(outs):
        cli.run("batch", "-q", "-i", source, "-o", path, "--shard", "%d/3" % (k + 1))
    merge(cli, source, outs)
    err = merge(cli, source, outs[1:], code=1)[1]
    n_missing = len(read_lines(outs[0]))
    check("shard 1/3 (no output): %d missing; repeat it with --shard 1/3 --resume" % n_missing in err and "2/3" not in err, err)
    os.remove(outs[0])
    cli.run("batch", "-q", "-i", source, "-o", outs[0], "--shard", "1/3:lines")
    check("different numbers or rules of shards: " in merge(cli, source, outs, code=1)[1])


@test
def merge_hostile(cli):
    """Ids that are not finite, deep nesting, answers of another form, and files that cannot be opened."""
    source = cli.write("hostile", ['{"id":1e999,"prompt":"a"}', '{"id":NaN,"prompt":"a"}', "[" * 100000, {"prompt": "a"}])
    out = cli.path_of("hostile.out")
    whole, _ = cli.run("batch", "-q", "-n", 2, "-s", 1, "-i", source, code=5)
    with open(out, "wb") as f:
        f.write(whole)
    merged, err = merge(cli, source, [out])
    same((sorted(merged.splitlines()), err), (sorted(whole.splitlines()), "merge_batch: 1 answers, 3 errors\n"))

    for answer in '{"custom_id":null,"id":5}', "[" * 100000:
        _, err = merge(cli, source, [out, cli.write("other", [answer])], code=1)
        check("other: line 1: not an answer" in err, err)
    for paths in (source, ["/none"]), ("/none", [out]):
        same(merge(cli, *paths, code=1)[1], "merge_batch: /none: No such file or directory\n")


@test
def merge_that_does_not_end(cli):
    """After Ctrl-C or a failing write, the merger leaves no file and prints no traceback."""
    source, out = cli.write("in", [{"prompt": "a"}]), cli.path_of("out")
    merged, fifo = cli.path_of("merged"), cli.path_of("fifo")
    command = [sys.executable, os.path.join(SCRIPTS, "merge_batch.py"), "-o", merged, source]
    cli.run("batch", "-q", "-n", 2, "-i", source, "-o", out)

    os.mkfifo(fifo)
    p = subprocess.Popen([*command, fifo], stderr=subprocess.PIPE)
    writer = os.open(fifo, os.O_WRONLY)  # returns when the merger has opened it
    p.send_signal(signal.SIGINT)
    same((p.wait(), p.stderr.read()), (130, b""))
    os.close(writer)

    if os.path.exists("/dev/full"):
        os.symlink("/dev/full", merged + ".tmp")
        p = subprocess.run([*command, out], capture_output=True)
        same((p.returncode, p.stderr), (1, b"merge_batch: output: No space left on device\n"))
    check(not os.path.lexists(merged + ".tmp") and not os.path.exists(merged))


@test
def gnu_parallel(cli):
    """Two shards under GNU parallel."""
    if not shutil.which("parallel"):
        raise Skip("no GNU parallel")

    source = mixed_input(cli)
    options = ["--deterministic", "-n", "5", "--temp", "0", "-s", "1", "-i", source]
    whole, _ = cli.run("batch", "--ordered", *options, code=5)

    line = " ".join(cli.command("batch", "--shard", "{}/2", "-o", cli.path_of("part.{}"), *options))
    subprocess.run(["parallel", "--will-cite", "-j2", line, ":::", "1", "2"], capture_output=True,
                   env=dict(os.environ, HOME=cli.tmp), timeout=60)
    same(merge(cli, source, [cli.path_of("part.1"), cli.path_of("part.2")])[0], whole)


def check_openai(row, body, plain):
    """Checks that an answer shows what its request asked for. plain: the text of a request without options."""
    shows, choices = row["shows"], body["choices"]
    messages = [c.get("message", {"content": c.get("text")}) for c in choices]
    calls = [c for m in messages for c in m.get("tool_calls", [])]
    if "same" in shows:
        same(messages[0]["content"] == plain and not calls, shows["same"], row)
    if "tokens" in shows:
        same(body["usage"]["completion_tokens"], shows["tokens"], row)
    check(shows.get("without", "no such text") not in (messages[0]["content"] or ""), row, body)
    same(len(choices), shows.get("choices", 1), row)
    if "logprobs" in shows:
        check(all(len(t["top_logprobs"]) == shows["logprobs"] for t in choices[0]["logprobs"]["content"]), row, body)
    if "format" in shows or ("calls or format" in shows and not calls):
        check(is_valid(shows.get("format") or shows["calls or format"], json.loads(messages[0]["content"])), row, body)
    if "calls" in shows or ("calls or format" in shows and calls):
        tools = {t["function"]["name"]: t["function"].get("parameters", {"maxProperties": 0}) for t in row["body"]["tools"]}
        check(calls and choices[0]["finish_reason"] == "tool_calls" and (len(calls) == 1 or "one" not in shows), row, body)
        check(all(c["function"]["name"] in shows.get("calls", tools) for c in calls), row, body)
        check(all(is_valid(tools[c["function"]["name"]], json.loads(c["function"]["arguments"])) for c in calls), row, body)


@test
def openai_lines(cli):
    """Batch lines of openai-node are honored, refused by the name of the field, or without an effect, which a warning says."""
    requires("constrain")
    cli.model = None
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openai_lines.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    same(len(rows) >= 60, True)
    lines = []
    for i, row in enumerate(rows):
        body = dict({"seed": 7, "max_tokens": 60}, **row["body"])
        if "max_completion_tokens" in body:
            del body["max_tokens"]
        url = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        lines.append({"custom_id": "line %d" % i, "method": "POST", "url": url, "body": body})
        if "as" in row["shows"]:
            row["expected"] = len(rows)
            rows.append({"verdict": "honored", "shows": {}, "body": dict(row["body"], messages=row["shows"]["as"])})
    text, err = cli.run("batch", "--template", "llama3.1", "--ordered", "--temp", "0.8", "--deterministic", "-i", "-",
                        stdin="\n".join(map(json.dumps, lines)).encode(), code=(5, 6))
    answers = list(map(json.loads, text.splitlines()))
    same(len(answers), len(rows))
    plain = answers[0]["response"]["body"]["choices"][0]["message"]["content"]
    for row, answer in zip(rows, answers):
        if row["verdict"] == "refused":
            check(answer["error"] and row["shows"]["says"] in answer["error"]["message"], row, answer)
            continue
        check(not answer["error"], row, answer)
        body = answer["response"]["body"]
        if row["verdict"] == "no effect":
            same(body["choices"][0]["message"]["content"], plain, row)
            check(row["shows"]["says"] in err, row, err)
        else:
            check_openai(row, body, plain)
        if "expected" in row:
            same(body["choices"], answers[row["expected"]]["response"]["body"]["choices"], row)


@test
def refused_values():
    """Values of a wrong kind or range are refused by the name of their field; values that change nothing are accepted."""
    requires("constrain")

    ask, tool = {"messages": [{"role": "user", "content": "x"}]}, {"type": "function", "function": {"name": "f"}}
    short = (({"id": 23.5}, "id: expected ... found 23.5"), ({"prompt": []}, "prompt: expected"),
             ({"prompt": 5.5}, "prompt: expected ... found 5.5"),
             ({"prompt": False}, "prompt: expected ... found false"),
             ({"stop": [5]}, "stop: expected ... found 5"),
             ({"logit_bias": {"-1": 1}}, 'logit_bias: expected ... found "-1"'),
             ({"logit_bias": {"99999999999": 1}}, 'logit_bias: expected ... found "99999999999"'),
             ({"logit_bias": {"5": 101}}, "logit_bias: expected ... found 101"),
             ({"top_p": True}, "top_p: expected ... found true"),
             ({"ignore_eos": 5}, "ignore_eos: expected ... found 5"),
             ({"top_k": 10 ** 44}, "top_k: expected a whole number"),
             ({"a_name_of_more_than_forty_characters_is_unknown": 1}, "unknown field"),
             ({"response_format": {"type": "json_schema"}}, 'response_format: expected a "schema" in its "json_schema"'),
             ({"choices": []}, "choices: expected ... found an array"),
             ({"choices": "a"}, 'choices: expected ... found "a"'),
             ({"choices": "a" * 99}, 'found "' + "a" * 60 + '"'),
             ({"json_schema": '{"type":"nope"}'}, "#/type: \"nope\" is not a type"),
             ({"regex": "a", "ignore_eos": True}, "expected either --ignore-eos or a constraint"),
             ({"tools": [tool]}, 'tools: need "messages"'), ({"best_of": 2}, 'best_of: not supported; write "n"'),
             ({"temperature": "hot"}, 'temperature: expected a number, found "hot"'),
             ({"ignore_eos": "yes"}, 'ignore_eos: expected true or false, found "yes"'),
             ({"reasoning_budget": "much"}, 'reasoning_budget: expected a number or "auto", found "much"'))

    # Requests of the Batch API.
    chat = ((dict(messages=[]), "messages: expected at least one"),
            (dict(messages="x"), 'messages: expected ... found "x"'),
            (dict(ask, logprobs=2), "logprobs: expected ... found 2"),
            (dict(ask, logprobs=True, top_logprobs=True), "top_logprobs: expected ... found true"),
            (dict(ask, logprobs=False, top_logprobs=1), 'top_logprobs: needs "logprobs": true'),
            (dict(ask, tool_choice="required"), "tool_choice: the request has no tools"))
    whole = ((dict(openai_request(99, "chat"), body=3), "body: expected ... found 3"),
             ({"custom_id": "x", "method": "POST", "url": "/v1/completions"}, "body: expected ... found nothing"),
             ({"url": "/v1/completions", "body": {}}, "custom_id: expected ... found nothing"),
             ({"body": {}}, "custom_id: expected ... found nothing"))

    bad = [(dict({"id": i, "prompt": "x"}, **fields), says) for i, (fields, says) in enumerate(short)]
    bad += [(openai_request(i, "chat", **body), says) for i, (body, says) in enumerate(chat)] + list(whole)

    answers = batch([b for b, _ in bad], "--template", "llama3", "--strict", code=5)
    same(len(answers), len(bad))
    for answer, (record, says) in zip(answers, bad):
        check(matches(answer["error"]["message"], says), record, "expected", says, "found", answer)

    # Values that have no effect, and accepted forms.
    neutral = dict(best_of=1, stream=False, echo=False, suffix=None, functions=[], function_call="none", temperature=None,
                   tools=[], stop=[], response_format={"type": "text"}, max_tokens=1)
    good = [dict(neutral, prompt="x", seed=5), {"prompt": ["x"], "max_tokens": 1, "seed": 5}, {"prompt": [5], "max_tokens": 1},
            {"prompt": "x", "max_tokens": 1, "logprobs": True, "top_logprobs": 2},
            openai_request(0, "chat", **ask, tool_choice="auto"),
            openai_request(1, "chat", messages=[{"role": "system", "content": "S"}] + ask["messages"])]

    answers = batch(good, "--template", "llama3", "--strict", "--temp", "0", "-sys", "S")
    same(answers[0]["text"], answers[1]["text"])
    same((answers[2]["n_prompt"], len(answers[3]["logprobs"][0]["top"])), (1, 2))

    bodies = [a["response"]["body"] for a in answers[4:]]
    same(bodies[0]["usage"]["prompt_tokens"], answers[0]["n_prompt"], "-sys is added to a dialogue without system message")
    same(bodies[0]["usage"]["prompt_tokens"], bodies[1]["usage"]["prompt_tokens"], "and to no other")
    same(batch([{"prompt": ""}], "--template", "none", code=(0, 5))[0].get("n_prompt"), 1, "BOS alone")


@test
def refused_shards(cli):
    """A shard outside the array, or a job array without its variables, is refused before anything is written."""
    source, out = cli.write("in", requests(2)), cli.path_of("out")

    for shard in "0/2", "3/2", "1", "1/2x", "x", "-1/2":
        cli.refuses(2, 'of a job array, found "%s"' % shard, "batch", "-i", source, "-o", out, "--shard", shard)

    array = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"}
    for change in {"SLURM_ARRAY_TASK_ID": "x"}, {"SLURM_ARRAY_TASK_ID": "3"}, {"SLURM_ARRAY_TASK_COUNT": ""}, \
            {"SLURM_ARRAY_TASK_STEP": "0"}, {"SLURM_ARRAY_TASK_MIN": "2"}:
        cli.refuses(2, 'found "slurm"', "batch", "-i", source, "-o", out, "--shard", "slurm",
                    env=dict(os.environ, **dict(array, **change)))

    check(not os.path.exists(out))
    cli.run("batch", "-q", "-n", 1, "-i", source, "-o", out, "--shard", "slurm", env=dict(os.environ, **array))
    same(len(read_lines(out)), 1)

if __name__ == "__main__":
    main("batch")
