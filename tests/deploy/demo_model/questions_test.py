"""Training never sees what evaluation asks: the split of deploy/demo_model, and the folder's size.

Operands are read from the texts that a model would see, not from the generator's own keys, and the
rule of the split is written here a second time, so that a change of either is noticed.
"""

import hashlib
import pathlib
import random
import re
import sys

HERE = pathlib.Path("deploy/demo_model")
sys.path.insert(0, str(HERE))
import questions  # noqa: E402

DRAWS = 100_000
MOST_BYTES = 10_000_000


def operands_of(family, prompt):
    """Two equal results: the same operands, whatever the phrasing and, where that changes nothing,
    the order."""
    if family in ("add", "sub", "count"):
        a, b = map(int, re.findall(r"\d+", prompt))
        return f"{family}:{a}:{b}" if family == "count" else f"{family}:{min(a, b)}:{max(a, b)}"
    text = re.fullmatch(r"(Sort these words|Sort alphabetically|Sort|Repeat after me|Repeat|Say): (.*)",
                        prompt).group(2)
    return "repeat:" + text if family == "repeat" else "sort:" + " ".join(sorted(re.findall(r"\w+", text)))


def is_held_out(operands):
    return hashlib.sha256(operands.encode()).digest()[0] < 26


def training_questions(count):
    rng = random.Random("questions_test")
    while count > 0:
        for question in questions.training_conversation(rng)["turns"]:
            count -= 1
            yield question


def test_training_never_draws_held_out_operands():
    seen = {family: set() for family in questions.FAMILIES}
    for question in training_questions(DRAWS):
        operands = operands_of(question.family, question.prompt)
        assert not is_held_out(operands), f"training asks {question.prompt!r}, which is held out"
        seen[question.family].add(operands)
    # Enough of each to mean something: about a tenth of all draws would be held out.
    assert all(len(operands) > 3000 for operands in seen.values()), {f: len(s) for f, s in seen.items()}
    for family in questions.FAMILIES:
        for question in questions.held_out_set(family, 500, 1):
            assert operands_of(family, question.prompt) not in seen[family], question.prompt


def test_evaluation_asks_held_out_operands_only():
    for family in questions.FAMILIES:
        asked = questions.held_out_set(family, 500, 1)
        operands = [operands_of(family, question.prompt) for question in asked]
        assert len(set(operands)) == 500, family
        assert all(map(is_held_out, operands)), family


def test_expected_answers_are_right():
    for family in questions.FAMILIES:
        for question in questions.held_out_set(family, 500, 1):
            a = [int(n) for n in re.findall(r"\d+", question.prompt)]
            text = question.prompt.split(": ", 1)[-1]
            if family == "add":
                expected = str(a[0] + a[1])
            elif family == "sub":  # "Subtract 3 from 10." names them the other way round
                a = a[::-1] if question.prompt.startswith("Subtract") else a
                expected = str(a[0] - a[1])
            elif family == "count":
                expected = " ".join(str(n) for n in range(a[0], a[1] + 1))
            elif family == "sort":
                separator = ", " if "," in text else " "
                expected = separator.join(sorted(text.split(separator)))
            else:
                expected = text
            assert question.answer == expected, (question.prompt, question.answer, expected)


def test_the_folder_is_small():
    sizes = {file.name: file.stat().st_size for file in (HERE / "tessera-demo").iterdir()}
    assert "model.safetensors" in sizes, sizes
    assert sum(sizes.values()) <= MOST_BYTES, f"{sum(sizes.values())} bytes: {sizes}"
