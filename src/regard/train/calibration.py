"""How long steps take, and how many fit into some minutes: a few are taken to see, and undone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from regard.run import weights
from regard.train.loop import EVALUATIONS, final_tokens, validation_tokens
from regard.train.trainer import Trainer
from regard.train.validation import BATCH_TOKENS, beginning

WARMING = 3  # steps taken before any is timed
SAVING, CLOSING = 0.05, 0.5  # seconds set aside for each checkpoint, and for intervals and reports


@dataclass(frozen=True)
class Pace:
    """What a step and a scored token take, in seconds, and so a run."""

    trainer: Trainer
    per_step: float
    per_token: float

    def cost(self, steps: int) -> float:
        """Seconds of so many steps with all that is measured and saved."""
        trainer, recipe = self.trainer, self.trainer.recipe
        corpus, size = trainer.corpus, trainer.world.size
        evaluations = -(-steps // (recipe.eval_every or max(1, steps // EVALUATIONS)))
        part = validation_tokens(recipe, steps)
        validated = evaluations * min(part, corpus.valid.tokens) if corpus.valid else 0
        shards = [shard for shard in (corpus.valid, corpus.test) if shard is not None]
        final = sum(min(final_tokens(recipe, steps), shard.tokens) for shard in shards)
        scored = validated / size + 2 * final  # the first process measures the end alone
        return steps * self.per_step + scored * self.per_token + SAVING * evaluations

    def steps_within(self, seconds: float) -> int:
        """How many steps fit, one at least."""
        low, high = 1, 1 << 40  # cost(low) may be too much, cost(high) is
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.cost(middle) <= seconds - CLOSING
            low, high = (middle, high) if fits else (low, middle)
        return self.trainer.world.share(low)


def measure(trainer: Trainer, seconds: float, *, warming: int = WARMING) -> Pace:
    """How fast a trainer is, on a few steps: at least three, and as many as fit into `seconds`.

    They are undone: afterwards the trainer is what it was. All processes take them; the clock of
    the first one counts.
    """
    world = trainer.world
    before = {name: value.clone() for name, value in weights(trainer.model).items()}
    planned = trainer.steps
    trainer.plan(1_000_000)
    trainer.model.train()
    for step in range(warming):  # slow: memory is taken, kernels are chosen, work is captured
        trainer.take_step(step)
    times: list[float] = []
    began = time.monotonic()
    while world.share(len(times) < 3 or (time.monotonic() - began < seconds and len(times) < 50)):
        start = time.monotonic()
        trainer.take_step(len(times) + warming)
        times.append(time.monotonic() - start)
    per_step = sorted(times)[len(times) // 2]
    start, part = time.monotonic(), beginning(trainer.corpus.train, 2 * BATCH_TOKENS)
    trainer.cost(part)
    per_token = (time.monotonic() - start) * world.size / part.tokens
    trainer.model.load_state_dict(before, strict=False)
    trainer.stepper.optimizer.forget()
    trainer.plan(planned)
    return Pace(trainer, per_step, per_token)
