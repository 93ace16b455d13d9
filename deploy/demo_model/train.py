"""Trains the demo model on the CPU; resumable.

    python3 train.py --checkpoint /tmp/demo.pt --steps 6000
    python3 train.py --checkpoint /tmp/demo.pt --steps 6000      (again: goes on where it stopped)

Loss falls on answers only. Matrices are trained by Muon (momentum whose update is made
orthogonal by five Newton-Schulz steps; Keller Jordan 2024), embeddings and norms by Adam; the
learning rate is flat and then falls linearly to zero over the last part (--decay). Every step's
data is drawn from a generator seeded by (seed, step), so an interrupted run sees what a run
without interruption sees. Needs torch and tokenizers.
"""

import argparse
import os
import random
import time

import tokenizers
import torch
from torch.nn import functional

import questions
from model import DemoModel, Shape

HERE = os.path.dirname(os.path.abspath(__file__))
NO_TARGET = -100


class Encoder:
    """Conversations to token ids and targets, in the form of the chat template."""

    def __init__(self):
        path = os.path.join(HERE, "tessera-demo", "tokenizer.json")
        self.tokenizer = tokenizers.Tokenizer.from_file(path)
        self.begin, self.system, self.user, self.assistant, self.end = (
            self.tokenizer.token_to_id("<|%s|>" % name)
            for name in ("begin", "system", "user", "assistant", "end"))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def row(self, turns, system=None, bare=False):
        """(ids, targets) of a conversation; targets[i] is what follows ids[i] within an answer,
        else NO_TARGET. bare: no roles, the question's text followed by its answer."""
        ids, is_answer = [self.begin], [False]

        def append(piece, answer=False):
            ids.extend(piece)
            is_answer.extend([answer] * len(piece))

        if system:
            append([self.system] + self.encode(system) + [self.end])
        for question in turns:
            prompt = self.encode(question.prompt)
            append(prompt if bare else [self.user] + prompt + [self.end, self.assistant])
            append(self.encode(question.answer) + [self.end], True)
        targets = [token if answer else NO_TARGET
                   for token, answer in zip(ids[1:], is_answer[1:])]
        return ids[:-1], targets  # the last id is only a target


def collate(rows, group_count):
    """Rows to (tokens, positions, groups, wanted, targets) as model.py lays a batch out."""
    rows = sorted(rows, key=lambda row: len(row[0]))
    tokens, positions, targets, groups = [], [], [], []
    for part in range(group_count):
        members = rows[len(rows) * part // group_count:len(rows) * (part + 1) // group_count]
        length = len(members[-1][0])
        groups.append((len(tokens), len(members), length))
        for ids, row_targets in members:
            padding = length - len(ids)
            tokens += ids + [0] * padding
            targets += row_targets + [NO_TARGET] * padding
            positions += range(length)
    targets = torch.tensor(targets)
    wanted = (targets != NO_TARGET).nonzero().squeeze(1)
    return torch.tensor(tokens), torch.tensor(positions), groups, wanted, targets[wanted]


def orthogonal(matrices):
    """The nearest orthogonal matrices, roughly. matrices: [count, rows, columns], rows <= columns"""
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


class Muon:
    """Muon over lists of equally shaped pieces, one batched orthogonalisation per shape."""

    def __init__(self, model, momentum=0.95, weight_decay=0.05):
        self.momentum, self.weight_decay = momentum, weight_decay
        self.parameters = [p for layer in model.layers for p in
                           (layer.qkv.weight, layer.out.weight, layer.gate_up.weight,
                            layer.down.weight)]
        wide = model.shape.query_heads * model.shape.head
        narrow = model.shape.kv_heads * model.shape.head
        self.cuts = {len(model.layers[0].qkv.weight): (wide, narrow, narrow),
                     2 * model.shape.feed_forward: (model.shape.feed_forward,) * 2}
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, rate):
        by_shape = {}
        for parameter, velocity in zip(self.parameters, self.velocity):
            velocity.lerp_(parameter.grad, 1 - self.momentum)
            update = parameter.grad.lerp(velocity, self.momentum)
            cuts = self.cuts.get(len(parameter), (len(parameter),))
            for piece, direction in zip(parameter.split(cuts), update.split(cuts)):
                tall = direction.shape[0] > direction.shape[1]
                entry = (piece, direction.t() if tall else direction, tall)
                by_shape.setdefault(entry[1].shape, []).append(entry)
        for entries in by_shape.values():
            directions = orthogonal(torch.stack([direction for _, direction, _ in entries]))
            for (piece, _, tall), direction in zip(entries, directions):
                scale = max(1.0, piece.shape[0] / piece.shape[1]) ** 0.5
                piece.mul_(1 - rate * self.weight_decay)
                piece.add_(direction.t() if tall else direction, alpha=-rate * scale)


