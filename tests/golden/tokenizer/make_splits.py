#!/usr/bin/env python3
"""Writes splits.json: how tokenizers cuts texts at patterns, those that match a mere place among them.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers==0.23.3
    /tmp/v/bin/python tests/golden/tokenizer/make_splits.py

"splits": the words of each text for each pattern, behavior and invert; "replaced": what Replace makes of it.
"""

import json
import pathlib

from tokenizers import Regex, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent

PATTERNS = [
    r"(?=(\d{3})+(?!\d))",
    r"(?<=\d)(?=\d)",
    r"(?=[A-Z])",
    r"(?<=-)",
    r"x*",
    r"\d*",
    r"$",
    r"^",
    r"(?:)",
    r"(?=\d)|b+",
    r"a|(?=b)",
    r"b?(?=b)",
    r"(?<=[。])|(?=é)",
    r"\d{1,3}(?=(?:\d{3})*(?!\d))",
    r"\s+(?!\S)|(?<=\s)(?=\S)",
]
TEXTS = [
    "1234567",
    "12",
    "x=98765;1234",
    "theThe ABc",
    "a-b--c-",
    "-",
    "xxaxx",
    "aab bb1 2b",
    "é日。本。é。",
    "a\nb\n",
    "abbba",
    "  two  gaps ",
    "😀1😀",
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def main():
    splits, replaced = [], []
    for pattern in PATTERNS:
        for behavior in BEHAVIORS:
            for invert in (False, True):
                name = "".join("_" + c.lower() if c.isupper() else c for c in behavior).lstrip("_")
                split = pre_tokenizers.Split(Regex(pattern), name, invert)
                words = [[word for word, _ in split.pre_tokenize_str(text)] for text in TEXTS]
                splits.append({"pattern": pattern, "behavior": behavior, "invert": invert, "words": words})
        replace = normalizers.Replace(Regex(pattern), "_")
        replaced.append({"pattern": pattern, "texts": [replace.normalize_str(text) for text in TEXTS + [""]]})
    document = {"texts": TEXTS, "splits": splits, "replaced": replaced}
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"))
    (HERE / "splits.json").write_text(text.replace('{"pattern"', '\n{"pattern"') + "\n", encoding="ascii")
    print(f"{len(splits)} splits and {len(replaced)} replacements of {len(TEXTS)} texts")


if __name__ == "__main__":
    main()
