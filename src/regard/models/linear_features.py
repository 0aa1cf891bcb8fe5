"""Logistic or ridge regression on images and point clouds: the simplest models that read them.

`PixelLogistic` has one coefficient for each pixel, in units of its channel's standard deviation. A
smaller image is padded with the mean of its channels, a larger one cut to the largest of training.

`PointCloudLogistic` reads statistics that do not change when a cloud is rotated: the standard
deviations along the three principal axes; the distances of points from the centroid (mean,
deviation, histogram); the distances between the group centres likewise; the mean and deviation of
each feature; the number of points of each element; and the number of points.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs, to_image
from regard.layers.positions import pairwise_distances
from regard.models.config import Presets
from regard.models.linear import fit_regression
from regard.models.model_selection import FitData, SampledConfig, TunedModel, read_rows
from regard.models.point_transformer import PointSettings
from regard.models.supervised import Budget
from regard.models.vision import ImageSettings

BINS = 12  # of a histogram


class Regression(TunedModel):
    """One coefficient for each feature and output. Its config has a `strength`, the L2 penalty."""

    feature_name: ClassVar[str]  # plural, for messages
    penalties: ClassVar[tuple[float, ...]]  # tried
    coefficients: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: Any, n_features: int) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("coefficients", torch.zeros(n_features, config.n_outputs))
        self.register_buffer("bias", torch.zeros(config.n_outputs))

    @abstractmethod
    def features(self, source: Inputs) -> Tensor:
        """Return the features (B, F) of records."""

    def fit_scale(self, rows: Tensor) -> None:
        """Store what `scale` needs from the features (R, F) of the training split."""

    def scale(self, rows: Tensor) -> Tensor:
        """Return features in the units that are fitted."""
        return rows

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        rows, targets = self.read(train)
        self.fit_scale(rows)
        rows, valid_targets = self.scale(rows), None
        if valid is not None:
            more, valid_targets = self.read(valid)
            rows = torch.cat([rows, self.scale(more)])
        return FitData(rows, targets, valid_targets)

    def read(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """Return features and targets of all records, in order."""
        return read_rows(shard, self.config.max_len, lambda source, batch: self.features(source))

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"strength": self.penalties}]

    def fit_rows(self, x: Tensor, targets: Tensor, config: Any, *, rough: bool) -> Sequence[Any]:
        head, l2 = self.output, config.strength
        if config.n_outputs == 2 and not (head.scaled or head.multilabel):
            l2 /= 2  # scikit-learn penalises the difference of two columns, which are opposite
        weights, bias = fit_regression(head, x.numpy(), targets, config.n_outputs, l2)
        return weights.float(), bias.float()

    def predict_rows(self, x: Tensor, parameters: Sequence[Tensor], config: Any) -> Tensor:
        weights, bias = parameters
        return x @ weights + bias

    @property
    def size(self) -> str:
        return f"{len(self.coefficients):,} {self.feature_name}"

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.scale(self.features(source)) @ self.coefficients + self.bias


@dataclass(frozen=True, kw_only=True)
class PixelConfig(ImageSettings, SampledConfig):
    """The size of images, and the penalty on coefficients."""

    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        SampledConfig.__post_init__(self)


class PixelLogistic(Regression):
    """Regression on the pixels of images."""

    Config = PixelConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: PixelConfig()}
    reads = "patches"
    feature_name, penalties = "pixels", (100.0, 1.0, 10.0, 1000.0, 10000.0)

    def __init__(self, vocab_size: int, config: PixelConfig) -> None:
        pixels = config.rows * config.columns * config.patch**2 * config.channels
        super().__init__(vocab_size, config, pixels)

    def features(self, source: Inputs) -> Tensor:
        config = self.config
        image, mask = to_image(source, config.rows, config.columns, config.patch)
        mean, deviation = (
            255 * torch.tensor(values, device=image.device)[:, None, None]
            for values in (config.mean, config.deviation)
        )
        return ((image - mean) / deviation * mask).flatten(1)


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(PointSettings, SampledConfig):
    """What is known of point clouds, and the penalty on coefficients."""

    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        SampledConfig.__post_init__(self)


class PointCloudLogistic(Regression):
    """Regression on statistics of point clouds."""

    Config = StatisticsConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: StatisticsConfig()}
    reads = "points"
    feature_name, penalties = "statistics", (1.0, 0.01, 0.1, 10.0, 100.0)
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: StatisticsConfig) -> None:
        histograms, features = 2 * (2 + BINS), 2 * config.n_features
        count = config.dimensions + histograms + features + len(config.elements) + 1
        super().__init__(vocab_size, config, count)
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("deviation", torch.ones(count))

    def features(self, source: Inputs) -> Tensor:
        config = self.config
        d, mask = config.dimensions, source.segments > 0
        mask = mask & (torch.arange(mask.size(1), device=mask.device) > 0)  # without `<S>`
        count = mask.sum(1, keepdim=True).clamp_min(1).float()
        points = torch.where(mask[..., None], source.ids[..., :d].float(), 0)
        centroid = points.sum(1, keepdim=True) / count[..., None]
        points = torch.where(mask[..., None], points - centroid, 0)
        covariance = points.mT @ points / count[..., None]
        axes = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt()
        radii = summarize(points.norm(dim=-1), mask, config.max_distance / 2)
        pairs = mask[:, :, None] & mask[:, None]
        distances = pairwise_distances(points, points).flatten(1)
        gaps = summarize(distances, pairs.flatten(1), config.max_distance)
        extra = source.ids[..., 2 * d + 1 : 2 * d + 1 + config.n_features].float()
        extra = torch.where(mask[..., None], extra, 0)
        mean = extra.sum(1) / count
        deviation = (extra.square().sum(1) / count - mean.square()).clamp_min(0).sqrt()
        elements = config.composition(source)
        return torch.cat((axes, radii, gaps, mean, deviation, elements, count), dim=1)

    def fit_scale(self, rows: Tensor) -> None:
        self.mean, deviation = rows.mean(0), rows.std(0, correction=0)
        self.deviation = torch.where(deviation > 1e-6, deviation, 1.0)

    def scale(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation


def summarize(values: Tensor, mask: Tensor, largest: float) -> Tensor:
    """Return mean, deviation and a histogram up to `largest` of masked values (B, N):
    (B, 2 + BINS).
    """
    count = mask.sum(1, keepdim=True).clamp_min(1).float()
    values = torch.where(mask, values, 0)
    mean = values.sum(1, keepdim=True) / count
    deviation = ((values.square().sum(1, keepdim=True) / count) - mean.square()).clamp_min(0).sqrt()
    index = (values / largest * BINS).long().clamp(0, BINS - 1)
    histogram = torch.zeros(len(values), BINS, device=values.device)
    histogram = histogram.scatter_add(1, index, mask.float())
    return torch.cat((mean, deviation, histogram / count), 1)
