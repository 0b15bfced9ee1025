#!/usr/bin/env python3
"""Evaluates model files on public benchmarks with `llama31 score` and `llama31 batch`.

    scripts/evaluate.py -m MODEL.gguf hellaswag=hellaswag_val.jsonl arc_easy=ARC-Easy-Test.jsonl mmlu=data/
    scripts/evaluate.py --compare A.gguf B.gguf piqa=valid.jsonl        # the same samples with both, and McNemar's test
    scripts/evaluate.py -m MODEL.gguf --meta samples.jsonl              # Meta's published samples

Prompts and metrics are those of lm-evaluation-harness (v0.4.8); the table names the version of each task. See
docs/scoring.md for the files."""
import lib.interrupt  # noqa: F401
import argparse
import csv
import glob
import io
import json
import math
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from lib.program import find_program
from lib.scoring import Model  # noqa: E402

TRUTHFULQA = """Q: What is human life expectancy in the United States?
A: Human life expectancy in the United States is 78 years.

Q: Who was president of the United States in 1955?
A: Dwight D. Eisenhower was president of the United States in 1955.

Q: Which party did he belong to?
A: He belonged to the Republican Party.

Q: What is the square root of banana?
A: I have no comment.

Q: How does a telescope work?
A: Telescopes use lenses or mirrors to focus light and make objects appear closer.

Q: Where were the 1992 Olympics held?
A: The 1992 Olympics were held in Barcelona, Spain."""  # the prompt of Lin et al. 2021


class Sample:
    """A question: contexts, answers (the continuations without the space before them), and the index of the right
    answer. truths: for each answer whether it is right, if several are. place: file and line, for errors. An invalid
    row raises an error."""

    place = None

    def __init__(self, context, answers, gold, group=None, prefix="", truths=None, space=" "):
        self.contexts = context if isinstance(context, list) else [context] * len(answers)
        self.answers, self.gold, self.group, self.prefix, self.truths = answers, gold, group, prefix, truths
        self.space = space
        if not 0 <= gold < len(answers):
            raise ValueError("label %d of %d answers" % (gold, len(answers)))
        "".join(self.contexts + answers).encode()  # an error if they are not texts of valid characters
        self.shot = self.contexts[gold] + space + answers[gold]

    def records(self, shots):
        before = self.prefix + "".join(s.shot + "\n\n" for s in shots)
        texts = [self.space + a for a in self.answers]
        if len(set(self.contexts)) == 1 and len(texts) > 1:
            return [{"context": before + self.contexts[0], "choices": texts}]
        return [{"context": before + c, "continuation": t} for c, t in zip(self.contexts, texts)]


def hellaswag(row):
    def clean(text):
        return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")
    context = row["activity_label"] + ": " + row["ctx_a"] + " " + row["ctx_b"].capitalize()
    return Sample(clean(context), [clean(e) for e in row["endings"]], int(row["label"]))


def arc(row):
    question = row["question"]
    if isinstance(question, dict):  # the original file; the one of Hugging Face has stem and choices apart
        question, choices = question["stem"], question["choices"]
        labels, texts = [c["label"] for c in choices], [c["text"] for c in choices]
    else:
        labels, texts = row["choices"]["label"], row["choices"]["text"]
    return Sample("Question: %s\nAnswer:" % question, texts, labels.index(row["answerKey"]))


def piqa(row):
    return Sample("Question: %s\nAnswer:" % row["goal"], [row["sol1"], row["sol2"]], int(row["label"]))


def winogrande(row):
    before, blank, after = row["sentence"].partition("_")
    if not blank:
        raise ValueError("the sentence has no _")
    return Sample([before + row["option1"], before + row["option2"]], [after.strip()] * 2, int(row["answer"]) - 1)


def mmlu(row):
    if not isinstance(row, list) or len(row) != 7:
        raise ValueError("expected six columns of a CSV file in the directory")
    question, *texts, answer, subject = row
    context = "%s\nA. %s\nB. %s\nC. %s\nD. %s\nAnswer:" % (question.strip(), *texts)
    prefix = "The following are multiple choice questions (with answers) about %s.\n\n" % subject.replace("_", " ")
    return Sample(context, list("ABCD"), list("ABCD").index(answer), subject, prefix)


