"""Steps through linear models of features: pixels, statistics of point clouds and of series, random
convolutions, and the steps around a step.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from regard.layers.embeddings import to_image
from regard.layers.series import fill_linearly
from regard.look.steps.operations import (
    BinShares,
    ColumnDeviations,
    Deviation,
    Dot,
    Entries,
    ExceedingShares,
    Join,
    Mean,
    MeanRows,
    PairDistances,
    RowNorms,
    Standardize,
    Subtract,
)
from regard.look.steps.outputs import fitted_answer, target_names
from regard.look.steps.series_statistics import column_statistics
from regard.look.steps.stages import Names, Stage, Tracer, Ways
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.linear import BINS, PixelLogistic, PointCloudLogistic, Regression
from regard.models.series_features import (
    HALF,
    LAGS,
    MARGIN,
    QUANTILES,
    WIDER,
    Rocket,
    SeriesLogistic,
    StandardizedRegression,
    StepLogistic,
)

FEATURES = Ways()  # (subject) -> tracer, features, and their names
SCALES = Ways()  # (tracer, model, features, names) -> features in the units that are fitted
MOST_POINTS = 256  # whose distances are all shown
Features = tuple[Tracer, Stage, Names]


@register_steps(Regression)
def regression_steps(subject: StepSubject) -> None:
    """Compute the features, put them into the units of training, and add them up."""
    model = cast(Regression, subject.model)
    way, scale = FEATURES.find(model), SCALES.find(model)
    assert way is not None and scale is not None
    t, x, names = way(subject)
    x = scale(t, model, x, names)
    classes = target_names(subject)
    weights = t.given("coefficients", model.coefficients.T, rows=classes, columns=names)
    bias = t.given("bias", model.bias, columns=classes)
    formula = f"zᵢ = Σₖ xₖ Wᵢₖ + bᵢ, over the {model.feature_name}"
    fitted_answer(t, subject, Dot(), x, weights, bias, formula=formula)


@SCALES.register(Regression)
def unscaled(t: Tracer, model: Regression, x: Stage, names: Names) -> Stage:
    return x


@SCALES.register(StandardizedRegression, PointCloudLogistic)
def standardized(t: Tracer, model: Any, x: Stage, names: Names) -> Stage:
    """Add the features in units of their deviation in training."""
    with t.level("Features") as inner:
        mean = inner.given("means in training", model.mean, columns=names)
        deviation = inner.given("deviations in training", model.deviation, columns=names)
        formula = "(xᵢ − mean) / deviation, of the training records"
        words: dict[str, Any] = {"formula": formula, "columns": names}
        return inner.step("Standardized features", Standardize(), x, mean, deviation, **words)


@FEATURES.register(PixelLogistic)
def pixel_features(subject: StepSubject) -> Features:
    """Standardize the pixels of an image."""
    model, source, c = subject.model, subject.inputs(), subject.model.config
    t = subject.start(["the image"])
    image, mask = to_image(source, c.rows, c.columns, c.patch)  # (1, C, Y, X), (1, 1, Y, X)
    channels, height, width = image.shape[1:]
    names = [
        f"row {y + 1}, column {x + 1}" + (f", channel {n + 1}" if channels > 1 else "")
        for n in range(channels)
        for y in range(height)
        for x in range(width)
    ]
    pixels = torch.where(mask > 0, image, torch.nan).flatten()
    scales = [
        255 * torch.tensor(values).repeat_interleave(height * width)
        for values in (c.mean, c.deviation)
    ]
    with t.level("Input") as inner:
        words: dict[str, Any] = {"columns": names}
        formula = "bytes, row by row; missing outside a smaller image"
        x = inner.given("Pixels", pixels, shown=True, formula=formula, **words)
        titles = ("means of the channels", "deviations of the channels")
        given = [inner.given(*pair, **words) for pair in zip(titles, scales, strict=True)]
        formula, measured = "(pixelᵢ − mean) / deviation", model.features(source)[0]
        words |= {"formula": formula, "measured": measured}
        return t, inner.step("Standardized pixels", Standardize(), x, *given, **words), names


@FEATURES.register(PointCloudLogistic)
def cloud_features(subject: StepSubject) -> Features:
    """Compute what does not change when a cloud is rotated."""
    model, source, c = subject.model, subject.inputs(), subject.model.config
    d, ids = c.dimensions, source.ids[0, 1:].float()
    t = subject.start(["the point cloud"])
    rows = [f"point {i + 1}" for i in range(len(ids))]
    with t.level("Input") as inner:
        words: dict[str, Any] = {"shown": True, "rows": rows}
        points = inner.given("Points", ids[:, :d], formula="the centers of groups", **words)
        middle = inner.step("Centroid", MeanRows(), points, formula="the mean of all points")
        around = inner.step(
            "Centered", Subtract(), points, middle, formula="x − centroid", rows=rows
        )
    parts = [axis_steps(t, around, rows)]
    parts += spread_steps(t, around, rows, c.max_distance / 2)
    parts += gap_steps(t, around, rows, c.max_distance, model.features(source)[0, d + 2 + BINS :])
    with t.level("Other features") as inner:
        if c.n_features:
            extra = ids[:, 2 * d + 1 : 2 * d + 1 + c.n_features]
            table = inner.given("Features of points", extra, rows=rows, shown=True)
            formula = "over the points, of every feature"
            parts.append(inner.step("Their means", MeanRows(), table, formula=formula))
            parts.append(inner.step("Their deviations", ColumnDeviations(), table, formula=formula))
        if c.elements:
            counts, formula = c.composition(source)[0], "points of each element"
            parts.append(inner.given("Elements", counts, shown=True, formula=formula))
        parts.append(inner.given("Points, their number", [float(len(ids))], shown=True))
    names = cloud_names(c)
    with t.level("Features") as inner:
        formula, measured = "all statistics, one after the other", model.features(source)[0]
        words = {"formula": formula, "measured": measured, "columns": names}
        return t, inner.step("Features", Join(), *parts, **words), names


def cloud_names(c: Any) -> Names:
    """Return the names of the statistics of a point cloud."""
    names = [f"spread along axis {i + 1}" for i in range(c.dimensions)]
    for what in ("to the centroid", "between points"):
        names += [f"mean distance {what}", f"its deviation {what}"]
        names += [f"share of distances {what}, bin {i + 1}" for i in range(BINS)]
    names += [f"mean of feature {i + 1}" for i in range(c.n_features)]
    names += [f"deviation of feature {i + 1}" for i in range(c.n_features)]
    return [*names, *(f"points of element {z}" for z in c.elements), "points"]


def axis_steps(t: Tracer, around: Stage, rows: Names) -> Stage:
    """Add the spread along the principal axes."""
    centered = torch.from_numpy(around.values)
    vectors = torch.linalg.eigh(centered.T @ centered)[1].T  # as rows, the narrowest first
    with t.level("Principal axes") as inner:
        formula = "eigenvectors of the covariance, the narrowest first"
        axes = inner.given("Axes", vectors, shown=True, formula=formula)
        formula = "the coordinates along each axis"
        along = inner.step("Along the axes", Dot(), around, axes, formula=formula, rows=rows)
        formula = "the deviation along each axis"
        return inner.step("Spread", ColumnDeviations(), along, formula=formula)


def spread_steps(t: Tracer, around: Stage, rows: Names, largest: float) -> list[Stage]:
    """Add how far points are from the centroid."""
    with t.level("Distances to the centroid") as inner:
        x = inner.step("Distances", RowNorms(), around, formula="|x|", columns=rows)
        return summary_steps(inner, x, largest)


def gap_steps(
    t: Tracer, around: Stage, rows: Names, largest: float, measured: Tensor
) -> list[Stage]:
    """Add how far points are from each other; of many points the results alone."""
    with t.level("Distances between points") as inner:
        if len(rows) > MOST_POINTS:
            words = f"mean, deviation and histogram of all {len(rows) ** 2:,} distances"
            return [inner.given("Summary", measured[: 2 + BINS], shown=True, formula=words)]
        words_of: dict[str, Any] = {"formula": "|xᵣ − xₛ|", "rows": rows, "columns": rows}
        return summary_steps(
            inner, inner.step("Distances", PairDistances(), around, **words_of), largest
        )


def summary_steps(t: Tracer, x: Stage, largest: float) -> list[Stage]:
    """Add mean, deviation and histogram."""
    mean = t.step("Mean", Mean(), x, formula="the mean of all")
    deviation = t.step("Deviation", Deviation(0.0), x, mean, formula="√(mean((x − mean)²))")
    formula = f"shares in {BINS} bins from 0 to {largest:.4g}"
    return [mean, deviation, t.step("Histogram", BinShares(BINS, largest), x, formula=formula)]


@FEATURES.register(SeriesLogistic)
def series_features(subject: StepSubject) -> Features:
    """Compute the statistics of the first column, and take those of the others as they are."""
    model, source = subject.model, subject.inputs()
    t = subject.start(["the series"])
    moments = ["mean", "deviation", "skewness", "kurtosis", "first value", "last value", "slope"]
    moments += ["size of a change", "size of a change of the change", "crossings of the mean"]
    each = [moments, [f"quantile {q:g}" for q in QUANTILES], [f"lag {n}" for n in LAGS]]
    count = int(model.config.n_channels)
    columns = [f"column {n + 1}: " if count > 1 else "" for n in range(count)]
    names = [f"{column}{name}" for part in each for column in columns for name in part]
    rest = len(model.coefficients) - len(names) - count - 1
    names += [f"{column}power in band {i + 1}" for column in columns for i in range(rest // count)]
    names += [f"{column}share missing" for column in columns] + ["logarithm of the length"]
    values, rows = filled_steps(subject)
    with t.level("Input") as inner:
        formula = "the steps; what is missing is filled linearly"
        x = inner.given("Steps", values, shown=True, formula=formula, rows=rows)
    measured, parts, at = model.features(source)[0], list[Stage](), 0
    for statistics in column_statistics(t, x, rows, int(model.config.longest)):
        parts += statistics
        at += sum(len(stage.values) for stage in statistics)
        if count > 1:
            others = (count - 1) * sum(len(stage.values) for stage in statistics)
            parts.append(t.given("those of the other columns", measured[at : at + others]))
            at += others
    parts.append(t.given("shares missing, and the logarithm of the length", measured[at:]))
    with t.level("Features") as inner:
        formula = "statistics of each column, one after the other"
        words: dict[str, Any] = {"formula": formula, "measured": measured, "columns": names}
        return t, inner.step("Features", Join(), *parts, **words), names


def filled_steps(subject: StepSubject) -> tuple[Tensor, Names]:
    """Return the steps (T, C) that exist, and their names."""
    steps = subject.model.steps(subject.inputs())
    length = int(steps.lengths[0])
    return fill_linearly(steps)[0, :length].double(), [f"step {i + 1}" for i in range(length)]


@FEATURES.register(Rocket)
def convolution_features(subject: StepSubject) -> Features:
    """Count the steps at which each convolution is above its threshold."""
    model, c = cast(Rocket, subject.model), subject.model.config
    t = subject.start(["the series"])
    values, rows = filled_steps(subject)
    columns = [f"column {i + 1}" for i in range(values.size(1))]
    table: dict[str, Any] = {"rows": rows, "columns": columns}
    with t.level("Input") as inner:
        formula = "the steps; what is missing is filled linearly"
        x = inner.given("Steps", values, shown=True, formula=formula, **table)
        mean = inner.step("Mean", MeanRows(), x, formula="of each column", columns=columns)
        x = inner.step("Centered", Subtract(), x, mean, formula="x − mean", **table)
    with t.level("Features") as inner:
        thresholds = inner.given("thresholds", model.thresholds.mT.flatten())
        chosen = inner.given("columns of each filter", model.channels.flatten(0, 1))
        names = [
            f"filter {n + 1}, dilation {dilation}, level {level + 1}"
            for dilation in c.dilations
            for level in range(c.n_thresholds)
            for n in range(model.thresholds.size(1))
        ]
        how = ExceedingShares(tuple(c.dilations), MARGIN)
        formula = "the share of steps at which a filter is above its threshold"
        measured = model.features(subject.inputs())[0]
        words: dict[str, Any] = {"formula": formula, "measured": measured, "columns": names}
        return t, inner.step("Features", how, x, thresholds, chosen, **words), names


@FEATURES.register(StepLogistic)
def window_features(subject: StepSubject) -> Features:
    """Read the steps around a step, and means and deviations of wider windows."""
    model = cast(StepLogistic, subject.model)
    values, rows = filled_steps(subject)  # (T, C)
    t = subject.start(["<S>", *rows])
    count, at = values.size(1), t.position - 1
    measured, names = model.features(subject.inputs())[0, t.position], list[str]()
    table: dict[str, Any] = {"rows": rows, "columns": [f"column {i + 1}" for i in range(count)]}
    parts = []
    for channel in range(count):
        column = f"column {channel + 1}: " if count > 1 else ""
        names += [f"{column}value at {k:+d}" for k in range(-HALF, HALF + 1)]
        names += [f"{column}{w} over ±{half}" for half in WIDER for w in ("mean", "deviation")]
    if not t.position:  # `<S>` has no steps around it
        with t.level("Features") as inner:
            formula = "<S> has none: all are 0"
            words: dict[str, Any] = {"shown": True, "formula": formula, "columns": names}
            return t, inner.given("Features", measured, **words), names
    with t.level("Input") as inner:
        formula = "the steps; what is missing is filled linearly"
        x = inner.given("Steps", values, shown=True, formula=formula, **table)
    for channel in range(count):
        with t.level(f"Column {channel + 1}") as inner:
            parts += column_steps(inner, x, channel, at)
    with t.level("Features") as inner:
        words = {"formula": "all of them", "measured": measured, "columns": names}
        return t, inner.step("Features", Join(), *parts, **words), names


def column_steps(t: Tracer, x: Stage, channel: int, at: int) -> list[Stage]:
    """Add the features of one column around a step."""
    length, width = x.values.shape

    def row_of(step: int) -> int:
        return step * width + channel if 0 <= step < length else -1

    places = tuple(row_of(at + k) for k in range(-HALF, HALF + 1))
    formula = f"{HALF} steps before, the step, and {HALF} after; 0 beyond the ends"
    parts = [t.step("Values around", Entries(places), x, formula=formula)]
    for half in WIDER:
        inside = range(max(0, at - half), min(length, at + half + 1))
        window = Entries(tuple(row_of(step) for step in inside))
        values = t.step(f"Within ±{half}", window, x, formula="the steps that exist")
        mean = t.step(f"Mean within ±{half}", Mean(), values, formula="the mean")
        formula = "√(mean((x − mean)²))"
        deviation = t.step(
            f"Deviation within ±{half}", Deviation(0.0), values, mean, formula=formula
        )
        parts += [mean, deviation]
    return parts
