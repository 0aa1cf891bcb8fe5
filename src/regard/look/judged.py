"""Answers beside the truths, in pictures: which classes are taken for which, how sure is how right,
and predicted against true numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.questions import known
from regard.data.targets import Targets
from regard.evaluate.answers import Answered
from regard.evaluate.estimates import Estimate
from regard.evaluate.labels import Classified, label, labels, positions
from regard.evaluate.values import value
from regard.models.beta import quantile

from .page import Bars, Component, Heatmap, Lines, Page, Scatter, Text
from .page.charts import Band
from .page.component import cell

MOST_CLASSES = 40  # of a confusion matrix: the most frequent
MOST_CURVES = 7  # of a reliability diagram: as many as there are colours
MOST_POINTS = 2000  # of predicted against true numbers
ALL = "all"  # the one curve of a task with one label


def add_judged(page: Page, said: Answered, targets: Targets, side: str) -> None:
    """How good the answers to the held-out records are."""
    count, what = len(said.lengths), "records"
    if said.positional:
        count, what = int(known(said.truths).sum()), "positions"
    page.section(
        "Right and wrong",
        f"What the model says of the {count:,} {what} of the {side} part, which it was not trained "
        f"on. {NOTES[said.task]}",
    )
    if not known(said.truths).any():
        page.add(Text("Of none of them the truth is known."))
        return
    for row in pictures(said, targets):
        page.add(*row)


CERTAIN = (
    "A model that is as sure as it is right lies on the diagonal of the reliability diagram (Guo "
    "et al. 2017); below it the model is too sure."
)
NOTES = {
    "label": f"Outlined cells are right. {CERTAIN}",
    "position-label": f"Outlined cells are right. {CERTAIN}",
    "labels": CERTAIN,
    "value": "Right answers lie on the dashed line.",
}


def pictures(said: Answered, targets: Targets) -> list[list[Component]]:
    """Rows of pictures of answers beside their truths, by task."""
    if said.task == "value":
        return [[one] for one in against_truth(said, targets.names)]
    judged = classified(said, targets)
    if said.task == "labels":
        columns = {name: one.estimates["auroc"] for name, one in judged.items()}
        return [[by_column(columns, "AUROC"), reliability(judged)]]
    (one,) = judged.values()
    unit = "positions" if said.positional else "records"
    matrix = confusion(one, targets.classes[0], unit)
    return [[matrix, reliability(judged)]]


def classified(said: Answered, targets: Targets) -> dict[str, Classified]:
    """The answers judged: under each column's name, or all of them together."""
    if said.task == "labels":
        tagged = labels(said.scores, said.truths)
        return dict(zip(targets.names, tagged.columns, strict=True))
    if said.positional:
        return {ALL: positions(said.scores, said.truths, said.lengths)}
    there = known(said.truths)
    return {ALL: label(said.scores[there], said.truths[there])}


def confusion(judged: Classified, classes: Sequence[str], unit: str = "records") -> Heatmap:
    """How often each class (down) is taken for each (across)."""
    counts = judged.confusion
    kept = np.sort(np.argsort(-counts.sum(1), kind="stable")[:MOST_CLASSES])
    names = [classes[i] for i in kept]
    part = (
        f", the {len(kept)} most frequent of {len(classes):,}" if len(kept) < len(classes) else ""
    )
    return Heatmap(
        counts[np.ix_(kept, kept)].astype(np.float64),
        names,
        names,
        title=f"True classes down, predicted ones across{part}",
        scale="logarithmic",
        unit=unit,
        marks=[(i, i) for i in range(len(kept))],
    )


def reliability(judged: Mapping[str, Classified]) -> Lines:
    """How often the likeliest class is the true one, against how probable it is said to be."""
    series: list[tuple[str, Sequence[float], Sequence[float]]] = []
    bands = {}
    for name, one in list(judged.items())[:MOST_CURVES]:
        found, there = one.reliability, one.reliability.counts > 0
        said = f"{'' if name == ALL else f'{name}, '}calibration error {cell(error(one))}"
        series.append((said, found.confidence[there].tolist(), found.accuracy[there].tolist()))
        if len(judged) == 1:
            bands[said] = interval(found.counts[there], found.accuracy[there])
    least = min(min(xs, default=1.0) for _, xs, _ in series)
    ideal = ("as sure as right", [least, 1.0], [least, 1.0])
    return Lines(
        [*series, ideal],
        x_label="probability of the likeliest class",
        y_label="how often it is right",
        title="Reliability, with 95% intervals" if bands else "Reliability",
        bands=bands,
    )


def interval(counts: NDArray[np.int64], shares: NDArray[np.float64]) -> Band:
    """The lower and upper ends of what shares of so many may be: Jeffreys's 95% interval, which
    includes none and all where it was that (Brown, Cai & DasGupta 2001).
    """
    low, high = [], []
    for n, share in zip(counts.tolist(), shares, strict=True):
        k = round(n * share)
        low.append(quantile(0.025, k + 0.5, n - k + 0.5) if k else 0.0)
        high.append(quantile(0.975, k + 0.5, n - k + 0.5) if k < n else 1.0)
    return low, high


def error(judged: Classified) -> float:
    """The expected calibration error."""
    return float(judged.estimates["ece"].value)


def by_column(columns: Mapping[str, Estimate], name: str) -> Bars:
    """One figure of every column, with its interval; undefined ones are left out."""
    figures = {key: one.figure() for key, one in columns.items() if np.isfinite(one.value)}
    return Bars(
        list(figures),
        [one.value for one in figures.values()],
        [one.low for one in figures.values()],
        [one.high for one in figures.values()],
        title=f"{name} of each label",
        unit=f"{name} with its 95% interval",
    )


def against_truth(said: Answered, names: Sequence[str]) -> list[Scatter]:
    """Predicted against true numbers, a picture for each column that has any."""
    found = []
    for name, scores, truths in zip(names, said.scores.T, said.truths.T, strict=True):
        there = np.flatnonzero(known(truths))
        if not len(there):
            continue
        some = there[np.unique(np.linspace(0, len(there) - 1, MOST_POINTS).astype(np.int64))]
        figures = value(scores, truths)
        told = f"RMSE {cell(figures['rmse'].value)}, R² {cell(figures['r2'].value)}"
        found.append(
            Scatter(
                np.stack([truths[some].astype(np.float64), scores[some]], axis=1),
                x_label=f"{name}, true",
                y_label=f"{name}, predicted",
                title=f"{name}: {told}",
                diagonal=True,
            )
        )
    return found
