"""Sources stand as .clang-format has them, and no function of the product is longer than 70 lines."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, "tests/end_to_end")
import pip_client

# The checkout that this test was built from: Bazel's runfiles are links to it.
ROOT = pathlib.Path("WORKSPACE").resolve().parent
FOLDERS = ("coordinator", "deploy", "kernels", "kvcache", "proto", "scheduler", "tests", "third_party", "tls", "worker")
ENDINGS = (".cc", ".h", ".cu", ".cuh")
# Other versions break some lines elsewhere.
FORMATTER = "clang-format==14.0.6"

MAX_LINES = 70
# What these do is to list rows: cutting them would hide none of it.
LISTS = {
    ("coordinator/answer/call_formats.cc", "CallFormats"),
    ("coordinator/coordinator_options.cc", "AddOptions"),
    ("deploy/plan_cli.cc", "AddPlan"),
    ("deploy/simulate_flags.cc", "AddSimulate"),
    ("worker/worker_options.cc", "Declare"),
}

TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\n]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                    r"'(?:\\.|[^'\\\n])'|^#(?:[^\n]*\\\n)*[^\n]*|[{};]", re.S | re.M)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b[^()]*$|^\s*extern\s*$")


def sources():
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in ENDINGS]


def functions(text):
    """(name, first line, lines) of each function that has a body, from the line of its return type to its last."""
    open_braces, head, at = [], "", 0
    for token in TOKENS.finditer(text):
        head += text[at:token.start()]
        at = token.end()
        mark = token.group()
        if mark == "{":
            outside = all(kind == "scope" for kind, _, _ in open_braces)
            name = re.search(r"([~\w]+|operator\S+?)\s*\(", head)
            if SCOPE.search(head):
                kind = "scope"
            elif outside and name and not re.search(r"=\s*$", head):
                kind = "function"
            else:
                kind = "other"
            start = token.start() - len(head.lstrip()) if kind == "function" else token.start()
            open_braces.append((kind, name.group(1) if name else "", start))
            head = ""
        elif mark == "}":
            if open_braces:
                kind, name, start = open_braces.pop()
                if kind == "function":
                    first = text.count("\n", 0, start) + 1
                    yield name, first, text.count("\n", 0, token.start()) + 2 - first
            head = ""
        elif mark == ";":
            head = ""
        elif mark.startswith(('"', "'", "R")):
            head += '""'


def test_lines_stand_as_clang_format_has_them():
    program = pip_client.install(FORMATTER) / "bin" / "clang-format"
    names = [str(path.relative_to(ROOT)) for path in sources()]
    halves = [subprocess.Popen([program, "--dry-run", "-Werror", *half], cwd=ROOT, stderr=subprocess.PIPE, text=True)
              for half in (names[::2], names[1::2])]
    wrong = {line.split(":")[0] for half in halves for line in half.communicate()[1].splitlines() if ": error:" in line}
    assert not wrong, "clang-format -i " + " ".join(sorted(wrong))


def test_functions_are_found():
    text = "namespace a {\nint F(int x) {\n  return x;\n}\nstruct S {\n  void G() const {\n  }\n};\n}\n"
    assert list(functions(text)) == [("F", 2, 3), ("G", 6, 2)], list(functions(text))


def test_no_function_is_longer_than_it_may_be():
    long, lists = [], set()
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("tests/"):
            continue
        for function, line, count in functions(path.read_text(encoding="utf-8")):
            if count > MAX_LINES:
                lists.add((name, function))
                if (name, function) not in LISTS:
                    long.append(f"{name}:{line}: {function} has {count} lines")
    assert not long, "\n".join(long)
    assert LISTS <= lists, LISTS - lists
