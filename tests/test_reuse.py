#!/usr/bin/env python3
"""Nothing that saves work changes a bit: text and log-probabilities with prompt lookup equal those without, on every
rung of this machine."""
import json
import os

from cli import check, main, same, test

PROMPTS = ["Once upon a time", "The dog said hello. The cat said hello. The dog said hello. The cat said",
           "One day, one day, one day, one day,", "Lily had a red ball. Tom had a blue ball. Lily had a red"]
RUNGS = ["scalar", "avx2", "avx512", "amx", "neon"]


def rungs(cli):
    """Environments for the rungs that this machine has."""
    for name in RUNGS:
        env = dict(os.environ, LLAMA31_ISA=name)
        if cli.run("bench", "--json", "--tests", "d0", "-n", 1, env=env)[0].find(b'"kernels":"%s"' % name.encode()) > 0:
            yield env


def answer(cli, env, prompt, *args):
    """Text and log-probabilities, without the times."""
    out = cli.run("run", "--raw", "--json", "--logprobs", 3, "-n", 60, "--ignore-eos", prompt, *args, env=env)[0]
    a = json.loads(out)
    return {k: a[k] for k in a if not k.endswith("_sec")}


@test
def lookup_changes_nothing(cli):
    n_guessed = 0
    for env in rungs(cli):
        for i, prompt in enumerate(PROMPTS):
            for how in (["--temp", 0, "--seed", 1], ["--temp", 0.7, "--seed", i], ["--seed", i, "--repeat-penalty", 1.2]):
                plain = answer(cli, env, prompt, "--no-lookup", *how)
                same(answer(cli, env, prompt, *how), plain, (env["LLAMA31_ISA"], prompt, how))
        err = cli.run("run", "-v", "--raw", "-n", 120, "--ignore-eos", "--temp", 0, PROMPTS[2], env=env)[1]
        n_guessed += "guessed" in err
    check(n_guessed, "no rung guessed anything")


@test
def lookup_in_a_batch(cli):
    requests = "".join(json.dumps({"id": i, "prompt": p * (1 + i % 3), "max_tokens": 40, "seed": i}) + "\n"
                       for i, p in enumerate(PROMPTS * 3)).encode()
    for args in (["--deterministic"], ["--deterministic", "--parallel", 3], ["--parallel", 1]):
        plain = cli.run("batch", "--raw", "-q", "--ordered", "--no-lookup", *args, stdin=requests)[0]
        same(cli.run("batch", "--raw", "-q", "--ordered", *args, stdin=requests)[0], plain, args)


if __name__ == "__main__":
    main("reuse")
