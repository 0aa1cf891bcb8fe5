"""Linear attention: sums over keys against the quadratic form with its weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.layers.attention import AttentionContext
from regard.layers.linear_attention import CHUNK, LinearAttention
from regard.layers.tap import Tap

D, HEADS = 12, 3


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def make(causal=True, **options):
    torch.manual_seed(2)
    return LinearAttention(D, HEADS, causal=causal, **options)


def quadratic(layer, x, valid=None):
    """Equation 4 of the paper, pair by pair: every key's weight is formed."""
    q, k, v = (part.transpose(1, 2) for part in layer.project(x, AttentionContext()))
    groups = HEADS // k.size(1)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    products = torch.einsum("bhtk,bhsk->bhts", F.elu(q) + 1, F.elu(k) + 1)
    if layer.causal:
        products = products * torch.ones(x.size(1), x.size(1)).tril()
    if valid is not None:
        products = products * valid[:, None, None]
    y = (products / products.sum(-1, keepdim=True)) @ v
    return layer.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("length", [1, CHUNK, 2 * CHUNK + 9])
@pytest.mark.parametrize("options", [{}, {"causal": False}, {"n_kv_heads": 1}])
def test_it_is_the_quadratic_form(length, options):
    layer, x = make(**options), random(2, length, D)
    torch.testing.assert_close(layer(x, AttentionContext()), quadratic(layer, x), atol=1e-5, rtol=0)


def test_padding_counts_nothing_where_it_looks_ahead():
    layer, x = make(causal=False), random(2, 40, D)
    valid = torch.arange(40) < torch.tensor([[40], [23]])
    got = layer(x, AttentionContext(valid=valid))
    torch.testing.assert_close(got, quadratic(layer, x, valid), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        got[1:, :23], layer(x[1:, :23], AttentionContext()), atol=1e-5, rtol=0
    )


def test_its_weights_are_shown_and_give_the_same():
    layer, x, tap = make(), random(1, 80, D), Tap(["*"])
    torch.testing.assert_close(
        layer(x, AttentionContext(), None, tap), layer(x, AttentionContext()), atol=1e-5, rtol=0
    )
    weights = tap.activations["weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, HEADS, 80))
    assert (weights.triu(1) == 0).all()
    torch.testing.assert_close(tap.activations["scores"].softmax(-1), weights, atol=1e-6, rtol=0)


def test_its_state_is_as_large_after_any_number_of_tokens_and_recurs():
    layer, x = make(), random(2, 150, D)
    expected, state = layer(x, AttentionContext()), layer.new_state(2, 150, x)
    assert state.tensor.shape == (2, 2, HEADS, D // HEADS, D // HEADS + 1)
    first = layer(x[:, :70], AttentionContext(slots=0), state)
    torch.testing.assert_close(first, expected[:, :70], atol=1e-5, rtol=0)
    for t in range(70, 150):
        got = layer(x[:, t : t + 1], AttentionContext(slots=t), state)
        torch.testing.assert_close(got, expected[:, t : t + 1], atol=1e-5, rtol=0)


def test_no_gradient_flows_from_the_future():
    layer, x = make(), random(1, 2 * CHUNK, D).requires_grad_()
    layer(x, AttentionContext())[:, CHUNK + 3].sum().backward()
    assert (x.grad[:, : CHUNK + 4].abs().amax(-1) > 0).all()
    assert x.grad[:, CHUNK + 4 :].abs().max() == 0
