"""The complexity table: fits, crossings, paths and chains against what is known of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.lab import complexity, curve_fit
from regard.lab import complexity as operators
from regard.lab.complexity import (
    EXPLICIT,
    KINDS,
    NEAR,
    Found,
    chain,
    claims,
    fits,
    layers_to,
    longest_path,
)
from regard.lab.curve_fit import Box, crossing, exponent, timed
from regard.lab.result import Options

CPU = torch.device("cpu")
SIZES = [256, 512, 1024, 2048, 4096]


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_a_power_is_found_and_one_disturbed_size_does_not_move_it(power):
    random = np.random.default_rng(0)
    costs = [[3e-6 * n**power * f for f in random.lognormal(0, 0.03, 9)] for n in SIZES]
    found = exponent(SIZES, costs)
    assert found.value == pytest.approx(power, abs=0.03)
    assert found.low <= power + 0.02 and power - 0.02 <= found.high
    costs[2] = [5 * t for t in costs[2]]  # somebody else used the machine
    assert exponent(SIZES, costs).value == pytest.approx(power, abs=0.08)
    costs[1][:3] = [100.0] * 3  # ... and some repeats
    assert exponent(SIZES, costs).value == pytest.approx(power, abs=0.08)


def test_where_curves_cross():
    square, line = [n**2 for n in SIZES], [1000.0 * n for n in SIZES]
    assert crossing(SIZES, line, square) == pytest.approx(1000, rel=1e-6)
    assert crossing(SIZES, square, line) is None
    assert crossing(SIZES, [x / 1e6 for x in line], square) == 256


def test_repeats_are_at_least_some_and_end_when_time_is_over():
    calls = []

    def work(x):
        calls.append(x)
        return x * 2

    x = torch.ones(3, requires_grad=True)
    assert len(timed(work, [x], Box(0.0, 4, 9))) == 4 and len(calls) == 5
    assert len(timed(work, [x], Box(5.0, 2, 6))) == 6
    assert torch.equal(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_to_reach_are_those_of_the_table(kind):
    for distance in (2, 9, NEAR - 1, NEAR, 26, 27):
        assert layers_to(kind, distance, 6) == KINDS[kind].layers(distance)
    if kind == "window":
        assert layers_to(kind, 10 * NEAR, 3) is None


def test_a_chain_is_the_longest_path():
    x = torch.ones(2, requires_grad=True)
    assert longest_path(x * 2) == 1
    y = x.exp()
    for _ in range(5):
        y = y.sin() + x  # two operations, the shorter way past them
    assert longest_path(y) == 11


def test_only_a_recurrence_waits_for_itself():
    for kind in KINDS:
        few, many = chain(kind, 8), chain(kind, 24)
        if kind == "recurrent":
            each = (many - few) / 16
            assert each >= 4 and many == few + 16 * each
        else:
            assert many == few


@pytest.mark.parametrize("kind", KINDS)
def test_alone_and_whole_are_causal_layers_of_the_library(kind):
    torch.manual_seed(0)
    work, inputs = operators.whole(kind, 200, 64, CPU)
    y = work(*inputs)
    assert y.shape == (1, 200, 64)
    (slope,) = torch.autograd.grad(y[:, 100].sum(), inputs)
    assert slope[:, 101:].abs().max() <= 1e-6 * slope[:, :101].abs().max()
    work, inputs = operators.alone(kind, 200, 64, CPU)
    assert work(*inputs).numel() == 200 * 64


def found_of(n_power, d_power):
    """Made-up measurements with these powers, all else as the table says."""
    plan = complexity.SMALL
    found = Found("a machine")
    for kind in KINDS:
        for form in ("alone", "whole"):
            scale = 1e-12 if kind == "attention" else 1e-6
            found.by_length[kind, form] = [[scale * n ** n_power(kind)] * 3 for n in plan.lengths]
            found.by_width[kind, form] = [[1e-6 * d ** d_power(kind)] * 3 for d in plan.widths]
        found.memory[kind] = [100 * n for n in plan.lengths]
        found.chains[kind] = [10 * n if kind == "recurrent" else 12 for n in plan.chains]
        found.layers[kind] = [KINDS[kind].layers(n) for n in plan.distances]
    found.memory[EXPLICIT] = [n * n for n in plan.lengths]
    found.short = {"attention": [1.0], "recurrent": [2.0]}
    return found, plan


def test_claims_hold_where_the_table_is_right_and_fail_where_not():
    found, plan = found_of(lambda k: KINDS[k].n, lambda k: KINDS[k].d)
    held = complexity.report(found, plan, 0)
    assert [c.name for c in held.claims if not c.holds] == [
        f"{kind} overtakes attention" for kind in ("window", "linear", "hyena")
    ]  # a thousand times attention's price at these lengths
    found, plan = found_of(lambda k: 1.5, lambda k: 3.0)
    found.layers["window"][-1] = None
    found.chains["hyena"][-1] = 1000
    found.short["attention"] = [3.0]
    in_n, in_d = fits(found.by_length, plan.lengths, 0), fits(found.by_width, plan.widths, 0)
    memory = {kind: curve_fit.Exponent(1.5, 1.4, 1.6) for kind in found.memory}
    failed = {c.name for c in claims(found, plan, in_n, in_d, memory) if not c.holds}
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
        box=Box(0.0, 1, 1),
        short=(16, 64),
        distances=(8, 16),
    )
    monkeypatch.setattr(complexity, "SMALL", tiny)
    monkeypatch.setattr(complexity, "choose_device", lambda name: CPU)
    result = complexity.complexity(Options(quick=True))
    held = {claim.name: claim.holds for claim in result.claims}
    assert held["memory of fused attention, in n"]
    assert held["layers until window reaches 8, 16 back"]
    assert [row[0] for row in result.tables[0].rows] == list(KINDS)
    assert "Steps and paths" in result.page().render()
