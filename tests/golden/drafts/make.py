#!/usr/bin/env python3
"""Makes the tiny checkpoints beside this file, each with a head for further tokens, and what it proposes.

    make.py [MODEL ...]    needs torch, transformers 5.24, safetensors; CPU only, a minute

Each folder is a model as it would be published, and expected.json:
    prompt   token ids
    tokens   what greedy decoding appends
    drafts   of each of these tokens the DRAFTS ids that the head proposes behind it

The oracle of DeepSeek-V3 and GLM-4.5 is transformers' MtpModel (generate(use_mtp=True)). transformers leaves
Qwen3.5's head out, so its oracle is that MtpLayer of Qwen3.5's own decoder layer and norm. Everything is
random, in float32; the two best logits of each choice are more than MARGIN of the largest apart. And a head
whose two inputs change places, or whose norms do, must propose something else mostly.
"""
import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from transformers import modeling_layers

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, DRAFTS, MARGIN = 12, 3, 1e-3
BASE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=20,
            vocab_size=48, max_position_embeddings=128, rms_norm_eps=0.05, tie_word_embeddings=False, bos_token_id=0,
            eos_token_id=1, pad_token_id=None)
EXPERTS = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=8,
               first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=1.5, norm_topk_prob=True)
MODELS = {
    "qwen3_5": ("Qwen3_5Text", "Qwen3_5ForCausalLM", dict(
        BASE, head_dim=8, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=6, linear_conv_kernel_dim=4,
        rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5,
                             mrope_section=[1, 1, 0]))),
    "deepseek_v3": ("DeepseekV3", "DeepseekV3ForCausalLM", dict(
        dict(BASE, num_key_value_heads=2), **EXPERTS, num_mtp_layers=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6,
        v_head_dim=6, rope_parameters=dict(rope_type="default", rope_theta=100.0))),
    "glm4_moe": ("Glm4Moe", "Glm4MoeForCausalLM", dict(
        BASE, **EXPERTS, num_mtp_layers=1, head_dim=8, use_qk_norm=True, attention_bias=True,
        rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))),
}


def randomize(module):
    """Matrices that keep the size of what they multiply; norms near what they are."""
    for name, parameter in module.named_parameters():
        scale = 1.7 / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 0.4
        middle = parameter.data if parameter.dim() == 1 else 0
        parameter.data = middle + torch.randn_like(parameter) * scale
    for name, buffer in module.named_buffers():
        if "correction" in name:
            buffer.copy_(torch.randn_like(buffer) * 0.2)


class Head(torch.nn.Module):
    """One MtpLayer beside its model."""

    def __init__(self, model):
        super().__init__()
        decoder, config = model.get_decoder(), model.config
        index = len(decoder.layers) - 1
        norm = type(decoder.norm)
        self.layer = modeling_layers.MtpLayer(config, type(decoder.layers[index]), norm, index)
        randomize(self.layer)

    def forward(self, model, rows, ids):
        """Behind each of `rows` [n, hidden], which are the model's, with the token that follows it: the head's."""
        decoder, count = model.get_decoder(), len(ids)
        positions = torch.arange(count)[None]
        embedded = decoder.embed_tokens(torch.tensor([ids]))
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        return self.layer(embedded, rows[None], position_embeddings=decoder.rotary_emb(embedded, positions),
                          attention_mask=mask, position_ids=positions, cache=None)[0]


def best(logits):
    values, ids = logits.topk(2)
    return int(ids[0]), float((values[0] - values[1]) / logits.abs().max())


def propose(model, head, rows, ids):
    """DRAFTS ids behind `ids`, of which rows[i] is in front of ids[i]."""
    rows, ids, drafts, margins = rows.clone(), list(ids), [], []
    for _ in range(DRAFTS):
        behind = head(model, rows, ids)[-1:]
        draft, margin = best(model.lm_head(behind)[0])
        drafts.append(draft)
        margins.append(margin)
        rows, ids = torch.cat([rows, behind]), ids + [draft]
    return drafts, min(margins)


def run(model, head, prompt):
    tokens, drafts, margins = list(prompt), [], []
    for _ in range(TOKENS):
        out = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
        token, margin = best(out.logits[0, -1])
        margins.append(margin)
        tokens.append(token)
        proposed, margin = propose(model, head, out.hidden_states[-1][0], tokens[1:])
        drafts.append(proposed)
        margins.append(margin)
    return tokens[len(prompt):], drafts, min(margins)


