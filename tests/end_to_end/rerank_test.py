"""Scores of a reranker through the whole stack: what transformers makes of the same weights by Qwen3-Reranker's recipe."""

import json

from cluster import running
from tiny_reranker import DOCUMENTS, QUERY, write

TOKENS = [232, 232, 405]  # of the prompts
SCORES = [0.73953, 0.74763, 0.51044]  # tiny_reranker.py prints them
TOLERANCE = 5e-5


def ask(c, path, **body):
    status, _, text = c.request("POST", path, body)
    assert status == 200, text
    return json.loads(text)


def test_scores_are_those_of_transformers(tmp):
    folder = tmp / "Tiny-Reranker"
    write(folder)
    for flags in ((), ("--max-num-batched-tokens", "48")):  # prompts whole, and in pieces
        with running("--dtype", "float32", *flags, workers=1, model=str(folder)) as c:
            scored = ask(c, "/v1/score", text_1=QUERY, text_2=DOCUMENTS)
            assert scored["usage"]["prompt_tokens"] == sum(TOKENS), scored["usage"]
            for item, expected in zip(scored["data"], SCORES, strict=True):
                assert abs(item["score"] - expected) < TOLERANCE, (scored["data"], SCORES)
            ranked = ask(c, "/v1/rerank", query=QUERY, documents=DOCUMENTS)["results"]
            assert [r["index"] for r in ranked] == [1, 0, 2], ranked
            for result in ranked:
                assert abs(result["relevance_score"] - SCORES[result["index"]]) < TOLERANCE, (ranked, SCORES)
