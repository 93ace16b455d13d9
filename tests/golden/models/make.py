#!/usr/bin/env python3
"""Makes the tiny checkpoints beside this file and what Hugging Face transformers computes with them.

    make.py [VARIANT ...]        needs torch, transformers, safetensors; CPU only, a minute or two

Each folder is a model as it would be published, and expected.safetensors:
    prompt.N         I32 [tokens]            a prompt
    prompt_logits.N  F32 [tokens, vocabulary] logits of all its positions
    tokens.N         I32 [STEPS to TOKENS]   what greedy decoding appends, as far as it is clear
    step_logits.N    F32 [STEPS, vocabulary]  logits behind each of the first STEPS of them
computed in float32 with eager attention and a KV cache, prompt first, then token by token.
Variants with a format have values.json: checksums of what their matrices are worth (formats.py).

A golden file that does not depend on a feature proves nothing about it. So every tensor is random, norms and biases
included; each is neutralised in turn, and each setting in Variant.off is changed, and the logits must move by more
than 1 %. The two best logits of each of the first STEPS must be more than 1e-3 of the largest apart: equal logits
then mean equal tokens, which end before the first later step where they are not. Other seeds are passed over.

Variants with int4 are checkpoints as AutoAWQ and AutoGPTQ write them. Their matrices are rounded here to scale
* (code - zero), which is what the folder holds packed and what transformers computes with, as plain float32
weights: neither package is needed. Other formats: formats.py beside this.

Variants whose heads are 64 or 128 wide are for kernels that multiply in 16 bits. Their attention is less sharp,
and no token is near to another expert (router_margin), so that rounding moves logits a little and never jumps.
"""
import copy
import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile

import safetensors.torch
import torch
import transformers

import delta_variants
import dense_variants
import expert_variants
import gemma4_variants
import formats
import latent_variants
import recent_variants
import stored_names

HERE = pathlib.Path(__file__).resolve().parent
STEPS, TOKENS = 16, 32
VOCABULARY = 96
MARGIN = 1e-3
MOVES = 0.01
SEEDS = 1000
BASE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=48, vocab_size=VOCABULARY, max_position_embeddings=128,
            rms_norm_eps=0.05, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1,
            pad_token_id=None)


@dataclasses.dataclass
class Variant:
    family: str                     # prefix of the classes in transformers
    config: dict                    # on top of BASE
    off: list                       # changes of the configuration that must move the logits
    form: int = 5                   # of config.json: transformers 4 or 5
    dtype: torch.dtype = torch.float32
    shard_bytes: int = 0            # 0: a single file
    generation: dict = dataclasses.field(default_factory=dict)
    prompts: tuple = (64, 20)
    without_effect: tuple = ()      # tensors that cannot matter, and why in a comment
    rename: tuple = ()              # (old prefix, new prefix) of tensors
    sharpness: float = 2.5          # of attention
    router_margin: float = 0.0      # of a token's last expert before the next, of the largest logit
    stacked: bool = False           # as transformers 5 holds experts: a tensor for all of a layer
    turned: bool = False            # such tensors have inputs before outputs, as they are published
    int4: str = ""                  # "awq" or "gptq": how matrices are packed
    group: int = 0                  # inputs that share a scale
    config_class: str = ""          # where it is not <family>Config
    model_class: str = ""           # where it is not <family>ForCausalLM
    outer: dict = None              # of a wrapper: `config` is its text_config
    wrapper: str = ""               # class of the folder, of which the oracle runs the text part
    format: str = ""                # of formats.py


def rope(kind, **values):
    return {"rope_theta": 10000.0, "rope_type": kind, **values}


PLAIN = rope("default")
NO_THETA = rope("default", rope_theta=100.0)
QWEN3 = dict(head_dim=16)
MOE = dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
HEADS_64 = dict(head_dim=64, num_attention_heads=4, num_key_value_heads=2)
HEADS_128 = dict(head_dim=128, num_attention_heads=2, num_key_value_heads=1)
OPT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48,
           vocab_size=VOCABULARY, max_position_embeddings=96, bos_token_id=0, eos_token_id=1,
           pad_token_id=None, dropout=0.0, tie_word_embeddings=True)
