"""Forecasters: models that predict the next steps of a series from those before.

`ForecastModel.forecast` maps a look-back to forecasts of every channel and step of the horizon.
With `quantiles` it predicts these and is trained by the pinball loss (Koenker & Bassett 1978);
without, it predicts the mean and is trained by the squared error. Channels are independent: one
set of weights forecasts each from its own past (Nie et al. 2023, arXiv:2211.14730).

Each window is normalized by its own mean and deviation, which are put back into the forecast
(reversible instance normalization: Kim et al. 2022, ICLR), since the level of a series moves.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.tap import Tap
from regard.models import LossMetric, Model, Presets, check_dropout, check_ranges
from regard.models.covariates import Covariates

EPS = 1e-5  # added to the variance of a window, in units of the training part's


@dataclass(frozen=True, kw_only=True)
class ForecastConfig:
    """What every forecaster knows of its windows."""

    max_len: int = 96  # the look-back
    horizon: int = 24
    n_channels: int = 1
    n_known: int = 0  # covariates that are known in the future
    season: int = 0  # steps; 0 = none was found
    quantiles: tuple[float, ...] = ()  # to predict; empty: the mean

    def __post_init__(self) -> None:
        check_ranges(self, max_len=1 << 20, horizon=1 << 16, n_channels=1 << 16)
        check_ranges(self, least=0, n_known=1 << 12, season=1 << 20)
        check_quantiles(self.quantiles)

    @property
    def n_outputs(self) -> int:
        """Q: numbers for each channel and step."""
        return max(1, len(self.quantiles))

    def make_covariates(self) -> Covariates:
        """Return the effects of the known covariates."""
        return Covariates(self.n_known, self.horizon, self.n_channels, self.n_outputs)


def check_quantiles(quantiles: tuple[float, ...]) -> None:
    """Raise ValueError unless quantiles rise from above 0 to below 1."""
    rising = all(a < b for a, b in zip((0.0, *quantiles), (*quantiles, 1.0), strict=True))
    if quantiles and not rising:
        raise ValueError(f"quantiles must rise from above 0 to below 1, got {list(quantiles)}")


class ForecastModel(Model):
    """A model that forecasts windows."""

    task: ClassVar[str] = "forecast"
    reads: ClassVar[str] = "series"
    static_shapes = True
    config: Any

    @abstractmethod
    def forecast(
        self, past: Tensor, future: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """Map the look-back (B, L, V), NaN where missing, to forecasts (B, H, C, Q).

        V are the C channels and the K known covariates, whose values at the horizon are `future`
        (B, H, K).
        """

    def forward(self, past: Tensor, future: Tensor | None = None) -> Tensor:
        """Return `forecast`: what training calls, so that torch.compile finds it."""
        return self.forecast(past, future)

    def predict(self, past: Tensor, future: Tensor | None = None) -> Tensor:
        """Return forecasts (B, H, C, Q) whose quantiles do not cross."""
        return self.forecast(past, future).sort(-1).values

    def point(self, forecasts: Tensor) -> Tensor:
        """Return the point forecast (B, H, C): the mean, or the quantile nearest to the median."""
        quantiles = self.config.quantiles
        middle = min(range(len(quantiles)), key=lambda i: abs(quantiles[i] - 0.5), default=0)
        return forecasts[..., middle]

    @property
    def loss_metric(self) -> LossMetric:
        if self.config.quantiles:
            name, words = "pinball_standardized", "pinball loss {} (standardized)"
            return LossMetric(name, "standard deviations", words, "windows")
        return LossMetric("mse_standardized", "variances", "MSE {} (standardized)", "windows")

    def losses(self, forecasts: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (B,) of each window: the mean over its observed targets (B, H, C).

        It is the squared error, or twice the pinball loss: of the median, the absolute error.
        """
        known = ~torch.isnan(targets)
        error = torch.where(known, targets, 0.0)[..., None] - forecasts.float()  # (B, H, C, Q)
        if self.config.quantiles:
            levels = torch.tensor(self.config.quantiles, device=error.device)
            cost = 2 * torch.maximum(levels * error, (levels - 1) * error)
        else:
            cost = error.square()
        total = (cost.mean(-1) * known).flatten(1).sum(1)
        return total / known.flatten(1).sum(1).clamp(min=1)


