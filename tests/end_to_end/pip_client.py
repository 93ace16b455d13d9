"""Clients of other people, installed from PyPI. Tests of one build that want the same ones share them.

By uv, which takes a tenth of pip's time; pip fetches it. Where uv cannot install something (it knows no index that only
pip is configured for), pip does."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

from run_tests import Skip

# One that is known to work; raised by hand.
INSTALLER = "uv==0.13.9"
# Nothing of the user's: neither files nor a Python that uv would fetch. Certificates are the system's, as pip's are.
SETTINGS = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1", "UV_NO_PROGRESS": "1"}


class Failure(Exception):
    """Its text: the command, and the last line that it said."""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SETTINGS})
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Failure(f"{' '.join(command[:4])}: {' '.join(last)}")


def shared_folder():
    """Beside the scratch folders of this build's tests; a test that runs alone, or may not write there, has its own."""
    scratch = os.environ.get("TEST_TMPDIR")
    if scratch is not None and os.access(pathlib.Path(scratch).parent, os.W_OK):
        return pathlib.Path(scratch).parent / "pip_client"
    return pathlib.Path(tempfile.mkdtemp(dir=scratch))


SHARED = shared_folder()


@contextlib.contextmanager
def making(name):
    """The folder of an environment, and whether it is to be made: whichever test comes first does, the others wait."""
    folder = SHARED / name
    folder.mkdir(parents=True, exist_ok=True)
    ready = SHARED / f"{name}.ready"
    with open(SHARED / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder, not ready.exists()
        ready.touch()


def tools():
    """Programs of an environment with pip and uv."""
    with making("tools") as (folder, to_make):
        if to_make:
            run(sys.executable, "-m", "venv", "--clear", str(folder))
            run(str(folder / "bin" / "pip"), "install", "--quiet", "--no-compile", INSTALLER)
    return folder / "bin"


def fill(folder, packages):
    programs = tools()
    uv = (str(programs / "uv"), "--quiet", "--cache-dir", str(SHARED / "cache"))
    run(*uv, "venv", "--clear", "--python", sys.executable, str(folder))
    python = str(folder / "bin" / "python")
    try:
        run(*uv, "pip", "install", "--python", python, *packages)
    except Failure:
        run(str(programs / "pip"), "--python", python, "install", "--quiet", *packages)


def refuse(packages, failure):
    raise Skip(f"cannot be installed: {' '.join(packages)}: {failure}")


def install(*packages):
    """The folder of an environment that has them, and what they need. Skips where it cannot be made."""
    name = hashlib.sha256(" ".join((sys.executable, *packages)).encode()).hexdigest()[:16]
    try:
        with making(name) as (folder, to_make):
            if to_make:
                fill(folder, packages)
    except Failure as failure:
        refuse(packages, failure)
    return folder


def download_source(package, folder):
    """The source distribution of a package, without what it needs, into `folder`."""
    name = package.partition("==")[0]
    try:
        run(str(tools() / "pip"), "download", "--quiet", "--no-deps", f"--no-binary={name}", "--dest", str(folder),
            package)
    except Failure as failure:
        refuse([package], failure)
