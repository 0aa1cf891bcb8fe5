"""Measuring a model on a shard: every symbol scored once, in natural logarithms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.data.batching import LabelledExamples, windows
from regard.data.shards import Shard
from regard.decoding.engine import computing
from regard.layers.embeddings import Inputs
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.tokenizers import Tokenizer
from regard.training.distributed import ALONE, ProcessGroup

BATCH_TOKENS = 8192  # positions scored at once,
MANY_TOKENS = 65536  # and on a GPU, which small batches would leave idle


GROUPS = 20  # random parts of a sample whose losses tell how exact their mean is


class MeanLoss(NamedTuple):
    """A loss per symbol or per target, and its standard error over the records it is a mean of."""

    value: float
    error: float | None  # None where it cannot be told: a single record

    def to_json(self) -> dict[str, float]:
        """For metrics.jsonl."""
        known = self.error is not None and math.isfinite(self.error)
        return {"standard_error": self.error} if known and self.error is not None else {}


class Stopped(Exception):
    """Raised inside a measurement that was asked to stop."""


@torch.inference_mode()
def log_probs(
    model: LanguageModel | Seq2SeqModel,
    shard: Shard,
    tokenizer: Tokenizer,
    *,
    stride: int = 0,
    constrain: Constrain | None = None,
    stop: Callable[[], object] = bool,
    world: ProcessGroup = ALONE,
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
        supports_packing=model.supports_packing,
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
        with computing(device):
            segments = None if batch.segments is None else batch.segments.to(device)
            speaks: LanguageModel = spoken(model, batch.source, device)
            ids, targets = batch.ids.to(device), batch.targets.to(device)
            scores = speaks.score(ids, targets, segments, constrain=constrain).cpu()
        values[at] = scores[wanted].double().numpy()
    model.train(was_training)
    world.sum(torch.from_numpy(values))  # in place; all but one add nothing to a value
    return values, scored


def spoken(
    model: LanguageModel | Seq2SeqModel, source: Inputs | None, device: torch.device
) -> LanguageModel:
    """The language model to ask: a translator once it has read the source."""
    if isinstance(model, Seq2SeqModel):
        if source is None:
            raise ValueError("a translator is measured on pairs, but the shard has no source")
        return model.condition(readable(source, int(model.config.max_len)).to(device))
    return model


def readable(source: Inputs, most: int) -> Inputs:
    """The sources of a batch as a translator reads them, up to `most` tokens with the end: one that
    has more, which makes a batch of its own, keeps its first and its end.
    """
    length = int(source.segments.count_nonzero())
    if len(source.ids) > 1 or length <= most or int(source.segments.max()) > 1:
        return source  # several, each of which fits
    if source.ids.dim() == 3:
        return source  # a picture is read whole
    kept = torch.tensor([*range(most - 1), length - 1])
    return Inputs(source.ids[:, kept], source.segments[:, kept])


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
def loss_per_target(
    objective: nn.Module,
    asked: LabelledExamples,
    device: torch.device,
    *,
    stop: Callable[[], object] = bool,
    world: ProcessGroup = ALONE,
) -> MeanLoss:
    """Return the mean loss of the targets of a shard; see `SupervisedObjective`. As in `log_probs`,
    processes take batches in turn.

    Records are measured in GROUPS parts, every twentieth record in one of them: how far the losses
    of the parts lie from each other gives the standard error, whatever a record's loss is made of.
    """
    was_training = objective.training
    objective.eval()
    every = np.arange(len(asked.sizes))
    groups = min(GROUPS, len(every))
    sums = torch.zeros(2, groups, dtype=torch.float64)  # losses, and how many targets they are of
    turn = 0
    for group in range(groups):
        for batch in asked.batches(BATCH_TOKENS, every[group::groups]):
            if turn % world.size == 0 and stop():
                objective.train(was_training)
                raise Stopped
            sums[1, group] += batch.symbols
            if turn % world.size == world.rank:
                there = [None if x is None else x.to(device) for x in batch.tensors()]
                sums[0, group] += float(objective(*there)[1])
            turn += 1
    objective.train(was_training)
    losses = world.sum(sums[0]).numpy()
    return mean_loss(losses, sums[1].numpy())


def mean_loss(losses: NDArray[np.float64], counts: NDArray[np.float64]) -> MeanLoss:
    """Return the sum of (U,) losses over the sum of (U,) counts, with the standard error of a ratio
    (Cochran 1977, section 2.11).
    """
    total = max(1.0, float(counts.sum()))
    value, units = float(losses.sum()) / total, len(losses)
    if units < 2 or not math.isfinite(value):
        return MeanLoss(value, None)
    rest = losses - value * counts
    return MeanLoss(value, math.sqrt(units / (units - 1) * float(rest @ rest)) / total)


def nats_per_symbol(
    values: NDArray[np.float64], scored: NDArray[np.bool_], shard: Shard, tokenizer: Tokenizer
) -> MeanLoss:
    """Return the negative log-likelihood per raw symbol, `<E>` being one; infinite if impossible.
    The standard error is over records, or over blocks of running text.
    """
    symbols = np.where(scored, tokenizer.symbols[np.asarray(shard.ids)], 0).astype(np.float64)
    nats = np.where(scored, -values, 0.0)
    begins = np.asarray(shard.offsets[:-1])
    return mean_loss(np.add.reduceat(nats, begins), np.add.reduceat(symbols, begins))
