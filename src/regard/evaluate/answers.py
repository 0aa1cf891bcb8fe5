"""How good a model's answers are: labels, several of them, values, or labels of positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.columns import Array
from regard.data.questions import Asked, known
from regard.data.shards import Shard
from regard.data.targets import Targets
from regard.decode.workspace import computing, device_of
from regard.evaluate.estimates import Estimate
from regard.evaluate.labels import Classified, Tagged, label, labels, positions
from regard.evaluate.report import Figure
from regard.evaluate.values import Valued, values
from regard.layers.source import Source
from regard.models.assessor import Assessor
from regard.tokens import Tokenizer

BATCH_TOKENS = 16384  # positions read at once


@dataclass(frozen=True, eq=False)
class Answered:
    """What a model answers to the records of a shard, beside the truths.

    Both are (R, O) and (R,) or (R, O) or, of positions, (P, O) and (P,), where (R,) `lengths` says
    how many positions each record has.
    """

    task: str
    scores: NDArray[np.float64]
    truths: Array
    lengths: NDArray[np.int64]
    targets: Targets | None = None  # what was asked: names, classes, what metrics are of

    @property
    def positional(self) -> bool:
        """Is there an answer at every position?"""
        return self.task == "position-label"

    @cached_property
    def judged(self) -> Classified | Tagged | Valued:
        """How good they are; records whose class training does not have are left out."""
        asked = self.targets
        if self.task == "value":
            scale, names = (asked.deviations, asked.names) if asked else ((), ())
            return values(self.scores, self.truths, scale=scale, names=names)
        if self.task == "labels":
            return labels(self.scores, self.truths, **self._columns())
        of: dict[str, Any] = {}
        if asked is not None:
            of = {"positive": asked.place_of_positive(), "names": asked.classes[0]}
        if self.task == "label":
            there = known(self.truths)
            if there.any():
                return label(self.scores[there], self.truths[there], **of)
        return positions(self.scores, self.truths, self.lengths, **of)

    def _columns(self) -> dict[str, Any]:
        """What `labels` needs of each column."""
        asked = self.targets
        if asked is None:
            return {}
        places = [asked.place_of_positive(i) for i in range(len(asked.names))]
        return {
            "positive": [1 if place is None else place for place in places],
            "classes": [pair if len(pair) == 2 else () for pair in asked.classes],
            "names": asked.names,
        }

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics by name."""
        return self.judged.estimates

    def figures(self) -> dict[str, Figure]:
        """The metrics with their intervals."""
        return {name: one.figure() for name, one in self.estimates.items()}


def answered(
    model: Assessor, shard: Shard, tokenizer: Tokenizer, targets: Targets | None = None
) -> Answered:
    """Ask a model about every record of a labelled shard; `targets` are what its metrics are of."""
    asked = Asked(shard, tokenizer, int(model.config.max_len))
    outputs, each = int(model.config.n_outputs), asked.positional
    lengths = asked.lengths if each else np.ones(shard.records, np.int64)
    ends = np.cumsum(lengths)
    scores = np.empty((int(ends[-1]), outputs))
    for batch, found in run(model, asked):
        for row, record in enumerate(batch.items.tolist()):
            first = ends[record] - lengths[record]
            scores[first : ends[record]] = found[row, : lengths[record]] if each else found[row]
    truths = asked.targets
    if each:
        read = [asked.targets[a : a + n] for a, n in zip(asked.starts, lengths, strict=True)]
        truths = np.concatenate(read)
    if shard.views > 1:
        scores = averaged(model.task, scores, shard.views)
        truths, lengths = truths[:: shard.views], lengths[:: shard.views]
    return Answered(model.task, scores, truths, lengths, targets)


def averaged(task: str, scores: NDArray[np.float64], views: int) -> NDArray[np.float64]:
    """The scores (R, O) of records from those of their views (R · views, O): what all say on
    average, of probabilities as logits again.
    """
    said = torch.from_numpy(scores).unflatten(0, (-1, views))
    if task == "value":
        mean = said.mean(1)
    elif task == "labels":
        mean = torch.logit(said.sigmoid().mean(1), eps=1e-12)
    else:
        mean = said.log_softmax(-1).logsumexp(1) - math.log(views)
    found: NDArray[np.float64] = mean.numpy()
    return found


@torch.inference_mode()
def run(model: Assessor, asked: Asked) -> Iterator[tuple[Batch, Tensor]]:
    """Every batch, and the answers to it on the host."""
    device = device_of(model)
    for batch in asked.batches(BATCH_TOKENS):
        assert batch.segments is not None
        source = Source(batch.ids, batch.segments)
        with computing(device):
            found = model.answers(source.to(device)).double().cpu()
        yield batch, found


def probabilities(task: str, scores: Tensor) -> Tensor:
    """What logits mean: of classes the softmax, of labels the sigmoid; values are what they are."""
    if task == "value":
        return scores
    return scores.sigmoid() if task == "labels" else nn.functional.softmax(scores, -1)
