"""The training tricks, each on and off: residual connections, norms, scaling, warm-up, smoothing.

Deck 004 calls residuals, LayerNorm and scaled products the tricks that make Transformers trainable;
deck 000 says that attention has no vanishing gradients. What it has is a shorter path, and
residuals: a deep stack without them, or post-norm without warm-up, still has trouble (Xiong et al.
2020, arXiv:2002.04745). Label smoothing hurts the perplexity (Vaswani et al. 2017, section 5.4).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import UserError
from regard.lab.inputs import Stream, drawn, stream_of, windows
from regard.lab.invariants import entropy_of
from regard.lab.mini_trainer import teach
from regard.lab.result import ABOVE, Claim, Mean, Options, Result
from regard.layers.attention import Tap
from regard.layers.block import Block
from regard.look.page import Bars, Lines, Table, Text
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.language_model import NeuralLanguageModel
from regard.recipe import TrainRecipe

ALL, STRAIGHT, POST, BARE = "all tricks", "no residual", "post-norm", "no norm"
UNSCALED, COLD, POST_COLD, SMOOTH = "no scaling", "no warm-up", "post-norm, no warm-up", "smoothed"
WORSE, RATIO = 0.05, 0.1  # nats, and of a gradient
MARKS = 25  # moments of a curve


class StraightBlock(Block):
    """A block without residual connections: part(norm(x)), or norm(part(x))."""

    def part(self, x: Tensor, norm: nn.Module | None, part: Callable[[Tensor], Tensor]) -> Tensor:
        """One part, and nothing beside it."""
        assert norm is not None
        return norm(part(x)) if self.post_norm else part(norm(x))


class StraightDecoder(Decoder):
    """A decoder of such blocks."""

    def _block(self, kind: str, cross: bool) -> Block:
        whole = super()._block(kind, cross)
        c = self.config
        return StraightBlock(
            whole.mixer, whole.feedforward, self._norm, post_norm=c.post_norm, dropout=c.dropout
        )


@dataclass(frozen=True)
class Variant:
    """What is changed: the class, fields of the configuration, of the recipe."""

    build: type[Decoder] = Decoder
    config: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


VARIANTS: dict[str, Variant] = {
    ALL: Variant(),
    STRAIGHT: Variant(StraightDecoder),
    POST: Variant(config={"post_norm": True}),
    BARE: Variant(config={"norm": "none"}),
    UNSCALED: Variant(config={"score": "dot"}),
    COLD: Variant(recipe={"warmup": 0.0}),
    POST_COLD: Variant(config={"post_norm": True}, recipe={"warmup": 0.0}),
    SMOOTH: Variant(recipe={"label_smoothing": 0.1}),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done, the same for every variant."""

    steps: int
    seeds: int
    n_layers: int = 12
    length: int = 48
    batch: int = 16
    tested: int = 200

    @property
    def config(self) -> DecoderConfig:
        """A deep and narrow decoder with every trick; QK-norm would do the scaling's work."""
        return DecoderConfig(
            n_layers=self.n_layers,
            d_model=48,
            n_heads=3,
            n_kv_heads=3,
            d_head=16,
            d_ff=96,
            max_len=self.length,
            norm="layer",
            feedforward="relu",
            bias=True,
            qk_norm=False,
        )

    @property
    def recipe(self) -> TrainRecipe:
        """Adam alone, unclipped: Muon's steps have one length whatever the gradient's, and clipping
        is a trick of its own. The rate is high, as tricks are for those who are in a hurry.
        """
        return TrainRecipe(
            steps=self.steps,
            optimizer="adamw",
            lr=0.01,
            warmup=0.15,
            clip=0.0,
            device="cpu",
            compile="off",
        )


LARGE = Plan(steps=120, seeds=3)
SMALL = Plan(steps=25, seeds=1, n_layers=6, length=32, batch=8, tested=40)


