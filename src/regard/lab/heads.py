"""What the heads of a Transformer do, and how many of them are needed.

Decks 001, 002 and 004 say that heads attend to different things. What does each attend to, how much
does the loss rise when it is removed, and how many can be removed before it rises?

A head is described by the entropy of its weights, by how far back it attends, by its weight on an
earlier occurrence of the current token and on the token that followed that (induction:
Elhage et al. 2021, Olsson et al. 2022, arXiv:2209.11895), among queries that have one. It is
removed by setting its weighted values to zero. The loss is that on records the model was not
trained on, of text bits per token. The run may be of a decoder, a classifier, a masked language
model, a translator, an image model or a captioner; heads that read patches or points have a
distance in place of tokens, and cross-attention has an entropy alone.
Heads that do the same work are each hardly missed alone: pruning them one by one, the least
important first (Michel et al. 2019, arXiv:1905.10650), shows more than single ablations. Without a
run, a decoder of two layers first learns random sequences that are repeated once, whose second half
can be predicted by induction alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import IGNORE, Batch, windows
from regard.errors import UserError
from regard.evaluation.eval_data import held_out
from regard.evaluation.head_scores import score_heads
from regard.lab.experiment import (
    Claim,
    Mean,
    Options,
    Result,
    curves,
    generator,
    next_symbol_batch,
    quantile_interval,
    small_decoder,
    train_model,
)
from regard.lab.head_models import Head, HeadsOfRun, Losses
from regard.layers.tap import Tap
from regard.look.interventions import HeadPosition, repeated_sequences, without_heads
from regard.look.page import AttentionMaps, Bars, Scatter, Table
from regard.models.decoder import Decoder
from regard.registry import MODELS
from regard.run import Run
from regard.tokenizers import TOKENIZER, load

SYMBOLS = 24  # of the sequences that repeat themselves
MAX_POSITIONS = 20_000  # whose loss is measured for each head
MAX_HEADS = 400  # each costs an evaluation
RESAMPLES = 1000  # of rows, for intervals
N_ROWS = 8  # whose attention weights are described
N_TOKENS = 32  # of the row whose attention is drawn
INDUCTION, REMOVABLE, WITHIN = 0.5, 0.2, 0.02  # tolerances of the claims
LEAST_FIRST, MOST_FIRST, RANDOM = "least missed first", "most missed first", "in random order"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the small decoder learns, where no run is given."""

    steps: int
    batch: int = 32
    half: int = 16  # symbols, at most, before they are repeated


LARGE, SMALL = Plan(steps=1500), Plan(steps=250, batch=16)


PruningCurves = Mapping[str, Sequence[Losses]]  # by order: losses without 0, 1, 2, … heads


def pruning_claims(n_heads: int, pruned: PruningCurves, *, brief: bool = False) -> list[Claim]:
    """Heads differ, and some are not needed; intervals are over resampled rows. A decoder that was
    trained briefly has heads that have not come to differ yet.
    """
    least, most = pruned[LEAST_FIRST], pruned[MOST_FIRST]
    half, fifth, n = n_heads // 2, max(1, int(REMOVABLE * n_heads)), len(least[0].nats)
    rows = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    base, least_half, most_half, least_fifth = (
        losses.resample(rows) for losses in (least[0], least[half], most[half], least[fifth])
    )
    rises = [losses[half].mean - losses[0].mean for losses in (least, most)]
    return [
        Claim.within(
            "some heads are missed more than others",
            "half of the heads, the least missed, cost at most half of what the other half costs",
            quantile_interval((least_half - base) - (most_half - base) / 2),
            "{:.4f} against {:.4f} bits".format(*rises),
            most=0.0,
            may_fall=brief,
        ),
        Claim.within(
            "some heads can go",
            f"{fifth} of {n_heads} cost at most {WITHIN:.0%} of the loss",
            quantile_interval(least_fifth / base - 1),
            f"{(least[fifth].mean / least[0].mean - 1):+.2%}",
            most=WITHIN,
            may_fall=brief,
        ),
    ]


def induction_claims(heads: Sequence[Head], *, quick: bool) -> list[Claim]:
    """The small decoder has learned induction, with a head before it that attends one back."""
    best = max(heads, key=lambda head: head.scores.induction)
    claim = Claim.within(
        "a head learns induction",
        f"at least {INDUCTION} of its weight on what followed the same token",
        Mean.of([row.induction for row in best.rows]),
        f"{best.scores.induction:.3f} in {best.name}",
        least=INDUCTION,
        may_rise=quick,
    )
    earlier = [head for head in heads if head.position[0] < best.position[0]]
    name = "with a head before it that looks one token back"
    stated = f"at least {INDUCTION} of its weight there"
    if not earlier:
        holds = None if quick else False
        return [claim, Claim(name, stated, f"{best.name} has no layer before it", holds)]
    before = max(earlier, key=lambda head: head.scores.previous)
    measured = f"{before.scores.previous:.3f} in {before.name}"
    mean = Mean.of([row.previous for row in before.rows])
    return [claim, Claim.within(name, stated, mean, measured, least=INDUCTION, may_rise=quick)]


