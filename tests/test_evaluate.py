#!/usr/bin/env python3
"""scripts/evaluate.py and scripts/lm_eval_llama31.py against prompts written out here and scored one by one."""
import ast
import json
import math
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

from cli import PROGRAM, SCRIPTS, check, main, matches, same, some, test

sys.path.insert(0, SCRIPTS)
import evaluate as program  # noqa: E402
import lm_eval_llama31  # noqa: E402

MULTIPLE = {  # task: rows, then the prompt, the answers and the index of the right one for each
    "hellaswag": ([{"activity_label": "Dogs", "ctx_a": "A dog [x] sees a ball.", "ctx_b": "the dog", "label": "1",
                    "endings": ["sleeps [title] now.", "runs to the big ball.", "sings", "is a cat."]},
                   {"activity_label": "Cats", "ctx_a": "A cat is sad.", "ctx_b": "", "label": 0,
                    "endings": ["She cries.", "He went to the park with a big red ball."]}],
                  [("Dogs: A dog sees a ball. The dog", ["sleeps. now.", "runs to the big ball.", "sings", "is a cat."],
                    1),
                   ("Cats: A cat is sad.", ["She cries.", "He went to the park with a big red ball."], 0)]),
    "arc_easy": ([{"question": "What barks?", "choices": {"text": ["a cat", "dog"], "label": "12"}, "answerKey": "2"},
                  {"question": {"stem": "Who?", "choices": [{"text": "Tim", "label": "A"}, {"text": "a tree", "label": "B"}]},
                   "answerKey": "A"}],
                 [("Question: What barks?\nAnswer:", ["a cat", "dog"], 1),
                  ("Question: Who?\nAnswer:", ["Tim", "a tree"], 0)]),
    "piqa": ([{"goal": "Eat", "sol1": "a red ball", "sol2": "food", "label": 1}],
             [("Question: Eat\nAnswer:", ["a red ball", "food"], 1)]),
    "boolq": ([{"passage": "Dogs run.", "question": "do dogs run", "answer": True}],
              [("Dogs run.\nQuestion: do dogs run?\nAnswer:", ["no", "yes"], 1)]),
    "truthfulqa_mc1": ([{"question": "Is it?", "mc1_targets": {"It is.": 1, "No.": 0}}],
                       [(program.TRUTHFULQA + "\n\nQ: Is it?\nA:", ["It is.", "No."], 0)]),
}


def sums(cli, context, answers):
    out = cli.run("score", "--raw", "--json", "--choices", json.dumps([" " + a for a in answers]), "-p", context)[0]
    return [c["logprob"] for c in json.loads(out)["choices"]]


def table(cli, *args, model=True):
    """The printed table as {(task, metric): [value, standard error, n]}, and the whole output."""
    command = [sys.executable, os.path.join(SCRIPTS, "evaluate.py"), "--program", PROGRAM, *map(str, args)]
    command += ["-m", cli.model] if model and cli.model else []
    r = subprocess.run(command + ["--", "-q", "-t", "1", "-c", "512"], capture_output=True, text=True)
    same(r.returncode, 0, r.stderr[-500:])
    rows = [line.split() for line in r.stdout.splitlines()]
    is_table = rows[0][0] == "task" and "--compare" not in args
    return {(r[0], " ".join(r[2:-3])): [float(x) for x in r[-3:]] for r in rows[1:] if is_table}, r.stdout


@test
def multiple_choice(cli):
    files, expected = [], {}
    for name, (rows, cases) in MULTIPLE.items():
        samples = [program.TASKS[name][0](row) for row in rows]
        same([(s.prefix + s.contexts[0], s.answers, s.gold) for s in samples], cases)
        files.append(name + "=" + cli.write(name + ".jsonl", rows))
        logprobs = [sums(cli, context, answers) for context, answers, _ in cases]
        for metric in ["acc", "acc_norm"] if name in ("hellaswag", "arc_easy", "piqa") else ["acc"]:
            values = []
            for scores, (_, answers, gold) in zip(logprobs, cases):
                scores = [s / len(a) if metric == "acc_norm" else s for s, a in zip(scores, answers)]
                values.append(float(scores.index(max(scores)) == gold))
            expected[name, metric] = sum(values) / len(values), len(values)
    found, text = table(cli, *files)
    same({key: (value, n) for key, (value, _, n) in found.items()}, expected, text)


