"""The contrastive loss of pairs: InfoNCE in both directions (van den Oord et al. 2018,
arXiv:1807.03748; Radford et al. 2021, arXiv:2103.00020, figure 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.matched_pairs import PairExamples
from regard.evaluation.language_modeling import MeanLoss, Stopped, mean_loss
from regard.layers.embeddings import Inputs
from regard.models.contrastive import DualEncoder

AT_ONCE = 256  # pairs of a validation that are embedded together
COMPARED = 2_048  # pairs of a validation that are compared with each other
SCALES = (2.0, 4.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0, 56.0, 80.0, 100.0)  # tried in validation
GROUPS = 20  # of pairs, whose losses give the standard error


def pair_losses(
    sources: Tensor, texts: Tensor, scale: Tensor, keys: Tensor, *, smoothing: float = 0.0
) -> Tensor:
    """Return the loss (B,) of each pair of vectors (B, E): the mean of the cross-entropies of its
    text among all texts and of its source among all sources. Label smoothing is uniform over them.

    Pairs with a number of `keys` (B, 2) in common share their source or their text. They would be
    right as well, so they are left out of each other's sums.
    """
    logits = scale * sources @ texts.T  # (B, B)
    shared = (keys[:, None] == keys[None]).any(-1)
    shared.fill_diagonal_(False)
    totals = logits.masked_fill(shared, -torch.inf)
    right = logits.diagonal()
    if smoothing:
        known, counts = logits.masked_fill(shared, 0.0), (~shared).sum(0)
        mean = (known.sum(0) + known.sum(1)) / (2 * counts)
        right = (1 - smoothing) * right + smoothing * mean
    return (totals.logsumexp(0) + totals.logsumexp(1)) / 2 - right


class ContrastiveObjective(nn.Module):
    """Two encoders and their loss. `augment` changes source images at random."""

    def __init__(
        self,
        model: DualEncoder,
        *,
        label_smoothing: float = 0.0,
        augment: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.model, self.augment, self.label_smoothing = model, augment, label_smoothing

    def forward(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        source_ids: Tensor | None = None,
        source_segments: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of texts (B, T), their sources and keys, `targets` (B, 2), smoothed and
        plain, both summed over pairs. A process without data has a batch without sources.
        """
        if segments is None or source_ids is None or source_segments is None:
            zero = sum((p.sum() * 0 for p in self.model.parameters()), torch.zeros(()))
            return zero, zero.detach()
        if self.augment is not None and self.model.training:
            source_ids, source_segments = self.augment(source_ids, source_segments)
        texts, source = Inputs(ids, segments), Inputs(source_ids, source_segments)
        x, y = (vectors[: len(targets)] for vectors in self.model(texts, source))  # not padding
        pairs = x, y, self.model.scale, targets
        loss = pair_losses(*pairs, smoothing=self.label_smoothing).sum()
        return loss, pair_losses(*pairs).sum().detach()


@torch.inference_mode()
def validation_loss(
    model: DualEncoder, examples: PairExamples, device: Any, stop: Callable[[], object]
) -> MeanLoss:
    """Return the mean loss of pairs among all of a split, or among the first COMPARED of them, at
    the temperature that is best for them.

    The temperature changes no order. A model that is too sure of what it has seen in training would
    have a growing loss while it still learns to match.
    """
    was_training = model.training
    model.eval()
    records = np.arange(min(COMPARED, examples.records))
    parts = []
    try:
        for first in range(0, len(records), AT_ONCE):
            if stop():
                raise Stopped
            batch = examples.fill(records[first : first + AT_ONCE])
            assert batch.segments is not None and batch.source is not None
            texts = Inputs(batch.ids, batch.segments).to(device)
            parts.append(model(texts, batch.source.to(device)))
    finally:
        model.train(was_training)
    x, y = (torch.cat(vectors).double().cpu() for vectors in zip(*parts, strict=True))
    keys = torch.from_numpy(examples.keys[records])
    scales = torch.tensor(SCALES, dtype=torch.float64)
    losses = min((pair_losses(x, y, s, keys).numpy() for s in scales), key=np.sum)
    groups = np.array_split(losses, min(GROUPS, len(losses)))
    sums = np.array([group.sum() for group in groups])
    return mean_loss(sums, np.array([float(len(group)) for group in groups]))
