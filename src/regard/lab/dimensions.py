"""How many numbers does a word's vector need? The loss of skip-gram against its width.

The lectures say that 30 to 300 numbers suffice for a vocabulary of any size. Here the loss on text
that was not trained on is measured for widths up to 300, on a user's file or on a made-up text of
which it is known how many directions its words differ in: there the curve must bend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from regard.data.readers import TextFiles
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.lab.result import Claim, Mean, Options, Result, Z
from regard.look.page import Lines, Table, Text
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig, survey
from regard.tokenizers import KINDS, Tokenizer
from regard.training.loop import seed_of
from regard.training.word2vec_training import ThreadCopies

HIDDEN, WORDS, SENTENCE = 12, 400, 12  # directions of the made-up text, its words, words in a row
SHARPNESS = 2.0  # how much a direction changes the chances of a word
HELD_OUT = 10  # every tenth sentence is
BLOCK, RATE, RARE = 8192, 0.05, 5
MOST_WORDS = 300_000  # read of a user's file
NEAR, FAR = (
    0.9,
    0.8,
)  # shares of the gain: reached by enough directions, missed by a quarter of them
LECTURED = 30  # numbers that suffice, according to the lectures


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of it is done."""

    widths: Sequence[int]
    sentences: int
    epochs: int
    seeds: int = 1


LARGE = Plan(widths=(1, 2, 3, 6, 12, 30, 60, 100, 200, 300), sentences=20_000, epochs=12, seeds=3)
SMALL = Plan(widths=(1, 3, 12, 30), sentences=4_000, epochs=6, seeds=3)

Found = Mapping[int, Sequence[float]]  # by width, the loss for each seed


def dimensions(options: Options) -> Result:
    """The experiment, in its large or its quick form."""
    return run(SMALL if options.quick else LARGE, options)


def run(plan: Plan, options: Options) -> Result:
    """Measure, and report what that says of the claims."""
    texts = made_up(plan.sentences, options.seed) if options.file is None else read(options)
    tokenizer = KINDS["words"].train(texts, 1 << 20)
    train = shard_of([t for i, t in enumerate(texts) if i % HELD_OUT], tokenizer)
    held = shard_of(texts[::HELD_OUT], tokenizer)
    vocabulary = survey(train, tokenizer, RARE)
    work = options.work(plan.seeds * sum(plan.widths))
    found: dict[int, list[float]] = {}
    for width in plan.widths:
        for seed in range(options.seed, options.seed + plan.seeds):
            found.setdefault(width, []).append(
                learn(train, held, tokenizer, vocabulary, width, plan.epochs, seed)
            )
            work.add(f"width {width}", width)
    return report(found, options, len(vocabulary.counts), train.tokens)


def made_up(sentences: int, seed: int) -> list[str]:
    """Sentences of words whose chances follow HIDDEN numbers drawn for each sentence, a
    log-bilinear model; so that is what a vector must hold.
    """
    random = np.random.default_rng(seed)
    sides = random.normal(size=(WORDS, HIDDEN)) * SHARPNESS / math.sqrt(HIDDEN)
    topics = random.normal(size=(sentences, HIDDEN))
    scores = topics @ sides.T + random.gumbel(size=(SENTENCE, sentences, WORDS))
    drawn = scores.argmax(-1).T  # (sentences, SENTENCE): Gumbel's way to draw from a softmax
    return [" ".join(f"w{word}" for word in row) for row in drawn.tolist()]


def read(options: Options) -> list[str]:
    """The first sentences of a user's file, a line or a few words of running text each."""
    assert options.file is not None
    source = TextFiles([options.file])
    texts = source.text() if source.format == "text" else (
        text for chunk in source.records() for text in chunk.texts
    )  # fmt: skip
    found: list[str] = []
    count = 0
    for text in texts:
        for line in text.splitlines():
            if words := line.split():
                found.append(" ".join(words))
                count += len(words)
        if count > MOST_WORDS:
            break
    if len(found) < 2 * HELD_OUT:
        raise UserError(f"{options.file}: {len(found)} lines with words; 20 are needed at least")
    return found


