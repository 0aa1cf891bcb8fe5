"""What verbs share: printing documents and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.evaluate.report import Figure


def print_json(document: Any) -> None:
    """One JSON document on stdout, and nothing else there."""
    json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False, indent=2)
    print()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """A plain table on stdout; cells are text, never markup."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False, soft_wrap=not sys.stdout.isatty()).print(table)


def print_figures(sides: Mapping[str, Mapping[str, Figure]]) -> None:
    """The main figures of each side."""
    names = ("nats_per_symbol", "bits_per_symbol", "bits_per_byte", "perplexity")
    shown = [name for name in names if any(name in figures for figures in sides.values())]
    rows = [
        [side, *(str(figures[name]) if name in figures else "" for name in shown)]
        for side, figures in sides.items()
    ]
    print_table(["", *(name.replace("_", " ") for name in shown)], rows)


def plain(text: str) -> str:
    """A generated sequence on one line: control characters made visible."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
