"""A worker on the emulated GPU prefills and one on the CPU decodes, or the reverse: one worker's tokens, whatever carries
the keys and values; and a GPU that is lost loses no request."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest.mock

from cluster import MODEL, Cluster, running, wait_for
from handover_test import WHOLE, computed, split_plan

# The emulator is slow: short contexts, so that nothing larger is computed when the worker warms up.
FLAGS = ("--dtype", "float32", "--max-model-len", "96", "--max-num-batched-tokens", "96", "--max-num-seqs", "2")
GPU = ("--device", "cuda-emulated")
TCP = ("--kv-transport", "tcp")
QUESTION = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0, "max_tokens": 8,
            "return_token_ids": True, "timings": True}


@contextlib.contextmanager
def split(tmp, prefill, decode, codec="raw"):
    path, workers = split_plan(tmp / "plan.json", (WHOLE, WHOLE), codec)
    with Cluster("--plan", str(path), "--kv-cache-dtype", "auto", *FLAGS, workers=0) as c:
        for name, flags in zip(workers, (prefill, decode)):
            c.start_worker(name, *flags)
        wait_for("both replicas", lambda: sorted(c.replicas()) == ["d", "p"])
        yield c


def ask(c):
    status, _, body = c.request("POST", "/v1/chat/completions", QUESTION)
    assert status == 200, body
    return json.loads(body)


def alone():
    with running(*FLAGS, workers=1) as c:
        return ask(c)["choices"][0]


def test_it_prefills_for_a_cpu_and_decodes_for_one(tmp):
    expected = alone()
    assert "142" in expected["message"]["content"], expected
    for codec, prefill, decode, way in [("raw", GPU, (), "shm, staged"), ("raw", (), (*GPU, *TCP), "shm, staged"),
                                        ("int8", (*GPU, *TCP), (), "tcp, staged"), ("int8", TCP, GPU, "tcp, staged"),
                                        ("raw", TCP, TCP, "tcp")]:
        with split(tmp, prefill, decode, codec) as c:
            answer = ask(c)
            got, moved = answer["choices"][0], answer["timings"]["kv_transfer"]
            assert (moved["transport"], moved["codec"]) == (way, codec) and moved["bytes"] > 10000, moved
            assert got["message"]["content"] == expected["message"]["content"], (got, expected)
            if codec == "raw":
                assert got["token_ids"] == expected["token_ids"], (got, expected)
            assert computed(c, "prompt")["d"] == 0
            assert f"goes over {way}:" in c.log("coordinator"), c.log("coordinator")
            pair = c.status()["hand_overs"][0]
            assert pair["transport"] == way and int(pair.get("failures", 0)) == 0, pair
            for name, flags in (("w0", prefill), ("w1", decode)):
                assert ("is staged" in c.log(name)) == ("cuda-emulated" in flags), c.log(name)


def test_a_gpu_that_is_lost_while_it_prefills_loses_no_request(tmp):
    expected = alone()
    fault = pathlib.Path(tempfile.mkdtemp()) / "fault"
    with unittest.mock.patch.dict(os.environ, CUDA_EMULATOR_FAULT_FILE=str(fault)), split(tmp, GPU, ()) as c:
        assert ask(c)["choices"][0]["token_ids"] == expected["token_ids"]
        fault.touch()
        assert ask(c)["choices"][0]["token_ids"] == expected["token_ids"]
        assert c.ended("w0") == 1, c.log("w0")
        assert computed(c, "prompt")["d"] > 0


def test_up_plans_and_serves_prefill_on_a_gpu_and_decode_on_a_cpu(tmp):
    described = tmp / "cluster.yaml"
    described.write_text("""
machines:
- name: local
  devices: [{kind: cuda-emulated}, {kind: cpu}]
  inside: {bandwidth: 2 GB/s, latency: 20 us}
kinds:
- {name: cuda-emulated, memory: 64 MiB, memory_bandwidth: 1 GB/s, dense_flops_per_second: 1 TFLOPS}
- {name: cpu, memory: 32 MiB, memory_bandwidth: 5 GB/s, dense_flops_per_second: 20 GFLOPS}
""")
    # Without a description it plans for the devices that it starts.
    for cluster in (("--cluster", str(described)), ()):
        command = ["deploy/tessera", "up", MODEL, "--port", "0", "--grpc-port", "0", "--once", *cluster,
                   "--workload", "deploy/workloads/short_questions.yaml", "--max-num-batched-tokens", "96",
                   "--devices", "cuda-emulated,cpu", "--split", "--ask", "What is 57 + 85?", "--expect", "142"]
        both = subprocess.run(command, capture_output=True, text=True, timeout=120)
        print(both.stdout, both.stderr, flush=True)
        assert both.returncode == 0 and "staged" in both.stdout, both
        assert ("planning for the devices that are started" in both.stdout) == (not cluster), both
