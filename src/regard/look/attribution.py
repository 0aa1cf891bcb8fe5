"""What in a sequence a prediction rests on: gradient × input, changes to the input, and attention
rollout.

Gradient × input (Simonyan et al. 2014, arXiv:1312.6034; Shrikumar et al. 2017, arXiv:1605.01713) is
the derivative of a score with respect to a token's embedding, times that embedding. For a score
that is linear in the embeddings it is exactly what each token adds; otherwise it is a linear
approximation. Leaving a token out, or substituting another one (Zhou & Troyanskaya 2015,
doi:10.1038/nmeth.3547), runs the model once for every change.

What a model computes for an item other than text is drawn over its tokens, the patches of an image
or the points of a point cloud; `register_item_maps(TokenizerClass)` adds the drawing of another
modality.

What attention heads and convolution filters look for: over many records, the windows around the
positions where each is strongest. Windows of letters make a sequence logo (Schneider & Stephens
1990), as for filters over DNA (Alipanahi et al. 2015, doi:10.1038/nbt.3300); words are counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batching import Ints, LabelledExamples
from regard.data.targets import OUTPUT_KINDS
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.record_activations import strongest_positions
from regard.layers.embeddings import N_COORDINATES, Inputs, PatchEmbedding, PointEmbedding
from regard.layers.positions import LearnedGrid, Positions, RotaryGrid, SinusoidalGrid
from regard.layers.series import SeriesEmbedding
from regard.layers.tap import Tap
from regard.look.figures import motif_logo
from regard.look.internals import (
    PredictionContext,
    layer_names,
    load_views,
    register_view,
    stack_layers,
)
from regard.look.page import Component, ImageMaps, Logo, Page, PointMaps, Table
from regard.look.page.charts import TokenMaps
from regard.look.records import displayable
from regard.models.motifs import DNA, PROTEIN, RNA, MotifAlphabet, PositionWeightMatrix
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel
from regard.models.vision import VisionTransformer
from regard.tokenizers import Patches, Points, Tokenizer
from regard.tokenizers.points import SYMBOLS

BATCH_TOKENS = 1 << 14  # positions read at once


def find_embedding(model: nn.Module) -> nn.Module | None:
    """Return the first embedding of a model: of tokens, patches, points or steps."""
    kinds = nn.Embedding | PatchEmbedding | PointEmbedding | SeriesEmbedding
    return next((module for module in model.modules() if isinstance(module, kinds)), None)


def gradient_times_input(
    model: NeuralSupervisedModel, source: Inputs, pick: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return (B, T): what each token adds to the score (B,) that `pick` takes from the predictions.

    What positions, segments and biases add is not included.
    """
    embedding = find_embedding(model)
    if embedding is None:
        raise ValueError(f"{type(model).__name__} has no embedding")
    embedded: list[Tensor] = []
    caller = get_ident()

    def record(module: nn.Module, inputs: object, rows: Tensor) -> Tensor | None:
        if get_ident() != caller:  # another thread reads with the same model
            return None
        embedded.append(rows.detach().requires_grad_())
        return embedded[-1]

    training = model.training
    hook = embedding.register_forward_hook(record)
    try:
        model.eval()
        # cuDNN's recurrences have no gradient outside training
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            score = pick(model.predict(source))
            (gradient,) = torch.autograd.grad(score.sum(), embedded)  # rows are independent
    finally:
        hook.remove()
        model.train(training)
    return (gradient * embedded[0]).sum(-1).detach()


def attribute_outputs(model: NeuralSupervisedModel, source: Inputs, outputs: list[int]) -> Tensor:
    """Return (n, T): what each token of one sequence adds to each of n outputs."""
    rows = torch.arange(len(outputs))
    return gradient_times_input(
        model,
        source.repeat(len(outputs)),
        lambda scores: center(model, scores)[rows, outputs],
    )


def attribute_positions(
    model: NeuralSupervisedModel, source: Inputs, positions: list[int], outputs: list[int]
) -> Tensor:
    """Return (n, T): what each token of one sequence adds to an output at each of n positions."""
    rows = torch.arange(len(positions))
    return gradient_times_input(
        model,
        source.repeat(len(positions)),
        lambda scores: center(model, scores)[rows, positions, outputs],
    )


def leave_out(model: SupervisedModel, source: Inputs, output: int) -> Tensor:
    """Return (T,): how much an output drops without each token of one sequence; 0 at markers."""
    ids, length = source.ids, source.ids.size(1)
    keep = ~torch.eye(length, dtype=torch.bool, device=ids.device)[1:-1]  # (T − 2, T)
    if not len(keep):
        return torch.zeros(length)
    rows = ids.expand(len(keep), -1)[keep].view(len(keep), -1)  # (T − 2, T − 1)
    return F.pad(score_ids(model, ids, output) - score_ids(model, rows, output), (1, 1))


