"""A worker on the emulated CUDA device answers with the shipped model, with the tokens of a worker on the CPU."""

import json

from cluster import running

# The emulator is slow: few positions, so that nothing larger than this is computed when the worker warms up.
FLAGS = ("--dtype", "float32", "--max-model-len", "64", "--max-num-batched-tokens", "64", "--max-num-seqs", "2")
REQUEST = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "max_tokens": 4, "temperature": 0,
           "ignore_eos": True, "return_token_ids": True}


def answer(c):
    status, _, body = c.request("POST", "/v1/chat/completions", REQUEST)
    assert status == 200, body
    return json.loads(body)["choices"][0]


def test_it_gives_the_tokens_of_a_worker_on_the_cpu():
    with running(*FLAGS, workers=1) as c:
        wanted = answer(c)
    assert len(wanted["token_ids"]) == 4, wanted
    with running(*FLAGS, workers=1, worker_flags=("--device", "cuda-emulated")) as c:
        got = answer(c)
        device = c.status()["workers"][0]["device"]
        log = c.log("w0")
    assert (got["message"]["content"], got["token_ids"]) == (wanted["message"]["content"], wanted["token_ids"]), (got, wanted)
    assert device["kind"] == "cuda-emulated" and "emulator" in device["description"], device
    assert "warning" in log and "emulator runs the GPU's kernels" in log, log
