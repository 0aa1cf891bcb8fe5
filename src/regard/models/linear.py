"""Linear models: of n-grams, of windows of tokens, of pixels and of statistics of point clouds.

A model has one coefficient for each feature and output.

`naive-bayes`: n-grams are independent given the class (multinomial: McCallum & Nigam 1998).
`logistic`: logistic regression. `ridge`: ridge regression of values (Hoerl & Kennard 1970). `svm`:
a support vector machine (Cortes & Vapnik 1995). `nb-svm`: the same on features weighted by the
log-ratios of naive Bayes, interpolated with it (Wang & Manning 2012, "Baselines and Bigrams"). For
a label at each position, `logistic` reads a window of tokens around it: Qian & Sejnowski 1988
predicted the secondary structure of proteins from 13 residues; without hidden units their network
is logistic regression.

The coefficients minimise

    Σ loss(x W + b, y) + l2 / 2 · |W|²

with cross-entropy, half the squared error, or the squared hinge of one class against the rest as in
LIBLINEAR (Fan et al. 2008), which penalises the bias, too. They are found by a truncated Newton
method, roughly and in fp32 while settings are chosen, and stored in fp64.

The features of sequences are n-gram counts, as sparse rows. k-mers of DNA and residues, words and
word pairs of text: all are n-grams of 1 to n tokens. The markers at both ends are part of n-grams
of two and more tokens, so that starting with a token is a feature. n-grams of a second text are
other features than those of the first, and none crosses from one text into the other.

Logistic or ridge regression is also the simplest model of images and point clouds. `PixelLogistic`
has one coefficient for each pixel, in units of its channel's standard deviation. A smaller image is
padded with the mean of its channels, a larger one cut to the largest of training.

`PointCloudLogistic` reads statistics that do not change when a cloud is rotated: the standard
deviations along the three principal axes; the distances of points from the centroid (mean,
deviation, histogram); the distances between the group centres likewise; the mean and deviation of
each feature; the number of points of each element; and the number of points.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix, vstack
from sklearn.preprocessing import normalize
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import known
from regard.data.shards import Shard
from regard.errors import UsageError
from regard.layers.embeddings import Inputs, to_image
from regard.layers.positions import pairwise_distances
from regard.layers.tap import Tap
from regard.models import Presets, VariableBuffers, check_choices, check_ranges
from regard.models.newton import (
    CrossEntropy,
    LabelEntropy,
    RowLoss,
    SquaredError,
    SquaredHinge,
    minimise,
)
from regard.models.point_transformer import PointSettings
from regard.models.supervised import (
    EXACT,
    Budget,
    Effort,
    FitData,
    Head,
    SampledConfig,
    TunedModel,
    class_shares,
    expand_open,
    read_batches,
    read_rows,
)
from regard.models.vision import ImageSettings

LARGEST = (1 << 63) - 1  # the largest code
LOOKUP = 1 << 24  # codes up to which columns are looked up in a table, instead of searched


def list_ngrams(
    source: Inputs, order: int, vocab_size: int, start: int, end: int, n_positions: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the rows and the codes (M,) of all n-grams of 1 to `order` tokens in (B, T) sequences.

    An n-gram is a number in base V + 1 with the digits id + 1; its code is twice that number, plus
    one in the second text. Codes of fewer tokens are smaller. With `n_positions` of at least T,
    n-grams at different positions differ: the code is multiplied by that, plus the position.
    """
    ids, mask = source.ids, source.segments > 0
    base, length = vocab_size + 1, ids.size(1)
    ends = (ids == end) & mask
    text = (ends.cumsum(1) - ends.long()).clamp_max(1)  # (B, T) 1 after the first `<E>`
    marker = (ids == start) | ends
    number, inside = torch.zeros_like(ids), torch.zeros_like(mask)
    rows, codes = [], []
    for n in range(1, min(order, length) + 1):
        size = length - n + 1  # positions where n tokens start
        number = number[:, :size] * base + ids[:, n - 1 :] + 1
        inside = inside[:, :size]  # is there a marker inside the n-gram?
        if n > 2:
            inside = inside | marker[:, n - 2 : n - 2 + size]
        valid = mask[:, n - 1 :] & ~(marker if n == 1 else inside)
        rows.append(valid.nonzero()[:, 0])
        code = (2 * number + text[:, n - 1 :]) * n_positions
        if n_positions > 1:
            code = code + torch.arange(size, device=ids.device)
        codes.append(code[valid])
    return torch.cat(rows), torch.cat(codes)


def count_ngrams(rows: Tensor, codes: Tensor, known: Tensor, n_rows: int) -> Any:
    """Return a sparse matrix (n_rows, F) that counts the codes of the sorted `known` (F,), given
    the (M,) row and code of each occurrence; other codes are not counted.
    """
    if not len(known):
        return csr_matrix((n_rows, 0))
    columns = torch.searchsorted(known, codes).clamp_max_(len(known) - 1)
    hit = known[columns] == codes
    keys, counts = torch.unique(rows[hit] * len(known) + columns[hit], return_counts=True)
    starts = torch.searchsorted(keys, torch.arange(n_rows + 1, device=keys.device) * len(known))
    parts = (counts.double(), keys % len(known), starts)
    return csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=(n_rows, len(known)))


