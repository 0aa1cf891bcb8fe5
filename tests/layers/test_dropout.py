"""Dropout: the right share, the right scale, the same draws for the same seed."""

from __future__ import annotations

import pytest
import torch

from regard.layers.feedforward import dropout


@pytest.mark.parametrize("p", [0.1, 0.25, 0.7])
def test_each_value_is_dropped_with_probability_p_and_the_mean_is_kept(p):
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
    kept = (dropout(torch.ones(400_000), 0.5, True) > 0).float() - 0.5
    for distance in (1, 2, 3, 4, 5):
        correlation = float((kept[:-distance] * kept[distance:]).mean() * 4)
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
