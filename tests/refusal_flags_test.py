"""A flag that a program's text names is that program's own, or the text says whose it is."""

import pathlib
import re

# The checkout that this test was built from: Bazel's runfiles are links to it.
ROOT = pathlib.Path("WORKSPACE").resolve().parent
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
ALL_PROGRAMS = {"help", "version"}
# Folder -> the file of the program's flags, and words for other programs.
PROGRAMS = {
    "coordinator": ("coordinator/coordinator_options.cc", ("worker", "tessera ")),
    "worker": ("worker/worker_options.cc", ("coordinator", "deploy/")),
}
# Whose flags of `tessera plan` are put in the coordinator's words, both in a table.
TABLES = {"coordinator/deployment/registered_cluster.cc"}


def declared(text):
    names = re.findall(r'Add(?:Option|Switch)\(\s*"([^"]*)"', text)
    return {one.strip("! ").removeprefix("--") for all_names in names for one in all_names.split(",")}


def texts(source):
    """String literals, those that follow each other as one."""
    without_comments = re.sub(r"^\s*//[^\n]*", "", source, flags=re.MULTILINE)
    return [re.sub(r'"\s*"', "", literal) for literal in LITERALS.findall(without_comments)]


def strangers(source, own, others):
    """Texts that name a flag that is not the program's without a word of whose it is."""
    return [text for text in texts(source)
            if set(FLAG.findall(text)) - own - ALL_PROGRAMS and not any(other in text for other in others)]


def test_texts_name_flags_of_their_program_or_say_whose():
    tls = (ROOT / "tls/client_flags.cc").read_text(encoding="utf-8")
    found = []
    for folder, (options, others) in PROGRAMS.items():
        own = declared((ROOT / options).read_text(encoding="utf-8") + tls)
        assert len(own) > 20, (folder, own)
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in (".cc", ".h") and name not in TABLES:
                found += [f"{name}: {text}" for text in strangers(path.read_text(encoding="utf-8"), own, others)]
    assert not found, "\n" + "\n".join(found)


def test_a_stranger_is_found():
    own = declared('app.AddOption("--port", port, "").AddSwitch("--split,!--no-split", split, "");')
    assert own == {"port", "split", "no-split"}
    for text in ('"give --port"', '"give --no-split"', '"see --help"', '"the worker\'s "\n  "--name"', '// "--name"'):
        assert not strangers(text, own, ("worker",)), text
    assert strangers('Error("give another "\n   "--name")', own, ("worker",)) == ['"give another --name"']
