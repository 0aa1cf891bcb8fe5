"""Predictions compared with the true targets: confusion matrices, reliability diagrams, AUROC of
each label, and predicted against true values.

The plots are registered for the class of the evaluation report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from regard.data.batching import known
from regard.data.targets import Targets
from regard.evaluation.bootstrap import BootstrapEstimate
from regard.evaluation.classification import ClassificationReport, MultilabelReport
from regard.evaluation.predictions import Predictions
from regard.evaluation.regression import RegressionReport
from regard.look.page import Bars, Component, Heatmap, Lines, Page, Scatter, Text
from regard.look.page.charts import Band
from regard.look.page.component import cell

MOST_CLASSES = 40  # of a confusion matrix: the most frequent
MOST_CURVES = 7  # of a reliability diagram: as many as there are colours
MOST_POINTS = 2000  # of predicted against true values
RELIABILITY_NOTE = (
    "The confidence of a calibrated model equals its accuracy: its curve in the reliability "
    "diagram lies on the diagonal (Guo et al. 2017); below it the model is overconfident."
)

Rows = list[list[Component]]  # components that share a row of the page
Plots = Callable[[Predictions, Targets, Any], Rows]
PLOTS: dict[type, tuple[str, Plots]] = {}


def register_error_plots(report: type, note: str) -> Callable[[Plots], Plots]:
    """Register the plots of predictions that are evaluated by this class of report."""

    def register(plots: Plots) -> Plots:
        PLOTS[report] = note, plots
        return plots

    return register


def add_errors(page: Page, predictions: Predictions, words: str, title: str) -> None:
    """Add the plots of predictions with targets; `words` say of which records."""
    assert predictions.targets is not None
    note, plots = PLOTS[type(predictions.report)]
    page.section(title, f"Predictions for {words}. {note}")
    if not known(predictions.truths).any():
        page.add(Text("The true target is known of none of them."))
        return
    for row in plots(predictions, predictions.targets, predictions.report):
        page.add(*row)


@register_error_plots(
    ClassificationReport, f"Outlined cells are correct predictions. {RELIABILITY_NOTE}"
)
def plot_classes(predictions: Predictions, targets: Targets, report: ClassificationReport) -> Rows:
    unit = "positions" if predictions.positional else "records"
    return [[plot_confusion(report, targets.classes[0], unit), plot_reliability({"": report})]]


@register_error_plots(MultilabelReport, RELIABILITY_NOTE)
def plot_labels(predictions: Predictions, targets: Targets, report: MultilabelReport) -> Rows:
    columns = dict(zip(targets.names, report.columns, strict=True))
    auroc = {name: column.estimates["auroc"] for name, column in columns.items()}
    options = {"title": "AUROC of each label", "unit": "AUROC with its 95% interval"}
    return [[plot_metric(auroc, **options), plot_reliability(columns)]]


@register_error_plots(RegressionReport, "Correct predictions lie on the dashed line.")
def plot_values(predictions: Predictions, targets: Targets, report: RegressionReport) -> Rows:
    rows: Rows = []
    columns = zip(targets.names, predictions.scores.T, predictions.truths.T, strict=True)
    for (name, scores, truths), metrics in zip(columns, report.columns, strict=True):
        records = np.flatnonzero(known(truths))
        if not len(records):
            continue
        shown = np.unique(np.linspace(0, len(records) - 1, MOST_POINTS).astype(np.int64))
        records = records[shown]
        rmse, r2 = (cell(metrics[key].value) for key in ("rmse", "r2"))
        points = np.stack([truths[records].astype(np.float64), scores[records]], axis=1)
        x_label, y_label = f"{name}, true", f"{name}, predicted"
        title = f"{name}: RMSE {rmse}, R² {r2}"
        scatter = Scatter(points, x_label=x_label, y_label=y_label, title=title, diagonal=True)
        rows.append([scatter])
    return rows


def plot_confusion(
    report: ClassificationReport, classes: Sequence[str], unit: str = "records"
) -> Heatmap:
    counts = report.confusion
    shown = np.sort(np.argsort(-counts.sum(1), kind="stable")[:MOST_CLASSES])
    names, part = [classes[i] for i in shown], ""
    if len(shown) < len(classes):
        part = f", the {len(shown)} most frequent of {len(classes):,}"
    values, diagonal = counts[np.ix_(shown, shown)], [(i, i) for i in range(len(shown))]
    title = f"True classes down, predicted ones across{part}"
    return Heatmap(values, names, names, title, "logarithmic", unit, marks=diagonal)


def plot_reliability(reports: Mapping[str, ClassificationReport]) -> Lines:
    """Draw accuracy against confidence, a curve for each named report; of one with intervals."""
    series: list[tuple[str, Sequence[float], Sequence[float]]] = []
    bands = {}
    for name, report in list(reports.items())[:MOST_CURVES]:
        bins, filled = report.reliability, report.reliability.counts > 0
        label = f"calibration error {cell(report.estimates['ece'].value)}"
        label = f"{name}, {label}" if name else label
        series.append((label, bins.confidence[filled].tolist(), bins.accuracy[filled].tolist()))
        if len(reports) == 1:
            bands[label] = jeffreys_interval(bins.counts[filled], bins.accuracy[filled])
    least = min(min(xs, default=1.0) for _, xs, _ in series)
    return Lines(
        [*series, ("confidence = accuracy", [least, 1.0], [least, 1.0])],
        x_label="probability of the predicted class",
        y_label="accuracy",
        title="Reliability, with 95% intervals" if bands else "Reliability",
        bands=bands,
    )


def jeffreys_interval(counts: NDArray[np.int64], shares: NDArray[np.float64]) -> Band:
    """Return the ends of Jeffreys's 95% intervals of shares of `counts` trials; they include 0 and
    1 where that is the share (Brown, Cai & DasGupta 2001).
    """
    low, high = [], []
    for n, share in zip(counts.tolist(), shares, strict=True):
        k = round(n * share)
        low.append(float(betaincinv(k + 0.5, n - k + 0.5, 0.025)) if k else 0.0)
        high.append(float(betaincinv(k + 0.5, n - k + 0.5, 0.975)) if k < n else 1.0)
    return low, high


def plot_metric(estimates: Mapping[str, BootstrapEstimate], **options: Any) -> Bars:
    """Draw a metric of several models or targets with its intervals, where it is finite."""
    finite = {name: x for name, x in estimates.items() if np.isfinite(x.value)}
    metrics = [estimate.metric() for estimate in finite.values()]
    values, low, high = ([getattr(m, key) for m in metrics] for key in ("value", "low", "high"))
    return Bars(list(finite), values, low, high, **options)
