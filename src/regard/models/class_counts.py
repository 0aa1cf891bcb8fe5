"""Classifiers that count: class frequencies, and the tokens of each class.

`majority`: class frequencies, whatever the sequence; `mean`: the mean of values. They are the
baselines of every other model. `pwm`: one
position weight matrix for each class (Stormo et al. 1982), for sequences of one length. `markov`:
one Markov chain for each class and Bayes' rule, P(class | x) ∝ P(class) Π_t P(x_t | tokens before,
class), the end of the sequence being one of its tokens. Each chain is an n-gram model with
Dirichlet priors (`dirichlet_ngram`), whose concentrations maximise the evidence of the class's
records. All chains have the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.shards import Array, Shard
from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models import Presets, VariableBuffers, check_ranges
from regard.models.language_model import IGNORE
from regard.models.linear import NGramConfig, orders_to_try
from regard.models.motifs import count_codes, estimate_map
from regard.models.ngrams import DirichletNGram, DirichletNGramConfig
from regard.models.supervised import (
    Budget,
    Effort,
    FitData,
    FittedConfig,
    FittedModel,
    Log,
    SampledConfig,
    TunedModel,
    class_shares,
    read_batches,
    read_rows,
)

if TYPE_CHECKING:
    from regard.data.corpus import Corpus

PSEUDOCOUNTS = (1.0, 0.1, 0.3, 3.0, 10.0, 30.0)  # tried
CHUNK = 1 << 20  # tokens scored at once
MAX_TOKENS = 64  # of a vocabulary whose n-grams can be counted for each class


class Majority(FittedModel):
    """The shares of classes or labels as logits, or the means of values."""

    Config = FittedConfig
    PRESETS: ClassVar[Presets] = {"exact": lambda n_layers, d_model: FittedConfig()}
    prediction: Tensor

    def __init__(self, vocab_size: int, config: FittedConfig) -> None:
        super().__init__(vocab_size, config)
        zeros = torch.zeros(config.n_outputs, dtype=torch.float64)
        self.register_buffer("prediction", zeros)  # (O,)

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        targets = torch.from_numpy(np.array(train.targets))
        if self.output.scaled:
            values = targets.double()
            count = (~values.isnan()).sum(0).clamp_min(1)
            self.prediction = values.nan_to_num(0.0).sum(0) / count
        elif self.output.multilabel:
            logs = [class_shares(column.long(), 2).log() for column in targets.T]  # of 0 and 1
            self.prediction = torch.stack([present - absent for absent, present in logs])
        else:
            self.prediction = class_shares(targets.long(), self.config.n_outputs).log()

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        shape = source.ids.shape[:2] if self.output.positional else source.ids.shape[:1]
        return self.prediction.expand(*shape, -1)


@dataclass(frozen=True, kw_only=True)
class PwmConfig(SampledConfig):
    """The prior of each position: the token frequencies of all sequences."""

    pseudocount: float = 0.0  # weight of the prior, in counts; 0 = chosen by held-out records


class PWMClassifier(VariableBuffers, TunedModel):
    """log P(class) + Σ_j log P_j(token | class), as log-posteriors."""

    Config = PwmConfig
    PRESETS: ClassVar[Presets] = {"exact": lambda n_layers, d_model: PwmConfig()}
    learned = ("logs", "bias")
    logs: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: PwmConfig) -> None:
        super().__init__(vocab_size, config)
        outputs = config.n_outputs
        self.register_buffer("logs", torch.zeros(0, vocab_size, outputs, dtype=torch.float64))
        self.register_buffer("bias", torch.zeros(outputs, dtype=torch.float64))  # (C,)

    @classmethod
    def unsuitable(cls, corpus: Corpus) -> str:
        if corpus.tokenizer.word_spans("a b") is not None:
            return "texts of words are not aligned, even if all have the same number of words"
        shards = [one for one in (corpus.train, corpus.valid, corpus.test) if one is not None]
        lengths = np.concatenate([np.diff(one.offsets) for one in shards])
        paired = any(one.source is not None for one in shards)
        return "records are of different lengths" if paired or np.ptp(lengths) else ""

    def buffer_error(self) -> str:
        good = self.logs.shape[1:] == (self.vocab_size, self.config.n_outputs)
        good &= self.bias.shape == (self.config.n_outputs,)
        return "" if good else "logs must be (W, V, C) and biases as many as classes"

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        ids, targets = self.read_aligned(train)
        valid_targets, groups = None, torch.arange(len(targets)) // train.views
        if valid is not None:
            valid_ids, valid_targets = self.read_aligned(valid, ids.size(1))
            ids = torch.cat([ids, valid_ids])
        return FitData(ids, targets, valid_targets, groups)

    def read_aligned(self, shard: Shard, width: int = 0) -> tuple[Tensor, Tensor]:
        """Return the tokens (R, W) of records without their markers, and their classes."""

        def featurize(source: Inputs, batch: Batch) -> Tensor:
            nonlocal width
            lengths = (source.segments > 0).sum(1) - 2
            width = width or int(lengths[0])
            uneven = (lengths != width).nonzero()
            if len(uneven):
                row = int(uneven[0])
                record = int(batch.items[row]) // shard.views + 1
                raise length_error(width, int(lengths[row]), f"record {record:,}")
            return source.ids[:, 1 : width + 1]

        return read_rows(shard, self.config.max_len, featurize)

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"pseudocount": PSEUDOCOUNTS}]

    def fit_rows(self, x: Tensor, targets: Tensor, config: Any, effort: Effort) -> Sequence[Any]:
        """Return log P_j(token | class) (W, V, C) and log P(class) (C,) of ids (R, W)."""
        size, digits, classes = self.vocab_size, x.numpy(), targets.numpy()
        total = np.bincount(digits.ravel(), minlength=size).astype(np.float64)
        (base,) = estimate_map([total[None]], [1.0], np.full(size, 1 / size))  # (1, V)
        matrices = []
        for label in range(config.n_outputs):
            counts = count_codes(digits[classes == label], 0, size)[:, None, :size]  # (W, 1, V)
            (p,) = estimate_map([counts], [config.pseudocount], base[0])
            matrices.append(torch.from_numpy(np.log(p[:, 0])))
        return torch.stack(matrices, dim=-1), class_shares(targets, config.n_outputs).log()

    def predict_rows(self, x: Tensor, parameters: Sequence[Tensor], config: Any) -> Tensor:
        logs, bias = parameters
        total = logs.new_zeros(len(x), len(bias))
        for position, table in enumerate(logs):  # one (V, C) at a time: no (B, W, C) in memory
            total += table[x[:, position]]
        return total + bias

    @property
    def size(self) -> str:
        return f"{len(self.logs):,} positions"

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        lengths, width = (source.segments > 0).sum(1) - 2, len(self.logs)
        if bool((lengths != width).any()):
            raise length_error(width, int(lengths[lengths != width][0]), "a sequence")
        ids = source.ids[:, 1 : width + 1]
        return self.predict_rows(ids, (self.logs, self.bias), self.config).log_softmax(-1)


def length_error(width: int, length: int, name: str) -> UserError:
    """Return the error for sequences of different lengths."""
    return UserError(
        f"pwm is for aligned sequences, all of one length: {name} has {length:,} tokens, others "
        f"{width:,}; naive-bayes, logistic and markov take any"
    )


@dataclass(frozen=True, kw_only=True)
class MarkovConfig(NGramConfig):
    """A chain has a context of `order` - 1 tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, n_outputs=10_000)


