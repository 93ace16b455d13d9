"""One worker prefills, another decodes: requests give one worker's tokens, and the loss of either loses none."""

import contextlib
import json
import signal
import socket
import threading

from cluster import KILL, TERMINATE, Cluster, running, wait_for
from staged_replica_test import ask, planned_model, share

WHOLE = [(0, 6, 1)]  # stages: first layer, end, ranks
QUESTION = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0}
LONG = [10 + (i * 7) % 400 for i in range(700)]


def split_plan(path, layouts, codec="raw"):
    workers = []
    replicas = []
    for (name, role), stages in zip([("p", "REPLICA_ROLE_PREFILL"), ("d", "REPLICA_ROLE_DECODE")], layouts):
        replica = {"name": name, "role": role, "stages": []}
        for first, end, width in stages:
            ranks = []
            for rank in range(width):
                ranks.append({"device": f"w{len(workers)}/0", "share": share(first, end, rank, width),
                              "kv_bytes": str(16 << 20)})
                workers.append(f"w{len(workers)}")
            replica["stages"].append({"workers": ranks})
        replicas.append(replica)
    path.write_text(json.dumps({"model": planned_model(), "replicas": replicas,
                                "routing": [{"prefill_replica": "p", "decode_replica": "d", "share": 1.0,
                                             "kv_codec": codec}]}))
    return path, workers


@contextlib.contextmanager
def split(tmp, dtype="float32", layouts=(WHOLE, WHOLE), codec="raw", worker_flags=(), coordinator_flags=()):
    path, workers = split_plan(tmp / "plan.json", layouts, codec)
    with Cluster("--plan", str(path), "--dtype", dtype, "--kv-cache-dtype", "auto", *coordinator_flags, workers=0) as c:
        for name in workers:
            c.start_worker(name, *worker_flags)
        wait_for("both replicas", lambda: sorted(c.replicas()) == ["d", "p"])
        yield c


def computed(c, what):
    """Tokens by replica."""
    return {name: sum(v for k, v in c.metrics().items() if k.startswith(f"vllm:{what}_tokens_total{{")
                      and f'engine="{name}"' in k) for name in ("p", "d")}


def tokens(body):
    return json.loads(body)["choices"][0]["token_ids"]


def test_a_prompt_computed_by_one_is_decoded_by_the_other(tmp):
    bodies = [ask("Count from 3 to 90.", 60), ask(LONG, 20),
              {**ask("1 2 3", 12), "n": 2, "seed": 5, "temperature": 1, "logprobs": 2}]
    with running("--dtype", "float32", workers=1) as c:
        alone = [json.loads(c.request("POST", "/v1/completions", body)[2]) for body in bodies]
    with split(tmp) as c:
        status, _, body = c.request("POST", "/v1/chat/completions", {**QUESTION, "timings": True})
        assert status == 200 and '"142"' in body, body
        timings = json.loads(body)["timings"]
        assert (timings["prefill"]["replica"], timings["decode"]["replica"]) == ("p", "d"), timings
        assert timings["kv_transfer"]["bytes"] > 10000 and timings["kv_transfer"]["transport"] == "shm", timings
        assert 0 <= timings["kv_transfer"]["hidden_share"] <= 1 and timings["decode"]["tokens_per_second"] > 0, timings
        for body, expected in zip(bodies, alone):
            answer = json.loads(c.request("POST", "/v1/completions", body)[2])
            assert answer["usage"] == expected["usage"], (answer["usage"], expected["usage"])
            for got, one in zip(answer["choices"], expected["choices"]):
                assert (got["token_ids"], got["text"], got["finish_reason"]) == (
                    one["token_ids"], one["text"], one["finish_reason"])
                if got["logprobs"]:
                    assert got["logprobs"]["token_logprobs"] == one["logprobs"]["token_logprobs"]
        prompts = computed(c, "prompt")
        assert prompts["p"] > len(LONG), prompts
        assert prompts["d"] < 20, prompts  # of two choices the second computes what fills no block
        assert computed(c, "generation")["d"] > 60
        pair = c.status()["hand_overs"][0]
        assert (pair["prefill_replica"], pair["decode_replica"]) == ("p", "d"), pair
        assert int(pair["prompts"]) == 4 and int(pair.get("failures", 0)) == 0, pair
        moved = [v for k, v in c.metrics().items() if k.startswith("tessera_kv_transfer_bytes_total{")]
        assert moved == [float(pair["bytes"])], (moved, pair)
        # The same prompt again: what the decode side has is not sent.
        again = json.loads(c.request("POST", "/v1/completions", {**bodies[1], "timings": True})[2])
        assert again["choices"][0]["token_ids"] == alone[1]["choices"][0]["token_ids"]
        assert 0 < again["timings"]["kv_transfer"]["bytes"] < moved[0] / 4, (again["timings"], moved)
        # A stream, and its prompt's logprobs.
        events = list(c.stream({**ask("Count from 3 to 90.", 60), "logprobs": 1}))
        assert sum(len(e["choices"][0].get("token_ids") or []) for e in events if e["choices"]) == 60


