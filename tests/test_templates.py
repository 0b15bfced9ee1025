#!/usr/bin/env python3
"""Chat templates of published models, from $LLAMA31_DATA/templates: the rendered text and its token ids.

With $LLAMA31_PEER (a directory with `npm install tiktoken@1.0.22`) the ids are compared with those of tiktoken for the text
of Jinja2; otherwise with those of `tokenize --special`."""
import json
import os
import re
import subprocess

from cli import DATA, Skip, call, check, in_ci, main, refuses, same, some, test

FOLDER = os.path.join(DATA, "templates")
VOCABULARY = os.path.join(DATA, "vocab", "ggml-vocab-llama-bpe.gguf")
LLAMAS = ["meta-llama-Llama-3.1-8B-Instruct", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
          "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"]
NOW = dict(os.environ, SOURCE_DATE_EPOCH="1721952000", TZ="UTC")

TIKTOKEN = r"""
const fs = require("fs"), { Tiktoken } = require(require("path").resolve(process.argv[1], "node_modules", "tiktoken"));
const ranks = fs.readFileSync(process.argv[2], "latin1").split("\n").filter(l => l).map(l => l.split(" ")[0]);
const split = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const t = new Tiktoken("! 0 " + ranks.join(" "), JSON.parse(process.argv[3]), split);
for (const line of fs.readFileSync(0, "utf8").split("\n").filter(l => l))
  console.log(JSON.stringify(Array.from(t.encode(JSON.parse(line), "all"))));
"""


def need(path):
    if not os.path.exists(path):
        raise Skip("no " + path)
    return path