def tally_codes(rows: Tensor, codes: Tensor, n_rows: int, limit: int) -> Any:
    """Return a sparse matrix (n_rows, limit) that counts codes below `limit`, given the (M,) row
    and code of each occurrence.
    """
    ones = np.ones(len(codes), np.float32)
    counts = coo_matrix((ones, (rows.numpy(), codes.numpy())), shape=(n_rows, limit)).tocsr()
    counts.sort_indices()
    return counts


def list_codes(parts: Sequence[Any], limit: int) -> NDArray[np.int64]:
    """Return the sorted columns (F,) that occur in sparse matrices of so many columns."""
    if limit > LOOKUP:
        distinct = [np.unique(part.indices) for part in parts]
        return np.unique(np.concatenate(distinct)).astype(np.int64)
    occurs = np.zeros(limit, bool)
    for part in parts:
        occurs[part.indices] = True
    return np.flatnonzero(occurs)


def keep_codes(parts: Sequence[Any], codes: NDArray[np.int64], limit: int) -> Any:
    """Stack sparse matrices, with only the columns `codes` (F,)."""
    if limit <= LOOKUP:
        table = np.full(limit, -1, np.int32)
        table[codes] = np.arange(len(codes), dtype=np.int32)
    stacked = []
    for part in parts:
        if limit <= LOOKUP:
            columns = table[part.indices]
        else:
            columns = np.searchsorted(codes, part.indices).astype(np.int32)
            columns = np.minimum(columns, len(codes) - 1)
            columns[codes[columns] != part.indices] = -1
        known = columns >= 0
        starts = np.concatenate([[0], known.cumsum()])[part.indptr]
        data = (part.data[known], columns[known], starts)
        stacked.append(csr_matrix(data, shape=(part.shape[0], len(codes))))
    return vstack(stacked, format="csr")


class NGram(NamedTuple):
    """An n-gram: its tokens, whether it is in the second text, and the index in its row where it
    starts, or None if positions are not distinguished.
    """

    ids: tuple[int, ...]
    second: bool
    position: int | None


def decode_ngram(code: int, vocab_size: int, n_positions: int = 1) -> NGram:
    """Return the n-gram of a code of `list_ngrams`."""
    code, position = divmod(code, n_positions)
    number, second = divmod(code, 2)
    ids = []
    while number:
        number, digit = divmod(number, vocab_size + 1)
        ids.append(digit - 1)
    return NGram(tuple(reversed(ids)), bool(second), position if n_positions > 1 else None)


def code_limit(order: int, vocab_size: int, n_positions: int = 1) -> int:
    """Return a number that all codes of n-grams of at most `order` tokens are smaller than."""
    return 2 * int((vocab_size + 1) ** order) * n_positions


def check_codes(order: int, vocab_size: int, n_positions: int = 1) -> None:
    """Raise UsageError if codes of this order do not fit into 63 bits."""
    if code_limit(order, vocab_size, n_positions) > LARGEST:
        most = 1
        while code_limit(most + 1, vocab_size, n_positions) <= LARGEST:
            most += 1
        raise UsageError(
            f"model.order must be at most {most} with {vocab_size:,} different tokens, got {order}"
        )


def inverse_frequency(counts: Any) -> Tensor:
    """Return the smoothed inverse document frequency of each column, (F,):
    log((1 + R) / (1 + rows that have it)) + 1 (Salton & Buckley 1988).
    """
    indices, (rows, width) = torch.from_numpy(counts.indices), counts.shape
    frequency: Tensor = torch.bincount(indices, minlength=width)
    return ((1 + int(rows)) / (1 + frequency).double()).log() + 1


def tf_idf(counts: Any, idf: Tensor) -> Any:
    """Return (1 + log n) · idf for each count n, with rows of unit length."""
    weights = idf.cpu().numpy().astype(counts.dtype)[counts.indices]
    return normalize(with_values(counts, (1 + np.log(counts.data)) * weights), copy=False)


def with_values(counts: Any, values: NDArray[Any]) -> Any:
    """Return a sparse matrix with other values at the same entries."""
    return csr_matrix((values, counts.indices, counts.indptr), shape=counts.shape)


Coefficients = tuple[Tensor, Tensor]  # (F, O) and biases (O,), fp64
ROUGH = 0.05  # tolerance of solutions while settings are chosen


def fit_classes(
    x: Any, targets: Tensor, n_outputs: int, l2: float, effort: Effort = EXACT
) -> Coefficients:
    """Fit multinomial logistic regression to rows x (R, F) and classes (R,). A class that never
    occurs is as probable as half a row makes it.
    """
    weights, bias = np.zeros((x.shape[1], n_outputs)), np.zeros(n_outputs)
    classes, index = targets.unique(return_inverse=True)
    if len(classes) < 2:
        return torch.from_numpy(weights), class_shares(targets, n_outputs).log()
    one_hot = F.one_hot(index, len(classes)).numpy()
    if len(classes) == 2:
        coef, intercept = solve(x, LabelEntropy, one_hot[:, 1:] * 2 - 1, l2, effort)
        coef, intercept = np.hstack([-coef, coef]) / 2, np.hstack([-intercept, intercept]) / 2
    else:
        coef, intercept = solve(x, CrossEntropy, one_hot, l2, effort)
    bias[:] = intercept.min() + np.log(0.5 / len(targets))
    weights[:, classes], bias[classes] = coef, intercept
    return torch.from_numpy(weights), torch.from_numpy(bias)


