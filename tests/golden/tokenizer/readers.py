"""How make.py reads text with Hugging Face's tokenizers: one interface over the fast and the slow ones."""

import json

from tokenizers import Tokenizer
from transformers import LlamaTokenizer


class Fast:
    """Reads text with a tokenizers.Tokenizer."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def split(self, text):
        self.tokenizer.encode_special_tokens = True
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        self.tokenizer.encode_special_tokens = False
        return ids

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)

    def size(self):
        return self.tokenizer.get_vocab_size()

    def segments(self, segments):
        """Special tokens in template text only: there, each is replaced by a stand-in that is not special."""
        document = json.loads(self.tokenizer.to_str())
        stand_ins, back = {}, {}
        for token in [t for t in document["added_tokens"] if t["special"]]:
            stand_in = f"\ue123{token['id']}\ue123"
            stand_ins[token["content"]] = stand_in
            document["added_tokens"].append(
                dict(
                    token,
                    content=stand_in,
                    special=False,
                    id=len(document["model"]["vocab"]) + 5000 + token["id"],
                )
            )
        copy = Tokenizer.from_str(json.dumps(document))
        for content, stand_in in stand_ins.items():
            back[copy.token_to_id(stand_in)] = copy.token_to_id(content)
        copy.encode_special_tokens = True
        # Neighbouring template segments are one text before stand-ins are looked for.
        text, template = "", ""
        for piece, from_template in segments + [("", False)]:
            if from_template:
                template += piece
                continue
            for content in sorted(stand_ins, key=len, reverse=True):
                template = template.replace(content, stand_ins[content])
            text, template = text + template + piece, ""
        encoding = copy.encode(text, add_special_tokens=False)
        if any(
            "\ue123" in text[begin:end] and i not in back
            for i, (begin, end) in zip(encoding.ids, encoding.offsets)
        ):
            return (
                None  # a stand-in that did not match stays as text of its own, which tells nothing
            )
        return [back.get(i, i) for i in encoding.ids]


class Slow:
    """Reads text with transformers' LlamaTokenizer over a tokenizer.model."""

    def __init__(self, folder):
        self.tokenizer = LlamaTokenizer.from_pretrained(folder)

    def encode(self, text):
        return self.tokenizer.encode(text)

    def split(self, text):
        return self.tokenizer.convert_tokens_to_ids(
            self.tokenizer.tokenize(text, split_special_tokens=True)
        )

    def decode(self, ids, skip):
        return self.tokenizer.decode(
            ids,
            skip_special_tokens=skip,
            clean_up_tokenization_spaces=False,
            spaces_between_special_tokens=False,
        )

    def size(self):
        return len(self.tokenizer)
