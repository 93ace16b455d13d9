"""Planning through the coordinator: at start from the workers that register, over HTTP, and what runs."""

import json
import pathlib
import subprocess
import tempfile

import cluster
from cluster import running, wait_for

MACHINES = """
machines:
- {name: w0, devices: [{kind: mycpu}]}
- {name: w1, devices: [{kind: mycpu}]}
%s
tiers: {site: {bandwidth: 10 Gbit/s, latency: 50 us}}
kinds:
- {name: mycpu, memory: 4 GiB, memory_bandwidth: 10 GB/s, dense_flops_per_second: 0.2 TFLOPS}
"""
WORKLOAD = "requests_per_second: 1\nclasses: [{lengths: [{prompt_tokens: 60, output_tokens: 8}]}]\n"


def written(name, text):
    path = pathlib.Path(tempfile.mkdtemp()) / name
    path.write_text(text)
    return str(path)


def test_plans_at_start_for_the_workers_that_register():
    files = ("--cluster", written("cluster.yaml", MACHINES % ""), "--workload", written("workload.yaml", WORKLOAD))
    with running(*files, replicas=1) as c:  # two stages
        status, _, body = c.get("/v1/plan")
        assert status == 200, body
        reply = json.loads(body)
        plan = reply["plan"]
        devices = sorted(w["device"] for r in plan["replicas"] for s in r["stages"] for w in s["workers"])
        assert devices == ["w0/0", "w1/0"], body
        assert plan["prediction"]["requests_per_second"] > 0
        # However much of the host's memory workers report, the description's 4 GiB are the most that is used.
        offered = {w["available_bytes"] for r in plan["replicas"] for s in r["stages"] for w in s["workers"]}
        assert all(int(b) < 4 * 2**30 for b in offered), offered
        assert "no_plan" not in reply, body
        assert int(reply["measured"]["kv_capacity_tokens"]) > 0
        assert int(reply["plan_epoch"]) >= 1
        twin = json.loads(c.probe("running-plan"))
        assert twin["plan"] == plan and twin["plan_epoch"] == reply["plan_epoch"], twin
        for _ in range(5):
            assert c.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 5})[0] == 200

        def measured():
            now = json.loads(c.get("/v1/plan")[2])["measured"]
            return now if now.get("output_tokens_per_second", 0) > 0 else None
        seen = wait_for("measured rates", measured)
        assert seen["requests_per_second"] > 0 and seen["time_to_first_token_seconds"] > 0, seen


def test_plans_without_workers_that_do_not_come():
    files = ("--cluster", written("cluster.yaml", MACHINES % "- {name: w9, devices: [{kind: mycpu}]}"),
             "--workload", written("workload.yaml", WORKLOAD), "--plan-wait", "1")
    with running(*files, replicas=1) as c:
        assert "planning waits for" in c.log("coordinator"), c.log("coordinator")
        assert "planning without w9/0" in c.log("coordinator")
        assert c.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2})[0] == 200


def test_why_there_is_no_plan_is_said():
    files = ("--cluster", written("cluster.yaml", MACHINES % ""), "--plan-wait", "5")
    c = cluster.Cluster(*files, workers=0)

    def says(reason):
        """Everywhere that somebody looks who wonders why nothing is served."""
        status, _, ready = c.get("/ready")
        shown = subprocess.run(["deploy/tessera", "status", "--coordinator", c.grpc], capture_output=True, text=True)
        told = json.loads(c.get("/v1/plan")[2]).get("no_plan", "")
        return status == 503 and all(reason in text for text in (ready, shown.stdout, told))
    try:
        wait_for("no worker", lambda: says("no worker has registered yet"))
        c.start_worker("other")
        wait_for("the wait", lambda: says("planning waits for w0/0, w1/0, for at most 5 s (--plan-wait)"))
        wait_for("its end", lambda: says("no plan: no worker of "))
        c.start_worker("w1")
        c.wait_until_ready(1)
        assert "no_plan" not in json.loads(c.get("/v1/plan")[2])
    finally:
        c.stop()


def test_plan_requests():
    request = {
        "cluster": {"machines": [{"name": "a", "devices": [{"kind": "A100-40", "count": 4}]}]},
        "model": {"name": "Llama-2-13B"},
        "workload": {"classes": [{"lengths": [{"prompt_tokens": 1000, "output_tokens": 200}]}]},
    }
    with running(workers=1) as c:
        status, _, body = c.request("POST", "/v1/plan", request)
        assert status == 200, body
        reply = json.loads(body)
        assert reply["plan"]["model"]["name"] == "Llama-2-13B"
        assert reply["plan"]["explanation"] and "a/0" in reply["text"], body
        plan_file = written("plan.json", json.dumps(reply["plan"]))
        checked = subprocess.run(["deploy/tessera", "plan", "check", plan_file], capture_output=True, text=True)
        assert checked.returncode == 0, checked
        assert "the plan is sound" in checked.stdout
        # The served model where none is named.
        status, _, body = c.request("POST", "/v1/plan", {k: v for k, v in request.items() if k != "model"})
        assert status == 200 and json.loads(body)["plan"]["model"]["layers"] > 0, body
        for change, reason in (({"clusters": {}}, "unknown key"),
                               ({"model": {"name": "Llama-9"}}, "no built-in model"),
                               ({"model": {"name": "OPT-66B"}, "cluster": {"machines": [
                                   {"name": "a", "devices": [{"kind": "T4"}]}]}}, "GiB are missing"),
                               ({"search": "guess"}, "no search called guess"),
                               ({"workload": {"trace": "/etc/passwd"}}, "not read on behalf of clients")):
            status, _, body = c.request("POST", "/v1/plan", {**request, **change})
            assert status == 400 and reason in body, (status, body)
        assert c.request("DELETE", "/v1/plan")[0] == 405
        # The gRPC twin plans the same, and refuses the same.
        assert "tessera.v1.Planning" in c.probe("services")
        assert json.loads(c.probe("plan", json.dumps(request))) == reply
        refused = c.probe("plan", json.dumps({**request, "search": "guess"}))
        assert refused.startswith("code 3") and "no search called guess" in refused, refused


def test_plans_need_the_admin_key():
    key_file = written("admin", "an-admin-key-of-this-test\n")
    c = cluster.Cluster("--admin-key-file", key_file, "--api-key", "users", workers=0)
    try:
        assert c.get("/v1/plan")[0] == 401
        assert c.request("GET", "/v1/plan", None, {"Authorization": "Bearer users"})[0] == 401
        status, _, body = c.request("GET", "/v1/plan", None, {"Authorization": "Bearer an-admin-key-of-this-test"})
        assert status == 200, body
        for refused in (c.probe("running-plan"), c.probe("plan", "{}"), c.probe("plan", "{}", "users")):
            assert refused.startswith("code 16"), refused
        running = c.probe("running-plan", "", "an-admin-key-of-this-test")
        assert json.loads(running) == json.loads(body), (running, body)
    finally:
        c.stop()


def test_a_bad_description_ends_the_coordinator():
    bad = written("bad.yaml", "machines: [{name: a, devices: [{kind: nothing}]}]\n")
    done = subprocess.run(["coordinator/tessera-coordinator", cluster.MODEL, "--port", "0", "--grpc-port", "0",
                           "--cluster", bad], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "bad.yaml" in done.stderr + done.stdout and "no known device" in done.stderr + done.stdout, done
