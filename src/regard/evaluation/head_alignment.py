"""Which cross-attention head aligns words: how often each agrees with IBM model 1.

Cross-attention weights are no alignment by themselves, but one or two heads come close to it. They
are found by their agreement with an aligner that is independent of the network (Garg et al. 2019,
arXiv:1909.02074, who use GIZA++; here IBM model 1, fitted to the pairs the network was trained on).

The query of a target word is the position that predicts it, whose input is the word before. Heads
of the first layers may align the word they have just read instead, and agree little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.scoring import truncate_shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.ibm_model1 import NULL, TranslationTable, fit_table, pad_records
from regard.models.language_model import IGNORE, NeuralLanguageModel
from regard.models.ngrams import Ints
from regard.models.seq2seq import Seq2SeqModel

CROSS = "*cross.weights"  # the names of the activations
ITERATIONS = 5  # of model 1: 94% of the links are those of 20 iterations (English to German)
FIT_PAIRS = 30_000  # to which model 1 is fitted, at most,
FIT_CELLS = 1 << 23  # with at most so many pairs of positions: seconds
TEST_PAIRS = 400  # on which heads and model 1 are compared
ROWS = 32  # of them at once


@dataclass(frozen=True)
class HeadAlignment:
    """The share of model 1's links on which each head agrees, (L, H), and the number of links.
    Layers and heads count from 0.
    """

    per_head: list[list[float]]
    links: int

    def __post_init__(self) -> None:
        if len({len(heads) for heads in self.per_head}) != 1 or not self.per_head[0]:
            raise ValueError("per_head must hold as many heads for every layer, one at least")
        if not all(0 <= share <= 1 for heads in self.per_head for share in heads):
            raise ValueError("the agreement of a head must be from 0 to 1")

    @property
    def best(self) -> tuple[int, int]:
        """The layer and the head that agree most, the first of equals."""
        layer, head = np.unravel_index(int(np.argmax(self.per_head)), np.shape(self.per_head))
        return int(layer), int(head)

    def to_json(self) -> dict[str, Any]:
        """Return what regard.json stores under `alignment`."""
        layer, head = self.best
        shares = [[round(share, 4) for share in heads] for heads in self.per_head]
        return {
            "layer": layer,
            "head": head,
            "agreement": shares[layer][head],
            "per_head": shares,
            "links": self.links,
        }

    @classmethod
    def from_json(cls, stored: Any) -> HeadAlignment:
        """Read `to_json`; ValueError if it is malformed."""
        try:
            heads = [[float(share) for share in heads] for heads in stored["per_head"]]
            return cls(heads, int(stored["links"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"alignment must hold per_head and links: {error}") from None


def measure_head_alignment(
    model: Seq2SeqModel,
    train: Shard,
    pairs: Shard | None = None,
    *,
    on_start: Callable[[], object] = bool,
) -> HeadAlignment | None:
    """Compare every cross-attention head with model 1 of `train`, on the first of `pairs` (by
    default training pairs).

    Return None for models without cross-attention, and where model 1 links nothing. `on_start` is
    called before the work, if there is any.
    """
    pairs = pairs or train
    assert pairs.source is not None
    lengths = [np.diff(shard.offsets[: TEST_PAIRS + 1]) for shard in (pairs, pairs.source)]
    numbers = np.flatnonzero(np.maximum(*lengths) <= model.config.max_len)
    if not len(numbers) or not _has_cross_attention(model, pairs, numbers[:1]):
        return None
    on_start()
    table, agreements, n_links = fit_model_1(model, train), torch.zeros(()), 0
    for batch in np.split(numbers, range(ROWS, len(numbers), ROWS)):
        weights = _cross_attention(model, pairs, batch)
        links = _link(table, pairs, batch)
        agreements = agreements + count_agreements(weights, pad_records(pairs.source, batch), links)
        n_links += int((links != NULL).sum())
    return HeadAlignment((agreements.double() / n_links).tolist(), n_links) if n_links else None


def fit_model_1(model: Seq2SeqModel, train: Shard) -> TranslationTable:
    """Fit IBM model 1 to the first training pairs."""
    assert train.source is not None
    target, source = (np.diff(s.offsets[: FIT_PAIRS + 1]) - 1 for s in (train, train.source))
    count = max(1, int(np.searchsorted(np.cumsum(target * source), FIT_CELLS)))
    part = truncate_shard(train, int(train.offsets[min(count, len(target))]))
    source_vocab = model.config.source_vocab or model.vocab_size
    return fit_table(part, source_vocab, ITERATIONS, longest=model.config.max_len)


def _inputs(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> tuple[Inputs, Tensor]:
    """Return the sources of pairs, and their targets shifted right (B, T)."""
    assert pairs.source is not None
    ids, targets = (pad_records(shard, numbers) for shard in (pairs.source, pairs))
    start = torch.full_like(targets[:, :1], int(pairs.ids[0]))
    shifted = torch.cat((start, targets[:, :-1]), dim=1).clamp_min(0)
    device = device_of(model)
    return Inputs(ids.clamp_min(0), (ids != IGNORE).long()).to(device), shifted.to(device)


def _has_cross_attention(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> bool:
    source, shifted = _inputs(model, pairs, numbers)
    tap = Tap([CROSS])
    with evaluating(model):
        model.condition(source).logits(shifted, tap=tap)
    return bool(tap.activations)


def _cross_attention(model: Seq2SeqModel, pairs: Shard, numbers: Ints) -> Tensor:
    """Return the weights (L, B, H, T, S) with which every head predicts the targets and `<E>`."""
    source, shifted = _inputs(model, pairs, numbers)
    tap = Tap([CROSS])
    with evaluating(model):
        # only neural models attend; without the head, which costs as much as all layers
        cast(NeuralLanguageModel, model.condition(source)).hidden(shifted, tap=tap)
    return torch.stack(list(tap.activations.values())).float().cpu()


def _link(table: TranslationTable, pairs: Shard, numbers: Ints) -> Tensor:
    """Return the source position (B, T) that model 1 links each target word to; NULL for `<E>`."""
    assert pairs.source is not None
    links = torch.full(pad_records(pairs, numbers).shape, NULL)
    for row, number in enumerate(numbers.tolist()):
        source, target = (shard.record(number)[1:-1].tolist() for shard in (pairs.source, pairs))
        links[row, : len(target)] = torch.tensor(table.links(source, target), dtype=torch.long)
    return links


def count_agreements(weights: Tensor, sources: Tensor, links: Tensor) -> Tensor:
    """Return for how many of the links (B, T) a head of weights (L, B, H, T, S) has its greatest
    weight, among the words of the source (B, S), at the linked word: (L, H).

    Sources end with `<E>`, then IGNORE. Model 1 cannot distinguish equal words of a source: any of
    them agrees.
    """
    end = (sources != IGNORE).sum(dim=1, keepdim=True) - 1  # (B, 1) the position of `<E>`
    is_word = torch.arange(sources.size(1)) < end  # (B, S)
    positions = weights.masked_fill(~is_word[:, None, None], -1).argmax(dim=-1)  # (L, B, H, T)
    words = sources[None, :, None].expand(*positions.shape[:3], -1).gather(3, positions)
    linked = sources.gather(1, links.clamp_min(0))  # (B, T)
    return ((words == linked[:, None]) & (links != NULL)[:, None]).sum(dim=(1, 3))
