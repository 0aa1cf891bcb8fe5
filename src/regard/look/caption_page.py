"""The page of `regard look` about a captioner: one picture, what is said of it, and where in it the
model looked for each word.

As of translators, all of it but the search is teacher forced: the caption is given, its own or
another. It is made of the components of translators and of pictures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.engine import device_of, evaluating
from regard.evaluation.translation import CROSS
from regard.look.forward_trace import PairTrace
from regard.look.image_view import MOST_WEIGHTS, covered_sources, grid_of, heads_over, pixels_of
from regard.look.internals import add_attention, stacked
from regard.look.language_page import add_surprise
from regard.look.page import Facts, Page, Picture
from regard.look.page.component import cell
from regard.look.translation_page import SourceTarget, add_search, add_translations, read, search
from regard.models.encoder_decoder import ConditionedDecoder
from regard.models.nearest_caption import ConditionedNearest
from regard.pipelines.translator import Translator
from regard.tokenizers import Patches


def caption_page(
    translator: Translator,
    pair: SourceTarget,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    beams: int = 5,
) -> Page:
    """The page about a captioner looking at a picture, the pair's source."""
    page = Page(title, " · ".join(f"{label} {cell(value)}" for label, value in facts[:3]))
    if facts:
        page.section("The model")
        page.add(Facts(facts))
    tokenizer = translator.source_tokenizer
    assert isinstance(tokenizer, Patches)
    with evaluating(translator.model):
        searched = search(translator, pair.source, beams)
        readings = read(translator, pair, searched)
        (name, reading), *_ = readings.items()
        add_translations(page, translator, readings, searched)
        picture = pixels_of(tokenizer.picture(np.asarray(pair.source)))
        if isinstance(reading.model, ConditionedDecoder):
            add_looks(page, reading, picture)
            add_covered(page, reading, picture, tokenizer)
        if isinstance(reading.model, ConditionedNearest):
            add_nearest(page, reading, reading.model)
        add_surprise(page, reading, name)
        if isinstance(reading.model, ConditionedDecoder):
            add_heads(page, reading, picture)
            weights = stacked(reading.activations("encoder.block.*.attention.weights"), "weights")
            heads_over(page, picture, grid_of(reading.read_source), weights)
            add_attention(page, reading, reading.model.decoder, "Attention within the caption")
        add_search(page, reading, searched)
    return page


def words_of(reading: PairTrace) -> list[str]:
    """The tokens of a caption, as names of maps."""
    return [name.strip() or "·" for name in reading.names(reading.targets)]


def looks(reading: PairTrace) -> Tensor:
    """(L, H, T, 1 + N) where every head looks to say each token, `<S>` first."""
    return stacked(reading.activations(CROSS), "weights")[:, :, : len(reading.targets)]


def add_looks(page: Page, reading: PairTrace, picture: NDArray[np.uint8]) -> None:
    """Where the model looks for each word, all heads together."""
    if not reading.targets:
        return
    weights = looks(reading).mean((0, 1)).double().numpy()  # (T, 1 + N)
    page.section(
        "Where it looks for each word",
        "To say a token, the one that names the map, the model looks at the patches that its "
        "encoder has read; shown is the mean over all heads of all layers. Choose a map to see it "
        "large. What a patch holds after reading is more than its own pixels: attention tells what "
        "was fetched, not what decided. The next section asks that.",
    )
    page.add(
        Picture(
            picture,
            grid_of(reading.read_source),
            weights[:, None, 1:],
            words_of(reading),
            title="From words to patches",
            aside=weights[:, None, 0],
            columns=words_of(reading),
        )
    )


def add_covered(
    page: Page, reading: PairTrace, picture: NDArray[np.uint8], tokenizer: Patches
) -> None:
    """What each word costs more when a patch is covered."""
    if not reading.targets:
        return
    costs = covered_bits(reading, tokenizer).numpy()  # (T, N)
    page.section(
        "What each word rests on",
        "How many bits more a token costs when a patch is painted over with the mean colour, the "
        "words before it given: that asks the model itself. Patches above zero are what it needs.",
    )
    page.add(
        Picture(
            picture,
            grid_of(reading.read_source),
            costs[:, None],
            words_of(reading),
            title="Bits lost by covering a patch",
            unit="bits",
            scale="diverging",
            columns=words_of(reading),
        )
    )


@torch.inference_mode()
def covered_bits(reading: PairTrace, tokenizer: Patches) -> Tensor:
    """(T, N): how many bits more each token of a caption costs with each patch covered."""
    assert reading.translator is not None
    targets = torch.tensor([reading.targets], device=device_of(reading.model))
    ids = torch.tensor([list(reading.ids[: targets.size(1)])], device=targets.device)
    found = []
    for source in covered_sources(reading.read_source, tokenizer):
        given, rows = reading.translator.condition(source), len(source.ids)
        found.append(given.score(ids.expand(rows, -1), targets.expand(rows, -1)).double().cpu())
    logs = torch.cat(found)  # (N + 1, T), the last as it is
    return ((logs[-1] - logs[:-1]) / math.log(2)).T


def add_heads(page: Page, reading: PairTrace, picture: NDArray[np.uint8]) -> None:
    """Every head of every layer, for every word."""
    weights = looks(reading) if reading.targets else torch.zeros(0, 0, 0, 1)
    layers, heads, words = weights.shape[:3]
    if not 0 < weights.numel() <= MOST_WEIGHTS:
        return
    page.section(
        "Every head, for every word",
        "A row is a head, a column a token of the caption. Few heads look at one thing; many look "
        "at <S>, at borders or everywhere.",
    )
    names = [f"{word}: layer {i + 1}, head {j + 1}" for i in range(layers) for j in range(heads)
             for word in words_of(reading)]  # fmt: skip
    flat = weights.flatten(0, 2).double().numpy()  # (L · H · T, 1 + N)
    page.add(
        Picture(
            picture,
            grid_of(reading.read_source),
            flat[:, None, 1:],
            names,
            title="From words to patches, head by head",
            across=words,
            aside=flat[:, None, 0],
            columns=words_of(reading),
        )
    )


def add_nearest(page: Page, reading: PairTrace, model: ConditionedNearest) -> None:
    """The picture beside the one whose caption is repeated, and how unlike their patches are."""
    source, known = reading.read_source, model.translator
    number = int(known.nearest(source)[0])
    rows, columns = known.config.grid
    side, channels = known.config.patch, known.config.channels
    shape = channels, rows * side, columns * side
    other, own = (x.float().view(shape) for x in (known.pictures[number], known.pixels(source)[0]))
    gaps = ((other - own) / 255).square().mean(0)  # (Y, X)
    cells = gaps.unflatten(1, (columns, side)).unflatten(0, (rows, side)).mean((1, 3))
    page.section(
        "The nearest picture",
        f"Of {len(known.pictures):,} pictures of training, number {number:,} differs least: its "
        "caption is the answer. The map is the mean square of the difference of each patch, of "
        "which white against black is 1.",
    )
    values = cells.flatten().double().numpy()[None, None]
    images = {"The picture": own, f"Number {number:,}": other}
    page.add(
        *(
            Picture(
                pixels_of(image.round().permute(1, 2, 0).to(torch.uint8).numpy()),
                (rows, columns),
                values,
                ["unlike"],
                title=title,
                unit="squared difference",
            )
            for title, image in images.items()
        )
    )
