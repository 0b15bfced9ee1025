"""Runs files of requests through `llama31 score --jsonl` and `llama31 batch`."""
import hashlib
import json
import os
import subprocess
import tempfile


class Model:
    """A model file. Requests and results are kept in `directory`, where an interrupted run continues, or nowhere."""

    def __init__(self, model, program="./llama31", options=(), directory=None):
        self.model = model
        self.command = [program]
        self.arguments = ["-m", model] if model else []
        self.options = self.arguments + list(options)
        self.directory = directory
        if directory:
            os.makedirs(directory, exist_ok=True)

    def run(self, command, records, places=None):
        """Returns the result of each record, in order. Raises RuntimeError if one has an error, with its place (default:
        its number), and CalledProcessError if llama31 fails, which has written the reason."""
        requests = "".join(json.dumps(dict(r, id=i)) + "\n" for i, r in enumerate(records)).encode()
        with tempfile.TemporaryDirectory() as temporary:
            name = hashlib.sha256(repr((command, self.options)).encode() + requests).hexdigest()[:16]
            path = os.path.join(self.directory or temporary, name)
            source, output = path + ".in.jsonl", path + ".out.jsonl"
            with open(source, "wb") as f:
                f.write(requests)
            arguments = command + ["-i", source, "-o", output, "--resume"] + self.options
            code = subprocess.run(self.command + arguments).returncode
            if code not in (0, 5):
                raise subprocess.CalledProcessError(code, self.command + command)
            with open(output, encoding="utf-8") as f:
                results = {r["id"]: r for r in map(json.loads, f)}
        for i, r in results.items():
            if "error" in r:
                place = places[i] if places else "%s: request %d" % (command[0], i + 1)
                raise RuntimeError("%s: %s" % (place, r["error"]["message"].partition(": ")[2]))
        return [results[i] for i in range(len(records))]

    def score(self, records, places=None):
        """Results of score --jsonl, one per record."""
        return self.run(["score", "--jsonl"], records, places)

    def generate(self, records, places=None):
        """Greedy completions by batch, one per record. Either all records have prompts, or all have messages."""
        raw = ["--raw"] if records and "prompt" in records[0] else []
        return self.run(["batch", "--deterministic", *raw], [dict({"temperature": 0}, **r) for r in records],
                        places)

    def context(self):
        """The context size that the options set or, without it, that of the model."""
        sizes = [n for name, n in zip(self.options, self.options[1:]) if name in ("-c", "--ctx-size", "--context")]
        out = subprocess.run(self.command + ["show", "--json", "-q"] + self.arguments, stdout=subprocess.PIPE, check=True)
        return int(sizes[-1] if sizes else 0) or json.loads(out.stdout)["context"]

    def ids(self, texts, *options):
        """Token ids of texts, without BOS. options are passed to `llama31 tokenize`."""
        lines = "".join(json.dumps(t) + "\n" for t in texts).encode()
        out = subprocess.run(self.command + ["tokenize", "--jsonl", *options] + self.arguments, input=lines,
                             stdout=subprocess.PIPE, check=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def prompt_ids(self, texts):
        """Token ids of texts in which special tokens count. BOS precedes them if the vocabulary adds it to a text and
        the text does not begin with it."""
        plain, *lists = self.ids(["a"] + texts, "--special")
        echo = self.generate([{"prompt": "a", "echo": True, "logprobs": 0, "max_tokens": 0}])[0]["logprobs"]
        prefix = [t["id"] for t in echo[:len(echo) - len(plain)]]
        return [ids if ids[:len(prefix)] == prefix else prefix + ids for ids in lists]
