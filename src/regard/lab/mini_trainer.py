"""Small models trained on generated sequences or a text, without a run folder.

The same seed gives the same model: by default everything runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.bundled import NAMES
from regard.data.batching import Batch
from regard.data.collate import IGNORE
from regard.data.shards import Shard
from regard.data.text_files import TextFiles
from regard.errors import UserError
from regard.lab.result import Proportion
from regard.models.decoder import DecoderConfig
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.language_model import NeuralLanguageModel
from regard.models.parameter_matching import find_config
from regard.recipe import TrainRecipe
from regard.registry import MODELS
from regard.training.distributed import ALONE
from regard.training.em_loop import EMState
from regard.training.loop import seed_of
from regard.training.objectives import NextTokenObjective
from regard.training.optimizer import factor
from regard.training.step import Stepper

MAX_CHARACTERS = 2_000_000  # read of a file
TEST_SHARE = 0.1  # of a text, at its end
LAYERS = 2  # of a sized model

Ids = NDArray[np.int64]
OnProgress = Callable[[float], None]  # called with the number of positions that were read
Watch = Callable[[int, float, NeuralLanguageModel], None]  # step, nats per symbol, model


def generator(seed: int, *keys: int) -> np.random.Generator:
    """Return random numbers that depend on the seed and the keys alone."""
    return np.random.default_rng(seed_of(seed, *keys))


# Batches


def make_batch(ids: Tensor, targets: Tensor) -> Batch:
    """Return ids and targets (B, T) as the trainer takes them."""
    n = int((targets != IGNORE).sum())
    return Batch(ids, targets, None, np.arange(len(ids)), n, n)


def next_symbol_batch(rows: Tensor) -> Batch:
    """Return the batch whose targets are all symbols of rows (B, T + 1) but the first."""
    return make_batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def last_symbol_batch(ids: Tensor, targets: Tensor) -> Batch:
    """Return the batch of ids (B, T) whose only targets (B,) follow the last position."""
    padded = torch.full_like(ids, IGNORE)
    padded[:, -1] = targets
    return make_batch(ids, padded)


def make_shard(rows: Sequence[Ids], vocab_size: int) -> Shard:
    """Return rows of ids as records in memory."""
    ids, lengths = np.concatenate(rows), [len(row) for row in rows]
    return Shard(
        path=Path("memory"),
        kind="records",
        ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        vocab_size=vocab_size,
        records=len(rows),
        tokens=len(ids),
        symbols=len(ids) - len(rows),
        bytes=len(ids) - 2 * len(rows),
    )


@dataclass(frozen=True, eq=False)
class TextStream:
    """Ids (N,) of characters, and the characters they stand for; the last tenth is for testing."""

    ids: Ids
    letters: str

    @property
    def train(self) -> Ids:
        return self.ids[: len(self.ids) - int(TEST_SHARE * len(self.ids))]

    @property
    def test(self) -> Ids:
        return self.ids[len(self.ids) - int(TEST_SHARE * len(self.ids)) :]


def read_stream(path: Path | None, least: int) -> TextStream:
    """Read the user's file, or the bundled names; UserError unless it has `least` characters."""
    source = TextFiles([path or NAMES])
    if source.format == "text":
        parts = chain(source.text())
    else:
        records = [text for chunk in source.records() for text in chunk.texts]
        order = np.random.default_rng(0).permutation(len(records))  # a file may be sorted
        parts = chain.from_iterable((records[i], "\n") for i in order)
    texts, size = [], 0
    for part in parts:
        texts.append(part)
        size += len(part)
        if size >= MAX_CHARACTERS:
            break
    text = "".join(texts)[:MAX_CHARACTERS]
    if len(text) < least:
        raise UserError(f"{path}: {len(text):,} characters, at least {least:,} are needed")
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    letters, ids = np.unique(codes, return_inverse=True)
    return TextStream(ids.astype(np.int64), "".join(map(chr, letters.tolist())))


def spread_windows(ids: Ids, length: int, most: int) -> Batch:
    """Return at most so many windows that do not overlap, spread over the ids."""
    n = (len(ids) - 1) // length
    starts = np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.int64)) * length
    return _windows(ids, starts, length)


def random_windows(ids: Ids, length: int, n: int, seed: int, step: int) -> Batch:
    """Return windows at random positions, for a step of training."""
    return _windows(ids, generator(seed, step).integers(0, len(ids) - length, n), length)


def _windows(ids: Ids, starts: Ids, length: int) -> Batch:
    return next_symbol_batch(torch.from_numpy(ids[starts[:, None] + np.arange(length + 1)]))


