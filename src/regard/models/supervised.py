"""The time that fitting may take, where models are fitted by counting or by a solver: what does not
fit into it is reduced, and each reduction is printed.

What answers a question about a sequence: which class, which of several, what value; one answer
for all of it, or one at every position.

Reading is the family's business: attention, recurrence or convolution make a vector of every
position. What comes after is the same for all: the vectors are pooled, and one matrix answers.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
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
from regard.models.heads import HEADS, Head

EVERY = 10.0  # seconds between two lines of progress


class Budget:
    """Seconds from now on, and where lines go; without seconds there is no limit."""

    def __init__(self, say: Callable[[str], None], seconds: float = math.inf) -> None:
        self.say = say
        self.began = self.spoke = time.monotonic()
        self.end = self.began + seconds
        self.reductions: list[str] = []  # the lines that `reduce` has printed

    @property
    def limited(self) -> bool:
        """Is there an end at all?"""
        return math.isfinite(self.end)

    @property
    def left(self) -> float:
        """Seconds until the end; below 0 afterwards."""
        return self.end - time.monotonic()

    def set_aside(self, seconds: float) -> None:
        """Keep time for what comes after fitting."""
        self.end -= seconds

    def progress(self, doing: str) -> None:
        """Print what is being done, every EVERY seconds at most."""
        now = time.monotonic()
        if now - self.spoke >= EVERY:
            self.spoke = now
            self.say(f"{now - self.began:,.0f} s: {doing}")

    def reduce(self, what: str) -> None:
        """Print what is left out because time is short, once."""
        if what not in self.reductions:
            self.reductions.append(what)
            self.say(f"time is short: {what}")


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """What is answered, and from what."""

    task: str = "label"
    n_outputs: int = 1  # classes, labels or values: the data decide
    pooling: str = "mean"

    def __post_init__(self) -> None:
        if self.task not in HEADS:
            raise ValueError(f"task must be one of {', '.join(HEADS)}, got {self.task!r}")
        if not 1 <= self.n_outputs <= 1 << 20:
            raise ValueError(f"n_outputs must be from 1 to {1 << 20}, got {self.n_outputs}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}")

    @property
    def each(self) -> bool:
        """Whether there is a prediction for each position, instead of one for the record."""
        return HEADS[self.task].positional


class SupervisedModel(nn.Module, ABC):
    """Answers a question about sequences."""

    Config: ClassVar[type]  # the family's frozen dataclass
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]]  # name to (n_layers, d_model) -> Config
    sized_by_config: ClassVar[bool] = True  # are all tensor shapes known before a file is read?
    supports_packing: bool = False  # may several sequences share a row, kept apart by `segments`?
    tokens: ClassVar[str] = ""  # the kind of tokens, where it reads one that is numbers

    vocab_size: int
    config: Any

    @property
    def task(self) -> str:
        """The task it was trained for, a key of HEADS."""
        return str(self.config.task)

    @property
    def output(self) -> Head:
        """What its scores mean."""
        return HEADS[self.task]

    @abstractmethod
    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """(B, O) of sequences, one to a row, or of their positions (B, T, O): logits of classes or
        labels, or values.
        """


class FittedModel(SupervisedModel):
    """An assessor that is fitted in one go: by counting, or by solving for its coefficients. All
    that it learns is in its buffers.
    """

    @abstractmethod
    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """Learn from labelled records; what has to be chosen is chosen on `valid`, or on a part of
        the records where there is none. `say` takes what a user should know. What does not fit into
        the budget is reduced, and without one nothing is.
        """


class NeuralSupervisedModel(SupervisedModel):
    """An assessor trained by gradients. `shift` and `scale` (O,) are the mean and the deviation of
    the values it was trained on; logits leave them at 0 and 1.
    """

    static_shapes: bool = True  # are its steps the same kernels for every batch of a shape?

    shift: Tensor
    scale: Tensor

    def add_head(self, d_model: int) -> None:
        """Make what comes after reading."""
        config: HeadConfig = self.config
        self.pool = Pooling(config.pooling, d_model)
        self.head = nn.Linear(d_model, config.n_outputs)
        few = self.config.max_len if config.pooling == "sum" else 1  # a sum is that much larger
        nn.init.normal_(self.head.weight, std=0.5 * d_model**-0.5 / few)
        nn.init.zeros_(self.head.bias)
        if self.pool.score is not None:
            nn.init.zeros_(self.pool.score.weight)  # at first all count alike
        self.register_buffer("shift", torch.zeros(config.n_outputs))
        self.register_buffer("scale", torch.ones(config.n_outputs))

    def measure(self, shard: Shard) -> None:
        """Take from labelled training records what is fixed before the first step: of values, their
        mean and deviation.
        """
        if self.output.scaled and shard.targets is not None:
            self.standardise(torch.tensor(np.array(shard.targets)))

    @torch.no_grad()
    def standardise(self, targets: Tensor) -> None:
        """Take the mean and the deviation of the values (N, O) that are there."""
        for column, values in enumerate(targets.T):
            there = values[~values.isnan()].double()
            if len(there):
                self.shift[column] = there.mean()
                deviation = there.std(correction=0)
                self.scale[column] = deviation if deviation > 0 else 1.0

    @abstractmethod
    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """(B, T, D): every position of the sequences, having seen the others."""

    def embed(self, source: Inputs, *, count: int | None = None, tap: Tap | None = None) -> Tensor:
        """(B, D): the sequences, a vector each. Where several share a row, `count` says how many
        there are in all, and theirs are (N, D), row by row.
        """
        x = self.vectors(source, tap=tap)
        if tap is not None and tap.wants("pooling.weights"):
            tap("pooling.weights", self.pool.weights(x, source.segments, count))
        return self.pool(x, source.segments, count)  # type: ignore[no-any-return]

    def forward(
        self, source: Inputs, *, count: int | None = None, tap: Tap | None = None
    ) -> Tensor:
        """What `answers` gives, less `shift` and in units of `scale`: what training compares. For
        `count` see `embed`.
        """
        each = self.config.each
        x = self.vectors(source, tap=tap) if each else self.embed(source, count=count, tap=tap)
        return self.head(dropout(x, self.config.dropout, self.training))  # type: ignore[no-any-return]

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self(source, tap=tap) * self.scale + self.shift  # type: ignore[no-any-return]
