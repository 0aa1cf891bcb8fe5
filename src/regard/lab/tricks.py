"""The training tricks, each on and off: residual connections, norms, scaling, warm-up, smoothing.

Deck 004 calls residuals, LayerNorm and scaled products the tricks that make Transformers trainable;
deck 000 says that attention has no vanishing gradients. What it has is a shorter path, and
residuals: a deep stack without them, or post-norm without warm-up, still has trouble (Xiong et al.
2020, arXiv:2002.04745). Label smoothing hurts the perplexity (Vaswani et al. 2017, section 5.4).

A deep and narrow decoder learns characters with AdamW; everything but the tricks is the same, seeds
and batches too. Residuals, norms (before, after, RMS, none) and scaling are removed alone and
together, an ablation matrix; warm-up and smoothing alone. Gradients are the norms of each layer's,
at the first step, before anything is learned, and while learning. Losses are bits per character, of
the true next character in every case, on text that is not trained on; a training that diverges has
none. The stack is deep and the rate high on purpose: with half the layers and less than half the
rate, residuals and label smoothing were all that mattered. Weights are initialised as in GPT-2,
those that write to the residual stream smaller the deeper the stack, which does some of the norms'
work.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import UserError
from regard.evaluation.head_scores import entropy_bits
from regard.lab.experiment import (
    ABOVE,
    BITS_PER_NAT,
    Claim,
    Mean,
    OnProgress,
    Options,
    Result,
    TextStream,
    curves,
    mean_loss,
    random_windows,
    read_stream,
    seed_curves,
    spread_windows,
    train_model,
)
from regard.layers.block import Block
from regard.layers.tap import Tap
from regard.look.page import Bars, Heatmap, Lines, Table
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.language_model import NeuralLanguageModel
from regard.models.transformer import TransformerConfig

ALL, NO_RESIDUAL, POST, NO_NORM = "all tricks", "no residual", "post-norm", "no norm"
RMS, UNSCALED, NO_WARMUP = "RMS norm", "no scaling", "no warm-up"
POST_NO_WARMUP, SMOOTHED = "post-norm, no warm-up", "smoothed"
WORSE, RATIO = 0.07, 0.1  # bits, and of a gradient
MARKS = 25  # points of a curve
TINY = 1e-12  # the least gradient that is drawn


def claims(trials: Trials) -> list[Claim]:
    names = {NO_RESIDUAL: "residual connections", NO_NORM: "norms", UNSCALED: "scaled scores"}
    gaps = {name: finite_mean(loss_gaps(trials, name)) for name in (*names, SMOOTHED)}
    pre, post = loss_gaps(trials, NO_WARMUP), loss_gaps(trials, POST_NO_WARMUP, POST)
    more = finite_mean([b - a for a, b in zip(pre, post, strict=True)])
    ratios = {name: [trial.reach for trial in trials[name]] for name in (ALL, NO_RESIDUAL)}
    share = Mean.of([b / a for a, b in zip(ratios[ALL], ratios[NO_RESIDUAL], strict=True)])
    return [
        *(
            Claim.within(
                f"{trick} pay",
                f"without: at least {WORSE} bits more on new text",
                gaps[name],
                least=WORSE,
            )
            for name, trick in names.items()
        ),
        Claim.within(
            "post-norm needs warm-up, pre-norm does not",
            f"removing warm-up costs post-norm at least {WORSE} bits more than pre-norm",
            more,
            f"{finite_mean(post)} against {finite_mean(pre)}",
            least=WORSE,
        ),
        Claim.within(
            "label smoothing hurts the perplexity",
            "more bits on new text: above 0",
            gaps[SMOOTHED],
            least=ABOVE,
        ),
        Claim.within(
            "without residuals gradients vanish",
            f"gradient of the first layer over the last: at most {RATIO} of that with residuals",
            share,
            f"{np.mean(ratios[NO_RESIDUAL]):.3g} against {np.mean(ratios[ALL]):.3g}",
            most=RATIO,
        ),
    ]


def loss_gaps(trials: Trials, name: str, base: str = ALL) -> list[float]:
    """Return how much higher the loss is than that of `base`, seed by seed."""
    return [a.loss - b.loss for a, b in zip(trials[name], trials[base], strict=True)]


def finite_mean(values: Sequence[float]) -> Mean:
    """Return the mean; infinite, or NaN, where a training diverged."""
    if not all(map(math.isfinite, values)):
        return Mean(sum(values), 0.0)
    return Mean.of(values)


class StraightBlock(Block):
    """A block without residual connections: part(norm(x)), or norm(part(x))."""

    def part(
        self,
        x: Tensor,
        norm: nn.Module | None,
        part: Callable[[Tensor], Tensor],
        tap: Tap | None,
    ) -> Tensor:
        assert norm is not None
        return norm(part(x)) if self.post_norm else part(norm(x))


class StraightDecoder(Decoder):
    def build(self, vocab_size: int, config: TransformerConfig, **options: bool) -> None:
        super().build(vocab_size, config, **options)
        make = partial(StraightBlock, post_norm=config.post_norm, dropout=config.dropout)
        self.blocks = nn.ModuleList(
            make(block.mixer, block.feedforward, config.make_norm)
            for block in cast("Sequence[Block]", self.blocks)
        )


@dataclass(frozen=True)
class Variant:
    """What is changed: the class, fields of the configuration, fields of the recipe."""

    build: type[Decoder] = Decoder
    config: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


# The ablation matrix: its rows and columns.
NORMS: dict[str, Mapping[str, Any]] = {
    "": {},
    POST: {"post_norm": True},
    RMS: {"norm": "rms"},
    NO_NORM: {"norm": "none"},
}
SWITCHED_OFF: dict[str, tuple[type[Decoder], Mapping[str, Any]]] = {
    "": (Decoder, {}),
    NO_RESIDUAL: (StraightDecoder, {}),
    UNSCALED: (Decoder, {"score": "dot"}),
    f"{NO_RESIDUAL}, {UNSCALED}": (StraightDecoder, {"score": "dot"}),
}


def name_of(norm: str, switched_off: str) -> str:
    """Return the name of a cell of the ablation matrix."""
    return ", ".join(part for part in (norm, switched_off) if part) or ALL


VARIANTS: dict[str, Variant] = {
    **{
        name_of(norm, off): Variant(build, {**config, **more})
        for norm, config in NORMS.items()
        for off, (build, more) in SWITCHED_OFF.items()
    },
    NO_WARMUP: Variant(recipe={"warmup": 0.0}),
    POST_NO_WARMUP: Variant(config={"post_norm": True}, recipe={"warmup": 0.0}),
    SMOOTHED: Variant(recipe={"label_smoothing": 0.1}),
}


# Each trick alone, for curves; combinations are in the matrix.
DRAWN = (ALL, NO_RESIDUAL, POST, RMS, NO_NORM, UNSCALED, NO_WARMUP, POST_NO_WARMUP, SMOOTHED)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the experiment, the same for every variant."""

    steps: int
    seeds: int
    n_layers: int = 12
    length: int = 48
    batch: int = 16
    tested: int = 200

    @property
    def config(self) -> DecoderConfig:
        """A deep and narrow decoder with every trick; QK-norm would replace the scaling."""
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


