"""Variants of make.py of families with latent attention. They are small, in float16, which float32
holds exactly."""
import torch


def variants(Variant, rope):
    """Name -> variant; the arguments are make.py's."""
    yarn = rope("yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16,
                beta_fast=2.0, mscale=0.7, mscale_all_dim=2.0)
    latent = dict(num_key_value_heads=4, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4,
                  v_head_dim=5, rope_parameters=yarn, intermediate_size=20)
    experts = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=4,
                   n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=1.5,
                   first_k_dense_replace=1)
    off = [dict(rope_parameters={**yarn, "mscale_all_dim": 1.0}),
           dict(rope_parameters={**yarn, "rope_theta": 1e4}), dict(rms_norm_eps=0.0),
           dict(routed_scaling_factor=1.0), dict(topk_group=3), dict(num_experts_per_tok=2)]
    files = dict(dtype=torch.float16, prompts=(13, 4))
    return {
        "deepseek_v3": Variant("DeepseekV3", dict(
            latent, **experts, q_lora_rank=10, norm_topk_prob=True, num_mtp_layers=0),
            off + [dict(rope_interleave=False), dict(norm_topk_prob=False),
                   dict(n_group=1, topk_group=1)], **files),
        # As the hub has it: all matrices of layers but routers in blocks of FP8.
        "deepseek_v3_fp8": Variant("DeepseekV3", dict(
            latent, q_lora_rank=10, num_mtp_layers=0, tie_word_embeddings=True, **{
                **experts, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
                "num_experts_per_tok": 2}), [], dtype=torch.bfloat16, format="fp8_blocks",
            prompts=(12, 3)),
        # Without groups, as Kimi K2; queries from the block's input, halves that turn, no yarn. Both
        # experts are used by every token, so that rounding never jumps.
        "kimi_k25": Variant("DeepseekV3", dict(
            latent, q_lora_rank=None, rope_interleave=False, num_mtp_layers=0, tie_word_embeddings=True,
            **{**experts, "n_routed_experts": 2, "n_group": 1, "topk_group": 1,
               "num_experts_per_tok": 2, "n_shared_experts": 2}) |
            dict(rope_parameters=rope("default", rope_theta=100.0)),
            [dict(rope_interleave=True), dict(num_experts_per_tok=1)], dtype=torch.bfloat16,
            prompts=(12, 3), stacked=True, rename=("", "language_model."),
            wrapper="Kimi_K25ForConditionalGeneration",
            without_effect=("e_score_correction_bias",), sharpness=1.5),
        "deepseek_v2": Variant("DeepseekV2", dict(
            latent, **experts, q_lora_rank=None, topk_method="group_limited_greedy"),
            off + [dict(topk_method="greedy")], form=4, stacked=True, **files),
        "glm4_moe_lite": Variant("Glm4MoeLite", dict(
            {k: v for k, v in latent.items() if k != "rope_parameters"}, q_lora_rank=10,
            rope_parameters=rope("default", rope_theta=100.0), norm_topk_prob=True, tie_word_embeddings=True,
            n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=4, n_shared_experts=1,
            routed_scaling_factor=1.5),
            [dict(norm_topk_prob=False), dict(routed_scaling_factor=1.0)], dtype=torch.float16,
            prompts=(12, 3)),
    }
