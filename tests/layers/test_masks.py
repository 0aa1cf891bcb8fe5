"""Masks: one rule, rendered as a boolean tensor, as is_causal and as FlexAttention's mask_mod."""

from __future__ import annotations

import pytest
import torch

from regard.layers.masks import Causal, Documents, Mask, Padding, Window

CPU = torch.device("cpu")


def by_hand(allowed, batch, t, s):
    return torch.tensor(
        [[[[allowed(b, q, k) for k in range(s)] for q in range(t)]] for b in range(batch)]
    )


SEGMENTS = [[1, 1, 2, 2, 0], [3, 3, 3, 1, 1]]
CASES: list[tuple[Mask, object]] = [
    (Causal(), lambda b, q, k: k <= q),
    (Window(2), lambda b, q, k: abs(q - k) < 2),
    (Causal() & Window(3), lambda b, q, k: q - 3 < k <= q),
    (Padding(torch.tensor([2, 5])), lambda b, q, k: k < (2, 5)[b]),
    (Documents(torch.tensor(SEGMENTS)), lambda b, q, k: SEGMENTS[b][q] == SEGMENTS[b][k]),
    (Causal().shifted(2), lambda b, q, k: k <= q + 2),
    (Causal().shifted(torch.tensor([0, 3])), lambda b, q, k: k <= q + (0, 3)[b]),
]


@pytest.mark.parametrize(("mask", "allowed"), CASES)
def test_a_mask_renders_as_the_tensor_its_rule_says(mask, allowed):
    expected = by_hand(allowed, 2, 5, 5)
    assert (mask.tensor(2, 5, 5, CPU).expand_as(expected) == expected).all()


@pytest.mark.parametrize(("mask", "allowed"), CASES)
def test_the_same_rule_is_a_flex_attention_mask_mod(mask, allowed):
    from torch.nn.attention.flex_attention import create_mask

    rendered = create_mask(mask.mask_mod(), 2, 1, 5, 5, device="cpu")
    assert (rendered == by_hand(allowed, 2, 5, 5)).all()


def test_only_plain_causal_masks_use_the_kernels_own_triangle():
    assert Causal().is_causal(5, 5) and Causal().shifted(0).is_causal(5, 5)
    assert not Causal().is_causal(3, 5)  # the kernel's triangle starts at the top left
    assert not Causal().shifted(2).is_causal(5, 5)
    assert not (Causal() & Window(9)).is_causal(5, 5)
    assert not Causal().shifted(torch.tensor([0, 0])).is_causal(5, 5)


def test_a_window_without_width_is_refused():
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        Window(0)