def test_bfloat16_keys_and_values_move_too(tmp):
    with split(tmp, "auto") as c:
        status, _, body = c.request("POST", "/v1/chat/completions", QUESTION)
        assert status == 200 and '"142"' in body, body
        assert computed(c, "prompt")["d"] == 0


def test_replicas_of_unlike_layouts_share_nothing_but_the_model(tmp):
    bodies = [ask("Count from 3 to 90.", 60), ask(LONG, 20)]
    with running("--dtype", "float32", workers=1) as c:
        alone = [json.loads(c.request("POST", "/v1/completions", body)[2]) for body in bodies]
    wide = [(0, 4, 2), (4, 6, 1)]
    for layouts in [(wide, WHOLE), (wide, [(0, 2, 1), (2, 6, 1)])]:
        with split(tmp, layouts=layouts) as c:
            for body, expected in zip(bodies, alone):
                answer = json.loads(c.request("POST", "/v1/completions", body)[2])
                assert [x["token_ids"] for x in answer["choices"]] == [x["token_ids"] for x in expected["choices"]]
            assert computed(c, "prompt")["d"] == 0, layouts
        with split(tmp, "auto", layouts) as c:  # bfloat16
            status, _, body = c.request("POST", "/v1/chat/completions", {**QUESTION, "stream": True})
            events = [json.loads(line[len("data: "):]) for line in body.splitlines() if line.startswith("data: {")]
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
            assert status == 200 and said == "142", body
            assert computed(c, "prompt")["d"] == 0, layouts


def test_keys_and_values_may_be_rounded_on_their_way(tmp):
    sizes = {}
    for codec in ("raw", "int8", "int4"):
        with split(tmp, "auto", codec=codec) as c:
            answer = json.loads(c.request("POST", "/v1/completions", {**ask(LONG, 20), "timings": True})[2])
            assert answer["timings"]["kv_transfer"]["codec"] == codec, answer["timings"]
            sizes[codec] = answer["timings"]["kv_transfer"]["bytes"]
            if codec != "int4":
                status, _, body = c.request("POST", "/v1/chat/completions", QUESTION)
                assert status == 200 and '"142"' in body, body
            # The same prompt again finds what was rounded, where it may be.
            again = json.loads(c.request("POST", "/v1/completions", {**ask(LONG, 20), "timings": True})[2])
            assert again["timings"]["kv_transfer"]["bytes"] < sizes[codec] / 4, again["timings"]
    assert 0.5 < sizes["int8"] / sizes["raw"] < 0.6, sizes
    assert 0.25 < sizes["int4"] / sizes["raw"] < 0.35, sizes


def lose(tmp, worker, number):
    with running("--dtype", "float32", workers=1) as c:
        expected = tokens(c.request("POST", "/v1/completions", ask(tokens=400))[2])
    with split(tmp) as c:
        heard = []

        def read():
            for event in c.stream(ask(tokens=400)):
                heard.append(event)

        reader = threading.Thread(target=read)
        reader.start()
        wait_for("some tokens", lambda: len(heard) > 20)
        c.signal(worker, number)
        reader.join(60)
        got = [token for e in heard for token in (e["choices"][0].get("token_ids") or [])]
        assert got == expected, (len(got), len(expected))
        # The one that is left serves alone.
        status, _, body = c.request("POST", "/v1/chat/completions", QUESTION)
        assert status == 200 and '"142"' in body, body


def test_a_decode_worker_that_dies_loses_no_stream(tmp):
    lose(tmp, "w1", KILL)


def test_a_decode_worker_that_drains_loses_no_stream(tmp):
    lose(tmp, "w1", TERMINATE)


def test_a_prefill_worker_that_dies_leaves_one_that_serves(tmp):
    lose(tmp, "w0", KILL)


def test_a_receiver_that_hangs_ends_nothing(tmp):
    with split(tmp) as c:
        c.signal("w1", signal.SIGSTOP)
        status, _, body = c.request("POST", "/v1/chat/completions", QUESTION)
        assert status == 200 and '"142"' in body, body


def test_who_has_no_ticket_is_refused_and_counted(tmp):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path, _ = split_plan(tmp / "plan.json", (WHOLE, WHOLE))
    with Cluster("--plan", str(path), workers=0) as c:
        c.start_worker("w0")
        c.start_worker("w1", "--kv-port", str(port))
        wait_for("both replicas", lambda: sorted(c.replicas()) == ["d", "p"])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
            wait_for("the refusal", lambda: [v for k, v in c.metrics().items() if 'worker="w1/0"' in k
                                             and k.startswith("tessera_link_refused_total{")] == [1])
        status, _, body = c.request("POST", "/v1/chat/completions", {**QUESTION, "timings": True})
        assert status == 200 and json.loads(body)["timings"]["kv_transfer"], body
