"""Where attention heads attend: entropy, distance, and weight on tokens of a certain place.

A head attends to the token before (Vig & Belinkov 2019, arXiv:1906.04284), to the first token as a
place of rest (Xiao et al. 2023, arXiv:2309.17453), to another occurrence of the current token, or
to the token that followed that occurrence (induction: Elhage et al. 2021; Olsson et al. 2022,
arXiv:2209.11895). Each score is a mean weight over the queries that have such a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from torch import Tensor

NONE = float("nan")  # of what a head does not have
CLEAR = 0.3  # mean weight from which on a head is named by it


@dataclass(frozen=True)
class HeadScores:
    """Where one head attends; NaN where the input says nothing of it."""

    bits: float  # entropy of its weights
    offset: float  # distance to where it attends, on average: tokens, or patches of the grid
    first: float = NONE  # weight on the first token
    previous: float = NONE  # weight on the token before
    same: float = NONE  # weight on another occurrence of the token
    induction: float = NONE  # weight on what followed that occurrence, of causal attention

    @property
    def role(self) -> str:
        """What the head does most, or "mixed"."""
        weights = {
            "induction": self.induction,
            "previous token": self.previous,
            "same token": self.same,
            "first token": self.first,
        }
        known = {name: weight for name, weight in weights.items() if weight >= CLEAR}
        return max(known, key=lambda name: known[name], default="mixed")

    @staticmethod
    def mean(scores: Sequence[HeadScores]) -> HeadScores:
        """Return the mean of several, of those that have a number each."""
        rows = np.array([astuple(one) for one in scores])
        known = ~np.isnan(rows)
        sums = np.where(known, rows, 0.0).sum(0)
        means = np.where(known.any(0), sums / np.maximum(1, known.sum(0)), NONE)
        return HeadScores(*means.tolist())


def entropy_bits(weights: Tensor) -> Tensor:
    """Return the entropy (...) in bits of attention weights (..., S)."""
    logs = torch.where(weights > 0, weights, 1.0).log2()
    return -(weights * logs).sum(-1)


def offsets(weights: Tensor) -> Tensor:
    """Return the mean distance (..., T) from each query to its keys under weights (..., T, S)."""
    t, s = weights.shape[-2:]
    gaps = (torch.arange(t)[:, None] - torch.arange(s)).abs()
    return (weights * gaps.to(weights)).sum(-1)


def mean_over(values: Tensor, which: Tensor) -> Tensor:
    """Return the mean (...) of values (..., N) where `which` (N,) is True; NaN if it nowhere is."""
    return values.where(which, 0).sum(-1) / which.sum(-1)


def score_heads(
    weights: Tensor,
    ids: Tensor | None = None,
    segments: Tensor | None = None,
    *,
    causal: bool,
) -> list[HeadScores]:
    """Return where each head attends, given its weights (B, H, T, S) over B rows; the queries are
    the first T of the S positions.

    `ids` (B, S) are the tokens, if the input has some; `segments` (B, S) number the records that
    share a row, 0 being padding. With `causal`, only earlier occurrences of a token count; without,
    there is no induction.
    """
    b, h, t, s = weights.shape
    if segments is None:
        segments = torch.ones(b, s, dtype=torch.int64)
    by_head = weights.double().transpose(0, 1)  # (H, B, T, S)
    valid = segments[:, :t].flatten() > 0  # (B·T,)
    scores = {
        "bits": mean_over(entropy_bits(by_head).flatten(1), valid),
        "offset": mean_over(offsets(by_head).flatten(1), valid),
    }
    for name, keys in key_masks(ids, segments, t, causal=causal).items():
        weight = (by_head * keys).sum(-1).flatten(1)  # (H, B·T)
        scores[name] = mean_over(weight, keys.any(-1).flatten())
    return [
        HeadScores(**{name: float(values[i]) for name, values in scores.items()}) for i in range(h)
    ]


def key_masks(ids: Tensor | None, segments: Tensor, t: int, *, causal: bool) -> dict[str, Tensor]:
    """Return the keys (B, T, S) that each score is the weight on."""
    valid = segments > 0  # (B, S)
    pairs = (segments[:, :t, None] == segments[:, None]) & valid[:, None]  # (B, T, S)
    gaps = torch.arange(t)[:, None] - torch.arange(segments.size(1))  # (T, S)
    starts = valid.clone()
    starts[:, 1:] &= segments[:, 1:] != segments[:, :-1]
    keys = {"first": pairs & starts[:, None] & (gaps != 0), "previous": pairs & (gaps == 1)}
    if ids is not None:
        same = pairs & (ids[:, :t, None] == ids[:, None]) & (gaps > 0 if causal else gaps != 0)
        keys["same"] = same
        if causal:
            after = torch.zeros_like(same)
            after[:, :, 1:] = same[:, :, :-1]  # what followed an earlier occurrence
            keys["induction"] = after & pairs
    return keys
