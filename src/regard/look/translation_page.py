"""The page of `regard look` about a translator: one source, its translation, and which source word
each target word comes from.

All of it but the search is teacher forced: the target is given, the model's own or another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.engine import evaluating
from regard.evaluation.head_alignment import CROSS, HeadAlignment
from regard.look.decoding_views import (
    SourceTarget,
    add_surprise,
    add_translation_search,
    add_translations,
    search,
    trace_targets,
)
from regard.look.internals import (
    PairTrace,
    add_evidence,
    add_inside,
    attention_maps,
    attention_names,
    explain_scores,
    register_evidence,
    stack_layers,
)
from regard.look.page import Component, Heatmap, Page, Surprise
from regard.models.ibm_model1 import ConditionedIBM1
from regard.pipelines.translator import Translator

WIDE = 24  # source tokens from which on the alignment has a row of the page for itself


def translation_page(
    translator: Translator,
    pair: SourceTarget,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    alignment: HeadAlignment | None = None,
    beams: int = 5,
) -> Page:
    """Return the page about a translator reading a pair; `alignment` says which head aligns."""
    page = Page.about(title, facts)
    with evaluating(translator.model):
        result = search(translator, pair.source, beams)
        traces = trace_targets(translator, pair, result)
        (name, trace), *others = traces.items()
        add_translations(page, translator, traces, result)
        add_head_alignment(page, trace, alignment)
        add_evidence(page, trace)
        add_surprise(page, trace, name)
        for other, second in others:
            targets, bits = second.surprise()
            page.add(Surprise(second.names(targets), [(other, bits.tolist())]))
        add_cross_attention(page, trace, alignment)
        add_inside(page, trace)
        add_translation_search(page, trace, result)
    return page


def add_head_alignment(page: Page, trace: PairTrace, alignment: HeadAlignment | None) -> None:
    """Draw the cross-attention of the head that aligns, where the model has cross-attention."""
    activations = trace.activations(CROSS) if trace.targets else {}
    if not activations:
        return
    title, note, weights = choose_head(stack_layers(activations), alignment)
    others = []
    if alignment is not None and np.size(alignment.per_head) > 1:
        shares = np.asarray(alignment.per_head)
        layers = [f"layer {i + 1}" for i in range(shares.shape[0])]
        heads = [f"head {i + 1}" for i in range(shares.shape[1])]
        words, unit = "Agreement of each head with IBM model 1", "share of its links"
        others = [Heatmap(shares, layers, heads, words, "weights", unit, marks=[alignment.best])]
    options = {"title": title, "unit": "weight"}
    _add_alignment(page, trace, note, weights, trace.sources, others, **options)


def _add_alignment(
    page: Page,
    trace: PairTrace,
    note: str,
    weights: NDArray[Any],
    columns: list[str],
    others: Sequence[Component] = (),
    **options: Any,
) -> None:
    """Draw weights (T, S) of source words for each target; the largest of a row is outlined."""
    rows, n_words = trace.names(trace.targets), len(columns) - 1  # the last source token is <E>
    page.section(
        "Alignment",
        f"{note} A row is a token of the translation; the source word with the largest weight is "
        "outlined, <E> aside.",
    )
    weights = weights[: len(rows)]
    marks = [
        (row, int(weights[row, :n_words].argmax()))
        for row, target in enumerate(trace.targets)
        if target != trace.tokenizer.end and n_words and weights[row, :n_words].any()
    ]
    heatmap = Heatmap(weights, rows, columns, scale="weights", marks=marks, **options)
    if len(columns) < WIDE:
        page.add(heatmap, *others)
    else:
        page.add(heatmap)
        page.add(*others)


def choose_head(weights: Tensor, alignment: HeadAlignment | None) -> tuple[str, str, NDArray[Any]]:
    """Return a title, a note and the weights (T, S) of the head of (L, H, T, S) that aligns, or the
    mean over the heads of the last layer.
    """
    words = "Which source tokens the model attends to in order to predict each token"
    if weights.shape[:2] == (1, 1):
        if alignment is not None:
            words += f", on {alignment.per_head[0][0]:.0%} of links as IBM model 1"
        return "Its one head", f"{words}.", weights[0, 0].numpy()
    if alignment is None:
        note = (
            f"{words}. The run has no data to tell which head aligns: this is the mean over the "
            "heads of the last layer."
        )
        return "Mean over the heads of the last layer", note, weights[-1].mean(0).numpy()
    layer, head = alignment.best
    name, share = f"layer {layer + 1}, head {head + 1}", alignment.per_head[layer][head]
    note = (
        f"{words}: of all heads with cross-attention, {name} agrees most with IBM model 1, a word "
        f"aligner without neural networks, on {share:.0%} of {alignment.links:,} links (Garg et "
        "al. 2019)."
    )
    return f"The alignment head: {name}", note, weights[layer, head].numpy()


@register_evidence(ConditionedIBM1)
def add_table_alignment(page: Page, trace: PairTrace, model: ConditionedIBM1) -> None:
    """Draw the probability that each target word comes from NULL and from each source word."""
    if not trace.targets:
        return
    ids = torch.tensor([trace.targets])  # (1, T)
    t = model.translator.lexicon.probability(model.words[:, None], ids[..., None])  # (1, T, 1 + S)
    joint = (model.weights(model.positions(ids)) * t)[0]
    weights = (joint / joint.sum(-1, keepdim=True).clamp_min(1e-300)).numpy()
    note = (
        "The table holds the probability of each target word given each source word; together with "
        "their distance it gives the probability that one comes from the other."
    )
    columns = ["NULL", *trace.sources]
    title = "P(source word | target word)"
    _add_alignment(page, trace, note, weights, columns, title=title, unit="probability")


def add_cross_attention(page: Page, trace: PairTrace, alignment: HeadAlignment | None) -> None:
    """Draw every head with cross-attention, where there are several."""
    rows, columns, title = trace.names(trace.targets), trace.sources, "Attention to the source"
    activations = trace.activations(*attention_names("*cross", max(len(rows), len(columns))))
    if not activations or not rows or stack_layers(activations)[:, :, 0, 0].numel() == 1:
        return
    activations = {name: x[:, :, : len(rows)] for name, x in activations.items()}
    first = " The alignment head is shown first." if alignment else ""
    page.section(
        title,
        "To predict a token, the one that names the row, every head of every layer attends to the "
        f"encoded source and averages its values.{first} Few heads align; others attend to the "
        f"end, to neighbours or to nothing in particular.{explain_scores(activations)}",
    )
    page.add(
        attention_maps(
            activations,
            rows,
            columns,
            trace.model.config.score,
            title=title,
            chosen=alignment.best if alignment else (0, 0),
        )
    )
