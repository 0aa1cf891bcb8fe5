"""The cats near the mat sleep: does the verb agree with a subject far before it?

Decks 000 and 004: "the cat, who belongs to my mother, is", "the chef who … was". A small grammar
makes sentences whose verb agrees in number with the first noun, whatever nouns stand between; every
rung of the ladder, from counting pairs to attention, learns the same sentences, and is asked
whether verbs of the right number are more probable than those of the wrong one (Linzen et al. 2016,
arXiv:1611.01368).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import Batch
from regard.data.shards import Shard
from regard.lab.mini_trainer import pass_over, practise
from regard.lab.result import Claim, Options, Result, Share
from regard.look.page import Heatmap, Lines, Sequences, Table, Text
from regard.models.counts import CountingModel
from regard.models.hidden_markov import HiddenMarkovConfig
from regard.models.language_model import LanguageModel
from regard.models.parameter_matching import sized
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.training.loop import seed_of

NOUNS = ("cat", "chef", "child", "king")
PLACES = ("near", "behind")
VERBS = (("sleeps", "sleep"), ("sings", "sing"), ("is", "are"), ("runs", "run"))
IRREGULAR = {"child": "children"}
WORDS = (
    "<S>",
    "<E>",
    "the",
    *PLACES,
    *NOUNS,
    *(IRREGULAR.get(noun, noun + "s") for noun in NOUNS),
    *(verb for pair in VERBS for verb in pair),
)
ID = {word: i for i, word in enumerate(WORDS)}
NOUN_IDS = np.array([[ID[noun], ID[IRREGULAR.get(noun, noun + "s")]] for noun in NOUNS])  # (4, 2)
VERB_IDS = np.array([[ID[one], ID[many]] for one, many in VERBS])  # (4, 2)
PHRASE = 3  # words of "near the dogs"
ORDER, STATES, SEES = 6, 24, 16
CHANCE, NEAR, SURE = 0.5, 0.06, 0.95

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sentences:
    """(N, T) ids `<S> the noun (place the noun)^m verb <E>`, all of one length; the number of each
    subject (N,), 0 or 1.
    """

    ids: Ids
    numbers: Ids

    @property
    def batch(self) -> Batch:
        """Every word is asked for."""
        rows = torch.from_numpy(self.ids)
        ids, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        many = targets.numel()
        return Batch(ids, targets, None, np.arange(len(rows)), many, many)

    @property
    def texts(self) -> list[str]:
        """In words."""
        return [" ".join(WORDS[i] for i in row[1:-1]) for row in self.ids]


def draw(phrases: int, many: int, random: np.random.Generator) -> Sentences:
    """Sentences with so many phrases between subject and verb, every noun's number a fair coin."""
    numbers = random.integers(0, 2, many)
    columns = [np.full(many, ID["<S>"]), np.full(many, ID["the"])]
    columns.append(NOUN_IDS[random.integers(0, len(NOUNS), many), numbers])
    for _ in range(phrases):
        columns.append(
            np.array([ID[place] for place in PLACES])[random.integers(0, len(PLACES), many)]
        )
        columns.append(np.full(many, ID["the"]))
        columns.append(NOUN_IDS[random.integers(0, len(NOUNS), many), random.integers(0, 2, many)])
    columns.append(VERB_IDS[random.integers(0, len(VERBS), many), numbers])
    columns.append(np.full(many, ID["<E>"]))
    return Sentences(np.stack(columns, axis=1), numbers)


def distance_of(phrases: int) -> int:
    """Words from the subject to its verb."""
    return 1 + PHRASE * phrases


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    phrases: Sequence[int]
    sentences: int  # of each length, to learn from
    steps: int
    tested: int
    passes: int = 30
    batch: int = 32
    parameters: int = 40_000


LARGE = Plan(phrases=(0, 1, 2, 4, 8, 12), sentences=600, steps=900, tested=400)
SMALL = Plan(
    phrases=(0, 1, 4, 8), sentences=400, steps=250, tested=1200, passes=5, parameters=20_000
)


def corpus(plan: Plan, seed: int) -> list[Sentences]:
    """What every rung learns from, by length."""
    return [draw(m, plan.sentences, np.random.default_rng(seed_of(seed, m))) for m in plan.phrases]


def unseen(plan: Plan, phrases: int, known: Sentences, seed: int) -> Sentences:
    """Sentences that are not in the corpus, where there are enough of them; short ones are few."""
    drawn = draw(phrases, 3 * plan.tested, np.random.default_rng(seed_of(seed, phrases, 1)))
    seen = {row.tobytes() for row in known.ids}
    keep = [i for i, row in enumerate(drawn.ids) if row.tobytes() not in seen][: plan.tested]
    if len(keep) < plan.tested // 2:  # with no phrase there are only so many sentences
        keep = list(range(plan.tested))
    return Sentences(drawn.ids[keep], drawn.numbers[keep])


