"""The OpenAI and Anthropic Python clients against the shipped model: Responses and Messages, calls that are demanded, answers
of a class, and what is refused."""

import asyncio
import contextlib
import json
import sys
import typing

from agents_test import CLIENTS
from cluster import shared
from frameworks_test import has_grammars, place_class
from pip_client import install

MODEL = "tessera-demo"
QUESTION = [{"role": "user", "content": "What is 57 + 85?"}]
TOO_LONG = "word " * 9000
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
        "additionalProperties": False}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


def prepare():
    """Installs the clients from PyPI."""
    for client in CLIENTS:
        sys.path[:0] = [str(p) for p in install(client).glob("lib/python*/site-packages")]


@contextlib.contextmanager
def clients(*flags, grammars=True, key="unused"):
    """OpenAI's and Anthropic's."""
    import anthropic
    import openai

    with shared(*flags) as c:
        if grammars:
            has_grammars(c)
        url = f"http://127.0.0.1:{c.port}"
        yield (openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0),
               anthropic.Anthropic(base_url=url, api_key=key, max_retries=0))


def function(name, schema, **fields):
    return {"type": "function", "function": {"name": name, "parameters": schema, **fields}}


TOOLS = [function("weather", CITY), function("clock", NOTHING)]


def calls_of(message):
    """(name, arguments) of each."""
    made = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    assert made and all(name in ("weather", "clock") for name, _ in made), message
    return made


def test_responses():
    with clients(grammars=False) as (openai, _):
        asked = {"model": MODEL, "input": QUESTION[0]["content"], "temperature": 0}
        assert openai.responses.create(**asked).output_text == "142"
        *_, last = openai.responses.create(**asked, stream=True)
        assert last.type == "response.completed" and last.response.output_text == "142", last
        counted = openai.responses.input_tokens.count(model=MODEL, input=asked["input"]).input_tokens
        assert counted == last.response.usage.input_tokens, (counted, last.response.usage)


def test_responses_of_a_class():
    place = place_class()
    with clients() as (openai, _):
        asked = {"model": MODEL, "input": "A place.", "text_format": place}
        assert isinstance(openai.responses.parse(**asked).output_parsed, place)
        with openai.responses.stream(**asked) as stream:
            assert isinstance(stream.get_final_response().output_parsed, place)


def test_responses_call_a_tool():
    tools = [{"type": "function", "name": "weather", "strict": True, "parameters": CITY},
             {"type": "function", "name": "clock", "strict": False, "parameters": NOTHING}]
    with clients() as (openai, _):
        with openai.responses.stream(model=MODEL, input=QUESTION, tools=tools, tool_choice="required") as stream:
            response = stream.get_final_response()
        made = response.output[-1]
        assert made.type == "function_call" and made.name in ("weather", "clock"), response
        json.loads(made.arguments)
        then = [*QUESTION, *(item.to_dict() for item in response.output),
                {"type": "function_call_output", "call_id": made.call_id, "output": "sun"}]
        told = openai.responses.create(model=MODEL, input=then, tools=tools, max_output_tokens=20)
        assert told.usage.input_tokens > response.usage.input_tokens, told


def test_a_function_of_a_class():
    import openai
    import pydantic

    class Weather(pydantic.BaseModel):
        """What the weather is."""

        city: typing.Literal["Rom", "Ulm"]

    with clients() as (client, _):
        reply = client.chat.completions.parse(model=MODEL, messages=QUESTION, tool_choice="required",
                                              tools=[openai.pydantic_function_tool(Weather)])
        (made, *_) = reply.choices[0].message.tool_calls
        assert isinstance(made.function.parsed_arguments, Weather), reply


def test_calls_of_several_choices():
    asked = {"model": MODEL, "messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "n": 3, "seed": 5,
             "temperature": 1}
    with clients() as (openai, _):
        whole = openai.chat.completions.create(**asked).choices
        assert all(choice.finish_reason == "tool_calls" for choice in whole), whole
        ids = [call.id for choice in whole for call in choice.message.tool_calls]
        assert len(set(ids)) == len(ids), ids
        with openai.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            streamed = stream.get_final_completion()
        assert [calls_of(choice.message) for choice in streamed.choices] == [calls_of(choice.message) for choice in whole]
        assert streamed.usage.completion_tokens > 0, streamed.usage


def test_a_class_or_calls():
    """Beside free tools too, every answer is of the form or a whole call."""
    place = place_class()
    with clients() as (openai, _):
        choices = openai.chat.completions.create(
            model=MODEL, messages=QUESTION, tools=TOOLS, n=8, seed=4, temperature=1, response_format={
                "type": "json_schema", "json_schema": {"name": "place", "schema": place.model_json_schema()}}).choices
        for choice in choices:
            if choice.finish_reason == "tool_calls":
                calls_of(choice.message)
            elif choice.finish_reason == "stop":
                place.model_validate_json(choice.message.content)
        assert any(choice.finish_reason != "length" for choice in choices), choices


