"""What checks share: a run's model with inputs to try it on, and how differences are measured.

Inputs are few and short, so that large models can be verified too. They come from the run's own
data if it is there; some are always made up from the whole vocabulary, to reach what the data does
not show.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import LabelledExamples
from regard.data.corpus import FOLDER, MANIFEST, Corpus, reopen
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import truncate_shard
from regard.layers.embeddings import Inputs
from regard.models.language_model import LanguageModel
from regard.models.word2vec import list_words
from regard.tokenizers import TOKENIZER, Tokenizer, load, load_sources
from regard.tokenizers.tokenizer import END, PAD

TOLERANCE = 1e-5  # relative to the largest output: how far fp32 rounding may move two paths apart

Finding = tuple[bool, str]  # whether the law holds, and what was measured


class Gap:
    """The largest difference between numbers that should agree, and over how many positions."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.positions = 0

    def add(self, got: Tensor, expected: Tensor, positions: int) -> None:
        """Compare two tensors of one shape; equal infinities agree, NaN agrees with nothing."""
        if got.shape != expected.shape:
            raise ValueError(f"got shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
        difference = (got - expected).abs().masked_fill(got == expected, 0.0)
        difference = difference.nan_to_num(float("inf"), float("inf"))
        self.worst = max(self.worst, float(difference.max()) if difference.numel() else 0.0)
        self.positions += positions

    def finding(self, allowed: float, note: str = "") -> Finding:
        """Return whether the worst difference is allowed, and a text that gives both."""
        detail = f"max difference {self.worst:.1e} over {self.positions:,} positions"
        return (
            self.worst <= allowed,
            f"{detail}{note} (allowed {allowed:.1e} at the scale of the logits)",
        )


@dataclass(frozen=True)
class Fixture(ABC):
    """The model of a run folder, in evaluation mode on the CPU, and inputs to try it on.

    `tokenizer` is None if its file cannot be read or does not fit the model: the check of the
    tokenizer says why.
    """

    run: Path
    model: Any
    tokenizer: Tokenizer | None

    @classmethod
    @abstractmethod
    def open(cls, run: Path, model: Any) -> Self:
        """Return the fixture of a run folder and its model."""

    @abstractmethod
    def compute(self, model: Any) -> Tensor:
        """Return the outputs of a model of this class for one input after the other."""

    @cached_property
    def outputs(self) -> Tensor:
        """The outputs of the run's model, with which all other ways to them are compared."""
        return self.compute(self.model)

    @cached_property
    def tolerance(self) -> float:
        """How far two paths may differ: TOLERANCE times the largest finite output, or times 1."""
        finite = self.outputs[self.outputs.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 1.0
        return TOLERANCE * max(1.0, largest)

    @property
    def pad(self) -> int:
        return self.tokenizer.pad if self.tokenizer else PAD

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def open_tokenizer(run: Path, vocab_size: int) -> Tokenizer | None:
    """Return the tokenizer of a run if it can be read and has no more tokens than the model."""
    try:
        tokenizer = load(run / TOKENIZER)
    except UserError:
        return None
    return tokenizer if tokenizer.vocab_size <= vocab_size else None


def has_data(run: Path) -> bool:
    """Return whether the folder holds tokenized data: it may be deleted, and imports have none."""
    return (run / FOLDER / MANIFEST).exists()


def held_out_shard(corpus: Corpus) -> Shard:
    """Return the test split, or else the validation split, or else the training split."""
    return corpus.test or corpus.valid or corpus.train


def open_shard(run: Path) -> Shard | None:
    """Return a split of the run's data; None if there is none, or if it is damaged, which the
    checks that need it will report.
    """
    if not has_data(run):
        return None
    try:
        return held_out_shard(reopen(run))
    except UserError:
        return None


# Language models

ROWS, MAX_LENGTH = 3, 32  # sequences, and their length at most
MAX_LOGITS = 1 << 24  # that all rows may have: 64 MB in fp32
SOURCE_LENGTH = 8  # tokens of a made-up source, with its markers


@dataclass(frozen=True)
class LMFixture(Fixture):
    """A language model and (B, T) ids to try it on; T never exceeds max_len."""

    ids: Tensor

    @classmethod
    def open(cls, run: Path, model: Any) -> Self:
        tokenizer = open_tokenizer(run, model.vocab_size)
        return cls(run, model, tokenizer, cls.make_ids(run, model, tokenizer))

    @staticmethod
    def make_ids(run: Path, model: Any, tokenizer: Tokenizer | None) -> Tensor:
        """Return sequences (B, T): the last one is made up, the others are from the run's data."""
        length = max(8, min(MAX_LENGTH, MAX_LOGITS // (ROWS * model.vocab_size)))
        length = min(length, int(model.config.max_len))
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(model.vocab_size, (ROWS, length), generator=generator)
        if tokenizer is not None:
            ids[:, 0] = tokenizer.start
        shard = open_shard(run)
        if shard is not None and shard.vocab_size == model.vocab_size:
            for row, start in enumerate((0, int(shard.offsets[shard.records // 2]))):
                piece = np.asarray(shard.ids[start : start + length]).astype(np.int64)
                ids[row, : len(piece)] = torch.from_numpy(piece)
        return ids

    def as_lm(self, model: Any) -> LanguageModel:
        """Return a model as the language model that is tried."""
        return model  # type: ignore[no-any-return]

    @cached_property
    def lm(self) -> LanguageModel:
        return self.as_lm(self.model)

    def compute(self, model: Any) -> Tensor:
        """Return (B, T, V) logits, computed row by row."""
        lm = self.as_lm(model)
        return torch.cat([lm.logits(row[None]) for row in self.ids]).float()

    @property
    def max_len(self) -> int:
        return int(self.model.config.max_len)

    @property
    def end(self) -> int:
        return self.tokenizer.end if self.tokenizer else min(END, self.model.vocab_size - 1)

    @property
    def prefixes(self) -> list[int]:
        """A different length for each row, at least 1 and, if T allows, two less than T."""
        longest = self.ids.size(1) - 2
        return [max(1, longest * (ROWS - row) // ROWS) for row in range(ROWS)]

    def pack(self) -> tuple[Tensor, Tensor]:
        """Return (1, S) ids and segments: the prefixes of all rows in one, and a padding."""
        parts = [row[:n] for row, n in zip(self.ids, self.prefixes, strict=True)]
        segments = [torch.full_like(part, number) for number, part in enumerate(parts, start=1)]
        padding = torch.full((1,), self.pad)
        ids = torch.cat([*parts, padding])[None]
        return ids, torch.cat([*segments, torch.zeros_like(padding)])[None]

    def pack_values(self, values: Tensor) -> Tensor:
        """Return the part of (B, T, ...) values at the positions of `pack` before the padding."""
        parts = [row[:n] for row, n in zip(values, self.prefixes, strict=True)]
        return torch.cat(parts)[None]


@dataclass(frozen=True)
class Seq2SeqFixture(LMFixture):
    """A translator or captioner, tried as the language model that it is for one `source`."""

    source: Inputs

    @classmethod
    def open(cls, run: Path, model: Any) -> Self:
        tokenizer = open_tokenizer(run, model.vocab_size)
        ids = cls.make_ids(run, model, tokenizer)
        return cls(run, model, tokenizer, ids, single(sample_source(run, model, tokenizer)))

    def as_lm(self, model: Any) -> LanguageModel:
        lm: LanguageModel = model.condition(self.source).eval()
        lm.supports_packing = False  # all rows share the one source
        return lm


def sample_source(run: Path, model: Any, tokenizer: Tokenizer | None) -> Tensor:
    """Return a source of the run's data, or a made-up one: (S,) ids or (S, V) features."""
    size = getattr(model.config, "source_vocab", 0) or model.vocab_size
    shard = open_shard(run)
    if shard is not None and shard.source is not None and shard.source.vocab_size == size:
        record, cuttable = shard.source.record(0), shard.source.cuttable
    elif tokenizer is not None:
        sources = load_sources(run, tokenizer)
        record, cuttable = sources.sample_records([SOURCE_LENGTH])[0], sources.cuttable
    else:
        record, cuttable = np.arange(SOURCE_LENGTH) % size, True
    if cuttable:  # texts are read without `<S>`
        record = record[1 : 1 + int(model.config.max_len)]
    return torch.from_numpy(np.asarray(record).astype(np.int64))


def single(ids: Tensor) -> Inputs:
    """Return one sequence, (T,) ids or (T, V) features, as a batch."""
    return Inputs(ids[None], torch.ones(1, len(ids), dtype=torch.int64))


# Models of labels and values

N_RECORDS, N_SAMPLES = 48, 8  # records of the run's data, and made-up ones
N_TOKENS = 4096  # of the data from which records are taken


@dataclass(frozen=True)
class RecordBatch:
    """Records that are padded to one length: their numbers and lengths."""

    records: list[int]
    source: Inputs
    lengths: list[int]


@dataclass(frozen=True)
class PredictionFixture(Fixture):
    """A model of labels or values, and records to try it on: (T,) ids or (T, V) features."""

    records: Sequence[Tensor]

    @classmethod
    def open(cls, run: Path, model: Any) -> Self:
        tokenizer = open_tokenizer(run, model.vocab_size)
        max_len = int(model.config.max_len)
        stored = [] if tokenizer is None else stored_records(run, tokenizer, max_len)
        lengths = [min(max_len, 2 + 3 * number) for number in range(N_SAMPLES)]
        if len({len(record) for record in stored}) == 1:  # perhaps no other length can be read
            lengths = [len(stored[0])] * N_SAMPLES
        if tokenizer is None:
            generator = torch.Generator().manual_seed(0)
            samples = [torch.randint(model.vocab_size, (n,), generator=generator) for n in lengths]
        else:
            samples = [torch.from_numpy(record) for record in tokenizer.sample_records(lengths)]
        return cls(run, model, tokenizer, [*samples, *stored[:N_RECORDS]])

    @property
    def positional(self) -> bool:
        """Whether there is a prediction at each position."""
        return bool(self.model.output.positional)

    def compute(self, model: Any) -> Tensor:
        """Return (R, O) predictions of records or (P, O) of all their positions."""
        return torch.cat([self.predict(record, model) for record in self.records])

    def predict(self, record: Tensor, model: Any = None) -> Tensor:
        """Return the predictions of one record, (1, O) or of its positions (T, O)."""
        scores: Tensor = (self.model if model is None else model).predict(single(record)).float()
        return scores[0] if self.positional else scores

    def batches(self, order: Sequence[int], size: int, extra: int = 0) -> Iterator[RecordBatch]:
        """Yield batches of `size` records in this order, padded to the longest.

        With `extra`, they are that much longer, and padding is random instead of `pad`.
        """
        generator = torch.Generator().manual_seed(3)
        cuttable = self.tokenizer is None or self.tokenizer.cuttable
        longest = int(self.model.config.max_len) if cuttable else 1 << 30
        for first in range(0, len(order), size):
            chosen = list(order[first : first + size])
            lengths = torch.tensor([len(self.records[i]) for i in chosen])
            like = self.records[chosen[0]]
            width = min(longest, int(lengths.max()) + extra)
            shape = len(chosen), width, *like.shape[1:]
            ids = torch.full(shape, self.pad, dtype=like.dtype)
            if extra:
                known = self.tokenizer or self.model
                high = known.vocab_size if cuttable else 256
                ids = torch.randint(high, shape, generator=generator).to(like.dtype)
            for row, i in enumerate(chosen):
                ids[row, : lengths[row]] = self.records[i]
            segments = torch.arange(width) < lengths[:, None]
            yield RecordBatch(chosen, Inputs(ids, segments.long()), lengths.tolist())


def stored_records(run: Path, tokenizer: Tokenizer, max_len: int) -> list[Tensor]:
    """Return records of the run's data, cut to what the model reads."""
    shard, records = open_shard(run), []
    if shard is not None:
        part = truncate_shard(shard, N_TOKENS)
        part = replace(part, targets=np.zeros(part.records, np.int32), aligned=False)
        with contextlib.suppress(UserError):  # the checks that need the data report it
            for batch in LabelledExamples(part, tokenizer, max_len).batches(N_TOKENS):
                assert batch.segments is not None
                rows = zip(batch.ids, batch.segments, strict=True)
                records += [ids[segments > 0] for ids, segments in rows]
    return records


# Word vectors

N_WORDS = 100  # of a made-up text


@dataclass(frozen=True)
class Word2VecFixture(Fixture):
    """Word vectors, and a text whose words they predict."""

    shard: Shard

    @classmethod
    def open(cls, run: Path, model: Any) -> Self:
        tokenizer = open_tokenizer(run, model.vocab_size)
        if has_data(run):
            corpus = reopen(run)
            shard = truncate_shard(corpus.valid or corpus.train, N_TOKENS)
        elif tokenizer is None:
            raise UserError(f"{run} has neither data nor a tokenizer that can be read")
        else:
            shard = shard_of([" ".join(list_words(model, tokenizer)[:N_WORDS])], tokenizer)
        return cls(run, model, tokenizer, shard)

    def compute(self, model: Any) -> Tensor:
        """Return the (U, 2) losses and numbers of predictions of the units of the text."""
        return torch.from_numpy(model.losses(self.shard))
