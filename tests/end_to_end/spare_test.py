"""Two coordinators of one cluster, one of which leads: the other one takes over, by etcd, with the replicas as they are."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

from cluster import Cluster, KILL, MODEL, PATIENCE_SECONDS, TERMINATE, wait_for
from run_tests import Skip

LEASE_SECONDS = 2
SERVED_SECONDS = LEASE_SECONDS + 2  # that nobody may serve
BUSY_SECONDS = 3  # more, where a process of a busy machine comes late to all that follows its lease
# Until etcd has what the leader knows: three times a second changes are kept, and a worker that is not yet is configured again.
KEPT_SECONDS = 1.5
ETCD = []  # its path, once it is found
ANSWER = {"prompt": "Count from 3 to 90.", "max_tokens": 12, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
LONG = {**ANSWER, "max_tokens": 1500}
ADMIN_KEY = "an-admin-key-of-32-characters-00"


def prepare():
    found = shutil.which("etcd")
    if found is None:
        # Without installing it, which would start it as a service.
        folder = pathlib.Path(tempfile.mkdtemp())
        commands = (["apt-get", "-qq", "download", "etcd-server"], ["sh", "-c", "dpkg-deb -x etcd-server_*.deb ."])
        for command in commands:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, cwd=folder, timeout=PATIENCE_SECONDS, stdout=subprocess.DEVNULL)
        found = shutil.which("etcd", path=folder / "usr" / "bin")
    if found is None:
        raise Skip("no etcd: it is not installed, and apt cannot download etcd-server")
    ETCD.append(str(found))


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Pair(Cluster):
    """Coordinators a and b with one etcd, and workers that know both. `port` and `grpc` are those of `asked`."""

    def __init__(self, *flags, workers=2):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.processes, self.flags = {}, flags
        for name, text in (("token", "a-cluster-token-of-some-length"), ("admin", ADMIN_KEY)):
            (self.folder / name).write_text(text + "\n")
            (self.folder / name).chmod(0o600)
        numbers = free_ports(6)
        self.client_port, self.peer_port = numbers[:2]
        self.ports = {"a": numbers[2:4], "b": numbers[4:6]}
        self.start_etcd()
        self.start_coordinator("a")
        wait_for("a to lead", lambda: "leads, in term" in self.log("a"))
        self.start_coordinator("b")
        wait_for("b to be its spare", lambda: "is a spare" in self.log("b"))
        self.ask("a")
        for i in range(workers):
            self.start_worker(f"w{i}", "--cluster-token-file", str(self.folder / "token"))

    def store(self):
        return f"etcd://127.0.0.1:{self.client_port}/test"

    def start_etcd(self):
        peer, client = (f"http://127.0.0.1:{port}" for port in (self.peer_port, self.client_port))
        self.start("etcd", ETCD[0], "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", client,
                   "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", f"default={peer}", "--unsafe-no-fsync")

    def stored(self, key):
        connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", "/v3/kv/range", json.dumps({"key": base64.b64encode(key.encode()).decode()}))
            return "kvs" in json.loads(connection.getresponse().read())

    def put(self, key):
        connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", "/v3/kv/put", json.dumps({"key": base64.b64encode(key.encode()).decode()}))
            assert connection.getresponse().status == 200

    def led(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.stored("/tessera/test/leader")
        return False

    def restart_leader(self, leader, spare):
        """Its spare leads, and it is the spare's."""
        self.signal(leader, TERMINATE)
        assert self.ended(leader) == 0
        self.ask(spare)
        wait_for(f"{spare} to serve", lambda: self.ready() and len(self.replicas()) == 2)
        self.start_coordinator(leader)
        time.sleep(KEPT_SECONDS)

    def start_coordinator(self, name):
        port, grpc = self.ports[name]
        self.start(name, "coordinator/tessera-coordinator", MODEL, "--port", str(port), "--grpc-port", str(grpc),
                   "--ha", self.store(), "--ha-lease", str(LEASE_SECONDS), "--dtype", "float32",
                   "--cluster-token-file", str(self.folder / "token"), "--admin-key-file", str(self.folder / "admin"),
                   *self.flags)

    def ask(self, name):
        self.port, port = self.ports[name]
        self.grpc = f"127.0.0.1:{port}"
        self.coordinators = ",".join(f"127.0.0.1:{grpc}" for _, grpc in self.ports.values())

    def start_worker(self, name, *flags, kv="64MiB"):
        asked, self.grpc = self.grpc, self.coordinators
        super().start_worker(name, *flags, kv=kv)
        self.grpc = asked

    def admin_key(self):
        return ADMIN_KEY

    def status(self):
        return json.loads(self.request("GET", "/v1/cluster")[2])

    def ready(self):
        try:
            return self.get("/ready")[0] == 200
        except OSError:
            return False

    def tokens(self, body=ANSWER):
        status, _, text = self.request("POST", "/v1/completions", body)
        assert status == 200, text
        return json.loads(text)["choices"][0]["token_ids"]

    def answer(self, until):
        """The tokens of ANSWER, asked at both coordinators in turn until one gives them, as a client with a retry does."""
        while time.monotonic() < until:
            for port, _ in self.ports.values():
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
                with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                    connection.request("POST", "/v1/completions", json.dumps(ANSWER))
                    response = connection.getresponse()
                    text = response.read()
                    if response.status == 200:
                        return json.loads(text)["choices"][0]["token_ids"]
                    assert response.status == 503 and response.getheader("Retry-After"), (response.status, text)
            time.sleep(0.05)
        raise AssertionError("nobody answered")


