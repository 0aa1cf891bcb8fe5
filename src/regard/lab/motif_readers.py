"""Models that are asked whether two motifs agree: each learns from examples and becomes a judge.

Counting models and the hidden Markov model are generative: one of each label, and the label under
which a sequence is more probable. They are fitted afresh for each distance, and the motif models
are even told where the pair begins, since they know no other way to find it. Neural models read
the whole sequence and are asked for the label; one model learns all distances together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import Batch
from regard.lab.motif_pairs import DIFFERENT, SAME, VOCABULARY, Pairs, draw, length_of
from regard.lab.practice import pass_over, practise
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.language_model import IGNORE
from regard.models.motifs import MotifClassifier
from regard.models.sizing import sized
from regard.recipe import TrainRecipe
from regard.train.loop import seed_of

EXAMPLES, SCHOOL = 0, 1  # streams of random numbers: for counting models, for neural ones
GROWING = 0.6  # of the steps pass until the longest distance is met
CHUNK = 250  # sequences judged at once
COUNTING = 10.0  # letters the hidden Markov model counts while a network learns one

Judge = Callable[[Pairs, int], NDArray[np.bool_]]  # sequences and their distance to labels
Told = Callable[[float], None]  # hears how many letters have been read


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """What there is to learn from, the same for every model of a kind."""

    distances: Sequence[int]
    steps: int  # of neural models
    batch: int = 32  # sequences in a step
    examples: int = 1000  # sequences of each distance, for those that count
    passes: int = 20  # of expectation maximisation, at most
    parameters: int = 60_000  # of every neural model, to a tenth

    def at(self, step: int) -> int:
        """The distance of a step: each of those met so far in turn, the longest being met last."""
        many = len(self.distances)
        met = min(many, 1 + int(many * step / (GROWING * self.steps)))
        return self.distances[step % met]

    @property
    def letters(self) -> int:
        """That a neural model reads."""
        return sum(self.batch * length_of(self.at(step)) for step in range(self.steps))

    @property
    def recipe(self) -> TrainRecipe:
        """The trainer's own defaults, on the CPU."""
        return TrainRecipe(steps=self.steps, device="cpu", compile="off")


def random_of(seed: int, *stream: int) -> np.random.Generator:
    """Random numbers that depend on nothing else."""
    return np.random.default_rng(seed_of(seed, *stream))


@dataclass(frozen=True)
class MotifReader:
    """A motif of each label, of some order; order 0 is a weight matrix."""

    order: int

    def cost(self, lessons: Lessons) -> float:
        """In letters read."""
        return 0.0

    def learn(self, lessons: Lessons, seed: int, told: Told) -> Judge:
        """One classifier for each distance, told where the pair begins."""
        fitted = {}
        for distance in lessons.distances:
            pairs = draw(distance, lessons.examples, random_of(seed, EXAMPLES, distance))
            fitted[distance] = MotifClassifier(self.order).fit(pairs.aligned, pairs.labels.tolist())
        return lambda pairs, distance: np.array(fitted[distance].predict(pairs.aligned))


@dataclass(frozen=True)
class HiddenReader:
    """A hidden Markov model of each label."""

    states: int

    def cost(self, lessons: Lessons) -> float:
        """In letters read."""
        once = sum(lessons.examples * length_of(distance) for distance in lessons.distances)
        return lessons.passes * once / COUNTING

    def learn(self, lessons: Lessons, seed: int, told: Told) -> Judge:
        """Two models for each distance, by expectation maximisation."""
        fitted = {}
        for distance in lessons.distances:
            pairs = draw(distance, lessons.examples, random_of(seed, EXAMPLES, distance))
            fitted[distance] = [self.fit(pairs, label, lessons, seed, told) for label in (0, 1)]

        def judge(pairs: Pairs, distance: int) -> NDArray[np.bool_]:
            ids = torch.from_numpy(pairs.ids)
            targets = torch.cat([ids[:, 1:], ids.new_full((len(ids), 1), IGNORE)], dim=1)
            logs = [model.score(ids, targets).double().sum(1) for model in fitted[distance]]
            return np.asarray((logs[1] > logs[0]).numpy())

        return judge

    def fit(
        self, pairs: Pairs, label: int, lessons: Lessons, seed: int, told: Told
    ) -> HiddenMarkov:
        """The model of one label."""
        shard = pairs.shard(bool(label))
        config = HiddenMarkovConfig(n_states=self.states, max_len=pairs.ids.shape[1])
        heard = partial(told, shard.tokens / COUNTING)
        return pass_over(shard, config, lessons.passes, seed_of(seed, label), heard)


@cache
def shape_of(name: str, wanted: int, max_len: int) -> Any:
    """A family's configuration with so many parameters; looking for it takes a while."""
    return sized(name, wanted, VOCABULARY, n_layers=2, max_len=max_len)


@dataclass(frozen=True)
class NeuralReader:
    """A neural language model that is asked for the label alone.

    `sees` is the context a convolution is as deep as; `changes` replace fields of the family's
    configuration.
    """

    family: str
    sees: int = 0
    changes: tuple[tuple[str, Any], ...] = ()

    def cost(self, lessons: Lessons) -> float:
        """In letters read."""
        return lessons.letters

    def config(self, lessons: Lessons) -> Any:
        """Of the size that all have."""
        longest = length_of(max(lessons.distances)) + 2
        config = shape_of(self.family, lessons.parameters, self.sees or longest)
        return dataclasses.replace(config, max_len=longest, **dict(self.changes))

    def learn(self, lessons: Lessons, seed: int, told: Told) -> Judge:
        """One model for all distances, on sequences it never sees twice."""

        def batch_of(step: int) -> Batch:
            return draw(lessons.at(step), lessons.batch, random_of(seed, SCHOOL, step)).batch()

        recipe = dataclasses.replace(lessons.recipe, seed=seed)
        model = practise(
            self.family,
            VOCABULARY,
            self.config(lessons),
            recipe,
            batch_of,
            lambda batch: told(batch.ids.numel()),
        )

        def odds(ids: Tensor) -> Tensor:
            logits: Tensor = model.head(model(ids)[:, -1])  # (B, V), after the question
            return logits[:, SAME] - logits[:, DIFFERENT]

        def judge(pairs: Pairs, distance: int) -> NDArray[np.bool_]:
            with torch.no_grad():
                parts = [odds(ids) for ids in torch.from_numpy(pairs.ids).split(CHUNK)]
            return np.asarray((torch.cat(parts) > 0).numpy())

        return judge


Reader = MotifReader | HiddenReader | NeuralReader
