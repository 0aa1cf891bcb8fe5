"""How many numbers does a word's vector need? The loss of skip-gram against its width.

The lectures say that 30 to 300 numbers suffice for a vocabulary of any size. With too few, words
that differ get similar vectors; beyond some width more numbers gain nothing. We measure the loss of
skip-gram with negative sampling on text that was not trained on, on a user's file or on a generated
text whose words differ in a known number of directions: there the curve must have its elbow. Every
sentence of it draws as many numbers, every word has as many, and words are sampled with
probabilities that follow their products. Every tenth sentence is for testing; everything but the
width is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.data.shards import Shard
from regard.data.text_files import TextFiles
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.lab.experiment import BITS_PER_NAT, Claim, Mean, Options, Result, Z, curves
from regard.look.page import Table
from regard.models.word2vec import SkipGram, Word2VecConfig, build_vocabulary
from regard.tokenizers import Words
from regard.training.loop import seed_of
from regard.training.word2vec_training import ThreadCopies

DIRECTIONS, WORDS, SENTENCE = 12, 400, 12  # of the generated text: words, and words in a sentence
SHARPNESS = 2.0  # how much a direction changes the probability of a word
TEST_EVERY = 10  # every tenth sentence is for testing
BLOCK, RATE, MIN_COUNT = 8192, 0.05, 5
MAX_WORDS = 300_000  # read of a user's file
ENOUGH, TOO_LITTLE = 0.9, 0.8  # of the gain: reached by enough directions, missed by a quarter
LECTURED = 30  # numbers that suffice, according to the lectures
FACTOR = 2.5  # by which the elbow may miss

Losses = Mapping[int, Sequence[float]]  # by width, one for each seed


def claims(losses: Losses, *, generated: bool) -> list[Claim]:
    by_seed = [dict(zip(losses, row, strict=True)) for row in zip(*losses.values(), strict=True)]
    few = DIRECTIONS // 4
    widths = (LECTURED, DIRECTIONS, few) if generated else (LECTURED,)
    gains = {w: Mean.of([gain_share(row, w) for row in by_seed]) for w in widths}

    def suffices(name: str, width: int) -> Claim:
        stated, gain = f"at least {ENOUGH:.0%} of the gain at {width}", gains[width]
        return Claim.within(name, stated, gain, f"{gain.value:.1%}", least=ENOUGH)

    lectured = suffices(f"{LECTURED} numbers suffice", LECTURED)
    if not generated:
        return [lectured]
    elbows = [find_elbow(row) for row in by_seed]
    return [
        lectured,
        suffices("as many numbers as the text has directions suffice", DIRECTIONS),
        Claim.within(
            "a quarter of them does not",
            f"at most {TOO_LITTLE:.0%} of the gain at {few}",
            gains[few],
            f"{gains[few].value:.1%}",
            most=TOO_LITTLE,
        ),
        Claim.within(
            "the curve bends where the directions end",
            f"the elbow within a factor of {FACTOR} of {DIRECTIONS}",
            Mean.of([math.log(elbow / DIRECTIONS) for elbow in elbows]),
            f"at {', '.join(map(str, elbows))}",
            least=-math.log(FACTOR),
            most=math.log(FACTOR),
        ),
    ]


def find_elbow(means: Mapping[int, float]) -> int:
    """Return the width farthest from the line between both ends of the curve, widths on a
    logarithmic scale (Satopää et al. 2011, "Finding a 'kneedle' in a haystack").
    """
    first, last = min(means), max(means)

    def height(width: int) -> float:
        return gain_share(means, width) - math.log(width / first) / math.log(last / first)

    return max(means, key=height)


def gain_share(means: Mapping[int, float], width: int) -> float:
    """Return the share of the total gain of widening that this width has."""
    worst, best = means[min(means)], min(means.values())
    return (worst - means[width]) / (worst - best) if worst > best else 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    widths: Sequence[int]
    sentences: int
    epochs: int
    seeds: int = 3


LARGE = Plan(widths=(1, 2, 3, 6, 12, 30, 60, 100, 200, 300), sentences=20_000, epochs=12)
SMALL = Plan(widths=(1, 3, 12, 30), sentences=4_000, epochs=6)


def dimensions(options: Options) -> Result:
    plan = SMALL if options.quick else LARGE
    path = options.file
    texts = generate(plan.sentences, options.seed) if path is None else read_sentences(path)
    tokenizer = Words.train(texts, 1 << 20)
    train = shard_of([t for i, t in enumerate(texts) if i % TEST_EVERY], tokenizer)
    test = shard_of(texts[::TEST_EVERY], tokenizer)
    vocabulary = build_vocabulary(train, tokenizer, MIN_COUNT)
    progress = options.progress(plan.seeds * sum(plan.widths))
    losses: dict[int, list[float]] = {width: [] for width in plan.widths}
    for width in plan.widths:
        for seed in options.seeds(plan.seeds):

            def compute(width: int = width, seed: int = seed) -> float:
                config = Word2VecConfig(
                    d_model=width, n_words=len(vocabulary.counts), shares=1, sample=0
                )
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed_of(seed, width))
                    model = SkipGram(tokenizer.vocab_size, config)
                    model.set_vocabulary(vocabulary)
                return learn(model, train, test, plan.epochs, seed)

            name = f"dimensions {width} {seed} {options.seed}"
            losses[width].append(options.part(name, plan, float, compute))
            progress.add(f"width {width}", width)
    return report(losses, path, len(vocabulary.counts), train.tokens)


def generate(sentences: int, seed: int) -> list[str]:
    """Return sentences whose words follow a log-bilinear model: the probabilities depend on as many
    numbers drawn for each sentence as there are directions, so a vector must represent these.
    """
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(WORDS, DIRECTIONS)) * SHARPNESS / math.sqrt(DIRECTIONS)
    topics = random.normal(size=(sentences, DIRECTIONS))
    scores = topics @ vectors.T + random.gumbel(size=(SENTENCE, sentences, WORDS))
    samples = scores.argmax(-1).T  # (sentences, SENTENCE): Gumbel's way to sample a softmax
    return [" ".join(f"w{word}" for word in row) for row in samples.tolist()]


def read_sentences(path: Path) -> list[str]:
    source = TextFiles([path])
    texts: Iterable[str] = source.text() if source.format == "text" else (
        text for chunk in source.records() for text in chunk.texts
    )  # fmt: skip
    sentences: list[str] = []
    n_words = 0
    for text in texts:
        for line in text.splitlines():
            if words := line.split():
                sentences.append(" ".join(words))
                n_words += len(words)
        if n_words > MAX_WORDS:
            break
    if len(sentences) < 2 * TEST_EVERY:
        n, least = len(sentences), 2 * TEST_EVERY
        raise UserError(f"{path}: {n} lines with words; {least} are needed at least")
    return sentences


def learn(model: SkipGram, train: Shard, test: Shard, epochs: int, seed: int) -> float:
    copies, steps = ThreadCopies(model, BLOCK), -(-train.tokens // BLOCK)
    for step in range(epochs * steps):
        ids = train.ids[step % steps * BLOCK :][:BLOCK]
        copies.read(ids, RATE * (1 - step / (epochs * steps)), [seed_of(seed, step)])
    copies.pool.shutdown()
    return model.loss(test) * BITS_PER_NAT


def report(losses: Losses, path: Path | None, n_words: int, n_tokens: int) -> Result:
    means = {width: float(np.mean(row)) for width, row in losses.items()}
    values, n_seeds = np.array(list(losses.values())), len(losses[min(losses)])
    errors = Z * values.std(1, ddof=1) / math.sqrt(n_seeds) if n_seeds > 1 else None
    elbow, source = find_elbow(means), "a generated text" if path is None else path.name
    rows = [
        [
            width,
            mean,
            None if errors is None else float(errors[i]),
            f"{gain_share(means, width):.0%}",
            "elbow" * (width == elbow),
        ]
        for i, (width, mean) in enumerate(means.items())
    ]
    columns, align = ["width", "loss", "± 95%", "of the gain", ""], ["right"] * 4 + ["left"]
    center, bands = np.array(list(means.values())), {}
    if errors is not None:
        bands = {"test loss": ((center - errors).tolist(), (center + errors).tolist())}
    return Result(
        title="How many numbers does a word need?",
        answer=(
            f"{elbow} on {source}: from there on the loss hardly falls, {means[elbow]:.4f} bits "
            f"with {elbow} numbers and {means[max(means)]:.4f} with {max(means)}."
        ),
        question=__doc__ or "",
        reading=(
            "The curve is the loss of a prediction on text that was not trained on, against the "
            "width of the vectors on a logarithmic scale: where it stops falling, more numbers "
            f"gain nothing. It bends at {elbow}."
        ),
        claims=claims(losses, generated=path is None),
        tables=[Table(columns, rows, title="By width", align=align)],
        figures=[
            curves(
                list(means),
                {"test loss": center},
                f"Skip-gram on {source}",
                ("numbers in a vector", "loss of a prediction, bits"),
                log="x",
                ticks=True,
                bands=bands,
            )
        ],
    )
