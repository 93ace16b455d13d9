"""Agent loops with two tools: the OpenAI and Anthropic Python clients against a scripted model."""

import contextlib
import json
import subprocess
import sys

from pip_client import install

# Ones that are known to be asked the right things; raised by hand.
CLIENTS = ("openai==3.52.0", "anthropic==2.14.0")
CITY = 'Zürich "City"'
QUESTION = "Weather and time?"
ANSWER = "sun and noon"


def prepare():
    """Installs the clients from PyPI."""
    for client in CLIENTS:
        sys.path[:0] = [str(p) for p in install(client).glob("lib/python*/site-packages")]


@contextlib.contextmanager
def scripted():
    """The URL of the door."""
    door = subprocess.Popen(["tests/end_to_end/scripted_door", "deploy/demo_model/tessera-demo"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{door.stdout.readline().strip()}"
    finally:
        door.stdin.close()
        assert door.wait(timeout=60) == 0


def call(name, arguments):
    """What the tools say."""
    assert (name, arguments) in [("weather", {"city": CITY}), ("clock", {})], (name, arguments)
    return {"weather": "sun", "clock": "noon"}[name]


def openai_loop(url, ask):
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    tools = [{"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": properties}}}
        for name, properties in [("weather", {"city": {"type": "string"}}), ("clock", {})]]
    messages = [{"role": "user", "content": QUESTION}]
    for _ in range(3):
        choice = ask(client, messages, tools)
        message = choice.message
        messages.append(message.to_dict())
        if not message.tool_calls:
            assert choice.finish_reason == "stop", choice
            return message.content, messages
        assert choice.finish_reason == "tool_calls", choice
        assert len(message.tool_calls) == 2, message
        for made in message.tool_calls:
            result = call(made.function.name, json.loads(made.function.arguments))
            messages.append({"role": "tool", "tool_call_id": made.id, "content": result})
    raise AssertionError(f"no end: {messages}")


def test_openai_whole():
    def ask(client, messages, tools):
        reply = client.chat.completions.create(model="scripted", messages=messages, tools=tools)
        return reply.choices[0]

    with scripted() as url:
        answer, messages = openai_loop(url, ask)
        assert answer == ANSWER, answer
        assert messages[1]["content"] == "One moment."
        assert messages[1]["reasoning_content"] == "Both tools are needed."


def test_openai_streamed():
    def ask(client, messages, tools):
        with client.chat.completions.stream(model="scripted", messages=messages, tools=tools) as stream:
            for event in stream:
                pass
            return stream.get_final_completion().choices[0]

    with scripted() as url:
        answer, messages = openai_loop(url, ask)
        assert answer == ANSWER, answer
        assert messages[1]["content"] == "One moment."


def responses_loop(url, ask):
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    tools = [{"type": "function", "name": name, "strict": False,
              "parameters": {"type": "object", "properties": properties}}
             for name, properties in [("weather", {"city": {"type": "string"}}), ("clock", {})]]
    items = [{"role": "user", "content": QUESTION}]
    for _ in range(3):
        response = ask(client, items, tools)
        assert response.status == "completed" and response.store is False, response
        items += [item.to_dict() for item in response.output]
        made = [item for item in response.output if item.type == "function_call"]
        if not made:
            return response.output_text
        assert [i.type for i in response.output] == ["reasoning", "message"] + 2 * ["function_call"]
        assert response.output[0].content[0].text == "Both tools are needed.", response
        assert response.output_text == "One moment.", response
        assert response.usage.total_tokens > response.usage.output_tokens > 0, response
        items += [{"type": "function_call_output", "call_id": item.call_id,
                   "output": call(item.name, json.loads(item.arguments))} for item in made]
    raise AssertionError(f"no end: {items}")


def test_responses_whole():
    def ask(client, items, tools):
        return client.responses.create(model="scripted", input=items, tools=tools)

    with scripted() as url:
        answer = responses_loop(url, ask)
        assert answer == ANSWER, answer


def test_responses_streamed():
    def ask(client, items, tools):
        with client.responses.stream(model="scripted", input=items, tools=tools) as stream:
            return stream.get_final_response()

    with scripted() as url:
        answer = responses_loop(url, ask)
        assert answer == ANSWER, answer


def test_responses_events_say_what_the_whole_says():
    import openai

    with scripted() as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        tools = [{"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}]
        events = list(client.responses.create(model="scripted", input=QUESTION, tools=tools, stream=True))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert text == events[-1].response.output_text == "One moment."
        done = [e.item for e in events if e.type == "response.output_item.done"]
        assert done == events[-1].response.output


def anthropic_loop(url, ask):
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)
    tools = [{"name": name, "input_schema": {"type": "object", "properties": properties}}
             for name, properties in [("weather", {"city": {"type": "string"}}), ("clock", {})]]
    messages = [{"role": "user", "content": QUESTION}]
    counted = client.messages.count_tokens(model="scripted", messages=messages, tools=tools).input_tokens
    for _ in range(3):
        message = ask(client, messages, tools)
        if len(messages) == 1:
            assert message.usage.input_tokens == counted, (message.usage, counted)
        messages.append({"role": "assistant", "content": message.content})
        made = [block for block in message.content if block.type == "tool_use"]
        if not made:
            assert message.stop_reason == "end_turn", message
            return "".join(block.text for block in message.content if block.type == "text")
        assert message.stop_reason == "tool_use", message
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": call(block.name, block.input)}
            for block in made]})
    raise AssertionError(f"no end: {messages}")


def test_anthropic_whole():
    def ask(client, messages, tools):
        return client.messages.create(model="scripted", max_tokens=1000, messages=messages, tools=tools)

    with scripted() as url:
        answer = anthropic_loop(url, ask)
        assert answer == ANSWER, answer


def test_anthropic_streamed():
    def ask(client, messages, tools):
        with client.messages.stream(model="scripted", max_tokens=1000, messages=messages,
                                    tools=tools) as stream:
            return stream.get_final_message()

    with scripted() as url:
        answer = anthropic_loop(url, ask)
        assert answer == ANSWER, answer
