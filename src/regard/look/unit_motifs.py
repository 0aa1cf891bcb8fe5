"""What a unit looks for: over many records, the windows around the places where a head of attention
looks most, or a filter answers most strongly, laid on top of each other.

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
from regard.look.internals import layers_of
from regard.look.logo import panel
from regard.look.page import Logo, Page, Table
from regard.models.motifs import DNA, PROTEIN, RNA, MotifAlphabet, PositionWeightMatrix
from regard.models.supervised import NeuralSupervisedModel
from regard.tokenizers import Tokenizer

REACH = 6  # letters on either side of the place
MOTIF_BATCH_TOKENS = 2048  # positions read at once: attention weights are T times as many
MOST_LOGOS = 8  # on one page
MOST_WORDS = 6  # of one unit
LEAST = 8  # windows from which a logo is drawn
NONE = -1  # an id outside of a record


@dataclass(frozen=True, eq=False)
class Peaks:
    """Of each of U units in each of R records: `windows` (U, R, W) of ids around the place where it
    is strongest, NONE outside of the text, and its `strength` (U, R) there.
    """

    names: list[str]
    windows: Ints
    strength: NDArray[np.float64]

    def strongest(self, unit: int) -> Ints:
        """(N, W) the windows of the half of the records in which this unit is strongest; those in
        which it is not active at all are left out.
        """
        order = np.argsort(-self.strength[unit], kind="stable")
        order = order[self.strength[unit][order] > 0]
        return np.asarray(self.windows[unit, order[: max(LEAST, len(order) // 2)]])


def peaks(
    model: NeuralSupervisedModel, asked: LabelledExamples, tokenizer: Tokenizer, records: Ints
) -> Peaks | None:
    """Where the units of a model are strongest in these records; None where it has no such units.

    A head's strength is how much attention a place gets, in units of an even share.
    """
    specials = torch.tensor(sorted(tokenizer.names))
    windows, strengths = [], []
    names: list[str] = []
    around = torch.arange(-REACH, REACH + 1)
    for batch in asked.batches(MOTIF_BATCH_TOKENS, records):
        assert batch.segments is not None
        source = Inputs(batch.ids, batch.segments)
        named = active(model, source)
        if named is None:
            return None
        names, scores = named  # (B, U, T)
        inside = (source.segments > 0) & ~torch.isin(source.ids, specials)  # (B, T)
        rows = inside.any(1)
        scores, inside, ids = scores[rows], inside[rows], source.ids[rows]
        strength, place = scores.masked_fill(~inside[:, None], -1.0).max(-1)  # (B, U)
        at = place[..., None] + around  # (B, U, W)
        held = at.clamp(0, ids.size(1) - 1).flatten(1)
        seen = torch.where(inside, ids, NONE).gather(1, held).view(at.shape)
        windows.append(seen.masked_fill((at < 0) | (at >= ids.size(1)), NONE))
        strengths.append(strength)
    if not windows:
        return None
    found = torch.cat(windows).transpose(0, 1).numpy()  # (U, R, W)
    return Peaks(names, found, torch.cat(strengths).T.double().numpy())


def active(model: NeuralSupervisedModel, source: Inputs) -> tuple[list[str], Tensor] | None:
    """The names of a model's units, and how strong each is at each position, (B, U, T)."""
    tap = Tap(["*.attention.weights", "pooling.weights", "filters.output"])
    read = model.vectors if model.config.each else model.embed
    with evaluating(model):
        read(source.to(device_of(model)), tap=tap)
    found = {name: x.float().cpu() for name, x in tap.found.items()}
    if "filters.output" in found:
        filters = found["filters.output"].transpose(1, 2)
        return [f"filter {i + 1}" for i in range(filters.size(1))], filters
    looking = {name: x for name, x in found.items() if name.endswith(".attention.weights")}
    if not looking:
        return None
    weights, layers = torch.stack(list(looking.values()), 1), layers_of(looking)  # (B, L, H, T, S)
    there = (source.segments > 0).float()
    even = there / there.sum(1, keepdim=True)
    queries = even[:, None].repeat(1, len(layers), 1)  # (B, L, T)
    last = layers[-1] == f"layer {getattr(model.config, 'n_layers', len(layers))}"
    if "pooling.weights" in found and last:  # of the last layer nothing else is read
        queries[:, -1] = found["pooling.weights"]
    received = torch.einsum("blhts,blt->blhs", weights, queries).flatten(1, 2)
    names = [f"{layers[i]}, head {j + 1}" for i, j in np.ndindex(*weights.shape[1:3])]
    return names, received * there.sum(1)[:, None, None]


