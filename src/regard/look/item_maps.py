"""What a model computes for an item other than text, drawn over its tokens: the patches of an image
or the points of a point cloud.

`register_item_maps(TokenizerClass)` adds the drawing of another modality.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.layers.embeddings import N_COORDINATES, Inputs
from regard.layers.positions import LearnedGrid, Positions, RotaryGrid, SinusoidalGrid
from regard.look.attribution import attribute_outputs, find_embedding, rollout, score_batches
from regard.look.internals import register_view, stack_layers
from regard.look.page import ImageMaps, Page, PointMaps
from regard.look.page.charts import TokenMaps
from regard.look.page_inputs import PredictionContext
from regard.models.supervised import NeuralSupervisedModel
from regard.models.vision import VisionTransformer
from regard.tokenizers import Patches, Points, Tokenizer
from regard.tokenizers.points import SYMBOLS

BATCH = 64  # items read at once
MOST_WEIGHTS = 1 << 22  # attention weights on one page


class ItemMaps(ABC):
    """One item, the record of features that its tokenizer made of it, and how maps are drawn."""

    token: ClassVar[str]  # what one token is
    removed: ClassVar[str]  # how a token is taken away
    side_by_side: ClassVar[bool] = False  # whether maps share a row of the page
    evidence_note: ClassVar[str]
    attention_note: ClassVar[str]

    def __init__(self, tokenizer: Any, record: NDArray[Any]) -> None:
        self.tokenizer, self.record = tokenizer, np.asarray(record)

    @abstractmethod
    def draw(self, maps: NDArray[Any], names: Sequence[str], **options: Any) -> TokenMaps:
        """Return maps (M, Q, N) over the tokens."""

    @abstractmethod
    def without_each(self, source: Inputs) -> Iterator[Inputs]:
        """Yield batches of the item without each of its tokens in turn, and at last unchanged."""

    def pooling_shares(self, pooled: Tensor) -> Tensor:
        """Return pooling weights (T,) that sum to 1."""
        return pooled


ITEM_MAPS: dict[type[Tokenizer], type[ItemMaps]] = {}


def register_item_maps(tokenizer: type[Tokenizer]) -> Callable[[type[ItemMaps]], type[ItemMaps]]:
    """Register how maps over the items of a tokenizer are drawn."""

    def register(maps: type[ItemMaps]) -> type[ItemMaps]:
        ITEM_MAPS[tokenizer] = maps
        return maps

    return register


@register_item_maps(Patches)
class ImagePatches(ItemMaps):
    """The patches of an image."""

    token, removed, side_by_side = "patch", "covered", True
    evidence_note = (
        "Covered: how much the score of the prediction drops when a patch is painted over with the "
        "mean colour; this runs the model itself. Gradient × input: what each patch adds by the "
        "slope of the score, an approximation. Positive values support the prediction. Rollout "
        "follows the attention of all layers from the prediction down to the patches."
    )
    attention_note = (
        "Every patch and <S> attend to all of them. The small maps are the heads, a row for each "
        "layer; choose one to see it large, and click a patch to see where it looks."
    )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = self.record[:, :N_COORDINATES].max(0).tolist()
        return int(rows), int(columns)

    def draw(self, maps: NDArray[Any], names: Sequence[str], **options: Any) -> ImageMaps:
        pixels = displayable(self.tokenizer.decode_record(self.record))
        return ImageMaps(maps=maps, names=names, pixels=pixels, grid=self.grid, **options)

    def without_each(self, source: Inputs) -> Iterator[Inputs]:
        count = source.ids.size(1) - 1
        mean = torch.tensor(self.tokenizer.mean).repeat_interleave(self.tokenizer.patch**2) * 255
        rows = source.ids.float().repeat(count + 1, 1, 1)
        each = torch.arange(count)
        rows[each, each + 1, N_COORDINATES:] = mean.to(rows.device)
        for batch in rows.split(BATCH):
            yield Inputs(batch, torch.ones(batch.shape[:2], dtype=torch.long, device=batch.device))


def displayable(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of 1 or 3 channels; others are averaged."""
    if image.shape[2] in (1, 3):
        return image
    return np.repeat(image.mean(2, keepdims=True).astype(np.uint8), 1, axis=2)


