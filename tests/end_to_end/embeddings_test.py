"""Embeddings through the whole stack: a text's pooled rows, as sentence-transformers computes them, on any device and
layout."""

import base64
import json
import math
import shutil
import struct

import cluster
from cluster import running
from staged_replica_test import staged

FLOAT32 = ("--dtype", "float32")
WIDTH = 160  # of the shipped model
# The first values of what sentence-transformers 6.2 with transformers 5.24 computed in float32: the last token's row, of
# length 1. So AutoModel's last_hidden_state has it.
GOLDEN = {
    "What is 57 + 85?": [0.03441, -0.04174, -0.01501, 0.0983, -0.04893, -0.20786, -0.06109, -0.02683],
    "The baker has a badge": [0.08372, -0.02975, -0.06155, 0.01825, -0.06356, -0.04098, 0.00015, -0.01981],
}
# The same of the mean of all tokens' rows, and of the first one's, which is that of the token that begins each text.
MEANS = {
    "What is 57 + 85?": [0.02719, -0.03975, 0.02401, 0.0592, -0.08414, -0.097, -0.01353, -0.05867],
    "The baker has a badge": [0.0162, -0.06282, 0.02961, 0.08506, -0.12048, -0.03457, -0.0315, 0.00311],
    "The baker has a badge and " * 12: [0.02799, -0.062, -0.02433, 0.09635, -0.12832, 0.01188, -0.01013, 0.06259],
}
FIRST = dict.fromkeys(MEANS, [0.00694, -0.01784, 0.0669, 0.08902, -0.1589, -0.0638, 0.00289, -0.01467])
RAW_MEAN = [0.19395, -0.28352, 0.17126]  # without Normalize, of the first text
TEXTS = list(GOLDEN)
LONG = "The baker has a badge and " * 12
MIDDLE = "The baker has a badge and " * 2  # the emulator is slow


def ask(c, **body):
    status, _, text = c.request("POST", "/v1/embeddings", body)
    assert status == 200, text
    return json.loads(text)


def embed(c, **body):
    return [item["embedding"] for item in ask(c, **body)["data"]]


def close(a, b, tolerance):
    assert len(a) == len(b), (len(a), len(b))
    worst = max(abs(x - y) for x, y in zip(a, b))
    assert worst <= tolerance, (worst, a[:4], b[:4])


def check(c, tolerance, golden=GOLDEN, longest=LONG):
    """Those of sentence-transformers; returns the embeddings of all texts, up to the `longest`."""
    for text, begin in golden.items():
        if len(text) > len(longest):
            continue
        (values,) = embed(c, input=text)
        assert len(values) == WIDTH
        assert abs(math.fsum(x * x for x in values) - 1) < 1e-5
        close(values[:len(begin)], begin, tolerance)
    return embed(c, input=TEXTS + [longest])


def test_one_worker():
    with running(*FLOAT32, workers=1) as c:
        whole = check(c, 2e-5)
        single = [embed(c, input=text)[0] for text in TEXTS + [LONG]]
        for a, b in zip(whole, single):
            close(a, b, 1e-5)
        encoded = embed(c, input=TEXTS[0], encoding_format="base64")[0]
        assert list(struct.unpack(f"<{WIDTH}f", base64.b64decode(encoded))) == single[0]
        (cut,) = embed(c, input=TEXTS[0], dimensions=16)
        length = math.sqrt(math.fsum(x * x for x in single[0][:16]))
        close(cut, [x / length for x in single[0][:16]], 1e-6)
        reply = ask(c, input=[[10, 11, 12], [13]])
        assert reply["usage"] == {"prompt_tokens": 4, "total_tokens": 4}, reply["usage"]
        # Among answers that are generated, and found in the prefix cache.
        status, _, _ = c.request("POST", "/v1/completions", {"prompt": LONG, "max_tokens": 4})
        assert status == 200
        close(embed(c, input=LONG)[0], single[2], 1e-5)
        status, _, text = c.request("POST", "/v1/embeddings", {"input": "word " * 5000})
        assert status == 400 and "maximum context length" in text, text
    with running(*FLOAT32, "--max-num-batched-tokens", "16", workers=1) as c:
        for a, b in zip(check(c, 2e-5), whole):
            close(a, b, 1e-5)


def test_stages_ranks_and_the_emulated_gpu(tmp):
    with staged(tmp) as c:
        check(c, 1e-4)
        middle = embed(c, input=MIDDLE)[0]
    with running(*FLOAT32, workers=1, worker_flags=("--device", "cuda-emulated")) as c:
        close(check(c, 1e-3, longest=MIDDLE)[-1], middle, 1e-3)


def test_means(tmp):
    mean = (*FLOAT32, "--pooling", "mean")
    with running(*mean, workers=1) as c:
        whole = check(c, 2e-5, MEANS)
        # Beside answers that are generated, and found in the prefix cache.
        status, _, _ = c.request("POST", "/v1/completions", {"prompt": LONG, "max_tokens": 4})
        assert status == 200
        close(embed(c, input=LONG)[0], whole[2], 1e-5)
        middle = embed(c, input=MIDDLE)[0]
        reply = ask(c, input=[[10, 11, 12], [13]])
        assert reply["usage"] == {"prompt_tokens": 4, "total_tokens": 4}, reply["usage"]
    with running(*mean, "--max-num-batched-tokens", "16", workers=1) as c:
        for a, b in zip(check(c, 2e-5, MEANS), whole):
            close(a, b, 1e-5)
    with staged(tmp, mean) as c:
        check(c, 1e-4, MEANS)
    with running(*mean, workers=1, worker_flags=("--device", "cuda-emulated")) as c:
        close(check(c, 1e-3, MEANS, MIDDLE)[-1], middle, 1e-3)


def test_files_for_sentence_transformers(tmp):
    folder = tmp / "model"
    shutil.copytree(cluster.MODEL, folder)
    (folder / "1_Pooling").mkdir()
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
               {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))

    def pool(**mode):
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": WIDTH, **mode}))

    pool(pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)
    with running(*FLOAT32, workers=1, model=str(folder)) as c:
        close(embed(c, input=TEXTS[0])[0][:3], RAW_MEAN, 5e-5)
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    (folder / "modules.json").write_text(json.dumps(modules))
    pool(pooling_mode_cls_token=True)
    with running(*FLOAT32, workers=1, model=str(folder)) as c:
        check(c, 2e-5, FIRST)
        reply = ask(c, input=[[10, 11, 12], [13]])
        assert reply["usage"] == {"prompt_tokens": 4, "total_tokens": 4}, reply["usage"]
