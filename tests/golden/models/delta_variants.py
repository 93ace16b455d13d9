"""Variants of make.py of families with gated delta nets. They are small, in float16, which float32
holds exactly. One prompt is longer than the oracle's chunks of 64 rows, others are shorter than the
taps of a convolution."""
import torch


def variants(Variant, rope):
    """Name -> variant; the arguments are make.py's."""
    def rotated(**values):
        return rope("default", rope_theta=100.0, partial_rotary_factor=0.5, **values)

    delta = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                 linear_value_head_dim=6, linear_conv_kernel_dim=4)
    tiny = dict(delta, head_dim=8, intermediate_size=20, num_hidden_layers=3,
                rope_parameters=rotated(mrope_section=[1, 1, 0]),
                layer_types=["linear_attention", "full_attention", "linear_attention"])
    off = [dict(rope_parameters=rotated(mrope_section=[1, 1, 0]) | {"rope_theta": 1e4}),
           dict(rms_norm_eps=0.0), dict(hidden_act="gelu"),
           dict(rope_parameters=rope("default", rope_theta=100.0, partial_rotary_factor=1.0,
                                     mrope_section=[2, 1, 1]))]
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                   shared_expert_intermediate_size=12)
    vision = dict(hidden_size=8, intermediate_size=8, depth=1, num_heads=1, patch_size=2,
                  out_hidden_size=32, num_position_embeddings=4, spatial_merge_size=1,
                  temporal_patch_size=1)
    files = dict(dtype=torch.float16, prompts=(20, 3))
    return {
        "qwen3_5": Variant("Qwen3_5", tiny, off, config_class="Qwen3_5TextConfig",
                           dtype=torch.float16, prompts=(66, 20)),
        # By default every fourth layer attends; one value head reads a key head, of which there are
        # as many as ranks may share.
        "qwen3_5_wrapped": Variant("Qwen3_5", dict(
            {k: v for k, v in tiny.items() if k != "layer_types"}, num_hidden_layers=4,
            linear_num_key_heads=4, linear_key_head_dim=4, intermediate_size=12,
            tie_word_embeddings=True), off[:1],
            model_class="Qwen3_5ForConditionalGeneration",
            outer=dict(tie_word_embeddings=True, vision_config=vision), **files),
        "qwen3_5_moe": Variant("Qwen3_5Moe", dict(tiny, **experts), [dict(num_experts_per_tok=1)],
                               config_class="Qwen3_5MoeTextConfig", stacked=True, **files),
        "qwen3_5_moe_wrapped": Variant("Qwen3_5Moe", dict(
            tiny, **experts, num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"], tie_word_embeddings=True),
            [dict(num_experts_per_tok=1)],
            model_class="Qwen3_5MoeForConditionalGeneration",
            outer=dict(tie_word_embeddings=True, vision_config=vision), **files),
        "qwen3_next": Variant("Qwen3Next", dict(
            tiny, **experts, rope_parameters=rotated(), mlp_only_layers=[1], norm_topk_prob=False),
            [dict(norm_topk_prob=True), dict(num_experts_per_tok=1)], **files),
    }