def shard_of(parts: Sequence[Sentences]) -> Shard:
    """All of them as records in memory."""
    rows = [row for part in parts for row in part.ids]
    flat = np.concatenate(rows)
    lengths = np.array([len(row) for row in rows])
    return Shard(
        path=Path("memory"),
        kind="records",
        ids=flat,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        vocab_size=len(WORDS),
        records=len(rows),
        tokens=len(flat),
        symbols=len(flat) - len(rows),
        bytes=len(flat),
    )


Learn = Callable[[Plan, list[Sentences], int, Callable[[float], None]], LanguageModel]


def counted(name: str, **options: Any) -> Learn:
    """A rung that counts."""

    def learn(
        plan: Plan, parts: list[Sentences], seed: int, told: Callable[[float], None]
    ) -> LanguageModel:
        cls = family(name)
        model = cls(len(WORDS), cls.Config(**options))
        assert isinstance(model, CountingModel)
        model.fit(shard_of(parts), None, lambda text: None)
        return model

    return learn


def hidden(
    plan: Plan, parts: list[Sentences], seed: int, told: Callable[[float], None]
) -> LanguageModel:
    """A hidden Markov model."""
    config = HiddenMarkovConfig(n_states=STATES, max_len=parts[-1].ids.shape[1])
    return pass_over(shard_of(parts), config, plan.passes, seed_of(seed), lambda: told(1.0))


def neural(name: str, sees: int = 0) -> Learn:
    """A rung that learns by gradients; `sees` is the context of a convolution."""

    def learn(
        plan: Plan, parts: list[Sentences], seed: int, told: Callable[[float], None]
    ) -> LanguageModel:
        longest = parts[-1].ids.shape[1]
        config = sized(name, plan.parameters, len(WORDS), n_layers=2, max_len=sees or longest)
        config = dataclasses.replace(config, max_len=longest)

        def batch_of(step: int) -> Batch:
            part = parts[step % len(parts)]
            rows = np.random.default_rng(seed_of(seed, step)).integers(0, len(part.ids), plan.batch)
            return Sentences(part.ids[rows], part.numbers[rows]).batch

        recipe = TrainRecipe(steps=plan.steps, device="cpu", compile="off", seed=seed)
        return practise(name, len(WORDS), config, recipe, batch_of, lambda batch: told(1.0))

    return learn


BIGRAM, HIDDEN = "bigram", f"HMM, {STATES} states"
BAYES, NGRAM = f"MAP n-gram, {ORDER} words back", f"Kneser–Ney, {ORDER} words back"
LSTM, CNN, HYENA, TRANSFORMER = "LSTM", f"convolution over {SEES}", "Hyena", "Transformer"
RUNGS: dict[str, Learn] = {
    BIGRAM: counted("bigram"),
    BAYES: counted("map", order=ORDER + 1),
    NGRAM: counted("kneser-ney", order=ORDER + 1),
    HIDDEN: hidden,
    LSTM: neural("lstm"),
    CNN: neural("cnn", SEES),
    HYENA: neural("hyena"),
    TRANSFORMER: neural("transformer"),
}
BY_STEPS = 4  # of them learn by gradients
Found = Mapping[str, Mapping[int, Share]]  # by rung and number of phrases


def agrees(model: LanguageModel, sentences: Sentences) -> Share:
    """Where are verbs of the right number more probable than those of the wrong one?"""
    ids = torch.from_numpy(sentences.ids[:, :-2])
    with torch.no_grad():
        logits = model.logits(ids)[:, -1].double()  # (B, V), before the verb
    odds: Tensor = logits.log_softmax(-1).exp()[:, torch.from_numpy(VERB_IDS)].sum(1)  # (B, 2)
    numbers = torch.from_numpy(sentences.numbers)[:, None]
    right, wrong = odds.gather(1, numbers), odds.gather(1, 1 - numbers)
    half = int((right == wrong).sum()) // 2  # a tie is a guess
    return Share(int((right > wrong).sum()) + half, len(ids))


def agreement(options: Options) -> Result:
    """The experiment."""
    plan = SMALL if options.quick else LARGE
    parts = corpus(plan, options.seed)
    tests = {
        m: unseen(plan, m, part, options.seed) for m, part in zip(plan.phrases, parts, strict=True)
    }
    work = options.work(BY_STEPS * plan.steps + plan.passes)
    found = {}
    for name, learn in RUNGS.items():
        model = learn(plan, parts, options.seed, partial(work.add, f"agreement: {name}"))
        found[name] = {m: agrees(model, test) for m, test in tests.items()}
    return report(found, plan, tests, short=options.quick)