def alphabet_of(texts: set[str]) -> MotifAlphabet | None:
    """The alphabet of these tokens: bases, amino acids, or just these letters; None of words."""
    if len(texts) < 2 or any(len(text) != 1 for text in texts):
        return None
    folded = {text.upper() for text in texts}
    for known in (DNA, RNA):
        if folded <= {*known.letters, *known.wild}:
            return known
    if texts <= {*PROTEIN.letters, *PROTEIN.wild}:
        return PROTEIN
    return MotifAlphabet("".join(sorted(texts)))


def add_units(page: Page, found: Peaks, tokenizer: Tokenizer, records: str) -> None:
    """What every unit looks for: logos of those that look for most, or tables of words."""
    ids = np.unique(found.windows)
    texts = {int(i): tokenizer.text(int(i)) for i in ids if i != NONE}
    alphabet = alphabet_of(set(texts.values()))
    kind = "filter" if found.names[0].startswith("filter") else "head"
    note = (
        f"Of {records}, the places where each {kind} "
        f"{'answers most strongly' if kind == 'filter' else 'looks most'}, <S> and <E> aside; of "
        "each, the half of the records in which it is strongest. "
    )
    if alphabet is None:
        page.section(f"What each {kind} looks for", note + COUNTED[kind])
        page.add(words(found, texts, kind))
        return
    page.section(
        f"What each {kind} looks for",
        f"{note}Position 0 is the place; a stack of letters is as tall as that position is told. "
        f"Shown are the {kind}s whose windows tell most.",
    )
    logos = list(best_logos(found, texts, alphabet))
    for i in range(0, len(logos), 2):
        page.add(*logos[i : i + 2])


COUNTED = {
    "head": "The tokens found there are counted; × even is how much attention the place gets, in "
    "even shares.",
    "filter": "The tokens found there, with one on either side, are counted.",
}


def motifs(
    found: Peaks, texts: dict[int, str], alphabet: MotifAlphabet
) -> list[tuple[int, PositionWeightMatrix]]:
    """Of each unit with enough windows, its number and the matrix of its windows, the one with the
    most information first.
    """
    digits = np.full(max(texts) + 2, alphabet.size)  # the last is that of NONE: unknown
    for i, text in texts.items():
        digits[i] = alphabet.encode(text)[0]
    matrices = []
    for unit in range(len(found.names)):
        windows = found.strongest(unit)
        if len(windows) >= LEAST:
            matrices.append((unit, PositionWeightMatrix.fit(digits[windows], alphabet)))
    return sorted(matrices, key=lambda pair: -float(pair[1].information().sum()))


def best_logos(found: Peaks, texts: dict[int, str], alphabet: MotifAlphabet) -> Iterator[Logo]:
    """The logos of the units that tell most."""
    for unit, matrix in motifs(found, texts, alphabet)[:MOST_LOGOS]:
        count, bits = len(found.strongest(unit)), float(matrix.information().sum())
        note = f"{count:,} windows, {bits:.1f} bits"
        yield panel(matrix, found.names[unit], first=-REACH, note=note)


def words(found: Peaks, texts: dict[int, str], kind: str) -> Table:
    """The tokens that each unit is strongest at, the strongest units first."""
    means, side = found.strength.mean(1), int(kind == "filter")  # a filter sees neighbours too
    rows = []
    for unit in np.argsort(-means, kind="stable")[: 2 * MOST_LOGOS]:
        middles = found.strongest(int(unit))[:, REACH - side : REACH + side + 1]  # (N, 1 or 3)
        spelt = ("".join(texts.get(int(i), "") for i in row).strip() for row in middles)
        common = Counter(spelt).most_common(MOST_WORDS)
        told = ", ".join(f"{text} ({n})" for text, n in common)
        rows.append([found.names[unit], told, f"{means[unit]:.1f}"])
    strength = "strength" if kind == "filter" else "× even"
    return Table(
        [kind, "tokens it is strongest at", strength], rows, align=["left", "left", "right"]
    )
