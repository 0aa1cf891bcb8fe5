"""Blocks add and normalize where they should."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.layers.attention import AttentionContext, SelfAttention
from regard.layers.block import Block
from regard.layers.feedforward import make_feedforward


@pytest.mark.parametrize("post_norm", [False, True])
def test_a_block_adds_and_normalizes_where_it_should(post_norm):
    torch.manual_seed(1)
    mixer, part = SelfAttention(6, 2), make_feedforward("relu", 6, 9, bias=True)
    block = Block(mixer, part, lambda: nn.LayerNorm(6), post_norm=post_norm, dropout=0.0)
    x, context = torch.randn(2, 4, 6), AttentionContext()
    if post_norm:
        middle = F.layer_norm(x + mixer(x, context), (6,))
        expected = F.layer_norm(middle + part(middle), (6,))
    else:
        middle = x + mixer(F.layer_norm(x, (6,)), context)
        expected = middle + part(F.layer_norm(middle, (6,)))
    torch.testing.assert_close(block(x, context), expected, atol=1e-5, rtol=1e-5)


def test_dropout_acts_in_training_only():
    part = make_feedforward("relu", 6, 9, bias=True)
    block = Block(SelfAttention(6, 2), part, lambda: nn.LayerNorm(6), post_norm=False, dropout=0.5)
    x = torch.randn(2, 4, 6)
    assert not torch.equal(
        block.train()(x, AttentionContext()), block.eval()(x, AttentionContext())
    )
    assert torch.equal(block(x, AttentionContext()), block(x, AttentionContext()))
