"""A Qwen3 of random float32 weights that is called a reranker, with the shipped model's tokenizer and the tokens of
Qwen3-Reranker's prompt. Standard library only; always the same weights.

tests/end_to_end/tiny_reranker.py prints what transformers (5.24, with torch) makes of PAIRS by the recipe of
huggingface.co/Qwen/Qwen3-Reranker-0.6B: the golden scores of rerank_test.py.
"""

import array
import json
import pathlib
import random
import sys
import tempfile

from int4_folder import write_tensors

SHIPPED = pathlib.Path("deploy/demo_model/tessera-demo")
MARKS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
MERGES = (("n", "o"), ("y", "e"), ("ye", "s"))  # behind the shipped ones
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT = 64, 2, 4, 2, 16, 96, 1024
PREFIX = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
          "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TASK = "Given a web search query, retrieve relevant passages that answer the query"
QUERY = "Who bakes the bread?"
DOCUMENTS = ["The baker has a badge.", "57 + 85 = 142", "It rains in the north, and the miller sleeps. " * 6]


def write(folder):
    tokenizer = json.loads((SHIPPED / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for left, right in MERGES:
        tokenizer["model"]["merges"].append([left, right])
        vocabulary[left + right] = len(vocabulary)
    for i, mark in enumerate(MARKS):
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": len(vocabulary) + i, "content": mark})
    words = len(vocabulary) + len(MARKS)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": words, "hidden_size": HIDDEN,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "head_dim": HEAD_DIM, "intermediate_size": FFN, "hidden_act": "silu", "rms_norm_eps": 1e-6,
              "rope_theta": 1000000.0, "max_position_embeddings": CONTEXT, "attention_bias": False,
              "tie_word_embeddings": True, "use_sliding_window": False, "bos_token_id": 0, "eos_token_id": 5,
              "torch_dtype": "float32"}
    shapes = {"model.embed_tokens.weight": [words, HIDDEN], "model.norm.weight": [HIDDEN]}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": [HIDDEN], at + "post_attention_layernorm.weight": [HIDDEN],
                   at + "self_attn.q_proj.weight": [HEADS * HEAD_DIM, HIDDEN],
                   at + "self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
                   at + "self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
                   at + "self_attn.o_proj.weight": [HIDDEN, HEADS * HEAD_DIM],
                   at + "self_attn.q_norm.weight": [HEAD_DIM], at + "self_attn.k_norm.weight": [HEAD_DIM],
                   at + "mlp.gate_proj.weight": [FFN, HIDDEN], at + "mlp.up_proj.weight": [FFN, HIDDEN],
                   at + "mlp.down_proj.weight": [HIDDEN, FFN]}
    generator = random.Random(43)
    tensors = {}
    for name, shape in shapes.items():
        count, middle, spread = shape[0] * (shape[1] if len(shape) > 1 else 1), float(len(shape) == 1), 0.15
        values = array.array("f", (generator.gauss(middle, spread) for _ in range(count)))
        tensors[name] = ("F32", shape, values.tobytes())
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text((SHIPPED / "tokenizer_config.json").read_text())
    write_tensors(folder / "model.safetensors", tensors)


def golden():
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    yes, no = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    for document in DOCUMENTS:
        body = f"<Instruct>: {TASK}\n<Query>: {QUERY}\n<Document>: {document}"
        ids = torch.tensor([encode(PREFIX) + encode(body) + encode(SUFFIX)])
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
        scores = torch.nn.functional.log_softmax(torch.stack([logits[no], logits[yes]]), dim=0)
        print(len(ids[0]), scores[1].exp().item())


if __name__ == "__main__":
    sys.exit(golden())
