"""A worker is killed or told to end while it streams: every stream goes on, token for token, and nobody sees an error."""

import re
import threading

from cluster import KILL, TERMINATE, running, stream_all, wait_for

STREAMS = 6
TOKENS = 250


def ask(index):
    """Half of them greedy, half drawn with a seed: both can be continued elsewhere."""
    return {"prompt": f"Count from {index} to 90.", "max_tokens": TOKENS, "ignore_eos": True, "n": 2,
            "return_token_ids": True, "temperature": index % 2, "seed": 1000 + index}


def collect(c, index, choices, started=None):
    for event in c.stream(ask(index), {"X-Request-Id": f"count-{index}"}):
        assert "error" not in event, event
        for choice in event["choices"]:
            choices[choice["index"]]["tokens"] += choice["token_ids"]
            choices[choice["index"]]["text"] += choice["text"]
            choices[choice["index"]]["finish"] = choice["finish_reason"] or choices[choice["index"]]["finish"]
        if started is not None:
            started.set()


def empty():
    return [{"tokens": [], "text": "", "finish": None} for _ in range(2)]


def run_all(c, after_start=None):
    """What each stream said, both choices."""
    return stream_all(lambda *stream: collect(c, *stream), [empty() for _ in range(STREAMS)], after_start)


def test_streams_survive_their_worker():
    # float32: tokens do not depend on what else is in a step.
    with running("--dtype", "float32", "--no-enable-prefix-caching") as c:
        undisturbed = run_all(c)
        for choices in undisturbed:
            for choice in choices:
                assert len(choice["tokens"]) == TOKENS and choice["finish"] == "length", choice

        replicas = sorted(c.replicas())
        computed = [v for k, v in c.metrics().items() if k.startswith("vllm:prompt_tokens_total")]
        assert len(computed) == 2 and min(computed) > 0, f"one replica got all the work: {computed}"

        killed = []

        def kill_the_busier():
            """A measured rate may have sent every stream to one of them."""
            running_at = {k.split('engine="r-')[1].split("/")[0]: v for k, v in c.metrics().items()
                          if k.startswith("vllm:num_requests_running")}
            killed.append(max(running_at, key=running_at.get))
            c.signal(killed[-1], KILL)

        assert run_all(c, kill_the_busier) == undisturbed
        # Each is named in the log by the id that its client gave, with where it was and is.
        logged = re.findall(r"request (\S+) continues on replica (\S+), attempt 2: replica (\S+) was lost",
                            c.log("coordinator"))
        assert logged, c.log("coordinator")
        assert all(re.fullmatch(r"count-\d", request) and to != lost for request, to, lost in logged), logged
        moved = sum(v for k, v in c.metrics().items() if k.startswith("tessera_request_migrations_total"))
        assert moved >= 1, "no stream was at the worker that was killed"
        victim = killed[0]
        survivor = "w1" if victim == "w0" else "w0"

        def lost():
            return any(w["name"] == victim + "/0" and w.get("state") == "WORKER_STATE_LOST"
                       for w in c.status()["workers"])

        wait_for(victim + " to be told lost", lost)
        assert len(c.replicas()) == 1

        # It comes back under its name, and gets work again.
        c.start_worker(victim)
        wait_for("both replicas", lambda: sorted(c.replicas()) == replicas)
        assert run_all(c) == undisturbed
        c.signal(survivor, KILL)
        wait_for("one replica", lambda: len(c.replicas()) == 1)
        assert run_all(c) == undisturbed


def test_without_another_replica_a_stream_waits_for_one():
    with running("--dtype", "float32", workers=1) as c:
        undisturbed = run_all(c)

        def replace():
            c.signal("w0", KILL)
            c.ended("w0")
            c.start_worker("w0")

        assert run_all(c, replace) == undisturbed


def test_a_worker_told_to_end_finishes_what_it_has_and_gets_nothing_new():
    with running("--dtype", "float32", "--no-enable-prefix-caching") as c:
        undisturbed = run_all(c)
        answers = []

        def ask_often(index):
            for i in range(8):
                body = {"prompt": f"{index} plus {i} is", "max_tokens": 4, "ignore_eos": True}
                answers.append(c.request("POST", "/v1/completions", body)[0::2])

        def end_the_busier():
            running_at = {k.split('engine="r-')[1].split("/")[0]: v for k, v in c.metrics().items()
                          if k.startswith("vllm:num_requests_running")}
            busier = max(running_at, key=running_at.get)
            c.signal(busier, TERMINATE)
            threads = [threading.Thread(target=ask_often, args=(index,)) for index in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert c.ended(busier) == 0, "it did not drain"

        assert run_all(c, end_the_busier) == undisturbed
        assert len(answers) == 40
        assert all(status == 200 for status, _ in answers), [a for a in answers if a[0] != 200]
        wait_for("one replica", lambda: len(c.replicas()) == 1)
