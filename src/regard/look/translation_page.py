"""The pages of `regard look` about a translator and about a captioner: one source or image, its
translation or caption, and which source words or patches each target word comes from.

All of it but the search is teacher forced: the target is given, the model's own or another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.engine import device_of, evaluating
from regard.evaluation.translation import CROSS, HeadAlignment
from regard.look.attribution import MOST_WEIGHTS, ItemMaps, maps_over
from regard.look.internals import (
    PairTrace,
    add_evidence,
    add_inside,
    register_evidence,
    stack_layers,
)
from regard.look.language_page import (
    SourceTarget,
    add_details,
    add_surprise,
    add_translation_search,
    add_translations,
    read_text,
    search,
    trace_targets,
)
from regard.look.page import Choices, Component, Heatmap, ImageMaps, Page, Ribbons
from regard.look.records import displayable
from regard.models.ibm_model1 import ConditionedIBM1
from regard.models.nearest_caption import ConditionedNearest
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
    warnings: Sequence[str] = (),
) -> Page:
    """Return the page about a translator reading a pair; `alignment` says which head aligns."""
    page = Page(title)
    page.warn(*warnings)
    with evaluating(translator.model):
        result = search(translator, pair.source, beams)
        head = alignment.best if alignment and alignment.beats_diagonal else None
        traces = trace_targets(translator, pair, result, head)
        (name, trace), *others = traces.items()
        add_translations(page, translator, traces)
        add_head_alignment(page, trace, alignment)
        add_evidence(page, trace)
        add_surprise(page, trace, f"{name[0].upper()}{name[1:]}")
        for other, second in others:
            reading = read_text(second, f"{other[0].upper()}{other[1:]}")
            if reading is not None:
                page.add(reading)
        add_inside(page, trace)
        add_translation_search(page, translator, trace, result)
    add_details(page, facts)
    return page


def add_head_alignment(page: Page, trace: PairTrace, alignment: HeadAlignment | None) -> None:
    """Draw the cross-attention of the head that aligns, where the model has cross-attention."""
    activations = trace.activations(CROSS) if trace.targets else {}
    if not activations:
        return
    title, note, weights = choose_head(stack_layers(activations), alignment)
    others = []
    if alignment is not None and alignment.beats_diagonal and np.size(alignment.per_head) > 1:
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
    """Draw weights (T, S) of source words for each target as ribbons and as a map, where the
    largest of a row is outlined.
    """
    rows, n_words = trace.names(trace.targets), len(columns) - 1  # the last source token is <E>
    page.section(
        "Alignment",
        f"{note} In the map a row is a token of the translation; the source word with the largest "
        "weight is outlined, <E> aside.",
    )
    weights = np.clip(weights[: len(rows)], 0, 1)
    marks = [
        (row, int(weights[row, :n_words].argmax()))
        for row, target in enumerate(trace.targets)
        if target != trace.tokenizer.end and n_words and weights[row, :n_words].any()
    ]
    words = [row for row, target in enumerate(trace.targets) if target != trace.tokenizer.end]
    if words and n_words:
        title = "Which source words each word comes from"
        linked = weights[words][:, :n_words]
        page.add(Ribbons(columns[:n_words], [rows[row] for row in words], linked, title=title))
    heatmap = Heatmap(weights, rows, columns, scale="weights", marks=marks, **options)
    if len(columns) < WIDE:
        page.add(heatmap, *others)
    else:
        page.add(heatmap)
        page.add(*others)


def choose_head(weights: Tensor, alignment: HeadAlignment | None) -> tuple[str, str, NDArray[Any]]:
    """Return a title, a note and the weights (T, S) of the head of (L, H, T, S) that aligns, or the
    mean over the heads of the last layer where none is known to.
    """
    words = "Which source tokens the model attends to in order to predict each token"
    if alignment is not None and not alignment.beats_diagonal:
        layer, head = alignment.best
        share = alignment.per_head[layer][head]
        words += (
            f". No head aligns words: the best one agrees with IBM model 1 on {share:.0%} of "
            f"links, and linking words of the same position alone on {alignment.diagonal:.0%}"
        )
        alignment = None
        reason = ""
    else:
        reason = " The run has no data to tell which head aligns."
    if weights.shape[:2] == (1, 1):
        if alignment is not None:
            words += f", on {alignment.per_head[0][0]:.0%} of links as IBM model 1"
        return "Its one head", f"{words}.", weights[0, 0].numpy()
    if alignment is None:
        note = f"{words}.{reason} This is the mean over the heads of the last layer."
        return "Mean over the heads of the last layer", note, weights[-1].mean(0).numpy()
    layer, head = alignment.best
    name, share = f"layer {layer + 1}, head {head + 1}", alignment.per_head[layer][head]
    note = (
        f"{words}: of all heads with cross-attention, {name} agrees most with IBM model 1, a word "
        f"aligner without neural networks, on {share:.0%} of {alignment.links:,} links (Garg et "
        f"al. 2019)."
    )
    if alignment.diagonal:
        note += f" Linking words of the same position agrees on {alignment.diagonal:.0%}."
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


def caption_page(
    translator: Translator,
    pair: SourceTarget,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    beams: int = 5,
    warnings: Sequence[str] = (),
) -> Page:
    """Return the page about the caption of an image, the source of the pair."""
    page = Page(title)
    page.warn(*warnings)
    image = maps_over(translator.source_tokenizer, np.asarray(pair.source))
    with evaluating(translator.model):
        result = search(translator, pair.source, beams)
        traces = trace_targets(translator, pair, result)
        trace = next(iter(traces.values()))
        add_translations(page, translator, traces)
        weights = cross_attention(trace)
        if weights is not None:
            add_covered(page, trace, image)
            add_word_maps(page, trace, image, weights)
        add_evidence(page, trace)
        add_surprise(page, trace)
        add_translation_search(page, translator, trace, result)
    add_details(page, facts)
    return page


def word_names(trace: PairTrace) -> list[str]:
    """Return the tokens of a caption as names of maps."""
    return [name.strip() or "·" for name in trace.names(trace.targets)]


def cross_attention(trace: PairTrace) -> Tensor | None:
    """Return the attention (L, H, T, 1 + N) of every head to `<S>` and the patches when it predicts
    each token; None if the model has no cross-attention or the caption no token.
    """
    activations = trace.activations(CROSS)
    if not activations or not trace.targets:
        return None
    return stack_layers(activations)[:, :, : len(trace.targets)]


def add_word_maps(page: Page, trace: PairTrace, image: ItemMaps, weights: Tensor) -> None:
    """Draw the patches that the model attends to for each word: the mean over all heads, and every
    head.
    """
    mean = weights.mean((0, 1)).double().numpy()  # (T, 1 + N)
    page.section(
        "Attention for each word",
        "To predict a token, the one that names the map, the model attends to the patches read by "
        "its encoder: the mean over all heads of all layers, or every head, a row for each. Choose "
        "a map to see it large. An encoded patch holds more than its own pixels: attention shows "
        "what was read, not what decided.",
    )
    words = word_names(trace)
    title, aside = "From words to patches", mean[:, None, 0]
    views: list[tuple[str, Component]] = [
        (
            "mean over all heads",
            image.draw(mean[:, None, 1:], words, title=title, aside=aside, over=words),
        )
    ]
    if weights.shape[:2] != (1, 1) and weights.numel() <= MOST_WEIGHTS:
        views.append(("every head", head_maps(trace, image, weights)))
    page.add(Choices(views))


def add_covered(page: Page, trace: PairTrace, image: ItemMaps) -> None:
    """Draw by how many bits the surprise of each word rises when a patch is covered."""
    page.section(
        "What each word rests on",
        "By how many bits the surprise of a token rises when a patch is painted over with the mean "
        "colour, given the words before it; this runs the model itself. The model needs patches "
        "with positive values.",
    )
    words = word_names(trace)
    page.add(
        image.draw(
            covered_bits(trace, image).numpy()[:, None],
            words,
            title="Bits lost by covering a patch",
            unit="bits",
            scale="diverging",
            over=words,
        )
    )


@torch.inference_mode()
def covered_bits(trace: PairTrace, image: ItemMaps) -> Tensor:
    """Return (T, N): by how many bits the surprise of each token rises with each patch covered."""
    targets = torch.tensor([trace.targets], device=device_of(trace.model))
    ids = torch.tensor([list(trace.ids[: targets.size(1)])], device=targets.device)
    scores = []
    for source in image.without_each(trace.inputs):
        model, rows = trace.translator.condition(source), len(source.ids)
        scores.append(model.score(ids.expand(rows, -1), targets.expand(rows, -1)).double().cpu())
    logs = torch.cat(scores)  # (N + 1, T), the last one of the unchanged image
    return ((logs[-1] - logs[:-1]) / math.log(2)).T


def head_maps(trace: PairTrace, image: ItemMaps, weights: Tensor) -> Component:
    """Return every head of every layer for every word."""
    layers, heads, _ = weights.shape[:3]
    words = word_names(trace)
    flat = weights.flatten(0, 2).double().numpy()  # (L · H · T, 1 + N)
    return image.draw(
        flat[:, None, 1:],
        [
            f"{word}: layer {i + 1}, head {j + 1}"
            for i in range(layers)
            for j in range(heads)
            for word in words
        ],
        title="From words to patches, head by head",
        across=len(words),
        aside=flat[:, None, 0],
        over=words,
    )


@register_evidence(ConditionedNearest)
def add_nearest(page: Page, trace: PairTrace, model: ConditionedNearest) -> None:
    """Draw the image and the training image whose caption is repeated, with their differences."""
    source, captioner = trace.inputs, model.translator
    number, config = int(captioner.nearest(source)[0]), captioner.config
    (rows, columns), side = config.grid, config.patch
    shape = config.channels, rows * side, columns * side
    image, nearest = captioner.pixels(source)[0], captioner.images[number]
    image, nearest = (x.float().view(shape) for x in (image, nearest))
    squares = ((nearest - image) / 255).square().mean(0)  # (Y, X)
    patches = squares.unflatten(1, (columns, side)).unflatten(0, (rows, side)).mean((1, 3))
    page.section(
        "The nearest image",
        f"Of {len(captioner.images):,} training images, number {number:,} is the nearest: its "
        "caption is repeated. The map is the mean squared difference of each patch, which is 1 "
        "between black and white.",
    )
    page.add(
        *(
            ImageMaps(
                pixels=displayable(x.round().permute(1, 2, 0).to(torch.uint8).numpy()),
                grid=(rows, columns),
                maps=patches.flatten().double().numpy()[None, None],
                names=["difference"],
                title=title,
                unit="squared difference",
            )
            for title, x in (("The image", image), (f"Number {number:,}", nearest))
        )
    )
