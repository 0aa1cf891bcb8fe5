"""How many steps fit into some minutes: a few are taken to see, and undone, before training begins,
and the number is planned again from the run's own pace once a part of the time has passed.

Only steady steps count: the first ones allocate memory, compile kernels and capture CUDA graphs.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from regard.data.corpus import Corpus
from regard.data.sample import sample
from regard.recipe import TrainRecipe
from regard.run import weights

if TYPE_CHECKING:
    from regard.train.loop import Loop
    from regard.train.trainer import Trainer

WARMING = {"cpu": 1, "cuda": 3}  # steps taken before any is timed
TIMED = 2  # steps timed at least
STEADY = 2.0  # a step that takes so many times the fastest one is not yet steady
UNSTEADY = 3.0  # steps that take so many times the lower quartile are left out
PATIENCE = 4.0  # times the time for calibration that steps may take to become steady
TOKENS = 16384  # of training that are scored to time a validation; on a GPU ...
MANY_TOKENS = 65536  # ... so many
SAVING, CLOSING = 0.05, 0.5  # seconds set aside for each checkpoint, and for intervals and reports
CLOSING_SHARE = 0.02  # of the time, likewise
TRANSLATING_SHARE = 0.1  # of the time, for translating held-out sentences
REPLANNED = (0.1, 0.4, 0.8)  # shares of the time left after which the steps are planned again ...
SEEN = 3  # ... from so many steady steps, at least
OVER, OVER_SECONDS = 0.03, 2.0  # how far the time may be exceeded before training ends where it is
FINAL_TOKENS = 1 << 16  # of each held-out split are always measured at the end ...
FINAL_SHARE = 0.1  # ... or this share of the tokens trained on, about 7% of the time ...
FINAL_TIME = 0.07  # ... but not for longer than this share of the time there is, each


@dataclass
class Clock:
    """The time a run may take: `seconds` from `began` (time.monotonic) on."""

    began: float
    seconds: float
    marks: list[float] = field(default_factory=list)  # when the steps are planned again

    @property
    def left(self) -> float:
        """Seconds until the time is over; negative afterwards."""
        return self.began + self.seconds - time.monotonic()

    @property
    def over(self) -> bool:
        """Has the time passed, and a little more?"""
        return self.left < -OVER * self.seconds - OVER_SECONDS

    def start(self) -> None:
        """Training begins: set the marks in the time that is left."""
        now, left = time.monotonic(), max(0.0, self.left)
        self.marks = [now + share * left for share in REPLANNED]

    def passes_mark(self) -> bool:
        """Is it time to plan again? True once for each mark."""
        passed = bool(self.marks) and time.monotonic() >= self.marks[0]
        self.marks = self.marks[passed:]
        return passed


def final_parts(
    recipe: TrainRecipe, corpus: Corpus, steps: int, most: float = math.inf
) -> dict[str, int]:
    """How many tokens of each held-out split are measured when training ends, at most.

    Of labelled records, the split that is reported is measured whole, since models are compared by
    their predictions for all of it, unless it has more than `most` tokens.
    """
    parts = {}
    usual = max(FINAL_TOKENS, round(steps * recipe.batch_tokens * FINAL_SHARE))
    for name in ("valid", "test"):
        shard = corpus.side(name)
        if shard is not None:
            reported = name == "test" or corpus.test is None
            wanted = most if reported and corpus.targets is not None else min(usual, most)
            parts[name] = int(min(wanted, shard.tokens))
    return parts


@dataclass(frozen=True)
class Pace:
    """What a step and a scored token take, in seconds, and so a run."""

    loop: Loop
    per_step: float
    per_token: float

    def cost(self, steps: int, done: int = 0) -> float:
        """Seconds of a run of so many steps with all that is measured and saved, after `done`."""
        loop = self.loop
        corpus, size = loop.corpus, loop.world.size
        every, part = loop.validations(steps)
        evaluations = -(-steps // every) - done // every
        validated = evaluations * min(part, corpus.valid.tokens) if corpus.valid else 0
        final = sum(loop.final_parts(steps, self).values())
        # language models read each token twice at the end; the first process alone does
        scored = validated / size + (1 if corpus.targets else 2) * final
        return (steps - done) * self.per_step + scored * self.per_token + SAVING * evaluations

    def observed(self, steps: list[float], tokens: list[float]) -> Pace:
        """The pace of a run that is under way: the mean of its steady `steps`, and the median of
        what a token took in its validations and in calibration.
        """
        per_token = sorted([*tokens, self.per_token / self.loop.world.size])[len(tokens) // 2]
        return replace(
            self, per_step=steady_mean(steps), per_token=per_token * self.loop.world.size
        )

    def measurable(self, clock: Clock) -> float:
        """How many tokens of each held-out split the end of a run has time for."""
        return max(FINAL_TOKENS / 8, FINAL_TIME * clock.seconds / max(self.per_token, 1e-12))

    def closing(self, seconds: float) -> float:
        """Seconds set aside for what comes after all measurements."""
        corpus = self.loop.corpus
        translates = corpus.source_tokenizer is not None and corpus.targets is None
        return CLOSING + (CLOSING_SHARE + translates * TRANSLATING_SHARE) * seconds

    def steps_within(self, clock: Clock, done: int = 0) -> int:
        """How many steps fit, of which some are done; one more at least."""
        seconds = clock.left - self.closing(clock.seconds)
        low, high = done + 1, 1 << 40  # cost(low) may be too much, cost(high) is
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.cost(middle, done) <= seconds
            low, high = (middle, high) if fits else (low, middle)
        return self.loop.world.share(low)


def measure(trainer: Trainer, seconds: float) -> Pace:
    """How fast a trainer is, on steps that take about `seconds`, or a few.

    They are undone: afterwards the trainer is what it was. All processes take them; the clock of
    the first one counts.
    """
    before = {name: value.clone() for name, value in weights(trainer.model).items()}
    planned = trainer.steps
    trainer.plan(1_000_000)
    trainer.model.train()
    warming = WARMING.get(trainer.device.type, 1)
    for step in range(warming):
        trainer.take_step(step)
    pace = Pace(trainer, steady_step(trainer, warming, seconds), seconds_per_token(trainer))
    trainer.model.load_state_dict(before, strict=False)
    trainer.stepper.optimizer.forget()
    trainer.plan(planned)
    return pace


def steady_step(trainer: Trainer, first: int, seconds: float) -> float:
    """Mean seconds of a step, from step `first` on, once steps take about the same time."""
    world, times = trainer.world, list[float]()
    began = time.monotonic()

    def enough() -> bool:
        spent = time.monotonic() - began
        if len(times) < TIMED or spent < seconds:
            return False
        return max(times[-TIMED:]) <= STEADY * min(times) or spent > PATIENCE * seconds

    steady: list[float] = []
    while not world.share(enough()):
        start = time.monotonic()
        trainer.take_step(first + len(times))
        times.append(time.monotonic() - start)
        steady += times[-1:] if trainer.steady else []
    return steady_mean(steady or times)


def steady_mean(times: list[float]) -> float:
    """The mean of what is not far above the rest: steps that met a new shape, and captured or
    compiled it, are no measure of those to come.
    """
    usual = sorted(times)[len(times) // 4]
    steady = [taken for taken in times if taken <= UNSTEADY * usual]
    return sum(steady) / len(steady)


def seconds_per_token(trainer: Trainer) -> float:
    """How long scoring a token takes, once whatever a GPU needs for it is compiled."""
    train, on_gpu = trainer.corpus.train, trainer.device.type == "cuda"
    most = MANY_TOKENS if on_gpu else min(TOKENS, 2 * trainer.recipe.batch_tokens)
    part = sample(train, most, trainer.recipe.seed, block=trainer.block)
    if on_gpu:
        trainer.cost(part)
    start = time.monotonic()
    trainer.cost(part)
    return (time.monotonic() - start) * trainer.world.size / part.tokens
