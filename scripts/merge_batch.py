#!/usr/bin/env python3
"""Merges the outputs of `llama31 batch --shard K/N` in the order of the input, and checks that they are complete.

usage: merge_batch.py [--lines] [--dedupe] [--force] [-o MERGED] IN OUT...
       merge_batch.py --status IN OUT...

Every request of IN must have exactly one answer in the OUTs, whose hash of the request matches, and they must have no
others. The OUTs must be of one run: with the same options, except random seeds, and the same arithmetic. Otherwise
nothing is written, and stderr lists the problems and the shards to repeat. --dedupe keeps the first valid answer of each
request and leaves out the others. --force merges outputs of different runs. --status counts the answers of each shard.

The first answer of MERGED has the identity of the run, without its shard, unless the OUTs have different ones.

Exit status: 0: complete; 1: something is missing, damaged or unreadable; 2: invalid command line."""
import lib.interrupt  # noqa: F401
import argparse
import collections
import json
import os
import re
import sys

MAX_LINE = 4 << 20  # bytes of a request
VERSION = 3         # of the identity of a run (cli/commands/batch_identity.c)


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


def record_hash(data, seed=0):
    """record_hash() of the program."""
    h = seed ^ 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & (1 << 64) - 1
    for factor in 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53:
        h = (h ^ h >> 33) * factor & (1 << 64) - 1
    return h ^ h >> 33


def fnv(data):
    return "%016x" % record_hash(data)


def quote(match):
    """A string of JSON as the program writes it; white space becomes empty."""
    if not match[0].startswith(b'"'):
        return b""
    text = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(match[0]))
    text = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f]", lambda m: "\\u%04x" % ord(m[0]), text).encode()


def canonical(text):
    return re.sub(rb'"(?:[^"\\]|\\.)*"|[ \t\r\n]+', quote, text)


def is_answer_to(answer, text, is_lines):
    """True if the hash of an answer is that of a request. Answers of earlier versions have none."""
    if answer["hash"] is None or len(text) > MAX_LINE:
        return True
    if answer["hash"] == fnv(text):
        return True
    try:
        return not is_lines and answer["hash"] == fnv(canonical(text))
    except ValueError:
        return False