def fit_labels(x: Any, targets: Tensor, l2: float, effort: Effort = EXACT) -> Coefficients:
    """Fit logistic regression to each label of targets (R, O), -1 where unknown."""

    def log_odds(y: NDArray[Any]) -> float:
        present, absent = class_shares(torch.from_numpy(1 - y).long(), 2).log().tolist()
        return float(present - absent)

    return fit_columns(LabelEntropy, x, signs(targets), l2, effort, targets, log_odds)


def fit_margins(
    x: Any, targets: Tensor, l2: float, effort: Effort = EXACT, *, scales: Tensor | None = None
) -> Coefficients:
    """Fit a support vector machine to each label of targets (R, O), -1 where unknown. With `scales`
    (F, O), features are multiplied by these first, and the coefficients are those of the products.
    """

    def sign(y: NDArray[Any]) -> float:
        return 1.0 if y.any() else -1.0

    return fit_columns(SquaredHinge, x, signs(targets), l2, effort, targets, sign, scales)


def signs(targets: Tensor) -> NDArray[Any]:
    """Return 1 for labels that are present, -1 for absent ones and 0 for unknown ones."""
    y = targets.numpy().astype(np.int8)
    return np.where(y < 0, 0, 2 * y - 1)


def fit_values(x: Any, targets: Tensor, l2: float, effort: Effort = EXACT) -> Coefficients:
    """Fit ridge regression to each column of targets (R, O), NaN where unknown."""
    y = targets.double().numpy()
    both = np.stack([np.nan_to_num(y), ~np.isnan(y)])

    def make_loss(both: NDArray[Any]) -> RowLoss:
        return SquaredError(*both)

    def mean(y: NDArray[Any]) -> float:
        return float(y.mean()) if len(y) else 0.0

    return fit_columns(make_loss, x, both, l2, effort, targets, mean)


def fit_regression(
    head: Head, x: Any, targets: Tensor, n_outputs: int, l2: float, effort: Effort = EXACT
) -> Coefficients:
    """Fit ridge regression to values, or logistic regression to labels or classes."""
    if head.scaled:
        return fit_values(x, targets, l2, effort)
    if head.multilabel:
        return fit_labels(x, targets, l2, effort)
    return fit_classes(x, targets, n_outputs, l2, effort)


MakeLoss = Callable[[NDArray[Any]], RowLoss]


def fit_columns(
    make_loss: MakeLoss,
    x: Any,
    y: NDArray[Any],
    l2: float,
    effort: Effort,
    targets: Tensor,
    constant: Callable[[NDArray[Any]], float],
    scales: Tensor | None = None,
) -> Coefficients:
    """Fit all columns of y (…, R, O), made from targets (R, O), at once. Where the known targets of
    a column are equal, its score is `constant` of them.
    """
    weights, bias = np.zeros((x.shape[1], targets.size(1))), np.zeros(targets.size(1))
    varied = []
    for number, column in enumerate(targets.numpy().T):
        values = column[known(column)]
        if len(np.unique(values)) < 2:
            bias[number] = constant(values)
        else:
            varied.append(number)
    if varied:
        scale = None if scales is None else scales[:, varied].numpy().T
        coef, intercept = solve(x, make_loss, y[..., varied], l2, effort, scale)
        weights[:, varied], bias[varied] = coef, intercept
    return torch.from_numpy(weights), torch.from_numpy(bias)


