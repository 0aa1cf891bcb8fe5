"""Metrics of word vectors: the loss on held-out text, Spearman's correlation with people's
similarity judgements, and the accuracy of analogies.

Both kinds of test report how much of them the vocabulary covers: words without vectors are left
out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import BootstrapEstimate, CountedSums, Floats, digest
from regard.evaluation.regression import regression_report
from regard.models.word2vec import Word2Vec

MIN_PAIRS = 5  # of a correlation
FREQUENT = 30_000  # words that may complete an analogy, as in the authors' program
INSPECTED = 20  # lines of a file that show its format
SEPARATOR = re.compile(r"[\t,; ]+")

Vectors = NDArray[np.float32]


class VectorTable(Protocol):
    """Vectors of words, the most frequent word first (pipelines.WordVectors)."""

    @property
    def unit(self) -> Vectors:
        """(R, D) vectors of length 1."""
        ...

    def __len__(self) -> int: ...

    def find(self, word: str) -> int | None:
        """Return the row of a word, or None."""
        ...

    def nearest_rows(
        self, vectors: Vectors, n: int, without: Sequence[Sequence[int]], first: int
    ) -> list[list[int]]:
        """Return the n rows nearest to each vector, some left out, among the `first` words."""
        ...


@register_metric("vectors", "loss", title="loss", lower_is_better=True)
def word_loss(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(0, "no word has another one near it")


@dataclass(frozen=True, eq=False)
class WordLosses(Report):
    """The loss of predicting the words of a text."""

    ranking = ("loss",)

    sums: Floats  # (U, 2) the loss and the number of predictions of stretches of the text
    data: str  # a checksum of the text and the settings

    @cached_property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        return estimate_metrics("vectors", CountedSums(self.sums, self.data))


def word_losses(model: Word2Vec, shard: Shard) -> WordLosses:
    """Return the losses of predicting the words of a shard."""
    config = model.config
    settings = np.array([config.window, config.negatives, config.sample, model.mean], np.float64)
    return WordLosses(
        model.losses(shard), digest(np.asarray(shard.ids), model.counts.numpy(), settings)
    )


@dataclass(frozen=True, eq=False)
class WordTestResult(Report):
    """The metrics of a file of word pairs or analogies, and how many of them have vectors."""

    ranking = ("spearman", "accuracy")

    name: str
    estimates: dict[str, BootstrapEstimate]
    covered: int
    total: int

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `regard evaluate --json`."""
        metrics = {name: metric.to_json() for name, metric in self.metrics().items()}
        coverage = {"covered": self.covered, "total": self.total}
        return {"file": self.name, "metrics": metrics, **coverage}


@dataclass(frozen=True)
class SimilarityTest:
    """Pairs of words with people's scores of how similar they are."""

    name: str
    pairs: list[tuple[str, str, float]]

    def run(self, vectors: VectorTable) -> WordTestResult:
        """Return Spearman's correlation of cosines with the scores, over the pairs with vectors."""
        rows = [(vectors.find(a), vectors.find(b), score) for a, b, score in self.pairs]
        known = [(a, b, score) for a, b, score in rows if a is not None and b is not None]
        if len(known) < MIN_PAIRS:
            raise UserError(
                f"{self.name}: {len(known)} of {len(self.pairs):,} pairs have vectors; at least "
                f"{MIN_PAIRS} are needed"
            )
        first, second, scores = (list(column) for column in zip(*known, strict=True))
        cosines = (vectors.unit[first] * vectors.unit[second]).sum(1).astype(np.float64)
        spearman = regression_report(cosines, scores).estimates["spearman"]
        return WordTestResult(self.name, {"spearman": spearman}, len(known), len(self.pairs))


@dataclass(frozen=True)
class AnalogyTest:
    """Analogies: a is to b as c is to d."""

    name: str
    analogies: list[tuple[str, ...]]

    def run(self, vectors: VectorTable) -> WordTestResult:
        """Return the accuracy of analogies whose four words are among the FREQUENT ones."""
        limit = min(FREQUENT, len(vectors))
        rows = [[vectors.find(word) for word in analogy] for analogy in self.analogies]
        known = np.array(
            [four for four in rows if all(row is not None and row < limit for row in four)],
            np.int64,
        ).reshape(-1, 4)
        if not len(known):
            raise UserError(
                f"{self.name}: none of {len(rows):,} analogies has four words with vectors"
            )
        a, b, c, d = known.T
        unit = vectors.unit
        wanted = unit[b] - unit[a] + unit[c]
        wanted /= np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-30)
        nearest = vectors.nearest_rows(wanted, 1, known[:, :3].tolist(), first=limit)
        correct = [bool(row) and row[0] == truth for row, truth in zip(nearest, d, strict=True)]
        table = np.stack([correct, np.ones(len(correct))], axis=1).astype(np.float64)
        accuracy = CountedSums(table, digest(known)).mean(0, "")
        return WordTestResult(self.name, {"accuracy": accuracy}, len(known), len(rows))


def read_word_test(path: Path) -> SimilarityTest | AnalogyTest | None:
    """Read `word word score` or, after lines `: section`, `a b c d`; None if the first lines of the
    file are neither. Lines that begin with # are comments.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    numbered = enumerate(text.splitlines(), 1)
    lines = [(i, line) for i, line in numbered if line.strip() and line[0] != "#"]
    is_pair = [_parse_pair(line) is not None for _, line in lines[:INSPECTED]]
    if is_pair and all(is_pair[1:] or is_pair):  # the first line may be a header
        pairs = [_read_pair(path, i, line) for i, line in lines[0 if is_pair[0] else 1 :]]
        return SimilarityTest(path.name, pairs) if pairs else None
    if any(line.startswith(": ") for _, line in lines[:INSPECTED]):
        rows = [_read_analogy(path, i, line) for i, line in lines if not line.startswith(": ")]
        return AnalogyTest(path.name, rows) if rows else None
    return None


def _parse_pair(line: str) -> tuple[str, str, float] | None:
    parts = SEPARATOR.split(line.strip())
    try:
        return (parts[0], parts[1], float(parts[2])) if len(parts) == 3 else None
    except ValueError:
        return None


def _read_pair(path: Path, number: int, line: str) -> tuple[str, str, float]:
    pair = _parse_pair(line)
    if pair is None or not np.isfinite(pair[2]):
        raise UserError(f"{path}, line {number}: expected two words and a number, got {line!r}")
    return pair


def _read_analogy(path: Path, number: int, line: str) -> tuple[str, ...]:
    words = tuple(line.split())
    if len(words) != 4:
        raise UserError(f"{path}, line {number}: expected four words, got {line!r}")
    return words


def run_word_tests(
    vectors: VectorTable, files: Sequence[Path]
) -> tuple[list[WordTestResult], list[Path]]:
    """Return the results of the files that are word tests, and the other files, which are texts."""
    tests = {path: read_word_test(path) for path in files}
    texts = [path for path in files if tests[path] is None]
    return [test.run(vectors) for test in tests.values() if test is not None], texts
