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


def pool(folder):
    """One file, box.pem, for workers of any name."""
    code, out, err = tool("token", "create", "--out", str(folder), "--pool", "box")
    assert code == 0 and "shares box.pem" in out, (out, err)


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
    code, _, err = tool("token", "create", "--out", str(folder), "--pool", "a\nb")
    assert code != 0 and "--pool 'a?b'" in err, err


def test_stages_and_ranks_answer_over_encrypted_links(tmp):
    pool(tmp / "cluster")
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
    pool(tmp / "cluster")
    path, names = split_plan(tmp / "plan.json", (WHOLE, WHOLE))
    with encrypted(tmp / "cluster", path, names, *FLOAT32, "--kv-cache-dtype", "auto",
                   worker_flags=("--kv-transport", "tcp")) as c:
        status, _, body = c.request("POST", "/v1/chat/completions", {**QUESTION, "timings": True})
        assert status == 200 and '"142"' in body, body
        assert json.loads(body)["timings"]["kv_transfer"]["transport"] == "tcp", body


def check(c, *flags):
    """{what: (state, text)} of `tessera check`, which must end with `code`."""
    code, out, err = tool("check", "--coordinator", c.grpc, *flags)
    lines = {line[6:].partition("  ")[0]: (line[:4].strip(), line) for line in out.splitlines()}
    assert lines and code == int(any(state == "FAIL" for state, _ in lines.values())), (code, out, err)
    return lines


def log_of(c, name):
    """The text of its lines; each is JSON."""
    return "\n".join(json.loads(line)["message"] for line in c.log(name).splitlines())


def test_strangers_are_refused_by_name(tmp):
    ours, other = tmp / "cluster", tmp / "other"
    create(ours, "box")
    create(other, "box")
    token = ("--cluster-token-file", str(ours / "token"))
    as_json = ("--log-format", "json")
    with Cluster(*token, *as_json, "--cluster-tls", str(ours / "coordinator.pem"), workers=0) as c:
        c.start_worker("plain", *token, *as_json)
        wait_for("its complaint", lambda: "give --cluster-tls with this machine's file" in log_of(c, "plain"))
        c.start_worker("foreign", *token, *as_json, "--cluster-tls", str(other / "box.pem"))
        wait_for("its complaint", lambda: "is not the authority in this side's --cluster-tls" in log_of(c, "foreign"))
        assert "of coordinator, signed by Tessera cluster" in log_of(c, "foreign"), c.log("foreign")
        wait_for("the coordinator's", lambda: "one `tessera token create`" in log_of(c, "coordinator"))
        assert "speaks no TLS" in log_of(c, "coordinator"), c.log("coordinator")
        c.start_worker("box", *token, *as_json, "--cluster-tls", str(ours / "box.pem"))
        wait_for("the member", lambda: c.request("GET", "/ready")[0] == 200)
        assert "registered with" in log_of(c, "box")
        assert "registered with" not in log_of(c, "plain") + log_of(c, "foreign")
        # A machine has the names that are its certificate's.
        c.start_worker("box2", *token, *as_json, "--cluster-tls", str(ours / "box.pem"))
        for log in ("box2", "coordinator"):
            wait_for("the refusal", lambda log=log: "the certificate of machine box: start it as --name box/0" in
                     log_of(c, log))

        for flags, remedy in (((), "give --cluster-tls with this machine's file"),
                              (("--cluster-tls", str(other / "box.pem")), "not the authority in this side's --cluster-tls"),
                              (("--cluster-tls", str(ours / "box.pem"), "--name", "x/0"), "--name box/0"),
                              (("--cluster-tls", str(ours / "authority.pem")), "the authority's own file")):
            state, text = check(c, *token, *flags)["TLS"]
            assert state == "FAIL" and remedy in text, (flags, text)
        lines = check(c, *token, "--cluster-tls", str(ours / "box.pem"), "--name", "box/1")
        assert "TLS" not in lines and "inside TLS" in lines["coordinator"][1], lines
    with Cluster(*token, workers=0) as c:
        c.start_worker("encrypted", *token, "--cluster-tls", str(ours / "box.pem"))
        wait_for("its complaint", lambda: "it speaks plain gRPC, and this side has --cluster-tls" in c.log("encrypted"))
        state, text = check(c, *token, "--cluster-tls", str(ours / "box.pem"))["TLS"]
        assert state == "FAIL" and "give the coordinator --cluster-tls too" in text, text
    for name in ("token", "authority.pem"):
        done = subprocess.run(["worker/tessera-worker", "--cluster-tls", str(ours / name)], capture_output=True,
                              text=True, timeout=cluster.PATIENCE_SECONDS)
        assert done.returncode != 0 and "--cluster-tls" in done.stderr, done.stderr


