"""The mix of prompts and answers turns round under load: roles change without reading weights, and no token is lost."""

import json
import threading
import time

from cluster import Cluster, running, wait_for

WORKERS = ["w0", "w1", "w2"]
LONG_PROMPTS = [{"prompt": [10 + (7 * i + 13 * j + i * j) % 400 for j in range(900)], "max_tokens": 8} for i in range(4)]
LONG_ANSWERS = [{"prompt": [10 + (5 * i + 11 * j) % 400 for j in range(20)], "max_tokens": 250} for i in range(4)]
PATIENCE_SECONDS = 45


def described(tmp):
    """The flags of a coordinator that plans for three workers that are alike, for long prompts and short answers."""
    (tmp / "cluster.yaml").write_text("""
machines:
- {name: w0, devices: [{kind: mycpu}]}
- {name: w1, devices: [{kind: mycpu}]}
- {name: w2, devices: [{kind: mycpu}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
kinds:
- {name: mycpu, memory: 1 GiB, memory_bandwidth: 5 GB/s, dense_flops_per_second: 0.1 TFLOPS}
""")
    (tmp / "workload.yaml").write_text("classes: [{lengths: [{prompt_tokens: 900, output_tokens: 8}]}]\n")
    # Else what comes again is found in the cache, which is another workload.
    return ["--cluster", str(tmp / "cluster.yaml"), "--workload", str(tmp / "workload.yaml"), "--split",
            "--no-enable-prefix-caching"]


def ask(c, body):
    status, _, text = c.request("POST", "/v1/completions", {**body, "ignore_eos": True, "temperature": 0,
                                                             "return_token_ids": True})
    assert status == 200, text
    return json.loads(text)["choices"][0]["token_ids"]


class Load:
    """Eight clients that ask one question after the other until stop()."""

    def __init__(self, c, questions):
        self.answers, self.ends, self.failures = [], [], []
        self.stopping = False

        def serve(first):
            i = first
            while not self.stopping:
                try:
                    answer = ask(c, questions[i % len(questions)])
                except Exception as e:
                    self.failures.append(repr(e))
                    return
                self.answers.append((i % len(questions), answer))
                self.ends.append(time.monotonic())
                i += 1

        self.clients = [threading.Thread(target=serve, args=(i,)) for i in range(8)]
        for client in self.clients:
            client.start()

    def stop(self):
        self.stopping = True
        for client in self.clients:
            client.join()

    def rate(self, begin, end):
        return sum(begin <= at < end for at in self.ends) / max(end - begin, 1e-3)


def served(c, questions):
    """A load that went on for long enough to be judged."""
    load = Load(c, questions)
    try:
        wait_for("answers", lambda: len(load.answers) >= 50 or load.failures)
        time.sleep(8)
    finally:
        load.stop()
    assert not load.failures, load.failures
    return load


def roles(c):
    return [r["role"].removeprefix("REPLICA_ROLE_") for r in c.status()["plan"]["replicas"]]


def loads(c):
    return [c.log(name).count("read weights") for name in WORKERS]


def test_roles_follow_the_mix(tmp):
    with running("--no-enable-prefix-caching", workers=1) as c:
        long_prompts = [ask(c, q) for q in LONG_PROMPTS]
        long_answers = [ask(c, q) for q in LONG_ANSWERS]
    with Cluster(*described(tmp), workers=3) as c:
        wait_for("the replicas", lambda: c.get("/ready")[0] == 200 and len(c.replicas()) == 3)
        assert sorted(roles(c)) == ["DECODE", "PREFILL", "PREFILL"], roles(c)
        read = loads(c)

        # As planned: nothing changes.
        load = served(c, LONG_PROMPTS)
        assert all(answer == long_prompts[i] for i, answer in load.answers)
        assert "the workload has changed" not in c.log("coordinator")
        assert sorted(roles(c)) == ["DECODE", "PREFILL", "PREFILL"], roles(c)

        # It turns round.
        begin = time.monotonic()
        load = Load(c, LONG_ANSWERS)
        try:
            while sorted(roles(c)) != ["DECODE", "DECODE", "PREFILL"]:
                # Where the mix was judged while it turned, it is judged again a while later.
                assert time.monotonic() < begin + 3 * PATIENCE_SECONDS, (len(load.answers), c.log("coordinator")[-4000:])
                assert not load.failures, load.failures
                time.sleep(0.2)
            changed = time.monotonic()
            wait_for("the replicas", lambda: len(c.replicas()) == 3)
            again = time.monotonic()
            time.sleep(8)
        finally:
            end = time.monotonic()
            load.stop()
        assert not load.failures, load.failures
        assert len(load.answers) > 40
        assert all(answer == long_answers[i] for i, answer in load.answers)
        log = c.log("coordinator")
        print(f"roles changed after {changed - begin:.1f} s, all served again after {again - begin:.1f} s; "
              f"{load.rate(begin, changed):.2f} answers/s before, {load.rate(again, end):.2f} after")
        assert "roles change, " in log and "no weights are read" in log, log
        assert loads(c) == read, (read, loads(c))
        # The two that decode share two cores with the rest; it must not be slower than before.
        assert load.rate(again, end) > 0.7 * load.rate(begin, changed)


def test_off_changes_nothing(tmp):
    with Cluster(*described(tmp), "--replan", "off", workers=3) as c:
        wait_for("the replicas", lambda: c.get("/ready")[0] == 200 and len(c.replicas()) == 3)
        served(c, LONG_ANSWERS)
        assert "the workload has changed" not in c.log("coordinator")
        assert sorted(roles(c)) == ["DECODE", "PREFILL", "PREFILL"], roles(c)
