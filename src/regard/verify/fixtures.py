"""What is verified: a run's model and a few short sequences to try it on.

Sequences are short and few, so that large models can be verified too. They come from the run's own
data where it is there, and one is always made up from the whole vocabulary, to visit what the data
never shows.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.corpus import FOLDER, MANIFEST, reopen
from regard.errors import UserError
from regard.layers.embeddings import PLACE, Inputs
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.models.vision import ImageSettings
from regard.run import TOKENIZER
from regard.tokenizers import Tokenizer, load
from regard.tokenizers.tokenizer import END, PAD

ROWS, LONGEST = 3, 32  # sequences tried, and their length at most
SOURCE = 7  # tokens of a source that is made up
LOGITS = 1 << 24  # numbers that the logits of all rows may take: 64 MB in fp32
TOLERANCE = 1e-5  # of the largest logit: what fp32 rounding may differ by along two paths


@dataclass(frozen=True)
class Fixture(ABC):
    """A model in evaluation mode on the CPU, and something to try it on.

    `tokenizer` is None where tokenizer.json cannot be read: its own check says why.
    """

    run: Path
    whole: Any  # what the folder holds: a LanguageModel, a Translator or an Assessor
    tokenizer: Tokenizer | None

    @abstractmethod
    def tried(self, model: Any) -> Tensor:
        """What a model like this one gives by the plainest path: what others are held against."""

    @property
    def pad(self) -> int:
        """The id that fills rows up."""
        return self.tokenizer.pad if self.tokenizer else PAD

    @property
    def parameters(self) -> int:
        """How many weights are trained by gradients."""
        return sum(parameter.numel() for parameter in self.whole.parameters())

    @cached_property
    def logits(self) -> Tensor:
        """What the run's own model gives."""
        return self.tried(self.whole)

    @cached_property
    def tolerance(self) -> float:
        """What two paths may differ by: TOLERANCE times the largest finite logit, or times 1."""
        finite = self.logits[self.logits.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 1.0
        return TOLERANCE * max(1.0, largest)


@dataclass(frozen=True)
class SequenceFixture(Fixture):
    """What speaks, and (B, T) ids to try it on; T never exceeds max_len.

    A translator is tried as the language model it is once it has read `source`, one for all rows.
    """

    ids: Tensor
    source: Inputs | None = None

    def tried(self, model: Any) -> Tensor:
        """(B, T, V), a whole row at a time."""
        spoken = self.spoken(model)
        return torch.cat([spoken.logits(row[None]) for row in self.ids]).float()

    @cached_property
    def model(self) -> LanguageModel:
        """The language model that is tried."""
        return self.spoken(self.whole)

    def spoken(self, whole: LanguageModel | Seq2SeqModel) -> LanguageModel:
        """A model as it is tried."""
        if not isinstance(whole, Seq2SeqModel):
            return whole
        assert self.source is not None
        given = whole.condition(self.source).eval()
        given.supports_packing = False  # all rows share the one source
        return given

    @property
    def max_len(self) -> int:
        """The longest sequence that the model promises to take."""
        return int(self.model.config.max_len)

    @property
    def end(self) -> int:
        """The id of `<E>`."""
        return self.tokenizer.end if self.tokenizer else min(END, self.model.vocab_size - 1)

    def prefixes(self) -> list[int]:
        """A different length for each row, at least 1 and, where T allows, two less than T."""
        room = self.ids.size(1) - 2
        return [max(1, room * (ROWS - row) // ROWS) for row in range(ROWS)]

    def packed(self) -> tuple[Tensor, Tensor]:
        """The prefixes of all rows in one, then one position of padding: (1, S) ids, segments."""
        parts = [row[:n] for row, n in zip(self.ids, self.prefixes(), strict=True)]
        segments = [torch.full_like(part, number) for number, part in enumerate(parts, start=1)]
        padding = torch.full((1,), self.pad)
        ids = torch.cat([*parts, padding])[None]
        return ids, torch.cat([*segments, torch.zeros_like(padding)])[None]

    def unpacked(self, values: Tensor) -> Tensor:
        """From (B, T, ...) what belongs to the positions of `packed` before its padding."""
        parts = [row[:n] for row, n in zip(values, self.prefixes(), strict=True)]
        return torch.cat(parts)[None]


def tokenizer_of(run: Path, vocab_size: int) -> Tokenizer | None:
    """The tokenizer of a run, if it can be read and has no more tokens than the model."""
    try:
        tokenizer = load(run / TOKENIZER)
    except UserError:
        return None
    return tokenizer if tokenizer.vocab_size <= vocab_size else None


def open_fixture(run: Path, model: LanguageModel | Seq2SeqModel) -> SequenceFixture:
    """The model of a run folder and sequences to try it on."""
    tokenizer = tokenizer_of(run, model.vocab_size)
    length = max(8, min(LONGEST, LOGITS // (ROWS * model.vocab_size)))
    length = min(length, int(model.config.max_len))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.vocab_size, (ROWS, length), generator=generator)  # (B, T)
    if tokenizer is not None:
        ids[:, 0] = tokenizer.start
    for row, piece in enumerate(own_sequences(run, ROWS - 1, length, model.vocab_size)):
        ids[row, : len(piece)] = piece
    source = source_for(run, model, generator) if isinstance(model, Seq2SeqModel) else None
    return SequenceFixture(run, model, tokenizer, ids, source)


def source_for(run: Path, model: Seq2SeqModel, generator: torch.Generator) -> Inputs:
    """A source of the run's own data, or one made up."""
    size = getattr(model.config, "source_vocab", 0) or model.vocab_size
    ids = torch.randint(size, (1, SOURCE), generator=generator)
    config = model.config
    if isinstance(config, ImageSettings):
        picture = torch.randint(256, (1, 1 + config.rows * config.columns, size))
        places = torch.cartesian_prod(*(torch.arange(1, n + 1) for n in config.grid))
        picture[0, 1:, :PLACE], picture[0, 0] = places, 0
        ids = picture
    if has_data(run):
        with contextlib.suppress(UserError):
            corpus = reopen(run)
            shard = (corpus.test or corpus.valid or corpus.train).source
            if shard is not None and shard.vocab_size == size:
                own = shard.record(0)
                own = own if own.ndim == 2 else own[1 : 1 + int(model.config.max_len)]
                ids = torch.from_numpy(own.astype(np.int64))[None]
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64))


def own_sequences(run: Path, count: int, length: int, vocab_size: int) -> list[Tensor]:
    """Stretches of the run's own data, held out where possible; none if there is no data."""
    if not has_data(run):
        return []
    try:
        corpus = reopen(run)
    except UserError:  # the checks that need the data say what is wrong with it
        return []
    shard = corpus.test or corpus.valid or corpus.train
    if shard.vocab_size != vocab_size:
        return []
    begins = [0, int(shard.offsets[shard.records // 2])][:count]
    pieces = [np.asarray(shard.ids[begin : begin + length]).astype(np.int64) for begin in begins]
    return [torch.from_numpy(piece) for piece in pieces]


def has_data(run: Path) -> bool:
    """Does the run folder hold its tokenised data? It may be deleted, and imports have none."""
    return (run / FOLDER / MANIFEST).exists()
