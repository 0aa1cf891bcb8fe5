"""How well a model did on each record: predictions and truths in words, confidences and losses; and
slices of the records, such as those of one label or one length, compared with all others.

The interval of a share is Wilson's (1927), that of a mean Student's. Whether a slice differs from
the rest is decided by an interval of the difference: Newcombe's hybrid score interval of two shares
(1998, method 10), Welch's of two means (1947). Of several slices, each is tested at 5% divided by
their number (Bonferroni), and one of fewer than FEWEST records is never called better or worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from regard.data.shards import Shard
from regard.evaluation.bootstrap import Floats
from regard.evaluation.language_modeling import log_probs
from regard.evaluation.predictions import Predictions
from regard.models.language_model import Constrain
from regard.models.supervised import HEADS

FEWEST = 10  # records of a slice that is called better or worse
ERROR = 0.05
LENGTHS = 4  # slices by length
MOST_VALUES = 20  # of a column, each of which is a slice


@dataclass(frozen=True, eq=False)
class RecordErrors:
    """What a model did on R records of a split.

    `losses` (R,) are means over the targets of a record; `correct` (R,) is 1, 0 or the share of its
    targets that are right. Both are NaN where nothing is known. `lengths` count its tokens, and
    `numbers` are those of the records in the split.
    """

    split: str
    numbers: NDArray[np.int64]
    texts: Sequence[str]
    losses: Floats
    unit: str  # of the losses
    lengths: NDArray[np.int64]
    truths: Sequence[str] = ()
    predictions: Sequence[str] = ()
    confidences: Floats | None = None
    correct: Floats | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # others of the files

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def loss_name(self) -> str:
        """The losses with their unit, in words."""
        return f"loss in {self.unit}" if self.unit.startswith("bits") else self.unit

    @property
    def score(self) -> tuple[str, Floats, bool]:
        """What slices are compared by, its values (R,), and whether more of it is better."""
        if self.correct is not None and np.isfinite(self.correct).any():
            return "accuracy", self.correct, True
        return self.unit, self.losses, False


def errors_of_predictions(
    predictions: Predictions,
    split: str,
    numbers: NDArray[np.int64],
    texts: Sequence[str],
    lengths: NDArray[np.int64],
) -> RecordErrors:
    """Return the errors of predicted records with labels or values."""
    targets = predictions.targets
    assert targets is not None
    scores = torch.from_numpy(np.asarray(predictions.scores))
    outputs = HEADS[predictions.task].probabilities(scores).numpy()
    truths, ends = np.asarray(predictions.truths), np.cumsum(predictions.lengths)
    find = partial(targets.kind.outcome, targets)
    if predictions.positional:
        spans = zip(ends - predictions.lengths, ends, strict=True)
        described = [find(outputs[a:b], truths[a:b]) for a, b in spans]
    else:
        described = [find(row, truth) for row, truth in zip(outputs, truths, strict=True)]
    categorical = targets.kind.categorical
    losses = np.array([one.loss for one in described])
    return RecordErrors(
        split,
        numbers,
        texts,
        losses / math.log(2) if categorical else losses,
        "bits" if categorical else "absolute error",
        lengths,
        [one.truth for one in described],
        [one.prediction for one in described],
        np.array([one.confidence for one in described]) if categorical else None,
        np.array([one.correct for one in described]) if categorical else None,
    )


SPAN = 200  # tokens of running text that count as a record


def errors_of_tokens(
    model: Any,
    shard: Shard,
    tokenizer: Any,
    split: str,
    numbers: NDArray[np.int64],
    constrain: Constrain | None = None,
) -> RecordErrors:
    """Return the mean surprise of the tokens of each record, or of each SPAN of running text. A
    token of probability 0 makes it infinite.
    """
    values, scored = log_probs(model, shard, tokenizer, constrain=constrain)
    offsets = np.asarray(shard.offsets)
    if not shard.has_records:
        offsets = np.append(np.arange(0, max(1, shard.tokens - SPAN // 2), SPAN), shard.tokens)
    counts = np.add.reduceat(scored.astype(np.int64), offsets[:-1])
    nats = np.add.reduceat(np.where(scored, -values, 0.0), offsets[:-1])
    rows = [np.asarray(shard.ids[a:b]) for a, b in pairwise(offsets)]
    texts = [str(tokenizer.decode_record(row)) for row in rows]
    if not shard.has_records:
        texts = [tokenizer.decode([int(i) for i in row]) for row in rows]
        numbers = np.arange(len(texts))
    bits = nats / np.maximum(counts, 1) / math.log(2)
    bits[counts == 0] = math.nan
    return RecordErrors(split, numbers, texts, bits, "bits per token", counts)


@dataclass(frozen=True)
class Slice:
    """Some records: their number, the mean of their scores with its 95% interval, and whether it is
    "better" or "worse" than that of all other records, or "" where no difference is shown.
    """

    group: str  # what the records are sliced by
    name: str
    count: int
    mean: float
    low: float
    high: float
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def wilson(successes: float, count: int, error: float = ERROR) -> tuple[float, float]:
    """Return the interval of a share."""
    if not count:
        return 0.0, 1.0
    z, share = float(stats.norm.ppf(1 - error / 2)), successes / count
    middle = share + z * z / (2 * count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def newcombe(ours: Floats, others: Floats, error: float = ERROR) -> tuple[float, float]:
    """Return the interval of the difference of two shares, given as zeros and ones."""
    p, q = float(ours.mean()), float(others.mean())
    p_low, p_high = wilson(float(ours.sum()), len(ours), error)
    q_low, q_high = wilson(float(others.sum()), len(others), error)
    low = p - q - math.hypot(p - p_low, q_high - q)
    return low, p - q + math.hypot(p_high - p, q - q_low)


def welch(ours: Floats, others: Floats, error: float = ERROR) -> tuple[float, float]:
    """Return the interval of the difference of two means."""
    a, b = ours.var(ddof=1) / len(ours), others.var(ddof=1) / len(others)
    gap = float(ours.mean() - others.mean())
    if a + b == 0:
        return gap, gap
    degrees = (a + b) ** 2 / (a * a / (len(ours) - 1) + b * b / (len(others) - 1))
    reach = float(stats.t.ppf(1 - error / 2, degrees)) * math.sqrt(a + b)
    return gap - reach, gap + reach


def mean_interval(values: Floats, *, shares: bool) -> tuple[float, float]:
    """Return the 95% interval of a mean, from -∞ to ∞ where a single value says nothing."""
    if shares:
        return wilson(float(values.sum()), len(values))
    if len(values) < 2:
        return -math.inf, math.inf
    reach = float(stats.t.ppf(1 - ERROR / 2, len(values) - 1) * stats.sem(values))
    return float(values.mean()) - reach, float(values.mean()) + reach


Members = Mapping[tuple[str, str], NDArray[np.bool_]]  # which records are in (group, name)


def compare_slices(values: Floats, members: Members, *, more_is_better: bool) -> list[Slice]:
    """Return the slices of records with these scores (R,), the worst first; records without a score
    count nowhere, and slices of none or all of the others are left out.
    """
    known = np.isfinite(values)
    shares = bool(np.isin(values[known], (0.0, 1.0)).all())
    chosen = {name: inside & known for name, inside in members.items()}
    chosen = {name: one for name, one in chosen.items() if 0 < one.sum() < known.sum()}
    difference = newcombe if shares else welch
    slices = []
    for (group, name), inside in chosen.items():
        ours, others = values[inside], values[known & ~inside]
        low, high = mean_interval(ours, shares=shares)
        verdict = ""
        if min(len(ours), len(others)) >= FEWEST:
            ends = difference(ours, others, ERROR / len(chosen))
            sign = (ends[0] > 0) - (ends[1] < 0)
            verdict = ("", "better", "worse")[sign if more_is_better else -sign]
        slices.append(Slice(group, name, len(ours), float(ours.mean()), low, high, verdict))
    return sorted(slices, key=lambda one: one.mean if more_is_better else -one.mean)


def slice_members(errors: RecordErrors, words: Sequence[str] = ()) -> Members:
    """Return slices by true label, by length, by other columns of the files, and by whether the
    text has each of some words.
    """
    members: dict[tuple[str, str], NDArray[np.bool_]] = {}
    columns = {"true label": errors.truths, **errors.columns}  # of pairs, too many to slice by
    for column, cells in columns.items():
        names = sorted(set(cells) - {""})
        if 1 < len(names) <= MOST_VALUES:
            array = np.array(cells, dtype=object)
            members |= {(column, name): array == name for name in names}
    members |= {("tokens", name): inside for name, inside in length_bins(errors.lengths).items()}
    for word in filter(None, words):
        inside = np.array([has_word(text, word) for text in errors.texts], bool)
        members |= {("word", f"with “{word}”"): inside, ("word", f"without “{word}”"): ~inside}
    return members


def length_bins(lengths: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    """Return which records are in each of about LENGTHS classes of length of similar size."""
    if not len(lengths):
        return {}
    cuts = np.quantile(lengths, np.linspace(0, 1, LENGTHS + 1)[1:-1], method="lower")
    ends = np.unique([*cuts, lengths.max()]).tolist()
    bins, first = {}, int(lengths.min())
    for end in ends:
        name = f"{first:,} to {end:,}" if end > first else f"{end:,}"
        bins[name] = (lengths >= first) & (lengths <= end)
        first = int(end) + 1
    return bins if len(bins) > 1 else {}


def has_word(text: str, word: str) -> bool:
    """Return whether a text has these characters, upper or lower case, not inside another word."""
    text, word = text.casefold(), word.casefold()
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(word) : at + len(word) + 1]
        inside = (before.isalnum() and word[:1].isalnum()) or (
            after.isalnum() and word[-1:].isalnum()
        )
        if not inside:
            return True
        at = text.find(word, at + 1)
    return False
