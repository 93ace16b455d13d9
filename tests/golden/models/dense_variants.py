"""Variants of make.py of dense families with parts of their own: multipliers, soft caps, norms of
other places and kinds, and text parts of what takes images. Their checkpoints are small."""
import torch


def variants(Variant, rope):
    """Name -> variant; the arguments are make.py's."""
    plain, no_theta = rope("default"), rope("default", rope_theta=100.0)
    # Sizes that keep a checkpoint small: half as wide, prompts a few windows long.
    small = dict(head_dim=8, intermediate_size=20)
    small_files = dict(dtype=torch.float16, prompts=(20, 6))
    # The root of 36, which embeddings are multiplied by, is a number of 16 bits. With a tied head
    # most models of this size repeat their input.
    gemma = dict(small, hidden_size=36)
    gemma3 = dict(gemma, sliding_window=8, sliding_window_pattern=2, query_pre_attn_scalar=10,
                  rope_parameters={
                      "full_attention": rope("linear", rope_theta=1000.0, factor=4.0),
                      "sliding_attention": rope("default", rope_theta=100.0)})
    gemma3_off = [dict(sliding_window=9), dict(sliding_window_pattern=3),
                  dict(query_pre_attn_scalar=20),
                  dict(rope_parameters={"full_attention": rope("default", rope_theta=1000.0),
                                        "sliding_attention": rope("default", rope_theta=100.0)}),
                  dict(rope_parameters={
                      "full_attention": rope("linear", rope_theta=1000.0, factor=4.0),
                      "sliding_attention": rope("default", rope_theta=1000.0)})]
    tower = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                 image_size=4, patch_size=2)
    ministral = dict(small, rope_parameters=rope(
        "yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8,
        mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5))
    ministral_off = [
        dict(rope_parameters=dict(ministral["rope_parameters"], llama_4_scaling_beta=0.0)),
        dict(rope_parameters=dict(ministral["rope_parameters"], factor=2.0))]
    olmo3_ropes = {"full_attention": rope("yarn", rope_theta=100.0, factor=4.0, beta_fast=2.0,
                                          original_max_position_embeddings=16),
                   "sliding_attention": rope("default", rope_theta=100.0)}
    return {
        "gemma": Variant("Gemma", dict(gemma, rope_parameters=plain, hidden_act="gelu",
                                       num_key_value_heads=1, tie_word_embeddings=True),
                         [dict(rope_parameters=no_theta), dict(hidden_act="relu")], **small_files),
        "gemma2": Variant("Gemma2", dict(
            gemma, rope_parameters=plain, sliding_window=8, query_pre_attn_scalar=8,
            attn_logit_softcapping=2.0, final_logit_softcapping=5.0),
            [dict(sliding_window=9), dict(query_pre_attn_scalar=20),
             dict(attn_logit_softcapping=None), dict(final_logit_softcapping=None),
             dict(layer_types=["full_attention"] * 2),
             dict(hidden_activation="relu")], **small_files),
        # As GGUF takes it to be: the size of a head. The other one has another.
        "gemma3": Variant("Gemma3", dict(gemma3, query_pre_attn_scalar=8), gemma3_off, config_class="Gemma3TextConfig",
                          **small_files),
        "gemma3_wrapped": Variant("Gemma3", gemma3, gemma3_off,
                                  model_class="Gemma3ForConditionalGeneration",
                                  outer=dict(vision_config=tower, mm_tokens_per_image=1,
                                             tie_word_embeddings=False),
                                  **small_files),
        "granite": Variant("Granite", dict(
            small, rope_parameters=plain, embedding_multiplier=3.0,
            attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=4.0),
            [dict(embedding_multiplier=1.0), dict(attention_multiplier=0.35),
             dict(residual_multiplier=1.0), dict(logits_scaling=1.0)], **small_files),
        "cohere": Variant("Cohere", dict(
            small, rope_parameters=plain, use_qk_norm=True, logit_scale=0.25, layer_norm_eps=0.05,
            tie_word_embeddings=True),
            [dict(logit_scale=0.5), dict(rope_parameters=no_theta), dict(layer_norm_eps=0.0)],
            **small_files),
        "cohere2": Variant("Cohere2", dict(
            small, rope_parameters=plain, sliding_window=8, sliding_window_pattern=2,
            logit_scale=0.25, layer_norm_eps=0.05, tie_word_embeddings=True),
            [dict(logit_scale=0.5), dict(rope_parameters=no_theta), dict(sliding_window=9),
             dict(sliding_window_pattern=3)], **small_files),
        "ministral3": Variant("Ministral3", ministral, ministral_off, **small_files),
        "ministral3_fp8": Variant("Ministral3", dict(ministral, intermediate_size=48), [],
                                  dtype=torch.bfloat16, prompts=(20, 6), sharpness=1.2,
                                  format="fp8_tensor"),
        "mistral3": Variant("Mistral3", dict(ministral, model_type="ministral3"), ministral_off,
                            model_class="Mistral3ForConditionalGeneration",
                            outer=dict(vision_config=dict(tower, head_dim=8),
                                       tie_word_embeddings=False), **small_files),
        "qwen3_vl": Variant("Qwen3VL", dict(small, rope_parameters=rope(
            "default", rope_theta=100.0, mrope_section=[2, 1, 1], mrope_interleaved=True)),
            [dict(rope_parameters=rope("default", rope_theta=1000.0, mrope_section=[2, 1, 1]))],
            model_class="Qwen3VLForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=dict(
                hidden_size=8, intermediate_size=8, depth=1, num_heads=1, patch_size=2,
                out_hidden_size=32, num_position_embeddings=4, deepstack_visual_indexes=[0],
                spatial_merge_size=1, temporal_patch_size=1)), **small_files),
        "qwen2_5_vl": Variant("Qwen2_5_VL", dict(
            intermediate_size=20, use_sliding_window=True, sliding_window=8, max_window_layers=1,
            rope_parameters=rope("default", rope_theta=100.0, mrope_section=[2, 1, 1])),
            [dict(rope_parameters=rope("default", rope_theta=1000.0, mrope_section=[2, 1, 1])),
             dict(sliding_window=9), dict(layer_types=["sliding_attention"] * 2)],
            model_class="Qwen2_5_VLForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=dict(
                hidden_size=8, intermediate_size=8, depth=1, num_heads=1, patch_size=2,
                out_hidden_size=32, spatial_merge_size=1, temporal_patch_size=1,
                fullatt_block_indexes=[0])), **small_files),
        "nemotron": Variant("Nemotron", dict(
            small, rope_parameters=rope("default", partial_rotary_factor=0.5), norm_eps=0.05,
            attention_bias=True, mlp_bias=True, intermediate_size=36),
            [dict(norm_eps=0.0), dict(hidden_act="relu"),
             dict(rope_parameters=rope("default", partial_rotary_factor=1.0))], **small_files),
        "olmo2": Variant("Olmo2", dict(small, rope_parameters=plain),
                         [dict(rope_parameters=no_theta), dict(rms_norm_eps=0.0)], **small_files),
        "olmo3": Variant("Olmo3", dict(small, rope_parameters=olmo3_ropes, sliding_window=8,
                                       layer_types=["sliding_attention", "full_attention"]),
                         [dict(sliding_window=9), dict(layer_types=["full_attention"] * 2),
                          dict(rope_parameters=dict(olmo3_ropes, full_attention=olmo3_ropes[
                              "sliding_attention"]))], **small_files),
        "hunyuan_dense": Variant("HunYuanDenseV1", dict(small, rope_parameters=rope(
            "dynamic", rope_theta=100.0, alpha=20.0, factor=1.0)),
            [dict(rope_parameters=rope("default", rope_theta=100.0)), dict(rms_norm_eps=0.0)],
            **small_files),
    }
