"""The official OpenAI Python client against a real coordinator and worker."""

import contextlib
import json
import sys

from cluster import shared
from pip_client import install
from run_tests import Skip

# One that is known to be asked the right things; raised by hand.
CLIENT = "openai==3.52.0"
QUESTION = [{"role": "user", "content": "What is 57 + 85?"}]
COUNT = [{"role": "user", "content": "Count from 3 to 9."}]


def prepare():
    """Installs the client from PyPI."""
    folder = install(CLIENT)
    sys.path[:0] = [str(p) for p in folder.glob("lib/python*/site-packages")]


@contextlib.contextmanager
def client(*flags, key="unused"):
    import openai

    with shared(*flags) as cluster:
        yield openai.OpenAI(base_url=f"http://127.0.0.1:{cluster.port}/v1", api_key=key, max_retries=0)


def test_chat_and_completion():
    with client() as c:
        reply = c.chat.completions.create(model="tessera-demo", messages=QUESTION, temperature=0)
        assert reply.choices[0].message.content == "142", reply
        assert reply.choices[0].message.role == "assistant"
        assert reply.choices[0].finish_reason == "stop"
        usage = reply.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        assert usage.prompt_tokens_details.cached_tokens >= 0
        text = c.completions.create(model="tessera-demo", prompt="What", max_tokens=5)
        assert text.usage.completion_tokens <= 5 and text.choices[0].text is not None
        ids = c.completions.create(model="tessera-demo", prompt=[10, 11, 12], max_tokens=3)
        assert ids.usage.prompt_tokens == 3
        several = c.completions.create(model="tessera-demo", prompt=["a", "b"], max_tokens=2)
        assert [choice.index for choice in several.choices] == [0, 1]


def test_embeddings():
    with client() as c:
        texts = ["What is 57 + 85?", "Count from 3 to 9."]
        reply = c.embeddings.create(model="tessera-demo", input=texts)  # asks for base64
        assert [item.index for item in reply.data] == [0, 1], reply
        plain = c.embeddings.create(model="tessera-demo", input=texts, encoding_format="float")
        assert [item.embedding for item in plain.data] == [item.embedding for item in reply.data]
        assert len(reply.data[0].embedding) == 160 and reply.usage.total_tokens > 10, reply.usage
        cut = c.embeddings.create(model="tessera-demo", input=texts[0], dimensions=8)
        assert len(cut.data[0].embedding) == 8


def test_stream():
    with client() as c:
        whole = c.chat.completions.create(model="tessera-demo", messages=COUNT, temperature=0)
        chunks = list(c.chat.completions.create(
            model="tessera-demo", messages=COUNT, temperature=0, stream=True,
            stream_options={"include_usage": True}))
        assert chunks[0].choices[0].delta.role == "assistant"
        assert len({chunk.id for chunk in chunks}) == 1
        text = "".join(ch.choices[0].delta.content or "" for ch in chunks if ch.choices)
        assert text == whole.choices[0].message.content == "3 4 5 6 7 8 9", text
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert [ch.choices[0].finish_reason for ch in chunks if ch.choices][-1] == "stop"
        words = c.completions.create(model="tessera-demo", prompt="What", max_tokens=6, stream=True,
                                     temperature=0)
        assert sum(1 for _ in words) >= 1


def test_stop():
    with client() as c:
        reply = c.chat.completions.create(model="tessera-demo", messages=COUNT, temperature=0, stop=[" 6"])
        assert reply.choices[0].message.content == "3 4 5", reply
        assert reply.choices[0].finish_reason == "stop"
        cut = c.chat.completions.create(model="tessera-demo", messages=COUNT, temperature=0,
                                        max_completion_tokens=2)
        assert cut.choices[0].finish_reason == "length"


def test_logprobs():
    with client() as c:
        reply = c.chat.completions.create(model="tessera-demo", messages=QUESTION, temperature=0,
                                          logprobs=True, top_logprobs=3)
        content = reply.choices[0].logprobs.content
        assert "".join(entry.token for entry in content) == "142", content
        for entry in content:
            assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
            assert entry.top_logprobs[0].token == entry.token
            assert bytes(entry.bytes).decode() == entry.token
        text = c.completions.create(model="tessera-demo", prompt="What is", max_tokens=1, echo=True, logprobs=2)
        logprobs = text.choices[0].logprobs
        assert logprobs.token_logprobs[0] is None
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)


