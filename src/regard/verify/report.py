"""What verifying found: one line per check, with the figure that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

Finding = tuple[bool, str]  # did it hold, and the figure that says so


@dataclass(frozen=True)
class Check:
    """One property of a run, whether it holds, and the figure that was measured."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """All checks that apply to a run, in order."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Did every check hold?"""
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The document `regard verify --json` prints."""
        checks = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in self.checks]
        return {"checks": checks, "ok": self.ok}


class Gap:
    """The largest difference between numbers that should agree, and over how many positions."""

    def __init__(self) -> None:
        self.worst = 0.0
        self.positions = 0

    def add(self, got: Tensor, expected: Tensor, positions: int) -> None:
        """Compare two tensors of one shape; equal infinities agree, NaN agrees with nothing."""
        if got.shape != expected.shape:
            raise ValueError(f"got shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
        difference = (got - expected).abs().masked_fill(got == expected, 0.0)
        difference = difference.nan_to_num(float("inf"), float("inf"))
        self.worst = max(self.worst, float(difference.max()) if difference.numel() else 0.0)
        self.positions += positions

    def finding(self, allowed: float, what: str = "") -> Finding:
        """Does the worst stay within what is allowed? With a text that says both."""
        detail = f"max difference {self.worst:.1e} over {self.positions:,} positions"
        return (
            self.worst <= allowed,
            f"{detail}{what} (allowed {allowed:.1e} at the scale of the logits)",
        )