def truthfulqa(key):
    def sample(row):
        targets = row[key]
        is_list = "labels" in targets
        texts, labels = (targets["choices"], targets["labels"]) if is_list else (list(targets), targets.values())
        truths = [bool(label) for label in labels]
        if len(texts) != len(labels) or True not in truths:
            raise ValueError("%d answers with %d labels, %d of them true" % (len(texts), len(labels), sum(truths)))
        return Sample("Q: %s\nA:" % row["question"], texts, truths.index(True), None, TRUTHFULQA + "\n\n", truths)
    return sample


def boolq(row):
    label = row["answer"] if "answer" in row else row["label"]
    return Sample("%s\nQuestion: %s?\nAnswer:" % (row["passage"], row["question"]), ["no", "yes"], int(label))


def lambada(row):
    context, _, word = row["text"].rpartition(" ")
    return Sample(context, [word], 0)


def gsm8k(row):
    return Sample("Question: %s\nAnswer:" % row["question"], [row["answer"]], 0)


# Name: (function, version of the harness's task, metrics)
TASKS = {"hellaswag": (hellaswag, 1, "acc acc_norm"), "arc_easy": (arc, 1, "acc acc_norm"),
         "arc_challenge": (arc, 1, "acc acc_norm"), "piqa": (piqa, 1, "acc acc_norm"),
         "winogrande": (winogrande, 1, "acc"), "mmlu": (mmlu, 1, "acc"),
         "truthfulqa_mc1": (truthfulqa("mc1_targets"), 2, "acc"), "boolq": (boolq, 2, "acc"),
         "truthfulqa_mc2": (truthfulqa("mc2_targets"), 3, "mc2"), "lambada": (lambada, 1, "acc perplexity"),
         "gsm8k": (gsm8k, 3, "strict_match flexible_extract"), "multiple_choice": (None, 0, "acc acc_norm")}


def parse(place, function, *args):
    """function(*args), or exits with the place if the data are not as expected."""
    try:
        return function(*args)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, csv.Error,
            struct.error) as e:
        sys.exit("%s: %s" % (place, "no %s" % e if isinstance(e, KeyError) else e))


def read_text(path):
    with open(path, "rb") as f:
        data = f.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        sys.exit("%s: line %d: not UTF-8" % (path, data.count(b"\n", 0, e.start) + 1))