@test
def other_tasks(cli):
    """WinoGrande compares ends of sentences, MMLU averages over subjects, LAMBADA predicts the last word."""
    start, end = "The dog saw the cat and ", "ran to the big tree."
    sentence = {"sentence": start + "_ " + end, "option1": "the dog", "option2": "a stone", "answer": "1"}
    for folder, subject, rows in (("dev", "art", ["Q,a,b,c,d,B"]), ("test", "art", ["X,a,b,c,d,A", "Y ,a,b,c,d,D"]),
                                  ("dev", "my_law", ["R,a,b,c,d,C"]), ("test", "my_law", ["Z,a,b,c,d,B"])):
        os.makedirs(cli.path_of(folder), exist_ok=True)
        cli.write("%s/%s_%s.csv" % (folder, subject, folder), rows)
    right = {}
    for subject, shot, questions in (("art", "Q%sB", "XA YD"), ("my law", "R%sC", "ZB")):
        options = "\nA. a\nB. b\nC. c\nD. d\nAnswer:"
        right[subject] = []
        for q, gold in questions.split():
            context = "The following are multiple choice questions (with answers) about %s.\n\n" % subject
            scores = sums(cli, context + shot % (options + " ") + "\n\n" + q + options, list("ABCD"))
            right[subject].append(float("ABCD"[scores.index(max(scores))] == gold))
    last = json.loads(cli.run("score", "--jsonl", stdin=b'{"context": "Once upon a", "continuation": " time"}')[0])
    mc2 = {"choices": ["No.", "It is.", "Yes, it is."], "labels": [0, 1, 1]}
    weights = [math.exp(x) for x in sums(cli, program.TRUTHFULQA + "\n\nQ: Is it?\nA:", mc2["choices"])]
    found = table(cli, "winogrande=" + cli.write("w.jsonl", [sentence]),
                  "lambada=" + cli.write("l.jsonl", [{"text": "Once upon a time"}]),
                  "truthfulqa_mc2=" + cli.write("t.jsonl", [{"question": "Is it?", "mc2_targets": mc2}]))[0]
    dog, stone = (sums(cli, start + option, [end])[0] for option in ("the dog", "a stone"))
    same(found["winogrande", "acc"][0], float(dog > stone))
    same(found["lambada", "acc"][0], float(last["is_greedy"]))
    check(abs(found["lambada", "perplexity"][0] - math.exp(-last["logprob"])) < 1e-3, found)
    check(abs(found["truthfulqa_mc2", "mc2"][0] - sum(weights[1:]) / sum(weights)) < 1e-3, found)
    found = table(cli, "--shots", 1, "mmlu=" + cli.tmp)[0]
    values = right["art"] + right["my law"]
    check(abs(found["mmlu", "acc"][0] - sum(values) / 3) < 1e-3, found, values)
    check(abs(found["mmlu", "acc (macro)"][0] - (sum(right["art"]) / 2 + right["my law"][0]) / 2) < 1e-3, found, values)
    error = math.sqrt(sum((x - sum(values) / 3) ** 2 for x in values) / 2 / 3)
    check(abs(found["mmlu", "acc"][1] - error) < 1e-3, found)


def written(*parts):
    """Texts with their length, and numbers of 32 bits: the binary form of multiple choice."""
    return b"".join(struct.pack("<I", p) if isinstance(p, int) else struct.pack("<I", len(p.encode())) + p.encode()
                    for p in parts)


