#!/usr/bin/env python3
"""Converts a checkpoint of Llama or a similar family, or a LoRA adapter, to one GGUF file. Needs only the Python
standard library.

SOURCE is one of
  a directory as released by Meta: consolidated.00.pth (.01.pth ...), params.json, tokenizer.model
  a directory as on Hugging Face: *.safetensors, config.json, tokenizer.json (tokenizer.model)
  a llama2.c model: NAME.bin with tokenizer.bin in the same directory
  a LoRA adapter as saved by PEFT: adapter_model.safetensors (.bin), adapter_config.json; --base gives the directory
      of its base model (config.json is enough)
  an EAGLE-3 draft head as on Hugging Face; --base gives the directory of its target model (config.json and tokenizer)

Weights are streamed from file to file. The output is written to a temporary file and renamed when complete.

Meta's params.json has use_scaled_rope, but no factor: it is 32 for Llama 3.2 1B and 3B (dim 2048 and 3072), else 8,
unless --rope-factor is given. It has no context length either: 131072 with scaled RoPE, 8192 for Llama 3, 4096 for
Llama 2, unless --context is given."""
import lib.interrupt  # noqa: F401
import argparse
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

if sys.version_info < (3, 7):  # before imports that older versions cannot parse
    sys.exit("export.py: Python 3.7 or newer is required, this is %d.%d" % sys.version_info[:2])

from lib.adapters import Merged, Scaled, Transposed, read_adapter, rows
from lib.checkpoints import read_json, read_pth, read_safetensors, without_wrappers
from lib.config import find_checkpoint, model_name, note, read_config, read_sampling, window_of
from lib.gguf_writer import Failure, FILE_TYPES, check_output, product, run, write_gguf
from lib.program import find_program
from lib.vocabulary import MAX_TOKENS, check_vocabulary, huggingface_vocabulary, llama2c_vocabulary, meta_vocabulary
from lib.weights import (ColumnShards, Converted, File, Half, Interleaved, Literal, RowShards, Stacked, View, Weight,
                         convert, inside, read_bytes, same)


