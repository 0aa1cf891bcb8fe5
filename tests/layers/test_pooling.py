"""Pooling against means, maxima and weights computed directly."""

from __future__ import annotations

import pytest
import torch

from regard.layers.pooling import POOLINGS, Pooling


def test_mean_first_and_learned_weights():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4)
    mask = torch.tensor([[True] * 3 + [False] * 2, [False] * 5])
    assert torch.equal(Pooling("first", 4)(x, mask)[0], x[0, 0])
    torch.testing.assert_close(Pooling("mean", 4)(x, mask)[0], x[0, :3].mean(0))
    learned = Pooling("attention", 4)
    weights = (x[0, :3] @ learned.score.weight[0]).softmax(0)
    torch.testing.assert_close(learned(x, mask)[0], weights @ x[0, :3])
    for name in POOLINGS:  # an empty row
        assert (Pooling(name, 4)(x, mask)[1] == 0).all()


def test_the_maximum_of_each_feature_and_the_share_of_each_position():
    pool = Pooling("max", 3)
    x = torch.tensor([[[1.0, -5, 0], [2, -7, 9], [8, 8, 8]]])
    mask = torch.tensor([[True, True, False]])
    assert pool(x, mask).tolist() == [[2, -5, 9]]
    assert pool.weights(x, mask)[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert not pool(x, ~mask & False).any()
