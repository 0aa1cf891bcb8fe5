"""Progress of a run on stderr (a live bar on a terminal, otherwise lines), and its interruption."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from regard.errors import one_line, printable


class Interrupt:
    """A context in which the first SIGINT or SIGTERM sets `asked`, and a second one has its usual
    effect; with `repeated`, a second one is ignored, since a launcher may send each signal twice.
    """

    def __init__(self, *, repeated: bool = False) -> None:
        self.asked = 0  # the number of the signal
        self.repeated = repeated
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        if not self.repeated:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        self._restore()


PLAIN_EVERY = 10.0  # seconds between lines where there is no terminal


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def clock(seconds: float) -> str:
    """Return a time as 1:02:03, or 2:03 below an hour."""
    total = max(0, round(seconds))
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


@dataclass
class Status:
    """The state of a run for progress lines."""

    step: int
    steps: int
    nats: float  # training loss per symbol of the last step
    rate: float  # symbols per second
    eta: float | None  # seconds left; None until it is known
    valid: float | None  # best validation nats per symbol so far
    valid_error: float | None = None  # its standard error
    unit: str = "symbol"  # of the rate; bits are shown only for symbols

    def line(self) -> str:
        """Return the status as a line."""
        parts = [f"loss {self.nats:.4f}"]
        if self.unit == "symbol":
            parts.append(f"{self.nats / math.log(2):.3f} bits/symbol")
        if self.valid is not None:
            error = "" if self.valid_error is None else f" ± {self.valid_error:.4f}"
            parts.append(f"best valid {self.valid:.4f}{error}")
        parts += [f"{self.rate:,.0f} {self.unit}s/s", f"{resident_bytes() / 2**20:,.0f} MB"]
        parts.append(f"ETA {clock(self.eta) if self.eta is not None else '…'}")
        return " · ".join(parts)


class Reporter:
    """Print progress and warnings on stderr, or on stdout; if `quiet`, only warnings."""

    def __init__(self, *, quiet: bool = False, stderr: bool = True) -> None:
        self.console = Console(stderr=stderr, highlight=False, soft_wrap=True)
        self.quiet = quiet
        self.warned: set[str] = set()  # a warning is printed once
        self.bar: Progress | None = None
        self.last = 0.0

    def quieter(self) -> Reporter:
        """Return a reporter that prints only warnings, and none that this one has printed."""
        other = Reporter(quiet=True)
        other.warned = self.warned
        return other

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if not self.quiet:
            self.console.print(printable(text), markup=False)

    def warn(self, text: str) -> None:
        """Print a warning, even if quiet, but never twice."""
        if text not in self.warned:
            self.warned.add(text)
            self.console.print(f"warning: {one_line(text)}", markup=False)

    def start(self, steps: int, step: int) -> None:
        """Show a progress bar at `step`, on a terminal."""
        self.last = time.monotonic()
        if self.console.is_terminal and not self.quiet:
            self.bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[line]}", markup=False),
                console=self.console,
                transient=True,
            )
            self.bar.start()
            self.bar.add_task("train", total=steps, completed=step, line="")

    def update(self, status: Status) -> None:
        """Show the status in the bar or, now and then, as a line."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=status.step, line=status.line())
        elif not self.quiet and time.monotonic() - self.last >= PLAIN_EVERY:
            self.last = time.monotonic()
            self.say(f"step {status.step}/{status.steps} · {status.line()}")

    def stop(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