def strict_object(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def strict_constant(name):
    raise ValueError(name)


def members_of(text):
    """{name: JSON} of a canonical object, without members that are null."""
    found, at = {}, 1
    while text[at] != "}":
        key, at = json.JSONDecoder().raw_decode(text, at + (text[at] == ","))
        value, end = json.JSONDecoder().raw_decode(text, at + 1)
        if value is not None:
            found[key] = text[at + 1:end]
        at = end
    return found


class Shards:
    """The shards of an input. Without a rule, each has every n-th line; otherwise the rule is that of
    cli/commands/batch_shard.c."""

    def __init__(self, n, rule):
        self.n, self.rule, self.known, self.sizes = n, rule, {}, [0] * n

    def beginning(self, text, is_lines):
        """shard_put_beginning() of the program."""
        if len(text) > MAX_LINE:
            return b""
        try:
            root = None if is_lines else json.loads(text, object_pairs_hook=strict_object, parse_constant=strict_constant)
        except (ValueError, RecursionError):
            root = None
        if isinstance(root, str):
            return root.encode("utf-8", "replace")
        if not isinstance(root, dict):
            return text
        members = members_of(canonical(text).decode())
        if "body" in root:
            members = members_of(members["body"]) if isinstance(root["body"], dict) else {}
        return "".join(members.get(name, "") for name in ("tools", "messages", "prompt", "context", "text")).encode()

    def shard_of(self, line, text, is_lines):
        """The shard of the next request, from 1."""
        if not self.rule:
            return (line - 1) % self.n + 1
        text = self.beginning(text, is_lines)
        hashes, begin, end = [], 0, 64
        while end < len(text) and len(hashes) < 256:
            hashes.append((record_hash(text[begin:end], hashes[-1][0] if hashes else 0), end))
            begin, end = end, end + max(64, end // 16 // 64 * 64)

        common, new = {}, hashes[-1][0] if hashes else record_hash(text)
        for value, length in hashes:
            if value not in self.known:
                new = value
                break
            common.update((bit, length) for bit in self.known[value])

        least, tolerance = min(self.sizes), 12 * 20 * self.n + sum(self.sizes)
        values = []
        for k, size in enumerate(self.sizes):
            share = common.get(k % 64, 0) * 1024 // max(len(text), 1)
            values.append((record_hash(b"%d" % k, new) >> 48) + (share ** 4 >> 20)
                          - (size - least << 20) * 20 * self.n // tolerance)
        k = values.index(max(values))

        if len(self.known) + len(hashes) > 1 << 20:
            self.known.clear()
        for value, _ in hashes:
            self.known.setdefault(value, set()).add(k % 64)
        self.sizes[k] += 1
        return k + 1


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


def split_run(line):
    """A line of output without the identity of its run, the last member; and that identity without the shard."""
    at = line.rindex(b',"run":{"version":')
    run = line[at + len(b',"run":'):line.rindex(b"}")]
    return line[:at] + b"}\n", re.sub(rb',"shard":"[^"]*"', b"", run, count=1)


def run_values(run):
    """{name: JSON} of the members and options of an identity, without the shard."""
    values = {**run.get("options", {}), **run}
    return {name: json.dumps(value) for name, value in values.items() if name not in ("options", "shard")}


def differences(runs):
    """{name: {value: path}} of the members and options in which the identities of runs differ."""
    found = {}
    for name in sorted({name for _, _, values in runs for name in values}):
        places = {}
        for path, _, values in runs:
            places.setdefault(values.get(name, "not set"), path)
        if len(places) > 1:
            found[name] = places
    return found


def describe_differences(found):
    """A line for each member; the seeds of shards may differ."""
    for name, values in found.items():
        if name == "--seed":
            continue
        text = "outputs of different runs: %s: %s" % (name, ", ".join("%s in %s" % item for item in values.items()))
        yield text + ("; batch --deterministic has the same arithmetic on all of them" if name == "arithmetic" else "")


def read_answers(paths, problems):
    """({key: [answer]}, {path: shard}, [(path, identity of a run, run_values)]); an answer has the members path, offset,
    hash, has_run, is_error and n_tokens."""
    answers, shards, runs = {}, {}, []
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
                        runs.append((path, split_run(line)[1], run_values(answer["run"])))
                    if "delta" not in answer:  # a part of a streamed answer
                        answers.setdefault(key, []).append(
                            {"path": path, "offset": offset, "hash": answer.get("request"), "has_run": "run" in answer,
                             "is_error": bool(answer.get("error")), "n_tokens": count_tokens(answer)})
                except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as e:
                    problems.append((path, "%s: line %d: not an answer: %s" % (path, number, e)))
                offset += len(line)
    return answers, shards, runs


def requests(args):
    """(line, text) of the requests of IN."""
    with open(args.input, "rb") as f:
        for line, text in enumerate(f, 1):
            if line == 1 and text.startswith(b"\xef\xbb\xbf"):
                text = text[3:]
            if not text.strip(b" \t\r\n"):
                continue
            text = text[:-1] if text.endswith(b"\n") else text
            yield line, text[:-1] if args.lines and text.endswith(b"\r") else text


def order_answers(args, answers, problems):
    """[answer] in the order of the requests, and {line: problem} of the missing ones; removes them from `answers`."""
    places, missing, seen = [], {}, set()
    for line, text in requests(args):
        key = key_of_request(text, line, args.lines)
        if key is None or key in seen or ("line", line) in answers:
            key = "line", line
        seen.add(key)

        found = answers.pop(key, [])
        valid = [a for a in found if is_answer_to(a, text, args.lines)]
        places += sorted(valid, key=lambda a: a["is_error"])[:1]
        if not valid:
            what = "changed since its answer" if found else "missing"
            missing[line] = "%s: line %d: %s: %s" % (args.input, line, what, key[1])
        if len(valid) > 1 and not args.dedupe:
            problems += [(a["path"], "%s: duplicate: %s" % (a["path"], key[1])) for a in valid[1:]]
        args.n_dropped += len(found) - len(valid[:1])
    return places, missing


def count_missing(args, shards, missing):
    """{K: missing answers of the shard}; {} if the outputs do not have the same kind of shards."""
    kinds = {shard[1:] for shard in shards.values() if shard}
    counts = collections.Counter()
    if missing and len(kinds) == 1:
        parts = Shards(*kinds.pop())
        counts.update(k for line, k in [(n, parts.shard_of(n, text, args.lines)) for n, text in requests(args)] if line in missing)
    return counts


def shards_to_repeat(shards, counts, problems):
    """A line for each shard with missing or damaged answers."""
    kinds = {shard[1:] for shard in shards.values() if shard}
    if len(kinds) > 1:
        yield "outputs of different numbers or rules of shards: " + ", ".join(
            "%s has %d/%d%s" % (path, *shard[:2], ":" + (shard[2] or "lines")) for path, shard in shards.items() if shard)
    if len(kinds) != 1:
        return
    n = kinds.pop()[0]
    path_of = {shard[0]: path for path, shard in shards.items() if shard}
    damaged = {shards[path][0] for path, _ in problems if shards.get(path)}
    for k in sorted(damaged | set(counts)):
        yield "shard %d/%d (%s): %d missing%s; repeat it with --shard %d/%d --resume" % (
            k, n, path_of.get(k, "no output"), counts[k], ", damaged" if k in damaged else "", k, n)


def print_status(shards, answers, places, counts, n_all):
    """Answers and errors of each output, and the tokens per second of those that a running process holds a lock of."""
    whole = 0
    for path, shard in shards.items():
        own = [a for list_ in answers.values() for a in list_ if a["path"] == path]
        n_missing = counts[shard[0]] if shard else 0
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
        print("%s: shard %s: %d done, %d failed, %d missing%s" % (
            path, "%d/%d" % shard[:2] if shard else "unknown", len(own) - n_failed, n_failed, n_missing, speed))
    n_failed = sum(a["is_error"] for a in places)
    print("all: %d done, %d failed, %d missing, %.1f tokens/s" % (len(places) - n_failed, n_failed, n_all, whole))


def write_merged(places, paths, run, merged):
    """Copies the answers in the order of the input. The first one gets the identity of the run, if there is one."""
    files = {path: open(path, "rb") for path in paths}
    for a in places:
        files[a["path"]].seek(a["offset"])
        line = files[a["path"]].readline()
        if a["has_run"]:
            line = split_run(line)[0]
        if run:
            line = line[:line.rindex(b"}")] + b',"run":' + run + b"}\n"
            run = None
        merged.write(line)
    merged.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", action="store_true", help="IN is plain text, one prompt per line")
    parser.add_argument("--dedupe", action="store_true", help="keep the first valid answer of each request")
    parser.add_argument("--force", action="store_true", help="merge outputs of different runs")
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
    answers, shards, runs = read_answers(paths, problems)
    every = dict(answers)
    places, missing = order_answers(args, answers, problems)
    if args.status:
        print_status(shards, every, places, count_missing(args, shards, missing), len(missing))
        return 1 if missing else 0
    unknown = [(a["path"], "%s: unknown: %s" % (a["path"], key[1])) for key, found in answers.items() for a in found]
    args.n_dropped += len(unknown)
    if args.dedupe:
        args.n_dropped += len(problems)
        problems = []
    else:
        problems += unknown

    different = differences(runs)
    mixed = [] if args.force else list(describe_differences(different))
    found = mixed + [text for _, text in problems] + list(missing.values())
    repeated = shards_to_repeat(shards, count_missing(args, shards, missing), problems) if found else []
    for text in found[:20] + list(repeated):
        print("merge_batch: " + text, file=sys.stderr)
    if found:
        print("merge_batch: %d problems, nothing written" % len(found), file=sys.stderr)
        return 1

    # As in an output of the program, the first answer has the identity of the run, except on stdout.
    if args.output:
        run = runs[0][1] if runs and not different else None
        temporary = args.output + ".tmp"
        try:
            with open(temporary, "wb") as f:
                write_merged(places, paths, run, f)
            os.replace(temporary, args.output)
        finally:
            if os.path.lexists(temporary):
                os.remove(temporary)
    else:
        write_merged(places, paths, None, sys.stdout.buffer)

    n_errors = sum(a["is_error"] for a in places)
    dropped = ", %d duplicate or outdated left out" % args.n_dropped if args.n_dropped else ""
    if different and args.output:
        dropped += "; no identity of a run, because the outputs differ in " + ", ".join(different)
    print("merge_batch: %d answers, %d errors%s" % (len(places) - n_errors, n_errors, dropped), file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as e:
        sys.exit("merge_batch: %s: %s" % (e.filename or "output", e.strerror))
    except KeyboardInterrupt:
        sys.exit(130)
