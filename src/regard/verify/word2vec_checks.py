"""Checks of word vectors: threads change no bit, and the loss on record can be measured again."""

from __future__ import annotations

import torch

from regard.data.corpus import reopen
from regard.errors import UserError
from regard.evaluation.eval_data import held_out
from regard.evaluation.word_similarity import word_losses
from regard.recipe import build, read
from regard.run import RECIPE, Run, weights
from regard.training.final_report import final_sample
from regard.training.loop import seed_of
from regard.training.throughput import final_parts
from regard.training.word2vec_training import ThreadCopies, untrained
from regard.verify.fixtures import N_TOKENS, Finding, Word2VecFixture, has_data

N_STEPS, RATE = 3, 0.05  # of the training with one thread and with two


def one_thread_is_many(fixture: Word2VecFixture) -> Finding | None:
    """A few steps of the run's training give the same bits with one thread as with two."""
    if not has_data(fixture.run) or not (fixture.run / RECIPE).exists():
        return None
    recipe, corpus = build(read(fixture.run / RECIPE)), reopen(fixture.run)
    tensors, n_threads = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(seed_of(recipe.train.seed))
            model = untrained(recipe, corpus)
            copies = ThreadCopies(model, N_TOKENS)
            for step in range(N_STEPS):
                seeds = [seed_of(step, p) for p in range(model.config.shares)]
                copies.read(corpus.train.ids[step * N_TOKENS :][:N_TOKENS], RATE, seeds)
            copies.pool.shutdown()
            tensors.append(weights(model))
    finally:
        torch.set_num_threads(n_threads)
    for name, tensor in tensors[0].items():
        if not torch.equal(tensor, tensors[1][name]):
            return False, f"{name} differs between one thread and two"
    shares = fixture.model.config.shares
    return True, f"{N_STEPS} steps in {shares} shares: one thread and two give the same bits"


def metrics_are_on_record(fixture: Word2VecFixture) -> Finding | None:
    """The loss of the held-out split, measured again, is the one that the run has stored."""
    run = fixture.run
    if fixture.tokenizer is None or not has_data(run) or not (run / RECIPE).exists():
        return None
    try:
        split, shard = held_out(run, fixture.tokenizer)
        metadata = Run(run).metadata
        stored = metadata["metrics"][split]["loss"]["value"]
    except (UserError, KeyError):
        return None
    tokens = final_parts(build(read(run / RECIPE)).train, reopen(run), metadata["steps"])[split]
    sample = final_sample(shard, tokens, 0)
    value = word_losses(fixture.model, sample).metrics()["loss"].value
    return value == stored, f"loss on {split}: {stored!r} on record, {value!r} measured"
