"""What `regard.load` returns for word vectors: neighbours, analogies, similarities, vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from regard.arguments import one_or_many
from regard.data.shards import Shard
from regard.errors import UserError, did_you_mean
from regard.evaluation.word_similarity import WordLosses, word_losses
from regard.models.word2vec import Word2Vec, words_of
from regard.tokenizers import Tokenizer

AT_ONCE = 1 << 24  # similarities that are held at the same time

Vectors = NDArray[np.float32]


class Neighbor(NamedTuple):
    """A word, and the cosine of the angle between its vector and what was asked for."""

    word: str
    similarity: float


class WordVectors:
    """Word vectors by their words; those of the input matrix, unless `outputs` are asked for."""

    def __init__(self, model: Word2Vec, tokenizer: Tokenizer, run: Path | None = None) -> None:
        self.model, self.tokenizer, self.run = model, tokenizer, run
        self.words = words_of(model, tokenizer)  # the most frequent first
        self._places = {word: row for row, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._places

    @property
    def inputs(self) -> Vectors:
        """(R, D) a word's vector: its row of the matrix that guesses are made from."""
        return np.asarray(self.model.inputs.detach().numpy())

    @property
    def outputs(self) -> Vectors:
        """(R, D) the rows that guesses are compared with."""
        return np.asarray(self.model.outputs.detach().numpy())

    @cached_property
    def unit(self) -> Vectors:
        """(R, D) the input vectors at length 1."""
        return unit(self.inputs)

    @cached_property
    def _folded(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for row, word in enumerate(self.words):
            found.setdefault(word.casefold(), row)  # the most frequent spelling
        return found

    def find(self, word: str) -> int | None:
        """The row of a word or, where there is none, of its most frequent spelling with other
        capitals; None if there is neither.
        """
        return self._places.get(word, self._folded.get(word.casefold()))

    def row(self, word: str) -> int:
        """The row of a word, as `find` does; a UserError says which words are like it."""
        found = self.find(word)
        if found is None:
            raise UserError(f"no vector for {word!r}; {self._hint(word)}")
        return found

    def _hint(self, word: str) -> str:
        known = self.words[: 1 << 16]
        hint = did_you_mean(word, known)
        return hint if hint.startswith("did") else f"there are {len(self.words):,} other words"

    def __getitem__(self, word: str) -> Vectors:
        return np.asarray(self.inputs[self.row(word)])

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the angle between two words' vectors."""
        return float(self.unit[self.row(a)] @ self.unit[self.row(b)])

    def nearest(self, word: str | Vectors, n: int = 10) -> list[Neighbor]:
        """The n words nearest to a word, itself left out, or to a vector (D,), by the cosine."""
        if isinstance(word, str):
            row = self.row(word)
            return self._nearest(self.unit[row], n, {row})
        return self._nearest(unit(np.asarray(word, np.float32)[None])[0], n, set())

    def analogy(self, a: str, b: str, c: str, n: int = 1) -> list[Neighbor]:
        """What is to c as b is to a: the words nearest to b − a + c, none of the three among them
        (Mikolov et al. 2013, NAACL, "Linguistic regularities").
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
        """The rows of the n words nearest to each vector (N, D) of length 1, nearest first, but for
        those `without`; among the `first` words alone, where that is not 0.
        """
        known = self.unit[: first or None]
        found: list[list[int]] = []
        step = max(1, AT_ONCE // len(known))
        for begin in range(0, len(vectors), step):
            scores = vectors[begin : begin + step] @ known.T  # (n, R)
            for i, row in enumerate(scores):
                left = [r for r in (without[begin + i] if without else ()) if r < len(known)]
                row[left] = -np.inf
                count = min(n, len(row) - len(left))
                top = np.argpartition(-row, count - 1)[:count] if count else np.zeros(0, np.int64)
                found.append(top[np.lexsort((top, -row[top]))].tolist())
        return found

    @property
    def context(self) -> None:
        """What of a long text is used: all of it."""
        return None

    def refuse_pipe(self, file: Path) -> None:
        """See Examiner: words come through pipes."""

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
        """The mean vector (D,) of the words of a text, or of each of several, or with `positions`
        one of each of its tokens (T, D); zeros where there is none. Second texts have no place
        here.
        """
        if seconds is not None:
            raise UserError("word vectors are of one text")
        several, one = one_or_many("texts", texts)
        rows, found = self.model.rows.numpy(), []
        for text in several:
            own = rows[self.tokenizer.encode(text).astype(np.int64)]
            vectors = np.where((own >= 0)[:, None], self.inputs[np.maximum(own, 0)], np.float32(0))
            found.append(vectors if positions else vectors.sum(0) / max(1, int((own >= 0).sum())))
        return found[0] if one else found

    def measure(self, shard: Shard) -> WordLosses:
        """What guessing the words of a shard costs."""
        if not bool(self.model.outputs.any()):
            raise UserError(
                f"{self.run or 'this model'} has input vectors alone (imported, or untrained): "
                "there is no loss to measure"
            )
        return word_losses(self.model, shard)


def unit(vectors: Vectors) -> Vectors:
    """(N, D) vectors at length 1; zeros stay zeros."""
    found: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return found
