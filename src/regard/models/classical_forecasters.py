"""Classical forecasters, fitted at once: the baselines of every network.

`Naive` repeats the last value, `SeasonalNaive` the last season, and `Drift` extends the line from
the first to the last value (Hyndman & Athanasopoulos 2021, "Forecasting: Principles and Practice",
section 5.2). `ExponentialSmoothing` is the additive method of Holt (1957) and Winters (1960) with
the damped trend of Gardner & McKenzie (1985). `RidgeLags` is ridge regression (Hoerl & Kennard
1970) from the look-back to the horizon. `Boosting` grows trees of lags (Friedman 2001; with
histograms: Ke et al. 2017, LightGBM).

All but `Boosting` give a point forecast. Their quantiles are the point forecast plus the empirical
quantiles of its errors in training windows, for each step of the horizon and each channel.
"""

from __future__ import annotations

import importlib
import time
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor
from torch.nn import functional as F

from regard.data.windows import Windows
from regard.errors import UserError
from regard.layers.tap import Tap
from regard.models import Presets, VariableBuffers, check_choices, check_ranges
from regard.models.forecaster import ForecastConfig, ForecastModel, WindowNorm
from regard.models.supervised import Budget, Log

if TYPE_CHECKING:
    from regard.data.corpus import Corpus

Floats = NDArray[np.float64]
CHUNK = 1 << 22  # numbers of windows that are read at once
SPREAD_WINDOWS = 2000  # training windows whose errors give quantiles ...
SPREAD_ERRORS = 1 << 27  # ... and the most errors that are kept in memory
NAN = float("nan")


class Examples(NamedTuple):
    """Windows as tensors: what a forecaster reads and what it predicts."""

    past: Tensor  # (B, L, V)
    future: Tensor | None  # (B, H, K)
    targets: Tensor  # (B, H, C)


def read_examples(windows: Windows, config: ForecastConfig) -> Examples:
    """Return all windows on the CPU."""
    values = torch.from_numpy(windows.read()).float()  # (B, L + H, V)
    past, ahead = values[:, : windows.lookback], values[:, windows.lookback :]
    future = ahead[..., config.n_channels :] if config.n_known else None
    return Examples(past, future, ahead[..., : config.n_channels])


