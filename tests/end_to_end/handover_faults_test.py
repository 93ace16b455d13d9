"""One worker prefills, another decodes, and something goes wrong in the middle: the stream goes on with one worker's
tokens, within bounds, and no block stays taken. Environment FAULTS: a comma-separated choice; `all` runs all ten."""

import http.client
import json
import os
import signal
import threading
import time

from cluster import KILL, PATIENCE_SECONDS, running, wait_for
from handover_test import split
from staged_replica_test import ask

STOP, CONTINUE = signal.SIGSTOP, signal.SIGCONT
TOKENS = 40
PROMPT = [10 + (i * 7) % 400 for i in range(480)]
BODY = ask(PROMPT, TOKENS)
SMALL_STEPS = ("--max-num-batched-tokens", "16")  # a prompt takes long enough to be met in the middle
PLAIN = ("--cpu-isa", "reference")


class Client:
    """One stream, read on a thread of its own."""

    def __init__(self, c):
        self.tokens, self.error = [], None
        self.thread = threading.Thread(target=self.read, args=(c,))
        self.thread.start()

    def read(self, c):
        try:
            for event in c.stream(BODY):
                assert "error" not in event, event
                for choice in event["choices"]:
                    self.tokens += choice.get("token_ids") or []
        except Exception as error:  # judged by who started it
            self.error = error

    def answer(self):
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive(), f"no end after {PATIENCE_SECONDS} s, {len(self.tokens)} tokens"
        return self.tokens


def prefilled(c):
    """Prompt tokens that the sender has computed, by its heartbeats."""
    loads = {w["name"]: w.get("load", {}) for w in c.status()["workers"]}
    return int(loads["w0/0"].get("prompt_tokens", 0))


def pushing(c, begin=None):
    """The prompt is being computed, and what is there of it sent; what `begin` returned."""
    before = prefilled(c)
    begun = (begin or Client)(c)
    wait_for("a part of the prompt", lambda: prefilled(c) >= before + 48)
    assert prefilled(c) < before + len(PROMPT), "the prompt was over too soon to be met in the middle"
    return begun


def decoding(c):
    client = Client(c)
    wait_for("some tokens", lambda: len(client.tokens) > 5)
    return client


def while_pushing(act):
    def fault(c):
        client = pushing(c)
        act(c)
        return client.answer()
    return fault


def pause(c, name, seconds):
    c.signal(name, STOP)
    time.sleep(seconds)
    c.signal(name, CONTINUE)


def stopped_before_room(c):
    c.signal("w1", STOP)
    return Client(c).answer()


def killed_while_decoding(c):
    client = decoding(c)
    c.signal("w1", KILL)
    return client.answer()


def client_leaves(c):
    def begin(c):
        connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=PATIENCE_SECONDS)
        connection.request("POST", "/v1/completions", json.dumps({**BODY, "stream": True}))
        return connection

    pushing(c, begin).close()
    nothing_held(c)
    return Client(c).answer()


def many_at_once(c):
    """More prompts than the decode side has room for."""
    clients = [Client(c) for _ in range(12)]
    answers = [client.answer() for client in clients]
    assert all(answer == answers[0] for answer in answers), [len(a) for a in answers]
    return answers[0]


# w0 sends, w1 receives.
FAULTS = {
    "sender killed while it sends": while_pushing(lambda c: c.signal("w0", KILL)),
    "receiver stopped while it takes": while_pushing(lambda c: c.signal("w1", STOP)),
    "client leaves": client_leaves,
    "sender stopped while it sends": while_pushing(lambda c: c.signal("w0", STOP)),
    "receiver killed while it takes": while_pushing(lambda c: c.signal("w1", KILL)),
    "receiver stopped before it gives room": stopped_before_room,
    "sender paused": while_pushing(lambda c: pause(c, "w0", 2)),
    "receiver paused": while_pushing(lambda c: pause(c, "w1", 2)),
    "receiver killed while it decodes": killed_while_decoding,
    "receiver full": many_at_once,
}
IN_CI = 3


def nothing_held(c):
    """No living worker holds blocks, by its own heartbeats."""
    def used():
        return [w["name"] for w in c.status()["workers"]
                if w.get("state") != "WORKER_STATE_LOST" and w.get("load", {}).get("kv_blocks_used", 0)]
    wait_for("all blocks to be free", lambda: used() == [])


def test_faults(tmp):
    with running("--dtype", "float32", workers=1, worker_flags=PLAIN) as c:
        expected = json.loads(c.request("POST", "/v1/completions", BODY)[2])["choices"][0]["token_ids"]
    assert len(expected) == TOKENS
    names = list(FAULTS) if os.environ.get("FAULTS") == "all" else list(FAULTS)[:IN_CI]
    for name in names:
        began = time.monotonic()
        folder = tmp / name.replace(" ", "_")
        folder.mkdir()
        with split(folder, worker_flags=PLAIN, coordinator_flags=SMALL_STEPS) as c:
            answer = FAULTS[name](c)
            assert answer == expected, (name, len(answer), answer[:5], expected[:5])
            nothing_held(c)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
