#!/usr/bin/env python3
"""Writes added.json: ids around an added token whose flags vary, for tokenizers that put a space before words.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install transformers==5.24.0 tokenizers==0.23.3 sentencepiece protobuf
    /tmp/v/bin/python tests/golden/tokenizer/make_added.py

Folders with a tokenizer.json are read by tokenizers, those with a tokenizer.model by transformers, with `legacy` and
without. Each entry names the folder, the token's flags and, for every text, the ids. With a tokenizer.json also
decode(ids), unless a special token among them matches normalised text: tokenizers 0.23 then fails to skip it.
"""

import json
import os
import pathlib
import shutil
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
TOKEN = "<tool>"
TEXTS = [
    "<tool>",
    "<tool>x",
    "<tool> x",
    "a<tool>x",
    "a <tool>x",
    "a <tool> x",
    "a  <tool>  x",
    " <tool>",
    "  <tool>",
    "<tool> <tool>",
    "<tool><tool>x",
    "x<tool>",
    "x <tool>",
    "</s>x",
    "</s> x",
    "</s><tool>x",
    "</s> <tool>x",
    "<tool></s>",
    "the <tool> and\n<tool>\nthe end",
    "\u2581<tool>",
]
# Of spaces at a text's start libsentencepiece makes more than transformers 5 does, so these have none.
MODEL_TEXTS = ["<tool>", "<tool>x", "a<tool>x", "<tool><tool>x", "x<tool>", "</s>x", "</s><tool>x", "<tool></s>"]
FLAGS = [
    {"special": special, "normalized": normalized, "lstrip": lstrip, "rstrip": rstrip}
    for special, normalized in ((False, False), (False, True), (True, False))
    for lstrip, rstrip in ((False, False), (True, False), (False, True))
]


def of_json(folder, flags):
    tokenizer = Tokenizer.from_file(str(HERE / folder / "tokenizer.json"))
    add = tokenizer.add_special_tokens if flags["special"] else tokenizer.add_tokens
    add([AddedToken(TOKEN, **flags)])
    added = tokenizer.get_added_tokens_decoder()
    unsure = {id for id, token in added.items() if token.special and token.normalized}
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids})
        if not unsure & set(ids):
            cases[-1]["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
    return {"folder": folder, "flags": flags, "cases": cases}


def of_model(folder, flags, legacy):
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        shutil.copy(HERE / folder / "tokenizer.model", copy)
        config = json.loads((HERE / folder / "tokenizer_config.json").read_text())
        size = len(AutoTokenizer.from_pretrained(HERE / folder))
        config["added_tokens_decoder"] = {str(size): {"content": TOKEN, "single_word": False, **flags}}
        config["legacy"] = legacy
        (copy / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = AutoTokenizer.from_pretrained(copy)
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)} for text in MODEL_TEXTS]
        return {"folder": folder, "flags": flags, "legacy": legacy, "id": size, "cases": cases}


def main():
    entries = []
    for flags in FLAGS:
        for folder in ("llama2", "llama_normalized", "mistral", "metaspace", "gemma"):
            entries.append(of_json(folder, flags))
        for legacy in (True, False):
            entries.append(of_model("model_bpe", flags, legacy))
    text = json.dumps(entries, ensure_ascii=True, separators=(",", ":"))
    (HERE / "added.json").write_text(text.replace('{"folder"', '\n{"folder"') + "\n", encoding="ascii")
    print(f"{len(entries)} tokenizers, {sum(len(entry['cases']) for entry in entries)} cases")


if __name__ == "__main__":
    main()
