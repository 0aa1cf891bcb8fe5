"""Word vectors: CBOW and skip-gram (Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546).

A word is guessed from the words around it: by CBOW from their mean, by skip-gram from each of them
alone. There are two matrices: a word's vector is its row of the *input* matrix, by which it helps
to guess others, and the *output* matrix is what guesses are compared with. Guessing is telling the
right word from a few drawn ones (negative sampling) or, of few words, from all (the softmax).

Where we differ from the authors' program: the steps go down the exact gradient, a window at a time
(of a mean, each word has its share), nothing is cut off or looked up in tables, and training is the
same bits however many threads there are. The inner loops are in `kernels`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.shards import CHUNK, Shard
from regard.errors import UserError, missing_extra
from regard.models.ngrams import has_numba
from regard.tokenizers import Tokenizer

UNIT, FEW = 1000, 100  # tokens measured, and resampled, together: of running text, of records
BORDER, ABSENT = -2, -1  # instead of a row: between records; no word. As in `kernels`
LARGEST = {"d_model": 1 << 14, "window": 1000, "negatives": 1000, "epochs": 1 << 20, "shares": 256}

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig:
    """What is guessed from what, and how."""

    d_model: int = 100
    window: int = 5  # words on either side, at most; each word draws its own width up to that
    negatives: int = 5  # words drawn beside the right one; 0 = all words, the full softmax
    min_count: int = 5  # rarer words are left out of the text
    sample: float = 1e-3  # more frequent words than this share are thinned out; 0 = none
    power: float = 0.75  # of a word's frequency: how often it is drawn
    epochs: int = 0  # passes over the text; 0 = as many as train.minutes allows
    shares: int = 2  # parts of a step that are read at the same time, each by a thread
    n_words: int = 0  # the data decide

    def __post_init__(self) -> None:
        least = {"d_model": 1, "window": 1, "negatives": 0, "epochs": 0, "shares": 1}
        for name, value in least.items():
            if not value <= getattr(self, name) <= LARGEST[name]:
                raise ValueError(
                    f"{name} must be from {value} to {LARGEST[name]}, got {getattr(self, name)}"
                )
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")
        if not 0 <= self.sample <= 1:
            raise ValueError(f"sample must be from 0 to 1, got {self.sample}")
        if not 0 <= self.power <= 1:
            raise ValueError(f"power must be from 0 to 1, got {self.power}")
        if not 0 <= self.n_words < 1 << 24:
            raise ValueError(f"n_words must be from 0 to {1 << 24}, got {self.n_words}")


def word2vec(n_layers: int, d_model: int) -> Word2VecConfig:
    """The authors' defaults; there are no layers to choose."""
    return Word2VecConfig(d_model=d_model)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Which token (V,) is which word, a row, BORDER or ABSENT; and how often each word occurs (R,),
    the most frequent first.
    """

    rows: Ints
    counts: Ints


def word_of(tokenizer: Tokenizer, token: int) -> str:
    """How a token is called among words: of a kind that cuts at white space without the space,
    elsewhere with a sign for it, since a file of vectors has its own use for spaces.
    """
    text = tokenizer.text(token)
    return text.strip() if tokenizer.kind == "words" else re.sub(r"\s", "▁", text)


def survey(shard: Shard, tokenizer: Tokenizer, min_count: int) -> Vocabulary:
    """The words of a shard that occur at least `min_count` times; tokens of one word, after a space
    or after a line's end, are one.
    """
    found = np.zeros(tokenizer.vocab_size, np.int64)
    for first in range(0, shard.tokens, CHUNK):
        found += np.bincount(shard.ids[first : first + CHUNK], minlength=len(found))
    totals: dict[str, int] = {}
    names = ["" if i in tokenizer.names else word_of(tokenizer, i) for i in range(len(found))]
    for name, count in zip(names, found.tolist(), strict=True):
        if name:
            totals[name] = totals.get(name, 0) + count
    words = sorted((w for w, n in totals.items() if n >= min_count), key=lambda w: (-totals[w], w))
    if len(words) < 2:
        raise UserError(
            f"{len(words)} words occur {min_count} times or more; vectors need two at least: give "
            "more text, or a lower model.min_count"
        )
    place = {word: row for row, word in enumerate(words)}
    rows = np.array([place.get(name, ABSENT) for name in names], np.int64)
    rows[[tokenizer.start, tokenizer.end]] = BORDER
    return Vocabulary(rows, np.array([totals[word] for word in words], np.int64))


def words_of(model: Word2Vec, tokenizer: Tokenizer) -> list[str]:
    """The R words of a model, by row."""
    rows = model.rows.numpy()
    found = [""] * model.config.n_words
    for token in np.flatnonzero(rows >= 0)[::-1].tolist():
        found[rows[token]] = word_of(tokenizer, token)
    return found


def kernels() -> Any:
    """The inner loops; a UserError where numba is missing."""
    if not has_numba():
        raise missing_extra("numba", "fast")
    from regard.kernels import word2vec as kernels

    return kernels


class Word2Vec(nn.Module):
    """Two matrices (R, D), and which token is which row."""

    Config = Word2VecConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {"word2vec": word2vec}
    sized_by_config: ClassVar[bool] = True
    task: ClassVar[str] = "vectors"
    mean: ClassVar[bool]  # does a window predict from the mean of its words?

    rows: Tensor
    counts: Tensor

    def __init__(self, vocab_size: int, config: Word2VecConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        n, d = config.n_words, config.d_model
        # the authors' beginning: inputs uniform in ±1/(2D), outputs 0
        self.inputs = nn.Parameter(torch.empty(n, d).uniform_(-0.5 / d, 0.5 / d))
        self.outputs = nn.Parameter(torch.zeros(n, d))
        self.register_buffer("rows", torch.full((vocab_size,), ABSENT))  # (V,)
        self.register_buffer("counts", torch.zeros(n, dtype=torch.int64))  # (R,)

    def take(self, vocabulary: Vocabulary) -> None:
        """Make these words the model's own."""
        self.rows = torch.from_numpy(vocabulary.rows)
        self.counts = torch.from_numpy(vocabulary.counts)

    def way(self) -> Any:
        """How windows are read."""
        return kernels().Way(self.config.window, self.config.negatives, self.mean)

    def chances(self) -> Any:
        """What is kept and drawn how often.

        Of a word's occurrences a share of sqrt(s / f) + s / f is kept, f being its frequency and s
        `sample`: the authors' program, of which their paper has the first term.
        """
        counts = self.counts.double().numpy()
        often = counts / max(float(counts.sum()), 1.0)
        keep = np.ones_like(often)
        if self.config.sample:
            ratio = self.config.sample / np.maximum(often, 1e-300)
            keep = np.minimum(1.0, np.sqrt(ratio) + ratio)
        share, alias = alias_table(self.noise())
        rows = self.rows.numpy().astype(np.int32)
        return kernels().Chances(rows, keep.astype(np.float32), share, alias)

    def noise(self) -> Floats:
        """(R,) how likely each word is drawn."""
        weights = self.counts.double().numpy() ** self.config.power
        if not weights.any():  # imported: nobody knows
            weights = np.ones_like(weights)
        found: Floats = weights / weights.sum()
        return found

    def scratch(self, tokens: int) -> Any:
        """Room to read stretches of at most so many tokens; one thread's."""
        c = self.config
        wide, targets = 2 * c.window, c.negatives + 1 if c.negatives else c.n_words
        vectors = np.empty((2, wide, c.d_model), np.float32)
        return kernels().Scratch(
            np.empty(tokens + 1, np.int32),
            *vectors,
            np.empty((targets, wide), np.float32),
            np.arange(targets),
            np.zeros(1, np.uint64),
        )

    def weights(self) -> Any:
        """Both matrices as arrays that share their memory; no row is marked as changed."""
        n = self.config.n_words
        marks = np.zeros((2, n), np.uint8)
        return kernels().Weights(self.inputs.data.numpy(), self.outputs.data.numpy(), *marks)

    def losses(self, shard: Shard) -> Floats:
        """(U, 2) the loss, summed, and the predictions of every stretch of a shard; the windows and
        words drawn are the same every time.
        """
        read, way, chances, weights = kernels().read, self.way(), self.chances(), self.weights()
        borders = units(shard)
        longest = int(np.diff(borders).max())

        def measure(part: Sequence[int]) -> list[tuple[float, int]]:
            scratch = self.scratch(longest)
            return [
                read(
                    shard.ids[borders[u] : borders[u + 1]].astype(np.int32),
                    weights, chances, scratch, way, np.float32(0), np.uint64(u),
                )
                for u in part
            ]  # fmt: skip

        threads = torch.get_num_threads()
        parts = np.array_split(np.arange(len(borders) - 1), threads)
        with ThreadPoolExecutor(threads) as pool:
            found = [one for part in pool.map(measure, parts) for one in part]
        return np.array(found, np.float64).reshape(-1, 2)

    def loss(self, shard: Shard) -> float:
        """The mean loss of a prediction; NaN where nothing is predicted."""
        total, predictions = self.losses(shard).sum(0).tolist()
        return total / predictions if predictions else math.nan


