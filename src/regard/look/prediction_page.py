"""Answers beside the truths, in pictures: which classes are taken for which, how sure is how right,
and predicted against true numbers.

The page of `regard look` about a model of labels or values: what it says of a text, what in the
text that rests on, and what it makes of the records that it was not trained on.

Without a text the page is about those records alone; without them, about the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import LabelledExamples, known
from regard.data.shards import Shard
from regard.data.targets import Targets
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError, did_you_mean
from regard.evaluation.classification import ClassificationReport, label, labels, positions
from regard.evaluation.estimates import BootstrapEstimate
from regard.evaluation.predictions import Predictions
from regard.evaluation.regression import value
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look import image_view, point_cloud_view
from regard.look.attribution import left_out, of_outputs, of_positions, rollout, substituted
from regard.look.class_tables import (
    add_chains,
    add_followed,
    add_matched,
    add_matrices,
    add_windows,
)
from regard.look.internals import MOST_WEIGHTS, beside, named, panel, stacked
from regard.look.ngram_weights import add_coefficients, add_sum
from regard.look.page import (
    Bars,
    Component,
    Contributions,
    Facts,
    Heatmap,
    Lines,
    Page,
    Scatter,
    Tagged,
    Text,
)
from regard.look.page.charts import Band
from regard.look.page.component import cell, visible
from regard.look.projection import add_plane, spread
from regard.look.unit_motifs import add_units, alphabet_of, peaks
from regard.models.class_counts import ClassMarkov, PWMClassifier
from regard.models.dirichlet_ngram import quantile
from regard.models.heads import HEADS
from regard.models.linear import NGramModel, WindowLogistic
from regard.models.supervised import NeuralSupervisedModel
from regard.models.vision import VisionTransformer
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Patches, Points

MOST_CLASSES = 40  # of a confusion matrix: the most frequent
MOST_CURVES = 7  # of a reliability diagram: as many as there are colours
MOST_POINTS = 2000  # of predicted against true numbers
ALL = "all"  # the one curve of a task with one label


def add_judged(page: Page, said: Predictions, targets: Targets, side: str) -> None:
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


def pictures(said: Predictions, targets: Targets) -> list[list[Component]]:
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


def classified(said: Predictions, targets: Targets) -> dict[str, ClassificationReport]:
    """The answers judged: under each column's name, or all of them together."""
    if said.task == "labels":
        tagged = labels(said.scores, said.truths)
        return dict(zip(targets.names, tagged.columns, strict=True))
    if said.positional:
        return {ALL: positions(said.scores, said.truths, said.lengths)}
    there = known(said.truths)
    return {ALL: label(said.scores[there], said.truths[there])}


def confusion(
    judged: ClassificationReport, classes: Sequence[str], unit: str = "records"
) -> Heatmap:
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


def reliability(judged: Mapping[str, ClassificationReport]) -> Lines:
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


def error(judged: ClassificationReport) -> float:
    """The expected calibration error."""
    return float(judged.estimates["ece"].value)


def by_column(columns: Mapping[str, BootstrapEstimate], name: str) -> Bars:
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


def against_truth(said: Predictions, names: Sequence[str]) -> list[Scatter]:
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


MOST_BARS = 12  # tokens that count most, and classes that are likeliest
MOST_EXPLAINED = 96  # positions whose answers are explained
MOST_ROWS = 32  # and those of them that are drawn
FARTHEST = 20  # tokens on either side
MOST_CHANGED = 1 << 18  # tokens that are read to try all changes of a text
MOST_RECORDS = 500  # in which places are looked for
# Of models that are fitted in one go: what the terms of an answer are, and what was learned.
TERMS: tuple[tuple[type, Callable[..., None]], ...] = (
    (NGramModel, add_sum),
    (PWMClassifier, add_matched),
    (ClassMarkov, add_followed),
)
LEARNED: tuple[tuple[type, Callable[..., None]], ...] = (
    (NGramModel, add_coefficients),
    (PWMClassifier, add_matrices),
    (ClassMarkov, add_chains),
    (WindowLogistic, add_windows),
)


