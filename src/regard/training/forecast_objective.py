"""The training objective of forecasters: a batch names windows, whose values are on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.windows import Windows, batch_of
from regard.evaluation.language_modeling import MeanLoss, Stopped, mean_loss
from regard.models.language_model import IGNORE

AT_ONCE = 256  # windows of a validation that are forecast together
GROUPS = 20  # stretches of time, whose losses give the standard error


class ForecastObjective(nn.Module):
    """A forecaster and its loss. The series are a buffer: a window is a slice of it."""

    values: Tensor
    steps: Tensor

    def __init__(self, model: Any, windows: Windows) -> None:
        super().__init__()
        self.model, self.lookback = model, windows.lookback
        values = torch.from_numpy(np.ascontiguousarray(windows.ids))
        self.register_buffer("values", values, persistent=False)
        self.register_buffer("steps", torch.arange(windows.length), persistent=False)

    def forward(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None = None, *source: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss summed over windows, twice; `ids` (B, 1) are the first steps of windows,
        of which those with a target of IGNORE do not count.
        """
        losses = torch.where(targets[:, 0] == IGNORE, 0.0, self.losses(ids))
        return losses.sum(), losses.detach().sum()

    def losses(self, ids: Tensor) -> Tensor:
        """Return the loss (B,) of each window."""
        window = self.values[ids + self.steps]  # (B, L + H, V)
        past, ahead = window[:, : self.lookback], window[:, self.lookback :]
        channels = self.model.config.n_channels
        future = ahead[..., channels:] if self.model.config.n_known else None
        parameter = next(iter(self.model.parameters()), past)
        forecasts = self.model(past.to(parameter.dtype), future)
        return self.model.losses(forecasts, ahead[..., :channels])  # type: ignore[no-any-return]


@torch.inference_mode()
def validation_loss(
    objective: ForecastObjective, windows: Windows, stop: Callable[[], object]
) -> MeanLoss:
    """Return the mean loss of windows; neighbouring ones overlap, so its standard error is that of
    a few stretches of time.
    """
    was_training = objective.training
    objective.eval()
    device = objective.values.device
    parts = []
    try:
        for part in windows.batches(AT_ONCE):
            if stop():
                raise Stopped
            ids = batch_of(part).ids.to(device)
            parts.append(objective.losses(ids).double().cpu().numpy())
    finally:
        objective.train(was_training)
    groups = np.array_split(np.concatenate(parts), min(GROUPS, windows.records))
    sums = np.array([group.sum() for group in groups])
    return mean_loss(sums, np.array([float(len(group)) for group in groups]))
