"""A worker on the emulated CUDA device answers with the shipped model, with the tokens of a worker on the CPU; and
`tessera up --devices` starts it."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest.mock

from cluster import MODEL, running

# The emulator is slow: few positions, so that nothing larger than this is computed when the worker warms up.
FLAGS = ("--dtype", "float32", "--max-model-len", "64", "--max-num-batched-tokens", "64", "--max-num-seqs", "2")
REQUEST = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "max_tokens": 4, "temperature": 0,
           "ignore_eos": True, "return_token_ids": True}


def answer(c):
    status, _, body = c.request("POST", "/v1/chat/completions", REQUEST)
    assert status == 200, body
    return json.loads(body)["choices"][0]


def form(c):
    """An answer of a form, where the build has that; else nothing."""
    status, _, body = c.request("POST", "/v1/completions", {"prompt": "x", "guided_regex": "[xyz]{3}", "temperature": 1, "seed": 5})
    return json.loads(body)["choices"][0]["text"] if status == 200 else None


def test_it_gives_the_tokens_of_a_worker_on_the_cpu():
    with running(*FLAGS, workers=1) as c:
        wanted = answer(c)
        formed = form(c)
    assert formed is None or (len(formed) == 3 and set(formed) <= set("xyz")), formed
    assert len(wanted["token_ids"]) == 4, wanted
    with running(*FLAGS, workers=1, worker_flags=("--device", "cuda-emulated")) as c:
        got = answer(c)
        assert form(c) == formed
        device = c.status()["workers"][0]["device"]
        log = c.log("w0")
    assert (got["message"]["content"], got["token_ids"]) == (wanted["message"]["content"], wanted["token_ids"]), (got, wanted)
    assert device["kind"] == "cuda-emulated" and "emulator" in device["description"], device
    assert "warning" in log and "emulator runs the GPU's kernels" in log, log


def up(*flags):
    command = ["deploy/tessera", "up", MODEL, "--port", "0", "--grpc-port", "0", "--once", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_up_starts_a_worker_on_each_named_device():
    question = ("--ask", "What is 57 + 85?", "--expect", "142")
    alone = up("--devices", "cuda-emulated", *question)
    assert alone.returncode == 0, alone
    assert "r-local/0 (local/0)" in alone.stdout and "very slow" in alone.stdout, alone
    both = up("--devices", "cuda-emulated,cpu", *question)
    assert both.returncode == 0, both
    assert "r-local/0 " in both.stdout and "r-local/1 " in both.stdout, both


def test_devices_that_are_not_there_are_refused_before_anything_starts():
    refused = up("--devices", "cuda:99")
    assert refused.returncode == 2 and "--devices cuda:99" in refused.stderr and not refused.stdout, refused


def test_the_worker_lists_devices_or_says_why_there_are_none():
    list_devices = ["worker/tessera-worker", "--list-devices"]
    listed = json.loads(subprocess.run([*list_devices, "--json"], capture_output=True, check=True).stdout)
    text = subprocess.run(list_devices, capture_output=True, text=True, check=True).stdout
    assert bool(listed.get("devices")) != bool(listed.get("no_devices")), listed
    assert listed.get("no_devices", "") in text and "always there: cpu" in text, text


def test_a_lost_gpu_ends_its_worker_and_its_requests_go_on_elsewhere():
    body = {"prompt": "Count from 1 to 90.", "max_tokens": 40, "ignore_eos": True, "temperature": 0,
            "return_token_ids": True}
    with running(*FLAGS, workers=1) as c:
        wanted = [t for event in c.stream(body) for t in event["choices"][0]["token_ids"]]
    fault = pathlib.Path(tempfile.mkdtemp()) / "fault"
    with (unittest.mock.patch.dict(os.environ, CUDA_EMULATOR_FAULT_FILE=str(fault)),
          running(*FLAGS, workers=1, worker_flags=("--device", "cuda-emulated")) as c):
        got = []
        for event in c.stream(body):
            assert "error" not in event, event
            got += event["choices"][0]["token_ids"]
            if not fault.exists():  # it is at the GPU, which now fails; only then another worker comes
                fault.touch()
                c.start_worker("w1")
        assert got == wanted, (got, wanted)
        assert c.ended("w0") == 1, c.log("w0")
        assert "illegal memory access" in c.log("w0").splitlines()[-1], c.log("w0")
        assert "r-w0/0 was lost" in c.log("coordinator"), c.log("coordinator")
