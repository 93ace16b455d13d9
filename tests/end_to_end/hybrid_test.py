"""A Qwen3.5 with random weights: a worker alone serves it, and so do a stage of gated delta nets alone and one that
attends, and replicas that compute prompts and answers apart. Choices and repeated prompts get the tokens of the first one, with kept states of prompts and without."""

import json
import sys

import cluster
from cluster import Cluster, running, wait_for

sys.path.insert(0, "tests/bench")
import random_model  # noqa: E402

LAYERS, HEADS, KV_HEADS, FFN, VOCABULARY, KEY_GROUPS = 4, 4, 2, 192, 512, 4
FLOAT32 = ("--dtype", "float32")
PROMPTS = ["Count from 3 to 90.", "What is the colour of the sky over the sea in the evening? " * 4, "No"]
WORKERS = ["w0", "w1", "w2"]
BLOCK_TOKENS = 64


def write(folder):
    random_model.write(folder, layers=LAYERS, hidden=128, heads=HEADS, kv_heads=KV_HEADS, head_dim=32, ffn=FFN, context=512,
                       delta=(KEY_GROUPS, 2 * KEY_GROUPS, 16))
    return str(folder)


def share(model, first, end):
    delta = {"key_groups": {"end": KEY_GROUPS}}
    attention = {"query_heads": {"end": HEADS}, "kv_heads": {"end": KV_HEADS}}
    kinds = [{"ffn_columns": {"end": FFN}, **(delta if "delta" in kind else attention)} for kind in model["kinds"]]
    return {"layers": {"begin": first, "end": end}, "kinds": kinds, "holds_embedding": first == 0,
            "holds_head": end == LAYERS, "vocabulary_rows": {"end": VOCABULARY}}


def stage(model, worker, layers):
    return {"workers": [{"device": worker + "/0", "share": share(model, *layers), "kv_bytes": str(4 << 20)}]}


def write_plan(path, model, replicas):
    """`replicas`: the last one answers; role, and the layers (first, end) of each stage, a worker each."""
    workers = iter(WORKERS)
    planned = [{"name": f"r{i}", "role": role, "stages": [stage(model, next(workers), layers) for layers in stages]}
               for i, (role, stages) in enumerate(replicas)]
    path.write_text(json.dumps({
        "model": model, "replicas": planned,
        "routing": [{"prefill_replica": planned[0]["name"], "decode_replica": planned[-1]["name"], "share": 1.0}]}))
    return str(path)


def ask(c, prompt, **more):
    status, _, text = c.request("POST", "/v1/completions", {
        "prompt": prompt, "max_tokens": 40, "ignore_eos": True, "return_token_ids": True, "temperature": 0, **more})
    assert status == 200, text
    return json.loads(text)


def tokens(c):
    return [choice["token_ids"] for prompt in PROMPTS for choice in ask(c, prompt, n=2)["choices"]]


def cached(answer):
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def converse(c):
    """The second turn goes on from the end of the first one's message, whatever the answer was."""
    def turn(messages):
        status, _, text = c.request("POST", "/v1/chat/completions", {
            "messages": messages, "max_tokens": 8, "temperature": 0})
        assert status == 200, text
        return json.loads(text)

    user = {"role": "user", "content": "Tell me about the sea in the evening. " * 6}
    first = turn([user])
    later = turn([user, {"role": "assistant", "content": "No."}, {"role": "user", "content": "And now?"}])
    message_tokens = first["usage"]["prompt_tokens"] - 16  # what opens the answer is shorter
    assert message_tokens > 2 * BLOCK_TOKENS, first["usage"]
    assert cached(later) >= message_tokens // BLOCK_TOKENS * BLOCK_TOKENS, later["usage"]


def test_one_worker_and_two_stages_give_the_same_tokens(tmp):
    folder = write(tmp / "model")
    with running(*FLOAT32, workers=1, model=folder) as c:
        model = c.status()["plan"]["model"]
        assert ["delta" in kind for kind in model["kinds"]] == [True, False], model["kinds"]
        alone = tokens(c)
        assert alone[0::2] == alone[1::2], "choices differ"
        assert len({tuple(one) for one in alone}) == len(PROMPTS)
        again = ask(c, PROMPTS[1])
        assert again["choices"][0]["token_ids"] == alone[2]
        assert cached(again) >= BLOCK_TOKENS, again["usage"]
        assert "are kept in" in c.log("w0"), c.log("w0")
        converse(c)
    with running(*FLOAT32, workers=0, model=folder) as c:
        c.start_worker("w0", "--state-cache-memory-bytes", "0")
        c.wait_until_ready(1)
        assert tokens(c) == alone
        assert cached(ask(c, PROMPTS[1])) == 0
        assert "prefix cache: off" in c.log("w0"), c.log("w0")
    for replicas, names in ([("REPLICA_ROLE_BOTH", [(0, 3), (3, 4)])], ["r0"]), (
            [("REPLICA_ROLE_PREFILL", [(0, 3), (3, 4)]), ("REPLICA_ROLE_DECODE", [(0, 4)])], ["r0", "r1"]):
        plan = write_plan(tmp / "plan.json", model, replicas)
        serve(plan, folder, names, alone)


def serve(plan, folder, names, alone):
    with Cluster("--plan", plan, *FLOAT32, workers=0, model=folder) as c:
        for worker in WORKERS[:2 if len(names) == 1 else 3]:
            c.start_worker(worker)
        wait_for("the replicas", lambda: c.replicas() == names)
        assert tokens(c) == alone
        if len(names) > 1:
            timings = ask(c, PROMPTS[1] + "And then?", timings=True)["timings"]
            # Of three layers, float32: two value heads to each of four key groups.
            assert timings["kv_transfer"]["bytes"] > 3 * 8 * 16 * 16 * 4, timings
