"""The pipeline of models that predict labels or values.

Models of words often use tags with prefixes: `B-PER I-PER O` marks one person of two words (Ramshaw
and Marcus 1995, arXiv:cmp-lg/9505040). With `E-` or `L-` for the last word and `S-` or `U-` for a
single one, the scheme is called BIOES or BILOU. `merge_spans` joins tagged words into spans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data import Progress, no_progress
from regard.data.batching import Ints, LabelledExamples
from regard.data.in_memory import input_columns
from regard.data.inputs import InputReader, TokenLimit, quiet
from regard.data.shards import Shard
from regard.data.sources import Views
from regard.data.targets import PRESENT, Targets, as_labels
from regard.decoding.engine import device_of, evaluating
from regard.errors import UserError
from regard.evaluation import Report, to_document
from regard.evaluation.bootstrap import Floats
from regard.evaluation.eval_data import labelled_from, shard_of
from regard.evaluation.predictions import (
    PREDICTIONS,
    Predictions,
    load_intervals,
    load_predictions,
    predict_shard,
)
from regard.evaluation.record_errors import RecordErrors, errors_of_predictions
from regard.layers.embeddings import Inputs
from regard.models.supervised import SupervisedModel
from regard.pipelines import (
    MOST_RECORDS,
    Evaluation,
    EvaluationRequest,
    Pipeline,
    PreparedInput,
    one_or_many,
    spaced,
)
from regard.pipelines.generator import REQUEST
from regard.pipelines.vector_sets import VectorSet
from regard.run import Run
from regard.storage import StoredIntervals
from regard.tokenizers import Tokenizer

OUTSIDE = "O"
TAG = re.compile(r"([BIELSU])-(.+)")
FIRST, LAST = "BSU", "ELSU"  # prefixes that begin and that end a span


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` of a text with their label, its probability (`score`), and that
    of every label (`scores`); averages, if the span has more than one word.
    """

    text: str
    start: int
    end: int
    label: str
    scores: dict[str, float]
    score: float

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `words` or `spans` in `regard predict --json`."""
        keys = ("text", "start", "end", "label", "score")
        return {key: getattr(self, key) for key in keys}


def tag_words(classes: Sequence[str]) -> bool:
    """Return whether labels are tags with prefixes, such as O, B-PER and I-PER."""
    others = [name for name in classes if name != OUTSIDE]
    return bool(others) and all(TAG.fullmatch(name) for name in others)


def merge_spans(text: str, words: Sequence[Span]) -> list[Span]:
    """Join tagged words into spans, labelled by the type of their tags; words outside of spans stay
    single. An `I-` that continues no span starts one.
    """
    groups: list[tuple[str, list[Span]]] = []
    previous = ""  # the prefix of the word before
    for word in words:
        match = TAG.fullmatch(word.label)
        prefix, kind = match.groups() if match else ("", OUTSIDE)
        starts = not match or not previous or prefix in FIRST or previous in LAST
        if starts or groups[-1][0] != kind:
            groups.append((kind, []))
        groups[-1][1].append(word)
        previous = prefix
    return [join_spans(text, kind, group) for kind, group in groups]


def join_spans(text: str, label: str, words: Sequence[Span]) -> Span:
    """Join consecutive words into one span."""
    start, end, count = words[0].start, words[-1].end, len(words)
    scores = {name: sum(word.scores[name] for word in words) / count for name in words[0].scores}
    score = sum(word.score for word in words) / count
    return Span(text[start:end], start, end, label, scores, score)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one text.

    `label` is the most probable class, the labels with a probability of at least one half, joined
    by commas, or the most probable labels of all positions or words; values have no label. `scores`
    are probabilities by class, or values by name, and `low` and `high` the ends of the intervals of
    these values, where they are known (`Predictor.intervals`); `positions` are the probabilities of
    the labels of positions. Models of words fill `words` and `spans`, words joined by tags (B-PER,
    I-PER).
    """

    text: str
    label: str
    scores: dict[str, float]
    positions: tuple[float, ...] | None = None
    words: tuple[Span, ...] | None = None
    spans: tuple[Span, ...] = ()
    low: dict[str, float] = field(default_factory=dict)
    high: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `regard predict --json`."""
        entry: dict[str, Any] = {"text": self.text, "prediction": self.label or self.scores}
        if self.label:
            entry["probabilities"] = self.scores
        if self.low:
            entry |= {"low": self.low, "high": self.high}
        if self.positions is not None:
            entry["positions"] = list(self.positions)
        if self.words is not None:
            entry["words"] = [word.to_json() for word in self.words]
            entry["spans"] = [span.to_json() for span in self.spans]
        return entry


class Predictor(Pipeline):
    """A model of labels or values; with `views`, predictions are averaged over those of a text."""

    def __init__(
        self,
        model: SupervisedModel,
        tokenizer: Tokenizer,
        targets: Targets,
        run: Run | None = None,
        views: Views | None = None,
    ) -> None:
        super().__init__(model, tokenizer, run)
        self.targets, self.views = targets, views

    @property
    def task(self) -> str:  # type: ignore[override]
        return self.targets.task

    @property
    def labels_words(self) -> bool:
        """Whether the model labels each word of a text."""
        return self.targets.kind.aligned and self.tokenizer.word_spans("") is not None

    def shard(self, texts: Sequence[Any], seconds: Sequence[str] | None = None) -> Shard:
        """Return texts, or pairs of texts, as an unlabelled shard."""
        texts = self.modality.open_all(texts, self.tokenizer)
        shard = shard_of(self.views.texts(texts) if self.views else texts, self.tokenizer)
        if self.views:
            shard = replace(shard, views=self.views.count)
        if seconds is not None:
            shard = shard.paired(shard_of(seconds, self.tokenizer))
        kind = self.targets.kind
        targets = kind.unlabelled(self.targets, shard.records, shard.tokens)
        return replace(shard, targets=targets, aligned=kind.aligned)

    @property
    def classes(self) -> NDArray[Any]:
        """The classes in the order of `predict_proba`: numbers where all are whole numbers."""
        return as_labels(self.targets.classes[0] if self.targets.kind.single else ())

    def predict(self, items: Any, seconds: Any = None) -> Any:
        """Return the predictions for items as an array: the class of each (R,), a number where all
        classes are whole numbers; values (R,), or (R, n) of several; 0 or 1 for each of several
        labels (R, n); or a list of arrays, with a label for each position or word.

        Items are a list, an array, a series, or a frame with the columns that the run was trained
        on: texts, images and series as they were in training, or paths of files. One item has one
        prediction. Of pairs, `seconds` are the second texts. None or NaN is an error that names its
        position; an empty text has no prediction: None, or NaN in place of a value.
        """
        outputs, one = self._outputs(*self._items(items, seconds))
        results = self.targets.kind.decode(self.targets, [rows for _, rows in outputs])
        if not one:
            return results
        return results[0].item() if isinstance(results[0], np.generic) else results[0]

    def predict_proba(self, items: Any, seconds: Any = None) -> Any:
        """Return probabilities: (R, C) of the `classes`, (R, n) of each of several labels, or a
        list of (T, C) where each position or word has a label; for one item, its row.
        """
        if not self.labels:
            raise UserError("this run predicts values, which have no probabilities")
        outputs, one = self._outputs(*self._items(items, seconds))
        results = self.targets.kind.probabilities(self.targets, [rows for _, rows in outputs])
        return results[0] if one else results

    @overload
    def predictions(self, items: str | Path, seconds: str | None = ...) -> Prediction: ...

    @overload
    def predictions(self, items: Any, seconds: Any = ...) -> list[Prediction]: ...

    def predictions(self, items: Any, seconds: Any = None) -> Prediction | list[Prediction]:
        """Return what `predict` predicts with all probabilities, positions and words: a Prediction,
        or a list of them; it is empty for an empty text.
        """
        outputs, one = self._outputs(*self._items(items, seconds))
        results = [self._prediction(text, rows) for text, rows in outputs]
        return results[0] if one else results

    def _items(self, items: Any, seconds: Any) -> tuple[list[Any], list[str] | None, bool]:
        """Return items as a list, their second texts, and whether it is a single item."""
        tokenizer = self.tokenizer
        chosen, *others = input_columns(items, self.reader.inputs)
        single = tokenizer.reads_alone
        first, one = one_or_many("items", chosen, tokenizer.reads, tokenizer.item, single)
        seconds = others[0] if others else seconds
        more = None if seconds is None else one_or_many("seconds", seconds)[0]
        if more is not None and len(more) != len(first):
            raise ValueError(f"seconds must be as many as items, got {len(more)} and {len(first)}")
        return first, more, one

    def _outputs(
        self, items: Sequence[Any], seconds: Sequence[str] | None, one: bool
    ) -> tuple[list[tuple[str, Any]], bool]:
        """Return each text, "" for items of another kind, with its probabilities or values, None of
        an empty text; and `one`.
        """
        results: list[tuple[str, Any]] = [(x if isinstance(x, str) else "", None) for x in items]
        filled = [i for i, item in enumerate(items) if not isinstance(item, str) or item.strip()]
        if not filled:
            return results, one
        others = None if seconds is None else [seconds[i] for i in filled]
        predicted = self.predict_shard(self.shard([items[i] for i in filled], others))
        rows = self.model.output.probabilities(torch.from_numpy(predicted.scores)).numpy()
        ends = np.cumsum(predicted.lengths).tolist()
        for i, end, length in zip(filled, ends, predicted.lengths.tolist(), strict=True):
            part = rows[end - length : end]
            text = results[i][0]
            results[i] = text, self._positions(text, part) if predicted.positional else part[0]
        return results, one

    def _positions(self, text: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of the positions of a text or, if tokens are parts of words, of its
        words: a word has the label of its first token, as in training.
        """
        before, after = self.tokenizer.markers
        rows = rows[before : len(rows) - after]
        spans = self.tokenizer.word_spans(text)
        if spans is None:
            return rows
        # texts longer than the context are truncated
        return rows[[token for _, _, token in spans if token < len(rows)]]

    def _prediction(self, text: str, rows: Any) -> Prediction:
        kind, names = self.targets.kind, self.targets.names
        if rows is None:
            return Prediction(text, "", {}, words=() if self.labels_words else None)
        if kind.per_column:
            scores = dict(zip(names, rows.tolist(), strict=True))
            present = [name for name, p in scores.items() if p >= PRESENT]
            label = ",".join(present) if kind.categorical else ""
            reach = self.intervals["reach"] if self.intervals else {}
            low = {name: scores[name] - distance for name, distance in reach.items()}
            high = {name: scores[name] + distance for name, distance in reach.items()}
            return Prediction(text, label, scores, low=low, high=high)
        if kind.aligned:
            return self._label_positions(text, rows)
        classes = self.targets.classes[0]
        best = classes[int(rows.argmax())]
        return Prediction(text, best, dict(zip(classes, rows.tolist(), strict=True)))

    def _label_positions(self, text: str, rows: NDArray[Any]) -> Prediction:
        """Return the prediction for the positions (T, C) of a text, or for its words."""
        classes = self.targets.classes[0]
        labels, best = [classes[i] for i in rows.argmax(1)], tuple(rows.max(1).tolist())
        mean = {"mean": sum(best) / len(best) if best else 1.0}
        spans = self.tokenizer.word_spans(text)
        if spans is None:
            join = "".join if max(map(len, classes)) == 1 else " ".join
            return Prediction(text, join(labels), mean, best)
        words = [
            Span(text[start:end], start, end, label, dict(zip(classes, row, strict=True)), max(row))
            for (start, end, _), label, row in zip(spans, labels, rows.tolist(), strict=False)
        ]  # texts longer than the context have fewer rows than words
        merged = merge_spans(text, words) if tag_words(classes) else words
        return Prediction(text, " ".join(labels), mean, words=tuple(words), spans=tuple(merged))

    @cached_property
    def intervals(self) -> StoredIntervals | None:
        """How far true values lie from predicted ones, at which level; None if that is not known.

        It is the largest error on so many of the validation records (conformal prediction), and
        holds for records that are like these.
        """
        return load_intervals(self.run.path) if self.run is not None else None

    @property
    def labels(self) -> bool:
        """Whether predictions have labels; otherwise they are values."""
        return self.targets.kind.categorical

    @property
    def context(self) -> TokenLimit | None:
        """How much of a long record is used; None for images and point clouds."""
        limit = self.tokenizer.content_limit(int(self.model.config.max_len))
        return None if limit is None else TokenLimit(limit, limit)

    @overload
    def embed(
        self, texts: str | Path, *, seconds: str | None = ..., positions: bool = ...
    ) -> NDArray[np.float32]: ...

    @overload
    def embed(
        self, texts: Sequence[Any], *, seconds: Sequence[str] | None = ..., positions: bool = ...
    ) -> list[NDArray[np.float32]]: ...

    def embed(
        self,
        texts: str | Path | Sequence[Any],
        *,
        seconds: str | Sequence[str] | None = None,
        positions: bool = False,
    ) -> NDArray[np.float32] | list[NDArray[np.float32]]:
        """Return the vector (D,) of a text, with `positions` those of its tokens (T, D), or a list
        for a list of texts; no other views are used. Of pairs, `seconds` are the second texts.
        """
        items, more, one = self._items(texts, seconds)
        vectors = self.vectors(self.shard(items, more), positions=positions) if items else []
        return vectors[0] if one else vectors

    @torch.inference_mode()
    def vectors(
        self, shard: Shard, records: Ints | None = None, *, positions: bool = False
    ) -> list[NDArray[np.float32]]:
        """Return the vectors of the records of a shard, or of `records`, in their order."""
        model = self.model
        if not hasattr(model, "embed"):
            raise UserError(f"{type(model).__name__} has no vectors to embed texts by")
        by_record: dict[int, NDArray[np.float32]] = {}
        before, after = self.tokenizer.markers
        examples = LabelledExamples(shard, self.tokenizer, int(model.config.max_len), first=True)
        with evaluating(model):
            for batch in examples.batches(1 << 14, records):
                assert batch.segments is not None
                inputs = Inputs(batch.ids, batch.segments).to(device_of(model))
                vectors = (model.vectors if positions else model.embed)(inputs).float().cpu()
                for row, record in enumerate(batch.items.tolist()):
                    inner = slice(before, int(examples.lengths[record]) - after)
                    by_record[record] = (vectors[row][inner] if positions else vectors[row]).numpy()
        return [by_record[i] for i in (sorted(by_record) if records is None else records.tolist())]

    def read(
        self, files: Sequence[Path], reader: InputReader, *, strict: bool = False, log: Any = quiet
    ) -> Shard:
        return labelled_from(
            files,
            self.tokenizer,
            self.targets,
            self.modality,
            reader,
            views=self.views,
            strict=strict,
            log=log,
        )

    def predict_shard(self, shard: Shard, progress: Progress = no_progress) -> Predictions:
        """Return predictions for the records of a labelled shard, with the true targets."""
        with evaluating(self.model):
            return predict_shard(self.model, shard, self.tokenizer, self.targets, progress)

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        shard = self.shard([item]) if item else self.held_out_record(record)
        if shard.targets is None:  # of masked tokens: nothing is compared here
            shard = replace(shard, targets=np.zeros(shard.records, np.int32))
        most = int(self.model.config.max_len)
        examples = LabelledExamples(shard, self.tokenizer, most, first=True)
        (batch,) = examples.batches(1)
        assert batch.segments is not None
        source = Inputs(batch.ids, batch.segments)
        return PreparedInput({"ids": batch.ids}, lambda tap: self.model.predict(source, tap=tap))

    @property
    def has_targets(self) -> bool:
        return self.targets.kind.written

    def record_errors(self, most: int = MOST_RECORDS) -> RecordErrors:
        split, shard, numbers = self.held_out_part(most)
        predictions, count = self.held_out_predictions(most), len(numbers)
        texts = [self.record_text(shard, i) for i in range(count)]
        lengths = np.diff(shard.offsets)[:: shard.views] - sum(self.tokenizer.markers)
        return errors_of_predictions(predictions, split, numbers, texts, lengths)

    def held_out_predictions(self, most: int = MOST_RECORDS) -> Predictions:
        """Return the predictions for the records of `held_out_part`: those stored when training
        ended, if there are as many, or new ones.
        """
        _, shard, numbers = self.held_out_part(most)
        if self.run is not None and (self.run / PREDICTIONS).exists():
            stored = load_predictions(self.run.path)
            if stored.records == len(numbers):
                return stored
        return self.predict_shard(shard)

    def record_text(self, shard: Shard, number: int) -> str:
        """Return a record as a text, or its number where it is none."""
        tokenizer = self.tokenizer
        if not tokenizer.reads_text:
            return f"{tokenizer.words[0]} {number + 1:,}"
        text = str(tokenizer.decode_record(shard.record(number * shard.views)))
        if shard.source is None:
            return text
        second = tokenizer.decode_record(shard.source.record(number * shard.views))
        return f"{text} | {second}"

    @property
    def vector_sets(self) -> Mapping[str, Callable[[int], VectorSet]]:
        tables = dict(super().vector_sets)
        return {"records": self.record_vectors, **tables} if self.embeds else tables

    @property
    def embeds(self) -> bool:
        """Whether the model has a vector for each record."""
        return hasattr(self.model, "embed")

    def record_vectors(self, most: int) -> VectorSet:
        """Return the vectors of at most so many held-out records, evenly spaced."""
        shard = self.held_out()[1]
        if shard.targets is None:  # of masked tokens there are none
            none = self.targets.kind.unlabelled(self.targets, shard.records, shard.tokens)
            shard = replace(shard, targets=none)
        chosen = spaced(shard.records // shard.views, most)
        names = [self.record_text(shard, int(i)) for i in chosen]
        return VectorSet(names, np.stack(self.vectors(shard, chosen)), records=chosen)

    def record_losses(self, shard: Shard) -> tuple[Floats, Floats]:
        return self.predict_shard(shard).losses()

    def check_comparable(self, other: Any) -> None:
        super().check_comparable(other)
        if other.targets != self.targets:
            raise UserError(f"{other.run} predicts other targets or classes than {self.run}")

    def measure(self, shard: Shard, request: EvaluationRequest = REQUEST) -> Report:
        """Return the metrics on a labelled shard."""
        return self.predict_shard(shard, request.progress).report

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        name, shard = self._shard(request)
        self._log_notes(shard, request)
        predictions = self.predict_shard(shard, request.progress)
        report, count = predictions.report, predictions.records
        document = {
            "split": name,
            "task": self.task,
            "records": count,
            "metrics": to_document(report.metrics()),
        }
        return Evaluation({name: report}, document, [f"{count:,} records"])
