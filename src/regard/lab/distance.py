"""Two related motifs, far apart: which models can still relate them?

Lecture 14 of "Bayesian Data Analysis and Machine Learning for Physical Sciences" says of Bayesian
Markov motifs (Siebert & Söding 2016) that they beat weight matrices but struggle with related
motifs that lie far apart, for which LSTMs were the older solution and attention is the newer one.

DNA of A and T contains a motif of G and C twice, each time as GGCC or as CCGG, the pair shifted at
random. The label says whether both are the same variant: the exclusive or of two coin tosses, so
that neither motif alone, nor the frequency of any letter, carries information about it. The motifs
are easy to find on purpose: distance is the question. It counts letters from the last of the first
motif to the first of the second. A model reads `<S> letters ?` and predicts the label that follows.

Motif models and hidden Markov models are generative: one model for each label, and the label under
which a sequence is more probable. They are fitted for each distance separately, and the motif
models also get the position of the pair, since they have no other way to find it. One neural model
learns all distances, shorter ones first; sizes, steps, batches and the trainer's settings are the
same for all, and every sequence is new. Intervals are over the test sequences of all seeds and do
not cover the variation between seeds, which the table seed by seed shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import IGNORE, Batch
from regard.data.shards import Shard
from regard.lab.experiment import (
    Accuracies,
    Claim,
    Ids,
    OnProgress,
    Options,
    Proportion,
    Result,
    SizedModel,
    difference_interval,
    fit_hmm,
    generator,
    last_symbol_batch,
    make_shard,
    train_model,
)
from regard.look.page import Facts, Sequences, Table
from regard.models import count_parameters
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.motifs import DNA, MotifClassifier
from regard.training.loop import seed_of

START, ASK, DIFFERENT, SAME = range(DNA.size, DNA.size + 4)  # after the ids of A, C, G, T
VOCABULARY = DNA.size + 4
BACKGROUND = DNA.encode("AT")
VARIANTS = np.stack([DNA.encode("GGCC"), DNA.encode("CCGG")])  # (2, W)
WIDTH = VARIANTS.shape[1]
SLACK = 8  # positions by which the pair is shifted at random

ORDER, STATES, WINDOW = 2, 12, 48
CNN_CONTEXT = 32  # letters of a convolution: five layers that double
CHANCE, TOLERANCE, HIGH, FALL = 0.5, 0.06, 0.95, 0.05  # the tolerances of the claims

MATRIX, MARKOV, HIDDEN = "weight matrix", f"Markov motif, order {ORDER}", f"HMM, {STATES} states"
CONVOLUTION, RECURRENT, HYENA = f"convolution over {CNN_CONTEXT}", "LSTM", "Hyena"
AXES = ("letters from one motif to the other", "accuracy on new sequences")
WINDOWED, FULL = f"attention over {WINDOW}", "full attention"


def claims(accuracies: Accuracies, sizes: Mapping[str, int], *, quick: bool = False) -> list[Claim]:
    high = partial(accuracies.claim_high, least=HIGH, quick=quick)
    chance = partial(accuracies.claim_chance, tolerance=TOLERANCE)
    in_field = CNN_CONTEXT - SLACK - 2 * WIDTH  # the pair, wherever shifted, and the question mark
    in_window = WINDOW - SLACK - WIDTH
    candidates = [
        chance("a weight matrix relates nothing", MATRIX, least=1),
        high("a Markov motif relates letters within its order", MARKOV, most=ORDER),
        chance("a Markov motif is blind beyond its order", MARKOV, least=ORDER + 1),
        chance("a hidden Markov model does not carry a motif along", HIDDEN, least=2 * WIDTH),
        high("a convolution relates what it sees", CONVOLUTION, most=in_field),
        chance("a convolution is blind beyond its receptive field", CONVOLUTION, least=CNN_CONTEXT),
        high("windowed attention relates what it sees", WINDOWED, most=in_window),
        chance("windowed attention is blind beyond layers × window", WINDOWED, least=2 * WINDOW),
        claim_falls(accuracies.rows.get(RECURRENT)),
        high("full attention relates motifs at every distance", FULL),
        claim_equal_sizes(sizes),
    ]
    return [claim for claim in candidates if claim is not None]


def claim_falls(row: Mapping[int, Proportion] | None) -> Claim | None:
    if row is None:
        return None
    first, last = min(row), max(row)
    return Claim.within(
        "the LSTM's accuracy falls with distance",
        f"accuracy lower by at least {FALL} at the longest distance than at the shortest",
        difference_interval(row[first], row[last]),
        f"{row[first]} at {first}, {row[last]} at {last}",
        least=FALL,
    )


def claim_equal_sizes(sizes: Mapping[str, int]) -> Claim | None:
    if not sizes:
        return None
    low, high = min(sizes.values()), max(sizes.values())
    name, stated = "the neural models are of one size", "within 10% of one another"
    return Claim(name, stated, f"{low:,} to {high:,}", high <= 1.1 * low)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Letters (N, L) with a pair of motifs each, the start of the pair (N,), and labels (N,)."""

    letters: Ids
    starts: Ids
    labels: NDArray[np.bool_]  # are both motifs the same variant?

    @property
    def ids(self) -> Ids:
        """(N, L + 2): what models read, from `<S>` to the question mark."""
        return np.pad(self.letters, ((0, 0), (1, 1)), constant_values=((0, 0), (START, ASK)))

    @property
    def aligned(self) -> Ids:
        """(N, L - SLACK): from the first letter of the first motif to the last of the second."""
        width = self.letters.shape[1] - SLACK
        return np.take_along_axis(self.letters, self.starts[:, None] + np.arange(width), axis=1)

    def batch(self) -> Batch:
        """Return the batch whose only target is the label, after the question mark."""
        labels = np.where(self.labels, SAME, DIFFERENT)
        return last_symbol_batch(torch.from_numpy(self.ids), torch.from_numpy(labels))

    def shard(self, label: bool) -> Shard:
        """Return the sequences with this label, as records that end with the question mark."""
        return make_shard(list(self.ids[self.labels == label]), VOCABULARY)


