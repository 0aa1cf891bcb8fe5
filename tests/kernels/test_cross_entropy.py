"""The loss kernel against the plain formula; skipped without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.models.language_model import IGNORE
from regard.training.objectives import ProjectedCrossEntropy, cross_entropy, cross_entropy_

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [7, 68, 5000, 50_304])
def test_the_kernel_gives_the_loss_and_the_gradient_of_the_formula(size, smoothing):
    torch.manual_seed(size)
    logits = 5 * torch.randn(33, size, device="cuda")
    targets = torch.randint(0, size, (33,), device="cuda")
    targets[::5] = IGNORE
    expected = cross_entropy(logits.double(), targets, targets, smoothing, None)
    padded = F.pad(logits, (0, -size % 8), value=9.0)  # what is there does not count
    *sums, gradient = cross_entropy_(padded, targets, smoothing, size, IGNORE)
    assert not gradient[:, size:].any()
    got = (*sums, gradient[:, :size])
    for ours, plain in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.double(), plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [68, 5001])
def test_training_in_half_precision_has_the_gradient_of_the_formula(size):
    torch.manual_seed(size)
    hidden = torch.randn(300, 64, device="cuda", requires_grad=True)
    weight = torch.randn(size, 64, device="cuda", requires_grad=True)
    targets = torch.randint(0, size, (300,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss, _ = ProjectedCrossEntropy.apply(hidden, weight, targets, targets, 0.1, 0.0, None)
    got = torch.autograd.grad(loss, (hidden, weight))
    plain = F.cross_entropy(hidden @ weight.mT, targets, reduction="sum", label_smoothing=0.1)
    for ours, expected in zip(got, torch.autograd.grad(plain, (hidden, weight)), strict=True):
        assert (ours - expected).norm() < 0.02 * expected.norm()
