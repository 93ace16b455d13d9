"""Writes a checkpoint of train.py as a Hugging Face folder (bfloat16), beside its tokenizer.

    python3 export.py --checkpoint /tmp/demo.pt

safetensors is written here by hand (a length, a JSON header, the bytes), so that nothing beyond
PyTorch is needed; the file's bytes depend on the checkpoint alone.
"""

import argparse
import json
import os
import struct

import torch

from make_tokenizer import BEGIN, END, FOLDER, MAX_POSITIONS, PAD, SPECIALS
from model import Shape


def tensors(state, shape):
    """The checkpoint's parameters under Llama's names, one per matrix."""
    wide, narrow = shape.query_heads * shape.head, shape.kv_heads * shape.head
    named = {"model.embed_tokens.weight": state["embedding.weight"],
             "model.norm.weight": state["norm.weight"]}
    for index in range(shape.layers):
        def take(name, index=index):
            return state["layers.%d.%s.weight" % (index, name)]
        prefix = "model.layers.%d." % index
        query, key, value = take("qkv").split((wide, narrow, narrow))
        gate, up = take("gate_up").chunk(2)
        for name, tensor in (
                ("input_layernorm", take("attention_norm")), ("self_attn.q_proj", query),
                ("self_attn.k_proj", key), ("self_attn.v_proj", value),
                ("self_attn.o_proj", take("out")), ("post_attention_layernorm", take("mlp_norm")),
                ("mlp.gate_proj", gate), ("mlp.up_proj", up), ("mlp.down_proj", take("down"))):
            named[prefix + name + ".weight"] = tensor
    return named


def write_safetensors(path, named):
    """named: name -> tensor; all are stored as BF16, in order of name."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(named):
        bits = named[name].to(torch.bfloat16).contiguous().view(torch.int16)
        blob = bits.numpy().astype("<i2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(named[name].shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.writelines(blobs)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
        out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--folder", default=FOLDER)
    args = parser.parse_args()
    state = torch.load(args.checkpoint, map_location="cpu")
    shape = Shape(**state["shape"])
    write_safetensors(os.path.join(args.folder, "model.safetensors"),
                      tensors(state["model"], shape))
    ids = {token: index for index, token in enumerate(SPECIALS)}
    write_json(os.path.join(args.folder, "config.json"), {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": ids[BEGIN],
        "eos_token_id": ids[END],
        "pad_token_id": ids[PAD],
        "head_dim": shape.head,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": MAX_POSITIONS,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.query_heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.epsilon,
        "rope_scaling": None,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": shape.vocabulary,
    })
    write_json(os.path.join(args.folder, "generation_config.json"), {
        "bos_token_id": ids[BEGIN], "eos_token_id": [ids[END]], "pad_token_id": ids[PAD],
        "do_sample": False})
    print("step %d, %.0f s of training: %s" % (state["step"], state["seconds"], args.folder))


if __name__ == "__main__":
    main()
