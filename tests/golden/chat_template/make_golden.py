#!/usr/bin/env python3
"""Writes templates.json and expressions.json: what jinja2 makes of templates/ and expressions.txt.

python3 tests/golden/chat_template/make_golden.py    (needs jinja2 3.1)

Each entry has the expected "output", or the "error": "raised" with the message of raise_exception, or
"other", where rendering or parsing fails in another way.
"""

import json
import pathlib

import huggingface

HERE = pathlib.Path(__file__).resolve().parent

# What the lines of expressions.txt can use.
VARIABLES = {
    "user": {"name": "Ann", "tags": ["admin", "x"], "age": 30, "_x": "hidden", "a": {"_b": 1}, "items": [1]},
    "people": [
        {"name": "Al", "age": 30, "address": {"city": "Rom"}},
        {"name": "bo", "age": 20},
        {"name": "Cy", "age": 30, "address": {}},
        {"name": "Di", "age": 0},
    ],
    "nested": [{"a": [1, {"b": "deep"}]}],
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "Hi <there>"},
        {"role": "assistant", "content": "Yo"},
    ],
    "x": "admin",
    "big": 18446744073709551615,
    "pi": 3.14159,
    "flag": True,
    "nothing": None,
    "uni": "naïve 中文 😀 \u200b\u00ad\t'\"",
    "bos_token": "<s>",
}


def unescape(line):
    return line.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\")


def write(name, document):
    text = json.dumps(document, ensure_ascii=True, indent=1)
    (HERE / name).write_text(text + "\n", encoding="ascii")


def outcome(source, context):
    result = huggingface.render(source, context)
    if result.get("error") == "other":
        del result["message"]  # Python's wording is not ours
    return result


def main():
    conversations = huggingface.conversations()
    templates = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        results = {name: outcome(source, context) for name, context in conversations.items()}
        templates.append({"template": path.name, "results": results})
    write("templates.json", {"now": huggingface.NOW, "contexts": conversations, "templates": templates})

    cases = []
    for line in (HERE / "expressions.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            source = unescape(line)
            cases.append({"source": source, **outcome(source, VARIABLES)})
    write("expressions.json", {"now": huggingface.NOW, "context": VARIABLES, "cases": cases})
    print(f"{len(templates)} templates in {len(conversations)} contexts, {len(cases)} expressions")


if __name__ == "__main__":
    main()
