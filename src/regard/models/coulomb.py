"""Kernel ridge regression on sorted Coulomb matrices of molecules (Rupp et al. 2012, "Fast and
accurate modeling of molecular atomization energies with machine learning", arXiv:1109.2618).

The matrix of a molecule has Z_i^2.4 / 2 on its diagonal and Z_i Z_j / |R_i - R_j| beside it, atoms
sorted by the norms of their rows, so that neither their order nor any turn changes it. The kernel
is the Laplacian exp(-|x - y|_1 / width), which Hansen et al. 2013 found best for it. Width and
penalty are chosen on records that were not learned from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.errors import UserError
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.positions import pairwise_distances
from regard.models.model_selection import SampledConfig, batches, few, trials, varied
from regard.models.ngrams import VariableBuffers
from regard.models.point_transformer import PointSettings
from regard.models.supervised import Budget, FittedModel

WIDTHS = (4.0, 1.0, 16.0)  # tried, of the median distance of two molecules
STRENGTHS = (1e-8, 1e-5, 1e-3)  # tried
CHOOSING = 2000  # molecules that are learned from while something is chosen
TOGETHER = 256  # molecules whose kernel is computed at once
TIMED = 500  # molecules that the final fit is timed on
MOST = 20_000  # that are learned from


@dataclass(frozen=True, kw_only=True)
class CoulombConfig(PointSettings, SampledConfig):
    """The kernel: 0 leaves open."""

    width: float = 0.0  # of the kernel, in units of the median distance
    strength: float = 0.0  # of the penalty

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        SampledConfig.__post_init__(self)
        self.positive("width")
        self.positive("strength")


class Coulomb(VariableBuffers, FittedModel):
    """Values as sums over the molecules of training, each weighed by how like it is."""

    Config = CoulombConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: CoulombConfig()
    }
    tokens = "points"
    known: Tensor
    coefficients: Tensor
    shift: Tensor
    usual: Tensor

    def __init__(self, vocab_size: int, config: CoulombConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        wide: dict[str, Any] = {"dtype": torch.float64}
        self.register_buffer("known", torch.zeros(0, 1, **wide))  # (R, F)
        self.register_buffer("coefficients", torch.zeros(0, config.n_outputs, **wide))
        self.register_buffer("shift", torch.zeros(config.n_outputs, **wide))
        self.register_buffer("usual", torch.ones(1, **wide))  # the median distance

    def wrong(self) -> str:
        """See Grown."""
        return "" if len(self.known) == len(self.coefficients) else "known and coefficients differ"

    def matrices(self, source: Inputs, size: int) -> Tensor:
        """(B, size · (size + 1) / 2) sorted Coulomb matrices, larger molecules cut."""
        config = self.config
        d, n = config.dimensions, len(config.elements)
        if not n:
            raise UserError("coulomb is for molecules: it needs the elements of points")
        there = (source.segments > 0)[:, 1:, None]
        kinds = torch.where(there, source.ids[:, 1:, 2 * d + 1 : 2 * d + 1 + n], 0).double()
        charge = kinds @ torch.tensor(config.elements, dtype=torch.float64, device=kinds.device)
        at = torch.where(there, source.ids[:, 1:, :d], 0).double()
        away = pairwise_distances(at, at)
        away.diagonal(dim1=1, dim2=2).fill_(1)
        matrix = charge[:, :, None] * charge[:, None] / away.clamp_min(1e-3)
        matrix.diagonal(dim1=1, dim2=2).copy_(charge**2.4 / 2)
        order = matrix.norm(dim=2).argsort(dim=1, descending=True, stable=True)
        matrix = matrix.gather(1, order[..., None].expand_as(matrix))
        matrix = matrix.gather(2, order[:, None].expand_as(matrix))
        room = matrix.new_zeros(len(matrix), size, size)
        part = min(size, matrix.size(1))
        room[:, :part, :part] = matrix[:, :part, :part]
        rows, columns = torch.tril_indices(size, size)
        return room[:, rows, columns]

    def read(self, shard: Shard, size: int) -> tuple[Tensor, Tensor]:
        """Matrices and targets of all records, in order."""
        found, targets, items = [], [], []
        for batch, source in batches(shard, self.config.max_len):
            found.append(self.matrices(source, size))
            items.append(torch.from_numpy(batch.items))
            targets.append(batch.targets)
        order = torch.cat(items).argsort()
        return torch.cat(found)[order], torch.cat(targets)[order].double()

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        budget = budget or Budget(say)
        size = int((shard.offsets[1:] - shard.offsets[:-1]).max()) - 1
        rows, targets = self.read(shard, size)
        if targets.isnan().any():
            raise UserError("coulomb needs every target of every molecule")
        if len(rows) > MOST:
            rows, targets = rows[:MOST], targets[:MOST]
            say(f"learning from the first {MOST:,} molecules: more do not fit into memory")
        others, both = None, rows
        if valid is not None and valid.records:
            more, others = self.read(valid, size)
            both = torch.cat([rows, more])
        some = rows[:: max(1, len(rows) // 300)]
        self.usual = torch.cdist(some, some, p=1.0).flatten().median()[None].clamp_min(1e-6)
        judged = trials(self.task, targets, others)
        judged.splits = [(learn[:CHOOSING], check) for learn, check in judged.splits]
        judged.rows = min(len(rows), CHOOSING)  # the final fit is timed by itself
        held: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # a split that is tried, and distances

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            if id(learn) not in held:
                own, other = (gaps(both[part], both[learn]) for part in (learn, check))
                held[id(learn)] = learn, own, other
            y, (_, own, other) = judged.targets[learn], held[id(learn)]
            found = solved(self.kernel(own, config.width), y - y.mean(0), config.strength)
            return self.kernel(other, config.width) @ found + y.mean(0)

        tried = varied(self.config, width=WIDTHS, strength=STRENGTHS)
        self.config = self.affordable(judged.best(tried, answer, budget), rows, targets, budget)
        width, strength = self.config.width, self.config.strength
        learned = few(torch.arange(len(rows)), self.config.records or len(rows))
        rows, targets = rows[learned], targets[learned]
        self.known, self.shift = rows, targets.mean(0)
        kernel = self.kernel(gaps(rows, rows), width)
        self.coefficients = solved(kernel, targets - self.shift, strength)
        say(
            f"{len(rows):,} molecules of at most {size} atoms; width {width:g}, strength "
            f"{strength:g}, where open by {judged.how}"
        )

    def affordable(self, config: Any, rows: Tensor, targets: Tensor, budget: Budget) -> Any:
        """The configuration, and where time is short from how many molecules it learns: distances
        take the square of their number, solving the cube.
        """
        most = config.records or len(rows)
        if not budget.limited or most <= TIMED:
            return config
        began, some = time.monotonic(), rows[:TIMED]
        away = gaps(some, some)
        square = time.monotonic() - began
        solved(self.kernel(away, config.width), targets[:TIMED], config.strength)
        cube, left = time.monotonic() - began - square, budget.left
        fits = [n for n in range(TIMED, most + 1, TIMED) if cost(n / TIMED, square, cube) <= left]
        if cost(most / TIMED, square, cube) <= left:
            return config
        most = max(fits, default=TIMED)
        budget.reduce(f"the model learns from {most:,} of {len(rows):,} molecules")
        return replace(config, records=most)

    def kernel(self, gaps: Tensor, width: float) -> Tensor:
        """(R, S) how like molecules are at such distances."""
        return torch.exp(-gaps / (width * self.usual))

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        size = int((2 * self.known.size(1) + 0.25) ** 0.5)
        away = gaps(self.matrices(source, size), self.known)
        likeness = self.kernel(away, self.config.width)
        return likeness @ self.coefficients + self.shift


def cost(times: float, square: float, cube: float) -> float:
    """Seconds of so many times the molecules that took these."""
    return square * times**2 + cube * times**3


def gaps(x: Tensor, y: Tensor) -> Tensor:
    """(R, S) distances of matrices: the sum of what their entries differ by."""
    return torch.cat([torch.cdist(some, y, p=1.0) for some in x.split(TOGETHER)])


def solved(kernel: Tensor, targets: Tensor, strength: float) -> Tensor:
    """The coefficients (R, O) of kernel ridge regression."""
    square = kernel.clone()
    square.diagonal().add_(strength)
    return torch.cholesky_solve(targets, torch.linalg.cholesky(square))
