"""Norms, feed-forward networks, blocks and recurrence against torch's own or the formula."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.attention import AttentionContext, SelfAttention
from regard.layers.block import Block
from regard.layers.feedforward import FEEDFORWARDS, make_feedforward
from regard.layers.norms import RMSNorm, make_norm
from regard.layers.recurrent import RecurrentStack


def test_layer_norm_divides_by_the_root_of_variance_plus_epsilon():
    x = torch.randn(3, 7)
    norm = make_norm("layer", 7, 0.5, True)
    expected = (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, unbiased=False, keepdim=True) + 0.5
    ).sqrt()
    torch.testing.assert_close(norm(x), expected)
    rms = make_norm("rms", 7, 0.5, False)
    torch.testing.assert_close(rms(x), x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt())


@pytest.mark.parametrize("name", FEEDFORWARDS)
def test_feed_forward_is_its_formula(name):
    torch.manual_seed(0)
    part = make_feedforward(name, 5, 8, bias=True)
    x = torch.randn(2, 3, 5)
    if name == "swiglu":
        gate, up = (x @ part.gate_up.weight.T + part.gate_up.bias).chunk(2, -1)
        inner = gate * torch.sigmoid(gate) * up
    else:
        up = x @ part.up.weight.T + part.up.bias
        cubic = 0.5 * up * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (up + 0.044715 * up**3)))
        exact = up * torch.distributions.Normal(0.0, 1.0).cdf(up)
        bent = {"relu": up.clamp_min(0), "relu2": up.clamp_min(0) ** 2}
        inner = (bent | {"gelu": cubic, "gelu_exact": exact})[name]
    expected = inner @ part.down.weight.T + part.down.bias
    torch.testing.assert_close(part(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["feedforward", "norm"])
def test_unknown_parts_are_refused_with_a_hint(kind):
    with pytest.raises(UsageError, match="did you mean"):
        if kind == "feedforward":
            make_feedforward("swigul", 4, 4, bias=False)
        else:
            make_norm("layr", 4, 1e-5, False)


@pytest.mark.parametrize("post_norm", [False, True])
def test_a_block_adds_and_normalises_where_it_says(post_norm):
    torch.manual_seed(1)
    mixer, part = SelfAttention(6, 2), make_feedforward("relu", 6, 9, bias=True)
    block = Block(mixer, part, lambda: nn.LayerNorm(6), post_norm=post_norm, dropout=0.0)
    x, place = torch.randn(2, 4, 6), AttentionContext()
    if post_norm:
        middle = F.layer_norm(x + mixer(x, place), (6,))
        expected = F.layer_norm(middle + part(middle), (6,))
    else:
        middle = x + mixer(F.layer_norm(x, (6,)), place)
        expected = middle + part(F.layer_norm(middle, (6,)))
    torch.testing.assert_close(block(x, place), expected, atol=1e-5, rtol=1e-5)


def test_dropout_acts_in_training_only():
    part = make_feedforward("relu", 6, 9, bias=True)
    block = Block(SelfAttention(6, 2), part, lambda: nn.LayerNorm(6), post_norm=False, dropout=0.5)
    x = torch.randn(2, 4, 6)
    assert not torch.equal(
        block.train()(x, AttentionContext()), block.eval()(x, AttentionContext())
    )
    assert torch.equal(block(x, AttentionContext()), block(x, AttentionContext()))


def test_the_recurrence_carries_its_state_over_ragged_prompts():
    torch.manual_seed(2)
    stack = RecurrentStack(nn.LSTM, 5, 2, 0.0).eval()
    x, lengths = torch.randn(3, 6, 5), torch.tensor([2, 6, 4])
    state = stack.new_state(3, x)
    last = stack.advance(x, lengths, state)
    more = stack.advance(x[:, :2], None, state)
    for row, n in enumerate(lengths.tolist()):
        alone = torch.cat([x[row, :n], x[row, :2]])[None]
        out, (hidden, cell) = stack.cells(alone)
        torch.testing.assert_close(last[row], out[0, n - 1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(more[row], out[0, -1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(state.vectors[0][:, row], hidden[:, 0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(state.vectors[1][:, row], cell[:, 0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("gains", ["one vector", "one for each head"])
def test_rms_norm_and_its_gradient_are_torchs(gains):
    torch.manual_seed(4)
    norm = RMSNorm(7, 1e-3).double()
    x = (torch.randn(3, 5, 4, 7).double() * 3).requires_grad_()
    gain = torch.randn(7 if gains == "one vector" else (4, 7)).double().requires_grad_()
    upstream = torch.randn_like(x)

    def gradients(y):
        return torch.autograd.grad(y, (x, gain), upstream)

    ours = norm.normalise(x, gain)
    theirs = F.rms_norm(x, (7,), eps=1e-3) * gain
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(norm.normalise(x, gain), theirs)
    zero = torch.zeros(2, 7, dtype=torch.double, requires_grad=True)
    norm(zero).sum().backward()
    assert torch.isfinite(zero.grad).all()
