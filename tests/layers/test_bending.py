"""The kernels that add a bias and bend, against the same written out in fp64, alone and compiled;
skipped without a GPU.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.layers.feedforward import BENDS, MANY, FeedForward

ORACLES = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_exact": F.gelu,
    "relu2": lambda x: F.relu(x).square(),
}
advice = pytest.mark.filterwarnings("default")  # a compiler that gives advice has not failed
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@gpu
@pytest.mark.parametrize("shape", [(3, 16), (50, 200), (5000, 130), (4096, 3072)])
@pytest.mark.parametrize("name", BENDS)
def test_the_kernels_bend_and_sum(name, shape):
    from regard.kernels.bias_activation import BENT
    from regard.kernels.bias_activation import bias_activation as bend_rows

    torch.manual_seed(0)
    x, dy = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    bias = torch.randn(shape[1], device="cuda")
    exact = [each.double().requires_grad_() for each in (x, bias)]
    y = ORACLES[name](exact[0] + exact[1])
    expected = [y, *torch.autograd.grad(y, exact, dy.double())]
    given = [each.requires_grad_() for each in (x, bias)]
    y = bend_rows(*given, BENT.index(name))
    for got, wanted in zip([y, *torch.autograd.grad(y, given, dy)], expected, strict=True):
        off = (got.double() - wanted).norm() / wanted.norm()
        assert off < (4e-3 if got.dtype == torch.bfloat16 else 1e-5)


@gpu
@advice
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", BENDS)
def test_a_network_is_as_near_to_double_precision_as_without_them(name, compiled):
    """Without them: where it is not training. A bend with a corner is off where rounding crosses
    it, so that PyTorch's own half precision is the measure.
    """
    torch.compiler.reset()
    torch.manual_seed(0)
    network = FeedForward(32, 128, name, bias=True).cuda()
    torch.nn.init.normal_(network.up.bias)
    x, dy = (torch.randn(2, MANY, 32, device="cuda") for _ in range(2))
    assert FeedForward.kernels_fit(x.bfloat16())

    def results(module, work, x, dy):
        y = work(x.requires_grad_())
        inside = [module.up.weight, module.up.bias, module.down.weight, x]
        return [y, *torch.autograd.grad(y, inside, dy.to(y.dtype))]

    with torch.autocast("cuda", torch.bfloat16):
        found = results(network, torch.compile(network) if compiled else network, x, dy)
        plain = results(network, network.eval(), x, dy)
    exact = results(network.double(), network, x.double().detach(), dy.double())
    for got, usual, one in zip(found, plain, exact, strict=True):
        off, allowed = ((each.double() - one).norm() / one.norm() for each in (got, usual))
        assert off < 1.2 * allowed + 1e-3


def test_on_a_cpu_there_are_no_kernels():
    """And half precision without them is the plain network."""
    network = FeedForward(8, 16, "gelu", bias=True).train()
    x = torch.randn(1, MANY, 8)
    assert not FeedForward.kernels_fit(x.bfloat16())
    plain = network.down(F.gelu(network.up(x), approximate="tanh"))
    torch.testing.assert_close(network(x), plain)
