"""Printing JSON documents and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from regard.errors import CONTROLS, printable
from regard.evaluation import Metric, group_by_target, metric_title

TRANSLATION = ("bleu", "chrf", "exact")
OF_TARGETS = ("auroc", "average_precision", "f1", "mcc", "rmse", "mae", "r2", "spearman")
SHOWN = (*TRANSLATION, "bits_per_symbol", "perplexity", "bits_per_byte")


def print_json(document: Any) -> None:
    """Print a JSON document on stdout."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    print(CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text))  # occur in strings only


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a plain table on stdout, without a header if no column has a name. Cells are never
    markup.
    """
    table = Table(
        title=title or None,
        title_justify="left",
        box=None,
        pad_edge=False,
        show_header=any(columns),
    )
    for column in columns:
        table.add_column(Text(printable(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    width = max(console.width, 80) if console.is_terminal else 10_000  # a pipe is never too narrow
    print_rich(Console(highlight=False, width=width), table)


def print_rich(console: Console, *renderables: RenderableType) -> None:
    """Print what rich renders: rich itself would end the process with 1 where a pipe is closed."""
    with console.capture() as captured:
        for one in renderables:
            console.print(one)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows with tabs between their values, after a row of the names."""
    for number, row in enumerate(rows):
        cells = (f"{x:.6g}" if isinstance(x, float) else plain(str(x)) for x in row.values())
        print(*([] if number else ["\t".join(row)]), "\t".join(cells), sep="\n")


def print_metrics(splits: Mapping[str, Mapping[str, Metric]]) -> None:
    """Print the main metrics, a column for each split; of several targets, a table per split."""
    grouped = {split: group_by_target(metrics) for split, metrics in splits.items()}
    known = {name: one for shared, _ in grouped.values() for name, one in shared.items()}
    rows = [
        [
            metric_title(name, known[name]),
            *(str(metrics[name]) if name in metrics else "" for metrics in splits.values()),
        ]
        for name in [name for name in SHOWN if name in known] or known
    ]
    if rows:
        print_table(["", *splits], rows)
    for split, (_, targets) in grouped.items():
        if targets:
            print_targets(split, targets)
    for split, metrics in splits.items():
        loss = metrics.get("nats_per_symbol")
        if loss is not None and math.isinf(loss.value):
            symbols = "one symbol" if loss.impossible == 1 else f"{loss.impossible:,} symbols"
            print(f"{split}: the model gives {symbols} probability 0, so its loss is infinite")


def print_targets(split: str, targets: Mapping[str, Mapping[str, Metric]]) -> None:
    """Print the main metrics of several targets, a row for each."""
    first = next(iter(targets.values()))
    names = [name for name in OF_TARGETS if name in first]
    rows = []
    for target, metrics in targets.items():
        shown = [metrics[name] for name in names]
        class_name = next((metric.class_name for metric in shown if metric.class_name), "")
        rows.append([plain(target), plain(class_name), *map(str, shown)])
    columns = [f"{split}, by target", "class", *(name.replace("_", " ") for name in names)]
    if not any(row[1] for row in rows):
        del columns[1]
        rows = [[row[0], *row[2:]] for row in rows]
    print()
    print_table(columns, rows)


def print_strip(tokens: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> None:
    """Print the bits of each token of a text by model: as a digit, and as a color."""
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(name) for name, _ in rows)
    lines = [Text(" " * (width + 2) + "".join(_first_character(token) for token in tokens))]
    for name, bits in rows:
        line = Text(f"{name:<{width}}  ")
        for value in bits:
            digit = " " if math.isnan(value) else "+" if value >= 10 else str(int(value))
            shade = 0 if math.isnan(value) else min(1.0, value / 10)
            line.append(digit, style=f"on rgb({int(30 + 200 * shade)},40,60)")
        lines.append(line)
    print_rich(console, *lines)


def _first_character(token: str) -> str:
    token = plain(token).strip()
    return "$" if token == "<E>" else token[:1] or "·"


def plain(text: str) -> str:
    """Return a text as one line, with control characters escaped."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
