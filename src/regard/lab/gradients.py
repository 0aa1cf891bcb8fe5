"""How far back does the gradient reach? |d loss_t / d x_(t - k)| against k, by kind of mixer.

Decks 000, 001 and 004 say that recurrences forget because gradients vanish on the way back, that
convolutions see so far and no further, and that attention reaches any token in one step (it still
shares its gradient out among them). Deck 004 counts the steps before a state can be computed, and
the interaction distance of two tokens. Here both are told for the models themselves, new and after
they have learned to recall a letter from far back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.lab.mini_trainer import practise
from regard.lab.result import ABOVE, Claim, Mean, Options, Result, Share
from regard.look.page import Heatmap, Lines, Table, Text
from regard.models.language_model import NeuralLanguageModel
from regard.models.parameter_matching import sized
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.training.loop import seed_of

LETTERS = 8
ASK = LETTERS  # the last symbol of a sequence: what was the first?
VOCABULARY = LETTERS + 1
SEES = 32  # positions of the convolution
LAYERS, NEAR = 2, 12  # of the window: two layers reach 22 back
SURE = 0.95
SMALLEST = 1e-12  # share of a gradient that is drawn
NEW = 5  # models that are looked at before they learn
VANISHED, REACHED = 1e-3, 1e-2  # of the gradient at k = 1

Curve = Sequence[float]  # by k = 0, 1, …


@dataclass(frozen=True)
class Mixer:
    """A family, the context it is made for (0: all), what else is changed of it, and how many steps
    lie between two tokens k apart, and before the last of n states is known, in a stack of so many
    layers.
    """

    family: str
    hops: Callable[[int], str]
    serial: Callable[[int, int], int]
    sees: int = 0
    changes: tuple[tuple[str, Any], ...] = ()


RNN, LSTM, CNN, ATTENTION = "RNN", "LSTM", f"convolution over {SEES}", "attention"
WINDOW, LINEAR, HYENA = f"window of {NEAR}", "linear attention", "Hyena"
# A new kind of mixer is one more line.
MIXERS: dict[str, Mixer] = {
    RNN: Mixer("rnn", lambda k: str(k), lambda n, depth: n + depth - 1),
    LSTM: Mixer("lstm", lambda k: str(k), lambda n, depth: n + depth - 1),
    CNN: Mixer(
        "cnn", lambda k: str(k.bit_count()) if k < SEES else "never", lambda n, depth: depth, SEES
    ),
    ATTENTION: Mixer("transformer", lambda k: "1", lambda n, depth: depth),
    WINDOW: Mixer(
        "transformer",
        lambda k: str(-(-k // (NEAR - 1))) if k <= LAYERS * (NEAR - 1) else "never",
        lambda n, depth: depth,
        changes=(("window", NEAR),),
    ),
    LINEAR: Mixer(
        "transformer", lambda k: "1", lambda n, depth: depth, changes=(("mixers", ("linear",)),)
    ),
    HYENA: Mixer("hyena", lambda k: "1", lambda n, depth: depth),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done, the same for every mixer."""

    length: int  # letters before the question
    steps: int
    batch: int = 32
    tested: int = 256
    parameters: int = 40_000

    @property
    def recipe(self) -> TrainRecipe:
        """The trainer's own defaults, on the CPU."""
        return TrainRecipe(steps=self.steps, device="cpu", compile="off")

    def letters_at(self, step: int) -> int:
        """Sequences grow while the models learn, to full length at two thirds of the steps."""
        share = min(1.0, 1.5 * (step + 1) / max(1, self.steps))
        return max(4, round(self.length * share))


LARGE = Plan(length=96, steps=500)
SMALL = Plan(length=40, steps=150, batch=16, tested=256, parameters=25_000)


def draw(letters: int, many: int, random: np.random.Generator) -> Batch:
    """Random letters and a question: what was the first?"""
    ids = torch.from_numpy(random.integers(0, LETTERS, (many, letters + 1)))
    ids[:, -1] = ASK
    targets = torch.full_like(ids, IGNORE)
    targets[:, -1] = ids[:, 0]
    return Batch(ids, targets, None, np.arange(many), many, many)


def config_of(mixer: Mixer, plan: Plan) -> Any:
    """The family's configuration at the common size."""
    longest = plan.length + 1
    found = sized(
        mixer.family, plan.parameters, VOCABULARY, n_layers=LAYERS, max_len=mixer.sees or longest
    )
    return dataclasses.replace(found, max_len=longest, **dict(mixer.changes))


