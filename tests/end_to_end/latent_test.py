"""A DeepSeek V3 with random weights: a worker alone serves it, and so do unequal stages, two unequal ranks that both have
the latent, and two workers of which one computes the prompts. The tokens are those of the first one."""

import json
import sys

from cluster import Cluster, running, wait_for

sys.path.insert(0, "tests/bench")
import random_model  # noqa: E402

LAYERS, HEADS, FFN, VOCABULARY = 3, 4, 192, 512
FLOAT32 = ("--dtype", "float32")
PROMPTS = ["Count from 3 to 90.", "What is the colour of the sky over the sea in the evening? " * 4, "No"]


def write(folder):
    random_model.write(folder, layers=LAYERS, hidden=128, heads=HEADS, kv_heads=HEADS, ffn=FFN, context=512,
                       latent=(48, 16, 24, 32, 40))
    return str(folder)


def span(begin, end):
    return {"begin": begin, "end": end}


def share(layers, heads=(0, HEADS), columns=(0, FFN), rows=(0, VOCABULARY)):
    kind = {"ffn_columns": span(*columns), "query_heads": span(*heads), "kv_heads": span(0, 1)}
    return {"layers": span(*layers), "kinds": [kind], "holds_embedding": layers[0] == 0,
            "holds_head": layers[1] == LAYERS, "vocabulary_rows": span(*rows)}


def replica(name, role, stages):
    """`stages`: of each a list of (worker, share)."""
    return {"name": name, "role": "REPLICA_ROLE_" + role, "stages": [
        {"workers": [{"device": worker + "/0", "share": part, "kv_bytes": str(4 << 20)} for worker, part in stage]}
        for stage in stages]}


STAGES = [replica("r0", "BOTH", [[("w0", share((0, 2)))], [("w1", share((2, 3)))]])]
RANKS = [replica("r0", "BOTH", [[("w0", share((0, 3), (0, 3), (0, 128), (0, 300))),
                                 ("w1", share((0, 3), (3, 4), (128, FFN), (300, VOCABULARY)))]])]
APART = [replica("p", "PREFILL", [[("w0", share((0, 3)))]]), replica("d", "DECODE", [[("w1", share((0, 3)))]])]


def tokens(c):
    answers = []
    for prompt in PROMPTS:
        status, _, text = c.request("POST", "/v1/completions", {
            "prompt": prompt, "max_tokens": 40, "ignore_eos": True, "return_token_ids": True, "temperature": 0})
        assert status == 200, text
        answers.append(json.loads(text)["choices"][0]["token_ids"])
    return answers


def tokens_of(plan, folder, tmp):
    path = tmp / "plan.json"
    path.write_text(json.dumps(plan))
    with Cluster("--plan", str(path), *FLOAT32, workers=0, model=folder) as c:
        for worker in ("w0", "w1"):
            c.start_worker(worker)
        wait_for("the replicas", lambda: sorted(c.replicas()) == sorted(one["name"] for one in plan["replicas"]))
        return tokens(c)


def test_all_layouts_give_the_tokens_of_one_worker(tmp):
    folder = write(tmp / "model")
    with running(*FLOAT32, workers=1, model=folder) as c:
        model = c.status()["plan"]["model"]
        assert model["kinds"][0]["attention"]["head_dim"] == 64, model
        alone = tokens(c)
    assert len({tuple(one) for one in alone}) == len(PROMPTS)
    for replicas in (STAGES, RANKS, APART):
        routing = [{"prefill_replica": replicas[0]["name"], "decode_replica": replicas[-1]["name"], "share": 1.0}]
        plan = {"model": model, "replicas": replicas, "routing": routing}
        assert tokens_of(plan, folder, tmp) == alone, [one["name"] for one in replicas]
