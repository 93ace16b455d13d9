"""Python's jinja2, configured as transformers configures it for chat templates; and conversations.

What the golden files and tests/bench/templates compare with. Needs jinja2 3.1.
"""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

# 2026-03-09 14:05:06 UTC, a Monday: the time strftime_now tells.
NOW = 1773065106


class Raised(Exception):
    """What raise_exception raises."""


class Generation(jinja2.ext.Extension):
    """{% generation %}: a scope of its own, and otherwise nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_call"), [], [], body).set_lineno(line)

    def _call(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """Refuses names with a leading underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    def __repr__(self):
        return jinja2.utils.Namespace.__repr__(self)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    def raise_exception(message):
        raise Raised(str(message))

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(format):
        now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
        return now.replace(tzinfo=None).strftime(format)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["namespace"] = Namespace
    return env


ENVIRONMENT = environment()


def render(source, context):
    """{"output": text}, {"error": "raised", "message"} or {"error": "other", "message"}."""
    variables = {"tools": None, "documents": None, "add_generation_prompt": False}
    variables.update(context)
    variables.update(variables.pop("chat_template_kwargs", None) or {})
    try:
        text = ENVIRONMENT.from_string(source).render(**variables)
        text.encode("utf-8")
        return {"output": text}
    except Raised as error:
        return {"error": "raised", "message": str(error)}
    except Exception as error:  # whatever a template can raise
        return {"error": "other", "message": f"{type(error).__name__}: {error}"}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, \"now\" & <later>.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Town's name — e.g. 東京"},
                "days": {"type": "integer", "minimum": 1, "maximum": 18446744073709551615},
                "unit": {"type": "string", "enum": ["C", "F"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {}}}


def conversations():
    """Named contexts that published templates have branches for."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
    user = {"role": "user", "content": "Hello <|im_end|> you\n\n  there "}
    answer = {"role": "assistant", "content": "Hi! [/INST] <think>x</think>"}
    system = {"role": "system", "content": "  You are terse.\n"}
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2}},
            },
            {"id": "call00002", "type": "function", "function": {"name": "clock", "arguments": {}}},
        ],
    }
    results = [
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": '{"t": 21.5}'},
        {"role": "tool", "name": "clock", "tool_call_id": "call00002", "content": "noon"},
    ]
    thinking = {
        "role": "assistant",
        "content": "<think>\nlet me see\n</think>\n\nIt is 4.",
        "reasoning_content": "let me see",
    }
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "first part"}, {"type": "text", "text": " second"}],
    }
    return {
        "user": {"messages": [user], **tokens},
        "system": {"messages": [system, user, answer, {"role": "user", "content": "2+2?"}], **tokens},
        "no_prompt": {"messages": [user, answer], **tokens, "add_generation_prompt": False},
        "tools": {"messages": [system, user], "tools": [WEATHER, CLOCK], **tokens},
        "calls": {
            "messages": [system, user, call, *results, {"role": "user", "content": "thanks"}],
            "tools": [WEATHER, CLOCK],
            **tokens,
        },
        "pending": {"messages": [user, call, *results], "tools": [WEATHER], **tokens},
        "thinking": {
            "messages": [user, thinking, {"role": "user", "content": "and 3+3?"}, thinking],
            **tokens,
            "add_generation_prompt": False,
        },
        "think_off": {"messages": [user], "enable_thinking": False, **tokens},
        "think_on": {"messages": [system, user], "enable_thinking": True, "thinking": True, **tokens},
        "parts": {"messages": [parts], **tokens},
        "wrong_order": {"messages": [answer, user, user], **tokens},
        "unknown_role": {"messages": [{"role": "robot", "content": "beep"}], **tokens},
        "no_content": {"messages": [{"role": "user"}], **tokens},
        "null_content": {"messages": [user, {"role": "assistant", "content": None}], **tokens},
        "empty": {"messages": [], **tokens},
        "scripts": {
            "messages": [
                {"role": "system", "content": "Ärger, ΣΊΣΥΦΟΣ, İstanbul, ß, ﬁ, 👩‍👩‍👧, \u200b, a\u0301"},
                {"role": "user", "content": "مرحبا\u2028line\x85next\x1ffour\r\nfive\ttab\\'\"\x00"},
            ],
            **tokens,
        },
    }
