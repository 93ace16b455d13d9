"""A budget of thinking through the whole stack: the demo model, made to think by its template and a token that closes it."""

import json
import pathlib
import shutil

from cluster import MODEL, running

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
