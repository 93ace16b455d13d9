"""Another plan applied to a running cluster: roles without reading weights, replicas rebuilt where they differ, and requests
under way finished."""

import copy
import json
import os
import pathlib
import subprocess
import tempfile
import threading

from cluster import Cluster, KILL, TWO_CPUS, running, wait_for

WORKERS = ["w0", "w1", "w2"]
ANSWER = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}
COUNT = {"prompt": "Count from 3 to 90.", "max_tokens": 1500, "ignore_eos": True, "temperature": 0, "return_token_ids": True}


def apply(c, path, plan, *flags):
    path.write_text(json.dumps(plan))
    return subprocess.run(["deploy/tessera", "plan", "apply", str(path), "--coordinator", c.grpc, *flags],
                          capture_output=True, text=True, timeout=120)


def row(table, name):
    return next(line.split() for line in table.splitlines() if line.startswith(name + " "))


def answers(c):
    status, _, body = c.request("POST", "/v1/chat/completions", {**ANSWER, "timings": True})
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "142", body
    return json.loads(body)["timings"]


def loads(c):
    """How often each worker has read weights."""
    return [c.log(name).count("read weights") for name in WORKERS]


def split(plan):
    """w0 prefills for w1."""
    plan = copy.deepcopy(plan)
    prefill, decode = plan["replicas"] = plan["replicas"][:2]
    prefill["role"], decode["role"] = "REPLICA_ROLE_PREFILL", "REPLICA_ROLE_DECODE"
    plan["routing"] = [{"prefill_replica": prefill["name"], "decode_replica": decode["name"], "share": 1.0,
                        "kv_codec": "raw"}]
    return plan


def test_roles_then_a_rebuilt_replica_while_a_stream_is_under_way(tmp):
    with running(workers=3) as c:
        first = c.status()["plan"]
        whole = [e["choices"][0]["token_ids"] for e in c.stream(COUNT)]
        assert loads(c) == [1, 1, 1]

        # Roles: every request under way is finished, no weights are read.
        streamed = []
        reader = threading.Thread(target=lambda: streamed.extend(e["choices"][0]["token_ids"] for e in c.stream(COUNT)))
        reader.start()
        wait_for("the stream", lambda: len(streamed) > 20)
        done = apply(c, tmp / "roles.json", split(first))
        assert done.returncode == 0, done
        reader.join()
        assert sum(streamed, []) == sum(whole, []), (streamed, whole)
        for name in ("r-w0/0", "r-w1/0"):
            line = row(done.stdout, name)
            assert line[2] == "flipped" and line[-1] == "kept", done.stdout
        assert row(done.stdout, "r-w2/0")[2] == "dropped" and "with other routes" in done.stdout, done.stdout
        assert loads(c) == [1, 1, 1], done.stdout
        timings = answers(c)
        assert (timings["prefill"]["replica"], timings["decode"]["replica"]) == ("r-w0/0", "r-w1/0"), timings

        # The same plan again changes nothing; one with a smaller pool rebuilds that replica alone.
        rebuilt = split(first)
        assert apply(c, tmp / "again.json", rebuilt).stdout.count("kept   ") == 2
        rebuilt["replicas"][1]["stages"][0]["workers"][0]["kv_bytes"] = str(8 << 20)
        done = apply(c, tmp / "pool.json", rebuilt)
        assert done.returncode == 0 and row(done.stdout, "r-w1/0")[2] == "rebuilt", done
        assert row(done.stdout, "r-w0/0")[2] == "kept" and row(done.stdout, "r-w1/0")[-1] == "read", done.stdout
        assert loads(c) == [1, 2, 1]
        answers(c)

        # The HTTP door, back to where it began: what w2 holds is still there.
        status, _, body = c.request("POST", "/v1/plan/apply", {"plan": first})
        assert status == 200, body
        changes = {r["name"]: r["change"] for r in json.loads(body)["replicas"]}
        assert changes["r-w0/0"] == "REPLICA_CHANGE_KIND_FLIP", body
        assert json.loads(c.get("/v1/plan")[2])["plan"]["routing"] == first["routing"]
        assert len(c.replicas()) == 3
        assert loads(c) == [1, 3, 1]
        answers(c)