@dataclass(frozen=True, eq=False)
class PredictionContext:
    """A model that answers one text."""

    predictor: Predictor
    text: Any  # or a picture, or a cloud

    @cached_property
    def shard(self) -> Shard:
        """The text, in all its views."""
        return self.predictor.shard([self.text])

    @cached_property
    def asked(self) -> LabelledExamples:
        """The text itself, cut to what the model sees."""
        model, tokenizer = self.predictor.model, self.predictor.tokenizer
        return LabelledExamples(self.shard, tokenizer, int(model.config.max_len), first=True)

    @cached_property
    def source(self) -> Inputs:
        """The same as a row of ids."""
        (batch,) = self.asked.batches(1)
        assert batch.segments is not None
        return Inputs(batch.ids, batch.segments).to(device_of(self.predictor.model))

    @property
    def tokens(self) -> list[str]:
        """The tokens the model reads, as they are displayed."""
        return [self.predictor.tokenizer.text(i) for i in self.source.ids[0].tolist()]

    @cached_property
    def picture(self) -> NDArray[np.uint8]:
        """The picture that the model reads, filled up to whole patches."""
        tokenizer = self.predictor.tokenizer
        assert isinstance(tokenizer, Patches)
        return tokenizer.picture(np.asarray(self.shard.record(0)))

    @cached_property
    def likely(self) -> NDArray[np.float64]:
        """(O,) probabilities or values, or (T, O) of positions: what all views say on average."""
        said = self.predictor.measure(self.shard)
        found: NDArray[np.float64] = (
            HEADS[said.task].probabilities(torch.from_numpy(said.scores)).numpy()
        )
        return found if said.positional else found[0]

    def activations(self, *patterns: str) -> dict[str, Tensor]:
        """The named activations as the model reads, in the order in which they arise."""
        model, tap = self.predictor.model, Tap(patterns)
        with evaluating(model):
            model.answers(self.source, tap=tap)
        return {name: value.float().cpu() for name, value in tap.found.items()}


def prediction_page(
    predictor: Predictor,
    text: Any,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    held: tuple[str, Shard] | None = None,
    some: tuple[str, Shard] | None = None,
    other: str = "",
) -> Page:
    """The page about an examiner answering `text`, or a picture, if there is one, and the records
    of `held`, the name of a side and its shard; `some` are those to look at but not to measure on,
    if others. `other` is a class, label or value to explain beside the first.
    """
    page = Page(title, " · ".join(f"{label} {cell(value)}" for label, value in facts[:3]))
    outputs = outputs_of(predictor.targets)
    if other and other not in outputs:
        raise UsageError(f"--target: the model knows no {other!r}; {did_you_mean(other, outputs)}")
    if facts:
        page.section("The model")
        page.add(Facts(facts))
    model, shown = predictor.model, isinstance(predictor.tokenizer, Patches | Points)
    if shown:
        about_numbers(page, predictor, text, other)
    elif text:
        answering = PredictionContext(predictor, text)
        add_answer(page, answering)
        if isinstance(model, NeuralSupervisedModel):
            add_reasons(page, answering, model, other)
            add_attention(page, answering, model)
        for kind, add_terms in TERMS:
            if isinstance(model, kind):
                chosen = explained(model.task, answering.likely, outputs, other)
                add_terms(page, model, predictor.tokenizer, answering.source, chosen, outputs)
                if note := read_of(answering):
                    page.add(Text(note))
    for kind, add_learned in LEARNED:
        if isinstance(model, kind):
            add_learned(page, model, predictor.tokenizer, outputs)
    some = some or held
    if some and isinstance(model, NeuralSupervisedModel):
        add_records(page, predictor, model, some, "" if shown else text)
    if held:
        side, shard = held
        add_judged(page, predictor.measure(shard), predictor.targets, side)
    return page


def about_numbers(page: Page, predictor: Predictor, thing: Any, other: str) -> None:
    """What the model says of a picture or a cloud, and where it looks; nothing where there is
    none.
    """
    model, answering = predictor.model, PredictionContext(predictor, thing)
    view: Any = image_view if isinstance(predictor.tokenizer, Patches) else point_cloud_view
    if thing is not None and len(thing):
        outputs = outputs_of(predictor.targets)
        if model.task == "position-label":
            point_cloud_view.add_points(page, answering, outputs)
        else:
            add_answer(page, answering)
            chosen = explained(model.task, answering.likely, outputs, other)
            if isinstance(model, NeuralSupervisedModel):
                view.add_reasons(page, answering, model, chosen, outputs)
        if isinstance(model, NeuralSupervisedModel):
            view.add_attention(page, answering)
    if isinstance(model, VisionTransformer):
        image_view.add_positions(page, model)


def add_records(
    page: Page,
    predictor: Predictor,
    model: NeuralSupervisedModel,
    some: tuple[str, Shard],
    text: str,
) -> None:
    """What the model makes of many records: where they lie, and what it looks for in them."""
    side, shard = some
    add_plane(page, predictor, shard, side, text)
    if not shard.cuttable:
        return  # what heads look for is told of tokens that have names
    asked = LabelledExamples(shard, predictor.tokenizer, int(model.config.max_len), first=True)
    records = spread(len(asked.sizes), MOST_RECORDS)
    found = peaks(model, asked, predictor.tokenizer, records)
    if found is not None:
        add_units(page, found, predictor.tokenizer, f"{len(records):,} records of the {side} part")