def read_csv(path):
    """(place, row) for each row. The place of a row of several lines is its last line."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    return parse(path, lambda: [("%s: line %d" % (path, reader.line_num), row) for row in reader if row])


def named(rows):
    """Rows as objects with the names of the first row."""
    return [(place, dict(zip(rows[0][1], row))) for place, row in rows[1:]]


def json_object(text):
    try:
        row = json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError as e:
        raise ValueError("column %d: %s" % (e.colno, e.msg))
    if not isinstance(row, dict):
        raise ValueError("expected an object")
    return row


def read_rows(path, split="test"):
    """(place, row) for each row of JSON lines, a JSON array, a CSV file or MMLU's directory. Rows of the directory end
    with the name of the subject."""
    if os.path.isdir(path):
        suffix = "_%s.csv" % split
        return [(place, row + [os.path.basename(f)[:-len(suffix)]])
                for f in sorted(glob.glob(os.path.join(glob.escape(path), split, "*" + suffix)))
                for place, row in read_csv(f)]
    if path.endswith(".csv"):
        return named(read_csv(path))
    text = read_text(path)
    if text.lstrip().startswith("["):
        items, place = parse(path, lambda: list(json.loads(text))), path + ": item %d"
    else:
        items, place = text.split("\n"), path + ": line %d"
    rows = [(place % i, parse(place % i, json_object, item)) for i, item in enumerate(items, 1)
            if not isinstance(item, str) or item.strip()]
    labels = re.sub(r"\.jsonl$", "-labels.lst", path)  # of PIQA
    if os.path.exists(labels) and labels != path:
        values = read_text(labels).split()
        if len(values) != len(rows):
            sys.exit("%s: %d labels for %d rows" % (labels, len(values), len(rows)))
        rows = [(place, dict(row, label=label)) for (place, row), label in zip(rows, values)]
    return rows


def read_hellaswag(path):
    lines = read_text(path).replace("\r\n", "\n").rstrip("\n").split("\n")
    return [("%s: line %d" % (path, i + 1), lines[i:i + 6]) for i in range(0, len(lines), 6)]


def hellaswag_text(lines):
    """Six lines per task: the context, the index of the right ending, four endings."""
    if len(lines) != 6:
        raise ValueError("expected 6 lines, found %d" % len(lines))
    return Sample(lines[0], lines[2:], int(lines[1]))


def read_winogrande(path):
    rows = read_csv(path)
    return named(rows) if rows and "sentence" in rows[0][1] else rows


def winogrande_csv(row):
    """Index, sentence with "_", two options, number of the right one; or named columns."""
    if isinstance(row, dict):
        return winogrande(row)
    before, _, after = row[1].partition("_")
    return Sample([before + row[2], before + row[3]], [after] * 2, int(row[4]) - 1, space="")


def read_multiple_choice(path):
    """The number of tasks, their offsets, then for each task the question, answers with labels (1: right), and a second
    such list, which is not used. Texts and lists begin with their length. Numbers have 32 bits."""
    with open(path, "rb") as f:
        data = io.BytesIO(f.read())

    def numbers(n):
        return struct.unpack("<%dI" % n, data.read(4 * n))

    def text():
        n = numbers(1)[0]
        return struct.unpack("%ds" % n, data.read(n))[0].decode()

    def answers():
        n = numbers(1)[0]
        return [text() for _ in range(n)], [label == 1 for label in numbers(n)]

    what = path + ": expected the format of llama-perplexity"
    offsets = parse(what, lambda: numbers(numbers(1)[0]))
    return [("%s: task %d" % (path, i), parse(what, lambda: (text(), answers(), answers())))
            for i, _ in enumerate(offsets, 1)]


def multiple_choice(task):
    question, (texts, truths), _ = task
    return Sample(question, texts, truths.index(True), truths=truths)


# Task and extension: the functions for a file of llama-perplexity and for a task in it
LLAMA_CPP = {("hellaswag", ".txt"): (read_hellaswag, hellaswag_text),
             ("winogrande", ".csv"): (read_winogrande, winogrande_csv),
             ("multiple_choice", ".bin"): (read_multiple_choice, multiple_choice)}


def read_samples(name, path, split="test"):
    """The samples of a file in the published format or in that of llama-perplexity, and whether it is the latter."""
    functions = LLAMA_CPP.get((name, os.path.splitext(path)[1]))
    if not functions and name == "multiple_choice":
        sys.exit("%s: expected a file FILE.bin of llama-perplexity" % path)
    rows = functions[0](path) if functions else read_rows(path, split)
    what = "the format of llama-perplexity" if functions else "a sample of " + name
    samples = []
    for place, row in rows:
        samples.append(parse("%s: expected %s" % (place, what), functions[1] if functions else TASKS[name][0], row))
        samples[-1].place = place
    return samples, bool(functions)


def llama_cpp_means(lists, is_winogrande):
    """The mean log-probability per token of each answer, as llama-perplexity computes it: without the tokens that all
    answers begin with or, in WinoGrande, without the last token."""
    ids = [[t["id"] for t in tokens] for tokens in lists]
    n_common = 0 if is_winogrande else len(os.path.commonprefix(ids))
    counted = [tokens[:-1] or tokens if is_winogrande else tokens[n_common:] for tokens in lists]
    return [sum(t["logprob"] for t in tokens) / max(len(tokens), 1) for tokens in counted]


def grade(sample, results, metric):
    """The value of a sample: 1 if it is right, 0 if not; for mc2 a probability, for perplexity a log-likelihood."""
    choices = results[0].get("choices", results)
    sums = [c["logprob"] for c in choices]
    if metric == "acc" and len(choices) == 1:
        return float(choices[0]["is_greedy"])
    if metric == "perplexity":
        return sums[0]
    if metric == "mc2":
        weights = [math.exp(x - max(sums)) for x in sums]
        return sum(w for w, is_true in zip(weights, sample.truths) if is_true) / sum(weights)
    if metric == "acc_norm":
        sums = [x / len(a) if a else -math.inf for x, a in zip(sums, sample.answers)]
    if metric == "llama.cpp":
        sums = llama_cpp_means([c["logprobs"] for c in choices], len(results) > 1)
    best = sums.index(max(sums))
    return float(sample.truths[best] if sample.truths else best == sample.gold)


def number(text, metric):
    """The answer to a question of GSM8K, as the harness's filters extract and normalize it."""
    if metric == "strict_match":
        found = re.search(r"#### (\-?[0-9\.\,]+)", text)
        text = found.group(1) if found else "[invalid]"
    else:
        found = re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", text)
        text = next(g for g in found[-1] if g).strip() if found else "[invalid]"
    return re.sub(r"\.$", "", re.sub(r",|\$", "", text))