def test_replicas_become_stages_of_one_and_again_replicas(tmp):
    with running(workers=3) as c:
        first = c.status()["plan"]
        whole = [e["choices"][0]["token_ids"] for e in c.stream(COUNT)]
        staged = copy.deepcopy(first)
        replica = staged["replicas"][0]
        replica["stages"].append(copy.deepcopy(staged["replicas"][1]["stages"][0]))
        for stage, (begin, end) in zip(replica["stages"], [(0, 2), (2, 6)]):
            share = stage["workers"][0]["share"]
            share["layers"] = {"begin": begin, "end": end}
            share["holds_embedding"], share["holds_head"] = begin == 0, end == 6
        del staged["replicas"][1]
        staged["routing"] = [r for r in staged["routing"] if r["prefill_replica"] != "r-w1/0"]

        # Of several streams some are on replicas that go; w2 serves on. All are finished, and none is changed.
        streams = [[] for _ in range(6)]
        readers = [threading.Thread(target=lambda s=s: s.extend(e["choices"][0]["token_ids"] for e in c.stream(COUNT)))
                   for s in streams]
        for reader in readers:
            reader.start()
        wait_for("the streams", lambda: all(len(s) > 5 for s in streams))
        done = apply(c, tmp / "staged.json", staged)
        assert done.returncode == 0, done
        for reader in readers:
            reader.join()
        assert [sum(s, []) for s in streams] == [sum(whole, [])] * 6
        assert row(done.stdout, "r-w0/0")[2] == "rebuilt" and row(done.stdout, "r-w2/0")[2] == "kept", done.stdout
        assert row(done.stdout, "r-w1/0")[2] == "dropped" and loads(c) == [2, 2, 1], done.stdout
        workers = {r["name"]: r["workers"] for r in c.status()["replicas"]}
        assert workers == {"r-w0/0": ["w0/0", "w1/0"], "r-w2/0": ["w2/0"]}, workers
        answers(c)
        assert apply(c, tmp / "first.json", first).returncode == 0
        assert loads(c) == [3, 3, 1] and len(c.replicas()) == 3
        answers(c)


def test_a_plan_that_does_not_come_up_leaves_the_one_before(tmp):
    with running(workers=2) as c:
        first = c.status()["plan"]
        bad = copy.deepcopy(first)
        bad["replicas"][1]["stages"][0]["workers"][0]["kv_bytes"] = "100"
        done = apply(c, tmp / "bad.json", bad)
        assert done.returncode == 1, done
        assert "the one before is in force again" in done.stderr and "in the plan (kv_bytes)" in done.stderr, done
        wait_for("both", lambda: len(c.replicas()) == 2)
        answers(c)
        # Refused before anything changes: a worker that is not there, no plan at all, another model's plan.
        missing = copy.deepcopy(first)
        missing["replicas"][1]["stages"][0]["workers"][0]["device"] = "w7/0"
        done = apply(c, tmp / "missing.json", missing)
        assert done.returncode == 1 and "no worker named w7/0 has registered" in done.stderr, done
        for body, word in [({}, "plan: it is missing"), ({"plann": {}}, "plann"), ({"plan": {}}, "0 layers")]:
            status, _, text = c.request("POST", "/v1/plan/apply", body)
            assert status == 400 and word in text, text
        assert c.request("GET", "/v1/plan/apply")[0] == 405
        assert len(c.replicas()) == 2


def test_the_fingerprint_follows_the_data_type(tmp):
    def fingerprint(c):
        status, _, body = c.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 1})
        assert status == 200, body
        return json.loads(body)["system_fingerprint"]

    with running(workers=1) as c:
        first = c.status()["plan"]
        stored = fingerprint(c)
        done = apply(c, tmp / "int8.json", {**first, "weight_dtype": "DATA_TYPE_INT8"})
        assert done.returncode == 0, done
        rounded = fingerprint(c)
        assert rounded.startswith("fp_") and rounded != stored
        assert apply(c, tmp / "first.json", first).returncode == 0
        assert fingerprint(c) == stored
    with running("--quantization", "int8", workers=1) as c:
        assert fingerprint(c) == rounded


def test_it_needs_the_admin_key(tmp):
    key = pathlib.Path(tempfile.mkdtemp()) / "admin"
    key.write_text("an-admin-key-of-this-test\n")
    os.chmod(key, 0o600)
    c = Cluster("--admin-key-file", str(key), workers=0)
    try:
        assert c.request("POST", "/v1/plan/apply", {"plan": {}})[0] == 401
        with running(workers=1) as other:
            plan = other.status()["plan"]
        done = apply(c, tmp / "plan.json", plan)
        assert done.returncode == 1 and "admin key is missing or wrong" in done.stderr, done
        done = apply(c, tmp / "plan.json", plan, "--admin-key-file", str(key))
        assert done.returncode == 1 and "no worker named w0/0 has registered" in done.stderr, done
    finally:
        c.stop()


def test_a_worker_that_stays_away_is_planned_without(tmp):
    cluster = tmp / "cluster.yaml"
    cluster.write_text(TWO_CPUS % "4 GiB")
    c = Cluster("--cluster", str(cluster), "--replan-after", "3", workers=2)
    try:
        wait_for("an answer", lambda: c.get("/ready")[0] == 200)
        used = {w["device"] for r in c.status()["plan"]["replicas"] for s in r["stages"] for w in s["workers"]}
        assert used == {"w0/0", "w1/0"}, used
        c.signal("w1", KILL)
        wait_for("a plan without w1", lambda: {w["device"] for r in c.status()["plan"]["replicas"]
                                               for s in r["stages"] for w in s["workers"]} == {"w0/0"})
        wait_for("an answer", lambda: c.get("/ready")[0] == 200)
        assert "a new plan goes without w1/0, gone for 3 s" in c.log("coordinator")
        answers(c)
    finally:
        c.stop()
