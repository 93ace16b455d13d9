"""Several models behind one coordinator: requests by name, figures of each, devices that move from one to the other, and
one model that does not load."""

import json
import pathlib
import shutil
import subprocess
import threading

from cluster import Cluster, MODEL, TWO_CPUS, wait_for

COUNT = {"prompt": "Count from 3 to 90.", "max_tokens": 1500, "ignore_eos": True, "temperature": 0, "return_token_ids": True}


def ask(c, model):
    """(status, answer's model, its text, the replica that decoded), or (status, error)."""
    status, _, body = c.request("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0, "timings": True,
        **({} if model is None else {"model": model})})
    body = json.loads(body)
    if status != 200:
        return status, body["error"]["message"]
    return status, body["model"], body["choices"][0]["message"]["content"], body["timings"]["decode"]["replica"]


def workers_of(c, model):
    return sorted(r["workers"][0] for r in c.status()["replicas"] if r["model"] == model)


def apply(c, *files):
    return subprocess.run(["deploy/tessera", "plan", "apply", *map(str, files), "--coordinator", c.grpc],
                          capture_output=True, text=True, timeout=120)


def loads(c, worker):
    """How often it has read weights."""
    return c.log(worker.split("/")[0]).count("read weights")


def test_requests_go_by_name_and_a_device_moves(tmp):
    with Cluster("--model", f"b={MODEL}", model=f"a={MODEL}", workers=3) as c:
        wait_for("three replicas", lambda: len(c.replicas()) == 3)
        devices = {m: workers_of(c, m) for m in "ab"}
        assert sorted(devices["a"] + devices["b"]) == ["w0/0", "w1/0", "w2/0"] and len(devices["a"]) == 2, devices
        for model in "ab":
            status, name, text, replica = ask(c, model)
            assert (status, name, text) == (200, model, "142") and replica.startswith(f"{model}/r-w"), replica
        status, error = ask(c, "c")
        assert status == 404 and "served: 'a', 'b'" in error, error
        status, error = ask(c, None)
        assert status == 400 and "name one of 'a', 'b'" in error, error
        assert [m["id"] for m in json.loads(c.get("/v1/models")[2])["data"]] == ["a", "b"]
        metrics = c.metrics()
        for model in "ab":
            assert metrics[f'vllm:request_success_total{{finished_reason="stop",model_name="{model}"}}'] == 1, metrics
            assert metrics[f'tessera_client_requests_total{{client="",model_name="{model}"}}'] == 1, metrics
        text = c.status_text()
        assert text.startswith("models a, b, ") and "2 of 2" in text and "1 of 1" in text, text

        # A device of a's that is given to b while streams of both run: nothing else is touched.
        plans = json.loads(c.get("/v1/plan")[2])["plans"]
        assert [p["model"]["name"] for p in plans] == ["a", "b"], plans
        moved = plans[0]["replicas"].pop()
        device = moved["stages"][0]["workers"][0]["device"]
        plans[0]["routing"] = [{**r, "share": 1.0} for r in plans[0]["routing"] if r["prefill_replica"] != moved["name"]]
        plans[1]["replicas"].append({**moved, "name": "r-new"})
        plans[1]["routing"].append({"prefill_replica": "r-new", "decode_replica": "r-new", "share": 0.5})
        plans[1]["routing"][0] = {"prefill_replica": plans[1]["replicas"][0]["name"],
                                  "decode_replica": plans[1]["replicas"][0]["name"], "share": 0.5}
        for plan, model in zip(plans, "ab"):
            (tmp / f"{model}.json").write_text(json.dumps(plan))
        alone = apply(c, tmp / "b.json")
        assert alone.returncode == 1 and f"device {device} is in the plans of a and b" in alone.stderr, alone
        before = {w: loads(c, w) for w in ["w0/0", "w1/0", "w2/0"]}
        streams = {m: [] for m in "ab"}
        readers = [threading.Thread(target=lambda m=m: streams[m].extend(
            e["choices"][0]["token_ids"] for e in c.stream({**COUNT, "model": m}))) for m in "ab"]
        for reader in readers:
            reader.start()
        wait_for("the streams", lambda: all(len(s) > 5 for s in streams.values()))
        done = apply(c, tmp / "a.json", tmp / "b.json")
        assert done.returncode == 0, done
        for reader in readers:
            reader.join()
        assert sum(streams["a"], []) == sum(streams["b"], []) and len(sum(streams["a"], [])) == 1500
        assert workers_of(c, "a") == [d for d in devices["a"] if d != device]
        assert workers_of(c, "b") == sorted(devices["b"] + [device])
        for worker, count in before.items():
            assert loads(c, worker) == count + (worker == device), worker
        for model in "ab":
            assert ask(c, model)[:3] == (200, model, "142")
        replicas = {r["name"] for r in c.status()["replicas"]}
        assert "b/r-new" in replicas and len(replicas) == 3, replicas


