"""The page of `regard look` about a model of labels or values: its prediction for a text or item
and whether it is right, what that rests on, and the held-out records that the model gets wrong.

Without an item the page is about the records alone, and without them about the item alone.

Predictions are compared with the true targets by confusion matrices, reliability diagrams, AUROC of
each label, and predicted against true values. The plots are registered for the class of the
evaluation report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor

from regard.data.batching import LabelledExamples, known
from regard.data.shards import Shard
from regard.data.targets import PRESENT, Targets
from regard.decoding.engine import evaluating
from regard.errors import UsageError, did_you_mean
from regard.evaluation.bootstrap import BootstrapEstimate
from regard.evaluation.classification import ClassificationReport, MultilabelReport
from regard.evaluation.predictions import (
    COVERED,
    FEWEST_ERRORS,
    Predictions,
    conformal_reach,
)
from regard.evaluation.regression import RegressionReport
from regard.layers.embeddings import Inputs
from regard.look import record_figures  # noqa: F401 - registers drawings
from regard.look.attribution import (
    BATCH_TOKENS,
    add_item_evidence,
    add_item_positions,
    add_units,
    attribute_outputs,
    attribute_positions,
    center,
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
    Answer,
    Bars,
    Component,
    Confusion,
    Contributions,
    Heatmap,
    Histogram,
    Intervals,
    Lines,
    Page,
    RecordList,
    Scatter,
    ShownRecord,
    Tagged,
    Text,
    ValueRange,
)
from regard.look.page.charts import Band
from regard.look.page.document import cell, summary, visible
from regard.look.page.records import Picture, percent
from regard.look.projection import add_embeddings, spread
from regard.look.records import (
    KnownTarget,
    Records,
    draw_picture,
    find_target,
    signed,
    training_values,
)
from regard.models.supervised import HEADS, NeuralSupervisedModel
from regard.pipelines.predictor import Predictor

MOST_CLASSES = 40  # of a confusion matrix: the most frequent
MOST_CURVES = 7  # of a reliability diagram: as many as there are colours
MOST_POINTS = 2000  # of predicted against true values
MOST_SEQUENCES = 40  # listed, of many positions or with the largest errors
FEW_RIGHT = 5  # right records of a class that are listed
RELIABILITY_NOTE = (
    "The confidence of a calibrated model equals its accuracy: its curve in the reliability "
    "diagram lies on the diagonal (Guo et al. 2017); below it the model is overconfident."
)

Rows = list[list[Component]]  # components that share a row of the page
Plots = Callable[[Predictions, Targets, Any, Records | None], Rows]
PLOTS: dict[type, tuple[str, Plots]] = {}


def register_error_plots(report: type, note: str) -> Callable[[Plots], Plots]:
    """Register the plots of predictions that are evaluated by this class of report; they list the
    records, where these are there.
    """

    def register(plots: Plots) -> Plots:
        PLOTS[report] = note, plots
        return plots

    return register


def add_errors(
    page: Page, predictions: Predictions, words: str, title: str, records: Records | None = None
) -> None:
    """Add the plots of predictions with targets; `words` say of which records."""
    load_views()
    note, plots = PLOTS[type(predictions.report)]
    page.section(title, f"Predictions for {words}. {note}")
    if not predictions.scored:
        page.add(Text("The true target is known of none of them."))
        return
    targets: Any = predictions.targets
    for row in plots(predictions, targets, predictions.report, records):
        page.add(*row)


@register_error_plots(ClassificationReport, RELIABILITY_NOTE)
def plot_classes(
    predictions: Predictions,
    targets: Targets,
    report: ClassificationReport,
    records: Records | None,
) -> Rows:
    lister = list_wrong_positions if predictions.positional else list_wrong_classes
    note, examples = lister(predictions, targets, records)
    unit = "positions" if predictions.positional else "records"
    confusion = plot_confusion(report, targets.classes[0], unit, note, examples)
    bins = report.reliability
    confidence = Histogram(
        bins.edges.tolist(),
        bins.counts.tolist(),
        title="How confident the predictions are",
        x_label="probability of the predicted class",
        y_label=unit,
    )
    return [[confusion], [plot_reliability({"": report}), confidence]]


@register_error_plots(MultilabelReport, RELIABILITY_NOTE)
def plot_labels(
    predictions: Predictions, targets: Targets, report: MultilabelReport, records: Records | None
) -> Rows:
    columns = dict(zip(targets.names, report.columns, strict=True))
    auroc = {name: column.estimates["auroc"] for name, column in columns.items()}
    options = {"title": "AUROC of each label", "unit": "AUROC with its 95% interval"}
    rows: Rows = [[plot_metric(auroc, **options), plot_reliability(columns)]]
    note, examples = list_wrong_labels(predictions, targets, records)
    title = "The records with a wrong label"
    return [*rows, [RecordList(records=examples, note=note, title=title)]] if examples else rows


@register_error_plots(RegressionReport, "Correct predictions lie on the dashed line.")
def plot_values(
    predictions: Predictions, targets: Targets, report: RegressionReport, records: Records | None
) -> Rows:
    rows: Rows = []
    columns = zip(targets.names, predictions.scores.T, predictions.truths.T, strict=True)
    for i, ((name, scores, truths), metrics) in enumerate(
        zip(columns, report.columns, strict=True)
    ):
        known_records = np.flatnonzero(known(truths))
        if not len(known_records):
            continue
        shown = known_records[spread(len(known_records), MOST_POINTS)]
        texts = records.texts(shown.tolist()) if records else []
        rmse, r2 = (cell(metrics[key].value) for key in ("rmse", "r2"))
        points = np.stack([truths[shown].astype(np.float64), scores[shown]], axis=1)
        scatter = Scatter(
            points,
            texts=texts if all(texts) else [],
            x_label=f"{name}, true",
            y_label=f"{name}, predicted",
            title=f"{name}: RMSE {rmse}, R² {r2}",
            diagonal=True,
        )
        examples = list_largest_errors(predictions, i, records)
        note = f"The largest errors of {len(known_records):,} records, the largest first"
        listed = [RecordList(records=examples, note=note, title="Largest errors")]
        rows.append([scatter, *(listed if examples else [])])
    return rows


def list_wrong_classes(
    predictions: Predictions, targets: Targets, records: Records | None
) -> tuple[str, list[ShownRecord]]:
    """Return a sentence about the records of a wrong class, and these, the most confident first;
    then some right ones of each class, the least confident first.
    """
    known_records = np.flatnonzero(known(predictions.truths))
    table = HEADS[predictions.task].probabilities(torch.from_numpy(predictions.scores)).numpy()
    truths, best = predictions.truths, table.argmax(1)
    order = known_records[np.argsort(-table[known_records].max(1), kind="stable")]
    errors = [int(i) for i in order if best[i] != truths[i]]
    count = f"{len(errors):,} of {len(known_records):,} predictions are wrong"
    note = f"{count}; the most confident ones first" if errors else "No prediction is wrong"
    if records is None:
        return note, []
    right = [int(i) for i in order[::-1] if best[i] == truths[i]]
    each = {k: [i for i in right if truths[i] == k][:FEW_RIGHT] for k in set(truths.tolist())}
    names = targets.classes[0]

    def describe(i: int, picture: Picture) -> ShownRecord:
        truth, predicted = int(truths[i]), int(best[i])
        return ShownRecord(
            picture=picture,
            prediction=f"predicted {names[predicted]}, {percent(table[i, predicted])}",
            truth=f"true {names[truth]}, {percent(table[i, truth])}",
            cells=[(truth, predicted)],
            is_error=truth != predicted,
        )

    chosen = [*errors, *(i for part in each.values() for i in part)]
    return note, records.list_examples(chosen, describe)


def list_wrong_positions(
    predictions: Predictions, targets: Targets, records: Records | None
) -> tuple[str, list[ShownRecord]]:
    """Return a sentence about the positions of a wrong class, and the records with most of them."""
    names, best = targets.classes[0], predictions.scores.argmax(1)
    truths, ends = predictions.truths, np.cumsum(predictions.lengths)
    errors = (truths >= 0) & (truths != best)
    count = f"{int(errors.sum()):,} of {int((truths >= 0).sum()):,} positions are wrong"
    note = f"{count}; the records with the largest share of them first"
    if records is None:
        return note, []
    spans = [slice(end - n, end) for end, n in zip(ends, predictions.lengths, strict=True)]
    shares = np.array([errors[span].sum() / max(1, (truths[span] >= 0).sum()) for span in spans])
    order = [int(i) for i in np.argsort(-shares, kind="stable") if shares[i] > 0]
    before, after = records.predictor.tokenizer.markers

    def describe(i: int, picture: Picture) -> ShownRecord:
        inner = slice(spans[i].start + before, spans[i].stop - after)
        pairs = [(int(t), int(p)) for t, p in zip(truths[inner], best[inner], strict=True)]
        known_pairs = [pair for pair in pairs if pair[0] >= 0]
        if records.predictor.tokenizer.reads_text:
            tokens = [records.predictor.tokenizer.text(int(t)) for t in records.row(i)[before:]]
            track = [
                (token, names[t] if t >= 0 else None, names[p])
                for token, (t, p) in zip(tokens, pairs, strict=False)
            ]
            picture = {"track": track}
        n_wrong = sum(t != p for t, p in known_pairs)
        return ShownRecord(
            picture=picture,
            prediction=f"{n_wrong:,} of {len(known_pairs):,} positions wrong",
            truth=f"{1 - n_wrong / max(1, len(known_pairs)):.1%} right",
            cells=sorted(set(known_pairs)),
        )

    return note, records.list_examples(order[:MOST_SEQUENCES], describe)


def list_wrong_labels(
    predictions: Predictions, targets: Targets, records: Records | None
) -> tuple[str, list[ShownRecord]]:
    """Return a sentence about the records with a wrong label, and these, the most confident
    first.
    """
    table = HEADS[predictions.task].probabilities(torch.from_numpy(predictions.scores)).numpy()
    truths, predicted = predictions.truths, table >= PRESENT
    errors = (truths >= 0) & (predicted != (truths > 0))  # (R, O)
    confidence = np.where(errors, np.maximum(table, 1 - table), 0).max(1)
    order = [int(i) for i in np.argsort(-confidence, kind="stable") if confidence[i] > 0]
    note = f"{len(order):,} of {len(table):,} records have a wrong label; the most confident first"
    if records is None:
        return note, []

    def describe(i: int, picture: Picture) -> ShownRecord:
        names = [targets.names[j] for j in np.flatnonzero(errors[i])]
        labels = [f"{name} {percent(table[i, targets.names.index(name)])}" for name in names]
        right = [targets.names[j] for j in np.flatnonzero(truths[i] > 0)]
        return ShownRecord(
            picture=picture,
            prediction=f"wrong: {', '.join(labels)}",
            truth=f"true labels: {', '.join(right) or 'none'}",
        )

    return note, records.list_examples(order, describe)


def list_largest_errors(
    predictions: Predictions, column: int, records: Records | None
) -> list[ShownRecord]:
    """Return the records with the largest errors of one value."""
    truths, scores = predictions.truths[:, column], predictions.scores[:, column]
    errors = np.where(known(truths), np.abs(scores - np.nan_to_num(truths)), -1.0)
    order = [int(i) for i in np.argsort(-errors, kind="stable") if errors[i] >= 0]

    def describe(i: int, picture: Picture) -> ShownRecord:
        error = float(scores[i] - truths[i])
        return ShownRecord(
            picture=picture,
            prediction=f"predicted {signed(float(scores[i]))}",
            truth=f"true {signed(float(truths[i]))}, off by {signed(error)}",
        )

    return records.list_examples(order[:MOST_SEQUENCES], describe) if records else []


def plot_confusion(
    report: ClassificationReport,
    classes: Sequence[str],
    unit: str = "records",
    note: str = "",
    examples: Sequence[ShownRecord] = (),
) -> Confusion:
    counts = report.confusion
    shown = np.sort(np.argsort(-counts.sum(1), kind="stable")[:MOST_CLASSES])
    names, part = [classes[i] for i in shown], ""
    if len(shown) < len(classes):
        part = f", the {len(shown)} most frequent of {len(classes):,} classes"
    index = {int(k): i for i, k in enumerate(shown)}
    inside = [
        replace(one, cells=[(index[r], index[c]) for r, c in one.cells if {r, c} <= index.keys()])
        for one in examples
    ]
    return Confusion(
        counts=counts[np.ix_(shown, shown)],
        classes=names,
        unit=unit,
        note=note,
        records=inside,
        title=f"Confusion{part}",
    )


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
BINS = 30  # of the values of training
SPLIT_WORDS = {"train": "training", "valid": "validation"}


def add_prediction(page: Page, context: PredictionContext, parts: Sequence[Records]) -> None:
    """Draw the prediction and whether it is right: probabilities, values, or the classes of all
    positions; `parts` are records among which the item may be.
    """
    target = find_target(context.predictor, context.shard, parts)
    kind, views = context.predictor.targets.kind, context.predictor.views
    note = f"It is the mean over {views.count} views of the text." if views else ""
    page.section("Prediction", note)
    if kind.aligned:
        _add_positions(page, context, target)
    elif kind.categorical:
        page.add(_class_answer(context, target))
    else:
        _add_values(page, context, target, parts)


def _picture(context: PredictionContext) -> Picture:
    return draw_picture(context.tokenizer, context.shard.record(0), context.text)


def _source(target: KnownTarget | None, verdict: str = "") -> str:
    """Return a sentence about where a true target is from, and whether the prediction is right."""
    if target is None:
        return ""
    where = f"a record of the {SPLIT_WORDS.get(target.split, target.split)} split"
    if target.split == "train":
        where = "a training record: the model has seen it with its target"
    return f"This is {where}. {verdict}".strip()


def _class_answer(context: PredictionContext, target: KnownTarget | None) -> Answer:
    """Return the most probable class, or the labels from a probability of one half on."""
    values, names = context.probabilities, context.outputs
    kind = context.predictor.targets.kind
    order = np.argsort(-values, kind="stable")
    chosen = [int(order[0])] if kind.single else [int(i) for i in order if values[i] >= PRESENT]
    true = _true_outputs(target, kind.single)
    verdict = "" if true is None else "right" if set(true) == set(chosen) else "wrong"
    truth = ", ".join(names[i] for i in true or []) or "none of the labels"
    sentence = f"The prediction is {verdict}: the true target is {truth}." if verdict else ""
    shown = [int(i) for i in order[:MOST_BARS]]
    shown += [i for i in true or [] if i not in shown]
    rest = len(names) - len(shown)
    more = f"{rest:,} less probable classes are not shown." if rest else ""
    return Answer(
        headline=", ".join(names[i] for i in chosen) or "none of the labels",
        label=f"predicted {context.predictor.targets.names[0] if kind.single else 'labels'}",
        detail=percent(values[chosen[0]]) if kind.single else "",
        verdict=verdict,
        notes=[x for x in (_source(target, sentence), *context.reading_notes, more) if x],
        options=[(names[i], float(values[i])) for i in shown],
        predicted=[shown.index(i) for i in chosen if i in shown],
        truth=[shown.index(i) for i in true or []],
        picture=_picture(context),
    )


def _true_outputs(target: KnownTarget | None, single: bool) -> list[int] | None:
    """Return the classes that are true; None if that is not known."""
    if target is None or not (target.values >= 0).all():
        return None
    return [int(target.values)] if single else np.flatnonzero(target.values > 0).tolist()


def _add_values(
    page: Page, context: PredictionContext, target: KnownTarget | None, parts: Sequence[Records]
) -> None:
    """Draw each predicted value with its interval, within the values of training."""
    errors = _held_out_errors(context, parts)
    split, values = training_values(context.predictor, parts)
    split = SPLIT_WORDS.get(split, split)
    picture = _picture(context)
    for i, name in enumerate(context.outputs):
        value = float(context.probabilities[i])
        truth = float(target.values[i]) if target is not None else math.nan
        reach, notes = math.nan, [_source(target)]
        if math.isfinite(truth):
            notes.append(f"The true value is {signed(truth)}: off by {signed(value - truth)}.")
        residuals = errors[:, i][np.isfinite(errors[:, i])]
        if len(residuals) >= FEWEST_ERRORS:
            reach = conformal_reach(residuals)
            interval = f"{signed(value - reach)} to {signed(value + reach)}"
            notes.append(
                f"{COVERED:.0%} interval: {interval}. So many of the errors on {len(residuals):,} "
                f"records of the {parts[0].split} split are at most {signed(reach)}."
            )
        known_values = values[:, i][np.isfinite(values[:, i])]
        if len(known_values):
            below = float((known_values < value).mean())
            least, most = (signed(float(x)) for x in (known_values.min(), known_values.max()))
            notes.append(
                f"It is above {below:.0%} of the {split} records, whose values are {least} to "
                f"{most}."
            )
        answer = Answer(
            headline=signed(value),
            label=f"predicted {name}",
            notes=[note for note in (*notes, *context.reading_notes) if note],
            picture=picture if i == 0 else {},
        )
        page.add(answer)
        if len(known_values) > 1 and known_values.min() < known_values.max():
            counts, edges = np.histogram(known_values, BINS)
            page.add(
                ValueRange(
                    edges=edges.tolist(),
                    counts=counts.tolist(),
                    value=value,
                    low=value - reach,
                    high=value + reach,
                    truth=truth,
                    x_label=name,
                    y_label=f"{split} records",
                    title=f"Its place among the {split} records",
                )
            )


def _held_out_errors(context: PredictionContext, parts: Sequence[Records]) -> NDArray[np.float64]:
    """Return predicted minus true values (R, O) of the held-out records; NaN where unknown."""
    if not parts:
        return np.full((0, len(context.outputs)), np.nan)
    predictions = context.predictor.predict_shard(parts[0].shard)
    return np.asarray(predictions.scores - predictions.truths, np.float64)


def _add_positions(page: Page, context: PredictionContext, target: KnownTarget | None) -> None:
    """Draw the most probable class at every position, and how many are right."""
    before, after = context.tokenizer.markers
    names, reads_text = context.outputs, context.tokenizer.reads_text
    inside = slice(before, len(context.probabilities) - after)
    probabilities = context.probabilities[inside]
    best = probabilities.argmax(1)
    notes, verdict, picture = [*context.reading_notes], "", _picture(context)
    if target is not None:
        truths = target.values[before:][: len(best)]
        scored = truths >= 0
        right = int((truths == best)[scored].sum())
        verdict = "right" if right == scored.sum() else ""
        share = f"{right / max(1, int(scored.sum())):.1%}"
        count = f"{right:,} of {int(scored.sum()):,} positions ({share}) are predicted right."
        notes.insert(0, _source(target, count))
        if reads_text:
            track = zip(context.tokens[inside], truths.tolist(), best.tolist(), strict=False)
            picture = {"track": [(x, names[t] if t >= 0 else None, names[p]) for x, t, p in track]}
    column = context.predictor.targets.names[0]
    counts = sorted(((int((best == k).sum()), name) for k, name in enumerate(names)), reverse=True)
    page.add(
        Answer(
            headline=", ".join(f"{name} {n / max(1, len(best)):.1%}" for n, name in counts if n),
            label=f"predicted {column}, shares of {len(best):,} positions",
            verdict=verdict,
            notes=notes,
            picture=picture,
        )
    )
    if not reads_text:
        add_item_positions(page, context)
        return
    tokens, described = context.tokens[inside], context.predictor.modality.describe_labels(names)
    title = "The most probable class of each position"
    page.add(Tagged(tokens, [names[i] for i in best], described, title, names))
    title, values = "Probability of each class at each position", probabilities.T
    page.add(Heatmap(values, names, tokens, title, "weights", unit="probability"))


@register_evidence(NeuralSupervisedModel)
def add_neural_evidence(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel
) -> None:
    """Draw what in the text or item the prediction rests on, and the attention of all heads."""
    if not context.tokenizer.reads_text:
        add_item_evidence(page, context, model)
        return
    if model.output.positional:
        _add_position_attributions(page, context, model)
    else:
        _add_attributions(page, context, model)
    activations = context.activations(*attention_names("*.attention", len(context.tokens)))
    if activations:
        add_encoder_attention(page, activations, context.tokens, model.config.score)


def _start_attributions(page: Page, context: PredictionContext, *, changed: bool) -> None:
    """Start the section; texts that are too long have no changes."""
    first = "First, how the score changes with the text: this runs the model itself. Then gradient"
    page.section(
        "What the prediction rests on",
        f"{first if changed else 'Gradient'} × input: the slope of a score along the embedding of "
        "a token times the embedding, exact for a linear model and an approximation for others. "
        "Positive values support the prediction, negative ones oppose it. "
        f"{context.cut_note}".rstrip(),
    )


def _add_attributions(page: Page, context: PredictionContext, model: NeuralSupervisedModel) -> None:
    """Draw what changes to the text do to the score, then gradient × input and pooling weights."""
    names, tokens, unit = context.outputs, context.tokens, context.unit
    changes = explain_changes(context, context.explained[0], names[context.explained[0]])
    _start_attributions(page, context, changed=bool(changes))
    for row in changes:
        page.add(*row)
    added = attribute_outputs(model, context.source, context.explained).cpu().double().numpy()
    rows = [
        (f"for {names[k]}", row.tolist()) for k, row in zip(context.explained, added, strict=True)
    ]
    title = "Gradient × input: what each token adds to the score"
    page.add(Contributions(tokens, rows, title=title, unit=unit), *_pooling_weights(context, model))


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


Explain = Callable[[PredictionContext, int, str], Rows]  # of an output and its name
CHANGES: dict[type[Any], Explain] = {}


def register_changes(*tokenizers: type[Any]) -> Callable[[Explain], Explain]:
    """Register what shows how a score changes with the text, by the class of its tokenizer."""

    def register(explain: Explain) -> Explain:
        CHANGES.update(dict.fromkeys(tokenizers, explain))
        return explain

    return register


def explain_changes(context: PredictionContext, output: int, name: str) -> Rows:
    """Return rows of components that show how a score changes with the text."""
    for cls in type(context.tokenizer).__mro__:
        if cls in CHANGES:
            return CHANGES[cls](context, output, name)
    return change_tokens(context, output, name)


def change_tokens(context: PredictionContext, output: int, name: str) -> Rows:
    """Return how a score changes with other letters at each position or, of words, without each.
    Texts that are too long have none.
    """
    tokenizer, source, tokens = context.tokenizer, context.source, context.tokens
    ids = sorted({int(i) for i in source.ids[0].tolist()} - set(tokenizer.names))
    letters = find_alphabet({tokenizer.text(i) for i in ids}) is not None
    if (len(ids) if letters else 1) * len(tokens) ** 2 > MOST_CHANGED:
        return []
    if not letters:
        with evaluating(context.model):
            drops = leave_out(context.model, source, output).double().numpy()
        title = f"Left out: how much the score of {name} drops without each token"
        return [_drops(context, drops, "left out", title)]
    with evaluating(context.model):
        changes = substitute(context.model, source, output, torch.tensor(ids)).double().numpy()
    drops = -changes.sum(0) / max(1, len(ids) - 1)  # the letter itself changes nothing
    title = f"Exchanged: how much the score of {name} drops with another letter, on average"
    row = _drops(context, drops, "exchanged", title)
    title = f"How the score of {name} changes with another letter (down) at each position"
    values, rows = changes[:, 1:-1], [tokenizer.text(i) for i in ids]
    heatmap = Heatmap(values, rows, tokens[1:-1], title, scale="diverging", unit=context.unit)
    return [row, [heatmap]]


def _drops(
    context: PredictionContext, drops: NDArray[np.float64], what: str, title: str
) -> list[Component]:
    """Return what each token is worth, and the tokens that are worth most; markers are not."""
    tokens, unit = context.tokens, context.unit
    before, after = context.tokenizer.markers
    inside = np.arange(before, len(tokens) - after)
    order = inside[np.argsort(-np.abs(drops[inside]), kind="stable")][:MOST_BARS]
    labels = [f"{visible(tokens[i])} ({i + 1 - before})" for i in order]
    unit_note = f"{unit}; position in brackets" if unit else "position in brackets"
    return [
        Contributions(tokens, [(what, drops.tolist())], title=title, unit=unit),
        Bars(labels, drops[order].tolist(), title="The tokens that count most", unit=unit_note),
    ]


def _add_position_attributions(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel
) -> None:
    """Draw what each token adds to the class of each position, and how far away such tokens are."""
    tokens, best = context.tokens, context.probabilities.argmax(1)
    positions = list(range(1, min(len(tokens) - 1, MOST_EXPLAINED + 1)))
    if not positions:
        return
    classes = [int(best[i]) for i in positions]
    added = attribute_positions(model, context.source, positions, classes)
    gradients = added.cpu().double().numpy()  # (n, T)
    drops = exchange_at_positions(context, positions, classes)
    shown = positions[:MOST_ROWS]
    last = shown[-1] + 2
    part = f", the first {len(shown)} positions" if len(shown) < len(tokens) - 2 else ""
    rows = [f"{visible(tokens[i])} {context.outputs[best[i]]}" for i in shown]
    _start_attributions(page, context, changed=drops is not None)
    maps = [("Gradient × input: what each token (across) adds to the class", gradients)]
    if drops is not None:
        maps.insert(0, ("Exchanged: how much another letter (across) lowers the class", drops))
    for title, values in maps:
        width = min(last, values.shape[1])
        shape = values[: len(shown), :width], rows, tokens[:width]
        title = f"{title} of a position (down){part}"
        page.add(Heatmap(*shape, title, scale="diverging", unit="logits"))
    table = maps[0][1]
    distances = np.arange(table.shape[1]) - np.array(positions)[:, None]  # (n, T)
    close = np.abs(distances) <= FARTHEST
    index, bins = (distances + FARTHEST)[close], 2 * FARTHEST + 1
    sums = np.bincount(index, np.abs(table)[close], bins)
    counts = np.bincount(index, minlength=bins)
    filled = np.flatnonzero(counts)
    means = (sums[filled] / counts[filled]).tolist()
    series = [("size of the effect", (filled - FARTHEST).tolist(), means)]
    title = "How far away the tokens are that a prediction rests on"
    page.add(Lines(series, "distance in tokens", "mean size, logits", title))


def exchange_at_positions(
    context: PredictionContext, positions: Sequence[int], classes: Sequence[int]
) -> NDArray[np.float64] | None:
    """Return (n, T): how much the score of a class at each of n positions drops, on average, if the
    letter at each place is exchanged for the others of the text; of long texts only the first
    places, and None for words.
    """
    tokenizer, ids = context.tokenizer, context.source.ids
    letters = sorted({int(i) for i in ids[0].tolist()} - set(tokenizer.names))
    length = ids.size(1)
    alphabet = find_alphabet({tokenizer.text(i) for i in letters})
    places = min(length, MOST_CHANGED // max(1, len(letters) * length))
    if alphabet is None or places < 2:
        return None

    def scores(rows: Tensor) -> Tensor:
        part = [
            center(context.model, context.model.predict(Inputs(x, torch.ones_like(x))))
            for x in rows.split(max(1, BATCH_TOKENS // length))
        ]
        return torch.cat(part)[:, positions, classes].double().cpu()  # (B, n)

    drops = np.zeros((len(positions), places))
    with evaluating(context.model), torch.inference_mode():
        unchanged = scores(ids)[0]
        for letter in letters:
            rows = ids.repeat(places, 1)
            rows.fill_diagonal_(letter)
            drops += (unchanged - scores(rows)).T.numpy()
    drops[:, 0] = 0  # markers are not exchanged
    drops[:, length - 1 :] = 0
    return drops / max(1, len(letters) - 1)


@register_view(NeuralSupervisedModel)
def add_records(page: Page, context: PredictionContext, model: NeuralSupervisedModel) -> None:
    """Draw the vectors of many records, and what heads and filters look for in them."""
    if context.sample is None or context.records is None:
        return
    split, shard = context.sample
    add_embeddings(page, context, context.records)
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
    load_views()  # other modules register their pictures and changes
    context = PredictionContext(predictor, item, sample or held_out, target)
    if target and target not in context.outputs:
        hint = did_you_mean(target, context.outputs)
        raise UsageError(f"--target: the model does not predict {target!r}; {hint}")
    page = Page(title, summary(facts))
    records = [context.records] if context.records else []
    if held_out and sample and sample is not held_out:  # errors are those of the held-out ones
        records.insert(0, Records(predictor, *held_out))
    if item is not None and len(item):
        add_prediction(page, context, records)
        add_evidence(page, context)
    if held_out:
        _add_right_and_wrong(page, predictor, records[0])
    add_inside(page, context)
    page.add_facts(facts)
    return page


def _add_right_and_wrong(page: Page, predictor: Predictor, records: Records) -> None:
    predictions = predictor.predict_shard(records.shard)
    words = f"{len(predictions.lengths):,} records"
    if predictor.targets.kind.aligned:
        words = f"{int(known(predictions.truths).sum()):,} positions"
    words = f"the {words} of the {records.split} split, which the model was not trained on"
    add_errors(page, predictions, words, "Right and wrong", records)