def length_of(distance: int) -> int:
    """Return the number of letters in a sequence whose motifs are so far apart."""
    return int(distance - 1 + 2 * WIDTH + SLACK)


def draw(distance: int, n: int, random: np.random.Generator) -> Pairs:
    """Return sequences in which the second motif starts `distance` letters after the end of the
    first; as many of one label as of the other, or one more.
    """
    if distance < 1 or n < 1:
        raise ValueError(f"distance and n must be 1 or more, got {distance} and {n}")
    letters = random.choice(BACKGROUND, (n, length_of(distance)))  # (N, L)
    labels = random.permutation(n) % 2 == 1
    first = random.integers(0, 2, n)  # which variant
    second = np.where(labels, first, 1 - first)
    starts = random.integers(0, SLACK + 1, n)
    within = starts[:, None] + np.arange(WIDTH)  # (N, W)
    np.put_along_axis(letters, within, VARIANTS[first], axis=1)
    np.put_along_axis(letters, within + WIDTH - 1 + distance, VARIANTS[second], axis=1)
    return Pairs(letters, starts, labels)


COUNTING_DATA, NEURAL_DATA, TEST_DATA = 0, 1, 2  # independent streams of random numbers
GROWING = 0.6  # of the steps until the longest distance is included
CHUNK = 250  # sequences per forward pass

Classify = Callable[[Pairs, int], NDArray[np.bool_]]  # sequences and their distance → labels


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """The training data and budget, the same for every model of a kind."""

    distances: Sequence[int]
    steps: int  # of neural models
    batch: int = 32  # sequences in a step
    examples: int = 1000  # sequences of each distance, for counting models
    iterations: int = 20  # of EM, at most
    parameters: int = 60_000  # of every neural model, to a tenth

    def distance_at(self, step: int) -> int:
        """Return the distance of a step: those included so far in turn, longer ones later."""
        n = len(self.distances)
        included = min(n, 1 + int(n * step / (GROWING * self.steps)))
        return self.distances[step % included]

    @property
    def letters(self) -> int:
        return sum(self.batch * length_of(self.distance_at(step)) for step in range(self.steps))

    @property
    def model_size(self) -> tuple[int, int, int]:
        """Parameters, vocabulary and longest sequence of a neural model."""
        return self.parameters, VOCABULARY, length_of(max(self.distances)) + 2


