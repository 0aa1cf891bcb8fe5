"""The page behind `regard compare`: the table, how each model learned, and one text under all eyes.

Sections are functions that add themselves to a page, so that the demonstration's report is made of
the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.evaluation.comparison import Comparison, Row
from regard.evaluation.translation import load_translations
from regard.look.page import Bars, Lines, Page, Sequences, Surprise, Table, Text
from regard.look.prediction_page import NOTES, pictures
from regard.run import validations

UNITS = {  # of what validation costs, where it is not symbols that are predicted
    "label": "nats per answer",
    "labels": "nats per answer",
    "position-label": "nats per position",
    "value": "half of squared errors, in squared deviations",
}
SHOWN = 8  # sentences whose translations are shown
BARS = {  # figures drawn where rows have them
    "bleu": "BLEU: more is better",
    "chrf": "chrF: more is better",
    "bits_per_symbol": "Bits per symbol: less is better",
    "accuracy": "Accuracy: more is better",
    "auroc": "AUROC: more is better",
    "auroc_mean": "Mean AUROC of the labels: more is better",
    "mcc": "MCC, the correlation of prediction and truth: more is better",
    "rmse": "RMSE: less is better",
    "rmse_standardized_mean": "Mean standardized RMSE of the targets: less is better",
    "spearman": "Spearman's correlation: more is better",
    "spearman_mean": "Mean of Spearman's correlations of the targets: more is better",
}

Strip = tuple[list[str], list[tuple[str, list[float]]]]  # tokens, and the bits of each by model


def comparison_page(
    comparison: Comparison,
    *,
    title: str,
    strip: Strip | None = None,
    samples: Mapping[str, Sequence[str]] | None = None,
) -> Page:
    """The page of a comparison, with a text's surprise and what the models say by themselves."""
    best = comparison.rows[0]
    page = Page(title, f"{len(comparison.rows)} models · best {best.model} · {best.worth}")
    add_table(page, comparison)
    add_learning(page, comparison)
    if comparison.sentences:
        add_translations(page, comparison)
    add_best(page, comparison)
    if strip is not None:
        add_strip(page, strip)
    if samples:
        add_samples(page, samples)
    return page


def add_table(page: Page, comparison: Comparison) -> None:
    """The verdict, the table and its figures as bars."""
    seen = "the same part of the data" + " in each fold" * bool(comparison.folds)
    page.section(
        "The table",
        f"Every model learned from {seen} and is measured on the same {comparison.material}. "
        "Intervals are 95%, by the bootstrap. A rank is one more than the number of models that "
        "are surely better, compared in pairs.",
    )
    page.add(Text(f"{comparison.verdict} {comparison.shortened}".strip()))
    columns, lines = comparison.cells()
    won = [i for i, row in enumerate(comparison.rows) if row.rank == 1]
    wide = comparison.sentences or comparison.rows[0].answers is not None
    cost = columns.index("parameters") if wide else len(columns)
    for part, title in ((range(2, cost), ""), (range(cost, len(columns)), "What it cost")):
        if part:  # of most there is more than goes beside each other
            some = [0, 1, *part]
            cells = [[line[i] for i in some] for line in lines]
            sides = ["right", "left", *["right"] * len(part)]
            named = [columns[i] for i in some]
            page.add(Table(named, cells, align=sides, highlight=won, title=title))
    columns, lines = comparison.target_cells()
    if columns:
        sides = ["left", *["right"] * (len(columns) - 1)]
        page.add(Table(columns, lines, align=sides, highlight=won, title="Each target"))
    if comparison.signatures:
        signed = "; ".join(f"{name} {one}" for name, one in comparison.signatures.items())
        page.add(Text(f"How translations were judged (sacrebleu): {signed}."))
    for name, words in BARS.items():
        add_bars(page, [row for row in comparison.rows if name in row.figures], name, words)


def add_bars(page: Page, rows: Sequence[Row], name: str, words: str) -> None:
    """One figure of the rows that have it and for which it is finite."""
    rows = [row for row in rows if math.isfinite(row.figures[name].value)]
    figures = [row.figures[name] for row in rows]
    if figures:
        page.add(
            Bars(
                [row.model for row in rows],
                [figure.value for figure in figures],
                [figure.low for figure in figures],
                [figure.high for figure in figures],
                title=words,
                unit="bits" if name == "bits_per_symbol" else "",
                highlight=[i for i, row in enumerate(rows) if row.rank == 1],
            )
        )


def add_best(page: Page, comparison: Comparison) -> None:
    """What the best of the models that answer gets right and wrong."""
    best = comparison.rows[0]
    if best.answers is None or not math.isfinite(best.cost):
        return
    page.section(
        f"The best row: {best.model}",
        f"What it says of the {comparison.material}. {NOTES[comparison.task]}",
    )
    for some in pictures(best.answers.answered, best.answers.targets):
        page.add(*some)


def add_translations(page: Page, comparison: Comparison) -> None:
    """Held-out sentences, how they should be translated, and what each model made of them."""
    page.section(
        "Translations",
        "The first held-out sentences, as they should be translated and as the models did it, by "
        "beam search. ✓: word for word the reference.",
    )
    made = {row.model: load_translations(row.runs[0])[0] for row in comparison.rows}
    for number in range(min(SHOWN, comparison.sentences)):
        asked = next(iter(made.values()))[number]
        lines = [["reference", asked.reference]]
        for model, sentences in made.items():
            said = sentences[number].translation
            lines.append([model, "✓" if said == asked.reference else said])
        page.add(Table(["", asked.source], lines, align=["left", "left"], highlight=[0]))


def add_learning(page: Page, comparison: Comparison) -> None:
    """Validation while training, and the figure against the size of the training data."""
    series = []
    for row in comparison.rows:
        seconds, nats = learning(row.runs[0])
        if len(seconds) > 1:
            series.append((row.model, seconds, nats))
    if not series and not comparison.curves:
        return
    label = UNITS.get(comparison.task, "nats per symbol")
    page.section("Learning", f"{label.capitalize()} on the validation part while models trained.")
    if series:
        page.add(Lines(series, x_label="seconds", y_label=label, title="While training"))
    if comparison.curves:
        curves = [
            (model, [float(n) for n, _ in points], [nats for _, nats in points])
            for model, points in comparison.curves.items()
        ]
        label = comparison.curved_by.replace("_", " ")
        title = "With more data"
        page.add(Lines(curves, "training symbols", label, log_x=True, title=title))


def learning(run: Path) -> tuple[list[float], list[float]]:
    """Seconds and what validation cost that a run logged."""
    found = list(validations(run))
    return [seconds for seconds, _ in found], [nats for _, nats in found]


def add_strip(page: Page, strip: Strip) -> None:
    """One held-out text, symbol by symbol, under the eyes of every model."""
    page.section(
        "Surprise",
        "One held-out text: the stronger the colour, the less the model expected the symbol. Where "
        "the rows part, one model knows what another does not.",
    )
    page.add(Surprise(strip[0], strip[1], title="Bits of each symbol, by model"))


def add_samples(page: Page, samples: Mapping[str, Sequence[str]]) -> None:
    """What each model says by itself."""
    page.section("Samples", "Drawn from each model's own distribution, with one seed.")
    for name, texts in samples.items():
        page.add(Sequences([(text, None) for text in texts], title=name))
