"""Models that predict labels or values: of a record, or of each of its positions.

`FittedModel`s are fitted at once, by counting or by a solver, within a `Budget` of time.
`NeuralSupervisedModel`s are trained by gradients: a family turns every position into a vector by
attention, recurrence or convolution; the vectors are pooled, and a linear layer gives the scores.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.pooling import POOLINGS, Pooling
from regard.models.config import check_choices, check_ranges
from regard.models.heads import HEADS, Head
from regard.models.model import Model

INTERVAL = 10.0  # seconds between two lines of progress
Log = Callable[[str], None]


class Budget:
    """The seconds that fitting may take, counted from now on. What does not fit into them is
    reduced, and each reduction is logged.
    """

    def __init__(self, log: Log, seconds: float = math.inf) -> None:
        self.log = log
        self.started = self.last_line = time.monotonic()
        self.end = self.started + seconds
        self.reductions: list[str] = []  # those that were logged

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.end)

    @property
    def left(self) -> float:
        """Seconds until the end; negative afterwards."""
        return self.end - time.monotonic()

    def progress(self, activity: str) -> None:
        """Log the current activity, once per INTERVAL at most."""
        now = time.monotonic()
        if now - self.last_line >= INTERVAL:
            self.last_line = now
            self.log(f"{now - self.started:,.0f} s: {activity}")

    def reduce(self, reduction: str) -> None:
        """Log a reduction, the first time."""
        if reduction not in self.reductions:
            self.reductions.append(reduction)
            self.log(f"time is short: {reduction}")


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """What is predicted, and how positions are pooled."""

    task: str = "label"
    n_outputs: int = 1  # classes, labels or values; set from the data
    pooling: str = "mean"

    def __post_init__(self) -> None:
        check_choices(self, task=HEADS, pooling=POOLINGS)
        check_ranges(self, n_outputs=1 << 20)

    @property
    def head(self) -> Head:
        """What the scores mean."""
        return HEADS[self.task]


class SupervisedModel(Model):
    """Predicts labels or values of sequences."""

    @property
    def task(self) -> str:
        """The task it was trained for, a key of HEADS."""
        return str(self.config.task)

    @property
    def output(self) -> Head:
        """What its scores mean."""
        return HEADS[self.task]

    @property
    def n_outputs(self) -> int:
        """The number of scores of a prediction."""
        return int(self.config.n_outputs)

    @abstractmethod
    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return logits of classes or labels, or values: (B, O) of sequences, one to a row, or
        (B, T, O) of their positions.
        """


class FittedModel(SupervisedModel):
    """A model that is fitted at once; its buffers hold all that it learns."""

    loop = "solve"

    @abstractmethod
    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        """Fit to labelled records; hyperparameters are chosen on `valid`, or by cross-validation.
        Without a budget nothing is reduced.
        """


class NeuralSupervisedModel(SupervisedModel):
    """A model trained by gradients. `shift` and `scale` (O,) are the mean and standard deviation of
    the training values; for logits they are 0 and 1.
    """

    loop = "gradient"
    static_shapes = True
    sparse_targets: ClassVar[bool] = False  # `forward` can be limited to the positions with targets
    shift: Tensor
    scale: Tensor

    def add_head(self, d_model: int) -> None:
        """Create the layers after the encoder."""
        config: Any = self.config
        self.pool = Pooling(config.pooling, d_model)
        self.head = nn.Linear(d_model, config.n_outputs)
        terms = config.max_len if config.pooling == "sum" else 1  # a sum is that much larger
        nn.init.normal_(self.head.weight, std=0.5 * d_model**-0.5 / terms)
        nn.init.zeros_(self.head.bias)
        if self.pool.score is not None:
            nn.init.zeros_(self.pool.score.weight)  # equal weights at first
        self.register_buffer("shift", torch.zeros(config.n_outputs))
        self.register_buffer("scale", torch.ones(config.n_outputs))

    def prepare(self, shard: Shard) -> None:
        if self.output.scaled and shard.targets is not None:
            self.standardise(torch.tensor(np.array(shard.targets)))

    @torch.no_grad()
    def standardise(self, targets: Tensor) -> None:
        """Set `shift` and `scale` from values (N, O); NaN is missing."""
        for column, values in enumerate(targets.T):
            known = values[~values.isnan()].double()
            if len(known):
                self.shift[column] = known.mean()
                deviation = known.std(correction=0)
                self.scale[column] = deviation if deviation > 0 else 1.0

    @abstractmethod
    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return (B, T, D) contextual vectors of all positions."""

    def embed(self, source: Inputs, *, count: int | None = None, tap: Tap | None = None) -> Tensor:
        """Return (B, D) vectors of the sequences, one to a row; of packed rows with `count`
        sequences in total, (N, D) row by row.
        """
        x = self.vectors(source, tap=tap)
        if tap is not None and tap.wants("pooling.weights"):
            tap("pooling.weights", self.pool.weights(x, source.segments, count))
        return self.pool(x, source.segments, count)  # type: ignore[no-any-return]

    def forward(
        self, source: Inputs, *, count: int | None = None, tap: Tap | None = None
    ) -> Tensor:
        """Return standardised predictions, (`predict` - `shift`) / `scale`, which the loss is
        computed of; for `count` see `embed`.
        """
        if self.output.positional:
            x = self.vectors(source, tap=tap)
        else:
            x = self.embed(source, count=count, tap=tap)
        return self.head(dropout(x, self.config.dropout, self.training))  # type: ignore[no-any-return]

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self(source, tap=tap) * self.scale + self.shift  # type: ignore[no-any-return]
