"""Minutes of a comparison: what rows need, which are left out, and how the rest is shared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import pytest

from regard.registry import NUMBERS, TASKS
from regard.training import comparison_runs
from regard.training.comparison_runs import COUNTING, KEPT, NEURAL, SPAWN, Schedule, priority


@dataclass
class Run:
    """What a schedule asks of a run."""

    model: str
    counts: bool = False
    seed: int = 0
    fraction: float = 1.0


class Clock:
    """Time that stands still."""

    def monotonic(self):
        return 100.0


@pytest.fixture(autouse=True)
def still(monkeypatch):
    monkeypatch.setattr(comparison_runs, "time", Clock())


def test_every_model_of_a_comparison_has_a_place_in_the_order():
    numbers = chain.from_iterable(some.values() for some in NUMBERS.values())
    tasks = (TASKS[task] for task in TASKS if task not in ("masked", "vectors"))
    assert {name for some in (*numbers, *tasks) for name in some} == set(KEPT)


def test_points_of_curves_go_first_then_later_seeds_then_models():
    runs = [
        Run("transformer"),
        Run("uniform", counts=True),
        Run("bigram", counts=True, seed=1),
        Run("bigram", counts=True, fraction=0.5),
        Run("bigram", counts=True, fraction=0.125),
    ]
    kept = sorted(reversed(runs), key=priority)
    assert kept == [runs[0], runs[1], runs[2], runs[4], runs[3]]


@pytest.mark.parametrize(
    ("seconds", "names"), [(60, "lbt"), (40, "bt"), (29, "bt"), (28, "b"), (17, "b"), (11, "")]
)
def test_the_rows_that_fit_are_kept_in_their_order(seconds, names):
    plan = Schedule(100.0 + seconds, [8.0, 10.0])
    rows = [[Run("lstm")], [Run("bigram", counts=True)], [Run("transformer")]]
    assert plan.need(rows[0]) == 9.0 + NEURAL and plan.need(rows[1]) == 9.0 + COUNTING
    assert "".join(row[0].model[0] for row in plan.holds(rows)) == names


def test_a_cheap_row_fits_where_a_better_one_does_not():
    """Thirteen of thirty seconds were left unused, because the Transformer did not fit."""
    plan = Schedule(100.0 + 16.0, [4.0])
    rows = [[Run("pwm", counts=True)], [Run("naive-bayes", counts=True)], [Run("transformer")]]
    assert [row[0].model for row in plan.holds(rows)] == ["transformer"]
    plan = Schedule(100.0 + 11.0, [4.0])
    assert [row[0].model for row in plan.holds(rows)] == ["naive-bayes"]
    plan = Schedule(100.0 + 14.0, [4.0])
    assert [row[0].model for row in plan.holds(rows)] == ["transformer"]


def test_what_no_row_needs_is_shared_equally():
    plan = Schedule(100.0 + 100.0, [4.0])
    bigram, neural = [Run("bigram", counts=True)], [[Run("lstm")], [Run("gru")]]
    need = 4.0 + COUNTING
    spare = 100.0 - need - 2 * (4.0 + NEURAL)
    assert 60 * plan.minutes(bigram, [bigram, *neural]) == pytest.approx(need + spare / 3 - SPAWN)
    folds = [Run("lstm")] * 4
    spare = 100.0 - plan.need(folds)
    assert 60 * plan.minutes(folds, [folds]) == pytest.approx(NEURAL + spare / 4)
    assert 60 * Schedule(90.0, [4.0]).minutes(bigram, [bigram]) == pytest.approx(need - SPAWN)
