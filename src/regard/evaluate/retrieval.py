"""Does a captioner know which caption belongs to which picture? Each is scored with every other.

Recall at k is the share of pictures whose caption is among the first k of all captions, and of
captions whose picture is among the first k of all pictures, in per cent. Captions are ranked for a
picture by how much likelier it makes them than the pictures do on average, log P(c | p) less the
logarithm of the mean of P(c | p'), or else short ones would be everyone's first; pictures are
ranked for a caption by log P(c | p) alone. What is told alike is right wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.decode.engine import evaluating
from regard.decode.workspace import device_of
from regard.evaluate.estimates import Estimate
from regard.evaluate.intervals import resampled_sums
from regard.interpreter import Interpreter
from regard.layers.source import Source
from regard.models.language_model import IGNORE

FIRST = (1, 5)  # of the ranks that count
TOGETHER = 1 << 14  # positions scored at once

Floats = NDArray[np.float64]


def scores(interpreter: Interpreter, pairs: Shard) -> tuple[Floats, list[tuple[int, ...]]]:
    """(N, M) log P of each of M different captions given each of N pictures, and the captions."""
    assert pairs.source is not None
    told = dict.fromkeys(tuple(pairs.record(i)[1:].tolist()) for i in range(pairs.records))
    captions = sorted(told, key=len)
    start, table, device = interpreter.tokenizer.start, [], device_of(interpreter.model)
    rows = max(1, TOGETHER // len(captions[-1]))
    parts = [rectangle(captions[i : i + rows], start) for i in range(0, len(captions), rows)]
    with evaluating(interpreter.model), torch.inference_mode():
        for number in range(pairs.records):
            ids = torch.from_numpy(np.array(pairs.source.record(number)))[None].to(device)
            there = torch.ones(ids.shape[:2], dtype=torch.int64, device=device)
            given = interpreter.model.given(Source(ids, there))
            logs = [given.score(x.to(device), y.to(device)).double().sum(1) for x, y in parts]
            table.append(torch.cat(logs).cpu())
    return torch.stack(table).numpy(), captions


def rectangle(captions: Sequence[tuple[int, ...]], start: int) -> tuple[Tensor, Tensor]:
    """(M, T) ids and targets of captions that end with `<E>`."""
    longest = max(map(len, captions))
    targets = torch.full((len(captions), longest), IGNORE)
    for row, caption in enumerate(captions):
        targets[row, : len(caption)] = torch.tensor(caption)
    ids = torch.cat((torch.full((len(captions), 1), start), targets[:, :-1]), 1)
    return ids.clamp_min(0), targets


def recall(interpreter: Interpreter, pairs: Shard) -> dict[str, Estimate]:
    """`caption_1`, `caption_5`, `picture_1` and `picture_5`, each over the pictures of pairs."""
    logs, captions = scores(interpreter, pairs)
    places = {caption: i for i, caption in enumerate(captions)}
    right = [places[tuple(pairs.record(i)[1:].tolist())] for i in range(pairs.records)]
    return recall_of(logs, np.array(right))


def recall_of(logs: Floats, right: NDArray[np.int64]) -> dict[str, Estimate]:
    """The same of log P (N, M), where caption right[i] belongs to picture i.

    The rank of what is right is one more than how many others are better; ties count against it.
    """
    count = len(logs)
    own = logs[np.arange(count), right]  # (N,)
    likelier = logs - (np.logaddexp.reduce(logs, axis=0) - math.log(count))
    mine = likelier[np.arange(count), right]
    better = likelier >= mine[:, None]  # (N, M), the right one among them
    ranks = {"caption": better.sum(1)}
    alike = right[:, None] == right[None]  # pictures that are told alike
    rivals = (own[:, None] <= logs[:, right].T) & ~alike  # (N, N): picture j for caption of i
    ranks["picture"] = 1 + rivals.sum(1)
    return {
        f"{name}_{k}": _share(rank <= k, f"{count:,} pictures")
        for name, rank in ranks.items()
        for k in FIRST
    }


def _share(found: NDArray[np.bool_], data: str) -> Estimate:
    """How many of them are, in per cent."""
    table = np.stack([found, np.ones_like(found)], 1).astype(np.float64)
    sums = resampled_sums(table)
    samples = 100 * sums[:, 0] / sums[:, 1]
    return Estimate(100 * float(found.mean()), samples, data, digits=1)
