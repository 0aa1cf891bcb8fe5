"""Checks of forecasters: a forecast depends on its own past alone, all ways to it agree, and the
metrics on record can be measured again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.data.corpus import reopen
from regard.errors import UserError
from regard.evaluation.forecasting import measure_forecasts
from regard.layers.tap import Tap
from regard.run import METADATA, Run
from regard.verify.fixtures import Finding, Fixture, Gap, has_data, open_tokenizer

ROWS = 4  # windows
METRIC_TOLERANCE = 1e-5


@dataclass(frozen=True)
class ForecastFixture(Fixture):
    """A forecaster, and windows (B, L + H, V) to try it on."""

    windows: Tensor

    @classmethod
    def open(cls, run: Path, model: Any) -> Self:
        c = model.config
        random = torch.Generator().manual_seed(0)
        shape = (ROWS, c.max_len + c.horizon, c.n_channels + c.n_known)
        windows = torch.randn(shape, generator=random).cumsum(1)
        windows[0, : c.max_len // 3, : c.n_channels] = torch.nan  # a series that began later
        if has_data(run):
            corpus: Any = reopen(run)
            windows[2:] = torch.from_numpy(corpus.train.take(np.arange(ROWS)[2:] % 2).read())
        return cls(run, model, open_tokenizer(run, model.vocab_size), windows)

    @property
    def lookback(self) -> int:
        return int(self.model.config.max_len)

    def forecast(self, windows: Tensor, tap: Tap | None = None, model: Any = None) -> Tensor:
        """Return the forecasts (B, H, C, Q) of windows."""
        model = model or self.model
        future = windows[:, self.lookback :, model.config.n_channels :]
        forecasts: Tensor = model.forecast(windows[:, : self.lookback], future, tap=tap)
        return forecasts

    def compute(self, model: Any) -> Tensor:
        return torch.cat([self.forecast(window[None], model=model) for window in self.windows])


def fused_is_explicit(fixture: ForecastFixture) -> Finding | None:
    """Attention by fused kernels gives what its explicit weights give."""
    tap = Tap(["*.weights"])
    explicit = fixture.forecast(fixture.windows, tap)
    if not tap.activations:
        return None
    gap = Gap()
    gap.add(explicit, fixture.outputs, len(explicit))
    return gap.finding(fixture.tolerance)


def batch_is_single(fixture: ForecastFixture) -> Finding:
    """A window has the same forecast in a batch as alone, whatever is missing in the others."""
    gap = Gap()
    batch = fixture.forecast(fixture.windows)
    gap.add(batch, fixture.outputs, batch[..., 0].numel())
    order = torch.arange(ROWS).flip(0)
    gap.add(fixture.forecast(fixture.windows[order])[order], fixture.outputs, batch.numel())
    return gap.finding(fixture.tolerance)


def causality_by_gradient(fixture: ForecastFixture) -> Finding:
    """No gradient flows into a forecast from the steps that it predicts."""
    c = fixture.model.config
    with torch.enable_grad():
        windows = fixture.windows.nan_to_num().requires_grad_()
        forecasts = fixture.forecast(windows)
        if forecasts.requires_grad:
            forecasts.sum().backward()
    if windows.grad is None:
        return _causality_by_change(fixture)
    future = windows.grad[:, fixture.lookback :, : c.n_channels]
    past = windows.grad[:, : fixture.lookback]
    ok = bool((future == 0).all()) and bool((past != 0).any())
    return ok, f"{future.numel():,} gradients from the horizon are 0, those of the past are not"


def _causality_by_change(fixture: ForecastFixture) -> Finding:
    """Forecasts without gradients do not change with the steps that they predict."""
    changed = fixture.windows.clone()
    changed[:, fixture.lookback :, : fixture.model.config.n_channels] = 1e6
    same = torch.equal(fixture.forecast(changed), fixture.forecast(fixture.windows))
    return same, "other values at the horizon change no bit of the forecast"


def quantiles_do_not_cross(fixture: ForecastFixture) -> Finding | None:
    """Higher quantiles are nowhere below lower ones."""
    if not fixture.model.config.quantiles:
        return None
    future = fixture.windows[:, fixture.lookback :, fixture.model.config.n_channels :]
    forecasts = fixture.model.predict(fixture.windows[:, : fixture.lookback], future)
    ok = bool((forecasts.diff(dim=-1) >= 0).all())
    return ok, f"{forecasts[..., 0].numel():,} forecasts of {forecasts.size(-1)} quantiles"


def metrics_are_on_record(fixture: ForecastFixture) -> Finding | None:
    """The held-out windows, forecast again, give the metrics that the run has stored."""
    if not has_data(fixture.run) or not (fixture.run / METADATA).exists():
        return None
    try:
        corpus: Any = reopen(fixture.run)
    except UserError:
        return None
    split = corpus.reported_split
    stored = (Run(fixture.run).metadata.get("metrics") or {}).get(split)
    windows = corpus.split(split)
    if not stored or windows is None:
        return None
    before = corpus.valid if split == "test" else None
    result = measure_forecasts(fixture.model, windows, corpus.tokenizer, corpus.train, before)
    for name, metric in result.metrics().items():
        if name in stored and stored[name].get("value") is not None:
            was, now = stored[name]["value"], metric.value
            if abs(was - now) > METRIC_TOLERANCE * max(1.0, abs(was)):
                return False, f"{name} on {split} is {now}, on record is {was}"
    return True, f"{result.records:,} windows of {split} give the metrics on record"


CHECKS = {
    "fused = explicit": fused_is_explicit,
    "batch = single": batch_is_single,
    "causality by gradient": causality_by_gradient,
    "quantiles do not cross": quantiles_do_not_cross,
    "metrics on record": metrics_are_on_record,
}
