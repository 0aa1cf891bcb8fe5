"""Coefficients of linear models by scikit-learn, the extra `science`: the minimum of

    Σ cost(x W + b, y) + strength / 2 · |W|²

over sparse rows x. The costs are cross-entropy, half of squares (ridge regression: Hoerl & Kennard
1970) and squared hinges, one class against the rest: a support vector machine (Cortes & Vapnik
1995) as LIBLINEAR solves it (Fan et al. 2008), whose biases are penalised too. Only numbers come
back, in fp64, so that models are asked and stored without scikit-learn. While something is only
being chosen, the minimum need not be exact (`rough`).

Bags of n-grams (`bags`) weighed by one coefficient for every n-gram and answer.

`naive-bayes`: n-grams drawn independently, given the class (multinomial: McCallum & Nigam 1998).
`logistic`: the coefficients under which the answers are likeliest, less a penalty; of values that
is ridge regression. `svm`: those that part the classes with the widest margin. `nb-svm`: the same
after every n-gram was weighed by what naive Bayes thinks of it, between the two (Wang & Manning
2012, "Baselines and Bigrams").

A label at every position from the tokens around it: a window of them, one coefficient for every
token at every distance and label.

Qian & Sejnowski 1988 did this for the secondary structure of proteins, with a window of 13
residues; without hidden units their network is multinomial logistic regression. Beyond the markers
at the ends of a sequence there is nothing.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.errors import missing_extra
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.model_selection import (
    CandidateTrials,
    SampledConfig,
    batches,
    few,
    shares,
    trials,
    varied,
)
from regard.models.ngram_features import (
    LARGEST,
    SparseCounts,
    check_codes,
    concatenate,
    count_ngrams,
    first_of,
    found,
    ngrams_of,
    of_unit_length,
    rarity,
)
from regard.models.ngrams import VariableBuffers
from regard.models.supervised import Budget, FittedModel

Solved = tuple[Tensor, Tensor]  # coefficients (F, O) and biases (O,)
ROUNDS = 2000  # at most


def matrix(bags: SparseCounts) -> Any:
    """Rows as SciPy has them; where scikit-learn is missing, what to install."""
    try:
        import sklearn  # noqa: F401 - brings SciPy
        from scipy.sparse import csr_matrix
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    parts = (bags.values.numpy(), bags.columns.numpy(), bags.starts.numpy())
    return csr_matrix(parts, shape=(len(bags), bags.width))


def fitted(estimator: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(O, F) coefficients and (O,) biases of an estimator; of two classes one row, of the second.
    One that stops short of its minimum is near enough.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
    return np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)


def logistic(strength: float, rough: bool) -> Any:
    """The estimator of class probabilities."""
    from sklearn.linear_model import LogisticRegression

    tolerance = 1e-3 if rough else 1e-5
    return LogisticRegression(
        C=1 / strength, solver="newton-cg", tol=tolerance, max_iter=ROUNDS, random_state=0
    )


def machine(strength: float, rough: bool) -> Any:
    """The estimator of margins."""
    from sklearn.svm import LinearSVC

    tolerance = 1e-2 if rough else 1e-4
    return LinearSVC(C=1 / strength, dual="auto", tol=tolerance, max_iter=ROUNDS, random_state=0)


def of_classes(
    bags: SparseCounts, targets: Tensor, outputs: int, strength: float, *, rough: bool = False
) -> Solved:
    """Multinomial logistic regression on classes (R,). A class that never occurs is as probable as
    half a row makes it.
    """
    x, weights, bias = matrix(bags), np.zeros((bags.width, outputs)), np.zeros(outputs)
    there = targets.unique().tolist()
    if len(there) < 2:
        return torch.from_numpy(weights), shares(targets, outputs).log()
    found, biases = fitted(logistic(strength, rough), x, targets.numpy())
    if len(there) == 2:
        found, biases = np.concatenate([-found, found]) / 2, np.concatenate([-biases, biases]) / 2
    bias[:] = biases.min() + np.log(0.5 / len(targets))
    weights[:, there], bias[there] = found.T, biases
    return torch.from_numpy(weights), torch.from_numpy(bias)


def of_labels(
    bags: SparseCounts, targets: Tensor, outputs: int, strength: float, *, rough: bool = False
) -> Solved:
    """Logistic regression on each of several labels (R, O), gaps left out."""
    made = []
    x = matrix(bags)
    for rows, holds in each(targets, outputs):
        if len(np.unique(holds)) < 2:
            logs = shares(torch.from_numpy(holds.astype(np.int64)), 2).log()
            made.append((np.zeros(bags.width), float(logs[1] - logs[0])))
        else:
            found, bias = fitted(logistic(strength, rough), x[rows], holds)
            made.append((found[0], float(bias[0])))
    return beside(made)


def of_margins(
    bags: SparseCounts,
    targets: Tensor,
    outputs: int,
    strength: float,
    *,
    scales: Tensor | None = None,
    rough: bool = False,
) -> Solved:
    """Support vector machines for each class against the rest, targets (R,), or for each label
    (R, O), gaps left out. With `scales` (F, O), features are multiplied by those first, and the
    coefficients are for the product.
    """
    made: list[tuple[Any, float]] = []
    x = matrix(bags)
    for number, (rows, holds) in enumerate(each(targets, outputs)):
        if len(np.unique(holds)) < 2:
            made.append((np.zeros(bags.width), 1.0 if holds.any() else -1.0))
        elif outputs == 2 and number == 1 and targets.dim() == 1 and scales is None:
            made.append((-made[0][0], -made[0][1]))  # the rest of one is the other
        else:
            own = x[rows]
            if scales is not None:
                own = own.multiply(scales[:, number].numpy()[None]).tocsr()
            found, bias = fitted(machine(strength, rough), own, holds)
            made.append((found[0], float(bias[0])))
    return beside(made)


def of_values(
    bags: SparseCounts, targets: Tensor, outputs: int, strength: float, *, rough: bool = False
) -> Solved:
    """Ridge regression on values (R, O), gaps left out."""
    x = matrix(bags)
    from sklearn.linear_model import Ridge

    made = []
    for column in range(outputs):
        y = targets[:, column].double().numpy()
        rows = np.flatnonzero(~np.isnan(y))
        if not len(rows):
            made.append((np.zeros(bags.width), 0.0))
            continue
        solver = Ridge(alpha=strength, solver="sparse_cg", tol=1e-4 if rough else 1e-8)
        found, bias = fitted(solver, x[rows], y[rows])
        made.append((found[0], float(bias[0])))
    return beside(made)


def each(targets: Tensor, outputs: int) -> Iterator[tuple[Any, Any]]:
    """For every class or label, the rows where it is known and whether it holds there."""
    for number in range(outputs):
        if targets.dim() == 1:
            yield slice(None), (targets == number).numpy()
        else:
            known = targets[:, number] >= 0
            yield known.nonzero()[:, 0].numpy(), targets[known, number].numpy() == 1


def beside(made: list[tuple[Any, float]]) -> Solved:
    """Coefficients (F,) and biases, one answer beside the other."""
    weights = torch.from_numpy(np.stack([one for one, _ in made], axis=1))
    return weights, torch.tensor([bias for _, bias in made], dtype=torch.float64)


FEW_TOKENS = 256  # kinds of them, up to which longer n-grams are tried
ORDERS = (1, 2, 3)  # tried
LONGER = (*ORDERS, 4, 5)
FINISH = 2.5  # times as long takes a fit that is exact as one that is rough
MANY_TOKENS = 100_000  # from which reading is timed on a part
PLACES = ("auto", "any", "each")
ALPHAS = (1.0, 0.3, 0.1, 0.03, 0.01)  # tried
STRENGTHS = (1.0, 0.1, 0.3, 3.0, 10.0, 100.0)  # tried; the first, while the features are chosen
MARGINS = (1.0, 0.3, 3.0, 10.0, 100.0)  # the same of support vector machines


@dataclass(frozen=True, kw_only=True)
class NGramConfig(SampledConfig):
    """n-grams of up to `order` tokens."""

    order: int = 0  # 0 = chosen by held-out records

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.order <= 32:
            raise ValueError(f"order must be from 0 (chosen) to 32, got {self.order}")


@dataclass(frozen=True, kw_only=True)
class NGramFeatureConfig(NGramConfig):
    """They count the same wherever they stand, or are others at every place, which aligned
    sequences gain from; "auto" tries both where all have one length.
    """

    places: Literal["auto", "any", "each"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.places not in PLACES:
            raise ValueError(f"places must be one of {', '.join(PLACES)}, got {self.places!r}")

    @property
    def spread(self) -> int:
        """How many places are told apart."""
        return self.max_len + 1 if self.places == "each" else 1


@dataclass(frozen=True, kw_only=True)
class NaiveBayesConfig(NGramFeatureConfig):
    """How often every n-gram of each class is counted beforehand."""

    alpha: float = 0.0  # 0 = chosen by held-out records

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("alpha")


@dataclass(frozen=True, kw_only=True)
class LinearConfig(NGramFeatureConfig):
    """What n-grams weigh, and how large coefficients may get."""

    weighting: Literal["auto", "counts", "tf-idf"] = "auto"
    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("strength")


@dataclass(frozen=True, kw_only=True)
class NbSvmConfig(NGramFeatureConfig):
    """Between naive Bayes (beta = 0) and a support vector machine on its ratios (beta = 1)."""

    beta: float = 0.25  # Wang & Manning's
    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("strength")
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta must be from 0 to 1, got {self.beta}")


class NGramModel(VariableBuffers, FittedModel):
    """Answers that are sums over the n-grams of a sequence.

    A family says what it tries (`stages`: names of what is open and values for it, one stage after
    the other), what n-grams weigh, and how coefficients are found.
    """

    weighting: ClassVar[str] = ""  # where the configuration has none: counts, binary
    codes: Tensor
    rarity: Tensor
    coefficients: Tensor
    bias: Tensor
    markers: Tensor

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        outputs = config.n_outputs
        self.register_buffer("codes", torch.zeros(0, dtype=torch.int64))  # (F,) n-grams, sorted
        self.register_buffer("rarity", torch.ones(0, dtype=torch.float64))  # (F,)
        self.register_buffer("coefficients", torch.zeros(0, outputs, dtype=torch.float64))  # (F, O)
        self.register_buffer("bias", torch.zeros(outputs, dtype=torch.float64))  # (O,)
        self.limit = max(LONGER)  # of the lengths tried
        self.register_buffer("markers", torch.tensor([-1, -1]))  # ids of `<S>` and `<E>`

    @abstractmethod
    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        """What is tried, each stage with what the one before has chosen."""

    @abstractmethod
    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """Learn from weighed rows."""

    def wrong(self) -> str:
        """See Grown."""
        size, outputs = len(self.codes), self.config.n_outputs
        if self.coefficients.shape != (size, outputs) or self.bias.shape != (outputs,):
            return f"coefficients must be ({size}, {outputs}) and biases as many as answers"
        if self.rarity.shape != (size,) or self.markers.shape != (2,):
            return f"rarity must have {size} numbers and markers 2"
        return "" if bool((self.codes.diff() > 0).all()) else "codes must be sorted"

    @property
    def orders(self) -> Sequence[int]:
        """Lengths of n-grams tried where it is open."""
        return LONGER if self.vocab_size <= FEW_TOKENS else ORDERS

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        budget = budget or Budget(say)
        self.markers = torch.tensor([int(shard.ids[0]), int(shard.ids[-1])])
        uneven = shard.source is not None or len(set(np.diff(np.asarray(shard.offsets)))) > 1
        if uneven and self.config.places == "auto":
            self.config = replace(self.config, places="any")
        self.shorten(shard, budget)
        read = {
            c.places: self.read(c, shard, valid) for c in varied(self.config, places=PLACES[1:])
        }
        targets, others = next(iter(read.values()))[2:]
        groups = torch.arange(shard.records) // shard.views
        judged = trials(self.task, targets, others, groups)
        each = {places: some[:2] for places, some in read.items()}
        self.config = judged.affordable(self.choose(each, judged, budget), budget)
        bags, known = read[self.config.places][:2]
        width = self.width(known, self.config)
        learned = few(torch.arange(shard.records), self.config.records or shard.records)
        own = bags.rows(learned).part(width)
        self.codes, self.rarity = known[:width].clone(), rarity(own)
        weighed = self.weighed(own, self.rarity, self.config)
        self.coefficients, self.bias = self.solve(weighed, targets[learned], self.config, False)
        names = {"places", *(key for stage in self.stages() for key in stage)}
        told = ", ".join(f"{name} {getattr(self.config, name)}" for name in sorted(names))
        say(f"{width:,} n-grams; {told}, where open by {judged.how}")

    def shorten(self, shard: Shard, budget: Budget) -> None:
        """Where reading all n-grams would take most of the time, leave out some that were to be
        tried: those that differ by place first, then the longest.
        """
        if not budget.limited or shard.tokens < MANY_TOKENS:
            return
        found = varied(self.config, places=PLACES[1:])
        began = time.monotonic()
        for config in found:
            longest, spread = self.longest(config), config.spread
            rows, codes, _ = self.occurrences(shard, longest, spread, MANY_TOKENS)
            known = torch.unique(codes)
            count_ngrams(rows, torch.searchsorted(known, codes), shard.records, len(known))
        seconds = (time.monotonic() - began) * shard.tokens / MANY_TOKENS
        if seconds > budget.left / 3 and len(found) > 1:
            self.config = replace(self.config, places="any")
            seconds /= len(found)
            budget.reduce("n-grams are counted anywhere, not at each place")
        longest = self.longest(self.config)
        most = max(1, int(longest * budget.left / 3 / max(seconds, 1e-9)))
        if not self.config.order and most < longest:
            self.limit = most
            budget.reduce(f"n-grams have at most {most} tokens instead of {longest}")

    def read(
        self, config: Any, shard: Shard, valid: Shard | None
    ) -> tuple[SparseCounts, Tensor, Tensor, Tensor | None]:
        """The n-grams of all records, those of training first, which n-grams these are, and what is
        asked of the records of both parts.
        """
        longest = self.longest(config)
        check_codes(longest, self.vocab_size, config.spread)
        rows, codes, targets = self.occurrences(shard, longest, config.spread)
        known = torch.unique(codes)
        bags = count_ngrams(rows, found(codes, known)[1], shard.records, len(known))
        if valid is None or not valid.records:
            return bags, known, targets, None
        rows, codes, others = self.occurrences(valid, longest, config.spread)
        hit, at = found(codes, known)
        more = count_ngrams(rows[hit], at[hit], valid.records, len(known))
        return concatenate([bags, more]), known, targets, others

    def occurrences(
        self, shard: Shard, order: int, places: int, most: float = math.inf
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The records and codes of all n-grams of a shard, or of about `most` of its tokens, and
        what is asked of its records.
        """
        rows, codes, items, targets = [], [], [], []
        seen = 0
        start, end = self.markers.tolist()
        for batch, source in batches(shard, self.config.max_len):
            row, code = ngrams_of(source, order, self.vocab_size, start, end, places)
            own = torch.from_numpy(batch.items)
            rows.append(own[row])
            codes.append(code)
            items.append(own)
            targets.append(batch.targets)
            seen += int((source.segments > 0).sum())
            if seen >= most:
                break
        return torch.cat(rows), torch.cat(codes), torch.cat(targets)[torch.cat(items).argsort()]

    def choose(
        self, read: dict[str, tuple[SparseCounts, Tensor]], judged: CandidateTrials, budget: Budget
    ) -> Any:
        """The configuration with what was open, chosen."""

        kept: dict[
            str, tuple[Tensor, Tensor, SparseCounts, SparseCounts]
        ] = {}  # of the newest split, by places

        def rows(places: str, learn: Tensor, check: Tensor) -> tuple[SparseCounts, SparseCounts]:
            before = kept.get(places)
            if before is None or before[0] is not learn or before[1] is not check:
                bags = read[places][0]
                kept[places] = learn, check, bags.rows(learn), bags.rows(check)
            return kept[places][2:]

        def answer(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            width = self.width(read[config.places][1], config)
            learned, asked = (bags.part(width) for bags in rows(config.places, learn, check))
            rare = rarity(learned)
            coefficients, bias = self.solve(
                self.weighed(learned, rare, config), judged.targets[learn], config, True
            )
            return self.weighed(asked, rare, config).product(coefficients) + bias

        config = self.config
        features, *rest = self.stages()
        for number, stage in enumerate(({"places": tuple(read), **features}, *rest)):
            tried = [c for c in varied(config, **stage) if c.order <= self.longest(c)]
            later = sum(len(varied(config, **other)) for other in rest[number:])
            share = len(tried) / (len(tried) + later)
            config = judged.best(tried, answer, budget, share=share, finish=FINISH)
        return config

    def longest(self, config: Any) -> int:
        """Tokens of the longest n-grams to be looked at."""
        if self.config.order:
            return int(self.config.order)
        return min(self.limit, max(ORDERS if config.places == "each" else self.orders))

    def width(self, known: Tensor, config: Any) -> int:
        """How many of the known n-grams have at most `order` tokens."""
        above = first_of(config.order, self.vocab_size, config.spread)
        return int(torch.searchsorted(known, min(above, LARGEST)))

    def weighed(self, bags: SparseCounts, rare: Tensor, config: Any) -> SparseCounts:
        """Counts as what n-grams weigh."""
        weighting = self.weighting or config.weighting
        if weighting == "tf-idf":
            return of_unit_length(bags, rare)
        return bags.of(torch.ones_like(bags.values)) if weighting == "binary" else bags

    def bags(self, source: Inputs) -> SparseCounts:
        """(B, F) the n-grams of sequences, weighed; those never learned from are left out."""
        start, end = self.markers.tolist()
        rows, codes = ngrams_of(
            source, self.config.order, self.vocab_size, start, end, self.config.spread
        )
        hit, at = found(codes, self.codes)
        counts = count_ngrams(rows[hit], at[hit], len(source.ids), len(self.codes))
        return self.weighed(counts, self.rarity, self.config)

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self.bags(source).product(self.coefficients) + self.bias


class NaiveBayes(NGramModel):
    """log P(class) + Σ log P(n-gram | class), as log-posteriors."""

    Config = NaiveBayesConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "multinomial": lambda n_layers, d_model: NaiveBayesConfig()
    }
    weighting = "counts"

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        """See GramAssessor."""
        return [{"order": self.orders, "alpha": ALPHAS}]

    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        counts = counts_by_class(bags, targets, config.n_outputs) + config.alpha  # (F, C)
        return (counts / counts.sum(0)).log(), shares(targets, config.n_outputs).log()

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return super().answers(source).log_softmax(-1)


