#!/usr/bin/env python3
"""Writes continued.json: what transformers makes of continue_final_message, but for a tag that it may leave.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install transformers==5.24.0 jinja2==3.1.6
    /tmp/v/bin/python tests/golden/chat_template/make_continued.py

Each case has a template, the content of the last message and the prompt, or no prompt where transformers refuses.
"""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).resolve().parent

CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
TRIMS = (
    "{%- for m in messages %}{%- if m.role == 'user' %}{{- '[INST] ' + m.content + '[/INST]' }}"
    "{%- else %}{{- ' ' + m.content | trim + '</s>' }}{%- endif %}{%- endfor %}"
)
TRIMS_ALL = "{% for m in messages %}<{{ m.role }}>\n{{ m.content | trim }}\n</{{ m.role }}>\n{% endfor %}"
STRIPS_LEFT = "{% for m in messages %}[{{ m.role }}]{{ m.content.lstrip('\\n') }}[end]{% endfor %}"
REPEATS = "{% for m in messages %}{{ m.content }}|{% endfor %}last: {{ messages[-1].content }}!"
UPPER = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
HIDES = "{% for m in messages %}{{ m.content[:4] }}{% endfor %}"
CUTS_THOUGHT = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}<|im_end|>{% endfor %}"
PARTS = (
    "{%- for m in messages %}{{- m['role'] | capitalize + ': ' }}{%- for p in m['content'] %}"
    "{%- if p['type'] == 'text' %}{{- p['text'] }}{%- endif %}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}"
)
PREFILLS = ["OK! ", "<", "|", "end", "im", "", "\n", "</", "s", "Sure", " \n both \n ", "\t", "Tell me", "é\u3000", "I think</think> so"]


def parts(text):
    return [{"type": "text", "text": "first "}, {"type": "text", "text": text}]


def prompt_of(template, content):
    # A template that loops over parts gets them for the user's text too.
    asked = [{"type": "text", "text": "Tell me"}] if isinstance(content, list) else "Tell me"
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": content}]
    try:
        prompt = render_jinja_template([messages], chat_template=template, continue_final_message=True)[0][0]
    except ValueError:
        return None
    # Where a template writes the content twice, transformers leaves its tag behind the first.
    return prompt.replace("CONTINUE_FINAL_MESSAGE_TAG ", "").replace("CONTINUE_FINAL_MESSAGE_TAG", "")


def main():
    cases = []
    for template in (CHATML, TRIMS, TRIMS_ALL, STRIPS_LEFT, REPEATS, UPPER, HIDES, CUTS_THOUGHT):
        for content in PREFILLS:
            cases.append({"template": template, "content": content, "prompt": prompt_of(template, content)})
    for content in PREFILLS:
        cases.append({"template": PARTS, "content": parts(content), "prompt": prompt_of(PARTS, parts(content))})
    text = json.dumps(cases, ensure_ascii=True, indent=1)
    (HERE / "continued.json").write_text(text + "\n", encoding="ascii")
    print(f"{len(cases)} cases, {sum(case['prompt'] is None for case in cases)} of them refused")


if __name__ == "__main__":
    main()
