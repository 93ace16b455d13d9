"""Streams that break and go on by x-tessera-resume, with the API key that began them."""

import contextlib
import functools
import http.client
import json
import pathlib
import re
import tempfile
import threading

from cluster import KILL, PATIENCE_SECONDS, running, shared, wait_for
from run_tests import Skip

MINE, ANOTHER = "a-key-of-some-agents", "a-key-of-somebody-else"
LONG = {"prompt": "Count from 3 to 90.", "max_tokens": 800, "ignore_eos": True, "temperature": 1, "return_token_ids": True}
TEXT = {"type": "string", "minLength": 300, "maxLength": 400}
TOOL = {"type": "function", "function": {"name": "write", "strict": True, "parameters": {
    "type": "object", "properties": {"text": TEXT}, "required": ["text"], "additionalProperties": False}}}
CHAT = {"messages": [{"role": "user", "content": "Write."}], "tools": [TOOL], "tool_choice": "required", "temperature": 1,
        "max_tokens": 1000}


def headers(key=MINE, resume=None):
    named = {"Authorization": "Bearer " + key}
    return {**named, "x-tessera-resume": resume} if resume else named


def events(c, path, body, resume=None):
    """The events of a stream, which ends well; closing it leaves it."""
    connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps({**body, "stream": True}), headers(resume=resume))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        for line in response:
            if line.startswith(b"data: {"):
                yield json.loads(line[len(b"data: "):])
            elif line.strip() == b"data: [DONE]":
                return
    raise AssertionError("the stream broke off")


def begun(c, path, body, count):
    """So many events of a stream, then the client leaves; (id, events)."""
    stream = events(c, path, body)
    said = [next(stream) for _ in range(count)]
    stream.close()
    return said[0]["id"], said


def tokens(said):
    return [token for event in said for choice in event["choices"] for token in choice["token_ids"]]


def text(said):
    return "".join(choice["text"] for event in said for choice in event["choices"])


def arguments(said):
    deltas = [choice["delta"] for event in said for choice in event["choices"]]
    return "".join(call["function"].get("arguments", "") for delta in deltas for call in delta.get("tool_calls", []))


def resumed_behind(c, answer):
    """Behind how many tokens each resumption of the answer went on."""
    return [int(n) for n in re.findall(rf"resumes {answer} behind (\d+) tokens", c.log("coordinator"))]


@functools.cache
def flags():
    keys = pathlib.Path(tempfile.mkdtemp()) / "keys"
    keys.write_text(f"{MINE} name=mine\n{ANOTHER} name=another\n")
    keys.chmod(0o600)
    return "--api-key-file", str(keys), "--dtype", "float32"


def ask(c, body, key=MINE, resume=None):
    status, _, answer = c.request("POST", "/v1/completions", body, headers(key, resume))
    return status, json.loads(answer)


def test_an_answer_goes_on_where_its_client_left_it():
    with shared(*flags(), workers=2) as c:
        answer, first = begun(c, "/v1/completions", LONG, 8)
        said = list(events(c, "/v1/completions", LONG, answer))
        assert {event["id"] for event in said} == {answer}
        assert tokens(said)[:len(tokens(first))] == tokens(first) and len(tokens(said)) == LONG["max_tokens"]
        assert text(said).startswith(text(first)) and said[-1]["choices"][0]["finish_reason"] == "length"
        behind = resumed_behind(c, answer)
        assert len(behind) == 1 and len(tokens(first)) <= behind[0] < LONG["max_tokens"], behind
        # What has ended comes again too, and is the same.
        again = list(events(c, "/v1/completions", LONG, answer))
        assert tokens(again) == tokens(said) and text(again) == text(said)
        assert resumed_behind(c, answer)[1] == LONG["max_tokens"]

        # As if it had never broken: with a seed, and a stop string that stands behind the break.
        for body in ({**LONG, "seed": 5}, {**LONG, "seed": 6, "temperature": 0.8, "presence_penalty": 0.5}):
            whole = list(events(c, "/v1/completions", body))
            middle = len(text(whole)) // 2
            stop = text(whole)[middle:middle + 6]
            for asked in (body, {**body, "stop": [stop]}):
                expected = tokens(events(c, "/v1/completions", asked))
                answer, _ = begun(c, "/v1/completions", asked, 5)
                assert tokens(events(c, "/v1/completions", asked, answer)) == expected