def substitute(model: SupervisedModel, source: Inputs, output: int, letters: Tensor) -> Tensor:
    """Return (A, T): how much an output rises with each of A tokens at each position of one
    sequence; 0 at markers and where nothing changes.
    """
    ids, length = source.ids, source.ids.size(1)
    rows = ids.repeat(len(letters), length, 1)  # (A, T, T)
    rows.diagonal(dim1=1, dim2=2).copy_(letters[:, None].expand(-1, length))
    inside = rows[:, 1:-1].flatten(0, 1)
    if not len(inside):
        return torch.zeros(len(letters), length)
    changed = score_ids(model, inside, output).view(len(letters), -1)
    return F.pad(changed - score_ids(model, ids, output), (1, 1))


def score_ids(model: SupervisedModel, ids: Tensor, output: int) -> Tensor:
    """Return (B,): an output for rows of ids without padding."""
    batches = ids.split(max(1, BATCH_TOKENS // ids.size(1)))
    return score_batches(model, (Inputs(rows, torch.ones_like(rows)) for rows in batches), output)


@torch.inference_mode()
def score_batches(model: SupervisedModel, batches: Iterable[Inputs], output: int) -> Tensor:
    """Return (N,): an output for all rows of the batches, on the CPU."""
    scores = [center(model, model.predict(batch))[:, output].float().cpu() for batch in batches]
    return torch.cat(scores)


def center(model: SupervisedModel, scores: Tensor) -> Tensor:
    """Return the scores to explain: logits of classes minus their mean, since adding a constant to
    all of them changes no probability (Shrikumar et al. 2017, section 3.6 of arXiv:1704.02685).
    """
    return scores if OUTPUT_KINDS[model.task].per_column else subtract_mean(scores)


def subtract_mean(scores: Tensor) -> Tensor:
    """Return scores of classes (..., O) minus their mean over the classes."""
    return scores - scores.mean(-1, keepdim=True)


def rollout(weights: Tensor, pooled: Tensor) -> Tensor:
    """Return (T,): attention followed from the pooling weights (T,) down to the tokens.

    `weights` (L, H, T, T) are those of every layer. Heads are averaged, and half of each position
    comes from itself, through the residual (Abnar & Zuidema 2020, arXiv:2005.00928).
    """
    for layer in weights.mean(1).flip(0):  # (T, T)
        pooled = 0.5 * pooled + 0.5 * (pooled @ layer)
    return pooled


BATCH = 64  # items read at once
MOST_WEIGHTS = 1 << 22  # attention weights on one page


class ItemMaps(ABC):
    """One item, the record of features that its tokenizer made of it, and how maps are drawn."""

    token: ClassVar[str]  # what one token is
    removed: ClassVar[str]  # how a token is taken away
    side_by_side: ClassVar[bool] = False  # whether maps share a row of the page
    positions_title: ClassVar[str] = "Classes of points"
    positions_note: ClassVar[str] = (
        "The probability of each class at every point; choose a class among the small views, and "
        "drag the large one to turn it."
    )
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


@register_item_maps(Points)
class CloudPoints(ItemMaps):
    """The points of a point cloud, each of the token whose centre is nearest."""

    token, removed, side_by_side = "token", "left out", True
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
    load_views()  # other modules register their drawings
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
    components: list[Component] = [
        item.draw(
            torch.stack([values for _, values in maps]).double().numpy()[:, None],
            [name for name, _ in maps],
            title=f"What each {item.token} is worth",
            unit=context.unit,
            scale="diverging",
        )
    ]
    activations = context.activations("*.attention.weights", "pooling.weights")
    pooled = item.pooling_shares(activations.pop("pooling.weights", torch.zeros(1, 1))[0])
    if activations:
        shares = rollout(stack_layers(activations), pooled).double().numpy()
        title, aside = "Attention rollout", shares[None, :1]
        options = {"title": title, "unit": "share", "aside": aside}
        components.append(item.draw(shares[None, None, 1:], ["rollout"], **options))
    for row in [components] if item.side_by_side else [[one] for one in components]:
        page.add(*row)


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
            over=[f"head {j + 1}" for j in range(heads)],
            down=[f"layer {i + 1}" for i in range(layers)],
        )
    )


