"""Pooling: one vector for a sequence, from those of its positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean

POOLINGS = ("mean", "first", "attention", "max", "sum")


class Pooling(nn.Module):
    """`mean` over all positions; `first`, the vector of `<S>` (BERT's [CLS]); `attention`, a mean
    with learned weights, a softmax of one score per position (Yang et al. 2016, "Hierarchical
    attention networks for document classification"); `max` of each feature (Collobert et al. 2011);
    `sum`, for targets that grow with the sequence, as the energy of a molecule does.

    `segments` (B, T) numbers sequences, 0 being padding. Without `count` every row is a sequence,
    even an empty one; with it, rows are packed and hold `count` sequences in all.
    """

    def __init__(self, name: str, d_model: int) -> None:
        super().__init__()
        if name not in POOLINGS:
            raise UsageError(f"unknown pooling {name!r}; {did_you_mean(name, list(POOLINGS))}")
        self.name = name
        self.score = nn.Linear(d_model, 1, bias=False) if name == "attention" else None

    def forward(self, x: Tensor, segments: Tensor, count: int | None = None) -> Tensor:
        """(B, T, D) to the vectors (N, D) of N sequences; an empty one gives zeros."""
        sequence, n = number_sequences(segments, count)
        flat = x.flatten(0, 1)
        if self.name == "max":
            highest = self._highest(flat, sequence, n)
            return highest.masked_fill(highest == -torch.inf, 0)[:n]
        weights = self.weights(x, segments, count).flatten()  # (B·T,)
        single = torch.promote_types(x.dtype, torch.float32)  # sums of many, rounded once
        sums = flat.new_zeros(n + 1, x.size(-1), dtype=single)
        return sums.index_add(0, sequence, flat.to(single) * weights[:, None])[:n].to(x.dtype)

    def weights(self, x: Tensor, segments: Tensor, count: int | None = None) -> Tensor:
        """Return the weight (B, T) of each position in its sequence; for "max", the share of
        features that are largest there.
        """
        sequence, n = number_sequences(segments, count)
        valid = sequence < n
        if self.name == "max":
            flat = x.flatten(0, 1)
            largest = (flat == self._highest(flat, sequence, n)[sequence]) & valid[:, None]
            ties = largest.new_zeros(n + 1, x.size(-1), dtype=x.dtype)
            ties = ties.index_add(0, sequence, largest.to(x.dtype))
            shares = largest / ties.clamp_min(1)[sequence]
            return shares.mean(-1).view_as(segments)
        if self.name == "sum":
            return valid.to(x.dtype).view_as(segments)
        if self.name == "first":
            starts = torch.ones_like(segments, dtype=torch.bool)
            starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
            return (starts.flatten() & valid).to(x.dtype).view_as(segments)
        single = torch.promote_types(x.dtype, torch.float32)
        scores = x.new_zeros(sequence.shape, dtype=single)
        if self.score is not None:
            scores = self.score(x).flatten().to(single)
        top = scores.new_full((n + 1,), -torch.inf)
        top = top.scatter_reduce(0, sequence, scores.detach(), "amax")
        powers = (scores - top[sequence]).exp() * valid
        sums = scores.new_zeros(n + 1).index_add(0, sequence, powers)
        tiny = torch.finfo(single).tiny
        return (powers / sums.clamp_min(tiny)[sequence]).view_as(segments)

    @staticmethod
    def _highest(flat: Tensor, sequence: Tensor, n: int) -> Tensor:
        """Return the maximum of each feature, (N + 1, D)."""
        lowest = flat.new_full((n + 1, flat.size(-1)), -torch.inf)
        return lowest.scatter_reduce(0, sequence[:, None].expand_as(flat), flat, "amax")


def number_sequences(segments: Tensor, count: int | None) -> tuple[Tensor, int]:
    """Return the sequence (B·T,) of every position, from 0, and their number N; padding has N."""
    parts = segments.long()
    if count is None:
        n, rows = len(parts), torch.arange(len(parts), device=parts.device)
        sequence = rows[:, None].expand_as(parts)
    else:
        n, last = count, parts.amax(1)
        sequence = (last.cumsum(0) - last)[:, None] + parts - 1
    return sequence.masked_fill(parts == 0, n).flatten(), n
