"""How good word vectors are: what guessing held-out words costs, whether similar words are near
(Spearman's correlation with people's judgements), and analogies.

Both kinds of test say how much of them the vocabulary covers: what it does not hold is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.bootstrap import Floats
from regard.evaluation.estimates import BootstrapEstimate, by_sums, digest
from regard.evaluation.language_modeling import Metric
from regard.evaluation.regression import value
from regard.models.word2vec import Word2Vec

if TYPE_CHECKING:
    from regard.pipelines.word_vectors import WordVectors

FEWEST = 5  # pairs that a correlation is taken of
FREQUENT = 30_000  # words that may answer an analogy, as in the authors' program
LOOKED = 20  # lines of a file that say what it is


@dataclass(frozen=True, eq=False)
class WordLosses:
    """The loss (U, 2) and how many predictions it is of, by stretches of a text."""

    sums: Floats
    data: str

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """The mean loss of a prediction."""
        values, samples = by_sums(_ratio, self.sums)
        why = "" if self.sums[:, 1].sum() else "no word has another near it"
        return {
            "loss": BootstrapEstimate(
                float(values[0]), samples[:, 0], self.data, cost=True, why=why
            )
        }

    def figures(self) -> dict[str, Metric]:
        """The same with its interval."""
        return {name: one.figure() for name, one in self.estimates.items()}


def _ratio(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):  # a resample without a prediction
        found: Floats = sums[:, :1] / sums[:, 1:]
    return found


def word_losses(model: Word2Vec, shard: Shard) -> WordLosses:
    """Have a model guess the words of a shard."""
    sums = model.losses(shard)
    way = (model.config.window, model.config.negatives, model.config.sample, model.mean)
    words = model.counts.numpy()
    return WordLosses(sums, digest(np.asarray(shard.ids), words, np.array(way, np.float64)))


@dataclass(frozen=True, eq=False)
class WordTestResult:
    """What a file of questions says of vectors: the figures, and how many of them were asked."""

    name: str
    estimates: dict[str, BootstrapEstimate]
    covered: int
    total: int

    def figures(self) -> dict[str, Metric]:
        """The figures with their intervals."""
        return {name: one.figure() for name, one in self.estimates.items()}

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard evaluate --json`."""
        metrics = {name: figure.to_json() for name, figure in self.figures().items()}
        told = {"covered": self.covered, "total": self.total}
        return {"file": self.name, "metrics": metrics, **told}


Pair = tuple[str, str, float]  # two words, and how similar people hold them
Four = tuple[str, str, str, str]  # a is to b as c is to d


def questions(path: Path) -> list[Pair] | list[Four] | None:
    """The questions of a file: `word word score` or, after lines `: section`, `a b c d`; None where
    its first lines are neither. Lines that begin with # are remarks.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    told = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    first = [re.split(r"[\t,; ]+", line.strip()) for _, line in told[:LOOKED]]
    if first and all(_score(parts) is not None for parts in first[1:] or first):
        rows = told if _score(first[0]) is not None else told[1:]  # a header
        return [_pair(path, number, line) for number, line in rows]
    if any(line.startswith(": ") for _, line in told[:LOOKED]):
        return [_four(path, i, line) for i, line in told if not line.startswith(": ")]
    return None


def _score(parts: Sequence[str]) -> float | None:
    try:
        return float(parts[2]) if len(parts) == 3 else None
    except ValueError:
        return None


def _pair(path: Path, number: int, line: str) -> Pair:
    parts = re.split(r"[\t,; ]+", line.strip())
    score = _score(parts)
    if score is None or not np.isfinite(score):
        raise UserError(f"{path}, line {number}: expected two words and a number, got {line!r}")
    return parts[0], parts[1], score


def _four(path: Path, number: int, line: str) -> Four:
    parts = line.split()
    if len(parts) != 4:
        raise UserError(f"{path}, line {number}: expected four words, got {line!r}")
    return parts[0], parts[1], parts[2], parts[3]


def run_word_test(
    word_vectors: WordVectors, path: Path, asked: list[Pair] | list[Four]
) -> WordTestResult:
    """What the questions of a file say of the vectors."""
    if len(asked[0]) == 3:
        return similarities(word_vectors, path.name, asked)
    return analogies(word_vectors, path.name, asked)


def estimates_of(
    word_vectors: WordVectors, files: Sequence[Path]
) -> tuple[list[WordTestResult], list[Path]]:
    """What those of the files say that hold questions; and the others, which are texts."""
    found, texts = [], []
    for path in files:
        asked = questions(path)
        if asked:
            found.append(run_word_test(word_vectors, path, asked))
        else:
            texts.append(path)
    return found, texts


def similarities(word_vectors: WordVectors, name: str, asked: Sequence[Pair]) -> WordTestResult:
    """Spearman's correlation of cosines with people's scores, over the pairs it has vectors of."""
    found = [(word_vectors.find(a), word_vectors.find(b), score) for a, b, score in asked]
    known = [(a, b, score) for a, b, score in found if a is not None and b is not None]
    if len(known) < FEWEST:
        raise UserError(
            f"{name}: {len(known)} of {len(asked):,} pairs have vectors; at least {FEWEST} are "
            "needed"
        )
    first = word_vectors.unit[[a for a, _, _ in known]]
    second = word_vectors.unit[[b for _, b, _ in known]]
    cosines = (first * second).sum(1).astype(np.float64)
    scores = np.array([score for _, _, score in known])
    both = value(cosines, scores)
    return WordTestResult(name, {"spearman": both["spearman"]}, len(known), len(asked))


def analogies(word_vectors: WordVectors, name: str, asked: Sequence[Four]) -> WordTestResult:
    """The share of analogies answered rightly, of those whose four words are among the FREQUENT."""
    most = min(FREQUENT, len(word_vectors))
    rows = [[word_vectors.find(word) for word in four] for four in asked]
    known = np.array(
        [four for four in rows if all(r is not None and r < most for r in four)], np.int64
    ).reshape(-1, 4)
    if not len(known):
        raise UserError(f"{name}: none of {len(asked):,} analogies has four words with vectors")
    a, b, c, d = (known[:, i] for i in range(4))
    vectors = word_vectors.unit
    wanted = vectors[b] - vectors[a] + vectors[c]
    wanted /= np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-30)
    told = word_vectors.nearest_rows(wanted, 1, known[:, :3].tolist(), first=most)
    right = np.array([bool(one) and one[0] == answer for one, answer in zip(told, d, strict=True)])
    table = np.stack([right, np.ones(len(right))], axis=1).astype(np.float64)
    values, samples = by_sums(_ratio, table)
    one = BootstrapEstimate(float(values[0]), samples[:, 0], digest(known))
    return WordTestResult(name, {"accuracy": one}, len(known), len(asked))
