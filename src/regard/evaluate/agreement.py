"""Which head of a translator aligns: how often each agrees with IBM model 1 on which word a word
comes from.

Cross-attention weights are no alignment by themselves, but of all heads one or two come close to
it, and which ones is found by their agreement with an aligner that knows nothing of the network
(Garg et al. 2019, arXiv:1909.02074, who take GIZA++ for it; here it is `models.alignment`,
estimated on the pairs the network was trained on).

The query that counts for a target word is the one that predicts it, whose input is the word before:
its row of the weights says where the network looked to say that word. Heads of the first layers may
align the word they have just read instead, and count for little here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.decode.engine import evaluating
from regard.decode.workspace import device_of
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.alignment import NULL, Lexicon, estimate
from regard.models.language_model import IGNORE, NeuralLanguageModel
from regard.models.tally import Ints
from regard.models.translator import NeuralTranslator, Translator
from regard.models.word_for_word import rectangle
from regard.train.validation import beginning

CROSS = "*cross.weights"  # the activations that are judged
PASSES = 5  # of expectation–maximisation: 94% of links are those of 20 (English to German)
PAIRS = 30_000  # that model 1 is estimated on, at most,
CELLS = 1 << 23  # with no more than so many pairs of positions: seconds
JUDGED = 400  # pairs on which heads and model 1 are compared
ROWS = 32  # of them at once


@dataclass(frozen=True)
class Agreement:
    """The share of model 1's links that each head of each layer has too, (L, H), and how many links
    there were. Layers and heads count from 0.
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
        """The layer and the head that agree most: the alignment head. Of equals the first."""
        layer, head = np.unravel_index(int(np.argmax(self.per_head)), np.shape(self.per_head))
        return int(layer), int(head)

    def to_json(self) -> dict[str, Any]:
        """What regard.json says under `alignment`."""
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
    def from_json(cls, stored: Any) -> Agreement:
        """Read it back; what is malformed is a ValueError."""
        try:
            heads = [[float(share) for share in heads] for heads in stored["per_head"]]
            return cls(heads, int(stored["links"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"alignment must hold per_head and links: {error}") from None


def agreement(
    model: Translator,
    train: Shard,
    pairs: Shard | None = None,
    *,
    begins: Callable[[], object] = bool,
) -> Agreement | None:
    """How well every cross-attention head agrees with model 1 of `train`, on the first of `pairs`,
    or of the training pairs where there are none.

    None of a translator that does not look at its source, and where model 1 links nothing. `begins`
    is called before the work, if there is any to do.
    """
    pairs = pairs or train
    assert pairs.source is not None
    lengths = [np.diff(side.offsets[: JUDGED + 1]) for side in (pairs, pairs.source)]
    fitting = np.flatnonzero(np.maximum(*lengths) <= model.config.max_len)
    if not len(fitting) or looks(model, pairs, fitting[:1]) is None:
        return None
    begins()
    lexicon, agreed, links = model_1(model, train), torch.zeros(()), 0
    for first in range(0, len(fitting), ROWS):
        numbers = fitting[first : first + ROWS]
        weights = looks(model, pairs, numbers)
        assert weights is not None
        linked = links_of(lexicon, pairs, numbers)
        agreed = agreed + agrees(weights, rectangle(pairs.source, numbers), linked)
        links += int((linked != NULL).sum())
    return Agreement((agreed.double() / links).tolist(), links) if links else None


def model_1(model: Translator, train: Shard) -> Lexicon:
    """The table of IBM model 1 of the first training pairs."""
    assert train.source is not None
    target, source = (np.diff(shard.offsets[: PAIRS + 1]) - 1 for shard in (train, train.source))
    count = max(1, int(np.searchsorted(np.cumsum(target * source), CELLS)))
    part = beginning(train, int(train.offsets[min(count, len(target))]))
    vocabulary = model.config.source_vocab or model.vocab_size
    return estimate(part, vocabulary, PASSES, longest=model.config.max_len)


def looks(model: Translator, pairs: Shard, numbers: Ints) -> Tensor | None:
    """(L, B, H, T, S) where every head looked to say each word and `<E>` of these pairs, the words
    before it given; None if the model has no heads.
    """
    if not isinstance(model, NeuralTranslator):
        return None
    assert pairs.source is not None
    ids, targets = (rectangle(shard, numbers) for shard in (pairs.source, pairs))
    start = torch.full_like(targets[:, :1], int(pairs.ids[0]))
    said = torch.cat((start, targets[:, :-1]), dim=1).clamp_min(0)
    tap, device = Tap([CROSS]), device_of(model)
    with evaluating(model):
        given = model.given(Source(ids.clamp_min(0), (ids != IGNORE).long()).to(device))
        assert isinstance(given, NeuralLanguageModel)
        given.hidden(said.to(device), tap=tap)
    return torch.stack(list(tap.found.values())).float().cpu() if tap.found else None


def links_of(lexicon: Lexicon, pairs: Shard, numbers: Ints) -> Tensor:
    """(B, T) the source position that model 1 links each target word to; NULL for `<E>` too."""
    assert pairs.source is not None
    found = torch.full(rectangle(pairs, numbers).shape, NULL)
    for row, number in enumerate(numbers.tolist()):
        source, target = (shard.record(number)[1:-1].tolist() for shard in (pairs.source, pairs))
        found[row, : len(target)] = torch.tensor(lexicon.links(source, target), dtype=torch.long)
    return found


def agrees(weights: Tensor, sources: Tensor, links: Tensor) -> Tensor:
    """(L, H) how many of the links (B, T) a head of weights (L, B, H, T, S) has too: its weight is
    greatest, among the words of the source (B, S), at the linked one.

    Sources end with `<E>`, then IGNORE. Where a word stands in its source more than once, model 1
    cannot tell which one is meant: any of them will do.
    """
    last = (sources != IGNORE).sum(dim=1, keepdim=True) - 1  # (B, 1) where `<E>` is
    words = torch.arange(sources.size(1)) < last  # (B, S)
    looked = weights.masked_fill(~words[:, None, None], -1).argmax(dim=-1)  # (L, B, H, T)
    found = sources[None, :, None].expand(*looked.shape[:3], -1).gather(3, looked)
    meant = sources.gather(1, links.clamp_min(0))  # (B, T)
    return ((found == meant[:, None]) & (links != NULL)[:, None]).sum(dim=(1, 3))
