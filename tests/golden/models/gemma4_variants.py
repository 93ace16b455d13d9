"""Variants of make.py of Gemma 4. They are small, in float16, which float32 holds exactly."""
import torch


def variants(Variant, rope):
    """Name -> variant; the arguments are make.py's."""
    files = dict(dtype=torch.float16, prompts=(20, 6))
    ropes = {"full_attention": rope("proportional", rope_theta=100.0, partial_rotary_factor=0.25),
             "sliding_attention": rope("default", rope_theta=100.0)}
    # The root of 36, which embeddings are multiplied by, is a number of 16 bits.
    common = dict(
        hidden_size=36, intermediate_size=20, head_dim=8, global_head_dim=16, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"], rope_parameters=ropes,
        final_logit_softcapping=5.0)
    keys = dict(common, attention_k_eq_v=True, num_global_key_value_heads=1)
    no_layers = dict(hidden_size_per_layer_input=0)
    off = [dict(sliding_window=9), dict(final_logit_softcapping=None),
           dict(rope_parameters=dict(ropes, full_attention=rope(
               "proportional", rope_theta=100.0, partial_rotary_factor=0.5))),
           dict(rope_parameters=dict(ropes, sliding_attention=rope("default", rope_theta=1000.0))),
           dict(rms_norm_eps=0.0)]
    tower = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                 num_key_value_heads=1, head_dim=8, global_head_dim=8, patch_size=2,
                 position_embedding_size=4, pooling_kernel_size=1)
    # As E2B and E4B: of four layers the last two borrow what the first two keep.
    lent = dict(common, layer_types=["sliding_attention", "full_attention"] * 2,
                num_hidden_layers=4, num_kv_shared_layers=2, use_double_wide_mlp=True,
                intermediate_size=12, hidden_size_per_layer_input=4,
                vocab_size_per_layer_input=96)
    return {
        "gemma4_per_layer": Variant("Gemma4", lent, off[:2], config_class="Gemma4TextConfig",
                                    **files),
        "gemma4": Variant("Gemma4", dict(keys, **no_layers), off,
                          config_class="Gemma4TextConfig", **files),
        "gemma4_moe": Variant(
            "Gemma4", dict(common, **no_layers, enable_moe_block=True, num_experts=4, pad_token_id=0,
                           top_k_experts=2, moe_intermediate_size=8), off[:1],
            model_class="Gemma4ForConditionalGeneration",
            outer=dict(tie_word_embeddings=False, vision_config=tower, audio_config=None),
            **files),
        "gemma4_unified": Variant(
            "Gemma4Unified", keys, off[:1], config_class="Gemma4UnifiedTextConfig",
            rename=("model.", "model.language_model."),
            wrapper="Gemma4UnifiedForConditionalGeneration", **files),
    }
