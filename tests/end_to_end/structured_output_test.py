"""Answers that have a form, by a model that is heated until it says anything: whatever ends by itself is of the form, also
where its worker was killed, on stages, and where another replica computed the prompt."""

import itertools
import json
import re
import threading
import time

from cluster import KILL, running, shared, stream_all
from handover_test import split
from run_tests import Skip
from staged_replica_test import staged

# The shipped model knows nothing of JSON; at this temperature it has no habits either.
HOT = {"temperature": 4, "max_tokens": 400}


def prepare():
    with shared() as c:
        status, _, body = c.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "guided_choice": ["a"]})
        if status == 400 and "deploy/install_xgrammar" in body:
            raise Skip("no xgrammar: deploy/install_xgrammar")
        assert status == 200, body


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


PERSON = {"type": "object", "required": ["name", "age", "tags"], "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 6},
    "age": {"type": "integer", "minimum": 0, "maximum": 130},
    "tags": {"type": "array", "items": {"enum": ["a", "b\"", None]}, "maxItems": 3}}}
TREE = {"$defs": {"node": {"type": "object", "properties": {
    "value": {"type": "boolean"}, "left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}},
    "required": ["value"]}}, "$ref": "#/$defs/node"}


def is_person(value):
    return (list(value) == ["name", "age", "tags"] and 1 <= len(value["name"]) <= 6 and is_integer(value["age"])
            and 0 <= value["age"] <= 130 and len(value["tags"]) <= 3 and set(value["tags"]) <= {"a", "b\"", None})


def is_node(value):
    return (isinstance(value.get("value"), bool) and set(value) <= {"value", "left", "right"}
            and all(is_node(value[side]) for side in ("left", "right") if side in value))


# Each with what its values are.
SCHEMAS = [
    (PERSON, is_person),
    (TREE, is_node),
    ({"type": "string", "maxLength": 5}, lambda v: isinstance(v, str) and len(v) <= 5),
    ({"type": "string", "pattern": "^[a-f]{2}-\\d+$"}, lambda v: re.search("^[a-f]{2}-\\d+$", v)),
    ({"type": "string", "format": "date"}, lambda v: time.strptime(v, "%Y-%m-%d")),
    ({"type": "string", "format": "uuid"}, lambda v: re.fullmatch("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", v)),
    ({"type": "integer"}, is_integer),
    ({"type": "integer", "exclusiveMinimum": -3, "maximum": 1200}, lambda v: is_integer(v) and -3 < v <= 1200),
    ({"type": "number", "minimum": -0.25, "exclusiveMaximum": 2}, lambda v: -0.25 <= v < 2),
    ({"type": "integer", "multipleOf": 13}, lambda v: v % 13 == 0),
    ({"type": ["boolean", "null"]}, lambda v: v in (True, False, None)),
    ({"enum": ["yes", 7, {"a": [1]}]}, lambda v: v in ("yes", 7, {"a": [1]})),
    ({"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 2, "maxItems": 4},
     lambda v: 2 <= len(v) <= 4 and all(0 <= x <= 1 for x in v)),
    ({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": False, "minItems": 1},
     lambda v: v in ([None], [None, True], [None, False])),
    ({"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3},
     lambda v: len(v) <= 3 and all(isinstance(x, bool) for x in v.values())),
    ({"type": "object", "patternProperties": {"^x[0-9]$": {"type": "null"}}},
     lambda v: all(re.search("^x[0-9]$", k) and x is None for k, x in v.items())),
    ({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]},
     lambda v: v in (None, {"a": 1})),
    ({"oneOf": [{"properties": {"kind": {"const": "a"}}, "required": ["kind"], "type": "object"},
                {"properties": {"kind": {"const": "b"}, "n": {"type": "null"}}, "required": ["kind"], "type": "object"}]},
     lambda v: v in ({"kind": "a"}, {"kind": "b"}, {"kind": "b", "n": None})),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"a": {"minimum": 5}, "b": {"type": "null"}}}]},
     lambda v: v["a"] >= 5 and set(v) <= {"a", "b"}),
    ({"type": "object"}, lambda v: isinstance(v, dict)),
]


def ask(c, fields, path="/v1/completions"):
    prompt = {"prompt": "x"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    status, headers, body = c.request("POST", path, {**prompt, **fields})
    return status, json.loads(body)


def choices(c, fields, path="/v1/completions"):
    status, reply = ask(c, fields, path)
    assert status == 200, reply
    return [(choice.get("text", choice.get("message", {}).get("content")), choice["finish_reason"])
            for choice in reply["choices"]]


def as_format(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}}


def check_all(c, schemas, rounds=(1, 2)):
    ended = 0
    for schema, fits in schemas:
        for seed in rounds:
            for text, finish in choices(c, {**HOT, **as_format(schema), "n": 4, "seed": seed}):
                if finish == "stop":
                    assert fits(json.loads(text)), (schema, text)
                    ended += 1
    assert ended >= 2 * len(schemas) * len(rounds), ended


def test_whatever_ends_is_of_its_schema():
    with shared() as c:
        check_all(c, SCHEMAS)


