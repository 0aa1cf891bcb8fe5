"""One vector for a whole sequence, from those of its positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.errors import UsageError, did_you_mean

POOLINGS = ("mean", "first", "attention", "max", "sum")


class Pooling(nn.Module):
    """The mean of all positions, the first (`<S>`, BERT's [CLS]), a mean whose weights are learned:
    a softmax of one score a position (Yang et al. 2016, "Hierarchical attention networks for
    document classification"), each feature where it is largest (Collobert et al. 2011), or the sum
    of all positions, for what grows with the sequence, as the energy of a molecule does.

    `segments` (B, T) say what belongs together: 0 is padding. Without a `count` every row is a
    sequence, even one that holds nothing; with one, each number of a row is, `count` in all, row
    by row, as packed batches have them.
    """

    def __init__(self, name: str, d_model: int) -> None:
        super().__init__()
        if name not in POOLINGS:
            raise UsageError(f"unknown pooling {name!r}; {did_you_mean(name, list(POOLINGS))}")
        self.name = name
        self.score = nn.Linear(d_model, 1, bias=False) if name == "attention" else None

    def forward(self, x: Tensor, segments: Tensor, count: int | None = None) -> Tensor:
        """(B, T, D) to a vector each of N sequences, (N, D); nothing gives zeros."""
        which, n = numbered(segments, count)
        flat = x.flatten(0, 1)
        if self.name == "max":
            highest = self._highest(flat, which, n)
            return highest.masked_fill(highest == -torch.inf, 0)[:n]
        weights = self.weights(x, segments, count).flatten()  # (B·T,)
        wide = torch.promote_types(x.dtype, torch.float32)  # sums of many, rounded once
        sums = flat.new_zeros(n + 1, x.size(-1), dtype=wide)
        return sums.index_add(0, which, flat.to(wide) * weights[:, None])[:n].to(x.dtype)

    def weights(self, x: Tensor, segments: Tensor, count: int | None = None) -> Tensor:
        """(B, T): how much each position counts in its sequence; of "max", the share of features
        it gives.
        """
        which, n = numbered(segments, count)
        there = which < n
        if self.name == "max":
            flat = x.flatten(0, 1)
            given = (flat == self._highest(flat, which, n)[which]) & there[:, None]
            ties = given.new_zeros(n + 1, x.size(-1), dtype=x.dtype).index_add(
                0, which, given.to(x.dtype)
            )
            shares = given / ties.clamp_min(1)[which]
            return shares.mean(-1).view_as(segments)
        if self.name == "sum":
            return there.to(x.dtype).view_as(segments)
        if self.name == "first":
            begins = torch.ones_like(segments, dtype=torch.bool)
            begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
            return (begins.flatten() & there).to(x.dtype).view_as(segments)
        wide = torch.promote_types(x.dtype, torch.float32)
        scores = x.new_zeros(which.shape, dtype=wide)
        if self.score is not None:
            scores = self.score(x).flatten().to(wide)
        top = scores.new_full((n + 1,), -torch.inf)
        top = top.scatter_reduce(0, which, scores.detach(), "amax")
        powers = (scores - top[which]).exp() * there
        sums = scores.new_zeros(n + 1).index_add(0, which, powers)
        tiny = torch.finfo(wide).tiny
        return (powers / sums.clamp_min(tiny)[which]).view_as(segments)

    @staticmethod
    def _highest(flat: Tensor, which: Tensor, n: int) -> Tensor:
        """(N + 1, D): each feature where it is largest."""
        lowest = flat.new_full((n + 1, flat.size(-1)), -torch.inf)
        return lowest.scatter_reduce(0, which[:, None].expand_as(flat), flat, "amax")


def numbered(segments: Tensor, count: int | None) -> tuple[Tensor, int]:
    """(B·T,) the sequence of every position, from 0, and how many there are, N; padding has N."""
    parts = segments.long()
    if count is None:
        n, first = len(parts), torch.arange(len(parts), device=parts.device)
        which = first[:, None].expand_as(parts)
    else:
        n, last = count, parts.amax(1)
        which = (last.cumsum(0) - last)[:, None] + parts - 1
    return which.masked_fill(parts == 0, n).flatten(), n