class PairModel(ABC):
    """A kind of model: its cost in letters read, and how it learns to classify pairs."""

    def cost(self, lessons: Lessons) -> float:
        return 0.0

    @abstractmethod
    def learn(self, lessons: Lessons, seed: int, on_progress: OnProgress) -> Classify:
        """Train on the lessons; return what classifies a pair."""

    def n_parameters(self, lessons: Lessons) -> int | None:
        """Return the number of parameters of a neural model."""
        return None


def counting_data(lessons: Lessons, seed: int) -> dict[int, Pairs]:
    """Return the training data of models that are fitted for each distance."""
    return {
        distance: draw(distance, lessons.examples, generator(seed, COUNTING_DATA, distance))
        for distance in lessons.distances
    }


@dataclass(frozen=True)
class MotifPair(PairModel):
    """A motif for each label, of some order; order 0 is a weight matrix."""

    order: int

    def learn(self, lessons: Lessons, seed: int, on_progress: OnProgress) -> Classify:
        models = {
            distance: MotifClassifier(self.order).fit(pairs.aligned, pairs.labels.tolist())
            for distance, pairs in counting_data(lessons, seed).items()
        }
        return lambda pairs, distance: np.array(models[distance].predict(pairs.aligned))


@dataclass(frozen=True)
class HiddenPair(PairModel):
    """A hidden Markov model for each label and distance."""

    states: int

    def cost(self, lessons: Lessons) -> float:
        letters = sum(lessons.examples * length_of(distance) for distance in lessons.distances)
        return lessons.iterations * letters

    def learn(self, lessons: Lessons, seed: int, on_progress: OnProgress) -> Classify:
        models: dict[int, list[HiddenMarkov]] = {}
        for distance, pairs in counting_data(lessons, seed).items():
            config = HiddenMarkovConfig(n_states=self.states, max_len=pairs.ids.shape[1])
            for label in (False, True):
                shard, key = pairs.shard(label), seed_of(seed, int(label))
                model = fit_hmm(shard, config, lessons.iterations, key, on_progress)
                models.setdefault(distance, []).append(model)

        def classify(pairs: Pairs, distance: int) -> NDArray[np.bool_]:
            ids = torch.from_numpy(pairs.ids)
            targets = torch.cat([ids[:, 1:], ids.new_full((len(ids), 1), IGNORE)], dim=1)
            logs = [model.score(ids, targets).double().sum(1) for model in models[distance]]
            return np.asarray((logs[1] > logs[0]).numpy())

        return classify


@dataclass(frozen=True, kw_only=True)
class NeuralPair(SizedModel, PairModel):
    """A neural language model that learns to predict the label alone, at all distances."""

    def cost(self, lessons: Lessons) -> float:
        return lessons.letters

    def n_parameters(self, lessons: Lessons) -> int:
        return count_parameters(self.family, VOCABULARY, self.config(*lessons.model_size))

    def learn(self, lessons: Lessons, seed: int, on_progress: OnProgress) -> Classify:
        def batch_at(step: int) -> Batch:
            random = generator(seed, NEURAL_DATA, step)  # no sequence occurs twice
            return draw(lessons.distance_at(step), lessons.batch, random).batch()

        model = train_model(
            self.builder(*lessons.model_size),
            batch_at,
            lessons.steps,
            seed,
            on_progress=on_progress,
        )

        def classify(pairs: Pairs, distance: int) -> NDArray[np.bool_]:
            with torch.no_grad():
                chunks = torch.from_numpy(pairs.ids).split(CHUNK)
                logits = torch.cat([model.head(model(ids)[:, -1]) for ids in chunks])  # (N, V)
            return np.asarray((logits[:, SAME] - logits[:, DIFFERENT] > 0).numpy())

        return classify


