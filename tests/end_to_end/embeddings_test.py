"""Embeddings through the whole stack: the last token's row, as transformers computes it, on any device and layout."""

import base64
import json
import math
import struct

from cluster import running
from staged_replica_test import staged

FLOAT32 = ("--dtype", "float32")
WIDTH = 160  # of the shipped model
# The first values of what transformers 5.24 computed: AutoModel's last_hidden_state, last token, in float32, of length 1.
GOLDEN = {
    "What is 57 + 85?": [0.03441, -0.04174, -0.01501, 0.0983, -0.04893, -0.20786, -0.06109, -0.02683],
    "The baker has a badge": [0.08372, -0.02975, -0.06155, 0.01825, -0.06356, -0.04098, 0.00015, -0.01981],
}
TEXTS = list(GOLDEN)
LONG = "The baker has a badge and " * 12


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


def check(c, tolerance):
    """Those of transformers; returns the embeddings of all texts."""
    for text, begin in GOLDEN.items():
        (values,) = embed(c, input=text)
        assert len(values) == WIDTH
        assert abs(math.fsum(x * x for x in values) - 1) < 1e-5
        close(values[:len(begin)], begin, tolerance)
    return embed(c, input=TEXTS + [LONG])


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
    with running(*FLOAT32, workers=1, worker_flags=("--device", "cuda-emulated")) as c:
        check(c, 1e-3)
