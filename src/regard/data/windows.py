"""Windows of time series: the steps that a forecaster reads, and those after them that it predicts.

The splits of a corpus are consecutive stretches of every series. Joined again, a window is the
number of its first step: nothing is copied until a batch is read. The targets of a window lie in
one split. Its look-back may read the end of the split before, as a forecaster in use does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import Batch, Order
from regard.data.shards import Array, Shard
from regard.errors import UserError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Windows(Shard):
    """The windows of a split as a shard: a record is a window of `lookback` + `horizon` steps, and
    one symbol.

    `ids` (N, V) are all series, one after the other, and `starts` the first steps of the windows.
    """

    starts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    lookback: int = 0
    horizon: int = 0
    series: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # the number of each
    begins: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # first step of each series

    @property
    def length(self) -> int:
        """Steps of a window."""
        return self.lookback + self.horizon

    @property
    def has_records(self) -> bool:
        return True

    @property
    def cuttable(self) -> bool:
        return False

    def record(self, number: int) -> Array:
        start = int(self.starts[number])
        return np.asarray(self.ids[start : start + self.length])

    def take(self, records: Array) -> Windows:
        starts = self.starts[records]
        count = len(starts)
        return replace(
            self,
            starts=starts,
            series=self.series[records],
            offsets=np.arange(count + 1) * self.length,
            records=count,
            tokens=count * self.length,
            symbols=count,
        )

    @property
    def positions(self) -> Ints:
        """The position of the first target of each window in its series, (R,)."""
        positions: Ints = self.starts + self.lookback - self.begins[self.series]
        return positions

    def batches(self, count: int) -> Iterator[Windows]:
        """Yield the windows in order, `count` at a time."""
        for first in range(0, self.records, count):
            yield self.take(np.arange(first, min(first + count, self.records)))

    def read(self) -> Array:
        """Return the numbers of all windows, (R, L + H, V)."""
        steps = np.arange(self.length)
        return np.asarray(self.ids[self.starts[:, None] + steps])


def join_splits(
    shards: Mapping[str, Shard | None], lookback: int, horizon: int, n_channels: int
) -> dict[str, Shard | None]:
    """Return the windows of each split; None for a split that has none.

    Record i of every shard is the stretch of series i in that split. Windows without any observed
    target, or without any observed step to read, are left out.
    """
    present = {name: shard for name, shard in shards.items() if shard is not None}
    first = next(iter(present.values()))
    lengths = np.stack([np.diff(np.asarray(shard.offsets)) for shard in present.values()])  # (S, R)
    values = np.concatenate(
        [shard.record(i) for i in range(first.records) for shard in present.values()]
    )
    ends = np.cumsum(lengths.T.ravel()).reshape(lengths.T.shape)  # (R, S) in the joined array
    begins = ends - lengths.T
    observed = np.concatenate([[0], np.cumsum(~np.isnan(values[:, :n_channels]).all(1))])
    result: dict[str, Shard | None] = dict.fromkeys(shards)
    for column, (name, shard) in enumerate(present.items()):
        low = np.maximum(begins[:, column], begins[:, 0] + lookback)
        parts = [np.arange(a, b - horizon + 1) for a, b in zip(low, ends[:, column], strict=True)]
        series = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        targets = np.concatenate(parts) if parts else np.empty(0, np.int64)
        has_targets = observed[targets + horizon] > observed[targets]
        has_past = observed[targets] > observed[np.maximum(targets - lookback, 0)]
        usable = has_targets & has_past
        starts = (targets - lookback)[usable].astype(np.int64)
        if len(starts):
            windows = _windows(shard, values, starts, series[usable], lookback, horizon)
            result[name] = replace(windows, begins=begins[:, 0])
    if result.get("train") is None:
        longest = int(lengths[0].max())
        raise UserError(
            f"the training part has at most {longest:,} steps, and a window needs {lookback:,} to "
            f"read and {horizon:,} to predict: lower --lookback or --horizon, or give more data"
        )
    return result


def _windows(
    shard: Shard, values: Array, starts: Ints, series: Ints, lookback: int, horizon: int
) -> Windows:
    count = len(starts)
    return Windows(
        path=shard.path,
        kind="records",
        ids=values,
        offsets=np.arange(count + 1) * (lookback + horizon),
        vocab_size=shard.vocab_size,
        records=count,
        tokens=count * (lookback + horizon),
        symbols=count,
        bytes=0,
        starts=starts,
        lookback=lookback,
        horizon=horizon,
        series=series,
    )


class WindowLoader:
    """Training batches of windows, a pure function of the data, the arguments and the step.

    `batch_tokens` are the steps of time that a batch reads and predicts, and `micro_tokens` the
    most at once, in whole windows. A batch holds the first steps of its windows, no values: the
    objective reads those on the device.
    """

    running, dropped, windowed, padding, few_shapes = False, 0, 0, 0.0, True

    def __init__(
        self, windows: Windows, *, batch_tokens: int, seed: int, micro_tokens: int = 0
    ) -> None:
        self.windows, self.items = windows, windows.records
        self.items_per_step = min(self.items, max(1, round(batch_tokens / windows.length)))
        self.at_once = max(1, micro_tokens // windows.length) if micro_tokens else self.items
        self.order = Order(self.items, seed)

    @property
    def steps_per_epoch(self) -> float:
        return self.items / self.items_per_step

    def step(self, n: int, rank: int = 0, world: int = 1) -> list[Batch]:
        """Return the micro-batches of step n on one of `world` processes."""
        records = self.order(self._positions(n, rank, world))
        parts = range(0, len(records), self.at_once)
        return [batch_of(self.windows.take(records[i : i + self.at_once])) for i in parts]

    def records_of(self, n: int, rank: int = 0, world: int = 1) -> list[int]:
        """Return the sorted numbers of the windows of step n."""
        return sorted(self.order(self._positions(n, rank, world)).tolist())

    def _positions(self, n: int, rank: int, world: int) -> Ints:
        first = n * self.items_per_step
        return np.arange(first + rank, first + self.items_per_step, world)


def batch_of(windows: Windows) -> Batch:
    """Return a batch of the first steps of windows, (B, 1)."""
    starts = torch.from_numpy(windows.starts)[:, None]
    return Batch(
        ids=starts,
        targets=torch.zeros_like(starts),
        segments=None,
        items=windows.starts,
        tokens=windows.records,
        symbols=windows.records,
    )
