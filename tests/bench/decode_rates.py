"""How fast a server decodes, for measurements that compare two of them that serve in turn. Standard library only."""

import concurrent.futures
import json
import pathlib
import sys

import shape_1b

sys.path.insert(0, str(shape_1b.ROOT / "tests/end_to_end"))
import cluster

PROMPT_TOKENS = 64
PROGRAMS = ("//coordinator:tessera-coordinator", "//worker:tessera-worker", "//deploy:tessera")


def serve(model, *flags, kv="256MiB"):
    """A coordinator and one worker on all cores; `model`: a folder."""
    c = cluster.Cluster("--max-num-seqs", "16", *flags, workers=0, model=str(pathlib.Path(model)))
    c.start("w0", "worker/tessera-worker", "--coordinator", c.grpc, "--name", "w0/0", "--kv-cache-memory-bytes", kv)
    c.wait_until_ready(1)
    return c


def ask(c, body):
    status, _, text = c.request("POST", "/v1/completions", body)
    assert status == 200, text
    return json.loads(text)["timings"]["decode"]


def decode(c, streams, tokens, text, **sampling):
    """(tokens per second of all streams, drafts tried, of these accepted). `text`: the number of the prompts."""
    bodies = [{"prompt": [10 + (text * 31 + i * 7 + j * j) % 4000 for j in range(PROMPT_TOKENS)], "max_tokens": tokens,
               "ignore_eos": True, "timings": True, **sampling} for i in range(streams)]
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        answers = list(pool.map(lambda body: ask(c, body), bodies))
    drafts = [answer["drafts"] or {"tokens": 0, "accepted_tokens": 0} for answer in answers]
    return (sum(answer["tokens"] for answer in answers) / max(answer["seconds"] for answer in answers),
            sum(one["tokens"] for one in drafts), sum(one["accepted_tokens"] for one in drafts))


def in_turn(names, round_):
    """Which server is first changes from round to round."""
    return list(names) if round_ % 2 else list(names)[::-1]
