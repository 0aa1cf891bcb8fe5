"""The loss kernel against the plain formula; skipped without a GPU."""

from __future__ import annotations

import pytest
import torch

from regard.train.objectives import cross_entropy, cross_entropy_

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [7, 68, 5000, 50_304])
def test_the_kernel_gives_the_loss_and_the_gradient_of_the_formula(size, smoothing):
    torch.manual_seed(size)
    logits = 5 * torch.randn(33, size, device="cuda")
    targets = torch.randint(0, size, (33,), device="cuda")
    targets[::5] = -1
    expected = cross_entropy(logits.double(), targets, targets, smoothing, None)
    got = cross_entropy_(logits.clone(), targets, smoothing)
    for ours, plain in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.double(), plain, atol=1e-5, rtol=1e-5)
