"""litellm in front of every door that it knows: chats with tools against a scripted model, the rest against the shipped
one."""

import json
import os
import sys

from agents_test import QUESTION, call, scripted
from cluster import shared
from frameworks_test import has_grammars, place_class
from pip_client import install

# One that is known to be asked the right things; raised by hand.
CLIENT = "litellm==1.110.2"
ASKED = [{"role": "user", "content": "What is 57 + 85?"}]


def prepare():
    """Installs it from PyPI."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # not the one of its repository
    sys.path[:0] = [str(p) for p in install(CLIENT).glob("lib/python*/site-packages")]


def test_tools():
    import litellm

    offered = [{"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": properties}}}
        for name, properties in [("weather", {"city": {"type": "string"}}), ("clock", {})]]
    with scripted() as url:
        for streamed in (False, True):
            reply = litellm.completion(model="openai/scripted", api_base=f"{url}/v1", api_key="unused", tools=offered,
                                       messages=[{"role": "user", "content": QUESTION}], stream=streamed)
            if streamed:
                reply = litellm.stream_chunk_builder(list(reply))
            choice = reply.choices[0]
            assert choice.finish_reason == "tool_calls", choice
            said = [call(made.function.name, json.loads(made.function.arguments))
                    for made in choice.message.tool_calls]
            assert said == ["sun", "noon"], choice


def test_other_doors():
    import litellm

    with shared() as c:
        url = f"http://127.0.0.1:{c.port}"
        of_openai = {"model": "openai/tessera-demo", "api_base": f"{url}/v1", "api_key": "unused"}
        whole = litellm.completion(**of_openai, messages=ASKED)
        text = whole.choices[0].message.content
        assert text and whole.usage.completion_tokens > 0, whole
        stream = litellm.completion(**{**of_openai, "model": "hosted_vllm/tessera-demo"}, messages=ASKED, stream=True,
                                    stream_options={"include_usage": True})
        streamed = litellm.stream_chunk_builder(list(stream))
        assert streamed.choices[0].message.content == text and streamed.usage.completion_tokens > 0, streamed
        anthropic = litellm.completion(model="anthropic/tessera-demo", api_base=url, api_key="unused", max_tokens=50,
                                       messages=ASKED)
        assert anthropic.choices[0].message.content == text, anthropic
        response = litellm.responses(**of_openai, input=ASKED[0]["content"])
        assert response.output[-1].content[0].text == text, response
        vectors = litellm.embedding(**of_openai, input=["a", "b"]).data
        assert [len(item["embedding"]) for item in vectors] == [160, 160]


def test_a_class():
    import litellm

    place = place_class()
    with shared() as c:
        has_grammars(c)
        made = litellm.completion(model="openai/tessera-demo", api_base=f"http://127.0.0.1:{c.port}/v1",
                                  api_key="unused", response_format=place,
                                  messages=[{"role": "user", "content": "A place."}])
        assert place.model_validate_json(made.choices[0].message.content), made