class CBOW(Word2Vec):
    """The word is guessed from the mean of those around it: a continuous bag of words."""

    mean = True


class SkipGram(Word2Vec):
    """The word is guessed from each of those around it."""

    mean = False


def units(shard: Shard) -> Ints:
    """Where a shard is cut into stretches of about UNIT tokens, anywhere in running text, or of
    about FEW, between records.
    """
    borders = np.arange(0, shard.tokens, UNIT if shard.kind == "text" else FEW)
    if shard.kind != "text":
        offsets = np.asarray(shard.offsets)
        borders = offsets[np.searchsorted(offsets, borders)]
    return np.unique(np.append(borders, shard.tokens))


def alias_table(chances: Floats) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Draw any of R words in constant time: of a place drawn evenly keep its word with the
    probability (R,) given there, else take its alias (R,) (Vose 1991, doi:10.1109/32.92917).
    """
    n = len(chances)
    left = (chances * n).tolist()
    share, alias = np.ones(n, np.float32), np.arange(n, dtype=np.int32)
    small = [i for i in range(n) if left[i] < 1]
    large = [i for i in range(n) if left[i] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        share[low], alias[low] = left[low], high
        left[high] -= 1 - left[low]
        if left[high] < 1:
            small.append(large.pop())
    return share, alias