class Logistic(NGramModel):
    """The likeliest coefficients."""

    Config = LinearConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: LinearConfig()
    }
    strengths: ClassVar[tuple[float, ...]] = STRENGTHS

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        """See GramAssessor."""
        features = {"order": self.orders, "weighting": ("counts", "tf-idf")}
        return [features, {"strength": self.strengths}]

    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        least = of_labels if self.task == "labels" else of_classes
        strength = config.strength or self.strengths[0]
        return least(bags, targets, config.n_outputs, strength, rough=rough)


class Ridge(Logistic):
    """Values in units of their deviation; the penalty is on these."""

    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        mean, deviation = spread(targets)
        strength, asked = (
            config.strength or self.strengths[0],
            (targets.double() - mean) / deviation,
        )
        weights, bias = of_values(bags, asked, config.n_outputs, strength, rough=rough)
        return weights * deviation, bias * deviation + mean


class LinearSvm(Logistic):
    """The widest margins, one class against the rest; of two classes the answers mirror."""

    strengths = MARGINS

    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        strength = config.strength or self.strengths[0]
        return of_margins(bags, targets, config.n_outputs, strength, rough=rough)


class NbSvm(NGramModel):
    """n-grams that are there, by the ratio of their frequencies in a class and outside it, and a
    support vector machine on that.
    """

    Config = NbSvmConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "wang-manning": lambda n_layers, d_model: NbSvmConfig()
    }
    weighting = "binary"

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        """See GramAssessor."""
        return [{"order": self.orders}, {"strength": MARGINS}]

    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        counts = counts_by_class(bags, targets, config.n_outputs)
        inside, outside = counts + 1, counts.sum(1, keepdim=True) - counts + 1
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()  # (F, C)
        strength, outputs = config.strength or MARGINS[0], config.n_outputs
        weights, bias = of_margins(bags, targets, outputs, strength, scales=ratios, rough=rough)
        mean = weights.abs().mean(0) if len(weights) else weights.new_zeros(config.n_outputs)
        return ((1 - config.beta) * mean + config.beta * weights) * ratios, config.beta * bias


