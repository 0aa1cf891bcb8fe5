"""Power laws: recovered from exact losses, and the quick form at a tiny size."""

from __future__ import annotations

import numpy as np

from regard.lab import scaling
from regard.lab.experiment import Options
from regard.lab.scaling import Law, fit_law, forecast_largest


def test_a_power_law_is_recovered_and_forecasts():
    law, sizes = Law(1.5, 40.0, 0.5), [1000, 2000, 4000, 8000, 16000]
    fit = fit_law(sizes, [law.at(n) for n in sizes])
    assert abs(fit.power - 0.5) < 0.03 and abs(fit.floor - 1.5) < 0.05
    losses = {n: [law.at(n)] for n in [*sizes, 32000]}
    forecast = forecast_largest(losses, np.random.default_rng(0))
    assert abs(forecast.largest.value - law.at(32000)) < 0.01
    assert forecast.power.low <= forecast.law.power <= forecast.power.high
    flat = fit_law(sizes, [2.0, 2.1, 2.0, 2.1, 2.2])
    assert flat.power == 0  # no law rises


def test_scaling_quick_form(monkeypatch, tmp_path):
    plan = scaling.Plan(
        characters=(200, 400, 800, 1600),
        sizes=(3000, 5000, 8000),
        steps=1,
        seeds=1,
        length=8,
        batch=2,
        tested=4,
    )
    monkeypatch.setattr(scaling, "SMALL", plan)
    monkeypatch.setattr(scaling, "RESAMPLES", 20)
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be\n" * 60)
    result = scaling.scaling(Options(quick=True, file=path))
    rows = {row[0]: row for row in result.tables[0].rows}
    # nine tenths of the file, less a twentieth
    assert rows["data"][4] == 975 and len(result.claims) == 4
    assert [len(figure.series[0][1]) for figure in result.figures] == [5, 3]
