"""How far back does the gradient reach? |d loss_t / d x_(t - k)| against k, by kind of mixer.

A model can only learn from what stands far back if its loss has a gradient there. Decks 000, 001
and 004 say that recurrences forget because gradients vanish on the way back, that convolutions see
so far and no further, and that attention reaches any token in one step (it still shares its
gradient out among them). Deck 004 counts the steps before a state can be computed, and the
interaction distance of two tokens.

Random letters are followed by a question mark, after which the first letter must be predicted.
Models have the same number of parameters to a tenth, train with the trainer's default settings, and
meet longer sequences as training goes on. The gradient is that of the loss after the question mark,
with respect to the embedding of the letter k positions before, its norm averaged over sequences, of
new models and after training. Steps are counted, not timed: how many operations follow one another
before the state of the last of n positions is known, and through how many a letter passes to meet
another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch
from regard.lab.experiment import (
    ABOVE,
    LAYERS,
    Claim,
    Mean,
    OnProgress,
    Options,
    Proportion,
    Result,
    SizedModel,
    curves,
    generator,
    last_symbol_accuracy,
    last_symbol_batch,
    train_model,
)
from regard.look.page import Heatmap, Lines, Table
from regard.models.language_model import NeuralLanguageModel
from regard.training.loop import seed_of

LETTERS = 8
ASK = LETTERS  # the last symbol of a sequence: what was the first?
VOCABULARY = LETTERS + 1
CNN_CONTEXT = 32  # positions of the convolution
WINDOW = 12  # two layers of windows reach 22 back
WINDOW_REACH = LAYERS * (WINDOW - 1)
HIGH = 0.95
SMALLEST, TINY = 1e-12, 1e-300  # share of a gradient that is drawn; in place of 0
N_NEW = 5  # untrained models that are measured
VANISHED, REACHED = 1e-3, 1e-2  # of the gradient at k = 1

RNN, LSTM, CNN, ATTENTION = "RNN", "LSTM", f"convolution over {CNN_CONTEXT}", "attention"
WINDOWED, LINEAR, HYENA = f"window of {WINDOW}", "linear attention", "Hyena"

Curve = Sequence[float]  # by k = 0, 1, …


@dataclass(frozen=True, eq=False)
class Measurement:
    """The gradients and the accuracy of one mixer."""

    before: Curve
    ratios: Sequence[float]  # gradient at the far end over that at 1, of several new models
    after: Curve
    accuracy: Proportion
    layers: int


Measurements = Mapping[str, Measurement]


def claims(measurements: Measurements, n: int, *, quick: bool = False) -> list[Claim]:
    means = {name: mean_log(m.ratios) for name, m in measurements.items()}
    pairs = zip(measurements[LSTM].ratios, measurements[RNN].ratios, strict=True)
    slower = mean_log([max(a, TINY) / max(b, TINY) for a, b in pairs])
    peak = int(np.argmax(measurements[ATTENTION].after[1:])) + 1
    return [
        Claim.within(
            "gradients of a recurrence vanish",
            f"new RNN: at {n} back at most {VANISHED:g} of that at 1",
            means[RNN],
            power_of_ten(means[RNN]),
            most=math.log10(VANISHED),
        ),
        Claim.within(
            "an LSTM's vanish more slowly",
            "a higher share than the RNN's",
            slower,
            f"{power_of_ten(means[LSTM])} against {power_of_ten(means[RNN])}",
            least=ABOVE,
        ),
        claim_blind(
            "a convolution is blind beyond its field", measurements[CNN].before, CNN_CONTEXT
        ),
        claim_blind(
            "a window is blind beyond what its layers reach",
            measurements[WINDOWED].before,
            WINDOW_REACH + 1,
        ),
        *(
            Claim.within(
                f"{name} reaches any distance",
                f"new: at {n} back at least {REACHED:g} of that at 1",
                means[name],
                power_of_ten(means[name]),
                least=math.log10(REACHED),
            )
            for name in (ATTENTION, LINEAR, HYENA)
        ),
        Claim(
            "trained attention looks where the answer stands",
            f"the greatest gradient is {n} back",
            f"{peak} back",
            peak == n or (None if quick else False),
        ),
        *(
            claim_recall(name, measurements[name].accuracy, able, quick=quick)
            for name, able in ((ATTENTION, True), (HYENA, True), (CNN, n < CNN_CONTEXT))
        ),
    ]


def claim_blind(name: str, curve: Curve, reach: int) -> Claim:
    """No gradient from `reach` back on."""
    beyond, within = max(curve[reach:]), min(curve[1:reach])
    stated = f"exactly 0 from {reach} back on, above 0 before"
    measured = f"{beyond:.1g}, {within:.1e} the least before"
    return Claim(name, stated, measured, beyond == 0 and within > 0)


def claim_recall(name: str, accuracy: Proportion, able: bool, *, quick: bool) -> Claim:
    """A trained model predicts the letter, or guesses where it cannot see it."""
    bound = f"at least {HIGH:.0%}" if able else f"at most {2 / LETTERS:.0%}"
    return Claim.within(
        f"{name} {'recalls' if able else 'cannot recall'} the letter",
        f"predicts the letter in {bound}",
        accuracy,
        least=HIGH if able else 0.0,
        most=1.0 if able else 2 / LETTERS,
        may_rise=able and quick,
    )


def mean_log(ratios: Sequence[float]) -> Mean:
    """Return the mean of their logarithms to base 10: ratios differ by factors."""
    return Mean.of([math.log10(max(ratio, TINY)) for ratio in ratios])


def power_of_ten(mean: Mean) -> str:
    """Return a mean of logarithms as the ratio it stands for, with its interval."""
    low, high = (10.0**end for end in mean.interval)
    return f"{10.0**mean.value:.2g} [{low:.2g}, {high:.2g}]"


@dataclass(frozen=True, kw_only=True)
class Mixer(SizedModel):
    """A kind of model, with the steps between two tokens k apart, and whether the state of a
    position needs that of the one before.
    """

    hops: Callable[[int], str] = lambda k: "1"
    recurrent: bool = False

    def serial(self, n: int, depth: int) -> int:
        """Return the steps before the last of n states is known, in a stack of `depth` layers."""
        return n + depth - 1 if self.recurrent else depth


# A new kind of mixer is one more line.
MIXERS: dict[str, Mixer] = {
    RNN: Mixer(family="rnn", hops=str, recurrent=True),
    LSTM: Mixer(family="lstm", hops=str, recurrent=True),
    CNN: Mixer(
        family="cnn",
        hops=lambda k: str(k.bit_count()) if k < CNN_CONTEXT else "never",
        context=CNN_CONTEXT,
    ),
    ATTENTION: Mixer(family="transformer"),
    WINDOWED: Mixer(
        family="transformer",
        hops=lambda k: str(-(-k // (WINDOW - 1))) if k <= WINDOW_REACH else "never",
        changes=(("window", WINDOW),),
    ),
    LINEAR: Mixer(family="transformer", changes=(("mixers", ("linear",)),)),
    HYENA: Mixer(family="hyena"),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the experiment, the same for every mixer."""

    length: int  # letters before the question mark
    steps: int
    batch: int = 32
    tested: int = 256
    parameters: int = 40_000

    def length_at(self, step: int) -> int:
        """Return the length at a step: it grows until two thirds of the steps."""
        share = min(1.0, 1.5 * (step + 1) / max(1, self.steps))
        return max(4, round(self.length * share))


