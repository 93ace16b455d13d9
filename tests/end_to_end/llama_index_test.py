"""LlamaIndex's clients: chats, streams, an agent's two tools, a class, completions and embeddings."""

import asyncio
import sys

from agents_test import ANSWER, QUESTION, scripted
from cluster import shared
from frameworks_test import clock, has_grammars, place_class, weather
from pip_client import install

# Ones that are known to be asked the right things; raised by hand.
CLIENTS = ("llama-index-core==0.14.25", "llama-index-llms-openai-like==0.8.1", "llama-index-embeddings-openai-like==0.4.0")
ASKED = "What is 57 + 85?"


def prepare():
    """Installs them from PyPI, together."""
    sys.path[:0] = [str(p) for p in install(*CLIENTS).glob("lib/python*/site-packages")]


def model_of(url, name, **options):
    from llama_index.llms.openai_like import OpenAILike

    options = {"is_chat_model": True, "is_function_calling_model": True, "context_window": 1024, **options}
    return OpenAILike(model=name, api_base=f"{url}/v1", api_key="unused", max_retries=0, **options)


def tools():
    from llama_index.core.tools import FunctionTool

    return [FunctionTool.from_defaults(weather), FunctionTool.from_defaults(clock)]


def test_an_agent():
    from llama_index.core.agent.workflow import FunctionAgent

    async def ask(model, streaming):
        agent = FunctionAgent(tools=tools(), llm=model, streaming=streaming)
        return str(await agent.run(QUESTION))

    with scripted() as url:
        for streaming in (False, True):
            assert asyncio.run(ask(model_of(url, "scripted"), streaming)) == ANSWER, streaming


def test_calls():
    with scripted() as url:
        model = model_of(url, "scripted")
        reply = model.chat_with_tools(tools(), user_msg=QUESTION, allow_parallel_tool_calls=True)
        made = model.get_tool_calls_from_response(reply)
        assert [call.tool_name for call in made] == ["weather", "clock"], made
        (first,) = model.get_tool_calls_from_response(
            model.chat_with_tools(tools(), user_msg=QUESTION, allow_parallel_tool_calls=False))
        assert first.tool_name == "weather", first


def test_the_shipped_model():
    from llama_index.core.llms import ChatMessage

    with shared() as c:
        url = f"http://127.0.0.1:{c.port}"
        model = model_of(url, "tessera-demo", temperature=0)
        asked = [ChatMessage(role="user", content=ASKED)]
        assert model.chat(asked).message.content == "142"
        assert [delta.delta for delta in model.stream_chat(asked) if delta.delta], "nothing was streamed"
        assert asyncio.run(model.achat(asked)).message.content == "142"
        plain = model_of(url, "tessera-demo", is_chat_model=False, temperature=0, max_tokens=5)
        assert plain.complete("What").text
        assert "".join(piece.delta for piece in plain.stream_complete("What")) == plain.complete("What").text


def test_a_class():
    place = place_class()
    with shared() as c:
        has_grammars(c)
        model = model_of(f"http://127.0.0.1:{c.port}", "tessera-demo", should_use_structured_outputs=True)
        made = model.as_structured_llm(place).complete("A place.").raw
        assert isinstance(made, place), made


def test_embeddings():
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    with shared() as c:
        embeddings = OpenAILikeEmbedding(model_name="tessera-demo", api_base=f"http://127.0.0.1:{c.port}/v1",
                                         api_key="unused", max_retries=0)
        assert len(embeddings.get_query_embedding("a badge")) == 160
        assert len(embeddings.get_text_embedding_batch(["a", "b", "c"])) == 3
