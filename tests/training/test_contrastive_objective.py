"""The contrastive loss against torch's cross-entropy, and what it leaves out."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.training.contrastive_objective import pair_losses


def vectors(rows, width, seed):
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, width, generator=draw, dtype=torch.float64), dim=-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_without_copies_it_is_the_mean_of_two_cross_entropies(smoothing):
    x, y, scale = vectors(7, 5, 1), vectors(7, 5, 2), torch.tensor(9.0)
    keys = torch.arange(7)[:, None].repeat(1, 2)
    logits, own = scale * x @ y.T, torch.arange(7)
    options = {"reduction": "none", "label_smoothing": smoothing}
    expected = F.cross_entropy(logits, own, **options)
    expected = (expected + F.cross_entropy(logits.T, own, **options)) / 2
    torch.testing.assert_close(pair_losses(x, y, scale, keys, smoothing=smoothing), expected)


def test_pairs_with_the_same_text_do_not_count_as_wrong():
    """A second image of the same caption used to be pushed away from it."""
    x, y, scale = vectors(4, 5, 1), vectors(4, 5, 2), torch.tensor(9.0)
    y[3] = y[0]
    keys = torch.tensor([[0, 0], [1, 1], [2, 2], [3, 0]])
    losses = pair_losses(x, y, scale, keys)
    without_copy = pair_losses(x[:3], y[:3], scale, keys[:3])
    torch.testing.assert_close(losses[0], without_copy[0])
    logits = scale * x @ y.T
    others = (logits[1].logsumexp(0) + logits[:, 1].logsumexp(0)) / 2 - logits[1, 1]
    torch.testing.assert_close(losses[1], others)


def test_the_gradient_pulls_a_pair_together():
    x, y = vectors(4, 5, 1).requires_grad_(), vectors(4, 5, 2)
    keys = torch.arange(4)[:, None].repeat(1, 2)
    pair_losses(x, y, torch.tensor(5.0), keys)[0].backward()
    assert x.grad is not None
    assert float((x.grad[0] * y[0]).sum()) < 0  # the loss falls along the partner's vector
