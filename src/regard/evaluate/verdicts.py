"""What a ranked table says, in words that its numbers alone decide.

It must be able to say that attention loses, that rows cannot be told apart, and that nothing can be
recommended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from regard.evaluate.comparison import COST, Row, surely_better

SMALL = 0.01  # a difference below this share of the best figure is not worth much cost
FLOORS = {  # rows that any other should beat, and what they do
    "ibm1": "word for word",
    "majority": "saying the same of every record",
}


def verdict(
    rows: Sequence[Row], curves: Mapping[str, Sequence[tuple[int, float]]] | None = None
) -> str:
    """What ranked rows say, in words: which to use, what it costs, whether more data would help."""
    finite = [row for row in rows if math.isfinite(row.cost)]
    if not finite and math.isnan(rows[0].leads.value):
        return f"The models cannot be ranked: {rows[0].worth}."
    if not finite:
        return "Every model holds some of the data impossible: none can be recommended."
    told = [winner(finite, len(rows))]
    told += hurried(finite) or about_attention(finite)
    told += cheaper(finite)
    told += above_floor(finite) + by_bits(finite)
    impossible = [row.model for row in rows if row.measured and row.measured.impossible]
    if impossible:
        told.append(
            f"{listed(impossible)} hold{'s' * (len(impossible) == 1)} some of it impossible."
        )
    if curves:
        told += more_data(finite[0], curves)
    return " ".join(told)


def winner(rows: Sequence[Row], total: int) -> str:
    """The best row of `total`, or those that cannot be told apart, and which of these to take."""
    best = [row for row in rows if row.rank == 1]
    if len(best) == 1:
        words = f"Use {best[0].model}: {best[0].worth}, the best of {total}"
        if len(rows) == 1:
            return f"{words}."
        return f"{words}; {rows[1].model}, the next, is worse by {rows[1].behind(best[0])}."
    cheap = min(best, key=lambda row: (row.train_seconds, row.parameters))
    names = listed([row.model for row in best])
    return (
        f"{names} cannot be told apart here (95%): use {cheap.model}, "
        f"the cheapest of them ({cheap.train_seconds:,.0f} s, {cheap.parameters:,} parameters)."
    )


def hurried(rows: Sequence[Row]) -> list[str]:
    """Rows that were stopped before they had seen the data once, of which nothing is concluded."""
    found = [row for row in rows if row.epochs < 1]
    if not found:
        return []
    names, least = listed([row.model for row in found]), min(row.epochs for row in found)
    return [
        f"{names} had too little time to see all of the data once (the least: {least:.1%}): "
        "with more --minutes this table may look different."
    ]


def about_attention(rows: Sequence[Row]) -> list[str]:
    """Where attention loses, that is said; and what a recurrence that translates has from it."""
    named = {row.model: row for row in rows}
    attending, told = named.get("transformer"), []
    if attending is not None and attending.rank > 1:
        words = f"The transformer is worse by {attending.behind(rows[0])}"
        if rows[0].model == "rnn-attention":  # which attends as well
            told.append(f"{words}: in this time it does not pay to attend alone.")
        else:
            told.append(f"{words}: on these data attention does not pay.")
    if "rnn" in named and "rnn-attention" in named:
        gain = named["rnn"].behind(named["rnn-attention"])
        sure = "" if gain.low > 0 or gain.high < 0 else ", no difference that 95% supports"
        told.append(f"Attention gives the recurrence {gain} over a bottleneck{sure}.")
    return told


def cheaper(rows: Sequence[Row]) -> list[str]:
    """A row that costs a tenth and loses next to nothing."""
    best = rows[0]
    for row in sorted(rows[1:], key=lambda row: row.train_seconds):
        loss = (row.cost - best.cost) / max(abs(best.cost), 1e-9)
        if row.rank > 1 and loss < 5 * SMALL and row.train_seconds < best.train_seconds / 10:
            times = best.train_seconds / max(row.train_seconds, 0.01)
            return [f"{row.model} is {loss:.1%} worse and trains {times:,.0f} times faster."]
    return []


def above_floor(rows: Sequence[Row]) -> list[str]:
    """Which rows are no better than one that knows next to nothing."""
    floor = next((row for row in rows if row.model in FLOORS), None)
    if floor is None:
        return []
    found = [row.model for row in rows if row is not floor and not surely_better(row, floor)]
    if not found:
        return []
    verb = "is" if len(found) == 1 else "are"
    return [f"{listed(found)} {verb} not surely better than {FLOORS[floor.model]}."]


def by_bits(rows: Sequence[Row]) -> list[str]:
    """Where the best by BLEU holds the references less probable than another does."""
    best = rows[0]
    if best.ranked_by != "bleu":
        return []
    other = min(rows, key=lambda row: row.figures[COST].value)
    gap = other.estimates[COST].minus(best.estimates[COST])
    if other.rank == 1 or not gap.high < 0:
        return []
    return [f"By what the references cost, {other.model} is better, {gap} nats per symbol."]


def more_data(best: Row, curves: Mapping[str, Sequence[tuple[int, float]]]) -> list[str]:
    """What the last doubling of the training data bought the best model."""
    curve = curves.get(best.model, ())
    if len(curve) < 2:
        return []
    (before, worse), (after, better) = curve[-2], curve[-1]
    doublings = math.log2(after / before)
    more_is_better = best.answers is not None and not best.estimates[best.ranked_by].cost
    gain = (worse - better) / doublings / max(abs(better), 1e-9) * (-1 if more_is_better else 1)
    words = f"The last doubling of the data improved {best.model} by {gain:.1%}"
    if gain > SMALL:
        return [f"{words}: more data would help."]
    return [f"{words}: more data would hardly help."]


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