def test_one_call():
    """Generation ends with the first call: the answer takes no more tokens than that."""
    asked = {"model": MODEL, "messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "temperature": 1}
    with clients() as (openai, anthropic):
        for seed in range(4):
            free = openai.chat.completions.create(**asked, seed=seed)
            one = openai.chat.completions.create(**asked, seed=seed, parallel_tool_calls=False)
            (made,) = calls_of(one.choices[0].message)
            assert one.choices[0].finish_reason == "tool_calls", one
            assert made == calls_of(free.choices[0].message)[0], (made, free)
            assert one.usage.completion_tokens <= free.usage.completion_tokens, (one.usage, free.usage)
        tools = [{"name": "weather", "input_schema": CITY}, {"name": "clock", "input_schema": NOTHING}]
        message = anthropic.messages.create(model=MODEL, max_tokens=300, messages=QUESTION, tools=tools,
                                            tool_choice={"type": "any", "disable_parallel_tool_use": True})
        assert [block.type for block in message.content] == ["tool_use"] and message.stop_reason == "tool_use", message


def test_messages():
    with clients(grammars=False) as (_, anthropic):
        asked = {"model": MODEL, "max_tokens": 20, "messages": QUESTION, "extra_body": {"temperature": 0}}
        whole = anthropic.messages.create(**asked)
        assert whole.content[0].text == "142" and whole.stop_reason == "end_turn", whole
        with anthropic.messages.stream(**asked) as stream:
            assert "".join(stream.text_stream) == "142"
        stopped = anthropic.messages.create(**asked, stop_sequences=["4"], metadata={"user_id": "x"}, system=[
            {"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}])
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "4"), stopped
        begun = [*QUESTION, {"role": "assistant", "content": "14"}]
        assert anthropic.messages.create(**{**asked, "messages": begun}).content[0].text == "2"
        usage = anthropic.messages.create(**asked).usage
        counted = anthropic.messages.count_tokens(model=MODEL, messages=QUESTION).input_tokens
        assert counted == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage)


def test_messages_call_tools():
    tools = [{"name": "weather", "input_schema": CITY}, {"name": "clock", "input_schema": NOTHING}]
    with clients() as (_, anthropic):
        asked = {"model": MODEL, "max_tokens": 300, "tools": tools}
        with anthropic.messages.stream(**asked, messages=QUESTION, tool_choice={"type": "any"}) as stream:
            message = stream.get_final_message()
        assert message.stop_reason == "tool_use", message
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "sun"}
                   for block in message.content if block.type == "tool_use"]
        then = [*QUESTION, {"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        assert anthropic.messages.create(**asked, messages=then).usage.output_tokens > 0


def test_messages_of_a_class():
    """The client leaves bounds of numbers out of the schema that it sends, so the class has none."""
    import pydantic

    class Visit(pydantic.BaseModel):
        city: typing.Literal["Rom", "Ulm"]
        sunny: bool

    with clients() as (_, anthropic):
        made = anthropic.messages.parse(model=MODEL, max_tokens=200, output_format=Visit,
                                        messages=[{"role": "user", "content": "A visit."}])
        assert isinstance(made.parsed_output, Visit), made


def test_many_at_once():
    import openai

    async def ask(client):
        asked = {"model": MODEL, "messages": QUESTION, "temperature": 0}
        return await asyncio.gather(*(client.chat.completions.create(**asked) for _ in range(12)))

    with shared() as c:
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{c.port}/v1", api_key="unused", max_retries=0)
        assert {reply.choices[0].message.content for reply in asyncio.run(ask(client))} == {"142"}


def test_errors():
    import anthropic
    import openai

    def refused(kind, ask):
        try:
            ask()
        except kind as error:
            return error
        raise AssertionError(f"was not refused as {kind}")

    with clients("--api-key", "secret", grammars=False, key="secret") as (of_openai, of_anthropic):
        def respond(text, model=MODEL, client=of_openai):
            return client.responses.create(model=model, input=text)

        def message(text, model=MODEL, client=of_anthropic):
            return client.messages.create(model=model, max_tokens=5, messages=[{"role": "user", "content": text}])

        refused(openai.AuthenticationError, lambda: respond("x", client=of_openai.with_options(api_key="bad")))
        assert "gpt-9" in refused(openai.NotFoundError, lambda: respond("x", "gpt-9")).message
        assert refused(openai.BadRequestError, lambda: respond(TOO_LONG)).code == "context_length_exceeded"
        refused(openai.BadRequestError, lambda: list(of_openai.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": TOO_LONG}], stream=True)))
        refused(anthropic.AuthenticationError, lambda: message("x", client=of_anthropic.with_options(api_key="bad")))
        refused(anthropic.NotFoundError, lambda: message("x", "claude-9"))
        refused(anthropic.BadRequestError, lambda: message(TOO_LONG))
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
        assert "image_url" in refused(openai.BadRequestError, lambda: of_openai.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": [picture]}])).message
        for empty in ([], ""):
            assert refused(openai.BadRequestError, lambda e=empty: of_openai.embeddings.create(
                model=MODEL, input=e)).param == "input"
