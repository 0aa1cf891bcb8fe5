"""Linear models of n-grams and of windows of tokens: one coefficient for each feature and output.

`naive-bayes`: n-grams are independent given the class (multinomial: McCallum & Nigam 1998).
`logistic`: logistic regression; ridge regression for values (Hoerl & Kennard 1970). `svm`: a
support vector machine (Cortes & Vapnik 1995). `nb-svm`: the same on features weighted by the
log-ratios of naive Bayes, interpolated with it (Wang & Manning 2012, "Baselines and Bigrams"). For
a label at each position, `logistic` reads a window of tokens around it: Qian & Sejnowski 1988
predicted the secondary structure of proteins from 13 residues; without hidden units their network
is logistic regression.

scikit-learn minimises

    Σ loss(x W + b, y) + l2 / 2 · |W|²

with cross-entropy, half the squared error, or the squared hinge of one class against the rest as in
LIBLINEAR (Fan et al. 2008), which penalises the bias, too. Models store the coefficients in fp64
and predict without scikit-learn's estimators.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as RidgeRegression
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import known
from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.config import Presets, check_choices, check_ranges
from regard.models.heads import Head
from regard.models.model import VariableBuffers
from regard.models.model_selection import (
    FitData,
    SampledConfig,
    TunedModel,
    class_shares,
    expand_open,
    read_batches,
)
from regard.models.ngram_features import (
    LARGEST,
    check_codes,
    code_limit,
    count_ngrams,
    inverse_frequency,
    list_ngrams,
    tf_idf,
    with_values,
)
from regard.models.supervised import Budget

Coefficients = tuple[Tensor, Tensor]  # (F, O) and biases (O,), fp64
MAX_ITER = 2000


def fit_classes(
    x: Any, targets: Tensor, n_outputs: int, l2: float, *, rough: bool = False
) -> Coefficients:
    """Fit multinomial logistic regression to rows x (R, F) and classes (R,). A class that never
    occurs is as probable as half a row makes it.
    """
    weights, bias = np.zeros((x.shape[1], n_outputs)), np.zeros(n_outputs)
    classes = targets.unique().tolist()
    if len(classes) < 2:
        return torch.from_numpy(weights), class_shares(targets, n_outputs).log()
    coef, intercept = fit_estimator(logistic_regression(l2, rough), x, targets.numpy())
    if len(classes) == 2:
        coef = np.concatenate([-coef, coef]) / 2
        intercept = np.concatenate([-intercept, intercept]) / 2
    bias[:] = intercept.min() + np.log(0.5 / len(targets))
    weights[:, classes], bias[classes] = coef.T, intercept
    return torch.from_numpy(weights), torch.from_numpy(bias)


def fit_labels(x: Any, targets: Tensor, l2: float, *, rough: bool = False) -> Coefficients:
    """Fit logistic regression to each label of targets (R, O), -1 where unknown."""

    def log_odds(y: NDArray[Any]) -> float:
        present, absent = class_shares(torch.from_numpy(1 - y).long(), 2).log().tolist()
        return float(present - absent)

    return fit_columns(logistic_regression(l2, rough), x, targets, log_odds)


def fit_margins(
    x: Any, targets: Tensor, l2: float, *, scales: Tensor | None = None, rough: bool = False
) -> Coefficients:
    """Fit a support vector machine to each label of targets (R, O), -1 where unknown. With `scales`
    (F, O), features are multiplied by these first, and the coefficients are those of the products.
    """
    tol = 1e-2 if rough else 1e-4
    machine = LinearSVC(C=1 / l2, dual="auto", tol=tol, max_iter=MAX_ITER, random_state=0)
    return fit_columns(machine, x, targets, lambda y: 1.0 if y.any() else -1.0, scales)


def fit_values(x: Any, targets: Tensor, l2: float, *, rough: bool = False) -> Coefficients:
    """Fit ridge regression to each column of targets (R, O), NaN where unknown."""
    ridge, x = RidgeRegression(alpha=l2, tol=1e-4 if rough else 1e-8), x.astype(np.float64)
    return fit_columns(ridge, x, targets.double(), lambda y: float(y.mean()) if len(y) else 0.0)


def fit_regression(
    head: Head, x: Any, targets: Tensor, n_outputs: int, l2: float, *, rough: bool = False
) -> Coefficients:
    """Fit ridge regression to values, or logistic regression to labels or classes."""
    if head.scaled:
        return fit_values(x, targets, l2, rough=rough)
    if head.multilabel:
        return fit_labels(x, targets, l2, rough=rough)
    return fit_classes(x, targets, n_outputs, l2, rough=rough)


def fit_columns(
    estimator: Any,
    x: Any,
    targets: Tensor,
    constant: Callable[[NDArray[Any]], float],
    scales: Tensor | None = None,
) -> Coefficients:
    """Fit an estimator to the known rows of each column of targets (R, O). If all are equal, the
    score is `constant` of them.
    """
    weights, bias = np.zeros((x.shape[1], targets.size(1))), np.zeros(targets.size(1))
    for number, column in enumerate(targets.numpy().T):
        rows = np.flatnonzero(known(column))
        if len(np.unique(column[rows])) < 2:
            bias[number] = constant(column[rows])
            continue
        part = x[rows]
        if scales is not None:
            part = part.multiply(scales[:, number].numpy()[None]).tocsr()
        coef, intercept = fit_estimator(estimator, part, column[rows])
        weights[:, number], bias[number] = coef[0], intercept[0]
    return torch.from_numpy(weights), torch.from_numpy(bias)


def fit_estimator(estimator: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Fit a scikit-learn estimator; return coefficients (O, F) and biases (O,), one row for two
    classes. A solution that did not fully converge is good enough.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
    return np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)


def logistic_regression(l2: float, rough: bool) -> Any:
    tol = 1e-3 if rough else 1e-5
    return LogisticRegression(
        C=1 / l2, solver="newton-cg", tol=tol, max_iter=MAX_ITER, random_state=0
    )


FEW_TOKENS = 256  # vocabularies up to this size try longer n-grams
ORDERS = (1, 2, 3)  # tried
LONGER = (*ORDERS, 4, 5)
MANY_TOKENS = 100_000  # from which on reading is timed on a part
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
    cache: list[tuple[Tensor, Any]] = field(default_factory=list)

    def select(self, rows: Tensor) -> Any:
        """Return rows. The two newest selections are cached: all candidates share them."""
        for cached, counts in self.cache:
            if cached is rows:
                return counts
        self.cache = [(rows, self.counts[rows.numpy()]), *self.cache[:1]]
        return self.cache[0][1]


class NGramModel(VariableBuffers, TunedModel):
    """Scores that are sums over the n-grams of a sequence. Subclasses define the settings to try,
    how n-grams are weighted, and how coefficients are fitted.
    """

    finish = 2.5
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
    def solve(self, x: Any, targets: Tensor, config: Any, rough: bool) -> Coefficients:
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
            rows, codes, targets = self.read_ngrams(train, config)
            vocabulary, valid_targets = torch.unique(codes), None
            counts = count_ngrams(rows, codes, vocabulary, train.records)
            if valid is not None:
                rows, codes, valid_targets = self.read_ngrams(valid, config)
                more = count_ngrams(rows, codes, vocabulary, valid.records)
                counts = vstack([counts, more], format="csr")
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
            rows, codes, _ = self.read_ngrams(shard, config, MANY_TOKENS)
            count_ngrams(rows, codes, torch.unique(codes), shard.records)
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

    def read_ngrams(
        self, shard: Shard, config: Any, max_tokens: float = math.inf
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the records and codes of all n-grams of a shard, or of about `max_tokens` of its
        tokens, and the targets of its records.
        """
        rows, codes, items, targets = [], [], [], []
        tokens = 0
        for batch, source in read_batches(shard, self.config.max_len):
            row, code = self.list_ngrams(source, self.longest(config), config.n_positions)
            index = torch.from_numpy(batch.items)
            rows.append(index[row])
            codes.append(code)
            items.append(index)
            targets.append(batch.targets)
            tokens += int((source.segments > 0).sum())
            if tokens >= max_tokens:
                break
        return torch.cat(rows), torch.cat(codes), torch.cat(targets)[torch.cat(items).argsort()]

    def list_ngrams(self, source: Inputs, order: int, n_positions: int) -> tuple[Tensor, Tensor]:
        """Return the rows and codes of all n-grams of sequences."""
        start, end = self.markers.tolist()
        return list_ngrams(source, order, self.vocab_size, start, end, n_positions)

    def select(self, features: dict[str, NGramRows], rows: Tensor, config: Any) -> Any:
        ngrams = features[config.places]
        limit = code_limit(config.order, self.vocab_size, config.n_positions)
        width = int(torch.searchsorted(ngrams.codes, min(limit, LARGEST)))
        return ngrams.select(rows)[:, :width]

    def weight_counts(self, counts: Any, idf: Tensor, config: Any) -> Any:
        """Return the features: weighted counts."""
        weighting = self.weighting or config.weighting
        if weighting == "tf-idf":
            return tf_idf(counts, idf)
        return with_values(counts, np.ones_like(counts.data)) if weighting == "binary" else counts

    def fit_rows(self, x: Any, targets: Tensor, config: Any, *, rough: bool) -> Sequence[Any]:
        idf = inverse_frequency(x)
        weights, bias = self.solve(self.weight_counts(x, idf, config), targets, config, rough)
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

    def solve(self, x: Any, targets: Tensor, config: Any, rough: bool) -> Coefficients:
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

    def solve(self, x: Any, targets: Tensor, config: Any, rough: bool) -> Coefficients:
        l2 = config.strength or self.penalties[0]
        return fit_regression(self.output, x, targets, config.n_outputs, l2, rough=rough)


