"""The held-out records of a run as a table: texts, truths, predictions, losses, and the other
columns of the files that they were read from.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.formats import UTF8, SkippedRecords, detect_table
from regard.errors import UsageError, UserError, quoted
from regard.evaluation.predictions import Predictions
from regard.evaluation.record_errors import RecordErrors
from regard.look.page import Component, Page, Scatter
from regard.look.pattern_search import PatternError, search_texts
from regard.look.prediction_page import add_errors
from regard.look.projection import MOST_POINTS, spread
from regard.look.records import FileRecord, Records, find_in_files
from regard.pipelines import MOST_RECORDS
from regard.registry import TABLES


def record_table(pipeline: Any, most: int = MOST_RECORDS) -> RecordErrors:
    """Return the errors of the held-out records, with texts and other columns as they are in the
    files, where these are still there.
    """
    errors: RecordErrors = pipeline.record_errors(most)
    if not pipeline.has_targets or not pipeline.tokenizer.reads_text:
        return errors
    split, shard, _ = pipeline.held_out_part(most)
    in_files = find_in_files(Records(pipeline, split, shard))
    texts = [in_files[i].text if i in in_files else text for i, text in enumerate(errors.texts)]
    reader = pipeline.reader
    columns = other_columns(
        in_files, len(errors), {*reader.inputs, *reader.targets}, reader.encoding
    )
    return replace(errors, texts=texts, columns=columns)


@dataclass(frozen=True, kw_only=True)
class RecordQuery:
    """Which records, and in which order: `text` must occur in the text, truth or prediction, as a
    regular expression where it stands between slashes.
    """

    text: str = ""
    truth: str = ""
    prediction: str = ""
    correct: str = ""  # "right", "wrong" or "" for both
    shortest: int = 0
    longest: int = 0  # 0: any
    column: str = ""  # another column of the files, and its value
    value: str = ""
    sort: str = "loss"
    descending: bool = True

    def __post_init__(self) -> None:
        if self.correct not in VERDICTS:
            raise UsageError(f"correct must be right, wrong or empty, got {quoted(self.correct)}")
        if self.sort not in ORDERS:
            raise UsageError(f"sort must be one of {', '.join(ORDERS)}, got {quoted(self.sort)}")

    def matches(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return which texts (R,) have what is searched for."""
        pattern = re.fullmatch(r"/(.+?)/?", self.text, re.DOTALL)
        if pattern is None:
            wanted = self.text.casefold()
            return np.array([wanted in text.casefold() for text in texts], bool)
        parts = [text[:MOST_SEARCHED] for text in texts]
        try:
            return np.array(search_texts(pattern[1], parts, SECONDS), bool)
        except PatternError as error:
            raise UsageError(f"{quoted(self.text)} {error}") from None


VERDICTS = ("", "right", "wrong")
ORDERS = ("loss", "confidence", "tokens", "number")
MOST_SEARCHED = 2000  # characters of a text that an expression is tried on
SECONDS = 2.0  # in which it must be done


def select_records(errors: RecordErrors, query: RecordQuery) -> NDArray[np.int64]:
    """Return the indices of the records that fit, in their order; of equals, the first first."""
    chosen = np.ones(len(errors), bool)
    if query.text:
        columns = [column for column in (errors.texts, errors.truths, errors.predictions) if column]
        matches = query.matches([cell for column in columns for cell in column])
        chosen &= matches.reshape(len(columns), len(errors)).any(0)
    cells = {"truth": errors.truths, "prediction": errors.predictions}
    for name, wanted in (("truth", query.truth), ("prediction", query.prediction)):
        if wanted:
            chosen &= np.array(cells[name] or [""] * len(errors), object) == wanted
    if query.column:
        if query.column not in errors.columns:
            raise UsageError(f"the records have no column {quoted(query.column)}")
        chosen &= np.array(errors.columns[query.column], object) == query.value
    if query.correct and errors.correct is not None:
        right = errors.correct == 1
        chosen &= np.isfinite(errors.correct) & (right if query.correct == "right" else ~right)
    chosen &= errors.lengths >= query.shortest
    if query.longest:
        chosen &= errors.lengths <= query.longest
    indices = np.flatnonzero(chosen)
    return indices[sorting(errors, query, indices)]