HEADS = (("n_heads", 4), ("n_kv_heads", 4), ("d_head", 12))
MODELS: dict[str, PairModel] = {
    MATRIX: MotifPair(0),
    MARKOV: MotifPair(ORDER),
    HIDDEN: HiddenPair(STATES),
    CONVOLUTION: NeuralPair(family="cnn", context=CNN_CONTEXT),
    RECURRENT: NeuralPair(family="lstm"),
    HYENA: NeuralPair(family="hyena"),
    WINDOWED: NeuralPair(family="transformer", changes=(*HEADS, ("window", WINDOW))),
    FULL: NeuralPair(family="transformer", changes=HEADS),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    lessons: Lessons
    models: Sequence[str] = tuple(MODELS)
    tested: int = 500  # sequences of each distance and seed
    seeds: int = 1


LARGE = Plan(lessons=Lessons(distances=(2, 8, 32, 128, 512), steps=600), seeds=3)
SMALL = Plan(
    lessons=Lessons(distances=(2, 8, 32), steps=160, examples=500),
    models=(MATRIX, MARKOV, CONVOLUTION, FULL),
    tested=3000,
)

BySeed = Mapping[str, Mapping[int, Sequence[Proportion]]]  # by model, distance and seed


def distance(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    return report(plan, measure(plan, options), options.seed, quick=options.quick)


def measure(plan: Plan, options: Options) -> BySeed:
    """Train every model and test it on new sequences, once for each seed."""
    lessons = plan.lessons
    cost = sum(MODELS[name].cost(lessons) for name in plan.models)
    progress = options.progress(plan.seeds * cost)
    by_seed: dict[str, dict[int, list[Proportion]]] = {
        name: {d: [] for d in lessons.distances} for name in plan.models
    }
    for seed in options.seeds(plan.seeds):
        for name in plan.models:
            counts = options.part(
                f"distance {name} {seed}",
                plan,
                list[int],
                partial(count_right, name, plan, seed, partial(progress.add, name)),
            )
            for d, n_right in zip(lessons.distances, counts, strict=True):
                by_seed[name][d].append(Proportion(n_right, plan.tested))
    return by_seed


def count_right(name: str, plan: Plan, seed: int, on_progress: OnProgress) -> list[int]:
    """Return how many of the test sequences of each distance a model classifies as they are."""
    classify = MODELS[name].learn(plan.lessons, seed, on_progress)
    counts = []
    for d in plan.lessons.distances:
        pairs = draw(d, plan.tested, generator(seed, TEST_DATA, d))
        counts.append(int((classify(pairs, d) == pairs.labels).sum()))
    return counts


def report(plan: Plan, by_seed: BySeed, seed: int, *, quick: bool = False) -> Result:
    """Return tables, figures and claims of what was measured from this seed on."""
    pooled = {
        name: {d: sum(shares[1:], shares[0]) for d, shares in row.items()}
        for name, row in by_seed.items()
    }
    accuracies, sizes = Accuracies(pooled, CHANCE), neural_sizes(plan)
    title = f"Accuracy in % on {plan.tested * plan.seeds:,} sequences, with 95% intervals"
    tables = [accuracies.table("distance {}", title)]
    if plan.seeds > 1:
        tables.append(seeds_table(by_seed, seed))
    return Result(
        title="Two motifs, far apart",
        answer=accuracies.answer("Motifs {} letters apart are related by"),
        question=__doc__ or "",
        reading=(
            "Each line is a model: where it runs at the top, the model relates the two motifs at "
            "that distance, and where it lies on the dashed line, it guesses; bands are 95% "
            "intervals, and where lines coincide the map below separates them."
        ),
        claims=claims(accuracies, sizes, quick=quick),
        tables=tables,
        figures=[accuracies.lines("Relating two motifs, by their distance", AXES)],
        panels=[
            accuracies.heatmap("The same accuracies, distances across", "accuracy"),
            Facts(list(sizes.items()), title="Parameters of the neural models"),
            samples(seed),
        ],
    )


def neural_sizes(plan: Plan) -> dict[str, int]:
    sizes = {name: MODELS[name].n_parameters(plan.lessons) for name in plan.models}
    return {name: size for name, size in sizes.items() if size is not None}


def seeds_table(by_seed: BySeed, first: int) -> Table:
    distances = list(next(iter(by_seed.values())))
    rows = [
        [name, first + i, *(row[d][i].value for d in distances)]
        for name, row in by_seed.items()
        for i in range(len(row[distances[0]]))
    ]
    columns = ["model", "seed", *(f"distance {d}" for d in distances)]
    return Table(columns, rows, title="Accuracy, seed by seed")


def samples(seed: int) -> Sequences:
    pairs = draw(8, 6, generator(seed, TEST_DATA, 8))
    texts = ["".join(DNA.letters[i] for i in row) for row in pairs.letters]
    labels = ["same" if label else "different" for label in pairs.labels]
    rows = [(f"{text}  {label}", None) for text, label in zip(texts, labels, strict=True)]
    return Sequences(rows, title="Sequences at distance 8")
