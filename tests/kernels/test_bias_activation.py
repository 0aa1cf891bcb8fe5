"""Bias and activation in one kernel against fp64; skipped without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.layers.feedforward import ACTIVATIONS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ORACLES = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_exact": F.gelu,
    "relu2": lambda x: F.relu(x).square(),
}


@pytest.mark.parametrize("shape", [(3, 16), (50, 200), (5000, 130), (4096, 3072)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_kernels_give_the_result_and_the_gradients(name, shape):
    from regard.kernels.bias_activation import KINDS, bias_activation

    torch.manual_seed(0)
    x, dy = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    bias = torch.randn(shape[1], device="cuda")
    exact = [each.double().requires_grad_() for each in (x, bias)]
    y = ORACLES[name](exact[0] + exact[1])
    expected = [y, *torch.autograd.grad(y, exact, dy.double())]
    inputs = [each.requires_grad_() for each in (x, bias)]
    y = bias_activation(*inputs, KINDS.index(name))
    for got, wanted in zip([y, *torch.autograd.grad(y, inputs, dy)], expected, strict=True):
        error = (got.double() - wanted).norm() / wanted.norm()
        assert error < (4e-3 if got.dtype == torch.bfloat16 else 1e-5)
