#!/usr/bin/env python3
"""Recomputes a sample of the answers of `llama31 batch --deterministic` on this machine, and compares them.

usage: verify_batch.py [--sample N|N%] [--program LLAMA31] IN OUT [OPTIONS...]

OPTIONS are those of the run, -m included: --resume of the program compares them with the identity in OUT, and names each
that differs. The sample (default 1%, at least one answer) is drawn anew each time. Any machine can verify the answers,
except with the scalar backend.

Exit status: 0: all answers of the sample are equal; 1: an answer differs, with its id and the place, or a file is
unreadable; 2: invalid command line, or OUT cannot be verified."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import find_program

import merge_batch

VOLATILE = ("run", "request", "created", "request_id", "system_fingerprint")  # members that differ between equal answers


def fail(code, message):
    print("verify_batch.py: " + message, file=sys.stderr)
    sys.exit(code)


def read_objects(path):
    """(text, object) of each line."""
    with open(path, encoding="utf-8") as f:
        for number, text in enumerate(f, 1):
            try:
                value = json.loads(text)
            except ValueError as e:
                fail(1, f"{path}: line {number}: {e}")
            if not isinstance(value, dict):
                fail(1, f"{path}: line {number}: expected an object")
            yield text, value


def identity_of(path, answers):
    """The identity of the run, which must be deterministic."""
    again = "compute it again with batch --deterministic"
    run = next((a["run"] for a in answers if isinstance(a.get("run"), dict)), None)
    if run is None:
        fail(2, f"{path}: no identity of a run; {again}")
    if not str(run.get("arithmetic")).startswith("deterministic"):
        fail(2, f"{path}: its arithmetic is {run.get('arithmetic')!r}, which other machines do not share; {again}")
    return {name: value for name, value in run.items() if name != "shard"}  # the sample is not divided


def request_of(text, request, number):
    """The line of a request, with the id that it has in the whole input."""
    if merge_batch.key_of_request(text, number, False) == ("n", number) and "id" not in request:
        request = dict(request, id=number)
    return json.dumps(request)


def draw(sample, keys):
    n = len(keys) * float(sample[:-1]) / 100 if sample.endswith("%") else float(sample)
    return set(random.SystemRandom().sample(sorted(keys, key=str), max(1, min(len(keys), round(n)))))


def comparable(value, is_body=False):
    """An answer without the members that differ between equal answers."""
    if isinstance(value, list):
        return [comparable(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {name: comparable(v, name == "body") for name, v in value.items()
            if name not in VOLATILE and not (name == "id" and (is_body or "custom_id" in value))}


def difference(old, new):
    """Where two answers differ, in words."""
    old, new = (json.dumps(comparable(a), ensure_ascii=False, sort_keys=True) for a in (old, new))
    if old == new:
        return None
    at = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    return f"{old[max(0, at - 20):at + 20]!r}, recomputed {new[max(0, at - 20):at + 20]!r}"


def recompute(program, options, identity, lines):
    """The answers to some requests, by key. --resume compares the options with the identity."""
    with tempfile.TemporaryDirectory() as folder:
        requests, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(requests, "w", encoding="utf-8") as f:
            f.write("".join(line + "\n" for line in lines))
        with open(out, "w", encoding="utf-8") as f:
            started = {"id": "identity", "request": "0", "text": "", "finish_reason": "stop", "run": identity}
            f.write(json.dumps(started, separators=(",", ":")) + "\n")
        r = subprocess.run([program, "batch", "-q", "--deterministic", "--resume", "-i", requests, "-o", out, *options],
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if r.returncode == 2:
            fail(2, r.stderr.strip().replace(out, "OUT"))
        return {merge_batch.key_of_answer(a): a for _, a in read_objects(out) if a["id"] != "identity"}


def main():
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0].replace("%", "%%"), allow_abbrev=False)
    parser.add_argument("--sample", default="1%")
    parser.add_argument("--program", default=None)
    parser.add_argument("input")
    parser.add_argument("output")
    args, options = parser.parse_known_args()

    answers = {merge_batch.key_of_answer(a): a for _, a in read_objects(args.output)}
    identity = identity_of(args.output, answers.values())
    requests = {merge_batch.key_of_request(text, n, False): request_of(text, r, n)
                for n, (text, r) in enumerate(read_objects(args.input), 1)}
    keys = [key for key, a in answers.items() if key in requests and not a.get("error")]
    if not keys:
        fail(2, f"{args.output}: no answer to a request of {args.input}")

    drawn = draw(args.sample, keys)
    again = recompute(args.program or find_program(), options, identity, [requests[key] for key in drawn])
    n_wrong = 0
    for key in sorted(drawn, key=str):
        why = difference(answers[key], again[key]) if key in again else "not recomputed"
        if why:
            print(f"{args.output}: {key[1]}: {why}", file=sys.stderr)
            n_wrong += 1
    print(f"{len(drawn)} of {len(answers)} answers recomputed, {n_wrong} differ")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