def solve(
    x: Any,
    make_loss: MakeLoss,
    y: NDArray[Any],
    l2: float,
    effort: Effort,
    scales: NDArray[Any] | None = None,  # (O, F)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights (F, O) and biases (O,) of least loss of y (R, O); a rough solution in
    single precision.
    """
    dtype = np.float32 if effort.rough else np.float64
    loss = make_loss(y.astype(dtype))
    tol = ROUGH if effort.rough else loss.tolerance
    weights, bias, _ = minimise(x, loss, l2, scales=scales, tol=tol, dtype=dtype, over=effort.over)
    return weights.T, bias


FEW_TOKENS = 256  # vocabularies up to this size try longer n-grams
ORDERS = (1, 2, 3)  # tried
LONGER = (*ORDERS, 4, 5)
MANY_TOKENS = 100_000  # from which on reading is timed on a part
MAX_COEFFICIENTS = 1 << 24  # of a model
PLACES = ("auto", "any", "each")
ALPHAS = (1.0, 0.3, 0.1, 0.03, 0.01)  # tried
PENALTIES = (1.0, 0.1, 0.3, 3.0, 10.0, 100.0)  # tried; the first, while features are chosen
SVM_PENALTIES = (1.0, 0.3, 3.0, 10.0, 100.0)


def orders_to_try(vocab_size: int) -> Sequence[int]:
    """Return the orders of n-grams tried if the order is open."""
    return LONGER if vocab_size <= FEW_TOKENS else ORDERS


@dataclass(frozen=True, kw_only=True)
class NGramConfig(SampledConfig):
    """n-grams of up to `order` tokens."""

    order: int = 0  # 0 = chosen by held-out records

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, least=0, order=32)


@dataclass(frozen=True, kw_only=True)
class NGramFeatureConfig(NGramConfig):
    """`places`: are n-grams at different positions one feature ("any") or several ("each"), which
    helps with aligned sequences? "auto" tries both if all sequences have one length.
    """

    places: Literal["auto", "any", "each"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, places=PLACES)

    @property
    def n_positions(self) -> int:
        """The number of positions that features distinguish."""
        return self.max_len + 1 if self.places == "each" else 1


@dataclass(frozen=True, kw_only=True)
class NaiveBayesConfig(NGramFeatureConfig):
    """Naive Bayes with additive smoothing."""

    alpha: float = 0.0  # added to every count; 0 = chosen by held-out records


@dataclass(frozen=True, kw_only=True)
class LinearConfig(NGramFeatureConfig):
    """Weighting of n-grams, and the penalty on coefficients."""

    weighting: Literal["auto", "counts", "tf-idf"] = "auto"
    strength: float = 0.0  # the L2 penalty; 0 = chosen


@dataclass(frozen=True, kw_only=True)
class NbSvmConfig(NGramFeatureConfig):
    """Between naive Bayes (beta = 0) and a support vector machine on its ratios (beta = 1)."""

    beta: float = 0.25  # Wang & Manning's
    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, least=0, beta=1)


@dataclass(eq=False)
class NGramRows:
    """Sparse counts of n-grams (R, F) and the sorted codes of these (F,)."""

    counts: Any
    codes: Tensor
    cache: list[tuple[Tensor, int, Any]] = field(default_factory=list)

    def select(self, rows: Tensor, width: int) -> Any:
        """Return rows, and so many of the columns. The newest selections are cached: candidates
        share them.
        """
        counts = self.find(rows, width)
        if counts is None:
            full = self.find(rows, len(self.codes))
            if full is None:
                full = self.counts[rows.numpy()]
                self.cache = [(rows, len(self.codes), full), *self.cache[:3]]
            counts = full if width == len(self.codes) else full[:, :width]
            if width < len(self.codes):
                self.cache = [(rows, width, counts), *self.cache[:3]]
        return counts

    def find(self, rows: Tensor, width: int) -> Any:
        """Return a cached selection, or None."""
        for cached, columns, counts in self.cache:
            if cached is rows and columns == width:
                return counts
        return None


class NGramModel(VariableBuffers, TunedModel):
    """Scores that are sums over the n-grams of a sequence. Subclasses define the settings to try,
    how n-grams are weighted, and how coefficients are fitted.
    """

    finish, least_share = 1.5, 0.25
    learned = ("coefficients", "bias", "idf")
    weighting: ClassVar[str] = ""  # counts or binary; if empty, that of the config
    codes: Tensor
    idf: Tensor
    coefficients: Tensor
    bias: Tensor
    markers: Tensor

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__(vocab_size, config)
        outputs = config.n_outputs
        self.register_buffer("codes", torch.zeros(0, dtype=torch.int64))  # (F,) n-grams, sorted
        self.register_buffer("idf", torch.ones(0, dtype=torch.float64))  # (F,) inverse frequency
        self.register_buffer("coefficients", torch.zeros(0, outputs, dtype=torch.float64))  # (F, O)
        self.register_buffer("bias", torch.zeros(outputs, dtype=torch.float64))  # (O,)
        self.register_buffer("markers", torch.tensor([-1, -1]))  # ids of `<S>` and `<E>`
        self.max_order = max(LONGER)  # of the orders tried

    @abstractmethod
    def settings(self) -> Sequence[dict[str, Sequence[Any]]]:
        """Return what `stages` does, without `places`."""

    @abstractmethod
    def fit_weights(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Coefficients:
        """Fit coefficients to weighted rows."""

    def buffer_error(self) -> str:
        size, outputs = len(self.codes), self.config.n_outputs
        if self.coefficients.shape != (size, outputs) or self.bias.shape != (outputs,):
            return f"coefficients must be ({size}, {outputs}) and biases ({outputs},)"
        if self.idf.shape != (size,) or self.markers.shape != (2,):
            return f"idf must have {size} numbers and markers 2"
        return "" if bool((self.codes.diff() > 0).all()) else "codes must be sorted"

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        first, *rest = self.settings()
        return [{"places": PLACES[1:], **first}, *rest]

    def candidates(self, config: Any, stage: dict[str, Sequence[Any]]) -> list[Any]:
        return [c for c in expand_open(config, **stage) if c.order <= self.longest(c)]

    def longest(self, config: Any) -> int:
        """Return the greatest order of n-grams to count."""
        if self.config.order:
            return int(self.config.order)
        orders = ORDERS if config.places == "each" else orders_to_try(self.vocab_size)
        return min(self.max_order, max(orders))

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        self.markers = torch.tensor([int(train.ids[0]), int(train.ids[-1])])
        uneven = train.source is not None or len(set(np.diff(np.asarray(train.offsets)))) > 1
        if uneven and self.config.places == "auto":
            self.config = replace(self.config, places="any")
        self.reduce_orders(train, budget)
        features: dict[str, NGramRows] = {}
        for config in expand_open(self.config, places=PLACES[1:]):
            check_codes(self.longest(config), self.vocab_size, config.n_positions)
            parts, order, targets = self.read_counts(train, config, budget)
            limit = parts[0].shape[1]
            codes = self.limit_features(parts, list_codes(parts, limit), budget)
            counts, valid_targets = keep_codes(parts, codes, limit)[order], None
            if valid is not None:
                parts, order, valid_targets = self.read_counts(valid, config, budget)
                more = keep_codes(parts, codes, limit)[order]
                counts = vstack([counts, more], format="csr")
            vocabulary = torch.from_numpy(codes)
            features[config.places] = NGramRows(counts, vocabulary)
        return FitData(features, targets, valid_targets, torch.arange(train.records) // train.views)

    def reduce_orders(self, shard: Shard, budget: Budget) -> None:
        """If counting all n-grams would take most of the time, count fewer: not at each position,
        then only shorter ones.
        """
        if not budget.limited or shard.tokens < MANY_TOKENS:
            return
        configs = expand_open(self.config, places=PLACES[1:])
        started = time.monotonic()
        for config in configs:
            parts, _, _ = self.read_counts(shard, config, budget, MANY_TOKENS)
            keep_codes(parts, list_codes(parts, parts[0].shape[1]), parts[0].shape[1])
        seconds = (time.monotonic() - started) * shard.tokens / MANY_TOKENS
        if seconds > budget.left / 3 and len(configs) > 1:
            self.config = replace(self.config, places="any")
            seconds /= len(configs)
            budget.reduce("n-grams are not counted by position")
        longest = self.longest(self.config)
        most = max(1, int(longest * budget.left / 3 / max(seconds, 1e-9)))
        if not self.config.order and most < longest:
            self.max_order = most
            budget.reduce(f"n-grams have at most {most} tokens instead of {longest}")

    def limit_features(
        self, parts: Sequence[Any], codes: NDArray[np.int64], budget: Budget
    ) -> NDArray[np.int64]:
        """Return the codes of n-grams, without rare ones if there are more coefficients than fit
        into memory.
        """
        least, most = 1, max(1, MAX_COEFFICIENTS // self.config.n_outputs)
        if len(codes) <= most:
            return codes
        columns = np.concatenate([np.searchsorted(codes, part.indices) for part in parts])
        frequency = np.bincount(columns, minlength=len(codes))
        while (frequency >= least).sum() > most:
            least += 1
        budget.log(
            f"of {len(codes):,} n-grams, those in fewer than {least} records are not counted: "
            f"more than {most:,} do not fit into memory"
        )
        return codes[frequency >= least]

    def read_counts(
        self, shard: Shard, config: Any, budget: Budget, max_tokens: float = math.inf
    ) -> tuple[list[Any], NDArray[np.int64], Tensor]:
        """Return the counts of all n-grams of a shard, or of about `max_tokens` of its tokens: a
        sparse matrix of each batch, whose columns are codes. Also return the rows of these that are
        the records in order, and the targets of records in order.
        """
        order, parts, items, targets = self.longest(config), [], [], []
        limit = code_limit(order, self.vocab_size, config.n_positions)
        tokens, read = 0, 0
        for batch, source in read_batches(shard, self.config.max_len):
            rows, codes = self.list_ngrams(source, order, config.n_positions)
            parts.append(tally_codes(rows, codes, len(source.ids), limit))
            items.append(batch.items)
            targets.append(batch.targets)
            tokens, read = tokens + int((source.segments > 0).sum()), read + len(batch.items)
            if tokens >= max_tokens:
                break
            budget.progress(f"counting n-grams, {read:,} of {shard.records:,} records")
        index = np.concatenate(items).argsort()
        return parts, index, torch.cat(targets)[torch.from_numpy(index)]

    def list_ngrams(self, source: Inputs, order: int, n_positions: int) -> tuple[Tensor, Tensor]:
        """Return the rows and codes of all n-grams of sequences."""
        start, end = self.markers.tolist()
        return list_ngrams(source, order, self.vocab_size, start, end, n_positions)

    def select(self, features: dict[str, NGramRows], rows: Tensor, config: Any) -> Any:
        ngrams = features[config.places]
        limit = code_limit(config.order, self.vocab_size, config.n_positions)
        width = int(torch.searchsorted(ngrams.codes, min(limit, LARGEST)))
        return ngrams.select(rows, width)

    def weight_counts(self, counts: Any, idf: Tensor, config: Any) -> Any:
        """Return the features: weighted counts."""
        weighting = self.weighting or config.weighting
        if weighting == "tf-idf":
            return tf_idf(counts, idf)
        return with_values(counts, np.ones_like(counts.data)) if weighting == "binary" else counts

    def fit_rows(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Sequence[Any]:
        idf = inverse_frequency(x)
        weighted = self.weight_counts(x, idf, config)
        weights, bias = self.fit_weights(weighted, targets, config, effort)
        return weights, bias, idf

    def predict_rows(self, x: Any, parameters: Sequence[Tensor], config: Any) -> Tensor:
        weights, bias, idf = parameters
        return multiply(self.weight_counts(x, idf, config), weights) + bias

    def store(self, features: dict[str, NGramRows], parameters: Sequence[Any]) -> None:
        super().store(features, parameters)
        self.codes = features[self.config.places].codes[: len(self.idf)].clone()

    @property
    def size(self) -> str:
        return f"{len(self.codes):,} n-grams"

    def features(self, source: Inputs) -> Any:
        """Return the weighted n-grams of sequences, sparse (B, F), without those never fitted."""
        rows, codes = self.list_ngrams(source, self.config.order, self.config.n_positions)
        counts = count_ngrams(rows, codes, self.codes, len(source.ids))
        return self.weight_counts(counts, self.idf, self.config)

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return multiply(self.features(source), self.coefficients) + self.bias


def multiply(x: Any, weights: Tensor) -> Tensor:
    """Return sparse rows (R, F) times (F, O), on the device of the weights."""
    product: NDArray[np.float64] = x @ weights.cpu().numpy()
    return torch.from_numpy(product).to(weights.device)


class NaiveBayes(NGramModel):
    """log P(class) + Σ log P(n-gram | class), as log-posteriors."""

    Config = NaiveBayesConfig
    PRESETS: ClassVar[Presets] = {"multinomial": lambda n_layers, d_model: NaiveBayesConfig()}
    weighting = "counts"

    def settings(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"order": orders_to_try(self.vocab_size), "alpha": ALPHAS}]

    def fit_weights(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Coefficients:
        counts = sum_by_class(x, targets, config.n_outputs) + config.alpha  # (F, C)
        return (counts / counts.sum(0)).log(), class_shares(targets, config.n_outputs).log()

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return super().predict(source).log_softmax(-1)


class Logistic(NGramModel):
    """Logistic regression on n-grams."""

    Config = LinearConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: LinearConfig()}
    penalties: ClassVar[tuple[float, ...]] = PENALTIES

    def settings(self) -> Sequence[dict[str, Sequence[Any]]]:
        orders = orders_to_try(self.vocab_size)
        features = {"order": orders, "weighting": ("counts", "tf-idf")}
        return [features, {"strength": self.penalties}]

    def fit_weights(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Coefficients:
        l2 = config.strength or self.penalties[0]
        return fit_regression(self.output, x, targets, config.n_outputs, l2, effort)


class Ridge(Logistic):
    """Ridge regression on n-grams. Values, and so the penalty, are in units of their deviation."""

    def fit_weights(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Coefficients:
        missing, values = targets.isnan(), targets.double()
        count = (~missing).sum(0).clamp_min(1)
        mean = values.nan_to_num(0.0).sum(0) / count
        variance = (values - mean).square().masked_fill(missing, 0.0).sum(0) / count
        deviation = variance.sqrt().where(variance > 0, 1.0)
        weights, bias = super().fit_weights(x, (values - mean) / deviation, config, effort)
        return weights * deviation, bias * deviation + mean


class LinearSvm(Logistic):
    """Support vector machines, one class against the rest; two classes have opposite scores."""

    penalties = SVM_PENALTIES

    def fit_weights(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Coefficients:
        l2 = config.strength or self.penalties[0]
        if self.output.multilabel:
            return fit_margins(x, targets, l2, effort)
        labels = F.one_hot(targets, config.n_outputs)
        if config.n_outputs != 2:
            return fit_margins(x, labels, l2, effort)
        weights, bias = fit_margins(x, labels[:, :1], l2, effort)
        return torch.cat([weights, -weights], dim=1), torch.cat([bias, -bias])


class NbSvm(NGramModel):
    """Support vector machines on the presence of n-grams, each weighted by the log-ratio of its
    frequencies inside and outside a class.
    """

    Config = NbSvmConfig
    PRESETS: ClassVar[Presets] = {"wang-manning": lambda n_layers, d_model: NbSvmConfig()}
    weighting = "binary"

    def settings(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"order": orders_to_try(self.vocab_size)}, {"strength": SVM_PENALTIES}]

    def fit_weights(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Coefficients:
        counts = sum_by_class(x, targets, config.n_outputs)
        inside, outside = counts + 1, counts.sum(1, keepdim=True) - counts + 1
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()  # (F, C)
        l2, labels = config.strength or SVM_PENALTIES[0], F.one_hot(targets, config.n_outputs)
        if config.n_outputs == 2:  # opposite ratios: equal weights and opposite biases
            weights, bias = fit_margins(x, labels[:, :1], l2, effort, scales=ratios[:, :1])
            weights, bias = weights.repeat(1, 2), torch.cat([bias, -bias])
        else:
            weights, bias = fit_margins(x, labels, l2, effort, scales=ratios)
        mean = weights.abs().mean(0) if len(weights) else weights.new_zeros(config.n_outputs)
        return ((1 - config.beta) * mean + config.beta * weights) * ratios, config.beta * bias


def sum_by_class(x: Any, targets: Tensor, n_classes: int) -> Tensor:
    """Return the sum of each column over the rows of each class, (F, C)."""
    return torch.from_numpy(x.T @ F.one_hot(targets, n_classes).double().numpy())


WINDOWS = (13, 5, 9, 17, 21)  # tried


@dataclass(frozen=True, kw_only=True)
class WindowConfig(SampledConfig):
    """Width of the window, and the penalty on coefficients."""

    window: int = 0  # tokens, the position itself in the middle; 0 = chosen by held-out records
    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window > 1001 or (self.window and self.window % 2 == 0):
            raise ValueError(
                f"window must be 0 (chosen) or odd and at most 1001, got {self.window}"
            )


class WindowLogistic(TunedModel):
    """Logistic regression on the one-hot tokens around a position."""

    Config = WindowConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: WindowConfig()}
    finish, least_share = 1.5, 0.25
    coefficients: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: WindowConfig) -> None:
        super().__init__(vocab_size, config)
        shape = config.window * vocab_size, config.n_outputs
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))  # (W V, O)
        self.register_buffer("bias", torch.zeros(config.n_outputs, dtype=torch.float64))  # (O,)

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        widest = self.config.window or max(WINDOWS)
        x, targets, groups = self.read_positions(train, widest)
        valid_targets = None
        if valid is not None:
            more, valid_targets, _ = self.read_positions(valid, widest)
            x = vstack([x, more], format="csr")
        return FitData(x, targets, valid_targets, groups)

    def read_positions(self, shard: Shard, window: int) -> tuple[Any, Tensor, Tensor]:
        """Return the windows of all labelled positions of a shard, their labels, and the record of
        each, records numbered as they are read.
        """
        windows, targets, groups, records = [], [], [], 0
        for batch, source in read_batches(shard, self.config.max_len):
            labelled = batch.targets >= 0
            windows.append(one_hot_windows(source, window, self.vocab_size, labelled))
            targets.append(batch.targets[labelled])
            groups.append(records + labelled.nonzero()[:, 0])
            records += len(labelled)
        _, group = torch.cat(groups).unique_consecutive(return_inverse=True)
        return vstack(windows, format="csr"), torch.cat(targets), group

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"window": WINDOWS}, {"strength": PENALTIES}]

    def select(self, features: Any, rows: Tensor, config: Any) -> Any:
        width = config.window * self.vocab_size
        first = (features.shape[1] - width) // 2
        return features[rows.numpy()][:, first : first + width]

    def fit_rows(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Sequence[Any]:
        l2 = config.strength or PENALTIES[0]
        return fit_classes(x, targets, config.n_outputs, l2, effort)

    def predict_rows(self, x: Any, parameters: Sequence[Tensor], config: Any) -> Tensor:
        weights, bias = parameters
        return multiply(x, weights) + bias

    @property
    def size(self) -> str:
        return f"{self.config.window} × {self.vocab_size} tokens"

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return scores (B, T, O); padding has zeros."""
        mask = source.segments > 0
        x = one_hot_windows(source, self.config.window, self.vocab_size, mask)
        scores = self.bias.new_zeros(*mask.shape, len(self.bias))  # (B, T, O)
        scores[mask] = multiply(x, self.coefficients) + self.bias
        return scores


def one_hot_windows(source: Inputs, window: int, vocab_size: int, mask: Tensor) -> Any:
    """Return the tokens around each position of the mask (B, T), sparse (P, W V): token x at index
    d of the window is in column d · V + x. There is nothing beyond the markers of a sequence.
    """
    half, inside = window // 2, source.segments > 0
    ids = F.pad(source.ids.masked_fill(~inside, -1), (half, half), value=-1)
    tokens = ids.unfold(1, window, 1)[mask].cpu()  # (P, W), -1 where there is nothing
    columns = tokens + vocab_size * torch.arange(window)
    starts = F.pad((tokens >= 0).sum(1).cumsum(0), (1, 0))
    indices = columns[tokens >= 0].numpy()
    shape = (len(tokens), window * vocab_size)
    return csr_matrix((np.ones(len(indices)), indices, starts.numpy()), shape=shape)


BINS = 12  # of a histogram


class Regression(TunedModel):
    """One coefficient for each feature and output. Its config has a `strength`, the L2 penalty."""

    feature_name: ClassVar[str]  # plural, for messages
    penalties: ClassVar[tuple[float, ...]]  # tried
    coefficients: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: Any, n_features: int) -> None:
        super().__init__(vocab_size, config)
        self.register_buffer("coefficients", torch.zeros(n_features, config.n_outputs))
        self.register_buffer("bias", torch.zeros(config.n_outputs))

    @abstractmethod
    def features(self, source: Inputs) -> Tensor:
        """Return the features (B, F) of records."""

    def fit_scale(self, rows: Tensor) -> None:
        """Store what `scale` needs from the features (R, F) of the training split."""

    def scale(self, rows: Tensor) -> Tensor:
        """Return features in the units that are fitted."""
        return rows

    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        rows, targets = self.read(train)
        self.fit_scale(rows)
        rows, valid_targets = self.scale(rows), None
        if valid is not None:
            more, valid_targets = self.read(valid)
            rows = torch.cat([rows, self.scale(more)])
        return FitData(rows, targets, valid_targets)

    def read(self, shard: Shard) -> tuple[Tensor, Tensor]:
        """Return features and targets of all records, in order."""
        return read_rows(shard, self.config.max_len, lambda source, batch: self.features(source))

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        return [{"strength": self.penalties}]

    def fit_rows(self, x: Tensor, targets: Tensor, config: Any, effort: Effort) -> Sequence[Any]:
        head, l2 = self.output, config.strength
        if config.n_outputs == 2 and not (head.scaled or head.multilabel):
            l2 /= 2  # scikit-learn penalises the difference of two columns, which are opposite
        weights, bias = fit_regression(head, x.numpy(), targets, config.n_outputs, l2, effort)
        return weights.float(), bias.float()

    def predict_rows(self, x: Tensor, parameters: Sequence[Tensor], config: Any) -> Tensor:
        weights, bias = parameters
        return x @ weights + bias

    @property
    def size(self) -> str:
        return f"{len(self.coefficients):,} {self.feature_name}"

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self.scale(self.features(source)) @ self.coefficients + self.bias


