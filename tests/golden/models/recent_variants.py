"""Variants of make.py of families of 2025 and 2026 that are made of the parts of others. They are
small, in float16, which float32 holds exactly, and their prompts are short."""
import torch


def variants(Variant, rope):
    """Name -> variant; the arguments are make.py's."""
    plain, no_theta = rope("default"), rope("default", rope_theta=100.0)
    tiny = dict(rope_parameters=no_theta, hidden_size=16, intermediate_size=20, head_dim=8)
    files = dict(dtype=torch.float16, prompts=(12, 3))
    scored = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                  n_shared_experts=1, routed_scaling_factor=1.5, first_k_dense_replace=1)
    tower = dict(hidden_size=8, intermediate_size=8, depth=1, num_heads=1, patch_size=2,
                 out_hidden_size=16, spatial_merge_size=1, temporal_patch_size=1)
    glm_tower = dict(tower, image_size=4)
    yarn = rope("yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8,
                beta_fast=2.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5,
                partial_rotary_factor=0.4)
    by_type = rope("yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8,
                   beta_fast=2.0)
    mistral4 = dict(
        hidden_size=16, num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10, qk_nope_head_dim=6,
        qk_rope_head_dim=4, v_head_dim=5, intermediate_size=20, rope_parameters=yarn,
        **{**scored, "first_k_dense_replace": 0})
    mistral4_off = [dict(rope_parameters={**yarn, "llama_4_scaling_beta": 0.0}),
                    dict(rope_parameters={**yarn, "mscale_all_dim": 0.5}),
                    dict(norm_topk_prob=False), dict(num_experts_per_tok=1),
                    dict(routed_scaling_factor=1.0)]
    return {
        "afmoe": Variant("Afmoe", dict(
            tiny, num_dense_layers=1, num_experts=4,
            num_experts_per_tok=2, moe_intermediate_size=8, num_shared_experts=1, route_scale=1.5,
            sliding_window=8, layer_types=["full_attention", "sliding_attention"],
            mup_enabled=True),
            [dict(mup_enabled=False), dict(route_scale=1.0), dict(sliding_window=9),
             dict(layer_types=["sliding_attention"] * 2), dict(num_experts_per_tok=1),
             dict(rope_parameters=plain)], **files),
        "arcee": Variant("Arcee", dict(tiny, attention_bias=True, mlp_bias=True),
                         [dict(hidden_act="relu"), dict(rope_parameters=plain)], **files),
        "dots1": Variant("Dots1", dict(
            tiny, **scored, norm_topk_prob=True, sliding_window=None),
            [dict(routed_scaling_factor=1.0), dict(norm_topk_prob=False),
             dict(num_experts_per_tok=1), dict(rope_parameters=plain)], **files),
        "exaone_moe": Variant("ExaoneMoe", dict(
            tiny, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
            num_shared_experts=1, routed_scaling_factor=1.5, sliding_window=8,
            sliding_window_pattern=2, first_k_dense_replace=1),
            [dict(sliding_window=9), dict(routed_scaling_factor=1.0), dict(norm_topk_prob=False),
             dict(num_experts_per_tok=1), dict(rope_parameters=plain)], **files),
        "exaone4_5": Variant("Exaone4_5_", dict(
            tiny, model_type="exaone4", sliding_window=8, sliding_window_pattern=2),
            [dict(sliding_window=9), dict(rope_parameters=plain)],
            config_class="Exaone4_5_Config", model_class="Exaone4_5_ForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=dict(
                tower, fullatt_block_indexes=[0], num_key_value_heads=1)), **files),
        "glm4v": Variant("Glm4v", dict(
            {**tiny, "head_dim": None, "num_attention_heads": 2, "num_key_value_heads": 1,
             "rope_parameters": rope("default", rope_theta=100.0, mrope_section=[1, 1, 0],
                                             partial_rotary_factor=0.5)}),
            [dict(rope_parameters=rope("default", mrope_section=[1, 1, 0],
                                       partial_rotary_factor=0.5))],
            model_class="Glm4vForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=glm_tower), **files),
        "glm4v_moe": Variant("Glm4vMoe", dict(
            {**tiny, "rope_parameters": rope("default", rope_theta=100.0, mrope_section=[1, 1, 0],
                                             partial_rotary_factor=0.5)}, **scored),
            [dict(routed_scaling_factor=1.0), dict(num_experts_per_tok=1)],
            model_class="Glm4vMoeForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=glm_tower), **files),
        "granite_moe_hybrid": Variant("GraniteMoeHybrid", dict(
            {**tiny, "intermediate_size": 12}, shared_intermediate_size=20, num_local_experts=0,
            layer_types=["full_attention"] * 2, position_embedding_type="rope",
            embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.5,
            logits_scaling=4.0, mamba_n_heads=4, mamba_d_head=8),
            [dict(embedding_multiplier=1.0), dict(attention_multiplier=0.35),
             dict(residual_multiplier=1.0), dict(logits_scaling=1.0),
             dict(position_embedding_type=None)], **files),
        "hy_v3": Variant("HYV3", dict(
            tiny, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
            num_shared_experts=1, router_scaling_factor=1.5, mlp_layer_types=["dense", "sparse"]),
            [dict(router_scaling_factor=1.0), dict(num_experts_per_tok=1),
             dict(rope_parameters=plain)], **files),
        "mellum": Variant("Mellum", dict(
            tiny, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, sliding_window=8,
            layer_types=["sliding_attention", "full_attention"], mlp_layer_types=["dense", "sparse"],
            rope_parameters=dict(full_attention=by_type, sliding_attention=no_theta)),
            [dict(sliding_window=9), dict(norm_topk_prob=False), dict(num_experts_per_tok=1),
             dict(rope_parameters=dict(full_attention=no_theta, sliding_attention=no_theta)),
             dict(rope_parameters=dict(full_attention=by_type, sliding_attention=plain))], **files),
        "mistral4": Variant("Mistral4", mistral4, mistral4_off, **files),
        "mistral4_wrapped": Variant("Mistral4", dict(mistral4, first_k_dense_replace=1),
                                    mistral4_off[:1], rename=("", "language_model."),
                                    wrapper="Mistral3ForConditionalGeneration", stacked=True,
                                    **files),
        "solar_open": Variant("SolarOpen", dict(
            tiny, attention_bias=True, **{**scored, "first_k_dense_replace": 0}),
            [dict(routed_scaling_factor=1.0), dict(norm_topk_prob=False),
             dict(num_experts_per_tok=1), dict(rope_parameters=plain)], **files),
        "qwen3_vl_moe": Variant("Qwen3VLMoe", dict(
            {**tiny, "rope_parameters": rope("default", rope_theta=100.0, mrope_section=[2, 1, 1],
                                             mrope_interleaved=True)}, num_experts=4,
            num_experts_per_tok=2, moe_intermediate_size=12, mlp_only_layers=[0]),
            [dict(num_experts_per_tok=1),
             dict(rope_parameters=rope("default", mrope_section=[2, 1, 1]))],
            model_class="Qwen3VLMoeForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=dict(
                tower, num_position_embeddings=4, deepstack_visual_indexes=[0])), turned=True,
            **files),
    }