class WindowNorm(nn.Module):
    """Reversible instance normalization of windows with missing values."""

    def forward(self, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (B, L, C) values around 0, 0 where missing, and the mean and deviation (B, 1, C)
        of each window.
        """
        known = ~torch.isnan(past)
        values = torch.where(known, past, 0.0)
        count = known.sum(1, keepdim=True).clamp(min=1)
        mean = values.sum(1, keepdim=True) / count
        centered = torch.where(known, values - mean, 0.0)
        deviation = (centered.square().sum(1, keepdim=True) / count + EPS).sqrt()
        return centered / deviation, mean, deviation

    @staticmethod
    def restore(forecasts: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return forecasts (B, H, C, Q) at the level of their windows."""
        return forecasts * deviation[..., None] + mean[..., None]


@dataclass(frozen=True, kw_only=True)
class LinearForecastConfig(ForecastConfig):
    """A linear forecaster."""

    kernel: int = 25  # of the moving average that is the trend (Zeng et al. 2023)
    dropout: float = 0.2  # of the look-back: chosen on validation windows of ETTh1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dropout(self)
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd and positive, got {self.kernel}")


def linear(n_layers: int, d_model: int) -> LinearForecastConfig:
    """One layer, whatever the size of other models."""
    return LinearForecastConfig()


class LinearForecaster(ForecastModel):
    """Base of linear maps from the look-back to the horizon, trained by gradients."""

    loop = "gradient"
    Config = LinearForecastConfig
    PRESETS: ClassVar[Presets] = {"linear": linear}

    def __init__(self, vocab_size: int, config: LinearForecastConfig) -> None:
        super().__init__(vocab_size, config)
        self.map = self.make_map()
        self.covariates = config.make_covariates()

    def make_map(self) -> nn.Linear:
        """Return a map from the look-back to the horizon that starts as the mean of the past."""
        c = self.config
        layer = nn.Linear(c.max_len, c.horizon * c.n_outputs)
        nn.init.constant_(layer.weight, 1 / c.max_len)
        nn.init.zeros_(layer.bias)
        return layer

    def apply_map(self, layer: nn.Linear, values: Tensor) -> Tensor:
        """Map (B, L, C) to (B, H, C, Q)."""
        c = self.config
        mapped = layer(values.mT)  # (B, C, H · Q)
        return mapped.unflatten(-1, (c.horizon, c.n_outputs)).transpose(1, 2)  # type: ignore[no-any-return]


class NLinear(LinearForecaster):
    """A linear layer on windows normalized by their own mean and deviation.

    NLinear (Zeng et al. 2023, arXiv:2205.13504) subtracts the last value instead; with the mean and
    deviation it is RLinear (Li et al. 2023, arXiv:2305.10721), which forecasts better.
    """

    def __init__(self, vocab_size: int, config: LinearForecastConfig) -> None:
        super().__init__(vocab_size, config)
        self.norm = WindowNorm()

    def forecast(
        self, past: Tensor, future: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        values, mean, deviation = self.norm(self.covariates.subtract(past))
        values = nn.functional.dropout(values, self.config.dropout, self.training)
        forecasts = self.norm.restore(self.apply_map(self.map, values), mean, deviation)
        return self.covariates.add(forecasts, future, deviation)


class DLinear(LinearForecaster):
    """A linear layer on the trend, a moving average, and one on the rest (Zeng et al. 2023,
    arXiv:2205.13504).
    """

    def __init__(self, vocab_size: int, config: LinearForecastConfig) -> None:
        super().__init__(vocab_size, config)
        self.rest = self.make_map()

    def forecast(
        self, past: Tensor, future: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        values = self.covariates.subtract(past).nan_to_num()  # (B, L, C)
        side = self.config.kernel // 2
        padded = nn.functional.pad(values.mT, (side, side), mode="replicate")
        trend = nn.functional.avg_pool1d(padded, self.config.kernel, stride=1).mT
        forecasts = self.apply_map(self.map, trend) + self.apply_map(self.rest, values - trend)
        return self.covariates.add(forecasts, future, values.new_ones(1, 1, 1))