@test
def llama_cpp_files(cli):
    """The files of llama-perplexity, and its metric: the mean over tokens that are not common to all answers."""
    endings = ["runs to the big red ball.", "runs away.", "runs to the big red cat.", "sleeps"]
    start, end, names = "Lily saw the dog and ", " was very happy.", ["Lily", "a stone"]
    task = ["Dogs:"] + [4] + endings + [0, 1, 0, 1] + [1, "x", 1]  # two right answers, and one unused
    files = {"hellaswag": ("h.txt", "".join(x + "\n" for x in ["Dogs:", "2", *endings] * 2).encode()),
             "winogrande": ("w.csv", ('0,"%s, or _%s",%s,%s,1\n' % (start, end, *names)).encode()),
             "multiple_choice": ("m.bin", written(2, 12, 12, *task, *task))}
    for name, content in files.values():
        with open(cli.path_of(name), "wb") as f:
            f.write(content)
    pairs = [("Dogs:", " " + e) for e in endings] + [(start + ", or " + n, end) for n in names]
    lines = "".join(json.dumps({"context": c, "continuation": a, "logprobs": True}) + "\n" for c, a in pairs)
    tokens = [json.loads(line)["logprobs"] for line in cli.run("score", "--jsonl", stdin=lines.encode())[0].splitlines()]
    n = next(i for i, column in enumerate(zip(*tokens[:4])) if len({t["id"] for t in column}) > 1)
    means = [sum(t["logprob"] for t in x[n:]) / (len(x) - n) for x in tokens[:4]]
    means += [sum(t["logprob"] for t in x[:-1]) / (len(x) - 1) for x in tokens[4:]]
    best = means.index(max(means[:4]))
    expected = {"hellaswag": best == 2, "winogrande": means[4] > means[5], "multiple_choice": best in (1, 3)}
    found, text = table(cli, *("%s=%s" % (task, cli.path_of(name)) for task, (name, _) in files.items()))
    for task, is_right in expected.items():
        same((found[task, "llama.cpp"][0], found[task, "llama.cpp"][2]), (is_right, 2 - (task == "winogrande")), text)
    row = "sentence,option1,option2,answer\n%s_%s,%s,%s,1" % (start, end, *names)
    same(table(cli, "winogrande=" + cli.write("named.csv", [row]))[0]["winogrande", "acc"][2], 1)

    for task, (name, content) in files.items():
        with open(cli.path_of(name), "wb") as f:
            f.write(content[:len(content) // 2 - 20 * (task == "hellaswag")])
        r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "evaluate.py"), "-m", "x", task + "=" + cli.path_of(name)],
                           capture_output=True, text=True)
        check(r.returncode == 1 and matches(r.stderr, name + ": ... expected the format of llama-perplexity"), task, r.stderr)


GOOD = {"hellaswag": MULTIPLE["hellaswag"][0][0], "arc_easy": MULTIPLE["arc_easy"][0][0], "piqa": MULTIPLE["piqa"][0][0],
        "winogrande": {"sentence": "The _ ran.", "option1": "dog", "option2": "cat", "answer": "1"},
        "truthfulqa_mc2": {"question": "Q?", "mc2_targets": {"choices": ["a", "b"], "labels": [1, 0]}},
        "boolq": MULTIPLE["boolq"][0][0], "gsm8k": {"question": "Q?", "answer": "#### 1"}}
