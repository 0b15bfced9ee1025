#!/usr/bin/env python3
"""Merges the outputs of `llama31 batch --shard K/N` in the order of the input, and checks that they are complete.

usage: merge_batch.py [--lines] [--dedupe] [-o MERGED] IN OUT...
       merge_batch.py --status IN OUT...

Every request of IN must have exactly one answer in the OUTs, whose hash of the request matches, and they must have no
others. Otherwise nothing is written, and stderr lists the problems and the shards to repeat. --dedupe keeps the first
valid answer of each request and leaves out the others. --status counts the answers of each shard.

Exit status: 0: complete; 1: something is missing, damaged or unreadable; 2: invalid command line."""
import argparse
import json
import os
import re
import sys

MAX_LINE = 4 << 20  # bytes of a request
VERSION = 2         # of the identity of a run (cli/commands/batch_identity.c)


def key_of_request(text, line, is_lines):
    """(kind, name) of a request, as the program identifies it; None if only an error about the line can answer it."""
    if is_lines:
        return "n", line
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    openai = "custom_id" in request or "body" in request or "url" in request
    value = request.get("custom_id" if openai else "id")
    if value is None and not openai:
        return "n", line
    return key_of_value(value)


def key_of_value(value):
    if isinstance(value, str):
        return "s", value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or isinstance(value, float) and value.is_integer():
        return "n", int(value)
    return None


def key_of_answer(answer):
    if "custom_id" in answer:
        return key_of_value(answer["custom_id"]) or ("line", int(answer["id"].rsplit("_", 1)[1]))
    return key_of_value(answer["id"]) or ("line", answer["line"])


def fnv(data):
    """record_hash() of the program."""
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & (1 << 64) - 1
    for factor in 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53:
        h = (h ^ h >> 33) * factor & (1 << 64) - 1
    return "%016x" % (h ^ h >> 33)


def quote(match):
    """A string of JSON as the program writes it; white space becomes empty."""
    if not match[0].startswith(b'"'):
        return b""
    text = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(match[0]))
    text = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f]", lambda m: "\\u%04x" % ord(m[0]), text).encode()


def is_answer_to(answer, text, is_lines):
    """True if the hash of an answer is that of a request. Answers of earlier versions have none."""
    if answer["hash"] is None or len(text) > MAX_LINE:
        return True
    if answer["hash"] == fnv(text):
        return True
    try:
        return not is_lines and answer["hash"] == fnv(re.sub(rb'"(?:[^"\\]|\\.)*"|[ \t\r\n]+', quote, text))
    except ValueError:
        return False


def count_tokens(answer):
    usage = ((answer.get("response") or {}).get("body") or {}).get("usage") or {}
    choices = answer.get("choices", [answer])
    return usage.get("completion_tokens", 0) + sum(c.get("n_generated", 0) for c in choices)


def shard_of_run(run):
    """(K, N, rule) of the identity of a run. Without a rule, the shard has every N-th line."""
    if not isinstance(run, dict) or run.get("version") != VERSION:
        raise ValueError("the identity of its run has another version than %d" % VERSION)
    place, _, rule = run.get("shard", "1/1").partition(":")
    k, n = place.split("/")
    return int(k), max(int(n), 1), rule


def without_run(line):
    """A line of output without the identity of the run, its last member."""
    return line[:line.rindex(b',"run":{"version":')] + b"}\n"


def read_answers(paths, problems):
    """({key: [answer]}, {path: shard}); an answer has the members path, offset, hash, has_run, is_error and
    n_tokens."""
    answers, shards = {}, {}
    for path in paths:
        shards[path] = None
        with open(path, "rb") as f:
            offset = 0
            for number, line in enumerate(f, 1):
                try:
                    if not line.endswith(b"\n"):
                        raise ValueError("truncated line")
                    answer = json.loads(line)
                    key = key_of_answer(answer)
                    if "run" in answer:
                        shards[path] = shard_of_run(answer["run"])
                    if "delta" not in answer:  # a part of a streamed answer
                        answers.setdefault(key, []).append(
                            {"path": path, "offset": offset, "hash": answer.get("request"), "has_run": "run" in answer,
                             "is_error": bool(answer.get("error")), "n_tokens": count_tokens(answer)})
                except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as e:
                    problems.append((path, "%s: line %d: not an answer: %s" % (path, number, e)))
                offset += len(line)
    return answers, shards


def order_answers(args, answers, problems):
    """[answer] in the order of the requests, and the missing lines; removes them from `answers`."""
    places, missing, seen = [], [], set()
    with open(args.input, "rb") as f:
        for line, text in enumerate(f, 1):
            if line == 1 and text.startswith(b"\xef\xbb\xbf"):
                text = text[3:]
            if not text.strip(b" \t\r\n"):
                continue
            key = key_of_request(text, line, args.lines)
            if key is None or key in seen or ("line", line) in answers:
                key = "line", line
            seen.add(key)
            text = text[:-1] if text.endswith(b"\n") else text
            text = text[:-1] if args.lines and text.endswith(b"\r") else text

            found = answers.pop(key, [])
            valid = [a for a in found if is_answer_to(a, text, args.lines)]
            places += sorted(valid, key=lambda a: a["is_error"])[:1]
            if not valid:
                what = "changed since its answer" if found else "missing"
                missing.append((line, "%s: line %d: %s: %s" % (args.input, line, what, key[1])))
            if len(valid) > 1 and not args.dedupe:
                problems += [(a["path"], "%s: duplicate: %s" % (a["path"], key[1])) for a in valid[1:]]
            args.n_dropped += len(found) - len(valid[:1])
    return places, missing


