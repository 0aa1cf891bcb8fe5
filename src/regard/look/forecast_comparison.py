"""What the page of `regard compare` shows of forecasters: the forecasts of all rows, window by
window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.sources import DataSource
from regard.errors import UserError
from regard.evaluation.comparison import Comparison
from regard.evaluation.forecasting import WindowSample
from regard.look.page import Forecasts, Page
from regard.run import Run

VISIBLE = 4  # rows, the best, whose forecasts are drawn when the page opens


def add_forecasts(page: Page, comparison: Comparison) -> None:
    """Draw the forecasts of all rows on windows that the reader chooses."""
    results: dict[str, Any] = {row.model: row.predictions for row in comparison.rows}
    best = next(iter(results.values()))
    sample: WindowSample = best.sample
    points = {
        name: result.sample.point
        for name, result in results.items()
        if result.sample.point.shape == sample.point.shape
        and np.array_equal(result.sample.positions, sample.positions)
    }
    count, total = len(sample.positions), best.records
    which = f"{count:,} of {total:,}" if count < total else f"All {count:,}"
    times, labels, note = read_times(Run(comparison.rows[0].runs[0]), sample)
    page.section(
        "Forecasts",
        f"{which} windows of the {comparison.split} split: the slider, also with arrow keys, "
        "moves to another, and the names switch models on and off. Beside each is its mean "
        f"absolute error in this window. {note}".rstrip(),
    )
    page.add(
        Forecasts(
            names=list(points),
            targets=best.columns[: sample.truth.shape[2]],
            forecasts=np.stack(list(points.values())),
            history=sample.history,
            truth=sample.truth,
            times=times,
            labels=labels,
            visible=VISIBLE,
            title="Forecasts of a window",
        )
    )


def read_times(run: Run, sample: WindowSample) -> tuple[NDArray[Any], list[str], str]:
    """Return the time of each step of a sample's windows (N, P + H), the name of the series of each
    window, empty if there is one, and a note.

    Shards have no times: they are read from the files of a run once more. Where these are gone,
    steps are numbered.
    """
    before, length = sample.history.shape[1], sample.history.shape[1] + sample.truth.shape[1]
    first = sample.positions - before
    try:
        chunks = DataSource.of(run.recipe).chunks()
        series: list[Any] = [chunk.texts[0] for chunk in chunks if chunk.split == 0]
        pairs = [(series[i], int(n)) for i, n in zip(sample.series, first, strict=True)]
    except (UserError, OSError, IndexError):
        note = "The files of the data are not there any more: steps are numbered."
        return first[:, None] + np.arange(length), [], note
    times = np.stack([one.step.times(one.start, length, skip=n) for one, n in pairs])
    return times, [one.name for one, _ in pairs] if len(series) > 1 else [], ""