def reach(model: NeuralLanguageModel, batch: Batch) -> Curve:
    """|d loss / d x_(t - k)| for k = 0, 1, …: the loss of the last position, the norm of the
    gradient at each embedding, mean over the batch.
    """
    held: list[Tensor] = []
    hook = model.embedding.register_forward_hook(  # type: ignore[union-attr]
        lambda module, given, made: held.append(made.detach().requires_grad_()) or held[-1]  # type: ignore[func-returns-value]
    )
    try:
        loss = -model.score(batch.ids, batch.targets).sum()
    finally:
        hook.remove()
    (slope,) = torch.autograd.grad(loss, held[:1])  # (B, T, D)
    return slope.norm(dim=-1).mean(0).flip(0).double().tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Found:
    """What was measured of one mixer."""

    before: Curve
    shares: Sequence[float]  # gradient at the far end over that at 1, of several new models
    after: Curve
    right: Share
    layers: int


def measure(name: str, plan: Plan, seed: int, told: Callable[[], None]) -> Found:
    """New and after training, on the same sequences."""
    mixer = MIXERS[name]
    config = config_of(mixer, plan)
    test = draw(plan.length, plan.tested, np.random.default_rng(seed_of(seed, -1)))
    new = [reach(untrained(mixer, config, seed + i), test) for i in range(NEW)]

    def batch_of(step: int) -> Batch:
        return draw(plan.letters_at(step), plan.batch, np.random.default_rng(seed_of(seed, step)))

    recipe = dataclasses.replace(plan.recipe, seed=seed)
    model = practise(mixer.family, VOCABULARY, config, recipe, batch_of, lambda batch: told())
    with torch.no_grad():
        answers = model.head(model(test.ids)[:, -1]).argmax(-1)
    right = Share(int((answers == test.targets[:, -1]).sum()), plan.tested)
    shares = [curve[plan.length] / curve[1] for curve in new]
    return Found(new[0], shares, reach(model, test), right, config.n_layers)


