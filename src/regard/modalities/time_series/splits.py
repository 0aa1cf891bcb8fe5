"""Splits of series by time: the first steps train, the last ones test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.sources import SourceChunk
from regard.errors import UsageError
from regard.modalities.time_series.files import Series, SeriesFiles
from regard.modalities.time_series.times import parse_times

SPLITS = 3
YEARS = range(1800, 2200)  # borders that are years, not numbers of steps


class SplitSeries(SeriesFiles):
    """Series whose ends are held out. `borders` are the ends of the three splits, as numbers of
    steps or as times; without them, the given fractions of every series.
    """

    continuous = True

    def __init__(
        self, paths: Sequence[Path], columns: Any, *, borders: Sequence[str] = (), **options: Any
    ) -> None:
        super().__init__(paths, columns, **options)
        self.borders = tuple(borders)
        if len(self.borders) not in (0, 2, SPLITS):
            raise UsageError(
                "input.borders must be the ends of training and validation, and maybe of test, "
                f"got {len(self.borders)}: {', '.join(self.borders)}"
            )

    def stretches(
        self, fractions: Sequence[float], train_fraction: float = 1.0
    ) -> Iterator[SourceChunk]:
        """Yield each series in parts that follow one another; every split has a part of every
        series. Of the training part, the last `train_fraction` is used.
        """
        for chunk in self.records():
            items: Sequence[Any] = chunk.texts
            for series in items:
                ends = self._ends(series, fractions)
                first = round((1 - train_fraction) * ends[0])
                parts = [(first, ends[0]), (ends[0], ends[1]), (ends[1], ends[2])]
                for split, (start, end) in enumerate(parts):
                    if split == 0 or end > start:
                        yield SourceChunk(split, [part_of(series, start, end)])

    def _ends(self, series: Series, fractions: Sequence[float]) -> tuple[int, int, int]:
        """Return the number of steps up to the end of each split."""
        length = len(series)
        if self.borders:
            given = [self._position(series, border) for border in self.borders]
            ends = np.clip([*given, length][:SPLITS], 0, length)
            if (np.diff(ends) < 0).any() or ends[0] < 1:
                raise UsageError(
                    f"input.borders must rise, and leave steps to train on; {self.borders} are the "
                    f"steps {', '.join(map(str, ends))} of {length:,}"
                )
            return int(ends[0]), int(ends[1]), int(ends[2])
        valid, test = fractions
        last = length - round(test * length)
        return last - round(valid * length), last, length

    def _position(self, series: Series, border: str) -> int:
        """Return the number of steps before a border."""
        if border.isdecimal() and not (len(border) == 4 and int(border) in YEARS):
            return int(border)
        dated = f"{border}-01" if len(border) == 4 and series.step.dated else border
        times = parse_times([dated])
        if len(times.bad) or times.dated != series.step.dated:
            raise UsageError(f"input.borders: {border!r} is neither a number of steps nor a time")
        return int(np.searchsorted(series.times, times.values[0]))


def part_of(series: Series, begin: int, end: int) -> Series:
    """Return some steps of a series."""
    start = series.step.times(series.start, 1, skip=begin)[0]
    values, known = series.values[begin:end], series.known[begin:end]
    return replace(series, values=values, known=known, start=start)
