"""schemathesis against /openapi.json of a real coordinator and worker: what the document allows, and
what it forbids, is sent to every endpoint; the server never fails and answers as documented."""

import subprocess

from cluster import running
from pip_client import install

# One that is known to work here; raised by hand.
TOOL = "schemathesis==4.32.5"
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_schema_conformance", "response_headers_conformance", "negative_data_rejection")

folder = None


def prepare():
    global folder
    folder = install(TOOL)


def test_the_server_keeps_to_its_document(tmp):
    with running("--max-model-len", "64", workers=1) as c:
        url = f"http://127.0.0.1:{c.port}"
        done = subprocess.run(
            [str(folder / "bin" / "schemathesis"), "run", url + "/openapi.json", "--url", url,
             "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing", "--max-examples", "10", "--seed", "7",
             "--exclude-path", "/v1/plan", "--exclude-path", "/v1/plan/apply", "--request-timeout", "60", "--no-color"],
            capture_output=True, text=True, cwd=tmp, timeout=840)
        assert done.returncode == 0, done.stdout + done.stderr
        assert c.get("/ready")[0] == 200