def windows_at_once(windows: Windows, config: ForecastConfig) -> int:
    """Return how many windows are read at once."""
    step = config.n_channels + config.n_known * config.n_channels  # rows repeat the covariates
    return max(1, CHUNK // (windows.length * step))


def space_evenly(windows: Windows, most: int) -> Windows:
    """Return at most so many windows, evenly spaced."""
    if windows.records <= most:
        return windows
    return windows.take(np.linspace(0, windows.records - 1, most).round().astype(np.int64))


def empirical_quantiles(errors: Tensor, levels: Sequence[float]) -> Tensor:
    """Return quantiles (…, Q) of the observed (R, …) errors, interpolated between neighbours; 0
    where none is observed.
    """
    ordered = errors.double().sort(0).values  # NaN comes last
    last = (~errors.isnan()).sum(0) - 1
    rank = torch.tensor(levels, dtype=torch.float64)[(...,) + (None,) * last.dim()] * last
    low = rank.floor().long().clamp(min=0)  # (Q, …)
    high = torch.minimum(low + 1, last.clamp(min=0))
    below, above = ordered.gather(0, low), ordered.gather(0, high)
    return (below + (rank - low) * (above - below)).nan_to_num(0.0).movedim(0, -1)


class PointForecaster(ForecastModel):
    """Base of forecasters of one number, to which `spread` (H, C, Q) adds quantiles of errors."""

    loop = "count"
    Config = ForecastConfig
    PRESETS: ClassVar[Presets] = {"standard": lambda n_layers, d_model: ForecastConfig()}
    spread: Tensor

    def __init__(self, vocab_size: int, config: ForecastConfig) -> None:
        super().__init__(vocab_size, config)
        shape = config.horizon, config.n_channels, config.n_outputs
        self.register_buffer("spread", torch.zeros(shape))

    @abstractmethod
    def predict_point(self, past: Tensor, future: Tensor | None) -> Tensor:
        """Map the look-back (B, L, V) and covariates (B, H, K) to point forecasts (B, H, C)."""

    def fit_point(self, shard: Windows, valid: Windows | None, say: Log, budget: Budget) -> None:
        """Fit what the point forecast needs."""

    @torch.no_grad()
    def fit(
        self, shard: Windows, valid: Windows | None, say: Log, budget: Budget | None = None
    ) -> None:
        """Fit to training windows; `valid` may choose settings only."""
        self.fit_point(shard, valid, say, budget or Budget(say))
        if self.config.quantiles:
            self.spread = self.find_spread(shard)

    def find_spread(self, shard: Windows) -> Tensor:
        """Return quantiles (H, C, Q) of the errors in training windows."""
        c = self.config
        most = min(SPREAD_WINDOWS, max(1, SPREAD_ERRORS // (c.horizon * c.n_channels)))
        parts = []
        for part in space_evenly(shard, most).batches(windows_at_once(shard, c)):
            examples = read_examples(part, c)
            parts.append(examples.targets - self.predict_point(examples.past, examples.future))
        errors = torch.cat(parts)  # (R, H, C)
        columns = [empirical_quantiles(column, c.quantiles) for column in errors.unbind(-1)]
        return torch.stack(columns, 1).float()  # (H, C, Q)

    def channels(self, past: Tensor) -> Tensor:
        """Return the channels (B, L, C) of a look-back in fp32."""
        return past[..., : self.config.n_channels].float()

    def forecast(
        self, past: Tensor, future: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        return self.predict_point(past, future)[..., None] + self.spread  # (B, H, C, Q)


def last_observed(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last observed of values (B, T, …) and its step; 0 and -1 where there is none."""
    known = ~values.isnan()
    steps = torch.arange(values.size(1), device=values.device)
    steps = steps[(None, slice(None), *(None,) * (values.dim() - 2))]
    step = torch.where(known, steps, -1).amax(1)  # (B, …)
    value = torch.where(known, values, 0.0).gather(1, step.clamp(min=0)[:, None])[:, 0]
    return value, step


class Naive(PointForecaster):
    """The last observed value."""

    def predict_point(self, past: Tensor, future: Tensor | None) -> Tensor:
        value, _ = last_observed(self.channels(past))  # (B, C)
        return value[:, None].expand(-1, self.config.horizon, -1)


class SeasonalNaive(PointForecaster):
    """The last observed value at the same phase of the season. Without a season, and at phases
    that the look-back has no value of, the last observed value.
    """

    @property
    def period(self) -> int:
        """The season; 0 if it repeats nothing that the look-back shows."""
        c = self.config
        return int(c.season) if c.season < c.max_len + c.horizon else 0

    def fit_point(self, shard: Windows, valid: Windows | None, say: Log, budget: Budget) -> None:
        say(f"a season is {self.period:,} steps" if self.period else "no season: the last value")

    def predict_point(self, past: Tensor, future: Tensor | None) -> Tensor:
        values, horizon = self.channels(past), self.config.horizon
        value, _ = last_observed(values)
        naive = value[:, None].expand(-1, horizon, -1)  # (B, H, C)
        if not self.period:
            return naive
        before = -values.size(1) % self.period  # the first season is padded
        padded = F.pad(values, (0, 0, before, 0), value=NAN)
        value, step = last_observed(padded.unflatten(1, (-1, self.period)))  # (B, period, C)
        phase = torch.arange(horizon, device=past.device) % self.period
        return torch.where(step[:, phase] >= 0, value[:, phase], naive)


class Drift(PointForecaster):
    """The line through the first and the last observed value."""

    def predict_point(self, past: Tensor, future: Tensor | None) -> Tensor:
        values = self.channels(past)
        length = values.size(1)
        last, last_step = last_observed(values)  # (B, C)
        first, from_end = last_observed(values.flip(1))
        span = last_step - (length - 1 - from_end)
        slope = (last - first) / span.clamp(min=1)
        ahead = torch.arange(length, length + self.config.horizon, device=past.device)
        distance = ahead[:, None] - last_step[:, None]  # (B, H, C)
        return last[:, None] + slope[:, None] * distance


LONGEST = 2000  # steps at the end of a training series that exponential smoothing is fitted to ...
SEASONS = 4  # ... or this many seasons, if these are longer
SHORTEST = 10  # observed steps, below which nothing is fitted
FITS = 64  # of a channel, if there are many series
SPAN = 12  # steps that give the first level if there is no season
DEFAULTS = (0.3, 0.0, 0.1, 0.0)  # alpha, beta, gamma and phi of channels without a fit
TRENDS = ("auto", "none", "damped")


@dataclass(frozen=True, kw_only=True)
class SmoothingConfig(ForecastConfig):
    """Exponential smoothing."""

    trend: Literal["auto", "none", "damped"] = "auto"  # "auto": by the information criterion

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, trend=TRENDS)

    @property
    def period(self) -> int:
        """The season if the look-back holds two of it, otherwise 0."""
        return self.season if 2 <= self.season <= self.max_len // 2 else 0


class SmoothingState(NamedTuple):
    """The state of Holt-Winters smoothing before a step."""

    level: Tensor  # (B, C)
    slope: Tensor  # (B, C)
    season: Tensor  # (B, period, C), by step modulo the period; one zero without a season


def observed_mean(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over axis 1 of the observed values (B, T, …), 0 if none, and their number."""
    count = (~values.isnan()).sum(1)
    return values.nansum(1) / count.clamp(min=1), count


def initial_state(values: Tensor, period: int, trended: Tensor) -> SmoothingState:
    """Return the state before the first of values (B, T, C), from the first two seasons; the slope
    is 0 in channels that are not `trended` (C,).
    """
    span = period or max(1, min(SPAN, values.size(1) // 2))
    first, n = observed_mean(values[:, :span])
    second, m = observed_mean(values[:, span : 2 * span])
    slope = torch.where(trended & (n > 0) & (m > 0), (second - first) / span, 0.0)
    rest, _ = observed_mean(values)
    middle = torch.where(n > 0, first, torch.where(m > 0, second, rest))  # level of the first span
    level = middle - slope * (span + 1) / 2
    if not period:
        return SmoothingState(level, slope, torch.zeros_like(level)[:, None])
    steps = torch.arange(1, 2 * span + 1, device=values.device)[:, None]
    residual = values[:, : 2 * span] - level[:, None] - slope[:, None] * steps
    season, _ = observed_mean(residual.unflatten(1, (2, period)))  # (B, period, C)
    return SmoothingState(level, slope, season)


class ExponentialSmoothing(PointForecaster):
    """Additive Holt-Winters smoothing: each look-back is smoothed from its own first two seasons,
    with parameters (C,) that are fitted to the training part by statsmodels.

    With the error e = y - (l + φ b + s) of a step, l ← l + φ b + α e, b ← φ b + α β e and
    s ← s + γ e. At a missing value e = 0. Without a trend β = φ = 0, without a season γ = 0.
    (statsmodels' own forecasts leave the last of these s out.)
    """

    loop = "solve"
    Config = SmoothingConfig
    PRESETS: ClassVar[Presets] = {"standard": lambda n_layers, d_model: SmoothingConfig()}
    alpha: Tensor
    beta: Tensor
    gamma: Tensor
    phi: Tensor

    def __init__(self, vocab_size: int, config: SmoothingConfig) -> None:
        super().__init__(vocab_size, config)
        for name in ("alpha", "beta", "gamma", "phi"):
            self.register_buffer(name, torch.zeros(config.n_channels))

    @classmethod
    def unsuitable(cls, corpus: Corpus) -> str:
        return "statsmodels is not installed" if find_spec("statsmodels") is None else ""

    def fit_point(self, shard: Windows, valid: Windows | None, say: Log, budget: Budget) -> None:
        method, c = holt_winters(), self.config
        series = training_series(shard, c.n_channels, max(LONGEST, SEASONS * c.period))
        parameters: list[Floats] = []
        for columns in zip(*(values.T for values in series), strict=True):  # of one channel
            if parameters and budget.left < 0:
                text = f"{c.n_channels - len(parameters):,} of {c.n_channels:,} channels"
                budget.reduce(f"{text} take the median parameters of the others")
                break
            parameters.append(fit_smoothing(method, columns, c.period, c.trend))
            budget.progress(f"channel {len(parameters):,} of {c.n_channels:,}")
        missing = [np.median(parameters, 0)] * (c.n_channels - len(parameters))
        matrix = torch.from_numpy(np.stack([*parameters, *missing])).float()  # (C, 4)
        self.alpha, self.beta, self.gamma, self.phi = (p.clone() for p in matrix.unbind(1))
        season = f"a season of {c.period:,} steps" if c.period else "no season"
        trended = int((self.phi > 0).sum())
        say(f"{season}; {trended:,} of {c.n_channels:,} channels have a damped trend")

    def predict_point(self, past: Tensor, future: Tensor | None) -> Tensor:
        values, c = self.channels(past), self.config
        level, slope, season = self.smooth(values)
        steps = torch.arange(c.horizon, device=past.device)
        damping = (self.phi ** (steps + 1)[:, None]).cumsum(0)  # (H, C)
        phase = (values.size(1) + steps) % season.size(1)
        return level[:, None] + damping * slope[:, None] + season[:, phase]

    def smooth(self, values: Tensor) -> SmoothingState:
        """Return the state after the last of values (B, L, C)."""
        state = initial_state(values, self.config.period, self.phi > 0)
        for step, value in enumerate(values.unbind(1)):
            state = self.update(state, value, step)
        return state

    def update(self, state: SmoothingState, value: Tensor, step: int) -> SmoothingState:
        """Return the state after a value (B, C), the seasons of the one before changed in place."""
        level, slope, season = state
        phase = step % season.size(1)
        expected = level + self.phi * slope
        error = value - expected - season[:, phase]
        error = torch.where(value.isnan(), 0.0, error)
        season[:, phase] += self.gamma * error
        slope = self.phi * slope + self.alpha * self.beta * error
        return SmoothingState(expected + self.alpha * error, slope, season)


def holt_winters() -> Any:
    """Return statsmodels' class, which is an optional package."""
    try:
        return importlib.import_module("statsmodels.tsa.holtwinters").ExponentialSmoothing
    except ImportError:
        raise UserError(
            "this needs statsmodels, which is not installed: pip install statsmodels"
        ) from None


def training_series(shard: Windows, n_channels: int, longest: int) -> list[Floats]:
    """Return the last steps (T, C) of series that training windows show, NaN between windows.

    If there are many series, a few evenly spaced ones are returned.
    """
    numbers = np.unique(shard.series)
    most = max(1, FITS // n_channels)
    if len(numbers) > most:
        numbers = numbers[np.linspace(0, len(numbers) - 1, most).round().astype(np.int64)]
    result = []
    for number in numbers:
        starts = shard.starts[shard.series == number]
        low, high = int(starts.min()), int(starts.max()) + shard.length
        edges = np.zeros(high - low + 1, np.int64)
        np.add.at(edges, starts - low, 1)
        np.add.at(edges, starts - low + shard.length, -1)
        shown = edges.cumsum()[:-1, None] > 0
        values = np.asarray(shard.ids[low:high, :n_channels], np.float64)
        result.append(np.where(shown, values, np.nan)[-longest:])
    return result


def fit_smoothing(method: Any, columns: Sequence[Floats], period: int, trend: str) -> Floats:
    """Return alpha, beta, gamma and phi (4,) of one channel: medians over its series (T,).

    The trend is chosen by the sum of Akaike's corrected information criterion.
    """
    series = [fill_gaps(column) for column in columns if is_fittable(column, period)]
    if not series:
        return np.array(DEFAULTS)
    choices = (False, True) if trend == "auto" else (trend == "damped",)
    criteria, parameters = list[float](), list[Floats]()
    for damped in choices:
        fits = [smooth_series(method, values, period, damped) for values in series]
        criteria.append(sum(criterion for criterion, _ in fits))
        parameters.append(np.median([values for _, values in fits], axis=0))
    return parameters[int(np.argmin(criteria))]


def is_fittable(column: Floats, period: int) -> bool:
    """Return whether a series (T,) has enough steps and is not constant."""
    known = column[~np.isnan(column)]
    enough = len(known) >= SHORTEST and len(column) >= 2 * max(1, period)
    return enough and bool(np.ptp(known) > 1e-6)  # standardized: the deviation is about 1


def fill_gaps(column: Floats) -> Floats:
    """Return a series (T,) without missing values, interpolated linearly: statsmodels takes none
    of them.
    """
    known, steps = ~np.isnan(column), np.arange(len(column))
    return np.interp(steps, steps[known], column[known])


def smooth_series(method: Any, values: Floats, period: int, damped: bool) -> tuple[float, Floats]:
    """Fit a series (T,) from the same initial state that a look-back has; return the criterion and
    the parameters (4,).
    """
    start = initial_state(torch.from_numpy(values)[None, :, None], period, torch.tensor([damped]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # good enough if it did not fully converge
        model = method(
            values,
            trend="add" if damped else None,
            damped_trend=damped,
            seasonal="add" if period else None,
            seasonal_periods=period or None,
            initialization_method="known",
            initial_level=float(start.level),
            initial_trend=float(start.slope) if damped else None,
            initial_seasonal=start.season[0, :, 0].numpy() if period else None,
        )
        fit = model.fit()
    names = ("smoothing_level", "smoothing_trend", "smoothing_seasonal", "damping_trend")
    parameters = np.nan_to_num([float(fit.params[name]) for name in names])
    return (float(fit.aicc) if np.isfinite(fit.aicc) else np.inf), parameters


PENALTIES = (0.01, 1e-5, 1e-4, 1e-3, 0.1, 1.0)  # tried; the first, if nothing is held out
HELD_OUT = 10  # one of so many training windows chooses if there is no validation part
CHECKED = 1000  # windows that choose
MAX_ROWS = 1 << 20  # windows times channels
GROUPS = 8  # of horizon steps, if targets are missing


@dataclass(frozen=True, kw_only=True)
class RidgeConfig(ForecastConfig):
    """Ridge regression."""

    l2: float = 0.0  # the penalty, in units of the mean of squares; 0 = chosen on validation

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, least=0, l2=1 << 20)


@dataclass(eq=False)
class NormalEquations:
    """Sums in fp64 over rows of P features x, which all G steps of a group share, K covariates z of
    each step, and targets y.
    """

    n_shared: int
    n_steps: int
    n_known: int
    weight: float = 0.0
    xx: Tensor = field(init=False)  # (P, P)
    xy: Tensor = field(init=False)  # (P, G)
    xz: Tensor = field(init=False)  # (P, G, K)
    zz: Tensor = field(init=False)  # (G, K, K)
    zy: Tensor = field(init=False)  # (G, K)

    def __post_init__(self) -> None:
        p, g, k = self.n_shared, self.n_steps, self.n_known
        shapes = {"xx": (p, p), "xy": (p, g), "xz": (p, g, k), "zz": (g, k, k), "zy": (g, k)}
        for name, shape in shapes.items():
            setattr(self, name, torch.zeros(shape, dtype=torch.float64))

    def add(self, x: Tensor, z: Tensor, y: Tensor, weight: float) -> None:
        """Add rows (R, P), (R, G, K) and (R, G), and the sum of their weights."""
        self.weight += weight
        self.xx += x.T @ x
        self.xy += x.T @ y
        self.xz += (x.T @ z.flatten(1)).view_as(self.xz)
        self.zz += torch.einsum("rgk,rgj->gkj", z, z)
        self.zy += torch.einsum("rgk,rg->gk", z, y)

    def solve(self, l2: float) -> Tensor:
        """Return coefficients (G, P + K) that minimise |x a + z b - y|² / weight + l2 · |a, b|²;
        that of the last of x, the constant, is not penalised.
        """
        if not self.weight:
            return torch.zeros(self.n_steps, self.n_shared + self.n_known, dtype=torch.float64)
        penalty = torch.full((self.n_shared,), l2 * self.weight, dtype=torch.float64)
        penalty[-1] = 0.0
        factor = torch.linalg.cholesky(self.xx + penalty.diag())
        a = torch.cholesky_solve(self.xy, factor)  # (P, G), as if there were no z
        if not self.n_known:
            return a.T
        inner = torch.cholesky_solve(self.xz.flatten(1), factor).view_as(self.xz)
        schur = self.zz + l2 * self.weight * torch.eye(self.n_known, dtype=torch.float64)
        schur = schur - torch.einsum("pgk,pgj->gkj", self.xz, inner)  # the Schur complement
        b = torch.linalg.solve(schur, self.zy - torch.einsum("pgk,pg->gk", self.xz, a))  # (G, K)
        return torch.cat((a.T - torch.einsum("pgk,gk->gp", inner, b), b), 1)


class RidgeLags(PointForecaster):
    """One linear map from the normalized look-back, a constant and the covariates of a step to that
    step, for all channels.

    It minimises the squared error of the restored forecasts: a row counts with the variance of its
    window, or else flat windows with a late jump would outweigh all others. A missing value of a
    look-back is the window's mean, in fitting as in use. A row with a missing target is left out of
    the sums of a group of steps.
    """

    loop = "solve"
    Config = RidgeConfig
    PRESETS: ClassVar[Presets] = {"standard": lambda n_layers, d_model: RidgeConfig()}
    weights: Tensor

    def __init__(self, vocab_size: int, config: RidgeConfig) -> None:
        super().__init__(vocab_size, config)
        self.norm = WindowNorm()
        shape = config.horizon, config.max_len + 1 + config.n_known
        self.register_buffer("weights", torch.zeros(shape))  # (H, L + 1 + K)

    def fit_point(self, shard: Windows, valid: Windows | None, say: Log, budget: Budget) -> None:
        learn, check, l2 = shard, valid, self.config.l2
        if check is None or not check.records:
            learn, check = hold_out(shard) if not l2 else (shard, None)
        sums = self.add_up(learn, budget)
        if not l2:
            l2 = self.choose_penalty(sums, check)
            part = "validation windows" if learn is shard else "the last training windows"
            say(f"l2 {l2:g}" + (f", chosen on {part}" if check else ": too few windows to choose"))
        if learn is not shard:
            sums = self.add_up(shard, budget)
        self.config = replace(self.config, l2=l2)
        self.weights = self.solve(sums, l2).float()

    @staticmethod
    def solve(sums: Sequence[NormalEquations], l2: float) -> Tensor:
        """Return the coefficients (H, L + 1 + K) of all groups of steps."""
        return torch.cat([group.solve(l2) for group in sums])

    def add_up(self, windows: Windows, budget: Budget) -> list[NormalEquations]:
        """Return the sums of windows, for each group of horizon steps."""
        c, size = self.config, windows_at_once(windows, self.config)
        n_groups = GROUPS if misses_targets(windows, c.n_channels) else 1
        steps = torch.arange(c.horizon).chunk(n_groups)
        windows = space_evenly(windows, max(1, MAX_ROWS // c.n_channels))
        if budget.limited:
            began, probe = time.monotonic(), next(windows.batches(size))
            self.add_windows([self.empty_sums(len(part)) for part in steps], steps, probe)
            pace = (time.monotonic() - began) / probe.records
            most = max(1, int(budget.left / 4 / pace))  # it may be needed twice
            if most < windows.records:
                budget.reduce(f"ridge regression sums {most:,} of {windows.records:,} windows")
                windows = space_evenly(windows, most)
        sums = [self.empty_sums(len(part)) for part in steps]
        for part in windows.batches(size):
            self.add_windows(sums, steps, part)
            budget.progress("summing windows")
        return sums

    def empty_sums(self, n_steps: int) -> NormalEquations:
        return NormalEquations(self.config.max_len + 1, n_steps, self.config.n_known)

    def add_windows(
        self, sums: Sequence[NormalEquations], steps: Sequence[Tensor], windows: Windows
    ) -> None:
        """Add windows to the sums of groups of steps."""
        past, future, targets = read_examples(windows, self.config)
        values, mean, deviation = self.norm(self.channels(past))  # (B, L, C), (B, 1, C)
        scale = deviation.mT.flatten(0, 1).double()  # (B · C, 1)
        x = scale * F.pad(values.mT.flatten(0, 1).double(), (0, 1), value=1.0)  # (B · C, L + 1)
        y = (targets - mean).mT.flatten(0, 1).double()  # (B · C, H)
        z = self.covariates(future, past)[:, None].double()  # (B, 1, H, K)
        z = (z * deviation[:, 0, :, None, None]).flatten(0, 1)  # (B · C, H, K)
        observed = ~past[..., : self.config.n_channels].isnan().all(1).flatten()
        for group, part in zip(sums, steps, strict=True):
            rows = observed & ~y[:, part].isnan().any(1)
            weight = float(scale[rows].square().sum())
            group.add(x[rows], z[rows][:, part], y[rows][:, part], weight)

    def covariates(self, future: Tensor | None, past: Tensor) -> Tensor:
        """Return covariates (B, H, K), 0, their mean, where missing."""
        if future is None:
            return past.new_zeros(len(past), self.config.horizon, self.config.n_known)
        return future.float().nan_to_num(0.0)

    def choose_penalty(self, sums: Sequence[NormalEquations], check: Windows | None) -> float:
        """Return the penalty with the least squared error in held-out windows."""
        if check is None:
            return PENALTIES[0]
        candidates = [self.solve(sums, l2).float() for l2 in PENALTIES]
        errors = torch.zeros(len(candidates), dtype=torch.float64)
        for part in space_evenly(check, CHECKED).batches(windows_at_once(check, self.config)):
            past, future, targets = read_examples(part, self.config)
            for number, weights in enumerate(candidates):
                error = self.apply_weights(weights, past, future) - targets
                errors[number] += error.double().square().nansum()
        return PENALTIES[int(errors.argmin())]

    def apply_weights(self, weights: Tensor, past: Tensor, future: Tensor | None) -> Tensor:
        """Return point forecasts (B, H, C) of coefficients (H, L + 1 + K)."""
        values, mean, deviation = self.norm(self.channels(past))
        length = values.size(1)
        lags, constant, known = weights[:, :length], weights[:, length], weights[:, length + 1 :]
        ahead = (self.covariates(future, past) * known).sum(-1) + constant  # (B, H)
        mapped = (values.mT @ lags.T).mT + ahead[..., None]  # (B, H, C)
        return self.norm.restore(mapped[..., None], mean, deviation)[..., 0]

    def predict_point(self, past: Tensor, future: Tensor | None) -> Tensor:
        return self.apply_weights(self.weights, past, future)


def hold_out(shard: Windows) -> tuple[Windows, Windows | None]:
    """Return the first windows and the last tenth, whose targets the first do not see; all and None
    if there are too few.
    """
    first = shard.records - shard.records // HELD_OUT
    if first == shard.records:
        return shard, None
    learn = np.flatnonzero(shard.starts[:first] + shard.horizon <= shard.starts[first])
    if not len(learn):
        return shard, None
    return shard.take(learn), shard.take(np.arange(first, shard.records))


def misses_targets(windows: Windows, n_channels: int) -> bool:
    """Return whether any target of any window is missing."""
    missing = np.isnan(np.asarray(windows.ids)[:, :n_channels]).any(1)
    counts = np.concatenate([[0], np.cumsum(missing)])
    first = windows.starts + windows.lookback
    return bool((counts[first + windows.horizon] > counts[first]).any())


ROWS_AT_ONCE = 1 << 20  # rows times trees that are evaluated together
PROBED_TREES = 10  # that are timed
NODE_ARRAYS = ("feature", "threshold", "child", "value")
LEAF = float(np.finfo(np.float32).max)  # the threshold that no observed value exceeds


@dataclass(frozen=True, kw_only=True)
class BoostingConfig(ForecastConfig):
    """Gradient-boosted trees; their number, leaves and learning rate are scikit-learn's."""

    lags: int = 24  # most recent values that trees read
    n_trees: int = 100  # for each quantile
    max_leaves: int = 31
    max_depth: int = 8  # a forecast takes this many comparisons for each tree
    learning_rate: float = 0.1
    rows: int = 200_000  # sampled: a row is a window, a channel and a step

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, lags=1 << 12, n_trees=1 << 16, max_depth=64, rows=1 << 24)
        check_ranges(self, least=2, max_leaves=1 << 12)
        if not 0 < self.learning_rate <= 1:
            raise ValueError(
                f"learning_rate must be above 0 and at most 1, got {self.learning_rate}"
            )

    @property
    def n_lags(self) -> int:
        """Lags that the look-back has."""
        return min(self.lags, self.max_len)

    @property
    def n_features(self) -> int:
        """F: lags, two seasons before if there is one, step, channel and covariates."""
        return self.n_lags + 2 * bool(self.season) + 2 + self.n_known


class BoostingRows(NamedTuple):
    """A sample to learn from."""

    features: Floats  # (R, F)
    targets: Floats  # (R,), normalized by the window
    deviations: Floats  # (R,), of the windows


class Boosting(VariableBuffers, ForecastModel):
    """One ensemble of trees for all channels and steps, or one for each quantile.

    Trees read the most recent values and those one and two seasons before the step to predict,
    all normalized by the window, and the numbers of step and channel and the covariates. As in
    `RidgeLags`, rows count by the deviation of their window, as errors of restored forecasts do.

    The nodes of all trees are stored one after the other. A node goes to `child` if its feature is
    at most its threshold, and else to the node after that; a leaf is its own child. Features are
    numbered twice: from F on, missing values exceed every threshold, below they do not.
    """

    loop = "solve"
    Config = BoostingConfig
    PRESETS: ClassVar[Presets] = {"standard": lambda n_layers, d_model: BoostingConfig()}
    feature: Tensor
    threshold: Tensor
    child: Tensor
    value: Tensor
    roots: Tensor
    outputs: Tensor
    baseline: Tensor
    depth: Tensor

    def __init__(self, vocab_size: int, config: BoostingConfig) -> None:
        super().__init__(vocab_size, config)
        self.norm = WindowNorm()
        for name in ("feature", "child", "roots", "outputs"):  # (M,), (M,), (T,), (T,)
            self.register_buffer(name, torch.zeros(0, dtype=torch.int32))
        self.register_buffer("threshold", torch.zeros(0))  # (M,)
        self.register_buffer("value", torch.zeros(0, dtype=torch.float64))  # (M,)
        self.register_buffer("baseline", torch.zeros(config.n_outputs, dtype=torch.float64))  # (Q,)
        self.register_buffer("depth", torch.zeros(1, dtype=torch.int32))

    def buffer_error(self) -> str:
        """Return what would make a tree leave its arrays, or ""."""
        nodes, trees = len(self.value), len(self.roots)
        same = all(len(t) == nodes for t in (self.feature, self.threshold, self.child))
        if not same or len(self.outputs) != trees or len(self.depth) != 1:
            return "the arrays of trees have different lengths"
        if self.baseline.shape != (self.config.n_outputs,):
            return "there must be as many baselines as quantiles"
        limits = (
            (self.feature, 2 * self.config.n_features),
            (self.child, nodes - 1),  # the node after it exists, too
            (self.roots, nodes),
            (self.outputs, self.config.n_outputs),
            (self.depth, nodes + 1),
        )
        good = all(bool(((t >= 0) & (t < limit)).all()) for t, limit in limits)
        return "" if good else "a tree refers to a node, feature or quantile that does not exist"

    def fit(
        self, shard: Windows, valid: Windows | None, say: Log, budget: Budget | None = None
    ) -> None:
        """Fit to training windows; `valid` is not used."""
        budget, levels = budget or Budget(say), self.config.quantiles
        rows = self.sample_rows(shard)
        if len(rows.targets) < 2:
            say("too few targets for trees: the forecast is the mean of the window")
            return
        say(f"boosting {self.config.n_features:,} features of {len(rows.targets):,} sampled rows")
        ensembles = []
        for number, level in enumerate(levels or (None,)):
            share = budget.left / (self.config.n_outputs - number)
            ensembles.append(self.grow(rows, level, share, budget))
            budget.progress(f"model {number + 1} of {self.config.n_outputs}")
        self.store(ensembles)

    def sample_rows(self, shard: Windows) -> BoostingRows:
        """Return rows of training windows, drawn from a fixed seed; those without a target are left
        out.
        """
        c = self.config
        shape = shard.records, c.horizon, c.n_channels
        total = shard.records * c.horizon * c.n_channels
        draw = np.random.default_rng(0)
        picked = np.sort(draw.choice(total, min(c.rows, total), replace=False, shuffle=False))
        window, step, channel = (torch.from_numpy(part) for part in np.unravel_index(picked, shape))
        windows, position = window.unique(return_inverse=True)
        size, parts = windows_at_once(shard, c), list[tuple[Tensor, Tensor, Tensor]]()
        for first in range(0, len(windows), size):
            part = shard.take(windows[first : first + size].numpy())
            past, future, targets = read_examples(part, c)
            at = (position >= first) & (position < first + size)
            b, h, ch = position[at] - first, step[at], channel[at]
            values, mean, deviation = self.normalize(past)
            scale = deviation[b, 0, ch]
            y = (targets[b, h, ch] - mean[b, 0, ch]) / scale
            known = ~y.isnan()
            x = self.features(values, future, b[known], h[known], ch[known])
            parts.append((x, y[known], scale[known]))
        return BoostingRows(
            *(torch.cat(part).double().numpy() for part in zip(*parts, strict=True))
        )

    def normalize(self, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values (B, L, C), NaN where missing, and mean and deviation (B, 1, C)."""
        channels = past[..., : self.config.n_channels].float()
        values, mean, deviation = self.norm(channels)
        return torch.where(channels.isnan(), NAN, values), mean, deviation

    def features(
        self, values: Tensor, future: Tensor | None, window: Tensor, step: Tensor, channel: Tensor
    ) -> Tensor:
        """Return the features (R, F) of rows, given their windows, steps and channels (R,)."""
        c, length = self.config, values.size(1)
        parts = [values.mT[window, channel, length - c.n_lags :]]  # (R, lags)
        for seasons in (1, 2) if c.season else ():
            at = length + step - c.season * (step // c.season + seasons)
            lagged = values[window, at.clamp(min=0), channel]
            parts.append(torch.where(at >= 0, lagged, NAN)[:, None])
        parts += [step.to(values)[:, None], channel.to(values)[:, None]]
        if c.n_known:
            unknown = values.new_full((len(step), c.n_known), NAN)
            parts.append(unknown if future is None else future.to(values)[window, step])
        return torch.cat(parts, 1)

    def grow(self, rows: BoostingRows, level: float | None, seconds: float, budget: Budget) -> Any:
        """Return scikit-learn's ensemble for a quantile, or for the mean; fewer trees if time is
        short.
        """
        c = self.config
        ensemble = HistGradientBoostingRegressor(
            loss="squared_error" if level is None else "quantile",
            quantile=level,
            max_iter=c.n_trees,
            max_leaf_nodes=c.max_leaves,
            max_depth=c.max_depth,
            learning_rate=c.learning_rate,
            early_stopping=False,  # random rows of overlapping windows would tell nothing
            categorical_features=None,
            random_state=0,
            warm_start=budget.limited,
        )
        weights = rows.deviations ** (2 if level is None else 1)
        data = rows.features, rows.targets, weights / weights.mean()
        if budget.limited and c.n_trees > PROBED_TREES:
            began = time.monotonic()
            ensemble.set_params(max_iter=PROBED_TREES).fit(*data)
            taken = time.monotonic() - began
            more = max(0, int((seconds - taken) / taken * PROBED_TREES))
            if PROBED_TREES + more < c.n_trees:
                budget.reduce(f"{PROBED_TREES + more:,} of {c.n_trees:,} trees are grown")
            ensemble.set_params(max_iter=min(c.n_trees, PROBED_TREES + more))
        return ensemble.fit(*data)

    def store(self, ensembles: Sequence[Any]) -> None:
        """Keep the trees of scikit-learn's ensembles, one for each quantile."""
        arrays, outputs, baselines = list[Any](), list[int](), list[float]()
        for number, ensemble in enumerate(ensembles):
            nodes, baseline = read_nodes(ensemble)
            arrays += nodes
            outputs += [number] * len(nodes)
            baselines.append(baseline)
        roots = np.cumsum([0, *map(len, arrays)])
        trees = [
            layout_tree(nodes, int(root), self.config.n_features)
            for nodes, root in zip(arrays, roots[:-1], strict=True)
        ]
        trees.append((np.zeros(1), np.full(1, LEAF), np.zeros(1), np.zeros(1)))  # a last node after
        for name, parts in zip(NODE_ARRAYS, zip(*trees, strict=True), strict=True):
            stored = torch.from_numpy(np.concatenate(parts))
            setattr(self, name, stored.to(getattr(self, name).dtype))
        self.roots, self.outputs = torch.from_numpy(roots[:-1]).int(), torch.tensor(outputs).int()
        self.baseline = torch.tensor(baselines, dtype=torch.float64)
        deepest = max(int(nodes["depth"].max()) for nodes in arrays)
        self.depth = torch.tensor([deepest], dtype=torch.int32)

    def evaluate(self, features: Tensor) -> Tensor:
        """Return the sums (R, Q) of the trees of each quantile, for features (R, F)."""
        lowest = features.masked_fill(features.isnan(), -torch.inf)
        highest = features.masked_fill(features.isnan(), torch.inf)
        table = torch.cat((lowest, highest), 1)  # (R, 2 · F)
        feature, child = self.feature.long(), self.child.long()
        node = self.roots.long().expand(len(table), -1)  # (R, T)
        for _ in range(int(self.depth)):
            exceeds = table.gather(1, feature[node]) > self.threshold[node]
            node = child[node] + exceeds
        total = self.baseline.repeat(len(table), 1)  # (R, Q)
        return total.index_add(1, self.outputs.long(), self.value[node])

    def forecast(
        self, past: Tensor, future: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        c = self.config
        values, mean, deviation = self.normalize(past)
        numbers = (
            torch.arange(n, device=past.device) for n in (len(past), c.horizon, c.n_channels)
        )
        rows = torch.stack(torch.meshgrid(*numbers, indexing="ij")).flatten(1)  # (3, B · H · C)
        size = max(1, ROWS_AT_ONCE // max(1, len(self.roots)))
        parts = [
            self.evaluate(self.features(values, future, *block)).float()
            for block in rows.split(size, 1)
        ]
        normalized = torch.cat(parts).view(len(past), c.horizon, c.n_channels, c.n_outputs)
        return self.norm.restore(normalized, mean, deviation)


def read_nodes(ensemble: Any) -> tuple[list[Any], float]:
    """Return the arrays of nodes of scikit-learn's trees, and the constant that they add to.

    scikit-learn has no public access to these trees, and pickle, the only way to store an ensemble,
    runs what a file says. So this reads private attributes, here and nowhere else.
    """
    nodes = [trees[0].nodes for trees in ensemble._predictors]
    return nodes, float(np.ravel(ensemble._baseline_prediction)[0])


def layout_tree(nodes: Any, root: int, n_features: int) -> tuple[NDArray[Any], ...]:
    """Return feature, threshold, child and value (M,) of one tree, whose first node is `root`; the
    children of a node are side by side.

    Thresholds are rounded down to fp32, which changes no comparison with fp32 features. One that is
    infinite separates observed from missing values.
    """
    inner = np.flatnonzero(nodes["is_leaf"] == 0)
    position = np.zeros(len(nodes), np.int64)  # of each node; the root comes first
    position[nodes["left"][inner]] = 1 + 2 * np.arange(len(inner))
    position[nodes["right"][inner]] = 2 + 2 * np.arange(len(inner))
    exact = np.minimum(nodes["num_threshold"][inner], LEAF)
    nearest = exact.astype(np.float32)
    down = np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    missing_right = nodes["missing_go_to_left"][inner] == 0
    feature, threshold = np.zeros(len(nodes), np.int64), np.full(len(nodes), LEAF, np.float32)
    child, value = np.arange(len(nodes)), np.zeros(len(nodes))
    feature[position[inner]] = nodes["feature_idx"][inner] + n_features * missing_right
    threshold[position[inner]] = down
    child[position[inner]] = position[nodes["left"][inner]]
    value[position] = nodes["value"]
    return feature, threshold, child + root, value
