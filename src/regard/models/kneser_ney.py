"""Modified Kneser–Ney smoothing, interpolated (Kneser & Ney 1995; Chen & Goodman 1998, section 3).

    P(x | c) = (a(cx) - D(a(cx))) / A(c) + γ(c) P(x | c'),   A(c) = Σ_x a(cx)

The longest n-grams are counted as they are; of shorter ones a(g) is the number of different symbols
that stood before g, since a shorter n-gram is only asked after a longer one was not found. What
begins with `<S>` has nothing before it and keeps its count, as in SRILM and KenLM. The discounts D
of the counts 1, 2 and 3 or more are set, for each order, from how many n-grams have the counts 1 to
4; where those say nothing sensible (a small alphabet has no rare symbols) they are 0.5, 1 and 1.5,
KenLM's way out. γ(c) is what the discounts left over, so that all sums to one; below the single
symbols is the uniform distribution over all tokens but `<S>`. After a context never seen, P is that
of the shorter context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.models.counts import CountConfig, SmoothingRule, TableModel, base
from regard.models.ngrams import NGrams

FALLBACK = (0.5, 1.0, 1.5)


@dataclass(frozen=True, kw_only=True)
class KneserNeyConfig(CountConfig):
    """An n-gram with Kneser–Ney discounts."""

    order: int = 5  # symbols of the longest n-gram

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        if not 1 <= self.order <= 64:
            raise ValueError(f"order must be from 1 to 64, got {self.order}")


class KneserNey(TableModel):
    """An n-gram whose counts are discounted in favour of shorter contexts."""

    Config = KneserNeyConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modified": lambda n_layers, d_model: KneserNeyConfig()
    }

    @property
    def order(self) -> int:
        """See TableModel."""
        return int(self.config.order)

    def rule(self, table: NGrams) -> SmoothingRule:
        """See TableModel."""
        size, first, suffixes = table.vocab_size, base(table), table.suffixes()
        adjusted, borders = adjust(table, suffixes), table.borders()
        taken = torch.zeros_like(adjusted, dtype=torch.float64)
        for low, high in pairwise(borders):
            cuts = torch.tensor((0.0, *discounts(adjusted[low:high])), dtype=torch.float64)
            taken[low:high] = cuts.to(taken.device)[adjusted[low:high].clamp_max(3)]
        kept = adjusted - taken
        whole = table.totals(adjusted[size:]).double()
        weight = torch.where(whole > 0, table.totals(taken[size:]) / whole, 1.0)
        single = self.single(adjusted[:size], taken[:size], first)
        p = torch.cat([single, kept[size:] / whole[table.parents]])
        for low, high in pairwise(borders[1:]):
            part = slice(low - size, high - size)
            p[low:high] += weight[table.parents[part]] * p[suffixes[part]]
        unseen = torch.tensor([[1.0, 0.0]] * table.order, dtype=torch.float64, device=p.device)
        return SmoothingRule(p, weight, p.new_zeros(1).expand_as(p), unseen, first > 0)

    def single(self, counts: Tensor, taken: Tensor, first: Tensor) -> Tensor:
        """(V,) probabilities without any context, from what is counted and taken of each symbol."""
        total = counts.sum()
        return (counts - taken + taken.sum() * first) / total if total else first


def adjust(table: NGrams, suffixes: Tensor) -> Tensor:
    """(V + N,) what is counted of each n-gram: itself, or the symbols seen before it."""
    counts = torch.cat([table.unigrams, table.counts])
    before = torch.bincount(suffixes, minlength=len(counts))
    longest = table.borders()[table.order - 1]
    before[longest:] = counts[longest:]
    begins = table.firsts() == table.start
    before[begins] = counts[begins]
    return before


def discounts(counts: Tensor) -> tuple[float, float, float]:
    """D1, D2 and D3+ from the counts (M,) of one order's n-grams: Chen & Goodman, eq. 26."""
    one, two, three, four = (int((counts == n).sum()) for n in range(1, 5))
    if not (one and two and three):
        return FALLBACK
    y = one / (one + 2 * two)
    found = (1 - 2 * y * two / one, 2 - 3 * y * three / two, 3 - 4 * y * four / three)
    if not all(0 <= d < n for n, d in enumerate(found, start=1)):
        return FALLBACK
    return found