def dialogues():
    with open(need(os.path.join(FOLDER, "dialogues.jsonl")), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def tokenize(tmp, template, dialogue, *args, code=0):
    path = os.path.join(tmp, "dialogue.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(dialogue, f, ensure_ascii=False)
    return call("tokenize", "-q", "-m", need(VOCABULARY), "--chat", path, "--template", template, *args, code=code, env=NOW)


def names(model):
    """Ids of the control tokens of Llama 3's vocabulary, by name."""
    ids = range(128000, 128256)
    text = call("tokenize", "-m", model, "--decode", "--special", *map(str, ids))[0].decode()
    found = re.findall(r"<\|.*?\|>", text)
    same(("".join(found), len(found)), (text, len(ids)), "control tokens")
    return dict(zip(found, ids))


def tiktoken_ids(texts):
    peer = os.environ.get("LLAMA31_PEER")
    if not peer:
        out = call("tokenize", "-m", VOCABULARY, "--special", "--jsonl", stdin="\n".join(map(json.dumps, texts)).encode())[0]
    else:
        out = subprocess.run(["node", "-e", TIKTOKEN, peer, need(os.path.join(DATA, "vocab", "llama3-tokenizer.model")),
                              json.dumps(names(VOCABULARY))], input="\n".join(map(json.dumps, texts)).encode(),
                             stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


@test
def text_and_ids(tmp):
    """Compares the rendered text, and its ids unless a message spells a control token."""
    need(VOCABULARY)
    n = 0

    for name in LLAMAS:
        template = os.path.join(FOLDER, name + ".jinja")
        with open(os.path.join(FOLDER, name + ".golden.jsonl"), encoding="utf-8") as f:
            golden = [json.loads(line) for line in f]

        texts, found = [], []
        for dialogue, text in some(list(zip(dialogues(), golden)), 6):
            if isinstance(text, dict):
                tokenize(tmp, template, dialogue, code=1)
                continue
            same(tokenize(tmp, template, dialogue, "--rendered")[0].decode(), text, name)

            if "<|eot_id|><|start" in json.dumps(dialogue):
                continue
            dialogue.update(bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
            texts.append(tokenize(tmp, template, dialogue, "--rendered")[0].decode())
            found.append([int(i) for i in tokenize(tmp, template, dialogue, "--ids")[0].split()])

        for text, ids, expected in zip(texts, found, tiktoken_ids(texts)):
            check(ids[0] == 128000 and ids[1] != 128000, name, "BOS once", ids[:3])
            same(ids, expected if expected[0] == 128000 else [128000] + expected, name + " " + text[:200])
            n += 1
    check(n > in_ci(30, 5), n, "dialogues")


@test
def forged_dialogue(tmp):
    """With no template do messages that spell control tokens forge one."""
    need(VOCABULARY)
    control = set(names(VOCABULARY).values())
    attacks = dialogues()[5]
    for name in some(sorted(f for f in os.listdir(FOLDER) if f.endswith(".jinja")), 8):
        counts = []
        for d in attacks, dict(attacks, messages=[dict(m, content="harmless") for m in attacks["messages"]]):
            d = dict(d, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
            try:
                ids = tokenize(tmp, os.path.join(FOLDER, name), d, "--ids")[0]
            except AssertionError:
                ids = b""
            counts.append(sum(int(i) in control for i in ids.split()))
        same(counts[0], counts[1], name)


@test
def variables(tmp):
    template = os.path.join(tmp, "t.jinja")
    with open(template, "w") as f:
        f.write("{{ x }}{{ y|tojson }}{% if z is defined %}z{% endif %}{{ bos_token }}{{ messages[0].content }}")

    lines = os.path.join(tmp, "lines.jsonl")
    with open(lines, "w") as f:
        f.write('{"messages":[{"role":"user","content":"hi"}],"bos_token":"B"}')

    args = ("tokenize", "-q", "--chat", lines, "--template", template, "--rendered")
    same(call(*args, "--chat-template-kwargs", '{"x":"a b","y":{"k":[1,2.0]}}')[0], b'a b{"k": [1, 2.0]}Bhi')

    # Invalid variables, and templates that do not exist.
    for message, value in (("byte 0: expected a JSON value", "x"), ("expected a JSON object", "[]"), ("duplicate key", '{"x":1,"x":2}')):
        refuses(2, message, *args, "--chat-template-kwargs", value)
    refuses(2, "llama3.1", "tokenize", "--chat", lines, "--template", "nosuch")
    refuses(2, "No such file", "tokenize", "--chat", lines, "--template", "/nonexistent.jinja")

    # Errors within a template.
    with open(template, "w") as f:
        f.write("a\n{{ raise_exception('only two roles') }}")
    refuses(1, "line 2: only two roles", *args)
    with open(template, "w") as f:
        f.write("{% frobnicate %}")
    refuses(2, "line 1: unknown tag 'frobnicate'", *args)


@test
def messages(tmp):
    """Templates get all members of messages; errors name the member that is invalid."""
    template, lines = os.path.join(tmp, "t.jinja"), os.path.join(tmp, "d.jsonl")
    with open(template, "w") as f:
        f.write("{% for m in messages %}{{ m|tojson }}\n{% endfor %}")

    # All members reach the template.
    full = [{"role": "user", "name": "n", "content": "q"},
            {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1.0, "b": [None, True]}}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"}]
    with open(lines, "w") as f:
        f.writelines(json.dumps(m) + "\n" for m in full)

    args = ("tokenize", "-q", "--chat", lines, "--template", template)
    out = call(*args, "--rendered")[0].decode()
    same([json.loads(line) for line in out.splitlines()], full)

    # Arguments may be a JSON string.
    full[1]["tool_calls"][0]["function"]["arguments"] = json.dumps({"a": 1.0, "b": [None, True]})
    with open(lines, "w") as f:
        f.writelines(json.dumps(m) + "\n" for m in full)
    same(call(*args, "--rendered")[0].decode(), out, "arguments as a JSON string")

    # Members that say nothing are dropped; calls have a content.
    call_of = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    empty = {"refusal": None, "audio": None, "function_call": None, "tool_calls": None}
    for given, expected in (({"content": "Yo", **empty}, {"content": "Yo"}), ({"content": "Yo", "tool_calls": []}, {"content": "Yo"}),
                            ({"tool_calls": call_of}, {"content": "", "tool_calls": call_of}),
                            ({"content": None, "tool_calls": call_of, "name": None}, {"content": "", "tool_calls": call_of})):
        given, expected = dict(given, role="assistant"), dict(expected, role="assistant")
        with open(lines, "w") as f:
            f.write(json.dumps(given) + "\n")
        same(json.loads(call(*args, "--rendered")[0]), expected, given)

    # Invalid messages.
    for bad, message in (({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "line 1: content[0]"),
                      ({"role": "king", "content": ""}, "king"), ({"role": "user"}, "content"), ({"content": "x"}, "role"),
                      ({"role": "assistant", "content": None}, "content"),
                      ({"role": "assistant", "content": "", "tool_calls": 3}, "tool_calls"),
                      ({"role": "assistant", "content": "", "function_call": {"name": "f"}}, 'write "tool_calls"')):
        with open(lines, "w") as f:
            f.write(json.dumps(bad) + "\n")
        refuses(1, message, *args)


@test
def tools(tmp):
    """Tools without a description or parameters have empty ones; members that are null are dropped."""
    template, path = os.path.join(tmp, "t.jinja"), os.path.join(tmp, "d.json")
    with open(template, "w") as f:
        f.write("{% for t in tools %}{{ t|tojson }}\n{% endfor %}")
    none = {"type": "object", "properties": {}}
    cases = (({"name": "f"}, {"name": "f", "description": "", "parameters": none}),
             ({"name": "f", "description": None, "parameters": None, "strict": None}, {"name": "f", "description": "", "parameters": none}),
             ({"name": "f", "parameters": {}, "strict": True}, {"name": "f", "description": "", "parameters": {}, "strict": True}),
             ({"name": "f", "description": "d", "parameters": {"x": None}}, {"name": "f", "description": "d", "parameters": {"x": None}}))
    with open(path, "w") as f:
        json.dump({"role": "user", "content": "x"}, f)
    cases = [[dict(function, name="f%d" % i) for function in case] for i, case in enumerate(cases)]
    with open(path + ".tools", "w") as f:
        json.dump([{"type": "function", "id": None, "function": given} for given, _ in cases], f)
    out = call("tokenize", "-q", "--chat", path, "--tools", path + ".tools", "--template", template, "--rendered")[0].decode()
    same([json.loads(line) for line in out.splitlines()], [{"type": "function", "function": expected} for _, expected in cases])


@test
def histories(tmp):
    """Published templates that render a call render it in all forms in which clients write it."""
    need(FOLDER)
    calls = [{"id": "call00001", "type": "function", "function": {"name": "probe", "arguments": "{}"}}]
    question, tool = [{"role": "user", "content": "x"}], {"type": "function", "function": {"name": "probe"}}
    plain = {"role": "assistant", "content": "Yo"}
    same_texts = [[dict(plain), dict(plain, tool_calls=None), dict(plain, tool_calls=[], function_call=None, refusal=None)],
                  [{"role": "assistant", "content": c, "tool_calls": calls} for c in (None, "")] + [{"role": "assistant", "tool_calls": calls}]]
    n_rendered, path = 0, os.path.join(tmp, "dialogue.jsonl")
    with open(path + ".tools", "w") as f:
        json.dump([tool], f)
    for name in some(sorted(f for f in os.listdir(FOLDER) if f.endswith(".jinja")), 6):
        for variants in same_texts:
            texts = []
            for message in variants:
                with open(path, "w") as f:
                    f.writelines(json.dumps(m) + "\n" for m in question + [message] + question)
                texts.append(call("tokenize", "-q", "-m", need(VOCABULARY), "--chat", path, "--tools", path + ".tools", "--rendered",
                                  "--template", os.path.join(FOLDER, name), code=(0, 1, 2), env=NOW)[0])
            same(len(set(texts)), 1, name)
            n_rendered += bool(texts[0])
    check(n_rendered > in_ci(60, 8), n_rendered)


if __name__ == "__main__":
    main("templates")
