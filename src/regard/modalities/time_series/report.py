"""What `regard data` says of time series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.sources import DataSource

SHOWN = 12  # columns listed


@dataclass(frozen=True, kw_only=True)
class SeriesReport:
    """What `inspect_series` found."""

    format: str
    why: str
    task: str
    series: int
    steps: int  # of the longest series
    step: str
    start: str
    season: int
    columns: dict[str, dict[str, float]]  # of each target: mean, deviation, share missing
    remarks: tuple[str, ...]
    damaged: int = 0  # cells
    problems: tuple[str, ...] = ()  # the first of them

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        rows = [
            ("read as", self.why),
            ("series", f"{self.series:,} of up to {self.steps:,} steps, from {self.start}"),
            ("step", self.step),
            (
                "season",
                f"{self.season} steps (by autocorrelation)" if self.season else "none found",
            ),
        ]
        for name, facts in list(self.columns.items())[:SHOWN]:
            missing = f", {facts['missing']:.1%} missing" if facts["missing"] else ""
            rows.append((name, f"mean {facts['mean']:.4g} ± {facts['deviation']:.4g}{missing}"))
        if len(self.columns) > SHOWN:
            rows.append(("", f"and {len(self.columns) - SHOWN:,} more columns"))
        if self.damaged:
            rows.append(("damaged", f"{self.damaged:,}; first: {self.problems[0]}"))
        rows += [("note", line) for line in self.remarks]
        rows.append(("try", f"regard train FILE --horizon {self.season or 24}  ({self.task})"))
        return rows

    def render(self, print_table: Callable[..., None]) -> None:
        """Print the rows."""
        print_table(["", ""], self.rows())

    def to_json(self) -> dict[str, Any]:
        """Return the document of `regard data --json`."""
        return {
            "records": self.series,
            "symbols": self.steps,
            "format": self.format,
            "step": self.step,
            "season": self.season,
            "columns": self.columns,
            "damaged": self.damaged,
            "remarks": list(self.remarks),
            "suggestion": {"task": "forecast", "why": self.task},
        }


def inspect_series(sources: DataSource, why: str) -> SeriesReport:
    """Return what the training files hold."""
    items: list[Any] = [series for chunk in sources.train.records() for series in chunk.texts]
    longest = max(items, key=len)
    values = np.concatenate([series.values for series in items])
    columns = {}
    for i, name in enumerate(longest.columns):
        known = values[:, i][np.isfinite(values[:, i])]
        columns[name] = {
            "mean": float(known.mean()) if len(known) else 0.0,
            "deviation": float(known.std()) if len(known) else 0.0,
            "missing": 1 - len(known) / max(1, len(values)),
        }
    return SeriesReport(
        format=sources.train.format,
        why=sources.train.why,
        task=why,
        series=len(items),
        steps=len(longest),
        step=str(longest.step.name),
        start=longest.times_after(0, 1)[0],
        season=longest.season,
        columns=columns,
        remarks=tuple(sources.remarks),
        damaged=sources.train.skipped,
        problems=tuple(sources.train.problems),
    )