LARGE = Plan(length=96, steps=500)
SMALL = Plan(length=40, steps=150, batch=16, parameters=25_000)


def draw(letters: int, n: int, random: np.random.Generator) -> Batch:
    """Return random letters and a question mark, after which the first letter is the target."""
    ids = torch.from_numpy(random.integers(0, LETTERS, (n, letters + 1)))
    ids[:, -1] = ASK
    return last_symbol_batch(ids, ids[:, 0])


def gradient_norms(model: NeuralLanguageModel, batch: Batch) -> Curve:
    """Return |d loss / d x_(t - k)| for k = 0, 1, …: the loss of the last position, the norm of the
    gradient at each embedding, mean over the batch.
    """
    embedded: list[Tensor] = []

    def detach(module: object, args: object, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hook = model.embedding.register_forward_hook(detach)  # type: ignore[union-attr]
    try:
        loss = -model.score(batch.ids, batch.targets).sum()
    finally:
        hook.remove()
    (gradient,) = torch.autograd.grad(loss, embedded[:1])  # (B, T, D)
    return gradient.norm(dim=-1).mean(0).flip(0).double().tolist()  # type: ignore[no-any-return]


def measure(name: str, plan: Plan, seed: int, on_progress: OnProgress) -> Measurement:
    """Measure a mixer new and after training, on the same sequences."""
    mixer, size = MIXERS[name], (plan.parameters, VOCABULARY, plan.length + 1)
    build, test = mixer.builder(*size), draw(plan.length, plan.tested, generator(seed, -1))
    new = []
    for i in range(N_NEW):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(seed + i))
            model = build().eval()
        new.append(gradient_norms(model, test))
    model = train_model(
        build,
        lambda step: draw(plan.length_at(step), plan.batch, generator(seed, step)),
        plan.steps,
        seed,
        on_progress=on_progress,
    )
    accuracy, layers = last_symbol_accuracy(model, test), mixer.config(*size).n_layers
    ratios = [curve[plan.length] / curve[1] for curve in new]
    return Measurement(new[0], ratios, gradient_norms(model, test), accuracy, layers)


