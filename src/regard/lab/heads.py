"""Decoders whose heads are looked at: that of a run, or a small one that learns to repeat itself;
and the same without some of their heads.

What the heads of a Transformer do, and how many of them are needed.

Decks 001, 002 and 004 say that heads look at different things. Each head of a run is described by
the entropy of its weights, how far back it looks, how much it looks at the same token (copying) and
at what followed the same token before (induction: Elhage et al. 2021, Olsson et al. 2022,
arXiv:2209.11895), and by what is lost without it. Pruning the heads one by one, the least missed
first, follows Michel et al. 2019 (arXiv:1905.10650). Without a run, a small decoder first learns
sequences that repeat themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.batching import windows as laid_out
from regard.errors import UserError
from regard.evaluation.eval_data import held_out
from regard.lab.invariants import entropy_of
from regard.lab.mini_trainer import practise
from regard.lab.result import Claim, Mean, Options, Result
from regard.layers.attention import SelfAttention, Tap
from regard.layers.block import Block
from regard.look.page import AttentionMaps, Lines, Scatter, Table, Text
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.language_model import IGNORE
from regard.recipe import TrainRecipe
from regard.run import TOKENIZER, load_model, open_run
from regard.tokenizers import load
from regard.training.loop import seed_of

SYMBOLS = 24  # of the sequences that repeat themselves
POSITIONS = 20_000  # tokens at most whose loss is measured each time
MOST_HEADS = 400  # each costs a pass over them


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the small decoder learns, where no run is given."""

    steps: int
    batch: int = 32
    half: int = 16  # symbols, at most, before they are repeated

    @property
    def config(self) -> DecoderConfig:
        """Two layers: the least that induction needs."""
        return DecoderConfig(
            n_layers=2,
            d_model=64,
            n_heads=4,
            n_kv_heads=4,
            d_head=16,
            d_ff=128,
            max_len=2 * self.half,
        )


LARGE, SMALL = Plan(steps=1500), Plan(steps=250, batch=16)


@dataclass(frozen=True, eq=False)
class Losses:
    """The nats of every row (R,), and the tokens (R,) that they are of."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Nats per token."""
        return float(self.nats.sum() / self.tokens.sum())

    def resampled(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(N,) nats per token of rows (N, R) drawn with replacement."""
        return np.asarray(self.nats[rows].sum(1) / np.maximum(1, self.tokens[rows].sum(1)))


@dataclass(frozen=True, eq=False)
class Subject:
    """A decoder and (B, T) ids with their targets; `segments` where records share rows."""

    model: Decoder
    batches: Sequence[tuple[Tensor, Tensor, Tensor | None]]
    what: str
    spell: Callable[[int], str] = str  # a token as it is read

    def loss(self) -> float:
        """Nats per token on all batches."""
        return self.losses().mean

    def losses(self) -> Losses:
        """The same, row by row."""
        nats, many = [], []
        with torch.no_grad():
            for ids, targets, segments in self.batches:
                nats.append(-self.model.score(ids, targets, segments).double().sum(1))
                many.append((targets != IGNORE).sum(1))
        return Losses(torch.cat(nats).numpy(), torch.cat(many).numpy())


def repeats(half: int, many: int, random: np.random.Generator) -> Tensor:
    """(B, 2·half) random symbols, then the same again."""
    first = random.integers(0, SYMBOLS, (many, half))
    return torch.from_numpy(np.concatenate([first, first], axis=1))


def batch_of(ids: Tensor) -> Batch:
    """Every symbol is asked for; those of the first half cannot be known."""
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    many = targets.numel()
    return Batch(inputs, targets, None, np.arange(len(ids)), many, many)


def learned(plan: Plan, options: Options) -> Subject:
    """A small decoder that has learned sequences which repeat themselves."""
    work = options.work(plan.steps)
    recipe = TrainRecipe(steps=plan.steps, device="cpu", compile="off", seed=options.seed)

    def at(step: int) -> Batch:
        random = np.random.default_rng(seed_of(options.seed, step))
        half = int(random.integers(plan.half // 2, plan.half + 1))  # no fixed offset will do
        return batch_of(repeats(half, plan.batch, random))

    model = practise(
        "transformer", SYMBOLS, plan.config, recipe, at, lambda b: work.add("heads", 1)
    )
    assert isinstance(model, Decoder)
    test = batch_of(repeats(plan.half, 64, np.random.default_rng(seed_of(options.seed, -1))))
    return Subject(model, [(test.ids, test.targets, None)], "sequences that repeat themselves")


def of_run(path: Path) -> Subject:
    """The decoder of a run folder, on what was held out when it was trained."""
    folder = open_run(path)
    model = load_model(folder)
    if not isinstance(model, Decoder):
        raise UserError(
            f"{folder} holds a {type(model).__name__}: this takes a decoder-only Transformer"
        )
    layers = [i for i, block in enumerate(model.blocks) if has_heads(block)]
    if not layers:
        raise UserError(
            f"{folder}: its layers are {', '.join(sorted(set(model.config.kinds)))}, which have no "
            "attention heads to take away; give the run of a model with attention"
        )
    heads = len(layers) * model.config.n_heads
    if heads > MOST_HEADS:
        raise UserError(f"{folder}: {heads:,} heads; at most {MOST_HEADS} are tried one by one")
    if model.config.projections != "learned":
        raise UserError(f"{folder}: its heads have no projections of their own to take away")
    tokenizer = load(folder / TOKENIZER)
    side, shard = held_out(folder, tokenizer)
    size = model.config.max_len
    batches, seen = [], 0
    for batch in laid_out(
        shard,
        tokenizer,
        max_len=size,
        stride=size,
        batch_tokens=max(4096, size),
        supports_packing=model.supports_packing,
    ):
        batches.append((batch.ids, batch.targets, batch.segments))
        seen += batch.ids.numel()
        if seen >= POSITIONS:
            break
    return Subject(model, batches, f"{folder.name}, its {side} part", tokenizer.text)


@contextmanager
def without(model: Decoder, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """The model while these heads write nothing to the residual stream; a head is a layer and a
    number in it.
    """
    width = model.config.d_head
    outs = {layer: _output(model.blocks[layer]).weight for layer, _ in heads}
    kept = {layer: weight.detach().clone() for layer, weight in outs.items()}
    try:
        with torch.no_grad():
            for layer, head in heads:
                outs[layer][:, head * width : (head + 1) * width] = 0
        yield
    finally:
        with torch.no_grad():
            for layer, weight in outs.items():
                weight.copy_(kept[layer])


def has_heads(block: nn.Module) -> bool:
    """Does a layer attend, with heads that can be taken away?"""
    return isinstance(block, Block) and isinstance(block.mixer, SelfAttention)


def _output(block: nn.Module) -> nn.Linear:
    assert isinstance(block, Block) and isinstance(block.mixer, SelfAttention)
    assert isinstance(block.mixer.out, nn.Linear)
    return block.mixer.out


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


def maps(subject: Subject) -> AttentionMaps:
    """Every head on one row."""
    ids, targets, segments = subject.batches[0]
    length = min(32, int((targets[0] != IGNORE).sum()))
    row, tap = ids[:1, :length], Tap(["*.weights"])
    with torch.no_grad():
        subject.model.hidden(row, None if segments is None else segments[:1, :length], tap=tap)
    found = looks(tap)
    return AttentionMaps(
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
