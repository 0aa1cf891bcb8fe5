"""The pipeline of word vectors: vectors, similarities, neighbors and analogies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.inputs import InputReader, quiet
from regard.data.shards import Shard
from regard.errors import UsageError, UserError, did_you_mean
from regard.evaluation import Report, to_document
from regard.evaluation.eval_data import shard_from
from regard.evaluation.word_similarity import WordLosses, run_word_tests, word_losses
from regard.models.word2vec import Word2Vec, list_words
from regard.pipelines import (
    Evaluation,
    EvaluationRequest,
    Pipeline,
    PreparedInput,
    one_or_many,
)
from regard.pipelines.generator import REQUEST
from regard.pipelines.vector_sets import VectorSet
from regard.run import Run
from regard.tokenizers import Tokenizer

MAX_SIMILARITIES = 1 << 24  # in memory at the same time

Vectors = NDArray[np.float32]


class Neighbor(NamedTuple):
    """A word and the cosine similarity of its vector and the query."""

    word: str
    similarity: float


class WordVectors(Pipeline):
    """Word vectors by word: the rows of the input matrix."""

    task = "vectors"

    def __init__(self, model: Word2Vec, tokenizer: Tokenizer, run: Run | None = None) -> None:
        super().__init__(model, tokenizer, run)
        self.words = list_words(model, tokenizer)  # the most frequent first
        self._rows = {word: row for row, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._rows

    @property
    def inputs(self) -> Vectors:
        """(R, D) the input vectors, from which words are predicted."""
        return np.asarray(self.model.inputs.detach().numpy())

    @property
    def outputs(self) -> Vectors:
        """(R, D) the output vectors, which predict words."""
        return np.asarray(self.model.outputs.detach().numpy())

    @cached_property
    def unit(self) -> Vectors:
        """(R, D) the input vectors, normalized to length 1."""
        return unit(self.inputs)

    @cached_property
    def _folded(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            rows.setdefault(word.casefold(), row)  # the most frequent spelling
        return rows

    def find(self, word: str) -> int | None:
        """Return the row of a word or, if there is none, of its most frequent spelling in other
        case; None if there is neither.
        """
        return self._rows.get(word, self._folded.get(word.casefold()))

    def row(self, word: str) -> int:
        """Return the row of a word, as `find` does; an unknown word is a UserError."""
        row = self.find(word)
        if row is None:
            hint = did_you_mean(word, self.words[: 1 << 16])
            if not hint.startswith("did"):
                hint = f"there are {len(self.words):,} other words"
            raise UserError(f"no vector for {word!r}; {hint}")
        return row

    def __getitem__(self, word: str) -> Vectors:
        return np.asarray(self.inputs[self.row(word)])

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        """Return a word, or the word of this number, the most frequent being 0."""
        if not item and not 0 <= record < len(self):
            raise UsageError(f"record must be from 0 to {len(self) - 1:,}, got {record:,}")
        row = self.row(item) if item else record
        similarities = torch.from_numpy(self.unit @ self.unit[row])[None]  # (1, R)
        return PreparedInput({"rows": torch.tensor([[row]])}, lambda tap: similarities)

    def similarity(self, a: str, b: str) -> float:
        """Return the cosine similarity of two words."""
        return float(self.unit[self.row(a)] @ self.unit[self.row(b)])

    def nearest(self, word: str | Vectors, n: int = 10) -> list[Neighbor]:
        """Return the n words most similar to another word, or to a vector (D,), by the cosine."""
        if isinstance(word, str):
            row = self.row(word)
            return self._nearest(self.unit[row], n, {row})
        return self._nearest(unit(np.asarray(word, np.float32)[None])[0], n, set())

    def analogy(self, a: str, b: str, c: str, n: int = 1) -> list[Neighbor]:
        """Return the words that are to c as b is to a: those nearest to b − a + c, except the three
        themselves (Mikolov et al. 2013, NAACL, "Linguistic regularities").
        """
        rows = [self.row(word) for word in (a, b, c)]
        first, second, third = self.unit[rows]
        return self._nearest(unit((second - first + third)[None])[0], n, set(rows))

    def _nearest(self, vector: Vectors, n: int, without: set[int]) -> list[Neighbor]:
        (rows,) = self.nearest_rows(vector[None], n, [sorted(without)])
        return [Neighbor(self.words[r], float(self.unit[r] @ vector)) for r in rows]

    def nearest_rows(
        self, vectors: Vectors, n: int, without: Sequence[Sequence[int]] = (), first: int = 0
    ) -> list[list[int]]:
        """Return the rows of the n words nearest to each vector (N, D) of length 1, nearest first,
        except those `without`; among the `first` words only, unless that is 0.
        """
        known = self.unit[: first or None]
        nearest: list[list[int]] = []
        step = max(1, MAX_SIMILARITIES // len(known))
        for start in range(0, len(vectors), step):
            scores = vectors[start : start + step] @ known.T  # (n, R)
            for i, row in enumerate(scores):
                excluded = [r for r in (without[start + i] if without else ()) if r < len(known)]
                row[excluded] = -np.inf
                count = min(n, len(row) - len(excluded))
                top = np.argpartition(-row, count - 1)[:count] if count else np.zeros(0, np.int64)
                nearest.append(top[np.lexsort((top, -row[top]))].tolist())
        return nearest

    @overload
    def embed(  # type: ignore[overload-overlap]
        self, texts: str, *, seconds: Sequence[str] | None = ..., positions: bool = ...
    ) -> Vectors: ...

    @overload
    def embed(
        self, texts: Iterable[str], *, seconds: Sequence[str] | None = ..., positions: bool = ...
    ) -> list[Vectors]: ...

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        seconds: Sequence[str] | None = None,
        positions: bool = False,
    ) -> Vectors | list[Vectors]:
        """Return the mean vector (D,) of the words of a text, with `positions` the vectors of its
        tokens (T, D), or a list for a list of texts; words without a vector have zeros. `seconds`
        must be None.
        """
        if seconds is not None:
            raise UserError("word vectors are of one text")
        items, one = one_or_many("texts", texts)
        rows_of_ids, results = self.model.rows.numpy(), []
        for text in items:
            rows = rows_of_ids[self.tokenizer.encode(text).astype(np.int64)]
            known = rows >= 0
            vectors = np.where(known[:, None], self.inputs[np.maximum(rows, 0)], np.float32(0))
            results.append(vectors if positions else vectors.sum(0) / max(1, int(known.sum())))
        return results[0] if one else results

    @property
    def vector_sets(self) -> Mapping[str, Callable[[int], VectorSet]]:
        return {"words": self._first_words}

    def _first_words(self, most: int) -> VectorSet:
        words = self.words[:most]
        ranks = {"rank": list(range(1, len(words) + 1))}
        return VectorSet(words, self.inputs[:most], ranks)

    def read(
        self, files: Sequence[Path], reader: InputReader, *, strict: bool = False, log: Any = quiet
    ) -> Shard:
        return shard_from(files, self.tokenizer, self.modality, reader, strict=strict, log=log)

    def measure(self, shard: Shard, request: EvaluationRequest = REQUEST) -> WordLosses:
        """Return the training loss on the words of a shard."""
        if not bool(self.model.outputs.any()):
            raise UserError(
                f"{self.run or 'this model'} has input vectors alone (imported, or untrained): "
                "there is no loss to measure"
            )
        return word_losses(self.model, shard)

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate on word tests among the files, and on texts or the held-out split."""
        tests, texts = run_word_tests(self, request.files)
        reports: dict[str, Report] = {}
        document: dict[str, Any] = {
            "task": self.task,
            "words": len(self),
            "tests": [test.to_json() for test in tests],
        }
        if texts or not tests:
            name, shard = self._shard(replace(request, files=texts))
            reports[name] = self.measure(shard, request)
            document |= {"split": name, "metrics": to_document(reports[name].metrics())}
        reports |= {test.name: test for test in tests}
        lines = [f"{len(self):,} words"]
        lines += [f"{test.name}: {test.covered:,} of {test.total:,} have vectors" for test in tests]
        return Evaluation(reports, document, lines)


def unit(vectors: Vectors) -> Vectors:
    """Return (N, D) vectors normalized to length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-30))
