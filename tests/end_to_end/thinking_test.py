"""A budget of thinking through the whole stack: the demo model, made to think by its template and a token that closes it."""

import json
import pathlib
import shutil

from cluster import MODEL, running
from run_tests import Skip

OPENING, CLOSING = "<think>", "</think>"


def thinker(tmp):
    """A model folder whose tokenizer has a token that closes thinking, and its template, which opens it."""
    folder = tmp / "thinker"
    shutil.copytree(MODEL, folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        path = folder / name
        text = path.read_text()
        path.unlink()
        path.write_text(text.replace("<|pad|>", CLOSING))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = tmp / "template.jinja"
    template.write_text(config["chat_template"] + "{# %s #}{%% if add_generation_prompt %%}%s{%% endif %%}"
                        % (CLOSING, OPENING))
    return folder, template


def ask(c, **fields):
    body = {"messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0, "max_tokens": 24,
            "ignore_eos": True, "skip_special_tokens": False, **fields}
    status, _, text = c.request("POST", "/v1/chat/completions", body)
    assert status == 200, text
    answer = json.loads(text)
    message = answer["choices"][0]["message"]
    return (message.get("reasoning_content", ""), message["content"],
            answer["usage"]["completion_tokens_details"]["reasoning_tokens"])


def test_thinking_ends_with_its_budget(tmp):
    folder, template = thinker(tmp)
    with running("--chat-template", str(template), model=str(folder), workers=1) as c:
        free, content, tokens = ask(c)
        assert free and not content and tokens == 24, (free, content, tokens)
        _, _, text = c.request("POST", "/tokenize", {"prompt": "\n" + CLOSING, "add_special_tokens": False})
        end = json.loads(text)["count"]
        assert end >= 2, text
        for budget in (0, 1, 7):
            reasoning, content, tokens = ask(c, thinking_token_budget=budget)
            assert tokens == budget + end, (budget, end, tokens)
            assert content and free.startswith(reasoning), (free, reasoning, content)
            assert CLOSING not in content, content
            # Choices end theirs each.
            again, _, twice = ask(c, thinking_token_budget=budget, n=2)
            assert again == reasoning and twice == 2 * tokens, (again, twice, tokens)
        assert ask(c, thinking_token_budget=1000) == (free, "", 24)
        # The other doors.
        status, _, text = c.request("POST", "/v1/messages", {
            "model": "", "messages": [{"role": "user", "content": "What is 57 + 85?"}], "temperature": 0,
            "max_tokens": 24, "thinking": {"type": "enabled", "budget_tokens": 3}})
        assert status == 200, text
        message = json.loads(text)
        thought = message["content"][0]["thinking"]
        assert message["stop_reason"] != "max_tokens" and free.startswith(thought), (free, text)


def test_a_form_begins_behind_a_budget_of_thinking(tmp):
    folder, template = thinker(tmp)
    number = {"type": "integer", "minimum": 0, "maximum": 999}
    schema = {"type": "object", "properties": {"sum": number, "sure": {"type": "boolean"}},
              "required": ["sum", "sure"], "additionalProperties": False}
    question = "What is 57 + 85?"
    chat = {"messages": [{"role": "user", "content": question}], "response_format": {
        "type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": schema}}}
    responses = {"input": question, "text": {"format": {
        "type": "json_schema", "name": "sum", "strict": True, "schema": schema}}}

    def is_sum(text):
        value = json.loads(text)
        return list(value) == ["sum", "sure"] and type(value["sum"]) is int and type(value["sure"]) is bool

    with running("--chat-template", str(template), model=str(folder), workers=1) as c:
        for budget in (0, 5):
            status, _, text = c.request("POST", "/v1/chat/completions", {
                **chat, "thinking_token_budget": budget, "temperature": 1, "seed": 4, "max_tokens": 150})
            if status == 400 and "install_xgrammar" in text:
                raise Skip("no xgrammar: deploy/install_xgrammar")
            assert status == 200, text
            choice = json.loads(text)["choices"][0]
            assert choice["finish_reason"] == "stop" and is_sum(choice["message"]["content"]), text
            assert budget == 0 or choice["message"]["reasoning_content"], text
            status, _, text = c.request("POST", "/v1/responses", {
                **responses, "thinking_token_budget": budget, "temperature": 1, "seed": 4, "max_output_tokens": 150})
            assert status == 200, text
            items = {item["type"]: item for item in json.loads(text)["output"]}
            assert is_sum(items["message"]["content"][0]["text"]), text