class Evaluation:
    """Held-out questions asked by teacher forcing: an answer is exact at temperature 0 exactly
    when every one of its tokens, the end included, is the likeliest after the right ones."""

    def __init__(self, encoder, per_family, seed=0):
        self.batches = {family: collate([encoder.row([question]) for question in
                                         questions.held_out_set(family, per_family, seed)], 4)
                        for family in questions.FAMILIES}

    @torch.no_grad()
    def exact(self, model):
        """Share of exact answers by family."""
        shares = {}
        for family, (tokens, positions, groups, wanted, targets) in self.batches.items():
            right = model(tokens, positions, groups, wanted).argmax(-1) == targets
            row_of, row = torch.empty(len(tokens), dtype=torch.long), 0
            for first, rows, length in groups:
                row_of[first:first + rows * length] = row + torch.arange(
                    rows).repeat_interleave(length)
                row += rows
            wrong = torch.zeros(row).index_add_(0, row_of[wanted], (~right).float())
            shares[family] = (wrong == 0).float().mean().item()
        return shares


def rate_at(step, steps, warmup, decay):
    """The factor on the learning rate: up, flat, then linearly to zero."""
    return min(1.0, (step + 1) / warmup, (steps - step) / max(1.0, decay * steps))


def save(path, model, muon, adam, step, seconds):
    torch.save({"shape": vars(model.shape), "model": model.state_dict(), "muon": muon.velocity,
                "adam": adam.state_dict(), "step": step, "seconds": seconds}, path + ".new")
    os.replace(path + ".new", path)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--stop-at", type=int, help="leave after this step; --steps is the schedule")
    parser.add_argument("--rows", type=int, default=192, help="conversations a step")
    parser.add_argument("--hidden", type=int, default=Shape.hidden)
    parser.add_argument("--feed-forward", type=int, default=Shape.feed_forward)
    parser.add_argument("--muon-rate", type=float, default=0.02)
    parser.add_argument("--adam-rate", type=float, default=0.004)
    parser.add_argument("--decay", type=float, default=0.4, help="the falling part of the schedule")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--evaluate-every", type=int, default=250)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    encoder = Encoder()
    model = DemoModel(Shape(hidden=args.hidden, feed_forward=args.feed_forward))
    muon = Muon(model)
    adam = torch.optim.Adam(
        [p for name, p in model.named_parameters() if "norm" in name or "embedding" in name],
        lr=args.adam_rate, betas=(0.9, 0.98))
    step, seconds = 0, 0.0
    if os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        muon.velocity, step, seconds = state["muon"], state["step"], state["seconds"]
        adam.load_state_dict(state["adam"])
    evaluation = Evaluation(encoder, 100)
    print("%d parameters, step %d" % (sum(p.numel() for p in model.parameters()), step), flush=True)

    began, seen, losses = time.time(), 0, []
    last = min(args.steps, args.stop_at or args.steps)
    while step < last:
        rng = random.Random("%d/%d" % (args.seed, step))
        rows = [encoder.row(**questions.training_conversation(rng)) for _ in range(args.rows)]
        tokens, positions, groups, wanted, targets = collate(rows, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            logits = model(tokens, positions, groups, wanted)
        loss = functional.cross_entropy(logits.float(), targets)
        model.zero_grad()
        loss.backward()
        factor = rate_at(step, args.steps, 100, args.decay)
        muon.step(args.muon_rate * factor)
        for group in adam.param_groups:
            group["lr"] = args.adam_rate * factor
        adam.step()
        step, seen = step + 1, seen + len(tokens)
        losses.append(loss.item())
        if step % 50 == 0:
            print("step %d loss %.4f tokens/s %.0f seconds %.0f" % (
                step, sum(losses) / len(losses), seen / (time.time() - began),
                seconds + time.time() - began), flush=True)
            losses = []
        if step % args.evaluate_every == 0 or step == last:
            print("  exact: " + " ".join("%s %.3f" % item for item in
                                         evaluation.exact(model).items()), flush=True)
            save(args.checkpoint, model, muon, adam, step, seconds + time.time() - began)


if __name__ == "__main__":
    main()
