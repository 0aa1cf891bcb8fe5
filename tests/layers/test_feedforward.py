"""Feed-forward networks against their formulas, with and without the kernel; dropout."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.feedforward import (
    ACTIVATIONS,
    FEEDFORWARDS,
    MIN_POSITIONS,
    FeedForward,
    dropout,
    make_feedforward,
)

advice = pytest.mark.filterwarnings("default")  # a compiler that gives advice has not failed
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


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
        by_name = {"relu": up.clamp_min(0), "relu2": up.clamp_min(0) ** 2}
        inner = (by_name | {"gelu": cubic, "gelu_exact": exact})[name]
    expected = inner @ part.down.weight.T + part.down.bias
    torch.testing.assert_close(part(x), expected, atol=1e-5, rtol=1e-5)


def test_an_unknown_network_is_refused_with_a_hint():
    with pytest.raises(UsageError, match="did you mean"):
        make_feedforward("swigul", 4, 4, bias=False)


@gpu
@advice
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_with_the_kernel_a_network_is_as_accurate_as_without(name, compiled):
    """The kernel runs in training only. Where rounding crosses the kink of an activation the error
    is large, so PyTorch's own half precision sets the tolerance.
    """
    torch.compiler.reset()
    torch.manual_seed(0)
    network = FeedForward(32, 128, name, bias=True).cuda()
    torch.nn.init.normal_(network.up.bias)
    x, dy = (torch.randn(2, MIN_POSITIONS, 32, device="cuda") for _ in range(2))
    assert FeedForward.fits_kernel(x.bfloat16())

    def results(module, work, x, dy):
        y = work(x.requires_grad_())
        inside = [module.up.weight, module.up.bias, module.down.weight, x]
        return [y, *torch.autograd.grad(y, inside, dy.to(y.dtype))]

    with torch.autocast("cuda", torch.bfloat16):
        fused = results(network, torch.compile(network) if compiled else network, x, dy)
        plain = results(network, network.eval(), x, dy)
    exact = results(network.double(), network, x.double().detach(), dy.double())
    for got, usual, one in zip(fused, plain, exact, strict=True):
        off, allowed = ((each.double() - one).norm() / one.norm() for each in (got, usual))
        assert off < 1.2 * allowed + 1e-3


def test_a_cpu_does_not_use_the_kernel():
    """And half precision without them is the plain network."""
    network = FeedForward(8, 16, "gelu", bias=True).train()
    x = torch.randn(1, MIN_POSITIONS, 8)
    assert not FeedForward.fits_kernel(x.bfloat16())
    plain = network.down(F.gelu(network.up(x), approximate="tanh"))
    torch.testing.assert_close(network(x), plain)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.7])
def test_each_value_is_dropped_with_probability_p_and_the_mean_stays(p):
    torch.manual_seed(0)
    x = torch.ones(401, 503)  # not a multiple of four values
    y = dropout(x, p, True)
    share = float((y == 0).float().mean())
    assert abs(share - p) < 4 * (p * (1 - p) / x.numel()) ** 0.5
    assert torch.unique(y).tolist() == pytest.approx([0.0, 1 / (1 - p)], rel=1e-4)
    for axis in (0, 1):  # no row or column is favoured
        spread = (y == 0).float().mean(axis)
        assert (spread - p).abs().max() < 6 * (p * (1 - p) / 401) ** 0.5


def test_neighbouring_values_are_dropped_independently():
    torch.manual_seed(1)
    mask = (dropout(torch.ones(400_000), 0.5, True) > 0).float() - 0.5
    for distance in (1, 2, 3, 4, 5):
        correlation = float((mask[:-distance] * mask[distance:]).mean() * 4)
        assert abs(correlation) < 4 / 400_000**0.5


def test_the_seed_decides_and_gradients_follow_the_mask():
    x = torch.randn(7, 5, requires_grad=True)
    torch.manual_seed(2)
    first = dropout(x, 0.3, True)
    torch.manual_seed(2)
    assert torch.equal(first, dropout(x, 0.3, True))
    first.sum().backward()
    assert torch.equal(x.grad == 0, first == 0)


def test_nothing_is_dropped_outside_training_or_at_p_zero():
    x = torch.randn(4)
    assert dropout(x, 0.5, False) is x and dropout(x, 0.0, True) is x
