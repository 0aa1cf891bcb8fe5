"""Where heads attend, by definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.evaluation.head_scores import HeadScores, entropy_bits, score_heads


def test_entropy_in_bits():
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]])
    assert entropy_bits(weights).tolist() == [2.0, 0.0]


def causal_weights():
    weights = torch.zeros(1, 2, 5, 5)
    weights[0, 0, 0, 0] = weights[0, 0, 1, 0] = weights[0, 0, 2, 1] = 1
    weights[0, 0, 3, 1] = 1.0  # 1 was followed by 2, at position 1: induction
    weights[0, 0, 4, 1] = 0.5  # the same token ...
    weights[0, 0, 4, 2] = 0.5  # ... and what followed it
    weights[0, 1, :, 0] = 1.0
    return weights


def test_where_a_head_attends_is_measured_as_defined():
    ids = torch.tensor([[1, 2, 3, 1, 2]])
    scores, rest = score_heads(causal_weights(), ids, causal=True)
    assert scores.bits == pytest.approx(1 / 5)
    assert scores.offset == pytest.approx((0 + 1 + 1 + 2 + 2.5) / 5)
    assert scores.previous == pytest.approx(2 / 4)
    assert scores.same == pytest.approx(0.5 / 2)
    assert scores.induction == pytest.approx((1 + 0.5) / 2) and scores.role == "induction"
    assert scores.first == pytest.approx(1 / 4)
    assert rest.first == 1 and rest.role == "first token" and rest.offset == 2


def test_padding_and_other_records_of_a_row_do_not_count():
    ids = torch.tensor([[1, 2, 3, 1, 2]])
    alone = score_heads(causal_weights(), ids, causal=True)
    weights = torch.zeros(1, 2, 9, 9)
    weights[:, :, :2, 0] = 1.0  # a record of two tokens before
    weights[:, :, 2:7, 2:7] = causal_weights()
    weights[:, :, 7:, 7] = 1.0  # padding
    ids = torch.tensor([[1, 2, 1, 2, 3, 1, 2, 0, 0]])
    segments = torch.tensor([[1, 1, 2, 2, 2, 2, 2, 0, 0]])
    both = score_heads(weights, ids, segments, causal=True)
    assert both[0].same == pytest.approx(alone[0].same)
    assert both[0].induction == pytest.approx(alone[0].induction)
    assert both[0].previous == pytest.approx((1 + 2) / 5)  # over the queries of both records
    assert both[1].first == 1 and both[1].bits == 0
    assert both[1].offset == pytest.approx((0 + 1 + 0 + 1 + 2 + 3 + 4) / 7)


def test_without_a_causal_mask_later_occurrences_count_too():
    weights = torch.zeros(1, 1, 3, 3)
    weights[0, 0, 0, 2] = weights[0, 0, 1, 0] = weights[0, 0, 2, 1] = 1.0
    (scores,) = score_heads(weights, torch.tensor([[5, 6, 5]]), causal=False)
    assert scores.offset == pytest.approx((2 + 1 + 1) / 3) and scores.bits == 0
    assert scores.previous == 1.0  # of the two tokens that have one before
    assert scores.same == pytest.approx(1 / 2)  # the first 5 attends to the second
    assert np.isnan(scores.induction)
    (first,) = score_heads(weights[:, :, :1], torch.tensor([[5, 6, 5]]), causal=False)
    assert first.same == 1 and np.isnan(first.previous)  # of the first query alone
    (unknown,) = score_heads(weights, causal=False)
    assert np.isnan(unknown.same) and unknown.role == "previous token"


def test_means_are_over_the_heads_that_have_a_number():
    mean = HeadScores.mean([HeadScores(1.0, 2.0), HeadScores(3.0, float("nan"), 0.5)])
    assert (mean.bits, mean.offset, mean.first) == (2.0, 2.0, 0.5) and np.isnan(mean.same)
    assert mean.role == "first token" and HeadScores(1.0, 2.0).role == "mixed"
