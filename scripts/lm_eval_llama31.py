#!/usr/bin/env python3
"""The model "llama31" of lm-evaluation-harness: log-likelihoods by `llama31 score`, generation by `llama31 batch`.

    python3 scripts/lm_eval_llama31.py --model llama31 --model_args model=FILE.gguf --tasks arc_easy

Model arguments: model, program (default: that of the scripts, or in PATH), directory (keeps requests and results, and continues an
interrupted run), and options: further options of llama31, separated by spaces. The texts are encoded as by the
harness's own classes with add_bos_token=True if the vocabulary adds BOS. Generation settings of a task, such as top_p,
are members of a record of batch."""
import json
import os
import sys

FOLDER = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, FOLDER)
import lib.interrupt  # noqa: E402, F401
from lib.program import find_program  # noqa: E402
from lib.scoring import Model  # noqa: E402

sys.path[:] = [path for path in sys.path if path != FOLDER]  # evaluate.py would hide the harness's package `evaluate`

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:  # the class works with any object that has its methods called
    LM = object

    def register_model(name):
        return lambda c: c


MAX_TOKENS = "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"  # one setting, the first counts
MESSAGES = '[{"role": '  # the beginning of a context that is a dialogue


def context_of(text, name):
    """The member of a request for a context: a dialogue of apply_chat_template(), or a text."""
    return {"messages": json.loads(text)} if text.startswith(MESSAGES) else {name: text}


@register_model("llama31")
class Llama31(LM):
    """Requests are objects with `args`, as in the harness."""

    def __init__(self, model, program=None, directory=None, options="", max_gen_toks=256, **_):
        super().__init__()
        self.runner = Model(model, program or find_program() or "llama31", str(options).split(), directory)
        self.max_gen_toks = int(max_gen_toks)

    @property
    def tokenizer_name(self):
        return os.path.basename(self.runner.model)

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        """Returns the messages as JSON, because llama31 applies the template."""
        if not add_generation_prompt:
            raise NotImplementedError("llama31: the beginning of an answer (gen_prefix) together with a chat template")
        return json.dumps([{"role": m["role"], "content": m["content"]} for m in chat_history])

    def loglikelihood(self, requests, disable_tqdm=False):
        records = [{**context_of(r.args[0], "context"), "continuation": r.args[1]} for r in requests]
        return [(r["logprob"], r["is_greedy"]) for r in self.runner.score(records)]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        texts = [r.args[0] for r in requests]
        results = iter(self.runner.score([{"text": t} for t in texts if t]))
        return [next(results)["logprob"] if t else 0.0 for t in texts]

    def generate_until(self, requests, disable_tqdm=False):
        records, n_context = [], self.runner.context()
        for r, ids in zip(requests, self.runner.ids([r.args[0] for r in requests])):
            settings = dict(r.args[1])
            until = settings.pop("until", None) or []
            sampled = settings.pop("do_sample", settings.get("temperature", 0) > 0)
            limits = [settings.pop(name, None) for name in MAX_TOKENS]
            n_tokens = int(next((n for n in limits if n is not None), self.max_gen_toks))
            context = context_of(r.args[0], "prompt")
            if "prompt" in context and 0 < n_context - n_tokens <= len(ids):  # with BOS
                context = {"prompt": ids[n_tokens - n_context:]}
            records.append({**settings, **context,
                            "stop": [until] if isinstance(until, str) else [s for s in until if s],
                            "max_tokens": n_tokens,
                            "temperature": settings.get("temperature", 1) if sampled else 0})
        return [r["text"] for r in self.runner.generate(records)]


if __name__ == "__main__":
    if LM is object and {"-h", "--help"} & set(sys.argv[1:]):
        print("usage: lm_eval_llama31.py [options of lm-evaluation-harness]\n\n" + __doc__)
        sys.exit()
    if LM is object:
        sys.exit("lm_eval_llama31: lm-evaluation-harness is missing (pip install lm-eval)")
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()
