"""The page of `regard compare`: the table, learning curves, and one text under all models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from regard.evaluation.comparison import Comparison, Row
from regard.evaluation.translation import load_translations
from regard.look.page import Lines, Page, Sequences, Surprise, Table, Text
from regard.look.prediction_page import add_errors, plot_metric
from regard.look.surprise_page import Strip
from regard.registry import TASKS
from regard.run import Run

MOST_SENTENCES = 8  # whose translations are shown
CHARTS = {  # metrics drawn where rows have them: the title, and the unit
    "bleu": ("BLEU", ""),
    "chrf": ("chrF", ""),
    "bits_per_symbol": ("Bits per symbol", "bits per symbol"),
    "accuracy": ("Accuracy", ""),
    "auroc": ("AUROC", ""),
    "auroc_mean": ("Mean AUROC of the labels", ""),
    "mcc": ("MCC, the correlation of prediction and truth", ""),
    "rmse": ("RMSE", ""),
    "mse_standardized": ("Standardized MSE", ""),
    "rmse_standardized_mean": ("Mean standardized RMSE of the targets", ""),
    "spearman": ("Spearman's correlation", ""),
    "spearman_mean": ("Mean of Spearman's correlations of the targets", ""),
}
LEAST_SECONDS = 0.01  # of training, on the axis of cost: it is logarithmic


def comparison_page(
    comparison: Comparison,
    *,
    title: str,
    strip: Strip | None = None,
    samples: Mapping[str, Sequence[str]] | None = None,
) -> Page:
    """Return the page of a comparison, with the surprise of a text and samples if given."""
    best = comparison.rows[0]
    page = Page(title, f"{len(comparison.rows)} models on {comparison.data_description}")
    page.section("The verdict")
    page.add(Text(f"{comparison.verdict} {comparison.left_out_note}".strip()))
    _add_table(page, comparison)
    _add_charts(page, comparison)
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
    """Add the table: quality, size and speed, and each of several targets."""
    data = "the same data" + " in each fold" * bool(comparison.folds)
    page.section(
        "The table",
        f"All models were trained on {data} and evaluated on the same "
        f"{comparison.data_description}. "
        "Intervals are 95%, by the bootstrap. A rank is one more than the number of models that "
        "are significantly better in a paired comparison.",
    )
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


def _add_charts(page: Page, comparison: Comparison) -> None:
    """Draw each metric with its intervals, and the one that ranks against the cost of training."""
    best = {row.model for row in comparison.rows if row.rank == 1}
    for name, (title, unit) in CHARTS.items():
        rows = {row.model: row.estimates[name] for row in comparison.rows if name in row.estimates}
        rows = {model: x for model, x in rows.items() if not math.isnan(x.value)}
        if any(math.isfinite(x.value) for x in rows.values()):
            highlight = [i for i, model in enumerate(rows) if model in best]
            better = "less" if next(iter(rows.values())).lower_is_better else "more"
            options = {"title": title, "unit": unit or title.split(",")[0], "better": better}
            page.add(plot_metric(rows, highlight=highlight, **options))
    finite = [row for row in comparison.rows if math.isfinite(row.main_metric.value)]
    if len(finite) > 1:
        page.add(plot_cost(finite))


def plot_cost(rows: Sequence[Row]) -> Lines:
    """Draw the metric that ranks rows against the seconds that training took, a point each."""
    title = rows[0].estimates[rows[0].ranked_by].title
    points, bands = [], {}
    for row in rows:
        metric = row.main_metric
        points.append((row.model, [max(row.train_seconds, LEAST_SECONDS)], [metric.value]))
        bands[row.model] = ([metric.low], [metric.high])
    return Lines(
        points,
        "seconds of training",
        title,
        "Quality and cost",
        log_x=True,
        bands=bands,
        dots=[row.model for row in rows],
    )


def _add_learning(page: Page, comparison: Comparison) -> None:
    """Add validation losses during training, and metrics by the size of the training data."""
    series, metric = [], "loss"
    for row in comparison.rows:
        points = list(Run(row.runs[0]).validations())
        if len(points) > 1:
            seconds, values = [one.seconds for one in points], [one.value for one in points]
            series.append((row.model, seconds, values))
            metric = points[0].metric.replace("_", " ")
    if not series and not comparison.curves:
        return
    page.section("Learning", f"{metric.capitalize()} on the validation split during training.")
    if series:
        page.add(Lines(series, x_label="seconds", y_label=metric, title="During training"))
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
