"""IPv6 addresses in every flag that takes an address: in brackets before a port."""

import socket
import subprocess

import cluster
from cluster import Cluster
from run_tests import Skip

SIXTH = "[::1]"
WRONG = "an IPv6 address needs brackets"


def prepare():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        raise Skip(f"no IPv6 here: {error}") from None


def free_port():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        return server.getsockname()[1]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=cluster.PATIENCE_SECONDS)
    return done.returncode, done.stdout + done.stderr


def test_a_cluster_on_ipv6_alone(tmp):
    # With brackets, as in an address, and without.
    for host in (SIXTH, "::1"):
        with Cluster("--host", host, workers=0) as c:
            c.grpc = f"{SIXTH}:{c.grpc.split(':')[1]}"
            ports = {name: f"{SIXTH}:{free_port()}" for name in ("listen", "link", "kv")}
            c.start_worker("w0", "--listen", ports["listen"], "--advertise", ports["listen"],
                           "--link-port", ports["link"].rsplit(":", 1)[1], "--advertise-link", ports["link"],
                           "--kv-port", ports["kv"].rsplit(":", 1)[1], "--advertise-kv", ports["kv"])
            c.wait_until_ready(1)  # by `tessera status --coordinator [::1]:PORT`
            assert [w["address"] for w in c.status()["workers"]] == [ports["listen"]]
            code, text = run("deploy/tessera", "complete", "What is 57 + 85?", "--url", f"http://{SIXTH}:{c.port}",
                             "--temperature", "0")
            assert code == 0 and "142" in text, text
            code, text = run("deploy/tessera", "check", "--coordinator", c.grpc, "--name", "w1/0", "--listen", f"{SIXTH}:0")
            assert code == 0 and "FAIL" not in text, text


def test_an_address_without_its_brackets_is_refused_by_its_flag():
    for flag in ("--coordinator", "--listen", "--advertise", "--advertise-link", "--advertise-kv"):
        code, text = run("worker/tessera-worker", flag, "::1:9000")
        assert code == 2 and flag in text and WRONG in text, (code, text)
    for command in (("status",), ("check",)):
        code, text = run("deploy/tessera", *command, "--coordinator", "::1:8001")
        assert code == 2 and "--coordinator" in text and WRONG in text, (command, code, text)
