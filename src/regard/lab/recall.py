"""Sequences that ask for what was said before: associative recall and induction.

Recall (Ba et al. 2016, arXiv:1610.06258; as a test of mixers Poli et al. 2023, arXiv:2302.10866):
pairs of a key and its value, in every sequence another value for each key; at the end a key, whose
value must be named. Since keys are said over and over, the last time was never long ago; in *far*
recall, which is ours, the key asked for is said in the first quarter of the sequence alone. So it
is in induction (Olsson et al. 2022, arXiv:2209.11895): random letters, a mark and some letter after
it; at the end the mark, after which that letter must be named.

Who recalls what was said long ago? Associative recall and induction, against the length.

Deck 001 ends with mixers that cost less than attention; what do they lose? Every mixer has two
layers and the same number of parameters, learns sequences that grow, and is then asked about new
ones at each length. The tasks are in `recall_tasks`; in two of them what is asked for stands in the
first quarter, so that a window of r, which two layers carry 2 (r - 1) positions, must fail where
that is too far.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.lab.mini_trainer import practise
from regard.lab.result import ABOVE, Claim, Options, Result, Share, less
from regard.look.page import Heatmap, Lines, Table, Text
from regard.models.language_model import NeuralLanguageModel
from regard.models.parameter_matching import sized
from regard.recipe import TrainRecipe
from regard.training.loop import seed_of

VOCABULARY = 30
KEYS = 14
VALUES = 15  # the letters KEYS, KEYS + 1, …
MARK = KEYS + VALUES
ALSO = 8  # questions on the way to a far one, at most: more would drown the last
RECALL, FAR, INDUCTION = "recall", "far recall", "induction"
TASKS = (RECALL, FAR, INDUCTION)


@dataclass(frozen=True)
class Lesson:
    """So many sequences of one task and length."""

    task: str  # of TASKS
    length: int  # positions, the question among them
    many: int

    def draw(self, random: np.random.Generator) -> Batch:
        """Sequences and what is asked: the last answer, and on the way those of keys that were said
        before, of far recall some.
        """
        if self.task == INDUCTION:
            return induction(self.length, self.many, random)
        return recall_batch(self.length, self.many, random, far=self.task == FAR)


def recall_batch(length: int, many: int, random: np.random.Generator, *, far: bool) -> Batch:
    """Pairs, then a key that was said among them; if far, in the first quarter, there as often as
    others and at least once, and not again.
    """
    pairs = (length - 1) // 2
    rows, early = np.arange(many), max(1, pairs // 4) if far else pairs
    values = KEYS + random.integers(0, VALUES, (many, KEYS))  # of each key, in each sequence
    asked = random.integers(0, KEYS, many)
    keys = (asked[:, None] + random.integers(1, KEYS, (many, pairs))) % KEYS  # never the one asked
    keys[:, :early] = random.integers(0, KEYS, (many, early))
    keys[rows, random.integers(0, early, many)] = asked
    ids = np.empty((many, 2 * pairs + 1), np.int64)
    ids[:, 0:-1:2], ids[:, 1::2], ids[:, -1] = keys, values[rows[:, None], keys], asked
    targets = np.full_like(ids, IGNORE)
    known = said_before(keys)
    if far:
        known &= random.random(keys.shape) < ALSO / pairs
    targets[:, 0:-1:2] = np.where(known, ids[:, 1::2], IGNORE)
    targets[:, -1] = values[rows, asked]
    return batch(ids, targets)


def said_before(keys: np.ndarray) -> np.ndarray:
    """(N, P) where a key occurs again."""
    found = np.zeros(keys.shape, bool)
    for key in range(KEYS):
        here = keys == key
        found |= here & (np.cumsum(here, axis=1) > 1)
    return found


def induction(length: int, many: int, random: np.random.Generator) -> Batch:
    """Random letters and a mark in their first quarter; the mark again."""
    rows = np.arange(many)
    ids = random.integers(0, MARK, (many, length))
    at = random.integers(0, max(1, length // 4), many)
    ids[rows, at] = ids[:, -1] = MARK
    targets = np.full_like(ids, IGNORE)
    targets[:, -1] = ids[rows, at + 1]
    return batch(ids, targets)


def batch(ids: np.ndarray, targets: np.ndarray) -> Batch:
    """As the trainer takes it."""
    many = int((targets != IGNORE).sum())
    return Batch(
        torch.from_numpy(ids), torch.from_numpy(targets), None, np.arange(len(ids)), many, many
    )


LAYERS = 2
WINDOW = 16
FIRST = 16  # positions of the first lessons
GROWING = 0.6  # of the steps pass until the longest sequences are met
SURE, LOST = 0.95, 0.1  # a share that is right; what may be above chance by luck
CHANCE = {RECALL: 1 / VALUES, FAR: 1 / VALUES, INDUCTION: 1 / MARK}
ASKED = 1 << 15  # positions asked at once


@dataclass(frozen=True)
class Mixer:
    """A family, and what is changed of its configuration."""

    family: str
    changes: tuple[tuple[str, Any], ...] = ()


ATTENTION, WINDOWED, LINEAR = "attention", f"window of {WINDOW}", "linear"
HYENA, HYBRID, LSTM = "hyena", "hyena, then attention", "LSTM"
MIXERS: dict[str, Mixer] = {
    ATTENTION: Mixer("transformer"),
    WINDOWED: Mixer("transformer", (("window", WINDOW),)),
    LINEAR: Mixer("transformer", (("mixers", ("linear",)),)),
    HYENA: Mixer("hyena"),
    HYBRID: Mixer("transformer", (("mixers", ("hyena", "attention")),)),
    LSTM: Mixer("lstm"),
}
Found = Mapping[str, Mapping[tuple[str, int], Share]]  # by mixer, then task and length


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done, the same for every mixer."""

    lengths: Sequence[int]  # asked about
    steps: int
    mixers: Sequence[str] = tuple(MIXERS)
    tasks: Sequence[str] = TASKS  # learned, in turns; all are asked
    tokens: int = 2048  # of a step
    tested: int = 200  # sequences of each task and length
    parameters: int = 200_000
    lr: float = 0.02
    adam_lr: float = 0.003
    device: str = "cpu"

    @property
    def lessons(self) -> list[int]:
        """Lengths that are learned, each twice the one before."""
        found = [FIRST]
        while found[-1] < max(self.lengths):
            found.append(min(2 * found[-1], max(self.lengths)))
        return found

    def lesson(self, step: int) -> Lesson:
        """Tasks in turns; every other time the longest so far, else one that was met before."""
        met = int(len(self.lessons) * step / (GROWING * max(1, self.steps)))
        met = min(met, len(self.lessons) - 1)
        turn = step // len(self.tasks)
        at = met if turn % 2 == 0 else (turn // 2) % (met + 1)
        length = self.lessons[at]
        task = self.tasks[step % len(self.tasks)]
        return Lesson(task, length, max(1, self.tokens // length))

    @property
    def recipe(self) -> TrainRecipe:
        """The trainer's own defaults."""
        return TrainRecipe(
            steps=self.steps, device=self.device, compile="off", lr=self.lr, adam_lr=self.adam_lr
        )


LARGE = Plan(lengths=(64, 128, 256, 512), steps=1200)
SMALL = Plan(
    lengths=(32, 64), steps=200, mixers=(ATTENTION, WINDOWED, LSTM), tested=400, parameters=60_000
)


def config_of(mixer: Mixer, plan: Plan) -> Any:
    """The family's configuration at the common size, with what is the mixer's own."""
    longest = max(plan.lengths)
    return sized(
        mixer.family,
        plan.parameters,
        VOCABULARY,
        n_layers=LAYERS,
        max_len=longest,
        decided=dict(mixer.changes),
    )


def learn(
    name: str, plan: Plan, seed: int, told: Callable[[int], None] = lambda tokens: None
) -> NeuralLanguageModel:
    """A mixer's model after all lessons."""
    mixer = MIXERS[name]

    def batch_of(step: int) -> Batch:
        return plan.lesson(step).draw(np.random.default_rng(seed_of(seed, step)))

    recipe = dataclasses.replace(plan.recipe, seed=seed)
    heard = lambda batch: told(batch.ids.numel())  # noqa: E731
    return practise(mixer.family, VOCABULARY, config_of(mixer, plan), recipe, batch_of, heard)


def ask(model: NeuralLanguageModel, plan: Plan, seed: int) -> dict[tuple[str, int], Share]:
    """The last answers of new sequences, by task and length."""
    device, found = next(model.parameters()).device, {}
    for number, task in enumerate(TASKS):
        for n in plan.lengths:
            random = np.random.default_rng(seed_of(seed, -1, number, n))
            batch, right = Lesson(task, n, plan.tested).draw(random), 0
            parts = zip(
                *(x.split(max(1, ASKED // n)) for x in (batch.ids, batch.targets)), strict=True
            )
            with torch.no_grad():
                for ids, targets in parts:
                    answers = model.head(model(ids.to(device))[:, -1]).argmax(-1)
                    right += int((answers.cpu() == targets[:, -1]).sum())
            found[task, n] = Share(right, plan.tested)
    return found


def recall(options: Options) -> Result:
    """The experiment."""
    plan = SMALL if options.quick else LARGE
    tokens = sum(plan.lesson(s).many * plan.lesson(s).length for s in range(plan.steps))
    work = options.work(float(len(plan.mixers) * tokens))
    found = {}
    for name in plan.mixers:
        model = learn(name, plan, options.seed, partial(work.add, f"recall: {name}"))
        found[name] = ask(model, plan, options.seed)
    return report(found, plan, short=options.quick)


QUESTION = (
    "A key and its value are said; long after, the key is said again. Looking back at "
    "one position among many is what attention was made for. Which of the mixers that cost "
    "less can do it too, and up to which length?"
)
MADE = (
    "How it is made. A vocabulary of 30: in recall, pairs of one of 14 keys and one of 15 "
    "values, which differ from sequence to sequence, then one of the keys; in far recall, a key "
    "that was said in the first quarter alone; in induction, random letters, a mark in the first "
    "quarter and at the end, and what followed it must be named. Models have two layers and the "
    "same number of parameters to a tenth, learn the tasks in turns with the trainer's own "
    "settings, and meet longer sequences as they go; keys said again on the way are asked too "
    "while they learn, on the way to a far one some of them. Bands are 95% intervals by Wilson."
)


def report(found: Found, plan: Plan, *, short: bool = False) -> Result:
    """Tables, figures and claims."""
    return Result(
        title="Recalling what was said long ago",
        question=QUESTION,
        reading=(
            "Each line is a mixer: at the top it names the value of a key in sequences of that "
            "many positions; on the dashed line it guesses."
        ),
        readings=[
            "The same where the key was said in the first quarter alone.",
            "The same for what followed a mark.",
        ],
        claims=claims(found, plan, short=short),
        tables=[table(found, plan, task) for task in TASKS],
        figures=[figure(found, plan, task) for task in TASKS],
        panels=[overview(found, plan), Text(MADE)],
    )


def table(found: Found, plan: Plan, task: str) -> Table:
    """Right answers in percent."""
    rows = [[name, *(row[task, n].percent for n in plan.lengths)] for name, row in found.items()]
    columns = ["mixer", *(f"n = {n:,}" for n in plan.lengths)]
    return Table(columns, rows, title=f"{task}: answers that are right, in %")


def figure(found: Found, plan: Plan, task: str) -> Lines:
    """Accuracy against length."""
    xs = [float(n) for n in plan.lengths]
    shares = {name: [row[task, n] for n in plan.lengths] for name, row in found.items()}
    return Lines(
        [(name, xs, [share.value for share in row]) for name, row in shares.items()],
        x_label="n, positions",
        y_label="share of answers that are right",
        title=f"{task} by length",
        log_x=True,
        bands={
            name: ([s.interval[0] for s in row], [s.interval[1] for s in row])
            for name, row in shares.items()
        },
        x_ticks=xs,
        levels={"chance": CHANCE[task]},
    )


def overview(found: Found, plan: Plan) -> Heatmap:
    """All as a map."""
    columns = [(task, n) for task in TASKS for n in plan.lengths]
    values = np.array([[row[column].value for column in columns] for row in found.values()])
    names = [f"{task} {n}" for task, n in columns]
    return Heatmap(values, list(found), names, title="All tasks, lengths across", unit="share")


def claims(found: Found, plan: Plan, *, short: bool = False) -> list[Claim]:
    """Who recalls, and who cannot, after training or after a `short` one."""
    able = [name for name in (ATTENTION, HYBRID) if name in found]
    asked = [(name, task) for name in able for task in TASKS]
    if HYENA in found:
        asked += [(HYENA, task) for task in (RECALL, INDUCTION)]
    made = [sure(found[name], plan, name, task, short=short) for name, task in asked]
    made += [blind(found[WINDOWED], plan, task) for task in (FAR, INDUCTION)]
    longest = max(plan.lengths)
    for name in (LINEAR, LSTM):
        if name not in found:
            continue
        one, other = found[name][FAR, longest], found[ATTENTION][FAR, longest]
        made.append(
            Claim.within(
                f"{name} recalls less than attention",
                f"{FAR} at n = {longest:,}: a lower share",
                f"{one} against {other}",
                less(one, other),
                most=-ABOVE,
                may_fall=short,
            )
        )
    return made


def sure(
    row: Mapping[tuple[str, int], Share], plan: Plan, name: str, task: str, *, short: bool
) -> Claim:
    """Right nearly always, at every length; after a `short` training, more may be right in the
    end.
    """
    n = min(plan.lengths, key=lambda n: row[task, n].value)
    return Claim.within(
        f"{name}: {task} at every length",
        f"at least {SURE:.0%} right up to n = {max(plan.lengths):,}",
        f"{row[task, n]} at n = {n:,}, the lowest",
        row[task, n].interval,
        least=SURE,
        may_rise=short,
    )


def blind(row: Mapping[tuple[str, int], Share], plan: Plan, task: str) -> Claim:
    """At chance where what is asked lies further back than all layers reach."""
    reach = LAYERS * (WINDOW - 1)
    beyond = [n for n in plan.lengths if 3 * n // 4 - 2 > reach]
    name = f"{WINDOWED}: no {task} beyond its reach"
    stated = f"at most {LOST} above chance where it lies more than {reach} back"
    if not beyond:
        return Claim(name, stated, "no such length was tried", None)
    n = max(beyond, key=lambda n: row[task, n].value)
    most = CHANCE[task] + LOST
    measured = f"{row[task, n]} at n = {n:,}, the most"
    return Claim.within(name, stated, measured, row[task, n].interval, most=most)
