"""Training word vectors: a step reads a stretch of the text, in order.

A step is split into `model.shares` parts that are trained in parallel, each on a copy of both
matrices; at its end the changes of the copies are merged. The result depends on the seed and the
number of parts, but not on the number or the speed of threads (unlike Hogwild: Niu et al. 2011,
arXiv:1106.5730).

The sum of the changes is right for rare words; of frequent words, each copy goes most of the way to
the same point, and the sum would overshoot. If each of the n updates of a word in a part closes a
share a of the gap to its target, one part closes 1 - q of it, q = (1 - a)^n, and P parts one after
the other would close 1 - q^P. So the mean change is multiplied by (1 - q^P) / (1 - q), which is
nearly P if n is small and nearly 1 if n is large.
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
from regard.errors import UserError
from regard.evaluation.language_modeling import MeanLoss, mean_loss
from regard.models.word2vec import UNIT, Word2Vec, build_vocabulary, load_kernels
from regard.recipe import Recipe
from regard.run import weights
from regard.training.distributed import ALONE
from regard.training.loop import EVALUATIONS, SingleLoop, seed_of
from regard.training.optimizer import factor
from regard.training.progress import Reporter

CURVATURE = 0.25  # of the logistic loss at 0, its maximum: an update closes about rate · CURVATURE
OVERHEAD = 1.1  # time with validating and saving, relative to the steps alone
TIMED = 2.0  # seconds of steps that are timed

Floats = NDArray[np.float64]


class ThreadCopies:
    """A copy of both matrices for each part of a step; `read` trains one step."""

    def __init__(self, model: Word2Vec, tokens: int) -> None:
        c = model.config
        self.model, self.tokens = model, -(-tokens // c.shares)
        self.options, self.tables = model.window_options(), model.sampling_tables()
        self.base = model.weights()
        self.changed = np.zeros((2, c.shares, c.n_words), np.uint8)
        self.parts = [self.base] if c.shares == 1 else self._copies()
        self.scratch = [model.scratch(self.tokens) for _ in range(c.shares)]
        self.pool = ThreadPoolExecutor(min(c.shares, torch.get_num_threads()))
        self.updates = count_updates(model, self.tables.keep, self.tokens)
        self.read(np.zeros(0, np.int32), 0.0, [0] * c.shares)  # compiles the kernels

    def _copies(self) -> list[Any]:
        shares = self.model.config.shares
        self.copies = [np.stack([matrix] * shares) for matrix in self.base[:2]]  # (P, R, D)
        return [
            load_kernels().Weights(*(m[p] for m in self.copies), *self.changed[:, p])
            for p in range(shares)
        ]

    def refresh(self) -> None:
        """Copy the matrices of the model again."""
        if len(self.parts) > 1:
            for copies, matrix in zip(self.copies, self.base[:2], strict=True):
                copies[:] = matrix

    def read(self, ids: NDArray[Any], rate: float, seeds: list[int]) -> tuple[float, int]:
        """Train on a stretch of the text; return the sum of the losses and their number."""
        size = max(1, -(-len(ids) // len(self.parts)))

        def train_part(p: int) -> tuple[float, int]:
            part = ids[p * size : (p + 1) * size].astype(np.int32)  # one type, compiled once
            more = (self.tables, self.scratch[p], self.options, np.float32(rate))
            loss: tuple[float, int] = load_kernels().train_tokens(
                part, self.parts[p], *more, np.uint64(seeds[p])
            )
            return loss

        losses = list(self.pool.map(train_part, range(len(self.parts))))
        if len(self.parts) > 1:
            self._merge(rate, size / self.tokens)
        return math.fsum(loss for loss, _ in losses), sum(count for _, count in losses)

    def _merge(self, rate: float, share: float) -> None:
        threads = len(self.scratch)
        borders = np.linspace(0, self.model.config.n_words, threads + 1).astype(np.int64)
        for i, matrix in enumerate(self.base[:2]):
            gain = gains(share * self.updates[i], rate, len(self.parts)).astype(np.float32)
            tables = (matrix, self.copies[i], self.changed[i], gain)
            rows = pairwise(borders)
            for work in [self.pool.submit(load_kernels().merge, *tables, *ends) for ends in rows]:
                work.result()


def count_updates(model: Word2Vec, keep: NDArray[np.float32], tokens: int) -> tuple[Floats, Floats]:
    """Return the expected updates (R,) of each input and output vector in a number of tokens."""
    c = model.config
    counts = model.counts.double().numpy()
    read = counts * keep * (tokens / max(1.0, counts.sum()))
    context = c.window + 1.0  # words around one, on average
    sampled = c.negatives * model.noise() if c.negatives else read / read.sum()
    times = 1.0 if model.mean else context  # with a mean, all words of a context share one update
    return times * read, times * (read + read.sum() * sampled)


def gains(updates: Floats, rate: float, shares: int) -> Floats:
    """Return the factors (R,) of the summed changes of the copies, as explained above."""
    q = (1 - min(rate * CURVATURE, 0.5)) ** updates
    rare = q > 1 - 1e-6
    return np.asarray(np.where(rare, 1.0, (1 - q**shares) / np.where(rare, 1, 1 - q) / shares))


class NoState:
    """The state of plain gradient descent: none."""

    def tensors(self) -> dict[str, Tensor]:
        return {"nothing": torch.zeros(1)}  # a file of tensors cannot be empty

    def load(self, tensors: dict[str, Tensor]) -> None:
        pass


class Word2VecLoop(SingleLoop):
    """Train word vectors.

    The last vectors are stored, not those of the least validation loss: that loss has few rare
    words, which still improve.
    """

    model: Word2Vec

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: ForbiddenTransitions | None = None,
    ) -> None:
        model = untrained(recipe, corpus)
        super().__init__(model, corpus, recipe.train, run, reporter, forbidden=None, world=ALONE)
        self.optimizer = NoState()
        self.per_epoch = -(-corpus.train.tokens // recipe.train.batch_tokens)
        self.copies = ThreadCopies(model, min(recipe.train.batch_tokens, corpus.train.tokens))
        self.read = 0  # tokens of the last step
        self.plan(recipe.train.steps)

    def plan(self, steps: int) -> None:
        """Set the number of steps; log every epoch, and validate every one or every few."""
        super().plan(steps)
        epochs = -(-steps // self.per_epoch)
        self.log_every = self.per_epoch
        self.eval_every = self.recipe.eval_every or self.per_epoch * -(-epochs // EVALUATIONS)
        self.checkpoint_every = self.recipe.checkpoint_every or self.eval_every

    def take_step(self, step: int) -> tuple[float, int]:
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
        self.read, self.rate = len(ids), rate
        return loss, max(1, predictions)

    def step_values(self) -> dict[str, float]:
        return {"learning_rate": self.rate}

    def count_read(self, symbols: int) -> int:
        """Return the words that were read, not the predictions."""
        return self.read

    @property
    def block(self) -> int:
        return UNIT

    def cost(self, shard: Shard, stop: Any = bool) -> MeanLoss:
        losses = self.model.losses(shard)
        mean = mean_loss(losses[:, 0], losses[:, 1])
        return mean if losses[:, 1].any() else MeanLoss(math.nan, None)

    def better(self, value: float | None) -> bool:
        return True  # the last vectors are stored

    def _restore(self) -> bool:
        restored = super()._restore()
        self.copies.refresh()
        return restored

    def run(self) -> str:
        try:
            return super().run()
        finally:
            self.copies.pool.shutdown()

    def within(self, seconds: float) -> int:
        """Return the steps of the epochs of the recipe, or of those that fit, by timing a few."""
        if self.model.config.epochs:
            return int(self.model.config.epochs * self.per_epoch)
        before = {name: value.clone() for name, value in weights(self.model).items()}
        self.plan(1 << 30)
        self.take_step(0)  # slow: compiles, and reads from the disk
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
        text, symbols = int(self.model.counts.sum()), self.corpus.train.symbols
        return (
            f"vectors of {self.model.config.n_words:,} words, which are {text:,} of {symbols:,} "
            f"symbols, by {self.steps / self.per_epoch:.4g} passes"
        )

    def facts(self) -> dict[str, Any]:
        epochs = round(self.progress.step / self.per_epoch, 3)
        return super().facts() | {"words": self.model.config.n_words, "epochs": epochs}


def untrained(recipe: Recipe, corpus: Corpus) -> Word2Vec:
    """Return the untrained model of a recipe, with the vocabulary of the data."""
    vocabulary = build_vocabulary(corpus.train, corpus.tokenizer, recipe.model.config.min_count)
    config = dataclasses.replace(recipe.model.config, n_words=len(vocabulary.counts))
    model: Word2Vec = recipe.family(corpus.tokenizer.vocab_size, config)
    model.set_vocabulary(vocabulary)
    return model