def shards_to_repeat(shards, missing, problems):
    """A line for each shard with missing or damaged answers."""
    kinds = {shard[1:] for shard in shards.values() if shard}
    if len(kinds) > 1:
        yield "outputs of different numbers or rules of shards: " + ", ".join(
            "%s has %d/%d%s" % (path, *shard[:2], ":" + (shard[2] or "lines")) for path, shard in shards.items() if shard)
    if len(kinds) != 1:
        return
    n, rule = kinds.pop()
    if rule:  # only the program computes which shard has a line
        absent = sorted(set(range(1, n + 1)) - {shard[0] for shard in shards.values() if shard})
        if absent:
            yield "no output of --shard " + ", ".join("%d/%d" % (k, n) for k in absent)
        if missing or problems:
            yield "repeat all %d shards with --resume; those that are complete end at once" % n
        return
    path_of = {shard[0]: path for path, shard in shards.items() if shard}
    damaged = {shards[path][0] for path, _ in problems if shards.get(path)}
    for k in sorted(damaged | {(line - 1) % n + 1 for line, _ in missing}):
        count = sum((line - 1) % n + 1 == k for line, _ in missing)
        yield "shard %d/%d (%s): %d missing%s; repeat it with --shard %d/%d --resume" % (
            k, n, path_of.get(k, "no output"), count, ", damaged" if k in damaged else "", k, n)


def print_status(shards, answers, places, missing):
    """Answers and errors of each output, and the tokens per second of those that a running process holds a lock of."""
    whole = 0
    for path, shard in shards.items():
        own = [a for list_ in answers.values() for a in list_ if a["path"] == path]
        n_missing = sum((line - 1) % shard[1] + 1 == shard[0] for line, _ in missing) if shard and not shard[2] else None
        speed = ""
        try:
            with open(path + ".lock") as f:
                start = int(f.read().split()[4])
            sec = os.stat(path).st_mtime - os.stat(path + ".lock").st_mtime
            rate = sum(a["n_tokens"] for a in own if a["offset"] >= start) / sec if sec > 0 else 0
            whole += rate
            speed = ", running, %.1f tokens/s" % rate
        except (OSError, ValueError, IndexError):
            pass
        n_failed = sum(a["is_error"] for a in own)
        print("%s: shard %s: %d done, %d failed%s%s" % (
            path, "%d/%d" % shard[:2] if shard else "unknown", len(own) - n_failed, n_failed,
            "" if n_missing is None else ", %d missing" % n_missing, speed))
    n_failed = sum(a["is_error"] for a in places)
    print("all: %d done, %d failed, %d missing, %.1f tokens/s" % (len(places) - n_failed, n_failed, len(missing), whole))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", action="store_true", help="IN is plain text, one prompt per line")
    parser.add_argument("--dedupe", action="store_true", help="keep the first valid answer of each request")
    parser.add_argument("--status", action="store_true", help="count the answers of each shard; write nothing")
    parser.add_argument("-o", "--output", help="output file (default: stdout)")
    parser.add_argument("input", metavar="IN")
    parser.add_argument("outputs", metavar="OUT", nargs="+")
    args = parser.parse_args()

    # A pattern such as out.* also matches these.
    names = [args.input, args.output] if args.output else [args.input]
    others = {os.path.realpath(name) for name in names}
    paths = [p for p in args.outputs if os.path.realpath(p) not in others and not p.endswith((".lock", ".tmp"))]
    if len(paths) < len(args.outputs):
        print("merge_batch: left out: " + ", ".join(p for p in args.outputs if p not in paths), file=sys.stderr)

    problems, args.n_dropped = [], 0
    answers, shards = read_answers(paths, problems)
    every = dict(answers)
    places, missing = order_answers(args, answers, problems)
    if args.status:
        print_status(shards, every, places, missing)
        return 1 if missing else 0
    unknown = [(a["path"], "%s: unknown: %s" % (a["path"], key[1])) for key, found in answers.items() for a in found]
    args.n_dropped += len(unknown)
    if args.dedupe:
        args.n_dropped += len(problems)
        problems = []
    else:
        problems += unknown

    found = [text for _, text in problems + missing]
    for text in found[:20] + list(shards_to_repeat(shards, missing, problems) if found else []):
        print("merge_batch: " + text, file=sys.stderr)
    if found:
        print("merge_batch: %d problems, nothing written" % len(found), file=sys.stderr)
        return 1

    # Copies the answers in the order of the input, without the identities of the runs.
    files = {path: open(path, "rb") for path in paths}
    merged = open(args.output + ".tmp", "wb") if args.output else sys.stdout.buffer
    for a in places:
        files[a["path"]].seek(a["offset"])
        line = files[a["path"]].readline()
        merged.write(without_run(line) if a["has_run"] else line)

    merged.flush()
    if args.output:
        merged.close()
        os.replace(args.output + ".tmp", args.output)

    n_errors = sum(a["is_error"] for a in places)
    dropped = ", %d duplicate or outdated left out" % args.n_dropped if args.n_dropped else ""
    print("merge_batch: %d answers, %d errors%s" % (len(places) - n_errors, n_errors, dropped), file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as e:
        sys.exit("merge_batch: %s: %s" % (e.filename or "output", e.strerror))
