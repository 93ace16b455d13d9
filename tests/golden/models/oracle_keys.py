#!/usr/bin/env python3
"""Writes proto/model/oracle_keys.inc: the model_type of each family, which keys of config.json the code
of transformers reads for it, and their defaults.

    oracle_keys.py        needs torch and transformers; a minute

A key is on the list of a class where the file with its model or the one with its configuration
reads it (`config.KEY`, `getattr(config, "KEY")`, `kwargs.get("KEY")`) and its class has it.
Of a class that takes images as well these are the keys of text_config. Whoever adds a family runs
this once.
"""
import dataclasses
import inspect
import json
import pathlib
import re
import sys

import transformers

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = ROOT / "proto/model/oracle_keys.inc"
COLUMNS = 84  # of a line's text
READS = (r"\bconfig\.(\w+)", r"getattr\((?:self\.)?config, \"(\w+)\"",
         r"kwargs\.(?:get|pop|setdefault)\(\"(\w+)\"", r"\bself\.(\w+)")


def architectures():
    names = set()
    for path in (ROOT / "proto/model/families").glob("*.cc"):
        names.update(re.findall(r"const Family \w+ = {\s*\.architecture = \"(\w+)\"",
                                path.read_text()))
    return sorted(names)


def text_config(model_class):
    config_class = model_class.config_class
    if "text_config" in getattr(config_class, "sub_configs", {}):
        return type(config_class().get_text_config()), config_class
    return config_class, config_class


def default_of(config_class, key):
    """(has one, the default)"""
    fields = {field.name: field for field in dataclasses.fields(config_class)} if (
        dataclasses.is_dataclass(config_class)) else {}
    if key in fields and fields[key].default is not dataclasses.MISSING:
        return True, fields[key].default
    parameters = inspect.signature(config_class.__init__).parameters
    if key in parameters and parameters[key].default is not inspect.Parameter.empty:
        return True, parameters[key].default
    return False, None


def model_type(name):
    return getattr(transformers, name).config_class.model_type


def keys_of(name):
    model_class = getattr(transformers, name, None)
    if model_class is None:
        sys.exit(f"transformers {transformers.__version__} has no {name}")
    config_class, outer_class = text_config(model_class)
    read = set()
    for module in {inspect.getmodule(c) for c in (model_class, config_class, outer_class)}:
        source = inspect.getsource(module)
        for pattern in READS:
            read.update(re.findall(pattern, source))
    # What every configuration has concerns no result here.
    common = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)} - {
        "tie_word_embeddings"}
    keys = {}
    for key in sorted(read - common):
        has, default = default_of(config_class, key)
        if has:
            keys[key] = None if "Infinity" in json.dumps(default) else default  # JSON has none
    return keys


def main():
    lines = ["// Made by tests/golden/models/oracle_keys.py from transformers "
             f"{transformers.__version__}: model_type of each class, keys",
             "// that it reads, and their defaults."]
    for name in architectures():
        text = json.dumps(keys_of(name))
        words, pieces = text.split(" "), [""]
        for i, word in enumerate(words):
            word += " " if i + 1 < len(words) else ""
            if len(pieces[-1]) + len(word) > COLUMNS:
                pieces.append("")
            pieces[-1] += word
        lines.append(f"{{\"{name}\", \"{model_type(name)}\",")
        lines.extend(f" R\"({piece})\"" for piece in pieces[:-1])
        lines.append(f" R\"({pieces[-1]})\"}},")
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT}: {len(lines)} lines")


if __name__ == "__main__":
    main()
