"""Counting classes, and the letters of aligned sequences by class.

`majority`: what is most frequent, whatever the sequence: the floor under every other answer. `pwm`:
one position weight matrix for every class (Stormo et al. 1982), for sequences of one length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.errors import UserError
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.budget import Budget
from regard.models.fitted import (
    FittedConfig,
    batches,
    shares,
    trials,
    varied,
)
from regard.models.grown import Grown
from regard.models.motif_tables import Ids, estimate, tally

PSEUDOCOUNTS = (1.0, 0.1, 0.3, 3.0, 10.0, 30.0)  # tried


class Majority(FittedAssessor):
    """The shares of classes or labels as logits, or the means of values."""

    Config = FittedConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "exact": lambda n_layers, d_model: FittedConfig()
    }
    answer: Tensor

    def __init__(self, vocab_size: int, config: FittedConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        self.register_buffer("answer", torch.zeros(config.n_outputs, dtype=torch.float64))  # (O,)

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor."""
        targets = torch.from_numpy(np.array(shard.targets))
        if self.task == "value":
            values = targets.double()
            many = (~values.isnan()).sum(0).clamp_min(1)
            self.answer = values.nan_to_num(0.0).sum(0) / many
        elif self.task == "labels":
            every = [shares(column.long(), 2).log() for column in targets.T]  # of 0 and 1
            self.answer = torch.stack([logs[1] - logs[0] for logs in every])
        else:
            self.answer = shares(targets.long(), self.config.n_outputs).log()

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        shape = source.ids.shape[:2] if self.config.each else source.ids.shape[:1]
        return self.answer.expand(*shape, -1)


@dataclass(frozen=True, kw_only=True)
class PwmConfig(FittedConfig):
    """How often the letters of all sequences are counted at each position beforehand."""

    pseudocount: float = 0.0  # 0 = chosen by held-out records

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("pseudocount")


class WeightMatrices(Grown, FittedAssessor):
    """log P(class) + Σ_j log P_j(token | class), as log-posteriors. The prior of every matrix is
    how often tokens occur anywhere.
    """

    Config = PwmConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "exact": lambda n_layers, d_model: PwmConfig()
    }
    logs: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: PwmConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        outputs = config.n_outputs
        self.register_buffer("logs", torch.zeros(0, vocab_size, outputs, dtype=torch.float64))
        self.register_buffer("bias", torch.zeros(outputs, dtype=torch.float64))  # (C,)

    def wrong(self) -> str:
        """See Grown."""
        good = self.logs.shape[1:] == (self.vocab_size, self.config.n_outputs)
        good &= self.bias.shape == (self.config.n_outputs,)
        return "" if good else "logs must be (W, V, C) and biases as many as classes"

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. An open pseudocount becomes part of the configuration."""
        budget = budget or Budget(say)
        digits, targets = self.aligned(shard)
        others = None
        if valid is not None and valid.records:
            more, others = self.aligned(valid, digits.shape[1])
            digits = np.concatenate([digits, more])
        judged = trials(self.task, targets, others, torch.arange(len(targets)) // shard.views)

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            logs = self.matrices(digits[learn.numpy()], judged.targets[learn], config.pseudocount)
            priors = shares(judged.targets[learn], config.n_outputs).log()
            return looked_up(logs, torch.from_numpy(digits[check.numpy()])) + priors

        self.config = judged.best(varied(self.config, pseudocount=PSEUDOCOUNTS), answer, budget)
        self.logs = self.matrices(digits[: len(targets)], targets, self.config.pseudocount)
        self.bias = shares(targets, self.config.n_outputs).log()
        say(
            f"{digits.shape[1]:,} positions; pseudocount {self.config.pseudocount}, where open by "
            f"{judged.how}"
        )

    def aligned(self, shard: Shard, width: int = 0) -> tuple[Ids, Tensor]:
        """The tokens (R, W) of records without their markers, and their classes."""
        found, targets, items = [], [], []
        for batch, source in batches(shard, self.config.max_len):
            lengths = (source.segments > 0).sum(1) - 2
            width = width or int(lengths[0])
            wrong = (lengths != width).nonzero()
            if len(wrong):
                record = int(batch.items[int(wrong[0])]) // shard.views + 1
                raise uneven(width, int(lengths[int(wrong[0])]), f"record {record:,}")
            found.append(source.ids[:, 1 : width + 1])
            targets.append(batch.targets)
            items.append(torch.from_numpy(batch.items))
        order = torch.cat(items).argsort()
        return torch.cat(found)[order].numpy(), torch.cat(targets)[order]

    def matrices(self, digits: Ids, targets: Tensor, pseudocount: float) -> Tensor:
        """(W, V, C) log P_j(token | class) of digits (R, W)."""
        size, classes = self.vocab_size, targets.numpy()
        uniform = np.full(size, 1 / size)
        anywhere = np.bincount(digits.ravel(), minlength=size).astype(np.float64)
        (base,) = estimate([anywhere[None]], [1.0], uniform)  # (1, V)
        found = []
        for label in range(self.config.n_outputs):
            counts = tally(digits[classes == label], 0, size)[:, None, :size]  # (W, 1, V)
            (p,) = estimate([counts], [pseudocount], base[0])
            found.append(torch.from_numpy(np.log(p[:, 0])))
        return torch.stack(found, dim=-1)

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        lengths, width = (source.segments > 0).sum(1) - 2, len(self.logs)
        if bool((lengths != width).any()):
            raise uneven(width, int(lengths[lengths != width][0]), "a sequence")
        return (looked_up(self.logs, source.ids[:, 1 : width + 1]) + self.bias).log_softmax(-1)


def looked_up(logs: Tensor, digits: Tensor) -> Tensor:
    """(B, C) Σ_j logs[j, digits[:, j]] of (B, W) digits."""
    total = logs.new_zeros(len(digits), logs.size(-1))
    for position, table in enumerate(logs):  # one (V, C) after the other: no (B, W, C) in memory
        total += table[digits[:, position]]
    return total


def uneven(width: int, got: int, where: str) -> UserError:
    """Sequences are not aligned."""
    return UserError(
        f"pwm is for aligned sequences, all of one length: {where} has {got:,} tokens, others "
        f"{width:,}; naive-bayes, logistic and markov take any"
    )
