"""Writes a Llama, a Qwen3.5 or a DeepSeek V3 with random bfloat16 weights, with the shipped model's tokenizer. Standard library only.

write(FOLDER, layers=..., hidden=..., heads=..., kv_heads=..., ffn=..., context=...) -> bytes of weights
`vocabulary`: more tokens than the shipped tokenizer has; the others get made-up texts, which no text becomes.
`tied`: the embedding is the head too. `files`: safetensors files of about equal size, with an index where there are several.
`zeros`: weights of zero instead, which are written in no time and take no room where the file system keeps holes.
`delta`: (key heads, value heads, width of each) of gated delta nets: all layers but every fourth one have them, and those
are Qwen3.5's; `head_dim`: where it is not hidden / heads. `draft_head`: with its head for further tokens.
`latent`: (rank, rotated, plain, value, query rank) of DeepSeek V3's latent attention; its layers are dense here.
"""

import array
import json
import math
import pathlib
import random
import shutil
import struct

SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo_model" / "tessera-demo"


class NormalNumbers:
    """bfloat16 numbers of a normal distribution, as trained weights nearly are: a group's largest number says how much
    of it int8 loses, and numbers of about one size would flatter large groups. Rows are pieces of one long run."""

    COUNT = 1 << 20

    def __init__(self, seed):
        self.generator = random.Random(seed)
        wide = array.array("f", (self.generator.gauss(0, 0.02) for _ in range(self.COUNT))).tobytes()
        self.run = bytearray(2 * self.COUNT)
        self.run[0::2], self.run[1::2] = wide[2::4], wide[3::4]  # the upper halves, as little-endian processors keep them

    def take(self, count):
        begin = 2 * self.generator.randrange(self.COUNT - count)
        return self.run[begin:begin + 2 * count]


def write_file(path, shapes, numbers):
    """One safetensors file; of zeros without `numbers`."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if numbers is None:
            file.truncate(file.tell() + offset)
            return
        for shape in shapes.values():
            if len(shape) == 1:
                file.write(b"\x80\x3f" * shape[0])  # norms of one
            else:
                for _ in range(math.prod(shape[:-1])):
                    file.write(numbers.take(shape[-1]))


def attention_shapes(hidden, heads, kv_heads, head_dim, gated):
    return {"self_attn.q_proj": ((2 if gated else 1) * heads * head_dim, hidden),
            "self_attn.k_proj": (kv_heads * head_dim, hidden), "self_attn.v_proj": (kv_heads * head_dim, hidden),
            "self_attn.o_proj": (hidden, heads * head_dim),
            **({"self_attn.q_norm": (head_dim,), "self_attn.k_norm": (head_dim,)} if gated else {})}


def layer_shapes(at, hidden, ffn, mixer):
    return {at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
            **{f"{at}{name}.weight": shape for name, shape in mixer.items()},
            at + "mlp.gate_proj.weight": (ffn, hidden), at + "mlp.up_proj.weight": (ffn, hidden),
            at + "mlp.down_proj.weight": (hidden, ffn)}


def delta_shapes(hidden, key_heads, value_heads, width):
    channels = (2 * key_heads + value_heads) * width
    return {"linear_attn.in_proj_qkv": (channels, hidden), "linear_attn.in_proj_z": (value_heads * width, hidden),
            "linear_attn.in_proj_b": (value_heads, hidden), "linear_attn.in_proj_a": (value_heads, hidden),
            "linear_attn.conv1d": (channels, 1, 4), "linear_attn.norm": (width,),
            "linear_attn.out_proj": (hidden, value_heads * width)}


def latent_shapes(hidden, heads, rank, rotated, plain, value, query_rank):
    return {"self_attn.q_a_proj": (query_rank, hidden), "self_attn.q_a_layernorm": (query_rank,),
            "self_attn.q_b_proj": (heads * (plain + rotated), query_rank),
            "self_attn.kv_a_proj_with_mqa": (rank + rotated, hidden), "self_attn.kv_a_layernorm": (rank,),
            "self_attn.kv_b_proj": (heads * (plain + value), rank), "self_attn.o_proj": (hidden, heads * value)}


def latent_config(layers, rank, rotated, plain, value, query_rank):
    return {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": rank,
            "qk_rope_head_dim": rotated, "qk_nope_head_dim": plain, "v_head_dim": value, "q_lora_rank": query_rank,
            "first_k_dense_replace": layers, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}


def hybrid_config(delta):
    key_heads, value_heads, width = delta
    return {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "full_attention_interval": 4,
            "linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads, "linear_key_head_dim": width,
            "linear_value_head_dim": width, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}}


def write(folder, layers, hidden, heads, kv_heads, ffn, context, vocabulary=None, seed=1, tied=False, files=1,
          zeros=False, delta=None, head_dim=None, latent=None, draft_head=False):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((SHIPPED / "config.json").read_text())
    head_dim = head_dim or hidden // heads
    if delta is not None or latent is not None:
        config = {key: config[key] for key in ("vocab_size", "bos_token_id", "eos_token_id", "torch_dtype")}
        config.update(hybrid_config(delta) if latent is None else latent_config(layers, *latent), hidden_act="silu")
    if draft_head:
        config["mtp_num_hidden_layers"] = 1
    config.update(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, head_dim=head_dim,
                  num_key_value_heads=kv_heads, intermediate_size=ffn, max_position_embeddings=context,
                  tie_word_embeddings=tied, vocab_size=vocabulary or config["vocab_size"])
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(SHIPPED / name, folder / name)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for i in range(len(tokenizer["model"]["vocab"]), config["vocab_size"]):
        tokenizer["model"]["vocab"].setdefault(f"<t{i}>", i)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not tied:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for i in range(layers):
        at = f"model.layers.{i}."
        attends = delta is None or i % 4 == 3
        mixer = (latent_shapes(hidden, heads, *latent) if latent is not None
                 else attention_shapes(hidden, heads, kv_heads, head_dim, gated=delta is not None) if attends
                 else delta_shapes(hidden, *delta))
        shapes.update(layer_shapes(at, hidden, ffn, mixer))
        if not attends:
            shapes.update({at + "linear_attn.A_log": (delta[1],), at + "linear_attn.dt_bias": (delta[1],)})
    if draft_head:
        shapes.update(layer_shapes("mtp.layers.0.", hidden, ffn,
                                   attention_shapes(hidden, heads, kv_heads, head_dim, gated=True)))
        shapes.update({"mtp.fc.weight": (hidden, 2 * hidden), "mtp.norm.weight": (hidden,),
                       "mtp.pre_fc_norm_embedding.weight": (hidden,), "mtp.pre_fc_norm_hidden.weight": (hidden,)})
    sizes = {name: 2 * math.prod(shape) for name, shape in shapes.items()}
    total = sum(sizes.values())
    parts, begin = [{} for _ in range(files)], 0
    for name, shape in shapes.items():
        parts[begin * files // total][name] = shape
        begin += sizes[name]
    names = ["model.safetensors"] if files == 1 else [f"model-{i + 1:05}-of-{files:05}.safetensors" for i in range(files)]
    numbers = None if zeros else NormalNumbers(seed)
    for name, part in zip(names, parts):
        write_file(folder / name, part, numbers)
    if files > 1:
        map_ = {tensor: name for name, part in zip(names, parts) for tensor in part}
        index = {"metadata": {"total_size": total}, "weight_map": map_}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total