def test_other_forms():
    with shared() as c:
        for text, finish in choices(c, {**HOT, "guided_regex": "[ab]{3}|[0-9]", "n": 8}):
            assert finish == "stop" and re.fullmatch("[ab]{3}|[0-9]", text), text
        for text, finish in choices(c, {**HOT, "guided_choice": ["yes", "no way"], "n": 8}, "/v1/chat/completions"):
            assert finish == "stop" and text in ("yes", "no way"), text
        grammar = 'root ::= "<" word ("," word)? ">"\nword ::= [a-z]{1,4}'
        for text, finish in choices(c, {**HOT, "guided_grammar": grammar, "n": 8}):
            assert finish == "stop" and re.fullmatch("<[a-z]{1,4}(,[a-z]{1,4})?>", text), text
        for text, finish in choices(c, {**HOT, "response_format": {"type": "json_object"}, "n": 8}):
            assert finish == "length" or isinstance(json.loads(text), dict), text
        status, reply = ask(c, {"guided_grammar": "root ::= (", "max_tokens": 5})
        assert status == 400, reply
        # Beside logprobs, bans, penalties and a stop id that is a letter.
        text, finish = choices(c, {**HOT, **as_format(PERSON), "logprobs": 3, "min_tokens": 300, "presence_penalty": 1,
                                   "logit_bias": {"40": 100}, "ignore_eos": True})[0]
        assert finish == "length" or is_person(json.loads(text)), text


def test_a_form_that_cannot_be_held_is_refused_at_once():
    deep = {}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    cases = [(as_format({"properties": {"a": {"not": {"pattern": "x"}}}}), "$.a: not is not enforced"),
             ({"guided_json": json.dumps(deep)}, "nest"),
             ({"guided_json": {"enum": ["x" * 100 + str(i) for i in range(3000)]}}, "larger than"),
             ({"guided_regex": "(" * 100 + ")" * 100}, "nest"),
             ({"guided_regex": "((a{1000}){1000}){1000}"}, "repeats"),
             ({"guided_grammar": "root ::= " + "(" * 100 + '"a"' + ")" * 100}, "nests")]
    with shared() as c:
        for fields, named in cases:
            began = time.monotonic()
            status, reply = ask(c, {**fields, "max_tokens": 5})
            assert status == 400 and named in reply["error"]["message"], reply
            assert time.monotonic() - began < 5, fields


def test_a_grammar_of_too_many_readings_ends_alone():
    many = 'root ::= x ("a"){300}\nx ::= x x x | x x | "a" | "a" x | x "a"'
    with shared() as c:
        gaps, over = [], threading.Event()

        def other():
            while not over.is_set():
                last = time.monotonic()
                for event in c.stream({"prompt": "x", "max_tokens": 200, "ignore_eos": True}):
                    assert "error" not in event, event
                    gaps.append(time.monotonic() - last)
                    last = time.monotonic()

        beside = [threading.Thread(target=other) for _ in range(4)]  # on each worker
        for thread in beside:
            thread.start()
        status, reply = ask(c, {**HOT, "guided_grammar": many})
        over.set()
        for thread in beside:
            thread.join()
        assert status == 400 and "can read the same text in too many ways" in reply["error"]["message"], reply
        assert gaps and max(gaps) < 10, max(gaps)
        for text, finish in choices(c, {**HOT, "guided_choice": ["yes", "no way"]}):
            assert finish == "stop", text


def collect(c, index, said, started):
    body = {"prompt": f"Count from {index}", **HOT, **as_format(TREE if index % 2 else SCHEMAS[12][0]), "seed": index + 3,
            "n": 3, "return_token_ids": True, "min_tokens": 60}
    for event in c.stream(body):
        assert "error" not in event, event
        for choice in event["choices"]:
            said[choice["index"]]["text"] += choice["text"]
            said[choice["index"]]["finish"] = choice["finish_reason"] or said[choice["index"]]["finish"]
        started.set()


def run_all(c, after_start=None, streams=6):
    said = [[{"text": "", "finish": None} for _ in range(3)] for _ in range(streams)]
    stream_all(lambda *stream: collect(c, *stream), said, after_start)
    for i, choice in itertools.chain.from_iterable(((i, choice) for choice in said[i]) for i in range(streams)):
        if choice["finish"] == "stop":
            value = json.loads(choice["text"])
            assert is_node(value) if i % 2 else SCHEMAS[12][1](value), choice
    return said


def test_streams_with_a_form_survive_their_worker():
    with running("--dtype", "float32", "--no-enable-prefix-caching") as c:
        undisturbed = run_all(c)

        def kill_the_busier():
            running_at = {k.split('engine="r-')[1].split("/")[0]: v for k, v in c.metrics().items()
                          if k.startswith("vllm:num_requests_running")}
            c.signal(max(running_at, key=running_at.get), KILL)

        assert run_all(c, kill_the_busier) == undisturbed


def test_on_stages(tmp):
    with staged(tmp) as c:
        check_all(c, SCHEMAS[:4], rounds=(1,))


def test_where_another_replica_computes_the_prompt(tmp):
    with split(tmp) as c:
        check_all(c, SCHEMAS[:4], rounds=(1,))
