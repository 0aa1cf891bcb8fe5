"""Steps through forecasters without hidden layers: the last value, the last season, a line,
exponential smoothing, and linear maps from the look-back to the horizon.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from regard.look.steps.forecasters import FIRST_CHANNEL, horizon_names, in_units
from regard.look.steps.operations import (
    Add,
    Combine,
    Deviation,
    Dot,
    Entries,
    Join,
    Mean,
    MovingAverage,
    Multiply,
    Rescale,
    Scale,
    Standardize,
    Subtract,
)
from regard.look.steps.stages import Names, Stage, Tracer
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.classical_forecasters import (
    Drift,
    ExponentialSmoothing,
    Naive,
    RidgeLags,
    SeasonalNaive,
    SmoothingState,
    initial_state,
    last_observed,
)
from regard.models.forecaster import EPS, DLinear, NLinear

SMOOTHED = 8  # steps that exponential smoothing is followed through
READS_ALL = "The whole look-back is read at once: the stages are the same for each of its steps."


def start(subject: StepSubject, values: Tensor) -> tuple[Tracer, Stage]:
    """Start the trace of a look-back (1, L, C), NaN where missing; its steps are counted back from
    the forecast.
    """
    length = values.size(1)
    names = [f"−{length - i}" for i in range(length)]
    t = subject.start(names, [FIRST_CHANNEL, READS_ALL])
    with t.level("Input") as inner:
        words = "the values before the forecast, standardized, the last one at −1"
        x = inner.given("Look-back", values[0, :, 0], shown=True, formula=words, columns=names)
    return t, x


def channels(subject: StepSubject) -> Tensor:
    """Return the channels (1, L, C) of the look-back."""
    values: Tensor = subject.model.channels(subject.tensors["past"])
    return values


def output_steps(t: Tracer, subject: StepSubject, point: Stage) -> None:
    """Add the quantiles of errors to a point forecast (H,), and the units of the data."""
    c, x = subject.model.config, point
    if c.quantiles:
        with t.level("Quantiles") as inner:
            x = quantile_steps(inner, subject, point)
    with t.level("Output") as inner:
        in_units(inner, subject, x, horizon_names(c))


def quantile_steps(t: Tracer, subject: StepSubject, point: Stage) -> Stage:
    """Add the quantiles of errors."""
    c, model = subject.model.config, subject.model
    words: dict[str, Any] = {"columns": horizon_names(c)}
    formula = "quantiles of the errors in training windows, of each step of the horizon"
    spread = model.spread[:, 0].flatten()
    errors = t.given("Errors", spread, shown=True, formula=formula, **words)
    places = tuple(h for h in range(c.horizon) for _ in c.quantiles)
    formula = "the forecast of the step, once for each level"
    x = t.step("Point forecast, repeated", Entries(places), point, formula=formula, **words)
    formula, measured = "ŷ + error", whole_output(subject)
    return t.step("Forecast", Add(), x, errors, formula=formula, measured=measured, **words)


def forecast(subject: StepSubject) -> dict[str, Any]:
    """Return what a stage that ends in the point forecast is given."""
    c = subject.model.config
    words: dict[str, Any] = {"columns": [f"step {i + 1}" for i in range(c.horizon)]}
    if not c.quantiles:
        words["measured"] = subject.output[0, :, 0, 0]
    return words


@register_steps(Naive)
def naive_steps(subject: StepSubject) -> None:
    """Repeat the last value."""
    t, x = start(subject, channels(subject))
    with t.level("Forecast") as inner:
        last = last_step(inner, x, channels(subject))
        places, formula = (0,) * subject.model.config.horizon, "ŷ = the last known value"
        x = inner.step(
            "Point forecast", Entries(places), last, formula=formula, **forecast(subject)
        )
    output_steps(t, subject, x)


def last_step(t: Tracer, x: Stage, values: Tensor) -> Stage:
    """Add the last known value."""
    at = int(last_observed(values)[1][0, 0])
    return t.step("Last value", Entries((at,)), x, formula="the last value that is known")


@register_steps(SeasonalNaive)
def seasonal_steps(subject: StepSubject) -> None:
    """Repeat the last season."""
    model, values = cast(SeasonalNaive, subject.model), channels(subject)
    t, x = start(subject, values)
    known = (~values[0, :, 0].isnan()).nonzero().flatten().tolist()
    length, horizon, period = values.size(1), model.config.horizon, model.period
    places = []
    for h in range(horizon):
        same = [at for at in known if period and (length + h - at) % period == 0]
        places.append((same or known or [-1])[-1])
    formula = f"the last known value a whole number of seasons of {period} steps before"
    if not period:
        formula = "the last known value: there is no season"
    with t.level("Forecast") as inner:
        how, words = Entries(tuple(places)), forecast(subject)
        x = inner.step("Point forecast", how, x, formula=formula, **words)
    output_steps(t, subject, x)


@register_steps(Drift)
def drift_steps(subject: StepSubject) -> None:
    """Extend the line through the first and the last value."""
    values, horizon = channels(subject), subject.model.config.horizon
    t, x = start(subject, values)
    length, last = values.size(1), int(last_observed(values)[1][0, 0])
    first = length - 1 - int(last_observed(values.flip(1))[1][0, 0])
    first = first if last >= 0 else -1
    with t.level("Line") as inner:
        end = last_step(inner, x, values)
        first_value = inner.step("First value", Entries((first,)), x, formula="the first known one")
        rise = inner.step("Rise", Subtract(), end, first_value, formula="last − first")
        span = max(1, last - first)
        formula = f"rise / {span}, the steps between both"
        slope = inner.step("Slope", Scale(1 / span, f"1 / {span}"), rise, formula=formula)
    with t.level("Forecast") as inner:
        words = forecast(subject)
        ahead = inner.given(
            "Distance",
            torch.arange(length, length + horizon) - last,
            shown=True,
            formula="steps from the last known value",
            columns=words["columns"],
        )
        formula, columns = "slope · distance", words["columns"]
        risen = inner.step("Added", Multiply(), ahead, slope, formula=formula, columns=columns)
        formula = "ŷ = last value + slope · distance"
        x = inner.step("Point forecast", Add(), risen, end, formula=formula, **words)
    output_steps(t, subject, x)


class State(NamedTuple):
    """The state of exponential smoothing as stages; the season by phase."""

    level: Stage
    slope: Stage
    season: dict[int, Stage]


@register_steps(ExponentialSmoothing)
def smoothing_steps(subject: StepSubject) -> None:
    """Follow level, slope and season through the last steps to the forecast."""
    model, values = cast(ExponentialSmoothing, subject.model), channels(subject)
    t, x = start(subject, values)
    first = max(0, values.size(1) - SMOOTHED)
    before = initial_state(values, model.config.period, model.phi > 0)
    for step in range(first):
        before = model.update(before, values[:, step], step)
    state = first_state(t, model, before, first)
    for step in range(first, values.size(1)):
        with t.level(f"Step {t.tokens[step]}") as inner:
            state = smooth_step(inner, model, x, state, step)
    with t.level("Forecast") as inner:
        words = forecast(subject)
        horizon, columns = model.config.horizon, words["columns"]
        damping = (model.phi[0] ** torch.arange(1, horizon + 1)).cumsum(0)
        formula = "φ + φ² + … + φʰ: the slope fades"
        fading = inner.given("Damping", damping, shown=True, formula=formula, columns=columns)
        risen = inner.step(
            "Trend", Multiply(), fading, state.slope, formula="(φ + … + φʰ) b", columns=columns
        )
        parts = [risen, state.level]
        if model.config.period:
            parts.append(horizon_seasons(inner, state, values.size(1), columns))
        formula = "ŷ = l + (φ + … + φʰ) b + s, of the same phase"
        x = inner.step("Point forecast", Add(), *parts, formula=formula, **words)
    output_steps(t, subject, x)


def first_state(t: Tracer, model: ExponentialSmoothing, state: SmoothingState, step: int) -> State:
    """Add the state before the first step that is followed."""
    with t.level("State before") as inner:
        words = f"before the step {t.tokens[step]}, from all values before it"
        level = inner.given("Level l", state.level[0, :1], shown=True, formula=words)
        slope = inner.given("Slope b", state.slope[0, :1], shown=True, formula=words)
        if not model.config.period:
            return State(level, slope, {})
        names = [f"phase {i + 1}" for i in range(state.season.size(1))]
        season = state.season[0, :, 0]
        every = inner.given("Season s", season, shown=True, formula=words, columns=names)
        phases = {
            i: inner.step(name, Entries((i,)), every, shown=False) for i, name in enumerate(names)
        }
        return State(level, slope, phases)


def smooth_step(
    t: Tracer,
    model: ExponentialSmoothing,
    x: Stage,
    state: State,
    step: int,
) -> State:
    """Add what one value changes."""
    alpha, beta, gamma, phi = (
        float(getattr(model, name)[0]) for name in ("alpha", "beta", "gamma", "phi")
    )
    how = Combine((1.0, phi), ("", "φ"))
    ahead = t.step("Level ahead", how, state.level, state.slope, formula="l + φ b")
    phase = step % max(1, model.config.period)
    season, expected = state.season.get(phase), ahead
    if season is not None:
        expected = t.step("Expected", Add(), ahead, season, formula="l + φ b + s")
    if torch.isnan(torch.tensor(x.values[step])):
        error = t.given("Error e", [0.0], shown=True, formula="the value is missing: no error")
    else:
        value = t.step("Value y", Entries((step,)), x, formula="the value of this step")
        error = t.step("Error e", Subtract(), value, expected, formula="y − expected")
    how = Combine((1.0, alpha), ("", "α"))
    level = t.step("Level l", how, ahead, error, formula="l ← l + φ b + α e")
    how = Combine((phi, alpha * beta), ("φ", "α β"))
    slope = t.step("Slope b", how, state.slope, error, formula="b ← φ b + α β e")
    if season is None:
        return State(level, slope, {})
    how = Combine((1.0, gamma), ("", "γ"))
    renewed = t.step("Season s", how, season, error, formula="s ← s + γ e, of this phase")
    return State(level, slope, state.season | {phase: renewed})


def horizon_seasons(t: Tracer, state: State, length: int, columns: Names) -> Stage:
    """Add the season of every step of the horizon."""
    phases = [(length + h) % len(state.season) for h in range(len(columns))]
    parts = [state.season[phase] for phase in phases]
    formula = "s, of the phase of each step"
    return t.step("Season ahead", Join(), *parts, formula=formula, columns=columns)


class Normalized(NamedTuple):
    """A look-back around 0, and what it was divided by."""

    values: Stage
    mean: Stage
    deviation: Stage


def normalize(t: Tracer, x: Stage, norm: tuple[Tensor, Tensor, Tensor]) -> Normalized:
    """Add the normalization of a window by its own mean and deviation."""
    values, mean, deviation = (part[0, :, 0] for part in norm)
    with t.level("Normalization") as inner:
        formula = "the mean of the known values"
        m = inner.step("Mean", Mean(), x, formula=formula, measured=mean)
        formula, how = "√(mean((xᵢ − mean)²) + ε)", Deviation(EPS)
        d = inner.step("Deviation", how, x, m, formula=formula, measured=deviation)
        formula = "(xᵢ − mean) / deviation; 0 where missing"
        y = inner.step(
            "Normalized look-back",
            Standardize(),
            x,
            m,
            d,
            formula=formula,
            measured=values,
            columns=t.tokens,
        )
    return Normalized(y, m, d)


@register_steps(NLinear)
def nlinear_steps(subject: StepSubject) -> None:
    """Normalize the look-back, map it to the horizon, and put the level back."""
    model, past = cast(NLinear, subject.model), subject.tensors["past"]
    values = model.covariates.subtract(past)
    t, x = start(subject, values)
    norm = model.norm(values)
    window = normalize(t, x, norm)
    columns = horizon_names(model.config)
    with t.level("Forecast") as inner:
        formula = "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ, over the steps of the look-back"
        y = inner.linear("Forecast, normalized", model.map, window.values, formula, columns=columns)
        restored_steps(inner, subject, y, window, columns, norm[2])


def restored_steps(
    t: Tracer, subject: StepSubject, y: Stage, window: Normalized, columns: Names, deviation: Tensor
) -> None:
    """Add the forecast at the level of its window, and the effects of covariates."""
    known = {} if subject.model.covariates.n_known else {"measured": whole_output(subject)}
    formula = "yᵢ · deviation + mean of the look-back"
    x = t.step(
        "Forecast",
        Rescale(),
        y,
        window.deviation,
        window.mean,
        formula=formula,
        columns=columns,
        **known,
    )
    covariate_steps(t, subject, x, columns, deviation)


def whole_output(subject: StepSubject) -> Tensor:
    """Return the forecasts (H · Q,) of the first channel."""
    return subject.output[0, :, 0].flatten()


def covariate_steps(
    t: Tracer, subject: StepSubject, x: Stage, columns: Names, deviation: Tensor
) -> None:
    """Add what covariates that are known in the future change, if there are any."""
    covariates, future = subject.model.covariates, subject.tensors.get("future")
    if not covariates.n_known:
        in_units(t, subject, x, columns)
        return
    nothing = torch.zeros_like(subject.output)
    effect = covariates.add(nothing, future, deviation)[0, :, 0].flatten()
    formula = "what the covariates of each step add, which were subtracted from the look-back"
    added = t.given("Effect of covariates", effect, shown=True, formula=formula, columns=columns)
    words: dict[str, Any] = {"formula": "ŷ + effect", "measured": whole_output(subject)}
    x = t.step("Forecast with covariates", Add(), x, added, columns=columns, **words)
    in_units(t, subject, x, columns)


@register_steps(DLinear)
def dlinear_steps(subject: StepSubject) -> None:
    """Split the look-back into a moving average and the rest, and map each to the horizon."""
    model, past = cast(DLinear, subject.model), subject.tensors["past"]
    values = model.covariates.subtract(past).nan_to_num()
    t, x = start(subject, values)
    columns, kernel = horizon_names(model.config), int(model.config.kernel)
    with t.level("Trend and rest") as inner:
        formula = f"the mean of {kernel} steps around each; the ends are repeated"
        how = MovingAverage(kernel)
        trend = inner.step("Trend", how, x, formula=formula, columns=t.tokens)
        rest = inner.step("Rest", Subtract(), x, trend, formula="x − trend", columns=t.tokens)
    with t.level("Forecast") as inner:
        formula = "Σₖ xₖ Wᵢₖ + bᵢ, over the steps of the look-back"
        parts = [
            inner.linear("From the trend", model.map, trend, formula, columns=columns),
            inner.linear("From the rest", model.rest, rest, formula, columns=columns),
        ]
        known = {} if model.covariates.n_known else {"measured": whole_output(subject)}
        x = inner.step("Forecast", Add(), *parts, formula="the sum", columns=columns, **known)
        covariate_steps(inner, subject, x, columns, values.new_ones(1, 1, 1))


@register_steps(RidgeLags)
def ridge_steps(subject: StepSubject) -> None:
    """Normalize the look-back, multiply it by the coefficients, and put the level back."""
    model, past = cast(RidgeLags, subject.model), subject.tensors["past"]
    values, length = channels(subject), past.size(1)
    t, x = start(subject, values)
    window = normalize(t, x, model.norm(values))
    words = forecast(subject)
    with t.level("Forecast") as inner:
        lags = inner.given("coefficients", model.weights[:, :length], columns=t.tokens)
        inputs = [window.values, lags, inner.given("constant", model.weights[:, length])]
        formula = "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ, over the steps of the look-back"
        y = inner.step(
            "Forecast, normalized", Dot(), *inputs, formula=formula, columns=words["columns"]
        )
        if model.config.n_known:
            known = model.weights[:, length + 1 :]
            effect = (model.covariates(subject.tensors.get("future"), past)[0] * known).sum(-1)
            formula = "what the covariates of each step add"
            added = inner.given("Effect of covariates", effect, shown=True, formula=formula)
            y = inner.step("With covariates", Add(), y, added, formula="yᵢ + effectᵢ")
        formula, scale = "yᵢ · deviation + mean of the look-back", (window.deviation, window.mean)
        x = inner.step("Point forecast", Rescale(), y, *scale, formula=formula, **words)
    output_steps(t, subject, x)
