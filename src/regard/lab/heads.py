"""What the heads of a Transformer do, and how many of them are needed.

Decks 001, 002 and 004 say that heads look at different things. Each head of a run is described by
the entropy of its weights, how far back it looks, how much it looks at the same token (copying) and
at what followed the same token before (induction: Elhage et al. 2021, Olsson et al. 2022,
arXiv:2209.11895), and by what is lost without it. Pruning the heads one by one, the least missed
first, follows Michel et al. 2019 (arXiv:1905.10650). Without a run, a small decoder first learns
sequences that repeat themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.lab.head_subjects import LARGE, SMALL, Losses, Subject, learned, of_run, without
from regard.lab.invariants import entropy_of
from regard.lab.result import Claim, Mean, Options, Result
from regard.layers.tap import Tap
from regard.look.page import Attention, Lines, Scatter, Table, Text
from regard.models.language_model import IGNORE

DRAWS = 1000  # of rows, for intervals
LOOKED = 8  # rows whose attention weights are looked at
INDUCTION, SPARED, WITHIN = 0.5, 0.2, 0.02  # tolerances of the claims


@dataclass(frozen=True)
class Head:
    """One head: where it looks, and what is lost without it."""

    layer: int
    head: int
    bits: float  # entropy of its weights
    offset: float  # tokens back, on average
    previous: float  # weight on the token before
    same: float  # weight on the same token, seen before
    induction: float  # weight on what followed the same token before, where there was one
    loss: float  # nats more without it

    @property
    def name(self) -> str:
        """Numbered from 1."""
        return f"layer {self.layer + 1}, head {self.head + 1}"

    @property
    def kind(self) -> str:
        """In a word, by what it does most."""
        marked = {
            "induction": self.induction,
            "previous token": self.previous,
            "copying": self.same,
        }
        best = max(marked, key=lambda key: marked[key])
        return best if marked[best] >= 0.3 else "mixed"


def describe(subject: Subject) -> list[Head]:
    """Every head, by its weights on some rows and by the loss without it."""
    model, (ids, targets, segments) = subject.model, subject.batches[0]
    ids, segments = ids[:LOOKED], None if segments is None else segments[:LOOKED]
    asked = targets[:LOOKED] != IGNORE  # the rest is padding
    tap, whole, made = Tap(["*.weights"]), subject.loss(), []
    with torch.no_grad():
        model.hidden(ids, segments, tap=tap)
    for layer, weights in looks(tap).items():  # (B, H, T, S)
        for head in range(weights.size(1)):
            with without(model, [(layer, head)]):
                lost = subject.loss() - whole
            bits, offset, previous, same, after = where(weights[:, head], ids, segments, asked)
            made.append(Head(layer, head, bits, offset, previous, same, after, lost))
    return made


def looks(tap: Tap) -> dict[int, Tensor]:
    """The attention weights found, by the number of their layer; not all layers attend."""
    found = {}
    for name, weights in tap.found.items():
        if match := re.fullmatch(r"block[.](\d+)[.]attention[.]weights", name):
            found[int(match[1])] = weights
    return found


def where(
    weights: Tensor, ids: Tensor, segments: Tensor | None, asked: Tensor | None = None
) -> tuple[float, float, float, float, float]:
    """Of one head's (B, T, S): entropy, offset, and weight on previous, same and induction; over
    the positions that are `asked` (B, T), by default all.
    """
    size = ids.size(1)
    back = torch.arange(size)[:, None] - torch.arange(size)  # (T, S)
    same = (ids[:, :, None] == ids[:, None, :]) & (back > 0)
    after = torch.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]  # what followed the same token
    after &= back >= 0
    real = torch.ones_like(ids, dtype=torch.bool) if asked is None else asked
    if segments is not None:
        real = real & (segments > 0)
        alike = segments[:, :, None] == segments[:, None, :]
        same, after = same & alike, after & alike
    rows = weights[real]  # (N, S)
    mean = float((weights * back.clamp_min(0)).sum(-1)[real].mean())
    previous = (weights * (back == 1)).sum(-1)[real & (torch.arange(size) > 0)].mean()
    return (
        entropy_of(rows),
        mean,
        float(previous),
        _on(weights, same & real[:, :, None]),
        _on(weights, after & real[:, :, None]),
    )


def _on(weights: Tensor, which: Tensor) -> float:
    """Mean weight on these keys, over the queries that have any."""
    having = which.any(-1)
    return float((weights * which).sum(-1)[having].mean()) if bool(having.any()) else 0.0


def prune(subject: Subject, order: Sequence[tuple[int, int]]) -> list[Losses]:
    """The losses with 0, 1, 2, … of these heads taken away."""
    found = []
    for many in range(len(order) + 1):
        with without(subject.model, order[:many]):
            found.append(subject.losses())
    return found


def heads(options: Options) -> Result:
    """The experiment, on a run or on a small decoder trained for it."""
    plan = SMALL if options.quick else LARGE
    subject = of_run(options.file) if options.file else learned(plan, options)
    found = sorted(describe(subject), key=lambda head: -head.loss)
    places = [(head.layer, head.head) for head in found]
    random = np.random.default_rng(options.seed).permutation(len(places))
    curves = {
        "least missed first": prune(subject, places[::-1]),
        "most missed first": prune(subject, places),
        "in random order": prune(subject, [places[i] for i in random]),
    }
    own = options.file is None
    return report(subject, found, curves, own=own, short=own and options.quick)


QUESTION = (
    "Heads are said to look at different things. What does each look at, which are missed when "
    "they are taken away, and how many can go before the loss rises?"
)
MADE = (
    "How it is made. A head is taken away by setting to zero what it writes: its columns of the "
    "output projection. The loss is that on text the model has not learned from, nats per token. "
    "Induction is the weight on tokens that followed an earlier occurrence of the token read, "
    "among queries that have one; copying the weight on that earlier token itself. Heads that do "
    "the same work are each hardly missed alone: pruning tells more than one ablation. Without a "
    "run, a decoder of two layers first learns random sequences that are said twice, whose second "
    "half can be known by induction alone."
)


def report(
    subject: Subject,
    found: Sequence[Head],
    curves: dict[str, list[Losses]],
    *,
    own: bool,
    short: bool = False,
) -> Result:
    """Tables, figures and claims; `own`: of the small decoder, which had a `short` training."""
    made = pruned(found, curves)
    if own:
        made += learned_claims(subject, found, short=short)
    return Result(
        title=f"What heads do: {subject.what}",
        question=QUESTION,
        reading=(
            "From left to right more heads are taken away: where the line of the least missed "
            "stays flat, those heads were not needed."
        ),
        readings=[
            "A point is a head: to the right it looks far back, at the top it looks widely; its "
            "colour says what it does most.",
        ],
        claims=made,
        tables=[table(found)],
        figures=[pruning(curves), points(found)],
        panels=[maps(subject), Text(MADE)],
    )


def pruning(curves: dict[str, list[Losses]]) -> Lines:
    """Loss against heads taken away."""
    series = [
        (name, [float(i) for i in range(len(row))], [losses.mean for losses in row])
        for name, row in curves.items()
    ]
    return Lines(
        series,
        x_label="heads taken away",
        y_label="nats per token",
        title="Pruning heads",
        levels={"with all": curves["least missed first"][0].mean},
    )


def points(found: Sequence[Head]) -> Scatter:
    """Offset against entropy."""
    marks = {i: head.name for i, head in enumerate(found[:3])}
    return Scatter(
        np.array([[head.offset, head.bits] for head in found]),
        texts=[f"{head.name}: {head.kind}, {head.loss:+.4f} nats without it" for head in found],
        groups=[head.kind for head in found],
        marks=marks,
        x_label="tokens back, on average",
        y_label="entropy of the weights, bits",
        title="Heads by where they look; the three most missed are named",
    )


def table(found: Sequence[Head]) -> Table:
    """The most missed first."""
    rows = [
        [h.name, h.kind, h.loss, h.bits, h.offset, h.previous, h.same, h.induction] for h in found
    ]
    columns = [
        "head",
        "does",
        "nats more without it",
        "entropy, bits",
        "tokens back",
        "on the token before",
        "on the same token",
        "on what followed it",
    ]
    return Table(columns, rows, title="Heads, the most missed first")


def maps(subject: Subject) -> Attention:
    """Every head on one row."""
    ids, targets, segments = subject.batches[0]
    length = min(32, int((targets[0] != IGNORE).sum()))
    row, tap = ids[:1, :length], Tap(["*.weights"])
    with torch.no_grad():
        subject.model.hidden(row, None if segments is None else segments[:1, :length], tap=tap)
    found = looks(tap)
    return Attention(
        torch.stack([weights[0] for weights in found.values()]).numpy(),
        [subject.spell(i) for i in row[0].tolist()],
        layers=[f"layer {layer + 1}" for layer in found],
        title="Attention of every head on one row",
    )


def pruned(found: Sequence[Head], curves: dict[str, list[Losses]]) -> list[Claim]:
    """Heads differ, and few are needed; intervals are over rows, drawn again."""
    least, most = curves["least missed first"], curves["most missed first"]
    half, fifth = len(found) // 2, max(1, int(SPARED * len(found)))
    many = len(least[0].nats)
    rows = np.random.default_rng(0).integers(0, many, (DRAWS, many))

    def drawn(losses: Losses) -> NDArray[np.float64]:
        return losses.resampled(rows)

    whole = drawn(least[0])
    rise, fall = least[half].mean - least[0].mean, most[half].mean - most[0].mean
    more = (drawn(least[half]) - whole) - (drawn(most[half]) - whole) / 2
    cost = drawn(least[fifth]) / whole - 1
    return [
        Claim.within(
            "some heads are missed more than others",
            "half of the heads, the least missed, cost at most half of what the other half costs",
            f"{rise:.4f} against {fall:.4f} nats",
            ends(more),
            most=0.0,
        ),
        Claim.within(
            "some heads can go",
            f"{fifth} of {len(found)} cost at most {WITHIN:.0%} of the loss",
            f"{(least[fifth].mean / least[0].mean - 1):+.2%}",
            ends(cost),
            most=WITHIN,
        ),
    ]


def ends(drawn: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% interval of what was drawn again."""
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def learned_claims(subject: Subject, found: Sequence[Head], *, short: bool) -> list[Claim]:
    """The small decoder has learned induction, with a head before it that looks one back."""
    best = max(found, key=lambda head: head.induction)
    made = [
        Claim.within(
            "a head learns induction",
            f"at least {INDUCTION} of its weight on what followed the same token",
            f"{best.induction:.3f} in {best.name}",
            by_row(subject, best)[1].interval,
            least=INDUCTION,
            may_rise=short,
        )
    ]
    before = max((h for h in found if h.layer < best.layer), key=lambda h: h.previous, default=None)
    name = "with a head before it that looks one token back"
    stated = f"at least {INDUCTION} of its weight there"
    if before is None:
        holds = None if short else False
        return [*made, Claim(name, stated, f"{best.name} has no layer before it", holds)]
    measured, looks_back = f"{before.previous:.3f} in {before.name}", by_row(subject, before)[0]
    interval = looks_back.interval
    claim = Claim.within(name, stated, measured, interval, least=INDUCTION, may_rise=short)
    return [*made, claim]


def by_row(subject: Subject, head: Head) -> tuple[Mean, Mean]:
    """A head's weight on the token before and on what followed the same token, on average over the
    rows that are looked at.
    """
    ids, targets, segments = subject.batches[0]
    tap = Tap([f"block.{head.layer}.attention.weights"])
    ids, segments = ids[:LOOKED], None if segments is None else segments[:LOOKED]
    with torch.no_grad():
        subject.model.hidden(ids, segments, tap=tap)
    weights = looks(tap)[head.layer][:, head.head]  # (B, T, S)
    rows = [
        where(
            weights[i : i + 1],
            ids[i : i + 1],
            None if segments is None else segments[i : i + 1],
            targets[i : i + 1] != IGNORE,
        )
        for i in range(len(ids))
    ]
    return Mean.of([row[2] for row in rows]), Mean.of([row[4] for row in rows])
