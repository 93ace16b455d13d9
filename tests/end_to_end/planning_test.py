"""Planning through the coordinator: at start from the workers that register, over HTTP, and what runs."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

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
# No rate: however unlike the measured speeds of busy cores are, both workers serve more than one.
WORKLOAD = "classes: [{lengths: [{prompt_tokens: 60, output_tokens: 8}]}]\n"


def written(name, text):
    path = pathlib.Path(tempfile.mkdtemp()) / name
    path.write_text(text)
    return str(path)


def test_plans_at_start_for_the_workers_that_register():
    files = ("--cluster", written("cluster.yaml", MACHINES % ""), "--workload", written("workload.yaml", WORKLOAD))
    with running(*files, replicas=2) as c:
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
             "--workload", written("workload.yaml", WORKLOAD), "--plan-wait", "5")  # beside load a worker is late
    with running(*files, replicas=2) as c:
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


def test_a_measured_cluster_is_planned_for(tmp):
    """tessera profile writes what tessera plan and --cluster take."""
    described, plan = tmp / "cluster.yaml", tmp / "plan.json"
    with running(workers=2, worker_flags=("--memory", "100MiB")) as c:
        def profile(*flags):
            return subprocess.run(["deploy/tessera", "profile", "--coordinator", c.grpc, *flags], capture_output=True,
                                  text=True, timeout=cluster.PATIENCE_SECONDS)

        refused = profile("--out", str(tmp / "missing" / "cluster.yaml"))
        assert refused.returncode == 2 and "there is no folder" in refused.stderr, refused
        assert "measuring" not in refused.stderr, refused
        done = profile("--out", str(described))
        assert done.returncode == 0, done
        text = described.read_text()
        assert "measured by `tessera profile` at 20" in text, text
        assert text.count("one_way: true") == 2 and "kernels " in text, text
        refused = profile("--out", str(described))
        assert refused.returncode == 1 and "--force" in refused.stderr, refused
        assert described.read_text() == text
        # What measures serves on.
        assert c.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 5})[0] == 200
        # Stopped workers keep a request in flight until they are taken for lost, and a while longer.
        for worker in ("w0", "w1"):
            c.signal(worker, signal.SIGSTOP)
            os.waitid(os.P_PID, c.processes[worker].pid, os.WSTOPPED)
        asking = threading.Thread(
            target=lambda: c.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 5}))
        asking.start()
        wait_for("the request", lambda: int(c.status().get("requests_in_flight", 0)) == 1)
        refused = profile("--out", str(described), "--force")
        assert refused.returncode == 1 and "1 request is in flight" in refused.stderr, refused
        assert "--while-serving" in refused.stderr and described.read_text() == text, refused
        for worker in ("w0", "w1"):
            c.signal(worker, signal.SIGCONT)
        asking.join()
    done = subprocess.run(["deploy/tessera", "plan", str(described), "--model", cluster.MODEL, "--out", str(plan)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done
    used = {w["device"] for r in json.loads(plan.read_text())["replicas"] for s in r["stages"] for w in s["workers"]}
    assert used and used <= {"w0/0", "w1/0"}, done
    c = cluster.Cluster("--cluster", str(described))
    try:
        wait_for("an answer", lambda: c.get("/ready")[0] == 200)
        assert c.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 5})[0] == 200
    finally:
        c.stop()


def test_measuring_needs_the_admin_key():
    c = cluster.Cluster("--admin-key-file", written("admin", "an-admin-key-of-this-test\n"), workers=0)
    try:
        refused = subprocess.run(["deploy/tessera", "profile", "--coordinator", c.grpc], capture_output=True, text=True)
        assert refused.returncode == 1 and "admin key is missing or wrong" in refused.stderr, refused
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
        assert reply["plan"]["notes"] and "a/0" in reply["text"], body
        plan_file = written("plan.json", json.dumps(reply["plan"]))
        checked = subprocess.run(["deploy/tessera", "plan", "check", plan_file], capture_output=True, text=True)
        assert checked.returncode == 0, checked
        assert "the plan is sound" in checked.stdout
        # The served model where none is named.
        status, _, body = c.request("POST", "/v1/plan", {k: v for k, v in request.items() if k != "model"})
        assert status == 200 and json.loads(body)["plan"]["model"]["layers"], body
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
