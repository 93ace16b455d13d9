"""A coordinator and workers as real processes, for the tests of this folder. Standard library only."""

import atexit
import contextlib
import functools
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

MODEL = "deploy/demo_model/tessera-demo"
PATIENCE_SECONDS = 180  # beside compilers and other tests, on two cores
# A description of the devices of workers w0 and w1, but for their memory.
TWO_CPUS = """
machines:
- {name: w0, devices: [{kind: mycpu}]}
- {name: w1, devices: [{kind: mycpu}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
kinds:
- {name: mycpu, memory: %s, memory_bandwidth: 10 GB/s, dense_flops_per_second: 0.2 TFLOPS}
"""

# What runs on loopback keeps its secrets and sockets here; the names of sockets are short.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(dir="/tmp")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


def wait_for(what, condition):
    """Polls until `condition()` is true; its value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_SECONDS} s for {what}")


class Cluster:
    """Starts processes, asks them, and ends what is left of them: with stop(), or behind a `with`, which prints their logs
    where its block fails."""

    def __init__(self, *coordinator_flags, workers=2, worker_flags=(), model=MODEL, prefix=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.processes = {}
        port_file = self.folder / "ports"
        self.start("coordinator", *prefix, "coordinator/tessera-coordinator", model, "--port", "0",
                   "--grpc-port", "0", "--port-file", str(port_file), *coordinator_flags)
        wait_for("the coordinator's ports",
                 lambda: port_file.exists() or self.processes["coordinator"].poll() is not None)
        ports = dict(part.split("=") for part in port_file.read_text().split())
        self.port = int(ports["http"])
        self.grpc = "127.0.0.1:" + ports["grpc"]
        for i in range(workers):
            self.start_worker(f"w{i}", *worker_flags)

    def start(self, name, program, *arguments):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        log.close()

    def start_worker(self, name, *flags, kv="64MiB"):
        cores = sorted(os.sched_getaffinity(0))
        # Tests of one worker that run side by side do not share one core.
        core = cores[(os.getpid() + len(self.processes)) % len(cores)]
        self.start(name, "worker/tessera-worker", "--coordinator", self.grpc, "--name", name + "/0",
                   "--cpus", str(core), "--kv-cache-memory-bytes", kv, *flags)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def ended(self, name):
        """The exit code, once it has one."""
        return self.processes[name].wait(PATIENCE_SECONDS)

    def admin_key(self):
        """The key that the coordinator made; "": it made none."""
        port = self.grpc.split(":")[1]
        found = list(pathlib.Path(os.environ["XDG_STATE_HOME"], "tessera").glob(f"*-{port}/admin_key"))
        return found[0].read_text().strip() if found else ""

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body); to where plans are with the admin key, unless `headers` say how."""
        if path.startswith(("/v1/plan", "/v1/cluster")) and "Authorization" not in (headers or {}) and self.admin_key():
            headers = {**(headers or {}), "Authorization": "Bearer " + self.admin_key()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read().decode()

    def get(self, path):
        return self.request("GET", path)

    def stream(self, body, headers=None):
        """A stream of /v1/completions: yields its events; ends after [DONE] or an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), headers or {})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    return
                event = json.loads(line[len(b"data: "):])
                yield event
                if "error" in event:
                    return

    def status(self):
        reply = subprocess.run(["deploy/tessera", "status", "--coordinator", self.grpc, "--json"],
                               capture_output=True, text=True, check=True)
        return json.loads(reply.stdout)

    def status_text(self):
        reply = subprocess.run(["deploy/tessera", "status", "--coordinator", self.grpc],
                               capture_output=True, text=True, check=True)
        return reply.stdout

    def replicas(self, ready=True):
        return [r["name"] for r in self.status().get("replicas", []) if r.get("ready", False) == ready]

    def wait_until_ready(self, replicas):
        wait_for(f"{replicas} replicas", lambda: len(self.replicas()) == replicas)

    def metrics(self):
        """{"name{labels}": value} of /metrics."""
        status, _, text = self.get("/metrics")
        assert status == 200
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def probe(self, *arguments):
        if arguments[0] in ("plan", "running-plan") and len(arguments) < 3:
            arguments = (*arguments, *([""] if len(arguments) < 2 else []), self.admin_key())
        done = subprocess.run(["tests/end_to_end/grpc_probe", self.grpc, *arguments],
                              capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        return done.stdout

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.print_logs()
        self.stop()

    def print_logs(self):
        for name in self.processes:
            print(f"--- {name}\n{self.log(name)}", flush=True)
            self.print_threads(name)

    def print_threads(self, name):
        """Of a process that lives: where each thread waits, and for how long it ran and waited for a core."""
        if self.processes[name].poll() is not None:
            return
        for task in sorted(pathlib.Path(f"/proc/{self.processes[name].pid}/task").iterdir()):
            with contextlib.suppress(OSError):
                state = (task / "stat").read_text().rsplit(")", 1)[1].split()
                ran, waited, _ = (task / "schedstat").read_text().split()
                print(f"thread {(task / 'comm').read_text().strip()}: state {state[0]}, core {state[36]}, "
                      f"in {(task / 'wchan').read_text() or '-'}, ran {int(ran) / 1e9:.2f} s, "
                      f"waited for a core {int(waited) / 1e9:.2f} s", flush=True)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def running(*coordinator_flags, workers=2, worker_flags=(), model=MODEL, replicas=None):
    """A cluster whose replicas are ready, one for each worker unless `replicas` says how many."""
    with Cluster(*coordinator_flags, workers=workers, worker_flags=worker_flags, model=model) as cluster:
        cluster.wait_until_ready(workers if replicas is None else replicas)
        yield cluster


@functools.cache
def lasting(*coordinator_flags, workers=1):
    cluster = Cluster(*coordinator_flags, workers=workers)
    atexit.register(cluster.stop)
    cluster.wait_until_ready(workers)
    return cluster


@contextlib.contextmanager
def shared(*coordinator_flags, workers=1):
    """A cluster that stays for all tests of a file that ask for the same."""
    cluster = lasting(*coordinator_flags, workers=workers)
    try:
        yield cluster
    except Exception:
        cluster.print_logs()
        raise


def stream_all(collect, said, after_start=None):
    """collect(i, said[i], started) of each i on a thread of its own; after_start() once all have begun. Returns said."""
    started = [threading.Event() for _ in said]
    failures = []

    def one(i):
        try:
            collect(i, said[i], started[i])
        except BaseException as error:
            failures.append((i, repr(error)))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(said))]
    for thread in threads:
        thread.start()
    for event in started:
        assert event.wait(60)
    if after_start:
        after_start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return said


TERMINATE = signal.SIGTERM
KILL = signal.SIGKILL
