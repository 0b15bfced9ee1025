#!/usr/bin/env python3
"""Recomputes a sample of the answers of `llama31 batch --deterministic` on this machine, and compares them.

usage: verify_batch.py [--sample N|N%] [--program LLAMA31] [--lines] IN OUT [OPTIONS...]

OPTIONS are those of the run, -m included: --resume of the program compares them with the identity in OUT, and names each
that differs. -i, -o, --shard, --check and --force have no effect. The sample (default 1%, at least one answer) is drawn
anew each time. Any machine can verify the answers, except with the scalar backend. Errors are not verified.

Exit status: 0: all answers of the sample are equal, and all answers of OUT are those to requests of IN; 1: one is not,
with its id and the place, or a file is unreadable; 2: invalid command line, or OUT cannot be verified."""
import lib.interrupt  # noqa: F401
import argparse
import json
import os
import random
import re
import secrets
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from program import find_program

import merge_batch

VOLATILE = ("run", "request", "created", "request_id", "system_fingerprint")  # members that differ between equal answers
FIRST = ("response", "body", "choices", "message", "text", "content")  # members with texts, which are compared first
COMPLETED = (0, 5, 6)  # exit statuses of the program: answers may be errors, or cut before their constraint ends
MAX_SHOWN = 20


def fail(code, message):
    print("verify_batch.py: " + message, file=sys.stderr)
    sys.exit(code)


def sample_size(text):
    """A function of the number of answers."""
    match = re.fullmatch(r"(\d+)|(\d+(?:\.\d*)?)%", text)
    if not match or float(text.rstrip("%")) == 0 or float(match[2] or 0) > 100:
        raise argparse.ArgumentTypeError(f"expected a number of answers, or up to 100%, found {text!r}")
    return lambda n: min(n, max(1, int(match[1]) if match[1] else round(n * float(match[2]) / 100)))


def read_requests(path, is_lines):
    """{key: (line, text)} of the requests. As in the program, the first of equal ids counts."""
    requests = {}
    for line, text in merge_batch.requests(argparse.Namespace(input=path, lines=is_lines)):
        key = merge_batch.key_of_request(text, line, is_lines)
        if key is not None:
            requests.setdefault(key, (line, text))
    return requests


def read_output(path):
    """[(key, answer)] of an output, its identity, and what is no answer."""
    problems = []
    answers, _, runs = merge_batch.read_answers([path], problems)
    with open(path, "rb") as f:
        for entries in answers.values():
            for entry in entries:
                f.seek(entry["offset"])
                entry["object"] = json.loads(f.readline())
    return [(key, entry) for key, entries in answers.items() for entry in entries], runs, [text for _, text in problems]


def identity_of(path, runs, problems):
    """The identity of the run that wrote an output, which must be deterministic."""
    again = "compute it again with batch --deterministic -o OUT"
    if not runs:
        fail(2, (problems[0] if problems else f"{path}: no identity of a run") + "; " + again)
    different = merge_batch.differences(runs)
    if different:
        fail(2, f"{path}: answers of several runs, which differ in {', '.join(different)}; {again}")
    _, identity, values = runs[0]
    if not values.get("arithmetic", "").startswith('"deterministic'):
        fail(2, f"{path}: its arithmetic is {values.get('arithmetic')}, which other machines do not share; {again}")
    return identity.decode()


def wrong_request(key, answer, requests, is_lines):
    """Why an answer does not belong to a request of the input, or None."""
    if key not in requests:
        return "no such request"
    if not merge_batch.is_answer_to(answer, requests[key][1], is_lines):
        return "the request has changed since its answer"
    return None


def comparable(value, is_body=False):
    """An answer without the members that differ between equal answers, texts first."""
    if isinstance(value, list):
        return [comparable(v) for v in value]
    if not isinstance(value, dict):
        return value
    names = [name for name in value if name not in VOLATILE and not (name == "id" and (is_body or "custom_id" in value))]
    return {name: comparable(value[name], name == "body") for name in sorted(names, key=lambda n: (n not in FIRST, n))}


def difference(old, new):
    """The first difference of two answers, in words, or None."""
    old, new = (json.dumps(comparable(a), ensure_ascii=False) for a in (old, new))
    if old == new:
        return None
    at = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    begin = max(0, at - MAX_SHOWN)
    return f"{old[begin:at + MAX_SHOWN]!r}, recomputed {new[begin:at + MAX_SHOWN]!r}"


def recompute(program, options, identity, path, lines):
    """{key: [answer]} of some requests, {line: text}. --resume compares the options with the identity."""
    with tempfile.TemporaryDirectory() as folder:
        requests, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(requests, "wb") as f:  # the other lines are empty, because line numbers can be ids
            f.writelines(lines.get(i, b"") + b"\n" for i in range(1, max(lines) + 1))
        with open(out, "w", encoding="utf-8") as f:
            f.write('{"id":"%s","request":"0","text":"","finish_reason":"stop","run":%s}\n' % (secrets.token_hex(16), identity))
        own = ["-q", "--deterministic", "--resume", "-i", requests, "-o", out, "--shard", "1/1", "--check=false", "--force=false"]
        r = subprocess.run([program, "batch", *options, *own], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if r.returncode not in COMPLETED:
            why = r.stderr.strip().replace(out, path).replace("; --force resumes anyway", "")
            if 'now "deterministic' in why:
                why += "; compute it again with this program, or verify it with the one that wrote it"
            fail(2 if r.returncode == 2 else 1, why or f"{program} ended with {r.returncode}")
        return dict(read_output(out)[0])


def main():
    usage = __doc__.split("usage: ")[1].split("\n")[0]
    if {"-h", "--help"} & set(sys.argv[1:]):
        print("usage: %s\n\n%s" % (usage, __doc__.replace("usage: " + usage + "\n\n", "")))
        return 0
    parser = argparse.ArgumentParser(usage=usage.replace("%", "%%"), allow_abbrev=False)
    parser.add_argument("--sample", type=sample_size, default="1%")
    parser.add_argument("--program", default=find_program())
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("input")
    parser.add_argument("output")
    args, options = parser.parse_known_args()
    if not args.program:
        fail(1, "no llama31 found; --program LLAMA31")

    requests = read_requests(args.input, args.lines)
    answers, runs, problems = read_output(args.output)
    identity = identity_of(args.output, runs, problems)

    # What is no answer to a request cannot be recomputed.
    candidates = []
    for key, answer in answers:
        if answer["is_error"]:
            continue
        why = wrong_request(key, answer, requests, args.lines)
        if why:
            problems.append(f"{args.output}: {key[1]}: {why}")
        else:
            candidates.append((key, answer["object"]))
    if not candidates:
        fail(2, "; ".join([f"{args.output}: no answer to a request of {args.input}", *problems[:1]]))

    drawn = random.SystemRandom().sample(candidates, args.sample(len(candidates)))
    again = recompute(args.program, options + ["--lines"] * args.lines, identity, args.output,
                      dict(requests[key] for key, _ in drawn))
    for key, answer in drawn:
        why = difference(answer, again[key]["object"]) if key in again else "not recomputed"
        if why:
            problems.append(f"{args.output}: {key[1]}: {why}")

    for text in problems:
        print(text, file=sys.stderr)
    print(f"{len(drawn)} of {len(answers)} answers recomputed, {len(problems)} differ")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as e:
        fail(1, f"{e.filename}: {e.strerror}")
