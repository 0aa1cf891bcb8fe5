"""What covariates that are known in the future add to a forecast trained by gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

HIDDEN = 32  # units of the effect of one step's covariates


class Covariates(nn.Module):
    """The effects of K covariates on C channels.

    An effect of the covariates of a step, the same at every step, is subtracted from the look-back
    and added at the horizon, so that a model forecasts what they do not explain: a regression with
    autocorrelated errors (Hyndman & Athanasopoulos 2021, "Forecasting: Principles and Practice",
    chapter 10), whose regression has a hidden layer and a direct path, as the blocks of TiDE (Das
    et al. 2023, arXiv:2304.08424). An effect that is the same at all steps, such as that of a
    static column, cancels out there. So a second one, different for each step of the horizon, adds
    in units of the window's deviation.

    Effects start at zero. Without covariates there are no parameters, and nothing changes. Missing
    covariates count as their mean.
    """

    def __init__(self, n_known: int, horizon: int, n_channels: int, n_outputs: int) -> None:
        super().__init__()
        self.n_known, self.n_channels = n_known, n_channels
        if n_known:
            self.hidden = nn.Linear(n_known, HIDDEN)
            self.effect = nn.Linear(n_known + HIDDEN, n_channels, bias=False)
            self.ahead = nn.Parameter(torch.zeros(horizon, n_known + HIDDEN, n_outputs))
            nn.init.zeros_(self.effect.weight)

    def features(self, covariates: Tensor) -> Tensor:
        """Return covariates (B, T, K) and hidden units of them, (B, T, F)."""
        known = covariates.nan_to_num().to(self.ahead.dtype)
        return torch.cat((known, nn.functional.gelu(self.hidden(known))), -1)

    def subtract(self, past: Tensor) -> Tensor:
        """Return the channels (B, L, C) of a look-back (B, L, C + K) without their effects."""
        values = past[..., : self.n_channels]
        if not self.n_known:
            return values
        return values - self.effect(self.features(past[..., self.n_channels :]))  # type: ignore[no-any-return]

    def add(self, forecasts: Tensor, future: Tensor | None, deviation: Tensor) -> Tensor:
        """Add the effects of the horizon (B, H, K) to forecasts (B, H, C, Q) of windows with a
        deviation (B, 1, C).
        """
        if not self.n_known or future is None:
            return forecasts
        features = self.features(future)
        ahead = torch.einsum("bhf,hfq->bhq", features, self.ahead)[:, :, None]  # (B, H, 1, Q)
        shared: Tensor = self.effect(features)[..., None]
        return forecasts + shared + ahead * deviation[..., None]