@dataclass(frozen=True, eq=False)
class EvaluatedDecoder:
    """A decoder and batches of ids (B, T), their targets, and segments where records share rows."""

    model: Decoder
    batches: Sequence[tuple[Tensor, Tensor, Tensor | None]]
    name: str
    spell: Callable[[int], str] = str  # a token as text
    unit: ClassVar[str] = "bits per token"

    def losses(self, removed: Sequence[HeadPosition] = ()) -> Losses:
        """Return the loss of every row without some heads."""
        nats, tokens = [], []
        layers = [cast(Any, block).mixer for block in self.model.blocks]
        with without_heads(layers, removed), torch.no_grad():
            for ids, targets, segments in self.batches:
                nats.append(-self.model.score(ids, targets, segments).double().sum(1))
                tokens.append((targets != IGNORE).sum(1))
        return Losses(torch.cat(nats).numpy(), torch.cat(tokens).numpy())

    def attention(self, rows: int, length: int | None = None) -> dict[int, Tensor]:
        """Return the attention weights (B, H, T, S) of the first rows, by layer; not all layers
        have some.
        """
        ids, _, segments = self.batches[0]
        tap, part = Tap(["*.weights"]), (slice(rows), slice(length))
        with torch.no_grad():
            self.model.hidden(ids[part], None if segments is None else segments[part], tap=tap)
        pattern = re.compile(r"block[.](\d+)[.]attention[.]weights")
        matches = {name: pattern.fullmatch(name) for name in tap.activations}
        return {int(match[1]): tap.activations[name] for name, match in matches.items() if match}

    def maps(self) -> list[AttentionMaps]:
        """Return the attention of every head on one row."""
        ids, targets, _ = self.batches[0]
        length = min(N_TOKENS, int((targets[0] != IGNORE).sum()))
        by_layer = self.attention(1, length)
        return [
            AttentionMaps(
                torch.stack([weights[0] for weights in by_layer.values()]).numpy(),
                [self.spell(i) for i in ids[0, :length].tolist()],
                layers=[f"layer {layer + 1}" for layer in by_layer],
                title="Attention of every head on one row",
            )
        ]

    def describe_heads(self) -> list[Head]:
        ids, targets, segments = (None if x is None else x[:N_ROWS] for x in self.batches[0])
        assert ids is not None and targets is not None
        segments = torch.ones_like(ids) if segments is None else segments
        segments = segments * (targets != IGNORE)  # the rest is padding
        base, heads = self.losses().mean, []
        for layer, weights in self.attention(N_ROWS).items():
            scored = score_heads(weights, ids, segments, causal=True)
            rows = [
                score_heads(weights[i : i + 1], ids[i : i + 1], segments[i : i + 1], causal=True)
                for i in range(len(ids))
            ]
            for head, scores in enumerate(scored):
                loss = self.losses([(layer, head)]).mean - base
                heads.append(Head((layer, head), scores, [row[head] for row in rows], loss))
        return sorted(heads, key=lambda head: -head.loss)


def repeated_batch(half: int, n: int, random: np.random.Generator) -> Batch:
    """Return random symbols, then the same again, to learn from."""
    return next_symbol_batch(repeated_sequences(range(SYMBOLS), half, n, random))


