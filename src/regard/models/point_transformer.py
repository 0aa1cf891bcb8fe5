"""Point Transformer: an encoder whose tokens are the points of a cloud, or groups of neighbors.

It is `encoder.EncoderModel` with points in place of tokens and positions in space. Where we differ
from Zhao et al. 2021 (arXiv:2012.09164): attention is the usual one, with a bias that depends on
distances. Presets: `modern` (a learned encoding of the coordinates, distances as a bias, mean
pooling); `invariant`, which uses distances alone and therefore ignores rotations and translations;
and `molecule`, the same with more basis functions, features of each atom's neighborhood and sum
pooling. There the values start from a sum over the elements, fitted to the training data by least
squares, and the network learns the residual.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.data.batching import LabelledExamples
from regard.data.shards import Shard
from regard.layers.embeddings import Inputs, PointEmbedding
from regard.layers.positions import SPACE_POSITIONS, Positions, SpacePositions
from regard.layers.tap import Tap
from regard.models import Presets, check_ranges, decoder
from regard.models.encoder import EncoderConfig, EncoderModel

BATCH_TOKENS = 1 << 16  # positions read at once
RIDGE = 1e-6  # keeps the least squares of elements solvable if a count never varies


@dataclass(frozen=True, kw_only=True)
class PointSettings:
    """What a model of points takes from its data: see tokenizers/points.py."""

    dimensions: int = 3
    group_size: int = 1  # points of a token: a center and its neighbors
    n_features: int = 0  # of a point: elements, then others
    elements: tuple[int, ...] = ()
    max_distance: float = 2.0  # between two points of a training cloud
    neighbor_scale: float = 1.0  # the typical distance of a neighbor from its center

    def __post_init__(self) -> None:
        check_ranges(self, dimensions=16, group_size=1 << 12)
        check_ranges(self, least=0, n_features=1 << 13)
        if len(self.elements) > self.n_features:
            raise ValueError("n_features must count the elements too")
        if not (self.max_distance > 0 and self.neighbor_scale > 0):
            raise ValueError("max_distance and neighbor_scale must be positive")

    def composition(self, source: Inputs) -> Tensor:
        """Return (B, E) the number of points of each element, where every point is a token."""
        first = 2 * self.dimensions + 1
        one_hot = source.ids[..., first : first + len(self.elements)]
        valid = (source.segments > 0)[..., None]
        return torch.where(valid, one_hot, 0).sum(1)[..., : len(self.elements)].float()


@dataclass(frozen=True, kw_only=True)
class PointTransformerConfig(PointSettings, EncoderConfig):
    """Shape and parts of an encoder of points."""

    positions: str = "learned"
    n_rbf: int = 16  # radial basis functions of the attention bias; 0: no bias
    invariant: bool = False  # describe neighbors by distances alone, which rotations preserve
    neighborhood: bool = False  # add features of the neighborhood of each point

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        if self.positions not in SPACE_POSITIONS:
            allowed = ", ".join(SPACE_POSITIONS)
            raise ValueError(f"positions of points are {allowed}, got {self.positions!r}")
        EncoderConfig.__post_init__(self)
        if not 0 <= self.n_rbf <= 1 << 12 or self.n_rbf == 1:
            raise ValueError(f"n_rbf must be 0 or from 2 to {1 << 12}, got {self.n_rbf}")
        if self.neighborhood and not self.n_rbf:
            raise ValueError("neighborhood needs n_rbf > 0, got 0")
        if self.invariant and self.positions != "none":
            raise ValueError(f"positions must be none where invariant, got {self.positions!r}")
        if self.n_types or set(self.layer_mixers) != {"attention"}:
            raise ValueError("n_types, windows and mixers are for texts")

    @property
    def supports_packing(self) -> bool:
        """False: augmentation changes whole rows, so each cloud has its own."""
        return False

    @property
    def additive(self) -> bool:
        """Whether values start from a sum over the elements."""
        return self.head.scaled and self.pooling == "sum" and bool(self.elements)

    def make_embedding(self, vocab_size: int) -> nn.Module:
        return PointEmbedding(
            self.d_model,
            self.dimensions,
            self.group_size,
            self.n_features,
            invariant=self.invariant,
            neighbor_scale=self.neighbor_scale,
        )

    def make_positions(self) -> Positions:
        return SpacePositions(
            self.positions,
            d_model=self.d_model,
            n_heads=self.n_heads,
            dimensions=self.dimensions,
            n_rbf=self.n_rbf,
            max_distance=self.max_distance,
            neighborhood=self.neighborhood,
        )


def modern(n_layers: int, d_model: int) -> PointTransformerConfig:
    """The encoder's modern preset with positions in space."""
    settings = dataclasses.asdict(decoder.modern(n_layers, d_model)) | {"positions": "learned"}
    return PointTransformerConfig(**settings)


def invariant(n_layers: int, d_model: int) -> PointTransformerConfig:
    """Distances alone."""
    settings = dataclasses.asdict(decoder.modern(n_layers, d_model)) | {"positions": "none"}
    return PointTransformerConfig(**settings, invariant=True, n_rbf=32)


def molecule(n_layers: int, d_model: int) -> PointTransformerConfig:
    """Distances alone, with more basis functions, neighborhood features and sum pooling."""
    config = invariant(n_layers, d_model)
    return dataclasses.replace(config, neighborhood=True, n_rbf=64, pooling="sum")


class PointTransformer(EncoderModel):
    """An encoder of points that predicts labels or values. Where values start from a sum over the
    elements, `contributions` (E, O) are those of one atom of each, in units of `scale`.
    """

    Config = PointTransformerConfig
    PRESETS: ClassVar[Presets] = {"modern": modern, "invariant": invariant, "molecule": molecule}
    reads = "points"
    contributions: Tensor

    def __init__(self, vocab_size: int, config: PointTransformerConfig) -> None:
        super().__init__(vocab_size, config)
        if config.additive:
            shape = len(config.elements), config.n_outputs
            self.register_buffer("contributions", torch.zeros(shape))

    def forward(
        self, source: Inputs, *, count: int | None = None, tap: Tap | None = None
    ) -> Tensor:
        scores = super().forward(source, count=count, tap=tap)
        if not self.config.additive:
            return scores
        counts = self.config.composition(source).to(self.contributions.dtype)  # (B, E)
        sums: Tensor = counts @ self.contributions
        return scores + sums[: len(scores)]  # rows that only fill up a batch have no score

    def prepare(self, shard: Shard) -> None:
        """Set the mean and deviation of values; where these start from a sum over the elements, fit
        that sum by least squares, and take the mean and deviation of the residuals.
        """
        super().prepare(shard)
        if not self.config.additive or shard.targets is None:
            return
        counts, targets = [], []
        for batch in LabelledExamples(shard, None, int(self.config.max_len)).batches(BATCH_TOKENS):
            assert batch.segments is not None
            counts.append(self.config.composition(Inputs(batch.ids, batch.segments)).double())
            targets.append(batch.targets.double())
        x, y = torch.cat(counts), torch.cat(targets)
        residuals = y.clone()
        for column in range(y.size(1)):
            known = ~y[:, column].isnan()
            features, values = x[known], y[known, column]
            centered = features - features.mean(0)
            gram = centered.T @ centered + RIDGE * torch.eye(x.size(1), dtype=x.dtype)
            coefficients = torch.linalg.solve(gram, centered.T @ (values - values.mean()))
            residuals[:, column] -= x @ coefficients
            self.contributions[:, column] = coefficients
        self.standardise(residuals)
        self.contributions /= self.scale