# Without rotation a key's bias adds the same to all scores of a query, which softmax ignores.
OPT_NO_EFFECT = ("self_attn.k_proj.bias",)

# Most variants: float16, which float32 holds exactly, and prompts little longer than a window.
SMALL = dict(dtype=torch.float16, prompts=(24, 10))
BRIEF, HALF_WIDE = {**SMALL, "prompts": (12, 3)}, dict(hidden_size=16, intermediate_size=20)
SHORT = (24, 7)  # prompts of variants that differ from others in how weights are stored
STORED = (12, 3)  # and of those whose weights are codes
WORD_SIZES = dict(num_key_value_heads=4, intermediate_size=64)  # whole words of any bits
INT4_SIZES = dict(hidden_size=64, intermediate_size=96)

VARIANTS = {
    "llama": Variant("Llama", dict(rope_parameters=PLAIN), [
        dict(rope_parameters=NO_THETA), dict(rms_norm_eps=0.0), dict(hidden_act="gelu")],
        generation=dict(eos_token_id=[1, 2, 3], do_sample=True, temperature=0.6, top_p=0.9)),
    "llama_tied_v4": Variant("Llama", dict(
        rope_parameters=rope("default", rope_theta=500.0), tie_word_embeddings=True,
        num_key_value_heads=4), [dict(rope_parameters=PLAIN)], form=4, prompts=SHORT),
    "llama_bias_wide_heads": Variant("Llama", dict(
        rope_parameters=PLAIN, attention_bias=True, mlp_bias=True, head_dim=16,
        num_key_value_heads=1, eos_token_id=[1, 5]), [dict(rope_parameters=NO_THETA)],
        dtype=torch.float16, prompts=SHORT),
    "llama3_scaled": Variant("Llama", dict(rope_parameters=rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)), [dict(rope_parameters=PLAIN)], **SMALL),
    "llama_linear_v4": Variant("Llama", dict(rope_parameters=rope("linear", factor=4.0),
                                             max_position_embeddings=32),
                               [dict(rope_parameters=PLAIN)], form=4, **SMALL),
    # 64 starts beyond the original length; 20 and 16 steps cross it while decoding.
    "llama_dynamic": Variant("Llama", dict(rope_parameters=rope("dynamic", factor=4.0),
                                           max_position_embeddings=32),
                             [dict(rope_parameters=PLAIN)],
        dtype=torch.float16),
    "llama_bf16": Variant("Llama", dict(
        rope_parameters=PLAIN, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        head_dim=32, num_attention_heads=2, num_key_value_heads=1),
        [dict(rope_parameters=NO_THETA)], dtype=torch.bfloat16, form=4, prompts=SHORT),
    "llama_fp16_sharded": Variant("Llama", dict(rope_parameters=PLAIN),
                                  [dict(rope_parameters=NO_THETA)], dtype=torch.float16,
                                  shard_bytes=20000, rename=("model.", "")),
    "mistral_window": Variant("Mistral", dict(rope_parameters=PLAIN, sliding_window=16),
                              [dict(sliding_window=None), dict(sliding_window=17)], form=4,
        dtype=torch.float16),
    "qwen2": Variant("Qwen2", dict(rope_parameters=PLAIN, use_sliding_window=False,
                                   sliding_window=16, max_window_layers=0),
                     [dict(use_sliding_window=True, layer_types=["sliding_attention"] * 2)],
                     form=4, **SMALL),
    "qwen2_window": Variant("Qwen2", dict(
        rope_parameters=PLAIN, use_sliding_window=True, sliding_window=16, max_window_layers=1),
        [dict(use_sliding_window=False, layer_types=["full_attention"] * 2),
         dict(layer_types=["sliding_attention"] * 2),
         dict(layer_types=["sliding_attention", "full_attention"])], form=4,
        dtype=torch.float16),
    "qwen3": Variant("Qwen3", dict(rope_parameters=PLAIN, tie_word_embeddings=True, **QWEN3),
                     [dict(rope_parameters=NO_THETA), dict(rms_norm_eps=0.0)], **SMALL),
    "opt": Variant("OPT", OPT, [dict(activation_function="gelu")], without_effect=OPT_NO_EFFECT,
                   **SMALL),
    "opt_projected_post_norm": Variant(
        "OPT", dict(OPT, word_embed_proj_dim=16, do_layer_norm_before=False),
        [dict(activation_function="gelu")], form=4, without_effect=OPT_NO_EFFECT,
        rename=("model.", ""), **SMALL),
    "mixtral": Variant("Mixtral", dict(
        rope_parameters=PLAIN, num_local_experts=4, num_experts_per_tok=2, intermediate_size=24),
        [dict(num_experts_per_tok=1), dict(rope_parameters=NO_THETA)],
        **SMALL),
    "qwen3_moe": Variant("Qwen3Moe", dict(
        rope_parameters=PLAIN, num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1],
        norm_topk_prob=True, **MOE), [dict(norm_topk_prob=False), dict(num_experts_per_tok=1)],
        router_margin=0.02, **SMALL),
    "llama_bf16_heads_64": Variant(
        "Llama", dict(rope_parameters=PLAIN, **HEADS_64), [dict(rope_parameters=NO_THETA)],
        dtype=torch.bfloat16, sharpness=1.2,
        prompts=SHORT),
    "mistral_fp16_heads_128": Variant(
        "Mistral", dict(rope_parameters=PLAIN, sliding_window=16, **HEADS_128),
        [dict(sliding_window=None), dict(sliding_window=17)], dtype=torch.float16, sharpness=1.2,
        prompts=SHORT),
    "mixtral_fp16_heads_64": Variant("Mixtral", dict(
        rope_parameters=PLAIN, num_local_experts=4, num_experts_per_tok=2, intermediate_size=24,
        **HEADS_64), [dict(num_experts_per_tok=1)], dtype=torch.float16, prompts=(32, 12),
        sharpness=1.2, router_margin=0.01),
    "qwen3_moe_bf16_heads_128": Variant("Qwen3Moe", dict(
        rope_parameters=PLAIN, mlp_only_layers=[0], norm_topk_prob=True, **{**MOE, **HEADS_128}),
        [dict(norm_topk_prob=False)], dtype=torch.bfloat16, prompts=(20, 8), sharpness=1.2,
        router_margin=0.02),
    "qwen2_awq": Variant("Qwen2", dict(rope_parameters=PLAIN, use_sliding_window=False,
                                       sliding_window=16, max_window_layers=0, **INT4_SIZES),
                         [dict(rope_parameters=NO_THETA)], form=4, dtype=torch.float16,
                         int4="awq", group=32,
        prompts=SHORT),
    "llama_gptq": Variant("Llama", dict(rope_parameters=PLAIN, **INT4_SIZES),
                          [dict(rope_parameters=NO_THETA)], form=4, dtype=torch.float16,
                          int4="gptq", group=16,
        prompts=SHORT),
    "llama_yarn": Variant("Llama", dict(head_dim=16, rope_parameters=rope(
        "yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=32, beta_fast=2.0)),
        [dict(rope_parameters=NO_THETA),
         dict(rope_parameters=rope("yarn", rope_theta=100.0, factor=4.0,
                                   original_max_position_embeddings=32)),
         dict(rope_parameters=rope("yarn", rope_theta=100.0, factor=4.0, attention_factor=1.0,
                                   original_max_position_embeddings=32, beta_fast=2.0))], **SMALL),
    "qwen3_yarn_v4": Variant("Qwen3", dict(rope_parameters=rope(
        "yarn", rope_theta=100.0, factor=2.0, original_max_position_embeddings=32,
        attention_factor=0.9), max_position_embeddings=32, **HALF_WIDE, **QWEN3),
        [dict(rope_parameters=NO_THETA)], form=4, **BRIEF),
    "glm4": Variant("Glm4", dict(
        rope_parameters=rope("default", partial_rotary_factor=0.5), head_dim=16,
        attention_bias=True, attention_dropout=0.0),
        [dict(rope_parameters=rope("default", partial_rotary_factor=1.0)),
         dict(rope_parameters=rope("default", rope_theta=100.0, partial_rotary_factor=0.5))],
        **SMALL),
    "glm4_no_bias": Variant("Glm4", dict(
        HALF_WIDE, rope_parameters=rope("default", partial_rotary_factor=0.5), head_dim=8,
        attention_bias=False, num_key_value_heads=4), [dict(hidden_act="gelu")], **BRIEF),
    "ernie4_5": Variant("Ernie4_5", dict(
        HALF_WIDE, rope_parameters=PLAIN, head_dim=16, use_bias=True),
        [dict(rope_parameters=NO_THETA)], **BRIEF),
    "ernie4_5_tied": Variant("Ernie4_5", dict(
        HALF_WIDE, rope_parameters=PLAIN, head_dim=8, use_bias=False, tie_word_embeddings=True,
        num_key_value_heads=1), [dict(rope_parameters=NO_THETA)], **BRIEF),
    "exaone4": Variant("Exaone4", dict(
        rope_parameters=PLAIN, sliding_window=16, sliding_window_pattern=3, num_hidden_layers=4),
        [dict(sliding_window=17), dict(sliding_window_pattern=2), dict(rope_parameters=NO_THETA)],
        **SMALL),
    "exaone4_full": Variant("Exaone4", dict(
        rope_parameters=PLAIN, sliding_window=None, tie_word_embeddings=True,
        layer_types=["full_attention"] * 2), [dict(rope_parameters=NO_THETA)], **SMALL),
    "stablelm": Variant("StableLm", dict(
        HALF_WIDE, rope_parameters=rope("default", partial_rotary_factor=0.5), use_qkv_bias=True,
        layer_norm_eps=0.05, num_attention_heads=2), [dict(layer_norm_eps=0.0)], **BRIEF),
    "stablelm_parallel": Variant("StableLm", dict(
        rope_parameters=rope("default", partial_rotary_factor=0.25), use_parallel_residual=True,
        qk_layernorm=True, layer_norm_eps=0.05), [dict(layer_norm_eps=0.0), dict(
            rope_parameters=rope("default", partial_rotary_factor=0.5))], **SMALL),
    "gpt_neox": Variant("GPTNeoX", dict(
        rope_parameters=rope("default", partial_rotary_factor=0.25), layer_norm_eps=0.05,
        num_key_value_heads=4), [dict(use_parallel_residual=False), dict(layer_norm_eps=0.0),
                                 dict(hidden_act="relu")],
        rename=("lm_head.", "embed_out."), **SMALL),
    "gpt_neox_serial": Variant("GPTNeoX", dict(
        rope_parameters=rope("default", partial_rotary_factor=0.5), use_parallel_residual=False,
        layer_norm_eps=0.05, attention_bias=False, num_key_value_heads=4),
        [dict(rope_parameters=rope("default", partial_rotary_factor=0.25))], **SMALL),
    "phi3": Variant("Phi3", dict(rope_parameters=rope("default", partial_rotary_factor=1.0),
                                 sliding_window=8, num_attention_heads=2, **HALF_WIDE),
                    [dict(sliding_window=9), dict(sliding_window=None)], **BRIEF),
    # Prompts are longer than the original length, where the oracle takes the long list too.
    "phi3_longrope": Variant("Phi3", dict(
        rope_parameters=rope("longrope", partial_rotary_factor=0.5, short_factor=[1.0, 1.2],
                             long_factor=[1.5, 4.0]), original_max_position_embeddings=16),
        [dict(rope_parameters=rope("longrope", partial_rotary_factor=0.5, short_factor=[1.0, 1.2],
                                   long_factor=[1.0, 1.2]))], **{**SMALL, "prompts": (24, 20)}),
    "smollm3": Variant("SmolLM3", dict(
        HALF_WIDE, num_attention_heads=2, rope_parameters=PLAIN, no_rope_layers=[1, 0],
        tie_word_embeddings=True, pad_token_id=None),
        [dict(no_rope_layers=[1, 1]), dict(no_rope_layers=[0, 0]), dict(no_rope_layers=[0, 1])],
        **BRIEF),
    "smollm3_window": Variant("SmolLM3", dict(
        rope_parameters=PLAIN, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=16,
        tie_word_embeddings=False, num_hidden_layers=3, pad_token_id=None),
        [dict(use_sliding_window=False), dict(no_rope_layer_interval=3), dict(sliding_window=17)],
        **SMALL),
    "seed_oss": Variant("SeedOss", dict(
        HALF_WIDE, rope_parameters=PLAIN, head_dim=16, attention_bias=True, attention_out_bias=False,
        attention_dropout=0.0, residual_dropout=0.0, num_key_value_heads=1, pad_token_id=None),
        [dict(rope_parameters=NO_THETA)], **BRIEF),
    "seed_oss_out_bias": Variant("SeedOss", dict(
        HALF_WIDE, rope_parameters=PLAIN, head_dim=16, attention_bias=False, attention_out_bias=True,
        mlp_bias=True, attention_dropout=0.0, residual_dropout=0.0, pad_token_id=None),
        [dict(rope_parameters=NO_THETA)], **BRIEF),
    "starcoder2": Variant("Starcoder2", dict(
        rope_parameters=PLAIN, norm_epsilon=0.05, sliding_window=16, tie_word_embeddings=True),
        [dict(rope_parameters=NO_THETA), dict(norm_epsilon=0.0), dict(sliding_window=None),
         dict(hidden_act="relu")], **SMALL),
    "starcoder2_no_bias": Variant("Starcoder2", dict(
        HALF_WIDE, num_attention_heads=2, rope_parameters=PLAIN, norm_epsilon=0.05, use_bias=False, tie_word_embeddings=False),
        [dict(rope_parameters=NO_THETA)], **BRIEF),
    "mixtral_awq_bf16": Variant("Mixtral", dict(
        rope_parameters=PLAIN, num_local_experts=4, num_experts_per_tok=2,
        **{**INT4_SIZES, "intermediate_size": 32}), [dict(num_experts_per_tok=1)],
        dtype=torch.bfloat16, int4="awq", group=32,
        prompts=SHORT),
    "llama_fp8_blocks": Variant("Llama", dict(rope_parameters=PLAIN), [], dtype=torch.bfloat16,
                                format="fp8_blocks", prompts=SHORT),
    "llama_fbgemm_fp8": Variant("Llama", dict(rope_parameters=PLAIN), [], dtype=torch.bfloat16,
                                format="fbgemm_fp8", prompts=SHORT),
    "qwen2_eight_bits": Variant("Qwen2", dict(rope_parameters=PLAIN, use_sliding_window=False), [],
                                dtype=torch.bfloat16, format="eight_bits", prompts=SHORT),
    "llama_pack_quantized": Variant("Llama", dict(rope_parameters=PLAIN), [], dtype=torch.bfloat16,
                                    format="pack_quantized", prompts=SHORT),
    "llama_gptq_act_order": Variant("Llama", dict(rope_parameters=PLAIN, **WORD_SIZES), [],
                                    dtype=torch.float16, format="gptq_act_order", prompts=SHORT),
    "llama_auto_round": Variant("Llama", dict(rope_parameters=PLAIN, **WORD_SIZES), [],
                                dtype=torch.float16, format="auto_round", prompts=SHORT),
    "qwen3_nvfp4": Variant("Qwen3", dict(
        rope_parameters=PLAIN, tie_word_embeddings=True, head_dim=8, num_key_value_heads=2), [],
        dtype=torch.bfloat16, format="nvfp4", prompts=STORED),
    "llama_modelopt_mixed": Variant(
        "Llama", dict(rope_parameters=PLAIN, tie_word_embeddings=True), [], dtype=torch.bfloat16,
        format="modelopt_mixed", prompts=STORED),
    "llama_nf4": Variant("Llama", dict(rope_parameters=PLAIN), [], dtype=torch.bfloat16,
                         format="bitsandbytes", prompts=SHORT),
}
for family in (delta_variants, dense_variants, expert_variants, gemma4_variants, latent_variants,
               recent_variants):
    VARIANTS.update(family.variants(Variant, rope))
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output of each nibble of a word, from the lowest on


def is_norm(name):
    return "norm" in name and name.endswith("weight")


def stored_tensors(model):
    """Parameters, and buffers that checkpoints hold."""
    stored = model.state_dict(keep_vars=True)
    tensors = dict(model.named_parameters())
    tensors.update((n, b) for n, b in model.named_buffers() if n in stored)
    return tensors.items()


def is_of_tower(name):
    """Of what a wrapper has for images."""
    return any(part in name for part in (
        "vision_tower", "vision_model", "multi_modal_projector", "visual.", "embed_vision",
        "audio_tower", "embed_audio"))


def randomise(model, dtype, sharpness, seed):
    """Every tensor, so that each matters: sharp attention, norms away from 1, large biases. Values
    are such as the stored type holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in stored_tensors(model):
            noise = torch.randn(tensor.shape, generator=generator)
            if is_norm(name):
                values = 1 + 0.3 * noise
            elif tensor.dim() == 1 or "correction_bias" in name:
                values = 0.3 * noise
            elif "embed" in name:
                values = 0.5 * noise
            else:
                scale = sharpness if "q_proj" in name or "k_proj" in name else 1.2
                values = scale * noise / tensor.shape[-1] ** 0.5
            tensor.copy_(values.to(dtype))


def is_int4(name):
    return name.endswith(("proj.weight", "mqa.weight")) or ".experts." in name and name.endswith(".weight")


def packed(values, order):
    """Words of the last dimension's numbers, eight at a time, each 0 to 15."""
    eights = values.long().unflatten(-1, (-1, 8))[..., list(order)]
    return sum(eights[..., i] << 4 * i for i in range(8)).to(torch.int32).contiguous()


def to_int4(weight, name, variant):
    """A matrix [out, in] as int4 makes it, and the tensors that say so."""
    base, stored = name.removesuffix(".weight"), torch.float16
    if variant.dtype == torch.bfloat16:
        stored = torch.bfloat16
    grouped = weight.unflatten(-1, (-1, variant.group))
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).to(stored).float()
    zeros = (-low / scales).round().clamp(0, 15)
    codes = (grouped / scales[..., None] + zeros[..., None]).round().clamp(0, 15)
    rounded = (scales[..., None] * (codes - zeros[..., None])).flatten(-2)
    codes = codes.flatten(-2)
    tensors = {base + ".scales": scales.T.to(stored).contiguous()}
    if variant.int4 == "awq":
        tensors[base + ".qweight"] = packed(codes.T, AWQ_ORDER)
        tensors[base + ".qzeros"] = packed(zeros.T, AWQ_ORDER)
    else:  # zeros are stored less one
        tensors[base + ".qweight"] = packed(codes, range(8)).T.contiguous()
        tensors[base + ".qzeros"] = packed((zeros.T - 1) % 16, range(8))
        tensors[base + ".g_idx"] = (torch.arange(weight.shape[1]) // variant.group).int()
    return rounded, tensors


def to_format(name, weight, variant):
    """What a matrix is worth when it was quantised, and the tensors that stand for it; None: it stays."""
    if variant.int4:
        return to_int4(weight, name, variant) if is_int4(name) else None
    if not is_int4(name) and ".experts." not in name:
        return None
    return formats.FORMATS[variant.format].quantise(name, weight)


def quantised(model, variant):
    """The model with its matrices rounded, and the tensors that stand for them in the folder."""
    tensors = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        file = pathlib.Path(folder) / "model.safetensors"
        plain = safetensors.torch.load_file(file)
        for name in list(plain):
            made = to_format(name, plain[name], variant)
            if made is None:
                continue
            plain[name], stored = made
            tensors[name] = stored
        safetensors.torch.save_file(plain, file, {"format": "pt"})
        rounded = type(model).from_pretrained(folder, attn_implementation="eager").eval()
    return rounded, tensors


def build(variant, changes=None):
    values = variant.config if variant.family == "OPT" else {**BASE, **variant.config}
    values = {**values, **(changes or {})}
    if variant.outer is not None:
        values = {**variant.outer, "text_config": values}
    config = getattr(transformers, variant.config_class or variant.family + "Config")(
        **copy.deepcopy(values))
    config._attn_implementation = "eager"
    model_class = variant.model_class or variant.family + "ForCausalLM"
    return getattr(transformers, model_class)(config).eval()


@torch.no_grad()
def run(model, prompt, forced=None):
    """Logits of the prompt and of appended tokens, and these tokens: TOKENS, or the forced ones."""
    out = model(input_ids=prompt[None], use_cache=True)
    prompt_logits, cache = out.logits[0], out.past_key_values
    last, tokens, steps = prompt_logits[-1], [], []
    for i in range(TOKENS if forced is None else len(forced)):
        token = int(last.argmax()) if forced is None else int(forced[i])
        out = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache, last = out.past_key_values, out.logits[0, -1]
        tokens.append(token)
        steps.append(last)
    return prompt_logits, torch.tensor(tokens), torch.stack(steps)


def margin(logits):
    best = logits.topk(2, dim=-1).values
    return float((best[..., 0] - best[..., 1]).min() / logits.abs().max())


@torch.no_grad()
def router_margin(model, tokens, experts):
    """The least distance of a token's last expert from the next one, of the largest router logit."""
    least = 1.0
    logits = model(input_ids=tokens[None], output_router_logits=True).router_logits
    for layer in logits:
        ordered = layer.sort(dim=-1, descending=True).values
        gaps = ordered[:, experts - 1] - ordered[:, experts]
        least = min(least, float(gaps.min() / layer.abs().max()))
    return least


def fresh(model):
    """A copy without state: dynamic rotation remembers the longest sequence it saw."""
    return copy.deepcopy(model)


def compute(model, variant, seed):
    """The golden tensors, or None where a margin is too small."""
    generator = torch.Generator().manual_seed(seed + 1000)
    golden = {}
    for n, length in enumerate(variant.prompts):
        prompt = torch.randint(4, VOCABULARY, (length,), generator=generator)
        prompt_logits, tokens, step_logits = run(fresh(model), prompt)
        if min(margin(prompt_logits[-1:]), margin(step_logits[:STEPS])) <= MARGIN:
            return None
        if len(set(tokens[:STEPS].tolist())) < 4:
            return None
        unclear = [i for i in range(STEPS, TOKENS) if margin(step_logits[i - 1:i]) <= MARGIN]
        tokens, step_logits = tokens[:min(unclear, default=TOKENS)], step_logits[:STEPS]
        if variant.router_margin:
            experts = variant.config["num_experts_per_tok"]
            if router_margin(model, torch.cat([prompt, tokens[:STEPS]]), experts) <= variant.router_margin:
                return None
        golden.update({f"prompt.{n}": prompt.int(), f"prompt_logits.{n}": prompt_logits,
                       f"tokens.{n}": tokens.int(), f"step_logits.{n}": step_logits})
    return {name: tensor.contiguous() for name, tensor in golden.items()}


def moved(model, golden):
    largest = 0.0
    for n in range(len(golden) // 4):
        prompt, _, steps = run(fresh(model), golden[f"prompt.{n}"].long(), golden[f"tokens.{n}"][:STEPS])
        for name, logits in ((f"prompt_logits.{n}", prompt), (f"step_logits.{n}", steps)):
            difference = (logits - golden[name]).abs().max() / golden[name].abs().max()
            largest = max(largest, float(difference))
    return largest


def all_matters(variant, model, golden):
    """False, with the reason, where something could be left out without being noticed."""
    for name, parameter in stored_tensors(model):
        if any(name.endswith(end) for end in variant.without_effect) or is_of_tower(name):
            continue
        parts = [(name, ...)]
        if parameter.dim() == 3 and "conv1d" not in name:  # experts of a layer in one tensor
            parts = [(f"{name}[{e}]", e) for e in range(parameter.shape[0])]
        for part, index in parts:
            kept = parameter.detach().clone()
            with torch.no_grad():
                parameter[index] = 1.0 if is_norm(name) else 0.0
                change = moved(model, golden)
                parameter.copy_(kept)
            if change <= MOVES:
                print(f"  {part} moves the logits by {change:.4f} only")
                return False
    for changes in variant.off:
        other = build(variant, changes)
        other.load_state_dict(model.state_dict())
        change = moved(other, golden)
        if change <= MOVES:
            print(f"  {changes} moves the logits by {change:.4f} only")
            return False
    return True


def to_form_4(config):
    """What transformers 4 would have written."""
    parameters = config.pop("rope_parameters", None)
    if parameters is not None:
        config["rope_theta"] = parameters.pop("rope_theta")
        kind = parameters.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"type": kind, **parameters}
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    config["transformers_version"] = "4.40.0"


def pack_folder(folder, variant, tensors):
    file = folder / "model.safetensors"
    plain = safetensors.torch.load_file(file)
    stored = {name: tensor for name, tensor in plain.items() if name not in tensors}
    for made in tensors.values():
        stored.update(made)
    safetensors.torch.save_file(stored, file, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    if variant.format:
        config["quantization_config"] = formats.FORMATS[variant.format].config
    else:
        config["quantization_config"] = {"quant_method": variant.int4, "bits": 4,
                                         "group_size": variant.group}
        config["quantization_config"].update(
            dict(zero_point=True, version="gemm", modules_to_not_convert=None)
            if variant.int4 == "awq" else dict(desc_act=False, sym=False, damp_percent=0.01))
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write(name, variant, model, golden, stored):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.generation_config = transformers.GenerationConfig(**variant.generation)
    sharding = {"max_shard_size": variant.shard_bytes} if variant.shard_bytes else {}
    copy.deepcopy(model).to(variant.dtype).save_pretrained(
        folder, save_original_format=not variant.stacked, **sharding)
    if not variant.generation:
        (folder / "generation_config.json").unlink(missing_ok=True)
    if variant.rename:
        stored_names.rename_tensors(folder, *variant.rename)
    if variant.turned:
        stored_names.turn_experts(folder / "model.safetensors")
    if stored:
        pack_folder(folder, variant, stored)
    if variant.format:
        if sums := formats.checksums(model.state_dict()):
            (folder / "values.json").write_text(json.dumps(sums, indent=1) + "\n")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if "rms_norm_eps" not in {f.name for f in dataclasses.fields(model.config)}:
        config.pop("rms_norm_eps", None)  # of BASE, where the family has another key
    if variant.form == 4:
        to_form_4(config)
    if variant.wrapper:
        config = {"architectures": [variant.wrapper], "text_config": config}
    path.write_text(json.dumps(config, indent=1) + "\n")
    safetensors.torch.save_file(golden, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


def make(name, variant):
    for seed in range(1, SEEDS):
        model = build(variant)
        randomise(model, variant.dtype, variant.sharpness, seed)
        stored = {}
        if variant.int4 or variant.format:
            model, stored = quantised(model, variant)
        golden = compute(model, variant, seed)
        if golden is None or not all_matters(variant, model, golden):
            continue
        write(name, variant, model, golden, stored)
        size = sum(f.stat().st_size for f in (HERE / name).iterdir())
        print(f"{name}: seed {seed}, {size} bytes")
        return
    sys.exit(f"{name}: no seed in {SEEDS} gives clear margins and a use for every tensor")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in sys.argv[1:] or VARIANTS:
        make(name, VARIANTS[name])


if __name__ == "__main__":
    main()