def test_an_answer_is_that_of_one_key_and_one_request():
    with shared(*flags(), workers=2) as c:
        answer, first = begun(c, "/v1/completions", LONG, 5)
        wait_for("404", lambda: ask(c, LONG, ANOTHER, answer)[0] == 404)
        status, error = ask(c, LONG, ANOTHER, answer)
        assert status == 404 and "within the last minute" in error["error"]["message"], (status, error)
        for change, named in (({"max_tokens": 700}, "max_tokens"), ({"prompt": "Count."}, "prompt"), ({"seed": 3}, "seed"),
                              ({"temperature": 0.5}, "temperature"), ({"n": 2}, "n:"), ({"logprobs": 1}, "logprobs"),
                              ({"prompt": ["a", "b"]}, "prompt")):
            status, error = ask(c, {**LONG, **change}, resume=answer)
            assert status == 400 and named in error["error"]["message"], (change, status, error)
        # Soon after the start such an answer might be that of a replica that is not there yet.
        wait_for("404", lambda: ask(c, LONG, resume="cmpl-none")[0] == 404)
        status, error = ask(c, LONG, resume="cmpl-none")
        assert status == 404 and "cmpl-none" in error["error"]["message"], (status, error)
        # None of these took anything away. Without a stream the same comes whole.
        status, whole = ask(c, LONG, resume=answer)
        assert status == 200 and whole["id"] == answer
        assert whole["choices"][0]["token_ids"][:len(tokens(first))] == tokens(first)


def test_whoever_resumes_a_stream_that_runs_ends_it():
    with shared(*flags(), workers=2) as c:
        stream = c.stream(LONG, headers())
        first = next(stream)
        said, ended = [first], threading.Event()

        def read():
            said.extend(stream)
            ended.set()

        threading.Thread(target=read).start()
        again = list(events(c, "/v1/completions", LONG, first["id"]))
        assert ended.wait(PATIENCE_SECONDS)
        assert "resumes this answer" in said.pop()["error"]["message"]
        assert tokens(again)[:len(tokens(said))] == tokens(said) and len(tokens(again)) == LONG["max_tokens"]


def busier(c):
    """The worker, "w0" or "w1", that runs a sequence."""
    running_at = {engine: count for series, count in c.metrics().items()
                  for engine in re.findall(r'^vllm:num_requests_running{engine="r-(w\d)/0"', series)}
    return max(running_at, key=running_at.get)


def test_a_resumed_stream_outlives_its_worker_and_what_a_dead_worker_kept_is_said_to_be_gone():
    with running(*flags()) as c:
        body = {**LONG, "seed": 11}
        expected = tokens(events(c, "/v1/completions", body))
        answer, first = begun(c, "/v1/completions", body, 4)
        assert tokens(first) == expected[:len(tokens(first))]
        stream = events(c, "/v1/completions", body, answer)
        said = [next(stream)]
        killed = busier(c)
        c.signal(killed, KILL)
        said += stream
        assert tokens(said) == expected
        assert re.search(rf"continues on replica r-w\d/0, attempt \d: replica r-{killed}/0 was lost", c.log("coordinator"))
        # The other worker has made the end of it, so that it keeps the whole.
        assert tokens(events(c, "/v1/completions", body, answer)) == expected

        # Nobody reads this one when its worker is killed.
        answer, _ = begun(c, "/v1/completions", body, 4)
        survivor = {"w0": "w1", "w1": "w0"}[killed]
        c.signal(survivor, KILL)
        c.ended(survivor)
        c.start_worker(survivor)

        def settled():
            status, error = ask(c, body, resume=answer)
            assert status in (404, 503), (status, error)
            return error["error"]["message"] if status == 404 else None

        assert answer in wait_for("404", settled)


def test_a_call_of_a_tool_goes_on():
    with shared(*flags(), workers=2) as c:
        status, _, refusal = c.request("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 1}, headers())
        if status == 400 and "deploy/install_xgrammar" in refusal:
            raise Skip("no xgrammar: deploy/install_xgrammar")
        answer, first = begun(c, "/v1/chat/completions", CHAT, 12)
        said = list(events(c, "/v1/chat/completions", CHAT, answer))
        again = list(events(c, "/v1/chat/completions", CHAT, answer))
        assert arguments(said).startswith(arguments(first)) and arguments(first)
        assert arguments(again) == arguments(said)
        assert said[-1]["choices"][0]["finish_reason"] == "tool_calls", said[-1]
        text = json.loads(arguments(said))["text"]
        assert 300 <= len(text) <= 400, (len(text), ascii(text))
        assert resumed_behind(c, answer)[0] > 0