def sorting(
    errors: RecordErrors, query: RecordQuery, indices: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the order of records; those without the value come last."""
    nothing = np.full(len(errors), np.nan)
    values = {
        "loss": errors.losses,
        "confidence": nothing if errors.confidences is None else errors.confidences,
        "tokens": errors.lengths.astype(np.float64),
        "number": errors.numbers.astype(np.float64),
    }[query.sort][indices]
    return np.argsort(-values if query.descending else values, kind="stable")


def error_figures(pipeline: Any, most: int = MOST_RECORDS) -> list[Component]:
    """Return plots of the predictions for the held-out records: reliability of classes, residuals
    of values; none for runs without labels or values.
    """
    if not pipeline.has_targets:
        return []
    predictions = pipeline.held_out_predictions(most)
    page = Page("")
    add_errors(page, predictions, "the held-out records", "")
    return [*page.components, *residual_plots(predictions)]


def residual_plots(predictions: Predictions) -> list[Component]:
    """Return the error of each prediction of a value against the prediction."""
    targets = predictions.targets
    if targets is None or targets.kind.categorical:
        return []
    plots: list[Component] = []
    for name, scores, truths in zip(
        targets.names, predictions.scores.T, predictions.truths.T, strict=True
    ):
        known = np.flatnonzero(np.isfinite(truths))
        shown = known[spread(len(known), MOST_POINTS)] if len(known) else known
        if len(shown):
            points = np.stack([scores[shown], scores[shown] - truths[shown]], axis=1)
            x_label, y_label = f"{name}, predicted", "predicted − true"
            plots.append(
                Scatter(points, x_label=x_label, y_label=y_label, title=f"{name}: residuals")
            )
    return plots


def colour_columns(errors: RecordErrors) -> dict[str, Sequence[Any]]:
    """Return what records can be coloured by: texts where values are names, else numbers."""
    columns: dict[str, Sequence[Any]] = {}
    if errors.truths and len(set(errors.truths)) <= MOST_GROUPS:
        columns["true label"] = errors.truths
    if errors.predictions and len(set(errors.predictions)) <= MOST_GROUPS:
        columns["prediction"] = errors.predictions
    if errors.correct is not None:
        right = np.nan_to_num(errors.correct, nan=-1)
        columns["correct"] = [VERDICT_NAMES.get(float(x), "partly") for x in right]
    if errors.confidences is not None:
        columns["confidence"] = errors.confidences.tolist()
    columns |= {errors.loss_name: errors.losses.tolist(), "tokens": errors.lengths.tolist()}
    for name, cells in errors.columns.items():
        numbers = [to_number(text) for text in cells]
        if len(set(cells)) <= MOST_GROUPS:
            columns[name] = cells
        elif any(math.isfinite(x) for x in numbers):
            columns[name] = numbers
    return columns


MOST_GROUPS = 30  # different values of a column that have colours of their own
VERDICT_NAMES = {1.0: "right", 0.0: "wrong", -1.0: "unknown"}


def to_number(text: str) -> float:
    """Return a number, NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def other_columns(
    found: Mapping[int, FileRecord], count: int, read: set[str], encoding: str = UTF8
) -> dict[str, list[str]]:
    """Return the columns of the tables in which records stand, but for those that were `read`."""
    places: dict[Path, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, one in found.items():
        name, _, line = one.location.rpartition(":")
        if line.isdecimal():
            places[Path(name)][int(line)].append(number)
    places = {path: lines for path, lines in places.items() if detect_table([path], encoding)}
    columns: dict[str, list[str]] = {}
    for path, lines in places.items():
        for column, cells in read_cells(path, lines, encoding).items():
            if column not in read:
                texts = columns.setdefault(column, [""] * count)
                for number, text in cells.items():
                    texts[number] = text
    if len(places) > 1:
        columns["file"] = [""] * count
        for path, lines in places.items():
            for number in (n for numbers in lines.values() for n in numbers):
                columns["file"][number] = path.name
    return columns


def read_cells(
    path: Path, lines: Mapping[int, Sequence[int]], encoding: str = UTF8
) -> dict[str, dict[int, str]]:
    """Return the cells of each column of a table by the numbers of their records; `lines` has the
    numbers of the records on each line.
    """
    try:
        table: Any = TABLES[detect_table([path], encoding)]
        names = table.columns(path, encoding)
        layout = table.layout(path, names, flags=names, encoding=encoding)
        cells: dict[str, dict[int, str]] = {name: {} for name in names}
        for columns, places in layout.batches(path, SkippedRecords()):
            for i, line in enumerate(places):
                for number in lines.get(line, ()):
                    for name, column in zip(names, columns, strict=True):
                        cells[name][number] = column[i].strip()
    except (UserError, OSError):
        return {}
    return cells
