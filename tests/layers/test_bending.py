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
    from regard.layers.bending_kernels import BENT, bend_rows

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
def test_a_network_in_half_precision_is_that_in_double(name, compiled):
    torch.compiler.reset()
    torch.manual_seed(0)
    network = FeedForward(32, 128, name, bias=True).cuda()
    torch.nn.init.normal_(network.up.bias)
    x = torch.randn(2, MANY, 32, device="cuda").requires_grad_()
    dy = torch.randn(2, MANY, 32, device="cuda")
    inside = [network.up.weight, network.up.bias, network.down.weight, x]
    assert FeedForward.kernels_fit(x.bfloat16())
    work = torch.compile(network) if compiled else network
    with torch.autocast("cuda", torch.bfloat16):
        y = work(x)
    found = [y, *torch.autograd.grad(y, inside, dy.bfloat16())]
    exact = FeedForward(32, 128, name, bias=True).cuda().double().eval()
    exact.load_state_dict(network.state_dict())
    z = x.detach().double().requires_grad_()
    y = exact(z)
    wanted = [exact.up.weight, exact.up.bias, exact.down.weight, z]
    expected = [y, *torch.autograd.grad(y, wanted, dy.double())]
    for got, one in zip(found, expected, strict=True):
        assert (got.double() - one).norm() < 1.5e-2 * one.norm()


def test_on_a_cpu_there_are_no_kernels():
    """And half precision without them is the plain network."""
    network = FeedForward(8, 16, "gelu", bias=True).train()
    x = torch.randn(1, MANY, 8)
    assert not FeedForward.kernels_fit(x.bfloat16())
    plain = network.down(F.gelu(network.up(x), approximate="tanh"))
    torch.testing.assert_close(network(x), plain)
