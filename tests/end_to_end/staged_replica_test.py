"""One replica on four workers, in stages of two, one and one ranks: it answers as one worker does, and the loss of any of
them, at any time, loses no request."""

import contextlib
import functools
import json
import signal
import subprocess
import threading
import time

import cluster
from cluster import KILL, TERMINATE, Cluster, running, wait_for

TOKENS = 400
FLOAT32 = ("--dtype", "float32")
STOP = signal.SIGSTOP
HEADS, KV_HEADS, FFN, VOCABULARY = 4, 2, 448, 512  # of the shipped model
STAGES = [(0, 3, 2), (3, 5, 1), (5, 6, 1)]  # first layer, end, ranks
WORKERS = ["w0", "w1", "w2", "w3"]


def part(whole, rank, width):
    """As scheduler/shares cuts: evenly, earlier ranks take the rest."""
    begin = rank * (whole // width) + min(rank, whole % width)
    return {"begin": begin, "end": begin + whole // width + (rank < whole % width)}


def share(first, end, rank, width):
    heads = part(HEADS, rank, width)
    group = HEADS // KV_HEADS
    last = STAGES[-1][1]
    kind = {"query_heads": heads,
            "kv_heads": {"begin": heads["begin"] // group, "end": (heads["end"] - 1) // group + 1},
            "ffn_columns": part(FFN, rank, width)}
    held = {"layers": {"begin": first, "end": end}, "kinds": [kind], "holds_embedding": first == 0,
            "holds_head": end == last}
    if first == 0 or end == last:
        held["vocabulary_rows"] = part(VOCABULARY, rank, width)
    return held


@functools.cache
def planned_model():
    with running(workers=1) as c:
        return c.status()["plan"]["model"]


def staged_plan(path):
    names = iter(WORKERS)
    stages = [{"workers": [{"device": next(names) + "/0", "share": share(first, end, rank, width),
                            "kv_bytes": str(8 << 20)} for rank in range(width)]}
              for first, end, width in STAGES]
    path.write_text(json.dumps({
        "model": planned_model(),
        "replicas": [{"name": "r0", "role": "REPLICA_ROLE_BOTH", "stages": stages}],
        "routing": [{"prefill_replica": "r0", "decode_replica": "r0", "share": 1.0}]}))
    return path


@contextlib.contextmanager
def staged(tmp, types=FLOAT32):
    with Cluster("--plan", str(staged_plan(tmp / "plan.json")), *types, workers=0) as c:
        for name in WORKERS:
            c.start_worker(name)
        wait_for("the replica", lambda: c.replicas() == ["r0"])
        yield c


def ask(prompt="Count from 3 to 90.", tokens=TOKENS):
    return {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True, "temperature": 0}


class Stream:
    """One request, read on a thread of its own."""

    def __init__(self, c, body):
        self.tokens, self.failure = [], None
        self.thread = threading.Thread(target=self.read, args=(c, body))
        self.thread.start()

    def read(self, c, body):
        try:
            for event in c.stream(body):
                assert "error" not in event, event
                for choice in event["choices"]:
                    self.tokens += choice["token_ids"]
        except BaseException as error:
            self.failure = repr(error)

    def all(self):
        self.thread.join(120)
        assert self.failure is None and not self.thread.is_alive(), self.failure
        return self.tokens


def replace(c, name, number):
    """Sends the signal; one that only stopped is killed when its replica has noticed. Starts another under its name."""
    began = time.monotonic()
    c.signal(name, number)
    wait_for("the loss", lambda: c.replicas() == [])
    noticed = time.monotonic() - began
    c.signal(name, KILL)
    c.ended(name)
    c.start_worker(name)
    return noticed


def answer(c):
    _, _, body = c.request("POST", "/v1/chat/completions",
                           {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0})
    return json.loads(body)["choices"][0]["message"]["content"]


def links(c):
    """{(worker, peer, kind): link} of tessera status, without heartbeats."""
    return {(w["name"], link["peer"], link["kind"]): link for w in c.status()["workers"] for link in w.get("links", [])
            if link["kind"] != "LINK_KIND_HEARTBEAT"}


def both_ends_agree(c):
    """The links, once each end has said what the other says: heartbeats bring the counters."""
    seen = links(c)
    agree = seen and all(link["bytes_sent"] == seen.get((peer, name, kind), {}).get("bytes_received")
                         for (name, peer, kind), link in seen.items())
    return seen if agree else None


def test_it_answers_as_one_worker_and_shows_who_does_what(tmp):
    with running("--dtype", "float32", workers=1) as c:
        alone = Stream(c, ask()).all()
        sums = answer(c)
    with staged(tmp) as c:
        assert Stream(c, ask()).all() == alone
        assert answer(c) == sums == "142"
        places = {w["name"]: (w.get("stage", 0), w.get("rank", 0)) for w in c.status()["workers"]}
        assert places == {"w0/0": (0, 0), "w1/0": (0, 1), "w2/0": (1, 0), "w3/0": (2, 0)}, places


def test_it_shows_how_busy_workers_are_and_what_links_move(tmp):
    with staged(tmp) as c:
        # Rows of 640 bytes: a prompt of more than 103 tokens is a large frame.
        Stream(c, ask("Repeat: " + "one two three four five six seven eight nine ten " * 20, 40)).all()
        busy = wait_for("all workers' shares of time busy", lambda: shares_of_time(c))
        assert all(0 < share <= 1 for share in busy.values()), busy
        seen = wait_for("both ends of each link to agree", lambda: both_ends_agree(c))
        assert {link["transport"] for link in seen.values()} == {"unix"}, seen
        bulk = {(name, peer) for name, peer, kind in seen if kind == "LINK_KIND_BULK"}
        pairs = {("w0/0", "w1/0"), ("w0/0", "w2/0"), ("w2/0", "w3/0")}
        assert bulk == pairs | {(b, a) for a, b in pairs}, bulk
        control = {(name, peer) for name, peer, kind in seen if kind == "LINK_KIND_CONTROL"}
        assert control == {pair for w in ("w1/0", "w2/0", "w3/0") for pair in (("w0/0", w), (w, "w0/0"))}, control
        # Ranks of one machine sum in shared memory: their link carries no sums.
        assert int(seen["w1/0", "w0/0", "LINK_KIND_BULK"]["bytes_received"]) < 4096, seen
        rows = seen["w2/0", "w0/0", "LINK_KIND_BULK"]
        assert rows.get("received_bytes_per_second", 0) > 1e6, rows
        assert int(rows["bytes_received"]) > 103 * 640, rows

        metrics = c.metrics()
        for worker, place in {"w0/0": (0, 0), "w1/0": (0, 1), "w2/0": (1, 0), "w3/0": (2, 0)}.items():
            labels = f'worker="{worker}",replica="r0",stage="{place[0]}",rank="{place[1]}"'
            of = {k: v for k, v in metrics.items() if labels in k}
            value = lambda name, of=of: sum(v for k, v in of.items() if k.startswith(name + "{"))
            assert value("tessera_worker_busy_seconds_total") > 0, of
            assert value("tessera_formation_aborts_total") == value("tessera_link_refused_total") == 0, of
            for direction in ("sent", "received"):
                moved = {k: v for k, v in of.items() if f'direction="{direction}"' in k}
                idle = ('kind="probe"', 'kind="kv"')
                assert all((v > 0) == ('transport="unix"' in k and not any(x in k for x in idle)) for k, v in moved.items()), moved
        unix = [sum(v for k, v in metrics.items() if f'direction="{direction}",transport="unix",kind="bulk"' in k)
                for direction in ("sent", "received")]
        assert unix[0] == unix[1] > 0, unix
        text = c.status_text()
        assert "RATE RECEIVED" in text and "PLANNED" in text, text


def shares_of_time(c):
    shares = {w["name"]: w.get("busy_share", 0) for w in c.status()["workers"]}
    return shares if all(shares.values()) else None


def test_no_member_that_dies_or_hangs_while_it_decodes_loses_a_stream(tmp):
    with staged(tmp) as c:
        undisturbed = Stream(c, ask()).all()
        for name, number in [("w0", KILL), ("w1", KILL), ("w3", STOP)]:
            stream = Stream(c, ask())
            wait_for("tokens", lambda: len(stream.tokens) > 20)
            noticed = replace(c, name, number)
            assert noticed < 2 * 5 + 1, f"{name} was missed after {noticed} s"
            assert stream.all() == undisturbed, name
        # Who stayed saw its replica end, each time, and did not read its weights again.
        def aborts():
            return {w["name"]: int(w["counters"].get("formation_aborts", 0)) for w in c.status()["workers"]}
        wait_for("the replica's ends in a heartbeat of w2/0", lambda: aborts()["w2/0"] >= 3)
        assert c.log("w2").count("read weights") == 1, c.log("w2")


def test_a_member_that_dies_or_hangs_while_a_prompt_is_computed(tmp):
    long = ask("Repeat: " + "one two three four five six seven eight nine ten " * 45, 40)
    with staged(tmp) as c:
        undisturbed = Stream(c, long).all()
        for name, number in [("w2", KILL), ("w1", STOP)]:
            stream = Stream(c, long)
            time.sleep(0.02)
            replace(c, name, number)
            assert stream.all() == undisturbed, name


def test_a_member_that_dies_or_hangs_while_it_loads(tmp):
    with Cluster("--plan", str(staged_plan(tmp / "plan.json")), "--dtype", "float32", workers=0) as c:
        for number in (STOP, KILL):
            for name in WORKERS:
                if name not in c.processes or c.processes[name].poll() is not None:
                    c.start_worker(name)
            wait_for("w3", lambda: "registered with coordinator" in c.log("w3"))
            c.signal("w3", number)
            time.sleep(0.5)
            c.signal("w3", KILL)
            c.ended("w3")
        c.start_worker("w3")
        wait_for("the replica", lambda: c.replicas() == ["r0"])
        assert answer(c) == "142"


def test_a_member_told_to_end_drains_the_replica(tmp):
    with staged(tmp) as c:
        undisturbed = Stream(c, ask()).all()
        stream = Stream(c, ask())
        wait_for("tokens", lambda: len(stream.tokens) > 20)
        c.signal("w2", TERMINATE)
        assert stream.all() == undisturbed
        assert c.ended("w2") == 0
        c.start_worker("w2")
        wait_for("the replica", lambda: c.replicas() == ["r0"])
        assert answer(c) == "142"


def test_a_coordinator_that_restarts_takes_the_replica_up(tmp, types=FLOAT32):
    with staged(tmp, types) as c:
        before = [(w["name"], w["incarnation"]) for w in c.status()["workers"]]
        formed = c.log("coordinator").count("configuring worker")
        flags = ["--plan", str(tmp / "plan.json"), *types, "--grpc-port", c.grpc.split(":")[1],
                 "--port", str(c.port)]
        c.signal("coordinator", KILL)
        c.ended("coordinator")
        c.start("coordinator", "coordinator/tessera-coordinator", cluster.MODEL, *flags)
        wait_for("the replica", lambda: try_replicas(c) == ["r0"])
        assert answer(c) == "142"
        for name in WORKERS:
            assert c.log(name).count("read weights") == 1, c.log(name)
        # Neither loaded nor joined again.
        assert [(w["name"], w["incarnation"]) for w in c.status()["workers"]] == before
        assert c.log("coordinator").count("configuring worker") == formed, c.log("coordinator")
        assert c.log("coordinator").count("taking up worker") == len(WORKERS), c.log("coordinator")


def test_so_it_does_with_weights_of_int8(tmp):
    test_a_coordinator_that_restarts_takes_the_replica_up(tmp, ("--quantization", "int8"))


def try_replicas(c):
    """Of a coordinator that may not listen yet."""
    try:
        return c.replicas()
    except subprocess.CalledProcessError:
        return []
