"""Counting classes, and the letters of aligned sequences by class.

`majority`: what is most frequent, whatever the sequence: the floor under every other answer. `pwm`:
one position weight matrix for every class (Stormo et al. 1982), for sequences of one length.

`markov`: a Markov chain for every class, and Bayes' rule.

Each chain is the n-gram with Dirichlet priors of `bayes`, the strengths of its priors chosen by the
evidence of the class's own records; P(class | x) ∝ P(class) Π_t P(x_t | the tokens before, class),
the end of the sequence being one of them. All chains read equally far back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batching import stretch
from regard.data.shards import Array, Shard
from regard.errors import UserError
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.dirichlet_ngram import DirichletNGram, DirichletNGramConfig
from regard.models.language_model import IGNORE
from regard.models.linear import FEW_TOKENS, LONGER, ORDERS, NGramConfig
from regard.models.model_selection import FittedConfig, batches, few, shares, trials, varied
from regard.models.motifs import Ids, estimate, tally
from regard.models.ngrams import Ints, VariableBuffers
from regard.models.supervised import Budget, FittedModel

PSEUDOCOUNTS = (1.0, 0.1, 0.3, 3.0, 10.0, 30.0)  # tried


class Majority(FittedModel):
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

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
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


class PWMClassifier(VariableBuffers, FittedModel):
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

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
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


MANY = 10_000  # classes
AT_ONCE = 1 << 20  # tokens scored


@dataclass(frozen=True, kw_only=True)
class MarkovConfig(NGramConfig):
    """A chain reads `order` - 1 tokens back."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_outputs > MANY:
            raise ValueError(f"n_outputs must be at most {MANY}, got {self.n_outputs}")


@dataclass(frozen=True, eq=False)
class ClassRecords:
    """Sequences end to end: ids (N,), markers included, how long each is (R,), and its class."""

    ids: Array
    lengths: Ints
    targets: Tensor

    @classmethod
    def of(cls, shard: Shard, max_len: int) -> ClassRecords:
        """The records of a labelled shard, in order."""
        ids, lengths, targets, items = [], [], [], []
        for batch, source in batches(shard, max_len):
            there = source.segments > 0
            ids.append(source.ids[there].numpy())
            lengths.append(there.sum(1).numpy())
            targets.append(batch.targets)
            items.append(batch.items)
        order = np.concatenate(items).argsort()
        mixed = cls(np.concatenate(ids), np.concatenate(lengths), torch.cat(targets))
        return mixed.rows(torch.from_numpy(order))

    def rows(self, chosen: Tensor) -> ClassRecords:
        """Some of them, by number."""
        at = chosen.numpy()  # a tensor of one number would be taken for the number
        lengths = self.lengths[at]
        starts = (np.cumsum(self.lengths) - self.lengths)[at]
        return ClassRecords(
            self.ids[stretch(starts, lengths, starts)[0]], lengths, self.targets[chosen]
        )

    def joined(self, others: ClassRecords) -> ClassRecords:
        """These, then others."""
        ids, lengths = (
            np.concatenate(pair)
            for pair in ((self.ids, others.ids), (self.lengths, others.lengths))
        )
        return ClassRecords(ids, lengths, torch.cat([self.targets, others.targets]))

    def shard(self, vocab_size: int) -> Shard:
        """The same as a shard in memory."""
        return Shard(
            path=Path("memory"),
            kind="records",
            ids=self.ids,
            offsets=np.concatenate([[0], np.cumsum(self.lengths)]),
            vocab_size=vocab_size,
            records=len(self.lengths),
            tokens=len(self.ids),
            symbols=len(self.ids) - len(self.lengths),
            bytes=0,
        )

    def parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Stretches of them as one row each, ids and segments (1, N)."""
        part = np.cumsum(self.lengths) // AT_ONCE
        for number in np.unique(part):
            own = self.rows(torch.from_numpy(np.flatnonzero(part == number)))
            segments = np.repeat(np.arange(1, len(own.lengths) + 1), own.lengths)
            yield torch.from_numpy(own.ids)[None], torch.from_numpy(segments)[None]


class ClassMarkov(VariableBuffers, FittedModel):
    """log P(class) + log P(sequence | class), as log-posteriors."""

    Config = MarkovConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "hierarchical": lambda n_layers, d_model: MarkovConfig()
    }
    bias: Tensor

    def __init__(self, vocab_size: int, config: MarkovConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        plain = DirichletNGramConfig(order=config.order or 1)
        self.chains = nn.ModuleList(
            DirichletNGram(vocab_size, plain) for _ in range(config.n_outputs)
        )
        self.register_buffer("bias", torch.zeros(config.n_outputs, dtype=torch.float64))  # (C,)

    def wrong(self) -> str:
        """See Grown."""
        good = self.bias.shape == (self.config.n_outputs,)
        return "" if good else "there must be as many biases as classes"

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. An open order becomes part of the configuration."""
        budget = budget or Budget(say)
        own = ClassRecords.of(shard, self.config.max_len)
        every, others = own, None
        if valid is not None and valid.records:
            held = ClassRecords.of(valid, self.config.max_len)
            every, others = own.joined(held), held.targets
        judged = trials(self.task, own.targets, others, torch.arange(shard.records) // shard.views)

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            chains, priors = self.learned(every.rows(learn), config.order)
            found = []
            for ids, segments in every.rows(check).parts():
                logs = likelihoods(chains, ids, segments)[0]  # (N - 1, C)
                total = logs.new_zeros(int(segments.max()) + 1, logs.size(-1))
                found.append(total.index_add_(0, segments[0, 1:], logs)[1:])
            return torch.cat(found) + priors

        orders = LONGER if self.vocab_size <= FEW_TOKENS else ORDERS
        config = judged.best(varied(self.config, order=orders), answer, budget)
        self.config = judged.affordable(config, budget)
        learned = few(torch.arange(shard.records), self.config.records or shard.records)
        chains, self.bias = self.learned(own.rows(learned), self.config.order)
        self.chains = nn.ModuleList(chains)
        say(f"order {self.config.order}, where open by {judged.how}")

    def learned(self, records: ClassRecords, order: int) -> tuple[list[DirichletNGram], Tensor]:
        """A chain for every class, and the logarithms of their shares."""
        chains = []
        for label in range(self.config.n_outputs):
            chain = DirichletNGram(self.vocab_size, DirichletNGramConfig(order=order))
            own = records.rows((records.targets == label).nonzero()[:, 0])
            chain.fit(own.shard(self.vocab_size), None, lambda line: None)
            chains.append(chain)
        return chains, shares(records.targets, self.config.n_outputs).log()

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        total = likelihoods(self.chains, source.ids, source.segments).sum(1)
        return (total + self.bias).log_softmax(-1)


def likelihoods(chains: Any, ids: Tensor, segments: Tensor) -> Tensor:
    """(B, T - 1, C) the log-probability of every next token under each chain, 0 where there is none
    in the same sequence: fp64.
    """
    same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    wanted = ids[:, 1:].masked_fill(~same, IGNORE)
    logs = [chain.score(ids[:, :-1], wanted, segments[:, :-1]) for chain in chains]
    return torch.stack(logs, dim=-1).double()
