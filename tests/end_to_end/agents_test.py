"""Agent loops with two tools: the OpenAI and Anthropic Python clients against a scripted model; and requests as Claude Code
and Codex make them, against the shipped one."""

import contextlib
import json
import subprocess
import sys

from cluster import shared
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


def claude_code(**fields):
    """A request of its: a billing line that changes, marks for caches, a schema with a lookahead, a tool of a server,
    a system message within the conversation."""
    tools = [
        {"name": "Bash", "description": "Runs a command.", "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": {"command": {"type": "string", "maxLength": 12}}, "required": ["command"],
            "additionalProperties": False}},
        {"name": "Artifact", "type": "custom", "cache_control": {"type": "ephemeral"}, "input_schema": {
            "type": "object", "properties": {"id": {"type": "string", "pattern": "^(?!-)[a-z-]+(?<!-)$"}}}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]
    return {"model": "tessera-demo", "max_tokens": 32000, "tools": tools, "metadata": {"user_id": "u"},
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"},
                                             {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
                {"role": "system", "content": [{"type": "text", "text": "Available agents: none."}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "abc"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [
                        {"type": "text", "text": "no", "cache_control": {"type": "ephemeral"}}]},
                    {"type": "text", "text": "go on"}]}],
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}, **fields}


def billing(line):
    return [{"type": "text", "text": f"x-anthropic-billing-header: cch={line};"},
            {"type": "text", "text": "You are a coder.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]


def test_requests_of_claude_code():
    import anthropic

    with shared() as c:
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{c.port}", api_key="unused", max_retries=0)
        first = client.beta.messages.create(**claude_code(system=billing("a1"), max_tokens=8))
        assert first.stop_reason in ("end_turn", "max_tokens"), first
        with client.beta.messages.stream(**claude_code(system=billing("b2"))) as stream:
            second = stream.get_final_message()
        cached = second.usage.cache_read_input_tokens
        assert cached > 0.9 * (cached + second.usage.input_tokens), second.usage
        asked = {k: v for k, v in claude_code(system=billing("c3")).items() if k in ("model", "messages", "tools", "system")}
        counted = client.messages.count_tokens(**asked).input_tokens
        assert counted == cached + second.usage.input_tokens, (counted, second.usage)
        made = client.beta.messages.create(**claude_code(
            system=billing("d4"), max_tokens=400, tool_choice={"type": "tool", "name": "Bash"})).content[-1]
        assert made.type == "tool_use" and isinstance(made.input.get("command"), str), made


def test_requests_of_codex():
    import openai

    tools = [
        {"type": "function", "name": "shell", "strict": False, "parameters": {
            "type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}}},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        {"type": "web_search", "external_web_access": False},
        {"type": "namespace", "name": "mcp__fs", "description": "Files.", "tools": [
            {"type": "function", "name": "read", "strict": False, "parameters": {"type": "object", "properties": {}}}]}]
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be short."}]},
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "No network."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "abc"},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin", "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "Success"},
        {"type": "function_call", "name": "read", "namespace": "mcp__fs", "arguments": "{}", "call_id": "c3"},
        {"type": "function_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "t"}]}]
    with shared() as c:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{c.port}/v1", api_key="unused", max_retries=0)
        events = list(client.responses.create(
            model="tessera-demo", instructions="You write code.", input=items, tools=tools, tool_choice="auto",
            parallel_tool_calls=True, reasoning={"effort": "medium", "summary": "auto"}, store=False, stream=True,
            include=["reasoning.encrypted_content"], prompt_cache_key="1", text={"verbosity": "low"},
            max_output_tokens=40, extra_body={"client_metadata": {"x": "y"}}))
        assert events[-1].type in ("response.completed", "response.incomplete"), events[-1]
        assert events[-1].response.usage.input_tokens > 300, events[-1].response.usage
