"""The page of `regard look` about a captioner: one image, its caption, and which patches each word
of it rests on.

As on the page about a translator, all of it but the search is teacher forced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.decoding.engine import device_of, evaluating
from regard.evaluation.head_alignment import CROSS
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
    register_evidence,
    stack_layers,
)
from regard.look.item_maps import MOST_WEIGHTS, ItemMaps, add_heads, displayable, maps_over
from regard.look.page import ImageMaps, Page
from regard.models.nearest_caption import ConditionedNearest
from regard.pipelines.translator import Translator


def caption_page(
    translator: Translator,
    pair: SourceTarget,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    beams: int = 5,
) -> Page:
    """Return the page about the caption of an image, the source of the pair."""
    page = Page.about(title, facts)
    image = maps_over(translator.source_tokenizer, np.asarray(pair.source))
    with evaluating(translator.model):
        result = search(translator, pair.source, beams)
        traces = trace_targets(translator, pair, result)
        name, trace = next(iter(traces.items()))
        add_translations(page, translator, traces, result)
        weights = cross_attention(trace)
        if weights is not None:
            add_word_maps(page, trace, image, weights)
            add_covered(page, trace, image)
        add_evidence(page, trace)
        add_surprise(page, trace, name)
        if weights is not None:
            add_head_maps(page, trace, image, weights)
        encoder = trace.activations("encoder.block.*.attention.weights")
        if encoder:
            add_heads(page, image, stack_layers(encoder))
        add_inside(page, trace)
        add_translation_search(page, trace, result)
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
    """Draw the patches that the model attends to for each word, as the mean over all heads."""
    mean = weights.mean((0, 1)).double().numpy()  # (T, 1 + N)
    page.section(
        "Attention for each word",
        "To predict a token, the one that names the map, the model attends to the patches read by "
        "its encoder; shown is the mean over all heads of all layers. Choose a map to see it "
        "large. An encoded patch holds more than its own pixels: attention shows what was read, "
        "not what decided. The next section tests that.",
    )
    words = word_names(trace)
    title, aside = "From words to patches", mean[:, None, 0]
    page.add(image.draw(mean[:, None, 1:], words, title=title, aside=aside, columns=words))


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
            columns=words,
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


def add_head_maps(page: Page, trace: PairTrace, image: ItemMaps, weights: Tensor) -> None:
    """Draw every head of every layer for every word."""
    if weights.numel() > MOST_WEIGHTS:
        return
    page.section(
        "Every head, for every word",
        "A row is a head, a column a token of the caption. Few heads attend to one object; many "
        "attend to <S>, to borders or everywhere.",
    )
    layers, heads, _ = weights.shape[:3]
    words = word_names(trace)
    flat = weights.flatten(0, 2).double().numpy()  # (L · H · T, 1 + N)
    page.add(
        image.draw(
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
            columns=words,
        )
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
