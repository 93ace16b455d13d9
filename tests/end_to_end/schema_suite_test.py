"""The JSON Schema Test Suite, and jsonschema's judgement: no grammar of a schema has a text that the schema refuses, neither
the suite's own nor one that a model of random weights writes; nor have calls arguments that it refuses."""

import collections
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from pip_client import download_source, install
from run_tests import Skip

VALIDATOR = "jsonschema==4.26.0"
DRAFTS = {"draft2020-12": "Draft202012Validator", "draft7": "Draft7Validator", "draft4": "Draft4Validator"}
RANDOM = 12
found = {}


def prepare():
    """Installs jsonschema from PyPI; the suite comes with its source distribution."""
    environment = install(VALIDATOR)
    sys.path[:0] = [str(p) for p in environment.glob("lib/python*/site-packages")]
    folder = pathlib.Path(tempfile.mkdtemp())
    download_source(VALIDATOR, folder)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive:
            parts = pathlib.PurePath(member.name).parts
            if parts[1:3] == ("json", "tests") and len(parts) == 5 and parts[3] in DRAFTS and member.isfile():
                found.setdefault(parts[3], []).extend(json.load(archive.extractfile(member)))
    if "no structured output" in ask([{"schema": True}])[0].get("broken", ""):
        raise Skip("no xgrammar: deploy/install_xgrammar")


def ask(questions):
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run(["tests/coordinator/grammar/schema_probe"], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_text_is_one_that_the_schema_refuses():
    import jsonschema

    assert set(found) == set(DRAFTS), set(found)
    counts = collections.Counter()
    for draft, groups in found.items():
        answers = ask([{"schema": group["schema"], "texts": [json.dumps(test["data"]) for test in group["tests"]],
                        "random": RANDOM} for group in groups])
        assert len(answers) == len(groups)
        for group, answer in zip(groups, answers):
            what = draft, group["description"], group["schema"]
            assert "broken" not in answer, (what, answer)
            if "refused" in answer:
                counts["refused"] += 1
                continue
            counts["held"] += 1
            for test, has in zip(group["tests"], answer["texts"]):
                assert test["valid"] or not has, (what, test)
                counts["valid texts"] += test["valid"] and has
            validator = getattr(jsonschema, DRAFTS[draft])(group["schema"])
            for text in answer["random"]:
                if text is None:  # it came to no end
                    continue
                assert validator.is_valid(json.loads(text)), (what, text)
                counts["random texts"] += 1
    print(dict(counts))
    # What is held must not become less in silence.
    assert counts["held"] > 500 and counts["valid texts"] > 700 and counts["random texts"] > 5000, counts


def test_random_calls_have_arguments_of_their_schema():
    import jsonschema

    counts = collections.Counter()
    # References within the suite's schemas are to their roots, which are no roots here.
    groups = [group for group in found["draft2020-12"] if "$ref" not in json.dumps(group["schema"])]
    for family in ("qwen3_coder", "glm45", "deepseek_v32", "kimi_k2"):
        parameters = [{"type": "object", "properties": {"value": group["schema"]}, "required": ["value"],
                       "additionalProperties": False} for group in groups]
        answers = ask([{"schema": schema, "format": family, "random": 4} for schema in parameters])
        assert len(answers) == len(groups)
        for group, schema, answer in zip(groups, parameters, answers):
            what = family, group["description"], group["schema"]
            assert "broken" not in answer, (what, answer)
            if "refused" in answer:
                counts["refused"] += 1
                continue
            validator = jsonschema.Draft202012Validator(schema)
            for calls in answer["random"]:
                assert calls, what
                for arguments in calls:
                    assert validator.is_valid(json.loads(arguments)), (what, arguments)
                    counts[family] += 1
    print(dict(counts))
    assert min(counts[family] for family in ("qwen3_coder", "glm45", "deepseek_v32", "kimi_k2")) > 300, counts
