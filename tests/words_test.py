"""Holds the texts for users to plain words, and shows with planted faults that it would notice."""

import pathlib
import sys

sys.path.insert(0, "tests")
import words  # noqa: E402

# The checkout that this test was built from: Bazel's runfiles are links to it.
ROOT = pathlib.Path("WORKSPACE").resolve().parent


def found_in(path, content):
    return [fault.removeprefix(path + ":") for fault in words.faults(path, content)]


def test_no_text_for_users_has_a_banned_word():
    found = [fault for path, content in words.read_tree(ROOT) for fault in words.faults(path, content)]
    assert not found, "\n" + "\n".join(found)


def test_comments_begin_with_what_they_are_about():
    found = [fault for path, content in words.read_tree(ROOT) for fault in words.openings(path, content)]
    assert not found, "\n" + "\n".join(found)


def test_an_opening_is_named_with_its_line():
    code = "// One.\n// That is more.\nint a;\n  // Of b.\nint b;\nconst int kMostRows = kMaximum;\n"
    assert words.openings("worker/a.cc", code) == [
        'worker/a.cc:4: a comment begins with "Of"', "worker/a.cc:6: kMostRows"]
    assert not words.openings("tests/a.cc", code)


def test_every_kind_of_text_is_read():
    paths = [path for path, content in words.read_tree(ROOT) if words.texts(path, content)]
    for path in ("README.md", "docs/running.md", "scheduler/README.md", "deploy/main.cc", "worker/main.cc",
                 "deploy/clusters/workstations.yaml", "coordinator/flow/request_metrics.cc",
                 "scheduler/planner/report/plan_table.cc"):
        assert path in paths, path


def test_a_banned_word_is_named_with_its_line():
    assert found_in("README.md", "# Title\n\nBeware of it.\n") == ['3: "Beware" in a text for users']
    assert found_in("README.md", "a part of\nwhat is there\n") == ['1: "of what" in a text for users']


def test_only_whole_words_count():
    assert not found_in("README.md", "The stand-in understands a nobody-else.\n")


def test_literals_of_programs_are_read_and_comments_are_not():
    code = '// told\n#include "told.h"\n/* told\n*/ f("a \\"b\\" told", \'"\', 5\'000);\n'
    assert found_in("worker/x.cc", code) == ['4: "told" in a text for users']
    assert found_in("worker/x.cc", 'Log("\\ntold");\n') == ['1: "told" in a text for users']
    assert found_in("deploy/x.h", 'f(R"(one\ntold)");\n') == ['2: "told" in a text for users']
    assert not found_in("tests/x.cc", 'f("told");\n')


def test_a_phrase_may_be_split_between_literals():
    assert found_in("worker/x.cc", 'f("it waits in "\n  "vain");\n') == ['1: "in vain" in a text for users']


def test_texts_of_plans_are_read():
    assert found_in("scheduler/x.cc", 'Line("told");\n') == ['1: "told" in a text for users']


def test_of_yaml_files_comments_are_read():
    assert found_in("deploy/a/x.yaml", "a: told\nb: 1  # told\n") == ['2: "told" in a text for users']
