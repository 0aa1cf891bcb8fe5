"""The screen *Runs*: the table of `regard runs`, curves, and the card of `regard show`."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

from regard.errors import UsageError, human_size, quoted
from regard.run_folders import (
    COMPARISON,
    CONFIG,
    CURVES,
    METRICS,
    NOT_FINISHED,
    Measurement,
    RunEntry,
    card,
    check_removable,
    curves_of,
    describe,
    facts_of,
    is_comparison,
    metadata_of,
    next_verbs,
    remove,
)
from regard.storage import StoredComparison, read_json
from regard.studio.screens import Screen, action, figure, register_screen

LIVE = 60.0  # seconds since a run wrote its last metric in which it is said to train
MOST_POINTS = 2000  # of a curve


@register_screen("runs", title="Runs")
class Runs(Screen):
    """The runs of the folder."""

    @action
    def table(self) -> dict[str, Any]:
        """Return the entries of `regard runs --json`, with names; `live` ones are in training."""
        entries = self.opened.folders()
        rows = [
            one.to_json()
            | {
                "name": self.opened.name(one.path),
                "result": one.result,
                "size": human_size(one.bytes),
                "live": is_live(one),
            }
            for one in entries
        ]
        return {"runs": rows, "live": any(row["live"] for row in rows)}

    @action
    def curves(self, runs: list[str], curve: str = "validation") -> dict[str, Any]:
        """Return the curves of runs over each other: a figure for each metric that they have.

        `curve` is training, validation, learning rate or gradient norm. Of a run that tries several
        models, those of all of them are drawn.
        """
        titles = [title for *_, title in CURVES]
        if curve not in titles:
            raise UsageError(f"curve must be one of {', '.join(titles)}, got {quoted(curve)}")
        series = [
            (label, points)
            for name in runs
            for label, folder in parts_of(name, self.opened.folder(name))
            if (points := curves_of(folder)[curve])
        ]
        return {"figures": [figure(one) for one in draw_curves(series, curve)]}

    @action
    def card(self, run: str) -> dict[str, Any]:
        """Return what `regard show` prints of a run or a comparison."""
        folder = self.opened.folder(run)
        return comparison_card(folder) if is_comparison(folder) else run_card(folder)

    @action
    def remove(self, run: str) -> dict[str, Any]:
        """Remove a run or a comparison with all its files, as `regard rm` does."""
        folder = self.opened.folder(run)
        check_removable(folder)
        if any(job.run == run and job.ended is None for job in self.opened.jobs.list()):
            raise UsageError(f"{run} is being trained: stop that first")
        remove(folder)
        return {"removed": run}


def is_live(entry: RunEntry) -> bool:
    """Return whether a run is in training: it is not finished and wrote a metric lately."""
    newest = [path.stat().st_mtime for path in entry.path.glob(f"**/{METRICS}")]
    return entry.state == NOT_FINISHED and time.time() - max(newest, default=0) < LIVE


def parts_of(name: str, folder: Path) -> list[tuple[str, Path]]:
    """Return a run, and the models that it tries while it is not finished."""
    tried = sorted(folder.glob("candidates/*")) if describe(folder).state == NOT_FINISHED else []
    return [(name, folder), *((f"{name}: {path.name}", path) for path in tried)]


def draw_curves(series: list[tuple[str, list[Measurement]]], curve: str) -> list[Any]:
    """Return a figure of the curves for each metric."""
    from regard.look.page import Lines

    metrics = {points[0].metric: points[0].unit for _, points in series}
    figures = []
    for metric, unit in metrics.items():
        lines = []
        for label, points in series:
            if points[0].metric == metric:
                step = -(-len(points) // MOST_POINTS)
                thinned = points[::step] + points[-1:] * (len(points) % step != 1 and step > 1)
                lines.append((label, [p.step for p in thinned], [p.value for p in thinned]))
        words = metric.replace("_", " ")
        title = curve if words == curve else f"{curve}: {words}"
        figures.append(Lines(lines, "step", unit or words, title))
    return figures


def run_card(folder: Path) -> dict[str, Any]:
    """Return the card of a run."""
    from regard.evaluation import from_document, metric_rows

    entry, metadata = describe(folder), metadata_of(folder)
    splits = {key: from_document(one) for key, one in metadata.get("metrics", {}).items() if one}
    run = shlex.quote(str(folder))
    verbs = next_verbs(entry)
    lacks_export = verbs and "export" not in " ".join(verbs)
    exports, reasons = exports_of(folder) if lacks_export else ([], [])
    return {
        "document": {key: value for key, value in card(folder).items() if key != "curves"},
        "facts": [*facts_of(metadata), human_size(entry.bytes)],
        "state": entry.state,
        "columns": ["metric", *splits],
        "rows": metric_rows(splits),
        "lines": [*metadata.get("selection", {}).get("lines", ()), *reasons],
        "commands": [f"regard {verb.format(run=run)}" for verb in verbs] + exports,
        "resume": entry.state == NOT_FINISHED,
        "page": "",
    }


def exports_of(folder: Path) -> tuple[list[str], list[str]]:
    """Return the commands that write the model of a run as a Hugging Face folder or, if it cannot
    be, those of the models that were tried beside it; without any, a line that says why.
    """
    tried = [path.parent for path in sorted(folder.glob(f"candidates/*/{CONFIG}"))]
    reasons = {path: export_reason(path) for path in (folder, *tried)}
    fitting = [path for path, reason in reasons.items() if not reason]
    chosen = fitting[:1] if fitting[:1] == [folder] else fitting
    commands = [shlex.join(["regard", "export", str(path), "OUT"]) for path in chosen]
    most = max(reasons.values(), key=len)  # the one that names what is missing
    return commands, [] if commands else [f"not for regard export: {most}"]


def export_reason(folder: Path) -> str:
    """Return why the model of a run cannot be a Hugging Face folder; "" if it can be."""
    from regard.interop import EXPORTERS, export_refusal, load_exporters
    from regard.registry import MODELS
    from regard.run import Run

    load_exporters()
    model = Run(folder).description
    family = MODELS.get(model.family, model.task, model.reads)
    if family not in EXPORTERS["hf"]:
        return f"Hugging Face's library has no class for {model.family}"
    return export_refusal(family, model.config)


def comparison_card(folder: Path) -> dict[str, Any]:
    """Return the card of a comparison: its rows and the verdict."""
    from regard.evaluation import from_document

    document = read_json(folder / COMPARISON, StoredComparison)
    metric = document["ranked_by"]
    rows = [
        [
            f"{row['rank']}. {row['model']}",
            str(from_document(row["metrics"])[metric]),
            f"{row['parameters']:,}",
            f"{row['train_seconds']:,.0f} s",
        ]
        for row in document["rows"]
    ]
    page = "compare.html" if (folder / "compare.html").is_file() else ""
    return {
        "document": document,
        "facts": [f"{len(rows)} models", f"{document['split']} split"],
        "state": "",
        "columns": ["model", metric.replace("_", " "), "parameters", "trained"],
        "rows": rows,
        "lines": [document["verdict"]],
        "commands": [shlex.join(["regard", "show", str(folder / document["rows"][0]["model"])])],
        "resume": False,
        "page": page,
    }
