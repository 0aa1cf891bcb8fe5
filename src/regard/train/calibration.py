"""How many steps fit into some minutes: a few are taken to see, and undone."""

from __future__ import annotations

import time

from regard.run import weights
from regard.train.loop import EVALUATIONS, Trainer, final_tokens, validation_tokens
from regard.train.validation import BATCH_TOKENS, beginning

WARMING = 3  # steps taken before any is timed
SAVING, CLOSING = 0.05, 0.5  # seconds set aside for each checkpoint, and for intervals and reports


def calibrate(trainer: Trainer, seconds: float) -> int:
    """How many steps fit into `seconds` with all that is measured and saved.

    A few steps are taken to see, and undone: afterwards the trainer is what it was. All processes
    take them; the clock of the first one counts.
    """
    world = trainer.world
    before = {name: value.clone() for name, value in weights(trainer.model).items()}
    trainer.plan(1_000_000)
    trainer.model.train()
    for step in range(WARMING):  # slow: memory is taken, kernels are chosen, work is captured
        trainer.take_step(step)
    times: list[float] = []
    began = time.monotonic()
    while world.share(
        len(times) < 3 or (time.monotonic() - began < 0.03 * seconds and len(times) < 50)
    ):
        start = time.monotonic()
        trainer.take_step(len(times) + WARMING)
        times.append(time.monotonic() - start)
    per_step = sorted(times)[len(times) // 2]
    shards = [shard for shard in (trainer.corpus.valid, trainer.corpus.test) if shard is not None]
    start, part = time.monotonic(), beginning(trainer.corpus.train, 2 * BATCH_TOKENS)
    trainer.cost(part)
    per_token = (time.monotonic() - start) * world.size / part.tokens

    def cost(steps: int) -> float:
        evaluations = -(-steps // (trainer.recipe.eval_every or max(1, steps // EVALUATIONS)))
        part = validation_tokens(trainer.recipe, steps)
        validated = (
            evaluations * min(part, trainer.corpus.valid.tokens) if trainer.corpus.valid else 0
        )
        final = sum(min(final_tokens(trainer.recipe, steps), shard.tokens) for shard in shards)
        scored = validated / world.size + 2 * final  # the first process measures the end alone
        return steps * per_step + scored * per_token + SAVING * evaluations

    low, high = 1, 1 << 40  # cost(low) may be too much, cost(high) is
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= seconds - CLOSING else (low, middle)
    trainer.model.load_state_dict(before, strict=False)
    trainer.stepper.optimizer.forget()
    return world.share(low)