def test_keys_limits_and_figures_are_of_each_model(tmp):
    keys = tmp / "keys"
    keys.write_text("whole-key name=whole requests-per-minute=2\ncode-key name=code models=b concurrent=1\nfree-key name=free\n")
    keys.chmod(0o600)

    def bearer(name):
        return {"Authorization": f"Bearer {name}-key"}

    with Cluster("--model", f"b={MODEL}", "--api-key-file", str(keys), model=f"a={MODEL}") as c:
        def post(key, **fields):
            status, headers, body = c.request("POST", "/v1/completions", {
                "prompt": "1", "max_tokens": 4, "ignore_eos": True, **fields}, bearer(key))
            return status, headers, json.loads(body)

        def listed(key):
            return [m["id"] for m in json.loads(c.request("GET", "/v1/models", headers=bearer(key))[2])["data"]]

        wait_for("both models", lambda: len(c.replicas()) == 2)
        # A key of one model sees no other, and needs no name for it.
        assert listed("whole") == ["a", "b"] and listed("code") == ["b"]
        assert c.request("GET", "/v1/models/a", headers=bearer("code"))[0] == 404
        status, _, refused = post("code", model="a")
        assert status == 404 and "served: 'b'" in refused["error"]["message"], refused
        status, _, answer = post("code")
        assert (status, answer["model"]) == (200, "b"), answer
        assert post("whole")[0] == 400 and c.request("GET", "/v1/models")[0] == 401

        # Limits are used up of one model, and stand of the other.
        for model in "ab":
            for left in "10":
                status, headers, answer = post("whole", model=model)
                assert (status, answer["model"], headers["x-ratelimit-remaining-requests"]) == (200, model, left), headers
            status, headers, refused = post("whole", model=model)
            assert status == 429 and "2 requests a minute" in refused["error"]["message"], refused
            assert 1 <= int(headers["Retry-After"]) <= 60, headers

        # One at a time, of a key that streams from b; another key does not mind.
        stream = c.stream({**COUNT, "model": "b"}, bearer("code"))
        next(stream)
        assert {m["name"]: int(m.get("requests_in_flight", 0)) for m in c.status()["models"]} == {"a": 0, "b": 1}
        status, _, refused = post("code", model="b")
        assert status == 429 and "at a time" in refused["error"]["message"], refused
        assert post("free", model="b")[0] == 200
        assert len(list(stream)) > 10

        metrics = c.metrics()

        def counted(name, client, model):
            return metrics.get(f'tessera_client_{name}{{client="{client}",model_name="{model}"}}', 0)

        asked = {(client, model): (counted("requests_total", client, model), counted("refused_total", client, model))
                 for client in ("whole", "code", "free") for model in "ab"}
        assert asked == {("whole", "a"): (2, 1), ("whole", "b"): (2, 1), ("code", "a"): (0, 0), ("code", "b"): (2, 1),
                         ("free", "a"): (0, 0), ("free", "b"): (1, 0)}, asked
        assert metrics['vllm:e2e_request_latency_seconds_count{model_name="a"}'] == 2
        assert metrics['vllm:e2e_request_latency_seconds_count{model_name="b"}'] == 5


def test_what_tessera_plan_deals_is_served(tmp):
    cluster = tmp / "cluster.yaml"
    cluster.write_text(TWO_CPUS % "2 GiB")
    for name in "ab":
        shutil.copytree(MODEL, tmp / name)
    done = subprocess.run(["deploy/tessera", "plan", str(cluster), "--model", str(tmp / "a"), "--model", str(tmp / "b"),
                           "--prompt", "100", "--output", "50", "--rate", "1", "--rate", "1",
                           "--out", str(tmp / "plan.json")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    plans = [flag for name in "ba" for flag in ("--plan", str(tmp / f"plan.{name}.json"))]
    with Cluster("--model", str(tmp / "b"), *plans, model=str(tmp / "a"), workers=2) as c:
        wait_for("both models", lambda: {r["model"] for r in c.status()["replicas"] if r.get("ready")} == {"a", "b"})
        for model in "ab":
            assert ask(c, model)[:3] == (200, model, "142")
            assert len(workers_of(c, model)) == 1


def test_a_model_that_does_not_load_leaves_the_other_serving(tmp):
    broken = pathlib.Path(tmp) / "broken"
    shutil.copytree(MODEL, broken)
    with Cluster("--model", f"broken={broken}", model=MODEL, workers=0) as c:
        # Gone once the coordinator has read what it needs.
        weights = broken / "model.safetensors"
        weights.chmod(0o600)
        weights.write_bytes(weights.read_bytes()[:4096])
        c.start_worker("w0")
        wait_for("the first", lambda: len(c.replicas()) == 1)
        c.start_worker("w1")
        wait_for("a failure", lambda: "could not be configured" in c.get("/ready")[2])
        assert ask(c, "tessera-demo")[:3] == (200, "tessera-demo", "142")
        status, _, body = c.get("/ready")
        assert status == 200 and "replica broken/r-w1/0" in body, body
        status, error = ask(c, "broken")
        assert status == 503, error


def test_what_cannot_be_said_for_several_models_is_refused(tmp):
    def refusal(*flags):
        done = subprocess.run(["coordinator/tessera-coordinator", f"a={MODEL}", "--model", f"b={MODEL}", *flags],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode != 0, done
        return done.stderr

    assert "--model NAME=FOLDER" in refusal("--served-model-name", "x")
    assert "--chat-template with several models" in refusal("--chat-template", "x")
    assert "tessera plan --model" in refusal("--cluster", "x.yaml")
    keys = pathlib.Path(tmp) / "keys"
    keys.write_text("secret name=me models=a,c\n")
    keys.chmod(0o600)
    assert "models=c, which is not served; served: a, b" in refusal("--api-key-file", str(keys), "--port", "0",
                                                                   "--grpc-port", "0")
    assert "two models are called b" in refusal("--model", f"b={MODEL}", "--port", "0", "--grpc-port", "0")
