"""Asks the exported folder held-out questions through Hugging Face transformers, greedily.

    python3 verify.py --per-family 500

Nothing of train.py or model.py is used: it shows that the folder means the same to others, and
that the chat template gives the ids the model was trained on. Needs transformers and torch.
"""

import argparse
import sys

import torch
import transformers

import questions
from make_tokenizer import FOLDER


@torch.no_grad()
def answers(model, tokenizer, prompts):
    """Greedy answers to prompts of one length in tokens."""
    ids = torch.tensor(prompts)
    output = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                            max_new_tokens=80)
    ends = model.generation_config.eos_token_id
    texts = []
    for row in output[:, ids.shape[1]:].tolist():
        stop = next((i for i, token in enumerate(row) if token in ends), None)
        texts.append(None if stop is None else tokenizer.decode(row[:stop]))
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--per-family", type=int, default=500)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.folder, dtype=getattr(torch, args.dtype))
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    worst = 1.0
    for family in questions.FAMILIES:
        asked = questions.held_out_set(family, args.per_family, args.seed)
        by_length, right, misses = {}, 0, []
        for question in asked:
            ids = tokenizer.apply_chat_template(
                [{"role": "user", "content": question.prompt}], add_generation_prompt=True,
                tokenize=True, return_dict=False)
            by_length.setdefault(len(ids), []).append((ids, question))
        for batch in by_length.values():
            for (_, question), text in zip(batch, answers(model, tokenizer,
                                                          [ids for ids, _ in batch])):
                right += text == question.answer
                if text != question.answer:
                    misses.append((question.prompt, text, question.answer))
        share = right / len(asked)
        worst = min(worst, share)
        print("%-6s %4d of %d exact, %.1f %%" % (family, right, len(asked), 100 * share))
        for prompt, text, answer in misses[:5]:
            print("    %r: %r, not %r" % (prompt, text, answer))
    sys.exit(0 if worst >= 0.95 else 1)


if __name__ == "__main__":
    main()
