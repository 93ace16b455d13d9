"""A plan of three unlike devices is rehearsed, and one of its machines killed; emulated devices are taken for no others."""

import json
import subprocess

from cluster import Cluster, wait_for

CLUSTER = """
machines:
- {name: a, devices: [{kind: RTX4090}]}
- {name: b, devices: [{kind: RTX3090}]}
- {name: c, devices: [{kind: L4}]}
tiers: {site: {bandwidth: 25 Gbit/s}}
"""


def tessera(*arguments):
    done = subprocess.run(["deploy/tessera", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    return done.stdout


def test_a_plan_is_rehearsed_and_a_machine_killed(tmp):
    (tmp / "three.yaml").write_text(CLUSTER)
    plan, described = str(tmp / "plan.json"), str(tmp / "three.yaml")
    tessera("plan", described, "--model", "Qwen3-4B", "--prompt", "200", "--output", "20", "--no-simulate", "--out", plan)
    replicas = len(json.loads((tmp / "plan.json").read_text())["replicas"])
    told = json.loads(tessera("rehearse", plan, "--cluster", described, "--minutes", "0.05", "--rate", "20", "--kill",
                              "b@1", "--json"))
    assert told["replicas"] == replicas and told["devices"] == 3, told
    # A killed machine loses no request: each goes on elsewhere, or where it is ready again.
    assert told["failed"] == told["unfinished"] == 0 and told["requests"] > 20, told
    assert told["rehearsed"]["finished"] == told["promised"]["finished"] == told["requests"], told
    assert told["tokens"] == 20 * told["requests"], told
    assert told["killed"]["machine"] == "b" and told["steps"] > 0 and told["killed"]["ready_seconds"] > 0, told

    # One that comes back behind the last answer is waited for, and one whose time nobody saw is killed all the same.
    for speed in ("10", "100"):
        told = json.loads(tessera("rehearse", plan, "--cluster", described, "--minutes", "0.016", "--rate", "20", "--speed",
                                  speed, "--kill", "b", "--json"))
        assert told["killed"]["ready_seconds"] > 0, told

    # A workload's own lengths, slowed: a second of it takes two, and figures are of its time.
    (tmp / "short.yaml").write_text("classes:\n- {name: short, lengths: [{prompt_tokens: 32, output_tokens: 8}]}\n")
    told = json.loads(tessera("rehearse", plan, "--cluster", described, "--workload", str(tmp / "short.yaml"), "--minutes",
                              "0.03", "--rate", "20", "--speed", "0.5", "--json"))
    assert told["failed"] == told["unfinished"] == 0 and told["tokens"] == 8 * told["requests"] > 80, told
    assert told["speed"] == 0.5 and "killed" not in told, told
    for figures in (told["promised"], told["rehearsed"]):
        assert 10 < figures["requests_per_second"] < 30, told
        assert all(figures[f"{of}_{at}_seconds"] > 0 for of in ("ttft", "tpot") for at in ("p50", "p95")), told
    assert told["coordinator_cpu_seconds_per_token"] > 0 and told["workers_cpu_seconds_per_token"] > 0, told


def test_emulated_devices_are_taken_for_no_others():
    with Cluster(workers=0) as c:
        c.start("fake", "worker/tessera-worker", "--coordinator", c.grpc, "--name", "fake/0", "--device", "emulated:L4")
        wait_for("the refusal", lambda: "only a coordinator that was started for a rehearsal" in c.log("fake"))
        assert not c.status().get("workers"), c.status()
