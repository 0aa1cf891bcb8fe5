"""Sequences with two motifs that belong together: whether they agree is the label.

DNA of A and T holds a motif of G and C twice, each time as one of two variants with the same
letters in another order. The label says whether both are the same variant: the exclusive or of two
coin tosses, so that neither motif alone tells anything, nor does any letter's frequency, and only
what relates the two can be right. The motifs are easy to find on purpose: distance is what is
asked about.

A model reads `<S> letters ?` and is asked for the label that follows.

Models that are asked whether two motifs agree: each learns from examples and becomes a judge.

Counting models and the hidden Markov model are generative: one of each label, and the label under
which a sequence is more probable. They are fitted afresh for each distance, and the motif models
are even told where the pair begins, since they know no other way to find it. Neural models read
the whole sequence and are asked for the label; one model learns all distances together.

Two related motifs, far apart: which models can still relate them?

Lecture 14 of "Bayesian Data Analysis and Machine Learning for Physical Sciences" says of Bayesian
Markov motifs (Siebert & Söding 2016) that they beat weight matrices but struggle with related
motifs that lie far apart, for which LSTMs were the older solution and attention is the newer one.
Here that is measured: accuracy against distance, for models from counting to attention, the neural
ones of equal size and with equal training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.data.shards import Shard
from regard.lab.mini_trainer import pass_over, practise
from regard.lab.result import Claim, Options, Result, Share, less
from regard.look.page import Facts, Heatmap, Lines, Sequences, Table, Text
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.motifs import DNA, MotifClassifier
from regard.models.parameter_matching import parameters, sized
from regard.recipe import TrainRecipe
from regard.training.loop import seed_of

START, ASK, DIFFERENT, SAME = range(DNA.size, DNA.size + 4)  # after the ids of A, C, G, T
VOCABULARY = DNA.size + 4
BACKGROUND = DNA.encode("AT")
VARIANTS = np.stack([DNA.encode("GGCC"), DNA.encode("CCGG")])  # (2, W)
WIDTH = VARIANTS.shape[1]
SLACK = 8  # places by which the pair is moved at random

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """(N, L) letters with a pair of motifs each, where the pair begins (N,), and (N,) labels."""

    letters: Ids
    begins: Ids
    labels: NDArray[np.bool_]  # are both motifs the same variant?

    @property
    def ids(self) -> Ids:
        """(N, L + 2): as models read them, from `<S>` to the question."""
        return np.pad(self.letters, ((0, 0), (1, 1)), constant_values=((0, 0), (START, ASK)))

    @property
    def aligned(self) -> Ids:
        """(N, L - SLACK): from the first letter of the first motif to the last of the second."""
        width = self.letters.shape[1] - SLACK
        return np.take_along_axis(self.letters, self.begins[:, None] + np.arange(width), axis=1)

    def batch(self) -> Batch:
        """Only the label is asked for, after the question."""
        ids, many = torch.from_numpy(self.ids), len(self.labels)
        targets = torch.full_like(ids, IGNORE)
        targets[:, -1] = torch.from_numpy(np.where(self.labels, SAME, DIFFERENT))
        return Batch(ids, targets, None, np.arange(many), many, many)

    def shard(self, label: bool) -> Shard:
        """The sequences with this label, as records in memory; the question ends them."""
        ids = self.ids[self.labels == label]
        records, length = ids.shape
        return Shard(
            path=Path("memory"),
            kind="records",
            ids=ids.ravel(),
            offsets=np.arange(records + 1) * length,
            vocab_size=VOCABULARY,
            records=records,
            tokens=ids.size,
            symbols=records * (length - 1),
            bytes=records * (length - 2),
        )


def length_of(distance: int) -> int:
    """Letters in a sequence whose motifs are so far apart."""
    return int(distance - 1 + 2 * WIDTH + SLACK)


def draw(distance: int, many: int, random: np.random.Generator) -> Pairs:
    """Sequences in which the second motif begins `distance` letters after the last of the first;
    as many of one label as of the other, or one more.
    """
    if distance < 1 or many < 1:
        raise ValueError(f"distance and many must be 1 or more, got {distance} and {many}")
    letters = random.choice(BACKGROUND, (many, length_of(distance)))  # (N, L)
    labels = random.permutation(many) % 2 == 1
    first = random.integers(0, 2, many)  # which variant
    second = np.where(labels, first, 1 - first)
    begins = random.integers(0, SLACK + 1, many)
    within = begins[:, None] + np.arange(WIDTH)  # (N, W)
    np.put_along_axis(letters, within, VARIANTS[first], axis=1)
    np.put_along_axis(letters, within + WIDTH - 1 + distance, VARIANTS[second], axis=1)
    return Pairs(letters, begins, labels)


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


TESTED = 2  # a stream of random numbers: sequences nobody has seen
ORDER, STATES, WINDOW = 2, 12, 48
SEES = 32  # letters of a convolution: five layers that double
CHANCE, NEAR, SURE, FALL = 0.5, 0.06, 0.95, 0.05  # the tolerances of the claims

MATRIX, MARKOV, HIDDEN = "weight matrix", f"Markov motif, order {ORDER}", f"HMM, {STATES} states"
CONVOLUTION, RECURRENT, HYENA = f"convolution over {SEES}", "LSTM", "Hyena"
WINDOWED, FULL = f"attention over {WINDOW}", "full attention"
HEADS = (("n_heads", 4), ("n_kv_heads", 4), ("d_head", 12))

READERS: dict[str, Reader] = {
    MATRIX: MotifReader(0),
    MARKOV: MotifReader(ORDER),
    HIDDEN: HiddenReader(STATES),
    CONVOLUTION: NeuralReader("cnn", sees=SEES),
    RECURRENT: NeuralReader("lstm"),
    HYENA: NeuralReader("hyena"),
    WINDOWED: NeuralReader("transformer", changes=(*HEADS, ("window", WINDOW))),
    FULL: NeuralReader("transformer", changes=HEADS),
}

Pooled = Mapping[str, Mapping[int, Share]]  # by model and distance
Found = Mapping[str, Mapping[int, Sequence[Share]]]  # ... a share for each seed


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    lessons: Lessons
    readers: Sequence[str]
    tested: int  # sequences of each distance and seed
    seeds: int = 1


LARGE = Plan(
    lessons=Lessons(distances=(2, 8, 32, 128, 512), steps=600),
    readers=tuple(READERS),
    tested=500,
    seeds=3,
)
SMALL = Plan(
    lessons=Lessons(distances=(2, 8, 32), steps=160, examples=500),
    readers=(MATRIX, MARKOV, CONVOLUTION, FULL),
    tested=3000,
)


def distance(options: Options) -> Result:
    """The experiment, in its large or its quick form."""
    return run(SMALL if options.quick else LARGE, options)


def run(plan: Plan, options: Options) -> Result:
    """Measure, and report what that says of the claims."""
    return report(plan, measure(plan, options), options.seed, short=options.quick)


def measure(plan: Plan, options: Options) -> Found:
    """Every model learns and is tested on new sequences, once for each seed."""
    lessons = plan.lessons
    cost = sum(READERS[name].cost(lessons) for name in plan.readers)
    work = options.work(plan.seeds * cost)
    found: dict[str, dict[int, list[Share]]] = {
        name: {d: [] for d in lessons.distances} for name in plan.readers
    }
    for seed in range(options.seed, options.seed + plan.seeds):
        for name in plan.readers:
            judge = READERS[name].learn(lessons, seed, partial(work.add, name))
            for d in lessons.distances:
                pairs = draw(d, plan.tested, random_of(seed, TESTED, d))
                right = int((judge(pairs, d) == pairs.labels).sum())
                found[name][d].append(Share(right, plan.tested))
    return found


def report(plan: Plan, found: Found, seed: int, *, short: bool = False) -> Result:
    """Tables, figures and claims of what was measured from this seed on."""
    pooled = {
        name: {d: sum(shares[1:], shares[0]) for d, shares in row.items()}
        for name, row in found.items()
    }
    sizes = neural_sizes(plan)
    tables = [accuracy_table(pooled)]
    if plan.seeds > 1:
        tables.append(seeds_table(found, seed))
    return Result(
        title="Two motifs, far apart",
        question=question(plan),
        reading=(
            "Each line is a model: where it runs at the top, the model relates the two motifs at "
            "that distance, and where it lies on the dashed line, it guesses; bands are 95% "
            "intervals, and where lines coincide the map below tells them apart."
        ),
        claims=claims(pooled, sizes, short=short),
        tables=tables,
        figures=[figure(pooled)],
        panels=[
            overview(pooled),
            Facts(list(sizes.items()), title="Parameters of the neural models"),
            samples(seed),
            Text(MADE),
        ],
    )


MADE = (
    f"How it is made. A sequence of A and T holds a motif of {WIDTH} letters twice, as GGCC or as "
    f"CCGG, the pair moved by 0 to {SLACK} letters at random. The distance counts letters from the "
    "last of the first motif to the first of the second. Half of the sequences have the same "
    "variant twice; each motif alone is a fair coin, and all sequences have the same number of G "
    "and of C.\n\n"
    "How it is learned. The motif models are fitted for each distance and label to sequences that "
    "are aligned at the first motif, which nobody else is told; so are the hidden Markov models, "
    "unaligned. A neural model reads the letters and a question mark and is asked for the label "
    "alone. One model learns all distances, shorter ones first; sizes, steps, batches and the "
    "trainer's settings are the same for all, and every sequence is new.\n\n"
    "How it is measured. Intervals are over the sequences tested, of all seeds together, and say "
    "nothing of other seeds: what a seed changes stands in the table seed by seed."
)


def question(plan: Plan) -> str:
    """What is asked, and of whom."""
    lessons = plan.lessons
    seeds = f", {plan.seeds} seeds" if plan.seeds > 1 else ""
    return (
        "A label depends on two motifs together and on neither alone. How far apart may they be "
        "for a model to relate them? Weight matrices and Markov motifs count neighbours, a hidden "
        "Markov model and an LSTM carry what they have read along, a convolution and windowed "
        "attention see so far and no further, full attention looks anywhere.\n\n"
        f"Neural models of about {lessons.parameters:,} parameters, {lessons.steps:,} steps of "
        f"{lessons.batch} sequences; accuracy on {plan.tested:,} new sequences of each "
        f"distance{seeds}."
    )


def neural_sizes(plan: Plan) -> dict[str, int]:
    """Parameters of the models trained by gradients."""
    chosen = {name: READERS[name] for name in plan.readers}
    return {
        name: parameters(reader.family, VOCABULARY, reader.config(plan.lessons))
        for name, reader in chosen.items()
        if isinstance(reader, NeuralReader)
    }


def accuracy_table(pooled: Pooled) -> Table:
    """Models down, distances across."""
    distances = list(next(iter(pooled.values())))
    rows = [[name, *(row[d].percent for d in distances)] for name, row in pooled.items()]
    columns = ["model", *(f"distance {d}" for d in distances)]
    sides = ["left", *["right"] * (len(columns) - 1)]
    return Table(columns, rows, align=sides, title="Accuracy in %, with 95% intervals")


def seeds_table(found: Found, first: int) -> Table:
    """The same, seed by seed: how much depends on luck."""
    distances = list(next(iter(found.values())))
    rows = [
        [name, first + i, *(row[d][i].value for d in distances)]
        for name, row in found.items()
        for i in range(len(row[distances[0]]))
    ]
    columns = ["model", "seed", *(f"distance {d}" for d in distances)]
    return Table(columns, rows, title="Accuracy, seed by seed")


def figure(pooled: Pooled) -> Lines:
    """Accuracy against distance, chance beside it."""
    distances = list(next(iter(pooled.values())))
    xs = [float(d) for d in distances]
    series = [(name, xs, [row[d].value for d in distances]) for name, row in pooled.items()]
    bands = {
        name: ([row[d].interval[0] for d in distances], [row[d].interval[1] for d in distances])
        for name, row in pooled.items()
    }
    return Lines(
        series,
        x_label="letters from one motif to the other",
        y_label="accuracy on new sequences",
        title="Relating two motifs, by their distance",
        log_x=True,
        bands=bands,
        x_ticks=xs,
        levels={"chance": CHANCE},
    )


def overview(pooled: Pooled) -> Heatmap:
    """The same as a map, where lines would lie upon one another."""
    distances = list(next(iter(pooled.values())))
    return Heatmap(
        np.array([[row[d].value for d in distances] for row in pooled.values()]),
        list(pooled),
        [str(d) for d in distances],
        title="The same accuracies, distances across",
        unit="accuracy",
    )


def samples(seed: int) -> Sequences:
    """A few sequences with their labels."""
    pairs = draw(8, 6, random_of(seed, TESTED, 8))
    texts = ["".join(DNA.letters[i] for i in row) for row in pairs.letters]
    said = ["same" if label else "different" for label in pairs.labels]
    shown = [(f"{text}  {word}", None) for text, word in zip(texts, said, strict=True)]
    return Sequences(shown, title="Sequences at distance 8")


def claims(pooled: Pooled, sizes: Mapping[str, int], *, short: bool = False) -> list[Claim]:
    """What is said of the models that were tried, at the distances that were, after training or
    after a `short` one.
    """
    sure_of = partial(sure, pooled, short=short)
    whole = SEES - SLACK - 2 * WIDTH  # the pair, wherever it was moved, and the question are seen
    made = [
        blind(pooled, MATRIX, 1, "a weight matrix relates nothing"),
        sure_of(MARKOV, ORDER, "a Markov motif relates letters within its order"),
        blind(pooled, MARKOV, ORDER + 1, "a Markov motif is blind beyond its order"),
        blind(pooled, HIDDEN, 2 * WIDTH, "a hidden Markov model does not carry a motif along"),
        sure_of(CONVOLUTION, whole, "a convolution relates what it sees"),
        blind(pooled, CONVOLUTION, SEES, "a convolution is blind beyond its receptive field"),
        sure_of(WINDOWED, WINDOW - SLACK - WIDTH, "windowed attention relates what it sees"),
        blind(pooled, WINDOWED, 2 * WINDOW, "windowed attention is blind beyond layers × window"),
        falls(pooled, RECURRENT, "the LSTM's accuracy falls with distance"),
        sure_of(FULL, None, "full attention relates motifs at every distance"),
        equal(sizes, "the neural models are of one size"),
    ]
    return [claim for claim in made if claim is not None]


def sure(pooled: Pooled, model: str, most: int | None, name: str, *, short: bool) -> Claim | None:
    """Right nearly always, at distances of at most `most`; after a `short` training, more may be
    right in the end.
    """
    row = {d: s for d, s in pooled.get(model, {}).items() if most is None or d <= most}
    if not row:
        return None
    where = "every distance" if most is None else f"distances to {most}"
    d, worst = min(row.items(), key=lambda item: item[1].value)
    stated = f"accuracy at least {SURE} at {where}"
    measured = f"{worst} at {d}, the lowest"
    return Claim.within(name, stated, measured, worst.interval, least=SURE, may_rise=short)


def blind(pooled: Pooled, model: str, least: int, name: str) -> Claim | None:
    """At chance, at distances of at least `least`."""
    row = {d: s for d, s in pooled.get(model, {}).items() if d >= least}
    if not row:
        return None
    d, worst = max(row.items(), key=lambda item: abs(item[1].value - CHANCE))
    stated = f"accuracy within {NEAR} of {CHANCE} at distances from {least}"
    measured = f"{worst} at {d}, the farthest"
    low, high = CHANCE - NEAR, CHANCE + NEAR
    return Claim.within(name, stated, measured, worst.interval, least=low, most=high)


def falls(pooled: Pooled, model: str, name: str) -> Claim | None:
    """Lower at the longest distance than at the shortest."""
    row = pooled.get(model)
    if row is None:
        return None
    near, far = min(row), max(row)
    stated = f"accuracy lower by at least {FALL} at the longest distance than at the shortest"
    measured = f"{row[near]} at {near}, {row[far]} at {far}"
    return Claim.within(name, stated, measured, less(row[near], row[far]), least=FALL)


def equal(sizes: Mapping[str, int], name: str) -> Claim | None:
    """The same number of parameters, to a tenth."""
    if not sizes:
        return None
    least, most = min(sizes.values()), max(sizes.values())
    return Claim(name, "within 10% of one another", f"{least:,} to {most:,}", most <= 1.1 * least)