def learn(
    train: Shard,
    held: Shard,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    width: int,
    epochs: int,
    seed: int,
) -> float:
    """The loss on held-out text of vectors this wide."""
    torch.manual_seed(seed_of(seed, width))
    config = Word2VecConfig(d_model=width, n_words=len(vocabulary.counts), shares=1, sample=0)
    model = SkipGram(tokenizer.vocab_size, config)
    model.take(vocabulary)
    copies, steps = ThreadCopies(model, BLOCK), -(-train.tokens // BLOCK)
    for step in range(epochs * steps):
        ids = train.ids[step % steps * BLOCK :][:BLOCK]
        copies.read(ids, RATE * (1 - step / (epochs * steps)), [seed_of(seed, step)])
    copies.pool.shutdown()
    return model.loss(held)


def elbow(found: Found) -> int:
    """The width at which the curve bends: farthest from the line between its ends, widths on a
    logarithmic scale (Satopää et al. 2011, "Finding a 'kneedle' in a haystack").
    """
    means = {width: float(np.mean(losses)) for width, losses in found.items()}
    first, last = min(means), max(means)

    def beyond(width: int) -> float:
        along = math.log(width / first) / math.log(last / first)
        return gained(means, width) - along

    return max(means, key=beyond)


def gained(means: Mapping[int, float], width: int) -> float:
    """The share of all that widening gains, that this width has gained."""
    worst, best = means[min(means)], min(means.values())
    return (worst - means[width]) / (worst - best) if worst > best else 1.0


def report(found: Found, options: Options, words: int, tokens: int) -> Result:
    """Table, figure and claims of what was measured."""
    means = {width: float(np.mean(losses)) for width, losses in found.items()}
    seeds = len(next(iter(found.values())))
    spread = [Z * float(np.std(x, ddof=1)) / math.sqrt(seeds) if seeds > 1 else 0.0
              for x in found.values()]  # fmt: skip
    lows = [m - s for m, s in zip(means.values(), spread, strict=True)]
    highs = [m + s for m, s in zip(means.values(), spread, strict=True)]
    bend = elbow(found)
    rows = [
        [w, means[w], s if seeds > 1 else None, f"{gained(means, w):.0%}", "elbow" * (w == bend)]
        for w, s in zip(means, spread, strict=True)
    ]
    what = "a made-up text" if options.file is None else options.file.name
    curve = Lines(
        [("held-out loss", list(means), list(means.values()))],
        x_label="numbers in a vector",
        y_label="loss of a prediction, nats",
        title=f"Skip-gram on {what}",
        log_x=True,
        x_ticks=list(means),
        bands={"held-out loss": (lows, highs)} if seeds > 1 else {},
    )
    return Result(
        title="How many numbers does a word need?",
        question=QUESTION.format(what=what, words=words, tokens=tokens, seeds=seeds),
        reading=(
            "The curve is what a prediction costs on text that was not trained on, against the "
            "width of the vectors on a logarithmic scale: where it stops falling, more numbers buy "
            f"nothing. It bends at {bend}."
        ),
        claims=claims(found, made=options.file is None),
        tables=[
            Table(
                ["width", "loss", "± 95%", "of the gain", ""],
                rows,
                title="By width",
                align=["right", "right", "right", "right", "left"],
            )
        ],
        figures=[curve],
        panels=[Text(MADE)],
    )


QUESTION = (
    "A word is a vector of as many numbers as we give it. With too few, words that differ look "
    "alike; beyond some width the text has nothing more to say. Where is that? Skip-gram with "
    "negative sampling, {words:,} words, {tokens:,} tokens of {what}, {seeds} seeds."
)
MADE = (
    f"The made-up text. Every sentence draws {HIDDEN} numbers, every word has as many of its own, "
    f"and {SENTENCE} words are drawn with chances that follow their products: the words differ in "
    f"{HIDDEN} directions and no more. Of a user's file the first {MOST_WORDS:,} words are read. "
    "Every tenth sentence is held out; widths share everything but the width."
)


def claims(found: Found, *, made: bool) -> list[Claim]:
    """What is said beforehand, and what was found, with intervals over the seeds."""
    count = len(next(iter(found.values())))
    seeds = [{width: losses[i] for width, losses in found.items()} for i in range(count)]

    def gain(width: int) -> Mean:
        return Mean.of([gained(losses, width) for losses in seeds])

    told = [suffices(f"{LECTURED} numbers suffice", LECTURED, gain(LECTURED))]
    if made:
        few, what = HIDDEN // 4, "as many numbers as the text has directions suffice"
        bends = [elbow({width: [loss] for width, loss in one.items()}) for one in seeds]
        told += [
            suffices(what, HIDDEN, gain(HIDDEN)),
            Claim.within(
                "a quarter of them does not",
                f"at most {FAR:.0%} of the gain at {few}",
                f"{gain(few).value:.1%}",
                gain(few).interval,
                most=FAR,
            ),
            Claim.within(
                "the curve bends where the directions end",
                f"the elbow within a factor of 2.5 of {HIDDEN}",
                f"at {', '.join(map(str, bends))}",
                Mean.of([math.log(bend / HIDDEN) for bend in bends]).interval,
                least=-math.log(2.5),
                most=math.log(2.5),
            ),
        ]
    return told


def suffices(name: str, width: int, gain: Mean) -> Claim:
    """That so many numbers have nearly all of the gain."""
    stated = f"at least {NEAR:.0%} of the gain at {width}"
    return Claim.within(name, stated, f"{gain.value:.1%}", gain.interval, least=NEAR)
