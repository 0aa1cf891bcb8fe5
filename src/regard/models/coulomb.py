"""Kernel ridge regression on sorted Coulomb matrices of molecules (Rupp et al. 2012, "Fast and
accurate modeling of molecular atomization energies with machine learning", arXiv:1109.2618).

The matrix of a molecule has Z_i^2.4 / 2 on its diagonal and Z_i Z_j / |R_i - R_j| elsewhere. Atoms
are sorted by the norms of their rows, so neither their order nor a rotation changes the matrix. The
kernel is the Laplacian exp(-|x - y|_1 / width), which Hansen et al. 2013 found best for it. Width
and penalty are chosen on held-out molecules.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.layers.positions import pairwise_distances
from regard.layers.tap import Tap
from regard.models import Presets, VariableBuffers
from regard.models.point_transformer import PointSettings
from regard.models.supervised import (
    Budget,
    CandidateSearch,
    Effort,
    FitData,
    SampledConfig,
    TunedModel,
    read_rows,
)

if TYPE_CHECKING:
    from regard.data.corpus import Corpus

WIDTHS = (4.0, 1.0, 16.0)  # tried, in units of the median distance of two molecules
PENALTIES = (1e-8, 1e-5, 1e-3)  # tried
CHOOSING = 2000  # training molecules while choosing
CHUNK = 256  # molecules whose distances are computed at once
TIMED = 500  # molecules that the final fit is timed on
MOST = 20_000  # training molecules


@dataclass(frozen=True, kw_only=True)
class CoulombConfig(PointSettings, SampledConfig):
    """The kernel and the penalty; 0 = chosen."""

    width: float = 0.0  # of the kernel, in units of the median distance
    strength: float = 0.0  # the L2 penalty

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        SampledConfig.__post_init__(self)


@dataclass(eq=False)
class Molecules:
    """Coulomb matrices (R, F), and the distances of splits while settings are chosen."""

    matrices: Tensor
    cache: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)

    def distances(self, rows: Tensor, others: Tensor, *, store: bool) -> Tensor:
        """Return the distances of rows to others; with `store`, computed once for each pair of
        index tensors.
        """
        key = id(rows), id(others)
        if key in self.cache:
            return self.cache[key][2]
        gaps = distances(self.matrices[rows], self.matrices[others])
        if store:
            self.cache[key] = rows, others, gaps  # the indices stay alive, so ids stay unique
        return gaps


class Coulomb(VariableBuffers, TunedModel):
    """Values as sums over the training molecules, weighted by similarity."""

    Config = CoulombConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: CoulombConfig()}
    reads = "points"
    learned = ("matrices", "coefficients", "mean")
    matrices: Tensor
    coefficients: Tensor
    mean: Tensor
    median_distance: Tensor

    def __init__(self, vocab_size: int, config: CoulombConfig) -> None:
        super().__init__(vocab_size, config)
        double: dict[str, Any] = {"dtype": torch.float64}
        self.register_buffer("matrices", torch.zeros(0, 1, **double))  # (R, F), of training
        self.register_buffer("coefficients", torch.zeros(0, config.n_outputs, **double))
        self.register_buffer("mean", torch.zeros(config.n_outputs, **double))
        self.register_buffer("median_distance", torch.ones(1, **double))

    @classmethod
    def unsuitable(cls, corpus: Corpus) -> str:
        return "" if corpus.tokenizer.model_config.get("elements") else "points have no elements"

    @property
    def n_atoms(self) -> int:
        """The number of rows of a Coulomb matrix, given the size of its lower triangle."""
        return int((2 * self.matrices.size(1) + 0.25) ** 0.5)

    def buffer_error(self) -> str:
        fits = len(self.matrices) == len(self.coefficients)
        return "" if fits else "there must be as many matrices as coefficients"

    def featurize(self, source: Inputs, size: int) -> Tensor:
        """Return sorted Coulomb matrices, (B, size · (size + 1) / 2), larger molecules cut."""
        config = self.config
        d, n = config.dimensions, len(config.elements)
        if not n:
            raise UserError("coulomb is for molecules: it needs the elements of points")
        mask = (source.segments > 0)[:, 1:, None]
        elements = torch.where(mask, source.ids[:, 1:, 2 * d + 1 : 2 * d + 1 + n], 0).double()
        numbers = torch.tensor(config.elements, dtype=torch.float64, device=elements.device)
        charge = elements @ numbers
        points = torch.where(mask, source.ids[:, 1:, :d], 0).double()
        gaps = pairwise_distances(points, points)
        gaps.diagonal(dim1=1, dim2=2).fill_(1)
        matrix = charge[:, :, None] * charge[:, None] / gaps.clamp_min(1e-3)
        matrix.diagonal(dim1=1, dim2=2).copy_(charge**2.4 / 2)
        order = matrix.norm(dim=2).argsort(dim=1, descending=True, stable=True)
        matrix = matrix.gather(1, order[..., None].expand_as(matrix))
        matrix = matrix.gather(2, order[:, None].expand_as(matrix))
        padded = matrix.new_zeros(len(matrix), size, size)
        part = min(size, matrix.size(1))
        padded[:, :part, :part] = matrix[:, :part, :part]
        rows, columns = torch.tril_indices(size, size)
        return padded[:, rows, columns]

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        size = int((train.offsets[1:] - train.offsets[:-1]).max()) - 1

        def read(shard: Shard) -> tuple[Tensor, Tensor]:
            rows, targets = read_rows(
                shard, self.config.max_len, lambda source, batch: self.featurize(source, size)
            )
            return rows, targets.double()

        rows, targets = read(train)
        if targets.isnan().any():
            raise UserError("coulomb needs every target of every molecule")
        if len(rows) > MOST:
            rows, targets = rows[:MOST], targets[:MOST]
            budget.log(f"learning from the first {MOST:,} molecules: more do not fit into memory")
        sample = rows[:: max(1, len(rows) // 300)]
        median = torch.cdist(sample, sample, p=1.0).flatten().median()
        self.median_distance = median[None].clamp_min(1e-6)
        valid_targets = None
        if valid is not None:
            more, valid_targets = read(valid)
            rows = torch.cat([rows, more])
        return FitData(Molecules(rows), targets, valid_targets)

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"width": WIDTHS, "strength": PENALTIES}]

    def make_search(self, data: FitData) -> CandidateSearch:
        search = super().make_search(data)
        search.splits = [(learn[:CHOOSING], check) for learn, check in search.splits]
        search.rows = min(len(data.targets), CHOOSING)  # the final fit is timed by itself
        return search

    def select(self, features: Molecules, rows: Tensor, config: Any) -> tuple[Molecules, Tensor]:
        return features, rows

    def fit_rows(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Sequence[Any]:
        molecules, rows = x
        gaps = molecules.distances(rows, rows, store=effort.rough)  # the final ones are too large
        mean = targets.mean(0)
        kernel = self.kernel(gaps, config.width)
        return rows, solve_ridge(kernel, targets - mean, config.strength), mean

    def predict_rows(self, x: Any, parameters: Sequence[Tensor], config: Any) -> Tensor:
        molecules, rows = x
        train, coefficients, mean = parameters
        gaps = molecules.distances(rows, train, store=True)
        return self.kernel(gaps, config.width) @ coefficients + mean

    def limit_final_fit(
        self, config: Any, search: CandidateSearch, data: FitData, budget: Budget
    ) -> Any:
        """Distances take the square of the number of molecules, solving the cube."""
        targets = data.targets
        most = config.records or len(targets)
        if not budget.limited or most <= TIMED:
            return config
        started, sample = time.monotonic(), data.features.matrices[:TIMED]
        gaps = distances(sample, sample)
        square = time.monotonic() - started
        solve_ridge(self.kernel(gaps, config.width), targets[:TIMED], config.strength)
        cube, left = time.monotonic() - started - square, budget.left

        def fits(molecules: int) -> bool:
            times = molecules / TIMED
            return square * times**2 + cube * times**3 <= left

        if fits(most):
            return config
        most = max((n for n in range(TIMED, most + 1, TIMED) if fits(n)), default=TIMED)
        budget.reduce(f"the model learns from {most:,} of {len(targets):,} molecules")
        return replace(config, records=most)

    def store(self, features: Molecules, parameters: Sequence[Any]) -> None:
        rows, *rest = parameters
        super().store(features, (features.matrices[rows], *rest))

    @property
    def size(self) -> str:
        return f"{len(self.matrices):,} molecules of at most {self.n_atoms} atoms"

    def kernel(self, gaps: Tensor, width: float) -> Tensor:
        """Return the similarity of molecules at these distances."""
        return torch.exp(-gaps / (width * self.median_distance))

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        gaps = distances(self.featurize(source, self.n_atoms), self.matrices)
        return self.kernel(gaps, self.config.width) @ self.coefficients + self.mean


def distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the L1 distances (R, S) of matrices."""
    return torch.cat([torch.cdist(part, y, p=1.0) for part in x.split(CHUNK)])


def solve_ridge(kernel: Tensor, targets: Tensor, l2: float) -> Tensor:
    """Return the coefficients (R, O) of kernel ridge regression."""
    matrix = kernel.clone()
    matrix.diagonal().add_(l2)
    return torch.cholesky_solve(targets, torch.linalg.cholesky(matrix))
