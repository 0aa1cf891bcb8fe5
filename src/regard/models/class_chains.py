"""`markov`: a Markov chain for every class, and Bayes' rule.

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

from regard.data.columns import Array
from regard.data.questions import stretch
from regard.data.shards import Shard
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.bayes import MapConfig, MapModel
from regard.models.budget import Budget
from regard.models.fitted import batches, few, shares, trials, varied
from regard.models.grown import Grown
from regard.models.language_model import IGNORE
from regard.models.linear import FEW_TOKENS, LONGER, ORDERS, GramConfig
from regard.models.tally import Ints

MANY = 10_000  # classes
AT_ONCE = 1 << 20  # tokens scored


@dataclass(frozen=True, kw_only=True)
class MarkovConfig(GramConfig):
    """A chain reads `order` - 1 tokens back."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_outputs > MANY:
            raise ValueError(f"n_outputs must be at most {MANY}, got {self.n_outputs}")


@dataclass(frozen=True, eq=False)
class Records:
    """Sequences end to end: ids (N,), markers included, how long each is (R,), and its class."""

    ids: Array
    lengths: Ints
    targets: Tensor

    @classmethod
    def of(cls, shard: Shard, max_len: int) -> Records:
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

    def rows(self, chosen: Tensor) -> Records:
        """Some of them, by number."""
        at = chosen.numpy()  # a tensor of one number would be taken for the number
        lengths = self.lengths[at]
        starts = (np.cumsum(self.lengths) - self.lengths)[at]
        return Records(self.ids[stretch(starts, lengths, starts)[0]], lengths, self.targets[chosen])

    def joined(self, others: Records) -> Records:
        """These, then others."""
        ids, lengths = (
            np.concatenate(pair)
            for pair in ((self.ids, others.ids), (self.lengths, others.lengths))
        )
        return Records(ids, lengths, torch.cat([self.targets, others.targets]))

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


class Chains(Grown, FittedAssessor):
    """log P(class) + log P(sequence | class), as log-posteriors."""

    Config = MarkovConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "hierarchical": lambda n_layers, d_model: MarkovConfig()
    }
    bias: Tensor

    def __init__(self, vocab_size: int, config: MarkovConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        plain = MapConfig(order=config.order or 1)
        self.chains = nn.ModuleList(MapModel(vocab_size, plain) for _ in range(config.n_outputs))
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
        own = Records.of(shard, self.config.max_len)
        every, others = own, None
        if valid is not None and valid.records:
            held = Records.of(valid, self.config.max_len)
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

    def learned(self, records: Records, order: int) -> tuple[list[MapModel], Tensor]:
        """A chain for every class, and the logarithms of their shares."""
        chains = []
        for label in range(self.config.n_outputs):
            chain = MapModel(self.vocab_size, MapConfig(order=order))
            own = records.rows((records.targets == label).nonzero()[:, 0])
            chain.fit(own.shard(self.vocab_size), None, lambda line: None)
            chains.append(chain)
        return chains, shares(records.targets, self.config.n_outputs).log()

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
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
