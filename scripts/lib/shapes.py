"""The values that the JSON files of a checkpoint may hold.

A shape is a type, NUMBER, a tuple of alternatives, [shape of every item], {str: shape of every value}, or
{key: shape}. In the last one, other keys are not read, null counts as absent, and a key with "!" must be present."""
from .gguf_writer import Failure

NUMBER = "number"  # finite, and within float32; integers have at most 32 bits
NAMES = {int: "an integer below 2^31", str: "a text", bool: "true or false", list: "an array", dict: "an object", NUMBER: "a number"}

INTEGERS = """hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim vocab_size
    max_position_embeddings sliding_window max_window_layers bos_token_id num_nextn_predict_layers num_local_experts
    num_experts n_routed_experts moe_num_experts num_experts_per_tok moe_k first_k_dense_replace moe_layer_start_index
    moe_layer_end_index moe_layer_interval moe_intermediate_size n_shared_experts num_shared_experts
    moe_num_shared_experts moe_shared_expert_intermediate_size shared_expert_intermediate_size shared_intermediate_size
    n_group topk_group draft_vocab_size target_hidden_size"""
NUMBERS = """rms_norm_eps rope_theta embedding_multiplier residual_multiplier attention_multiplier logits_scaling
    partial_rotary_factor routed_scaling_factor"""
ROPE = {"rope_type": str, "type": str, "original_max_position_embeddings": int, "truncate": bool}
ROPE.update((key, NUMBER) for key in """rope_theta factor low_freq_factor high_freq_factor beta_fast beta_slow
    attention_factor mscale mscale_all_dim llama_4_scaling_beta partial_rotary_factor""".split())
ROPE_BY_LAYER_TYPE = {"full_attention": ROPE, "sliding_attention": ROPE}
ROPE_UNUSED = "finetuned", "max_position_embeddings"  # repeated from elsewhere

TEMPLATES = (str, [{"name!": str, "template!": str}])
TOKEN = (str, {"content!": str})
SPECIAL_TOKENS = dict({"additional_special_tokens": [TOKEN]}, **{
    name + "_token": TOKEN for name in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")})
IDS = (int, [int])
STEP = {"type": str, "pattern": {"Regex": str, "String": str}, "content": str, "prepend": str, "prepend_scheme": str,
        "add_prefix_space": bool, "use_regex": bool, "replacement": str, "split": bool, "individual_digits": bool, "behavior": str, "invert": bool}
STEP.update(normalizers=[STEP], pretokenizers=[STEP], processors=[STEP], decoders=[STEP], single=[dict])

CONFIG = {"model_type": str, "architectures": [str], "hidden_act": str, "layer_types": [str], "no_rope_layers": [int],
          "no_rope_layer_interval": int,
          "mlp_only_layers": [int], "eos_token_id": IDS, "_name_or_path": str, "tie_word_embeddings": bool,
          "rope_scaling": {**ROPE, **ROPE_BY_LAYER_TYPE}, "rope_parameters": {**ROPE, **ROPE_BY_LAYER_TYPE},
          "use_sliding_window": bool, "norm_topk_prob": bool, "score_function": str, "scoring_func": str,
          "speculators_model_type": str, "norm_before_residual": bool, "norm_before_fc": bool,
          "eagle_aux_hidden_state_layer_ids": [int]}
CONFIG.update((key, int) for key in INTEGERS.split())
CONFIG.update((key, NUMBER) for key in NUMBERS.split())
CONFIG["text_config"] = CONFIG["transformer_layer_config"] = CONFIG["eagle_config"] = CONFIG

SHAPES = {
    "config.json": CONFIG,
    "generation_config.json": {
        "do_sample": bool, "temperature": NUMBER, "top_k": int, "top_p": NUMBER, "min_p": NUMBER,
        "repetition_penalty": NUMBER, "bos_token_id": int, "eos_token_id": IDS},
    "model.safetensors.index.json": {"weight_map": {str: str}},
    "pytorch_model.bin.index.json": {"weight_map": {str: str}},
    "params.json": {"dim!": int, "n_layers!": int, "n_heads!": int, "n_kv_heads": int, "norm_eps!": NUMBER,
                    "rope_theta": NUMBER, "use_scaled_rope": bool, "vocab_size": int},
    "tokenizer.json": {
        "model": {"type": str, "vocab": ({str: int}, list), "merges": [(str, [str])], "byte_fallback": bool,
                  "ignore_merges": bool, "end_of_word_suffix": str, "continuing_subword_prefix": str, "dropout": NUMBER},
        "added_tokens": [{"id!": int, "content!": str, "special": bool, "lstrip": bool, "rstrip": bool, "single_word": bool,
                          "normalized": bool}], "normalizer": STEP, "pre_tokenizer": STEP,
        "post_processor": STEP, "decoder": STEP},
    "tokenizer_config.json": {
        "chat_template": TEMPLATES, "add_bos_token": bool, "tokenizer_class": str, "add_prefix_space": bool,
        "added_tokens_decoder": {str: {"content!": str, "special": bool}}, **SPECIAL_TOKENS},
    "special_tokens_map.json": SPECIAL_TOKENS,
    "added_tokens.json": {str: int},
    "chat_template.json": {"chat_template": TEMPLATES},
}


def mismatch(v, shape):
    """None, or (place, expected, found) of the first value that does not fit."""
    if type(shape) is tuple:
        faults = [mismatch(v, s) for s in shape]
        return None if None in faults else max(faults, key=lambda fault: len(fault[0]))

    kind = shape if isinstance(shape, (type, str)) else type(shape)
    if kind is NUMBER:
        fits = type(v) in (int, float) and abs(v) < 1e38
    else:
        fits = type(v) is kind and (kind is not int or abs(v) < 1 << 31)
    if not fits:
        return "", NAMES[kind], v

    # The values within.
    parts = ()
    if type(shape) is list:
        parts = (("[%d]" % i, x, shape[0]) for i, x in enumerate(v))
    elif type(shape) is dict and str in shape:
        parts = ((" " + ascii(key), x, shape[str]) for key, x in v.items())
    elif type(shape) is dict:
        parts = ((": " + key.rstrip("!"), v.get(key.rstrip("!")), s) for key, s in shape.items()
                 if key.endswith("!") or v.get(key) is not None)
    for place, x, s in parts:
        fault = mismatch(x, s)
        if fault:
            return (place + fault[0],) + fault[1:]
    return None


def check_shape(v, name):
    """Refuses the content of a JSON file with a value of another kind than the program reads."""
    fault = mismatch(v, SHAPES.get(name, dict))
    if fault:
        place, expected, found = fault
        raise Failure("%s%s: expected %s, found %s" % (name, place, expected, "nothing" if found is None else ascii(found)[:60]))
