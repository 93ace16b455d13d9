"""`tessera check`: what stops a worker from joining is said before it is started, with the remedy."""

import re
import secrets
import shutil
import signal
import subprocess

import cluster
from cluster import Cluster, running, wait_for
from staged_replica_test import staged_plan


def check(*flags):
    """(exit code, {what: (state, text)})"""
    done = subprocess.run(["deploy/tessera", "check", *flags], capture_output=True, text=True,
                          timeout=cluster.PATIENCE_SECONDS)
    lines = {}
    for line in done.stdout.splitlines():
        state, rest = line[:4].strip(), line[6:]
        what, _, text = rest.partition("  ")
        lines[what.strip()] = (state, text.strip())
    assert done.returncode in (0, 1) and lines, done
    return done.returncode, lines


def test_all_is_well():
    with running(workers=1) as c:
        code, lines = check("--coordinator", c.grpc, "--name", "w0/1")
        assert code == 0 and all(state == "ok" for state, _ in lines.values()), lines
        for what in ("coordinator", "token", "build", "way back", "links", "KV", "clock", "model", "cores"):
            assert what in lines, (what, lines)
        assert "is the coordinator's" in lines["model"][1], lines
        rate = re.search(r"read memory at ([0-9.]+) GB/s", lines["cores"][1])
        assert rate and 0.1 < float(rate.group(1)) < 10_000, lines
        # It changes nothing, and the ports are free again.
        assert [w["name"] for w in c.status()["workers"]] == ["w0/0"]
        code, lines = check("--coordinator", c.grpc, "--name", "w0/0")
        assert code == 1 and lines["name"][0] == "FAIL", lines
        assert "a worker named w0/0 is alive at 127.0.0.1:" in lines["name"][1], lines
        # One that comes back before the coordinator misses it takes its place.
        c.signal("w0", signal.SIGKILL)
        c.ended("w0")
        code, lines = check("--coordinator", c.grpc, "--name", "w0/0")
        assert lines["name"] == ("ok", "w0/0"), lines


def test_each_problem_has_a_line_with_its_remedy(tmp):
    token, wrong = tmp / "token", tmp / "wrong"
    token.write_text(secrets.token_hex(16))
    wrong.write_text(secrets.token_hex(16))
    other = tmp / "other"
    shutil.copytree(cluster.MODEL, other)
    for path in other.iterdir():
        path.chmod(0o644)
    with open(other / "config.json", "a", encoding="utf-8") as file:
        file.write("\n")
    c = Cluster("--cluster-token-file", str(token), workers=0)
    try:
        code, lines = check("--coordinator", c.grpc, "--cluster-token-file", str(wrong))
        assert code == 1 and lines["token"][0] == "FAIL" and "token is missing or wrong" in lines["token"][1], lines
        assert lines["the rest"][0] == "--", lines
        # One that is started all the same shows in both logs.
        c.start_worker("w9", "--cluster-token-file", str(wrong))
        for log in ("coordinator", "w9"):
            wait_for("the refusal", lambda log=log: "cluster token is missing or wrong" in c.log(log))
        assert re.search("worker w9/0 at .* is refused", c.log("coordinator")), c.log("coordinator")
        given = ("--coordinator", c.grpc, "--cluster-token-file", str(token))
        code, lines = check(*given, "--advertise-link", "127.0.0.1:1", "--model-folder", str(other))
        assert code == 1 and lines["way back"][0] == "ok" and lines["name"][0] == "ok", lines
        state, text = lines["links"]
        assert state == "FAIL" and "does not reach 127.0.0.1:1: Connection refused" in text, lines
        assert lines["model"][0] == "FAIL" and "another checkpoint" in lines["model"][1], lines
        # A port that is open, and another program's.
        code, lines = check(*given, "--advertise", c.grpc)
        assert code == 1 and lines["links"][0] == "ok", lines
        assert lines["way back"][0] == "FAIL" and "reaches another program at " + c.grpc in lines["way back"][1], lines
        assert "--advertise" in lines["way back"][1], lines
        code, lines = check(*given, "--listen", c.grpc)
        assert lines["way back"][0] == "FAIL" and "--listen" in lines["way back"][1], lines
        # An address of another network: the port's flag would not help.
        code, lines = check(*given, "--listen", "192.0.2.1:0")
        assert all(lines[what][0] == "FAIL" and "--listen takes an address" in lines[what][1]
                   for what in ("way back", "links", "KV")), lines
        code, lines = check("--coordinator", "127.0.0.1:1")
        assert code == 1 and lines["coordinator"][0] == "FAIL", lines
        assert "127.0.0.1:1: Connection refused" in lines["coordinator"][1], lines
        code, lines = check("--coordinator", f"127.0.0.1:{c.port}")
        assert lines["gRPC"][0] == "FAIL" and "speaks HTTP/1" in lines["gRPC"][1], lines
        # Of several coordinators those that wait to lead need not answer.
        code, lines = check("--coordinator", f"127.0.0.1:1,{c.grpc}", *given[2:])
        assert code == 0 and lines["name"][0] == "ok", lines
        code, lines = check("--coordinator", "127.0.0.1:1,127.0.0.1:2", *given[2:])
        assert code == 1 and lines["coordinator"][0] == "FAIL", lines
        for flag, wrong in (("--coordinator", ""), ("--coordinator", c.grpc + ","), ("--name", "a\nb"), ("--name", "a/../b"),
                            ("--coordinator", "http://a"), ("--listen", "7001"), ("--listen", "::1:7001")):
            refused = subprocess.run(["deploy/tessera", "check", flag, wrong], capture_output=True, text=True)
            assert refused.returncode == 2 and flag in refused.stderr, refused
    finally:
        c.stop()


def test_a_device_that_the_plan_has_not_is_named(tmp):
    c = Cluster("--plan", str(staged_plan(tmp / "plan.json")), "--dtype", "float32", workers=0)
    try:
        _, lines = check("--coordinator", c.grpc, "--name", "w0/0")
        assert lines["name"] == ("ok", "w0/0"), lines
        code, lines = check("--coordinator", c.grpc, "--name", "box/7")
        assert code == 1 and "has no device box/7; it lacks a worker for w0/0, w1/0, w2/0, w3/0: take one" in \
            lines["name"][1], lines
        # A name that has its worker is none to take.
        for i in range(4):
            c.start_worker(f"w{i}")
            wait_for("its registration", lambda i=i: f"worker w{i}/0 registered" in c.log("coordinator"))
            if i == 1:
                text = check("--coordinator", c.grpc, "--name", "box/7")[1]["name"][1]
                assert "it lacks a worker for w2/0, w3/0: take one" in text, text
        state, text = check("--coordinator", c.grpc, "--name", "box/7")[1]["name"]
        assert state == "FAIL" and "live workers for all that it has: this one would register, and wait idle" in text, text
    finally:
        c.stop()