def differs(model, head, prompt, drafts, change):
    change(head.layer)
    other = run(model, head, prompt)[1]
    change(head.layer)
    return sum(a[0] != b[0] for a, b in zip(drafts, other)) > TOKENS / 2


def swap_inputs(layer):
    width = layer.eh_proj.weight.shape[0]
    layer.eh_proj.weight.data = layer.eh_proj.weight.data.roll(width, 1)


def swap_norms(layer):
    layer.enorm, layer.hnorm = layer.hnorm, layer.enorm


def oracle_agrees(model, head, prompt, folder):
    """That transformers' own MtpModel proposes the same from the saved folder."""
    # transformers finds the head's tensors by the layer number of the published model.
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{model.config.num_hidden_layers}.*"]
    mtp = modeling_layers.MtpModel.from_pretrained(model)
    ids = prompt
    out = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    token, _ = best(out.logits[0, -1])
    positions = torch.arange(1, len(ids) + 1)[None]
    proposed = mtp(input_ids=torch.tensor([ids[1:] + [token]]), last_hidden_states=out.hidden_states[-1],
                   attention_mask=None, position_ids=positions, mtp_cache=None)[0]
    return int(proposed[0, 0])


def tensors_of(name, head, layers):
    prefix = "mtp." if name == "qwen3_5" else f"model.layers.{layers}."
    names = ({"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "post_norm": "norm"}
             if name == "qwen3_5" else {"post_norm": "shared_head.norm"})
    tensors = {}
    for key, value in head.layer.state_dict().items():
        first, _, rest = key.partition(".")
        if first == "mtp_block":
            key = ("layers.0." if name == "qwen3_5" else "") + rest
        else:
            key = names.get(first, first) + "." + rest
        tensors[prefix + key] = value.clone().contiguous()
    return tensors


def unstack(tensors):
    """Experts by number, as these models are published."""
    plain = {}
    for key, value in tensors.items():
        if key.endswith("experts.gate_up_proj"):
            for i, expert in enumerate(value):
                gate, up = expert.chunk(2)
                plain[key.replace("gate_up_proj", f"{i}.gate_proj.weight")] = gate.contiguous()
                plain[key.replace("gate_up_proj", f"{i}.up_proj.weight")] = up.contiguous()
        elif key.endswith("experts.down_proj"):
            for i, expert in enumerate(value):
                plain[key.replace("down_proj", f"{i}.down_proj.weight")] = expert.contiguous()
        else:
            plain[key] = value
    return plain


def make(name):
    prefix, model_class, config = MODELS[name]
    for seed in range(200):
        torch.manual_seed(seed)
        model = getattr(transformers, model_class)._from_config(
            getattr(transformers, prefix + "Config")(**config), attn_implementation="eager").eval()
        with torch.no_grad():
            randomize(model)
            head = Head(model)
            prompt = torch.randint(2, config["vocab_size"], (20,)).tolist()
            tokens, drafts, margin = run(model, head, prompt)
            if margin < MARGIN:
                continue
            if not differs(model, head, prompt, drafts, swap_inputs):
                continue
            if not differs(model, head, prompt, drafts, swap_norms):
                continue
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        model.save_pretrained(folder, max_shard_size="1GB")
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        weights.update(tensors_of(name, head, config["num_hidden_layers"]))
        safetensors.torch.save_file(unstack(weights), folder / "model.safetensors", {"format": "pt"})
        settings = json.loads((folder / "config.json").read_text())
        if name == "qwen3_5":
            settings["mtp_num_hidden_layers"] = 1
        else:
            settings["num_nextn_predict_layers"] = settings.pop("num_mtp_layers", 1)
        (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name != "qwen3_5":
            with torch.no_grad():
                again = getattr(transformers, model_class).from_pretrained(folder, attn_implementation="eager").eval()
                assert oracle_agrees(again, head, prompt, folder) == drafts[0][0], "MtpModel proposes another token"
        (folder / "expected.json").write_text(json.dumps({"prompt": prompt, "tokens": tokens, "drafts": drafts}) + "\n")
        print(name, "seed", seed, "margin", margin, sum(f.stat().st_size for f in folder.iterdir()), "bytes")
        return
    raise SystemExit(f"{name}: no seed")


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        make(each)
