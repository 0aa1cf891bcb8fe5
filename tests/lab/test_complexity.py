"""The complexity table: fits, crossings, paths and steps against known values."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import torch

from regard.lab import complexity
from regard.lab.complexity import (
    ALONE,
    EXPLICIT,
    FORMS,
    KINDS,
    SHORT_WINDOW,
    Exponents,
    Measurements,
    Size,
    claims,
    count_layers,
    count_steps,
    crossing,
    fit_exponent,
    longest_path,
    measure_seconds,
)
from regard.lab.experiment import Options

CPU = torch.device("cpu")
SIZES = [256, 512, 1024, 2048, 4096]


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_a_power_is_fitted_and_one_disturbed_size_does_not_move_it(power):
    random = np.random.default_rng(0)
    costs = {n: [3e-6 * n**power * f for f in random.lognormal(0, 0.03, 9)] for n in SIZES}
    fit = fit_exponent(costs)
    assert fit.value == pytest.approx(power, abs=0.03)
    assert fit.interval.low <= power + 0.02 and power - 0.02 <= fit.interval.high
    costs[1024] = [5 * t for t in costs[1024]]  # another process used the machine
    assert fit_exponent(costs).value == pytest.approx(power, abs=0.15)
    costs[512][:3] = [100.0] * 3  # ... and disturbed a few repeats
    assert fit_exponent(costs).value == pytest.approx(power, abs=0.15)


def test_where_curves_cross():
    square, line = [n**2 for n in SIZES], [1000.0 * n for n in SIZES]
    assert crossing(SIZES, line, square) == pytest.approx(1000, rel=1e-6)
    assert crossing(SIZES, square, line) is None
    assert crossing(SIZES, [x / 1e6 for x in line], square) == 256


def test_repeats_have_a_least_number_and_end_with_the_time():
    calls = []

    def work(x):
        calls.append(x)
        return x * 2

    x, plan = torch.ones(3, requires_grad=True), complexity.SMALL
    measure_seconds(work, [x], dataclasses.replace(plan, seconds=0.0, repeats=(4, 9)))
    assert len(calls) == 5  # the first does not count
    measure_seconds(work, [x], dataclasses.replace(plan, seconds=5.0, repeats=(2, 6)))
    assert len(calls) == 5 + 7
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_time_that_other_programs_take_does_not_count_on_a_cpu():
    """A machine that was busy made claims about times fail."""
    plan = dataclasses.replace(complexity.SMALL, seconds=0.0, repeats=(1, 1))

    def waiting(x):
        time.sleep(0.05)
        return x * 2

    assert 0 < measure_seconds(waiting, [torch.ones(3, requires_grad=True)], plan) < 0.025
    assert complexity.find_clock(torch.device("cuda", 0)) is not time.process_time


def test_the_least_of_repeats_counts(monkeypatch):
    ticks = iter([0.0, 9.0, 9.0, 12.0, 12.0, 14.0, 14.0, 19.0])
    monkeypatch.setattr(complexity, "find_clock", lambda device: lambda: next(ticks))
    plan = dataclasses.replace(complexity.SMALL, seconds=0.0, repeats=(3, 3))
    assert measure_seconds(lambda x: x * 2, [torch.ones(3, requires_grad=True)], plan) == 2.0


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_layers_is_that_of_the_table(kind):
    for distance in (2, 9, SHORT_WINDOW - 1, SHORT_WINDOW, 26, 27):
        assert count_layers(kind, distance, 6) == KINDS[kind].layers(distance)
    if kind == "window":
        assert count_layers(kind, 10 * SHORT_WINDOW, 3) is None


def test_the_longest_path_is_counted():
    x = torch.ones(2, requires_grad=True)
    assert longest_path(x * 2) == 1
    y = x.exp()
    for _ in range(5):
        y = y.sin() + x  # two operations, and a shorter path past them
    assert longest_path(y) == 11


def test_only_a_recurrence_has_steps_that_grow_with_the_length():
    for kind in KINDS:
        few, many = count_steps(kind, 8), count_steps(kind, 24)
        if kind == "recurrent":
            each = (many - few) / 16
            assert each >= 4 and many == few + 16 * each
        else:
            assert many == few


@pytest.mark.parametrize("kind", KINDS)
def test_both_forms_are_causal_layers_of_the_package(kind):
    torch.manual_seed(0)
    size = Size(n=200, d=64)
    work, inputs = complexity.with_projections(kind, size, CPU)
    y = work(*inputs)
    assert y.shape == (1, 200, 64)
    (gradient,) = torch.autograd.grad(y[:, 100].sum(), inputs)
    assert gradient[:, 101:].abs().max() <= 1e-6 * gradient[:, :101].abs().max()
    work, inputs = complexity.alone(kind, size, CPU)
    assert work(*inputs).numel() == 200 * 64


def make_measurements(n_power, d_power):
    """Return measurements with these powers, all else as in the table."""
    plan = complexity.SMALL
    m = Measurements("a machine")
    for name, kind in KINDS.items():
        for form in FORMS:
            scale = 1e-12 if name == "attention" else 1e-6
            m.by_length[name, form] = {n: [scale * n ** n_power(kind)] * 3 for n in plan.lengths}
            m.by_width[name, form] = {d: [1e-6 * d ** d_power(kind)] * 3 for d in plan.widths}
        m.memory[name] = [100 * n for n in plan.lengths]
        m.chains[name] = [10 * n if name == "recurrent" else 12 for n in plan.chains]
        m.layers[name] = [kind.layers(n) for n in plan.distances]
    m.memory[EXPLICIT] = [n * n for n in plan.lengths]
    m.short = {"attention": [1.0], "recurrent": [2.0]}
    return m, plan


def test_claims_hold_where_the_table_is_right_and_fail_where_not():
    m, plan = make_measurements(lambda k: 2 if k.cost == "n² d" else 1, lambda k: k.d)
    result = complexity.report(m, plan, 0)
    assert [c.name for c in result.claims if not c.holds] == [
        f"{kind} overtakes attention" for kind in ("window", "linear", "hyena")
    ]  # a thousand times the cost of attention at these lengths
    m, plan = make_measurements(lambda k: 1.5, lambda k: 3.0)
    m.layers["window"][-1] = None
    m.chains["hyena"][-1] = 1000
    m.short["attention"] = [3.0]
    power = fit_exponent({n: [n**1.5] for n in plan.lengths})
    powers = Exponents(
        {key: fit_exponent(row) for key, row in m.by_length.items()},
        {key: fit_exponent(row) for key, row in m.by_width.items()},
        {kind: power for kind in m.memory},
    )
    assert powers.n["attention", ALONE].value == pytest.approx(1.5)
    failed = {c.name for c in claims(m, plan, powers) if not c.holds}
    assert {"time of attention, in n", "time of hyena, in d"} <= failed
    assert {"memory of fused attention, in n", "memory of weights that are kept, in n"} <= failed
    assert "only a recurrence takes more steps in a row, the longer it reads" in failed
    assert "attention is cheaper than recurrence where n is far below d" in failed
    assert any(name.startswith("layers until window") for name in failed)


def test_complexity_quick_form(monkeypatch):
    tiny = dataclasses.replace(
        complexity.SMALL,
        lengths=(64, 128),
        widths=(32, 64),
        length=64,
        seconds=0.0,
        repeats=(1, 1),
        short=(16, 64),
        distances=(8, 16),
    )
    monkeypatch.setattr(complexity, "SMALL", tiny)
    monkeypatch.setattr(complexity, "choose_device", lambda name: CPU)
    result = complexity.complexity(Options(quick=True))
    holds = {claim.name: claim.holds for claim in result.claims}
    assert holds["memory of fused attention, in n"]
    assert holds["layers until window reaches 8, 16 back"]
    assert [row[0] for row in result.tables[0].rows] == list(KINDS)
    assert "Steps and paths" in result.page().render()