# Models


def small_decoder(max_len: int, **fields: Any) -> DecoderConfig:
    sizes = {"n_layers": 2, "d_model": 64, "n_heads": 4, "n_kv_heads": 4, "d_head": 16, "d_ff": 128}
    return DecoderConfig(**{**sizes, "max_len": max_len, **fields})


Fields = tuple[tuple[str, Any], ...]  # of a configuration


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A neural family, two layers deep, whose width follows from a number of parameters.

    `context` is that of a convolution (0: the whole sequence). Fields of the configuration are
    changed before the width is found (`decided`) or after (`changes`).
    """

    family: str
    context: int = 0
    decided: Fields = ()
    changes: Fields = ()

    def config(self, n_parameters: int, vocab_size: int, max_len: int) -> Any:
        """Return the configuration with about so many parameters."""
        size = self.family, n_parameters, vocab_size, self.context or max_len, self.decided
        return replace(_find_config(*size), max_len=max_len, **dict(self.changes))

    def builder(
        self, n_parameters: int, vocab_size: int, max_len: int
    ) -> Callable[[], NeuralLanguageModel]:
        """Return a function that makes a model with its initial weights."""
        config = self.config(n_parameters, vocab_size, max_len)  # found before torch is seeded
        return lambda: cast(NeuralLanguageModel, MODELS.get(self.family)(vocab_size, config))


@cache  # the search is slow
def _find_config(name: str, size: int, vocab_size: int, max_len: int, decided: Fields) -> Any:
    return find_config(
        name, size, vocab_size, n_layers=LAYERS, max_len=max_len, decided=dict(decided)
    )


def train_model(
    build: Callable[[], NeuralLanguageModel],
    batch_at: Callable[[int], Batch],
    steps: int,
    seed: int,
    *,
    on_progress: OnProgress = lambda positions: None,
    watch: Watch = lambda step, nats, model: None,
    **settings: Any,
) -> NeuralLanguageModel:
    """Train the model that `build` returns, step i on `batch_at(i)`, with the trainer's defaults
    unless `settings` of its recipe change them.

    `watch` is called with each step's loss before the gradients are used, `on_progress` after each
    step.
    """
    recipe = TrainRecipe(**{"device": "cpu", "compile": "off"} | settings, steps=steps, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed))
        model = build()
        stepper = Stepper(model.train(), recipe, NextTokenObjective, world=ALONE)
        for step in range(steps):
            torch.manual_seed(seed_of(seed, step))
            batch = batch_at(step)
            nats = stepper.gradient([batch], batch.symbols)
            norm = stepper.norm()
            if not bool(torch.isfinite(norm)):
                raise UserError(f"{type(model).__name__}: step {step}: the gradient is not finite")
            watch(step, float(nats.sum()) / batch.symbols, model)
            stepper.optimizer.set_rates(factor(recipe.schedule, step, steps, recipe.warmup))
            stepper.update(norm)
            on_progress(batch.ids.numel())
    return model.eval()


def fit_hmm(
    shard: Shard,
    config: HiddenMarkovConfig,
    iterations: int,
    seed: int,
    on_progress: OnProgress = lambda positions: None,
) -> HiddenMarkov:
    """Return a hidden Markov model after so many EM iterations, or fewer once it has converged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = HiddenMarkov(shard.vocab_size, config)
    state = EMState()
    for _ in range(iterations):
        state.add(model.improve(shard).objective)
        on_progress(shard.tokens)
        if state.converged:
            break
    return model


# Measurements


def entropy_bits(weights: Tensor) -> Tensor:
    """Return the entropy (...) in bits of attention weights (..., S)."""
    logs = torch.where(weights > 0, weights, 1.0).log2()
    return -(weights * logs).sum(-1)


def mean_loss(model: NeuralLanguageModel, batch: Batch) -> float:
    with torch.no_grad():
        return -float(model.score(batch.ids, batch.targets).double().mean())


def last_symbol_accuracy(
    model: NeuralLanguageModel, batch: Batch, chunk: int = 1 << 30
) -> Proportion:
    """Return how often the target after the last position is the most probable symbol."""
    device, n_right = next(model.parameters()).device, 0
    with torch.no_grad():
        for ids, targets in zip(batch.ids.split(chunk), batch.targets.split(chunk), strict=True):
            predictions = model.head(model(ids.to(device))[:, -1]).argmax(-1)
            n_right += int((predictions.cpu() == targets[:, -1]).sum())
    return Proportion(n_right, len(batch.ids))
