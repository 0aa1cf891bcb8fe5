"""Every stage that refers to the lectures finds its symbols, and no symbols are left over."""

from __future__ import annotations

from step_models import STEP_MODELS

from regard.look.steps import trace_steps
from regard.look.steps.notation import LECTURES, in_lectures


def test_symbols_are_used_and_known():
    used = {stage.lecture for make in STEP_MODELS.values() for stage in trace_steps(make()).stages}
    assert used - {""} == set(LECTURES)
    assert in_lectures("") == () and "003" in in_lectures("residual")[0]
