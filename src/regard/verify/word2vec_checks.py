"""Checks of word vectors: however many threads, the same bits; and what is on record comes back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.corpus import reopen
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.eval_data import held_out, shard_of
from regard.evaluation.word_similarity import word_losses
from regard.models.word2vec import Word2Vec, words_of
from regard.recipe import build, read
from regard.run import RECIPE, read_metadata, weights
from regard.training.final_report import final_sample
from regard.training.loop import seed_of
from regard.training.throughput import final_parts
from regard.training.validation import beginning
from regard.training.word2vec_training import ThreadCopies, untrained
from regard.verify.fixtures import Fixture, has_data, tokenizer_of
from regard.verify.report import Finding

TOKENS, STEPS, RATE = 4096, 3, 0.05  # read with one thread and with several
SHOWN = 100  # words of a made-up text


@dataclass(frozen=True)
class Word2VecFixture(Fixture):
    """Word vectors, and a text whose words are guessed."""

    shard: Shard

    def tried(self, model: Any) -> Tensor:
        """(U, 2) losses and predictions."""
        return torch.from_numpy(model.losses(self.shard))


def open_word2vec_fixture(run: Path, model: Word2Vec) -> Word2VecFixture:
    """The vectors of a run folder and its own text, or one made up of its words."""
    tokenizer = tokenizer_of(run, model.vocab_size)
    if has_data(run):
        corpus = reopen(run)
        return Word2VecFixture(
            run, model, tokenizer, beginning(corpus.valid or corpus.train, TOKENS)
        )
    if tokenizer is None:
        raise UserError(f"{run} has neither data nor a tokenizer that can be read")
    text = " ".join(words_of(model, tokenizer)[:SHOWN])
    return Word2VecFixture(run, model, tokenizer, shard_of([text], tokenizer))


def threads_do_not_matter(subject: Word2VecFixture) -> Finding | None:
    """A few steps of the run's own training, with one thread and with two: the same bits."""
    if not has_data(subject.run) or not (subject.run / RECIPE).exists():
        return None
    recipe, corpus = build(read(subject.run / RECIPE)), reopen(subject.run)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(seed_of(recipe.train.seed))
            model = untrained(recipe, corpus)
            copies = ThreadCopies(model, TOKENS)
            for step in range(STEPS):
                seeds = [seed_of(step, p) for p in range(model.config.shares)]
                copies.read(corpus.train.ids[step * TOKENS :][:TOKENS], RATE, seeds)
            copies.pool.shutdown()
            found.append(weights(model))
    finally:
        torch.set_num_threads(before)
    for name, tensor in found[0].items():
        if not torch.equal(tensor, found[1][name]):
            return False, f"{name} differs between one thread and two"
    shares = subject.whole.config.shares
    return True, f"{STEPS} steps in {shares} shares: one thread and two give the same bits"


def figures_are_on_record(subject: Word2VecFixture) -> Finding | None:
    """What regard.json says of the held-out part is what is measured now."""
    run = subject.run
    if subject.tokenizer is None or not has_data(run) or not (run / RECIPE).exists():
        return None
    try:
        side, shard = held_out(run, subject.tokenizer)
        stored = read_metadata(run)
        told = stored["metrics"][side]["loss"]["value"]
    except (UserError, KeyError):
        return None
    recipe = build(read(run / RECIPE))
    corpus = reopen(run)
    tokens = final_parts(recipe.train, corpus, stored["steps"])[side]
    part = final_sample(shard, tokens, 0)
    value = word_losses(subject.whole, part).figures()["loss"].value
    return value == told, f"loss on {side}: {told!r} on record, {value!r} measured"
