"""Modified Kneser–Ney smoothing, interpolated (Kneser & Ney 1995; Chen & Goodman 1998, section 3).

    P(x | c) = (a(cx) - D(a(cx))) / A(c) + γ(c) P(x | c'),   A(c) = Σ_x a(cx)

For the longest n-grams a is the count. For shorter ones a(g) is the number of different symbols
before g, since a shorter n-gram is only used where no longer one was found; n-grams that start with
`<S>` have nothing before them and keep their counts, as in SRILM and KenLM. The discounts D of the
counts 1, 2 and 3 or more are estimated, for each order, from the number of n-grams with the counts
1 to 4. Where this gives no valid discount (a small alphabet has no rare symbols) they are 0.5, 1
and 1.5, as in KenLM. γ(c) is the probability mass that the discounts leave. Below the unigrams is
the uniform distribution over all tokens but `<S>`. After a context never counted, P is that of the
shorter context.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from regard.models.config import Presets, check_ranges
from regard.models.counts import BackoffTable, CountConfig, TableModel, uniform
from regard.models.ngrams import NGrams

FALLBACK = (0.5, 1.0, 1.5)


@dataclass(frozen=True, kw_only=True)
class KneserNeyConfig(CountConfig):
    """An n-gram model with Kneser–Ney discounts."""

    order: int = 5  # symbols of the longest n-gram

    def __post_init__(self) -> None:
        CountConfig.__post_init__(self)
        check_ranges(self, order=64)


class KneserNey(TableModel):
    """An n-gram model whose counts are discounted in favour of shorter contexts."""

    Config = KneserNeyConfig
    PRESETS: ClassVar[Presets] = {"modified": lambda n_layers, d_model: KneserNeyConfig()}

    @property
    def order(self) -> int:
        return int(self.config.order)

    def smooth(self, table: NGrams) -> BackoffTable:
        size, base, suffixes = table.vocab_size, uniform(table), table.suffixes()
        adjusted, borders = adjust_counts(table, suffixes), table.borders()
        discount = torch.zeros_like(adjusted, dtype=torch.float64)
        for low, high in pairwise(borders):
            level = torch.tensor((0.0, *discounts(adjusted[low:high])), dtype=torch.float64)
            discount[low:high] = level.to(discount.device)[adjusted[low:high].clamp_max(3)]
        total = table.totals(adjusted[size:]).double()
        weight = torch.where(total > 0, table.totals(discount[size:]) / total, 1.0)
        counts, unused = adjusted[:size], discount[:size].sum()  # the mass of the discounts
        unigrams = base
        if counts.any():
            unigrams = (counts - discount[:size] + unused * base) / counts.sum()
        p = torch.cat([unigrams, (adjusted - discount)[size:] / total[table.parents]])
        for low, high in pairwise(borders[1:]):
            part = slice(low - size, high - size)
            p[low:high] += weight[table.parents[part]] * p[suffixes[part]]
        unseen = torch.tensor([[1.0, 0.0]] * table.order, dtype=torch.float64, device=p.device)
        return BackoffTable(p, weight, p.new_zeros(1).expand_as(p), unseen, base > 0)


def adjust_counts(table: NGrams, suffixes: Tensor) -> Tensor:
    """Return a(g) of every n-gram, (V + N,): its count, or the number of symbols before it."""
    counts = torch.cat([table.unigrams, table.counts])
    adjusted = torch.bincount(suffixes, minlength=len(counts))
    longest = table.borders()[table.order - 1]
    adjusted[longest:] = counts[longest:]
    initial = table.first_symbols() == table.start
    adjusted[initial] = counts[initial]
    return adjusted


def discounts(counts: Tensor) -> tuple[float, float, float]:
    """Return D1, D2 and D3+ for the counts (M,) of one order: Chen & Goodman, eq. 26."""
    one, two, three, four = (int((counts == n).sum()) for n in range(1, 5))
    if not (one and two and three):
        return FALLBACK
    y = one / (one + 2 * two)
    values = (1 - 2 * y * two / one, 2 - 3 * y * three / two, 3 - 4 * y * four / three)
    if not all(0 <= d < n for n, d in enumerate(values, start=1)):
        return FALLBACK
    return values