@register_item_maps(Points)
class CloudPoints(ItemMaps):
    """The points of a point cloud, each of the token whose centre is nearest."""

    token, removed = "token", "left out"
    evidence_note = (
        "Left out: how much the score of the prediction drops without a token; this runs the model "
        "itself. Gradient × input: what each token adds by the slope of the score, an "
        "approximation. Positive values support the prediction. Rollout follows the attention of "
        "all layers from the prediction down to the tokens. Points have the colour of the nearest "
        "centre."
    )
    attention_note = (
        "Every token and <S> attend to all of them. The small views are the heads, a row for each "
        "layer; choose one to see it large, drag to turn it, and click a point to see where it "
        "looks."
    )

    def draw(self, maps: NDArray[Any], names: Sequence[str], **options: Any) -> PointMaps:
        dimensions = self.tokenizer.dimensions
        cloud, centres = self.tokenizer.decode_cloud(self.record), self.record[1:, :dimensions]
        owners = np.arange(len(centres))
        if self.tokenizer.samples:
            owners = np.square(cloud.points[:, None] - centres[None]).sum(-1).argmin(1)  # (P,)
        points = np.zeros((len(cloud), 3))
        points[:, :dimensions] = cloud.points[:, :3]
        return PointMaps(
            maps=maps,
            names=names,
            points=points,
            owners=owners.tolist(),
            kinds=[SYMBOLS[z - 1] if z else "?" for z in cloud.atoms.tolist()],
            **options,
        )

    def without_each(self, source: Inputs) -> Iterator[Inputs]:
        count = source.ids.size(1) - 1
        segments = source.segments.repeat(count + 1, 1)
        each = torch.arange(count)
        segments[each, each + 1] = 0
        for batch in segments.split(BATCH):
            yield Inputs(source.ids.expand(len(batch), -1, -1), batch)

    def pooling_shares(self, pooled: Tensor) -> Tensor:
        return pooled / pooled.sum().clamp_min(1e-12)  # the weights of a sum do not sum to 1


def maps_over(tokenizer: Tokenizer, record: NDArray[Any]) -> ItemMaps:
    return ITEM_MAPS[type(tokenizer)](tokenizer, record)


def remove_each(context: PredictionContext, output: int) -> Tensor:
    """Return (N,): how much an output drops without each token."""
    item = maps_over(context.tokenizer, context.shard.record(0))
    scores = score_batches(context.model, item.without_each(context.source), output)
    return scores[-1] - scores[:-1]


def add_item_evidence(page: Page, context: PredictionContext, model: NeuralSupervisedModel) -> None:
    """Draw what in the item the prediction rests on, and where every head looks."""
    item = maps_over(context.tokenizer, context.shard.record(0))
    if not model.output.positional:
        _add_attributions(page, context, model, item)
    activations = context.activations("*.attention.weights")
    if activations:
        add_heads(page, item, stack_layers(activations))


def _add_attributions(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel, item: ItemMaps
) -> None:
    source, outputs, names = context.source, context.explained, context.outputs
    page.section("What the prediction rests on", item.evidence_note)
    maps = [(f"{item.removed}, for {names[outputs[0]]}", remove_each(context, outputs[0]))]
    if find_embedding(model) is not None:
        gradients = attribute_outputs(model, source, outputs).cpu()[:, 1:]
        maps += [
            (f"gradient × input, for {names[k]}", row)
            for k, row in zip(outputs, gradients, strict=True)
        ]
    components = [
        item.draw(
            values.double().numpy()[None, None],
            [name],
            title=name,
            unit=context.unit,
            scale="diverging",
        )
        for name, values in maps
    ]
    for row in [components] if item.side_by_side else [[one] for one in components]:
        page.add(*row)
    activations = context.activations("*.attention.weights", "pooling.weights")
    pooled = item.pooling_shares(activations.pop("pooling.weights", torch.zeros(1, 1))[0])
    if activations:
        shares = rollout(stack_layers(activations), pooled).double().numpy()
        page.add(
            item.draw(
                shares[None, None, 1:],
                ["rollout"],
                title="Attention rollout",
                unit="share",
                aside=shares[None, :1],
            )
        )


