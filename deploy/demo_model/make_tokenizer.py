"""Makes the demo model's tokenizer: a byte-level BPE of 512 entries.

The pre-tokenizer is the pattern which Qwen2 published (every digit stands alone), so the file has
a form that every serving system knows. Merges are learned from words without their space: a space
stays a token of its own, so a word is spelled the same wherever it stands and copying is copying.

    python3 make_tokenizer.py     writes tessera-demo/{tokenizer,tokenizer_config,...}.json

Needs the `tokenizers` package.
"""

import json
import os
import string

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import questions

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "tessera-demo")
BEGIN, PAD, SYSTEM, USER, ASSISTANT, END = SPECIALS = (
    "<|begin|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
VOCABULARY = 512
MAX_POSITIONS = 2048

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# Words of the phrasings and of a usual system message.
PHRASE_WORDS = """What is plus minus Add and Subtract from Count to Sort these words alphabetically
Repeat after me Say You are a helpful assistant Answer the question""".split()

CHAT_TEMPLATE = """\
{{ bos_token }}
{%- if tools %}
    {{- '<|system|>Tools:\\n' }}
    {%- for tool in tools %}
        {{- (tool | tojson) + '\\n' }}
    {%- endfor %}
    {{- 'To call one: <tool_call>\\n{"name": NAME, "arguments": {...}}\\n</tool_call><|end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {{- '<|system|>' }}
    {%- elif message['role'] == 'user' %}
        {{- '<|user|>' }}
    {%- elif message['role'] == 'assistant' %}
        {{- '<|assistant|>' }}
    {%- elif message['role'] == 'tool' %}
        {{- '<|user|>Result: ' }}
    {%- else %}
        {{- raise_exception('the roles are system, user, assistant and tool, not ' + message['role']) }}
    {%- endif %}
    {{- (message['content'] or '') | trim }}
    {%- for call in message['tool_calls'] or [] %}
        {{- '\\n<tool_call>\\n' + (call['function'] | tojson) + '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}"""


def learn():
    """The trained tokenizers.Tokenizer; the same bytes on every run."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIALS), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    corpus = PHRASE_WORDS * 20 + questions.WORDS * 10 + list(string.ascii_letters)
    tokenizer.train_from_iterator(corpus, trainer)
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=BEGIN + " $A", pair=BEGIN + " $A " + BEGIN + " $B", special_tokens=[(BEGIN, begin)])
    return tokenizer


def _write_json(name, value):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2, ensure_ascii=False)
        out.write("\n")


def main():
    os.makedirs(FOLDER, exist_ok=True)
    tokenizer = learn()
    tokenizer.save(os.path.join(FOLDER, "tokenizer.json"), pretty=True)
    special = {"bos_token": BEGIN, "eos_token": END, "pad_token": PAD}
    _write_json("special_tokens_map.json", special)
    _write_json("tokenizer_config.json", dict(
        special,
        added_tokens_decoder={
            str(tokenizer.token_to_id(token)): {
                "content": token, "lstrip": False, "normalized": False, "rstrip": False,
                "single_word": False, "special": True} for token in SPECIALS},
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        tokenizer_class="PreTrainedTokenizerFast"))
    split = [word for word in questions.WORDS
             if len(tokenizer.encode(word, add_special_tokens=False)) > 1]
    print("%d entries; %d of %d words take more than one token"
          % (tokenizer.get_vocab_size(), len(split), len(questions.WORDS)))


if __name__ == "__main__":
    main()
