"""The Slurm script, with an srun that starts its tasks here: it serves, its workers have the names of nodes, and TERM ends it in
order. No Slurm is needed, and none is tried."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

MODEL = pathlib.Path("deploy/demo_model/tessera-demo").resolve()
SCRIPT = "deploy/slurm/tessera.sbatch"
PATIENCE_SECONDS = 60

# Starts two tasks as on two nodes; TERM reaches them.
SRUN = """#!/bin/bash
echo "$*" > "$JOB_FOLDER/srun"
while [[ $1 == --* ]]; do shift; done
for node in 0 1; do SLURMD_NODENAME=node$node SLURM_LOCALID=0 "$@" & tasks+=($!); done
trap 'kill -TERM "${tasks[@]}"' TERM
wait; wait
"""
STUBS = {"srun": SRUN, "hostname": "#!/bin/sh\necho 127.0.0.1 10.0.0.1\n"}


def start(folder, *flags):
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, text in STUBS.items():
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    for program in ("coordinator/tessera-coordinator", "worker/tessera-worker", "deploy/tessera"):
        (bin_folder / pathlib.Path(program).name).symlink_to(pathlib.Path(program).resolve())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
    environment |= {"PATH": f"{bin_folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "JOB_FOLDER": str(folder / "job"),
                    "TESSERA_KV_CACHE_MEMORY_BYTES": "64MiB"}
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(["bash", SCRIPT, *flags], env=environment, stdout=log, stderr=log, start_new_session=True)


def ask(folder, path, body=None):
    """(status, body); 0: nobody listens yet."""
    key = (folder / "job/api_keys").read_text()
    request = urllib.request.Request((folder / "job/address").read_text().strip() + path, body and json.dumps(body).encode(),
                                     {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_job_serves_and_ends():
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    job = start(folder, str(MODEL), "--served-model-name", "demo")
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS

        def serving():
            metrics = ask(folder, "/metrics")[1] if (folder / "job/address").exists() else ""
            return all(f'worker="node{node}/0"' in metrics for node in (0, 1)) and ask(folder, "/ready")[0] == 200

        while not serving():
            assert time.monotonic() < deadline and job.poll() is None
            time.sleep(0.2)
        status, answer = ask(folder, "/v1/completions", {"model": "demo", "prompt": "one two", "max_tokens": 3,
                                                         "ignore_eos": True})
        assert status == 200 and json.loads(answer)["usage"]["completion_tokens"] == 3, answer
        assert (folder / "job/srun").read_text().startswith("--kill-on-bad-exit=0 --wait=0 ")
        for secret in ("token", "coordinator.pem", "worker.pem", "api_keys", "admin_key"):
            assert (folder / "job" / secret).stat().st_mode & 0o77 == 0, secret
        os.kill(job.pid, signal.SIGTERM)
        assert job.wait(PATIENCE_SECONDS) == 0
        log = (folder / "log").read_text()
        assert log.index("coordinator: stopped") < log.index("worker: Terminated"), log
        assert len(re.findall(r"worker node\d/0 ends", log)) == 2, log
        assert "matches no flag" not in log, log
    except BaseException:
        print((folder / "log").read_text(), flush=True)
        raise
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def test_a_job_without_a_model_says_how_to_start_it():
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    assert start(folder).wait(PATIENCE_SECONDS) == 2
    assert "MODEL" in (folder / "log").read_text()


def test_a_coordinator_that_ends_ends_the_job():
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    assert start(folder, "/nonexistent").wait(PATIENCE_SECONDS) != 0
    assert "/nonexistent" in (folder / "log").read_text()
