"""A worker that becomes slow under load gets less, says so, and is as before when it is as fast as before."""

import signal
import threading
import time

import cluster
from cluster import running, wait_for


def of_replica(c, metric, replica):
    """The sum of a metric's series of one replica."""
    return sum(value for key, value in c.metrics().items() if key.startswith(metric + "{") and f'"{replica}"' in key)


class Load:
    """Readers that ask again and again until they are stopped."""

    def __init__(self, c, readers):
        self.c, self.going, self.failed = c, True, []
        self.threads = [threading.Thread(target=self.read) for _ in range(readers)]
        for thread in self.threads:
            thread.start()

    def read(self):
        body = {"prompt": "count from 1 to 50:", "max_tokens": 60, "ignore_eos": True, "temperature": 0}
        while self.going:
            status, _, text = self.c.request("POST", "/v1/completions", body)
            if status != 200:
                self.failed.append(text)
            time.sleep(0.02)

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join(cluster.PATIENCE_SECONDS)
        assert not self.failed, self.failed[:3]


class DutyCycle:
    """Lets a process run a sixteenth of the time, less than other load leaves it."""

    def __init__(self, c, worker):
        self.c, self.worker, self.going = c, worker, True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while self.going:
            self.c.signal(self.worker, signal.SIGSTOP)
            time.sleep(0.15)
            self.c.signal(self.worker, signal.SIGCONT)
            time.sleep(0.01)

    def stop(self):
        self.going = False
        self.thread.join()


def planned_devices(c):
    return {w["device"] for r in c.status()["plan"]["replicas"] for s in r["stages"] for w in s["workers"]}


def replica_of(c, worker):
    return next(r["name"] for r in c.status()["replicas"] if worker + "/0" in r["workers"])


def tokens(c):
    """Generated so far, by replica."""
    return {r["name"]: of_replica(c, "vllm:generation_tokens_total", r["name"]) for r in c.status()["replicas"]}


def share(before, after, replica):
    return (after[replica] - before[replica]) / max(1, sum(after.values()) - sum(before.values()))


def test_a_slow_worker_gets_less_and_status_says_so(tmp):
    # More readers than one worker has places for: both are measured.
    with running("--max-num-seqs", "4", workers=2) as c:
        name = replica_of(c, "w1")
        load = Load(c, 7)
        zero = tokens(c)
        wait_for("a past of both workers", lambda: all(n > 3000 for n in tokens(c).values()))
        time.sleep(8)  # both have a past
        usual = share(zero, tokens(c), name)
        duty = DutyCycle(c, "w1")
        try:
            wait_for("the slowdown", lambda: of_replica(c, "tessera_replica_slowdown", name) > 2)
            text = c.status_text()
            assert "slow: its steps take" in text and "(worker w1/0)" in text, text
            before = tokens(c)
            wait_for("more tokens", lambda: sum(tokens(c).values()) > sum(before.values()) + 5000)
            assert share(before, tokens(c), name) < usual / 2, (usual, share(before, tokens(c), name))
        finally:
            duty.stop()
        assert f"replica {name} is slow" in c.log("coordinator")
        # One request now and then shows that it is well again.
        wait_for("its recovery", lambda: of_replica(c, "tessera_replica_slowdown", name) < 1.5)
        load.stop()


def test_a_worker_that_stays_slow_is_planned_without(tmp):
    (tmp / "cluster.yaml").write_text(cluster.TWO_CPUS % "1 GiB")
    with running("--cluster", str(tmp / "cluster.yaml"), "--no-split", "--replan", "off",
                 "--replan-after", "2", "--max-num-seqs", "4", workers=2) as c:
        assert planned_devices(c) == {"w0/0", "w1/0"}
        load = Load(c, 7)
        wait_for("a past of both workers", lambda: all(n > 3000 for n in tokens(c).values()))
        time.sleep(8)
        duty = DutyCycle(c, "w1")
        try:
            wait_for("a plan without it", lambda: planned_devices(c) == {"w0/0"})
        finally:
            duty.stop()
        c.wait_until_ready(1)
        before = tokens(c)
        wait_for("more tokens", lambda: sum(tokens(c).values()) > sum(before.values()) + 1000)
        load.stop()
        assert "a new plan goes without w1/0, slow for 2 s" in c.log("coordinator")
