#!/usr/bin/env python3
"""Merges the outputs of `llama31 batch --shard K/N` in the order of the input, and checks that they are complete.

usage: merge_batch.py [--lines] [-o MERGED] IN OUT...

Every request of IN must have exactly one answer in the OUTs, and they must have no others. Otherwise nothing is written,
stderr lists the missing, duplicate and unknown answers, and the exit status is 1."""
import argparse
import json
import os
import sys


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


def read_answers(paths, problems):
    """{key: (path, offset)}"""
    answers = {}
    for path in paths:
        with open(path, "rb") as f:
            offset = 0
            for number, line in enumerate(f, 1):
                place = "%s: line %d" % (path, number)
                try:
                    if not line.endswith(b"\n"):
                        raise ValueError("truncated line")
                    key = key_of_answer(json.loads(line))
                    if key in answers:
                        problems.append("%s: duplicate: %s" % (place, key[1]))
                    answers[key] = path, offset
                except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as e:
                    problems.append("%s: not an answer: %s" % (place, e))
                offset += len(line)
    return answers


def order_answers(path, is_lines, answers, problems):
    """[(path, offset)] of the answers in the order of the requests; removes them from `answers`."""
    places, seen = [], set()
    with open(path, "rb") as f:
        for line, text in enumerate(f, 1):
            if line == 1 and text.startswith(b"\xef\xbb\xbf"):
                text = text[3:]
            if not text.strip(b" \t\r\n"):
                continue
            key = key_of_request(text, line, is_lines)
            if key is None or key in seen or ("line", line) in answers:
                key = "line", line
            seen.add(key)
            if key in answers:
                places.append(answers.pop(key))
            else:
                problems.append("%s: line %d: missing: %s" % (path, line, key[1]))
    return places


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", action="store_true", help="IN is plain text, one prompt per line")
    parser.add_argument("-o", "--output", help="output file (default: stdout)")
    parser.add_argument("input", metavar="IN")
    parser.add_argument("outputs", metavar="OUT", nargs="+")
    args = parser.parse_args()

    problems = []
    answers = read_answers(args.outputs, problems)
    places = order_answers(args.input, args.lines, answers, problems)
    problems += ["%s: unknown: %s" % (answers[key][0], key[1]) for key in answers]

    for problem in problems[:20]:
        print("merge_batch: " + problem, file=sys.stderr)
    if problems:
        print("merge_batch: %d problems, nothing written" % len(problems), file=sys.stderr)
        return 1

    # Copies the answers in the order of the input.
    files = {path: open(path, "rb") for path in args.outputs}
    merged = open(args.output + ".tmp", "wb") if args.output else sys.stdout.buffer
    n_errors = 0
    for path, offset in places:
        files[path].seek(offset)
        answer = files[path].readline()
        n_errors += bool(json.loads(answer).get("error"))
        merged.write(answer)

    merged.flush()
    if args.output:
        merged.close()
        os.replace(args.output + ".tmp", args.output)

    print("merge_batch: %d answers, %d errors" % (len(places) - n_errors, n_errors), file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as e:
        sys.exit("merge_batch: %s: %s" % (e.filename or "output", e.strerror))
