"""The page of `regard data`: what to train on a file and why, then what is in it.

Reports on any data have `rows()`; `add_figures` adds what a class of reports has to draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Protocol

from regard.data.report import TextReport
from regard.look.page import Bars, Histogram, Lines, Page, Table, Text
from regard.look.page.document import visible

CONCLUSIONS = ("suggestion", "try", "task")  # names of rows that say what to do


class DataReport(Protocol):
    """A report of `regard data`."""

    def rows(self) -> list[tuple[str, str]]: ...


def data_page(report: DataReport, files: Sequence[str]) -> Page:
    """Return the page about a report on these files."""
    rows = fill_names(report.rows())
    answers = [value for name, value in rows if name in CONCLUSIONS]
    page = Page(f"The data in {', '.join(files)}", answers[0] if answers else "")
    page.section("What to train", "The defaults of `regard train` on these files, and why.")
    page.add(Text("\n\n".join(answers) or "`regard train` has no suggestion for these files."))
    page.section("What is in it", "The same rows as in the terminal.")
    page.add(Table(["", ""], [list(row) for row in report.rows()], align=["left", "left"]))
    add_figures(report, page)
    return page


def fill_names(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return rows in which those without a name have that of the row before."""
    filled: list[tuple[str, str]] = []
    for name, value in rows:
        filled.append((name or (filled[-1][0] if filled else ""), value))
    return filled


@singledispatch
def add_figures(report: object, page: Page) -> None:
    """Add the figures of a report; one without figures has none."""


@add_figures.register
def add_text_figures(report: TextReport, page: Page) -> None:
    """Draw the alphabet, the entropy after 0 to 3 symbols, and the lengths."""
    page.section(
        "Alphabet",
        "The alphabet of these texts among those of the lecture. If all symbols were equally "
        "frequent and independent, each would have as many bits as the third column says. One-hot "
        "vectors are as wide as the alphabet: fine for letters (--set model.embedding=onehot of an "
        "mlp), too large for words, which learned embeddings make short.",
    )
    rows = [[row.name, row.size, row.bits, row.one_hot] for row in report.alphabets]
    highlight = [i for i, row in enumerate(report.alphabets) if row.of_file]
    shares = [n / report.symbols for _, n in report.common]
    page.add(
        Table(
            ["tokens", "different ones", "bits at most", "1,000 as one-hot vectors"],
            rows,
            align=["left", "right", "right", "right"],
            highlight=highlight,
        )
    )
    page.add(
        Bars(
            [visible(symbol) for symbol, _ in report.common],
            shares,
            title="The most frequent characters",
            unit="share of all symbols",
        ),
    )
    _add_copies(page, report)
    _add_entropies(page, report)
    if len(report.lengths.histogram) > 1:
        page.section("Lengths", "How long the texts are; a model reads at most its context.")
        bars = report.lengths.histogram
        edges = [float(low) for low, _, _ in bars] + [float(bars[-1][1] + 1)]
        counts = [float(n) for *_, n in bars]
        labels = ("length in characters", report.unit)
        page.add(Histogram(edges, counts, f"{report.unit.capitalize()} by length", *labels))


def _add_copies(page: Page, report: TextReport) -> None:
    """List texts that occur more than once, and held-out ones that training almost has."""
    tables = []
    if report.repeated:
        rows = [[text, count] for text, count in report.repeated]
        tables.append(Table(["text", "times"], rows, title="The same text several times"))
    duplicates = report.labels.near if report.labels else {}
    pairs = [[split, *pair] for split, one in duplicates.items() for pair in one.examples]
    if pairs:
        columns = ["split", "held-out text", "training has"]
        tables.append(Table(columns, pairs, title="Near-duplicates across splits"))
    if tables:
        note = "Held-out texts that training has, exactly or almost, make metrics look better."
        page.section("Copies", note)
        for table in tables:
            page.add(table)


def _add_entropies(page: Page, report: TextReport) -> None:
    if not report.entropies:
        return
    thin = [x for x in report.entropies if x.too_low]
    note = (
        "The bits of a symbol if the symbols before it are known: how far the curve falls is what "
        "context can explain, and a model of the next symbol should come close to it or below. "
    )
    if thin:
        note += (
            f"From {thin[0].order} symbols on, contexts are so rare ({thin[0].per_context:.1f} "
            "times each) that the estimate is too low: what occurs once seems certain."
        )
    page.section("Entropy", note.strip())
    orders = [float(x.order) for x in report.entropies]
    series = [("estimated from counts", orders, [x.bits for x in report.entropies])]
    levels = {"all characters equally frequent": math.log2(max(1, report.alphabet_size))}
    page.add(
        Lines(
            series,
            "symbols before that are known",
            "bits per symbol",
            "Entropy by context",
            x_ticks=orders,
            levels=levels,
        )
    )