QUESTION = (
    "The cats near the king beside the dogs sleep: the verb agrees with a noun that stands any "
    "number of words before it, while nearer nouns say nothing. Up to which distance does each "
    "rung of the ladder, from counting pairs of words to attention, get it right?"
)
MADE = (
    "How it is made. Sentences of a subject, some phrases of a place and a noun, and a verb; the "
    "number of every noun is a fair coin, so that the nearest noun is right half of the time. All "
    "rungs learn the same sentences of all lengths, and every word of them, not the verb alone; "
    "they are asked about other sentences (those without any phrase are too few to be others). An "
    "answer is right where the verbs of the right number together are more probable. Neural rungs "
    "have the same size to a tenth, the same steps and the trainer's own settings."
)


def report(
    found: Found, plan: Plan, tests: Mapping[int, Sentences], *, short: bool = False
) -> Result:
    """Tables, figures and claims."""
    distances = [distance_of(m) for m in plan.phrases]
    rows = [[name, *(row[m].percent for m in plan.phrases)] for name, row in found.items()]
    columns = ["rung", *(f"{d} words" for d in distances)]
    table = Table(columns, rows, title="Verbs that agree, in %, by distance from the subject")
    samples = [(text, None) for m in plan.phrases[:4] for text in tests[m].texts[:2]]
    return Result(
        title="Agreement at a distance",
        question=QUESTION,
        reading=(
            "Each line is a rung: at the top the verb agrees with its subject at that distance, on "
            "the dashed line it agrees by chance; bands are 95% intervals."
        ),
        claims=claims(found, short=short),
        tables=[table],
        figures=[figure(found, plan)],
        panels=[
            overview(found, plan),
            Sequences(samples, title="Sentences nobody learned"),
            Text(MADE),
        ],
    )


def figure(found: Found, plan: Plan) -> Lines:
    """Accuracy against distance."""
    xs = [float(distance_of(m)) for m in plan.phrases]
    series = [(name, xs, [row[m].value for m in plan.phrases]) for name, row in found.items()]
    bands = {
        name: (
            [row[m].interval[0] for m in plan.phrases],
            [row[m].interval[1] for m in plan.phrases],
        )
        for name, row in found.items()
    }
    return Lines(
        series,
        x_label="words from the subject to its verb",
        y_label="share of verbs that agree",
        title="Agreement by distance",
        log_x=True,
        bands=bands,
        x_ticks=xs,
        levels={"chance": CHANCE},
    )


def overview(found: Found, plan: Plan) -> Heatmap:
    """The same as a map."""
    values = np.array([[row[m].value for m in plan.phrases] for row in found.values()])
    columns = [str(distance_of(m)) for m in plan.phrases]
    return Heatmap(values, list(found), columns, title="The same, distances across", unit="share")


def claims(found: Found, *, short: bool = False) -> list[Claim]:
    """Who sees the subject, and who does not, after training or after a `short` one."""
    sure_of = partial(sure, found, short=short)
    return [
        blind(found, BIGRAM, 2, "a bigram agrees with the nearest noun"),
        sure_of(NGRAM, ORDER, "Kneser–Ney agrees within its order"),
        blind(found, NGRAM, ORDER + 1, "Kneser–Ney is blind beyond it"),
        sure_of(CNN, SEES - 1, "a convolution agrees within its field"),
        blind(found, CNN, SEES, "a convolution is blind beyond it"),
        sure_of(LSTM, 1000, "an LSTM carries the number along"),
        sure_of(HYENA, 1000, "Hyena's filters reach back to it"),
        sure_of(TRANSFORMER, 1000, "attention finds the subject at every distance"),
    ]


def sure(found: Found, rung: str, most: int, name: str, *, short: bool) -> Claim:
    """Right nearly always, at distances of at most `most`; after a `short` training, more may be
    right in the end.
    """
    row = {distance_of(m): share for m, share in found[rung].items() if distance_of(m) <= most}
    d, worst = min(row.items(), key=lambda item: item[1].value)
    stated = (
        f"at least {SURE} agree at distances to {min(most, max(map(distance_of, found[rung])))}"
    )
    measured = f"{worst} at {d}, the lowest"
    return Claim.within(name, stated, measured, worst.interval, least=SURE, may_rise=short)


def blind(found: Found, rung: str, least: int, name: str) -> Claim:
    """By chance, at distances of at least `least`."""
    row = {distance_of(m): share for m, share in found[rung].items() if distance_of(m) >= least}
    if not row:
        return Claim(name, f"at distances from {least}", "no such distance was tried", None)
    d, worst = max(row.items(), key=lambda item: abs(item[1].value - CHANCE))
    stated = f"within {NEAR} of {CHANCE} agree at distances from {least}"
    measured = f"{worst} at {d}, the farthest"
    low, high = CHANCE - NEAR, CHANCE + NEAR
    return Claim.within(name, stated, measured, worst.interval, least=low, most=high)
