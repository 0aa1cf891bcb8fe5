"""*Errors*: which records a model gets wrong. The confusion matrix, records in any order, slices
with intervals, and plots of residuals or reliability, over the held-out records of a run.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.studio.screens import (
    Screen,
    action,
    check_arguments,
    check_range,
    figure,
    register_screen,
)

if TYPE_CHECKING:
    from regard.evaluation.record_errors import RecordErrors

MOST_ROWS = 100  # of one page of records
MOST_EXPORTED = 50_000
MOST_CLASSES = 30  # rows of the confusion matrix
MOST_WORDS = 8
SHOWN = 2000  # characters of a text


@register_screen("errors", title="Errors")
class ErrorList(Screen):
    """The held-out records of a run, the worst first."""

    def table(self, run: str) -> RecordErrors:
        """Return all records, evaluated once."""
        from regard.look.record_table import record_table

        pipeline = self.opened.pipeline(run)
        errors: RecordErrors = self.opened.cached(
            ("errors", self.opened.version(run)), lambda: record_table(pipeline)
        )
        return errors

    @action
    def summary(self, run: str) -> dict[str, Any]:
        """Return what the records have, the confusion matrix, and the plots of predictions."""
        from regard.look.page.document import number
        from regard.look.record_table import error_figures

        errors, pipeline = self.table(run), self.opened.pipeline(run)
        name, values, more_is_better = errors.score
        known = values[np.isfinite(values)]
        plots = self.opened.cached(
            ("plots", self.opened.version(run)), lambda: error_figures(pipeline)
        )
        return {
            "run": run,
            "split": errors.split,
            "running": bool(getattr(pipeline, "text", False)),
            "records": len(errors),
            "held_out": held_out_count(pipeline, len(errors)),
            "loss": errors.loss_name,
            "score": name,
            "more_is_better": more_is_better,
            "mean": number(known.mean()) if len(known) else None,
            "impossible": int(np.isinf(values).sum()),
            "confusion": confusion(errors),
            "has": [
                name
                for name in ("truths", "predictions", "confidences", "correct")
                if getattr(errors, name) is not None and len(getattr(errors, name))
            ],
            "columns": {
                name: sorted(set(cells) - {""})[:MOST_CLASSES]
                for name, cells in errors.columns.items()
                if 1 < len(set(cells)) <= MOST_CLASSES
            },
            "longest": int(errors.lengths.max(initial=0)),
            "figures": [figure(plot) for plot in plots],
        }

    @action
    def records(
        self, run: str, query: dict[str, Any] | None = None, first: int = 0, count: int = 25
    ) -> dict[str, Any]:
        """Return one page of the records that fit a query, and how many fit."""
        check_range("count", count, 1, MOST_ROWS)
        check_range("first", first, 0, len(self.table(run)))
        errors, indices = self.table(run), self.selected(run, query or {})
        shown = indices[first : first + count]
        rows = [self._row(errors, int(i)) for i in shown]
        self._add_predictions(run, errors, shown, rows)
        self._add_pictures(run, errors, shown, rows)
        return {"total": len(indices), "first": first, "rows": rows}

    def selected(self, run: str, query: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return the indices of the records that fit a query, in its order."""
        from regard.look.record_table import RecordQuery, select_records

        errors, chosen = self.table(run), RecordQuery(**check_arguments(RecordQuery, query))
        key = ("query", self.opened.version(run), chosen)
        indices: NDArray[np.int64] = self.opened.cached(key, lambda: select_records(errors, chosen))
        return indices

    @action
    def slices(self, run: str, words: list[str] | None = None) -> dict[str, Any]:
        """Return the slices of the records, the worst first, also by whether words occur."""
        from regard.evaluation.record_errors import compare_slices, slice_members
        from regard.look.page.document import number

        errors, searched = self.table(run), [w.strip() for w in words or [] if w.strip()]
        check_range("words", len(searched), 0, MOST_WORDS)
        name, values, more_is_better = errors.score
        members = slice_members(errors, searched)
        compared = compare_slices(values, members, more_is_better=more_is_better)
        rows = [
            one.to_json() | {key: number(getattr(one, key)) for key in ("mean", "low", "high")}
            for one in compared
        ]
        return {"score": name, "more_is_better": more_is_better, "slices": rows}

    @action
    def export(self, run: str, query: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the records that fit a query as CSV."""
        indices = self.selected(run, query or {})[:MOST_EXPORTED]
        return {"name": "errors.csv", "text": as_csv(self.table(run), indices)}

    def _row(self, errors: RecordErrors, i: int) -> dict[str, Any]:
        from regard.look.page.document import number

        optional = {"truth": errors.truths, "prediction": errors.predictions}
        numeric = {"confidence": errors.confidences, "correct": errors.correct}
        return {
            "number": int(errors.numbers[i]),
            "text": errors.texts[i][:SHOWN],
            "loss": number(errors.losses[i]),
            "tokens": int(errors.lengths[i]),
            **{name: cells[i] for name, cells in optional.items() if cells},
            **{name: number(x[i]) for name, x in numeric.items() if x is not None},
            "columns": {name: cells[i] for name, cells in errors.columns.items()},
        }

    def _add_predictions(
        self, run: str, errors: RecordErrors, shown: NDArray[np.int64], rows: list[dict[str, Any]]
    ) -> None:
        """Add the predictions that are made for shown records only."""
        if errors.predictions or not len(shown):
            return
        numbers = tuple(errors.numbers[shown].tolist())
        pipeline = self.opened.pipeline(run)
        make = lambda: pipeline.describe_records(numbers)  # noqa: E731
        texts = self.opened.cached(("predictions", self.opened.version(run), numbers), make)
        for row, text in zip(rows, texts, strict=False):
            row["prediction"] = text

    def _add_pictures(
        self, run: str, errors: RecordErrors, shown: NDArray[np.int64], rows: list[dict[str, Any]]
    ) -> None:
        """Add drawings of records that are no texts."""
        from regard.look.page import ItemPicture
        from regard.look.records import draw_picture, has_picture

        pipeline = self.opened.pipeline(run)
        tokenizer = pipeline.source_tokenizer
        if tokenizer.reads_text or not has_picture(tokenizer):
            return
        shard = pipeline.held_out()[1]
        items = shard.source or shard
        for row in rows:
            record = np.asarray(items.record(row["number"] * shard.views))
            row["picture"] = figure(ItemPicture(draw_picture(tokenizer, record)))


def held_out_count(pipeline: Any, listed: int) -> int:
    """Return how many records are held out, of which so many are listed."""
    shard = pipeline.held_out()[1]
    return max(listed, int(shard.records) // int(shard.views))


def confusion(errors: RecordErrors) -> dict[str, Any] | None:
    """Return the counts of the most frequent classes, truths down and predictions across; None for
    records that have no single class.
    """
    pairs = Counter(
        (truth, prediction)
        for truth, prediction in zip(errors.truths, errors.predictions, strict=False)
        if truth
    )
    if errors.correct is None or not pairs:
        return None
    totals: Counter[str] = Counter()
    for (truth, prediction), count in pairs.items():
        totals[truth] += count
        totals[prediction] += 0
    names = sorted(name for name, _ in totals.most_common(MOST_CLASSES))
    if len(totals) > MOST_NAMES:
        return None
    return {
        "classes": names,
        "counts": [[pairs[truth, prediction] for prediction in names] for truth in names],
        "all": len(totals),
    }


MOST_NAMES = 1000  # different texts that are classes rather than sets of labels


def as_csv(errors: RecordErrors, indices: NDArray[np.int64]) -> str:
    """Return records as CSV."""
    columns: dict[str, Any] = {"record": errors.numbers + 1, "text": errors.texts}
    if errors.truths:
        columns["truth"] = errors.truths
    if errors.predictions:
        columns["prediction"] = errors.predictions
    if errors.confidences is not None:
        columns["confidence"] = errors.confidences
    if errors.correct is not None:
        columns["correct"] = errors.correct
    columns |= {errors.loss_name: errors.losses, "tokens": errors.lengths, **errors.columns}
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    for i in indices:
        writer.writerow([cells[i] for cells in columns.values()])
    return file.getvalue()
