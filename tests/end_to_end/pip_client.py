"""Clients of other people, installed from PyPI for one test."""

import os
import pathlib
import subprocess
import sys
import tempfile

from run_tests import Skip


def install(*packages):
    """Installs them into a folder of this run's; that folder. Skips where it cannot be installed."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    for command in ([sys.executable, "-m", "venv", str(folder)],
                    [str(folder / "bin" / "pip"), "install", "--quiet", *packages]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Skip(f"cannot be installed: {' '.join(packages)}: {' '.join(command[:4])}: {' '.join(last)}")
    return folder