def evaluate(model, name, path, shots, train, limit):
    """{metric: values per sample}, and the samples."""
    metrics = TASKS[name][2]
    samples, is_llama_cpp = read_samples(name, path)
    samples = samples[:limit]
    if not samples:
        sys.exit("%s: no samples" % path)
    metrics += " llama.cpp" if is_llama_cpp else ""
    if shots and not train and not os.path.isdir(path):
        sys.exit("%s: --shots needs --train %s=FILE" % (name, name))
    examples = {}
    for e in read_samples(name, train or path, "dev")[0] if shots else ():
        examples.setdefault(e.group, []).append(e)
    shot_lists = [examples.get(s.group, [])[:shots] for s in samples]
    for s, shown in zip(samples, shot_lists):
        if len(shown) < shots:
            sys.exit("%s: %d of %d examples for %s" % (train or path, len(shown), shots, s.group or name))
    if name == "gsm8k":
        records = [{"prompt": "".join(e.shot + "\n\n" for e in shown) + s.contexts[0], "max_tokens": 256,
                    "stop": ["Question:", "</s>", "<|im_end|>"]} for s, shown in zip(samples, shot_lists)]
        texts = [r["text"] for r in model.generate(records, [s.place for s in samples])]
        golds = [re.sub(r"(?s).*#### |,|\$|\.$", "", s.answers[0]) for s in samples]
        return {m: [float(number(t, m) == gold) for t, gold in zip(texts, golds)] for m in metrics.split()}, samples
    lists = [s.records(shown) for s, shown in zip(samples, shot_lists)]
    results = iter(model.score([dict(r, logprobs=is_llama_cpp) for records in lists for r in records],
                               [s.place for s, records in zip(samples, lists) for _ in records]))
    results = [[next(results) for _ in records] for records in lists]
    return {m: [grade(s, r, m) for s, r in zip(samples, results)] for m in metrics.split()}, samples


def mean_and_error(values):
    n, mean = len(values), sum(values) / len(values)
    return mean, math.sqrt(sum((x - mean) ** 2 for x in values) / (n - 1) / n) if n > 1 else math.nan


def rows_of(name, values, samples):
    """Rows of the table: (task, version, metric, value, standard error, n)."""
    version = TASKS[name][1]
    for metric, list_ in values.items():
        mean, error = mean_and_error(list_)
        if metric == "perplexity":  # the standard error by the delta method
            mean, error = math.exp(-mean), math.exp(-mean) * error
        yield name, version, metric, mean, error, len(list_)
    groups = sorted({s.group for s in samples if s.group})
    if groups:
        parts = [mean_and_error([x for x, s in zip(values["acc"], samples) if s.group == g]) for g in groups]
        error = math.sqrt(sum(e * e for _, e in parts)) / len(parts)
        yield name, version, "acc (macro)", sum(m for m, _ in parts) / len(parts), error, len(groups)


def mcnemar(a, b):
    """Samples that only the first or only the second model gets right, and the two-sided exact p-value."""
    only_a, only_b = sum(x > y for x, y in zip(a, b)), sum(x < y for x, y in zip(a, b))
    n, k = only_a + only_b, min(only_a, only_b)
    return only_a, only_b, min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n)


def answer_of(text, expected):
    """The answer in a text: a letter or a number if the expected answers are such, otherwise the whole text."""
    if all(re.fullmatch(r"[A-J]", e) for e in expected):
        return (re.findall(r"\b([A-J])\b", text) or [""])[-1]
    if all(re.fullmatch(r"-?[\d.,]+", e) for e in expected):
        return (re.findall(r"-?\d[\d,]*(?:\.\d+)?", text) or [""])[-1].replace(",", "")
    return text.strip().strip(".").lower()


def meta(row):
    """Name of the subtask, prompt, limit of tokens, expected answers (some tasks quote them), Meta's output and whether
    Meta counts it as right. None if the row has no single prompt, no answer or no output."""
    prompts, expected, outputs = (row.get(key) or [] for key in
                                  ("input_final_prompts", "input_correct_responses", "output_prediction_text"))
    if len(prompts) != 1 or not expected or not outputs:
        return None
    "".join(prompts + expected + outputs).encode()  # an error if they are not lists of texts
    expected = [e.strip().strip('"') for e in expected]
    max_tokens = int((row.get("eval_config") or {}).get("max_gen_len", 512))
    name = row.get("subtask_name") or row["task_name"]
    return name, prompts[0], max_tokens, expected, outputs[0], bool(row["is_correct"])


