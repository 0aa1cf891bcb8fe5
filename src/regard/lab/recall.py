"""Which models recall a symbol from long ago? Associative recall and induction, against the length.

Looking back at one position among many is what attention was made for. Deck 001 ends with mixers
that cost less; which of them can do it too, and up to which length? Every mixer has two layers and
the same number of parameters to a tenth, learns the tasks in turns with the trainer's default
settings, and meets longer sequences as training goes on.

Recall (Ba et al. 2016, arXiv:1610.06258; as a test of mixers Poli et al. 2023, arXiv:2302.10866):
pairs of a key and its value, in every sequence another value for each key; at the end a key, whose
value must be predicted. Since keys are repeated, the last occurrence is never far back; in *far*
recall, which is ours, the last key occurs in the first quarter of the sequence alone. Keys that are
repeated before the end are targets too during training, in far recall some of them. The mark of
induction (Olsson et al. 2022, arXiv:2209.11895) occurs in the first quarter as well: random
letters, a mark and a letter after it; at the end the mark, after which that letter must be
predicted. In these two tasks a window of r, which two layers extend to 2 (r - 1) positions, must
fail where the first quarter is too far. Bands are 95% intervals by Wilson.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from regard.data.batching import IGNORE, Batch
from regard.lab.experiment import (
    ABOVE,
    LAYERS,
    Accuracies,
    Claim,
    OnProgress,
    Options,
    Proportion,
    Result,
    SizedModel,
    difference_interval,
    generator,
    last_symbol_accuracy,
    make_batch,
    train_model,
)
from regard.look.page import Heatmap
from regard.models.language_model import NeuralLanguageModel

VOCABULARY = 30
KEYS = 14
VALUES = 15  # the letters KEYS, KEYS + 1, …
MARK = KEYS + VALUES
EARLY_TARGETS = 8  # before a far one, at most: more would outweigh the last
RECALL, FAR, INDUCTION = "recall", "far recall", "induction"
CHANCE = {RECALL: 1 / VALUES, FAR: 1 / VALUES, INDUCTION: 1 / MARK}
WINDOW = 16
REACH = LAYERS * (WINDOW - 1)
FIRST = 16  # positions of the first sequences
GROWING = 0.6  # of the steps until the longest sequences are included
HIGH, SLACK = 0.95, 0.1  # a high accuracy; what may be above chance by luck
CHUNK = 1 << 15  # positions per forward pass

ATTENTION, WINDOWED, LINEAR = "attention", f"window of {WINDOW}", "linear"
HYENA, HYBRID, LSTM = "hyena", "hyena, then attention", "LSTM"
MIXERS = {
    ATTENTION: SizedModel(family="transformer"),
    WINDOWED: SizedModel(family="transformer", decided=(("window", WINDOW),)),
    LINEAR: SizedModel(family="transformer", decided=(("mixers", ("linear",)),)),
    HYENA: SizedModel(family="hyena"),
    HYBRID: SizedModel(family="transformer", decided=(("mixers", ("hyena", "attention")),)),
    LSTM: SizedModel(family="lstm"),
}
ByTask = Mapping[str, Accuracies]  # by mixer and length


def claims(by_task: ByTask, *, quick: bool = False) -> list[Claim]:
    pairs = [(name, task) for name in (ATTENTION, HYBRID) for task in TASKS]
    pairs += [(HYENA, RECALL), (HYENA, INDUCTION)]
    longest, far = max(by_task[FAR].columns), by_task[FAR].rows
    # the target lies further back than all layers of windows reach
    beyond = min((n for n in by_task[FAR].columns if 3 * n // 4 - 2 > REACH), default=longest + 1)
    candidates = [
        *(
            by_task[task].claim_high(f"{name}: {task} at every length", name, HIGH, quick=quick)
            for name, task in pairs
        ),
        *(
            by_task[task].claim_chance(
                f"{WINDOWED}: no {task} beyond its reach", WINDOWED, SLACK, beyond
            )
            for task in (FAR, INDUCTION)
        ),
        *(
            Claim.within(
                f"{name} recalls less than attention",
                f"{FAR} at n = {longest:,}: a lower share",
                difference_interval(far[name][longest], far[ATTENTION][longest]),
                f"{far[name][longest]} against {far[ATTENTION][longest]}",
                most=-ABOVE,
                may_fall=quick,
            )
            for name in (LINEAR, LSTM)
            if name in far
        ),
    ]
    return [claim for claim in candidates if claim is not None]


@dataclass(frozen=True)
class Lesson:
    task: str
    length: int  # positions, the last key or mark included
    n: int

    def draw(self, random: np.random.Generator) -> Batch:
        """Return the sequences; targets are the last value, and before it those of repeated keys
        (of far recall a few).
        """
        return TASKS[self.task](self.length, self.n, random)


def recall_batch(length: int, n: int, random: np.random.Generator, *, far: bool = False) -> Batch:
    """Return pairs, then one of their keys; if far, one that occurs in the first quarter only,
    there as often as others and at least once.
    """
    pairs = (length - 1) // 2
    rows, early = np.arange(n), max(1, pairs // 4) if far else pairs
    values = KEYS + random.integers(0, VALUES, (n, KEYS))  # of each key, in each sequence
    last = random.integers(0, KEYS, n)
    keys = (last[:, None] + random.integers(1, KEYS, (n, pairs))) % KEYS  # never the last one
    keys[:, :early] = random.integers(0, KEYS, (n, early))
    keys[rows, random.integers(0, early, n)] = last
    ids = np.empty((n, 2 * pairs + 1), np.int64)
    ids[:, 0:-1:2], ids[:, 1::2], ids[:, -1] = keys, values[rows[:, None], keys], last
    targets = np.full_like(ids, IGNORE)
    repeated = is_repeated(keys)
    if far:
        repeated &= random.random(keys.shape) < EARLY_TARGETS / pairs
    targets[:, 0:-1:2] = np.where(repeated, ids[:, 1::2], IGNORE)
    targets[:, -1] = values[rows, last]
    return make_batch(torch.from_numpy(ids), torch.from_numpy(targets))


def is_repeated(keys: np.ndarray) -> np.ndarray:
    """Return a mask (N, P) of the keys that occurred before."""
    mask = np.zeros(keys.shape, bool)
    for key in range(KEYS):
        equal = keys == key
        mask |= equal & (np.cumsum(equal, axis=1) > 1)
    return mask


def induction_batch(length: int, n: int, random: np.random.Generator) -> Batch:
    """Return random letters with a mark in their first quarter, then the mark again."""
    rows = np.arange(n)
    ids = random.integers(0, MARK, (n, length))
    marks = random.integers(0, max(1, length // 4), n)
    ids[rows, marks] = ids[:, -1] = MARK
    targets = np.full_like(ids, IGNORE)
    targets[:, -1] = ids[rows, marks + 1]
    return make_batch(torch.from_numpy(ids), torch.from_numpy(targets))


TASKS: dict[str, Callable[[int, int, np.random.Generator], Batch]] = {
    RECALL: recall_batch,
    FAR: partial(recall_batch, far=True),
    INDUCTION: induction_batch,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the experiment, the same for every mixer."""

    lengths: Sequence[int]  # of test sequences
    steps: int
    mixers: Sequence[str] = tuple(MIXERS)
    tasks: Sequence[str] = tuple(TASKS)  # learned, in turns; all are tested
    tokens: int = 2048  # of a step
    tested: int = 200  # sequences of each task and length
    parameters: int = 200_000
    lr: float = 0.02
    adam_lr: float = 0.003
    device: str = "cpu"

    @property
    def train_lengths(self) -> list[int]:
        """Lengths of training sequences, each twice the one before."""
        lengths = [FIRST]
        while lengths[-1] < max(self.lengths):
            lengths.append(min(2 * lengths[-1], max(self.lengths)))
        return lengths

    def lesson(self, step: int) -> Lesson:
        """Return the lesson of a step: tasks in turns; every other time the longest length so far,
        else one of those before.
        """
        longest = int(len(self.train_lengths) * step / (GROWING * max(1, self.steps)))
        longest = min(longest, len(self.train_lengths) - 1)
        turn = step // len(self.tasks)
        length = self.train_lengths[longest if turn % 2 == 0 else (turn // 2) % (longest + 1)]
        return Lesson(self.tasks[step % len(self.tasks)], length, max(1, self.tokens // length))

    @property
    def train_tokens(self) -> int:
        return sum(self.lesson(s).n * self.lesson(s).length for s in range(self.steps))


LARGE = Plan(lengths=(64, 128, 256, 512), steps=1200)
SMALL = Plan(
    lengths=(32, 64), steps=200, mixers=(ATTENTION, WINDOWED, LSTM), tested=400, parameters=60_000
)


def learn(
    name: str, plan: Plan, seed: int, on_progress: OnProgress = lambda positions: None
) -> NeuralLanguageModel:
    return train_model(
        MIXERS[name].builder(plan.parameters, VOCABULARY, max(plan.lengths)),
        lambda step: plan.lesson(step).draw(generator(seed, step)),
        plan.steps,
        seed,
        on_progress=on_progress,
        device=plan.device,
        lr=plan.lr,
        adam_lr=plan.adam_lr,
    )


def evaluate(
    model: NeuralLanguageModel, plan: Plan, seed: int
) -> dict[tuple[str, int], Proportion]:
    accuracies = {}
    for number, task in enumerate(TASKS):
        for n in plan.lengths:
            batch = Lesson(task, n, plan.tested).draw(generator(seed, -1, number, n))
            accuracies[task, n] = last_symbol_accuracy(model, batch, max(1, CHUNK // n))
    return accuracies


def learn_recall(
    name: str, plan: Plan, seed: int, on_progress: OnProgress
) -> list[tuple[str, int, Proportion]]:
    """Return the accuracy of a mixer for each task and length."""
    measured = evaluate(learn(name, plan, seed, on_progress), plan, seed)
    return [(task, n, share) for (task, n), share in measured.items()]


def recall(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    progress = options.progress(float(len(plan.mixers) * plan.train_tokens))
    rows = {}
    for name in plan.mixers:
        measured = options.part(
            f"recall {name} {options.seed}",
            plan,
            list[tuple[str, int, Proportion]],
            partial(
                learn_recall, name, plan, options.seed, partial(progress.add, f"recall: {name}")
            ),
        )
        rows[name] = {(task, n): share for task, n, share in measured}
    return report(rows, plan.lengths, quick=options.quick)


def report(
    rows: Mapping[str, Mapping[tuple[str, int], Proportion]],
    lengths: Sequence[int],
    *,
    quick: bool = False,
) -> Result:
    by_task = {
        task: Accuracies(
            {name: {n: row[task, n] for n in lengths} for name, row in rows.items()},
            CHANCE[task],
            axis="length",
        )
        for task in TASKS
    }
    return Result(
        title="Recalling a symbol from long ago",
        answer=by_task[next(iter(by_task))].answer("The value of a key, in {:,} positions"),
        question=__doc__ or "",
        reading=(
            "Each line is a mixer: at the top it predicts the value of a key in sequences of that "
            "many positions; on the dashed line it guesses."
        ),
        readings=[
            "The same where the key occurs in the first quarter alone.",
            "The same for the letter that followed a mark.",
        ],
        claims=claims(by_task, quick=quick),
        tables=[
            accuracies.table("n = {:,}", f"{task}: accuracy in %")
            for task, accuracies in by_task.items()
        ],
        figures=[
            accuracies.lines(f"{task} by length", ("n, positions", "accuracy"))
            for task, accuracies in by_task.items()
        ],
        panels=[
            Heatmap(
                np.array([[share.value for share in row.values()] for row in rows.values()]),
                list(rows),
                [f"{task} {n}" for task in TASKS for n in lengths],
                title="All tasks, lengths across",
                unit="accuracy",
            )
        ],
    )
