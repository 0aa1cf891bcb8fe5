"""The surprise of all rows of a comparison on one sequence.

By the chain rule P(S) = Π P(x_i | x_<i), the bits of a text are the sum of the bits of its symbols,
−log₂ P(x_i | x_<i); where two models differ, one knows what the other does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.errors import UserError
from regard.look.page import Page, Surprise, Table
from regard.pipelines import load
from regard.run_folders import COMPARISON, row_run
from regard.storage import StoredComparison, read_json

Strip = tuple[list[str], list[tuple[str, list[float]]]]  # tokens, and the bits of each by model


def surprise_of(runs: Mapping[str, Path], example: Any, most: int = 0) -> Strip | None:
    """Return the bits of each token of an example under each model, of at most `most` tokens (0:
    all); None where models read different tokens.
    """
    return surprise_under({model: load(run) for model, run in runs.items()}, example, most)


def surprise_under(pipelines: Mapping[str, Any], example: Any, most: int = 0) -> Strip | None:
    """Return the same of models that are loaded."""
    rows: list[tuple[str, list[float]]] = []
    read: list[list[str]] = []
    for model, pipeline in pipelines.items():
        tokens, log_probs = pipeline.score_example(example)
        end = most or len(tokens)
        read.append(list(tokens[:end]))
        rows.append((model, [-x / math.log(2) for x in log_probs[:end]]))
    same = all(tokens == read[0] for tokens in read)
    return (read[0], rows) if read and same else None


def scores_symbols(folder: Path) -> bool:
    """Return whether the models of a comparison give symbols a probability."""
    document = read_json(folder / COMPARISON, dict[str, Any])
    return "sentences" in document or "bits_per_symbol" in document["rows"][0]["metrics"]


def open_rows(folder: Path) -> dict[str, Path]:
    """Return the run of each row of a comparison, the best first."""
    document = read_json(folder / COMPARISON, StoredComparison)
    return {row["model"]: row_run(folder, row) or Path(row["runs"][0]) for row in document["rows"]}


def compare_surprise(folder: Path, text: str, target: str = "") -> Strip:
    """Return the bits of each token of a text, or of the target of a pair, under each row; without
    a text those of a held-out record.
    """
    if not scores_symbols(folder):
        raise UserError(f"{folder} compares models that give symbols no probability")
    runs = open_rows(folder)
    paired = "sentences" in read_json(folder / COMPARISON, dict[str, Any])
    if paired and bool(text) != bool(target):
        raise UserError("translators: give TEXT and --target, whose symbols are scored, or neither")
    if target and not paired:
        raise UserError(f"--target is for translators, and {folder} compares language models")
    example: Any = (text, target) if paired else text
    if not text:
        example = load(next(iter(runs.values()))).example(60)
    strip = surprise_of(runs, example)
    if strip is None:
        raise UserError(f"the rows of {folder} read different tokens: no strip has all of them")
    return strip


def surprise_page(folder: Path, strip: Strip) -> Page:
    """Return the page of a strip: the model that expects the text most, the strip, and its sums."""
    tokens, rows = strip
    totals = {model: math.fsum(b for b in bits if b == b) for model, bits in rows}
    scored = max(1, sum(bit == bit for bit in rows[0][1]))
    best = min(totals, key=lambda model: totals[model])
    page = Page(
        f"One text under the rows of {folder.name}",
        f"{best} expects it most: {totals[best]:.1f} bits, {totals[best] / scored:.3f} a symbol",
    )
    page.section(
        "Surprise",
        "The stronger the colour, the less the model expected the symbol after those before it.",
    )
    page.add(Surprise(tokens, rows, title="Bits of each symbol, by model"))
    page.section("Sums", "The bits of a text are the sum of those of its symbols: the chain rule.")
    order = sorted(totals, key=lambda model: totals[model])
    cells: list[list[object]] = [
        [model, totals[model], totals[model] / scored, worst_symbol(tokens, dict(rows)[model])]
        for model in order
    ]
    columns = ["model", "bits", "bits per symbol", "least expected"]
    page.add(Table(columns, cells, ["left", "right", "right", "left"], highlight=[0]))
    return page


def worst_symbol(tokens: list[str], bits: list[float]) -> str:
    """Return the token of the most bits, with them."""
    known = [(b, i) for i, b in enumerate(bits) if b == b]
    if not known:
        return "–"
    most, i = max(known)
    return f"{tokens[i]} ({'∞' if math.isinf(most) else f'{most:.1f}'} bits)"
