"""Finds words that no text for users may have.

words.py ROOT: one line "FILE:LINE: ..." for each that it finds in the checkout ROOT; exits with 1 if
there is one. As a module: pure functions over (path, text) pairs, except read_tree.

Texts for users: READMEs and docs/, comments of the example YAML files, and string literals of the programs (log
lines, errors, --help, metric help, plans).

Comments of the programs have rules of their own (openings): none begins with Of, That or Whose, in place of what it
is about; constants are kMax and kMin, not kMost and kLeast.
"""

import pathlib
import re
import sys

# Each is found in any case, as a whole word, and where a line break splits it.
BANNED = (
    "told", "stand", "stands", "stood", "anew", "beware", "somebody", "nobody", "everybody", "unasked",
    "upon", "in vain", "of what", "what is rented", "nothing else is said",
)

PROGRAM_FOLDERS = ("coordinator", "deploy", "kernels", "kvcache", "proto", "scheduler", "third_party",
                   "worker")

SUFFIXES = (".cc", ".h", ".cu", ".proto", ".yaml")

_BANNED = re.compile(
    r"(?<![\w-])(" + "|".join(word.replace(" ", r"\s+") for word in BANNED) + r")(?![\w-])", re.IGNORECASE)

_TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|/\*.*?\*/|\#\s*include[^\n]*|(?<!\w)'(?:\\.|[^'\\\n])+')"""
    r"""|R"(?P<mark>[^()\s"]*)\((?P<raw>.*?)\)(?P=mark)\""""
    r'''|"(?P<text>(?:\\.|[^"\\\n])*)"'''
    r"""|(?P<other>\w+|[^\s])""",
    re.DOTALL)


def literals(source):
    """(line, text) of the string literals of C++: adjacent ones joined by a line break, so that lines
    still count."""
    found, open_text = [], None
    line, counted = 1, 0
    for token in _TOKEN.finditer(source):
        kind = token.lastgroup
        line += source.count("\n", counted, token.start())
        counted = token.start()
        if kind == "skip":
            continue
        if kind in ("text", "raw", "mark"):
            text = token["raw"] if token["raw"] is not None else token["text"]
            text = text.replace("\\n", "  ")
            if open_text is None:
                open_text = [line, text]
            else:
                breaks = line - open_text[0] - open_text[1].count("\n")
                open_text[1] += "\n" * breaks + text
        elif open_text is not None:
            found.append(tuple(open_text))
            open_text = None
    if open_text is not None:
        found.append(tuple(open_text))
    return found


def comments(yaml):
    """The YAML text with all but its comments blanked."""
    def comment(line):
        start = re.search(r"(?:^|\s)#(.*)", line)
        return start[1] if start else ""
    return "\n".join(comment(line) for line in yaml.split("\n"))


def texts(path, content):
    """(line, text) of what users see of a file."""
    folder = path.split("/")[0]
    if path.endswith(".md"):
        return [(1, content)]
    if path.endswith(".yaml") and folder == "deploy":
        return [(1, comments(content))]
    if path.endswith((".cc", ".h")) and folder in PROGRAM_FOLDERS:
        return literals(content)
    return []


def faults(path, content):
    """One line for each banned word that users would see."""
    found = []
    for first_line, text in texts(path, content):
        for match in _BANNED.finditer(text):
            line = first_line + text.count("\n", 0, match.start())
            word = " ".join(match[0].split())
            found.append(f'{path}:{line}: "{word}" in a text for users')
    return found


_OPENING = re.compile(r"\s*//\s*(Of|That|Whose)\b")
_CONSTANT = re.compile(r"\bk(?:Most|Least)(?:[A-Z]\w*)?\b")


def openings(path, content):
    """One line for each comment of a program that begins without its subject, and each constant's name that has
    another word for max or min."""
    if not path.endswith((".cc", ".h", ".cu", ".proto")) or path.split("/")[0] not in PROGRAM_FOLDERS:
        return []
    found, before = [], ""
    for number, line in enumerate(content.split("\n"), 1):
        opening = _OPENING.match(line)
        if opening and not before.lstrip().startswith("//"):
            found.append(f'{path}:{number}: a comment begins with "{opening[1]}"')
        found += [f'{path}:{number}: {name[0]}' for name in _CONSTANT.finditer(line)]
        before = line
    return found


def read_tree(root):
    """(path, content) of each file that may hold texts for users; without generated folders."""
    root = pathlib.Path(root)
    files = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    for folder in PROGRAM_FOLDERS:
        files += sorted((root / folder).rglob("*"))
    return [(str(file.relative_to(root)), file.read_text(encoding="utf-8")) for file in files
            if file.is_file() and (file.name == "README.md" or file.parent.name == "docs" or file.suffix in SUFFIXES)]


def main():
    found = [fault for path, content in read_tree(sys.argv[1]) for fault in faults(path, content)]
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