def outputs_of(targets: Targets) -> list[str]:
    """The names of what a model puts out: classes, labels or values."""
    return list(targets.names if targets.task in ("labels", "value") else targets.classes[0])


def add_answer(page: Page, answering: PredictionContext) -> None:
    """What the model says of the text."""
    targets, likely = answering.predictor.targets, answering.likely
    names, task = outputs_of(targets), targets.task
    views = answering.predictor.views
    note = f" It is the mean over {views.count} views of the text." if views else ""
    if task == "position-label":
        add_letters(page, answering, names)
        return
    if task == "value":
        page.section("Answer", f"What the model says of the text.{note}")
        page.add(Facts([(name, float(x)) for name, x in zip(names, likely, strict=True)]))
        return
    sums = (
        "The probabilities of all classes sum to 1."
        if task == "label"
        else ("Each label is answered by itself: likelier than not is yes.")
    )
    page.section("Answer", f"How probable the model holds each answer. {sums}{note}")
    order = np.argsort(-likely, kind="stable")[:MOST_BARS]
    best = [0] if task == "label" else [i for i, k in enumerate(order) if likely[k] >= 0.5]
    part = f", the {len(order)} most probable of {len(names):,}" if len(order) < len(names) else ""
    page.add(
        Bars(
            [names[i] for i in order],
            likely[order].tolist(),
            title=f"{targets.names[0] if task == 'label' else 'labels'}{part}",
            unit="probability",
            highlight=best,
        )
    )


def add_letters(page: Page, answering: PredictionContext, names: list[str]) -> None:
    """The likeliest class at every position, and how probable each is there."""
    likely, tokens = answering.likely[1:-1], answering.tokens[1:-1]
    page.section(
        "Answer",
        "The likeliest class of every position stands below it; the map tells how probable the "
        "model holds each.",
    )
    best = [names[i] for i in likely.argmax(1)]
    page.add(Tagged(tokens, best, title="The likeliest class of each position"))
    page.add(
        Heatmap(
            likely.T,
            names,
            tokens,
            title="Probability of each class at each position",
            scale="weights",
            unit="probability",
        )
    )


def add_reasons(
    page: Page, answering: PredictionContext, model: NeuralSupervisedModel, other: str
) -> None:
    """What in the text the answer rests on."""
    names = outputs_of(answering.predictor.targets)
    page.section(
        "What the answer rests on",
        "Gradient × input: how fast the score of an answer changes with a token, times the token. "
        "What speaks for the answer is above zero, what speaks against it below. It is exact for a "
        "linear model and a tangent for others, a hint and no proof: what the model says when the "
        f"text is changed tells more. {read_of(answering)}".rstrip(),
    )
    if model.config.each:
        add_offsets(page, answering, model, names)
        return
    chosen = explained(model.task, answering.likely, names, other)
    found = of_outputs(model, answering.source, chosen).cpu().double().numpy()  # (n, T)
    tokens, unit = answering.tokens, "" if model.task == "value" else "logits"
    rows = [(f"for {names[k]}", row.tolist()) for k, row in zip(chosen, found, strict=True)]
    page.add(Contributions(tokens, rows, title="What each token adds to the score", unit=unit))
    order = np.argsort(-np.abs(found[0]), kind="stable")[:MOST_BARS]
    strongest = Bars(
        [f"{visible(tokens[i])} ({i + 1})" for i in order],
        found[0][order].tolist(),
        title=f"The tokens that count most for {names[chosen[0]]}",
        unit=f"gradient × input{', ' if unit else ''}{unit}; in brackets the place",
    )
    read = shares(answering, model)
    page.add(strongest, *([read] if read else []))
    page.add(*changes(answering, chosen[0], names[chosen[0]]))


def read_of(answering: PredictionContext) -> str:
    """Which part of the text is explained, where that is not all of it."""
    cut = "Only what the model reads of the text is shown. " if answering.asked.cut else ""
    views = "Of several views, this is the text as given." if answering.predictor.views else ""
    return (cut + views).strip()


def explained(
    task: str, likely: NDArray[np.float64], names: Sequence[str], other: str
) -> list[int]:
    """The outputs to explain: the answer, and the one asked for or the runner-up.

    Of two classes the runner-up's is the same with the other sign, and left out.
    """
    order = list(range(len(names)))
    if task != "value":
        order = [int(i) for i in np.argsort(-likely, kind="stable")]
    if other:
        return [order[0], *([names.index(other)] if names.index(other) != order[0] else [])]
    return order[:1] if task == "label" and len(names) == 2 else order[:2]