def untrained(mixer: Mixer, config: Any, seed: int) -> NeuralLanguageModel:
    """A model as training begins with it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed))
        made: NeuralLanguageModel = family(mixer.family)(VOCABULARY, config).eval()
    return made


def gradients(options: Options) -> Result:
    """The experiment."""
    plan = SMALL if options.quick else LARGE
    work = options.work(len(MIXERS) * plan.steps)
    found = {
        name: measure(name, plan, options.seed, partial(work.add, f"gradients: {name}", 1.0))
        for name in MIXERS
    }
    return report(found, plan, short=options.quick)


QUESTION = (
    "A model that is to use what stands far back must feel it while it learns: its loss must have "
    "a gradient there. How does that fall with distance, before anything is learned and after "
    "learning to recall a letter from the far end?"
)
MADE = (
    "How it is made. Random letters, then a question mark, after which the first letter must be "
    "named. Models have the same number of parameters to a tenth, learn with the trainer's own "
    "settings, and meet longer sequences as they go. The gradient is that of the loss after the "
    "question, by the vector of the letter k places before, its norm averaged over sequences. "
    "Steps are counted, not timed: how many operations follow one another before the state of "
    "the last of n positions is known, and through how many a letter passes to meet another."
)


def report(found: Mapping[str, Found], plan: Plan, *, short: bool = False) -> Result:
    """Tables, figures and claims."""
    return Result(
        title="How far back the gradient reaches",
        question=QUESTION,
        reading=(
            "Each line is a model: where it falls, what stands so far back has no say in what is "
            "learned; where it stops, nothing reaches it at all. The letter asked for stands at "
            f"the far right, {plan.length} back."
        ),
        readings=["The same once they have learned: what can look there does."],
        claims=claims(found, plan, short=short),
        tables=[table(found, plan)],
        figures=[
            curves({name: one.before for name, one in found.items()}, "before learning"),
            curves({name: one.after for name, one in found.items()}, "after learning"),
        ],
        panels=[*steps_maps(), Text(MADE)],
    )


def curves(rows: Mapping[str, Curve], when: str) -> Lines:
    """Relative to the gradient of the neighbour."""
    series = []
    for name, row in rows.items():
        shares = np.asarray(row[1:]) / (row[1] or 1.0)
        shares[shares < SMALLEST] = np.nan  # drawn as a line that ends
        series.append((name, [float(k) for k in range(1, len(row))], shares.tolist()))
    return Lines(
        series,
        x_label="k, letters back from the question",
        y_label="gradient there, that at k = 1 being 1",
        title=f"|d loss / d x| by distance, {when}",
        log_y=True,
    )


def table(found: Mapping[str, Found], plan: Plan) -> Table:
    """Gradients, answers, and steps."""
    n = plan.length
    rows: list[list[object]] = [
        [
            name,
            one.before[n] / one.before[1],
            one.after[n] / (one.after[1] or 1.0),
            one.right.percent,
            MIXERS[name].hops(n),
            MIXERS[name].serial(n + 1, one.layers),
        ]
        for name, one in found.items()
    ]
    columns = [
        "mixer",
        f"gradient at {n} over that at 1, new",
        "... trained",
        "letter named, %",
        "interaction distance",
        "steps one after another",
    ]
    return Table(columns, rows, title=f"Recalling a letter {n} back")


def steps_maps() -> list[Heatmap]:
    """Deck 004: the least number of steps before a state can be computed."""
    places, depth = 10, 3
    made = []
    for name in (RNN, ATTENTION):
        values = np.array(
            [[MIXERS[name].serial(p + 1, d + 1) for p in range(places)] for d in range(depth)]
        )
        made.append(
            Heatmap(
                values[::-1],
                [f"layer {depth - d}" for d in range(depth)],
                [str(p + 1) for p in range(places)],
                title=f"{name}: steps before a state is known, layers down, positions across",
                unit="steps",
            )
        )
    return made


def claims(found: Mapping[str, Found], plan: Plan, *, short: bool = False) -> list[Claim]:
    """What is said of each, after training or after a `short` one."""
    both = zip(found[LSTM].shares, found[RNN].shares, strict=True)
    slower = Mean.of([math.log10(max(a, 1e-300) / max(b, 1e-300)) for a, b in both])
    n = plan.length
    ratio = {name: logs(one.shares) for name, one in found.items()}
    near = LAYERS * (NEAR - 1) + 1
    past = max(found[WINDOW].before[near:])
    beyond = max(found[CNN].before[SEES:])
    within = min(found[CNN].before[1:SEES])
    peak = int(np.argmax(found[ATTENTION].after[1:])) + 1
    made = [
        Claim.within(
            "gradients of a recurrence vanish",
            f"new RNN: at {n} back at most {VANISHED:g} of that at 1",
            power(ratio[RNN]),
            ratio[RNN].interval,
            most=math.log10(VANISHED),
        ),
        Claim.within(
            "an LSTM's vanish more slowly",
            "a higher share than the RNN's",
            f"{power(ratio[LSTM])} against {power(ratio[RNN])}",
            slower.interval,
            least=ABOVE,
        ),
        Claim(
            "a convolution is blind beyond its field",
            f"exactly 0 from {SEES} back on, above 0 before",
            f"{beyond:.1g}, {within:.1e} the least before",
            beyond == 0 and within > 0,
        ),
        Claim(
            "a window is blind beyond what its layers reach",
            f"exactly 0 from {near} back on, above 0 before",
            f"{past:.1g}, {min(found[WINDOW].before[1:near]):.1e} the least before",
            past == 0 and min(found[WINDOW].before[1:near]) > 0,
        ),
        *(
            Claim.within(
                f"{name} reaches any distance",
                f"new: at {n} back at least {REACHED:g} of that at 1",
                power(ratio[name]),
                ratio[name].interval,
                least=math.log10(REACHED),
            )
            for name in (ATTENTION, LINEAR, HYENA)
        ),
        Claim(
            "trained attention looks where the answer stands",
            f"the greatest gradient is {n} back",
            f"{peak} back",
            peak == n or (None if short else False),
        ),
    ]
    return [*made, *recalled(found, n, short=short)]


def logs(shares: Sequence[float]) -> Mean:
    """The mean of their logarithms to base 10: shares differ by factors."""
    return Mean.of([math.log10(max(share, 1e-300)) for share in shares])


def power(mean: Mean) -> str:
    """A mean of logarithms as the share it is of, with its interval."""
    low, high = (10.0**end for end in mean.interval)
    return f"{10.0**mean.value:.2g} [{low:.2g}, {high:.2g}]"


def recalled(found: Mapping[str, Found], n: int, *, short: bool) -> list[Claim]:
    """What is said of the letter `n` back, once they have learned."""
    made = []
    for name, sees in ((ATTENTION, True), (HYENA, True), (CNN, n < SEES)):
        share = found[name].right
        stated = (
            f"names the letter in at least {SURE:.0%}"
            if sees
            else f"names the letter in at most {2 / LETTERS:.0%}"
        )
        made.append(
            Claim.within(
                f"{name} {'recalls' if sees else 'cannot recall'} the letter",
                stated,
                share,
                share.interval,
                least=SURE if sees else 0.0,
                most=1.0 if sees else 2 / LETTERS,
                may_rise=sees and short,
            )
        )
    return made
