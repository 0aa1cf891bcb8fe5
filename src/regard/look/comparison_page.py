"""The page of `regard compare`: the table, learning curves, and one text under all models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from regard.evaluation.comparison import Comparison
from regard.evaluation.translation import load_translations
from regard.look.page import Lines, Page, Sequences, Surprise, Table, Text
from regard.look.prediction_page import add_errors, plot_metric
from regard.look.surprise_page import Strip
from regard.registry import TASKS
from regard.run import Run

MOST_SENTENCES = 8  # whose translations are shown
BARS = {  # metrics drawn where rows have them
    "bleu": "BLEU: more is better",
    "chrf": "chrF: more is better",
    "bits_per_symbol": "Bits per symbol: less is better",
    "accuracy": "Accuracy: more is better",
    "auroc": "AUROC: more is better",
    "auroc_mean": "Mean AUROC of the labels: more is better",
    "mcc": "MCC, the correlation of prediction and truth: more is better",
    "rmse": "RMSE: less is better",
    "mse_standardized": "Standardized MSE: less is better",
    "rmse_standardized_mean": "Mean standardized RMSE of the targets: less is better",
    "spearman": "Spearman's correlation: more is better",
    "spearman_mean": "Mean of Spearman's correlations of the targets: more is better",
}


def comparison_page(
    comparison: Comparison,
    *,
    title: str,
    strip: Strip | None = None,
    samples: Mapping[str, Sequence[str]] | None = None,
) -> Page:
    """Return the page of a comparison, with the surprise of a text and samples if given."""
    best = comparison.rows[0]
    page = Page(title, f"{len(comparison.rows)} models · best {best.model} · {best.summary}")
    _add_table(page, comparison)
    TASKS[comparison.task]().add_to_comparison(page, comparison)
    _add_learning(page, comparison)
    if comparison.sentences:
        _add_translations(page, comparison)
    if best.predictions is not None and math.isfinite(best.ranking_loss):
        words, title = f"the {comparison.data_description}", f"The best row: {best.model}"
        add_errors(page, best.predictions, words, title)
    if strip is not None:
        page.section(
            "Surprise",
            "One held-out text: the stronger the colour, the less the model expected the symbol. "
            "Where rows differ, one model knows what another does not.",
        )
        page.add(Surprise(*strip, title="Bits of each symbol, by model"))
    if samples:
        page.section("Samples", "Drawn from the distribution of each model, with one seed.")
        for name, texts in samples.items():
            page.add(Sequences([(text, None) for text in texts], title=name))
    return page


def _add_table(page: Page, comparison: Comparison) -> None:
    """Add the verdict, the table and its metrics as bars."""
    data = "the same data" + " in each fold" * bool(comparison.folds)
    page.section(
        "The table",
        f"All models were trained on {data} and evaluated on the same "
        f"{comparison.data_description}. "
        "Intervals are 95%, by the bootstrap. A rank is one more than the number of models that "
        "are significantly better in a paired comparison.",
    )
    page.add(Text(f"{comparison.verdict} {comparison.left_out_note}".strip()))
    columns, lines = comparison.table()
    winners = [i for i, row in enumerate(comparison.rows) if row.rank == 1]
    # Tables of many metrics are too wide: parameters, times and memory become a second one.
    wide = comparison.sentences or comparison.rows[0].predictions is not None
    border = columns.index("parameters") if wide else len(columns)
    for part, title in ((range(2, border), ""), (range(border, len(columns)), "Size and speed")):
        if part:
            shown = [0, 1, *part]
            page.add(
                Table(
                    [columns[i] for i in shown],
                    [[line[i] for i in shown] for line in lines],
                    align=["right", "left", *["right"] * len(part)],
                    highlight=winners,
                    title=title,
                )
            )
    columns, lines = comparison.target_table()
    if columns:
        align = ["left", *["right"] * (len(columns) - 1)]
        page.add(Table(columns, lines, align=align, highlight=winners, title="Each target"))
    if comparison.signatures:
        signatures = "; ".join(f"{name} {text}" for name, text in comparison.signatures.items())
        page.add(Text(f"How translations were scored (sacrebleu): {signatures}."))
    best = {row.model for row in comparison.rows if row.rank == 1}
    for name, title in BARS.items():
        estimates = {row.model: row.estimates.get(name) for row in comparison.rows}
        finite = {key: x for key, x in estimates.items() if x and math.isfinite(x.value)}
        if finite:
            unit = "bits" if name == "bits_per_symbol" else ""
            highlight = [i for i, model in enumerate(finite) if model in best]
            page.add(plot_metric(finite, title=title, unit=unit, highlight=highlight))


def _add_learning(page: Page, comparison: Comparison) -> None:
    """Add validation losses during training, and metrics by the size of the training data."""
    series = []
    for row in comparison.rows:
        points = list(Run(row.runs[0]).validations())
        if len(points) > 1:
            seconds, losses = map(list, zip(*points, strict=True))
            series.append((row.model, seconds, losses))
    if not series and not comparison.curves:
        return
    unit = TASKS[comparison.task].card.loss_unit
    page.section("Learning", f"{unit.capitalize()} on the validation split during training.")
    if series:
        page.add(Lines(series, x_label="seconds", y_label=unit, title="During training"))
    if comparison.curves:
        curves = [
            (model, [float(n) for n, _ in points], [value for _, value in points])
            for model, points in comparison.curves.items()
        ]
        label = comparison.curve_metric.replace("_", " ")
        page.add(Lines(curves, "training symbols", label, log_x=True, title="With more data"))


def _add_translations(page: Page, comparison: Comparison) -> None:
    page.section(
        "Translations",
        "The first held-out sentences, their references, and the translations of each model by "
        "beam search. ✓: equal to the reference.",
    )
    translations = {row.model: load_translations(row.runs[0])[0] for row in comparison.rows}
    for number in range(min(MOST_SENTENCES, comparison.sentences)):
        first = next(iter(translations.values()))[number]
        lines = [["reference", first.reference]]
        for model, sentences in translations.items():
            text = sentences[number].translation
            lines.append([model, "✓" if text == first.reference else text])
        page.add(Table(["", first.source], lines, align=["left", "left"], highlight=[0]))