def changes(answering: PredictionContext, output: int, name: str) -> list[Component]:
    """What happens to an answer when the text is changed: every letter of it to every other, or, of
    words, each one left out. Nothing of a text that is too long for that.
    """
    predictor, source, tokens = answering.predictor, answering.source, answering.tokens
    ids = sorted({int(i) for i in source.ids[0].tolist()} - set(predictor.tokenizer.names))
    texts = {predictor.tokenizer.text(i) for i in ids}
    letters = alphabet_of(texts) is not None
    if (len(ids) if letters else 1) * len(tokens) ** 2 > MOST_CHANGED:
        return []
    unit = "" if predictor.targets.task == "value" else "logits"
    with evaluating(predictor.model):
        if not letters:
            lost = left_out(predictor.model, source, output).double().tolist()
            title = f"What the score of {name} loses when a token is left out"
            return [Contributions(tokens, [("left out", lost)], title=title, unit=unit)]
        found = substituted(predictor.model, source, output, torch.tensor(ids)).double().numpy()
    return [
        Heatmap(
            found[:, 1:-1],
            [predictor.tokenizer.text(i) for i in ids],
            tokens[1:-1],
            title=f"How the score of {name} changes with another letter (down) at each place",
            scale="diverging",
            unit=unit,
        )
    ]


def shares(answering: PredictionContext, model: NeuralSupervisedModel) -> Contributions | None:
    """From where the answer is read: the weights of the pooling, where they are of interest, and
    attention followed down to the tokens.
    """
    found = answering.activations("*.attention.weights", "pooling.weights")
    pooled = found.pop("pooling.weights")[0]
    rows = []
    if model.config.pooling in ("attention", "max"):
        rows.append(("pooling", pooled.tolist()))
    if len(found) == model.config.n_layers:  # it can be followed through every layer
        rows.append(("attention rollout", rollout(stacked(found, "weights"), pooled).tolist()))
    if not rows:
        return None
    return Contributions(answering.tokens, rows, title="Where it is read from", unit="share of all")


def add_offsets(
    page: Page, answering: PredictionContext, model: NeuralSupervisedModel, names: Sequence[str]
) -> None:
    """What the class of a position rests on: its neighbours, and how far away they are."""
    tokens, best = answering.tokens, answering.likely.argmax(1)
    places = list(range(1, min(len(tokens) - 1, MOST_EXPLAINED + 1)))
    if not places:
        return
    found = of_positions(model, answering.source, places, [int(best[i]) for i in places])
    table = found.cpu().double().numpy()  # (n, T)
    first = places[:MOST_ROWS]
    last = first[-1] + 2
    part = f", the first {len(first)} positions" if len(first) < len(tokens) - 2 else ""
    shown = Heatmap(
        table[: len(first), :last],
        [f"{visible(tokens[i])} {names[best[i]]}" for i in first],
        tokens[:last],
        title=f"What each token (across) adds to the class of a position (down){part}",
        scale="diverging",
        unit="logits",
    )
    away = np.arange(table.shape[1]) - np.array(places)[:, None]  # (n, T)
    inside = np.abs(away) <= FARTHEST
    sums = np.bincount((away + FARTHEST)[inside], np.abs(table)[inside], 2 * FARTHEST + 1)
    counts = np.bincount((away + FARTHEST)[inside], minlength=2 * FARTHEST + 1)
    there = np.flatnonzero(counts)
    means = (sums[there] / counts[there]).tolist()
    reach = Lines(
        [("size of what a token adds", (there - FARTHEST).tolist(), means)],
        x_label="tokens away",
        y_label="mean size, logits",
        title="How far an answer looks",
    )
    page.add(shown)
    page.add(reach)


def add_attention(page: Page, answering: PredictionContext, model: NeuralSupervisedModel) -> None:
    """Every head of every layer, where there are any."""
    tokens = answering.tokens
    found = answering.activations(*named("*.attention", len(tokens)))
    if not found or len(tokens) ** 2 > MOST_WEIGHTS:
        return
    page.section(
        "Attention",
        "Every token looks at all of them, those after it too; a row shows how a head shares its "
        "attention out, and sums to 1. Choose a small map to see that head large, as a map or as "
        f"arcs.{beside(found)} Where a head looks says what was read, not what was made of it.",
    )
    page.add(panel(found, tokens, tokens, model.config.score, title="Attention"))