@dataclass(frozen=True, kw_only=True)
class PixelConfig(ImageSettings, SampledConfig):
    """The size of images, and the penalty on coefficients."""

    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        ImageSettings.__post_init__(self)
        SampledConfig.__post_init__(self)


class PixelLogistic(Regression):
    """Regression on the pixels of images."""

    Config = PixelConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: PixelConfig()}
    reads = "patches"
    feature_name, penalties = "pixels", (100.0, 1.0, 10.0, 1000.0, 10000.0)

    def __init__(self, vocab_size: int, config: PixelConfig) -> None:
        pixels = config.rows * config.columns * config.patch**2 * config.channels
        super().__init__(vocab_size, config, pixels)

    def features(self, source: Inputs) -> Tensor:
        config = self.config
        image, mask = to_image(source, config.rows, config.columns, config.patch)
        mean, deviation = (
            255 * torch.tensor(values, device=image.device)[:, None, None]
            for values in (config.mean, config.deviation)
        )
        return ((image - mean) / deviation * mask).flatten(1)


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig(PointSettings, SampledConfig):
    """What is known of point clouds, and the penalty on coefficients."""

    strength: float = 0.0  # the L2 penalty; 0 = chosen

    def __post_init__(self) -> None:
        PointSettings.__post_init__(self)
        SampledConfig.__post_init__(self)


