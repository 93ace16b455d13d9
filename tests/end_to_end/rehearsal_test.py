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
    assert told["killed"]["machine"] == "b" and told["steps"] > 0, told


def test_emulated_devices_are_taken_for_no_others():
    with Cluster(workers=0) as c:
        c.start("fake", "worker/tessera-worker", "--coordinator", c.grpc, "--name", "fake/0", "--device", "emulated:L4")
        wait_for("the refusal", lambda: "only a coordinator that was started for a rehearsal" in c.log("fake"))
        assert not c.status().get("workers"), c.status()