class Guarded(Pair):
    """With an etcd inside TLS, which asks for a name and a password, and whose sessions last for two seconds."""

    def __init__(self):
        self.certificates = pathlib.Path(tempfile.mkdtemp())
        subprocess.run(["tests/tls/issue", str(self.certificates)], check=True)
        (self.certificates / "login").write_text("tessera:of etcd\n")
        (self.certificates / "signs").write_text("what signs sessions\n")
        super().__init__(workers=1)

    def file(self, name):
        return str(self.certificates / name)

    def store(self):
        return f"etcds://127.0.0.1:{self.client_port}/test?ca={self.file('ca.pem')}&login={self.file('login')}"

    def start_etcd(self):
        peer, client = f"http://127.0.0.1:{self.peer_port}", f"https://127.0.0.1:{self.client_port}"
        self.start("etcd", ETCD[0], "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", client,
                   "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                   "--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--cert-file", self.file("cert.pem"),
                   "--key-file", self.file("key.pem"), "--auth-token",
                   f"jwt,priv-key={self.file('signs')},sign-method=HS256,ttl=2s")
        wait_for("etcd", lambda: self.called("/v3/auth/user/add", {"name": "root", "password": "r"}))
        self.call("/v3/auth/role/add", {"name": "root"})
        self.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        self.call("/v3/auth/user/add", {"name": "tessera", "password": "of etcd"})
        self.call("/v3/auth/role/add", {"name": "spare"})
        keys = [base64.b64encode(key).decode() for key in (b"/tessera/test/", b"/tessera/test0")]
        self.call("/v3/auth/role/grant", {"name": "spare", "perm": {
            "permType": "READWRITE", "key": keys[0], "range_end": keys[1]}})
        self.call("/v3/auth/user/grant", {"user": "tessera", "role": "spare"})
        self.call("/v3/auth/enable", {})

    def call(self, path, body):
        context = ssl.create_default_context(cafile=self.file("ca.pem"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.client_port, timeout=PATIENCE_SECONDS, context=context)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            text = response.read().decode()
            assert response.status == 200, (path, text)

    def called(self, path, body):
        try:
            self.call(path, body)
        except (OSError, http.client.HTTPException):
            return False
        return True


class Load:
    """Clients with a retry, until stop()."""

    def __init__(self, c):
        self.going, self.answers, self.failures = True, [], []

        def ask():
            while self.going:
                try:
                    self.answers.append(c.answer(time.monotonic() + PATIENCE_SECONDS))
                except Exception as error:
                    self.failures.append(repr(error))
                    return

        self.threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in self.threads:
            thread.start()

    def stop(self, expected):
        self.going = False
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures
        assert self.answers and all(answer == expected for answer in self.answers)


def reads(c):
    return sum(c.log(f"w{i}").count("read weights") for i in range(2))


def test_a_spare_takes_over_with_the_replicas_as_they_are():
    with Pair() as c:
        wait_for("two replicas", c.ready)
        wait_for("two replicas", lambda: len(c.replicas()) == 2)
        expected, read = c.tokens(), reads(c)
        c.ask("b")
        status, headers, text = c.request("POST", "/v1/completions", ANSWER)
        assert status == 503 and headers["Retry-After"] == "1" and f":{c.ports['a'][0]} leads" in text, (status, text)
        assert headers["x-tessera-leader"] == f"http://127.0.0.1:{c.ports['a'][0]}"
        assert c.get("/livez")[0] == 200 and c.get("/ready")[0] == 503

        time.sleep(KEPT_SECONDS)
        # Killed: its port refuses, so that nobody waits for its lease.
        load = Load(c)
        wait_for("answers", lambda: len(load.answers) > 10)
        c.signal("a", KILL)
        began = time.monotonic()
        wait_for("b to serve", c.ready)
        seconds = time.monotonic() - began
        print(f"killed: served again after {seconds:.2f} s")
        assert seconds < SERVED_SECONDS, seconds
        wait_for("two replicas", lambda: len(c.replicas()) == 2)
        load.stop(expected)
        assert c.log("b").count("taking up worker") == 2 and reads(c) == read, c.log("b")

        # Told to end: the other one leads at once, and a stream that cannot go on says so.
        c.start_coordinator("a")
        wait_for("a to be the spare", lambda: f":{c.ports['b'][0]} leads" in c.log("a"))
        time.sleep(KEPT_SECONDS)
        said = []
        reader = threading.Thread(target=lambda: said.extend(c.stream(LONG)))
        reader.start()
        wait_for("the stream", lambda: len(said) > 5)
        load = Load(c)
        c.signal("b", TERMINATE)
        began = time.monotonic()
        c.ask("a")
        wait_for("a to serve", c.ready)
        seconds = time.monotonic() - began
        print(f"told to end: served again after {seconds:.2f} s")
        assert seconds < SERVED_SECONDS, seconds
        reader.join()
        assert "error" in said[-1], said[-1]
        wait_for("two replicas", lambda: len(c.replicas()) == 2)
        load.stop(expected)
        assert c.ended("b") == 0 and reads(c) == read


def test_a_stream_goes_on_at_the_spare():
    with Pair() as c:
        wait_for("two replicas", lambda: c.ready() and len(c.replicas()) == 2)
        asked = {**LONG, "temperature": 1, "seed": 7}
        undisturbed = c.tokens(asked)
        time.sleep(KEPT_SECONDS)
        stream, said = c.stream(asked), []
        for event in stream:
            said.append(event)
            if len(said) == 8:
                c.signal("a", KILL)
                break
        with contextlib.suppress(OSError, http.client.HTTPException):
            said.extend(event for event in stream if "error" not in event)
        first = [token for event in said for token in event["choices"][0]["token_ids"]]
        assert len(first) < LONG["max_tokens"], "it ended before its coordinator did"

        c.ask("b")
        resume = {"x-tessera-resume": said[0]["id"]}
        answer = []

        def resumed():
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, headers, text = c.request("POST", "/v1/completions", asked, resume)
                assert status == 200 or (status == 503 and headers["Retry-After"]), (status, text)
                answer.append(json.loads(text) if status == 200 else None)
            return answer and answer[-1]

        whole = wait_for("b to go on", resumed)
        assert whole["id"] == said[0]["id"]
        tokens = whole["choices"][0]["token_ids"]
        assert tokens[:len(first)] == first and tokens == undisturbed
        # What was made before is not made again.
        assert f"resumes {said[0]['id']} behind " in c.log("b")


def test_a_leader_that_hangs_is_replaced_and_ends():
    with Pair() as c:
        wait_for("two replicas", lambda: c.ready() and len(c.replicas()) == 2)
        expected = c.tokens()
        c.signal("a", signal.SIGSTOP)
        c.ask("b")
        began = time.monotonic()
        wait_for("b to serve", c.ready)
        seconds = time.monotonic() - began
        print(f"hung: served again after {seconds:.2f} s, lease {LEASE_SECONDS} s")
        assert seconds < SERVED_SECONDS + BUSY_SECONDS, seconds
        c.signal("a", signal.SIGCONT)
        # It hears that it leads no more, and workers obey the other one.
        assert c.ended("a") == 1
        assert "leads: start this one again, as its spare" in c.log("a")
        wait_for("two replicas", lambda: len(c.replicas()) == 2)
        assert c.tokens() == expected


def test_without_etcd_the_leader_serves_on_and_a_plan_is_kept(tmp):
    with Pair() as c:
        wait_for("two replicas", lambda: c.ready() and len(c.replicas()) == 2)
        expected = c.tokens()
        c.signal("etcd", KILL)
        wait_for("a to hear of it", lambda: "leads on" in c.log("a"))
        assert c.tokens() == expected and c.replicas()
        c.start_etcd()
        wait_for("a to hear of it", lambda: "the store answers again" in c.log("a"))

        # A plan of one worker is the next leader's, too.
        plan = c.status()["plan"]
        plan["replicas"] = plan["replicas"][:1]
        plan["routing"] = [r for r in plan.get("routing", []) if r["decode_replica"] == plan["replicas"][0]["name"]]
        status, _, text = c.request("POST", "/v1/plan/apply", {"plan": plan})
        assert status == 200, text
        wait_for("etcd to have it", lambda: c.stored("/tessera/test/kept/plans"))
        c.signal("a", KILL)
        c.ask("b")
        wait_for("b to serve", c.ready)
        assert len(c.status()["plan"]["replicas"]) == 1 and c.tokens() == expected


def test_an_etcd_that_has_lost_its_data_stops_no_service():
    with Pair() as c:
        wait_for("two replicas", lambda: c.ready() and len(c.replicas()) == 2)
        expected, read = c.tokens(), reads(c)
        # So that the revisions of an etcd that begins anew are far below.
        for i in range(40):
            c.put(f"/other/{i}")
        c.restart_leader("a", "b")
        c.signal("etcd", KILL)
        c.ended("etcd")
        shutil.rmtree(c.folder / "etcd")
        c.start_etcd()
        wait_for("b to be the store's leader again", lambda: c.led())
        until = time.monotonic() + 3 * LEASE_SECONDS + 5  # a worker that is not heard of is lost after five
        while time.monotonic() < until:
            assert c.tokens() == expected and len(c.replicas()) == 2, c.log("b")
            time.sleep(0.3)
        # And the next one leads the workers on, whose term is above what it has of the store.
        wait_for("a to be the spare", lambda: f":{c.ports['b'][0]} leads" in c.log("a"))
        time.sleep(KEPT_SECONDS)
        c.signal("b", KILL)
        c.ask("a")
        wait_for("two replicas", lambda: c.ready() and len(c.replicas()) == 2)
        assert c.tokens() == expected and reads(c) == read, c.log("a")


def test_an_etcd_that_guards_itself(tmp):
    with Guarded() as c:
        wait_for("a replica", c.ready)
        time.sleep(KEPT_SECONDS + 2)  # its first session is over
        c.signal("a", KILL)
        c.ask("b")
        wait_for("b to serve", c.ready)
        assert "would not find the plan" not in c.log("a") + c.log("b"), c.log("a")
        assert c.log("b").count("taking up worker") == 1, c.log("b")
