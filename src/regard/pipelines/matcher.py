"""The pipeline of contrastive models: embed, find texts for sources and sources for texts, and
predict classes that are named in words (Radford et al. 2021, arXiv:2103.00020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import LabelledExamples
from regard.data.inputs import InputReader, TokenLimit, quiet
from regard.data.matched_pairs import distinct_records
from regard.data.shards import Shard
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError
from regard.evaluation.eval_data import pairs_from, shard_of
from regard.evaluation.retrieval import RetrievalResult, measure_retrieval
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.contrastive import PairEncoder
from regard.pipelines import EvaluationRequest, Pipeline, PreparedInput, one_or_many
from regard.pipelines.generator import REQUEST
from regard.pipelines.predictor import Prediction
from regard.pipelines.vector_sets import VectorSet
from regard.registry import MODALITIES
from regard.run import Run
from regard.tokenizers import Tokenizer

BATCH_TOKENS = 1 << 14
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Match:
    """A candidate that was found: its number among all candidates, its name, and the cosine of the
    angle between its vector and that of the query.
    """

    number: int
    name: str
    score: float

    def to_json(self) -> dict[str, Any]:
        return {"id": self.number, "name": self.name, "score": self.score}


@dataclass(frozen=True, eq=False)
class Candidates:
    """Vectors (N, E) to choose from, and the name of each."""

    names: Sequence[str]
    vectors: Vectors

    def nearest(self, queries: Vectors, num: int) -> list[list[Match]]:
        """Return the nearest candidates of each query (Q, E), the nearest first."""
        scores = queries @ self.vectors.T  # (Q, N)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :num]
        return [
            [Match(int(i), self.names[i], float(row[i])) for i in numbers]
            for row, numbers in zip(scores, order, strict=True)
        ]


class Matcher(Pipeline):
    """A model that tells which text belongs to which source: an image or another text."""

    task = "contrastive"
    reads_source = True
    model: PairEncoder

    def __init__(
        self,
        model: PairEncoder,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer,
        run: Run | None = None,
    ) -> None:
        super().__init__(model, tokenizer, run)
        self._source_tokenizer = source_tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self._source_tokenizer

    @property
    def context(self) -> TokenLimit | None:
        limit = self.source_tokenizer.content_limit(int(self.model.config.max_len))
        return None if limit is None else TokenLimit(limit, limit)

    @property
    def texts(self) -> TextEmbedder:
        """The half that embeds texts, as a pipeline of its own."""
        return TextEmbedder(self)

    def embed(self, items: Any, *, seconds: object = None, positions: bool = False) -> Any:
        """Return the vector (E,) of a source, of length 1, or a list for a list of sources. Images
        may be given by their paths.
        """
        if positions or seconds is not None:
            raise UsageError("a contrastive model has one vector for each record, none for tokens")
        tokenizer = self.source_tokenizer
        sources, one = one_or_many(
            "items", items, tokenizer.reads, tokenizer.item, tokenizer.reads_alone
        )
        opened = self.modality.open_all(sources, tokenizer)
        vectors = self._vectors(opened, tokenizer, self.model.embed_sources)
        return vectors[0] if one else list(vectors)

    def embed_texts(self, texts: Any) -> Any:
        """Return the vector (E,) of a text, of length 1, or a list for a list of texts."""
        items, one = one_or_many("texts", texts)
        vectors = self._vectors(items, self.tokenizer, self.model.embed_texts)
        return vectors[0] if one else list(vectors)

    @torch.inference_mode()
    def _vectors(
        self, items: Sequence[Any], tokenizer: Tokenizer, embed: Callable[[Inputs], torch.Tensor]
    ) -> Vectors:
        """Return the vectors (N, E) of items."""
        if not items:
            return np.zeros((0, 1), np.float32)
        shard = shard_of(items, tokenizer)
        shard = replace(shard, targets=np.zeros(shard.records, np.int32))
        examples = LabelledExamples(shard, tokenizer, int(self.model.config.max_len))
        rows: dict[int, Vectors] = {}
        with evaluating(self.model):
            for batch in examples.batches(BATCH_TOKENS):
                assert batch.segments is not None
                inputs = Inputs(batch.ids, batch.segments).to(device_of(self.model))
                vectors = embed(inputs).float().cpu().numpy()
                rows |= dict(zip(batch.items.tolist(), vectors, strict=True))
        return np.stack([rows[i] for i in range(len(items))])

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        """Return a source and a text, by default the held-out text that matches it best; without a
        source, a held-out pair.
        """
        if item:
            text = target or self.find_texts(item, num=1)[0].name
            opened = self.modality.open_all([item], self.source_tokenizer)
            texts = shard_of([text], self.tokenizer)
            sources = shard_of(opened, self.source_tokenizer)
        else:
            texts = self.held_out_record(record)
            assert texts.source is not None
            sources = texts.source
        most = int(self.model.config.max_len)
        row = torch.from_numpy(np.array(sources.record(0)))[None]
        if self.source_tokenizer.cuttable:
            row = row[:, :most].long()
        ids = torch.from_numpy(np.array(texts.record(0)[:most], np.int64))[None]
        source = Inputs(row, torch.ones(row.shape[:2], dtype=torch.int64))
        text_inputs = Inputs(ids, torch.ones_like(ids))

        def run(tap: Tap) -> torch.Tensor:
            one = self.model.embed_sources(source, tap=tap)
            return (one * self.model.embed_texts(text_inputs, tap=tap)).sum(-1, keepdim=True)

        return PreparedInput({"source": row, "ids": ids}, run)

    def sources_among(
        self, items: Sequence[Any] | None = None, names: Sequence[str] = ()
    ) -> Candidates:
        """Return sources to choose from: items, which may have names, or the different ones that
        are held out.
        """
        if items is not None:
            numbered = [
                str(x) if isinstance(x, str | Path) else str(i) for i, x in enumerate(items)
            ]
            return Candidates(names or numbered, np.stack(self.embed(list(items))))
        split, shard = self.held_out()
        assert shard.source is not None
        part, records = _different(shard.source)
        tokenizer = self.source_tokenizer
        items = [tokenizer.decode_record(record) for record in part]
        name = f"{split} {tokenizer.words[0]}"
        names = items if tokenizer.reads_text else [f"{name} {i}" for i in records]
        return Candidates(names, self._vectors(items, tokenizer, self.model.embed_sources))

    def texts_among(
        self, texts: Sequence[str] | None = None, names: Sequence[str] = ()
    ) -> Candidates:
        """Return texts to choose from: the given ones, which may have names, or the different ones
        that are held out.
        """
        if texts is None:
            shard = self.held_out()[1]
            texts = [self.tokenizer.decode_record(record) for record in _different(shard)[0]]
        return Candidates(names or texts, np.stack(self.embed_texts(list(texts))))

    @property
    def vector_sets(self) -> Mapping[str, Callable[[int], VectorSet]]:
        return {"sources and texts": self._shared_space}

    def _shared_space(self, most: int) -> VectorSet:
        """Return the vectors of different held-out sources and texts, of either at most half."""
        sources, texts = self.sources_among(), self.texts_among()
        half = most // 2
        names = [*sources.names[:half], *texts.names[:half]]
        vectors = np.concatenate([sources.vectors[:half], texts.vectors[:half]])
        first = len(sources.names[:half])
        side = [self.source_tokenizer.words[0]] * first + ["text"] * (len(names) - first)
        return VectorSet(names, vectors, {"side": side})

    def find_sources(self, texts: Any, among: Candidates | None = None, *, num: int = 5) -> Any:
        """Return the sources that match a text best, or a list of these for a list of texts.

        They are chosen `among` sources (see `sources_among`), by default those held out.
        """
        chosen = self.sources_among() if among is None else among
        queries, one = one_or_many("texts", texts)
        matches = chosen.nearest(np.stack(self.embed_texts(queries)), num)
        return matches[0] if one else matches

    def find_texts(self, items: Any, among: Candidates | None = None, *, num: int = 5) -> Any:
        """Return the texts that match a source best, or a list of these for a list of sources.

        They are chosen `among` texts (see `texts_among`), by default those held out.
        """
        chosen = self.texts_among() if among is None else among
        vectors = self.embed(items)
        one = isinstance(vectors, np.ndarray)
        matches = chosen.nearest(np.stack([vectors] if one else vectors), num)
        return matches[0] if one else matches

    def with_classes(self, classes: Sequence[str]) -> ZeroShotPredictor:
        """Return a predictor of classes that are named in words."""
        return ZeroShotPredictor(self, classes)

    def predictions(self, items: Any, seconds: object = None) -> list[Prediction]:
        """Raise a UsageError: the classes have to be named."""
        raise UsageError(
            "a contrastive model predicts classes that you name: --classes 'a red square,a circle'"
        )

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

    def measure(self, shard: Shard, request: EvaluationRequest = REQUEST) -> RetrievalResult:
        """Return the recall on a shard of pairs."""
        with evaluating(self.model):
            return measure_retrieval(self.model, shard, self.tokenizer)

    def describe(
        self, report: RetrievalResult, request: EvaluationRequest
    ) -> tuple[dict[str, Any], str]:
        counts = len(report.of_sources), report.records
        document = {"sources": counts[0], "pairs": counts[1], "chance": report.chance.tolist()}
        return document, f"{counts[1]:,} pairs of {counts[0]:,} sources\n{report.chance_line}"


def _different(shard: Shard) -> tuple[list[Any], list[int]]:
    """Return the different records of a shard, in order, and where each is first."""
    first = np.unique(distinct_records(shard), return_index=True)[1].tolist()
    return [shard.record(i) for i in first], first


class TextEmbedder(Pipeline):
    """The half of a contrastive model that embeds texts."""

    task = "contrastive"

    def __init__(self, matcher: Matcher) -> None:
        super().__init__(matcher.model, matcher.tokenizer, matcher.run)
        self.matcher = matcher

    @property
    def modality(self) -> Any:
        return MODALITIES[self.tokenizer.modality]()

    @property
    def reader(self) -> InputReader:
        """Texts are read from the column of the targets."""
        reader = self.matcher.reader
        return replace(reader, inputs=reader.targets, format="")

    @property
    def context(self) -> TokenLimit | None:
        limit = self.tokenizer.content_limit(int(self.model.config.max_len))
        return None if limit is None else TokenLimit(limit, limit)

    def embed(self, items: Any, *, seconds: object = None, positions: bool = False) -> Any:
        """Return the vectors of texts."""
        if positions:
            raise UsageError("a contrastive model has one vector for each text, none for tokens")
        return self.matcher.embed_texts(items)

    def read(
        self, files: Sequence[Path], reader: InputReader, *, strict: bool = False, log: Any = quiet
    ) -> Shard:
        return self.matcher.read(files, reader, strict=strict, log=log)

    def measure(self, shard: Shard, request: EvaluationRequest = REQUEST) -> RetrievalResult:
        return self.matcher.measure(shard, request)


class ZeroShotPredictor:
    """Predict which of some texts describes a source: classes without training examples."""

    labels = True  # its predictions have them

    def __init__(self, matcher: Matcher, classes: Sequence[str]) -> None:
        names = [name.strip() for name in classes]
        if len(names) < 2 or not all(names) or len(set(names)) < len(names):
            raise UsageError(f"classes must be two or more different texts, got {names}")
        self.matcher, self.classes = matcher, names
        self.source_tokenizer, self.context = matcher.source_tokenizer, matcher.context
        self.vectors = np.stack(matcher.embed_texts(names))  # (C, E)

    def predict_proba(self, items: Any) -> NDArray[np.float64]:
        """Return the probabilities (R, C) of the classes of sources."""
        vectors = self.matcher.embed(items)
        logits = self.matcher.model.scale.item() * np.atleast_2d(vectors) @ self.vectors.T
        proba: NDArray[np.float64] = torch.from_numpy(logits).double().softmax(-1).numpy()
        return proba

    def predict(self, items: Any) -> list[str]:
        """Return the class of each source."""
        return [self.classes[i] for i in self.predict_proba(items).argmax(1)]

    def predictions(self, items: Any, seconds: object = None) -> list[Prediction]:
        """Return the class of each source with all probabilities."""
        rows = self.predict_proba(items)
        texts = [item if isinstance(item, str) else "" for item in items]
        return [
            Prediction(text, max(scores, key=lambda name: scores[name]), scores)
            for text, row in zip(texts, rows.tolist(), strict=True)
            for scores in [dict(zip(self.classes, row, strict=True))]
        ]
