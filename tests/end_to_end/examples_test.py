"""The programs in examples/, as a reader of them runs them."""

import os
import pathlib
import subprocess

from agents_test import ANSWER, scripted
from cluster import PATIENCE_SECONDS, running
from pip_client import install
from run_tests import Skip

SDK, GRPC = "openai==3.52.0", "grpcio-tools"


def run(name, python="python3", **variables):
    program = ["bash"] if name.endswith(".sh") else [str(python)]
    done = subprocess.run([*program, f"examples/{name}"], capture_output=True, text=True,
                          timeout=2 * PATIENCE_SECONDS, env={**os.environ, **variables})
    if "deploy/install_xgrammar" in done.stderr:
        raise Skip("no xgrammar: deploy/install_xgrammar")
    assert done.returncode == 0, (name, done.stdout, done.stderr)
    return done.stdout


def python_with(package):
    return install(package) / "bin" / "python"


def test_all_examples_are_tried():
    names = {path.name for path in pathlib.Path("examples").iterdir() if not path.name.startswith((".", "_"))}
    tried = pathlib.Path(__file__).read_text()
    assert names and all(f'"{name}"' in tried for name in names), names


def test_curl_and_the_standard_library():
    with running(workers=1) as c:
        url = f"http://127.0.0.1:{c.port}"
        assert run("chat.sh", TESSERA_URL=url) == "142\n"
        assert run("stream.py", TESSERA_URL=url) == "3 4 5 6 7 8 9\n"
    with running("--api-key", "secret", workers=1) as c:
        assert run("chat.sh", TESSERA_URL=f"http://127.0.0.1:{c.port}", TESSERA_API_KEY="secret") == "142\n"


def test_openais_client():
    python = python_with(SDK)
    with running(workers=1) as c:
        text, kept = run("openai_sdk.py", python, TESSERA_URL=f"http://127.0.0.1:{c.port}").splitlines()
        assert text == "142" and kept.startswith("{'sum': "), (text, kept)
    with scripted() as url:
        lines = run("tools.py", python, TESSERA_URL=url).splitlines()
        assert len(lines) == 3 and lines[1] == "clock({}) gives noon" and lines[-1] == ANSWER, lines


def test_grpc():
    python = python_with(GRPC)
    with running(workers=1) as c:
        assert run("grpc_client.py", python, TESSERA_GRPC=c.grpc) == "142\n"
