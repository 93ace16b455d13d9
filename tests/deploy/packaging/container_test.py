"""The Containerfile: what it copies and runs is in the checkout, and everything that the programs are built from is copied. No
image is built here: that needs a network and a builder."""

import pathlib
import re

# The checkout that this test was built from: Bazel's runfiles are links to it.
ROOT = pathlib.Path("WORKSPACE").resolve().parent
TEXT = (ROOT / "deploy/packaging/Containerfile").read_text()
# Lines that end with a backslash go on; comments do not count.
STEPS = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", TEXT, flags=re.M)).splitlines()


def steps(name):
    return [step.split(maxsplit=1)[1] for step in STEPS if step.startswith(name + " ")]


def copied():
    """Paths that the first stage copies from the checkout."""
    return [word for step in steps("COPY") if not step.startswith("--from") for word in step.split()[:-1]]


def test_what_is_copied_and_run_is_there():
    assert len(copied()) > 10
    for path in copied():
        assert (ROOT / path).exists(), path
    run = [word for step in steps("RUN") for word in re.findall(r"(?<![\w/])deploy/[\w/]+", step)]
    assert {"deploy/install_packages", "deploy/packaging/make_packages"} <= set(run)
    for path in run:
        assert (ROOT / path).stat().st_mode & 0o111, path


def test_every_folder_that_programs_are_built_from_is_copied():
    product = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/BUILD.bazel")} | {"third_party"}
    product -= {"tests", "examples"}
    product = {name for name in product if not name.startswith("bazel-")}
    assert {"coordinator", "worker", "tls"} <= product
    assert product | {".bazelrc", "WORKSPACE", "BUILD.bazel", "LICENSE", "README.md"} <= set(copied()), product


def test_stages_hang_together():
    stages = [re.match(r"docker\.io/library/debian:\$\{DEBIAN\}-slim(?: AS (\w+))?$", step) for step in steps("FROM")]
    assert len(stages) == 2 and stages[0][1] == "build" and all(stages)
    taken = [step for step in steps("COPY") if step.startswith("--from")]
    made = " ".join(steps("RUN"))
    for step in taken:
        source, folder = re.match(r"--from=(\w+) (/\w+) ", step).groups()
        assert source == "build" and folder in made, step
    # Kubernetes holds a pod to a user that is no root by its number alone.
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", steps("USER")[0])
    assert steps("EXPOSE")[0].split() == ["8000", "8001", "9000", "9001", "9002"]
