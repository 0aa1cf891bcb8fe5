"""The cats near the mat sleep: does the verb agree with a subject far before it?

Decks 000 and 004: "the cat, who belongs to my mother, is", "the chef who … was". Up to which
distance does each model, from counting pairs of words to attention, get it right (Linzen et al.
2016, arXiv:1611.01368)?

Sentences of a small grammar consist of a subject, some phrases of a preposition and a noun, and a
verb. The number of every noun is a fair coin, so that the nearest noun is right half of the time.
All models learn the same sentences of all lengths, and every word of them, not the verb alone; they
are tested on other sentences (there are too few without any phrase for that). A prediction is right
where the verbs of the right number are more probable in total. Neural models have the same size to
a tenth, the same number of steps and the trainer's default settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import Batch
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
    fit_hmm,
    generator,
    make_shard,
    next_symbol_batch,
    train_model,
)
from regard.look.page import Sequences
from regard.models.hidden_markov import HiddenMarkovConfig
from regard.models.language_model import LanguageModel
from regard.registry import MODELS
from regard.training.loop import seed_of

NOUNS = {"cat": "cats", "chef": "chefs", "child": "children", "king": "kings"}
PREPOSITIONS = ("near", "behind")
VERBS = {"sleeps": "sleep", "sings": "sing", "is": "are", "runs": "run"}
WORDS = (
    *("<S>", "<E>", "the", *PREPOSITIONS, *NOUNS, *NOUNS.values()),
    *(verb for pair in VERBS.items() for verb in pair),
)
ID = {word: i for i, word in enumerate(WORDS)}
NOUN_IDS, VERB_IDS = (  # (4, 2): singular, plural
    np.array([[ID[one], ID[many]] for one, many in pairs.items()]) for pairs in (NOUNS, VERBS)
)
PREPOSITION_IDS = np.array([ID[word] for word in PREPOSITIONS])
PHRASE = 3  # words of "near the dogs"
ORDER, STATES, CNN_CONTEXT = 6, 24, 16
CHANCE, TOLERANCE, HIGH = 0.5, 0.06, 0.95

BIGRAM, HIDDEN = "bigram", f"HMM, {STATES} states"
BAYES, NGRAM = f"MAP n-gram, {ORDER} words back", f"Kneser–Ney, {ORDER} words back"
AXES = ("words from the subject to its verb", "share of verbs that agree")
LSTM, CNN, HYENA, TRANSFORMER = "LSTM", f"convolution over {CNN_CONTEXT}", "Hyena", "Transformer"


def claims(accuracies: Accuracies, *, quick: bool = False) -> list[Claim]:
    high = partial(accuracies.claim_high, least=HIGH, quick=quick)
    chance = partial(accuracies.claim_chance, tolerance=TOLERANCE)
    candidates = [
        chance("a bigram agrees with the nearest noun", BIGRAM, least=2),
        high("Kneser–Ney agrees within its order", NGRAM, most=ORDER),
        chance("Kneser–Ney is blind beyond it", NGRAM, least=ORDER + 1),
        high("a convolution agrees within its field", CNN, most=CNN_CONTEXT - 1),
        chance("a convolution is blind beyond it", CNN, least=CNN_CONTEXT),
        high("an LSTM carries the number along", LSTM),
        high("Hyena's filters reach back to it", HYENA),
        high("attention finds the subject at every distance", TRANSFORMER),
    ]
    return [claim for claim in candidates if claim is not None]


@dataclass(frozen=True, eq=False)
class Sentences:
    """Ids (N, T) of `<S> the noun (preposition the noun)^m verb <E>`, all of one length; the number
    of each subject (N,): 0 singular, 1 plural.
    """

    ids: Ids
    numbers: Ids

    @property
    def texts(self) -> list[str]:
        return [" ".join(WORDS[i] for i in row[1:-1]) for row in self.ids]


def draw(phrases: int, n: int, random: np.random.Generator) -> Sentences:
    """Return n sentences with so many phrases between subject and verb, all numbers fair coins."""
    numbers = random.integers(0, 2, n)
    columns = [np.full(n, ID["<S>"]), np.full(n, ID["the"])]
    columns.append(NOUN_IDS[random.integers(0, len(NOUNS), n), numbers])
    for _ in range(phrases):
        columns.append(PREPOSITION_IDS[random.integers(0, len(PREPOSITIONS), n)])
        columns.append(np.full(n, ID["the"]))
        columns.append(NOUN_IDS[random.integers(0, len(NOUNS), n), random.integers(0, 2, n)])
    columns.append(VERB_IDS[random.integers(0, len(VERBS), n), numbers])
    columns.append(np.full(n, ID["<E>"]))
    return Sentences(np.stack(columns, axis=1), numbers)


def distance_of(phrases: int) -> int:
    """Return the number of words from the subject to its verb."""
    return 1 + PHRASE * phrases


@dataclass(frozen=True, kw_only=True)
class Plan:
    phrases: Sequence[int]
    sentences: int  # of each length, to learn from
    steps: int
    tested: int
    iterations: int = 30  # of EM
    batch: int = 32
    parameters: int = 40_000


LARGE = Plan(phrases=(0, 1, 2, 4, 8, 12), sentences=600, steps=900, tested=400)
SMALL = Plan(
    phrases=(0, 1, 4, 8), sentences=400, steps=250, tested=1200, iterations=5, parameters=20_000
)


def make_corpus(plan: Plan, seed: int) -> list[Sentences]:
    return [draw(m, plan.sentences, generator(seed, m)) for m in plan.phrases]


def draw_unseen(plan: Plan, phrases: int, known: Sentences, seed: int) -> Sentences:
    """Return sentences that are not in the corpus, where there are enough; short ones are few."""
    sentences = draw(phrases, 3 * plan.tested, generator(seed, phrases, 1))
    corpus = {row.tobytes() for row in known.ids}
    new = [i for i, row in enumerate(sentences.ids) if row.tobytes() not in corpus][: plan.tested]
    if len(new) < plan.tested // 2:  # with no phrase there are only so many sentences
        new = list(range(plan.tested))
    return Sentences(sentences.ids[new], sentences.numbers[new])


@dataclass(frozen=True, eq=False)
class Training:
    """The training sentences by length, and how a model is trained on them."""

    plan: Plan
    parts: Sequence[Sentences]
    seed: int
    on_progress: OnProgress = lambda positions: None

    @property
    def max_len(self) -> int:
        return int(self.parts[-1].ids.shape[1])

    @property
    def shard(self) -> Shard:
        return make_shard([row for part in self.parts for row in part.ids], len(WORDS))

    def batch_at(self, step: int) -> Batch:
        """Return sentences of one length, lengths in turn."""
        part = self.parts[step % len(self.parts)]
        rows = generator(self.seed, step).integers(0, len(part.ids), self.plan.batch)
        return next_symbol_batch(torch.from_numpy(part.ids[rows]))


def count(name: str, settings: Mapping[str, Any], training: Training) -> LanguageModel:
    model = MODELS.get(name)(len(WORDS), MODELS.get(name).Config(**settings))
    model.fit(training.shard, None, lambda text: None)
    return cast(LanguageModel, model)


def fit_hidden(training: Training) -> LanguageModel:
    config = HiddenMarkovConfig(n_states=STATES, max_len=training.max_len)
    iterations, seed = training.plan.iterations, seed_of(training.seed)
    return fit_hmm(training.shard, config, iterations, seed, training.on_progress)


def fit_neural(sized: SizedModel, training: Training) -> LanguageModel:
    return train_model(
        sized.builder(training.plan.parameters, len(WORDS), training.max_len),
        training.batch_at,
        training.plan.steps,
        training.seed,
        on_progress=training.on_progress,
    )


FAMILIES: dict[str, Callable[[Training], LanguageModel]] = {
    BIGRAM: partial(count, "bigram", {}),
    BAYES: partial(count, "map", {"order": ORDER + 1}),
    NGRAM: partial(count, "kneser-ney", {"order": ORDER + 1}),
    HIDDEN: fit_hidden,
    LSTM: partial(fit_neural, SizedModel(family="lstm")),
    CNN: partial(fit_neural, SizedModel(family="cnn", context=CNN_CONTEXT)),
    HYENA: partial(fit_neural, SizedModel(family="hyena")),
    TRANSFORMER: partial(fit_neural, SizedModel(family="transformer")),
}
N_NEURAL = 4  # of these models


def measure_agreement(model: LanguageModel, sentences: Sentences) -> Proportion:
    """Return how often verbs of the right number are more probable than those of the wrong one."""
    ids = torch.from_numpy(sentences.ids[:, :-2])
    with torch.no_grad():
        logits = model.logits(ids)[:, -1].double()  # (B, V), before the verb
    by_number: Tensor = logits.log_softmax(-1).exp()[:, torch.from_numpy(VERB_IDS)].sum(1)  # (B, 2)
    numbers = torch.from_numpy(sentences.numbers)[:, None]
    right, other = by_number.gather(1, numbers), by_number.gather(1, 1 - numbers)
    half_ties = int((right == other).sum()) // 2  # a tie is a guess
    return Proportion(int((right > other).sum()) + half_ties, len(ids))


def learn_agreement(
    fit: Callable[[Training], LanguageModel], training: Training, tests: Mapping[int, Sentences]
) -> dict[int, Proportion]:
    """Return how often the verbs of a model agree, by the distance of the subject."""
    model = fit(training)
    return {distance_of(m): measure_agreement(model, test) for m, test in tests.items()}


def agreement(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    parts = make_corpus(plan, options.seed)
    tests = {
        m: draw_unseen(plan, m, part, options.seed)
        for m, part in zip(plan.phrases, parts, strict=True)
    }
    words = [part.ids.shape[1] for part in parts]
    per_length = N_NEURAL * plan.steps * plan.batch / len(parts) + plan.iterations * plan.sentences
    progress = options.progress(per_length * sum(words))
    rows = {}
    for name, fit in FAMILIES.items():
        training = Training(plan, parts, options.seed, partial(progress.add, f"agreement: {name}"))
        rows[name] = options.part(
            f"agreement {name} {options.seed}",
            plan,
            dict[int, Proportion],
            partial(learn_agreement, fit, training, tests),
        )
    accuracies = Accuracies(rows, CHANCE)
    samples = [(text, None) for m in plan.phrases[:4] for text in tests[m].texts[:2]]
    return Result(
        title="Agreement at a distance",
        answer=accuracies.answer("{} words from its subject the verb agrees with"),
        question=__doc__ or "",
        reading=(
            "Each line is a model: at the top the verb agrees with its subject at that distance, "
            "on the dashed line it agrees by chance; bands are 95% intervals."
        ),
        claims=claims(accuracies, quick=options.quick),
        tables=[
            accuracies.table("{} words", "Verbs that agree, in %, by distance from the subject")
        ],
        figures=[accuracies.lines("Agreement by distance", AXES)],
        panels=[
            accuracies.heatmap("The same, distances across", "share"),
            Sequences(samples, title="Sentences of the test set"),
        ],
    )
