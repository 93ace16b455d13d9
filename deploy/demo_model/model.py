"""The demo model: a small Llama in plain PyTorch, laid out for training on few CPU cores.

A batch is a flat list of tokens. Rows (one conversation each) are sorted by length and stand in
rectangular groups, each padded only to its own longest row; linear layers and norms see all tokens
at once, attention sees one group at a time. `groups` lists (first token, rows, length).

Matrices which read the same input are one parameter (q|k|v and gate|up); export.py takes them
apart. Trained with PyTorch 2.15; older ones should do, but were not tried.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass
class Shape:
    """Sizes of the model, in elements; the names of a Hugging Face config are in export.py."""
    vocabulary: int = 512
    hidden: int = 160
    layers: int = 6
    query_heads: int = 4
    kv_heads: int = 2
    head: int = 64
    feed_forward: int = 448
    rope_theta: float = 10000.0
    epsilon: float = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        if hasattr(functional, "rms_norm"):
            return functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotate(x, cos, sin):
    """RoPE in Llama's form: the two halves of a head are the two coordinates. x: [N, heads, head]"""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attend(query, key, value):
    """Causal attention of one group; query heads which share a key head are one tall matrix.

    query: [rows, query heads, length, head]; key, value: [rows, kv heads, length, head].
    Written out, since PyTorch's fused attention is five times slower on rows this short.
    """
    rows, heads, length, width = query.shape
    kv_heads = key.shape[1]
    tall = query.reshape(rows, kv_heads, heads // kv_heads * length, width)
    scores = (tall @ key.transpose(-1, -2)) * width ** -0.5
    scores = scores.view(rows, kv_heads, heads // kv_heads, length, length)
    scores = scores + torch.full((length, length), -1e4, dtype=scores.dtype).triu(1)
    return (scores.softmax(-1).to(value.dtype).view(tall.shape[:3] + (length,)) @ value).view(
        query.shape)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        wide = shape.query_heads * shape.head
        narrow = shape.kv_heads * shape.head
        self.attention_norm = RmsNorm(shape.hidden, shape.epsilon)
        self.qkv = nn.Linear(shape.hidden, wide + 2 * narrow, bias=False)
        self.out = nn.Linear(wide, shape.hidden, bias=False)
        self.mlp_norm = RmsNorm(shape.hidden, shape.epsilon)
        self.gate_up = nn.Linear(shape.hidden, 2 * shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def attention(self, x, cos, sin, groups):
        s = self.shape
        qkv = self.qkv(x).view(len(x), s.query_heads + 2 * s.kv_heads, s.head)
        turned, value = qkv.split((s.query_heads + s.kv_heads, s.kv_heads), dim=1)
        turned = rotate(turned, cos.to(qkv.dtype), sin.to(qkv.dtype))
        query, key = turned.split((s.query_heads, s.kv_heads), dim=1)
        outputs = []
        for first, rows, length in groups:
            cut = [t[first:first + rows * length].view(rows, length, -1, s.head).transpose(1, 2)
                   for t in (query, key, value)]
            outputs.append(attend(*cut).transpose(1, 2).reshape(rows * length, -1))
        return self.out(torch.cat(outputs))

    def forward(self, x, cos, sin, groups):
        x = x + self.attention(self.attention_norm(x), cos, sin, groups)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class DemoModel(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden, shape.epsilon)
        nn.init.normal_(self.embedding.weight, std=0.03)
        for layer in self.layers:
            nn.init.normal_(layer.qkv.weight, std=shape.hidden ** -0.5)
            nn.init.normal_(layer.gate_up.weight, std=shape.hidden ** -0.5)
            nn.init.zeros_(layer.out.weight)
            nn.init.zeros_(layer.down.weight)

    def forward(self, tokens, positions, groups, wanted):
        """Logits [len(wanted), vocabulary] at the flat token indices `wanted`."""
        half = self.shape.head // 2
        frequency = self.shape.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = positions.float()[:, None, None] * frequency
        cos, sin = angle.cos(), angle.sin()
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, groups)
        return functional.linear(self.norm(x[wanted]), self.embedding.weight)
