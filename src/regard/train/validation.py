"""Measuring a model on a shard: every symbol scored once, in natural logarithms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.data.batching import windows
from regard.data.questions import Asked
from regard.data.shards import Shard
from regard.layers.source import Source
from regard.models.language_model import Constrain, LanguageModel
from regard.models.translator import Translator
from regard.tokens import Tokenizer
from regard.train.distributed import ALONE, World

BATCH_TOKENS = 8192  # positions scored at once,
MANY_TOKENS = 65536  # and on a GPU, which small batches would leave idle


class Stopped(Exception):
    """Raised inside a measurement that was asked to stop."""


@torch.inference_mode()
def log_probs(
    model: LanguageModel | Translator,
    shard: Shard,
    tokenizer: Tokenizer,
    *,
    stride: int = 0,
    constrain: Constrain | None = None,
    stop: Callable[[], object] = bool,
    world: World = ALONE,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The natural log-probability of every token of `shard.ids`, and which of them were scored.

    `<S>` is never scored. Running text and long records go through windows of the model's max_len
    that advance by `stride` (0: half of it). Between batches `stop` is asked, and a true answer
    raises Stopped. The processes of a world take batches in turn; each gets all the values. What a
    translator cannot read of a long source (max_len) is left out, as when it translates.
    """
    max_len = model.config.max_len
    values, scored = np.zeros(shard.tokens), np.zeros(shard.tokens, dtype=bool)
    device = next((t.device for t in model.state_dict().values()), torch.device("cpu"))
    was_training = model.training
    model.eval()
    stream = windows(
        shard,
        tokenizer,
        max_len=max_len,
        stride=stride or max(1, max_len // 2),
        batch_tokens=max(MANY_TOKENS if device.type == "cuda" else BATCH_TOKENS, max_len),
        packs=model.packs,
    )
    for i, batch in enumerate(stream):
        if i % world.size == 0 and stop():
            model.train(was_training)
            raise Stopped
        wanted = batch.positions >= 0
        at = batch.positions[wanted].numpy()
        scored[at] = True
        if i % world.size != world.rank:
            continue
        segments = None if batch.segments is None else batch.segments.to(device)
        speaks: LanguageModel = spoken(model, batch.source, device)
        scores = speaks.score(
            batch.ids.to(device), batch.targets.to(device), segments, constrain=constrain
        )
        values[at] = scores.cpu()[wanted].double().numpy()
    model.train(was_training)
    world.sum(torch.from_numpy(values))  # in place; all but one add nothing to a value
    return values, scored


def spoken(
    model: LanguageModel | Translator, source: Source | None, device: torch.device
) -> LanguageModel:
    """The language model to ask: a translator once it has read the source."""
    if isinstance(model, Translator):
        if source is None:
            raise ValueError("a translator is measured on pairs, but the shard has no source")
        return model.given(readable(source, int(model.config.max_len)).to(device))
    return model


def readable(source: Source, most: int) -> Source:
    """The sources of a batch as a translator reads them, up to `most` tokens with the end: one that
    has more, which makes a batch of its own, keeps its first and its end.
    """
    length = int(source.segments.count_nonzero())
    if len(source.ids) > 1 or length <= most or int(source.segments.max()) > 1:
        return source  # several, each of which fits
    if source.ids.dim() == 3:
        return source  # a picture is read whole
    kept = torch.tensor([*range(most - 1), length - 1])
    return Source(source.ids[:, kept], source.segments[:, kept])


def beginning(shard: Shard, tokens: int) -> Shard:
    """About the first `tokens` of a shard: whole records, at least one, or text cut there."""
    if tokens >= shard.tokens:
        return shard
    if shard.kind == "text":
        tokens = max(2, tokens)
        records = int(np.searchsorted(shard.offsets, tokens))
        offsets = np.append(shard.offsets[:records], tokens)
    else:
        records = max(1, int(np.searchsorted(shard.offsets, tokens, side="right")) - 1)
        records = max(1, records // shard.views) * shard.views
        offsets = np.asarray(shard.offsets[: records + 1])
    return _cut(shard, offsets)


def _cut(shard: Shard, offsets: NDArray[np.int64]) -> Shard:
    """The beginning of a shard, and of its source, up to the last of these offsets."""
    size, source, targets = int(offsets[-1]), shard.source, shard.targets
    if targets is not None:
        targets = targets[: size if len(targets) == shard.tokens else len(offsets) - 1]
    if source is not None:
        source = _cut(source, np.asarray(source.offsets[: len(offsets)]))
    return dataclasses.replace(
        shard,
        ids=shard.ids[:size],
        offsets=offsets,
        records=len(offsets) - 1,
        tokens=size,
        symbols=0,
        bytes=0,
        source=source,
        targets=targets,
    )


@torch.inference_mode()
def cost_per_answer(
    objective: nn.Module,
    asked: Asked,
    device: torch.device,
    *,
    stop: Callable[[], object] = bool,
    world: World = ALONE,
) -> float:
    """What the targets of a shard cost, on average; see `Answers`. As in `log_probs`, processes
    take batches in turn.
    """
    was_training = objective.training
    objective.eval()
    total, count = torch.zeros(1, dtype=torch.float64), 0
    for i, batch in enumerate(asked.batches(BATCH_TOKENS)):
        if i % world.size == 0 and stop():
            objective.train(was_training)
            raise Stopped
        count += batch.symbols
        if i % world.size == world.rank:
            there = [None if x is None else x.to(device) for x in batch.tensors()]
            total += float(objective(*there)[1])
    objective.train(was_training)
    return float(world.sum(total)) / max(1, count)


def nats_per_symbol(
    values: NDArray[np.float64], scored: NDArray[np.bool_], shard: Shard, tokenizer: Tokenizer
) -> float:
    """Total negative log-likelihood over raw symbols, `<E>` being one; infinite if impossible."""
    symbols = int(tokenizer.symbols[np.asarray(shard.ids)[scored]].sum())
    return float(-values[scored].sum() / max(1, symbols))