DAMAGED = [  # task, what differs from a good row (or a whole line), the end of the message
    ("hellaswag", {"label": ""}, "invalid literal"), ("hellaswag", {"label": -1}, "label -1 of 4 answers"),
    ("hellaswag", {"label": "4"}, "label 4 of 4 answers"), ("hellaswag", {"endings": None}, "not iterable"),
    ("hellaswag", {"endings": []}, "label 1 of 0 answers"), ("hellaswag", {"ctx_a": "\ud800"}, "surrogates"),
    ("hellaswag", b"{", "column 2"), ("hellaswag", b"[]", "expected an object"), ("hellaswag", b"7", "expected an object"),
    ("hellaswag", b"{}", "no 'activity_label'"), ("hellaswag", b'{"a": "\xe9"}', "not UTF-8"),
    ("hellaswag", b"[" * 100000, "recursion"),
    ("arc_easy", {"choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "A"}, "'A' is not in list"),
    ("piqa", {"label": -1}, "label -1 of 2 answers"), ("winogrande", {"answer": ""}, "invalid literal"),
    ("winogrande", {"answer": "0"}, "label -1 of 2 answers"), ("winogrande", {"sentence": "No gap."}, "has no _"),
    ("truthfulqa_mc2", {"mc2_targets": {"choices": ["a", "b"], "labels": [1]}}, "2 answers with 1 labels"),
    ("truthfulqa_mc2", {"mc2_targets": {"a": 0}}, "0 of them true"), ("boolq", {"answer": -1}, "label -1 of 2 answers"),
    ("gsm8k", {"answer": 3}, "expected str")]


def evaluate_fails(message, *args, options=()):
    """The program must end with status 1, an empty table and one line on stderr that matches."""
    command = [sys.executable, os.path.join(SCRIPTS, "evaluate.py"), "--program", PROGRAM, *map(str, args), "--", "-q", *options]
    r = subprocess.run(command, capture_output=True, text=True)
    rows = [line for line in r.stdout.splitlines() if not line.startswith("task ")]
    check(r.returncode == 1 and not rows and r.stderr.count("\n") == 1, message, r.returncode, r.stdout, r.stderr)
    check(matches(r.stderr, message), "expected", message, "found", r.stderr)


@test
def damaged_files(cli):
    """An error is one line that names file and line. A byte order mark, CRLF and blank lines are accepted."""
    for task, change, message in some(DAMAGED, 6):
        row = change if isinstance(change, bytes) else json.dumps(dict(GOOD[task], **change))
        path = cli.write("[a] %s.jsonl" % task, [GOOD[task], "", row])
        evaluate_fails("%s: line 3: ... %s" % (path, message), task + "=" + path)
    row = dict(GOOD["hellaswag"], endings=["[title]", "She cries."])  # the harness divides by zero characters
    same(table(cli, "hellaswag=" + cli.write("e.jsonl", [row]))[0]["hellaswag", "acc_norm"][0], 1.0)
    path = cli.write("good.jsonl", [b"\xef\xbb\xbf" + json.dumps(GOOD["boolq"]).encode() + b"\r\n\r"])
    same(table(cli, "boolq=" + path)[0]["boolq", "acc"][2], 1)
    for rows in ([GOOD["boolq"]] * 2, [b" [", GOOD["boolq"], b",", GOOD["boolq"], b"]"]):  # the extension does not decide the format
        same(table(cli, "boolq=" + cli.write("rows.json", rows))[0]["boolq", "acc"][2], 2)
    evaluate_fails("good.jsonl: no samples", "boolq=" + path, "--limit", 0)
    evaluate_fails("none.jsonl: No such file", "boolq=" + cli.path_of("none.jsonl"))
    evaluate_fails("good.jsonl: line 1: expected a sample of mmlu", "mmlu=" + path)
    evaluate_fails("good.jsonl: 1 of 2 examples for boolq", "boolq=" + path, "--train", "boolq=" + path, "--shots", 2)
    evaluate_fails("g.jsonl: line 1: the ... context", "gsm8k=" + cli.write("g.jsonl", [GOOD["gsm8k"]]), options=["-c", "2"])
    evaluate_fails("llama31: none.gguf: no such file", "boolq=" + path, "-m", "none.gguf")
    evaluate_fails("none: No such file", "boolq=" + path, "--program", "none")
    command = [sys.executable, os.path.join(SCRIPTS, "evaluate.py"), "--program", PROGRAM, "boolq=" + path]
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            r = subprocess.run(command + ["--", "-q"], stdout=full, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, PYTHONUNBUFFERED=""))
        same((r.returncode, r.stderr), (1, "standard output: No space left on device\n"))
    cli.write("p-labels.lst", ["1"])
    evaluate_fails("p-labels.lst: 1 labels for 2 rows", "piqa=" + cli.write("p.jsonl", [GOOD["piqa"]] * 2))
    os.makedirs(cli.path_of("[m]/test"))
    for row, message in (("q,a,b,c,A", "six columns"), ("q,a,b,c,d,", "'' is not in list"),
                         ("q,a,b,c,d,AB", "'AB' is not in list"), ('"q,a,b,c,d,A', "six columns")):
        cli.write("[m]/test/law_test.csv", ["q,a,b,c,d,A", "", row])
        evaluate_fails("law_test.csv: line 3: ... " + message, "mmlu=" + cli.path_of("[m]"))
    path = cli.write("crlf.csv", [b'"a\r\nb",c\r', b"d,e\r"])
    same(program.read_csv(path), [(path + ": line 2", ["a\r\nb", "c"]), (path + ": line 3", ["d", "e"])])
    path = cli.write("crlf.txt", [b"Dogs:\r", b"0\r", b"a\r", b"b\r", b"c\r", b"d\r"])
    same(program.read_samples("hellaswag", path)[0][0].answers, list("abcd"))
    evaluate_fails("line 1: expected a sample of Meta", "--meta", cli.write("m.jsonl", [
        {"input_final_prompts": [1], "input_correct_responses": ["a"], "output_prediction_text": ["a"]}]))


@test
def numbers(tmp):
    """Extraction of answers, and the exact test of McNemar."""
    for text, strict, flexible in (("so #### 1,234.", "1234", "1234"), ("it is $5.", "[invalid]", "5"),
                                   ("a 3 b", "[invalid]", "3"), ("none", "[invalid]", "[invalid]"),
                                   ("2 + 2 = 4 #### -4", "-4", "-4")):
        same((program.number(text, "strict_match"), program.number(text, "flexible_extract")), (strict, flexible), text)
    for text, expected, answer in (("The best answer is B.", ["A"], "B"), ("so 1,200 dogs", ["12"], "1200"),
                                   (" Paris. ", ["paris"], "paris"), ("a", ["B"], "")):
        same(program.answer_of(text, expected), answer, text)
    same(program.mcnemar([1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 1]), (4, 0, 0.125))
    same(program.mcnemar([1, 0], [0, 1])[2], 1.0)


@test
def generation_and_pairs(cli):
    """GSM8K and --meta grade generated texts; --compare finds no difference between a file and itself."""
    prompt = "Question: How many?\nAnswer:"
    text = json.loads(cli.run("batch", "--raw", "-i", "-", stdin=json.dumps(
        {"prompt": prompt, "temperature": 0, "max_tokens": 256, "stop": ["Question:"]}).encode())[0])["text"]
    gold = program.number(text, "flexible_extract")
    found = table(cli, "gsm8k=" + cli.write("g.jsonl", [{"question": "How many?", "answer": "#### " + gold}]))[0]
    same(found["gsm8k", "flexible_extract"][0], 1.0)

    out = cli.run("batch", "--raw", "-i", "-", stdin=b'{"prompt": "Once upon a", "temperature": 0, "max_tokens": 3}')[0]
    ours = json.loads(out)["text"]
    bos = "<s>" if cli.model else "<|begin_of_text|>"
    ids = program.Model(cli.model, PROGRAM, ["-q", "-c", "64"]).prompt_ids(["Once", bos + "Once"])
    same(ids[0], ids[1])
    row = {"subtask_name": "s", "input_final_prompts": [bos + "Once upon a"],
           "input_correct_responses": [ours], "output_prediction_text": [ours], "is_correct": True,
           "eval_config": {"max_gen_len": "3"}}
    other = dict(row, output_prediction_text=["no"], is_correct=False)
    wrong = dict(row, input_correct_responses=["no"], is_correct=False)
    quoted = dict(row, input_correct_responses=['"%s"' % ours])  # as in the published rows of MMLU and ARC
    unknown = dict(row, input_correct_responses=None)
    rows = [quoted, other, dict(row, input_final_prompts=[]), wrong, other, unknown]
    source = cli.write("meta.jsonl", rows)
    for args, found in ((), ["0.7500", "0.2500", "0.5000"]), (("--max-tokens", 4), ["0.0000", "0.2500", "0.0000"]):
        text = table(cli, "--meta", source, *args)[1]
        same(text.splitlines()[1].split(), ["s", "4", *found], text)
    if cli.model:
        rows = cli.write("p.jsonl", MULTIPLE["piqa"][0])
        text = table(cli, "--compare", cli.model, cli.model, "piqa=" + rows, model=False)[1]
        check("only A 0, only B 0, p 1" in text, text)


@test
def harness_class(cli):
    """The class for lm-evaluation-harness, called as the harness calls it; results are kept in a directory."""
    folder = cli.path_of("kept")
    os.mkdir(folder)
    model = lm_eval_llama31.Llama31(cli.model, PROGRAM, folder, "-q -t 1")
    pairs = [("Once upon a", " time"), ("", "Once upon"), ("The dog ", "ran")]
    for _ in range(2):
        found = model.loglikelihood([SimpleNamespace(args=p) for p in pairs])
    same(len(os.listdir(folder)), 2)
    for (context, continuation), (logprob, is_greedy) in zip(pairs, found):
        record = json.dumps({"context": context, "continuation": continuation}).encode()
        r = json.loads(cli.run("score", "--jsonl", stdin=record)[0])
        same((r["logprob"], r["is_greedy"]), (logprob, is_greedy))
    rolling = model.loglikelihood_rolling([SimpleNamespace(args=(t,)) for t in ("Once upon a time", "")])
    same(rolling[0], json.loads(cli.run("score", "--jsonl", stdin=b'{"text": "Once upon a time"}')[0])["logprob"])
    same(rolling[1], 0.0)
    settings = {"until": [" time"], "max_gen_toks": 8, "do_sample": False, "temperature": 0.0}
    same(model.generate_until([SimpleNamespace(args=("Once upon", settings))]), [" a"])

    # A long context is truncated from the left. Also other names of max_tokens, and other settings.
    model = lm_eval_llama31.Llama31(cli.model, PROGRAM, options="-q -t 1 -c 40")
    context = "Once upon a time there was a dog. " * 20
    record = json.dumps({"prompt": model.runner.ids([context])[0][-32:], "max_tokens": 8, "temperature": 0})
    expected = json.loads(cli.run("batch", "--raw", "-i", "-", stdin=record.encode())[0])["text"]
    settings = {"max_new_tokens": 8, "do_sample": True, "temperature": 9, "top_k": 1}
    same(model.generate_until([SimpleNamespace(args=(context, settings))]), [expected])

    # --apply_chat_template
    model = lm_eval_llama31.Llama31(cli.model, PROGRAM, options="-q -t 1 --template chatml")
    messages = [{"role": "user", "content": "A pet?"}, {"role": "assistant", "content": "\u00e9t\u00e9"},
                {"role": "user", "content": "Another?"}]
    context, records = model.apply_chat_template(messages), ({"continuation": "A dog"}, {"max_tokens": 3, "temperature": 0})
    score, text = (json.loads(cli.run(*command, "--template", "chatml", "-i", "-", stdin=json.dumps(
        dict(r, messages=messages)).encode())[0]) for command, r in zip((("score", "--jsonl"), ("batch",)), records))
    same(model.loglikelihood([SimpleNamespace(args=(context, "A dog"))]), [(score["logprob"], score["is_greedy"])])
    settings = {"until": ["</s>"], "max_gen_toks": 3}
    same(model.generate_until([SimpleNamespace(args=(context, settings))]), [text["text"]])


@test
def harness_packages(tmp):
    """The program starts the harness, whose package `evaluate` is not scripts/evaluate.py."""
    for name, text in (("lm_eval/__main__", "import evaluate\ndef cli_evaluate(): print(evaluate.NAME)"),
                       ("evaluate", "NAME = 'package'"), ("lm_eval/api/model", "class LM: pass"),
                       ("lm_eval/api/registry", "def register_model(name): return lambda c: c")):
        os.makedirs(os.path.dirname(os.path.join(tmp, name)), exist_ok=True)
        with open(os.path.join(tmp, name + ".py"), "w") as f:
            f.write(text)
    r = subprocess.run([sys.executable, os.path.join(SCRIPTS, "lm_eval_llama31.py")], capture_output=True, text=True,
                       env=dict(os.environ, PYTHONPATH=tmp))
    same((r.stdout, r.stderr), ("package\n", ""))


@test
def interrupted_scripts():
    """Ctrl-C ends every script with one line and exit 130, wherever it is, also in its imports."""
    for name in sorted(os.listdir(SCRIPTS)):
        if name.endswith(".py"):
            with open(os.path.join(SCRIPTS, name)) as f:
                imports = [node for node in ast.parse(f.read()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
            is_first = isinstance(imports[0], ast.Import) and imports[0].names[0].name == "lib.interrupt"
            check(is_first or name == "lm_eval_llama31.py", name)
    code = "import sys; sys.argv = ['/x/name.py']; import lib.interrupt\ntry:\n raise KeyboardInterrupt\nfinally:\n print('cleaned')"
    r = subprocess.run([sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True)
    same((r.returncode, r.stdout, r.stderr), (130, "cleaned\n", "name.py: interrupted\n"))


if __name__ == "__main__":
    main("evaluate")