class Ridge(Logistic):
    """Ridge regression on n-grams. Values, and so the penalty, are in units of their deviation."""

    def solve(self, x: Any, targets: Tensor, config: Any, rough: bool) -> Coefficients:
        missing, values = targets.isnan(), targets.double()
        count = (~missing).sum(0).clamp_min(1)
        mean = values.nan_to_num(0.0).sum(0) / count
        variance = (values - mean).square().masked_fill(missing, 0.0).sum(0) / count
        deviation = variance.sqrt().where(variance > 0, 1.0)
        weights, bias = super().solve(x, (values - mean) / deviation, config, rough)
        return weights * deviation, bias * deviation + mean


class LinearSvm(Logistic):
    """Support vector machines, one class against the rest; two classes have opposite scores."""

    penalties = SVM_PENALTIES

    def solve(self, x: Any, targets: Tensor, config: Any, rough: bool) -> Coefficients:
        l2 = config.strength or self.penalties[0]
        if self.output.multilabel:
            return fit_margins(x, targets, l2, rough=rough)
        labels = F.one_hot(targets, config.n_outputs)
        if config.n_outputs != 2:
            return fit_margins(x, labels, l2, rough=rough)
        weights, bias = fit_margins(x, labels[:, :1], l2, rough=rough)
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

    def solve(self, x: Any, targets: Tensor, config: Any, rough: bool) -> Coefficients:
        counts = sum_by_class(x, targets, config.n_outputs)
        inside, outside = counts + 1, counts.sum(1, keepdim=True) - counts + 1
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()  # (F, C)
        l2, labels = config.strength or SVM_PENALTIES[0], F.one_hot(targets, config.n_outputs)
        weights, bias = fit_margins(x, labels, l2, scales=ratios, rough=rough)
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
    finish = 2.5
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

    def fit_rows(self, x: Any, targets: Tensor, config: Any, *, rough: bool) -> Sequence[Any]:
        l2 = config.strength or PENALTIES[0]
        return fit_classes(x, targets, config.n_outputs, l2, rough=rough)

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
