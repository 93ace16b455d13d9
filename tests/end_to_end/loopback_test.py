"""A daemon on loopback lets in the programs of its own user, who need no flags, and nobody else."""

import contextlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import cluster
from cluster import KILL, TERMINATE, Cluster, running, wait_for


@contextlib.contextmanager
def another_user():
    """The environment of a user with another home."""
    home = tempfile.mkdtemp(dir="/tmp")
    try:
        yield {**os.environ, "HOME": home, "XDG_STATE_HOME": home, "XDG_RUNTIME_DIR": home}
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def acting_as(environment):
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def tessera(*arguments, environment=None):
    return subprocess.run(["deploy/tessera", *arguments], capture_output=True, text=True, env=environment,
                          timeout=cluster.PATIENCE_SECONDS)


def run_folder(c):
    """The folder of the coordinator's run, or none."""
    port = c.grpc.split(":")[1]
    found = list(pathlib.Path(os.environ["XDG_STATE_HOME"], "tessera").glob("*-" + port))
    assert len(found) < 2, found
    return found[0] if found else None


def ready(c, count):
    """Ready workers, of a coordinator that may not listen yet."""
    done = tessera("status", "--coordinator", c.grpc, "--json")
    if done.returncode != 0:
        return False
    return sum(w["state"] == "WORKER_STATE_READY" for w in json.loads(done.stdout).get("workers", [])) == count


def test_the_same_user_needs_no_flags(tmp):
    with running(workers=2) as c:
        folder = run_folder(c)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        for name in ("cluster_token", "admin_key"):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
        # Two a worker: for links, and for keys and values.
        assert len(list(folder.glob("*.sock"))) == 4, list(folder.iterdir())
        assert all(len(str(path)) <= 107 for path in folder.iterdir())
        shown = tessera("status", "--coordinator", c.grpc)
        assert shown.returncode == 0 and "w1/0" in shown.stdout, shown
        measured = tessera("profile", "--coordinator", c.grpc, "--out", str(tmp / "cluster.yaml"))
        assert measured.returncode == 0 and (tmp / "cluster.yaml").exists(), measured
        plan = tmp / "plan.json"
        plan.write_text(json.dumps(c.status()["plan"]))
        applied = tessera("plan", "apply", str(plan), "--coordinator", c.grpc)
        assert applied.returncode == 0, applied
        for path in ("/ready", "/load", "/metrics"):
            assert c.request("GET", path)[0] == 200, path
        for name in ("w0", "w1", "coordinator"):
            c.signal(name, TERMINATE)
            c.ended(name)
        assert run_folder(c) is None


def test_other_users_are_kept_out(tmp):
    with running(workers=1) as c, another_user() as environment:
        plan = tmp / "plan.json"
        plan.write_text(json.dumps(c.status()["plan"]))
        key = run_folder(c) / "admin_key"
        for command in (("status",), ("profile",), ("plan", "apply", str(plan))):
            refused = tessera(*command, "--coordinator", c.grpc, environment=environment)
            assert refused.returncode == 1, refused
            assert "admin key is missing or wrong" in refused.stderr, refused
            assert f"{key}, which user {os.geteuid()} may read" in refused.stderr, refused
            told = tessera(*command, "--coordinator", c.grpc, "--admin-key-file", str(key), environment=environment)
            assert told.returncode == 0, told
        nobody = {"Authorization": ""}
        for method, path, body in (("GET", "/v1/plan", None), ("GET", "/v1/cluster", None), ("POST", "/v1/plan", {}),
                                   ("POST", "/v1/plan/apply", {"plan": {}})):
            assert c.request(method, path, body, nobody)[0] == 401, path
        for command in ("running-plan", "plan"):
            assert c.probe(command, "{}", "guess").startswith("code 16"), command
        # A worker of theirs does not get in, and hears why.
        with acting_as(environment):
            c.start_worker("theirs")
        wait_for("a refusal", lambda: "cluster token is missing or wrong" in c.log("theirs"))
        assert f"as user {os.geteuid()}, who may read {key.parent}/cluster_token" in c.log("theirs")
        assert [w["name"] for w in c.status()["workers"]] == ["w0/0"]
        if os.geteuid() == 0:  # the folder itself
            read = subprocess.run(["cat", str(key)], capture_output=True, text=True, user=65534, group=65534,
                                  extra_groups=[])
            assert read.returncode != 0 and "Permission denied" in read.stderr, read


def test_an_open_loopback_lets_all_in():
    with another_user() as environment:
        with Cluster("--open-loopback", workers=0) as c:
            with acting_as(environment):
                c.start_worker("theirs")
                wait_for("their worker", lambda: ready(c, 1))
            assert run_folder(c) is None
            assert c.request("GET", "/v1/plan", None, {"Authorization": ""})[0] == 200
            assert "--open-loopback: every user of this machine may" in c.log("coordinator")
    refused = subprocess.run(["coordinator/tessera-coordinator", cluster.MODEL, "--open-loopback", "--host", "0.0.0.0"],
                             capture_output=True, text=True, timeout=cluster.PATIENCE_SECONDS)
    assert refused.returncode == 1 and "--open-loopback needs a --host on loopback" in refused.stderr, refused


def test_keys_that_flags_name_are_kept(tmp):
    key = tmp / "admin"
    key.write_text("an-admin-key-of-this-test\n")
    with Cluster("--admin-key-file", str(key), workers=1) as c:
        told = wait_for("the worker", lambda: (lambda done: done if "w0/0" in done.stdout else None)(
            tessera("status", "--coordinator", c.grpc, "--admin-key-file", str(key))))
        assert told.returncode == 0
        assert not (run_folder(c) / "admin_key").exists()
        refused = tessera("status", "--coordinator", c.grpc)
        assert refused.returncode == 1 and "admin key is missing or wrong" in refused.stderr, refused


def test_workers_outlive_their_coordinator_and_may_come_before_it():
    with Cluster(workers=1) as c:
        flags = ["--port", str(c.port), "--grpc-port", c.grpc.split(":")[1]]
        wait_for("a ready worker", lambda: ready(c, 1))
        token = (run_folder(c) / "cluster_token").read_text()
        for end in (KILL, TERMINATE):
            c.signal("coordinator", end)
            c.ended("coordinator")
            if end == KILL:
                c.start_worker("w1")  # waits for the next coordinator
                wait_for("its wait", lambda: f"no coordinator runs at {c.grpc}" in c.log("w1"))
            c.start("coordinator", "coordinator/tessera-coordinator", cluster.MODEL, *flags)
            wait_for("two ready workers", lambda: ready(c, 2))
            assert (run_folder(c) / "cluster_token").read_text() == token
        # One that waits ends at a signal.
        c.signal("coordinator", TERMINATE)
        c.ended("coordinator")
        c.start_worker("w2")
        wait_for("its wait", lambda: f"no coordinator runs at {c.grpc}" in c.log("w2"))
        c.signal("w2", TERMINATE)
        assert c.ended("w2") == 0


def test_two_coordinators_of_a_user():
    with running(workers=1) as first, running(workers=1) as second:
        assert run_folder(first) != run_folder(second)
        for c in (first, second):
            assert [w["name"] for w in c.status()["workers"]] == ["w0/0"]
        port = first.grpc.split(":")[1]
        refused = subprocess.run(["coordinator/tessera-coordinator", cluster.MODEL, "--port", "0", "--grpc-port", port],
                                 capture_output=True, text=True, timeout=cluster.PATIENCE_SECONDS)
        assert refused.returncode == 1 and f"gRPC port {port}" in refused.stderr, refused
        assert first.status()["workers"], "the first one's key still fits"