def test_a_certificate_of_another_cluster_holds_no_name_behind_tls_cert(tmp):
    """The coordinator's gRPC port shows --tls-cert, and asks clients for nothing; workers prove what they are all the
    same."""
    ours, other, ports = tmp / "cluster", tmp / "other", tmp / "ports"
    create(ours, "box")
    create(other, "box")
    ports.mkdir()
    subprocess.run(["tests/tls/issue", str(ports)], check=True)
    known = ("--cluster-token-file", str(ours / "token"), "--tls-ca", str(ports / "ca.pem"))
    with Cluster(*known[:2], "--tls-cert", str(ports / "cert.pem"), "--tls-key", str(ports / "key.pem"),
                 "--cluster-tls", str(ours / "coordinator.pem"), workers=0) as c:
        c.start_worker("box", *known, "--cluster-tls", str(other / "box.pem"))
        for log in ("box", "coordinator"):
            wait_for("the refusal", lambda log=log: "worker box/0 shows a certificate of box, which" in c.log(log))
        assert "signed, and not this cluster's authority" in c.log("box"), c.log("box")
        c.signal("box", cluster.TERMINATE)
        c.start_worker("none", *known)
        for log in ("none", "coordinator"):
            wait_for("the refusal", lambda log=log: "worker none/0 shows no certificate of the cluster: give it "
                     "--cluster-tls" in c.log(log))
        assert "registered with" not in c.log("box") + c.log("none")
        for flags, remedy in (((), "shows no certificate of the cluster"),
                              (("--cluster-tls", str(other / "box.pem")), "not this cluster's authority")):
            state, text = check(c, *known, *flags)["TLS"]
            assert state == "FAIL" and remedy in text and "--cluster-tls" in text, (flags, text)
        c.ended("box")
        c.start_worker("box", *known, "--cluster-tls", str(ours / "box.pem"))
        wait_for("the member", lambda: "worker box/0 registered" in c.log("coordinator"))
        lines = check(c, *known, "--cluster-tls", str(ours / "box.pem"), "--name", "box/1")
        assert all(state == "ok" for state, _ in lines.values()), lines
    with Cluster(*known[:2], "--tls-cert", str(ports / "cert.pem"), "--tls-key", str(ports / "key.pem"), workers=0) as c:
        state, text = check(c, *known, "--cluster-tls", str(ours / "box.pem"))["TLS"]
        assert state == "FAIL" and "--cluster-tls" in text, text


def test_open_doors_without_tls_say_what_can_be_read(tmp):
    create(tmp / "cluster")
    token = ("--cluster-token-file", str(tmp / "cluster/token"))
    with Cluster(*token, "--host", "0.0.0.0", workers=0) as c:
        wait_for("the warning", lambda: "--host 0.0.0.0 without --tls-cert: whoever sees the network reads prompts, "
                 "answers, keys and the cluster token" in c.log("coordinator"))
    with Cluster(*token, "--host", "0.0.0.0", "--cluster-tls", str(tmp / "cluster/coordinator.pem"), workers=0) as c:
        wait_for("the warning", lambda: "reads prompts, answers, keys of clients over HTTP" in c.log("coordinator"))
    with Cluster(*token, workers=0) as c:
        c.request("GET", "/ready")
        assert "without --tls-cert" not in c.log("coordinator")


def test_up_takes_the_coordinators_file(tmp):
    create(tmp / "cluster")
    code, out, err = tool("up", cluster.MODEL, "--workers", "1", "--port", "0", "--grpc-port", "0", "--once",
                          "--ask", "What is 57 + 85?", "--expect", "142",
                          "--cluster-tls", str(tmp / "cluster" / "coordinator.pem"))
    assert code == 0, (out, err)
