"""Training word vectors: the same loop as for gradients (`loop.Loop`), a step being a stretch of
the text, read in order.

A step is read in `model.shares` parts at the same time, each with a copy of both matrices of its
own; at its end the copies' changes are brought together. What is learned depends on the seed and on
how many parts there are, and not on how many threads read them, nor on how fast (unlike Hogwild:
Niu et al. 2011, arXiv:1106.5730).

To add the changes up is right for rare words, but frequent ones have each copy walk most of the way
to the same place, and the sum would go far past it. If each of a word's n updates in a part closes
a share a of the gap to where it is heading, one part closes 1 - q of it, q = (1 - a)^n, and P parts
one after the other would close 1 - q^P. So the mean change is taken (1 - q^P) / (1 - q) times:
nearly P times where n is small, nearly once where it is large.
"""

from __future__ import annotations

import dataclasses
import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.decoding.constraints import ForbiddenTransitions
from regard.errors import UsageError, UserError
from regard.models.word2vec import UNIT, Word2Vec, kernels, survey
from regard.recipe import Recipe
from regard.registry import family
from regard.run import weights
from regard.training.distributed import ALONE
from regard.training.em_loop import SingleLoop
from regard.training.loop import EVALUATIONS, seed_of
from regard.training.optimizer import factor
from regard.training.progress import Reporter
from regard.training.validation import MeanLoss, mean_loss

CURVATURE = 0.25  # the logistic loss's at 0, the steepest: an update closes about rate · CURVATURE
OVERHEAD = 1.1  # validating and saving, by the time of the steps alone
TIMED = 2.0  # seconds that steps are timed for

Floats = NDArray[np.float64]


