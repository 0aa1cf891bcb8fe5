"""Records and what each of their symbols cost, in order, streaming."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from regard.data.formats import invalid_utf8
from regard.data.readers import Source
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluate.material import shard_of
from regard.models.language_model import Constrain, LanguageModel
from regard.models.translator import Translator
from regard.tokens import Tokenizer
from regard.train.validation import log_probs

AT_ONCE = 1024  # records of a file scored together


@dataclass(frozen=True)
class ScoredRecord:
    """A record, its tokens (without `<S>`, with `<E>`) and their natural log-probabilities."""

    text: str
    tokens: list[str]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole record in nats."""
        return float(sum(self.log_probs))

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard score --json`; what is impossible is null."""
        finite = [x if np.isfinite(x) else None for x in self.log_probs]
        total = None if None in finite else self.total
        return {"tokens": self.tokens, "log_probs": finite, "total": total}


def score(
    model: LanguageModel | Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    constrain: Constrain | None = None,
    sources: Shard | None = None,
) -> list[ScoredRecord]:
    """Score texts as records; those of a translator answer `sources`."""
    if not texts:
        return []
    shard = shard_of(texts, tokenizer)
    shard = shard if sources is None else shard.paired(sources)
    values, _ = log_probs(model, shard, tokenizer, constrain=constrain)
    found = []
    for i, text in enumerate(texts):
        span = slice(int(shard.offsets[i]) + 1, int(shard.offsets[i + 1]))
        names = [tokenizer.text(int(t)) for t in shard.ids[span]]
        found.append(ScoredRecord(text, names, values[span].tolist()))
    return found


def texts_of(file: Path, *, format: str, column: str) -> Iterator[list[str]]:
    """The records of a file, some at a time, or the lines of standard input (`-`), singly."""
    if str(file) == "-":
        yield from ([line] for line in lines_of(sys.stdin.buffer))
        return
    source = Source([file], format=format, column=column)
    if source.format == "text":
        raise UserError(
            f"{file} is read as running text ({source.why}): regard evaluate measures that"
        )
    for chunk in source.records():
        for first in range(0, len(chunk.texts), AT_ONCE):
            yield chunk.texts[first : first + AT_ONCE]


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """The lines of a stream as they come, without their ends; what is no text is an error."""
    lines: Iterable[bytes] = iter(stream.readline, b"")
    for number, line in enumerate(lines, start=1):
        yield decoded(line, number)


def decoded(line: bytes, number: int) -> str:
    """The text of a line of standard input, without its end."""
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        place = Path("standard input")
        raise UserError(invalid_utf8(place, number, error.start, line[error.start])) from None
