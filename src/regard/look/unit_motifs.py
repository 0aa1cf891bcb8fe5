"""What attention heads and convolution filters look for: over many records, the windows around the
positions where each is strongest.

Windows of letters make a sequence logo (Schneider & Stephens 1990), as for filters over DNA
(Alipanahi et al. 2015, doi:10.1038/nbt.3300); words are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import LabelledExamples
from regard.data.collate import Ints
from regard.decoding.engine import device_of, evaluating
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look.internals import layer_names
from regard.look.logo import motif_logo
from regard.look.page import Logo, Page, Table
from regard.models.motifs import DNA, PROTEIN, RNA, MotifAlphabet, PositionWeightMatrix
from regard.models.supervised import NeuralSupervisedModel
from regard.tokenizers import Tokenizer

REACH = 6  # letters before and after the position
BATCH_TOKENS = 2048  # positions read at once: attention weights are T times as many
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
    for batch in examples.batches(BATCH_TOKENS, records):
        assert batch.segments is not None
        source = Inputs(batch.ids, batch.segments)
        units = unit_strengths(model, source)
        if units is None:
            return None
        kind, names, strength = units  # (B, U, T)
        inside = (source.segments > 0) & ~torch.isin(source.ids, specials)  # (B, T)
        rows = inside.any(1)
        strength, inside, ids = strength[rows], inside[rows], source.ids[rows]
        largest, position = strength.masked_fill(~inside[:, None], -1.0).max(-1)  # (B, U)
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
