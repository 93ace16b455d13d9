#!/usr/bin/env python3
"""Writes class_defaults.json beside this file: config.json of each served class as transformers saves
it when nothing is set, which is the configuration of the checkpoint that the class was written for.

    class_defaults.py        needs torch and transformers; a minute

Whoever adds a family runs this once. The keys are those that a checkpoint saved by transformers 5 has.
"""
import json
import pathlib
import sys

import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "models"))
import oracle_keys

# What a class leaves to the file, and layers that are not served.
SET = {"DeepseekV2ForCausalLM": dict(num_experts_per_tok=6),
       "Dots1ForCausalLM": dict(num_experts_per_tok=6, n_routed_experts=128, n_shared_experts=2),
       "Glm4MoeForCausalLM": dict(head_dim=128),
       "Glm4vMoeForConditionalGeneration": dict(head_dim=128),
       "GraniteMoeHybridForCausalLM": dict(layer_types=["full_attention"] * 32, num_local_experts=0)}
TOWERS = ("vision_config", "audio_config", "id2label", "label2id")


def plain(value):
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if key not in TOWERS}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def config_of(name):
    config = getattr(transformers, name).config_class()
    config.architectures = [name]
    # Of a tokenizer, which need not fit the vocabulary here.
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    for key, value in SET.get(name, {}).items():
        setattr(config.get_text_config(), key, value)
    return plain(json.loads(config.to_json_string(use_diff=True)))


def main():
    configs = {name: config_of(name) for name in oracle_keys.architectures()}
    lines = [f" {json.dumps(name)}: {json.dumps(config)}" for name, config in configs.items()]
    source = json.dumps(f"transformers {transformers.__version__}")
    (HERE / "class_defaults.json").write_text(
        "{\"source\": " + source + ",\n\"configs\": {\n" + ",\n".join(lines) + "\n}}\n")
    print(len(configs), "classes")


if __name__ == "__main__":
    main()
