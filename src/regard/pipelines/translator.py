"""What `regard.load` returns for a translator: texts in, translations out, in their order.

A source is read as `a b c <E>`. One of more tokens than the model has learned to read (max_len) is
cut there, and its translation says so; an empty one has an empty translation, and no model is
asked. Where sources are pictures, texts are their paths, and a translation is a caption.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from regard.arguments import one_or_many
from regard.data.inputs import TokenLimit, opened
from regard.data.shards import Shard
from regard.decoding import Beam, ForbiddenTransitions, Generated, Strategy
from regard.decoding.seq2seq import USUAL, TranslationRequest, translate
from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import ScoredRecord, TokenLosses, measure, score
from regard.models.seq2seq import Seq2SeqModel
from regard.pipelines.generator import GeneratedText
from regard.tokenizers import Patches, Tokenizer


@dataclass(frozen=True)
class Translation(GeneratedText):
    """One translation; `cut` tokens at the end of its input were too many to be read."""

    cut: int = 0


class Translator:
    """A translator and its tokenizers, to translate, score and measure."""

    def __init__(
        self,
        model: Seq2SeqModel,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer | None = None,
        *,
        run: Path | None = None,
        forbidden: ForbiddenTransitions | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """`told` is what the run knows of its data."""
        self.model, self.tokenizer, self.run, self.forbidden = model, tokenizer, run, forbidden
        self.source_tokenizer = source_tokenizer or tokenizer
        known = self.told = told or {}
        # tokens of a translation for one of its source, at most, or whatever it is
        self.ratio, self.longest = known.get("ratio", USUAL), int(known.get("longest", 0))
        self.side = int(known.get("resize", 0))  # pixels that pictures are brought to

    @cached_property
    def interpreting(self) -> TranslationRequest:
        """One for all that it translates, where the model is when the first is asked for."""
        return TranslationRequest(self.model)

    @property
    def sees(self) -> bool:
        """Are sources pictures?"""
        return isinstance(self.source_tokenizer, Patches)

    @property
    def makes(self) -> str:
        """What a translation is, in words."""
        return "caption" if self.sees else "translation"

    def sources(self, texts: Sequence[Any]) -> list[Any]:
        """What texts are read as: themselves or, of one that sees, the pictures at these paths;
        what is a picture already stays one.
        """
        return opened(texts, self.source_tokenizer, self.told)

    @overload
    def translate(
        self,
        texts: str | Path,
        strategy: Strategy | None = ...,
        *,
        max_new: int = ...,
        batch_size: int = ...,
        first: int = ...,
        names: Sequence[str] | None = ...,
    ) -> list[Translation]: ...

    @overload
    def translate(
        self,
        texts: Sequence[Any],
        strategy: Strategy | None = ...,
        *,
        max_new: int = ...,
        batch_size: int = ...,
        first: int = ...,
        names: Sequence[str] | None = ...,
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        texts: str | Path | Sequence[Any],
        strategy: Strategy | None = None,
        *,
        max_new: int = 0,
        batch_size: int = 64,
        first: int = 0,
        names: Sequence[str] | None = None,
    ) -> list[Translation] | list[list[Translation]]:
        """The translations of a text, or a list for each of several, best first: one, or the n best
        of a `Beam`. Where sources are pictures, a text is the path of one, or the picture itself;
        `names` are what they are called, if not as they are spelt.

        By default a beam of 5, ranked by log-probability per token. `max_new` limits the tokens of
        a translation (0: in proportion to the text). `batch_size` is how many rows are decoded
        together, beams counted. Samples of text i are drawn with the key (seed, first + i).
        """
        own = self.source_tokenizer
        several, one = one_or_many("texts", texts, own.reads, own.item)
        named = names or [str(x) if isinstance(x, str | Path) else "a picture" for x in several]
        asked = [i for i, name in enumerate(named) if name.strip()]
        read = self.sources([several[i] for i in asked])
        ids, lengths = self.source_tokenizer.encode_batch(read)
        sources = np.split(ids, np.cumsum(lengths)[:-1]) if asked else []
        found = self.answers(
            sources,
            strategy,
            max_new=max_new,
            batch_size=batch_size,
            keys=[first + i for i in asked],
        )
        results = [
            [Translation(name, "", [], score=0.0, finished=True, dead_end=False)] for name in named
        ]
        for i, source, made in zip(asked, sources, found, strict=True):
            cut = max(0, len(source) - self.room)
            results[i] = [self._translation(named[i], each, cut) for each in made]
        return results[0] if one else results

    @property
    def room(self) -> int:
        """The most tokens of a source that are read, `<E>` not counted; pictures are read whole."""
        return sys.maxsize if self.sees else int(self.model.config.max_len) - 1

    @property
    def context(self) -> TokenLimit | None:
        """What of a long source is used; pictures are read whole."""
        return None if self.sees else TokenLimit(self.room, self.room)

    def readable(self, source: Sequence[int] | np.ndarray) -> Sequence[int] | np.ndarray:
        """A source's ids without markers as the model reads them; a picture's tokens are."""
        if self.sees:
            return source
        return [*map(int, source[: self.room]), self.source_tokenizer.end]

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
        tokenizer = self.tokenizer
        return translate(
            self.model,
            [self.readable(source) for source in sources],
            strategy or Beam(width=5, length_penalty=1.0),
            start=tokenizer.start,
            end=tokenizer.end,
            pad=tokenizer.pad,
            banned=tokenizer.never_produced(self.model.vocab_size),
            constraint=self.forbidden,
            max_new=max_new or self.longest,
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

    def pairs(self, sources: Sequence[Any], targets: Sequence[str]) -> Shard:
        """Sources and targets as a shard in memory."""
        read = shard_of(self.sources(sources), self.source_tokenizer)
        return shard_of(targets, self.tokenizer).paired(read)

    @overload
    def score(self, pairs: tuple[Any, str]) -> ScoredRecord: ...

    @overload
    def score(self, pairs: Sequence[tuple[Any, str]]) -> list[ScoredRecord]: ...

    def score(
        self, pairs: tuple[Any, str] | Sequence[tuple[Any, str]]
    ) -> ScoredRecord | list[ScoredRecord]:
        """What each symbol of the target costs, for a (source, target), or for each of several."""
        several, one = one_or_many("pairs", pairs, self._is_pair, "a tuple (source, target)")
        if not several:
            return []
        sources, targets = map(list, zip(*several, strict=True))
        answered = shard_of(self.sources(sources), self.source_tokenizer)
        found = score(
            self.model, self.tokenizer, targets, constrain=self.forbidden, sources=answered
        )
        return found[0] if one else found

    def _is_pair(self, value: object) -> bool:
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)
        return pair and self.source_tokenizer.reads(value[0])  # type: ignore[index]

    def measure(self, shard: Shard) -> TokenLosses:
        """What the targets of a shard of pairs cost, by pair."""
        return measure(self.model, shard, self.tokenizer, constrain=self.forbidden)
