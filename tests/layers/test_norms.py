"""Norms against the formula and torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.norms import RMSNorm, make_norm


def test_layer_norm_divides_by_the_root_of_variance_plus_epsilon():
    x = torch.randn(3, 7)
    norm = make_norm("layer", 7, 0.5, True)
    expected = (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, unbiased=False, keepdim=True) + 0.5
    ).sqrt()
    torch.testing.assert_close(norm(x), expected)
    rms = make_norm("rms", 7, 0.5, False)
    torch.testing.assert_close(rms(x), x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt())


@pytest.mark.parametrize("gains", ["one vector", "one for each head"])
def test_rms_norm_and_its_gradient_are_torchs(gains):
    torch.manual_seed(4)
    norm = RMSNorm(7, 1e-3).double()
    x = (torch.randn(3, 5, 4, 7).double() * 3).requires_grad_()
    gain = torch.randn(7 if gains == "one vector" else (4, 7)).double().requires_grad_()
    upstream = torch.randn_like(x)

    def gradients(y):
        return torch.autograd.grad(y, (x, gain), upstream)

    ours = norm.normalize(x, gain)
    theirs = F.rms_norm(x, (7,), eps=1e-3) * gain
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(norm.normalize(x, gain), theirs)
    zero = torch.zeros(2, 7, dtype=torch.double, requires_grad=True)
    norm(zero).sum().backward()
    assert torch.isfinite(zero.grad).all()


def test_an_unknown_norm_is_refused_with_a_hint():
    with pytest.raises(UsageError, match="did you mean"):
        make_norm("layr", 4, 1e-5, False)
