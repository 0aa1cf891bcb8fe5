"""Learning-rate schedules: the shapes they promise."""

import math

import pytest

from regard.training.optimizer import factor

NAMES = ["cosine", "linear", "inverse_sqrt"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("steps", "warmup"), [(100, 0.1), (7, 0.0), (1, 0.5), (50, 1.0)])
def test_factors_rise_linearly_to_one_and_then_never_rise(name, steps, warmup):
    factors = [factor(name, step, steps, warmup) for step in range(steps)]
    rise = max(1, round(warmup * steps))
    assert factors[:rise] == pytest.approx([(i + 1) / rise for i in range(rise)])
    assert max(factors) == pytest.approx(1.0)
    assert all(0 < f <= 1 for f in factors)
    assert all(a >= b for a, b in zip(factors[rise - 1 :], factors[rise:], strict=False))


def test_linear_heads_for_zero_and_cosine_for_a_tenth():
    assert factor("linear", 999, 1000, 0.0) == pytest.approx(1 / 999, rel=1e-6)
    assert factor("cosine", 999_999, 1_000_000, 0.0) == pytest.approx(0.1, abs=1e-6)
    middle = factor("cosine", 550, 1000, 0.1)  # half way down
    assert middle == pytest.approx(0.55)


def test_inverse_sqrt_is_the_formula_of_2017_up_to_its_peak():
    """d_model^-0.5 · min(s^-0.5, s · w^-1.5), with s counted from 1, over its value at s = w."""
    steps, warm = 400, 40
    for step in (0, 10, 39, 40, 100, 399):
        s = step + 1
        noam = min(s**-0.5, s * warm**-1.5) / (warm**-0.5)
        assert factor("inverse_sqrt", step, steps, warm / steps) == pytest.approx(noam)
    assert math.isclose(factor("inverse_sqrt", 159, steps, 0.1), 0.5)