class PointCloudLogistic(Regression):
    """Regression on statistics of point clouds."""

    Config = StatisticsConfig
    PRESETS: ClassVar[Presets] = {"chosen": lambda n_layers, d_model: StatisticsConfig()}
    reads = "points"
    feature_name, penalties = "statistics", (1.0, 0.01, 0.1, 10.0, 100.0)
    mean: Tensor
    deviation: Tensor

    def __init__(self, vocab_size: int, config: StatisticsConfig) -> None:
        histograms, features = 2 * (2 + BINS), 2 * config.n_features
        count = config.dimensions + histograms + features + len(config.elements) + 1
        super().__init__(vocab_size, config, count)
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("deviation", torch.ones(count))

    def features(self, source: Inputs) -> Tensor:
        config = self.config
        d, mask = config.dimensions, source.segments > 0
        mask = mask & (torch.arange(mask.size(1), device=mask.device) > 0)  # without `<S>`
        count = mask.sum(1, keepdim=True).clamp_min(1).float()
        points = torch.where(mask[..., None], source.ids[..., :d].float(), 0)
        centroid = points.sum(1, keepdim=True) / count[..., None]
        points = torch.where(mask[..., None], points - centroid, 0)
        covariance = points.mT @ points / count[..., None]
        axes = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt()
        radii = summarize(points.norm(dim=-1), mask, config.max_distance / 2)
        pairs = mask[:, :, None] & mask[:, None]
        distances = pairwise_distances(points, points).flatten(1)
        gaps = summarize(distances, pairs.flatten(1), config.max_distance)
        extra = source.ids[..., 2 * d + 1 : 2 * d + 1 + config.n_features].float()
        extra = torch.where(mask[..., None], extra, 0)
        mean = extra.sum(1) / count
        deviation = (extra.square().sum(1) / count - mean.square()).clamp_min(0).sqrt()
        elements = config.composition(source)
        return torch.cat((axes, radii, gaps, mean, deviation, elements, count), dim=1)

    def fit_scale(self, rows: Tensor) -> None:
        self.mean, deviation = rows.mean(0), rows.std(0, correction=0)
        self.deviation = torch.where(deviation > 1e-6, deviation, 1.0)

    def scale(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.deviation


def summarize(values: Tensor, mask: Tensor, largest: float) -> Tensor:
    """Return mean, deviation and a histogram up to `largest` of masked values (B, N):
    (B, 2 + BINS).
    """
    count = mask.sum(1, keepdim=True).clamp_min(1).float()
    values = torch.where(mask, values, 0)
    mean = values.sum(1, keepdim=True) / count
    deviation = ((values.square().sum(1, keepdim=True) / count) - mean.square()).clamp_min(0).sqrt()
    index = (values / largest * BINS).long().clamp(0, BINS - 1)
    histogram = torch.zeros(len(values), BINS, device=values.device)
    histogram = histogram.scatter_add(1, index, mask.float())
    return torch.cat((mean, deviation, histogram / count), 1)
