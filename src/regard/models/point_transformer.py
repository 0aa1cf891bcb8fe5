"""An encoder whose tokens are points of a cloud, each alone or with those around it.

It is `encoder.EncoderModel`, block for block: a stem stands where the embedding of ids stands, and
positions are those of space (Zhao et al. 2021, "Point Transformer", arXiv:2012.09164, is the same
idea with attention of its own; ours is everybody's). Presets: `modern` (a learned code of the
coordinates, distances as a bias of attention; the mean of all positions answers), `invariant`,
which nothing changes that turns or moves a cloud: distances alone tell where points stand; and
`molecule`, the same with many distances, what stands around each atom, and answers that are sums
over all of them. There values begin from a sum over the elements, fitted to training by least
squares, and what is learned is the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.batching import LabelledExamples
from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs, PointEmbedding
from regard.layers.positions import SPACE_POSITIONS, Positions, SpacePositions
from regard.models import decoder
from regard.models.encoder import EncoderConfig, EncoderModel

BATCH_TOKENS = 1 << 16  # positions read at once
TINY = 1e-6  # of the squared coefficients of elements, so that one that never changes has none


@dataclass(frozen=True, kw_only=True)
class PointSettings:
    """What a model of points has from its data: see tokens/points.py."""

    dimensions: int = 3
    neighbours: int = 1  # of a centre, itself included
    n_features: int = 0  # elements, then others
    elements: tuple[int, ...] = ()
    reach: float = 2.0  # the largest distance of two points in training
    spread: float = 1.0  # the usual one of a neighbour

    def __post_init__(self) -> None:
        limits = {"dimensions": (1, 16), "neighbours": (1, 1 << 12), "n_features": (0, 1 << 13)}
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"{name} must be from {least} to {most}, got {getattr(self, name)}"
                )
        if len(self.elements) > self.n_features:
            raise ValueError("n_features must count the elements too")
        if not (self.reach > 0 and self.spread > 0):
            raise ValueError("reach and spread must be positive")

    def composition(self, source: Inputs) -> Tensor:
        """(B, E) how many points of each element every cloud has, its tokens being all points."""
        first = 2 * self.dimensions + 1
        kinds = source.ids[..., first : first + len(self.elements)]
        there = (source.segments > 0)[..., None]
        return torch.where(there, kinds, 0).sum(1)[..., : len(self.elements)].float()


@dataclass(frozen=True, kw_only=True)
class PointTransformerConfig(PointSettings, EncoderConfig):
    """Shape and parts of an encoder of points."""

    positions: str = "learned"
    distances: int = 16  # bells that distances are told by, as a bias of attention; 0 = not told
    invariant: bool = False  # tell neighbours by distances alone, as nothing that turns changes
    around: bool = False  # begin with what stands at which distance around each

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        if self.positions not in SPACE_POSITIONS:
            allowed = ", ".join(SPACE_POSITIONS)
            raise ValueError(f"positions of points are {allowed}, got {self.positions!r}")
        EncoderConfig.__post_init__(self)
        if not 0 <= self.distances <= 1 << 12 or self.distances == 1:
            raise ValueError(f"distances must be 0 or from 2 to {1 << 12}, got {self.distances}")
        if self.around and not self.distances:
            raise ValueError("around needs distances, got 0")
        if self.invariant and self.positions != "none":
            raise ValueError(f"positions must be none where invariant, got {self.positions!r}")
        if self.n_types or set(self.kinds) != {"attention"}:
            raise ValueError("n_types, windows and mixers are for texts")

    @property
    def supports_packing(self) -> bool:
        """A cloud has a row of its own: what changes clouds changes rows."""
        return False

    @property
    def additive(self) -> bool:
        """Do values begin from a sum over the elements?"""
        return self.task == "value" and self.pooling == "sum" and bool(self.elements)

    def make_stem(self, vocab_size: int) -> nn.Module:
        """See StackConfig."""
        return PointEmbedding(
            self.d_model,
            self.dimensions,
            self.neighbours,
            self.n_features,
            invariant=self.invariant,
            spread=self.spread,
        )

    def make_positions(self) -> Positions:
        """See StackConfig."""
        return SpacePositions(
            self.positions,
            d_model=self.d_model,
            n_heads=self.n_heads,
            dimensions=self.dimensions,
            distances=self.distances,
            reach=self.reach,
            around=self.around,
        )


def modern(n_layers: int, d_model: int) -> PointTransformerConfig:
    """The encoder's modern preset, in space."""
    told = dataclasses.asdict(decoder.modern(n_layers, d_model)) | {"positions": "learned"}
    return PointTransformerConfig(**told)


def invariant(n_layers: int, d_model: int) -> PointTransformerConfig:
    """Distances alone."""
    told = dataclasses.asdict(decoder.modern(n_layers, d_model)) | {"positions": "none"}
    return PointTransformerConfig(**told, invariant=True, distances=32)


def molecule(n_layers: int, d_model: int) -> PointTransformerConfig:
    """Distances alone, many of them, and sums."""
    base = invariant(n_layers, d_model)
    return dataclasses.replace(base, around=True, distances=64, pooling="sum")


class PointTransformer(EncoderModel):
    """An encoder of points that answers. Where values begin from a sum over the elements, `each`
    (E, O) is what one of each element adds, in units of `scale`.
    """

    Config = PointTransformerConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "modern": modern,
        "invariant": invariant,
        "molecule": molecule,
    }
    tokens = "points"
    each: Tensor

    def __init__(self, vocab_size: int, config: PointTransformerConfig) -> None:
        super().__init__(vocab_size, config)
        if config.additive:
            self.register_buffer("each", torch.zeros(len(config.elements), config.n_outputs))

    def forward(
        self, source: Inputs, *, count: int | None = None, tap: Tap | None = None
    ) -> Tensor:
        """See NeuralAssessor."""
        found = super().forward(source, count=count, tap=tap)
        if not self.config.additive:
            return found
        summed: Tensor = self.config.composition(source).to(self.each.dtype) @ self.each
        return found + summed[: len(found)]  # rows that fill a batch up have no answer

    def measure(self, shard: Shard) -> None:
        """See NeuralAssessor; where values begin from a sum over the elements, also that sum, by
        least squares, and the mean and the deviation of what it leaves.
        """
        super().measure(shard)
        if not self.config.additive or shard.targets is None:
            return
        counts, wanted = [], []
        for batch in LabelledExamples(shard, None, int(self.config.max_len)).batches(BATCH_TOKENS):
            assert batch.segments is not None
            counts.append(self.config.composition(Inputs(batch.ids, batch.segments)).double())
            wanted.append(batch.targets.double())
        x, y = torch.cat(counts), torch.cat(wanted)
        left = y.clone()
        for column in range(y.size(1)):
            there = ~y[:, column].isnan()
            own, target = x[there], y[there, column]
            middle = own - own.mean(0)
            square = middle.T @ middle + TINY * torch.eye(x.size(1), dtype=x.dtype)
            found = torch.linalg.solve(square, middle.T @ (target - target.mean()))
            left[:, column] -= x @ found
            self.each[:, column] = found
        self.standardise(left)
        self.each /= self.scale
