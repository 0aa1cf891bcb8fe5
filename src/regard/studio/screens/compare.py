"""The screen *Compare*: two models or two inputs side by side, and the rows of a comparison."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UserError
from regard.look.page import Component, Contributions, Intervals, Surprise, Table, Tagged, Text
from regard.look.page.document import cell
from regard.look.surprise_page import scores_symbols, surprise_under, worst_symbol
from regard.run_folders import COMPARISON, is_comparison, row_run
from regard.storage import StoredComparison, read_json
from regard.studio.reading import Given, Reader
from regard.studio.screens import action, figure, register_screen
from regard.studio.screens.read import ReadingScreen

SHOWN = ("parameters", "train_seconds", "symbols_per_second")  # besides the metrics
MOST_METRICS = 4
TOKENS = 60  # of a held-out record that is scored where no text is given


@register_screen("compare", title="Compare")
class Compare(ReadingScreen):
    """Two models, two inputs, or all rows of a comparison."""

    @action
    def side(self, run: str, text: str, second: str = "") -> dict[str, Any]:
        """Return how one model reads one text, or answers it."""
        reader, given = self.reader(run), Given(text, second)
        return {"notes": reader.notes(given), "figures": [figure(c) for c in views(reader, given)]}

    @action
    def difference(
        self,
        run: str,
        text: str,
        other: str,
        other_text: str,
        second: str = "",
        other_second: str = "",
    ) -> dict[str, Any]:
        """Return where two models, or one on two texts, differ token by token."""
        first, then = self.reader(run), self.reader(other)
        one, two = scored(first, Given(text, second)), scored(then, Given(other_text, other_second))
        if one is None or two is None:
            return {"figures": [], "note": ""}
        (names, bits), (others, other_bits) = one, two
        totals = f"{total(bits)} and {total(other_bits)} bits in all"
        if names != others:
            note = f"{totals}. The two read different tokens, which cannot be compared one by one."
            return {"figures": [], "note": note}
        finite = np.isfinite(bits) & np.isfinite(other_bits)
        gaps = np.where(finite, other_bits - bits, np.nan)
        strip = Contributions(
            names,
            [("right less left", gaps.tolist())],
            title="Bits that the right one needs more",
            unit="bits",
        )
        return {"figures": [figure(strip)], "note": f"{totals}."}

    @action
    def about(self, run: str) -> dict[str, Any]:
        """Return whether a run is a comparison."""
        return {"run": run, "comparison": is_comparison(self.opened.folder(run))}

    @action
    def rows(self, folder: str) -> dict[str, Any]:
        """Return the table of a comparison, its verdict, and whether its rows score symbols."""
        path = self.comparison(folder)
        document = read_json(path / COMPARISON, StoredComparison)
        names, scores = metric_names(document), scores_symbols(path)
        components: list[Component] = [Text(document["verdict"]), table_of(document, names)]
        intervals = draw_metric(document, document["ranked_by"])
        return {
            "figures": [figure(one) for one in [*components, *([intervals] if intervals else [])]],
            "rows": list(self.row_names(path, document).items()),
            "scores": scores,
            "paired": "sentences" in document,
        }

    @action
    def strips(self, folder: str, text: str = "", second: str = "") -> dict[str, Any]:
        """Return the surprise of every row of a comparison on one text."""
        path = self.comparison(folder)
        if not scores_symbols(path):
            raise UserError(f"{folder} compares models that give symbols no probability")
        document = read_json(path / COMPARISON, StoredComparison)
        names = self.row_names(path, document)
        pipelines = {model: self.opened.pipeline(name) for model, name in names.items()}
        if not pipelines:
            raise UserError(f"{folder} holds none of its rows")
        paired = "sentences" in document
        example: Any = (text, second) if paired else text
        if not text:
            example = next(iter(pipelines.values())).example(TOKENS)  # type: ignore[attr-defined]
        strip = surprise_under(pipelines, example)
        if strip is None:
            raise UserError(f"the rows of {folder} read different tokens: no strip has all of them")
        tokens, rows = strip
        sums = {model: math.fsum(b for b in bits if b == b) for model, bits in rows}
        order = sorted(sums, key=lambda model: sums[model])
        cells = [
            [m, sums[m], sums[m] / max(1, len(tokens)), worst_symbol(tokens, dict(rows)[m])]
            for m in order
        ]
        columns = ["model", "bits", "bits per symbol", "least expected"]
        figures: list[Component] = [
            Surprise(tokens, rows, title="Bits of each symbol, by model"),
            Table(columns, cells, ["left", "right", "right", "left"], highlight=[0], title="Sums"),
        ]
        shown = example if paired else (example, "")
        return {"text": shown[0], "second": shown[1], "figures": [figure(one) for one in figures]}

    def comparison(self, folder: str) -> Path:
        path = self.opened.folder(folder)
        if not is_comparison(path):
            raise UserError(f"{folder} is one run; `regard compare FILE` makes a comparison")
        return path

    def row_names(self, folder: Path, document: StoredComparison) -> dict[str, str]:
        """Return the name of the run of each row, by model; those that are missing are left out."""
        runs = {row["model"]: row_run(folder, row) for row in document["rows"]}
        return {model: self.opened.name(run) for model, run in runs.items() if run}


def scored(reader: Reader, given: Given) -> tuple[list[str], np.ndarray] | None:
    """Return the tokens of a text and the bits of each, of as many as one answer holds."""
    scores = reader.scores(given, 0, reader.at_once)
    if scores is None:
        return None
    return reader.tokens(given).names(0, len(scores.bits)), scores.bits.astype(np.float64)


def total(bits: np.ndarray) -> str:
    """Return the sum of what is scored."""
    return cell(float(np.nansum(bits)))


def views(reader: Reader, given: Given) -> list[Component]:
    """Return how a model reads a text, as figures."""
    components = reader.answer(given)
    one = scored(reader, given)
    if one is not None and len(one[0]):
        components.append(Surprise(one[0], [("this text", one[1].tolist())], title="Bits"))
    classes = reader.classes(given) if given.text else None
    if classes is not None:
        names, table = classes
        tokens = reader.tokens(given).names()
        components.append(
            Tagged(tokens, [names[i] for i in table.argmax(1)], title="Classes", order=names)
        )
    added = reader.added(given) if given.text else None
    if added is not None:
        tokens = reader.tokens(given).names()
        components.append(
            Contributions(
                tokens, [(added[0], added[1].tolist())], title="What tokens add", unit="logits"
            )
        )
    return components


def metric_names(document: Any) -> list[str]:
    """Return the metrics of a comparison that are shown, the one that ranks first."""
    first = document["ranked_by"]
    others = [name for name in document["rows"][0]["metrics"] if name != first]
    return [first, *others][:MOST_METRICS]


def shown_metric(metric: Any) -> str:
    """Return a metric with its interval, as in the tables of `regard compare`."""
    if not metric or metric.get("value") is None:
        return "∞" if metric and metric.get("infinite") else "–"
    value, low, high = (metric.get(key, metric["value"]) for key in ("value", "low", "high"))
    return f"{value:.4g} [{low:.4g}, {high:.4g}]"


def table_of(document: Any, names: list[str]) -> Table:
    """Return the rows of a comparison, the best first."""
    extra = [name for name in SHOWN if any(row.get(name) is not None for row in document["rows"])]
    cells: list[list[object]] = [
        [
            row["rank"],
            row["model"],
            *(shown_metric(row["metrics"].get(name)) for name in names),
            *(row.get(name) for name in extra),
        ]
        for row in document["rows"]
    ]
    columns = ["rank", "model", *(name.replace("_", " ") for name in (*names, *extra))]
    align = ["right", "left", *["right"] * (len(names) + len(extra))]
    winners = [i for i, row in enumerate(document["rows"]) if row["rank"] == 1]
    return Table(columns, cells, align, highlight=winners, title="The table")


def draw_metric(document: Any, name: str) -> Intervals | None:
    """Return the metric that ranks with its intervals, of the rows where it is finite."""
    rows = [(row["model"], row["rank"], row["metrics"].get(name) or {}) for row in document["rows"]]
    rows = [row for row in rows if row[2].get("value") is not None]
    if not rows:
        return None
    values, low, high = (
        [float(metric.get(key, metric["value"])) for _, _, metric in rows]
        for key in ("value", "low", "high")
    )
    return Intervals(
        [model for model, _, _ in rows],
        values,
        low,
        high,
        title=name.replace("_", " ").capitalize(),
        unit=name.replace("_", " "),
        highlight=[i for i, (_, rank, _) in enumerate(rows) if rank == 1],
    )