def add_item_positions(page: Page, context: PredictionContext) -> None:
    """Draw the probability of each class at every token of the item."""
    names, item = context.outputs, maps_over(context.tokenizer, context.shard.record(0))
    page.section(item.positions_title, item.positions_note)
    page.add(
        item.draw(
            context.probabilities[1:].T[:, None],
            names,
            title=item.positions_title,
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
        "cosine of the rotation angles. There is a small map for every patch, where it is in the "
        "image; choose one to see it large, its own patch outlined. "
        "Learned positions show whether the model discovered rows and columns by itself.",
    )
    rows, columns = model.config.grid
    page.add(
        ImageMaps(
            grid=(rows, columns),
            maps=similarities.double().numpy()[:, None],
            names=[f"row {i + 1}, column {j + 1}" for i, j in np.ndindex(rows, columns)],
            title=f"Similarity of positions ({model.config.positions})",
            unit="cosine",
            scale="sequential",
            across=columns,
            over=[f"column {j + 1}" for j in range(columns)],
            down=[f"row {i + 1}" for i in range(rows)],
            outlined=True,
        )
    )


REACH = 6  # letters before and after the position
PEAK_BATCH_TOKENS = 2048  # positions read at once: attention weights are T times as many
MOST_LOGOS = 8  # on one page
MOST_WORDS = 6  # of one unit
FEWEST_WINDOWS = 8  # of a logo
OUTSIDE = -1  # an id outside of a record


@dataclass(frozen=True)
class UnitKind:
    """A kind of unit: how its strength is called, and how many tokens before and after a position
    are counted with it.
    """

    name: str
    strength: str
    reach: int
    note: str


HEAD = UnitKind(
    "head",
    "× even",
    0,
    "The tokens there are counted; × even is the attention the position gets, in multiples of an "
    "even share.",
)
FILTER = UnitKind(
    "filter", "strength", 1, "The tokens there, with one before and one after, are counted."
)


@dataclass(frozen=True, eq=False)
class Peaks:
    """For each of U units in each of R records: `windows` (U, R, W) of ids around the position
    where it is strongest, OUTSIDE beyond the text, and its `strength` (U, R) there.
    """

    names: list[str]
    windows: Ints
    strength: NDArray[np.float64]
    kind: UnitKind = HEAD

    def strongest(self, unit: int) -> Ints:
        """Return the windows (N, W) of the half of the records in which this unit is strongest,
        without those in which it is not active at all.
        """
        order = np.argsort(-self.strength[unit], kind="stable")
        order = order[self.strength[unit][order] > 0]
        return np.asarray(self.windows[unit, order[: max(FEWEST_WINDOWS, len(order) // 2)]])


def find_peaks(
    model: NeuralSupervisedModel, examples: LabelledExamples, tokenizer: Tokenizer, records: Ints
) -> Peaks | None:
    """Return where the units of a model are strongest in these records; None if it has no units.

    The strength of a head is the attention that a position gets, in multiples of an even share.
    """
    specials, around = torch.tensor(sorted(tokenizer.names)), torch.arange(-REACH, REACH + 1)
    windows, strengths, names, kind = [], [], list[str](), HEAD
    for batch in examples.batches(PEAK_BATCH_TOKENS, records):
        assert batch.segments is not None
        source = Inputs(batch.ids, batch.segments)
        units = unit_strengths(model, source)
        if units is None:
            return None
        kind, names, strength = units  # (B, U, T)
        inside = (source.segments > 0) & ~torch.isin(source.ids, specials)  # (B, T)
        rows = inside.any(1)
        strength, inside, ids = strength[rows], inside[rows], source.ids[rows]
        largest, position = strongest_positions(strength, inside)  # (B, U)
        at = position[..., None] + around  # (B, U, W)
        index = at.clamp(0, ids.size(1) - 1).flatten(1)
        window = torch.where(inside, ids, OUTSIDE).gather(1, index).view(at.shape)
        windows.append(window.masked_fill((at < 0) | (at >= ids.size(1)), OUTSIDE))
        strengths.append(largest)
    if not windows:
        return None
    by_unit = torch.cat(windows).transpose(0, 1).numpy()  # (U, R, W)
    return Peaks(names, by_unit, torch.cat(strengths).T.double().numpy(), kind)


def unit_strengths(
    model: NeuralSupervisedModel, source: Inputs
) -> tuple[UnitKind, list[str], Tensor] | None:
    """Return the kind, the names and the strengths at each position, (B, U, T), of the units."""
    tap = Tap(["*.attention.weights", "pooling.weights", "filters.output"])
    run = model.vectors if model.output.positional else model.embed
    with evaluating(model):
        run(source.to(device_of(model)), tap=tap)
    activations = {name: x.float().cpu() for name, x in tap.activations.items()}
    if "filters.output" in activations:
        filters = activations["filters.output"].transpose(1, 2)
        return FILTER, [f"filter {i + 1}" for i in range(filters.size(1))], filters
    pooling = activations.pop("pooling.weights", None)
    if not activations:
        return None
    layers, weights = layer_names(activations), torch.stack([*activations.values()], 1)
    mask = (source.segments > 0).float()  # weights are (B, L, H, T, S)
    even = mask / mask.sum(1, keepdim=True)
    queries = even[:, None].repeat(1, len(layers), 1)  # (B, L, T)
    last = layers[-1] == f"layer {getattr(model.config, 'n_layers', len(layers))}"
    if pooling is not None and last:  # only the pooled positions of the last layer are used
        queries[:, -1] = pooling
    received = torch.einsum("blhts,blt->blhs", weights, queries).flatten(1, 2)
    names = [f"{layers[i]}, head {j + 1}" for i, j in np.ndindex(*weights.shape[1:3])]
    return HEAD, names, received * mask.sum(1)[:, None, None]


def find_alphabet(texts: set[str]) -> MotifAlphabet | None:
    """Return the alphabet of tokens: bases, amino acids or just these letters; None for words."""
    if len(texts) < 2 or any(len(text) != 1 for text in texts):
        return None
    upper = {text.upper() for text in texts}
    for alphabet in (DNA, RNA):
        if upper <= {*alphabet.letters, *alphabet.wild}:
            return alphabet
    if texts <= {*PROTEIN.letters, *PROTEIN.wild}:
        return PROTEIN
    return MotifAlphabet("".join(sorted(texts)))


def add_units(page: Page, peaks: Peaks, tokenizer: Tokenizer, records: str) -> None:
    """Draw what every unit looks for: logos of the most informative ones, or a table of words."""
    texts = {int(i): tokenizer.text(int(i)) for i in np.unique(peaks.windows) if i != OUTSIDE}
    alphabet = find_alphabet(set(texts.values()))
    note = (
        f"In {records}, the position where each {peaks.kind.name} is strongest, <S> and <E> aside; "
        "for each, the half of the records in which it is strongest. "
    )
    if alphabet is None:
        page.section(f"What each {peaks.kind.name} looks for", note + peaks.kind.note)
        page.add(_word_table(peaks, texts))
        return
    page.section(
        f"What each {peaks.kind.name} looks for",
        f"{note}Position 0 is that position; the height of a stack of letters is its information. "
        f"The {peaks.kind.name}s with the most information are drawn.",
    )
    logos = list(_best_logos(peaks, texts, alphabet))
    for i in range(0, len(logos), 2):
        page.add(*logos[i : i + 2])


def fit_motifs(
    peaks: Peaks, texts: dict[int, str], alphabet: MotifAlphabet
) -> list[tuple[int, PositionWeightMatrix]]:
    """Return the number and the matrix of each unit with enough windows, the most informative
    first.
    """
    digits = np.full(max(texts) + 2, alphabet.size)  # the last, for OUTSIDE, is unknown
    for i, text in texts.items():
        digits[i] = alphabet.encode(text)[0]
    matrices = []
    for unit in range(len(peaks.names)):
        windows = peaks.strongest(unit)
        if len(windows) >= FEWEST_WINDOWS:
            matrices.append((unit, PositionWeightMatrix.fit(digits[windows], alphabet)))
    return sorted(matrices, key=lambda pair: -float(pair[1].information().sum()))


def _best_logos(peaks: Peaks, texts: dict[int, str], alphabet: MotifAlphabet) -> Iterator[Logo]:
    for unit, matrix in fit_motifs(peaks, texts, alphabet)[:MOST_LOGOS]:
        count, bits = len(peaks.strongest(unit)), float(matrix.information().sum())
        note = f"{count:,} windows, {bits:.1f} bits"
        yield motif_logo(matrix, peaks.names[unit], first=-REACH, note=note)


def _word_table(peaks: Peaks, texts: dict[int, str]) -> Table:
    """List the tokens that each unit is strongest at, the strongest units first."""
    means, reach, rows = peaks.strength.mean(1), peaks.kind.reach, []
    for unit in np.argsort(-means, kind="stable")[: 2 * MOST_LOGOS]:
        windows = peaks.strongest(int(unit))[:, REACH - reach : REACH + reach + 1]  # (N, 1 or 3)
        words = ("".join(texts.get(int(i), "") for i in row).strip() for row in windows)
        frequent = Counter(words).most_common(MOST_WORDS)
        listed = ", ".join(f"{word} ({n})" for word, n in frequent)
        rows.append([peaks.names[unit], listed, f"{means[unit]:.1f}"])
    columns = [peaks.kind.name, "tokens it is strongest at", peaks.kind.strength]
    return Table(columns, rows, align=["left", "left", "right"])
