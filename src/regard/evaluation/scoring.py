"""Log-probabilities of the tokens of a shard, and mean losses with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import windows
from regard.data.shards import Shard
from regard.decoding.engine import gpu_lock
from regard.layers.embeddings import Inputs
from regard.models.language_model import Constrain, LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.tokenizers import Tokenizer

BATCH_TOKENS = 8192  # positions scored at once,
GPU_BATCH_TOKENS = 65536  # and on a GPU, which small batches would leave idle


class MeanLoss(NamedTuple):
    """A loss per symbol or per target, and its standard error over the records."""

    value: float
    error: float | None  # None: a single record has no standard error

    def to_json(self) -> dict[str, float]:
        if self.error is None or not math.isfinite(self.error):
            return {}
        return {"standard_error": self.error}


class Stopped(Exception):
    """Raised inside an evaluation that was asked to stop."""


class Processes(Protocol):
    """The processes that share an evaluation (training.distributed.ProcessGroup)."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        ...


@dataclass(frozen=True)
class SingleProcess:
    """One process that does all the work."""

    rank: int = 0
    size: int = 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor


@torch.inference_mode()
def log_probs(
    model: LanguageModel | Seq2SeqModel,
    shard: Shard,
    tokenizer: Tokenizer,
    *,
    stride: int = 0,
    constrain: Constrain | None = None,
    stop: Callable[[], object] = bool,
    world: Processes | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the natural log-probability of every token of `shard.ids`, and which were scored.

    `<S>` is never scored. Running text and long records go through windows of the model's max_len
    that advance by `stride` (0: half of it). `stop` is called between batches; if it returns a true
    value, Stopped is raised. The processes of `world` take batches in turn, and each returns all
    values. Sources longer than max_len are cut, as in translation.
    """
    world, max_len = world or SingleProcess(), int(model.config.max_len)
    values, scored = np.zeros(shard.tokens), np.zeros(shard.tokens, dtype=bool)
    device = next((t.device for t in model.state_dict().values()), torch.device("cpu"))
    cut_sources = shard.source is None or shard.source.cuttable
    batches = windows(
        shard,
        tokenizer,
        max_len=max_len,
        stride=stride or max(1, max_len // 2),
        batch_tokens=max(GPU_BATCH_TOKENS if device.type == "cuda" else BATCH_TOKENS, max_len),
        supports_packing=model.supports_packing,
    )
    was_training = model.training
    model.eval()
    try:
        for i, batch in enumerate(batches):
            if i % world.size == 0 and stop():
                raise Stopped
            targets = batch.positions >= 0
            positions = batch.positions[targets].numpy()
            scored[positions] = True
            if i % world.size != world.rank:
                continue
            with gpu_lock(device):
                source = batch.source
                if source is not None:
                    source = (_cut_source(source, max_len) if cut_sources else source).to(device)
                segments = None if batch.segments is None else batch.segments.to(device)
                language_model = model.condition(source)  # type: ignore[arg-type]  # None: no pairs
                inputs = batch.ids.to(device), batch.targets.to(device), segments
                scores = language_model.score(*inputs, constrain=constrain).cpu()
            values[positions] = scores[targets].double().numpy()
    finally:
        model.train(was_training)
    world.sum(torch.from_numpy(values))  # in place; all but one process add 0 to a value
    return values, scored


def _cut_source(source: Inputs, max_len: int) -> Inputs:
    """Cut a source of more than `max_len` tokens, which is alone in its batch; keep its `<E>`."""
    length = int(source.segments.count_nonzero())
    if len(source.ids) > 1 or length <= max_len or int(source.segments.max()) > 1:
        return source
    positions = torch.tensor([*range(max_len - 1), length - 1])
    return Inputs(source.ids[:, positions], source.segments[:, positions])


def mean_loss(losses: NDArray[np.float64], counts: NDArray[np.float64]) -> MeanLoss:
    """Return the sum of (U,) losses over the sum of (U,) counts, with the standard error of a ratio
    (Cochran 1977, section 2.11).
    """
    total = max(1.0, float(counts.sum()))
    value, units = float(losses.sum()) / total, len(losses)
    if units < 2 or not math.isfinite(value):
        return MeanLoss(value, None)
    residuals = losses - value * counts
    variance = units / (units - 1) * float(residuals @ residuals)
    return MeanLoss(value, math.sqrt(variance) / total)


def symbol_loss(
    values: NDArray[np.float64], scored: NDArray[np.bool_], shard: Shard, tokenizer: Tokenizer
) -> MeanLoss:
    """Return the negative log-likelihood per raw symbol, `<E>` being one; infinite if a symbol has
    probability 0. The standard error is over records, or over blocks of running text.
    """
    symbols = np.where(scored, tokenizer.symbols[np.asarray(shard.ids)], 0).astype(np.float64)
    nats = np.where(scored, -values, 0.0)
    starts = np.asarray(shard.offsets[:-1])
    return mean_loss(np.add.reduceat(nats, starts), np.add.reduceat(symbols, starts))


def truncate_shard(shard: Shard, tokens: int) -> Shard:
    """Return about the first `tokens` of a shard: whole records, one at least, or cut text."""
    if tokens >= shard.tokens:
        return shard
    if shard.is_text:
        tokens = max(2, tokens)
        records = int(np.searchsorted(shard.offsets, tokens))
        return _truncate(shard, np.append(shard.offsets[:records], tokens))
    records = max(1, int(np.searchsorted(shard.offsets, tokens, side="right")) - 1)
    records = max(1, records // shard.views) * shard.views
    return _truncate(shard, np.asarray(shard.offsets[: records + 1]))


def _truncate(shard: Shard, offsets: NDArray[np.int64]) -> Shard:
    """Cut a shard and its source after the last of these offsets, without copying."""
    size, records, source, targets = int(offsets[-1]), len(offsets) - 1, shard.source, shard.targets
    if targets is not None:
        targets = targets[: size if shard.aligned else records]
    if source is not None:
        source = _truncate(source, np.asarray(source.offsets[: records + 1]))
    return replace(
        shard,
        ids=shard.ids[:size],
        offsets=offsets,
        records=records,
        tokens=size,
        symbols=0,
        bytes=0,
        source=source,
        targets=targets,
    )
