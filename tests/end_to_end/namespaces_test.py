"""Three machines, each a network namespace of its own: a coordinator and the workers of one replica, started by hand, one
command a machine, over IPv4 on links of 100 Mbit/s, over a line with a long delay, and over IPv6."""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

import cluster
from run_tests import Skip
from staged_replica_test import WORKERS, staged_plan

os.environ["PATH"] += os.pathsep + "/usr/sbin"  # where Debian has tc
PATIENCE_SECONDS = 60
RATE = "100mbit"


def sh(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Machines:
    """Namespaces joined by a bridge in one more; machine i has the addresses 10.77.0.(i+1) and fd77::(i+1)."""

    def __init__(self, count):
        self.tag = "t" + secrets.token_hex(3)
        self.processes = []
        self.folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))  # names of sockets are 107 bytes at most
        self.names = [f"{self.tag}m{i}" for i in range(count)]
        self.hub = self.tag + "hub"
        try:
            sh("ip", "netns", "add", self.hub)
            sh("ip", "-n", self.hub, "link", "add", "bridge0", "type", "bridge")
            sh("ip", "-n", self.hub, "link", "set", "bridge0", "up")
            for i, name in enumerate(self.names):
                self.add(i, name)
        except (RuntimeError, FileNotFoundError) as error:
            self.stop()
            raise Skip(f"no network namespaces: {error}") from None

    def add(self, i, name):
        port = f"{self.tag}p{i}"
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "link", "set", port, "netns", self.hub)
        sh("ip", "-n", self.hub, "link", "set", port, "master", "bridge0", "up")
        sh("ip", "-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
        sh("ip", "-n", name, "addr", "add", f"fd77::{i + 1}/64", "dev", "eth0", "nodad")
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        sh("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", RATE, "burst", "256kb", "latency",
           "50ms")

    def start(self, machine, log, *command):
        """With a folder of its own for sockets, as on another machine: links have to go over the network."""
        private = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$XDG_STATE_HOME" && exec "$@"', "sh"]
        sockets = self.folder / "sockets"
        sockets.mkdir(exist_ok=True)
        with open(self.folder / log, "wb") as file:
            self.processes.append(subprocess.Popen(
                ["ip", "netns", "exec", self.names[machine], *private, *command], stdout=file, stderr=file,
                env={**os.environ, "XDG_STATE_HOME": str(sockets)}))

    def ask(self, machine, url, body=None):
        command = ["ip", "netns", "exec", self.names[machine], "curl", "-sg", "--max-time", "60", url]
        return subprocess.run(command + (["-d", json.dumps(body)] if body else []), capture_output=True, text=True,
                              check=False).stdout

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')}" for path in self.folder.glob("*.log"))

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def wait_for_line(machines, url, text, deadline):
    while text not in machines.ask(0, url):
        assert time.monotonic() < deadline, machines.logs()
        time.sleep(0.2)


def serve(tmp, address, delay_seconds=0, blocked=False):
    """`address(i)`: of machine i, as it stands before a port. With a delay, links to the first workers' machine go through
    proxies that hand each byte on so much later; `blocked`: these begin only once somebody says what is missing."""
    plan = staged_plan(tmp / "plan.json")
    token = tmp / "token"
    token.write_text(secrets.token_hex(16))
    machines = Machines(3)
    proxies = []
    try:
        machines.start(0, "coordinator.log", "coordinator/tessera-coordinator", cluster.MODEL, "--plan", str(plan),
                       "--host", address(0).strip("[]"), "--port", "8000", "--grpc-port", "8001",
                       "--cluster-token-file", str(token))
        cores = sorted(os.sched_getaffinity(0))
        for i, name in enumerate(WORKERS):
            machine = 1 + i // 2
            through = []
            if delay_seconds and machine == 1:
                through = ["--advertise-link", f"{address(1)}:{9200 + i}"]
                proxies.append((f"proxy{i}.log", sys.executable,
                                str(pathlib.Path(__file__).parent / "delaying_proxy.py"), address(1), str(9200 + i),
                                address(1), str(9100 + i), str(delay_seconds)))
                if not blocked:
                    machines.start(1, *proxies[-1])
            machines.start(machine, f"{name}.log", "worker/tessera-worker", "--coordinator", address(0) + ":8001",
                           "--listen", f"{address(machine)}:{9000 + i}", "--link-port", str(9100 + i),
                           "--cluster-token-file", str(token), "--name", name + "/0", "--cpus",
                           str(cores[i % len(cores)]), "--kv-cache-memory-bytes", "16MiB", *through)
        url = f"http://{address(0)}:8000"
        deadline = time.monotonic() + PATIENCE_SECONDS
        if blocked:
            unreached = f": link at {address(1)}:9200: "
            wait_for_line(machines, url + "/ready", unreached, deadline)
            assert "warning worker: cannot reach" in machines.logs(), machines.logs()
            for proxy in proxies:
                machines.start(1, *proxy)
        wait_for_line(machines, url + "/ready", '"status":"ready"', deadline)
        answer = machines.ask(0, url + "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0})
        assert '"content":"142"' in answer, answer + machines.logs()
        # Between machines links go over TCP to the ports that were given.
        assert f"over {address(1)}:{9200 if delay_seconds else 9100}" in machines.logs(), machines.logs()
        # A token's rows go to the second machine, and the token comes back.
        began = time.monotonic()
        answer = machines.ask(0, url + "/v1/completions", {"prompt": "1 2 3", "max_tokens": 8, "ignore_eos": True})
        assert '"completion_tokens":8' in answer, answer + machines.logs()
        assert time.monotonic() - began > 8 * 2 * delay_seconds
    finally:
        machines.stop()


def test_a_replica_over_two_machines_and_its_coordinator_on_a_third(tmp):
    serve(tmp, lambda i: f"10.77.0.{i + 1}")


def test_the_same_over_a_line_with_a_long_delay(tmp):
    serve(tmp, lambda i: f"10.77.0.{i + 1}", delay_seconds=0.03)


def test_a_link_that_nothing_answers_is_named_and_made_once_it_does(tmp):
    serve(tmp, lambda i: f"10.77.0.{i + 1}", delay_seconds=0.001, blocked=True)


def test_the_same_over_ipv6(tmp):
    serve(tmp, lambda i: f"[fd77::{i + 1}]")
