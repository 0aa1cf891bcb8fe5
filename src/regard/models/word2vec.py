"""Word vectors: CBOW and skip-gram (Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546).

A word is predicted from the words around it: by CBOW from their mean, by skip-gram from each of
them. There are two matrices: a word's vector is its row of the *input* matrix, and predictions are
dot products with rows of the *output* matrix. The loss separates the right word from a few drawn
ones (negative sampling) or, for small vocabularies, from all others (the softmax).

Where we differ from the authors' program: updates follow the exact gradient of a window (of a mean,
each word gets its share), nothing is clipped or tabulated, and training is the same to the bit
however many threads there are. The inner loops are in kernels/word2vec.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.shards import CHUNK, Shard
from regard.errors import UserError, missing_extra
from regard.kernels import has_numba
from regard.models import LossMetric, Model, Presets, check_ranges
from regard.tokenizers import Tokenizer

UNIT, FEW = 1000, 100  # tokens measured and resampled as one unit: of running text, of records
BORDER, ABSENT = -2, -1  # instead of a row: between records; not a word. As in kernels/word2vec.py

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig:
    """Windows, sampling and size of word vectors."""

    d_model: int = 100
    window: int = 5  # the largest number of words on either side; each window draws its own
    negatives: int = 5  # words drawn as negative examples; 0: all words, the full softmax
    min_count: int = 5  # rarer words are removed from the text
    sample: float = 1e-3  # words above this frequency are subsampled; 0: none
    power: float = 0.75  # exponent of the frequencies that negative examples are drawn with
    epochs: int = 0  # 0: as many as train.minutes allows
    shares: int = 2  # parts of a step that are read in parallel, each by a thread
    n_words: int = 0  # set from the data

    def __post_init__(self) -> None:
        check_ranges(self, d_model=1 << 14, window=1000, shares=256)
        check_ranges(self, least=0, negatives=1000, epochs=1 << 20, sample=1, power=1)
        check_ranges(self, least=0, n_words=(1 << 24) - 1)
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")


def word2vec(n_layers: int, d_model: int) -> Word2VecConfig:
    """The authors' defaults; there are no layers."""
    return Word2VecConfig(d_model=d_model)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The row (V,) of each token, or BORDER or ABSENT, and the count (R,) of each word, the most
    frequent first.
    """

    rows: Ints
    counts: Ints


def token_word(tokenizer: Tokenizer, token: int) -> str:
    """Return the word of a token: without spaces if the tokenizer splits there, otherwise with a
    visible sign for them, since files of vectors are separated by spaces.
    """
    text = tokenizer.text(token)
    return text.strip() if tokenizer.name == "words" else re.sub(r"\s", "▁", text)


def build_vocabulary(shard: Shard, tokenizer: Tokenizer, min_count: int) -> Vocabulary:
    """Return the words that occur at least `min_count` times in a shard; the tokens of one word
    after a space and after a line end are counted as one.
    """
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for first in range(0, shard.tokens, CHUNK):
        counts += np.bincount(shard.ids[first : first + CHUNK], minlength=len(counts))
    totals: dict[str, int] = {}
    names = ["" if i in tokenizer.names else token_word(tokenizer, i) for i in range(len(counts))]
    for name, count in zip(names, counts.tolist(), strict=True):
        if name:
            totals[name] = totals.get(name, 0) + count
    words = sorted((w for w, n in totals.items() if n >= min_count), key=lambda w: (-totals[w], w))
    if len(words) < 2:
        raise UserError(
            f"{len(words)} words occur {min_count} times or more; vectors need two at least: give "
            "more text, or a lower model.min_count"
        )
    row_of = {word: row for row, word in enumerate(words)}
    rows = np.array([row_of.get(name, ABSENT) for name in names], np.int64)
    rows[[tokenizer.start, tokenizer.end]] = BORDER
    return Vocabulary(rows, np.array([totals[word] for word in words], np.int64))


def list_words(model: Word2Vec, tokenizer: Tokenizer) -> list[str]:
    """Return the R words of a model, by row."""
    rows = model.rows.numpy()
    words = [""] * model.config.n_words
    for token in np.flatnonzero(rows >= 0)[::-1].tolist():
        words[rows[token]] = token_word(tokenizer, token)
    return words


def load_kernels() -> Any:
    """Return the module of the inner loops; raise UserError where numba is missing."""
    if not has_numba():
        raise missing_extra("numba", "fast")
    from regard.kernels import word2vec as kernels

    return kernels


class Word2Vec(Model):
    """Input and output matrices (R, D), and the row of each token."""

    Config = Word2VecConfig
    PRESETS: ClassVar[Presets] = {"word2vec": word2vec}
    loop = "word2vec"
    task: ClassVar[str] = "vectors"
    mean: ClassVar[bool]  # predict from the mean of a window, not from each word

    rows: Tensor
    counts: Tensor

    def __init__(self, vocab_size: int, config: Word2VecConfig) -> None:
        super().__init__(vocab_size, config)
        n, d = config.n_words, config.d_model
        # the authors' initial values: inputs uniform in ±1/(2D), outputs 0
        self.inputs = nn.Parameter(torch.empty(n, d).uniform_(-0.5 / d, 0.5 / d))
        self.outputs = nn.Parameter(torch.zeros(n, d))
        self.register_buffer("rows", torch.full((vocab_size,), ABSENT))  # (V,)
        self.register_buffer("counts", torch.zeros(n, dtype=torch.int64))  # (R,)

    @property
    def loss_metric(self) -> LossMetric:
        return LossMetric("loss", "nats/word", "loss {}", "words")

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.rows = torch.from_numpy(vocabulary.rows)
        self.counts = torch.from_numpy(vocabulary.counts)

    def window_options(self) -> Any:
        """Return how the kernels read windows."""
        return load_kernels().WindowOptions(self.config.window, self.config.negatives, self.mean)

    def sampling_tables(self) -> Any:
        """Return the probabilities of subsampling and of negative examples.

        An occurrence of a word of frequency f is kept with probability sqrt(s / f) + s / f, where s
        is `sample`, as in the authors' program; their paper has only the first term.
        """
        counts = self.counts.double().numpy()
        frequencies = counts / max(float(counts.sum()), 1.0)
        keep = np.ones_like(frequencies)
        if self.config.sample:
            ratio = self.config.sample / np.maximum(frequencies, 1e-300)
            keep = np.minimum(1.0, np.sqrt(ratio) + ratio)
        share, alias = alias_table(self.noise())
        rows = self.rows.numpy().astype(np.int32)
        return load_kernels().SamplingTables(rows, keep.astype(np.float32), share, alias)

    def noise(self) -> Floats:
        """Return the probability (R,) of each word as a negative example."""
        weights = self.counts.double().numpy() ** self.config.power
        if not weights.any():  # imported vectors have no counts
            weights = np.ones_like(weights)
        probabilities: Floats = weights / weights.sum()
        return probabilities

    def scratch(self, tokens: int) -> Any:
        """Return the buffers with which one thread reads at most `tokens` tokens at a time."""
        c = self.config
        wide, targets = 2 * c.window, c.negatives + 1 if c.negatives else c.n_words
        vectors = np.empty((2, wide, c.d_model), np.float32)
        return load_kernels().Scratch(
            np.empty(tokens + 1, np.int32),
            *vectors,
            np.empty((targets, wide), np.float32),
            np.arange(targets),
            np.zeros(1, np.uint64),
        )

    def weights(self) -> Any:
        """Return both matrices as arrays that share their memory, with no row marked as changed."""
        n = self.config.n_words
        marks = np.zeros((2, n), np.uint8)
        return load_kernels().Weights(self.inputs.data.numpy(), self.outputs.data.numpy(), *marks)

    def losses(self, shard: Shard) -> Floats:
        """Return (U, 2) the summed loss and the number of predictions of every unit of a shard;
        windows and negative examples are the same in every call.
        """
        train_tokens, options = load_kernels().train_tokens, self.window_options()
        tables, weights = self.sampling_tables(), self.weights()
        bounds = unit_bounds(shard)
        longest = int(np.diff(bounds).max())

        def measure(part: Sequence[int]) -> list[tuple[float, int]]:
            scratch = self.scratch(longest)
            return [
                train_tokens(
                    shard.ids[bounds[u] : bounds[u + 1]].astype(np.int32),
                    weights, tables, scratch, options, np.float32(0), np.uint64(u),
                )
                for u in part
            ]  # fmt: skip

        threads = torch.get_num_threads()
        parts = np.array_split(np.arange(len(bounds) - 1), threads)
        with ThreadPoolExecutor(threads) as pool:
            sums = [unit for part in pool.map(measure, parts) for unit in part]
        return np.array(sums, np.float64).reshape(-1, 2)

    def loss(self, shard: Shard) -> float:
        """Return the mean loss of a prediction; NaN where nothing is predicted."""
        total, predictions = self.losses(shard).sum(0).tolist()
        return total / predictions if predictions else math.nan


class CBOW(Word2Vec):
    """A word is predicted from the mean of those around it: a continuous bag of words."""

    mean = True


class SkipGram(Word2Vec):
    """A word is predicted from each of those around it."""

    mean = False


def unit_bounds(shard: Shard) -> Ints:
    """Return the offsets at which a shard is cut into units of about UNIT tokens, anywhere in
    running text, or of about FEW, between records.
    """
    if shard.is_text:
        bounds = np.arange(0, shard.tokens, UNIT)
    else:
        offsets = np.asarray(shard.offsets)
        bounds = offsets[np.searchsorted(offsets, np.arange(0, shard.tokens, FEW))]
    return np.unique(np.append(bounds, shard.tokens))


def alias_table(probabilities: Floats) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the tables for drawing any of R words in constant time: draw an index uniformly, keep
    it with the probability (R,) given there, else take its alias (R,) (Vose 1991,
    doi:10.1109/32.92917).
    """
    n = len(probabilities)
    left = (probabilities * n).tolist()
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
