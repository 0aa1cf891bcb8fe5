"""Steps through gradient-boosted trees: the features of one step of the horizon, and the path that
they take through every tree.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from regard.look.steps.forecasters import FIRST_CHANNEL, in_units
from regard.look.steps.operations import (
    Deviation,
    Entries,
    Join,
    Leaves,
    Mean,
    Rescale,
    Total,
    ZScore,
)
from regard.look.steps.stages import Names, Stage, Tracer
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.classical_forecasters import NODE_ARRAYS, Boosting
from regard.models.forecaster import EPS


@register_steps(Boosting)
def boosting_steps(subject: StepSubject) -> None:
    """Follow one step of the horizon through all trees."""
    model, past = cast(Boosting, subject.model), subject.tensors["past"]
    c = model.config
    t = subject.start([f"step {i + 1}" for i in range(c.horizon)], [FIRST_CHANNEL])
    output = int(model.point(torch.arange(c.n_outputs)[None]).item())
    if c.quantiles:
        level = f"{c.quantiles[output]:g}"
        t.trace.notes.append(f"Each level has trees of its own: these are for {level}.")
    values, mean, deviation = model.normalize(past)
    names = [f"−{past.size(1) - i}" for i in range(past.size(1))]
    with t.level("Input") as inner:
        words = "the values before the forecast, the last one at −1"
        channel = past[0, :, 0].float()
        x = inner.given("Look-back", channel, shown=True, formula=words, columns=names)
        formula, known = "the mean of the known values", mean[0, :, 0]
        m = inner.step("Mean", Mean(), x, formula=formula, measured=known)
        formula, known = "√(mean((xᵢ − mean)²) + ε)", deviation[0, :, 0]
        d = inner.step("Deviation", Deviation(EPS), x, m, formula=formula, measured=known)
        formula, known = "(xᵢ − mean) / deviation", values[0, :, 0]
        words_of: dict[str, Any] = {"formula": formula, "measured": known, "columns": names}
        x = inner.step("Normalized look-back", ZScore(), x, m, d, **words_of)
    with t.level("Features") as inner:
        x = feature_steps(inner, subject, model, values, x)
    with t.level("Trees") as inner:
        x = tree_steps(inner, model, x, output)
    with t.level("Output") as inner:
        baseline = inner.given("where trees start", model.baseline[output][None])
        formula = "the sum of all trees, and of the constant that they start from"
        y = inner.step("Forecast, normalized", Total(), x, baseline, formula=formula)
        formula = "y · deviation + mean of the look-back"
        measured = subject.output[0, t.position, 0, output][None]
        y = inner.step("Forecast", Rescale(), y, d, m, formula=formula, measured=measured)
        in_units(inner, subject, y)


def feature_steps(
    t: Tracer, subject: StepSubject, model: Boosting, values: Tensor, x: Stage
) -> Stage:
    """Add what the trees read for the step of the horizon."""
    c, length, step = model.config, values.size(1), t.position
    lags = tuple(range(length - c.n_lags, length))
    parts = [t.step("Last values", Entries(lags), x, formula="the last values, normalized")]
    names = [f"value at −{length - at}" for at in lags]
    for seasons in (1, 2) if c.season else ():
        at = length + step - c.season * (step // c.season + seasons)
        name = "one season before" if seasons == 1 else "two seasons before"
        names.append(name)
        if at >= 0:
            parts.append(t.step(name, Entries((at,)), x, formula="the value at the same phase"))
        else:
            parts.append(t.given(name, [torch.nan], formula="the look-back does not have it"))
    names += ["step", "channel"]
    parts.append(t.given("step and channel", [float(step), 0.0]))
    row = torch.zeros(1, dtype=torch.int64)
    future = subject.tensors.get("future") if c.n_known else None
    measured = model.features(values, future, row, row + step, row)[0]
    if c.n_known:
        names += [f"covariate {i + 1}" for i in range(c.n_known)]
        parts.append(t.given("covariates of the step", measured[-c.n_known :]))
    formula = "what every tree reads; steps and channels count from 0"
    return t.step("Features", Join(), *parts, formula=formula, measured=measured, columns=names)


def tree_steps(t: Tracer, model: Boosting, x: Stage, output: int) -> Stage:
    """Add the leaf of every tree of one output."""
    roots = model.roots[model.outputs == output].tolist()
    nodes = torch.stack([getattr(model, name).double() for name in NODE_ARRAYS], 1)
    columns: Names = ["feature", "at most", "then node", "value"]
    table = t.given("nodes of the trees", nodes, columns=columns)
    formula = "the number at the end of the path through each tree: choose one to see its path"
    trees = [f"tree {i + 1}" for i in range(len(roots))]
    return t.step("Leaves", Leaves(tuple(roots)), x, table, formula=formula, columns=trees)