def counts_by_class(bags: SparseCounts, targets: Tensor, classes: int) -> Tensor:
    """(F, C) the sum of each column over the rows of each class."""
    return bags.transposed().product(F.one_hot(targets, classes).double())


def spread(targets: Tensor) -> Solved:
    """Mean and deviation (O,) of values (R, O), gaps left out; 1 where all are alike."""
    there, values = ~targets.isnan(), targets.double()
    many = there.sum(0).clamp_min(1)
    mean = values.nan_to_num(0.0).sum(0) / many
    square = (values - mean).square().where(there, 0.0).sum(0) / many
    return mean, square.sqrt().where(square > 0, 1.0)


WINDOWS = (13, 5, 9, 17, 21)  # tried


@dataclass(frozen=True, kw_only=True)
class WindowConfig(SampledConfig):
    """How many tokens are seen, and how large coefficients may get."""

    window: int = 0  # the position itself in the middle; 0 = chosen by held-out records
    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("strength")
        if not 0 <= self.window <= 1001 or (self.window and self.window % 2 == 0):
            raise ValueError(
                f"window must be 0 (chosen) or odd and at most 1001, got {self.window}"
            )


class WindowLogistic(FittedModel):
    """Logistic regression on one-hot tokens around a position."""

    Config = WindowConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "chosen": lambda n_layers, d_model: WindowConfig()
    }
    coefficients: Tensor
    bias: Tensor

    def __init__(self, vocab_size: int, config: WindowConfig) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config
        shape = config.window * vocab_size, config.n_outputs
        self.register_buffer("coefficients", torch.zeros(shape, dtype=torch.float64))  # (W V, O)
        self.register_buffer("bias", torch.zeros(config.n_outputs, dtype=torch.float64))  # (O,)

    def fit(
        self,
        shard: Shard,
        valid: Shard | None,
        say: Callable[[str], None],
        budget: Budget | None = None,
    ) -> None:
        """See FittedAssessor. What was open becomes part of the configuration."""
        budget = budget or Budget(say)
        config, widest = self.config, self.config.window or max(WINDOWS)
        every, targets, groups = self.read(shard, widest)
        train, others = len(targets), None
        if valid is not None and valid.records:
            more, others, _ = self.read(valid, widest)
            every = concatenate([every, more])
        judged = trials(self.task, targets, others, groups)

        def answer(one: Any, learn: Tensor, check: Tensor) -> Tensor:
            learned = self.nearer(every.rows(learn), one.window)
            weights, bias = self.solve(learned, judged.targets[learn], one, True)
            return self.nearer(every.rows(check), one.window).product(weights) + bias

        tried = varied(config, window=WINDOWS)
        share = len(tried) / (len(tried) + len(varied(config, strength=STRENGTHS)))
        config = judged.best(tried, answer, budget, share=share, finish=FINISH)
        tried = varied(config, strength=STRENGTHS)
        config = judged.best(tried, answer, budget, finish=FINISH)
        self.config = config = judged.affordable(config, budget)
        learned = few(torch.arange(train), config.records or train)
        own = self.nearer(every.rows(learned), config.window)
        self.coefficients, self.bias = self.solve(own, targets[learned], config, False)
        say(
            f"window {config.window}, strength {config.strength:g}, where open by {judged.how}, "
            f"from {len(learned):,} positions"
        )

    def nearer(self, bags: SparseCounts, window: int) -> SparseCounts:
        """The same positions with less around them."""
        width = window * self.vocab_size
        return bags.part(width, (bags.width - width) // 2)

    def solve(self, bags: SparseCounts, targets: Tensor, config: Any, rough: bool) -> Solved:
        """Coefficients and biases from positions."""
        strength = config.strength or STRENGTHS[0]
        return of_classes(bags, targets, config.n_outputs, strength, rough=rough)

    def read(self, shard: Shard, window: int) -> tuple[SparseCounts, Tensor, Tensor]:
        """The positions of a shard that have a label, what it is, and the record of each, records
        numbered as they are read.
        """
        bags, targets, groups, before = [], [], [], 0
        for batch, source in batches(shard, self.config.max_len):
            asked = batch.targets >= 0
            bags.append(windows(source, window, self.vocab_size, asked))
            targets.append(batch.targets[asked])
            groups.append(before + asked.nonzero()[:, 0])
            before += len(asked)
        _, numbered = torch.cat(groups).unique_consecutive(return_inverse=True)
        return concatenate(bags), torch.cat(targets), numbered

    def answers(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """See Assessor. Padding has the answer 0."""
        there = source.segments > 0
        bags = windows(source, self.config.window, self.vocab_size, there)
        found = self.bias.new_zeros(*there.shape, len(self.bias))  # (B, T, O)
        found[there] = bags.product(self.coefficients) + self.bias
        return found


def windows(source: Inputs, window: int, vocab_size: int, asked: Tensor) -> SparseCounts:
    """The tokens around each position that is asked (B, T): at distance d from the left end of its
    window, token x is in column d · V + x.
    """
    half, there = window // 2, source.segments > 0
    ids = F.pad(source.ids.masked_fill(~there, -1), (half, half), value=-1)
    near = ids.unfold(1, window, 1)[asked]  # (P, W), -1 where there is nothing
    columns = near + vocab_size * torch.arange(window, device=near.device)
    inside = near >= 0
    starts = F.pad(inside.sum(1).cumsum(0), (1, 0))
    values = torch.ones(int(starts[-1]), dtype=torch.float64, device=near.device)
    return SparseCounts(starts, columns[inside], values, window * vocab_size)
