"""Writes a Llama checkpoint of bfloat16 (one safetensors file) as GGUF, for llama.cpp. Standard library only.

write(FOLDER, FILE): the same weights; the vocabulary is made up, for prompts are given as token ids.
"""

import json
import pathlib
import struct

F32, BF16 = 0, 30
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
ALIGNMENT = 32
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OTHERS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
          "lm_head.weight": "output.weight"}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, data):
    return text(key) + struct.pack("<I", kind) + data


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def metadata(config):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    numbers = {"context_length": config["max_position_embeddings"], "embedding_length": hidden,
               "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
               "attention.head_count": heads, "attention.head_count_kv": config["num_key_value_heads"],
               "rope.dimension_count": hidden // heads, "vocab_size": config["vocab_size"]}
    reals = {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": config["rope_theta"]}
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{i:02X}>", BYTE) for i in range(256)]
    tokens += [(f"\u2581t{i}", NORMAL) for i in range(len(tokens), config["vocab_size"])]
    entries = [entry("general.architecture", STRING, text("llama")),
               entry("general.file_type", UINT32, struct.pack("<I", 32))]
    entries += [entry("llama." + key, UINT32, struct.pack("<I", value)) for key, value in numbers.items()]
    entries += [entry("llama." + key, FLOAT32, struct.pack("<f", value)) for key, value in reals.items()]
    entries += [entry("tokenizer.ggml.model", STRING, text("llama")),
                entry("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(t) for t, _ in tokens])),
                entry("tokenizer.ggml.scores", ARRAY, array(FLOAT32, [struct.pack("<f", -i) for i in range(len(tokens))])),
                entry("tokenizer.ggml.token_type", ARRAY, array(INT32, [struct.pack("<i", kind) for _, kind in tokens]))]
    entries += [entry(f"tokenizer.ggml.{key}_token_id", UINT32, struct.pack("<I", value))
                for key, value in (("unknown", 0), ("bos", 1), ("eos", 2))]
    return entries


def name_of(name):
    if name in OTHERS:
        return OTHERS[name]
    _, _, index, rest = name.split(".", 3)
    return f"blk.{index}.{LAYER[rest.removesuffix('.weight')]}.weight"


def paired(data, rows, heads):
    """Rows of q or k as llama.cpp rotates them: dimension i beside i + half of the head."""
    size, half = len(data) // rows, rows // heads // 2
    row = lambda head, i: data[(head * 2 * half + i) * size:(head * 2 * half + i + 1) * size]
    return b"".join(row(head, i) + row(head, half + i) for head in range(heads) for i in range(half))


def write(folder, path):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    with open(folder / "model.safetensors", "rb") as source, open(path, "wb") as out:
        length = struct.unpack("<Q", source.read(8))[0]
        tensors = json.loads(source.read(length))
        infos, offset = [], 0
        for name, tensor in tensors.items():
            shape = tensor["shape"]
            kind, size = (F32, 4 * shape[0]) if len(shape) == 1 else (BF16, 2 * shape[0] * shape[1])
            infos.append(text(name_of(name)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        entries = metadata(config)
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries) + b"".join(infos))
        out.write(bytes(-out.tell() % ALIGNMENT))
        for name, tensor in tensors.items():
            begin, end = tensor["data_offsets"]
            source.seek(8 + length + begin)
            data = source.read(end - begin)
            if len(tensor["shape"]) == 1:  # norms: bfloat16 is the upper half of float32
                data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
            for part, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", config["num_key_value_heads"])):
                if part in name:
                    data = paired(data, tensor["shape"][0], heads)
            out.write(data + bytes(-len(data) % ALIGNMENT))
