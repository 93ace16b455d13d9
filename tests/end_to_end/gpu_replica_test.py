"""Workers on the emulated GPU hold one replica of the shipped model together, with one on the CPU or with each other: its
tokens are those of one worker on the CPU."""

import contextlib
import json

from cluster import KILL, Cluster, running, wait_for
from staged_replica_test import share

# As in emulated_device_test: the emulator is slow, and so warms up with little.
FLAGS = ("--dtype", "float32", "--max-model-len", "64", "--max-num-batched-tokens", "64", "--max-num-seqs", "2")
BODY = {"prompt": "What is 57 + 85?", "max_tokens": 4, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
GPU = ("--device", "cuda-emulated")


def tokens(c):
    status, _, body = c.request("POST", "/v1/completions", BODY)
    assert status == 200, body
    return json.loads(body)["choices"][0]["token_ids"]


@contextlib.contextmanager
def replica(path, model, stages, flags_of):
    """`stages`: first layer, end, ranks of each. `flags_of`: of the workers, in the plan's order."""
    names = iter(flags_of)
    path.write_text(json.dumps({
        "model": model,
        "replicas": [{"name": "r0", "role": "REPLICA_ROLE_BOTH", "stages": [
            {"workers": [{"device": next(names) + "/0", "share": share(first, end, rank, width),
                          "kv_bytes": str(8 << 20)} for rank in range(width)]} for first, end, width in stages]}],
        "routing": [{"prefill_replica": "r0", "decode_replica": "r0", "share": 1.0}]}))
    with Cluster("--plan", str(path), *FLAGS, workers=0) as c:
        for name, flags in flags_of.items():
            c.start_worker(name, *flags)
        wait_for("the replica", lambda: c.replicas() == ["r0"])
        yield c


def test_a_gpu_and_a_cpu_answer_as_one_worker_does(tmp):
    with running(*FLAGS, workers=1) as c:
        wanted = tokens(c)
        model = c.status()["plan"]["model"]
    assert len(wanted) == 4, wanted
    for stages in ([(0, 3, 1), (3, 6, 1)], [(0, 6, 2)]):
        with replica(tmp / "plan.json", model, stages, {"gpu": GPU, "cpu": ()}) as c:
            assert tokens(c) == wanted, stages
            kinds = [w["device"]["kind"] for w in c.status()["workers"]]
            assert sorted(kinds) == ["cpu", "cuda-emulated"], kinds
            ranks = len(stages) == 1
            assert ("group of 2 ranks: staged through" in c.log("gpu")) == ranks, c.log("gpu")
            assert ("group of 2 ranks: shared memory" in c.log("cpu")) == ranks, c.log("cpu")


def test_ranks_and_stages_on_two_gpus_meet_there_and_a_killed_one_ends_the_replica(tmp):
    with running(*FLAGS, workers=1) as c:
        wanted = tokens(c)
        model = c.status()["plan"]["model"]
    gpus = {"one": GPU, "other": GPU}
    for stages in ([(0, 6, 2)], [(0, 3, 1), (3, 6, 1)]):
        with replica(tmp / "plan.json", model, stages, gpus) as c:
            assert tokens(c) == wanted
            for name in gpus if len(stages) == 1 else ():
                assert "KiB by the devices, in memory that all of them map" in c.log(name), c.log(name)
                # The emulator opens no memory of another process.
                assert "2 devices meet in host memory, not in each other's: rank" in c.log(name), c.log(name)
            assert "steps: the next one is enqueued while one runs" in c.log("one"), c.log("one")
            # While the other process's kernels wait for its.
            answer = c.stream({**BODY, "max_tokens": 40})
            next(answer)
            c.signal("other", KILL)
            wait_for("the replica's end", lambda: c.replicas() == [])
            assert c.processes["one"].poll() is None, c.log("one")
            assert "did not come to rank" not in c.log("one"), "the wait's own bound ended it"
            answer.close()
