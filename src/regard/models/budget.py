"""The time that fitting may take, where models are fitted by counting or by a solver: what does not
fit into it is reduced, and each reduction is printed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

EVERY = 10.0  # seconds between two lines of progress


class Budget:
    """Seconds from now on, and where lines go; without seconds there is no limit."""

    def __init__(self, say: Callable[[str], None], seconds: float = math.inf) -> None:
        self.say = say
        self.began = self.spoke = time.monotonic()
        self.end = self.began + seconds
        self.reductions: list[str] = []  # the lines that `reduce` has printed

    @property
    def limited(self) -> bool:
        """Is there an end at all?"""
        return math.isfinite(self.end)

    @property
    def left(self) -> float:
        """Seconds until the end; below 0 afterwards."""
        return self.end - time.monotonic()

    def set_aside(self, seconds: float) -> None:
        """Keep time for what comes after fitting."""
        self.end -= seconds

    def progress(self, doing: str) -> None:
        """Print what is being done, every EVERY seconds at most."""
        now = time.monotonic()
        if now - self.spoke >= EVERY:
            self.spoke = now
            self.say(f"{now - self.began:,.0f} s: {doing}")

    def reduce(self, what: str) -> None:
        """Print what is left out because time is short, once."""
        if what not in self.reductions:
            self.reductions.append(what)
            self.say(f"time is short: {what}")
