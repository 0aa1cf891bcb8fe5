"""Models that predict labels or values: of a record, or of each of its positions.

`FittedModel`s are fitted at once, by counting or by a solver, within a `Budget` of time.
`NeuralSupervisedModel`s are trained by gradients: a family turns every position into a vector by
attention, recurrence or convolution; the vectors are pooled, and a linear layer gives the scores.

A `Head` is what the scores of a supervised model mean, one class for each kind of output.

A head knows its loss, the probabilities of its scores, how to average the views of a record and how
far two predictions are apart. It has no parameters.

Fitted models choose their open settings on held-out rows: these are compared on the validation
split if it is large enough, and otherwise by cross-validation on the training split, stratified by
class; all views of a record are in the same fold. With a time budget, the search is reduced until
it fits.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from regard.data import Progress, no_progress
from regard.data.batching import Batch, LabelledExamples, known
from regard.data.shards import Shard
from regard.errors import UsageError, did_you_mean
from regard.layers.embeddings import Inputs
from regard.layers.feedforward import dropout
from regard.layers.tap import Tap
from regard.models import LossMetric, Model, RootMeanSquare, check_choices, check_ranges

POOLINGS = ("mean", "first", "attention", "max", "sum")


class Pooling(nn.Module):
    """`mean` over all positions; `first`, the vector of `<S>` (BERT's [CLS]); `attention`, a mean
    with learned weights, a softmax of one score per position (Yang et al. 2016, "Hierarchical
    attention networks for document classification"); `max` of each feature (Collobert et al. 2011);
    `sum`, for targets that grow with the sequence, as the energy of a molecule does.

    `segments` (B, T) numbers sequences, 0 being padding. Without `count` every row is a sequence,
    even an empty one; with it, rows are packed and hold `count` sequences in all.
    """

    def __init__(self, name: str, d_model: int) -> None:
        super().__init__()
        if name not in POOLINGS:
            raise UsageError(f"unknown pooling {name!r}; {did_you_mean(name, list(POOLINGS))}")
        self.name = name
        self.score = nn.Linear(d_model, 1, bias=False) if name == "attention" else None

    def forward(self, x: Tensor, segments: Tensor, count: int | None = None) -> Tensor:
        """(B, T, D) to the vectors (N, D) of N sequences; an empty one gives zeros."""
        sequence, n = number_sequences(segments, count)
        flat = x.flatten(0, 1)
        if self.name == "max":
            highest = self._highest(flat, sequence, n)
            return highest.masked_fill(highest == -torch.inf, 0)[:n]
        weights = self.weights(x, segments, count).flatten()  # (B·T,)
        single = torch.promote_types(x.dtype, torch.float32)  # sums of many, rounded once
        sums = flat.new_zeros(n + 1, x.size(-1), dtype=single)
        return sums.index_add(0, sequence, flat.to(single) * weights[:, None])[:n].to(x.dtype)

    def weights(self, x: Tensor, segments: Tensor, count: int | None = None) -> Tensor:
        """Return the weight (B, T) of each position in its sequence; for "max", the share of
        features that are largest there.
        """
        sequence, n = number_sequences(segments, count)
        valid = sequence < n
        if self.name == "max":
            flat = x.flatten(0, 1)
            largest = (flat == self._highest(flat, sequence, n)[sequence]) & valid[:, None]
            ties = largest.new_zeros(n + 1, x.size(-1), dtype=x.dtype)
            ties = ties.index_add(0, sequence, largest.to(x.dtype))
            shares = largest / ties.clamp_min(1)[sequence]
            return shares.mean(-1).view_as(segments)
        if self.name == "sum":
            return valid.to(x.dtype).view_as(segments)
        if self.name == "first":
            starts = torch.ones_like(segments, dtype=torch.bool)
            starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
            return (starts.flatten() & valid).to(x.dtype).view_as(segments)
        single = torch.promote_types(x.dtype, torch.float32)
        scores = x.new_zeros(sequence.shape, dtype=single)
        if self.score is not None:
            scores = self.score(x).flatten().to(single)
        top = scores.new_full((n + 1,), -torch.inf)
        top = top.scatter_reduce(0, sequence, scores.detach(), "amax")
        powers = (scores - top[sequence]).exp() * valid
        sums = scores.new_zeros(n + 1).index_add(0, sequence, powers)
        tiny = torch.finfo(single).tiny
        return (powers / sums.clamp_min(tiny)[sequence]).view_as(segments)

    @staticmethod
    def _highest(flat: Tensor, sequence: Tensor, n: int) -> Tensor:
        """Return the maximum of each feature, (N + 1, D)."""
        lowest = flat.new_full((n + 1, flat.size(-1)), -torch.inf)
        return lowest.scatter_reduce(0, sequence[:, None].expand_as(flat), flat, "amax")


def number_sequences(segments: Tensor, count: int | None) -> tuple[Tensor, int]:
    """Return the sequence (B·T,) of every position, from 0, and their number N; padding has N."""
    parts = segments.long()
    if count is None:
        n, rows = len(parts), torch.arange(len(parts), device=parts.device)
        sequence = rows[:, None].expand_as(parts)
    else:
        n, last = count, parts.amax(1)
        sequence = (last.cumsum(0) - last)[:, None] + parts - 1
    return sequence.masked_fill(parts == 0, n).flatten(), n


IGNORE = -1  # the target of a class that is not scored


class Head(ABC):
    """The meaning of scores (…, O)."""

    positional: bool = False  # predicts at each position instead of once for a record
    scaled: ClassVar[bool] = False  # scores are in units of the training targets' deviation
    class_weights: ClassVar[bool] = False  # the loss may weight classes
    multilabel: ClassVar[bool] = False  # each output is a label that is present or absent

    @abstractmethod
    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss to minimise, smoothed and weighted, and the plain loss, both summed."""

    def loss_metric(self, scale: Tensor) -> LossMetric:
        """Return what the plain loss is called; `scale` (O,) are the units of scaled scores."""
        return LossMetric("loss", "", "loss {}")

    @abstractmethod
    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        """Return how far two predictions are apart, summed over the targets that are scored."""

    @abstractmethod
    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the probabilities of classes or labels; values are returned unchanged."""

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Return the logarithms of `probabilities`; values are returned unchanged."""
        return self.probabilities(scores).log()

    @abstractmethod
    def average(self, scores: Tensor) -> Tensor:
        """Return the scores (R, O) of records from those of their views (R, n_views, O)."""

    @abstractmethod
    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        """Return random targets of rows, or of rows and positions."""

    def must_agree(self, probabilities: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return two tensors that are equal if probabilities are sound; None where none are."""
        return None


HEADS: dict[str, Head] = {}


def register_head(*tasks: str) -> Callable[[type[Head]], type[Head]]:
    """Register a head for tasks."""

    def register(cls: type[Head]) -> type[Head]:
        HEADS.update({task: cls() for task in tasks})
        return cls

    return register


@register_head("label")
class ClassHead(Head):
    """Logits of classes."""

    class_weights = True

    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, classes = scores.flatten(0, -2), targets.flatten()
        loss = F.cross_entropy(
            logits,
            classes,
            weights,
            ignore_index=IGNORE,
            reduction="sum",
            label_smoothing=smoothing,
        )
        return loss, F.cross_entropy(logits, classes, ignore_index=IGNORE, reduction="sum")

    def loss_metric(self, scale: Tensor) -> LossMetric:
        return LossMetric("log_loss", "nats", "log loss {}")

    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        """KL(p, q) + KL(q, p)."""
        p, q = one.log_softmax(-1), two.log_softmax(-1)
        gap = ((p.exp() - q.exp()) * (p - q)).sum(-1)
        return gap.where(targets >= 0, 0).sum()

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        return scores.log_softmax(-1)

    def average(self, scores: Tensor) -> Tensor:
        return scores.log_softmax(-1).logsumexp(1) - math.log(scores.size(1))

    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        return torch.randint(n_outputs, shape, generator=draw)

    def must_agree(self, probabilities: Tensor) -> tuple[Tensor, Tensor] | None:
        """They sum to one."""
        totals = probabilities.sum(-1)
        return totals, torch.ones_like(totals)


@register_head("position-label")
class PositionClassHead(ClassHead):
    """Logits of classes at each position."""

    positional = True

    def loss_metric(self, scale: Tensor) -> LossMetric:
        return LossMetric("log_loss", "nats", "log loss {}", "positions")


@register_head("masked")
class MaskedTokenHead(PositionClassHead):
    """Logits of tokens at each position."""

    def loss_metric(self, scale: Tensor) -> LossMetric:
        return LossMetric("nats_per_token", "nats/token", "{} nats/token", "masked tokens")


@register_head("labels")
class LabelsHead(Head):
    """Logits of labels, each present or absent."""

    multilabel = True

    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        scored, wanted = targets >= 0, targets.clamp_min(0).to(scores.dtype)
        smooth, plain = (
            F.binary_cross_entropy_with_logits(scores, y, reduction="none").where(scored, 0).sum()
            for y in (wanted * (1 - smoothing) + smoothing / 2, wanted)
        )
        return smooth, plain

    def loss_metric(self, scale: Tensor) -> LossMetric:
        items = "" if len(scale) == 1 else "labels"
        return LossMetric("log_loss", "nats per label", "log loss {}", items)

    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        p, q = one.sigmoid(), two.sigmoid()
        return ((p - q) * (one - two)).where(targets >= 0, 0).sum()

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()

    def log_probabilities(self, scores: Tensor) -> Tensor:
        return F.logsigmoid(scores)

    def average(self, scores: Tensor) -> Tensor:
        return torch.logit(scores.sigmoid().mean(1), eps=1e-12)

    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        return torch.randint(2, (*shape, n_outputs), generator=draw)

    def must_agree(self, probabilities: Tensor) -> tuple[Tensor, Tensor] | None:
        """Each is from 0 to 1."""
        return probabilities, probabilities.clamp(0, 1)


@register_head("value")
class ValueHead(Head):
    """Numbers; targets are standardised as the scores are, NaN where a value is missing."""

    scaled = True

    def loss(
        self, scores: Tensor, targets: Tensor, *, smoothing: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Half the squared error."""
        half = ((scores - targets.nan_to_num(0.0)).square() / 2).where(~targets.isnan(), 0).sum()
        return half, half

    def loss_metric(self, scale: Tensor) -> LossMetric:
        if len(scale) > 1:
            name, words = "rmse_standardized", "RMSE {} (standardized)"
            return RootMeanSquare(name, "standard deviations", words, "values")
        return RootMeanSquare("rmse", "that of the values", "RMSE {}", deviation=float(scale[0]))

    def divergence(self, one: Tensor, two: Tensor, targets: Tensor) -> Tensor:
        return (one - two).square().where(~targets.isnan(), 0).sum()

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores

    def log_probabilities(self, scores: Tensor) -> Tensor:
        return scores

    def average(self, scores: Tensor) -> Tensor:
        return scores.mean(1)

    def random_targets(self, shape: tuple[int, ...], n_outputs: int, draw: Generator) -> Tensor:
        return torch.randn((*shape, n_outputs), generator=draw, dtype=torch.float64)


Log = Callable[[str], None]


class Budget:
    """The seconds that fitting may take, counted from now on. What does not fit into them is
    reduced, and each reduction is logged.
    """

    def __init__(
        self,
        log: Log,
        seconds: float = math.inf,
        progress: Progress = no_progress,
        name: str = "model",
    ) -> None:
        """`progress` shows how the fit of the model `name` goes on."""
        self.log, self.show, self.name = log, progress, name
        self.started = time.monotonic()
        self.end = self.stop = self.started + seconds
        self.activity = ""  # for messages
        self.cut = False  # did a fit stop for lack of time?
        self.reductions: list[str] = []  # those that were logged

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.end)

    @property
    def left(self) -> float:
        """Seconds until the end; negative afterwards."""
        return self.end - time.monotonic()

    def limit(self, seconds: float) -> None:
        """Let the next fits stop after so many seconds, instead of at the end."""
        self.stop = min(self.end, time.monotonic() + seconds)

    @property
    def over(self) -> bool:
        """Whether fits must stop."""
        return time.monotonic() >= self.stop

    def progress(self, activity: str) -> None:
        """Show the current activity."""
        self.activity = activity
        self.tick("")

    def tick(self, detail: str) -> None:
        """Show a detail of the current activity."""
        line = ", ".join(part for part in (self.activity, detail) if part)
        total = self.end - self.started if self.limited else 0.0
        seconds = time.monotonic() - self.started
        self.show(f"fitting {self.name}", seconds, total, "seconds", line)

    def reduce(self, reduction: str) -> None:
        """Log a reduction, the first time."""
        if reduction not in self.reductions:
            self.reductions.append(reduction)
            self.log(f"time is short: {reduction}")


@dataclass(frozen=True)
class Effort:
    """How exactly and how long to fit: a `rough` solution is enough for choosing settings."""

    rough: bool = False
    budget: Budget | None = None
    must_end: bool = True  # stop when the time is over?

    def over(self, step: int) -> bool:
        """Log the number of the current step; return whether to stop for lack of time."""
        if self.budget is None:
            return False
        self.budget.tick(f"step {step}")
        self.budget.cut |= self.must_end and self.budget.over
        return self.budget.cut


EXACT = Effort()


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """What is predicted, and how positions are pooled."""

    task: str = "label"
    n_outputs: int = 1  # classes, labels or values; set from the data
    pooling: str = "mean"

    def __post_init__(self) -> None:
        check_choices(self, task=HEADS, pooling=POOLINGS)
        check_ranges(self, n_outputs=1 << 20)

    @property
    def head(self) -> Head:
        """What the scores mean."""
        return HEADS[self.task]


class SupervisedModel(Model):
    """Predicts labels or values of sequences."""

    @property
    def task(self) -> str:
        """The task it was trained for, a key of HEADS."""
        return str(self.config.task)

    @property
    def output(self) -> Head:
        """What its scores mean."""
        return HEADS[self.task]

    @property
    def n_outputs(self) -> int:
        """The number of scores of a prediction."""
        return int(self.config.n_outputs)

    @abstractmethod
    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return logits of classes or labels, or values: (B, O) of sequences, one to a row, or
        (B, T, O) of their positions.
        """

    def read_batch(
        self, source: Inputs, *, positions: Sequence[int] | None = None, tap: Tap | None = None
    ) -> Tensor:
        scores = self.predict(source, tap=tap)
        return scores if positions is None else scores[:, list(positions)]


class FittedModel(SupervisedModel):
    """A model that is fitted at once; its buffers hold all that it learns."""

    loop = "solve"

    @abstractmethod
    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        """Fit to labelled records; hyperparameters are chosen on `valid`, or by cross-validation.
        Without a budget nothing is reduced.
        """


class NeuralSupervisedModel(SupervisedModel):
    """A model trained by gradients. `shift` and `scale` (O,) are the mean and standard deviation of
    the training values; for logits they are 0 and 1.
    """

    loop = "gradient"
    static_shapes = True
    sparse_targets: ClassVar[bool] = False  # `forward` can be limited to the positions with targets
    shift: Tensor
    scale: Tensor

    def add_head(self, d_model: int) -> None:
        """Create the layers after the encoder."""
        config: Any = self.config
        self.pool = Pooling(config.pooling, d_model)
        self.head = nn.Linear(d_model, config.n_outputs)
        terms = config.max_len if config.pooling == "sum" else 1  # a sum is that much larger
        nn.init.normal_(self.head.weight, std=0.5 * d_model**-0.5 / terms)
        nn.init.zeros_(self.head.bias)
        if self.pool.score is not None:
            nn.init.zeros_(self.pool.score.weight)  # equal weights at first
        self.register_buffer("shift", torch.zeros(config.n_outputs))
        self.register_buffer("scale", torch.ones(config.n_outputs))

    def prepare(self, shard: Shard) -> None:
        if self.output.scaled and shard.targets is not None:
            self.standardise(torch.tensor(np.array(shard.targets)))

    @torch.no_grad()
    def standardise(self, targets: Tensor) -> None:
        """Set `shift` and `scale` from values (N, O); NaN is missing."""
        for column, values in enumerate(targets.T):
            known = values[~values.isnan()].double()
            if len(known):
                self.shift[column] = known.mean()
                deviation = known.std(correction=0)
                self.scale[column] = deviation if deviation > 0 else 1.0

    @property
    def loss_metric(self) -> LossMetric:
        return self.output.loss_metric(self.scale)

    @abstractmethod
    def vectors(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        """Return (B, T, D) contextual vectors of all positions."""

    def embed(self, source: Inputs, *, count: int | None = None, tap: Tap | None = None) -> Tensor:
        """Return (B, D) vectors of the sequences, one to a row; of packed rows with `count`
        sequences in total, (N, D) row by row.
        """
        x = self.vectors(source, tap=tap)
        if tap is not None and tap.wants("pooling.weights"):
            tap("pooling.weights", self.pool.weights(x, source.segments, count))
        return self.pool(x, source.segments, count)  # type: ignore[no-any-return]

    def forward(
        self, source: Inputs, *, count: int | None = None, tap: Tap | None = None
    ) -> Tensor:
        """Return standardised predictions, (`predict` - `shift`) / `scale`, which the loss is
        computed of; for `count` see `embed`.
        """
        if self.output.positional:
            x = self.vectors(source, tap=tap)
        else:
            x = self.embed(source, count=count, tap=tap)
        return self.head(dropout(x, self.config.dropout, self.training))  # type: ignore[no-any-return]

    def predict(self, source: Inputs, *, tap: Tap | None = None) -> Tensor:
        return self(source, tap=tap) * self.scale + self.shift  # type: ignore[no-any-return]


BATCH_TOKENS = 1 << 16
ENOUGH, POSITIONS = 1000, 2000  # records, or positions, of a validation split that can choose
FOLDS = 5
MOST = 20_000  # training rows while choosing
LEAST = 1000  # training rows, at least, when time is short
PROBED = 256  # rows that candidates are timed on
GROWTH = 1.5  # a row takes longer among many rows than among few: solvers take more steps
SCALES = tuple(2.0**n for n in range(-8, 5))  # of scores, when they are compared
Candidate = TypeVar("Candidate", bound="FittedConfig")
FitPredict = Callable[[Candidate, Tensor, Tensor], Tensor]  # fits rows and predicts others
Split = tuple[Tensor, Tensor]  # indices of rows to fit, and of rows to predict


@dataclass(frozen=True, kw_only=True)
class FittedConfig(HeadConfig):
    """Records are read up to max_len tokens. Settings that are 0 or "auto" are open."""

    max_len: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {self.max_len}")
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be finite and 0 or more, got {value}")


@dataclass(frozen=True, kw_only=True)
class SampledConfig(FittedConfig):
    """A model may be fitted to a sample of the records."""

    records: int = 0  # sampled at random; 0 = all, unless time is short


def read_batches(shard: Shard, max_len: int) -> Iterator[tuple[Batch, Inputs]]:
    """Yield the records of a labelled shard in batches of similar length."""
    for batch in LabelledExamples(shard, None, max_len).batches(BATCH_TOKENS):
        assert batch.segments is not None
        yield batch, Inputs(batch.ids, batch.segments)


def read_rows(
    shard: Shard, max_len: int, featurize: Callable[[Inputs, Batch], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the features (R, …) and the targets of all records, in order."""
    rows, targets, items = torch.empty(0), list[Tensor](), list[Tensor]()
    for batch, source in read_batches(shard, max_len):
        features, index = featurize(source, batch), torch.from_numpy(batch.items)
        if not items:
            rows = features.new_empty(shard.records, *features.shape[1:])
        rows[index] = features
        items.append(index)
        targets.append(batch.targets)
    return rows, torch.cat(targets)[torch.cat(items).argsort()]


@dataclass(eq=False)
class SearchPace:
    """The seconds that a comparison may take, and how long its fits were expected to take."""

    seconds: float
    started: float = field(default_factory=lambda: time.monotonic())
    expected: float = 0.0  # of the fits so far

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def slowdown(self) -> float:
        """How many times longer fits took than expected."""
        return self.elapsed / self.expected if self.expected else 1.0

    def exceeded(self, predicted: float) -> bool:
        """Whether a fit that is expected to take so long ends too late."""
        return self.elapsed + self.slowdown * predicted > self.seconds


@dataclass(eq=False)
class CandidateSearch:
    """Chooses among configs by the loss of their predictions on held-out rows."""

    head: Head
    targets: Tensor  # of the training rows, then of the validation rows
    splits: Sequence[Split]
    method: str  # what the splits are, for messages
    rows: int  # of the final fit
    row_seconds: float = 0.0  # that the config chosen last takes per row; 0: unknown
    final_seconds: float = 0.0  # that its final fit takes, as far as known

    def best(
        self,
        candidates: Sequence[Candidate],
        fit_predict: FitPredict[Candidate],
        budget: Budget,
        *,
        share: float = 1.0,
        finish: float = 1.0,
    ) -> Candidate:
        """Return the config of least loss, the first of equals.

        With a limited budget, a `share` of the time left is for choosing; splits, rows and
        candidates are reduced until it suffices. The final fit takes `finish` times as long as one
        of the same rows while choosing. After an earlier choice, its time is used instead of timing
        again.
        """
        splits, times = self.splits, [self.row_seconds] * len(candidates)
        seconds = share * budget.left * 3 / 4
        if budget.limited and splits and len(splits[0][0]) > 2 * PROBED:
            if not self.row_seconds:
                times = time_candidates(candidates, fit_predict, splits[0], budget)
            selected, splits, seconds = self.reduce(candidates, times, budget, share, finish)
            candidates, times = [candidates[n] for n in selected], [times[n] for n in selected]
        index, slowdown = 0, 1.0
        if len(candidates) > 1:
            index, slowdown = self.compare(candidates, times, splits, fit_predict, budget, seconds)
        self.row_seconds = slowdown * times[index]
        self.final_seconds = finish * self.row_seconds * self.rows
        return candidates[index]

    def compare(
        self,
        candidates: Sequence[Candidate],
        times: Sequence[float],
        splits: Sequence[Split],
        fit_predict: FitPredict[Candidate],
        budget: Budget,
        seconds: float,
    ) -> tuple[int, float]:
        """Return the index of the config of least loss, and how many times longer fits took than
        expected.

        When the seconds are over, only the splits on which all were tried count; within the first
        split, only the candidates tried so far.
        """
        table, pace = [], SearchPace(seconds)
        budget.limit(seconds)
        for number in range(len(splits)):
            if number and pace.elapsed * (number + 1) / number > seconds:
                break
            losses = self.try_all(candidates, times, splits, number, fit_predict, budget, pace)
            if number and len(losses) < len(candidates):
                break
            table.append(losses)
            if len(losses) < len(candidates):
                rest = len(candidates) - len(losses)
                budget.reduce(f"{rest} of {len(candidates)} settings are not tried")
                break
        if len(table[0]) == len(candidates) and len(table) < len(splits):
            self.method = f"{len(table)} of {len(self.splits)} inner folds"
            budget.reduce(f"settings are compared on {self.method}")
        return int(np.argmin(np.sum(table, axis=0))), pace.slowdown

    def try_all(
        self,
        candidates: Sequence[Candidate],
        times: Sequence[float],
        splits: Sequence[Split],
        number: int,
        fit_predict: FitPredict[Candidate],
        budget: Budget,
        pace: SearchPace,
    ) -> list[float]:
        """Return the losses of candidates on a split: of all that there is time for, in the first
        split of at least one.
        """
        (learn, check), losses = splits[number], list[float]()
        of = f" on fold {number + 1} of {len(splits)}" if len(splits) > 1 else ""
        for index, config in enumerate(candidates):
            predicted = times[index] * len(learn)
            if not number and index and pace.exceeded(predicted):
                break
            description = describe_differences(config, candidates)
            budget.progress(f"setting {index + 1} of {len(candidates)}{of} ({description})")
            budget.cut = False
            scores = fit_predict(config, learn, check)
            if budget.cut and (number or index):
                break
            losses.append(selection_loss(self.head, scores, self.targets[check]))
            pace.expected += predicted
        return losses

    def reduce(
        self,
        candidates: Sequence[Candidate],
        times: Sequence[float],
        budget: Budget,
        share: float,
        finish: float,
    ) -> tuple[list[int], Sequence[Split], float]:
        """Return the indices of candidates, the splits and the seconds of a search that fits into
        the time left: if one split does not fit, fewer rows, then fewer candidates. Candidates that
        were not timed, or whose final fit would take more than half of the time, are dropped if
        there are others.
        """
        splits, left = self.splits, budget.left
        final = [finish * self.rows * seconds for seconds in times]
        timed = range(len(times))
        selected = [n for n in timed if final[n] <= left / 2] or list(timed)
        seconds = share * (left - min(left / 2, max(final[n] for n in selected)))
        learn, check = splits[0]
        per_row = sum(times[n] for n in selected)
        if len(selected) > 1 and per_row * len(learn) > seconds:
            rows = min(len(learn), max(LEAST, int(seconds / per_row)))
            splits = [(sample_rows(learn, rows), check)]
            fastest = sorted(selected, key=lambda n: times[n])
            fits = rows * np.cumsum([times[n] for n in fastest]) <= seconds
            selected = sorted(fastest[: max(1, int(fits.sum()))])
            if len(selected) > 1:
                one_fold = f"1 of {len(self.splits)} inner folds"
                self.method = self.method if len(self.splits) == 1 else one_fold
                if rows < len(learn):
                    method = self.method.split(", learning")[0]  # of an earlier choice
                    self.method = f"{method}, learning from {rows:,} of {len(learn):,}"
                budget.reduce(f"settings are compared on {self.method}")
        if dropped := [n for n in range(len(candidates)) if n not in selected]:
            names = "; ".join(describe_differences(candidates[n], candidates) for n in dropped)
            budget.reduce(f"{len(dropped)} of {len(candidates)} settings are not tried ({names})")
        return selected, splits, seconds

    def limit_final_fit(self, config: Any, budget: Budget, share: float = 1.0) -> Any:
        """Return the chosen config, with fewer training rows if there is no time for a `share` of
        the final fit.
        """
        rows = config.records or self.rows
        seconds = share * self.final_seconds * rows / max(1, self.rows)
        if seconds <= max(0.0, budget.left):
            return config
        most = max(LEAST, int(rows * max(0.0, budget.left) / seconds))
        if most >= rows:
            return config
        budget.reduce(f"the model learns from {most:,} of {rows:,} records")
        return replace(config, records=most)


def time_candidates(
    candidates: Sequence[Candidate],
    fit_predict: FitPredict[Candidate],
    split: Split,
    budget: Budget,
) -> list[float]:
    """Return the seconds per row of candidates on a small part of a split: of all, or of the first
    ones if that takes a quarter of the time left.
    """
    learn, check = split
    parts = []
    for size in (PROBED // 2, PROBED):
        sizes = size, max(1, size * len(check) // len(learn))
        parts.append([sample_rows(rows, n) for rows, n in zip(split, sizes, strict=True)])
    enough, times = budget.left * 3 / 4, list[float]()
    budget.limit(budget.left / 4)
    fit_predict(candidates[0], *parts[0])  # warm-up: imports, memory
    for config in candidates:
        if len(times) > 1 and budget.left < enough:
            break
        budget.progress(f"timing setting {len(times) + 1} of {len(candidates)}")
        marks = [time.monotonic()]
        for part in parts:
            fit_predict(config, *part)
            marks.append(time.monotonic())
        half, full = np.diff(marks)
        seconds = max(2 * (full - half), full / 8)  # without what any number of rows takes
        seconds = min(seconds, full)
        times.append(GROWTH * float(seconds) / PROBED)
    return times


def describe(config: FittedConfig, names: Iterable[str]) -> str:
    """Return settings with their values."""
    return ", ".join(f"{name} {getattr(config, name)}" for name in names)


def describe_differences(config: FittedConfig, candidates: Sequence[FittedConfig]) -> str:
    """Return the settings in which a config differs from other candidates."""
    names = [each.name for each in fields(config)]
    differ = [n for n in names if len({str(getattr(other, n)) for other in candidates}) > 1]
    return describe(config, differ) or "as given"


def make_search(
    head: Head, train: Tensor, valid: Tensor | None, groups: Tensor | None = None
) -> CandidateSearch:
    """Split training rows, and validation rows if there are any, given their targets. Rows of one
    of (R,) `groups`, numbered in order, are in the same fold.
    """
    count = len(train)
    if valid is not None and len(valid) >= (POSITIONS if head.positional else ENOUGH):
        labelled = torch.from_numpy(known(valid).reshape(len(valid), -1).any(1))
        check = sample_rows(torch.arange(count, count + len(valid))[labelled])
        learn = sample_rows(torch.arange(count))
        targets = torch.cat([train, valid])
        return CandidateSearch(head, targets, [(learn, check)], "the validation part", count)
    groups = torch.arange(count) if groups is None else groups
    first = torch.cat([groups.new_ones(1), groups.diff()]).nonzero()[:, 0] if count else groups
    keys = train.view(count, -1)[first, 0]
    fold = assign_folds(keys, FOLDS)[groups]
    masks = [(fold != n, fold == n) for n in range(FOLDS)]
    splits = [
        (sample_rows(learn.nonzero()[:, 0]), sample_rows(check.nonzero()[:, 0]))
        for learn, check in masks
        if learn.any() and check.any()
    ]
    method = f"{FOLDS} inner folds"
    large = count > FOLDS * POSITIONS if head.positional else len(keys) > FOLDS * ENOUGH
    if large:  # a fold can choose as well as a validation split of that size
        splits, method = splits[:1], f"1 of {FOLDS} inner folds"
    return CandidateSearch(head, train, splits, method, count)


def assign_folds(keys: Tensor, n_folds: int) -> Tensor:
    """Return the fold of each group (G,), stratified by key."""
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(keys)))
    order = shuffled[keys[shuffled].nan_to_num().argsort(stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(keys)) % n_folds
    return fold


def sample_rows(rows: Tensor, most: int = MOST) -> Tensor:
    """Return at most so many of the rows, in order; the sample is the same at every call."""
    if len(rows) <= most:
        return rows
    index = np.random.default_rng(0).choice(len(rows), most, replace=False)
    return rows[torch.from_numpy(np.sort(index))]


def selection_loss(head: Head, scores: Tensor, targets: Tensor) -> float:
    """Return the loss of scores (R, O) by which configs are compared: for values the squared error
    in units of the variance, otherwise cross-entropy at the best scale of the scores, since
    overconfidence should not decide.
    """
    mask = torch.from_numpy(known(targets))
    if head.scaled:
        values, count = targets.nan_to_num(0.0), mask.sum(0).clamp_min(1)
        errors = (scores - values).square().where(mask, 0.0).sum(0)
        variance = (values - values.sum(0) / count).square().where(mask, 0.0).sum(0)
        return float((errors / variance.clamp_min(1e-12)).mean())
    losses = [
        head.loss(scores * scale, targets, smoothing=0.0, weights=None)[1] for scale in SCALES
    ]
    return float(min(losses) / mask.sum().clamp_min(1))


def class_shares(targets: Tensor, n_classes: int) -> Tensor:
    """Return the share of each class (C,) in fp64; a class that never occurs counts as half a
    record.
    """
    counts = torch.bincount(targets[targets >= 0], minlength=n_classes).double().clamp_min(0.5)
    return counts / counts.sum()


def expand_open(config: Candidate, **choices: Sequence[Any]) -> list[Candidate]:
    """Return the config with every combination of values for the settings left open (0 or
    "auto").
    """
    configs = [config]
    for name, values in choices.items():
        if getattr(config, name) in (0, "auto"):
            configs = [replace(one, **{name: value}) for one in configs for value in values]
    return configs


@dataclass(eq=False)
class FitData:
    """Features of the training rows, then of the validation rows, and their targets."""

    features: Any
    targets: Tensor  # of the training rows
    valid_targets: Tensor | None = None
    groups: Tensor | None = None  # (R,) the group of each training row: see `make_search`


class TunedModel(FittedModel):
    """A model that is fitted at once and chooses its open settings on held-out rows. Subclasses
    load features, define the settings to try, and fit and predict rows.
    """

    finish: ClassVar[float] = 1.0  # times as long takes the final fit as one while choosing
    least_share: ClassVar[float] = 1.0  # of the final fit, that is of use if it stops early
    learned: ClassVar[tuple[str, ...]] = ("coefficients", "bias")  # the buffers that are fitted

    @abstractmethod
    def load(self, train: Shard, valid: Shard | None, budget: Budget) -> FitData:
        """Return the rows of both splits; `valid` is None if it has no records."""

    @abstractmethod
    def stages(self) -> Sequence[dict[str, Sequence[Any]]]:
        """Return the values to try for each open setting, one stage after the other."""

    @abstractmethod
    def fit_rows(self, x: Any, targets: Tensor, config: Any, effort: Effort) -> Sequence[Any]:
        """Return the `learned` tensors, fitted to rows x."""

    @abstractmethod
    def predict_rows(self, x: Any, parameters: Any, config: Any) -> Tensor:
        """Return the scores (R, O) of rows, given what `fit_rows` returned."""

    @property
    @abstractmethod
    def size(self) -> str:
        """The size of the fitted model in words."""

    def select(self, features: Any, rows: Tensor, config: Any) -> Any:
        """Return rows of the features, as the config needs them."""
        return features[rows]

    def store(self, features: Any, parameters: Sequence[Any]) -> None:
        """Store the result of `fit_rows` with `self.config` in the model's buffers."""
        for name, value in zip(self.learned, parameters, strict=True):
            setattr(self, name, value)

    def candidates(self, config: Any, stage: dict[str, Sequence[Any]]) -> list[Any]:
        """Return the configs to try in a stage."""
        return expand_open(config, **stage)

    def make_search(self, data: FitData) -> CandidateSearch:
        """Return the search for the open settings."""
        return make_search(self.output, data.targets, data.valid_targets, data.groups)

    def limit_final_fit(
        self, config: Any, search: CandidateSearch, data: FitData, budget: Budget
    ) -> Any:
        """Return the chosen config, with fewer training rows if time is short."""
        return search.limit_final_fit(config, budget, self.least_share)

    def fit(
        self, train: Shard, valid: Shard | None, log: Log, budget: Budget | None = None
    ) -> None:
        budget = budget or Budget(log)
        data = self.load(train, valid if valid is not None and valid.records else None, budget)
        search = self.make_search(data)

        def fit_predict(config: Any, learn: Tensor, check: Tensor) -> Tensor:
            x = self.select(data.features, learn, config)
            parameters = self.fit_rows(
                x, search.targets[learn], config, Effort(rough=True, budget=budget)
            )
            return self.predict_rows(self.select(data.features, check, config), parameters, config)

        config, stages = self.config, self.stages()
        for number, stage in enumerate(stages):
            tried = self.candidates(config, stage)
            later = sum(len(expand_open(config, **other)) for other in stages[number + 1 :])
            share = len(tried) / (len(tried) + later)
            config = search.best(tried, fit_predict, budget, share=share, finish=self.finish)
        self.config = config = self.limit_final_fit(config, search, data, budget)
        count = len(data.targets)
        rows = sample_rows(torch.arange(count), config.records or count)
        x = self.select(data.features, rows, config)
        budget.limit(math.inf)
        budget.cut = False
        budget.progress(f"fitting {len(rows):,} rows")
        effort = Effort(budget=budget, must_end=len(rows) > LEAST)
        parameters = self.fit_rows(x, data.targets[rows], config, effort)
        if budget.cut:
            budget.reduce("the last fit stopped before it had converged")
        self.store(data.features, parameters)
        settings = describe(config, dict.fromkeys(name for stage in stages for name in stage))
        log(f"{self.size}; {settings}, where open by {search.method}")
