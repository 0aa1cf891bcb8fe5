"""Sections about one prediction of a supervised model: the prediction, what in the text it rests
on, and what the model does with many records.
"""

from __future__ import annotations

import numpy as np
import torch

from regard.data.batching import LabelledExamples
from regard.decoding.engine import evaluating
from regard.look.attribution import (
    attribute_outputs,
    attribute_positions,
    leave_out,
    rollout,
    substitute,
)
from regard.look.internals import (
    add_encoder_attention,
    attention_names,
    register_evidence,
    register_view,
    stack_layers,
)
from regard.look.item_maps import add_item_evidence, add_item_positions
from regard.look.page import Bars, Component, Contributions, Facts, Heatmap, Lines, Page, Tagged
from regard.look.page.component import visible
from regard.look.page_inputs import PredictionContext
from regard.look.projection import add_embeddings, spread
from regard.look.unit_motifs import add_units, find_alphabet, find_peaks
from regard.models.supervised import NeuralSupervisedModel

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
