"""Learning-rate schedules: a factor between 0 and 1 for each step, after a linear warm-up."""

from __future__ import annotations

import math


def factor(schedule: str, step: int, steps: int, warmup: float) -> float:
    """The factor for step 0 ... steps - 1; `warmup` is a share of the steps.

    `cosine` falls along half a wave to a tenth (Loshchilov & Hutter 2017, arXiv:1608.03983),
    `linear` straight to zero, and `inverse_sqrt` as 1 / sqrt(step), peaking at the end of the
    warm-up (Vaswani et al. 2017, section 5.3, "Noam").
    """
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    if schedule == "inverse_sqrt":
        return math.sqrt(rise / (step + 1))
    done = (step - rise) / max(1, steps - rise)  # 0 ... just below 1
    if schedule == "cosine":
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))
    return 1 - done
