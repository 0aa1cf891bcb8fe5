"""The page of `regard look` about a model of labels or values: its prediction for a text or item,
what that rests on, and its errors on held-out records.

Without an item the page is about the records alone, and without them about the item alone.

Predictions are compared with the true targets by confusion matrices, reliability diagrams, AUROC of
each label, and predicted against true values. The plots are registered for the class of the
evaluation report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv

from regard.data.batching import LabelledExamples, known
from regard.data.shards import Shard
from regard.data.targets import Targets
from regard.decoding.engine import evaluating
from regard.errors import UsageError, did_you_mean
from regard.evaluation.bootstrap import BootstrapEstimate
from regard.evaluation.classification import ClassificationReport, MultilabelReport
from regard.evaluation.predictions import Predictions
from regard.evaluation.regression import RegressionReport
from regard.look.attribution import (
    add_item_evidence,
    add_item_positions,
    add_units,
    attribute_outputs,
    attribute_positions,
    find_alphabet,
    find_peaks,
    leave_out,
    rollout,
    substitute,
)
from regard.look.internals import (
    PredictionContext,
    add_encoder_attention,
    add_evidence,
    add_inside,
    attention_names,
    load_views,
    register_evidence,
    register_view,
    stack_layers,
)
from regard.look.page import (
    Bars,
    Component,
    Contributions,
    Facts,
    Heatmap,
    Intervals,
    Lines,
    Page,
    Scatter,
    Tagged,
    Text,
)
from regard.look.page.charts import Band
from regard.look.page.document import cell, visible
from regard.look.projection import add_embeddings, spread
from regard.models.supervised import NeuralSupervisedModel
from regard.pipelines.predictor import Predictor

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
    load_views()
    note, plots = PLOTS[type(predictions.report)]
    page.section(title, f"Predictions for {words}. {note}")
    if not predictions.scored:
        page.add(Text("The true target is known of none of them."))
        return
    targets: Any = predictions.targets
    for row in plots(predictions, targets, predictions.report):
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


def plot_metric(estimates: Mapping[str, BootstrapEstimate], **options: Any) -> Intervals:
    """Draw a metric of several models or targets with its intervals, where it is defined."""
    defined = {name: x.metric() for name, x in estimates.items() if not np.isnan(x.value)}
    ends = ("value", "low", "high")
    values, low, high = ([getattr(m, key) for m in defined.values()] for key in ends)
    return Intervals(list(defined), values, low, high, **options)


MOST_BARS = 12  # most important tokens, and most probable classes
MOST_EXPLAINED = 96  # positions whose predictions are explained
MOST_ROWS = 32  # and those of them that are drawn
FARTHEST = 20  # tokens before and after a position
MOST_CHANGED = 1 << 18  # tokens that are read to try all changes of a text
MOST_RECORDS = 500  # in which units are looked for


def add_prediction(page: Page, context: PredictionContext) -> None:
    """Draw the prediction: probabilities, values, or the classes of all positions."""
    targets, values = context.predictor.targets, context.probabilities
    kind, names, views = targets.kind, context.outputs, context.predictor.views
    if kind.aligned:
        add_classes = _add_position_classes if context.tokenizer.reads_text else add_item_positions
        add_classes(page, context)
        return
    note = f" It is the mean over {views.count} views of the text." if views else ""
    if not kind.categorical:
        page.section("Prediction", f"The predicted values.{note}")
        page.add(Facts([(name, float(x)) for name, x in zip(names, values, strict=True)]))
        return
    title, words = targets.names[0], "The probability of each class; all of them sum to 1."
    if not kind.single:
        title, words = "labels", "The probability of each label; from 0.5 on it is predicted."
    page.section("Prediction", words + note)
    order = np.argsort(-values, kind="stable")[:MOST_BARS]
    predicted = [0] if kind.single else [i for i, k in enumerate(order) if values[k] >= 0.5]
    if len(order) < len(names):
        title += f", the {len(order)} most probable of {len(names):,}"
    labels, heights = [names[i] for i in order], values[order].tolist()
    page.add(Bars(labels, heights, title=title, unit="probability", highlight=predicted))


def _add_position_classes(page: Page, context: PredictionContext) -> None:
    before, after = context.tokenizer.markers
    inside = slice(before, len(context.tokens) - after)
    probabilities, tokens = context.probabilities[inside], context.tokens[inside]
    page.section(
        "Prediction",
        "The most probable class of every position is below it; the map shows the probability of "
        "each.",
    )
    best = [context.outputs[i] for i in probabilities.argmax(1)]
    page.add(Tagged(tokens, best, title="The most probable class of each position"))
    title, values = "Probability of each class at each position", probabilities.T
    page.add(Heatmap(values, context.outputs, tokens, title, "weights", unit="probability"))


@register_evidence(NeuralSupervisedModel)
def add_neural_evidence(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel
) -> None:
    """Draw what in the text or item the prediction rests on, and the attention of all heads."""
    if not context.tokenizer.reads_text:
        add_item_evidence(page, context, model)
        return
    page.section(
        "What the prediction rests on",
        "Gradient × input: the slope of a score along the embedding of a token, times the "
        "embedding. Positive values support the prediction, negative ones oppose it. It is "
        "exact for a linear model and an approximation for others; how the prediction changes with "
        f"the text says more. {context.cut_note}".rstrip(),
    )
    if model.output.positional:
        _add_position_gradients(page, context, model)
    else:
        _add_gradients(page, context, model)
    activations = context.activations(*attention_names("*.attention", len(context.tokens)))
    if activations:
        add_encoder_attention(page, activations, context.tokens, model.config.score)


def _add_gradients(page: Page, context: PredictionContext, model: NeuralSupervisedModel) -> None:
    names, tokens, unit = context.outputs, context.tokens, context.unit
    added = attribute_outputs(model, context.source, context.explained).cpu().double().numpy()
    rows = [
        (f"for {names[k]}", row.tolist()) for k, row in zip(context.explained, added, strict=True)
    ]
    page.add(Contributions(tokens, rows, title="What each token adds to the score", unit=unit))
    order = np.argsort(-np.abs(added[0]), kind="stable")[:MOST_BARS]
    best = names[context.explained[0]]
    labels = [f"{visible(tokens[i])} ({i + 1})" for i in order]
    title = f"The most important tokens for {best}"
    words = f"gradient × input{', ' if unit else ''}{unit}; position in brackets"
    bars = Bars(labels, added[0][order].tolist(), title=title, unit=words)
    page.add(bars, *_pooling_weights(context, model))
    page.add(*_changes(context, context.explained[0], best))


def _pooling_weights(context: PredictionContext, model: NeuralSupervisedModel) -> list[Component]:
    """Return the weights of the pooling if they depend on the text, and attention rollout."""
    activations = context.activations("*.attention.weights", "pooling.weights")
    pooled = activations.pop("pooling.weights")[0]
    rows = []
    if model.config.pooling in ("attention", "max"):
        rows.append(("pooling", pooled.tolist()))
    if activations and len(activations) == model.config.n_layers:  # all layers have attention
        rows.append(("attention rollout", rollout(stack_layers(activations), pooled).tolist()))
    title = "Weight of each token in the pooled vector"
    return [Contributions(context.tokens, rows, title=title, unit="share")] if rows else []


def _changes(context: PredictionContext, output: int, name: str) -> list[Component]:
    """Return how a score changes with the text: with other letters at each position or, of words,
    without each. Texts that are too long have none.
    """
    tokenizer, source, tokens = context.tokenizer, context.source, context.tokens
    ids = sorted({int(i) for i in source.ids[0].tolist()} - set(tokenizer.names))
    letters = find_alphabet({tokenizer.text(i) for i in ids}) is not None
    if (len(ids) if letters else 1) * len(tokens) ** 2 > MOST_CHANGED:
        return []
    with evaluating(context.model):
        if not letters:
            drops = leave_out(context.model, source, output).double().tolist()
            title = f"How much the score of {name} drops without each token"
            return [Contributions(tokens, [("left out", drops)], title=title, unit=context.unit)]
        changes = substitute(context.model, source, output, torch.tensor(ids)).double().numpy()
    title = f"How the score of {name} changes with another letter (down) at each position"
    values, rows = changes[:, 1:-1], [tokenizer.text(i) for i in ids]
    return [Heatmap(values, rows, tokens[1:-1], title, scale="diverging", unit=context.unit)]


def _add_position_gradients(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel
) -> None:
    """Draw what each token adds to the class of each position, and how far away such tokens are."""
    tokens, best = context.tokens, context.probabilities.argmax(1)
    positions = list(range(1, min(len(tokens) - 1, MOST_EXPLAINED + 1)))
    if not positions:
        return
    added = attribute_positions(model, context.source, positions, [int(best[i]) for i in positions])
    table = added.cpu().double().numpy()  # (n, T)
    shown = positions[:MOST_ROWS]
    last = shown[-1] + 2
    part = f", the first {len(shown)} positions" if len(shown) < len(tokens) - 2 else ""
    rows = [f"{visible(tokens[i])} {context.outputs[best[i]]}" for i in shown]
    values = table[: len(shown), :last]
    title = f"What each token (across) adds to the class of a position (down){part}"
    page.add(Heatmap(values, rows, tokens[:last], title, scale="diverging", unit="logits"))
    distances = np.arange(table.shape[1]) - np.array(positions)[:, None]  # (n, T)
    close = np.abs(distances) <= FARTHEST
    index, bins = (distances + FARTHEST)[close], 2 * FARTHEST + 1
    sums = np.bincount(index, np.abs(table)[close], bins)
    counts = np.bincount(index, minlength=bins)
    filled = np.flatnonzero(counts)
    means = (sums[filled] / counts[filled]).tolist()
    series = [("size of what a token adds", (filled - FARTHEST).tolist(), means)]
    title = "How far away the tokens are that a prediction rests on"
    page.add(Lines(series, "distance in tokens", "mean size, logits", title))


@register_view(NeuralSupervisedModel)
def add_records(page: Page, context: PredictionContext, model: NeuralSupervisedModel) -> None:
    """Draw the vectors of many records, and what heads and filters look for in them."""
    if context.sample is None:
        return
    split, shard = context.sample
    add_embeddings(page, context, split, shard)
    if not context.tokenizer.reads_text:
        return  # tokens have no names
    examples = LabelledExamples(shard, context.tokenizer, int(model.config.max_len), first=True)
    records = spread(len(examples.sizes), MOST_RECORDS)
    peaks = find_peaks(model, examples, context.tokenizer, records)
    if peaks is not None:
        words = f"{len(records):,} records of the {split} split"
        add_units(page, peaks, context.tokenizer, words)


def prediction_page(
    predictor: Predictor,
    item: Any = None,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    held_out: tuple[str, Shard] | None = None,
    sample: tuple[str, Shard] | None = None,
    target: str = "",
) -> Page:
    """Return the page about a text or item, if there is one, and the records of `held_out`, the
    name of a split and its shard.

    `sample` are other records to look at but not to measure on. `target` is a class, label or value
    to explain besides the predicted one.
    """
    context = PredictionContext(predictor, item, sample or held_out, target)
    if target and target not in context.outputs:
        hint = did_you_mean(target, context.outputs)
        raise UsageError(f"--target: the model does not predict {target!r}; {hint}")
    page = Page.about(title, facts)
    if item is not None and len(item):
        add_prediction(page, context)
        add_evidence(page, context)
    add_inside(page, context)
    if held_out:
        split, shard = held_out
        predictions = predictor.predict_shard(shard)
        words = f"{len(predictions.lengths):,} records"
        if predictor.targets.kind.aligned:
            words = f"{int(known(predictions.truths).sum()):,} positions"
        words = f"the {words} of the {split} split, which the model was not trained on"
        add_errors(page, predictions, words, "Right and wrong")
    return page
