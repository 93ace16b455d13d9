"""Writes a Llama with random bfloat16 weights, with the shipped model's tokenizer. Standard library only.

write(FOLDER, layers=..., hidden=..., heads=..., kv_heads=..., ffn=..., context=...) -> bytes of weights
`vocabulary`: more tokens than the shipped tokenizer has; the others get made-up texts, which no text becomes.
"""

import json
import pathlib
import random
import shutil
import struct

SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo_model" / "tessera-demo"


def random_bfloat16(generator, count):
    """`count` numbers of random sign and size within [0.0078, 0.0156)."""
    keep = int.from_bytes(b"\x7f\x80" * count, "little")      # sign and mantissa stay random
    exponent = int.from_bytes(b"\x00\x3c" * count, "little")  # 2^-7
    bits = int.from_bytes(generator.randbytes(2 * count), "little")
    return ((bits & keep) | exponent).to_bytes(2 * count, "little")


def write(folder, layers, hidden, heads, kv_heads, ffn, context, vocabulary=None, seed=1):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((SHIPPED / "config.json").read_text())
    head_dim = hidden // heads
    config.update(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, head_dim=head_dim,
                  num_key_value_heads=kv_heads, intermediate_size=ffn, max_position_embeddings=context,
                  tie_word_embeddings=False, vocab_size=vocabulary or config["vocab_size"])
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(SHIPPED / name, folder / name)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for i in range(len(tokenizer["model"]["vocab"]), config["vocab_size"]):
        tokenizer["model"]["vocab"].setdefault(f"<t{i}>", i)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (config["vocab_size"], hidden)}
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
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(seed)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            if len(shape) == 1:
                file.write(b"\x80\x3f" * shape[0])  # norms of one
            else:
                for _ in range(shape[0]):
                    file.write(random_bfloat16(generator, shape[1]))
    return offset
