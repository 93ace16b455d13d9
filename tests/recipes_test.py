"""The recipes of README.md stay as narrow as they say: a model family is one product file and its
place in the list, and a weight format is one file and its line of the table."""

import json
import pathlib
import re

# The checkout that this test was built from: Bazel's runfiles are links to it.
ROOT = pathlib.Path("WORKSPACE").resolve().parent
PRODUCT = ("coordinator", "deploy", "kernels", "kvcache", "proto", "scheduler", "worker")
FAMILIES = "proto/model/families/"
WEIGHTS = "worker/weights/"


def read_sources():
    """Path -> text without comments, of all product sources."""
    sources = {}
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".cu", ".cuh"):
                text = path.read_text(encoding="utf-8")
                sources[path.relative_to(ROOT).as_posix()] = re.sub(r"//[^\n]*", "", text)
    return sources


SOURCES = read_sources()


def files_with(word):
    return {name for name, text in SOURCES.items()
            if word in text and re.search(rf"\b{word}\b", text)}


def families():
    """(file, symbol, class in config.json) of each family."""
    return [(name, symbol, class_name) for name, text in SOURCES.items()
            for symbol, class_name in re.findall(
                r'^extern const Family (\w+) = \{\.architecture = "(\w+)"', text, re.M)]


def test_a_family_is_one_file_and_its_place_in_the_list():
    assert len(families()) >= 7
    for name, symbol, class_name in families():
        assert files_with(symbol) == {name, FAMILIES + "families.cc"}, symbol
        assert files_with(class_name) == {name}, class_name


def test_each_family_has_a_golden_checkpoint():
    golden = set()
    for path in (ROOT / "tests/golden/models").glob("*/config.json"):
        golden.update(json.loads(path.read_text())["architectures"])
    for _, _, class_name in families():
        assert class_name in golden, class_name


def test_a_weight_format_is_one_file_and_its_line_of_the_table():
    formats = re.findall(r"\.open = (Open\w+)", SOURCES[WEIGHTS + "weight_formats.cc"])
    assert formats
    for opener in formats:
        files = files_with(opener)
        own = [name for name in files if name.endswith("_rows.cc")]
        assert len(own) == 1, (opener, files)
        assert files == {own[0], own[0][:-2] + "h", WEIGHTS + "weight_formats.cc"}, opener
