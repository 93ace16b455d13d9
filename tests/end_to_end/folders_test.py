"""Disks that are full and folders without rights: who cannot go on says which file and why, and others go on."""

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import tempfile

import cluster
from cluster import Cluster, wait_for
from run_tests import Skip

COORDINATOR = ("coordinator/tessera-coordinator", cluster.MODEL, "--port", "0", "--grpc-port", "0")
NO_ROOM = "No space left on device"
# Makes each of the folders before "--" a disk of its own that is full, for the command behind it alone.
FULL = r"""
while [ "$1" != -- ]; do
  mkdir -p "$1" && mount -t tmpfs -o size=16k none "$1" || exit 99
  head -c 64k /dev/zero > "$1/fill" 2> /dev/null
  shift
done
shift
exec "$@"
"""
# What a mode forbids its owner, it forbids root too.
PLAIN = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


def on_full_disk(folders, *command, **environment):
    done = subprocess.run(["unshare", "--mount", "sh", "-c", FULL, "sh", *map(str, folders), "--", *command],
                          capture_output=True, text=True, env={**os.environ, **environment},
                          timeout=cluster.PATIENCE_SECONDS)
    if done.returncode == 99 or done.stderr.startswith("unshare:"):
        raise Skip(f"no mounts: {done.stderr.strip()}")
    return done


def refused(done, *parts):
    assert done.returncode == 1 and all(part in done.stderr for part in parts), done


def test_what_cannot_be_written_is_named_with_the_remedy(tmp):
    full = tmp / "full"
    refused(on_full_disk([full], "deploy/tessera", "plan", "deploy/clusters/one_gpu.yaml", "--model", "Llama-3-8B",
                         "--quick", "--out", str(full / "plan.json")),
            f"cannot write {full}/plan.json: {NO_ROOM}: make room there")
    refused(on_full_disk([full], "deploy/tessera", "token", "create", "--out", str(full / "keys"), "--machine", "box"),
            f"{full}/keys", NO_ROOM)
    refused(on_full_disk([full], *COORDINATOR, "--port-file", str(full / "ports")), "--port-file", f"{full}/ports", NO_ROOM)
    refused(on_full_disk([full], "deploy/tessera", "up", cluster.MODEL, "--port", "0", "--grpc-port", "0", "--once",
                         "--log-dir", str(full / "logs")), f"{full}/logs", NO_ROOM)


def test_secrets_of_a_run_go_where_there_is_room(tmp):
    full, runtime, last = tmp / "full", tmp / "runtime", pathlib.Path(f"/tmp/tessera-{os.geteuid()}")
    runtime.mkdir()
    # Ends by its port file, once it has the folder.
    more = ("--port-file", str(full / "ports"))
    done = on_full_disk([full], *COORDINATOR, *more, XDG_STATE_HOME=str(full), XDG_RUNTIME_DIR=str(runtime))
    assert f"of this run in {runtime}/tessera/" in done.stderr, done
    done = on_full_disk([full, last], *COORDINATOR, XDG_STATE_HOME=str(full), XDG_RUNTIME_DIR=str(full))
    refused(done, f"{full}/tessera/", NO_ROOM, "set XDG_STATE_HOME to a folder of this user", "--cluster-token-file")


def test_a_full_disk_of_logs_stops_nobody():
    full = ("sh", "-c", 'exec "$@" > /dev/full 2>&1', "sh")
    with Cluster(workers=0, prefix=full) as c:
        c.start("w0", *full, "worker/tessera-worker", "--coordinator", c.grpc, "--name", "w0/0",
                "--kv-cache-memory-bytes", "64MiB")
        c.wait_until_ready(1)
        status, _, text = c.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0})
        assert status == 200 and json.loads(text)["choices"][0]["message"]["content"] == "142", text


def coordinator_without_rights(*flags, **environment):
    return subprocess.run([*PLAIN, *COORDINATOR[:1], *flags], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=cluster.PATIENCE_SECONDS)


def copy_of_the_model(folder):
    shutil.copytree(cluster.MODEL, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def test_what_a_coordinator_may_not_read_or_write_is_named(tmp):
    model, token = copy_of_the_model(tmp / "closed" / "model"), tmp / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0)
    ports = ("--port", "0", "--grpc-port", "0")
    refused(coordinator_without_rights(cluster.MODEL, *ports, "--cluster-token-file", str(token)), str(token),
            "Permission denied")
    sealed = tmp / "sealed"
    sealed.mkdir(mode=0o500)
    refused(coordinator_without_rights(cluster.MODEL, *ports, "--port-file", str(sealed / "ports")), "--port-file",
            f"{sealed}/ports", "Permission denied")
    (model / "config.json").chmod(0)
    refused(coordinator_without_rights(str(model), *ports), f"{model}/config.json", "may not read it")
    (tmp / "closed").chmod(0)
    refused(coordinator_without_rights(str(model), *ports), f"'{model}'", "may not look there")
    (tmp / "closed").chmod(0o700)


def test_a_home_that_cannot_be_written_is_passed_over():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        sealed, runtime = pathlib.Path(folder, "sealed"), pathlib.Path(folder, "runtime")
        sealed.mkdir(mode=0o500)
        runtime.mkdir()
        before = dict(os.environ)
        os.environ.update(XDG_STATE_HOME=str(sealed), XDG_RUNTIME_DIR=str(runtime))
        try:
            with Cluster(workers=0, prefix=PLAIN) as c:
                c.start("w0", *PLAIN, "worker/tessera-worker", "--coordinator", c.grpc, "--name", "w0/0",
                        "--kv-cache-memory-bytes", "64MiB")
                c.wait_until_ready(1)  # by `tessera status`, which finds the key there too
                assert f"of this run in {runtime}/tessera/" in c.log("coordinator"), c.log("coordinator")
        finally:
            os.environ.clear()
            os.environ.update(before)


def test_weights_that_a_worker_may_not_read_are_named_in_status(tmp):
    model = copy_of_the_model(tmp / "model")
    weights = model / "model.safetensors"
    with Cluster(workers=0, model=str(model)) as c:
        weights.chmod(0)
        c.start("w0", *PLAIN, "worker/tessera-worker", "--coordinator", c.grpc, "--name", "w0/0",
                "--kv-cache-memory-bytes", "64MiB")
        said = wait_for("the refusal", lambda: [line for line in c.status_text().splitlines() if str(weights) in line])
        assert "Permission denied" in said[0] or "may not read it" in said[0], said
        assert str(weights) in c.get("/ready")[2]
        weights.chmod(0o644)
        c.wait_until_ready(1)