# Adam alone, unclipped, at a high rate: Muon's steps have one length whatever the gradient's, and
# clipping is a trick of its own.
SETTINGS = {"optimizer": "adamw", "lr": 0.01, "warmup": 0.15, "clip": 0.0}
LARGE = Plan(steps=120, seeds=3)
SMALL = Plan(steps=25, seeds=1, n_layers=6, length=32, batch=8, tested=40)


@dataclass(eq=False)
class Trial:
    """One training: curves of loss and entropy, initial gradients by layer, loss on new text."""

    steps: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # bits per character
    entropies: list[float] = field(default_factory=list)  # bits, of the attention weights
    gradients: list[list[float]] = field(default_factory=list)  # at each step, of each block
    loss: float = math.inf  # where training diverged

    def watch(
        self, every: int, probe: Tensor, step: int, nats: float, model: NeuralLanguageModel
    ) -> None:
        if step % every == 0:
            blocks = cast("Sequence[Block]", model.blocks)
            self.gradients.append([gradient_norm(block) for block in blocks])
            tap = Tap(["*.weights"])
            with torch.no_grad():
                model.hidden(probe, tap=tap)
            bits = [float(entropy_bits(weights).mean()) for weights in tap.activations.values()]
            self.steps.append(float(step))
            self.losses.append(nats * BITS_PER_NAT)
            self.entropies.append(float(np.mean(bits)))

    @property
    def reach(self) -> float:
        """The gradient of the first layer over that of the last, before anything is learned."""
        return self.gradients[0][0] / self.gradients[0][-1]


