"""Variants of make.py of families with experts. They are small, in float16, which float32 holds
exactly: experts take room."""
import torch


def variants(Variant, rope):
    """Name -> variant; the arguments are make.py's."""
    plain, no_theta = rope("default"), rope("default", rope_theta=100.0)
    tiny = dict(rope_parameters=plain, intermediate_size=24, num_key_value_heads=2)
    files = dict(dtype=torch.float16, prompts=(20, 8))
    llama4 = dict(
        **{**tiny, "intermediate_size": 8, "rope_parameters": rope("default", rope_theta=100.0)},
        intermediate_size_mlp=20, head_dim=8, num_local_experts=4, num_experts_per_tok=1,
        interleave_moe_layer_step=2, no_rope_layers=[1, 0], attention_chunk_size=8, floor_scale=8,
        attn_scale=0.5)
    llama4_off = [dict(attention_chunk_size=9), dict(attn_scale=0.1), dict(floor_scale=9),
                  dict(use_qk_norm=False), dict(attn_temperature_tuning=False),
                  dict(no_rope_layers=[1, 1]), dict(rms_norm_eps=0.0)]
    return {
        "qwen2_moe": Variant("Qwen2Moe", dict(
            **tiny, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
            shared_expert_intermediate_size=16, mlp_only_layers=[1], norm_topk_prob=False,
            use_sliding_window=True, sliding_window=16, max_window_layers=1),
            [dict(norm_topk_prob=True), dict(sliding_window=17), dict(num_experts_per_tok=1)],
            **files),
        "glm4_moe": Variant("Glm4Moe", dict(
            **{**tiny, "rope_parameters": rope("default", partial_rotary_factor=0.5)}, head_dim=8,
            n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=8, n_shared_experts=2,
            n_group=4, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
            norm_topk_prob=True, use_qk_norm=True, attention_bias=False),
            [dict(norm_topk_prob=False), dict(routed_scaling_factor=1.0), dict(topk_group=3),
             dict(n_group=1, topk_group=1), dict(num_experts_per_tok=2)], **files),
        "glm4_moe_raw_weights": Variant("Glm4Moe", dict(
            **{**tiny, "rope_parameters": rope("default", partial_rotary_factor=0.25)}, head_dim=8,
            n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1,
            n_group=1, topk_group=1, first_k_dense_replace=0, norm_topk_prob=False,
            use_qk_norm=False, attention_bias=True), [dict(norm_topk_prob=True)], **files),
        "ernie4_5_moe": Variant("Ernie4_5_Moe", dict(
            **tiny, moe_num_experts=4, moe_k=2, moe_intermediate_size=8, moe_num_shared_experts=2,
            moe_layer_start_index=1, moe_layer_end_index=-1, use_bias=True,
            tie_word_embeddings=True), [dict(moe_k=1), dict(rope_parameters=no_theta)], **files),
        "mixtral_stacked": Variant("Mixtral", dict(
            **{**tiny, "intermediate_size": 8}, num_local_experts=4, num_experts_per_tok=2,
            tie_word_embeddings=True), [dict(num_experts_per_tok=1)], stacked=True, **files),
        "gpt_oss": Variant("GptOss", dict(
            **{**tiny, "intermediate_size": 16, "rope_parameters": rope(
                "yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16,
                beta_fast=2.0, truncate=False)}, head_dim=8, num_local_experts=4,
            num_experts_per_tok=2, sliding_window=16, swiglu_limit=1.0, swiglu_alpha=1.5),
            [dict(sliding_window=17), dict(swiglu_limit=7.0), dict(swiglu_alpha=1.702),
             dict(num_experts_per_tok=1), dict(layer_types=["full_attention"] * 2)], **files),
        "gpt_oss_mxfp4": Variant("GptOss", dict(
            **{**tiny, "intermediate_size": 32, "rope_parameters": rope(
                "yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16,
                beta_fast=2.0, truncate=False)}, head_dim=8, num_local_experts=4,
            num_experts_per_tok=2, sliding_window=16),
            [dict(num_experts_per_tok=1), dict(swiglu_limit=1.0)], format="mxfp4",
            dtype=torch.bfloat16, prompts=(20, 8)),
        # Both experts are used by every token.
        "gpt_oss_bf16_heads_64": Variant("GptOss", dict(
            **{**tiny, "intermediate_size": 16, "num_key_value_heads": 1}, head_dim=64,
            num_attention_heads=2, num_local_experts=2, num_experts_per_tok=2, sliding_window=16,
            swiglu_limit=2.0), [dict(sliding_window=17), dict(swiglu_limit=7.0)],
            dtype=torch.bfloat16, prompts=(20, 8), sharpness=1.2),
        # Chunks of 8: prompts see the end of one and the middle of another.
        "llama4": Variant("Llama4", llama4, llama4_off, config_class="Llama4TextConfig", **files),
        # Scout's rotation has no band between its two factors.
        "llama4_wrapped": Variant(
            "Llama4", dict(llama4, interleave_moe_layer_step=1, rope_parameters=rope(
                "llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=1.0,
                original_max_position_embeddings=16)),
            [llama4_off[0], dict(rope_parameters=rope("default", rope_theta=100.0))],
            config_class="Llama4TextConfig", rename=("", "language_model."),
            wrapper="Llama4ForConditionalGeneration", **files),
        "phimoe": Variant("Phimoe", dict(
            **{**tiny, "intermediate_size": 8, "rope_parameters": rope(
                "longrope", rope_theta=100.0, short_factor=[1.0, 1.2, 1.5, 4.0],
                long_factor=[1.0, 1.2, 1.5, 4.0], short_mscale=1.3, long_mscale=1.3,
                original_max_position_embeddings=16)}, num_local_experts=4, num_experts_per_tok=2,
            attention_bias=True, lm_head_bias=True, router_jitter_noise=0.3, sliding_window=None),
            [dict(router_jitter_noise=0.01), dict(rms_norm_eps=0.0), dict(rope_parameters=plain)],
            **files),
        "olmoe": Variant("Olmoe", dict(
            **{**tiny, "intermediate_size": 8}, num_experts=4, num_experts_per_tok=2,
            norm_topk_prob=False, clip_qkv=0.75, eos_token_id=1, pad_token_id=None),
            [dict(norm_topk_prob=True), dict(rms_norm_eps=0.0), dict(clip_qkv=None)], **files),
        "minimax_m2": Variant("MiniMaxM2", dict(
            **{**tiny, "intermediate_size": 8, "rope_parameters": rope(
                "default", partial_rotary_factor=0.5)}, head_dim=8, num_local_experts=4,
            num_experts_per_tok=2, tie_word_embeddings=True),
            [dict(num_experts_per_tok=1), dict(rope_parameters=plain)], **files),
        "hunyuan_moe": Variant("HunYuanMoEV1", dict(
            **{**tiny, "intermediate_size": 8}, num_experts=4, moe_topk=2, head_dim=8,
            tie_word_embeddings=True), [dict(moe_topk=1), dict(rope_parameters=no_theta)],
            **files),
        "granite_moe": Variant("GraniteMoe", dict(
            **{**tiny, "intermediate_size": 8}, num_local_experts=4, num_experts_per_tok=2,
            embedding_multiplier=1.5, attention_multiplier=0.4, residual_multiplier=0.7,
            logits_scaling=2.0),
            [dict(embedding_multiplier=1.0), dict(attention_multiplier=1.0),
             dict(residual_multiplier=1.0), dict(logits_scaling=1.0), dict(num_experts_per_tok=1)],
            **files),
    }
