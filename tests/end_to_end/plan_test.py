"""A plan.json of two replicas is carried out as it says; what is missing, or not for this model, is named."""

import json
import subprocess

import cluster
from cluster import Cluster, running, wait_for

KV_BYTES = 3 << 20
ANSWER = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}


def make_plan(path):
    """Two replicas, on the devices w0/0 and w1/0, of the shipped model: from the plan that a coordinator makes itself."""
    with running(workers=2) as c:
        plan = c.status()["plan"]
    plan.update(weight_dtype="DATA_TYPE_INT8", kv_dtype="DATA_TYPE_INT8", routing=[])
    for replica, name, share in zip(plan["replicas"], ("left", "right"), (0.25, 0.75)):
        replica["name"] = name
        replica["stages"][0]["workers"][0]["kv_bytes"] = str(KV_BYTES)
        plan["routing"].append({"prefill_replica": name, "decode_replica": name, "share": share})
    path.write_text(json.dumps(plan))
    return plan


def refusal(plan, path, *flags):
    path.write_text(json.dumps(plan))
    done = subprocess.run(["coordinator/tessera-coordinator", cluster.MODEL, "--port", "0", "--grpc-port", "0", "--plan",
                           str(path), *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    return done.stderr


def test_a_plan_is_carried_out(tmp):
    path = tmp / "plan.json"
    plan = make_plan(path)
    with Cluster("--plan", str(path), workers=0) as c:
        # Nobody is there: who is waited for is told wherever somebody may look.
        status, _, body = c.get("/ready")
        assert status == 503 and "w0/0" in body and "w1/0" in body, body
        wait_for("the log", lambda: "the plan waits for 2 devices without a live worker: w0/0, w1/0" in
                 c.log("coordinator"))
        c.start_worker("w0")
        c.start_worker("idle")
        wait_for("the first replica", lambda: c.replicas() == ["left"])
        status, _, body = c.get("/ready")
        assert status == 200, body
        assert json.loads(body)["waiting"] == [
            "replica right: no worker named w1/0 has registered (tessera-worker --name w1/0)"], body

        def shown():
            return subprocess.run(["deploy/tessera", "status", "--coordinator", c.grpc], capture_output=True, text=True,
                                  check=True).stdout

        assert "right: no worker named w1/0 has registered" in shown(), shown()
        wait_for("the idle one", lambda: "idle/0: idle: no replica of the plan uses it" in shown())
        c.start_worker("w1")
        wait_for("both replicas", lambda: c.replicas() == ["left", "right"])
        assert json.loads(c.get("/ready")[2]) == {"status": "ready"}

        workers = {w["name"]: w for w in c.status()["workers"]}
        for name, replica in (("w0/0", "left"), ("w1/0", "right")):
            ready = workers[name]["ready"]
            assert workers[name]["replica"] == replica, workers
            assert ready["weight_dtype"] == "DATA_TYPE_INT8" and ready["kv_dtype"] == "DATA_TYPE_INT8", ready
            block_bytes = int(ready["kv_pool_bytes"]) / int(ready["kv_blocks"])
            assert KV_BYTES - block_bytes < int(ready["kv_pool_bytes"]) <= KV_BYTES, ready
        assert "replica" not in workers["idle/0"], workers

        requests = 40
        for _ in range(requests):
            status, _, body = c.request("POST", "/v1/chat/completions", ANSWER)
            assert status == 200, body
            assert "142" in json.loads(body)["choices"][0]["message"]["content"], body  # from keys and values in 8 bits
        # Every request looks its whole prompt up, so these are in proportion to requests.
        looked_up = {k: v for k, v in c.metrics().items() if k.startswith("vllm:prefix_cache_queries_total")}
        at_left = sum(v for k, v in looked_up.items() if 'engine="left"' in k)
        assert 0.15 < at_left / sum(looked_up.values()) < 0.35, looked_up

    told = refusal(plan, path, "--dtype", "float32")
    assert "DATA_TYPE_INT8 (weight_dtype)" in told and "--dtype or --quantization asks for DATA_TYPE_FLOAT32" in told
    plan["model"]["name"] = "another"
    plan["model"]["vocabulary"] *= 2
    for replica in plan["replicas"]:
        for share in ("begin", "end"):
            rows = replica["stages"][0]["workers"][0]["share"]["vocabulary_rows"]
            if share in rows:
                rows[share] = str(2 * int(rows[share]))
    told = refusal(plan, path)
    assert str(path) in told and "made for another, tessera-demo is served" in told, told
    assert "vocabulary = 1024" in told and "has 512" in told, told
