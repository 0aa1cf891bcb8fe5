"""Bags of n-grams (`bags`) weighed by one coefficient for every n-gram and answer.

`naive-bayes`: n-grams drawn independently, given the class (multinomial: McCallum & Nigam 1998).
`logistic`: the coefficients under which the answers are likeliest, less a penalty; of values that
is ridge regression. `svm`: those that part the classes with the widest margin. `nb-svm`: the same
after every n-gram was weighed by what naive Bayes thinks of it, between the two (Wang & Manning
2012, "Baselines and Bigrams").
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.assessor import FittedAssessor
from regard.models.bags import (
    LARGEST,
    Bags,
    bagged,
    check_codes,
    first_of,
    found,
    grams,
    joined,
    of_unit_length,
    rarity,
)
from regard.models.budget import Budget
from regard.models.fitted import (
    SampledConfig,
    Trials,
    batches,
    few,
    shares,
    trials,
    varied,
)
from regard.models.grown import Grown
from regard.models.solvers import Solved, of_classes, of_labels, of_margins, of_values

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
class GramConfig(SampledConfig):
    """n-grams of up to `order` tokens."""

    order: int = 0  # 0 = chosen by held-out records

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.order <= 32:
            raise ValueError(f"order must be from 0 (chosen) to 32, got {self.order}")


@dataclass(frozen=True, kw_only=True)
class BagConfig(GramConfig):
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
class NaiveBayesConfig(BagConfig):
    """How often every n-gram of each class is counted beforehand."""

    alpha: float = 0.0  # 0 = chosen by held-out records

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("alpha")


@dataclass(frozen=True, kw_only=True)
class LinearConfig(BagConfig):
    """What n-grams weigh, and how large coefficients may get."""

    weighting: Literal["auto", "counts", "tf-idf"] = "auto"
    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("strength")


@dataclass(frozen=True, kw_only=True)
class NbSvmConfig(BagConfig):
    """Between naive Bayes (beta = 0) and a support vector machine on its ratios (beta = 1)."""

    beta: float = 0.25  # Wang & Manning's
    strength: float = 0.0  # of the penalty on squared coefficients; 0 = chosen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positive("strength")
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta must be from 0 to 1, got {self.beta}")


class GramAssessor(Grown, FittedAssessor):
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
    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
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
            bagged(rows, torch.searchsorted(known, codes), shard.records, len(known))
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
    ) -> tuple[Bags, Tensor, Tensor, Tensor | None]:
        """The n-grams of all records, those of training first, which n-grams these are, and what is
        asked of the records of both parts.
        """
        longest = self.longest(config)
        check_codes(longest, self.vocab_size, config.spread)
        rows, codes, targets = self.occurrences(shard, longest, config.spread)
        known = torch.unique(codes)
        bags = bagged(rows, found(codes, known)[1], shard.records, len(known))
        if valid is None or not valid.records:
            return bags, known, targets, None
        rows, codes, others = self.occurrences(valid, longest, config.spread)
        hit, at = found(codes, known)
        more = bagged(rows[hit], at[hit], valid.records, len(known))
        return joined([bags, more]), known, targets, others

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
            row, code = grams(source, order, self.vocab_size, start, end, places)
            own = torch.from_numpy(batch.items)
            rows.append(own[row])
            codes.append(code)
            items.append(own)
            targets.append(batch.targets)
            seen += int((source.segments > 0).sum())
            if seen >= most:
                break
        return torch.cat(rows), torch.cat(codes), torch.cat(targets)[torch.cat(items).argsort()]

    def choose(self, read: dict[str, tuple[Bags, Tensor]], judged: Trials, budget: Budget) -> Any:
        """The configuration with what was open, chosen."""

        kept: dict[str, tuple[Tensor, Tensor, Bags, Bags]] = {}  # of the newest split, by places

        def rows(places: str, learn: Tensor, check: Tensor) -> tuple[Bags, Bags]:
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

    def weighed(self, bags: Bags, rare: Tensor, config: Any) -> Bags:
        """Counts as what n-grams weigh."""
        weighting = self.weighting or config.weighting
        if weighting == "tf-idf":
            return of_unit_length(bags, rare)
        return bags.of(torch.ones_like(bags.values)) if weighting == "binary" else bags

    def bags(self, source: Source) -> Bags:
        """(B, F) the n-grams of sequences, weighed; those never learned from are left out."""
        start, end = self.markers.tolist()
        rows, codes = grams(
            source, self.config.order, self.vocab_size, start, end, self.config.spread
        )
        hit, at = found(codes, self.codes)
        counts = bagged(rows[hit], at[hit], len(source.ids), len(self.codes))
        return self.weighed(counts, self.rarity, self.config)

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return self.bags(source).product(self.coefficients) + self.bias


class NaiveBayes(GramAssessor):
    """log P(class) + Σ log P(n-gram | class), as log-posteriors."""

    Config = NaiveBayesConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "multinomial": lambda n_layers, d_model: NaiveBayesConfig()
    }
    weighting = "counts"

    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        """See GramAssessor."""
        return [{"order": self.orders, "alpha": ALPHAS}]

    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        counts = counts_by_class(bags, targets, config.n_outputs) + config.alpha  # (F, C)
        return (counts / counts.sum(0)).log(), shares(targets, config.n_outputs).log()

    def answers(self, source: Source, *, tap: Tap | None = None) -> Tensor:
        """See Assessor."""
        return super().answers(source).log_softmax(-1)


class Logistic(GramAssessor):
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

    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        least = of_labels if self.task == "labels" else of_classes
        strength = config.strength or self.strengths[0]
        return least(bags, targets, config.n_outputs, strength, rough=rough)


class Ridge(Logistic):
    """Values in units of their deviation; the penalty is on these."""

    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
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

    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        strength = config.strength or self.strengths[0]
        return of_margins(bags, targets, config.n_outputs, strength, rough=rough)


class NbSvm(GramAssessor):
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

    def solve(self, bags: Bags, targets: Tensor, config: Any, rough: bool) -> Solved:
        """See GramAssessor."""
        counts = counts_by_class(bags, targets, config.n_outputs)
        inside, outside = counts + 1, counts.sum(1, keepdim=True) - counts + 1
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()  # (F, C)
        strength, outputs = config.strength or MARGINS[0], config.n_outputs
        weights, bias = of_margins(bags, targets, outputs, strength, scales=ratios, rough=rough)
        mean = weights.abs().mean(0) if len(weights) else weights.new_zeros(config.n_outputs)
        return ((1 - config.beta) * mean + config.beta * weights) * ratios, config.beta * bias


def counts_by_class(bags: Bags, targets: Tensor, classes: int) -> Tensor:
    """(F, C) the sum of each column over the rows of each class."""
    return bags.transposed().product(F.one_hot(targets, classes).double())


def spread(targets: Tensor) -> Solved:
    """Mean and deviation (O,) of values (R, O), gaps left out; 1 where all are alike."""
    there, values = ~targets.isnan(), targets.double()
    many = there.sum(0).clamp_min(1)
    mean = values.nan_to_num(0.0).sum(0) / many
    square = (values - mean).square().where(there, 0.0).sum(0) / many
    return mean, square.sqrt().where(square > 0, 1.0)
