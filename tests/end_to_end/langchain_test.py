"""LangChain's clients of OpenAI's and Anthropic's doors: loops with two tools against a scripted model; answers of a class
and embeddings from the shipped one."""

import sys

from agents_test import ANSWER, QUESTION, call, scripted
from cluster import shared
from frameworks_test import has_grammars, place_class
from pip_client import install

# Ones that are known to be asked the right things; raised by hand.
CLIENTS = ("langchain-openai==1.7.4", "langchain-anthropic==1.7.10")


def prepare():
    """Installs them from PyPI, together."""
    sys.path[:0] = [str(p) for p in install(*CLIENTS).glob("lib/python*/site-packages")]


def tools():
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """What the weather is."""
        return call("weather", {"city": city})

    @tool
    def clock() -> str:
        """What time it is."""
        return call("clock", {})

    return {made.name: made for made in (weather, clock)}


def loop(model, streamed):
    """The last answer, as text."""
    from langchain_core.messages import HumanMessage, ToolMessage

    offered = tools()
    bound = model.bind_tools(list(offered.values()))
    messages = [HumanMessage(QUESTION)]
    for _ in range(3):
        if streamed:
            reply = None
            for chunk in bound.stream(messages):
                reply = chunk if reply is None else reply + chunk
        else:
            reply = bound.invoke(messages)
        messages.append(reply)
        if not reply.tool_calls:
            assert reply.usage_metadata["output_tokens"] > 0, reply
            return reply.text
        for made in reply.tool_calls:
            messages.append(ToolMessage(offered[made["name"]].invoke(made["args"]), tool_call_id=made["id"]))
    raise AssertionError(f"no end: {messages}")


def test_tools():
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    with scripted() as url:
        openai = {"model": "scripted", "base_url": f"{url}/v1", "api_key": "unused"}
        for model in (ChatOpenAI(**openai, stream_usage=True), ChatOpenAI(**openai, use_responses_api=True),
                      ChatAnthropic(model="scripted", base_url=url, api_key="unused", max_tokens=400)):
            for streamed in (False, True):
                assert loop(model, streamed) == ANSWER, (model, streamed)


def test_a_call_that_was_cut_short_is_sent_back():
    """LangChain keeps it among invalid_tool_calls, and sends it with the next turn."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    with scripted() as url:
        model = ChatOpenAI(model="scripted", base_url=f"{url}/v1", api_key="unused").bind_tools(list(tools().values()))
        broken = AIMessage("", invalid_tool_calls=[{"name": "weather", "args": '{"city": "Zür', "id": "call_1",
                                                    "error": None}])
        reply = model.invoke([HumanMessage(QUESTION), broken, ToolMessage("no JSON", tool_call_id="call_1")])
        assert reply.tool_calls or reply.text, reply


def test_a_class_and_embeddings():
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    place = place_class()
    with shared() as c:
        has_grammars(c)
        of_door = {"base_url": f"http://127.0.0.1:{c.port}/v1", "api_key": "unused", "model": "tessera-demo"}
        made = ChatOpenAI(**of_door).with_structured_output(place, method="json_schema").invoke("A place.")
        assert isinstance(made, place), made
        embeddings = OpenAIEmbeddings(**of_door, check_embedding_ctx_length=False)
        assert len(embeddings.embed_query("a badge")) == 160
        assert len(embeddings.embed_documents(["a", "b", "c"])) == 3
