"""The pipeline of sequence-to-sequence models: translate texts or caption images, score, evaluate.

The model reads a source as `a b c <E>`. A source with more tokens than max_len is truncated; an
empty source has an empty translation. If sources are images, a translation is a caption.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.inputs import InputReader, Item, RecordNotes, TokenLimit, quiet
from regard.data.shards import Shard
from regard.decoding import Beam, ForbiddenTransitions, Generated, Strategy
from regard.decoding.engine import RATIO, TranslationSession, translate
from regard.errors import UserError
from regard.evaluation.bootstrap import Floats
from regard.evaluation.eval_data import pair_items, pairs_from, shard_of
from regard.evaluation.language_modeling import ScoredRecord, TokenLosses, measure, score
from regard.evaluation.record_errors import RecordErrors, errors_of_tokens
from regard.evaluation.translation import TranslationReport, measure_translation
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.seq2seq import Seq2SeqModel
from regard.pipelines import (
    MOST_RECORDS,
    EvaluationRequest,
    Pipeline,
    PreparedInput,
    one_or_many,
)
from regard.pipelines.generator import REQUEST, GeneratedText
from regard.pipelines.vector_sets import VectorSet, token_table
from regard.run import Run
from regard.tokenizers import Tokenizer


@dataclass(frozen=True)
class Translation(GeneratedText):
    """A translation; the last `cut` tokens of its source were beyond the context of the model."""

    cut: int = 0


class Translator(Pipeline):
    """A sequence-to-sequence model, to translate texts or caption images, to score and measure."""

    task = "target"
    reads_source = True
    activities = ("translate",)

    def __init__(
        self,
        model: Seq2SeqModel,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer | None = None,
        *,
        run: Run | None = None,
        forbidden: ForbiddenTransitions | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """`data` is the metadata of the training data, if there is no run yet."""
        super().__init__(model, tokenizer, run)
        self._source_tokenizer, self.forbidden = source_tokenizer or tokenizer, forbidden
        self._data = data
        # at most so many tokens of a translation for each of its source, and for any source
        self.ratio, self.longest = self.data.get("ratio", RATIO), int(self.data.get("longest", 0))

    @property
    def data(self) -> Mapping[str, Any]:
        return super().data if self._data is None else self._data

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._source_tokenizer

    @cached_property
    def session(self) -> TranslationSession:
        """The session of all calls, on the device where the model is at the first of them."""
        return TranslationSession(self.model)

    @property
    def makes(self) -> str:
        """ "translation" or, if sources are images, "caption"."""
        return "translation" if self.source_tokenizer.reads_text else "caption"

    def sources(self, texts: Sequence[Any]) -> list[Any]:
        """Return the sources: texts, or images that may be given by their paths."""
        return list(self.modality.open_all(texts, self.source_tokenizer))

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
        """Return the translations of a text, best first, or a list of these for a list of texts:
        one translation, or the n best of a `Beam`.

        Images may be given by their paths. `names` are the inputs of the translations, by default
        the texts. The default strategy is a beam of 5, ranked by log-probability per token.
        `max_new` limits the tokens of a translation (0: in proportion to the text). `batch_size`
        counts rows that are decoded at once, including beams. Samples of text i are drawn with the
        key (seed, first + i).
        """
        tokenizer = self.source_tokenizer
        items, one = one_or_many("texts", texts, tokenizer.reads, tokenizer.item)
        names = names or [str(x) if isinstance(x, str | Path) else "a picture" for x in items]
        filled = [i for i, name in enumerate(names) if name.strip()]
        ids, lengths = tokenizer.encode_batch(self.sources([items[i] for i in filled]))
        sources = np.split(ids, np.cumsum(lengths)[:-1]) if filled else []
        keys = [first + i for i in filled]
        sequences = self.translate_ids(
            sources, strategy, max_new=max_new, batch_size=batch_size, keys=keys
        )
        results = [
            [Translation(name, "", [], score=0.0, finished=True, dead_end=False)] for name in names
        ]
        for i, source, candidates in zip(filled, sources, sequences, strict=True):
            cut = max(0, len(source) - self.max_source)
            results[i] = [self._translation(names[i], each, cut) for each in candidates]
        return results[0] if one else results

    @property
    def max_source(self) -> int:
        """The most tokens of a source, without `<E>`; images have no limit."""
        cuttable = self.source_tokenizer.cuttable
        return int(self.model.config.max_len) - 1 if cuttable else sys.maxsize

    @property
    def context(self) -> TokenLimit | None:
        limit = self.max_source
        return TokenLimit(limit, limit) if self.source_tokenizer.cuttable else None

    def readable(self, source: Sequence[int] | np.ndarray) -> Sequence[int] | np.ndarray:
        """Return the ids of a source, truncated and with `<E>`; tokens of images are unchanged."""
        if not self.source_tokenizer.cuttable:
            return source
        return [*map(int, source[: self.max_source]), self.source_tokenizer.end]

    def translate_ids(
        self,
        sources: Sequence[Sequence[int] | np.ndarray],
        strategy: Strategy | None = None,
        *,
        max_new: int = 0,
        batch_size: int = 64,
        keys: Sequence[int] | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Generated]]:
        """Translate sources given as ids without markers, into ids; `keys` seed the samples.

        With `prefixes`, the beginning of each translation as ids, what follows it is returned.
        """
        tokenizer, most = self.tokenizer, int(self.model.config.max_len)
        longest = max(map(len, prefixes or ()), default=0)
        if longest >= most:
            raise UserError(
                f"a beginning of {longest:,} tokens leaves no room: the model writes {most:,}"
            )
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
            session=self.session,
            keys=keys,
            prefixes=prefixes,
        )

    def _translation(self, text: str, sequence: Generated, cut: int) -> Translation:
        return Translation(
            input=text,
            text=self.tokenizer.decode(sequence.ids),
            tokens=[self.tokenizer.text(i) for i in sequence.ids],
            score=sequence.score,
            finished=sequence.finished,
            dead_end=sequence.dead_end,
            cut=cut,
        )

    def pairs(self, sources: Sequence[Any], targets: Sequence[str]) -> Shard:
        """Return sources and targets as a shard in memory."""
        inputs = shard_of(self.sources(sources), self.source_tokenizer)
        return shard_of(targets, self.tokenizer).paired(inputs)

    @overload
    def score(self, pairs: tuple[Any, str]) -> ScoredRecord: ...

    @overload
    def score(self, pairs: Sequence[tuple[Any, str]]) -> list[ScoredRecord]: ...

    def score(
        self, pairs: tuple[Any, str] | Sequence[tuple[Any, str]]
    ) -> ScoredRecord | list[ScoredRecord]:
        """Return the log-probabilities of the target of a pair (source, target), or a list of these
        for a list of pairs.
        """
        items, one = one_or_many("pairs", pairs, self._is_pair, "a tuple (source, target)")
        if not items:
            return []
        sources, targets = map(list, zip(*items, strict=True))
        inputs = shard_of(self.sources(sources), self.source_tokenizer)
        records = score(
            self.model, self.tokenizer, targets, constrain=self.forbidden, sources=inputs
        )
        return records[0] if one else records

    def _is_pair(self, value: object) -> bool:
        pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)
        return pair and self.source_tokenizer.reads(value[0])  # type: ignore[index]

    def example(self, most: int) -> tuple[Any, str]:
        """Return the first held-out pair."""
        shard = self.held_out()[1]
        assert shard.source is not None
        source = self.source_tokenizer.decode_record(shard.source.record(0))
        return source, self.tokenizer.decode([int(i) for i in shard.record(0)][1:-1])

    def score_example(self, example: tuple[Any, str]) -> tuple[list[str], list[float]]:
        """Return the tokens of the target of a pair and their log-probabilities."""
        scored = self.score(example)
        return scored.tokens, scored.log_probs

    def score_files(
        self, files: Sequence[Path], reader: InputReader, log: Any
    ) -> tuple[Iterator[list[Item]], RecordNotes]:
        """Return the pairs of files, and an object for notes."""
        items = pair_items(files, self.modality, reader, log)
        return items, RecordNotes(self.source_tokenizer, self.context, self.tokenizer)

    def score_items(self, items: Sequence[Item]) -> list[ScoredRecord]:
        """Return the log-probabilities of the targets of pairs."""
        return self.score([(item.text, item.second) for item in items])

    def losses(self, shard: Shard) -> TokenLosses:
        """Return the losses of the targets of a shard of pairs, by pair."""
        return measure(self.model, shard, self.tokenizer, constrain=self.forbidden)

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        if item:
            text = target or self.translate([item])[0][0].text
            shard = self.pairs([item], [text])
        else:
            shard = self.held_out_record(record)
        assert shard.source is not None
        record_ids = shard.source.record(0)
        cuttable = self.source_tokenizer.cuttable  # an image has no end
        read = self.readable(self.source_tokenizer.content(record_ids) if cuttable else record_ids)
        row = torch.from_numpy(np.array(read, np.int64))[None]  # (1, S) or (1, N, V)
        source = Inputs(row, torch.ones(row.shape[:2], dtype=torch.int64))
        most = int(self.model.config.max_len)
        ids = torch.from_numpy(np.array(shard.record(0)[:-1][:most], np.int64))[None]  # (1, T)
        model = self.model.condition(source)

        def run(tap: Tap) -> torch.Tensor:
            model.set_source(source, tap=tap)
            logits: torch.Tensor = model.logits(ids, tap=tap)
            return logits

        return PreparedInput({"source": row, "ids": ids}, run)

    def record_errors(self, most: int = MOST_RECORDS) -> RecordErrors:
        split, shard, numbers = self.held_out_part(most)
        assert shard.source is not None
        errors = errors_of_tokens(self.model, shard, self.tokenizer, split, numbers, self.forbidden)
        texts = [self.source_text(shard.source, i) for i in range(shard.records)]
        return replace(errors, texts=texts, truths=errors.texts)

    def describe_records(self, numbers: Sequence[int]) -> list[str]:
        sources = [self.held_out_source(number) for number in numbers]
        sequences = self.translate_ids(sources, keys=numbers)
        return [self.tokenizer.decode(best.ids) for best, *_ in sequences]

    def source_text(self, sources: Shard, number: int) -> str:
        """Return a source as a text, or its number where it is none."""
        tokenizer = self.source_tokenizer
        if not tokenizer.reads_text:
            return f"{tokenizer.words[0]} {number + 1:,}"
        return str(tokenizer.decode_record(sources.record(number)))

    def held_out_source(self, number: int) -> NDArray[Any]:
        """Return the ids of the source of a held-out record, without markers."""
        shard = self.held_out()[1]
        assert shard.source is not None
        record = shard.source.record(number)
        # an image has its marker inside
        return self.source_tokenizer.content(record) if shard.source.cuttable else record

    @property
    def vector_sets(self) -> Mapping[str, Callable[[int], VectorSet]]:
        parts = {
            "target tokens": (getattr(self.model, "decoder", self.model), self.tokenizer),
            "source tokens": (getattr(self.model, "encoder", self.model), self.source_tokenizer),
        }
        tables = {name: token_table(*part) for name, part in parts.items()}
        return {name: table for name, table in tables.items() if table is not None}

    def record_losses(self, shard: Shard) -> tuple[Floats, Floats]:
        losses = self.losses(shard)
        return losses.nats, losses.tokens

    def read(
        self, files: Sequence[Path], reader: InputReader, *, strict: bool = False, log: Any = quiet
    ) -> Shard:
        return pairs_from(
            files,
            self.tokenizer,
            self.source_tokenizer,
            self.modality,
            reader,
            strict=strict,
            log=log,
        )

    def measure(self, shard: Shard, request: EvaluationRequest = REQUEST) -> TranslationReport:
        """Translate the sources of a shard; return quality and losses."""
        strategy = request.strategy(self.tokenizer) if request.strategy else None
        return measure_translation(self, shard, strategy, progress=request.progress, **request.bleu)

    def describe(
        self, report: TranslationReport, request: EvaluationRequest
    ) -> tuple[dict[str, Any], str]:
        document, line = super().describe(report.losses, request)
        document["strategy"] = request.strategy_name
        document["signatures"] = {name: one.signature for name, one in report.quality.items()}
        for name in ("bleu", "chrf"):
            line += f"\n{name}: {report.quality[name].signature}"
        if request.strategy_name != "beam":
            line += f"\ntranslated by {request.strategy_name}"
        return document, line