@dataclass(eq=False)
class Trial:
    """One training: loss and entropy at marks, gradients by layer at first, loss on new text."""

    steps: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)  # of the attention weights
    first: list[float] = field(default_factory=list)  # norm of each block's gradient, first step
    loss: float = math.inf  # where training broke down

    def watch(
        self, every: int, probe: Tensor, step: int, nats: float, model: NeuralLanguageModel
    ) -> None:
        """Look at a step before its update."""
        if step == 0:
            blocks = model.blocks
            assert isinstance(blocks, nn.ModuleList)
            self.first = [_norm(block) for block in blocks]
        if step % every == 0:
            tap = Tap(["*.weights"])
            with torch.no_grad():
                model.hidden(probe, tap=tap)
            self.steps.append(step)
            self.nats.append(nats)
            self.bits.append(float(np.mean([entropy_of(w) for w in tap.found.values()])))


def _norm(module: nn.Module) -> float:
    return math.sqrt(
        sum(float(p.grad.square().sum()) for p in module.parameters() if p.grad is not None)
    )


def run(variant: Variant, plan: Plan, stream: Stream, seed: int, told: Callable[[], None]) -> Trial:
    """Train one variant; one that breaks down ends with an infinite loss."""
    config = dataclasses.replace(plan.config, **variant.config)
    recipe = dataclasses.replace(plan.recipe, seed=seed, **variant.recipe)
    test = windows(stream.test, plan.length, plan.tested)
    trial, every = Trial(), max(1, plan.steps // MARKS)
    try:
        model = teach(
            lambda: variant.build(len(stream.letters), config),
            recipe,
            lambda step: drawn(stream.train, plan.length, plan.batch, seed, step),
            lambda batch: told(),
            partial(trial.watch, every, test.ids[:4]),
        )
    except UserError:
        return trial
    with torch.no_grad():
        trial.loss = -float(model.score(test.ids, test.targets).double().mean())
    return trial


def tricks(options: Options) -> Result:
    """The experiment; text to learn from is the user's, or names."""
    plan = SMALL if options.quick else LARGE
    stream = stream_of(options.file, 40 * plan.length)
    work = options.work(len(VARIANTS) * plan.seeds * plan.steps)
    found: dict[str, list[Trial]] = {name: [] for name in VARIANTS}
    for seed in range(options.seed, options.seed + plan.seeds):
        for name, variant in VARIANTS.items():
            told = partial(work.add, f"tricks: {name}", 1.0)
            found[name].append(run(variant, plan, stream, seed, told))
    return report(found, plan)


Trials = Mapping[str, Sequence[Trial]]

QUESTION = (
    "Residual connections, norms, the division by sqrt(d_k), a slow start of the learning rate, "
    "smoothed labels: what happens to a deep Transformer when each is taken away?"
)
MADE = (
    "How it is made. A deep and narrow decoder learns characters with AdamW; everything but the "
    "one trick is the same, seeds and batches too. Gradients are those of the first step, before "
    "anything is learned. Losses are nats per character, of the true next character in every case, "
    "on text that nobody has learned from; a training that breaks down has none. The stack is deep "
    "and the rate high on purpose: with half the layers and less than half the rate, residuals "
    "and label smoothing were all that mattered. Weights begin as in GPT-2, those that write to "
    "the residual stream smaller the deeper the stack, which does some of the norms' work."
)


def report(found: Trials, plan: Plan) -> Result:
    """Tables, figures and claims."""
    return Result(
        title="The training tricks, on and off",
        question=QUESTION,
        reading=(
            "Each line is one trick taken away, the mean over seeds with the range of them: the "
            "lower, the better it learns."
        ),
        readings=[
            "How much of the gradient reaches each layer before anything is learned: a line that "
            "falls to the left starves the first layers.",
            "Over how many characters a head spreads its attention while it learns; a line that "
            "falls has heads that fix upon few.",
        ],
        claims=claims(found),
        tables=[table(found)],
        figures=[
            curve(found, "nats", "nats per character", "Loss while learning"),
            layers(found),
            curve(found, "bits", "bits", "Entropy of the attention weights while learning"),
        ],
        panels=[bars(found), Text(MADE)],
    )


def curve(found: Trials, what: str, unit: str, title: str) -> Lines:
    """A mean over seeds, with the range of them."""
    series, bands = [], {}
    for name, trials in found.items():
        rows = [getattr(trial, what) for trial in trials]
        shortest = min(map(len, rows))
        if not shortest:
            continue
        values = np.array([row[:shortest] for row in rows])
        series.append(
            (name, [float(s) for s in trials[0].steps[:shortest]], values.mean(0).tolist())
        )
        bands[name] = (values.min(0).tolist(), values.max(0).tolist())
    return Lines(series, x_label="step", y_label=unit, title=title, bands=bands)


def layers(found: Trials) -> Lines:
    """The gradient of each block at the first step."""
    series = []
    for name in (ALL, STRAIGHT, POST, BARE, UNSCALED):
        values = np.array([trial.first for trial in found[name]])
        xs = [float(i + 1) for i in range(values.shape[1])]
        series.append((name, xs, values.mean(0).tolist()))
    return Lines(
        series,
        x_label="layer, the first being nearest to the input",
        y_label="norm of its gradient",
        title="Gradients before anything is learned",
        log_y=True,
        x_ticks=series[0][1],
    )


def losses(found: Trials, name: str) -> list[float]:
    """One for each seed."""
    return [trial.loss for trial in found[name]]


def table(found: Trials) -> Table:
    """Losses and what was lost."""
    rows: list[list[object]] = []
    for name in found:
        mine = losses(found, name)
        gap = str(change(found, name)) if name != ALL else ""
        reach = np.mean([trial.first[0] / trial.first[-1] for trial in found[name]])
        rows.append([name, str(Mean.of(mine)), gap, float(reach)])
    columns = [
        "variant",
        "nats on new text",
        "more than with all tricks",
        "gradient, first layer over last",
    ]
    return Table(columns, rows, title="Each trick taken away, 95% intervals over seeds")


def change(found: Trials, name: str, base: str = ALL) -> Mean:
    """How much higher the loss is, on average over the seeds."""
    return mean_of(gaps(found, name, base))


def gaps(found: Trials, name: str, base: str = ALL) -> list[float]:
    """How much higher the loss is, seed by seed."""
    pairs = zip(losses(found, name), losses(found, base), strict=True)
    return [a - b for a, b in pairs]


def mean_of(values: Sequence[float]) -> Mean:
    """The mean; infinite, or none, where a training broke down."""
    if not all(map(math.isfinite, values)):
        return Mean(sum(values), 0.0)
    return Mean.of(values)


def bars(found: Trials) -> Bars:
    """The losses as bars."""
    means = [Mean.of(losses(found, name)) for name in found]
    values = [mean.value for mean in means]
    return Bars(list(found), values, title="Loss on new text", unit="nats per character")


def claims(found: Trials) -> list[Claim]:
    """What each is for."""
    made = []
    reasons = {STRAIGHT: "residual connections", BARE: "norms", UNSCALED: "scaled scores"}
    for name, what in reasons.items():
        gap = change(found, name)
        stated = f"without: at least {WORSE} nats more on new text"
        made.append(Claim.within(f"{what} pay", stated, gap, gap.interval, least=WORSE))
    pre, post = gaps(found, COLD), gaps(found, POST_COLD, POST)
    more = mean_of([b - a for a, b in zip(pre, post, strict=True)])
    stated = f"taking warm-up away costs post-norm at least {WORSE} nats more than pre-norm"
    made.append(
        Claim.within(
            "post-norm needs warm-up, pre-norm does not",
            stated,
            f"{mean_of(post)} against {mean_of(pre)}",
            more.interval,
            least=WORSE,
        )
    )
    gap = change(found, SMOOTH)
    name, stated = "label smoothing hurts the perplexity", "more nats on new text: above 0"
    made.append(Claim.within(name, stated, gap, gap.interval, least=ABOVE))
    ratios = {name: [t.first[0] / t.first[-1] for t in found[name]] for name in (ALL, STRAIGHT)}
    share = Mean.of([b / a for a, b in zip(ratios[ALL], ratios[STRAIGHT], strict=True)])
    made.append(
        Claim.within(
            "without residuals gradients vanish",
            f"gradient of the first layer over the last: at most {RATIO} of that with residuals",
            f"{np.mean(ratios[STRAIGHT]):.3g} against {np.mean(ratios[ALL]):.3g}",
            share.interval,
            most=RATIO,
        )
    )
    return made