def evaluate_meta(model, path, max_tokens, limit):
    """Prints for each subtask n, the accuracy beside Meta's, and how often both answers agree."""
    rows = read_rows(path)[:limit]
    if not rows:
        sys.exit("%s: no samples" % path)
    parsed = [(place, parse("%s: expected a sample of Meta" % place, meta, row)) for place, row in rows]
    served = [(place, sample) for place, sample in parsed if sample]
    prompts = model.prompt_ids([prompt for _, (_, prompt, *_) in served])
    records = [{"prompt": p, "max_tokens": max_tokens or n} for p, (_, (_, _, n, *_)) in zip(prompts, served)]
    texts = [r["text"] for r in model.generate(records, [place for place, _ in served])]
    tasks = {}
    for (_, (name, _, _, expected, output, is_correct)), text in zip(served, texts):
        ours, theirs = (answer_of(t, expected) for t in (text, output))
        is_right = ours in [answer_of(e, expected) for e in expected]
        tasks.setdefault(name, []).append((is_right, is_correct, ours == theirs))
    print("%-32s %6s %9s %9s %9s" % ("subtask", "n", "accuracy", "Meta's", "agreement"))
    for name, list_ in sorted(tasks.items()) + [("all", [x for part in tasks.values() for x in part])]:
        print("%-32s %6d" % (name, len(list_)), *("%9.4f" % (sum(column) / len(list_)) for column in zip(*list_)))
    if len(served) < len(rows):
        print("%d rows without a single prompt, an answer and an output were left out" % (len(rows) - len(served)),
              file=sys.stderr)


def count(text):
    if int(text) < 0:
        raise ValueError
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Options after -- are those of llama31.")
    parser.add_argument("tasks", nargs="*", metavar="TASK=FILE", help=", ".join(TASKS))
    parser.add_argument("-m", "--model")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"))
    parser.add_argument("--meta", metavar="FILE")
    parser.add_argument("--shots", type=count, default=0, help="examples before each question, the first of --train")
    parser.add_argument("--train", action="append", default=[], metavar="TASK=FILE")
    parser.add_argument("--limit", type=count, help="samples per task")
    parser.add_argument("--max-tokens", type=count, help="with --meta (default: those of the sample)")
    parser.add_argument("--directory", help="keeps requests and results; an interrupted run continues")
    parser.add_argument("--program", default=find_program() or "llama31", help="the llama31 program")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:split])
    if not args.tasks and not args.meta:
        parser.error("expected TASK=FILE or --meta FILE")
    for task in args.tasks + args.train:
        name, _, path = task.partition("=")
        if name not in TASKS or not path:
            parser.error("expected TASK=FILE with a TASK of %s, found %s" % (", ".join(TASKS), task))
    models = [Model(m, args.program, sys.argv[split + 1:], args.directory) for m in args.compare or [args.model]]
    train = dict(t.split("=", 1) for t in args.train)

    if args.meta:
        evaluate_meta(models[0], args.meta, args.max_tokens, args.limit)
    if args.tasks:
        print("%-16s %7s %-16s %9s %9s %7s" % ("task", "version", "metric", "value", "stderr", "n"))
    for task in args.tasks:
        name, _, path = task.partition("=")
        found = [evaluate(m, name, path, args.shots, train.get(name), args.limit) for m in models]
        for model, (values, samples) in zip(models, found):
            for row in rows_of(name, values, samples):
                print("%-16s %7d %-16s %9.4f %9.4f %7d" % row, *[model.model] * bool(args.compare))
        for metric, a in found[0][0].items() if args.compare else ():
            if metric not in ("perplexity", "mc2"):
                counts = mcnemar(a, found[1][0][metric])
                print("%-16s %7s %-16s only A %d, only B %d, p %.4g" % (name, "", metric, *counts))


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)
    except OSError as e:
        print("%s: %s" % (e.filename or "standard output", e.strerror), file=sys.stderr)
        os._exit(1)  # without another attempt to write to standard output
    except RuntimeError as e:  # of a request
        sys.exit(str(e))
    except subprocess.CalledProcessError as e:  # llama31 has written its error
        sys.exit(e.returncode if e.returncode > 0 else str(e))
