"""Agent frameworks of other people (pydantic-ai, instructor, openai-agents): loops with two tools against a scripted
model, and answers of a class from the shipped one."""

import sys
import typing

from agents_test import ANSWER, CITY, QUESTION, scripted
from cluster import shared
from pip_client import install
from run_tests import Skip

# Ones that are known to be asked the right things; raised by hand.
FRAMEWORKS = ("pydantic-ai-slim[openai,anthropic]==2.38.0", "instructor==1.17.0", "openai-agents==0.24.0")


def prepare():
    """Installs them from PyPI, together."""
    sys.path[:0] = [str(p) for p in install(*FRAMEWORKS).glob("lib/python*/site-packages")]


def weather(city: str) -> str:
    """What the weather is."""
    assert city == CITY, city
    return "sun"


def clock() -> str:
    """What time it is."""
    return "noon"


def place_class():
    import pydantic

    class Place(pydantic.BaseModel):
        city: typing.Literal["Rom", "Ulm"]
        days: int = pydantic.Field(ge=1, le=9)
        sunny: bool

    return Place


def has_grammars(c):
    status, _, reply = c.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "guided_choice": ["a"]})
    if status == 400 and "install_xgrammar" in reply:
        raise Skip("no xgrammar: deploy/install_xgrammar")
    assert status == 200, reply


def pydantic_models(url):
    """Not its Anthropic one: this release and anthropic 2.14 do not fit each other, whatever the server."""
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="unused")
    return OpenAIChatModel("scripted", provider=provider), OpenAIResponsesModel("scripted", provider=provider)


def test_pydantic_ai_calls_tools():
    from pydantic_ai import Agent

    with scripted() as url:
        for model in pydantic_models(url):
            agent = Agent(model, tools=[weather, clock])
            result = agent.run_sync(QUESTION)
            assert result.output == ANSWER, (model, result)
            assert result.usage.output_tokens > 0, result.usage


def test_pydantic_ai_streams():
    import asyncio

    from pydantic_ai import Agent

    async def ask(model):
        async with Agent(model, tools=[weather, clock]).run_stream(QUESTION) as result:
            return await result.get_output()

    with scripted() as url:
        for model in pydantic_models(url)[:1]:
            # The first text of a stream is its answer, to this framework.
            assert asyncio.run(ask(model)) in (ANSWER, "One moment."), model


def test_pydantic_ai_gets_a_class():
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    place = place_class()
    with shared() as c:
        has_grammars(c)
        provider = OpenAIProvider(base_url=f"http://127.0.0.1:{c.port}/v1", api_key="unused")
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            agent = Agent(kind("tessera-demo", provider=provider), output_type=NativeOutput(place))
            result = agent.run_sync("A place.")
            assert isinstance(result.output, place), result


def test_instructor_gets_a_class():
    import instructor
    import openai

    place = place_class()
    with shared() as c:
        has_grammars(c)
        client = instructor.from_openai(openai.OpenAI(base_url=f"http://127.0.0.1:{c.port}/v1", api_key="unused"),
                                        mode=instructor.Mode.JSON_SCHEMA)
        made = client.chat.completions.create(model="tessera-demo", response_model=place, max_retries=0,
                                              messages=[{"role": "user", "content": "A place."}])
        assert isinstance(made, place), made


def agents_models(url):
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    return (agents.OpenAIChatCompletionsModel(model="scripted", openai_client=client),
            agents.OpenAIResponsesModel(model="scripted", openai_client=client))


def test_openai_agents_calls_tools():
    """Its functions are strict: their calls are held where the build can."""
    import agents

    with scripted() as url:
        for model in agents_models(url):
            agent = agents.Agent(name="a", instructions="Help.", model=model,
                                 tools=[agents.function_tool(weather), agents.function_tool(clock)])
            assert agents.Runner.run_sync(agent, QUESTION).final_output == ANSWER, model


def test_openai_agents_streams():
    import asyncio

    import agents

    async def ask(agent):
        result = agents.Runner.run_streamed(agent, QUESTION)
        kinds = [event.type async for event in result.stream_events()]
        assert "raw_response_event" in kinds, kinds
        return result.final_output

    with scripted() as url:
        for model in agents_models(url):
            agent = agents.Agent(name="a", model=model,
                                 tools=[agents.function_tool(weather), agents.function_tool(clock)])
            assert asyncio.run(ask(agent)) == ANSWER, model


def test_openai_agents_gets_a_class():
    import agents
    import openai

    place = place_class()
    with shared() as c:
        has_grammars(c)
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{c.port}/v1", api_key="unused", max_retries=0)
        agents.set_tracing_disabled(True)
        for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
            agent = agents.Agent(name="a", output_type=place, model=kind(model="tessera-demo", openai_client=client))
            assert isinstance(agents.Runner.run_sync(agent, "A place.").final_output, place)
