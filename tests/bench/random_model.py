"""Writes a Llama with random bfloat16 weights, with the shipped model's tokenizer. Standard library only.

write(FOLDER, layers=..., hidden=..., heads=..., kv_heads=..., ffn=..., context=...) -> bytes of weights
`vocabulary`: more tokens than the shipped tokenizer has; the others get made-up texts, which no text becomes.
`tied`: the embedding is the head too. `files`: safetensors files of about equal size, with an index where there are several.
`zeros`: weights of zero instead, which are written in no time and take no room where the file system keeps holes.
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
                for _ in range(shape[0]):
                    file.write(numbers.take(shape[1]))


def write(folder, layers, hidden, heads, kv_heads, ffn, context, vocabulary=None, seed=1, tied=False, files=1,
          zeros=False):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((SHIPPED / "config.json").read_text())
    head_dim = hidden // heads
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
        shapes.update({
            at + "input_layernorm.weight": (hidden,), at + "post_attention_layernorm.weight": (hidden,),
            at + "self_attn.q_proj.weight": (heads * head_dim, hidden),
            at + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
            at + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
            at + "self_attn.o_proj.weight": (hidden, heads * head_dim),
            at + "mlp.gate_proj.weight": (ffn, hidden), at + "mlp.up_proj.weight": (ffn, hidden),
            at + "mlp.down_proj.weight": (hidden, ffn)})
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