def test_n():
    with client() as c:
        reply = c.chat.completions.create(model="tessera-demo", messages=QUESTION, n=3, temperature=1.5, seed=7)
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        again = c.chat.completions.create(model="tessera-demo", messages=QUESTION, n=3, temperature=1.5, seed=7)
        assert [x.message.content for x in reply.choices] == [x.message.content for x in again.choices]


def needs_grammars(c):
    import openai

    try:
        c.completions.create(model="tessera-demo", prompt="x", max_tokens=1, extra_body={"guided_choice": ["a"]})
    except openai.BadRequestError as error:
        if "deploy/install_xgrammar" in error.message:
            raise Skip("no xgrammar: deploy/install_xgrammar") from error
        raise


def test_tools():
    """The shipped model knows none, but it is shown them, and where it must call one, the arguments are of its schema."""
    tool = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 8},
                                         "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": False}}}
    with client() as c:
        needs_grammars(c)
        asked = {"model": "tessera-demo", "tools": [tool], "temperature": 0}
        free = c.chat.completions.create(**asked, messages=QUESTION, max_tokens=40)
        assert free.choices[0].message.content and free.usage.prompt_tokens > 100, free
        whole = c.chat.completions.create(**asked, messages=QUESTION, tool_choice="required").choices[0]
        assert whole.finish_reason == "tool_calls", whole
        (made,) = whole.message.tool_calls
        arguments = json.loads(made.function.arguments)
        assert made.function.name == "weather" and set(arguments) == {"city", "days"}, made
        assert len(arguments["city"]) <= 8 and arguments["days"] in range(1, 10), made
        with c.chat.completions.stream(**asked, messages=QUESTION, tool_choice="required") as stream:
            streamed = stream.get_final_completion().choices[0]
        assert streamed.message.tool_calls[0].function.arguments == made.function.arguments, streamed
        then = [*QUESTION, whole.message.to_dict(), {"role": "tool", "tool_call_id": made.id, "content": "sun"}]
        told = c.chat.completions.create(**asked, messages=then, max_tokens=40)
        assert told.usage.prompt_tokens > free.usage.prompt_tokens, told
        named = {"type": "function", "function": {"name": "weather"}}
        again = c.chat.completions.create(**asked, messages=then, tool_choice=named).choices[0]
        assert again.message.tool_calls[0].function.name == "weather", again


def test_parse():
    import openai
    import pydantic

    class Step(pydantic.BaseModel):
        reason: str = pydantic.Field(max_length=20)
        result: int

    class Solution(pydantic.BaseModel):
        steps: list[Step] = pydantic.Field(max_length=3)
        answer: int
        unit: str | None

    def ask(c, **fields):
        return c.chat.completions.parse(model="tessera-demo", messages=QUESTION, response_format=Solution, **fields)

    with client() as c:
        needs_grammars(c)
        reply = ask(c, temperature=1, seed=3, logprobs=True)
        message = reply.choices[0].message
        assert isinstance(message.parsed, Solution) and not message.refusal, message
        try:
            ask(c, max_tokens=5)
            raise AssertionError("half an answer was parsed")
        except openai.LengthFinishReasonError:
            pass
        with c.chat.completions.stream(model="tessera-demo", messages=QUESTION, response_format=Solution, seed=3,
                                       temperature=1) as stream:
            for event in stream:
                pass
            assert stream.get_final_completion().choices[0].message.parsed == message.parsed


def test_models_and_errors():
    import openai

    with client("--api-key", "secret", key="secret") as c:
        assert [model.id for model in c.models.list()] == ["tessera-demo"]
        assert c.models.retrieve("tessera-demo").id == "tessera-demo"

        def refused(kind, **fields):
            body = {"model": "tessera-demo", "messages": QUESTION, **fields}
            try:
                c.chat.completions.create(**body)
            except kind as error:
                return error
            raise AssertionError(f"{fields} was not refused")

        unknown = refused(openai.NotFoundError, model="gpt-9")
        assert "gpt-9" in unknown.message and unknown.code == "model_not_found", unknown
        assert refused(openai.BadRequestError, temperature=-1).param == "temperature"
        long = refused(openai.BadRequestError, max_tokens=100000)
        assert long.param == "max_tokens" and long.code == "context_length_exceeded", long
        assert "maximum context length is" in long.message, long
        assert refused(openai.BadRequestError, functions=[{"name": "f", "parameters": {}}]).param == "functions"
        wrong = c.with_options(api_key="wrong")
        try:
            wrong.models.list()
            raise AssertionError("a wrong key was taken")
        except openai.AuthenticationError as error:
            assert error.code == "invalid_api_key", error