class ThreadCopies:
    """Both matrices as several threads have them, each its own; `read` is one step."""

    def __init__(self, model: Word2Vec, tokens: int) -> None:
        c = model.config
        self.model, self.tokens = model, -(-tokens // c.shares)
        self.way, self.chances, self.base = model.way(), model.chances(), model.weights()
        self.changed = np.zeros((2, c.shares, c.n_words), np.uint8)
        self.held = [self.base] if c.shares == 1 else self._copies()
        self.room = [model.scratch(self.tokens) for _ in range(c.shares)]
        self.pool = ThreadPoolExecutor(min(c.shares, torch.get_num_threads()))
        self.often = updates(model, self.chances.keep, self.tokens)
        self.read(np.zeros(0, np.int32), 0.0, [0] * c.shares)  # compiled, once on a machine

    def _copies(self) -> list[Any]:
        shares = self.model.config.shares
        self.copies = [np.stack([matrix] * shares) for matrix in self.base[:2]]  # (P, R, D)
        return [
            kernels().Weights(*(m[p] for m in self.copies), *self.changed[:, p])
            for p in range(shares)
        ]

    def refresh(self) -> None:
        """Take the matrices as they are now."""
        if len(self.held) > 1:
            for copies, matrix in zip(self.copies, self.base[:2], strict=True):
                copies[:] = matrix

    def read(self, ids: NDArray[Any], rate: float, seeds: list[int]) -> tuple[float, int]:
        """Learn from a stretch of the text: the sum of the losses, and of how many predictions."""
        part = max(1, -(-len(ids) // len(self.held)))

        def learn(p: int) -> tuple[float, int]:
            own = ids[p * part : (p + 1) * part].astype(np.int32)  # one type, compiled once
            more = (self.chances, self.room[p], self.way, np.float32(rate), np.uint64(seeds[p]))
            found: tuple[float, int] = kernels().read(own, self.held[p], *more)
            return found

        found = list(self.pool.map(learn, range(len(self.held))))
        if len(self.held) > 1:
            self._merge(rate, part / self.tokens)
        return math.fsum(loss for loss, _ in found), sum(count for _, count in found)

    def _merge(self, rate: float, share: float) -> None:
        threads = len(self.room)
        borders = np.linspace(0, self.model.config.n_words, threads + 1).astype(np.int64)
        for which, matrix in enumerate(self.base[:2]):
            gain = gains(share * self.often[which], rate, len(self.held)).astype(np.float32)
            whole = (matrix, self.copies[which], self.changed[which], gain)
            ends = pairwise(borders)
            work = [self.pool.submit(kernels().merge, *whole, *part) for part in ends]
            for one in work:
                one.result()


def updates(model: Word2Vec, keep: NDArray[np.float32], tokens: int) -> tuple[Floats, Floats]:
    """(R,) how often each word's input and output vector is changed in so many tokens, about."""
    c = model.config
    counts = model.counts.double().numpy()
    read = counts * keep * (tokens / max(1.0, counts.sum()))
    around = c.window + 1.0  # words around one, on average
    drawn = c.negatives * model.noise() if c.negatives else read / read.sum()
    times = 1.0 if model.mean else around  # of a mean, each word has one part in so many
    return times * read, times * (read + read.sum() * drawn)


def gains(often: Floats, rate: float, shares: int) -> Floats:
    """(R,) by how much the sum of the copies' changes is taken; see above."""
    q = (1 - min(rate * CURVATURE, 0.5)) ** often
    near = q > 1 - 1e-6
    found: Floats = np.where(near, 1.0, (1 - q**shares) / np.where(near, 1, 1 - q) / shares)
    return found


class NoState:
    """What plain gradient descent remembers besides the weights."""

    def tensors(self) -> dict[str, Tensor]:
        """See loop.Memory; a file of tensors holds one at least."""
        return {"nothing": torch.zeros(1)}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """See loop.Memory."""


class Word2VecLoop(SingleLoop):
    """Fits word vectors.

    The last vectors are kept, and not those of the least held-out loss: rare words, of which that
    loss has few, go on finding their places.
    """

    model: Word2Vec
    figure, unit = "loss", "word"

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: ForbiddenTransitions | None = None,
    ) -> None:
        if forbidden is not None:
            raise UsageError(
                "train.forbid is for models that predict the next symbol, not for vectors"
            )
        model = untrained(recipe, corpus)
        super().__init__(model, corpus, recipe.train, run, reporter, forbidden=None, world=ALONE)
        self.optimizer = NoState()
        self.per_epoch = -(-corpus.train.tokens // recipe.train.batch_tokens)
        self.copies = ThreadCopies(model, min(recipe.train.batch_tokens, corpus.train.tokens))
        self.read = 0  # tokens of the last step
        self.plan(recipe.train.steps)

    def plan(self, steps: int) -> None:
        """So many steps; every pass over the text is logged, and validated, but not too often."""
        super().plan(steps)
        passes = -(-steps // self.per_epoch)
        self.log_every = self.per_epoch
        self.eval_every = self.recipe.eval_every or self.per_epoch * -(-passes // EVALUATIONS)
        self.checkpoint_every = self.recipe.checkpoint_every or self.eval_every

    def take_step(self, step: int) -> tuple[float, int]:
        """Read one stretch; its loss before, prediction by prediction."""
        train, tokens = self.recipe, self.recipe.batch_tokens
        first = step % self.per_epoch * tokens
        ids = self.corpus.train.ids[first : first + tokens]
        rate = train.lr * factor(train.schedule, step, self.steps, train.warmup)
        seeds = [seed_of(train.seed, step, p) for p in range(self.model.config.shares)]
        loss, predictions = self.copies.read(ids, rate, seeds)
        if not math.isfinite(loss):
            raise UserError(
                f"step {step}: the loss is not finite; training stopped. Try a lower train.lr, or "
                f"fewer model.shares than {self.model.config.shares}"
            )
        self.read = len(ids)
        return loss, max(1, predictions)

    def seen(self, symbols: int) -> int:
        """See Loop: words read, and not predictions."""
        return self.read

    @property
    def block(self) -> int:
        """See Loop."""
        return UNIT

    def cost(self, shard: Shard, stop: Any = bool) -> MeanLoss:
        """See Loop: the mean loss of a prediction."""
        losses = self.model.losses(shard)
        found = mean_loss(losses[:, 0], losses[:, 1])
        return found if losses[:, 1].any() else MeanLoss(math.nan, None)

    def better(self, value: float | None) -> bool:
        """See Loop: the last is kept."""
        return True

    def _restore(self) -> bool:
        restored = super()._restore()
        self.copies.refresh()
        return restored

    def run(self) -> str:
        """See Loop."""
        try:
            return super().run()
        finally:
            self.copies.pool.shutdown()

    def within(self, seconds: float) -> int:
        """See SingleLoop: the passes that the recipe asks for, or whole ones by the pace of a few
        steps.
        """
        if self.model.config.epochs:
            return self.model.config.epochs * self.per_epoch
        before = {name: value.clone() for name, value in weights(self.model).items()}
        self.plan(1 << 30)
        self.take_step(0)  # slow: compiled, or read from the disk
        times: list[float] = []
        began = time.monotonic()
        while len(times) < 3 or time.monotonic() - began < min(TIMED, 0.03 * seconds):
            start = time.monotonic()
            self.take_step(len(times))
            times.append(time.monotonic() - start)
        self.model.load_state_dict(before)
        self.copies.refresh()
        each = OVERHEAD * sorted(times)[len(times) // 2]
        return self.per_epoch * max(1, int(seconds / each / self.per_epoch))

    def intent(self) -> str:
        """See SingleLoop."""
        text, symbols = int(self.model.counts.sum()), self.corpus.train.symbols
        return (
            f"vectors of {self.model.config.n_words:,} words, which are {text:,} of {symbols:,} "
            f"symbols, by {self.steps / self.per_epoch:.4g} passes"
        )

    def facts(self) -> dict[str, Any]:
        """See Loop."""
        epochs = round(self.progress.step / self.per_epoch, 3)
        return super().facts() | {"words": self.model.config.n_words, "epochs": epochs}


def untrained(recipe: Recipe, corpus: Corpus) -> Word2Vec:
    """The model of a recipe, with the words of its data; torch's random state decides the rest."""
    vocabulary = survey(corpus.train, corpus.tokenizer, recipe.model.config.min_count)
    config = dataclasses.replace(recipe.model.config, n_words=len(vocabulary.counts))
    model: Word2Vec = family(recipe.model.name, "vectors")(corpus.tokenizer.vocab_size, config)
    model.take(vocabulary)
    return model