def gradient_norm(module: nn.Module) -> float:
    squares = [float(p.grad.square().sum()) for p in module.parameters() if p.grad is not None]
    return math.sqrt(sum(squares))


def run(
    variant: Variant, plan: Plan, stream: TextStream, seed: int, on_progress: OnProgress
) -> Trial:
    """Train one variant; one that diverges ends with an infinite loss."""
    config = dataclasses.replace(plan.config, **variant.config)
    test = spread_windows(stream.test, plan.length, plan.tested)
    trial, every = Trial(), max(1, plan.steps // MARKS)
    try:
        model = train_model(
            partial(variant.build, len(stream.letters), config),
            partial(random_windows, stream.train, plan.length, plan.batch, seed),
            plan.steps,
            seed,
            on_progress=on_progress,
            watch=partial(trial.watch, every, test.ids[:4]),
            **SETTINGS | dict(variant.recipe),
        )
    except UserError:
        return trial
    trial.loss = mean_loss(model, test)
    return trial


Trials = Mapping[str, Sequence[Trial]]  # by variant, one for each seed


def tricks(options: Options) -> Result:
    """Run the experiment on the user's text, or on names."""
    plan = SMALL if options.quick else LARGE
    stream = read_stream(options.file, 40 * plan.length)
    positions = plan.steps * plan.batch * plan.length
    progress = options.progress(len(VARIANTS) * plan.seeds * positions)
    trials: dict[str, list[Trial]] = {name: [] for name in VARIANTS}
    for seed in options.seeds(plan.seeds):
        for name, variant in VARIANTS.items():
            on_progress = partial(progress.add, f"tricks: {name}")
            compute = partial(run, variant, plan, stream, seed, on_progress)
            trials[name].append(options.part(f"tricks {name} {seed}", plan, Trial, compute))
    return report(trials)


def answer(trials: Trials) -> str:
    gains = {
        "residual connections": NO_RESIDUAL,
        "norms": NO_NORM,
        "scaling": UNSCALED,
        "warm-up": NO_WARMUP,
        "no label smoothing": SMOOTHED,
    }
    means = {what: finite_mean(loss_gaps(trials, name)).value for what, name in gains.items()}
    order = sorted(means, key=lambda what: -means[what])
    listed = ", ".join(f"{what} {means[what]:+.3f}" for what in order)
    return (
        f"Nats per character gained by each, on new text: {listed}. A gradient reaches the first "
        f"of the layers with {np.mean([t.reach for t in trials[ALL]]):.2g} of its norm in the "
        f"last, without residuals with {np.mean([t.reach for t in trials[NO_RESIDUAL]]):.2g}."
    )


def report(trials: Trials) -> Result:
    losses = [Mean.of([trial.loss for trial in seeds]).value for seeds in trials.values()]
    return Result(
        title="The training tricks, on and off",
        answer=answer(trials),
        question=__doc__ or "",
        reading=(
            "Each line is one trick removed, the mean over seeds with their range: the lower, the "
            "better it learns."
        ),
        readings=[
            "How much of the gradient reaches each layer before anything is learned: a line that "
            "falls to the left starves the first layers.",
            "Over how many characters a head spreads its attention during training; a line that "
            "falls has heads that concentrate on few.",
            "Each cell is the loss on new text of one combination: rows are norms, columns what "
            "is switched off; the lower, the better. A blank cell diverged.",
        ],
        claims=claims(trials),
        tables=[table(trials)],
        figures=[
            training_curves(trials, "losses", "bits per character", "Loss"),
            gradient_curves(trials),
            training_curves(trials, "entropies", "bits", "Entropy of the attention weights"),
            matrix(trials),
        ],
        panels=[
            *gradient_maps(trials),
            Bars(list(trials), losses, title="Loss on new text", unit="bits per character"),
        ],
    )


def training_curves(trials: Trials, attribute: str, unit: str, title: str) -> Lines:
    """Return the mean over seeds of a recorded curve, with their range, as long as the shortest."""
    groups = {}
    for name in DRAWN:
        seeds = trials[name]
        rows = [getattr(trial, attribute) for trial in seeds]
        if shortest := min(map(len, rows)):
            groups[name] = [row[:shortest] for row in rows]
    steps = max((trial.steps for name in groups for trial in trials[name]), key=len)
    return seed_curves(steps, groups, f"{title} while learning", ("step", unit))


def gradient_curves(trials: Trials) -> Lines:
    names = (ALL, NO_RESIDUAL, POST, RMS, NO_NORM, UNSCALED)
    means = {
        name: np.mean([trial.gradients[0] for trial in trials[name]], axis=0) for name in names
    }
    return curves(
        range(1, len(means[ALL]) + 1),
        means,
        "Gradients before anything is learned",
        ("layer, the first being nearest to the input", "norm of its gradient"),
        log="y",
        ticks=True,
    )


def gradient_maps(trials: Trials) -> list[Heatmap]:
    """Return a map of the gradients of each layer while learning, for each variant of a curve."""
    maps = []
    for name in DRAWN:
        trial = trials[name][0]
        logs = np.log10(np.maximum(np.array(trial.gradients).T, TINY))  # (L, steps)
        layers = [f"layer {i + 1}" for i in range(len(logs))]
        steps = [f"{step:.0f}" for step in trial.steps]
        title = f"Gradients of each layer while learning: {name}"
        maps.append(Heatmap(logs, layers, steps, title, unit="log₁₀ of the norm"))
    return maps


def matrix(trials: Trials) -> Heatmap:
    """Return the ablation matrix: the loss by norm and by what is switched off."""
    losses = [
        [finite_mean([t.loss for t in trials[name_of(norm, off)]]).value for off in SWITCHED_OFF]
        for norm in NORMS
    ]
    values = np.array(losses)
    values[~np.isfinite(values)] = np.nan
    return Heatmap(
        values,
        [norm or "norm before each part" for norm in NORMS],
        [off or "nothing off" for off in SWITCHED_OFF],
        title="Ablation matrix: loss on new text",
        unit="bits per character",
    )


def table(trials: Trials) -> Table:
    rows: list[list[object]] = []
    for name, seeds in trials.items():
        loss = Mean.of([trial.loss for trial in seeds])
        gap = str(finite_mean(loss_gaps(trials, name))) if name != ALL else ""
        rows.append([name, str(loss), gap, float(np.mean([trial.reach for trial in seeds]))])
    columns = ["variant", "bits on new text", "more than with all tricks"]
    columns += ["gradient, first layer over last"]
    return Table(columns, rows, title="Each trick removed, 95% intervals over seeds")