def add_heads(page: Page, item: ItemMaps, weights: Tensor) -> None:
    """Draw weights (L, H, T, T) of all heads; the first token is `<S>`."""
    layers, heads = weights.shape[:2]
    maps = weights.flatten(0, 1).double().numpy()
    if maps.size > MOST_WEIGHTS:  # then the mean of each layer
        maps, heads = weights.mean(1).double().numpy(), 1
    if maps.size > MOST_WEIGHTS:
        return
    page.section(
        "Attention",
        f"{item.attention_note} Weights of a row sum to 1, including the weight of <S>. Attention "
        "shows what a head reads, not how the model uses it.",
    )
    page.add(
        item.draw(
            maps[:, :, 1:],
            [f"layer {i + 1}, head {j + 1}" for i in range(layers) for j in range(heads)],
            title=f"Attention of {layers} layers",
            across=heads,
            aside=maps[:, :, 0],
        )
    )


def add_item_positions(page: Page, context: PredictionContext) -> None:
    """Draw the probability of each class at every token of the item."""
    names = context.outputs
    page.section(
        "Prediction",
        "The probability of each class at every point; choose a class among the small views, and "
        "drag the large one to turn it.",
    )
    page.add(
        maps_over(context.tokenizer, context.shard.record(0)).draw(
            context.probabilities[1:].T[:, None],
            names,
            title="Classes of points",
            unit="probability",
            across=min(8, len(names)),
        )
    )


def _cosines(codes: Tensor) -> Tensor:
    codes = codes / codes.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return codes @ codes.T


def _learned(scheme: LearnedGrid, places: Tensor, width: int) -> Tensor:
    return _cosines(scheme.embedding.weight[1:].float().cpu())


def _sinusoidal(scheme: SinusoidalGrid, places: Tensor, width: int) -> Tensor:
    return _cosines(scheme.add(torch.zeros(1, len(places), width), places[None])[0])


def _rotary(scheme: RotaryGrid, places: Tensor, width: int) -> Tensor:
    gaps = places[:, None] - places[None]  # (N, N, 2)
    return (gaps[..., None] * scheme.rates.float().cpu()).cos().flatten(2).mean(-1)


# How similar the encodings of grid positions are, by the class of the positions.
SIMILARITIES: dict[type[Positions], Callable[[Any, Tensor, int], Tensor]] = {
    LearnedGrid: _learned,
    SinusoidalGrid: _sinusoidal,
    RotaryGrid: _rotary,
}


@torch.inference_mode()
def similarity(model: VisionTransformer) -> Tensor | None:
    """Return (N, N): the similarity of the position encodings of all patches, 1 for equal ones;
    None where positions have no encodings.
    """
    compare = SIMILARITIES.get(type(model.encoder.positions))
    if compare is None:
        return None
    rows, columns = model.config.grid
    axes = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    places = torch.stack(axes, -1).flatten(0, 1).float()  # (N, 2)
    return compare(model.encoder.positions, places, model.config.d_model)


@register_view(VisionTransformer)
def add_positions(page: Page, context: PredictionContext, model: VisionTransformer) -> None:
    """Draw how similar the position encodings are."""
    similarities = similarity(model)
    if similarities is None or similarities.numel() > MOST_WEIGHTS:
        return
    page.section(
        "Positions",
        "The similarity of two position encodings: their cosine; for rotary positions, the mean "
        "cosine of the rotation angles. Click a patch to see which others it resembles. "
        "Learned positions show whether the model discovered rows and columns by itself.",
    )
    rows, columns = model.config.grid
    page.add(
        ImageMaps(
            pixels=np.full((rows, columns, 1), 255, np.uint8),
            grid=(rows, columns),
            maps=similarities.double().numpy()[None],
            names=["similarity"],
            title=f"Similarity of positions ({model.config.positions})",
            unit="cosine",
            scale="diverging",
            verb="resembles",
        )
    )
