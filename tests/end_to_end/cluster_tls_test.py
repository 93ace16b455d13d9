"""A cluster whose processes show each other certificates of `tessera token create`: its members serve as they do in the
open, strangers are refused by name."""

import contextlib
import json
import os
import pathlib
import re
import stat
import subprocess
import time

import cluster
from cluster import Cluster, wait_for
from handover_test import WHOLE, split_plan
from staged_replica_test import FLOAT32, WORKERS, ask, staged_plan

QUESTION = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}


def tool(*arguments):
    done = subprocess.run(["deploy/tessera", *arguments], capture_output=True, text=True,
                          timeout=cluster.PATIENCE_SECONDS)
    return done.returncode, done.stdout, done.stderr


def create(folder, *machines):
    flags = [part for machine in machines for part in ("--machine", machine)]
    code, out, err = tool("token", "create", "--out", str(folder), *flags)
    assert code == 0, (out, err)
    return out


def close_sockets(c):
    """Workers of one machine meet over Unix sockets; without those over TCP."""
    folder = re.search(r"of this run in (\S+):", c.log("coordinator")).group(1)
    for path in pathlib.Path(folder).glob("*.sock"):
        path.unlink()


@contextlib.contextmanager
def encrypted(folder, plan, names, *flags, worker_flags=()):
    """The replicas of a plan; its workers meet the last of them over Unix sockets, each other over TCP."""
    own = ("--cluster-token-file", str(folder / "token"), "--cluster-tls")
    with Cluster("--plan", str(plan), *flags, *own, str(folder / "coordinator.pem"), workers=0) as c:
        for name in names:
            if name == names[-1]:
                close_sockets(c)
            c.start_worker(name, *own, str(folder / "box.pem"), *worker_flags)
            wait_for("its registration", lambda: f"worker {name}/0 registered" in c.log("coordinator"))
        wait_for("all replicas", lambda: status_of(c, folder)[0] == 0 and all(
            replica.get("ready") for replica in json.loads(status_of(c, folder, "--json")[1])["replicas"]))
        yield c


def status_of(c, folder, *flags):
    return tool("status", "--coordinator", c.grpc, "--cluster-tls", str(folder / "coordinator.pem"), *flags)


def answers(c, bodies):
    return [json.loads(c.request("POST", "/v1/completions", body)[2])["choices"][0]["token_ids"] for body in bodies]


def test_files_are_made_once_and_only_their_owner_reads_them(tmp):
    folder = tmp / "cluster"
    out = create(folder, "box")
    assert "tessera-worker" in out and "--cluster-tls box.pem" in out, out
    names = ["authority.pem", "box.pem", "coordinator.pem", "token"]
    assert sorted(os.listdir(folder)) == names
    for name in names:
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
    first = {name: (folder / name).read_bytes() for name in names}
    create(folder, "box", "late")
    assert {name: (folder / name).read_bytes() for name in names} == first
    assert (folder / "late.pem").read_text().split("-----BEGIN CERTIFICATE-----")[2:] == \
        (folder / "box.pem").read_text().split("-----BEGIN CERTIFICATE-----")[2:]
    code, _, err = tool("token", "create", "--out", str(folder), "--machine", "../x")
    assert code != 0 and "--machine '../x'" in err, err


def test_stages_and_ranks_answer_over_encrypted_links(tmp):
    create(tmp / "cluster", "box")
    bodies = [ask(tokens=60), ask([10 + (i * 7) % 400 for i in range(500)], 20)]
    with cluster.running(*FLOAT32, workers=1) as c:
        alone = answers(c, bodies)
    with encrypted(tmp / "cluster", staged_plan(tmp / "plan.json"), WORKERS, *FLOAT32) as c:
        assert answers(c, bodies) == alone
        wait_for("figures of links", lambda: re.search(r"(control|bulk) +tcp ", status_of(c, tmp / "cluster")[1]))
        code, _, err = tool("status", "--coordinator", c.grpc)
        assert code != 0 and "--cluster-tls" in err, err
        # A day from now it still holds, and it ends one day.
        expiry = c.metrics()["tessera_cluster_tls_certificate_expiry_timestamp_seconds"]
        assert time.time() + 86_400 < expiry < time.time() + 20 * 366 * 86_400, expiry


def test_keys_and_values_go_over_encrypted_connections(tmp):
    create(tmp / "cluster", "box")
    path, names = split_plan(tmp / "plan.json", (WHOLE, WHOLE))
    with encrypted(tmp / "cluster", path, names, *FLOAT32, "--kv-cache-dtype", "auto",
                   worker_flags=("--kv-transport", "tcp")) as c:
        status, _, body = c.request("POST", "/v1/chat/completions", {**QUESTION, "timings": True})
        assert status == 200 and '"142"' in body, body
        assert json.loads(body)["timings"]["kv_transfer"]["transport"] == "tcp", body


def test_strangers_are_refused_by_name(tmp):
    ours, other = tmp / "cluster", tmp / "other"
    create(ours, "box")
    create(other, "box")
    token = ("--cluster-token-file", str(ours / "token"))
    with Cluster(*token, "--cluster-tls", str(ours / "coordinator.pem"), workers=0) as c:
        c.start_worker("plain", *token)
        wait_for("its complaint", lambda: "--cluster-tls" in c.log("plain"))
        c.start_worker("foreign", *token, "--cluster-tls", str(other / "box.pem"))
        wait_for("its complaint", lambda: "trying again" in c.log("foreign"))
        c.start_worker("member", *token, "--cluster-tls", str(ours / "box.pem"))
        wait_for("the member", lambda: c.request("GET", "/ready")[0] == 200)
        assert "registered with" not in c.log("plain") + c.log("foreign")
    with Cluster(*token, workers=0) as c:
        c.start_worker("encrypted", *token, "--cluster-tls", str(ours / "box.pem"))
        wait_for("its complaint", lambda: "trying again" in c.log("encrypted"))
    done = subprocess.run(["worker/tessera-worker", "--cluster-tls", str(ours / "token")], capture_output=True,
                          text=True, timeout=cluster.PATIENCE_SECONDS)
    assert done.returncode != 0 and "--cluster-tls" in done.stderr, done.stderr


def test_up_takes_the_coordinators_file(tmp):
    create(tmp / "cluster")
    code, out, err = tool("up", cluster.MODEL, "--workers", "1", "--port", "0", "--grpc-port", "0", "--once",
                          "--ask", "What is 57 + 85?", "--expect", "142",
                          "--cluster-tls", str(tmp / "cluster" / "coordinator.pem"))
    assert code == 0, (out, err)