def gradients(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    letters = sum(plan.length_at(step) + 1 for step in range(plan.steps))
    progress = options.progress(len(MIXERS) * plan.batch * letters)
    measurements = {
        name: options.part(
            f"gradients {name} {options.seed}",
            plan,
            Measurement,
            partial(measure, name, plan, options.seed, partial(progress.add, f"gradients: {name}")),
        )
        for name in MIXERS
    }
    return Result(
        title="How far back the gradient reaches",
        answer=answer(measurements, plan.length),
        question=__doc__ or "",
        reading=(
            "Each line is a model: where it falls, letters so far back hardly influence what is "
            "learned; where it ends, they have no influence at all. The letter to recall stands "
            f"at the far right, {plan.length} back."
        ),
        readings=["The same after training: models that can reach the letter do."],
        claims=claims(measurements, plan.length, quick=options.quick),
        tables=[table(measurements, plan.length)],
        figures=[
            gradient_curves({name: m.before for name, m in measurements.items()}, "before"),
            gradient_curves({name: m.after for name, m in measurements.items()}, "after"),
        ],
        panels=[steps_map(name) for name in (RNN, ATTENTION)],
    )


def answer(measurements: Measurements, n: int) -> str:
    shares = {name: m.before[n] / (m.before[1] or 1.0) for name, m in measurements.items()}
    listed = ", ".join(
        f"{name}: {share:.2g}" for name, share in sorted(shares.items(), key=lambda item: -item[1])
    )
    return (
        f"Of the gradient one letter back, this share reaches {n} letters back in a new model: "
        f"{listed}."
    )


def gradient_curves(rows: Mapping[str, Curve], when: str) -> Lines:
    """Return the gradients relative to that at k = 1; below SMALLEST a line ends."""
    ratios = {name: np.asarray(row[1:]) / (row[1] or 1.0) for name, row in rows.items()}
    return curves(
        range(1, len(rows[RNN])),
        {name: np.where(row < SMALLEST, np.nan, row) for name, row in ratios.items()},
        f"|d loss / d x| by distance, {when} learning",
        ("k, letters back from the question mark", "gradient there, that at k = 1 being 1"),
        log="y",
    )


def table(measurements: Measurements, n: int) -> Table:
    rows: list[list[object]] = [
        [
            name,
            m.before[n] / m.before[1],
            m.after[n] / (m.after[1] or 1.0),
            m.accuracy.percent,
            MIXERS[name].hops(n),
            MIXERS[name].serial(n + 1, m.layers),
        ]
        for name, m in measurements.items()
    ]
    columns = ["mixer", f"gradient at {n} over that at 1, new", "... trained", "accuracy, %"]
    columns += ["interaction distance", "steps one after another"]
    return Table(columns, rows, title=f"Recalling a letter {n} back")


def steps_map(name: str) -> Heatmap:
    """Return the number of steps before each state can be computed (deck 004)."""
    depths, positions = (3, 2, 1), range(1, 11)
    return Heatmap(
        np.array([[MIXERS[name].serial(n, depth) for n in positions] for depth in depths]),
        [f"layer {depth}" for depth in depths],
        list(map(str, positions)),
        title=f"{name}: steps before a state is known, layers down, positions across",
        unit="steps",
    )