class ClassMarkov(VariableBuffers, TunedModel):
    """log P(class) + log P(sequence | class), as log-posteriors."""

    Config = MarkovConfig
    PRESETS: ClassVar[Presets] = {"hierarchical": lambda n_layers, d_model: MarkovConfig()}
    learned = ("chains", "bias")
    bias: Tensor

    def __init__(self, vocab_size: int, config: MarkovConfig) -> None:
        super().__init__(vocab_size, config)
        chain = DirichletNGramConfig(order=config.order or 1)
        self.chains = nn.ModuleList(
            DirichletNGram(vocab_size, chain) for _ in range(config.n_outputs)
        )
        self.register_buffer("bias", torch.zeros(config.n_outputs, dtype=torch.float64))  # (C,)

    @classmethod
    def unsuitable(cls, corpus: Corpus) -> str:
        many = corpus.tokenizer.vocab_size > MAX_TOKENS
        return f"there are more than {MAX_TOKENS} tokens" if many else ""

    def buffer_error(self) -> str:
        good = self.bias.shape == (self.config.n_outputs,)
        return "" if good else "there must be as many biases as classes"

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        records, targets = self.read_records(train)
        groups, valid_targets = torch.arange(train.records) // train.views, None
        if valid is not None:
            more, valid_targets = self.read_records(valid)
            records += more
        return FitData(records, targets, valid_targets, groups)

    def read_records(self, shard: Shard) -> tuple[list[Array], Tensor]:
        """Return the ids of each record, with markers, and the classes."""
        records, targets = [np.zeros(0)] * shard.records, torch.zeros(shard.records).long()
        for batch, source in read_batches(shard, self.config.max_len):
            targets[torch.from_numpy(batch.items)] = batch.targets.long()
            for item, ids, mask in zip(batch.items, source.ids, source.segments > 0, strict=True):
                records[item] = ids[mask].numpy()
        return records, targets

    def select(self, features: list[Array], rows: Tensor, config: Any) -> list[Array]:
        return [features[i] for i in rows.tolist()]

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"order": orders_to_try(self.vocab_size)}]

    def fit_rows(
        self, x: list[Array], targets: Tensor, config: Any, effort: Effort
    ) -> Sequence[Any]:
        chains = nn.ModuleList()
        for label in range(config.n_outputs):
            chain = DirichletNGram(self.vocab_size, DirichletNGramConfig(order=config.order))
            part = self.select(x, (targets == label).nonzero()[:, 0], config)
            chain.fit(make_shard(part, self.vocab_size), None, lambda line: None)
            chains.append(chain)
        return chains, class_shares(targets, config.n_outputs).log()

    def predict_rows(self, x: list[Array], parameters: tuple[Any, Tensor], config: Any) -> Tensor:
        chains, bias = parameters
        lengths, totals = torch.tensor([len(ids) for ids in x]), []
        chunks = lengths.cumsum(0) // CHUNK
        for number in chunks.unique():
            rows = (chunks == number).nonzero()[:, 0]  # packed into one row
            ids = torch.from_numpy(np.concatenate(self.select(x, rows, config)))[None]
            segments = torch.arange(1, len(rows) + 1).repeat_interleave(lengths[rows])
            logs = log_likelihoods(chains, ids, segments[None])[0]  # (N - 1, C)
            total = logs.new_zeros(len(rows) + 1, logs.size(-1))
            totals.append(total.index_add_(0, segments[1:], logs)[1:])
        return torch.cat(totals) + bias

    @property
    def size(self) -> str:
        return f"{len(self.chains):,} chains"

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        total = log_likelihoods(self.chains, source.ids, source.segments).sum(1)
        return (total + self.bias).log_softmax(-1)


def make_shard(records: Sequence[Array], vocab_size: int) -> Shard:
    """Return records, with markers, as a shard in memory."""
    ids = np.concatenate(records) if records else np.zeros(0, np.int64)
    offsets = np.cumsum([0, *map(len, records)])
    return Shard(
        path=Path("memory"),
        kind="records",
        ids=ids,
        offsets=offsets,
        vocab_size=vocab_size,
        records=len(records),
        tokens=len(ids),
        symbols=len(ids) - len(records),
        bytes=0,
    )


def log_likelihoods(chains: Iterable[Any], ids: Tensor, segments: Tensor) -> Tensor:
    """Return the log-probability of every next token under each chain in fp64, (B, T - 1, C); 0 if
    the next token is in another sequence or is padding.
    """
    same = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    targets = ids[:, 1:].masked_fill(~same, IGNORE)
    logs = [chain.score(ids[:, :-1], targets, segments[:, :-1]) for chain in chains]
    return torch.stack(logs, dim=-1).double()
