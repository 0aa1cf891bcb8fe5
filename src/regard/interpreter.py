"""What `regard.load` returns for a translator: texts in, translations out, in their order.

A source is read as `a b c <E>`. One of more tokens than the model has learned to read (max_len) is
cut there, and its translation says so; an empty one has an empty translation, and no model is
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

from regard.data.formats import decoded_lines
from regard.data.shards import Shard
from regard.decode import Beam, Forbidden, Generated, Strategy
from regard.decode.translation import USUAL, Interpreting, translate
from regard.errors import UserError
from regard.evaluate.material import shard_of
from regard.evaluate.report import Measured, measure
from regard.evaluate.scoring import ScoredRecord, decoded, score
from regard.models.translator import Translator
from regard.predictor import Spoken
from regard.tokens import Tokenizer

FEW, MANY = 64, 4096  # lines of a file translated together: at first, and at most
LITTLE, MUCH = 4 << 10, 256 << 10  # the same of a stream, in bytes


@dataclass(frozen=True)
class Translation(Spoken):
    """One translation; `cut` tokens at the end of its input were too many to be read."""

    cut: int = 0


class Interpreter:
    """A translator and its tokenizers, to translate, score and measure."""

    def __init__(
        self,
        model: Translator,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer | None = None,
        *,
        run: Path | None = None,
        forbidden: Forbidden | None = None,
        ratio: float = USUAL,
    ) -> None:
        self.model, self.tokenizer, self.run, self.forbidden = model, tokenizer, run, forbidden
        self.source_tokenizer = source_tokenizer or tokenizer
        self.ratio = ratio  # tokens of a translation for one of its source, at most

    @cached_property
    def interpreting(self) -> Interpreting:
        """One for all that it translates, where the model is when the first is asked for."""
        return Interpreting(self.model)

    def translate(
        self,
        texts: Sequence[str],
        strategy: Strategy | None = None,
        *,
        max_new: int = 0,
        batch_size: int = 64,
        first: int = 0,
    ) -> list[list[Translation]]:
        """The translations of each text, best first: one, or the n best of a `Beam`.

        By default a beam of 5, ranked by log-probability per token. `max_new` limits the tokens of
        a translation (0: in proportion to the text). `batch_size` is how many rows are decoded
        together, beams counted. Samples of text i are drawn with the key (seed, first + i).
        """
        ids, lengths = self.source_tokenizer.encode_batch(list(texts))
        sources = np.split(ids, np.cumsum(lengths)[:-1]) if len(texts) else []
        asked = [i for i, text in enumerate(texts) if text.strip()]
        found = self.answers(
            [sources[i] for i in asked],
            strategy,
            max_new=max_new,
            batch_size=batch_size,
            keys=[first + i for i in asked],
        )
        results = [
            [Translation(text, "", [], score=0.0, finished=True, dead_end=False)] for text in texts
        ]
        for i, several in zip(asked, found, strict=True):
            cut = max(0, len(sources[i]) - self.room)
            results[i] = [self._translation(texts[i], one, cut) for one in several]
        return results

    @property
    def room(self) -> int:
        """The most tokens of a source that are read, `<E>` not counted."""
        return int(self.model.config.max_len) - 1

    def answers(
        self,
        sources: Sequence[Sequence[int] | np.ndarray],
        strategy: Strategy | None = None,
        *,
        max_new: int = 0,
        batch_size: int = 64,
        keys: Sequence[int] | None = None,
    ) -> list[list[Generated]]:
        """As `translate`, from ids without markers to ids; `keys` are those of samples."""
        tokenizer, end = self.tokenizer, self.source_tokenizer.end
        return translate(
            self.model,
            [[*map(int, source[: self.room]), end] for source in sources],
            strategy or Beam(width=5, length_penalty=1.0),
            start=tokenizer.start,
            end=tokenizer.end,
            pad=tokenizer.pad,
            banned=tokenizer.never_produced(self.model.vocab_size),
            constraint=self.forbidden,
            max_new=max_new,
            ratio=self.ratio,
            batch_size=batch_size,
            interpreting=self.interpreting,
            keys=keys,
        )

    def _translation(self, text: str, made: Generated, cut: int) -> Translation:
        return Translation(
            input=text,
            text=self.tokenizer.decode(made.ids),
            tokens=[self.tokenizer.text(i) for i in made.ids],
            score=made.score,
            finished=made.finished,
            dead_end=made.dead_end,
            cut=cut,
        )

    def stream(
        self,
        chunks: Iterable[list[str]],
        strategy: Strategy | None = None,
        *,
        max_new: int = 0,
        batch_size: int = 64,
    ) -> Iterator[list[Translation]]:
        """The translations of each text as they come, one chunk of texts held at a time."""
        first = 0
        for texts in chunks:
            yield from self.translate(
                texts, strategy, max_new=max_new, batch_size=batch_size, first=first
            )
            first += len(texts)

    def pairs(self, sources: Sequence[str], targets: Sequence[str]) -> Shard:
        """Sources and targets as a shard in memory."""
        return shard_of(targets, self.tokenizer).paired(shard_of(sources, self.source_tokenizer))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[ScoredRecord]:
        """What each symbol of the target costs, for (source, target)."""
        if not pairs:
            return []
        sources, targets = map(list, zip(*pairs, strict=True))
        answered = shard_of(sources, self.source_tokenizer)
        return score(
            self.model, self.tokenizer, targets, constrain=self.forbidden, sources=answered
        )

    def measure(self, shard: Shard) -> Measured:
        """What the targets of a shard of pairs cost, by pair."""
        return measure(self.model, shard, self.tokenizer, constrain=self.forbidden)


def lines_of_file(path: Path) -> Iterator[list[str]]:
    """All lines of a file, blank ones too, some at a time; what is no text is an error."""
    count = FEW
    for _, texts, bad in decoded_lines(path):
        if bad:
            raise UserError(next(iter(bad.values())))
        at = 0
        while at < len(texts):
            yield texts[at : at + count]
            at, count = at + count, min(2 * count, MANY)


def lines_of_stream(stream: BinaryIO) -> Iterator[list[str]]:
    """The lines of a stream, those together that are there at a time: a pipe is never waited for
    while a line of it could be translated.
    """
    number, size, held = 1, LITTLE, b""
    while block := stream.read1(size):  # type: ignore[attr-defined]
        *lines, held = (held + block).split(b"\n")
        if lines:
            yield [decoded(line, number + i) for i, line in enumerate(lines)]
            number, size = number + len(lines), min(2 * size, MUCH)
    if held:
        yield [decoded(held, number)]
