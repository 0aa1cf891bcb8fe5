"""The validation loss of supervised objectives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from regard.data.batching import LabelledExamples
from regard.evaluation.scoring import BATCH_TOKENS, MeanLoss, Stopped, mean_loss
from regard.training.distributed import ALONE, ProcessGroup

GROUPS = 20  # groups of records, whose losses give the standard error of the mean


@torch.inference_mode()
def loss_per_target(
    objective: nn.Module,
    examples: LabelledExamples,
    device: torch.device,
    *,
    stop: Callable[[], object] = bool,
    world: ProcessGroup = ALONE,
) -> MeanLoss:
    """Return the mean loss of labelled examples; processes take batches in turn.

    Every GROUPS-th record forms a group. The standard error is that of the losses of the groups,
    whatever the loss of a record is the sum of.
    """
    was_training = objective.training
    objective.eval()
    records = np.arange(len(examples.sizes))
    groups = min(GROUPS, len(records))
    losses, targets = torch.zeros(2, groups, dtype=torch.float64)
    number = 0  # of the batch
    try:
        for group in range(groups):
            for batch in examples.batches(BATCH_TOKENS, records[group::groups]):
                if number % world.size == 0 and stop():
                    raise Stopped
                targets[group] += batch.symbols
                if number % world.size == world.rank:
                    tensors = [None if x is None else x.to(device) for x in batch.tensors()]
                    losses[group] += float(objective(*tensors)[1])
                number += 1
    finally:
        objective.train(was_training)
    return mean_loss(world.sum(losses).numpy(), targets.numpy())
