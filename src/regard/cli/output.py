"""What verbs share: printing documents and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.errors import ODD, printable
from regard.evaluation.language_modeling import Metric, by_target, title

TRANSLATION = ("bleu", "chrf", "exact")
OF_TARGETS = ("auroc", "average_precision", "f1", "mcc", "rmse", "mae", "r2", "spearman")
SHOWN = (*TRANSLATION, "nats_per_symbol", "bits_per_symbol", "perplexity", "bits_per_byte")


def print_json(document: Any) -> None:
    """One JSON document on stdout, and nothing else there."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    print(ODD.sub(lambda found: json.dumps(found[0])[1:-1], text))  # escapes, in strings alone


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """A plain table on stdout; cells are text, never markup."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(printable(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    width = max(console.width, 80) if console.is_terminal else 10_000  # a pipe is never too narrow
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_figures(sides: Mapping[str, Mapping[str, Metric]]) -> None:
    """The main figures, a column for each side; of several targets, a table of each side's."""
    parted = {side: by_target(figures) for side, figures in sides.items()}
    known = {name: one for shared, _ in parted.values() for name, one in shared.items()}
    shown = [name for name in SHOWN if name in known] or list(known)
    rows = [
        [title(name, known[name]), *(str(f[name]) if name in f else "" for f in sides.values())]
        for name in shown
    ]
    if rows:
        print_table(["", *sides], rows)
    for side, (_, each) in parted.items():
        if each:
            print_targets(side, each)
    for side, figures in sides.items():
        figure = figures.get("nats_per_symbol")
        if figure is not None and math.isinf(figure.value):
            print(
                f"{side}: the model holds {figure.impossible:,} of the symbols there impossible, "
                "which costs it infinitely much"
            )


def print_targets(side: str, each: Mapping[str, Mapping[str, Metric]]) -> None:
    """The main figures of each of several targets, a row for each."""
    first = next(iter(each.values()))
    names = [name for name in OF_TARGETS if name in first]
    rows = []
    for target, found in each.items():
        own = [(name, found[name]) for name in names]
        of = next((one.of for _, one in own if one.of), "")
        rows.append([plain(target), plain(of), *(str(one) for _, one in own)])
    classes = any(row[1] for row in rows)
    columns = [f"{side}, by target", "class", *(name.replace("_", " ") for name in names)]
    chosen = [i for i in range(len(columns)) if i != 1 or classes]
    print()
    print_table([columns[i] for i in chosen], [[row[i] for i in chosen] for row in rows])


def print_strip(tokens: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> None:
    """A text under the eyes of several models: each symbol's bits as a digit, coloured if shown."""
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(name) for name, _ in rows)
    console.print(Text(" " * (width + 2) + "".join(_one(token) for token in tokens)))
    for name, bits in rows:
        line = Text(f"{name:<{width}}  ")
        for value in bits:
            digit = " " if math.isnan(value) else "+" if value >= 10 else str(int(value))
            shade = 0 if math.isnan(value) else min(1.0, value / 10)
            line.append(digit, style=f"on rgb({int(30 + 200 * shade)},40,60)")
        console.print(line)


def _one(token: str) -> str:
    """A token as one column."""
    token = plain(token).strip()
    return "$" if token == "<E>" else token[:1] or "·"


def plain(text: str) -> str:
    """A sequence on one line: control characters made visible."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
