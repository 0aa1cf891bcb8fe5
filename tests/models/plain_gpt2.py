"""The gpt2 preset in 30 lines of plain PyTorch: an oracle of ablation, patching and lenses."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from regard.models.decoder import Decoder, DecoderConfig

SHAPE = {"n_layers": 2, "d_model": 24, "n_heads": 3, "n_kv_heads": 3, "d_head": 8, "d_ff": 40}


def decoder(**settings):
    torch.manual_seed(0)
    return Decoder(17, DecoderConfig(**SHAPE, max_len=16, **settings)).eval()


def plain_gpt2(model, ids, *, heads=(), swap=None, blocks=2, streams=None):
    """Zero some (block, head), swap in a residual stream, or leave out the last blocks; `streams`
    collects the residual stream after each block.
    """
    t = ids.size(1)
    x = F.embedding(ids, model.embedding.weight) + model.positions.embedding.weight[:t]
    blocked = torch.full((t, t), -torch.inf).triu(1)
    for i, block in enumerate(model.blocks[:blocks]):
        a, f = block.mixer, block.feedforward
        y = F.layer_norm(x, (24,), block.mixer_norm.weight, block.mixer_norm.bias, 1e-5)
        q, k, v = F.linear(y, a.qkv.weight, a.qkv.bias).split(24, -1)
        made = []
        for h in range(3):
            part = slice(8 * h, 8 * h + 8)
            scores = q[..., part] @ k[..., part].mT / math.sqrt(8) + blocked
            head = scores.softmax(-1) @ v[..., part]
            made.append(torch.zeros_like(head) if (i, h) in heads else head)
        x = x + F.linear(torch.cat(made, -1), a.out.weight, a.out.bias)
        y = F.layer_norm(x, (24,), block.feedforward_norm.weight, block.feedforward_norm.bias, 1e-5)
        hidden = F.gelu(F.linear(y, f.up.weight, f.up.bias), approximate="tanh")
        x = x + F.linear(hidden, f.down.weight, f.down.bias)
        if swap is not None and swap[0] == i:
            x = swap[1].clone() if swap[2] is None else patched(x, swap[1], swap[2])
        if streams is not None:
            streams.append(x)
    x = F.layer_norm(x, (24,), model.norm.weight, model.norm.bias, 1e-5)
    return x @ model.embedding.weight.T


def patched(x, source, position):
    x = x.clone()
    x[:, position] = source[:, position]
    return x


GPT2 = {
    "norm": "layer",
    "norm_eps": 1e-5,
    "positions": "learned",
    "feedforward": "gelu",
    "bias": True,
    "qk_norm": False,
    "tied": True,
}