def train_decoder(plan: Plan, options: Options) -> EvaluatedDecoder:
    """Return a small decoder that has learned sequences which repeat themselves."""
    progress = options.progress(plan.steps * plan.batch * 1.5 * plan.half)

    def batch_at(step: int) -> Batch:
        random = generator(options.seed, step)
        half = int(random.integers(plan.half // 2, plan.half + 1))  # no fixed offset will do
        return repeated_batch(half, plan.batch, random)

    model = train_model(
        partial(Decoder, SYMBOLS, small_decoder(2 * plan.half)),  # induction needs two layers
        batch_at,
        plan.steps,
        options.seed,
        on_progress=partial(progress.add, "heads"),
    )
    test = repeated_batch(plan.half, 64, generator(options.seed, -1))
    name = "sequences that repeat themselves"
    return EvaluatedDecoder(cast(Decoder, model), [(test.ids, test.targets, None)], name)


def load_decoder(path: Path) -> EvaluatedDecoder:
    """Return the decoder of a run folder, with the data held out when it was trained."""
    folder = Run.open(path)
    model = folder.model()
    if not isinstance(model, Decoder):
        name = type(model).__name__
        raise UserError(f"{folder} holds a {name}, not a decoder-only Transformer")
    config = model.config
    n_heads = config.n_heads * sum(mixer.has_weights for mixer in config.mixer_classes)
    if not n_heads:
        raise UserError(
            f"{folder}: its layers are {', '.join(sorted(set(config.layer_mixers)))}, which have "
            "no attention heads to remove; give the run of a model with attention"
        )
    if n_heads > MAX_HEADS:
        raise UserError(f"{folder}: {n_heads:,} heads; at most {MAX_HEADS} are tried one by one")
    if config.projections != "learned":
        raise UserError(f"{folder}: its heads have no projections to remove")
    tokenizer = load(folder / TOKENIZER)
    split, shard = held_out(folder.path, tokenizer)
    batches, n_positions = [], 0
    for batch in windows(
        shard,
        tokenizer,
        max_len=config.max_len,
        stride=config.max_len,
        batch_tokens=max(4096, config.max_len),
        supports_packing=model.supports_packing,
    ):
        batches.append((batch.ids, batch.targets, batch.segments))
        n_positions += batch.ids.numel()
        if n_positions >= MAX_POSITIONS:
            break
    return EvaluatedDecoder(model, batches, f"{folder.name}, its {split} part", tokenizer.text)


def load_heads(path: Path) -> EvaluatedDecoder | HeadsOfRun:
    """Return the heads of a run: of a decoder, whose held-out text is read in windows, or of any
    other model.
    """
    description = Run.open(path).description
    family = MODELS.get(description.family, description.task, description.reads)
    if issubclass(family, Decoder):
        return load_decoder(path)
    return HeadsOfRun(path)


def heads(options: Options) -> Result:
    """Run the experiment on a run or on a small decoder trained for it."""
    plan, trained = SMALL if options.quick else LARGE, options.file is None
    decoder: EvaluatedDecoder | HeadsOfRun
    decoder = train_decoder(plan, options) if options.file is None else load_heads(options.file)
    described = decoder.describe_heads()
    positions = [head.position for head in described]
    shuffled = np.random.default_rng(options.seed).permutation(len(positions))
    orders = {
        LEAST_FIRST: positions[::-1],
        MOST_FIRST: positions,
        RANDOM: [positions[i] for i in shuffled],
    }
    pruned = {
        name: [decoder.losses(order[:n]) for n in range(len(order) + 1)]
        for name, order in orders.items()
    }
    claims = pruning_claims(len(described), pruned, brief=trained and options.quick)
    return Result(
        title=f"What heads do: {decoder.name}",
        answer=answer(described, pruned[LEAST_FIRST]),
        question=__doc__ or "",
        reading=(
            "From left to right more heads are removed: where the line of the least missed stays "
            "flat, those heads were not needed."
        ),
        readings=[
            "A point is a head: to the right it attends far back, at the top to many tokens; its "
            "colour shows what it does most."
        ],
        claims=[*claims, *(induction_claims(described, quick=options.quick) if trained else [])],
        tables=[head_table(described)],
        figures=[
            curves(
                range(len(positions) + 1),
                {name: [losses.mean for losses in row] for name, row in pruned.items()},
                "Pruning heads",
                ("heads removed", decoder.unit),
                levels={"with all": pruned[LEAST_FIRST][0].mean},
            ),
            head_scatter(described),
        ],
        panels=decoder.maps(),
    )


def answer(heads: Sequence[Head], pruned: Sequence[Losses]) -> str:
    """Say which head is missed most, and how many can go at little cost."""
    first, base = heads[0], pruned[0].mean
    n = max(n for n, losses in enumerate(pruned) if losses.mean <= base * (1 + WITHIN))
    return (
        f"Most missed is {first.name} ({first.scores.role}): {first.loss:+.4f} bits without it. "
        f"{n} of {len(heads)} heads can go before the loss rises by more than {WITHIN:.0%}."
    )


def head_scatter(heads: Sequence[Head]) -> Scatter | Bars:
    placed = [head for head in heads if head.scores.offset == head.scores.offset]
    if not placed:  # cross-attention alone: entropies without distances
        return Bars(
            [head.name for head in heads],
            [head.scores.bits for head in heads],
            title="Entropy of the weights, the most missed first",
            unit="bits",
        )
    heads = placed
    return Scatter(
        np.array([[head.scores.offset, head.scores.bits] for head in heads]),
        texts=[f"{h.name}: {h.scores.role}, {h.loss:+.4f} bits without it" for h in heads],
        groups=[head.scores.role for head in heads],
        marks={i: head.name for i, head in enumerate(heads[:3])},
        x_label="distance it attends over, on average",
        y_label="entropy of the weights, bits",
        title="Heads by where they attend; the three most missed are named",
    )


def head_table(heads: Sequence[Head]) -> Table:
    rows = []
    for head in heads:
        p = head.scores
        numbers = [p.bits, p.offset, p.previous, p.same, p.induction]
        known = [None if math.isnan(number) else number for number in numbers]
        rows.append([head.name, p.role, head.loss, *known])
    columns = ["head", "does", "loss more without it, bits", "entropy, bits", "distance"]
    columns += ["on the token before", "on the same token", "on what followed it"]
    return Table(columns, rows, title="Heads, the most missed first")