class Config:
    """The hyperparameters of a model."""
    rope_theta = 10000.0
    norm_eps = 1e-5
    rope = None  # scaling rule: {"rope_type", "factor", ...}
    architecture = "llama"
    is_half_order = True  # rows of q and k in Hugging Face's checkpoints are reordered (to_meta_order)
    extra = {}  # metadata of the family, without the architecture
    qk_norm = None  # norms of q and k: of each "head", or of the whole "row"
    n_experts = n_used = 0  # experts of a layer, and those that a token uses; 0: all layers are dense
    n_dense = 0  # layers before the first one with experts
    expert_dim = shared_dim = 0  # hidden dim of an expert, and of the shared expert; 0: no shared expert
    has_choice_bias = has_shared_gate = has_fused_qkv = False  # exp_probs_b, ffn_gate_inp_shexp, attn_qkv

    def check(self, where):
        counts = (self.dim, self.hidden_dim, self.n_layers, self.n_heads, self.n_kv_heads, self.head_dim,
                  self.vocab_size, self.context_length)
        limits = 1 << 17, 1 << 20, 4096, 1024, 1024, 1024, MAX_TOKENS, (1 << 31) - 1  # those of model/load.c, or above
        if not all(type(n) is int and 0 < n <= limit for n, limit in zip(counts, limits)) or \
                self.n_heads % self.n_kv_heads or self.head_dim % 2 or \
                not all(type(x) in (int, float) and 0 < x < 1e38 for x in (self.rope_theta, self.norm_eps)) or \
                not all(abs(x) < 1e38 for x in self.extra.values()):
            raise Failure("%s: invalid hyperparameters: dim, hidden dim, layers, heads, KV heads, head dim, vocabulary, "
                      "context = %s, RoPE base %s, epsilon %s" % (where, counts, self.rope_theta, self.norm_eps))
        experts = self.n_experts, self.n_used, self.expert_dim, self.shared_dim, self.n_dense
        limits = (1, 1024), (1, self.n_experts), (1, 1 << 20), (0, 1 << 20), (0, self.n_layers - 1)
        if self.n_experts != 0 and not all(low <= n <= high for n, (low, high) in zip(experts, limits)):
            raise Failure("%s: invalid hyperparameters: experts, experts used, their hidden dim, that of the shared "
                          "expert, dense layers = %s" % (where, experts))

    def shapes(self):
        """{GGUF name: shape} of all tensors, except output.weight, which may be tied to the embedding."""
        dim, q_dim, kv_dim = self.dim, self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        layer = {"attn_norm": (dim,), "attn_q": (q_dim, dim), "attn_k": (kv_dim, dim), "attn_v": (kv_dim, dim),
                 "attn_output": (dim, q_dim), "ffn_norm": (dim,)}
        if self.has_fused_qkv:
            layer["attn_qkv"] = (sum(layer.pop(name)[0] for name in ("attn_q", "attn_k", "attn_v")), dim)
        if self.qk_norm:
            is_row = self.qk_norm == "row"
            layer.update({"attn_q_norm": (q_dim if is_row else self.head_dim,),
                          "attn_k_norm": (kv_dim if is_row else self.head_dim,)})
        shapes = {"token_embd.weight": (self.vocab_size, dim)}
        for i in range(self.n_layers):
            for name, shape in {**layer, **self.ffn_shapes(i)}.items():
                shapes["blk.%d.%s.%s" % (i, name, "bias" if name == "exp_probs_b" else "weight")] = shape
        shapes["output_norm.weight"] = (dim,)
        return shapes

    def ffn_shapes(self, layer):
        """The shapes of a dense FFN, or of router, experts and shared expert. The expert is the first dimension."""
        def swiglu(suffix, hidden_dim, *experts):
            into, out = experts + (hidden_dim, self.dim), experts + (self.dim, hidden_dim)
            return {"ffn_gate" + suffix: into, "ffn_up" + suffix: into, "ffn_down" + suffix: out}

        if layer < self.n_dense or not self.n_experts:
            return swiglu("", self.hidden_dim)
        shapes = {"ffn_gate_inp": (self.n_experts, self.dim)}
        if self.has_choice_bias:
            shapes["exp_probs_b"] = (self.n_experts,)
        shapes.update(swiglu("_exps", self.expert_dim, self.n_experts))
        if self.shared_dim:
            shapes.update(swiglu("_shexp", self.shared_dim))
        if self.has_shared_gate:
            shapes["ffn_gate_inp_shexp"] = (self.dim,)
        return shapes

    def metadata(self, file_type):
        m = {
            "vocab_size": self.vocab_size,
            "context_length": self.context_length,
            "embedding_length": self.dim,
            "block_count": self.n_layers,
            "feed_forward_length": self.hidden_dim,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": float(self.norm_eps),
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": float(self.rope_theta),
        }

        if self.n_experts:
            m.update({"expert_count": self.n_experts, "expert_used_count": self.n_used})
        # No type and factor for llama3: rope_freqs.weight has the scaling, and a factor would be applied on top of it.
        if self.rope:
            if self.rope["rope_type"] != "llama3":
                m["rope.scaling.type"] = self.rope["rope_type"]
                m["rope.scaling.factor"] = float(self.rope["factor"])
            if "original_max_position_embeddings" in self.rope:
                m["rope.scaling.original_context_length"] = self.rope["original_max_position_embeddings"]

        m.update(self.extra)
        m = {self.architecture + "." + key: value for key, value in m.items()}
        m.update({"general.architecture": self.architecture, "general.name": self.name.encode("utf-8", "replace"),
                  "general.file_type": file_type})
        return m

    def divisors(self):
        """rope_freqs.weight, the frequency divisors of Llama 3.1: the factor for long wavelengths, 1 for short ones, a
        smooth transition between (docs/rope.md)."""
        if not self.rope or self.rope["rope_type"] != "llama3":
            return []
        factor, low, high = (float(self.rope[k]) for k in ("factor", "low_freq_factor", "high_freq_factor"))
        context, divisors = self.rope["original_max_position_embeddings"], []
        for i in range(self.head_dim // 2):
            wavelength = 2 * math.pi * self.rope_theta ** (2 * i / self.head_dim)
            turns = context / wavelength
            smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
            divisors.append(1 / ((1 - smooth) / factor + smooth))
        return [Literal("rope_freqs.weight", "f32", (len(divisors),), struct.pack("<%df" % len(divisors), *divisors))]


NO_BIAS = r"token_embd|attn_qkv|ffn_gate_inp|_shexp"
HEAD_NO_BIAS = NO_BIAS + r"|^fc|^output\."


def bind(config, tensors, where, shapes=None):
    """Checks the shapes of {GGUF name: tensor}. Returns the tensors in the order in which a forward pass reads them."""
    shapes = shapes or config.shapes()
    kind, no_bias = ("an EAGLE-3 draft head", HEAD_NO_BIAS) if "fc.weight" in shapes else ("a Llama model", NO_BIAS)
    if "output.weight" in tensors and "output.weight" not in shapes:
        shapes["output.weight"] = shapes["token_embd.weight"]
    for name in tensors:
        weight = re.sub(r"\.bias$", ".weight", name)
        if weight != name and len(shapes.get(weight, ())) == 2 and not re.search(no_bias, name):
            shapes[name] = shapes[weight][:1]
    for name in sorted(set(shapes) - set(tensors)):
        raise Failure("%s: missing tensor %s" % (where, name))
    for name in sorted(set(tensors) - set(shapes)):
        raise Failure("%s: %s: not a tensor of %s with %d layers" % (where, ascii(name)[1:-1], kind, config.n_layers))
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise Failure("%s: %s: expected shape %s, found %s" % (where, name, shape, tensors[name].shape))
        tensors[name].name = name
    return [tensors[name] for name in shapes]


# llama2.c

def read_llama2c(path, tokenizer):
    """Returns the config, weights and tokenizer metadata of a llama2.c file, version 0 or 1."""
    file = File(path)
    head = file.read(0, 28)
    version = 0
    if head[:4] == b"24ka":
        version = struct.unpack("<i", head[4:8])[0]
        if version != 1:
            raise Failure("%s: llama2.c version %d (quantized) is not supported; export version 0 or 1" %
                      (file.name, version))
        head = file.read(8, 29)
    c = Config()
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.n_kv_heads, vocab, c.context_length = struct.unpack("<7i", head[:28])
    c.vocab_size, tied = abs(vocab), head[28] == 1 if version else vocab > 0
    c.head_dim = c.dim // max(c.n_heads, 1)
    c.name = os.path.splitext(file.name)[0]
    c.check(file.name)

    # Version 0 stores norms among the matrices, version 1 all norms first.
    def layers(*names):
        return ["blk.%d.%s.weight" % (i, name) for name in names for i in range(c.n_layers)]

    attention, ffn = layers("attn_q", "attn_k", "attn_v", "attn_output"), layers("ffn_gate", "ffn_down", "ffn_up")
    if version:
        names = layers("attn_norm", "ffn_norm") + ["output_norm.weight", "token_embd.weight"] + attention + ffn
    else:
        names = ["token_embd.weight"] + layers("attn_norm") + attention + layers("ffn_norm") + ffn
        names.append("output_norm.weight")
    shapes, tensors, offset = c.shapes(), {}, 256 if version else 28
    for name in names:
        w = tensors[name] = Weight(file, name, "f32", shapes[name], offset)
        offset += w.n_rows * w.row_bytes
    if not version:  # the cis table
        offset += 4 * c.context_length * c.head_dim
    if not tied:
        w = tensors["output.weight"] = Weight(file, "output.weight", "f32", shapes["token_embd.weight"], offset)
        offset += w.n_rows * w.row_bytes
    if offset != file.size:
        raise Failure("%s: expected %d bytes, found %d" % (file.name, offset, file.size))

    directory = os.path.dirname(path)
    names = [tokenizer] if tokenizer else [inside(directory, n) for n in ("tok%d.bin" % c.vocab_size, "tokenizer.bin")]
    for name in names:
        if tokenizer or os.path.exists(name):
            return c, bind(c, tensors, file.name), llama2c_vocabulary(name, c.vocab_size)
    raise Failure("%s: no tokenizer; expected %s" % (file.name, " or ".join(names)))


# Meta

META_NAMES = {"tok_embeddings": "token_embd", "norm": "output_norm", "output": "output"}
META_LAYER = {"attention_norm": "attn_norm", "attention.wq": "attn_q", "attention.wk": "attn_k",
              "attention.wv": "attn_v", "attention.wo": "attn_output", "ffn_norm": "ffn_norm",
              "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down"}
# torchtune's names; its rows of q and k are in Meta's order.
TORCHTUNE_LAYER = {"sa_norm": "attn_norm", "attn.q_proj": "attn_q", "attn.k_proj": "attn_k", "attn.v_proj": "attn_v",
                   "attn.output_proj": "attn_output", "mlp_norm": "ffn_norm", "mlp.w1": "ffn_gate", "mlp.w3": "ffn_up",
                   "mlp.w2": "ffn_down"}
HF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
HF_LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
            "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
            "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
# More names of mixtures of experts, after stack_experts.
MOE_LAYER = {
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps", "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.gate_proj": "ffn_gate_exps", "block_sparse_moe.up_proj": "ffn_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps", "mlp.gate.choice": "exp_probs_b",
    "mlp.moe_statics.choice": "exp_probs_b", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "shared_mlp.gate_proj": "ffn_gate_shexp", "shared_mlp.up_proj": "ffn_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp", "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output", "attention.query_layernorm": "attn_q_norm",
    "attention.key_layernorm": "attn_k_norm"}


def gguf_name(name, names, layer_names):
    """The GGUF name of a checkpoint tensor, or None for RoPE frequencies. Unknown names are returned unchanged."""
    if name.endswith(("rope.freqs", "rotary_emb.inv_freq")):
        return None
    part, dot, kind = name.rpartition(".")
    if kind not in ("weight", "bias", "scale"):
        return name
    kind = "weight" if kind == "scale" else kind
    m = re.match(r"(?:model\.)?layers\.(\d{1,4})\.(.*)$", part)
    if m and m.group(2) in layer_names:
        return "blk.%d.%s.%s" % (int(m.group(1)), layer_names[m.group(2)], kind)
    part = part if part in names else "model." + part  # saved without the output
    return names[part] + dot + kind if part in names else name


def renamed(tensors, names, layer_names):
    """{GGUF name: checkpoint name}"""
    out = {}
    for name in tensors:
        to = gguf_name(name, names, layer_names)
        if to in out:
            raise Failure("%s and %s are the same tensor" % (out[to], name))
        if to:
            out[to] = name
    return out


def join(parts, n_cols):
    """Joins the shards of a tensor. Model parallelism splits wq, wk, wv, w1, w3, the output and Llama 3's embedding by
    rows (a shard then has all n_cols columns), wo, w2 and Llama 2's embedding by columns. Norms are repeated in every
    file."""
    if len(parts) == 1 or len(parts[0].shape) == 1:
        return parts[0]
    along_rows = parts[0].shape[1] == n_cols
    kept = 1 if along_rows else 0
    if any(len(p.shape) != 2 or p.shape[kept] != parts[0].shape[kept] or p.type != parts[0].type for p in parts):
        raise Failure("%s: shards of inconsistent shapes: %s" % (parts[0].name, [p.shape for p in parts]))
    return RowShards(parts) if along_rows else ColumnShards(parts)


def meta_files(directory):
    """Meta's consolidated.NN.pth, or the only .pth or .pt file of a trainer."""
    files = sorted(f for f in os.listdir(directory) if f.endswith((".pth", ".pt")))
    return [f for f in files if re.match(r"consolidated\.\d+\.pth$", f)] or (files if len(files) == 1 else [])


def read_meta(directory, options):
    params = read_json(directory, "params.json")
    files = meta_files(directory)
    numbers = [int(f.split(".")[1]) if f.startswith("consolidated.") else i for i, f in enumerate(files)]
    if not files or numbers != list(range(len(files))):
        raise Failure("%s: expected consolidated.00.pth, consolidated.01.pth, ..., found %s" %
                      (directory, ", ".join(files) or "none"))

    shards = [read_pth(inside(directory, f)) for f in files]
    for f, shard in zip(files, shards):
        for name in sorted(set(shard) ^ set(shards[0])):
            raise Failure("%s: %s: missing in some of the files" % (f, name))

    names = renamed(shards[0], META_NAMES, {**META_LAYER, **TORCHTUNE_LAYER})
    parts = {to: [shard[name] for shard in shards] for to, name in names.items()}
    for needed in ("token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                   "blk.0.ffn_gate.weight"):
        if needed not in parts:
            raise Failure("%s: missing tensor %s" % (files[0], needed))

    c = Config()
    c.name = model_name(directory)
    try:
        c.dim, c.n_layers, c.n_heads = params["dim"], params["n_layers"], params["n_heads"]
        c.n_kv_heads = params.get("n_kv_heads") or c.n_heads
        c.norm_eps, c.rope_theta = params["norm_eps"], params.get("rope_theta", c.rope_theta)
        c.head_dim = c.dim // c.n_heads
        wq = parts["blk.0.attn_q.weight"][0].shape
        if c.dim > 0 and wq[0] * len(files) != c.dim:
            raise Failure("%s: expected %d files consolidated.NN.pth, found %d" % (directory, c.dim // wq[0], len(files)))
        if len(files) > c.n_kv_heads:  # then KV heads are repeated, one per file
            c.n_kv_heads = len(files)
        c.hidden_dim = sum(p.shape[0] for p in parts["blk.0.ffn_gate.weight"])
    except (ZeroDivisionError, IndexError):
        raise Failure("params.json: n_heads: expected 1 or more, and matrices of the sizes that it gives")

    # Context length and scaling follow from two values. The sizes of Llama 3.2 have another factor.
    scaled = bool(params.get("use_scaled_rope"))
    if scaled:
        factor = options.rope_factor or (32.0 if c.dim in (2048, 3072) else 8.0)
        c.rope = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192}
        if not options.rope_factor:
            sys.stderr.write("note: params.json has no RoPE factor; using %g for dim %d (--rope-factor overrides)\n" %
                             (factor, c.dim))
    c.context_length = 131072 if scaled else 8192 if c.rope_theta == 500000 else 4096

    tensors = {name: join(p, c.hidden_dim if name.endswith("ffn_down.weight") else c.dim) for name, p in parts.items()}
    c.vocab_size = tensors["token_embd.weight"].shape[0]
    if params.get("vocab_size", -1) not in (-1, c.vocab_size):
        raise Failure("params.json: vocab_size is %s, but the embedding has %d rows" %
                      (params["vocab_size"], c.vocab_size))

    c.check("params.json")
    weights = bind(c, tensors, directory)

    # A tied output matrix may be stored twice, or left out by Llama 3.2.
    if same(tensors["token_embd.weight"], tensors.get("output.weight")):
        weights.remove(tensors["output.weight"])
    elif "output.weight" not in tensors and c.dim not in (2048, 3072):
        raise Failure("%s: missing tensor output.weight" % directory)

    vocabulary = meta_vocabulary(options.tokenizer or inside(directory, "tokenizer.model"))
    return c, weights, vocabulary


# Hugging Face

# model_type: (general.architecture, rows of q and k are in half order and the family wants adjacent pairs, norms of q
# and k)
FAMILIES = {
    "llama": ("llama", True, None), "mistral": ("llama", True, None), "qwen2": ("qwen2", False, None),
    "qwen3": ("qwen3", False, "head"), "smollm3": ("smollm3", True, None), "granite": ("granite", True, None),
    "ministral3": ("mistral3", True, None), "ernie4_5": ("ernie4_5", False, None)}
MOE_FAMILIES = {
    "qwen3_moe": ("qwen3moe", False, "head"), "mixtral": ("llama", True, None),
    "granitemoe": ("granitemoe", True, None), "granitemoeshared": ("granitemoe", True, None),
    "ernie4_5_moe": ("ernie4_5-moe", False, None), "olmoe": ("olmoe", False, "row"),
    "qwen2_moe": ("qwen2moe", False, None), "dots1": ("dots1", False, "head"),
    "bailing_moe": ("bailingmoe2", False, "head"), "bailing_moe_v2": ("bailingmoe2", False, "head"),
    "deepseek": ("deepseek", True, None)}
# Metadata of experts beyond their number, as files of the architecture have it.
SIZES = "expert_feed_forward_length expert_shared_count leading_dense_block_count "
ROUTER = "expert_gating_func expert_weights_scale "
GROUPS = "expert_weights_norm expert_group_count expert_group_used_count "
MOE_KEYS = {
    "llama": "", "olmoe": "", "granitemoe": "expert_shared_feed_forward_length",
    "qwen3moe": "expert_feed_forward_length",
    "qwen2moe": "expert_feed_forward_length expert_shared_feed_forward_length",
    "ernie4_5-moe": SIZES + "expert_shared_feed_forward_length interleave_moe_layer_step",
    "deepseek": SIZES + ROUTER, "dots1": SIZES + ROUTER + GROUPS,
    "bailingmoe2": SIZES + ROUTER + GROUPS + "expert_shared_feed_forward_length rope.dimension_count"}
# Values that files of an architecture cannot express otherwise. None: the key is absent.
MOE_CONSTANTS = {
    "qwen3moe": {"norm_topk_prob": (True,), "decoder_sparse_step": (None, 1), "mlp_only_layers": (None, [])},
    "qwen2moe": {"norm_topk_prob": (None, False), "decoder_sparse_step": (None, 1), "mlp_only_layers": (None, [])},
    "olmoe": {"norm_topk_prob": (None, False), "clip_qkv": (None,)},
    "bailingmoe2": {"architectures": (["BailingMoeV2ForCausalLM"],), "norm_head": (None, False)},
    "deepseek": {"norm_topk_prob": (None, False), "moe_layer_freq": (None, 1), "scoring_func": (None, "softmax"),
                 "routed_scaling_factor": (None, 1)}}
NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
          "max_position_embeddings", "rms_norm_eps")
UNTIED = "qwen2moe", "olmoe", "bailingmoe2", "dots1"  # their files have an output matrix, even if it is the embedding
SCORES = {"softmax": 1, "sigmoid": 2, "noaux_tc": 2}  # Dots gives the name of the choice with a bias


def family_values(c, config, rope):
    """The metadata that the family has beyond Llama's. Rejects what GGUF files of the family cannot express."""
    no_rope, interval = config.get("no_rope_layers"), config.get("no_rope_layer_interval")
    limits = rope.get("beta_fast") or 32, rope.get("beta_slow") or 1

    if c.architecture != "bailingmoe2" and rope["partial_rotary_factor"] not in (None, 1):
        raise Failure("config.json: partial_rotary_factor: expected 1, found %s" % rope["partial_rotary_factor"])
    if c.architecture == "smollm3" and no_rope is not None and (
            len(no_rope) != c.n_layers or no_rope != [int((i + 1) % 4 != 0) for i in range(len(no_rope))]):
        raise Failure("config.json: no_rope_layers: expected every fourth layer")

    # transformers computes the list from the interval if there is none. The program skips every fourth layer.
    if c.architecture == "smollm3" and interval not in (None, 4) and \
            (no_rope or interval < 1 or min(interval, 4) <= c.n_layers):
        raise Failure("config.json: no_rope_layer_interval: expected 4, found %d%s" %
                      (interval, ", which contradicts no_rope_layers" if no_rope else ""))

    # Scaling rules of RoPE.
    if c.rope and c.architecture != "llama":
        if c.rope["rope_type"] == "llama3" and c.architecture not in ("granite", "granitemoe", "mistral3"):
            raise Failure("config.json: rope_scaling: llama3 is not a rule of %s" % c.architecture)
        if c.architecture != "mistral3" and limits != (32, 1):
            raise Failure("config.json: rope_scaling: beta_fast and beta_slow cannot be exported")
    is_yarn = c.rope and c.rope["rope_type"] == "yarn"
    has_ratio = c.architecture != "mistral3" and rope.get("mscale") and rope.get("mscale_all_dim")
    if is_yarn and (rope.get("attention_factor") is not None or rope.get("truncate") is False or has_ratio):
        raise Failure("config.json: rope_scaling: attention_factor, mscale and truncate cannot be exported")

    # Factors of Granite.
    if c.architecture in ("granite", "granitemoe"):
        return {"embedding_scale": float(config.get("embedding_multiplier", 1)),
                "residual_scale": float(config.get("residual_multiplier", 1)),
                "attention.scale": float(config.get("attention_multiplier", 1)),
                "logit_scale": float(config.get("logits_scaling", 1))}

    # YaRN, and the temperature of attention.
    betas = {"rope.scaling.yarn_beta_fast": float(limits[0]), "rope.scaling.yarn_beta_slow": float(limits[1])}
    if c.architecture != "mistral3":
        return betas if is_yarn and limits != (32, 1) else {}
    if rope.get("mscale", 1) != 1:
        raise Failure("config.json: rope_scaling: mscale: expected 1, found %s" % ascii(rope["mscale"]))
    values = {"attention.temperature_scale": float(rope.get("llama_4_scaling_beta") or 0)}
    if is_yarn:
        values.update(betas, **{"rope.scaling.yarn_log_multiplier": float(rope.get("mscale_all_dim") or 0)})
    return values


def expert_values(c, config):
    """Sets what the config says of experts. Returns their metadata."""
    def count(*keys):
        key = next((key for key in keys if config.get(key) is not None), None)
        n = config[key] if key else 0
        if not 0 <= n < 1 << 20:
            raise Failure("config.json: %s: expected a number, found %s" % (key, n))
        return n

    for key, values in MOE_CONSTANTS.get(c.architecture, {}).items():
        if config.get(key) not in values:
            raise Failure("config.json: %s: expected %s, found %s" % (key, values[-1], ascii(config.get(key))[:60]))

    # Sizes. A checkpoint has the length of the shared expert, or its length in other experts.
    c.n_experts = count("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    c.n_used, c.n_dense = count("num_experts_per_tok", "moe_k"), count("first_k_dense_replace", "moe_layer_start_index")
    c.expert_dim = count("moe_intermediate_size") or count("intermediate_size")
    n_shared = count("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    c.shared_dim = n_shared * (count("moe_shared_expert_intermediate_size") or c.expert_dim) or \
        count("shared_expert_intermediate_size", "shared_intermediate_size")
    c.has_shared_gate, c.has_fused_qkv = c.architecture == "qwen2moe", c.architecture == "bailingmoe2"
    if not c.n_experts or c.architecture in ("qwen2moe", "bailingmoe2", "dots1", "deepseek") and not c.shared_dim:
        raise Failure("config.json: no experts, or no shared expert, which files of %s must have" % c.architecture)

    # Layers with experts: the first one, and all after it.
    step = count("moe_layer_interval") or 1
    c.n_dense = -(-(c.n_dense + 1) // step) * step - 1
    if step > 1 and c.n_dense != c.n_layers - 1 or config.get("moe_layer_end_index") not in (None, -1, c.n_layers - 1):
        raise Failure("config.json: moe_layer_interval, moe_layer_end_index: dense layers after one with experts")

    score = config.get("score_function") or config.get("scoring_func") or \
        ("softmax" if c.architecture == "deepseek" else "sigmoid")
    has_groups = count("n_group") > count("topk_group") > 0
    n_rotated = int(c.head_dim * min(1, config["rope"]["partial_rotary_factor"] or 0.5))
    if c.architecture == "bailingmoe2" and (n_rotated % 2 or n_rotated < 1):
        raise Failure("config.json: partial_rotary_factor: %d values of a head" % n_rotated)
    if score not in SCORES:
        raise Failure("config.json: scoring_func: expected softmax or sigmoid, found %s" % ascii(score))
    values = {
        "expert_feed_forward_length": c.expert_dim, "expert_shared_count": n_shared,
        "expert_shared_feed_forward_length": c.shared_dim // (n_shared if c.architecture == "bailingmoe2" else 1),
        "leading_dense_block_count": c.n_dense, "interleave_moe_layer_step": step,
        "expert_gating_func": SCORES[score], "expert_weights_scale": float(config.get("routed_scaling_factor", 1)),
        "expert_weights_norm": bool(config.get("norm_topk_prob", c.architecture == "bailingmoe2")),
        "expert_group_count": config["n_group"] if has_groups else 1,
        "expert_group_used_count": config["topk_group"] if has_groups else 1,
        "rope.dimension_count": n_rotated}
    keys = MOE_KEYS[c.architecture].split()
    return {key: values[key] for key in keys if c.shared_dim or key != "expert_shared_feed_forward_length"}


def check_draft(config):
    """Refuses draft heads of other kinds."""
    kinds = [*(config.get("architectures") or ()), config.get("model_type"), config.get("speculators_model_type")]
    for kind in kinds + ["medusa"] * ("medusa_num_heads" in config):
        what = next((what for pattern, what in OTHER_DRAFTS if re.search(pattern, kind or "", re.I)), None)
        if what:
            raise Failure("config.json: %s: a draft head of %s; only EAGLE-3 is supported" % (ascii(kind)[:60], what))


def huggingface_config(directory, options, is_base=False):
    """(Config, content of config.json, or of its text model). Only the shapes of a base model are used."""
    config = read_config(directory)
    if is_base:
        config["quantization_config"] = None

    # Unsupported values.
    check_draft(config)
    families = {**FAMILIES, **MOE_FAMILIES}
    for key, expected in (("model_type", tuple(families)), ("hidden_act", ("silu", None)), ("quantization_config", (None,))):
        if config.get(key) not in expected:
            remedy = "; if the weights are F32, F16 or BF16, delete the key" if key == "quantization_config" else ""
            raise Failure("config.json: %s: expected %s, found %s%s" %
                          (key, expected[0] or "none", str(config.get(key))[:60], remedy))
    for key in NEEDED:
        if config.get(key) is None:
            raise Failure("config.json: %s: missing" % key)

    # Shape and names.
    c = Config()
    c.name = model_name(directory, config)
    c.dim, c.hidden_dim, c.n_layers, c.n_heads, c.vocab_size, c.context_length, c.norm_eps = (
        config[key] for key in NEEDED)
    c.n_kv_heads = config.get("num_key_value_heads") or c.n_heads
    c.head_dim = config.get("head_dim") or c.dim // max(c.n_heads, 1)
    c.architecture, c.is_half_order, c.qk_norm = families[config["model_type"]]

    # RoPE.
    rope = config["rope"]
    c.rope_theta = rope["rope_theta"]
    if rope["rope_type"] != "default":
        c.rope = dict(rope, factor=options.rope_factor or rope["factor"])

    # Metadata beyond Llama's.
    c.extra = family_values(c, config, rope)
    if config["model_type"] in MOE_FAMILIES:
        c.extra.update(expert_values(c, config))
    c.check("config.json")
    window = window_of(config)
    if window:
        c.extra["attention.sliding_window"] = window
    return c, config


# Draft heads. The layer is "midlayer." in LlamaForCausalLMEagle3 and "layers.0." in Eagle3LlamaForCausalLM and the
# checkpoints of speculators.
HEAD_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "fc": "fc",
              "input_norm": "enc.output_norm"}
HEAD_LAYER = {**HF_LAYER, "hidden_norm": "attn_norm_2"}


# Settings of ModelOpt's eagle_config and of speculators, also at the top of config.json, and the values that are
# supported. norm_output and fc_norm are those of EAGLE 3.1: the normed state goes into the next step, and each of the
# target's states has a norm of its own.
HEAD_SETTINGS = {
    "norm_output": (None, False), "fc_norm": (None, False),
    "use_last_layernorm": (None, True), "use_input_layernorm_in_first_layer": (None, True),
    "use_aux_hidden_state": (None, True), "use_mtp_layernorm": (None, False), "parallel_draft_step": (None, 1),
    "speculators_model_type": (None, "eagle3"), "parallel_drafting": (None, False), "ptd_token_id": (None,),
    "mask_token_id": (None,),
    "model_type": ("qwen3", "qwen2", "mistral", "llama")}
# Other keys of eagle_config: implemented, or without effect on the equations of one layer.
HEAD_OTHERS = ("eagle_aux_hidden_state_layer_ids", "norm_before_fc", "norm_before_residual", "has_lm_head",
               "next_layer_regular", "parallel_draft_heads_num_layers", "eagle_decoder_type")
# Draft heads of other kinds, by a name in config.json. HASS trains heads of EAGLE-2.
OTHER_DRAFTS = (("medusa", "Medusa"), ("mtp", "multi-token prediction"), ("p-?eagle", "P-EAGLE"), ("dflash", "DFlash"),
                ("dspark", "DSpark"), ("domino", "Domino"), ("mlp_?speculator", "MLP speculators"),
                ("eagle(?!-?3)", "EAGLE or EAGLE-2"))


def check_biases(config, tensors):
    """Refuses biases that config.json denies: transformers does not read them."""
    for key, part in ("attention_bias", r"attn_\w+"), ("mlp_bias", r"ffn_\w+"):
        named = [name for name in tensors if re.fullmatch(r"blk\.\d+\.%s\.bias" % part, name)]
        if named and config.get(key) is False and not config["model_type"].startswith("qwen2"):
            raise Failure("config.json: %s: expected true with the tensor %s, found false" % (key, named[0]))


def is_head(config, names):
    """True for an EAGLE-3 draft head: by its tensors, or by config.json, whose architecture may be that of a model."""
    return config.get("speculators_model_type") == "eagle3" or "draft_vocab_size" in config or \
        any("eagle3" in name.lower() for name in config.get("architectures") or ()) or \
        any(re.match(r"d2t$|(model\.)?(fc\.weight$|midlayer\.)", name) for name in names)


def head_settings(config):
    """The content of config.json with that of its eagle_config. Rejects what changes the equations."""
    own = config.get("eagle_config") or {}
    settings = {**config, **own}
    for key in sorted(set(own) - set(HEAD_SETTINGS) - set(HEAD_OTHERS)):
        raise Failure("config.json: eagle_config: %s is not supported" % ascii(key)[:60])
    for key, expected in HEAD_SETTINGS.items():
        if settings.get(key) not in expected:
            raise Failure("config.json: %s: expected %s in an EAGLE-3 draft head, found %s" %
                          (key, expected[-1], ascii(settings[key])[:60]))
    return settings


def read_head(directory, c, config, shards, options):
    """A draft head with the vocabulary of its target. Tensors that it lacks are those of the target."""
    base = find_checkpoint(options.base or "")
    if not os.path.exists(os.path.join(base, "config.json")):
        raise Failure("%s: an EAGLE-3 draft head; --base DIRECTORY must give the config.json and the tokenizer of its "
                      "target model" % directory, 2)
    target, config = huggingface_config(base, options, is_base=True)[0], head_settings(config)
    c.is_half_order, c.qk_norm = True, None  # the layer is Llama's, even if model_type is that of the target
    shards = {re.sub(r"^(model\.)?midlayer\.", "layers.0.", name): w for name, w in shards.items()}
    d2t, t2d = shards.pop("d2t", None), shards.pop("t2d", None)
    if "fc.weight" in shards and shards["fc.weight"].shape[1:] == (2 * target.dim,):
        raise Failure("%s: fc.weight: a draft head of EAGLE or EAGLE-2; only EAGLE-3 is supported" % directory)
    if not d2t and (config.get("draft_vocab_size") or 0) < c.vocab_size and "draft_vocab_size" in config:
        raise Failure("%s: missing tensor d2t of a draft_vocab_size of %s" % (directory, config["draft_vocab_size"]))
    n_drafted = product(d2t.shape) if d2t else c.vocab_size
    for name, found, expected in (("num_hidden_layers", c.n_layers, 1), ("vocab_size", c.vocab_size, target.vocab_size),
                                  ("target_hidden_size", config.get("target_hidden_size") or target.dim, target.dim),
                                  ("draft_vocab_size", config.get("draft_vocab_size") or n_drafted, n_drafted)):
        if found != expected:
            raise Failure("%s: config.json: %s: expected %d, found %s" % (directory, name, expected, found))

    # Names and shapes. Only what the head can share with its target is optional.
    names = renamed((re.sub(r"^model\.(?!layers)", "", name) for name in shards), HEAD_NAMES, HEAD_LAYER)
    tensors = {to: shards.get(name) or shards["model." + name] for to, name in names.items()}
    check_biases(config, tensors)
    if config.get("tie_word_embeddings") and "token_embd.weight" in tensors:
        tensors.setdefault("output.weight", View(tensors["token_embd.weight"]))
    shapes = c.shapes()
    shapes.update({"blk.0.attn_%s.weight" % x: (shapes["blk.0.attn_%s.weight" % x][0], 2 * c.dim) for x in "qkv"})
    shapes.update({"fc.weight": (c.dim, 3 * target.dim), "blk.0.attn_norm_2.weight": (c.dim,),
                   "output.weight": (n_drafted, c.dim)})
    before_fc = bool(config.get("norm_before_fc") or "enc.output_norm.weight" in tensors)
    if before_fc:
        shapes["enc.output_norm.weight"] = (3 * target.dim,)
    for name in "token_embd.weight", "output.weight":
        if name not in tensors and c.dim == target.dim and (name != "output.weight" or not d2t):
            del shapes[name]
    weights = [to_meta_order(w, w.name, c) for w in bind(c, tensors, directory, shapes)]

    # The target's ids of the draft vocabulary; checkpoints have the differences from the draft's.
    if d2t:
        number = "<i" if d2t.type == "i32" else "<q"
        ids = [i + delta for i, (delta,) in enumerate(struct.iter_unpack(number, b"".join(d2t.pieces())))]
        marks = [i for i, mark in enumerate(b"".join(t2d.pieces()) if t2d else b"") if mark]
        if len(set(ids)) != len(ids) or not all(0 <= i < c.vocab_size for i in ids) or \
                t2d and sorted(ids) != marks:
            raise Failure("%s: d2t: expected %d different tokens, those of t2d" % (directory, n_drafted))
        weights.append(Literal("d2t", "i64", (n_drafted,), struct.pack("<%dq" % n_drafted, *ids)))

    # GGUF has the layers of which the input is taken. Ids that begin with 1 are those of layers of which the output is
    # (sglang 25454), as ModelOpt and SpecForge write them.
    layers = config.get("eagle_aux_hidden_state_layer_ids") or \
        [2, target.n_layers // 2, target.n_layers - 3]
    if layers[0] == 1:
        note("config.json: eagle_aux_hidden_state_layer_ids %s begin with 1 and are taken for outputs of layers", layers)
        layers = [i + 1 for i in layers]
    if len(layers) != 3 or not all(0 <= i < target.n_layers for i in layers):
        raise Failure("%s: eagle_aux_hidden_state_layer_ids: expected 3 layers below %d, found %s" %
                      (directory, target.n_layers, layers))
    c.architecture = "eagle3"
    c.extra.update(target_layers=layers, target_hidden_size=target.dim, norm_before_fc=before_fc,
                   norm_before_residual=bool(config.get("norm_before_residual")))
    return c, weights, huggingface_vocabulary(base, c.vocab_size)


def read_huggingface(directory, options):
    c, config = huggingface_config(directory, options)
    shards = read_shards(directory)
    if is_head(config, shards):
        return read_head(directory, c, config, shards, options)

    # Layers of a model with other parts: "language_model.model.layers." or "model.language_model.layers.".
    if config.get("has_other_parts"):
        shards = {name.replace("language_model.", "", 1): w for name, w in shards.items() if "language_model." in name or
                  name.startswith("lm_head.")}

    layer_names = HF_LAYER
    if c.n_experts:
        n_extra = config.get("num_nextn_predict_layers") or 0
        shards, layer_names = stack_experts(shards, c, n_extra), {**HF_LAYER, **MOE_LAYER}

    tensors = {to: shards[name] for to, name in renamed(shards, HF_NAMES, layer_names).items()}
    check_biases(config, tensors)
    c.has_choice_bias = any(name.endswith(".exp_probs_b.bias") for name in tensors)

    # The output matrix: tied or not.
    output, embedding = tensors.get("output.weight"), tensors.get("token_embd.weight")
    if not output and not config["is_tie_given"]:
        config["tie_word_embeddings"] = True
    if config.get("tie_word_embeddings"):
        if output and not same(embedding, output):
            note("%s: lm_head.weight is left out: config.json ties it to the embedding, from which it differs", directory)
        tensors.pop("output.weight", None)
        if c.architecture in UNTIED and embedding:
            tensors["output.weight"] = View(embedding)
    elif not output:
        raise Failure("%s: missing tensor lm_head.weight, which config.json does not tie to the embedding" % directory)

    weights = bind(c, tensors, directory)
    weights = [to_meta_order(w, w.name, c) for w in weights]
    return c, weights, dict(huggingface_vocabulary(directory, c.vocab_size), **read_sampling(directory))


def stack_experts(tensors, c, n_extra):
    """One tensor for the experts of a layer, and two for gate and up, under names of MOE_LAYER. Drops the n_extra layers
    that predict further tokens."""
    out, experts = {}, {}

    def put(name, w):
        if name in out:
            raise Failure("%s and %s are the same tensor" % (ascii(out[name].name), ascii(w.name)))
        out[name] = w

    for name, w in tensors.items():
        layer = re.match(r"model\.layers\.(\d{1,4})\.", name)
        if layer and c.n_layers <= int(layer.group(1)) < c.n_layers + n_extra or name.startswith("model.mtp_"):
            continue

        # Unified names.
        name = name.replace("model.word_embeddings.", "model.embed_tokens.")
        name = re.sub(r"\.(expert|e_score_correction)_bias$", ".choice.bias", name)
        name = re.sub(r"(\.experts\.(gate_up|down)_proj)$", r"\1.weight", name)
        expert = re.match(r"(.*\.experts)\.(0|[1-9]\d{0,3})\.(\w+\.weight)$", name)
        fused = re.match(r"(.*\.)(input_linear|gate_up_proj)\.weight$", name)

        # An expert; gate and up in one tensor; a vector stored as a matrix; any other tensor.
        if expert:
            experts.setdefault("%s.%s" % expert.group(1, 3), {})[int(expert.group(2))] = w
        elif fused:
            put(fused.group(1) + "gate_proj.weight", Half(w, 0))
            put(fused.group(1) + "up_proj.weight", Half(w, 1))
        elif name.endswith((".choice.bias", ".shared_expert_gate.weight")) and w.shape[:-1] == (1,):
            put(name, View(w, shape=w.shape[1:]))
        else:
            put(name, w)

    for name, parts in experts.items():
        if sorted(parts) != list(range(c.n_experts)):
            raise Failure("%s: expected experts 0 to %d, found %d" % (ascii(name), c.n_experts - 1, len(parts)))
        put(name, Stacked([parts[i] for i in range(c.n_experts)]))
    return out


def to_meta_order(weight, name, config):
    """Reorders the rows of query and key weights; returns others unchanged."""
    rotated = config.is_half_order and re.search(r"attn_[qk]\.(weight|bias)$", name)
    return Interleaved(weight, weight.shape[0] // config.head_dim) if rotated else weight


# Files of a model: index, names of the shards, reader. Mistral's consolidated.safetensors repeats the model under other
# names. The last row is for files of any name.
SHARDS = (("model.safetensors.index.json", r"model(-\d+-of-\d+)?\.safetensors$", read_safetensors),
          ("pytorch_model.bin.index.json", r"pytorch_model(-\d+-of-\d+)?\.bin$", read_pth),
          ("", r"(?!consolidated|adapter_).*\.safetensors$", read_safetensors))
WEIGHTS = ".safetensors", ".bin"


def read_shards(directory):
    """The tensors of all files of a model, checked against its index if it has one."""
    names = sorted(os.listdir(directory))
    form = next((form for form in SHARDS if form[0] in names or any(re.match(form[1], f) for f in names)), None)
    if not form:
        raise Failure("%s: expected model.safetensors or model-00001-of-0000N.safetensors, found %s" %
                      (directory, ", ".join(f for f in names if f.endswith(WEIGHTS))))
    index, pattern, read = form

    # The files: those of the index, or all.
    if index in names:
        where = read_json(directory, index).get("weight_map")
        if not where:
            raise Failure("%s: invalid weight_map" % index)
        files = sorted(set(where.values()))
        for f in files:
            if os.path.basename(f) != f or "\\" in f or not f.endswith(WEIGHTS):
                raise Failure("%s: %s: not a file name in this directory" % (index, ascii(f)))
    else:
        where, files = None, [f for f in names if re.match(pattern, f)]
        m = re.match(r".*-of-(\d+)\.\w+$", files[0])
        if len(files) != (int(m.group(1)) if m else 1):
            raise Failure("%s: expected %s safetensors files, found %d" %
                          (directory, int(m.group(1)) if m else 1, len(files)))

    tensors = {}
    for f in files:
        for name, w in read(inside(directory, f)).items():
            if name in tensors or where is not None and where.get(name) != f:
                raise Failure("%s: %s: duplicate tensor, or not in the file that the index names" % (f, ascii(name)))
            tensors[name] = w

    for name in sorted(set(where or ()) - set(tensors)):
        raise Failure("%s: missing tensor %s" % (where[name], ascii(name)))
    for name in tensors:
        if ".base_layer." in name or ".lora_" in name:
            raise Failure("%s: %s: layers of PEFT; merge the adapter first (merge_and_unload)" % (directory, ascii(name)))
    return without_wrappers(tensors)


# LoRA

def check_copies(directory, copies, names, base, config):
    """Compares the copies of base weights, which PEFT stores for an embedding or output matrix among its targets, with
    the base's {GGUF name: weight}, which base() reads. Skips those that the base does not have at hand."""
    skipped, weights, why = [], {}, "--base has no such weights"
    try:
        weights = base() if copies else {}
    except Failure as e:
        why = str(e)

    for module, w in copies.items():
        name = gguf_name(module + ".weight", *names)
        own = weights.get(name) or name == "output.weight" and weights.get("token_embd.weight")
        if not own:
            skipped.append(ascii(module))
        elif own.shape != w.shape or any(x != y for x, y in zip(rows(own), rows(to_meta_order(w, name, config)))):
            raise Failure("%s: %s: the stored weight differs from the base model's; a trained or resized matrix is not "
                          "supported" % (directory, ascii(module)))
    if skipped:
        note("%s: copies of base weights are not compared, %s: %s", directory, why, ", ".join(skipped))


def read_pairs(directory, config, is_tied, base):
    """(alpha, {GGUF name: (A, B)}) of an adapter for this config. It adds alpha / rank * B A to a weight, and alpha / rank
    * A transposed(B) to the embedding. The rows of B are in Meta's order, the names in the order of the model's tensors.
    base() has the weights of the model that are at hand, by GGUF name."""
    alpha, modules, copies = read_adapter(directory)
    shapes, pairs = dict(config.shapes()), {}

    if not is_tied:
        shapes["output.weight"] = shapes["token_embd.weight"]
    layer_names = {**HF_LAYER, **MOE_LAYER} if config.n_experts else HF_LAYER
    check_copies(directory, copies, (HF_NAMES, layer_names), base, config)
    names = renamed([module + ".weight" for module in modules], HF_NAMES, layer_names)

    for name in [name for name in shapes if name in names] + sorted(set(names) - set(shapes)):
        module = names[name][:-len(".weight")]
        a, b, factor = modules[module]
        shape = shapes.get(name, ())
        if len(shape) != 2 or name.endswith("ffn_gate_inp.weight"):
            raise Failure("%s: %s: not a matrix of a Llama model with %d layers%s" %
                      (directory, ascii(module), config.n_layers, " and an output tied to the embedding" * is_tied))

        is_embedding = name == "token_embd.weight"
        found = (b.shape[0], a.shape[1])[::-1 if is_embedding else 1]
        if shape != found:
            raise Failure("%s: %s: expected shape %s, found %s" % (directory, ascii(module), shape, found))

        # The conversion rejects NaN and infinity.
        a, b = Converted(a, a.type), Converted(to_meta_order(b, name, config), b.type)
        pairs[name] = Transposed(a) if is_embedding else a, b if factor == 1 else Scaled(b, factor)

    if not pairs:
        raise Failure("%s: no tensors of an adapter" % directory)
    return alpha, pairs


def merge(weights, directory, config):
    """Replaces weights by their sums with an adapter."""
    base = {w.name: w for w in weights}
    is_tied = "output.weight" not in base
    alpha, pairs = read_pairs(directory, config, is_tied, lambda: base)
    if is_tied and "token_embd.weight" in pairs:
        raise Failure("%s: an adapter of the embedding cannot be merged, the output is tied to it; use --lora" % directory)

    for i, w in enumerate(weights):
        if w.name in pairs:
            a, b = pairs[w.name]
            left, right = (a, Transposed(b)) if w.name == "token_embd.weight" else (b, a)
            weights[i] = Merged(w, right, Scaled(left, alpha / b.shape[1]))


def base_weights(directory, config):
    """{GGUF name: weight} of a base model, without those of experts; empty if it has only a config.json."""
    if not is_huggingface(os.listdir(directory)):
        return {}
    shards = read_shards(directory)
    names = renamed(shards, HF_NAMES, HF_LAYER)
    return {to: to_meta_order(shards[name], to, config) for to, name in names.items()}


def export_adapter(options):
    base = find_checkpoint(options.base or "")
    if not os.path.exists(os.path.join(base, "config.json")):
        raise Failure("%s: a LoRA adapter; --base DIRECTORY must give the config.json of its base model" %
                  options.source, 2)
    config, settings = huggingface_config(base, options, is_base=True)
    alpha, pairs = read_pairs(options.source, config, bool(settings.get("tie_word_embeddings")),
                              lambda: base_weights(base, config))
    type = options.type or next(iter(pairs.values()))[1].type
    tensors = []
    for name, pair in pairs.items():
        tensors += [View(convert(w, type), name + ".lora_" + part) for w, part in zip(pair, "ab")]
    metadata = {"general.architecture": config.architecture, "general.type": "adapter", "adapter.type": "lora",
                "general.name": os.path.basename(os.path.abspath(options.source)).encode("utf-8", "replace"),
                "general.file_type": FILE_TYPES[type], "adapter.lora.alpha": float(alpha)}
    write_gguf(options.output, metadata, tensors, [options.source, base], options.force)


# Command line

def is_huggingface(files):
    return "config.json" in files and any(re.match(pattern, f) for f in files for _, pattern, _ in SHARDS)


def read_source(path, options):
    if not os.path.isdir(path):
        return read_llama2c(path, options.tokenizer)
    files = sorted(os.listdir(path))
    models = [f for f in files if f.endswith(".bin") and not f.startswith("tok")]
    if is_huggingface(files) or "model.safetensors.index.json" in files and "config.json" in files:
        return read_huggingface(path, options)
    if "params.json" in files and any(f.startswith("consolidated.") or f.endswith((".pth", ".pt")) for f in files):
        return read_meta(path, options)
    if len(models) == 1 and "config.json" not in files:
        return read_llama2c(inside(path, models[0]), options.tokenizer)
    if "config.json" in files:
        check_draft(read_config(path))
    raise Failure("%s: not a checkpoint; expected config.json with *.safetensors, params.json with consolidated.*.pth, "
                  "or a llama2.c *.bin" % path)


def export(options):
    options.source = find_checkpoint(options.source)
    options.merge = [find_checkpoint(directory) for directory in options.merge]
    files = os.listdir(options.source) if os.path.isdir(options.source) else ()
    if "adapter_config.json" in files:
        if options.base or not is_huggingface(files):
            return export_adapter(options)
        note("%s: adapter_config.json is not used: the directory has the whole model", options.source)
    config, weights, vocabulary = read_source(options.source, options)
    n_tokens = len(vocabulary["tokenizer.ggml.tokens"])
    if n_tokens != config.vocab_size:
        raise Failure("the tokenizer has %d tokens, the embedding %d rows" % (n_tokens, config.vocab_size))
    if options.context:
        config.context_length = options.context
    if options.chat_template:
        vocabulary["tokenizer.chat_template"] = read_bytes(options.chat_template)

    check_vocabulary(vocabulary)

    n_weights = {}
    for w in weights:
        n_weights[w.type] = n_weights.get(w.type, 0) + product(w.shape)
    type = options.type or max(n_weights, key=n_weights.get)
    for directory in options.merge:
        merge(weights, directory, config)
    is_f32 = [len(w.shape) == 1 or w.name.endswith("ffn_gate_inp.weight") for w in weights]  # vectors and routers
    tensors = [w if w.type == "i64" else convert(w, "f32" if f32 else type) for w, f32 in zip(weights, is_f32)]
    tensors += config.divisors()
    metadata = config.metadata(FILE_TYPES[type])
    metadata.update(vocabulary)
    inputs = [p for p in [options.source, options.tokenizer, options.chat_template] + options.merge if p]
    write_gguf(options.output, metadata, tensors, inputs, options.force)


def export_quantized(options):
    """Exports in the type of the source to a temporary directory, then runs `llama31 quantize`."""
    program, output, type = find_program(), options.output, options.type

    if not program:
        raise Failure("--type %s: expected %s; other types need the llama31 program, which is not in PATH" %
                  (ascii(type), ", ".join(FILE_TYPES)), 2)

    # An unknown type is noticed before the export, which may take hours.
    asked = subprocess.run([program, "quantize", os.devnull, os.devnull, type], stderr=subprocess.PIPE)
    if asked.returncode == 2:
        raise Failure(asked.stderr.decode("utf-8", "replace").strip(), 2)

    check_output(output, (options.source,), options.force, lambda path: False)
    directory = tempfile.mkdtemp(prefix=".export-", dir=os.path.dirname(os.path.realpath(output)))

    try:
        options.output, options.type = os.path.join(directory, "model.gguf"), None
        export(options)
        force = ["--force"] if options.force else []
        code = subprocess.run([program, "quantize", *force, options.output, output, type]).returncode
    finally:
        shutil.rmtree(directory)
    if code:  # quantize has printed the reason
        sys.exit(code if code > 0 else 128 - code)


def positive(kind):
    def parse(text):
        x = kind(text)
        if not 0 < x < 1e9:
            raise ValueError
        return x

    return parse


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("-o", "--output", metavar="OUT.gguf", required=True)
    parser.add_argument("--type", metavar="TYPE", help="type of the matrices: f32, f16, bf16, or a type of llama31 "
                        "quantize such as q4_k_m (default: that of the source)")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.model or tokenizer.bin, if not in SOURCE")
    parser.add_argument("--chat-template", metavar="FILE", help="chat template, instead of the one in SOURCE")
    parser.add_argument("--merge", metavar="ADAPTER", action="append", default=[],
                        help="add a LoRA adapter to the weights (15 minutes per billion weights); repeatable")
    parser.add_argument("--base", metavar="DIRECTORY", help="base model of an adapter, or target of a draft head")
    parser.add_argument("--context", type=positive(int), metavar="N", help="context length of the model")
    parser.add_argument("--rope-factor", type=positive(float), metavar="F", help="factor of scaled RoPE")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    options = parser.parse_args(argv)
    is_float = options.type in FILE_TYPES or not options.type
    return run(options.output, lambda: (export if is_float else export_quantized)(options), options.source)


if __name__ == "__main__":
    sys.exit(main())
